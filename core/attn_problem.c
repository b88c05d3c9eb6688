/*
 * attn_problem.c - one problem: what sizes alone cannot decide, its items, its verdict on
 * a pair. Not here: sizes (attn_dims.c), the single mask rules (attn_mask.c). Start
 * reading at attn_prepare, then attn_allowed and attn_bias.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const char *const ATTN_EMPTY_NAMES[] = {
    [ATTN_EMPTY_ZERO] = "zero",
    [ATTN_EMPTY_NAN] = "nan",
    [ATTN_EMPTY_UNIFORM] = "uniform",
    [ATTN_EMPTY_ERROR] = "error",
};
_Static_assert(ATTN_COUNT(ATTN_EMPTY_NAMES) == ATTN_EMPTY_COUNT,
               "one name per behaviour");

const struct attn_mask *attn_mask_of(const struct attn_problem *p, const char *name)
{
    for (size_t n = 0; n < p->mask_count; n++)
        if (strcmp(p->mask[n].row->name, name) == 0)
            return &p->mask[n];
    return NULL;
}

/* ---- preparing ---- */

static bool fail_at(struct attn_err *err, enum attn_code code, const char *object,
                    size_t b, size_t n, size_t want, size_t got)
{
    if (err->code == ATTN_OK) {
        attn_fail(err, code, object, NULL, want, got);
        err->at[0] = b;
        err->at[1] = n;
    }
    return false;
}

/* Sets shift.  Unstated is fine where both alignments are the same. */
static bool prepare_alignment(struct attn_problem *p, struct attn_err *err)
{
    const size_t T_new = p->d.T_kv - p->d.T_past;
    const struct attn_mask *causal = attn_mask_of(p, "causal");
    int64_t alignment = ATTN_ALIGN_BOTTOM_RIGHT;

    if (causal != NULL) {
        alignment = causal->arg[0].given ? causal->arg[0].number : ATTN_ALIGN_UNSTATED;
        if (alignment == ATTN_ALIGN_UNSTATED && p->d.T_q != T_new)
            return attn_fail(err, ATTN_E_ALIGNMENT, "causal", NULL, p->d.T_q, T_new);
    }
    p->shift = alignment == ATTN_ALIGN_TOP_LEFT
                   ? (ptrdiff_t)p->d.T_past
                   : (ptrdiff_t)p->d.T_kv - (ptrdiff_t)p->d.T_q;
    return true;
}

static bool prepare_score(struct attn_problem *p, struct attn_err *err)
{
    const bool has_v_a = p->in[ATTN_IN_V_A].p != NULL;

    assert(p->score != NULL);
    if (p->score->needs_v_a && !has_v_a)
        return attn_fail(err, ATTN_E_MISSING, "v_a", NULL, 0, 0);
    if (!p->score->needs_v_a && has_v_a)
        return attn_fail(err, ATTN_E_CONTRADICTION, "v_a", NULL, 0, 0);
    if (!p->scale_stated)
        p->scale = p->score->scaled_by_default ? 1.0 / sqrt((double)p->d.d_k) : 1.0;
    if (!isfinite(p->scale))
        return attn_fail(err, ATTN_E_RANGE, "score.scale", NULL, 0, 0);
    if (!isfinite(p->temperature) || !(p->temperature > 0.0))
        return attn_fail(err, ATTN_E_RANGE, "score.temperature", NULL, 0, 0);
    if (!isfinite(p->softcap) || p->softcap < 0.0)
        return attn_fail(err, ATTN_E_RANGE, "score.softcap", NULL, 0, 0);
    return true;
}

/* Ids name one sequence: its keys, of which the queries are the last. */
static bool documents_fit(const struct attn_problem *p, struct attn_err *err)
{
    const struct attn_mask *m = attn_mask_of(p, "documents");

    if (m == NULL)
        return true;
    if (p->form.source == ATTN_CROSS || p->d.T_q > p->d.T_kv ||
        (p->d.T_past == 0 && p->d.T_q != p->d.T_kv))
        return attn_fail(err, ATTN_E_CONTRADICTION, "documents", "T_kv", p->d.T_q,
                         p->d.T_kv);
    if (m->arg[0].table.p == NULL)
        return attn_fail(err, ATTN_E_MISSING, "documents.ids", NULL, 0, 0);
    return true;
}

static bool padding_fits(const struct attn_problem *p, struct attn_err *err)
{
    const struct attn_mask *m = attn_mask_of(p, "padding");

    if (m == NULL)
        return true;

    const struct attn_table *lengths = &m->arg[0].table;

    if (lengths->p == NULL && m->arg[1].table.p == NULL)
        return attn_fail(err, ATTN_E_MISSING, "padding.lengths", NULL, 0, 0);
    for (size_t b = 0; lengths->p != NULL && b < p->d.B; b++) {
        const int64_t n = ((const int64_t *)lengths->p)[b * lengths->stride_b];

        if (n < 0 || (uint64_t)n > p->d.T_kv)
            return fail_at(err, ATTN_E_RANGE, "padding.lengths", b, SIZE_MAX, p->d.T_kv,
                           (size_t)n);
    }
    return true;
}

static bool window_fits(const struct attn_problem *p, struct attn_err *err)
{
    static const char *const sides[] = {"window.left", "window.right"};
    const struct attn_mask *m = attn_mask_of(p, "window");

    for (size_t s = 0; m != NULL && s < ATTN_COUNT(sides); s++)
        if (m->arg[s].given && m->arg[s].number < -1)
            return attn_fail(err, ATTN_E_RANGE, sides[s], NULL, 0, 0);
    return true;
}

bool attn_prepare(struct attn_problem *p, struct attn_err *err)
{
    assert(p->mask_count <= ATTN_MASKS_MAX);
    assert(p->d.T_past <= p->d.T_kv);
    return prepare_score(p, err) && attn_prepare_positions(p, err) &&
           prepare_alignment(p, err) && documents_fit(p, err) && padding_fits(p, err) &&
           window_fits(p, err);
}

/* ---- one item alone ---- */

static void cut_table(struct attn_table *t, size_t b)
{
    static const size_t bytes[] = {[ATTN_ELEM_U8] = sizeof(uint8_t),
                                   [ATTN_ELEM_I64] = sizeof(int64_t),
                                   [ATTN_ELEM_F64] = sizeof(double)};

    if (t->p != NULL)
        t->p = (const unsigned char *)t->p + b * t->stride_b * bytes[t->elem];
}

static void cut_tensor(struct attn_tensor *t, size_t b)
{
    if (t->p == NULL)
        return;

    const size_t item = attn_tensor_count(t) / t->dim[0] * attn_dtype_bytes(t->dtype);

    t->p = (unsigned char *)t->p + b * item;
    t->dim[0] = 1;
}

void attn_problem_item(const struct attn_problem *p, size_t b, struct attn_problem *item)
{
    assert(b < p->d.B);
    *item = *p;
    item->d.B = 1;
    for (size_t in = 0; in < ATTN_INPUT_COUNT; in++)
        if (ATTN_INPUTS[in].axis[0] == ATTN_AX_B)
            cut_tensor(&item->in[in], b);
    for (size_t n = 0; n < p->mask_count; n++)
        for (size_t a = 0; a < ATTN_PARAMS_MAX; a++)
            cut_table(&item->mask[n].arg[a].table, b);
    for (size_t n = 0; n < p->position_count; n++)
        for (size_t a = 0; a < ATTN_PARAMS_MAX; a++)
            cut_table(&item->position[n].arg[a].table, b);
    cut_table(&item->additive, b);
}

/* ---- one pair ---- */

static double additive_at(const struct attn_problem *p, size_t b, size_t h, size_t i,
                          size_t j)
{
    const struct attn_table *t = &p->additive;

    if (t->p == NULL)
        return 0.0;
    return (
        (const double *)t->p)[b * t->stride_b + h * t->stride_h + i * t->stride_i + j];
}

bool attn_allowed(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j)
{
    for (size_t n = 0; n < p->mask_count; n++)
        if (!p->mask[n].row->allows(p, &p->mask[n], b, h, i, j))
            return false;
    return additive_at(p, b, h, i, j) != -INFINITY;
}

/* additive_bhij and what positions add; an additive -Infinity is no finite part and
   counts as 0 here (attn_allowed forbids the pair). */
double attn_bias(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j)
{
    const double added = additive_at(p, b, h, i, j);
    double bias = added == -INFINITY ? 0.0 : added;

    for (size_t n = 0; n < p->position_count; n++)
        if (p->position[n].row->bias != NULL)
            bias += p->position[n].row->bias(p, &p->position[n], b, h, i, j);
    return bias;
}

double attn_bias_size(const struct attn_problem *p, size_t b, size_t h, size_t i,
                      size_t j)
{
    double size = fabs(attn_bias(p, b, h, i, j));

    for (size_t n = 0; n < p->position_count; n++)
        if (p->position[n].row->bias != NULL)
            size += fabs(p->position[n].row->bias(p, &p->position[n], b, h, i, j));
    return size;
}
