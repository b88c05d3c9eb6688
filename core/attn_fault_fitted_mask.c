/*
 * attn_fault_fitted_mask.c - faults of M with one constant: a width, an offset, a fill, a
 * factor of the bias.
 * Not here: constants of other objects (attn_fault_fitted.c), how one is found in a
 * candidate (attn_diagnose_fit_mask.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_diagnose.h"

#include <math.h>
#include <string.h>

static const struct attn_fitted *param_of(const struct attn_run_ctx *run)
{
    return run->swap->param;
}

/* ---- the wrong stages ---- */

/* The mask of a problem with one rule or bias changed. */
static bool mask_of(const struct attn_run_ctx *run, const struct attn_problem *p,
                    struct attn_err *err)
{
    struct attn_run_ctx other = *run;

    other.p = p;
    return attn_stage_all(&other, ATTN_STAGE_MASK, err);
}

static bool other_window(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    struct attn_problem p = *run->p;

    (void)piece;
    for (size_t n = 0; n < p.mask_count; n++)
        if (strcmp(p.mask[n].row->name, "window") == 0) {
            p.mask[n].arg[0].given = true;
            p.mask[n].arg[0].number = (int64_t)param_of(run)->value;
        }
    return mask_of(run, &p, err);
}

/* The causal triangle alone is moved: other rules keep their place. */
static bool other_diagonal(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    struct attn_problem p = *run->p;
    struct attn_tensor *allowed = &run->t->t[ATTN_ALLOWED], *M = &run->t->t[ATTN_M];
    const ptrdiff_t offset = p.shift + (ptrdiff_t)param_of(run)->value;
    size_t kept = 0;

    (void)piece;
    if (!attn_mask_of(&p, "causal"))
        return attn_stage_all(run, ATTN_STAGE_MASK, err);
    for (size_t n = 0; n < p.mask_count; n++)
        if (strcmp(p.mask[n].row->name, "causal") != 0)
            p.mask[kept++] = p.mask[n];
    p.mask_count = kept;
    if (!mask_of(run, &p, err))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p.d.B, p.d.h, p.d.T_q, p.d.T_kv);
         x.j++)
        if ((ptrdiff_t)x.j > (ptrdiff_t)x.i + offset) {
            attn_put4(allowed, x.b, x.h, x.i, x.j, 0.0);
            if (M->p)
                attn_put4(M, x.b, x.h, x.i, x.j, -INFINITY);
        }
    return true;
}

static bool finite_value(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    const struct attn_dims *d = &run->p->d;
    struct attn_tensor *allowed = &run->t->t[ATTN_ALLOWED], *M = &run->t->t[ATTN_M];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_MASK, err))
        return false;
    for (struct attn_cell x = {0}; M->p && attn_cell_in(&x, d->B, d->h, d->T_q, d->T_kv);
         x.j++)
        if (attn_at4(allowed, x.b, x.h, x.i, x.j) == 0.0) {
            attn_put4(M, x.b, x.h, x.i, x.j, param_of(run)->value);
            attn_put4(allowed, x.b, x.h, x.i, x.j, 1.0);
        }
    return true;
}

/* Every finite entry of M times the ratio. */
static bool scaled_bias(const struct attn_run_ctx *run, struct attn_piece piece,
                        struct attn_err *err)
{
    struct attn_tensor *M = &run->t->t[ATTN_M];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_MASK, err))
        return false;
    for (size_t n = 0; M->p && n < attn_tensor_count(M); n++)
        if (isfinite(attn_number(M, n)))
            attn_put(M, n, param_of(run)->value * attn_number(M, n));
    return true;
}

/* ---- what each needs ---- */

static bool windowed(const struct attn_problem *p)
{
    return attn_mask_of(p, "window") != NULL;
}

static bool causal(const struct attn_problem *p)
{
    return attn_mask_of(p, "causal") != NULL;
}

static bool biased(const struct attn_problem *p)
{
    return attn_is_biased(p);
}

static bool always(const struct attn_problem *p)
{
    (void)p;
    return true;
}

static bool fits(const struct attn_problem *p, const void *param)
{
    return ((const struct attn_fitted *)param)->fits(p);
}

/* Does the wrong mask differ anywhere?  The stage itself is asked, row by row. */
static bool any_pair(const struct attn_problem *p,
                     bool (*shows)(const struct attn_problem *p, struct attn_cell x,
                                   double value),
                     double value)
{
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv);
         x.j++)
        if (shows(p, x, value))
            return true;
    return false;
}

static bool is_forbidden(const struct attn_problem *p, struct attn_cell x, double value)
{
    (void)value;
    return !attn_allowed(p, x.b, x.h, x.i, x.j);
}

static bool is_biased(const struct attn_problem *p, struct attn_cell x, double value)
{
    (void)value;
    return attn_allowed(p, x.b, x.h, x.i, x.j) &&
           fabs(attn_bias(p, x.b, x.h, x.i, x.j)) > 1e-4;
}

/* Allowed by every rule but the window, or by it. */
static bool window_shows(const struct attn_problem *p, struct attn_cell x, double value)
{
    struct attn_problem other = *p;

    for (size_t n = 0; n < other.mask_count; n++)
        if (strcmp(other.mask[n].row->name, "window") == 0) {
            other.mask[n].arg[0].given = true;
            other.mask[n].arg[0].number = (int64_t)value;
        }
    return attn_allowed(p, x.b, x.h, x.i, x.j) !=
           attn_allowed(&other, x.b, x.h, x.i, x.j);
}

static bool diagonal_shows(const struct attn_problem *p, struct attn_cell x, double value)
{
    struct attn_problem other = *p;
    size_t kept = 0;
    const bool within = (ptrdiff_t)x.j <= (ptrdiff_t)x.i + p->shift + (ptrdiff_t)value;

    for (size_t n = 0; n < p->mask_count; n++)
        if (strcmp(p->mask[n].row->name, "causal") != 0)
            other.mask[kept++] = p->mask[n];
    other.mask_count = kept;
    return attn_allowed(p, x.b, x.h, x.i, x.j) !=
           (within && attn_allowed(&other, x.b, x.h, x.i, x.j));
}

static bool forbids(const struct attn_problem *p, const void *param)
{
    return fits(p, param) && any_pair(p, is_forbidden, 0.0);
}

static bool bias_counts(const struct attn_problem *p, const void *param)
{
    return fits(p, param) && any_pair(p, is_biased, 0.0);
}

static bool window_differs(const struct attn_problem *p, const void *param)
{
    return fits(p, param) &&
           any_pair(p, window_shows, ((const struct attn_fitted *)param)->value);
}

static bool diagonal_differs(const struct attn_problem *p, const void *param)
{
    return fits(p, param) &&
           any_pair(p, diagonal_shows, ((const struct attn_fitted *)param)->value);
}

/* ---- the rows ---- */

static const struct attn_fitted WINDOW = {3.0, windowed}, DIAGONAL = {2.0, causal};
static const struct attn_fitted VALUE = {-5.0, always}, BIAS = {2.0, biased};

static const struct attn_fault_row ROWS[] = {
    {"window_other_width",
     "M",
     "mask_entries",
     "The window has another left extent.",
     "Count the window as the rule says: the query's own position is not counted.",
     "A window whose extent shows in some row.",
     window_differs,
     {{[ATTN_STAGE_MASK] = other_window}, &WINDOW}},
    {"causal_other_offset",
     "M",
     "mask_entries",
     "The causal diagonal is off by a number of positions.",
     "Allow j ≤ i + shift.",
     "A causal rule, and rows long enough.",
     diagonal_differs,
     {{[ATTN_STAGE_MASK] = other_diagonal}, &DIAGONAL}},
    {"finite_mask_value",
     "M",
     "mask_entries",
     "Forbidden keys got a number that is not low enough: they keep some weight.",
     "Add -Infinity at forbidden keys.",
     "A forbidden pair.",
     forbids,
     {{[ATTN_STAGE_MASK] = finite_value}, &VALUE}},
    {"bias_scaled",
     "M",
     "mask_entries",
     "The additive bias or ALiBi was multiplied by a factor (such as the scale of the "
     "scores).",
     "Add the bias after scaling.",
     "A bias or ALiBi that is not 0 at allowed pairs.",
     bias_counts,
     {{[ATTN_STAGE_MASK] = scaled_bias}, &BIAS}},
};
const struct attn_fault_theme ATTN_FAULTS_FITTED_MASK = {ROWS, ATTN_COUNT(ROWS)};
