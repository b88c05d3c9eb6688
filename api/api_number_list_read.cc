/*
 * api_number_list_read.cc - the numbers of a text that was checked, one after the other.
 * Not here: the check (api_number_list.cc), numbers of rare forms (api_number.cc).
 * Start reading at read_list, then read_token.
 *
 * Reading one number is short; waiting for its end before the next can begin is what
 * takes time, and so do branches that are guessed wrong.  So ends, points and exponents
 * of 64 bytes are found at once, and neither a sign nor how many digits stand where is a
 * branch: the last 16 bytes of a number are loaded, and a mask keeps its digits.
 */
#include <cstddef>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "api/api_number.h"
#include "api/api_number_value.h"

namespace
{

using namespace api_number_value;

inline bool is_between(char c)
{
    return c == ',' || c == ' ' || c == '[' || c == ']' || c == '\n' || c == '\r' ||
           c == '\t';
}

/* Of what can begin a value: one comparison, as a sign is not to be guessed. */
inline bool begins_number(char c)
{
    return c >= '-' && c <= '9';
}

/* The number that begins at p, of any form: where it ends, or NULL. */
inline const char *read_one(const char *p, const char *end, double *x)
{
    return api_number_read_f64(&p, end, x) == API_NUMBER_OK ? p : nullptr;
}

inline const char *read_one(const char *p, const char *end, float *x)
{
    return api_number_read_f32(&p, end, x) == API_NUMBER_OK ? p : nullptr;
}

#ifdef __SSE2__

using word = std::uint64_t;
enum { BLOCK = 64, VECTOR = 16, BEFORE = 2 * VECTOR, SHORT = 12 };

struct marks { /* bit n is byte n of the block */
    word between, point, e;
};

inline word bits(__m128i equal)
{
    return static_cast<word>(_mm_movemask_epi8(equal));
}

inline __m128i is(__m128i text, char c)
{
    return _mm_cmpeq_epi8(text, _mm_set1_epi8(c));
}

/* Of text up to the first letter or quote that is no number's: there, whatever is not
   above the blank is one, and the brackets differ in the bits of 6. */
inline marks marks_of(const char *p)
{
    marks m{};

#pragma GCC unroll 4
    for (int n = 0; n < BLOCK; n += VECTOR) {
        const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p + n));
        const __m128i blank = _mm_cmplt_epi8(text, _mm_set1_epi8(' ' + 1));
        const __m128i bracket = is(_mm_or_si128(text, _mm_set1_epi8(6)), '[' | 6);

        m.between |= bits(_mm_or_si128(_mm_or_si128(blank, bracket), is(text, ','))) << n;
        m.point |= bits(is(text, '.')) << n;
        m.e |= bits(is(_mm_or_si128(text, _mm_set1_epi8(0x20)), 'e')) << n;
    }
    return m;
}

/* 16 bytes from 16 + n keep the last n of 16 bytes, less '0'; those from n keep of the 16
   bytes before them what n has left. */
struct keep {
    unsigned char of[2 * VECTOR + DIGITS_MAX + VECTOR];
};

constexpr keep make_keep()
{
    keep k{};

    for (std::size_t n = 2 * VECTOR; n < sizeof k.of; n++)
        k.of[n] = 0x0f;
    return k;
}

constexpr keep KEEP = make_keep();

inline __m128i load(const void *p)
{
    return _mm_loadu_si128(static_cast<const __m128i *>(p));
}

/* The digits of 16 bytes before `end`, which is the token's end or 16 before it: `behind`
   the point, and those before it from a byte earlier, as if it were not there. */
inline __m128i without_point(const char *end, const unsigned char *all,
                             const unsigned char *behind)
{
    const __m128i fraction = load(behind), whole = _mm_andnot_si128(fraction, load(all));

    return _mm_or_si128(_mm_and_si128(load(end - VECTOR), fraction),
                        _mm_and_si128(load(end - VECTOR - 1), whole));
}

/* Sixteen digits as two numbers of eight, the first in the lower half. */
inline word eights_of(__m128i digits)
{
    const __m128i tens =
        _mm_mullo_epi16(_mm_and_si128(digits, _mm_set1_epi16(0xff)), _mm_set1_epi16(10));
    const __m128i twos = _mm_add_epi16(tens, _mm_srli_epi16(digits, 8));
    const __m128i fours = _mm_madd_epi16(twos, _mm_set1_epi32(1 << 16 | 100));
    const __m128i packed = _mm_packs_epi32(fours, fours);

    return static_cast<word>(
        _mm_cvtsi128_si64(_mm_madd_epi16(packed, _mm_set1_epi32(1 << 16 | 10000))));
}

/* The number that `all` digits before `end` are, `behind` of them behind a point. */
inline word digits_value(const char *end, std::size_t all, std::size_t behind)
{
    const unsigned char *const keep_all = KEEP.of + all, *keep_behind = KEEP.of + behind;
    word eights = eights_of(without_point(end, keep_all + VECTOR, keep_behind + VECTOR));
    word value = (eights & 0xffffffff) * 100000000 + (eights >> 32);

    if (all > SHORT) {
        eights = eights_of(without_point(end - VECTOR, keep_all, keep_behind));
        value += (eights >> 32) * 10000000000000000;
    }
    return value;
}

constexpr double TENTHS[] = {1e-0, 1e-1, 1e-2, 1e-3,  1e-4,  1e-5, 1e-6,
                             1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12};
static_assert(sizeof TENTHS == (SHORT + 1) * sizeof *TENTHS, "one for each place");

template <typename bits, typename real> inline real with_sign(real x, unsigned negative)
{
    bits b;

    std::memcpy(&b, &x, sizeof b);
    b |= static_cast<bits>(negative) << (8 * sizeof b - 1);
    std::memcpy(&x, &b, sizeof b);
    return x;
}

/* At most SHORT digits, divided by a power: one operation of two doubles. */
inline bool by_few_digits(word value, unsigned behind, unsigned negative, double *x)
{
    *x = with_sign<std::uint64_t>(static_cast<double>(value) / EXACT_TENS[behind],
                                  negative);
    return true;
}

/* For a float a double need not be the nearest one: where it is more than two of its last
   bits away from the middle between floats, that does not matter. */
inline bool by_few_digits(word value, unsigned behind, unsigned negative, float *x)
{
    enum { DROPPED = 29, NEAR = 4 };
    const double about =
        with_sign<std::uint64_t>(static_cast<double>(value) * TENTHS[behind], negative);
    std::uint64_t bits;

    std::memcpy(&bits, &about, sizeof bits);
    *x = static_cast<float>(about);
    bits -= (std::uint64_t(1) << (DROPPED - 1)) - NEAR;
    return (bits & ((std::uint64_t(1) << DROPPED) - 1)) > 2 * NEAR;
}

/* The value times ten to the exponent, with the sign. */
template <typename format>
inline bool by_power(word value, int exponent, unsigned negative,
                     typename format::real *x)
{
    typename format::real size = 0;
    number n{};

    n.digits_value = value;
    n.exponent = exponent;
    const bool found = by_product<format>(n, &size);
    *x = with_sign<typename format::bits>(size, negative);
    return found;
}

/* The same where an exponent stands at p, behind its e. */
template <typename format>
__attribute__((noinline)) bool with_exponent(const char *p, const char *end, word value,
                                             unsigned behind, unsigned negative,
                                             typename format::real *x)
{
    const bool small = *p == '-';
    int size = 0;

    for (p += small || *p == '+'; p < end && size < 9999; p++)
        size = size * 10 + (*p - '0');
    return by_power<format>(value, (small ? -size : size) - static_cast<int>(behind),
                            negative, x);
}

/* 1 for '-', 0x2D, and 0 for digits, 0x30 to 0x39.  A comparison sets one byte of a
   register, and so would wait for what the number before left in the others. */
inline unsigned is_minus(char c)
{
    return ~static_cast<unsigned>(c) >> 4 & 1;
}

/* The number of `len` bytes at p, whose marks begin at bit 0; false when the slower way
   must read it.  33 bytes before its end can be read. */
template <typename format>
inline bool read_token(const char *p, unsigned len, word point, word e,
                       typename format::real *x)
{
    const word limit = word(1) << len;
    const unsigned negative = is_minus(*p);
    const auto digits_end = static_cast<unsigned>(__builtin_ctzll(e | limit));
    const auto point_at =
        static_cast<unsigned>(__builtin_ctzll(point | word(1) << digits_end));
    const bool has_point = point_at < digits_end;
    const unsigned all = digits_end - negative - has_point;
    const unsigned behind = digits_end - point_at - has_point;

    if (all > DIGITS_MAX)
        return false;
    const word value = digits_value(p + digits_end, all, has_point ? behind : all);
    if (digits_end != len)
        return with_exponent<format>(p + digits_end + 1, p + len, value, behind, negative,
                                     x);
    if (all > SHORT)
        return by_power<format>(value, -static_cast<int>(behind), negative, x);
    return by_few_digits(value, behind, negative, x);
}

/* Reads the numbers that lie in the 64 bytes at p; returns where the first is that does
   not, or something else, or a number that cannot be read: *more is false then. */
template <typename format>
inline const char *read_block(const char *p, typename format::real **x, bool *more)
{
    const marks m = marks_of(p);
    word begins = ~m.between & ~(~m.between << 1);
    word ends = m.between & ~m.between << 1;

    for (; ends != 0; begins &= begins - 1, ends &= ends - 1) {
        const int at = __builtin_ctzll(begins), until = __builtin_ctzll(ends);

        if (begins_number(p[at]) &&
            (read_token<format>(p + at, static_cast<unsigned>(until - at), m.point >> at,
                                m.e >> at, *x) ||
             read_one(p + at, p + until, *x) != nullptr)) {
            ++*x;
            continue;
        }
        *more = false;
        return p + at;
    }
    return begins != 0 ? p + __builtin_ctzll(begins) : p + BLOCK;
}

/* The same of all blocks from p on that have room around them. */
template <typename format>
inline const char *read_blocks(const char *begin, const char *p, const char *end,
                               typename format::real **x, bool *more)
{
    while (p - begin > BEFORE && end - p >= BLOCK) {
        const char *const next = read_block<format>(p, x, more);

        if (!*more || next == p) /* a number of more than 63 bytes */
            return next;
        p = next;
    }
    return p;
}

#else

template <typename format>
const char *read_blocks(const char *, const char *p, const char *,
                        typename format::real **, bool *)
{
    return p;
}

#endif

template <typename format>
std::size_t read_list(const char **text, const char *end, typename format::real *x)
{
    const char *const begin = *text, *p = begin;
    typename format::real *const first = x;
    bool more = true;

    for (;;) {
        p = read_blocks<format>(begin, p, end, &x, &more);
        while (p < end && is_between(*p))
            p++;
        if (!more || p == end || !begins_number(*p))
            break;
        const char *const next = read_one(p, end, x);
        if (next == nullptr)
            break;
        p = next;
        x++;
    }
    *text = p;
    return static_cast<std::size_t>(x - first);
}

} // namespace

extern "C" {

std::size_t api_number_list_read_f64(const char **p, const char *end, double *x)
{
    return read_list<twofold>(p, end, x);
}

std::size_t api_number_list_read_f32(const char **p, const char *end, float *x)
{
    return read_list<single>(p, end, x);
}

} // extern "C"
