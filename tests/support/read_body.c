/*
 * read_body.c - see read_body.h.
 * Not here: the reading itself (api/).
 * Start reading at read_with.
 */
#include "read_body.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

struct api_limits read_limits = {.memory_max_bytes = 1 << 24,
                                 .answer_max_bytes = 1 << 24};

static const char LAYER[] =
    "{\"inputs\":{\"X\":[[1,2,3],[4,5,6]]},"
    "\"weights\":{\"W_Q\":[[1,2],[3,4],[5,6]],\"W_K\":[[2,1],[4,3],[6,5]],"
    "\"W_V\":[[1,0],[0,1],[1,1]],\"W_O\":[[1,2,3],[4,5,6]]}%s%s}";

static struct read read_by(const char *body, bool sizes)
{
    static struct api_ctx *ctx;
    struct read read = {0};

    if (ctx == NULL)
        ctx = api_ctx_new(&read_limits);
    cr_assert(ctx != NULL, "no context");
    api_ctx_reset(ctx);
    read.ctx = ctx;
    read.ok = sizes ? api_request_read_sizes(ctx, body, strlen(body), &read.r, &read.err)
                    : api_request_read(ctx, body, strlen(body), &read.r, &read.err);
    cr_assert(read.ok != read.err.set, "accepted and refused at once: %s", body);
    return read;
}

struct read *read_body(const char *body)
{
    static struct read read;

    read = read_by(body, false);
    return &read;
}

struct read *read_sizes(const char *body)
{
    static struct read read;

    read = read_by(body, true);
    return &read;
}

struct read *read_with(const char *members)
{
    static char body[1 << 16];

    cr_assert((size_t)snprintf(body, sizeof body, LAYER, members[0] != '\0' ? "," : "",
                               members) < sizeof body);
    return read_body(body);
}

void refused(const char *members, const char *name, const char *pointer)
{
    const struct read *read = read_with(members);

    cr_assert(!read->ok, "accepted: %s", members);
    cr_expect(strcmp(read->err.name, name) == 0, "%s: %s (%s), not %s", members,
              read->err.name, read->err.detail, name);
    cr_expect(strcmp(read->err.pointer, pointer) == 0, "%s: at %s (%s), not %s", members,
              read->err.pointer, read->err.detail, pointer);
}

struct read *accepted(const char *members)
{
    struct read *read = read_with(members);

    cr_assert(read->ok, "%s: %s at %s: %s", members, read->err.name, read->err.pointer,
              read->err.detail);
    return read;
}
