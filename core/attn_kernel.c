/*
 * attn_kernel.c - the inner loops, for double and float and every vector width.
 * Not here: the loops themselves (attn_kernel.inc), matrix products (attn_blas.c).
 * Start reading at attn_kernel_of, then attn_kernel.inc.
 *
 * Sums run over the same 64 bytes of lanes whatever one register holds, so AVX2 and
 * AVX-512 give the same bits.  The base lacks a fused multiply-add: there exp and tanh
 * may differ in the last bit, and all that uses neither does not differ.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { BLOCK_BYTES = 64 }; /* one step of every loop, in one to four registers */

#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c)  JOIN_(a, b, c)
#define NAME(stem)     JOIN(stem, WIDTH, REAL_BITS)

/* clang-format off */
#define WIDTH base
#define FUSED false
#define VECTOR_BYTES 16
#define TARGET
#define REAL_BITS 64
#include "core/attn_kernel.inc"
#undef REAL_BITS
#define REAL_BITS 32
#include "core/attn_kernel.inc"
#undef REAL_BITS
#undef TARGET
#undef VECTOR_BYTES
#undef FUSED
#undef WIDTH

#if defined(__x86_64__)
#define WIDTH avx2
#define FUSED true
#define VECTOR_BYTES 32
#define TARGET __attribute__((target("avx2,fma")))
#define REAL_BITS 64
#define MM(op) _mm256_##op##_pd
#include "core/attn_kernel.inc"
#undef REAL_BITS
#undef MM
#define REAL_BITS 32
#define MM(op) _mm256_##op##_ps
#include "core/attn_kernel.inc"
#undef REAL_BITS
#undef MM
#undef TARGET
#undef VECTOR_BYTES
#undef FUSED
#undef WIDTH

#define WIDTH avx512
#define FUSED true
#define VECTOR_BYTES 64
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define REAL_BITS 64
#define MM(op) _mm512_##op##_pd
#define MM_MASK(op) _mm512_##op##_pd_mask
#include "core/attn_kernel.inc"
#undef REAL_BITS
#undef MM
#undef MM_MASK
#define REAL_BITS 32
#define MM(op) _mm512_##op##_ps
#define MM_MASK(op) _mm512_##op##_ps_mask
#include "core/attn_kernel.inc"
#undef REAL_BITS
#undef MM
#undef MM_MASK
#undef TARGET
#undef VECTOR_BYTES
#undef FUSED
#undef WIDTH
#endif
/* clang-format on */

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static const struct width_row { /* best first */
    const char *name;
    bool (*usable)(void);
    const struct attn_kernel *f64, *f32;
} WIDTHS[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, &kernel_avx512_64, &kernel_avx512_32},
    {"avx2", has_avx2, &kernel_avx2_64, &kernel_avx2_32},
#endif
    {"base", always, &kernel_base_64, &kernel_base_32},
};

const struct attn_kernel *attn_kernel_width(enum attn_dtype dtype, size_t n)
{
    assert(dtype == ATTN_F64 || dtype == ATTN_F32);
    if (n >= ATTN_COUNT(WIDTHS) || !WIDTHS[n].usable())
        return NULL;
    return dtype == ATTN_F64 ? WIDTHS[n].f64 : WIDTHS[n].f32;
}

size_t attn_kernel_widths(void)
{
    return ATTN_COUNT(WIDTHS);
}

const struct attn_kernel *attn_kernel_of(enum attn_dtype dtype)
{
    const struct attn_kernel *best = NULL;

    for (size_t n = 0; !best; n++)
        best = attn_kernel_width(dtype, n);
    return best;
}
