/*
 * api_answer_report.c - what the judge found in a candidate, as JSON.
 * Not here: judging (core/attn_diagnose*.c), companions (api_audit.c).
 * Start reading at api_put_report.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api_audit.h"

/* One object or gradient of the candidate. */
struct item {
    const char *name;
    const struct attn_object_verdict *verdict;
    struct attn_tensor shape; /* as it would be answered */
    const struct attn_tensor
        *came;   /* the shape it came with, where that is wrong; or NULL */
    bool turned; /* judged as (in,out), given as (out,in) */
    bool sums;   /* its entries are sums of what was judged */
    unsigned full_rank;
    bool dropped[ATTN_RANK_MAX]; /* axes of the full rank that answers lack */
};

/* ---- which there are ---- */

static void drop_axes(const struct api_judged *j, const enum attn_axis *axis,
                      struct item *item)
{
    const struct attn_form *form = &j->r.p.form;

    for (unsigned a = 0; a < ATTN_RANK_MAX && axis[a] != ATTN_AX_END; a++) {
        item->full_rank = a + 1;
        item->dropped[a] =
            (axis[a] == ATTN_AX_B && !form->batch_axis) ||
            ((axis[a] == ATTN_AX_H || axis[a] == ATTN_AX_HKV) && !form->head_axis);
    }
}

static void item_of_object(const struct api_judged *j, enum attn_object o,
                           struct item *item)
{
    *item = (struct item){
        .name = ATTN_OBJECTS[o].name,
        .verdict = &j->report.object[o],
        .came = j->candidate.bad_object & ATTN_BIT(o) ? &j->bad_object[o] : NULL};
    attn_object_shape(&j->r.p, o, &item->shape);
    drop_axes(j, ATTN_OBJECTS[o].axis, item);
}

static void item_of_gradient(const struct api_judged *j, enum attn_gradient g,
                             struct item *item)
{
    const struct attn_gradient_row *row = &ATTN_GRADIENTS[g];
    enum attn_axis axis[5] = {ATTN_AX_END};

    *item = (struct item){
        .name = row->name,
        .verdict = &j->report.gradient[g],
        .came = j->candidate.bad_gradient & ATTN_BIT(g) ? &j->bad_gradient[g] : NULL};
    item->sums = g == ATTN_D_ADDITIVE && j->shared_additive.p != NULL;
    item->turned = api_gradient_shape(&j->r, g, &item->shape) && g != ATTN_D_ADDITIVE;
    if (row->like_object >= 0 || g == ATTN_D_ADDITIVE) {
        drop_axes(j, ATTN_OBJECTS[row->like_object >= 0 ? row->like_object : ATTN_S].axis,
                  item);
        return;
    }
    memcpy(axis, ATTN_INPUTS[row->like_input].axis,
           sizeof ATTN_INPUTS[row->like_input].axis);
    /* Only X and X_kv lose their batch axis; weights have none. */
    drop_axes(j, axis, item);
}

/* The fixed order of first_incorrect, and everything that was given beside it. */
static bool is_listed(const struct api_judged *j, enum attn_object o)
{
    if (!attn_object_exists(&j->r.p, o) || !ATTN_OBJECTS[o].returnable)
        return false;
    return ATTN_OBJECTS[o].by_default || j->candidate.object[o].p != NULL ||
           (j->candidate.bad_object & ATTN_BIT(o));
}

enum { ITEMS = ATTN_OBJECT_COUNT + ATTN_GRADIENT_COUNT };

static bool item_at(const struct api_judged *j, int n, struct item *item)
{
    const int g = n - ATTN_OBJECT_COUNT;

    if (g < 0 && !is_listed(j, (enum attn_object)n))
        return false;
    if (g >= 0 && !api_gradient_asked(&j->r, (enum attn_gradient)g))
        return false;
    if (g < 0)
        item_of_object(j, (enum attn_object)n, item);
    else
        item_of_gradient(j, (enum attn_gradient)g, item);
    return true;
}

/* What first_incorrect calls it: allowed counts as M, H_heads as H. */
static const char *counts_as(const char *name)
{
    const int o = attn_object_find(name);

    return o >= 0 ? ATTN_OBJECTS[ATTN_OBJECTS[o].counts_as].name : name;
}

/* ---- one object ---- */

static bool put_error(struct api_buffer *b, const char *name, const struct item *item,
                      double error)
{
    const bool none = item->verdict->state == ATTN_STATE_NOT_GIVEN || item->came != NULL;

    return none ? api_put_text_member(b, name, NULL)
                : api_put_double_member(b, name, error);
}

static bool put_index(struct api_buffer *b, const struct item *item)
{
    const size_t *at = item->verdict->at;
    bool ok = api_put_key(b, "index") && api_puts(b, "[");

    if (item->turned)
        return ok && api_put_u64(b, at[1]) && api_puts(b, ",") && api_put_u64(b, at[0]) &&
               api_puts(b, "]");
    for (unsigned a = 0; a < item->full_rank; a++)
        if (!item->dropped[a])
            ok = ok && api_put_comma(b) && api_put_u64(b, at[a]);
    return ok && api_puts(b, "]");
}

static bool is_boolean(const struct item *item)
{
    const int o = attn_object_find(item->name);

    return o >= 0 && ATTN_OBJECTS[o].is_bool;
}

static bool put_entry(struct api_buffer *b, const char *name, const struct item *item,
                      double x)
{
    return is_boolean(item) ? api_put_bool_member(b, name, x != 0.0)
                            : api_put_double_member(b, name, x);
}

static bool put_difference(struct api_buffer *b, const struct item *item)
{
    return put_index(b, item) &&
           put_entry(b, "expected", item, item->verdict->expected) &&
           put_entry(b, "observed", item, item->verdict->observed);
}

static bool put_shapes(struct api_buffer *b, const struct item *item)
{
    return api_put_key(b, "expected") && api_put_shape(b, &item->shape) &&
           api_put_key(b, "observed") && api_put_shape(b, item->came);
}

static bool put_item(struct api_buffer *b, const struct item *item)
{
    const struct attn_object_verdict *v = item->verdict;
    bool ok = api_put_key(b, item->name) && api_puts(b, "{") &&
              api_put_text_member(b, "state", ATTN_STATE_NAMES[v->state]) &&
              put_error(b, "global_error", item, v->global_error) &&
              put_error(b, "local_error", item, v->local_error);

    if (ok && item->came != NULL)
        ok = api_put_key(b, "wrong_shape") && api_puts(b, "{") && put_shapes(b, item) &&
             api_puts(b, "}");
    if (ok && v->form != NULL)
        ok = api_put_text_member(b, "form", v->form);
    if (ok && v->differs && item->came == NULL && !item->sums)
        ok = api_put_key(b, "first_difference") && api_puts(b, "{") &&
             put_difference(b, item) && api_puts(b, "}");
    return ok && api_puts(b, "}");
}

static bool put_objects(struct api_buffer *b, const struct api_judged *j)
{
    bool ok = api_put_key(b, "objects") && api_puts(b, "{");
    struct item item;

    for (int n = 0; n < ITEMS && ok; n++)
        if (item_at(j, n, &item))
            ok = put_item(b, &item);
    return ok && api_puts(b, "}");
}

/* Of the first incorrect object, or of what was given of it: allowed for M. */
static bool put_first_difference(struct api_buffer *b, const struct api_judged *j)
{
    const char *first = j->report.first_incorrect;
    struct item item;

    if (!api_put_key(b, "first_difference"))
        return false;
    for (int n = 0; n < ITEMS && first != NULL; n++) {
        if (!item_at(j, n, &item) || item.came != NULL || item.sums ||
            !item.verdict->differs || item.verdict->state != ATTN_STATE_WRONG_HERE ||
            strcmp(counts_as(item.name), first) != 0)
            continue;
        return api_puts(b, "{") && api_put_text_member(b, "object", item.name) &&
               put_difference(b, &item) && api_puts(b, "}");
    }
    return api_puts(b, "null");
}

/* ---- causes ---- */

static bool put_names(struct api_buffer *b, const char *key, size_t count,
                      const struct attn_fault_row *const *rows)
{
    bool ok = api_put_key(b, key) && api_puts(b, "[");

    for (size_t n = 0; n < count && ok; n++)
        ok = api_put_comma(b) && api_put_string(b, attn_fault_name(rows[n]));
    return ok && api_puts(b, "]");
}

static bool put_diagnosis(struct api_buffer *b, const struct attn_diagnosis *d)
{
    bool ok = api_put_comma(b) && api_puts(b, "{") &&
              api_put_text_member(b, "fault", attn_fault_name(d->fault)) &&
              api_put_text_member(b, "object", attn_fault_object(d->fault)) &&
              api_put_text_member(b, "explanation", attn_fault_explanation(d->fault)) &&
              api_put_text_member(b, "fix", attn_fault_fix(d->fault)) &&
              api_put_double_member(b, "residual", d->residual);

    if (ok && d->has_param)
        ok = api_put_key(b, "parameter") && api_puts(b, "{") &&
             api_put_text_member(b, "name", d->param_name) &&
             api_put_double_member(b, "value", d->param) && api_puts(b, "}");
    return ok && put_names(b, "indistinguishable_from", d->same, d->same_as) &&
           api_puts(b, "}");
}

static void shape_fix(const struct item *item, char text[API_DETAIL_MAX])
{
    unsigned axis = 0;

    if (item->came->rank != item->shape.rank) {
        snprintf(text, API_DETAIL_MAX,
                 "Give %s %u axes: the head axis is there exactly when shapes.heads is "
                 "stated, the batch axis exactly when the input has one.",
                 item->name, item->shape.rank);
        return;
    }
    while (item->came->dim[axis] == item->shape.dim[axis])
        axis++;
    snprintf(text, API_DETAIL_MAX,
             "Look at what makes axis %u of %s: it has length %zu and needs %zu.", axis,
             item->name, item->came->dim[axis], item->shape.dim[axis]);
}

static bool put_wrong_shape(struct api_buffer *b, const struct item *item)
{
    char want[API_SHAPE_TEXT_MAX], got[API_SHAPE_TEXT_MAX], text[API_DETAIL_MAX];
    bool ok;

    api_shape_text(want, item->shape.rank, item->shape.dim);
    api_shape_text(got, item->came->rank, item->came->dim);
    snprintf(text, sizeof text, "%s has the shape %s; it is %s in this problem.",
             item->name, got, want);
    ok = api_put_comma(b) && api_puts(b, "{") &&
         api_put_text_member(b, "fault", "wrong_shape") &&
         api_put_text_member(b, "object", counts_as(item->name)) &&
         api_put_text_member(b, "explanation", text);
    shape_fix(item, text);
    return ok && api_put_text_member(b, "fix", text) &&
           api_put_text_member(b, "residual", NULL) && put_shapes(b, item) &&
           api_puts(b, ",\"indistinguishable_from\":[]}");
}

/* Wrong shapes of the first wrong object (or, with `others`, of the rest). */
static bool put_wrong_shapes(struct api_buffer *b, const struct api_judged *j,
                             bool others)
{
    const char *first = j->report.first_incorrect;
    bool ok = true;
    struct item item;

    for (int n = 0; n < ITEMS && ok; n++) {
        if (!item_at(j, n, &item) || item.came == NULL)
            continue;
        if ((first == NULL || strcmp(counts_as(item.name), first) != 0) == others)
            ok = put_wrong_shape(b, &item);
    }
    return ok;
}

static bool put_diagnoses(struct api_buffer *b, const struct api_judged *j)
{
    const struct attn_report *report = &j->report;
    bool ok =
        api_put_key(b, "diagnoses") && api_puts(b, "[") && put_wrong_shapes(b, j, false);

    for (size_t n = 0; n < report->diagnoses && ok; n++)
        ok = put_diagnosis(b, &report->diagnosis[n]);
    return ok && put_wrong_shapes(b, j, true) && api_puts(b, "]");
}

static bool put_hidden(struct api_buffer *b, const struct attn_report *report)
{
    bool ok = api_put_key(b, "cannot_be_told_apart") && api_puts(b, "[");

    for (size_t n = 0; n < report->hidden && ok; n++)
        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "fault",
                                 attn_fault_name(report->hidden_fault[n].fault)) &&
             api_put_text_member(b, "needs", report->hidden_fault[n].needs) &&
             api_puts(b, "}");
    return ok && api_puts(b, "]");
}

static bool put_forms(struct api_buffer *b, const struct attn_report *report)
{
    bool ok = api_put_key(b, "accepted_forms") && api_puts(b, "[");

    for (size_t n = 0; n < report->forms && ok; n++)
        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "form", report->form[n]->name) &&
             api_put_text_member(b, "says", report->form[n]->says) && api_puts(b, "}");
    return ok && api_puts(b, "]");
}

/* ---- the report ---- */

/* By attn_precision: what a wrong candidate is told that would be right in it. */
static const char *const IF_COARSER[ATTN_PRECISION_COUNT] = {
    [ATTN_FLOAT32] =
        "Every error is within the rounding of float32: if these numbers were "
        "computed or printed so, say \"candidate_dtype\": \"float32\".",
    [ATTN_FLOAT16] =
        "Every error is within the rounding of float16: if these numbers were "
        "computed or printed so, say \"candidate_dtype\": \"float16\", or a "
        "tolerance.",
    [ATTN_BFLOAT16] = "Every error is within the rounding of bfloat16: if these numbers "
                      "were computed or printed so, say \"candidate_dtype\": "
                      "\"bfloat16\", or a tolerance.",
};

static bool put_notes(struct api_buffer *b, const struct api_judged *j)
{
    const struct attn_report *report = &j->report;
    const bool wrong = report->verdict == ATTN_INCORRECT;
    const bool shapes = j->candidate.bad_object || j->candidate.bad_gradient;
    const struct {
        bool holds;
        const char *says;
    } notes[] = {
        {report->verdict == ATTN_INCONCLUSIVE, report->why_inconclusive},
        {wrong && report->diagnoses == 0 && !shapes && IF_COARSER[j->coarser] == NULL,
         "The place is certain, the cause is not known: no fault of the catalog "
         "reproduces these numbers."},
        {report->verdict == ATTN_CORRECT && report->hidden > 0,
         "Right on this input: cannot_be_told_apart lists what this input cannot show; "
         "/v1/probe issues one that shows more."},
        {j->shows_float32, "Every number of this candidate is a float32: it is judged as "
                           "such, as long as candidate_dtype does not say otherwise."},
        {true, IF_COARSER[j->coarser]},
    };
    bool ok = api_put_key(b, "notes") && api_puts(b, "[");

    for (size_t n = 0; n < API_COUNT(notes) && ok; n++)
        if (notes[n].holds && notes[n].says != NULL)
            ok = api_put_comma(b) && api_put_string(b, notes[n].says);
    return ok && api_puts(b, "]");
}

bool api_put_report(struct api_buffer *b, const struct api_judged *j)
{
    const struct attn_candidate *c = &j->candidate;

    return api_put_text_member(b, "verdict", ATTN_VERDICT_NAMES[j->report.verdict]) &&
           api_put_text_member(b, "first_incorrect", j->report.first_incorrect) &&
           api_put_key(b, "tolerance") && api_puts(b, "{") &&
           api_put_text_member(b, "candidate_dtype",
                               ATTN_PRECISION_NAMES[c->precision]) &&
           api_put_double_member(b, "rtol", c->rtol) &&
           api_put_double_member(b, "atol", c->atol) && api_puts(b, "}") &&
           put_objects(b, j) && put_first_difference(b, j) && put_diagnoses(b, j) &&
           put_hidden(b, &j->report) && put_forms(b, &j->report) && put_notes(b, j);
}
