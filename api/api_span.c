/*
 * api_span.c - the shape of an array while it is scanned: regular, or where it is not.
 * Not here: the scanner (api_lift.c), the sentences about ragged arrays (api_tensor.c).
 * Start reading at api_shape_leaves.
 *
 * `level` is how many arrays of the one being lifted are open; `index` their places,
 * outermost first: index[k] values of the array at level k are finished.
 */
#include "api/api_private.h"

#include <stdlib.h>
#include <string.h>

bool api_span_add(struct api_ctx *ctx, size_t n, const struct api_span *span)
{
    if (n == ctx->span_cap) {
        const size_t cap = n == 0 ? 64 : 2 * n;
        struct api_span *more = realloc(ctx->span, cap * sizeof *more);

        if (more == NULL)
            return false;
        ctx->span = more;
        ctx->span_cap = cap;
    }
    ctx->span[n] = *span;
    return true;
}

/* Records the first odd place: `level` indices into the array. */
static void odd(struct api_shape *s, enum api_odd kind, unsigned level,
                const size_t *index, size_t want, size_t got)
{
    struct api_span *span = &s->span;

    if (span->odd != API_ODD_NONE)
        return;
    span->odd = kind;
    span->odd_depth = level <= ATTN_RANK_MAX ? level : ATTN_RANK_MAX + 1;
    span->odd_want = want;
    span->odd_got = got;
    memcpy(span->odd_at, index, span->odd_depth * sizeof *index);
}

void api_shape_leaves(struct api_shape *s, unsigned level, const size_t *index,
                      size_t count)
{
    s->span.leaves += count;
    if (s->leaf_rank == level)
        return;
    if (s->leaf_rank == 0 && s->deepest == level)
        s->leaf_rank = level;
    else
        odd(s, level < s->deepest ? API_ODD_LEAF : API_ODD_ARRAY, level, index,
            s->leaf_rank != 0 ? s->leaf_rank : s->deepest, level);
}

void api_shape_open(struct api_shape *s, unsigned level, const size_t *index)
{
    s->span.arrays++;
    if (s->leaf_rank != 0 && level >= s->leaf_rank)
        odd(s, API_ODD_ARRAY, level, index, s->leaf_rank, level + 1);
    if (level == ATTN_RANK_MAX)
        odd(s, API_ODD_DEEP, level, index, ATTN_RANK_MAX, level + 1);
    if (level + 1 > s->deepest)
        s->deepest = level + 1;
}

void api_shape_close(struct api_shape *s, unsigned level, const size_t *index)
{
    const size_t count = index[level];

    if (level >= ATTN_RANK_MAX)
        return;
    if ((s->dims_known & 1u << level) == 0) {
        s->dims_known |= 1u << level;
        s->span.dim[level] = count;
    } else if (s->span.dim[level] != count) {
        odd(s, API_ODD_LENGTH, level, index, s->span.dim[level], count);
    }
}

void api_shape_end(struct api_shape *s, const char *end)
{
    s->span.end = end;
    s->span.rank = s->leaf_rank != 0 ? s->leaf_rank : s->deepest;
    s->span.regular = s->span.odd == API_ODD_NONE;
}
