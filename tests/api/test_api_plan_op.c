/*
 * test_api_plan_op.c - what a problem takes, also one that does not fit.
 * Not here: the bounds one by one (test_api_budget.c).
 * Start reading at the first test.
 */
#include <criterion/criterion.h>

#include "ask.h"

Test(api_plan_op, sizes_alone_are_enough)
{
    struct asked a =
        ask(api_plan, "{\"shapes\":{\"T\":4,\"d_model\":6,\"d_k\":3,\"d_v\":2},"
                      "\"masks\":{\"causal\":true}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(ask_number(a.json, "cost.pairs.dense_total"), 16);
    cr_expect_eq(ask_number(a.json, "cost.pairs.allowed_total"), 10);
    cr_expect_eq(ask_number(a.json, "cost.pairs.allowed_fraction"), 10.0 / 16);
    cr_expect_eq(ask_number(a.json, "cost.scaling.3.T"), 32);
    cr_expect_eq(ask_number(a.json, "cost.generation.parallel_training_steps"), 1);
    cr_expect_eq(ask_number(a.json, "shapes.Y.1"), 6);
    cr_expect(json_is_true(ask_at(a.json, "memory.fits")));
    cr_expect_str_eq(ask_text(a.json, "path"), "dense");
    asked_free(&a);
}

Test(api_plan_op, what_does_not_fit_is_answered)
{
    struct asked a =
        ask(api_plan, "{\"shapes\":{\"T\":200000,\"d_model\":6,\"d_k\":3,\"d_v\":2}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect(json_is_false(ask_at(a.json, "memory.fits")));
    cr_expect(ask_number(a.json, "memory.total_bytes") >
              ask_number(a.json, "memory.limit_bytes"));
    cr_expect_eq(ask_number(a.json, "cost.pairs.dense_total"), 4e10);
    asked_free(&a);
}

Test(api_plan_op, without_pairwise_tensors_the_path_is_tiled)
{
    struct asked a =
        ask(api_plan, "{\"shapes\":{\"T\":512,\"d_model\":6,\"d_k\":3,\"d_v\":2},"
                      "\"return\":[\"Y\"]}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "path"), "tiled");
    cr_expect(ask_number(a.json, "memory.trace_bytes") < 512 * 512 * 8);
    asked_free(&a);
}

Test(api_plan_op, a_plan_is_an_upper_bound_of_the_answer)
{
    static const char BODY[] =
        "{\"shapes\":{\"B\":2,\"T\":9,\"d_model\":6,\"d_k\":4,\"d_v\":2,\"heads\":2},"
        "\"inputs\":{\"X\":{\"init\":\"normal\",\"seed\":1}},\"weights\":{"
        "\"W_Q\":{\"init\":\"normal\",\"seed\":1},\"W_K\":{\"init\":\"normal\",\"seed\":"
        "2},"
        "\"W_V\":{\"init\":\"normal\",\"seed\":3},\"W_O\":{\"init\":\"normal\",\"seed\":"
        "4}},"
        "\"masks\":{\"causal\":true,\"padding\":{\"lengths\":[9,4]}},\"gradients\":{"
        "\"check\":true},"
        "\"ablations\":[{\"target\":\"W_V\",\"change\":\"zero\"}],"
        "\"traces\":[{\"batch\":1,\"head\":1,\"query\":8}],\"return\":\"all\"}";
    struct asked plan = ask(api_plan, BODY), run = ask(api_attention, BODY);

    cr_assert_eq(plan.status, 200, "%s", ask_text(plan.json, "detail"));
    cr_assert_eq(run.status, 200, "%s", ask_text(run.json, "detail"));
    cr_expect((double)run.out.len <=
              ask_number(plan.json, "memory.answer_bytes_estimate"));
    cr_expect(json_equal((json_t *)(uintptr_t)ask_at(plan.json, "cost"),
                         (json_t *)(uintptr_t)ask_at(run.json, "cost")));
    cr_expect(json_equal((json_t *)(uintptr_t)ask_at(plan.json, "shapes"),
                         (json_t *)(uintptr_t)ask_at(run.json, "shapes")));
    asked_free(&plan);
    asked_free(&run);
}

Test(api_plan_op, a_wrong_request_is_refused)
{
    struct asked a = ask(api_plan, "{\"shape\":{\"T\":4}}");

    cr_expect_eq(a.status, 422);
    cr_expect_str_eq(ask_text(a.json, "pointer"), "/shape");
    asked_free(&a);
}
