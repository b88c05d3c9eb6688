/*
 * attn_audit_inputs.c - check 1: the widths of all inputs agree.
 * Not here: refusing a request whose shapes disagree (attn_resolve.c); this judges what
 * came of it.
 * Start reading at attn_check_inputs.
 */
#include "core/attn_audit.h"

#include <string.h>

struct width {
    enum attn_input input;
    size_t rank, want[4];
};

/* What the sizes ask of every input, written out once more: not read from ATTN_INPUTS. */
static size_t widths(const struct attn_problem *p, struct width *w)
{
    const struct attn_dims *d = &p->d;
    const size_t fresh = d->T_kv - d->T_past,
                 model_kv = p->form.source == ATTN_CROSS ? d->d_model_kv : d->d_model;
    const struct width all[] = {
        {ATTN_IN_X, 3, {d->B, d->T_q, d->d_model}},
        {ATTN_IN_X_KV, 3, {d->B, fresh, model_kv}},
        {ATTN_IN_Q, 4, {d->B, d->h, d->T_q, d->d_k}},
        {ATTN_IN_K, 4, {d->B, d->h_kv, fresh, d->d_k}},
        {ATTN_IN_V, 4, {d->B, d->h_kv, fresh, d->d_v}},
        {ATTN_IN_PAST_K, 4, {d->B, d->h_kv, d->T_past, d->d_k}},
        {ATTN_IN_PAST_V, 4, {d->B, d->h_kv, d->T_past, d->d_v}},
        {ATTN_IN_W_Q, 2, {d->d_model, d->h * d->d_k}},
        {ATTN_IN_W_K, 2, {model_kv, d->h_kv * d->d_k}},
        {ATTN_IN_W_V, 2, {model_kv, d->h_kv * d->d_v}},
        {ATTN_IN_W_O, 2, {d->h * d->d_v, d->d_model}},
        {ATTN_IN_B_Q, 1, {d->h * d->d_k}},
        {ATTN_IN_B_K, 1, {d->h_kv * d->d_k}},
        {ATTN_IN_B_V, 1, {d->h_kv * d->d_v}},
        {ATTN_IN_B_O, 1, {d->d_model}},
        {ATTN_IN_V_A, 1, {d->d_k}},
        {ATTN_IN_SINK, 1, {d->h}},
    };

    _Static_assert(ATTN_COUNT(all) == ATTN_INPUT_COUNT, "one row per input");
    memcpy(w, all, sizeof all);
    return ATTN_COUNT(all);
}

static bool fits(const struct attn_tensor *t, const struct width *w)
{
    return !t->p ||
           (t->rank == w->rank && !memcmp(t->dim, w->want, w->rank * sizeof t->dim[0]));
}

static const char *const WIDTH_WRONG[] = {
    [ATTN_IN_X] = "X: axes of {5}, {6}, {7}; wanted {0}, {1}, {2}.",
    [ATTN_IN_X_KV] = "X_kv: axes of {5}, {6}, {7}; wanted {0}, {1}, {2}.",
    [ATTN_IN_Q] = "Q: axes of {5}, {6}, {7}, {8}; wanted {0}, {1}, {2}, {3}.",
    [ATTN_IN_K] = "K: axes of {5}, {6}, {7}, {8}; wanted {0}, {1}, {2}, {3}.",
    [ATTN_IN_V] = "V: axes of {5}, {6}, {7}, {8}; wanted {0}, {1}, {2}, {3}.",
    [ATTN_IN_PAST_K] = "past.K: axes of {5}, {6}, {7}, {8}; wanted {0}, {1}, {2}, {3}.",
    [ATTN_IN_PAST_V] = "past.V: axes of {5}, {6}, {7}, {8}; wanted {0}, {1}, {2}, {3}.",
    [ATTN_IN_W_Q] = "W_Q is {5} × {6}; d_model × h·d_k is {0} × {1}.",
    [ATTN_IN_W_K] = "W_K is {5} × {6}; d_model × h_kv·d_k is {0} × {1}.",
    [ATTN_IN_W_V] = "W_V is {5} × {6}; d_model × h_kv·d_v is {0} × {1}.",
    [ATTN_IN_W_O] = "W_O is {5} × {6}; h·d_v × d_model is {0} × {1}.",
    [ATTN_IN_B_Q] = "b_Q has {5} entries; h·d_k is {0}.",
    [ATTN_IN_B_K] = "b_K has {5} entries; h_kv·d_k is {0}.",
    [ATTN_IN_B_V] = "b_V has {5} entries; h_kv·d_v is {0}.",
    [ATTN_IN_B_O] = "b_O has {5} entries; d_model is {0}.",
    [ATTN_IN_V_A] = "v_a has {5} entries; d_k is {0}.",
    [ATTN_IN_SINK] = "sink has {5} entries; h is {0}.",
};

/* The way of the widths, from what was given to where the layer ends. */
static const char *widths_agree(const struct attn_form *form)
{
    if (form->source == ATTN_PROJECTED)
        return form->has_output
                   ? "Q and K are given, {1} wide in each head, V is {2}; the {3} joined "
                     "features of H meet W_O, which leads to {0}."
                   : "Q and K are given, {1} wide in each head, V is {2}; there is no "
                     "W_O: the layer ends with H, {3} wide.";
    return form->has_output
               ? "X, {0} wide, meets W_Q; Q and K are {1} wide in each head, V is {2}; "
                 "the {3} joined features of H meet W_O, which leads back to {0}."
               : "X, {0} wide, meets W_Q; Q and K are {1} wide in each head, V is {2}; "
                 "there is no W_O: the layer ends with H, {3} wide.";
}

bool attn_check_inputs(struct attn_auditor *a, struct attn_finding *f)
{
    const struct attn_dims *d = &a->p->d;
    struct width w[ATTN_INPUT_COUNT];
    const size_t count = widths(a->p, w);

    f->object = ATTN_X;
    f->expected = widths_agree(&a->p->form);
    f->observed = "Every width agrees; {4} query heads read {5} key/value heads.";
    f->detail = "In a product of matrices the inner sizes must be equal; d_v is free "
                "because values "
                "are only added up, never compared.";
    f->fact[0] = (double)d->d_model;
    f->fact[1] = (double)d->d_k;
    f->fact[2] = (double)d->d_v;
    f->fact[3] = (double)(d->h * d->d_v);
    f->fact[4] = (double)d->h;
    f->fact[5] = (double)d->h_kv;
    a->inputs_fit = d->h_kv > 0 && d->h % d->h_kv == 0;
    if (!a->inputs_fit) {
        f->status = ATTN_FAIL;
        f->observed = "{4} query heads cannot be shared out among {5} key/value heads.";
        return true;
    }
    for (size_t n = 0; n < count && a->inputs_fit; n++) {
        const struct attn_tensor *t = &a->p->in[w[n].input];

        if (fits(t, &w[n]))
            continue;
        a->inputs_fit = false;
        f->status = ATTN_FAIL;
        f->expected = "The widths of all inputs agree.";
        f->observed = WIDTH_WRONG[w[n].input];
        for (size_t axis = 0; axis < 4; axis++) {
            f->fact[axis] = (double)w[n].want[axis];
            f->fact[5 + axis] = axis < t->rank ? (double)t->dim[axis] : 0.0;
        }
    }
    return true;
}
