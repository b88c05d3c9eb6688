/*
 * attn_tiled.c - SCORE to MIX of a block of rows without a T_q x T_kv tensor: tiles of
 * keys pass by, and each row keeps its running maximum and sum. Not here: the dense
 * stages (attn_softmax.c, attn_mix.c), one row of one tile (attn_kernel.inc). Start
 * reading at attn_tiled.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { TILE_KEYS = 64 };

struct row_state {
    size_t j0, j1; /* keys that the rules may allow */
    bool exact;    /* … and do */
    struct attn_online online;
};

struct tile { /* one block of rows on its way over the keys: 80 kB */
    const struct attn_problem *p;
    struct attn_piece piece;
    size_t rows, bytes;
    struct attn_mat Q, K, V, H;
    struct row_state row[ATTN_ROW_BLOCK];
    uint8_t allow[ATTN_ROW_BLOCK * TILE_KEYS];
    double
        weight[ATTN_ROW_BLOCK * TILE_KEYS]; /* of dtype: S, then exp(S + M - max) / sum */
};

static void start_rows(struct tile *t, const double *sink)
{
    for (size_t r = 0; r < t->rows; r++) {
        struct row_state *row = &t->row[r];

        *row = (struct row_state){.online.max = -(double)INFINITY};
        if (sink && *sink > -(double)INFINITY)
            row->online = (struct attn_online){.max = *sink, .sum = 1};
        attn_allow_range(t->p, t->piece.b, t->piece.h, t->piece.i0 + r, &row->j0,
                         &row->j1, &row->exact);
        memset((char *)t->H.p + r * t->H.ld * t->bytes, 0, t->H.cols * t->bytes);
    }
}

/* The keys that some row may read. */
static void keys_read(const struct tile *t, size_t *j0, size_t *j1)
{
    *j0 = t->p->d.T_kv;
    *j1 = 0;
    for (size_t r = 0; r < t->rows; r++) {
        const struct row_state *row = &t->row[r];

        if (row->j0 >= row->j1)
            continue;
        *j0 = row->j0 < *j0 ? row->j0 : *j0;
        *j1 = row->j1 > *j1 ? row->j1 : *j1;
    }
}

static bool tile_is_read(const struct tile *t, size_t j, size_t keys)
{
    for (size_t r = 0; r < t->rows; r++)
        if (t->row[r].j0 < j + keys && t->row[r].j1 > j && t->row[r].j0 < t->row[r].j1)
            return true;
    return false;
}

/*
 * Turns the raw scores of row r and keys first … end - 1 of the tile that starts at key j
 * into weights under the running maximum and sum, and brings the row's H to these.  H is
 * a mean at all times, never a bare sum: values near the end of the range would overflow
 * in one.
 */
static void weigh_row(struct tile *t, size_t r, size_t j, size_t first, size_t end)
{
    const struct attn_problem *p = t->p;
    const struct attn_kernel *kernel = attn_kernel_of(p->dtype);
    const size_t n = end - first, i = t->piece.i0 + r;
    uint8_t *allow = t->allow + r * TILE_KEYS + (first - j);
    char *s = (char *)t->weight + (r * TILE_KEYS + (first - j)) * t->bytes;
    double bias[TILE_KEYS], m[TILE_KEYS];
    void *H = (char *)t->H.p + r * t->H.ld * t->bytes;

    if (t->row[r].exact)
        memset(allow, 1, n);
    else
        attn_allow_row(p, t->piece.b, t->piece.h, i, first, end, allow);

    const bool biased = attn_bias_row(p, t->piece.b, t->piece.h, i, first, end, bias);

    if (biased)
        kernel->from_double(n, bias, m);
    kernel->scale_cap(n, s, p->scale / p->temperature, p->softcap, s);

    struct attn_online *o = &t->row[r].online;
    const double before = o->sum;
    const double factor =
        kernel->online_row(n, s, biased ? m : NULL, t->row[r].exact ? NULL : allow, o, s);

    if (o->sum == 0) /* no score above -Infinity so far: weights and H are 0 */
        return;
    kernel->scale_cap(n, s, 1 / o->sum, 0, s);
    if (before != 0)
        kernel->scale_cap(t->H.cols, H, factor * before / o->sum, 0, H);
}

static void run_tile(struct tile *t, size_t j, size_t keys)
{
    const struct attn_mat S = {.dtype = t->p->dtype,
                               .p = t->weight,
                               .rows = t->rows,
                               .cols = keys,
                               .ld = TILE_KEYS};

    attn_score_block(t->p, S, t->Q, attn_mat_rows(t->K, j, keys));
    memset(t->allow, 0, sizeof t->allow);
    for (size_t r = 0; r < t->rows; r++) {
        const struct row_state *row = &t->row[r];
        const size_t first = row->j0 > j ? row->j0 : j;
        const size_t end = row->j1 < j + keys ? row->j1 : j + keys;
        char *w = (char *)t->weight + r * TILE_KEYS * t->bytes;

        if (first >= end) {
            memset(w, 0, keys * t->bytes);
            continue;
        }
        memset(w, 0, (first - j) * t->bytes);
        memset(w + (end - j) * t->bytes, 0, (j + keys - end) * t->bytes);
        weigh_row(t, r, j, first, end);
    }
    attn_mix_keys(t->H, S, attn_mat_rows(t->V, j, keys), t->allow, TILE_KEYS);
}

/* H of a row without any allowed key; false when the problem calls that an error. */
static bool empty_row(const struct tile *t, size_t r, struct attn_err *err)
{
    const struct attn_problem *p = t->p;
    const struct attn_kernel *kernel = attn_kernel_of(p->dtype);
    void *H = (char *)t->H.p + r * t->H.ld * t->bytes;

    if (p->empty_rows == ATTN_EMPTY_ERROR)
        return attn_empty_fail(err, t->piece.b, t->piece.h, t->piece.i0 + r);
    kernel->fill(t->H.cols, p->empty_rows == ATTN_EMPTY_NAN ? (double)NAN : 0, H);
    if (p->empty_rows == ATTN_EMPTY_UNIFORM)
        for (size_t j = 0; j < t->V.rows; j++)
            kernel->axpy(t->H.cols, 1 / (double)p->d.T_kv,
                         (char *)t->V.p + j * t->V.ld * t->bytes, H);
    return true;
}

/* Empty rows, lse; 0/0 where all scores were -Infinity. */
static bool finish_rows(const struct tile *t, const struct attn_trace *trace,
                        struct attn_err *err)
{
    const struct attn_kernel *kernel = attn_kernel_of(t->p->dtype);
    const struct attn_dims *d = &t->p->d;

    for (size_t r = 0; r < t->rows; r++) {
        const struct attn_online *o = &t->row[r].online;
        const size_t row = (t->piece.b * d->h + t->piece.h) * d->T_q + t->piece.i0 + r;
        void *H = (char *)t->H.p + r * t->H.ld * t->bytes;

        trace->empty[row] = !o->any;
        if (!o->any && !empty_row(t, r, err))
            return false;
        if (o->any && o->sum == 0)
            kernel->fill(t->H.cols, (double)NAN, H);
        if (trace->t[ATTN_LSE].p)
            kernel->set(trace->t[ATTN_LSE].p, row,
                        o->any ? o->max + log(o->sum) : -(double)INFINITY);
    }
    return true;
}

/*
 * H, H_heads, lse and the flags of empty rows of one piece.
 *
 *     m' = max(m, max_j s_j);  l' = l e^(m - m') + sum_j e^(s_j - m');
 *     H' = H e^(m - m') l / l' + sum_j e^(s_j - m') / l' v_j
 *
 * Tiles that no row of the piece may read are skipped, products included.  Values, NaN,
 * overflow and empty rows as in the dense path (attn_stage_softmax, attn_mix_keys).
 * Source: Milakov and Gimelshein 2018; Dao et al. 2022, algorithm 1.
 */
bool attn_tiled(const struct attn_run_ctx *run, struct attn_piece piece,
                struct attn_err *err)
{
    const struct attn_trace *trace = run->t;
    const struct attn_dims *d = &run->p->d;
    const size_t rows = piece.i1 - piece.i0, g = attn_kv_head(d, piece.h);
    struct attn_mat H =
        attn_mat_rows(attn_slice(&trace->t[ATTN_H], piece.b, 0), piece.i0, rows);
    double value;
    size_t j0, j1;
    struct tile t;

    assert(rows <= ATTN_ROW_BLOCK);
    H.p = (char *)H.p + piece.h * d->d_v * attn_dtype_bytes(H.dtype);
    H.cols = d->d_v;
    t.p = run->p;
    t.piece = piece;
    t.rows = rows;
    t.bytes = attn_dtype_bytes(H.dtype);
    t.Q = attn_mat_rows(attn_slice(&trace->t[ATTN_Q], piece.b, piece.h), piece.i0, rows);
    t.K = attn_slice(&trace->t[ATTN_K], piece.b, g);
    t.V = attn_slice(&trace->t[ATTN_V], piece.b, g);
    t.H = H;
    start_rows(&t, attn_sink_of(run->p, piece.h, &value));
    keys_read(&t, &j0, &j1);
    for (size_t j = j0; j < j1; j += TILE_KEYS) {
        const size_t keys = j1 - j < TILE_KEYS ? j1 - j : TILE_KEYS;

        if (tile_is_read(&t, j, keys))
            run_tile(&t, j, keys);
    }
    if (!finish_rows(&t, trace, err))
        return false;
    if (trace->t[ATTN_H_HEADS].p)
        attn_mat_copy(attn_mat_rows(attn_slice(&trace->t[ATTN_H_HEADS], piece.b, piece.h),
                                    piece.i0, rows),
                      H);
    return true;
}
