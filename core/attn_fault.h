/*
 * attn_fault.h - what the files of the catalogue of faults share.
 * Not here: what others may ask about a fault (attn.h).
 * Start reading at struct attn_fault_row.
 */
#ifndef ATTN_FAULT_H
#define ATTN_FAULT_H

#include "core/attn_judge.h"

/*
 * One fault: wrong stages that compute their object from earlier objects of the trace and
 * from the problem only, so that they can be tried on tensors of anybody.  On a problem
 * that lacks what the fault needs (other widths, no such rule) a wrong stage does what
 * the right one does.
 */
struct attn_fault_row {
    const char *name;      /* wire name, never renamed */
    const char *object;    /* the first object that is wrong */
    const char *caught_by; /* id of the check that fails first */
    const char *explanation;
    const char *fix;
    const char *visible_when;
    /* Can this problem show it?  param is that of the swap. */
    bool (*visible)(const struct attn_problem *p, const void *param);
    struct attn_swap swap;
};

/* How often the fault is met beside others with its numbers (attn_fault_common.c). */
enum attn_met { ATTN_MET_RARELY, ATTN_MET_USUALLY, ATTN_MET_OFTEN };
enum attn_met attn_fault_met(const struct attn_fault_row *row);

/* Another way in which a fault comes out: tried where its own stages do not reproduce a
   candidate. */
struct attn_fault_way {
    const char *fault;
    struct attn_swap swap;
};
struct attn_fault_ways { /* those of one file */
    const struct attn_fault_way *row;
    size_t count;
};
extern const struct attn_fault_ways ATTN_WAYS_AXIS, ATTN_WAYS_EMPTY, ATTN_WAYS_PROJECT,
    ATTN_WAYS_SOFTMAX;
/* The n-th other way of the fault, or NULL. */
const struct attn_swap *attn_fault_way(const struct attn_fault_row *row, size_t n);

/* The stage SOFTMAX with other rows where there is no key.  They read no param, and so go
   with any wrong mask. */
enum { ATTN_EMPTY_ROWS_COUNT = 6 };
extern attn_stage_fn *const ATTN_EMPTY_ROWS[ATTN_EMPTY_ROWS_COUNT];

struct attn_fault_theme { /* the rows of one file */
    const struct attn_fault_row *row;
    size_t count;
};
extern const struct attn_fault_theme ATTN_FAULTS_PROJECT, ATTN_FAULTS_POSITION,
    ATTN_FAULTS_SCORE, ATTN_FAULTS_MASK, ATTN_FAULTS_BIAS, ATTN_FAULTS_AXIS,
    ATTN_FAULTS_SOFTMAX, ATTN_FAULTS_EMPTY, ATTN_FAULTS_HALF, ATTN_FAULTS_OUTPUT,
    ATTN_FAULTS_WEIGHTS, ATTN_FAULTS_TURN, ATTN_FAULTS_RULE, ATTN_FAULTS_NORM,
    ATTN_FAULTS_BLOCK, ATTN_FAULTS_FITTED, ATTN_FAULTS_FITTED_MASK, ATTN_FAULTS_OTHER,
    ATTN_FAULTS_GRAD, ATTN_FAULTS_GRAD_INPUT;

/* ---- numbers of tensors ------------------------------------------------------------ */

static inline void attn_put(struct attn_tensor *t, size_t n, double x)
{
    if (t->dtype == ATTN_F64)
        ((double *)t->p)[n] = x;
    else if (t->dtype == ATTN_F32)
        ((float *)t->p)[n] = (float)x;
    else
        ((uint8_t *)t->p)[n] = x != 0.0;
}
static inline double attn_at4(const struct attn_tensor *t, size_t b, size_t h, size_t i,
                              size_t c)
{
    return attn_number(t, attn_place4(t, b, h, i) + c);
}
static inline void attn_put4(struct attn_tensor *t, size_t b, size_t h, size_t i,
                             size_t c, double x)
{
    attn_put(t, attn_place4(t, b, h, i) + c, x);
}

/* ---- every row, every pair --------------------------------------------------------- */

struct attn_cell { /* an index (b,h,i), (b,h,i,j) or (b,h,i,c); counts up */
    size_t b, h, i, j;
};
/* for (struct attn_cell x = { 0 }; attn_cell_in(&x, B, h, T, width); x.j++) */
static inline bool attn_cell_in(struct attn_cell *x, size_t B, size_t h, size_t T,
                                size_t width)
{
    if (x->j < width)
        return true;
    x->j = 0;
    if (++x->i == T) {
        x->i = 0;
        if (++x->h == h) {
            x->h = 0;
            x->b++;
        }
    }
    return x->b < B;
}

/* ---- what predicates ask ----------------------------------------------------------- */

static inline bool attn_row_empty(const struct attn_problem *p, size_t b, size_t h,
                                  size_t i)
{
    for (size_t j = 0; j < p->d.T_kv; j++)
        if (attn_allowed(p, b, h, i, j))
            return false;
    return true;
}
static inline size_t attn_row_allowed(const struct attn_problem *p, size_t b, size_t h,
                                      size_t i)
{
    size_t n = 0;

    for (size_t j = 0; j < p->d.T_kv; j++)
        n += attn_allowed(p, b, h, i, j);
    return n;
}
/* Is there a row of any (b,h,i) with a key? */
bool attn_any_row_reads(const struct attn_problem *p);
bool attn_any_row_empty(const struct attn_problem *p);
/* Is there a row of A other than 0 and NaN? */
bool attn_any_row_mixes(const struct attn_problem *p);
bool attn_same_numbers(const struct attn_tensor *a, const struct attn_tensor *b);
/* Is the square W another than its transpose? */
bool attn_asymmetric(const struct attn_tensor *W);

/* Unscaled score of row q of Q and row k of K, any score function, in double. */
double attn_pair_raw(const struct attn_problem *p, const struct attn_tensor *Q, size_t q,
                     const struct attn_tensor *K, size_t k);
/* Entry c of row i of head h of A times `rows` (K or V), from the tensors of the trace:
   H may be under way. */
double attn_mixed(const struct attn_run_ctx *run, enum attn_object rows,
                  struct attn_cell x);

#endif
