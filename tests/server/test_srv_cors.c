/*
 * test_srv_cors.c - which origins get which headers.
 * Not here: that every answer carries them (tests/http/server_routes.py).
 * Start reading at allowed_origin.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <string.h>

struct seen {
    char origin[64];
    bool vary, methods;
};

static void see(void *arg, const char *name, const char *value)
{
    struct seen *seen = arg;

    if (strcmp(name, "Access-Control-Allow-Origin") == 0)
        snprintf(seen->origin, sizeof seen->origin, "%s", value);
    seen->vary = seen->vary || strcmp(name, "Vary") == 0;
    seen->methods = seen->methods || strcmp(name, "Access-Control-Allow-Methods") == 0;
}

Test(cors, allowed_origin)
{
    static const struct {
        const char *origins, *origin, *allowed;
    } CASES[] = {
        {"*", NULL, "*"},
        {"*", "http://a", "*"},
        {"", "http://a", ""},
        {"http://a,https://b:8", "http://a", "http://a"},
        {"http://a,https://b:8", "https://b:8", "https://b:8"},
        {"http://a,https://b:8", "https://b", ""},
        {"http://a,https://b:8", "http://a,https://b:8", ""},
        {"http://a", "http://ab", ""},
        {"http://a", "", ""},
        {"http://a", NULL, ""},
    };

    for (size_t c = 0; c < COUNT(CASES); c++)
        for (int preflight = 0; preflight <= 1; preflight++) {
            struct seen seen = {0};

            srv_cors_headers(CASES[c].origins, CASES[c].origin, preflight, see, &seen);
            cr_expect_str_eq(seen.origin, CASES[c].allowed, "case %zu", c);
            cr_expect_eq(seen.vary, CASES[c].origins[0] != '\0', "case %zu", c);
            cr_expect_eq(seen.methods, preflight && CASES[c].allowed[0] != '\0',
                         "case %zu", c);
        }
}

Test(cors, origins_option)
{
    static const char *const GOOD[] = {"", "*", "http://a", "http://a,https://b.c:1"};
    static const char *const BAD[] = {
        "a", "http://",    "http://a/",          "http://a,",
        ",", "*,http://a", "http://a, http://b", "://a"};

    for (size_t g = 0; g < COUNT(GOOD); g++)
        cr_expect(srv_cors_origins_ok(GOOD[g]), "%s", GOOD[g]);
    for (size_t b = 0; b < COUNT(BAD); b++)
        cr_expect_not(srv_cors_origins_ok(BAD[b]), "%s", BAD[b]);
}
