/*
 * attn_fault_grad.c - faults of the backward pass inside the layer: dH to dK.
 * Not here: gradients of what goes into it (attn_fault_grad_input.c), faults of the layer
 * itself (the files beside this one).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_grad.h"

#include <math.h>
#include <string.h>

#define G(g) (UINT32_C(1) << ATTN_##g)

static double own4(const struct attn_back *back, enum attn_gradient g, size_t b, size_t h,
                   size_t i, size_t c)
{
    return attn_at4(&back->own[g], b, h, i, c);
}

static double held(const struct attn_back *back, enum attn_object o, size_t b, size_t h,
                   size_t i, size_t c)
{
    return attn_at4(&back->t->t[o], b, h, i, c);
}

static double factor_of(const struct attn_problem *p)
{
    return p->scale / p->temperature;
}

/* Nothing comes before the object that the gradients are of: no dH when they are of A. */
static bool absent(const struct attn_back *back, enum attn_gradient g)
{
    return back->own[g].p == NULL;
}

/* ---- dS ---------------------------------------------------------------------------- */

static void nan_in_empty_rows(const struct attn_back *back, enum attn_gradient g,
                              struct attn_tensor *out)
{
    const struct attn_dims *d = &back->p->d;

    (void)g;
    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_q, d->T_kv); x.j++)
        if (attn_row_empty(back->p, x.b, x.h, x.i))
            attn_put4(out, x.b, x.h, x.i, x.j, (double)NAN);
}

static void without_row_term(const struct attn_back *back, enum attn_gradient g,
                             struct attn_tensor *out)
{
    (void)g;
    for (size_t n = 0; n < attn_tensor_count(out) && !absent(back, ATTN_DA); n++)
        attn_put(out, n,
                 attn_number(&back->t->t[ATTN_A], n) == 0.0
                     ? 0.0
                     : attn_number(&back->t->t[ATTN_A], n) *
                           attn_number(&back->own[ATTN_DA], n));
}

/* dA less its plain mean, not the mean under A. */
static void plain_mean(const struct attn_back *back, enum attn_gradient g,
                       struct attn_tensor *out)
{
    const struct attn_dims *d = &back->p->d;

    (void)g;
    if (absent(back, ATTN_DA))
        return;
    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_q, d->T_kv); x.j++) {
        double sum = 0.0;

        for (size_t j = 0; j < d->T_kv; j++)
            sum += own4(back, ATTN_DA, x.b, x.h, x.i, j);
        attn_put4(out, x.b, x.h, x.i, x.j,
                  held(back, ATTN_A, x.b, x.h, x.i, x.j) *
                      (own4(back, ATTN_DA, x.b, x.h, x.i, x.j) - sum / (double)d->T_kv));
    }
}

static void without_weight(const struct attn_back *back, enum attn_gradient g,
                           struct attn_tensor *out)
{
    (void)g;
    if (absent(back, ATTN_DA))
        return;
    memcpy(out->p, back->own[ATTN_DA].p, attn_back_bytes_of(out));
    for (size_t n = 0; n < attn_tensor_count(out); n++)
        if (attn_number(&back->t->t[ATTN_ALLOWED], n) == 0.0)
            attn_put(out, n, 0.0);
}

/* ---- dQ, dK ------------------------------------------------------------------------ */

static void without_scale(const struct attn_back *back, enum attn_gradient g,
                          struct attn_tensor *out)
{
    (void)g;
    attn_back_times(out, 1.0 / back->p->scale);
}

static void scale_again(const struct attn_back *back, enum attn_gradient g,
                        struct attn_tensor *out)
{
    (void)g;
    attn_back_times(out, back->p->scale);
}

/* Row (h,j) of what lies in memory as (heads,T,d), read as (T,heads,d). */
static double viewed(const struct attn_back *back, enum attn_object o, size_t b, size_t h,
                     size_t j, size_t c)
{
    const struct attn_tensor *t = &back->t->t[o];
    const size_t flat = j * t->dim[1] + h;

    return attn_at4(t, b, flat / t->dim[2], flat % t->dim[2], c);
}

static void kv_by_view(const struct attn_back *back, enum attn_gradient g,
                       struct attn_tensor *out)
{
    const struct attn_dims *d = &back->p->d;
    const bool keys = g == ATTN_DQ;
    const size_t width = keys ? d->d_k : d->T_kv, over = keys ? d->T_kv : d->d_v;

    if (absent(back, keys ? ATTN_DS : ATTN_DH))
        return;
    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_q, width); x.j++) {
        const size_t kv = attn_kv_head(d, x.h);
        const size_t row = attn_place3(&back->own[ATTN_DH], x.b, x.i) + x.h * d->d_v;
        double sum = 0.0;

        for (size_t n = 0; n < over; n++)
            sum += keys ? factor_of(back->p) * own4(back, ATTN_DS, x.b, x.h, x.i, n) *
                              viewed(back, ATTN_K, x.b, kv, n, x.j)
                        : attn_number(&back->own[ATTN_DH], row + n) *
                              viewed(back, ATTN_V, x.b, kv, x.j, n);
        attn_put4(out, x.b, x.h, x.i, x.j, sum);
    }
}

/* Of the query heads that share a key/value head only the first is counted. */
static void first_of_group(const struct attn_back *back, enum attn_gradient g,
                           struct attn_tensor *out)
{
    const struct attn_dims *d = &back->p->d;
    const size_t group = d->h / d->h_kv;

    if (absent(back, g == ATTN_DV ? ATTN_DH : ATTN_DS))
        return;
    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h_kv, d->T_kv, out->dim[3]);
         x.j++) {
        const size_t h = x.h * group;
        double sum = 0.0;

        for (size_t i = 0; i < d->T_q; i++)
            sum += g == ATTN_DV
                       ? held(back, ATTN_A, x.b, h, i, x.i) *
                             attn_number(&back->own[ATTN_DH],
                                         attn_place3(&back->own[ATTN_DH], x.b, i) +
                                             h * d->d_v + x.j)
                       : factor_of(back->p) * own4(back, ATTN_DS, x.b, h, i, x.i) *
                             held(back, ATTN_Q, x.b, h, i, x.j);
        attn_put4(out, x.b, x.h, x.i, x.j, sum);
    }
}

static void weights_not_transposed(const struct attn_back *back, enum attn_gradient g,
                                   struct attn_tensor *out)
{
    const struct attn_dims *d = &back->p->d;

    if (absent(back, g == ATTN_DV ? ATTN_DH : ATTN_DS))
        return;
    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_kv, out->dim[3]);
         x.j++) {
        double sum = 0.0;

        for (size_t i = 0; i < d->T_q; i++)
            sum += g == ATTN_DV
                       ? held(back, ATTN_A, x.b, x.h, x.i, i) *
                             attn_number(&back->own[ATTN_DH],
                                         attn_place3(&back->own[ATTN_DH], x.b, i) +
                                             x.h * d->d_v + x.j)
                       : factor_of(back->p) * own4(back, ATTN_DS, x.b, x.h, x.i, i) *
                             held(back, ATTN_Q, x.b, x.h, i, x.j);
        attn_put4(out, x.b, x.h, x.i, x.j, sum);
    }
}

/* ---- dH ---------------------------------------------------------------------------- */

static void through_transpose(const struct attn_back *back, enum attn_gradient g,
                              struct attn_tensor *out)
{
    const struct attn_tensor *W = &back->p->in[ATTN_IN_W_O], *dY = &back->ask->cotangent;
    const size_t n = W->dim[0];

    (void)g;
    if (back->ask->of != ATTN_Y)
        return;
    for (size_t r = 0; r < attn_tensor_count(out) / n; r++)
        for (size_t c = 0; c < n; c++) {
            double sum = 0.0;

            for (size_t k = 0; k < n; k++)
                sum += attn_number(dY, r * n + k) * attn_number(W, k * n + c);
            attn_put(out, r * n + c, sum);
        }
}

/* ---- what each needs --------------------------------------------------------------- */

static bool always(const struct attn_problem *p)
{
    (void)p;
    return true;
}

static bool products(const struct attn_problem *p)
{
    return p->score->bilinear && !(p->softcap > 0.0);
}

static bool scaled(const struct attn_problem *p)
{
    return p->scale != 0.0 && p->scale != 1.0;
}

static bool heads_are_keys(const struct attn_problem *p)
{
    return products(p) && p->d.h_kv > 1;
}

static bool grouped(const struct attn_problem *p)
{
    return products(p) && p->d.h > p->d.h_kv;
}

static bool square(const struct attn_problem *p)
{
    return products(p) && p->d.T_q == p->d.T_kv && p->d.h == p->d.h_kv && p->d.T_q > 1;
}

static bool square_output(const struct attn_problem *p)
{
    return p->form.has_output && p->d.h * p->d.d_v == p->d.d_model;
}

static bool empty_row(const struct attn_problem *p, const void *param)
{
    (void)param;
    return attn_any_row_empty(p);
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct attn_back_fault NAN_ROWS = {G(DS), nan_in_empty_rows, always};
static const struct attn_back_fault NO_ROW_TERM = {G(DS), without_row_term, always};
static const struct attn_back_fault PLAIN_MEAN = {G(DS), plain_mean, always};
static const struct attn_back_fault NO_WEIGHT = {G(DS), without_weight, always};
static const struct attn_back_fault NO_SCALE = {G(DQ) | G(DK), without_scale, scaled};
static const struct attn_back_fault TWICE = {G(DQ) | G(DK), scale_again, scaled};
static const struct attn_back_fault KEY_UNSCALED = {G(DK), without_scale, scaled};
static const struct attn_back_fault BY_VIEW = {G(DA) | G(DQ), kv_by_view, heads_are_keys};
static const struct attn_back_fault ONE_OF_GROUP = {G(DV) | G(DK), first_of_group,
                                                    grouped};
static const struct attn_back_fault NOT_TRANSPOSED = {G(DV) | G(DK),
                                                      weights_not_transposed, square};
static const struct attn_back_fault OUTPUT = {G(DH), through_transpose, square_output};

#define CAUGHT "gradients"

static const struct attn_fault_row ROWS[] = {
    {"grad_output_not_transposed", "dH", CAUGHT,
     "dY was multiplied by W_O instead of by its transpose.", "dH = dY·W_Oᵀ.",
     "Gradients, and W_O square and not symmetric.", attn_back_fits,
     ATTN_FAULT_BACK(OUTPUT)},
    {"grad_weights_not_transposed", "dV", CAUGHT,
     "dV = A·dH and dK = dS·Q were taken without the transpose.",
     "dV = Aᵀ·dH and dK = dSᵀ·Q: a key collects from the queries that read it.",
     "Gradients, T_q = T_kv > 1.", attn_back_fits, ATTN_FAULT_BACK(NOT_TRANSPOSED)},
    {"grad_group_first_head", "dV", CAUGHT,
     "Of the query heads that share a key/value head only the first was counted in dV "
     "and dK.",
     "Add up dV and dK over the whole group.", "Gradients, h_kv < h.", attn_back_fits,
     ATTN_FAULT_BACK(ONE_OF_GROUP)},
    {"grad_kv_layout", "dA", CAUGHT,
     "The backward pass saw K and V with the axes of heads and tokens in each other's "
     "place.",
     "Give the backward pass the layout that the forward pass used.",
     "Gradients, more than one key/value head.", attn_back_fits,
     ATTN_FAULT_BACK(BY_VIEW)},
    {"grad_nan_from_masked_row", "dS", CAUGHT,
     "The NaN weights of a row without a key were set to 0 only after use: 0·NaN poisons "
     "every "
     "weight's gradient.",
     "Give such rows a stated value before the softmax, so that no NaN enters the graph.",
     "Gradients, and a row without an allowed key.", empty_row,
     ATTN_FAULT_BACK(NAN_ROWS)},
    {"grad_no_row_term", "dS", CAUGHT,
     "dS = A·dA, without the row's mean: rows of dS do not sum to 0.",
     "dS = A·(dA − Σ A·dA).", "Gradients, and a row with two allowed keys.",
     attn_back_fits, ATTN_FAULT_BACK(NO_ROW_TERM)},
    {"grad_plain_mean", "dS", CAUGHT,
     "The plain mean of dA was taken off instead of its mean under A.",
     "dS = A·(dA − Σ A·dA).", "Gradients, and weights that are not all equal.",
     attn_back_fits, ATTN_FAULT_BACK(PLAIN_MEAN)},
    {"grad_softmax_skipped", "dS", CAUGHT,
     "dS = dA: the derivative of the softmax was left out.", "dS = A·(dA − Σ A·dA).",
     "Gradients.", attn_back_fits, ATTN_FAULT_BACK(NO_WEIGHT)},
    {"grad_no_scale", "dQ", CAUGHT, "1/√d_k was left out of dQ and dK.",
     "dQ = dS·K·scale, dK = dSᵀ·Q·scale.",
     "Gradients, and a scale other than 1 (d_k > 1).", attn_back_fits,
     ATTN_FAULT_BACK(NO_SCALE)},
    {"grad_scale_twice", "dQ", CAUGHT, "The scale was applied twice in dQ and dK.",
     "dQ = dS·K·scale, dK = dSᵀ·Q·scale.",
     "Gradients, and a scale other than 1 (d_k > 1).", attn_back_fits,
     ATTN_FAULT_BACK(TWICE)},
    {"grad_key_no_scale", "dK", CAUGHT, "1/√d_k was left out of dK only.",
     "dK = dSᵀ·Q·scale.", "Gradients, and a scale other than 1 (d_k > 1).",
     attn_back_fits, ATTN_FAULT_BACK(KEY_UNSCALED)},
};
const struct attn_fault_theme ATTN_FAULTS_GRAD = {ROWS, ATTN_COUNT(ROWS)};

const struct attn_back_fault *attn_fault_back(const struct attn_fault_row *row)
{
    static const struct attn_fault_theme *const BACKWARD[] = {&ATTN_FAULTS_GRAD,
                                                              &ATTN_FAULTS_GRAD_INPUT};

    for (size_t t = 0; t < ATTN_COUNT(BACKWARD); t++)
        if (row >= BACKWARD[t]->row && row < BACKWARD[t]->row + BACKWARD[t]->count)
            return row->swap.param;
    return NULL;
}

bool attn_fault_of_gradients(const struct attn_fault_row *row)
{
    return attn_fault_back(row) != NULL;
}
