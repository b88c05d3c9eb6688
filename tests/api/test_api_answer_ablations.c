/*
 * test_api_answer_ablations.c - one entry an ablation: what moved, claims, tensors.
 * Not here: what each change does (tests/core/).
 * Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "ask.h"

static struct asked ask_ablations(const char *ablations)
{
    char body[2048];

    snprintf(
        body, sizeof body,
        "{\"inputs\":{\"X\":[[1,0,1],[0,1,0.5],[1,1,0]]},"
        "\"weights\":{\"W_Q\":[[1,0],[0,1],[1,0.5]],\"W_K\":[[0,1],[1,0],[0.5,1]],"
        "\"W_V\":[[1,2],[3,4],[-1,0.5]],\"W_O\":[[1,0,1],[0,1,0.5]]},"
        "\"masks\":{\"causal\":true},\"return\":[\"M\",\"A\",\"Y\"],\"ablations\":%s}",
        ablations);
    return ask(api_attention, body);
}

static bool names(const struct asked *a, const char *path, const char *name)
{
    const json_t *found;
    size_t n;

    json_array_foreach(ask_at(a->json, path), n,
                       found) if (strcmp(json_string_value(found), name) ==
                                  0) return true;
    return false;
}

Test(api_answer_ablations, a_zero_w_v_moves_values_and_nothing_before)
{
    struct asked a = ask_ablations("[{\"target\":\"W_V\",\"change\":\"zero\"}]");
    const json_t *claim;
    size_t n;

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "ablations.0.target"), "W_V");
    cr_expect_str_eq(ask_text(a.json, "ablations.0.change"), "zero");
    cr_expect(names(&a, "ablations.0.changed", "Y"));
    cr_expect(names(&a, "ablations.0.unchanged", "A"));
    cr_expect_eq(ask_number(a.json, "ablations.0.max_abs_delta.A"), 0);
    cr_expect(ask_number(a.json, "ablations.0.max_abs_delta.Y") > 0);
    cr_expect_eq(ask_number(a.json, "ablations.0.tensors.Y.2.1"), 0);
    cr_expect_eq(json_object_size(ask_at(a.json, "ablations.0.tensors")), 3);
    cr_expect(json_array_size(ask_at(a.json, "ablations.0.claims")) > 0);
    json_array_foreach(ask_at(a.json, "ablations.0.claims"), n, claim)
        cr_expect(json_is_true(json_object_get(claim, "holds")));
    asked_free(&a);
}

Test(api_answer_ablations, differences_add_up_to_the_changed_layer)
{
    struct asked a = ask_ablations("[{\"target\":\"W_Q\",\"change\":\"scale\",\"by\":3},"
                                   "{\"target\":\"W_Q\",\"change\":\"scale\",\"by\":3,"
                                   "\"return\":\"delta\"}]");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(ask_number(a.json, "ablations.0.by"), 3);
    cr_expect_eq(ask_number(a.json, "ablations.1.tensors.M.0.1"), 0);
    for (int i = 0; i < 3; i++)
        for (int c = 0; c < 3; c++) {
            char base[64], whole[64], delta[64];

            snprintf(base, sizeof base, "tensors.Y.%d.%d", i, c);
            snprintf(whole, sizeof whole, "ablations.0.tensors.Y.%d.%d", i, c);
            snprintf(delta, sizeof delta, "ablations.1.tensors.Y.%d.%d", i, c);
            cr_expect_float_eq(ask_number(a.json, base) + ask_number(a.json, delta),
                               ask_number(a.json, whole), 1e-12);
        }
    asked_free(&a);
}

Test(api_answer_ablations, several_changes_are_one_entry)
{
    struct asked a =
        ask_ablations("[[{\"target\":\"masks.causal\",\"change\":\"remove\"},"
                      "{\"target\":\"W_O\",\"change\":\"zero\"}]]");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(json_array_size(ask_at(a.json, "ablations")), 1);
    cr_expect_null(ask_at(a.json, "ablations.0.target"));
    cr_expect_str_eq(ask_text(a.json, "ablations.0.changes.0.target"), "masks.causal");
    cr_expect_str_eq(ask_text(a.json, "ablations.0.changes.1.change"), "zero");
    cr_expect_eq(ask_number(a.json, "ablations.0.tensors.M.0.2"), 0);
    cr_expect_eq(ask_number(a.json, "ablations.0.tensors.Y.0.0"), 0);
    cr_expect(names(&a, "ablations.0.changed", "M"));
    asked_free(&a);
}
