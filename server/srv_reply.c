/*
 * srv_reply.c - from a reply of the API to a response of the HTTP library.
 * Not here: the bytes of the body (api/).
 * Start reading at srv_reply_queue.
 */
#include "server/srv.h"

#include <microhttpd.h>
#include <string.h>

/* Every header of an answer but its length, in the order in which they are sent. */
void srv_reply_headers(const struct srv_request *request, srv_header_fn *add, void *arg)
{
    const struct api_reply *reply = &request->reply;
    char seconds[16];

    if (reply->content_type != NULL)
        add(arg, "Content-Type", reply->content_type);
    add(arg, "X-Request-Id", request->id);
    add(arg, "X-Content-Type-Options", "nosniff");
    add(arg, "Cache-Control", reply->cache_control ? reply->cache_control : "no-store");
    if (reply->allow != NULL)
        add(arg, "Allow", reply->allow);
    if (reply->retry_after_s > 0) {
        snprintf(seconds, sizeof seconds, "%u", reply->retry_after_s);
        add(arg, "Retry-After", seconds);
    }
    srv_cors_headers(request->server->config.cors_origins, request->headers.origin,
                     request->preflight, add, arg);
    if (request->close)
        add(arg, "Connection", "close");
}

static void response_header(void *arg, const char *name, const char *value)
{
    MHD_add_response_header(arg, name, value);
}

static void response_freed(void *request)
{
    srv_request_release(request);
}

/* The time in which this many bytes must have passed. */
int64_t srv_transfer_us(const struct srv_server *server, uint64_t bytes)
{
    return (server->config.request_timeout_s + (int64_t)(bytes >> 20)) * 1000000;
}

/* Queues request->reply; the body's memory stays alive until the response has been sent. */
int srv_reply_queue(struct srv_request *request)
{
    struct srv_server *const server = request->server;
    const struct api_reply *reply = &request->reply;
    const size_t bytes = reply->fixed ? reply->fixed_len : request->out.len;
    union {
        const char *from;
        char *to;
    } body = { .from = reply->fixed ? reply->fixed : request->out.p };
    struct MHD_Response *response;
    int queued;

    request->close = request->close || request->chunked || request->problem.close ||
                     atomic_load(&server->closing);
    request->connection->linger = request->problem.close;
    request->sent_bytes = strcmp(request->method, "HEAD") == 0 ? 0 : bytes;
    atomic_fetch_add(&request->references, 1);
    response = MHD_create_response_from_buffer_with_free_callback_cls(
        bytes, body.to, response_freed, request);
    if (response == NULL) {
        srv_request_release(request);
        return MHD_NO;
    }
    srv_reply_headers(request, response_header, response);
    srv_connection_enter(request->connection, SRV_SENDING,
                         srv_now_us() + srv_transfer_us(server, bytes));
    queued = (int)MHD_queue_response(request->mhd, (unsigned)reply->status, response);
    MHD_destroy_response(response);
    return queued;
}
