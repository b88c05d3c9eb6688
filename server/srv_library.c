/*
 * srv_library.c - makes the HTTP library's own error answers problem documents like all others.
 * Not here: errors this server finds itself (srv_headers.c).
 * Start reading at error_response.
 *
 * The library refuses some requests before anybody is asked: a malformed chunk, a Content-Length
 * that is no number, a header larger than its memory.  It has no hook for the text it then sends,
 * but it makes that answer by calling its own public function, which this program never calls.
 * A function of that name in the program is found first by the dynamic linker, so the library
 * calls ours.  Linked statically or against a library without this call, the answer keeps the
 * library's text and the right status.
 */
#include "server/srv.h"

#include <microhttpd.h>
#include <string.h>

static struct srv_server *library_server;
static _Thread_local unsigned refused_status;

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
                                                     enum MHD_ResponseMemoryMode mode);
struct MHD_Response *MHD_create_response_from_buffer_static(size_t size, const void *buffer);

void srv_library_setup(struct srv_server *server) { library_server = server; }

/* The library says which status it is about to answer with just before it does. */
void srv_library_log(void *arg, const char *format, va_list args)
{
    (void)arg;
    if (strncmp(format, "Error processing request", 24) == 0)
        refused_status = va_arg(args, unsigned);
}

static void response_header(void *response, const char *name, const char *value)
{
    MHD_add_response_header(response, name, value);
}

static void response_freed(void *bytes)
{
    struct api_buffer buffer = { .p = bytes };

    api_buffer_free(&buffer);
}

/* The problem that goes with a status of the library; API_PROBLEM_COUNT = none of ours. */
static enum api_problem_kind kind_of(unsigned status)
{
    static const struct {
        unsigned status;
        enum api_problem_kind kind;
    } KINDS[] = {
        { 400, API_P_BAD_REQUEST },  { 413, API_P_BODY_TOO_LARGE },
        { 414, API_P_URI_TOO_LONG }, { 431, API_P_HEADERS_TOO_LARGE },
        { 500, API_P_INTERNAL },     { 501, API_P_TRANSFER_CODING },
    };

    for (size_t k = 0; k < COUNT(KINDS); k++)
        if (KINDS[k].status == status)
            return KINDS[k].kind;
    return API_PROBLEM_COUNT;
}

static struct MHD_Response *error_response(size_t size, void *text)
{
    const enum api_problem_kind kind = kind_of(refused_status);
    struct srv_request request = { .server = library_server };
    struct MHD_Response *response;

    refused_status = 0;
    if (kind == API_PROBLEM_COUNT || library_server == NULL)
        return MHD_create_response_from_buffer_with_free_callback_cls(size, text, NULL, NULL);
    srv_id_make(request.id, sizeof request.id);
    request.problem = (struct srv_problem){ .set = true, .kind = kind };
    srv_request_write_problem(&request);
    response = MHD_create_response_from_buffer_with_free_callback_cls(
        request.out.len, request.out.p, response_freed, request.out.p);
    if (response == NULL) {
        api_buffer_free(&request.out);
        return NULL;
    }
    srv_reply_headers(&request, response_header, response);
    return response;
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *buffer,
                                                     enum MHD_ResponseMemoryMode mode)
{
    (void)mode;                  /* the library's own texts are static */
    return error_response(size, buffer);
}

struct MHD_Response *MHD_create_response_from_buffer_static(size_t size, const void *buffer)
{
    union {
        const void *from;
        void *to;
    } text = { .from = buffer };

    return error_response(size, text.to);
}
