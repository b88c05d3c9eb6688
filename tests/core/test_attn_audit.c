/*
 * test_attn_audit.c - right layers pass the audit; what it says of wrong shapes and of
 * gradients; its table, its seed, its deadline.
 * Not here: broken layers (test_attn_audit_broken.c, test_attn_fault.c).
 * Start reading at random_problems_pass.
 */
#include "make_audit.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- right layers ------------------------------------------------------------------ */

static bool passes(uint64_t seed, enum attn_dtype dtype, enum attn_path path, size_t most,
                   size_t T, enum attn_audit_level level)
{
    struct made m;
    struct ran r;
    struct audited a;
    bool right;

    make_problem(&m, seed, dtype, most, T, &MAKE_ALL);
    make_run_all(&m.p, path, NULL, &r);
    cr_assert(r.ok);
    a = make_audit(&m.p, &r, level, seed, NULL);
    right = a.ok && a.audit.status == ATTN_PASS && !a.audit.first_incorrect &&
            a.audit.count == attn_check_count();
    if (!right) {
        fprintf(stderr, "seed %llu dtype %d path %d level %d code %d\n",
                (unsigned long long)seed, (int)dtype, (int)path, (int)level,
                (int)a.err.code);
        make_audit_print(&a.audit);
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
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
    a = make_audit(&m.p, &r, ATTN_AUDIT_OFF, 1, NULL);
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
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
    first = make_audit(&m.p, &r, ATTN_AUDIT_SAMPLED, 77, NULL);
    second = make_audit(&m.p, &r, ATTN_AUDIT_SAMPLED, 77, NULL);
    for (size_t n = 0; n < first.audit.count; n++)
        for (size_t k = 0; k < ATTN_FACTS_MAX; k++)
            cr_assert_eq(first.audit.finding[n].fact[k], second.audit.finding[n].fact[k]);
    cr_assert_eq(first.audit.rows_looked_at, second.audit.rows_looked_at);
    make_run_free(&r);
    make_free(&m);
}

struct share {
    attn_piece_fn *fn;
    void *arg;
    size_t piece;
};

static void *run_share(void *arg)
{
    const struct share *const share = arg;

    share->fn(share->arg, share->piece);
    return NULL;
}

/* A thread for each of at most two pieces; more go on here, last one first. */
static void by_threads(void *calls, size_t count, attn_piece_fn *fn, void *arg)
{
    pthread_t thread[2];
    struct share share[2];

    ++*(size_t *)calls;
    for (size_t n = count; n-- > 2;)
        fn(arg, n);
    for (size_t n = 0; n < 2 && n < count; n++) {
        share[n] = (struct share){fn, arg, n};
        cr_assert_eq(pthread_create(&thread[n], NULL, run_share, &share[n]), 0);
    }
    for (size_t n = 0; n < 2 && n < count; n++)
        pthread_join(thread[n], NULL);
}

static void expect_same(const struct attn_finding *a, const struct attn_finding *b)
{
    cr_expect_eq(a->status, b->status, "%s", a->row->id);
    cr_expect_arr_eq(a->at, b->at, sizeof a->at);
    for (size_t k = 0; k < ATTN_FACTS_MAX; k++)
        cr_expect(a->fact[k] == b->fact[k] || (isnan(a->fact[k]) && isnan(b->fact[k])),
                  "%s, fact %zu: %g, %g", a->row->id, k, a->fact[k], b->fact[k]);
}

/* What is judged and what is run again go on side by side, and say what they say in
   turns. */
Test(attn_audit, helpers_change_nothing)
{
    static const struct attn_dims LARGE =
        MAKE_DIMS(380, 380, 8, .B = 2, .d_k = 4, .d_v = 4, .h = 2, .h_kv = 1);
    struct made m;
    struct ran r;
    size_t calls = 0;
    const struct attn_exec exec = {.ctx = &calls, .parallel_for = by_threads};

    attn_blas_init();
    for (uint64_t seed = 1; seed <= 4; seed++)
        for (int wrong = 0; wrong < 2; wrong++) {
            struct audited alone, helped;

            make_plain(&m, seed, ATTN_F32, ATTN_SELF, LARGE);
            make_mask(&m, "causal");
            make_prepare(&m);
            make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
            if (wrong)
                ((float *)r.trace.t[ATTN_Y].p)[0] += 1;
            alone = make_audit(&m.p, &r, ATTN_AUDIT_SAMPLED, seed, NULL);
            helped = make_audit_by(&m.p, &r, ATTN_AUDIT_SAMPLED, seed, NULL, &exec);
            cr_assert(alone.ok && helped.ok);
            cr_expect_eq(alone.audit.status, wrong ? ATTN_FAIL : ATTN_PASS);
            cr_assert_eq(alone.audit.count, helped.audit.count);
            for (size_t n = 0; n < alone.audit.count; n++)
                expect_same(&alone.audit.finding[n], &helped.audit.finding[n]);
            make_run_free(&r);
            make_free(&m);
        }
    cr_expect_geq(calls, 8);
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
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
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

        make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
        r.trace.t[o].dim[1] += 1;
        a = make_audit(&m.p, &r, ATTN_AUDIT_FULL, 1, NULL);
        cr_assert(a.ok);
        cr_assert_eq(make_finding(&a.audit, SHAPES[n].check)->status, ATTN_FAIL, "%s",
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
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
    for (int in = 0; in < ATTN_INPUT_COUNT; in++) {
        if (!m.p.in[in].p)
            continue;
        m.p.in[in].dim[0]++;
        a = make_audit(&m.p, &r, ATTN_AUDIT_FULL, 1, NULL);
        m.p.in[in].dim[0]--;
        cr_assert_eq(a.audit.finding[0].status, ATTN_FAIL, "%s", ATTN_INPUTS[in].name);
        for (size_t n = 1; n < a.audit.count; n++)
            cr_assert_eq(a.audit.finding[n].status, ATTN_NOT_APPLICABLE);
    }
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
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
    arena.size = attn_audit_bytes(&m.p, &r.plan, ATTN_AUDIT_FULL);
    arena.base = malloc(arena.size);
    for (int pass = 0; pass < 2; pass++) {
        struct attn_audit found;
        struct attn_err err = {0};

        grads.check.pass = pass != 0;
        grads.check.first = pass != 0 ? -1 : ATTN_DW_Q;
        cr_assert(attn_audit_trace(&m.p, &r.plan, &r.trace, &grads, ATTN_AUDIT_FULL, 1,
                                   NULL, &arena, NULL, &found, &err));
        cr_assert_eq(make_finding(&found, "gradients")->status,
                     pass ? ATTN_PASS : ATTN_FAIL);
        if (pass)
            cr_assert_null(found.first_incorrect);
        else
            cr_assert_str_eq(found.first_incorrect, "dW_Q");
    }
    free(arena.base);
    make_run_free(&r);
    make_free(&m);
}

static void scale_input(struct made *m, enum attn_input in, double by)
{
    const struct attn_tensor *t = &m->p.in[in];

    for (size_t n = 0; n < attn_tensor_count(t); n++)
        if (t->dtype == ATTN_F64)
            ((double *)t->p)[n] *= by;
        else
            ((float *)t->p)[n] = (float)((double)((float *)t->p)[n] * by);
}

/* Results that are not normal numbers, or 0 where they would be smaller. */
Test(attn_audit, a_layer_of_tiny_numbers_passes)
{
    static const struct {
        enum attn_dtype dtype;
        double x, w, w_o;
    } cases[] = {
        {ATTN_F32, 1e-30, 1e-30, 1.0},   {ATTN_F32, 1e-20, 1e-20, 1.0},
        {ATTN_F32, 1e-38, 1.0, 1e30},    {ATTN_F32, 1e-42, 1.0, 1.0},
        {ATTN_F64, 1e-160, 1e-155, 1.0}, {ATTN_F64, 1e-309, 1.0, 1e30},
        {ATTN_F64, 1e-322, 1.0, 1e10},
    };
    const struct attn_dims d =
        MAKE_DIMS(9, 9, 11, .B = 2, .d_k = 3, .d_v = 4, .h = 2, .h_kv = 1);

    for (size_t n = 0; n < ATTN_COUNT(cases); n++)
        for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++) {
            struct made m;
            struct ran r;
            struct audited a;

            make_plain(&m, n, cases[n].dtype, ATTN_SELF, d);
            scale_input(&m, ATTN_IN_X, cases[n].x);
            for (int in = ATTN_IN_W_Q; in <= ATTN_IN_W_V; in++)
                scale_input(&m, (enum attn_input)in, cases[n].w);
            scale_input(&m, ATTN_IN_W_O, cases[n].w_o);
            make_prepare(&m);
            make_run_all(&m.p, (enum attn_path)path, NULL, &r);
            a = make_audit(&m.p, &r, ATTN_AUDIT_FULL, 1, NULL);
            if (!a.ok || a.audit.status != ATTN_PASS)
                make_audit_print(&a.audit);
            cr_assert(a.ok);
            cr_assert_eq(a.audit.status, ATTN_PASS, "case %zu, path %d", n, path);
            make_run_free(&r);
            make_free(&m);
        }
}
