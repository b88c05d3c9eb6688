/*
 * attn_rotate.c - the stages POSITION_Q and POSITION_K: RoPE on blocks of rows, in dtype.
 * Not here: which position a row has, and the one-row rotation of those who judge
 * (attn_position.c).
 * Start reading at rotate.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <math.h>

typedef double position_fn(const struct attn_problem *p, size_t b, size_t row);

/*
 * Turns pair k of every row by position * base^(-2k/d_k); rows first … of `from` and
 * `to`, which may be the same memory.  Angles are computed in double whatever the dtype:
 * in float a far position would lose its fraction.  Source: Su et al. 2021, equation 34.
 */
static void rotate(const struct attn_problem *p, size_t b, size_t first,
                   position_fn *position, struct attn_mat from, struct attn_mat to)
{
    const struct attn_kernel *kernel = attn_kernel_of(to.dtype);
    const size_t pairs = p->d.d_k / 2;
    const bool half = p->rope.layout == ATTN_ROPE_HALF;

    assert(p->d.d_k % 2 == 0);
    for (size_t k = 0; k < pairs; k++) {
        const double theta = pow(p->rope.base, -2.0 * (double)k / (double)p->d.d_k);
        const size_t left = half ? k : 2 * k, right = half ? k + pairs : 2 * k + 1;

        for (size_t r = 0; r < to.rows; r++) {
            const double angle = position(p, b, first + r) * theta;
            const double c = cos(angle), s = sin(angle);
            const double x = kernel->get(from.p, r * from.ld + left);
            const double y = kernel->get(from.p, r * from.ld + right);

            kernel->set(to.p, r * to.ld + left, x * c - y * s);
            kernel->set(to.p, r * to.ld + right, x * s + y * c);
        }
    }
}

/* Q = Q_pre rotated to the positions of its rows. */
bool attn_stage_position_q(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    const struct attn_tensor *pre = attn_before_rope(run->t, ATTN_Q_PRE, ATTN_Q);
    const size_t rows = piece.i1 - piece.i0;
    const struct attn_mat from =
        attn_mat_rows(attn_slice(pre, piece.b, piece.h), piece.i0, rows);
    const struct attn_mat to =
        attn_mat_rows(attn_slice(&run->t->t[ATTN_Q], piece.b, piece.h), piece.i0, rows);

    (void)err;
    if (run->p->rope.on)
        rotate(run->p, piece.b, piece.i0, attn_rope_position_q, from, to);
    else
        attn_mat_copy(to, from);
    return true;
}

/* K = K_pre with the new rows rotated to their positions; cached rows are rotated
 * already. */
bool attn_stage_position_k(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    const struct attn_tensor *pre = attn_before_rope(run->t, ATTN_K_PRE, ATTN_K);
    const struct attn_mat from = attn_slice(pre, piece.b, piece.h);
    const struct attn_mat to = attn_slice(&run->t->t[ATTN_K], piece.b, piece.h);
    const size_t past = run->p->rope.on ? run->p->d.T_past : run->p->d.T_kv;

    (void)err;
    attn_mat_copy(attn_mat_rows(to, 0, past), attn_mat_rows(from, 0, past));
    if (run->p->rope.on)
        rotate(run->p, piece.b, past, attn_rope_position_k,
               attn_mat_rows(from, past, from.rows - past),
               attn_mat_rows(to, past, to.rows - past));
    return true;
}
