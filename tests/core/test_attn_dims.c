/* test_attn_dims.c - the tables of inputs and axes. */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <string.h>

Test(attn_dims, sizes_and_names)
{
    static const struct {
        enum attn_axis axis;
        size_t size;
        const char *name;
    } axes[] = {
        {ATTN_AX_B, 2, "B"},
        {ATTN_AX_H, 6, "h"},
        {ATTN_AX_HKV, 2, "h_kv"},
        {ATTN_AX_TQ, 3, "T_q"},
        {ATTN_AX_TKV, 5, "T_kv"},
        {ATTN_AX_TNEW, 4, "T_new"},
        {ATTN_AX_TPAST, 1, "T_past"},
        {ATTN_AX_DM, 7, "d_model"},
        {ATTN_AX_DMKV, 11, "d_model_kv"},
        {ATTN_AX_DK, 13, "d_k"},
        {ATTN_AX_DV, 17, "d_v"},
        {ATTN_AX_H_DK, 78, "h*d_k"},
        {ATTN_AX_HKV_DK, 26, "h_kv*d_k"},
        {ATTN_AX_HKV_DV, 34, "h_kv*d_v"},
        {ATTN_AX_H_DV, 102, "h*d_v"},
    };

    cr_assert_eq(ATTN_COUNT(axes), ATTN_AX_COUNT - 1);
    for (size_t n = 0; n < ATTN_COUNT(axes); n++) {
        cr_assert_eq(attn_axis_size(&MAKE_DISTINCT, axes[n].axis), axes[n].size, "%s",
                     axes[n].name);
        cr_assert_str_eq(attn_axis_name(axes[n].axis), axes[n].name);
    }
}

Test(attn_dims, inputs_have_a_name_a_place_and_axes)
{
    for (size_t in = 0; in < ATTN_INPUT_COUNT; in++) {
        const struct attn_input_row *row = &ATTN_INPUTS[in];
        const char *dot = strrchr(row->name, '.');
        const char *last = strrchr(row->place, '/');

        cr_assert_str_eq(last + 1, dot != NULL ? dot + 1 : row->name);
        cr_assert_neq(row->axis[0], ATTN_AX_END, "%s", row->name);
    }
    cr_assert_str_eq(ATTN_INPUTS[ATTN_IN_PAST_K].place, "/inputs/past/K");
    cr_assert_str_eq(ATTN_INPUTS[ATTN_IN_V_A].place, "/score/v_a");
    cr_assert_str_eq(ATTN_INPUTS[ATTN_IN_SINK].place, "/sink");
}

Test(attn_dims, weights_have_inputs_on_the_left)
{
    cr_assert_eq(ATTN_INPUTS[ATTN_IN_W_Q].axis[0], ATTN_AX_DM);
    cr_assert_eq(ATTN_INPUTS[ATTN_IN_W_K].axis[0], ATTN_AX_DMKV);
    cr_assert_eq(ATTN_INPUTS[ATTN_IN_W_O].axis[0], ATTN_AX_H_DV);
    cr_assert_eq(ATTN_INPUTS[ATTN_IN_W_O].axis[1], ATTN_AX_DM);
}
