/*
 * attn_audit_output.c - checks 7 and 8: H is the sum of contributions, Y is H W_O.
 * Not here: how rows are recomputed and how closely they must agree (attn_judge.c).
 * Start reading at attn_check_mix.
 */
#include "core/attn_audit.h"

#include <math.h>

/* ---- 7: the sum of contributions --------------------------------------------------- */

/* The row's weights: the trace's own where held, recomputed otherwise. */
static void own_weights(struct attn_auditor *a, struct attn_audit_row r)
{
    const struct attn_tensor *A = &a->trace->t[ATTN_A];

    if (!attn_audit_has(a, ATTN_A)) {
        attn_judge_logits(a->p, a->trace, r.b, r.h, r.i, a->scratch, &a->logits);
        attn_judge_weights(a->p, r.h, &a->logits, a->weights);
        return;
    }
    for (size_t j = 0; j < a->p->d.T_kv; j++)
        a->weights[j] =
            (struct attn_judged){attn_number(A, attn_place4(A, r.b, r.h, r.i) + j), 0.0};
}

static void compare_contributions(const struct attn_auditor *a, struct attn_audit_row r,
                                  struct attn_diff *diff)
{
    const struct attn_tensor *t = &a->trace->t[ATTN_CONTRIBUTIONS],
                             *V = &a->trace->t[ATTN_V];
    const size_t d_v = a->p->d.d_v, from = attn_place4(t, r.b, r.h, r.i);
    const size_t values = attn_place4(V, r.b, attn_kv_head(&a->p->d, r.h), 0);

    for (size_t n = 0; n < a->p->d.T_kv * d_v; n++) {
        const double w = a->weights[n / d_v].value, want = w * attn_number(V, values + n);

        attn_diff_either(
            diff, ATTN_CONTRIBUTIONS, (const size_t[4]){r.b, r.h, r.i, n / d_v},
            attn_number(t, from + n),
            isnan(w) ? (struct attn_judged){NAN, 0.0}
                     : (struct attn_judged){want, 4.0 * attn_judge_eps(a->p->dtype) *
                                                          fabs(want) +
                                                      attn_judge_tiny(a->p->dtype)});
    }
}

static void compare_h(struct attn_auditor *a, struct attn_audit_row r,
                      struct attn_diff *diff)
{
    const struct attn_tensor *heads = &a->trace->t[ATTN_H_HEADS],
                             *H = &a->trace->t[ATTN_H];
    const size_t d_v = a->p->d.d_v;
    const bool nan = attn_audit_nan_row(a, r);

    own_weights(a, r);
    attn_judge_mix(a->p, a->trace, r.b, r.h, a->weights, a->judged);
    if (attn_audit_has(a, ATTN_CONTRIBUTIONS))
        compare_contributions(a, r, diff);
    for (size_t c = 0; c < d_v; c++) {
        const size_t at[4] = {r.b, r.h, r.i, c},
                     joined[4] = {r.b, r.i, r.h * d_v + c, SIZE_MAX};
        struct attn_judged want = nan ? (struct attn_judged){NAN, 0.0} : a->judged[c];

        want.error += attn_judge_tiny(a->p->dtype) * !nan;
        if (attn_audit_has(a, ATTN_H_HEADS))
            attn_diff_either(diff, ATTN_H_HEADS, at,
                             attn_number(heads, attn_place4(heads, r.b, r.h, r.i) + c),
                             want);
        if (attn_audit_has(a, ATTN_H))
            attn_diff_either(diff, ATTN_H, joined,
                             attn_number(H, attn_place3(H, r.b, r.i) + r.h * d_v + c),
                             want);
    }
}

static const char *const SINK_MIXES =
    "The sink takes its share of every row and has no value, so the weights sum to 1 at "
    "most: a row of H lies, feature by feature, between the smallest and the largest of "
    "0 and the values that it reads. An empty row is what empty_rows says.";

bool attn_check_mix(struct attn_auditor *a, struct attn_finding *f)
{
    static const enum attn_object objects[] = {ATTN_CONTRIBUTIONS, ATTN_H_HEADS, ATTN_H};
    static const struct attn_words held = {
        "Each row of H is the sum over keys of A_ij v_j, with v_j from the row's own "
        "key/value head; "
        "heads stand side by side.",
        "{0} rows summed up from the trace's own A and V, {1} numbers: the largest "
        "difference is "
        "{2}, {3} is allowed there.",
        "{4} expected, {5} found, at the first number that differs; {6} is allowed "
        "there.",
        "A row of H is a mean of the values that it reads: feature by feature between "
        "their smallest and their largest, and an empty row is what empty_rows says.",
    };
    static const struct attn_words recomputed = {
        "Each row of H is the sum over keys of A_ij v_j; A is not held, so its row is "
        "made anew from "
        "Q, K and the rules.",
        "{0} rows made from Q, K, V and the rules, {1} numbers: the largest difference "
        "is {2}, {3} is "
        "allowed there.",
        "{4} expected, {5} found, at the first number that differs; {6} is allowed "
        "there.",
        "The tolerance carries the roundings of the scores through exp into the sum.",
    };
    struct attn_diff diff = {0};

    for (size_t n = 0; n < ATTN_COUNT(objects); n++)
        if (!attn_finding_shape(a, objects[n], f))
            return true;
    if (!attn_audit_has(a, ATTN_H) || !attn_audit_has(a, ATTN_V) ||
        !attn_audit_has(a, ATTN_Q) || !attn_audit_has(a, ATTN_K) ||
        (a->trace->t[ATTN_A].p && !attn_audit_has(a, ATTN_A))) {
        attn_finding_skip(f, a->trace->t[ATTN_H].p
                                 ? "An earlier object has a wrong shape."
                                 : "H is not held.");
        return true;
    }
    for (size_t n = 0; n < a->row_count; n++) {
        if (!attn_audit_goes_on(a))
            return false;
        diff.rows++;
        compare_h(a, attn_audit_row(a, n), &diff);
    }
    if (a->p->empty_rows != ATTN_EMPTY_NAN)
        attn_diff_scan(a, ATTN_H, &diff);
    attn_finding_set(f, &diff, attn_audit_has(a, ATTN_A) ? &held : &recomputed);
    if (f->detail == held.detail && a->p->in[ATTN_IN_SINK].p)
        f->detail = SINK_MIXES;
    return true;
}

/* ---- 8: output projection ---------------------------------------------------------- */

/* One empty head asked to be NaN makes the whole row of Y NaN. */
static bool any_head_nan(const struct attn_auditor *a, struct attn_audit_row r)
{
    for (r.h = 0; r.h < a->p->d.h; r.h++)
        if (attn_audit_nan_row(a, r))
            return true;
    return false;
}

static void compare_output(struct attn_auditor *a, struct attn_audit_row r,
                           struct attn_diff *diff)
{
    const struct attn_tensor *Y = &a->trace->t[ATTN_Y];
    const bool nan = any_head_nan(a, r);

    attn_judge_output(a->p, a->trace, r.b, r.i, a->judged);
    for (size_t c = 0; c < a->p->d.d_model; c++)
        attn_diff_either(diff, ATTN_Y, (const size_t[4]){r.b, r.i, c, SIZE_MAX},
                         attn_number(Y, attn_place3(Y, r.b, r.i) + c),
                         nan ? (struct attn_judged){NAN, 0.0} : a->judged[c]);
}

bool attn_check_output(struct attn_auditor *a, struct attn_finding *f)
{
    static const struct attn_words words = {
        "Each row of Y is the joined row of H, {7} wide, times W_O (+ b_O): {8} wide "
        "again.",
        "{0} rows recomputed from the trace's own H, {1} numbers: the largest difference "
        "is {2}, {3} "
        "is allowed there.",
        "{4} expected, {5} found, at the first number that differs; {6} is allowed "
        "there.",
        "W_O is applied as H·W_O, inputs on the left; its transpose has the same shape "
        "only when "
        "h·d_v = d_model.",
    };
    struct attn_diff diff = {0};
    size_t last = SIZE_MAX;

    if (!attn_finding_shape(a, ATTN_Y, f))
        return true;
    if (!attn_audit_has(a, ATTN_Y) || !attn_audit_has(a, ATTN_H)) {
        attn_finding_skip(f, a->p->form.has_output
                                 ? "H or Y is not held in its right shape."
                                 : "There is no W_O: the layer ends with H.");
        return true;
    }
    for (size_t n = 0; n < a->row_count; n++) {
        const struct attn_audit_row r = attn_audit_row(a, n);
        const size_t row = r.b * a->p->d.T_q + r.i;

        if (!attn_audit_goes_on(a))
            return false;
        if (row == last || (a->all_rows ? r.h > 0 : n % a->p->d.h > 0))
            continue; /* every row once, not once a head */
        last = row;
        diff.rows++;
        compare_output(a, r, &diff);
    }
    if (a->p->empty_rows != ATTN_EMPTY_NAN)
        attn_diff_scan(a, ATTN_Y, &diff);
    attn_finding_set(f, &diff, &words);
    f->fact[7] = (double)(a->p->d.h * a->p->d.d_v);
    f->fact[8] = (double)a->p->d.d_model;
    return true;
}
