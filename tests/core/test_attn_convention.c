/* test_attn_convention.c - facts of other systems, as the sources named in the rows state
 * them. */
#include "core/attn.h"

#include <criterion/criterion.h>
#include <string.h>

Test(attn_convention, every_row_is_complete_and_found)
{
    cr_assert_eq(attn_convention_count(), 6);
    for (size_t n = 0; n < attn_convention_count(); n++) {
        const struct attn_convention_row *row = attn_convention_at(n);

        cr_assert_eq(attn_convention_find(row->name), row);
        cr_assert_neq(row->alignment, ATTN_ALIGN_UNSTATED, "%s", row->name);
        cr_assert_gt(strlen(row->source), 40, "%s", row->name);
        cr_assert_not_null(row->default_scale);
    }
    cr_assert_null(attn_convention_find("torch"));
}

Test(attn_convention, polarity)
{
    cr_assert_str_eq(attn_convention_find("torch.sdpa")->mask_true_means, "may attend");
    cr_assert_str_eq(attn_convention_find("torch.mha")->mask_true_means, "is forbidden");
    cr_assert_str_eq(attn_convention_find("onnx.23")->mask_true_means, "may attend");
    cr_assert_str_eq(attn_convention_find("keras.mha")->mask_true_means, "may attend");
    cr_assert_str_eq(attn_convention_find("flash_attn")->mask_true_means,
                     "takes no boolean mask");
}

Test(attn_convention, corners_and_empty_rows)
{
    cr_assert_eq(attn_convention_find("torch.sdpa")->alignment, ATTN_ALIGN_TOP_LEFT);
    cr_assert_eq(attn_convention_find("flash_attn")->alignment, ATTN_ALIGN_BOTTOM_RIGHT);
    cr_assert_eq(attn_convention_find("torch.sdpa")->empty_rows, ATTN_EMPTY_ZERO);
    cr_assert_eq(attn_convention_find("torch.mha")->empty_rows, ATTN_EMPTY_NAN);
    cr_assert_eq(attn_convention_find("onnx.23")->empty_rows, ATTN_EMPTY_ZERO);
    cr_assert_eq(attn_convention_find("onnx.24")->empty_rows, ATTN_EMPTY_ZERO);
    cr_assert_eq(attn_convention_find("keras.mha")->empty_rows, ATTN_EMPTY_UNIFORM);
}
