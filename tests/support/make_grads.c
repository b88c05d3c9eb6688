/*
 * make_grads.c - see make_grads.h.
 * Not here: random problems (make_problem.c).
 * Start reading at make_grads.
 */
#include "make_grads.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const enum attn_object OBJECTS[] = {ATTN_Y, ATTN_H, ATTN_H_HEADS, ATTN_A, ATTN_S};

void make_cotangent(struct asked_grads *g, enum attn_object of)
{
    struct attn_tensor *C = &g->ask.cotangent;

    attn_object_full_shape(&g->made.p, of, C);
    C->p = make_block(&g->made, attn_tensor_count(C) * attn_dtype_bytes(C->dtype));
    for (size_t n = 0; n < attn_tensor_count(C); n++)
        if (C->dtype == ATTN_F64)
            ((double *)C->p)[n] = make_normal(&g->made);
        else
            ((float *)C->p)[n] = (float)make_normal(&g->made);
    g->ask.of = of;
}

void make_grads(struct asked_grads *g)
{
    make_run(&g->made.p, attn_grad_needs(&g->made.p, &g->ask), ATTN_PATH_DENSE, NULL,
             NULL, &g->ran);
    cr_assert(g->ran.ok, "seed %llu: forward failed, code %d at %s",
              (unsigned long long)g->made.seed, (int)g->ran.err.code, g->ran.err.object);
    g->arena = make_arena(attn_grad_bytes(&g->made.p, &g->ask));
    g->ok = attn_grad(&g->made.p, &g->ran.trace, &g->ask, &g->arena, NULL, &g->grads,
                      &g->err);
}

void make_grads_free(struct asked_grads *g)
{
    free(g->arena.base);
    make_run_free(&g->ran);
    make_free(&g->made);
}

static enum attn_object drawn_object(struct made *made)
{
    enum attn_object of = OBJECTS[make_below(made, ATTN_COUNT(OBJECTS))];

    return of == ATTN_Y && !made->p.form.has_output ? ATTN_H : of;
}

void make_grads_draw(struct asked_grads *g, uint64_t seed, enum attn_dtype dtype)
{
    *g = (struct asked_grads){0};
    make_problem(&g->made, seed, dtype, 5, 0, &MAKE_ALL);
    make_cotangent(g, drawn_object(&g->made));
}
