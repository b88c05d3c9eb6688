/*
 * test_api_openapi.c - the contract is embedded and states this version.
 * Not here: whether the service keeps it (tests/contract/).
 * Start reading at the only test.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "ask.h"

Test(api_openapi, the_contract_is_embedded)
{
    struct asked a = ask_name(api_openapi_yaml, NULL);

    cr_assert_eq(a.status, 200);
    cr_expect_str_eq(a.reply.content_type, "application/yaml");
    cr_assert(a.reply.fixed_len > 1000);
    cr_expect(strncmp(a.reply.fixed, "openapi: 3.1", 12) == 0);
    cr_expect(strstr(a.reply.fixed, "\n  version: " API_VERSION "\n") != NULL);
    cr_expect_eq(strlen(a.reply.fixed), a.reply.fixed_len);
    asked_free(&a);
}
