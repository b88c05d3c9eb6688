/*
 * test_attn_kernel_exp.c - exp, the softmax's weights, tanh and entropy: ulp, and ends.
 * Not here: rows (test_attn_kernel.c).
 * Start reading at exp_is_accurate.
 */
#include "core/attn_core.h"
#include "make_row.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>

/* Measured over millions of places: 0.86 and 0.93 for exp, 2.5 for tanh. */
static const double EXP_ULP[] = {[ATTN_F64] = 0.9, [ATTN_F32] = 0.95};
static const double TANH_ULP = 3.0;
static const double ENTROPY_ULP = 3.0;
static const double WEIGHT_ULP = 1.1; /* of exp in the softmax, which rounds once more */

/* Distance in units of the last place of the dtype at `want`. */
static double ulps(enum attn_dtype dtype, double got, long double want)
{
    const int digits = dtype == ATTN_F64 ? DBL_MANT_DIG : FLT_MANT_DIG;
    const int least = dtype == ATTN_F64 ? DBL_MIN_EXP : FLT_MIN_EXP;
    int e;

    frexpl(want, &e);
    return (double)fabsl(
        ldexpl((long double)got - want, digits - (e < least ? least : e)));
}

typedef void unary_fn(size_t n, const void *x, void *y);

static double one(enum attn_dtype dtype, unary_fn *fn, double x)
{
    const struct attn_kernel *kernel = attn_kernel_of(dtype);
    double room = 0;

    kernel->set(&room, 0, x);
    fn(1, &room, &room);
    return kernel->get(&room, 0);
}

static double worst_exp(enum attn_dtype dtype, double low, double high, size_t steps)
{
    const struct attn_kernel *kernel = attn_kernel_of(dtype);
    double worst = 0, at = 0;

    for (size_t n = 0; n <= steps; n++) {
        const double raw = low + (high - low) * (double)n / (double)steps;
        const double x = dtype == ATTN_F64 ? raw : (double)(float)raw;
        const double off = ulps(dtype, one(dtype, kernel->exp, x), expl((long double)x));

        if (!(off <= worst)) {
            worst = off;
            at = x;
        }
    }
    if (worst > EXP_ULP[dtype])
        fprintf(stderr, "exp(%.17g) is off by %g ulp\n", at, worst);
    return worst;
}

Test(attn_kernel_exp, exp_is_accurate)
{
    cr_assert_leq(worst_exp(ATTN_F64, -745.1, 709.78, 300000), EXP_ULP[ATTN_F64]);
    cr_assert_leq(worst_exp(ATTN_F64, -1, 1, 200000), EXP_ULP[ATTN_F64]);
    cr_assert_leq(worst_exp(ATTN_F64, -1e-7, 1e-7, 1000), EXP_ULP[ATTN_F64]);
    cr_assert_leq(worst_exp(ATTN_F32, -103.9, 88.72, 300000), EXP_ULP[ATTN_F32]);
    cr_assert_leq(worst_exp(ATTN_F32, -1, 1, 200000), EXP_ULP[ATTN_F32]);
}

/* exp as the softmax has it, of x <= 0. */
static double weight(const struct attn_kernel *kernel, double x, int halvings)
{
    struct attn_online o = {.max = 0, .sum = 1, .halvings = halvings};
    double room = 0;

    kernel->set(&room, 0, x);
    kernel->online_row(1, &room, NULL, NULL, &o, &room);
    return kernel->get(&room, 0);
}

static double worst_weight(enum attn_dtype dtype, double low, size_t steps, int halvings)
{
    const struct attn_kernel *kernel = attn_kernel_of(dtype);
    double worst = 0;

    for (size_t n = 0; n <= steps; n++) {
        const double raw = low * (double)n / (double)steps;
        const double x = dtype == ATTN_F64 ? raw : (double)(float)raw;
        const double off = ulps(dtype, weight(kernel, x, halvings),
                                ldexpl(expl((long double)x), -halvings));

        worst = off > worst || isnan(off) ? off : worst;
    }
    return worst;
}

Test(attn_kernel_exp, weights_are_accurate)
{
    for (int halvings = 0; halvings <= 12; halvings += 6) {
        cr_assert_leq(worst_weight(ATTN_F64, -745.1, 100000, halvings), WEIGHT_ULP);
        cr_assert_leq(worst_weight(ATTN_F64, -1, 100000, halvings), WEIGHT_ULP);
        cr_assert_leq(worst_weight(ATTN_F32, -103.9, 200000, halvings), WEIGHT_ULP);
        cr_assert_leq(worst_weight(ATTN_F32, -1, 200000, halvings), WEIGHT_ULP);
    }
}

Test(attn_kernel_exp, weights_at_their_ends)
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++) {
        const struct attn_kernel *kernel = attn_kernel_of((enum attn_dtype)dtype);

        cr_assert_eq(weight(kernel, 0, 3), 0.125);
        cr_assert_eq(weight(kernel, -0.0, 0), 1);
        cr_assert_eq(weight(kernel, -746, 0), 0);
        cr_assert_eq(weight(kernel, -1e30, 11), 0);
        cr_assert_eq(weight(kernel, -INFINITY, 0), 0);
        cr_assert_not(signbit(weight(kernel, -INFINITY, 0)));
        cr_assert(isnan(weight(kernel, NAN, 0)));
    }
    cr_assert_gt(weight(attn_kernel_of(ATTN_F64), -745.13, 0), 0);
    cr_assert_gt(weight(attn_kernel_of(ATTN_F32), -103.27, 0), 0);
}

Test(attn_kernel_exp, exp_at_its_ends)
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++) {
        unary_fn *fn = attn_kernel_of((enum attn_dtype)dtype)->exp;

        cr_assert_eq(one((enum attn_dtype)dtype, fn, 0), 1);
        cr_assert_eq(one((enum attn_dtype)dtype, fn, -0.0), 1);
        cr_assert_eq(one((enum attn_dtype)dtype, fn, -746), 0);
        cr_assert_eq(one((enum attn_dtype)dtype, fn, -1e30), 0);
        cr_assert_eq(one((enum attn_dtype)dtype, fn, -INFINITY), 0);
        cr_assert_not(signbit(one((enum attn_dtype)dtype, fn, -INFINITY)));
        cr_assert_eq(one((enum attn_dtype)dtype, fn, 1e30), INFINITY);
        cr_assert_eq(one((enum attn_dtype)dtype, fn, INFINITY), INFINITY);
        cr_assert(isnan(one((enum attn_dtype)dtype, fn, NAN)));
    }
    cr_assert_gt(one(ATTN_F64, attn_kernel_of(ATTN_F64)->exp, -745.13), 0);
    cr_assert_gt(one(ATTN_F32, attn_kernel_of(ATTN_F32)->exp, -103.27), 0);
    cr_assert_eq(one(ATTN_F64, attn_kernel_of(ATTN_F64)->exp, 709.79), INFINITY);
    cr_assert_eq(one(ATTN_F32, attn_kernel_of(ATTN_F32)->exp, 88.73), INFINITY);
}

static double worst_tanh(enum attn_dtype dtype, double high)
{
    const struct attn_kernel *kernel = attn_kernel_of(dtype);
    double worst = 0;

    for (int n = -100000; n <= 100000; n++) {
        const double raw = high * n / 100000;
        const double x = dtype == ATTN_F64 ? raw : (double)(float)raw;
        const double off =
            ulps(dtype, one(dtype, kernel->tanh, x), tanhl((long double)x));

        worst = off > worst || isnan(off) ? off : worst;
    }
    return worst;
}

static double worst_entropy(const struct attn_kernel *kernel, double low, double high)
{
    double worst = 0;

    for (int n = 0; n <= 100000; n++) {
        const double a = low * pow(high / low, n / 1e5);
        const long double want = -(long double)a * logl((long double)a);
        double got, off;

        cr_assert(kernel->entropy(1, &a, &got));
        off = a == 1 ? fabs(got) : ulps(ATTN_F64, got, want);
        worst = off > worst || isnan(off) ? off : worst;
    }
    return worst;
}

Test(attn_kernel_exp, entropy_is_accurate)
{
    for (size_t n = 0; n < attn_kernel_widths(); n++) {
        const struct attn_kernel *kernel = attn_kernel_width(ATTN_F64, n);

        if (kernel == NULL)
            continue;
        cr_expect_leq(worst_entropy(kernel, 1e-290, 1), ENTROPY_ULP);
        cr_expect_leq(worst_entropy(kernel, 0.5, 2), ENTROPY_ULP);
        cr_expect_leq(worst_entropy(kernel, 0.9999, 1.0001), ENTROPY_ULP);
        cr_expect_leq(worst_entropy(kernel, 1, 1e300), ENTROPY_ULP);
    }
}

Test(attn_kernel_exp, entropy_of_zeros_and_of_what_is_no_weight)
{
    static const double ODD[] = {-0.5, NAN, INFINITY, -INFINITY, DBL_MIN / 2};

    for (size_t n = 0; n < attn_kernel_widths(); n++) {
        const struct attn_kernel *kernel = attn_kernel_width(ATTN_F64, n);
        double a[ROW_KEYS] = {[3] = 0.25, [ROW_KEYS - 1] = 0.75}, entropy;

        if (kernel == NULL)
            continue;
        cr_assert(kernel->entropy(ROW_KEYS, a, &entropy));
        cr_expect_float_eq(entropy, -0.25 * log(0.25) - 0.75 * log(0.75), 1e-15);
        for (size_t k = 0; k < sizeof ODD / sizeof ODD[0]; k++)
            for (size_t j = 0; j < ROW_KEYS; j++) {
                const double before = a[j];

                a[j] = ODD[k];
                cr_expect_not(kernel->entropy(ROW_KEYS, a, &entropy));
                a[j] = before;
            }
    }
}

Test(attn_kernel_exp, tanh_is_accurate)
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++) {
        unary_fn *fn = attn_kernel_of((enum attn_dtype)dtype)->tanh;

        cr_assert_leq(worst_tanh((enum attn_dtype)dtype, 25), TANH_ULP);
        cr_assert_leq(worst_tanh((enum attn_dtype)dtype, 1), TANH_ULP);
        cr_assert_leq(worst_tanh((enum attn_dtype)dtype, 1e-5), TANH_ULP);
        cr_assert_eq(one((enum attn_dtype)dtype, fn, INFINITY), 1);
        cr_assert_eq(one((enum attn_dtype)dtype, fn, -INFINITY), -1);
        cr_assert(signbit(one((enum attn_dtype)dtype, fn, -0.0)));
        cr_assert(isnan(one((enum attn_dtype)dtype, fn, NAN)));
    }
}
