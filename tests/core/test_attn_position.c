/* test_attn_position.c - rotations against worked angles, standard slopes against the
 * paper's. */
#include "core/attn_core.h"

#include <criterion/criterion.h>
#include <math.h>

static const double RTOL = 4e-16; /* cos, sin and pow are good to about an ulp */

static struct attn_problem rope(size_t d_k, enum attn_rope_layout layout, double base)
{
    struct attn_problem p = {.d = {.B = 2, .T_q = 2, .T_kv = 5, .T_past = 3, .d_k = d_k}};
    struct attn_err err = {0};

    p.position[p.position_count++] = attn_position_of_row(attn_position_find("rope"));
    p.position[0].arg[0].number = layout;
    p.position[0].arg[1].real = base;
    cr_assert(attn_prepare_positions(&p, &err));
    return p;
}

Test(attn_position, table)
{
    cr_assert_str_eq(attn_position_at(0)->name, "rope");
    cr_assert_str_eq(attn_position_acts_on(attn_position_at(0)), "Q,K");
    cr_assert_str_eq(attn_position_at(1)->name, "alibi");
    cr_assert_str_eq(attn_position_acts_on(attn_position_at(1)), "M");
    cr_assert_null(attn_position_find("rop"));
}

/* d_k 4, base 100: angles are p and p/10. */
Test(attn_position, layouts_pair_different_columns)
{
    const struct attn_problem half = rope(4, ATTN_ROPE_HALF, 100);
    const struct attn_problem inter = rope(4, ATTN_ROPE_INTERLEAVED, 100);
    const double x[] = {1, 2, 3, 4}, p = 3;
    double y[4];

    attn_rope_row(&half, p, x, y);
    cr_assert_float_eq(y[0], 1 * cos(3.0) - 3 * sin(3.0), 4 * RTOL);
    cr_assert_float_eq(y[2], 1 * sin(3.0) + 3 * cos(3.0), 4 * RTOL);
    cr_assert_float_eq(y[1], 2 * cos(0.3) - 4 * sin(0.3), 8 * RTOL);
    cr_assert_float_eq(y[3], 2 * sin(0.3) + 4 * cos(0.3), 8 * RTOL);

    attn_rope_row(&inter, p, x, y);
    cr_assert_float_eq(y[0], 1 * cos(3.0) - 2 * sin(3.0), 4 * RTOL);
    cr_assert_float_eq(y[1], 1 * sin(3.0) + 2 * cos(3.0), 4 * RTOL);
    cr_assert_float_eq(y[2], 3 * cos(0.3) - 4 * sin(0.3), 8 * RTOL);
    cr_assert_float_eq(y[3], 3 * sin(0.3) + 4 * cos(0.3), 8 * RTOL);
}

Test(attn_position, position_zero_changes_nothing_and_in_place_is_allowed)
{
    const struct attn_problem p = rope(6, ATTN_ROPE_HALF, 10000);
    double x[] = {1, 2, 3, 4, 5, 6}, y[6];

    attn_rope_row(&p, 0, x, y);
    for (int c = 0; c < 6; c++)
        cr_assert_eq(y[c], x[c]);
    attn_rope_row(&p, 2.5, x, y);
    attn_rope_row(&p, 2.5, x, x);
    for (int c = 0; c < 6; c++)
        cr_assert_eq(x[c], y[c]);
}

/* What RoPE is for: q·k depends on the difference of positions alone. */
Test(attn_position, only_the_distance_counts)
{
    const struct attn_problem p = rope(6, ATTN_ROPE_INTERLEAVED, 10000);
    const double q[] = {.1, -2, .3, 1.5, -.7, .9}, k[] = {1, .2, -.4, .8, 2, -1};
    double a[6], b[6], near = 0, far = 0;

    attn_rope_row(&p, 7, q, a);
    attn_rope_row(&p, 4, k, b);
    for (int c = 0; c < 6; c++)
        near += a[c] * b[c];
    attn_rope_row(&p, 107, q, a);
    attn_rope_row(&p, 104, k, b);
    for (int c = 0; c < 6; c++)
        far += a[c] * b[c];
    cr_assert_float_eq(near, far, 1e-13);
}

Test(attn_position, defaults_stand_at_the_end_of_the_keys)
{
    struct attn_problem p = rope(4, ATTN_ROPE_HALF, 100);

    cr_assert_eq(attn_rope_position_q(&p, 0, 0), 3);
    cr_assert_eq(attn_rope_position_q(&p, 1, 1), 4);
    cr_assert_eq(attn_rope_position_k(&p, 0, 3), 3);
    cr_assert_eq(attn_rope_position_k(&p, 0, 4), 4);
    p.d.T_q = 7;
    cr_assert_eq(attn_rope_position_q(&p, 0, 0), -2);
}

Test(attn_position, stated_positions_are_read_by_item)
{
    const double q[] = {10, 11, 20, 21}, k[] = {.5, 1.5};
    struct attn_problem p = rope(4, ATTN_ROPE_HALF, 100);

    p.position[0].arg[2].table =
        (struct attn_table){.elem = ATTN_ELEM_F64, .p = q, .stride_b = 2};
    p.position[0].arg[3].table = (struct attn_table){.elem = ATTN_ELEM_F64, .p = k};
    cr_assert_eq(attn_rope_position_q(&p, 1, 0), 20);
    cr_assert_eq(attn_rope_position_q(&p, 0, 1), 11);
    cr_assert_eq(attn_rope_position_k(&p, 1, 3), .5);
    cr_assert_eq(attn_rope_position_k(&p, 1, 4), 1.5);
}

/* Press et al. 2022: 8 heads 1/2 … 1/256; 16 heads start at 2^-0.5. */
Test(attn_position, slopes_of_powers_of_two)
{
    double s[16];

    attn_alibi_standard(8, s);
    for (int m = 1; m <= 8; m++)
        cr_assert_eq(s[m - 1], ldexp(1, -m));
    attn_alibi_standard(16, s);
    cr_assert_float_eq(s[0], sqrt(0.5), 1e-16);
    cr_assert_eq(s[15], 1.0 / 256);
    attn_alibi_standard(1, s);
    cr_assert_eq(s[0], 1.0 / 256);
}

/* 3 heads: those of 2 (2^-4, 2^-8), then the first of 4 (2^-2); 6: those of 4, then 2^-1,
 * 2^-3. */
Test(attn_position, slopes_of_other_counts)
{
    const double three[] = {0x1p-4, 0x1p-8, 0x1p-2};
    const double six[] = {0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3};
    double s[7] = {0};

    attn_alibi_standard(3, s);
    for (int m = 0; m < 3; m++)
        cr_assert_eq(s[m], three[m]);
    s[6] = -1;
    attn_alibi_standard(6, s);
    for (int m = 0; m < 6; m++)
        cr_assert_eq(s[m], six[m]);
    cr_assert_eq(s[6], -1, "written past the end");
}
