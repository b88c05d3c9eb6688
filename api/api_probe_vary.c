/*
 * api_probe_vary.c - the same layer on an input changed so that certain rows must stay
 * what they were. Not here: holding the rows against each other (api_audit_compare.c).
 * Start reading at API_VARIES.
 */
#include <math.h>
#include <string.h>

#include "api/api_probe.h"

static bool fail_room(struct api_err *err)
{
    return api_fail(err, "too-large", NULL, "There is no room to vary the problem.");
}

static void *copy(struct api_ctx *ctx, const void *from, size_t bytes)
{
    void *to = attn_arena_take(&ctx->arena, bytes);

    return to ? memcpy(to, from, bytes) : NULL;
}

/* The sequence from which keys come: X_kv in cross-attention. */
static int key_source(const struct attn_problem *p)
{
    return p->form.source == ATTN_CROSS ? ATTN_IN_X_KV : ATTN_IN_X;
}

/* Another number in the same range, of the same decimals. */
static void change_token(struct attn_tensor *x, size_t b, size_t t)
{
    double *row = (double *)x->p + (b * x->dim[1] + t) * x->dim[2];

    for (size_t c = 0; c < x->dim[2]; c++)
        row[c] = round((1.0 - row[c] + (c % 2 ? 0.25 : -0.5)) * 100.0) / 100.0;
}

/* ---- one item alone ---- */

static bool has_items(const struct attn_problem *p)
{
    return p->d.B > 1;
}

static bool first_item(struct api_ctx *ctx, const struct api_probe_problem *from,
                       const struct attn_exec *exec, struct attn_problem *out,
                       struct api_err *err)
{
    (void)ctx, (void)exec, (void)err;
    attn_problem_item(&from->r.p, 0, out);
    return true;
}

/* ---- another last token ---- */

static bool has_future(const struct attn_problem *p)
{
    return p->d.T_q > 1 && attn_mask_of(p, "causal") != NULL;
}

static bool other_last_token(struct api_ctx *ctx, const struct api_probe_problem *from,
                             const struct attn_exec *exec, struct attn_problem *out,
                             struct api_err *err)
{
    struct attn_tensor *x;

    (void)exec;
    *out = from->r.p;
    x = &out->in[key_source(out)];
    x->p = copy(ctx, x->p, attn_tensor_count(x) * sizeof(double));
    if (x->p == NULL)
        return fail_room(err);
    for (size_t b = 0; b < out->d.B; b++)
        change_token(x, b, x->dim[1] - 1);
    return true;
}

/* ---- another last document ---- */

static int64_t document_at(const struct attn_problem *p, size_t b, size_t j)
{
    const struct attn_mask *m = attn_mask_of(p, "documents");
    const struct attn_table *ids = NULL;

    for (size_t n = 0; n < ATTN_PARAMS_MAX && ids == NULL; n++)
        if (m->row->param[n].kind == ATTN_PARAM_IDS)
            ids = &m->arg[n].table;
    return ((const int64_t *)ids->p)[b * ids->stride_b + j];
}

static bool has_documents(const struct attn_problem *p)
{
    return attn_mask_of(p, "documents") != NULL && p->form.source == ATTN_SELF &&
           document_at(p, 0, 0) != document_at(p, 0, p->d.T_kv - 1);
}

static bool other_last_document(struct api_ctx *ctx, const struct api_probe_problem *from,
                                const struct attn_exec *exec, struct attn_problem *out,
                                struct api_err *err)
{
    const size_t cached = from->r.p.d.T_past;
    struct attn_tensor *x;

    (void)exec;
    *out = from->r.p;
    x = &out->in[ATTN_IN_X];
    x->p = copy(ctx, x->p, attn_tensor_count(x) * sizeof(double));
    if (x->p == NULL)
        return fail_room(err);
    for (size_t b = 0; b < out->d.B; b++)
        for (size_t t = 0; t < x->dim[1]; t++)
            if (document_at(out, b, cached + t) == document_at(out, b, out->d.T_kv - 1))
                change_token(x, b, t);
    return true;
}

/* ---- the last token after a cache of the others ---- */

static bool has_last_token(const struct attn_problem *p)
{
    const struct attn_mask *causal = attn_mask_of(p, "causal");

    return p->d.T_q > 1 && p->form.source == ATTN_SELF &&
           (causal == NULL || !causal->arg[0].given ||
            causal->arg[0].number == ATTN_ALIGN_BOTTOM_RIGHT) &&
           p->shift + (ptrdiff_t)p->d.T_q == (ptrdiff_t)p->d.T_kv;
}

/* Rows 0 … T_kv - 2 of K or V [B, h_kv, T_kv, d]. */
static bool cache_of(struct api_ctx *ctx, const struct attn_tensor *all,
                     struct attn_tensor *past, struct api_err *err)
{
    const size_t rows = all->dim[2] - 1, d = all->dim[3],
                 slabs = all->dim[0] * all->dim[1];
    double *to = attn_arena_take(&ctx->arena, slabs * rows * d * sizeof *to);

    if (to == NULL)
        return fail_room(err);
    for (size_t s = 0; s < slabs; s++)
        memcpy(to + s * rows * d, (const double *)all->p + s * (rows + 1) * d,
               rows * d * sizeof *to);
    *past = *all;
    past->dim[2] = rows;
    past->p = to;
    return true;
}

/* Rows of a table: the last query's alone. */
static void last_row(struct attn_table *t, size_t T_q)
{
    static const size_t BYTES[] = {
        [ATTN_ELEM_U8] = 1, [ATTN_ELEM_I64] = 8, [ATTN_ELEM_F64] = 8};

    if (t->p != NULL && t->stride_i > 0)
        t->p = (const char *)t->p + (T_q - 1) * t->stride_i * BYTES[t->elem];
}

/* Positions for the last token: the last entries of lists of `from`'s queries and new
   keys. */
static void last_positions(const struct attn_problem *from, struct attn_position *x)
{
    for (size_t a = 0; a < ATTN_PARAMS_MAX; a++) {
        const enum attn_position_param_kind kind = x->row->param[a].kind;
        struct attn_table *t = &x->arg[a].table;

        if (t->p != NULL && kind == ATTN_POSITION_QUERIES)
            t->p = (const double *)t->p + from->d.T_q - 1;
        if (t->p != NULL && kind == ATTN_POSITION_KEYS)
            t->p = (const double *)t->p + from->d.T_kv - from->d.T_past - 1;
    }
}

static bool last_token_input(struct api_ctx *ctx, struct attn_tensor *x,
                             struct api_err *err)
{
    const size_t T = x->dim[1], width = x->dim[2];
    double *to = attn_arena_take(&ctx->arena, x->dim[0] * width * sizeof *to);

    if (to == NULL)
        return fail_room(err);
    for (size_t b = 0; b < x->dim[0]; b++)
        memcpy(to + b * width, (const double *)x->p + (b * T + T - 1) * width,
               width * sizeof *to);
    x->p = to;
    x->dim[1] = 1;
    return true;
}

static bool cached_decoding(struct api_ctx *ctx, const struct api_probe_problem *from,
                            const struct attn_exec *exec, struct attn_problem *out,
                            struct api_err *err)
{
    const struct attn_problem *p = &from->r.p;
    struct attn_arena *arena = &ctx->arena;
    struct attn_err core = {0};
    struct attn_plan plan;
    struct attn_trace trace;

    if (!attn_plan(p, ATTN_BIT(ATTN_K) | ATTN_BIT(ATTN_V), ATTN_PATH_DENSE,
                   arena->size - arena->used, &plan, &core) ||
        !attn_run(p, &plan, arena, exec, NULL, &trace, &core))
        return api_fail_core(err, &core);
    *out = *p;
    if (!cache_of(ctx, &trace.t[ATTN_K], &out->in[ATTN_IN_PAST_K], err) ||
        !cache_of(ctx, &trace.t[ATTN_V], &out->in[ATTN_IN_PAST_V], err) ||
        !last_token_input(ctx, &out->in[ATTN_IN_X], err))
        return false;
    out->d.T_q = 1;
    out->d.T_past = p->d.T_kv - 1;
    last_row(&out->additive, p->d.T_q);
    for (size_t n = 0; n < out->mask_count; n++)
        for (size_t a = 0; a < ATTN_PARAMS_MAX; a++)
            last_row(&out->mask[n].arg[a].table, p->d.T_q);
    for (size_t n = 0; n < out->position_count; n++)
        last_positions(p, &out->position[n]);
    return true;
}

/* clang-format off */
const struct api_vary_row API_VARIES[] = {
    { "batch_independence",
      "Item 0 alone: every row equals that row in the batch.",
      has_items, first_item },
    { "prefix_invariance",
      "The last token is another: rows that stand before it stay as they were.",
      has_future, other_last_token },
    { "document_isolation",
      "The last document holds other tokens: rows of the others stay as they were.",
      has_documents, other_last_document },
    { "cached_decoding",
      "The last token alone after a cache of the others: the last row of the whole, "
      "within rounding.",
      has_last_token, cached_decoding },
};
/* clang-format on */
const size_t API_VARY_COUNT = API_COUNT(API_VARIES);
