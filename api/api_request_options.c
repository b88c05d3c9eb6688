/*
 * api_request_options.c - dtype, empty_rows, audit, path, encoding, inject and what is
 * returned.
 * Not here: tensors, masks, what is asked beyond the layer (api_request_asks.c).
 * Start reading at api_read_return.
 */
#include "api/api_request.h"

#include <string.h>

bool api_read_dtype(void *into, const struct api_doc *doc, const json_t *v,
                    const char *pointer, struct api_err *err)
{
    const char *const names[] = {attn_dtype_name(ATTN_F64), attn_dtype_name(ATTN_F32)};
    int choice;

    (void)doc;
    if (!api_read_choice(v, pointer, names, API_COUNT(names), &choice, err))
        return false;
    ((struct api_reading *)into)->r->p.dtype = choice == 0 ? ATTN_F64 : ATTN_F32;
    return true;
}

bool api_read_empty_rows(void *into, const struct api_doc *doc, const json_t *v,
                         const char *pointer, struct api_err *err)
{
    struct api_reading *rd = into;
    int choice;

    (void)doc;
    if (!api_read_choice(v, pointer, ATTN_EMPTY_NAMES, ATTN_EMPTY_COUNT, &choice, err))
        return false;
    rd->r->p.empty_rows = (enum attn_empty)choice;
    rd->empty_rows_stated = true;
    return true;
}

bool api_read_audit(void *into, const struct api_doc *doc, const json_t *v,
                    const char *pointer, struct api_err *err)
{
    static const char *const LEVELS[] = {
        [ATTN_AUDIT_SAMPLED] = "sampled",
        [ATTN_AUDIT_FULL] = "full",
        [ATTN_AUDIT_OFF] = "off",
    };
    int choice;

    (void)doc;
    if (!api_read_choice(v, pointer, LEVELS, API_COUNT(LEVELS), &choice, err))
        return false;
    ((struct api_reading *)into)->r->audit = (enum attn_audit_level)choice;
    return true;
}

bool api_read_path(void *into, const struct api_doc *doc, const json_t *v,
                   const char *pointer, struct api_err *err)
{
    int choice;

    (void)doc;
    if (!api_read_choice(v, pointer, ATTN_PATH_NAMES, ATTN_PATH_COUNT, &choice, err))
        return false;
    ((struct api_reading *)into)->r->path = (enum attn_path)choice;
    return true;
}

bool api_read_encoding(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    int choice;

    (void)doc;
    if (!api_read_choice(v, pointer, API_ENCODING_NAMES, API_ENC_COUNT, &choice, err))
        return false;
    ((struct api_reading *)into)->r->encoding = (enum api_encoding)choice;
    return true;
}

static const char *fault_name_at(const void *names, size_t n)
{
    (void)names;
    return attn_fault_name(attn_fault_at(n));
}

bool api_read_inject(void *into, const struct api_doc *doc, const json_t *v,
                     const char *pointer, struct api_err *err)
{
    const char *name = json_string_value(v);
    const struct attn_fault_row *row = name != NULL ? attn_fault_find(name) : NULL;

    if (name == NULL)
        return api_fail_type(err, pointer, "The name of a fault", api_type_name(doc, v));
    if (row == NULL)
        return api_fail_unknown(err, "unknown-name", pointer, name, fault_name_at, NULL,
                                attn_fault_count());
    ((struct api_reading *)into)->r->inject = row;
    return true;
}

/* ---- return ---- */

static const char *object_name_at(const void *names, size_t n)
{
    (void)names;
    return ATTN_OBJECTS[n].returnable ? ATTN_OBJECTS[n].name : "";
}

/* Every object of this problem that an answer can hold: the tiled path has no pairwise
   ones. */
static uint32_t returnable(const struct api_request *r, bool by_default)
{
    uint32_t set = 0;

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (attn_object_exists(&r->p, (enum attn_object)o) &&
            ATTN_OBJECTS[o].returnable && (ATTN_OBJECTS[o].by_default || !by_default) &&
            (r->path != ATTN_PATH_TILED || !ATTN_OBJECTS[o].pairwise))
            set |= ATTN_BIT(o);
    return set;
}

static bool read_name(struct api_reading *rd, const json_t *v, const char *pointer,
                      struct api_err *err)
{
    struct api_request *r = rd->r;
    const char *name = json_string_value(v);
    const int o = name != NULL ? attn_object_find(name) : -1;

    /* v stands in a tree of its own: an array in it is no mark of rd->doc. */
    if (name == NULL)
        return api_fail_type(err, pointer, "The name of a tensor",
                             api_type_name(NULL, v));
    if (o < 0 || !ATTN_OBJECTS[o].returnable)
        return api_fail_unknown(err, "unknown-name", pointer, name, object_name_at, NULL,
                                ATTN_OBJECT_COUNT);
    if (!attn_object_exists(&r->p, (enum attn_object)o))
        return api_fail(err, "contradiction", pointer,
                        "%s does not exist in this problem%s.", name,
                        o == ATTN_Y ? ": there is no W_O" : "");
    r->want |= ATTN_BIT(o);
    return true;
}

static bool read_word(struct api_reading *rd, const char *word, struct api_err *err)
{
    if (strcmp(word, "all") == 0)
        rd->r->want = returnable(rd->r, false);
    else if (strcmp(word, "none") != 0)
        return api_fail(err, "unknown-name", "/return",
                        "return is a list of names, \"all\" or \"none\"; not \"%.*s\".",
                        (int)api_utf8_cut(word, API_GIVEN_MAX), word);
    return true;
}

bool api_read_return(struct api_reading *rd, struct api_err *err)
{
    enum { NAMES_MAX = 64 };
    const json_t *v = rd->returned;
    char place[API_POINTER_MAX];
    json_t *list;
    bool ok;

    if (v == NULL || (json_is_string(v) && strcmp(json_string_value(v), "all") == 0)) {
        if (rd->r->path == ATTN_PATH_TILED)
            api_warn(
                rd->r,
                "The tiled path holds no pairwise tensor: S, M, A and their like are "
                "left out of the answer.");
    }
    if (v == NULL) {
        rd->r->want = returnable(rd->r, true);
        return true;
    }
    if (json_is_string(v))
        return read_word(rd, json_string_value(v), err);
    list = api_doc_tree(rd->doc, v, "/return", NAMES_MAX, err);
    ok = list != NULL;
    for (size_t n = 0; ok && n < json_array_size(list); n++)
        ok = read_name(rd, json_array_get(list, n),
                       api_pointer_index(place, "/return", n), err);
    json_decref(list);
    return ok;
}
