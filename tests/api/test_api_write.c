/*
 * test_api_write.c - tensors and members as JSON text: every encoding.
 * Not here: single numbers (test_api_number.c).
 * Start reading at the first test.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "api/api_answer.h"

static const char *text_of(const struct attn_tensor *t, const struct attn_tensor *shape,
                           enum api_encoding encoding)
{
    static struct api_buffer b;

    b.len = 0;
    cr_assert(api_put_tensor(&b, t, shape, encoding));
    cr_assert(api_put(&b, "", 1));
    return b.p;
}

static struct attn_tensor f64(double *p, unsigned rank, size_t d0, size_t d1, size_t d2)
{
    return (struct attn_tensor){
        .dtype = ATTN_F64, .rank = rank, .dim = {d0, d1, d2}, .p = p};
}

Test(api_write, nested_has_one_bracket_an_axis)
{
    double x[6] = {1, -2.5, 0.1, 1e300, -0.0, 3};
    const struct attn_tensor matrix = f64(x, 2, 2, 3, 0), cube = f64(x, 3, 2, 1, 3);

    cr_expect_str_eq(text_of(&matrix, &matrix, API_ENC_NESTED),
                     "[[1,-2.5,0.1],[1e+300,-0.0,3]]");
    cr_expect_str_eq(text_of(&cube, &cube, API_ENC_NESTED),
                     "[[[1,-2.5,0.1]],[[1e+300,-0.0,3]]]");
}

Test(api_write, axes_of_the_answer_are_those_of_shape)
{
    double x[4] = {1, 2, 3, 4};
    const struct attn_tensor held = f64(x, 3, 1, 2, 2), answered = f64(NULL, 2, 2, 2, 0);

    cr_expect_str_eq(text_of(&held, &answered, API_ENC_NESTED), "[[1,2],[3,4]]");
    cr_expect_str_eq(text_of(&held, &answered, API_ENC_FLAT),
                     "{\"shape\":[2,2],\"dtype\":\"float64\",\"data\":[1,2,3,4]}");
}

Test(api_write, float32_is_written_as_float32)
{
    float x[3] = {0.1f, 16777216.0f, 1.0f / 3.0f};
    const struct attn_tensor t = {.dtype = ATTN_F32, .rank = 1, .dim = {3}, .p = x};

    cr_expect_str_eq(text_of(&t, &t, API_ENC_NESTED), "[0.1,16777216,0.33333334]");
}

Test(api_write, booleans_are_true_and_false)
{
    uint8_t x[3] = {1, 0, 1};
    const struct attn_tensor t = {.dtype = ATTN_BOOL, .rank = 1, .dim = {3}, .p = x};

    cr_expect_str_eq(text_of(&t, &t, API_ENC_NESTED), "[true,false,true]");
    cr_expect_str_eq(text_of(&t, &t, API_ENC_FLAT),
                     "{\"shape\":[3],\"dtype\":\"bool\",\"data\":[true,false,true]}");
    cr_expect_str_eq(text_of(&t, &t, API_ENC_BASE64),
                     "{\"shape\":[3],\"dtype\":\"bool\",\"base64\":\"AQAB\"}");
}

Test(api_write, what_json_lacks_is_a_string)
{
    double x[3] = {NAN, INFINITY, -INFINITY};
    const struct attn_tensor t = f64(x, 1, 3, 0, 0);

    cr_expect_str_eq(text_of(&t, &t, API_ENC_NESTED),
                     "[\"NaN\",\"Infinity\",\"-Infinity\"]");
}

Test(api_write, no_axes_and_empty_axes)
{
    double x[1] = {7};
    const struct attn_tensor scalar = f64(x, 0, 0, 0, 0), none = f64(x, 2, 2, 0, 0);
    const struct attn_tensor no_rows = f64(x, 2, 0, 3, 0);

    cr_expect_str_eq(text_of(&scalar, &scalar, API_ENC_NESTED), "7");
    cr_expect_str_eq(text_of(&none, &none, API_ENC_NESTED), "[[],[]]");
    cr_expect_str_eq(text_of(&no_rows, &no_rows, API_ENC_NESTED), "[]");
    cr_expect_str_eq(text_of(&none, &none, API_ENC_FLAT),
                     "{\"shape\":[2,0],\"dtype\":\"float64\",\"data\":[]}");
    cr_expect_str_eq(text_of(&none, &none, API_ENC_BASE64),
                     "{\"shape\":[2,0],\"dtype\":\"float64\",\"base64\":\"\"}");
}

/* RFC 4648, section 10. */
Test(api_write, base64_vectors_of_the_rfc)
{
    static const char *const EXPECTED[] = {"Zg==",     "Zm8=",     "Zm9v",
                                           "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    char bytes[] = "foobar", want[128];

    for (size_t n = 1; n <= 6; n++) {
        const struct attn_tensor t = {
            .dtype = ATTN_BOOL, .rank = 1, .dim = {n}, .p = bytes};

        snprintf(want, sizeof want,
                 "{\"shape\":[%zu],\"dtype\":\"bool\",\"base64\":\"%s\"}", n,
                 EXPECTED[n - 1]);
        cr_expect_str_eq(text_of(&t, &t, API_ENC_BASE64), want);
    }
}

Test(api_write, long_rows_keep_every_number_and_comma)
{
    enum { MOST = 3000 };
    static double x[MOST];

    for (size_t n = 0; n < MOST; n++)
        x[n] = (double)n + 0.5;
    for (size_t count = 1020; count < MOST; count += 4) {
        const struct attn_tensor t = f64(x, 1, count, 0, 0);
        json_t *read = json_loads(text_of(&t, &t, API_ENC_NESTED), 0, NULL);

        cr_assert(json_array_size(read) == count, "%zu numbers", count);
        for (size_t n = 0; n < count; n++)
            cr_assert(json_real_value(json_array_get(read, n)) == x[n],
                      "number %zu of %zu", n, count);
        json_decref(read);
    }
}

/* The longest numbers there are: the bound must hold for them. */
Test(api_write, bytes_are_an_upper_bound)
{
    static const double LONGEST[] = {-2.2250738585072014e-308, -1.7976931348623157e+308,
                                     -INFINITY, -5e-324};
    double x[60];
    float y[60];
    uint8_t z[60] = {0};

    for (size_t n = 0; n < 60; n++) {
        x[n] = LONGEST[n % 4];
        y[n] = n % 2 ? -1.17549435e-38f : -3.4028235e+38f;
    }
    for (int dtype = 0; dtype < ATTN_DTYPE_COUNT; dtype++)
        for (int encoding = 0; encoding < API_ENC_COUNT; encoding++)
            for (unsigned rank = 0; rank <= 3; rank++) {
                struct attn_tensor t = f64(x, rank, 3, 4, 5);

                t.dtype = (enum attn_dtype)dtype;
                t.p = dtype == ATTN_F64   ? (void *)x
                      : dtype == ATTN_F32 ? (void *)y
                                          : (void *)z;
                cr_expect(strlen(text_of(&t, &t, (enum api_encoding)encoding)) <=
                              api_tensor_bytes(&t, (enum api_encoding)encoding),
                          "dtype %d, encoding %d, rank %u", dtype, encoding, rank);
            }
}

Test(api_write, bytes_beyond_counting_saturate)
{
    const struct attn_tensor t = f64(NULL, 3, SIZE_MAX / 2, 3, 5);

    for (int encoding = 0; encoding < API_ENC_COUNT; encoding++)
        cr_expect_eq(api_tensor_bytes(&t, (enum api_encoding)encoding), SIZE_MAX);
}

Test(api_write, members_place_their_commas)
{
    struct api_buffer b = {0};

    cr_assert(api_puts(&b, "{") && api_put_text_member(&b, "a", "{\"") &&
              api_put_u64_member(&b, "b", 7) && api_put_double_member(&b, "c", 0.5) &&
              api_put_bool_member(&b, "d", true) && api_put_text_member(&b, "e", NULL) &&
              api_put_number_member(&b, "f", ATTN_F32, 0.1f) && api_puts(&b, "}") &&
              api_put(&b, "", 1));
    cr_expect_str_eq(
        b.p, "{\"a\":\"{\\\"\",\"b\":7,\"c\":0.5,\"d\":true,\"e\":null,\"f\":0.1}");
    api_buffer_free(&b);
}

/* ---- shared work ---- */

static size_t pieces_run;

/* The last piece first: none may rely on another. */
static void backwards(void *ctx, size_t count, attn_piece_fn *fn, void *arg)
{
    (void)ctx;
    pieces_run += count;
    while (count-- > 0)
        fn(arg, count);
}

static const struct attn_exec BACKWARDS = {.parallel_for = backwards};

static void expect_same_text(const struct attn_tensor *t, enum api_encoding encoding)
{
    struct api_buffer alone = {0}, shared = {0};

    cr_assert(api_put_tensor(&alone, t, t, encoding));
    cr_assert(api_put_tensor_with(&shared, t, t, encoding, &BACKWARDS));
    cr_expect_eq(alone.len, shared.len);
    cr_expect(alone.len == shared.len && memcmp(alone.p, shared.p, alone.len) == 0);
    api_buffer_free(&alone);
    api_buffer_free(&shared);
}

Test(api_write, shared_work_gives_the_same_bytes)
{
    static const size_t DIMS[][3] = {
        {1, 1, 40000}, {40000, 1, 1}, {7, 61, 97}, {3, 211, 333}};
    static double wide[3 * 211 * 333];
    static float narrow[3 * 211 * 333];

    for (size_t n = 0; n < sizeof wide / sizeof wide[0]; n++) {
        wide[n] =
            n % 11 == 0 ? -INFINITY : sin((double)n) * pow(10.0, (double)(n % 40) - 20);
        narrow[n] = (float)wide[n];
    }
    for (size_t n = 0; n < sizeof DIMS / sizeof DIMS[0]; n++)
        for (int encoding = 0; encoding < API_ENC_COUNT; encoding++) {
            const struct attn_tensor t64 =
                f64(wide, 3, DIMS[n][0], DIMS[n][1], DIMS[n][2]);
            struct attn_tensor t32 = t64;

            t32.dtype = ATTN_F32;
            t32.p = narrow;
            expect_same_text(&t64, (enum api_encoding)encoding);
            expect_same_text(&t32, (enum api_encoding)encoding);
        }
    cr_expect_gt(pieces_run, 8, "nothing was shared");
}
