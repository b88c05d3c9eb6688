/*
 * attn_project.c - the stages that multiply with weights: X to Q, K and V, and H to Y.
 * Not here: RoPE (attn_rotate.c), scores and weights (attn_softmax.c), A V (attn_mix.c).
 * Start reading at attn_stage_project_q.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <string.h>

void attn_mat_copy(struct attn_mat to, struct attn_mat from)
{
    const size_t bytes = attn_dtype_bytes(to.dtype);

    assert(to.dtype == from.dtype);
    assert(to.rows == from.rows);
    assert(to.cols == from.cols);
    if (to.p == from.p)
        return;
    for (size_t r = 0; r < to.rows; r++)
        memcpy((char *)to.p + r * to.ld * bytes, (char *)from.p + r * from.ld * bytes,
               to.cols * bytes);
}

/* Columns first … first + cols - 1 of a weight matrix: the part that belongs to one head.
 */
static struct attn_mat columns_of(const struct attn_tensor *w, size_t first, size_t cols)
{
    return (struct attn_mat){.dtype = w->dtype,
                             .p = (char *)w->p + first * attn_dtype_bytes(w->dtype),
                             .rows = w->dim[0],
                             .cols = cols,
                             .ld = w->dim[1]};
}

/* Adds entries first … of a bias to every row; an absent bias adds nothing. */
static void add_bias(struct attn_mat y, const struct attn_tensor *bias, size_t first)
{
    const struct attn_kernel *kernel = attn_kernel_of(y.dtype);
    const size_t bytes = attn_dtype_bytes(y.dtype);

    if (!bias->p)
        return;
    for (size_t r = 0; r < y.rows; r++)
        kernel->axpy(y.cols, 1, (char *)bias->p + first * bytes,
                     (char *)y.p + r * y.ld * bytes);
}

/* y = x W[:, head's columns] + bias[head's entries] */
static void project(struct attn_mat y, struct attn_mat x, const struct attn_tensor *w,
                    const struct attn_tensor *bias, size_t head)
{
    attn_gemm(y, x, false, columns_of(w, head * y.cols, y.cols), false, 1, 0);
    add_bias(y, bias, head * y.cols);
}

/* Q_pre = X W_Q + b_Q, rows of one head; or the given Q. */
bool attn_stage_project_q(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const size_t rows = piece.i1 - piece.i0;
    const bool given = p->form.source == ATTN_PROJECTED;
    const struct attn_mat from =
        attn_slice(&p->in[given ? ATTN_IN_Q : ATTN_IN_X], piece.b, given ? piece.h : 0);
    const struct attn_mat all =
        attn_slice(attn_before_rope(run->t, ATTN_Q_PRE, ATTN_Q), piece.b, piece.h);
    const struct attn_mat q = attn_mat_rows(all, piece.i0, rows);

    (void)err;
    if (given)
        attn_mat_copy(q, attn_mat_rows(from, piece.i0, rows));
    else
        project(q, attn_mat_rows(from, piece.i0, rows), &p->in[ATTN_IN_W_Q],
                &p->in[ATTN_IN_B_Q], piece.h);
    return true;
}

struct key_side { /* what differs between K and V */
    enum attn_input given, past, weight, bias;
};
static const struct key_side SIDE_K = {ATTN_IN_K, ATTN_IN_PAST_K, ATTN_IN_W_K,
                                       ATTN_IN_B_K};
static const struct key_side SIDE_V = {ATTN_IN_V, ATTN_IN_PAST_V, ATTN_IN_W_V,
                                       ATTN_IN_B_V};

/* Cached rows first, then the new ones: projected from X or X_kv, or as given. */
static void fill_keys(const struct attn_problem *p, const struct key_side *side,
                      struct attn_mat all, struct attn_piece piece)
{
    const enum attn_input source =
        p->form.source == ATTN_CROSS ? ATTN_IN_X_KV : ATTN_IN_X;
    const size_t past = p->d.T_past;
    const struct attn_mat fresh = attn_mat_rows(all, past, p->d.T_kv - past);

    if (past > 0)
        attn_mat_copy(attn_mat_rows(all, 0, past),
                      attn_slice(&p->in[side->past], piece.b, piece.h));
    if (fresh.rows == 0)
        return;
    if (p->form.source == ATTN_PROJECTED)
        attn_mat_copy(fresh, attn_slice(&p->in[side->given], piece.b, piece.h));
    else
        project(fresh, attn_slice(&p->in[source], piece.b, 0), &p->in[side->weight],
                &p->in[side->bias], piece.h);
}

/* K_pre = X W_K + b_K, or X_kv W_K + b_K: all keys of one key/value head. */
bool attn_stage_project_k(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_err *err)
{
    (void)err;
    fill_keys(run->p, &SIDE_K,
              attn_slice(attn_before_rope(run->t, ATTN_K_PRE, ATTN_K), piece.b, piece.h),
              piece);
    return true;
}

/* V = X W_V + b_V, or X_kv W_V + b_V: all keys of one key/value head. */
bool attn_stage_project_v(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_err *err)
{
    (void)err;
    fill_keys(run->p, &SIDE_V, attn_slice(&run->t->t[ATTN_V], piece.b, piece.h), piece);
    return true;
}

/* Y = H W_O + b_O, rows of one item, all heads joined. */
bool attn_stage_output(const struct attn_run_ctx *run, struct attn_piece piece,
                       struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const size_t rows = piece.i1 - piece.i0;
    const struct attn_mat y =
        attn_mat_rows(attn_slice(&run->t->t[ATTN_Y], piece.b, 0), piece.i0, rows);
    const struct attn_mat h =
        attn_mat_rows(attn_slice(&run->t->t[ATTN_H], piece.b, 0), piece.i0, rows);

    (void)err;
    attn_gemm(y, h, false, columns_of(&p->in[ATTN_IN_W_O], 0, y.cols), false, 1, 0);
    add_bias(y, &p->in[ATTN_IN_B_O], 0);
    return true;
}
