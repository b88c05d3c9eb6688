/*
 * test_attn_kernel.c - the inner loops: accuracy of exp and tanh in ulp, exact zeros,
 * rows of scores, and the same bits for every vector width that fuses alike. Not here:
 * stages (test_attn_softmax.c, test_attn_mix.c). Start reading at exp_is_accurate.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Measured over millions of places: 0.86 and 0.93 for exp, 2.5 for tanh. */
static const double EXP_ULP[] = {[ATTN_F64] = 0.9, [ATTN_F32] = 0.95};
static const double TANH_ULP = 3.0;
static const double ENTROPY_ULP = 3.0;
static const double WEIGHT_ULP = 1.1; /* of exp in the softmax, which rounds once more */

enum { MANY = 37 }; /* more than two registers of any width, and a rest */

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

Test(attn_kernel, exp_is_accurate)
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

Test(attn_kernel, weights_are_accurate)
{
    for (int halvings = 0; halvings <= 12; halvings += 6) {
        cr_assert_leq(worst_weight(ATTN_F64, -745.1, 100000, halvings), WEIGHT_ULP);
        cr_assert_leq(worst_weight(ATTN_F64, -1, 100000, halvings), WEIGHT_ULP);
        cr_assert_leq(worst_weight(ATTN_F32, -103.9, 200000, halvings), WEIGHT_ULP);
        cr_assert_leq(worst_weight(ATTN_F32, -1, 200000, halvings), WEIGHT_ULP);
    }
}

Test(attn_kernel, weights_at_their_ends)
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

Test(attn_kernel, exp_at_its_ends)
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

Test(attn_kernel, entropy_is_accurate)
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

Test(attn_kernel, entropy_of_zeros_and_of_what_is_no_weight)
{
    static const double ODD[] = {-0.5, NAN, INFINITY, -INFINITY, DBL_MIN / 2};

    for (size_t n = 0; n < attn_kernel_widths(); n++) {
        const struct attn_kernel *kernel = attn_kernel_width(ATTN_F64, n);
        double a[MANY] = {[3] = 0.25, [MANY - 1] = 0.75}, entropy;

        if (kernel == NULL)
            continue;
        cr_assert(kernel->entropy(MANY, a, &entropy));
        cr_expect_float_eq(entropy, -0.25 * log(0.25) - 0.75 * log(0.75), 1e-15);
        for (size_t k = 0; k < sizeof ODD / sizeof ODD[0]; k++)
            for (size_t j = 0; j < MANY; j++) {
                const double before = a[j];

                a[j] = ODD[k];
                cr_expect_not(kernel->entropy(MANY, a, &entropy));
                a[j] = before;
            }
    }
}

Test(attn_kernel, tanh_is_accurate)
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

/* ---- rows ---- */

struct row {
    double s[MANY], m[MANY], a[MANY];
    uint8_t allow[MANY];
};

static struct row random_row(struct made *m, size_t allowed_of_4)
{
    struct row r;

    for (size_t j = 0; j < MANY; j++) {
        r.s[j] = 3 * make_normal(m);
        r.m[j] = make_normal(m);
        r.allow[j] = make_below(m, 4) < allowed_of_4;
    }
    r.allow[make_below(m, MANY)] = 1;
    return r;
}

/* a, in long double, and the log of the sum. */
static long double slow_softmax(const struct row *r, size_t n, const double *sink,
                                long double *a)
{
    long double max = sink ? (long double)*sink : -(long double)INFINITY, sum;

    for (size_t j = 0; j < n; j++)
        if (r->allow[j])
            max = fmaxl(max, (long double)r->s[j] + (long double)r->m[j]);
    sum = sink ? expl((long double)*sink - max) : 0;
    for (size_t j = 0; j < n; j++) {
        a[j] = r->allow[j] ? expl((long double)r->s[j] + (long double)r->m[j] - max) : 0;
        sum += a[j];
    }
    for (size_t j = 0; j < n; j++)
        a[j] /= sum;
    return max + logl(sum);
}

Test(attn_kernel, softmax_row_is_right)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    struct made random = {.state = 5};
    const double sinks[] = {-3, 0, 40};

    for (size_t n = 1; n <= MANY; n++)
        for (size_t k = 0; k <= ATTN_COUNT(sinks); k++) {
            const double *sink = k < ATTN_COUNT(sinks) ? &sinks[k] : NULL;
            struct row r = random_row(&random, 3);
            long double want[MANY];

            r.allow[0] = 1;

            const long double lse = slow_softmax(&r, n, sink, want);
            const struct attn_softmax_out out =
                kernel->softmax_row(n, r.s, r.m, r.allow, sink, r.a);

            cr_assert_not(out.empty);
            cr_assert_float_eq(out.lse, (double)lse, 1e-14 * fmax(1, fabs((double)lse)));
            for (size_t j = 0; j < n; j++) {
                cr_assert(fabsl((long double)r.a[j] - want[j]) <= 1e-15L, "n %zu j %zu",
                          n, j);
                cr_assert(r.allow[j] || r.a[j] == 0);
            }
        }
}

Test(attn_kernel, scores_may_be_far_from_zero)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    const double far[] = {1e4, -1e4, 1e300, -1e300};

    for (size_t k = 0; k < ATTN_COUNT(far); k++) {
        double s[] = {far[k], far[k], far[k] - fabs(far[k])};

        kernel->softmax_row(3, s, NULL, NULL, NULL, s);
        cr_assert_eq(s[0], 0.5);
        cr_assert_eq(s[1], 0.5);
        cr_assert_eq(s[2], 0);
    }
}

Test(attn_kernel, what_stands_at_forbidden_keys_is_ignored)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    const double wrong[] = {NAN, INFINITY, -INFINITY, 1e308};
    struct made random = {.state = 6};

    for (size_t k = 0; k < ATTN_COUNT(wrong); k++) {
        struct row r = random_row(&random, 2), other = r;

        for (size_t j = 0; j < MANY; j++)
            if (!r.allow[j])
                other.s[j] = wrong[k];
        kernel->softmax_row(MANY, r.s, r.m, r.allow, NULL, r.a);
        kernel->softmax_row(MANY, other.s, other.m, other.allow, NULL, other.a);
        cr_assert_arr_eq(r.a, other.a, sizeof r.a);
    }
}

Test(attn_kernel, overflow_is_nan_and_only_where_allowed)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    const uint8_t allow[] = {1, 0, 1};
    const double rows[][3] = {{INFINITY, 0, 1}, {NAN, 0, 1}, {-INFINITY, 0, -INFINITY}};
    double a[3];

    for (size_t r = 0; r < ATTN_COUNT(rows); r++) {
        const struct attn_softmax_out out =
            kernel->softmax_row(3, rows[r], NULL, allow, NULL, a);

        cr_assert_not(out.empty);
        cr_assert(isnan(a[0]));
        cr_assert_eq(a[1], 0);
        cr_assert(isnan(a[2]));
    }
    kernel->softmax_row(3, (double[]){-INFINITY, 5, 1}, NULL, allow, NULL, a);
    cr_assert_eq(a[0], 0);
    cr_assert_eq(a[2], 1);
}

Test(attn_kernel, row_without_keys_is_empty_with_a_sink_too)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    const uint8_t allow[] = {0, 0, 0};
    const double s[] = {1, 2, 3}, sink = 4;
    double a[] = {7, 7, 7};

    for (int with = 0; with < 2; with++) {
        const struct attn_softmax_out out =
            kernel->softmax_row(3, s, NULL, allow, with ? &sink : NULL, a);

        cr_assert(out.empty);
        cr_assert_eq(out.lse, -INFINITY);
        cr_assert_eq(a[0] + a[1] + a[2], 0);
    }
}

/* A row cut anywhere, its weights put on one scale at the end, is the row in one piece.
 */
Test(attn_kernel, online_rows_add_up)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    struct made random = {.state = 8};

    for (size_t cut = 0; cut <= MANY; cut++) {
        struct row r = random_row(&random, 2);
        struct attn_online o = {.max = -INFINITY};
        double whole[MANY];

        kernel->softmax_row(MANY, r.s, r.m, r.allow, NULL, whole);
        kernel->online_row(cut, r.s, r.m, r.allow, &o, r.a);

        const double factor = kernel->online_row(MANY - cut, r.s + cut, r.m + cut,
                                                 r.allow + cut, &o, r.a + cut);

        for (size_t j = 0; j < MANY; j++)
            cr_assert_float_eq(r.a[j] * (j < cut ? factor : 1) / o.sum, whole[j], 1e-15);
    }
}

Test(attn_kernel, masked_is_the_sum_or_minus_infinity)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    struct made random = {.state = 9};
    const struct row r = random_row(&random, 2);
    double y[MANY];

    kernel->masked(MANY, r.s, r.m, r.allow, y);
    for (size_t j = 0; j < MANY; j++)
        cr_assert_eq(y[j], r.allow[j] ? r.s[j] + r.m[j] : -INFINITY);
    kernel->masked(MANY, NULL, NULL, r.allow, y);
    for (size_t j = 0; j < MANY; j++)
        cr_assert_eq(y[j], r.allow[j] ? 0 : -INFINITY);
    kernel->masked(MANY, NULL, r.m, NULL, y);
    cr_assert_arr_eq(y, r.m, sizeof y);
}

Test(attn_kernel, scale_and_softcap)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    struct made random = {.state = 10};
    const struct row r = random_row(&random, 4);
    double y[MANY];

    kernel->scale_cap(MANY, r.s, 0.25, 0, y);
    for (size_t j = 0; j < MANY; j++)
        cr_assert_eq(y[j], r.s[j] * 0.25);
    kernel->scale_cap(MANY, r.s, 0.25, 1.5, y);
    for (size_t j = 0; j < MANY; j++)
        cr_assert_float_eq(y[j], 1.5 * tanh(r.s[j] * 0.25 / 1.5), 1e-15);
}

Test(attn_kernel, all_finite_finds_one_anywhere)
{
    const double wrong[] = {NAN, INFINITY, -INFINITY};

    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++) {
        const struct attn_kernel *kernel = attn_kernel_of((enum attn_dtype)dtype);
        double x[MANY];

        kernel->fill(MANY, dtype == ATTN_F64 ? DBL_MAX : (double)FLT_MAX, x);
        for (size_t n = 1; n <= MANY; n++)
            cr_assert(kernel->all_finite(n, x));
        for (size_t k = 0; k < ATTN_COUNT(wrong); k++)
            for (size_t j = 0; j < MANY; j++) {
                kernel->fill(MANY, 0, x);
                kernel->set(x, j, wrong[k]);
                cr_assert_not(kernel->all_finite(MANY, x));
                cr_assert(kernel->all_finite(j, x));
            }
    }
}

Test(attn_kernel, small_loops)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    double x[MANY], y[MANY], z[MANY], dot = 0;
    float f[MANY];

    for (size_t n = 0; n < MANY; n++) {
        x[n] = (double)n - 5;
        y[n] = z[n] = 3 * (double)n;
        dot += x[n] * y[n];
    }
    cr_assert_eq(kernel->dot(MANY, x, y), dot,
                 "small whole numbers are exact in any order");
    kernel->axpy(MANY, 2, x, y);
    for (size_t n = 0; n < MANY; n++)
        cr_assert_eq(y[n], z[n] + 2 * x[n]);
    attn_kernel_of(ATTN_F32)->from_double(MANY, x, f);
    attn_kernel_of(ATTN_F32)->to_double(MANY, f, y);
    cr_assert_arr_eq(x, y, sizeof x);
}

/* ---- widths ---- */

/* Everything that a kernel computes of one row, in one place to be compared. */
struct results {
    double exp[MANY], tanh[MANY], scaled[MANY], softmax[MANY], additive[MANY / 5], dot,
        lse, entropy;
};

static void all_of(const struct attn_kernel *kernel, const struct row *r, size_t n,
                   struct results *out)
{
    double s[MANY], m[MANY];

    memset(out, 0, sizeof *out);
    kernel->from_double(MANY, r->s, s);
    kernel->from_double(MANY, r->m, m);
    kernel->exp(n, s, out->exp);
    kernel->tanh(n, s, out->tanh);
    kernel->scale_cap(n, s, 0.3, 2, out->scaled);
    out->lse = kernel->softmax_row(n, s, m, r->allow, NULL, out->softmax).lse;
    out->dot = kernel->dot(n, s, m);
    kernel->additive_row(n / 5, 5, m, s, m, out->additive);
    if (kernel->entropy != NULL)
        cr_assert(kernel->entropy(n, out->softmax, &out->entropy));
}

/* Sums of up to MANY terms that differ in the last bit of exp or tanh; dot has none. */
static bool nearly_same(enum attn_dtype dtype, const struct results *a,
                        const struct results *b)
{
    const double near = dtype == ATTN_F64 ? 1e-14 : 1e-5;
    const double *x = a->exp, *y = b->exp;

    if (a->dot != b->dot)
        return false;
    for (size_t n = 0; n < sizeof *a / sizeof *x; n++)
        if (!(x[n] == y[n] || fabs(x[n] - y[n]) <= near * fmax(1, fabs(x[n]))))
            return false;
    return true;
}

Test(attn_kernel, every_width_gives_the_same_bits)
{
    struct made random = {.state = 12};
    size_t compared = 0;

    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
        for (size_t n = 1; n <= MANY; n++) {
            const struct row r = random_row(&random, 3);
            struct results best, other;

            all_of(attn_kernel_of((enum attn_dtype)dtype), &r, n, &best);
            for (size_t w = 0; w < attn_kernel_widths(); w++) {
                const struct attn_kernel *kernel =
                    attn_kernel_width((enum attn_dtype)dtype, w);

                if (!kernel)
                    continue;
                all_of(kernel, &r, n, &other);
                if (kernel->fused == attn_kernel_of((enum attn_dtype)dtype)->fused)
                    cr_assert_eq(memcmp(&best, &other, sizeof best), 0, "width %zu n %zu",
                                 w, n);
                else
                    cr_assert(nearly_same((enum attn_dtype)dtype, &best, &other),
                              "width %zu n %zu", w, n);
                compared++;
            }
        }
    cr_assert_gt(compared, 0);
}
