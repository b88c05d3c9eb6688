/*
 * test_attn_bits.c - the promises about bits: an item alone is the item in its batch,
 * later tokens leave earlier rows, unread rows change nothing, helpers change nothing.
 * Not here: whether the numbers are right (test_attn_run.c).
 * Start reading at item_is_alone.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

static const enum attn_object PER_ITEM[] = {ATTN_Q, ATTN_K,   ATTN_V, ATTN_S, ATTN_M,
                                            ATTN_A, ATTN_LSE, ATTN_H, ATTN_Y};

static bool item_is_alone(const struct attn_problem *p, const struct ran *whole, size_t b,
                          enum attn_path path)
{
    struct attn_problem one;
    struct ran alone;
    bool same = true;

    attn_problem_item(p, b, &one);
    make_run(&one, make_everything(&one, path) & ~ATTN_BIT(ATTN_CONTRIBUTIONS), path,
             NULL, NULL, &alone);
    for (size_t n = 0; same && n < ATTN_COUNT(PER_ITEM); n++) {
        const enum attn_object o = PER_ITEM[n];
        struct attn_tensor part = whole->trace.t[o];

        if (!part.p || !alone.trace.t[o].p)
            continue;
        part.dim[0] = 1;
        part.p =
            (char *)part.p + b * attn_tensor_count(&part) * attn_dtype_bytes(part.dtype);
        same = make_same_bits(&part, &alone.trace.t[o], ATTN_OBJECTS[o].name);
    }
    make_run_free(&alone);
    return alone.ok && same;
}

Test(attn_bits, item_alone_is_item_in_batch)
{
    for (uint64_t seed = 1; seed <= 60; seed++)
        for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++) {
            struct made m;
            struct ran whole;

            make_problem(&m, seed, seed % 2 ? ATTN_F64 : ATTN_F32, 40, 0, &MAKE_ALL);
            make_run(&m.p,
                     make_everything(&m.p, (enum attn_path)path) &
                         ~ATTN_BIT(ATTN_CONTRIBUTIONS),
                     (enum attn_path)path, NULL, NULL, &whole);
            cr_assert(whole.ok);
            for (size_t b = 0; b < m.p.d.B; b++)
                cr_assert(item_is_alone(&m.p, &whole, b, (enum attn_path)path),
                          "seed %d path %d", (int)seed, path);
            make_run_free(&whole);
            make_free(&m);
        }
}

static void set_number(struct attn_tensor *t, size_t flat, double x)
{
    attn_kernel_of(t->dtype)->set(t->p, flat, x);
}

/* Multiplies X by x from row `first` of every item on. */
static void blow_up(struct attn_tensor *t, size_t first, double x)
{
    const size_t item = t->dim[1] * t->dim[2];

    for (size_t b = 0; b < t->dim[0]; b++)
        for (size_t n = first * t->dim[2]; n < item; n++)
            set_number(t, b * item + n, x * attn_tensor_get(t, b * item + n));
}

/* The first `rows` rows of every item, bit for bit. */
static bool rows_same(const struct attn_tensor *a, const struct attn_tensor *b,
                      size_t rows)
{
    const size_t row = a->dim[2] * attn_dtype_bytes(a->dtype), item = a->dim[1] * row;

    for (size_t n = 0; n < a->dim[0]; n++)
        if (memcmp((char *)a->p + n * item, (char *)b->p + n * item, rows * row) != 0)
            return false;
    return true;
}

enum { PREFIX = 100 };

/* Later tokens are ordinary, huge, or so huge that V, K and S overflow. */
static bool prefix_stays(enum attn_dtype dtype, enum attn_path path, double size)
{
    const struct attn_dims d = {.B = 2,
                                .T_q = 150,
                                .T_kv = 150,
                                .d_model = 20,
                                .d_model_kv = 20,
                                .d_k = 24,
                                .d_v = 70,
                                .h = 4,
                                .h_kv = 2};
    struct made m;
    struct ran before, after;
    bool same;

    make_plain(&m, 7, dtype, ATTN_SELF, d);
    make_mask(&m, "causal");
    make_prepare(&m);
    make_run(&m.p, ATTN_BIT(ATTN_Y), path, NULL, NULL, &before);
    blow_up(&m.p.in[ATTN_IN_X], PREFIX, size);
    make_run(&m.p, ATTN_BIT(ATTN_Y), path, NULL, NULL, &after);
    same = before.ok && after.ok &&
           rows_same(&before.trace.t[ATTN_Y], &after.trace.t[ATTN_Y], PREFIX) &&
           !rows_same(&before.trace.t[ATTN_Y], &after.trace.t[ATTN_Y], PREFIX + 1);
    make_run_free(&before);
    make_run_free(&after);
    make_free(&m);
    return same;
}

Test(attn_bits, later_tokens_leave_earlier_rows)
{
    for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++) {
        cr_assert(prefix_stays(ATTN_F64, (enum attn_path)path, -2));
        cr_assert(prefix_stays(ATTN_F64, (enum attn_path)path, 1e307));
        cr_assert(prefix_stays(ATTN_F64, (enum attn_path)path, INFINITY));
        cr_assert(prefix_stays(ATTN_F32, (enum attn_path)path, 1e37));
    }
}

/* Keys that no query reads stand scattered among those that are read. */
static bool unread_keys_are_silent(uint64_t seed, enum attn_path path, double poison)
{
    const struct attn_dims d = {.B = 2,
                                .T_q = 140,
                                .T_kv = 190,
                                .d_model = 9,
                                .d_model_kv = 9,
                                .d_k = 8,
                                .d_v = 67,
                                .h = 2,
                                .h_kv = 1};
    struct made m;
    struct ran before, after;
    bool same;

    make_plain(&m, seed, ATTN_F64, ATTN_PROJECTED, d);

    uint8_t *valid = make_block(&m, d.B * d.T_kv);
    struct attn_mask *mask = make_mask(&m, "padding");

    for (size_t n = 0; n < d.B * d.T_kv; n++)
        valid[n] = make_below(&m, 3) > 0;
    mask->arg[1].given = true;
    mask->arg[1].table =
        (struct attn_table){.elem = ATTN_ELEM_U8, .p = valid, .stride_b = d.T_kv};
    make_prepare(&m);
    make_run(&m.p, ATTN_BIT(ATTN_Y) | ATTN_BIT(ATTN_LSE), path, NULL, NULL, &before);
    for (size_t n = 0; n < d.B * d.T_kv; n++)
        if (!valid[n]) {
            attn_kernel_of(ATTN_F64)->fill(d.d_k, poison,
                                           (double *)m.p.in[ATTN_IN_K].p + n * d.d_k);
            attn_kernel_of(ATTN_F64)->fill(d.d_v, poison,
                                           (double *)m.p.in[ATTN_IN_V].p + n * d.d_v);
        }
    make_run(&m.p, ATTN_BIT(ATTN_Y) | ATTN_BIT(ATTN_LSE), path, NULL, NULL, &after);
    same = before.ok && after.ok &&
           make_same_bits(&before.trace.t[ATTN_Y], &after.trace.t[ATTN_Y], "Y") &&
           make_same_bits(&before.trace.t[ATTN_LSE], &after.trace.t[ATTN_LSE], "lse");
    make_run_free(&before);
    make_run_free(&after);
    make_free(&m);
    return same;
}

Test(attn_bits, unread_keys_and_values_change_nothing)
{
    static const double POISON[] = {1e300, -1e300, 1e308, INFINITY, NAN};

    for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++)
        for (size_t n = 0; n < ATTN_COUNT(POISON); n++)
            for (uint64_t seed = 1; seed <= 3; seed++)
                cr_assert(unread_keys_are_silent(seed, (enum attn_path)path, POISON[n]),
                          "seed %d path %d poison %g", (int)seed, path, POISON[n]);
}

/* ---- helpers ---- */

static void backwards(void *ctx, size_t count, attn_piece_fn *fn, void *arg)
{
    ++*(size_t *)ctx;
    while (count-- > 0)
        fn(arg, count);
}

struct share {
    attn_piece_fn *fn;
    void *arg;
    size_t first, step, count;
};

static void *run_share(void *arg)
{
    const struct share *s = arg;

    for (size_t n = s->first; n < s->count; n += s->step)
        s->fn(s->arg, n);
    return NULL;
}

static void threads(void *ctx, size_t count, attn_piece_fn *fn, void *arg)
{
    enum { THREADS = 3 };
    pthread_t thread[THREADS];
    struct share share[THREADS];

    ++*(size_t *)ctx;
    for (size_t n = 0; n < THREADS; n++) {
        share[n] = (struct share){fn, arg, n, THREADS, count};
        cr_assert_eq(pthread_create(&thread[n], NULL, run_share, &share[n]), 0);
    }
    for (size_t n = 0; n < THREADS; n++)
        pthread_join(thread[n], NULL);
}

Test(attn_bits, helpers_change_no_bit)
{
    void (*const HELP[])(void *, size_t, attn_piece_fn *, void *) = {backwards, threads};
    size_t calls = 0;

    attn_blas_init();
    for (uint64_t seed = 1; seed <= 6; seed++)
        for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++)
            for (size_t n = 0; n < ATTN_COUNT(HELP); n++) {
                const struct attn_exec exec = {.ctx = &calls, .parallel_for = HELP[n]};
                const uint32_t want = ATTN_BIT(ATTN_LSE) | ATTN_BIT(ATTN_H);
                struct made m;
                struct ran alone, helped;

                make_problem(&m, seed, ATTN_F64, 50, 400, &MAKE_ALL);
                make_run(&m.p, want, (enum attn_path)path, NULL, NULL, &alone);
                make_run(&m.p, want, (enum attn_path)path, &exec, NULL, &helped);
                cr_assert(alone.ok && helped.ok);
                cr_assert(
                    make_same_bits(&alone.trace.t[ATTN_H], &helped.trace.t[ATTN_H], "H"));
                cr_assert(make_same_bits(&alone.trace.t[ATTN_LSE],
                                         &helped.trace.t[ATTN_LSE], "lse"));
                cr_assert_eq(alone.trace.empty_count, helped.trace.empty_count);
                make_run_free(&alone);
                make_run_free(&helped);
                make_free(&m);
            }
    cr_assert_gt(calls, 24, "too small to be worth help: %zu", calls);
}
