/*
 * test_attn_judge.c - what judges: against worked numbers, and against an independent
 * reference in long double on random problems.
 * Not here: what the audit makes of it (test_attn_audit.c).
 * Start reading at rows_are_those_of_the_reference.
 */
#include "core/attn_judge.h"
#include "make_problem.h"
#include "ref_forward.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { WIDE = 64 };

/* ---- worked numbers: Q = I, K = [[0,1],[1,0]], V = [[1,2],[3,4]] ------------------- */

static double q2[] = {1, 0, 0, 1}, k2[] = {0, 1, 1, 0}, v2[] = {1, 2, 3, 4};

static struct attn_tensor square(double *p)
{
    return (struct attn_tensor){
        .dtype = ATTN_F64, .rank = 4, .dim = {1, 1, 2, 2}, .p = p};
}

static struct attn_problem tiny(double scale)
{
    struct attn_problem p = {
        .dtype = ATTN_F64,
        .d = {.B = 1, .T_q = 2, .T_kv = 2, .d_k = 2, .d_v = 2, .h = 1, .h_kv = 1},
        .form = {.source = ATTN_PROJECTED},
        .score = attn_score_find("dot_product"),
        .scale = scale,
        .temperature = 1,
        .scale_stated = true,
    };

    p.in[ATTN_IN_Q] = square(q2);
    p.in[ATTN_IN_K] = square(k2);
    p.in[ATTN_IN_V] = square(v2);
    return p;
}

struct judged_row {
    struct attn_judged a[2], h[2], lse;
};

static struct judged_row first_row(const struct attn_problem *p)
{
    struct attn_trace t = {0};
    double scratch[ATTN_JUDGE_SCRATCH(2)], logit[2];
    uint8_t allow[2];
    struct attn_logits row = {.logit = logit, .allow = allow};
    struct judged_row out;

    t.t[ATTN_Q] = square(q2);
    t.t[ATTN_K] = square(k2);
    t.t[ATTN_V] = square(v2);
    attn_judge_logits(p, &t, 0, 0, 0, scratch, &row);
    out.lse = attn_judge_weights(p, 0, &row, out.a);
    attn_judge_mix(p, &t, 0, 0, out.a, out.h);
    return out;
}

Test(attn_judge, worked_rows)
{
    const struct attn_problem one = tiny(1), root = tiny(1 / sqrt(2));
    const struct judged_row r = first_row(&one), s = first_row(&root);

    cr_assert_float_eq(r.a[0].value, .268941, 1e-6);
    cr_assert_float_eq(r.a[1].value, .731059, 1e-6);
    cr_assert_float_eq(r.h[0].value, 2.462117, 1e-6);
    cr_assert_float_eq(r.h[1].value, 3.462117, 1e-6);
    cr_assert_float_eq(r.lse.value, log(1 + exp(1)), 1e-14);
    cr_assert_float_eq(s.a[0].value, .330238, 1e-6);
    cr_assert_float_eq(s.h[1].value, 3.339523, 1e-6);
}

/* exp(ln 3) = 3 in the denominator beside 1 and e. */
Test(attn_judge, a_sink_takes_its_share)
{
    double sink = log(3);
    struct attn_problem p = tiny(1);
    struct judged_row r;

    p.in[ATTN_IN_SINK] =
        (struct attn_tensor){.dtype = ATTN_F64, .rank = 1, .dim = {1}, .p = &sink};
    r = first_row(&p);
    cr_assert_float_eq(r.a[0].value, 1 / (4 + exp(1)), 1e-14);
    cr_assert_float_eq(r.a[1].value, exp(1) / (4 + exp(1)), 1e-14);
}

Test(attn_judge, rows_without_a_key_are_what_was_asked)
{
    static const double minus[] = {-INFINITY, -INFINITY, 0, 0};
    struct attn_problem p = tiny(1);

    p.additive = (struct attn_table){.elem = ATTN_ELEM_F64, .p = minus, .stride_i = 2};
    p.empty_rows = ATTN_EMPTY_ZERO;
    cr_assert_eq(first_row(&p).a[1].value, 0);
    cr_assert_eq(first_row(&p).lse.value, -INFINITY);
    p.empty_rows = ATTN_EMPTY_NAN;
    cr_assert(isnan(first_row(&p).a[1].value));
    p.empty_rows = ATTN_EMPTY_UNIFORM;
    cr_assert_float_eq(first_row(&p).a[1].value, .5, 1e-15);
    cr_assert_float_eq(first_row(&p).h[0].value, 2, 1e-14);
}

Test(attn_judge, near_is_never_true_of_what_is_not_finite)
{
    const struct attn_judged any = {1, INFINITY}, nan = {NAN, 1}, one = {1, 1e-3};

    cr_assert_not(attn_judge_near(INFINITY, any));
    cr_assert_not(attn_judge_near(NAN, any));
    cr_assert_not(attn_judge_near(1, nan));
    cr_assert(attn_judge_near(1.0009, one));
    cr_assert_not(attn_judge_near(1.0011, one));
}

/* ---- random problems --------------------------------------------------------------- */

/* The judge may be off by its own rounding in float64, which its bound must cover. */
static bool same(const struct ref_layer *ref, enum attn_object o, size_t place,
                 const struct attn_judged *got, size_t n)
{
    for (size_t c = 0; c < n; c++) {
        const double want = (double)ref->t[o][place + c];

        if (fabs(want - got[c].value) <= got[c].error || want == got[c].value)
            continue;
        fprintf(stderr, "%s at %zu: %.17g, judged %.17g with %.3g\n",
                ATTN_OBJECTS[o].name, place + c, want, got[c].value, got[c].error);
        return false;
    }
    return true;
}

static bool projections_are_right(const struct attn_problem *p,
                                  const struct ref_layer *ref)
{
    const struct attn_dims *d = &p->d;
    struct attn_judged out[WIDE];
    bool right = true;

    for (size_t n = 0; right && n < d->B * d->h * d->T_q; n++) {
        attn_judge_q(p, n / d->T_q / d->h, n / d->T_q % d->h, n % d->T_q, true, out);
        right = same(ref, ATTN_Q, n * d->d_k, out, d->d_k);
    }
    for (size_t n = 0; right && n < d->B * d->h_kv * d->T_kv; n++) {
        const size_t b = n / d->T_kv / d->h_kv, g = n / d->T_kv % d->h_kv,
                     j = n % d->T_kv;

        attn_judge_k(p, b, g, j, true, out);
        right = same(ref, ATTN_K, n * d->d_k, out, d->d_k);
        attn_judge_k(p, b, g, j, false, out);
        right = right && same(ref, ATTN_K_PRE, n * d->d_k, out, d->d_k);
        attn_judge_v(p, b, g, j, out);
        right = right && same(ref, ATTN_V, n * d->d_v, out, d->d_v);
    }
    return right;
}

Test(attn_judge, rows_are_those_of_the_reference)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct made m;
        struct ref_layer ref;

        make_problem(&m, seed, seed % 2 ? ATTN_F64 : ATTN_F32, 12, 0, &MAKE_ALL);
        ref_forward(&m.p, &ref);
        cr_assert(projections_are_right(&m.p, &ref), "seed %llu",
                  (unsigned long long)seed);
        ref_free(&ref);
        make_free(&m);
    }
}
