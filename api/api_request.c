/*
 * api_request.c - a whole problem: sizes first, then refused or taken, numbers last.
 * Not here: the single fields (api_request_<theme>.c), forms of tensors (api_tensor.c).
 * Start reading at read_problem.
 */
#include "api/api_request.h"

#include <assert.h>
#include <string.h>

#include "api/api_answer.h"
#include "api/api_file.h"

/* ---- memory ---- */

void *api_take(struct api_reading *rd, size_t bytes, const char *pointer,
               struct api_err *err)
{
    struct attn_arena *arena = &rd->ctx->arena;
    const size_t room = arena->size - arena->used;
    const size_t free_bytes = room > rd->reserved ? room - rd->reserved : 0;
    void *p = bytes <= free_bytes ? attn_arena_take(arena, bytes) : NULL;
    const size_t taken = arena->used + rd->reserved;

    if (p == NULL)
        api_fail_numbers(
            err, "too-large", pointer, NULL, arena->size,
            bytes < SIZE_MAX - taken ? taken + bytes : SIZE_MAX,
            "%zu bytes are needed here beside %zu others; the limit of one request "
            "is %zu.",
            bytes, taken, arena->size);
    return p;
}

void *api_take_tensor(struct api_reading *rd, const struct api_tensor_in *in,
                      enum attn_dtype dtype, enum api_finite finite, struct api_err *err)
{
    struct attn_tensor t = {.dtype = dtype, .rank = in->rank};
    size_t count;

    assert(in->shaped);
    memcpy(t.dim, in->dim, sizeof t.dim);
    if (!api_count_of(in->rank, in->dim, &count)) {
        api_fail(err, "too-large", in->pointer,
                 "The sizes of the shape multiply to more than can be counted.");
        return NULL;
    }
    t.p = api_take(rd, count * attn_dtype_bytes(dtype), in->pointer, err);
    return t.p != NULL && api_tensor_read(in, finite, &t, err) ? t.p : NULL;
}

bool api_expect_shape(struct api_tensor_in *in, const char *object, unsigned rank,
                      const size_t *dim, struct api_err *err)
{
    char want[API_SHAPE_TEXT_MAX], got[API_SHAPE_TEXT_MAX];

    api_tensor_set_shape(in, rank, dim);
    if (in->rank == rank && memcmp(in->dim, dim, rank * sizeof *dim) == 0)
        return true;
    api_shape_text(want, rank, dim);
    api_shape_text(got, in->rank, in->dim);
    api_fail(err, in->rank == rank ? "wrong-shape" : "wrong-rank", in->pointer,
             "The shape %s is needed here; it is %s.", want, got);
    snprintf(err->object, sizeof err->object, "%s", object);
    snprintf(err->expected, sizeof err->expected, "%.95s", want);
    snprintf(err->observed, sizeof err->observed, "%.95s", got);
    return false;
}

void api_warn(struct api_request *r, const char *sentence)
{
    if (r->warnings < API_COUNT(r->warning))
        r->warning[r->warnings++] = sentence;
}

/* ---- the root ---- */

static bool keep_masks(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct api_reading *)into)->masks = v;
    return true;
}

static bool keep_return(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct api_reading *)into)->returned = v;
    return true;
}

static bool keep_ablations(void *into, const struct api_doc *doc, const json_t *v,
                           const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct api_reading *)into)->ablations = v;
    return true;
}

static bool keep_gradients(void *into, const struct api_doc *doc, const json_t *v,
                           const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct api_reading *)into)->gradients = v;
    return true;
}

static bool keep_traces(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct api_reading *)into)->traces = v;
    return true;
}

/* clang-format off */
static const struct api_field_row FIELDS[] = {
    { "shapes",     api_read_shapes,       false },
    { "dtype",      api_read_dtype,        false },
    { "inputs",     api_read_inputs,       false },
    { "weights",    api_read_weights,      false },
    { "score",      api_read_score,        false },
    { "position",   api_read_position,     false },
    { "sink",       api_read_input_tensor, false },
    { "masks",      keep_masks,            false },
    { "empty_rows", api_read_empty_rows,   false },
    { "ablations",  keep_ablations,        false },
    { "gradients",  keep_gradients,        false },
    { "traces",     keep_traces,           false },
    { "return",     keep_return,           false },
    { "audit",      api_read_audit,        false },
    { "inject",     api_read_injected,     false },
    { "path",       api_read_path,         false },
    { "encoding",   api_read_encoding,     false },
};
/* clang-format on */

/* ---- the whole ---- */

/* May the call be answered within the time that it gives? */
static bool in_time(const struct api_reading *rd, const struct api_budget *budget)
{
    return rd->r->work_max_ns == 0 ||
           (rd->ablations == NULL && rd->gradients == NULL && rd->traces == NULL &&
            api_work_ns(rd->r, budget) <= rd->r->work_max_ns);
}

/* Refuses what the run would need beyond the limits, and reserves what it needs within
   them. */
static bool refuse_too_large(struct api_reading *rd, struct api_err *err)
{
    const struct api_request *r = rd->r;
    struct attn_err core = {0};
    struct attn_plan plan;
    struct api_budget budget;

    if (!attn_plan(&r->p, api_needs(r), r->path, SIZE_MAX, &plan, &core)) {
        if (core.code == ATTN_E_CONTRADICTION)
            return api_fail(err, "contradiction", "/path",
                            "The tiled path never holds %s, which return, gradients, "
                            "traces, ablations or inject "
                            "ask for.",
                            core.object);
        return api_fail_core(err, &core);
    }
    if (rd->sizes_only)
        return true;
    api_budget(rd->ctx, r, &plan, &budget);
    if (!api_budget_check(&budget, err))
        return false;
    rd->r->deferred = !in_time(rd, &budget);
    if (rd->r->deferred)
        return false;
    rd->reserved = budget.total - budget.inputs;
    return true;
}

/* The same for a problem that is judged: what the judge needs, and a trace of what is
   returned. */
static bool refuse_judged(struct api_reading *rd, struct api_err *err)
{
    const struct api_request *r = rd->r;
    const struct attn_arena *arena = &rd->ctx->arena;
    struct attn_problem as_judged = r->p;
    struct attn_err core = {0};
    struct attn_plan plan;
    size_t judge, needs;

    as_judged.dtype = ATTN_F64;
    if (!attn_plan(&as_judged, r->want, r->path, SIZE_MAX, &plan, &core))
        return api_fail_core(err, &core);
    judge = attn_diagnose_bytes(&as_judged, r->has_gradients ? &r->gradients : NULL);
    if (__builtin_add_overflow(judge, plan.trace_bytes, &needs))
        needs = SIZE_MAX;
    rd->reserved = needs;
    return (arena->used <= arena->size && needs <= arena->size - arena->used) ||
           api_fail_numbers(err, "too-large", NULL, "tensors", arena->size, needs,
                            "Judging this problem needs %zu bytes beside %zu of its "
                            "tensors; the limit of one request is %zu.",
                            needs, arena->used, arena->size);
}

static bool refuse(struct api_reading *rd, struct api_err *err)
{
    if (!rd->judged)
        return refuse_too_large(rd, err);
    if (rd->returned == NULL)
        rd->r->want = 0;
    return refuse_judged(rd, err);
}

static bool prepare(struct api_reading *rd, struct api_err *err)
{
    struct attn_err core = {0};

    return attn_prepare(&rd->r->p, &core) || api_fail_core(err, &core);
}

static bool read_problem(struct api_reading *rd, struct api_err *err)
{
    return api_read_object(rd, rd->doc, rd->doc->root, "", FIELDS, API_COUNT(FIELDS),
                           err) &&
           api_resolve_sizes(rd, err) && api_take_inputs(rd, err) &&
           api_read_return(rd, err) && refuse(rd, err) && api_read_masks(rd, err) &&
           api_fill_position(rd, err) && prepare(rd, err) &&
           api_read_gradients(rd, err) && api_read_traces(rd, err) &&
           api_read_ablations(rd, err) && refuse(rd, err) && api_fill_inputs(rd, err);
}

static void set_defaults(struct api_request *r)
{
    *r = (struct api_request){.p = {.dtype = ATTN_F64, .temperature = 1.0},
                              .audit = ATTN_AUDIT_SAMPLED};
    r->p.score = attn_score_find("dot_product");
    assert(r->p.score != NULL);
}

typedef bool open_fn(struct api_ctx *ctx, const char *body, size_t len,
                     struct api_doc *doc, struct api_err *err);

/* `rd` says how to read; the document is opened and closed here. */
static bool read_body(struct api_reading *rd, open_fn *open, const char *body, size_t len,
                      struct api_err *err)
{
    struct api_doc doc;
    bool ok;

    if (!open(rd->ctx, body, len, &doc, err))
        return false;
    rd->doc = &doc;
    if (doc.no_options)
        api_warn(rd->r, "The file has no __metadata__.attentiond: no masks, default "
                        "options.");
    ok = read_problem(rd, err);
    api_doc_close(&doc);
    return ok;
}

bool api_request_read(struct api_ctx *ctx, const char *body, size_t len,
                      struct api_request *r, struct api_err *err)
{
    struct api_reading rd = {.ctx = ctx, .r = r};

    set_defaults(r);
    return read_body(&rd, api_doc_open, body, len, err);
}

static bool is_file(const char *type)
{
    return type && strcmp(type, API_JSON) != 0;
}

bool api_request_read_call(struct api_ctx *ctx, const struct api_call *call,
                           struct api_request *r, struct api_err *err)
{
    struct api_reading rd = {.ctx = ctx, .r = r};

    set_defaults(r);
    r->as_file = is_file(call->answer_type);
    r->work_max_ns = call->work_max_ns;
    return read_body(&rd, is_file(call->body_type) ? api_safetensors_open : api_doc_open,
                     call->body, call->body_len, err);
}

bool api_request_read_sizes(struct api_ctx *ctx, const char *body, size_t len,
                            struct api_request *r, struct api_err *err)
{
    struct api_reading rd = {.ctx = ctx, .r = r, .sizes_only = true};

    set_defaults(r);
    return read_body(&rd, api_doc_open, body, len, err);
}

bool api_request_read_judged(struct api_ctx *ctx, const struct api_doc *doc,
                             const json_t *problem, struct api_request *r,
                             struct api_err *err)
{
    /* The node lends its tree to a document of its own; the spans are the same. */
    const struct api_doc inner = {.root = (json_t *)(uintptr_t)problem,
                                  .span = doc->span,
                                  .span_count = doc->span_count};
    struct api_reading rd = {.ctx = ctx, .doc = &inner, .r = r, .judged = true};

    set_defaults(r);
    return read_problem(&rd, err);
}
