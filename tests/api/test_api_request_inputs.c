/* test_api_request_inputs.c - layouts in memory, torch_linear, and errors as shapes were
   given. */
#include "read_body.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void holds(const struct read *read, enum attn_input k, const double *want,
                  size_t count)
{
    const struct attn_tensor *t = &read->r.p.in[k];

    cr_assert(read->ok, "%s at %s", read->err.detail, read->err.pointer);
    cr_assert(attn_tensor_count(t) == count, "%s has %zu numbers", ATTN_INPUTS[k].name,
              attn_tensor_count(t));
    for (size_t n = 0; n < count; n++)
        cr_expect(attn_tensor_get(t, n) == want[n], "%s: entry %zu is %g, not %g",
                  ATTN_INPUTS[k].name, n, attn_tensor_get(t, n), want[n]);
}

/* Two items, two heads of width 3: (B,T,h*d) to (B,h,T,d). */
Test(api_request_inputs, joined_heads_are_put_apart)
{
    static const double WANT[] = {1,  2,  3,  7,  8,  9,  4,  5,  6,  10, 11, 12,
                                  13, 14, 15, 19, 20, 21, 16, 17, 18, 22, 23, 24};
    static const double KEYS[] = {1, 2, 3, 4, 5, 6};
    const struct read *read =
        read_body("{\"shapes\":{\"heads\":2,\"kv_heads\":1},\"inputs\":{"
                  "\"Q\":[[[1,2,3,4,5,6],[7,8,9,10,11,12]],[[13,14,15,16,17,18],[19,20,"
                  "21,22,23,24]]],"
                  "\"K\":[[[1,2,3]],[[4,5,6]]],\"V\":[[[1]],[[2]]]}}");

    holds(read, ATTN_IN_Q, WANT, 24);
    holds(read, ATTN_IN_K, KEYS, 6);
    cr_expect(read->r.p.form.source == ATTN_PROJECTED && !read->r.p.form.has_output);
    cr_expect(read->r.p.in[ATTN_IN_Q].rank == 4 && read->r.p.in[ATTN_IN_Q].dim[1] == 2);
}

Test(api_request_inputs, rank_four_and_past_stay_as_they_are)
{
    static const double WANT[] = {1, 2, 3, 4};
    const struct read *read = read_body(
        "{\"shapes\":{\"heads\":2},\"dtype\":\"float32\",\"inputs\":{"
        "\"Q\":[[[[1,2]],[[3,4]]]],\"K\":[[[[1,2]],[[3,4]]]],\"V\":[[[[1]],[[2]]]],"
        "\"past\":{\"K\":[[[[1,2]],[[3,4]]]],\"V\":[[[[5]],[[6]]]]}}}");

    holds(read, ATTN_IN_Q, WANT, 4);
    holds(read, ATTN_IN_PAST_K, WANT, 4);
    cr_expect(read->r.p.d.T_past == 1 && read->r.p.d.T_kv == 2);
    cr_expect(read->r.p.in[ATTN_IN_Q].dtype == ATTN_F32);
}

static const char TURNED[] =
    "{\"inputs\":{\"X\":[[1,2,3],[4,5,6]]},\"weights\":{\"convention\":\"torch_linear\","
    "\"W_Q\":[[1,2,3],[4,5,6]],\"W_K\":[[1,2,3],[4,5,6]],\"W_V\":{\"init\":\"normal\","
    "\"seed\":5},"
    "\"W_O\":%s},\"shapes\":{\"d_v\":2}}";

static const struct read *turned(const char *W_O)
{
    static char body[1024];

    snprintf(body, sizeof body, TURNED, W_O);
    return read_body(body);
}

Test(api_request_inputs, torch_linear_is_turned)
{
    static const double W_Q[] = {1, 4, 2, 5, 3, 6}, W_O[] = {1, 3, 5, 2, 4, 6};
    const struct read *read = turned("[[1,2],[3,4],[5,6]]");
    double given[6];
    struct attn_tensor seeded = {.dtype = ATTN_F64, .rank = 2, .dim = {2, 3}, .p = given};

    cr_expect(read->r.torch_linear);
    holds(read, ATTN_IN_W_Q, W_Q, 6);
    holds(read, ATTN_IN_W_O, W_O, 6);
    /* A generated matrix is generated as given, (out,in), and then turned. */
    attn_init_fill(ATTN_INIT_NORMAL, 5, 0.0, &seeded);
    holds(read, ATTN_IN_W_V,
          (double[]){given[0], given[3], given[1], given[4], given[2], given[5]}, 6);
}

Test(api_request_inputs, errors_speak_of_the_shape_as_given)
{
    const struct read *read = turned("[[1,2,3],[4,5,6]]");

    cr_assert(!read->ok);
    cr_expect_str_eq(read->err.pointer, "/shapes/d_v");
    cr_expect(strstr(read->err.detail, "(2,3)") != NULL, "%s", read->err.detail);
    cr_expect(strstr(read->err.detail, "(out,in)") != NULL, "%s", read->err.detail);
    read = turned("[[1,2],[3,4],[5,\"NaN\"]]");
    cr_expect_str_eq(read->err.pointer, "/weights/W_O/2/1");
}

/* Worked example: H of shape (12,6) and width 10 need (6,10). */
Test(api_request_inputs, an_output_projection_the_wrong_way_round_names_both_numbers)
{
    const struct read *read = read_body(
        "{\"shapes\":{\"T\":12,\"d_model\":10,\"d_k\":6,\"d_v\":6},"
        "\"inputs\":{\"X\":{\"init\":\"normal\"}},\"weights\":{\"W_Q\":{\"init\":"
        "\"normal\"},"
        "\"W_K\":{\"init\":\"normal\"},\"W_V\":{\"init\":\"normal\",\"shape\":[10,6]},"
        "\"W_O\":{\"init\":\"normal\",\"shape\":[10,6]}}}");

    cr_assert(!read->ok);
    cr_expect_str_eq(read->err.pointer, "/weights/W_O");
    cr_expect_str_eq(read->err.expected, "6");
    cr_expect_str_eq(read->err.observed, "10");
    cr_expect(strstr(read->err.detail, "(10,6)") != NULL, "%s", read->err.detail);
}

Test(api_request_inputs, what_is_missing_or_too_much)
{
    static const struct {
        const char *body, *name, *pointer;
    } ROWS[] = {
        {"{}", "missing", "/inputs/X"},
        {"{\"inputs\":{\"X\":[[1]]}}", "missing", "/weights/W_Q"},
        {"{\"inputs\":{\"X\":[[1]]},\"weights\":{\"W_Q\":[[1]],\"W_K\":[[1]],\"W_V\":[[1]"
         "]}}",
         "missing", "/weights/W_O"},
        {"{\"inputs\":{\"Q\":[[1]],\"K\":[[1]]}}", "missing", "/inputs/V"},
        {"{\"inputs\":{\"X\":[[1]],\"Q\":[[1]]}}", "contradiction", "/inputs/Q"},
        {"{\"inputs\":{\"Q\":[[1]],\"K\":[[1]],\"V\":[[1]]},\"weights\":{\"W_Q\":[[1]]}}",
         "contradiction", "/weights/W_Q"},
        {"{\"inputs\":{\"Q\":[[1]],\"K\":[[1]],\"V\":[[1]],\"past\":{\"K\":[[[[1]]]]}}}",
         "missing", "/inputs/past/V"},
        {"{\"inputs\":{\"X\":[]},\"weights\":{}}", "missing", "/weights/W_Q"},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        const struct read *read = read_body(ROWS[n].body);

        cr_assert(!read->ok, "%s", ROWS[n].body);
        cr_expect(strcmp(read->err.name, ROWS[n].name) == 0, "%s: %s", ROWS[n].body,
                  read->err.name);
        cr_expect(strcmp(read->err.pointer, ROWS[n].pointer) == 0, "%s: %s", ROWS[n].body,
                  read->err.pointer);
    }
}

Test(api_request_inputs, declared_sizes_must_agree)
{
    refused("\"shapes\":{\"T\":5}", "wrong-shape", "/shapes/T");
    refused("\"shapes\":{\"heads\":0}", "bad-value", "/shapes/heads");
    refused("\"shapes\":{\"heads\":1.5}", "bad-value", "/shapes/heads");
    refused("\"shapes\":{\"heads\":9007199254740993}", "bad-value", "/shapes/heads");
    refused("\"shapes\":{\"heads\":\"2\"}", "wrong-type", "/shapes/heads");
    refused("\"shapes\":{\"heads\":3}", "heads-not-divisible", "/weights/W_Q");
    refused("\"shapes\":{\"kv_heads\":2}", "heads-not-divisible", "/shapes/kv_heads");
    refused("\"sink\":[1,2]", "wrong-shape", "/sink");
    cr_expect(accepted("\"shapes\":{\"T\":2,\"T_kv\":2,\"heads\":2,\"kv_heads\":2}")
                  ->r.p.d.d_k == 1);
    cr_expect(accepted("\"shapes\":{\"heads\":1}")->r.p.form.head_axis);
    cr_expect(accepted("\"sink\":[0.5]")->r.p.in[ATTN_IN_SINK].p != NULL);
}
