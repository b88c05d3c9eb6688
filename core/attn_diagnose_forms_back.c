/*
 * attn_diagnose_forms_back.c - right gradients in another form.
 * Not here: what the forms say, and objects (attn_diagnose_forms.c).
 * Start reading at attn_forms_accept_gradients, at the end.
 */
#include "core/attn_diagnose_forms.h"

#include <math.h>

static bool near(const struct attn_back *back, double e, double x)
{
    return fabs(x - e) <= back->c->atol + (back->c->rtol + back->blur) * fabs(e);
}

static bool zero_where_forbidden(const struct attn_back *back)
{
    const struct attn_tensor *x = &back->c->gradient[ATTN_DA], *e = &back->right[ATTN_DA];

    for (size_t n = 0; n < attn_tensor_count(x); n++) {
        const bool allowed = attn_number(&back->t->t[ATTN_ALLOWED], n) != 0.0;

        if (!near(back, allowed ? attn_number(e, n) : 0.0, attn_number(x, n)))
            return false;
    }
    return true;
}

static bool is_transpose(const struct attn_back *back, enum attn_gradient g)
{
    const struct attn_tensor *x = &back->c->gradient[g], *e = &back->right[g];
    const size_t n = e->dim[0];

    if (e->rank != 2 || e->dim[1] != n)
        return false;
    for (size_t r = 0; r < n; r++)
        for (size_t c = 0; c < n; c++)
            if (!near(back, attn_number(e, c * n + r), attn_number(x, r * n + c)))
                return false;
    return true;
}

/* Q in another basis, for which every product of a query and a gradient of a query (own Q
   and dQ) is that of the right ones; likewise K and dK. */
static bool same_basis(const struct attn_back *back, const struct attn_trace *right,
                       enum attn_object o, enum attn_gradient g)
{
    const struct attn_tensor *own = &back->c->object[o], *d = &back->c->gradient[g];
    const struct attn_tensor *e = &right->t[o], *de = &back->right[g];

    for (struct attn_cell x = {0};
         attn_cell_in(&x, own->dim[0], own->dim[1], own->dim[2], own->dim[2]); x.j++) {
        double expected = 0.0, observed = 0.0, size = 0.0;

        for (size_t c = 0; c < own->dim[3]; c++) {
            const double term =
                attn_at4(e, x.b, x.h, x.i, c) * attn_at4(de, x.b, x.h, x.j, c);

            expected += term;
            size += fabs(term);
            observed += attn_at4(own, x.b, x.h, x.i, c) * attn_at4(d, x.b, x.h, x.j, c);
        }
        if (!(fabs(observed - expected) <=
              back->c->atol + (back->c->rtol + back->blur) * size))
            return false;
    }
    return true;
}

static bool is_accepted(const struct attn_forms *forms, enum attn_object o)
{
    return forms->objects & ATTN_BIT(o);
}

void attn_forms_accept_gradients(struct attn_back *back, const struct attn_trace *right,
                                 struct attn_forms *forms)
{
    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT; g++) {
        const bool is_wrong = back->seen[g].given && !back->seen[g].same;
        enum attn_form_kind form = ATTN_FORM_COUNT;

        if (!is_wrong || !back->right[g].p)
            continue;
        if (g == ATTN_DA && zero_where_forbidden(back))
            form = ATTN_FORM_NO_FORBIDDEN_DA;
        else if (g >= ATTN_DW_O && g <= ATTN_DW_V && is_transpose(back, g))
            form = ATTN_FORM_TRANSPOSED_WEIGHTS;
        else if ((g == ATTN_DQ && is_accepted(forms, ATTN_Q) &&
                  same_basis(back, right, ATTN_Q, g)) ||
                 (g == ATTN_DK && is_accepted(forms, ATTN_K) &&
                  same_basis(back, right, ATTN_K, g)))
            form = ATTN_FORM_SAME_PRODUCTS;
        if (form == ATTN_FORM_COUNT)
            continue;
        forms->gradients |= UINT32_C(1) << g;
        forms->of_gradient[g] = attn_accepted_at(form)->name;
        forms->rows |= UINT32_C(1) << form;
    }
}
