/*
 * api_answer.c - what several answers share: shapes, tensors, warnings, what is lent.
 * Not here: audit, cost, notes, rows (api_answer_<part>.c), single tensors.
 * Start reading at api_put_tensors.
 */
#include "api/api_answer.h"

/* X, X_kv and the default objects are the layer's picture, whatever is returned. */
static bool in_picture(enum attn_object o)
{
    return o == ATTN_X || o == ATTN_X_KV || ATTN_OBJECTS[o].by_default;
}

/* Shapes as answered of `objects` and of the layer's main objects, as far as this problem
   has them: {"X":[3,4], …} in dependency order. */
bool api_put_shapes(struct api_buffer *b, const struct attn_problem *p, uint32_t objects)
{
    bool ok = api_put_key(b, "shapes") && api_puts(b, "{");

    for (int o = 0; o < ATTN_OBJECT_COUNT && ok; o++) {
        struct attn_tensor shape;

        if (!(objects & ATTN_BIT(o)) && !in_picture((enum attn_object)o))
            continue;
        if (!attn_object_exists(p, (enum attn_object)o))
            continue;
        attn_object_shape(p, (enum attn_object)o, &shape);
        ok = api_put_key(b, ATTN_OBJECTS[o].name) && api_put_shape(b, &shape);
    }
    return ok && api_puts(b, "}");
}

/* "tensors":{…} of those `objects` that the trace holds, in dependency order. */
bool api_put_tensors(struct api_buffer *b, const struct api_request *r, uint32_t objects,
                     const struct attn_trace *trace)
{
    bool ok = api_put_key(b, "tensors") && api_puts(b, "{");

    for (int o = 0; o < ATTN_OBJECT_COUNT && ok; o++) {
        struct attn_tensor shape;

        if (!(objects & ATTN_BIT(o)) || !trace->t[o].p)
            continue;
        attn_object_shape(&r->p, (enum attn_object)o, &shape);
        ok = api_put_key(b, ATTN_OBJECTS[o].name) &&
             api_put_tensor(b, &trace->t[o], &shape, r->encoding);
    }
    return ok && api_puts(b, "}");
}

bool api_answer_tensor(struct api_work *w, const char *prefix, const char *name,
                       const struct attn_tensor *t, const struct attn_tensor *shape)
{
    if (w->file)
        return api_file_add(w->file, prefix, name, t, shape);
    return api_put_key(w->out, name) &&
           api_put_tensor_with(w->out, t, shape, w->r.encoding, &w->exec);
}

bool api_answer_tensors(struct api_work *w, const char *prefix, uint32_t objects,
                        const struct attn_trace *trace)
{
    bool ok = w->file || (api_put_key(w->out, "tensors") && api_puts(w->out, "{"));

    for (int o = 0; o < ATTN_OBJECT_COUNT && ok; o++) {
        struct attn_tensor shape;

        if (!(objects & ATTN_BIT(o)) || !trace->t[o].p)
            continue;
        attn_object_shape(&w->r.p, (enum attn_object)o, &shape);
        ok = api_answer_tensor(w, prefix, ATTN_OBJECTS[o].name, &trace->t[o], &shape);
    }
    return ok && (w->file || api_puts(w->out, "}"));
}

bool api_put_warnings(struct api_buffer *b, const struct api_request *r)
{
    bool ok = api_put_key(b, "warnings") && api_puts(b, "[");

    for (size_t n = 0; n < r->warnings && ok; n++)
        ok = api_put_comma(b) && api_put_string(b, r->warning[n]);
    return ok && api_puts(b, "]");
}

bool api_fail_buffer(struct api_err *err)
{
    return api_fail(err, "out-of-memory", NULL,
                    "The answer does not fit into memory now.");
}

static void lend_threads(void *ctx, size_t count, attn_piece_fn *fn, void *arg)
{
    const struct api_call *call = ctx;

    call->parallel(call->pool, count, fn, arg);
}

static bool past_deadline(void *ctx)
{
    const struct api_call *call = ctx;

    return call->expired(call->expired_arg);
}

void api_exec_of(const struct api_call *call, struct attn_exec *exec)
{
    *exec = (struct attn_exec){
        .ctx = (void *)(uintptr_t)call,
        .parallel_for = call->parallel ? lend_threads : NULL,
        .stop = call->expired ? past_deadline : NULL,
    };
}
