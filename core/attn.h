/*
 * attn.h - the public face of libattn: one attention layer, its objects, audit, cost, gradients.
 * Not here: JSON, files, sockets, clocks, threads, heap (see api/ and server/).
 * Start reading at enum attn_object (the layer), then struct attn_problem, then attn_run.
 *
 * Letters: B items, T_q query positions, T_kv key positions = T_past cached + T_new new ones,
 * h query heads, h_kv key/value heads, d_model, d_k, d_v.  Indices: b item, h head, i query row,
 * j key column, c feature.  Every tensor here is dense and row-major, and always has its batch
 * and head axes; what an answer drops is decided by attn_object_shape.
 */
#ifndef LIBATTN_ATTN_H
#define LIBATTN_ATTN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTN_RANK_MAX = 5, ATTN_ALIGN = 64, ATTN_MASKS_MAX = 16, ATTN_PARAMS_MAX = 4,
       ATTN_POSITIONS_MAX = 8, ATTN_CHOICES_MAX = 4, ATTN_TURN_WIDTH_MAX = 4096 };

/* ---- tensors --------------------------------------------------------------------------- */

enum attn_dtype { ATTN_F64, ATTN_F32, ATTN_BOOL, ATTN_DTYPE_COUNT };

struct attn_tensor {
    enum attn_dtype dtype;
    unsigned rank;
    size_t dim[ATTN_RANK_MAX];
    void *p;                       /* NULL = absent                                          */
};

size_t attn_dtype_bytes(enum attn_dtype dtype);
const char *attn_dtype_name(enum attn_dtype dtype);
size_t attn_tensor_count(const struct attn_tensor *t);          /* 0 when a dimension is 0 */
double attn_tensor_get(const struct attn_tensor *t, size_t flat);  /* any dtype, as double  */

/* ---- errors (world errors; the sentences are made in api/) ------------------------------ */

enum attn_code {
    ATTN_OK,
    ATTN_E_RANK,          /* object has `got` axes, `want` expected                           */
    ATTN_E_SHAPE,         /* axis `axis` of object is `got`, `want` expected                  */
    ATTN_E_DECLARED,      /* shapes.`axis` says `want`, object has `got`                      */
    ATTN_E_MISSING,       /* object is needed and absent                                      */
    ATTN_E_CONTRADICTION, /* object cannot be given together with what else was given         */
    ATTN_E_SIZE_ZERO,     /* axis is 0                                                        */
    ATTN_E_SIZE_UNKNOWN,  /* no tensor and no declaration fixes axis                          */
    ATTN_E_DIVIDE,        /* `got` does not divide by `want` (heads, kv_heads)                */
    ATTN_E_ALIGNMENT,     /* causal alignment must be stated: T_q = want, new keys = got      */
    ATTN_E_EMPTY_ROW,     /* a row has no allowed key and empty_rows is "error": at b,h,i     */
    ATTN_E_ODD_WIDTH,     /* the position kind `object` needs an even d_k: got                */
    ATTN_E_MEMORY,        /* got bytes planned, want = limit                                  */
    ATTN_E_OVERFLOW,      /* sizes whose product no machine holds                             */
    ATTN_E_RANGE,         /* a parameter is outside its range: object names it                */
    ATTN_E_DEADLINE,      /* exec->stop said so                                               */
    ATTN_CODE_COUNT
};

struct attn_err {
    enum attn_code code;
    const char *object;   /* "S", "W_O", "padding.lengths": a constant, never freed           */
    const char *axis;     /* "T_q", "d_model", …: a constant; or NULL                         */
    size_t at[4];         /* b, h, i, j (or flat places); SIZE_MAX where it has none          */
    size_t want, got;     /* the two numbers that disagreed                                   */
};

/* Records the first failure only; returns false, so callers write: return attn_fail(...). */
bool attn_fail(struct attn_err *err, enum attn_code code, const char *object, const char *axis,
               size_t want, size_t got);

/* ---- arena ------------------------------------------------------------------------------ */

struct attn_arena {
    unsigned char *base;
    size_t size, used, peak;
};

/* ATTN_ALIGN-aligned bytes, not cleared; NULL when there is no room. */
void *attn_arena_take(struct attn_arena *arena, size_t bytes);
size_t attn_arena_mark(const struct attn_arena *arena);
void attn_arena_release(struct attn_arena *arena, size_t mark);

/* ---- sizes ------------------------------------------------------------------------------ */

struct attn_dims {
    size_t B, T_q, T_kv, T_past, d_model, d_model_kv, d_k, d_v, h, h_kv;
};

enum attn_axis {
    ATTN_AX_END,          /* ends a list of axes                                              */
    ATTN_AX_B, ATTN_AX_H, ATTN_AX_HKV, ATTN_AX_TQ, ATTN_AX_TKV, ATTN_AX_TNEW, ATTN_AX_TPAST,
    ATTN_AX_DM, ATTN_AX_DMKV, ATTN_AX_DK, ATTN_AX_DV,
    ATTN_AX_H_DK, ATTN_AX_HKV_DK, ATTN_AX_HKV_DV, ATTN_AX_H_DV,   /* products, heads joined   */
    ATTN_AX_COUNT
};

size_t attn_axis_size(const struct attn_dims *d, enum attn_axis axis);
const char *attn_axis_name(enum attn_axis axis);       /* "B", "h", "T_q", "h*d_k", …         */

/* ---- inputs ------------------------------------------------------------------------------ */

enum attn_input {
    ATTN_IN_X, ATTN_IN_X_KV, ATTN_IN_Q, ATTN_IN_K, ATTN_IN_V, ATTN_IN_PAST_K, ATTN_IN_PAST_V,
    ATTN_IN_W_Q, ATTN_IN_W_K, ATTN_IN_W_V, ATTN_IN_W_O,
    ATTN_IN_B_Q, ATTN_IN_B_K, ATTN_IN_B_V, ATTN_IN_B_O,
    ATTN_IN_V_A, ATTN_IN_SINK,
    ATTN_INPUT_COUNT
};

struct attn_input_row {
    const char *name;              /* "X", "past.K", "W_Q", "b_Q", "v_a", "sink"              */
    const char *place;             /* JSON Pointer of the tensor in a problem                 */
    enum attn_axis axis[4];        /* full rank; ATTN_AX_END ends                             */
};
extern const struct attn_input_row ATTN_INPUTS[ATTN_INPUT_COUNT];

enum attn_source { ATTN_SELF, ATTN_CROSS, ATTN_PROJECTED };

/* What is known of sizes before any tensor is read: 0 = not stated. */
struct attn_decl {
    size_t B, T, T_kv, d_model, d_k, d_v, heads, kv_heads;
};

/* The shape an input arrived with, without its batch axis where it had none. */
struct attn_given {
    bool present;                  /* the field is there (also for init without a shape)      */
    bool shaped;                   /* rank and dim are known                                  */
    unsigned rank;
    size_t dim[ATTN_RANK_MAX];
};

struct attn_form {                 /* how inputs were given, and so how answers look          */
    bool batch_axis, head_axis;
    bool has_output;               /* W_O is there: Y exists                                  */
    enum attn_source source;
};

/*
 * Finds every size from the declaration and the given shapes, and checks that all agree.
 * Weights are (in, out).  X is (T,d_model) or (B,T,d_model); X_kv likewise and of its own width;
 * projected Q K V are (T,h*d), (B,T,h*d) or (B,h,T,d); past K V are (B,h_kv,T_past,d).
 * Errors: RANK, SHAPE, DECLARED, MISSING, CONTRADICTION, SIZE_ZERO, SIZE_UNKNOWN, DIVIDE with the
 * input's name as object; `d` and `form` are undefined after one.
 */
bool attn_resolve(const struct attn_decl *decl, const struct attn_given given[ATTN_INPUT_COUNT],
                  struct attn_dims *d, struct attn_form *form, struct attn_err *err);

/* ---- seeded tensors (attn_init.c documents the generator) -------------------------------- */

enum attn_init_kind {
    ATTN_INIT_ZEROS, ATTN_INIT_ONES, ATTN_INIT_IDENTITY, ATTN_INIT_NORMAL, ATTN_INIT_UNIFORM,
    ATTN_INIT_XAVIER_UNIFORM, ATTN_INIT_COUNT
};
extern const char *const ATTN_INIT_NAMES[ATTN_INIT_COUNT];

/* std <= 0 means the kind's default.  False when the kind needs rank >= 2 and t has less. */
bool attn_init_fill(enum attn_init_kind kind, uint64_t seed, double std, struct attn_tensor *t);

/* ---- masks ------------------------------------------------------------------------------- */

/* A table read at (b, h, i, j): element p[b*stride_b + h*stride_h + i*stride_i + j]. */
enum attn_elem { ATTN_ELEM_U8, ATTN_ELEM_I64, ATTN_ELEM_F64 };
struct attn_table {
    enum attn_elem elem;
    const void *p;                 /* NULL = absent                                           */
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
    ATTN_PARAM_ALIGNMENT,          /* "top_left" | "bottom_right" → number                    */
    ATTN_PARAM_EXTENT,             /* whole number >= -1, -1 = open → number                  */
    ATTN_PARAM_LENGTHS,            /* [B] whole numbers 0…T_kv → I64 table, j ignored         */
    ATTN_PARAM_VALID,              /* booleans (B,T_kv) → U8 table                            */
    ATTN_PARAM_IDS,                /* whole numbers (B,T_kv), -1 = no document → I64 table    */
    ATTN_PARAM_SEGMENTS,           /* ragged document lengths, read into the IDS parameter    */
    ATTN_PARAM_CU_SEQLENS,         /* cumulated document lengths, read into the IDS parameter */
    ATTN_PARAM_NEXT_ID,            /* [B] document of the token after the block → I64 table   */
    ATTN_PARAM_PAIRS,              /* booleans (T_q,T_kv), (B,T_q,T_kv), (B,h,T_q,T_kv) → U8  */
    ATTN_PARAM_KIND_COUNT
};

enum attn_mask_form { ATTN_MASK_SWITCH, ATTN_MASK_OBJECT, ATTN_MASK_TENSOR };

struct attn_problem;
struct attn_mask;

/* May query (b,h,i) read key j, as far as this rule is concerned? */
typedef bool attn_mask_fn(const struct attn_problem *p, const struct attn_mask *m, size_t b,
                          size_t h, size_t i, size_t j);
/* The same for keys j0 … j1-1 at once: clears allow[j - j0] where forbidden. */
typedef void attn_mask_clear_fn(const struct attn_problem *p, const struct attn_mask *m, size_t b,
                                size_t h, size_t i, size_t j0, size_t j1, uint8_t *allow);
/* Narrows [*j0, *j1) to a range outside which the rule forbids every key of query (b,h,i); never
   leaves *j0 > *j1.  True when the rule allows every key that remains. */
typedef bool attn_mask_range_fn(const struct attn_problem *p, const struct attn_mask *m, size_t b,
                                size_t h, size_t i, size_t *j0, size_t *j1);

struct attn_mask_row {
    const char *name;              /* wire name, never renamed                                */
    const char *rule;              /* one plain sentence                                      */
    enum attn_mask_form form;      /* true|object, object, or the tensor itself               */
    struct attn_mask_param {
        const char *name;
        enum attn_param_kind kind;
        int one_of;                /* parameters with the same number > 0: exactly one given  */
    } param[ATTN_PARAMS_MAX];
    attn_mask_fn *allows;          /* the rule; the only function a row must have             */
    attn_mask_clear_fn *clear;     /* faster, or NULL: `allows` is asked for every pair       */
    attn_mask_range_fn *range;     /* or NULL                                                 */
    bool per_head;                 /* may differ between heads                                */
};

size_t attn_mask_count(void);
const struct attn_mask_row *attn_mask_at(size_t n);
const struct attn_mask_row *attn_mask_find(const char *name);      /* NULL = no such rule     */

struct attn_mask {                 /* one requested rule; a problem ANDs several              */
    const struct attn_mask_row *row;
    struct attn_arg arg[ATTN_PARAMS_MAX];   /* in the order the row declares them             */
};

enum attn_empty { ATTN_EMPTY_ZERO, ATTN_EMPTY_NAN, ATTN_EMPTY_UNIFORM, ATTN_EMPTY_ERROR,
                  ATTN_EMPTY_COUNT };
extern const char *const ATTN_EMPTY_NAMES[ATTN_EMPTY_COUNT];

/* ---- scores and positions ----------------------------------------------------------------- */

/*
 * One unscaled score of q and k (d_k numbers each), in double: what judges and gradients read.
 * When dq is not NULL, adds g times the derivative to dq, dk and (where the function has a
 * vector parameter) dv.  Without `keys` it is also what runs, and faults call it: both on
 * ATTN_SCORE_PIECE features at a time, whose scores add up.
 */
enum { ATTN_SCORE_PIECE = 1024 };
typedef double attn_score_fn(size_t d_k, const double *q, const double *k, const double *v_a,
                             double g, double *dq, double *dk, double *dv);

/* The same, unscaled, for one query and keys k [n, d_k] at once, in dtype: s [n].  What runs. */
typedef void attn_score_keys_fn(enum attn_dtype dtype, size_t n, size_t d_k, const void *q,
                                const void *k, const void *v_a, void *s);

struct attn_score_row {
    const char *name, *formula;
    attn_score_fn *pair;
    bool scaled_by_default;        /* 1/sqrt(d_k) when no scale is stated                      */
    bool needs_v_a;
    bool bilinear;                 /* q·k: computed by gemm                                    */
    attn_score_keys_fn *keys;      /* faster; NULL when bilinear, or to run `pair` in double   */
};
size_t attn_score_count(void);
const struct attn_score_row *attn_score_at(size_t n);
const struct attn_score_row *attn_score_find(const char *name);

/* ---- positions ---- */

enum attn_position_param_kind {
    ATTN_POSITION_END,
    ATTN_POSITION_CHOICE,          /* one of the parameter's names → number: its place        */
    ATTN_POSITION_REAL,            /* a number → real                                         */
    ATTN_POSITION_QUERIES,         /* numbers (T_q) or (B,T_q) → F64 table, j counts queries  */
    ATTN_POSITION_KEYS,            /* numbers (T_new) or (B,T_new) → F64 table of the new keys */
    ATTN_POSITION_SLOPES,          /* numbers (h), or "standard" → F64 table, j counts heads  */
    ATTN_POSITION_PARAM_KIND_COUNT
};

struct attn_position;
struct attn_mat;                   /* attn_core.h                                             */
struct attn_judged;                /* attn_judge.h                                            */

/* How a row is turned: to position `at`; `back` asks for the transpose of that (gradients). */
struct attn_turn {
    double at;
    bool of_key, back;
};

/* Turns one row of d_k numbers in place.  Linear in the row; `back` is its transpose. */
typedef void attn_turn_fn(const struct attn_problem *p, const struct attn_position *x,
                          struct attn_turn turn, double *row);
/* What is added to M at one pair. */
typedef double attn_position_bias_fn(const struct attn_problem *p, const struct attn_position *x,
                                     size_t b, size_t h, size_t i, size_t j);
/* `turn` on rows first … of item b at once, in dtype; from and to may be the same memory. */
typedef void attn_turn_rows_fn(const struct attn_problem *p, const struct attn_position *x,
                               size_t b, size_t first, bool of_key, struct attn_mat from,
                               struct attn_mat to);
/* `turn` on one row of judged numbers, with the error that it adds. */
typedef void attn_turn_judged_fn(const struct attn_problem *p, const struct attn_position *x,
                                 struct attn_turn turn, struct attn_judged *row);
/* m[j - j0] += bias for keys j0 … j1-1. */
typedef void attn_position_bias_row_fn(const struct attn_problem *p,
                                       const struct attn_position *x, size_t b, size_t h,
                                       size_t i, size_t j0, size_t j1, double *m);
/* Fills what the row's faster forms read of the problem. */
typedef void attn_position_derive_fn(struct attn_problem *p, const struct attn_position *x);

struct attn_position_row {
    const char *name;              /* wire name, never renamed                                */
    const char *formula;
    struct attn_position_param {
        const char *name;
        enum attn_position_param_kind kind;
        bool required;
        double otherwise;          /* REAL: its value when left out                           */
        bool positive;             /* REAL: must be greater than 0                            */
        const char *choice[ATTN_CHOICES_MAX];   /* CHOICE: the first is taken when left out   */
        const char *left_out;      /* warning of the answer when left out, or NULL            */
    } param[ATTN_PARAMS_MAX];
    attn_turn_fn *turn;            /* acts on Q and K before the score …                      */
    attn_position_bias_fn *bias;   /* … or on M: a row has one of the two, and need no more   */
    attn_turn_rows_fn *turn_rows;  /* faster, or NULL: `turn` row by row                      */
    attn_turn_judged_fn *turn_judged;       /* faster, or NULL: from `turn`                   */
    attn_position_bias_row_fn *bias_row;    /* faster, or NULL: `bias` pair by pair           */
    attn_position_derive_fn *derive;        /* or NULL                                        */
    bool needs_even;               /* turns pairs of features: d_k must be even               */
};
size_t attn_position_count(void);
const struct attn_position_row *attn_position_at(size_t n);
const struct attn_position_row *attn_position_find(const char *name);  /* NULL = no such kind */
const char *attn_position_acts_on(const struct attn_position_row *row);        /* "Q,K" or "M" */

struct attn_position {             /* one requested kind; at most one turns, biases add up    */
    const struct attn_position_row *row;
    struct attn_arg arg[ATTN_PARAMS_MAX];   /* in the order the row declares them             */
};
/* The kind with every parameter left out. */
struct attn_position attn_position_of_row(const struct attn_position_row *row);

enum attn_rope_layout { ATTN_ROPE_HALF, ATTN_ROPE_INTERLEAVED };

struct attn_rope {                 /* what RoPE's functions read                              */
    bool on;
    enum attn_rope_layout layout;
    double base;
};

/* Standard ALiBi slopes for n heads (Press et al. 2022, section 3 and their code for n not a
   power of two). */
void attn_alibi_standard(size_t n, double *slopes);

/* ---- the problem --------------------------------------------------------------------------- */

struct attn_problem {
    enum attn_dtype dtype;                     /* F64 or F32: what the layer computes in       */
    struct attn_dims d;
    struct attn_form form;
    struct attn_tensor in[ATTN_INPUT_COUNT];   /* of dtype; full rank (B and head axes there)  */
    const struct attn_score_row *score;
    double scale, temperature, softcap;        /* scale resolved; softcap 0 = none             */
    bool scale_stated;
    struct attn_position position[ATTN_POSITIONS_MAX];
    size_t position_count;
    struct attn_rope rope;                     /* derived from position by attn_prepare        */
    const double *alibi;                       /* [h] slopes, or NULL: derived likewise        */
    struct attn_mask mask[ATTN_MASKS_MAX];
    size_t mask_count;
    struct attn_table additive;                /* F64 bias, may hold -Infinity; p NULL = none  */
    enum attn_empty empty_rows;
    ptrdiff_t shift;                           /* set by attn_prepare: see there               */
};

/*
 * Checks what sizes alone cannot: alignment, position kinds, sink and v_a presence; sets `shift`,
 * the offset o such that query i stands at key position i + o: T_past under a top_left causal rule,
 * T_kv - T_q otherwise; derives `rope` and `alibi`.
 * Errors: ALIGNMENT, ODD_WIDTH, MISSING, CONTRADICTION, RANGE, OVERFLOW.
 */
bool attn_prepare(struct attn_problem *p, struct attn_err *err);

/* The problem of item b alone (B = 1): tensors, masks, positions and bias cut, nothing copied. */
void attn_problem_item(const struct attn_problem *p, size_t b, struct attn_problem *item);

/* The rules' verdict on one pair, additive -Infinity included.  Loops only; for judges. */
bool attn_allowed(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j);
/* The finite part of M at one pair: additive bias and those of positions (0 without).  For judges. */
double attn_bias(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j);
const struct attn_mask *attn_mask_of(const struct attn_problem *p, const char *name);

/* ---- the objects: the layer in dependency order --------------------------------------------- */

enum attn_object {
    ATTN_X, ATTN_X_KV, ATTN_Q_PRE, ATTN_K_PRE, ATTN_Q, ATTN_K, ATTN_V, ATTN_S_RAW, ATTN_S,
    ATTN_M, ATTN_ALLOWED, ATTN_S_MASKED, ATTN_A, ATTN_LSE, ATTN_CONTRIBUTIONS, ATTN_H_HEADS,
    ATTN_H, ATTN_Y, ATTN_PRESENT_K, ATTN_PRESENT_V,
    ATTN_OBJECT_COUNT
};
#define ATTN_BIT(object) (UINT32_C(1) << (object))

struct attn_object_row {
    const char *name;
    enum attn_axis axis[ATTN_RANK_MAX + 1];    /* full rank; ATTN_AX_END ends                  */
    bool is_bool;
    bool returnable;                           /* a name of `return`                           */
    bool by_default;                           /* part of the default answer                   */
    bool pairwise;                             /* has T_q*T_kv numbers: the tiled path has none */
    enum attn_object counts_as;                /* in first_incorrect: S_raw counts as S, …      */
    uint32_t depends_on;                       /* ATTN_BIT set                                  */
    const char *formula;
};
extern const struct attn_object_row ATTN_OBJECTS[ATTN_OBJECT_COUNT];

int attn_object_find(const char *name);        /* -1 = no such object                           */
bool attn_object_exists(const struct attn_problem *p, enum attn_object o);  /* Y needs W_O, …   */
/* Shape of the object in full rank (as held), and as answered (axes dropped as `form` says). */
void attn_object_full_shape(const struct attn_problem *p, enum attn_object o,
                            struct attn_tensor *shape);
void attn_object_shape(const struct attn_problem *p, enum attn_object o,
                       struct attn_tensor *shape);

struct attn_trace {                            /* every tensor of one run; p NULL = not held     */
    struct attn_tensor t[ATTN_OBJECT_COUNT];   /* full rank                                      */
    uint8_t *empty;                            /* [B*h*T_q] 1 where a row has no allowed key     */
    size_t empty_count;
};

/* ---- planning and running -------------------------------------------------------------------- */

enum attn_path { ATTN_PATH_AUTO, ATTN_PATH_DENSE, ATTN_PATH_TILED, ATTN_PATH_COUNT };
extern const char *const ATTN_PATH_NAMES[ATTN_PATH_COUNT];

struct attn_plan {
    enum attn_path path;           /* DENSE or TILED, decided                                    */
    uint32_t held;                 /* objects that the trace holds                               */
    size_t trace_bytes;            /* memory of one trace                                        */
};

/*
 * Decides the path and which objects are held so that `want` can be answered, and adds up their
 * bytes.  Takes nothing.  TILED is chosen by AUTO when no pairwise object is wanted.
 * Errors: CONTRADICTION (a pairwise object wanted of the tiled path), MISSING (an object that this
 * problem does not have), OVERFLOW, MEMORY (more than limit).
 */
bool attn_plan(const struct attn_problem *p, uint32_t want, enum attn_path path, size_t limit,
               struct attn_plan *plan, struct attn_err *err);

typedef void attn_piece_fn(void *arg, size_t piece);
struct attn_exec {                 /* what the caller lends; every field may be NULL             */
    void *ctx;
    void (*parallel_for)(void *ctx, size_t count, attn_piece_fn *fn, void *arg);
    bool (*stop)(void *ctx);       /* true = give up (deadline passed); polled between pieces    */
};

struct attn_swap;                  /* a stage replaced by another: attn_core.h, attn_fault.c     */

/*
 * Runs the layer: fills every object that plan->held names, taken from the arena (peak:
 * plan->trace_bytes).  With `swap` the named stages are replaced (NULL = none).  The numbers of
 * item b depend on that item's sizes and values alone, never on B, on threads or on `exec`.
 * Errors: EMPTY_ROW, DEADLINE, MEMORY; the trace is then incomplete.
 * Source: Vaswani et al. 2017, section 3.2.
 */
bool attn_run(const struct attn_problem *p, const struct attn_plan *plan,
              struct attn_arena *arena, const struct attn_exec *exec,
              const struct attn_swap *swap, struct attn_trace *trace, struct attn_err *err);

/* Once, before any thread computes: BLAS with one thread (its own threads cost more here). */
void attn_blas_init(void);
/* Which BLAS computes, for engine.blas: a constant. */
const char *attn_blas_name(void);

/* ---- cost ------------------------------------------------------------------------------------- */

struct attn_cost {                 /* counts; 64 bits, saturating at UINT64_MAX                  */
    uint64_t dense_per_sequence_per_head, dense_total, allowed_total;
    double allowed_fraction;
    struct { uint64_t Q, K, V, S, H, Y, total, allowed_total; } multiply_adds;
    uint64_t exponentials;
    uint64_t bytes[ATTN_OBJECT_COUNT];         /* 0 for objects that do not exist                */
    uint64_t all_intermediates, tiled_working_set, score_matrix;
    struct { uint64_t T, pairs, multiply_adds, score_bytes; } scaling[4];   /* T, 2T, 4T, 8T      */
    struct { uint64_t parallel_training_steps, autoregressive_steps, pairs_with_cache,
             pairs_without_cache, kv_cache_bytes; } generation;
};

/* False (DEADLINE) when counting the allowed pairs was stopped. */
bool attn_cost(const struct attn_problem *p, const struct attn_exec *exec,
               struct attn_cost *cost, struct attn_err *err);

/* ---- audit ------------------------------------------------------------------------------------ */

enum attn_status { ATTN_PASS, ATTN_WARN, ATTN_FAIL, ATTN_NOT_APPLICABLE, ATTN_STATUS_COUNT };
extern const char *const ATTN_STATUS_NAMES[ATTN_STATUS_COUNT];

enum attn_audit_level { ATTN_AUDIT_SAMPLED, ATTN_AUDIT_FULL, ATTN_AUDIT_OFF };

enum { ATTN_CHECKS_MAX = 16, ATTN_FACTS_MAX = 10 };

struct attn_check_row {
    int order;
    const char *id;                /* wire name                                                  */
    const char *object;            /* "X", "Q,K,V", "S", …                                       */
    const char *shows;             /* one plain sentence                                         */
};
size_t attn_check_count(void);
const struct attn_check_row *attn_check_at(size_t n);

/* Sentences hold {0} … {9}, which stand for fact[0] … fact[9]; api/ puts the numbers in. */
struct attn_finding {
    const struct attn_check_row *row;
    enum attn_status status;
    enum attn_object object;       /* the wrong object when status is FAIL                       */
    int gradient;                  /* enum attn_gradient when a gradient is wrong, else -1       */
    const char *expected, *observed, *detail;  /* constants                                      */
    double fact[ATTN_FACTS_MAX];
    bool has_place;
    size_t at[4];                  /* b, h, i, j (or c) of the first difference                  */
};

struct attn_audit {
    enum attn_status status;       /* the worst of the checks                                    */
    const char *first_incorrect;   /* wire name of the object, or NULL                           */
    size_t count;
    struct attn_finding finding[ATTN_CHECKS_MAX];
    uint64_t seed;
    size_t rows_looked_at;
};

struct attn_grads;

/*
 * Judges a trace.  Checks 1-8 and 14 recompute rows by loops of their own in float64 from the
 * trace's own earlier objects; 9-13 run the layer again on changed inputs (with the same swap) and
 * compare bits.  `swap` is what the trace was run with, or NULL.  grads may be NULL.
 * Scratch comes from the arena and is given back.  False only on DEADLINE or MEMORY.
 */
bool attn_audit_trace(const struct attn_problem *p, const struct attn_plan *plan,
                      const struct attn_trace *trace, const struct attn_grads *grads,
                      enum attn_audit_level level, uint64_t seed, const struct attn_swap *swap,
                      struct attn_arena *arena, const struct attn_exec *exec,
                      struct attn_audit *audit, struct attn_err *err);
size_t attn_audit_bytes(const struct attn_problem *p, const struct attn_plan *plan,
                        enum attn_audit_level level);       /* scratch, upper bound              */

/* ---- gradients -------------------------------------------------------------------------------- */

enum attn_gradient {               /* in the order in which first_incorrect searches             */
    ATTN_DH, ATTN_DV, ATTN_DA, ATTN_DS, ATTN_DQ, ATTN_DK, ATTN_DW_O, ATTN_DW_Q, ATTN_DW_K,
    ATTN_DW_V, ATTN_DX, ATTN_DX_KV, ATTN_DB_Q, ATTN_DB_K, ATTN_DB_V, ATTN_DB_O, ATTN_D_ADDITIVE,
    ATTN_DSINK, ATTN_DV_A, ATTN_GRADIENT_COUNT
};

struct attn_gradient_row {
    const char *name;              /* "dH", "db_Q", "d_additive"                                 */
    int like_object;               /* has the shape of this object, or -1                        */
    int like_input;                /* or of this input, or -1 (d_additive: of S)                 */
    const char *formula;
};
extern const struct attn_gradient_row ATTN_GRADIENTS[ATTN_GRADIENT_COUNT];
int attn_gradient_find(const char *name);      /* -1 = no such gradient                          */
bool attn_gradient_exists(const struct attn_problem *p, enum attn_gradient g);
/* Has object `of` a gradient g?  Only when g's tensor enters the layer at `of` or before: of A
   there is dV (exactly 0) but no dH, of S no d_additive. */
bool attn_gradient_reaches(enum attn_object of, enum attn_gradient g);

struct attn_grad_ask {
    enum attn_object of;           /* Y, H, H_heads, A or S                                      */
    struct attn_tensor cotangent;  /* full rank of that object, p->dtype                         */
    uint32_t with_respect_to;      /* bit per enum attn_gradient; 0, or every one that exists in
                                      the problem = everything `of` has                          */
    bool check;
    const struct attn_fault_row *inject; /* a fault of the backward pass is run and checked;
                                            any other, or NULL, changes nothing here         */
};

struct attn_grad_check {           /* central differences in float64 on sampled entries          */
    bool done;
    size_t entries;
    double worst_relative_error, tolerance, step;
    int worst;                     /* enum attn_gradient                                         */
    int first;                     /* the first one beyond the tolerance, or -1                  */
    size_t worst_at;               /* flat place                                                 */
    double analytic, numeric;
    bool pass;
};

struct attn_grads {
    struct attn_tensor t[ATTN_GRADIENT_COUNT]; /* full rank, (in,out) weights; d_additive like S  */
    struct attn_grad_check check;
};

/* Backward pass through the whole graph.  Needs trace objects Q K V, and A, S, allowed or a dense
   plan (attn_grad_needs names what must be held).  What was not asked has p NULL.  Errors: MEMORY,
   DEADLINE, CONTRADICTION (asked by its bit, but absent from this problem or not before `of`). */
uint32_t attn_grad_needs(const struct attn_problem *p, const struct attn_grad_ask *ask);
size_t attn_grad_bytes(const struct attn_problem *p, const struct attn_grad_ask *ask);
bool attn_grad(const struct attn_problem *p, const struct attn_trace *trace,
               const struct attn_grad_ask *ask, struct attn_arena *arena,
               const struct attn_exec *exec, struct attn_grads *grads, struct attn_err *err);

/* ---- ablations -------------------------------------------------------------------------------- */

enum { ATTN_EDITS_MAX = 16, ATTN_CLAIMS_MAX = 16 };

struct attn_edit_target_row {
    const char *name;              /* "W_Q", "scale", "masks", "head", "edge", "position"        */
    const char *says;
    uint32_t changes;              /* bit per row of the change table that it accepts            */
    bool needs_index, needs_query_key;
};
struct attn_edit_change_row {
    const char *name;              /* "zero", "identity", "negate", "scale", "noise", …           */
    const char *says;
    bool needs_by, needs_seed, needs_std, needs_with;
};
size_t attn_edit_target_count(void);
const struct attn_edit_target_row *attn_edit_target_at(size_t n);
const struct attn_edit_target_row *attn_edit_target_find(const char *name);
size_t attn_edit_change_count(void);
const struct attn_edit_change_row *attn_edit_change_at(size_t n);
const struct attn_edit_change_row *attn_edit_change_find(const char *name);

struct attn_edit {                 /* one change of one target                                   */
    const struct attn_edit_target_row *target;
    const struct attn_edit_change_row *change;
    const char *rule;              /* target "masks": the rule's name (a constant of its row)    */
    size_t index, query, key;
    double by, std;
    uint64_t seed;
    struct attn_tensor with;       /* replacement, p->dtype, (in,out)                            */
};

struct attn_claim {                /* what mathematics says must not move, and whether it did    */
    enum attn_object object;
    const char *says;              /* "the same bit for bit", "exactly 0"                         */
    bool holds;
};

struct attn_ablation {             /* result of one ablation (one or several edits together)     */
    struct attn_trace trace;       /* of the changed layer                                       */
    uint32_t changed, unchanged;   /* bit per computed object held                               */
    double max_abs_delta[ATTN_OBJECT_COUNT];
    size_t claim_count;
    struct attn_claim claim[ATTN_CLAIMS_MAX];
};

bool attn_edit_check(const struct attn_problem *p, const struct attn_edit *edit,
                     struct attn_err *err);    /* indices and shapes; before anything runs       */
size_t attn_ablate_bytes(const struct attn_problem *p, const struct attn_plan *plan,
                         const struct attn_edit *edit, size_t edits);
bool attn_ablate(const struct attn_problem *p, const struct attn_plan *plan,
                 const struct attn_trace *baseline, const struct attn_edit *edit, size_t edits,
                 struct attn_arena *arena, const struct attn_exec *exec,
                 struct attn_ablation *out, struct attn_err *err);

/* ---- rows, traces and statistics ---------------------------------------------------------------- */

/* Entropy (nats) of each row of A and of the whole: needs A; NaN for empty rows. */
struct attn_row_stats { double entropy_mean, entropy_min, entropy_max, effective_keys_mean; };
bool attn_row_statistics(const struct attn_problem *p, const struct attn_trace *trace,
                         struct attn_row_stats *stats);       /* false when A is not held         */

struct attn_row_trace {            /* one query row taken apart; arrays of `count` allowed keys   */
    size_t b, h, i, count;
    size_t *key;
    double *score, *mask, *weight, *entropy_term;
    double *value, *contribution, *running_sum, *derivative;  /* count x d_v each                 */
    double *output;                /* h_i, d_v                                                    */
    double entropy, effective_keys;
};
bool attn_row_trace(const struct attn_problem *p, const struct attn_trace *trace, size_t b,
                    size_t h, size_t i, struct attn_arena *arena, struct attn_row_trace *out,
                    struct attn_err *err);

struct attn_score_stats {          /* variance of unscaled q·k against d_k; saturated rows        */
    double mean, variance, d_k, variance_of_scaled;
    double saturated_share, saturated_share_unscaled;   /* rows whose largest weight > 0.99        */
    size_t pairs, rows;
};
bool attn_score_statistics(const struct attn_problem *p, const struct attn_trace *trace,
                           struct attn_arena *arena, struct attn_score_stats *stats,
                           struct attn_err *err);

/* ---- faults ------------------------------------------------------------------------------------ */

struct attn_fault_row;
size_t attn_fault_count(void);
const struct attn_fault_row *attn_fault_at(size_t n);
const struct attn_fault_row *attn_fault_find(const char *name);
const char *attn_fault_name(const struct attn_fault_row *row);
const char *attn_fault_object(const struct attn_fault_row *row);
const char *attn_fault_explanation(const struct attn_fault_row *row);
const char *attn_fault_fix(const struct attn_fault_row *row);
const char *attn_fault_visible_when(const struct attn_fault_row *row);
const char *attn_fault_caught_by(const struct attn_fault_row *row);   /* check id that fails first */
bool attn_fault_visible(const struct attn_fault_row *row, const struct attn_problem *p);
/* Of the backward pass: its swap replaces no stage, see struct attn_grad_ask. */
bool attn_fault_of_gradients(const struct attn_fault_row *row);
const struct attn_swap *attn_fault_swap(const struct attn_fault_row *row);

/* ---- a fault with another constant or seed (attn_fault_set.c) ---- */

struct attn_fault_takes {              /* the one constant that a fault takes                     */
    const char *name;                  /* "ratio", "left", "p", …                                 */
    double standard;                   /* its value when none is given                            */
    double low, high;                  /* its range                                               */
    bool whole;                        /* whole numbers only                                      */
    bool open;                         /* neither end belongs to the range                        */
    bool seed;                         /* takes a seed, too                                       */
};
/* false: the fault takes none, and no seed. */
bool attn_fault_takes(const struct attn_fault_row *row, struct attn_fault_takes *takes);
bool attn_fault_in_range(const struct attn_fault_takes *takes, double x);

union attn_fault_room { double align; unsigned char byte[512]; };
/* The row's swap with this constant and seed (NULL = its own), which the fault must take and which
   must be in range; made in room, which must outlive it. */
const struct attn_swap *attn_fault_set(const struct attn_fault_row *row, const double *parameter,
                                       const uint64_t *seed, union attn_fault_room *room);
/* attn_fault_visible, with the constant of such a swap. */
bool attn_fault_shows(const struct attn_fault_row *row, const struct attn_swap *swap,
                      const struct attn_problem *p);

/* ---- somebody else's layer: audit of a candidate (attn_diagnose.c) -------------------------------- */

enum attn_precision { ATTN_FLOAT64, ATTN_FLOAT32, ATTN_FLOAT16, ATTN_BFLOAT16,
                      ATTN_PRECISION_COUNT };
extern const char *const ATTN_PRECISION_NAMES[ATTN_PRECISION_COUNT];

/* Tolerances that honest rounding of this precision stays within: |x - right| <= atol + rtol*|right|. */
void attn_tolerance(enum attn_precision precision, double *rtol, double *atol);

/* What an implementation computed.  Tensors are float64 (allowed: BOOL), full rank; p NULL = not
   given.  One of the wrong shape has p NULL, its bit set in bad_*, and the shape it came with. */
struct attn_candidate {
    struct attn_tensor object[ATTN_OBJECT_COUNT];
    struct attn_tensor gradient[ATTN_GRADIENT_COUNT];
    uint32_t bad_object, bad_gradient;
    enum attn_precision precision;
    double rtol, atol;
};

enum attn_state { ATTN_STATE_NOT_GIVEN, ATTN_STATE_CORRECT, ATTN_STATE_WRONG_HERE,
                  ATTN_STATE_INHERITED, ATTN_STATE_COUNT };
extern const char *const ATTN_STATE_NAMES[ATTN_STATE_COUNT];

struct attn_object_verdict {
    enum attn_state state;
    bool wrong_shape;
    double global_error;           /* largest |x - right| / max(1, |right|); NaN where it has none     */
    double local_error;            /* the same against the next step from its own earlier objects     */
    bool differs;                  /* first_difference is there: first place beyond tolerance          */
    size_t at[ATTN_RANK_MAX];
    double expected, observed;     /* against the right next step from its own earlier objects         */
    const char *form;              /* accepted form seen (a row of ATTN_FORMS), or NULL                */
};

struct attn_accepted_row { const char *name, *says; };         /* other right forms, for the catalog  */
size_t attn_accepted_count(void);
const struct attn_accepted_row *attn_accepted_at(size_t n);

enum { ATTN_DIAGNOSES_MAX = 24, ATTN_SAME_MAX = 16, ATTN_HINTS_MAX = 16 };

struct attn_diagnosis {            /* one cause that reproduces the candidate                         */
    const struct attn_fault_row *fault;
    double residual;               /* largest relative distance to the candidate's object             */
    bool has_param;                /* a fitted constant: a ratio, a fill, a width                     */
    const char *param_name;
    double param;
    size_t same;                   /* faults that give the same numbers on this input                 */
    const struct attn_fault_row *same_as[ATTN_SAME_MAX];
};

enum attn_verdict { ATTN_CORRECT, ATTN_INCORRECT, ATTN_INCONCLUSIVE, ATTN_VERDICT_COUNT };
extern const char *const ATTN_VERDICT_NAMES[ATTN_VERDICT_COUNT];

struct attn_report {
    enum attn_verdict verdict;
    const char *why_inconclusive;  /* a constant sentence, or NULL                                     */
    const char *first_incorrect;   /* object or gradient name, or NULL                                 */
    struct attn_object_verdict object[ATTN_OBJECT_COUNT];
    struct attn_object_verdict gradient[ATTN_GRADIENT_COUNT];
    size_t diagnoses;              /* best first: of the first wrong object, then of later wrong ones  */
    struct attn_diagnosis diagnosis[ATTN_DIAGNOSES_MAX];
    size_t hidden;                 /* faults that this input cannot show, with what would show them    */
    struct { const struct attn_fault_row *fault; const char *needs; } hidden_fault[64];
    size_t forms;                  /* accepted forms seen                                              */
    const struct attn_accepted_row *form[ATTN_HINTS_MAX];
};

/*
 * Judges a candidate against the problem, in float64 whatever p->dtype says (the caller passes a
 * float64 problem).  `ask` names of what and from which cotangent the candidate's gradients are, or
 * NULL without gradients.  Scratch comes from the arena and is given back.
 * Errors: MEMORY, DEADLINE, EMPTY_ROW.
 */
bool attn_diagnose(const struct attn_problem *p, const struct attn_candidate *candidate,
                   const struct attn_grad_ask *ask, struct attn_arena *arena,
                   const struct attn_exec *exec, struct attn_report *report,
                   struct attn_err *err);
size_t attn_diagnose_bytes(const struct attn_problem *p, const struct attn_grad_ask *ask);

/* ---- conventions of other systems ---------------------------------------------------------------- */

struct attn_convention_row {
    const char *name;
    const char *mask_true_means;   /* "may attend" | "is forbidden" | "takes no boolean mask"     */
    enum attn_alignment alignment;
    enum attn_empty empty_rows;
    const char *default_scale;
    bool window_counts_own_position;
    const char *source;            /* which page of which version says so                          */
};
size_t attn_convention_count(void);
const struct attn_convention_row *attn_convention_at(size_t n);
const struct attn_convention_row *attn_convention_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif
