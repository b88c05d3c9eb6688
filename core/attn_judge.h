/*
 * attn_judge.h - single rows of the layer recomputed by plain loops in float64.
 * Not here: what is checked and what is said about it (attn_audit*.c).
 * Start reading at struct attn_judged.
 */
#ifndef ATTN_JUDGE_H
#define ATTN_JUDGE_H

#include "core/attn_core.h"

struct attn_judged {
    double value; /* by plain loops in float64 */
    double error; /* how far from it a rightly rounded layer may be */
};

/* Element `n` of a tensor of numbers or booleans. */
static inline double attn_number(const struct attn_tensor *t, size_t n)
{
    if (t->dtype == ATTN_F64)
        return ((const double *)t->p)[n];
    if (t->dtype == ATTN_F32)
        return (double)((const float *)t->p)[n];
    return (double)((const uint8_t *)t->p)[n];
}

/* Flat place of row i at (b, h) of a tensor of rank 4 (or 5: first of its last axes). */
static inline size_t attn_place4(const struct attn_tensor *t, size_t b, size_t h,
                                 size_t i)
{
    const size_t width = t->rank == 5 ? t->dim[3] * t->dim[4] : t->dim[3];

    return ((b * t->dim[1] + h) * t->dim[2] + i) * width;
}

static inline size_t attn_place3(const struct attn_tensor *t, size_t b, size_t i)
{
    return (b * t->dim[1] + i) * t->dim[2];
}

/* Distance from 1 to the next number of the dtype. */
double attn_judge_eps(enum attn_dtype dtype);
/* Weights below this may have been rounded to 0. */
double attn_judge_tiny(enum attn_dtype dtype);
/* Is `got` the judged number, as closely as rounding allows?  Never true of a non-
   finite number. */
bool attn_judge_near(double got, struct attn_judged want);

/*
 * Rows recomputed; out holds d_k (Q, K), d_v (V) numbers.  `rotated`: after the
 * position kind that turns.
 * Q = X W_Q + b_Q, K = X_kv W_K + b_K, V = X_kv W_V + b_V; cached rows and projected
 * inputs are taken as they are.
 */
void attn_judge_q(const struct attn_problem *p, size_t b, size_t h, size_t i,
                  bool rotated, struct attn_judged *out);
void attn_judge_k(const struct attn_problem *p, size_t b, size_t h_kv, size_t j,
                  bool rotated, struct attn_judged *out);
void attn_judge_v(const struct attn_problem *p, size_t b, size_t h_kv, size_t j,
                  struct attn_judged *out);

/* Scratch of attn_judge_raw_row and attn_judge_logits: numbers for d_k. */
#define ATTN_JUDGE_SCRATCH(d_k) (6 * (d_k))

/* Row i of S_raw from the trace's own Q and K; out: T_kv numbers. */
void attn_judge_raw_row(const struct attn_problem *p, const struct attn_trace *t,
                        size_t b, size_t h, size_t i, double *scratch,
                        struct attn_judged *out);
/* S = softcap(S_raw * scale / temperature). */
struct attn_judged attn_judge_score(const struct attn_problem *p, struct attn_judged raw);

/* What a row of weights is made of: the trace's own S and M where held, else
   recomputed. */
struct attn_logits {
    size_t n, allowed;
    double *logit;  /* [n] S + M; meaningless where forbidden */
    uint8_t *allow; /* [n] */
    double error;   /* bound on the error of any logit */
    double largest; /* largest |logit| over allowed keys */
};
void attn_judge_logits(const struct attn_problem *p, const struct attn_trace *t, size_t b,
                       size_t h, size_t i, double *scratch, struct attn_logits *row);
/* The trace's own verdict on a pair: allowed, else M, else the rules. */
bool attn_judge_allowed(const struct attn_problem *p, const struct attn_trace *t,
                        size_t b, size_t h, size_t i, size_t j);

/* One row of A (n numbers); returns lse, the log of the denominator (with the sink's
   share). */
struct attn_judged attn_judge_weights(const struct attn_problem *p, size_t h,
                                      const struct attn_logits *row,
                                      struct attn_judged *a);

/* Row i of head h: sum of a_j v_j from the trace's V and the given weights; out: d_v
   numbers. */
void attn_judge_mix(const struct attn_problem *p, const struct attn_trace *t, size_t b,
                    size_t h, const struct attn_judged *a, struct attn_judged *out);

/* Row i of Y from the trace's own H; out: d_model numbers. */
void attn_judge_output(const struct attn_problem *p, const struct attn_trace *t, size_t b,
                       size_t i, struct attn_judged *out);

/* ---- sums (attn_judge_sums.c): t is of a float type ---- */

struct attn_term { /* x times a row of a tensor, and the bound's share: size |row| */
    double x, size;
    size_t row; /* where it begins */
};
/* out[c] += sum_k x_k t[row_k + c], its bound += sum_k size_k |t[row_k + c]|, for c < n.
   Uses up the terms. */
void attn_judge_add_terms(const struct attn_tensor *t, size_t terms,
                          struct attn_term *term, size_t n, struct attn_judged *out);
/* sum_c q_c t[from + c] for c < n; *size: the same of absolute values. */
double attn_judge_dot(const struct attn_tensor *t, size_t from, size_t n, const double *q,
                      double *size);
/* sum[c] += by |t[from + c]| for c < n. */
void attn_judge_add_sizes(const struct attn_tensor *t, size_t from, size_t n, double by,
                          double *sum);
/* largest[c] = |t[from + c]| where that is larger, for c < n. */
void attn_judge_largest(const struct attn_tensor *t, size_t from, size_t n,
                        double *largest);

#endif
