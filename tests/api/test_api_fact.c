/*
 * test_api_fact.c - numbers inside of sentences.
 * Not here: the sentences (test_api_answer_audit.c).
 * Start reading at written.
 */
#include "api/api_fact.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *written(double x)
{
    static char text[API_FACT_MAX + 1];

    text[api_fact_write(text, x)] = '\0';
    return text;
}

Test(api_fact, whole_numbers_stand_as_they_are)
{
    cr_expect_str_eq(written(0), "0");
    cr_expect_str_eq(written(-0.0), "0");
    cr_expect_str_eq(written(-1234567), "-1234567");
    cr_expect_str_eq(written(999999999999999), "999999999999999");
}

Test(api_fact, others_have_six_digits)
{
    cr_expect_str_eq(written(0.5), "0.5");
    cr_expect_str_eq(written(1e15), "1e+15");
    cr_expect_str_eq(written(-1.0 / 3), "-0.333333");
    cr_expect_str_eq(written(1.23456789e-7), "1.23457e-07");
}

Test(api_fact, what_is_not_finite_has_its_name)
{
    cr_expect_str_eq(written((double)NAN), "NaN");
    cr_expect_str_eq(written((double)INFINITY), "Infinity");
    cr_expect_str_eq(written((double)-INFINITY), "-Infinity");
}

/* The C library's own words are the measure. */
Test(api_fact, as_printf_writes_them)
{
    uint64_t bits = 1;

    for (int n = 0; n < 200000; n++) {
        char want[64];
        double x;

        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x))
            continue;
        snprintf(want, sizeof want, x == floor(x) && fabs(x) < 1e15 ? "%.0f" : "%.6g", x);
        cr_assert_str_eq(written(x), want);
    }
}
