/*
 * attn_blas.c - matrix products: the one file that knows which BLAS computes.
 * Not here: what is multiplied with what (attn_project.c, attn_softmax.c, attn_mix.c).
 * Start reading at attn_gemm.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <string.h>

static char name[256];

/* OpenBLAS makes its name anew at each call, in one place for all threads: it is asked
   once. */
void attn_blas_init(void)
{
    const char *const given = openblas_get_config();
    const size_t len = strlen(given);

    openblas_set_num_threads(1);
    memcpy(name, given, len < sizeof name ? len : sizeof name - 1);
}

const char *attn_blas_name(void)
{
    return name;
}

static blasint blas_int(size_t n)
{
    assert(n <= INT_MAX);
    return (blasint)n;
}

static CBLAS_TRANSPOSE blas_op(bool trans)
{
    return trans ? CblasTrans : CblasNoTrans;
}

static void check_shapes(struct attn_mat C, struct attn_mat A, bool transA,
                         struct attn_mat B, bool transB)
{
    assert(A.dtype == C.dtype);
    assert(B.dtype == C.dtype);
    assert((transA ? A.cols : A.rows) == C.rows);
    assert((transB ? B.rows : B.cols) == C.cols);
    assert((transA ? A.rows : A.cols) == (transB ? B.cols : B.rows));
    assert(A.ld >= A.cols);
    assert(B.ld >= B.cols);
    assert(C.ld >= C.cols);
    (void)C, (void)A, (void)transA, (void)B, (void)transB;
}

void attn_gemm(struct attn_mat C, struct attn_mat A, bool transA, struct attn_mat B,
               bool transB, double alpha, double beta)
{
    const blasint m = blas_int(C.rows), n = blas_int(C.cols);
    const blasint k = blas_int(transA ? A.rows : A.cols);
    const blasint lda = blas_int(A.ld), ldb = blas_int(B.ld), ldc = blas_int(C.ld);

    check_shapes(C, A, transA, B, transB);
    if (C.dtype == ATTN_F64) {
        cblas_dgemm(CblasRowMajor, blas_op(transA), blas_op(transB), m, n, k, alpha, A.p,
                    lda, B.p, ldb, beta, C.p, ldc);
        return;
    }
    assert(C.dtype == ATTN_F32);
    cblas_sgemm(CblasRowMajor, blas_op(transA), blas_op(transB), m, n, k, (float)alpha,
                A.p, lda, B.p, ldb, (float)beta, C.p, ldc);
}
