/*
 * make_audit.h - audits of runs, for tests of the auditor.
 * Not here: what they must find (tests/core/test_attn_audit*.c).
 * Start reading at make_audit.
 */
#ifndef MAKE_AUDIT_H
#define MAKE_AUDIT_H

#include "core/attn_core.h"
#include "make_problem.h"

struct audited {
    struct attn_audit audit;
    struct attn_err err;
    bool ok;
};

/* Audits in exactly the bytes that attn_audit_bytes says, which must all be given
   back. */
struct audited make_audit(const struct attn_problem *p, const struct ran *r,
                          enum attn_audit_level level, uint64_t seed,
                          const struct attn_swap *swap);
/* The same with somebody who helps, or who wants it to stop. */
struct audited make_audit_by(const struct attn_problem *p, const struct ran *r,
                             enum attn_audit_level level, uint64_t seed,
                             const struct attn_swap *swap, const struct attn_exec *exec);
/* The check's finding, which must be there. */
const struct attn_finding *make_finding(const struct attn_audit *audit, const char *id);
/* Id of the first check that fails; "nothing" when none does. */
const char *make_first_failing(const struct attn_audit *audit);
void make_audit_print(const struct attn_audit *audit);

#endif
