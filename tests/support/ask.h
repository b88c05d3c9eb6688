/*
 * ask.h - a request to a handler of api/, its answer as a JSON tree.
 * Not here: HTTP (tests/http/).
 * Start reading at ask.
 */
#ifndef ASK_H
#define ASK_H

#include "api/api_private.h"

struct asked {
    int status;
    json_t *json; /* the answer; NULL when it is not JSON                    */
    struct api_reply reply;
    struct api_buffer out;
};

/* What the handlers of a test may take; a test changes it before its first ask. */
extern struct api_limits ask_limits;
/* Lent to every call; NULL = no deadline. */
extern bool (*ask_expired)(void *);

struct asked ask(api_handler_fn *handler, const char *body);
struct asked ask_call(api_handler_fn *handler, const struct api_call *call);
struct asked ask_name(api_handler_fn *handler, const char *tail);
void asked_free(struct asked *asked);

/* "rows.empty.0.query" of a tree: objects by name, arrays by number; NULL when it is not
 * there. */
const json_t *ask_at(const json_t *json, const char *path);
double ask_number(const json_t *json, const char *path);    /* NaN when it is no number */
const char *ask_text(const json_t *json, const char *path); /* "" when it is no string */

#endif
