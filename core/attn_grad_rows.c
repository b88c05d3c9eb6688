/*
 * attn_grad_rows.c - the gradient's row loops for float64 and float32, and small
 * addresses.
 * Not here: the loops themselves (attn_grad_rows.inc), the graph (attn_grad_table.c).
 * Start reading at attn_grad_rows_of.
 */
#include "core/attn_grad.h"

#include <assert.h>

#define REAL    double
#define NAME(f) f##_f64
#include "core/attn_grad_rows.inc"
#undef REAL
#undef NAME
#define REAL    float
#define NAME(f) f##_f32
#include "core/attn_grad_rows.inc"
#undef REAL
#undef NAME

static const struct attn_grad_rows ROWS[] = {
    [ATTN_F64] = {softmax_f64, softcap_f64, add_f64},
    [ATTN_F32] = {softmax_f32, softcap_f32, add_f32},
};

const struct attn_grad_rows *attn_grad_rows_of(enum attn_dtype dtype)
{
    assert(dtype < ATTN_COUNT(ROWS));
    return &ROWS[dtype];
}

/* Help costs some microseconds to call: not worth it below a million multiply-adds. */
static bool worth_help(const struct attn_problem *p)
{
    const struct attn_dims *d = &p->d;
    const double each = (double)d->d_model * (double)(d->d_k + d->d_v) +
                        2.0 * (double)d->T_kv * (double)(d->d_k + d->d_v);

    return (double)d->B * (double)d->h * (double)d->T_q * each >= 1e6;
}

bool attn_grad_stopped(const struct attn_grad_run *run)
{
    const struct attn_exec *exec = run->exec;

    return exec != NULL && exec->stop != NULL && exec->stop(exec->ctx);
}

void attn_grad_pieces(const struct attn_grad_run *run, size_t count, attn_piece_fn *fn,
                      void *arg)
{
    const struct attn_exec *exec = run->exec;

    if (count > 1 && worth_help(run->p) && exec != NULL && exec->parallel_for != NULL) {
        exec->parallel_for(exec->ctx, count, fn, arg);
        return;
    }
    for (size_t piece = 0; piece < count; piece++)
        fn(arg, piece);
}

bool attn_grad_row_counts(const struct attn_grad_run *run, size_t b, size_t h, size_t i)
{
    const struct attn_dims *d = &run->p->d;

    if (run->trace->empty == NULL || run->p->empty_rows == ATTN_EMPTY_UNIFORM)
        return true;
    return !run->trace->empty[(b * d->h + h) * d->T_q + i];
}

bool attn_grad_next_rows(const struct attn_grad_run *run, size_t b, size_t h, size_t end,
                         size_t *i0, size_t *i1)
{
    size_t i = *i1;

    while (i < end && !attn_grad_row_counts(run, b, h, i))
        i++;
    *i0 = i;
    while (i < end && attn_grad_row_counts(run, b, h, i))
        i++;
    *i1 = i;
    return *i0 < *i1;
}

struct attn_mat attn_grad_rows_at(struct attn_mat m, size_t i0, size_t i1)
{
    assert(i0 <= i1);
    assert(i1 <= m.rows);
    m.p = (unsigned char *)m.p + i0 * m.ld * attn_dtype_bytes(m.dtype);
    m.rows = i1 - i0;
    return m;
}

struct attn_mat attn_grad_columns(struct attn_mat m, size_t c0, size_t cols)
{
    assert(c0 + cols <= m.cols);
    m.p = (unsigned char *)m.p + c0 * attn_dtype_bytes(m.dtype);
    m.cols = cols;
    return m;
}
