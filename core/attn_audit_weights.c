/*
 * attn_audit_weights.c - checks 5 and 6: the weights A and their exact zeros.
 * Not here: how rows are recomputed and how closely they must agree (attn_judge.c), H
 * and Y (attn_audit_output.c).
 * Start reading at attn_check_softmax.
 */
#include "core/attn_audit.h"

#include <math.h>
#include <string.h>

/* ---- 5: softmax -------------------------------------------------------------------- */

struct sums {
    double worst;         /* the row sum furthest from what it should be */
    double bad, bad_want; /* that of the first wrong row */
    size_t empty;
};

static void compare_lse(const struct attn_auditor *a, struct attn_audit_row r,
                        struct attn_judged want, struct attn_diff *diff)
{
    const struct attn_tensor *t = &a->trace->t[ATTN_LSE];
    const size_t at[4] = {r.b, r.h, r.i, SIZE_MAX};

    if (!attn_audit_has(a, ATTN_LSE))
        return;

    const double got = attn_number(t, (r.b * a->p->d.h + r.h) * a->p->d.T_q + r.i);

    if (isfinite(want.value))
        attn_diff_note(diff, ATTN_LSE, at, got, want);
    else
        attn_diff_exact(diff, ATTN_LSE, at, got, want.value);
}

static void compare_weights(struct attn_auditor *a, struct attn_audit_row r,
                            struct sums *sums, struct attn_diff *diff)
{
    const struct attn_tensor *A = &a->trace->t[ATTN_A];
    const size_t from = attn_place4(A, r.b, r.h, r.i), T = a->p->d.T_kv;
    struct attn_judged total = {0.0, 0.0};
    double sum = 0.0;
    const bool was_bad = diff->bad;

    attn_judge_logits(a->p, a->trace, r.b, r.h, r.i, a->scratch, &a->logits);
    compare_lse(a, r, attn_judge_weights(a->p, r.h, &a->logits, a->weights), diff);
    sums->empty += a->logits.allowed == 0;
    for (size_t j = 0; j < T; j++) {
        const double got = attn_number(A, from + j);

        attn_diff_either(diff, ATTN_A, (const size_t[4]){r.b, r.h, r.i, j}, got,
                         a->weights[j]);
        sum += got;
        total.value += a->weights[j].value;
        total.error += a->weights[j].error;
    }
    if (fabs(sum - total.value) > fabs(sums->worst))
        sums->worst = sum - total.value;
    if (!diff->bad || was_bad)
        return;
    sums->bad = sum;
    sums->bad_want = total.value;
}

bool attn_check_softmax(struct attn_auditor *a, struct attn_finding *f)
{
    static const struct attn_words words = {
        "Each row is exp(S + M) over the sum of its allowed keys (and of the sink, where "
        "there is "
        "one): finite, within [0,1], summing to 1; rows without a key as empty_rows "
        "says.",
        "{0} rows recomputed from the trace's own S and M, {9} of them empty: the "
        "largest difference "
        "is {2}, {3} is allowed there; the row sum that is furthest off is off by {6}.",
        "{4} expected, {5} found, at the first weight that differs; that row sums to "
        "{7}, {8} was "
        "expected.",
        "exp turns an error of its argument into a relative one of the weight, so the "
        "tolerance "
        "grows with the largest score and with the number of keys.",
    };
    struct sums sums = {0.0, 0.0, 0.0, 0};
    struct attn_diff diff = {0};

    if (!attn_finding_shape(a, ATTN_A, f) || !attn_finding_shape(a, ATTN_LSE, f))
        return true;
    if (!attn_audit_has(a, ATTN_A) || !attn_audit_has(a, ATTN_Q) ||
        !attn_audit_has(a, ATTN_K)) {
        attn_finding_skip(
            f, a->trace->t[ATTN_A].p
                   ? "Q or K has a wrong shape."
                   : "The tiled path never holds A; H is recomputed from Q, K and V.");
        return true;
    }
    for (size_t n = 0; n < a->row_count; n++) {
        if (!attn_audit_goes_on(a))
            return false;
        diff.rows++;
        compare_weights(a, attn_audit_row(a, n), &sums, &diff);
    }
    if (a->p->empty_rows != ATTN_EMPTY_NAN)
        attn_diff_scan(a, ATTN_A, &diff);
    attn_finding_set(f, &diff, &words);
    f->fact[6] = sums.worst;
    f->fact[7] = sums.bad;
    f->fact[8] = sums.bad_want;
    f->fact[9] = (double)sums.empty;
    return true;
}

/* ---- 6: exact zeros ---------------------------------------------------------------- */

struct leak {
    size_t pairs, leaks;
    double worst; /* largest sum of |weights| at the forbidden keys of one row */
};

/* The end of the forbidden keys from j on. */
static size_t forbidden_to(const uint8_t *allow, size_t j, size_t T)
{
    uint64_t eight = 0;

    for (; j + sizeof eight <= T && eight == 0; j += sizeof eight)
        memcpy(&eight, allow + j, sizeof eight);
    if (eight != 0)
        j -= sizeof eight;
    while (j < T && allow[j] == 0)
        j++;
    return j;
}

/* Are n numbers zeros without a sign?  Each byte is then the one before it. */
static bool plain_zeros(const struct attn_tensor *t, size_t from, size_t n)
{
    const size_t bytes = n * attn_dtype_bytes(t->dtype);
    const char *p = (const char *)t->p + from * attn_dtype_bytes(t->dtype);

    return bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
}

/* Counts the forbidden pairs of a row; true when all of them hold zeros, so that nothing
   else is to be said. */
static bool clean_row(const struct attn_tensor *A, size_t from, const uint8_t *allow,
                      size_t T, size_t *pairs)
{
    *pairs = 0;
    for (size_t j = 0, end; j < T; j = end) {
        const uint8_t *hit = memchr(allow + j, 0, T - j);

        if (!hit)
            return true;
        j = (size_t)(hit - allow);
        end = forbidden_to(allow, j, T);
        if (!plain_zeros(A, from + j, end - j))
            return false;
        *pairs += end - j;
    }
    return true;
}

static void scan_row(const struct attn_auditor *a, struct attn_audit_row r,
                     struct leak *leak, struct attn_diff *diff)
{
    const struct attn_tensor *A = &a->trace->t[ATTN_A];
    const size_t from = attn_place4(A, r.b, r.h, r.i), T = a->p->d.T_kv;
    const uint8_t *allow = attn_audit_has(a, ATTN_ALLOWED)
                               ? (const uint8_t *)a->trace->t[ATTN_ALLOWED].p + from
                               : NULL;
    double mass = 0.0;
    size_t pairs;

    if (allow && clean_row(A, from, allow, T, &pairs)) {
        leak->pairs += pairs;
        return;
    }
    for (size_t j = 0; j < T; j++) {
        const bool allowed =
            allow ? allow[j] != 0 : attn_judge_allowed(a->p, a->trace, r.b, r.h, r.i, j);
        double got;

        if (allowed)
            continue;
        leak->pairs++;
        got = attn_number(A, from + j);
        if (got == 0.0)
            continue;
        leak->leaks++;
        mass += fabs(got);
        attn_diff_exact(diff, ATTN_A, (const size_t[4]){r.b, r.h, r.i, j}, got, 0.0);
    }
    if (!(mass <= leak->worst))
        leak->worst = mass;
}

/* Rows without a key may hold what empty_rows asks for: such a row is judged by check
   5. */
static bool row_is_free(const struct attn_auditor *a, struct attn_audit_row r)
{
    if (a->p->empty_rows == ATTN_EMPTY_ZERO || a->p->empty_rows == ATTN_EMPTY_ERROR)
        return false;
    for (size_t j = 0; j < a->p->d.T_kv; j++)
        if (attn_judge_allowed(a->p, a->trace, r.b, r.h, r.i, j))
            return false;
    return true;
}

bool attn_check_zeros(struct attn_auditor *a, struct attn_finding *f)
{
    static const struct attn_words words = {
        "The weight is exactly 0 at every forbidden pair, not merely small.",
        "{0} rows read, {7} forbidden pairs: each holds an exact 0.",
        "{8} of {7} forbidden pairs hold a weight, the first one {5}; up to {9} of one "
        "row's weight "
        "leaks.",
        "exp(-Infinity) is exactly 0; a large negative number in its place leaves a "
        "remainder that a "
        "large score can outweigh.",
    };
    const struct attn_dims *d = &a->p->d;
    const bool all = attn_audit_has(a, ATTN_ALLOWED);
    const size_t rows = all ? d->B * d->h * d->T_q : a->row_count;
    struct leak leak = {0, 0, 0.0};
    struct attn_diff diff = {0};

    if (!attn_audit_has(a, ATTN_A)) {
        attn_finding_skip(f, a->trace->t[ATTN_A].p ? "A has a wrong shape (check 5)."
                                                   : "The tiled path never holds A.");
        return true;
    }
    for (size_t n = 0; n < rows; n++) {
        const struct attn_audit_row r =
            all ? (struct attn_audit_row){n / d->T_q / d->h, n / d->T_q % d->h,
                                          n % d->T_q}
                : attn_audit_row(a, n);

        if (n % 256 == 0 && !attn_audit_goes_on(a))
            return false;
        diff.rows++;
        if (!row_is_free(a, r))
            scan_row(a, r, &leak, &diff);
    }
    if (leak.pairs == 0) {
        attn_finding_skip(f, "No pair is forbidden.");
        return true;
    }
    attn_finding_set(f, &diff, &words);
    f->fact[7] = (double)leak.pairs;
    f->fact[8] = (double)leak.leaks;
    f->fact[9] = leak.worst;
    return true;
}
