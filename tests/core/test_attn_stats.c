/*
 * test_attn_stats.c - rows taken apart, entropy and score statistics against numbers
 * worked by hand and a long double reference.
 * Not here: their place in answers.
 * Start reading at ln_3_example.
 */
#include "core/attn_core.h"
#include "make_problem.h"
#include "ref_forward.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Own rounding in double of sums of about ten terms; the tiled path's rows are made
   anew. */
static const double TOLERANCE = 1e-13;

static void near(double got, double want, const char *what, uint64_t seed)
{
    cr_assert_leq(fabs(got - want), TOLERANCE * fmax(1, fabs(want)),
                  "seed %llu: %s is %.17g, want %.17g", (unsigned long long)seed, what,
                  got, want);
}

/* Scores [0, ln 3], values [2, 6]: A = [1/4, 3/4], h = 5, dh/ds = [-3/4, 3/4]. */
Test(attn_stats, ln_3_example)
{
    struct made m;
    struct ran r;
    struct attn_row_trace row;
    struct attn_row_stats stats;
    struct attn_arena arena = make_arena(1 << 16);
    struct attn_err err = {0};

    make_plain(&m, 1, ATTN_F64, ATTN_PROJECTED,
               (struct attn_dims)MAKE_DIMS(1, 2, 1, .B = 1, .d_k = 1, .d_v = 1, .h = 1,
                                           .h_kv = 1));
    *(double *)m.p.in[ATTN_IN_Q].p = 1;
    memcpy(m.p.in[ATTN_IN_K].p, (double[]){0, log(3)}, 2 * sizeof(double));
    memcpy(m.p.in[ATTN_IN_V].p, (double[]){2, 6}, 2 * sizeof(double));
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
    cr_assert(attn_row_trace(&m.p, &r.trace, 0, 0, 0, &arena, &row, &err));
    cr_assert_eq(row.count, 2);
    near(row.weight[0], 0.25, "weight", 1);
    near(row.weight[1], 0.75, "weight", 1);
    near(row.contribution[0], 0.5, "contribution", 1);
    near(row.contribution[1], 4.5, "contribution", 1);
    near(row.running_sum[0], 0.5, "running sum", 1);
    near(row.running_sum[1], 5, "running sum", 1);
    near(row.output[0], 5, "output", 1);
    near(row.derivative[0], -0.75, "derivative", 1);
    near(row.derivative[1], 0.75, "derivative", 1);
    near(row.entropy, 0.56233514461880829, "entropy", 1);    /* ln 4 - 3/4 ln 3 */
    near(row.effective_keys, 1.7547653506033161, "keys", 1); /* 4 / 3^(3/4)     */
    cr_assert(attn_row_statistics(&m.p, &r.trace, &stats));
    near(stats.entropy_mean, row.entropy, "mean", 1);
    near(stats.entropy_min, row.entropy, "min", 1);
    near(stats.entropy_max, row.entropy, "max", 1);
    near(stats.effective_keys_mean, row.effective_keys, "keys", 1);
    free(arena.base);
    make_run_free(&r);
    make_free(&m);
}

/* ---- random problems, both paths ---- */

static void row_matches(const struct made *m, const struct attn_trace *trace,
                        const struct ref_layer *ref, size_t b, size_t h, size_t i)
{
    const struct attn_dims *d = &m->p.d;
    const size_t first = ((b * d->h + h) * d->T_q + i) * d->T_kv;
    const size_t out = ((b * d->h + h) * d->T_q + i) * d->d_v;
    struct attn_arena arena = make_arena(1 << 16);
    struct attn_row_trace row;
    struct attn_err err = {0};
    size_t n = 0;

    cr_assert(attn_row_trace(&m->p, trace, b, h, i, &arena, &row, &err));
    for (size_t j = 0; j < d->T_kv; j++) {
        const size_t v = ((b * d->h_kv + attn_kv_head(d, h)) * d->T_kv + j) * d->d_v;

        if (!ref_allowed(&m->p, b, h, i, j))
            continue;
        cr_assert_lt(n, row.count);
        cr_assert_eq(row.key[n], j);
        near(row.score[n], (double)ref->t[ATTN_S][first + j], "score", m->seed);
        near(row.mask[n], (double)ref_bias(&m->p, b, h, i, j), "mask", m->seed);
        near(row.weight[n], (double)ref->t[ATTN_A][first + j], "weight", m->seed);
        for (size_t c = 0; c < d->d_v; c++) {
            const long double a = ref->t[ATTN_A][first + j], x = ref->t[ATTN_V][v + c];
            const long double H = ref->t[ATTN_H_HEADS][out + c];

            near(row.value[n * d->d_v + c], (double)x, "value", m->seed);
            near(row.contribution[n * d->d_v + c], (double)(a * x), "contribution",
                 m->seed);
            near(row.derivative[n * d->d_v + c], (double)(a * (x - H)), "derivative",
                 m->seed);
        }
        n++;
    }
    cr_assert_eq(row.count, n);
    for (size_t c = 0; c < d->d_v; c++) {
        const double H = (double)ref->t[ATTN_H_HEADS][out + c];

        if (isnan(H))
            cr_assert(isnan(row.output[c]));
        else
            near(row.output[c], H, "output", m->seed);
        if (n > 0)
            cr_assert_eq(row.running_sum[(n - 1) * d->d_v + c], row.output[c]);
    }
    cr_assert_eq(isnan(row.entropy) != 0, n == 0);
    free(arena.base);
}

Test(attn_stats, rows_match_reference)
{
    for (uint64_t seed = 1; seed <= 80; seed++) {
        const enum attn_path path = seed % 2 ? ATTN_PATH_DENSE : ATTN_PATH_TILED;
        struct made m;
        struct ran r;
        struct ref_layer ref;

        make_problem(&m, seed, ATTN_F64, 6, 0, &MAKE_ALL);
        make_run_all(&m.p, path, NULL, &r);
        cr_assert(r.ok);
        ref_forward(&m.p, &ref);
        for (size_t row = 0; row < m.p.d.B * m.p.d.h * m.p.d.T_q; row++)
            row_matches(&m, &r.trace, &ref, row / m.p.d.T_q / m.p.d.h,
                        row / m.p.d.T_q % m.p.d.h, row % m.p.d.T_q);
        ref_free(&ref);
        make_run_free(&r);
        make_free(&m);
    }
}

/* dh/ds_j by central differences, with and without a sink: every score moved alone. */
Test(attn_stats, derivative_is_the_derivative)
{
    const double s[] = {0.3, -1.2, 0.8}, v[] = {2, -1, 5}, step = 1e-6;

    for (int sink = 0; sink < 2; sink++) {
        struct made m;
        struct ran r;
        struct attn_row_trace row;
        struct attn_arena arena = make_arena(1 << 16);
        struct attn_err err = {0};

        make_plain(&m, 1, ATTN_F64, ATTN_PROJECTED,
                   (struct attn_dims)MAKE_DIMS(1, 3, 1, .B = 1, .d_k = 1, .d_v = 1,
                                               .h = 1, .h_kv = 1));
        *(double *)m.p.in[ATTN_IN_Q].p = 1;
        memcpy(m.p.in[ATTN_IN_K].p, s, sizeof s);
        memcpy(m.p.in[ATTN_IN_V].p, v, sizeof v);
        if (sink) {
            double *logit = make_block(&m, sizeof *logit);

            *logit = 0.5;
            m.p.in[ATTN_IN_SINK] = (struct attn_tensor){ATTN_F64, 1, {1}, logit};
        }
        make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
        cr_assert(attn_row_trace(&m.p, &r.trace, 0, 0, 0, &arena, &row, &err));
        for (size_t j = 0; j < 3; j++) {
            double side[2];

            for (int up = 0; up < 2; up++) {
                double sum = sink ? exp(0.5) : 0, mixed = 0;

                for (size_t k = 0; k < 3; k++) {
                    const double e = exp(s[k] + (k == j ? (up ? step : -step) : 0));

                    sum += e;
                    mixed += e * v[k];
                }
                side[up] = mixed / sum;
            }
            cr_assert_leq(fabs(row.derivative[j] - (side[1] - side[0]) / (2 * step)),
                          1e-8);
        }
        free(arena.base);
        make_run_free(&r);
        make_free(&m);
    }
}

/* ---- entropy ---- */

Test(attn_stats, entropy_needs_A_and_skips_empty_rows)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct made m;
        struct ran r;
        struct ref_layer ref;
        struct attn_row_stats stats;
        const struct attn_dims *d = &m.p.d;
        long double sum = 0, keys = 0;
        size_t rows = 0;

        make_problem(&m, seed, ATTN_F64, 6, 0, &MAKE_ALL);
        make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
        ref_forward(&m.p, &ref);
        for (size_t row = 0; row < d->B * d->h * d->T_q; row++) {
            long double entropy = 0;

            for (size_t j = 0; j < d->T_kv; j++) {
                const long double a = ref.t[ATTN_A][row * d->T_kv + j];

                entropy -= a > 0 ? a * logl(a) : 0;
            }
            if (ref.empty[row])
                continue;
            rows++;
            sum += entropy;
            keys += expl(entropy);
        }
        cr_assert(attn_row_statistics(&m.p, &r.trace, &stats));
        if (rows == 0) {
            cr_assert(isnan(stats.entropy_mean) && isnan(stats.entropy_min) &&
                      isnan(stats.entropy_max) && isnan(stats.effective_keys_mean));
        } else {
            near(stats.entropy_mean, (double)(sum / rows), "entropy", seed);
            near(stats.effective_keys_mean, (double)(keys / rows), "keys", seed);
        }
        r.trace.t[ATTN_A].p = NULL;
        cr_assert_not(attn_row_statistics(&m.p, &r.trace, &stats));
        ref_free(&ref);
        make_run_free(&r);
        make_free(&m);
    }
}

/* ---- scores ---- */

Test(attn_stats, variance_of_S_raw)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct made m;
        struct ran r;
        struct ref_layer ref;
        struct attn_score_stats stats;
        struct attn_arena arena = make_arena(1 << 16);
        struct attn_err err = {0};
        const struct attn_dims *d = &m.p.d;
        const size_t pairs = (make_problem(&m, seed, ATTN_F64, 6, 0, &MAKE_ALL),
                              d->B * d->h * d->T_q * d->T_kv);
        long double sum = 0, squares = 0, most;
        size_t rows = 0, saturated = 0;

        make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
        ref_forward(&m.p, &ref);
        for (size_t n = 0; n < pairs; n++)
            sum += ref.t[ATTN_S_RAW][n];
        for (size_t n = 0; n < pairs; n++)
            squares += powl(ref.t[ATTN_S_RAW][n] - sum / pairs, 2);
        for (size_t row = 0; row < pairs / d->T_kv; row++) {
            most = 0;
            for (size_t j = 0; j < d->T_kv; j++)
                most = fmaxl(most, ref.t[ATTN_A][row * d->T_kv + j]);
            rows += !ref.empty[row];
            saturated += !ref.empty[row] && most > 0.99L;
        }
        cr_assert(attn_score_statistics(&m.p, &r.trace, &arena, &stats, &err));
        cr_assert_eq(arena.used, 0);
        cr_assert_eq(stats.pairs, pairs);
        cr_assert_eq(stats.rows, rows);
        cr_assert_eq(stats.d_k, (double)d->d_k);
        near(stats.mean, (double)(sum / pairs), "mean", seed);
        near(stats.variance, (double)(squares / pairs), "variance", seed);
        if (rows > 0)
            near(stats.saturated_share, (double)saturated / (double)rows, "share", seed);
        free(arena.base);
        ref_free(&ref);
        make_run_free(&r);
        make_free(&m);
    }
}

/* q and k of unit variance: the variance of q.k is d_k, that of the scaled score 1.
   Without the scale some rows saturate: the two largest of 128 such scores lie 4.6
   apart in about one row of six.  16384 pairs of 64 features: the estimate is within a
   tenth. */
Test(attn_stats, unit_variance_gives_d_k)
{
    struct made m;
    struct ran r;
    struct attn_score_stats stats;
    struct attn_arena arena = make_arena(1 << 16);
    struct attn_err err = {0};

    make_plain(&m, 3, ATTN_F64, ATTN_PROJECTED,
               (struct attn_dims)MAKE_DIMS(128, 128, 4, .B = 1, .d_k = 64, .d_v = 3,
                                           .h = 1, .h_kv = 1));
    make_run(&m.p, 0, ATTN_PATH_DENSE, NULL, NULL, &r);
    cr_assert(attn_score_statistics(&m.p, &r.trace, &arena, &stats, &err));
    cr_assert_leq(fabs(stats.variance / 64 - 1), 0.1);
    near(stats.variance_of_scaled, stats.variance / 64, "scaled", 3);
    cr_assert_eq(stats.saturated_share, 0.0);
    cr_assert_gt(stats.saturated_share_unscaled, 0.1);
    free(arena.base);
    make_run_free(&r);
    make_free(&m);
}

Test(attn_stats, places_outside_are_refused)
{
    struct made m;
    struct ran r;
    struct attn_row_trace row;
    struct attn_arena arena = make_arena(1 << 16);
    static const struct {
        size_t at[3];
        const char *object;
        size_t want, got;
    } rows[] = {
        {{2, 0, 0}, "batch", 1, 2},
        {{0, 3, 0}, "head", 2, 3},
        {{0, 0, 9}, "query", 3, 9},
    };

    make_plain(&m, 3, ATTN_F64, ATTN_SELF,
               (struct attn_dims)MAKE_DIMS(4, 4, 5, .B = 2, .d_k = 2, .d_v = 6, .h = 3,
                                           .h_kv = 1));
    make_run(&m.p, 0, ATTN_PATH_DENSE, NULL, NULL, &r);
    for (size_t n = 0; n < ATTN_COUNT(rows); n++) {
        struct attn_err err = {0};

        cr_assert_not(attn_row_trace(&m.p, &r.trace, rows[n].at[0], rows[n].at[1],
                                     rows[n].at[2], &arena, &row, &err));
        cr_assert_eq(err.code, ATTN_E_RANGE);
        cr_assert_str_eq(err.object, rows[n].object);
        cr_assert_eq(err.want, rows[n].want);
        cr_assert_eq(err.got, rows[n].got);
    }
    free(arena.base);
    make_run_free(&r);
    make_free(&m);
}
