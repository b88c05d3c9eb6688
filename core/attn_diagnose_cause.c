/*
 * attn_diagnose_cause.c - which faults reproduce a wrong object: every row of the
 * catalogue is walked over the candidate's own earlier objects. Not here: the faults
 * (attn_fault*.c), constants that are fitted (attn_diagnose_fit.c). Start reading at
 * attn_causes_of_object.
 */
#include "core/attn_diagnose.h"

#include <math.h>
#include <string.h>

enum { CAUSES_MAX = 64 };

struct cause {
    const struct attn_fault_row *fault;
    const struct attn_fit_row *fit; /* or NULL */
    double value, excess, error;
    uint32_t objects, gradients; /* given ones that it reproduces */
    size_t later;                /* how many of them come after the target */
    bool exact, visible;
};

struct causes {
    size_t count;
    struct cause row[CAUSES_MAX];
};

/* ---- which is better ---- */

static bool clearly_less(double a, double b)
{
    return 3.0 * a + 0.01 < b;
}

static bool better(const struct cause *a, const struct cause *b)
{
    if (a->later != b->later)
        return a->later > b->later;
    if (a->exact != b->exact)
        return a->exact;
    if (clearly_less(a->excess, b->excess) || clearly_less(b->excess, a->excess))
        return a->excess < b->excess;
    if (a->visible != b->visible)
        return a->visible;
    return !a->fit && b->fit;
}

/* Kept sorted.  Of equal rows the later one is first: in the catalogue special faults
   follow the general ones whose numbers they share. */
static void keep(struct causes *causes, const struct cause *cause)
{
    size_t at = causes->count;

    if (causes->count == CAUSES_MAX)
        return;
    while (at > 0 && !better(&causes->row[at - 1], cause)) {
        causes->row[at] = causes->row[at - 1];
        at--;
    }
    causes->row[at] = *cause;
    causes->count++;
}

static void report_one(struct attn_report *report, const struct causes *causes, size_t n,
                       size_t group)
{
    const struct cause *cause = &causes->row[n];
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
static void report(struct attn_report *report, const struct causes *causes)
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

/* ---- one fault tried ---- */

static enum attn_stage first_stage(const struct attn_swap *swap)
{
    enum attn_stage s = 0;

    while (s < ATTN_STAGE_COUNT && !swap->stage[s])
        s++;
    return s;
}

static uint32_t objects_of(const struct attn_swap *swap, enum attn_stage before)
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

static uint32_t same_objects(const struct attn_walk *w)
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

static bool walk(struct attn_inquiry *q, const struct attn_swap *swap, uint32_t ignore,
                 uint32_t must, struct attn_err *err)
{
    struct attn_walk *w = &q->trial;
    enum attn_stage start = first_stage(swap);

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
        if (objects_of(&(struct attn_swap){{[0] = NULL}, NULL}, s) & ignore)
            start = s;
    share_trace(q, start);
    memset(w->seen, 0, sizeof w->seen);
    return attn_walk_run(w, err);
}

struct question { /* what is asked of each fault */
    enum attn_object target;
    uint32_t must;
    bool unused; /* take objects of its own stages as shown, but not used */
};

static size_t bits(uint32_t set)
{
    size_t count = 0;

    for (; set; set &= set - 1)
        count++;
    return count;
}

static uint32_t after(enum attn_object target)
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

static void keep_trial(const struct attn_inquiry *q, const struct question *ask,
                       const struct attn_fault_row *fault, const struct attn_fit_row *fit,
                       double value, struct causes *causes)
{
    const struct attn_seen *seen = &q->trial.seen[ask->target];
    struct cause cause = {.fault = fault,
                          .fit = fit,
                          .value = value,
                          .excess = seen->excess,
                          .error = seen->error,
                          .objects = same_objects(&q->trial)};

    cause.later = bits(cause.objects & after(ask->target));
    cause.exact = !ask->unused &&
                  strcmp(fault->object,
                         ATTN_OBJECTS[ATTN_OBJECTS[ask->target].counts_as].name) == 0;
    cause.visible = attn_fault_visible(fault, q->p);
    keep(causes, &cause);
}

static bool try_swap(struct attn_inquiry *q, const struct question *ask,
                     const struct attn_fault_row *fault, const struct attn_fit_row *fit,
                     double value, const struct attn_swap *swap, struct causes *causes,
                     struct attn_err *err)
{
    const enum attn_stage stage = attn_walk_stage(ask->target);
    const uint32_t unused = ask->unused ? objects_of(swap, stage) : 0;

    if (ask->unused && unused == 0)
        return true;
    if (!walk(q, swap, unused, ask->must | ATTN_BIT(ask->target), err))
        return false;
    if (!q->trial.stopped)
        keep_trial(q, ask, fault, fit, value, causes);
    return true;
}

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

struct line { /* a fault whose target moves with one number */
    struct attn_inquiry *q;
    const struct question *ask;
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
    struct attn_swap swap = line->fault->swap;
    const uint32_t unused =
        line->ask->unused ? objects_of(&swap, attn_walk_stage(line->ask->target)) : 0;
    const struct attn_seen *seen = &line->q->trial.seen[line->ask->target];

    swap.param = line->fit->set(swap.param, value_at(line->fit, part), room);
    if (!walk(line->q, &swap, unused, line->ask->must | ATTN_BIT(line->ask->target),
              line->err) ||
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

static bool search(struct attn_inquiry *q, const struct question *ask,
                   const struct attn_fault_row *fault, const struct attn_fit_row *fit,
                   struct causes *causes, struct attn_err *err)
{
    const struct line line = {q, ask, fault, fit, err};
    const double value = value_at(fit, best_part(&line));
    double room[ATTN_FIT_ROOM];
    struct attn_swap swap = fault->swap;

    if (err->code != ATTN_OK)
        return false;
    swap.param = fit->set(swap.param, value, room);
    return try_swap(q, ask, fault, fit, value, &swap, causes, err);
}

/* Constants are tried one after the other; the first that reproduces the target is kept.
 */
static bool try_fitted(struct attn_inquiry *q, const struct question *ask,
                       const struct attn_fault_row *fault, const struct attn_fit_row *fit,
                       struct causes *causes, struct attn_err *err)
{
    const size_t before = causes->count;
    double value, room[ATTN_FIT_ROOM];

    /* One number can always be fitted by one constant: that shows nothing. */
    if (q->base->seen[ask->target].beyond < 2)
        return true;

    for (size_t n = 0; fit->propose(&q->fit, n, &value); n++) {
        struct attn_swap swap = fault->swap;

        swap.param = fit->set(fault->swap.param, value, room);
        if (!try_swap(q, ask, fault, fit, value, &swap, causes, err))
            return false;
        if (causes->count > before)
            return true;
    }
    return fit->low == fit->high || !affordable(q->p) ||
           search(q, ask, fault, fit, causes, err);
}

static void keep_resemblance(struct attn_inquiry *q, const struct question *ask,
                             const struct attn_fault_row *fault,
                             const struct attn_fit_row *fit, struct causes *causes)
{
    struct cause cause = {.fault = fault, .fit = fit, .exact = true, .visible = true};

    if (ask->unused || q->base->seen[ask->target].beyond < 2 ||
        !fit->resembles(&q->fit, &cause.value))
        return;
    cause.objects = same_objects(q->base) | ATTN_BIT(ask->target);
    cause.later = bits(cause.objects & after(ask->target));
    keep(causes, &cause);
}

static bool stopped(const struct attn_inquiry *q, struct attn_err *err)
{
    const struct attn_exec *exec = q->base->exec;

    if (!exec || !exec->stop || !exec->stop(exec->ctx))
        return false;
    attn_fail(err, ATTN_E_DEADLINE, NULL, NULL, 0, 0);
    return true;
}

static bool try_one(struct attn_inquiry *q, const struct question *ask,
                    const struct attn_fault_row *fault, bool fitted,
                    struct causes *causes, struct attn_err *err)
{
    const struct attn_fit_row *fit = attn_fit_find(fault);
    const size_t before = causes->count;

    if (fitted)
        return !fit || fit->resembles || try_fitted(q, ask, fault, fit, causes, err);
    if (fit && !fit->resembles)
        return true;
    if (fit)
        keep_resemblance(q, ask, fault, fit, causes);
    return causes->count > before ||
           try_swap(q, ask, fault, NULL, 0.0, &fault->swap, causes, err);
}

static bool try_all(struct attn_inquiry *q, const struct question *ask, bool fitted,
                    struct causes *causes, struct attn_err *err)
{
    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);

        if (stopped(q, err))
            return false;
        if (attn_fault_back(fault) ||
            first_stage(&fault->swap) > attn_walk_stage(ask->target))
            continue;
        if (!try_one(q, ask, fault, fitted, causes, err))
            return false;
    }
    return true;
}

/* Keeps the right target, of which the base's trace holds the candidate's. */
static bool expect(struct attn_inquiry *q, enum attn_object target, struct attn_err *err)
{
    static const struct attn_swap NONE = {{NULL}, NULL};
    struct attn_tensor *expected = &q->fit.expected;
    size_t bytes;

    q->fit.base = q->base;
    q->fit.target = target;
    if (!walk(q, &NONE, ATTN_BIT(target), 0, err))
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

/* First plain rows, then fitted ones, then objects that were shown but not used. */
bool attn_causes_of_object(struct attn_inquiry *q, enum attn_object target,
                           uint32_t *explained, struct attn_err *err)
{
    struct question ask = {.target = target, .must = right_before(q->base, target)};
    struct causes causes = {0};

    const size_t mark = attn_arena_mark(q->arena);

    *explained = 0;
    if (!expect(q, target, err))
        return false;
    for (int round = 0; round < 4 && causes.count == 0; round++) {
        ask.unused = round >= 2;
        if (!try_all(q, &ask, round % 2 == 1, &causes, err))
            return false;
    }
    attn_arena_release(q->arena, mark);
    if (causes.count == 0)
        return true;
    report(q->report, &causes);
    *explained = causes.row[0].objects;
    return true;
}

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
                     struct causes *causes, struct attn_err *err)
{
    const uint32_t before = (UINT32_C(1) << target) - 1;
    struct cause cause = {.fault = fault};

    trial->must = (same_gradients(q->back) & before) | UINT32_C(1) << target;
    if (!attn_back_run(trial, err))
        return false;
    if (trial->stopped)
        return true;
    cause.gradients = same_gradients(trial);
    cause.later = bits(cause.gradients & ~before);
    cause.excess = trial->seen[target].excess;
    cause.error = trial->seen[target].error;
    cause.exact = strcmp(fault->object, ATTN_GRADIENTS[target].name) == 0;
    cause.visible = attn_fault_visible(fault, q->p);
    keep(causes, &cause);
    return true;
}

/* A fault of the layer that no given object shows, seen only by the gradients. */
static bool try_forward(struct attn_inquiry *q, struct attn_back *trial,
                        enum attn_gradient target, struct causes *causes,
                        struct attn_err *err)
{
    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);

        if (stopped(q, err))
            return false;
        if (attn_fault_back(fault))
            continue;
        if (!walk(q, &fault->swap, 0, same_objects(q->base), err))
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
    struct causes causes = {0};
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
        report(q->report, &causes);
    return true;
}

/* ---- what this input hides ---- */

static bool starts(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* A fault of an option that was not asked for is not hidden: it is out of the question.
 */
static bool in_question(const struct attn_problem *p, const char *name)
{
    static const struct {
        const char *begins, *rule;
    } RULES[] = {
        {"causal", "causal"},
        {"decode_sees", "causal"},
        {"chunk_mask", "causal"},
        {"padding", "padding"},
        {"packed_leak", "documents"},
        {"packed_boundary", "documents"},
        {"packed_not", "documents"},
        {"window", "window"},
        {"packed_positions", "documents"},
    };

    for (size_t n = 0; n < ATTN_COUNT(RULES); n++)
        if (starts(name, RULES[n].begins))
            return attn_mask_of(p, RULES[n].rule) != NULL;
    if (starts(name, "rope") || starts(name, "decode_position") ||
        starts(name, "decode_query") || starts(name, "chunk_position"))
        return p->rope.on;
    if (starts(name, "alibi"))
        return p->alibi != NULL;
    if (starts(name, "softcap"))
        return p->softcap > 0.0;
    if (starts(name, "sink"))
        return p->in[ATTN_IN_SINK].p != NULL;
    if (starts(name, "cache"))
        return p->d.T_past > 0;
    if (starts(name, "cross"))
        return p->form.source == ATTN_CROSS;
    if (starts(name, "mask") || starts(name, "fp16_mask") || starts(name, "bool_mask"))
        return p->mask_count > 0 || p->additive.p;
    return true;
}

/* Is something given at or after the object that a fault would spoil? */
static bool would_be_seen(const struct attn_inquiry *q,
                          const struct attn_fault_row *fault)
{
    if (attn_fault_back(fault)) {
        const int g = attn_gradient_find(fault->object);

        for (int n = g; q->back && g >= 0 && n < ATTN_GRADIENT_COUNT; n++)
            if (q->back->seen[n].given)
                return true;
        return false;
    }

    const enum attn_stage stage = first_stage(&fault->swap);

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (q->base->seen[o].given && attn_walk_stage((enum attn_object)o) >= stage)
            return true;
    return false;
}

void attn_causes_hidden(const struct attn_inquiry *q)
{
    struct attn_report *report = q->report;

    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);

        if (report->hidden == ATTN_COUNT(report->hidden_fault) ||
            !in_question(q->p, fault->name) || attn_fault_visible(fault, q->p) ||
            !would_be_seen(q, fault))
            continue;
        report->hidden_fault[report->hidden].fault = fault;
        report->hidden_fault[report->hidden++].needs = fault->visible_when;
    }
}
