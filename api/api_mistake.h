/*
 * api_mistake.h - what is wrong at a place of a body that is not JSON.
 * Not here: the scanner that came to the place (api_lift.c).
 * Start reading at api_mistake_find.
 */
#ifndef API_MISTAKE_H
#define API_MISTAKE_H

#include <stddef.h>

/* What should stand at a place. */
enum api_next {
    API_NEXT_VALUE,
    API_NEXT_VALUE_OR_END, /* the first of a list */
    API_NEXT_NAME,
    API_NEXT_NAME_OR_END, /* the first of an object */
    API_NEXT_COLON,
    API_NEXT_COMMA_OR_END,
    API_NEXT_NOTHING,
};

/* What a JSON Pointer can name that is there. */
enum api_named { API_NAMED_VALUE, API_NAMED_LAST_VALUE, API_NAMED_AROUND };

struct api_misread {
    const char *body, *at, *end;
    enum api_next next;
    const char *around; /* where the innermost open list or object begins; or NULL */
};

struct api_mistake {
    const char *at; /* where the body is to be mended: not always where it was noticed */
    enum api_named named;
    char what[256]; /* a sentence without its full stop */
};

/* Says what is wrong at m->at, in words that tell how to mend it. */
void api_mistake_find(const struct api_misread *m, struct api_mistake *found);

/* Why characters that were meant as a number and are none of JSON are none, a clause;
   `meant` is the number that can be read into them, or "". */
enum { API_MISTAKE_NUMBER_MAX = 40 };
const char *api_mistake_number(const char *p, size_t len,
                               char meant[API_MISTAKE_NUMBER_MAX + 4]);

#endif
