/*
 * attn_diagnose_compare.c - precisions, tolerances, and two tensors compared.
 * Not here: how rounding spreads from object to object (attn_diagnose_noise.c).
 * Start reading at PRECISIONS, then attn_compare.
 */
#include "core/attn_diagnose.h"

#include <assert.h>
#include <float.h>
#include <math.h>

const char *const ATTN_PRECISION_NAMES[] = {
    [ATTN_FLOAT64] = "float64",
    [ATTN_FLOAT32] = "float32",
    [ATTN_FLOAT16] = "float16",
    [ATTN_BFLOAT16] = "bfloat16",
};
_Static_assert(ATTN_COUNT(ATTN_PRECISION_NAMES) == ATTN_PRECISION_COUNT, "one name each");

/* unit: half a unit in the last place of 1.  rtol is that of several roundings; atol
   leaves room for weights that become subnormal or 0. */
static const struct precision_row {
    double unit, rtol, atol, highest;
} PRECISIONS[] = {
    [ATTN_FLOAT64] = {0x1p-53, 1e-8, 1e-10, DBL_MAX},
    [ATTN_FLOAT32] = {0x1p-24, 1e-5, 1e-6, FLT_MAX},
    [ATTN_FLOAT16] = {0x1p-11, 4e-3, 1e-4, 65504.0},
    [ATTN_BFLOAT16] = {0x1p-8, 3e-2, 1e-3, 0x1.fep127},
};
_Static_assert(ATTN_COUNT(PRECISIONS) == ATTN_PRECISION_COUNT, "one row each");

void attn_tolerance(enum attn_precision precision, double *rtol, double *atol)
{
    assert(precision < ATTN_PRECISION_COUNT);
    *rtol = PRECISIONS[precision].rtol;
    *atol = PRECISIONS[precision].atol;
}

double attn_precision_unit(enum attn_precision precision)
{
    assert(precision < ATTN_PRECISION_COUNT);
    return PRECISIONS[precision].unit;
}

struct attn_margin attn_margin_of(const struct attn_candidate *c)
{
    return (struct attn_margin){.rtol = c->rtol,
                                .atol = c->atol,
                                .highest = PRECISIONS[c->precision].highest,
                                .times = 1.0};
}

static double tolerance_at(const struct attn_margin *m, size_t n, double expected)
{
    const double noise = m->noise ? m->noise[n] : m->flat;

    return m->atol + m->rtol * fabs(expected) + m->times * (noise >= 0.0 ? noise : 0.0);
}

/* NaN is right only where NaN is expected, an infinity where it is expected or where the
   number is too large for the precision. */
static double distance(const struct attn_margin *m, size_t n, double e, double x)
{
    if (isnan(e) || isnan(x))
        return isnan(e) && isnan(x) ? 0.0 : INFINITY;
    if (isinf(x) && copysign(1.0, x) == copysign(1.0, e) && fabs(e) >= m->highest)
        return 0.0;
    if (!isfinite(e) || !isfinite(x))
        return e == x ? 0.0 : INFINITY;
    return fabs(x - e) / tolerance_at(m, n, e);
}

static double relative_error(double e, double x)
{
    if (e == x || (isnan(e) && isnan(x)))
        return 0.0;
    if (!isfinite(e) || !isfinite(x))
        return (double)NAN;
    return fabs(x - e) / fmax(1.0, fabs(e));
}

void attn_compare(const struct attn_tensor *expected, const struct attn_tensor *observed,
                  const struct attn_margin *margin, const uint8_t *skip,
                  struct attn_seen *seen)
{
    const size_t count = attn_tensor_count(observed);

    assert(count == attn_tensor_count(expected));
    *seen = (struct attn_seen){.given = true, .same = true};
    for (size_t n = 0; n < count; n++) {
        const double e = attn_number(expected, n), x = attn_number(observed, n);

        if (isfinite(e))
            seen->largest = fmax(seen->largest, fabs(e));
        if (skip && skip[n])
            continue;

        const double far = distance(margin, n, e, x), error = relative_error(e, x);

        if (!(error <= seen->error) && !isnan(seen->error))
            seen->error = error;
        seen->excess = fmax(seen->excess, far);
        seen->beyond += far > 1.0;
        if (far > 1.0 && seen->same) {
            seen->same = false;
            seen->first = n;
            seen->expected = e;
            seen->observed = x;
        }
    }
}
