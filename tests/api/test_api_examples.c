/*
 * test_api_examples.c - titles and embedded files are the same set.
 * Not here: the schemas (tests/contract/).
 * Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "ask.h"
#include "api/api_answer.h"

Test(api_examples, table_and_files_agree)
{
    cr_assert_eq(API_EXAMPLE_TITLE_COUNT, API_EXAMPLE_COUNT);
    for (size_t n = 0; n < API_EXAMPLE_COUNT; n++)
        cr_expect_str_eq(API_EXAMPLE_TITLES[n].name, API_EXAMPLES[n].name);
}

Test(api_examples, the_list_names_each)
{
    struct asked a = ask_name(api_examples, NULL);

    cr_assert_eq(a.status, 200);
    cr_expect_eq(json_array_size(ask_at(a.json, "examples")), API_EXAMPLE_COUNT);
    cr_expect_str_eq(ask_text(a.json, "examples.0.name"), API_EXAMPLES[0].name);
    asked_free(&a);
}

Test(api_examples, every_example_computes_and_passes_its_audit)
{
    for (size_t n = 0; n < API_EXAMPLE_COUNT; n++) {
        struct asked file = ask_name(api_example, API_EXAMPLES[n].name), a;
        char *body = strndup(file.reply.fixed, file.reply.fixed_len);
        const bool faulty = json_object_get(file.json, "inject") != NULL;

        cr_assert_eq(file.status, 200);
        cr_assert(file.json, "%s is not JSON", API_EXAMPLES[n].name);
        a = ask(api_attention, body);
        cr_expect_eq(a.status, 200, "%s: %s", API_EXAMPLES[n].name,
                     ask_text(a.json, "detail"));
        cr_expect_str_eq(ask_text(a.json, "audit.status"), faulty ? "fail" : "pass", "%s",
                         API_EXAMPLES[n].name);
        asked_free(&a);
        asked_free(&file);
        free(body);
    }
}

Test(api_examples, an_unknown_name_is_not_found)
{
    static const char *const NAMES[] = {"none", "", "ln", "ln3.json", NULL};

    for (size_t n = 0; n < API_COUNT(NAMES); n++) {
        struct asked a = ask_name(api_example, NAMES[n]);

        cr_expect_eq(a.status, 404);
        cr_expect_str_eq(ask_text(a.json, "type"), "/problems/not-found");
        asked_free(&a);
    }
}
