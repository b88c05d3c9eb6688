/*
 * test_attn_grad_check.c - every entry of every gradient passes the check by differences,
 * objects on the way as well, and one wrong entry does not.
 * Not here: an independent reference (test_attn_grad.c).
 * Start reading at every_entry_passes_the_check.
 */
#include "make_grads.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Test(attn_grad_check, every_entry_passes_the_check)
{
    size_t entries = 0, seen = 0;

    for (uint64_t seed = 100; seed < 160; seed++) {
        struct asked_grads g;
        struct attn_arena scratch;

        make_grads_draw(&g, seed, ATTN_F64);
        make_grads(&g);
        cr_assert(g.ok, "seed %llu: code %d", (unsigned long long)seed, (int)g.err.code);
        scratch = make_arena(attn_grad_check_bytes(&g.made.p, &g.ask));
        cr_assert(attn_grad_check_run(&g.made.p, &g.ask, SIZE_MAX, seed, &scratch, NULL,
                                      &g.grads, &g.err),
                  "seed %llu: check failed to run, code %d at %s",
                  (unsigned long long)seed, (int)g.err.code, g.err.object);
        cr_assert(g.grads.check.done && g.grads.check.pass,
                  "seed %llu, of %s: %s[%zu] is %.15g, differences say %.15g",
                  (unsigned long long)seed, ATTN_OBJECTS[g.ask.of].name,
                  ATTN_GRADIENTS[g.grads.check.worst].name, g.grads.check.worst_at,
                  g.grads.check.analytic, g.grads.check.numeric);
        entries += g.grads.check.entries;
        for (int which = 0; which < ATTN_GRADIENT_COUNT; which++)
            seen |= g.grads.t[which].p != NULL ? (size_t)1 << which : 0;
        free(scratch.base);
        make_grads_free(&g);
    }
    cr_assert_gt(entries, 10000);
    cr_assert_eq(seen, ((size_t)1 << ATTN_GRADIENT_COUNT) - 1,
                 "gradients never drawn: %zx", seen);
}

Test(attn_grad_check, check_passes_in_float32)
{
    for (uint64_t seed = 200; seed < 230; seed++) {
        struct asked_grads g;

        make_grads_draw(&g, seed, ATTN_F32);
        g.ask.check = true;
        make_grads(&g);
        cr_assert(g.ok && g.grads.check.done && g.grads.check.pass,
                  "seed %llu, of %s: %s[%zu] is %.9g, differences say %.9g",
                  (unsigned long long)seed, ATTN_OBJECTS[g.ask.of].name,
                  ATTN_GRADIENTS[g.grads.check.worst].name, g.grads.check.worst_at,
                  g.grads.check.analytic, g.grads.check.numeric);
        make_grads_free(&g);
    }
}

/* A check that cannot fail is none: one entry wrong by a thousandth is found and
   named. */
Test(attn_grad_check, check_finds_one_wrong_entry)
{
    for (int which = 0; which < ATTN_GRADIENT_COUNT; which++)
        for (uint64_t seed = 100; seed < 160; seed++) {
            struct asked_grads g;
            struct attn_arena scratch;

            make_grads_draw(&g, seed, ATTN_F64);
            make_grads(&g);
            if (g.grads.t[which].p == NULL) {
                make_grads_free(&g);
                continue;
            }
            struct attn_tensor *t = &g.grads.t[which];
            const size_t at = attn_tensor_count(t) / 2;
            double *copy = make_block(&g.made, attn_tensor_count(t) * sizeof *copy);

            /* dA of A is the cotangent's own memory: the copy leaves that alone. */
            memcpy(copy, t->p, attn_tensor_count(t) * sizeof *copy);
            copy[at] += 1e-3 * fmax(1, fabs(copy[at]));
            t->p = copy;
            scratch = make_arena(attn_grad_check_bytes(&g.made.p, &g.ask));
            cr_assert(attn_grad_check_run(&g.made.p, &g.ask, SIZE_MAX, seed, &scratch,
                                          NULL, &g.grads, &g.err));
            if (which != ATTN_D_ADDITIVE || !g.grads.check.pass) {
                cr_assert_not(g.grads.check.pass, "%s", ATTN_GRADIENTS[which].name);
                cr_assert_eq(g.grads.check.worst, which, "%s: blamed %s",
                             ATTN_GRADIENTS[which].name,
                             ATTN_GRADIENTS[g.grads.check.worst].name);
                cr_assert_eq(g.grads.check.worst_at, at);
            }
            free(scratch.base);
            make_grads_free(&g);
            break;
        }
}

/* ---- faults of the backward pass --------------------------------------------------- */

/* Whatever else was asked, nothing before the fault's own object is blamed. */
static bool blames(const struct attn_fault_row *fault, uint64_t seed)
{
    const int object = attn_gradient_find(attn_fault_object(fault));
    struct asked_grads g;
    bool found = false;

    make_grads_draw(&g, seed, seed % 3 == 0 ? ATTN_F32 : ATTN_F64);
    g.ask.inject = fault;
    if (attn_fault_visible(fault, &g.made.p)) {
        make_grads(&g);
        cr_assert(g.ok && g.grads.check.done, "%s, seed %llu: code %d",
                  attn_fault_name(fault), (unsigned long long)seed, (int)g.err.code);
        cr_assert(g.grads.check.pass == (g.grads.check.first < 0));
        cr_assert(g.grads.check.first < 0 || g.grads.check.first >= object,
                  "%s, seed %llu: blamed %s", attn_fault_name(fault),
                  (unsigned long long)seed, ATTN_GRADIENTS[g.grads.check.first].name);
        found = g.grads.check.first == object;
    }
    make_grads_free(&g);
    return found;
}

Test(attn_grad_check, an_injected_fault_is_blamed_on_its_object)
{
    size_t faults = 0;

    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);
        size_t found = 0;

        if (!attn_fault_of_gradients(fault))
            continue;
        faults++;
        for (uint64_t seed = 100; seed < 400; seed++)
            found += blames(fault, seed);
        cr_assert_gt(found, 0, "%s was never found", attn_fault_name(fault));
    }
    cr_assert_gt(faults, 10);
}
