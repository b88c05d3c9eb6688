/*
 * api_number_run64.cc - many float64 with commas between, four at a time where AVX2 is.
 * Not here: one number (api_number_write.cc), the order of its bytes
 * (api_number_lanes.h).
 * Start reading at find, then four::spell.
 *
 * The text is that of api_number_write_f64, byte for byte.
 */
#include <cmath>
#include <cstdint>
#include <cstring>

#include "api/api_decimal.h"
#include "api/api_number_lanes.h"

#if defined(__x86_64__)

namespace
{

using namespace api_lanes;
using api_decimal::decimal;
using api_decimal::twofold;

enum { DIGITS = twofold::PLACES, MOST = 16, SHUFFLED = 32 };
using texts_order = orders<DIGITS, SHUFFLED, MOST>;

constexpr texts_order ORDERS = texts_order::make();
constexpr u64 EIGHT = 100000000, SIXTEEN = EIGHT * EIGHT;

struct four {
    enum { SIZE = LANES };
    struct texts {
        alignas(32) u64 rest[2][SIZE]; /* the digits behind the first              */
        alignas(32) u64 tail[2][SIZE]; /* FIRST … COMMA, HUNDRED                   */
        alignas(32) u64 place[SIZE];   /* row of ORDERS                            */
        std::uint32_t zero[2];         /* a bit for each byte of `rest` that is a 0 */
        unsigned odd;                  /* a bit for each number                    */
    };
    static void spell(const double *x, texts *t);
    static char *put_lane(char *out, double x, const texts &t, int n);
};

struct number {
    u64 first, high, low; /* 1, 8 and 8 digits */
    std::int64_t point;
    bool odd; /* the text below is not for it */
};

/* Zero, what is not finite, and whole numbers whose digits are not all in the decimal:
   2^53 and more, but not so many that they are written with an exponent. */
inline bool is_odd(u64 fraction, int exponent)
{
    enum { WHOLE = twofold::BIAS + 1, FAR = twofold::BIAS - 52 + 77 };

    return (exponent >= WHOLE && exponent <= FAR) || exponent == twofold::EXPONENT_MAX ||
           (exponent == 0 && fraction == 0);
}

inline number find(double x)
{
    u64 bits;

    std::memcpy(&bits, &x, sizeof bits);
    const u64 fraction = bits & ((u64(1) << twofold::FRACTION) - 1);
    const int exponent =
        static_cast<int>(bits >> twofold::FRACTION) & twofold::EXPONENT_MAX;

    if (__builtin_expect(is_odd(fraction, exponent), 0))
        return number{0, 0, 0, 0, true};
    const decimal d = api_decimal::shortest<twofold>(fraction, exponent);
    const int given = api_decimal::digit_count<DIGITS>(d.digits);
    const u64 digits = d.digits * api_decimal::TENS[DIGITS - given];
    const u64 first = digits / SIXTEEN, high = digits / EIGHT;

    return number{first, high - first * EIGHT, digits - high * EIGHT, given + d.exponent,
                  false};
}

TARGET inline std::uint32_t put_digits(u64 *out, lanes x)
{
    const lanes eight = eight_digits(x);

    store(out, _mm256_or_si256(eight, all(0x3030303030303030)));
    return zeros(eight);
}

/* A field of all four; through memory it would have to wait. */
template <typename field> TARGET inline lanes gather(const number *f, field of)
{
    return _mm256_set_epi64x(
        static_cast<std::int64_t>(f[3].*of), static_cast<std::int64_t>(f[2].*of),
        static_cast<std::int64_t>(f[1].*of), static_cast<std::int64_t>(f[0].*of));
}

TARGET void four::spell(const double *x, texts *t)
{
    const number f[] = {find(x[0]), find(x[1]), find(x[2]), find(x[3])};
    const lanes point = gather(f, &number::point), e = _mm256_sub_epi64(point, all(1));
    const lanes negative = less(e, _mm256_setzero_si256()), size = size_of(e, negative);
    const lanes hundred = _mm256_srli_epi64(times(size, all(5243)), 19);
    const lanes below = _mm256_sub_epi64(size, times(hundred, all(100)));

    t->zero[0] = put_digits(t->rest[0], gather(f, &number::high));
    t->zero[1] = put_digits(t->rest[1], gather(f, &number::low));
    store(t->tail[0], tail(gather(f, &number::first), below, negative));
    store(t->tail[1], _mm256_add_epi64(hundred, all('0')));
    store(t->place, _mm256_sub_epi64(place_of(point, MOST, texts_order::LEAST),
                                     less(all(99), size)));
    t->odd = 0;
    for (unsigned n = 0; n < SIZE; n++)
        t->odd |= unsigned{f[n].odd} << n;
}

/* Of 32 bytes in two words those that `from` names: 0x70 and more make a byte 0. */
TARGET inline __m128i pick(__m128i rest, __m128i tail, __m128i from)
{
    return _mm_or_si128(_mm_shuffle_epi8(rest, _mm_add_epi8(from, _mm_set1_epi8(0x70))),
                        _mm_shuffle_epi8(tail, _mm_sub_epi8(from, _mm_set1_epi8(16))));
}

TARGET inline char *four::put_lane(char *out, double x, const texts &t, int n)
{
    const std::uint32_t used = (~t.zero[0] >> 8 * n & 255) | (~t.zero[1] >> 8 * n & 255)
                                                                 << 8;
    const auto &o = ORDERS.row[t.place[n]][33 - _lzcnt_u32(used)];
    const __m128i rest = both(t.rest[0][n], t.rest[1][n]),
                  tail = both(t.tail[0][n], t.tail[1][n]);

    *out = '-';
    out += std::signbit(x);
    store(out, pick(rest, tail, load(o.from)));
    store(out + 16, pick(rest, tail, load(o.from + 16)));
    return out + o.size;
}

} // namespace

extern "C" char *api_number_run_f64(char *out, const double *x, size_t count)
{
    static const bool usable = are_usable();

    return (usable ? put_many<four>(out, x, count) : one_by_one(out, x, count)) -
           (count > 0);
}

#else

extern "C" char *api_number_run_f64(char *out, const double *x, size_t count)
{
    return api_lanes::one_by_one(out, x, count) - (count > 0);
}

#endif
