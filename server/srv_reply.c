/*
 * srv_reply.c - from a reply of the API to a response of the HTTP library.
 * Not here: the bytes of the body (api/).
 * Start reading at srv_reply_queue; srv_connection_send_problem is the way past
 * the library.
 */
#include "server/srv.h"

#include <assert.h>
#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>

enum { PARTS_MAX = 64 };

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
    if (request->route != NULL && request->route->handler != NULL)
        add(arg, "Vary", "Accept, Accept-Encoding");
    if (request->coding != NULL)
        add(arg, "Content-Encoding", request->coding->name);
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

static size_t body_bytes(const struct srv_request *request)
{
    const struct api_reply *reply = &request->reply;
    size_t bytes = 0;

    if (reply->fixed != NULL)
        return reply->fixed_len;
    if (reply->parts == NULL)
        return request->out.len;
    for (size_t n = 0; n < reply->part_count; n++)
        bytes += reply->parts[n].bytes;
    return bytes;
}

/* The library sends the parts from where they are. */
static struct MHD_Response *response_of_parts(struct srv_request *request)
{
    const struct api_reply *reply = &request->reply;
    const char *own = request->out.p;
    struct MHD_IoVec piece[PARTS_MAX];

    assert(reply->part_count <= PARTS_MAX);
    for (size_t n = 0; n < reply->part_count; n++) {
        const struct api_part *part = &reply->parts[n];

        piece[n] = (struct MHD_IoVec){.iov_base = part->p != NULL ? part->p : own,
                                      .iov_len = part->bytes};
        own += part->p != NULL ? 0 : part->bytes;
    }
    return MHD_create_response_from_iovec(piece, (unsigned)reply->part_count,
                                          response_freed, request);
}

static struct MHD_Response *response_of(struct srv_request *request, size_t bytes)
{
    const struct api_reply *reply = &request->reply;
    union {
        const char *from;
        char *to;
    } body = {.from = reply->fixed ? reply->fixed : request->out.p};

    if (reply->parts != NULL)
        return response_of_parts(request);
    return MHD_create_response_from_buffer_with_free_callback_cls(
        bytes, body.to, response_freed, request);
}

/* Queues request->reply; the body's memory stays alive until it has been sent. */
int srv_reply_queue(struct srv_request *request)
{
    struct srv_server *const server = request->server;
    const size_t bytes = body_bytes(request);
    struct MHD_Response *response;
    int queued;

    request->close = request->close || request->chunked || request->problem.close ||
                     atomic_load(&server->closing);
    request->connection->linger = request->problem.close;
    request->answer_bytes = strcmp(request->method, "HEAD") == 0 ? 0 : bytes;
    atomic_fetch_add(&request->references, 1);
    response = response_of(request, bytes);
    if (response == NULL) {
        srv_request_release(request);
        return MHD_NO;
    }
    srv_reply_headers(request, response_header, response);
    srv_connection_enter(request->connection, SRV_SENDING,
                         srv_now_us() + srv_transfer_us(server, bytes));
    queued =
        (int)MHD_queue_response(request->mhd, (unsigned)request->reply.status, response);
    MHD_destroy_response(response);
    return queued;
}

struct raw_text {
    char text[4096];
    size_t length;
};

static void raw_header(void *arg, const char *name, const char *value)
{
    struct raw_text *raw = arg;
    const size_t room = sizeof raw->text - raw->length;
    const int n = snprintf(raw->text + raw->length, room, "%s: %s\r\n", name, value);

    if (n > 0 && (size_t)n < room)
        raw->length += (size_t)n;
}

/*
 * Answers with the request's problem straight to the socket, past the HTTP library,
 * which takes no answer in the middle of a body.  Nothing else is being sent then; the
 * caller ends the connection.
 */
void srv_connection_send_problem(struct srv_request *request)
{
    struct raw_text raw;
    char length[24];

    request->close = true;
    srv_request_write_problem(request);
    raw.length = (size_t)snprintf(
        raw.text, sizeof raw.text, "HTTP/1.1 %d %s\r\n", request->reply.status,
        MHD_get_reason_phrase_for((unsigned)request->reply.status));
    srv_reply_headers(request, raw_header, &raw);
    snprintf(length, sizeof length, "%zu", request->out.len);
    raw_header(&raw, "Content-Length", length);
    if (raw.length + 2 + request->out.len > sizeof raw.text)
        return;
    memcpy(raw.text + raw.length, "\r\n", 2);
    raw.length += 2;
    memcpy(raw.text + raw.length, request->out.p, request->out.len);
    raw.length += request->out.len;
    if (send(request->connection->fd, raw.text, raw.length, MSG_DONTWAIT | MSG_NOSIGNAL) >
        0)
        request->answer_bytes = request->out.len;
    request->connection->linger = true;
}
