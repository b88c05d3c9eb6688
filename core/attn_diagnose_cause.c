/*
 * attn_diagnose_cause.c - which faults reproduce a wrong object, best first: every row of
 * the catalogue is tried. Not here: one trial (attn_diagnose_trial.c), constants
 * (attn_diagnose_search.c), gradients (attn_diagnose_cause_back.c). Start reading at
 * attn_causes_of_object, at the end.
 */
#include "core/attn_diagnose_cause.h"

#include <math.h>
#include <string.h>

/* ---- which is better ---- */

static bool clearly_less(double a, double b)
{
    return 3.0 * a + 0.01 < b;
}

static bool better(const struct attn_cause *a, const struct attn_cause *b)
{
    if (a->later != b->later)
        return a->later > b->later;
    if (a->exact != b->exact)
        return a->exact;
    if (clearly_less(a->excess, b->excess) || clearly_less(b->excess, a->excess))
        return a->excess < b->excess;
    if (a->visible != b->visible)
        return a->visible;
    if (a->other_way != b->other_way)
        return !a->other_way;
    if (!a->fit != !b->fit)
        return !a->fit;
    return attn_fault_met(a->fault) > attn_fault_met(b->fault);
}

/* Kept sorted.  Of equal rows the later one is first: in the catalogue special faults
   follow the general ones whose numbers they share. */
void attn_cause_keep(struct attn_causes *causes, const struct attn_cause *cause)
{
    size_t at = causes->count;

    if (causes->count == ATTN_CAUSES_MAX)
        return;
    while (at > 0 && !better(&causes->row[at - 1], cause)) {
        causes->row[at] = causes->row[at - 1];
        at--;
    }
    causes->row[at] = *cause;
    causes->count++;
}

static void report_one(struct attn_report *report, const struct attn_causes *causes,
                       size_t n, size_t group)
{
    const struct attn_cause *cause = &causes->row[n];
    struct attn_diagnosis *d = &report->diagnosis[report->diagnoses++];

    *d = (struct attn_diagnosis){.fault = cause->fault, .residual = cause->error};
    if (cause->fit) {
        d->has_param = true;
        d->param_name = cause->fit->param;
        d->param = cause->value;
    }
    for (size_t i = 0; i < group; i++)
        if (causes->row[i].fault != cause->fault && d->same < ATTN_SAME_MAX)
            d->same_as[d->same++] = causes->row[i].fault;
}

/* Reports the rows that reproduce as much as the best one. */
void attn_cause_report(struct attn_report *report, const struct attn_causes *causes)
{
    size_t group = 0;

    while (group < causes->count && causes->row[group].later == causes->row[0].later &&
           causes->row[group].exact == causes->row[0].exact)
        group++;

    size_t all = group;

    while (all < causes->count && causes->row[all].later == causes->row[0].later)
        all++;
    for (size_t n = 0; n < all && report->diagnoses < ATTN_DIAGNOSES_MAX; n++)
        report_one(report, causes, n, all);
}

static bool try_swap(struct attn_inquiry *q, const struct attn_question *ask,
                     const struct attn_fault_row *fault, const struct attn_swap *swap,
                     bool other_way, struct attn_causes *causes, struct attn_err *err)
{
    const struct attn_tried tried = {
        .fault = fault, .swap = swap, .other_way = other_way};

    return attn_trial_swap(q, ask, &tried, causes, err);
}

static bool try_other_ways(struct attn_inquiry *q, const struct attn_question *ask,
                           const struct attn_fault_row *fault, struct attn_causes *causes,
                           struct attn_err *err)
{
    const size_t before = causes->count;
    const struct attn_swap *way;

    for (size_t n = 0; causes->count == before && (way = attn_fault_way(fault, n)); n++)
        if (!try_swap(q, ask, fault, way, true, causes, err))
            return false;
    return true;
}

static bool try_one(struct attn_inquiry *q, const struct attn_question *ask,
                    const struct attn_fault_row *fault, bool fitted,
                    struct attn_causes *causes, struct attn_err *err)
{
    const struct attn_fit_row *fit = attn_fit_find(fault);
    const size_t before = causes->count;

    if (fitted)
        return !fit || fit->resembles ||
               attn_trial_fitted(q, ask, fault, fit, causes, err);
    if (fit && !fit->resembles && !fit->plain)
        return true;
    if (fit && fit->resembles)
        attn_trial_resemblance(q, ask, fault, fit, causes);
    if (causes->count > before)
        return true;
    return try_swap(q, ask, fault, &fault->swap, false, causes, err) &&
           (causes->count > before || try_other_ways(q, ask, fault, causes, err));
}

/* Multiply-adds that trying every fault from the inputs on may take; beyond it only those
   of the target's own step are tried. */
static const double TRIALS_MAX = 2e9, TRIALS_CHEAP = 1e8;

static double work_of_trials(const struct attn_problem *p)
{
    const double rows = (double)p->d.B * (double)p->d.h * (double)p->d.T_q;

    return rows * (double)p->d.T_kv * (double)(p->d.d_k + p->d.d_v) *
           (double)attn_fault_count();
}

/* Can the fault change the target of this problem? */
static bool can_reach(const struct attn_inquiry *q, const struct attn_fault_row *fault,
                      enum attn_object target)
{
    const enum attn_stage stage = attn_walk_stage(target);

    if (attn_trial_first_stage(&fault->swap) > stage)
        return false;
    if (work_of_trials(q->p) > TRIALS_MAX && !fault->swap.stage[stage])
        return false;
    /* Some faults change a little more than what they are known by. */
    return work_of_trials(q->p) <= TRIALS_CHEAP || attn_fit_find(fault) ||
           attn_fault_visible(fault, q->p);
}

static bool try_all(struct attn_inquiry *q, const struct attn_question *ask, bool fitted,
                    struct attn_causes *causes, struct attn_err *err)
{
    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);

        if (attn_trial_stopped(q, err))
            return false;
        if (attn_fault_back(fault) || !can_reach(q, fault, ask->target))
            continue;
        if (!try_one(q, ask, fault, fitted, causes, err))
            return false;
    }
    return true;
}

/* Objects before the target that the right layer reproduces: a fault must not spoil them.
 */
static uint32_t right_before(const struct attn_walk *base, enum attn_object target)
{
    uint32_t set = 0;

    for (size_t n = 0; n < ATTN_WALK_STEPS && attn_walk_object(n) != target; n++)
        if (base->seen[attn_walk_object(n)].given && base->seen[attn_walk_object(n)].same)
            set |= ATTN_BIT(attn_walk_object(n));
    return set;
}

/* Keeps the right target, of which the base's trace holds the candidate's. */
static bool expect(struct attn_inquiry *q, enum attn_object target, struct attn_err *err)
{
    static const struct attn_swap NONE = {{NULL}, NULL};
    struct attn_tensor *expected = &q->fit.expected;
    size_t bytes;

    q->fit.base = q->base;
    q->fit.target = target;
    if (!attn_trial_walk(q, &NONE, ATTN_BIT(target), 0, err))
        return false;
    *expected = q->trial.t.t[target];
    bytes = attn_tensor_count(expected) * attn_dtype_bytes(expected->dtype);
    if (!expected->p)
        return true;
    expected->p = attn_arena_take(q->arena, bytes);
    if (!expected->p)
        return attn_fail(err, ATTN_E_MEMORY, "expected", NULL, q->arena->size, bytes);
    memcpy(expected->p, q->trial.t.t[target].p, bytes);
    return true;
}

/* First plain rows, then objects that were shown but not used, then the same with fitted
   constants. */
bool attn_causes_of_object(struct attn_inquiry *q, enum attn_object target,
                           uint32_t *explained, struct attn_err *err)
{
    struct attn_question ask = {.target = target, .must = right_before(q->base, target)};
    struct attn_causes causes = {0};

    const size_t mark = attn_arena_mark(q->arena);

    *explained = 0;
    if (!expect(q, target, err))
        return false;
    for (int round = 0; round < 4 && causes.count == 0; round++) {
        ask.unused = round % 2 == 1;
        if (!try_all(q, &ask, round >= 2, &causes, err))
            return false;
    }
    attn_arena_release(q->arena, mark);
    if (causes.count == 0)
        return true;
    attn_cause_report(q->report, &causes);
    *explained = causes.row[0].objects;
    return true;
}
