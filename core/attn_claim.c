/*
 * attn_claim.c - what mathematics says an ablation cannot move, measured.
 * Not here: the ablation itself (attn_ablate.c).
 * Start reading at attn_claims: objects that depend on nothing touched, rows out of
 * reach, numbers that must be exact.
 */
#include "core/attn_edit.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* The objects that claims speak about: the layer's own, and H head by head. */
static const enum attn_object CLAIMED[] = {ATTN_Q, ATTN_K,       ATTN_V, ATTN_S, ATTN_M,
                                           ATTN_A, ATTN_H_HEADS, ATTN_H, ATTN_Y};

struct claim_ctx {
    const struct attn_problem *p;
    const struct attn_trace *before, *after;
    const struct attn_edit *edit;
    size_t edits;
    uint32_t moves[ATTN_EDITS_MAX]; /* objects that each edit may move */
};

static void add(struct attn_ablation *out, enum attn_object object, const char *says,
                bool holds)
{
    assert(out->claim_count < ATTN_CLAIMS_MAX);
    out->claim[out->claim_count++] = (struct attn_claim){object, says, holds};
}

/* Where M is not held there is no bias (attn_plan): M is what `allowed` says. */
static enum attn_object measured(const struct claim_ctx *ctx, enum attn_object o)
{
    return o == ATTN_M && ctx->before->t[o].p == NULL ? ATTN_ALLOWED : o;
}

static bool held(const struct claim_ctx *ctx, enum attn_object o)
{
    const enum attn_object m = measured(ctx, o);

    return ctx->before->t[m].p != NULL && ctx->after->t[m].p != NULL;
}

/* Every object that depends on one of `objects`, and these. */
static uint32_t downstream(uint32_t objects)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) /* the table is in dependency order */
        if (ATTN_OBJECTS[o].depends_on & objects)
            objects |= ATTN_BIT(o);
    return objects;
}

static bool same_bits(const struct claim_ctx *ctx, enum attn_object o)
{
    const struct attn_tensor *a = &ctx->before->t[measured(ctx, o)];
    const struct attn_tensor *b = &ctx->after->t[measured(ctx, o)];

    return a->p == b->p ||
           memcmp(a->p, b->p, attn_tensor_count(a) * attn_dtype_bytes(a->dtype)) == 0;
}

/* ---- rows out of reach ---- */

/* What every edit that may move the object says of the rows it spares; NULL when they
   say nothing or different things. */
static const char *spared_says(const struct claim_ctx *ctx, enum attn_object o)
{
    const char *says = NULL;

    for (size_t n = 0; n < ctx->edits; n++) {
        const struct attn_edit_target *target = attn_edit_target_of(&ctx->edit[n]);

        if (!(ctx->moves[n] & ATTN_BIT(o)))
            continue;
        if (!(target->spares_in & ATTN_BIT(o)) ||
            (says != NULL && says != target->spares_says))
            return NULL;
        says = target->spares_says;
    }
    return says;
}

/* A row without keys whose output is the mean of all values reads every token. */
static bool reads_all(const struct claim_ctx *ctx, enum attn_object o, size_t b, size_t h,
                      size_t i)
{
    const struct attn_dims *d = &ctx->p->d;
    const size_t first = o == ATTN_H_HEADS ? h : 0,
                 end = o == ATTN_H_HEADS ? h + 1 : d->h;

    if (o < ATTN_H_HEADS || ctx->p->empty_rows != ATTN_EMPTY_UNIFORM)
        return false;
    for (size_t each = first; each < end; each++)
        if (ctx->before->empty[(b * d->h + each) * d->T_q + i] != 0)
            return true;
    return false;
}

static bool spared(const struct claim_ctx *ctx, enum attn_object o, size_t b, size_t h,
                   size_t i)
{
    if (reads_all(ctx, o, b, h, i))
        return false;
    for (size_t n = 0; n < ctx->edits; n++) {
        const struct attn_edit *edit = &ctx->edit[n];

        if ((ctx->moves[n] & ATTN_BIT(o)) &&
            !attn_edit_target_of(edit)->spares(ctx->p, edit, o, b, h, i))
            return false;
    }
    return true;
}

/* A forbidden pair less may shorten the sums of A V: beside a row that changed,
   another one may round differently from H on. */
static double allowance(const struct claim_ctx *ctx, enum attn_object o)
{
    return o < ATTN_H_HEADS            ? 0.0
           : ctx->p->dtype == ATTN_F32 ? 64.0 * (double)FLT_EPSILON
                                       : 64.0 * DBL_EPSILON;
}

static double row_size(const struct attn_tensor *t, size_t first, size_t count)
{
    double size = 1.0;

    for (size_t c = 0; c < count; c++)
        size = fmax(size, fabs(attn_tensor_get(t, first + c)));
    return size;
}

static bool row_same(const struct attn_tensor *a, const struct attn_tensor *b,
                     size_t first, size_t count, double relative)
{
    const size_t size = attn_dtype_bytes(a->dtype);
    double slack;

    if (memcmp((const unsigned char *)a->p + first * size,
               (const unsigned char *)b->p + first * size, count * size) == 0)
        return true;
    if (relative == 0.0)
        return false;
    slack = relative * row_size(a, first, count);
    for (size_t c = 0; c < count; c++) {
        const double x = attn_tensor_get(a, first + c), y = attn_tensor_get(b, first + c);

        if (!(fabs(x - y) <= slack) && x != y && !(isnan(x) && isnan(y)))
            return false;
    }
    return true;
}

static bool spared_same(const struct claim_ctx *ctx, enum attn_object o)
{
    const struct attn_tensor *a = &ctx->before->t[measured(ctx, o)];
    const struct attn_tensor *b = &ctx->after->t[measured(ctx, o)];
    const size_t heads = a->rank == 4 ? a->dim[1] : 1, rows = a->dim[a->rank - 2];
    const size_t width = a->dim[a->rank - 1];

    for (size_t row = 0; row < a->dim[0] * heads * rows; row++)
        if (spared(ctx, o, row / rows / heads, row / rows % heads, row % rows) &&
            !row_same(a, b, row * width, width, allowance(ctx, o)))
            return false;
    return true;
}

/* ---- exact numbers ---- */

typedef bool exact_fn(const struct claim_ctx *ctx, enum attn_object o);

/* Is head h's row i without keys, and its output NaN by request?  Then no number is
   exact. */
static bool is_nan_row(const struct claim_ctx *ctx, size_t b, size_t h, size_t i)
{
    const struct attn_dims *d = &ctx->p->d;

    return ctx->p->empty_rows == ATTN_EMPTY_NAN &&
           ctx->after->empty[(b * d->h + h) * d->T_q + i] != 0;
}

static bool has_nan_head(const struct claim_ctx *ctx, size_t b, size_t i)
{
    for (size_t h = 0; h < ctx->p->d.h; h++)
        if (is_nan_row(ctx, b, h, i))
            return true;
    return false;
}

static bool all_zero(const struct claim_ctx *ctx, enum attn_object o)
{
    const struct attn_tensor *t = &ctx->after->t[o];
    const size_t count = attn_tensor_count(t), width = t->dim[t->rank - 1];
    const size_t rows = t->dim[t->rank - 2];

    for (size_t n = 0; n < count; n++) {
        const size_t row = n / width;

        if (attn_tensor_get(t, n) != 0.0 &&
            !(t->rank == 3 && has_nan_head(ctx, row / rows, row % rows)))
            return false;
    }
    return true;
}

static bool is_bias(const struct claim_ctx *ctx, enum attn_object o)
{
    const struct attn_tensor *t = &ctx->after->t[o], *bias = &ctx->p->in[ATTN_IN_B_O];
    const size_t count = attn_tensor_count(t), width = t->dim[2], rows = t->dim[1];

    for (size_t n = 0; n < count; n++)
        if (attn_tensor_get(t, n) != attn_tensor_get(bias, n % width) &&
            !has_nan_head(ctx, n / width / rows, n / width % rows))
            return false;
    return true;
}

static bool head_zero(const struct claim_ctx *ctx, enum attn_object o)
{
    const struct attn_tensor *t = &ctx->after->t[o];
    const struct attn_dims *d = &ctx->p->d;
    const size_t block = d->T_q * d->d_v;

    for (size_t b = 0; b < d->B; b++)
        for (size_t n = 0; n < block; n++)
            if (attn_tensor_get(t, (b * d->h + ctx->edit->index) * block + n) != 0.0)
                return false;
    return true;
}

/* The weights of one key: of the edge's query, or of every query that reads any key. */
static bool weights_zero(const struct claim_ctx *ctx, size_t first, size_t end,
                         size_t key)
{
    const struct attn_tensor *A = &ctx->after->t[ATTN_A];
    const struct attn_dims *d = &ctx->p->d;

    for (size_t each = 0; each < d->B * d->h; each++)
        for (size_t i = first; i < end; i++)
            if (!ctx->after->empty[each * d->T_q + i] &&
                attn_tensor_get(A, (each * d->T_q + i) * d->T_kv + key) != 0.0)
                return false;
    return true;
}

static bool pair_zero(const struct claim_ctx *ctx, enum attn_object o)
{
    (void)o;
    return weights_zero(ctx, ctx->edit->query, ctx->edit->query + 1, ctx->edit->key);
}

static bool column_zero(const struct claim_ctx *ctx, enum attn_object o)
{
    (void)o;
    return weights_zero(ctx, 0, ctx->p->d.T_q, attn_edit_token_key(ctx->p, ctx->edit));
}

typedef bool applies_fn(const struct claim_ctx *ctx);

static bool absent(const struct claim_ctx *ctx, enum attn_input in)
{
    return ctx->p->in[in].p == NULL;
}

static bool always(const struct claim_ctx *ctx)
{
    (void)ctx;
    return true;
}

static bool no_b_q(const struct claim_ctx *ctx)
{
    return absent(ctx, ATTN_IN_B_Q);
}

static bool product_no_b_q(const struct claim_ctx *ctx)
{
    return no_b_q(ctx) && ctx->p->score->bilinear;
}

static bool no_b_k_past(const struct claim_ctx *ctx)
{
    return absent(ctx, ATTN_IN_B_K) && ctx->p->d.T_past == 0;
}

static bool product_no_b_k_past(const struct claim_ctx *ctx)
{
    return no_b_k_past(ctx) && ctx->p->score->bilinear;
}

static bool no_b_v_past(const struct claim_ctx *ctx)
{
    return absent(ctx, ATTN_IN_B_V) && ctx->p->d.T_past == 0;
}

static bool no_b_o(const struct claim_ctx *ctx)
{
    return absent(ctx, ATTN_IN_B_O);
}

static bool has_b_o(const struct claim_ctx *ctx)
{
    return !no_b_o(ctx);
}

#define C(change) (UINT32_C(1) << ATTN_CHANGE_##change)

/* clang-format off */
static const struct exact_row {
    const char *target;
    uint32_t changes;
    enum attn_object object;
    const char *says;
    applies_fn *applies;
    exact_fn *holds;
} EXACTS[] = {
    { "W_Q", C(ZERO), ATTN_Q, "exactly 0", no_b_q, all_zero },
    { "W_Q", C(ZERO), ATTN_S, "exactly 0", product_no_b_q, all_zero },
    { "W_K", C(ZERO), ATTN_K, "exactly 0", no_b_k_past, all_zero },
    { "W_K", C(ZERO), ATTN_S, "exactly 0", product_no_b_k_past, all_zero },
    { "W_V", C(ZERO), ATTN_V, "exactly 0", no_b_v_past, all_zero },
    { "W_V", C(ZERO), ATTN_H, "exactly 0", no_b_v_past, all_zero },
    { "W_O", C(ZERO), ATTN_Y, "exactly 0", no_b_o, all_zero },
    { "W_O", C(ZERO), ATTN_Y, "exactly b_O in every row", has_b_o, is_bias },
    { "scale", C(ZERO), ATTN_S, "exactly 0", always, all_zero },
    { "head", C(ZERO) | C(REMOVE), ATTN_H_HEADS, "this head exactly 0", always,
      head_zero },
    { "edge", C(ZERO) | C(REMOVE), ATTN_A, "exactly 0 at this pair", always, pair_zero },
    { "position", C(REMOVE), ATTN_A, "exactly 0 at this key in every row that reads any",
      always, column_zero },
};
/* clang-format on */

static bool is_asked(const struct exact_row *row, const struct attn_edit *edit)
{
    if (strcmp(row->target, edit->target->name) != 0)
        return false;
    for (int change = 0; change < ATTN_CHANGE_COUNT; change++)
        if ((row->changes >> change & 1) && attn_edit_is(edit, (enum attn_change)change))
            return true;
    return false;
}

/* Several edits together claim what each of them claims: an exact number is one edit's
   own. */
static void claim_exact(const struct claim_ctx *ctx, struct attn_ablation *out)
{
    if (ctx->edits > 1)
        return;
    for (size_t n = 0; n < ATTN_COUNT(EXACTS); n++) {
        const struct exact_row *row = &EXACTS[n];

        if (is_asked(row, ctx->edit) && held(ctx, row->object) && row->applies(ctx))
            add(out, row->object, row->says, row->holds(ctx, row->object));
    }
}

void attn_claims(const struct attn_problem *p, const struct attn_trace *baseline,
                 const struct attn_edit *edit, size_t edits, struct attn_ablation *out)
{
    struct claim_ctx ctx = {p, baseline, &out->trace, edit, edits, {0}};
    uint32_t moving = 0;

    for (size_t n = 0; n < edits; n++) {
        ctx.moves[n] = downstream(attn_edit_target_of(&edit[n])->enters(p, &edit[n]));
        moving |= ctx.moves[n];
    }
    for (size_t n = 0; n < ATTN_COUNT(CLAIMED); n++) {
        const enum attn_object o = CLAIMED[n];
        const char *says;

        if (!held(&ctx, o))
            continue;
        if (!(moving & ATTN_BIT(o)))
            add(out, o, "the same bit for bit", same_bits(&ctx, o));
        else if ((says = spared_says(&ctx, o)) != NULL)
            add(out, o, says, spared_same(&ctx, o));
    }
    claim_exact(&ctx, out);
}
