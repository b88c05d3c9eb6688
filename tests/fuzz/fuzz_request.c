/*
 * fuzz_request.c - libFuzzer target: any bytes as a problem; refusals are valid answers.
 * Not here: the scanner against another reader (fuzz_lift.c).
 * Start reading at LLVMFuzzerTestOneInput.
 */
#include "api/api_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void stop(const char *what, const char *detail)
{
    fprintf(stderr, "%s: %s\n", what, detail);
    abort();
}

/* A refusal is a problem document with a status of its own and a sentence. */
static void check_refusal(const struct api_err *err)
{
    struct api_buffer out = {0};
    struct api_reply reply = {.out = &out};
    json_t *json;

    if (!err->set)
        stop("refused without an error", "");
    api_reply_error(&reply, "fuzz", err);
    json = json_loadb(out.p, out.len, JSON_REJECT_DUPLICATES, NULL);
    if (json == NULL ||
        json_integer_value(json_object_get(json, "status")) != reply.status ||
        json_string_length(json_object_get(json, "detail")) == 0)
        stop("not a problem document", out.len > 0 ? err->detail : "empty");
    if (reply.status != 400 && reply.status != 413 && reply.status != 422)
        stop("not the client's fault", err->detail);
    json_decref(json);
    api_buffer_free(&out);
}

/* What was accepted is within the limits and holds only finite inputs. */
static void check_problem(const struct api_request *r, const struct attn_arena *arena)
{
    for (int k = 0; k < ATTN_INPUT_COUNT; k++) {
        const struct attn_tensor *t = &r->p.in[k];
        const size_t count = t->rank > 0 ? attn_tensor_count(t) : 0;

        if (t->rank > 0 && t->p == NULL)
            stop("an input without memory", ATTN_INPUTS[k].name);
        for (size_t n = 0; n < count; n++) {
            const double x = attn_tensor_get(t, n);

            if (!(x - x == 0.0))
                stop("an input that is not finite", ATTN_INPUTS[k].name);
        }
    }
    if (arena->used > arena->size)
        stop("more memory than there is", "");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct api_limits limits = {.memory_max_bytes = 4 << 20,
                                             .answer_max_bytes = 4 << 20};
    static struct api_ctx *ctx;
    static struct api_request r;
    struct api_err err = {0};

    if (ctx == NULL) {
        api_init();
        ctx = api_ctx_new(&limits);
    }
    if (api_request_read(ctx, (const char *)data, size, &r, &err))
        check_problem(&r, &ctx->arena);
    else
        check_refusal(&err);
    api_ctx_reset(ctx);
    err = (struct api_err){0};
    if (!api_request_read_sizes(ctx, (const char *)data, size, &r, &err))
        check_refusal(&err);
    api_ctx_reset(ctx);
    return 0;
}
