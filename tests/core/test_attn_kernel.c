/*
 * test_attn_kernel.c - the inner loops on one row: softmax in one piece and in several,
 * masks, scale, small loops; what stands at forbidden keys is ignored.
 * Not here: accuracy of exp and tanh (test_attn_kernel_exp.c), vector widths
 * (test_attn_kernel_width.c), stages (test_attn_softmax.c, test_attn_mix.c).
 * Start reading at softmax_row_is_right.
 */
#include "core/attn_core.h"
#include "make_row.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

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

    for (size_t n = 1; n <= ROW_KEYS; n++)
        for (size_t k = 0; k <= ATTN_COUNT(sinks); k++) {
            const double *sink = k < ATTN_COUNT(sinks) ? &sinks[k] : NULL;
            struct row r = make_row(&random, 3);
            long double want[ROW_KEYS];

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
        struct row r = make_row(&random, 2), other = r;

        for (size_t j = 0; j < ROW_KEYS; j++)
            if (!r.allow[j])
                other.s[j] = wrong[k];
        kernel->softmax_row(ROW_KEYS, r.s, r.m, r.allow, NULL, r.a);
        kernel->softmax_row(ROW_KEYS, other.s, other.m, other.allow, NULL, other.a);
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

    for (size_t cut = 0; cut <= ROW_KEYS; cut++) {
        struct row r = make_row(&random, 2);
        struct attn_online o = {.max = -INFINITY};
        double whole[ROW_KEYS];

        kernel->softmax_row(ROW_KEYS, r.s, r.m, r.allow, NULL, whole);
        kernel->online_row(cut, r.s, r.m, r.allow, &o, r.a);

        const double factor = kernel->online_row(ROW_KEYS - cut, r.s + cut, r.m + cut,
                                                 r.allow + cut, &o, r.a + cut);

        for (size_t j = 0; j < ROW_KEYS; j++)
            cr_assert_float_eq(r.a[j] * (j < cut ? factor : 1) / o.sum, whole[j], 1e-15);
    }
}

Test(attn_kernel, masked_is_the_sum_or_minus_infinity)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    struct made random = {.state = 9};
    const struct row r = make_row(&random, 2);
    double y[ROW_KEYS];

    kernel->masked(ROW_KEYS, r.s, r.m, r.allow, y);
    for (size_t j = 0; j < ROW_KEYS; j++)
        cr_assert_eq(y[j], r.allow[j] ? r.s[j] + r.m[j] : -INFINITY);
    kernel->masked(ROW_KEYS, NULL, NULL, r.allow, y);
    for (size_t j = 0; j < ROW_KEYS; j++)
        cr_assert_eq(y[j], r.allow[j] ? 0 : -INFINITY);
    kernel->masked(ROW_KEYS, NULL, r.m, NULL, y);
    cr_assert_arr_eq(y, r.m, sizeof y);
}

Test(attn_kernel, scale_and_softcap)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    struct made random = {.state = 10};
    const struct row r = make_row(&random, 4);
    double y[ROW_KEYS];

    kernel->scale_cap(ROW_KEYS, r.s, 0.25, 0, y);
    for (size_t j = 0; j < ROW_KEYS; j++)
        cr_assert_eq(y[j], r.s[j] * 0.25);
    kernel->scale_cap(ROW_KEYS, r.s, 0.25, 1.5, y);
    for (size_t j = 0; j < ROW_KEYS; j++)
        cr_assert_float_eq(y[j], 1.5 * tanh(r.s[j] * 0.25 / 1.5), 1e-15);
}

Test(attn_kernel, all_finite_finds_one_anywhere)
{
    const double wrong[] = {NAN, INFINITY, -INFINITY};

    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++) {
        const struct attn_kernel *kernel = attn_kernel_of((enum attn_dtype)dtype);
        double x[ROW_KEYS];

        kernel->fill(ROW_KEYS, dtype == ATTN_F64 ? DBL_MAX : (double)FLT_MAX, x);
        for (size_t n = 1; n <= ROW_KEYS; n++)
            cr_assert(kernel->all_finite(n, x));
        for (size_t k = 0; k < ATTN_COUNT(wrong); k++)
            for (size_t j = 0; j < ROW_KEYS; j++) {
                kernel->fill(ROW_KEYS, 0, x);
                kernel->set(x, j, wrong[k]);
                cr_assert_not(kernel->all_finite(ROW_KEYS, x));
                cr_assert(kernel->all_finite(j, x));
            }
    }
}

Test(attn_kernel, small_loops)
{
    const struct attn_kernel *kernel = attn_kernel_of(ATTN_F64);
    double x[ROW_KEYS], y[ROW_KEYS], z[ROW_KEYS], dot = 0;
    float f[ROW_KEYS];

    for (size_t n = 0; n < ROW_KEYS; n++) {
        x[n] = (double)n - 5;
        y[n] = z[n] = 3 * (double)n;
        dot += x[n] * y[n];
    }
    cr_assert_eq(kernel->dot(ROW_KEYS, x, y), dot,
                 "small whole numbers are exact in any order");
    kernel->axpy(ROW_KEYS, 2, x, y);
    for (size_t n = 0; n < ROW_KEYS; n++)
        cr_assert_eq(y[n], z[n] + 2 * x[n]);
    attn_kernel_of(ATTN_F32)->from_double(ROW_KEYS, x, f);
    attn_kernel_of(ATTN_F32)->to_double(ROW_KEYS, f, y);
    cr_assert_arr_eq(x, y, sizeof x);
}
