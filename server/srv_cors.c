/*
 * srv_cors.c - which web origins may call, and the headers that tell a browser so.
 * Not here: who may call at all; browsers alone obey these headers.
 * Start reading at srv_cors_headers.
 */
#include "server/srv.h"

#include <string.h>

/* "*", nothing, or a comma list of scheme://host[:port] without a path. */
bool srv_cors_origins_ok(const char *origins)
{
    if (*origins == '\0' || strcmp(origins, "*") == 0)
        return true;
    for (;;) {
        const size_t length = strcspn(origins, ",");
        const char *scheme = strstr(origins, "://");

        if (scheme == NULL || scheme == origins || scheme + 3 >= origins + length)
            return false;
        if (memchr(scheme + 3, '/', (size_t)(origins + length - scheme - 3)) != NULL)
            return false;
        for (size_t c = 0; c < length; c++)
            if (origins[c] <= ' ' || origins[c] >= 0x7f)
                return false;
        if (origins[length] == '\0')
            return true;
        origins += length + 1;
    }
}

static bool origin_listed(const char *origins, const char *origin)
{
    const size_t wanted = strlen(origin);

    while (*origins != '\0') {
        const size_t length = strcspn(origins, ",");

        if (length == wanted && strncmp(origins, origin, length) == 0)
            return true;
        origins += length + (origins[length] == ',');
    }
    return false;
}

/*
 * Adds the headers of the Fetch standard's CORS protocol to an answer, errors included.
 * With "*" every origin may read every answer (there are no cookies to protect); with a
 * list the origin is named back when it is on it, and is told nothing otherwise.
 */
void srv_cors_headers(const char *origins, const char *origin, bool preflight,
                      srv_header_fn *add, void *arg)
{
    const bool all = strcmp(origins, "*") == 0;

    if (*origins == '\0')
        return;
    add(arg, "Vary", "Origin");
    if (!all && (origin == NULL || !origin_listed(origins, origin)))
        return;
    add(arg, "Access-Control-Allow-Origin", all ? "*" : origin);
    if (!preflight) {
        add(arg, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After, Allow");
        return;
    }
    add(arg, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
    add(arg, "Access-Control-Allow-Headers", "Accept, Content-Type, X-Request-Id");
    add(arg, "Access-Control-Max-Age", "86400");
}
