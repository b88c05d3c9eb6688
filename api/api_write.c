/*
 * api_write.c - tensors and members of answers, straight into the buffer.
 * Not here: the text of numbers (api_text.c), what an answer holds.
 * Start reading at api_put_tensor.
 */
#include <assert.h>
#include <string.h>

#include "api/api_answer.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "base64 tensors are little-endian");

const char *const API_ENCODING_NAMES[API_ENC_COUNT] = {
    [API_ENC_NESTED] = "nested",
    [API_ENC_FLAT] = "flat",
    [API_ENC_BASE64] = "base64",
};

/* ---- the three encodings ---- */

static const char BASE64[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static size_t base64_len(size_t bytes)
{
    return bytes / 3 * 4 + (bytes % 3 ? 4 : 0);
}

/* RFC 4648, section 4, with padding. */
static bool put_base64(struct api_buffer *b, const uint8_t *p, size_t bytes)
{
    char *out;

    if (!api_buffer_reserve(b, base64_len(bytes)))
        return false;
    out = b->p + b->len;
    for (size_t n = 0; n < bytes; n += 3) {
        const size_t left = bytes - n;
        const uint32_t bits = (uint32_t)p[n] << 16 |
                              (left > 1 ? (uint32_t)p[n + 1] << 8 : 0) |
                              (left > 2 ? (uint32_t)p[n + 2] : 0);

        *out++ = BASE64[bits >> 18];
        *out++ = BASE64[bits >> 12 & 63];
        *out++ = left > 1 ? BASE64[bits >> 6 & 63] : '=';
        *out++ = left > 2 ? BASE64[bits & 63] : '=';
    }
    b->len = (size_t)(out - b->p);
    return true;
}

static bool put_enveloped(struct api_buffer *b, const struct attn_tensor *t,
                          const struct attn_tensor *shape, bool base64,
                          const struct attn_exec *exec)
{
    const size_t count = attn_tensor_count(t);
    const char *const name = attn_dtype_name(t->dtype);
    bool ok = api_puts(b, "{\"shape\":") && api_put_shape(b, shape) &&
              api_put_text_member(b, "dtype", name);

    if (base64)
        return ok && api_puts(b, ",\"base64\":\"") &&
               put_base64(b, t->p, count * attn_dtype_bytes(t->dtype)) &&
               api_puts(b, "\"}");
    return ok && api_puts(b, ",\"data\":") && api_put_numbers(b, t, 1, &count, exec) &&
           api_puts(b, "}");
}

/*
 * api_put_tensor - write t as JSON with the axes of `shape`
 *
 * t      in   numbers, dense and row-major; float32 in shortest float32 decimals
 * shape  in   rank and dim as answered: the same numbers with axes of length 1 dropped
 *
 * False when the buffer could not grow; what was written so far stays in it.
 */
bool api_put_tensor(struct api_buffer *b, const struct attn_tensor *t,
                    const struct attn_tensor *shape, enum api_encoding encoding)
{
    return api_put_tensor_with(b, t, shape, encoding, NULL);
}

bool api_put_tensor_with(struct api_buffer *b, const struct attn_tensor *t,
                         const struct attn_tensor *shape, enum api_encoding encoding,
                         const struct attn_exec *exec)
{
    assert(t->dtype < ATTN_DTYPE_COUNT);
    assert(attn_tensor_count(t) == attn_tensor_count(shape));
    if (encoding == API_ENC_NESTED)
        return api_put_numbers(b, t, shape->rank, shape->dim, exec);
    return put_enveloped(b, t, shape, encoding == API_ENC_BASE64, exec);
}

static size_t saturating_add(size_t a, size_t b)
{
    size_t sum;

    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static size_t saturating_multiply(size_t a, size_t b)
{
    size_t product;

    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

/* Upper bound of the bytes that api_put_tensor writes; SIZE_MAX when it cannot be
 * counted. */
size_t api_tensor_bytes(const struct attn_tensor *shape, enum api_encoding encoding)
{
    enum { ENVELOPE = 64, DIM_DIGITS = 21 };
    size_t rows = 1, brackets = 0, count;

    for (unsigned a = 0; a < shape->rank; a++) {
        brackets = saturating_add(brackets, saturating_multiply(rows, 3));
        rows = saturating_multiply(rows, shape->dim[a]);
    }
    count = rows;
    if (encoding == API_ENC_BASE64) {
        const size_t bytes = saturating_multiply(count, attn_dtype_bytes(shape->dtype));

        return saturating_add(saturating_multiply(bytes / 3 + 1, 4),
                              ENVELOPE + shape->rank * DIM_DIGITS);
    }
    count = saturating_multiply(count, api_number_text_max(shape->dtype));
    if (encoding == API_ENC_FLAT)
        return saturating_add(count, ENVELOPE + shape->rank * DIM_DIGITS);
    return saturating_add(count, brackets);
}

/* ---- members ---- */

bool api_put_comma(struct api_buffer *b)
{
    const char last = b->len > 0 ? b->p[b->len - 1] : '{';

    /* A string ends with a quote, so a bracket here was written by us. */
    return last == '{' || last == '[' || api_put(b, ",", 1);
}

bool api_put_key(struct api_buffer *b, const char *name)
{
    return api_put_comma(b) && api_put_string(b, name) && api_put(b, ":", 1);
}

bool api_put_text_member(struct api_buffer *b, const char *name, const char *text_or_null)
{
    return api_put_key(b, name) &&
           (text_or_null ? api_put_string(b, text_or_null) : api_puts(b, "null"));
}

bool api_put_u64_member(struct api_buffer *b, const char *name, uint64_t x)
{
    return api_put_key(b, name) && api_put_u64(b, x);
}

bool api_put_double_member(struct api_buffer *b, const char *name, double x)
{
    return api_put_key(b, name) && api_put_double(b, x);
}

bool api_put_bool_member(struct api_buffer *b, const char *name, bool x)
{
    return api_put_key(b, name) && api_puts(b, x ? "true" : "false");
}

bool api_put_number(struct api_buffer *b, enum attn_dtype dtype, double x)
{
    float narrow = (float)x;
    const struct attn_tensor one = {.dtype = dtype,
                                    .p = dtype == ATTN_F32 ? (void *)&narrow : &x};

    return api_put_numbers(b, &one, 0, NULL, NULL);
}

bool api_put_number_member(struct api_buffer *b, const char *name, enum attn_dtype dtype,
                           double x)
{
    return api_put_key(b, name) && api_put_number(b, dtype, x);
}

bool api_put_shape(struct api_buffer *b, const struct attn_tensor *shape)
{
    bool ok = api_put(b, "[", 1);

    for (unsigned a = 0; a < shape->rank; a++)
        ok = ok && api_put_comma(b) && api_put_u64(b, shape->dim[a]);
    return ok && api_put(b, "]", 1);
}
