/*
 * test_api_audit.c - somebody else's tensors: what is read, what is refused, what is
 * answered. Not here: whether the judge is right (test_attn_diagnose.c,
 * tests/http/run_audit.py). Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"

/* Q = I, K exchanges the axes: S = [[0, 1], [1, 0]] / sqrt(2), A row 0 = [.330238,
 * .669762]. */
#define PROBLEM "\"inputs\":{\"Q\":[[1,0],[0,1]],\"K\":[[0,1],[1,0]],\"V\":[[1,2],[3,4]]}"

static struct asked audit(const char *members)
{
    char body[8192];

    cr_assert((size_t)snprintf(body, sizeof body, "{" PROBLEM ",%s}", members) <
              sizeof body);
    return ask(api_audit, body);
}

/* By the best diagnosis, or among what it cannot be told from. */
static bool is_named(const json_t *answer, const char *fault)
{
    const json_t *same = ask_at(answer, "diagnoses.0.indistinguishable_from");

    for (size_t n = 0; n < json_array_size(same); n++)
        if (strcmp(json_string_value(json_array_get(same, n)), fault) == 0)
            return true;
    return strcmp(ask_text(answer, "diagnoses.0.fault"), fault) == 0;
}

static void refused_at(const char *members, const char *type, const char *pointer)
{
    struct asked a = audit(members);
    char want[64];

    snprintf(want, sizeof want, "/problems/%s", type);
    cr_expect_eq(a.status, 422, "%s: %d", members, a.status);
    cr_expect_str_eq(ask_text(a.json, "type"), want, "%s: %s", members,
                     ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "pointer"), pointer, "%s", members);
    asked_free(&a);
}

Test(api_audit, the_first_difference_has_both_numbers)
{
    struct asked a = audit("\"candidate\":{\"S\":[[0,1],[1,0]]}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "verdict"), "incorrect");
    cr_expect_str_eq(ask_text(a.json, "first_incorrect"), "S");
    cr_expect_str_eq(ask_text(a.json, "objects.S.state"), "wrong_here");
    cr_expect_str_eq(ask_text(a.json, "objects.A.state"), "not_given");
    cr_expect(json_is_null(ask_at(a.json, "objects.A.global_error")));
    cr_expect_eq(ask_number(a.json, "first_difference.index.0"), 0);
    cr_expect_eq(ask_number(a.json, "first_difference.index.1"), 1);
    cr_expect_float_eq(ask_number(a.json, "first_difference.expected"), 0.70710678, 1e-8);
    cr_expect_eq(ask_number(a.json, "first_difference.observed"), 1);
    cr_expect(is_named(a.json, "scale_missing"));
    cr_expect(strlen(ask_text(a.json, "diagnoses.0.fix")) > 0);
    cr_expect_null(ask_at(a.json, "tensors"));
    asked_free(&a);
}

Test(api_audit, axes_of_the_index_are_those_of_the_answer)
{
    struct asked a =
        ask(api_audit, "{\"shapes\":{\"heads\":1},\"inputs\":{\"Q\":[[[1,0],[0,1]]],"
                       "\"K\":[[[0,1],[1,0]]],\"V\":[[[1,2],[3,4]]]},"
                       "\"candidate\":{\"S\":[[[[0,1],[1,0]]]],\"H\":[[[1,2],[3,4]]]}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(json_array_size(ask_at(a.json, "objects.S.first_difference.index")), 4);
    cr_expect_eq(json_array_size(ask_at(a.json, "objects.H.first_difference.index")), 3);
    asked_free(&a);
}

Test(api_audit, a_wrong_shape_is_a_finding)
{
    struct asked a = audit("\"candidate\":{\"Q\":[[1,0],[0,1]],\"S\":[[[0,1],[1,0]]]}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "verdict"), "incorrect");
    cr_expect_str_eq(ask_text(a.json, "first_incorrect"), "S");
    cr_expect_str_eq(ask_text(a.json, "diagnoses.0.fault"), "wrong_shape");
    cr_expect_eq(json_array_size(ask_at(a.json, "diagnoses.0.expected")), 2);
    cr_expect_eq(json_array_size(ask_at(a.json, "diagnoses.0.observed")), 3);
    cr_expect_eq(ask_number(a.json, "objects.S.wrong_shape.observed.0"), 1);
    cr_expect(json_is_null(ask_at(a.json, "first_difference")));
    asked_free(&a);
}

Test(api_audit, what_json_lacks_is_read)
{
    struct asked a =
        audit("\"candidate\":{\"A\":[[\"NaN\",\"Infinity\"],[\"-Infinity\",1]]}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "verdict"), "incorrect");
    cr_expect_str_eq(ask_text(a.json, "first_difference.observed"), "NaN");
    asked_free(&a);
}

Test(api_audit, booleans_differ_as_booleans)
{
    struct asked a = audit("\"masks\":{\"causal\":true},"
                           "\"candidate\":{\"allowed\":[[true,true],[true,true]]}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "first_incorrect"), "M");
    cr_expect_str_eq(ask_text(a.json, "first_difference.object"), "allowed");
    cr_expect(json_is_false(ask_at(a.json, "first_difference.expected")));
    cr_expect(json_is_true(ask_at(a.json, "first_difference.observed")));
    asked_free(&a);
}

/* 0.70703125 and 0.66796875 are bfloat16 numbers; 0x3F35 and 0x3F2B. */
Test(api_audit, the_coarsest_dtype_sets_the_tolerance)
{
    struct asked a = audit("\"candidate\":{\"S\":{\"shape\":[2,2],\"dtype\":\"bfloat16\","
                           "\"base64\":\"AAA1PzU/AAA=\"}}");
    struct asked b = audit("\"dtype\":\"float32\",\"candidate\":{\"S\":[[0,1],[1,0]]}");
    struct asked c = audit("\"candidate_dtype\":\"float16\",\"tolerance\":{\"rtol\":0.5},"
                           "\"candidate\":{\"S\":[[0,1],[1,0]]}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "tolerance.candidate_dtype"), "bfloat16");
    cr_expect_str_eq(ask_text(a.json, "objects.S.state"), "correct");
    cr_expect_str_eq(ask_text(b.json, "tolerance.candidate_dtype"), "float32");
    cr_expect_str_eq(ask_text(c.json, "tolerance.candidate_dtype"), "float16");
    cr_expect_eq(ask_number(c.json, "tolerance.rtol"), 0.5);
    cr_expect(ask_number(c.json, "tolerance.atol") > 0);
    asked_free(&a);
    asked_free(&b);
    asked_free(&c);
}

/* 0.1 as float32 is no 0.1: the right X W is that of the floats. */
Test(api_audit, float32_inputs_are_the_floats_they_stand_for)
{
    struct asked a =
        ask(api_audit, "{\"dtype\":\"float32\",\"inputs\":{\"X\":[[0.1]]},"
                       "\"weights\":{\"W_Q\":[[1]],\"W_K\":[[1]],\"W_V\":[[1]],"
                       "\"W_O\":[[1]]},\"return\":[\"V\"],"
                       "\"candidate\":{\"V\":[[0.1]]}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(ask_number(a.json, "tensors.V.0.0"), (double)0.1f);
    cr_expect(ask_number(a.json, "objects.V.global_error") > 1e-10);
    cr_expect_str_eq(ask_text(a.json, "objects.V.state"), "correct");
    asked_free(&a);
}

Test(api_audit, gradients_of_torch_weights_come_out_in)
{
    static const char BODY[] =
        "{\"inputs\":{\"X\":[[1,2,3],[4,5,7]]},\"weights\":{\"convention\":\"torch_"
        "linear\","
        "\"W_Q\":[[0,0,0],[0,0,0]],\"W_K\":[[1,1,1],[1,0,1]],\"W_V\":[[1,0,0],[0,1,0]],"
        "\"W_O\":[[1,0],[0,1],[0,0]]},\"gradients\":{},"
        "\"candidate\":{\"dW_O\":%s}}";
    char body[1024];
    struct asked a;

    /* A is 1/2 everywhere: H = (2.5, 3.5) in both rows; dW_O (out,in) = sum of rows of H.
     */
    snprintf(body, sizeof body, BODY, "[[5,7],[5,7],[5,7]]");
    a = ask(api_audit, body);
    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "objects.dW_O.state"), "correct");
    asked_free(&a);

    snprintf(body, sizeof body, BODY, "[[5,7],[5,7],[5,8]]");
    a = ask(api_audit, body);
    cr_expect_str_eq(ask_text(a.json, "first_incorrect"), "dW_O");
    cr_expect_eq(ask_number(a.json, "first_difference.index.0"), 2);
    cr_expect_eq(ask_number(a.json, "first_difference.index.1"), 1);
    asked_free(&a);
}

/* Two heads share one bias: d_additive is the sum over both, which is what is sent. */
Test(api_audit, the_gradient_of_a_shared_bias_is_a_sum)
{
    static const char PROBLEM_OF[] =
        "\"shapes\":{\"heads\":2},\"inputs\":{\"Q\":[[1,0],[0,1]],\"K\":[[0,1],[1,2]],"
        "\"V\":[[1,2],[3,7]]},\"masks\":{\"additive\":[[0,1],[0.5,0]]},"
        "\"gradients\":{\"of\":\"H\"}";
    char body[1024], *text;
    struct asked right, a;
    json_t *given;

    snprintf(body, sizeof body, "{%s}", PROBLEM_OF);
    right = ask(api_attention, body);
    cr_assert_eq(right.status, 200, "%s", ask_text(right.json, "detail"));
    given = (json_t *)(uintptr_t)ask_at(right.json, "gradients.d_additive");
    cr_assert_eq(json_array_size(given), 2);
    for (int wrong = 0; wrong < 2; wrong++) {
        if (wrong)
            json_array_set_new(json_array_get(given, 1), 0, json_real(0.75));
        text = json_dumps(given, JSON_REAL_PRECISION(17));
        snprintf(body, sizeof body, "{%s,\"candidate\":{\"d_additive\":%s}}", PROBLEM_OF,
                 text);
        free(text);
        a = ask(api_audit, body);
        cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
        cr_expect_str_eq(ask_text(a.json, "objects.d_additive.state"),
                         wrong ? "wrong_here" : "correct");
        cr_expect_null(ask_at(a.json, "objects.d_additive.first_difference"));
        asked_free(&a);
    }
    asked_free(&right);
}

Test(api_audit, companions_are_judged_and_held_against_the_main_problem)
{
    struct asked a =
        audit("\"candidate\":{\"H\":[[2.339523101097589,3.339523101097589],"
              "[1.660476898902411,2.660476898902411]]},\"companions\":["
              "{\"name\":\"same\",\"problem\":{" PROBLEM "},\"candidate\":{\"H\":"
              "[[2.339523101097589,3.339523101097589],[1.660476898902411,2.7]]}},"
              "{\"name\":\"first row\",\"problem\":{\"inputs\":{\"Q\":[[1,0]],"
              "\"K\":[[0,1],[1,0]],\"V\":[[1,2],[3,4]]}},\"candidate\":{\"H\":"
              "[[2.339523101097589,3.339523101097589]]}}]");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "verdict"), "correct");
    cr_expect_str_eq(ask_text(a.json, "companions.0.verdict"), "incorrect");
    cr_expect_eq(ask_number(a.json, "companions.0.rows_alike.rows_compared"), 2);
    cr_expect_eq(ask_number(a.json, "companions.0.rows_alike.rows_that_differ"), 1);
    cr_expect(json_is_false(ask_at(a.json, "companions.0.rows_alike.holds")));
    cr_expect_eq(ask_number(a.json, "companions.0.rows_alike.first.query"), 1);
    cr_expect_str_eq(ask_text(a.json, "companions.1.verdict"), "correct");
    cr_expect_eq(ask_number(a.json, "companions.1.rows_alike.rows_compared"), 1);
    cr_expect(json_is_true(ask_at(a.json, "companions.1.rows_alike.bit_for_bit")));
    asked_free(&a);
}

Test(api_audit, what_makes_no_sense_is_refused)
{
    refused_at("\"masks\":{}", "missing", "/candidate");
    refused_at("\"candidate\":{}", "missing", "/candidate");
    refused_at("\"candidate\":{\"X\":[[1]]}", "unknown-name", "/candidate/X");
    refused_at("\"candidate\":{\"Y\":[[1,2],[3,4]]}", "contradiction", "/candidate/Y");
    refused_at("\"candidate\":{\"dQ\":[[1,2],[3,4]]}", "contradiction", "/candidate/dQ");
    refused_at("\"candidate\":{\"allowed\":[[1,1],[1,1]]}", "wrong-type",
               "/candidate/allowed/0/0");
    refused_at("\"inject\":\"scale_missing\",\"candidate\":{\"S\":[[0,1],[1,0]]}",
               "contradiction", "/inject");
    refused_at("\"traces\":[],\"candidate\":{\"S\":[[0,1],[1,0]]}", "contradiction",
               "/traces");
    refused_at("\"audit\":\"off\",\"candidate\":{\"S\":[[0,1],[1,0]]}", "contradiction",
               "/audit");
    refused_at("\"path\":\"tiled\",\"candidate\":{\"S\":[[0,1],[1,0]]}", "contradiction",
               "/path");
    refused_at("\"tolerance\":{\"rtol\":-1},\"candidate\":{\"S\":[[0,1],[1,0]]}",
               "bad-value", "/tolerance/rtol");
    refused_at("\"candidate\":{\"S\":[[0,1],[1,0]]},\"companions\":[{\"name\":\"a\","
               "\"problem\":{\"dtype\":\"float16\"},\"candidate\":{\"S\":[[1]]}}]",
               "unknown-name", "/companions/0/problem/dtype");
}

Test(api_audit, what_does_not_fit_is_refused_before_it_is_judged)
{
    struct asked a;

    ask_limits.memory_max_bytes = 4 << 20;
    a = ask(api_audit, "{\"shapes\":{\"T\":3000,\"d_model\":2,\"d_k\":2,\"d_v\":2},"
                       "\"inputs\":{\"X\":{\"init\":\"normal\",\"seed\":1}},\"weights\":{"
                       "\"W_Q\":{\"init\":\"normal\",\"seed\":1},\"W_K\":{\"init\":"
                       "\"normal\",\"seed\":2},\"W_V\":{\"init\":\"normal\",\"seed\":3},"
                       "\"W_O\":null},\"candidate\":{\"H\":{\"init\":\"zeros\"}}}");
    cr_expect_eq(a.status, 413, "%d", a.status);
    asked_free(&a);
}

/* In its sentence; its pointer, without room for it, says in which problem it stands: at
   300 bytes the name alone is too long, at 240 with what the pointer begins with. */
Test(api_audit, a_long_name_is_cut_between_characters)
{
    static const struct {
        const char *before;
        size_t size;
    } ROWS[] = {{"", 300}, {"a", 300}, {"aa", 300}, {"", 240}};
    char name[300], members[1024];
    struct asked a;

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        strcpy(name, ROWS[n].before);
        while (strlen(name) + 3 < ROWS[n].size)
            strcat(name, "\xE2\x82\xAC");
        snprintf(members, sizeof members,
                 "\"candidate\":{\"S\":[[0,1],[1,0]]},\"companions\":[{\"name\":\"x\","
                 "\"problem\":{" PROBLEM ",\"%s\":1},\"candidate\":{}}]",
                 name);
        a = audit(members);
        cr_expect_str_eq(ask_text(a.json, "type"), "/problems/unknown-field");
        cr_expect_str_eq(ask_text(a.json, "pointer"), "/companions/0/problem");
        cr_expect(strstr(ask_text(a.json, "detail"), "\xEF\xBF\xBD") == NULL, "%s",
                  ask_text(a.json, "detail"));
        asked_free(&a);
    }
}
