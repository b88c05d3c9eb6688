/*
 * api_audit.c - POST /v1/audit: read, judge in float64, write.
 * Not here: reading (api_audit_read.c, api_audit_candidate.c), the report
 * (api_answer_report.c), what is wrong and why (core/attn_diagnose*.c).
 * Start reading at api_audit.
 */
#include <math.h>

#include "api/api_audit.h"

struct audit_work {
    struct api_ctx *ctx;
    const struct api_call *call;
    struct api_buffer *out;
    struct attn_exec exec;
    struct api_audit audit;
    struct {
        double parse, judge;
    } ms;
};

/* ---- judging ---- */

static bool judge(struct audit_work *w, struct api_judged *judged, struct api_err *err)
{
    struct attn_arena *arena = &w->ctx->arena;
    const struct attn_grad_ask *ask =
        judged->r.has_gradients ? &judged->r.gradients : NULL;
    const size_t needs = attn_diagnose_bytes(&judged->r.p, ask);
    const double start = api_now_ms();
    struct attn_err core = {0};
    size_t room;
    bool ok;

    if (!api_spread_additive(w->ctx, &w->exec, judged, err))
        return false;
    room = arena->size - arena->used;
    if (needs > room)
        return api_fail_numbers(err, "too-large", NULL, "tensors", room, needs,
                                "Judging needs %zu bytes; %zu are left for this request.",
                                needs, room);
    ok = attn_diagnose(&judged->r.p, &judged->candidate, ask, arena, &w->exec,
                       &judged->report, &core);
    if (ok && !judged->tolerance_stated && judged->report.verdict == ATTN_INCORRECT &&
        judged->report.diagnoses == 0)
        ok = api_candidate_coarser(judged, ask, arena, &w->exec, &judged->coarser, &core);
    w->ms.judge += api_now_ms() - start;
    return ok || api_fail_core(err, &core);
}

static bool judge_all(struct audit_work *w, struct api_err *err)
{
    if (!judge(w, &w->audit.main, err))
        return false;
    for (size_t n = 0; n < w->audit.companions; n++)
        if (!judge(w, &w->audit.companion[n], err))
            return false;
    return true;
}

/* ---- what is right, where "return" asks for it ---- */

static bool put_right_tensors(struct audit_work *w, struct api_err *err)
{
    struct attn_arena *arena = &w->ctx->arena;
    const struct api_request *r = &w->audit.main.r;
    const size_t mark = attn_arena_mark(arena);
    struct attn_err core = {0};
    struct attn_plan plan;
    struct attn_trace trace;
    bool ok;

    if (r->want == 0)
        return true;
    if (!attn_plan(&r->p, r->want, r->path, arena->size - arena->used, &plan, &core) ||
        !attn_run(&r->p, &plan, arena, &w->exec, NULL, &trace, &core))
        return api_fail_core(err, &core);
    ok = api_put_tensors(w->out, r, r->want, &trace);
    attn_arena_release(arena, mark);
    return ok || api_fail_buffer(err);
}

/* ---- companions ---- */

static bool put_place(struct api_buffer *b, const char *name, const size_t at[2])
{
    return api_put_key(b, name) && api_puts(b, "{") &&
           api_put_u64_member(b, "batch", at[0]) &&
           api_put_u64_member(b, "query", at[1]) && api_puts(b, "}");
}

static const char *name_of(const struct api_judged *judged)
{
    return judged->name ? judged->name : "main";
}

static bool put_alike(struct api_buffer *b, const struct api_rows_alike *alike)
{
    bool ok = api_put_key(b, "rows_alike") && api_puts(b, "{") &&
              api_put_text_member(b, "object", ATTN_OBJECTS[alike->object].name) &&
              api_put_u64_member(b, "rows_compared", alike->rows) &&
              api_put_u64_member(b, "rows_that_differ", alike->differ);

    ok = ok && api_put_key(b, "holds") &&
         api_puts(b, alike->rows == 0     ? "null"
                     : alike->differ == 0 ? "true"
                                          : "false");
    if (ok && alike->rows > 0)
        ok = api_put_double_member(b, "largest_difference", alike->largest) &&
             api_put_bool_member(b, "bit_for_bit", alike->same_bits);
    if (ok && alike->differ > 0)
        ok = put_place(b, "first", alike->at) &&
             put_place(b, "first_in_companion", alike->companion_at);
    return ok && api_puts(b, "}");
}

static bool put_companion(struct audit_work *w, const struct api_judged *companion,
                          struct api_err *err)
{
    struct api_rows_alike alike;

    if (!api_rows_compare(w->ctx, &w->exec, companion->of, companion, &alike, err))
        return false;
    return (api_put_comma(w->out) && api_puts(w->out, "{") &&
            api_put_text_member(w->out, "name", companion->name) &&
            api_put_text_member(w->out, "of", name_of(companion->of)) &&
            api_put_report(w->out, companion) && put_alike(w->out, &alike) &&
            api_puts(w->out, "}")) ||
           api_fail_buffer(err);
}

static bool put_companions(struct audit_work *w, struct api_err *err)
{
    if (!api_put_key(w->out, "companions") || !api_puts(w->out, "["))
        return api_fail_buffer(err);
    for (size_t n = 0; n < w->audit.companions; n++)
        if (!put_companion(w, &w->audit.companion[n], err))
            return false;
    return api_puts(w->out, "]") || api_fail_buffer(err);
}

/* ---- the answer ---- */

/* Whole microseconds: the clock is no better. */
static bool put_ms(struct api_buffer *b, const char *name, double ms)
{
    return api_put_double_member(b, name, round(ms * 1e3) / 1e3);
}

static bool write_answer(struct audit_work *w, struct api_err *err)
{
    struct api_buffer *b = w->out;

    if (!(api_puts(b, "{") && api_put_text_member(b, "request_id", w->call->request_id) &&
          api_put_key(b, "engine") && api_puts(b, "{") &&
          api_put_text_member(b, "name", "attentiond") &&
          api_put_text_member(b, "version", API_VERSION) &&
          api_put_text_member(b, "judges_in", attn_dtype_name(ATTN_F64)) &&
          api_puts(b, "}") && api_put_report(b, &w->audit.main)))
        return api_fail_buffer(err);
    if (!put_companions(w, err) || !put_right_tensors(w, err))
        return false;
    return (api_put_warnings(b, &w->audit.main.r) && api_put_key(b, "timing_ms") &&
            api_puts(b, "{") && put_ms(b, "parse", w->ms.parse) &&
            put_ms(b, "judge", w->ms.judge) && api_puts(b, "}}")) ||
           api_fail_buffer(err);
}

static bool answer(struct audit_work *w, struct api_reply *reply, struct api_err *err)
{
    double start = api_now_ms();
    bool ok = api_audit_read(w->ctx, w->call->body, w->call->body_len, &w->audit, err);

    w->ms.parse = api_now_ms() - start;
    if (!ok || !judge_all(w, err))
        return false;
    start = api_now_ms();
    ok = write_answer(w, err);
    reply->parse_ms = w->ms.parse;
    reply->compute_ms = w->ms.judge;
    reply->write_ms = api_now_ms() - start;
    return ok;
}

void api_audit(struct api_ctx *ctx, const struct api_call *call, struct api_reply *reply)
{
    struct audit_work w = {.ctx = ctx, .call = call, .out = reply->out};
    struct api_err err = {0};

    reply->out->len = 0;
    api_exec_of(call, &w.exec);
    if (answer(&w, reply, &err)) {
        reply->status = 200;
        reply->content_type = "application/json";
    } else {
        reply->out->len = 0;
        api_reply_error(reply, call->request_id, &err);
    }
    api_ctx_reset(ctx);
}
