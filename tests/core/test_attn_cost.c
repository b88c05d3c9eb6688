/* test_attn_cost.c - counts worked out by hand, and allowed pairs against the predicate.
 */
#include "core/attn_core.h"

#include <criterion/criterion.h>
#include <math.h>

static struct attn_problem layer(size_t T_q, size_t T_kv, size_t T_past)
{
    struct attn_problem p = {
        .d = {.B = 2,
              .T_q = T_q,
              .T_kv = T_kv,
              .T_past = T_past,
              .d_model = 7,
              .d_model_kv = 7,
              .d_k = 4,
              .d_v = 3,
              .h = 4,
              .h_kv = 2},
        .form = {.batch_axis = true, .head_axis = true, .has_output = true},
    };

    p.shift = (ptrdiff_t)T_kv - (ptrdiff_t)T_q;
    return p;
}

static struct attn_mask *add(struct attn_problem *p, const char *name)
{
    struct attn_mask *m = &p->mask[p->mask_count++];

    *m = (struct attn_mask){.row = attn_mask_find(name)};
    return m;
}

static struct attn_cost cost_of(const struct attn_problem *p)
{
    struct attn_cost cost;
    struct attn_err err = {0};

    cr_assert(attn_cost(p, NULL, &cost, &err));
    return cost;
}

Test(attn_cost, work_of_a_layer)
{
    const struct attn_problem p = layer(3, 5, 2);
    const struct attn_cost c = cost_of(&p);

    cr_assert_eq(c.dense_per_sequence_per_head, 15);
    cr_assert_eq(c.dense_total, 120);
    cr_assert_eq(c.allowed_total, 120);
    cr_assert_eq(c.allowed_fraction, 1.0);
    cr_assert_eq(c.multiply_adds.Q, 2 * 3 * 7 * 16);
    cr_assert_eq(c.multiply_adds.K, 2 * 3 * 7 * 8, "only new keys are projected");
    cr_assert_eq(c.multiply_adds.V, 2 * 3 * 7 * 6);
    cr_assert_eq(c.multiply_adds.S, 120 * 4);
    cr_assert_eq(c.multiply_adds.H, 120 * 3);
    cr_assert_eq(c.multiply_adds.Y, 2 * 3 * 12 * 7);
    cr_assert_eq(c.multiply_adds.total, 672 + 336 + 252 + 480 + 360 + 504);
    cr_assert_eq(c.multiply_adds.allowed_total, c.multiply_adds.total);
    cr_assert_eq(c.exponentials, 120);
}

Test(attn_cost, causal_work_counts_only_what_is_read)
{
    struct attn_problem p = layer(4, 4, 0);
    double sink[4] = {0};

    add(&p, "causal");
    p.in[ATTN_IN_SINK].p = sink;

    const struct attn_cost c = cost_of(&p);

    cr_assert_eq(c.allowed_total, 2 * 4 * 10);
    cr_assert_eq(c.allowed_fraction, 0.625);
    cr_assert_eq(c.multiply_adds.allowed_total,
                 c.multiply_adds.total - (uint64_t)2 * 4 * 6 * (4 + 3));
    cr_assert_eq(c.exponentials, 80 + 2 * 4 * 4, "one more a row for the sink");
}

Test(attn_cost, projected_inputs_cost_no_projection)
{
    struct attn_problem p = layer(3, 5, 0);

    p.form.source = ATTN_PROJECTED;
    p.form.has_output = false;

    const struct attn_cost c = cost_of(&p);

    cr_assert(c.multiply_adds.Q == 0 && c.multiply_adds.K == 0 && c.multiply_adds.V == 0);
    cr_assert_eq(c.multiply_adds.Y, 0);
    cr_assert_eq(c.multiply_adds.total, 120 * 7);
    cr_assert_eq(c.bytes[ATTN_Y], 0);
    cr_assert_eq(c.bytes[ATTN_X], 0);
}

Test(attn_cost, bytes)
{
    struct attn_problem p = layer(3, 5, 2);
    struct attn_cost c = cost_of(&p);

    cr_assert_eq(c.bytes[ATTN_Q], 2 * 4 * 3 * 4 * 8);
    cr_assert_eq(c.bytes[ATTN_K], 2 * 2 * 5 * 4 * 8);
    cr_assert_eq(c.bytes[ATTN_ALLOWED], 120);
    cr_assert_eq(c.bytes[ATTN_CONTRIBUTIONS], 120 * 3 * 8);
    cr_assert_eq(c.score_matrix, 960);
    cr_assert_eq(c.all_intermediates, 768 + 640 + 480 + 3 * 960 + 576 + 336);
    /* Q K V H lse Y, and a tile of 3 x 5 scores with maximum and sum of 3 rows. */
    cr_assert_eq(c.tiled_working_set, 768 + 640 + 480 + 576 + 192 + 336 + 3 * 7 * 8);
    p.dtype = ATTN_F32;
    c = cost_of(&p);
    cr_assert_eq(c.score_matrix, 480);
    cr_assert_eq(c.bytes[ATTN_ALLOWED], 120);
}

Test(attn_cost, pairs_grow_with_the_square)
{
    const struct attn_problem p = layer(3, 5, 2);
    const struct attn_cost c = cost_of(&p);

    for (size_t n = 0; n < 4; n++) {
        const uint64_t f = UINT64_C(1) << n;

        cr_assert_eq(c.scaling[n].T, 3 * f);
        cr_assert_eq(c.scaling[n].pairs, 120 * f * f);
        cr_assert_eq(c.scaling[n].score_bytes, 960 * f * f);
        cr_assert_eq(c.scaling[n].multiply_adds,
                     (672 + 336 + 252 + 504) * f + (480 + 360) * f * f);
    }
}

Test(attn_cost, generation_with_and_without_a_cache)
{
    struct attn_problem p = layer(4, 4, 0);
    struct attn_cost c = cost_of(&p);

    cr_assert_eq(c.generation.parallel_training_steps, 1);
    cr_assert_eq(c.generation.autoregressive_steps, 4);
    cr_assert_eq(c.generation.pairs_with_cache, 1 + 2 + 3 + 4);
    cr_assert_eq(c.generation.pairs_without_cache, 1 + 4 + 9 + 16);
    cr_assert_eq(c.generation.kv_cache_bytes, 2 * 2 * 4 * 7 * 8);
    p = layer(2, 5, 3);
    c = cost_of(&p);
    cr_assert_eq(c.generation.pairs_with_cache, 4 + 5);
    cr_assert_eq(c.generation.pairs_without_cache, 16 + 25);
    p = layer(3, 5, 0);
    p.form.source = ATTN_CROSS;
    c = cost_of(&p);
    cr_assert_eq(c.generation.pairs_with_cache, 3 * 5);
    cr_assert_eq(c.generation.pairs_without_cache, (1 + 2 + 3) * 5);
}

Test(attn_cost, enormous_sizes_saturate)
{
    struct attn_problem p = layer(3, 5, 0);

    p.d.d_model = p.d.d_model_kv = p.d.d_k = p.d.h = p.d.h_kv = INT32_MAX;

    const struct attn_cost c = cost_of(&p);

    cr_assert_eq(c.multiply_adds.Q, UINT64_MAX);
    cr_assert_eq(c.multiply_adds.total, UINT64_MAX);
}

static uint64_t slow_count(const struct attn_problem *p)
{
    uint64_t n = 0;

    for (size_t b = 0; b < p->d.B; b++)
        for (size_t h = 0; h < p->d.h; h++)
            for (size_t i = 0; i < p->d.T_q; i++)
                for (size_t j = 0; j < p->d.T_kv; j++)
                    n += attn_allowed(p, b, h, i, j);
    return n;
}

/* 700 keys are more than one chunk of the count. */
Test(attn_cost, allowed_pairs_of_every_kind_of_rule)
{
    enum { T = 700 };
    static const int64_t lengths[] = {650, 3};
    static uint8_t pairs[4 * T * T];
    static double bias[2 * T];
    struct attn_problem p = layer(T, T, 0);
    uint64_t seed = 1;

    for (size_t n = 0; n < sizeof pairs; n++)
        pairs[n] = (uint8_t)attn_random_below(&seed, 2);
    for (size_t n = 0; n < ATTN_COUNT(bias); n++)
        bias[n] = attn_random_below(&seed, 3) == 0 ? -INFINITY : 1.0;

    add(&p, "causal");
    cr_assert_eq(cost_of(&p).allowed_total, slow_count(&p), "causal: alike everywhere");
    add(&p, "padding")->arg[0].table =
        (struct attn_table){ATTN_ELEM_I64, lengths, 1, 0, 0};
    cr_assert_eq(cost_of(&p).allowed_total, slow_count(&p), "padding: by item");
    p.additive = (struct attn_table){ATTN_ELEM_F64, bias, T, 0, 0};
    cr_assert_eq(cost_of(&p).allowed_total, slow_count(&p), "additive: by item");
    add(&p, "allowed")->arg[0].table =
        (struct attn_table){ATTN_ELEM_U8, pairs, 0, (size_t)T * T, T};
    cr_assert_eq(cost_of(&p).allowed_total, slow_count(&p), "allowed: by head");
}

Test(attn_cost, additive_alone_may_differ_by_item_or_by_head)
{
    static const double bias[] = {0, -INFINITY, 1, -INFINITY, -INFINITY, 2,
                                  0, 0,         0, 0,         0,         0};
    struct attn_problem p = layer(3, 3, 0);

    p.additive = (struct attn_table){ATTN_ELEM_F64, bias, 3, 0, 0};
    cr_assert_eq(cost_of(&p).allowed_total, (2 + 1) * 3 * 4);
    p.additive = (struct attn_table){ATTN_ELEM_F64, bias, 0, 3, 0};
    cr_assert_eq(cost_of(&p).allowed_total, 2 * 3 * (2 + 1 + 3 + 3));
}

static bool stop_at_once(void *ctx)
{
    ++*(int *)ctx;
    return true;
}

Test(attn_cost, counting_can_be_stopped)
{
    const struct attn_problem p = layer(3, 5, 0);
    int asked = 0;
    const struct attn_exec exec = {.ctx = &asked, .stop = stop_at_once};
    struct attn_cost cost;
    struct attn_err err = {0};

    cr_assert_not(attn_cost(&p, &exec, &cost, &err));
    cr_assert_eq(err.code, ATTN_E_DEADLINE);
    cr_assert_eq(asked, 1);
}
