/*
 * test_api_file.c - answers as files: whole, and in parts that stay in the context.
 * Not here: the bytes of the format (test_api_safetensors.c).
 * Start reading at file_data.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "api/api_private.h"

static const struct api_limits limits = {.body_max_bytes = 1 << 20,
                                         .memory_max_bytes = 64 << 20,
                                         .answer_max_bytes = 64 << 20,
                                         .workers = 1,
                                         .queue_max = 1};

#define LAYER                                                                    \
    "{\"dtype\":\"float32\","                                                    \
    "\"masks\":{\"causal\":true},\"inputs\":{\"X\":{\"init\":\"normal\","        \
    "\"seed\":1,\"shape\":[160,4]}},\"weights\":{"                               \
    "\"W_Q\":{\"init\":\"normal\",\"seed\":2,\"shape\":[4,4]},\"W_K\":{\"init\"" \
    ":\"normal\",\"seed\":3,\"shape\":[4,4]},\"W_V\":{\"init\":\"normal\","      \
    "\"seed\":4,\"shape\":[4,4]},\"W_O\":null}"

static void call_file(struct api_ctx *ctx, const char *body, size_t lend_max,
                      struct api_reply *reply)
{
    const struct api_call call = {.request_id = "r-1",
                                  .method = "POST",
                                  .path = "/",
                                  .answer_type = API_SAFETENSORS,
                                  .body = body,
                                  .body_len = strlen(body),
                                  .lend_max_bytes = lend_max};

    api_attention(ctx, &call, reply);
    cr_assert_eq(reply->status, 200, "%.*s", (int)reply->out->len, reply->out->p);
}

/* The bytes of the file, from wherever they lie. */
static struct api_buffer file_whole(const struct api_reply *reply)
{
    struct api_buffer all = {0};
    const char *own = reply->out->p;

    if (reply->parts == NULL)
        cr_assert(api_put(&all, reply->out->p, reply->out->len));
    for (size_t n = 0; n < reply->part_count; n++) {
        const struct api_part *part = &reply->parts[n];

        cr_assert(api_put(&all, part->p ? part->p : own, part->bytes));
        own += part->p ? 0 : part->bytes;
    }
    if (reply->parts != NULL)
        cr_expect_eq(own, reply->out->p + reply->out->len, "all of `out` is sent");
    return all;
}

/* Where the tensors begin: behind 8 bytes of length and the header. */
static size_t file_data(const struct api_buffer *all)
{
    size_t size = 0;

    for (unsigned n = 8; n-- > 0;)
        size = size << 8 | (unsigned char)all->p[n];
    cr_assert_leq(8 + size, all->len);
    return 8 + size;
}

static void expect_same(const char *body, bool in_parts)
{
    struct api_buffer out[2] = {{0}}, whole[2];
    struct api_reply reply[2] = {{.out = &out[0]}, {.out = &out[1]}};
    struct api_ctx *ctx;
    size_t at, lent_at;

    api_init();
    ctx = api_ctx_new(&limits);
    call_file(ctx, body, 0, &reply[0]);
    cr_expect_null(reply[0].parts, "nothing may be lent");
    whole[0] = file_whole(&reply[0]);
    call_file(ctx, body, 32 << 20, &reply[1]);
    cr_expect_eq(reply[1].parts != NULL, in_parts);
    whole[1] = file_whole(&reply[1]);
    if (in_parts)
        cr_expect_geq(api_ctx_bytes(ctx), 160 * 160 * 4 * 3, "S, M and A are in it");
    api_ctx_return(ctx, 1 << 20);
    cr_expect_eq(api_ctx_bytes(ctx), 0);

    at = file_data(&whole[0]);
    lent_at = file_data(&whole[1]);
    cr_expect_eq(lent_at % 8, 0);
    cr_assert_eq(whole[0].len - at, whole[1].len - lent_at);
    cr_expect_arr_eq(whole[0].p + at, whole[1].p + lent_at, whole[0].len - at);
    for (int n = 0; n < 2; n++) {
        api_buffer_free(&whole[n]);
        api_buffer_free(&out[n]);
    }
    api_ctx_free(ctx);
}

Test(api_file, large_tensors_may_stay_in_the_context)
{
    expect_same(LAYER "}", true);
}

Test(api_file, gradients_are_copied_behind_them)
{
    expect_same(LAYER ",\"gradients\":{\"of\":\"H\",\"check\":false,\"cotangent\":"
                      "{\"init\":\"ones\"}}}",
                true);
}

Test(api_file, what_runs_later_gets_no_lent_tensors)
{
    expect_same(LAYER ",\"ablations\":[{\"target\":\"position\",\"index\":1,"
                      "\"change\":\"zero\"}]}",
                false);
}

Test(api_file, small_tensors_are_copied)
{
    expect_same(LAYER ",\"return\":[\"Q\",\"H\"]}", false);
}

Test(api_file, a_context_over_the_limit_is_not_lent)
{
    struct api_buffer out = {0};
    struct api_reply reply = {.out = &out};
    struct api_ctx *ctx;

    api_init();
    ctx = api_ctx_new(&limits);
    call_file(ctx, LAYER "}", 100 << 10, &reply);
    cr_expect_null(reply.parts);
    api_buffer_free(&out);
    api_ctx_free(ctx);
}
