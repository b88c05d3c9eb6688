/*
 * api_put_problem.c - a problem written as the request that gives it.
 * Not here: reading requests (api_request*.c).
 * Start reading at api_put_problem.
 */
#include <string.h>

#include "api/api_probe.h"

/* ---- tensors ---- */

static bool put_input(struct api_buffer *b, const struct attn_problem *p, int k,
                      const char *name)
{
    const struct attn_tensor *t = &p->in[k];
    struct attn_tensor shape = *t;

    if (t->p == NULL)
        return true;
    if ((k == ATTN_IN_X || k == ATTN_IN_X_KV) && !p->form.batch_axis) {
        shape.rank--;
        memmove(shape.dim, shape.dim + 1, shape.rank * sizeof *shape.dim);
    }
    return api_put_key(b, name) && api_put_tensor(b, t, &shape, API_ENC_NESTED);
}

static bool put_inputs(struct api_buffer *b, const struct attn_problem *p)
{
    bool ok = api_put_key(b, "inputs") && api_puts(b, "{") &&
              put_input(b, p, ATTN_IN_X, "X") && put_input(b, p, ATTN_IN_X_KV, "X_kv");

    if (ok && p->in[ATTN_IN_PAST_K].p)
        ok = api_put_key(b, "past") && api_puts(b, "{") &&
             put_input(b, p, ATTN_IN_PAST_K, "K") &&
             put_input(b, p, ATTN_IN_PAST_V, "V") && api_puts(b, "}");
    return ok && api_puts(b, "}");
}

static bool put_weights(struct api_buffer *b, const struct attn_problem *p)
{
    bool ok = api_put_key(b, "weights") && api_puts(b, "{");

    for (int k = ATTN_IN_W_Q; k <= ATTN_IN_B_O && ok; k++)
        ok = put_input(b, p, k, ATTN_INPUTS[k].name);
    return ok && api_puts(b, "}");
}

/* ---- tables ---- */

static bool put_entry(struct api_buffer *b, const struct attn_table *t, size_t at)
{
    switch (t->elem) {
    case ATTN_ELEM_U8:
        return api_puts(b, ((const uint8_t *)t->p)[at] ? "true" : "false");
    case ATTN_ELEM_I64:
        return api_put_double(b, (double)((const int64_t *)t->p)[at]);
    default:
        return api_put_double(b, ((const double *)t->p)[at]);
    }
}

/* One list of n entries from `at` on. */
static bool put_list(struct api_buffer *b, const struct attn_table *t, size_t at,
                     size_t n)
{
    bool ok = api_puts(b, "[");

    for (size_t j = 0; j < n && ok; j++)
        ok = api_put_comma(b) && put_entry(b, t, at + j);
    return ok && api_puts(b, "]");
}

/* (B,n), or [n] where every item has the same. */
static bool put_per_item(struct api_buffer *b, const struct attn_problem *p,
                         const struct attn_table *t, size_t n)
{
    bool ok = api_puts(b, "[");

    if (t->stride_b == 0)
        return put_list(b, t, 0, n);
    for (size_t item = 0; item < p->d.B && ok; item++)
        ok = api_put_comma(b) && put_list(b, t, item * t->stride_b, n);
    return ok && api_puts(b, "]");
}

/* (T_q,T_kv), with the axes that the strides tell before them. */
static bool put_pairs(struct api_buffer *b, const struct attn_problem *p,
                      const struct attn_table *t)
{
    const bool heads = t->stride_h > 0, items = heads || t->stride_b > 0;
    const size_t B = items ? p->d.B : 1, H = heads ? p->d.h : 1;
    bool ok = !items || api_puts(b, "[");

    for (size_t n = 0; n < B && ok; n++) {
        ok = (!items || api_put_comma(b)) && (!heads || api_puts(b, "["));
        for (size_t h = 0; h < H && ok; h++) {
            ok = (!heads || api_put_comma(b)) && api_puts(b, "[");
            for (size_t i = 0; i < p->d.T_q && ok; i++)
                ok = api_put_comma(b) &&
                     put_list(b, t, n * t->stride_b + h * t->stride_h + i * t->stride_i,
                              p->d.T_kv);
            ok = ok && api_puts(b, "]");
        }
        ok = ok && (!heads || api_puts(b, "]"));
    }
    return ok && (!items || api_puts(b, "]"));
}

/* ---- masks ---- */

static bool put_alignment(struct api_buffer *b, const struct attn_problem *p,
                          const struct attn_arg *arg)
{
    (void)p;
    return api_put_string(b, arg->number == ATTN_ALIGN_TOP_LEFT ? "top_left"
                                                                : "bottom_right");
}

static bool put_extent(struct api_buffer *b, const struct attn_problem *p,
                       const struct attn_arg *arg)
{
    (void)p;
    return api_put_double(b, (double)arg->number);
}

static bool put_one_per_item(struct api_buffer *b, const struct attn_problem *p,
                             const struct attn_arg *arg)
{
    bool ok = api_puts(b, "[");

    for (size_t n = 0; n < p->d.B && ok; n++)
        ok = api_put_comma(b) && put_entry(b, &arg->table, n * arg->table.stride_b);
    return ok && api_puts(b, "]");
}

static bool put_keys_per_item(struct api_buffer *b, const struct attn_problem *p,
                              const struct attn_arg *arg)
{
    return put_per_item(b, p, &arg->table, p->d.T_kv);
}

static bool put_pairs_arg(struct api_buffer *b, const struct attn_problem *p,
                          const struct attn_arg *arg)
{
    return put_pairs(b, p, &arg->table);
}

/* Document lengths were read into ids, so ids stand for them. */
static bool (*const PARAMS[ATTN_PARAM_KIND_COUNT])(struct api_buffer *b,
                                                   const struct attn_problem *p,
                                                   const struct attn_arg *arg) = {
    [ATTN_PARAM_ALIGNMENT] = put_alignment,  [ATTN_PARAM_EXTENT] = put_extent,
    [ATTN_PARAM_LENGTHS] = put_one_per_item, [ATTN_PARAM_VALID] = put_keys_per_item,
    [ATTN_PARAM_IDS] = put_keys_per_item,    [ATTN_PARAM_NEXT_ID] = put_one_per_item,
    [ATTN_PARAM_PAIRS] = put_pairs_arg,
};

static bool is_written(const struct attn_mask *m, size_t n)
{
    const enum attn_param_kind kind = m->row->param[n].kind;

    return kind != ATTN_PARAM_END && PARAMS[kind] != NULL &&
           (m->arg[n].table.p != NULL ||
            (m->arg[n].given &&
             (kind == ATTN_PARAM_ALIGNMENT || kind == ATTN_PARAM_EXTENT)));
}

static bool put_rule(struct api_buffer *b, const struct attn_problem *p,
                     const struct attn_mask *m)
{
    bool ok = api_put_key(b, m->row->name);

    if (m->row->form == ATTN_MASK_TENSOR)
        return ok && put_pairs(b, p, &m->arg[0].table);
    if (m->row->form == ATTN_MASK_SWITCH && !is_written(m, 0))
        return ok && api_puts(b, "true");
    ok = ok && api_puts(b, "{");
    for (size_t n = 0; n < ATTN_PARAMS_MAX && m->row->param[n].kind != ATTN_PARAM_END;
         n++)
        if (ok && is_written(m, n))
            ok = api_put_key(b, m->row->param[n].name) &&
                 PARAMS[m->row->param[n].kind](b, p, &m->arg[n]);
    return ok && api_puts(b, "}");
}

static bool put_masks(struct api_buffer *b, const struct attn_problem *p)
{
    bool ok = true;

    if (p->mask_count == 0 && p->additive.p == NULL)
        return true;
    ok = api_put_key(b, "masks") && api_puts(b, "{");
    for (size_t n = 0; n < p->mask_count && ok; n++)
        ok = put_rule(b, p, &p->mask[n]);
    if (ok && p->additive.p)
        ok = api_put_key(b, "additive") && put_pairs(b, p, &p->additive);
    return ok && api_puts(b, "}");
}

/* ---- score and position ---- */

static bool put_score(struct api_buffer *b, const struct attn_problem *p)
{
    bool ok = api_put_key(b, "score") && api_puts(b, "{") &&
              api_put_text_member(b, "function", p->score->name);

    if (ok && p->scale_stated)
        ok = api_put_double_member(b, "scale", p->scale);
    if (ok && p->temperature != 1.0)
        ok = api_put_double_member(b, "temperature", p->temperature);
    if (ok && p->softcap != 0.0)
        ok = api_put_double_member(b, "softcap", p->softcap);
    return ok && put_input(b, p, ATTN_IN_V_A, "v_a") && api_puts(b, "}");
}

/* One writer a kind of parameter. */
typedef bool put_arg_fn(struct api_buffer *b, const struct attn_problem *p,
                        const struct attn_position_param *param,
                        const struct attn_arg *arg);

static bool put_choice(struct api_buffer *b, const struct attn_problem *p,
                       const struct attn_position_param *param,
                       const struct attn_arg *arg)
{
    (void)p;
    return api_put_string(b, param->choice[arg->number]);
}

static bool put_real(struct api_buffer *b, const struct attn_problem *p,
                     const struct attn_position_param *param, const struct attn_arg *arg)
{
    (void)p, (void)param;
    return api_put_double(b, arg->real);
}

static bool put_queries(struct api_buffer *b, const struct attn_problem *p,
                        const struct attn_position_param *param,
                        const struct attn_arg *arg)
{
    (void)param;
    return put_per_item(b, p, &arg->table, p->d.T_q);
}

static bool put_keys(struct api_buffer *b, const struct attn_problem *p,
                     const struct attn_position_param *param, const struct attn_arg *arg)
{
    (void)param;
    return put_per_item(b, p, &arg->table, p->d.T_kv - p->d.T_past);
}

static bool put_slopes(struct api_buffer *b, const struct attn_problem *p,
                       const struct attn_position_param *param,
                       const struct attn_arg *arg)
{
    (void)param;
    return put_list(b, &arg->table, 0, p->d.h);
}

static const struct {
    put_arg_fn *put;
    bool is_table; /* written where there is one; others always */
} POSITION_PARAMS[] = {
    [ATTN_POSITION_CHOICE] = {put_choice, false},
    [ATTN_POSITION_REAL] = {put_real, false},
    [ATTN_POSITION_QUERIES] = {put_queries, true},
    [ATTN_POSITION_KEYS] = {put_keys, true},
    [ATTN_POSITION_SLOPES] = {put_slopes, true},
};
_Static_assert(API_COUNT(POSITION_PARAMS) == ATTN_POSITION_PARAM_KIND_COUNT,
               "one writer a kind");

static bool put_kind(struct api_buffer *b, const struct attn_problem *p,
                     const struct attn_position *x)
{
    bool ok = api_put_key(b, x->row->name) && api_puts(b, "{");

    for (size_t n = 0; n < ATTN_PARAMS_MAX && ok; n++) {
        const struct attn_position_param *param = &x->row->param[n];

        if (param->kind == ATTN_POSITION_END)
            break;
        if (!POSITION_PARAMS[param->kind].is_table || x->arg[n].table.p != NULL)
            ok = api_put_key(b, param->name) &&
                 POSITION_PARAMS[param->kind].put(b, p, param, &x->arg[n]);
    }
    return ok && api_puts(b, "}");
}

static bool put_position(struct api_buffer *b, const struct attn_problem *p)
{
    bool ok = true;

    if (p->position_count == 0)
        return true;
    ok = api_put_key(b, "position") && api_puts(b, "{");
    for (size_t n = 0; n < p->position_count && ok; n++)
        ok = put_kind(b, p, &p->position[n]);
    return ok && api_puts(b, "}");
}

/* ---- the whole ---- */

static bool put_shapes(struct api_buffer *b, const struct attn_problem *p)
{
    const struct attn_dims *d = &p->d;
    bool ok = api_put_key(b, "shapes") && api_puts(b, "{");

    if (ok && p->form.batch_axis)
        ok = api_put_u64_member(b, "B", d->B);
    ok = ok && api_put_u64_member(b, "d_model", d->d_model) &&
         api_put_u64_member(b, "d_k", d->d_k) && api_put_u64_member(b, "d_v", d->d_v);
    if (ok && p->form.head_axis)
        ok = api_put_u64_member(b, "heads", d->h) &&
             api_put_u64_member(b, "kv_heads", d->h_kv);
    return ok && api_puts(b, "}");
}

static bool put_gradients(struct api_buffer *b, const struct api_request *r)
{
    struct attn_tensor shape;

    if (!r->has_gradients)
        return true;
    attn_object_shape(&r->p, r->gradients.of, &shape);
    return api_put_key(b, "gradients") && api_puts(b, "{") &&
           api_put_text_member(b, "of", ATTN_OBJECTS[r->gradients.of].name) &&
           api_put_key(b, "cotangent") &&
           api_put_tensor(b, &r->gradients.cotangent, &shape, API_ENC_NESTED) &&
           api_puts(b, "}");
}

bool api_put_problem(struct api_buffer *b, const struct api_request *r)
{
    const struct attn_problem *p = &r->p;

    return api_puts(b, "{") && put_shapes(b, p) && put_inputs(b, p) &&
           put_weights(b, p) && put_score(b, p) && put_position(b, p) &&
           put_input(b, p, ATTN_IN_SINK, "sink") && put_masks(b, p) &&
           api_put_text_member(b, "empty_rows", ATTN_EMPTY_NAMES[p->empty_rows]) &&
           put_gradients(b, r) && api_puts(b, "}");
}
