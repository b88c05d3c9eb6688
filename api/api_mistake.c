/*
 * api_mistake.c - what is wrong with a body that is not JSON, and how to mend it.
 * Not here: the grammar, which the scanner knows (api_lift.c); why a number is none
 * (api_mistake_number.c).
 * Start reading at MISTAKES: the first row that knows the mistake says it.
 */
#include "api/api_private.h"
#include "api/api_mistake.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { WORD_MAX = API_MISTAKE_NUMBER_MAX }; /* of a word of the body that is shown */

/* ---- places ---- */

struct place {
    size_t line, column;
};

static struct place place_of(const char *body, const char *at)
{
    struct place place = {1, 1};

    for (; body < at; body++) {
        if (*body == '\n') {
            place.line++;
            place.column = 1;
        } else if (((unsigned char)*body & 0xC0) != 0x80) {
            place.column++;
        }
    }
    return place;
}

bool api_fail_at(struct api_err *err, const char *name, const char *pointer,
                 const char *body, size_t at, const char *what)
{
    const struct place place = place_of(body, body + at);

    return api_fail(err, name, pointer, "At line %zu, column %zu (byte %zu): %s.",
                    place.line, place.column, at, what);
}

/* ---- words ---- */

static bool say(struct api_mistake *found, const char *at, enum api_named named,
                const char *what, ...) __attribute__((format(printf, 4, 5)));

static bool say(struct api_mistake *found, const char *at, enum api_named named,
                const char *what, ...)
{
    va_list args;

    found->at = at;
    found->named = named;
    va_start(args, what);
    vsnprintf(found->what, sizeof found->what, what, args);
    va_end(args);
    found->what[api_utf8_cut(found->what, sizeof found->what)] = '\0';
    return true;
}

static bool is_one_of(char c, const char *these)
{
    return c != '\0' && strchr(these, c) != NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool begins(const struct api_misread *m, const char *text)
{
    const size_t len = strlen(text);

    return (size_t)(m->end - m->at) >= len && memcmp(m->at, text, len) == 0;
}

/* What would be read as one word or number by somebody who knows no JSON. */
static size_t word_length(const char *at, const char *end)
{
    size_t n = 0;

    while (at + n < end &&
           (is_letter(at[n]) || is_digit(at[n]) || is_one_of(at[n], ".+-")))
        n++;
    return n;
}

static bool word_is(const char *at, size_t len, const char *word)
{
    return strlen(word) == len && strncasecmp(at, word, len) == 0;
}

/* Of valid UTF-8. */
static unsigned code_point(const char *at, size_t bytes)
{
    static const unsigned char FIRST[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    unsigned code = (unsigned char)*at & FIRST[bytes];

    for (size_t n = 1; n < bytes; n++)
        code = code << 6 | ((unsigned char)at[n] & 0x3F);
    return code;
}

/* What stands at a place, for a sentence. */
static void show(const char *at, const char *end, char out[WORD_MAX + 16])
{
    const size_t size = WORD_MAX + 16, word = word_length(at, end);
    const size_t bytes = at < end ? api_utf8_length(at, end) : 0;
    const unsigned char c = at < end ? (unsigned char)*at : 0;

    if (at == end)
        snprintf(out, size, "the end of the body");
    else if (word > 1 || (word == 1 && !is_one_of(*at, ".+-")))
        snprintf(out, size, "%.*s%s", (int)(word < WORD_MAX ? word : WORD_MAX), at,
                 word > WORD_MAX ? "…" : "");
    else if (c > ' ' && c < 0x7F)
        snprintf(out, size, "'%c'", c);
    else if (bytes > 1)
        snprintf(out, size, "'%.*s' (U+%04X)", (int)bytes, at, code_point(at, bytes));
    else
        snprintf(out, size, "byte 0x%02X", c);
}

static bool wants_value(const struct api_misread *m)
{
    return m->next == API_NEXT_VALUE || m->next == API_NEXT_VALUE_OR_END;
}

static bool wants_name(const struct api_misread *m)
{
    return m->next == API_NEXT_NAME || m->next == API_NEXT_NAME_OR_END;
}

static bool in_list(const struct api_misread *m)
{
    return m->around != NULL && *m->around == '[';
}

/* What there is to be named where something is wrong at this place. */
static enum api_named named_by(const struct api_misread *m)
{
    if (m->next == API_NEXT_COMMA_OR_END)
        return API_NAMED_LAST_VALUE;
    return wants_value(m) || m->next == API_NEXT_COLON ? API_NAMED_VALUE
                                                       : API_NAMED_AROUND;
}

/* ---- a body that is no text in UTF-8 ---- */

static bool says_coding(const struct api_misread *m, struct api_mistake *found)
{
    static const char IN_UTF_8[] = "encode it as UTF-8, without a byte order mark";
    static const struct {
        const char *bytes;
        size_t len;
        const char *what, *mend;
    } CODINGS[] = {
        {"\xEF\xBB\xBF", 3,
         "the body begins with a byte order mark of UTF-8 (bytes EF BB BF)",
         "send it without these three bytes"},
        {"\xFF\xFE\0\0", 4, "the body is in UTF-32 (byte order mark FF FE 00 00)",
         IN_UTF_8},
        {"\0\0\xFE\xFF", 4, "the body is in UTF-32 (byte order mark 00 00 FE FF)",
         IN_UTF_8},
        {"\xFF\xFE", 2, "the body is in UTF-16 (byte order mark FF FE)", IN_UTF_8},
        {"\xFE\xFF", 2, "the body is in UTF-16 (byte order mark FE FF)", IN_UTF_8},
        {"{\0\0", 3, "the body is in UTF-32, little end first", IN_UTF_8},
        {"\0\0\0{", 4, "the body is in UTF-32, big end first", IN_UTF_8},
        {"{\0", 2, "the body is in UTF-16, little end first", IN_UTF_8},
        {"\0{", 2, "the body is in UTF-16, big end first", IN_UTF_8},
        {"\x1F\x8B", 2, "the body is packed (gzip)", "send it as it was before that"},
        {"\x28\xB5\x2F\xFD", 4, "the body is packed (zstd)",
         "send it as it was before that"},
    };
    const size_t len = (size_t)(m->end - m->body);

    if (m->at > m->body + 1)
        return false;
    for (size_t n = 0; n < API_COUNT(CODINGS); n++)
        if (len >= CODINGS[n].len &&
            memcmp(m->body, CODINGS[n].bytes, CODINGS[n].len) == 0)
            return say(found, m->body, API_NAMED_AROUND, "%s; %s", CODINGS[n].what,
                       CODINGS[n].mend);
    return false;
}

/* ---- the end of the body ---- */

static bool says_end(const struct api_misread *m, struct api_mistake *found)
{
    struct place place;

    if (m->at < m->end)
        return false;
    if (m->around == NULL)
        return say(found, m->at, API_NAMED_AROUND,
                   "the body is blank; it must be a JSON object");
    place = place_of(m->body, m->around);
    return say(
        found, m->at, API_NAMED_AROUND,
        "the body ends inside of the %s that begins at line %zu, column %zu; it was "
        "cut short, or a %c is missing",
        in_list(m) ? "list" : "object", place.line, place.column, in_list(m) ? ']' : '}');
}

/* ---- numbers ---- */

/* Where the number begins that `at` belongs to; NULL when it belongs to none. */
static const char *number_begin(const struct api_misread *m)
{
    const char *p = m->at;

    if (wants_value(m))
        return is_digit(*p) || is_one_of(*p, "+-.") ? p : NULL;
    if (m->next != API_NEXT_COMMA_OR_END && m->next != API_NEXT_NOTHING)
        return NULL;
    if (p == m->body || !is_digit(p[-1]) || word_length(p, m->end) == 0)
        return NULL;
    while (p > m->body && (is_digit(p[-1]) || is_one_of(p[-1], "+-.eE")))
        p--;
    return p;
}

static bool says_number(const struct api_misread *m, struct api_mistake *found)
{
    const char *const begin = number_begin(m);
    char meant[API_MISTAKE_NUMBER_MAX + 4];
    const char *why;
    size_t len;

    if (begin == NULL)
        return false;
    len = word_length(begin, m->end);
    why = api_mistake_number(begin, len, meant);
    return say(found, begin, named_by(m), "%.*s%s is no number of JSON: %s%s%s",
               (int)(len < WORD_MAX ? len : WORD_MAX), begin, len > WORD_MAX ? "…" : "",
               why, meant[0] != '\0' ? "; write " : "", meant);
}

/* ---- words ---- */

static bool says_word(const struct api_misread *m, struct api_mistake *found)
{
    static const char AS_TEXT[] =
        "%.*s is no number of JSON; write \"%s\", a string, where it is allowed";
    static const char AS_WORD[] = "%.*s is no word of JSON; write %s";
    static const struct {
        const char *word, *what, *write;
    } WORDS[] = {
        {"nan", AS_TEXT, "NaN"},           {"-nan", AS_TEXT, "NaN"},
        {"inf", AS_TEXT, "Infinity"},      {"infinity", AS_TEXT, "Infinity"},
        {"+inf", AS_TEXT, "Infinity"},     {"+infinity", AS_TEXT, "Infinity"},
        {"-inf", AS_TEXT, "-Infinity"},    {"-infinity", AS_TEXT, "-Infinity"},
        {"np.nan", AS_TEXT, "NaN"},        {"np.inf", AS_TEXT, "Infinity"},
        {"math.inf", AS_TEXT, "Infinity"}, {"-np.inf", AS_TEXT, "-Infinity"},
        {"true", AS_WORD, "true"},         {"false", AS_WORD, "false"},
        {"null", AS_WORD, "null"},         {"none", AS_WORD, "null"},
        {"undefined", AS_WORD, "null"},
    };
    const size_t len = word_length(m->at, m->end);

    for (size_t n = 0; wants_value(m) && n < API_COUNT(WORDS); n++) {
        if (!word_is(m->at, len, WORDS[n].word))
            continue;
        found->at = m->at;
        found->named = API_NAMED_VALUE;
        snprintf(found->what, sizeof found->what, WORDS[n].what, (int)len, m->at,
                 WORDS[n].write);
        return true;
    }
    return false;
}

static bool says_bare_name(const struct api_misread *m, struct api_mistake *found)
{
    char shown[WORD_MAX + 16];

    if (!wants_name(m) || m->at == m->end || !is_letter(*m->at))
        return false;
    show(m->at, m->end, shown);
    return say(found, m->at, API_NAMED_AROUND, "the name %s stands without double quotes",
               shown);
}

/* ---- characters of other languages, and of typography ---- */

static bool says_character(const struct api_misread *m, struct api_mistake *found)
{
    static const struct {
        const char *text, *what;
    } CHARACTERS[] = {
        {"//", "JSON has no comments; remove this one"},
        {"/*", "JSON has no comments; remove this one"},
        {"#", "JSON has no comments; remove this one"},
        {"...", "dots stand for what was left out; every value must be sent"},
        {"\u2026", "dots stand for what was left out; every value must be sent"},
        {"(", "a list stands in [ ], not in ( )"},
        {"'", "texts and names stand in double quotes, not in single ones"},
        {"`", "texts and names stand in double quotes"},
        {"\u201C", "this quote is typography (U+201C); write \""},
        {"\u201D", "this quote is typography (U+201D); write \""},
        {"\u2018", "this quote is typography (U+2018); write \""},
        {"\u2019", "this quote is typography (U+2019); write \""},
        {"\u2212", "this minus sign is typography (U+2212); write -"},
        {"\u2013", "this dash is typography (U+2013); write -"},
        {"\xC2\xA0", "this blank is a no-break space (U+00A0); write an ordinary one"},
        {"\u200B", "a blank without width (U+200B) stands here; remove it"},
        {"\uFEFF", "a byte order mark (U+FEFF) stands here; remove it"},
    };

    for (size_t n = 0; n < API_COUNT(CHARACTERS); n++)
        if (begins(m, CHARACTERS[n].text))
            return say(found, m->at, named_by(m), "%s", CHARACTERS[n].what);
    return false;
}

/* ---- commas and brackets ---- */

static const char *before_blanks(const struct api_misread *m)
{
    const char *p = m->at;

    while (p > m->body && is_one_of(p[-1], " \t\r\n"))
        p--;
    return p > m->body ? p - 1 : p;
}

static bool says_comma_too_many(const struct api_misread *m, struct api_mistake *found)
{
    const char *const before = before_blanks(m);

    if (m->around == NULL || *before != ',' ||
        (m->next != API_NEXT_VALUE && m->next != API_NEXT_NAME))
        return false;
    if (*m->at == ',')
        return say(found, m->at, API_NAMED_AROUND,
                   "a comma stands behind another; remove it, or write what is missing");
    if (*m->at != (in_list(m) ? ']' : '}'))
        return false;
    return say(found, before, API_NAMED_AROUND,
               "the comma before %c is one too many; remove it", *m->at);
}

static bool says_bracket(const struct api_misread *m, struct api_mistake *found)
{
    struct place place;

    if (m->around == NULL || *m->at != (in_list(m) ? '}' : ']') ||
        (!in_list(m) && m->next == API_NEXT_VALUE))
        return false;
    place = place_of(m->body, m->around);
    return say(
        found, m->at, API_NAMED_AROUND,
        "%c cannot end the %s that begins at line %zu, column %zu; a %c is missing",
        *m->at, in_list(m) ? "list" : "object", place.line, place.column,
        in_list(m) ? ']' : '}');
}

static bool says_value_missing(const struct api_misread *m, struct api_mistake *found)
{
    char shown[WORD_MAX + 16];

    if (!wants_value(m) || !is_one_of(*m->at, ",:]}"))
        return false;
    show(m->at, m->end, shown);
    return say(found, m->at, in_list(m) ? API_NAMED_AROUND : API_NAMED_VALUE,
               "a value is missing before %s", shown);
}

static bool says_comma_missing(const struct api_misread *m, struct api_mistake *found)
{
    char shown[WORD_MAX + 16];

    if (m->next != API_NEXT_COMMA_OR_END ||
        !(is_digit(*m->at) || is_one_of(*m->at, "-+.[{\"") || is_letter(*m->at)))
        return false;
    show(m->at, m->end, shown);
    return say(found, m->at, API_NAMED_LAST_VALUE, "a comma is missing before %s", shown);
}

static bool says_colon_in_list(const struct api_misread *m, struct api_mistake *found)
{
    if (m->next != API_NEXT_COMMA_OR_END || !in_list(m) || *m->at != ':')
        return false;
    return say(found, m->at, API_NAMED_LAST_VALUE,
               "a name with a value belongs into an object, { }, and this is a list");
}

/* ---- everything else ---- */

static bool says_other(const struct api_misread *m, struct api_mistake *found)
{
    static const char *const SHOULD[] = {
        [API_NEXT_VALUE] = "a value",
        [API_NEXT_VALUE_OR_END] = "a value or ]",
        [API_NEXT_NAME] = "a name in double quotes",
        [API_NEXT_NAME_OR_END] = "a name in double quotes or }",
        [API_NEXT_COLON] = "the colon behind this name",
        [API_NEXT_COMMA_OR_END] = "a comma or }",
        [API_NEXT_NOTHING] = "the end of the body",
    };
    char shown[WORD_MAX + 16];

    show(m->at, m->end, shown);
    return say(found, m->at, named_by(m), "%s stands where %s should", shown,
               m->next == API_NEXT_COMMA_OR_END && in_list(m) ? "a comma or ]"
                                                              : SHOULD[m->next]);
}

/* In this order: the end of the body first, since the others look at what stands there.
 */
static bool (*const MISTAKES[])(const struct api_misread *m,
                                struct api_mistake *found) = {
    says_end,           says_coding,        says_word,           says_character,
    says_number,        says_bare_name,     says_comma_too_many, says_bracket,
    says_value_missing, says_comma_missing, says_colon_in_list,  says_other,
};

void api_mistake_find(const struct api_misread *m, struct api_mistake *found)
{
    size_t n = 0;

    while (!MISTAKES[n](m, found))
        n++;
}
