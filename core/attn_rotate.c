/*
 * attn_rotate.c - the stages POSITION_Q and POSITION_K: rows turned to their positions,
 * in dtype; RoPE on blocks of rows.
 * Not here: which position a row has, and the one-row forms (attn_position.c).
 * Start reading at attn_stage_position_q.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <math.h>

static double position_of(const struct attn_problem *p, const struct attn_position *x,
                          size_t b, size_t row, bool of_key)
{
    return of_key ? attn_position_of_key(p, x, b, row)
                  : attn_position_of_query(p, x, b, row);
}

/*
 * Turns pair k of every row by at[row] * base^(-2k/d_k).  Angles are computed in double
 * whatever the dtype: in float a far position would lose its fraction.
 * Source: Su et al. 2021, equation 34.
 */
static void rope_block(const struct attn_problem *p, const double *at,
                       struct attn_mat from, struct attn_mat to)
{
    const struct attn_kernel *kernel = attn_kernel_of(to.dtype);
    const size_t pairs = p->d.d_k / 2;
    const bool half = p->rope.layout == ATTN_ROPE_HALF;

    for (size_t k = 0; k < pairs; k++) {
        const double theta = pow(p->rope.base, -2.0 * (double)k / (double)p->d.d_k);
        const size_t left = half ? k : 2 * k, right = half ? k + pairs : 2 * k + 1;

        for (size_t r = 0; r < to.rows; r++) {
            const double angle = at[r] * theta;
            const double c = cos(angle), s = sin(angle);
            const double u = kernel->get(from.p, r * from.ld + left);
            const double v = kernel->get(from.p, r * from.ld + right);

            kernel->set(to.p, r * to.ld + left, u * c - v * s);
            kernel->set(to.p, r * to.ld + right, u * s + v * c);
        }
    }
}

void attn_rope_rows(const struct attn_problem *p, const struct attn_position *x, size_t b,
                    size_t first, bool of_key, struct attn_mat from, struct attn_mat to)
{
    double at[ATTN_ROW_BLOCK];

    assert(p->d.d_k % 2 == 0);
    for (size_t r = 0; r < to.rows; r += ATTN_ROW_BLOCK) {
        const size_t rows = to.rows - r < ATTN_ROW_BLOCK ? to.rows - r : ATTN_ROW_BLOCK;

        for (size_t n = 0; n < rows; n++)
            at[n] = position_of(p, x, b, first + r + n, of_key);
        rope_block(p, at, attn_mat_rows(from, r, rows), attn_mat_rows(to, r, rows));
    }
}

/* Any kind: row by row, in double. */
static void turn_each(const struct attn_problem *p, const struct attn_position *x,
                      size_t b, size_t first, bool of_key, struct attn_mat from,
                      struct attn_mat to)
{
    const struct attn_kernel *kernel = attn_kernel_of(to.dtype);
    const size_t bytes = attn_dtype_bytes(to.dtype);
    double row[ATTN_TURN_WIDTH_MAX];

    assert(to.cols <= ATTN_TURN_WIDTH_MAX);
    for (size_t r = 0; r < to.rows; r++) {
        const struct attn_turn turn = {.at = position_of(p, x, b, first + r, of_key),
                                       .of_key = of_key};

        kernel->to_double(to.cols, (const char *)from.p + r * from.ld * bytes, row);
        x->row->turn(p, x, turn, row);
        kernel->from_double(to.cols, row, (char *)to.p + r * to.ld * bytes);
    }
}

static void turn_rows(const struct attn_problem *p, const struct attn_position *x,
                      size_t b, size_t first, bool of_key, struct attn_mat from,
                      struct attn_mat to)
{
    (x->row->turn_rows != NULL ? x->row->turn_rows : turn_each)(p, x, b, first, of_key,
                                                                from, to);
}

/* Q = Q_pre turned to the positions of its rows. */
bool attn_stage_position_q(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    const struct attn_tensor *pre = attn_before_rope(run->t, ATTN_Q_PRE, ATTN_Q);
    const struct attn_position *x = attn_turn_of(run->p);
    const size_t rows = piece.i1 - piece.i0;
    const struct attn_mat from =
        attn_mat_rows(attn_slice(pre, piece.b, piece.h), piece.i0, rows);
    const struct attn_mat to =
        attn_mat_rows(attn_slice(&run->t->t[ATTN_Q], piece.b, piece.h), piece.i0, rows);

    (void)err;
    if (x != NULL)
        turn_rows(run->p, x, piece.b, piece.i0, false, from, to);
    else
        attn_mat_copy(to, from);
    return true;
}

/* K = K_pre with the new rows turned to their positions; cached rows are turned
 * already. */
bool attn_stage_position_k(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    const struct attn_tensor *pre = attn_before_rope(run->t, ATTN_K_PRE, ATTN_K);
    const struct attn_position *x = attn_turn_of(run->p);
    const struct attn_mat from = attn_slice(pre, piece.b, piece.h);
    const struct attn_mat to = attn_slice(&run->t->t[ATTN_K], piece.b, piece.h);
    const size_t past = x != NULL ? run->p->d.T_past : run->p->d.T_kv;

    (void)err;
    attn_mat_copy(attn_mat_rows(to, 0, past), attn_mat_rows(from, 0, past));
    if (x != NULL)
        turn_rows(run->p, x, piece.b, past, true,
                  attn_mat_rows(from, past, from.rows - past),
                  attn_mat_rows(to, past, to.rows - past));
    return true;
}
