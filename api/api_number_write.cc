/*
 * api_number_write.cc - binary floats to the shortest decimal that reads back the same.
 * Not here: which decimal (api_decimal.h), many at once (api_number_run32.cc), reading
 * (api_number.cc).
 * Start reading at put_decimal.
 *
 * The text is that of std::to_chars, byte for byte; it is made here because tensors are
 * millions of numbers and this takes two thirds of the time.
 */
#include <cmath>
#include <cstdint>
#include <cstring>

#include "api/api_decimal.h"
#include "api/api_number.h"

namespace
{

using api_decimal::decimal;
using api_decimal::digit_count;
using api_decimal::shortest;
using api_decimal::single;
using api_decimal::TENS;
using api_decimal::twofold;
using api_decimal::u64;
using api_powers::wide;

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

} // extern "C"
