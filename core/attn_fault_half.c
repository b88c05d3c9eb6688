/*
 * attn_fault_half.c - faults of A that come from the range of a number format: sums of
 * masks in half precision, exp without the row's maximum taken off.
 * Not here: faults that no precision would cure (attn_fault_softmax.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_softmax.h"

#include <float.h>
#include <math.h>

static const double HALF_LOWEST = -65504.0; /* the mask value of half precision */

/* The nearest half precision number (11 bits), Infinity from 65520 on. */
static double half(double x)
{
    int exponent;
    double unit;

    if (x == 0.0 || !isfinite(x))
        return x;
    if (fabs(x) >= 65520.0)
        return copysign(INFINITY, x);
    frexp(x, &exponent);
    unit = ldexp(1.0, (exponent < -13 ? -13 : exponent) - 11);
    return rint(x / unit) * unit;
}

/* How many rules forbid the pair: each is a plane of its own. */
static size_t planes(const struct attn_problem *p, struct attn_cell x)
{
    struct attn_problem only_additive = *p;
    size_t count = 0;

    for (size_t n = 0; n < p->mask_count; n++)
        count += !p->mask[n].row->allows(p, &p->mask[n], x.b, x.h, x.i, x.j);
    only_additive.mask_count = 0;
    return count + !attn_allowed(&only_additive, x.b, x.h, x.i, x.j);
}

static double sum_of_planes(const struct attn_run_ctx *run, struct attn_cell x)
{
    double m = half(attn_fault_bias(run, x));

    for (size_t n = planes(run->p, x); n > 0; n--)
        m = half(m + HALF_LOWEST);
    return half(half(attn_fault_score(run, x)) + m);
}

static double one_plane(const struct attn_run_ctx *run, struct attn_cell x)
{
    const double m =
        half(attn_fault_bias(run, x) + (attn_fault_allowed(run, x) ? 0.0 : HALF_LOWEST));

    return half(half(attn_fault_score(run, x)) + m);
}

static double largest_number(const struct attn_problem *p)
{
    return p->dtype == ATTN_F32 ? (double)FLT_MAX : DBL_MAX;
}

/* ---- what can show it -------------------------------------------------------------- */

enum { WIDTH_MAX = 256, PAIRS_MAX = 4096 }; /* of the scores that a predicate works out */

/* S at one pair from the inputs. */
static double score_at(const struct attn_problem *p, struct attn_cell x,
                       const struct attn_judged *q)
{
    struct attn_judged k[WIDTH_MAX];
    double a[WIDTH_MAX], b[WIDTH_MAX];
    struct attn_tensor Q = {.dtype = ATTN_F64, .p = a}, K = {.dtype = ATTN_F64, .p = b};

    attn_judge_k(p, x.b, attn_kv_head(&p->d, x.h), x.j, true, k);
    for (size_t c = 0; c < p->d.d_k; c++) {
        a[c] = q[c].value;
        b[c] = k[c].value;
    }
    return attn_judge_score(p, (struct attn_judged){attn_pair_raw(p, &Q, 0, &K, 0), 0.0})
        .value;
}

/* Is there an allowed pair whose exp leaves the range of the dtype? */
static bool overflows(const struct attn_problem *p, const void *param)
{
    const double limit = log(largest_number(p)) + 1e-3;
    struct attn_judged q[WIDTH_MAX];
    size_t pairs = 0;

    (void)param;
    if (p->d.d_k > WIDTH_MAX)
        return false;
    for (struct attn_cell x = {0};
         pairs < PAIRS_MAX && attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv);
         x.j++, pairs++) {
        if (x.j == 0)
            attn_judge_q(p, x.b, x.h, x.i, true, q);
        if (attn_allowed(p, x.b, x.h, x.i, x.j) &&
            score_at(p, x, q) + attn_bias(p, x.b, x.h, x.i, x.j) > limit)
            return true;
    }
    return false;
}

/* Scores of an empty row all so low that -65504 plus the score is -Infinity in half
   precision. */
static bool row_overflows(const struct attn_problem *p, struct attn_cell x)
{
    struct attn_judged q[WIDTH_MAX];

    attn_judge_q(p, x.b, x.h, x.i, true, q);
    for (x.j = 0; x.j < p->d.T_kv; x.j++)
        if (score_at(p, x, q) + attn_bias(p, x.b, x.h, x.i, x.j) > -17.0)
            return false;
    return true;
}

static bool empty_row_overflows(const struct attn_problem *p, const void *param)
{
    (void)param;
    for (struct attn_cell x = {0};
         p->d.d_k <= WIDTH_MAX && attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++)
        if (attn_row_empty(p, x.b, x.h, x.i) && row_overflows(p, x))
            return true;
    return false;
}

/* An empty row in which one key is forbidden by one plane and another by two. */
static bool planes_differ(const struct attn_problem *p, const void *param)
{
    (void)param;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++) {
        bool once = false, more = false;

        if (!attn_row_empty(p, x.b, x.h, x.i))
            continue;
        for (size_t j = 0; j < p->d.T_kv; j++) {
            const size_t n = planes(p, (struct attn_cell){x.b, x.h, x.i, j});

            once = once || n == 1;
            more = more || n > 1;
        }
        if (once && more)
            return true;
    }
    return false;
}

static bool always(const struct attn_problem *p)
{
    (void)p;
    return true;
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct softmax OVERFLOW = {.fits = always,
                                        .logit = attn_fault_masked,
                                        .no_maximum = largest_number,
                                        .leave_empty = true};
static const struct softmax SUM_OF_PLANES = {.fits = always, .logit = sum_of_planes};
static const struct softmax ONE_PLANE = {.fits = always, .logit = one_plane};

#define CAUGHT "A", "softmax_rows"
#define ROWS_OF(fault)                                           \
    {                                                            \
        {[ATTN_STAGE_SOFTMAX] = attn_fault_wrong_rows}, &(fault) \
    }

static const struct attn_fault_row ROWS[] = {
    {"softmax_overflow", CAUGHT,
     "exp was taken without the row's maximum being subtracted: it overflows to "
     "Infinity, and "
     "Infinity/Infinity is NaN.",
     "Subtract the largest score of each row before exp; the weights stay the same.",
     "A score above 709 (float64) or 88 (float32).", overflows, ROWS_OF(OVERFLOW)},
    {"fp16_mask_sum_leaks", CAUGHT,
     "Planes of -65504 were added in half precision: where two forbid a key the sum is "
     "-Infinity, "
     "where one does it is not, so a row without a key reads forbidden keys.",
     "Combine the rules first, then mask once.",
     "A row without a key whose keys are forbidden by different numbers of rules.",
     planes_differ, ROWS_OF(SUM_OF_PLANES)},
    {"fp16_mask_overflow_nan", CAUGHT,
     "-65504 plus a score below -16 overflows half precision to -Infinity: NaN in a row "
     "without a "
     "key.",
     "Mask in float32, or find rows without a key and give them a stated value.",
     "A row without a key whose scores are all below -16.", empty_row_overflows,
     ROWS_OF(ONE_PLANE)},
};
const struct attn_fault_theme ATTN_FAULTS_HALF = {ROWS, ATTN_COUNT(ROWS)};
