/*
 * attn_diagnose_cause_back.c - which faults reproduce a wrong gradient.
 * Not here: wrong objects (attn_diagnose_cause.c), the faults (attn_fault_grad.c).
 * Start reading at attn_causes_of_gradient.
 */
#include "core/attn_diagnose_cause.h"

#include <math.h>
#include <string.h>

/* ---- gradients ---- */

static uint32_t same_gradients(const struct attn_back *back)
{
    uint32_t set = 0;

    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (back->seen[g].given && back->seen[g].same)
            set |= UINT32_C(1) << g;
    return set;
}

static bool try_back(struct attn_inquiry *q, struct attn_back *trial,
                     enum attn_gradient target, const struct attn_fault_row *fault,
                     struct attn_causes *causes, struct attn_err *err)
{
    const uint32_t before = (UINT32_C(1) << target) - 1;
    struct attn_cause cause = {.fault = fault};

    trial->must = (same_gradients(q->back) & before) | UINT32_C(1) << target;
    if (!attn_back_run(trial, err))
        return false;
    if (trial->stopped)
        return true;
    cause.gradients = same_gradients(trial);
    cause.later = attn_cause_bits(cause.gradients & ~before);
    cause.excess = trial->seen[target].excess;
    cause.error = trial->seen[target].error;
    cause.exact = strcmp(fault->object, ATTN_GRADIENTS[target].name) == 0;
    cause.visible = attn_fault_visible(fault, q->p);
    attn_cause_keep(causes, &cause);
    return true;
}

/* A fault of the layer that no given object shows, seen only by the gradients. */
static bool try_forward(struct attn_inquiry *q, struct attn_back *trial,
                        enum attn_gradient target, struct attn_causes *causes,
                        struct attn_err *err)
{
    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);

        if (attn_trial_stopped(q, err))
            return false;
        if (attn_fault_back(fault))
            continue;
        if (!attn_trial_walk(q, &fault->swap, 0, attn_trial_same(q->base), err))
            return false;
        trial->t = &q->trial.t;
        if (!q->trial.stopped && !try_back(q, trial, target, fault, causes, err))
            return false;
    }
    return true;
}

bool attn_causes_of_gradient(struct attn_inquiry *q, enum attn_gradient target,
                             struct attn_err *err)
{
    struct attn_back trial = *q->back;
    struct attn_causes causes = {0};
    const size_t mark = attn_arena_mark(q->arena);

    if (!attn_back_take(&trial, NULL, err))
        return false;
    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);

        trial.fault = attn_fault_back(fault);
        if (trial.fault && !try_back(q, &trial, target, fault, &causes, err))
            return false;
    }
    trial.fault = NULL;
    if (causes.count == 0 && !try_forward(q, &trial, target, &causes, err))
        return false;
    attn_arena_release(q->arena, mark);
    if (causes.count > 0)
        attn_cause_report(q->report, &causes);
    return true;
}
