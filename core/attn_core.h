/*
 * attn_core.h - what the files of core/ share with each other and with nobody else.
 * Not here: anything that api/ may use (attn.h).
 * Start reading at struct attn_run_ctx, then enum attn_stage.
 */
#ifndef ATTN_CORE_H
#define ATTN_CORE_H

#include <assert.h>

#include "core/attn.h"

#define ATTN_COUNT(table) (sizeof(table) / sizeof((table)[0]))

enum {
    ATTN_ROW_BLOCK = 128, /* query rows of one piece of work                            */
    ATTN_TILE_BYTES = 2048, /* of a query row in one tile of the tiled path             */
    ATTN_TILE_KEYS = ATTN_TILE_BYTES / 4, /* at most                                    */
};
/* x, or the nearer end of low … high. */
static inline size_t attn_within(size_t x, size_t low, size_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Keys of one tile. */
static inline size_t attn_tile_keys(enum attn_dtype dtype)
{
    return ATTN_TILE_BYTES / attn_dtype_bytes(dtype);
}

/* ---- BLAS (attn_blas.c, the one file that includes cblas.h)
 * --------------------------------- */

struct attn_mat { /* rows x cols of one dtype, row-major, ld numbers a row       */
    enum attn_dtype dtype;
    void *p;
    size_t rows, cols, ld;
};

/* C = alpha * op(A) op(B) + beta * C.  All of one dtype; sizes agree (asserted). */
void attn_gemm(struct attn_mat C, struct attn_mat A, bool transA, struct attn_mat B,
               bool transB, double alpha, double beta);

/* ---- the two products of a row block (attn_pack.c)
 * ------------------------------------------- */

struct attn_pack { /* for one dtype and vector width; bits depend on neither shape
                      of the block nor place in it                                */
    /* S = scale * Q K^T: S [rows, keys], Q [rows, d_k], K [keys, d_k] */
    void (*scores)(struct attn_mat S, struct attn_mat Q, struct attn_mat K, double scale);
    /* H += A V: H [rows, d_v], A [rows, keys], V [keys, d_v] */
    void (*mix)(struct attn_mat H, struct attn_mat A, struct attn_mat V);
};
/* The best for this machine; NULL where it has none: attn_gemm then. */
const struct attn_pack *attn_pack_of(enum attn_dtype dtype);
/* That of one width, n < attn_pack_widths(): best first; NULL where this machine lacks
 * it. */
const struct attn_pack *attn_pack_width(enum attn_dtype dtype, size_t n);
size_t attn_pack_widths(void);

/* ---- one run
 * ---------------------------------------------------------------------------------- */

struct attn_rows { /* which part of the problem to run: reruns of the audit       */
    size_t b0, b1; /* items                                                       */
    size_t i0, i1; /* query rows                                                  */
};

struct attn_run_ctx {
    const struct attn_problem *p;
    const struct attn_plan *plan;
    struct attn_trace *t;
    const struct attn_exec *exec;
    const struct attn_swap *swap;
    struct attn_rows rows;
};

/* A piece of work.  Query-side stages: rows i0 … i1-1 of head h of item b.  Key-side
   stages: all keys of key/value head h of item b.  OUTPUT: rows i0 … i1-1 of item b (h is
   0). */
struct attn_piece {
    size_t b, h, i0, i1;
};

enum attn_stage { /* dependency order; each writes the objects named             */
                  ATTN_STAGE_PROJECT_Q,  /* Q_pre  */
                  ATTN_STAGE_POSITION_Q, /* Q */
                  ATTN_STAGE_PROJECT_K,  /* K_pre, cached rows first  */
                  ATTN_STAGE_POSITION_K, /* K */
                  ATTN_STAGE_PROJECT_V,  /* V, cached rows first  */
                  ATTN_STAGE_SCORE,      /* S_raw, S      */
                  ATTN_STAGE_MASK,       /* allowed, M       */
                  ATTN_STAGE_SOFTMAX,    /* S_masked, A, lse, empty    */
                  ATTN_STAGE_MIX,        /* H (joined), H_heads, contributions        */
                  ATTN_STAGE_OUTPUT,     /* Y     */
                  ATTN_STAGE_COUNT
};

typedef bool attn_stage_fn(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err);

/* Stages replaced.  A replaced stage runs once, over the whole of run->rows (its piece is
   all zero), after the stages before it have run everywhere: it loops itself and may mix
   items. */
struct attn_swap {
    attn_stage_fn *stage[ATTN_STAGE_COUNT]; /* NULL = the right one */
    const void *param; /* for the replacement                              */
};

struct attn_stage_row {
    const char *name;
    enum { ATTN_OVER_QUERY_ROWS, ATTN_OVER_KEY_HEADS, ATTN_OVER_ITEM_ROWS } domain;
    attn_stage_fn *run; /* the right one                                               */
};
extern const struct attn_stage_row ATTN_STAGES[ATTN_STAGE_COUNT];

/* The right stage on every piece of run->rows: what a fault builds on. */
bool attn_stage_all(const struct attn_run_ctx *run, enum attn_stage stage,
                    struct attn_err *err);

/* attn_run on a part of the problem: the trace holds whole tensors, only `rows` are
   filled (K and V of the named items in full).  Bits are those of the whole where rows
   begin and end with blocks of ATTN_ROW_BLOCK; elsewhere the last ones may differ. */
bool attn_run_rows(const struct attn_problem *p, const struct attn_plan *plan,
                   struct attn_rows rows, struct attn_arena *arena,
                   const struct attn_exec *exec, const struct attn_swap *swap,
                   struct attn_trace *trace, struct attn_err *err);

/* Takes the plan's objects from the arena, with aliases (present_K = K, Q_pre = Q without
 * RoPE…). */
bool attn_trace_take(const struct attn_problem *p, const struct attn_plan *plan,
                     struct attn_arena *arena, struct attn_trace *trace,
                     struct attn_err *err);

/* The right stages, as ATTN_STAGES holds them. */
attn_stage_fn attn_stage_project_q, attn_stage_position_q, attn_stage_project_k,
    attn_stage_position_k, attn_stage_project_v, attn_stage_score, attn_stage_mask,
    attn_stage_softmax, attn_stage_mix, attn_stage_output;
/* SCORE to MIX of one piece without a T_q x T_kv tensor (attn_tiled.c). */
attn_stage_fn attn_tiled;

/* True, with DEADLINE in *err, when the caller wants the run to end: long pieces ask now
 * and then. */
bool attn_stopped(const struct attn_run_ctx *run, struct attn_err *err);
/* Scores of a block times `scale`: S [rows, keys], Q [rows, d_k], K [keys, d_k].  Error:
 * DEADLINE. */
bool attn_score_block(const struct attn_run_ctx *run, struct attn_mat S,
                      struct attn_mat Q, struct attn_mat K, double scale,
                      struct attn_err *err);
/* Narrows [*j0, *j1) to the first and last allowed key of n; false when none is. */
bool attn_allowed_span(const uint8_t *allow, size_t n, size_t *j0, size_t *j1);
/* The sink of a head in *sink, and its address; NULL when the problem has none. */
const double *attn_sink_of(const struct attn_problem *p, size_t h, double *sink);
/* EMPTY_ROW at (b, h, i); returns false. */
bool attn_empty_fail(struct attn_err *err, size_t b, size_t h, size_t i);

/* No NaN and no infinity in it. */
bool attn_mat_finite(struct attn_mat m);
/*
 * H += A V over some keys.  Values that are not finite reach exactly the rows that read
 * them (weight not 0, or key allowed): 0 * Infinity never enters another row, and finite
 * rows keep their bits whatever stands in a value that they do not read. A [rows, keys],
 * V [keys, d_v], H [rows, d_v]; allow [rows, keys] of `stride`, or NULL = all.
 */
void attn_mix_keys(struct attn_mat H, struct attn_mat A, struct attn_mat V,
                   const uint8_t *allow, size_t stride);
/* The same, bit for bit, where V is known to be finite. */
void attn_mix_finite(struct attn_mat H, struct attn_mat A, struct attn_mat V);

/* ---- axes (attn_dims.c)
 * ----------------------------------------------------------------------- */

struct attn_axis_row { /* an axis is one size, or heads times a width               */
    const char *name;
    enum attn_axis heads,
        width; /* heads is ATTN_AX_END and width the axis itself for one size */
};
extern const struct attn_axis_row ATTN_AXES[ATTN_AX_COUNT];

/* ---- addresses
 * ---------------------------------------------------------------------------------- */

/*
 * The matrix at (b, h) of a tensor: rank 4 (B,h,rows,cols), rank 3 (B,rows,cols) with h
 * ignored, rank 2 (rows,cols) with both ignored.  Of rank 5 (B,h,rows,n,m) a row holds
 * all n*m numbers.
 */
static inline struct attn_mat attn_slice(const struct attn_tensor *t, size_t b, size_t h)
{
    assert(t->p != NULL);
    assert(t->rank >= 2 && t->rank <= ATTN_RANK_MAX);

    const unsigned row_axis = t->rank == 2 ? 0 : t->rank == 3 ? 1 : 2;
    struct attn_mat m = {.dtype = t->dtype, .rows = t->dim[row_axis], .cols = 1};
    size_t place = 0;

    for (unsigned a = row_axis + 1; a < t->rank; a++)
        m.cols *= t->dim[a];
    m.ld = m.cols;
    if (row_axis > 0) {
        assert(b < t->dim[0]);
        place = b;
    }
    if (row_axis == 2) {
        assert(h < t->dim[1]);
        place = b * t->dim[1] + h;
    }
    m.p = (char *)t->p + place * m.rows * m.cols * attn_dtype_bytes(t->dtype);
    return m;
}
/* Rows first … first + rows - 1 of a matrix. */
static inline struct attn_mat attn_mat_rows(struct attn_mat m, size_t first, size_t rows)
{
    assert(first <= m.rows);
    assert(rows <= m.rows - first);
    m.p = (char *)m.p + first * m.ld * attn_dtype_bytes(m.dtype);
    m.rows = rows;
    return m;
}
/* to = from; nothing when the two are the same memory, which may overlap in no other way.
 */
void attn_mat_copy(struct attn_mat to, struct attn_mat from);
/* Where a projection goes before RoPE: to its own object when held, else to the result's
 * place. */
static inline const struct attn_tensor *attn_before_rope(const struct attn_trace *t,
                                                         enum attn_object pre,
                                                         enum attn_object after)
{
    return t->t[pre].p ? &t->t[pre] : &t->t[after];
}
static inline size_t attn_kv_head(const struct attn_dims *d, size_t h)
{
    return h / (d->h / d->h_kv);
}

/* ---- kernels: one source, built for double and float (attn_kernel.inc)
 * ---------------------------- */

struct attn_softmax_out {
    double lse;
    bool empty;
};

/* Softmax under way: the weights so far are exp(score - max), their sum is `sum`.  They
   are written halved so many times: a sum of values times weights then never overflows.
 */
struct attn_online {
    double max, sum;
    int halvings;
    bool any;
};

struct attn_kernel {
    /* y[i] = x[i] * scale, then cap*tanh(y/cap) when cap > 0; x may be y */
    void (*scale_cap)(size_t n, const void *x, double scale, double cap, void *y);
    /* one row: a = softmax(s + m) over allow; m may be NULL; allow NULL = all; sink NULL
       = none; a may be s; a is exactly 0 where forbidden, and everywhere when the row is
       empty */
    struct attn_softmax_out (*softmax_row)(size_t n, const void *s, const void *m,
                                           const uint8_t *allow, const double *sink,
                                           void *a);
    void (*fill)(size_t n, double value, void *x);
    bool (*all_finite)(size_t n, const void *x);
    /* y += a * x */
    void (*axpy)(size_t n, double a, const void *x, void *y);
    double (*dot)(size_t n, const void *x, const void *y);
    double (*get)(const void *x, size_t n);
    void (*set)(void *x, size_t n, double value);
    /* y = exp(x), y = tanh(x); y may be x */
    void (*exp)(size_t n, const void *x, void *y);
    void (*tanh)(size_t n, const void *x, void *y);
    /* y = s + m where allowed, -Infinity elsewhere; s or m NULL = 0, allow NULL = all; y
     * may be s */
    void (*masked)(size_t n, const void *s, const void *m, const uint8_t *allow, void *y);
    /* some keys of one row: p = exp(s + m - new max), 0 where forbidden; brings `o` up to
       date and returns the factor for what was computed under the old max; p may be s.  p
       is halved o->halvings times, the sum is not */
    double (*online_row)(size_t n, const void *s, const void *m, const uint8_t *allow,
                         struct attn_online *o, void *p);
    /* s_j = sum_c v_c tanh(q_c + k_jc), k [n, d] */
    void (*additive_row)(size_t n, size_t d, const void *q, const void *k, const void *v,
                         void *s);
    void (*from_double)(size_t n, const double *x, void *y);
    void (*to_double)(size_t n, const void *x, double *y);
    /* -sum a ln a, for double alone; false where a number is neither 0 nor normal and
     * positive */
    bool (*entropy)(size_t n, const double *a, double *entropy);
    bool fused; /* exp, tanh and log use fused multiply-adds                   */
};
const struct attn_kernel *attn_kernel_of(enum attn_dtype dtype);
/* The kernel of one vector width, n < attn_kernel_widths(): best first; NULL where this
   machine lacks it.  Those alike in `fused` give the same bits. */
const struct attn_kernel *attn_kernel_width(enum attn_dtype dtype, size_t n);
size_t attn_kernel_widths(void);

/* Allowed keys of one query row for j0 … j1-1 (all rules and additive -Infinity). */
void attn_allow_row(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j0,
                    size_t j1, uint8_t *allow);
/* attn_bias of keys j0 … j1-1; false, leaving m alone, when the problem has no bias. */
bool attn_bias_row(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j0,
                   size_t j1, double *m);
/* Is there an additive bias, or a position kind that is one? */
bool attn_is_biased(const struct attn_problem *p);
/* |attn_bias| plus the sizes of the parts that positions add: what rounding is measured
 * by. */
double attn_bias_size(const struct attn_problem *p, size_t b, size_t h, size_t i,
                      size_t j);
/* Narrowest [*j0,*j1) known without looking at every pair; *exact: all of it is allowed.
 */
void attn_allow_range(const struct attn_problem *p, size_t b, size_t h, size_t i,
                      size_t *j0, size_t *j1, bool *exact);

/* ---- positions (attn_position.c)
 * ---------------------------------------------------------------- */

/* Checks every requested kind and derives p->rope and p->alibi: part of attn_prepare. */
bool attn_prepare_positions(struct attn_problem *p, struct attn_err *err);
/* The kind that turns Q and K; NULL = none does. */
const struct attn_position *attn_turn_of(const struct attn_problem *p);
/* Takes it away: Q and K are turned already. */
void attn_without_turn(struct attn_problem *p);
/* Positions of query i and of the new key j >= T_past, as a kind's parameters state them,
   else T_kv - T_q + i and j. */
double attn_position_of_query(const struct attn_problem *p, const struct attn_position *x,
                              size_t b, size_t i);
double attn_position_of_key(const struct attn_problem *p, const struct attn_position *x,
                            size_t b, size_t j);
/* The same for the kind that turns. */
double attn_rope_position_q(const struct attn_problem *p, size_t b, size_t i);
double attn_rope_position_k(const struct attn_problem *p, size_t b,
                            size_t j); /* j >= T_past */
/* RoPE angle pairs: rotates one row of d_k numbers to position pos (Su et al. 2021, eq.
 * 34). */
void attn_rope_row(const struct attn_problem *p, double pos, const double *in,
                   double *out);
/* RoPE's faster forms (attn_rotate.c, attn_judge.c). */
attn_turn_rows_fn attn_rope_rows;
attn_turn_judged_fn attn_rope_judged;

/* ---- seeded choice, for sampling in audits (SplitMix64; Steele, Lea, Flood 2014)
 * -------------------- */

uint64_t attn_random_u64(uint64_t *state);
size_t attn_random_below(uint64_t *state, size_t n);

#endif
