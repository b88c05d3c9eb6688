/*
 * srv_http.c - the life of one request between the HTTP library and the workers.
 * Not here: judging (srv_headers.c), running a route's function (srv_work.c), answering
 * (srv_reply.c).
 * Start reading at on_request: the library calls it at the header, at each piece
 * of the body, at the end of the request, and once more after a worker has resumed
 * the connection.
 */
#include "server/srv.h"

#include <microhttpd.h>
#include <string.h>
#include <time.h>

enum {
    CONNECTION_BYTES = 64 << 10, /* the library's: above our own header limits */
    CONNECTION_STEP_BYTES = 4 << 10
};

int64_t srv_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static enum MHD_Result header_line(void *arg, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    (void)kind;
    srv_headers_add(arg, name, value != NULL ? value : "");
    return MHD_YES;
}

static enum MHD_Result send_reply(struct srv_request *request)
{
    return srv_reply_queue(request) == MHD_YES ? MHD_YES : MHD_NO;
}

/* The header is here: judge it, and answer at once what needs no body to be refused. */
static enum MHD_Result on_header(struct srv_request *request, const char *method,
                                 const char *version)
{
    struct srv_headers *const headers = &request->headers;

    srv_text_copy(request->method, sizeof request->method, method, strlen(method));
    MHD_get_connection_values(request->mhd, MHD_HEADER_KIND, header_line, headers);
    if (srv_id_is_sane(headers->request_id))
        srv_text_copy(request->id, sizeof request->id, headers->request_id,
                      strlen(headers->request_id));
    srv_request_check(request, strcmp(version, "HTTP/1.0") != 0);
    request->stage = SRV_BODY;
    if (request->problem.close) {
        if (!srv_connection_leave(request->connection, SRV_RECEIVING))
            return MHD_NO;
        srv_request_write_problem(request);
        return send_reply(request);
    }
    srv_connection_enter(request->connection, SRV_RECEIVING,
                         request->start_us +
                             srv_transfer_us(request->server, request->declared_bytes));
    return MHD_YES;
}

/* A piece of the body: kept for a worker's route, dropped for all others. */
static enum MHD_Result on_body(struct srv_request *request, const char *data,
                               size_t *bytes)
{
    const bool wanted =
        !request->problem.set && request->route != NULL && request->route->worker;
    const size_t n = *bytes;

    *bytes = 0;
    request->received_bytes += n;
    if (atomic_load(&request->connection->phase) != SRV_RECEIVING)
        return MHD_NO;
    if (wanted ? srv_request_body_add(request, data, n)
               : request->received_bytes <= request->server->limits.body_max_bytes)
        return MHD_YES;
    srv_request_refuse_size(request, (size_t)request->received_bytes);
    srv_connection_send_problem(request);
    return MHD_NO;
}

static void write_preflight(struct srv_request *request)
{
    srv_route_allow(request->path, request->allow, sizeof request->allow);
    request->reply = (struct api_reply){
        .status = MHD_HTTP_NO_CONTENT, .allow = request->allow, .out = &request->out};
}

/* Suspends the connection until a worker has written the reply, `elsewhere` one of
   another lane if one is idle; false = the queue is full. */
static bool hand_to_worker(struct srv_request *request, bool elsewhere)
{
    struct srv_server *const server = request->server;

    if (!srv_pool_reserve(server->pool))
        return false;
    request->stage = SRV_WORK;
    request->queued_us = srv_now_us();
    request->deadline_us = request->queued_us + server->config.deadline_ms * 1000;
    MHD_suspend_connection(request->mhd);
    srv_pool_push(server->pool, &request->task, elsewhere);
    return true;
}

/* All of the request is here. */
static enum MHD_Result on_complete(struct srv_request *request)
{
    if (!srv_connection_leave(request->connection, SRV_RECEIVING))
        return MHD_NO;
    if (atomic_load(&request->server->abandoned))
        srv_request_refuse(request, API_P_DRAINING, NULL);
    if (!request->problem.set && !request->preflight && request->route->worker) {
        const bool worker_first = srv_work_wants_worker(request->server);

        if (!worker_first && srv_work_here(request))
            return send_reply(request);
        if (hand_to_worker(request, worker_first))
            return MHD_YES;
        if (worker_first && srv_work_here(request))
            return send_reply(request);
        srv_request_refuse(request, API_P_OVERLOADED, NULL);
    }
    request->stage = SRV_DONE;
    if (request->problem.set)
        srv_request_write_problem(request);
    else if (request->preflight)
        write_preflight(request);
    else
        srv_work_light(request);
    return send_reply(request);
}

static enum MHD_Result on_request(void *server, struct MHD_Connection *mhd,
                                  const char *url, const char *method,
                                  const char *version, const char *data, size_t *bytes,
                                  void **request_arg)
{
    struct srv_request *const request = *request_arg;

    (void)server, (void)mhd, (void)url;
    if (request == NULL)
        return MHD_NO; /* no memory for a record */
    if (request->stage == SRV_LINE)
        return on_header(request, method, version);
    if (request->stage == SRV_BODY && *bytes > 0)
        return on_body(request, data, bytes);
    if (request->stage == SRV_BODY)
        return on_complete(request);
    if (request->stage == SRV_DONE)
        return send_reply(request);
    return MHD_YES;
}

struct srv_connection *srv_connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info != NULL ? info->socket_context : NULL;
}

/* The request line is here, not yet decoded: the request begins. */
static void *on_line(void *server_arg, const char *target, struct MHD_Connection *mhd)
{
    struct srv_server *const server = server_arg;
    struct srv_connection *const connection = srv_connection_of(mhd);
    struct srv_request *request;

    if (connection == NULL || target == NULL)
        return NULL;
    request = srv_request_new(server);
    if (request == NULL)
        return NULL;
    atomic_fetch_add(&server->in_flight, 1);
    request->mhd = mhd;
    request->connection = connection;
    connection->request = request;
    request->target_bytes = strlen(target);
    srv_path_copy(target, request->path, sizeof request->path);
    srv_id_make(request->id, sizeof request->id);
    srv_connection_enter(connection, SRV_RECEIVING,
                         request->start_us + srv_transfer_us(server, 0));
    return request;
}

/* A client that has gone ends its work as a deadline does; in the log it has a status of
   its own, as other servers have it. */
enum { DEADLINE = 504, CLIENT_GONE = 499 };

/* The last byte has been sent, or the connection has broken. */
static void on_end(void *server_arg, struct MHD_Connection *mhd, void **request_arg,
                   enum MHD_RequestTerminationCode code)
{
    struct srv_server *const server = server_arg;
    struct srv_request *const request = *request_arg;
    bool expired;

    (void)mhd;
    if (request == NULL)
        return;
    *request_arg = NULL;
    request->connection->request = NULL;
    expired = srv_connection_rest(request->connection,
                                  srv_now_us() + server->config.idle_timeout_s * 1000000);
    if (expired && request->reply.status == 0) {
        srv_request_refuse(request, API_P_TIMEOUT, NULL);
        srv_connection_send_problem(request);
    }
    if (atomic_load(&request->connection->gone) ||
        (code != MHD_REQUEST_TERMINATED_COMPLETED_OK && request->reply.error == NULL))
        request->reply.error = "client_gone";
    if (atomic_load(&request->connection->gone) && request->reply.status == DEADLINE)
        request->reply.status = CLIENT_GONE;
    srv_log_request(&server->log, request);
    srv_request_release(request);
    atomic_fetch_sub(&server->in_flight, 1);
}

static void on_connection(void *io_arg, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct srv_io *const io = io_arg;
    struct srv_server *const server = io->server;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        srv_io_enter(io);
        atomic_fetch_add(&io->started, 1);
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);

        *context = srv_watch_open(server->watch, info->connect_fd);
        srv_fds_set(&server->fds, info->connect_fd, *context);
        return;
    }
    atomic_fetch_add(&io->closed, 1);
    if (*context != NULL) {
        srv_fds_set(&server->fds, ((struct srv_connection *)*context)->fd, NULL);
        srv_watch_close(server->watch, *context);
    }
    *context = NULL;
}

/* Starts an I/O thread, which waits for connections that it is given. */
static struct MHD_Daemon *daemon_start(struct srv_server *server, struct srv_io *io)
{
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET |
            MHD_ALLOW_SUSPEND_RESUME,
        0, NULL, NULL, on_request, server, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)server->config.connection_max,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)CONNECTION_STEP_BYTES,
        MHD_OPTION_URI_LOG_CALLBACK, on_line, server, MHD_OPTION_NOTIFY_COMPLETED, on_end,
        server, MHD_OPTION_NOTIFY_CONNECTION, on_connection, io, MHD_OPTION_END);
}

/* Starts the I/O threads; false when one cannot be had. */
bool srv_http_start(struct srv_server *server)
{
    if (!srv_library_setup(server))
        return false;
    for (int64_t t = 0; t < server->config.io_threads; t++) {
        struct srv_io *const io = &server->io[t];

        io->server = server;
        io->daemon = daemon_start(server, io);
        if (io->daemon == NULL)
            return false;
    }
    return true;
}

/* Closes every connection and ends the I/O threads.  None may be with a worker. */
void srv_http_stop(struct srv_server *server)
{
    for (int64_t t = 0; t < server->config.io_threads; t++)
        MHD_stop_daemon(server->io[t].daemon);
}
