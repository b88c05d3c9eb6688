/*
 * api_answer_ablations.c - runs each ablation against the baseline, writes it.
 * Not here: what a change does (core/attn_ablate.c).
 * Start reading at api_put_ablations.
 */
#include <math.h>

#include "api/api_answer.h"

/* One change, as it was asked. */
static bool put_edit(struct api_buffer *b, const struct attn_edit *edit)
{
    const struct attn_edit_target_row *target = edit->target;
    const struct attn_edit_change_row *change = edit->change;
    bool ok = api_put_key(b, "target") && api_puts(b, "\"") && api_puts(b, target->name);

    if (edit->rule)
        ok = ok && api_puts(b, ".") && api_puts(b, edit->rule);
    ok = ok && api_puts(b, "\"") && api_put_text_member(b, "change", change->name);
    if (target->needs_index)
        ok = ok && api_put_u64_member(b, "index", edit->index);
    if (target->needs_query_key)
        ok = ok && api_put_u64_member(b, "query", edit->query) &&
             api_put_u64_member(b, "key", edit->key);
    if (change->needs_by)
        ok = ok && api_put_double_member(b, "by", edit->by);
    if (change->needs_seed)
        ok = ok && api_put_u64_member(b, "seed", edit->seed);
    if (change->needs_std)
        ok = ok && api_put_double_member(b, "std", edit->std);
    return ok;
}

static bool put_edits(struct api_buffer *b, const struct api_ablation *ablation)
{
    bool ok = true;

    if (ablation->edits == 1)
        return put_edit(b, &ablation->edit[0]);
    ok = api_put_key(b, "changes") && api_puts(b, "[");
    for (size_t n = 0; n < ablation->edits && ok; n++)
        ok = api_put_comma(b) && api_puts(b, "{") && put_edit(b, &ablation->edit[n]) &&
             api_puts(b, "}");
    return ok && api_puts(b, "]");
}

static bool put_names(struct api_buffer *b, const char *name, uint32_t objects)
{
    bool ok = api_put_key(b, name) && api_puts(b, "[");

    for (int o = 0; o < ATTN_OBJECT_COUNT && ok; o++)
        if (objects & ATTN_BIT(o))
            ok = api_put_comma(b) && api_put_string(b, ATTN_OBJECTS[o].name);
    return ok && api_puts(b, "]");
}

static bool put_deltas(struct api_buffer *b, const struct attn_ablation *a,
                       enum attn_dtype dtype)
{
    bool ok = api_put_key(b, "max_abs_delta") && api_puts(b, "{");

    for (int o = 0; o < ATTN_OBJECT_COUNT && ok; o++)
        if ((a->changed | a->unchanged) & ATTN_BIT(o))
            ok = api_put_number_member(b, ATTN_OBJECTS[o].name, dtype,
                                       a->max_abs_delta[o]);
    return ok && api_puts(b, "}");
}

static bool put_claims(struct api_buffer *b, const struct attn_ablation *a)
{
    bool ok = api_put_key(b, "claims") && api_puts(b, "[");

    for (size_t n = 0; n < a->claim_count && ok; n++)
        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "object", ATTN_OBJECTS[a->claim[n].object].name) &&
             api_put_text_member(b, "says", a->claim[n].says) &&
             api_put_bool_member(b, "holds", a->claim[n].holds) && api_puts(b, "}");
    return ok && api_puts(b, "]");
}

/* What did not move differs by 0, also where both are -Infinity or NaN. */
static double difference(double after, double before)
{
    if (after == before || (isnan(after) && isnan(before)))
        return 0.0;
    return after - before;
}

/* after becomes after - before; of booleans, whether they differ. */
static void subtract(struct attn_tensor *after, const struct attn_tensor *before)
{
    const size_t count = attn_tensor_count(after);

    for (size_t n = 0; n < count; n++) {
        const double d =
            difference(attn_tensor_get(after, n), attn_tensor_get(before, n));

        if (after->dtype == ATTN_F64)
            ((double *)after->p)[n] = d;
        else if (after->dtype == ATTN_F32)
            ((float *)after->p)[n] = (float)d;
        else
            ((uint8_t *)after->p)[n] = d != 0.0;
    }
}

/* The objects of `return` that a run computes, as answered for the changed layer or as
   difference.  Names may share a tensor (present_K is K): it is subtracted once. */
static bool put_ablation_tensors(struct api_work *w, size_t n, struct attn_ablation *a,
                                 bool delta)
{
    const uint32_t objects = w->r.want & (a->changed | a->unchanged);
    char prefix[32];

    snprintf(prefix, sizeof prefix, "ablations.%zu.", n);
    for (int o = 0; o < ATTN_OBJECT_COUNT && delta; o++) {
        bool shared = false;

        for (int before = 0; before < o; before++)
            shared = shared || ((objects & ATTN_BIT(before)) &&
                                a->trace.t[before].p == a->trace.t[o].p);
        if ((objects & ATTN_BIT(o)) && !shared)
            subtract(&a->trace.t[o], &w->trace.t[o]);
    }
    return api_answer_tensors(w, prefix, objects, &a->trace);
}

static bool run_one(struct api_work *w, size_t n, struct api_err *err)
{
    const struct api_ablation *ablation = &w->r.ablation[n];
    struct attn_ablation result = {0};
    struct attn_err core = {0};
    struct api_buffer *b = w->out;
    bool ok;

    if (!attn_ablate(&w->r.p, &w->plan, &w->trace, ablation->edit, ablation->edits,
                     &w->ctx->arena, &w->exec, &result, &core))
        return api_fail_core(err, &core);
    ok = api_put_comma(b) && api_puts(b, "{") && put_edits(b, ablation) &&
         put_names(b, "changed", result.changed) &&
         put_names(b, "unchanged", result.unchanged) &&
         put_deltas(b, &result, w->r.p.dtype) && put_claims(b, &result) &&
         api_put_text_member(b, "return", ablation->delta ? "delta" : "tensors") &&
         put_ablation_tensors(w, n, &result, ablation->delta) && api_puts(b, "}");
    return ok || api_fail_buffer(err);
}

bool api_put_ablations(struct api_work *w, struct api_err *err)
{
    const double start = api_now_ms();

    if (w->r.ablations == 0)
        return true;
    if (!api_put_key(w->out, "ablations") || !api_puts(w->out, "["))
        return api_fail_buffer(err);
    for (size_t n = 0; n < w->r.ablations; n++) {
        const size_t mark = attn_arena_mark(&w->ctx->arena);

        if (!run_one(w, n, err))
            return false;
        attn_arena_release(&w->ctx->arena, mark);
    }
    w->ms.ablations = api_now_ms() - start;
    return api_puts(w->out, "]") || api_fail_buffer(err);
}
