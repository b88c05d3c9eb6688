/*
 * fuzz_lift.c - libFuzzer target: the scanner against jansson reading the same bytes.
 * Not here: what fields mean (fuzz_request.c).
 * Start reading at LLVMFuzzerTestOneInput.
 */
#include "api/api_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void stop(const char *what, const struct api_err *err, const json_error_t *e)
{
    fprintf(stderr, "%s\nours: %s %s\njansson: %s\n", what,
            err->set ? err->name : "accepts", err->detail, e->text);
    abort();
}

/* The tree with every span put back where it was lifted from. */
static json_t *restored(const struct api_doc *doc, const json_t *node)
{
    const struct api_span *span = api_doc_span(doc, node);
    json_t *copy, *value;
    const char *key;
    size_t n;

    if (span != NULL && span->is_string)
        return json_stringn(span->begin, (size_t)(span->end - span->begin));
    if (span != NULL)
        return json_loadb(span->begin, (size_t)(span->end - span->begin), 0, NULL);
    if (json_is_array(node)) {
        copy = json_array();
        json_array_foreach(node, n, value)
            json_array_append_new(copy, restored(doc, value));
        return copy;
    }
    if (!json_is_object(node))
        return json_incref((json_t *)node);
    copy = json_object();
    json_object_foreach((json_t *)node, key, value)
        json_object_set_new(copy, key, restored(doc, value));
    return copy;
}

/* What jansson takes, we take, unless it is too deep or too much: the same tree. */
static void compare(const struct api_doc *doc, const struct api_err *err,
                    const json_t *whole, const json_error_t *e)
{
    json_t *again;

    if (err->set) {
        if (whole != NULL && json_is_object(whole) &&
            strcmp(err->name, "too-deep") != 0 && strcmp(err->name, "too-large") != 0)
            stop("only jansson accepts", err, e);
        return;
    }
    if (whole == NULL) {
        /* Inside a lifted array these are found when its values are read. */
        if (json_error_code(e) != json_error_numeric_overflow &&
            json_error_code(e) != json_error_null_character &&
            strstr(e->text, "Unicode") == NULL)
            stop("only we accept", err, e);
        return;
    }
    again = restored(doc, doc->root);
    if (!json_equal(again, whole))
        stop("two trees", err, e);
    json_decref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct api_limits limits = {.memory_max_bytes = 1 << 20};
    static struct api_ctx *ctx;
    struct api_err err = {0};
    struct api_doc doc;
    json_error_t e = {0};
    json_t *whole;

    if (ctx == NULL)
        ctx = api_ctx_new(&limits);
    /* jansson 2.14 takes a zero byte for white space after a number; JSON does not. */
    if (size > 0 && memchr(data, 0, size) != NULL)
        return 0;
    whole = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
                       &e);
    api_doc_open(ctx, (const char *)data, size, &doc, &err);
    compare(&doc, &err, whole, &e);
    if (!err.set)
        api_doc_close(&doc);
    json_decref(whole);
    api_ctx_reset(ctx);
    return 0;
}
