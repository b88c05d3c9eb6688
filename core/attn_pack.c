/*
 * attn_pack.c - Q K^T and A V of a row block, with one operand laid out for the
 * registers. Not here: products of any other shape, and machines without AVX2
 * (attn_blas.c). Start reading at attn_pack_of, then attn_pack.inc.
 *
 * A BLAS packs both operands at every call, which at widths of 64 costs a fifth of the
 * time.  Here only a panel of K is turned, for all rows of the block; V and the left
 * sides are read where they are.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <string.h>

#if defined(__x86_64__) && !defined(ATTN_PORTABLE)
#include <immintrin.h>

enum {
    PACK_ROWS = 6,    /* results of 6 rows fill the registers */
    PACK_DEPTH = 128, /* a panel so deep stays in the first cache */
};

#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c)  JOIN_(a, b, c)
#define NAME(stem)     JOIN(stem, WIDTH, REAL_BITS)

#define AVX2 __attribute__((target("avx2")))

/* to = from transposed, 8 x 8: pairs of rows, then fours, then halves change places. */
static inline AVX2 void square_32(const float *from, size_t ld, float *to, size_t to_ld)
{
    __m256 row[8], pair[8], four[8];

#pragma GCC unroll 8
    for (size_t n = 0; n < 8; n++)
        row[n] = _mm256_loadu_ps(from + n * ld);
#pragma GCC unroll 4
    for (size_t n = 0; n < 8; n += 2) {
        pair[n] = _mm256_unpacklo_ps(row[n], row[n + 1]);
        pair[n + 1] = _mm256_unpackhi_ps(row[n], row[n + 1]);
    }
#pragma GCC unroll 2
    for (size_t n = 0; n < 8; n += 4) {
        four[n] = _mm256_shuffle_ps(pair[n], pair[n + 2], 0x44);
        four[n + 1] = _mm256_shuffle_ps(pair[n], pair[n + 2], 0xee);
        four[n + 2] = _mm256_shuffle_ps(pair[n + 1], pair[n + 3], 0x44);
        four[n + 3] = _mm256_shuffle_ps(pair[n + 1], pair[n + 3], 0xee);
    }
#pragma GCC unroll 4
    for (size_t n = 0; n < 4; n++) {
        _mm256_storeu_ps(to + n * to_ld,
                         _mm256_permute2f128_ps(four[n], four[n + 4], 0x20));
        _mm256_storeu_ps(to + (n + 4) * to_ld,
                         _mm256_permute2f128_ps(four[n], four[n + 4], 0x31));
    }
}

/* The same, 4 x 4. */
static inline AVX2 void square_64(const double *from, size_t ld, double *to, size_t to_ld)
{
    __m256d row[4], pair[4];

#pragma GCC unroll 4
    for (size_t n = 0; n < 4; n++)
        row[n] = _mm256_loadu_pd(from + n * ld);
#pragma GCC unroll 2
    for (size_t n = 0; n < 4; n += 2) {
        pair[n] = _mm256_unpacklo_pd(row[n], row[n + 1]);
        pair[n + 1] = _mm256_unpackhi_pd(row[n], row[n + 1]);
    }
#pragma GCC unroll 2
    for (size_t n = 0; n < 2; n++) {
        _mm256_storeu_pd(to + n * to_ld,
                         _mm256_permute2f128_pd(pair[n], pair[n + 2], 0x20));
        _mm256_storeu_pd(to + (n + 2) * to_ld,
                         _mm256_permute2f128_pd(pair[n], pair[n + 2], 0x31));
    }
}

/* clang-format off */
#define WIDTH avx2
#define VECTOR_BYTES 32
#define VECTORS 2
#define TARGET __attribute__((target("avx2,fma")))
#define REAL_BITS 64
#define TURN 4
#define FMA _mm256_fmadd_pd
#define SQUARE square_64
#include "core/attn_pack.inc"
#undef REAL_BITS
#undef TURN
#undef FMA
#undef SQUARE
#define REAL_BITS 32
#define TURN 8
#define FMA _mm256_fmadd_ps
#define SQUARE square_32
#include "core/attn_pack.inc"
#undef REAL_BITS
#undef TURN
#undef FMA
#undef SQUARE
#undef TARGET
#undef VECTORS
#undef VECTOR_BYTES
#undef WIDTH

#define WIDTH avx512
#define VECTOR_BYTES 64
#define VECTORS 4
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define REAL_BITS 64
#define TURN 4
#define FMA _mm512_fmadd_pd
#define SQUARE square_64
#include "core/attn_pack.inc"
#undef REAL_BITS
#undef TURN
#undef FMA
#undef SQUARE
#define REAL_BITS 32
#define TURN 8
#define FMA _mm512_fmadd_ps
#define SQUARE square_32
#include "core/attn_pack.inc"
#undef REAL_BITS
#undef TURN
#undef FMA
#undef SQUARE
#undef TARGET
#undef VECTORS
#undef VECTOR_BYTES
#undef WIDTH
/* clang-format on */

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma");
}

static const struct width_row { /* best first */
    bool (*usable)(void);
    const struct attn_pack *f64, *f32;
} WIDTHS[] = {
    {has_avx512, &pack_avx512_64, &pack_avx512_32},
    {has_avx2, &pack_avx2_64, &pack_avx2_32},
};
enum { WIDTH_COUNT = ATTN_COUNT(WIDTHS) };

const struct attn_pack *attn_pack_width(enum attn_dtype dtype, size_t n)
{
    assert(dtype == ATTN_F64 || dtype == ATTN_F32);
    if (n >= WIDTH_COUNT || !WIDTHS[n].usable())
        return NULL;
    return dtype == ATTN_F64 ? WIDTHS[n].f64 : WIDTHS[n].f32;
}
#else
enum { WIDTH_COUNT = 0 };

const struct attn_pack *attn_pack_width(enum attn_dtype dtype, size_t n)
{
    (void)dtype, (void)n;
    return NULL;
}
#endif

size_t attn_pack_widths(void)
{
    return WIDTH_COUNT;
}

const struct attn_pack *attn_pack_of(enum attn_dtype dtype)
{
    const struct attn_pack *best = NULL;

    for (size_t n = 0; !best && n < attn_pack_widths(); n++)
        best = attn_pack_width(dtype, n);
    return best;
}
