/*
 * attn_fault_bias.c - faults of the finite part of M: ALiBi.
 * Not here: which pairs are allowed (attn_fault_mask.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_mask.h"

#include <math.h>

static double distance(const struct attn_problem *p, size_t i, size_t j)
{
    return fabs((double)i + (double)p->shift - (double)j);
}

/* Additive bias without ALiBi. */
static double additive_only(const struct attn_problem *p, size_t b, size_t h, size_t i,
                            size_t j)
{
    struct attn_problem plain = *p;

    plain.alibi = NULL;
    return attn_bias(&plain, b, h, i, j);
}

/* One geometric series, 2^(-8 m / h), whether or not h is a power of two. */
static double one_series(const struct attn_problem *p, size_t b, size_t h, size_t i,
                         size_t j)
{
    return additive_only(p, b, h, i, j) -
           exp2(-8.0 * (double)(h + 1) / (double)p->d.h) * distance(p, i, j);
}

static double rewarded(const struct attn_problem *p, size_t b, size_t h, size_t i,
                       size_t j)
{
    return additive_only(p, b, h, i, j) + p->alibi[h] * distance(p, i, j);
}

/* ---- what each needs --------------------------------------------------------------- */

static bool alibi(const struct attn_problem *p)
{
    return p->alibi != NULL;
}

static bool alibi_in_decode(const struct attn_problem *p)
{
    return alibi(p) && p->d.T_q == 1;
}

static bool alibi_odd_heads(const struct attn_problem *p)
{
    return alibi(p) && (p->d.h & (p->d.h - 1)) != 0;
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct mask ONE_SERIES = {alibi_odd_heads, NULL, one_series};
static const struct mask REWARDED = {alibi, NULL, rewarded};
static const struct mask NO_ALIBI = {alibi_in_decode, NULL, additive_only};

#define CAUGHT "M", "mask_entries"

static const struct attn_fault_row ROWS[] = {
    {"alibi_slopes_not_pow2", CAUGHT,
     "One geometric series of slopes was used although the number of heads is no power "
     "of two.",
     "Take the slopes of the largest power of two below, then every second one of twice "
     "that.",
     "ALiBi with standard slopes and 3, 5, 6, 7, 9, … heads.",
     ATTN_FAULT_MASK(ONE_SERIES)},
    {"alibi_sign", CAUGHT, "Distance was rewarded instead of punished.",
     "Subtract slope·distance.", "ALiBi and an allowed pair at some distance.",
     ATTN_FAULT_MASK(REWARDED)},
    {"alibi_missing_in_decode", CAUGHT,
     "The bias was built for the one new query only, at distance 0: all zero.",
     "Measure distances from the query's position among all keys.",
     "ALiBi, T_q = 1 and a key at some distance.", ATTN_FAULT_MASK(NO_ALIBI)},
};
const struct attn_fault_theme ATTN_FAULTS_BIAS = {ROWS, ATTN_COUNT(ROWS)};
