/* test_api_request_asks.c - ablations, gradients and traces as they are asked. */
#include "read_body.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void edit_refused(const char *edit, const char *name, const char *pointer)
{
    char members[512];

    snprintf(members, sizeof members, "\"masks\":{\"causal\":true},\"ablations\":[%s]",
             edit);
    refused(members, name, pointer);
}

Test(api_request_asks, ablations_one_by_one_or_together)
{
    const struct read *read = accepted(
        "\"masks\":{\"causal\":true},\"ablations\":[{\"target\":\"W_V\",\"change\":"
        "\"zero\"},"
        "[{\"target\":\"masks.causal\",\"change\":\"remove\",\"return\":\"delta\"},"
        "{\"target\":\"head\",\"change\":\"zero\",\"index\":0}],"
        "{\"target\":\"W_Q\",\"change\":\"noise\",\"seed\":3,\"std\":0.5}]");
    const struct api_ablation *a = read->r.ablation;

    cr_assert(read->r.ablations == 3);
    cr_expect(a[0].edits == 1 && !a[0].delta);
    cr_expect_str_eq(a[0].edit[0].target->name, "W_V");
    cr_expect_str_eq(a[0].edit[0].change->name, "zero");
    cr_expect(a[1].edits == 2 && a[1].delta);
    cr_expect_str_eq(a[1].edit[0].rule, "causal");
    cr_expect(a[2].edit[0].seed == 3 && a[2].edit[0].std == 0.5);
    cr_expect_str_eq(a[2].pointer, "/ablations/2");
    cr_expect(accepted("\"ablations\":[]")->r.ablations == 0);
}

Test(api_request_asks, a_replacement_is_given_as_the_weight_is)
{
    const struct read *read = accepted("\"ablations\":[{\"target\":\"W_V\",\"change\":"
                                       "\"replace\",\"with\":[[1,2],[3,4],[5,6]]}]");
    const struct attn_tensor *t = &read->r.ablation[0].edit[0].with;

    cr_assert(t->p != NULL && t->rank == 2 && t->dim[0] == 3 && t->dim[1] == 2);
    cr_expect(attn_tensor_get(t, 1) == 2.0);
    read = read_body(
        "{\"inputs\":{\"X\":[[1,2,3]]},\"weights\":{\"convention\":\"torch_linear\","
        "\"W_Q\":[[1,2,3]],\"W_K\":[[1,2,3]],\"W_V\":[[1,2,3],[4,5,6]],"
        "\"W_O\":[[1,2],[3,4],[5,6]]},\"ablations\":[{\"target\":\"W_V\","
        "\"change\":\"replace\",\"with\":[[1,2,3],[4,5,6]]}]}");
    cr_assert(read->ok, "%s at %s", read->err.detail, read->err.pointer);
    t = &read->r.ablation[0].edit[0].with;
    cr_expect(t->dim[0] == 3 && t->dim[1] == 2 && attn_tensor_get(t, 1) == 4.0);
    edit_refused("{\"target\":\"W_V\",\"change\":\"replace\",\"with\":[[1,2]]}",
                 "wrong-shape", "/ablations/0/with");
}

Test(api_request_asks, what_an_edit_needs_and_what_it_has_no_place_for)
{
    edit_refused("{\"change\":\"zero\"}", "missing", "/ablations/0/target");
    edit_refused("{\"target\":\"W_V\"}", "missing", "/ablations/0/change");
    edit_refused("{\"target\":\"W_X\",\"change\":\"zero\"}", "unknown-name",
                 "/ablations/0/target");
    edit_refused("{\"target\":\"W_V\",\"change\":\"zer\"}", "unknown-name",
                 "/ablations/0/change");
    edit_refused("{\"target\":\"W_V\",\"change\":\"scale\"}", "missing",
                 "/ablations/0/by");
    edit_refused("{\"target\":\"W_V\",\"change\":\"zero\",\"by\":2}", "contradiction",
                 "/ablations/0/by");
    edit_refused("{\"target\":\"head\",\"change\":\"zero\"}", "missing",
                 "/ablations/0/index");
    edit_refused("{\"target\":\"head\",\"change\":\"zero\",\"index\":1}", "bad-value",
                 "/ablations/0/index");
    edit_refused("{\"target\":\"edge\",\"change\":\"remove\",\"query\":0,\"key\":2}",
                 "bad-value", "/ablations/0/key");
    edit_refused("{\"target\":\"masks.padding\",\"change\":\"remove\"}", "contradiction",
                 "/ablations/0/target");
    edit_refused("{\"target\":\"masks\",\"change\":\"remove\"}", "missing",
                 "/ablations/0/target");
    edit_refused("{\"target\":\"W_V\",\"change\":\"zero\"},[{\"target\":\"W_K\"}]",
                 "missing", "/ablations/1/0/change");
    edit_refused("3", "wrong-type", "/ablations/0");
    edit_refused("[]", "wrong-type", "/ablations/0");
}

/* Core's tables say which change fits which target. */
Test(api_request_asks, every_pair_of_target_and_change_is_judged_by_the_table)
{
    char members[256];

    for (size_t t = 0; t < attn_edit_target_count(); t++)
        for (size_t c = 0; c < attn_edit_change_count(); c++) {
            const struct attn_edit_target_row *target = attn_edit_target_at(t);
            const struct read *read;

            if (strcmp(target->name, "masks") == 0)
                continue;
            snprintf(members, sizeof members,
                     "\"ablations\":[{\"target\":\"%s\",\"change\":\"%s\"}]",
                     target->name, attn_edit_change_at(c)->name);
            read = read_with(members);
            if ((target->changes & UINT32_C(1) << c) == 0)
                cr_expect(!read->ok && strcmp(read->err.name, "not-supported") == 0, "%s",
                          members);
            else
                cr_expect(read->ok || strcmp(read->err.name, "not-supported") != 0,
                          "%s: %s", members, read->err.detail);
        }
}

Test(api_request_asks, gradients_and_their_defaults)
{
    const struct read *read = accepted("\"gradients\":{}");
    const struct attn_grad_ask *ask = &read->r.gradients;

    cr_assert(read->r.has_gradients && ask->of == ATTN_Y && !ask->check);
    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
        cr_expect(((ask->with_respect_to >> g) & 1) ==
                      attn_gradient_exists(&read->r.p, (enum attn_gradient)g),
                  "%s", ATTN_GRADIENTS[g].name);
    cr_assert(attn_tensor_count(&ask->cotangent) == 6);
    for (size_t n = 0; n < 6; n++)
        cr_expect(attn_tensor_get(&ask->cotangent, n) == 1.0);
}

Test(api_request_asks, gradients_as_asked)
{
    const struct attn_grad_ask *ask =
        &accepted("\"dtype\":\"float32\",\"gradients\":{\"of\":\"H\",\"cotangent\":"
                  "[[1,2],[3,4]],\"with_respect_to\":[\"dX\",\"W_Q\"],\"check\":true}")
             ->r.gradients;

    cr_expect(ask->of == ATTN_H && ask->check && ask->cotangent.dtype == ATTN_F32);
    cr_expect(ask->with_respect_to == (1u << ATTN_DX | 1u << ATTN_DW_Q));
    cr_expect(attn_tensor_get(&ask->cotangent, 2) == 3.0);
    accepted("\"gradients\":{\"cotangent\":\"ones\"}");
    accepted("\"gradients\":{\"cotangent\":{\"init\":\"normal\",\"seed\":1}}");
    refused("\"gradients\":{\"of\":\"Q\"}", "unknown-name", "/gradients/of");
    refused("\"gradients\":{\"cotangent\":[[1,2],[3,4]]}", "wrong-shape",
            "/gradients/cotangent");
    refused("\"gradients\":{\"cotangent\":\"one\"}", "unknown-name",
            "/gradients/cotangent");
    refused("\"gradients\":{\"with_respect_to\":[\"dX_kv\"]}", "contradiction",
            "/gradients/with_respect_to/0");
    refused("\"gradients\":{\"with_respect_to\":[\"dX\",\"dZ\"]}", "unknown-name",
            "/gradients/with_respect_to/1");
    refused("\"gradients\":{\"check\":1}", "wrong-type", "/gradients/check");
}

Test(api_request_asks, traces_name_rows_that_exist)
{
    const struct read *read =
        accepted("\"shapes\":{\"heads\":2},\"traces\":[{\"query\":1},"
                 "{\"batch\":0,\"head\":1,\"query\":0}]");

    cr_assert(read->r.traces == 2);
    cr_expect(read->r.trace[0].b == 0 && read->r.trace[0].h == 0 &&
              read->r.trace[0].i == 1);
    cr_expect(read->r.trace[1].h == 1 && read->r.trace[1].i == 0);
    cr_expect_str_eq(read->r.trace[1].pointer, "/traces/1");
    refused("\"traces\":[{\"query\":2}]", "bad-value", "/traces/0/query");
    refused("\"traces\":[{\"query\":0},{\"query\":0,\"head\":1}]", "bad-value",
            "/traces/1/head");
    refused("\"traces\":[{\"query\":0,\"batch\":-1}]", "bad-value", "/traces/0/batch");
    refused("\"traces\":[{}]", "missing", "/traces/0/query");
    refused("\"traces\":[0]", "wrong-type", "/traces/0");
}
