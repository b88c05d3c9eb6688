/*
 * srv_library.c - makes the HTTP library's own error answers problem documents.
 * Not here: errors this server finds itself (srv_headers.c).
 * Start reading at MHD_queue_response.
 *
 * The library refuses some requests before anybody is asked: a malformed chunk, a
 * Content-Length that is no number, a header larger than its memory.  It has no hook for
 * the text it then sends, but it queues that answer by calling its own public function.
 * A function of that name in the program is found first by the dynamic linker, so the
 * library calls ours, which passes this server's answers on and sends a problem document
 * in place of the library's.  Were the library linked statically, its answers would keep
 * its own text and the right status.
 * Left to the library alone: 505 for a version it does not speak, and a request
 * line without a path or with blanks in it, upon which it closes the connection
 * without a word.
 */
#include "server/srv.h"

#include <dlfcn.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

typedef enum MHD_Result queue_response_fn(struct MHD_Connection *, unsigned,
                                          struct MHD_Response *);

static queue_response_fn *library_queue_response;
static struct srv_server *library_server;

/* Once, before the daemon starts; false when the library lacks the function. */
bool srv_library_setup(struct srv_server *server)
{
    void *const symbol = dlsym(RTLD_NEXT, "MHD_queue_response");

    library_server = server;
    memcpy(&library_queue_response, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* The problem that goes with a status of the library; false = none of ours. */
static bool kind_of(unsigned status, enum api_problem_kind *kind)
{
    static const struct {
        unsigned status;
        enum api_problem_kind kind;
    } KINDS[] = {
        {400, API_P_BAD_REQUEST},  {413, API_P_BODY_TOO_LARGE},
        {414, API_P_URI_TOO_LONG}, {431, API_P_HEADERS_TOO_LARGE},
        {500, API_P_INTERNAL},     {501, API_P_TRANSFER_CODING},
    };

    for (size_t k = 0; k < COUNT(KINDS); k++)
        if (KINDS[k].status == status) {
            *kind = KINDS[k].kind;
            return true;
        }
    return false;
}

/* Answers in the library's place, straight to the socket; where it has not even read a
   request line, with a record that lives for this one call. */
static void answer(struct srv_connection *connection, struct srv_request *request,
                   enum api_problem_kind kind)
{
    const bool nameless = request == NULL;

    if (nameless) {
        request = srv_request_new(library_server);
        if (request == NULL)
            return;
        request->connection = connection;
        srv_id_make(request->id, sizeof request->id);
    }
    srv_request_refuse(request, kind, NULL);
    srv_connection_send_problem(request);
    if (nameless) {
        srv_log_request(&library_server->log, request);
        srv_request_release(request);
    }
}

/* Takes the place of the library's function, for this program and for the library itself.
   MHD_NO makes the library close the connection, which is all that is left to do. */
enum MHD_Result MHD_queue_response(struct MHD_Connection *mhd, unsigned status,
                                   struct MHD_Response *response)
{
    struct srv_connection *const connection = srv_connection_of(mhd);
    struct srv_request *const request = connection == NULL ? NULL : connection->request;
    const bool ours = request != NULL && request->reply.status != 0;
    enum api_problem_kind kind;

    if (ours || connection == NULL || !kind_of(status, &kind))
        return library_queue_response(mhd, status, response);
    answer(connection, request, kind);
    return MHD_NO;
}
