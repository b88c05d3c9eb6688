/* test_api_doc.c - the tree beside its spans, and what jansson refuses beyond the
   grammar. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct api_limits LIMITS = {.memory_max_bytes = 1 << 20};
static struct api_ctx *ctx;
static struct api_doc doc;
static struct api_err err;

static bool open_doc(const char *body)
{
    if (ctx == NULL)
        ctx = api_ctx_new(&LIMITS);
    err = (struct api_err){0};
    return api_doc_open(ctx, body, strlen(body), &doc, &err);
}

static void fails(const char *body, const char *name, const char *pointer,
                  const char *place)
{
    cr_assert(!open_doc(body), "%s was taken", body);
    cr_expect(strcmp(err.name, name) == 0, "%s: %s", body, err.name);
    cr_expect(strcmp(err.pointer, pointer) == 0, "%s: at %s", body, err.pointer);
    cr_expect(strstr(err.detail, place) != NULL, "%s: %s", body, err.detail);
    cr_expect(doc.root == NULL);
}

Test(api_doc, a_body_is_an_object)
{
    fails("", "not-json", "", "empty");
    fails("[]", "not-json", "", "object");
    fails("[{}]", "not-json", "", "object");
    fails("\"x\"", "not-json", "", "object");
    fails("null", "not-json", "", "object");
    cr_assert(open_doc("{}"));
    api_doc_close(&doc);
}

Test(api_doc, finds_spans_and_trees)
{
    json_t *list;

    cr_assert(open_doc("{\"a\":[\"x\",2,[3]],\"b\":[{}],\"c\":1}"));
    cr_expect(api_doc_span(&doc, json_object_get(doc.root, "b")) == NULL);
    cr_expect(api_doc_span(&doc, json_object_get(doc.root, "c")) == NULL);
    cr_expect(api_doc_span(&doc, json_object_get(doc.root, "a")) == &doc.span[0]);
    list = api_doc_tree(&doc, json_object_get(doc.root, "a"), "/a", 4, &err);
    cr_assert(list != NULL && json_array_size(list) == 3);
    cr_expect_str_eq(json_string_value(json_array_get(list, 0)), "x");
    json_decref(list);
    cr_expect(api_doc_tree(&doc, json_object_get(doc.root, "a"), "/a", 3, &err) == NULL);
    cr_expect_str_eq(err.name, "bad-value");
    err = (struct api_err){0};
    cr_expect(api_doc_tree(&doc, json_object_get(doc.root, "c"), "/c", 9, &err) == NULL);
    cr_expect_str_eq(err.name, "wrong-type");
    api_doc_close(&doc);
}

Test(api_doc, places_are_those_of_the_original_body)
{
    fails("{\"a\":[[1,2],[3,4]],\"b\":{\"x\":[5],\"x\":6}}", "duplicate-key", "/b/x",
          "(byte 32)");
    fails("{\"a\":[1,2,3,4,5,6],\n \"b\":1e999}", "number-out-of-range", "/b",
          "line 2, column 6 (byte 25)");
    fails("{\"n\":99999999999999999999}", "number-out-of-range", "/n", "(byte 5)");
    fails("{\"a\":[[1]],\"s\":\"\\u0000\"}", "not-json", "/s", "u0000");
    fails("{\"s\":\"\\ud800\"}", "not-json", "/s", "Unicode");
}

Test(api_doc, duplicates_in_different_objects_are_fine)
{
    cr_assert(open_doc("{\"a\":{\"x\":1},\"b\":{\"x\":1},\"c\":[{\"x\":1},{\"x\":1}]}"));
    api_doc_close(&doc);
}

/* ---- memory ---- */

static size_t allocations_left;

static void *scarce_malloc(size_t size)
{
    if (allocations_left == 0)
        return NULL;
    allocations_left--;
    return malloc(size);
}

/* Whichever allocation fails, it is our memory that is out, not the body wrong. */
Test(api_doc, no_memory_is_no_fault_of_the_body)
{
    static const char BODY[] =
        "{\"inputs\":{\"X\":[[1,2]],\"text\":\"a longer text\"},\"n\":1.5,"
        "\"list\":[{\"a\":1,\"b\":2},{\"c\":null}]}";
    size_t n = 0;
    bool taken = false;

    json_set_alloc_funcs(scarce_malloc, free);
    for (; !taken && n < 1000; n++) {
        allocations_left = n;
        taken = open_doc(BODY);
        if (taken)
            api_doc_close(&doc);
        else
            cr_expect(strcmp(err.name, "out-of-memory") == 0, "after %zu: %s %s", n,
                      err.name, err.detail);
    }
    cr_expect(taken && n > 10, "%zu allocations", n);
}

/* ThreadSanitizer and AddressSanitizer bring a malloc of their own. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern void *__libc_malloc(size_t bytes);

static _Thread_local size_t until_failure; /* 0 = never */

void *malloc(size_t bytes)
{
    if (until_failure > 0 && --until_failure == 0)
        return NULL;
    return __libc_malloc(bytes);
}

Test(api_doc, nothing_is_shortened_where_memory_ends)
{
    static const char BODY[] = "{\"text of one\":\"0123456789012345678901234567890123456"
                               "78901234567890123\\n\",\"x\":0.12345678901234567890123}";
    size_t taken = 0;

    api_doc_init();
    cr_assert(open_doc(BODY));
    const size_t length =
        strlen(json_string_value(json_object_get(doc.root, "text of one")));

    api_doc_close(&doc);
    for (size_t n = 1; taken < 3; n++) {
        until_failure = n;
        const bool ok = open_doc(BODY);

        until_failure = 0;
        cr_expect(ok || strcmp(err.name, "out-of-memory") == 0, "%zu: %s", n, err.name);
        if (!ok)
            continue;
        taken++;
        cr_expect(json_string_length(json_object_get(doc.root, "text of one")) == length,
                  "%zu: %s", n,
                  json_string_value(json_object_get(doc.root, "text of one")));
        cr_expect(json_real_value(json_object_get(doc.root, "x")) ==
                  0.12345678901234567890123);
        api_doc_close(&doc);
    }
}
#endif
