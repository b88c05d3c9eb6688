/*
 * api_names.c - names that are not known: which are, and which of them was meant.
 * Not here: who knows which names (the tables of api/ and core/).
 * Start reading at api_fail_unknown.
 */
#include "api/api_private.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_MAX_COMPARED = 40, PREFIX_MIN = 3 };

/* Single letters put in, left out or changed to turn one word into the other
   (Levenshtein); capital and small letters count as the same. */
static size_t letters_apart(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    size_t row[NAME_MAX_COMPARED + 1];

    if (n > NAME_MAX_COMPARED || m > NAME_MAX_COMPARED)
        return SIZE_MAX;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        const int letter = tolower((unsigned char)a[i - 1]);
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t change = diagonal + (letter != tolower((unsigned char)b[j - 1]));

            diagonal = row[j];
            row[j] = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            if (change < row[j])
                row[j] = change;
        }
    }
    return row[m];
}

/* The one name that begins with `given`; NULL when none does, or several. */
static const char *only_one_that_begins(const char *given, api_name_at_fn *name_at,
                                        const void *names, size_t count)
{
    const size_t len = strlen(given);
    const char *found = NULL;

    for (size_t n = 0; n < count && len >= PREFIX_MIN; n++) {
        if (strncasecmp(name_at(names, n), given, len) != 0)
            continue;
        if (found != NULL)
            return NULL;
        found = name_at(names, n);
    }
    return found;
}

const char *api_nearest(const char *given, api_name_at_fn *name_at, const void *names,
                        size_t count)
{
    const size_t len = strlen(given);
    size_t best = len < 3 ? 1 : len < 6 ? 2 : 3;
    const char *found = NULL;

    for (size_t n = 0; n < count; n++) {
        const char *name = name_at(names, n);
        const size_t apart = letters_apart(given, name);

        if (apart < best || (apart == best && found == NULL && apart < len)) {
            best = apart;
            found = name;
        }
    }
    return found != NULL ? found : only_one_that_begins(given, name_at, names, count);
}

const char *api_name_list(char out[API_NAMES_MAX], api_name_at_fn *name_at,
                          const void *names, size_t count)
{
    enum { ROOM_FOR_REST = 24 };
    size_t len = 0, left = 0;

    out[0] = '\0';
    for (size_t n = 0; n < count; n++) {
        const char *name = name_at(names, n);
        const size_t more = strlen(name) + strlen(", \"\"");

        if (*name == '\0')
            continue;
        if (left > 0 || len + more >= API_NAMES_MAX - ROOM_FOR_REST)
            left++;
        else
            len += (size_t)snprintf(out + len, API_NAMES_MAX - len, "%s\"%s\"",
                                    len == 0 ? "" : ", ", name);
    }
    if (left > 0)
        snprintf(out + len, API_NAMES_MAX - len, " and %zu more", left);
    return out;
}

bool api_fail_unknown(struct api_err *err, const char *name, const char *pointer,
                      const char *given, api_name_at_fn *name_at, const void *names,
                      size_t count)
{
    const char *nearest = api_nearest(given, name_at, names, count);
    const int shown = (int)api_utf8_cut(given, API_GIVEN_MAX);
    char list[API_NAMES_MAX];

    api_name_list(list, name_at, names, count);
    if (nearest == NULL)
        return api_fail(err, name, pointer, "\"%.*s\" is not known here. Known: %s.",
                        shown, given, list);
    return api_fail(err, name, pointer,
                    "\"%.*s\" is not known here; did you mean \"%s\"? Known: %s.", shown,
                    given, nearest, list);
}
