/*
 * attn_init.c - seeded tensors: the same seed gives the same numbers on every IEEE
 * machine. Not here: the random source itself (attn_random.c). Start reading at
 * attn_init_fill.
 *
 * Element n (flat, row-major, from 0) of seed s depends on s and n alone:
 *   x = SplitMix64 number n of the stream that starts at s
 *   u = (floor(x / 2^12) + 1/2) / 2^52, exact, in the open interval (0, 1)
 *   uniform: a (2u - 1);  normal: std * PPND16(u).
 * Only + - * / and sqrt are used, which IEEE 754 rounds correctly everywhere; the build
 * forbids contraction to fused multiply-add.  float32 rounds the float64 number.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <float.h>
#include <math.h>

_Static_assert(FLT_EVAL_METHOD == 0, "double arithmetic must round to double");
_Static_assert(DBL_MANT_DIG == 53, "IEEE 754 binary64");

const char *const ATTN_INIT_NAMES[] = {
    [ATTN_INIT_ZEROS] = "zeros",       [ATTN_INIT_ONES] = "ones",
    [ATTN_INIT_IDENTITY] = "identity", [ATTN_INIT_NORMAL] = "normal",
    [ATTN_INIT_UNIFORM] = "uniform",   [ATTN_INIT_XAVIER_UNIFORM] = "xavier_uniform",
};
_Static_assert(ATTN_COUNT(ATTN_INIT_NAMES) == ATTN_INIT_COUNT, "one name per kind");

/* ---- numbers ---- */

/* c[0] + c[1] x + … */
static double polynomial(size_t n, const double *c, double x)
{
    double y = c[n - 1];

    for (size_t k = n - 1; k-- > 0;)
        y = y * x + c[k];
    return y;
}

/*
 * Natural logarithm of a normal x > 0: x = m 2^e with m in [sqrt(1/2), sqrt(2)), then
 * log m = 2 artanh s, s = (m - 1)/(m + 1), |s| < 0.172, by its series to s^25 (the rest
 * is below 2^-60).  The C library's log may differ in the last bit between systems.
 */
static double portable_log(double x)
{
    static const double odd[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,
                                 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19,
                                 1.0 / 21, 1.0 / 23, 1.0 / 25};
    static const double ln2_high = 0x1.62e42fee00000p-1, ln2_low = 0x1.a39ef35793c76p-33;
    int e;
    double m = frexp(x, &e);

    if (m < 0.70710678118654752440) {
        m *= 2.0;
        e -= 1;
    }

    const double s = (m - 1.0) / (m + 1.0);
    const double log_m = 2.0 * s * polynomial(ATTN_COUNT(odd), odd, s * s);

    return e * ln2_high + (e * ln2_low + log_m);
}

/*
 * The normal deviate with lower tail area u, 0 < u < 1, to about 1e-16.
 * Source: Wichura 1988, "Algorithm AS 241: the percentage points of the normal
 * distribution", Applied Statistics 37, routine PPND16.
 */
static double normal_quantile(double u)
{
    static const double A[] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                               1.9715909503065514427e3, 1.3731693765509461125e4,
                               4.5921953931549871457e4, 6.7265770927008700853e4,
                               3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double B[] = {1.0,
                               4.2313330701600911252e1,
                               6.8718700749205790830e2,
                               5.3941960214247511077e3,
                               2.1213794301586595867e4,
                               3.9307895800092710610e4,
                               2.8729085735721942674e4,
                               5.2264952788528545610e3};
    static const double C[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                               5.76949722146069140550e0,  3.64784832476320460504e0,
                               1.27045825245236838258e0,  2.41780725177450611770e-1,
                               2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double D[] = {1.0,
                               2.05319162663775882187e0,
                               1.67638483018380384940e0,
                               6.89767334985100004550e-1,
                               1.48103976427480074590e-1,
                               1.51986665636164571966e-2,
                               5.47593808499534494600e-4,
                               1.05075007164441684324e-9};
    static const double E[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                               1.78482653991729133580e0,  2.96560571828504891230e-1,
                               2.65321895265761230930e-2, 1.24266094738807843860e-3,
                               2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double F[] = {1.0,
                               5.99832206555887937690e-1,
                               1.36929880922735805310e-1,
                               1.48753612908506148525e-2,
                               7.86869131145613259100e-4,
                               1.84631831751005468180e-5,
                               1.42151175831644588870e-7,
                               2.04426310338993978564e-15};
    const double q = u - 0.5;

    if (fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;

        return q * polynomial(8, A, r) / polynomial(8, B, r);
    }

    const double r = sqrt(-portable_log(q < 0.0 ? u : 1.0 - u));
    const double z = r <= 5.0 ? polynomial(8, C, r - 1.6) / polynomial(8, D, r - 1.6)
                              : polynomial(8, E, r - 5.0) / polynomial(8, F, r - 5.0);

    return q < 0.0 ? -z : z;
}

/* In (0, 1), symmetric about 1/2; 52 bits, because with 53 the half would not be exact
   and could round to 1. */
static double open_uniform(uint64_t seed, size_t n)
{
    uint64_t state = seed + (uint64_t)n * UINT64_C(0x9e3779b97f4a7c15);

    return ((double)(attn_random_u64(&state) >> 12) + 0.5) * 0x1p-52;
}

/* ---- kinds ---- */

struct fill {
    uint64_t seed;
    double width;      /* a of the uniform kinds, std of normal                        */
    size_t rows, cols; /* of the last two axes; 1 where there is none                   */
};

static double fill_zero(const struct fill *f, size_t n)
{
    (void)f, (void)n;
    return 0.0;
}

static double fill_one(const struct fill *f, size_t n)
{
    (void)f, (void)n;
    return 1.0;
}

static double fill_identity(const struct fill *f, size_t n)
{
    return n / f->cols % f->rows == n % f->cols ? 1.0 : 0.0;
}

static double fill_uniform(const struct fill *f, size_t n)
{
    return f->width * (2.0 * open_uniform(f->seed, n) - 1.0);
}

static double fill_normal(const struct fill *f, size_t n)
{
    return f->width * normal_quantile(open_uniform(f->seed, n));
}

static double default_one(const struct fill *f)
{
    (void)f;
    return 1.0;
}

/* Glorot and Bengio 2010, equation 16: the last two axes are fan-in and fan-out. */
static double default_xavier(const struct fill *f)
{
    return sqrt(6.0 / ((double)f->rows + (double)f->cols));
}

static const struct {
    bool needs_matrix;
    double (*number)(const struct fill *f, size_t n);
    double (*width)(const struct fill *f); /* without a stated std                      */
    bool uniform;                          /* width is sqrt(3) std                      */
} KINDS[] = {
    [ATTN_INIT_ZEROS] = {false, fill_zero, default_one, false},
    [ATTN_INIT_ONES] = {false, fill_one, default_one, false},
    [ATTN_INIT_IDENTITY] = {true, fill_identity, default_one, false},
    [ATTN_INIT_NORMAL] = {false, fill_normal, default_one, false},
    [ATTN_INIT_UNIFORM] = {false, fill_uniform, default_one, true},
    [ATTN_INIT_XAVIER_UNIFORM] = {true, fill_uniform, default_xavier, true},
};
_Static_assert(ATTN_COUNT(KINDS) == ATTN_INIT_COUNT, "one row per kind");

/*
 * zeros, ones; identity: ones on the diagonal of the last two axes; normal: mean 0, std 1
 * or as stated; uniform on (-a, a): a = sqrt(3) std, 1 when not stated; xavier_uniform:
 * a = sqrt(6 / (fan_in + fan_out)) of the last two axes, or sqrt(3) std when stated.
 * t  out  float64 or float32, any rank; filled whole
 */
bool attn_init_fill(enum attn_init_kind kind, uint64_t seed, double std,
                    struct attn_tensor *t)
{
    assert(kind < ATTN_INIT_COUNT);
    assert(t->p != NULL && (t->dtype == ATTN_F64 || t->dtype == ATTN_F32));
    if (KINDS[kind].needs_matrix && t->rank < 2)
        return false;

    const size_t count = attn_tensor_count(t);
    struct fill f = {.seed = seed,
                     .rows = t->rank > 1 ? t->dim[t->rank - 2] : 1,
                     .cols = t->rank > 0 ? t->dim[t->rank - 1] : 1};

    f.width = KINDS[kind].width(&f);
    if (std > 0.0)
        f.width = KINDS[kind].uniform ? sqrt(3.0) * std : std;
    for (size_t n = 0; n < count; n++) {
        const double x = KINDS[kind].number(&f, n);

        if (t->dtype == ATTN_F64)
            ((double *)t->p)[n] = x;
        else
            ((float *)t->p)[n] = (float)x;
    }
    return true;
}
