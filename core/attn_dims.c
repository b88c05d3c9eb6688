/*
 * attn_dims.c - what the inputs are, which axes they have, and the size and name of an
 * axis. Not here: finding the sizes from a request (attn_resolve.c). Start reading at
 * ATTN_INPUTS.
 */
#include "core/attn_core.h"

#include <assert.h>

#define AXES(...)   \
    {               \
        __VA_ARGS__ \
    }

/* clang-format off */
const struct attn_input_row ATTN_INPUTS[] = {
    [ATTN_IN_X]      = { "X", "/inputs/X", AXES(ATTN_AX_B, ATTN_AX_TQ, ATTN_AX_DM) },
    [ATTN_IN_X_KV]   = { "X_kv", "/inputs/X_kv",
                         AXES(ATTN_AX_B, ATTN_AX_TNEW, ATTN_AX_DMKV) },
    [ATTN_IN_Q]      = { "Q", "/inputs/Q",
                         AXES(ATTN_AX_B, ATTN_AX_H, ATTN_AX_TQ, ATTN_AX_DK) },
    [ATTN_IN_K]      = { "K", "/inputs/K",
                         AXES(ATTN_AX_B, ATTN_AX_HKV, ATTN_AX_TNEW, ATTN_AX_DK) },
    [ATTN_IN_V]      = { "V", "/inputs/V",
                         AXES(ATTN_AX_B, ATTN_AX_HKV, ATTN_AX_TNEW, ATTN_AX_DV) },
    [ATTN_IN_PAST_K] = { "past.K", "/inputs/past/K",
                         AXES(ATTN_AX_B, ATTN_AX_HKV, ATTN_AX_TPAST, ATTN_AX_DK) },
    [ATTN_IN_PAST_V] = { "past.V", "/inputs/past/V",
                         AXES(ATTN_AX_B, ATTN_AX_HKV, ATTN_AX_TPAST, ATTN_AX_DV) },
    [ATTN_IN_W_Q]    = { "W_Q", "/weights/W_Q", AXES(ATTN_AX_DM, ATTN_AX_H_DK) },
    [ATTN_IN_W_K]    = { "W_K", "/weights/W_K", AXES(ATTN_AX_DMKV, ATTN_AX_HKV_DK) },
    [ATTN_IN_W_V]    = { "W_V", "/weights/W_V", AXES(ATTN_AX_DMKV, ATTN_AX_HKV_DV) },
    [ATTN_IN_W_O]    = { "W_O", "/weights/W_O", AXES(ATTN_AX_H_DV, ATTN_AX_DM) },
    [ATTN_IN_B_Q]    = { "b_Q", "/weights/b_Q", AXES(ATTN_AX_H_DK) },
    [ATTN_IN_B_K]    = { "b_K", "/weights/b_K", AXES(ATTN_AX_HKV_DK) },
    [ATTN_IN_B_V]    = { "b_V", "/weights/b_V", AXES(ATTN_AX_HKV_DV) },
    [ATTN_IN_B_O]    = { "b_O", "/weights/b_O", AXES(ATTN_AX_DM) },
    [ATTN_IN_V_A]    = { "v_a", "/score/v_a", AXES(ATTN_AX_DK) },
    [ATTN_IN_SINK]   = { "sink", "/sink", AXES(ATTN_AX_H) },
};

const struct attn_axis_row ATTN_AXES[] = {
    [ATTN_AX_END]    = { "", ATTN_AX_END, ATTN_AX_END },
    [ATTN_AX_B]      = { "B", ATTN_AX_END, ATTN_AX_B },
    [ATTN_AX_H]      = { "h", ATTN_AX_END, ATTN_AX_H },
    [ATTN_AX_HKV]    = { "h_kv", ATTN_AX_END, ATTN_AX_HKV },
    [ATTN_AX_TQ]     = { "T_q", ATTN_AX_END, ATTN_AX_TQ },
    [ATTN_AX_TKV]    = { "T_kv", ATTN_AX_END, ATTN_AX_TKV },
    [ATTN_AX_TNEW]   = { "T_new", ATTN_AX_END, ATTN_AX_TNEW },
    [ATTN_AX_TPAST]  = { "T_past", ATTN_AX_END, ATTN_AX_TPAST },
    [ATTN_AX_DM]     = { "d_model", ATTN_AX_END, ATTN_AX_DM },
    [ATTN_AX_DMKV]   = { "d_model_kv", ATTN_AX_END, ATTN_AX_DMKV },
    [ATTN_AX_DK]     = { "d_k", ATTN_AX_END, ATTN_AX_DK },
    [ATTN_AX_DV]     = { "d_v", ATTN_AX_END, ATTN_AX_DV },
    [ATTN_AX_H_DK]   = { "h*d_k", ATTN_AX_H, ATTN_AX_DK },
    [ATTN_AX_HKV_DK] = { "h_kv*d_k", ATTN_AX_HKV, ATTN_AX_DK },
    [ATTN_AX_HKV_DV] = { "h_kv*d_v", ATTN_AX_HKV, ATTN_AX_DV },
    [ATTN_AX_H_DV]   = { "h*d_v", ATTN_AX_H, ATTN_AX_DV },
};
/* clang-format on */
_Static_assert(ATTN_COUNT(ATTN_INPUTS) == ATTN_INPUT_COUNT, "one row per input");
_Static_assert(ATTN_COUNT(ATTN_AXES) == ATTN_AX_COUNT, "one row per axis");

const char *attn_axis_name(enum attn_axis axis)
{
    assert(axis < ATTN_AX_COUNT);
    return ATTN_AXES[axis].name;
}

/* Where a size stands in struct attn_dims; T_new is the only one that does not. */
static const size_t PLACES[ATTN_AX_COUNT] = {
    [ATTN_AX_B] = offsetof(struct attn_dims, B),
    [ATTN_AX_H] = offsetof(struct attn_dims, h),
    [ATTN_AX_HKV] = offsetof(struct attn_dims, h_kv),
    [ATTN_AX_TQ] = offsetof(struct attn_dims, T_q),
    [ATTN_AX_TKV] = offsetof(struct attn_dims, T_kv),
    [ATTN_AX_TPAST] = offsetof(struct attn_dims, T_past),
    [ATTN_AX_DM] = offsetof(struct attn_dims, d_model),
    [ATTN_AX_DMKV] = offsetof(struct attn_dims, d_model_kv),
    [ATTN_AX_DK] = offsetof(struct attn_dims, d_k),
    [ATTN_AX_DV] = offsetof(struct attn_dims, d_v),
};

static size_t one_size(const struct attn_dims *d, enum attn_axis axis)
{
    if (axis == ATTN_AX_TNEW)
        return d->T_kv - d->T_past;
    return *(const size_t *)((const char *)d + PLACES[axis]);
}

size_t attn_axis_size(const struct attn_dims *d, enum attn_axis axis)
{
    assert(axis > ATTN_AX_END && axis < ATTN_AX_COUNT);
    if (ATTN_AXES[axis].heads == ATTN_AX_END)
        return one_size(d, axis);
    return one_size(d, ATTN_AXES[axis].heads) * one_size(d, ATTN_AXES[axis].width);
}
