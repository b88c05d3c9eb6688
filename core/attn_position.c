/*
 * attn_position.c - positions: rotation of queries and keys (RoPE), slopes of the
 * distance (ALiBi). Not here: the bias itself (attn_bias in attn_problem.c), when rows
 * are rotated (the stages). Start reading at POSITIONS.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <math.h>

/* clang-format off */
static const struct attn_position_row POSITIONS[] = {
    { "rope",
      "theta_k = base^(-2k/d_k); (a,b) -> (a cos p theta_k - b sin p theta_k, "
      "a sin p theta_k + b cos p theta_k)", "Q,K" },
    { "alibi", "M_ij += -slope_h * |i + o - j|", "M" },
};
/* clang-format on */

size_t attn_position_count(void)
{
    return ATTN_COUNT(POSITIONS);
}

const struct attn_position_row *attn_position_at(size_t n)
{
    assert(n < ATTN_COUNT(POSITIONS));
    return &POSITIONS[n];
}

/*
 * attn_rope_row - turn pair k of one row by the angle pos * base^(-2k/d_k), k = 0 … d_k/2
 * - 1
 *
 * in   [d_k]  in
 * out  [d_k]  out  may be the same memory as in
 *
 * A pair is (k, k + d_k/2) in the layout "half", (2k, 2k + 1) in "interleaved".  d_k is
 * even (attn_prepare).  Source: Su et al. 2021, equations 15 and 34.
 */
void attn_rope_row(const struct attn_problem *p, double pos, const double *in,
                   double *out)
{
    const size_t d_k = p->d.d_k, pairs = d_k / 2;
    const bool half = p->rope.layout == ATTN_ROPE_HALF;

    assert(d_k % 2 == 0);
    for (size_t k = 0; k < pairs; k++) {
        const double angle = pos * pow(p->rope.base, -2.0 * (double)k / (double)d_k);
        const double cosine = cos(angle), sine = sin(angle);
        const size_t first = half ? k : 2 * k, second = half ? k + pairs : 2 * k + 1;
        const double a = in[first], b = in[second];

        out[first] = a * cosine - b * sine;
        out[second] = a * sine + b * cosine;
    }
}

static double table_position(const struct attn_table *t, size_t b, size_t n)
{
    assert(t->elem == ATTN_ELEM_F64);
    return ((const double *)t->p)[b * t->stride_b + n];
}

/* The position of query i: as given, else T_kv - T_q + i (the last query stands at the
 * last key). */
double attn_rope_position_q(const struct attn_problem *p, size_t b, size_t i)
{
    assert(i < p->d.T_q);
    if (p->rope.q.p != NULL)
        return table_position(&p->rope.q, b, i);
    return (double)((ptrdiff_t)p->d.T_kv - (ptrdiff_t)p->d.T_q + (ptrdiff_t)i);
}

/* The position of key j, a new one: as given, else j (cached keys hold 0 … T_past - 1).
 */
double attn_rope_position_k(const struct attn_problem *p, size_t b, size_t j)
{
    assert(j >= p->d.T_past && j < p->d.T_kv);
    if (p->rope.k.p != NULL)
        return table_position(&p->rope.k, b, j - p->d.T_past);
    return (double)j;
}

/*
 * Slopes 2^(-8m/n), m = 1 … n, for n a power of two; otherwise those of the largest power
 * of two below n, then every second one (m = 1, 3, …) of twice that power. slopes [n]
 * out.  Source: Press, Smith, Lewis 2022, section 3, and their published code.
 */
void attn_alibi_standard(size_t n, double *slopes)
{
    size_t power = 1;

    assert(n > 0);
    while (power <= n / 2)
        power *= 2;
    for (size_t m = 1; m <= power; m++)
        slopes[m - 1] = exp2(-8.0 * (double)m / (double)power);
    for (size_t m = 1; power + (m - 1) / 2 < n; m += 2)
        slopes[power + (m - 1) / 2] = exp2(-8.0 * (double)m / (double)(2 * power));
}
