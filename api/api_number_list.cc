/*
 * api_number_list.cc - the grammar of many numbers with commas between, 64 bytes at once.
 * Not here: the grammar of one number and what numbers are worth (api_number.cc).
 * Start reading at api_number_list_end, then wrong.
 *
 * Each kind of character becomes a word with one bit a byte of the text, and each rule of
 * RFC 8259 section 6 a few operations on words: what must not stand behind what.  Rules
 * about a whole run of digits or blanks add the run's first bit to the run, which carries
 * it to the byte behind (Langdale and Lemire 2019, "Parsing gigabytes of JSON per
 * second", section 3.1).
 */
#include <cstddef>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "api/api_number.h"

namespace
{

#ifdef __SSE2__

using word = std::uint64_t;

constexpr word LAST = word(1) << 63;
enum { BLOCK = 64, VECTOR = 16 };

inline word bits(__m128i equal)
{
    return static_cast<word>(_mm_movemask_epi8(equal));
}

inline __m128i is(__m128i text, char c)
{
    return _mm_cmpeq_epi8(text, _mm_set1_epi8(c));
}

inline __m128i is_digit(__m128i text)
{
    const __m128i size = _mm_sub_epi8(text, _mm_set1_epi8('0'));

    return _mm_cmpeq_epi8(_mm_min_epu8(size, _mm_set1_epi8(9)), size);
}

inline __m128i is_e(__m128i text)
{
    return is(_mm_or_si128(text, _mm_set1_epi8(0x20)), 'e');
}

/* Space aside: a line's end, a tab; or else what is no blank. */
inline __m128i is_rare_blank(__m128i text)
{
    return _mm_or_si128(_mm_or_si128(is(text, '\n'), is(text, '\r')), is(text, '\t'));
}

/* 64 bytes of text.  Bit n of a word is byte n. */
class block
{
    __m128i text[BLOCK / VECTOR];

  public:
    explicit block(const char *p)
    {
        std::memcpy(text, p, sizeof text);
    }

    template <typename test> word where(test is_one) const
    {
        return bits(is_one(text[0])) | bits(is_one(text[1])) << 16 |
               bits(is_one(text[2])) << 32 | bits(is_one(text[3])) << 48;
    }

    template <typename test> bool any(test is_one) const
    {
        return _mm_movemask_epi8(
                   _mm_or_si128(_mm_or_si128(is_one(text[0]), is_one(text[1])),
                                _mm_or_si128(is_one(text[2]), is_one(text[3])))) != 0;
    }

    word where(char c) const
    {
        return where([c](__m128i t) { return is(t, c); });
    }
};

/* Exponents, blanks other than the space and zeros are looked for where there can be any.
 */
struct kinds {
    word digit, point, minus, comma, blank, e, plus;
};

inline kinds kinds_of(const block &b, bool in_power)
{
    kinds k{};

    k.digit = b.where(is_digit);
    k.point = b.where('.');
    k.minus = b.where('-');
    k.comma = b.where(',');
    k.blank = b.where(' ');
    if (b.any([](__m128i t) { return _mm_cmplt_epi8(t, _mm_set1_epi8(' ')); }))
        k.blank |= b.where(is_rare_blank);
    if (in_power || b.any(is_e)) {
        k.e = b.where(is_e);
        k.plus = b.where('+');
    }
    return k;
}

/* What stands behind bytes of a kind; remembers the last byte of the block before. */
class behind
{
    word last;

  public:
    explicit behind(word before = 0) : last(before)
    {
    }

    word operator()(word these)
    {
        const word at = these << 1 | last;

        last = these >> (BLOCK - 1);
        return at;
    }
};

/* What stands behind runs of a kind that have their first byte in `first`. */
class behind_run
{
    word carry = 0;

  public:
    word operator()(word these, word first)
    {
        const word sum = these + first, all = sum + carry;

        carry = static_cast<word>(sum < these) | static_cast<word>(all < sum);
        return all & ~these;
    }

    bool open() const
    {
        return carry != 0;
    }
};

/* Numbers, commas and blanks from block to block; it begins as if behind a comma. */
struct list {
    behind number{}, comma{1}, blank{}, digit{}, point{}, sign{}, e{}, power_sign{},
        first_minus{}, first_zero{};
    behind_run fraction{}, power{}, blank_number{}, blank_comma{};
    bool in_power = false;
};

/* Rules of exponents: digits, perhaps behind a sign, and then no point and no other e. */
inline word wrong_power(list *l, const kinds &k, word behind_e)
{
    const word sign = (k.minus | k.plus) & behind_e;
    const word first = k.digit & (behind_e | l->power_sign(sign));

    l->in_power = (sign | k.e) >> (BLOCK - 1) != 0;
    const word bad = l->power(k.digit, first) & (k.point | k.e);
    l->in_power = l->in_power || l->power.open();
    return bad | (behind_e & ~(k.digit | sign));
}

struct findings {
    word begins; /* first bytes of numbers                             */
    word after;  /* what stands behind a number, or blanks behind one  */
    word bad;    /* where a rule is broken                             */
};

/* Digits behind a 0 that begins a number. */
inline word wrong_zero(list *l, const kinds &k, const block &b, word first)
{
    const word followed = first & (k.digit >> 1 | LAST);

    return l->first_zero(followed != 0 ? followed & b.where('0') : 0) & k.digit;
}

/* What stands behind the first byte of another kind is not judged. */
inline findings judge(list *l, const kinds &k, const block &b)
{
    const word sign = k.minus | k.plus, number = k.digit | sign | k.point | k.e;
    const word behind_number = l->number(number), behind_comma = l->comma(k.comma);
    const word begins = number & (behind_comma | l->blank(k.blank));
    const word minus = k.minus & begins, behind_e = l->e(k.e);
    const word behind_point = l->point(k.point);
    const word after = behind_number | l->blank_number(k.blank, k.blank & behind_number);
    word bad = sign & ~(minus | behind_e);

    bad |= (behind_point | l->sign(sign)) & ~k.digit;
    bad |= (k.point | k.e) & ~l->digit(k.digit);
    bad |= l->fraction(k.digit, k.digit & behind_point) & k.point;
    bad |= wrong_zero(l, k, b, k.digit & (begins | l->first_minus(minus)));
    bad |= (behind_comma | l->blank_comma(k.blank, k.blank & behind_comma)) & k.comma;
    bad |= after & ~behind_number & number;
    if (k.e != 0 || l->in_power)
        bad |= wrong_power(l, k, behind_e);
    return findings{begins, after, bad};
}

inline std::size_t count_of(word these)
{
    these -= these >> 1 & 0x5555555555555555;
    these = (these & 0x3333333333333333) + (these >> 2 & 0x3333333333333333);
    these = (these + (these >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return these * 0x0101010101010101 >> 56;
}

} // namespace

extern "C" const char *api_number_list_end(const char *p, const char *end,
                                           std::size_t *count, bool *comma)
{
    list l;

    *count = 0;
    for (;;) {
        char rest[BLOCK] = {}; /* zeros are of another kind */
        const std::size_t left = static_cast<std::size_t>(end - p);
        const bool last = left < BLOCK;

        if (last)
            std::memcpy(rest, p, left);
        const block b(last ? rest : p);
        const kinds k = kinds_of(b, l.in_power);
        const findings f = judge(&l, k, b);
        const word other =
            ~(k.digit | k.point | k.minus | k.plus | k.e | k.comma | k.blank);
        const word until = other ^ (other - 1); /* up to the first of them, with it */

        if ((f.bad & until) != 0)
            return nullptr;
        *count += count_of(f.begins & until);
        if (other != 0) {
            *comma = (f.after & until & other) == 0;
            return p + __builtin_ctzll(other);
        }
        p += BLOCK;
    }
}

#else

const char *over_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

} // namespace

extern "C" const char *api_number_list_end(const char *p, const char *end,
                                           std::size_t *count, bool *comma)
{
    for (*count = 0;;) {
        p = api_number_end(p, end);
        if (p == nullptr)
            return nullptr;
        ++*count;
        p = over_blanks(p, end);
        *comma = p < end && *p == ',';
        if (!*comma)
            return p;
        p = over_blanks(p + 1, end);
        if (p == end || (*p != '-' && (*p < '0' || *p > '9')))
            return p;
    }
}

#endif
