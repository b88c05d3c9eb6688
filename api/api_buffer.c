/*
 * api_buffer.c - bytes that grow, and the small pieces of JSON that are written into
 * them.
 * Not here: tensors in answers (api_write.c), digits of floats (api_number_write.cc).
 * Start reading at api_buffer_reserve, then api_put_string.
 */
#include "api/api_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_LEAST = 4096 };

bool api_buffer_reserve(struct api_buffer *b, size_t more)
{
    size_t cap = b->cap < BUFFER_LEAST ? BUFFER_LEAST : b->cap;
    char *p;

    if (more <= b->cap - b->len)
        return true;
    if (more > SIZE_MAX / 2 - b->len)
        return false;
    while (cap < b->len + more)
        cap *= 2;
    p = realloc(b->p, cap);
    if (p == NULL)
        return false;
    b->p = p;
    b->cap = cap;
    return true;
}

void api_buffer_trim(struct api_buffer *buffer, size_t keep_bytes)
{
    char *p;

    if (buffer->cap <= keep_bytes)
        return;
    if (keep_bytes == 0) {
        api_buffer_free(buffer);
        return;
    }
    p = realloc(buffer->p, keep_bytes);
    if (p == NULL)
        return;
    buffer->p = p;
    buffer->cap = keep_bytes;
    if (buffer->len > keep_bytes)
        buffer->len = keep_bytes;
}

void api_buffer_free(struct api_buffer *buffer)
{
    free(buffer->p);
    *buffer = (struct api_buffer){0};
}

bool api_put(struct api_buffer *b, const char *text, size_t len)
{
    if (!api_buffer_reserve(b, len))
        return false;
    if (len > 0)
        memcpy(b->p + b->len, text, len);
    b->len += len;
    return true;
}

bool api_puts(struct api_buffer *b, const char *text)
{
    return api_put(b, text, strlen(text));
}

/* Table 3-7 of the Unicode Standard: shortest forms only, no surrogates, nothing past
   U+10FFFF. */
size_t api_utf8_length(const char *text, const char *end)
{
    const unsigned char *s = (const unsigned char *)text;
    const size_t room = (size_t)(end - text);
    const unsigned char c = s[0];
    size_t n = c < 0x80   ? 1
               : c < 0xC2 ? 0
               : c < 0xE0 ? 2
               : c < 0xF0 ? 3
               : c < 0xF5 ? 4
                          : 0;

    if (n > room)
        return 0;
    for (size_t k = 1; k < n; k++)
        if ((s[k] & 0xC0) != 0x80)
            return 0;
    if (n > 2 && ((c == 0xE0 && s[1] < 0xA0) || (c == 0xED && s[1] > 0x9F) ||
                  (c == 0xF0 && s[1] < 0x90) || (c == 0xF4 && s[1] > 0x8F)))
        return 0;
    return n;
}

/* One byte that cannot stand in a JSON string as it is. */
static bool put_escape(struct api_buffer *b, unsigned char c)
{
    static const char NAMED[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    char text[8];

    for (size_t k = 0; k + 1 < sizeof NAMED; k += 2)
        if (c == (unsigned char)NAMED[k]) {
            text[0] = '\\';
            text[1] = NAMED[k + 1];
            return api_put(b, text, 2);
        }
    return api_put(b, text, (size_t)snprintf(text, sizeof text, "\\u%04x", c));
}

bool api_put_string(struct api_buffer *b, const char *text)
{
    const char *p = text, *end = text + strlen(text), *plain = text;
    bool ok = api_put(b, "\"", 1);

    while (ok && p < end) {
        const unsigned char c = (unsigned char)*p;
        const bool escape = c < 0x20 || c == '"' || c == '\\' || c == 0x7F;
        const size_t n = escape ? 1 : api_utf8_length(p, end);

        if (!escape && n > 0) {
            p += n;
            continue;
        }
        ok = api_put(b, plain, (size_t)(p - plain)) &&
             (escape ? put_escape(b, c) : api_puts(b, "\xEF\xBF\xBD"));
        plain = ++p;
    }
    return ok && api_put(b, plain, (size_t)(p - plain)) && api_put(b, "\"", 1);
}

bool api_put_double(struct api_buffer *b, double x)
{
    if (!api_buffer_reserve(b, API_NUMBER_MAX))
        return false;
    b->len += api_number_write_f64(b->p + b->len, x);
    return true;
}

bool api_put_u64(struct api_buffer *b, uint64_t x)
{
    char text[24];

    return api_put(b, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, x));
}
