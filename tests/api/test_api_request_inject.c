/* test_api_request_inject.c - a fault with its constant and its seed. */
#include "read_body.h"

#include <criterion/criterion.h>
#include <string.h>

Test(api_request_inject, a_name_alone_gives_neither_constant_nor_seed)
{
    const struct read *read = accepted("\"inject\":\"scale_other\"");

    cr_expect_str_eq(attn_fault_name(read->r.inject), "scale_other");
    cr_expect(!read->r.inject_has_parameter && !read->r.inject_has_seed);
    read = accepted("\"inject\":{\"fault\":\"scale_missing\"}");
    cr_expect_str_eq(attn_fault_name(read->r.inject), "scale_missing");
    cr_expect(!read->r.inject_has_parameter && !read->r.inject_has_seed);
}

Test(api_request_inject, members_come_in_any_order)
{
    const struct read *read = accepted(
        "\"inject\":{\"seed\":7,\"parameter\":0.25,\"fault\":\"dropout_in_eval\"}");

    cr_expect_str_eq(attn_fault_name(read->r.inject), "dropout_in_eval");
    cr_expect(read->r.inject_has_parameter && read->r.inject_parameter == 0.25);
    cr_expect(read->r.inject_has_seed && read->r.inject_seed == 7);
}

Test(api_request_inject, what_the_fault_does_not_take_is_refused)
{
    refused("\"inject\":{\"fault\":\"scale_missing\",\"parameter\":2}", "contradiction",
            "/inject/parameter");
    refused("\"inject\":{\"fault\":\"scale_missing\",\"seed\":2}", "contradiction",
            "/inject/seed");
    refused("\"inject\":{\"fault\":\"scale_other\",\"seed\":2}", "contradiction",
            "/inject/seed");
}

Test(api_request_inject, out_of_range_is_refused)
{
    refused("\"inject\":{\"fault\":\"dropout_in_eval\",\"parameter\":0}", "bad-value",
            "/inject/parameter");
    refused("\"inject\":{\"fault\":\"dropout_in_eval\",\"parameter\":1}", "bad-value",
            "/inject/parameter");
    refused("\"inject\":{\"fault\":\"window_other_width\",\"parameter\":1.5}",
            "bad-value", "/inject/parameter");
    refused("\"inject\":{\"fault\":\"scale_other\",\"parameter\":1e300}", "bad-value",
            "/inject/parameter");
    refused("\"inject\":{\"fault\":\"dropout_in_eval\",\"seed\":-1}", "bad-value",
            "/inject/seed");
}

Test(api_request_inject, other_forms_are_refused)
{
    refused("\"inject\":{\"parameter\":2}", "missing", "/inject/fault");
    refused("\"inject\":{\"fault\":3}", "wrong-type", "/inject/fault");
    refused("\"inject\":{\"fault\":{\"fault\":\"scale_other\"}}", "wrong-type",
            "/inject/fault");
    refused("\"inject\":{\"fault\":\"scale_othe\"}", "unknown-name", "/inject/fault");
    refused("\"inject\":{\"fault\":\"scale_other\",\"parameter\":\"2\"}", "wrong-type",
            "/inject/parameter");
    refused("\"inject\":{\"fault\":\"scale_other\",\"value\":2}", "unknown-field",
            "/inject/value");
}
