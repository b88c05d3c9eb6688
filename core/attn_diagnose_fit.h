/*
 * attn_diagnose_fit.h - what proposes constants, for the two files that do.
 * Not here: what the rest of the diagnosis may use (attn_diagnose.h).
 * Start reading at attn_fit_window.
 */
#ifndef ATTN_DIAGNOSE_FIT_H
#define ATTN_DIAGNOSE_FIT_H

#include "core/attn_diagnose.h"

static inline const struct attn_tensor *attn_fit_observed(const struct attn_fit *f)
{
    return &f->base->c->object[f->target];
}
/* Is o the target, and are there numbers of it to compare? */
static inline bool attn_fit_is(const struct attn_fit *f, enum attn_object o)
{
    return f->target == o && attn_fit_observed(f)->p && f->expected.p;
}
/* 1, -1, 2, -2, … 32, -32. */
static inline bool attn_fit_whole(size_t n, double *value)
{
    const size_t size = n / 2 + 1;

    *value = (n % 2 ? -1.0 : 1.0) * (double)size;
    return n < 64;
}

/* Each the n-th value to try; false = no more. */
bool attn_fit_window(const struct attn_fit *f, size_t n, double *value);
bool attn_fit_diagonal(const struct attn_fit *f, size_t n, double *value);
bool attn_fit_fill(const struct attn_fit *f, size_t n, double *value);

#endif
