/*
 * attn_fault_axis.c - faults of A: the softmax over another axis than the keys.
 * Not here: wrong logits over the right axis (attn_fault_softmax.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_softmax.h"

#include <math.h>

enum axis { OVER_ITEMS, OVER_HEADS, OVER_QUERIES };

struct across {
    enum axis axis;
    bool sink;            /* the pair's sink is in its denominator */
    enum attn_empty none; /* what a line without an allowed pair becomes */
};

static size_t axis_size(const struct attn_dims *d, enum axis axis)
{
    return axis == OVER_ITEMS ? d->B : axis == OVER_HEADS ? d->h : d->T_q;
}

static struct attn_cell step(struct attn_cell x, enum axis axis, size_t n)
{
    *(axis == OVER_ITEMS ? &x.b : axis == OVER_HEADS ? &x.h : &x.i) = n;
    return x;
}

/* The weight of a pair in a line of which none is allowed. */
static double weight_of_none(const struct across *fault, const struct attn_dims *d)
{
    return fault->none == ATTN_EMPTY_NAN       ? (double)NAN
           : fault->none == ATTN_EMPTY_UNIFORM ? 1.0 / (double)axis_size(d, fault->axis)
                                               : 0.0;
}

static double weight(const struct attn_run_ctx *run, struct attn_cell x)
{
    const struct across *fault = run->swap->param;
    const size_t size = axis_size(&run->p->d, fault->axis);
    double top = -INFINITY, sum = 0.0;

    for (size_t n = 0; n < size; n++)
        top = fmax(top, attn_fault_masked(run, step(x, fault->axis, n)));
    if (top == -INFINITY)
        return weight_of_none(fault, &run->p->d);
    for (size_t n = 0; n < size; n++)
        sum += exp(attn_fault_masked(run, step(x, fault->axis, n)) - top);
    if (fault->sink)
        sum += exp(attn_fault_sink(run->p, x.h) - top);
    return exp(attn_fault_masked(run, x) - top) / sum;
}

static bool wrong_axis(const struct attn_run_ctx *run, struct attn_piece piece,
                       struct attn_err *err)
{
    const struct attn_dims *d = &run->p->d;
    struct attn_tensor *A = &run->t->t[ATTN_A];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SOFTMAX, err))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_q, d->T_kv); x.j++)
        attn_put4(A, x.b, x.h, x.i, x.j, weight(run, x));
    return true;
}

/* A pair that is alone in its row and alone along the other axis has weight 1 either
   way. */
static bool axis_shows(const struct attn_problem *p, const void *param)
{
    const enum axis axis = ((const struct across *)param)->axis;
    const struct attn_dims *d = &p->d;

    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_q, d->T_kv); x.j++) {
        size_t others = 0;

        if (!attn_allowed(p, x.b, x.h, x.i, x.j))
            continue;
        for (size_t n = 0; n < axis_size(d, axis); n++) {
            const struct attn_cell y = step(x, axis, n);

            others += attn_allowed(p, y.b, y.h, y.i, y.j);
        }
        if (others > 1 || attn_row_allowed(p, x.b, x.h, x.i) > 1 || p->in[ATTN_IN_SINK].p)
            return true;
    }
    return p->empty_rows != ATTN_EMPTY_ZERO && attn_any_row_empty(p);
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct across QUERIES = {.axis = OVER_QUERIES};
static const struct across ITEMS = {.axis = OVER_ITEMS}, HEADS = {.axis = OVER_HEADS};
/* With the sink; with a mask of -Infinity; with one of a large negative number. */
static const struct across QUERIES_SINK = {.axis = OVER_QUERIES, .sink = true};
static const struct across QUERIES_NAN = {.axis = OVER_QUERIES, .none = ATTN_EMPTY_NAN};
static const struct across QUERIES_LOW = {.axis = OVER_QUERIES,
                                          .none = ATTN_EMPTY_UNIFORM};
static const struct across ITEMS_SINK = {.axis = OVER_ITEMS, .sink = true};
static const struct across ITEMS_NAN = {.axis = OVER_ITEMS, .none = ATTN_EMPTY_NAN};
static const struct across ITEMS_LOW = {.axis = OVER_ITEMS, .none = ATTN_EMPTY_UNIFORM};
static const struct across HEADS_SINK = {.axis = OVER_HEADS, .sink = true};
static const struct across HEADS_NAN = {.axis = OVER_HEADS, .none = ATTN_EMPTY_NAN};
static const struct across HEADS_LOW = {.axis = OVER_HEADS, .none = ATTN_EMPTY_UNIFORM};

#define CAUGHT "A", "softmax_rows"
#define ACROSS(axis)                                 \
    {                                                \
        {[ATTN_STAGE_SOFTMAX] = wrong_axis}, &(axis) \
    }

static const struct attn_fault_row ROWS[] = {
    {"softmax_over_queries", CAUGHT,
     "The softmax went down the query axis: columns sum to 1.",
     "Normalise over keys, the last axis of S.",
     "A row or a column with two allowed pairs.", axis_shows, ACROSS(QUERIES)},
    {"softmax_over_batch", CAUGHT, "The softmax went over the batch axis.",
     "Normalise over keys, the last axis of S.",
     "A row with two allowed keys, or a pair allowed in two items.", axis_shows,
     ACROSS(ITEMS)},
    {"softmax_over_heads", CAUGHT, "The softmax went over the head axis.",
     "Normalise over keys, the last axis of S.",
     "A row with two allowed keys, or a pair allowed in two heads.", axis_shows,
     ACROSS(HEADS)},
};
const struct attn_fault_theme ATTN_FAULTS_AXIS = {ROWS, ATTN_COUNT(ROWS)};

static const struct attn_fault_way WAYS[] = {
    {"softmax_over_queries", ACROSS(QUERIES_SINK)},
    {"softmax_over_queries", ACROSS(QUERIES_NAN)},
    {"softmax_over_queries", ACROSS(QUERIES_LOW)},
    {"softmax_over_batch", ACROSS(ITEMS_SINK)},
    {"softmax_over_batch", ACROSS(ITEMS_NAN)},
    {"softmax_over_batch", ACROSS(ITEMS_LOW)},
    {"softmax_over_heads", ACROSS(HEADS_SINK)},
    {"softmax_over_heads", ACROSS(HEADS_NAN)},
    {"softmax_over_heads", ACROSS(HEADS_LOW)},
};
const struct attn_fault_ways ATTN_WAYS_AXIS = {WAYS, ATTN_COUNT(WAYS)};
