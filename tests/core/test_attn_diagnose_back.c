/*
 * test_attn_diagnose_back.c - candidates with gradients: right ones, damaged ones, a
 * missing scale. Not here: the layer itself (test_attn_diagnose.c). Start reading at
 * make_backward.
 */
#include "make_candidate.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- gradients
 * ---------------------------------------------------------------------------- */

struct backward {
    struct made m;
    struct ran r;
    struct attn_grad_ask ask;
    struct attn_grads grads;
    struct attn_arena arena;
};

static void make_backward(struct backward *b, uint64_t seed)
{
    const struct make_features may = {
        .rope = true, .causal = true, .pairs = true, .past = true};
    struct attn_err err = {0};
    double *cotangent;

    make_problem(&b->m, seed, ATTN_F64, 5, 0, &may);
    make_run_all(&b->m.p, ATTN_PATH_DENSE, NULL, &b->r);
    cr_assert(b->r.ok);
    b->ask = (struct attn_grad_ask){.of = b->m.p.form.has_output ? ATTN_Y : ATTN_H};
    attn_object_full_shape(&b->m.p, b->ask.of, &b->ask.cotangent);
    b->ask.cotangent.p = cotangent =
        make_block(&b->m, attn_tensor_count(&b->ask.cotangent) * sizeof(double));
    for (size_t n = 0; n < attn_tensor_count(&b->ask.cotangent); n++)
        cotangent[n] = make_normal(&b->m);
    b->arena = make_arena(attn_grad_bytes(&b->m.p, &b->ask));
    cr_assert(attn_grad(&b->m.p, &b->r.trace, &b->ask, &b->arena, NULL, &b->grads, &err),
              "seed %llu: code %d at %s, %zu of %zu", (unsigned long long)seed,
              (int)err.code, err.object, err.got, err.want);
}

static void free_backward(struct backward *b)
{
    free(b->arena.base);
    make_run_free(&b->r);
    make_free(&b->m);
}

Test(attn_diagnose, right_gradients_are_right)
{
    size_t alarms = 0;

    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct backward b;
        struct attn_candidate c;
        struct attn_report report;

        make_backward(&b, seed);
        c = candidate_of(&b.r.trace, seed % 2 ? SEEN_ALL : 0);
        memcpy(c.gradient, b.grads.t, sizeof c.gradient);
        report = diagnose(&b.m.p, &c, &b.ask);
        if (report.first_incorrect) {
            print("gradients", seed, &report);
            alarms++;
        }
        free_backward(&b);
    }
    cr_assert_eq(alarms, 0);
}

/* Damage to one gradient alone: all that is computed from it stays right. */
Test(attn_diagnose, a_damaged_gradient_is_the_first)
{
    size_t wrong = 0;

    for (uint64_t seed = 1; seed <= 60; seed++)
        for (int g = 0; g < ATTN_GRADIENT_COUNT; g++) {
            struct backward b;
            struct attn_candidate c;
            struct attn_report report;

            make_backward(&b, seed);
            c = candidate_of(&b.r.trace, SEEN_ALL);
            memcpy(c.gradient, b.grads.t, sizeof c.gradient);
            if (c.gradient[g].p &&
                g != attn_gradient_find(b.ask.of == ATTN_H ? "dH" : "")) {
                ((double *)c.gradient[g].p)[0] += 0.7;
                report = diagnose(&b.m.p, &c, &b.ask);
                if (!report.first_incorrect ||
                    strcmp(report.first_incorrect, ATTN_GRADIENTS[g].name) != 0) {
                    print(ATTN_GRADIENTS[g].name, seed, &report);
                    wrong++;
                }
            }
            free_backward(&b);
        }
    cr_assert_eq(wrong, 0);
}

static void times(struct attn_tensor *t, double by)
{
    for (size_t n = 0; t->p && n < attn_tensor_count(t); n++)
        ((double *)t->p)[n] *= by;
}

Test(attn_diagnose, a_missing_scale_in_dq_and_dk_is_named)
{
    size_t missed = 0, made = 0;

    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct backward b;
        struct attn_candidate c;
        struct attn_report report;

        make_backward(&b, seed);
        c = candidate_of(&b.r.trace, SEEN_ALL);
        memcpy(c.gradient, b.grads.t, sizeof c.gradient);
        if (b.m.p.scale != 1.0 && b.m.p.scale > 0.0 && c.gradient[ATTN_DQ].p) {
            double size = 0.0;

            for (size_t n = 0; n < attn_tensor_count(&c.gradient[ATTN_DQ]); n++)
                size = fmax(size, fabs(((double *)c.gradient[ATTN_DQ].p)[n]));
            times(&c.gradient[ATTN_DQ], 1.0 / b.m.p.scale);
            times(&c.gradient[ATTN_DK], 1.0 / b.m.p.scale);
            report = diagnose(&b.m.p, &c, &b.ask);
            if (size > 0.0) {
                made++;
                if (!names(&report, attn_fault_find("grad_no_scale"))) {
                    print("grad_no_scale", seed, &report);
                    missed++;
                }
            }
        }
        free_backward(&b);
    }
    cr_assert_gt(made, 5);
    cr_assert_eq(missed, 0);
}
