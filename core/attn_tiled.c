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

/* Where not all rows read all keys: how finely the products follow the rows' ranges. */
enum { SCORE_KEYS = 64, MIX_ROWS = 24 };

struct row_state {
    size_t j0, j1; /* keys that the rules may allow */
    bool exact;    /* … and do */
    struct attn_online online;
};

struct tile { /* one block of rows on its way over the keys: 350 kB */
    const struct attn_run_ctx *run;
    const struct attn_problem *p;
    const struct attn_kernel *kernel;
    struct attn_piece piece;
    size_t rows, bytes, keys; /* keys of one tile */
    struct attn_mat Q, K, V, H;
    size_t all0, all1; /* keys in the range of every row */
    int halvings;      /* 2^-halvings <= 1 / T_kv */
    struct row_state row[ATTN_ROW_BLOCK];
    uint8_t allow[ATTN_ROW_BLOCK * ATTN_TILE_KEYS];
    /* of dtype: S, then exp(S + M - max), halved */
    _Alignas(64) double weight[ATTN_ROW_BLOCK * ATTN_TILE_BYTES / sizeof(double)];
};

static void start_rows(struct tile *t, const double *sink)
{
    t->all0 = 0;
    t->all1 = t->p->d.T_kv;
    for (size_t r = 0; r < t->rows; r++) {
        struct row_state *row = &t->row[r];

        *row = (struct row_state){
            .online = {.max = -(double)INFINITY, .halvings = t->halvings}};
        if (sink && *sink > -(double)INFINITY) {
            row->online.max = *sink;
            row->online.sum = 1;
        }
        attn_allow_range(t->p, t->piece.b, t->piece.h, t->piece.i0 + r, &row->j0,
                         &row->j1, &row->exact);
        t->all0 = row->j0 > t->all0 ? row->j0 : t->all0;
        t->all1 = row->j1 < t->all1 ? row->j1 : t->all1;
        memset((char *)t->H.p + r * t->H.ld * t->bytes, 0, t->H.cols * t->bytes);
    }
}

/* The keys that some row of r0 … r1 - 1 may read. */
static void keys_read(const struct tile *t, size_t r0, size_t r1, size_t *j0, size_t *j1)
{
    *j0 = t->p->d.T_kv;
    *j1 = 0;
    for (size_t r = r0; r < r1; r++) {
        const struct row_state *row = &t->row[r];

        if (row->j0 >= row->j1)
            continue;
        *j0 = row->j0 < *j0 ? row->j0 : *j0;
        *j1 = row->j1 > *j1 ? row->j1 : *j1;
    }
}

/* Every row of the block may read every key of the tile. */
static bool all_read(const struct tile *t, size_t j, size_t keys)
{
    return j >= t->all0 && j + keys <= t->all1;
}

/* Weights of rows r0 … r1 - 1 at `keys` keys of the tile, from its n-th on. */
static struct attn_mat weights(struct tile *t, size_t r0, size_t r1, size_t n,
                               size_t keys)
{
    return (struct attn_mat){.dtype = t->p->dtype,
                             .p = (char *)t->weight + r0 * ATTN_TILE_BYTES + n * t->bytes,
                             .rows = r1 - r0,
                             .cols = keys,
                             .ld = t->keys};
}

/* The rows of the block that may read a key of the tile: from the first to the last. */
static void rows_reading(const struct tile *t, size_t j, size_t keys, size_t *r0,
                         size_t *r1)
{
    *r0 = *r1 = 0;
    for (size_t r = 0; r < t->rows; r++) {
        const struct row_state *row = &t->row[r];

        if (row->j0 >= row->j1 || row->j0 >= j + keys || row->j1 <= j)
            continue;
        if (*r1 == 0)
            *r0 = r;
        *r1 = r + 1;
    }
}

/*
 * Turns the scores of row r and keys first … end - 1 of the tile that starts at key j
 * into weights under the running maximum, and brings the row's H to it.
 */
static void weigh_row(struct tile *t, size_t r, size_t j, size_t first, size_t end)
{
    const struct attn_problem *p = t->p;
    const struct attn_kernel *kernel = t->kernel;
    const size_t n = end - first, i = t->piece.i0 + r;
    uint8_t *allow = t->allow + r * t->keys + (first - j);
    char *s = (char *)t->weight + (r * t->keys + (first - j)) * t->bytes;
    double bias[ATTN_TILE_KEYS], m[ATTN_TILE_KEYS];
    void *H = (char *)t->H.p + r * t->H.ld * t->bytes;

    if (!t->row[r].exact)
        attn_allow_row(p, t->piece.b, t->piece.h, i, first, end, allow);

    const bool biased = attn_bias_row(p, t->piece.b, t->piece.h, i, first, end, bias);

    if (biased)
        kernel->from_double(n, bias, m);
    if (p->softcap > 0)
        kernel->scale_cap(n, s, 1, p->softcap, s);

    struct attn_online *o = &t->row[r].online;
    const bool began = o->sum != 0;
    const double factor =
        kernel->online_row(n, s, biased ? m : NULL, t->row[r].exact ? NULL : allow, o, s);

    if (began && factor != 1)
        kernel->scale_cap(t->H.cols, H, factor, 0, H);
}

/* Zero weight at keys `from` … `to` - 1 of the tile in row r. */
static void no_weight(struct tile *t, size_t r, size_t from, size_t to)
{
    if (from < to)
        memset((char *)t->weight + r * ATTN_TILE_BYTES + from * t->bytes, 0,
               (to - from) * t->bytes);
}

/* Row r of a tile: weights, 0 at keys outside the row's range. */
static void run_row(struct tile *t, size_t r, size_t j, size_t keys)
{
    const struct row_state *row = &t->row[r];
    const size_t first = row->j0 > j ? row->j0 : j;
    const size_t end = row->j1 < j + keys ? row->j1 : j + keys;

    if (!row->exact)
        memset(t->allow + r * t->keys, 0, keys);
    if (first >= end) {
        no_weight(t, r, 0, keys);
        return;
    }
    no_weight(t, r, 0, first - j);
    no_weight(t, r, end - j, keys);
    weigh_row(t, r, j, first, end);
}

/* Which keys the rows of a tile may read, where the range says it all. */
static void fill_allow(struct tile *t, size_t r0, size_t r1, size_t j, size_t keys)
{
    for (size_t r = r0; r < r1; r++) {
        const struct row_state *row = &t->row[r];
        uint8_t *allow = t->allow + r * t->keys;

        for (size_t n = 0; row->exact && n < keys; n++)
            allow[n] = j + n >= row->j0 && j + n < row->j1;
    }
}

/* Scores of all keys of the tile, or of some columns at a time where not all rows read
   all: then those that a row reads are a part of what is computed. */
static bool score_tile(struct tile *t, size_t j, size_t keys, struct attn_err *err)
{
    const struct attn_problem *p = t->p;
    const size_t step = all_read(t, j, keys) ? keys : SCORE_KEYS;

    for (size_t n = 0; n < keys; n += step) {
        const size_t some = keys - n < step ? keys - n : step;
        size_t r0, r1;

        rows_reading(t, j + n, some, &r0, &r1);
        if (r0 < r1 && !attn_score_block(t->run, weights(t, r0, r1, n, some),
                                         attn_mat_rows(t->Q, r0, r1 - r0),
                                         attn_mat_rows(t->K, j + n, some),
                                         p->scale / p->temperature, err))
            return false;
    }
    return true;
}

/* H of rows r0 … r1 - 1 += weights times values, as far as keys from … to - 1 of the tile
   at key j are in the range of one of the rows. */
static void mix_rows(struct tile *t, size_t r0, size_t r1, size_t j, size_t from,
                     size_t to, bool finite)
{
    const struct attn_mat H = attn_mat_rows(t->H, r0, r1 - r0);
    size_t j0, j1;

    keys_read(t, r0, r1, &j0, &j1);
    j0 = j0 > from ? j0 : from;
    j1 = j1 < to ? j1 : to;
    if (j0 >= j1)
        return;

    const struct attn_mat A = weights(t, r0, r1, j0 - j, j1 - j0),
                          V = attn_mat_rows(t->V, j0, j1 - j0);

    if (finite)
        attn_mix_finite(H, A, V);
    else
        attn_mix_keys(H, A, V, t->allow + r0 * t->keys + (j0 - j), t->keys);
}

/* The same for a tile: keys that only some rows read, those that all read, and again
   those of some. */
static void mix_tile(struct tile *t, size_t r0, size_t r1, size_t j, size_t keys,
                     bool finite)
{
    const size_t end = j + keys;
    const size_t all1 = attn_within(t->all1, j, end),
                 all0 = attn_within(t->all0, j, all1);

    for (size_t r = r0; r < r1; r += MIX_ROWS)
        mix_rows(t, r, r1 - r < MIX_ROWS ? r1 : r + MIX_ROWS, j, j, all0, finite);
    mix_rows(t, r0, r1, j, all0, all1, finite);
    for (size_t r = r0; r < r1; r += MIX_ROWS)
        mix_rows(t, r, r1 - r < MIX_ROWS ? r1 : r + MIX_ROWS, j, all1, end, finite);
}

static bool run_tile(struct tile *t, size_t j, size_t keys, struct attn_err *err)
{
    const bool finite = attn_mat_finite(attn_mat_rows(t->V, j, keys));
    size_t r0, r1;

    rows_reading(t, j, keys, &r0, &r1);
    if (r0 == r1)
        return true;
    if (!score_tile(t, j, keys, err))
        return false;
    for (size_t r = r0; r < r1; r++)
        run_row(t, r, j, keys);
    if (!finite)
        fill_allow(t, r0, r1, j, keys);
    mix_tile(t, r0, r1, j, keys, finite);
    return true;
}

/* H of a row without any allowed key; false when the problem calls that an error. */
static bool empty_row(const struct tile *t, size_t r, struct attn_err *err)
{
    const struct attn_problem *p = t->p;
    const struct attn_kernel *kernel = t->kernel;
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

/* H becomes a mean; empty rows, lse; 0/0 where all scores were -Infinity. */
static bool finish_rows(const struct tile *t, const struct attn_trace *trace,
                        struct attn_err *err)
{
    const struct attn_kernel *kernel = t->kernel;
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
        else if (o->any)
            kernel->scale_cap(t->H.cols, H, ldexp(1, o->halvings) / o->sum, 0, H);
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
 *     H' = H e^(m - m') + sum_j e^(s_j - m') v_j;  at the end H / l
 *
 * Weights are halved until T_kv of them add up to at most 1, so that H never leaves the
 * range of the values on its way.
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
    t.run = run;
    t.p = run->p;
    t.kernel = attn_kernel_of(run->p->dtype);
    t.halvings = 0;
    while (d->T_kv >> t.halvings > 0)
        t.halvings++;
    t.piece = piece;
    t.rows = rows;
    t.bytes = attn_dtype_bytes(H.dtype);
    t.keys = attn_tile_keys(H.dtype);
    t.Q = attn_mat_rows(attn_slice(&trace->t[ATTN_Q], piece.b, piece.h), piece.i0, rows);
    t.K = attn_slice(&trace->t[ATTN_K], piece.b, g);
    t.V = attn_slice(&trace->t[ATTN_V], piece.b, g);
    t.H = H;
    start_rows(&t, attn_sink_of(run->p, piece.h, &value));
    keys_read(&t, 0, rows, &j0, &j1);
    for (size_t j = j0; j < j1; j += t.keys) {
        const size_t keys = j1 - j < t.keys ? j1 - j : t.keys;

        if ((j > j0 && attn_stopped(run, err)) || !run_tile(&t, j, keys, err))
            return false;
    }
    if (!finish_rows(&t, trace, err))
        return false;
    if (trace->t[ATTN_H_HEADS].p)
        attn_mat_copy(attn_mat_rows(attn_slice(&trace->t[ATTN_H_HEADS], piece.b, piece.h),
                                    piece.i0, rows),
                      H);
    return true;
}
