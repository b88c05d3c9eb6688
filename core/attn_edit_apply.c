/*
 * attn_edit_apply.c - makes the changes of an ablation: a changed copy of the problem, or
 * a stage that changes what the right one computed.
 * Not here: what may be asked (attn_edit.c), arithmetic on a block (attn_edit_numbers.c).
 * Start reading at attn_edit_weight; each function is the `apply` of one row of TARGETS.
 */
#include "core/attn_edit.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static size_t bytes_of(const struct attn_tensor *t)
{
    return attn_tensor_count(t) * attn_dtype_bytes(t->dtype);
}

static bool take(struct attn_edited *layer, size_t bytes, const char *object, void **out,
                 struct attn_err *err)
{
    *out = attn_arena_take(layer->arena, bytes);
    return *out != NULL ||
           attn_fail(err, ATTN_E_MEMORY, object, NULL, layer->arena->size, bytes);
}

/* Numbers of the problem are never written: the first change of an input copies it. */
static bool own_input(struct attn_edited *layer, enum attn_input in, struct attn_err *err)
{
    struct attn_tensor *t = &layer->p.in[in];
    void *copy;

    if (t->p != layer->baseline->in[in].p)
        return true;
    if (!take(layer, bytes_of(t), ATTN_INPUTS[in].name, &copy, err))
        return false;
    t->p = memcpy(copy, t->p, bytes_of(t));
    return true;
}

/* Room for the random numbers of one change, where it draws any. */
static bool take_noise(struct attn_edited *layer, const struct attn_edit *edit,
                       size_t count, struct attn_tensor *noise, struct attn_err *err)
{
    *noise = (struct attn_tensor){.dtype = layer->p.dtype};
    return !attn_edit_is(edit, ATTN_CHANGE_NOISE) ||
           take(layer, count * attn_dtype_bytes(noise->dtype), "noise", &noise->p, err);
}

bool attn_edit_weight(struct attn_edited *layer, const struct attn_edit *edit,
                      struct attn_err *err)
{
    const enum attn_input in = (enum attn_input)attn_edit_target_of(edit)->input;
    struct attn_tensor noise, *W = &layer->p.in[in];

    if (!own_input(layer, in, err) ||
        !take_noise(layer, edit, attn_tensor_count(W), &noise, err))
        return false;

    const struct attn_mat m = attn_slice(W, 0, 0);

    attn_edit_change_of(edit)->numbers(m, m, edit, &noise);
    return true;
}

bool attn_edit_scale(struct attn_edited *layer, const struct attn_edit *edit,
                     struct attn_err *err)
{
    struct attn_tensor noise = {.dtype = ATTN_F64};
    const struct attn_mat m = {ATTN_F64, &layer->p.scale, 1, 1, 1};

    (void)err;
    layer->p.scale_stated = true;
    if (attn_edit_is(edit, ATTN_CHANGE_REMOVE))
        layer->p.scale = 1.0;
    else
        attn_edit_change_of(edit)->numbers(m, m, edit, &noise);
    return true;
}

/* ---- masks ---- */

static bool inverse_allows(const struct attn_problem *p, const struct attn_mask *m,
                           size_t b, size_t h, size_t i, size_t j)
{
    const struct attn_inverse_rule *rule = (const struct attn_inverse_rule *)m->row;
    struct attn_mask of = *m;

    of.row = rule->of;
    return !of.row->allows(p, &of, b, h, i, j);
}

static bool cut_allows(const struct attn_problem *p, const struct attn_mask *m, size_t b,
                       size_t h, size_t i, size_t j)
{
    const struct attn_cut_rule *rule = (const struct attn_cut_rule *)m->row;

    (void)p, (void)b, (void)h;
    for (size_t n = 0; n < rule->count; n++)
        if (rule->cut[n].j == j && (rule->cut[n].every_query || rule->cut[n].i == i))
            return false;
    return true;
}

static void cut_clear(const struct attn_problem *p, const struct attn_mask *m, size_t b,
                      size_t h, size_t i, size_t j0, size_t j1, uint8_t *allow)
{
    const struct attn_cut_rule *rule = (const struct attn_cut_rule *)m->row;

    (void)p, (void)b, (void)h;
    for (size_t n = 0; n < rule->count; n++) {
        const size_t j = rule->cut[n].j;

        if (j >= j0 && j < j1 && (rule->cut[n].every_query || rule->cut[n].i == i))
            allow[j - j0] = 0;
    }
}

/* Forbids key j to query i, or to every query. */
static bool cut(struct attn_edited *layer, bool every_query, size_t i, size_t j,
                struct attn_err *err)
{
    struct attn_cut_rule *rule = &layer->cuts;

    if (rule->count == 0) {
        if (layer->p.mask_count == ATTN_MASKS_MAX)
            return attn_fail(err, ATTN_E_RANGE, "masks", NULL, ATTN_MASKS_MAX - 1,
                             ATTN_MASKS_MAX);
        rule->row = (struct attn_mask_row){.name = "ablation",
                                           .allows = cut_allows,
                                           .clear = cut_clear,
                                           .rule = "Pairs that an ablation took away."};
        layer->p.mask[layer->p.mask_count++] = (struct attn_mask){.row = &rule->row};
    }
    assert(rule->count < ATTN_RULE_CUTS_MAX);
    rule->cut[rule->count].every_query = every_query;
    rule->cut[rule->count].i = i;
    rule->cut[rule->count++].j = j;
    return true;
}

size_t attn_edit_additive_count(const struct attn_problem *p)
{
    const struct attn_table *t = &p->additive;
    const struct attn_dims *d = &p->d;

    return (d->B - 1) * t->stride_b + (d->h - 1) * t->stride_h +
           (d->T_q - 1) * t->stride_i + d->T_kv;
}

/* The finite numbers change their sign; what -Infinity forbids stays forbidden. */
static bool negate_additive(struct attn_edited *layer, struct attn_err *err)
{
    const size_t count = attn_edit_additive_count(&layer->p);
    const double *old = layer->p.additive.p;
    void *copy;

    if (!take(layer, count * sizeof *old, "additive", &copy, err))
        return false;
    for (size_t n = 0; n < count; n++)
        ((double *)copy)[n] = isfinite(old[n]) ? -old[n] : old[n];
    layer->p.additive.p = copy;
    return true;
}

static bool edit_additive(struct attn_edited *layer, const struct attn_edit *edit,
                          struct attn_err *err)
{
    if (layer->p.additive.p == NULL) /* an earlier edit of the same set took it */
        return true;
    if (!attn_edit_is(edit, ATTN_CHANGE_REMOVE))
        return negate_additive(layer, err);
    layer->p.additive.p = NULL;
    return true;
}

bool attn_edit_masks(struct attn_edited *layer, const struct attn_edit *edit,
                     struct attn_err *err)
{
    struct attn_problem *p = &layer->p;
    size_t n = 0;

    layer->masks_changed = true;
    if (strcmp(edit->rule, "additive") == 0)
        return edit_additive(layer, edit, err);
    while (n < p->mask_count && strcmp(p->mask[n].row->name, edit->rule) != 0)
        n++;
    if (n == p->mask_count)
        return true;
    if (attn_edit_is(edit, ATTN_CHANGE_REMOVE)) {
        memmove(&p->mask[n], &p->mask[n + 1],
                (p->mask_count - n - 1) * sizeof p->mask[0]);
        p->mask_count--;
        return true;
    }
    assert(layer->inverses < ATTN_EDITS_MAX);

    struct attn_inverse_rule *inverse = &layer->inverse[layer->inverses++];

    inverse->of = p->mask[n].row;
    inverse->row = *inverse->of; /* its name: prepare still finds the rule */
    inverse->row.allows = inverse_allows;
    inverse->row.clear = NULL;
    inverse->row.range = NULL;
    p->mask[n].row = &inverse->row;
    return true;
}

/* ---- weights A of one pair ---- */

static bool edited_softmax(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    const struct attn_edited *layer = run->swap->param;
    const struct attn_dims *d = &run->p->d;
    struct attn_tensor noise = {.dtype = run->p->dtype};

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SOFTMAX, err))
        return false;
    for (size_t n = 0; n < layer->softmax_count; n++) {
        const struct attn_edit *edit = layer->after_softmax[n];

        for (size_t each = 0; each < d->B * d->h; each++) {
            struct attn_mat m = attn_slice(&run->t->t[ATTN_A], each / d->h, each % d->h);

            m.p = (unsigned char *)m.p +
                  (edit->query * m.ld + edit->key) * attn_dtype_bytes(m.dtype);
            m.rows = m.cols = 1;
            attn_edit_change_of(edit)->numbers(m, m, edit, &noise);
        }
    }
    return true;
}

bool attn_edit_edge(struct attn_edited *layer, const struct attn_edit *edit,
                    struct attn_err *err)
{
    if (attn_edit_is(edit, ATTN_CHANGE_REMOVE))
        return cut(layer, false, edit->query, edit->key, err);
    layer->after_softmax[layer->softmax_count++] = edit;
    layer->swap.stage[ATTN_STAGE_SOFTMAX] = edited_softmax;
    return true;
}

/* ---- outputs H of one head ---- */

static struct attn_mat head_of(const struct attn_tensor *H, size_t b, size_t h,
                               size_t d_v)
{
    struct attn_mat m = attn_slice(H, b, 0);

    m.p = (unsigned char *)m.p + h * d_v * attn_dtype_bytes(m.dtype);
    m.cols = d_v;
    return m;
}

/* H_heads says the same as H, in memory of its own. */
static void copy_to_heads(const struct attn_trace *trace, size_t b, size_t h,
                          struct attn_mat from)
{
    const struct attn_tensor *heads = &trace->t[ATTN_H_HEADS];
    const size_t size = attn_dtype_bytes(from.dtype);

    if (heads->p == NULL || heads->p == trace->t[ATTN_H].p)
        return;

    const struct attn_mat to = attn_slice(heads, b, h);

    for (size_t i = 0; i < from.rows; i++)
        memcpy((unsigned char *)to.p + i * to.ld * size,
               (const unsigned char *)from.p + i * from.ld * size, from.cols * size);
}

void attn_edit_mixed(const struct attn_edited *layer, struct attn_trace *trace)
{
    const struct attn_dims *d = &layer->p.d;

    for (size_t n = 0; n < layer->mix_count; n++) {
        const struct attn_edit *edit = layer->after_mix[n];
        attn_change_fn *numbers = attn_edit_is(edit, ATTN_CHANGE_REMOVE)
                                      ? attn_change_zero
                                      : attn_edit_change_of(edit)->numbers;

        for (size_t b = 0; b < d->B; b++) {
            const struct attn_mat m = head_of(&trace->t[ATTN_H], b, edit->index, d->d_v);
            struct attn_tensor noise = layer->noise[n];

            numbers(m, m, edit, &noise);
            copy_to_heads(trace, b, edit->index, m);
        }
    }
}

/* Between the stages MIX and OUTPUT, which the tiled path has too. */
static bool edited_output(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_err *err)
{
    (void)piece;
    attn_edit_mixed(run->swap->param, run->t);
    return attn_stage_all(run, ATTN_STAGE_OUTPUT, err);
}

bool attn_edit_head(struct attn_edited *layer, const struct attn_edit *edit,
                    struct attn_err *err)
{
    const size_t n = layer->mix_count++;

    layer->after_mix[n] = edit;
    if (layer->p.form.has_output)
        layer->swap.stage[ATTN_STAGE_OUTPUT] = edited_output;
    return take_noise(layer, edit, layer->p.d.T_q * layer->p.d.d_v, &layer->noise[n],
                      err);
}

/* ---- one token ---- */

bool attn_edit_position(struct attn_edited *layer, const struct attn_edit *edit,
                        struct attn_err *err)
{
    const enum attn_input in = attn_edit_token_input(&layer->p);
    const struct attn_tensor *X = &layer->p.in[in];
    struct attn_tensor noise;

    if (attn_edit_is(edit, ATTN_CHANGE_REMOVE))
        return cut(layer, true, 0, attn_edit_token_key(&layer->p, edit), err);
    if (!own_input(layer, in, err) || !take_noise(layer, edit, X->dim[2], &noise, err))
        return false;
    for (size_t b = 0; b < X->dim[0]; b++) {
        const struct attn_mat all = attn_slice(X, b, 0);
        struct attn_mat row = all;

        row.p =
            (unsigned char *)all.p + edit->index * all.ld * attn_dtype_bytes(all.dtype);
        row.rows = 1;
        attn_edit_change_of(edit)->numbers(row, all, edit, &noise);
    }
    return true;
}
