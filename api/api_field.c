/*
 * api_field.c - small fields: objects by tables of rows, and one reader a type.
 * Not here: names that are not known (api_names.c), tensors (api_tensor.c), what the
 * fields mean (api_request*.c).
 * Start reading at api_read_object.
 */
#include "api/api_private.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const double API_WHOLE_MAX = 9007199254740992.0;

/* ---- pointers ---- */

bool api_pointer_fits(const char *pointer, const char *name)
{
    size_t len = strlen(pointer) + 1;

    for (; *name != '\0'; name++)
        len += *name == '~' || *name == '/' ? 2 : 1;
    return len < API_POINTER_MAX;
}

char *api_pointer_copy(char *out, const char *pointer)
{
    const size_t len = strlen(pointer);

    assert(len < API_POINTER_MAX);
    return memcpy(out, pointer, len + 1);
}

const char *api_pointer(char *out, const char *pointer, const char *name)
{
    char made[API_POINTER_MAX];
    size_t len = strlen(api_pointer_copy(made, pointer));

    if (api_pointer_fits(pointer, name)) {
        made[len++] = '/';
        for (; *name != '\0'; name++) {
            if (*name == '~' || *name == '/')
                made[len++] = '~';
            made[len++] = *name == '~' ? '0' : *name == '/' ? '1' : *name;
        }
        made[len] = '\0';
    }
    return memcpy(out, made, len + 1);
}

const char *api_pointer_index(char *out, const char *pointer, size_t index)
{
    char text[API_DIGITS_MAX];

    return api_pointer(out, pointer, api_digits(text, index));
}

/* ---- objects ---- */

static const char *name_of_row(const void *rows, size_t n)
{
    return ((const struct api_field_row *)rows)[n].name;
}

bool api_read_object(void *into, const struct api_doc *doc, const json_t *object,
                     const char *pointer, const struct api_field_row *rows, size_t count,
                     struct api_err *err)
{
    char place[API_POINTER_MAX];
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return api_fail_type(err, pointer, "An object", api_type_name(doc, object));
    json_object_foreach((json_t *)object, key, value)
    {
        const struct api_field_row *row = NULL;

        for (size_t n = 0; n < count && row == NULL; n++)
            if (strcmp(rows[n].name, key) == 0)
                row = &rows[n];
        api_pointer(place, pointer, key);
        if (row == NULL)
            return api_fail_unknown(err, "unknown-field", place, key, name_of_row, rows,
                                    count);
        if (!row->read(into, doc, value, place, err))
            return false;
    }
    for (size_t n = 0; n < count; n++)
        if (rows[n].required && json_object_get(object, rows[n].name) == NULL)
            return api_fail(err, "missing", api_pointer(place, pointer, rows[n].name),
                            "\"%s\" is needed here and was not given.", rows[n].name);
    return true;
}

/* ---- types ---- */

const char *api_type_name(const struct api_doc *doc, const json_t *v)
{
    const struct api_span *span = doc != NULL ? api_doc_span(doc, v) : NULL;

    if (span != NULL)
        return span->is_string ? "a string" : "an array";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return doc != NULL ? "an array" : "an array or a long text";
    case JSON_STRING:
        return "a string";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    default:
        return "a number";
    }
}

const char *api_type_at(const char *text)
{
    static const struct {
        char begins;
        const char *name;
    } TYPES[] = {{'"', "a string"},
                 {'[', "an array"},
                 {'t', "a boolean"},
                 {'f', "a boolean"},
                 {'n', "null"}};

    for (size_t n = 0; n < API_COUNT(TYPES); n++)
        if (TYPES[n].begins == *text)
            return TYPES[n].name;
    return "a number";
}

bool api_fail_type(struct api_err *err, const char *pointer, const char *want,
                   const char *got)
{
    if (err->set)
        return false;
    api_fail(err, "wrong-type", pointer, "%s is expected here, not %s.", want, got);
    snprintf(err->expected, sizeof err->expected, "%c%.90s",
             tolower((unsigned char)want[0]), want + 1);
    snprintf(err->observed, sizeof err->observed, "%.90s", got);
    return false;
}

bool api_read_bool(const json_t *v, const char *pointer, bool *out, struct api_err *err)
{
    if (!json_is_boolean(v))
        return api_fail_type(err, pointer, "true or false", api_type_name(NULL, v));
    *out = json_is_true(v);
    return true;
}

static bool fail_whole(struct api_err *err, const char *pointer, int64_t min, int64_t max,
                       const char *got)
{
    api_fail(err, "bad-value", pointer,
             "A whole number from %" PRId64 " to %" PRId64 " is expected here, not %s.",
             min, max, got);
    snprintf(err->expected, sizeof err->expected, "%" PRId64 " to %" PRId64, min, max);
    snprintf(err->observed, sizeof err->observed, "%s", got);
    return false;
}

bool api_read_int(const json_t *v, const char *pointer, int64_t min, int64_t max,
                  int64_t *out, struct api_err *err)
{
    char text[API_NUMBER_MAX + 1] = {0};
    double real;

    if (!json_is_number(v))
        return api_fail_type(err, pointer, "A whole number", api_type_name(NULL, v));
    if (json_is_real(v)) {
        real = json_real_value(v);
        text[api_number_write_f64(text, real)] = '\0';
        if (real != floor(real) || fabs(real) > API_WHOLE_MAX)
            return fail_whole(err, pointer, min, max, text);
        *out = (int64_t)real;
    } else {
        *out = json_integer_value(v);
        snprintf(text, sizeof text, "%" PRId64, *out);
    }
    return (*out >= min && *out <= max) || fail_whole(err, pointer, min, max, text);
}

bool api_read_size(const json_t *v, const char *pointer, size_t min, size_t max,
                   size_t *out, struct api_err *err)
{
    const int64_t bound = (int64_t)API_WHOLE_MAX;
    int64_t x;

    if (!api_read_int(v, pointer, (int64_t)min,
                      max < (size_t)bound ? (int64_t)max : bound, &x, err))
        return false;
    *out = (size_t)x;
    return true;
}

bool api_read_double(const json_t *v, const char *pointer, double *out,
                     struct api_err *err)
{
    if (!json_is_number(v))
        return api_fail_type(err, pointer, "A number", api_type_name(NULL, v));
    *out = json_number_value(v);
    return true;
}

static const char *name_of_list(const void *names, size_t n)
{
    return ((const char *const *)names)[n];
}

bool api_read_choice(const json_t *v, const char *pointer, const char *const *names,
                     size_t count, int *out, struct api_err *err)
{
    const char *text = json_string_value(v);
    char list[API_NAMES_MAX], want[API_NAMES_MAX + 16];

    for (size_t n = 0; n < count && text != NULL; n++)
        if (strcmp(names[n], text) == 0) {
            *out = (int)n;
            return true;
        }
    if (text != NULL)
        return api_fail_unknown(err, "unknown-name", pointer, text, name_of_list, names,
                                count);
    snprintf(want, sizeof want, "One of %s",
             api_name_list(list, name_of_list, names, count));
    return api_fail_type(err, pointer, want, api_type_name(NULL, v));
}
