/*
 * api_number_run32_avx2.cc - runs of float32, four numbers at a time.
 * Not here: what is looked up and the loop over a run (api_number_run32.h), the order of
 * the bytes (api_number_lanes.h).
 * Start reading at find, then avx2::spell.
 */
#include <cstdint>
#include <cstring>

#include "api/api_decimal.h"
#include "api/api_number_run32.h"

#if defined(__x86_64__)

namespace
{

using namespace api_run32;

struct avx2 {
    enum { SIZE = LANES };
    struct texts {
        alignas(
            32) u64 bytes[2][SIZE];  /* even numbers, odd ones: rest and tail of each */
        alignas(32) u64 place[SIZE]; /* row of ORDERS                                 */
        std::uint32_t zero;          /* a bit for each byte of a rest that is a 0     */
        int odd;                     /* a bit for each number                         */
    };
    static void spell(const float *x, texts *t);
    static char *put_lane(char *out, float x, const texts &t, int n);
};

/* ---- four decimals ---- */

/* The rows of four exponents, turned: one field of all four in each. */
TARGET inline void look_up(const float *x, lanes field[4])
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

TARGET inline lanes near_zero(lanes x)
{
    return _mm256_and_si256(less(x, all(MARGIN)), less(all(-MARGIN), x));
}

struct decimals {
    lanes digits, exponent; /* digits times 10^exponent */
    lanes odd;              /* all bits where it is not known */
};

/* The short way of api_decimal.h: what is no normal number, a power of two, too
   large for the text below or near a comparison's turn is left to that file. */
TARGET __attribute__((always_inline)) inline decimals find(const float *x)
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

TARGET void avx2::spell(const float *x, texts *t)
{
    const decimals d = find(x);
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

    const lanes text = _mm256_or_si256(rest, all(0x3030303030303030)),
                end = tail(first, size_of(e, negative), negative);
    store(t->bytes[0], _mm256_unpacklo_epi64(text, end));
    store(t->bytes[1], _mm256_unpackhi_epi64(text, end));
    store(t->place, place_of(point, MOST, texts_order::LEAST));
    t->zero = zeros(rest);
    t->odd = _mm256_movemask_pd(_mm256_castsi256_pd(d.odd));
}

TARGET inline char *avx2::put_lane(char *out, float x, const texts &t, int n)
{
    const std::uint32_t used = ~t.zero >> 8 * n & 255;
    const u64 *const bytes = &t.bytes[n & 1][n & 2];

    return put_one(out, bits_of(x), load(reinterpret_cast<const std::uint8_t *>(bytes)),
                   ORDERS.row[t.place[n]][33 - _lzcnt_u32(used)]);
}

} // namespace

char *api_run32::put_many_avx2(char *out, const float *x, std::size_t count)
{
    return put_many<avx2>(out, x, count);
}

#endif
