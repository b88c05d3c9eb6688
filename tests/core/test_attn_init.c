/*
 * test_attn_init.c - seeded tensors have fixed numbers.
 * Golden values: SplitMix64 written again in Python, normal deviates by Python's
 * statistics.NormalDist().inv_cdf, which is another program of AS 241.
 */
#include "core/attn_core.h"

#include <criterion/criterion.h>
#include <math.h>

/* AS 241 is good to about 1e-16; log and the order of operations differ in the last bits.
 */
static const double NORMAL_RTOL = 4e-16;

static struct attn_tensor vector(double *p, size_t n)
{
    return (struct attn_tensor){.dtype = ATTN_F64, .rank = 1, .dim = {n}, .p = p};
}

Test(attn_init, uniform_is_exact)
{
    static const double golden[] = {-0x1.c341e1ba6cdf8p-3, -0x1.eecf0ca02f0e6p-1,
                                    0x1.9a610202eac4ap-1, 0x1.53aeb70673e28p-3};
    double x[4];
    struct attn_tensor t = vector(x, 4);

    cr_assert(attn_init_fill(ATTN_INIT_UNIFORM, 7, 0.0, &t));
    for (size_t n = 0; n < 4; n++)
        cr_assert_eq(x[n], golden[n], "number %zu is %a", n, x[n]);
}

Test(attn_init, normal_agrees_with_another_program)
{
    static const double golden[] = {0.64817736132885195,  -0.99482623180519913,
                                    -0.58700215333896111, -0.40105255214178553,
                                    -1.7740170078979509,  1.118054196995651};
    double x[6];
    struct attn_tensor t = vector(x, 6);

    cr_assert(attn_init_fill(ATTN_INIT_NORMAL, 42, 0.0, &t));
    for (size_t n = 0; n < 6; n++)
        cr_assert_leq(fabs(x[n] - golden[n]), NORMAL_RTOL * fabs(golden[n]),
                      "number %zu: %.17g, expected %.17g", n, x[n], golden[n]);
}

Test(attn_init, normal_tails)
{
    static double x[102169];
    struct attn_tensor t = vector(x, 102169);

    cr_assert(attn_init_fill(ATTN_INIT_NORMAL, 7, 0.0, &t));
    cr_assert_leq(fabs(x[10933] + 4.4312546613813835), 4.5 * NORMAL_RTOL);
    cr_assert_leq(fabs(x[102168] - 4.4217514488825316), 4.5 * NORMAL_RTOL);
}

/* Bits that must never change: what a client got yesterday it gets tomorrow. */
Test(attn_init, normal_bits_are_pinned)
{
    static const double pinned[] = {0x1.40421d77328e2p-2,  -0x1.4c2814bd7a5f4p+0,
                                    -0x1.0e978e8378ec8p-1, -0x1.31bb7edfa4d7cp+0,
                                    0x1.e9b405b635704p-1,  0x1.0de3450ca0118p-3};
    double x[ATTN_COUNT(pinned)];
    struct attn_tensor t = vector(x, ATTN_COUNT(pinned));

    cr_assert(attn_init_fill(ATTN_INIT_NORMAL, 2024, 0.0, &t));
    for (size_t n = 0; n < ATTN_COUNT(pinned); n++)
        cr_assert_eq(x[n], pinned[n], "number %zu is %a", n, x[n]);
}

Test(attn_init, normal_moments)
{
    enum { N = 20000 };
    static double x[N];
    struct attn_tensor t = vector(x, N);
    double sum = 0, squares = 0;

    cr_assert(attn_init_fill(ATTN_INIT_NORMAL, 3, 2.5, &t));
    for (size_t n = 0; n < N; n++) {
        sum += x[n];
        squares += x[n] * x[n];
    }
    /* Five standard errors: 2.5 / sqrt(N) of the mean, 2.5 / sqrt(2 N) of the deviation.
     */
    cr_assert_leq(fabs(sum / N), 5 * 2.5 / sqrt(N));
    cr_assert_leq(fabs(sqrt(squares / N) - 2.5), 5 * 2.5 / sqrt(2.0 * N));
}

Test(attn_init, elements_do_not_depend_on_the_shape)
{
    double x[6], y[6];
    struct attn_tensor flat = vector(x, 6);
    struct attn_tensor cube = {.dtype = ATTN_F64, .rank = 3, .dim = {3, 1, 2}, .p = y};

    attn_init_fill(ATTN_INIT_NORMAL, 11, 0.0, &flat);
    attn_init_fill(ATTN_INIT_NORMAL, 11, 0.0, &cube);
    for (size_t n = 0; n < 6; n++)
        cr_assert_eq(x[n], y[n]);
}

Test(attn_init, float32_rounds_float64)
{
    double x[5];
    float y[5];
    struct attn_tensor wide = vector(x, 5);
    struct attn_tensor narrow = {.dtype = ATTN_F32, .rank = 1, .dim = {5}, .p = y};

    attn_init_fill(ATTN_INIT_NORMAL, 12, 0.5, &wide);
    attn_init_fill(ATTN_INIT_NORMAL, 12, 0.5, &narrow);
    for (size_t n = 0; n < 5; n++)
        cr_assert_eq(y[n], (float)x[n]);
}

Test(attn_init, widths)
{
    enum { N = 4000 };
    static double x[N];
    const struct {
        enum attn_init_kind kind;
        double std, a;
    } widths[] = {
        {ATTN_INIT_UNIFORM, 0.0, 1.0},
        {ATTN_INIT_UNIFORM, 0.5, 0.86602540378443865},
        {ATTN_INIT_XAVIER_UNIFORM, 0.0, 0.34641016151377546}, /* sqrt(6 / (40 + 10)) */
        {ATTN_INIT_XAVIER_UNIFORM, 1.0, 1.7320508075688772},
    };

    for (size_t w = 0; w < ATTN_COUNT(widths); w++) {
        struct attn_tensor t = {
            .dtype = ATTN_F64, .rank = 3, .dim = {10, 40, 10}, .p = x};
        double most = 0;

        cr_assert(attn_init_fill(widths[w].kind, 9, widths[w].std, &t));
        for (size_t n = 0; n < N; n++)
            most = fmax(most, fabs(x[n]));
        cr_assert(most < widths[w].a && most > 0.99 * widths[w].a, "row %zu: %g", w,
                  most);
    }
}

Test(attn_init, constants_and_identity)
{
    double x[2 * 2 * 3];
    struct attn_tensor t = {.dtype = ATTN_F64, .rank = 3, .dim = {2, 2, 3}, .p = x};

    cr_assert(attn_init_fill(ATTN_INIT_IDENTITY, 0, 0.0, &t));
    for (size_t n = 0; n < 12; n++)
        cr_assert_eq(x[n], n == 0 || n == 4 || n == 6 || n == 10 ? 1.0 : 0.0, "%zu", n);
    cr_assert(attn_init_fill(ATTN_INIT_ONES, 0, 0.0, &t));
    cr_assert(x[0] == 1.0 && x[11] == 1.0);
    cr_assert(attn_init_fill(ATTN_INIT_ZEROS, 0, 0.0, &t));
    cr_assert(x[0] == 0.0 && x[11] == 0.0);
}

Test(attn_init, tall_identity_has_zero_rows_below)
{
    double x[6];
    struct attn_tensor t = {.dtype = ATTN_F64, .rank = 2, .dim = {3, 2}, .p = x};

    cr_assert(attn_init_fill(ATTN_INIT_IDENTITY, 0, 0.0, &t));
    cr_assert(x[0] == 1 && x[3] == 1 && x[4] == 0 && x[5] == 0);
}

Test(attn_init, matrix_kinds_refuse_vectors)
{
    double x[3];
    struct attn_tensor t = vector(x, 3);

    cr_assert_not(attn_init_fill(ATTN_INIT_IDENTITY, 0, 0.0, &t));
    cr_assert_not(attn_init_fill(ATTN_INIT_XAVIER_UNIFORM, 0, 0.0, &t));
}

Test(attn_init, every_kind_has_a_name)
{
    for (int k = 0; k < ATTN_INIT_COUNT; k++)
        cr_assert_not_null(ATTN_INIT_NAMES[k]);
    cr_assert_str_eq(ATTN_INIT_NAMES[ATTN_INIT_XAVIER_UNIFORM], "xavier_uniform");
}
