/*
 * api_audit_shared.c - d_additive of a bias that items or heads share, taken apart for
 * the judge. Not here: gradients that have every axis (api_audit_candidate.c). Start
 * reading at api_spread_additive.
 *
 * The gradient of a shared bias is the sum over those who share it, the judge wants every
 * term.  The terms of the candidate's own dS (else of the right one) stand in, and what
 * its sum differs by is spread over them in proportion to their size: so no term moves by
 * more than a tolerance when the sum moves by less than one.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "api/api_audit.h"

static bool right_terms(struct api_ctx *ctx, const struct attn_exec *exec,
                        const struct api_judged *judged, struct attn_tensor *terms,
                        struct api_err *err)
{
    const struct attn_problem *p = &judged->r.p;
    struct attn_grad_ask ask = judged->r.gradients;
    struct attn_arena *arena = &ctx->arena;
    struct attn_err core = {0};
    struct attn_plan plan;
    struct attn_trace trace;
    struct attn_grads grads;

    ask.with_respect_to = ATTN_BIT(ATTN_DS);
    ask.check = false;
    if (!attn_plan(p, attn_grad_needs(p, &ask), ATTN_PATH_DENSE,
                   arena->size - arena->used, &plan, &core) ||
        !attn_run(p, &plan, arena, exec, NULL, &trace, &core) ||
        !attn_grad(p, &trace, &ask, arena, exec, &grads, &core))
        return api_fail_core(err, &core);
    *terms = grads.t[ATTN_DS];
    return true;
}

/* Makes the terms x[0], x[stride], … (n of them) add up to `sum`. */
static void spread(double *x, size_t n, size_t stride, double sum)
{
    double is = 0.0, size = 0.0;

    for (size_t k = 0; k < n; k++) {
        is += x[k * stride];
        size += fabs(x[k * stride]);
    }
    if (size == 0.0 || !isfinite(size)) {
        x[0] += sum - is;
        return;
    }
    for (size_t k = 0; k < n; k++)
        x[k * stride] += (sum - is) * (fabs(x[k * stride]) / size);
}

bool api_spread_additive(struct api_ctx *ctx, const struct attn_exec *exec,
                         struct api_judged *judged, struct api_err *err)
{
    const struct attn_problem *p = &judged->r.p;
    const size_t pairs = p->d.T_q * p->d.T_kv;
    const size_t sharing = p->additive.stride_b > 0 ? p->d.h : p->d.B * p->d.h;
    struct attn_tensor *t = &judged->candidate.gradient[ATTN_D_ADDITIVE];
    const double *sums = judged->shared_additive.p;
    struct attn_tensor terms = judged->candidate.gradient[ATTN_DS];
    double *x;

    if (sums == NULL)
        return true;
    attn_object_full_shape(p, ATTN_S, t);
    t->dtype = ATTN_F64;
    x = attn_arena_take(&ctx->arena, attn_tensor_count(t) * sizeof *x);
    if (x == NULL)
        return api_fail(err, "too-large", NULL,
                        "There is no room to take d_additive apart.");
    if (terms.p == NULL && !right_terms(ctx, exec, judged, &terms, err))
        return false;
    assert(terms.p != NULL);
    memcpy(x, terms.p, attn_tensor_count(t) * sizeof *x);
    for (size_t n = 0; n < attn_tensor_count(&judged->shared_additive); n++)
        spread(x + n / pairs * sharing * pairs + n % pairs, sharing, pairs, sums[n]);
    t->p = x;
    return true;
}
