/*
 * attn_audit_rows.c - checks 2 to 4: Q K V, scores, masks.
 * Not here: how rows are recomputed and how closely they must agree (attn_judge.c), the
 * widths (attn_audit_inputs.c), weights and what follows from them
 * (attn_audit_weights.c).
 * Start reading at attn_check_qkv.
 */
#include "core/attn_audit.h"

#include <math.h>
#include <string.h>

/* ---- 2: Q, K, V -------------------------------------------------------------------- */

static void compare_row4(const struct attn_auditor *a, enum attn_object o, size_t b,
                         size_t h, size_t i, const struct attn_judged *want,
                         struct attn_diff *diff)
{
    const struct attn_tensor *t = &a->trace->t[o];
    const size_t from = attn_place4(t, b, h, i);

    if (!attn_audit_has(a, o))
        return;
    for (size_t c = 0; c < t->dim[3]; c++)
        attn_diff_note(diff, o, (const size_t[4]){b, h, i, c}, attn_number(t, from + c),
                       want[c]);
}

static void compare_q(const struct attn_auditor *a, struct attn_diff *diff)
{
    for (size_t n = 0; n < a->row_count; n++) {
        const struct attn_audit_row r = attn_audit_row(a, n);

        diff->rows++;
        if (attn_audit_has(a, ATTN_Q_PRE)) {
            attn_judge_q(a->p, r.b, r.h, r.i, false, a->judged);
            compare_row4(a, ATTN_Q_PRE, r.b, r.h, r.i, a->judged, diff);
        }
        attn_judge_q(a->p, r.b, r.h, r.i, true, a->judged);
        compare_row4(a, ATTN_Q, r.b, r.h, r.i, a->judged, diff);
    }
    attn_diff_scan(a, ATTN_Q, diff);
}

/* Key row n of those looked at: all of them, or one for every drawn query row and both
   ends. */
static struct attn_audit_row key_row(struct attn_auditor *a, size_t n)
{
    const struct attn_dims *d = &a->p->d;

    if (a->all_rows)
        return (struct attn_audit_row){n / d->T_kv / d->h_kv, n / d->T_kv % d->h_kv,
                                       n % d->T_kv};
    if (n < 2)
        return n == 0 ? (struct attn_audit_row){0, 0, 0}
                      : (struct attn_audit_row){d->B - 1, d->h_kv - 1, d->T_kv - 1};

    const struct attn_audit_row r = attn_audit_row(a, n - 2);

    return (struct attn_audit_row){r.b, attn_kv_head(d, r.h),
                                   attn_random_below(&a->random, d->T_kv)};
}

static void compare_k(struct attn_auditor *a, struct attn_audit_row r,
                      struct attn_diff *diff)
{
    if (attn_audit_has(a, ATTN_K_PRE)) {
        attn_judge_k(a->p, r.b, r.h, r.i, false, a->judged);
        compare_row4(a, ATTN_K_PRE, r.b, r.h, r.i, a->judged, diff);
    }
    attn_judge_k(a->p, r.b, r.h, r.i, true, a->judged);
    compare_row4(a, ATTN_K, r.b, r.h, r.i, a->judged, diff);
    compare_row4(a, ATTN_PRESENT_K, r.b, r.h, r.i, a->judged, diff);
}

static void compare_v(struct attn_auditor *a, struct attn_audit_row r,
                      struct attn_diff *diff)
{
    attn_judge_v(a->p, r.b, r.h, r.i, a->judged);
    compare_row4(a, ATTN_V, r.b, r.h, r.i, a->judged, diff);
    compare_row4(a, ATTN_PRESENT_V, r.b, r.h, r.i, a->judged, diff);
}

bool attn_check_qkv(struct attn_auditor *a, struct attn_finding *f)
{
    static const enum attn_object objects[] = {
        ATTN_Q_PRE, ATTN_Q, ATTN_K_PRE, ATTN_K, ATTN_PRESENT_K, ATTN_V, ATTN_PRESENT_V};
    static const struct attn_words words = {
        "Each row of Q, K and V is its token's row times W, plus a bias and rotated "
        "where asked; "
        "cached rows come first, unchanged.",
        "{0} rows recomputed, {1} numbers: the largest difference is {2}, {3} is allowed "
        "there.",
        "{4} expected, {5} found, at the first number that differs; {6} is allowed "
        "there.",
        "A sum of n products may differ by n roundings of its terms; the rows are "
        "recomputed in "
        "float64 by loops that share nothing with the layer.",
    };
    const size_t keys =
        a->all_rows ? a->p->d.B * a->p->d.h_kv * a->p->d.T_kv : a->row_count + 2;
    struct attn_diff diff = {0};

    for (size_t n = 0; n < ATTN_COUNT(objects); n++)
        if (!attn_finding_shape(a, objects[n], f))
            return true;
    compare_q(a, &diff);
    for (int side = 0; side < 2; side++) {
        for (size_t n = 0; n < keys; n++) {
            if (n % 64 == 0 && !attn_audit_goes_on(a))
                return false;
            diff.rows++;
            (side == 0 ? compare_k : compare_v)(a, key_row(a, n), &diff);
        }
        attn_diff_scan(a, side == 0 ? ATTN_K : ATTN_V, &diff);
    }
    attn_finding_set(f, &diff, &words);
    return true;
}

/* ---- 3: scores --------------------------------------------------------------------- */

struct scale_fit { /* least squares: S ≈ scale · (q·k) */
    double s_raw, raw_raw;
};

static void compare_scores(struct attn_auditor *a, struct attn_audit_row r,
                           struct scale_fit *fit, struct attn_diff *diff)
{
    const struct attn_tensor *S = &a->trace->t[ATTN_S], *raw = &a->trace->t[ATTN_S_RAW];
    const size_t from = attn_place4(S, r.b, r.h, r.i);

    attn_judge_raw_row(a->p, a->trace, r.b, r.h, r.i, a->scratch, a->judged);
    for (size_t j = 0; j < a->p->d.T_kv; j++) {
        const size_t at[4] = {r.b, r.h, r.i, j};
        const double s = attn_number(S, from + j), q_k = a->judged[j].value;

        if (attn_audit_has(a, ATTN_S_RAW))
            attn_diff_note(diff, ATTN_S_RAW, at, attn_number(raw, from + j),
                           a->judged[j]);
        attn_diff_note(diff, ATTN_S, at, s, attn_judge_score(a->p, a->judged[j]));
        if (!isfinite(s))
            continue;
        fit->s_raw += s * q_k;
        fit->raw_raw += q_k * q_k;
    }
}

bool attn_check_score(struct attn_auditor *a, struct attn_finding *f)
{
    static const struct attn_words scaled = {
        "S_ij is q_i·k_j (or the score function asked) times {7}, at every pair, "
        "forbidden or not.",
        "{0} rows recomputed, {1} scores: the largest difference is {2}, {3} is allowed "
        "there. The "
        "scale measured from S and q·k is {8}.",
        "{4} expected, {5} found, at the first score that differs; {6} is allowed there. "
        "The scale "
        "measured from S and q·k is {8}, {7} is asked.",
        "The usual scale is 1/√d_k with d_k = {9}: q·k has a variance that grows with "
        "d_k, and "
        "softmax saturates without it.",
    };
    static const struct attn_words capped = {
        "S_ij is cap·tanh(s/cap), s being q_i·k_j times {7} and cap {8}, at every pair.",
        "{0} rows recomputed, {1} scores: the largest difference is {2}, {3} is allowed "
        "there.",
        "{4} expected, {5} found, at the first score that differs; {6} is allowed there.",
        "With a soft cap the scale cannot be measured from S; it is checked through the "
        "scores.",
    };
    struct scale_fit fit = {0.0, 0.0};
    struct attn_diff diff = {0};

    if (!attn_finding_shape(a, ATTN_S_RAW, f) || !attn_finding_shape(a, ATTN_S, f))
        return true;
    if (!attn_audit_has(a, ATTN_S) || !attn_audit_has(a, ATTN_Q) ||
        !attn_audit_has(a, ATTN_K)) {
        attn_finding_skip(
            f, attn_audit_has(a, ATTN_S) || !a->trace->t[ATTN_S].p
                   ? "The tiled path never holds S; H is recomputed from Q, K and V."
                   : "Q or K has a wrong shape.");
        return true;
    }
    for (size_t n = 0; n < a->row_count; n++) {
        if (!attn_audit_goes_on(a))
            return false;
        diff.rows++;
        compare_scores(a, attn_audit_row(a, n), &fit, &diff);
    }
    attn_diff_scan(a, ATTN_S, &diff);
    attn_finding_set(f, &diff, a->p->softcap > 0.0 ? &capped : &scaled);
    f->fact[7] = a->p->scale / a->p->temperature;
    f->fact[8] = a->p->softcap > 0.0 ? a->p->softcap : fit.s_raw / fit.raw_raw;
    f->fact[9] = (double)a->p->d.d_k;
    return true;
}

/* ---- 4: masks ---------------------------------------------------------------------- */

/* M: -Infinity exactly where forbidden, else the bias; its parts are rounded one by
   one. */
static void compare_m(const struct attn_auditor *a, const size_t at[4], double got,
                      bool allowed, struct attn_diff *diff)
{
    const struct attn_problem *p = a->p;
    double bias;

    if (!allowed || got == -INFINITY) {
        attn_diff_exact(diff, ATTN_M, at, got,
                        allowed ? attn_bias(p, at[0], at[1], at[2], at[3]) : -INFINITY);
        return;
    }
    bias = attn_bias(p, at[0], at[1], at[2], at[3]);
    attn_diff_note(
        diff, ATTN_M, at, got,
        (struct attn_judged){bias, 8.0 * attn_judge_eps(p->dtype) *
                                       attn_bias_size(p, at[0], at[1], at[2], at[3])});
}

static void compare_masked(const struct attn_auditor *a, const size_t at[4], size_t place,
                           struct attn_diff *diff)
{
    const double got = attn_number(&a->trace->t[ATTN_S_MASKED], place);
    const double s = attn_number(&a->trace->t[ATTN_S], place);
    const double m = attn_audit_has(a, ATTN_M) ? attn_number(&a->trace->t[ATTN_M], place)
                     : attn_judge_allowed(a->p, a->trace, at[0], at[1], at[2], at[3])
                         ? attn_bias(a->p, at[0], at[1], at[2], at[3])
                         : -INFINITY;

    if (m == -INFINITY)
        attn_diff_exact(diff, ATTN_S_MASKED, at, got, m);
    else
        attn_diff_note(diff, ATTN_S_MASKED, at, got,
                       (struct attn_judged){s + m, 8.0 * attn_judge_eps(a->p->dtype) *
                                                       (fabs(s) + fabs(m))});
}

static void compare_mask_row(struct attn_auditor *a, struct attn_audit_row r,
                             struct attn_diff *diff)
{
    const struct attn_trace *t = a->trace;
    const bool sum = attn_audit_has(a, ATTN_S_MASKED) && attn_audit_has(a, ATTN_S);
    const size_t T = a->p->d.T_kv,
                 from = ((r.b * a->p->d.h + r.h) * a->p->d.T_q + r.i) * T;

    for (size_t j = 0; j < T; j++) {
        const size_t at[4] = {r.b, r.h, r.i, j};
        const bool allowed = attn_allowed(a->p, r.b, r.h, r.i, j);

        if (attn_audit_has(a, ATTN_ALLOWED))
            attn_diff_exact(diff, ATTN_ALLOWED, at,
                            attn_number(&t->t[ATTN_ALLOWED], from + j), allowed);
        if (attn_audit_has(a, ATTN_M))
            compare_m(a, at, attn_number(&t->t[ATTN_M], from + j), allowed, diff);
        if (sum)
            compare_masked(a, at, from + j, diff);
    }
}

/* How many of n flags are set: sixteen at a time, as long as a byte can count them. */
static size_t count_set(const uint8_t *flag, size_t n)
{
    typedef uint8_t sixteen __attribute__((vector_size(16)));
    enum { TIMES = 255 };
    size_t count = 0, k = 0;

    while (n - k >= sizeof(sixteen)) {
        sixteen sums = {0}, flags;

        for (size_t time = 0; time < TIMES && n - k >= sizeof flags; time++) {
            memcpy(&flags, flag + k, sizeof flags);
            sums -= (sixteen)(flags != 0);
            k += sizeof flags;
        }
        for (size_t l = 0; l < sizeof sums; l++)
            count += sums[l];
    }
    for (; k < n; k++)
        count += flag[k] != 0;
    return count;
}

static size_t count_allowed(const struct attn_auditor *a)
{
    const bool held = attn_audit_has(a, ATTN_ALLOWED);
    const struct attn_tensor *t = &a->trace->t[held ? ATTN_ALLOWED : ATTN_M];
    const size_t n = attn_tensor_count(t);
    size_t count = 0;

    if (held)
        return count_set(t->p, n);
    for (size_t k = 0; k < n; k++)
        count += attn_number(t, k) != -INFINITY;
    return count;
}

bool attn_check_mask(struct attn_auditor *a, struct attn_finding *f)
{
    static const enum attn_object objects[] = {ATTN_M, ATTN_ALLOWED, ATTN_S_MASKED};
    static const struct attn_words words = {
        "M is -Infinity where a rule forbids the pair, and 0 or the bias asked where all "
        "rules "
        "allow it; S_masked is S + M.",
        "{0} rows recomputed pair by pair from the rules, {1} entries agree; in all rows "
        "{7} pairs "
        "are allowed and {8} forbidden.",
        "{4} expected, {5} found, at the first entry that differs; in all rows {7} pairs "
        "are "
        "allowed and {8} forbidden.",
        "A pair is allowed when every rule allows it; here each rule is asked about one "
        "pair "
        "at a time. There are {9} pairs.",
    };
    struct attn_diff diff = {0};

    for (size_t n = 0; n < ATTN_COUNT(objects); n++)
        if (!attn_finding_shape(a, objects[n], f))
            return true;
    if (!attn_audit_has(a, ATTN_ALLOWED) && !attn_audit_has(a, ATTN_M)) {
        attn_finding_skip(
            f, "The tiled path holds neither M nor the allowed pairs; H is recomputed "
               "from Q, K, V and the rules.");
        return true;
    }
    for (size_t n = 0; n < a->row_count; n++) {
        if (!attn_audit_goes_on(a))
            return false;
        diff.rows++;
        compare_mask_row(a, attn_audit_row(a, n), &diff);
    }
    attn_finding_set(f, &diff, &words);
    f->fact[9] = (double)(a->p->d.B * a->p->d.h * a->p->d.T_q * a->p->d.T_kv);
    f->fact[7] = (double)count_allowed(a);
    f->fact[8] = f->fact[9] - f->fact[7];
    return true;
}
