/*
 * test_attn_diagnose.c - candidates made by every fault, by two, and by damage that no
 * fault explains. Not here: right layers (test_attn_diagnose_right.c), gradients
 * (test_attn_diagnose_back.c).
 * Start reading at every_fault.
 */
#include "make_candidate.h"
#include "make_fault.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBLEMS = 4 };

/* ---- every fault ----------------------------------------------------------------------
 */

struct tally {
    size_t made, wrong_object, no_cause, unseen;
};

static void one(const struct attn_fault_row *fault, const struct made *m,
                uint32_t objects, const char *object, struct tally *tally)
{
    struct ran r;
    struct attn_candidate c;
    struct attn_report report;

    make_run_all(&m->p, ATTN_PATH_DENSE, attn_fault_swap(fault), &r);
    cr_assert(r.ok);
    c = candidate_of(&r.trace, objects);
    report = diagnose(&m->p, &c, NULL);
    tally->made++;
    if (report.verdict == ATTN_CORRECT || report.verdict == ATTN_INCONCLUSIVE) {
        tally->unseen += report.forms == 0;
        if (object && report.forms == 0)
            print(attn_fault_name(fault), m->seed, &report);
    } else {
        const bool right = !object || strcmp(report.first_incorrect, object) == 0;

        tally->wrong_object += !right;
        tally->no_cause += !names(&report, fault);
        if (!right || !names(&report, fault))
            print(attn_fault_name(fault), m->seed, &report);
    }
    make_run_free(&r);
}

static struct tally every_fault(uint32_t objects, bool own_object)
{
    struct tally all = {0};

    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *fault = attn_fault_at(n);
        uint64_t seed = 1;
        struct made m;

        if (!make_is_forward(fault))
            continue;
        for (size_t shown = 0; shown < PROBLEMS && make_shows(fault, false, &seed, &m);
             shown++) {
            one(fault, &m, objects, own_object ? attn_fault_object(fault) : NULL, &all);
            make_free(&m);
        }
    }
    fprintf(stderr,
            "%zu made, %zu with the wrong object, %zu without the cause, %zu not seen\n",
            all.made, all.wrong_object, all.no_cause, all.unseen);
    return all;
}

Test(attn_diagnose, every_fault_with_all_objects)
{
    const struct tally t = every_fault(SEEN_ALL, true);

    cr_assert_eq(t.wrong_object, 0);
    cr_assert_eq(t.no_cause, 0);
    cr_assert_eq(t.unseen, 0);
}

Test(attn_diagnose, every_fault_with_everything_there_is)
{
    const struct tally t = every_fault(~UINT32_C(0), true);

    cr_assert_eq(t.wrong_object, 0);
    cr_assert_eq(t.no_cause, 0);
}

Test(attn_diagnose, every_fault_with_weights_and_result)
{
    const struct tally t =
        every_fault(ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_Y) | ATTN_BIT(ATTN_H), false);

    cr_assert_eq(t.no_cause, 0);
}

Test(attn_diagnose, every_fault_with_the_result_alone)
{
    const struct tally t = every_fault(ATTN_BIT(ATTN_Y), false);

    cr_assert_eq(t.no_cause, 0);
}

/* ---- damage that no fault explains
 * ---------------------------------------------------------- */

Test(attn_diagnose, damage_has_its_object_and_no_cause)
{
    static const enum attn_object objects[] = {ATTN_Q, ATTN_K, ATTN_V, ATTN_S,
                                               ATTN_A, ATTN_H, ATTN_Y};
    size_t wrong = 0, named = 0;

    for (uint64_t seed = 1; seed <= 100; seed++)
        for (size_t n = 0; n < ATTN_COUNT(objects); n++) {
            const enum attn_object hit = objects[n];
            struct own o;
            struct attn_report report;

            make_own(&o, seed, SEEN_ALL);
            if (numbers(&o, hit)) {
                for (size_t k = 0; k < count(&o, hit); k++)
                    numbers(&o, hit)[k] += 0.3 * make_normal(&o.m);
                report = diagnose(&o.m.p, &o.c, NULL);
                if (!report.first_incorrect ||
                    strcmp(report.first_incorrect, ATTN_OBJECTS[hit].name) != 0) {
                    print(ATTN_OBJECTS[hit].name, seed, &report);
                    wrong++;
                }
                if (report.diagnoses > 0)
                    print("named", seed, &report);
                named += report.diagnoses > 0;
            }
            free_own(&o);
        }
    fprintf(stderr, "%zu wrong objects, %zu named\n", wrong, named);
    cr_assert_eq(wrong, 0);
    cr_assert_eq(named, 0);
}

Test(attn_diagnose, a_number_that_is_none_has_its_place)
{
    struct own o;
    struct attn_report report;

    make_own(&o, 7, SEEN_ALL);
    numbers(&o, ATTN_H)[count(&o, ATTN_H) - 1] = (double)NAN;
    report = diagnose(&o.m.p, &o.c, NULL);
    cr_assert_str_eq(report.first_incorrect, "H");
    cr_assert(report.object[ATTN_H].differs);
    cr_assert(isnan(report.object[ATTN_H].observed));
    cr_assert(isnan(report.object[ATTN_H].local_error));
    cr_assert_eq(report.object[ATTN_H].at[1], o.m.p.d.T_q - 1);
    free_own(&o);
}

/* ---- two faults
 * ------------------------------------------------------------------------------- */

Test(attn_diagnose, two_faults_are_both_found)
{
    static const char *const PAIRS[][2] = {
        {"scale_missing", "wo_missing"},           {"qk_swapped", "weights_transposed"},
        {"scale_missing", "softmax_over_queries"}, {"causal_flipped", "wo_transposed"},
        {"wq_transposed", "mask_after_softmax"},
    };
    size_t missed = 0, made = 0;

    for (size_t n = 0; n < ATTN_COUNT(PAIRS); n++)
        for (uint64_t seed = 1; seed <= 6; seed++) {
            const struct attn_fault_row *a = attn_fault_find(PAIRS[n][0]);
            const struct attn_fault_row *b = attn_fault_find(PAIRS[n][1]);
            const struct attn_dims d =
                MAKE_DIMS(5, 5, 6, .B = 2, .d_k = 3, .d_v = 3, .h = 2, .h_kv = 2);
            struct made m;
            struct attn_candidate c;
            struct attn_report report;
            struct attn_err err = {0};
            struct ran r;

            make_plain(&m, seed, ATTN_F64, ATTN_SELF, d);
            m.p.scale = 1.0 / sqrt(3.0);
            make_mask(&m, "causal")->arg[0] =
                (struct attn_arg){.given = true, .number = ATTN_ALIGN_TOP_LEFT};
            make_prepare(&m);
            make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
            for (int s = 0; s < ATTN_STAGE_COUNT; s++) {
                const struct attn_swap *swap = attn_fault_swap(b)->stage[s]
                                                   ? attn_fault_swap(b)
                                                   : attn_fault_swap(a);
                const struct attn_swap any = {{[ATTN_STAGE_SOFTMAX] = attn_stage_softmax},
                                              NULL};
                const bool wrong = swap->stage[s] != NULL;
                const struct attn_run_ctx run = {.p = &m.p,
                                                 .plan = &r.plan,
                                                 .t = &r.trace,
                                                 .swap = wrong ? swap : &any,
                                                 .rows = {.b1 = d.B, .i1 = d.T_q}};

                cr_assert(wrong ? swap->stage[s](&run, (struct attn_piece){0}, &err)
                                : attn_stage_all(&run, (enum attn_stage)s, &err));
            }
            c = candidate_of(&r.trace, SEEN_ALL);
            report = diagnose(&m.p, &c, NULL);
            made++;
            if (!names(&report, a) || !names(&report, b)) {
                print(PAIRS[n][0], seed, &report);
                missed++;
            }
            make_run_free(&r);
            make_free(&m);
        }
    fprintf(stderr, "%zu pairs, %zu missed\n", made, missed);
    cr_assert_eq(missed, 0);
}
