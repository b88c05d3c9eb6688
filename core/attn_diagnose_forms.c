/*
 * attn_diagnose_forms.c - right implementations in another form: what is accepted, and as
 * what. Not here: gradients (attn_diagnose_forms_back.c), faults (attn_fault*.c). Start
 * reading at FORMS.
 */
#include "core/attn_diagnose_forms.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const struct attn_accepted_row FORMS[] = {
    [ATTN_FORM_MASKED_SCORES] = {"masked_scores",
                                 "S is given with its mask: -Infinity, or a large "
                                 "negative number, at forbidden pairs."},
    [ATTN_FORM_FINITE_FILL] = {"finite_fill",
                               "A large negative number stands for -Infinity: its weight "
                               "is 0 as long as a row has a key."},
    [ATTN_FORM_SAME_PRODUCTS] =
        {"same_products",
         "Q and K differ, but every product of a query and a key is right: a common "
         "rotation, "
         "permutation or shift of positions, or a factor moved from one to the other."},
    [ATTN_FORM_SCALE_IN_PRODUCTS] = {"scale_in_products",
                                     "The scale is already in Q or K (or its root in "
                                     "both), so products need no other."},
    [ATTN_FORM_SCALED_RAW] = {"scaled_raw_scores", "S_raw is given with the scale."},
    [ATTN_FORM_ROW_CONSTANT] = {"row_constant_mask",
                                "M differs by one number per row over allowed keys, "
                                "which the softmax takes off again."},
    [ATTN_FORM_VALUE_BASIS] = {"other_value_basis",
                               "V and H stand in another basis, which the output "
                               "projection takes back: Y is right."},
    [ATTN_FORM_LSE_BASE_2] = {"lse_base_2", "lse is given as a logarithm to base 2."},
    [ATTN_FORM_NO_FORBIDDEN_DA] =
        {"masked_weight_gradient",
         "dA is given as 0 at forbidden pairs, where it is never read."},
    [ATTN_FORM_TRANSPOSED_WEIGHTS] =
        {"transposed_weights", "The gradient of a square weight is given as (out,in)."},
};
_Static_assert(ATTN_COUNT(FORMS) == ATTN_FORM_COUNT, "one row per form");

size_t attn_accepted_count(void)
{
    return ATTN_FORM_COUNT;
}

const struct attn_accepted_row *attn_accepted_at(size_t n)
{
    assert(n < ATTN_FORM_COUNT);
    return &FORMS[n];
}

void attn_form_saw(struct attn_forms *forms, enum attn_form_kind form, uint32_t objects)
{
    forms->rows |= UINT32_C(1) << form;
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (objects & ATTN_BIT(o))
            forms->of_object[o] = FORMS[form].name;
}

/* ---- objects in another form ---- */

static bool wrong(const struct attn_walk *w, enum attn_object o)
{
    return attn_walk_given(w, o) && !w->seen[o].same;
}

static uint32_t wrong_of(const struct attn_walk *w, uint32_t objects)
{
    uint32_t set = 0;

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if ((objects & ATTN_BIT(o)) && wrong(w, (enum attn_object)o))
            set |= ATTN_BIT(o);
    return set;
}

static double factor_of(const struct attn_problem *p)
{
    return p->scale / p->temperature;
}

/* Are all products of the trace's own rows those of the right layer times c? */
static bool products_are(const struct attn_walk *w, const struct attn_trace *right,
                         enum attn_object q, enum attn_object k, double c)
{
    const struct attn_problem *p = w->p;
    const double by = factor_of(p);
    const struct attn_tensor *Q = &w->t.t[q], *K = &w->t.t[k];
    const struct attn_tensor *Qr = &right->t[q], *Kr = &right->t[k];
    struct attn_margin margin = attn_margin_of(w->c);
    double expected, observed;
    const struct attn_tensor e = {
        .dtype = ATTN_F64, .rank = 1, .dim = {1}, .p = &expected};
    const struct attn_tensor x = {
        .dtype = ATTN_F64, .rank = 1, .dim = {1}, .p = &observed};

    for (struct attn_cell at = {0};
         attn_cell_in(&at, p->d.B, p->d.h, p->d.T_q, p->d.T_kv); at.j++) {
        const size_t g = attn_kv_head(&p->d, at.h);
        const size_t i = attn_place4(Q, at.b, at.h, at.i),
                     j = attn_place4(K, at.b, g, at.j);
        struct attn_seen seen;

        expected = by * attn_pair_raw(p, Qr, i, Kr, j);
        observed = by / c * attn_pair_raw(p, Q, i, K, j);
        margin.flat =
            w->noise[ATTN_S][attn_place4(&w->t.t[ATTN_S], at.b, at.h, at.i) + at.j] /
            fmin(fabs(c), 1.0);
        attn_compare(&e, &x, &margin, NULL, &seen);
        if (!seen.same)
            return false;
    }
    return true;
}

/* Only one of Q and K was given, and it is the right one times the root of the scale. */
static bool half_scaled(const struct attn_walk *w, const struct attn_trace *right)
{
    const bool has_q = attn_walk_given(w, ATTN_Q), has_k = attn_walk_given(w, ATTN_K);
    const enum attn_object o = has_q ? ATTN_Q : ATTN_K;
    const double c = sqrt(fabs(factor_of(w->p)));

    if (has_q == has_k || attn_walk_given(w, ATTN_PRESENT_K) || c == 1.0)
        return false;
    for (size_t n = 0; n < attn_tensor_count(&w->t.t[o]); n++) {
        const double e = c * attn_number(&right->t[o], n), x = attn_number(&w->t.t[o], n);

        if (!(fabs(x - e) <= w->c->atol + w->c->rtol * fabs(e) + w->noise[o][n]))
            return false;
    }
    return true;
}

static bool accept_products(const struct attn_walk *w, const struct attn_trace *right,
                            struct attn_forms *forms)
{
    static const uint32_t BEFORE = ATTN_BIT(ATTN_Q_PRE) | ATTN_BIT(ATTN_K_PRE);
    const uint32_t objects = wrong_of(w, BEFORE | ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K) |
                                             ATTN_BIT(ATTN_PRESENT_K));
    const double scales[] = {1.0, w->p->scale, factor_of(w->p)};

    if (objects == 0)
        return false;
    for (size_t n = 0; n < ATTN_COUNT(scales); n++) {
        const double c = scales[n];

        if (c == 0.0 || (n > 0 && !w->p->score->bilinear) ||
            !products_are(w, right, ATTN_Q, ATTN_K, c))
            continue;
        if ((objects & BEFORE) && attn_turn_of(w->p) != NULL &&
            !products_are(w, right, ATTN_Q_PRE, ATTN_K_PRE, c))
            continue;
        attn_form_saw(forms,
                      c == 1.0 ? ATTN_FORM_SAME_PRODUCTS : ATTN_FORM_SCALE_IN_PRODUCTS,
                      objects);
        forms->objects |= objects;
        return true;
    }
    if (!half_scaled(w, right))
        return false;
    attn_form_saw(forms, ATTN_FORM_SCALE_IN_PRODUCTS, objects);
    forms->objects |= objects;
    return true;
}

static bool accept_raw(const struct attn_walk *w, const struct attn_trace *right,
                       struct attn_forms *forms)
{
    const double c = factor_of(w->p);
    const struct attn_tensor *raw = &w->c->object[ATTN_S_RAW];

    if (!wrong(w, ATTN_S_RAW) || !w->p->score->bilinear)
        return false;
    for (size_t n = 0; n < attn_tensor_count(raw); n++) {
        const double e = c * attn_number(&right->t[ATTN_S_RAW], n);

        if (!(fabs(attn_number(raw, n) - e) <=
              w->c->atol + w->c->rtol * fabs(e) + w->noise[ATTN_S][n]))
            return false;
    }
    attn_form_saw(forms, ATTN_FORM_SCALED_RAW, ATTN_BIT(ATTN_S_RAW));
    forms->objects |= ATTN_BIT(ATTN_S_RAW);
    return true;
}

/* One row of M or S_masked against the right one: the same pattern, and one difference?
 */
static bool constant_apart(const struct attn_walk *w, const double *x, const double *e)
{
    double shift = 0.0;
    bool any = false;

    for (size_t j = 0; j < w->p->d.T_kv; j++) {
        if ((x[j] == -INFINITY) != (e[j] == -INFINITY) || isnan(x[j]))
            return false;
        if (e[j] == -INFINITY)
            continue;
        if (!any)
            shift = x[j] - e[j];
        any = true;
        if (!(fabs(x[j] - e[j] - shift) <=
              w->c->atol + w->c->rtol * (fabs(x[j]) + fabs(e[j]) + fabs(shift))))
            return false;
    }
    return true;
}

static bool accept_row_constant(const struct attn_walk *w, const struct attn_trace *right,
                                struct attn_forms *forms)
{
    const uint32_t objects = wrong_of(w, ATTN_BIT(ATTN_M) | ATTN_BIT(ATTN_S_MASKED));
    const size_t T = w->p->d.T_kv;

    /* A sink takes no part in the difference, so the weights would change. */
    if (objects == 0 || w->p->in[ATTN_IN_SINK].p)
        return false;
    for (int o = ATTN_M; o <= ATTN_S_MASKED; o++)
        for (size_t n = 0;
             (objects & ATTN_BIT(o)) && n < attn_tensor_count(&w->c->object[o]); n += T)
            if (!constant_apart(w, (const double *)w->c->object[o].p + n,
                                (const double *)right->t[o].p + n))
                return false;
    attn_form_saw(forms, ATTN_FORM_ROW_CONSTANT, objects);
    forms->objects |= objects;
    return true;
}

static bool globally_right(const struct attn_walk *w, const struct attn_trace *right,
                           enum attn_object o)
{
    struct attn_margin margin = attn_margin_of(w->c);
    struct attn_seen seen;

    if (!attn_walk_given(w, o))
        return true;
    margin.noise = w->noise[o];
    attn_compare(&right->t[o], &w->c->object[o], &margin, NULL, &seen);
    return seen.same;
}

static bool accept_value_basis(const struct attn_walk *w, const struct attn_trace *right,
                               struct attn_forms *forms)
{
    const uint32_t values = ATTN_BIT(ATTN_V) | ATTN_BIT(ATTN_PRESENT_V);
    const uint32_t mixed =
        ATTN_BIT(ATTN_CONTRIBUTIONS) | ATTN_BIT(ATTN_H_HEADS) | ATTN_BIT(ATTN_H);
    const bool has_mix = attn_walk_given(w, ATTN_H) || attn_walk_given(w, ATTN_H_HEADS);

    if (wrong_of(w, values) == 0 || wrong_of(w, mixed) != 0 || !has_mix ||
        !attn_walk_given(w, ATTN_Y) || !globally_right(w, right, ATTN_Y) ||
        (globally_right(w, right, ATTN_H) && globally_right(w, right, ATTN_H_HEADS)))
        return false;
    attn_form_saw(forms, ATTN_FORM_VALUE_BASIS, values | mixed);
    forms->objects |= values | mixed;
    return true;
}

/* What was added to a whole row of M is in lse too. */
static double row_shift(const struct attn_walk *w, const struct attn_trace *right,
                        size_t row, const struct attn_forms *forms)
{
    const size_t T = w->p->d.T_kv;
    const enum attn_object o = w->c->object[ATTN_M].p ? ATTN_M : ATTN_S_MASKED;

    if (!(forms->objects & ATTN_BIT(o)) || !w->c->object[o].p)
        return 0.0;
    for (size_t n = row * T; n < (row + 1) * T; n++)
        if (isfinite(attn_number(&right->t[o], n)))
            return attn_number(&w->c->object[o], n) - attn_number(&right->t[o], n);
    return 0.0;
}

static bool accept_shifted_lse(const struct attn_walk *w, const struct attn_trace *right,
                               struct attn_forms *forms)
{
    const struct attn_tensor *lse = &w->c->object[ATTN_LSE];

    for (size_t n = 0; n < attn_tensor_count(lse); n++) {
        const double e =
            attn_number(&right->t[ATTN_LSE], n) + row_shift(w, right, n, forms);
        const double x = attn_number(lse, n);

        if (x != e &&
            !(fabs(x - e) <= w->c->atol + w->c->rtol * fabs(e) + w->noise[ATTN_LSE][n]))
            return false;
    }
    attn_form_saw(forms, ATTN_FORM_ROW_CONSTANT, ATTN_BIT(ATTN_LSE));
    forms->objects |= ATTN_BIT(ATTN_LSE);
    return true;
}

static bool accept_lse(const struct attn_walk *w, const struct attn_trace *right,
                       struct attn_forms *forms)
{
    const struct attn_tensor *lse = &w->c->object[ATTN_LSE];

    if (!wrong(w, ATTN_LSE))
        return false;
    if (accept_shifted_lse(w, right, forms))
        return true;
    for (size_t n = 0; n < attn_tensor_count(lse); n++) {
        const double e = attn_number(&right->t[ATTN_LSE], n) / 0.6931471805599453;
        const double x = attn_number(lse, n);

        if (x != e && !(fabs(x - e) <=
                        w->c->atol + w->c->rtol * fabs(e) + 2.0 * w->noise[ATTN_LSE][n]))
            return false;
    }
    attn_form_saw(forms, ATTN_FORM_LSE_BASE_2, ATTN_BIT(ATTN_LSE));
    forms->objects |= ATTN_BIT(ATTN_LSE);
    return true;
}

bool attn_forms_accept(const struct attn_walk *w, const struct attn_trace *right,
                       struct attn_forms *forms)
{
    return accept_products(w, right, forms) || accept_raw(w, right, forms) ||
           accept_row_constant(w, right, forms) || accept_value_basis(w, right, forms) ||
           accept_lse(w, right, forms);
}
