/*
 * attn_rerun.h - running the judged layer again, for checks 9 to 13.
 * Not here: what is changed before it runs again (attn_audit_*.c).
 * Start reading at attn_rerun.
 */
#ifndef ATTN_RERUN_H
#define ATTN_RERUN_H

#include "core/attn_audit.h"
#include "core/attn_core.h"

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
/* In a sampled audit of a long sequence reruns start at Q, K and V and are of a few rows:
   projecting all tokens and running whole blocks costs more than a tenth of a request. */
bool attn_rerun_short(const struct attn_auditor *a);
/* Says so, for a finding's detail. */
extern const char *const ATTN_RERUN_FEW;

/* Rows around row i of item b that are run again: all of them in a full audit or with a
   swap, else those of a block; in a short rerun a few. */
struct attn_rows attn_rerun_around(const struct attn_auditor *a, size_t b, size_t i);
/* The problem that reruns start from: the audited one; in a short rerun from Q, K and V
   on. */
void attn_rerun_batch(const struct attn_auditor *a, struct attn_problem *p);
/* The same for reruns that change nothing in other items, and the rows in it: in a short
   rerun their item alone. */
struct attn_rows attn_rerun_base(const struct attn_auditor *a, struct attn_rows rows,
                                 struct attn_problem *p);

/* Some rows of one item, and what every rerun of them must give, bit for bit. */
struct attn_wanted {
    struct attn_rows rows;
    struct attn_mat output; /* Y or H of those rows */
};
/* As the audited trace has them; in a short rerun they are run once in their batch as it
   is, since the bits of a row may depend on how many are run beside it. */
bool attn_rerun_wanted(const struct attn_auditor *a, struct attn_rows rows,
                       struct attn_wanted *want);
/* The output of these rows in another run. */
struct attn_mat attn_rerun_rows(const struct attn_auditor *a, const struct attn_trace *t,
                                struct attn_rows rows);
/* A copy of such rows in the arena, for which other runs may take the run's memory. */
bool attn_rerun_keep(const struct attn_auditor *a, struct attn_mat *rows);
/* Bits of rows got against those wanted; compared NULL = all rows. */
void attn_rerun_compare(const struct attn_auditor *a, const struct attn_wanted *want,
                        struct attn_mat got, const uint8_t *compared,
                        struct attn_diff *diff);
/* Gives the tensor a copy of its numbers in the arena; an absent one stays absent. */
bool attn_rerun_copy(const struct attn_auditor *a, struct attn_tensor *t);

/* Other numbers, between -2 and 2, in the place of n numbers: drawn, and repeated after
   some. */
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
