/*
 * attn_diagnose.c - judges what somebody else's layer computed: which object is the first
 * wrong one, and what made it so. Not here: the walk (attn_diagnose_walk.c), other right
 * forms (attn_diagnose_forms.c), causes (attn_diagnose_cause.c). Start reading at
 * attn_diagnose.
 */
#include "core/attn_diagnose.h"

#include <math.h>
#include <string.h>

const char *const ATTN_STATE_NAMES[] = {
    [ATTN_STATE_NOT_GIVEN] = "not_given",
    [ATTN_STATE_CORRECT] = "correct",
    [ATTN_STATE_WRONG_HERE] = "wrong_here",
    [ATTN_STATE_INHERITED] = "inherited",
};
_Static_assert(ATTN_COUNT(ATTN_STATE_NAMES) == ATTN_STATE_COUNT, "one name each");

const char *const ATTN_VERDICT_NAMES[] = {
    [ATTN_CORRECT] = "correct",
    [ATTN_INCORRECT] = "incorrect",
    [ATTN_INCONCLUSIVE] = "inconclusive",
};
_Static_assert(ATTN_COUNT(ATTN_VERDICT_NAMES) == ATTN_VERDICT_COUNT, "one name each");

struct judging {
    const struct attn_problem *asked; /* as the caller has it */
    struct attn_problem p;            /* empty rows of other people's masks give 0 */
    struct attn_candidate own;        /* normalised */
    const struct attn_candidate *given;
    const struct attn_grad_ask *ask;
    const struct attn_exec *exec;
    struct attn_arena *arena;
    struct attn_plan plan;
    struct attn_trace right;
    struct attn_walk base;
    struct attn_back back;
    struct attn_forms forms;
    struct attn_report *report;
};

static uint32_t wanted(const struct attn_problem *p)
{
    uint32_t want = 0;

    for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++)
        if (o != ATTN_CONTRIBUTIONS && attn_object_exists(p, (enum attn_object)o))
            want |= ATTN_BIT(o);
    return want;
}

static bool make_plan(const struct attn_problem *p, struct attn_plan *plan,
                      struct attn_err *err)
{
    return attn_plan(p, wanted(p), ATTN_PATH_DENSE, SIZE_MAX / 4, plan, err);
}

/* ---- the walk, until no mismatch is another right form ---- */

static bool walk_base(struct judging *j, struct attn_err *err)
{
    struct attn_walk *base = &j->base;

    *base =
        (struct attn_walk){.p = &j->p, .plan = &j->plan, .exec = j->exec, .c = &j->own};
    if (!attn_forms_normalise(&j->p, &j->right, j->arena, &j->own, &base->skip_scores,
                              &j->forms, err) ||
        !attn_trace_take(&j->p, &j->plan, j->arena, &base->t, err) ||
        !attn_noise_take(base, j->arena, err))
        return false;
    do {
        base->ignore = j->forms.objects;
        if (!attn_walk_run(base, err))
            return false;
    } while (attn_forms_accept(base, &j->right, &j->forms));
    return true;
}

/* ---- objects ---- */

/* The place of element n of a tensor, index by index. */
static void place(const struct attn_tensor *t, size_t n, size_t at[ATTN_RANK_MAX])
{
    for (unsigned a = t->rank; a-- > 0;) {
        at[a] = n % t->dim[a];
        n /= t->dim[a];
    }
}

static void fill_difference(struct attn_object_verdict *v, const struct attn_tensor *t,
                            const struct attn_seen *seen)
{
    v->differs = true;
    place(t, seen->first, v->at);
    v->expected = seen->expected;
    v->observed = seen->observed;
}

/* Right where it is right after all, wrong where its own step is, else inherited. */
static enum attn_state state_of(const struct attn_seen *local,
                                const struct attn_seen *global, bool after_wrong)
{
    if (global->same || (local->same && !after_wrong))
        return ATTN_STATE_CORRECT;
    return local->same ? ATTN_STATE_INHERITED : ATTN_STATE_WRONG_HERE;
}

static void compare_with_right(const struct judging *j, enum attn_object o,
                               struct attn_seen *global)
{
    struct attn_margin margin = attn_margin_of(&j->own);

    /* contributions are not held: their own step says what is right */
    if (o == ATTN_CONTRIBUTIONS) {
        *global = j->base.seen[o];
        return;
    }
    margin.noise = j->base.noise[o];
    attn_compare(&j->right.t[o], &j->own.object[o], &margin,
                 o == ATTN_S ? j->base.skip_scores : NULL, global);
}

static bool judge_object(const struct judging *j, enum attn_object o, bool after_wrong)
{
    struct attn_object_verdict *v = &j->report->object[o];
    const struct attn_seen *local = &j->base.seen[o];
    struct attn_seen global;

    if (j->given->bad_object & ATTN_BIT(o)) {
        *v = (struct attn_object_verdict){.state = ATTN_STATE_WRONG_HERE,
                                          .wrong_shape = true};
        return true;
    }
    if (!j->own.object[o].p || !attn_object_exists(&j->p, o))
        return false;
    compare_with_right(j, o, &global);
    v->global_error = global.error;
    v->form = j->forms.of_object[o];
    v->state = ATTN_STATE_CORRECT;
    v->local_error = global.error;
    if (j->forms.objects & ATTN_BIT(o))
        return false;
    v->local_error = local->error;
    v->state = state_of(local, &global, after_wrong);
    if (v->state == ATTN_STATE_WRONG_HERE)
        fill_difference(v, &j->own.object[o], local);
    else if (v->state == ATTN_STATE_INHERITED)
        fill_difference(v, &j->own.object[o], &global);
    return v->state == ATTN_STATE_WRONG_HERE;
}

static const char *counted_name(enum attn_object o)
{
    return ATTN_OBJECTS[ATTN_OBJECTS[o].counts_as].name;
}

static void judge_objects(const struct judging *j)
{
    for (size_t n = 0; n < ATTN_WALK_STEPS; n++) {
        const enum attn_object o = attn_walk_object(n);

        if (judge_object(j, o, j->report->first_incorrect != NULL) &&
            !j->report->first_incorrect)
            j->report->first_incorrect = counted_name(o);
    }
}

/* ---- gradients ---- */

/* Rounding of forward objects that were not given reaches the gradients through the
 * weights. */
static double blur_of(const struct judging *j)
{
    const struct attn_tensor *A = &j->base.t.t[ATTN_A];
    const double unit = attn_precision_unit(j->own.precision);
    double worst = 0.0;

    for (size_t n = 0; n < attn_tensor_count(A); n++)
        if (j->base.noise[ATTN_A][n] > worst)
            worst = j->base.noise[ATTN_A][n];
    return 64.0 * unit + (attn_walk_given(&j->base, ATTN_A) ? 0.0 : worst);
}

static bool walk_back(struct judging *j, struct attn_err *err)
{
    struct attn_back *back = &j->back;

    *back = (struct attn_back){.p = &j->p,
                               .exec = j->exec,
                               .c = &j->own,
                               .ask = j->ask,
                               .t = &j->base.t,
                               .arena = j->arena,
                               .blur = blur_of(j)};
    if (!attn_back_take(back, &j->right, err) || !attn_back_run(back, err))
        return false;
    attn_forms_accept_gradients(back, &j->right, &j->forms);
    if (j->forms.gradients == 0)
        return true;
    back->ignore = j->forms.gradients;
    return attn_back_run(back, err);
}

static bool judge_gradient(const struct judging *j, enum attn_gradient g,
                           bool after_wrong)
{
    struct attn_object_verdict *v = &j->report->gradient[g];

    if (j->given->bad_gradient >> g & 1) {
        *v = (struct attn_object_verdict){.state = ATTN_STATE_WRONG_HERE,
                                          .wrong_shape = true};
        return true;
    }
    if (!j->own.gradient[g].p || !(j->back.exists >> g & 1))
        return false;
    v->state = ATTN_STATE_CORRECT;
    v->form = j->forms.of_gradient[g];
    v->global_error = j->back.global[g].error;
    if (j->forms.gradients >> g & 1)
        return false;
    v->local_error = j->back.seen[g].error;
    v->state = state_of(&j->back.seen[g], &j->back.global[g], after_wrong);
    if (v->state == ATTN_STATE_WRONG_HERE)
        fill_difference(v, &j->own.gradient[g], &j->back.seen[g]);
    else if (v->state == ATTN_STATE_INHERITED)
        fill_difference(v, &j->own.gradient[g], &j->back.global[g]);
    return v->state == ATTN_STATE_WRONG_HERE;
}

static void judge_gradients(const struct judging *j)
{
    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (judge_gradient(j, g, j->report->first_incorrect != NULL) &&
            !j->report->first_incorrect)
            j->report->first_incorrect = ATTN_GRADIENTS[g].name;
}

/* ---- causes ---- */

static bool wrong_here(const struct attn_object_verdict *v)
{
    return v->state == ATTN_STATE_WRONG_HERE && !v->wrong_shape;
}

static bool look_for_causes(struct judging *j, struct attn_err *err)
{
    struct attn_inquiry q = {.p = &j->p,
                             .base = &j->base,
                             .trial = j->base,
                             .back = j->ask ? &j->back : NULL,
                             .arena = j->arena,
                             .report = j->report};
    uint32_t explained = 0, explained_now;
    bool gradient_done = false;

    q.trial.base = &j->base;
    if (!attn_trace_take(&j->p, &j->plan, j->arena, &q.trial_trace, err))
        return false;
    for (size_t n = 0; n < ATTN_WALK_STEPS; n++) {
        const enum attn_object o = attn_walk_object(n);

        if (!wrong_here(&j->report->object[o]) || (explained & ATTN_BIT(o)))
            continue;
        if (!attn_causes_of_object(&q, o, &explained_now, err))
            return false;
        explained |= explained_now;
    }
    for (enum attn_gradient g = 0; j->ask && g < ATTN_GRADIENT_COUNT && !gradient_done;
         g++) {
        if (!wrong_here(&j->report->gradient[g]))
            continue;
        gradient_done = true;
        if (!attn_causes_of_gradient(&q, g, err))
            return false;
    }
    attn_causes_hidden(&q);
    return true;
}

/* ---- the verdict ---- */

static bool decides(const struct judging *j)
{
    static const enum attn_object objects[] = {ATTN_A, ATTN_CONTRIBUTIONS, ATTN_H_HEADS,
                                               ATTN_H, ATTN_Y};
    static const enum attn_gradient gradients[] = {ATTN_DW_Q, ATTN_DW_K, ATTN_DW_V,
                                                   ATTN_DX, ATTN_DX_KV};

    for (size_t n = 0; n < ATTN_COUNT(objects); n++)
        if (j->report->object[objects[n]].state == ATTN_STATE_CORRECT)
            return true;
    for (size_t n = 0; n < ATTN_COUNT(gradients); n++)
        if (j->report->gradient[gradients[n]].state == ATTN_STATE_CORRECT)
            return true;
    return false;
}

static void conclude(const struct judging *j)
{
    struct attn_report *report = j->report;

    for (size_t n = 0; n < attn_accepted_count() && report->forms < ATTN_HINTS_MAX; n++)
        if (j->forms.rows >> n & 1)
            report->form[report->forms++] = attn_accepted_at(n);
    if (report->first_incorrect) {
        report->verdict = ATTN_INCORRECT;
        return;
    }
    report->verdict = decides(j) ? ATTN_CORRECT : ATTN_INCONCLUSIVE;
    if (report->verdict == ATTN_INCONCLUSIVE)
        report->why_inconclusive =
            "What was given is right, but it shows neither the weights nor "
            "the result: send A, H or Y.";
}

static bool judge(struct judging *j, struct attn_err *err)
{
    if (!make_plan(&j->p, &j->plan, err) ||
        !attn_run(j->asked, &j->plan, j->arena, j->exec, NULL, &j->right, err) ||
        !walk_base(j, err))
        return false;
    judge_objects(j);
    if (j->ask) {
        if (!walk_back(j, err))
            return false;
        judge_gradients(j);
    }
    if (!look_for_causes(j, err))
        return false;
    conclude(j);
    return true;
}

bool attn_diagnose(const struct attn_problem *p, const struct attn_candidate *candidate,
                   const struct attn_grad_ask *ask, struct attn_arena *arena,
                   const struct attn_exec *exec, struct attn_report *report,
                   struct attn_err *err)
{
    const size_t mark = attn_arena_mark(arena);
    struct judging j = {.asked = p,
                        .p = *p,
                        .own = *candidate,
                        .given = candidate,
                        .ask = ask,
                        .exec = exec,
                        .arena = arena,
                        .report = report};

    *report = (struct attn_report){0};
    if (j.p.empty_rows == ATTN_EMPTY_ERROR)
        j.p.empty_rows = ATTN_EMPTY_ZERO;

    const bool ok = judge(&j, err);

    attn_arena_release(arena, mark);
    return ok;
}

/* Three traces (right, the candidate's, one trial), what rounding does, a copy of what is
   normalised, and two backward passes. */
size_t attn_diagnose_bytes(const struct attn_problem *p, const struct attn_grad_ask *ask)
{
    enum { COPIES = 5 };
    struct attn_tensor S;
    struct attn_plan plan;
    struct attn_err err = {0};

    if (!make_plan(p, &plan, &err))
        return SIZE_MAX;
    attn_object_full_shape(p, ATTN_S, &S);
    return 3 * plan.trace_bytes + attn_noise_bytes(p) +
           COPIES * (attn_tensor_count(&S) * sizeof(double) + ATTN_ALIGN) +
           (ask ? 2 * attn_back_bytes(p, ask) : 0);
}
