/*
 * api_error.c - every problem the service can answer, and how one is written (RFC 9457).
 * Not here: where errors are found.
 * Start reading at ERRORS, then api_reply_error.  What core found is put into words in
 * api_error_core.c.
 */
#include "api/api_private.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_AFTER_S = 1 };

struct error_row {
    const char *name; /* wire name, never renamed */
    int status;
    const char *title;
    const char *sentence; /* the detail, where nobody gives a better one */
};

/* clang-format off */
static const struct error_row ERRORS[] = {
    { "bad-request", 400, "Malformed request",
      "The request is not valid HTTP." },
    { "not-json", 400, "Not JSON",
      "The body is not valid JSON." },
    { "too-deep", 400, "Nested too deeply",
      "The body is nested too deeply." },
    { "duplicate-key", 400, "Name given twice",
      "An object names a field twice." },
    { "number-out-of-range", 400, "Number out of range",
      "A number is too large." },
    { "bad-base64", 400, "Bad base64",
      "A base64 text is malformed." },
    { "bad-file", 400, "Malformed safetensors file",
      "The body is not a safetensors file." },
    { "not-found", 404, "Not found",
      "There is nothing at this path; /openapi.yaml describes what there is, and "
      "/v1/examples has requests to try." },
    { "method-not-allowed", 405, "Method not allowed",
      "The path does not take this method; Allow names those it takes." },
    { "not-acceptable", 406, "Not acceptable",
      "No representation that Accept asks for is available." },
    { "timeout", 408, "Body too slow",
      "The body did not arrive in time." },
    { "length-required", 411, "Length required",
      "State the Content-Length of the body." },
    { "too-large", 413, "Too large",
      "The request is over a limit of this service." },
    { "uri-too-long", 414, "URI too long",
      "The path or query is too long." },
    { "unsupported-media", 415, "Unsupported media type",
      "Send a media type that this path takes, without a content coding." },
    { "expectation-failed", 417, "Expectation failed",
      "Only Expect: 100-continue is understood." },
    { "unknown-field", 422, "Unknown field",
      "A field is not known; it may be a typing error." },
    { "unknown-name", 422, "Unknown name",
      "A name is not known." },
    { "wrong-type", 422, "Wrong type",
      "A value has the wrong type." },
    { "wrong-rank", 422, "Wrong number of axes",
      "A tensor has the wrong number of axes." },
    { "ragged", 422, "Ragged tensor",
      "The rows of a tensor differ in length." },
    { "wrong-shape", 422, "Shapes disagree",
      "Two sizes disagree." },
    { "missing", 422, "Missing field",
      "A field is missing." },
    { "contradiction", 422, "Contradiction",
      "Two fields contradict each other." },
    { "bad-value", 422, "Value not possible",
      "A value is outside its range." },
    { "not-finite", 422, "Not finite",
      "A number must be finite." },
    { "ambiguous-alignment", 422, "Ambiguous causal alignment",
      "State the alignment of the causal mask." },
    { "heads-not-divisible", 422, "Heads do not divide",
      "A width or number of heads does not divide." },
    { "empty-row", 422, "Empty row",
      "A query row has no allowed key." },
    { "not-supported", 422, "Not supported",
      "This combination is not supported." },
    { "headers-too-large", 431, "Header fields too large",
      "The header fields are too large." },
    { "internal", 500, "Internal error",
      "The service failed; the request is not at fault." },
    { "not-implemented", 501, "Transfer coding not supported",
      "Send the body with a Content-Length." },
    { "out-of-memory", 503, "Out of memory",
      "No memory is free now; try again." },
    { "overloaded", 503, "Overloaded",
      "All workers are busy and the queue is full; try again." },
    { "draining", 503, "Shutting down",
      "This instance is shutting down; try again." },
    { "deadline", 504, "Deadline passed",
      "The computation did not finish in time." },
};

static const char *const PROBLEMS[] = {
    [API_P_BAD_REQUEST]     = "bad-request",
    [API_P_NOT_FOUND]       = "not-found",
    [API_P_METHOD]          = "method-not-allowed",
    [API_P_NOT_ACCEPTABLE]  = "not-acceptable",
    [API_P_TIMEOUT]         = "timeout",
    [API_P_LENGTH_REQUIRED] = "length-required",
    [API_P_BODY_TOO_LARGE]  = "too-large",
    [API_P_URI_TOO_LONG]    = "uri-too-long",
    [API_P_MEDIA_TYPE]      = "unsupported-media",
    [API_P_EXPECTATION]     = "expectation-failed",
    [API_P_HEADERS_TOO_LARGE] = "headers-too-large",
    [API_P_INTERNAL]        = "internal",
    [API_P_TRANSFER_CODING] = "not-implemented",
    [API_P_OVERLOADED]      = "overloaded",
    [API_P_DRAINING]        = "draining",
    [API_P_DEADLINE]        = "deadline",
};
/* clang-format on */
_Static_assert(API_COUNT(PROBLEMS) == API_PROBLEM_COUNT, "one name a kind of problem");

static const struct error_row *row_of(const char *name)
{
    for (size_t n = 0; n < API_COUNT(ERRORS); n++)
        if (strcmp(ERRORS[n].name, name) == 0)
            return &ERRORS[n];
    assert(false && "an error that ERRORS does not list");
    return row_of("internal");
}

/* ---- recording ---- */

static bool record(struct api_err *err, const char *name, const char *pointer,
                   const char *detail, va_list args)
    __attribute__((format(printf, 4, 0)));

static bool record(struct api_err *err, const char *name, const char *pointer,
                   const char *detail, va_list args)
{
    err->set = true;
    err->name = row_of(name)->name;
    err->has_pointer = pointer != NULL;
    snprintf(err->pointer, sizeof err->pointer, "%s", pointer != NULL ? pointer : "");
    vsnprintf(err->detail, sizeof err->detail, detail, args);
    err->detail[api_utf8_cut(err->detail, sizeof err->detail)] = '\0';
    return false;
}

bool api_fail(struct api_err *err, const char *name, const char *pointer,
              const char *detail, ...)
{
    va_list args;

    if (err->set)
        return false;
    va_start(args, detail);
    record(err, name, pointer, detail, args);
    va_end(args);
    return false;
}

bool api_fail_numbers(struct api_err *err, const char *name, const char *pointer,
                      const char *object, size_t want, size_t got, const char *detail,
                      ...)
{
    va_list args;

    if (err->set)
        return false;
    va_start(args, detail);
    record(err, name, pointer, detail, args);
    va_end(args);
    snprintf(err->object, sizeof err->object, "%s", object != NULL ? object : "");
    snprintf(err->expected, sizeof err->expected, "%zu", want);
    snprintf(err->observed, sizeof err->observed, "%zu", got);
    return false;
}

/* ---- writing ---- */

static bool put_member(struct api_buffer *b, const char *name, const char *text)
{
    return api_puts(b, ",\"") && api_puts(b, name) && api_puts(b, "\":") &&
           api_put_string(b, text);
}

static bool put_problem(struct api_buffer *b, const struct error_row *row,
                        const char *request_id, const struct api_err *err)
{
    const char *detail = err->detail[0] != '\0' ? err->detail : row->sentence;
    bool ok = api_puts(b, "{\"type\":\"/problems/") && api_puts(b, row->name) &&
              api_puts(b, "\",\"title\":") && api_put_string(b, row->title) &&
              api_puts(b, ",\"status\":") && api_put_u64(b, (uint64_t)row->status) &&
              put_member(b, "detail", detail);

    if (err->has_pointer)
        ok = ok && put_member(b, "pointer", err->pointer);
    if (err->object[0] != '\0')
        ok = ok && put_member(b, "object", err->object);
    if (err->expected[0] != '\0')
        ok = ok && put_member(b, "expected", err->expected);
    if (err->observed[0] != '\0')
        ok = ok && put_member(b, "observed", err->observed);
    if (request_id != NULL)
        ok = ok && put_member(b, "request_id", request_id);
    return ok && api_puts(b, "}\n");
}

void api_reply_error(struct api_reply *reply, const char *request_id,
                     const struct api_err *err)
{
    static const char NO_MEMORY[] = "{\"type\":\"/problems/out-of-memory\","
                                    "\"title\":\"Out of memory\",\"status\":503,"
                                    "\"detail\":\"No memory is free now; try again.\"}\n";
    const struct error_row *row = row_of(err->set ? err->name : "internal");

    reply->status = row->status;
    reply->content_type = "application/problem+json";
    reply->error = row->name;
    reply->fixed = NULL;
    reply->fixed_len = 0;
    reply->cache_control = "no-store";
    reply->out->len = 0;
    if (!put_problem(reply->out, row, request_id, err)) {
        reply->out->len = 0;
        reply->status = 503;
        reply->error = "out-of-memory";
        reply->fixed = NO_MEMORY;
        reply->fixed_len = sizeof NO_MEMORY - 1;
    }
    if (reply->status == 503 && reply->retry_after_s == 0)
        reply->retry_after_s = RETRY_AFTER_S;
}

void api_problem(struct api_reply *reply, const char *request_id,
                 enum api_problem_kind kind, const char *detail, bool numbers,
                 size_t want, size_t got)
{
    struct api_err err = {0};
    const struct error_row *row = row_of(PROBLEMS[kind]);
    const char *text = detail != NULL ? detail : row->sentence;

    if (numbers)
        api_fail_numbers(&err, row->name, NULL, NULL, want, got, "%s", text);
    else
        api_fail(&err, row->name, NULL, "%s", text);
    api_reply_error(reply, request_id, &err);
}
