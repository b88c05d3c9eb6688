/*
 * test_attn_diagnose.c - candidates made by every fault, by right layers in other forms,
 * and by damage that no fault explains. Not here: the faults against the audit's own
 * checks (test_attn_fault.c). Start reading at diagnose, then the first Test.
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

static bool next_problem(const struct attn_fault_row *fault, uint64_t *seed,
                         struct made *m)
{
    for (; *seed < SEEDS; ++*seed) {
        make_problem(m, *seed, ATTN_F64, 2 + *seed % 5, *seed % 4 == 0 ? 1 : 0,
                     &MAKE_ALL);
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

/* ---- diagnoses ----------------------------------------------------------------------
 */

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
static struct attn_report diagnose(const struct attn_problem *p,
                                   const struct attn_candidate *c,
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
    static const char *const NAMES[] = {"scale_other",        "softcap_other",
                                        "rope_base_other",    "rope_query_offset",
                                        "window_other_width", "causal_other_offset",
                                        "finite_mask_value",  "bias_scaled",
                                        "weights_scaled",     "output_scaled"};

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
    /* one number is no evidence for a constant */
    return has_constant(fault) && report->object[ATTN_Y].state == ATTN_STATE_WRONG_HERE;
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
                    ATTN_STATE_NAMES[report->object[o].state],
                    report->object[o].local_error, report->object[o].global_error);
    fprintf(stderr, "\n");
}

/* ---- every fault ----------------------------------------------------------------------
 */

enum {
    SEEN_ALL = (1 << ATTN_Q) | (1 << ATTN_K) | (1 << ATTN_V) | (1 << ATTN_S) |
               (1 << ATTN_M) | (1 << ATTN_A) | (1 << ATTN_H) | (1 << ATTN_Y)
};

struct tally {
    size_t made, wrong_object, no_cause, unseen;
};

static void one(const struct attn_fault_row *fault, const struct made *m,
                uint32_t objects, const char *object, struct tally *tally)
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
        for (size_t shown = 0; shown < PROBLEMS && next_problem(fault, &seed, &m);
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

/* ---- right layers
 * ---------------------------------------------------------------------- */

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

#define ROUNDED(name, stage)                                                  \
    static bool name(const struct attn_run_ctx *run, struct attn_piece piece, \
                     struct attn_err *err)                                    \
    {                                                                         \
        (void)piece;                                                          \
        return round_stage(run, stage, err);                                  \
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

static const struct attn_swap ROUND_ALL = {{project_q, position_q, project_k, position_k,
                                            project_v, score, mask, softmax, mix, output},
                                           NULL};

/* A right layer in a precision: inputs rounded too, each object rounded as it is made, or
   all of them only when they are given back. */
static void honest(uint64_t seed, enum attn_precision precision, uint32_t objects,
                   bool at_once, size_t *alarms)
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
            honest(seed, (enum attn_precision)precision,
                   ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_Y), true, &alarms);
        }
    fprintf(stderr, "%zu alarms\n", alarms);
    cr_assert_eq(alarms, 0);
}

/* ---- other right forms
 * ------------------------------------------------------------------- */

static const struct make_features FORM_FEATURES = {.rope = true,
                                                   .softcap = true,
                                                   .causal = true,
                                                   .padding = true,
                                                   .window = true,
                                                   .pairs = true,
                                                   .alibi = true};

struct own { /* tensors of a candidate that a test may change */
    struct made m;
    struct ran r;
    struct attn_candidate c;
};

static void make_own(struct own *o, uint64_t seed, uint32_t objects)
{
    make_problem(&o->m, seed, ATTN_F64, 5, 0, &FORM_FEATURES);
    make_run(&o->m.p, make_everything(&o->m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL,
             NULL, &o->r);
    cr_assert(o->r.ok);
    o->c = candidate_of(&o->r.trace, objects);
    for (int n = 0; n < ATTN_OBJECT_COUNT; n++)
        if (o->c.object[n].p) {
            struct attn_tensor *t = &o->c.object[n];
            const size_t bytes = attn_tensor_count(t) * attn_dtype_bytes(t->dtype);

            t->p = memcpy(make_block(&o->m, bytes), t->p, bytes);
        }
}

static void free_own(struct own *o)
{
    make_run_free(&o->r);
    make_free(&o->m);
}

static double *numbers(struct own *o, enum attn_object object)
{
    return o->c.object[object].p;
}

static size_t count(const struct own *o, enum attn_object object)
{
    return attn_tensor_count(&o->c.object[object]);
}

static void scale_object(struct own *o, enum attn_object object, double by)
{
    for (size_t n = 0; n < count(o, object); n++)
        numbers(o, object)[n] *= by;
}

static bool form_scale_on_query(struct own *o)
{
    scale_object(o, ATTN_Q, o->m.p.scale);
    return o->m.p.score->bilinear;
}

static bool form_root_on_both(struct own *o)
{
    scale_object(o, ATTN_Q, sqrt(o->m.p.scale));
    scale_object(o, ATTN_K, sqrt(o->m.p.scale));
    return o->m.p.score->bilinear;
}

static bool form_factor_moved(struct own *o)
{
    scale_object(o, ATTN_Q, 3.0);
    scale_object(o, ATTN_K, 1.0 / 3.0);
    return o->m.p.score->bilinear;
}

/* Features of Q and K in the reverse order. */
static bool form_permuted(struct own *o)
{
    const size_t d = o->m.p.d.d_k;

    for (enum attn_object k = ATTN_Q; k <= ATTN_K; k++)
        for (size_t row = 0; row < count(o, k); row += d)
            for (size_t c = 0; c < d / 2; c++) {
                double *x = numbers(o, k) + row, keep = x[c];

                x[c] = x[d - 1 - c];
                x[d - 1 - c] = keep;
            }
    return true;
}

static bool form_masked_scores(struct own *o)
{
    for (size_t n = 0; n < count(o, ATTN_S); n++)
        numbers(o, ATTN_S)[n] += numbers(o, ATTN_M)[n];
    return true;
}

static bool form_filled_scores(struct own *o)
{
    for (size_t n = 0; n < count(o, ATTN_S); n++)
        if (numbers(o, ATTN_M)[n] == -INFINITY)
            numbers(o, ATTN_S)[n] = -1e9;
    return true;
}

static bool form_finite_fill(struct own *o)
{
    for (size_t n = 0; n < count(o, ATTN_M); n++)
        if (numbers(o, ATTN_M)[n] == -INFINITY)
            numbers(o, ATTN_M)[n] = -1e4;
    return true;
}

static bool form_row_constant(struct own *o)
{
    for (size_t n = 0; n < count(o, ATTN_M); n++)
        numbers(o, ATTN_M)[n] += (double)(n / o->m.p.d.T_kv) - 2.5;
    return true;
}

/* V times 2: H is doubled too, and W_O would be halved. */
static bool form_value_basis(struct own *o)
{
    scale_object(o, ATTN_V, 2.0);
    scale_object(o, ATTN_H, 2.0);
    for (size_t n = 0; n < count(o, ATTN_H); n++)
        if (numbers(o, ATTN_H)[n] != 0.0)
            return o->m.p.form.has_output;
    return false;
}

static const struct form_row {
    const char *name;
    bool (*change)(struct own *o);
} FORMS_MADE[] = {
    {"scale on query", form_scale_on_query}, {"root on both", form_root_on_both},
    {"factor moved", form_factor_moved},     {"permuted", form_permuted},
    {"masked scores", form_masked_scores},   {"filled scores", form_filled_scores},
    {"finite fill", form_finite_fill},       {"row constant", form_row_constant},
    {"value basis", form_value_basis},
};

Test(attn_diagnose, other_right_forms_are_accepted)
{
    size_t alarms = 0, made = 0;

    for (size_t n = 0; n < ATTN_COUNT(FORMS_MADE); n++)
        for (uint64_t seed = 1; seed <= 60; seed++) {
            struct own o;
            struct attn_report report;

            make_own(&o, seed, SEEN_ALL);
            if (FORMS_MADE[n].change(&o)) {
                report = diagnose(&o.m.p, &o.c, NULL);
                made++;
                if (report.verdict != ATTN_CORRECT) {
                    print(FORMS_MADE[n].name, seed, &report);
                    alarms++;
                }
            }
            free_own(&o);
        }
    fprintf(stderr, "%zu forms, %zu alarms\n", made, alarms);
    cr_assert_eq(alarms, 0);
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
            const struct attn_dims d = {.B = 2,
                                        .T_q = 5,
                                        .T_kv = 5,
                                        .d_model = 6,
                                        .d_model_kv = 6,
                                        .d_k = 3,
                                        .d_v = 3,
                                        .h = 2,
                                        .h_kv = 2};
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
            make_run(&m.p, make_everything(&m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL,
                     NULL, &r);
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
    make_run(&b->m.p, make_everything(&b->m.p, ATTN_PATH_DENSE), ATTN_PATH_DENSE, NULL,
             NULL, &b->r);
    cr_assert(b->r.ok);
    b->ask = (struct attn_grad_ask){.of = b->m.p.form.has_output ? ATTN_Y : ATTN_H};
    attn_object_full_shape(&b->m.p, b->ask.of, &b->ask.cotangent);
    b->ask.cotangent.p = cotangent =
        make_block(&b->m, attn_tensor_count(&b->ask.cotangent) * sizeof(double));
    for (size_t n = 0; n < attn_tensor_count(&b->ask.cotangent); n++)
        cotangent[n] = make_normal(&b->m);
    b->arena = (struct attn_arena){.size = attn_grad_bytes(&b->m.p, &b->ask)};
    if (posix_memalign((void **)&b->arena.base, 64, b->arena.size + 1) != 0)
        abort();
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
