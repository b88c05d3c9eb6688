/*
 * test_attn_diagnose.c - candidates made by every fault, by right layers in other forms, and by
 * damage that no fault explains.
 * Not here: the faults against the audit's own checks (test_attn_fault.c).
 * Start reading at diagnose, then the first Test.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 40000, PROBLEMS = 4 };

/* ---- problems that show a fault ---------------------------------------------------- */

static void fill(struct attn_tensor *t, double x)
{
    for (size_t n = 0; t->p && n < attn_tensor_count(t); n++)
        ((double *)t->p)[n] = x;
}

/* Faults of range need numbers of a size that random ones do not have. */
static void stretch(const char *fault, struct made *m)
{
    if (strcmp(fault, "softmax_overflow") == 0) {
        m->p.scale_stated = true;
        m->p.scale = 2000;
        m->p.softcap = 0;
    }
    if (strcmp(fault, "fp16_mask_overflow_nan") == 0) {
        fill(&m->p.in[ATTN_IN_Q], 7);
        fill(&m->p.in[ATTN_IN_K], -7);
        fill(&m->p.in[ATTN_IN_PAST_K], -7);
        m->p.softcap = 0;
    }
}

static bool next_problem(const struct attn_fault_row *fault, uint64_t *seed, struct made *m)
{
    for (; *seed < SEEDS; ++*seed) {
        make_problem(m, *seed, ATTN_F64, 2 + *seed % 5, *seed % 4 == 0 ? 1 : 0, &MAKE_ALL);
        stretch(attn_fault_name(fault), m);
        make_prepare(m);
        if (attn_fault_visible(fault, &m->p)) {
            ++*seed;
            return true;
        }
        make_free(m);
    }
    return false;
}

static bool is_forward(const struct attn_fault_row *fault)
{
    for (size_t s = 0; s < ATTN_STAGE_COUNT; s++)
        if (attn_fault_swap(fault)->stage[s])
            return true;
    return false;
}

/* ---- diagnoses ---------------------------------------------------------------------- */

static struct attn_candidate candidate_of(const struct attn_trace *t, uint32_t objects)
{
    struct attn_candidate c = {.precision = ATTN_FLOAT64};

    attn_tolerance(c.precision, &c.rtol, &c.atol);
    for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++)
        if ((objects & ATTN_BIT(o)) && t->t[o].p)
            c.object[o] = t->t[o];
    return c;
}

/* In exactly the bytes that attn_diagnose_bytes says, which must all be given back. */
static struct attn_report diagnose(const struct attn_problem *p, const struct attn_candidate *c,
                                   const struct attn_grad_ask *ask)
{
    struct attn_report report;
    struct attn_err err = {0};
    struct attn_arena arena = {.size = attn_diagnose_bytes(p, ask)};

    if (posix_memalign((void **)&arena.base, 64, arena.size) != 0)
        abort();
    memset(arena.base, 0xff, arena.size);
    cr_assert(attn_diagnose(p, c, ask, &arena, NULL, &report, &err), "code %d at %s",
              (int)err.code, err.object);
    cr_assert_eq(arena.used, 0);
    free(arena.base);
    return report;
}

/* Plain faults with the same numbers go before those with a constant. */
static bool has_constant(const struct attn_fault_row *fault)
{
    static const char *const NAMES[] = {"scale_other",         "softcap_other",
                                        "rope_base_other",     "rope_query_offset",
                                        "window_other_width",  "causal_other_offset",
                                        "finite_mask_value",   "bias_scaled",
                                        "weights_scaled",      "output_scaled"};

    for (size_t n = 0; n < ATTN_COUNT(NAMES); n++)
        if (strcmp(attn_fault_name(fault), NAMES[n]) == 0)
            return true;
    return false;
}

static bool names(const struct attn_report *report, const struct attn_fault_row *fault)
{
    for (size_t n = 0; n < report->diagnoses; n++)
        if (report->diagnosis[n].fault == fault || has_constant(fault))
            return true;
    return false;
}

static void print(const char *what, uint64_t seed, const struct attn_report *report)
{
    fprintf(stderr, "%s, seed %llu: %s, first %s;", what, (unsigned long long)seed,
            ATTN_VERDICT_NAMES[report->verdict],
            report->first_incorrect ? report->first_incorrect : "none");
    for (size_t n = 0; n < report->diagnoses; n++)
        fprintf(stderr, " %s", attn_fault_name(report->diagnosis[n].fault));
    fprintf(stderr, " |");
    for (size_t n = 0; n < report->forms; n++)
        fprintf(stderr, " %s", report->form[n]->name);
    fprintf(stderr, " |");
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (report->object[o].state != ATTN_STATE_NOT_GIVEN)
            fprintf(stderr, " %s:%s:%.1e:%.1e", ATTN_OBJECTS[o].name,
                    ATTN_STATE_NAMES[report->object[o].state], report->object[o].local_error,
                    report->object[o].global_error);
    fprintf(stderr, "\n");
}

/* ---- every fault ---------------------------------------------------------------------- */

enum { SEEN_ALL = (1 << ATTN_Q) | (1 << ATTN_K) | (1 << ATTN_V) | (1 << ATTN_S) | (1 << ATTN_M) |
                  (1 << ATTN_A) | (1 << ATTN_H) | (1 << ATTN_Y) };

struct tally {
    size_t made, wrong_object, no_cause, unseen;
};

static void one(const struct attn_fault_row *fault, const struct made *m, uint32_t objects,
                const char *object, struct tally *tally)
{
    struct ran r;
    struct attn_candidate c;
    struct attn_report report;

    make_run(&m->p, make_everything(&m->p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL,
             attn_fault_swap(fault), &r);
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

        if (!is_forward(fault))
            continue;
        for (size_t shown = 0; shown < PROBLEMS && next_problem(fault, &seed, &m); shown++) {
            one(fault, &m, objects, own_object ? attn_fault_object(fault) : NULL, &all);
            make_free(&m);
        }
    }
    fprintf(stderr, "%zu made, %zu with the wrong object, %zu without the cause, %zu not seen\n",
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
    const struct tally t = every_fault(ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_Y) | ATTN_BIT(ATTN_H), false);

    cr_assert_eq(t.no_cause, 0);
}

Test(attn_diagnose, every_fault_with_the_result_alone)
{
    const struct tally t = every_fault(ATTN_BIT(ATTN_Y), false);

    cr_assert_eq(t.no_cause, 0);
}

/* ---- right layers ---------------------------------------------------------------------- */

/* To the nearest number of 11 or 8 bits, or of float. */
static double rounded(enum attn_precision precision, double x)
{
    int exponent;
    double unit;

    if (precision == ATTN_FLOAT64 || x == 0.0 || !isfinite(x))
        return x;
    if (precision == ATTN_FLOAT32)
        return (double)(float)x;
    frexp(x, &exponent);
    if (precision == ATTN_FLOAT16 && exponent < -13)
        exponent = -13;
    unit = ldexp(1.0, exponent - (precision == ATTN_FLOAT16 ? 11 : 8));
    return rint(x / unit) * unit;
}

static void round_tensor(enum attn_precision precision, struct attn_tensor *t)
{
    for (size_t n = 0; t->p && t->dtype == ATTN_F64 && n < attn_tensor_count(t); n++)
        ((double *)t->p)[n] = rounded(precision, ((double *)t->p)[n]);
}

/* The right stages, each result rounded before the next reads it. */
static enum attn_precision rounding;

static bool round_stage(const struct attn_run_ctx *run, enum attn_stage stage,
                        struct attn_err *err)
{
    static const enum attn_object made[][3] = {
        [ATTN_STAGE_PROJECT_Q] = {ATTN_Q_PRE, ATTN_Q, ATTN_Q},
        [ATTN_STAGE_POSITION_Q] = {ATTN_Q, ATTN_Q, ATTN_Q},
        [ATTN_STAGE_PROJECT_K] = {ATTN_K_PRE, ATTN_K, ATTN_K},
        [ATTN_STAGE_POSITION_K] = {ATTN_K, ATTN_K, ATTN_K},
        [ATTN_STAGE_PROJECT_V] = {ATTN_V, ATTN_V, ATTN_V},
        [ATTN_STAGE_SCORE] = {ATTN_S_RAW, ATTN_S, ATTN_S},
        [ATTN_STAGE_MASK] = {ATTN_M, ATTN_M, ATTN_M},
        [ATTN_STAGE_SOFTMAX] = {ATTN_S_MASKED, ATTN_A, ATTN_LSE},
        [ATTN_STAGE_MIX] = {ATTN_H, ATTN_H_HEADS, ATTN_CONTRIBUTIONS},
        [ATTN_STAGE_OUTPUT] = {ATTN_Y, ATTN_Y, ATTN_Y},
    };

    if (!attn_stage_all(run, stage, err))
        return false;
    for (int n = 0; n < 3; n++)
        round_tensor(rounding, &run->t->t[made[stage][n]]);
    return true;
}

#define ROUNDED(name, stage)                                                                   \
    static bool name(const struct attn_run_ctx *run, struct attn_piece piece,                  \
                     struct attn_err *err)                                                     \
    {                                                                                          \
        (void)piece;                                                                           \
        return round_stage(run, stage, err);                                                   \
    }
ROUNDED(project_q, ATTN_STAGE_PROJECT_Q)
ROUNDED(position_q, ATTN_STAGE_POSITION_Q)
ROUNDED(project_k, ATTN_STAGE_PROJECT_K)
ROUNDED(position_k, ATTN_STAGE_POSITION_K)
ROUNDED(project_v, ATTN_STAGE_PROJECT_V)
ROUNDED(score, ATTN_STAGE_SCORE)
ROUNDED(mask, ATTN_STAGE_MASK)
ROUNDED(softmax, ATTN_STAGE_SOFTMAX)
ROUNDED(mix, ATTN_STAGE_MIX)
ROUNDED(output, ATTN_STAGE_OUTPUT)

static const struct attn_swap ROUND_ALL = {
    {project_q, position_q, project_k, position_k, project_v, score, mask, softmax, mix, output},
    NULL};

/* A right layer in a precision: inputs rounded too, each object rounded as it is made, or all of
   them only when they are given back. */
static void honest(uint64_t seed, enum attn_precision precision, uint32_t objects, bool at_once,
                   size_t *alarms)
{
    struct made m;
    struct ran r;
    struct attn_problem low;
    struct attn_candidate c;
    struct attn_report report;

    make_problem(&m, seed, ATTN_F64, 2 + seed % 9, 0, &MAKE_ALL);
    low = m.p;
    for (int n = 0; n < ATTN_INPUT_COUNT; n++)
        if (low.in[n].p) {
            const size_t bytes = attn_tensor_count(&low.in[n]) * sizeof(double);

            low.in[n].p = memcpy(make_block(&m, bytes), low.in[n].p, bytes);
            round_tensor(precision, &low.in[n]);
        }
    rounding = precision;
    make_run(&low, make_everything(&low, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL,
             at_once ? &ROUND_ALL : NULL, &r);
    cr_assert(r.ok);
    for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++)
        round_tensor(precision, &r.trace.t[o]);
    c = candidate_of(&r.trace, objects);
    c.precision = precision;
    attn_tolerance(precision, &c.rtol, &c.atol);
    report = diagnose(&m.p, &c, NULL);
    if (report.verdict == ATTN_INCORRECT) {
        print(ATTN_PRECISION_NAMES[precision], seed, &report);
        ++*alarms;
    }
    make_run_free(&r);
    make_free(&m);
}

Test(attn_diagnose, no_alarm_on_honest_rounding)
{
    const char *more = getenv("DIAGNOSE_SEEDS");
    const uint64_t seeds = more ? strtoull(more, NULL, 10) : 150;
    size_t alarms = 0;

    for (uint64_t seed = 1; seed <= seeds; seed++)
        for (int precision = 0; precision < ATTN_PRECISION_COUNT; precision++) {
            const uint32_t some = (uint32_t)(seed * UINT64_C(0x9e3779b97f4a7c15) >> 20);

            honest(seed, (enum attn_precision)precision, ~UINT32_C(0), true, &alarms);
            honest(seed, (enum attn_precision)precision, some, true, &alarms);
            honest(seed, (enum attn_precision)precision, some, false, &alarms);
            honest(seed, (enum attn_precision)precision, ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_Y), true,
                   &alarms);
        }
    fprintf(stderr, "%zu alarms\n", alarms);
    cr_assert_eq(alarms, 0);
}
