/*
 * attn_findings.h - what is found about a run: audit, gradients, ablations, rows taken
 * apart, faults, and the verdict on somebody else's tensors. Not here: the layer itself
 * (attn_layer.h). Start reading at struct attn_audit.  Include attn.h, which has all
 * three parts.
 */
#ifndef ATTN_FINDINGS_H
#define ATTN_FINDINGS_H

#include "core/attn_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- audit
 * ------------------------------------------------------------------------------------ */

enum attn_status {
    ATTN_PASS,
    ATTN_WARN,
    ATTN_FAIL,
    ATTN_NOT_APPLICABLE,
    ATTN_STATUS_COUNT
};
extern const char *const ATTN_STATUS_NAMES[ATTN_STATUS_COUNT];

enum attn_audit_level { ATTN_AUDIT_SAMPLED, ATTN_AUDIT_FULL, ATTN_AUDIT_OFF };

enum { ATTN_CHECKS_MAX = 16, ATTN_FACTS_MAX = 10 };

struct attn_check_row {
    int order;
    const char *id;     /* wire name                                                  */
    const char *object; /* "X", "Q,K,V", "S", …                                       */
    const char *shows;  /* one plain sentence                                         */
};
size_t attn_check_count(void);
const struct attn_check_row *attn_check_at(size_t n);

/* Sentences hold {0} … {9}, which stand for fact[0] … fact[9]; api/ puts the numbers in.
 */
struct attn_finding {
    const struct attn_check_row *row;
    enum attn_status status;
    enum attn_object object; /* the wrong object when status is FAIL */
    int gradient; /* enum attn_gradient when a gradient is wrong, else -1       */
    const char *expected, *observed, *detail; /* constants */
    double fact[ATTN_FACTS_MAX];
    bool has_place;
    size_t at[4]; /* b, h, i, j (or c) of the first difference                  */
};

struct attn_audit {
    enum attn_status status;     /* the worst of the checks     */
    const char *first_incorrect; /* wire name of the object, or NULL */
    size_t count;
    struct attn_finding finding[ATTN_CHECKS_MAX];
    uint64_t seed;
    size_t rows_looked_at;
};

struct attn_grads;

/*
 * Judges a trace.  Checks 1-8 and 14 recompute rows by loops of their own in float64 from
 * the trace's own earlier objects; 9-13 run the layer again on changed inputs (with the
 * same swap) and compare bits.  `swap` is what the trace was run with, or NULL.  grads
 * may be NULL. Scratch comes from the arena and is given back.  False only on DEADLINE or
 * MEMORY.
 */
bool attn_audit_trace(const struct attn_problem *p, const struct attn_plan *plan,
                      const struct attn_trace *trace, const struct attn_grads *grads,
                      enum attn_audit_level level, uint64_t seed,
                      const struct attn_swap *swap, struct attn_arena *arena,
                      const struct attn_exec *exec, struct attn_audit *audit,
                      struct attn_err *err);
size_t attn_audit_bytes(const struct attn_problem *p, const struct attn_plan *plan,
                        enum attn_audit_level level); /* scratch, upper bound */

/* ---- gradients
 * -------------------------------------------------------------------------------- */

enum attn_gradient { /* in the order in which first_incorrect searches             */
                     ATTN_DH,
                     ATTN_DV,
                     ATTN_DA,
                     ATTN_DS,
                     ATTN_DQ,
                     ATTN_DK,
                     ATTN_DW_O,
                     ATTN_DW_Q,
                     ATTN_DW_K,
                     ATTN_DW_V,
                     ATTN_DX,
                     ATTN_DX_KV,
                     ATTN_DB_Q,
                     ATTN_DB_K,
                     ATTN_DB_V,
                     ATTN_DB_O,
                     ATTN_D_ADDITIVE,
                     ATTN_DSINK,
                     ATTN_DV_A,
                     ATTN_GRADIENT_COUNT
};

struct attn_gradient_row {
    const char *name; /* "dH", "db_Q", "d_additive"                                 */
    int like_object;  /* has the shape of this object, or -1                        */
    int like_input;   /* or of this input, or -1 (d_additive: of S)                 */
    const char *formula;
};
extern const struct attn_gradient_row ATTN_GRADIENTS[ATTN_GRADIENT_COUNT];
int attn_gradient_find(const char *name); /* -1 = no such gradient */
bool attn_gradient_exists(const struct attn_problem *p, enum attn_gradient g);
/* Has object `of` a gradient g?  Only when g's tensor enters the layer at `of` or before:
   of A there is dV (exactly 0) but no dH, of S no d_additive. */
bool attn_gradient_reaches(enum attn_object of, enum attn_gradient g);

struct attn_grad_ask {
    enum attn_object of; /* Y, H, H_heads, A or S                                      */
    struct attn_tensor cotangent; /* full rank of that object, p->dtype */
    uint32_t with_respect_to; /* bit per enum attn_gradient; 0, or every one that exists
                                 in the problem = everything `of` has */
    bool check;
    const struct attn_fault_row
        *inject; /* a fault of the backward pass is run and checked;
                    any other, or NULL, changes nothing here         */
};

struct attn_grad_check { /* central differences in float64 on sampled entries          */
    bool done;
    size_t entries;
    double worst_relative_error, tolerance, step;
    int worst;       /* enum attn_gradient                                         */
    int first;       /* the first one beyond the tolerance, or -1                  */
    size_t worst_at; /* flat place                                                 */
    double analytic, numeric;
    bool pass;
};

struct attn_grads {
    struct attn_tensor
        t[ATTN_GRADIENT_COUNT]; /* full rank, (in,out) weights; d_additive like S  */
    struct attn_grad_check check;
};

/* Backward pass through the whole graph.  Needs trace objects Q K V, and A, S, allowed or
   a dense plan (attn_grad_needs names what must be held).  What was not asked has p NULL.
   Errors: MEMORY, DEADLINE, CONTRADICTION (asked by its bit, but absent from this problem
   or not before `of`). */
uint32_t attn_grad_needs(const struct attn_problem *p, const struct attn_grad_ask *ask);
size_t attn_grad_bytes(const struct attn_problem *p, const struct attn_grad_ask *ask);
bool attn_grad(const struct attn_problem *p, const struct attn_trace *trace,
               const struct attn_grad_ask *ask, struct attn_arena *arena,
               const struct attn_exec *exec, struct attn_grads *grads,
               struct attn_err *err);

/* ---- ablations
 * -------------------------------------------------------------------------------- */

enum { ATTN_EDITS_MAX = 16, ATTN_CLAIMS_MAX = 16 };

struct attn_edit_target_row {
    const char *name; /* "W_Q", "scale", "masks", "head", "edge", "position"        */
    const char *says;
    uint32_t changes; /* bit per row of the change table that it accepts            */
    bool needs_index, needs_query_key;
};
struct attn_edit_change_row {
    const char *name; /* "zero", "identity", "negate", "scale", "noise", …           */
    const char *says;
    bool needs_by, needs_seed, needs_std, needs_with;
};
size_t attn_edit_target_count(void);
const struct attn_edit_target_row *attn_edit_target_at(size_t n);
const struct attn_edit_target_row *attn_edit_target_find(const char *name);
size_t attn_edit_change_count(void);
const struct attn_edit_change_row *attn_edit_change_at(size_t n);
const struct attn_edit_change_row *attn_edit_change_find(const char *name);

struct attn_edit { /* one change of one target                                   */
    const struct attn_edit_target_row *target;
    const struct attn_edit_change_row *change;
    const char *rule; /* target "masks": the rule's name (a constant of its row)    */
    size_t index, query, key;
    double by, std;
    uint64_t seed;
    struct attn_tensor with; /* replacement, p->dtype, (in,out) */
};

struct attn_claim { /* what mathematics says must not move, and whether it did    */
    enum attn_object object;
    const char *says; /* "the same bit for bit", "exactly 0"                         */
    bool holds;
};

struct attn_ablation { /* result of one ablation (one or several edits together)     */
    struct attn_trace trace;     /* of the changed layer     */
    uint32_t changed, unchanged; /* bit per computed object held */
    double max_abs_delta[ATTN_OBJECT_COUNT];
    size_t claim_count;
    struct attn_claim claim[ATTN_CLAIMS_MAX];
};

bool attn_edit_check(const struct attn_problem *p, const struct attn_edit *edit,
                     struct attn_err *err); /* indices and shapes; before anything runs */
size_t attn_ablate_bytes(const struct attn_problem *p, const struct attn_plan *plan,
                         const struct attn_edit *edit, size_t edits);
bool attn_ablate(const struct attn_problem *p, const struct attn_plan *plan,
                 const struct attn_trace *baseline, const struct attn_edit *edit,
                 size_t edits, struct attn_arena *arena, const struct attn_exec *exec,
                 struct attn_ablation *out, struct attn_err *err);

/* ---- rows, traces and statistics
 * ---------------------------------------------------------------- */

/* Entropy (nats) of each row of A and of the whole: needs A; NaN for empty rows. */
struct attn_row_stats {
    double entropy_mean, entropy_min, entropy_max, effective_keys_mean;
};
bool attn_row_statistics(const struct attn_problem *p, const struct attn_trace *trace,
                         struct attn_row_stats *stats); /* false when A is not held */

struct attn_row_trace { /* one query row taken apart; arrays of `count` allowed keys   */
    size_t b, h, i, count;
    size_t *key;
    double *score, *mask, *weight, *entropy_term;
    double *value, *contribution, *running_sum, *derivative; /* count x d_v each */
    double *output; /* h_i, d_v                                                    */
    double entropy, effective_keys;
};
bool attn_row_trace(const struct attn_problem *p, const struct attn_trace *trace,
                    size_t b, size_t h, size_t i, struct attn_arena *arena,
                    struct attn_row_trace *out, struct attn_err *err);

struct attn_score_stats { /* variance of unscaled q·k against d_k; saturated rows */
    double mean, variance, d_k, variance_of_scaled;
    double saturated_share,
        saturated_share_unscaled; /* rows whose largest weight > 0.99        */
    size_t pairs, rows;
};
bool attn_score_statistics(const struct attn_problem *p, const struct attn_trace *trace,
                           struct attn_arena *arena, struct attn_score_stats *stats,
                           struct attn_err *err);

/* ---- faults
 * ------------------------------------------------------------------------------------ */

struct attn_fault_row;
size_t attn_fault_count(void);
const struct attn_fault_row *attn_fault_at(size_t n);
const struct attn_fault_row *attn_fault_find(const char *name);
const char *attn_fault_name(const struct attn_fault_row *row);
const char *attn_fault_object(const struct attn_fault_row *row);
const char *attn_fault_explanation(const struct attn_fault_row *row);
const char *attn_fault_fix(const struct attn_fault_row *row);
const char *attn_fault_visible_when(const struct attn_fault_row *row);
const char *attn_fault_caught_by(
    const struct attn_fault_row *row); /* check id that fails first */
bool attn_fault_visible(const struct attn_fault_row *row, const struct attn_problem *p);
/* Of the backward pass: its swap replaces no stage, see struct attn_grad_ask. */
bool attn_fault_of_gradients(const struct attn_fault_row *row);
const struct attn_swap *attn_fault_swap(const struct attn_fault_row *row);

/* ---- a fault with another constant or seed (attn_fault_set.c) ---- */

struct attn_fault_takes { /* the one constant that a fault takes                     */
    const char *name;     /* "ratio", "left", "p", …                                 */
    double standard;      /* its value when none is given                            */
    double low, high;     /* its range                                               */
    bool whole;           /* whole numbers only                                      */
    bool open;            /* neither end belongs to the range                        */
    bool seed;            /* takes a seed, too                                       */
};
/* false: the fault takes none, and no seed. */
bool attn_fault_takes(const struct attn_fault_row *row, struct attn_fault_takes *takes);
bool attn_fault_in_range(const struct attn_fault_takes *takes, double x);

union attn_fault_room {
    double align;
    unsigned char byte[512];
};
/* The row's swap with this constant and seed (NULL = its own), which the fault must take
   and which must be in range; made in room, which must outlive it. */
const struct attn_swap *attn_fault_set(const struct attn_fault_row *row,
                                       const double *parameter, const uint64_t *seed,
                                       union attn_fault_room *room);
/* attn_fault_visible, with the constant of such a swap. */
bool attn_fault_shows(const struct attn_fault_row *row, const struct attn_swap *swap,
                      const struct attn_problem *p);

/* ---- somebody else's layer: audit of a candidate (attn_diagnose.c)
 * -------------------------------- */

enum attn_precision {
    ATTN_FLOAT64,
    ATTN_FLOAT32,
    ATTN_FLOAT16,
    ATTN_BFLOAT16,
    ATTN_PRECISION_COUNT
};
extern const char *const ATTN_PRECISION_NAMES[ATTN_PRECISION_COUNT];

/* Tolerances that honest rounding of this precision stays within: |x - right| <= atol +
 * rtol*|right|. */
void attn_tolerance(enum attn_precision precision, double *rtol, double *atol);

/* What an implementation computed.  Tensors are float64 (allowed: BOOL), full rank; p
   NULL = not given.  One of the wrong shape has p NULL, its bit set in bad_*, and the
   shape it came with. */
struct attn_candidate {
    struct attn_tensor object[ATTN_OBJECT_COUNT];
    struct attn_tensor gradient[ATTN_GRADIENT_COUNT];
    uint32_t bad_object, bad_gradient;
    enum attn_precision precision;
    double rtol, atol;
};

enum attn_state {
    ATTN_STATE_NOT_GIVEN,
    ATTN_STATE_CORRECT,
    ATTN_STATE_WRONG_HERE,
    ATTN_STATE_INHERITED,
    ATTN_STATE_COUNT
};
extern const char *const ATTN_STATE_NAMES[ATTN_STATE_COUNT];

struct attn_object_verdict {
    enum attn_state state;
    bool wrong_shape;
    double
        global_error; /* largest |x - right| / max(1, |right|); NaN where it has none   */
    double local_error; /* the same against the next step from its own earlier objects */
    bool differs; /* first_difference is there: first place beyond tolerance          */
    size_t at[ATTN_RANK_MAX];
    double expected,
        observed; /* against the right next step from its own earlier objects         */
    const char *form; /* accepted form seen (a row of ATTN_FORMS), or NULL */
};

struct attn_accepted_row {
    const char *name, *says;
}; /* other right forms, for the catalog  */
size_t attn_accepted_count(void);
const struct attn_accepted_row *attn_accepted_at(size_t n);

enum { ATTN_DIAGNOSES_MAX = 24, ATTN_SAME_MAX = 16, ATTN_HINTS_MAX = 16 };

struct attn_diagnosis { /* one cause that reproduces the candidate */
    const struct attn_fault_row *fault;
    double residual; /* largest relative distance to the candidate's object             */
    bool has_param;  /* a fitted constant: a ratio, a fill, a width                     */
    const char *param_name;
    double param;
    size_t same; /* faults that give the same numbers on this input                 */
    const struct attn_fault_row *same_as[ATTN_SAME_MAX];
};

enum attn_verdict { ATTN_CORRECT, ATTN_INCORRECT, ATTN_INCONCLUSIVE, ATTN_VERDICT_COUNT };
extern const char *const ATTN_VERDICT_NAMES[ATTN_VERDICT_COUNT];

struct attn_report {
    enum attn_verdict verdict;
    const char *why_inconclusive; /* a constant sentence, or NULL */
    const char *first_incorrect;  /* object or gradient name, or NULL  */
    struct attn_object_verdict object[ATTN_OBJECT_COUNT];
    struct attn_object_verdict gradient[ATTN_GRADIENT_COUNT];
    size_t
        diagnoses; /* best first: of the first wrong object, then of later wrong ones  */
    struct attn_diagnosis diagnosis[ATTN_DIAGNOSES_MAX];
    size_t hidden; /* faults that this input cannot show, with what would show them    */
    struct {
        const struct attn_fault_row *fault;
        const char *needs;
    } hidden_fault[64];
    size_t forms; /* accepted forms seen                                              */
    const struct attn_accepted_row *form[ATTN_HINTS_MAX];
};

/*
 * Judges a candidate against the problem, in float64 whatever p->dtype says (the caller
 * passes a float64 problem).  `ask` names of what and from which cotangent the
 * candidate's gradients are, or NULL without gradients.  Scratch comes from the arena and
 * is given back. Errors: MEMORY, DEADLINE, EMPTY_ROW.
 */
bool attn_diagnose(const struct attn_problem *p, const struct attn_candidate *candidate,
                   const struct attn_grad_ask *ask, struct attn_arena *arena,
                   const struct attn_exec *exec, struct attn_report *report,
                   struct attn_err *err);
size_t attn_diagnose_bytes(const struct attn_problem *p, const struct attn_grad_ask *ask);

#ifdef __cplusplus
}
#endif
#endif
