/*
 * test_attn_diagnose_right.c - right layers raise no alarm: in every precision, in other
 * forms. Not here: faults (test_attn_diagnose.c). Start reading at honest, then
 * FORMS_MADE.
 */
#include "make_candidate.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- right layers
 * ---------------------------------------------------------------------- */

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
    make_run_all(&low, ATTN_PATH_DENSE, at_once ? &ROUND_ALL : NULL, &r);
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
