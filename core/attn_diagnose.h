/*
 * attn_diagnose.h - what the files that judge a candidate share.
 * Not here: what others may ask (attn.h), the catalogue of faults (attn_fault.h).
 * Start reading at struct attn_walk.
 */
#ifndef ATTN_DIAGNOSE_H
#define ATTN_DIAGNOSE_H

#include "core/attn_fault.h"
#include "core/attn_grad.h"

/* ---- two tensors compared ---- */

struct attn_seen { /* a given object against what a walk expects of it */
    bool given, same;
    double error;   /* largest |x - e| / max(1, |e|); NaN where one has no number */
    double excess;  /* largest |x - e| / tolerance; Infinity where not finite */
    double largest; /* largest finite |e| */
    size_t beyond;  /* how many are beyond tolerance */
    size_t first;   /* flat place of the first beyond tolerance; not when same */
    double expected, observed;
};

struct attn_margin { /* tolerance = atol + rtol |e| + noise */
    double rtol, atol;
    double highest;      /* beyond this a number may have become infinite */
    const double *noise; /* per element, or NULL: `flat` for all */
    double times, flat;
};

/* skip: 1 where an element is not compared, or NULL. */
void attn_compare(const struct attn_tensor *expected, const struct attn_tensor *observed,
                  const struct attn_margin *margin, const uint8_t *skip,
                  struct attn_seen *seen);
struct attn_margin attn_margin_of(const struct attn_candidate *c);
double attn_precision_unit(
    enum attn_precision precision); /* half a unit in the last place */

/* ---- the layer walked object by object ---- */

/*
 * Walks the layer in dependency order.  Each object is computed from the objects before
 * it; where the candidate gave it, it is compared and then takes the computed one's
 * place, so that one wrong step is counted once.
 */
struct attn_walk {
    const struct attn_problem *p;
    const struct attn_plan *plan;
    const struct attn_exec *exec;
    const struct attn_candidate *c;
    const struct attn_swap *swap; /* stages replaced, or NULL */
    uint32_t ignore;              /* objects taken as not given */
    const uint8_t *skip_scores;   /* pairs at which S is masked, or NULL */
    struct attn_trace t; /* the candidate's own objects, else the computed ones */
    double
        *noise[ATTN_OBJECT_COUNT]; /* what honest rounding does to an object; or NULL */
    struct attn_seen seen[ATTN_OBJECT_COUNT];
    const struct attn_walk
        *base; /* a walk whose objects before `start` and noise are shared */
    enum attn_stage start;
    uint32_t must; /* stop at the first of these that is not the same */
    bool stopped;
};
bool attn_walk_run(struct attn_walk *w, struct attn_err *err);
bool attn_walk_given(const struct attn_walk *w, enum attn_object o);
/* Objects in the order in which a walk meets them; n < ATTN_WALK_STEPS. */
enum { ATTN_WALK_STEPS = 18 };
enum attn_object attn_walk_object(size_t n);
enum attn_stage attn_walk_stage(enum attn_object o); /* the stage that makes it */

bool attn_noise_take(struct attn_walk *w, struct attn_arena *arena, struct attn_err *err);
void attn_noise_of(struct attn_walk *w, enum attn_object o);
size_t attn_noise_bytes(const struct attn_problem *p);

/* ---- the backward pass, gradient by gradient ---- */

struct attn_back;
/* Changes `out`, the right gradient g, into what a faulty implementation makes of it. */
typedef void attn_back_fn(const struct attn_back *back, enum attn_gradient g,
                          struct attn_tensor *out);
struct attn_back_fault { /* param of the swap of a fault of the backward pass */
    uint32_t changes;    /* bit per gradient */
    attn_back_fn *wrong;
    bool (*fits)(const struct attn_problem *p);
};
/* The row's fault of the backward pass, or NULL for a fault of a stage. */
const struct attn_back_fault *attn_fault_back(const struct attn_fault_row *row);

struct attn_back {
    const struct attn_problem *p;
    const struct attn_exec *exec;
    const struct attn_candidate *c;
    const struct attn_grad_ask *ask;
    const struct attn_trace *t;
    struct attn_arena *arena;
    uint32_t exists; /* gradients that `ask` reaches */
    uint32_t ignore;
    struct attn_tensor
        own[ATTN_GRADIENT_COUNT]; /* the candidate's, else the computed one */
    struct attn_tensor right[ATTN_GRADIENT_COUNT];
    struct attn_seen seen[ATTN_GRADIENT_COUNT];
    struct attn_seen global[ATTN_GRADIENT_COUNT];
    double blur;                         /* relative noise of the forward objects */
    const struct attn_back_fault *fault; /* or NULL */
    uint32_t must; /* stop at the first of these that is not the same */
    bool stopped;
};
/* Takes own[]; with `right` also right[], from the right layer's trace. */
bool attn_back_take(struct attn_back *back, const struct attn_trace *right,
                    struct attn_err *err);
bool attn_back_run(struct attn_back *back, struct attn_err *err);
size_t attn_back_bytes(const struct attn_problem *p, const struct attn_grad_ask *ask);

/* ---- faults with a constant (attn_fault_fitted.c) ---- */

struct attn_fitted { /* param of their swaps; value is what is fitted */
    double value;
    bool (*fits)(const struct attn_problem *p);
};

/* ---- other right forms ---- */

struct attn_forms { /* what was accepted */
    uint32_t objects, gradients;
    const char *of_object[ATTN_OBJECT_COUNT];
    const char *of_gradient[ATTN_GRADIENT_COUNT];
    uint32_t rows; /* bit per accepted row */
};
/* Puts -Infinity for large negative numbers of M and S_masked, marks pairs at which S is
 *masked; own is a copy of the candidate that holds it, skip [B*h*T_q*T_kv] is set or left
 *NULL. */
bool attn_forms_normalise(const struct attn_problem *p, const struct attn_trace *right,
                          struct attn_arena *arena, struct attn_candidate *own,
                          const uint8_t **skip, struct attn_forms *forms,
                          struct attn_err *err);
/* Is some mismatch of the walk another right form?  Then adds it; false when nothing is
 * new. */
bool attn_forms_accept(const struct attn_walk *w, const struct attn_trace *right,
                       struct attn_forms *forms);
void attn_forms_accept_gradients(struct attn_back *back, const struct attn_trace *right,
                                 struct attn_forms *forms);

/* ---- fitted constants (attn_diagnose_fit.c) ---- */

enum { ATTN_FIT_ROOM = 16 }; /* doubles: as large as the largest param */

struct attn_fit { /* what a constant is found from */
    const struct attn_walk *base;
    enum attn_object target;
    struct attn_tensor
        expected; /* the right target after the candidate's own earlier objects */
};
struct attn_fit_row {
    const char *fault, *param;
    /* The n-th value to try; false = no more. */
    bool (*propose)(const struct attn_fit *f, size_t n, double *value);
    /* The swap's param with this value, made in room; or NULL: the fault is not run. */
    const void *(*set)(const void *param, double value, double *room);
    /* Instead of a run: does the observed object look like the fault's? */
    bool (*resembles)(const struct attn_fit *f, double *value);
    /* Run the stages of this row instead of the fault's own; NULL = its own. */
    const char *as;
    bool plain; /* the fault is tried as it stands, too, before constants are fitted */
    /* Searched between these when no proposal reproduces the target; both 0: never. */
    double low, high;
};
const struct attn_fit_row *attn_fit_find(const struct attn_fault_row *row);

/* ---- causes ---- */

struct attn_inquiry { /* everything that is known when causes are looked for */
    const struct attn_problem *p;
    const struct attn_walk *base;
    struct attn_walk trial; /* its own trace */
    struct attn_trace trial_trace;
    struct attn_back *back; /* NULL without gradients */
    struct attn_fit fit;    /* of the target at hand */
    struct attn_arena *arena;
    struct attn_report *report;
};
bool attn_causes_of_object(struct attn_inquiry *q, enum attn_object target,
                           uint32_t *explained, struct attn_err *err);
bool attn_causes_of_gradient(struct attn_inquiry *q, enum attn_gradient target,
                             struct attn_err *err);
void attn_causes_hidden(const struct attn_inquiry *q);

#endif
