/*
 * api_number_lanes.h - runs of numbers, four side by side in AVX2: their digits, the
 * order of their bytes (C++; one by one on other processors).
 * Not here: which decimals (api_number_run32.cc, api_number_run64.cc).
 * Start reading at order.
 *
 * One number at a time, most of the time goes into branches that are guessed wrong: how
 * many digits, where the point stands, how many zeros go.  Here none of it is a branch:
 * the bytes of a decimal are made in a fixed order, and a shuffle that is looked up by
 * point and count puts them where they belong.
 */
#ifndef API_NUMBER_LANES_H
#define API_NUMBER_LANES_H

#include <cstddef>

#include "api/api_number.h"

namespace api_lanes
{

inline std::size_t write(char *out, float x)
{
    return api_number_write_f32(out, x);
}

inline std::size_t write(char *out, double x)
{
    return api_number_write_f64(out, x);
}

/* Numbers with a comma behind each. */
template <typename real> char *one_by_one(char *out, const real *x, std::size_t count)
{
    for (std::size_t n = 0; n < count; n++) {
        out += write(out, x[n]);
        *out++ = ',';
    }
    return out;
}

} // namespace api_lanes

#if defined(__x86_64__)
#include <cpuid.h>
#include <cstdint>
#include <cstring>
#include <immintrin.h>

#include "api/api_decimal.h"

namespace api_lanes
{

using api_decimal::u64;
using lanes = __m256i; /* four numbers in 64 bits each */

enum { LANES = 4, SAME_MAX = API_NUMBER_MAX };

/* ---- the order of the bytes ---- */

/* What follows the digits behind the first, which come first. */
enum { FIRST, POINT, E, SIGN, TEN, ONE, ZERO, COMMA, HUNDRED };
constexpr std::int64_t TAIL = 0x2c3030302b652e30; /* FIRST … COMMA, digits 0 */

template <int digits, int bytes> struct alignas(16) order {
    std::uint8_t from[bytes - 1], size; /* with the comma */

    constexpr void put(int other)
    {
        from[size++] = static_cast<std::uint8_t>(digits - 1 + other);
    }
    /* Digits begin … end - 1; before the first there are only zeros. */
    constexpr void put_digits(int begin, int end)
    {
        for (int n = begin; n < end; n++)
            if (n > 0)
                from[size++] = static_cast<std::uint8_t>(n - 1);
            else
                put(n < 0 ? ZERO : FIRST);
    }
    constexpr void put_pointed(int point, int count)
    {
        put_digits(point > 0 ? 0 : -1, point > 0 ? point : 0);
        if (count > point) {
            put(POINT);
            put_digits(point, count);
        }
    }
    constexpr void put_exponent(bool hundreds)
    {
        put(E);
        put(SIGN);
        if (hundreds)
            put(HUNDRED);
        put(TEN);
        put(ONE);
    }
};

/*
 * By the place of the point, from `most` digits before it to LEAST, and behind these two
 * rows for exponents of two and of three digits.  Fixed where it is not longer than
 * scientific.
 */
template <int digits, int bytes, int most> struct orders {
    enum { LEAST = -3, FIXED = most - LEAST + 1, ROWS = FIXED + 2 };
    order<digits, bytes> row[ROWS][digits + 1];

    static constexpr bool is_fixed(int place, int count)
    {
        const int exponent = most - place - count, alone = count == 1;

        return place < FIXED && exponent >= -(count + 3) + alone && exponent <= 5 - alone;
    }
    static constexpr orders make()
    {
        orders t{};

        for (int place = 0; place < ROWS; place++)
            for (int count = 1; count <= digits; count++) {
                order<digits, bytes> &o = t.row[place][count];
                const bool fixed = is_fixed(place, count);

                o.put_pointed(fixed ? most - place : 1, count);
                if (!fixed)
                    o.put_exponent(place == ROWS - 1);
                o.put(COMMA);
            }
        return t;
    }
};

/* ---- lanes ---- */

#define TARGET __attribute__((target("avx2,lzcnt")))

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

TARGET inline lanes load(const u64 *p)
{
    return _mm256_load_si256(reinterpret_cast<const lanes *>(p));
}

TARGET inline __m128i load(const std::uint8_t *p)
{
    return _mm_load_si128(reinterpret_cast<const __m128i *>(p));
}

TARGET inline void store(u64 *p, lanes x)
{
    _mm256_store_si256(reinterpret_cast<lanes *>(p), x);
}

TARGET inline void store(char *p, __m128i x)
{
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), x);
}

TARGET inline __m128i both(u64 low, u64 high)
{
    return _mm_set_epi64x(static_cast<std::int64_t>(high),
                          static_cast<std::int64_t>(low));
}

/* A bit for each byte that is 0. */
TARGET inline std::uint32_t zeros(lanes x)
{
    return static_cast<std::uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(x, _mm256_setzero_si256())));
}

TARGET inline lanes size_of(lanes x, lanes negative)
{
    return _mm256_sub_epi64(_mm256_xor_si256(x, negative), negative);
}

/* The row of orders<…, most> for a point of at most `most`, exponents of two digits: what
   is below `least` has a row behind all others, and so has what is below 0 unsigned. */
TARGET inline lanes place_of(lanes point, int most, int least)
{
    return _mm256_min_epu32(_mm256_sub_epi64(all(most), point), all(most - least + 1));
}

/* The bytes FIRST … COMMA; `size` of the exponent is below 100. */
TARGET inline lanes tail(lanes first, lanes size, lanes negative)
{
    const lanes ten = _mm256_srli_epi64(times(size, all(103)), 10);
    const lanes one = _mm256_sub_epi64(size, times(ten, all(10)));
    const lanes pair =
        _mm256_or_si256(_mm256_slli_epi64(ten, 8 * TEN), _mm256_slli_epi64(one, 8 * ONE));
    const lanes sign = _mm256_slli_epi64(if_so(negative, '-' - '+'), 8 * SIGN);

    return _mm256_add_epi64(_mm256_add_epi64(all(TAIL), first),
                            _mm256_add_epi64(sign, pair));
}

TARGET inline lanes every(const float *x)
{
    return _mm256_castps_si256(_mm256_broadcast_ss(x));
}

TARGET inline lanes every(const double *x)
{
    return _mm256_castpd_si256(_mm256_broadcast_sd(x));
}

TARGET inline bool is_every(lanes first, const void *x)
{
    const lanes same =
        _mm256_cmpeq_epi32(first, _mm256_loadu_si256(static_cast<const lanes *>(x)));

    return _mm256_movemask_epi8(same) == -1;
}

/* How many numbers from x on are the same, in steps of a register; masks and what they
   forbid are the same number again and again. */
template <typename real>
TARGET inline std::size_t count_same(const real *x, std::size_t count)
{
    constexpr std::size_t step = sizeof(lanes) / sizeof(real);
    const lanes first = every(x);
    std::size_t n = 0;

    while (n + step <= count && is_every(first, x + n))
        n += step;
    return n;
}

/* The first of `count` numbers that are the same, so many times. */
template <typename real> char *put_same(char *out, const real *x, std::size_t count)
{
    char text[SAME_MAX];
    const std::ptrdiff_t size = one_by_one(text, x, 1) - text;

    for (std::size_t n = 0; n < count; n++, out += size)
        std::memcpy(out, text, 4 * sizeof(real));
    return out;
}

/* The first `count` of some numbers: what is odd is written by itself. */
template <typename width, typename real>
TARGET char *put_some(char *out, const real *x, std::size_t count,
                      const typename width::texts &t)
{
    for (int n = 0; n < static_cast<int>(count); n++)
        out = (t.odd >> n & 1) ? one_by_one(out, x + n, 1)
                               : width::put_lane(out, x[n], t, n);
    return out;
}

template <typename width, typename real>
TARGET char *put_all(char *out, const real *x, const typename width::texts &t)
{
    if (__builtin_expect(t.odd, 0))
        return put_some<width>(out, x, width::SIZE, t);
#pragma GCC unroll 8
    for (int n = 0; n < width::SIZE; n++)
        out = width::put_lane(out, x[n], t, n);
    return out;
}

/*
 * Numbers with a comma behind each.  What `width` names: SIZE numbers at once, `texts` of
 * them, spell(x, &texts) and put_lane, which takes one number's text.  The next ones are
 * spelled before these are put: bytes that have just been stored are slow to load.
 */
template <typename width, typename real>
char *put_many(char *out, const real *x, std::size_t count)
{
    const std::size_t size = width::SIZE;
    typename width::texts t[2];

    while (count >= size) {
        const std::size_t same = count_same(x, count);

        if (same > 0) {
            out = put_same(out, x, same);
            x += same;
            count -= same;
            continue;
        }
        bool more = true;

        width::spell(x, &t[0]);
        for (unsigned now = 0; more; now ^= 1, x += size, count -= size) {
            more = count >= 2 * size && count_same(x + size, count - size) == 0;
            if (more)
                width::spell(x + size, &t[now ^ 1]);
            out = put_all<width>(out, x, t[now]);
        }
    }
    if (count > 0) {
        real rest[width::SIZE] = {0};

        std::memcpy(rest, x, count * sizeof *x);
        width::spell(rest, &t[0]);
        out = put_some<width>(out, rest, count, t[0]);
    }
    return out;
}

/* LZCNT is asked of the processor: not every compiler knows it by name. */
inline bool are_usable()
{
    enum { EXTENDED = 0x80000001, LZCNT = 1 << 5 };
    unsigned a, b, c, d;

    return __builtin_cpu_supports("avx2") && __get_cpuid(EXTENDED, &a, &b, &c, &d) != 0 &&
           (c & LZCNT) != 0;
}

} // namespace api_lanes

#endif
#endif
