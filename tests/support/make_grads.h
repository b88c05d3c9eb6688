/*
 * make_grads.h - gradients of random problems and the memory that they live in.
 * Not here: what is right of them (test_attn_grad.c, test_attn_grad_check.c).
 * Start reading at struct asked_grads.
 */
#ifndef MAKE_GRADS_H
#define MAKE_GRADS_H

#include "core/attn_grad.h"
#include "make_problem.h"

struct asked_grads { /* a problem, its run, a cotangent and the gradients */
    struct made made;
    struct ran ran;
    struct attn_grad_ask ask;
    struct attn_arena arena;
    struct attn_grads grads;
    struct attn_err err;
    bool ok;
};

/* A random problem with everything it may have, and a cotangent of a random object. */
void make_grads_draw(struct asked_grads *g, uint64_t seed, enum attn_dtype dtype);
/* A random cotangent of this object. */
void make_cotangent(struct asked_grads *g, enum attn_object of);
/* Runs g->made.p and g->ask. */
void make_grads(struct asked_grads *g);
void make_grads_free(struct asked_grads *g);

#endif
