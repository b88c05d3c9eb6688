/*
 * api_audit_read.c - the body of /v1/audit: a problem, its candidate, tolerance,
 * companions. Not here: fields of a problem (api_request*.c), the candidate's tensors
 * (api_audit_candidate.c).
 * Start reading at api_audit_read, then the tables BODY and COMPANION.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api_audit.h"

struct reading {
    struct api_ctx *ctx;
    const struct api_doc *doc;
    json_t *problem; /* the members of the body that make a problem */
    const json_t *candidate, *companions, *name, *of;
    struct api_tolerance_in stated;
};

/* ---- fields that mean nothing here ---- */

static bool refuse_field(void *into, const struct api_doc *doc, const json_t *v,
                         const char *pointer, struct api_err *err)
{
    (void)into, (void)doc, (void)v;
    return api_fail(err, "contradiction", pointer,
                    "\"%s\" asks this service to run the layer; here your tensors are "
                    "judged. Leave it out, or ask /v1/attention.",
                    pointer + 1);
}

/* Every entry is judged: "full" says what is done anyway. */
static bool only_full(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    const char *level = json_string_value(v);

    (void)into, (void)doc;
    return (level != NULL && strcmp(level, "full") == 0) ||
           api_fail(err, "contradiction", pointer,
                    "Every entry of a candidate is judged: \"audit\" can only be "
                    "\"full\" here.");
}

/* ---- members ---- */

/* Into the problem, under the name that the pointer ends with. */
static bool keep_problem_field(void *into, const struct api_doc *doc, const json_t *v,
                               const char *pointer, struct api_err *err)
{
    struct reading *rd = into;

    (void)doc;
    return json_object_set(rd->problem, pointer + 1, (json_t *)(uintptr_t)v) == 0 ||
           api_fail(err, "out-of-memory", NULL, "No memory to read the body.");
}

static bool keep_candidate(void *into, const struct api_doc *doc, const json_t *v,
                           const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct reading *)into)->candidate = v;
    return true;
}

static bool keep_companions(void *into, const struct api_doc *doc, const json_t *v,
                            const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct reading *)into)->companions = v;
    return true;
}

static bool read_candidate_dtype(void *into, const struct api_doc *doc, const json_t *v,
                                 const char *pointer, struct api_err *err)
{
    (void)doc;
    return api_read_choice(v, pointer, ATTN_PRECISION_NAMES, ATTN_PRECISION_COUNT,
                           &((struct reading *)into)->stated.precision, err);
}

static bool read_bound(const json_t *v, const char *pointer, double *out,
                       struct api_err *err)
{
    return api_read_double(v, pointer, out, err) &&
           (*out >= 0.0 || api_fail(err, "bad-value", pointer,
                                    "A tolerance is 0 or more; it is %g.", *out));
}

static bool read_rtol(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    (void)doc;
    return read_bound(v, pointer, &((struct reading *)into)->stated.rtol, err);
}

static bool read_atol(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    (void)doc;
    return read_bound(v, pointer, &((struct reading *)into)->stated.atol, err);
}

static const struct api_field_row TOLERANCE[] = {
    {"rtol", read_rtol, false},
    {"atol", read_atol, false},
};

static bool read_tolerance(void *into, const struct api_doc *doc, const json_t *v,
                           const char *pointer, struct api_err *err)
{
    return api_read_object(into, doc, v, pointer, TOLERANCE, API_COUNT(TOLERANCE), err);
}

/* clang-format off */
static const struct api_field_row BODY[] = {
    { "shapes",          keep_problem_field,   false },
    { "dtype",           keep_problem_field,   false },
    { "inputs",          keep_problem_field,   false },
    { "weights",         keep_problem_field,   false },
    { "score",           keep_problem_field,   false },
    { "position",        keep_problem_field,   false },
    { "sink",            keep_problem_field,   false },
    { "masks",           keep_problem_field,   false },
    { "empty_rows",      keep_problem_field,   false },
    { "gradients",       keep_problem_field,   false },
    { "return",          keep_problem_field,   false },
    { "path",            keep_problem_field,   false },
    { "encoding",        keep_problem_field,   false },
    { "audit",           only_full,            false },
    { "ablations",       refuse_field,         false },
    { "traces",          refuse_field,         false },
    { "inject",          refuse_field,         false },
    { "candidate",       keep_candidate,       false },
    { "candidate_dtype", read_candidate_dtype, false },
    { "tolerance",       read_tolerance,       false },
    { "companions",      keep_companions,      false },
};
/* clang-format on */

/* ---- the problem ---- */

/* What `return` alone gives a meaning to, and a check of our own gradients. */
static bool check_options(const json_t *problem, struct api_err *err)
{
    static const char *const OF_RETURN[] = {"path", "encoding"};
    const json_t *gradients = json_object_get(problem, "gradients");
    char pointer[API_POINTER_MAX];

    for (size_t n = 0; n < API_COUNT(OF_RETURN); n++)
        if (json_object_get(problem, OF_RETURN[n]) != NULL &&
            json_object_get(problem, "return") == NULL)
            return api_fail(err, "contradiction", api_pointer(pointer, "", OF_RETURN[n]),
                            "\"%s\" is about the right tensors, which are answered only "
                            "when \"return\" names them.",
                            OF_RETURN[n]);
    return !json_is_true(json_object_get(gradients, "check")) ||
           api_fail(err, "contradiction", "/gradients/check",
                    "\"check\" compares gradients of this service with differences; "
                    "here yours are judged. Leave it out, or ask /v1/attention.");
}

/* float32 numbers as doubles, in memory of their own. */
static bool widen(struct api_ctx *ctx, struct attn_tensor *t, struct api_err *err)
{
    const size_t count = attn_tensor_count(t), bytes = count * sizeof(double);
    double *wide;

    if (t->p == NULL || t->dtype != ATTN_F32)
        return true;
    wide = attn_arena_take(&ctx->arena, bytes);
    if (wide == NULL)
        return api_fail_numbers(err, "too-large", NULL, "tensors", ctx->arena.size,
                                ctx->arena.used + bytes,
                                "%zu bytes are needed to judge in float64; the limit of "
                                "one request is %zu.",
                                ctx->arena.used + bytes, ctx->arena.size);
    for (size_t n = 0; n < count; n++)
        wide[n] = attn_tensor_get(t, n);
    t->p = wide;
    t->dtype = ATTN_F64;
    return true;
}

static bool read_problem(struct api_ctx *ctx, const struct api_doc *doc,
                         const json_t *problem, struct api_judged *judged,
                         struct api_tolerance_in *tolerance, struct api_err *err)
{
    struct api_request *r = &judged->r;

    if (!check_options(problem, err) ||
        !api_request_read_judged(ctx, doc, problem, r, err))
        return false;
    /* A float32 layer rounds as float32 does, unless its tensors say that they are
       coarser. */
    if (tolerance->precision < 0 && r->p.dtype == ATTN_F32)
        judged->candidate.precision = ATTN_FLOAT32;
    for (int k = 0; k < ATTN_INPUT_COUNT; k++)
        if (!widen(ctx, &r->p.in[k], err))
            return false;
    if (!widen(ctx, &r->gradients.cotangent, err))
        return false;
    r->p.dtype = ATTN_F64;
    for (int k = 0; k < ATTN_INPUT_COUNT; k++)
        r->p.in[k].dtype = ATTN_F64;
    return true;
}

/* ---- companions ---- */

static bool keep_name(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    ((struct reading *)into)->name = v;
    return json_is_string(v) ||
           api_fail_type(err, pointer, "A name", api_type_name(doc, v));
}

static bool keep_of(void *into, const struct api_doc *doc, const json_t *v,
                    const char *pointer, struct api_err *err)
{
    ((struct reading *)into)->of = v;
    return json_is_string(v) ||
           api_fail_type(err, pointer, "A companion's name", api_type_name(doc, v));
}

static bool keep_problem(void *into, const struct api_doc *doc, const json_t *v,
                         const char *pointer, struct api_err *err)
{
    ((struct reading *)into)->problem = (json_t *)(uintptr_t)v;
    return json_is_object(v) ||
           api_fail_type(err, pointer, "A problem", api_type_name(doc, v));
}

static const struct api_field_row COMPANION[] = {
    {"name", keep_name, true},
    {"of", keep_of, false},
    {"problem", keep_problem, true},
    {"candidate", keep_candidate, true},
};

/* Errors of a problem inside the body are told with their place in the body. */
static bool move_pointer(struct api_err *err, const char *prefix)
{
    const size_t before = strlen(prefix);
    char *const pointer = err->pointer;

    if (!err->has_pointer)
        return false;
    while (before + strlen(pointer) >= sizeof err->pointer)
        *strrchr(pointer, '/') = '\0'; /* less is named rather than something else */
    memmove(pointer + before, pointer, strlen(pointer) + 1);
    memcpy(pointer, prefix, before);
    return false;
}

static const char *copy_name(struct api_ctx *ctx, const json_t *name)
{
    const size_t size = json_string_length(name) + 1;
    char *copy = attn_arena_take(&ctx->arena, size);

    return copy ? memcpy(copy, json_string_value(name), size) : NULL;
}

/* The same fields as the body, so that a typing error is refused here too. */
static bool read_inner_problem(struct reading *rd, const json_t *given,
                               struct api_judged *judged, struct api_err *err)
{
    struct reading inner = {
        .ctx = rd->ctx, .doc = rd->doc, .problem = json_object(), .stated = rd->stated};
    bool ok = inner.problem != NULL ||
              api_fail(err, "out-of-memory", NULL, "No memory to read the body.");

    ok = ok && api_read_object(&inner, rd->doc, given, "", BODY, API_COUNT(BODY), err) &&
         (inner.candidate == NULL ||
          api_fail(err, "contradiction", "/candidate",
                   "A companion's candidate stands beside its problem.")) &&
         (inner.companions == NULL || api_fail(err, "contradiction", "/companions",
                                               "Companions have no companions.")) &&
         read_problem(rd->ctx, rd->doc, inner.problem, judged, &inner.stated, err);
    rd->stated = inner.stated;
    json_decref(inner.problem);
    return ok;
}

static bool read_companion(const struct reading *body, const json_t *v,
                           const char *pointer, struct api_judged *judged,
                           struct api_err *err)
{
    struct reading rd = *body;
    char place[API_POINTER_MAX];

    *judged = (struct api_judged){0};
    if (!api_read_object(&rd, rd.doc, v, pointer, COMPANION, API_COUNT(COMPANION), err))
        return false;
    if (!read_inner_problem(&rd, rd.problem, judged, err))
        return move_pointer(err, api_pointer(place, pointer, "problem"));
    judged->name = copy_name(rd.ctx, rd.name);
    if (judged->name == NULL)
        return api_fail(err, "too-large", pointer, "There is no room for the name.");
    return api_candidate_read(rd.ctx, rd.doc, rd.candidate,
                              api_pointer(place, pointer, "candidate"), &rd.stated,
                              judged, err);
}

static const char *companion_name_at(const void *names, size_t n)
{
    const struct api_audit *audit = names;

    return n == audit->companions ? "main" : audit->companion[n].name;
}

/* "main", or the name of a companion; every companion is read by now. */
static bool find_of(struct api_audit *audit, size_t n, const json_t *of,
                    struct api_err *err)
{
    const char *name = of ? json_string_value(of) : "main";
    char pointer[API_POINTER_MAX], place[API_POINTER_MAX];
    size_t m = 0;

    while (m < audit->companions && strcmp(audit->companion[m].name, name) != 0)
        m++;
    audit->companion[n].of = m < audit->companions ? &audit->companion[m] : &audit->main;
    if (m < audit->companions ? m != n : strcmp(name, "main") == 0)
        return true;
    api_pointer_index(pointer, "/companions", n);
    return api_fail_unknown(err, "unknown-name", api_pointer(place, pointer, "of"), name,
                            companion_name_at, audit, audit->companions + 1);
}

static bool read_companions(const struct reading *body, struct api_audit *audit,
                            struct api_err *err)
{
    const json_t *list = body->companions;
    const struct api_span *span = list ? api_doc_span(body->doc, list) : NULL;
    const size_t count = span == NULL ? json_array_size(list) : 0;
    char pointer[API_POINTER_MAX];

    if (list == NULL)
        return true;
    if (!json_is_array(list) || (span != NULL && (span->is_string || span->leaves > 0)))
        return api_fail_type(err, "/companions", "A list of objects",
                             api_type_name(body->doc, list));
    if (count > API_COMPANIONS_MAX)
        return api_fail_numbers(err, "too-large", "/companions", NULL, API_COMPANIONS_MAX,
                                count, "%zu companions are given; at most %d are judged.",
                                count, API_COMPANIONS_MAX);
    audit->companion =
        attn_arena_take(&body->ctx->arena, (count + 1) * sizeof *audit->companion);
    if (audit->companion == NULL)
        return api_fail(err, "too-large", "/companions",
                        "There is no room for so many companions.");
    for (size_t n = 0; n < count; n++, audit->companions++)
        if (!read_companion(body, json_array_get(list, n),
                            api_pointer_index(pointer, "/companions", n),
                            &audit->companion[n], err))
            return false;
    for (size_t n = 0; n < count; n++)
        if (!find_of(audit, n, json_object_get(json_array_get(list, n), "of"), err))
            return false;
    return true;
}

/* ---- the whole ---- */

static bool read_all(struct reading *rd, struct api_audit *audit, struct api_err *err)
{
    if (!api_read_object(rd, rd->doc, rd->doc->root, "", BODY, API_COUNT(BODY), err))
        return false;
    if (rd->candidate == NULL)
        return api_fail(err, "missing", "/candidate",
                        "State in \"candidate\" the tensors that your implementation "
                        "computed.");
    return read_problem(rd->ctx, rd->doc, rd->problem, &audit->main, &rd->stated, err) &&
           api_candidate_read(rd->ctx, rd->doc, rd->candidate, "/candidate", &rd->stated,
                              &audit->main, err) &&
           read_companions(rd, audit, err);
}

bool api_audit_read(struct api_ctx *ctx, const char *body, size_t len,
                    struct api_audit *audit, struct api_err *err)
{
    struct api_doc doc;
    struct reading rd = {
        .ctx = ctx,
        .doc = &doc,
        .stated = {.precision = -1, .rtol = NAN, .atol = NAN},
    };
    bool ok;

    if (!api_doc_open(ctx, body, len, &doc, err))
        return false;
    rd.problem = json_object();
    ok = rd.problem != NULL
             ? read_all(&rd, audit, err)
             : api_fail(err, "out-of-memory", NULL, "No memory to read the body.");
    json_decref(rd.problem);
    api_doc_close(&doc);
    return ok;
}
