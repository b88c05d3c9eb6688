/*
 * api_audit_precision.c - what a candidate's numbers say of the precision that they were
 * computed or printed in, where nobody stated it.
 * Not here: a precision's tolerance (core/attn_diagnose_compare.c).
 * Start reading at api_candidate_is_float32.
 */
#include "api/api_audit.h"

#include <math.h>

enum {
    PLAIN_BITS = 12, /* of numbers such as 0.375, which any precision holds */
    TELLING_MIN = 2  /* others: that one by chance ends where a float does is 2^-29 */
};

static bool has_few_bits(double x)
{
    int exponent;
    const double mantissa = ldexp(frexp(x, &exponent), PLAIN_BITS);

    return mantissa == rint(mantissa);
}

/* Counts numbers that tell; false when one is no float32. */
static bool count_float32(const struct attn_tensor *t, size_t *telling)
{
    const size_t count = t->p && t->dtype == ATTN_F64 ? attn_tensor_count(t) : 0;

    for (size_t n = 0; n < count; n++) {
        const double x = ((const double *)t->p)[n];

        if (!isfinite(x))
            continue;
        if ((double)(float)x != x)
            return false;
        *telling += !has_few_bits(x);
    }
    return true;
}

bool api_candidate_is_float32(const struct attn_candidate *c)
{
    size_t telling = 0;

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (!count_float32(&c->object[o], &telling))
            return false;
    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (!count_float32(&c->gradient[g], &telling))
            return false;
    return telling >= TELLING_MIN;
}

/* The largest error of a given object or gradient; what has none (NaN) is left to the
   verdict. */
static double largest_error(const struct attn_report *report)
{
    double largest = 0;

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (report->object[o].state != ATTN_STATE_NOT_GIVEN)
            largest = fmax(largest, report->object[o].global_error);
    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (report->gradient[g].state != ATTN_STATE_NOT_GIVEN)
            largest = fmax(largest, report->gradient[g].global_error);
    return largest;
}

/* By how coarse they are. */
static const enum attn_precision COARSER[] = {ATTN_FLOAT32, ATTN_FLOAT16, ATTN_BFLOAT16};

bool api_candidate_coarser(const struct api_judged *judged,
                           const struct attn_grad_ask *ask, struct attn_arena *arena,
                           const struct attn_exec *exec, enum attn_precision *precision,
                           struct attn_err *err)
{
    const double largest = largest_error(&judged->report);
    struct attn_candidate c = judged->candidate;
    struct attn_report report;

    *precision = ATTN_FLOAT64;
    for (size_t n = 0; n < API_COUNT(COARSER) && *precision == ATTN_FLOAT64; n++) {
        c.precision = COARSER[n];
        attn_tolerance(c.precision, &c.rtol, &c.atol);
        if (c.rtol <= judged->candidate.rtol || largest > c.rtol + c.atol)
            continue;
        if (!attn_diagnose(&judged->r.p, &c, ask, arena, exec, &report, err))
            return false;
        if (report.verdict == ATTN_CORRECT)
            *precision = c.precision;
    }
    return true;
}
