/*
 * test_srv_routes.c - every row of the route table is found, and nothing else is.
 * Not here: answers (tests/http/server_routes.py).
 * Start reading at every_row_is_found.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct srv_route *find(const char *method, const char *path, bool *known)
{
    static char tail[SRV_PATH_MAX];

    return srv_route_find(method, path, tail, sizeof tail, known);
}

Test(routes, every_row_is_found)
{
    for (size_t r = 0; r < srv_route_count(); r++) {
        const struct srv_route *route = srv_route_at(r);
        char path[SRV_PATH_MAX], tail[SRV_PATH_MAX], *brace;
        bool known;

        snprintf(path, sizeof path, "%s", route->path);
        brace = strchr(path, '{');
        if (brace != NULL)
            snprintf(brace, 4, "abc");
        cr_expect_eq(srv_route_find(route->method, path, tail, sizeof tail, &known),
                     route);
        cr_expect(known);
        cr_expect_str_eq(tail, brace != NULL ? "abc" : "");
        cr_expect((route->handler == NULL) != (route->local == NULL), "%s", route->path);
        cr_expect_eq(find("BREW", path, &known), NULL);
        cr_expect(known, "%s with a wrong method is known", path);
    }
    cr_expect_eq(srv_route_at(srv_route_count()), NULL);
}

Test(routes, head_is_get)
{
    bool known;

    cr_expect_eq(find("HEAD", "/health/live", &known),
                 find("GET", "/health/live", &known));
    cr_expect_not_null(find("HEAD", "/health/live", &known));
    cr_expect_eq(find("HEAD", "/v1/attention", &known), NULL);
}

Test(routes, other_spellings_are_other_paths)
{
    static const char *const PATHS[] = {"",
                                        "/v1/attention/",
                                        "/V1/attention",
                                        "//v1/attention",
                                        "/v1/attentio",
                                        "/v1%2fattention",
                                        "/v1/examples/",
                                        "/v1/examples/a/b",
                                        "/v1/examples/%",
                                        "/v1/examples/%4",
                                        "/v1/examples/%g0",
                                        "/v1/examples/%\x10"
                                        "0",
                                        "/v1/examples/a%00b"};
    bool known;

    for (size_t p = 0; p < COUNT(PATHS); p++) {
        cr_expect_eq(find("GET", PATHS[p], &known), NULL, "%s", PATHS[p]);
        cr_expect_not(known, "%s", PATHS[p]);
    }
}

Test(routes, allow_names_the_methods)
{
    char allow[64];

    srv_route_allow("/v1/attention", allow, sizeof allow);
    cr_expect_str_eq(allow, "POST, OPTIONS");
    srv_route_allow("/v1/examples/x", allow, sizeof allow);
    cr_expect_str_eq(allow, "GET, HEAD, OPTIONS");
    srv_route_allow("/nope", allow, sizeof allow);
    cr_expect_str_eq(allow, "OPTIONS");
}

Test(target, path_without_query_and_authority)
{
    static const struct {
        const char *target, *path;
    } CASES[] = {
        {"/a", "/a"},
        {"/a?b", "/a"},
        {"/?", "/"},
        {"*", "*"},
        {"http://h/a/b?c", "/a/b"},
        {"HTTP://h:80/a", "/a"},
        {"http://h", "/"},
        {"http://h?x=/y", "/"},
    };
    char path[SRV_PATH_MAX], lengthy[SRV_PATH_MAX + 10];

    for (size_t c = 0; c < COUNT(CASES); c++) {
        cr_expect(srv_path_copy(CASES[c].target, path, sizeof path));
        cr_expect_str_eq(path, CASES[c].path);
    }
    memset(lengthy, 'a', sizeof lengthy);
    lengthy[sizeof lengthy - 1] = '\0';
    cr_expect_not(srv_path_copy(lengthy, path, sizeof path));
    cr_expect_eq(strlen(path), sizeof path - 1);
}

Test(target, percent_decoding)
{
    char out[8];

    cr_expect(srv_percent_decode("a%20%C3%a9", out, sizeof out));
    cr_expect_str_eq(out, "a \xc3\xa9");
    cr_expect(srv_percent_decode("1234567", out, sizeof out));
    cr_expect_not(srv_percent_decode("12345678", out, sizeof out));
}
