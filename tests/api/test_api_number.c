/* test_api_number.c - text of numbers: shortest, exact both ways, strict grammar. */
#include "api/api_number.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *f64(double x)
{
    static char text[API_NUMBER_MAX + 1];

    text[api_number_write_f64(text, x)] = '\0';
    return text;
}

static const char *f32(float x)
{
    static char text[API_NUMBER_MAX + 1];

    text[api_number_write_f32(text, x)] = '\0';
    return text;
}

static enum api_number_result read64(const char *text, double *x)
{
    const char *p = text;
    const enum api_number_result result = api_number_read_f64(&p, text + strlen(text), x);

    if (result == API_NUMBER_OK)
        cr_assert(*p == '\0', "%s was read up to %s", text, p);
    return result;
}

Test(api_number, writes_the_shortest_decimal)
{
    cr_expect_str_eq(f64(0.1), "0.1");
    cr_expect_str_eq(f64(1.0), "1");
    cr_expect_str_eq(f64(0.30000000000000004), "0.30000000000000004");
    cr_expect_str_eq(f64(-2.5), "-2.5");
    cr_expect_str_eq(f64(5e-324), "5e-324");
    cr_expect_str_eq(f32(0.1f), "0.1");
    cr_expect_str_eq(f32(16777216.0f), "16777216");
}

Test(api_number, keeps_the_sign_of_zero_and_names_what_json_lacks)
{
    cr_expect_str_eq(f64(0.0), "0");
    cr_expect_str_eq(f64(-0.0), "-0.0");
    cr_expect_str_eq(f32(-0.0f), "-0.0");
    cr_expect_str_eq(f64(NAN), "\"NaN\"");
    cr_expect_str_eq(f64(INFINITY), "\"Infinity\"");
    cr_expect_str_eq(f32(-INFINITY), "\"-Infinity\"");
}

static void expect_runs(const double *x, size_t count)
{
    char run[64 * API_NUMBER_MAX], single[64 * API_NUMBER_MAX], *p = single;
    float narrow[64];

    for (size_t n = 0; n < count; n++) {
        p += api_number_write_f64(p, x[n]);
        *p++ = ',';
        narrow[n] = (float)x[n];
    }
    p[count > 0 ? -1 : 0] = '\0';
    *api_number_run_f64(run, x, count) = '\0';
    cr_expect_str_eq(run, single);
    p = single;
    for (size_t n = 0; n < count; n++) {
        p += api_number_write_f32(p, narrow[n]);
        *p++ = ',';
    }
    p[count > 0 ? -1 : 0] = '\0';
    for (size_t way = 0; way < API_NUMBER_WAYS; way++) {
        char *const end = api_number_run_f32_way(way, run, narrow, count);

        if (end == NULL)
            continue;
        *end = '\0';
        cr_expect_str_eq(run, single, "way %zu", way);
    }
    *api_number_run_f32(run, narrow, count) = '\0';
    cr_expect_str_eq(run, single);
}

Test(api_number, run_is_its_numbers_one_by_one)
{
    const double x[] = {1.5,
                        -0.1,
                        3e-5,
                        1e-4,
                        0.001,
                        123456.7,
                        1e9,
                        -7.25e-9,
                        0.0,
                        -0.0,
                        NAN,
                        1.0,
                        INFINITY,
                        -INFINITY,
                        2.0,
                        100000.0,
                        1e38,
                        1e-40,
                        16777215.0,
                        3.0,
                        0.3,
                        33.0,
                        0.7,
                        8388609.0,
                        1e22,
                        1e-300,
                        -99999.99,
                        1.2e6,
                        9007199254740993.0,
                        -1e17,
                        0.25};
    const double same[] = {0.1,       0.1,       0.1,       0.1,
                           0.1,       0.1,       0.1,       0.1,
                           -INFINITY, -INFINITY, -INFINITY, -INFINITY,
                           -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    const size_t count = sizeof x / sizeof x[0];

    for (size_t begin = 0; begin < count; begin++)
        for (size_t end = begin; end <= count; end++)
            expect_runs(x + begin, end - begin);
    expect_runs(same, sizeof same / sizeof same[0]);
}

/* Any bits, written and read back by the C library and by us. */
Test(api_number, every_float_comes_back)
{
    uint64_t state = 12345;

    for (int n = 0; n < 200000; n++) {
        double x, again;
        uint64_t bits;

        state = state * 6364136223846793005u + 1442695040888963407u;
        bits = state ^ state >> 29;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x))
            continue;
        cr_assert(strtod(f64(x), NULL) == x, "%a became %s", x, f64(x));
        cr_assert(read64(f64(x), &again) == API_NUMBER_OK && again == x, "%a", x);
    }
}

Test(api_number, takes_what_json_takes)
{
    static const struct {
        const char *text;
        double x;
    } GOOD[] = {
        {"0", 0},
        {"-0", -0.0},
        {"10", 10},
        {"1.50", 1.5},
        {"1e3", 1000},
        {"1E+3", 1000},
        {"25e-1", 2.5},
        {"1e-05", 1e-5},
        {"1e-320", 1e-320},
        {"0.1e1", 1},
        {"123456789012345678901234567890", 123456789012345678901234567890.0},
    };
    double x;

    for (size_t n = 0; n < sizeof GOOD / sizeof GOOD[0]; n++) {
        cr_expect(read64(GOOD[n].text, &x) == API_NUMBER_OK && x == GOOD[n].x,
                  "%s gave %a", GOOD[n].text, x);
        cr_expect(signbit(x) == signbit(GOOD[n].x), "%s", GOOD[n].text);
    }
}

Test(api_number, refuses_what_json_refuses)
{
    static const char *const BAD[] = {"",          "-",   "+1",  ".5",  "1.",
                                      "1.e3",      "1e",  "1e+", "NaN", "Infinity",
                                      "-Infinity", "inf", "e5",  " 1",  "--1"};
    double x;

    for (size_t n = 0; n < sizeof BAD / sizeof BAD[0]; n++)
        cr_expect(read64(BAD[n], &x) == API_NUMBER_NOT_JSON, "%s was taken", BAD[n]);
}

Test(api_number, stops_where_the_grammar_stops)
{
    const char *const text = "012", *p = text;
    double x;

    cr_expect(api_number_read_f64(&p, text + 3, &x) == API_NUMBER_OK && p == text + 1);
    cr_expect(api_number_end("0x10", "0x10" + 4) != NULL);
    cr_expect(*api_number_end("1.5,2", "1.5,2" + 5) == ',');
}

Test(api_number, too_large_is_refused_and_too_small_is_zero)
{
    static const char *const LARGE[] = {
        "1e309",      "-1e309",     "1e999999999999999999999",
        "100000e305", "0.0001e400", "1.8e308"};
    double x;

    for (size_t n = 0; n < sizeof LARGE / sizeof LARGE[0]; n++)
        cr_expect(read64(LARGE[n], &x) == API_NUMBER_RANGE, "%s was taken", LARGE[n]);
    cr_expect(read64("1e-400", &x) == API_NUMBER_OK && x == 0 && !signbit(x));
    cr_expect(read64("-1e-99999999999999999999", &x) == API_NUMBER_OK && x == 0 &&
              signbit(x));
    cr_expect(read64("0e999999999999999999999", &x) == API_NUMBER_OK && x == 0);
    cr_expect(read64("0.000e999", &x) == API_NUMBER_OK && x == 0);
}

/* Just below the middle of two floats; as a double it is the middle, which would round
   up. */
Test(api_number, float32_is_not_rounded_twice)
{
    const char *const text = "1.00000017881393432617187499", *p = text;
    float x;

    cr_expect(api_number_read_f32(&p, text + strlen(text), &x) == API_NUMBER_OK);
    cr_expect(x == 1.00000011920928955078125f, "%a", (double)x);
    p = "3.5e38";
    cr_expect(api_number_read_f32(&p, p + 6, &x) == API_NUMBER_RANGE);
    p = "1e-50";
    cr_expect(api_number_read_f32(&p, p + 5, &x) == API_NUMBER_OK && x == 0);
}
