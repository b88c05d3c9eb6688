/*
 * test_api_budget.c - refusals name limit and size, sums never wrap.
 * Not here: whole requests (test_api_attention.c).
 * Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "api/api_answer.h"

Test(api_budget, within_both_limits_nothing_is_refused)
{
    const struct api_budget budget = {
        .total = 10, .limit = 10, .answer = 20, .answer_limit = 20};
    struct api_err err = {0};

    cr_expect(api_budget_check(&budget, &err));
    cr_expect_not(err.set);
}

Test(api_budget, the_tensors_come_before_the_answer)
{
    const struct api_budget budget = {
        .total = 11, .limit = 10, .answer = 21, .answer_limit = 20};
    struct api_err err = {0};

    cr_expect_not(api_budget_check(&budget, &err));
    cr_expect_str_eq(err.name, "too-large");
    cr_expect_str_eq(err.object, "tensors");
    cr_expect_str_eq(err.expected, "10");
    cr_expect_str_eq(err.observed, "11");
    cr_expect(strstr(err.detail, "10") && strstr(err.detail, "11"));
}

Test(api_budget, a_long_list_of_empty_rows_counts)
{
    const struct api_budget budget = {.answer = 1000, .answer_limit = 2000};
    struct api_err err = {0};

    cr_expect(api_budget_check_rows(&budget, 10, &err));
    cr_expect_not(api_budget_check_rows(&budget, 100, &err));
    cr_expect_str_eq(err.object, "answer");
    err = (struct api_err){0};
    cr_expect_not(api_budget_check_rows(&budget, SIZE_MAX, &err));
}
