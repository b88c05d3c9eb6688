/*
 * test_attn_fault.c - the mutation matrix: every fault, on problems that can show it, is
 * caught first by its named check, and its object is the first incorrect one.
 * Not here: broken stages that are no fault of the catalogue
 * (test_attn_audit_broken.c).
 * Start reading at every_fault_is_caught.
 */
#include "make_audit.h"
#include "make_fault.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEMS = 4 };

/* ---- one fault, one problem -------------------------------------------------------- */

/* The audit of a run with the fault. */
static struct attn_audit audit(const struct attn_fault_row *fault, const struct made *m)
{
    struct audited a;
    struct ran r;

    make_run_all(&m->p, ATTN_PATH_DENSE, attn_fault_swap(fault), &r);
    cr_assert(r.ok);
    a = make_audit(&m->p, &r, ATTN_AUDIT_FULL, m->seed, attn_fault_swap(fault));
    cr_assert(a.ok);
    make_run_free(&r);
    return a.audit;
}

static bool caught(const struct attn_fault_row *fault, const struct made *m)
{
    const struct attn_audit a = audit(fault, m);
    const char *object = attn_fault_object(fault);

    if (a.first_incorrect && strcmp(a.first_incorrect, object) == 0 &&
        strcmp(make_first_failing(&a), attn_fault_caught_by(fault)) == 0)
        return true;
    fprintf(stderr, "%s, seed %llu: %s says %s first, %s should say %s\n",
            attn_fault_name(fault), (unsigned long long)m->seed, make_first_failing(&a),
            a.first_incorrect ? a.first_incorrect : "nothing",
            attn_fault_caught_by(fault), object);
    return false;
}

Test(attn_fault, every_fault_is_caught)
{
    size_t missed = 0;

    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);
        uint64_t seed = 1;
        struct made m;
        size_t shown = 0;

        if (!make_is_forward(fault))
            continue;
        while (shown < PROBLEMS && make_shows(fault, true, &seed, &m)) {
            missed += !caught(fault, &m);
            shown++;
            make_free(&m);
        }
        if (shown < PROBLEMS)
            fprintf(stderr, "%s: only %zu problems show it\n", attn_fault_name(fault),
                    shown);
        missed += shown < PROBLEMS;
    }
    cr_assert_eq(missed, 0);
}

/* These ask for more than a change: half precision rounds every score, the NaN of a row
   is there whether or not it spreads, and a constant must show clearly enough to be
   found. */
static bool asks_for_more(const struct attn_fault_row *fault)
{
    static const char *const names[] = {
        "fp16_mask_sum_leaks", "fp16_mask_overflow_nan", "masked_row_nan_spreads",
        "causal_other_offset", "weights_scaled",         "output_scaled",
    };

    for (size_t n = 0; n < ATTN_COUNT(names); n++)
        if (strcmp(attn_fault_name(fault), names[n]) == 0)
            return true;
    return false;
}

/* Where a fault says that a problem cannot show it, it must indeed change nothing. */
static bool hidden(const struct attn_fault_row *fault, const struct made *m)
{
    const struct attn_audit a = audit(fault, m);

    if (a.status == ATTN_PASS)
        return true;
    fprintf(stderr, "%s, seed %llu: hidden, yet %s fails\n", attn_fault_name(fault),
            (unsigned long long)m->seed, make_first_failing(&a));
    return false;
}

Test(attn_fault, what_is_hidden_changes_nothing)
{
    size_t wrong = 0;

    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct made m;

        make_problem(&m, seed, seed % 2 ? ATTN_F64 : ATTN_F32, 2 + seed % 4,
                     seed % 5 ? 0 : 1, &MAKE_ALL);
        for (size_t n = 0; n < attn_fault_count(); n++) {
            const struct attn_fault_row *fault = attn_fault_at(n);

            if (make_is_forward(fault) && !attn_fault_visible(fault, &m.p) &&
                !asks_for_more(fault))
                wrong += !hidden(fault, &m);
        }
        make_free(&m);
    }
    cr_assert_eq(wrong, 0);
}

/* Wire names that clients may rely on: the faults of a forward layer. */
static const char *const NAMES[] = {
    "wq_transposed",
    "wo_transposed",
    "wo_missing",
    "heads_summed",
    "value_from_key",
    "mixes_keys_not_values",
    "kv_swapped",
    "qk_swapped",
    "score_transposed",
    "weights_transposed",
    "packed_qkv_order",
    "packed_qkv_interleaved",
    "cross_source_wrong",
    "split_heads_by_view",
    "merge_heads_by_view",
    "gqa_tile",
    "attends_across_heads",
    "attends_across_batch",
    "key_bias_missing",
    "scale_missing",
    "scale_twice",
    "scale_no_sqrt",
    "scale_d_model",
    "scale_value_width",
    "scale_inverted",
    "scale_after_softmax",
    "softcap_dropped",
    "softcap_after_mask",
    "softmax_over_queries",
    "softmax_over_batch",
    "softmax_over_heads",
    "softmax_overflow",
    "mask_after_softmax",
    "mask_multiplied_into_scores",
    "masked_row_nan",
    "masked_row_nan_spreads",
    "masked_row_uniform",
    "fp16_mask_sum_leaks",
    "fp16_mask_overflow_nan",
    "mask_constant_too_small",
    "sink_ignored",
    "dropout_in_eval",
    "mask_inverted",
    "mask_ignored",
    "causal_flipped",
    "causal_leaks_one",
    "causal_skipped_in_prefill",
    "causal_top_left",
    "causal_bottom_right",
    "causal_more_queries",
    "decode_sees_first_key_only",
    "chunk_mask_offset",
    "padding_on_query_axis",
    "padding_both_axes",
    "batch_mask_from_first",
    "packed_leak",
    "packed_boundary_off_by_one",
    "packed_not_causal",
    "window_one_too_wide",
    "window_ignored_in_decode",
    "bool_mask_added",
    "rope_pairing",
    "rope_mixed_layout",
    "rope_on_query_only",
    "decode_position_zero",
    "decode_position_off_by_one",
    "decode_query_position_only",
    "chunk_position_counted_twice",
    "packed_positions_not_reset",
    "alibi_slopes_not_pow2",
    "alibi_sign",
    "alibi_missing_in_decode",
    "query_not_projected",
    "query_is_value",
    "query_is_key",
    "key_not_projected",
    "key_is_value",
    "key_is_query",
    "value_not_projected",
    "value_is_query",
    "value_is_key",
    "value_is_final_key",
    "queries_meet_values",
    "keys_meet_keys",
    "queries_meet_queries",
    "mixes_queries_not_values",
    "packed_vqk_order",
    "qv_swapped",
    "masked_row_by_score",
};

Test(attn_fault, rows_are_complete_and_named_once)
{
    for (size_t n = 0; n < ATTN_COUNT(NAMES); n++)
        cr_assert(attn_fault_find(NAMES[n]) && make_is_forward(attn_fault_find(NAMES[n])),
                  "%s", NAMES[n]);
    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);

        cr_assert_eq(attn_fault_find(attn_fault_name(fault)), fault);
        cr_assert_gt(strlen(attn_fault_explanation(fault)), 10);
        cr_assert_gt(strlen(attn_fault_fix(fault)), 10);
        cr_assert_gt(strlen(attn_fault_visible_when(fault)), 0);
        if (make_is_forward(fault))
            cr_assert_geq(attn_object_find(attn_fault_object(fault)), 0);
    }
    cr_assert_null(attn_fault_find("no_such_fault"));
}
