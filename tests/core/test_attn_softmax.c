/*
 * test_attn_softmax.c - the stages SCORE, MASK and SOFTMAX: bits of S, bias rows, spans
 * of allowed keys, and what rows without a key give. Not here: one row of numbers
 * (test_attn_kernel.c), the whole layer (test_attn_run.c). Start reading at
 * empty_rows_are_what_was_asked.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const struct attn_dims SIZES = {.B = 2,
                                       .T_q = 6,
                                       .T_kv = 6,
                                       .d_model = 5,
                                       .d_model_kv = 5,
                                       .d_k = 4,
                                       .d_v = 3,
                                       .h = 2,
                                       .h_kv = 1};

/* A causal block of 2 positions to the left of which nothing is allowed: query 0 has no
 * key. */
static void forbid_first_query(struct made *m)
{
    uint8_t *pairs = make_block(m, m->p.d.T_q * m->p.d.T_kv);
    struct attn_mask *mask = make_mask(m, "blocked");

    memset(pairs, 0, m->p.d.T_q * m->p.d.T_kv);
    memset(pairs, 1, m->p.d.T_kv);
    mask->arg[0].given = true;
    mask->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_U8, .p = pairs, .stride_i = m->p.d.T_kv};
    make_prepare(m);
}

static double number(const struct ran *r, enum attn_object o, size_t b, size_t h,
                     size_t i, size_t j)
{
    const struct attn_mat m = attn_slice(&r->trace.t[o], b, h);

    return attn_kernel_of(m.dtype)->get(m.p, i * m.ld + j);
}

static void check_empty_row(const struct made *m, const struct ran *r, double weight)
{
    const struct attn_dims *d = &m->p.d;
    double mean[3] = {0};

    for (size_t j = 0; j < d->T_kv; j++) {
        const double a = number(r, ATTN_A, 1, 1, 0, j);

        cr_assert(isnan(weight) ? isnan(a) : a == weight);
        for (size_t c = 0; c < d->d_v; c++)
            mean[c] += weight * number(r, ATTN_V, 1, 0, j, c);
    }
    for (size_t c = 0; c < d->d_v; c++) {
        const double h = number(r, ATTN_H_HEADS, 1, 1, 0, c);

        cr_assert(isnan(weight) ? isnan(h) : fabs(h - mean[c]) <= 1e-15);
        cr_assert(weight != 0 || h == 0);
        cr_assert(isfinite(number(r, ATTN_H_HEADS, 1, 1, 1, c)));
    }
}

Test(attn_softmax, empty_rows_are_what_was_asked)
{
    const double weight[] = {
        [ATTN_EMPTY_ZERO] = 0, [ATTN_EMPTY_NAN] = NAN, [ATTN_EMPTY_UNIFORM] = 1.0 / 6};

    for (int mode = ATTN_EMPTY_ZERO; mode < ATTN_EMPTY_ERROR; mode++)
        for (int with_sink = 0; with_sink < 2; with_sink++) {
            struct made m;
            struct ran r;
            double sink[] = {1, 2};

            make_plain(&m, 1, ATTN_F64, ATTN_SELF, SIZES);
            forbid_first_query(&m);
            m.p.empty_rows = (enum attn_empty)mode;
            if (with_sink)
                m.p.in[ATTN_IN_SINK] = (struct attn_tensor){ATTN_F64, 1, {2}, sink};
            make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL,
                     NULL, &r);
            cr_assert(r.ok);
            cr_assert_eq(r.trace.empty_count, 4);
            for (size_t row = 0; row < 24; row++)
                cr_assert_eq(r.trace.empty[row], row % 6 == 0);
            cr_assert_eq(attn_tensor_get(&r.trace.t[ATTN_LSE], 18), -INFINITY);
            check_empty_row(&m, &r, weight[mode]);
            make_run_free(&r);
            make_free(&m);
        }
}

Test(attn_softmax, empty_row_may_be_an_error)
{
    struct made m;
    struct ran r;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, SIZES);
    forbid_first_query(&m);
    m.p.empty_rows = ATTN_EMPTY_ERROR;
    make_run(&m.p, ATTN_BIT(ATTN_A), ATTN_PATH_DENSE, NULL, NULL, &r);
    cr_assert_not(r.ok);
    cr_assert_eq(r.err.code, ATTN_E_EMPTY_ROW);
    cr_assert_eq(r.err.at[0] + r.err.at[1] + r.err.at[2], 0);
    cr_assert_eq(r.err.at[3], SIZE_MAX);
    make_run_free(&r);
    make_free(&m);
}

/* S has one set of bits, whether S_raw is held or not. */
Test(attn_softmax, score_bits_do_not_depend_on_what_is_held)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct made m;
        struct ran without, with;

        make_problem(&m, seed, seed % 2 ? ATTN_F64 : ATTN_F32, 20, 0, &MAKE_ALL);
        make_run(&m.p, ATTN_BIT(ATTN_S), ATTN_PATH_DENSE, NULL, NULL, &without);
        make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL,
                 NULL, &with);
        cr_assert_null(without.trace.t[ATTN_S_RAW].p);
        cr_assert(make_same_bits(&without.trace.t[ATTN_S], &with.trace.t[ATTN_S], "S"));
        cr_assert(make_same_bits(&without.trace.t[ATTN_A], &with.trace.t[ATTN_A], "A"));
        make_run_free(&without);
        make_run_free(&with);
        make_free(&m);
    }
}

Test(attn_softmax, bias_row_is_the_bias)
{
    const struct make_features biased = {
        .additive_bias = true, .alibi = true, .past = true};
    size_t rows = 0;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct made m;

        make_problem(&m, seed, ATTN_F64, 9, 0, &biased);
        for (size_t i = 0; i < m.p.d.T_q; i++) {
            const size_t h = m.p.d.h - 1, b = m.p.d.B - 1, j0 = m.p.d.T_kv / 3;
            double row[20];

            if (!attn_bias_row(&m.p, b, h, i, j0, m.p.d.T_kv, row)) {
                cr_assert(!attn_is_biased(&m.p));
                continue;
            }
            rows++;
            for (size_t j = j0; j < m.p.d.T_kv; j++)
                cr_assert_eq(row[j - j0], attn_bias(&m.p, b, h, i, j));
        }
        make_free(&m);
    }
    cr_assert_gt(rows, 100);
}

Test(attn_softmax, span_of_allowed_keys)
{
    const uint8_t none[] = {0, 0, 0}, some[] = {0, 1, 0, 1, 0}, all[] = {1, 1};
    size_t j0, j1;

    cr_assert_not(attn_allowed_span(none, 3, &j0, &j1));
    cr_assert(attn_allowed_span(some, 5, &j0, &j1));
    cr_assert(j0 == 1 && j1 == 4);
    cr_assert(attn_allowed_span(all, 2, &j0, &j1));
    cr_assert(j0 == 0 && j1 == 2);
}

/* A row of one allowed key weighs it exactly 1; forbidden ones exactly 0; M has no third
 * value. */
Test(attn_softmax, causal_masks_are_exact)
{
    struct made m;
    struct ran r;

    make_plain(&m, 3, ATTN_F32, ATTN_SELF, SIZES);
    make_mask(&m, "causal");
    make_prepare(&m);
    make_run(&m.p, ATTN_BIT(ATTN_M) | ATTN_BIT(ATTN_A), ATTN_PATH_DENSE, NULL, NULL, &r);
    cr_assert(r.ok);
    for (size_t i = 0; i < SIZES.T_q; i++)
        for (size_t j = 0; j < SIZES.T_kv; j++) {
            cr_assert_eq(number(&r, ATTN_M, 1, 1, i, j), j <= i ? 0 : -INFINITY);
            cr_assert_eq(number(&r, ATTN_A, 1, 1, i, j) != 0, j <= i);
        }
    cr_assert_eq(number(&r, ATTN_A, 0, 0, 0, 0), 1);
    make_run_free(&r);
    make_free(&m);
}

/* What one piece of a run asks: counts, and says stop at the question named. */
struct patience {
    size_t asked, enough;
};

static bool lose_patience(void *ctx)
{
    struct patience *patience = ctx;

    return ++patience->asked == patience->enough;
}

/* How often a run with the additive score asks whether to stop; false when it was not
   stopped at question `enough`. */
static bool asks(struct attn_dims d, enum attn_path path, size_t enough, size_t *asked)
{
    struct patience patience = {.enough = enough};
    const struct attn_exec exec = {.ctx = &patience, .stop = lose_patience};
    struct made m;
    struct ran r;
    bool stopped;

    make_plain(&m, 11, ATTN_F32, ATTN_PROJECTED, d);

    struct attn_tensor *v = &m.p.in[ATTN_IN_V_A];

    m.p.score = attn_score_find("additive");
    *v = (struct attn_tensor){.dtype = ATTN_F32, .rank = 1, .dim = {d.d_k}};
    v->p = make_block(&m, d.d_k * sizeof(float));
    attn_kernel_of(ATTN_F32)->fill(d.d_k, 1, v->p);
    make_prepare(&m);
    make_run(&m.p, ATTN_BIT(ATTN_H), path, &exec, NULL, &r);
    stopped = !r.ok && r.err.code == ATTN_E_DEADLINE && patience.asked == enough;
    *asked = patience.asked;
    make_run_free(&r);
    make_free(&m);
    return stopped;
}

/* One head and one block of queries: a single piece.  With sixteen times the keys it asks
   more often, and heeds the last answer that it gets. */
Test(attn_softmax, long_pieces_ask_whether_to_stop)
{
    const struct attn_dims d = {.B = 1,
                                .T_q = 128,
                                .T_kv = 512,
                                .d_model = 64,
                                .d_model_kv = 64,
                                .d_k = 64,
                                .d_v = 1,
                                .h = 1,
                                .h_kv = 1};

    for (int n = ATTN_PATH_DENSE; n <= ATTN_PATH_TILED; n++) {
        const enum attn_path path = (enum attn_path)n;
        struct attn_dims longer = d;
        size_t few, many, last;

        longer.T_kv *= 16;
        asks(d, path, 0, &few);
        asks(longer, path, 0, &many);
        cr_assert_geq(many, few + 8, "%zu questions, then %zu", few, many);
        cr_assert(asks(longer, path, many - 1, &last));
    }
}
