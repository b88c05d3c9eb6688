/* test_api_error.c - problem documents: the first failure, its members, every kind. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <string.h>

static struct api_buffer out;

static json_t *written(const struct api_err *err, struct api_reply *reply)
{
    json_t *json;

    *reply = (struct api_reply){.out = &out};
    api_reply_error(reply, "id \"1\"", err);
    json = json_loadb(out.p, out.len, JSON_REJECT_DUPLICATES, NULL);
    cr_assert(json != NULL, "%.*s", (int)out.len, out.p);
    cr_expect_str_eq(reply->content_type, "application/problem+json");
    cr_expect(json_integer_value(json_object_get(json, "status")) == reply->status);
    cr_expect(json_string_length(json_object_get(json, "title")) > 0);
    cr_expect(json_string_length(json_object_get(json, "detail")) > 0);
    return json;
}

static const char *text(const json_t *json, const char *name)
{
    const char *value = json_string_value(json_object_get(json, name));

    return value != NULL ? value : "";
}

Test(api_error, the_first_failure_wins)
{
    struct api_err err = {0};

    cr_expect(!api_fail(&err, "missing", "/a", "first"));
    cr_expect(!api_fail_numbers(&err, "wrong-shape", "/b", "W_O", 1, 2, "second"));
    cr_expect_str_eq(err.name, "missing");
    cr_expect_str_eq(err.pointer, "/a");
    cr_expect_str_eq(err.detail, "first");
}

Test(api_error, a_long_detail_ends_with_a_whole_character)
{
    char longer[2 * API_DETAIL_MAX + 1] = "";
    struct api_err err = {0};

    for (size_t n = 0; n < API_DETAIL_MAX; n++)
        memcpy(longer + 2 * n, "\xC3\xA9", 3);
    api_fail(&err, "missing", "/a", "%s", longer);
    cr_expect_eq(strlen(err.detail), API_DETAIL_MAX - 2);
    cr_expect(memcmp(err.detail, longer, API_DETAIL_MAX - 2) == 0);
}

Test(api_error, writes_both_numbers_and_the_place)
{
    struct api_err err = {0};
    struct api_reply reply;
    json_t *json;

    api_fail_numbers(&err, "wrong-shape", "/weights/W_O", "W_O", 6, 10, "%d, not %d", 6,
                     10);
    json = written(&err, &reply);
    cr_expect(reply.status == 422);
    cr_expect_str_eq(reply.error, "wrong-shape");
    cr_expect_str_eq(text(json, "type"), "/problems/wrong-shape");
    cr_expect_str_eq(text(json, "detail"), "6, not 10");
    cr_expect_str_eq(text(json, "pointer"), "/weights/W_O");
    cr_expect_str_eq(text(json, "object"), "W_O");
    cr_expect_str_eq(text(json, "expected"), "6");
    cr_expect_str_eq(text(json, "observed"), "10");
    cr_expect_str_eq(text(json, "request_id"), "id \"1\"");
    json_decref(json);
}

Test(api_error, an_empty_pointer_is_the_whole_body)
{
    struct api_err with = {0}, without = {0};
    struct api_reply reply;
    json_t *json;

    api_fail(&with, "not-json", "", "x");
    json = written(&with, &reply);
    cr_expect(json_is_string(json_object_get(json, "pointer")));
    json_decref(json);
    api_fail(&without, "deadline", NULL, "x");
    json = written(&without, &reply);
    cr_expect(json_object_get(json, "pointer") == NULL && reply.status == 504);
    json_decref(json);
}

Test(api_error, every_kind_of_the_server_has_its_status)
{
    static const int STATUS[] = {
        [API_P_BAD_REQUEST] = 400,
        [API_P_NOT_FOUND] = 404,
        [API_P_METHOD] = 405,
        [API_P_NOT_ACCEPTABLE] = 406,
        [API_P_TIMEOUT] = 408,
        [API_P_LENGTH_REQUIRED] = 411,
        [API_P_BODY_TOO_LARGE] = 413,
        [API_P_URI_TOO_LONG] = 414,
        [API_P_MEDIA_TYPE] = 415,
        [API_P_EXPECTATION] = 417,
        [API_P_HEADERS_TOO_LARGE] = 431,
        [API_P_INTERNAL] = 500,
        [API_P_TRANSFER_CODING] = 501,
        [API_P_OVERLOADED] = 503,
        [API_P_DRAINING] = 503,
        [API_P_DEADLINE] = 504,
    };

    cr_assert(API_COUNT(STATUS) == API_PROBLEM_COUNT);
    for (int kind = 0; kind < API_PROBLEM_COUNT; kind++) {
        struct api_reply reply = {.out = &out};
        json_t *json;

        api_problem(&reply, NULL, (enum api_problem_kind)kind, NULL, kind % 2 == 0, 7, 9);
        json = json_loadb(out.p, out.len, 0, NULL);
        cr_expect(reply.status == STATUS[kind], "kind %d has %d", kind, reply.status);
        cr_expect((reply.retry_after_s > 0) == (STATUS[kind] == 503), "kind %d", kind);
        cr_expect_str_eq(text(json, "expected"), kind % 2 == 0 ? "7" : "");
        cr_expect_str_eq(text(json, "observed"), kind % 2 == 0 ? "9" : "");
        cr_expect(json_object_get(json, "request_id") == NULL);
        json_decref(json);
    }
}

Test(api_error, a_text_of_the_caller_replaces_the_sentence)
{
    struct api_reply reply = {.out = &out};
    json_t *json;

    api_problem(&reply, "r", API_P_BODY_TOO_LARGE, "100%s too many", true, 1, 2);
    json = json_loadb(out.p, out.len, 0, NULL);
    cr_expect_str_eq(text(json, "detail"), "100%s too many");
    json_decref(json);
}
