/*
 * api_number_run32.h - what runs of float32 look up, however wide a register is (C++).
 * Not here: the lanes themselves (api_number_run32_avx2.cc, _avx512.cc).
 * Start reading at put_one.
 */
#ifndef API_NUMBER_RUN32_H
#define API_NUMBER_RUN32_H

#include "api/api_number_lanes.h"

#if defined(__x86_64__)

namespace api_run32
{

using namespace api_lanes;

enum { DIGITS = 9, MOST = 8, SHUFFLED = 16 };
using texts_order = orders<DIGITS, SHUFFLED + 1, MOST>;
using one_order = order<DIGITS, SHUFFLED + 1>;

constexpr texts_order ORDERS = texts_order::make();

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

inline std::uint32_t bits_of(float x)
{
    std::uint32_t bits;

    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

TARGET inline lanes scale_of(float x)
{
    return _mm256_load_si256(
        reinterpret_cast<const lanes *>(&SCALES.row[bits_of(x) >> FRACTION & 255]));
}

/* Comparisons nearer than this, in units of 2^-56, are left open by the cut product. */
constexpr std::int64_t MARGIN = (1 << 22) + 4;

/* One number from its bytes: the digits behind the first, then the tail. */
TARGET inline char *put_one(char *out, std::uint32_t bits, __m128i bytes,
                            const one_order &o)
{
    *out = '-';
    out += bits >> 31;
    store(out, _mm_shuffle_epi8(bytes, load(o.from)));
    return out + o.size;
}

/* As one_by_one. */
char *put_many_avx2(char *out, const float *x, std::size_t count);
char *put_many_avx512(char *out, const float *x, std::size_t count);

} // namespace api_run32

#endif
#endif
