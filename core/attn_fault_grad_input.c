/*
 * attn_fault_grad_input.c - faults of the backward pass where it leaves the layer:
 * gradients of the weights, of the biases and of X.
 * Not here: dH to dK (attn_fault_grad.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_grad.h"

#include <string.h>

#define G(g) (UINT32_C(1) << ATTN_##g)

static void divided_by_items(const struct attn_back *back, enum attn_gradient g,
                             struct attn_tensor *out)
{
    (void)g;
    attn_back_times(out, 1.0 / (double)back->p->d.B);
}

/* dX of the paths whose bits are kept. */
static void some_paths(const struct attn_back *back, unsigned keep,
                       struct attn_tensor *out)
{
    static const struct {
        enum attn_gradient g;
        enum attn_input W;
    } PATHS[] = {{ATTN_DQ, ATTN_IN_W_Q}, {ATTN_DK, ATTN_IN_W_K}, {ATTN_DV, ATTN_IN_W_V}};

    memset(out->p, 0, attn_back_bytes_of(out));
    for (size_t n = 0; n < ATTN_COUNT(PATHS); n++) {
        const struct attn_tensor *W = &back->p->in[PATHS[n].W],
                                 *of = &back->own[PATHS[n].g];

        for (struct attn_cell x = {0};
             (keep >> n & 1) &&
             attn_cell_in(&x, of->dim[0], of->dim[1], of->dim[2], of->dim[3]);
             x.j++)
            for (size_t k = 0; k < W->dim[0]; k++) {
                const size_t at = attn_place3(out, x.b, x.i) + k;

                attn_put(out, at,
                         attn_number(out, at) +
                             attn_at4(of, x.b, x.h, x.i, x.j) *
                                 attn_number(W, k * W->dim[1] + x.h * of->dim[3] + x.j));
            }
    }
}

static void no_query_path(const struct attn_back *back, enum attn_gradient g,
                          struct attn_tensor *out)
{
    (void)g;
    some_paths(back, 6, out);
}

static void no_key_path(const struct attn_back *back, enum attn_gradient g,
                        struct attn_tensor *out)
{
    (void)g;
    some_paths(back, 5, out);
}

static void no_value_path(const struct attn_back *back, enum attn_gradient g,
                          struct attn_tensor *out)
{
    (void)g;
    some_paths(back, 3, out);
}

/* X^T dQ and X^T dK with the rotation left in. */
static void still_rotated(const struct attn_back *back, enum attn_gradient g,
                          struct attn_tensor *out)
{
    const bool keys = g == ATTN_DW_K;
    const struct attn_tensor *d = &back->own[keys ? ATTN_DK : ATTN_DQ];
    const struct attn_tensor *x =
        &back->p
             ->in[keys && back->p->form.source == ATTN_CROSS ? ATTN_IN_X_KV : ATTN_IN_X];
    const size_t past = keys ? back->p->d.T_past : 0;

    memset(out->p, 0, attn_back_bytes_of(out));
    for (struct attn_cell at = {0};
         attn_cell_in(&at, d->dim[0], d->dim[1], d->dim[2] - past, d->dim[3]); at.j++)
        for (size_t k = 0; k < out->dim[0]; k++) {
            const size_t to = k * out->dim[1] + at.h * d->dim[3] + at.j;

            attn_put(out, to,
                     attn_number(out, to) +
                         attn_number(x, attn_place3(x, at.b, at.i) + k) *
                             attn_at4(d, at.b, at.h, past + at.i, at.j));
        }
}

/* ---- what each needs --------------------------------------------------------------- */

static bool items(const struct attn_problem *p)
{
    return p->d.B > 1;
}

static bool self_unturned(const struct attn_problem *p)
{
    return p->form.source == ATTN_SELF && attn_turn_of(p) == NULL && p->d.T_past == 0;
}

static bool turned(const struct attn_problem *p)
{
    return p->form.source != ATTN_PROJECTED && attn_turn_of(p) != NULL;
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct attn_back_fault PER_ITEM = {G(DW_Q) | G(DW_K) | G(DW_V) | G(DW_O) |
                                                    G(DB_Q) | G(DB_K) | G(DB_V) | G(DB_O),
                                                divided_by_items, items};
static const struct attn_back_fault NO_QUERY = {G(DX), no_query_path, self_unturned};
static const struct attn_back_fault NO_KEY = {G(DX), no_key_path, self_unturned};
static const struct attn_back_fault NO_VALUE = {G(DX), no_value_path, self_unturned};
static const struct attn_back_fault ROTATED = {G(DW_Q) | G(DW_K), still_rotated, turned};

#define CAUGHT "gradients"

static const struct attn_fault_row ROWS[] = {
    {"grad_mean_over_items", "dW_O", CAUGHT,
     "Gradients of weights were averaged over the items instead of added up.",
     "Weights are shared: their gradient is the sum over items.",
     "Gradients, more than one item.", attn_back_fits, ATTN_FAULT_BACK(PER_ITEM)},
    {"grad_still_rotated", "dW_Q", CAUGHT,
     "dQ and dK went into the weights without being rotated back.",
     "Rotate dQ and dK by the opposite angle before X is multiplied with them.",
     "Gradients with RoPE.", attn_back_fits, ATTN_FAULT_BACK(ROTATED)},
    {"grad_input_no_query_path", "dX", CAUGHT,
     "dX lacks what flows back through the queries.", "dX = dQ·W_Qᵀ + dK·W_Kᵀ + dV·W_Vᵀ.",
     "Gradients of self-attention.", attn_back_fits, ATTN_FAULT_BACK(NO_QUERY)},
    {"grad_input_no_key_path", "dX", CAUGHT, "dX lacks what flows back through the keys.",
     "dX = dQ·W_Qᵀ + dK·W_Kᵀ + dV·W_Vᵀ.", "Gradients of self-attention.", attn_back_fits,
     ATTN_FAULT_BACK(NO_KEY)},
    {"grad_input_no_value_path", "dX", CAUGHT,
     "dX lacks what flows back through the values.", "dX = dQ·W_Qᵀ + dK·W_Kᵀ + dV·W_Vᵀ.",
     "Gradients of self-attention.", attn_back_fits, ATTN_FAULT_BACK(NO_VALUE)},
};
const struct attn_fault_theme ATTN_FAULTS_GRAD_INPUT = {ROWS, ATTN_COUNT(ROWS)};
