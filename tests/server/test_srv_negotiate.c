/*
 * test_srv_negotiate.c - media types, tokens, lengths and request ids as clients
 * write them.
 * Not here: what the server makes of them (test_srv_headers.c).
 * Start reading at the tables.
 */
#include "server/srv.h"

#include <criterion/criterion.h>
#include <string.h>

Test(accept, closest_range_decides)
{
    static const struct {
        const char *accept;
        bool allowed;
    } CASES[] = {
        {NULL, true},
        {"", true},
        {"  ", true},
        {"*/*", true},
        {"application/*", true},
        {"application/json", true},
        {"APPLICATION/Json", true},
        {"application/json ; q=0.5", true},
        {"text/html,application/json", true},
        {"text/html , */*;q=0.1", true},
        {"application/json;q=0.001, */*;q=0", true},
        {"application/json;version=1;q=1", true},
        {"text/html;q=0,application/*", true},
        {"application/json;q=\"1\"", true},
        {"text/html", false},
        {"application/jsonp", false},
        {"application/jso", false},
        {"image/*", false},
        {"application/json;q=0", false},
        {"application/json;q=0.000", false},
        {"*/*;q=0", false},
        {"application/*;q=0, */*", false},
        {"application/json;q=0, application/*", false},
        {"*", false},
        {",", false},
    };

    for (size_t c = 0; c < COUNT(CASES); c++)
        cr_expect_eq(srv_accepts(CASES[c].accept, "application/json"), CASES[c].allowed,
                     "%s", CASES[c].accept ? CASES[c].accept : "(none)");
}

Test(content_type, json_in_utf_8_only)
{
    static const char *const GOOD[] = {
        "application/json", "application/json;charset=utf-8",
        "Application/JSON ; CharSet=\"UTF-8\"", "application/json; x=y; charset=utf-8"};
    static const char *const BAD[] = {"",
                                      "text/json",
                                      "application/json charset",
                                      "application/json; charset=latin-1",
                                      "application/json; charset=\"utf-8",
                                      "application/jsonx",
                                      "application/json, application/json"};

    cr_expect_not(srv_is_json(NULL));
    for (size_t g = 0; g < COUNT(GOOD); g++)
        cr_expect(srv_is_json(GOOD[g]), "%s", GOOD[g]);
    for (size_t b = 0; b < COUNT(BAD); b++)
        cr_expect_not(srv_is_json(BAD[b]), "%s", BAD[b]);
}

Test(content_length, digits_only)
{
    static const char *const BAD[] = {"",   " ",    "-1",  "+1",  "1 1",
                                      "1,", "0x10", "1.0", "1e3", "18446744073709551616"};
    uint64_t length = 7;

    for (size_t b = 0; b < COUNT(BAD); b++)
        cr_expect_not(srv_length_read(BAD[b], &length), "%s", BAD[b]);
    cr_expect(srv_length_read("18446744073709551615", &length));
    cr_expect_eq(length, UINT64_MAX);
    cr_expect(srv_length_read(" 0042\t", &length));
    cr_expect_eq(length, 42);
}

Test(token, names_of_headers)
{
    cr_expect(srv_is_token("Content-Length"));
    cr_expect(srv_is_token("x!#$%&'*+-.^_`|~9"));
    cr_expect_not(srv_is_token(""));
    cr_expect_not(srv_is_token("Content-Length "));
    cr_expect_not(srv_is_token("a:b"));
    cr_expect(srv_token_is(" Chunked ", "chunked"));
    cr_expect_not(srv_token_is("chunked, gzip", "chunked"));
    cr_expect_not(srv_token_is("chunke", "chunked"));
    cr_expect(srv_is_identity(NULL));
    cr_expect(srv_is_identity("Identity"));
    cr_expect_not(srv_is_identity("gzip"));
    cr_expect_not(srv_is_identity(""));
}

Test(request_id, safe_characters_and_length)
{
    char longest[SRV_ID_MAX + 2];

    memset(longest, 'a', sizeof longest);
    longest[SRV_ID_MAX + 1] = '\0';
    cr_expect_not(srv_id_is_sane(longest));
    longest[SRV_ID_MAX] = '\0';
    cr_expect(srv_id_is_sane(longest));
    cr_expect(srv_id_is_sane("A-z_0.9"));
    cr_expect_not(srv_id_is_sane(NULL));
    cr_expect_not(srv_id_is_sane(""));
    cr_expect_not(srv_id_is_sane("a b"));
    cr_expect_not(srv_id_is_sane("a\"b"));
    cr_expect_not(srv_id_is_sane("\xc3\xa9"));
}

Test(request_id, made_ids_differ)
{
    enum { N = 2000 };
    static char id[N][SRV_ID_MAX + 1];

    for (size_t n = 0; n < N; n++) {
        srv_id_make(id[n], sizeof id[n]);
        cr_assert_eq(strlen(id[n]), 16);
        cr_assert(srv_id_is_sane(id[n]));
        for (size_t m = 0; m < n; m++)
            cr_assert_str_neq(id[n], id[m]);
    }
}
