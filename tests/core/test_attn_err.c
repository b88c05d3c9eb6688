/* test_attn_err.c - the first failure wins and keeps its place. */
#include "core/attn.h"

#include <criterion/criterion.h>
#include <string.h>

Test(attn_err, records_everything)
{
    struct attn_err err = {0};

    cr_assert_not(attn_fail(&err, ATTN_E_SHAPE, "W_O", "h*d_v", 6, 10));
    cr_assert_eq(err.code, ATTN_E_SHAPE);
    cr_assert_str_eq(err.object, "W_O");
    cr_assert_str_eq(err.axis, "h*d_v");
    cr_assert_eq(err.want, 6);
    cr_assert_eq(err.got, 10);
    for (int n = 0; n < 4; n++)
        cr_assert_eq(err.at[n], SIZE_MAX);
}

Test(attn_err, first_failure_wins)
{
    struct attn_err err = {0}, first;

    attn_fail(&err, ATTN_E_MISSING, "W_Q", NULL, 0, 0);
    first = err;
    cr_assert_not(attn_fail(&err, ATTN_E_SHAPE, "W_K", "d_model", 4, 5));
    cr_assert_eq(memcmp(&err, &first, sizeof err), 0);
}
