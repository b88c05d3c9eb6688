/*
 * test_api_buffer.c - bytes that grow, and JSON strings of any bytes.
 * Not here: floats (test_api_number.c, test_api_fact.c), tensors (test_api_write.c).
 * Start reading at written_as_slowly.
 */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *string_of(struct api_buffer *b, const char *text)
{
    b->len = 0;
    cr_assert(api_put_string(b, text) && api_put(b, "", 1));
    return b->p;
}

Test(api_buffer, grows_and_keeps_what_was_put)
{
    struct api_buffer b = {0};

    for (int n = 0; n < 10000; n++)
        cr_assert(api_puts(&b, "abc"));
    cr_assert(b.len == 30000 && b.cap >= b.len);
    for (size_t n = 0; n < b.len; n++)
        cr_assert(b.p[n] == "abc"[n % 3], "byte %zu", n);
    api_buffer_trim(&b, 100);
    cr_expect(b.cap == 100 && b.len == 100 && memcmp(b.p, "abcabc", 6) == 0);
    api_buffer_trim(&b, 0);
    cr_expect(b.p == NULL && b.cap == 0);
}

Test(api_buffer, refuses_what_no_memory_holds)
{
    struct api_buffer b = {0};

    cr_assert(api_puts(&b, "x"));
    cr_expect(!api_buffer_reserve(&b, SIZE_MAX) && !api_buffer_reserve(&b, SIZE_MAX / 2));
    cr_expect(b.len == 1 && b.p[0] == 'x');
    api_buffer_free(&b);
}

Test(api_buffer, escapes_what_json_forbids)
{
    struct api_buffer b = {0};

    cr_expect_str_eq(string_of(&b, ""), "\"\"");
    cr_expect_str_eq(string_of(&b, "a\"b\\c/"), "\"a\\\"b\\\\c/\"");
    cr_expect_str_eq(string_of(&b, "\b\f\n\r\t"), "\"\\b\\f\\n\\r\\t\"");
    cr_expect_str_eq(string_of(&b, "\x01\x1f\x7f"), "\"\\u0001\\u001f\\u007f\"");
    cr_expect_str_eq(string_of(&b, "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
                     "\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\"");
    api_buffer_free(&b);
}

/* Every string of 1 to 3 hostile bytes comes out as JSON that another reader takes. */
Test(api_buffer, any_bytes_become_valid_json)
{
    static const unsigned char BYTES[] = {0x01, '"',  '\\', 'a',  0x7F, 0x80,
                                          0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xA0,
                                          0xEF, 0xF0, 0xF4, 0x90, 0xF5, 0xFF};
    const size_t count = sizeof BYTES;
    struct api_buffer b = {0};

    for (size_t n = 0; n < count * count * count; n++) {
        const char text[] = {(char)BYTES[n % count], (char)BYTES[n / count % count],
                             (char)BYTES[n / count / count], '\0'};
        json_t *json = json_loads(string_of(&b, text), JSON_DECODE_ANY, NULL);

        cr_assert(json != NULL, "%02x %02x %02x gave %s", BYTES[n % count],
                  BYTES[n / count % count], BYTES[n / count / count], b.p);
        json_decref(json);
    }
    api_buffer_free(&b);
}

/* The text between the quotes of a JSON string, byte by byte. */
static size_t slowly_escaped(char *out, const char *text, size_t len)
{
    const char *const end = text + len;
    char *const first = out;

    while (text < end) {
        const unsigned char c = (unsigned char)*text;
        const size_t n = api_utf8_length(text, end);

        if (c >= 0x80 && n > 0) {
            memcpy(out, text, n);
            out += n;
            text += n;
            continue;
        }
        if (c >= 0x80)
            out = stpcpy(out, "\xEF\xBF\xBD");
        else if (c == '"' || c == '\\')
            out += sprintf(out, "\\%c", c);
        else if (c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t')
            out += sprintf(out, "\\%c", "btn?fr"[c - '\b']);
        else if (c < 0x20 || c == 0x7F)
            out += sprintf(out, "\\u%04x", c);
        else
            *out++ = *text;
        text++;
    }
    return (size_t)(out - first);
}

enum { WIDE = 50, WRITTEN_MAX = 6 * WIDE + 2 };

/* Text and room in memory of their own sizes, so that a sanitizer sees any byte read or
   written beside them. */
static void written_as_slowly(const char *bytes, size_t len)
{
    char want[WRITTEN_MAX + 1] = "\"", *text = malloc(len + 1);
    const size_t inside = slowly_escaped(want + 1, bytes, len);
    struct api_buffer string = {0}, escaped = {0};

    want[inside + 1] = '"';
    memcpy(text, bytes, len);
    text[len] = '\0';
    string.cap = inside + 2;
    string.p = malloc(string.cap);
    cr_assert(api_put_string(&string, text));
    cr_assert(string.len == inside + 2 && memcmp(string.p, want, string.len) == 0,
              "%zu bytes: %.*s became %.*s", len, (int)len, bytes, (int)string.len,
              string.p);
    text = realloc(text, len + (len == 0));
    escaped.cap = inside + (inside == 0);
    escaped.p = malloc(escaped.cap);
    cr_assert(api_put_escaped(&escaped, text, len));
    cr_assert(escaped.len == inside && memcmp(escaped.p, want + 1, inside) == 0,
              "%zu bytes: %.*s became %.*s", len, (int)len, bytes, (int)escaped.len,
              escaped.p);
    free(text);
    api_buffer_free(&string);
    api_buffer_free(&escaped);
}

/* Sixteen bytes are looked at together: every length around them, and every byte that
   needs care at every place. */
Test(api_buffer, what_is_written_does_not_depend_on_lengths_and_places)
{
    static const char *const CHARACTERS[] = {"\xC3\xA9", "\xE2\x82\xAC",
                                             "\xF0\x9F\x98\x80", "\\\"", "\x7F\x80"};
    char text[WIDE] = "";

    for (size_t len = 0; len <= WIDE; len++) {
        for (size_t k = 0; k < len; k++)
            text[k] = (char)(' ' + 3 + k % 56); /* from # on, and all before \ */
        written_as_slowly(text, len);
        for (size_t at = 0; at < len; at++) {
            const char plain = text[at];

            for (unsigned c = 1; c < 256; c++) {
                text[at] = (char)c;
                written_as_slowly(text, len);
            }
            text[at] = plain;
        }
        for (size_t n = 0; n < API_COUNT(CHARACTERS); n++)
            for (size_t at = 0; at + strlen(CHARACTERS[n]) <= len; at++) {
                char other[WIDE];

                memcpy(other, text, len);
                memcpy(other + at, CHARACTERS[n], strlen(CHARACTERS[n]));
                written_as_slowly(other, len);
            }
    }
}

Test(api_buffer, knows_utf8)
{
    static const struct {
        const char *text;
        size_t length;
    } ROWS[] = {
        {"a", 1},
        {"\xC3\xA9", 2},
        {"\xE2\x82\xAC", 3},
        {"\xF0\x9F\x98\x80", 4},
        {"\xC3", 0},
        {"\xC0\x80", 0},
        {"\xE0\x80\x80", 0},
        {"\xED\xA0\x80", 0},
        {"\xF4\x90\x80\x80", 0},
        {"\xF5\x80\x80\x80", 0},
        {"\x80", 0},
        {"\xE2\x82", 0},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++)
        cr_expect(api_utf8_length(ROWS[n].text, ROWS[n].text + strlen(ROWS[n].text)) ==
                      ROWS[n].length,
                  "row %zu", n);
}

Test(api_buffer, cuts_before_a_character_that_is_not_whole)
{
    static const struct {
        const char *text;
        size_t most, whole;
    } ROWS[] = {
        {"", 4, 0},
        {"abc", 2, 2},
        {"abc", 9, 3},
        {"a\xC3\xA9", 2, 1},
        {"a\xC3\xA9", 3, 3},
        {"\xE2\x82\xAC", 1, 0},
        {"\xE2\x82\xAC", 2, 0},
        {"\xE2\x82\xAC", 3, 3},
        {"\xC3\xA9\xF0\x9F\x98\x80", 5, 2},
        {"\xC3\xA9\xF0\x9F\x98\x80", 6, 6},
        {"\xF0\x9F\x98\x80z", 5, 5},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++)
        cr_expect(api_utf8_cut(ROWS[n].text, ROWS[n].most) == ROWS[n].whole, "row %zu",
                  n);
}
