/*
 * attn_rerun.h - running the judged layer again, for checks 9 to 13.
 * Not here: what is changed before it runs again (attn_audit_*.c).
 * Start reading at attn_rerun.
 */
#ifndef ATTN_RERUN_H
#define ATTN_RERUN_H

#include "core/attn_audit.h"

/* Y, or H where there is no Y: what reruns compare. */
enum attn_object attn_rerun_output(const struct attn_auditor *a);
/* Sets the finding's object; false, with the finding skipped, when there is nothing to
   compare. */
bool attn_rerun_possible(const struct attn_auditor *a, struct attn_finding *f);
/* Runs p on the given rows (everything with a swap); the trace lies in the auditor's
   arena. */
bool attn_rerun(const struct attn_auditor *a, const struct attn_problem *p,
                enum attn_path path, struct attn_rows rows, const struct attn_swap *swap,
                struct attn_trace *trace);
/* The block of rows around row i of item b; all rows in a full audit or with a swap. */
struct attn_rows attn_rerun_block(struct attn_auditor *a, size_t b, size_t i);
/* Bits of the output's rows against those of the audited trace; compared NULL = all
   rows. */
void attn_rerun_compare(const struct attn_auditor *a, const struct attn_trace *again,
                        size_t b_again, struct attn_rows rows, const uint8_t *compared,
                        struct attn_diff *diff);
/* Gives the tensor a copy of its numbers in the arena; an absent one stays absent. */
bool attn_rerun_copy(const struct attn_auditor *a, struct attn_tensor *t);

/* Other numbers, between -2 and 2, in the place of n numbers. */
void attn_rerun_disturb(struct attn_auditor *a, struct attn_tensor *t, size_t from,
                        size_t n);

/* The problem from the trace's own Q, K and V on: RoPE has been applied, cached rows are
   among the keys.  Nothing is copied. */
void attn_rerun_projected(const struct attn_auditor *a, struct attn_problem *p);
/* The audited swap without the stages that are done when Q, K and V are there; in
 *room. */
const struct attn_swap *attn_rerun_later(const struct attn_auditor *a,
                                         struct attn_swap *room);
/* The other path's plan for the output alone; false when a dense run would take too
   much memory. */
bool attn_rerun_other_path(const struct attn_problem *p, const struct attn_plan *plan,
                           struct attn_plan *other);

#endif
