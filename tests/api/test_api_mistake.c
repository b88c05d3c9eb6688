/*
 * test_api_mistake.c - what is said about a body that is not JSON: where, how to mend it.
 * Not here: which bodies are taken, and what is lifted out of them (test_api_lift.c).
 * Start reading at says, then the rows of any test.
 */
#include "api/api_private.h"
#include "api/api_mistake.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct api_limits LIMITS = {.memory_max_bytes = 1 << 20};
static struct api_ctx *ctx;
static struct api_err err;

static void open_context(void)
{
    ctx = api_ctx_new(&LIMITS);
}

static void close_context(void)
{
    api_ctx_free(ctx);
}

TestSuite(api_mistake, .init = open_context, .fini = close_context);

/* In memory of its own size, so that a sanitizer sees a byte read behind it. */
static void refused(const char *body, size_t len)
{
    char *own = malloc(len + (len == 0));
    struct api_doc doc;

    memcpy(own, body, len);
    err = (struct api_err){0};
    cr_assert(!api_doc_open(ctx, own, len, &doc, &err), "%s was taken", body);
    cr_expect_str_eq(err.name, "not-json");
    free(own);
}

struct row {
    const char *body, *pointer, *place, *says;
};

static void says(const struct row *rows, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        refused(rows[n].body, strlen(rows[n].body));
        cr_expect(strcmp(err.pointer, rows[n].pointer) == 0, "%s: at %s", rows[n].body,
                  err.pointer);
        cr_expect(strstr(err.detail, rows[n].place) != NULL, "%s: %s", rows[n].body,
                  err.detail);
        cr_expect(strstr(err.detail, rows[n].says) != NULL, "%s: %s", rows[n].body,
                  err.detail);
    }
}

Test(api_mistake, a_number_is_named_whole_and_written_as_it_should_be)
{
    static const struct row ROWS[] = {
        {"{\"X\":[[7,01]]}", "/X/0/1", "(byte 9)", "01 is no number of JSON: no digit"},
        {"{\"X\":[[7,01]]}", "/X/0/1", "(byte 9)", "; write 1."},
        {"{\"X\":[-007]}", "/X/0", "(byte 6)", "; write -7."},
        {"{\"X\":[1,00]}", "/X/1", "(byte 8)", "; write 0."},
        {"{\"X\":[1,+1]}", "/X/1", "(byte 8)", "plus sign; write 1."},
        {"{\"X\":[1,.5]}", "/X/1", "(byte 8)", "before the point; write 0.5."},
        {"{\"X\":[1,-.5]}", "/X/1", "(byte 8)", "; write -0.5."},
        {"{\"X\":[1.,2]}", "/X/0", "(byte 6)", "behind the point; write 1.0."},
        {"{\"X\":[3,1.e5]}", "/X/1", "(byte 8)", "; write 1.0e5."},
        {"{\"X\":[1_000,2]}", "/X/0", "(byte 6)", "; write 1000."},
        {"{\"X\":[1.5f]}", "/X/0", "(byte 6)", "; write 1.5."},
        {"{\"X\":[0x10]}", "/X/0", "(byte 6)",
         "0x10 is no number of JSON: a number is "
         "decimal."},
        {"{\"X\":[1e]}", "/X/0", "(byte 6)", "behind the e."},
        {"{\"X\":[1e+,2]}", "/X/0", "(byte 6)", "behind the e."},
        {"{\"X\":[-]}", "/X/0", "(byte 6)", "behind the sign."},
        {"{\"X\":[1,--1]}", "/X/1", "(byte 8)", "behind the sign."},
        {"{\"X\":[1.2.3]}", "/X/0", "(byte 6)",
         "1.2.3 is no number of JSON: a number has one "
         "point at most."},
        {"{\"X\":[12abc]}", "/X/0", "(byte 6)", ": no letter stands behind a number."},
        {"{\"X\":[1j]}", "/X/0", "(byte 6)", ": no letter stands behind a number."},
        {"{\"X\":[5px]}", "/X/0", "(byte 6)", ": no letter stands behind a number."},
        {"{\"X\":[1-2]}", "/X/0", "(byte 6)",
         ": a sign stands before a number, or behind its e."},
        {"{\"X\":[1e5+2]}", "/X/0", "(byte 6)", ": a sign stands before"},
        {"{\"X\":[1e5.5]}", "/X/0", "(byte 6)", ": an exponent is a whole number."},
        {"{\"X\":[1e5e5]}", "/X/0", "(byte 6)", ": a number has one exponent at most."},
        {"{\"X\":[1e]}", "/X/0", "(byte 6)", ": a digit must stand behind the e."},
        {"{\"X\":[1.5L]}", "/X/0", "(byte 6)",
         ": no letter stands behind a number; write 1.5."},
        {"{\"X\":{\"seed\":01}}", "/X/seed", "(byte 13)", "; write 1."},
        {"01", "", "(byte 0)", "; write 1."},
        {"{\"X\":[00000000000000000000000000000000000000000000000001]}", "/X/0",
         "(byte 6)", "0… is no number of JSON: no digit stands behind a leading 0."},
        {"{\"X\":[123456789012345678901234567890123456789.5.5]}", "/X/0", "(byte 6)",
         "9.… is no number of JSON: a number has one point at most."},
        {"{\"X\":[123456789012345678901234567890123456789e5x]}", "/X/0", "(byte 6)",
         "9e… is no number of JSON: no letter stands behind a number."},
        {"{\"X\":[123456789012345678901234567890123456789e,1]}", "/X/0", "(byte 6)",
         "9e is no number of JSON: a digit must stand behind the e."},
    };

    says(ROWS, API_COUNT(ROWS));
}

Test(api_mistake, words_of_other_languages_are_known)
{
    static const struct row ROWS[] = {
        {"{\"X\":[1,NaN]}", "/X/1", "(byte 8)", "write \"NaN\", a string"},
        {"{\"X\":[1,nan]}", "/X/1", "(byte 8)", "write \"NaN\", a string"},
        {"{\"X\":[Infinity]}", "/X/0", "(byte 6)", "write \"Infinity\", a string"},
        {"{\"X\":[-Infinity]}", "/X/0", "(byte 6)", "write \"-Infinity\", a string"},
        {"{\"X\":[1,-inf]}", "/X/1", "(byte 8)", "write \"-Infinity\", a string"},
        {"{\"X\":[True]}", "/X/0", "(byte 6)", "write true"},
        {"{\"X\":None}", "/X", "(byte 5)", "write null"},
        {"{\"X\":[1,...]}", "/X/1", "(byte 8)", "every value must be sent"},
        {"{\"X\":[(1,2)]}", "/X/0", "(byte 6)", "[ ], not in ( )"},
        {"{\"X\":['a']}", "/X/0", "(byte 6)", "double quotes"},
        {"{'X':1}", "", "(byte 1)", "double quotes"},
        {"{X:1}", "", "(byte 1)", "the name X"},
        {"{\"X\":1 // one\n}", "/X", "(byte 7)", "no comments"},
        {"{\"X\":[1,\u22125]}", "/X/1", "(byte 8)", "U+2212"},
        {"{\"X\":[1,\u00A05]}", "/X/1", "(byte 8)", "U+00A0"},
        {"{\"X\":[1\uFF0C2]}", "/X/0", "(byte 7)", "U+FF0C"},
    };

    says(ROWS, API_COUNT(ROWS));
}

Test(api_mistake, commas_and_brackets_name_what_is_there)
{
    static const struct row ROWS[] = {
        {"{\"X\":[[1,2],[3 4]]}", "/X/1/0", "(byte 15)", "comma is missing before 4"},
        {"{\"X\":[[1,2] [3,4]]}", "/X/0", "(byte 12)", "comma is missing before '['"},
        {"{\"X\":1 \"Y\":2}", "/X", "(byte 7)", "comma is missing"},
        {"{\"X\":[1,2,\n]}", "/X", "line 1, column 10 (byte 9)", "too many; remove it"},
        {"{\"X\":{\"a\":1, }}", "/X", "(byte 11)", "too many; remove it"},
        {"{\"X\":[1,,2]}", "/X", "(byte 8)", "behind another"},
        {"{\"X\":[,2]}", "/X", "(byte 6)", "a value is missing before ','"},
        {"{\"X\":}", "/X", "(byte 5)", "a value is missing before '}'"},
        {"{\"X\":[1,2", "/X", "(byte 9)", "the list that begins at line 1, column 6;"},
        {"{\"X\":[[1,2]", "/X", "(byte 11)", "column 6; it was cut short, or a ] is"},
        {"{\n \"X\":{\"a\":1", "/X", "(byte 13)", "the object that begins at line 2"},
        {"{\"X\":[1,2}", "/X", "(byte 9)", "} cannot end the list that begins"},
        {"{\"X\":{\"a\":1]", "/X", "(byte 11)", "] cannot end the object"},
        {"{\"X\":]}", "/X", "(byte 5)", "a value is missing before ']'"},
        {"{\"X\":{\"a\":]", "/X/a", "(byte 10)", "a value is missing before ']'"},
        {"{\"X\":{]", "/X", "(byte 6)", "] cannot end the object"},
        {"{\"X\":[}", "/X", "(byte 6)", "} cannot end the list"},
        {"{\"X\":[1,}", "/X", "(byte 8)", "} cannot end the list"},
        {"{\"X\":[\"a\":1]}", "/X/0", "(byte 9)", "belongs into an object"},
        {"{\"X\" 1}", "/X", "(byte 5)", "colon"},
        {"{} {}", "", "(byte 3)", "the end of the body"},
        {" \n", "", "(byte 2)", "blank"},
    };

    says(ROWS, API_COUNT(ROWS));
}

Test(api_mistake, names_are_read_before_they_stand_in_a_pointer)
{
    static const struct row ROWS[] = {
        {"{\"caf\\u00e9\":[1,,2]}", "/caf\u00e9", "(byte 16)", "behind another"},
        {"{\"a\\/b\":[1,,2]}", "/a~1b", "(byte 11)", "behind another"},
        {"{\"a\\\"\\\\~\":x}", "/a\"\\~0", "(byte 10)", "x"},
        {"{\"\\uD83D\\ude00\":{\"\\t\":[,]}}", "/\U0001F600/\t", "(byte 23)", "missing"},
        {"{\"a\":{\"\\ud800\":[1,,2]}}", "/a", "(byte 18)", "behind another"},
    };

    says(ROWS, API_COUNT(ROWS));
}

/* A name that a pointer has just room for, and one that is a byte longer. */
Test(api_mistake, a_name_without_room_in_the_pointer_leaves_what_is_around_it)
{
    char body[2048], want[2 * API_POINTER_MAX], name[API_POINTER_MAX + 1];

    memset(name, 'n', sizeof name);
    name[API_POINTER_MAX - 4] = '\0';
    snprintf(body, sizeof body, "{\"a\":{\"%s\":[1,,2]}}", name);
    refused(body, strlen(body));
    snprintf(want, sizeof want, "/a/%s", name);
    cr_expect_str_eq(err.pointer, want);
    name[API_POINTER_MAX - 4] = 'n';
    name[API_POINTER_MAX - 3] = '\0';
    snprintf(body, sizeof body, "{\"a\":{\"%s\":[1,,{}]}}", name);
    refused(body, strlen(body));
    cr_expect_str_eq(err.pointer, "/a");
    snprintf(body, sizeof body, "{\"a\":{\"%s\":{\"b\":x}}}", name);
    refused(body, strlen(body));
    cr_expect_str_eq(err.pointer, "/a");
}

/* Every character as \u0041: long in the body, short as a name. */
Test(api_mistake, a_name_is_as_long_as_what_its_escapes_say)
{
    char body[2048] = "{\"", want[API_POINTER_MAX] = "/";

    for (int n = 0; n < API_POINTER_MAX - 2; n++) {
        strcat(body, "\\u0041");
        strcat(want, "A");
    }
    strcat(body, "\":x}");
    refused(body, strlen(body));
    cr_expect_str_eq(err.pointer, want);
}

Test(api_mistake, what_the_tree_refuses_has_the_pointer_of_its_name)
{
    static const struct {
        const char *body, *name, *pointer;
    } ROWS[] = {
        {"{\"\\u00e9\":{\"a\\/b\":1,\"a/b\":2}}", "duplicate-key", "/\u00e9/a~1b"},
        {"{\"a\":{\"\\u00e9\":1e999}}", "number-out-of-range", "/a/\u00e9"},
    };
    struct api_doc doc;

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        err = (struct api_err){0};
        cr_assert(!api_doc_open(ctx, ROWS[n].body, strlen(ROWS[n].body), &doc, &err));
        cr_expect_str_eq(err.name, ROWS[n].name);
        cr_expect(strcmp(err.pointer, ROWS[n].pointer) == 0, "row %zu: at %s", n,
                  err.pointer);
    }
}

Test(api_mistake, texts_name_their_own_place)
{
    static const struct row ROWS[] = {
        {"{\"X\":\"abc", "/X", "(byte 5)", "no closing quote"},
        {"{\"X\":\"a\nb\"}", "/X", "(byte 7)", "control character"},
        {"{\"X\":\"C:\\dir\"}", "/X", "(byte 8)", "a backslash is written \\\\"},
        {"{\"X\":\"\\u12g4\"}", "/X", "(byte 6)", "four hexadecimal digits"},
        {"{\"X\":\"ab\\", "/X", "(byte 8)", "the body ends inside of this escape"},
        {"{\"X\":\"ab\\u00e", "/X", "(byte 8)", "the body ends inside of this escape"},
        {"{\"X\":\"ab\\\"", "/X", "(byte 5)", "no closing quote"},
        {"{\"X\\", "", "(byte 3)", "the body ends inside of this escape"},
        {"{\"X\":\"\xC3", "/X", "(byte 6)", "the body ends inside of this character"},
        {"{\"X\":\"\xE0", "/X", "(byte 6)", "the body ends inside of this character"},
        {"{\"X\":\"\xED\x9F", "/X", "(byte 6)", "the body ends inside of this character"},
        {"{\"X\":\"\xF4\x8F\xBF", "/X", "(byte 6)",
         "the body ends inside of this character"},
        {"{\"X\":\"\xF0\x80\xBF", "/X", "(byte 6)", "not UTF-8"},
        {"{\"X\":\"\xED\xA0", "/X", "(byte 6)", "not UTF-8"},
        {"{\"X\":\"\xC3\"", "/X", "(byte 6)", "not UTF-8"},
        {"{\"X\":\"\x80", "/X", "(byte 6)", "not UTF-8"},
        {"{\"X\":\"\xFF", "/X", "(byte 6)", "not UTF-8"},
        {"{\"X\":[{},\"\\u0000\"]}", "/X/1", "(byte 9)", "u0000"},
        {"{\"X\":[{},\"\\ud800\"]}", "/X/1", "(byte 9)", "Unicode"},
        {"{\"\xFF\":1}", "", "(byte 2)", "UTF-8"},
    };

    says(ROWS, API_COUNT(ROWS));
}

Test(api_mistake, other_codings_are_named_at_byte_0)
{
    static const struct {
        const char *body;
        size_t len;
        const char *says;
    } ROWS[] = {
        {"\xEF\xBB\xBF{}", 5,
         "byte order mark of UTF-8 (bytes EF BB BF); send it without"},
        {"\xEF\xBB\xBF", 3, "byte order mark of UTF-8"},
        {"\xFF\xFE{\0}\0", 6, "UTF-16 (byte order mark FF FE); encode it as UTF-8"},
        {"\xFE\xFF\0{\0}", 6, "UTF-16 (byte order mark FE FF); encode it as UTF-8"},
        {"{\0\"\0}\0", 6, "UTF-16, little end first"},
        {"\0{\0\"\0}", 6, "UTF-16, big end first"},
        {"\xFF\xFE\0\0{\0\0\0", 8, "UTF-32 (byte order mark FF FE 00 00)"},
        {"\0\0\xFE\xFF\0\0\0{", 8, "UTF-32 (byte order mark 00 00 FE FF)"},
        {"{\0\0\0}\0\0\0", 8, "UTF-32, little end first"},
        {"\x1F\x8B\x08\0", 4, "gzip"},
        {"\x28\xB5\x2F\xFD", 4, "zstd"},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        refused(ROWS[n].body, ROWS[n].len);
        cr_expect(strcmp(err.pointer, "") == 0, "row %zu: at %s", n, err.pointer);
        cr_expect(strstr(err.detail, "At line 1, column 1 (byte 0): ") == err.detail &&
                      strstr(err.detail, ROWS[n].says) != NULL,
                  "row %zu: %s", n, err.detail);
    }
}

/* Of all short texts: a number that can be read into what was written is one of JSON. */
Test(api_mistake, what_is_meant_is_always_json)
{
    static const char ALPHABET[] = "01.+-eE_fxL";
    const size_t letters = strlen(ALPHABET);
    char text[6], meant[API_MISTAKE_NUMBER_MAX + 4];

    for (size_t len = 1, count = letters; len <= sizeof text; len++, count *= letters)
        for (size_t n = 0; n < count; n++) {
            for (size_t k = 0, rest = n; k < len; k++, rest /= letters)
                text[k] = ALPHABET[rest % letters];
            if (api_number_end(text, text + len) == text + len)
                continue;
            cr_assert(api_mistake_number(text, len, meant) != NULL);
            cr_assert(meant[0] == '\0' || api_number_end(meant, meant + strlen(meant)) ==
                                              meant + strlen(meant),
                      "%.*s became %s", (int)len, text, meant);
        }
}
