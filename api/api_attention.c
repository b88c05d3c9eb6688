/*
 * api_attention.c - POST /v1/attention: read, plan, run, audit, write.
 * Not here: the parts of the answer (api_answer_<part>.c), the mathematics (core/).
 * Start reading at api_attention.
 */
#include <math.h>
#include <string.h>

#include "api/api_answer.h"
#include "api/api_request.h"

/* The rows that a sampled audit looks at are drawn from this seed, which the answer
 * states. */
enum { AUDIT_SEED = 1 };
/* Audit and entropies; from so many weights on a second thread is worth waking. */
enum { FIND_PIECES = 2, SHARED_MIN = 32 << 10 };

static bool read_request(struct api_work *w, struct api_err *err)
{
    const double start = api_now_ms();
    const bool ok = api_request_read_call(w->ctx, w->call, &w->r, err);

    w->ms.parse = api_now_ms() - start;
    return ok;
}

static void inject(struct api_work *w)
{
    const struct attn_fault_row *fault = w->r.inject;

    w->swap =
        attn_fault_set(fault, w->r.inject_has_parameter ? &w->r.inject_parameter : NULL,
                       w->r.inject_has_seed ? &w->r.inject_seed : NULL, &w->swap_room);
    w->r.gradients.inject = fault;
}

/* What a fault needs to show is known by rule; what the audit saw counts more. */
static void warn_of_fault(struct api_work *w)
{
    const struct attn_fault_row *const fault = w->r.inject;

    if (fault && w->audit.status != ATTN_FAIL &&
        (!attn_fault_shows(fault, w->swap, &w->r.p) ||
         (attn_fault_of_gradients(fault) && !w->r.has_gradients)))
        api_warn(&w->r, "The injected fault changes nothing in this problem: the catalog "
                        "says in visible_when what it needs.");
}

/* Refuses before memory is taken; what is injected is decided here too. */
static bool plan_work(struct api_work *w, struct api_budget *budget, struct api_err *err)
{
    const struct attn_arena *arena = &w->ctx->arena;
    struct attn_err core = {0};

    if (w->r.inject && w->r.ablations > 0)
        return api_fail(
            err, "contradiction", "/ablations",
            "Ablations are measured against the right layer: ask for them without "
            "\"inject\".");
    if (w->r.inject)
        inject(w);
    if (!attn_plan(&w->r.p, api_needs(&w->r), w->r.path, arena->size - arena->used,
                   &w->plan, &core))
        return api_fail_core(err, &core);
    api_budget(w->ctx, &w->r, &w->plan, budget);
    return api_budget_check(budget, err);
}

static bool run_layer(struct api_work *w, struct api_err *err)
{
    const double start = api_now_ms();
    struct attn_err core = {0};
    const bool ok = attn_run(&w->r.p, &w->plan, &w->ctx->arena, &w->exec, w->swap,
                             &w->trace, &core) &&
                    attn_cost(&w->r.p, &w->exec, &w->cost, &core);

    w->ms.compute = api_now_ms() - start;
    return ok || api_fail_core(err, &core);
}

static bool run_gradients(struct api_work *w, struct api_err *err)
{
    const double start = api_now_ms();
    struct attn_err core = {0};

    if (!w->r.has_gradients)
        return true;
    if (!attn_grad(&w->r.p, &w->trace, &w->r.gradients, &w->ctx->arena, &w->exec,
                   &w->grads, &core))
        return api_fail_core(err, &core);
    w->ms.gradients = api_now_ms() - start;
    return true;
}

static bool run_audit(struct api_work *w, struct api_err *err)
{
    const double start = api_now_ms();
    struct attn_err core = {0};

    if (w->r.audit == ATTN_AUDIT_OFF) {
        api_audit_off(&w->audit);
        return true;
    }
    if (!attn_audit_trace(&w->r.p, &w->plan, &w->trace,
                          w->r.has_gradients ? &w->grads : NULL, w->r.audit, AUDIT_SEED,
                          w->swap, &w->ctx->arena, &w->exec, &w->audit, &core))
        return api_fail_core(err, &core);
    w->ms.audit = api_now_ms() - start;
    return true;
}

/* ---- what is found about the layer ---- */

struct finding_work {
    struct api_work *w;
    struct api_err *err;
    bool ok;
};

/* The audit and the entropies read the same tensors and change none. */
static void find_piece(void *arg, size_t piece)
{
    struct finding_work *f = arg;

    if (piece == 0)
        f->ok = run_audit(f->w, f->err);
    else
        f->w->has_row_stats =
            attn_row_statistics(&f->w->r.p, &f->w->trace, &f->w->row_stats);
}

static bool run_findings(struct api_work *w, struct api_err *err)
{
    struct finding_work f = {.w = w, .err = err};
    const struct attn_tensor *A = &w->trace.t[ATTN_A];

    if (w->exec.parallel_for != NULL && A->p != NULL &&
        attn_tensor_count(A) >= SHARED_MIN) {
        w->exec.parallel_for(w->exec.ctx, FIND_PIECES, find_piece, &f);
        return f.ok;
    }
    for (size_t piece = 0; piece < FIND_PIECES; piece++)
        find_piece(&f, piece);
    return f.ok;
}

/* ---- writing ---- */

static bool put_engine(struct api_work *w)
{
    struct api_buffer *b = w->out;

    return api_put_key(b, "engine") && api_puts(b, "{") &&
           api_put_text_member(b, "name", "attentiond") &&
           api_put_text_member(b, "version", API_VERSION) &&
           api_put_text_member(b, "blas", attn_blas_name()) &&
           api_put_text_member(b, "dtype", attn_dtype_name(w->r.p.dtype)) &&
           api_put_text_member(b, "path", ATTN_PATH_NAMES[w->plan.path]) &&
           api_put_text_member(b, "injected_fault",
                               w->r.inject ? attn_fault_name(w->r.inject) : NULL) &&
           (!w->r.inject_has_parameter ||
            api_put_double_member(b, "injected_parameter", w->r.inject_parameter)) &&
           (!w->r.inject_has_seed ||
            api_put_u64_member(b, "injected_seed", w->r.inject_seed)) &&
           api_puts(b, "}");
}

static bool put_convention(struct api_buffer *b, const struct api_request *r)
{
    bool ok;

    if (!r->convention)
        return true;
    ok = api_put_key(b, "set_by_convention") && api_puts(b, "{");
    for (size_t n = 0; n < r->set_count && ok; n++)
        ok = api_put_text_member(b, r->set_by_convention[n].field,
                                 r->set_by_convention[n].value);
    return ok && api_puts(b, "}");
}

/* Whole microseconds: the clock is no better. */
static bool put_ms(struct api_buffer *b, const char *name, double ms)
{
    return api_put_double_member(b, name, round(ms * 1e3) / 1e3);
}

static bool put_timing(struct api_work *w)
{
    struct api_buffer *b = w->out;

    return api_put_key(b, "timing_ms") && api_puts(b, "{") &&
           put_ms(b, "parse", w->ms.parse) && put_ms(b, "compute", w->ms.compute) &&
           put_ms(b, "gradients", w->ms.gradients) && put_ms(b, "audit", w->ms.audit) &&
           put_ms(b, "ablations", w->ms.ablations) && api_puts(b, "}");
}

/* The layer's own tensors; what runs after this uses the arena behind them. */
static bool put_layer(struct api_work *w)
{
    bool ok;

    if (w->file)
        w->file->stays = w->r.ablations == 0 && w->r.traces == 0;
    ok = api_answer_tensors(w, "", w->r.want, &w->trace);
    if (w->file)
        w->file->stays = false;
    return ok;
}

static bool write_answer(struct api_work *w, struct api_err *err)
{
    struct api_buffer *b = w->out;
    const struct api_request *r = &w->r;

    if (!(api_puts(b, "{") && api_put_text_member(b, "request_id", w->call->request_id) &&
          put_engine(w) && api_put_shapes(b, &r->p, r->want) && put_layer(w) &&
          api_put_audit(b, &w->audit)))
        return api_fail_buffer(err);
    if (!api_put_gradients(w, err) || !api_put_ablations(w, err) ||
        !api_put_traces(w, err))
        return false;
    return (api_put_cost(b, &r->p, &w->cost) && api_put_rows(w) &&
            api_put_supervision(b, r) && put_convention(b, r) && api_put_warnings(b, r) &&
            api_put_notes(b, r) && put_timing(w) && api_puts(b, "}")) ||
           api_fail_buffer(err);
}

static bool answer(struct api_work *w, struct api_reply *reply, struct api_err *err)
{
    struct api_budget budget;
    double start;

    if (!read_request(w, err) || !plan_work(w, &budget, err) || !run_layer(w, err) ||
        !api_budget_check_rows(&budget, w->trace.empty_count, err) ||
        !run_gradients(w, err) || !run_findings(w, err))
        return false;
    warn_of_fault(w);
    api_warn_nonfinite(w);
    start = api_now_ms();
    if (!write_answer(w, err))
        return false;
    reply->parse_ms = w->ms.parse;
    reply->compute_ms = w->ms.compute + w->ms.gradients + w->ms.audit + w->ms.ablations;
    reply->write_ms = api_now_ms() - start - w->ms.ablations;
    return true;
}

/* The answer as a file: its JSON is written aside and goes into the header at the end. */
static bool answer_file(struct api_work *w, struct api_reply *reply, struct api_err *err)
{
    struct api_file file;

    if (!api_file_begin(&file, w->ctx, reply->out, w->call->lend_max_bytes))
        return api_fail_buffer(err);
    w->file = &file;
    w->out = file.rest;
    return answer(w, reply, err) && (api_file_end(&file, reply) || api_fail_buffer(err));
}

void api_attention(struct api_ctx *ctx, const struct api_call *call,
                   struct api_reply *reply)
{
    const char *type = call->answer_type ? call->answer_type : API_JSON;
    const bool file = strcmp(type, API_JSON) != 0;
    struct api_work w = {.ctx = ctx, .call = call, .out = reply->out};
    struct api_err err = {0};

    reply->out->len = 0;
    api_exec_of(call, &w.exec);
    if (file ? answer_file(&w, reply, &err) : answer(&w, reply, &err)) {
        reply->status = 200;
        reply->content_type = type;
    } else if (!w.r.deferred) {
        reply->out->len = 0;
        api_reply_error(reply, call->request_id, &err);
    }
    reply->out->len = w.r.deferred ? 0 : reply->out->len;
    if (reply->parts == NULL)
        api_ctx_reset(ctx);
}
