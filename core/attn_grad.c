/*
 * attn_grad.c - the backward pass: cotangent of Y, H, H_heads, A or S to what was asked.
 * Not here: the graph (attn_grad_table.c), the pairwise part (attn_grad_pairs.c), the
 * projections (attn_grad_inputs.c), the check by differences (attn_grad_check.c).
 * Start reading at attn_grad.
 */
#include "core/attn_grad.h"

#include <assert.h>
#include <string.h>

/* Which entries the check looks at; any number does, as long as it stays the same. */
static const uint64_t CHECK_SEED = 14;

/* Kept beyond the call: what was asked, and dS where d_additive is the same numbers. */
static uint32_t kept(const struct attn_problem *p, const struct attn_grad_ask *ask)
{
    const uint32_t asked = attn_grad_asked(p, ask);

    return asked >> ATTN_D_ADDITIVE & 1 ? asked | UINT32_C(1) << ATTN_DS : asked;
}

static bool is_alias(const struct attn_grad_ask *ask, enum attn_gradient g)
{
    return g == ATTN_D_ADDITIVE || (int)g == attn_grad_known(ask);
}

/* A fault is there to be caught. */
static bool is_checked(const struct attn_grad_ask *ask)
{
    return ask->check || attn_grad_faulty(ask);
}

size_t attn_grad_bytes(const struct attn_problem *p, const struct attn_grad_ask *ask)
{
    const uint32_t closure = attn_grad_closure(p, ask);
    size_t bytes = 0;

    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT; g++) {
        struct attn_tensor shape;

        if (!(closure >> g & 1) || is_alias(ask, g))
            continue;
        attn_grad_shape(p, g, &shape);
        bytes += attn_grad_tensor_bytes(&shape);
    }
    bytes += attn_grad_pairs_bytes(p) + attn_grad_inputs_bytes(p);
    if (attn_grad_faulty(ask))
        bytes += attn_grad_inject_bytes(p, ask);
    return bytes + (is_checked(ask) ? attn_grad_check_bytes(p, ask) : 0);
}

/* Takes the gradients of `set` that are not there yet. */
static bool take(struct attn_grad_run *run, uint32_t set, struct attn_err *err)
{
    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT; g++) {
        struct attn_tensor *t = &run->g[g];

        if (!(set >> g & 1) || t->p != NULL || is_alias(run->ask, g))
            continue;
        attn_grad_shape(run->p, g, t);
        t->p = attn_arena_take(run->arena, attn_grad_tensor_bytes(t));
        if (t->p == NULL)
            return attn_fail(err, ATTN_E_MEMORY, ATTN_GRADIENTS[g].name, NULL,
                             run->arena->size, attn_grad_tensor_bytes(t));
        memset(t->p, 0, attn_tensor_count(t) * attn_dtype_bytes(t->dtype));
    }
    return true;
}

/* dH from a cotangent of H_heads: (B,h,T_q,d_v) to the joined (B,T_q,h*d_v). */
static void join_heads(struct attn_grad_run *run)
{
    const struct attn_dims *d = &run->p->d;
    const size_t row = d->d_v * attn_dtype_bytes(run->p->dtype);

    for (size_t b = 0; b < d->B; b++)
        for (size_t h = 0; h < d->h; h++)
            for (size_t i = 0; i < d->T_q; i++)
                memcpy((unsigned char *)run->g[ATTN_DH].p +
                           ((b * d->T_q + i) * d->h + h) * row,
                       (const unsigned char *)run->ask->cotangent.p +
                           ((b * d->h + h) * d->T_q + i) * row,
                       row);
}

static bool check_asked(const struct attn_problem *p, const struct attn_grad_ask *ask,
                        struct attn_err *err)
{
    const uint32_t wrong = attn_grad_wrong(p, ask);

    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (wrong >> g & 1)
            return attn_fail(err, ATTN_E_CONTRADICTION, ATTN_GRADIENTS[g].name, NULL, 0,
                             0);
    return true;
}

static bool backward(struct attn_grad_run *run, struct attn_err *err)
{
    if (run->ask->of == ATTN_Y && !attn_grad_output(run, err))
        return false;
    if (run->ask->of == ATTN_H_HEADS && run->g[ATTN_DH].p != NULL)
        join_heads(run);
    return attn_grad_pairs(run, err) && attn_grad_inputs(run, err);
}

/*
 * Gradients of sum(cotangent * object) with respect to what was asked.
 *
 *     dH = dY W_O^T, dA = dH V^T, dV = A^T dH, dS = A (dA - sum_k A dA), dQ = scale dS K
 *
 * trace  in   the forward run: what attn_grad_needs names
 * ask    in   cotangent at full rank in p->dtype
 * grads  out  tensors in the arena; dA of A and the like are the cotangent's own memory
 *
 * Errors: CONTRADICTION, MEMORY, DEADLINE; grads hold nothing usable after one.
 * Source: Vaswani et al. 2017, section 3.2.1, differentiated by the chain rule.
 */
bool attn_grad(const struct attn_problem *p, const struct attn_trace *trace,
               const struct attn_grad_ask *ask, struct attn_arena *arena,
               const struct attn_exec *exec, struct attn_grads *grads,
               struct attn_err *err)
{
    struct attn_grad_run run = {.p = p,
                                .trace = trace,
                                .ask = ask,
                                .exec = exec,
                                .arena = arena,
                                .rows = attn_grad_rows_of(p->dtype),
                                .kernel = attn_kernel_of(p->dtype)};
    const uint32_t asked = attn_grad_asked(p, ask), keep = kept(p, ask);
    const int known = attn_grad_known(ask);
    const size_t start = attn_arena_mark(arena);

    assert(ask->cotangent.p != NULL);
    *grads = (struct attn_grads){.check = {.worst = -1, .first = -1}};
    if (!check_asked(p, ask, err))
        return false;
    if (known >= 0)
        run.g[known] = ask->cotangent;

    bool ok = take(&run, keep, err);
    const size_t scratch = attn_arena_mark(arena);

    ok = ok && take(&run, attn_grad_closure(p, ask), err) && backward(&run, err) &&
         (!attn_grad_faulty(ask) || attn_grad_inject(&run, keep, err));
    attn_arena_release(arena, ok ? scratch : start);
    if (!ok)
        return false;
    run.g[ATTN_D_ADDITIVE] = run.g[ATTN_DS];
    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (asked >> g & 1)
            grads->t[g] = run.g[g];
    return !is_checked(ask) || attn_grad_check_run(p, ask, attn_grad_check_entries(p),
                                                   CHECK_SEED, arena, exec, grads, err);
}
