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

static bool wrong_axis(const struct attn_run_ctx *run, struct attn_piece piece,
                       struct attn_err *err)
{
    const struct attn_dims *d = &run->p->d;
    const enum axis axis = ((const struct across *)run->swap->param)->axis;
    struct attn_tensor *A = &run->t->t[ATTN_A];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SOFTMAX, err))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_q, d->T_kv); x.j++) {
        double top = -INFINITY, sum = 0.0;

        for (size_t n = 0; n < axis_size(d, axis); n++)
            top = fmax(top, attn_fault_masked(run, step(x, axis, n)));
        for (size_t n = 0; n < axis_size(d, axis); n++)
            sum += exp(attn_fault_masked(run, step(x, axis, n)) - top);
        attn_put4(A, x.b, x.h, x.i, x.j,
                  attn_fault_allowed(run, x) ? exp(attn_fault_masked(run, x) - top) / sum
                                             : 0.0);
    }
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

static const struct across QUERIES = {OVER_QUERIES}, ITEMS = {OVER_ITEMS},
                           HEADS = {OVER_HEADS};

#define CAUGHT "A", "softmax_rows"

static const struct attn_fault_row ROWS[] = {
    {"softmax_over_queries",
     CAUGHT,
     "The softmax went down the query axis: columns sum to 1.",
     "Normalise over keys, the last axis of S.",
     "A row or a column with two allowed pairs.",
     axis_shows,
     {{[ATTN_STAGE_SOFTMAX] = wrong_axis}, &QUERIES}},
    {"softmax_over_batch",
     CAUGHT,
     "The softmax went over the batch axis.",
     "Normalise over keys, the last axis of S.",
     "A row with two allowed keys, or a pair allowed in two items.",
     axis_shows,
     {{[ATTN_STAGE_SOFTMAX] = wrong_axis}, &ITEMS}},
    {"softmax_over_heads",
     CAUGHT,
     "The softmax went over the head axis.",
     "Normalise over keys, the last axis of S.",
     "A row with two allowed keys, or a pair allowed in two heads.",
     axis_shows,
     {{[ATTN_STAGE_SOFTMAX] = wrong_axis}, &HEADS}},
};
const struct attn_fault_theme ATTN_FAULTS_AXIS = {ROWS, ATTN_COUNT(ROWS)};
