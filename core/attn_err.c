/*
 * attn_err.c - records a world error: what failed, where, and the two numbers that
 * disagreed. Not here: sentences, HTTP statuses, JSON Pointers (api_error.c makes them
 * from these fields). Start reading at attn_fail.
 */
#include "core/attn.h"

#include <assert.h>

bool attn_fail(struct attn_err *err, enum attn_code code, const char *object,
               const char *axis, size_t want, size_t got)
{
    assert(err != NULL);
    assert(code != ATTN_OK && code < ATTN_CODE_COUNT);

    if (err->code == ATTN_OK)
        *err = (struct attn_err){.code = code,
                                 .object = object,
                                 .axis = axis,
                                 .want = want,
                                 .got = got,
                                 .at = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX}};
    return false;
}
