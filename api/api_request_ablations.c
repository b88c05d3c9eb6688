/*
 * api_request_ablations.c - the list of ablations: one change each, or several together.
 * Not here: targets and changes (core's tables), what they do (core/attn_ablate.c).
 * Start reading at api_read_ablations, then finish_edit.
 */
#include "api/api_request.h"

#include <stdio.h>
#include <string.h>

struct edit_fields {
    struct api_reading *rd;
    struct attn_edit *edit;
    bool delta;
    bool index, query, key, by, seed, std, with; /* given */
    struct api_tensor_in tensor;
    double number; /* "with" as a single number */
    bool is_number;
};

/* ---- fields ---- */

static const char *target_name_at(const void *names, size_t n)
{
    (void)names;
    return attn_edit_target_at(n)->name;
}

static const char *change_name_at(const void *names, size_t n)
{
    (void)names;
    return attn_edit_change_at(n)->name;
}

/* "masks.<rule>": the rule must be one that this problem has. */
static bool read_rule(struct edit_fields *f, const char *rule, const char *pointer,
                      struct api_err *err)
{
    const struct attn_problem *p = &f->rd->r->p;
    const struct attn_mask *mask = attn_mask_of(p, rule);

    f->edit->target = attn_edit_target_find("masks");
    if (mask != NULL)
        f->edit->rule = mask->row->name;
    else if (strcmp(rule, "additive") == 0 && p->additive.p != NULL)
        f->edit->rule = "additive";
    if (f->edit->target != NULL && f->edit->rule != NULL)
        return true;
    return api_fail(err, "contradiction", pointer,
                    "The problem has no mask rule \"%.*s\".",
                    (int)api_utf8_cut(rule, API_GIVEN_MAX), rule);
}

static bool read_target(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    static const char MASKS[] = "masks.";
    struct edit_fields *f = into;
    const char *name = json_string_value(v);

    if (name == NULL)
        return api_fail_type(err, pointer, "The name of a target", api_type_name(doc, v));
    if (strncmp(name, MASKS, sizeof MASKS - 1) == 0)
        return read_rule(f, name + sizeof MASKS - 1, pointer, err);
    if (strcmp(name, "masks") == 0)
        return api_fail(err, "missing", pointer,
                        "State which rule: \"masks.<rule>\", as in \"masks.causal\".");
    f->edit->target = attn_edit_target_find(name);
    return f->edit->target != NULL ||
           api_fail_unknown(err, "unknown-name", pointer, name, target_name_at, NULL,
                            attn_edit_target_count());
}

static bool read_change(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    struct edit_fields *f = into;
    const char *name = json_string_value(v);

    if (name == NULL)
        return api_fail_type(err, pointer, "The name of a change", api_type_name(doc, v));
    f->edit->change = attn_edit_change_find(name);
    return f->edit->change != NULL ||
           api_fail_unknown(err, "unknown-name", pointer, name, change_name_at, NULL,
                            attn_edit_change_count());
}

static bool read_index(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct edit_fields *f = into;

    (void)doc;
    f->index = true;
    return api_read_size(v, pointer, 0, SIZE_MAX, &f->edit->index, err);
}

static bool read_query(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct edit_fields *f = into;

    (void)doc;
    f->query = true;
    return api_read_size(v, pointer, 0, SIZE_MAX, &f->edit->query, err);
}

static bool read_key(void *into, const struct api_doc *doc, const json_t *v,
                     const char *pointer, struct api_err *err)
{
    struct edit_fields *f = into;

    (void)doc;
    f->key = true;
    return api_read_size(v, pointer, 0, SIZE_MAX, &f->edit->key, err);
}

static bool read_by(void *into, const struct api_doc *doc, const json_t *v,
                    const char *pointer, struct api_err *err)
{
    struct edit_fields *f = into;

    (void)doc;
    f->by = true;
    return api_read_double(v, pointer, &f->edit->by, err);
}

static bool read_seed(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    struct edit_fields *f = into;
    int64_t seed = 0;

    (void)doc;
    f->seed = true;
    if (!api_read_int(v, pointer, 0, INT64_MAX, &seed, err))
        return false;
    f->edit->seed = (uint64_t)seed;
    return true;
}

static bool read_std(void *into, const struct api_doc *doc, const json_t *v,
                     const char *pointer, struct api_err *err)
{
    struct edit_fields *f = into;

    (void)doc;
    f->std = true;
    return api_read_double(v, pointer, &f->edit->std, err) &&
           (f->edit->std > 0.0 ||
            api_fail(err, "bad-value", pointer, "std must be greater than 0; it is %g.",
                     f->edit->std));
}

static bool read_with(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    struct edit_fields *f = into;

    f->with = true;
    f->is_number = json_is_number(v);
    return f->is_number ? api_read_double(v, pointer, &f->number, err)
                        : api_tensor_scan(doc, v, pointer, &f->tensor, err);
}

static bool read_return(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    static const char *const NAMES[] = {"tensors", "delta"};
    int choice;

    (void)doc;
    if (!api_read_choice(v, pointer, NAMES, API_COUNT(NAMES), &choice, err))
        return false;
    ((struct edit_fields *)into)->delta = choice == 1;
    return true;
}

/* clang-format off */
static const struct api_field_row EDIT[] = {
    { "target", read_target, true },   { "change", read_change, true },
    { "index", read_index, false },    { "query", read_query, false },
    { "key", read_key, false },        { "by", read_by, false },
    { "seed", read_seed, false },      { "std", read_std, false },
    { "with", read_with, false },      { "return", read_return, false },
};
/* clang-format on */

/* ---- one change ---- */

/* A field is there exactly when target or change needs it; a seed left out is 0. */
static bool check_fields(const struct edit_fields *f, const char *pointer,
                         struct api_err *err)
{
    const struct attn_edit_target_row *target = f->edit->target;
    const struct attn_edit_change_row *change = f->edit->change;
    const struct {
        const char *name;
        bool given, needed, optional;
    } fields[] = {
        {"index", f->index, target->needs_index, false},
        {"query", f->query, target->needs_query_key, false},
        {"key", f->key, target->needs_query_key, false},
        {"by", f->by, change->needs_by, false},
        {"seed", f->seed, change->needs_seed, true},
        {"std", f->std, change->needs_std, false},
        {"with", f->with, change->needs_with, false},
    };
    char place[API_POINTER_MAX];

    for (size_t n = 0; n < API_COUNT(fields); n++) {
        if (fields[n].given == fields[n].needed ||
            (fields[n].needed && fields[n].optional))
            continue;
        api_pointer(place, pointer, fields[n].name);
        if (fields[n].needed)
            return api_fail(err, "missing", place, "\"%s\" of %s needs \"%s\".",
                            change->name, target->name, fields[n].name);
        return api_fail(err, "contradiction", place, "\"%s\" of %s has no \"%s\".",
                        change->name, target->name, fields[n].name);
    }
    return true;
}

static bool check_pair(const struct attn_edit *edit, const char *pointer,
                       struct api_err *err)
{
    char list[256] = "", place[API_POINTER_MAX];
    size_t len = 0;

    for (size_t n = 0; n < attn_edit_change_count(); n++) {
        const struct attn_edit_change_row *row = attn_edit_change_at(n);

        if ((edit->target->changes & UINT32_C(1) << n) == 0)
            continue;
        if (row == edit->change)
            return true;
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s\"%s\"",
                                    len == 0 ? "" : ", ", row->name);
    }
    return api_fail(err, "not-supported", api_pointer(place, pointer, "change"),
                    "%s cannot be changed by \"%s\"; it can by %s.", edit->target->name,
                    edit->change->name, list);
}

/* The input that a target replaces; -1 when it is none. */
static int target_input(const struct attn_edit *edit)
{
    for (int k = 0; k < ATTN_INPUT_COUNT; k++)
        if (strcmp(ATTN_INPUTS[k].name, edit->target->name) == 0)
            return k;
    return -1;
}

static bool fill_number(struct edit_fields *f, const char *pointer, struct api_err *err)
{
    struct attn_tensor *t = &f->edit->with;

    *t = (struct attn_tensor){.dtype = f->rd->r->p.dtype, .rank = 1, .dim = {1}};
    t->p = api_take(f->rd, sizeof(double), pointer, err);
    if (t->p == NULL)
        return false;
    if (t->dtype == ATTN_F64)
        *(double *)t->p = f->number;
    else
        *(float *)t->p = (float)f->number;
    return true;
}

/* The replacement in the layout of core; a weight is given in the orientation of the
   weights. */
static bool fill_with(struct edit_fields *f, struct api_err *err)
{
    struct api_reading *rd = f->rd;
    const int k = target_input(f->edit);
    struct attn_tensor *t = &f->edit->with;
    const bool turned = rd->r->torch_linear && k >= ATTN_IN_W_Q && k <= ATTN_IN_W_O;
    size_t count, dim[ATTN_RANK_MAX];

    if (k < 0 && !f->tensor.shaped)
        return api_fail(err, "missing", f->tensor.pointer, "\"shape\" is needed here.");
    t->rank = k >= 0 ? rd->r->p.in[k].rank : f->tensor.rank;
    memcpy(dim, k >= 0 ? rd->r->p.in[k].dim : f->tensor.dim, sizeof dim);
    memcpy(t->dim, dim, sizeof dim);
    t->dtype = rd->r->p.dtype;
    if (turned) {
        dim[0] = t->dim[1];
        dim[1] = t->dim[0];
    }
    if (!api_expect_shape(&f->tensor, f->edit->target->name, t->rank, dim, err))
        return false;
    if (rd->sizes_only)
        return true;
    if (!api_count_of(t->rank, t->dim, &count))
        return api_fail(err, "too-large", f->tensor.pointer,
                        "The sizes of the shape multiply to more than can be counted.");
    t->p = api_take(rd, count * attn_dtype_bytes(t->dtype), f->tensor.pointer, err);
    if (t->p == NULL)
        return false;
    return turned ? api_turn_matrix(rd, &f->tensor, t, err)
                  : api_tensor_read(&f->tensor, API_FINITE_ONLY, t, err);
}

/* Core speaks of the edit's fields by name; the pointer is that of the field in this
   edit. */
static bool fail_edit(const struct attn_err *core, const char *pointer,
                      struct api_err *err)
{
    char place[API_POINTER_MAX];

    if (err->set)
        return false;
    api_fail_core(err, core);
    snprintf(place, sizeof place, "%s", pointer);
    for (size_t n = 0; n < API_COUNT(EDIT); n++)
        if (core->object != NULL && strcmp(EDIT[n].name, core->object) == 0)
            api_pointer(place, pointer, core->object);
    memcpy(err->pointer, place, sizeof err->pointer);
    err->has_pointer = true;
    return false;
}

static bool read_edit(struct api_reading *rd, const json_t *v, const char *pointer,
                      struct api_ablation *ablation, struct api_err *err)
{
    struct attn_edit *edit = &ablation->edit[ablation->edits++];
    struct edit_fields f = {.rd = rd, .edit = edit};
    struct attn_err core = {0};

    if (!api_read_object(&f, rd->doc, v, pointer, EDIT, API_COUNT(EDIT), err) ||
        !check_pair(edit, pointer, err) || !check_fields(&f, pointer, err))
        return false;
    ablation->delta = ablation->delta || f.delta;
    if (f.with && !(f.is_number ? fill_number(&f, pointer, err) : fill_with(&f, err)))
        return false;
    return rd->sizes_only || attn_edit_check(&rd->r->p, edit, &core) ||
           fail_edit(&core, pointer, err);
}

/* ---- the list ---- */

static bool read_together(struct api_reading *rd, const json_t *v,
                          struct api_ablation *ablation, struct api_err *err)
{
    char pointer[API_POINTER_MAX];
    size_t count;

    if (!api_read_list(rd, v, ablation->pointer, ATTN_EDITS_MAX, &count, err))
        return false;
    if (count == 0)
        return api_fail(err, "missing", ablation->pointer, "A list of changes is empty.");
    for (size_t n = 0; n < count; n++)
        if (!read_edit(rd, json_array_get(v, n),
                       api_pointer_index(pointer, ablation->pointer, n), ablation, err))
            return false;
    return true;
}

bool api_read_ablations(struct api_reading *rd, struct api_err *err)
{
    struct api_request *r = rd->r;

    if (rd->ablations == NULL)
        return true;
    if (!api_read_list(rd, rd->ablations, "/ablations", API_ABLATIONS_MAX, &r->ablations,
                       err))
        return false;
    r->ablation = api_take(rd, r->ablations * sizeof *r->ablation, "/ablations", err);
    for (size_t n = 0; r->ablation != NULL && n < r->ablations; n++) {
        const json_t *v = json_array_get(rd->ablations, n);
        struct api_ablation *ablation = &r->ablation[n];

        *ablation = (struct api_ablation){0};
        api_pointer_index(ablation->pointer, "/ablations", n);
        if (!(json_is_array(v) ? read_together(rd, v, ablation, err)
                               : read_edit(rd, v, ablation->pointer, ablation, err)))
            return false;
    }
    return r->ablation != NULL;
}
