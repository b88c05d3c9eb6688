/*
 * attn_fault_part.h - Q, K and V made from wrong entries, for three files of the
 * catalogue.
 * Not here: the catalogue's own header (attn_fault.h).
 * Start reading at struct part_fault.
 */
#ifndef ATTN_FAULT_PART_H
#define ATTN_FAULT_PART_H

#include "core/attn_fault.h"

enum part { PART_Q, PART_K, PART_V };

/* Entry (b,h,i,c) of a wrong Q, K or V; i counts new rows only. */
typedef double attn_entry_fn(const struct attn_run_ctx *run, enum part part,
                             struct attn_cell x);
struct part_fault {
    bool (*fits)(const struct attn_problem *p);
    attn_entry_fn *entry;
};

/* The stage that makes the part; its new rows are then replaced. */
bool attn_fault_replace(const struct attn_run_ctx *run, enum part part,
                        attn_entry_fn *entry, struct attn_err *err);

/* The stages PROJECT_Q, _K and _V with the entries of `struct part_fault`, the swap's
   param. */
attn_stage_fn attn_fault_wrong_q, attn_fault_wrong_k, attn_fault_wrong_v;
#define ATTN_FAULT_WRONG_Q [ATTN_STAGE_PROJECT_Q] = attn_fault_wrong_q
#define ATTN_FAULT_WRONG_K [ATTN_STAGE_PROJECT_K] = attn_fault_wrong_k
#define ATTN_FAULT_WRONG_V [ATTN_STAGE_PROJECT_V] = attn_fault_wrong_v

/* Are there projections, and does the fault of `param` fit? */
bool attn_fault_part_fits(const struct attn_problem *p, const void *param);

/* The input that a part is projected from, its heads and the width of one. */
const struct attn_tensor *attn_fault_source(const struct attn_problem *p, enum part part);
size_t attn_fault_heads(const struct attn_problem *p, enum part part);
size_t attn_fault_width(const struct attn_problem *p, enum part part);

/* Row i of item b of `in` times column col of W, plus the entry `bias` of its bias;
   SIZE_MAX = none. */
double attn_fault_product(const struct attn_tensor *in, struct attn_cell x,
                          const struct attn_problem *p, enum part weight, size_t col,
                          size_t bias);
/* The entry made by the transpose of W, which is square. */
double attn_fault_by_transpose(const struct attn_run_ctx *run, enum part part,
                               struct attn_cell x);

#endif
