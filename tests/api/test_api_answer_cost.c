/*
 * test_api_answer_cost.c - every count of the cost stands under its name.
 * Not here: counting on random problems (tests/core/).
 * Start reading at the only test.
 */
#include <criterion/criterion.h>

#include "ask.h"

/* Sizes all differ: T_q 4, T_kv 5, d_model 6, d_k 3, d_v 2, and X_kv is 7 wide. */
static const struct {
    const char *path;
    double want;
} WANT[] = {
    {"pairs.dense_per_sequence_per_head", 4 * 5},
    {"pairs.dense_total", 2 * 4 * 5},
    {"pairs.allowed_total", 2 * (2 + 3 + 4 + 5)},
    {"pairs.allowed_fraction", 14.0 / 20},
    {"multiply_adds.Q", 2 * 4 * 6 * 3},
    {"multiply_adds.K", 2 * 5 * 7 * 3},
    {"multiply_adds.V", 2 * 5 * 7 * 2},
    {"multiply_adds.S", 2 * 4 * 5 * 3},
    {"multiply_adds.H", 2 * 4 * 5 * 2},
    {"multiply_adds.Y", 2 * 4 * 2 * 6},
    {"multiply_adds.total", 2 * (72 + 105 + 70 + 60 + 40 + 48)},
    {"multiply_adds.allowed_total", 2 * (72 + 105 + 70 + 14 * 3 + 14 * 2 + 48)},
    {"exponentials", 2 * 14},
    {"bytes.S", 2 * 4 * 5 * 8},
    {"bytes.Y", 2 * 4 * 6 * 8},
    {"bytes.score_matrix", 2 * 4 * 5 * 8},
    {"generation.parallel_training_steps", 1},
};

Test(api_answer_cost, counts_of_a_small_layer)
{
    struct asked a =
        ask(api_plan,
            "{\"shapes\":{\"B\":2,\"T\":4,\"T_kv\":5,\"d_model\":6,\"d_k\":3,\"d_v\":2},"
            "\"inputs\":{\"X\":{\"init\":\"ones\"},"
            "\"X_kv\":{\"init\":\"ones\",\"shape\":[2,5,7]}},"
            "\"masks\":{\"causal\":{\"alignment\":\"bottom_right\"}}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    for (size_t n = 0; n < API_COUNT(WANT); n++) {
        char path[96];

        snprintf(path, sizeof path, "cost.%s", WANT[n].path);
        cr_expect_eq(ask_number(a.json, path), WANT[n].want, "%s: %g", path,
                     ask_number(a.json, path));
    }
    cr_expect_eq(json_array_size(ask_at(a.json, "cost.scaling")), 4);
    cr_expect_null(ask_at(a.json, "cost.bytes.Z"));
    asked_free(&a);
}
