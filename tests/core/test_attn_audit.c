/*
 * test_attn_audit.c - right layers pass the audit, broken ones fail it at the right
 * place. Not here: the catalogue of faults (test_attn_fault.c). Start reading at
 * random_problems_pass.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- running an audit -------------------------------------------------------------- */

struct audited {
    struct attn_audit audit;
    struct attn_err err;
    bool ok;
};

/* Audits in exactly the bytes that attn_audit_bytes says, which must all be given back.
 */
static struct audited audit(const struct attn_problem *p, const struct ran *r,
                            enum attn_audit_level level, uint64_t seed,
                            const struct attn_swap *swap)
{
    struct audited a = {0};
    struct attn_arena arena = {.size = attn_audit_bytes(p, &r->plan, level)};

    if (posix_memalign((void **)&arena.base, 64, arena.size + 1) != 0)
        abort();
    memset(arena.base, 0xff, arena.size);
    a.ok = attn_audit_trace(p, &r->plan, &r->trace, NULL, level, seed, swap, &arena, NULL,
                            &a.audit, &a.err);
    cr_assert_eq(arena.used, 0);
    free(arena.base);
    return a;
}

static void print(const struct attn_audit *audit)
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

static const struct attn_finding *finding(const struct attn_audit *audit, const char *id)
{
    for (size_t n = 0; n < audit->count; n++)
        if (strcmp(audit->finding[n].row->id, id) == 0)
            return &audit->finding[n];
    cr_assert_fail("no check %s", id);
}

/* ---- right layers ------------------------------------------------------------------ */

static bool passes(uint64_t seed, enum attn_dtype dtype, enum attn_path path, size_t most,
                   size_t T, enum attn_audit_level level)
{
    struct made m;
    struct ran r;
    struct audited a;
    bool right;

    make_problem(&m, seed, dtype, most, T, &MAKE_ALL);
    make_run(&m.p, make_everything(&m.p, path), path, NULL, NULL, &r);
    cr_assert(r.ok);
    a = audit(&m.p, &r, level, seed, NULL);
    right = a.ok && a.audit.status == ATTN_PASS && !a.audit.first_incorrect &&
            a.audit.count == attn_check_count();
    if (!right) {
        fprintf(stderr, "seed %llu dtype %d path %d level %d code %d\n",
                (unsigned long long)seed, (int)dtype, (int)path, (int)level,
                (int)a.err.code);
        print(&a.audit);
    }
    make_run_free(&r);
    make_free(&m);
    return right;
}

Test(attn_audit, random_problems_pass)
{
    for (uint64_t seed = 1; seed <= 300; seed++)
        for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
            for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++)
                for (int level = ATTN_AUDIT_SAMPLED; level <= ATTN_AUDIT_FULL; level++)
                    cr_assert(passes(seed, (enum attn_dtype)dtype, (enum attn_path)path,
                                     12, 0, (enum attn_audit_level)level));
}

/* More than one block of rows, so that reruns take only one of them. */
Test(attn_audit, large_problems_pass)
{
    for (uint64_t seed = 1; seed <= 12; seed++)
        for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
            for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++)
                cr_assert(passes(seed, (enum attn_dtype)dtype, (enum attn_path)path, 24,
                                 150, ATTN_AUDIT_SAMPLED));
}
