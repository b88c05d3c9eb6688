/*
 * attn_diagnose_cause.h - what the files that look for causes share.
 * Not here: what the rest of the diagnosis may use (attn_diagnose.h).
 * Start reading at struct attn_question.
 */
#ifndef ATTN_DIAGNOSE_CAUSE_H
#define ATTN_DIAGNOSE_CAUSE_H

#include "core/attn_diagnose.h"

enum { ATTN_CAUSES_MAX = 64 };

struct attn_question { /* what is asked of each fault */
    enum attn_object target;
    uint32_t must;
    bool unused; /* take objects of its own stages as shown, but not used */
};

struct attn_cause { /* a fault that reproduces the target */
    const struct attn_fault_row *fault;
    const struct attn_fit_row *fit; /* or NULL */
    double value, excess, error;
    uint32_t objects, gradients; /* given ones that it reproduces */
    size_t later;                /* how many of them come after the target */
    bool visible;                /* this problem can show it, as its row says */
    bool other_way;              /* not as the catalogue's own stages make it */
    bool exact;                  /* the target is the object of the fault's row */
};
struct attn_causes { /* best first */
    size_t count;
    struct attn_cause row[ATTN_CAUSES_MAX];
};
void attn_cause_keep(struct attn_causes *causes, const struct attn_cause *cause);
void attn_cause_report(struct attn_report *report, const struct attn_causes *causes);
size_t attn_cause_bits(uint32_t set);

/* ---- trials (attn_diagnose_trial.c) ---- */

enum attn_stage attn_trial_first_stage(const struct attn_swap *swap);
/* Objects of the replaced stages before one. */
uint32_t attn_trial_objects(const struct attn_swap *swap, enum attn_stage before);
uint32_t attn_trial_after(enum attn_object target);
/* Given objects that a walk reproduces. */
uint32_t attn_trial_same(const struct attn_walk *w);
/* Walks with stages replaced, objects of `ignore` taken as not given, up to the first of
   `must` that is not reproduced. */
bool attn_trial_walk(struct attn_inquiry *q, const struct attn_swap *swap,
                     uint32_t ignore, uint32_t must, struct attn_err *err);
struct attn_tried { /* a fault, and the stages that are to show it */
    const struct attn_fault_row *fault;
    const struct attn_swap *swap;
    const struct attn_fit_row *fit; /* or NULL */
    double value;
    bool other_way;
};
/* Walks and keeps the fault when it reproduces the target.  Rows that a wrong mask leaves
   without a key may have become anything. */
bool attn_trial_swap(struct attn_inquiry *q, const struct attn_question *ask,
                     const struct attn_tried *tried, struct attn_causes *causes,
                     struct attn_err *err);
bool attn_trial_stopped(const struct attn_inquiry *q, struct attn_err *err);

/* ---- constants (attn_diagnose_search.c) ---- */

bool attn_trial_fitted(struct attn_inquiry *q, const struct attn_question *ask,
                       const struct attn_fault_row *fault, const struct attn_fit_row *fit,
                       struct attn_causes *causes, struct attn_err *err);
void attn_trial_resemblance(struct attn_inquiry *q, const struct attn_question *ask,
                            const struct attn_fault_row *fault,
                            const struct attn_fit_row *fit, struct attn_causes *causes);

#endif
