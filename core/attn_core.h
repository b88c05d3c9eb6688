/*
 * attn_core.h - what the files of core/ share with each other and with nobody else.
 * Not here: anything that api/ may use (attn.h).
 * Start reading at struct attn_run_ctx, then enum attn_stage.
 */
#ifndef ATTN_CORE_H
#define ATTN_CORE_H

#include "core/attn.h"

#define ATTN_COUNT(table) (sizeof(table) / sizeof((table)[0]))

enum { ATTN_ROW_BLOCK = 128 };     /* query rows of one piece of work                            */

/* ---- BLAS (attn_blas.c, the one file that includes cblas.h) --------------------------------- */

struct attn_mat {                  /* rows x cols of one dtype, row-major, ld numbers a row       */
    enum attn_dtype dtype;
    void *p;
    size_t rows, cols, ld;
};

/* C = alpha * op(A) op(B) + beta * C.  All of one dtype; sizes agree (asserted). */
void attn_gemm(struct attn_mat C, struct attn_mat A, bool transA, struct attn_mat B, bool transB,
               double alpha, double beta);

/* ---- one run ---------------------------------------------------------------------------------- */

struct attn_rows {                 /* which part of the problem to run: reruns of the audit       */
    size_t b0, b1;                 /* items                                                       */
    size_t i0, i1;                 /* query rows; multiples of ATTN_ROW_BLOCK except the end      */
};

struct attn_run_ctx {
    const struct attn_problem *p;
    const struct attn_plan *plan;
    struct attn_trace *t;
    const struct attn_exec *exec;
    const struct attn_swap *swap;
    struct attn_rows rows;
};

/* A piece of work.  Query-side stages: rows i0 … i1-1 of head h of item b.  Key-side stages: all
   keys of key/value head h of item b.  OUTPUT: rows i0 … i1-1 of item b (h is 0). */
struct attn_piece {
    size_t b, h, i0, i1;
};

enum attn_stage {                  /* dependency order; each writes the objects named             */
    ATTN_STAGE_PROJECT_Q,          /* Q_pre                                                       */
    ATTN_STAGE_POSITION_Q,         /* Q                                                           */
    ATTN_STAGE_PROJECT_K,          /* K_pre, cached rows first                                    */
    ATTN_STAGE_POSITION_K,         /* K                                                           */
    ATTN_STAGE_PROJECT_V,          /* V, cached rows first                                        */
    ATTN_STAGE_SCORE,              /* S_raw, S                                                    */
    ATTN_STAGE_MASK,               /* allowed, M                                                  */
    ATTN_STAGE_SOFTMAX,            /* S_masked, A, lse, empty                                     */
    ATTN_STAGE_MIX,                /* H (joined), H_heads, contributions                          */
    ATTN_STAGE_OUTPUT,             /* Y                                                           */
    ATTN_STAGE_COUNT
};

typedef bool attn_stage_fn(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err);

/* Stages replaced.  A replaced stage runs once, over the whole of run->rows (its piece is all
   zero), after the stages before it have run everywhere: it loops itself and may mix items. */
struct attn_swap {
    attn_stage_fn *stage[ATTN_STAGE_COUNT];    /* NULL = the right one                            */
    const void *param;                         /* for the replacement                              */
};

struct attn_stage_row {
    const char *name;
    enum { ATTN_OVER_QUERY_ROWS, ATTN_OVER_KEY_HEADS, ATTN_OVER_ITEM_ROWS } domain;
    attn_stage_fn *run;            /* the right one                                               */
};
extern const struct attn_stage_row ATTN_STAGES[ATTN_STAGE_COUNT];

/* The right stage on every piece of run->rows: what a fault builds on. */
bool attn_stage_all(const struct attn_run_ctx *run, enum attn_stage stage, struct attn_err *err);

/* attn_run on a part of the problem: the trace holds whole tensors, only `rows` are filled (K and V
   of the named items in full). */
bool attn_run_rows(const struct attn_problem *p, const struct attn_plan *plan,
                   struct attn_rows rows, struct attn_arena *arena, const struct attn_exec *exec,
                   const struct attn_swap *swap, struct attn_trace *trace, struct attn_err *err);

/* Takes the plan's objects from the arena, with aliases (present_K = K, Q_pre = Q without RoPE…). */
bool attn_trace_take(const struct attn_problem *p, const struct attn_plan *plan,
                     struct attn_arena *arena, struct attn_trace *trace, struct attn_err *err);

/* ---- addresses ---------------------------------------------------------------------------------- */

/* The [rows, cols] matrix at (b, h) of a held object or input of rank 4, or at b of rank 3. */
struct attn_mat attn_slice(const struct attn_tensor *t, size_t b, size_t h);
static inline size_t attn_kv_head(const struct attn_dims *d, size_t h)
{
    return h / (d->h / d->h_kv);
}

/* ---- kernels: one source, built for double and float (attn_kernel.inc) ---------------------------- */

struct attn_softmax_out { double lse; bool empty; };

struct attn_kernel {
    /* y[i] = x[i] * scale, then cap*tanh(y/cap) when cap > 0; x may be y */
    void (*scale_cap)(size_t n, const void *x, double scale, double cap, void *y);
    /* one row: a = softmax(s + m) over allow; m may be NULL; sink NULL = none; a may be s */
    struct attn_softmax_out (*softmax_row)(size_t n, const void *s, const void *m,
                                           const uint8_t *allow, const double *sink, void *a);
    void (*fill)(size_t n, double value, void *x);
    bool (*all_finite)(size_t n, const void *x);
    /* y += a * x */
    void (*axpy)(size_t n, double a, const void *x, void *y);
    double (*dot)(size_t n, const void *x, const void *y);
    double (*get)(const void *x, size_t n);
    void (*set)(void *x, size_t n, double value);
};
const struct attn_kernel *attn_kernel_of(enum attn_dtype dtype);

/* Allowed keys of one query row for j0 … j1-1 (all rules and additive -Infinity). */
void attn_allow_row(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j0,
                    size_t j1, uint8_t *allow);
/* Narrowest [*j0,*j1) known without looking at every pair; *exact: all of it is allowed. */
void attn_allow_range(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t *j0,
                      size_t *j1, bool *exact);

/* RoPE angle pairs: rotates one row of d_k numbers to position pos (Su et al. 2021, eq. 34). */
void attn_rope_row(const struct attn_problem *p, double pos, const double *in, double *out);
double attn_rope_position_q(const struct attn_problem *p, size_t b, size_t i);
double attn_rope_position_k(const struct attn_problem *p, size_t b, size_t j);  /* j >= T_past */

/* ---- seeded choice, for sampling in audits (SplitMix64; Steele, Lea, Flood 2014) -------------------- */

uint64_t attn_random_u64(uint64_t *state);
size_t attn_random_below(uint64_t *state, size_t n);

#endif
