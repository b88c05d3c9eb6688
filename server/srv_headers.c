/*
 * srv_headers.c - the header lines this server reads, and HTTP's rules about them.
 * Not here: media types and tokens (srv_negotiate.c); the library that cuts the lines.
 * Start reading at HEADERS, then srv_request_check.
 */
#include "server/srv.h"

#include <string.h>
#include <strings.h>

enum {
    TARGET_MAX_BYTES = 8 << 10,
    HEADERS_MAX_BYTES = 16 << 10,
    DISCARD_MAX_BYTES = 64 << 10 /* of a refused request's body, to keep its connection */
};

#define FIELD(f) offsetof(struct srv_headers, f)

/* clang-format off */
static const struct {
    const char *name;
    size_t field;
    bool once;                   /* standing twice is an error, not a list */
} HEADERS[] = {
    { "Host",              FIELD(host),              true  },
    { "Content-Length",    FIELD(content_length),    true  },
    { "Transfer-Encoding", FIELD(transfer_encoding), true  },
    { "Content-Type",      FIELD(content_type),      true  },
    { "Content-Encoding",  FIELD(content_encoding),  true  },
    { "Expect",            FIELD(expect),            true  },
    { "Origin",            FIELD(origin),            true  },
    { "X-Request-Id",      FIELD(request_id),        true  },
    { "Accept-Encoding",   FIELD(accept_encoding),   false },
    { "Accept",            FIELD(accept),            false },
};
/* clang-format on */

/* Several Accept lines are one list. */
static void accept_join(struct srv_headers *headers, const char *value)
{
    const size_t first = strlen(headers->accept), second = strlen(value);

    if (first + second + 2 > sizeof headers->accept_joined) {
        headers->too_long = true;
        return;
    }
    if (headers->accept != headers->accept_joined)
        memcpy(headers->accept_joined, headers->accept, first);
    headers->accept_joined[first] = ',';
    memcpy(headers->accept_joined + first + 1, value, second + 1);
    headers->accept = headers->accept_joined;
}

static bool value_is_clean(const char *value)
{
    for (const unsigned char *c = (const unsigned char *)value; *c != '\0'; c++)
        if ((*c < ' ' && *c != '\t') || *c == 0x7f)
            return false;
    return true;
}

/* Records one header line; the strings must stay where they are. */
void srv_headers_add(struct srv_headers *headers, const char *name, const char *value)
{
    headers->bytes += strlen(name) + strlen(value) + strlen(": \r\n");
    if (!srv_is_token(name) || !value_is_clean(value))
        headers->malformed = true;
    for (size_t h = 0; h < COUNT(HEADERS); h++) {
        const char *known;

        if (strcasecmp(name, HEADERS[h].name) != 0)
            continue;
        memcpy(&known, (char *)headers + HEADERS[h].field, sizeof known);
        if (known == NULL)
            memcpy((char *)headers + HEADERS[h].field, &value, sizeof value);
        else if (HEADERS[h].once)
            headers->repeated = true;
        else if (HEADERS[h].field == FIELD(accept))
            accept_join(headers, value);
        return;
    }
}

static void refuse_close(struct srv_request *request, enum api_problem_kind kind,
                         const char *detail)
{
    srv_request_refuse(request, kind, detail);
    request->problem.close = true;
}

/* Where the message ends must be beyond doubt, or what follows could be read as a
   request. */
static void check_framing(struct srv_request *request, bool http_1_1)
{
    const struct srv_headers *h = &request->headers;

    if (request->target_bytes > TARGET_MAX_BYTES)
        refuse_close(request, API_P_URI_TOO_LONG, NULL);
    else if (h->bytes > HEADERS_MAX_BYTES || h->too_long)
        refuse_close(request, API_P_HEADERS_TOO_LARGE, NULL);
    else if (h->malformed)
        refuse_close(request, API_P_BAD_REQUEST,
                     "A header line holds a character that HTTP forbids there.");
    else if (h->repeated)
        refuse_close(
            request, API_P_BAD_REQUEST,
            "A header that may stand only once (Host, Content-Length, Content-Type, "
            "…) stands twice.");
    else if (http_1_1 && h->host == NULL)
        refuse_close(request, API_P_BAD_REQUEST, "The Host header is missing.");
    else if (h->transfer_encoding != NULL && h->content_length != NULL)
        refuse_close(request, API_P_BAD_REQUEST,
                     "Transfer-Encoding and Content-Length exclude each other.");
    else if (h->transfer_encoding != NULL && !http_1_1)
        refuse_close(request, API_P_BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding.");
    else if (h->transfer_encoding != NULL &&
             !srv_token_is(h->transfer_encoding, "chunked"))
        refuse_close(request, API_P_TRANSFER_CODING, NULL);
    else if (h->content_length != NULL &&
             !srv_length_read(h->content_length, &request->declared_bytes))
        refuse_close(request, API_P_BAD_REQUEST, "Content-Length is not a whole number.");
    request->chunked = h->transfer_encoding != NULL;
}

static void check_route(struct srv_request *request)
{
    bool path_known;

    request->route = srv_route_find(request->method, request->path, request->tail,
                                    sizeof request->tail, &path_known);
    if (request->route != NULL)
        return;
    if (!path_known) {
        srv_request_refuse(request, API_P_NOT_FOUND, NULL);
        return;
    }
    srv_request_refuse(request, API_P_METHOD, NULL);
    srv_route_allow(request->path, request->allow, sizeof request->allow);
}

static void check_expect(struct srv_request *request, bool http_1_1)
{
    const char *expect = request->headers.expect;

    if (expect != NULL && http_1_1 && !srv_token_is(expect, "100-continue"))
        srv_request_refuse(request, API_P_EXPECTATION, NULL);
}

static void check_body_size(struct srv_request *request)
{
    const size_t max = request->server->limits.body_max_bytes;

    if (request->declared_bytes <= max)
        return;
    srv_request_refuse_size(request, (size_t)request->declared_bytes);
    request->problem.close = true;
}

/* "application/json or application/…", as a sentence. */
static void refuse_type(struct srv_request *request, const char *const *types)
{
    char *const text = request->detail;
    const size_t size = sizeof request->detail;

    snprintf(text, size, "The body must be sent with Content-Type: ");
    for (size_t n = 0; types[n] != NULL; n++)
        snprintf(text + strlen(text), size - strlen(text), "%s%s", n > 0 ? " or " : "",
                 types[n]);
    snprintf(text + strlen(text), size - strlen(text), ".");
    srv_request_refuse(request, API_P_MEDIA_TYPE, text);
}

static void check_media(struct srv_request *request)
{
    static const char *const JSON[] = {API_JSON, NULL};
    const struct srv_headers *h = &request->headers;
    const struct srv_route *route = request->route;
    const char *const *takes = route->takes != NULL ? route->takes : JSON;

    if (route->answers != NULL)
        request->answer_type = srv_type_choose(h->accept, route->answers);
    request->body_type = srv_type_find(h->content_type, takes);
    if (route->worker && h->content_length == NULL && !request->chunked)
        srv_request_refuse(request, API_P_LENGTH_REQUIRED, NULL);
    else if (route->worker && !srv_is_identity(h->content_encoding))
        srv_request_refuse(
            request, API_P_MEDIA_TYPE,
            "Compressed request bodies are not accepted: send the body without "
            "Content-Encoding.");
    else if (route->worker && request->body_type == NULL)
        refuse_type(request, takes);
    else if (route->answers != NULL && request->answer_type == NULL)
        srv_request_refuse(request, API_P_NOT_ACCEPTABLE, NULL);
}

/* A refused body that is small is read and dropped so that the connection lives
   on; a large one, or one that waits for our 100, is refused at once and the
   connection closed. */
static bool body_is_worth_reading(const struct srv_request *request)
{
    return !request->chunked && request->headers.expect == NULL &&
           request->declared_bytes <= DISCARD_MAX_BYTES;
}

/*
 * Judges a request by its header alone: sets `route`, or the first problem found.
 * problem.close says that it must be answered now, without reading on.
 */
void srv_request_check(struct srv_request *request, bool http_1_1)
{
    check_framing(request, http_1_1);
    if (!request->problem.set)
        check_expect(request, http_1_1);
    if (!request->problem.set)
        check_body_size(request);
    if (!request->problem.set && strcmp(request->method, "OPTIONS") == 0) {
        request->preflight = true;
        return;
    }
    if (!request->problem.set)
        check_route(request);
    if (!request->problem.set)
        check_media(request);
    if (request->problem.set && !body_is_worth_reading(request))
        request->problem.close = true;
}
