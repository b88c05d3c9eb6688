/*
 * api_doc.c - the body as a small tree (jansson) beside the spans that were lifted out of
 * it.
 * Not here: the grammar of the body (api_lift.c), what its fields mean (api_request*.c).
 * Start reading at api_doc_open.
 */
#include "api/api_private.h"

#include <stdio.h>
#include <string.h>

/* The byte of the body that byte `at` of the reduced text came from. */
static size_t original_place(const struct api_ctx *ctx, size_t spans, const char *body,
                             size_t at)
{
    const char *from = body;
    char mark[32];

    for (size_t n = 0; n < spans; n++) {
        const struct api_span *span = &ctx->span[n];
        const char *cut = span->is_string ? span->begin - 1 : span->begin;
        const size_t before = (size_t)(cut - from);
        const size_t width = (size_t)snprintf(mark, sizeof mark, "[%zu]", n);

        if (at < before + width)
            return (size_t)(from - body) + (at < before ? at : before);
        at -= before + width;
        from = span->is_string ? span->end + 1 : span->end;
    }
    return (size_t)(from - body) + at;
}

/* Back from where jansson stopped to where the number begins. */
static size_t number_begin(const char *body, size_t at)
{
    while (at > 0 && strchr("0123456789+-.eE", body[at - 1]) != NULL &&
           body[at - 1] != '\0')
        at--;
    return at;
}

/* The grammar is right by now: what remains is what jansson refuses beyond it. */
static bool fail_tree(struct api_ctx *ctx, size_t spans, const char *body, size_t len,
                      const json_error_t *e, struct api_err *err)
{
    size_t at =
        original_place(ctx, spans, body, e->position > 0 ? (size_t)e->position : 0);
    char pointer[API_POINTER_MAX];

    if (json_error_code(e) == json_error_out_of_memory)
        return api_fail(err, "out-of-memory", NULL, "No memory to read the body.");
    if (json_error_code(e) == json_error_numeric_overflow)
        at = number_begin(body, at);
    api_lift_pointer(ctx, body, len, at, pointer);
    switch (json_error_code(e)) {
    case json_error_duplicate_key:
        return api_fail_at(err, "duplicate-key", pointer, body, at,
                           "this name stands twice in one object");
    case json_error_numeric_overflow:
        return api_fail_at(err, "number-out-of-range", pointer, body, at,
                           "this number is too large to be held");
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return api_fail_at(err, "not-json", pointer, body, at,
                           "names and texts with \\u0000 are not taken");
    default:
        return api_fail_at(err, "not-json", pointer, body, at,
                           "this text is not valid Unicode");
    }
}

bool api_doc_open(struct api_ctx *ctx, const char *body, size_t len, struct api_doc *doc,
                  struct api_err *err)
{
    json_error_t e;

    *doc = (struct api_doc){0};
    if (len == 0)
        return api_fail(err, "not-json", "",
                        "The body is empty; it must be a JSON object.");
    if (!api_lift(ctx, body, len, &doc->span_count, err))
        return false;
    doc->span = ctx->span;
    doc->root = json_loadb(ctx->reduced.p, ctx->reduced.len,
                           JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (doc->root == NULL)
        return fail_tree(ctx, doc->span_count, body, len, &e, err);
    if (json_is_object(doc->root))
        return true;
    api_doc_close(doc);
    return api_fail(err, "not-json", "",
                    "The body must be a JSON object, not another value.");
}

void api_doc_close(struct api_doc *doc)
{
    json_decref(doc->root);
    *doc = (struct api_doc){0};
}

const struct api_span *api_doc_span(const struct api_doc *doc, const json_t *node)
{
    const json_t *mark = json_array_size(node) == 1 ? json_array_get(node, 0) : NULL;

    if (!json_is_integer(mark))
        return NULL;
    return &doc->span[json_integer_value(mark)];
}

json_t *api_doc_tree(const struct api_doc *doc, const json_t *node, const char *pointer,
                     size_t max_leaves, struct api_err *err)
{
    const struct api_span *span = api_doc_span(doc, node);
    json_error_t e;
    json_t *tree;

    if (span == NULL || span->is_string) {
        api_fail(err, "wrong-type", pointer, "A list is expected here.");
        return NULL;
    }
    if (span->leaves > max_leaves) {
        api_fail_numbers(err, "bad-value", pointer, NULL, max_leaves, span->leaves,
                         "The list has %zu entries; at most %zu are possible here.",
                         span->leaves, max_leaves);
        return NULL;
    }
    tree = json_loadb(span->begin, (size_t)(span->end - span->begin), 0, &e);
    if (tree != NULL)
        return tree;
    if (json_error_code(&e) == json_error_out_of_memory)
        api_fail(err, "out-of-memory", NULL, "No memory to read the body.");
    else if (json_error_code(&e) == json_error_numeric_overflow)
        api_fail(err, "number-out-of-range", pointer,
                 "A number is too large to be held.");
    else
        api_fail(err, "not-json", pointer, "The list cannot be read: %s.", e.text);
    return NULL;
}
