/*
 * test_attn_run.c - the whole layer against slow loops; errors, deadlines, replaced
 * stages and parts of the rows. Not here: single stages (test_attn_softmax.c,
 * test_attn_mix.c, …), bits (test_attn_bits.c). Start reading at forward_is_right.
 */
#include "core/attn_core.h"
#include "make_problem.h"
#include "ref_forward.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* Rounding of sums over at most 40 terms of size 1, through four products. */
static const double TOLERANCE[] = {[ATTN_F64] = 1e-12, [ATTN_F32] = 3e-5};

static bool forward_is_right(uint64_t seed, enum attn_dtype dtype, enum attn_path path,
                             const struct make_features *may)
{
    struct made m;
    struct ref_layer ref;
    struct ran r;
    bool right;

    make_problem(&m, seed, dtype, 12, 0, may);
    ref_forward(&m.p, &ref);
    make_run(&m.p, make_everything(&m.p, path), path, NULL, NULL, &r);
    right = r.ok && r.trace.empty_count == ref.empty_count &&
            memcmp(r.trace.empty, ref.empty, m.p.d.B * m.p.d.h * m.p.d.T_q) == 0;
    for (int o = ATTN_Q_PRE; right && o < ATTN_OBJECT_COUNT; o++)
        if (r.trace.t[o].p)
            right = ref_same(&m.p, (enum attn_object)o, &r.trace.t[o], &ref,
                             TOLERANCE[dtype]);
    if (!right)
        fprintf(stderr, "seed %llu, dtype %d, path %d\n", (unsigned long long)seed,
                (int)dtype, (int)path);
    make_run_free(&r);
    ref_free(&ref);
    make_free(&m);
    return right;
}

Test(attn_run, random_problems_are_right)
{
    attn_blas_init();
    for (uint64_t seed = 1; seed <= 400; seed++)
        for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++)
            for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
                cr_assert(forward_is_right(seed, (enum attn_dtype)dtype,
                                           (enum attn_path)path, &MAKE_ALL));
}

Test(attn_run, plain_problems_are_right)
{
    for (uint64_t seed = 1; seed <= 100; seed++)
        cr_assert(forward_is_right(seed, ATTN_F64, ATTN_PATH_DENSE, &MAKE_PLAIN));
}

/* More than one block of rows, more than one tile and more than one column of products.
 */
Test(attn_run, large_problem_is_right)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct made m;
        struct ref_layer ref;

        make_problem(&m, seed, ATTN_F64, 70, 261, &MAKE_ALL);
        ref_forward(&m.p, &ref);
        for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++) {
            struct ran r;

            make_run(&m.p,
                     make_everything(&m.p, (enum attn_path)path) &
                         ~ATTN_BIT(ATTN_CONTRIBUTIONS),
                     (enum attn_path)path, NULL, NULL, &r);
            cr_assert(r.ok);
            for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++)
                if (r.trace.t[o].p)
                    cr_assert(
                        ref_same(&m.p, (enum attn_object)o, &r.trace.t[o], &ref, 1e-12),
                        "seed %d path %d", (int)seed, path);
            make_run_free(&r);
        }
        ref_free(&ref);
        make_free(&m);
    }
}

static void backwards(void *ctx, size_t count, attn_piece_fn *fn, void *arg)
{
    (void)ctx;
    while (count-- > 0)
        fn(arg, count);
}

/* ---- errors ---- */

/* Rows without a key: 205 of head 0 of item 1, and all of head 1; the first one is
 * reported. */
static void empty_some(struct made *m)
{
    const struct attn_dims *d = &m->p.d;
    uint8_t *pairs = make_block(m, d->B * d->h * d->T_q * d->T_kv);
    struct attn_mask *mask = make_mask(m, "blocked");

    memset(pairs, 0, d->B * d->h * d->T_q * d->T_kv);
    memset(pairs + (d->h * d->T_q + 205) * d->T_kv, 1, d->T_kv);
    memset(pairs + (d->h + 1) * d->T_q * d->T_kv, 1, d->T_q * d->T_kv);
    mask->arg[0].given = true;
    mask->arg[0].table = (struct attn_table){.elem = ATTN_ELEM_U8,
                                             .p = pairs,
                                             .stride_b = d->h * d->T_q * d->T_kv,
                                             .stride_h = d->T_q * d->T_kv,
                                             .stride_i = d->T_kv};
}

Test(attn_run, first_empty_row_is_the_error)
{
    const struct attn_dims d = {.B = 3,
                                .T_q = 300,
                                .T_kv = 300,
                                .d_model = 8,
                                .d_model_kv = 8,
                                .d_k = 8,
                                .d_v = 8,
                                .h = 2,
                                .h_kv = 2};
    const struct attn_exec exec = {.parallel_for = backwards};

    for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++) {
        struct made m;
        struct ran r;

        make_plain(&m, 1, ATTN_F64, ATTN_SELF, d);
        empty_some(&m);
        m.p.empty_rows = ATTN_EMPTY_ERROR;
        make_run(&m.p, ATTN_BIT(ATTN_Y), (enum attn_path)path, &exec, NULL, &r);
        cr_assert_not(r.ok);
        cr_assert_eq(r.err.code, ATTN_E_EMPTY_ROW);
        cr_assert_eq(r.err.at[0], 1);
        cr_assert_eq(r.err.at[1], 0);
        cr_assert_eq(r.err.at[2], 205);
        make_run_free(&r);
        m.p.empty_rows = ATTN_EMPTY_ZERO;
        make_run(&m.p, ATTN_BIT(ATTN_Y), (enum attn_path)path, &exec, NULL, &r);
        cr_assert(r.ok);
        cr_assert_eq(r.trace.empty_count, 301);
        make_run_free(&r);
        make_free(&m);
    }
}

static bool stop_after(void *ctx)
{
    size_t *left = ctx;

    return *left == 0 || --*left == 0;
}

Test(attn_run, stop_is_asked_before_each_piece)
{
    for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++)
        for (size_t pieces = 1; pieces < 40; pieces++) {
            size_t left = pieces;
            const struct attn_exec exec = {.ctx = &left, .stop = stop_after};
            const struct attn_dims d = {.B = 2,
                                        .T_q = 130,
                                        .T_kv = 130,
                                        .d_model = 4,
                                        .d_model_kv = 4,
                                        .d_k = 4,
                                        .d_v = 4,
                                        .h = 2,
                                        .h_kv = 1};
            struct made m;
            struct ran r;

            make_plain(&m, 1, ATTN_F64, ATTN_SELF, d);
            make_run(&m.p, ATTN_BIT(ATTN_Y), (enum attn_path)path, &exec, NULL, &r);
            /* 8 blocks of Q, 2 of K, 2 of V, 8 of A, 4 of Y */
            cr_assert_eq(r.ok, pieces > 24, "%zu", pieces);
            cr_assert_eq(r.err.code, pieces > 24 ? ATTN_OK : ATTN_E_DEADLINE);
            make_run_free(&r);
            make_free(&m);
        }
}

/* ---- replaced stages ---- */

static size_t swapped_calls;

static bool softmax_of_nothing(const struct attn_run_ctx *run, struct attn_piece piece,
                               struct attn_err *err)
{
    (void)piece;
    swapped_calls++;
    return attn_stage_all(run, ATTN_STAGE_SOFTMAX, err);
}

Test(attn_run, a_stage_replaced_by_itself_changes_no_bit)
{
    const struct attn_swap swap = {.stage[ATTN_STAGE_SOFTMAX] = softmax_of_nothing};

    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct made m;
        struct ran right, other;

        make_problem(&m, seed, ATTN_F64, 20, seed % 5 ? 0 : 150, &MAKE_PLAIN);
        m.p.form.has_output = m.p.in[ATTN_IN_W_O].p != NULL;
        swapped_calls = 0;
        make_run(&m.p, ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_H), ATTN_PATH_DENSE, NULL, NULL,
                 &right);
        make_run(&m.p, ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_H), ATTN_PATH_DENSE, NULL, &swap,
                 &other);
        cr_assert(right.ok && other.ok);
        cr_assert_eq(swapped_calls, 1);
        cr_assert(make_same_bits(&right.trace.t[ATTN_A], &other.trace.t[ATTN_A], "A"));
        cr_assert(make_same_bits(&right.trace.t[ATTN_H], &other.trace.t[ATTN_H], "H"));
        make_run_free(&right);
        make_run_free(&other);
        make_free(&m);
    }
}

/* ---- a part of the rows ---- */

Test(attn_run, rows_of_a_part_are_those_of_the_whole)
{
    const struct attn_rows part = {.b0 = 1, .b1 = 2, .i0 = ATTN_ROW_BLOCK, .i1 = 200};
    const struct attn_dims d = {.B = 3,
                                .T_q = 200,
                                .T_kv = 200,
                                .d_model = 12,
                                .d_model_kv = 12,
                                .d_k = 6,
                                .d_v = 5,
                                .h = 2,
                                .h_kv = 1};
    struct made m;
    struct ran whole, some;

    make_plain(&m, 13, ATTN_F64, ATTN_SELF, d);
    make_run(&m.p, ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_H), ATTN_PATH_DENSE, NULL, NULL,
             &whole);
    make_run(&m.p, ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_H), ATTN_PATH_DENSE, NULL, NULL,
             &some);
    memset(some.arena.base, 0xff, some.arena.size);
    some.arena.used = 0;
    cr_assert(attn_run_rows(&m.p, &some.plan, part, &some.arena, NULL, NULL, &some.trace,
                            &some.err));
    for (size_t b = 0; b < m.p.d.B; b++)
        for (size_t i = 0; i < m.p.d.T_q; i++) {
            const struct attn_mat all = attn_slice(&whole.trace.t[ATTN_H], b, 0);
            const struct attn_mat got = attn_slice(&some.trace.t[ATTN_H], b, 0);
            const size_t bytes = all.ld * sizeof(double);
            const bool inside = b == 1 && i >= ATTN_ROW_BLOCK;

            cr_assert_eq(
                memcmp((char *)all.p + i * bytes, (char *)got.p + i * bytes, bytes) == 0,
                inside, "b %zu i %zu", b, i);
        }
    make_run_free(&whole);
    make_run_free(&some);
    make_free(&m);
}
