/*
 * test_attn_tiled.c - the tiled path against the dense one, where running maxima and sums
 * are strained: rising scores, whole tiles forbidden, sinks, overflow, empty rows.
 * Not here: random problems against slow loops (test_attn_run.c).
 * Start reading at paths_agree.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

static const struct attn_dims SIZES = {.B = 1,
                                       .T_q = 200,
                                       .T_kv = 200,
                                       .d_model = 6,
                                       .d_model_kv = 6,
                                       .d_k = 1,
                                       .d_v = 9,
                                       .h = 2,
                                       .h_kv = 1};

static bool same_numbers(const struct attn_tensor *a, const struct attn_tensor *b)
{
    for (size_t n = 0; n < attn_tensor_count(a); n++) {
        const double x = attn_tensor_get(a, n), y = attn_tensor_get(b, n);

        if (x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= 1e-13 * fmax(1, fabs(x)))
            continue;
        fprintf(stderr, "at %zu: dense %.17g, tiled %.17g\n", n, x, y);
        return false;
    }
    return true;
}

static void paths_agree(const struct made *m)
{
    static const enum attn_object SHARED[] = {ATTN_LSE, ATTN_H, ATTN_H_HEADS, ATTN_Y};
    const uint32_t want = make_everything(&m->p, ATTN_PATH_TILED);
    struct ran dense, tiled;

    make_run(&m->p, want, ATTN_PATH_DENSE, NULL, NULL, &dense);
    make_run(&m->p, want, ATTN_PATH_TILED, NULL, NULL, &tiled);
    cr_assert(dense.ok && tiled.ok);
    for (size_t n = 0; n < ATTN_COUNT(SHARED); n++)
        cr_assert(!dense.trace.t[SHARED[n]].p ||
                      same_numbers(&dense.trace.t[SHARED[n]], &tiled.trace.t[SHARED[n]]),
                  "%s", ATTN_OBJECTS[SHARED[n]].name);
    cr_assert_eq(dense.trace.empty_count, tiled.trace.empty_count);
    make_run_free(&dense);
    make_run_free(&tiled);
}

/* Keys of one feature, so that scores are what the test says: q_i k_j. */
static void set_keys(struct made *m, double first, double step)
{
    double *q = m->p.in[ATTN_IN_Q].p, *k = m->p.in[ATTN_IN_K].p;

    for (size_t n = 0; n < 2 * SIZES.T_q; n++)
        q[n] = 1;
    for (size_t j = 0; j < SIZES.T_kv; j++)
        k[j] = first + step * (double)j;
}

Test(attn_tiled, running_maximum_rises_and_falls)
{
    const double steps[] = {5, -5, 100, -100, 0};

    for (size_t n = 0; n < ATTN_COUNT(steps); n++) {
        struct made m;

        make_plain(&m, 1, ATTN_F64, ATTN_PROJECTED, SIZES);
        set_keys(&m, -300, steps[n]);
        paths_agree(&m);
        make_mask(&m, "causal");
        make_prepare(&m);
        paths_agree(&m);
        make_free(&m);
    }
}

Test(attn_tiled, sinks_small_and_large)
{
    double sink[] = {-1000, 1000};
    struct made m;

    make_plain(&m, 2, ATTN_F64, ATTN_PROJECTED, SIZES);
    m.p.in[ATTN_IN_SINK] = (struct attn_tensor){ATTN_F64, 1, {2}, sink};
    set_keys(&m, -50, 0.5);
    paths_agree(&m);
    make_free(&m);
}

/* Scores that overflow: NaN in both, -Infinity in whole tiles weighs nothing in both. */
Test(attn_tiled, overflow)
{
    struct made m;
    double *k;

    make_plain(&m, 3, ATTN_F64, ATTN_PROJECTED, SIZES);
    set_keys(&m, 0, 0.01);
    k = m.p.in[ATTN_IN_K].p;
    for (size_t j = 0; j < 130; j++)
        k[j] = -INFINITY;
    paths_agree(&m);
    make_mask(&m, "causal");
    make_prepare(&m);
    paths_agree(&m);
    for (size_t j = 130; j < 200; j++)
        k[j] = INFINITY;
    paths_agree(&m);
    make_free(&m);
}

/* Windows leave out whole tiles on both sides; documents and pairs leave rows empty. */
Test(attn_tiled, masks_and_empty_rows)
{
    const struct make_features masks = {.causal = true,
                                        .padding = true,
                                        .documents = true,
                                        .window = true,
                                        .pairs = true,
                                        .additive_bias = true,
                                        .alibi = true,
                                        .sink = true,
                                        .softcap = true,
                                        .additive_score = true,
                                        .past = true};

    for (uint64_t seed = 1; seed <= 24; seed++)
        for (int mode = ATTN_EMPTY_ZERO; mode < ATTN_EMPTY_ERROR; mode++) {
            struct made m;

            make_problem(&m, seed, ATTN_F64, 150, 190, &masks);
            m.p.empty_rows = (enum attn_empty)mode;
            paths_agree(&m);
            make_free(&m);
        }
}

/* Values whose sum overflows, though their mean does not. */
Test(attn_tiled, huge_values)
{
    struct made m;
    double *v;

    make_plain(&m, 4, ATTN_F64, ATTN_PROJECTED, SIZES);
    set_keys(&m, 0, 0);
    v = m.p.in[ATTN_IN_V].p;
    for (size_t n = 0; n < SIZES.T_kv * SIZES.d_v; n++)
        v[n] = 1e307;
    paths_agree(&m);
    make_free(&m);
}
