/*
 * test_api_answer_audit.c - the audit's sentences, places and statuses.
 * Not here: whether a check is right (tests/core/).
 * Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "ask.h"
#include "api/api_answer.h"

static const char *sentence(const char *text, const double *fact)
{
    static struct api_buffer b;

    b.len = 0;
    cr_assert(api_put_sentence(&b, text, fact) && api_put(&b, "", 1));
    return b.p;
}

Test(api_answer_audit, facts_stand_where_their_number_says)
{
    const double fact[ATTN_FACTS_MAX] = {3,   0.25,     1e-9,      -0.0, 1e14,
                                         NAN, INFINITY, -INFINITY, -2,   1234567.25};

    cr_expect_str_eq(sentence("{0} of {1}", fact), "\"3 of 0.25\"");
    cr_expect_str_eq(sentence("{2}|{3}|{4}", fact), "\"1e-09|0|100000000000000\"");
    cr_expect_str_eq(sentence("{5} {6} {7}", fact), "\"NaN Infinity -Infinity\"");
    cr_expect_str_eq(sentence("{8}{9}", fact), "\"-21.23457e+06\"");
    cr_expect_str_eq(sentence("{x} {", fact), "\"{x} {\"");
    cr_expect_str_eq(sentence(NULL, fact), "null");
}

static json_t *written(const struct attn_audit *audit)
{
    struct api_buffer b = {0};
    json_t *json;

    cr_assert(api_puts(&b, "{") && api_put_audit(&b, audit) && api_puts(&b, "}"));
    json = json_loadb(b.p, b.len, 0, NULL);
    cr_assert(json);
    api_buffer_free(&b);
    return json;
}

Test(api_answer_audit, off_lists_every_check)
{
    struct attn_audit audit;
    json_t *json;

    api_audit_off(&audit);
    json = written(&audit);
    cr_expect_eq(json_array_size(ask_at(json, "audit.checks")), attn_check_count());
    cr_expect_str_eq(ask_text(json, "audit.status"), "not_applicable");
    for (size_t n = 0; n < attn_check_count(); n++) {
        const json_t *check = json_array_get(ask_at(json, "audit.checks"), n);

        cr_expect_str_eq(ask_text(check, "id"), attn_check_at(n)->id);
        cr_expect_str_eq(ask_text(check, "status"), "not_applicable");
        cr_expect(ask_text(check, "detail")[0] != '\0');
    }
    json_decref(json);
}

Test(api_answer_audit, the_place_is_named_as_the_axes_are)
{
    static const struct {
        enum attn_object object;
        const char *row, *column;
    } CASES[] = {
        {ATTN_S, "query", "key"},     {ATTN_Q, "query", "feature"},
        {ATTN_K, "key", "feature"},   {ATTN_V, "key", "feature"},
        {ATTN_Y, "query", "feature"}, {ATTN_M, "query", "key"},
    };

    for (size_t n = 0; n < API_COUNT(CASES); n++) {
        struct attn_audit audit = {.count = 1, .status = ATTN_FAIL};
        json_t *json;
        char path[64];

        audit.finding[0] = (struct attn_finding){.row = attn_check_at(0),
                                                 .status = ATTN_FAIL,
                                                 .object = CASES[n].object,
                                                 .gradient = -1,
                                                 .has_place = true,
                                                 .at = {1, SIZE_MAX, 2, 3}};
        json = written(&audit);
        cr_expect_eq(ask_number(json, "audit.checks.0.at.batch"), 1);
        cr_expect_null(ask_at(json, "audit.checks.0.at.head"));
        snprintf(path, sizeof path, "audit.checks.0.at.%s", CASES[n].row);
        cr_expect_eq(ask_number(json, path), 2, "row of %s",
                     ATTN_OBJECTS[CASES[n].object].name);
        snprintf(path, sizeof path, "audit.checks.0.at.%s", CASES[n].column);
        cr_expect_eq(ask_number(json, path), 3, "column of %s",
                     ATTN_OBJECTS[CASES[n].object].name);
        json_decref(json);
    }
}
