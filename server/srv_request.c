/*
 * srv_request.c - the record of one request: taken from a free-list, filled, given back.
 * Not here: judging it (srv_headers.c), answering it (srv_reply.c).
 * Start reading at srv_request_new.
 */
#include "server/srv.h"

#include <stdlib.h>
#include <string.h>

enum { FREE_MAX = 1024, BODY_FIRST_BYTES = 16 << 10 };

static _Thread_local struct srv_io *mine;

/* The calling thread serves the connections of `io`: may be said again and again. */
void srv_io_enter(struct srv_io *io)
{
    struct srv_server *const server = io->server;

    if (mine == NULL)
        srv_lane_enter(&server->lanes, (unsigned)(io - server->io) % server->lanes.count);
    mine = io;
}

/* What the calling I/O thread has of its own; NULL in any other thread. */
struct srv_io *srv_io_mine(void)
{
    return mine;
}

/* Records stay with the thread that serves their connections. */
static struct srv_request *free_list_pop(struct srv_io *io)
{
    struct srv_request *const request = io != NULL ? io->free : NULL;

    if (request != NULL) {
        io->free = request->next;
        io->free_count--;
    }
    return request;
}

static bool free_list_push(struct srv_io *io, struct srv_request *request)
{
    if (io == NULL || io->free_count >= FREE_MAX)
        return false;
    request->next = io->free;
    io->free = request;
    io->free_count++;
    return true;
}

/* A record with one reference, its clock started; NULL when memory is short. */
struct srv_request *srv_request_new(struct srv_server *server)
{
    struct srv_request *request = free_list_pop(srv_io_mine());

    if (request == NULL)
        request = malloc(sizeof *request);
    if (request == NULL)
        return NULL;
    memset(request, 0, sizeof *request);
    request->server = server;
    request->start_us = srv_now_us();
    request->reply.out = &request->out;
    atomic_init(&request->references, 1);
    return request;
}

/* Gives up one reference; the last one gives memory and budget back. */
void srv_request_release(struct srv_request *request)
{
    struct srv_server *const server = request->server;

    if (atomic_fetch_sub(&request->references, 1) > 1)
        return;
    srv_buffers_give(&server->buffers, &request->body);
    srv_buffers_give(&server->buffers, &request->out);
    if (request->lent != NULL)
        srv_spares_give(&server->spares, request->lent);
    srv_held_give(&server->held, request->held_bytes);
    request->held_bytes = 0;
    if (!free_list_push(srv_io_mine(), request))
        free(request);
}

/* Doubles the body's room up to what was declared, so that nobody is given memory for
   bytes that never come. */
static size_t body_room(const struct srv_request *request, size_t need)
{
    size_t room =
        request->body.cap < BODY_FIRST_BYTES ? BODY_FIRST_BYTES : request->body.cap;

    while (room < need)
        room *= 2;
    if (!request->chunked && room > request->declared_bytes &&
        request->declared_bytes >= need)
        room = (size_t)request->declared_bytes;
    return room;
}

/* Appends to the body.  False, with a problem set, over the limit or without memory. */
bool srv_request_body_add(struct srv_request *request, const char *data, size_t bytes)
{
    struct srv_server *const server = request->server;
    struct api_buffer *const body = &request->body;
    const size_t need = body->len + bytes;

    if (need > server->limits.body_max_bytes) {
        srv_request_refuse_size(request, need);
        return false;
    }
    if (!srv_held_take(&server->held, bytes)) {
        srv_request_refuse(request, API_P_OVERLOADED,
                           "The server holds as many bytes of requests and answers as it "
                           "may; try again.");
        return false;
    }
    request->held_bytes += bytes;
    if (body->p == NULL)
        *body = srv_buffers_take(&server->buffers, (size_t)request->declared_bytes);
    if (need > body->cap) {
        const size_t room = body_room(request, need);
        char *p = realloc(body->p, room);

        if (p == NULL) {
            srv_request_refuse(request, API_P_OVERLOADED, "Memory is short; try again.");
            return false;
        }
        body->p = p;
        body->cap = room;
    }
    memcpy(body->p + body->len, data, bytes);
    body->len = need;
    return true;
}

/* Gives the body back as soon as it has been read, before the answer is sent. */
void srv_request_body_drop(struct srv_request *request)
{
    srv_held_give(&request->server->held, request->held_bytes);
    request->held_bytes = 0;
    srv_buffers_give(&request->server->buffers, &request->body);
}

/* Sets the problem that the request is to be answered with; the first one stays. */
void srv_request_refuse(struct srv_request *request, enum api_problem_kind kind,
                        const char *detail)
{
    if (!request->problem.set)
        request->problem =
            (struct srv_problem){.set = true, .kind = kind, .detail = detail};
}

/* A body over the limit, said with both numbers. */
void srv_request_refuse_size(struct srv_request *request, size_t bytes)
{
    const size_t max = request->server->limits.body_max_bytes;

    if (request->problem.set)
        return;
    snprintf(request->detail, sizeof request->detail,
             "The body has %s%zu bytes; this server takes at most %zu.",
             request->chunked ? "at least " : "", bytes, max);
    request->problem = (struct srv_problem){.set = true,
                                            .kind = API_P_BODY_TOO_LARGE,
                                            .detail = request->detail,
                                            .numbers = true,
                                            .want = max,
                                            .got = bytes};
}

/* Turns the problem into the reply. */
void srv_request_write_problem(struct srv_request *request)
{
    const struct srv_problem *problem = &request->problem;

    request->reply = (struct api_reply){.out = &request->out};
    if (request->allow[0] != '\0')
        request->reply.allow = request->allow;
    api_problem(&request->reply, request->id, problem->kind, problem->detail,
                problem->numbers, problem->want, problem->got);
}
