/*
 * api_decimal.h - which decimal a binary float is written as (C++).
 * Not here: its text (api_number_write.cc, api_number_run.cc), the powers of ten
 * (api_powers.h).
 * Start reading at shortest.
 */
#ifndef API_DECIMAL_H
#define API_DECIMAL_H

#include <cstdint>

#include "api/api_powers.h"

namespace api_decimal
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

/*
 * Schubfach: R. Giulietti, "The Schubfach way to render doubles", 2020, sections 8 and 9.
 * Of the decimals that round to c 2^q one of least length, and of those the nearest;
 * `uneven`: c 2^q is a power of two, below which the next float is nearer than above.
 */
template <typename format> inline decimal shortest_of_any(u64 c, int q, bool uneven)
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
template <typename format> inline decimal shortest(u64 fraction, int exponent)
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

} // namespace api_decimal

#endif
