/*
 * test_attn_ablate.c - changed layers are those of the problem written out by hand.
 * Not here: what must not move (test_attn_claim.c), what is refused (test_attn_edit.c).
 * Start reading at weights_as_written_out.
 */
#include "make_ablation.h"
#include "ref_forward.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The reference sums in long double: differences are the layer's own rounding. */
static const double TOLERANCE = 1e-12;

static void same_as_reference(const struct ablated *a, const struct attn_problem *p)
{
    struct ref_layer layer;

    ref_forward(p, &layer);
    for (int o = ATTN_Q; o < ATTN_OBJECT_COUNT; o++)
        if (a->out.trace.t[o].p != NULL)
            cr_assert(
                ref_same(p, (enum attn_object)o, &a->out.trace.t[o], &layer, TOLERANCE),
                "seed %llu", (unsigned long long)a->made.seed);
    ref_free(&layer);
}

Test(attn_ablate, weights_as_written_out)
{
    static const char *const names[] = {"W_Q", "W_K", "W_V", "W_O"};

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct ablated a = {0};
        const size_t which = seed % 4;
        const enum attn_input in = (enum attn_input)(ATTN_IN_W_Q + which);
        struct attn_edit edit = make_edit(names[which], seed % 3 ? "scale" : "negate");

        make_problem(&a.made, seed, ATTN_F64, 6, 0, &MAKE_ALL);
        if (attn_edit_check(&a.made.p, &edit, &a.err)) {
            make_one_edit(&a, &edit);
            for (size_t n = 0; n < attn_tensor_count(&a.made.p.in[in]); n++)
                ((double *)a.made.p.in[in].p)[n] *= seed % 3 ? edit.by : -1.0;
            same_as_reference(&a, &a.made.p);
        }
        make_ablation_free(&a);
    }
}

Test(attn_ablate, rules_as_written_out)
{
    struct make_features may = MAKE_ALL;
    size_t ran = 0;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct ablated a = {0};
        struct attn_edit edit = make_edit("masks", "remove");

        make_problem(&a.made, seed, ATTN_F64, 6, 0, &may);
        if (a.made.p.mask_count > 0) {
            edit.rule = a.made.p.mask[0].row->name;
            make_one_edit(&a, &edit);
            memmove(&a.made.p.mask[0], &a.made.p.mask[1],
                    --a.made.p.mask_count * sizeof a.made.p.mask[0]);
            make_prepare(&a.made);
            same_as_reference(&a, &a.made.p);
            ran++;
        }
        make_ablation_free(&a);
    }
    cr_assert_gt(ran, 50);
}

Test(attn_ablate, negated_rule_forbids_what_it_allowed)
{
    size_t pairs = 0;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct ablated a = {0};
        const struct attn_dims *d = &a.made.p.d;
        struct attn_edit edit = make_edit("masks", "negate");

        make_problem(&a.made, seed, ATTN_F64, 6, 0, &MAKE_ALL);
        if (a.made.p.mask_count == 1 && a.made.p.additive.p == NULL) {
            edit.rule = a.made.p.mask[0].row->name;
            make_one_edit(&a, &edit);
            for (size_t n = 0; n < d->B * d->h * d->T_q * d->T_kv; n++, pairs++)
                cr_assert_neq(attn_tensor_get(&a.ran.trace.t[ATTN_ALLOWED], n),
                              attn_tensor_get(&a.out.trace.t[ATTN_ALLOWED], n));
        }
        make_ablation_free(&a);
    }
    cr_assert_gt(pairs, 1000);
}

/* Knocked out before the softmax: the other weights grow by one factor; zeroed after
   it: they stay. */
Test(attn_ablate, edge_before_and_after_the_softmax)
{
    const struct attn_dims d = {.B = 2,
                                .T_q = 3,
                                .T_kv = 5,
                                .d_model = 4,
                                .d_model_kv = 7,
                                .d_k = 2,
                                .d_v = 6,
                                .h = 2,
                                .h_kv = 1};
    struct ablated a = {0};
    struct attn_edit edit = make_edit("edge", "remove");

    make_plain(&a.made, 3, ATTN_F64, ATTN_CROSS, d);
    edit.query = 1;
    edit.key = 4;
    make_baseline(&a, ATTN_PATH_DENSE);
    for (int zero = 0; zero < 2; zero++) {
        if (zero)
            edit.change = attn_edit_change_find("zero");
        make_ablated(&a, &edit, 1);
        cr_assert(a.ok);
        for (size_t each = 0; each < d.B * d.h; each++) {
            const size_t first = (each * d.T_q + 1) * d.T_kv;
            const double gone = attn_tensor_get(&a.ran.trace.t[ATTN_A], first + 4);

            cr_assert_eq(attn_tensor_get(&a.out.trace.t[ATTN_A], first + 4), 0.0);
            for (size_t j = 0; j < 4; j++)
                cr_assert_leq(fabs(attn_tensor_get(&a.out.trace.t[ATTN_A], first + j) -
                                   attn_tensor_get(&a.ran.trace.t[ATTN_A], first + j) /
                                       (zero ? 1 : 1 - gone)),
                              1e-14);
        }
        make_ablation_again(&a);
    }
    make_ablation_free(&a);
}

/* Head by head, H_heads and H say the same, and without the head its part of Y is
   gone. */
Test(attn_ablate, heads_add_up)
{
    const struct attn_dims d =
        MAKE_DIMS(5, 5, 7, .B = 2, .d_k = 2, .d_v = 3, .h = 4, .h_kv = 2);
    struct ablated a = {0};
    double sum[2 * 5 * 7] = {0};

    make_plain(&a.made, 9, ATTN_F64, ATTN_SELF, d);
    make_baseline(&a, ATTN_PATH_DENSE);
    for (size_t h = 0; h < d.h; h++) {
        struct attn_edit edit = make_edit("head", "remove");

        edit.index = h;
        make_ablated(&a, &edit, 1);
        cr_assert(a.ok);
        for (size_t n = 0; n < ATTN_COUNT(sum); n++)
            sum[n] += attn_tensor_get(&a.ran.trace.t[ATTN_Y], n) -
                      attn_tensor_get(&a.out.trace.t[ATTN_Y], n);
        make_ablation_again(&a);
    }
    for (size_t n = 0; n < ATTN_COUNT(sum); n++)
        cr_assert_leq(fabs(sum[n] - attn_tensor_get(&a.ran.trace.t[ATTN_Y], n)),
                      TOLERANCE);
    make_ablation_free(&a);
}

Test(attn_ablate, head_mean_is_over_query_rows)
{
    const struct attn_dims d =
        MAKE_DIMS(5, 5, 7, .B = 2, .d_k = 2, .d_v = 3, .h = 4, .h_kv = 2);
    struct ablated a = {0};
    struct attn_edit edit = make_edit("head", "mean");

    make_plain(&a.made, 9, ATTN_F64, ATTN_SELF, d);
    edit.index = 2;
    make_one_edit(&a, &edit);
    for (size_t b = 0; b < d.B; b++)
        for (size_t c = 0; c < d.d_v; c++) {
            const size_t first = (b * d.h + 2) * d.T_q * d.d_v + c;
            double mean = 0;

            for (size_t i = 0; i < d.T_q; i++)
                mean +=
                    attn_tensor_get(&a.ran.trace.t[ATTN_H_HEADS], first + i * d.d_v) / 5;
            for (size_t i = 0; i < d.T_q; i++) {
                const double got =
                    attn_tensor_get(&a.out.trace.t[ATTN_H_HEADS], first + i * d.d_v);

                cr_assert_leq(fabs(got - mean), 1e-15);
                cr_assert_eq(got,
                             attn_tensor_get(&a.out.trace.t[ATTN_H],
                                             ((b * d.T_q + i) * d.h + 2) * d.d_v + c));
            }
        }
    make_ablation_free(&a);
}

/* A change of the future does not reach the past of a causal layer. */
Test(attn_ablate, token_under_a_causal_rule)
{
    const struct attn_dims d =
        MAKE_DIMS(6, 6, 7, .B = 1, .d_k = 2, .d_v = 3, .h = 2, .h_kv = 2);
    struct ablated a = {0};
    struct attn_edit edit = make_edit("position", "noise");
    bool claimed = false;

    make_plain(&a.made, 4, ATTN_F64, ATTN_SELF, d);
    make_mask(&a.made, "causal");
    make_prepare(&a.made);
    edit.index = 3;
    make_one_edit(&a, &edit);
    for (size_t n = 0; n < 3 * d.d_model; n++)
        cr_assert_eq(attn_tensor_get(&a.ran.trace.t[ATTN_Y], n),
                     attn_tensor_get(&a.out.trace.t[ATTN_Y], n));
    for (size_t i = 3; i < 6; i++)
        cr_assert_neq(attn_tensor_get(&a.ran.trace.t[ATTN_Y], i * d.d_model),
                      attn_tensor_get(&a.out.trace.t[ATTN_Y], i * d.d_model));
    for (size_t n = 0; n < a.out.claim_count; n++)
        claimed = claimed || a.out.claim[n].object == ATTN_Y;
    cr_assert(claimed);
    make_ablation_free(&a);
}

/* ---- the tiled path, and the baseline ---- */

Test(attn_ablate, tiled_path)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct ablated a = {0};
        struct attn_edit head = make_edit("head", "zero"),
                         edge = make_edit("edge", "zero");

        make_problem(&a.made, seed, ATTN_F64, 6, 0, &MAKE_ALL);
        make_baseline(&a, ATTN_PATH_TILED);
        make_ablated(&a, &head, 1);
        cr_assert(a.ok);
        make_check_claims(&a, "head on the tiled path");
        cr_assert(make_claims(&a, ATTN_H_HEADS, "this head exactly 0"));
        make_ablation_again(&a);
        make_ablated(&a, &edge, 1);
        cr_assert_not(a.ok);
        cr_assert_eq(a.err.code, ATTN_E_CONTRADICTION);
        cr_assert_str_eq(a.err.object, "A");
        make_ablation_free(&a);
    }
}

/* The baseline's problem and numbers are only read. */
Test(attn_ablate, the_problem_is_not_touched)
{
    const struct attn_dims d =
        MAKE_DIMS(3, 3, 4, .B = 2, .d_k = 4, .d_v = 4, .h = 1, .h_kv = 1);

    for (size_t t = 0; t < attn_edit_target_count(); t++)
        for (size_t c = 0; c < attn_edit_change_count(); c++) {
            struct ablated a = {0};
            struct attn_edit edit =
                make_edit(attn_edit_target_at(t)->name, attn_edit_change_at(c)->name);
            struct ran after;

            make_plain(&a.made, 2, ATTN_F64, ATTN_SELF, d);
            make_mask(&a.made, "causal");
            make_prepare(&a.made);
            make_edit_fill(&a.made, &edit);
            if (attn_edit_target_at(t)->changes >> c & 1) {
                make_one_edit(&a, &edit);
                make_run(&a.made.p, a.ran.plan.held, ATTN_PATH_DENSE, NULL, NULL, &after);
                for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++)
                    cr_assert(a.ran.trace.t[o].p == NULL ||
                              make_same_bits(&after.trace.t[o], &a.ran.trace.t[o],
                                             ATTN_OBJECTS[o].name));
                make_run_free(&after);
            }
            make_ablation_free(&a);
        }
}
