/*
 * api_number_value.h - the float nearest to a whole number times a power of ten (C++).
 * Not here: where its digits come from (api_number.cc, api_number_list_read.cc).
 * Start reading at by_one_operation, then by_product.
 */
#ifndef API_NUMBER_VALUE_H
#define API_NUMBER_VALUE_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "api/api_powers.h"

namespace api_number_value
{

using api_powers::wide;

struct number { /* digits_value 10^exponent, when it has at most DIGITS_MAX digits */
    std::uint64_t digits_value;
    int exponent;
    std::ptrdiff_t digits; /* zeros in front not counted */
    const char *end;
};
enum { DIGITS_MAX = 19 };

constexpr double EXACT_TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

struct single {
    using real = float;
    using bits = std::uint32_t;
    enum { PRECISION = 24, BIAS = 127 };
};

struct twofold {
    using real = double;
    using bits = std::uint64_t;
    enum { PRECISION = 53, BIAS = 1023 };
};

/* Where digits and power are doubles, one operation rounds once (Clinger 1990). */
inline bool by_one_operation(const number &n, double *x)
{
    if (n.digits_value >> 53 != 0 || n.exponent < -22 || n.exponent > 22)
        return false;
    *x = static_cast<double>(n.digits_value);
    if (n.exponent < 0)
        *x /= EXACT_TENS[-n.exponent];
    else
        *x *= EXACT_TENS[n.exponent];
    return true;
}

/* Rounded once more, which is wrong only where the double lies half way between floats
   and its own rounding brought it there. */
inline bool by_one_operation(const number &n, float *x)
{
    const std::uint64_t dropped = (std::uint64_t(1) << 29) - 1;
    std::uint64_t bits;
    double wide_x;

    if (!by_one_operation(n, &wide_x))
        return false;
    std::memcpy(&bits, &wide_x, sizeof bits);
    *x = static_cast<float>(wide_x);
    return n.digits_value == 0 || ((bits & dropped) != std::uint64_t(1) << 28 &&
                                   wide_x >= std::numeric_limits<float>::min() &&
                                   wide_x <= std::numeric_limits<float>::max());
}

/*
 * The digits times 128 bits of the power, as Lemire 2021 does it ("Number parsing at a
 * gigabyte per second").  The product is cut, and below the true one by less than 4 of
 * its last bit: false where that leaves open which float is nearest, and for what is
 * not a normal float below the largest power of 2.  Rounding adds what stands behind the
 * last bit to it: a branch there would be guessed wrong half of the time.
 */
template <typename format>
inline bool by_product(const number &n, typename format::real *x)
{
    enum { BEHIND = 64 - format::PRECISION };
    const std::uint64_t half = std::uint64_t(1) << (BEHIND - 1);
    const int k = n.exponent;

    if (k < api_powers::LEAST || k > api_powers::MOST || n.digits_value == 0)
        return false;
    const int zeros = __builtin_clzll(n.digits_value);
    const std::uint64_t digits = n.digits_value << zeros;
    const api_powers::power &g = api_powers::power_of_ten(k);
    const wide most = static_cast<wide>(g.hi) * digits;
    const auto more = static_cast<std::uint64_t>(static_cast<wide>(g.lo) * digits >> 64);
    const std::uint64_t next = static_cast<std::uint64_t>(most) + more;
    const std::uint64_t top = static_cast<std::uint64_t>(most >> 64) + (next < more);
    const std::uint64_t shift = ~top >> 63;
    const std::uint64_t high = top << shift | (next >> 63 & shift), low = next << shift;
    const std::uint64_t rest = high & (2 * half - 1);

    if (low + 3 <= 3 && rest == (low == 0 ? half : half - 1))
        return false;
    const std::uint64_t fraction = (high >> BEHIND) + (high >> (BEHIND - 1) & 1);
    const int exponent =
        api_powers::log2_of(k) + 64 - zeros - static_cast<int>(shift) + format::BIAS;

    if (exponent < 1 || exponent >= 2 * format::BIAS)
        return false;
    /* The first bit of the fraction counts one in the exponent, and so does its carry. */
    const auto bits = static_cast<typename format::bits>(
        (static_cast<std::uint64_t>(exponent - 1) << (format::PRECISION - 1)) + fraction);
    std::memcpy(x, &bits, sizeof bits);
    return true;
}

} // namespace api_number_value

#endif
