/*
 * test_attn_pack.c - the two products of a row block against attn_gemm, at every size
 * around the edges of a panel, and the same bits however the block is cut.
 * Not here: attention that is built on them (test_attn_tiled.c, test_attn_run.c).
 * Start reading at compare.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { ROWS = 20, KEYS = 150, WIDE = 150 };

/* A sum of up to 150 products of numbers around 1 may end in other last bits. */
static const double NEAR[] = {[ATTN_F64] = 1e-12, [ATTN_F32] = 1e-4};

struct sample {
    double q[ROWS * WIDE], k[KEYS * WIDE], got[ROWS * WIDE], want[ROWS * WIDE];
};

static struct attn_mat matrix(enum attn_dtype dtype, void *p, size_t rows, size_t cols,
                              size_t ld)
{
    return (struct attn_mat){
        .dtype = dtype, .p = p, .rows = rows, .cols = cols, .ld = ld};
}

static void draw(struct made *m, enum attn_dtype dtype, size_t n, void *to)
{
    for (size_t j = 0; j < n; j++)
        attn_kernel_of(dtype)->set(to, j, make_normal(m));
}

static bool compare(enum attn_dtype dtype, const struct sample *s)
{
    const struct attn_kernel *kernel = attn_kernel_of(dtype);

    for (size_t n = 0; n < ROWS * WIDE; n++)
        if (fabs(kernel->get(s->got, n) - kernel->get(s->want, n)) > NEAR[dtype]) {
            cr_log_error("%zu: %.17g, gemm %.17g", n, kernel->get(s->got, n),
                         kernel->get(s->want, n));
            return false;
        }
    return true;
}

static struct sample sample(struct made *m, enum attn_dtype dtype)
{
    struct sample s;

    draw(m, dtype, ROWS * WIDE, s.q);
    draw(m, dtype, KEYS * WIDE, s.k);
    draw(m, dtype, ROWS * WIDE, s.got);
    memcpy(s.want, s.got, sizeof s.got);
    return s;
}

/* Columns beyond the last one asked must stay: they are compared as well. */
Test(attn_pack, scores_are_those_of_gemm)
{
    static const size_t SIZES[] = {1,  2,  3,  4,  5,  8,  15,  16,
                                   17, 31, 33, 63, 64, 65, 129, 149};
    struct made m = {.state = 3};

    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
        for (size_t w = 0; w < attn_pack_widths(); w++)
            for (size_t a = 0; a < ATTN_COUNT(SIZES); a++)
                for (size_t b = 0; b < ATTN_COUNT(SIZES); b++) {
                    const enum attn_dtype type = (enum attn_dtype)dtype;
                    const struct attn_pack *pack = attn_pack_width(type, w);
                    const size_t rows = 1 + (a + b) % ROWS;
                    struct sample s = sample(&m, type);
                    const struct attn_mat Q = matrix(type, s.q, rows, SIZES[a], WIDE),
                                          K = matrix(type, s.k, SIZES[b], SIZES[a], WIDE);

                    if (!pack)
                        continue;
                    pack->scores(matrix(type, s.got, rows, SIZES[b], WIDE), Q, K, 0.5);
                    attn_gemm(matrix(type, s.want, rows, SIZES[b], WIDE), Q, false, K,
                              true, 0.5, 0);
                    cr_assert(compare(type, &s), "width %zu rows %zu d %zu keys %zu", w,
                              rows, SIZES[a], SIZES[b]);
                }
}

Test(attn_pack, values_are_mixed_as_by_gemm)
{
    static const size_t SIZES[] = {1, 2, 7, 8, 16, 31, 32, 33, 64, 70, 128, 129, 150};
    struct made m = {.state = 4};

    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
        for (size_t w = 0; w < attn_pack_widths(); w++)
            for (size_t a = 0; a < ATTN_COUNT(SIZES); a++)
                for (size_t b = 0; b < ATTN_COUNT(SIZES); b++) {
                    const enum attn_dtype type = (enum attn_dtype)dtype;
                    const struct attn_pack *pack = attn_pack_width(type, w);
                    const size_t rows = 1 + (a * 3 + b) % ROWS;
                    struct sample s = sample(&m, type);
                    const struct attn_mat A = matrix(type, s.q, rows, SIZES[a], WIDE),
                                          V = matrix(type, s.k, SIZES[a], SIZES[b], WIDE);

                    if (!pack)
                        continue;
                    pack->mix(matrix(type, s.got, rows, SIZES[b], WIDE), A, V);
                    attn_gemm(matrix(type, s.want, rows, SIZES[b], WIDE), A, false, V,
                              false, 1, 1);
                    cr_assert(compare(type, &s), "width %zu rows %zu keys %zu d %zu", w,
                              rows, SIZES[a], SIZES[b]);
                }
}

/* One row, one key at a time: the bits of the whole block. */
Test(attn_pack, cutting_changes_no_bit)
{
    struct made m = {.state = 5};

    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
        for (size_t w = 0; w < attn_pack_widths(); w++) {
            const enum attn_dtype type = (enum attn_dtype)dtype;
            const struct attn_pack *pack = attn_pack_width(type, w);
            struct sample s = sample(&m, type);
            const struct attn_mat Q = matrix(type, s.q, ROWS, WIDE, WIDE),
                                  K = matrix(type, s.k, KEYS, WIDE, WIDE);
            const struct attn_mat got = matrix(type, s.got, ROWS, KEYS, WIDE);

            if (!pack)
                continue;
            pack->scores(matrix(type, s.want, ROWS, KEYS, WIDE), Q, K, 0.3);
            for (size_t i = 0; i < ROWS; i++)
                for (size_t j = 0; j < KEYS; j++) {
                    struct attn_mat one = attn_mat_rows(got, i, 1);

                    one.p = (char *)one.p + j * attn_dtype_bytes(type);
                    one.cols = 1;
                    pack->scores(one, attn_mat_rows(Q, i, 1), attn_mat_rows(K, j, 1),
                                 0.3);
                }
            cr_assert_eq(memcmp(s.got, s.want, ROWS * WIDE * attn_dtype_bytes(type)), 0,
                         "width %zu", w);
        }
}

Test(attn_pack, the_best_is_the_first_that_runs_here)
{
    const struct attn_pack *best = attn_pack_of(ATTN_F32);

    for (size_t w = 0; w < attn_pack_widths(); w++)
        if (attn_pack_width(ATTN_F32, w)) {
            cr_assert_eq(best, attn_pack_width(ATTN_F32, w));
            return;
        }
    cr_assert_null(best);
}
