/*
 * api_safetensors.c - a safetensors file as a request: tensors by name, the rest as JSON.
 * Not here: answers as such files (api_file.c), what the fields mean (api_request*.c).
 * Start reading at api_safetensors_open.
 *
 * The format (safetensors of Hugging Face): 8 bytes, little-endian, say how long the JSON
 * header is; the header names dtype, shape and data_offsets of each tensor; then their
 * bytes, without gaps.  Each tensor becomes a span of the document, as if it had stood
 * in the problem: what reads arrays of numbers reads these too.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api_file.h"

enum { LENGTH_BYTES = 8, TENSORS_MAX = 64, HEADER_MAX = 16 << 20, NAME_MAX_BYTES = 64 };

const char *const API_FILE_DTYPES[API_DT_COUNT] = {
    [API_DT_F64] = "F64",   [API_DT_F32] = "F32",   [API_DT_F16] = "F16",
    [API_DT_BF16] = "BF16", [API_DT_BOOL] = "BOOL",
};

/* Masks that are tensors; inputs and weights stand in ATTN_INPUTS. */
static const struct {
    const char *name, *place;
} MASKS[] = {
    {"masks.allowed", "/masks/allowed"},
    {"masks.blocked", "/masks/blocked"},
    {"masks.additive", "/masks/additive"},
};

struct entry { /* one tensor as the header names it */
    char name[NAME_MAX_BYTES + 1];
    int dtype;
    unsigned rank;
    size_t dim[ATTN_RANK_MAX];
    size_t begin, end; /* in the data */
};

struct file {
    const char *data;
    size_t data_len;
    json_t *problem; /* the JSON under __metadata__.attentiond; or NULL */
    struct entry entry[TENSORS_MAX];
    size_t count;
};

/* ---- one tensor of the header ---- */

static bool read_dtype(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    (void)doc;
    return api_read_choice(v, pointer, API_FILE_DTYPES, API_DT_COUNT,
                           &((struct entry *)into)->dtype, err);
}

static bool read_sizes(const struct api_doc *doc, const json_t *v, const char *pointer,
                       size_t most, size_t *size, size_t *count, struct api_err *err)
{
    json_t *list = api_doc_tree(doc, v, pointer, most, err);
    char place[API_POINTER_MAX];
    bool ok = list != NULL;

    *count = json_array_size(list);
    for (size_t n = 0; n < *count && ok; n++)
        ok = api_read_size(json_array_get(list, n), api_pointer_index(place, pointer, n),
                           0, SIZE_MAX, &size[n], err);
    json_decref(list);
    return ok;
}

static bool read_shape(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct entry *e = into;
    size_t rank;

    if (!read_sizes(doc, v, pointer, ATTN_RANK_MAX, e->dim, &rank, err))
        return false;
    e->rank = (unsigned)rank;
    return rank > 0 || api_fail(err, "wrong-rank", pointer,
                                "A tensor needs at least one axis; this shape has none.");
}

static bool read_offsets(void *into, const struct api_doc *doc, const json_t *v,
                         const char *pointer, struct api_err *err)
{
    struct entry *e = into;
    size_t offset[2], count;

    if (!read_sizes(doc, v, pointer, 2, offset, &count, err))
        return false;
    if (count != 2)
        return api_fail_numbers(err, "bad-file", pointer, NULL, 2, count,
                                "data_offsets are 2 numbers, begin and end; these are "
                                "%zu.",
                                count);
    e->begin = offset[0];
    e->end = offset[1];
    return true;
}

/* clang-format off */
static const struct api_field_row ENTRY[] = {
    { "dtype",        read_dtype,   true },
    { "shape",        read_shape,   true },
    { "data_offsets", read_offsets, true },
};
/* clang-format on */

static bool check_entry(const struct file *f, const struct entry *e, const char *pointer,
                        struct api_err *err)
{
    char place[API_POINTER_MAX], shape[API_SHAPE_TEXT_MAX];
    size_t count, want;

    api_pointer(place, pointer, "data_offsets");
    if (e->begin > e->end)
        return api_fail_numbers(err, "bad-file", place, e->name, e->begin, e->end,
                                "The data of %s begins at byte %zu and ends before it, "
                                "at %zu.",
                                e->name, e->begin, e->end);
    if (e->end > f->data_len)
        return api_fail_numbers(err, "bad-file", place, e->name, f->data_len, e->end,
                                "The data of %s ends at byte %zu; the file has %zu bytes "
                                "of data.",
                                e->name, e->end, f->data_len);
    if (!api_count_of(e->rank, e->dim, &count))
        return api_fail(err, "too-large", pointer,
                        "The sizes of the shape multiply to more than can be counted.");
    want = count * API_DTYPES[e->dtype].bytes;
    return e->end - e->begin == want ||
           api_fail_numbers(err, "wrong-shape", place, e->name, want, e->end - e->begin,
                            "%s of shape %s in %s needs %zu bytes; its offsets hold %zu.",
                            e->name, api_shape_text(shape, e->rank, e->dim),
                            API_FILE_DTYPES[e->dtype], want, e->end - e->begin);
}

/* ---- the header ---- */

static const char OWN_KEY[] = "attentiond";

static const char *own_key_at(const void *names, size_t n)
{
    (void)names, (void)n;
    return OWN_KEY;
}

/* Others may say what they like about the file, but what was meant for attentiond must
   not be passed over. */
static bool check_foreign(const char *key, const json_t *text, struct api_err *err)
{
    static const char *const OTHERS[] = {"request", "problem", "masks"};
    char place[API_POINTER_MAX];

    api_pointer(place, "/__metadata__", key);
    if (api_nearest(key, own_key_at, NULL, 1) != NULL)
        return api_fail_unknown(err, "unknown-field", place, key, own_key_at, NULL, 1);
    for (size_t n = 0; n < API_COUNT(OTHERS); n++)
        if (strcasecmp(key, OTHERS[n]) == 0 && json_string_value(text) != NULL &&
            json_string_value(text)[0] == '{')
            return api_fail(err, "unknown-field", place,
                            "\"%s\" holds JSON but is not read; did you mean \"%s\", "
                            "which holds the whole problem but its tensors?",
                            key, OWN_KEY);
    return true;
}

static bool read_metadata(struct file *f, const json_t *v, struct api_err *err)
{
    char place[API_POINTER_MAX];
    const char *key;
    json_t *text;

    if (!json_is_object(v))
        return api_fail(err, "bad-file", "/__metadata__",
                        "__metadata__ must be an object of strings.");
    json_object_foreach((json_t *)(uintptr_t)v, key, text)
    {
        if (strcmp(key, OWN_KEY) != 0) {
            if (!check_foreign(key, text, err))
                return false;
            continue;
        }
        if (!json_is_string(text))
            return api_fail(err, "bad-file", api_pointer(place, "/__metadata__", key),
                            "The problem must stand here as JSON in one string.");
        f->problem = json_incref(text);
    }
    return true;
}

static bool read_entry(struct file *f, const struct api_doc *header, const char *name,
                       const json_t *v, struct api_err *err)
{
    struct entry *e = &f->entry[f->count];
    char pointer[API_POINTER_MAX];

    api_pointer(pointer, "", name);
    if (f->count == TENSORS_MAX)
        return api_fail_numbers(err, "bad-file", pointer, NULL, TENSORS_MAX, f->count + 1,
                                "The file names more than %d tensors.", TENSORS_MAX);
    *e = (struct entry){0};
    snprintf(e->name, sizeof e->name, "%s", name);
    if (!api_read_object(e, header, v, pointer, ENTRY, API_COUNT(ENTRY), err) ||
        !check_entry(f, e, pointer, err))
        return false;
    f->count++;
    return true;
}

static int by_begin(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Every byte of the data belongs to exactly one tensor. */
static bool check_cover(struct file *f, struct api_err *err)
{
    size_t at = 0;

    qsort(f->entry, f->count, sizeof f->entry[0], by_begin);
    for (size_t n = 0; n < f->count; n++) {
        const struct entry *e = &f->entry[n];
        char place[API_POINTER_MAX];

        if (e->begin != at)
            return api_fail_numbers(
                err, "bad-file", api_pointer(place, "", e->name), e->name, at, e->begin,
                e->begin < at ? "The data of %s begins at byte %zu, inside of another "
                                "tensor, which ends at %zu."
                              : "The data of %s begins at byte %zu; nothing stands "
                                "between it and byte %zu.",
                e->name, e->begin, at);
        at = e->end;
    }
    return at == f->data_len ||
           api_fail_numbers(err, "bad-file", "", NULL, f->data_len, at,
                            "The file has %zu bytes of data; its tensors end at byte "
                            "%zu.",
                            f->data_len, at);
}

static bool read_header(struct file *f, const struct api_doc *header, struct api_err *err)
{
    const char *name;
    json_t *v;

    json_object_foreach(header->root, name, v)
    {
        const bool metadata = strcmp(name, "__metadata__") == 0;

        if (metadata ? !read_metadata(f, v, err) : !read_entry(f, header, name, v, err))
            return false;
    }
    return check_cover(f, err);
}

static bool open_file(struct api_ctx *ctx, const char *body, size_t len, struct file *f,
                      struct api_err *err)
{
    struct api_doc header;
    uint64_t size = 0;
    bool ok;

    if (len < LENGTH_BYTES)
        return api_fail_numbers(err, "bad-file", "", NULL, LENGTH_BYTES, len,
                                "A safetensors file begins with %d bytes that say how "
                                "long its header is; this body has %zu.",
                                LENGTH_BYTES, len);
    for (unsigned n = LENGTH_BYTES; n-- > 0;)
        size = size << 8 | (unsigned char)body[n];
    if (size > len - LENGTH_BYTES || size > HEADER_MAX)
        return api_fail_numbers(
            err, "bad-file", "", NULL,
            len - LENGTH_BYTES < HEADER_MAX ? len - LENGTH_BYTES : HEADER_MAX, size,
            "The header is said to have %" PRIu64 " bytes; at most %zu can follow here.",
            size, len - LENGTH_BYTES < HEADER_MAX ? len - LENGTH_BYTES : HEADER_MAX);
    if (size == 0 || body[LENGTH_BYTES] != '{')
        return api_fail(err, "bad-file", "", "The header must begin with '{'.");
    f->data = body + LENGTH_BYTES + size;
    f->data_len = len - LENGTH_BYTES - size;
    if (!api_doc_open(ctx, body + LENGTH_BYTES, size, &header, err))
        return false;
    ok = read_header(f, &header, err);
    api_doc_close(&header);
    return ok;
}

/* ---- into the document ---- */

static const char *place_of(const char *name)
{
    for (int k = 0; k < ATTN_INPUT_COUNT; k++)
        if (strcmp(ATTN_INPUTS[k].name, name) == 0)
            return ATTN_INPUTS[k].place;
    for (size_t n = 0; n < API_COUNT(MASKS); n++)
        if (strcmp(MASKS[n].name, name) == 0)
            return MASKS[n].place;
    return NULL;
}

static const char *name_at(const void *names, size_t n)
{
    (void)names;
    return n < ATTN_INPUT_COUNT ? ATTN_INPUTS[n].name : MASKS[n - ATTN_INPUT_COUNT].name;
}

/* Puts `node` at the place, making the objects that lead to it.  False when it is taken
   or no object leads there; takes over node. */
static bool put_node(json_t *root, const char *place, json_t *node)
{
    json_t *object = root, *next;
    char part[NAME_MAX_BYTES];

    while (*place == '/' && json_is_object(object)) {
        const size_t len = strcspn(place + 1, "/");

        snprintf(part, sizeof part, "%.*s", (int)len, place + 1);
        place += 1 + len;
        next = json_object_get(object, part);
        if (*place == '\0')
            return next == NULL ? json_object_set_new(object, part, node) == 0
                                : (json_decref(node), false);
        if (next == NULL && json_object_set_new(object, part, json_object()) == 0)
            next = json_object_get(object, part);
        object = next;
    }
    json_decref(node);
    return false;
}

static bool add_tensor(struct api_ctx *ctx, const struct file *f, const struct entry *e,
                       struct api_doc *doc, struct api_err *err)
{
    const char *place = place_of(e->name);
    char pointer[API_POINTER_MAX];
    struct api_span span = {.begin = f->data + e->begin,
                            .end = f->data + e->end,
                            .is_binary = true,
                            .source_dtype = e->dtype,
                            .rank = e->rank,
                            .regular = true,
                            .has_booleans = e->dtype == API_DT_BOOL,
                            .has_numbers = e->dtype != API_DT_BOOL};

    api_pointer(pointer, "", e->name);
    if (place == NULL)
        return api_fail_unknown(err, "unknown-name", pointer, e->name, name_at, NULL,
                                ATTN_INPUT_COUNT + API_COUNT(MASKS));
    memcpy(span.dim, e->dim, sizeof span.dim);
    api_count_of(e->rank, e->dim, &span.leaves);
    if (!api_span_add(ctx, doc->span_count, &span))
        return api_fail(err, "out-of-memory", NULL, "No memory to read the body.");
    doc->span = ctx->span;
    if (!put_node(doc->root, place, json_pack("[I]", (json_int_t)doc->span_count++)))
        return api_fail(err, "contradiction", place,
                        "%s is given twice: as a tensor of the file and in the problem "
                        "under __metadata__.attentiond.",
                        e->name);
    return true;
}

bool api_safetensors_open(struct api_ctx *ctx, const char *body, size_t len,
                          struct api_doc *doc, struct api_err *err)
{
    struct file f = {0};
    const char *text;
    bool ok;

    *doc = (struct api_doc){0};
    if (!open_file(ctx, body, len, &f, err)) {
        json_decref(f.problem);
        return false;
    }
    text = f.problem ? json_string_value(f.problem) : "{}";
    ok = api_doc_open(ctx, text, strlen(text), doc, err);
    doc->text = f.problem;
    doc->no_options = f.problem == NULL;
    for (size_t n = 0; n < f.count && ok; n++)
        ok = add_tensor(ctx, &f, &f.entry[n], doc, err);
    if (!ok)
        api_doc_close(doc);
    return ok;
}
