/*
 * api_answer_finite.c - a layer whose numbers overflowed: says so, and where it began.
 * Not here: the audit that noticed (core/attn_audit*.c), inputs, which must be finite.
 * Start reading at api_warn_nonfinite.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api_answer.h"
#include "api/api_request.h"

/* M holds -Infinity wherever a pair is forbidden, and so does what M is added to; rows
   without a key are NaN from A on when the request wants them so. */
static bool should_be_finite(const struct api_work *w, int o)
{
    const bool nan_rows = w->r.p.empty_rows == ATTN_EMPTY_NAN && w->trace.empty_count > 0;

    return o != ATTN_M && o != ATTN_S_MASKED && o != ATTN_LSE &&
           !ATTN_OBJECTS[o].is_bool && !(nan_rows && o >= ATTN_A);
}

static size_t first_nonfinite(const struct attn_tensor *t)
{
    const size_t count = attn_tensor_count(t);
    size_t n = 0;

    while (n < count && isfinite(attn_tensor_get(t, n)))
        n++;
    return n < count ? n : SIZE_MAX;
}

/* The sentence, with the entry's index as the answer's axes count it. */
static void say(struct api_work *w, enum attn_object o, size_t flat)
{
    size_t index[ATTN_RANK_MAX] = {0}, rest = flat;
    char place[API_SHAPE_TEXT_MAX];
    struct attn_tensor shape;

    attn_object_shape(&w->r.p, o, &shape);
    for (unsigned k = shape.rank; k-- > 0; rest /= shape.dim[k])
        index[k] = rest % shape.dim[k];
    snprintf(
        w->nonfinite, sizeof w->nonfinite,
        "Tensors of this answer hold numbers that are not finite: the first is %s at "
        "%s. The inputs are too large for %s.",
        ATTN_OBJECTS[o].name, api_shape_text(place, shape.rank, index),
        attn_dtype_name(w->r.p.dtype));
    api_warn(&w->r, w->nonfinite);
}

void api_warn_nonfinite(struct api_work *w)
{
    if (w->audit.status != ATTN_FAIL)
        return;
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        const struct attn_tensor *t = &w->trace.t[o];
        const size_t at = t->p && should_be_finite(w, o) ? first_nonfinite(t) : SIZE_MAX;

        if (at == SIZE_MAX)
            continue;
        say(w, (enum attn_object)o, at);
        return;
    }
}
