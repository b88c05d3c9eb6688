/*
 * api_error_core.c - what core found, in words: code, object, axis and numbers.
 * Not here: the table of problems (api_error.c), the finding (core/).
 * Start reading at CODES, then api_fail_core.
 */
#include "api/api_private.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Writes the detail; where is the place of the object in the request, or NULL. */
typedef bool code_fn(struct api_err *err, const char *where, const struct attn_err *core);

/* ---- places ---- */

/* clang-format off */
static const struct { const char *object, *place; } PLACES[] = {
    { "score",         "/score" },
    { "shapes",        "/shapes" },
    { "causal",        "/masks/causal" },
    { "additive",      "/masks/additive" },
    { "path",          "/path" },
    { "empty_rows",    "/empty_rows" },
    { "return",        "/return" },
    { "cotangent",     "/gradients/cotangent" },
    { "of",            "/gradients/of" },
    { "gradients",     "/gradients" },
};
/* clang-format on */

/* "padding.lengths" stands for /masks/padding/lengths, "score.scale" for /score/scale. */
static const char *parent_place(const char *object, size_t len, char *out)
{
    for (size_t n = 0; n < API_COUNT(PLACES); n++)
        if (strlen(PLACES[n].object) == len && memcmp(PLACES[n].object, object, len) == 0)
            return PLACES[n].place;
    for (size_t n = 0; n < attn_mask_count(); n++) {
        const char *name = attn_mask_at(n)->name;

        if (strlen(name) == len && memcmp(name, object, len) == 0)
            return api_pointer(out, "/masks", name);
    }
    for (size_t n = 0; n < attn_position_count(); n++) {
        const char *name = attn_position_at(n)->name;

        if (strlen(name) == len && memcmp(name, object, len) == 0)
            return api_pointer(out, "/position", name);
    }
    return NULL;
}

/* Where in the request the object that core names was given; NULL when nowhere. */
static const char *place_of(const char *object, char *out)
{
    const char *dot, *place;

    if (object == NULL)
        return NULL;
    for (int k = 0; k < ATTN_INPUT_COUNT; k++)
        if (strcmp(ATTN_INPUTS[k].name, object) == 0)
            return ATTN_INPUTS[k].place;
    if (attn_gradient_find(object) >= 0)
        return "/gradients/with_respect_to";
    dot = strchr(object, '.');
    place =
        parent_place(object, dot != NULL ? (size_t)(dot - object) : strlen(object), out);
    return place != NULL && dot != NULL ? api_pointer(out, place, dot + 1) : place;
}

/* The field of `shapes` that declares an axis. */
static const char *declared_name(const char *axis)
{
    static const char *const NAMES[][2] = {
        {"T_q", "T"}, {"h", "heads"}, {"h_kv", "kv_heads"}};

    for (size_t n = 0; n < API_COUNT(NAMES); n++)
        if (strcmp(NAMES[n][0], axis) == 0)
            return NAMES[n][1];
    return axis;
}

static const char *named(const char *text, const char *otherwise)
{
    return text != NULL ? text : otherwise;
}

/* ---- sentences ---- */

static bool fail_rank(struct api_err *err, const char *where, const struct attn_err *core)
{
    return api_fail_numbers(
        err, "wrong-rank", where, core->object, core->want, core->got,
        "%s has %zu %s; %zu %s needed here.", named(core->object, "A tensor"), core->got,
        core->got == 1 ? "axis" : "axes", core->want, core->want == 1 ? "is" : "are");
}

static bool fail_shape(struct api_err *err, const char *where,
                       const struct attn_err *core)
{
    return api_fail_numbers(
        err, "wrong-shape", where, core->object, core->want, core->got,
        "%s: %s is %zu, but %zu is needed to agree with the rest of the "
        "request.",
        named(core->object, "A tensor"), named(core->axis, "an axis"), core->got,
        core->want);
}

static bool fail_declared(struct api_err *err, const char *where,
                          const struct attn_err *core)
{
    char pointer[API_POINTER_MAX];
    const char *field = declared_name(named(core->axis, ""));

    (void)where;
    return api_fail_numbers(err, "wrong-shape", api_pointer(pointer, "/shapes", field),
                            core->object, core->want, core->got,
                            "shapes.%s says %zu, but %s has %zu.", field, core->want,
                            named(core->object, "the request"), core->got);
}

static bool fail_missing(struct api_err *err, const char *where,
                         const struct attn_err *core)
{
    return api_fail(err, "missing", where, "%s is needed here and was not given.",
                    named(core->object, "A field"));
}

static bool fail_contradiction(struct api_err *err, const char *where,
                               const struct attn_err *core)
{
    if (core->axis != NULL && core->want != core->got)
        return api_fail_numbers(
            err, "contradiction", where, core->object, core->want, core->got,
            "%s needs one sequence: %s is %zu, but the queries are %zu.",
            named(core->object, "A field"), core->axis, core->got, core->want);
    return api_fail(err, "contradiction", where,
                    "%s cannot be given together with what else the request says%s%s.",
                    named(core->object, "A field"), core->axis != NULL ? ": " : "",
                    named(core->axis, ""));
}

static bool fail_zero(struct api_err *err, const char *where, const struct attn_err *core)
{
    return api_fail_numbers(err, "bad-value", where, core->object, 1, 0,
                            "%s: %s is 0; at least 1 is needed.",
                            named(core->object, "A tensor"), named(core->axis, "a size"));
}

static bool fail_unknown_size(struct api_err *err, const char *where,
                              const struct attn_err *core)
{
    char pointer[API_POINTER_MAX];
    const char *field = declared_name(named(core->axis, ""));

    (void)where;
    return api_fail(err, "missing", api_pointer(pointer, "/shapes", field),
                    "Neither a tensor nor shapes.%s says how large %s is.", field,
                    named(core->axis, "it"));
}

static bool fail_divide(struct api_err *err, const char *where,
                        const struct attn_err *core)
{
    return api_fail_numbers(
        err, "heads-not-divisible", where != NULL ? where : "/shapes/heads", core->object,
        core->want, core->got, "%s: %zu does not divide into %zu equal parts.",
        named(core->object, "heads"), core->got, core->want);
}

static bool fail_alignment(struct api_err *err, const char *where,
                           const struct attn_err *core)
{
    (void)where;
    return api_fail_numbers(
        err, "ambiguous-alignment", "/masks/causal", "M", core->want, core->got,
        "There are %zu queries and %zu new keys, so the causal mask must "
        "state its alignment: \"top_left\" or \"bottom_right\".",
        core->want, core->got);
}

static bool fail_empty_row(struct api_err *err, const char *where,
                           const struct attn_err *core)
{
    char place[96];

    (void)where;
    snprintf(place, sizeof place, "batch %zu, head %zu, query %zu", core->at[0],
             core->at[1], core->at[2]);
    return api_fail_numbers(err, "empty-row", "/masks", "M", 1, 0,
                            "No key is allowed for %s, and empty_rows is \"error\".",
                            place);
}

static bool fail_odd_width(struct api_err *err, const char *where,
                           const struct attn_err *core)
{
    return api_fail_numbers(err, "bad-value", where, "Q", core->want, core->got,
                            "%s turns pairs of features, so d_k must be even; it is %zu.",
                            named(core->object, "This position kind"), core->got);
}

static bool fail_square(struct api_err *err, const char *where,
                        const struct attn_err *core)
{
    return api_fail_numbers(err, "wrong-shape", where, core->object, core->want,
                            core->got,
                            "Only a square matrix can be the identity: %s has %zu rows "
                            "and %zu columns.",
                            named(core->object, "this one"), core->want, core->got);
}

static bool fail_memory(struct api_err *err, const char *where,
                        const struct attn_err *core)
{
    return api_fail_numbers(
        err, "too-large", where, core->object, core->want, core->got,
        "The tensors of this request need %zu bytes; the limit is %zu.", core->got,
        core->want);
}

static bool fail_overflow(struct api_err *err, const char *where,
                          const struct attn_err *core)
{
    char pointer[API_POINTER_MAX];

    if (core->axis == NULL || core->got == SIZE_MAX) {
        api_fail(err, "too-large", where != NULL ? where : "/shapes",
                 "The sizes of %s multiply to more than can be counted.",
                 named(core->object, "this request"));
        snprintf(err->expected, sizeof err->expected, "at most %zu bytes", SIZE_MAX);
        snprintf(err->observed, sizeof err->observed, "more");
        return false;
    }
    if (core->object != NULL && strcmp(core->object, "shapes") == 0 &&
        strchr(core->axis, '*') == NULL)
        where = api_pointer(pointer, "/shapes", declared_name(core->axis));
    return api_fail_numbers(err, "too-large", where, core->object, core->want, core->got,
                            "%s: %s is %zu; at most %zu is possible.",
                            named(core->object, "This request"), core->axis, core->got,
                            core->want);
}

static bool fail_range(struct api_err *err, const char *where,
                       const struct attn_err *core)
{
    if (core->want == 0 && core->got == 0)
        return api_fail(err, "bad-value", where, "%s%s%s is outside its range.",
                        named(core->object, "A parameter"),
                        core->axis != NULL ? ": " : "", named(core->axis, ""));
    return api_fail_numbers(
        err, "bad-value", where, core->object, core->want, core->got,
        "%s is %zu, which is outside its range: at most %zu is possible here.",
        named(core->object, "A parameter"), core->got, core->want);
}

static bool fail_deadline(struct api_err *err, const char *where,
                          const struct attn_err *core)
{
    (void)where, (void)core;
    return api_fail(err, "deadline", NULL,
                    "The computation did not finish before its deadline, or before the "
                    "server, which was told to stop, had to end.");
}

static code_fn *const CODES[] = {
    [ATTN_E_RANK] = fail_rank,
    [ATTN_E_SHAPE] = fail_shape,
    [ATTN_E_DECLARED] = fail_declared,
    [ATTN_E_MISSING] = fail_missing,
    [ATTN_E_CONTRADICTION] = fail_contradiction,
    [ATTN_E_SIZE_ZERO] = fail_zero,
    [ATTN_E_SIZE_UNKNOWN] = fail_unknown_size,
    [ATTN_E_DIVIDE] = fail_divide,
    [ATTN_E_ALIGNMENT] = fail_alignment,
    [ATTN_E_EMPTY_ROW] = fail_empty_row,
    [ATTN_E_ODD_WIDTH] = fail_odd_width,
    [ATTN_E_MEMORY] = fail_memory,
    [ATTN_E_OVERFLOW] = fail_overflow,
    [ATTN_E_RANGE] = fail_range,
    [ATTN_E_SQUARE] = fail_square,
    [ATTN_E_DEADLINE] = fail_deadline,
};
_Static_assert(API_COUNT(CODES) == ATTN_CODE_COUNT, "one sentence a code");

bool api_fail_core(struct api_err *err, const struct attn_err *core)
{
    char place[API_POINTER_MAX];

    assert(core->code != ATTN_OK);
    return CODES[core->code](err, place_of(core->object, place), core);
}
