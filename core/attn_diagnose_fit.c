/*
 * attn_diagnose_fit.c - the constant of a fault, found from the candidate's numbers.
 * Not here: the faults themselves (attn_fault_fitted.c, attn_fault_softmax.c), constants
 * of masks (attn_diagnose_fit_mask.c). Start reading at FITS, at the end.
 */
#include "core/attn_diagnose_fit.h"
#include "core/attn_fault_softmax.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Least squares of observed = ratio * expected over finite numbers. */
static bool ratio_of(const struct attn_tensor *e, const struct attn_tensor *x,
                     double *ratio)
{
    double xy = 0.0, xx = 0.0;

    for (size_t n = 0; n < attn_tensor_count(x); n++) {
        const double a = attn_number(e, n), b = attn_number(x, n);

        if (!isfinite(a) || !isfinite(b))
            continue;
        xy += a * b;
        xx += a * a;
    }
    *ratio = xy / xx;
    return isfinite(*ratio) && *ratio != 1.0 && *ratio != 0.0;
}

static bool ratio_of_target(const struct attn_fit *f, size_t n, double *value)
{
    return n == 0 && attn_fit_observed(f)->p && f->expected.p &&
           ratio_of(&f->expected, attn_fit_observed(f), value);
}

/* ---- scores ---- */

static double uncapped(const struct attn_problem *p, double s)
{
    return p->softcap > 0.0 ? p->softcap * atanh(s / p->softcap) : s;
}

static bool ratio_of_scores(const struct attn_fit *f, double *ratio)
{
    const struct attn_problem *p = f->base->p;
    double xy = 0.0, xx = 0.0;

    for (size_t n = 0; n < attn_tensor_count(attn_fit_observed(f)); n++) {
        const double e = uncapped(p, attn_number(&f->expected, n));
        const double x = uncapped(p, attn_number(attn_fit_observed(f), n));

        if (!isfinite(e) || !isfinite(x) ||
            (f->base->skip_scores && f->base->skip_scores[n]))
            continue;
        xy += e * x;
        xx += e * e;
    }
    *ratio = xy / xx;
    return isfinite(*ratio);
}

/* log a_j - log a_k = ratio (s_j - s_k) + m_j - m_k, for the pair of a row that is
   furthest apart in S. */
static bool ratio_of_logs(const struct attn_fit *f, double *ratio)
{
    const struct attn_tensor *S = &f->base->t.t[ATTN_S], *M = &f->base->t.t[ATTN_M];
    const size_t T = f->base->p->d.T_kv;
    double widest = 0.0;

    for (size_t r = 0; r < attn_tensor_count(attn_fit_observed(f)); r += T)
        for (size_t j = 1; j < T; j++) {
            const double a = attn_number(attn_fit_observed(f), r),
                         b = attn_number(attn_fit_observed(f), r + j);
            const double gap = attn_number(S, r + j) - attn_number(S, r);

            if (!(a > 0.0) || !(b > 0.0) || !(fabs(gap) > widest) ||
                !isfinite(attn_number(M, r)) || !isfinite(attn_number(M, r + j)))
                continue;
            widest = fabs(gap);
            *ratio = (log(b) - log(a) - attn_number(M, r + j) + attn_number(M, r)) / gap;
        }
    return widest > 0.0 && f->base->p->softcap == 0.0;
}

static bool scale_ratio(const struct attn_fit *f, size_t n, double *value)
{
    if (n > 0)
        return false;
    return attn_fit_is(f, ATTN_S) ? ratio_of_scores(f, value)
                                  : attn_fit_is(f, ATTN_A) && ratio_of_logs(f, value);
}

/* c tanh(s / c) = x: c by halving, from the largest score. */
static bool cap_ratio(const struct attn_fit *f, size_t n, double *value)
{
    const double cap = f->base->p->softcap;
    double s = 0.0, x = 0.0, low = 1e-3, high = 1e6;

    if (n > 0 || !attn_fit_is(f, ATTN_S) || !(cap > 0.0))
        return false;
    for (size_t k = 0; k < attn_tensor_count(attn_fit_observed(f)); k++) {
        const double e = fabs(uncapped(f->base->p, attn_number(&f->expected, k)));

        if (isfinite(e) && e > s) {
            s = e;
            x = fabs(attn_number(attn_fit_observed(f), k));
        }
    }
    if (!(x < s))
        return false;
    for (int step = 0; step < 200; step++) {
        const double c = sqrt(low * high);

        *(c * tanh(s / c) < x ? &low : &high) = c;
    }
    *value = sqrt(low * high) / cap;
    return true;
}

/* ---- positions ---- */

static const double BASES[] = {10000.0, 500000.0, 1000000.0, 100000.0,   1000.0,
                               100.0,   150000.0, 5000000.0, 10000000.0, 50000.0};

/* The angle by which the slowest pair of a row was turned, from the numbers before RoPE.
 */
static bool angle_of(const struct attn_fit *f, size_t b, size_t i, double *angle)
{
    const struct attn_problem *p = f->base->p;
    const size_t pairs = p->d.d_k / 2, k = pairs - 1;
    const bool half = p->rope.layout == ATTN_ROPE_HALF;
    const size_t u = half ? k : 2 * k, v = half ? k + pairs : 2 * k + 1;
    const struct attn_tensor *pre = &f->base->t.t[ATTN_Q_PRE], *Q = attn_fit_observed(f);
    const double x = attn_at4(pre, b, 0, i, u), y = attn_at4(pre, b, 0, i, v);
    const double s = attn_at4(Q, b, 0, i, u), t = attn_at4(Q, b, 0, i, v);

    *angle = atan2(x * t - y * s, x * s + y * t);
    return x * x + y * y > 0.0;
}

static bool base_from_angle(const struct attn_fit *f, double *value)
{
    const struct attn_problem *p = f->base->p;
    const size_t pair = p->d.d_k / 2 - 1;
    const double k = (double)pair;

    for (size_t b = 0; b < p->d.B; b++)
        for (size_t i = 0; i < p->d.T_q; i++) {
            const double pos = attn_rope_position_q(p, b, i);
            double angle;

            if (pos == 0.0 || !angle_of(f, b, i, &angle) || angle / pos <= 0.0)
                continue;
            *value = pow(angle / pos, -(double)p->d.d_k / (2.0 * k));
            return isfinite(*value);
        }
    return false;
}

static bool rope_base(const struct attn_fit *f, size_t n, double *value)
{
    if (!f->base->p->rope.on || f->base->p->d.d_k < 4 || n > ATTN_COUNT(BASES))
        return false;
    if (n < ATTN_COUNT(BASES)) {
        *value = BASES[n];
        return true;
    }
    return attn_fit_is(f, ATTN_Q) && base_from_angle(f, value);
}

static bool query_offset(const struct attn_fit *f, size_t n, double *value)
{
    return f->base->p->rope.on && attn_fit_whole(n, value);
}

/* ---- biases, weights ---- */

static bool bias_ratio(const struct attn_fit *f, size_t n, double *value)
{
    return attn_fit_is(f, ATTN_M) && ratio_of_target(f, n, value);
}

static bool weight_ratio(const struct attn_fit *f, size_t n, double *value)
{
    return attn_fit_is(f, ATTN_A) && ratio_of_target(f, n, value);
}

static bool output_ratio(const struct attn_fit *f, size_t n, double *value)
{
    return (attn_fit_is(f, ATTN_H) || attn_fit_is(f, ATTN_H_HEADS)) &&
           ratio_of_target(f, n, value);
}

/* The number of fewest decimals that lies no further away than the observation can
   tell. */
static double fewest_decimals(double value, double room)
{
    for (double tens = 10.0; tens < 1e12; tens *= 10.0)
        if (fabs(round(value * tens) / tens - value) <= room)
            return round(value * tens) / tens;
    return value;
}

/* Each weight is 0 or the right one over 1 - p, p one number: some of each. */
static bool looks_dropped(const struct attn_fit *f, double *value)
{
    const struct attn_margin margin = attn_margin_of(f->base->c);
    double ratio = 0.0;
    size_t dropped = 0;

    if (!attn_fit_is(f, ATTN_A))
        return false;
    for (size_t n = 0; n < attn_tensor_count(attn_fit_observed(f)); n++) {
        const double e = attn_number(&f->expected, n),
                     x = attn_number(attn_fit_observed(f), n);

        if (isfinite(x) && e > margin.atol && x != 0.0)
            ratio = fmax(ratio, x / e);
    }
    if (!(ratio > 1.0 + 8.0 * margin.rtol))
        return false;
    for (size_t n = 0; n < attn_tensor_count(attn_fit_observed(f)); n++) {
        const double e = attn_number(&f->expected, n),
                     x = attn_number(attn_fit_observed(f), n);
        const double room =
            margin.atol + margin.rtol * fabs(x) +
            2.0 * ratio * (f->base->noise[ATTN_A] ? f->base->noise[ATTN_A][n] : 0.0);

        if (isnan(e) && isnan(x))
            continue;
        if (x == 0.0 && e > margin.atol)
            dropped++;
        else if (!(fabs(x - ratio * e) <= room + 1e-6 * fabs(x)))
            return false;
    }
    *value = fewest_decimals(1.0 - 1.0 / ratio, 2.0 * margin.rtol);
    return dropped > 0;
}

/* ---- the rows ---- */

static const void *set_value(const void *param, double value, double *room)
{
    struct attn_fitted other = *(const struct attn_fitted *)param;

    _Static_assert(sizeof other <= ATTN_FIT_ROOM * sizeof(double),
                   "a param fits into its room");
    other.value = value;
    memcpy(room, &other, sizeof other);
    return room;
}

/* Softmax rows with another fill: the struct of the fault's own param, and the number. */
struct filled {
    struct softmax rows;
    double value;
};

static double with_fill(const struct attn_run_ctx *run, struct attn_cell x)
{
    const struct filled *fault = run->swap->param;

    return attn_fault_score(run, x) + attn_fault_bias(run, x) +
           (attn_fault_allowed(run, x) ? 0.0 : fault->value);
}

static const void *set_fill(const void *param, double value, double *room)
{
    struct filled other = {*(const struct softmax *)param, value};

    _Static_assert(sizeof other <= ATTN_FIT_ROOM * sizeof(double),
                   "it fits into its room");
    other.rows.logit = with_fill;
    memcpy(room, &other, sizeof other);
    return room;
}

static double largest_float(const struct attn_problem *p)
{
    (void)p;
    return FLT_MAX;
}

static double largest_half(const struct attn_problem *p)
{
    (void)p;
    return 65504.0;
}

/* exp of less than this is 0 in float32, and in float16. */
static double not_below(double l, double least)
{
    return l < least ? -INFINITY : l;
}

static double logit_float(const struct attn_run_ctx *run, struct attn_cell x)
{
    return not_below(attn_fault_masked(run, x), -103.98);
}

static double logit_half(const struct attn_run_ctx *run, struct attn_cell x)
{
    return not_below(attn_fault_masked(run, x), -17.33);
}

/* exp may have been taken in less than float64: in float32 (and bfloat16), or in float16.
 */
static bool exp_bits(const struct attn_fit *f, size_t n, double *value)
{
    *value = n == 0 ? 32.0 : 16.0;
    return n < 2 && f->base->c->precision != ATTN_FLOAT64;
}

static const void *set_range(const void *param, double value, double *room)
{
    struct softmax other = *(const struct softmax *)param;

    _Static_assert(sizeof other <= ATTN_FIT_ROOM * sizeof(double),
                   "it fits into its room");
    other.no_maximum = value > 16.0 ? largest_float : largest_half;
    other.logit = value > 16.0 ? logit_float : logit_half;
    memcpy(room, &other, sizeof other);
    return room;
}

/* The width for which a cache was allocated is above what is in it. */
static bool cache_width(const struct attn_fit *f, size_t n, double *value)
{
    *value = (double)(n + 1);
    return n < 64 && f->base->p->rope.on && f->base->p->d.T_q < f->base->p->d.T_kv;
}

static const struct attn_fit_row FITS[] = {
    {"scale_other", "ratio", scale_ratio, set_value, NULL, NULL, false, 0.01, 100.0},
    {"softcap_other", "ratio", cap_ratio, set_value, NULL, NULL, false, 0.05, 50.0},
    {"rope_base_other", "base", rope_base, set_value, NULL, NULL, false, 0.0, 0.0},
    {"rope_query_offset", "offset", query_offset, set_value, NULL, NULL, false, 0.0, 0.0},
    {"decode_query_position_only", "offset", cache_width, set_value, NULL,
     "rope_query_offset", true, 0.0, 0.0},
    {"window_other_width", "left", attn_fit_window, set_value, NULL, NULL, false, 0.0,
     0.0},
    {"causal_other_offset", "offset", attn_fit_diagonal, set_value, NULL, NULL, false,
     0.0, 0.0},
    {"finite_mask_value", "value", attn_fit_fill, set_value, NULL, NULL, false, -30.0,
     0.0},
    {"mask_constant_too_small", "value", attn_fit_fill, set_fill, NULL, NULL, true, -30.0,
     0.0},
    {"softmax_overflow", "bits", exp_bits, set_range, NULL, NULL, true, 0.0, 0.0},
    {"bias_scaled", "ratio", bias_ratio, set_value, NULL, NULL, false, 0.05, 20.0},
    {"weights_scaled", "ratio", weight_ratio, set_value, NULL, NULL, false, 0.01, 100.0},
    {"output_scaled", "ratio", output_ratio, set_value, NULL, NULL, false, 0.01, 100.0},
    {"dropout_in_eval", "p", NULL, NULL, looks_dropped, NULL, false, 0.0, 0.0},
};

const struct attn_fit_row *attn_fit_find(const struct attn_fault_row *row)
{
    for (size_t n = 0; n < ATTN_COUNT(FITS); n++)
        if (strcmp(FITS[n].fault, row->name) == 0)
            return &FITS[n];
    return NULL;
}
