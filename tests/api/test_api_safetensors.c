/*
 * test_api_safetensors.c - files as requests and answers: bytes, names, refusals.
 * Not here: the safetensors package of PyPI (tests/http/run_safetensors.py).
 * Start reading at file_of.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"

static char file[1 << 16];

/* A file of this header, its JSON padded as it is, and `len` bytes of data. */
static size_t file_of(const char *header, const void *data, size_t len)
{
    const size_t size = strlen(header);

    for (unsigned n = 0; n < 8; n++)
        file[n] = (char)(size >> 8 * n);
    memcpy(file + 8, header, size);
    if (len > 0)
        memcpy(file + 8 + size, data, len);
    return 8 + size + len;
}

static struct asked send_file(size_t len, const char *answer_type)
{
    const struct api_call call = {.request_id = "r-1",
                                  .method = "POST",
                                  .path = "/",
                                  .body_type = API_SAFETENSORS,
                                  .answer_type = answer_type,
                                  .body = file,
                                  .body_len = len};

    return ask_call(api_attention, &call);
}

#define PROBLEM                                                                          \
    "\"__metadata__\":{\"format\":\"np\",\"attentiond\":\"{\\\"weights\\\":{\\\"W_O\\\"" \
    ":null},\\\"return\\\":[\\\"Q\\\",\\\"S\\\",\\\"allowed\\\"],\\\"audit\\\":"         \
    "\\\"off\\\"}\"}"
#define MATRIX(name, begin, end)                                                       \
    "\"" name "\":{\"dtype\":\"F64\",\"shape\":[2,2],\"data_offsets\":[" begin "," end \
    "]}"

/* X, W_Q, W_K and W_V are one after the other; W_O is null. */
static const double FOUR[16] = {1, 2, 3, 4, 1, 0, 0, 1, 2, 0, 0, 2, 1, 1, 1, 1};

Test(api_safetensors, tensors_stand_in_for_those_of_the_problem)
{
    struct asked asked = send_file(
        file_of("{" PROBLEM
                "," MATRIX("W_V", "96", "128") "," MATRIX("X", "0", "32") "," MATRIX(
                    "W_K", "64", "96") "," MATRIX("W_Q", "32", "64") "}   ",
                FOUR, sizeof FOUR),
        NULL);

    cr_assert_eq(asked.status, 200, "%.*s", (int)asked.out.len, asked.out.p);
    cr_expect_eq(ask_number(asked.json, "tensors.Q.1.0"), 3);
    cr_expect_eq(json_object_size(ask_at(asked.json, "tensors")), 3);
    asked_free(&asked);
}

Test(api_safetensors, the_answer_is_a_file_without_gaps)
{
    struct asked asked = send_file(
        file_of("{" PROBLEM
                "," MATRIX("X", "0", "32") "," MATRIX("W_Q", "32", "64") "," MATRIX(
                    "W_K", "64", "96") "," MATRIX("W_V", "96", "128") "}",
                FOUR, sizeof FOUR),
        API_SAFETENSORS);
    size_t size = 0;
    json_t *header, *rest;
    double q;

    cr_assert_eq(asked.status, 200);
    cr_expect_str_eq(asked.reply.content_type, API_SAFETENSORS);
    for (unsigned n = 8; n-- > 0;)
        size = size << 8 | (unsigned char)asked.out.p[n];
    cr_assert_eq(size % 8, 0);
    header = json_loadb(asked.out.p + 8, size, 0, NULL);
    cr_assert(header);
    cr_expect_str_eq(ask_text(header, "S.dtype"), "F64");
    cr_expect_str_eq(ask_text(header, "allowed.dtype"), "BOOL");
    cr_expect_eq(ask_number(header, "Q.data_offsets.0"), 0);
    cr_expect_eq(ask_number(header, "S.data_offsets.0"), 32);
    cr_expect_eq(ask_number(header, "S.data_offsets.1"), 64);
    cr_expect_eq(ask_number(header, "allowed.data_offsets.1"), 68);
    cr_expect_eq(asked.out.len, 8 + size + 68);
    memcpy(&q, asked.out.p + 8 + size + 16, sizeof q);
    cr_expect_eq(q, 3);
    rest = json_loads(ask_text(header, "__metadata__.attentiond"), 0, NULL);
    cr_expect_str_eq(ask_text(rest, "request_id"), "r-1");
    cr_expect_null(ask_at(rest, "tensors"));
    json_decref(rest);
    json_decref(header);
    asked_free(&asked);
}

static const struct refusal {
    const char *header;
    size_t data;
    int status;
    const char *type, *says;
} REFUSALS[] = {
    {"{" MATRIX("X", "0", "32") "}", 31, 400, "/problems/bad-file",
     "32; the file has 31"},
    {"{" MATRIX("X", "0", "32") "}", 33, 400, "/problems/bad-file", "33 bytes of data"},
    {"{" MATRIX("X", "8", "40") "}", 40, 400, "/problems/bad-file", "byte 8"},
    {"{" MATRIX("X", "0", "32") "," MATRIX("X_kv", "24", "56") "}", 56, 400,
     "/problems/bad-file", "ends at 32"},
    {"{" MATRIX("X", "32", "0") "}", 32, 400, "/problems/bad-file", "begins at byte 32"},
    {"{" MATRIX("X", "0", "24") "}", 24, 422, "/problems/wrong-shape", "needs 32 bytes"},
    {"{\"X\":{\"dtype\":\"I64\",\"shape\":[4],\"data_offsets\":[0,32]}}", 32, 422,
     "/problems/unknown-name", "\"BF16\""},
    {"{\"X\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296,4294967296],"
     "\"data_offsets\":[0,32]}}",
     32, 413, "/problems/too-large", "counted"},
    {"{\"X\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0]}}", 32, 400,
     "/problems/bad-file", "these are 1"},
    {"{\"X\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,32],\"x\":1}}", 32, 422,
     "/problems/unknown-field", "\"x\""},
    {"{\"X\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, 422,
     "/problems/wrong-rank", "at least one"},
    {"{" MATRIX("W_q", "0", "32") "}", 32, 422, "/problems/unknown-name", "\"W_Q\""},
    {"{" MATRIX("X", "0", "32") "," MATRIX("X", "0", "32") "}", 32, 400,
     "/problems/duplicate-key", "twice"},
    {"{\"__metadata__\":{\"attentiond\":\"{\\\"inputs\\\":{\\\"X\\\":[[1]]}}\"}," MATRIX(
         "X", "0", "32") "}",
     32, 422, "/problems/contradiction", "given twice"},
    {"{\"__metadata__\":{\"attentiond\":1}}", 0, 400, "/problems/bad-file", "one string"},
    {"{\"__metadata__\":{\"Attentiond\":\"{}\"}}", 0, 422, "/problems/unknown-field",
     "did you mean \"attentiond\""},
    {"{\"__metadata__\":{\"atentiond\":\"{}\"}}", 0, 422, "/problems/unknown-field",
     "did you mean \"attentiond\""},
    {"{\"__metadata__\":{\"request\":\"{\\\"masks\\\":{}}\"}}", 0, 422,
     "/problems/unknown-field", "did you mean \"attentiond\""},
    {"{\"__metadata__\":1}", 0, 400, "/problems/bad-file", "object of strings"},
    {"[]", 0, 400, "/problems/bad-file", "'{'"},
    {" {}", 0, 400, "/problems/bad-file", "'{'"},
    {"{]", 0, 400, "/problems/not-json", "column 2"},
};

Test(api_safetensors, refuses_what_is_no_such_file)
{
    static const char zeros[64];

    for (size_t n = 0; n < API_COUNT(REFUSALS); n++) {
        const struct refusal *want = &REFUSALS[n];
        struct asked asked =
            send_file(file_of(want->header, zeros, want->data), API_SAFETENSORS);

        cr_expect_eq(asked.status, want->status, "%s: %d", want->header, asked.status);
        cr_expect_str_eq(ask_text(asked.json, "type"), want->type, "%s: %.*s",
                         want->header, (int)asked.out.len, asked.out.p);
        cr_expect(strstr(ask_text(asked.json, "detail"), want->says), "%s: %s",
                  want->header, ask_text(asked.json, "detail"));
        asked_free(&asked);
    }
}

Test(api_safetensors, the_length_of_the_header_is_not_believed)
{
    for (size_t len = 0; len < 8; len++) {
        struct asked asked = send_file((file_of("{}", "", 0), len), NULL);

        cr_expect_eq(asked.status, 400);
        cr_expect_eq(strtod(ask_text(asked.json, "observed"), NULL), (double)len);
        asked_free(&asked);
    }
    for (unsigned byte = 0; byte < 8; byte++) {
        struct asked asked;

        file_of("{}", "", 0);
        file[byte] = (char)0xFF;
        asked = send_file(10, NULL);
        cr_expect_eq(asked.status, 400);
        cr_expect(strstr(ask_text(asked.json, "detail"), "at most 2"), "%s",
                  ask_text(asked.json, "detail"));
        asked_free(&asked);
    }
}

Test(api_safetensors, a_file_without_a_problem_says_that_nothing_was_asked)
{
    struct asked asked = send_file(
        file_of(
            "{\"__metadata__\":{\"format\":\"pt\"}," MATRIX("X", "0", "32") "," MATRIX(
                "W_Q", "32",
                "64") "," MATRIX("W_K", "64",
                                 "96") "," MATRIX("W_V", "96",
                                                  "128") "," MATRIX("W_O", "128",
                                                                    "160") "}",
            (const double[20]){1, 2, 3, 4, 1, 0, 0, 1}, 160),
        NULL);

    cr_assert_eq(asked.status, 200, "%.*s", (int)asked.out.len, asked.out.p);
    cr_expect(strstr(ask_text(asked.json, "warnings.0"), "__metadata__.attentiond"));
    asked_free(&asked);
}

Test(api_safetensors, numbers_of_a_file_must_be_finite)
{
    double four[16];
    struct asked asked;

    memcpy(four, FOUR, sizeof four);
    four[3] = (double)INFINITY;
    asked = send_file(
        file_of("{" PROBLEM
                "," MATRIX("X", "0", "32") "," MATRIX("W_Q", "32", "64") "," MATRIX(
                    "W_K", "64", "96") "," MATRIX("W_V", "96", "128") "}",
                four, sizeof four),
        NULL);
    cr_expect_str_eq(ask_text(asked.json, "type"), "/problems/not-finite");
    cr_expect_str_eq(ask_text(asked.json, "pointer"), "/inputs/X");
    cr_expect(strstr(ask_text(asked.json, "detail"), "Entry 3"));
    asked_free(&asked);
}
