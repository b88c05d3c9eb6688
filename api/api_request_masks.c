/*
 * api_request_masks.c - the object `masks`: rules as core's table declares them, bias,
 * convention.
 * Not here: one reader a parameter kind (api_mask_params.c), the rules
 * (core/attn_mask.c).
 * Start reading at api_read_masks.
 */
#include "api/api_request.h"

#include <stdio.h>
#include <string.h>

/* ---- one rule ---- */

static size_t param_count(const struct attn_mask_row *row)
{
    size_t n = 0;

    while (n < ATTN_PARAMS_MAX && row->param[n].kind != ATTN_PARAM_END)
        n++;
    return n;
}

static const char *param_name_at(const void *names, size_t n)
{
    return ((const struct attn_mask_row *)names)->param[n].name;
}

/* The other parameter of the same group that is given too; NULL when there is none. */
static const char *rival(const struct attn_mask_row *row, const json_t *object, size_t n)
{
    for (size_t other = 0; other < param_count(row); other++)
        if (other != n && row->param[n].one_of > 0 &&
            row->param[other].one_of == row->param[n].one_of &&
            json_object_get(object, row->param[other].name) != NULL)
            return row->param[other].name;
    return NULL;
}

static bool read_param(struct api_reading *rd, struct attn_mask *m, const json_t *object,
                       const char *key, const json_t *value, const char *pointer,
                       struct api_err *err)
{
    const struct attn_mask_row *row = m->row;
    char place[API_POINTER_MAX];
    size_t n = 0;

    api_pointer(place, pointer, key);
    while (n < param_count(row) && strcmp(row->param[n].name, key) != 0)
        n++;
    if (n == param_count(row))
        return api_fail_unknown(err, "unknown-field", place, key,
                                api_nearest(key, param_name_at, row, n));
    if (rival(row, object, n) != NULL)
        return api_fail(err, "contradiction", place,
                        "\"%s\" and \"%s\" say the same thing twice: state one of them.",
                        key, rival(row, object, n));
    return api_read_mask_param(rd, m, n, value, place, err);
}

/* Of every group exactly one is given; without groups at least one parameter is. */
static bool check_complete(const struct attn_mask_row *row, const json_t *object,
                           const char *pointer, struct api_err *err)
{
    bool complete = row->form != ATTN_MASK_OBJECT || json_object_size(object) > 0;
    char list[128] = "";
    size_t len = 0;

    for (size_t n = 0; n < param_count(row); n++) {
        if (row->param[n].one_of > 0 && rival(row, object, n) == NULL &&
            json_object_get(object, row->param[n].name) == NULL)
            complete = false;
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s\"%s\"",
                                    n == 0 ? "" : ", ", row->param[n].name);
    }
    return complete ||
           api_fail(err, "missing", pointer, "%s is not complete: its parameters are %s.",
                    row->name, list);
}

static bool read_params(struct api_reading *rd, struct attn_mask *m, const json_t *object,
                        const char *pointer, struct api_err *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return api_fail(err, "wrong-type", pointer, "%s is expected here, not %s.",
                        m->row->form == ATTN_MASK_SWITCH ? "true, false or an object"
                                                         : "An object",
                        api_type_name(rd->doc, object));
    json_object_foreach(
        (json_t *)object, key,
        value) if (!read_param(rd, m, object, key, value, pointer, err)) return false;
    return check_complete(m->row, object, pointer, err);
}

static bool read_rule(struct api_reading *rd, const struct attn_mask_row *row,
                      const json_t *v, struct api_err *err)
{
    struct attn_problem *p = &rd->r->p;
    struct attn_mask m = {.row = row};
    char pointer[API_POINTER_MAX];
    bool ok = true;

    api_pointer(pointer, "/masks", row->name);
    if (row->form == ATTN_MASK_SWITCH && json_is_false(v))
        return true;
    if (row->form == ATTN_MASK_TENSOR)
        ok = api_read_mask_param(rd, &m, 0, v, pointer, err);
    else if (row->form != ATTN_MASK_SWITCH || !json_is_true(v))
        ok = read_params(rd, &m, v, pointer, err);
    if (!ok)
        return false;
    if (p->mask_count == ATTN_MASKS_MAX)
        return api_fail_numbers(err, "not-supported", pointer, NULL, ATTN_MASKS_MAX,
                                p->mask_count + 1, "At most %d rules can be combined.",
                                ATTN_MASKS_MAX);
    p->mask[p->mask_count++] = m;
    return true;
}

/* ---- beside the rules ---- */

static bool looks_boolean(const double *x, size_t count)
{
    for (size_t n = 0; n < count; n++)
        if (x[n] != 0.0 && x[n] != 1.0)
            return false;
    return true;
}

static bool read_additive(struct api_reading *rd, const json_t *v, struct api_err *err)
{
    struct attn_problem *p = &rd->r->p;
    const size_t pairs = p->d.T_q * p->d.T_kv;
    const struct attn_table *t = &p->additive;

    if (!api_read_pairs(rd, v, "/masks/additive", ATTN_F64, &p->additive, err))
        return false;
    if (looks_boolean(t->p, pairs * (t->stride_b > 0 ? p->d.B : 1) *
                                (t->stride_h > 0 ? p->d.h : 1)))
        api_warn(rd->r,
                 "masks.additive holds only 0 and 1 and looks boolean: its numbers are "
                 "added to the scores; use masks.allowed or masks.blocked for booleans.");
    return true;
}

static const char *convention_name_at(const void *names, size_t n)
{
    (void)names;
    return attn_convention_at(n)->name;
}

static bool read_convention(struct api_reading *rd, const json_t *v, struct api_err *err)
{
    const char *pointer = "/masks/convention", *name = json_string_value(v);

    if (name == NULL)
        return api_fail(err, "wrong-type", pointer,
                        "The name of a convention is expected here, not %s.",
                        api_type_name(rd->doc, v));
    rd->r->convention = attn_convention_find(name);
    return rd->r->convention != NULL ||
           api_fail_unknown(
               err, "unknown-name", pointer, name,
               api_nearest(name, convention_name_at, NULL, attn_convention_count()));
}

static const struct {
    const char *name;
    bool (*read)(struct api_reading *rd, const json_t *v, struct api_err *err);
} BESIDE[] = {
    {"additive", read_additive},
    {"convention", read_convention},
};

/* ---- what a convention sets ---- */

static const char *alignment_name(enum attn_alignment alignment)
{
    return alignment == ATTN_ALIGN_TOP_LEFT ? "top_left" : "bottom_right";
}

static void note(struct api_request *r, const char *field, const char *value)
{
    if (r->set_count < API_COUNT(r->set_by_convention))
        r->set_by_convention[r->set_count++] =
            (struct api_convention_note){.field = field, .value = value};
}

/* Only what the client left open: what is stated stands, and is not listed as set. */
static void apply_convention(struct api_reading *rd)
{
    struct api_request *r = rd->r;
    const struct attn_convention_row *row = r->convention;
    struct attn_mask *causal = (struct attn_mask *)attn_mask_of(&r->p, "causal");

    if (row == NULL)
        return;
    if (causal != NULL && !causal->arg[0].given &&
        row->alignment != ATTN_ALIGN_UNSTATED) {
        causal->arg[0].given = true;
        causal->arg[0].number = row->alignment;
        note(r, "masks.causal.alignment", alignment_name(row->alignment));
    }
    if (!rd->empty_rows_stated) {
        r->p.empty_rows = row->empty_rows;
        note(r, "empty_rows", ATTN_EMPTY_NAMES[row->empty_rows]);
    }
}

/* ---- the object ---- */

static const char *mask_name_at(const void *names, size_t n)
{
    (void)names;
    return n < attn_mask_count() ? attn_mask_at(n)->name
                                 : BESIDE[n - attn_mask_count()].name;
}

static bool check_names(const json_t *object, struct api_err *err)
{
    const size_t count = attn_mask_count() + API_COUNT(BESIDE);
    char pointer[API_POINTER_MAX];
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        size_t n = 0;

        while (n < count && strcmp(mask_name_at(NULL, n), key) != 0)
            n++;
        if (n == count)
            return api_fail_unknown(err, "unknown-field",
                                    api_pointer(pointer, "/masks", key), key,
                                    api_nearest(key, mask_name_at, NULL, count));
    }
    return true;
}

bool api_read_masks(struct api_reading *rd, struct api_err *err)
{
    const json_t *object = rd->masks, *v;

    if (object == NULL)
        return true;
    if (!json_is_object(object))
        return api_fail(err, "wrong-type", "/masks",
                        "An object is expected here, not %s.",
                        api_type_name(rd->doc, object));
    if (!check_names(object, err))
        return false;
    for (size_t n = 0; n < attn_mask_count(); n++) {
        v = json_object_get(object, attn_mask_at(n)->name);
        if (v != NULL && !read_rule(rd, attn_mask_at(n), v, err))
            return false;
    }
    for (size_t n = 0; n < API_COUNT(BESIDE); n++) {
        v = json_object_get(object, BESIDE[n].name);
        if (v != NULL && !BESIDE[n].read(rd, v, err))
            return false;
    }
    apply_convention(rd);
    return true;
}
