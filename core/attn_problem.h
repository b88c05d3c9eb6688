/*
 * attn_problem.h - a problem: tensors, sizes, inputs, masks, scores, positions.
 * Not here: what is computed from it (attn_layer.h), how it is judged (attn_findings.h).
 * Start reading at struct attn_problem.  Include attn.h, which has all three parts.
 */
#ifndef ATTN_PROBLEM_H
#define ATTN_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ATTN_RANK_MAX = 5,
    ATTN_ALIGN = 64,
    ATTN_MASKS_MAX = 16,
    ATTN_PARAMS_MAX = 4,
    ATTN_POSITIONS_MAX = 8,
    ATTN_CHOICES_MAX = 4,
    ATTN_TURN_WIDTH_MAX = 4096
};
/* ---- tensors
 * --------------------------------------------------------------------------- */

enum attn_dtype { ATTN_F64, ATTN_F32, ATTN_BOOL, ATTN_DTYPE_COUNT };

struct attn_tensor {
    enum attn_dtype dtype;
    unsigned rank;
    size_t dim[ATTN_RANK_MAX];
    void *p; /* NULL = absent                                          */
};

size_t attn_dtype_bytes(enum attn_dtype dtype);
const char *attn_dtype_name(enum attn_dtype dtype);
size_t attn_tensor_count(const struct attn_tensor *t); /* 0 when a dimension is 0 */
double attn_tensor_get(const struct attn_tensor *t,
                       size_t flat); /* any dtype, as double  */

/* ---- errors (world errors; the sentences are made in api/)
 * ------------------------------ */

enum attn_code {
    ATTN_OK,
    ATTN_E_RANK,  /* object has `got` axes, `want` expected                           */
    ATTN_E_SHAPE, /* axis `axis` of object is `got`, `want` expected                  */
    ATTN_E_DECLARED, /* shapes.`axis` says `want`, object has `got` */
    ATTN_E_MISSING, /* object is needed and absent                                      */
    ATTN_E_CONTRADICTION, /* object cannot be given together with what else was given */
    ATTN_E_SIZE_ZERO,     /* axis is 0     */
    ATTN_E_SIZE_UNKNOWN,  /* no tensor and no declaration fixes axis  */
    ATTN_E_DIVIDE, /* `got` does not divide by `want` (heads, kv_heads)                */
    ATTN_E_ALIGNMENT, /* causal alignment must be stated: T_q = want, new keys = got */
    ATTN_E_EMPTY_ROW, /* a row has no allowed key and empty_rows is "error": at b,h,i */
    ATTN_E_ODD_WIDTH, /* the position kind `object` needs an even d_k: got */
    ATTN_E_MEMORY, /* got bytes planned, want = limit                                  */
    ATTN_E_OVERFLOW, /* sizes whose product no machine holds */
    ATTN_E_RANGE,  /* a parameter is outside its range: object names it; want: at most */
    ATTN_E_SQUARE, /* the matrix `object` must be square: rows (want), columns (got)  */
    ATTN_E_DEADLINE, /* exec->stop said so */
    ATTN_CODE_COUNT
};

struct attn_err {
    enum attn_code code;
    const char *object; /* "S", "W_O", "padding.lengths": a constant, never freed */
    const char *axis;   /* "T_q", "d_model", …: a constant; or NULL   */
    size_t at[4]; /* b, h, i, j (or flat places); SIZE_MAX where it has none          */
    size_t want, got; /* the two numbers that disagreed */
};

/* Records the first failure only; returns false, so callers write: return attn_fail(...).
 */
bool attn_fail(struct attn_err *err, enum attn_code code, const char *object,
               const char *axis, size_t want, size_t got);

/* ---- arena
 * ------------------------------------------------------------------------------ */

struct attn_arena {
    unsigned char *base;
    size_t size, used, peak;
};

/* ATTN_ALIGN-aligned bytes, not cleared; NULL when there is no room. */
void *attn_arena_take(struct attn_arena *arena, size_t bytes);
size_t attn_arena_mark(const struct attn_arena *arena);
void attn_arena_release(struct attn_arena *arena, size_t mark);

/* ---- sizes
 * ------------------------------------------------------------------------------ */

struct attn_dims {
    size_t B, T_q, T_kv, T_past, d_model, d_model_kv, d_k, d_v, h, h_kv;
};

enum attn_axis {
    ATTN_AX_END, /* ends a list of axes                                              */
    ATTN_AX_B,
    ATTN_AX_H,
    ATTN_AX_HKV,
    ATTN_AX_TQ,
    ATTN_AX_TKV,
    ATTN_AX_TNEW,
    ATTN_AX_TPAST,
    ATTN_AX_DM,
    ATTN_AX_DMKV,
    ATTN_AX_DK,
    ATTN_AX_DV,
    ATTN_AX_H_DK,
    ATTN_AX_HKV_DK,
    ATTN_AX_HKV_DV,
    ATTN_AX_H_DV, /* products, heads joined   */
    ATTN_AX_COUNT
};

size_t attn_axis_size(const struct attn_dims *d, enum attn_axis axis);
const char *attn_axis_name(enum attn_axis axis); /* "B", "h", "T_q", "h*d_k", …         */

/* ---- inputs
 * ------------------------------------------------------------------------------ */

enum attn_input {
    ATTN_IN_X,
    ATTN_IN_X_KV,
    ATTN_IN_Q,
    ATTN_IN_K,
    ATTN_IN_V,
    ATTN_IN_PAST_K,
    ATTN_IN_PAST_V,
    ATTN_IN_W_Q,
    ATTN_IN_W_K,
    ATTN_IN_W_V,
    ATTN_IN_W_O,
    ATTN_IN_B_Q,
    ATTN_IN_B_K,
    ATTN_IN_B_V,
    ATTN_IN_B_O,
    ATTN_IN_V_A,
    ATTN_IN_SINK,
    ATTN_INPUT_COUNT
};

struct attn_input_row {
    const char *name;       /* "X", "past.K", "W_Q", "b_Q", "v_a", "sink"              */
    const char *place;      /* JSON Pointer of the tensor in a problem                 */
    enum attn_axis axis[4]; /* full rank; ATTN_AX_END ends                             */
};
extern const struct attn_input_row ATTN_INPUTS[ATTN_INPUT_COUNT];

enum attn_source { ATTN_SELF, ATTN_CROSS, ATTN_PROJECTED };

/* What is known of sizes before any tensor is read: 0 = not stated. */
struct attn_decl {
    size_t B, T, T_kv, d_model, d_k, d_v, heads, kv_heads;
};

/* The shape an input arrived with, without its batch axis where it had none. */
struct attn_given {
    bool present; /* the field is there (also for init without a shape)      */
    bool shaped;  /* rank and dim are known                                  */
    unsigned rank;
    size_t dim[ATTN_RANK_MAX];
};

struct attn_form { /* how inputs were given, and so how answers look          */
    bool batch_axis, head_axis;
    bool has_output; /* W_O is there: Y exists                                  */
    enum attn_source source;
};

/*
 * Finds every size from the declaration and the given shapes, and checks that all agree.
 * Weights are (in, out).  X is (T,d_model) or (B,T,d_model); X_kv likewise and of its own
 * width; projected Q K V are (T,h*d), (B,T,h*d) or (B,h,T,d); past K V are
 * (B,h_kv,T_past,d). Errors: RANK, SHAPE, DECLARED, MISSING, CONTRADICTION, SIZE_ZERO,
 * SIZE_UNKNOWN, DIVIDE with the input's name as object; `d` and `form` are undefined
 * after one.
 */
bool attn_resolve(const struct attn_decl *decl,
                  const struct attn_given given[ATTN_INPUT_COUNT], struct attn_dims *d,
                  struct attn_form *form, struct attn_err *err);

/* ---- seeded tensors (attn_init.c documents the generator)
 * -------------------------------- */

enum attn_init_kind {
    ATTN_INIT_ZEROS,
    ATTN_INIT_ONES,
    ATTN_INIT_IDENTITY,
    ATTN_INIT_NORMAL,
    ATTN_INIT_UNIFORM,
    ATTN_INIT_XAVIER_UNIFORM,
    ATTN_INIT_COUNT
};
extern const char *const ATTN_INIT_NAMES[ATTN_INIT_COUNT];

/* std <= 0 means the kind's default.  False when the kind needs rank >= 2 and t has less.
 */
bool attn_init_fill(enum attn_init_kind kind, uint64_t seed, double std,
                    struct attn_tensor *t);

/* ---- masks
 * ------------------------------------------------------------------------------- */

/* A table read at (b, h, i, j): element p[b*stride_b + h*stride_h + i*stride_i + j]. */
enum attn_elem { ATTN_ELEM_U8, ATTN_ELEM_I64, ATTN_ELEM_F64 };
struct attn_table {
    enum attn_elem elem;
    const void *p; /* NULL = absent                                           */
    size_t stride_b, stride_h, stride_i;
};

struct attn_arg {
    bool given;
    int64_t number;
    struct attn_table table;
    double real;
};

enum attn_alignment { ATTN_ALIGN_UNSTATED, ATTN_ALIGN_TOP_LEFT, ATTN_ALIGN_BOTTOM_RIGHT };

enum attn_param_kind {
    ATTN_PARAM_END,
    ATTN_PARAM_ALIGNMENT, /* "top_left" | "bottom_right" → number                    */
    ATTN_PARAM_EXTENT,    /* whole number >= -1, -1 = open → number                  */
    ATTN_PARAM_LENGTHS,  /* [B] whole numbers 0…T_kv → I64 table, j ignored         */
    ATTN_PARAM_VALID,    /* booleans (B,T_kv) → U8 table                            */
    ATTN_PARAM_IDS,      /* whole numbers (B,T_kv), -1 = no document → I64 table    */
    ATTN_PARAM_SEGMENTS, /* ragged document lengths, read into the IDS parameter    */
    ATTN_PARAM_CU_SEQLENS, /* cumulated document lengths, read into the IDS parameter */
    ATTN_PARAM_NEXT_ID,    /* [B] document of the token after the block → I64 table   */
    ATTN_PARAM_PAIRS,      /* booleans (T_q,T_kv), (B,T_q,T_kv), (B,h,T_q,T_kv) → U8  */
    ATTN_PARAM_KIND_COUNT
};

enum attn_mask_form { ATTN_MASK_SWITCH, ATTN_MASK_OBJECT, ATTN_MASK_TENSOR };

struct attn_problem;
struct attn_mask;

/* May query (b,h,i) read key j, as far as this rule is concerned? */
typedef bool attn_mask_fn(const struct attn_problem *p, const struct attn_mask *m,
                          size_t b, size_t h, size_t i, size_t j);
/* The same for keys j0 … j1-1 at once: clears allow[j - j0] where forbidden. */
typedef void attn_mask_clear_fn(const struct attn_problem *p, const struct attn_mask *m,
                                size_t b, size_t h, size_t i, size_t j0, size_t j1,
                                uint8_t *allow);
/* Narrows [*j0, *j1) to a range outside which the rule forbids every key of query
   (b,h,i); never leaves *j0 > *j1.  True when the rule allows every key that remains. */
typedef bool attn_mask_range_fn(const struct attn_problem *p, const struct attn_mask *m,
                                size_t b, size_t h, size_t i, size_t *j0, size_t *j1);

struct attn_mask_row {
    const char *name; /* wire name, never renamed                                */
    const char *rule; /* one plain sentence                                      */
    enum attn_mask_form form; /* true|object, object, or the tensor itself */
    struct attn_mask_param {
        const char *name;
        enum attn_param_kind kind;
        int one_of; /* parameters with the same number > 0: exactly one given  */
    } param[ATTN_PARAMS_MAX];
    attn_mask_fn *allows; /* the rule; the only function a row must have             */
    attn_mask_clear_fn *clear; /* faster, or NULL: `allows` is asked for every pair */
    attn_mask_range_fn *range; /* or NULL */
    bool per_head; /* may differ between heads                                */
};

size_t attn_mask_count(void);
const struct attn_mask_row *attn_mask_at(size_t n);
const struct attn_mask_row *attn_mask_find(const char *name); /* NULL = no such rule */

struct attn_mask { /* one requested rule; a problem ANDs several              */
    const struct attn_mask_row *row;
    struct attn_arg arg[ATTN_PARAMS_MAX]; /* in the order the row declares them */
};

enum attn_empty {
    ATTN_EMPTY_ZERO,
    ATTN_EMPTY_NAN,
    ATTN_EMPTY_UNIFORM,
    ATTN_EMPTY_ERROR,
    ATTN_EMPTY_COUNT
};
extern const char *const ATTN_EMPTY_NAMES[ATTN_EMPTY_COUNT];

/* ---- scores and positions
 * ----------------------------------------------------------------- */

/*
 * One unscaled score of q and k (d_k numbers each), in double: what judges and gradients
 * read. When dq is not NULL, adds g times the derivative to dq, dk and (where the
 * function has a vector parameter) dv.  Without `keys` it is also what runs, and faults
 * call it: both on ATTN_SCORE_PIECE features at a time, whose scores add up.
 */
enum { ATTN_SCORE_PIECE = 1024 };
typedef double attn_score_fn(size_t d_k, const double *q, const double *k,
                             const double *v_a, double g, double *dq, double *dk,
                             double *dv);

/* The same, unscaled, for one query and keys k [n, d_k] at once, in dtype: s [n].  What
 * runs. */
typedef void attn_score_keys_fn(enum attn_dtype dtype, size_t n, size_t d_k,
                                const void *q, const void *k, const void *v_a, void *s);

struct attn_score_row {
    const char *name, *formula;
    attn_score_fn *pair;
    bool scaled_by_default; /* 1/sqrt(d_k) when no scale is stated                      */
    bool needs_v_a;
    bool bilinear; /* q·k: computed by gemm                                    */
    attn_score_keys_fn *keys; /* faster; NULL when bilinear, or to run `pair` in double */
};
size_t attn_score_count(void);
const struct attn_score_row *attn_score_at(size_t n);
const struct attn_score_row *attn_score_find(const char *name);

/* ---- positions ---- */

enum attn_position_param_kind {
    ATTN_POSITION_END,
    ATTN_POSITION_CHOICE,  /* one of the parameter's names → number: its place        */
    ATTN_POSITION_REAL,    /* a number → real                                         */
    ATTN_POSITION_QUERIES, /* numbers (T_q) or (B,T_q) → F64 table, j counts queries  */
    ATTN_POSITION_KEYS,   /* numbers (T_new) or (B,T_new) → F64 table of the new keys */
    ATTN_POSITION_SLOPES, /* numbers (h), or "standard" → F64 table, j counts heads  */
    ATTN_POSITION_PARAM_KIND_COUNT
};

struct attn_position;
struct attn_mat;    /* attn_core.h                                             */
struct attn_judged; /* attn_judge.h                                            */

/* How a row is turned: to position `at`; `back` asks for the transpose of that
 * (gradients). */
struct attn_turn {
    double at;
    bool of_key, back;
};

/* Turns one row of d_k numbers in place.  Linear in the row; `back` is its transpose. */
typedef void attn_turn_fn(const struct attn_problem *p, const struct attn_position *x,
                          struct attn_turn turn, double *row);
/* What is added to M at one pair. */
typedef double attn_position_bias_fn(const struct attn_problem *p,
                                     const struct attn_position *x, size_t b, size_t h,
                                     size_t i, size_t j);
/* `turn` on rows first … of item b at once, in dtype; from and to may be the same memory.
 */
typedef void attn_turn_rows_fn(const struct attn_problem *p,
                               const struct attn_position *x, size_t b, size_t first,
                               bool of_key, struct attn_mat from, struct attn_mat to);
/* `turn` on one row of judged numbers, with the error that it adds. */
typedef void attn_turn_judged_fn(const struct attn_problem *p,
                                 const struct attn_position *x, struct attn_turn turn,
                                 struct attn_judged *row);
/* m[j - j0] += bias for keys j0 … j1-1. */
typedef void attn_position_bias_row_fn(const struct attn_problem *p,
                                       const struct attn_position *x, size_t b, size_t h,
                                       size_t i, size_t j0, size_t j1, double *m);
/* Fills what the row's faster forms read of the problem. */
typedef void attn_position_derive_fn(struct attn_problem *p,
                                     const struct attn_position *x);

struct attn_position_row {
    const char *name; /* wire name, never renamed                                */
    const char *formula;
    struct attn_position_param {
        const char *name;
        enum attn_position_param_kind kind;
        bool required;
        double otherwise; /* REAL: its value when left out                           */
        bool positive;    /* REAL: must be greater than 0                            */
        const char
            *choice[ATTN_CHOICES_MAX]; /* CHOICE: the first is taken when left out   */
        const char *left_out; /* warning of the answer when left out, or NULL          */
    } param[ATTN_PARAMS_MAX];
    attn_turn_fn *turn; /* acts on Q and K before the score …                      */
    attn_position_bias_fn
        *bias; /* … or on M: a row has one of the two, and need no more   */
    attn_turn_rows_fn *turn_rows;     /* faster, or NULL: `turn` row by row     */
    attn_turn_judged_fn *turn_judged; /* faster, or NULL: from `turn`                   */
    attn_position_bias_row_fn *bias_row; /* faster, or NULL: `bias` pair by pair */
    attn_position_derive_fn *derive; /* or NULL                                        */
    bool needs_even; /* turns pairs of features: d_k must be even               */
};
size_t attn_position_count(void);
const struct attn_position_row *attn_position_at(size_t n);
const struct attn_position_row *attn_position_find(
    const char *name); /* NULL = no such kind */
const char *attn_position_acts_on(const struct attn_position_row *row); /* "Q,K" or "M" */

struct attn_position { /* one requested kind; at most one turns, biases add up    */
    const struct attn_position_row *row;
    struct attn_arg arg[ATTN_PARAMS_MAX]; /* in the order the row declares them */
};
/* The kind with every parameter left out. */
struct attn_position attn_position_of_row(const struct attn_position_row *row);

enum attn_rope_layout { ATTN_ROPE_HALF, ATTN_ROPE_INTERLEAVED };

struct attn_rope { /* what RoPE's functions read                              */
    bool on;
    enum attn_rope_layout layout;
    double base;
};

/* Standard ALiBi slopes for n heads (Press et al. 2022, section 3 and their code for n
   not a power of two). */
void attn_alibi_standard(size_t n, double *slopes);

/* ---- the problem
 * --------------------------------------------------------------------------- */

struct attn_problem {
    enum attn_dtype dtype; /* F64 or F32: what the layer computes in       */
    struct attn_dims d;
    struct attn_form form;
    struct attn_tensor
        in[ATTN_INPUT_COUNT]; /* of dtype; full rank (B and head axes there)  */
    const struct attn_score_row *score;
    double scale, temperature, softcap; /* scale resolved; softcap 0 = none             */
    bool scale_stated;
    struct attn_position position[ATTN_POSITIONS_MAX];
    size_t position_count;
    struct attn_rope rope; /* derived from position by attn_prepare        */
    const double *alibi;   /* [h] slopes, or NULL: derived likewise        */
    struct attn_mask mask[ATTN_MASKS_MAX];
    size_t mask_count;
    struct attn_table additive; /* F64 bias, may hold -Infinity; p NULL = none  */
    enum attn_empty empty_rows;
    ptrdiff_t shift; /* set by attn_prepare: see there               */
};

/*
 * Checks what sizes alone cannot: alignment, position kinds, sink and v_a presence; sets
 * `shift`, the offset o such that query i stands at key position i + o: T_past under a
 * top_left causal rule, T_kv - T_q otherwise; derives `rope` and `alibi`. Errors:
 * ALIGNMENT, ODD_WIDTH, MISSING, CONTRADICTION, RANGE, OVERFLOW.
 */
bool attn_prepare(struct attn_problem *p, struct attn_err *err);

/* The problem of item b alone (B = 1): tensors, masks, positions and bias cut, nothing
 * copied. */
void attn_problem_item(const struct attn_problem *p, size_t b, struct attn_problem *item);

/* The rules' verdict on one pair, additive -Infinity included.  Loops only; for judges.
 */
bool attn_allowed(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j);
/* The finite part of M at one pair: additive bias and those of positions (0 without). For
 * judges. */
double attn_bias(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j);
const struct attn_mask *attn_mask_of(const struct attn_problem *p, const char *name);

/* ---- conventions of other systems
 * ---------------------------------------------------------------- */

struct attn_convention_row {
    const char *name;
    const char
        *mask_true_means; /* "may attend" | "is forbidden" | "takes no boolean mask" */
    enum attn_alignment alignment;
    enum attn_empty empty_rows;
    const char *default_scale;
    bool window_counts_own_position;
    const char *source; /* which page of which version says so                          */
};
size_t attn_convention_count(void);
const struct attn_convention_row *attn_convention_at(size_t n);
const struct attn_convention_row *attn_convention_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
