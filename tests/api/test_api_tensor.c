/* test_api_tensor.c - the four forms of a tensor: shapes, numbers, and exact places of
   errors. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct api_limits LIMITS = {.memory_max_bytes = 1 << 20};
static struct api_ctx *ctx;
static struct api_doc doc;
static struct api_tensor_in in;
static struct api_err err;

/* Scans the tensor {"t": text}. */
static bool scan(const char *text)
{
    static char body[4096];

    if (ctx == NULL)
        ctx = api_ctx_new(&LIMITS);
    api_doc_close(&doc);
    err = (struct api_err){0};
    cr_assert((size_t)snprintf(body, sizeof body, "{\"t\":%s}", text) < sizeof body);
    cr_assert(api_doc_open(ctx, body, strlen(body), &doc, &err), "%s", err.detail);
    return api_tensor_scan(&doc, json_object_get(doc.root, "t"), "/t", &in, &err);
}

static double f64[8];
static float f32[8];
static uint8_t booleans[8];

static bool fill(enum attn_dtype dtype, enum api_finite finite)
{
    void *const memory[] = {[ATTN_F64] = f64, [ATTN_F32] = f32, [ATTN_BOOL] = booleans};
    struct attn_tensor t = {.dtype = dtype, .rank = in.rank, .p = memory[dtype]};

    memcpy(t.dim, in.dim, sizeof t.dim);
    return api_tensor_read(&in, finite, &t, &err);
}

static void reads(const char *text, const double *want, size_t count)
{
    cr_assert(scan(text), "%s: %s", text, err.detail);
    cr_assert(fill(ATTN_F64, API_FINITE_ONLY), "%s: %s", text, err.detail);
    for (size_t n = 0; n < count; n++)
        cr_expect(f64[n] == want[n] && signbit(f64[n]) == signbit(want[n]),
                  "%s: entry %zu is %a, not %a", text, n, f64[n], want[n]);
}

static void fails(const char *text, enum attn_dtype dtype, enum api_finite finite,
                  const char *name, const char *pointer)
{
    cr_assert(!(scan(text) && fill(dtype, finite)), "%s was taken", text);
    cr_expect(strcmp(err.name, name) == 0, "%s: %s (%s)", text, err.name, err.detail);
    cr_expect(strcmp(err.pointer, pointer) == 0, "%s: at %s", text, err.pointer);
}

Test(api_tensor, every_form_gives_the_same_numbers)
{
    static const double WANT[] = {1, -2.5, 0, 0.25, 100, -0.0};

    reads("[[1,-2.5,0],[0.25,1e2,-0.0]]", WANT, 6);
    reads("[ [ 1 , -25e-1 , 0 ] ,\n [ 0.25 , 100 , -0 ] ]", WANT, 6);
    reads("{\"shape\":[2,3],\"data\":[1,-2.5,0,0.25,100,-0.0]}", WANT, 6);
    reads("{\"shape\":[2,3],\"dtype\":\"float64\",\"base64\":"
          "\"AAAAAAAA8D8AAAAAAAAEwAAAAAAAAAAAAAAAAAAA0D8AAAAAAABZQAAAAAAAAACA\"}",
          WANT, 6);
    reads("{\"shape\":[2,3],\"dtype\":\"float32\",\"base64\":"
          "\"AACAPwAAIMAAAAAAAACAPgAAyEIAAACA\"}",
          WANT, 6);
    reads("{\"shape\":[2,3],\"dtype\":\"float16\",\"base64\":\"ADwAwQAAADRAVgCA\"}", WANT,
          6);
    reads("{\"shape\":[2,3],\"dtype\":\"bfloat16\",\"base64\":\"gD8gwAAAgD7IQgCA\"}",
          WANT, 6);
}

Test(api_tensor, shapes_are_found_before_numbers_are_read)
{
    cr_assert(scan("[[[1],[2]],[[3],[4]]]"));
    cr_expect(in.rank == 3 && in.dim[0] == 2 && in.dim[1] == 2 && in.dim[2] == 1);
    cr_assert(scan("{\"shape\":[4,5,6],\"init\":\"normal\",\"seed\":7,\"std\":0.5}"));
    cr_expect(in.form == API_INIT && in.seed == 7 && in.std == 0.5 && in.dim[2] == 6);
    cr_assert(scan("{\"init\":\"zeros\"}"));
    cr_expect(in.present && !in.shaped);
    api_tensor_set_shape(&in, 2, (size_t[]){3, 4});
    cr_expect(in.shaped && in.rank == 2 && in.dim[1] == 4);
}

Test(api_tensor, half_floats_subnormal_and_largest)
{
    cr_assert(scan("{\"shape\":[4],\"dtype\":\"float16\",\"base64\":\"AQD/A/97AHw=\"}"));
    cr_assert(fill(ATTN_F64, API_ANY_NUMBER), "%s", err.detail);
    cr_expect(f64[0] == 5.9604644775390625e-8, "%a", f64[0]);
    cr_expect(f64[1] == 6.0975551605224609375e-5, "%a", f64[1]);
    cr_expect(f64[2] == 65504.0 && f64[3] == INFINITY);
}

Test(api_tensor, float32_is_read_as_float32)
{
    cr_assert(scan("[0.1,1.00000017881393432617187499]") &&
              fill(ATTN_F32, API_FINITE_ONLY));
    cr_expect(f32[0] == 0.1f && f32[1] == 1.00000011920928955078125f);
    cr_assert(scan("{\"shape\":[1],\"dtype\":\"float32\",\"data\":[0.1]}"));
    cr_assert(fill(ATTN_F64, API_FINITE_ONLY));
    cr_expect(f64[0] == (double)0.1f, "%a", f64[0]);
    fails("[[1,1e39]]", ATTN_F32, API_ANY_NUMBER, "number-out-of-range", "/t/0/1");
    fails("{\"shape\":[1],\"dtype\":\"float64\",\"base64\":\"oMjrhfPM4X8=\"}", ATTN_F32,
          API_ANY_NUMBER, "number-out-of-range", "/t/base64");
}

Test(api_tensor, errors_point_to_the_element)
{
    static const struct {
        const char *text, *name, *pointer;
    } ROWS[] = {
        {"[[1,2],[3,\"NaN\"]]", "not-finite", "/t/1/1"},
        {"[[1,2],[\"-Infinity\",4]]", "not-finite", "/t/1/0"},
        {"[[1,2],[3,1e999]]", "number-out-of-range", "/t/1/1"},
        {"[[1,null]]", "wrong-type", "/t/0/1"},
        {"[[1,true]]", "wrong-type", "/t/0/1"},
        {"[[1,\"x\"]]", "wrong-type", "/t/0/1"},
        {"[[1,2],[3]]", "ragged", "/t/1"},
        {"[[1,2],3]", "ragged", "/t/1"},
        {"[1,[2]]", "ragged", "/t/1"},
        {"[[1,2],[3,{}]]", "wrong-type", "/t/1/1"},
        {"[[[[[[1]]]]]]", "wrong-rank", "/t/0/0/0/0/0"},
        {"3", "wrong-type", "/t"},
        {"\"abc\"", "wrong-type", "/t"},
        {"null", "wrong-type", "/t"},
        {"{}", "missing", "/t/shape"},
        {"{\"shape\":[2],\"data\":[1,\"NaN\"]}", "not-finite", "/t/data/1"},
        {"{\"shape\":[2],\"data\":[1]}", "wrong-shape", "/t/data"},
        {"{\"shape\":[2],\"data\":[[1,2]]}", "wrong-rank", "/t/data"},
        {"{\"shape\":[2],\"data\":3}", "wrong-type", "/t/data"},
        {"{\"shape\":[2],\"data\":[1,{}]}", "wrong-type", "/t/data/1"},
        {"{\"shape\":[2],\"data\":[[1],[2,{}]]}", "wrong-type", "/t/data/1/1"},
        {"{\"shape\":[],\"data\":[]}", "wrong-rank", "/t/shape"},
        {"{\"shape\":[1,1,1,1,1,1],\"data\":[1]}", "bad-value", "/t/shape"},
        {"{\"shape\":[-1],\"data\":[1]}", "bad-value", "/t/shape/0"},
        {"{\"shape\":[1.5],\"data\":[1]}", "bad-value", "/t/shape/0"},
        {"{\"shape\":[4294967296,4294967296],\"data\":[1]}", "too-large", "/t"},
        {"{\"shape\":[1],\"data\":[1],\"x\":1}", "unknown-field", "/t/x"},
        {"{\"shape\":[1],\"dtype\":\"int8\",\"data\":[1]}", "unknown-name", "/t/dtype"},
        {"{\"shape\":[1],\"base64\":\"AAAAAAAAAAA=\"}", "missing", "/t/dtype"},
        {"{\"shape\":[1],\"dtype\":\"float64\",\"base64\":\"AAAA\"}", "wrong-shape",
         "/t/base64"},
        {"{\"shape\":[1],\"dtype\":\"float64\",\"base64\":\"AAAAAAAAAAA\"}", "bad-base64",
         "/t/base64"},
        {"{\"shape\":[1],\"dtype\":\"float64\",\"base64\":\"AAAAAAA*AAA=\"}",
         "bad-base64", "/t/base64"},
        {"{\"shape\":[1],\"dtype\":\"float64\",\"base64\":\"AAAAAAAA+H8=\"}",
         "not-finite", "/t/base64"},
        {"{\"shape\":[1],\"dtype\":\"bool\",\"base64\":\"AQ==\"}", "wrong-type",
         "/t/base64"},
        {"{\"init\":\"nrmal\",\"shape\":[1]}", "unknown-name", "/t/init"},
        {"{\"init\":\"normal\",\"shape\":[1],\"std\":0}", "bad-value", "/t/std"},
        {"{\"init\":\"normal\",\"shape\":[1],\"seed\":-1}", "bad-value", "/t/seed"},
        {"{\"init\":\"identity\",\"shape\":[1]}", "wrong-rank", "/t/init"},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++)
        fails(ROWS[n].text, ATTN_F64, API_FINITE_ONLY, ROWS[n].name, ROWS[n].pointer);
}

/* Far into a long row, where many numbers are read at once. */
Test(api_tensor, errors_in_long_rows_point_to_the_element)
{
    static const struct {
        const char *entry, *name, *detail;
        enum api_finite finite;
    } ROWS[] = {
        {"1e999", "number-out-of-range", "Entry 150 ", API_FINITE_ONLY},
        {"-1e39", "number-out-of-range", "too large for float32", API_FINITE_ONLY},
        {"\"NaN\"", "not-finite", "it must be finite.", API_FINITE_ONLY},
        {"\"Infinity\"", "not-finite", "forbids a pair", API_MINUS_INFINITY_TOO},
        {"null", "wrong-type", "not null", API_ANY_NUMBER},
        {"false", "wrong-type", "a number is expected here, not a boolean",
         API_ANY_NUMBER},
    };
    static float out[200];
    struct attn_tensor t = {.dtype = ATTN_F32, .rank = 2, .dim = {2, 100}, .p = out};

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        char text[4096], *p = text;

        for (int k = 0; k < 200; k++)
            p += sprintf(p, "%s%s",
                         k == 0     ? "[["
                         : k == 100 ? "],\n["
                                    : ", ",
                         k == 150 ? ROWS[n].entry : "-0.123456");
        strcpy(p, "]]");
        cr_assert(scan(text), "%s", err.detail);
        cr_assert(!api_tensor_read(&in, ROWS[n].finite, &t, &err), "%s", ROWS[n].entry);
        cr_expect_str_eq(err.name, ROWS[n].name);
        cr_expect_str_eq(err.pointer, "/t/1/50");
        cr_expect(strstr(err.detail, ROWS[n].detail) != NULL, "%s", err.detail);
    }
}

Test(api_tensor, wrong_byte_counts_name_both_numbers)
{
    fails("{\"shape\":[2,3],\"dtype\":\"float64\",\"base64\":\"AAAA\"}", ATTN_F64,
          API_FINITE_ONLY, "wrong-shape", "/t/base64");
    cr_expect_str_eq(err.expected, "48");
    cr_expect_str_eq(err.observed, "3");
}

Test(api_tensor, non_finite_values_are_taken_where_they_are_allowed)
{
    cr_assert(scan("[0,\"-Infinity\"]") && fill(ATTN_F64, API_MINUS_INFINITY_TOO));
    cr_expect(f64[1] == -INFINITY);
    fails("[\"Infinity\"]", ATTN_F64, API_MINUS_INFINITY_TOO, "not-finite", "/t/0");
    fails("[\"NaN\"]", ATTN_F64, API_MINUS_INFINITY_TOO, "not-finite", "/t/0");
    cr_assert(scan("[\"NaN\",\"Infinity\",\"-Infinity\"]") &&
              fill(ATTN_F32, API_ANY_NUMBER));
    cr_expect(isnan(f32[0]) && f32[1] == INFINITY && f32[2] == -INFINITY);
    fails("[\"nan\"]", ATTN_F64, API_ANY_NUMBER, "wrong-type", "/t/0");
}

Test(api_tensor, booleans_are_booleans)
{
    cr_assert(scan("[[true,false],[false,true]]") && fill(ATTN_BOOL, API_FINITE_ONLY));
    cr_expect(booleans[0] == 1 && booleans[1] == 0 && booleans[2] == 0 &&
              booleans[3] == 1);
    cr_assert(scan("{\"shape\":[3],\"dtype\":\"bool\",\"base64\":\"AQAB\"}") &&
              fill(ATTN_BOOL, API_FINITE_ONLY));
    cr_expect(booleans[0] == 1 && booleans[1] == 0 && booleans[2] == 1);
    fails("[true,1]", ATTN_BOOL, API_FINITE_ONLY, "wrong-type", "/t/1");
    cr_expect(strstr(err.detail, "0 and 1") != NULL, "%s", err.detail);
    fails("[\"true\"]", ATTN_BOOL, API_FINITE_ONLY, "wrong-type", "/t/0");
    fails("{\"shape\":[3],\"dtype\":\"bool\",\"base64\":\"AQAC\"}", ATTN_BOOL,
          API_FINITE_ONLY, "bad-value", "/t/base64");
    fails("{\"shape\":[1],\"dtype\":\"float32\",\"base64\":\"AACAPw==\"}", ATTN_BOOL,
          API_FINITE_ONLY, "wrong-type", "/t/dtype");
    fails("{\"init\":\"ones\",\"shape\":[2]}", ATTN_BOOL, API_FINITE_ONLY, "wrong-type",
          "/t");
}

/* More than one group of the decoder, as a lifted string and as one with an escaped
   slash. */
Test(api_tensor, long_base64_is_read_in_groups)
{
    enum { COUNT = 1000 };
    static char text[COUNT * 4 + 200];
    static double out[COUNT];
    struct attn_tensor t = {.dtype = ATTN_F64, .rank = 1, .dim = {COUNT}, .p = out};

    for (int escaped = 0; escaped < 2; escaped++) {
        char *p =
            text + sprintf(text, "{\"shape\":[%d],\"dtype\":\"float16\",\"base64\":\"",
                           COUNT - escaped);

        /* 3c00 bf?f…: six bytes 00 3c ff 3b 00 c0 are 1, 0.99951171875, -2 */
        for (int n = 0; n < (COUNT - escaped) / 3; n++)
            p += sprintf(p, "ADz%sOwDA", escaped ? "\\/" : "/");
        sprintf(p, "%s\"}", escaped ? "" : "ADw=");
        t.dim[0] = COUNT - (size_t)escaped;
        cr_assert(scan(text), "%s", err.detail);
        cr_assert(api_tensor_read(&in, API_FINITE_ONLY, &t, &err), "%s", err.detail);
        for (size_t n = 0; n < t.dim[0]; n++)
            cr_assert(out[n] == (n % 3 == 0   ? 1.0
                                 : n % 3 == 1 ? 0.99951171875
                                              : -2.0),
                      "entry %zu is %g", n, out[n]);
    }
}
