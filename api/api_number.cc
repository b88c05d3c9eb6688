/*
 * api_number.cc - JSON numbers to and from binary floats: std::to_chars and
 * std::from_chars.
 * Not here: where numbers stand in a request (api_tensor.c), how tensors are written.
 * Start reading at api_number_end, the grammar of RFC 8259 section 6.
 */
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "api/api_number.h"

namespace
{

size_t write_quoted(char *out, const char *text)
{
    const size_t len = std::strlen(text);

    std::memcpy(out, text, len);
    return len;
}

/* The sign of zero is written with a fraction: readers that make "-0" an integer would
   lose it. */
template <typename real> size_t write(char *out, real x)
{
    if (std::isnan(x))
        return write_quoted(out, "\"NaN\"");
    if (std::isinf(x))
        return write_quoted(out, x > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    if (x == 0 && std::signbit(x))
        return write_quoted(out, "-0.0");
    return static_cast<size_t>(std::to_chars(out, out + API_NUMBER_MAX, x).ptr - out);
}

bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

const char *skip_digits(const char *p, const char *end)
{
    while (p < end && is_digit(*p))
        p++;
    return p;
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

template <typename real>
enum api_number_result read(const char **p, const char *end, real *x)
{
    const char *stop = api_number_end(*p, end);

    if (stop == nullptr)
        return API_NUMBER_NOT_JSON;
    const std::from_chars_result got = std::from_chars(*p, stop, *x);
    const char *begin = *p;

    *p = stop;
    if (got.ec == std::errc() && std::isfinite(*x))
        return API_NUMBER_OK;
    if (is_too_large(begin, stop))
        return API_NUMBER_RANGE;
    *x = *begin == '-' ? -real(0) : real(0);
    return API_NUMBER_OK;
}

} // namespace

extern "C" {

const char *api_number_end(const char *p, const char *end)
{
    if (p < end && *p == '-')
        p++;
    if (p == end || !is_digit(*p))
        return nullptr;
    p = *p == '0' ? p + 1 : skip_digits(p, end);
    if (p < end && *p == '.') {
        const char *fraction = p + 1;

        p = skip_digits(fraction, end);
        if (p == fraction)
            return nullptr;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
        const char *exponent = p;

        p = skip_digits(exponent, end);
        if (p == exponent)
            return nullptr;
    }
    return p;
}

size_t api_number_write_f64(char *out, double x)
{
    return write(out, x);
}

size_t api_number_write_f32(char *out, float x)
{
    return write(out, x);
}

enum api_number_result api_number_read_f64(const char **p, const char *end, double *x)
{
    return read(p, end, x);
}

enum api_number_result api_number_read_f32(const char **p, const char *end, float *x)
{
    return read(p, end, x);
}

} // extern "C"
