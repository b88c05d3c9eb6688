/*
 * attn_fault_grad.h - what the two files of faults of the backward pass share.
 * Not here: how a backward pass is judged (attn_diagnose.h).
 * Start reading at ATTN_FAULT_BACK.
 */
#ifndef ATTN_FAULT_GRAD_H
#define ATTN_FAULT_GRAD_H

#include "core/attn_diagnose.h"

/* The last field of a row. */
#define ATTN_FAULT_BACK(fault) \
    {                          \
        {NULL}, &(fault)       \
    }

static inline size_t attn_back_bytes_of(const struct attn_tensor *t)
{
    return attn_tensor_count(t) * attn_dtype_bytes(t->dtype);
}

static inline void attn_back_times(struct attn_tensor *t, double by)
{
    for (size_t n = 0; n < attn_tensor_count(t); n++)
        attn_put(t, n, by * attn_number(t, n));
}

static inline bool attn_back_fits(const struct attn_problem *p, const void *param)
{
    const struct attn_back_fault *fault = param;

    return fault->fits(p);
}

#endif
