/*
 * api_request_masks.c - the object `masks`: rules as core's table declares them, bias,
 * convention.
 * Not here: one reader a parameter kind (api_mask_params.c), the rules
 * (core/attn_mask.c).
 * Start reading at api_read_masks.
 */
#include "api/api_request.h"

#include <math.h>
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
        return api_fail_unknown(err, "unknown-field", place, key, param_name_at, row, n);
    if (rival(row, object, n) != NULL)
        return api_fail(err, "contradiction", place,
                        "\"%s\" and \"%s\" say the same thing twice: state one of them.",
                        key, rival(row, object, n));
    return api_read_mask_param(rd, m, n, value, place, err);
}

struct group { /* parameters of a rule of which exactly one is given */
    const struct attn_mask_row *row;
    int number;
};

static const char *group_name_at(const void *names, size_t n)
{
    const struct group *group = names;

    return group->row->param[n].one_of == group->number ? group->row->param[n].name : "";
}

/* Of every group exactly one is given; without groups at least one parameter is. */
static bool check_complete(const struct attn_mask_row *row, const json_t *object,
                           const char *pointer, struct api_err *err)
{
    const size_t count = param_count(row);
    struct group open = {.row = row};
    char list[API_NAMES_MAX];

    for (size_t n = count; n-- > 0;)
        if (row->param[n].one_of > 0 && rival(row, object, n) == NULL &&
            json_object_get(object, row->param[n].name) == NULL)
            open.number = row->param[n].one_of;
    if (open.number > 0)
        return api_fail(err, "missing", pointer, "%s needs exactly one of %s.", row->name,
                        api_name_list(list, group_name_at, &open, count));
    return row->form != ATTN_MASK_OBJECT || json_object_size(object) > 0 ||
           api_fail(err, "missing", pointer, "%s is not complete: its parameters are %s.",
                    row->name, api_name_list(list, param_name_at, row, count));
}

static bool read_params(struct api_reading *rd, struct attn_mask *m, const json_t *object,
                        const char *pointer, struct api_err *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return api_fail_type(err, pointer,
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

/* Finite, but far below any score: what stands in for -Infinity elsewhere. */
static bool has_finite_fill(const double *x, size_t count)
{
    static const double FILL_MAX = -1e4;

    for (size_t n = 0; n < count; n++)
        if (x[n] <= FILL_MAX && isfinite(x[n]))
            return true;
    return false;
}

static bool read_additive(struct api_reading *rd, const json_t *v, struct api_err *err)
{
    struct attn_problem *p = &rd->r->p;
    const size_t pairs = p->d.T_q * p->d.T_kv;
    const struct attn_table *t = &p->additive;
    size_t count;

    if (!api_read_pairs(rd, v, "/masks/additive", ATTN_F64, &p->additive, err))
        return false;
    count = pairs * (t->stride_b > 0 ? p->d.B : 1) * (t->stride_h > 0 ? p->d.h : 1);
    if (looks_boolean(t->p, count))
        api_warn(rd->r,
                 "masks.additive holds only 0 and 1 and looks boolean: its numbers are "
                 "added to the scores; use masks.allowed or masks.blocked for booleans.");
    if (has_finite_fill(t->p, count))
        api_warn(rd->r,
                 "masks.additive holds finite numbers of -10000 or less and looks like a "
                 "mask: a finite fill forbids nothing, and in a row that it fills "
                 "everywhere it cancels out. Write \"-Infinity\", or use masks.allowed "
                 "or masks.blocked.");
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
        return api_fail_type(err, pointer, "The name of a convention",
                             api_type_name(rd->doc, v));
    rd->r->convention = attn_convention_find(name);
    return rd->r->convention != NULL ||
           api_fail_unknown(err, "unknown-name", pointer, name, convention_name_at, NULL,
                            attn_convention_count());
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
                                    mask_name_at, NULL, count);
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
