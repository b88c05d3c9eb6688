/*
 * make_candidate.c - see make_candidate.h.
 * Not here: random problems (make_problem.c).
 * Start reading at diagnose.
 */
#include "make_candidate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- diagnoses ----------------------------------------------------------------------
 */

struct attn_candidate candidate_of(const struct attn_trace *t, uint32_t objects)
{
    struct attn_candidate c = {.precision = ATTN_FLOAT64};

    attn_tolerance(c.precision, &c.rtol, &c.atol);
    for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++)
        if ((objects & ATTN_BIT(o)) && t->t[o].p)
            c.object[o] = t->t[o];
    return c;
}

/* In exactly the bytes that attn_diagnose_bytes says, which must all be given back. */
struct attn_report diagnose(const struct attn_problem *p, const struct attn_candidate *c,
                            const struct attn_grad_ask *ask)
{
    struct attn_report report;
    struct attn_err err = {0};
    struct attn_arena arena = make_arena(attn_diagnose_bytes(p, ask));

    if (!attn_diagnose(p, c, ask, &arena, NULL, &report, &err)) {
        fprintf(stderr, "code %d at %s\n", (int)err.code, err.object);
        abort();
    }
    if (arena.used != 0)
        abort();
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

bool names(const struct attn_report *report, const struct attn_fault_row *fault)
{
    for (size_t n = 0; n < report->diagnoses; n++)
        if (report->diagnosis[n].fault == fault || has_constant(fault))
            return true;
    /* one number is no evidence for a constant */
    return has_constant(fault) && report->object[ATTN_Y].state == ATTN_STATE_WRONG_HERE;
}

void print(const char *what, uint64_t seed, const struct attn_report *report)
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

void round_tensor(enum attn_precision precision, struct attn_tensor *t)
{
    for (size_t n = 0; t->p && t->dtype == ATTN_F64 && n < attn_tensor_count(t); n++)
        ((double *)t->p)[n] = rounded(precision, ((double *)t->p)[n]);
}

/* ---- candidates to change ---- */

static const struct make_features FORM_FEATURES = {.rope = true,
                                                   .softcap = true,
                                                   .causal = true,
                                                   .padding = true,
                                                   .window = true,
                                                   .pairs = true,
                                                   .alibi = true};

void make_own(struct own *o, uint64_t seed, uint32_t objects)
{
    make_problem(&o->m, seed, ATTN_F64, 5, 0, &FORM_FEATURES);
    make_run_all(&o->m.p, ATTN_PATH_DENSE, NULL, &o->r);
    if (!o->r.ok)
        abort();
    o->c = candidate_of(&o->r.trace, objects);
    for (int n = 0; n < ATTN_OBJECT_COUNT; n++)
        if (o->c.object[n].p) {
            struct attn_tensor *t = &o->c.object[n];
            const size_t bytes = attn_tensor_count(t) * attn_dtype_bytes(t->dtype);

            t->p = memcpy(make_block(&o->m, bytes), t->p, bytes);
        }
}

void free_own(struct own *o)
{
    make_run_free(&o->r);
    make_free(&o->m);
}

double *numbers(struct own *o, enum attn_object object)
{
    return o->c.object[object].p;
}

size_t count(const struct own *o, enum attn_object object)
{
    return attn_tensor_count(&o->c.object[object]);
}
