/*
 * test_api_attention.c - whole answers: worked numbers, parts, refusals.
 * Not here: HTTP, random problems against a reference (tests/http/).
 * Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ask.h"

/* Worked by hand to the last digits of double. */
static const double NEAR = 1e-12;

static const char LN3[] =
    "{\"inputs\":{\"Q\":[[1],[1]],\"K\":[[0],[1.0986122886681098]],\"V\":[[2],[6]]},"
    "\"score\":{\"scale\":1}";
static const char ONE[] =
    "{\"shapes\":{\"T\":3,\"d_model\":4,\"d_k\":2,\"d_v\":2},"
    "\"inputs\":{\"X\":[[1,0,1,0],[0,1,0,1],[1,1,0,0]]},"
    "\"weights\":{\"W_Q\":{\"init\":\"normal\",\"seed\":1},\"W_K\":{\"init\":\"normal\","
    "\"seed\":2},"
    "\"W_V\":{\"init\":\"normal\",\"seed\":3},\"W_O\":{\"init\":\"normal\",\"seed\":4}}";

/* The request that begins with `start` and ends with `rest`. */
static struct asked ask_with(const char *start, const char *rest)
{
    char body[2048];

    snprintf(body, sizeof body, "%s%s}", start, rest);
    return ask(api_attention, body);
}

Test(api_attention, the_ln_3_example)
{
    struct asked a = ask_with(LN3, ",\"return\":[\"S\",\"A\",\"H\"]");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_float_eq(ask_number(a.json, "tensors.A.0.0"), 0.25, NEAR);
    cr_expect_float_eq(ask_number(a.json, "tensors.A.0.1"), 0.75, NEAR);
    cr_expect_float_eq(ask_number(a.json, "tensors.H.1.0"), 5, NEAR);
    cr_expect_eq(json_object_size(ask_at(a.json, "tensors")), 3);
    cr_expect_str_eq(ask_text(a.json, "audit.status"), "pass");
    cr_expect_str_eq(ask_text(a.json, "request_id"), "r-1");
    cr_expect_str_eq(a.reply.content_type, "application/json");
    asked_free(&a);
}

Test(api_attention, under_a_causal_mask_the_first_row_reads_the_first_value)
{
    struct asked a = ask_with(LN3, ",\"masks\":{\"causal\":true}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_float_eq(ask_number(a.json, "tensors.H.0.0"), 2, NEAR);
    cr_expect_str_eq(ask_text(a.json, "tensors.M.0.1"), "-Infinity");
    cr_expect_eq(ask_number(a.json, "tensors.A.0.1"), 0);
    asked_free(&a);
}

Test(api_attention, every_part_is_there)
{
    static const char *const PARTS[] = {"request_id", "engine",   "shapes", "tensors",
                                        "audit",      "cost",     "rows",   "warnings",
                                        "notes",      "timing_ms"};
    struct asked a = ask_with(ONE, "");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    for (size_t n = 0; n < API_COUNT(PARTS); n++)
        cr_expect(ask_at(a.json, PARTS[n]), "%s is missing", PARTS[n]);
    cr_expect_eq(json_object_size(a.json), API_COUNT(PARTS));
    cr_expect_eq(json_array_size(ask_at(a.json, "audit.checks")), 14);
    cr_expect_eq(ask_number(a.json, "shapes.S.1"), 3);
    cr_expect_eq(json_array_size(ask_at(a.json, "shapes.S")), 2);
    asked_free(&a);
}

Test(api_attention, an_injected_fault_is_told_and_caught)
{
    struct asked a = ask_with(ONE, ",\"inject\":\"scale_missing\"");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "engine.injected_fault"), "scale_missing");
    cr_expect_str_eq(ask_text(a.json, "audit.status"), "fail");
    cr_expect_str_eq(ask_text(a.json, "audit.first_incorrect"), "S");
    asked_free(&a);
}

Test(api_attention, ablations_of_a_wrong_layer_are_refused)
{
    struct asked a =
        ask_with(ONE, ",\"inject\":\"scale_missing\","
                      "\"ablations\":[{\"target\":\"W_V\",\"change\":\"zero\"}]");

    cr_expect_eq(a.status, 422);
    cr_expect_str_eq(ask_text(a.json, "pointer"), "/ablations");
    asked_free(&a);
}

Test(api_attention, the_audit_can_be_off)
{
    struct asked a = ask_with(ONE, ",\"audit\":\"off\"");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_expect_str_eq(ask_text(a.json, "audit.status"), "not_applicable");
    cr_expect_eq(json_array_size(ask_at(a.json, "audit.checks")), attn_check_count());
    asked_free(&a);
}

Test(api_attention, overflow_is_an_answer_of_strings)
{
    struct asked a = ask(api_attention, "{\"inputs\":{\"Q\":[[1e200]],\"K\":[[1e200]],"
                                        "\"V\":[[1]]},\"score\":{\"scale\":1}}");

    cr_assert_eq(a.status, 200, "%s", ask_text(a.json, "detail"));
    cr_assert(a.json, "not JSON: %.*s", (int)a.out.len, a.out.p);
    cr_expect_str_eq(ask_text(a.json, "tensors.S.0.0"), "Infinity");
    cr_expect_str_eq(ask_text(a.json, "audit.status"), "fail");
    asked_free(&a);
}

Test(api_attention, an_answer_over_its_limit_is_refused_before_it_is_computed)
{
    struct asked a;

    ask_limits.answer_max_bytes = 100;
    a = ask_with(ONE, "");
    cr_expect_eq(a.status, 413);
    cr_expect_str_eq(ask_text(a.json, "type"), "/problems/too-large");
    cr_expect_str_eq(ask_text(a.json, "expected"), "100");
    cr_expect(strstr(ask_text(a.json, "detail"), ask_text(a.json, "observed")));
    cr_expect_eq(a.reply.compute_ms, 0);
    asked_free(&a);
}

Test(api_attention, tensors_over_the_memory_are_refused)
{
    struct asked a;

    ask_limits.memory_max_bytes = 1 << 20;
    a = ask(api_attention,
            "{\"shapes\":{\"T\":1024,\"d_model\":4,\"d_k\":2,\"d_v\":2},"
            "\"inputs\":{\"X\":{\"init\":\"normal\",\"seed\":1}},\"weights\":{"
            "\"W_Q\":{\"init\":\"normal\",\"seed\":1},\"W_K\":{\"init\":\"normal\","
            "\"seed\":2},"
            "\"W_V\":{\"init\":\"normal\",\"seed\":3},\"W_O\":null}}");
    cr_expect_eq(a.status, 413, "%d %s", a.status, ask_text(a.json, "detail"));
    asked_free(&a);
}

static bool at_once(void *arg)
{
    (void)arg;
    return true;
}

Test(api_attention, a_passed_deadline_is_504)
{
    struct asked a;

    ask_expired = at_once;
    a = ask_with(ONE, "");
    cr_expect_eq(a.status, 504);
    cr_expect_str_eq(ask_text(a.json, "type"), "/problems/deadline");
    asked_free(&a);
}

Test(api_attention, a_failed_request_leaves_nothing_for_the_next)
{
    static const char BAD[] = "{\"inputs\":{\"Q\":[[1e999]],\"K\":[[1]],\"V\":[[1]]}}";
    const struct api_call bad = {.body = BAD, .body_len = sizeof BAD - 1};
    char body[1024];
    struct api_buffer out = {0};
    struct api_reply reply = {.out = &out};
    struct api_call good = {.body = body};
    struct api_ctx *ctx;

    api_init();
    ctx = api_ctx_new(&ask_limits);
    good.body_len = (size_t)snprintf(body, sizeof body, "%s}", LN3);
    api_attention(ctx, &bad, &reply);
    cr_expect_eq(reply.status, 400);
    cr_expect_eq(ctx->arena.used, 0);
    reply = (struct api_reply){.out = &out};
    api_attention(ctx, &good, &reply);
    cr_expect_eq(reply.status, 200);
    cr_expect_eq(ctx->arena.used, 0);
    cr_expect(out.len > 2 && out.p[0] == '{' && out.p[out.len - 1] == '}');
    api_ctx_free(ctx);
    api_buffer_free(&out);
}

#ifndef __SANITIZE_ADDRESS__

/* Bytes of address space that this process has now. */
static size_t address_space(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    size_t pages = 0;

    cr_assert(file && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

Test(api_attention, a_buffer_that_cannot_grow_is_503_and_the_next_request_is_served)
{
    char small[1024];
    const char *const big =
        "{\"inputs\":{\"Q\":{\"init\":\"normal\",\"seed\":1,\"shape\":[700,2]},"
        "\"K\":{\"init\":\"normal\",\"seed\":2,\"shape\":[700,2]},"
        "\"V\":{\"init\":\"normal\",\"seed\":3,\"shape\":[700,2]}}}";
    struct api_buffer out = {0};
    struct api_reply reply = {.out = &out};
    struct api_call call = {.body = small};
    struct rlimit limit;
    struct api_ctx *ctx;

    api_init();
    ctx = api_ctx_new(&ask_limits);
    call.body_len = (size_t)snprintf(small, sizeof small, "%s}", LN3);
    api_attention(ctx, &call, &reply);
    cr_assert_eq(reply.status, 200);
    limit.rlim_cur = limit.rlim_max = address_space() + (2 << 20);
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    call.body = big;
    call.body_len = strlen(big);
    reply = (struct api_reply){.out = &out};
    api_attention(ctx, &call, &reply);
    cr_expect_eq(reply.status, 503);
    cr_expect_str_eq(reply.error, "out-of-memory");
    cr_expect(reply.retry_after_s > 0);
    call.body = small;
    call.body_len = strlen(small);
    reply = (struct api_reply){.out = &out};
    api_attention(ctx, &call, &reply);
    cr_expect_eq(reply.status, 200);
}

#endif
