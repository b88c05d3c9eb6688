/*
 * api_answer_traces.c - single query rows taken apart, statistics of all scores.
 * Not here: the numbers (core/).
 * Start reading at api_put_traces.
 */
#include "api/api_answer.h"

/* "name":[v_0, …] of d_v numbers */
static bool put_vector(struct api_buffer *b, const char *name, enum attn_dtype dtype,
                       const double *v, size_t count)
{
    bool ok = api_put_key(b, name) && api_puts(b, "[");

    for (size_t c = 0; c < count && ok; c++)
        ok = api_put_comma(b) && api_put_number(b, dtype, v[c]);
    return ok && api_puts(b, "]");
}

static bool put_trace_key(struct api_buffer *b, enum attn_dtype dtype,
                          const struct attn_row_trace *t, size_t n, size_t d_v)
{
    return api_put_comma(b) && api_puts(b, "{") &&
           api_put_u64_member(b, "key", t->key[n]) &&
           api_put_number_member(b, "score", dtype, t->score[n]) &&
           api_put_number_member(b, "mask", dtype, t->mask[n]) &&
           api_put_number_member(b, "weight", dtype, t->weight[n]) &&
           put_vector(b, "value", dtype, t->value + n * d_v, d_v) &&
           put_vector(b, "contribution", dtype, t->contribution + n * d_v, d_v) &&
           put_vector(b, "running_sum", dtype, t->running_sum + n * d_v, d_v) &&
           put_vector(b, "dh_ds", dtype, t->derivative + n * d_v, d_v) &&
           api_put_number_member(b, "entropy_term", dtype, t->entropy_term[n]) &&
           api_puts(b, "}");
}

static bool put_trace(struct api_buffer *b, const struct attn_problem *p,
                      const struct attn_row_trace *t)
{
    const size_t d_v = p->d.d_v;
    bool ok =
        api_put_comma(b) && api_puts(b, "{") && api_put_u64_member(b, "batch", t->b) &&
        api_put_u64_member(b, "head", t->h) && api_put_u64_member(b, "query", t->i) &&
        api_put_u64_member(b, "allowed_keys", t->count) && api_put_key(b, "keys") &&
        api_puts(b, "[");

    for (size_t n = 0; n < t->count && ok; n++)
        ok = put_trace_key(b, p->dtype, t, n, d_v);
    return ok && api_puts(b, "]") && put_vector(b, "output", p->dtype, t->output, d_v) &&
           api_put_number_member(b, "entropy", p->dtype, t->entropy) &&
           api_put_number_member(b, "effective_keys", p->dtype, t->effective_keys) &&
           api_puts(b, "}");
}

static bool put_statistics(struct api_work *w, struct api_err *err)
{
    struct attn_score_stats stats = {0};
    struct attn_err core = {0};
    struct api_buffer *b = w->out;

    if (!attn_score_statistics(&w->r.p, &w->trace, &w->ctx->arena, &stats, &core))
        return api_fail_core(err, &core);
    return (api_put_key(b, "score_statistics") && api_puts(b, "{") &&
            api_put_u64_member(b, "pairs", stats.pairs) &&
            api_put_u64_member(b, "rows", stats.rows) &&
            api_put_double_member(b, "d_k", stats.d_k) &&
            api_put_double_member(b, "mean_unscaled", stats.mean) &&
            api_put_double_member(b, "variance_unscaled", stats.variance) &&
            api_put_double_member(b, "variance_scaled", stats.variance_of_scaled) &&
            api_put_double_member(b, "saturated_share", stats.saturated_share) &&
            api_put_double_member(b, "saturated_share_unscaled",
                                  stats.saturated_share_unscaled) &&
            api_puts(b, "}")) ||
           api_fail_buffer(err);
}

static bool run_one(struct api_work *w, size_t n, struct api_err *err)
{
    struct attn_row_trace trace = {0};
    struct attn_err core = {0};

    if (!attn_row_trace(&w->r.p, &w->trace, w->r.trace[n].b, w->r.trace[n].h,
                        w->r.trace[n].i, &w->ctx->arena, &trace, &core))
        return api_fail_core(err, &core);
    return put_trace(w->out, &w->r.p, &trace) || api_fail_buffer(err);
}

bool api_put_traces(struct api_work *w, struct api_err *err)
{
    if (w->r.traces == 0)
        return true;
    if (!api_put_key(w->out, "traces") || !api_puts(w->out, "["))
        return api_fail_buffer(err);
    for (size_t n = 0; n < w->r.traces; n++) {
        const size_t mark = attn_arena_mark(&w->ctx->arena);

        if (!run_one(w, n, err))
            return false;
        attn_arena_release(&w->ctx->arena, mark);
    }
    return (api_puts(w->out, "]") || api_fail_buffer(err)) && put_statistics(w, err);
}
