/*
 * ask.c - calls a handler with a context of its own, reads the answer.
 * Not here: what an answer must be.
 * Start reading at ask_call.
 */
#include "ask.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct api_limits ask_limits = {
    .body_max_bytes = 1 << 20,
    .memory_max_bytes = 256 << 20,
    .answer_max_bytes = 64 << 20,
    .deadline_ms = 1000,
    .workers = 1,
    .queue_max = 8,
};
bool (*ask_expired)(void *) = NULL;

struct asked ask_call(api_handler_fn *handler, const struct api_call *call)
{
    struct asked asked = {0};
    struct api_ctx *ctx;

    api_init();
    ctx = api_ctx_new(&ask_limits);
    asked.reply.out = &asked.out;
    handler(ctx, call, &asked.reply);
    asked.status = asked.reply.status;
    if (asked.reply.fixed)
        asked.json = json_loadb(asked.reply.fixed, asked.reply.fixed_len, 0, NULL);
    else
        asked.json = json_loadb(asked.out.p, asked.out.len, 0, NULL);
    api_ctx_free(ctx);
    return asked;
}

struct asked ask(api_handler_fn *handler, const char *body)
{
    const struct api_call call = {
        .request_id = "r-1",
        .method = "POST",
        .path = "/",
        .content_type = "application/json",
        .body = body,
        .body_len = body ? strlen(body) : 0,
        .expired = ask_expired,
    };

    return ask_call(handler, &call);
}

struct asked ask_name(api_handler_fn *handler, const char *tail)
{
    const struct api_call call = {
        .request_id = "r-1", .method = "GET", .path = "/", .tail = tail};

    return ask_call(handler, &call);
}

void asked_free(struct asked *asked)
{
    json_decref(asked->json);
    api_buffer_free(&asked->out);
}

const json_t *ask_at(const json_t *json, const char *path)
{
    char text[256], *left = text, *part;

    snprintf(text, sizeof text, "%s", path);
    while (json && (part = strsep(&left, ".")) != NULL)
        json = json_is_array(json) ? json_array_get(json, strtoul(part, NULL, 10))
                                   : json_object_get(json, part);
    return json;
}

double ask_number(const json_t *json, const char *path)
{
    const json_t *found = ask_at(json, path);

    return json_is_number(found) ? json_number_value(found) : NAN;
}

const char *ask_text(const json_t *json, const char *path)
{
    const char *text = json_string_value(ask_at(json, path));

    return text ? text : "";
}
