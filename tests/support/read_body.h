/*
 * read_body.h - a body read as a problem, without running it: what was read, or why not.
 * Not here: answers (ask.h).
 * Start reading at read_body.
 */
#ifndef READ_BODY_H
#define READ_BODY_H

#include "api/api_private.h"

struct read {
    bool ok;
    struct api_request r; /* lives until the next read of the same test */
    struct api_err err;
    struct api_ctx *ctx;
};

/* Limits of the one context of a test; changed before its first read. */
extern struct api_limits read_limits;

struct read *read_body(const char *body);
struct read *read_sizes(const char *body);
/* One sequence of 2 tokens of width 3, d_k = d_v = 2, with more members:
   "\"path\":\"dense\"". */
struct read *read_with(const char *members);

/* Fails the test unless the members are refused so; and unless they are accepted. */
void refused(const char *members, const char *name, const char *pointer);
struct read *accepted(const char *members);

#endif
