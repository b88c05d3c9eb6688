/*
 * test_attn_grad.c - gradients against central differences of a long double reference
 * over random problems with every option; exact zeros; identities; worked numbers.
 * Not here: the check that answers carry (test_attn_grad_check.c).
 * Start reading at inputs_match_reference.
 */
#include "make_grads.h"
#include "ref_forward.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The reference is long double with a step of 1e-5: its own error is about 1e-9. */
static const double REFERENCE_TOLERANCE = 1e-7;
static const long double STEP = 1e-5L;
static const double EXACT_TOLERANCE = 1e-13;

/* ---- against the long double reference: everything that is an input ---- */

static long double objective(const struct attn_problem *p,
                             const struct attn_grad_ask *ask)
{
    struct ref_layer layer;
    long double sum = 0;

    ref_forward(p, &layer);
    for (size_t n = 0; n < attn_tensor_count(&ask->cotangent); n++)
        sum += (long double)attn_tensor_get(&ask->cotangent, n) * layer.t[ask->of][n];
    ref_free(&layer);
    return sum;
}

static void input_matches(struct asked_grads *g, enum attn_gradient which, double *x,
                          size_t n, double got)
{
    const double old = x[n];
    volatile double up = old + (double)STEP, down = old - (double)STEP;

    x[n] = up;
    const long double plus = objective(&g->made.p, &g->ask);
    x[n] = down;
    const long double minus = objective(&g->made.p, &g->ask);
    x[n] = old;

    const double want = (double)((plus - minus) / ((long double)up - (long double)down));

    cr_assert_leq(fabs(got - want), REFERENCE_TOLERANCE * fmax(1, fabs(want)),
                  "seed %llu, of %s: %s[%zu] is %.15g, differences say %.15g",
                  (unsigned long long)g->made.seed, ATTN_OBJECTS[g->ask.of].name,
                  ATTN_GRADIENTS[which].name, n, got, want);
}

Test(attn_grad, inputs_match_reference)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct asked_grads g;

        make_grads_draw(&g, seed, ATTN_F64);
        make_grads(&g);
        cr_assert(g.ok, "seed %llu: code %d", (unsigned long long)seed, (int)g.err.code);
        /* The backward pass takes A of an empty row for 0: the reference must as well. */
        if (g.made.p.empty_rows == ATTN_EMPTY_NAN)
            g.made.p.empty_rows = ATTN_EMPTY_ZERO;
        for (int which = 0; which < ATTN_GRADIENT_COUNT; which++) {
            const struct attn_tensor *t = &g.grads.t[which];
            const int in = ATTN_GRADIENTS[which].like_input;

            if (t->p == NULL || in < 0)
                continue;
            for (size_t n = 0; n < attn_tensor_count(t); n++)
                input_matches(&g, (enum attn_gradient)which, g.made.p.in[in].p, n,
                              attn_tensor_get(t, n));
        }
        make_grads_free(&g);
    }
}

/* ---- exact zeros and identities ---- */

Test(attn_grad, forbidden_pairs_and_empty_rows_are_exactly_0)
{
    size_t forbidden = 0, empty = 0;

    for (uint64_t seed = 300; seed < 400; seed++) {
        struct asked_grads g;
        const struct attn_dims *d = &g.made.p.d;

        make_grads_draw(&g, seed, seed % 2 ? ATTN_F64 : ATTN_F32);
        if (g.ask.of == ATTN_S)
            make_cotangent(&g, ATTN_A);
        make_grads(&g);
        cr_assert(g.ok);
        for (size_t n = 0; n < d->B * d->h * d->T_q * d->T_kv; n++) {
            const size_t j = n % d->T_kv, row = n / d->T_kv, i = row % d->T_q;
            const size_t h = row / d->T_q % d->h, b = row / d->T_q / d->h;

            empty += g.ran.trace.empty[row];
            if (attn_allowed(&g.made.p, b, h, i, j))
                continue;
            forbidden++;
            cr_assert_eq(attn_tensor_get(&g.grads.t[ATTN_DS], n), 0.0,
                         "seed %llu: dS[%zu,%zu,%zu,%zu] is not 0",
                         (unsigned long long)seed, b, h, i, j);
        }
        for (int which = 0; which < ATTN_GRADIENT_COUNT; which++)
            for (size_t n = 0;
                 g.grads.t[which].p != NULL && n < attn_tensor_count(&g.grads.t[which]);
                 n++)
                cr_assert(isfinite(attn_tensor_get(&g.grads.t[which], n)),
                          "seed %llu: %s[%zu] is not finite", (unsigned long long)seed,
                          ATTN_GRADIENTS[which].name, n);
        make_grads_free(&g);
    }
    cr_assert_gt(forbidden, 1000);
    cr_assert_gt(empty, 100);
}

/* Huge values at keys that nobody reads leave dS finite: 0 * Infinity is never formed. */
Test(attn_grad, unread_infinite_dA_stays_out_of_dS)
{
    struct asked_grads g = {0};

    make_plain(&g.made, 5, ATTN_F64, ATTN_PROJECTED,
               (struct attn_dims)MAKE_DIMS(2, 3, 4, .B = 1, .d_k = 2, .d_v = 5, .h = 1,
                                           .h_kv = 1));
    struct attn_mask *padding = make_mask(&g.made, "padding");
    static const int64_t length = 2;

    padding->arg[0].given = true;
    padding->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_I64, .p = &length, .stride_b = 1};
    make_prepare(&g.made);
    for (size_t c = 0; c < 5; c++)
        ((double *)g.made.p.in[ATTN_IN_V].p)[2 * 5 + c] = 1e308;
    make_cotangent(&g, ATTN_H);
    for (size_t n = 0; n < attn_tensor_count(&g.ask.cotangent); n++)
        ((double *)g.ask.cotangent.p)[n] = 1e10;
    make_grads(&g);
    cr_assert(g.ok);
    cr_assert(isinf(attn_tensor_get(&g.grads.t[ATTN_DA], 2)));
    for (size_t n = 0; n < 6; n++)
        cr_assert(isfinite(attn_tensor_get(&g.grads.t[ATTN_DS], n)));
    make_grads_free(&g);
}

/* sum_j dS_ij = 0 in every row without a sink: adding a constant to a row of scores
   moves nothing. */
Test(attn_grad, rows_of_dS_sum_to_0)
{
    struct make_features may = MAKE_ALL;

    may.sink = false;
    for (uint64_t seed = 500; seed < 530; seed++) {
        struct asked_grads g = {0};
        const struct attn_dims *d = &g.made.p.d;

        make_problem(&g.made, seed, ATTN_F64, 6, 0, &may);
        make_cotangent(&g, ATTN_H);
        make_grads(&g);
        for (size_t row = 0; row < d->B * d->h * d->T_q; row++) {
            double sum = 0;

            for (size_t j = 0; j < d->T_kv; j++)
                sum += attn_tensor_get(&g.grads.t[ATTN_DS], row * d->T_kv + j);
            cr_assert_leq(fabs(sum), EXACT_TOLERANCE * 100, "seed %llu, row %zu: %g",
                          (unsigned long long)seed, row, sum);
        }
        make_grads_free(&g);
    }
}

/* Y is linear in W_O: <dW_O, W_O> = <dY, Y - b_O>. */
Test(attn_grad, inner_product_with_W_O)
{
    for (uint64_t seed = 600; seed < 630; seed++) {
        struct asked_grads g = {0};
        double left = 0, right = 0;

        make_problem(&g.made, seed, ATTN_F64, 6, 0, &MAKE_PLAIN);
        if (g.made.p.form.has_output) {
            make_cotangent(&g, ATTN_Y);
            make_grads(&g);
            for (size_t n = 0; n < attn_tensor_count(&g.grads.t[ATTN_DW_O]); n++)
                left += attn_tensor_get(&g.grads.t[ATTN_DW_O], n) *
                        attn_tensor_get(&g.made.p.in[ATTN_IN_W_O], n);
            for (size_t n = 0; n < attn_tensor_count(&g.ask.cotangent); n++) {
                const struct attn_tensor *b_O = &g.made.p.in[ATTN_IN_B_O];

                right += attn_tensor_get(&g.ask.cotangent, n) *
                         (attn_tensor_get(&g.ran.trace.t[ATTN_Y], n) -
                          (b_O->p ? attn_tensor_get(b_O, n % b_O->dim[0]) : 0));
            }
            cr_assert_leq(fabs(left - right),
                          EXACT_TOLERANCE * 100 * fmax(1, fabs(right)));
        }
        make_grads_free(&g);
    }
}

/* ---- which exist ---- */

Test(attn_grad, what_lies_behind_the_object_has_none)
{
    struct asked_grads g;

    make_grads_draw(&g, 7, ATTN_F64);
    make_cotangent(&g, ATTN_A);
    g.ask.with_respect_to = ATTN_BIT(ATTN_DH) | ATTN_BIT(ATTN_DQ);
    make_grads(&g);
    cr_assert_not(g.ok);
    cr_assert_eq(g.err.code, ATTN_E_CONTRADICTION);
    cr_assert_str_eq(g.err.object, "dH");
    cr_assert_eq(g.arena.used, 0);
    make_grads_free(&g);
}

/* Everything may be asked by naming nothing or all that the problem has. */
static void A_alone(bool by_name)
{
    struct asked_grads g;

    make_grads_draw(&g, 7, ATTN_F64);
    make_cotangent(&g, ATTN_A);
    for (enum attn_gradient which = 0; by_name && which < ATTN_GRADIENT_COUNT; which++)
        if (attn_gradient_exists(&g.made.p, which))
            g.ask.with_respect_to |= ATTN_BIT(which);
    make_grads(&g);
    cr_assert(g.ok);
    cr_assert_null(g.grads.t[ATTN_DH].p);
    cr_assert_null(g.grads.t[ATTN_DW_O].p);
    cr_assert_not_null(g.grads.t[ATTN_DV].p);
    for (size_t n = 0; n < attn_tensor_count(&g.grads.t[ATTN_DV]); n++)
        cr_assert_eq(attn_tensor_get(&g.grads.t[ATTN_DV], n), 0.0);
    make_grads_free(&g);
}

Test(attn_grad, A_does_not_move_with_V)
{
    A_alone(false);
    A_alone(true);
}

/* One gradient alone is the same numbers as among all, and nothing else comes back. */
Test(attn_grad, one_alone_is_the_same)
{
    for (uint64_t seed = 700; seed < 720; seed++) {
        struct asked_grads all;

        make_grads_draw(&all, seed, ATTN_F64);
        make_grads(&all);
        cr_assert(all.ok);
        for (int which = 0; which < ATTN_GRADIENT_COUNT; which++) {
            struct attn_grad_ask ask = all.ask;
            struct attn_arena arena;
            struct attn_grads grads;

            if (all.grads.t[which].p == NULL)
                continue;
            ask.with_respect_to = ATTN_BIT(which);
            arena = make_arena(attn_grad_bytes(&all.made.p, &ask));
            cr_assert(attn_grad(&all.made.p, &all.ran.trace, &ask, &arena, NULL, &grads,
                                &all.err),
                      "%s: code %d", ATTN_GRADIENTS[which].name, (int)all.err.code);
            cr_assert(make_same_bits(&grads.t[which], &all.grads.t[which],
                                     ATTN_GRADIENTS[which].name));
            for (int other = 0; other < ATTN_GRADIENT_COUNT; other++)
                cr_assert(other == which || grads.t[other].p == NULL);
            free(arena.base);
        }
        make_grads_free(&all);
    }
}

/* ---- help and deadline ---- */

static void backwards(void *ctx, size_t count, attn_piece_fn *fn, void *arg)
{
    (void)ctx;
    while (count-- > 0)
        fn(arg, count);
}

Test(attn_grad, the_order_of_helpers_does_not_matter)
{
    const struct attn_exec exec = {.parallel_for = backwards};

    for (uint64_t seed = 800; seed < 830; seed++) {
        struct asked_grads g;
        struct attn_grads other;
        struct attn_arena arena;

        make_grads_draw(&g, seed, ATTN_F64);
        make_grads(&g);
        arena = make_arena(attn_grad_bytes(&g.made.p, &g.ask));
        cr_assert(
            attn_grad(&g.made.p, &g.ran.trace, &g.ask, &arena, &exec, &other, &g.err));
        for (int which = 0; which < ATTN_GRADIENT_COUNT; which++)
            cr_assert(g.grads.t[which].p == NULL ||
                      make_same_bits(&g.grads.t[which], &other.t[which],
                                     ATTN_GRADIENTS[which].name));
        free(arena.base);
        make_grads_free(&g);
    }
}

static bool at_once(void *ctx)
{
    (void)ctx;
    return true;
}

Test(attn_grad, stops_at_the_deadline)
{
    const struct attn_exec exec = {.stop = at_once};
    struct asked_grads g;
    struct attn_grads other;

    make_grads_draw(&g, 1, ATTN_F64);
    make_grads(&g);
    attn_arena_release(&g.arena, 0);
    cr_assert_not(
        attn_grad(&g.made.p, &g.ran.trace, &g.ask, &g.arena, &exec, &other, &g.err));
    cr_assert_eq(g.err.code, ATTN_E_DEADLINE);
    cr_assert_eq(g.arena.used, 0);
    make_grads_free(&g);
}

Test(attn_grad, too_little_memory_is_an_error)
{
    struct asked_grads g;
    struct attn_grads other;

    make_grads_draw(&g, 1, ATTN_F64);
    g.ask.check = true;
    make_grads(&g);
    for (size_t size = 0; size < g.arena.peak; size += 64) {
        struct attn_arena small = {g.arena.base, size, 0, 0};

        g.err = (struct attn_err){0};
        cr_assert_not(
            attn_grad(&g.made.p, &g.ran.trace, &g.ask, &small, NULL, &other, &g.err));
        cr_assert_eq(g.err.code, ATTN_E_MEMORY);
    }
    make_grads_free(&g);
}

/* ---- worked numbers: scores [0, ln 3], values [2, 6] ---- */

Test(attn_grad, ln_3_example)
{
    struct asked_grads g = {0};

    make_plain(&g.made, 1, ATTN_F64, ATTN_PROJECTED,
               (struct attn_dims)MAKE_DIMS(1, 2, 1, .B = 1, .d_k = 1, .d_v = 1, .h = 1,
                                           .h_kv = 1));
    *(double *)g.made.p.in[ATTN_IN_Q].p = 1;
    memcpy(g.made.p.in[ATTN_IN_K].p, (double[]){0, log(3)}, 2 * sizeof(double));
    memcpy(g.made.p.in[ATTN_IN_V].p, (double[]){2, 6}, 2 * sizeof(double));
    make_cotangent(&g, ATTN_H);
    *(double *)g.ask.cotangent.p = 1;
    make_grads(&g);
    cr_assert(g.ok);
    cr_assert_leq(fabs(attn_tensor_get(&g.grads.t[ATTN_DS], 0) + 0.75), 1e-15);
    cr_assert_leq(fabs(attn_tensor_get(&g.grads.t[ATTN_DS], 1) - 0.75), 1e-15);
    cr_assert_eq(attn_tensor_get(&g.grads.t[ATTN_DA], 0), 2.0);
    cr_assert_eq(attn_tensor_get(&g.grads.t[ATTN_DA], 1), 6.0);
    make_grads_free(&g);
}
