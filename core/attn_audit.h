/*
 * attn_audit.h - what the files of the audit share.
 * Not here: anything the rest of core reads (attn.h), recomputing (attn_judge.h).
 * Start reading at struct attn_auditor.
 */
#ifndef ATTN_AUDIT_H
#define ATTN_AUDIT_H

#include "core/attn_judge.h"

struct attn_audit_row {
    size_t b, h, i;
};

struct attn_auditor {
    const struct attn_problem *p;
    const struct attn_plan *plan;
    const struct attn_trace *trace;
    const struct attn_grads *grads;
    const struct attn_swap *swap;
    struct attn_arena *arena;
    const struct attn_exec *exec;
    struct attn_err *err;

    bool full;       /* every row and item, and reruns of the whole */
    bool all_rows;   /* every row (also where there are few); else the drawn ones */
    uint64_t random; /* state of the stated seed's stream */
    size_t row_count;
    struct attn_audit_row *drawn; /* [row_count] unless all_rows */
    uint32_t usable; /* bit per object that is held and has its right shape */
    bool inputs_fit; /* check 1: nothing else can be judged otherwise */

    struct attn_judged *judged, *weights; /* [widest row], [T_kv] */
    double *scratch;
    struct attn_logits logits;
};

/* Rows to look at, upper bound: all of them, or those drawn and some special ones. */
size_t attn_audit_rows_wanted(const struct attn_problem *p, enum attn_audit_level level);
/* Fills in `drawn`, at most so many. */
void attn_audit_draw(struct attn_auditor *a, size_t most);
/* Row n of those looked at; ordered by b, h, i. */
struct attn_audit_row attn_audit_row(const struct attn_auditor *a, size_t n);
/* False, with DEADLINE, when the caller wants to stop. */
bool attn_audit_goes_on(const struct attn_auditor *a);
static inline bool attn_audit_has(const struct attn_auditor *a, enum attn_object o)
{
    return (a->usable & ATTN_BIT(o)) != 0;
}

/* ---- differences ------------------------------------------------------------------- */

struct attn_diff {
    size_t rows, compared;
    double worst,
        worst_allowed; /* largest difference in its own tolerance, and that tolerance */
    double worst_ratio;
    bool bad; /* the first difference: */
    enum attn_object object;
    size_t at[4];
    double want, got, allowed;
};

/* Notes one number; at names its place.  The first that differs is kept. */
void attn_diff_note(struct attn_diff *diff, enum attn_object object, const size_t at[4],
                    double got, struct attn_judged want);
/* The same for numbers that must be equal; NaN equals NaN. */
void attn_diff_exact(struct attn_diff *diff, enum attn_object object, const size_t at[4],
                     double got, double want);

/* The one or the other: a judged NaN (value NaN, error 0) wants NaN. */
void attn_diff_either(struct attn_diff *diff, enum attn_object object, const size_t at[4],
                      double got, struct attn_judged want);
/* Is the row NaN because no key is allowed and the request wants such rows so? */
bool attn_audit_nan_row(const struct attn_auditor *a, struct attn_audit_row r);
/* Notes the first number of a held object that is not finite, wherever it is: rows drawn
   may have missed where the layer overflowed. */
void attn_diff_scan(const struct attn_auditor *a, enum attn_object o,
                    struct attn_diff *diff);

struct attn_words { /* templates of one check */
    const char *expected, *pass, *fail, *detail;
};
/*
 * Facts 0-5: rows, numbers compared, largest difference, its tolerance, expected and
 * observed number at the first difference; 6 (set here: tolerance there) may be
 * overwritten, 7-9 are free.
 */
void attn_finding_set(struct attn_finding *f, const struct attn_diff *diff,
                      const struct attn_words *words);
void attn_finding_skip(struct attn_finding *f, const char *reason);
/* Compares the shape held with the one the problem has; fills the finding when they
   differ. */
bool attn_finding_shape(const struct attn_auditor *a, enum attn_object o,
                        struct attn_finding *f);

/* ---- checks: false only when stopped or out of memory ------------------------------ */

typedef bool attn_check_fn(struct attn_auditor *a, struct attn_finding *f);

attn_check_fn attn_check_inputs, attn_check_qkv, attn_check_score, attn_check_mask;
attn_check_fn attn_check_softmax, attn_check_zeros, attn_check_mix, attn_check_output;
attn_check_fn attn_check_batch, attn_check_prefix, attn_check_documents,
    attn_check_poison;
attn_check_fn attn_check_tiled;

/* Scratch of the reruns, upper bound. */
size_t attn_rerun_bytes(const struct attn_problem *p, const struct attn_plan *plan);

#endif
