/*
 * attn_diagnose_fit_mask.c - the constant of a wrong mask, found from the pairs that a
 * candidate reads.
 * Not here: which faults have one (FITS in attn_diagnose_fit.c).
 * Start reading at attn_fit_window.
 */
#include "core/attn_diagnose_fit.h"

#include <math.h>

/* Does the candidate read the pair, as far as its target says? */
static bool reads(const struct attn_fit *f, size_t n)
{
    const double x = attn_number(attn_fit_observed(f), n);

    return f->target == ATTN_M || f->target == ATTN_S_MASKED ? x != -INFINITY : x != 0.0;
}

static bool shows_mask(const struct attn_fit *f)
{
    return attn_fit_is(f, ATTN_M) || attn_fit_is(f, ATTN_ALLOWED) ||
           attn_fit_is(f, ATTN_S_MASKED) || attn_fit_is(f, ATTN_A);
}

/* Furthest key before (sign -1) or after (1) the query that any row reads. */
static bool furthest(const struct attn_fit *f, int sign, double *value)
{
    const struct attn_problem *p = f->base->p;
    ptrdiff_t most = PTRDIFF_MIN;
    size_t n = 0;

    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv);
         x.j++, n++) {
        const ptrdiff_t at = sign * ((ptrdiff_t)x.j - (ptrdiff_t)x.i - p->shift);

        if (reads(f, n) && at > most)
            most = at;
    }
    *value = (double)most;
    return most != PTRDIFF_MIN;
}

bool attn_fit_window(const struct attn_fit *f, size_t n, double *value)
{
    const struct attn_mask *m = attn_mask_of(f->base->p, "window");

    if (!m)
        return false;
    if (n == 0 && shows_mask(f) && furthest(f, -1, value) && *value >= 0.0)
        return true;
    *value = (double)n;
    return n < 32 && n < f->base->p->d.T_kv;
}

bool attn_fit_diagonal(const struct attn_fit *f, size_t n, double *value)
{
    if (!attn_mask_of(f->base->p, "causal"))
        return false;
    if (n == 0 && shows_mask(f) && furthest(f, 1, value))
        return true;
    return n < 16 && attn_fit_whole(n, value);
}

/* M at a forbidden pair, or the logit that gives a forbidden key its weight. */
bool attn_fit_fill(const struct attn_fit *f, size_t n, double *value)
{
    const struct attn_walk *w = f->base;
    const size_t T = w->p->d.T_kv;

    if (n > 0 || (!attn_fit_is(f, ATTN_M) && !attn_fit_is(f, ATTN_A)))
        return false;
    for (size_t r = 0; r < attn_tensor_count(attn_fit_observed(f)); r += T)
        for (size_t j = 0; j < T; j++) {
            const bool forbidden = attn_fit_is(f, ATTN_M)
                                       ? attn_number(&f->expected, r + j) == -INFINITY
                                       : attn_number(&w->t.t[ATTN_ALLOWED], r + j) == 0.0;

            if (!forbidden)
                continue;
            *value = attn_number(attn_fit_observed(f), r + j);
            if (attn_fit_is(f, ATTN_M))
                return isfinite(*value);
            for (size_t k = 0; k < T; k++) {
                const double a = attn_number(attn_fit_observed(f), r + k);

                if (attn_number(&w->t.t[ATTN_ALLOWED], r + k) == 0.0 || !(a > 0.0) ||
                    !(*value > 0.0))
                    continue;
                *value = log(*value / a) + attn_number(&w->t.t[ATTN_S], r + k) +
                         attn_number(&w->t.t[ATTN_M], r + k) -
                         attn_number(&w->t.t[ATTN_S], r + j);
                return isfinite(*value);
            }
        }
    return false;
}
