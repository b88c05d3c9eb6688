/* test_attn_tensor.c - element types and the addresses of slices. */
#include "core/attn_core.h"

#include <criterion/criterion.h>

Test(attn_tensor, dtypes)
{
    cr_assert_eq(attn_dtype_bytes(ATTN_F64), 8);
    cr_assert_eq(attn_dtype_bytes(ATTN_F32), 4);
    cr_assert_eq(attn_dtype_bytes(ATTN_BOOL), 1);
    cr_assert_str_eq(attn_dtype_name(ATTN_F64), "float64");
    cr_assert_str_eq(attn_dtype_name(ATTN_F32), "float32");
    cr_assert_str_eq(attn_dtype_name(ATTN_BOOL), "bool");
}

Test(attn_tensor, count)
{
    struct attn_tensor t = {.rank = 4, .dim = {2, 3, 5, 7}};

    cr_assert_eq(attn_tensor_count(&t), 210);
    t.dim[2] = 0;
    cr_assert_eq(attn_tensor_count(&t), 0);
    t.rank = 0;
    cr_assert_eq(attn_tensor_count(&t), 1);
}

Test(attn_tensor, get_reads_every_dtype)
{
    double d[] = {1.5, -2.25};
    float f[] = {0.5f, 3.0f};
    uint8_t b[] = {0, 1, 7};
    struct attn_tensor t = {.dtype = ATTN_F64, .rank = 1, .dim = {2}, .p = d};

    cr_assert_eq(attn_tensor_get(&t, 1), -2.25);
    t.dtype = ATTN_F32;
    t.p = f;
    cr_assert_eq(attn_tensor_get(&t, 0), 0.5);
    t.dtype = ATTN_BOOL;
    t.p = b;
    cr_assert_eq(attn_tensor_get(&t, 0), 0.0);
    cr_assert_eq(attn_tensor_get(&t, 2), 1.0);
}

Test(attn_tensor, slices_of_every_rank)
{
    double x[2 * 3 * 5 * 7 * 2] = {0};
    struct attn_tensor t = {.dtype = ATTN_F64, .rank = 4, .dim = {2, 3, 5, 7}, .p = x};
    struct attn_mat m = attn_slice(&t, 1, 2);

    cr_assert_eq((double *)m.p - x, (1 * 3 + 2) * 35);
    cr_assert(m.rows == 5 && m.cols == 7 && m.ld == 7 && m.dtype == ATTN_F64);

    t.rank = 5;
    t.dim[4] = 2;
    m = attn_slice(&t, 1, 1);
    cr_assert_eq((double *)m.p - x, (1 * 3 + 1) * 70);
    cr_assert(m.rows == 5 && m.cols == 14 && m.ld == 14);

    t.rank = 3;
    m = attn_slice(&t, 1, 9);
    cr_assert_eq((double *)m.p - x, 15);
    cr_assert(m.rows == 3 && m.cols == 5);

    t.rank = 2;
    m = attn_slice(&t, 0, 0);
    cr_assert_eq((double *)m.p, x);
    cr_assert(m.rows == 2 && m.cols == 3);
}

Test(attn_tensor, slices_step_by_the_size_of_the_dtype)
{
    uint8_t x[24] = {0};
    struct attn_tensor t = {.dtype = ATTN_BOOL, .rank = 3, .dim = {2, 3, 4}, .p = x};

    cr_assert_eq((uint8_t *)attn_slice(&t, 1, 0).p - x, 12);
}
