/*
 * attn_diagnose_back.c - the backward pass walked gradient by gradient over a candidate's
 * own. Not here: the passes themselves (attn_grad_pairs.c, attn_grad_inputs.c). Start
 * reading at SOURCES, then attn_back_run.
 */
#include "core/attn_diagnose.h"

#include <math.h>
#include <string.h>

#define G(g) (UINT32_C(1) << ATTN_##g)

enum pass { OUTPUT, PAIRS, INPUTS, COPY };

static const struct source_row { /* which pass makes a gradient, and from which others */
    enum pass pass;
    uint32_t from;
    enum attn_object of; /* what the pass starts at */
} SOURCES[ATTN_GRADIENT_COUNT] = {
    [ATTN_DH] = {OUTPUT, 0, ATTN_Y},
    [ATTN_DV] = {PAIRS, G(DH), ATTN_H},
    [ATTN_DA] = {PAIRS, G(DH), ATTN_H},
    [ATTN_DS] = {PAIRS, G(DA), ATTN_A},
    [ATTN_DQ] = {PAIRS, G(DS), ATTN_S},
    [ATTN_DK] = {PAIRS, G(DS), ATTN_S},
    [ATTN_DW_O] = {OUTPUT, 0, ATTN_Y},
    [ATTN_DW_Q] = {INPUTS, G(DQ), ATTN_S},
    [ATTN_DW_K] = {INPUTS, G(DK), ATTN_S},
    [ATTN_DW_V] = {INPUTS, G(DV), ATTN_S},
    [ATTN_DX] = {INPUTS, G(DQ) | G(DK) | G(DV), ATTN_S},
    [ATTN_DX_KV] = {INPUTS, G(DK) | G(DV), ATTN_S},
    [ATTN_DB_Q] = {INPUTS, G(DQ), ATTN_S},
    [ATTN_DB_K] = {INPUTS, G(DK), ATTN_S},
    [ATTN_DB_V] = {INPUTS, G(DV), ATTN_S},
    [ATTN_DB_O] = {OUTPUT, 0, ATTN_Y},
    [ATTN_D_ADDITIVE] = {COPY, G(DS), ATTN_S},
    [ATTN_DSINK] = {PAIRS, G(DA), ATTN_A},
    [ATTN_DV_A] = {PAIRS, G(DS), ATTN_S},
};

static size_t bytes_of(const struct attn_tensor *t)
{
    return attn_tensor_count(t) * attn_dtype_bytes(t->dtype);
}

/* ---- one step ---- */

/* The cotangent itself, heads joined where it is that of H_heads; false when g is
 * another. */
static bool is_cotangent(const struct attn_back *back, enum attn_gradient g,
                         struct attn_tensor *out)
{
    const struct attn_tensor *given = &back->ask->cotangent;

    if (attn_grad_known(back->ask) == (int)g) {
        memcpy(out->p, given->p, bytes_of(out));
        return true;
    }
    if (back->ask->of != ATTN_H_HEADS || g != ATTN_DH)
        return false;
    for (struct attn_cell x = {0};
         attn_cell_in(&x, given->dim[0], given->dim[1], given->dim[2], given->dim[3]);
         x.j++)
        attn_put(out, attn_place3(out, x.b, x.i) + x.h * given->dim[3] + x.j,
                 attn_at4(given, x.b, x.h, x.i, x.j));
    return true;
}

static bool run_pass(struct attn_grad_run *run, enum pass pass, struct attn_err *err)
{
    return pass == OUTPUT  ? attn_grad_output(run, err)
           : pass == PAIRS ? attn_grad_pairs(run, err)
                           : attn_grad_inputs(run, err);
}

/* The right gradient g from the candidate's own earlier ones. */
static bool step(struct attn_back *back, enum attn_gradient g, struct attn_tensor *out,
                 struct attn_err *err)
{
    const struct source_row *source = &SOURCES[g];
    struct attn_grad_ask ask = *back->ask;
    struct attn_grad_run run = {.p = back->p,
                                .trace = back->t,
                                .ask = &ask,
                                .exec = back->exec,
                                .arena = back->arena,
                                .rows = attn_grad_rows_of(back->p->dtype),
                                .kernel = attn_kernel_of(back->p->dtype)};
    const size_t mark = attn_arena_mark(back->arena);

    memset(out->p, 0, bytes_of(out));
    if (is_cotangent(back, g, out))
        return true;
    if (source->pass == COPY) {
        memcpy(out->p, back->own[ATTN_DS].p, bytes_of(out));
        return true;
    }
    ask.of = source->of;
    for (int n = 0; n < ATTN_GRADIENT_COUNT; n++)
        if (source->from >> n & 1)
            run.g[n] = back->own[n];
    run.g[g] = *out;
    if (g == ATTN_DSINK) {
        run.g[ATTN_DS] = back->own[ATTN_DS];
        run.g[ATTN_DS].p = attn_arena_take(back->arena, bytes_of(&back->own[ATTN_DS]));
        if (!run.g[ATTN_DS].p)
            return attn_fail(err, ATTN_E_MEMORY, "dsink", NULL, back->arena->size,
                             bytes_of(out));
    }

    const bool ok = run_pass(&run, source->pass, err);

    attn_arena_release(back->arena, mark);
    return ok;
}

/* ---- how far rounding may move it ---- */

static double most(const struct attn_tensor *t)
{
    double largest = 0.0;

    for (size_t n = 0; t->p && n < attn_tensor_count(t); n++)
        if (isfinite(attn_number(t, n)))
            largest = fmax(largest, fabs(attn_number(t, n)));
    return largest;
}

static double root(size_t n)
{
    return sqrt((double)n);
}

/* Size of the terms that are added up to make g: sums may cancel, their roundings do not.
 */
static double size_of_terms(const struct attn_back *back, enum attn_gradient g)
{
    const struct attn_problem *p = back->p;
    const struct attn_dims *d = &p->d;
    const struct attn_tensor *own = back->own, *t = back->t->t;
    const double factor = fabs(p->scale / p->temperature),
                 cot = most(&back->ask->cotangent);
    const double x = fmax(most(&p->in[ATTN_IN_X]), most(&p->in[ATTN_IN_X_KV]));
    const size_t rows = d->B * (d->T_q > d->T_kv ? d->T_q : d->T_kv);
    const double paths =
        most(&own[ATTN_DQ]) * most(&p->in[ATTN_IN_W_Q]) * root(d->h * d->d_k) +
        most(&own[ATTN_DK]) * most(&p->in[ATTN_IN_W_K]) * root(d->h_kv * d->d_k) +
        most(&own[ATTN_DV]) * most(&p->in[ATTN_IN_W_V]) * root(d->h_kv * d->d_v);
    const double terms[ATTN_GRADIENT_COUNT] = {
        [ATTN_DH] = cot * most(&p->in[ATTN_IN_W_O]) * root(d->d_model),
        [ATTN_DV] = most(&own[ATTN_DH]) * root(d->T_q * (d->h / d->h_kv)),
        [ATTN_DA] = most(&own[ATTN_DH]) * most(&t[ATTN_V]) * root(d->d_v),
        [ATTN_DS] = most(&own[ATTN_DA]),
        [ATTN_DQ] =
            most(&own[ATTN_DS]) * fmax(1.0, most(&t[ATTN_K])) * factor * root(d->T_kv),
        [ATTN_DK] = most(&own[ATTN_DS]) * fmax(1.0, most(&t[ATTN_Q])) * factor *
                    root(d->T_q * d->h),
        [ATTN_DW_O] = most(&t[ATTN_H]) * cot * root(rows),
        [ATTN_DW_Q] = most(&own[ATTN_DQ]) * x * root(rows),
        [ATTN_DW_K] = most(&own[ATTN_DK]) * x * root(rows),
        [ATTN_DW_V] = most(&own[ATTN_DV]) * x * root(rows),
        [ATTN_DX] = paths,
        [ATTN_DX_KV] = paths,
        [ATTN_DB_Q] = most(&own[ATTN_DQ]) * root(rows),
        [ATTN_DB_K] = most(&own[ATTN_DK]) * root(rows),
        [ATTN_DB_V] = most(&own[ATTN_DV]) * root(rows),
        [ATTN_DB_O] = cot * root(rows),
        [ATTN_D_ADDITIVE] = most(&own[ATTN_DS]),
        [ATTN_DSINK] = most(&own[ATTN_DA]) * root(rows),
        [ATTN_DV_A] = most(&own[ATTN_DS]) * factor * root(rows * d->T_kv),
    };

    return terms[g];
}

static struct attn_margin margin_of(const struct attn_back *back, enum attn_gradient g)
{
    struct attn_margin margin = attn_margin_of(back->c);

    margin.flat = back->blur * size_of_terms(back, g);
    return margin;
}

/* ---- the walk ---- */

static bool given(const struct attn_back *back, enum attn_gradient g)
{
    return back->c->gradient[g].p && !(back->ignore >> g & 1);
}

static bool settle(struct attn_back *back, enum attn_gradient g, struct attn_err *err)
{
    struct attn_tensor *own = &back->own[g];
    const struct attn_back_fault *fault = back->fault;

    if (!step(back, g, own, err))
        return false;
    if (fault && (fault->changes >> g & 1) && fault->fits(back->p))
        fault->wrong(back, g, own);
    back->seen[g] = (struct attn_seen){0};
    if (!given(back, g))
        return true;

    const struct attn_margin margin = margin_of(back, g);

    attn_compare(own, &back->c->gradient[g], &margin, NULL, &back->seen[g]);
    if (back->right[g].p && !fault)
        attn_compare(&back->right[g], &back->c->gradient[g], &margin, NULL,
                     &back->global[g]);
    memcpy(own->p, back->c->gradient[g].p, bytes_of(own));
    return true;
}

bool attn_back_run(struct attn_back *back, struct attn_err *err)
{
    back->stopped = false;
    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT; g++) {
        if (!(back->exists >> g & 1))
            continue;
        if (!settle(back, g, err))
            return false;
        if ((back->must >> g & 1) && given(back, g) && !back->seen[g].same) {
            back->stopped = true;
            return true;
        }
    }
    return true;
}

/* ---- memory ---- */

static bool take_own(struct attn_back *back, enum attn_gradient g, struct attn_err *err)
{
    struct attn_tensor *own = &back->own[g];

    attn_grad_shape(back->p, g, own);
    own->p = attn_arena_take(back->arena, attn_grad_tensor_bytes(own));
    if (!own->p)
        return attn_fail(err, ATTN_E_MEMORY, ATTN_GRADIENTS[g].name, NULL,
                         back->arena->size, attn_grad_tensor_bytes(own));
    return true;
}

bool attn_back_take(struct attn_back *back, const struct attn_trace *right,
                    struct attn_err *err)
{
    struct attn_grad_ask all = *back->ask;
    struct attn_grads grads;

    back->exists = 0;
    all.with_respect_to = 0;
    all.check = false;
    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT; g++) {
        if (!attn_gradient_exists(back->p, g) || !attn_gradient_reaches(back->ask->of, g))
            continue;
        back->exists |= UINT32_C(1) << g;
        if (!take_own(back, g, err))
            return false;
    }
    if (!right)
        return true;
    if (!attn_grad(back->p, right, &all, back->arena, back->exec, &grads, err))
        return false;
    memcpy(back->right, grads.t, sizeof back->right);
    return true;
}

size_t attn_back_bytes(const struct attn_problem *p, const struct attn_grad_ask *ask)
{
    struct attn_grad_ask all = *ask;
    struct attn_tensor shape;
    size_t bytes = 0;

    all.with_respect_to = 0;
    all.check = false;
    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT; g++) {
        if (!attn_gradient_exists(p, g))
            continue;
        attn_grad_shape(p, g, &shape);
        bytes += 2 * attn_grad_tensor_bytes(&shape);
    }
    attn_grad_shape(p, ATTN_DS, &shape);
    return bytes + attn_grad_tensor_bytes(&shape) + attn_grad_bytes(p, &all) +
           attn_grad_pairs_bytes(p) + attn_grad_inputs_bytes(p);
}
