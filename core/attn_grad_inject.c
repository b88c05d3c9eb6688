/*
 * attn_grad_inject.c - the backward pass with a fault of the catalogue in it.
 * Not here: the faults (attn_fault_grad.c), the walk over the graph
 * (attn_diagnose_back.c).
 * Start reading at attn_grad_inject.
 */
#include "core/attn_diagnose.h"

#include <string.h>

bool attn_grad_faulty(const struct attn_grad_ask *ask)
{
    return ask->inject != NULL && attn_fault_of_gradients(ask->inject);
}

size_t attn_grad_inject_bytes(const struct attn_problem *p,
                              const struct attn_grad_ask *ask)
{
    struct attn_grad_ask plain = *ask;

    plain.inject = NULL;
    return attn_back_bytes(p, &plain);
}

/* Puts in the place of every gradient of `set` what an implementation with the fault of
   run->ask makes of it: the wrong gradient, and those that follow from it.  Scratch is
   given back.  Errors: MEMORY, DEADLINE. */
bool attn_grad_inject(struct attn_grad_run *run, uint32_t set, struct attn_err *err)
{
    static const struct attn_candidate NOTHING_GIVEN;
    struct attn_back back = {.p = run->p,
                             .exec = run->exec,
                             .c = &NOTHING_GIVEN,
                             .ask = run->ask,
                             .t = run->trace,
                             .arena = run->arena,
                             .fault = attn_fault_back(run->ask->inject)};
    const size_t mark = attn_arena_mark(run->arena);
    const bool ok = attn_back_take(&back, NULL, err) && attn_back_run(&back, err);

    for (int g = 0; ok && g < ATTN_GRADIENT_COUNT; g++)
        if ((set >> g & 1) && g != attn_grad_known(run->ask) && g != ATTN_D_ADDITIVE)
            memcpy(run->g[g].p, back.own[g].p,
                   attn_tensor_count(&run->g[g]) * attn_dtype_bytes(run->g[g].dtype));
    attn_arena_release(run->arena, mark);
    return ok;
}
