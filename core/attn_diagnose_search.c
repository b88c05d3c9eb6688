/*
 * attn_diagnose_search.c - constants of faults: proposed from the candidate's numbers,
 * else searched for. Not here: the proposals (attn_diagnose_fit.c). Start reading at
 * attn_trial_fitted.
 */
#include "core/attn_diagnose_cause.h"

#include <math.h>
#include <string.h>

/* ---- a constant searched for ---- */

enum { GRID = 33, HALVINGS = 80 };

/* A search runs the layer some hundred times: on layers of this many multiply-adds it
 * may. */
static bool affordable(const struct attn_problem *p)
{
    const double pairs =
        (double)p->d.B * (double)p->d.h * (double)p->d.T_q * (double)p->d.T_kv;

    return pairs * (double)(p->d.d_k + p->d.d_v) <= 1e6;
}

static struct attn_swap swap_of(const struct attn_fault_row *fault,
                                const struct attn_fit_row *fit)
{
    return *attn_fault_swap(fit->as ? attn_fault_find(fit->as) : fault);
}

struct line { /* a fault whose target moves with one number */
    struct attn_inquiry *q;
    const struct attn_question *ask;
    const struct attn_fault_row *fault;
    const struct attn_fit_row *fit;
    struct attn_err *err;
};

/* Values lie evenly in their logarithm when all are positive. */
static double value_at(const struct attn_fit_row *fit, double part)
{
    if (fit->low > 0.0)
        return fit->low * pow(fit->high / fit->low, part);
    return fit->low + part * (fit->high - fit->low);
}

/* How far the target is off with this value; Infinity when it is not reached. */
static double far_at(const struct line *line, double part)
{
    double room[ATTN_FIT_ROOM];
    struct attn_swap swap = swap_of(line->fault, line->fit);
    const uint32_t unused =
        line->ask->unused ? attn_trial_objects(&swap, attn_walk_stage(line->ask->target))
                          : 0;
    const struct attn_seen *seen = &line->q->trial.seen[line->ask->target];

    swap.param = line->fit->set(swap.param, value_at(line->fit, part), room);
    if (!attn_trial_walk(line->q, &swap, unused,
                         line->ask->must | ATTN_BIT(line->ask->target), line->err) ||
        !seen->given)
        return INFINITY;
    return seen->excess;
}

/* The best point of a grid, then a golden section between its neighbours. */
static double best_part(const struct line *line)
{
    static const double GOLDEN = 0.6180339887498949;
    double best = 0.0, least = INFINITY, a, b;

    for (int n = 0; n < GRID; n++) {
        const double part = (double)n / (GRID - 1), far = far_at(line, part);

        if (far < least) {
            least = far;
            best = part;
        }
    }
    a = best - 1.0 / (GRID - 1);
    b = best + 1.0 / (GRID - 1);

    double u = b - GOLDEN * (b - a), v = a + GOLDEN * (b - a);
    double far_u = far_at(line, u), far_v = far_at(line, v);

    for (int n = 0; n < HALVINGS && line->err->code == ATTN_OK; n++) {
        if (far_u < far_v) {
            b = v;
            v = u;
            far_v = far_u;
            u = b - GOLDEN * (b - a);
            far_u = far_at(line, u);
        } else {
            a = u;
            u = v;
            far_u = far_v;
            v = a + GOLDEN * (b - a);
            far_v = far_at(line, v);
        }
    }
    return (a + b) / 2.0;
}

static bool search(struct attn_inquiry *q, const struct attn_question *ask,
                   const struct attn_fault_row *fault, const struct attn_fit_row *fit,
                   struct attn_causes *causes, struct attn_err *err)
{
    const struct line line = {q, ask, fault, fit, err};
    const double value = value_at(fit, best_part(&line));
    double room[ATTN_FIT_ROOM];
    struct attn_swap swap = swap_of(fault, fit);

    if (err->code != ATTN_OK)
        return false;
    swap.param = fit->set(swap.param, value, room);
    return attn_trial_swap(q, ask, &(struct attn_tried){fault, &swap, fit, value, false},
                           causes, err);
}

/* Constants are tried one after the other; the first that reproduces the target is kept.
 */
bool attn_trial_fitted(struct attn_inquiry *q, const struct attn_question *ask,
                       const struct attn_fault_row *fault, const struct attn_fit_row *fit,
                       struct attn_causes *causes, struct attn_err *err)
{
    const size_t before = causes->count;
    double value, room[ATTN_FIT_ROOM];

    /* One number can always be fitted by one constant: that shows nothing. */
    if (fit->low != fit->high && q->base->seen[ask->target].beyond < 2)
        return true;

    for (size_t n = 0; fit->propose(&q->fit, n, &value); n++) {
        struct attn_swap swap = swap_of(fault, fit);

        swap.param = fit->set(swap.param, value, room);
        if (!attn_trial_swap(q, ask,
                             &(struct attn_tried){fault, &swap, fit, value, false},
                             causes, err))
            return false;
        if (causes->count > before)
            return true;
    }
    return fit->low == fit->high || !affordable(q->p) ||
           search(q, ask, fault, fit, causes, err);
}

void attn_trial_resemblance(struct attn_inquiry *q, const struct attn_question *ask,
                            const struct attn_fault_row *fault,
                            const struct attn_fit_row *fit, struct attn_causes *causes)
{
    struct attn_cause cause = {.fault = fault, .fit = fit, .exact = true};

    if (ask->unused || q->base->seen[ask->target].beyond < 2 ||
        !fit->resembles(&q->fit, &cause.value))
        return;
    cause.objects = attn_trial_same(q->base) | ATTN_BIT(ask->target);
    cause.later = attn_cause_bits(cause.objects & attn_trial_after(ask->target));
    attn_cause_keep(causes, &cause);
}
