/*
 * make_candidate.h - candidates from traces, and their diagnosis, for tests of the
 * auditor. Not here: which faults and forms they have (tests/core/test_attn_diagnose*.c).
 * Start reading at diagnose.
 */
#ifndef MAKE_CANDIDATE_H
#define MAKE_CANDIDATE_H

#include "core/attn_core.h"
#include "make_problem.h"

enum {
    SEEN_ALL = (1 << ATTN_Q) | (1 << ATTN_K) | (1 << ATTN_V) | (1 << ATTN_S) |
               (1 << ATTN_M) | (1 << ATTN_A) | (1 << ATTN_H) | (1 << ATTN_Y)
};

/* The named objects of a trace, as float64. */
struct attn_candidate candidate_of(const struct attn_trace *t, uint32_t objects);
/* In exactly the bytes that attn_diagnose_bytes says, which must all be given back. */
struct attn_report diagnose(const struct attn_problem *p, const struct attn_candidate *c,
                            const struct attn_grad_ask *ask);
bool names(const struct attn_report *report, const struct attn_fault_row *fault);
void print(const char *what, uint64_t seed, const struct attn_report *report);

/* To the nearest number of the precision. */
void round_tensor(enum attn_precision precision, struct attn_tensor *t);

struct own { /* a candidate whose tensors a test may change */
    struct made m;
    struct ran r;
    struct attn_candidate c;
};
void make_own(struct own *o, uint64_t seed, uint32_t objects);
void free_own(struct own *o);
double *numbers(struct own *o, enum attn_object object);
size_t count(const struct own *o, enum attn_object object);

#endif
