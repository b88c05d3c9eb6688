/*
 * srv_work.c - runs the function of a request's route: on a worker, or where it arrived.
 * Not here: the queue (srv_pool.c), what comes before and after (srv_http.c).
 * Start reading at handler_run.
 */
#include "server/srv.h"

#include <microhttpd.h>
#include <string.h>

enum {
    PACK_MIN_BYTES = 1 << 10,    /* of an answer that is worth packing                  */
    HERE_BODY_MAX = 32 << 10,    /* of a request that may be answered where it arrives  */
    HERE_MAX_NS = 200000,        /* and how long that may take                          */
    HERE_ANSWER_BYTES = 64 << 10 /* a buffer to begin with                              */
};

static bool request_expired(void *arg)
{
    const struct srv_request *request = arg;

    return srv_now_us() > request->deadline_us ||
           atomic_load(&request->server->abandoned) ||
           atomic_load(&request->connection->gone);
}

/* Packs a JSON answer when the client asked for it. */
static void pack_answer(struct srv_request *request)
{
    struct srv_server *const server = request->server;
    const char *type = request->reply.content_type;
    const struct srv_coding *coding = srv_coding_choose(request->headers.accept_encoding);
    struct api_buffer packed;

    if (coding == NULL || request->out.len < PACK_MIN_BYTES || type == NULL ||
        strcmp(type, API_JSON) != 0)
        return;
    packed = srv_buffers_take(&server->buffers, request->out.len);
    if (srv_pack(&server->packers, coding, &request->out, &packed)) {
        const struct api_buffer plain = request->out;

        request->out = packed;
        request->coding = coding;
        packed = plain;
    }
    srv_buffers_give(&server->buffers, &packed);
}

/* Runs the route's function: on a worker with help from the pool, or here.  With
   work_max_ns the function may leave the call unanswered: status 0.  With lend_max_bytes
   it may leave the answer in the context. */
static void handler_run(struct srv_request *request, struct api_ctx *ctx, bool on_worker,
                        uint64_t work_max_ns, size_t lend_max_bytes)
{
    const struct srv_headers *headers = &request->headers;
    const struct api_call call = {
        .request_id = request->id,
        .method = request->method,
        .path = request->path,
        .tail = request->tail[0] != '\0' ? request->tail : NULL,
        .content_type = headers->content_type,
        .accept = headers->accept,
        .accept_encoding = headers->accept_encoding,
        .body_type = request->body_type,
        .answer_type = request->answer_type,
        .body = request->body.len > 0 ? request->body.p : NULL,
        .body_len = request->body.len,
        .expired = on_worker ? request_expired : NULL,
        .expired_arg = request,
        .parallel = on_worker ? srv_pool_parallel : NULL,
        .pool = on_worker ? request->server->pool : NULL,
        .work_max_ns = work_max_ns,
        .lend_max_bytes = lend_max_bytes,
    };

    request->reply.out = &request->out;
    if (request->route->handler == NULL) {
        request->route->local(request->server, &request->reply);
        return;
    }
    request->route->handler(ctx, &call, &request->reply);
    pack_answer(request);
}

/* The answer is written: the body is given back, the answer's memory is counted. */
static void answer_keep(struct srv_request *request)
{
    struct srv_server *const server = request->server;

    srv_request_body_drop(request);
    srv_buffers_shrink(&server->buffers, &request->out);
    request->held_bytes =
        request->out.cap + (request->lent != NULL ? api_ctx_bytes(request->lent) : 0);
    srv_held_add(&server->held, request->held_bytes);
    request->stage = SRV_DONE;
}

/* Runs the function with a spare context at hand: then the answer may stay in this one,
   and the worker goes on with the other. */
static void handler_run_lending(struct srv_request *request, struct api_ctx **ctx)
{
    struct srv_spares *const spares = &request->server->spares;
    struct api_ctx *const spare = srv_spares_take(spares);

    handler_run(request, *ctx, true, 0, spare != NULL ? spares->lend_max_bytes : 0);
    if (request->reply.parts != NULL) {
        request->lent = *ctx;
        *ctx = spare;
    } else if (spare != NULL) {
        srv_spares_give(spares, spare);
    }
}

/* A worker's turn.  Once the connection is resumed the record is its I/O thread's. */
void srv_task_run(void *server_arg, struct srv_task *task, struct api_ctx **ctx)
{
    struct srv_server *const server = server_arg;
    struct srv_request *const request = (struct srv_request *)task;

    request->begun_us = srv_now_us();
    if (atomic_load(&server->abandoned))
        srv_request_refuse(request, API_P_DRAINING, NULL);
    else if (request_expired(request))
        srv_request_refuse(request, API_P_DEADLINE,
                           "The deadline passed while the request waited for a worker.");
    else if (srv_held_over(&server->held))
        srv_request_refuse(request, API_P_OVERLOADED,
                           "The server holds as many answer bytes as it may; try again.");
    if (request->problem.set) {
        srv_request_write_problem(request);
    } else {
        request->out = srv_buffers_take(&server->buffers, SIZE_MAX);
        handler_run_lending(request, ctx);
    }
    answer_keep(request);
    MHD_resume_connection(request->mhd);
}

/* More requests wait behind this one, and a core would stand still meanwhile. */
bool srv_work_wants_worker(const struct srv_server *server)
{
    return srv_epoll_pressed() && srv_epoll_awake() + srv_pool_busy(server->pool) <
                                      (unsigned)server->config.workers;
}

/* Answers a cheap call on the I/O thread that read it, which saves two changes of thread.
   False, with nothing changed, when it is not cheap. */
bool srv_work_here(struct srv_request *request)
{
    struct srv_server *const server = request->server;

    if (!request->route->here || request->body.len > HERE_BODY_MAX ||
        srv_held_over(&server->held))
        return false;
    request->queued_us = request->begun_us = srv_now_us();
    request->out = srv_buffers_take(&server->buffers, HERE_ANSWER_BYTES);
    handler_run(request, srv_io_mine()->ctx, false, HERE_MAX_NS, 0);
    if (request->reply.status != 0) {
        answer_keep(request);
        return true;
    }
    srv_buffers_give(&server->buffers, &request->out);
    return false;
}

/* Answers a request without a body on its I/O thread, however long that takes. */
void srv_work_light(struct srv_request *request)
{
    handler_run(request, srv_io_mine()->ctx, false, 0, 0);
}
