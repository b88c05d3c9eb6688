/*
 * api_request_inject.c - inject: the name of a fault, or an object that also gives the
 * fault's constant and its seed.
 * Not here: the name alone (api_read_inject), what a fault takes (core/attn_fault_set.c).
 * Start reading at api_read_injected.
 */
#include "api/api_request.h"

#include <stdio.h>

struct injected { /* an object half read: its members come in any order */
    struct api_reading *rd;
    bool has_parameter, has_seed;
    double parameter;
    int64_t seed;
};

static bool read_fault(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    return api_read_inject(((struct injected *)into)->rd, doc, v, pointer, err);
}

static bool read_parameter(void *into, const struct api_doc *doc, const json_t *v,
                           const char *pointer, struct api_err *err)
{
    struct injected *given = into;

    (void)doc;
    given->has_parameter = true;
    return api_read_double(v, pointer, &given->parameter, err);
}

static bool read_seed(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    struct injected *given = into;

    (void)doc;
    given->has_seed = true;
    return api_read_int(v, pointer, 0, (int64_t)API_WHOLE_MAX, &given->seed, err);
}

static const struct api_field_row FIELDS[] = {
    {"fault", read_fault, true},
    {"parameter", read_parameter, false},
    {"seed", read_seed, false},
};

static bool fail_taken(struct api_err *err, const char *member, const char *fault,
                       const struct attn_fault_takes *takes)
{
    char place[API_POINTER_MAX];

    api_pointer(place, "/inject", member);
    if (takes == NULL)
        return api_fail(err, "contradiction", place,
                        "The fault %s takes neither a parameter nor a seed.", fault);
    return api_fail(err, "contradiction", place,
                    "The fault %s takes no seed; it takes a parameter, its %s.", fault,
                    takes->name);
}

static const char *shortest(char out[API_NUMBER_MAX + 1], double x)
{
    out[api_number_write_f64(out, x)] = '\0';
    return out;
}

static bool fail_range(struct api_err *err, const char *fault,
                       const struct attn_fault_takes *takes, double got)
{
    char low[API_NUMBER_MAX + 1], high[API_NUMBER_MAX + 1], text[API_NUMBER_MAX + 1];
    char range[2 * API_NUMBER_MAX + 32];

    snprintf(range, sizeof range, takes->open ? "above %s and below %s" : "from %s to %s",
             shortest(low, takes->low), shortest(high, takes->high));
    api_fail(err, "bad-value", "/inject/parameter", "The %s of %s is a %s %s, not %s.",
             takes->name, fault, takes->whole ? "whole number" : "number", range,
             shortest(text, got));
    snprintf(err->expected, sizeof err->expected, "%.90s", range);
    snprintf(err->observed, sizeof err->observed, "%s", text);
    return false;
}

static bool take(const struct injected *given, struct api_err *err)
{
    struct api_request *r = given->rd->r;
    const char *fault = attn_fault_name(r->inject);
    struct attn_fault_takes takes;
    const bool any = attn_fault_takes(r->inject, &takes);

    if (given->has_parameter && !any)
        return fail_taken(err, "parameter", fault, NULL);
    if (given->has_seed && !(any && takes.seed))
        return fail_taken(err, "seed", fault, any ? &takes : NULL);
    if (given->has_parameter && !attn_fault_in_range(&takes, given->parameter))
        return fail_range(err, fault, &takes, given->parameter);
    r->inject_has_parameter = given->has_parameter;
    r->inject_has_seed = given->has_seed;
    r->inject_parameter = given->parameter;
    r->inject_seed = (uint64_t)given->seed;
    return true;
}

bool api_read_injected(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct injected given = {.rd = into};

    if (!json_is_object(v))
        return api_read_inject(into, doc, v, pointer, err);
    return api_read_object(&given, doc, v, pointer, FIELDS, API_COUNT(FIELDS), err) &&
           take(&given, err);
}
