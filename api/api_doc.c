/*
 * api_doc.c - the body as a small tree (jansson) beside the spans that were lifted out of
 * it.
 * Not here: the grammar of the body (api_lift.c), what its fields mean (api_request*.c).
 * Start reading at api_doc_open.
 */
#include "api/api_private.h"

#include <stdio.h>
#include <stdlib.h>
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

/* The grammar is right by now, so this is all that jansson can still refuse; whatever
   else it reports is memory that ran out, which it does not always call by that name. */
static const struct refusal_row {
    enum json_error_code code;
    const char *begins; /* how its text begins */
    const char *name, *what;
} REFUSALS[] = {
    {json_error_duplicate_key, "", "duplicate-key",
     "this name stands twice in one object"},
    {json_error_numeric_overflow, "", "number-out-of-range",
     "this number is too large to be held"},
    {json_error_null_character, "", "not-json",
     "names and texts with \\u0000 are not taken"},
    {json_error_null_byte_in_key, "", "not-json",
     "names and texts with \\u0000 are not taken"},
    {json_error_invalid_syntax, "invalid Unicode", "not-json",
     "this text is not valid Unicode"},
};

/* Where no memory is left jansson drops what it cannot keep of a text or number, and goes
   on: only its allocator knows. */
static _Thread_local bool memory_out;

static void *tree_malloc(size_t bytes)
{
    void *p = malloc(bytes);

    memory_out = memory_out || p == NULL;
    return p;
}

void api_doc_init(void)
{
    json_set_alloc_funcs(tree_malloc, free);
}

/* The tree of a text; NULL with why in *e, or with memory_out set. */
static json_t *tree_load(const char *text, size_t len, size_t flags, json_error_t *e)
{
    json_t *tree;

    memory_out = false;
    tree = json_loadb(text, len, flags, e);
    if (!memory_out)
        return tree;
    json_decref(tree);
    return NULL;
}

static const struct refusal_row *refusal_of(const json_error_t *e)
{
    if (memory_out)
        return NULL;
    for (size_t n = 0; n < API_COUNT(REFUSALS); n++)
        if (json_error_code(e) == REFUSALS[n].code &&
            strncmp(e->text, REFUSALS[n].begins, strlen(REFUSALS[n].begins)) == 0)
            return &REFUSALS[n];
    return NULL;
}

static bool fail_memory(struct api_err *err)
{
    return api_fail(err, "out-of-memory", NULL, "No memory is free to read the body.");
}

static bool fail_tree(struct api_ctx *ctx, size_t spans, const char *body, size_t len,
                      const json_error_t *e, struct api_err *err)
{
    const struct refusal_row *row = refusal_of(e);
    size_t at =
        original_place(ctx, spans, body, e->position > 0 ? (size_t)e->position : 0);
    char pointer[API_POINTER_MAX];

    if (row == NULL)
        return fail_memory(err);
    at = api_lift_token(ctx, body, len, at, pointer);
    return api_fail_at(err, row->name, pointer, body, at, row->what);
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
    doc->root = tree_load(ctx->reduced.p, ctx->reduced.len,
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
    json_decref(doc->text);
    *doc = (struct api_doc){0};
}

bool api_doc_name(const char *begin, const char *end, char name[API_POINTER_MAX])
{
    const size_t escape_max = strlen("\\u0041"), len = (size_t)(end - begin);
    json_error_t e;
    json_t *text;
    bool fits;

    if (len >= escape_max * API_POINTER_MAX)
        return false;
    text = tree_load(begin - 1, len + 2, JSON_DECODE_ANY, &e);
    fits = text != NULL && json_string_length(text) < API_POINTER_MAX;
    if (fits)
        memcpy(name, json_string_value(text), json_string_length(text) + 1);
    json_decref(text);
    return fits;
}

const struct api_span *api_doc_span(const struct api_doc *doc, const json_t *node)
{
    const json_t *mark = json_array_size(node) == 1 ? json_array_get(node, 0) : NULL;

    if (!json_is_integer(mark))
        return NULL;
    return &doc->span[json_integer_value(mark)];
}

json_t *api_doc_tree(const struct api_doc *doc, const json_t *node, const char *pointer,
                     size_t max_entries, struct api_err *err)
{
    const struct api_span *span = api_doc_span(doc, node);
    size_t entries;
    json_error_t e;
    json_t *tree;

    if (span == NULL || span->is_string || span->is_binary) {
        api_fail_type(err, pointer, "A list", api_type_name(doc, node));
        return NULL;
    }
    entries = span->leaves + span->arrays - 1;
    if (entries > max_entries) {
        api_fail_numbers(err, "bad-value", pointer, NULL, max_entries, entries,
                         "The list has %zu entries; at most %zu are possible here.",
                         entries, max_entries);
        return NULL;
    }
    tree = tree_load(span->begin, (size_t)(span->end - span->begin), 0, &e);
    if (tree != NULL)
        return tree;
    if (refusal_of(&e) != NULL)
        api_fail(err, refusal_of(&e)->name, pointer, "In this list: %s.",
                 refusal_of(&e)->what);
    else
        fail_memory(err);
    return NULL;
}
