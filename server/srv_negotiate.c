/*
 * srv_negotiate.c - readers of header values: media types, tokens, lengths, request ids.
 * Not here: which header decides what (srv_headers.c).
 * Start reading at srv_accepts.
 */
#include "server/srv.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t");
}

/* RFC 9110, section 5.6.2: one or more of these and nothing else. */
bool srv_is_token(const char *text)
{
    const size_t length = strlen(text);

    return length > 0 &&
           strspn(text, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == length;
}

/* Whether the value is this one token, whatever its case and the blanks around it. */
bool srv_token_is(const char *text, const char *token)
{
    const size_t length = strlen(token);

    text = skip_blanks(text);
    return strncasecmp(text, token, length) == 0 && *skip_blanks(text + length) == '\0';
}

/* Content-Length: digits only, no sign, no list. */
bool srv_length_read(const char *text, uint64_t *length)
{
    uint64_t value = 0;

    text = skip_blanks(text);
    if (!isdigit((unsigned char)*text))
        return false;
    for (; isdigit((unsigned char)*text); text++) {
        const unsigned digit = (unsigned)(*text - '0');

        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *length = value;
    return *skip_blanks(text) == '\0';
}

/* No Content-Encoding, or one that changes nothing. */
bool srv_is_identity(const char *content_encoding)
{
    return content_encoding == NULL || srv_token_is(content_encoding, "identity");
}

/* Reads ;name=value, the value quoted or not; false at the end or if malformed. */
static bool parameter_next(const char **text, const char **name, size_t *name_length,
                           const char **value, size_t *value_length)
{
    const char *t = skip_blanks(*text);

    if (*t != ';')
        return false;
    *name = t = skip_blanks(t + 1);
    t += strcspn(t, "=;, \t");
    *name_length = (size_t)(t - *name);
    *value_length = 0;
    *value = t;
    t = skip_blanks(t);
    if (*t == '=') {
        t = skip_blanks(t + 1);
        if (*t == '"') {
            *value = t + 1;
            t = strchr(t + 1, '"');
            if (t == NULL)
                return false;
            *value_length = (size_t)(t++ - *value);
        } else {
            *value = t;
            t += strcspn(t, ";, \t");
            *value_length = (size_t)(t - *value);
        }
    }
    *text = t;
    return true;
}

static bool same(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncasecmp(text, word, length) == 0;
}

/* application/json, its charset utf-8 where one is named. */
bool srv_is_json(const char *content_type)
{
    const char *name, *value;
    size_t type_length, name_length, value_length;

    if (content_type == NULL)
        return false;
    content_type = skip_blanks(content_type);
    type_length = strcspn(content_type, ";, \t");
    if (!same(content_type, type_length, "application/json"))
        return false;
    content_type += type_length;
    while (parameter_next(&content_type, &name, &name_length, &value, &value_length))
        if (same(name, name_length, "charset") && !same(value, value_length, "utf-8"))
            return false;
    return *skip_blanks(content_type) == '\0';
}

/* How closely a range names the type: 3 the type itself, 2 its family, 1
   anything, 0 not. */
static int range_closeness(const char *range, size_t length, const char *type)
{
    const size_t family = strcspn(type, "/") + 1;

    if (same(range, length, type))
        return 3;
    if (length == family + 1 && range[family] == '*' &&
        strncasecmp(range, type, family) == 0)
        return 2;
    return length == 3 && strncmp(range, "*/*", 3) == 0 ? 1 : 0;
}

/* q in thousandths: 0 forbids.  What is no weight counts as 1. */
static int weight_read(const char *value, size_t length)
{
    int weight = 0, unit = 1000;

    for (size_t n = 0; n < length; n++) {
        if (n == 1 ? value[n] != '.' : !isdigit((unsigned char)value[n]))
            return 1000;
        if (n == 1)
            continue;
        weight += unit * (value[n] - '0');
        unit /= 10;
    }
    return length == 0 || weight > 1000 ? 1000 : weight;
}

/* Goes past one member of a list; its text and weight. */
static const char *member_next(const char *list, const char **text, size_t *length,
                               int *weight)
{
    const char *name, *value;
    size_t name_length, value_length;

    *text = list = skip_blanks(list);
    *length = strcspn(list, ";, \t");
    *weight = 1000;
    list += *length;
    while (parameter_next(&list, &name, &name_length, &value, &value_length))
        if (same(name, name_length, "q"))
            *weight = weight_read(value, value_length);
    list += strcspn(list, ",");
    return list + (*list == ',');
}

/* What an Accept list gives the type: the closest range decides (RFC 9110, section
   12.5.1).  No header allows everything. */
static int type_weight(const char *accept, const char *type, int *closest)
{
    int best = 0;

    *closest = 0;
    if (accept == NULL || *skip_blanks(accept) == '\0')
        return 1000;
    while (*accept != '\0') {
        const char *range;
        size_t length;
        int weight, closeness;

        accept = member_next(accept, &range, &length, &weight);
        closeness = range_closeness(range, length, type);
        if (closeness > *closest) {
            *closest = closeness;
            best = weight;
        }
    }
    return best;
}

bool srv_accepts(const char *accept, const char *type)
{
    int closest;

    return type_weight(accept, type, &closest) > 0;
}

/* Of a route's types the one that the client likes best: by weight, then by how closely
   it is named, then in the route's order.  NULL when it takes none. */
const char *srv_type_choose(const char *accept, const char *const *types)
{
    const char *chosen = NULL;
    int most = 0, closest = 0;

    for (; *types != NULL; types++) {
        int closeness;
        const int weight = type_weight(accept, *types, &closeness);

        if (weight > most || (weight == most && weight > 0 && closeness > closest)) {
            chosen = *types;
            most = weight;
            closest = closeness;
        }
    }
    return chosen;
}

/* Which of a route's types a body has; NULL when none. */
const char *srv_type_find(const char *content_type, const char *const *types)
{
    const char *type;

    if (content_type == NULL)
        return NULL;
    type = skip_blanks(content_type);
    for (; *types != NULL; types++)
        if (strcmp(*types, API_JSON) == 0 ? srv_is_json(content_type)
                                          : same(type, strcspn(type, ";, \t"), *types))
            return *types;
    return NULL;
}

/* What a list of tokens with weights gives a name, in thousandths; `any`: so does `*`, to
   what the list does not name.  0 without a list. */
int srv_weight(const char *list, const char *name, bool any)
{
    int rest = 0;

    while (list != NULL && *list != '\0') {
        const char *text;
        size_t length;
        int weight;

        list = member_next(list, &text, &length, &weight);
        if (same(text, length, name))
            return weight;
        if (any && same(text, length, "*"))
            rest = weight;
    }
    return rest;
}

/* An id from the client is taken over if it is safe in a header, a log line and JSON. */
bool srv_id_is_sane(const char *id)
{
    const size_t length = id == NULL ? 0 : strlen(id);

    return length > 0 && length <= SRV_ID_MAX &&
           strspn(id,
                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               length;
}

/* 16 hex digits, different for 2^64 requests: a counter from a random start, mixed one to
   one (splitmix64: Steele, Lea and Flood 2014, figure 15). */
void srv_id_make(char *id, size_t size)
{
    static atomic_uint_fast64_t counter;
    static atomic_bool seeded;
    uint64_t z;
    size_t n;

    if (!atomic_exchange(&seeded, true)) {
        uint64_t seed = 0;

        if (getrandom(&seed, sizeof seed, 0) == sizeof seed)
            atomic_fetch_add(&counter, seed);
    }
    z = atomic_fetch_add(&counter, 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    for (n = 0; n < 16 && n + 1 < size; n++, z <<= 4)
        id[n] = "0123456789abcdef"[z >> 60];
    id[n] = '\0';
}

/* Copies as much as there is room for. */
void srv_text_copy(char *out, size_t size, const char *text, size_t length)
{
    const size_t n = length < size ? length : size - 1;

    memcpy(out, text, n);
    out[n] = '\0';
}
