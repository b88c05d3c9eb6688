/* test_api_number_list.c - many numbers at once: random lists, right and wrong ones,
   beside a reader that goes byte by byte and the numbers of the C library. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 19, NUMBERS_MAX = TEXT_MAX / 2, SEED = 20261129 };

static const struct api_limits LIMITS = {.memory_max_bytes = 1 << 24};
static uint64_t state = SEED;
static char text[TEXT_MAX];
static size_t len;

/* ---- random texts ---- */

static unsigned draw(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((state >> 33) % n);
}

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    len += (size_t)vsnprintf(text + len, sizeof text - len, format, args);
    va_end(args);
    cr_assert(len < sizeof text);
}

static void put_blanks(unsigned style)
{
    static const char *const BLANKS[] = {" ", "\n", "\r\n", "\t", "\n      "};

    if (style == 1)
        put(" ");
    for (unsigned n = style < 2 ? 0 : draw(3); n > 0; n--)
        put("%s", BLANKS[draw(5)]);
    if (style > 1 && draw(50) == 0)
        put("%*s", (int)draw(200), "");
}

static void put_digits(unsigned count)
{
    while (count-- > 0)
        put("%c", draw(4) == 0 ? "09"[draw(2)] : (char)('0' + draw(10)));
}

static void put_number(unsigned kind)
{
    const double x =
        (double)draw(1 << 30) * 0x1p-29 - 1 + (double)draw(1 << 30) * 0x1p-59;
    const int digits = 1 + (int)draw(20);

    switch (kind) {
    case 0:
        put("%.6f", 4 * x);
        break;
    case 1:
        put("%.9g", (double)(float)x);
        break;
    case 2:
        put("%.17g", 10 * x);
        break;
    case 3:
        put("%.*e", digits, x);
        break;
    case 4:
        put("%s%uE%s%u", draw(2) ? "-" : "", draw(1000), draw(2) ? "+" : "", draw(45));
        break;
    case 5:
        put("%.*g", digits, ldexp(x, (int)draw(2100) - 1080));
        break;
    case 6:
        put("%s%u.", draw(2) ? "-" : "", draw(11));
        put_digits(1 + draw(draw(8) == 0 ? 150 : 25));
        break;
    default:
        put("%d", (int)(x * 200));
    }
}

/* Now and then, one time of `rare`, something else than a number; never when it is 0. */
static void put_value(unsigned kind, unsigned rare)
{
    static const char *const ODD[] = {
        "true", "false", "null",  "\"NaN\"", "\"a, 1]\"", "01",    "-",     "1.",
        ".5",   "1e",    "+1",    "-01",     "00",        "1.e5",  "1e+",   "1 2",
        "--1",  "1e5.5", "1.5.5", "1e5e5",   "0x1",       "NaN",   "1,,2",  ",",
        "[]",   "1-2",   "1+2",   "1e5-3",   "1\x01",     "tru",   "1/2",   "e5",
        "1]2",  "1e+-5", "-.5",   "1.-5",    "\x80",      "1e5+1", "0.1.0", "1:2",
    };

    if (rare != 0 && draw(rare) == 0)
        put("%s", ODD[draw(API_COUNT(ODD))]);
    else
        put_number(kind < 8 ? kind : draw(8));
}

static void put_array(unsigned depth, unsigned count, unsigned style, unsigned rare)
{
    const unsigned kind = draw(12),
                   length = rare && draw(40) == 0 ? draw(count + 2) : count;

    put("[");
    for (unsigned n = 0; n < length; n++) {
        if (n > 0)
            put(",");
        put_blanks(style);
        if (depth > 1)
            put_array(depth - 1, count, style, rare);
        else
            put_value(kind, rare);
        if (style > 1)
            put_blanks(style);
    }
    put("]");
}

static void make_text(unsigned rare)
{
    const unsigned depth = 1 + draw(3);

    len = 0;
    put_array(depth, 1 + draw(depth < 3 && draw(4) == 0 ? 25 : 6), draw(3), rare);
}

/* ---- the slow reader: where the first wrong byte is, and at which entry ---- */

struct slow {
    const char *begin, *p, *end;
    const char *number, *number_end, *open_string; /* the last ones; or NULL */
    bool after_value;
    size_t index[64];
    unsigned depth;
    size_t numbers, values;
};

static void over_blanks(struct slow *s)
{
    while (s->p < s->end && *s->p != '\0' && strchr(" \n\r\t", *s->p) != NULL)
        s->p++;
}

static const char *over_digits(const char *p, const char *end)
{
    while (p < end && isdigit((unsigned char)*p))
        p++;
    return p;
}

static bool slow_number(struct slow *s)
{
    const char *p = s->p, *from;

    p += *p == '-';
    from = p;
    p = p < s->end && *p == '0' ? p + 1 : over_digits(p, s->end);
    if (p == from)
        return false;
    if (p < s->end && *p == '.') {
        from = ++p;
        p = over_digits(p, s->end);
        if (p == from)
            return false;
    }
    if (p < s->end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < s->end && (*p == '+' || *p == '-');
        from = p;
        p = over_digits(p, s->end);
        if (p == from)
            return false;
    }
    s->number = s->p;
    s->p = s->number_end = p;
    s->numbers++;
    s->values++;
    return true;
}

static bool slow_word(struct slow *s)
{
    static const char *const WORDS[] = {"true", "false", "null", "\"NaN\"", "\"a, 1]\""};

    for (size_t n = 0; n < API_COUNT(WORDS); n++) {
        const size_t size = strlen(WORDS[n]), left = (size_t)(s->end - s->p);

        if (left < size && WORDS[n][0] == '"' && memcmp(s->p, WORDS[n], left) == 0)
            s->open_string = s->p;
        if (left < size || memcmp(s->p, WORDS[n], size) != 0)
            continue;
        s->p += size;
        s->values++;
        return true;
    }
    return false;
}

static bool slow_array(struct slow *s);

static bool slow_value(struct slow *s)
{
    s->after_value = false;
    over_blanks(s);
    if (s->p == s->end)
        return false;
    if (*s->p == '[')
        return slow_array(s);
    return *s->p == '-' || isdigit((unsigned char)*s->p) ? slow_number(s) : slow_word(s);
}

static bool slow_array(struct slow *s)
{
    size_t *const index = &s->index[s->depth++];

    s->p++;
    *index = 0;
    over_blanks(s);
    if (s->p < s->end && *s->p == ']')
        goto closed;
    for (;;) {
        if (!slow_value(s))
            return false;
        ++*index;
        s->after_value = true;
        over_blanks(s);
        if (s->p < s->end && *s->p == ']')
            goto closed;
        if (s->p == s->end || *s->p != ',')
            return false;
        s->p++;
    }
closed:
    s->p++;
    s->depth--;
    return true;
}

/* Where what the slow reader stopped at is to be mended, and what a pointer names: the
   value that is wrong, the last that is right, or the list around. */
static const char *slow_mistake(struct slow *s)
{
    unsigned *const depth = &s->depth;

    if (s->open_string != NULL)
        return s->open_string;
    if (s->p == s->end || (!s->after_value && strchr(",:]", *s->p) != NULL)) {
        *depth -= *depth > 0;
        if (s->p == s->end || *s->p != ']')
            return s->p;
        for (const char *p = s->p; p > s->begin && p[-1] != '['; p--)
            if (p[-1] == ',')
                return p - 1;
        return s->p;
    }
    if (!s->after_value)
        return s->p;
    if (*depth > 0)
        s->index[*depth - 1]--;
    return s->p == s->number_end &&
                   (isalnum((unsigned char)*s->p) || strchr("+-.", *s->p) != NULL)
               ? s->number
               : s->p;
}

/* ---- both beside each other ---- */

static void same_verdict(struct api_ctx *ctx, const char *body, size_t size)
{
    struct slow s = {.begin = body, .p = body, .end = body + size};
    struct api_err err = {0};
    bool right = slow_value(&s);
    char place[64], pointer[API_POINTER_MAX] = "";
    size_t spans;

    if (right) {
        s.after_value = true;
        over_blanks(&s);
        right = s.p == s.end;
    }
    cr_assert(api_lift(ctx, body, size, &spans, &err) == right, "%.*s: %s", (int)size,
              body, err.detail);
    if (right) {
        cr_assert(spans == 1 && ctx->span[0].leaves == s.values, "%.*s", (int)size, body);
        cr_assert(ctx->span[0].has_numbers == (s.numbers > 0), "%.*s", (int)size, body);
        return;
    }
    snprintf(place, sizeof place, "(byte %zu)", (size_t)(slow_mistake(&s) - body));
    for (unsigned n = 0; n < s.depth; n++)
        sprintf(pointer + strlen(pointer), "/%zu", s.index[n]);
    cr_assert(strstr(err.detail, place) != NULL, "%.*s: %s, not %s", (int)size, body,
              err.detail, place);
    cr_assert_str_eq(err.pointer, pointer, "%.*s: at %s, not %s", (int)size, body,
                     err.pointer, pointer);
}

/* A copy that ends where the text ends: reading past it is seen. */
static void same_verdict_alone(struct api_ctx *ctx, size_t size)
{
    char *alone = malloc(size > 0 ? size : 1);

    memcpy(alone, text, size);
    same_verdict(ctx, alone, size);
    free(alone);
}

Test(api_number_list, wrong_bytes_are_found_where_a_slow_reader_finds_them)
{
    struct api_ctx *ctx = api_ctx_new(&LIMITS);

    for (unsigned n = 0; n < 3000; n++) {
        make_text(n % 3 == 0 ? 0 : 3 + draw(100));
        if (n % 4 == 0)
            text[draw((unsigned)len)] = "0123456789+-.eE, \n[]\"tfn\\:\x01\xff"[draw(28)];
        if (memchr(text, '"', len) == NULL || n % 4 != 0)
            same_verdict_alone(ctx, len);
    }
    api_ctx_free(ctx);
}

Test(api_number_list, a_text_may_end_at_any_byte)
{
    struct api_ctx *ctx = api_ctx_new(&LIMITS);

    for (unsigned n = 0; n < 150; n++) {
        make_text(n % 2 == 0 ? 0 : 50);
        for (size_t size = 0; size < len && size < 700; size++)
            same_verdict_alone(ctx, size);
    }
    api_ctx_free(ctx);
}

Test(api_number_list, says_how_many_stand_there_and_what_stands_last)
{
    static const struct {
        const char *text;
        size_t end, count;
        bool comma;
    } ROWS[] = {
        {"1", 1, 1, false},
        {"1]", 1, 1, false},
        {"-1.5e+3 , 20 ]", 13, 2, false},
        {"1, 2, [", 6, 2, true},
        {"0,0,\n\"NaN\"", 5, 2, true},
        {"1234567890123456789012345678901234567890123456789012345678901234567890,1 }", 73,
         2, false},
        {"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", 63, 32,
         false},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        size_t count = 0;
        bool comma = !ROWS[n].comma;
        const char *end = api_number_list_end(
            ROWS[n].text, ROWS[n].text + strlen(ROWS[n].text), &count, &comma);

        cr_expect(end == ROWS[n].text + ROWS[n].end, "%s", ROWS[n].text);
        cr_expect(count == ROWS[n].count && comma == ROWS[n].comma, "%s: %zu",
                  ROWS[n].text, count);
    }
}

/* ---- numbers ---- */

static double f64[NUMBERS_MAX];
static float f32[NUMBERS_MAX];

/* Stops at the first number that is out of range, of float64 and of float32. */
static void slow_numbers(const char *p, const char *end, double *x64, float *x32,
                         const char *stop[2], size_t count[2])
{
    size_t n = 0;

    stop[0] = stop[1] = NULL;
    for (;; n++) {
        char *next;

        p += strspn(p, ",[] \n\r\t");
        if (p == end)
            break;
        x64[n] = strtod(p, &next);
        x32[n] = strtof(p, &next);
        if (isinf(x64[n]) && stop[0] == NULL)
            stop[0] = p, count[0] = n;
        if (isinf(x32[n]) && stop[1] == NULL)
            stop[1] = p, count[1] = n;
        p = next;
    }
    for (int k = 0; k < 2; k++)
        if (stop[k] == NULL)
            stop[k] = end, count[k] = n;
}

Test(api_number_list, numbers_are_those_of_the_c_library)
{
    static double want64[NUMBERS_MAX];
    static float want32[NUMBERS_MAX];

    for (unsigned n = 0; n < 3000; n++) {
        const char *p = text, *q = text, *stop[2];
        size_t count[2] = {0, 0};

        make_text(0);
        slow_numbers(text, text + len, want64, want32, stop, count);
        cr_assert(api_number_list_read_f64(&p, text + len, f64) == count[0] &&
                      p == stop[0],
                  "%s: stops at %s", text, p);
        cr_assert(memcmp(f64, want64, count[0] * sizeof *f64) == 0, "%s", text);
        cr_assert(api_number_list_read_f32(&q, text + len, f32) == count[1] &&
                      q == stop[1],
                  "%s: stops at %s", text, q);
        cr_assert(memcmp(f32, want32, count[1] * sizeof *f32) == 0, "%s", text);
    }
}
