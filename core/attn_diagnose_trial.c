/*
 * attn_diagnose_trial.c - one fault walked over the candidate's own earlier objects.
 * Not here: which faults are tried (attn_diagnose_cause.c).
 * Start reading at attn_trial_swap.
 */
#include "core/attn_diagnose_cause.h"

#include <math.h>
#include <string.h>

/* ---- one fault tried ---- */

enum attn_stage attn_trial_first_stage(const struct attn_swap *swap)
{
    enum attn_stage s = 0;

    while (s < ATTN_STAGE_COUNT && !swap->stage[s])
        s++;
    return s;
}

uint32_t attn_trial_objects(const struct attn_swap *swap, enum attn_stage before)
{
    uint32_t set = 0;

    for (size_t n = 0; n < ATTN_WALK_STEPS; n++) {
        const enum attn_object o = attn_walk_object(n);
        const enum attn_stage stage = attn_walk_stage(o);

        if (stage < before && swap->stage[stage])
            set |= ATTN_BIT(o);
    }
    return set;
}

uint32_t attn_trial_same(const struct attn_walk *w)
{
    uint32_t set = 0;

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (w->seen[o].given && w->seen[o].same)
            set |= ATTN_BIT(o);
    return set;
}

/* The trial's trace: earlier objects are the base's, later ones its own. */
static void share_trace(struct attn_inquiry *q, enum attn_stage start)
{
    struct attn_walk *w = &q->trial;

    w->start = start;
    w->t = q->trial_trace;
    for (size_t n = 0; n < ATTN_WALK_STEPS; n++) {
        const enum attn_object o = attn_walk_object(n);

        if (attn_walk_stage(o) < start)
            w->t.t[o] = q->base->t.t[o];
    }
    if (ATTN_STAGE_SOFTMAX < start)
        w->t.empty = q->base->t.empty;
}

bool attn_trial_walk(struct attn_inquiry *q, const struct attn_swap *swap,
                     uint32_t ignore, uint32_t must, struct attn_err *err)
{
    struct attn_walk *w = &q->trial;
    enum attn_stage start = attn_trial_first_stage(swap);

    if (start == ATTN_STAGE_COUNT)
        start = ATTN_STAGE_PROJECT_Q;
    w->swap = swap;
    w->ignore = q->base->ignore | ignore;
    w->must = must & ~ignore;
    /* S_masked, once given, is put back into S: S must then be the trial's own.  Without
       RoPE what is projected and what is rotated share their memory. */
    if (start == ATTN_STAGE_MASK)
        start = ATTN_STAGE_SCORE;
    if (start == ATTN_STAGE_POSITION_Q || start == ATTN_STAGE_POSITION_K)
        start--;
    for (enum attn_stage s = 0; s < start; s++)
        if (attn_trial_objects(&(struct attn_swap){{[0] = NULL}, NULL}, s) & ignore)
            start = s;
    share_trace(q, start);
    memset(w->seen, 0, sizeof w->seen);
    return attn_walk_run(w, err);
}

size_t attn_cause_bits(uint32_t set)
{
    size_t count = 0;

    for (; set; set &= set - 1)
        count++;
    return count;
}

uint32_t attn_trial_after(enum attn_object target)
{
    uint32_t set = 0;
    bool past = false;

    for (size_t n = 0; n < ATTN_WALK_STEPS; n++) {
        if (past)
            set |= ATTN_BIT(attn_walk_object(n));
        past = past || attn_walk_object(n) == target;
    }
    return set;
}

static void keep_trial(const struct attn_inquiry *q, const struct attn_question *ask,
                       const struct attn_tried *tried, struct attn_causes *causes)
{
    const struct attn_seen *seen = &q->trial.seen[ask->target];
    struct attn_cause cause = {.fault = tried->fault,
                               .fit = tried->fit,
                               .value = tried->value,
                               .other_way = tried->other_way,
                               .excess = seen->excess,
                               .error = seen->error,
                               .objects = attn_trial_same(&q->trial)};

    cause.later = attn_cause_bits(cause.objects & attn_trial_after(ask->target));
    cause.exact = !ask->unused &&
                  strcmp(tried->fault->object,
                         ATTN_OBJECTS[ATTN_OBJECTS[ask->target].counts_as].name) == 0;
    cause.visible = attn_fault_visible(tried->fault, q->p);
    attn_cause_keep(causes, &cause);
}

/* Did the trial's mask take all keys from row r of A that has some? */
static bool emptied(const struct attn_inquiry *q, size_t r)
{
    return q->trial.t.empty[r] && !q->base->t.empty[r];
}

/* The same of row r of an object; a row of joined heads is emptied with any of them. */
static bool emptied_of(const struct attn_inquiry *q, enum attn_object o, size_t r)
{
    const size_t T = q->p->d.T_q, h = q->p->d.h;

    if (o != ATTN_H && o != ATTN_Y)
        return emptied(q, r);
    for (size_t k = 0; k < h; k++)
        if (emptied(q, (r / T * h + k) * T + r % T))
            return true;
    return false;
}

/* Could other numbers in emptied rows make the target right? */
static bool within_emptied(const struct attn_inquiry *q, enum attn_object target)
{
    const struct attn_seen *seen = &q->trial.seen[target];
    const bool joined = target == ATTN_H || target == ATTN_Y;
    const size_t rows = q->p->d.B * q->p->d.T_q * (joined ? 1 : q->p->d.h);
    const size_t width = attn_tensor_count(&q->trial.c->object[target]) / rows;
    size_t count = 0;

    for (size_t r = 0; r < rows; r++)
        count += emptied_of(q, target, r);
    return seen->beyond <= count * width && emptied_of(q, target, seen->first / width);
}

/* Is a row that the trial's mask emptied all that stopped it?  Objects before the target
   must then be as given. */
static bool only_emptied(const struct attn_inquiry *q, const struct attn_question *ask,
                         const struct attn_swap *swap)
{
    const struct attn_walk *w = &q->trial;

    if (!swap->stage[ATTN_STAGE_MASK] || swap->stage[ATTN_STAGE_SOFTMAX] ||
        attn_walk_stage(ask->target) < ATTN_STAGE_SOFTMAX)
        return false;
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if ((w->must & ATTN_BIT(o)) && attn_walk_given(w, (enum attn_object)o) &&
            attn_walk_stage((enum attn_object)o) <= ATTN_STAGE_MASK && !w->seen[o].same)
            return false;
    return w->seen[ask->target].given && !w->seen[ask->target].same &&
           within_emptied(q, ask->target);
}

/* What becomes of rows that should have had keys is part of no fault: whatever it is. */
static bool try_empty_rows(struct attn_inquiry *q, const struct attn_question *ask,
                           const struct attn_tried *tried, uint32_t unused,
                           struct attn_causes *causes, struct attn_err *err)
{
    struct attn_tried other = *tried;
    struct attn_swap swap = *tried->swap;

    other.other_way = true;
    for (size_t n = 0; n < ATTN_EMPTY_ROWS_COUNT; n++) {
        swap.stage[ATTN_STAGE_SOFTMAX] = ATTN_EMPTY_ROWS[n];
        if (!attn_trial_walk(q, &swap, unused, ask->must | ATTN_BIT(ask->target), err))
            return false;
        if (!q->trial.stopped) {
            keep_trial(q, ask, &other, causes);
            return true;
        }
    }
    return true;
}

bool attn_trial_swap(struct attn_inquiry *q, const struct attn_question *ask,
                     const struct attn_tried *tried, struct attn_causes *causes,
                     struct attn_err *err)
{
    const enum attn_stage stage = attn_walk_stage(ask->target);
    const uint32_t unused = ask->unused ? attn_trial_objects(tried->swap, stage) : 0;

    if (ask->unused && unused == 0)
        return true;
    if (!attn_trial_walk(q, tried->swap, unused, ask->must | ATTN_BIT(ask->target), err))
        return false;
    if (!q->trial.stopped)
        keep_trial(q, ask, tried, causes);
    else if (only_emptied(q, ask, tried->swap))
        return try_empty_rows(q, ask, tried, unused, causes, err);
    return true;
}

bool attn_trial_stopped(const struct attn_inquiry *q, struct attn_err *err)
{
    const struct attn_exec *exec = q->base->exec;

    if (!exec || !exec->stop || !exec->stop(exec->ctx))
        return false;
    attn_fail(err, ATTN_E_DEADLINE, NULL, NULL, 0, 0);
    return true;
}
