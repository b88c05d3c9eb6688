/*
 * api_text.c - the numbers of a tensor as text, by one thread or by all that are idle.
 * Not here: one number (api_number_write.cc), encodings and members (api_write.c).
 * Start reading at put_range, then api_put_numbers.
 *
 * A tensor is one run of numbers; what stands between two of them depends on their place
 * alone.  So any range can be written by itself, and the text does not depend on who
 * wrote which.
 */
#include <assert.h>
#include <string.h>

#include "api/api_answer.h"

enum {
    RUN = 1024,          /* numbers for which room is made at once              */
    PIECE = 8192,        /* numbers that one thread writes at a time            */
    PIECES = 16,         /* pieces between two joins: their room is in the cache */
    SHARED_LEAST = 32768 /* numbers that are worth waking a thread for          */
};

/* ---- runs of numbers ---- */

static char *run_f64(char *out, const void *p, size_t count)
{
    return api_number_run_f64(out, p, count);
}

static char *run_f32(char *out, const void *p, size_t count)
{
    return api_number_run_f32(out, p, count);
}

static char *run_bool(char *out, const void *p, size_t count)
{
    const uint8_t *x = p;

    for (size_t n = 0; n < count; n++) {
        memcpy(out, x[n] ? "true," : "false", 5);
        out += x[n] ? 4 : 5;
        *out++ = ',';
    }
    return count > 0 ? out - 1 : out;
}

static const struct run_row {
    size_t text_max; /* longest text of one number, its comma */
    char *(*put)(char *out, const void *p, size_t count);
} RUNS[ATTN_DTYPE_COUNT] = {
    [ATTN_F64] = {25, run_f64},  /* -1.7976931348623157e+308, */
    [ATTN_F32] = {16, run_f32},  /* -3.4028235e+38, with room */
    [ATTN_BOOL] = {6, run_bool}, /* false,                    */
};

size_t api_number_text_max(enum attn_dtype dtype)
{
    return RUNS[dtype].text_max;
}

/* ---- ranges ---- */

struct layout {
    const struct run_row *run;
    const char *numbers;
    size_t width, count, row; /* bytes of a number; numbers in all, in a row */
    unsigned rank;
    const size_t *dim;
};

/* How many brackets stand at the edge before row `row`: one, and one more for each axis
   that begins there. */
static unsigned edges(const struct layout *l, size_t row)
{
    unsigned count = 1;
    size_t rows = 1;

    for (unsigned a = l->rank - 1; a-- > 0; count++) {
        rows *= l->dim[a];
        if (row % rows != 0)
            break;
    }
    return count;
}

static char *put_edges(char *out, const struct layout *l, size_t row, char bracket)
{
    const unsigned count = edges(l, row);

    memset(out, bracket, count);
    return out + count;
}

/* Writes numbers begin … end-1 with what stands before each and behind the last of a row.
 */
static char *put_range(const struct layout *l, size_t begin, size_t end, char *out)
{
    for (size_t n = begin; n < end;) {
        const size_t left = l->row - n % l->row, now = end - n < left ? end - n : left;

        if (n > 0)
            *out++ = ',';
        if (left == l->row)
            out = put_edges(out, l, n / l->row, '[');
        out = l->run->put(out, l->numbers + n * l->width, now);
        n += now;
        if (now == left)
            out = put_edges(out, l, n / l->row, ']');
    }
    return out;
}

/* Room for `numbers` of them, wherever they begin; a writer may touch more than it keeps.
 */
static size_t range_room(const struct layout *l, size_t numbers)
{
    const size_t rows = numbers / l->row + 2;

    return numbers * l->run->text_max + rows * (2 * l->rank + 1) + API_NUMBER_MAX;
}

/* ---- alone, and shared ---- */

static bool put_alone(struct api_buffer *b, const struct layout *l)
{
    for (size_t n = 0; n < l->count; n += RUN) {
        const size_t end = l->count - n < RUN ? l->count : n + RUN;

        if (!api_buffer_reserve(b, range_room(l, RUN)))
            return false;
        b->len = (size_t)(put_range(l, n, end, b->p + b->len) - b->p);
    }
    return true;
}

struct wave { /* pieces written at once, each into a room of its own */
    const struct layout *l;
    char *out;
    size_t first, room;
    size_t len[PIECES];
};

static void put_piece(void *arg, size_t piece)
{
    struct wave *w = arg;
    const size_t begin = w->first + piece * PIECE;
    const size_t end = w->l->count - begin < PIECE ? w->l->count : begin + PIECE;
    char *out = w->out + piece * w->room;

    w->len[piece] = (size_t)(put_range(w->l, begin, end, out) - out);
}

static bool put_shared(struct api_buffer *b, const struct layout *l,
                       const struct attn_exec *exec)
{
    struct wave w = {.l = l, .room = range_room(l, PIECE)};

    for (; w.first < l->count; w.first += PIECES * PIECE) {
        const size_t left = (l->count - w.first + PIECE - 1) / PIECE;
        const size_t pieces = left < PIECES ? left : PIECES;

        if (!api_buffer_reserve(b, pieces * w.room))
            return false;
        w.out = b->p + b->len;
        exec->parallel_for(exec->ctx, pieces, put_piece, &w);
        for (size_t n = 0; n < pieces; n++) {
            memmove(b->p + b->len, w.out + n * w.room, w.len[n]);
            b->len += w.len[n];
        }
    }
    return true;
}

/* A tensor without numbers: brackets alone. */
static bool put_empty(struct api_buffer *b, unsigned rank, const size_t *dim)
{
    bool ok = api_put(b, "[", 1);

    for (size_t n = 0; n < dim[0] && rank > 1 && ok; n++)
        ok = (n == 0 || api_put(b, ",", 1)) && put_empty(b, rank - 1, dim + 1);
    return ok && api_put(b, "]", 1);
}

/*
 * api_put_numbers - nested arrays of the numbers of t
 *
 * rank, dim  in  their product is the number of t's numbers; rank 0 = one bare number
 * exec       in  threads to share the work with; NULL = none
 *
 * False when the buffer could not grow.
 */
bool api_put_numbers(struct api_buffer *b, const struct attn_tensor *t, unsigned rank,
                     const size_t *dim, const struct attn_exec *exec)
{
    struct layout l = {.run = &RUNS[t->dtype],
                       .numbers = t->p,
                       .width = attn_dtype_bytes(t->dtype),
                       .count = attn_tensor_count(t),
                       .rank = rank,
                       .dim = dim};

    if (rank == 0) {
        assert(l.count == 1);
        if (!api_buffer_reserve(b, l.run->text_max + API_NUMBER_MAX))
            return false;
        b->len = (size_t)(l.run->put(b->p + b->len, l.numbers, 1) - b->p);
        return true;
    }
    if (l.count == 0)
        return put_empty(b, rank, dim);
    l.row = dim[rank - 1];
    if (exec == NULL || exec->parallel_for == NULL || l.count < SHARED_LEAST)
        return put_alone(b, &l);
    return put_shared(b, &l, exec);
}
