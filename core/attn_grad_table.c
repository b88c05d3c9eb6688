/*
 * attn_grad_table.c - the gradients: names, shapes, which exist and which need which.
 * Not here: their computation (attn_grad.c, attn_grad_pairs.c, attn_grad_inputs.c).
 * Start reading at ATTN_GRADIENTS, then ATTN_GRAD_NODES.
 */
#include "core/attn_grad.h"

#include <assert.h>
#include <string.h>

/* clang-format off */
const struct attn_gradient_row ATTN_GRADIENTS[ATTN_GRADIENT_COUNT] = {
    [ATTN_DH]    = { "dH", ATTN_H, -1, "dY W_O^T" },
    [ATTN_DV]    = { "dV", ATTN_V, -1,
                     "A^T dH, summed over the query heads that read it" },
    [ATTN_DA]    = { "dA", ATTN_A, -1, "dH V^T, at every pair" },
    [ATTN_DS]    = { "dS", ATTN_S, -1,
                     "A_ij (dA_ij - sum_k A_ik dA_ik); 0 where forbidden" },
    [ATTN_DQ]    = { "dQ", ATTN_Q, -1, "dS K scale, through softcap and temperature" },
    [ATTN_DK]    = { "dK", ATTN_K, -1, "dS^T Q scale, summed over the query heads" },
    [ATTN_DW_O]  = { "dW_O", -1, ATTN_IN_W_O, "H^T dY" },
    [ATTN_DW_Q]  = { "dW_Q", -1, ATTN_IN_W_Q, "X^T dQ, dQ rotated back" },
    [ATTN_DW_K]  = { "dW_K", -1, ATTN_IN_W_K, "X^T dK of the new keys, rotated back" },
    [ATTN_DW_V]  = { "dW_V", -1, ATTN_IN_W_V, "X^T dV of the new keys" },
    [ATTN_DX]    = { "dX", -1, ATTN_IN_X,
                     "dQ W_Q^T + dK W_K^T + dV W_V^T (cross: dQ W_Q^T)" },
    [ATTN_DX_KV] = { "dX_kv", -1, ATTN_IN_X_KV, "dK W_K^T + dV W_V^T" },
    [ATTN_DB_Q]  = { "db_Q", -1, ATTN_IN_B_Q,
                     "sum of dQ over items and rows, rotated back" },
    [ATTN_DB_K]  = { "db_K", -1, ATTN_IN_B_K,
                     "sum of dK over items and new keys, rotated back" },
    [ATTN_DB_V]  = { "db_V", -1, ATTN_IN_B_V, "sum of dV over items and new keys" },
    [ATTN_DB_O]  = { "db_O", -1, ATTN_IN_B_O, "sum of dY over items and rows" },
    [ATTN_D_ADDITIVE] = { "d_additive", ATTN_S, -1, "dS at allowed pairs" },
    [ATTN_DSINK] = { "dsink", -1, ATTN_IN_SINK, "-sum_i p_sink_i sum_j A_ij dA_ij" },
    [ATTN_DV_A]  = { "dv_a", -1, ATTN_IN_V_A, "sum of dS_ij tanh(q_i + k_j)" },
};

/* clang-format on */

static bool always(const struct attn_problem *p)
{
    (void)p;
    return true;
}

static bool projects(const struct attn_problem *p)
{
    return p->form.source != ATTN_PROJECTED;
}

static bool crosses(const struct attn_problem *p)
{
    return p->form.source == ATTN_CROSS;
}

static bool puts_out(const struct attn_problem *p)
{
    return p->form.has_output;
}

static bool has_bias(const struct attn_problem *p)
{
    return p->additive.p != NULL;
}

static bool has_v_a(const struct attn_problem *p)
{
    return p->score->needs_v_a;
}

#define G(g) (UINT32_C(1) << ATTN_##g)
/* clang-format off */
const struct attn_grad_node ATTN_GRAD_NODES[ATTN_GRADIENT_COUNT] = {
    [ATTN_DH]    = { ATTN_H_HEADS, 0,                   always,   false },
    [ATTN_DV]    = { ATTN_V, G(DH),                     always,   false },
    [ATTN_DA]    = { ATTN_A, G(DH),                     always,   false },
    [ATTN_DS]    = { ATTN_S, G(DA),                     always,   false },
    [ATTN_DQ]    = { ATTN_Q, G(DS),                     always,   false },
    [ATTN_DK]    = { ATTN_K, G(DS),                     always,   false },
    [ATTN_DW_O]  = { ATTN_Y, 0,                         puts_out, false },
    [ATTN_DW_Q]  = { ATTN_Q, G(DQ),                     projects, false },
    [ATTN_DW_K]  = { ATTN_K, G(DK),                     projects, false },
    [ATTN_DW_V]  = { ATTN_V, G(DV),                     projects, false },
    [ATTN_DX]    = { ATTN_X, G(DQ) | G(DK) | G(DV),     projects, false },
    [ATTN_DX_KV] = { ATTN_X_KV, G(DK) | G(DV),          crosses,  false },
    [ATTN_DB_Q]  = { ATTN_Q, G(DQ),                     projects, true  },
    [ATTN_DB_K]  = { ATTN_K, G(DK),                     projects, true  },
    [ATTN_DB_V]  = { ATTN_V, G(DV),                     projects, true  },
    [ATTN_DB_O]  = { ATTN_Y, 0,                         puts_out, true  },
    [ATTN_D_ADDITIVE] = { ATTN_M, G(DS),                has_bias, false },
    [ATTN_DSINK] = { ATTN_A, G(DA) | G(DS),             always,   true  },
    [ATTN_DV_A]  = { ATTN_S, G(DS),                     has_v_a,  false },
};
/* clang-format on */

int attn_gradient_find(const char *name)
{
    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (strcmp(ATTN_GRADIENTS[g].name, name) == 0)
            return g;
    return -1;
}

bool attn_gradient_exists(const struct attn_problem *p, enum attn_gradient g)
{
    const struct attn_grad_node *node = &ATTN_GRAD_NODES[g];

    return node->exists(p) &&
           (!node->optional || p->in[ATTN_GRADIENTS[g].like_input].p != NULL);
}

bool attn_gradient_reaches(enum attn_object of, enum attn_gradient g)
{
    return ATTN_GRAD_NODES[g].enters <= of;
}

void attn_grad_shape(const struct attn_problem *p, enum attn_gradient g,
                     struct attn_tensor *shape)
{
    const struct attn_gradient_row *row = &ATTN_GRADIENTS[g];

    *shape = (struct attn_tensor){0};
    if (row->like_object >= 0)
        attn_object_full_shape(p, (enum attn_object)row->like_object, shape);
    else
        for (const enum attn_axis *a = ATTN_INPUTS[row->like_input].axis;
             shape->rank < 4 && *a != ATTN_AX_END; a++)
            shape->dim[shape->rank++] = attn_axis_size(&p->d, *a);
    shape->dtype = p->dtype;
    shape->p = NULL;
}

size_t attn_grad_tensor_bytes(const struct attn_tensor *t)
{
    const size_t bytes = attn_tensor_count(t) * attn_dtype_bytes(t->dtype);

    return (bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

static uint32_t there_are(const struct attn_problem *p)
{
    uint32_t set = 0;

    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (attn_gradient_exists(p, g))
            set |= UINT32_C(1) << g;
    return set;
}

static uint32_t reached(enum attn_object of)
{
    uint32_t set = 0;

    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (attn_gradient_reaches(of, g))
            set |= UINT32_C(1) << g;
    return set;
}

static bool asks_everything(const struct attn_problem *p, const struct attn_grad_ask *ask)
{
    return ask->with_respect_to == 0 || ask->with_respect_to == there_are(p);
}

uint32_t attn_grad_asked(const struct attn_problem *p, const struct attn_grad_ask *ask)
{
    const uint32_t all = there_are(p) & reached(ask->of);

    return asks_everything(p, ask) ? all : ask->with_respect_to & all;
}

uint32_t attn_grad_wrong(const struct attn_problem *p, const struct attn_grad_ask *ask)
{
    return asks_everything(p, ask) ? 0 : ask->with_respect_to & ~attn_grad_asked(p, ask);
}

/* The cotangent of these objects is a gradient itself and is not computed again. */
int attn_grad_known(const struct attn_grad_ask *ask)
{
    return ask->of == ATTN_S   ? ATTN_DS
           : ask->of == ATTN_A ? ATTN_DA
           : ask->of == ATTN_H ? ATTN_DH
                               : -1;
}

uint32_t attn_grad_closure(const struct attn_problem *p, const struct attn_grad_ask *ask)
{
    uint32_t closure = attn_grad_asked(p, ask), before;

    do {
        before = closure;
        for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
            if ((closure >> g & 1) && g != attn_grad_known(ask))
                closure |= ATTN_GRAD_NODES[g].needs;
        closure &= reached(ask->of);
    } while (closure != before);
    return closure;
}

uint32_t attn_grad_needs(const struct attn_problem *p, const struct attn_grad_ask *ask)
{
    const uint32_t closure = attn_grad_closure(p, ask);
    const int known = attn_grad_known(ask);
    uint32_t held = 0;

    if (attn_grad_faulty(ask)) /* a wrong step may read anything */
        held |= ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K) | ATTN_BIT(ATTN_V) |
                ATTN_BIT(ATTN_S) | ATTN_BIT(ATTN_ALLOWED) | ATTN_BIT(ATTN_A) |
                ATTN_BIT(ATTN_H);
    if (closure & G(DW_O))
        held |= ATTN_BIT(ATTN_H);
    if ((closure & G(DA)) && known != ATTN_DA)
        held |= ATTN_BIT(ATTN_V);
    if ((closure & G(DV)) && attn_gradient_reaches(ask->of, ATTN_DH))
        held |= ATTN_BIT(ATTN_A);
    if ((closure & G(DS)) && known != ATTN_DS)
        held |= ATTN_BIT(ATTN_A);
    if (closure & (G(DQ) | G(DK) | G(DV_A))) {
        held |= ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K);
        if (p->softcap > 0.0)
            held |= ATTN_BIT(ATTN_S);
    }
    return held;
}
