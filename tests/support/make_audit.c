/*
 * make_audit.c - see make_audit.h.
 * Not here: random problems and runs (make_problem.c).
 * Start reading at make_audit.
 */
#include "make_audit.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct audited make_audit(const struct attn_problem *p, const struct ran *r,
                          enum attn_audit_level level, uint64_t seed,
                          const struct attn_swap *swap)
{
    return make_audit_by(p, r, level, seed, swap, NULL);
}

struct audited make_audit_by(const struct attn_problem *p, const struct ran *r,
                             enum attn_audit_level level, uint64_t seed,
                             const struct attn_swap *swap, const struct attn_exec *exec)
{
    struct audited a = {0};
    struct attn_arena arena = make_arena(attn_audit_bytes(p, &r->plan, level));

    a.ok = attn_audit_trace(p, &r->plan, &r->trace, NULL, level, seed, swap, &arena, exec,
                            &a.audit, &a.err);
    cr_assert_eq(arena.used, 0);
    free(arena.base);
    return a;
}

const struct attn_finding *make_finding(const struct attn_audit *audit, const char *id)
{
    for (size_t n = 0; n < audit->count; n++)
        if (strcmp(audit->finding[n].row->id, id) == 0)
            return &audit->finding[n];
    cr_assert_fail("no check %s", id);
    abort();
}

const char *make_first_failing(const struct attn_audit *audit)
{
    for (size_t n = 0; n < audit->count; n++)
        if (audit->finding[n].status == ATTN_FAIL)
            return audit->finding[n].row->id;
    return "nothing";
}

void make_audit_print(const struct attn_audit *audit)
{
    for (size_t n = 0; n < audit->count; n++) {
        const struct attn_finding *f = &audit->finding[n];

        fprintf(stderr, "%2d %-30s %-14s %s |", f->row->order, f->row->id,
                ATTN_STATUS_NAMES[f->status],
                f->status == ATTN_NOT_APPLICABLE ? f->detail : f->observed);
        for (size_t k = 0; k < ATTN_FACTS_MAX; k++)
            fprintf(stderr, " %.6g", f->fact[k]);
        if (f->has_place)
            fprintf(stderr, " at %zd %zd %zd %zd", f->at[0], f->at[1], f->at[2],
                    f->at[3]);
        fprintf(stderr, "\n");
    }
}
