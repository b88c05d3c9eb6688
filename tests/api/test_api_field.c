/* test_api_field.c - objects by tables, pointers, near names, whole numbers, choices. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <string.h>

Test(api_field, pointers_are_escaped_and_whole)
{
    char out[API_POINTER_MAX], longer[400];

    cr_expect_str_eq(api_pointer(out, "", "a/b~c"), "/a~1b~0c");
    cr_expect_str_eq(api_pointer(out, "/x", ""), "/x/");
    cr_expect_str_eq(api_pointer_index(out, "/x", 12), "/x/12");
    memset(longer, '~', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    cr_expect_str_eq(api_pointer(out, "/x", longer), "/x");
    cr_expect_str_eq(api_pointer(out, out, longer), "/x");
}

Test(api_field, a_pointer_fits_exactly_when_the_name_is_taken)
{
    static const char *const LASTS[] = {"a", "~", "/"};

    for (size_t c = 0; c < API_COUNT(LASTS); c++)
        for (size_t len = API_POINTER_MAX - 8; len < API_POINTER_MAX + 8; len++) {
            char out[API_POINTER_MAX], name[API_POINTER_MAX + 16] = "";
            size_t want;

            memset(name, 'n', len);
            name[len] = *LASTS[c];
            want = strlen("/x/") + len + (*LASTS[c] == 'a' ? 1 : 2);
            api_pointer(out, "/x", name);
            cr_expect(api_pointer_fits("/x", name) == (strlen(out) == want),
                      "%s behind %zu: %zu bytes", LASTS[c], len, strlen(out));
        }
}

static bool read_nothing(void *into, const struct api_doc *doc, const json_t *value,
                         const char *pointer, struct api_err *err)
{
    (void)into, (void)doc, (void)value, (void)pointer, (void)err;
    return true;
}

Test(api_field, an_unknown_name_without_room_leaves_what_is_around_it)
{
    static const struct api_field_row ROWS[] = {{"known", read_nothing, false}};
    char name[API_POINTER_MAX + 1];
    struct api_err err = {0};
    json_t *object;

    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    object = json_pack("{s:i}", name, 1);
    cr_expect(!api_read_object(NULL, NULL, object, "/x", ROWS, 1, &err));
    cr_expect_str_eq(err.name, "unknown-field");
    cr_expect_str_eq(err.pointer, "/x");
    json_decref(object);
}

static const char *name_at(const void *names, size_t n)
{
    return ((const char *const *)names)[n];
}

Test(api_field, finds_the_name_that_was_meant)
{
    static const char *const NAMES[] = {"causal", "padding", "documents", "X", "X_kv"};
    static const struct {
        const char *given, *meant;
    } ROWS[] = {
        {"casual", "causal"},    {"causl", "causal"}, {"document", "documents"},
        {"paddings", "padding"}, {"mask", NULL},      {"x", "X"},
        {"X_kb", "X_kv"},        {"", NULL},          {"CAUSAL", "causal"},
        {"doc", "documents"},    {"pa", NULL},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        const char *found = api_nearest(ROWS[n].given, name_at, NAMES, API_COUNT(NAMES));

        cr_expect((found == NULL) == (ROWS[n].meant == NULL), "%s: %s", ROWS[n].given,
                  found != NULL ? found : "nothing");
        if (found != NULL && ROWS[n].meant != NULL)
            cr_expect_str_eq(found, ROWS[n].meant);
    }
}

static int64_t seen;

static bool read_number(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    (void)into, (void)doc;
    return api_read_int(v, pointer, -1, 5, &seen, err);
}

static const struct api_field_row ROWS[] = {{"must", read_number, true},
                                            {"may", read_number, false}};

static struct api_err read(const char *text)
{
    struct api_err err = {0};
    struct api_doc doc = {0};
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);

    cr_assert(json != NULL);
    cr_expect(api_read_object(NULL, &doc, json, "/o", ROWS, API_COUNT(ROWS), &err) !=
              err.set);
    json_decref(json);
    return err;
}

Test(api_field, an_object_is_read_by_its_table)
{
    cr_expect(!read("{\"must\":3,\"may\":-1}").set);
    cr_expect_str_eq(read("{\"may\":3}").pointer, "/o/must");
    cr_expect_str_eq(read("{\"may\":3}").name, "missing");
    cr_expect_str_eq(read("{\"must\":3,\"mey\":1}").name, "unknown-field");
    cr_expect_str_eq(read("{\"must\":3,\"mey\":1}").pointer, "/o/mey");
    cr_expect(strstr(read("{\"must\":3,\"mey\":1}").detail, "\"may\"") != NULL);
    cr_expect_str_eq(read("3").name, "wrong-type");
}

Test(api_field, whole_numbers_are_whole_and_within_bounds)
{
    static const struct {
        const char *text, *name;
    } BAD[] = {
        {"{\"must\":6}", "bad-value"},     {"{\"must\":-2}", "bad-value"},
        {"{\"must\":1.5}", "bad-value"},   {"{\"must\":1e300}", "bad-value"},
        {"{\"must\":true}", "wrong-type"}, {"{\"must\":\"1\"}", "wrong-type"},
        {"{\"must\":null}", "wrong-type"},
    };

    for (size_t n = 0; n < API_COUNT(BAD); n++)
        cr_expect(strcmp(read(BAD[n].text).name, BAD[n].name) == 0, "%s", BAD[n].text);
    cr_expect(!read("{\"must\":2.0}").set && seen == 2);
    cr_expect_str_eq(read("{\"must\":6}").observed, "6");
    cr_expect_str_eq(read("{\"must\":6}").expected, "-1 to 5");
}

Test(api_field, a_choice_lists_what_it_takes)
{
    static const char *const NAMES[] = {"zero", "uniform"};
    json_t *json = json_string("unifrom");
    struct api_err err = {0};
    int choice;

    cr_expect(!api_read_choice(json, "/e", NAMES, 2, &choice, &err));
    cr_expect_str_eq(err.name, "unknown-name");
    cr_expect(strstr(err.detail, "\"zero\", \"uniform\"") != NULL, "%s", err.detail);
    cr_expect(strstr(err.detail, "did you mean \"uniform\"?") != NULL, "%s", err.detail);
    json_string_set(json, "zero");
    cr_expect(api_read_choice(json, "/e", NAMES, 2, &choice, &err) && choice == 0);
    json_decref(json);
}

Test(api_field, a_wrong_type_names_what_was_expected_and_observed)
{
    cr_expect_str_eq(read("{\"must\":\"4\"}").expected, "a whole number");
    cr_expect_str_eq(read("{\"must\":\"4\"}").observed, "a string");
    cr_expect_str_eq(read("[]").expected, "an object");
}

static const char *numbered_at(const void *names, size_t n)
{
    static char name[16];

    (void)names;
    snprintf(name, sizeof name, "name-%zu", n);
    return n == 1 ? "" : name;
}

Test(api_field, a_list_of_names_is_cut_short)
{
    char list[API_NAMES_MAX];

    cr_expect_str_eq(api_name_list(list, numbered_at, NULL, 3), "\"name-0\", \"name-2\"");
    api_name_list(list, numbered_at, NULL, 1000);
    cr_expect_lt(strlen(list), API_NAMES_MAX - 1);
    cr_expect_str_eq(list + strlen(list) - strlen(" and 972 more"), " and 972 more", "%s",
                     list);
}
