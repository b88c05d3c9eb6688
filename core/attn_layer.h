/*
 * attn_layer.h - the layer: its objects in dependency order, the plan, the run, the cost.
 * Not here: the problem (attn_problem.h), what is found about a run (attn_findings.h).
 * Start reading at enum attn_object.  Include attn.h, which has all three parts.
 */
#ifndef ATTN_LAYER_H
#define ATTN_LAYER_H

#include "core/attn_problem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the objects: the layer in dependency order
 * --------------------------------------------- */

enum attn_object {
    ATTN_X,
    ATTN_X_KV,
    ATTN_Q_PRE,
    ATTN_K_PRE,
    ATTN_Q,
    ATTN_K,
    ATTN_V,
    ATTN_S_RAW,
    ATTN_S,
    ATTN_M,
    ATTN_ALLOWED,
    ATTN_S_MASKED,
    ATTN_A,
    ATTN_LSE,
    ATTN_CONTRIBUTIONS,
    ATTN_H_HEADS,
    ATTN_H,
    ATTN_Y,
    ATTN_PRESENT_K,
    ATTN_PRESENT_V,
    ATTN_OBJECT_COUNT
};
#define ATTN_BIT(object) (UINT32_C(1) << (object))

struct attn_object_row {
    const char *name;
    enum attn_axis axis[ATTN_RANK_MAX + 1]; /* full rank; ATTN_AX_END ends */
    bool is_bool;
    bool returnable;            /* a name of `return`                           */
    bool by_default;            /* part of the default answer                   */
    bool pairwise;              /* has T_q*T_kv numbers: the tiled path has none */
    enum attn_object counts_as; /* in first_incorrect: S_raw counts as S, …      */
    uint32_t depends_on;        /* ATTN_BIT set                                  */
    const char *formula;
};
extern const struct attn_object_row ATTN_OBJECTS[ATTN_OBJECT_COUNT];

int attn_object_find(const char *name); /* -1 = no such object */
bool attn_object_exists(const struct attn_problem *p,
                        enum attn_object o); /* Y needs W_O, …   */
/* Shape of the object in full rank (as held), and as answered (axes dropped as `form`
 * says). */
void attn_object_full_shape(const struct attn_problem *p, enum attn_object o,
                            struct attn_tensor *shape);
void attn_object_shape(const struct attn_problem *p, enum attn_object o,
                       struct attn_tensor *shape);

struct attn_trace { /* every tensor of one run; p NULL = not held     */
    struct attn_tensor t[ATTN_OBJECT_COUNT]; /* full rank */
    uint8_t *empty; /* [B*h*T_q] 1 where a row has no allowed key     */
    size_t empty_count;
};

/* ---- planning and running
 * -------------------------------------------------------------------- */

enum attn_path { ATTN_PATH_AUTO, ATTN_PATH_DENSE, ATTN_PATH_TILED, ATTN_PATH_COUNT };
extern const char *const ATTN_PATH_NAMES[ATTN_PATH_COUNT];

struct attn_plan {
    enum attn_path path; /* DENSE or TILED, decided                                    */
    uint32_t held;       /* objects that the trace holds                               */
    size_t trace_bytes;  /* memory of one trace                                        */
};

/*
 * Decides the path and which objects are held so that `want` can be answered, and adds up
 * their bytes.  Takes nothing.  TILED is chosen by AUTO when no pairwise object is
 * wanted. Errors: CONTRADICTION (a pairwise object wanted of the tiled path), MISSING (an
 * object that this problem does not have), OVERFLOW, MEMORY (more than limit).
 */
bool attn_plan(const struct attn_problem *p, uint32_t want, enum attn_path path,
               size_t limit, struct attn_plan *plan, struct attn_err *err);

typedef void attn_piece_fn(void *arg, size_t piece);
struct attn_exec { /* what the caller lends; every field may be NULL             */
    void *ctx;
    void (*parallel_for)(void *ctx, size_t count, attn_piece_fn *fn, void *arg);
    bool (*stop)(void *ctx); /* true = give up (deadline passed); polled between pieces */
};

struct attn_swap; /* a stage replaced by another: attn_core.h, attn_fault.c     */

/*
 * Runs the layer: fills every object that plan->held names, taken from the arena (peak:
 * plan->trace_bytes).  With `swap` the named stages are replaced (NULL = none).  The
 * numbers of item b depend on that item's sizes and values alone, never on B, on threads
 * or on `exec`. Errors: EMPTY_ROW, DEADLINE, MEMORY; the trace is then incomplete.
 * Source: Vaswani et al. 2017, section 3.2.
 */
bool attn_run(const struct attn_problem *p, const struct attn_plan *plan,
              struct attn_arena *arena, const struct attn_exec *exec,
              const struct attn_swap *swap, struct attn_trace *trace,
              struct attn_err *err);

/* Once, before any thread computes: BLAS with one thread (its own threads cost more
 * here). */
void attn_blas_init(void);
/* Which BLAS computes, for engine.blas: a constant. */
const char *attn_blas_name(void);

/* ---- cost
 * -------------------------------------------------------------------------------------
 */

struct attn_cost { /* counts; 64 bits, saturating at UINT64_MAX                  */
    uint64_t dense_per_sequence_per_head, dense_total, allowed_total;
    double allowed_fraction;
    struct {
        uint64_t Q, K, V, S, H, Y, total, allowed_total;
    } multiply_adds;
    uint64_t exponentials;
    uint64_t bytes[ATTN_OBJECT_COUNT]; /* 0 for objects that do not exist */
    uint64_t all_intermediates, tiled_working_set, score_matrix;
    struct {
        uint64_t T, pairs, multiply_adds, score_bytes;
    } scaling[4]; /* T, 2T, 4T, 8T      */
    struct {
        uint64_t parallel_training_steps, autoregressive_steps, pairs_with_cache,
            pairs_without_cache, kv_cache_bytes;
    } generation;
};

/* False (DEADLINE) when counting the allowed pairs was stopped. */
bool attn_cost(const struct attn_problem *p, const struct attn_exec *exec,
               struct attn_cost *cost, struct attn_err *err);

#ifdef __cplusplus
}
#endif
#endif
