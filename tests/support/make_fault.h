/*
 * make_fault.h - problems that can show a fault, for tests of the auditor.
 * Not here: who must find it (tests/core/test_attn_fault.c, test_attn_diagnose.c).
 * Start reading at make_shows.
 */
#ifndef MAKE_FAULT_H
#define MAKE_FAULT_H

#include "core/attn_core.h"
#include "make_problem.h"

/* Does it replace a stage of the layer?  Faults of the backward pass do not. */
bool make_is_forward(const struct attn_fault_row *fault);

/* The next problem from *seed on that can show the fault; false when none is left.
   Every third is in float32 where that is let, the others are in float64. */
bool make_shows(const struct attn_fault_row *fault, bool float32_too, uint64_t *seed,
                struct made *m);

#endif
