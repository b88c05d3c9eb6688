/*
 * api_request_asks.c - what is asked beyond the layer: gradients and traces.
 * Not here: ablations (api_request_ablations.c), what is computed (core/).
 * Start reading at api_read_gradients.
 */
#include "api/api_request.h"

#include <stdio.h>
#include <string.h>

/* A list of objects stays in the tree; only an empty list was lifted. */
bool api_read_list(const struct api_reading *rd, const json_t *v, const char *pointer,
                   size_t max, size_t *count, struct api_err *err)
{
    const struct api_span *span = api_doc_span(rd->doc, v);
    const char *first = span != NULL ? span->begin + 1 : NULL;
    char place[API_POINTER_MAX];

    *count = span == NULL ? json_array_size(v) : 0;
    if (!json_is_array(v) || (span != NULL && (span->is_string || span->is_binary)))
        return api_fail_type(err, pointer, "A list of objects",
                             api_type_name(rd->doc, v));
    if (span != NULL && (span->leaves > 0 || span->arrays > 1))
        return api_fail_type(err, api_pointer_index(place, pointer, 0), "An object",
                             api_type_at(first + strspn(first, " \t\r\n")));
    return *count <= max ||
           api_fail_numbers(err, "too-large", pointer, NULL, max, *count,
                            "%zu are asked; at most %zu are possible.", *count, max);
}

/* ---- gradients ---- */

struct gradient_fields {
    const json_t *of, *cotangent, *with_respect_to, *check;
};

static bool keep_of(void *into, const struct api_doc *doc, const json_t *v,
                    const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct gradient_fields *)into)->of = v;
    return true;
}

static bool keep_cotangent(void *into, const struct api_doc *doc, const json_t *v,
                           const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct gradient_fields *)into)->cotangent = v;
    return true;
}

static bool keep_with_respect_to(void *into, const struct api_doc *doc, const json_t *v,
                                 const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct gradient_fields *)into)->with_respect_to = v;
    return true;
}

static bool keep_check(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    (void)doc, (void)pointer, (void)err;
    ((struct gradient_fields *)into)->check = v;
    return true;
}

static const struct api_field_row GRADIENTS[] = {
    {"of", keep_of, false},
    {"cotangent", keep_cotangent, false},
    {"with_respect_to", keep_with_respect_to, false},
    {"check", keep_check, false},
};

static bool read_of(struct api_reading *rd, const json_t *v, struct api_err *err)
{
    static const enum attn_object OF[] = {ATTN_Y, ATTN_H, ATTN_H_HEADS, ATTN_A, ATTN_S};
    struct attn_grad_ask *ask = &rd->r->gradients;
    const char *names[API_COUNT(OF)];
    int choice = 0;

    for (size_t n = 0; n < API_COUNT(OF); n++)
        names[n] = ATTN_OBJECTS[OF[n]].name;
    if (v != NULL &&
        !api_read_choice(v, "/gradients/of", names, API_COUNT(OF), &choice, err))
        return false;
    ask->of = OF[choice];
    if (!attn_object_exists(&rd->r->p, ask->of))
        return api_fail(
            err, "contradiction", "/gradients/of",
            "%s does not exist in this problem: there is no W_O; state \"of\": \"H\" "
            "or another object.",
            names[choice]);
    return true;
}

static bool read_cotangent(struct api_reading *rd, const json_t *v, struct api_err *err)
{
    static const char *const NAMES[] = {"ones"};
    const char *pointer = "/gradients/cotangent";
    struct attn_problem *p = &rd->r->p;
    struct attn_grad_ask *ask = &rd->r->gradients;
    struct api_tensor_in in = {.present = true, .form = API_INIT, .init = ATTN_INIT_ONES};
    struct attn_tensor shape;
    int choice;

    attn_object_shape(p, ask->of, &shape);
    attn_object_full_shape(p, ask->of, &ask->cotangent);
    ask->cotangent.dtype = p->dtype;
    ask->cotangent.p = NULL;
    if (v != NULL && json_is_string(v)) {
        if (!api_read_choice(v, pointer, NAMES, API_COUNT(NAMES), &choice, err))
            return false;
    } else if (v != NULL && !api_tensor_scan(rd->doc, v, pointer, &in, err)) {
        return false;
    }
    if (!api_expect_shape(&in, ATTN_OBJECTS[ask->of].name, shape.rank, shape.dim, err))
        return false;
    if (rd->sizes_only)
        return true;
    ask->cotangent.p = api_take_tensor(rd, &in, p->dtype, API_FINITE_ONLY, err);
    return ask->cotangent.p != NULL;
}

static const char *gradient_name_at(const void *names, size_t n)
{
    (void)names;
    return ATTN_GRADIENTS[n].name;
}

/* "dX" and "d_additive", or the tensor's own name: "X", "additive". */
static int find_gradient(const char *name)
{
    static const char *const PREFIXES[] = {"", "d", "d_"};
    char full[64];
    int g = -1;

    for (size_t n = 0; n < API_COUNT(PREFIXES) && g < 0; n++) {
        snprintf(full, sizeof full, "%s%.40s", PREFIXES[n], name);
        g = attn_gradient_find(full);
    }
    return g;
}

static bool read_gradient_name(struct api_reading *rd, const json_t *v,
                               const char *pointer, struct api_err *err)
{
    const char *name = json_string_value(v);
    const int g = name != NULL ? find_gradient(name) : -1;

    /* v stands in a tree of its own: an array in it is no mark of rd->doc. */
    if (name == NULL)
        return api_fail_type(err, pointer, "The name of a gradient",
                             api_type_name(NULL, v));
    if (g < 0)
        return api_fail_unknown(err, "unknown-name", pointer, name, gradient_name_at,
                                NULL, ATTN_GRADIENT_COUNT);
    if (!attn_gradient_exists(&rd->r->p, (enum attn_gradient)g))
        return api_fail(err, "contradiction", pointer,
                        "%s does not exist in this problem.", ATTN_GRADIENTS[g].name);
    rd->r->gradients.with_respect_to |= UINT32_C(1) << g;
    return true;
}

static bool read_with_respect_to(struct api_reading *rd, const json_t *v,
                                 struct api_err *err)
{
    enum { NAMES_MAX = 64 };
    const char *pointer = "/gradients/with_respect_to";
    char place[API_POINTER_MAX];
    json_t *list;
    bool ok;

    for (int g = 0; v == NULL && g < ATTN_GRADIENT_COUNT; g++)
        if (attn_gradient_exists(&rd->r->p, (enum attn_gradient)g))
            rd->r->gradients.with_respect_to |= UINT32_C(1) << g;
    if (v == NULL)
        return true;
    list = api_doc_tree(rd->doc, v, pointer, NAMES_MAX, err);
    ok = list != NULL;
    for (size_t n = 0; ok && n < json_array_size(list); n++)
        ok = read_gradient_name(rd, json_array_get(list, n),
                                api_pointer_index(place, pointer, n), err);
    json_decref(list);
    return ok;
}

bool api_read_gradients(struct api_reading *rd, struct api_err *err)
{
    struct gradient_fields f = {0};

    if (rd->gradients == NULL)
        return true;
    rd->r->has_gradients = true;
    return api_read_object(&f, rd->doc, rd->gradients, "/gradients", GRADIENTS,
                           API_COUNT(GRADIENTS), err) &&
           read_of(rd, f.of, err) && read_cotangent(rd, f.cotangent, err) &&
           read_with_respect_to(rd, f.with_respect_to, err) &&
           (f.check == NULL ||
            api_read_bool(f.check, "/gradients/check", &rd->r->gradients.check, err));
}

/* ---- traces ---- */

struct place {
    const struct attn_dims *d;
    size_t b, h, i;
};

static bool read_index(const json_t *v, const char *pointer, size_t size, size_t *out,
                       struct api_err *err)
{
    return api_read_size(v, pointer, 0, size - 1, out, err);
}

static bool read_batch(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct place *place = into;

    (void)doc;
    return read_index(v, pointer, place->d->B, &place->b, err);
}

static bool read_head(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    struct place *place = into;

    (void)doc;
    return read_index(v, pointer, place->d->h, &place->h, err);
}

static bool read_query(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct place *place = into;

    (void)doc;
    return read_index(v, pointer, place->d->T_q, &place->i, err);
}

static const struct api_field_row TRACE[] = {
    {"batch", read_batch, false},
    {"head", read_head, false},
    {"query", read_query, true},
};

bool api_read_traces(struct api_reading *rd, struct api_err *err)
{
    struct api_request *r = rd->r;
    char pointer[API_POINTER_MAX];

    if (rd->traces == NULL)
        return true;
    if (!api_read_list(rd, rd->traces, "/traces", API_TRACES_MAX, &r->traces, err))
        return false;
    r->trace = api_take(rd, r->traces * sizeof *r->trace, "/traces", err);
    for (size_t n = 0; r->trace != NULL && n < r->traces; n++) {
        struct place place = {.d = &r->p.d};

        api_pointer_index(pointer, "/traces", n);
        if (!api_read_object(&place, rd->doc, json_array_get(rd->traces, n), pointer,
                             TRACE, API_COUNT(TRACE), err))
            return false;
        r->trace[n].b = place.b;
        r->trace[n].h = place.h;
        r->trace[n].i = place.i;
        snprintf(r->trace[n].pointer, sizeof r->trace[n].pointer, "%.63s", pointer);
    }
    return r->trace != NULL;
}
