/*
 * test_attn_mix.c - H = A V: products longer and wider than one block, values that are
 * not finite reach exactly their readers, contributions. Not here: where the weights come
 * from (test_attn_softmax.c). Start reading at products_of_any_size.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct mix { /* A V with half of the pairs allowed */
    struct made m;
    size_t rows, keys, cols;
    double *A, *V, *H;
    uint8_t *allow;
};

static void make_mix(struct mix *x, uint64_t seed, size_t rows, size_t keys, size_t cols)
{
    *x = (struct mix){.m.state = seed, .rows = rows, .keys = keys, .cols = cols};
    x->A = make_block(&x->m, rows * keys * sizeof(double));
    x->V = make_block(&x->m, keys * cols * sizeof(double));
    x->H = make_block(&x->m, rows * cols * sizeof(double));
    x->allow = make_block(&x->m, rows * keys);
    for (size_t n = 0; n < rows * keys; n++) {
        x->allow[n] = make_below(&x->m, 2) > 0;
        x->A[n] = x->allow[n] ? make_normal(&x->m) : 0;
    }
    for (size_t n = 0; n < keys * cols; n++)
        x->V[n] = make_normal(&x->m);
}

static void mix(struct mix *x)
{
    const struct attn_mat H = {ATTN_F64, x->H, x->rows, x->cols, x->cols};
    const struct attn_mat A = {ATTN_F64, x->A, x->rows, x->keys, x->keys};
    const struct attn_mat V = {ATTN_F64, x->V, x->keys, x->cols, x->cols};

    memset(x->H, 0, x->rows * x->cols * sizeof(double));
    attn_mix_keys(H, A, V, x->allow, x->keys);
}

/* The sum over the keys that row i reads. */
static double slow(const struct mix *x, size_t i, size_t c)
{
    long double sum = 0;

    for (size_t j = 0; j < x->keys; j++)
        if (x->allow[i * x->keys + j] || x->A[i * x->keys + j] != 0)
            sum +=
                (long double)x->A[i * x->keys + j] * (long double)x->V[j * x->cols + c];
    return (double)sum;
}

static void check(const struct mix *x)
{
    for (size_t i = 0; i < x->rows; i++)
        for (size_t c = 0; c < x->cols; c++) {
            const double want = slow(x, i, c), got = x->H[i * x->cols + c];

            cr_assert(isnan(want) ? isnan(got) : want == got || fabs(want - got) < 1e-12,
                      "i %zu c %zu: %g, expected %g", i, c, got, want);
        }
}

Test(attn_mix, products_of_any_size)
{
    const size_t sizes[][3] = {{1, 1, 1}, {3, 128, 64}, {5, 129, 65}, {128, 300, 130}};

    for (size_t n = 0; n < ATTN_COUNT(sizes); n++) {
        struct mix x;

        make_mix(&x, n, sizes[n][0], sizes[n][1], sizes[n][2]);
        mix(&x);
        check(&x);
        make_free(&x.m);
    }
}

Test(attn_mix, values_that_are_not_finite_reach_their_readers_only)
{
    const double wrong[] = {NAN, INFINITY, -INFINITY};

    for (size_t n = 0; n < ATTN_COUNT(wrong); n++) {
        struct mix x;
        double *clean;

        make_mix(&x, 7, 20, 150, 70);
        mix(&x);
        clean = make_block(&x.m, x.rows * x.cols * sizeof(double));
        memcpy(clean, x.H, x.rows * x.cols * sizeof(double));
        x.V[140 * x.cols + 66] = wrong[n];
        mix(&x);
        check(&x);
        for (size_t i = 0; i < x.rows; i++)
            for (size_t c = 0; c < x.cols; c++) {
                const size_t at = i * x.cols + c;

                if (!x.allow[i * x.keys + 140])
                    cr_assert_eq(memcmp(&clean[at], &x.H[at], sizeof(double)), 0);
                else
                    cr_assert(c != 66 || !isfinite(x.H[at]));
            }
        make_free(&x.m);
    }
}

/* A weight that is not 0 reads its key whatever the mask says: so does a faulty softmax.
 */
Test(attn_mix, a_weight_reads_even_where_forbidden)
{
    struct mix x;

    make_mix(&x, 8, 4, 10, 3);
    memset(x.allow, 0, 40);
    x.A[5] = 0.5;
    x.V[5 * 3] = INFINITY;
    mix(&x);
    check(&x);
    cr_assert_eq(x.H[0], INFINITY);
    make_free(&x.m);
}

/* An allowed key of weight 0 (underflow) is read as well: 0 * Infinity is NaN, honestly.
 */
Test(attn_mix, an_allowed_key_of_weight_zero_is_read)
{
    struct mix x;

    make_mix(&x, 9, 2, 4, 1);
    memset(x.allow, 1, 8);
    x.A[2] = 0;
    x.V[2] = INFINITY;
    mix(&x);
    cr_assert(isnan(x.H[0]));
    make_free(&x.m);
}

Test(attn_mix, contributions_add_up_and_heads_stand_side_by_side)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct made m;
        struct ran r;

        make_problem(&m, seed, ATTN_F64, 8, 0, &MAKE_ALL);
        m.p.empty_rows = ATTN_EMPTY_ZERO;
        make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL,
                 NULL, &r);

        const struct attn_dims *d = &m.p.d;
        const double *part = r.trace.t[ATTN_CONTRIBUTIONS].p,
                     *heads = r.trace.t[ATTN_H_HEADS].p;
        const double *joined = r.trace.t[ATTN_H].p;

        for (size_t row = 0; row < d->B * d->h * d->T_q; row++)
            for (size_t c = 0; c < d->d_v; c++) {
                const size_t b = row / d->T_q / d->h, h = row / d->T_q % d->h,
                             i = row % d->T_q;
                double sum = 0;

                for (size_t j = 0; j < d->T_kv; j++)
                    sum += part[(row * d->T_kv + j) * d->d_v + c];
                cr_assert_float_eq(sum, heads[row * d->d_v + c], 1e-13);
                cr_assert_eq(heads[row * d->d_v + c],
                             joined[((b * d->T_q + i) * d->h + h) * d->d_v + c]);
            }
        make_run_free(&r);
        make_free(&m);
    }
}

static bool softmax_forgets_the_mask(const struct attn_run_ctx *run,
                                     struct attn_piece piece, struct attn_err *err)
{
    const struct attn_tensor *s = &run->t->t[ATTN_S], *a = &run->t->t[ATTN_A];
    const size_t T = run->p->d.T_kv;

    (void)piece, (void)err;
    for (size_t row = 0; row < attn_tensor_count(s) / T; row++)
        attn_kernel_of(ATTN_F64)->softmax_row(T, (double *)s->p + row * T, NULL, NULL,
                                              NULL, (double *)a->p + row * T);
    return true;
}

/* After another softmax no key is left out because the rules forbid it. */
Test(attn_mix, weights_of_a_wrong_softmax_count)
{
    const struct attn_dims d = {.B = 1,
                                .T_q = 9,
                                .T_kv = 9,
                                .d_model = 4,
                                .d_model_kv = 4,
                                .d_k = 3,
                                .d_v = 2,
                                .h = 1,
                                .h_kv = 1};
    const struct attn_swap swap = {.stage[ATTN_STAGE_SOFTMAX] = softmax_forgets_the_mask};
    int64_t length = 4;
    struct made m;
    struct ran r;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, d);

    struct attn_mask *mask = make_mask(&m, "padding");

    mask->arg[0].given = true;
    mask->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_I64, .p = &length, .stride_b = 1};
    make_prepare(&m);
    make_run(&m.p, ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_V) | ATTN_BIT(ATTN_H),
             ATTN_PATH_DENSE, NULL, &swap, &r);
    cr_assert(r.ok);
    for (size_t i = 0; i < d.T_q; i++) {
        double sum = 0;

        for (size_t j = 0; j < d.T_kv; j++)
            sum += ((double *)r.trace.t[ATTN_A].p)[i * d.T_kv + j] *
                   ((double *)r.trace.t[ATTN_V].p)[j * d.d_v];
        cr_assert_float_eq(((double *)r.trace.t[ATTN_H].p)[i * d.d_v], sum, 1e-14);
    }
    make_run_free(&r);
    make_free(&m);
}
