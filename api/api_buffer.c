/*
 * api_buffer.c - bytes that grow, and the small pieces of JSON that are written into
 * them.
 * Not here: tensors in answers (api_write.c), digits of floats (api_number_write.cc,
 * api_fact.cc).
 * Start reading at api_buffer_grow, then api_put_string.
 */
#include "api/api_private.h"

#include <stdlib.h>

#include "api/api_fact.h"

enum { BUFFER_LEAST = 4096 };

bool api_buffer_grow(struct api_buffer *b, size_t more)
{
    size_t cap = b->cap < BUFFER_LEAST ? BUFFER_LEAST : b->cap;
    char *p;

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

size_t api_utf8_cut(const char *text, size_t most)
{
    const size_t len = strnlen(text, most);
    size_t last = len; /* where the last character begins */

    while (last > 0 && ((unsigned char)text[--last] & 0xC0) == 0x80)
        ;
    return last == len || api_utf8_length(text + last, text + len) > 0 ? len : last;
}

/* One byte that cannot stand in a JSON string as it is. */
static bool put_escape(struct api_buffer *b, unsigned char c)
{
    static const char NAMED[] = "\"\"\\\\\bb\ff\nn\rr\tt", HEX[] = "0123456789abcdef";
    const char text[] = {'\\', 'u', '0', '0', HEX[c >> 4], HEX[c & 15]};

    for (size_t k = 0; k + 1 < sizeof NAMED; k += 2)
        if (c == (unsigned char)NAMED[k])
            return api_put(b, "\\", 1) && api_put(b, &NAMED[k + 1], 1);
    return api_put(b, text, sizeof text);
}

typedef int8_t sixteen __attribute__((vector_size(16)));

static bool is_plain(char c)
{
    const unsigned char u = (unsigned char)c;

    return u >= 0x20 && u < 0x7F && c != '"' && c != '\\';
}

/* All of them at once; bytes from 0x80 on are negative. */
static bool are_plain(sixteen text)
{
    const sixteen plain =
        (text >= 0x20) & (text != 0x7F) & (text != '"') & (text != '\\');
    uint64_t half[2];

    memcpy(half, &plain, sizeof half);
    return (half[0] & half[1]) == UINT64_MAX;
}

/* Copies up to the first byte that is not plain; how many that were.  Sixteen at a time,
   the last sixteen again with what is left. */
static size_t copy_plain(char *out, const char *text, size_t len)
{
    sixteen some;
    size_t n = 0;

    for (; len - n >= sizeof some; n += sizeof some) {
        memcpy(&some, text + n, sizeof some);
        if (!are_plain(some))
            break;
        memcpy(out + n, &some, sizeof some);
    }
    if (n > 0 && len - n < sizeof some) {
        memcpy(&some, text + len - sizeof some, sizeof some);
        if (are_plain(some)) {
            memcpy(out + len - sizeof some, &some, sizeof some);
            return len;
        }
    }
    for (; n < len && is_plain(text[n]); n++)
        out[n] = text[n];
    return n;
}

bool api_put_escaped(struct api_buffer *b, const char *text, size_t len)
{
    const char *const end = text + len;

    for (;;) {
        size_t n;

        if (!api_buffer_reserve(b, (size_t)(end - text)))
            return false;
        n = copy_plain(b->p + b->len, text, (size_t)(end - text));
        b->len += n;
        text += n;
        if (text == end)
            return true;
        n = (unsigned char)*text < 0x80 ? 0 : api_utf8_length(text, end);
        if (n > 0 ? !api_put(b, text, n)
                  : !((unsigned char)*text < 0x80 ? put_escape(b, (unsigned char)*text)
                                                  : api_puts(b, "\xEF\xBF\xBD")))
            return false;
        text += n > 0 ? n : 1;
    }
}

/* Nearly all strings are plain: then quotes and text need room but once. */
bool api_put_string(struct api_buffer *b, const char *text)
{
    const size_t len = strlen(text);
    char *p;

    if (!api_buffer_reserve(b, len + 2))
        return false;
    p = b->p + b->len;
    *p = '"';
    if (copy_plain(p + 1, text, len) == len) {
        p[len + 1] = '"';
        b->len += len + 2;
        return true;
    }
    b->len++;
    return api_put_escaped(b, text, len) && api_put(b, "\"", 1);
}

bool api_put_double(struct api_buffer *b, double x)
{
    if (!api_buffer_reserve(b, API_NUMBER_MAX))
        return false;
    b->len += api_number_write_f64(b->p + b->len, x);
    return true;
}

bool api_put_fact(struct api_buffer *b, double x)
{
    if (!api_buffer_reserve(b, API_FACT_MAX))
        return false;
    b->len += api_fact_write(b->p + b->len, x);
    return true;
}

char *api_digits(char text[API_DIGITS_MAX], uint64_t x)
{
    char *p = text + API_DIGITS_MAX - 1;

    *p = '\0';
    do
        *--p = (char)('0' + x % 10);
    while ((x /= 10) > 0);
    return p;
}

bool api_put_u64(struct api_buffer *b, uint64_t x)
{
    char text[API_DIGITS_MAX];

    return api_puts(b, api_digits(text, x));
}
