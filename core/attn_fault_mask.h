/*
 * attn_fault_mask.h - M made from wrong verdicts or a wrong bias, for two files of the
 * catalogue.
 * Not here: the catalogue's own header (attn_fault.h).
 * Start reading at struct mask.
 */
#ifndef ATTN_FAULT_MASK_H
#define ATTN_FAULT_MASK_H

#include "core/attn_fault.h"

typedef bool allows_fn(const struct attn_problem *p, size_t b, size_t h, size_t i,
                       size_t j);
typedef double bias_fn(const struct attn_problem *p, size_t b, size_t h, size_t i,
                       size_t j);

struct mask {
    bool (*fits)(const struct attn_problem *p);
    allows_fn *allows; /* NULL = the right one */
    bias_fn *bias;     /* NULL = the right one */
};

/* The stage MASK with the verdicts of `struct mask`, the swap's param. */
attn_stage_fn attn_fault_wrong_mask;
/* Is any pair of M another? */
bool attn_fault_mask_differs(const struct attn_problem *p, const void *param);

/* The last two fields of a row: what shows it, and the swap. */
#define ATTN_FAULT_MASK(mask)                                \
    attn_fault_mask_differs,                                 \
    {                                                        \
        {[ATTN_STAGE_MASK] = attn_fault_wrong_mask}, &(mask) \
    }

#endif
