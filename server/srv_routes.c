/*
 * srv_routes.c - which path and method lead to which function.
 * Not here: what the functions do (api/, srv_health.c).
 * Start reading at ROUTES.
 */
#include "server/srv.h"

#include <string.h>
#include <strings.h>

static const char *const JSON[] = {API_JSON, NULL};
static const char *const JSON_OR_FILE[] = {API_JSON, API_SAFETENSORS, API_OCTETS, NULL};
static const char *const PROBLEM_OR_FILE[] = {API_JSON, API_SAFETENSORS, NULL};

/* clang-format off */
static const struct srv_route ROUTES[] = {
    { "POST", "/v1/attention",       api_attention,    NULL, true,  JSON_OR_FILE,
      PROBLEM_OR_FILE, true },
    { "POST", "/v1/audit",           api_audit,        NULL, true,  JSON, NULL, false },
    { "POST", "/v1/probe",           api_probe,        NULL, true,  JSON, NULL, false },
    { "POST", "/v1/plan",            api_plan,         NULL, true,  JSON, NULL, false },
    { "GET",  "/v1/catalog",         api_catalog,      NULL, false, JSON, NULL, false },
    { "GET",  "/v1/examples",        api_examples,     NULL, false, JSON, NULL, false },
    { "GET",  "/v1/examples/{name}", api_example,      NULL, false, JSON, NULL, false },
    { "GET",  "/openapi.yaml",       api_openapi_yaml, NULL, false, NULL, NULL, false },
    { "GET",  "/health/live",        NULL, srv_health_live,  false, NULL, NULL, false },
    { "GET",  "/health/ready",       NULL, srv_health_ready, false, NULL, NULL, false },
};
/* clang-format on */

size_t srv_route_count(void)
{
    return COUNT(ROUTES);
}

const struct srv_route *srv_route_at(size_t row)
{
    return row < COUNT(ROUTES) ? &ROUTES[row] : NULL;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* %XX to bytes.  False for a bad escape, a zero byte, or a text longer than `out`. */
bool srv_percent_decode(const char *text, char *out, size_t size)
{
    size_t n = 0;

    for (; *text != '\0'; text++) {
        char c = *text;

        if (c == '%') {
            const int high = hex_value(text[1]), low = high < 0 ? -1 : hex_value(text[2]);

            if (low < 0)
                return false;
            c = (char)(high << 4 | low);
            text += 2;
        }
        if (c == '\0' || n + 1 >= size)
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

/* The path of a request target: no query (no route reads one, so it is ignored), no
   http://authority.  False if it is too long to be any of ours; then `path` holds its
   beginning, for the log. */
bool srv_path_copy(const char *target, char *path, size_t size)
{
    size_t length;

    if (strncasecmp(target, "http://", 7) == 0) {
        target += 7 + strcspn(target + 7, "/?");
        if (*target != '/')
            target = "/";
    }
    length = strcspn(target, "?");
    srv_text_copy(path, size, target, length);
    return length < size;
}

/* Whether the path is this row's; `tail` gets what stands for {name}, decoded. */
static bool path_matches(const struct srv_route *route, const char *path, char *tail,
                         size_t tail_size)
{
    const char *brace = strchr(route->path, '{');
    const size_t fixed = brace == NULL ? 0 : (size_t)(brace - route->path);

    if (brace == NULL)
        return strcmp(path, route->path) == 0;
    return strncmp(path, route->path, fixed) == 0 && path[fixed] != '\0' &&
           strchr(path + fixed, '/') == NULL &&
           srv_percent_decode(path + fixed, tail, tail_size);
}

/* HEAD is GET without the body, which the HTTP library leaves out. */
static bool method_matches(const struct srv_route *route, const char *method)
{
    return strcmp(method, route->method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0);
}

/* The matching row; or NULL, with *path_known saying whether only the method is wrong. */
const struct srv_route *srv_route_find(const char *method, const char *path, char *tail,
                                       size_t tail_size, bool *path_known)
{
    *path_known = false;
    tail[0] = '\0';
    for (size_t r = 0; r < COUNT(ROUTES); r++) {
        if (!path_matches(&ROUTES[r], path, tail, tail_size))
            continue;
        *path_known = true;
        if (method_matches(&ROUTES[r], method))
            return &ROUTES[r];
    }
    return NULL;
}

/* The value of Allow for a path: its methods, and OPTIONS, which every path has. */
void srv_route_allow(const char *path, char *text, size_t size)
{
    char tail[SRV_PATH_MAX];

    text[0] = '\0';
    for (size_t r = 0; r < COUNT(ROUTES); r++) {
        const bool get = strcmp(ROUTES[r].method, "GET") == 0;
        const size_t used = strlen(text);

        if (path_matches(&ROUTES[r], path, tail, sizeof tail))
            snprintf(text + used, size - used, "%s, ",
                     get ? "GET, HEAD" : ROUTES[r].method);
    }
    snprintf(text + strlen(text), size - strlen(text), "OPTIONS");
}
