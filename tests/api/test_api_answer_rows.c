/*
 * test_api_answer_rows.c - empty and padded rows, entropy, labels.
 * Not here: tensors.
 * Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "ask.h"

Test(api_answer_rows, empty_rows_of_one_sequence)
{
    struct asked a =
        ask(api_attention, "{\"inputs\":{\"Q\":[[1],[2],[3]],\"K\":[[1],[2]],"
                           "\"V\":[[1],[2]]},"
                           "\"masks\":{\"causal\":{\"alignment\":\"bottom_right\"}}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(ask_number(a.json, "rows.empty_count"), 1);
    cr_expect_eq(json_array_size(ask_at(a.json, "rows.empty")), 1);
    cr_expect_eq(ask_number(a.json, "rows.empty.0.query"), 0);
    cr_expect_eq(json_object_size(ask_at(a.json, "rows.empty.0")), 1);
    cr_expect_str_eq(ask_text(a.json, "rows.empty_rows"), "zero");
    asked_free(&a);
}

static const char BATCH[] =
    "{\"shapes\":{\"B\":2,\"T\":4,\"d_model\":3,\"d_k\":2,\"d_v\":2,\"heads\":2},"
    "\"inputs\":{\"X\":{\"init\":\"normal\",\"seed\":1}},\"weights\":{"
    "\"W_Q\":{\"init\":\"normal\",\"seed\":1},\"W_K\":{\"init\":\"normal\",\"seed\":2},"
    "\"W_V\":{\"init\":\"normal\",\"seed\":3},\"W_O\":null},\"masks\":%s}";

static struct asked ask_masks(const char *masks)
{
    char body[1024];

    snprintf(body, sizeof body, BATCH, masks);
    return ask(api_attention, body);
}

Test(api_answer_rows, padded_rows_stay_and_are_listed)
{
    struct asked a = ask_masks("{\"padding\":{\"lengths\":[4,2]}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(ask_number(a.json, "rows.padded_count"), 2);
    cr_expect_eq(ask_number(a.json, "rows.padded.0.batch"), 1);
    cr_expect_eq(ask_number(a.json, "rows.padded.0.query"), 2);
    cr_expect_eq(ask_number(a.json, "rows.padded.1.query"), 3);
    cr_expect_eq(ask_number(a.json, "rows.empty_count"), 0);
    asked_free(&a);
}

Test(api_answer_rows, empty_rows_have_the_axes_of_the_answer)
{
    struct asked a = ask_masks("{\"padding\":{\"lengths\":[4,0]}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_eq(ask_number(a.json, "rows.empty_count"), 8);
    cr_expect_eq(json_array_size(ask_at(a.json, "rows.empty")), 8);
    cr_expect_eq(ask_number(a.json, "rows.empty.5.batch"), 1);
    cr_expect_eq(ask_number(a.json, "rows.empty.5.head"), 1);
    cr_expect_eq(ask_number(a.json, "rows.empty.5.query"), 1);
    asked_free(&a);
}

/* Two equally likely keys: entropy ln 2, two effective keys. */
Test(api_answer_rows, entropy_is_in_nats)
{
    struct asked a = ask(api_attention, "{\"inputs\":{\"Q\":[[0]],\"K\":[[1],[2]],"
                                        "\"V\":[[1],[2]]}}");

    cr_expect_float_eq(ask_number(a.json, "rows.entropy.mean"), log(2), 1e-12);
    cr_expect_float_eq(ask_number(a.json, "rows.entropy.effective_keys_mean"), 2, 1e-12);
    cr_expect_str_eq(ask_text(a.json, "rows.entropy.unit"), "nats");
    asked_free(&a);
}

static void expect_labels(const struct asked *a, const char *path, const char *labels)
{
    const json_t *list = ask_at(a->json, path);

    cr_assert_eq(json_array_size(list), strlen(labels), "%s", path);
    for (size_t n = 0; labels[n]; n++)
        cr_expect_eq(json_is_true(json_array_get(list, n)), labels[n] == '1', "%s %zu",
                     path, n);
}

Test(api_answer_rows, a_label_counts_only_within_its_document)
{
    struct asked a = ask_masks("{\"documents\":{\"ids\":[[0,0,1,1],[3,-1,-1,4]],"
                               "\"next_id\":[1,5]}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    expect_labels(&a, "supervision.0", "1011");
    expect_labels(&a, "supervision.1", "0000");
    asked_free(&a);
    a = ask_masks("{\"documents\":{\"lengths\":[[2,2],[1,3]]}}");
    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    expect_labels(&a, "supervision.0", "1010");
    expect_labels(&a, "supervision.1", "0110");
    asked_free(&a);
}
