/*
 * api_mask_params.c - the parameters of mask rules: one reader a kind, whatever the rule.
 * Not here: which rule has which parameters (core/attn_mask.c), their grouping
 * (api_request_masks.c).
 * Start reading at KINDS, then api_read_mask_param.
 */
#include "api/api_request.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef bool kind_fn(struct api_reading *rd, struct attn_mask *m, struct attn_arg *arg,
                     const json_t *v, const char *pointer, struct api_err *err);

/* ---- numbers ---- */

static bool read_alignment(struct api_reading *rd, struct attn_mask *m,
                           struct attn_arg *arg, const json_t *v, const char *pointer,
                           struct api_err *err)
{
    static const char *const NAMES[] = {"top_left", "bottom_right"};
    int choice;

    (void)rd, (void)m;
    if (!api_read_choice(v, pointer, NAMES, API_COUNT(NAMES), &choice, err))
        return false;
    arg->number = choice == 0 ? ATTN_ALIGN_TOP_LEFT : ATTN_ALIGN_BOTTOM_RIGHT;
    return true;
}

static bool read_extent(struct api_reading *rd, struct attn_mask *m, struct attn_arg *arg,
                        const json_t *v, const char *pointer, struct api_err *err)
{
    (void)rd, (void)m;
    return api_read_int(v, pointer, -1, (int64_t)API_WHOLE_MAX, &arg->number, err);
}

/* ---- tables ---- */

/* (B, cols), or (cols) where there is one item; cols 0 = a list [B]. */
static bool expect_items(const struct api_reading *rd, struct api_tensor_in *in,
                         size_t cols, struct api_err *err)
{
    const size_t B = rd->r->p.d.B, table[] = {B, cols};

    if (cols == 0)
        return api_expect_shape(in, "M", 1, &B, err);
    if (B == 1 && in->shaped && in->rank == 1)
        return api_expect_shape(in, "M", 1, &cols, err);
    return api_expect_shape(in, "M", 2, table, err);
}

static bool fail_whole(const struct api_tensor_in *in, size_t n, double x, int64_t min,
                       int64_t max, struct api_err *err)
{
    char place[API_POINTER_MAX];

    api_fail(err, "bad-value", api_element_pointer(in, n, place),
             "A whole number from %" PRId64 " to %" PRId64
             " is expected here, not %.17g.",
             min, max, x);
    snprintf(err->expected, sizeof err->expected, "%" PRId64 " to %" PRId64, min, max);
    snprintf(err->observed, sizeof err->observed, "%.17g", x);
    return false;
}

/* Whole numbers min … max: read as doubles, which hold them all, and turned in place. */
static bool read_whole(struct api_reading *rd, const json_t *v, const char *pointer,
                       size_t cols, int64_t min, int64_t max, struct attn_table *table,
                       struct api_err *err)
{
    const size_t count = rd->r->p.d.B * (cols > 0 ? cols : 1);
    struct api_tensor_in in;
    unsigned char *p;

    if (!api_tensor_scan(rd->doc, v, pointer, &in, err) ||
        !expect_items(rd, &in, cols, err))
        return false;
    p = api_take_tensor(rd, &in, ATTN_F64, API_FINITE_ONLY, err);
    if (p == NULL)
        return false;
    for (size_t n = 0; n < count; n++) {
        int64_t whole;
        double x;

        memcpy(&x, p + n * sizeof x, sizeof x);
        if (x != floor(x) || x < (double)min || x > (double)max)
            return fail_whole(&in, n, x, min, max, err);
        whole = (int64_t)x;
        memcpy(p + n * sizeof whole, &whole, sizeof whole);
    }
    *table = (struct attn_table){
        .elem = ATTN_ELEM_I64, .p = p, .stride_b = cols > 0 ? cols : 1};
    return true;
}

static bool read_lengths(struct api_reading *rd, struct attn_mask *m,
                         struct attn_arg *arg, const json_t *v, const char *pointer,
                         struct api_err *err)
{
    (void)m;
    return read_whole(rd, v, pointer, 0, 0, (int64_t)rd->r->p.d.T_kv, &arg->table, err);
}

static bool read_valid(struct api_reading *rd, struct attn_mask *m, struct attn_arg *arg,
                       const json_t *v, const char *pointer, struct api_err *err)
{
    const size_t T_kv = rd->r->p.d.T_kv;
    struct api_tensor_in in;

    (void)m;
    if (!api_tensor_scan(rd->doc, v, pointer, &in, err) ||
        !expect_items(rd, &in, T_kv, err))
        return false;
    arg->table = (struct attn_table){.elem = ATTN_ELEM_U8, .stride_b = T_kv};
    arg->table.p = api_take_tensor(rd, &in, ATTN_BOOL, API_FINITE_ONLY, err);
    return arg->table.p != NULL;
}

bool api_read_pairs(struct api_reading *rd, const json_t *v, const char *pointer,
                    enum attn_dtype dtype, struct attn_table *table, struct api_err *err)
{
    const struct attn_dims *d = &rd->r->p.d;
    const size_t full[] = {d->B, d->h, d->T_q, d->T_kv}, item[] = {d->B, d->T_q, d->T_kv};
    const bool finite_only = dtype == ATTN_BOOL;
    struct api_tensor_in in;

    if (!api_tensor_scan(rd->doc, v, pointer, &in, err))
        return false;
    *table = (struct attn_table){
        .elem = dtype == ATTN_BOOL ? ATTN_ELEM_U8 : ATTN_ELEM_F64, .stride_i = d->T_kv};
    if (in.shaped && in.rank == 4) {
        table->stride_h = d->T_q * d->T_kv;
        table->stride_b = d->h * d->T_q * d->T_kv;
    } else if (in.shaped && in.rank == 3) {
        table->stride_b = d->T_q * d->T_kv;
    }
    if (!api_expect_shape(&in, "M",
                          table->stride_h > 0   ? 4
                          : table->stride_b > 0 ? 3
                                                : 2,
                          table->stride_h > 0   ? full
                          : table->stride_b > 0 ? item
                                                : item + 1,
                          err))
        return false;
    table->p = api_take_tensor(
        rd, &in, dtype, finite_only ? API_FINITE_ONLY : API_MINUS_INFINITY_TOO, err);
    return table->p != NULL;
}

static bool read_pairs(struct api_reading *rd, struct attn_mask *m, struct attn_arg *arg,
                       const json_t *v, const char *pointer, struct api_err *err)
{
    (void)m;
    return api_read_pairs(rd, v, pointer, ATTN_BOOL, &arg->table, err);
}

/* ---- documents ---- */

static bool refuse_cross(const struct api_reading *rd, const char *pointer,
                         struct api_err *err)
{
    return rd->r->p.form.source != ATTN_CROSS ||
           api_fail(
               err, "contradiction", pointer,
               "Document ids name one sequence; queries and keys come from two (X_kv).");
}

static bool read_ids(struct api_reading *rd, struct attn_mask *m, struct attn_arg *arg,
                     const json_t *v, const char *pointer, struct api_err *err)
{
    (void)m;
    return refuse_cross(rd, pointer, err) &&
           read_whole(rd, v, pointer, rd->r->p.d.T_kv, -1, (int64_t)API_WHOLE_MAX,
                      &arg->table, err);
}

static bool read_next_id(struct api_reading *rd, struct attn_mask *m,
                         struct attn_arg *arg, const json_t *v, const char *pointer,
                         struct api_err *err)
{
    (void)m;
    if (rd->r->p.d.B == 1 && json_is_number(v)) {
        int64_t *id = api_take(rd, sizeof *id, pointer, err);

        rd->r->next_id = id;
        return id != NULL &&
               api_read_int(v, pointer, -1, (int64_t)API_WHOLE_MAX, id, err);
    }
    if (!read_whole(rd, v, pointer, 0, -1, (int64_t)API_WHOLE_MAX, &arg->table, err))
        return false;
    rd->r->next_id = arg->table.p;
    return true;
}

/* Writes the ids of one item, T_kv of them, from its list. */
typedef bool item_fn(const json_t *list, const char *pointer, size_t T_kv, int64_t *ids,
                     struct api_err *err);

static bool fail_sum(struct api_err *err, const char *pointer, size_t T_kv, size_t sum)
{
    return api_fail_numbers(err, "wrong-shape", pointer, "M", T_kv, sum,
                            "The documents end at %zu, but there are %zu keys.", sum,
                            T_kv);
}

static bool item_from_lengths(const json_t *list, const char *pointer, size_t T_kv,
                              int64_t *ids, struct api_err *err)
{
    char place[API_POINTER_MAX];
    size_t at = 0, length;

    for (size_t n = 0; n < json_array_size(list); n++) {
        if (!api_read_size(json_array_get(list, n), api_pointer_index(place, pointer, n),
                           0, SIZE_MAX, &length, err))
            return false;
        if (length > T_kv - at)
            return fail_sum(err, pointer, T_kv, at + length);
        for (size_t end = at + length; at < end; at++)
            ids[at] = (int64_t)n;
    }
    return at == T_kv || fail_sum(err, pointer, T_kv, at);
}

static bool item_from_bounds(const json_t *list, const char *pointer, size_t T_kv,
                             int64_t *ids, struct api_err *err)
{
    char place[API_POINTER_MAX];
    size_t at = 0, bound;

    if (json_array_size(list) == 0)
        return api_fail(err, "missing", pointer,
                        "cu_seqlens begins with 0 and ends with %zu.", T_kv);
    for (size_t n = 0; n < json_array_size(list); n++) {
        api_pointer_index(place, pointer, n);
        if (!api_read_size(json_array_get(list, n), place, 0, SIZE_MAX, &bound, err))
            return false;
        if (n == 0 && bound != 0)
            return api_fail_numbers(err, "bad-value", place, "M", 0, bound,
                                    "cu_seqlens begins with 0, not %zu.", bound);
        if (n > 0 && bound < at)
            return api_fail_numbers(err, "bad-value", place, "M", at, bound,
                                    "cu_seqlens never falls: %zu follows %zu.", bound,
                                    at);
        if (bound > T_kv)
            return fail_sum(err, place, T_kv, bound);
        for (; at < bound; at++)
            ids[at] = (int64_t)n - 1;
    }
    return at == T_kv || fail_sum(err, pointer, T_kv, at);
}

/* A list an item, or one list where there is one item. */
static bool items_from_lists(const struct api_reading *rd, const json_t *lists,
                             const char *pointer, item_fn *item, int64_t *ids,
                             struct api_err *err)
{
    const size_t B = rd->r->p.d.B, T_kv = rd->r->p.d.T_kv;
    const json_t *first = json_array_get(lists, 0);
    char place[API_POINTER_MAX];

    if (B == 1 && !json_is_array(first))
        return item(lists, pointer, T_kv, ids, err);
    if (json_array_size(lists) != B && (first == NULL || json_is_array(first)))
        return api_fail_numbers(
            err, "wrong-shape", pointer, "M", B, json_array_size(lists),
            "There are %zu items, but %zu lists.", B, json_array_size(lists));
    for (size_t b = 0; b < B; b++) {
        const json_t *list = json_array_get(lists, b);

        api_pointer_index(place, pointer, b);
        if (!json_is_array(list))
            return api_fail(err, "wrong-rank", place,
                            "A list for each of the %zu items is "
                            "expected here, not %s.",
                            B, api_type_name(NULL, list));
        if (!item(list, place, T_kv, ids + b * T_kv, err))
            return false;
    }
    return true;
}

/* Lists that may differ in length, read into the rule's parameter of ids. */
static bool read_lists(struct api_reading *rd, struct attn_mask *m, const json_t *v,
                       const char *pointer, item_fn *item, struct api_err *err)
{
    const size_t B = rd->r->p.d.B, T_kv = rd->r->p.d.T_kv;
    size_t n = 0;
    json_t *lists;
    int64_t *ids;
    bool ok;

    while (n < ATTN_PARAMS_MAX && m->row->param[n].kind != ATTN_PARAM_IDS)
        n++;
    assert(n < ATTN_PARAMS_MAX);
    if (!refuse_cross(rd, pointer, err))
        return false;
    ids = api_take(rd, B * T_kv * sizeof *ids, pointer, err);
    lists =
        ids != NULL ? api_doc_tree(rd->doc, v, pointer, 2 * B * (T_kv + 1), err) : NULL;
    ok = lists != NULL && items_from_lists(rd, lists, pointer, item, ids, err);
    json_decref(lists);
    m->arg[n].given = ok;
    m->arg[n].table =
        (struct attn_table){.elem = ATTN_ELEM_I64, .p = ids, .stride_b = T_kv};
    return ok;
}

static bool read_segments(struct api_reading *rd, struct attn_mask *m,
                          struct attn_arg *arg, const json_t *v, const char *pointer,
                          struct api_err *err)
{
    (void)arg;
    return read_lists(rd, m, v, pointer, item_from_lengths, err);
}

static bool read_cu_seqlens(struct api_reading *rd, struct attn_mask *m,
                            struct attn_arg *arg, const json_t *v, const char *pointer,
                            struct api_err *err)
{
    (void)arg;
    return read_lists(rd, m, v, pointer, item_from_bounds, err);
}

/* ---- all kinds ---- */

static kind_fn *const KINDS[] = {
    [ATTN_PARAM_ALIGNMENT] = read_alignment,
    [ATTN_PARAM_EXTENT] = read_extent,
    [ATTN_PARAM_LENGTHS] = read_lengths,
    [ATTN_PARAM_VALID] = read_valid,
    [ATTN_PARAM_IDS] = read_ids,
    [ATTN_PARAM_SEGMENTS] = read_segments,
    [ATTN_PARAM_CU_SEQLENS] = read_cu_seqlens,
    [ATTN_PARAM_NEXT_ID] = read_next_id,
    [ATTN_PARAM_PAIRS] = read_pairs,
};
_Static_assert(API_COUNT(KINDS) == ATTN_PARAM_KIND_COUNT, "one reader a kind");

bool api_read_mask_param(struct api_reading *rd, struct attn_mask *mask, size_t n,
                         const json_t *value, const char *pointer, struct api_err *err)
{
    struct attn_arg *arg = &mask->arg[n];

    arg->given = true;
    return KINDS[mask->row->param[n].kind](rd, mask, arg, value, pointer, err);
}
