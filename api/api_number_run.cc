/*
 * api_number_run.cc - many float32 with commas between, four at a time where AVX2 is.
 * Not here: which decimal a float is, and why (api_number_write.cc); float64.
 * Start reading at put_eight.
 *
 * The text is that of api_number_write_f32, byte for byte.  There most of the time goes
 * into branches that are guessed wrong: how many digits, where the point stands, how many
 * zeros go.  Here none of it is a branch: four decimals are found side by side, and one
 * shuffle of sixteen bytes a number, looked up by point and count, puts their text.
 */
#include <cstdint>
#include <cstring>

#include "api/api_number.h"
#include "api/api_powers.h"

namespace
{

char *put_one_by_one(char *out, const float *x, std::size_t count)
{
    for (std::size_t n = 0; n < count; n++) {
        out += api_number_write_f32(out, x[n]);
        *out++ = ',';
    }
    return out;
}

} // namespace

#if defined(__x86_64__)
#include <immintrin.h>

namespace
{

using u64 = std::uint64_t;
using lanes = __m256i; /* four numbers in 64 bits each */

enum { LANES = 4, BLOCK = 8, DIGITS = 9, SHUFFLED = 16 };

/* ---- tables ---- */

/* By the exponent bits: c 2^(e - 150) is c 2^up `power` 2^-64 times 10^k, and decimals no
   further from it than `reach`, in units of 2^-56, read back. */
struct alignas(32) scale {
    u64 power, reach;
    std::int64_t up, k;
};

enum { EXPONENTS = 256, BIAS = 150, UNIT = 56, FRACTION = 23 };

struct scales {
    scale row[EXPONENTS];
};

constexpr scales make_scales()
{
    scales t{};

    for (int e = 0; e < EXPONENTS; e++) {
        const int q = e - BIAS, k = q * 1262611 >> 22;
        const int up = q + api_powers::log2_of(-k) + 1;
        const u64 hi = api_powers::power_of_ten(-k).hi;

        t.row[e] = scale{hi + 1, hi >> (65 - UNIT - up), up, k};
    }
    return t;
}

/* The bytes of a decimal before they stand in order. */
enum { REST = 0, FIRST = 8, POINT, E, SIGN, TEN, ONE, ZERO, COMMA };

/* By digits before the point and digits in all: which byte goes where.  The last row is
   for points further to the left. */
enum { POINT_LEAST = -3, POINT_MOST = 8, POINTS = POINT_MOST - POINT_LEAST + 2 };

struct alignas(SHUFFLED) order {
    std::uint8_t from[SHUFFLED], size; /* with the comma */

    constexpr void put(int byte)
    {
        from[size++] = static_cast<std::uint8_t>(byte);
    }
    /* Digits begin … end - 1; before the first there are only zeros. */
    constexpr void put_digits(int begin, int end)
    {
        for (int n = begin; n < end; n++)
            put(n < 0 ? ZERO : n == 0 ? FIRST : REST + n - 1);
    }
};

struct orders {
    order row[POINTS][DIGITS + 1];
};

/* Fixed where it is not longer than scientific. */
constexpr bool is_fixed(int point, int count)
{
    const int exponent = point - count, alone = count == 1;

    return exponent >= -(count + 3) + alone && exponent <= 5 - alone;
}

constexpr order make_order(int point, int count)
{
    const bool fixed = point >= POINT_LEAST && is_fixed(point, count);
    const int whole = fixed ? point : 1;
    order o{};

    o.put_digits(whole > 0 ? 0 : -1, whole > 0 ? whole : 0);
    if (count > whole) {
        o.put(POINT);
        o.put_digits(whole, count);
    }
    for (int byte = E; byte <= ONE && !fixed; byte++)
        o.put(byte);
    o.put(COMMA);
    return o;
}

constexpr orders make_orders()
{
    orders t{};

    for (int p = 0; p < POINTS; p++)
        for (int count = 1; count <= DIGITS; count++)
            t.row[p][count] = make_order(POINT_MOST - p, count);
    return t;
}

constexpr scales SCALES = make_scales();
constexpr orders ORDERS = make_orders();

/* ---- four decimals ---- */

#define TARGET __attribute__((target("avx2,bmi,lzcnt")))

TARGET inline lanes all(std::int64_t x)
{
    return _mm256_set1_epi64x(x);
}

/* The low 32 bits of each, multiplied. */
TARGET inline lanes times(lanes a, lanes b)
{
    return _mm256_mul_epu32(a, b);
}

TARGET inline lanes choose(lanes condition, lanes yes, lanes no)
{
    return _mm256_blendv_epi8(no, yes, condition);
}

TARGET inline lanes less(lanes a, lanes b)
{
    return _mm256_cmpgt_epi64(b, a);
}

TARGET inline lanes scale_of(std::uint32_t bits)
{
    return _mm256_load_si256(
        reinterpret_cast<const lanes *>(&SCALES.row[bits >> FRACTION & 255]));
}

/* The rows of four exponents, turned: one field of all four in each. */
TARGET inline void look_up(const std::uint32_t *x, lanes field[4])
{
    const lanes row[] = {scale_of(x[0]), scale_of(x[1]), scale_of(x[2]), scale_of(x[3])};
    const lanes a = _mm256_unpacklo_epi64(row[0], row[1]),
                b = _mm256_unpackhi_epi64(row[0], row[1]),
                c = _mm256_unpacklo_epi64(row[2], row[3]),
                d = _mm256_unpackhi_epi64(row[2], row[3]);
    field[0] = _mm256_permute2x128_si256(a, c, 0x20);
    field[1] = _mm256_permute2x128_si256(b, d, 0x20);
    field[2] = _mm256_permute2x128_si256(a, c, 0x31);
    field[3] = _mm256_permute2x128_si256(b, d, 0x31);
}

/* Too near for the cut product to tell the sign: in units of 2^-56. */
TARGET inline lanes near_zero(lanes x)
{
    enum { MARGIN = (1 << 22) + 4 };

    return _mm256_and_si256(less(x, all(MARGIN)), less(all(-MARGIN), x));
}

struct decimals {
    lanes digits, exponent; /* digits times 10^exponent */
    lanes odd;              /* all bits where it is not known */
};

/* The short way of api_number_write.cc: what is no normal number, a power of two, too
   large for the text below or near a comparison's turn is left to that file. */
TARGET __attribute__((always_inline)) inline decimals find(const std::uint32_t *x)
{
    const std::int64_t one = INT64_C(1) << UNIT;
    const lanes bits =
        _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x)));
    const lanes fraction = _mm256_and_si256(bits, all((1 << FRACTION) - 1));
    const lanes e = _mm256_and_si256(_mm256_srli_epi64(bits, FRACTION), all(255));
    lanes field[4];

    look_up(x, field);
    const lanes c =
        _mm256_sllv_epi64(_mm256_or_si256(fraction, all(1 << FRACTION)), field[2]);
    const lanes low = times(field[0], c);
    const lanes high = _mm256_add_epi64(times(_mm256_srli_epi64(field[0], 32), c),
                                        _mm256_srli_epi64(low, 32));
    const lanes s = _mm256_srli_epi64(high, 32);
    const lanes part = _mm256_srli_epi64(_mm256_slli_epi64(high, 32), 64 - UNIT);
    const lanes tens = _mm256_srli_epi64(times(s, all(0xCCCCCCCD)), 35);
    const lanes ones = _mm256_sub_epi64(s, times(tens, all(10)));
    const lanes down = _mm256_or_si256(_mm256_slli_epi64(ones, UNIT), part);
    const lanes up = _mm256_sub_epi64(all(10 * one), down);

    const lanes under = _mm256_sub_epi64(field[1], down),
                over = _mm256_sub_epi64(field[1], up),
                half = _mm256_sub_epi64(part, all(one / 2));
    const lanes unsure = _mm256_or_si256(
        near_zero(half), _mm256_or_si256(near_zero(under), near_zero(over)));
    const lanes zero = _mm256_setzero_si256();
    const lanes above = less(zero, over), ten = _mm256_or_si256(less(zero, under), above);
    const lanes plain =
        _mm256_or_si256(_mm256_cmpeq_epi64(fraction, zero),
                        _mm256_or_si256(_mm256_cmpeq_epi64(e, zero), less(all(BIAS), e)));
    return decimals{
        choose(ten, _mm256_sub_epi64(tens, above), _mm256_sub_epi64(s, less(zero, half))),
        _mm256_sub_epi64(field[3], ten), _mm256_or_si256(unsure, plain)};
}

/* ---- their text ---- */

struct texts {
    alignas(32) u64 half[2][LANES]; /* REST …, FIRST … */
    alignas(32) u64 point[LANES];   /* row of ORDERS */
    std::uint32_t zero;             /* a bit for each byte of half[0] that is a 0 */
    int odd;                        /* a bit for each number */
};

TARGET inline lanes if_so(lanes condition, std::int64_t x)
{
    return _mm256_and_si256(condition, all(x));
}

/* Eight digits as bytes, the first one lowest, by numbers below 10^8. */
TARGET inline lanes eight_digits(lanes x)
{
    const lanes high = _mm256_srli_epi64(times(x, all(109951163)), 40); /* x / 10000 */
    const lanes fours = _mm256_or_si256(
        high, _mm256_slli_epi64(_mm256_sub_epi64(x, times(high, all(10000))), 32));
    const lanes hundreds =
        _mm256_srli_epi16(_mm256_mulhi_epu16(fours, _mm256_set1_epi16(5243)), 3);
    const lanes twos = _mm256_or_si256(
        hundreds,
        _mm256_slli_epi32(
            _mm256_sub_epi16(fours, _mm256_mullo_epi16(hundreds, _mm256_set1_epi16(100))),
            16));
    const lanes tens = _mm256_mulhi_epu16(twos, _mm256_set1_epi16(6554));
    const lanes ones =
        _mm256_sub_epi16(twos, _mm256_mullo_epi16(tens, _mm256_set1_epi16(10)));

    return _mm256_or_si256(tens, _mm256_slli_epi16(ones, 8));
}

TARGET inline texts spell(const decimals &d)
{
    const lanes zero = _mm256_setzero_si256();
    const lanes six = less(d.digits, all(1000000)), seven = less(d.digits, all(10000000)),
                eight = less(d.digits, all(100000000)); /* at most so many digits */
    const lanes nine = times(
        d.digits, _mm256_add_epi64(_mm256_add_epi64(all(1), if_so(eight, 9)),
                                   _mm256_add_epi64(if_so(seven, 90), if_so(six, 900))));
    const lanes point =
        _mm256_add_epi64(_mm256_add_epi64(d.exponent, all(DIGITS)),
                         _mm256_add_epi64(eight, _mm256_add_epi64(seven, six)));
    const lanes first = _mm256_srli_epi64(times(nine, all(1441151881)), 57); /* / 10^8 */
    const lanes rest = eight_digits(_mm256_sub_epi64(nine, times(first, all(100000000))));

    const lanes e = _mm256_sub_epi64(point, all(1)), negative = less(e, zero);
    const lanes size = _mm256_sub_epi64(_mm256_xor_si256(e, negative), negative);
    const lanes ten = _mm256_srli_epi64(times(size, all(103)), 10);
    const lanes pair =
        _mm256_add_epi64(_mm256_slli_epi64(ten, 8 * (TEN - FIRST)),
                         _mm256_slli_epi64(_mm256_sub_epi64(size, times(ten, all(10))),
                                           8 * (ONE - FIRST)));
    const lanes sign = _mm256_slli_epi64(if_so(negative, '-' - '+'), 8 * (SIGN - FIRST));
    texts t;

    _mm256_store_si256(reinterpret_cast<lanes *>(t.point),
                       choose(less(point, all(POINT_LEAST)), all(POINTS - 1),
                              _mm256_sub_epi64(all(POINT_MOST), point)));
    _mm256_store_si256(reinterpret_cast<lanes *>(t.half[0]),
                       _mm256_or_si256(rest, all(0x3030303030303030)));
    _mm256_store_si256(reinterpret_cast<lanes *>(t.half[1]),
                       _mm256_add_epi64(_mm256_add_epi64(all(0x2c3030302b652e30), sign),
                                        _mm256_add_epi64(first, pair)));
    t.zero =
        static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(rest, zero)));
    t.odd = _mm256_movemask_pd(_mm256_castsi256_pd(d.odd));
    return t;
}

/* Zeros behind the last digit that is none are left out. */
TARGET inline const order &order_of(const texts &t, int n)
{
    const std::uint32_t used = ~t.zero >> 8 * n & 255;

    return ORDERS.row[t.point[n]][33 - _lzcnt_u32(used)];
}

TARGET inline char *put_four(char *out, const std::uint32_t *x, const texts &t)
{
#pragma GCC unroll 4
    for (int n = 0; n < LANES; n++) {
        const order &o = order_of(t, n);
        const __m128i bytes = _mm_set_epi64x(static_cast<std::int64_t>(t.half[1][n]),
                                             static_cast<std::int64_t>(t.half[0][n]));
        const __m128i from = _mm_load_si128(reinterpret_cast<const __m128i *>(o.from));

        if (__builtin_expect(t.odd >> n & 1, 0)) {
            float value;

            std::memcpy(&value, x + n, sizeof value);
            out = put_one_by_one(out, &value, 1);
            continue;
        }
        *out = '-';
        out += x[n] >> 31;
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm_shuffle_epi8(bytes, from));
        out += o.size;
    }
    return out;
}

TARGET inline bool all_same(const std::uint32_t *bits)
{
    const lanes eight = _mm256_loadu_si256(reinterpret_cast<const lanes *>(bits));
    const lanes first = _mm256_set1_epi32(static_cast<int>(bits[0]));

    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(eight, first)) == -1;
}

TARGET inline texts spell_four(const std::uint32_t *x)
{
    return spell(find(x));
}

/* Two fours side by side: one waits for its products while the other goes on.  Masks and
   what they forbid are the same number again and again. */
TARGET inline char *put_eight(char *out, const float *x)
{
    std::uint32_t bits[BLOCK];
    char text[SHUFFLED];

    std::memcpy(bits, x, sizeof bits);
    if (!all_same(bits)) {
        const texts t = spell_four(bits), u = spell_four(bits + LANES);

        return put_four(put_four(out, bits, t), bits + LANES, u);
    }
    const std::ptrdiff_t size = put_one_by_one(text, x, 1) - text;
    for (int n = 0; n < BLOCK; n++, out += size)
        std::memcpy(out, text, sizeof text);
    return out;
}

TARGET char *put_many(char *out, const float *x, std::size_t count)
{
    for (; count >= BLOCK; x += BLOCK, count -= BLOCK)
        out = put_eight(out, x);
    if (count >= LANES) {
        std::uint32_t bits[LANES];

        std::memcpy(bits, x, sizeof bits);
        out = put_four(out, bits, spell_four(bits));
        x += LANES;
        count -= LANES;
    }
    return put_one_by_one(out, x, count);
}

bool is_wide()
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("lzcnt");
}

} // namespace

#else

namespace
{

bool is_wide()
{
    return false;
}

constexpr auto put_many = put_one_by_one;

} // namespace

#endif

extern "C" char *api_number_run_f32(char *out, const float *x, size_t count)
{
    static char *(*const put)(char *, const float *, std::size_t) =
        is_wide() ? put_many : put_one_by_one;

    return put(out, x, count) - (count > 0);
}
