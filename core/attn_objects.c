/*
 * attn_objects.c - the layer as a table: every object, its shape, what it is made of.
 * Not here: how objects are computed (the stages), which are held (attn_plan.c).
 * Start reading at ATTN_OBJECTS; from it come shapes, costs, answers and the order of the
 * audit.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <string.h>

#define AXES(...)                \
    {                            \
        __VA_ARGS__, ATTN_AX_END \
    }
#define B_         ATTN_AX_B
#define H_         ATTN_AX_H
#define G_         ATTN_AX_HKV
#define Q_         ATTN_AX_TQ
#define K_         ATTN_AX_TKV
#define ON(object) ATTN_BIT(ATTN_##object)

/* clang-format off */
const struct attn_object_row ATTN_OBJECTS[] = {
    [ATTN_X]      = { "X", AXES(B_, Q_, ATTN_AX_DM), false, false, false, false,
                      ATTN_X, 0, "given" },
    [ATTN_X_KV]   = { "X_kv", AXES(B_, ATTN_AX_TNEW, ATTN_AX_DMKV),
                      false, false, false, false, ATTN_X_KV, 0, "given" },
    [ATTN_Q_PRE]  = { "Q_pre", AXES(B_, H_, Q_, ATTN_AX_DK), false, true, false, false,
                      ATTN_Q, ON(X), "X W_Q + b_Q" },
    [ATTN_K_PRE]  = { "K_pre", AXES(B_, G_, K_, ATTN_AX_DK), false, true, false, false,
                      ATTN_K, ON(X) | ON(X_KV), "[past K; X_kv W_K + b_K]" },
    [ATTN_Q]      = { "Q", AXES(B_, H_, Q_, ATTN_AX_DK), false, true, true, false,
                      ATTN_Q, ON(Q_PRE), "Q_pre, rotated by RoPE when asked" },
    [ATTN_K]      = { "K", AXES(B_, G_, K_, ATTN_AX_DK), false, true, true, false,
                      ATTN_K, ON(K_PRE), "K_pre, new rows rotated by RoPE when asked" },
    [ATTN_V]      = { "V", AXES(B_, G_, K_, ATTN_AX_DV), false, true, true, false,
                      ATTN_V, ON(X) | ON(X_KV), "[past V; X_kv W_V + b_V]" },
    [ATTN_S_RAW]  = { "S_raw", AXES(B_, H_, Q_, K_), false, true, false, true,
                      ATTN_S, ON(Q) | ON(K),
                      "Q K^T, or sum_c v_a[c] tanh(q_i[c] + k_j[c])" },
    [ATTN_S]      = { "S", AXES(B_, H_, Q_, K_), false, true, true, true,
                      ATTN_S, ON(S_RAW), "softcap(S_raw * scale / temperature)" },
    [ATTN_M]      = { "M", AXES(B_, H_, Q_, K_), false, true, true, true,
                      ATTN_M, 0,
                      "additive + ALiBi where allowed, -Infinity where forbidden" },
    [ATTN_ALLOWED] = { "allowed", AXES(B_, H_, Q_, K_), true, true, false, true,
                      ATTN_M, 0, "every mask rule allows the pair" },
    [ATTN_S_MASKED] = { "S_masked", AXES(B_, H_, Q_, K_), false, true, false, true,
                      ATTN_M, ON(S) | ON(M), "S + M" },
    [ATTN_A]      = { "A", AXES(B_, H_, Q_, K_), false, true, true, true,
                      ATTN_A, ON(S) | ON(M) | ON(ALLOWED), "softmax over keys of S + M" },
    [ATTN_LSE]    = { "lse", AXES(B_, H_, Q_), false, true, false, false,
                      ATTN_A, ON(S) | ON(M) | ON(ALLOWED),
                      "log of sum_j exp(S_ij + M_ij), plus exp(sink_h) with a sink" },
    [ATTN_CONTRIBUTIONS] = { "contributions", AXES(B_, H_, Q_, K_, ATTN_AX_DV),
                      false, true, false, true, ATTN_H, ON(A) | ON(V), "A_ij v_j" },
    [ATTN_H_HEADS] = { "H_heads", AXES(B_, H_, Q_, ATTN_AX_DV), false, true, false, false,
                      ATTN_H, ON(A) | ON(V), "A V, head by head" },
    [ATTN_H]      = { "H", AXES(B_, Q_, ATTN_AX_H_DV), false, true, true, false,
                      ATTN_H, ON(A) | ON(V), "A V, heads side by side" },
    [ATTN_Y]      = { "Y", AXES(B_, Q_, ATTN_AX_DM), false, true, true, false,
                      ATTN_Y, ON(H), "H W_O + b_O" },
    [ATTN_PRESENT_K] = { "present_K", AXES(B_, G_, K_, ATTN_AX_DK),
                      false, true, false, false, ATTN_K, ON(K),
                      "K: the cache after this call" },
    [ATTN_PRESENT_V] = { "present_V", AXES(B_, G_, K_, ATTN_AX_DV),
                      false, true, false, false, ATTN_V, ON(V),
                      "V: the cache after this call" },
};
/* clang-format on */
_Static_assert(ATTN_COUNT(ATTN_OBJECTS) == ATTN_OBJECT_COUNT, "one row per object");

int attn_object_find(const char *name)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (strcmp(ATTN_OBJECTS[o].name, name) == 0)
            return o;
    return -1;
}

bool attn_object_exists(const struct attn_problem *p, enum attn_object o)
{
    assert(o < ATTN_OBJECT_COUNT);

    switch (o) {
    case ATTN_X:
        return p->form.source != ATTN_PROJECTED;
    case ATTN_X_KV:
        return p->form.source == ATTN_CROSS;
    case ATTN_Y:
        return p->form.has_output;
    default:
        return true;
    }
}

/* The shape with the axes that `keep_b` and `keep_h` leave. */
static void shape_of(const struct attn_problem *p, enum attn_object o, bool keep_b,
                     bool keep_h, struct attn_tensor *shape)
{
    const struct attn_object_row *row = &ATTN_OBJECTS[o];

    *shape = (struct attn_tensor){.dtype = row->is_bool ? ATTN_BOOL : p->dtype};
    for (const enum attn_axis *a = row->axis; *a != ATTN_AX_END; a++) {
        if (*a == ATTN_AX_B && !keep_b)
            continue;
        if ((*a == ATTN_AX_H || *a == ATTN_AX_HKV) && !keep_h)
            continue;
        shape->dim[shape->rank++] = attn_axis_size(&p->d, *a);
    }
}

void attn_object_full_shape(const struct attn_problem *p, enum attn_object o,
                            struct attn_tensor *shape)
{
    assert(o < ATTN_OBJECT_COUNT);
    shape_of(p, o, true, true, shape);
}

void attn_object_shape(const struct attn_problem *p, enum attn_object o,
                       struct attn_tensor *shape)
{
    assert(o < ATTN_OBJECT_COUNT);
    shape_of(p, o, p->form.batch_axis, p->form.head_axis, shape);
}
