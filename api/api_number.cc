/*
 * api_number.cc - JSON numbers to binary floats, correctly rounded.
 * Not here: many numbers at once (api_number_list.cc, api_number_list_read.cc), writing
 * (api_number_write.cc).
 * Start reading at scan, the grammar of RFC 8259 section 6, then read.
 */
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "api/api_number.h"
#include "api/api_number_value.h"

namespace
{

using namespace api_number_value;

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Is a number that no float of this type holds too large?  Otherwise it is too small:
   nearest 0. The place of the first digit that is not 0, plus the exponent, decides. */
bool is_too_large(const char *p, const char *end)
{
    const long long far = std::numeric_limits<long long>::max() / 4;
    long long place = 0, exponent = 0;
    bool after_point = false, found = false;

    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.')
            after_point = true;
        else if (is_digit(*p)) {
            found = found || *p != '0';
            if (found && !after_point)
                place++;
            if (!found && after_point)
                place--;
        }
    }
    if (p < end) {
        const bool negative = p[1] == '-';

        for (p += (p[1] == '-' || p[1] == '+') ? 2 : 1; p < end; p++)
            exponent = exponent > far / 10 ? far : exponent * 10 + (*p - '0');
        exponent = negative ? -exponent : exponent;
    }
    return place + exponent > 0;
}

/* ---- grammar ---- */

constexpr std::uint64_t ZEROS = 0x3030303030303030;

/* The high bit of the first byte of a word that is no digit, and of some behind it. */
inline std::uint64_t other_than_digits(std::uint64_t word)
{
    return ((word + 0x4646464646464646) | (word - ZEROS)) & 0x8080808080808080;
}

/* 1 and 1, 2 and 2, 4 and 4: each step for all parts of the word at once. */
inline std::uint64_t eight_digits(std::uint64_t word)
{
    word = word * 10 + (word >> 8);
    return ((word & 0x000000ff000000ff) * 0x000f424000000064 +
            (word >> 16 & 0x000000ff000000ff) * 0x0000271000000001) >>
           32;
}

/* Goes over digits and adds them to the value, which may pass 64 bits.  Up to eight at
   once: how many there are is not guessed.  Without `read` only the end is wanted. */
template <bool read>
inline const char *add_digits(const char *p, const char *end, std::uint64_t *value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    static constexpr std::uint64_t TENS[] = {1,      10,      100,      1000,     10000,
                                             100000, 1000000, 10000000, 100000000};

    while (end - p >= 8) {
        std::uint64_t word;

        std::memcpy(&word, p, sizeof word);
        const std::uint64_t other = other_than_digits(word);
        if (other == 0) {
            if (read)
                *value = *value * TENS[8] + eight_digits(word - ZEROS);
            p += 8;
            continue;
        }
        const int count = __builtin_ctzll(other) >> 3;
        if (read)
            *value = *value * TENS[count] +
                     eight_digits((word - ZEROS) << 8 * (7 - count) << 8);
        return p + count;
    }
#endif
    for (; p < end && is_digit(*p); p++)
        *value = *value * 10 + static_cast<unsigned>(*p - '0');
    return p;
}

/* The same for a part that is short in most numbers. */
template <bool read>
inline const char *add_few_digits(const char *p, const char *end, std::uint64_t *value)
{
    for (int n = 0; n < 4; n++, p++) {
        if (p == end || !is_digit(*p))
            return p;
        *value = *value * 10 + static_cast<unsigned>(*p - '0');
    }
    return add_digits<read>(p, end, value);
}

/* Exponents beyond any float stay beyond it. */
inline const char *add_exponent(const char *p, const char *end, int *exponent)
{
    const bool negative = p < end && *p == '-';
    int size = 0;

    if (p < end && (*p == '+' || *p == '-'))
        p++;
    const char *begin = p;

    for (; p < end && is_digit(*p); p++)
        size = size > 9999 ? size : size * 10 + (*p - '0');
    *exponent += negative ? -size : size;
    return p == begin ? nullptr : p;
}

/* One JSON number at p; false when none begins there. */
template <bool read> inline bool scan(const char *p, const char *end, number *n)
{
    *n = number{};
    if (p < end && *p == '-')
        p++;
    if (p == end || !is_digit(*p))
        return false;
    const char *whole = p;

    p = *p == '0' ? p + 1 : add_few_digits<read>(p, end, &n->digits_value);
    n->digits = *whole == '0' ? 0 : p - whole;
    if (p < end && *p == '.') {
        const char *fraction = p + 1, *first = fraction;

        p = add_digits<read>(fraction, end, &n->digits_value);
        if (p == fraction)
            return false;
        while (read && n->digits == 0 && first < p && *first == '0')
            first++;
        n->digits += p - first;
        n->exponent = -static_cast<int>(p - fraction);
    }
    if (p < end && (*p == 'e' || *p == 'E'))
        p = add_exponent(p + 1, end, &n->exponent);
    n->end = p;
    return p != nullptr;
}

/* ---- value ---- */

template <typename real>
enum api_number_result by_library(const char *begin, const char *stop, real *x)
{
    const std::from_chars_result got = std::from_chars(begin, stop, *x);

    if (got.ec == std::errc() && std::isfinite(*x))
        return API_NUMBER_OK;
    if (is_too_large(begin, stop))
        return API_NUMBER_RANGE;
    *x = *begin == '-' ? -real(0) : real(0);
    return API_NUMBER_OK;
}

template <typename format>
enum api_number_result read(const char **p, const char *end, typename format::real *x)
{
    const char *const begin = *p;
    number n;

    if (!scan<true>(begin, end, &n))
        return API_NUMBER_NOT_JSON;
    *p = n.end;
    if (n.digits > DIGITS_MAX || (!by_one_operation(n, x) && !by_product<format>(n, x)))
        return by_library(begin, n.end, x);
    if (*begin == '-')
        *x = -*x;
    return API_NUMBER_OK;
}

} // namespace

extern "C" {

const char *api_number_end(const char *p, const char *end)
{
    number n;

    return scan<false>(p, end, &n) ? n.end : nullptr;
}

enum api_number_result api_number_read_f64(const char **p, const char *end, double *x)
{
    return read<twofold>(p, end, x);
}

enum api_number_result api_number_read_f32(const char **p, const char *end, float *x)
{
    return read<single>(p, end, x);
}

} // extern "C"
