/*
 * make_ablation.h - ablations of random problems and the memory that they live in.
 * Not here: what is right of them (test_attn_ablate.c, test_attn_claim.c).
 * Start reading at struct ablated.
 */
#ifndef MAKE_ABLATION_H
#define MAKE_ABLATION_H

#include "core/attn_edit.h"
#include "make_problem.h"

struct ablated {
    struct made made;
    struct ran ran;
    struct attn_arena arena;
    struct attn_ablation out;
    struct attn_err err;
    bool ok;
};

/* An edit by its names, with by 0.5, std 0.3 and a seed. */
struct attn_edit make_edit(const char *target, const char *change);
/* Places, a rule that the problem has (or none) and a tensor of the right shape. */
void make_edit_fill(struct made *made, struct attn_edit *edit);

/* Runs a->made.p whole; then the edits on it. */
void make_baseline(struct ablated *a, enum attn_path path);
void make_ablated(struct ablated *a, const struct attn_edit *edit, size_t edits);
/* Both, on the dense path, with one edit that must succeed. */
void make_one_edit(struct ablated *a, const struct attn_edit *edit);
/* Ready for other edits of the same baseline. */
void make_ablation_again(struct ablated *a);
void make_ablation_free(struct ablated *a);

/* Was this claimed, and does it hold? */
bool make_claims(const struct ablated *a, enum attn_object o, const char *says);
/* Asserts that every claim holds. */
void make_check_claims(const struct ablated *a, const char *what);

#endif
