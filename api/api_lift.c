/*
 * api_lift.c - the scanner: checks the body's grammar, lifts arrays and long strings out.
 * Not here: the reduced text as a tree (api_doc.c), numbers as numbers (api_tensor.c).
 * Start reading at api_lift, then NEXTS; an array is "kept" when it holds an object.
 *
 * One pass without recursion.  Arrays are taken to hold no object until one is met; then
 * the scan goes back to the outermost array that was wrong about itself, and now keeps
 * the open ones in place.  No byte is read more than twice for that: what is kept stays
 * kept.  Numbers of a lifted array are gone over many at once; where something is wrong
 * in them they are gone over again one by one, which finds the place.
 */
#include "api/api_private.h"
#include "api/api_mistake.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 128, VALUES_MAX = 65536, STRING_LIFTED = 256, NO_LIFT = DEPTH_MAX };
enum { REDUCED_MAX = 16 << 20 }; /* jansson takes several times as much memory */

struct frame { /* one open array or object */
    const char *begin;
    const char *key, *key_end; /* objects: the key being read */
    bool object;
};

struct scan {
    struct api_ctx *ctx;
    const char *body, *p, *end;
    const char *copied; /* up to here the body is in the reduced text */
    enum api_next next;
    struct frame frame[DEPTH_MAX];
    size_t count[DEPTH_MAX];     /* by depth: values finished in it */
    const char *kept[DEPTH_MAX]; /* by depth: where an array begins that is kept */
    unsigned depth;
    unsigned base;          /* depth of the array being lifted; NO_LIFT = none */
    struct api_shape shape; /* that array so far */
    size_t spans, values;
    const char *stop;  /* a place to stop at; or NULL */
    const char *token; /* with a place to stop at: where the last one begins */
    bool one_by_one;   /* numbers: to a place to stop at, or to what is wrong */
    struct api_err *err;
};

/* ---- saying where ---- */

/* What names value `index` of an open list, or the member being read of an object; false
   where that cannot be written. */
static bool name_of(const struct frame *f, size_t index, char name[API_POINTER_MAX])
{
    if (f->object)
        return f->key != NULL && api_doc_name(f->key, f->key_end, name);
    snprintf(name, API_POINTER_MAX, "%zu", index);
    return true;
}

/* The place in the list or object that is open innermost is `named`; where there is no
   room for a name, what is around it. */
static void pointer_of(const struct scan *s, enum api_named named, char *out)
{
    const unsigned depth = s->depth - (named == API_NAMED_AROUND && s->depth > 0);
    char name[API_POINTER_MAX], before[API_POINTER_MAX];

    out[0] = '\0';
    for (unsigned d = 0; d < depth; d++) {
        const bool last = named == API_NAMED_LAST_VALUE && d + 1 == depth;

        if (!name_of(&s->frame[d], s->count[d] - last, name) ||
            !api_pointer_fits(out, name))
            return;
        memcpy(before, out, sizeof before);
        api_pointer(out, before, name);
    }
}

static bool fail_at(struct scan *s, const char *name, enum api_named named,
                    const char *at, const char *what)
{
    char pointer[API_POINTER_MAX];

    pointer_of(s, named, pointer);
    return api_fail_at(s->err, name, pointer, s->body, (size_t)(at - s->body), what);
}

/* What stands at p is not what should. */
static bool fail(struct scan *s)
{
    const struct api_misread misread = {
        .body = s->body,
        .at = s->p,
        .end = s->end,
        .next = s->next,
        .around = s->depth > 0 ? s->frame[s->depth - 1].begin : NULL};
    struct api_mistake found;

    api_mistake_find(&misread, &found);
    return fail_at(s, "not-json", found.named, found.at, found.what);
}

/* Inside of the string that is being read. */
static bool fail_string(struct scan *s, const char *at, const char *what)
{
    const bool is_name = s->next == API_NEXT_NAME || s->next == API_NEXT_NAME_OR_END;

    return fail_at(s, "not-json", is_name ? API_NAMED_AROUND : API_NAMED_VALUE, at, what);
}

/* ---- lifting ---- */

/* Copies the body up to `end` into the reduced text. */
static bool copy_to(struct scan *s, const char *end)
{
    const size_t bytes = (size_t)(end - s->copied), len = s->ctx->reduced.len;

    if (len + bytes > REDUCED_MAX)
        return api_fail_numbers(s->err, "too-large", "", NULL, REDUCED_MAX, len + bytes,
                                "Names, blanks and texts with escapes take %zu bytes of "
                                "the body outside its arrays; at most %d are read.",
                                len + bytes, REDUCED_MAX);
    if (!api_put(&s->ctx->reduced, s->copied, bytes))
        return api_fail(s->err, "out-of-memory", NULL, "No memory to read the body.");
    return true;
}

/* Puts [n] where begin … end stood, and remembers the span. */
static bool lift(struct scan *s, const struct api_span *span, const char *begin,
                 const char *end)
{
    struct api_ctx *ctx = s->ctx;

    if (!api_span_add(ctx, s->spans, span))
        return api_fail(s->err, "out-of-memory", NULL, "No memory to read the body.");
    if (!copy_to(s, begin))
        return false;
    if (!api_puts(&ctx->reduced, "[") || !api_put_u64(&ctx->reduced, s->spans++) ||
        !api_puts(&ctx->reduced, "]"))
        return api_fail(s->err, "out-of-memory", NULL, "No memory to read the body.");
    s->copied = end;
    return true;
}

static bool lift_end(struct scan *s)
{
    api_shape_end(&s->shape, s->p);
    s->base = NO_LIFT;
    return lift(s, &s->shape.span, s->shape.span.begin, s->shape.span.end);
}

static void leaves(struct scan *s, bool *flag, size_t count)
{
    *flag = true;
    api_shape_leaves(&s->shape, s->depth - s->base, &s->count[s->base], count);
}

/* ---- values ---- */

static bool value_done(struct scan *s)
{
    if (s->depth == 0) {
        s->next = API_NEXT_NOTHING;
        return true;
    }
    s->count[s->depth - 1]++;
    s->next = API_NEXT_COMMA_OR_END;
    if (s->base == NO_LIFT && ++s->values > VALUES_MAX)
        return api_fail_numbers(s->err, "too-large", "", NULL, VALUES_MAX, s->values,
                                "The body holds more than %d fields and objects.",
                                VALUES_MAX);
    return true;
}

static bool push(struct scan *s, bool object)
{
    if (s->depth == DEPTH_MAX)
        return fail_at(s, "too-deep", API_NAMED_VALUE, s->p,
                       "arrays and objects are nested more than 128 deep");
    s->count[s->depth] = 0;
    s->frame[s->depth++] = (struct frame){.begin = s->p, .object = object};
    s->p++;
    s->next = object ? API_NEXT_NAME_OR_END : API_NEXT_VALUE_OR_END;
    return true;
}

static bool open_array(struct scan *s)
{
    const unsigned depth = s->depth;

    if (depth < DEPTH_MAX && s->base == NO_LIFT && s->kept[depth] != s->p) {
        s->base = depth;
        s->shape = (struct api_shape){.span = {.begin = s->p}};
    }
    if (s->base != NO_LIFT)
        api_shape_open(&s->shape, depth - s->base, &s->count[s->base]);
    return push(s, false);
}

static bool open_object(struct scan *s)
{
    if (s->base == NO_LIFT)
        return push(s, true);
    for (unsigned d = s->base; d < s->depth; d++)
        s->kept[d] = s->frame[d].begin;
    s->p = s->frame[s->base].begin;
    s->depth = s->base;
    s->base = NO_LIFT;
    s->next = API_NEXT_VALUE;
    return true;
}

static bool close_frame(struct scan *s)
{
    s->p++;
    s->depth--;
    if (s->base != NO_LIFT)
        api_shape_close(&s->shape, s->depth - s->base, &s->count[s->base]);
    if (s->depth == s->base && !lift_end(s))
        return false;
    return value_done(s);
}

static bool is_one_of(const struct scan *s, const char *these)
{
    return s->p < s->end && *s->p != '\0' && strchr(these, *s->p) != NULL;
}

static bool fail_escape(struct scan *s, const char *begin, const char *what)
{
    return fail_string(s, begin,
                       s->p < s->end ? what
                                     : "the body ends inside of this escape; it was cut "
                                       "short");
}

/* Moves past the escape whose backslash stands at p. */
static bool escape(struct scan *s)
{
    const char *const begin = s->p++;

    if (!is_one_of(s, "\"\\/bfnrtu"))
        return fail_escape(s, begin,
                           "this is no escape of JSON; a backslash is written \\\\");
    if (*s->p++ != 'u')
        return true;
    for (int k = 0; k < 4; k++, s->p++)
        if (!is_one_of(s, "0123456789abcdefABCDEF"))
            return fail_escape(s, begin, "\\u needs four hexadecimal digits");
    return true;
}

/* The bytes at p are no UTF-8, or not yet: more might have made a character of them. */
static bool fail_utf8(struct scan *s)
{
    static const unsigned char MORE[] = {0x80, 0xBF}; /* one of them always may follow */
    const size_t left = (size_t)(s->end - s->p);
    char text[4];

    for (size_t k = 0; left < sizeof text && k < sizeof MORE; k++) {
        memset(text, MORE[k], sizeof text);
        memcpy(text, s->p, left);
        if (api_utf8_length(text, text + sizeof text) > left)
            return fail_string(
                s, s->p, "the body ends inside of this character; it was cut short");
    }
    return fail_string(s, s->p, "a text holds bytes that are not UTF-8");
}

/* Moves past the string that begins at p; its bytes without quotes are begin … end. */
static bool string(struct scan *s, const char **begin, const char **end, bool *escaped)
{
    *begin = ++s->p;
    *escaped = false;
    while (s->p < s->end && *s->p != '"') {
        const size_t n = api_utf8_length(s->p, s->end);

        if ((unsigned char)*s->p < 0x20)
            return fail_string(s, s->p,
                               "a line's end, tab or other control character stands in a "
                               "text; write \\n, \\t or \\u and four digits");
        if (n == 0)
            return fail_utf8(s);
        if (*s->p != '\\') {
            s->p += n;
            continue;
        }
        *escaped = true;
        if (!escape(s))
            return false;
    }
    if (s->p == s->end)
        return fail_string(s, *begin - 1,
                           "the text that begins here has no closing quote");
    *end = s->p++;
    return true;
}

static bool string_value(struct scan *s)
{
    struct api_span span = {.is_string = true};
    bool escaped;

    if (!string(s, &span.begin, &span.end, &escaped))
        return false;
    if (s->base != NO_LIFT)
        leaves(s, &s->shape.span.has_strings, 1);
    else if (!escaped && span.end - span.begin >= STRING_LIFTED &&
             !lift(s, &span, span.begin - 1, span.end + 1))
        return false;
    return value_done(s);
}

/* All numbers from here on that only commas and blanks separate. */
static bool number_list(struct scan *s)
{
    size_t count;
    bool comma;
    const char *stop = api_number_list_end(s->p, s->end, &count, &comma);

    if (stop == NULL)
        return false;
    leaves(s, &s->shape.span.has_numbers, count);
    s->count[s->depth - 1] += count;
    s->p = stop;
    s->next = comma ? API_NEXT_VALUE : API_NEXT_COMMA_OR_END;
    return true;
}

static bool number_value(struct scan *s)
{
    const char *stop;

    if (s->base != NO_LIFT && !s->one_by_one) {
        if (number_list(s))
            return true;
        s->one_by_one = true;
    }
    stop = api_number_end(s->p, s->end);
    if (stop == NULL)
        return fail(s);
    s->p = stop;
    if (s->base != NO_LIFT)
        leaves(s, &s->shape.span.has_numbers, 1);
    return value_done(s);
}

static bool word_value(struct scan *s)
{
    static const char *const WORDS[] = {"true", "false", "null"};

    for (size_t k = 0; k < API_COUNT(WORDS); k++) {
        const size_t len = strlen(WORDS[k]);

        if ((size_t)(s->end - s->p) < len || memcmp(s->p, WORDS[k], len) != 0)
            continue;
        s->p += len;
        if (s->base != NO_LIFT)
            leaves(s, k == 2 ? &s->shape.span.has_nulls : &s->shape.span.has_booleans, 1);
        return value_done(s);
    }
    return fail(s);
}

/* ---- states ---- */

static bool at_value(struct scan *s)
{
    const char c = *s->p;

    if (c == '{')
        return open_object(s);
    if (c == '[')
        return open_array(s);
    if (c == '"')
        return string_value(s);
    return c == '-' || (c >= '0' && c <= '9') ? number_value(s) : word_value(s);
}

static bool at_value_or_end(struct scan *s)
{
    return *s->p == ']' ? close_frame(s) : at_value(s);
}

static bool at_key(struct scan *s)
{
    struct frame *f = &s->frame[s->depth - 1];
    const char *begin, *end;
    bool escaped;

    if (*s->p != '"')
        return fail(s);
    if (!string(s, &begin, &end, &escaped))
        return false;
    f->key = begin;
    f->key_end = end;
    s->next = API_NEXT_COLON;
    return true;
}

static bool at_key_or_end(struct scan *s)
{
    return *s->p == '}' ? close_frame(s) : at_key(s);
}

static bool at_colon(struct scan *s)
{
    if (*s->p != ':')
        return fail(s);
    s->p++;
    s->next = API_NEXT_VALUE;
    return true;
}

static bool at_more(struct scan *s)
{
    const bool object = s->frame[s->depth - 1].object;

    if (*s->p == (object ? '}' : ']'))
        return close_frame(s);
    if (*s->p != ',')
        return fail(s);
    s->p++;
    s->next = object ? API_NEXT_NAME : API_NEXT_VALUE;
    return true;
}

static bool at_done(struct scan *s)
{
    return fail(s);
}

static bool (*const NEXTS[])(struct scan *s) = {
    [API_NEXT_VALUE] = at_value,  [API_NEXT_VALUE_OR_END] = at_value_or_end,
    [API_NEXT_NAME] = at_key,     [API_NEXT_NAME_OR_END] = at_key_or_end,
    [API_NEXT_COLON] = at_colon,  [API_NEXT_COMMA_OR_END] = at_more,
    [API_NEXT_NOTHING] = at_done,
};

static bool run(struct scan *s)
{
    for (;;) {
        while (s->p < s->end &&
               (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
            s->p++;
        if (s->stop != NULL && s->p >= s->stop)
            return true;
        s->token = s->p;
        if (s->p == s->end)
            return s->next == API_NEXT_NOTHING || fail(s);
        if (!NEXTS[s->next](s))
            return false;
    }
}

bool api_lift(struct api_ctx *ctx, const char *body, size_t len, size_t *span_count,
              struct api_err *err)
{
    struct scan s = {.ctx = ctx,
                     .body = body,
                     .p = body,
                     .end = body + len,
                     .copied = body,
                     .base = NO_LIFT,
                     .err = err};

    ctx->reduced.len = 0;
    if (!run(&s))
        return false;
    *span_count = s.spans;
    return copy_to(&s, s.end);
}

size_t api_lift_token(struct api_ctx *ctx, const char *body, size_t len, size_t at,
                      char *pointer)
{
    struct api_err ignored = {0};
    struct scan s = {.ctx = ctx,
                     .body = body,
                     .p = body,
                     .end = body + len,
                     .copied = body,
                     .base = NO_LIFT,
                     .stop = body + at,
                     .token = body,
                     .one_by_one = true,
                     .err = &ignored};

    ctx->reduced.len = 0;
    run(&s);
    pointer_of(&s,
               s.next == API_NEXT_COMMA_OR_END ? API_NAMED_LAST_VALUE : API_NAMED_VALUE,
               pointer);
    return (size_t)(s.token - body);
}
