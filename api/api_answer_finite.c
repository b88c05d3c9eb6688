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

/* M holds -Infinity wherever a pair is forbidden, and so does what M is added to. */
static bool should_be_finite(enum attn_object o)
{
    return o != ATTN_M && o != ATTN_S_MASKED && o != ATTN_LSE && !ATTN_OBJECTS[o].is_bool;
}

/* Whether this entry of an object from A on belongs to a row without a key; of Y, to one
   in any head. */
static bool in_empty_row(const struct api_work *w, enum attn_object o, size_t flat)
{
    const struct attn_dims *const d = &w->r.p.d;
    size_t at[ATTN_AX_COUNT] = {0}, first, heads = d->h;
    struct attn_tensor shape;
    bool has_rows = false;

    attn_object_full_shape(&w->r.p, o, &shape);
    for (unsigned k = shape.rank; k-- > 0; flat /= shape.dim[k]) {
        const enum attn_axis axis = ATTN_OBJECTS[o].axis[k];

        at[axis] = flat % shape.dim[k];
        has_rows |= axis == ATTN_AX_TQ;
        heads = axis == ATTN_AX_H ? 1 : heads;
    }
    first = at[ATTN_AX_B] * d->h + at[ATTN_AX_H];
    for (size_t h = first; has_rows && h < first + heads; h++)
        if (w->trace.empty[h * d->T_q + at[ATTN_AX_TQ]] != 0)
            return true;
    return false;
}

/* The first entry that is not finite; rows without a key are NaN from A on when the
   request wants them so. */
static size_t first_nonfinite(const struct api_work *w, enum attn_object o)
{
    const struct attn_tensor *const t = &w->trace.t[o];
    const bool nan_rows =
        w->r.p.empty_rows == ATTN_EMPTY_NAN && o >= ATTN_A && w->trace.empty_count > 0;
    const size_t count = t->p && should_be_finite(o) ? attn_tensor_count(t) : 0;

    for (size_t n = 0; n < count; n++)
        if (!isfinite(attn_tensor_get(t, n)) && !(nan_rows && in_empty_row(w, o, n)))
            return n;
    return SIZE_MAX;
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
        "%s. %s too large for %s.",
        ATTN_OBJECTS[o].name, api_shape_text(place, shape.rank, index),
        w->r.inject ? "That is the injected fault, or the inputs are" : "The inputs are",
        attn_dtype_name(w->r.p.dtype));
    api_warn(&w->r, w->nonfinite);
}

void api_warn_nonfinite(struct api_work *w)
{
    if (w->audit.status != ATTN_FAIL)
        return;
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        const size_t at = first_nonfinite(w, (enum attn_object)o);

        if (at == SIZE_MAX)
            continue;
        say(w, (enum attn_object)o, at);
        return;
    }
}
