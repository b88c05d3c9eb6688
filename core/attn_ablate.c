/*
 * attn_ablate.c - runs the layer with a set of changes and compares it with the baseline.
 * Not here: the tables (attn_edit.c), making a change (attn_edit_apply.c), what must not
 * move (attn_claim.c).
 * Start reading at attn_ablate.
 */
#include "core/attn_edit.h"

#include <assert.h>
#include <math.h>

size_t attn_ablate_bytes(const struct attn_problem *p, const struct attn_plan *plan,
                         const struct attn_edit *edit, size_t edits)
{
    size_t bytes = plan->trace_bytes;

    for (size_t n = 0; n < edits; n++)
        bytes += attn_edit_target_of(&edit[n])->bytes(p, &edit[n]) + 2 * ATTN_ALIGN;
    return bytes;
}

/* A pair that is NaN, or the same infinity, in both runs has not moved. */
static double gap(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b)))
        return 0.0;
    return isfinite(a) && isfinite(b) ? fabs(a - b) : (double)INFINITY;
}

static double largest_gap(const struct attn_tensor *a, const struct attn_tensor *b)
{
    const size_t count = attn_tensor_count(a);
    double most = 0.0;

    if (a->p == b->p)
        return 0.0;
    for (size_t n = 0; n < count; n++)
        most = fmax(most, gap(attn_tensor_get(a, n), attn_tensor_get(b, n)));
    return most;
}

static void compare(const struct attn_trace *baseline, struct attn_ablation *out)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        const struct attn_tensor *a = &baseline->t[o], *b = &out->trace.t[o];

        if (o == ATTN_X || o == ATTN_X_KV || a->p == NULL || b->p == NULL)
            continue;
        out->max_abs_delta[o] = largest_gap(a, b);
        if (out->max_abs_delta[o] > 0.0)
            out->changed |= ATTN_BIT(o);
        else
            out->unchanged |= ATTN_BIT(o);
    }
}

/* What is swapped in works on A, which the tiled path never holds. */
static bool check_path(const struct attn_plan *plan, const struct attn_edited *layer,
                       struct attn_err *err)
{
    return layer->softmax_count == 0 || plan->path == ATTN_PATH_DENSE ||
           attn_fail(err, ATTN_E_CONTRADICTION, "A", NULL, 0, 0);
}

static bool make_changes(struct attn_edited *layer, const struct attn_plan *plan,
                         const struct attn_edit *edit, size_t edits, struct attn_err *err)
{
    for (size_t n = 0; n < edits; n++)
        if (!attn_edit_check(layer->baseline, &edit[n], err) ||
            !attn_edit_target_of(&edit[n])->apply(layer, &edit[n], err))
            return false;
    /* Without its causal rule a layer has the shift of a layer that never had one. */
    return check_path(plan, layer, err) &&
           (!layer->masks_changed || attn_prepare(&layer->p, err));
}

static bool run(struct attn_edited *layer, const struct attn_plan *plan,
                const struct attn_exec *exec, struct attn_trace *trace,
                struct attn_err *err)
{
    bool swapped = false;

    layer->swap.param = layer;
    for (int s = 0; s < ATTN_STAGE_COUNT; s++)
        swapped = swapped || layer->swap.stage[s] != NULL;
    if (!attn_run(&layer->p, plan, layer->arena, exec, swapped ? &layer->swap : NULL,
                  trace, err))
        return false;
    if (!layer->p.form.has_output)
        attn_edit_mixed(layer, trace);
    return true;
}

/*
 * Makes the edits together, in their order, runs the changed layer by the same plan and
 * compares every object that both hold, number by number (0 and -0 are one number, NaN
 * equals NaN).
 *
 * baseline  in   the trace of the unchanged layer, run by `plan`
 * edit      in   `edits` of them, each passing attn_edit_check
 * out       out  the changed trace, in the arena after the call; a difference to or from
 * a number that is not finite counts as Infinity
 *
 * Errors: those of attn_edit_check and attn_run; CONTRADICTION when a weight is to be
 * changed on the tiled path.  After one nothing stays taken.
 */
bool attn_ablate(const struct attn_problem *p, const struct attn_plan *plan,
                 const struct attn_trace *baseline, const struct attn_edit *edit,
                 size_t edits, struct attn_arena *arena, const struct attn_exec *exec,
                 struct attn_ablation *out, struct attn_err *err)
{
    struct attn_edited layer = {.p = *p, .baseline = p, .arena = arena};
    const size_t start = attn_arena_mark(arena);

    assert(edits >= 1);
    assert(edits <= ATTN_EDITS_MAX);
    *out = (struct attn_ablation){0};
    if (!make_changes(&layer, plan, edit, edits, err) ||
        !run(&layer, plan, exec, &out->trace, err)) {
        attn_arena_release(arena, start);
        return false;
    }
    compare(baseline, out);
    attn_claims(p, baseline, edit, edits, out);
    return true;
}
