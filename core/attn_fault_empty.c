/*
 * attn_fault_empty.c - faults of A in rows without a key, and what else becomes of such
 * rows in other people's layers.
 * Not here: masks wrongly applied (attn_fault_softmax.c), half precision
 * (attn_fault_half.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_softmax.h"

#include <math.h>

/* ---- one row ----------------------------------------------------------------------- */

typedef void empty_fn(const struct attn_run_ctx *run, struct attn_cell x);

static void all(const struct attn_run_ctx *run, struct attn_cell x, double a)
{
    for (x.j = 0; x.j < run->p->d.T_kv; x.j++)
        attn_put4(&run->t->t[ATTN_A], x.b, x.h, x.i, x.j, a);
}

static void zero(const struct attn_run_ctx *run, struct attn_cell x)
{
    all(run, x, 0.0);
}

static void no_number(const struct attn_run_ctx *run, struct attn_cell x)
{
    all(run, x, (double)NAN);
}

static void uniform(const struct attn_run_ctx *run, struct attn_cell x)
{
    all(run, x, 1.0 / (double)run->p->d.T_kv);
}

/* A number below all scores was added to them: it cancels but for what its size rounds
   away. */
static double shifted(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_fault_score(run, x) + attn_fault_bias(run, x) - 1e9;
}

static double shifted_float(const struct attn_run_ctx *run, struct attn_cell x)
{
    return (double)((float)(attn_fault_score(run, x) + attn_fault_bias(run, x)) - 1e4f);
}

static double unshifted(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_fault_score(run, x) + attn_fault_bias(run, x);
}

/* A sink, which nothing is added to, takes all from scores that far below it. */
static void weigh(const struct attn_run_ctx *run, struct attn_cell x,
                  double (*logit)(const struct attn_run_ctx *run, struct attn_cell x))
{
    double top = -INFINITY, sum = 0.0;

    if (run->p->in[ATTN_IN_SINK].p) {
        all(run, x, 0.0);
        return;
    }
    for (x.j = 0; x.j < run->p->d.T_kv; x.j++)
        top = fmax(top, logit(run, x));
    for (x.j = 0; x.j < run->p->d.T_kv; x.j++)
        sum += exp(logit(run, x) - top);
    for (x.j = 0; x.j < run->p->d.T_kv; x.j++)
        attn_put4(&run->t->t[ATTN_A], x.b, x.h, x.i, x.j, exp(logit(run, x) - top) / sum);
}

static void by_score(const struct attn_run_ctx *run, struct attn_cell x)
{
    weigh(run, x, unshifted);
}

static void by_shifted_score(const struct attn_run_ctx *run, struct attn_cell x)
{
    weigh(run, x, shifted);
}

static void by_float_score(const struct attn_run_ctx *run, struct attn_cell x)
{
    weigh(run, x, shifted_float);
}

/* ---- the stages -------------------------------------------------------------------- */

static bool in_empty_rows(const struct attn_run_ctx *run, empty_fn *fill,
                          struct attn_err *err)
{
    const struct attn_dims *d = &run->p->d;

    if (!attn_stage_all(run, ATTN_STAGE_SOFTMAX, err))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_q, 1); x.j++)
        if (run->t->empty[(x.b * d->h + x.h) * d->T_q + x.i])
            fill(run, x);
    return true;
}

#define STAGE(name, fill)                                                     \
    static bool name(const struct attn_run_ctx *run, struct attn_piece piece, \
                     struct attn_err *err)                                    \
    {                                                                         \
        (void)piece;                                                          \
        return in_empty_rows(run, fill, err);                                 \
    }
STAGE(zeros, zero)
STAGE(nan_rows, no_number)
STAGE(averages, uniform)
STAGE(scores, by_score)
STAGE(shifted_scores, by_shifted_score)
STAGE(float_scores, by_float_score)

attn_stage_fn *const ATTN_EMPTY_ROWS[ATTN_EMPTY_ROWS_COUNT] = {
    averages, nan_rows, zeros, scores, shifted_scores, float_scores,
};

/* ---- what can show it -------------------------------------------------------------- */

static bool empty_row_not_nan(const struct attn_problem *p, const void *param)
{
    (void)param;
    return p->empty_rows != ATTN_EMPTY_NAN && attn_any_row_empty(p);
}

/* With a single key all its weight is an average, too; with a sink the row is zeros. */
static bool empty_row_not_by_score(const struct attn_problem *p, const void *param)
{
    (void)param;
    return attn_any_row_empty(p) &&
           !(p->empty_rows == ATTN_EMPTY_ZERO && p->in[ATTN_IN_SINK].p) &&
           !(p->empty_rows == ATTN_EMPTY_UNIFORM && p->d.T_kv == 1 &&
             !p->in[ATTN_IN_SINK].p);
}

/* One head of a token is empty, another is not. */
static bool empty_beside_full(const struct attn_problem *p, const void *param)
{
    if (!empty_row_not_nan(p, param))
        return false;
    for (size_t b = 0; b < p->d.B; b++)
        for (size_t i = 0; i < p->d.T_q; i++) {
            size_t empty = 0;

            for (size_t h = 0; h < p->d.h; h++)
                empty += attn_row_empty(p, b, h, i);
            if (empty > 0 && empty < p->d.h)
                return true;
        }
    return false;
}

/* ---- the rows ---------------------------------------------------------------------- */

#define CAUGHT "A", "softmax_rows"
#define SWAP(wrong)                            \
    {                                          \
        {[ATTN_STAGE_SOFTMAX] = (wrong)}, NULL \
    }

static const struct attn_fault_row ROWS[] = {
    {"masked_row_nan", CAUGHT, "A row of nothing but -Infinity gave NaN: 0/0.",
     "Give a row without a key a stated value, such as 0.",
     "A row without an allowed key, and empty_rows other than nan.", empty_row_not_nan,
     SWAP(nan_rows)},
    {"masked_row_nan_spreads", CAUGHT,
     "The NaN of one head without a key spread to the token's whole row of Y through "
     "W_O.",
     "Give a row without a key a stated value before heads are joined.",
     "A token with a head that has no key and another that has some.", empty_beside_full,
     SWAP(nan_rows)},
    {"masked_row_by_score", CAUGHT,
     "A large negative number was added instead of -Infinity: in a row without a key it "
     "cancels, and forbidden keys are weighed by their scores.",
     "Find rows without a key and give them a stated value.",
     "A row without an allowed key; with a sink, empty_rows other than zero.",
     empty_row_not_by_score, SWAP(scores)},
};
const struct attn_fault_theme ATTN_FAULTS_EMPTY = {ROWS, ATTN_COUNT(ROWS)};

static const struct attn_fault_way WAYS[] = {
    {"masked_row_by_score", SWAP(shifted_scores)},
    {"masked_row_by_score", SWAP(float_scores)},
};
const struct attn_fault_ways ATTN_WAYS_EMPTY = {WAYS, ATTN_COUNT(WAYS)};
