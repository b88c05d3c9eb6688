/*
 * attn_audit_rerun.h - running the judged layer again, for checks 9 to 13.
 * Not here: what is changed before it runs again (attn_audit_rerun.c,
 * attn_audit_paths.c). Start reading at attn_rerun.
 */
#ifndef ATTN_AUDIT_RERUN_H
#define ATTN_AUDIT_RERUN_H

#include "core/attn_audit.h"

/* Y, or H where there is no Y: what reruns compare. */
enum attn_object attn_rerun_output(const struct attn_auditor *a);
/* Sets the finding's object; false, with the finding skipped, when there is nothing to
 * compare. */
bool attn_rerun_possible(const struct attn_auditor *a, struct attn_finding *f);
/* Runs p on the given rows (everything with a swap); the trace lies in the auditor's
 * arena. */
bool attn_rerun(const struct attn_auditor *a, const struct attn_problem *p,
                enum attn_path path, struct attn_rows rows, const struct attn_swap *swap,
                struct attn_trace *trace);
/* The block of rows around row i of item b; all rows in a full audit or with a swap. */
struct attn_rows attn_rerun_block(struct attn_auditor *a, size_t b, size_t i);
/* Bits of the output's rows against those of the audited trace; compared NULL = all rows.
 */
void attn_rerun_compare(const struct attn_auditor *a, const struct attn_trace *again,
                        size_t b_again, struct attn_rows rows, const uint8_t *compared,
                        struct attn_diff *diff);
/* Gives the tensor a copy of its numbers in the arena; an absent one stays absent. */
bool attn_rerun_copy(const struct attn_auditor *a, struct attn_tensor *t);

#endif
