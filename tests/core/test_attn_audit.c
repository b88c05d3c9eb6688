/*
 * test_attn_audit.c - right layers pass the audit, broken ones fail it at the right
 * place.
 * Not here: the catalogue of faults (test_attn_fault.c).
 * Start reading at random_problems_pass.
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

/* Audits in exactly the bytes that attn_audit_bytes says, which must all be given
   back. */
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
    abort();
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

/* ---- the table --------------------------------------------------------------------- */

Test(attn_audit, checks_are_those_of_the_contract)
{
    static const char *const ids[] = {
        "shapes_input_and_projections",
        "qkv_rows",
        "score_shape_and_scale",
        "mask_entries",
        "softmax_rows",
        "forbidden_zeros",
        "weighted_values",
        "output_projection",
        "batch_independence",
        "prefix_invariance",
        "document_isolation",
        "masked_value_poison",
        "tiled_agreement",
        "gradients",
    };

    cr_assert_eq(attn_check_count(), ATTN_COUNT(ids));
    for (size_t n = 0; n < ATTN_COUNT(ids); n++) {
        cr_assert_str_eq(attn_check_at(n)->id, ids[n]);
        cr_assert_eq(attn_check_at(n)->order, (int)n + 1);
    }
}

Test(attn_audit, off_says_nothing)
{
    struct made m;
    struct ran r;
    struct audited a;

    make_problem(&m, 5, ATTN_F64, 6, 0, &MAKE_ALL);
    make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL, NULL,
             &r);
    a = audit(&m.p, &r, ATTN_AUDIT_OFF, 1, NULL);
    cr_assert(a.ok);
    cr_assert_eq(a.audit.count, 0);
    cr_assert_eq(a.audit.status, ATTN_NOT_APPLICABLE);
    make_run_free(&r);
    make_free(&m);
}

Test(attn_audit, same_seed_says_the_same)
{
    struct made m;
    struct ran r;
    struct audited first, second;

    make_problem(&m, 3, ATTN_F64, 24, 150, &MAKE_ALL);
    make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL, NULL,
             &r);
    first = audit(&m.p, &r, ATTN_AUDIT_SAMPLED, 77, NULL);
    second = audit(&m.p, &r, ATTN_AUDIT_SAMPLED, 77, NULL);
    for (size_t n = 0; n < first.audit.count; n++)
        for (size_t k = 0; k < ATTN_FACTS_MAX; k++)
            cr_assert_eq(first.audit.finding[n].fact[k], second.audit.finding[n].fact[k]);
    cr_assert_eq(first.audit.rows_looked_at, second.audit.rows_looked_at);
    make_run_free(&r);
    make_free(&m);
}

static bool stop_at_once(void *ctx)
{
    (void)ctx;
    return true;
}

Test(attn_audit, stops_when_asked)
{
    const struct attn_exec exec = {.stop = stop_at_once};
    struct attn_arena arena = {0};
    struct attn_audit found;
    struct attn_err err = {0};
    struct made m;
    struct ran r;

    make_problem(&m, 3, ATTN_F64, 6, 0, &MAKE_ALL);
    make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL, NULL,
             &r);
    arena.size = attn_audit_bytes(&m.p, &r.plan, ATTN_AUDIT_FULL);
    arena.base = malloc(arena.size);
    cr_assert_not(attn_audit_trace(&m.p, &r.plan, &r.trace, NULL, ATTN_AUDIT_FULL, 1,
                                   NULL, &arena, &exec, &found, &err));
    cr_assert_eq(err.code, ATTN_E_DEADLINE);
    cr_assert_eq(arena.used, 0);
    free(arena.base);
    make_run_free(&r);
    make_free(&m);
}

/* ---- wrong shapes ------------------------------------------------------------------ */

static const struct {
    enum attn_object object;
    const char *check;
} SHAPES[] = {
    {ATTN_Q, "qkv_rows"},          {ATTN_K, "qkv_rows"},
    {ATTN_V, "qkv_rows"},          {ATTN_S, "score_shape_and_scale"},
    {ATTN_M, "mask_entries"},      {ATTN_ALLOWED, "mask_entries"},
    {ATTN_A, "softmax_rows"},      {ATTN_H, "weighted_values"},
    {ATTN_Y, "output_projection"},
};

Test(attn_audit, wrong_shapes_are_found_and_never_read)
{
    const struct attn_dims d = {.B = 2,
                                .T_q = 3,
                                .T_kv = 5,
                                .d_model = 7,
                                .d_model_kv = 9,
                                .d_k = 3,
                                .d_v = 4,
                                .h = 4,
                                .h_kv = 2};
    struct made m;

    make_plain(&m, 1, ATTN_F64, ATTN_CROSS, d);
    for (size_t n = 0; n < ATTN_COUNT(SHAPES); n++) {
        const enum attn_object o = SHAPES[n].object;
        struct audited a;
        struct ran r;

        make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL,
                 NULL, &r);
        r.trace.t[o].dim[1] += 1;
        a = audit(&m.p, &r, ATTN_AUDIT_FULL, 1, NULL);
        cr_assert(a.ok);
        cr_assert_eq(finding(&a.audit, SHAPES[n].check)->status, ATTN_FAIL, "%s",
                     ATTN_OBJECTS[o].name);
        cr_assert_str_eq(a.audit.first_incorrect,
                         ATTN_OBJECTS[ATTN_OBJECTS[o].counts_as].name);
        make_run_free(&r);
    }
    make_free(&m);
}

Test(attn_audit, inputs_that_do_not_fit_end_the_audit)
{
    struct made m;
    struct ran r;
    struct audited a;

    make_problem(&m, 2, ATTN_F64, 6, 0, &MAKE_PLAIN);
    make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL, NULL,
             &r);
    for (int in = 0; in < ATTN_INPUT_COUNT; in++) {
        if (!m.p.in[in].p)
            continue;
        m.p.in[in].dim[0]++;
        a = audit(&m.p, &r, ATTN_AUDIT_FULL, 1, NULL);
        m.p.in[in].dim[0]--;
        cr_assert_eq(a.audit.finding[0].status, ATTN_FAIL, "%s", ATTN_INPUTS[in].name);
        for (size_t n = 1; n < a.audit.count; n++)
            cr_assert_eq(a.audit.finding[n].status, ATTN_NOT_APPLICABLE);
    }
    make_run_free(&r);
    make_free(&m);
}

/* ---- broken stages: too small for a tolerance, not for a comparison of bits -------- */

/* Half a unit in the last place of numbers of size 1: within what rounding may do. */
static const double NUDGE = 1e-16;
static const double TINY = 1e-308; /* lost in any sum, unless the value is 1e300 */

static double value_at(const struct attn_run_ctx *run, size_t b, size_t h, size_t j,
                       size_t c)
{
    const struct attn_tensor *V = &run->t->t[ATTN_V];

    return ((double *)V->p)[((b * V->dim[1] + h) * V->dim[2] + j) * V->dim[3] + c];
}

typedef double nudge_fn(const struct attn_run_ctx *run, size_t b, size_t i, size_t c);

/* H = A V as it should be, and then something of a value that the row must not read. */
static bool nudge_all(const struct attn_run_ctx *run, nudge_fn *nudge,
                      struct attn_err *err)
{
    struct attn_tensor *H = &run->t->t[ATTN_H];

    if (!attn_stage_all(run, ATTN_STAGE_MIX, err))
        return false;
    for (size_t b = 0; b < H->dim[0]; b++)
        for (size_t i = 0; i < H->dim[1]; i++)
            for (size_t c = 0; c < H->dim[2]; c++)
                ((double *)H->p)[(b * H->dim[1] + i) * H->dim[2] + c] +=
                    nudge(run, b, i, c % run->p->d.d_v);
    return true;
}

static double of_next_item(const struct attn_run_ctx *run, size_t b, size_t i, size_t c)
{
    return NUDGE * value_at(run, (b + 1) % run->p->d.B, 0, i % run->p->d.T_kv, c);
}

static double of_last_key(const struct attn_run_ctx *run, size_t b, size_t i, size_t c)
{
    (void)i;
    return NUDGE * value_at(run, b, 0, run->p->d.T_kv - 1, c);
}

static double of_all_keys(const struct attn_run_ctx *run, size_t b, size_t i, size_t c)
{
    double sum = 0;

    (void)i;
    for (size_t j = 0; j < run->p->d.T_kv; j++)
        sum += TINY * value_at(run, b, 0, j, c);
    return sum;
}

static bool mix_next_item(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_err *err)
{
    (void)piece;
    return nudge_all(run, of_next_item, err);
}

static bool mix_last_key(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    (void)piece;
    return nudge_all(run, of_last_key, err);
}

static bool mix_all_keys(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    (void)piece;
    return nudge_all(run, of_all_keys, err);
}

/* Audits a layer with MIX replaced; the named check must be the first to fail. */
static void fails_first(const struct made *m, attn_stage_fn *mix, const char *id)
{
    const struct attn_swap swap = {.stage = {[ATTN_STAGE_MIX] = mix}};
    struct audited a;
    struct ran r;
    size_t n = 0;

    make_run(&m->p, make_everything(&m->p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL, &swap,
             &r);
    a = audit(&m->p, &r, ATTN_AUDIT_FULL, 1, &swap);
    cr_assert(a.ok);
    while (n < a.audit.count && a.audit.finding[n].status != ATTN_FAIL)
        n++;
    if (n == a.audit.count || strcmp(a.audit.finding[n].row->id, id) != 0)
        print(&a.audit);
    cr_assert_lt(n, a.audit.count, "nothing fails, %s should", id);
    cr_assert_str_eq(a.audit.finding[n].row->id, id);
    cr_assert_str_eq(a.audit.first_incorrect, "Y");
    make_run_free(&r);
}

static const struct attn_dims BATCH = {.B = 3,
                                       .T_q = 9,
                                       .T_kv = 9,
                                       .d_model = 11,
                                       .d_model_kv = 11,
                                       .d_k = 3,
                                       .d_v = 4,
                                       .h = 2,
                                       .h_kv = 2};

Test(attn_audit, a_stage_that_mixes_items_is_found)
{
    struct made m;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
    fails_first(&m, mix_next_item, "batch_independence");
    make_free(&m);
}

Test(attn_audit, a_stage_that_reads_later_tokens_is_found)
{
    struct made m;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
    make_mask(&m, "causal");
    make_prepare(&m);
    fails_first(&m, mix_last_key, "prefix_invariance");
    make_free(&m);
}

Test(attn_audit, a_stage_that_lets_another_document_in_is_found)
{
    struct made m;
    struct attn_mask *documents;
    int64_t *ids;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
    documents = make_mask(&m, "documents");
    ids = make_block(&m, 27 * sizeof *ids);
    for (size_t n = 0; n < 27; n++)
        ids[n] = n % 9 < 2 ? 0 : n % 9 < 5 ? 1 : 2;
    documents->arg[0].given = true;
    documents->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_I64, .p = ids, .stride_b = 9};
    make_prepare(&m);
    fails_first(&m, mix_last_key, "document_isolation");
    make_free(&m);
}

Test(attn_audit, a_stage_that_reads_what_nobody_may_read_is_found)
{
    struct made m;
    struct attn_mask *padding;
    int64_t *lengths;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
    padding = make_mask(&m, "padding");
    lengths = make_block(&m, 3 * sizeof *lengths);
    for (size_t b = 0; b < 3; b++)
        lengths[b] = (int64_t)(4 + b);
    padding->arg[0].given = true;
    padding->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_I64, .p = lengths, .stride_b = 1};
    make_prepare(&m);
    fails_first(&m, mix_all_keys, "masked_value_poison");
    make_free(&m);
}

/* ---- touched traces ---------------------------------------------------------------- */

/* The other path cannot know that a number of Y was touched; every row of a small problem
   is looked at in a sampled audit too. */
Test(attn_audit, a_touched_output_disagrees_with_the_other_path)
{
    for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++) {
        struct made m;
        struct ran r;
        struct audited a;

        make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
        make_run(&m.p, make_everything(&m.p, (enum attn_path)path), (enum attn_path)path,
                 NULL, NULL, &r);
        ((double *)r.trace.t[ATTN_Y].p)[5] += 1e-9;
        a = audit(&m.p, &r, ATTN_AUDIT_FULL, 1, NULL);
        cr_assert_eq(finding(&a.audit, "output_projection")->status, ATTN_FAIL);
        cr_assert_eq(finding(&a.audit, "tiled_agreement")->status, ATTN_FAIL);
        cr_assert_str_eq(a.audit.first_incorrect, "Y");
        make_run_free(&r);
        make_free(&m);
    }
}

/* A weight where none may be, too small for any sum to notice. */
Test(attn_audit, a_weight_at_a_forbidden_pair_is_found_in_any_row)
{
    struct made m;
    struct ran r;
    struct audited a;
    const struct attn_dims d = {.B = 1,
                                .T_q = 300,
                                .T_kv = 300,
                                .d_model = 8,
                                .d_model_kv = 8,
                                .d_k = 4,
                                .d_v = 4,
                                .h = 1,
                                .h_kv = 1};

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, d);
    make_mask(&m, "causal");
    make_prepare(&m);
    make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL, NULL,
             &r);
    ((double *)r.trace.t[ATTN_A].p)[123 * 300 + 200] = 1e-30;
    a = audit(&m.p, &r, ATTN_AUDIT_SAMPLED, 1, NULL);
    cr_assert_eq(finding(&a.audit, "forbidden_zeros")->status, ATTN_FAIL);
    cr_assert_eq(finding(&a.audit, "forbidden_zeros")->at[2], 123);
    cr_assert_eq(finding(&a.audit, "forbidden_zeros")->at[3], 200);
    cr_assert_str_eq(a.audit.first_incorrect, "A");
    make_run_free(&r);
    make_free(&m);
}

/* One large token among 300: its scores overflow, and nothing else does. */
Test(attn_audit, overflow_is_found_where_it_begins)
{
    struct made m;
    struct ran r;
    struct audited a;
    const struct attn_dims d = {.B = 1,
                                .T_q = 300,
                                .T_kv = 300,
                                .d_model = 8,
                                .d_model_kv = 8,
                                .d_k = 4,
                                .d_v = 4,
                                .h = 1,
                                .h_kv = 1};

    make_plain(&m, 1, ATTN_F32, ATTN_SELF, d);
    for (size_t c = 0; c < 8; c++)
        ((float *)m.p.in[ATTN_IN_X].p)[177 * 8 + c] *= 1e25f;
    make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL, NULL,
             &r);
    a = audit(&m.p, &r, ATTN_AUDIT_SAMPLED, 1, NULL);
    cr_assert_str_eq(a.audit.first_incorrect, "S");
    cr_assert_eq(finding(&a.audit, "qkv_rows")->status, ATTN_PASS);
    cr_assert_eq(finding(&a.audit, "score_shape_and_scale")->at[2], 177);
    cr_assert_eq(finding(&a.audit, "score_shape_and_scale")->at[3], 177);
    make_run_free(&r);
    make_free(&m);
}

/* ---- gradients --------------------------------------------------------------------- */

Test(attn_audit, gradients_are_reported_as_their_check_says)
{
    struct attn_grads grads = {.check = {.done = true, .entries = 9, .worst = ATTN_DW_Q}};
    struct attn_arena arena = {0};
    struct made m;
    struct ran r;

    make_problem(&m, 2, ATTN_F64, 6, 0, &MAKE_PLAIN);
    make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL, NULL,
             &r);
    arena.size = attn_audit_bytes(&m.p, &r.plan, ATTN_AUDIT_FULL);
    arena.base = malloc(arena.size);
    for (int pass = 0; pass < 2; pass++) {
        struct attn_audit found;
        struct attn_err err = {0};

        grads.check.pass = pass != 0;
        grads.check.first = pass != 0 ? -1 : ATTN_DW_Q;
        cr_assert(attn_audit_trace(&m.p, &r.plan, &r.trace, &grads, ATTN_AUDIT_FULL, 1,
                                   NULL, &arena, NULL, &found, &err));
        cr_assert_eq(finding(&found, "gradients")->status, pass ? ATTN_PASS : ATTN_FAIL);
        if (pass)
            cr_assert_null(found.first_incorrect);
        else
            cr_assert_str_eq(found.first_incorrect, "dW_Q");
    }
    free(arena.base);
    make_run_free(&r);
    make_free(&m);
}
