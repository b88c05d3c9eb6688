/*
 * attn_diagnose_normal.c - candidates brought into one form before they are walked:
 * numbers that stand for -Infinity, scores given with their mask. Not here: forms that
 * only a walk can tell (attn_diagnose_forms.c). Start reading at attn_forms_normalise.
 */
#include "core/attn_diagnose_forms.h"

#include <math.h>
#include <string.h>

/* ---- numbers that stand for -Infinity ---- */

/* exp of this is 0 in every precision; scores and biases above the other are no fill. */
static const double FILL_AT_MOST = -1000.0, NO_FILL_ABOVE = -500.0;

static bool is_fill(double x, double right)
{
    return x <= FILL_AT_MOST && isfinite(x) &&
           (right == -INFINITY || right > NO_FILL_ABOVE);
}

static bool is_masked(double x, double right)
{
    return x == -INFINITY || is_fill(x, right);
}

static void *copy(struct attn_arena *arena, struct attn_tensor *t, struct attn_err *err)
{
    const size_t bytes = attn_tensor_count(t) * attn_dtype_bytes(t->dtype);
    void *to = attn_arena_take(arena, bytes);

    if (!to)
        attn_fail(err, ATTN_E_MEMORY, "candidate", NULL, arena->size, bytes);
    else
        memcpy(to, t->p, bytes);
    return t->p = to;
}

static bool fill_to_infinity(const struct attn_trace *right, enum attn_object o,
                             struct attn_arena *arena, struct attn_candidate *own,
                             struct attn_forms *forms, struct attn_err *err)
{
    struct attn_tensor *t = &own->object[o];
    bool any = false;

    for (size_t n = 0; t->p && n < attn_tensor_count(t); n++)
        any = any || is_fill(attn_number(t, n), attn_number(&right->t[o], n));
    if (!any)
        return true;
    if (!copy(arena, t, err))
        return false;
    for (size_t n = 0; n < attn_tensor_count(t); n++)
        if (is_fill(attn_number(t, n), attn_number(&right->t[o], n)))
            attn_put(t, n, -INFINITY);
    attn_form_saw(forms, ATTN_FORM_FINITE_FILL, ATTN_BIT(o));
    return true;
}

/* May the pair be read, as the candidate itself says; else as the rules say? */
static bool own_verdict(const struct attn_candidate *own, const struct attn_trace *right,
                        size_t n)
{
    if (own->object[ATTN_ALLOWED].p)
        return attn_number(&own->object[ATTN_ALLOWED], n) != 0.0;
    if (own->object[ATTN_M].p)
        return attn_number(&own->object[ATTN_M], n) != -INFINITY;
    return attn_number(&right->t[ATTN_ALLOWED], n) != 0.0;
}

/* S and M may have been added: then allowed pairs are nearer to S + M than to S. */
static bool has_bias(const struct attn_trace *right, const struct attn_tensor *S,
                     const uint8_t *skip)
{
    double plain = 0.0, added = 0.0;

    for (size_t n = 0; n < attn_tensor_count(S); n++) {
        const double s = attn_number(&right->t[ATTN_S], n),
                     m = attn_number(&right->t[ATTN_M], n);

        if (skip[n] || !isfinite(m))
            continue;
        plain += fabs(attn_number(S, n) - s);
        added += fabs(attn_number(S, n) - s - m);
    }
    return added < plain / 4.0;
}

static void take_bias_off(const struct attn_trace *right, struct attn_tensor *S)
{
    for (size_t n = 0; n < attn_tensor_count(S); n++)
        if (isfinite(attn_number(&right->t[ATTN_M], n)))
            attn_put(S, n, attn_number(S, n) - attn_number(&right->t[ATTN_M], n));
}

/* Masked scores show which mask was used; without another word of it, that is the
 * candidate's. */
static bool mask_from_scores(const uint8_t *skip, struct attn_arena *arena,
                             struct attn_candidate *own, struct attn_err *err)
{
    struct attn_tensor *allowed = &own->object[ATTN_ALLOWED];
    const size_t count = attn_tensor_count(&own->object[ATTN_S]);

    *allowed = own->object[ATTN_S];
    allowed->dtype = ATTN_BOOL;
    allowed->p = attn_arena_take(arena, count);
    if (!allowed->p)
        return attn_fail(err, ATTN_E_MEMORY, "candidate", NULL, arena->size, count);
    for (size_t n = 0; n < count; n++)
        attn_put(allowed, n, !skip[n]);
    return true;
}

static bool unmask_scores(const struct attn_problem *p, const struct attn_trace *right,
                          struct attn_arena *arena, struct attn_candidate *own,
                          const uint8_t **skip, struct attn_forms *forms,
                          struct attn_err *err)
{
    struct attn_tensor *S = &own->object[ATTN_S];
    const size_t count = S->p ? attn_tensor_count(S) : 0;
    const bool mask_known = own->object[ATTN_ALLOWED].p || own->object[ATTN_M].p ||
                            own->object[ATTN_S_MASKED].p;
    uint8_t *masked = count ? attn_arena_take(arena, count) : NULL;
    size_t masked_count = 0, wrong = 0;

    if (count == 0)
        return true;
    if (!masked)
        return attn_fail(err, ATTN_E_MEMORY, "candidate", NULL, arena->size, count);
    for (size_t n = 0; n < count; n++) {
        masked[n] = is_masked(attn_number(S, n), attn_number(&right->t[ATTN_S], n));
        masked_count += masked[n];
        wrong += masked[n] == own_verdict(own, right, n);
    }
    if (masked_count > 0 && wrong > 0 && mask_known)
        return true;

    const bool biased = attn_is_biased(p) && has_bias(right, S, masked);

    if (masked_count == 0 && !biased)
        return true;
    if (masked_count > 0 && wrong > 0 && !mask_from_scores(masked, arena, own, err))
        return false;
    if (biased) {
        if (!copy(arena, S, err))
            return false;
        take_bias_off(right, S);
    }
    *skip = masked_count > 0 ? masked : NULL;
    attn_form_saw(forms, ATTN_FORM_MASKED_SCORES, ATTN_BIT(ATTN_S));
    return true;
}

bool attn_forms_normalise(const struct attn_problem *p, const struct attn_trace *right,
                          struct attn_arena *arena, struct attn_candidate *own,
                          const uint8_t **skip, struct attn_forms *forms,
                          struct attn_err *err)
{
    return fill_to_infinity(right, ATTN_M, arena, own, forms, err) &&
           fill_to_infinity(right, ATTN_S_MASKED, arena, own, forms, err) &&
           unmask_scores(p, right, arena, own, skip, forms, err);
}
