/*
 * attn_grad.h - what the gradient files share: the graph's table, row loops, the check.
 * Not here: anything another part of core/ may use (attn.h, attn_core.h).
 * Start reading at struct attn_grad_node, then attn_grad.c.
 */
#ifndef ATTN_GRAD_H
#define ATTN_GRAD_H

#include "core/attn_core.h"

struct attn_grad_node {
    enum attn_object enters; /* where its tensor enters the layer: of an earlier object
                                there is no such gradient                              */
    uint32_t needs;          /* bit per gradient that must be known first */
    bool (*exists)(const struct attn_problem *p);
    bool optional; /* and only when its input was given */
};
extern const struct attn_grad_node ATTN_GRAD_NODES[ATTN_GRADIENT_COUNT];

/* What is asked, what is asked by name and not there, all that must be computed on the
   way, and which is the cotangent itself. */
uint32_t attn_grad_asked(const struct attn_problem *p, const struct attn_grad_ask *ask);
uint32_t attn_grad_wrong(const struct attn_problem *p, const struct attn_grad_ask *ask);
uint32_t attn_grad_closure(const struct attn_problem *p, const struct attn_grad_ask *ask);
int attn_grad_known(const struct attn_grad_ask *ask); /* enum attn_gradient, or -1 */
void attn_grad_shape(const struct attn_problem *p, enum attn_gradient g,
                     struct attn_tensor *shape);
size_t attn_grad_tensor_bytes(const struct attn_tensor *t); /* rounded up to ATTN_ALIGN */

/* Loops over one row, of either dtype (attn_grad_rows.inc). */
struct attn_grad_rows {
    /* ds_j = a_j (da_j - m) where a_j is not 0, else exactly 0; returns m = sum_j a_j
       da_j; *mass is sum_j a_j */
    double (*softmax)(size_t n, const void *a, const void *da, void *ds, double *mass);
    /* out_j = ds_j (1 - (s_j / cap)^2) */
    void (*softcap)(size_t n, const void *s, double cap, const void *ds, void *out);
    void (*add)(size_t n, const void *x, double *sum); /* sum += x */
};
const struct attn_grad_rows *attn_grad_rows_of(enum attn_dtype dtype);

/* Backward passes that attn_grad.c strings together (attn_grad_pairs.c,
   attn_grad_inputs.c). */
struct attn_grad_run {
    const struct attn_problem *p;
    const struct attn_trace *trace;
    const struct attn_grad_ask *ask;
    const struct attn_exec *exec;
    struct attn_arena *arena;
    const struct attn_grad_rows *rows;
    const struct attn_kernel *kernel;
    struct attn_tensor g[ATTN_GRADIENT_COUNT]; /* p NULL = not needed */
};
/* Runs fn(arg, 0 … count-1), on the caller's helpers where it lends them and they are
   worth it. */
void attn_grad_pieces(const struct attn_grad_run *run, size_t count, attn_piece_fn *fn,
                      void *arg);
bool attn_grad_stopped(const struct attn_grad_run *run);
size_t attn_grad_pairs_bytes(const struct attn_problem *p);
bool attn_grad_pairs(struct attn_grad_run *run, struct attn_err *err);
size_t attn_grad_inputs_bytes(const struct attn_problem *p);
bool attn_grad_inputs(struct attn_grad_run *run, struct attn_err *err);
bool attn_grad_output(struct attn_grad_run *run, struct attn_err *err);

/* Does this row's A count in the backward pass?  An empty row's does only when it is
   uniform. */
bool attn_grad_row_counts(const struct attn_grad_run *run, size_t b, size_t h, size_t i);
/* The next stretch [*i0, *i1) of rows that count, from *i1 on and before `end`. */
bool attn_grad_next_rows(const struct attn_grad_run *run, size_t b, size_t h, size_t end,
                         size_t *i0, size_t *i1);

struct attn_mat attn_grad_rows_at(struct attn_mat m, size_t i0, size_t i1);
struct attn_mat attn_grad_columns(struct attn_mat m, size_t c0, size_t cols);

/* A fault of the backward pass (attn_grad_inject.c). */
bool attn_grad_faulty(const struct attn_grad_ask *ask);
size_t attn_grad_inject_bytes(const struct attn_problem *p,
                              const struct attn_grad_ask *ask);
bool attn_grad_inject(struct attn_grad_run *run, uint32_t set, struct attn_err *err);

/* Central differences of `entries` places a tensor (SIZE_MAX = all of them). */
size_t attn_grad_check_entries(
    const struct attn_problem *p); /* what a request can afford */
size_t attn_grad_check_bytes(const struct attn_problem *p,
                             const struct attn_grad_ask *ask);
bool attn_grad_check_run(const struct attn_problem *p, const struct attn_grad_ask *ask,
                         size_t entries, uint64_t seed, struct attn_arena *arena,
                         const struct attn_exec *exec, struct attn_grads *grads,
                         struct attn_err *err);

#endif
