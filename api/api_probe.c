/*
 * api_probe.c - POST /v1/probe: problems in which known faults show, ready to be run and
 * sent to /v1/audit. Not here: kinds of problems (api_probe_rows.c), drawing
 * (api_probe_make.c), variations (api_probe_vary.c). Start reading at api_probe, then
 * choose.
 */
#include <stdlib.h>
#include <string.h>

#include "api/api_probe.h"

struct probe_work {
    struct api_ctx *ctx;
    const struct api_call *call;
    struct attn_exec exec;
    struct api_probe_ask ask;
    struct api_probe_problem *problem; /* in the arena; the first is the main one */
    size_t problems, kinds;            /* all, and those that vary nothing        */
};

enum { PROBLEMS_MAX = API_PROBE_ROWS_MAX + 8 };

/* ---- the request ---- */

/* A member of the body as it was given, with what was lifted out put back. */
static bool put_given(struct api_buffer *b, const struct api_doc *doc, const json_t *v)
{
    const struct api_span *span = api_doc_span(doc, v);
    const char *key;
    json_t *value;
    char *text;
    bool ok = true;

    if (span != NULL)
        return (!span->is_string || api_puts(b, "\"")) &&
               api_put(b, span->begin, (size_t)(span->end - span->begin)) &&
               (!span->is_string || api_puts(b, "\""));
    if (json_is_object(v)) {
        ok = api_puts(b, "{");
        json_object_foreach((json_t *)(uintptr_t)v, key, value) ok =
            ok && api_put_key(b, key) && put_given(b, doc, value);
        return ok && api_puts(b, "}");
    }
    if (json_is_array(v)) {
        ok = api_puts(b, "[");
        for (size_t n = 0; n < json_array_size(v) && ok; n++)
            ok = api_put_comma(b) && put_given(b, doc, json_array_get(v, n));
        return ok && api_puts(b, "]");
    }
    text = json_dumps(v, JSON_ENCODE_ANY);
    ok = text != NULL && api_puts(b, text);
    free(text);
    return ok;
}

static bool keep_masks(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct api_probe_ask *ask = &((struct probe_work *)into)->ask;

    (void)pointer;
    ask->causal_unaligned = json_is_true(json_object_get(v, "causal"));
    return put_given(&ask->masks, doc, v) || api_fail_buffer(err);
}

static bool keep_position(void *into, const struct api_doc *doc, const json_t *v,
                          const char *pointer, struct api_err *err)
{
    struct api_probe_ask *ask = &((struct probe_work *)into)->ask;

    (void)pointer;
    for (size_t n = 0; n < attn_position_count(); n++)
        if (attn_position_at(n)->needs_even &&
            json_object_get(v, attn_position_at(n)->name) != NULL)
            ask->even_d_k = true;
    return put_given(&ask->position, doc, v) || api_fail_buffer(err);
}

static bool read_size(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    struct attn_decl *d = &((struct probe_work *)into)->ask.sizes;
    const struct {
        const char *pointer;
        size_t *size;
    } sizes[] = {
        {"/shapes/B", &d->B},         {"/shapes/T", &d->T},
        {"/shapes/T_kv", &d->T_kv},   {"/shapes/d_model", &d->d_model},
        {"/shapes/d_k", &d->d_k},     {"/shapes/d_v", &d->d_v},
        {"/shapes/heads", &d->heads}, {"/shapes/kv_heads", &d->kv_heads},
    };
    size_t n = 0;

    (void)doc;
    while (strcmp(sizes[n].pointer, pointer) != 0)
        n++;
    return api_read_size(v, pointer, 1, API_PROBE_SIZE_MAX, sizes[n].size, err);
}

static const struct api_field_row SHAPES[] = {
    {"B", read_size, false},     {"T", read_size, false},
    {"T_kv", read_size, false},  {"d_model", read_size, false},
    {"d_k", read_size, false},   {"d_v", read_size, false},
    {"heads", read_size, false}, {"kv_heads", read_size, false},
};

static bool read_shapes(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    return api_read_object(into, doc, v, pointer, SHAPES, API_COUNT(SHAPES), err);
}

static bool read_seed(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    int64_t seed;

    (void)doc;
    if (!api_read_int(v, pointer, 0, INT32_MAX, &seed, err))
        return false;
    ((struct probe_work *)into)->ask.seed = (uint64_t)seed;
    return true;
}

static bool read_purpose(void *into, const struct api_doc *doc, const json_t *v,
                         const char *pointer, struct api_err *err)
{
    enum { NAMES_MAX = 32 };
    const char *names[NAMES_MAX];
    char place[API_POINTER_MAX];
    json_t *list = api_doc_tree(doc, v, pointer, NAMES_MAX, err);
    bool ok = list != NULL;
    int choice;

    for (size_t n = 0; n < API_PURPOSE_COUNT && n < NAMES_MAX; n++)
        names[n] = API_PURPOSES[n].name;
    if (ok && json_array_size(list) == 0)
        ok = api_fail(err, "bad-value", pointer,
                      "Name at least one purpose, or leave the list out.");
    for (size_t n = 0; ok && n < json_array_size(list); n++) {
        ok =
            api_read_choice(json_array_get(list, n), api_pointer_index(place, pointer, n),
                            names, API_PURPOSE_COUNT, &choice, err);
        if (ok)
            ((struct probe_work *)into)->ask.purposes |= UINT32_C(1) << choice;
    }
    json_decref(list);
    return ok;
}

static const struct api_field_row FIELDS[] = {
    {"shapes", read_shapes, false},     {"masks", keep_masks, false},
    {"position", keep_position, false}, {"seed", read_seed, false},
    {"purpose", read_purpose, false},
};

static bool read_request(struct probe_work *w, struct api_err *err)
{
    struct api_doc doc;
    bool ok;

    w->ask.seed = 1;
    if (!api_doc_open(w->ctx, w->call->body, w->call->body_len, &doc, err))
        return false;
    ok = api_read_object(w, &doc, doc.root, "", FIELDS, API_COUNT(FIELDS), err);
    api_doc_close(&doc);
    return ok;
}

/* ---- which problems ---- */

static bool is_shown(const struct probe_work *w, size_t fault, size_t problems)
{
    for (size_t n = 0; n < problems; n++)
        if (w->problem[n].shows[fault])
            return true;
    return false;
}

static bool adds_something(const struct probe_work *w)
{
    for (size_t f = 0; f < API_FAULTS_MAX; f++)
        if (w->problem[w->problems].shows[f] && !is_shown(w, f, w->problems))
            return true;
    return false;
}

/* The kinds asked for; by default the first, and every other that shows what those before
   it hide.  Own sizes, masks or positions make one kind of every kind, so that only the
   first is issued then. */
static bool choose_kinds(struct probe_work *w, struct api_err *err)
{
    const struct attn_decl none = {0};
    const bool own = memcmp(&w->ask.sizes, &none, sizeof none) != 0 ||
                     w->ask.masks.len > 0 || w->ask.position.len > 0;

    for (size_t n = 0; n < API_PROBE_ROW_COUNT; n++) {
        const size_t mark = attn_arena_mark(&w->ctx->arena);

        if (w->ask.purposes && !(API_PROBE_ROWS[n].purposes & w->ask.purposes))
            continue;
        if (!w->ask.purposes && own && w->problems > 0)
            break;
        if (!api_probe_make(w->ctx, &w->ask, &API_PROBE_ROWS[n], &w->problem[w->problems],
                            err))
            return false;
        if (w->problems == 0 || adds_something(w))
            w->problems++;
        else
            attn_arena_release(&w->ctx->arena, mark);
    }
    w->kinds = w->problems;
    return true;
}

/* Each variation of the first problem that it fits. */
static bool vary(struct probe_work *w, struct api_err *err)
{
    for (size_t v = 0; v < API_VARY_COUNT; v++) {
        const struct api_probe_problem *from = NULL;
        struct api_probe_problem *out = &w->problem[w->problems];

        for (size_t n = 0; n < w->kinds && from == NULL; n++)
            if (API_VARIES[v].fits(&w->problem[n].r.p))
                from = &w->problem[n];
        if (from == NULL)
            continue;
        *out = (struct api_probe_problem){.name = API_VARIES[v].name,
                                          .says = API_VARIES[v].says,
                                          .of = from == w->problem ? "main" : from->name,
                                          .r = from->r};
        out->r.has_gradients = false;
        if (!API_VARIES[v].vary(w->ctx, from, &w->exec, &out->r.p, err))
            return false;
        api_probe_see(out);
        w->problems++;
    }
    return true;
}

/* ---- the answer ---- */

static bool put_companion(struct api_buffer *b, const struct api_probe_problem *problem)
{
    return api_put_comma(b) && api_puts(b, "{") &&
           api_put_text_member(b, "name", problem->name) &&
           api_put_text_member(b, "of", problem->of) &&
           api_put_text_member(b, "says", problem->says) && api_put_key(b, "problem") &&
           api_put_problem(b, &problem->r) && api_puts(b, "}");
}

static bool put_companions(struct probe_work *w, struct api_buffer *b)
{
    bool ok = api_put_key(b, "companions") && api_puts(b, "[");

    for (size_t n = w->kinds; n < w->problems && ok; n++)
        ok = put_companion(b, &w->problem[n]);
    for (size_t n = 1; n < w->kinds && ok; n++)
        ok = put_companion(b, &w->problem[n]);
    return ok && api_puts(b, "]");
}

static const char *shown_by(const struct probe_work *w, size_t fault)
{
    for (size_t n = 1; n < w->problems; n++)
        if (w->problem[n].shows[fault])
            return w->problem[n].name;
    return NULL;
}

static bool put_hides(struct probe_work *w, struct api_buffer *b)
{
    bool ok = api_put_key(b, "hides") && api_puts(b, "[");

    for (size_t n = 0; n < attn_fault_count() && n < API_FAULTS_MAX && ok; n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);

        if (w->problem[0].shows[n])
            continue;
        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "fault", attn_fault_name(fault)) &&
             api_put_text_member(b, "needs", attn_fault_visible_when(fault)) &&
             api_put_text_member(b, "shown_by", shown_by(w, n)) && api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

static bool put_send_back(const struct api_request *r, struct api_buffer *b)
{
    bool ok = api_put_key(b, "send_back") && api_puts(b, "[");

    for (int o = 0; o < ATTN_OBJECT_COUNT && ok; o++)
        if (ATTN_OBJECTS[o].by_default && attn_object_exists(&r->p, (enum attn_object)o))
            ok = api_put_comma(b) && api_put_string(b, ATTN_OBJECTS[o].name);
    for (int g = 0; g < ATTN_GRADIENT_COUNT && ok; g++)
        if (api_gradient_asked(r, (enum attn_gradient)g))
            ok = api_put_comma(b) && api_put_string(b, ATTN_GRADIENTS[g].name);
    return ok && api_puts(b, "]");
}

static bool write_answer(struct probe_work *w, struct api_buffer *b)
{
    return api_puts(b, "{") &&
           api_put_text_member(b, "request_id", w->call->request_id) &&
           api_put_u64_member(b, "seed", w->ask.seed) &&
           api_put_text_member(b, "says", w->problem[0].says) &&
           api_put_key(b, "problem") && api_put_problem(b, &w->problem[0].r) &&
           put_companions(w, b) && put_hides(w, b) &&
           put_send_back(&w->problem[0].r, b) && api_puts(b, "}");
}

static bool answer(struct probe_work *w, struct api_buffer *out, struct api_err *err)
{
    if (!read_request(w, err))
        return false;
    w->problem =
        attn_arena_take(&w->ctx->arena, PROBLEMS_MAX * sizeof(struct api_probe_problem));
    if (w->problem == NULL)
        return api_fail(err, "too-large", NULL, "There is no room for the problems.");
    return choose_kinds(w, err) && vary(w, err) &&
           (write_answer(w, out) || api_fail_buffer(err));
}

void api_probe(struct api_ctx *ctx, const struct api_call *call, struct api_reply *reply)
{
    struct probe_work w = {.ctx = ctx, .call = call};
    struct api_err err = {0};
    const double start = api_now_ms();

    reply->out->len = 0;
    api_exec_of(call, &w.exec);
    if (answer(&w, reply->out, &err)) {
        reply->status = 200;
        reply->content_type = "application/json";
        reply->compute_ms = api_now_ms() - start;
    } else {
        reply->out->len = 0;
        api_reply_error(reply, call->request_id, &err);
    }
    api_buffer_free(&w.ask.masks);
    api_buffer_free(&w.ask.position);
    api_ctx_reset(ctx);
}
