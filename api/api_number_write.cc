/*
 * api_number_write.cc - binary floats to the shortest decimal that reads back the same.
 * Not here: many float32 at once (api_number_run.cc), reading (api_number.cc), where
 * numbers stand in an answer (api_write.c).
 * Start reading at shortest, then put_decimal.
 *
 * The text is that of std::to_chars, byte for byte; it is made here because tensors are
 * millions of numbers and this takes two thirds of the time.
 */
#include <cmath>
#include <cstdint>
#include <cstring>

#include "api/api_number.h"
#include "api/api_powers.h"

namespace
{

using api_powers::log2_of;
using api_powers::power_of_ten;
using api_powers::wide;
using u64 = std::uint64_t;

struct decimal { /* digits times 10^exponent */
    u64 digits;
    int exponent;
};

/* What differs between the formats.  `digits`: a word with a byte for each decimal digit
   but the first.  times(k, x): 10^k x 2^(63 - log2_of(k)), cut above a wide; what it
   may be too large by is below MARGIN 2^-60. */
struct single {
    using real = float;
    using bits = std::uint32_t;
    using digits = u64;
    enum { FRACTION = 23, EXPONENT_MAX = 255, BIAS = 150, PLACES = 9 };
    static constexpr u64 MARGIN = 1 << 26;

    static wide times(int k, u64 x)
    {
        return static_cast<wide>(power_of_ten(k).hi + 1) * x;
    }
    /* Without its last bit, which says whether anything was cut off. */
    static u64 to_odd(int k, u64 x)
    {
        const wide p = times(k, x);

        return static_cast<u64>(p >> 64) | (static_cast<std::uint32_t>(p >> 32) > 1);
    }
};

struct twofold {
    using real = double;
    using bits = u64;
    using digits = wide;
    enum { FRACTION = 52, EXPONENT_MAX = 2047, BIAS = 1075, PLACES = 17 };
    static constexpr u64 MARGIN = 8;

    static wide times(int k, u64 x)
    {
        const api_powers::power &g = power_of_ten(k);
        const u64 lo = g.lo + 1, hi = g.hi + (lo == 0);

        return static_cast<wide>(hi) * x + (static_cast<wide>(lo) * x >> 64);
    }
    static u64 to_odd(int k, u64 x)
    {
        const wide p = times(k, x);

        return static_cast<u64>(p >> 64) | (static_cast<u64>(p) > 1);
    }
};

/* ---- which decimal ---- */

/*
 * Schubfach: R. Giulietti, "The Schubfach way to render doubles", 2020, sections 8 and 9.
 * Of the decimals that round to c 2^q one of least length, and of those the nearest;
 * `uneven`: c 2^q is a power of two, below which the next float is nearer than above.
 */
template <typename format> decimal shortest_of_any(u64 c, int q, bool uneven)
{
    const int k = (q * 1262611 - (uneven ? 524031 : 0)) >> 22;
    const int h = q + log2_of(-k) + 1;
    const u64 open =
        c & 1; /* ties round to even: do the ends of c's interval belong to c? */
    const u64 lower = format::to_odd(-k, (4 * c - 2 + uneven) << h) + open;
    const u64 middle = format::to_odd(-k, 4 * c << h);
    const u64 upper = format::to_odd(-k, (4 * c + 2) << h) - open;
    const u64 s = middle / 4, tens = s / 10, half = 4 * s + 2;

    if (s >= 10) {
        const bool under = lower <= 40 * tens, over = 40 * tens + 40 <= upper;

        if (under != over)
            return decimal{tens + over, k + 1};
    }
    const bool under = lower <= 4 * s, over = 4 * s + 4 <= upper;
    if (under != over)
        return decimal{s + over, k};
    return decimal{s + (middle > half || (middle == half && (s & 1))), k};
}

/*
 * The same decimal with one product instead of three, for normal numbers that are no
 * power of two.  c 2^q 10^-k is s and a fraction; the interval reaches `reach` to both
 * sides, at least 1/2 and less than 5, so s or s + 1 reads back, and at most one multiple
 * of ten. Where the product's error could turn a comparison, the long way is taken.
 * Fractions are in units of 2^-60.
 */
template <typename format> decimal shortest(u64 fraction, int exponent)
{
    const u64 hidden = u64(1) << format::FRACTION, one = u64(1) << 60;
    const u64 c = exponent != 0 ? hidden | fraction : fraction;
    const int q = (exponent != 0 ? exponent : 1) - format::BIAS;

    if (q <= 0 && -q <= format::FRACTION && (c & ((u64(1) << -q) - 1)) == 0)
        return decimal{c >> -q, 0};
    if (fraction == 0 || exponent == 0)
        return shortest_of_any<format>(c, q, fraction == 0 && exponent > 1);

    const int k = q * 1262611 >> 22, h = q + log2_of(-k) + 1;
    const wide product = format::times(-k, c << h);
    const u64 s = static_cast<u64>(product >> 64), tens = s / 10;
    const u64 part = static_cast<u64>(product) >> 4;
    const u64 down = (s - 10 * tens) * one + part, up = 10 * one - down;
    const u64 reach = power_of_ten(-k).hi >> (5 - h);
    const u64 from = reach - format::MARGIN, unsure = 2 * format::MARGIN;

    if ((down - from <= unsure) | (up - from <= unsure) |
        (part - (one / 2 - format::MARGIN) <= unsure))
        return shortest_of_any<format>(c, q, false);
    const u64 over = up < reach,
              ten = 0 - ((down < reach) | over); /* all bits, or none */
    return decimal{((tens + over) & ten) | ((s + (part > one / 2)) & ~ten),
                   k + static_cast<int>(ten & 1)};
}

/* ---- its digits ---- */

constexpr u64 EIGHT = 100000000, SIXTEEN = EIGHT * EIGHT;

/* Eight digits as the bytes of a word, the first one lowest: 4 and 4, 2 and 2, 1 and 1,
   each step for all parts of the word at once. */
inline u64 eight_digits(u64 x)
{
    const u64 high = x * 109951163 >> 40; /* x / 10000 */
    const u64 fours = high | (x - 10000 * high) << 32;
    const u64 hundreds = fours * 10486 >> 20 & 0x0000007f0000007f;
    const u64 twos = (fours - 100 * hundreds) << 16 | hundreds;
    const u64 tens = twos * 103 >> 10 & 0x000f000f000f000f;

    return (twos - 10 * tens) << 8 | tens;
}

inline void digits_of(u64 x, u64 *first, u64 *rest)
{
    *first = x / EIGHT;
    *rest = eight_digits(x - *first * EIGHT);
}

inline void digits_of(u64 x, u64 *first, wide *rest)
{
    const u64 high = x / EIGHT;

    *first = x / SIXTEEN;
    *rest = static_cast<wide>(eight_digits(x - high * EIGHT)) << 64 |
            eight_digits(high - *first * EIGHT);
}

/* Bytes are counted from below after a swap: counting from above is slow before AVX2. */
inline int zeros_behind(u64 digits)
{
    return digits == 0 ? 8 : __builtin_ctzll(__builtin_bswap64(digits)) >> 3;
}

inline int zeros_behind(wide digits)
{
    const u64 high = static_cast<u64>(digits >> 64);

    return high != 0 ? zeros_behind(high) : 8 + zeros_behind(static_cast<u64>(digits));
}

/* Without the first `skip` digits, 0 to all of them. */
inline u64 shifted(u64 digits, int skip)
{
    return skip < 8 ? digits >> 8 * skip : 0;
}

inline wide shifted(wide digits, int skip)
{
    return skip < 16 ? digits >> 8 * skip : 0;
}

inline void put(char *out, u64 digits)
{
    digits |= 0x3030303030303030;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    digits = __builtin_bswap64(digits);
#endif
    std::memcpy(out, &digits, sizeof digits);
}

inline void put(char *out, wide digits)
{
    put(out, static_cast<u64>(digits));
    put(out + 8, static_cast<u64>(digits >> 64));
}

constexpr u64 TENS[] = {
    1u,
    10u,
    100u,
    1000u,
    10000u,
    100000u,
    1000000u,
    10000000u,
    100000000u,
    1000000000u,
    10000000000u,
    100000000000u,
    1000000000000u,
    10000000000000u,
    100000000000000u,
    1000000000000000u,
    10000000000000000u,
    100000000000000000u,
};

/* Normal numbers have at most two digits less than there are places. */
template <int places> inline int digit_count(u64 x)
{
    if (x >= TENS[places - 3])
        return places - 2 + (x >= TENS[places - 2]) + (x >= TENS[places - 1]);
    const int near = (64 - __builtin_clzll(x)) * 1233 >> 12; /* log10(2) */
    return near + (x >= TENS[near]);
}

/* ---- its text ---- */

template <typename word> struct row { /* a decimal: the first digit is not 0 */
    char first;
    word rest;
    int count; /* digits up to the last one that is not 0 */
    int point; /* digits before the point; <= 0: so many zeros behind it */
};

template <typename word> char *put_scientific(char *out, const row<word> &r)
{
    const int e = r.point - 1, size = e < 0 ? -e : e;

    out[0] = r.first;
    out[1] = '.';
    put(out + 2, r.rest);
    out += r.count > 1 ? r.count + 1 : 1;
    *out++ = 'e';
    *out++ = e < 0 ? '-' : '+';
    if (size >= 100)
        *out++ = static_cast<char>('0' + size / 100);
    *out++ = static_cast<char>('0' + size / 10 % 10);
    *out++ = static_cast<char>('0' + size % 10);
    return out;
}

/* 0.000ddd or dd.ddd or dddd.  Both kinds make the same writes: where numbers lie on both
   sides of 1, a branch would be guessed wrong half of the time. */
template <typename word> inline char *put_fixed(char *out, const row<word> &r)
{
    const int below = -(r.point <= 0); /* all bits, or none */
    const int start = (2 - r.point) & below, point = (r.point & ~below) | (1 & below);
    const int end = start + r.count + (~below & (r.count > r.point));

    std::memcpy(out, "0.000000", 8);
    out[start] = r.first;
    put(out + start + 1, r.rest);
    put(out + point + 1 + ((start - 1) & below), shifted(r.rest, point - 1));
    out[point] = '.';
    return out + (end > r.point ? end : r.point);
}

/* A whole number below 10^24, with its own digits. */
char *put_whole(char *out, wide x)
{
    char text[24];
    const u64 high = static_cast<u64>(x / SIXTEEN), low = static_cast<u64>(x % SIXTEEN);
    int first = 0;

    put(text, eight_digits(high));
    put(text + 8, eight_digits(low / EIGHT));
    put(text + 16, eight_digits(low % EIGHT));
    while (text[first] == '0')
        first++;
    std::memcpy(out, text + first, sizeof text - static_cast<std::size_t>(first));
    return out + sizeof text - first;
}

/* Fixed where it is not longer than scientific. */
template <typename format>
inline char *put_decimal(char *out, typename format::real x, decimal d)
{
    const int given = digit_count<format::PLACES>(d.digits);
    row<typename format::digits> r;
    u64 first;

    digits_of(d.digits * TENS[format::PLACES - given], &first, &r.rest);
    r.first = static_cast<char>('0' + first);
    r.count = format::PLACES - zeros_behind(r.rest);
    r.point = given + d.exponent;

    const bool alone = r.count == 1;
    const int exponent = r.point - r.count;
    if (exponent < -(r.count + 3) + alone || exponent > 5 - alone)
        return put_scientific(out, r);
    if (exponent > 0)
        return put_whole(out, static_cast<wide>(std::fabs(x)));
    return put_fixed(out, r);
}

template <std::size_t size> inline char *put_word(char *out, const char (&word)[size])
{
    std::memcpy(out, word, size - 1);
    return out + size - 1;
}

/* The sign of zero is written with a fraction: readers that make "-0" an integer would
   lose it. */
template <typename format> inline char *write(char *out, typename format::real x)
{
    typename format::bits bits;

    std::memcpy(&bits, &x, sizeof bits);
    const u64 fraction = bits & ((u64(1) << format::FRACTION) - 1);
    const int exponent =
        static_cast<int>(bits >> format::FRACTION) & format::EXPONENT_MAX;
    const bool negative = bits >> (sizeof bits * 8 - 1);

    if (exponent == format::EXPONENT_MAX && fraction != 0)
        return put_word(out, "\"NaN\"");
    if (exponent == format::EXPONENT_MAX)
        return negative ? put_word(out, "\"-Infinity\"") : put_word(out, "\"Infinity\"");
    if (fraction == 0 && exponent == 0)
        return negative ? put_word(out, "-0.0") : put_word(out, "0");
    *out = '-';
    return put_decimal<format>(out + negative, x, shortest<format>(fraction, exponent));
}

} // namespace

extern "C" {

size_t api_number_write_f64(char *out, double x)
{
    return static_cast<size_t>(write<twofold>(out, x) - out);
}

size_t api_number_write_f32(char *out, float x)
{
    return static_cast<size_t>(write<single>(out, x) - out);
}

char *api_number_run_f64(char *out, const double *x, size_t count)
{
    for (size_t n = 0; n < count; n++) {
        out = write<twofold>(out, x[n]);
        *out++ = ',';
    }
    return out - (count > 0);
}

} // extern "C"
