/*
 * api_number_run32_avx512.cc - runs of float32, eight numbers at a time.
 * Not here: what is looked up and the loop over a run (api_number_run32.h), the order of
 * the bytes (api_number_lanes.h).
 * Start reading at find, then avx512::spell: the steps of api_number_run32_avx2.cc.
 */
#include <cstdint>
#include <cstring>

#include "api/api_number_run32.h"

#if defined(__x86_64__)

#if !defined(__clang__) /* GCC 12 says both of its own header. */
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define WIDE \
    __attribute__((target("avx2,lzcnt,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")))

namespace
{

using namespace api_run32;
using eight = __m512i; /* eight numbers in 64 bits each */

struct avx512 {
    enum { SIZE = 8 };
    struct texts {
        alignas(
            64) u64 bytes[2][SIZE]; /* even numbers, odd ones: rest and tail of each */
        alignas(64) u64 at[SIZE];   /* its order's place in ORDERS, in bytes         */
        unsigned odd;               /* a bit for each number                         */
    };
    static void spell(const float *x, texts *t);
    static char *put_lane(char *out, float x, const texts &t, int n);
};

WIDE inline eight all_eight(std::int64_t x)
{
    return _mm512_set1_epi64(x);
}

WIDE inline eight shifted_down(eight x, unsigned bits)
{
    return _mm512_srli_epi64(x, bits);
}

/* ---- eight decimals ---- */

WIDE inline eight two_scales(float a, float b)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(scale_of(a)), scale_of(b), 1);
}

/* The rows of eight exponents, turned: one field of all eight in each. */
WIDE inline void look_up(const float *x, eight field[4])
{
    const eight a = two_scales(x[0], x[2]), b = two_scales(x[1], x[3]),
                c = two_scales(x[4], x[6]), d = two_scales(x[5], x[7]);
    const eight ab = _mm512_unpacklo_epi64(a, b), cd = _mm512_unpacklo_epi64(c, d),
                ba = _mm512_unpackhi_epi64(a, b), dc = _mm512_unpackhi_epi64(c, d);

    field[0] = _mm512_shuffle_i64x2(ab, cd, 0x88);
    field[1] = _mm512_shuffle_i64x2(ba, dc, 0x88);
    field[2] = _mm512_shuffle_i64x2(ab, cd, 0xdd);
    field[3] = _mm512_shuffle_i64x2(ba, dc, 0xdd);
}

struct decimals {
    eight digits, exponent;
    __mmask8 odd;
};

WIDE inline decimals find(const float *x)
{
    const std::int64_t one = INT64_C(1) << UNIT;
    const eight zero = _mm512_setzero_si512();
    const eight bits =
        _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(x)));
    const eight fraction = _mm512_and_si512(bits, all_eight((1 << FRACTION) - 1));
    eight field[4];

    look_up(x, field);
    const eight c =
        _mm512_sllv_epi64(_mm512_or_si512(fraction, all_eight(1 << FRACTION)), field[2]);
    const eight low = _mm512_mul_epu32(field[0], c);
    const eight high = _mm512_add_epi64(_mm512_mul_epu32(shifted_down(field[0], 32), c),
                                        shifted_down(low, 32));
    const eight s = shifted_down(high, 32);
    const eight part = shifted_down(_mm512_slli_epi64(high, 32), 64 - UNIT);
    const eight tens = shifted_down(_mm512_mul_epu32(s, all_eight(0xCCCCCCCD)), 35);
    const eight ones = _mm512_sub_epi64(s, _mm512_mul_epu32(tens, all_eight(10)));
    const eight down = _mm512_or_si512(_mm512_slli_epi64(ones, UNIT), part);
    const eight up = _mm512_sub_epi64(all_eight(10 * one), down);

    const eight under = _mm512_sub_epi64(field[1], down),
                over = _mm512_sub_epi64(field[1], up),
                half = _mm512_sub_epi64(part, all_eight(one / 2));
    const eight nearest = _mm512_min_epu64(
        _mm512_abs_epi64(half),
        _mm512_min_epu64(_mm512_abs_epi64(under), _mm512_abs_epi64(over)));
    const __mmask8 above = _mm512_cmpgt_epi64_mask(over, zero);
    const __mmask8 ten = above | _mm512_cmpgt_epi64_mask(under, zero);
    const __mmask8 nearer = _mm512_cmpgt_epi64_mask(half, zero);
    const eight with_ones = _mm512_mask_add_epi64(s, nearer, s, all_eight(1));
    const eight with_tens = _mm512_mask_add_epi64(tens, above, tens, all_eight(1));

    return decimals{
        _mm512_mask_mov_epi64(with_ones, ten, with_tens),
        _mm512_mask_add_epi64(field[3], ten, field[3], all_eight(1)),
        static_cast<__mmask8>(_mm512_cmplt_epu64_mask(nearest, all_eight(MARGIN)) |
                              _mm512_cmpeq_epi64_mask(fraction, zero))};
}

/* ---- their text ---- */

WIDE inline eight eight_digits_of(eight x)
{
    const eight high = shifted_down(_mm512_mul_epu32(x, all_eight(109951163)), 40);
    const eight low = _mm512_sub_epi64(x, _mm512_mul_epu32(high, all_eight(10000)));
    const eight fours = _mm512_or_si512(high, _mm512_slli_epi64(low, 32));
    const eight hundreds =
        _mm512_srli_epi16(_mm512_mulhi_epu16(fours, _mm512_set1_epi16(5243)), 3);
    const eight below =
        _mm512_sub_epi16(fours, _mm512_mullo_epi16(hundreds, _mm512_set1_epi16(100)));
    const eight twos = _mm512_or_si512(hundreds, _mm512_slli_epi32(below, 16));
    const eight tens = _mm512_mulhi_epu16(twos, _mm512_set1_epi16(6554));
    const eight ones =
        _mm512_sub_epi16(twos, _mm512_mullo_epi16(tens, _mm512_set1_epi16(10)));

    return _mm512_or_si512(tens, _mm512_slli_epi16(ones, 8));
}

WIDE inline eight tail_of(eight first, eight e)
{
    const eight size = _mm512_abs_epi64(e);
    const eight ten = shifted_down(_mm512_mul_epu32(size, all_eight(103)), 10);
    const eight one = _mm512_sub_epi64(size, _mm512_mul_epu32(ten, all_eight(10)));
    const eight pair =
        _mm512_or_si512(_mm512_slli_epi64(ten, 8 * TEN), _mm512_slli_epi64(one, 8 * ONE));
    const eight plain = _mm512_add_epi64(_mm512_add_epi64(all_eight(TAIL), first), pair);

    return _mm512_mask_add_epi64(plain, _mm512_movepi64_mask(e), plain,
                                 all_eight(std::int64_t('-' - '+') << 8 * SIGN));
}

/* Zeros behind the last digit that is none are not counted. */
WIDE inline eight order_of(eight point, eight rest)
{
    enum { LAST = MOST - texts_order::LEAST + 1 };
    const eight count =
        _mm512_sub_epi64(all_eight(DIGITS), shifted_down(_mm512_lzcnt_epi64(rest), 3));
    const eight place =
        _mm512_min_epu64(_mm512_sub_epi64(all_eight(MOST), point), all_eight(LAST));

    return _mm512_add_epi64(_mm512_mul_epu32(place, all_eight(sizeof ORDERS.row[0])),
                            _mm512_mul_epu32(count, all_eight(sizeof ORDERS.row[0][0])));
}

WIDE void avx512::spell(const float *x, texts *t)
{
    const decimals d = find(x);
    const __mmask8 at_most_six = _mm512_cmplt_epu64_mask(d.digits, all_eight(1000000)),
                   seven = _mm512_cmplt_epu64_mask(d.digits, all_eight(10000000)),
                   eight_at_most =
                       _mm512_cmplt_epu64_mask(d.digits, all_eight(100000000));
    eight by = _mm512_mask_mov_epi64(all_eight(1), eight_at_most, all_eight(10));
    eight point = _mm512_add_epi64(d.exponent, all_eight(DIGITS));

    by = _mm512_mask_mov_epi64(by, seven, all_eight(100));
    by = _mm512_mask_mov_epi64(by, at_most_six, all_eight(1000));
    point = _mm512_mask_sub_epi64(point, eight_at_most, point, all_eight(1));
    point = _mm512_mask_sub_epi64(point, seven, point, all_eight(1));
    point = _mm512_mask_sub_epi64(point, at_most_six, point, all_eight(1));

    const eight nine = _mm512_mul_epu32(d.digits, by);
    const eight first =
        shifted_down(_mm512_mul_epu32(nine, all_eight(1441151881)), 57); /* / 10^8 */
    const eight rest = eight_digits_of(
        _mm512_sub_epi64(nine, _mm512_mul_epu32(first, all_eight(100000000))));
    const eight text = _mm512_or_si512(rest, all_eight(0x3030303030303030)),
                end = tail_of(first, _mm512_sub_epi64(point, all_eight(1)));

    _mm512_store_si512(t->bytes[0], _mm512_unpacklo_epi64(text, end));
    _mm512_store_si512(t->bytes[1], _mm512_unpackhi_epi64(text, end));
    _mm512_store_si512(t->at, order_of(point, rest));
    t->odd = d.odd;
}

TARGET inline char *avx512::put_lane(char *out, float x, const texts &t, int n)
{
    const u64 *const bytes = &t.bytes[n & 1][n & 6];
    const auto *const orders = reinterpret_cast<const char *>(&ORDERS);

    return put_one(out, bits_of(x), load(reinterpret_cast<const std::uint8_t *>(bytes)),
                   *reinterpret_cast<const one_order *>(orders + t.at[n]));
}

} // namespace

char *api_run32::put_many_avx512(char *out, const float *x, std::size_t count)
{
    return put_many<avx512>(out, x, count);
}

#endif
