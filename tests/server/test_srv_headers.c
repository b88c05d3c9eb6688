/*
 * test_srv_headers.c - what a request's header is refused for, and whether that ends it.
 * Not here: the bytes on the wire (tests/http/server_framing.py).
 * Start reading at CASES.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <string.h>

enum { NONE = API_PROBLEM_COUNT, LINES = 4 };

struct header_case {
    const char *method, *path;
    const char *line[LINES][2];
    int problem; /* NONE = accepted */
    bool close;
};

/* clang-format off */
#define POST   "POST", "/v1/attention"
#define GET    "GET", "/v1/catalog"
#define JSON   { "Content-Type", "application/json" }
#define LENGTH { "Content-Length", "5" }

static const struct header_case CASES[] = {
    { POST, { JSON, LENGTH },                      NONE, false },
    { POST, { JSON, { "transfer-encoding", "Chunked" } },
      NONE, false },
    { GET,  { { 0 } },                             NONE, false },
    { GET,  { { "Accept", "text/html" }, { "Accept", "*/*" } },
      NONE, false },
    { POST, { JSON, LENGTH, { "Expect", "100-Continue" } },
      NONE, false },
    { "OPTIONS", "/nope", { { 0 } },               NONE, false },
    { POST, { JSON, LENGTH, { "Transfer-Encoding", "chunked" } },
      API_P_BAD_REQUEST, true },
    { POST, { JSON, LENGTH, LENGTH },              API_P_BAD_REQUEST, true },
    { POST, { JSON, JSON, LENGTH },                API_P_BAD_REQUEST, true },
    { POST, { JSON, { "Content-Length", "-5" } },  API_P_BAD_REQUEST, true },
    { POST, { JSON, { "Content-Length ", "5" } },  API_P_BAD_REQUEST, true },
    { GET,  { { "X", "a\x02" } },                  API_P_BAD_REQUEST, true },
    { POST, { JSON, { "Transfer-Encoding", "gzip, chunked" } },
      API_P_TRANSFER_CODING, true },
    { POST, { JSON, { "Content-Length", "1001" } },
      API_P_BODY_TOO_LARGE, true },
    { GET,  { { "Content-Length", "1001" } },      API_P_BODY_TOO_LARGE, true },
    { "OPTIONS", "/", { { "Content-Length", "1001" } },
      API_P_BODY_TOO_LARGE, true },
    { POST, { JSON, LENGTH, { "Expect", "x" } },   API_P_EXPECTATION, true },
    { POST, { JSON },                              API_P_LENGTH_REQUIRED, false },
    { POST, { LENGTH },                            API_P_MEDIA_TYPE, false },
    { POST, { LENGTH, { "Expect", "100-continue" } },
      API_P_MEDIA_TYPE, true },
    { POST, { { "Transfer-Encoding", "chunked" } },
      API_P_MEDIA_TYPE, true },
    { POST, { JSON, LENGTH, { "Content-Encoding", "gzip" } },
      API_P_MEDIA_TYPE, false },
    { POST, { JSON, LENGTH, { "Accept", "text/html" } },
      API_P_NOT_ACCEPTABLE, false },
    { "GET", "/nope", { { 0 } },                   API_P_NOT_FOUND, false },
    { "GET", "/v1/attention", { { 0 } },           API_P_METHOD, false },
};
/* clang-format on */

static void check(const struct header_case *c, struct srv_request *request,
                  struct srv_server *server)
{
    request->server = server;
    snprintf(request->method, sizeof request->method, "%s", c->method);
    snprintf(request->path, sizeof request->path, "%s", c->path);
    srv_headers_add(&request->headers, "Host", "t");
    for (size_t l = 0; l < LINES && c->line[l][0] != NULL; l++)
        srv_headers_add(&request->headers, c->line[l][0], c->line[l][1]);
    srv_request_check(request, true);
}

Test(headers, every_case)
{
    static struct srv_server server = {.limits.body_max_bytes = 1000};

    for (size_t c = 0; c < COUNT(CASES); c++) {
        struct srv_request request = {0};
        int problem;

        check(&CASES[c], &request, &server);
        problem = request.problem.set ? (int)request.problem.kind : NONE;
        cr_expect_eq(problem, CASES[c].problem, "case %zu: problem %d", c, problem);
        cr_expect_eq(request.problem.close, CASES[c].close, "case %zu: close", c);
        cr_expect_eq(request.allow[0] != '\0', problem == API_P_METHOD, "case %zu: allow",
                     c);
    }
}

Test(headers, host_is_needed_in_1_1)
{
    static struct srv_server server = {.limits.body_max_bytes = 1000};
    struct srv_request request = {
        .server = &server, .method = "GET", .path = "/health/live"};

    srv_request_check(&request, false);
    cr_expect_not(request.problem.set);
    srv_request_check(&request, true);
    cr_expect_eq(request.problem.kind, API_P_BAD_REQUEST);
}

Test(headers, sizes)
{
    static struct srv_server server = {.limits.body_max_bytes = 1000};
    struct srv_request uri = {.server = &server, .method = "GET", .target_bytes = 9000};
    struct srv_request large = {.server = &server, .method = "GET"};
    static char value[17000];

    srv_headers_add(&uri.headers, "Host", "t");
    srv_request_check(&uri, true);
    cr_expect_eq(uri.problem.kind, API_P_URI_TOO_LONG);
    memset(value, 'a', sizeof value - 1);
    srv_headers_add(&large.headers, "Host", "t");
    srv_headers_add(&large.headers, "X", value);
    srv_request_check(&large, true);
    cr_expect_eq(large.problem.kind, API_P_HEADERS_TOO_LARGE);
}

Test(headers, accept_lines_are_one_list)
{
    struct srv_headers headers = {0};
    static char lengthy[SRV_ACCEPT_MAX];

    srv_headers_add(&headers, "accept", "a/b");
    srv_headers_add(&headers, "ACCEPT", "c/d");
    srv_headers_add(&headers, "Accept", "e/f");
    cr_expect_str_eq(headers.accept, "a/b,c/d,e/f");
    memset(lengthy, 'a', sizeof lengthy - 1);
    srv_headers_add(&headers, "Accept", lengthy);
    cr_expect(headers.too_long);
}
