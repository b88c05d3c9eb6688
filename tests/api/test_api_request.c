/* test_api_request.c - the whole problem: defaults, unknown fields, refusals before
   memory. */
#include "read_body.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

Test(api_request, a_small_layer_and_its_defaults)
{
    const struct api_request *r = &accepted("")->r;
    const struct attn_dims *d = &r->p.d;

    cr_expect(d->B == 1 && d->T_q == 2 && d->T_kv == 2 && d->T_past == 0 &&
              d->d_model == 3);
    cr_expect(d->d_k == 2 && d->d_v == 2 && d->h == 1 && d->h_kv == 1);
    cr_expect(!r->p.form.batch_axis && !r->p.form.head_axis && r->p.form.has_output);
    cr_expect(r->p.dtype == ATTN_F64 && r->p.temperature == 1.0 && r->p.softcap == 0.0);
    cr_expect(r->p.scale == 1.0 / sqrt(2.0) && !r->p.scale_stated);
    cr_expect(r->p.empty_rows == ATTN_EMPTY_ZERO && r->audit == ATTN_AUDIT_SAMPLED);
    cr_expect(r->path == ATTN_PATH_AUTO && r->encoding == API_ENC_NESTED);
    cr_expect(r->want == (ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K) | ATTN_BIT(ATTN_V) |
                          ATTN_BIT(ATTN_S) | ATTN_BIT(ATTN_M) | ATTN_BIT(ATTN_A) |
                          ATTN_BIT(ATTN_H) | ATTN_BIT(ATTN_Y)));
    cr_expect(r->p.mask_count == 0 && r->ablations == 0 && r->traces == 0);
    cr_expect(!r->has_gradients && r->warnings == 0 && r->set_count == 0);
}

Test(api_request, unknown_fields_are_refused_wherever_they_stand)
{
    refused("\"casual\":true", "unknown-field", "/casual");
    refused("\"shapes\":{\"window\":0}", "unknown-field", "/shapes/window");
    refused("\"score\":{\"scal\":1}", "unknown-field", "/score/scal");
    refused("\"masks\":{\"mask\":[[1]]}", "unknown-field", "/masks/mask");
    refused("\"masks\":{\"causal\":{\"align\":1}}", "unknown-field",
            "/masks/causal/align");
    refused("\"position\":{\"rope\":{\"theta\":1}}", "unknown-field",
            "/position/rope/theta");
    refused("\"gradients\":{\"off\":\"Y\"}", "unknown-field", "/gradients/off");
    refused("\"traces\":[{\"query\":0,\"row\":1}]", "unknown-field", "/traces/0/row");
    refused("\"ablations\":[{\"target\":\"W_Q\",\"change\":\"zero\",\"x\":1}]",
            "unknown-field", "/ablations/0/x");
    refused("\"a~b\":1", "unknown-field", "/a~0b");
}

Test(api_request, every_object_wants_an_object)
{
    static const char *const FIELDS[] = {"shapes", "score", "position", "masks",
                                         "gradients"};
    char members[64], pointer[32];

    for (size_t n = 0; n < API_COUNT(FIELDS); n++) {
        static const char *const VALUES[] = {"3", "null", "[1]", "\"x\"", "true"};

        for (size_t v = 0; v < API_COUNT(VALUES); v++) {
            snprintf(members, sizeof members, "\"%s\":%s", FIELDS[n], VALUES[v]);
            snprintf(pointer, sizeof pointer, "/%s", FIELDS[n]);
            refused(members, "wrong-type", pointer);
        }
    }
}

/* 20,000 positions, all pairs returned: 9.6 GB of scores, weights and mask. */
Test(api_request, too_large_is_refused_from_sizes_with_nothing_touched)
{
    const struct read *read = read_body(
        "{\"shapes\":{\"T\":20000,\"d_model\":4,\"d_k\":2,\"d_v\":2},"
        "\"inputs\":{\"X\":{\"init\":\"normal\"}},"
        "\"weights\":{\"W_Q\":{\"init\":\"normal\"},\"W_K\":{\"init\":\"normal\"},"
        "\"W_V\":{\"init\":\"normal\"},\"W_O\":{\"init\":\"normal\"}}}");

    cr_assert(!read->ok);
    cr_expect_str_eq(read->err.name, "too-large");
    cr_expect_str_eq(read->err.expected, "16777216");
    cr_expect(strlen(read->err.observed) >= 10, "%s", read->err.observed);
    for (size_t n = 0; n < read->ctx->arena.used; n += 4096)
        cr_assert(read->ctx->arena.base[n] == 0, "byte %zu was written", n);
}

Test(api_request, too_large_an_input_names_both_numbers)
{
    const struct read *read = read_body(
        "{\"shapes\":{\"T\":1000000,\"d_model\":1000,\"d_k\":2,\"d_v\":2},"
        "\"inputs\":{\"X\":{\"init\":\"normal\"}},\"return\":\"none\","
        "\"weights\":{\"W_Q\":{\"init\":\"normal\"},\"W_K\":{\"init\":\"normal\"},"
        "\"W_V\":{\"init\":\"normal\"},\"W_O\":{\"init\":\"normal\"}}}");

    cr_assert(!read->ok);
    cr_expect_str_eq(read->err.name, "too-large");
    cr_expect_str_eq(read->err.pointer, "/inputs/X");
    cr_expect_str_eq(read->err.observed, "8000000000");
}

Test(api_request, sizes_whose_product_no_machine_holds)
{
    const struct read *read = read_body(
        "{\"shapes\":{\"T\":2000000000,\"d_model\":2000000000,\"d_k\":2,\"d_v\":2},"
        "\"inputs\":{\"X\":{\"init\":\"normal\"}},"
        "\"weights\":{\"W_Q\":{\"init\":\"normal\"},\"W_K\":{\"init\":\"normal\"},"
        "\"W_V\":{\"init\":\"normal\"},\"W_O\":{\"init\":\"normal\"}}}");

    cr_assert(!read->ok);
    cr_expect_str_eq(read->err.name, "too-large");
}

Test(api_request, a_plan_needs_no_tensors)
{
    const struct read *read = read_sizes(
        "{\"shapes\":{\"T\":100000,\"T_kv\":200000,\"d_model\":64,\"d_k\":8,\"d_v\":4,"
        "\"heads\":8,\"kv_heads\":2},\"masks\":{\"causal\":{\"alignment\":\"bottom_"
        "right\"}}}");

    cr_assert(read->ok, "%s at %s", read->err.detail, read->err.pointer);
    cr_expect(read->r.p.d.T_q == 100000 && read->r.p.d.T_kv == 200000);
    cr_expect(read->r.p.d.h == 8 && read->r.p.d.h_kv == 2 && read->r.p.form.head_axis);
    cr_expect(read->r.p.form.source == ATTN_CROSS && read->r.p.form.has_output);
    cr_expect(read->r.p.in[ATTN_IN_W_O].dim[0] == 32 &&
              read->r.p.in[ATTN_IN_W_O].dim[1] == 64);
    cr_expect(read->ctx->arena.used == 0, "%zu bytes taken", read->ctx->arena.used);
}

Test(api_request, a_plan_still_refuses_what_is_wrong)
{
    const struct read *read = read_sizes("{\"shapes\":{\"T\":4,\"d_k\":2,\"d_v\":2}}");

    cr_assert(!read->ok);
    cr_expect_str_eq(read->err.pointer, "/shapes/d_model");
    read = read_sizes("{\"shapes\":{\"T\":4,\"d_model\":3,\"d_k\":2,\"d_v\":2},"
                      "\"ablations\":[{\"target\":\"W_Q\",\"change\":\"nothing\"}]}");
    cr_assert(!read->ok);
    cr_expect_str_eq(read->err.pointer, "/ablations/0/change");
}
