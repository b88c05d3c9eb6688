/*
 * api_number_run32.cc - many float32 with commas between, four at a time where AVX2 is.
 * Not here: one number (api_number_write.cc), the order of its bytes
 * (api_number_lanes.h).
 * Start reading at put_eight.
 *
 * The text is that of api_number_write_f32, byte for byte.
 */
#include <cstdint>
#include <cstring>

#include "api/api_decimal.h"
#include "api/api_number_lanes.h"

#if defined(__x86_64__)

namespace
{

using namespace api_lanes;

enum { BLOCK = 2 * LANES, DIGITS = 9, MOST = 8, SHUFFLED = 16 };
using texts_order = orders<DIGITS, SHUFFLED + 1, MOST>;

constexpr texts_order ORDERS = texts_order::make();

/* ---- four decimals ---- */

/* By the exponent bits: c 2^(e - 150) is c 2^up `power` 2^-64 times 10^k, and decimals no
   further from it than `reach`, in units of 2^-56, read back.  Rows of zeros, where
   nothing is sure, for what is no normal number and for numbers too large for the text
   below. */
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

        if (e > 0 && e <= BIAS)
            t.row[e] = scale{hi + 1, hi >> (65 - UNIT - up), up, k};
    }
    return t;
}

constexpr scales SCALES = make_scales();

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

/* The short way of api_decimal.h: what is no normal number, a power of two, too
   large for the text below or near a comparison's turn is left to that file. */
TARGET __attribute__((always_inline)) inline decimals find(const std::uint32_t *x)
{
    const std::int64_t one = INT64_C(1) << UNIT;
    const lanes bits =
        _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x)));
    const lanes fraction = _mm256_and_si256(bits, all((1 << FRACTION) - 1));
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
    const lanes power_of_two = _mm256_cmpeq_epi64(fraction, zero);
    return decimals{
        choose(ten, _mm256_sub_epi64(tens, above), _mm256_sub_epi64(s, less(zero, half))),
        _mm256_sub_epi64(field[3], ten), _mm256_or_si256(unsure, power_of_two)};
}

/* ---- their text ---- */

struct texts {
    alignas(32) u64 rest[LANES];  /* the digits behind the first */
    alignas(32) u64 tail[LANES];  /* FIRST … COMMA               */
    alignas(32) u64 place[LANES]; /* row of ORDERS               */
    std::uint32_t zero;           /* a bit for each byte of `rest` that is a 0 */
    int odd;                      /* a bit for each number */
};

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
    texts t;

    store(t.rest, _mm256_or_si256(rest, all(0x3030303030303030)));
    store(t.tail, tail(first, size_of(e, negative), negative));
    store(t.place, place_of(point, MOST, texts_order::LEAST));
    t.zero =
        static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(rest, zero)));
    t.odd = _mm256_movemask_pd(_mm256_castsi256_pd(d.odd));
    return t;
}

TARGET inline texts spell_four(const std::uint32_t *x)
{
    return spell(find(x));
}

TARGET inline char *put_one(char *out, std::uint32_t bits, const texts &t, int n)
{
    const std::uint32_t used = ~t.zero >> 8 * n & 255;
    const auto &o = ORDERS.row[t.place[n]][33 - _lzcnt_u32(used)];

    *out = '-';
    out += bits >> 31;
    store(out, _mm_shuffle_epi8(both(t.rest[n], t.tail[n]), load(o.from)));
    return out + o.size;
}

/* Where one of the four is odd: each by itself. */
TARGET __attribute__((noinline)) char *put_odd(char *out, const std::uint32_t *x,
                                               const texts &t)
{
    for (int n = 0; n < LANES; n++) {
        float value;

        std::memcpy(&value, x + n, sizeof value);
        out = (t.odd >> n & 1) ? one_by_one(out, &value, 1) : put_one(out, x[n], t, n);
    }
    return out;
}

TARGET inline char *put_four(char *out, const std::uint32_t *x, const texts &t)
{
    if (__builtin_expect(t.odd, 0))
        return put_odd(out, x, t);
#pragma GCC unroll 4
    for (int n = 0; n < LANES; n++)
        out = put_one(out, x[n], t, n);
    return out;
}

/* Two fours side by side: one waits for its products while the other goes on. */
TARGET inline char *put_eight(char *out, const float *x)
{
    std::uint32_t bits[BLOCK];

    std::memcpy(bits, x, sizeof bits);
    const texts t = spell_four(bits), u = spell_four(bits + LANES);

    return put_four(put_four(out, bits, t), bits + LANES, u);
}

TARGET char *put_many(char *out, const float *x, std::size_t count)
{
    while (count >= BLOCK) {
        const std::size_t same = count_same(x, count),
                          now = same > 0 ? same : std::size_t{BLOCK};

        out = same > 0 ? put_same(out, x, same) : put_eight(out, x);
        x += now;
        count -= now;
    }
    if (count >= LANES) {
        std::uint32_t bits[LANES];

        std::memcpy(bits, x, sizeof bits);
        out = put_four(out, bits, spell_four(bits));
        x += LANES;
        count -= LANES;
    }
    return one_by_one(out, x, count);
}

} // namespace

extern "C" char *api_number_run_f32(char *out, const float *x, size_t count)
{
    static const bool usable = are_usable();

    return (usable ? put_many(out, x, count) : one_by_one(out, x, count)) - (count > 0);
}

#else

extern "C" char *api_number_run_f32(char *out, const float *x, size_t count)
{
    return api_lanes::one_by_one(out, x, count) - (count > 0);
}

#endif
