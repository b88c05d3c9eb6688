/*
 * attn_fault_softmax.h - rows of weights from wrong logits, for two files of the
 * catalogue.
 * Not here: the catalogue's own header (attn_fault.h).
 * Start reading at struct softmax.
 */
#ifndef ATTN_FAULT_SOFTMAX_H
#define ATTN_FAULT_SOFTMAX_H

#include "core/attn_fault.h"

struct softmax {
    bool (*fits)(const struct attn_problem *p);
    /* What stands in the place of S + M at one pair, forbidden ones too. */
    double (*logit)(const struct attn_run_ctx *run, struct attn_cell x);
    /* Largest number that an exp may give when the row's maximum is not taken off. */
    double (*no_maximum)(const struct attn_problem *p);
    bool zero_after; /* forbidden weights are set to 0 at the end */
    bool no_sink;
    bool leave_empty;  /* rows without a key stay right */
    bool weighs_empty; /* their logits differ from key to key */
};

struct attn_dropout { /* param of dropout_in_eval */
    double p;
    uint64_t seed;
};

/* The stage SOFTMAX with rows of `struct softmax`, the swap's param. */
attn_stage_fn attn_fault_wrong_rows;
bool attn_fault_softmax_fits(const struct attn_problem *p, const void *param);

/* S, the finite part of M, and the verdict at a pair of the trace; the head's sink or
   -Infinity. */
double attn_fault_score(const struct attn_run_ctx *run, struct attn_cell x);
double attn_fault_bias(const struct attn_run_ctx *run, struct attn_cell x);
bool attn_fault_allowed(const struct attn_run_ctx *run, struct attn_cell x);
/* S + M as it should be: -Infinity where forbidden. */
double attn_fault_masked(const struct attn_run_ctx *run, struct attn_cell x);
double attn_fault_sink(const struct attn_problem *p, size_t h);

#endif
