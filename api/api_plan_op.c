/*
 * api_plan_op.c - POST /v1/plan: shapes, cost and memory, without tensors.
 * Not here: the bounds themselves (api_budget.c, core/attn_plan.c).
 * Start reading at api_plan.
 */
#include "api/api_answer.h"

/* SIZE_MAX when they cannot be counted. */
static size_t input_bytes(const struct attn_problem *p)
{
    size_t bytes = 0, count;

    for (int n = 0; n < ATTN_INPUT_COUNT; n++) {
        if (p->in[n].rank == 0)
            continue;
        if (!api_count_of(p->in[n].rank, p->in[n].dim, &count) ||
            __builtin_add_overflow(bytes, count * attn_dtype_bytes(p->dtype), &bytes))
            return SIZE_MAX;
    }
    return bytes;
}

static bool put_memory(struct api_buffer *b, const struct api_budget *m)
{
    const bool fits = m->total <= m->limit && m->answer <= m->answer_limit;

    return api_put_key(b, "memory") && api_puts(b, "{") &&
           api_put_u64_member(b, "input_bytes", m->inputs) &&
           api_put_u64_member(b, "trace_bytes", m->trace) &&
           api_put_u64_member(b, "gradient_bytes", m->gradients) &&
           api_put_u64_member(b, "audit_bytes", m->audit) &&
           api_put_u64_member(b, "ablation_bytes", m->ablations) &&
           api_put_u64_member(b, "row_trace_bytes", m->row_traces) &&
           api_put_u64_member(b, "total_bytes", m->total) &&
           api_put_u64_member(b, "limit_bytes", m->limit) &&
           api_put_u64_member(b, "answer_bytes_estimate", m->answer) &&
           api_put_u64_member(b, "answer_limit_bytes", m->answer_limit) &&
           api_put_bool_member(b, "fits", fits) && api_puts(b, "}");
}

static bool write_answer(const struct api_work *w, const struct api_budget *budget)
{
    struct api_buffer *b = w->out;
    const struct api_request *r = &w->r;

    return api_puts(b, "{") &&
           api_put_text_member(b, "request_id", w->call->request_id) &&
           api_put_text_member(b, "dtype", attn_dtype_name(r->p.dtype)) &&
           api_put_text_member(b, "path", ATTN_PATH_NAMES[w->plan.path]) &&
           api_put_shapes(b, &r->p, r->want) && api_put_cost(b, &r->p, &w->cost) &&
           put_memory(b, budget) && api_put_warnings(b, r) && api_puts(b, "}");
}

static bool answer(struct api_work *w, struct api_err *err)
{
    struct attn_err core = {0};
    struct api_budget budget;
    size_t inputs;

    if (!api_request_read_sizes(w->ctx, w->call->body, w->call->body_len, &w->r, err))
        return false;
    /* No limit here: what would not fit is answered with fits = false. */
    if (!attn_plan(&w->r.p, api_needs(&w->r), w->r.path, SIZE_MAX, &w->plan, &core) ||
        !attn_cost(&w->r.p, &w->exec, &w->cost, &core))
        return api_fail_core(err, &core);
    api_budget(w->ctx, &w->r, &w->plan, &budget);
    inputs = input_bytes(&w->r.p);
    budget.inputs = budget.inputs > SIZE_MAX - inputs ? SIZE_MAX : budget.inputs + inputs;
    budget.total = budget.total > SIZE_MAX - inputs ? SIZE_MAX : budget.total + inputs;
    return write_answer(w, &budget) || api_fail_buffer(err);
}

void api_plan(struct api_ctx *ctx, const struct api_call *call, struct api_reply *reply)
{
    struct api_work w = {.ctx = ctx, .call = call, .out = reply->out};
    struct api_err err = {0};

    reply->out->len = 0;
    api_exec_of(call, &w.exec);
    if (answer(&w, &err)) {
        reply->status = 200;
        reply->content_type = "application/json";
    } else {
        reply->out->len = 0;
        api_reply_error(reply, call->request_id, &err);
    }
    api_ctx_reset(ctx);
}
