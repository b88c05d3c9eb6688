/*
 * api_tensor_read.c - the numbers of a tensor, straight from the body into the arena.
 * Not here: form and shape (api_tensor.c), the layout that core wants
 * (api_request_inputs.c).
 * Start reading at api_tensor_read, then read_leaves.
 */
#include "api/api_private.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { GROUP_CHARS = 4096, GROUP_BYTES = GROUP_CHARS / 4 * 3 }; /* 3072 divides by 8 */

struct reading {
    const struct api_tensor_in *in;
    enum api_finite finite;
    struct attn_tensor *t;
    size_t at; /* flat place of the element being read */
    struct api_err *err;
};

/* ---- elements ---- */

const char *api_element_pointer(const struct api_tensor_in *in, size_t flat, char *out)
{
    size_t rest = flat, index[ATTN_RANK_MAX] = {0};
    char before[API_POINTER_MAX];

    if (in->form == API_INIT || in->form == API_BYTES)
        return api_pointer_copy(out, in->pointer);
    if (in->form == API_BASE64)
        return api_pointer(out, in->pointer, "base64");
    if (in->form == API_FLAT)
        return api_pointer_index(out, api_pointer(before, in->pointer, "data"), rest);
    for (unsigned k = in->rank; k-- > 0; rest /= in->dim[k])
        index[k] = rest % in->dim[k];
    api_pointer_copy(out, in->pointer);
    for (unsigned k = 0; k < in->rank; k++) {
        api_pointer_copy(before, out);
        api_pointer_index(out, before, index[k]);
    }
    return out;
}

static bool fail_element(const struct reading *r, const char *name, const char *sentence)
{
    char place[API_POINTER_MAX];

    return api_fail(r->err, name, api_element_pointer(r->in, r->at, place),
                    "Entry %zu of the tensor: %s", r->at, sentence);
}

static bool fail_type(const struct reading *r, const char *want, const char *got)
{
    char place[API_POINTER_MAX];

    if (r->err->set)
        return false;
    api_fail(r->err, "wrong-type", api_element_pointer(r->in, r->at, place),
             "Entry %zu of the tensor: %s is expected here, not %s.", r->at, want, got);
    snprintf(r->err->expected, sizeof r->err->expected, "%s", want);
    snprintf(r->err->observed, sizeof r->err->observed, "%s", got);
    return false;
}

/* What stands where a number should; short plain strings are quoted. */
static bool fail_word(const struct reading *r, const char *p)
{
    enum { SHOWN_MAX = 24 };
    static const char *const WANTED[] = {
        [API_FINITE_ONLY] = "a number",
        [API_MINUS_INFINITY_TOO] = "a number or the string \"-Infinity\"",
        [API_ANY_NUMBER] = "a number or a string \"-Infinity\", \"Infinity\" or \"NaN\"",
    };
    char got[SHOWN_MAX + 32];
    size_t len = 1;

    snprintf(got, sizeof got, "%s", api_type_at(p));
    while (*p == '"' && len <= SHOWN_MAX && p[len] >= ' ' && p[len] <= '~' &&
           p[len] != '"' && p[len] != '\\')
        len++;
    if (*p == '"' && p[len] == '"')
        snprintf(got, sizeof got, "the string %.*s", (int)len + 1, p);
    return fail_type(r, r->t->dtype == ATTN_BOOL ? "true or false" : WANTED[r->finite],
                     got);
}

static bool check_finite(const struct reading *r, double x)
{
    if (isfinite(x) || r->finite == API_ANY_NUMBER)
        return true;
    if (r->finite == API_MINUS_INFINITY_TOO)
        return x == -INFINITY ||
               fail_element(r, "not-finite",
                            "it must be finite or \"-Infinity\", which forbids a pair.");
    return fail_element(r, "not-finite", "it must be finite.");
}

/* The values of the wider type are judged first: what only overflows float32 is out of
   range. */
static bool store(struct reading *r, double x)
{
    if (!check_finite(r, x))
        return false;
    if (r->t->dtype == ATTN_F64) {
        ((double *)r->t->p)[r->at++] = x;
        return true;
    }
    if (isfinite(x) && !isfinite((float)x))
        return fail_element(r, "number-out-of-range", "it is too large for float32.");
    ((float *)r->t->p)[r->at++] = (float)x;
    return true;
}

static bool store_bool(struct reading *r, bool x)
{
    if (r->t->dtype != ATTN_BOOL)
        return fail_type(r, "a number", "a boolean");
    ((uint8_t *)r->t->p)[r->at++] = x;
    return true;
}

/* ---- text: nested and flat ---- */

static bool read_number(struct reading *r, const char **p, const char *end)
{
    enum api_number_result result;
    double x = 0.0;
    float narrow;

    if (r->t->dtype == ATTN_BOOL)
        return fail_type(r, "true or false",
                         "a number (0 and 1 are not taken for booleans)");
    if (r->t->dtype == ATTN_F32 || r->in->source_dtype == API_DT_F32) {
        result = api_number_read_f32(p, end, &narrow);
        x = narrow;
    } else {
        result = api_number_read_f64(p, end, &x);
    }
    assert(result != API_NUMBER_NOT_JSON);
    if (result == API_NUMBER_RANGE)
        return fail_element(r, "number-out-of-range",
                            r->t->dtype == ATTN_F32 ? "it is too large for float32."
                                                    : "it is too large for float64.");
    return store(r, x);
}

static bool read_word(struct reading *r, const char **p)
{
    static const struct {
        const char *text;
        double x;
    } WORDS[] = {
        {"\"NaN\"", NAN},
        {"\"Infinity\"", INFINITY},
        {"\"-Infinity\"", -INFINITY},
    };

    if (**p == 't' || **p == 'f') {
        const bool x = **p == 't';

        *p += x ? 4 : 5;
        return store_bool(r, x);
    }
    if (**p == '"' && r->t->dtype != ATTN_BOOL)
        for (size_t n = 0; n < API_COUNT(WORDS); n++) {
            const size_t len = strlen(WORDS[n].text);

            if (strncmp(*p, WORDS[n].text, len) != 0)
                continue;
            *p += len;
            return store(r, WORDS[n].x);
        }
    return fail_word(r, *p);
}

/* Numbers until something else stands there, or a number that needs a sentence: no number
   that was read is not finite. */
static void read_list(struct reading *r, const char **p, const char *end)
{
    if (r->t->dtype == ATTN_F32)
        r->at += api_number_list_read_f32(p, end, (float *)r->t->p + r->at);
    else if (r->t->dtype == ATTN_F64 && r->in->source_dtype != API_DT_F32)
        r->at += api_number_list_read_f64(p, end, (double *)r->t->p + r->at);
}

/* The grammar was checked when the span was lifted: between leaves stand only these
   bytes. */
static bool read_leaves(struct reading *r)
{
    const struct api_span *span = r->in->span;
    const char *p = span->begin;

    for (;;) {
        read_list(r, &p, span->end);
        if (p == span->end)
            return true;
        const char c = *p;

        if (c == ',' || c == ' ' || c == '[' || c == ']' || c == '\n' || c == '\r' ||
            c == '\t')
            p++;
        else if (!((c == '-' || (c >= '0' && c <= '9')) ? read_number(r, &p, span->end)
                                                        : read_word(r, &p)))
            return false;
    }
}

/* ---- base64 ---- */

static uint64_t little_endian(const unsigned char *b, size_t n)
{
    uint64_t x = 0;

    while (n-- > 0)
        x = x << 8 | b[n];
    return x;
}

static double from_bits32(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static double from_f64(const unsigned char *b)
{
    const uint64_t bits = little_endian(b, 8);
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static double from_f32(const unsigned char *b)
{
    return from_bits32((uint32_t)little_endian(b, 4));
}

/* IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
static double from_f16(const unsigned char *b)
{
    const unsigned bits = (unsigned)little_endian(b, 2);
    const int exponent = (int)(bits >> 10 & 0x1F);
    const double fraction = bits & 0x3FF, sign = bits >> 15 ? -1.0 : 1.0;

    if (exponent == 31)
        return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -24);
    return sign * ldexp(fraction + 1024.0, exponent - 25);
}

/* The upper half of a binary32. */
static double from_bf16(const unsigned char *b)
{
    return from_bits32((uint32_t)little_endian(b, 2) << 16);
}

typedef double from_bytes_fn(const unsigned char *b);

static from_bytes_fn *const FROM_BYTES[] = {
    [API_DT_F64] = from_f64,
    [API_DT_F32] = from_f32,
    [API_DT_F16] = from_f16,
    [API_DT_BF16] = from_bf16,
};

static bool store_bytes(struct reading *r, const unsigned char *bytes, size_t len)
{
    const size_t width = API_DTYPES[r->in->source_dtype].bytes;

    for (size_t k = 0; k < len; k += width) {
        if (r->in->source_dtype != API_DT_BOOL) {
            if (!store(r, FROM_BYTES[r->in->source_dtype](bytes + k)))
                return false;
        } else if (bytes[k] > 1) {
            return fail_element(r, "bad-value", "a boolean is one byte of 0 or 1.");
        } else if (!store_bool(r, bytes[k] == 1)) {
            return false;
        }
    }
    return true;
}

/* Booleans are read from booleans only; store_bytes sees to the other direction. */
static bool check_bool_source(const struct reading *r, const char *pointer)
{
    return r->t->dtype != ATTN_BOOL || r->in->source_dtype == API_DT_BOOL ||
           api_fail_type(r->err, pointer, "A tensor of BOOL",
                         API_DTYPES[r->in->source_dtype].name);
}

static bool all_finite(const struct attn_tensor *t, size_t count)
{
    size_t finite = 0;

    if (t->dtype == ATTN_F64)
        for (size_t n = 0; n < count; n++)
            finite += isfinite(((const double *)t->p)[n]) != 0;
    else
        for (size_t n = 0; n < count; n++)
            finite += isfinite(((const float *)t->p)[n]) != 0;
    return finite == count;
}

/* The same type on both sides is copied; if a number is not finite, the slow way says
   which. */
static bool read_bytes(struct reading *r)
{
    const struct api_span *span = r->in->span;
    const size_t len = (size_t)(span->end - span->begin);
    const bool same = (r->t->dtype == ATTN_F64 && span->source_dtype == API_DT_F64) ||
                      (r->t->dtype == ATTN_F32 && span->source_dtype == API_DT_F32);

    if (!check_bool_source(r, r->in->pointer))
        return false;
    if (same && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
        memcpy(r->t->p, span->begin, len);
        if (all_finite(r->t, span->leaves))
            return true;
    }
    return store_bytes(r, (const unsigned char *)span->begin, len);
}

static bool read_base64(struct reading *r)
{
    const struct api_tensor_in *in = r->in;
    unsigned char bytes[GROUP_BYTES];
    char place[API_POINTER_MAX];
    size_t bad = 0;

    if (!check_bool_source(r, api_pointer(place, in->pointer, "dtype")))
        return false;
    for (size_t at = 0; at < in->small_len; at += GROUP_CHARS) {
        const size_t rest = in->small_len - at;
        const size_t len = rest < GROUP_CHARS ? rest : GROUP_CHARS;
        const size_t got = api_base64_read(in->small + at, len, bytes, &bad);
        const size_t full = len / 4 * 3;

        if (got == SIZE_MAX || (rest > GROUP_CHARS && got != full))
            return api_fail(
                r->err, "bad-base64", api_pointer(place, in->pointer, "base64"),
                "Character %zu is not base64 (RFC 4648: A-Z a-z 0-9 + / and '=' at "
                "the end only).",
                at + (got == SIZE_MAX ? bad : len));
        if (!store_bytes(r, bytes, got))
            return false;
    }
    return true;
}

/* ---- all forms ---- */

static bool read_init(struct reading *r)
{
    struct attn_tensor shaped = *r->t;
    char place[API_POINTER_MAX];

    shaped.rank = r->in->rank;
    memcpy(shaped.dim, r->in->dim, sizeof shaped.dim);
    if (r->t->dtype == ATTN_BOOL)
        return api_fail_type(r->err, r->in->pointer,
                             "A tensor of booleans, which cannot be generated,",
                             "an init");
    if (!attn_init_fill(r->in->init, r->in->seed, r->in->std, &shaped))
        return api_fail(r->err, "wrong-rank", api_pointer(place, r->in->pointer, "init"),
                        "\"%s\" needs at least 2 axes; this tensor has %u of them.",
                        ATTN_INIT_NAMES[r->in->init], r->in->rank);
    return true;
}

bool api_tensor_read(const struct api_tensor_in *in, enum api_finite finite,
                     struct attn_tensor *t, struct api_err *err)
{
    struct reading r = {.in = in, .finite = finite, .t = t, .err = err};

    assert(in->shaped && t->p != NULL);
    switch (in->form) {
    case API_INIT:
        return read_init(&r);
    case API_BASE64:
        return read_base64(&r);
    case API_BYTES:
        return read_bytes(&r);
    default:
        return read_leaves(&r);
    }
}
