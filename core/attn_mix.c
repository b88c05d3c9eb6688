/*
 * attn_mix.c - the stage MIX: H = A V, by a product that keeps values from rows which do
 * not read them. Not here: the weights A (attn_softmax.c), Y (attn_project.c). Start
 * reading at attn_mix_keys.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <string.h>

/* One product covers at most so many keys and features, so that a copy of V fits on the
 * stack. */
enum { MIX_KEYS = 128, MIX_COLS = 64 };

static void *cell(struct attn_mat m, size_t row, size_t col)
{
    return (char *)m.p + (row * m.ld + col) * attn_dtype_bytes(m.dtype);
}

static struct attn_mat part(struct attn_mat m, size_t row, size_t rows, size_t col,
                            size_t cols)
{
    m.p = cell(m, row, col);
    m.rows = rows;
    m.cols = cols;
    return m;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool attn_mat_finite(struct attn_mat m)
{
    const struct attn_kernel *kernel = attn_kernel_of(m.dtype);

    if (m.ld == m.cols)
        return kernel->all_finite(m.rows * m.cols, m.p);
    for (size_t r = 0; r < m.rows; r++)
        if (!kernel->all_finite(m.cols, cell(m, r, 0)))
            return false;
    return true;
}

/* H += A V, one product */
static void product(struct attn_mat H, struct attn_mat A, struct attn_mat V)
{
    const struct attn_pack *pack = attn_pack_of(H.dtype);

    if (pack)
        pack->mix(H, A, V);
    else
        attn_gemm(H, A, false, V, false, 1, 1);
}

/* Adds A_ij v_j to the rows i that read key j. */
static void mix_one_value(struct attn_mat H, struct attn_mat A, struct attn_mat V,
                          size_t j, const uint8_t *allow, size_t stride)
{
    const struct attn_kernel *kernel = attn_kernel_of(H.dtype);

    for (size_t i = 0; i < H.rows; i++) {
        const double a = kernel->get(A.p, i * A.ld + j);

        if (a != 0 || !allow || allow[i * stride + j])
            kernel->axpy(H.cols, a, cell(V, j, 0), cell(H, i, 0));
    }
}

/* The product with rows of V that are not finite taken out (as 0, in a copy of the same
   shape, so that all other rows keep their bits) and added where they are read. */
static void mix_not_finite(struct attn_mat H, struct attn_mat A, struct attn_mat V,
                           const uint8_t *allow, size_t stride)
{
    const struct attn_kernel *kernel = attn_kernel_of(H.dtype);
    const size_t bytes = attn_dtype_bytes(H.dtype);
    double room[MIX_KEYS * MIX_COLS];
    const struct attn_mat clean = {
        .dtype = V.dtype, .p = room, .rows = V.rows, .cols = V.cols, .ld = V.cols};

    for (size_t j = 0; j < V.rows; j++)
        if (kernel->all_finite(V.cols, cell(V, j, 0)))
            memcpy(cell(clean, j, 0), cell(V, j, 0), V.cols * bytes);
        else
            memset(cell(clean, j, 0), 0, V.cols * bytes);
    product(H, A, clean);
    for (size_t j = 0; j < V.rows; j++)
        if (!kernel->all_finite(V.cols, cell(V, j, 0)))
            mix_one_value(H, A, V, j, allow, stride);
}

static void mix_part(struct attn_mat H, struct attn_mat A, struct attn_mat V,
                     const uint8_t *allow, size_t stride)
{
    if (attn_mat_finite(V))
        product(H, A, V);
    else
        mix_not_finite(H, A, V, allow, stride);
}

/* Both kinds of values go through products of the same shapes, or bits would differ. */
static void mix(struct attn_mat H, struct attn_mat A, struct attn_mat V, bool finite,
                const uint8_t *allow, size_t stride)
{
    for (size_t c = 0; c < V.cols; c += MIX_COLS)
        for (size_t j = 0; j < V.rows; j += MIX_KEYS) {
            const size_t cols = least(MIX_COLS, V.cols - c),
                         keys = least(MIX_KEYS, V.rows - j);
            const struct attn_mat h = part(H, 0, H.rows, c, cols);
            const struct attn_mat a = part(A, 0, A.rows, j, keys),
                                  v = part(V, j, keys, c, cols);

            if (finite)
                product(h, a, v);
            else
                mix_part(h, a, v, allow ? allow + j : NULL, stride);
        }
}

void attn_mix_keys(struct attn_mat H, struct attn_mat A, struct attn_mat V,
                   const uint8_t *allow, size_t stride)
{
    mix(H, A, V, false, allow, stride);
}

void attn_mix_finite(struct attn_mat H, struct attn_mat A, struct attn_mat V)
{
    mix(H, A, V, true, NULL, 0);
}

/* The keys that some row of the piece gives a weight: from the first allowed to the last.
 */
static void keys_read(const struct attn_run_ctx *run, struct attn_piece piece, size_t *j0,
                      size_t *j1)
{
    const struct attn_dims *d = &run->p->d;
    const struct attn_mat allow = attn_slice(&run->t->t[ATTN_ALLOWED], piece.b, piece.h);
    const bool spread = run->p->empty_rows != ATTN_EMPTY_ZERO;

    *j0 = d->T_kv;
    *j1 = 0;
    for (size_t i = piece.i0; i < piece.i1; i++) {
        size_t first = 0, end = d->T_kv;
        const bool some = attn_allowed_span((const uint8_t *)allow.p + i * allow.ld,
                                            d->T_kv, &first, &end);

        if (!some && !spread)
            continue;
        *j0 = least(*j0, first);
        *j1 = end > *j1 ? end : *j1;
    }
    /* Another softmax may have put weight anywhere. */
    if (run->swap && run->swap->stage[ATTN_STAGE_SOFTMAX]) {
        *j0 = 0;
        *j1 = d->T_kv;
    }
}

/* contributions_ijc = A_ij v_jc, exactly 0 where the row does not read the key. */
static void contributions(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_mat A, struct attn_mat V)
{
    const struct attn_kernel *kernel = attn_kernel_of(V.dtype);
    const struct attn_mat all =
        attn_slice(&run->t->t[ATTN_CONTRIBUTIONS], piece.b, piece.h);
    const struct attn_mat allow = attn_slice(&run->t->t[ATTN_ALLOWED], piece.b, piece.h);

    for (size_t i = piece.i0; i < piece.i1; i++)
        for (size_t j = 0; j < V.rows; j++) {
            const double a = kernel->get(A.p, (i - piece.i0) * A.ld + j);
            void *to = cell(all, i, j * V.cols);

            if (a != 0 || ((const uint8_t *)allow.p)[i * allow.ld + j])
                kernel->scale_cap(V.cols, cell(V, j, 0), a, 0, to);
            else
                kernel->fill(V.cols, 0, to);
        }
}

/*
 * H = A V, written into this head's columns of the joined H; H_heads and contributions
 * when held. Keys before the first and after the last that a row of the piece may read
 * are left out.
 */
bool attn_stage_mix(const struct attn_run_ctx *run, struct attn_piece piece,
                    struct attn_err *err)
{
    const struct attn_dims *d = &run->p->d;
    const size_t rows = piece.i1 - piece.i0, bytes = attn_dtype_bytes(run->p->dtype);
    const struct attn_mat joined = attn_slice(&run->t->t[ATTN_H], piece.b, 0);
    const struct attn_mat H = part(joined, piece.i0, rows, piece.h * d->d_v, d->d_v);
    const struct attn_mat A =
        attn_mat_rows(attn_slice(&run->t->t[ATTN_A], piece.b, piece.h), piece.i0, rows);
    const struct attn_mat V =
        attn_slice(&run->t->t[ATTN_V], piece.b, attn_kv_head(d, piece.h));
    const struct attn_mat allow = attn_slice(&run->t->t[ATTN_ALLOWED], piece.b, piece.h);
    size_t j0, j1;

    (void)err;
    for (size_t r = 0; r < rows; r++)
        memset(cell(H, r, 0), 0, d->d_v * bytes);
    keys_read(run, piece, &j0, &j1);
    if (j0 < j1)
        attn_mix_keys(H, part(A, 0, rows, j0, j1 - j0), attn_mat_rows(V, j0, j1 - j0),
                      cell(allow, piece.i0, j0), allow.ld);
    if (run->t->t[ATTN_H_HEADS].p)
        attn_mat_copy(
            attn_mat_rows(attn_slice(&run->t->t[ATTN_H_HEADS], piece.b, piece.h),
                          piece.i0, rows),
            H);
    if (run->t->t[ATTN_CONTRIBUTIONS].p)
        contributions(run, piece, A, V);
    return true;
}
