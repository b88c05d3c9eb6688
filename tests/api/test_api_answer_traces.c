/*
 * test_api_answer_traces.c - one row taken apart, a worked case.
 * Not here: statistics on random problems (tests/core/).
 * Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "ask.h"

static const double NEAR = 1e-12;

/* Scores [0, ln 3], values [2, 6]: A = [1/4, 3/4], h = 5, dh/ds = [-3/4, 3/4]. */
Test(api_answer_traces, the_ln_3_example)
{
    struct asked a =
        ask(api_attention, "{\"inputs\":{\"Q\":[[1]],\"K\":[[0],[1.0986122886681098]],"
                           "\"V\":[[2],[6]]},\"score\":{\"scale\":1},"
                           "\"return\":\"none\",\"traces\":[{\"query\":0}]}");
    static const struct {
        const char *path;
        double want;
    } WANT[] = {
        {"traces.0.batch", 0},
        {"traces.0.head", 0},
        {"traces.0.query", 0},
        {"traces.0.allowed_keys", 2},
        {"traces.0.keys.1.key", 1},
        {"traces.0.keys.0.score", 0},
        {"traces.0.keys.0.mask", 0},
        {"traces.0.keys.0.weight", 0.25},
        {"traces.0.keys.1.weight", 0.75},
        {"traces.0.keys.1.value.0", 6},
        {"traces.0.keys.0.contribution.0", 0.5},
        {"traces.0.keys.1.contribution.0", 4.5},
        {"traces.0.keys.0.running_sum.0", 0.5},
        {"traces.0.keys.1.running_sum.0", 5},
        {"traces.0.keys.0.dh_ds.0", -0.75},
        {"traces.0.keys.1.dh_ds.0", 0.75},
        {"traces.0.output.0", 5},
        {"score_statistics.pairs", 2},
        {"score_statistics.d_k", 1},
    };
    const double entropy = -0.25 * log(0.25) - 0.75 * log(0.75);

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    for (size_t n = 0; n < API_COUNT(WANT); n++)
        cr_expect_float_eq(ask_number(a.json, WANT[n].path), WANT[n].want, NEAR, "%s: %g",
                           WANT[n].path, ask_number(a.json, WANT[n].path));
    cr_expect_float_eq(ask_number(a.json, "traces.0.entropy"), entropy, NEAR);
    cr_expect_float_eq(ask_number(a.json, "traces.0.effective_keys"), exp(entropy), NEAR);
    cr_expect_eq(json_object_size(ask_at(a.json, "tensors")), 0);
    asked_free(&a);
}

Test(api_answer_traces, an_empty_row_has_no_keys)
{
    struct asked a =
        ask(api_attention, "{\"inputs\":{\"Q\":[[1]],\"K\":[[1]],\"V\":[[2]]},"
                           "\"masks\":{\"blocked\":[[true]]},"
                           "\"traces\":[{\"query\":0}]}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_assert(a.json, "not JSON");
    cr_expect_eq(ask_number(a.json, "traces.0.allowed_keys"), 0);
    cr_expect_eq(json_array_size(ask_at(a.json, "traces.0.keys")), 0);
    asked_free(&a);
}
