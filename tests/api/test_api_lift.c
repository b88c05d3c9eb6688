/* test_api_lift.c - what is lifted, what stays, and where bodies are wrong. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct api_limits LIMITS = {.memory_max_bytes = 1 << 20};
static struct api_ctx *ctx;
static struct api_err err;
static size_t spans;

static void open_context(void)
{
    ctx = api_ctx_new(&LIMITS);
}

static void close_context(void)
{
    api_ctx_free(ctx);
}

TestSuite(api_lift, .init = open_context, .fini = close_context);

static bool lift(const char *body)
{
    err = (struct api_err){0};
    return api_lift(ctx, body, strlen(body), &spans, &err);
}

static void reduces(const char *body, const char *want, size_t count)
{
    cr_assert(lift(body), "%s: %s", body, err.detail);
    cr_expect(ctx->reduced.len == strlen(want) &&
                  memcmp(ctx->reduced.p, want, ctx->reduced.len) == 0,
              "%s became %.*s", body, (int)ctx->reduced.len, ctx->reduced.p);
    cr_expect(spans == count, "%s: %zu spans", body, spans);
}

static void fails(const char *body, const char *name, const char *pointer,
                  const char *place)
{
    cr_assert(!lift(body), "%s was taken", body);
    cr_expect_str_eq(err.name, name);
    cr_expect(strcmp(err.pointer, pointer) == 0, "%s: at %s", body, err.pointer);
    cr_expect(strstr(err.detail, place) != NULL, "%s: %s", body, err.detail);
}

Test(api_lift, arrays_without_objects_are_lifted_whole)
{
    reduces("{\"a\":[1,2],\"b\":3}", "{\"a\":[0],\"b\":3}", 1);
    reduces("{\"a\":[[1,[2]],[]],\"b\":[\"x\",null]}", "{\"a\":[0],\"b\":[1]}", 2);
    reduces("{\"a\":[]}", "{\"a\":[0]}", 1);
    reduces("[1]", "[0]", 1);
    cr_expect(ctx->span[0].end - ctx->span[0].begin == 3);
}

Test(api_lift, an_array_of_the_client_cannot_pass_for_a_span)
{
    reduces("{\"a\":[0],\"b\":[7]}", "{\"a\":[0],\"b\":[1]}", 2);
}

Test(api_lift, arrays_with_an_object_stay_and_lose_what_holds_none)
{
    reduces("{\"a\":[{\"b\":1}]}", "{\"a\":[{\"b\":1}]}", 0);
    reduces("{\"a\":[{\"b\":[1,2]},[3]]}", "{\"a\":[{\"b\":[0]},[1]]}", 2);
    reduces("[[1,2],[3],{\"b\":[4]},[[5]]]", "[[0],[1],{\"b\":[2]},[3]]", 4);
    reduces("[[[1],[[2],{}]],[3]]", "[[[0],[[1],{}]],[2]]", 3);
}

Test(api_lift, long_plain_strings_are_lifted_but_names_are_not)
{
    char body[1024], want[1024], text[257];

    memset(text, 'A', 256);
    text[256] = '\0';
    snprintf(body, sizeof body, "{\"s\":\"%s\"}", text);
    reduces(body, "{\"s\":[0]}", 1);
    cr_expect(ctx->span[0].is_string && ctx->span[0].end - ctx->span[0].begin == 256);
    snprintf(body, sizeof body, "{\"%s\":1}", text);
    reduces(body, body, 0);
    snprintf(body, sizeof body, "{\"s\":\"%s\\n\"}", text);
    reduces(body, body, 0);
    snprintf(body, sizeof body, "{\"s\":\"%.255s\"}", text);
    reduces(body, body, 0);
    snprintf(body, sizeof body, "{\"s\":[\"%s\",{}]}", text);
    snprintf(want, sizeof want, "{\"s\":[[0],{}]}");
    reduces(body, want, 1);
}

Test(api_lift, says_line_column_byte_and_pointer)
{
    fails("{\"a\":\n\n [1,\n  2,,3]}", "not-json", "/a", "line 4, column 5 (byte 16)");
    fails("{\"\xC3\xA9\":x}", "not-json", "/\xC3\xA9", "line 1, column 6 (byte 6)");
    fails("{\"inputs\":{\"X\":[[1,2],[3,NaN]]}}", "not-json", "/inputs/X/1/1",
          "(byte 25)");
    fails("{\"a\":1", "not-json", "", "ends");
    fails("{} {}", "not-json", "", "(byte 3)");
}

Test(api_lift, is_strict)
{
    static const char *const BAD[] = {
        "",
        "{",
        "}",
        "{]",
        "[}",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":1,}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[01]",
        "[+1]",
        "[1.]",
        "[.5]",
        "[0x10]",
        "[1e]",
        "[tru]",
        "[True]",
        "[nul]",
        "[NaN]",
        "[Infinity]",
        "[-]",
        "[\"a]",
        "[\"\\x\"]",
        "[\"\\u12g4\"]",
        "[\"\x01\"]",
        "[\"\xff\"]",
        "[\"\xC0\x80\"]",
        "//\n{}",
        "\xEF\xBB\xBF{}",
        "[1]]",
        "[\"\t\"]",
        "[\"\\",
        "[\"\\u00",
    };

    for (size_t n = 0; n < API_COUNT(BAD); n++) {
        cr_expect(!lift(BAD[n]), "%s was taken", BAD[n]);
        cr_expect(err.set && strcmp(err.name, "not-json") == 0, "%s: %s", BAD[n],
                  err.name);
    }
}

Test(api_lift, the_end_of_the_body_is_respected)
{
    err = (struct api_err){0};
    cr_expect(!api_lift(ctx, "[true]", 3, &spans, &err));
    err = (struct api_err){0};
    cr_expect(!api_lift(ctx, "[12]", 2, &spans, &err));
    err = (struct api_err){0};
    cr_expect(!api_lift(ctx, "\"\xC3\xA9\"", 2, &spans, &err));
}

static char *nested(const char *open, const char *inside, const char *close, size_t depth)
{
    const size_t width = strlen(open) + strlen(close);
    char *text = malloc(depth * width + strlen(inside) + 1), *p = text;

    for (size_t n = 0; n < depth; n++)
        p = stpcpy(p, open);
    p = stpcpy(p, inside);
    for (size_t n = 0; n < depth; n++)
        p = stpcpy(p, close);
    return text;
}

Test(api_lift, deep_nesting_is_refused_at_a_fixed_depth)
{
    static const struct {
        const char *open, *inside, *close;
        size_t depth;
        bool taken;
    } ROWS[] = {
        {"[", "", "]", 128, true},          {"[", "", "]", 129, false},
        {"{\"a\":", "1", "}", 128, true},   {"{\"a\":", "1", "}", 129, false},
        {"[", "", "]", 100000, false},      {"[{\"a\":", "1", "}]", 64, true},
        {"[{\"a\":", "1", "}]", 65, false},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        char *text = nested(ROWS[n].open, ROWS[n].inside, ROWS[n].close, ROWS[n].depth);

        cr_expect(lift(text) == ROWS[n].taken, "row %zu: %s", n, err.detail);
        cr_expect(ROWS[n].taken || strcmp(err.name, "too-deep") == 0, "row %zu", n);
        free(text);
    }
}

Test(api_lift, many_small_objects_are_refused_before_they_cost_memory)
{
    char *text = nested("{},", "{}", "", 70000), *body = malloc(strlen(text) + 3);

    sprintf(body, "[%s]", text);
    cr_expect(!lift(body) && strcmp(err.name, "too-large") == 0, "%s", err.detail);
    free(text);
    free(body);
}

Test(api_lift, long_names_and_escaped_texts_have_a_limit)
{
    const struct {
        size_t bytes;
        bool taken;
    } ROWS[] = {{(15 << 20), true}, {(17 << 20), false}};

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        char *body = malloc(ROWS[n].bytes + 8);

        memset(body, 'k', ROWS[n].bytes);
        memcpy(body, "{\"", 2);
        strcpy(body + ROWS[n].bytes, "\":1}");
        cr_expect(lift(body) == ROWS[n].taken, "row %zu: %s", n, err.detail);
        cr_expect(ROWS[n].taken || strcmp(err.name, "too-large") == 0, "row %zu", n);
        free(body);
    }
}

/* Going back for a late object must not be paid for again at every level. */
Test(api_lift, time_is_linear_in_the_worst_case)
{
    double ms[2];

    for (int n = 0; n < 2; n++) {
        const size_t count = (size_t)500000 << n;
        char *inside = nested("1,", "{}", "", count),
             *body = malloc(strlen(inside) + 200);
        double start;

        sprintf(body, "[[[[[[[[%s]]]]]]]]", inside);
        start = api_now_ms();
        lift(body);
        ms[n] = api_now_ms() - start;
        free(inside);
        free(body);
    }
    cr_expect(ms[1] < 10 * ms[0] + 50, "%g ms for half, %g ms for all", ms[0], ms[1]);
}
