/*
 * fuzz_checks.h - what must hold of every problem that was read, or refused.
 * Not here: where the bytes come from (fuzz_request.c, fuzz_safetensors.c).
 * Start reading at check_read.
 */
#ifndef FUZZ_CHECKS_H
#define FUZZ_CHECKS_H

#include "api/api_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void check_read(struct api_ctx *ctx, bool read, const struct api_request *r,
                       const struct api_err *err)
{
    if (read)
        check_problem(r, &ctx->arena);
    else
        check_refusal(err);
    api_ctx_reset(ctx);
}

#endif
