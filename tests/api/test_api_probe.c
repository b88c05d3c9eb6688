/*
 * test_api_probe.c - problems in which faults show: what is issued, that it reads back
 * the same. Not here: that the faults are found (tests/http/run_probe.py). Start reading
 * at the first test.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_probe.h"
#include "ask.h"

static bool hides(const json_t *answer, const char *fault)
{
    const json_t *list = ask_at(answer, "hides");

    for (size_t n = 0; n < json_array_size(list); n++)
        if (strcmp(ask_text(json_array_get(list, n), "fault"), fault) == 0)
            return true;
    return false;
}

/* The companion of a name; NULL when there is none. */
static const json_t *companion(const json_t *answer, const char *name)
{
    const json_t *list = ask_at(answer, "companions");

    for (size_t n = 0; n < json_array_size(list); n++)
        if (strcmp(ask_text(json_array_get(list, n), "name"), name) == 0)
            return json_array_get(list, n);
    return NULL;
}

/* What /v1/attention makes of a problem that was issued. */
static struct asked run(const json_t *problem)
{
    char *body = json_dumps(problem, 0);
    struct asked a = ask(api_attention, body);

    free(body);
    cr_assert_eq(a.status, 200, "%s at %s", ask_text(a.json, "detail"),
                 ask_text(a.json, "pointer"));
    return a;
}

Test(api_probe, sizes_of_the_main_problem_all_differ)
{
    struct asked a = ask(api_probe, "{}");
    static const char *const SIZES[] = {"B", "d_model", "d_k", "d_v", "heads"};

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    for (size_t n = 0; n < API_COUNT(SIZES); n++)
        for (size_t m = 0; m < n; m++)
            cr_expect(ask_number(ask_at(a.json, "problem.shapes"), SIZES[n]) !=
                          ask_number(ask_at(a.json, "problem.shapes"), SIZES[m]),
                      "%s = %s", SIZES[n], SIZES[m]);
    asked_free(&a);
}

Test(api_probe, every_fault_shows_somewhere)
{
    struct asked a = ask(api_probe, "{}");
    const json_t *list = ask_at(a.json, "hides");

    cr_assert(json_array_size(list) > 0, "no problem shows everything");
    for (size_t n = 0; n < json_array_size(list); n++) {
        const json_t *row = json_array_get(list, n);

        cr_expect(companion(a.json, ask_text(row, "shown_by")) != NULL,
                  "%s is shown by nothing", ask_text(row, "fault"));
    }
    asked_free(&a);
}

Test(api_probe, every_problem_runs)
{
    struct asked a = ask(api_probe, "{}");
    const json_t *list = ask_at(a.json, "companions");
    struct asked main = run(ask_at(a.json, "problem"));

    cr_expect_str_eq(ask_text(main.json, "audit.status"), "pass");
    asked_free(&main);
    for (size_t n = 0; n < json_array_size(list); n++) {
        struct asked one = run(ask_at(json_array_get(list, n), "problem"));

        cr_expect_str_neq(ask_text(one.json, "audit.status"), "fail", "%s",
                          ask_text(json_array_get(list, n), "name"));
        asked_free(&one);
    }
    asked_free(&a);
}

Test(api_probe, the_same_seed_gives_the_same_problem)
{
    struct asked a = ask(api_probe, "{\"seed\":5}"), b = ask(api_probe, "{\"seed\":5}");
    struct asked c = ask(api_probe, "{\"seed\":6}");

    cr_expect_eq(a.out.len, b.out.len);
    cr_expect(memcmp(a.out.p, b.out.p, a.out.len) == 0);
    cr_expect(!json_equal((json_t *)(uintptr_t)ask_at(a.json, "problem"),
                          (json_t *)(uintptr_t)ask_at(c.json, "problem")));
    asked_free(&a);
    asked_free(&b);
    asked_free(&c);
}

Test(api_probe, item_alone_and_cached_token_give_their_rows)
{
    struct asked a = ask(api_probe, "{}");
    struct asked whole = run(ask_at(a.json, "problem"));
    struct asked alone = run(ask_at(companion(a.json, "batch_independence"), "problem"));
    struct asked last = run(ask_at(companion(a.json, "cached_decoding"), "problem"));
    const size_t rows = json_array_size(ask_at(whole.json, "tensors.Y.0"));

    cr_expect(json_equal((json_t *)(uintptr_t)ask_at(whole.json, "tensors.Y.0"),
                         (json_t *)(uintptr_t)ask_at(alone.json, "tensors.Y.0")));
    cr_assert_eq(json_array_size(ask_at(last.json, "tensors.Y.0")), 1);
    for (size_t c = 0; c < json_array_size(ask_at(last.json, "tensors.Y.0.0")); c++)
        cr_expect_float_eq(
            json_number_value(json_array_get(ask_at(last.json, "tensors.Y.0.0"), c)),
            json_number_value(json_array_get(
                json_array_get(ask_at(whole.json, "tensors.Y.0"), rows - 1), c)),
            1e-12);
    asked_free(&a);
    asked_free(&whole);
    asked_free(&alone);
    asked_free(&last);
}

Test(api_probe, own_sizes_are_told_what_they_hide)
{
    struct asked a =
        ask(api_probe, "{\"shapes\":{\"d_k\":1,\"heads\":2,\"kv_heads\":2}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(ask_number(a.json, "problem.shapes.d_k"), 1);
    cr_expect(hides(a.json, "scale_missing"));
    cr_expect(hides(a.json, "gqa_tile"));
    cr_expect(!hides(a.json, "heads_summed"));
    asked_free(&a);
}

Test(api_probe, own_rules_and_positions_are_taken)
{
    struct asked a =
        ask(api_probe, "{\"shapes\":{\"B\":2,\"T\":3},\"masks\":{\"causal\":true,"
                       "\"documents\":{\"lengths\":[[1,2],[2,1]]}},\"position\":"
                       "{\"rope\":{\"layout\":\"half\",\"base\":50}}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(ask_number(a.json, "problem.masks.documents.ids.1.2"), 1);
    cr_expect_eq(ask_number(a.json, "problem.position.rope.base"), 50);
    cr_expect_eq(ask_number(a.json, "problem.shapes.d_k"), 4);
    cr_expect_null(ask_at(a.json, "problem.masks.padding"));
    cr_expect_not_null(companion(a.json, "document_isolation"));
    asked_free(&a);
}

Test(api_probe, purposes_choose_the_kinds)
{
    struct asked a = ask(api_probe, "{\"purpose\":[\"gradients\"]}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "problem.gradients.of"), "Y");
    cr_expect_eq(json_array_size(ask_at(a.json, "problem.gradients.cotangent")),
                 (size_t)ask_number(a.json, "problem.shapes.B"));
    for (size_t n = 0; n < API_PURPOSE_COUNT; n++) {
        char body[64];
        struct asked one;

        snprintf(body, sizeof body, "{\"purpose\":[\"%s\"]}", API_PURPOSES[n].name);
        one = ask(api_probe, body);
        cr_expect_eq(one.status, 200, "%s: %s", body, ask_text(one.json, "detail"));
        asked_free(&one);
    }
    asked_free(&a);
}

Test(api_probe, what_makes_no_sense_is_refused)
{
    static const struct {
        const char *body, *pointer;
    } CASES[] = {
        {"{\"purpose\":[\"all\"]}", "/purpose/0"},
        {"{\"purpose\":[]}", "/purpose"},
        {"{\"shapes\":{\"T\":65}}", "/shapes/T"},
        {"{\"shapes\":{\"t\":6}}", "/shapes/t"},
        {"{\"masks\":{\"casual\":true}}", "/masks/casual"},
        {"{\"seed\":-1}", "/seed"},
    };

    for (size_t n = 0; n < API_COUNT(CASES); n++) {
        struct asked a = ask(api_probe, CASES[n].body);

        cr_expect_eq(a.status, 422, "%s", CASES[n].body);
        cr_expect_str_eq(ask_text(a.json, "pointer"), CASES[n].pointer, "%s",
                         CASES[n].body);
        asked_free(&a);
    }
}
