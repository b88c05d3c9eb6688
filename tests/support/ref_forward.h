/*
 * ref_forward.h - the layer once more, slowly: obvious loops in long double, nothing
 * shared with core/ but the structs that describe a problem. Not here: random problems
 * (make_problem.h), gradients. Start reading at ref_forward in ref_forward.c.
 */
#ifndef REF_FORWARD_H
#define REF_FORWARD_H

#include "core/attn.h"

struct ref_layer { /* full rank, row-major; NULL = the problem does not have it */
    long double *t[ATTN_OBJECT_COUNT]; /* allowed as 0 and 1 */
    unsigned char *empty;              /* [B*h*T_q] */
    size_t empty_count;
};

/* An empty row under empty_rows "error" is computed as under "zero". */
void ref_forward(const struct attn_problem *p, struct ref_layer *layer);
void ref_free(struct ref_layer *layer);

/* May query (b,h,i) read key j?  Every rule and additive -Infinity. */
bool ref_allowed(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j);
/* Additive bias and ALiBi. */
long double ref_bias(const struct attn_problem *p, size_t b, size_t h, size_t i,
                     size_t j);

/* Compares a held object with the reference: true, or false after printing the first
   place that differs by more than tolerance * max(1, |expected|).  NaN equals NaN,
   Infinity itself. */
bool ref_same(const struct attn_problem *p, enum attn_object o,
              const struct attn_tensor *got, const struct ref_layer *layer,
              double tolerance);

#endif
