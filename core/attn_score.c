/*
 * attn_score.c - the table of score functions: how well a query fits a key, unscaled.
 * Not here: scale, temperature and softcap (attn_softmax.c), masks (attn_mask.c).
 * Start reading at SCORES.
 */
#include "core/attn_core.h"

#include <math.h>
#include <string.h>

/* s = sum_c q_c k_c;  ds/dq = k, ds/dk = q.  Source: Vaswani et al. 2017, section 3.2.1.
 */
static double dot_product(size_t d_k, const double *q, const double *k, const double *v_a,
                          double g, double *dq, double *dk, double *dv)
{
    double s = 0;

    (void)v_a, (void)dv;
    for (size_t c = 0; c < d_k; c++)
        s += q[c] * k[c];
    if (!dq)
        return s;
    for (size_t c = 0; c < d_k; c++) {
        dq[c] += g * k[c];
        dk[c] += g * q[c];
    }
    return s;
}

/*
 * s = sum_c v_c t_c with t = tanh(q + k);  ds/dq_c = ds/dk_c = v_c (1 - t_c^2), ds/dv_c =
 * t_c. Source: Bahdanau, Cho, Bengio 2014, appendix A.1.2 (q and k stand for their W_a s
 * and U_a h).
 */
static double additive(size_t d_k, const double *q, const double *k, const double *v_a,
                       double g, double *dq, double *dk, double *dv)
{
    double s = 0;

    for (size_t c = 0; c < d_k; c++) {
        const double t = tanh(q[c] + k[c]);

        s += v_a[c] * t;
        if (!dq)
            continue;
        dq[c] += g * v_a[c] * (1 - t * t);
        dk[c] += g * v_a[c] * (1 - t * t);
        dv[c] += g * t;
    }
    return s;
}

static void additive_keys(enum attn_dtype dtype, size_t n, size_t d_k, const void *q,
                          const void *k, const void *v_a, void *s)
{
    attn_kernel_of(dtype)->additive_row(n, d_k, q, k, v_a, s);
}

static const struct attn_score_row SCORES[] = {
    {.name = "dot_product",
     .formula = "S_ij = (q_i . k_j) * scale",
     .pair = dot_product,
     .scaled_by_default = true,
     .bilinear = true},
    {.name = "additive",
     .formula = "S_ij = v_a . tanh(q_i + k_j)",
     .pair = additive,
     .needs_v_a = true,
     .keys = additive_keys},
};

size_t attn_score_count(void)
{
    return ATTN_COUNT(SCORES);
}

const struct attn_score_row *attn_score_at(size_t n)
{
    return &SCORES[n];
}

const struct attn_score_row *attn_score_find(const char *name)
{
    for (size_t n = 0; n < ATTN_COUNT(SCORES); n++)
        if (strcmp(SCORES[n].name, name) == 0)
            return &SCORES[n];
    return NULL;
}
