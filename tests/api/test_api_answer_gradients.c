/*
 * test_api_answer_gradients.c - gradients in the shape in which things are given.
 * Not here: whether the numbers are right (tests/http/, tests/core/).
 * Start reading at the first test.
 */
#include <criterion/criterion.h>

#include "ask.h"

static const double NEAR = 1e-12;

Test(api_answer_gradients, the_ln_3_example)
{
    struct asked a =
        ask(api_attention, "{\"inputs\":{\"Q\":[[1]],\"K\":[[0],[1.0986122886681098]],"
                           "\"V\":[[2],[6]]},\"score\":{\"scale\":1},"
                           "\"gradients\":{\"of\":\"H\",\"check\":true}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_float_eq(ask_number(a.json, "gradients.dS.0.0"), -0.75, NEAR);
    cr_expect_float_eq(ask_number(a.json, "gradients.dS.0.1"), 0.75, NEAR);
    cr_expect_float_eq(ask_number(a.json, "gradients.dA.0.0"), 2, NEAR);
    cr_expect_float_eq(ask_number(a.json, "gradients.dA.0.1"), 6, NEAR);
    cr_expect_float_eq(ask_number(a.json, "gradients.dV.1.0"), 0.75, NEAR);
    cr_expect_str_eq(ask_text(a.json, "gradients.check.status"), "pass");
    cr_expect(ask_number(a.json, "gradients.check.entries") > 0);
    cr_expect_str_eq(ask_text(a.json, "audit.checks.13.status"), "pass");
    asked_free(&a);
}

/* The same layer with weights given both ways round: gradients are each other's
 * transpose. */
Test(api_answer_gradients, torch_linear_gradients_are_out_in)
{
    struct asked a = ask(
        api_attention,
        "{\"inputs\":{\"X\":[[1,2,3],[4,5,7]]},\"weights\":{\"W_Q\":[[1,0],[2,1],[0,3]],"
        "\"W_K\":[[0,1],[1,1],[2,0]],\"W_V\":[[1],[0],[2]],\"W_O\":[[1,2,4]]},"
        "\"score\":{\"scale\":0.01},\"gradients\":{\"cotangent\":[[1,0,2],[0,1,1]]}}");
    struct asked b = ask(
        api_attention,
        "{\"inputs\":{\"X\":[[1,2,3],[4,5,7]]},\"weights\":{\"convention\":\"torch_"
        "linear\","
        "\"W_Q\":[[1,2,0],[0,1,3]],\"W_K\":[[0,1,2],[1,1,0]],\"W_V\":[[1,0,2]],"
        "\"W_O\":[[1],[2],[4]]},"
        "\"score\":{\"scale\":0.01},\"gradients\":{\"cotangent\":[[1,0,2],[0,1,1]]}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_assert_eq(b.status, 200, "%s", ask_text(b.json, "detail"));
    cr_assert_eq(json_array_size(ask_at(a.json, "gradients.dW_Q")), 3);
    cr_assert_eq(json_array_size(ask_at(b.json, "gradients.dW_Q")), 2);
    for (int in = 0; in < 3; in++)
        for (int out = 0; out < 2; out++) {
            char p[64], q[64];

            snprintf(p, sizeof p, "gradients.dW_Q.%d.%d", in, out);
            snprintf(q, sizeof q, "gradients.dW_Q.%d.%d", out, in);
            cr_expect(ask_number(a.json, p) != 0);
            cr_expect_float_eq(ask_number(a.json, p), ask_number(b.json, q), NEAR);
        }
    cr_expect_eq(json_array_size(ask_at(a.json, "gradients.dW_O")), 1);
    cr_expect_eq(json_array_size(ask_at(b.json, "gradients.dW_O")), 3);
    cr_expect_eq(json_array_size(ask_at(b.json, "gradients.dX.0")), 3);
    asked_free(&a);
    asked_free(&b);
}

Test(api_answer_gradients, axes_are_those_of_the_answer)
{
    struct asked a = ask(
        api_attention, "{\"shapes\":{\"B\":2,\"T\":3,\"d_model\":5,\"d_k\":4,\"d_v\":6,"
                       "\"heads\":2,\"kv_heads\":1},"
                       "\"inputs\":{\"X\":{\"init\":\"normal\",\"seed\":1}},\"weights\":{"
                       "\"W_Q\":{\"init\":\"normal\",\"seed\":1},\"W_K\":{\"init\":"
                       "\"normal\",\"seed\":2},"
                       "\"W_V\":{\"init\":\"normal\",\"seed\":3},\"W_O\":{\"init\":"
                       "\"normal\",\"seed\":4},"
                       "\"b_O\":[1,2,3,4,5]},\"encoding\":\"flat\",\"gradients\":{}}");
    static const struct {
        const char *name;
        double dim[4];
    } WANT[] = {
        {"dS", {2, 2, 3, 3}}, {"dQ", {2, 2, 3, 4}}, {"dK", {2, 1, 3, 4}},
        {"dV", {2, 1, 3, 6}}, {"dH", {2, 3, 12}},   {"dX", {2, 3, 5}},
        {"dW_K", {5, 4}},     {"dW_O", {12, 5}},    {"db_O", {5}},
    };

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    for (size_t n = 0; n < API_COUNT(WANT); n++)
        for (size_t d = 0; d < 4; d++) {
            char path[64];

            snprintf(path, sizeof path, "gradients.%s.shape.%zu", WANT[n].name, d);
            if (WANT[n].dim[d] > 0)
                cr_expect_eq(ask_number(a.json, path), WANT[n].dim[d], "%s", path);
            else
                cr_expect_null(ask_at(a.json, path), "%s has too many axes",
                               WANT[n].name);
        }
    cr_expect_null(ask_at(a.json, "gradients.check"));
    asked_free(&a);
}

/* d_additive in the three shapes in which a bias may be given: each the sum of the finer
 * one. */
Test(api_answer_gradients, a_shared_bias_has_the_sum_of_its_gradients)
{
    static const char *const BIAS[] = {"[2,2,2,3]", "[2,2,3]", "[2,3]"};
    struct asked a[3];

    for (int n = 0; n < 3; n++) {
        char body[1024];

        snprintf(
            body, sizeof body,
            "{\"shapes\":{\"heads\":2},\"inputs\":{"
            "\"Q\":{\"init\":\"normal\",\"seed\":1,\"shape\":[2,2,2,4]},"
            "\"K\":{\"init\":\"normal\",\"seed\":2,\"shape\":[2,2,3,4]},"
            "\"V\":{\"init\":\"normal\",\"seed\":3,\"shape\":[2,2,3,5]}},"
            "\"masks\":{\"additive\":{\"init\":\"ones\",\"shape\":%s}},"
            "\"gradients\":{\"of\":\"H\",\"cotangent\":{\"init\":\"normal\",\"seed\":4},"
            "\"with_respect_to\":[\"d_additive\"],\"check\":true}}",
            BIAS[n]);
        a[n] = ask(api_attention, body);
        cr_assert_eq(a[n].status, 200, "%s", ask_text(a[n].json, "detail"));
        cr_expect_str_eq(ask_text(a[n].json, "gradients.check.status"), "pass");
    }
    for (int b = 0; b < 2; b++) {
        double item = 0, all = 0;
        char path[64];

        for (int h = 0; h < 2; h++) {
            snprintf(path, sizeof path, "gradients.d_additive.%d.%d.1.2", b, h);
            cr_expect(ask_number(a[0].json, path) != 0);
            item += ask_number(a[0].json, path);
            snprintf(path, sizeof path, "gradients.d_additive.%d.1.2", h);
            all += ask_number(a[1].json, path);
        }
        snprintf(path, sizeof path, "gradients.d_additive.%d.1.2", b);
        cr_expect_float_eq(ask_number(a[1].json, path), item, NEAR);
        cr_expect_float_eq(ask_number(a[2].json, "gradients.d_additive.1.2"), all, NEAR);
    }
    for (int n = 0; n < 3; n++)
        asked_free(&a[n]);
}
