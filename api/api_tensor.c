/*
 * api_tensor.c - recognises the form and shape of a tensor in a request; converts
 * nothing.
 * Not here: the numbers (api_tensor_read.c), which shape a tensor must have (core,
 * masks).
 * Start reading at api_tensor_scan.
 */
#include "api/api_private.h"

#include <math.h>
#include <string.h>

/* A drawn number lies within 10 std of 0 and so is finite in float32 too. */
static const double STD_MAX = 1e30;

const struct api_dtype_row API_DTYPES[] = {
    [API_DT_F64] = {"float64", 8}, [API_DT_F32] = {"float32", 4},
    [API_DT_F16] = {"float16", 2}, [API_DT_BF16] = {"bfloat16", 2},
    [API_DT_BOOL] = {"bool", 1},
};
_Static_assert(API_COUNT(API_DTYPES) == API_DT_COUNT, "one row a dtype");

const char *api_shape_text(char *out, unsigned rank, const size_t *dim)
{
    size_t len = 0;

    out[len++] = '(';
    for (unsigned k = 0; k < rank && len + 24 < API_SHAPE_TEXT_MAX; k++)
        len += (size_t)snprintf(out + len, API_SHAPE_TEXT_MAX - len, "%s%zu",
                                k > 0 ? "," : "", dim[k]);
    out[len++] = ')';
    out[len] = '\0';
    return out;
}

bool api_count_of(unsigned rank, const size_t *dim, size_t *count)
{
    *count = 1;
    for (unsigned k = 0; k < rank; k++)
        if (dim[k] == 0) {
            *count = 0;
            return true;
        }
    for (unsigned k = 0; k < rank; k++) {
        if (*count > SIZE_MAX / 16 / dim[k])
            return false;
        *count *= dim[k];
    }
    return true;
}

/* ---- nested arrays ---- */

static const char *odd_place(const struct api_span *span, const char *pointer, char *out)
{
    char before[API_POINTER_MAX];

    api_pointer_copy(out, pointer);
    for (unsigned k = 0; k < span->odd_depth; k++) {
        api_pointer_copy(before, out);
        api_pointer_index(out, before, span->odd_at[k]);
    }
    return out;
}

static bool fail_odd(const struct api_span *span, const char *pointer,
                     struct api_err *err)
{
    char place[API_POINTER_MAX];

    odd_place(span, pointer, place);
    switch (span->odd) {
    case API_ODD_LENGTH:
        return api_fail_numbers(err, "ragged", place, NULL, span->odd_want, span->odd_got,
                                "This row has %zu entries; those before it have %zu.",
                                span->odd_got, span->odd_want);
    case API_ODD_LEAF:
        return api_fail_numbers(
            err, "ragged", place, NULL, span->odd_want, span->odd_got,
            "A single value stands where a row should: it is %zu arrays "
            "deep, the others are %zu.",
            span->odd_got, span->odd_want);
    case API_ODD_ARRAY:
        return api_fail_numbers(
            err, "ragged", place, NULL, span->odd_want, span->odd_got,
            "An array stands where a single value should: it is %zu arrays "
            "deep, the values before it are %zu.",
            span->odd_got, span->odd_want);
    default:
        return api_fail_numbers(
            err, "wrong-rank", place, NULL, span->odd_want, span->odd_got,
            "The arrays are nested %zu deep; at most %zu axes are possible.",
            span->odd_got, span->odd_want);
    }
}

static bool scan_nested(const struct api_span *span, struct api_tensor_in *in,
                        struct api_err *err)
{
    if (!span->regular)
        return fail_odd(span, in->pointer, err);
    in->form = span->is_binary ? API_BYTES : API_NESTED;
    if (span->is_binary)
        in->source_dtype = span->source_dtype;
    in->span = span;
    in->shaped = true;
    in->rank = span->rank;
    memcpy(in->dim, span->dim, sizeof in->dim);
    return true;
}

/* ---- objects: flat, base64, init ---- */

static bool read_shape(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct api_tensor_in *in = into;
    json_t *list = api_doc_tree(doc, v, pointer, ATTN_RANK_MAX, err);
    char place[API_POINTER_MAX];
    bool ok = list != NULL;

    in->rank = (unsigned)json_array_size(list);
    in->shaped = true;
    for (unsigned k = 0; ok && k < in->rank; k++)
        ok = api_read_size(json_array_get(list, k), api_pointer_index(place, pointer, k),
                           0, SIZE_MAX, &in->dim[k], err);
    json_decref(list);
    if (ok && in->rank == 0)
        return api_fail(err, "wrong-rank", pointer, "A shape needs at least one axis.");
    return ok;
}

static bool read_dtype(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct api_tensor_in *in = into;
    const char *names[API_DT_COUNT];

    (void)doc;
    for (size_t n = 0; n < API_DT_COUNT; n++)
        names[n] = API_DTYPES[n].name;
    return api_read_choice(v, pointer, names, API_DT_COUNT, &in->source_dtype, err);
}

/* An array that was not lifted holds an object somewhere: says where. */
static bool fail_object_inside(const struct api_doc *doc, const json_t *v,
                               const char *pointer, struct api_err *err)
{
    char place[API_POINTER_MAX], before[API_POINTER_MAX];

    api_pointer_copy(place, pointer);
    while (json_is_array(v) && api_doc_span(doc, v) == NULL) {
        size_t n = 0;

        while (!json_is_object(json_array_get(v, n)) &&
               (!json_is_array(json_array_get(v, n)) ||
                api_doc_span(doc, json_array_get(v, n)) != NULL))
            n++;
        v = json_array_get(v, n);
        memcpy(before, place, sizeof before);
        api_pointer_index(place, before, n);
    }
    return api_fail_type(err, place, "A number", "an object");
}

static bool read_data(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    struct api_tensor_in *in = into;

    in->span = api_doc_span(doc, v);
    if (in->span == NULL && json_is_array(v))
        return fail_object_inside(doc, v, pointer, err);
    if (in->span == NULL || in->span->is_string || in->span->is_binary)
        return api_fail_type(err, pointer, "A flat array", api_type_name(doc, v));
    if (!in->span->regular)
        return fail_odd(in->span, pointer, err);
    if (in->span->rank != 1)
        return api_fail_numbers(
            err, "wrong-rank", pointer, NULL, 1, in->span->rank,
            "\"data\" is flat beside a shape: 1 level of arrays, not %u.",
            in->span->rank);
    return true;
}

static bool read_base64(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    struct api_tensor_in *in = into;
    const struct api_span *span = api_doc_span(doc, v);

    if (span != NULL && span->is_string) {
        in->small = span->begin;
        in->small_len = (size_t)(span->end - span->begin);
    } else if (json_is_string(v)) {
        in->small = json_string_value(v);
        in->small_len = json_string_length(v);
    } else {
        return api_fail_type(err, pointer, "A base64 string", api_type_name(doc, v));
    }
    return true;
}

static bool read_init(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    struct api_tensor_in *in = into;
    int kind;

    (void)doc;
    if (!api_read_choice(v, pointer, ATTN_INIT_NAMES, ATTN_INIT_COUNT, &kind, err))
        return false;
    in->init = (enum attn_init_kind)kind;
    return true;
}

static bool read_seed(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    struct api_tensor_in *in = into;
    int64_t seed;

    (void)doc;
    if (!api_read_int(v, pointer, 0, INT64_MAX, &seed, err))
        return false;
    in->seed = (uint64_t)seed;
    in->seeded = true;
    return true;
}

static bool read_std(void *into, const struct api_doc *doc, const json_t *v,
                     const char *pointer, struct api_err *err)
{
    struct api_tensor_in *in = into;

    (void)doc;
    if (!api_read_double(v, pointer, &in->std, err))
        return false;
    return (in->std > 0.0 && in->std <= STD_MAX) ||
           api_fail(err, "bad-value", pointer,
                    "std must be greater than 0 and at most %g; it is %g.", STD_MAX,
                    in->std);
}

/* clang-format off */
static const struct api_field_row FLAT[] = {
    { "shape",  read_shape,  true  },
    { "dtype",  read_dtype,  false },
    { "data",   read_data,   true  },
};
static const struct api_field_row BASE64[] = {
    { "shape",  read_shape,  true  },
    { "dtype",  read_dtype,  true  },
    { "base64", read_base64, true  },
};
static const struct api_field_row INIT[] = {
    { "init",   read_init,   true  },
    { "seed",   read_seed,   false },
    { "std",    read_std,    false },
    { "shape",  read_shape,  false },
};
/* clang-format on */

static bool fail_count(const struct api_tensor_in *in, const char *member,
                       const char *unit, size_t want, size_t got, struct api_err *err)
{
    char place[API_POINTER_MAX], shape[API_SHAPE_TEXT_MAX];

    return api_fail_numbers(err, "wrong-shape", api_pointer(place, in->pointer, member),
                            NULL, want, got, "The shape %s needs %zu %s; there are %zu.",
                            api_shape_text(shape, in->rank, in->dim), want, unit, got);
}

static bool check_base64(const struct api_tensor_in *in, size_t count,
                         struct api_err *err)
{
    const size_t want = count * API_DTYPES[in->source_dtype].bytes;
    const size_t got = api_base64_bytes(in->small, in->small_len);
    char place[API_POINTER_MAX];

    if (in->small_len % 4 != 0)
        return api_fail_numbers(
            err, "bad-base64", api_pointer(place, in->pointer, "base64"), NULL,
            (in->small_len + 3) / 4 * 4, in->small_len,
            "Base64 comes in groups of 4 characters, padded with '='; this "
            "text has %zu.",
            in->small_len);
    return want == got || fail_count(in, "base64", "bytes", want, got, err);
}

static bool scan_object(const struct api_doc *doc, const json_t *v,
                        struct api_tensor_in *in, struct api_err *err)
{
    const bool init = json_object_get(v, "init") != NULL;
    const bool base64 = !init && json_object_get(v, "base64") != NULL;
    const struct api_field_row *rows = init ? INIT : base64 ? BASE64 : FLAT;
    const size_t rows_count = init ? API_COUNT(INIT) : API_COUNT(FLAT);
    size_t count;

    in->form = init ? API_INIT : base64 ? API_BASE64 : API_FLAT;
    if (!api_read_object(in, doc, v, in->pointer, rows, rows_count, err))
        return false;
    if (!in->shaped)
        return true;
    if (!api_count_of(in->rank, in->dim, &count))
        return api_fail(err, "too-large", in->pointer,
                        "The sizes of the shape multiply to more than can be counted.");
    if (in->form == API_FLAT && in->span->dim[0] != count)
        return fail_count(in, "data", "entries", count, in->span->dim[0], err);
    return in->form != API_BASE64 || check_base64(in, count, err);
}

bool api_tensor_scan(const struct api_doc *doc, const json_t *value, const char *pointer,
                     struct api_tensor_in *in, struct api_err *err)
{
    const struct api_span *span = api_doc_span(doc, value);

    *in = (struct api_tensor_in){.present = true, .source_dtype = API_DT_UNSTATED};
    api_pointer_copy(in->pointer, pointer);
    if (span != NULL && !span->is_string)
        return scan_nested(span, in, err);
    if (json_is_object(value))
        return scan_object(doc, value, in, err);
    if (span == NULL && json_is_array(value))
        return fail_object_inside(doc, value, pointer, err);
    return api_fail_type(err, pointer,
                         "A tensor (nested arrays, or an object with data, base64 or "
                         "init)",
                         api_type_name(doc, value));
}

void api_tensor_set_shape(struct api_tensor_in *in, unsigned rank, const size_t *dim)
{
    if (in->shaped)
        return;
    in->shaped = true;
    in->rank = rank;
    memcpy(in->dim, dim, rank * sizeof *dim);
}
