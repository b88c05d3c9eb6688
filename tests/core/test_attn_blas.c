/*
 * test_attn_blas.c - matrix products: transposes, strides, alpha and beta, both dtypes,
 * and the promise that calls of one shape give one set of bits. Not here: what the layer
 * multiplies. Start reading at product_is_right.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static struct attn_mat random_mat(struct made *m, enum attn_dtype dtype, size_t rows,
                                  size_t cols)
{
    const struct attn_mat a = {.dtype = dtype,
                               .p = make_block(m, rows * (cols + 2) * sizeof(double)),
                               .rows = rows,
                               .cols = cols,
                               .ld = cols + 2};

    for (size_t n = 0; n < rows * a.ld; n++)
        attn_kernel_of(dtype)->set(a.p, n, make_normal(m));
    return a;
}

static double at(struct attn_mat a, bool trans, size_t r, size_t c)
{
    return attn_kernel_of(a.dtype)->get(a.p, trans ? c * a.ld + r : r * a.ld + c);
}

static void product_is_right(enum attn_dtype dtype, bool ta, bool tb, double alpha,
                             double beta)
{
    enum { M = 5, N = 4, K = 7 };
    struct made m = {.state = 3};
    const struct attn_mat A =
        ta ? random_mat(&m, dtype, K, M) : random_mat(&m, dtype, M, K);
    const struct attn_mat B =
        tb ? random_mat(&m, dtype, N, K) : random_mat(&m, dtype, K, N);
    const struct attn_mat C = random_mat(&m, dtype, M, N);
    double want[M][N], beyond[M];

    for (size_t r = 0; r < M; r++) {
        beyond[r] = attn_kernel_of(dtype)->get(C.p, r * C.ld + N);
        for (size_t c = 0; c < N; c++) {
            want[r][c] = beta * at(C, false, r, c);
            for (size_t k = 0; k < K; k++)
                want[r][c] += alpha * at(A, ta, r, k) * at(B, tb, k, c);
        }
    }
    attn_gemm(C, A, ta, B, tb, alpha, beta);
    for (size_t r = 0; r < M; r++) {
        for (size_t c = 0; c < N; c++)
            cr_assert_float_eq(at(C, false, r, c), want[r][c],
                               dtype == ATTN_F64 ? 1e-14 : 1e-5);
        cr_assert_eq(attn_kernel_of(dtype)->get(C.p, r * C.ld + N), beyond[r]);
    }
    make_free(&m);
}

Test(attn_blas, products)
{
    attn_blas_init();
    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
        for (int t = 0; t < 4; t++) {
            product_is_right((enum attn_dtype)dtype, t & 1, t & 2, 1, 0);
            product_is_right((enum attn_dtype)dtype, t & 1, t & 2, -0.5, 1);
        }
}

/* beta 0 overwrites, whatever stood there. */
Test(attn_blas, beta_zero_reads_nothing)
{
    double a[] = {1, 2}, b[] = {3, 4}, c[] = {NAN};
    const struct attn_mat A = {ATTN_F64, a, 1, 2, 2}, B = {ATTN_F64, b, 2, 1, 1};

    attn_gemm((struct attn_mat){ATTN_F64, c, 1, 1, 1}, A, false, B, false, 1, 0);
    cr_assert_eq(c[0], 11);
}

/* The same rows among others, elsewhere in memory: a call of the same shape gives the
 * same bits. */
Test(attn_blas, one_shape_one_set_of_bits)
{
    enum { M = 128, N = 33, K = 70 };
    struct made m = {.state = 4};
    const struct attn_mat A = random_mat(&m, ATTN_F64, M, K),
                          B = random_mat(&m, ATTN_F64, K, N);
    const struct attn_mat C = random_mat(&m, ATTN_F64, M, N),
                          D = random_mat(&m, ATTN_F64, M, N);
    struct attn_mat moved = A;

    moved.p = (char *)make_block(&m, (M * A.ld + 1) * sizeof(double)) + sizeof(double);
    memcpy(moved.p, A.p, M * A.ld * sizeof(double));
    for (size_t k = 0; k < K; k++)
        attn_kernel_of(ATTN_F64)->set(moved.p, k, INFINITY); /* row 0 */
    attn_gemm(C, A, false, B, false, 1, 0);
    attn_gemm(D, moved, false, B, false, 1, 0);
    for (size_t r = 1; r < M; r++)
        cr_assert_arr_eq((double *)C.p + r * C.ld, (double *)D.p + r * D.ld,
                         N * sizeof(double));
    make_free(&m);
}

Test(attn_blas, has_a_name)
{
    attn_blas_init();
    cr_assert_eq(strncmp(attn_blas_name(), "OpenBLAS", 8), 0);
}
