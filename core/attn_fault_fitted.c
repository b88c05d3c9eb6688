/*
 * attn_fault_fitted.c - faults with one constant: a ratio, a fill, a width, an offset, a
 * base. Not here: how the constant is found in a candidate (attn_diagnose_fit.c). Start
 * reading at ROWS, at the end.
 */
#include "core/attn_diagnose.h"

#include <math.h>
#include <string.h>

static const struct attn_fitted *param_of(const struct attn_run_ctx *run)
{
    return run->swap->param;
}

static bool fits(const struct attn_problem *p, const void *param)
{
    return ((const struct attn_fitted *)param)->fits(p);
}

/* ---- S ---- */

static bool wrong_scores(const struct attn_run_ctx *run, double ratio, double cap,
                         struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct attn_tensor *Q = &run->t->t[ATTN_Q], *K = &run->t->t[ATTN_K];
    struct attn_tensor *S = &run->t->t[ATTN_S];
    const double factor = ratio * p->scale / p->temperature;

    if (!attn_stage_all(run, ATTN_STAGE_SCORE, err))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv);
         x.j++) {
        const double s =
            factor * attn_pair_raw(p, Q, attn_place4(Q, x.b, x.h, x.i), K,
                                   attn_place4(K, x.b, attn_kv_head(&p->d, x.h), x.j));

        attn_put4(S, x.b, x.h, x.i, x.j, cap > 0.0 ? cap * tanh(s / cap) : s);
    }
    return true;
}

static bool other_scale(const struct attn_run_ctx *run, struct attn_piece piece,
                        struct attn_err *err)
{
    (void)piece;
    return wrong_scores(run, param_of(run)->value, run->p->softcap, err);
}

static bool other_cap(const struct attn_run_ctx *run, struct attn_piece piece,
                      struct attn_err *err)
{
    (void)piece;
    return wrong_scores(run, 1.0, param_of(run)->value * run->p->softcap, err);
}

/* ---- Q and K ---- */

static bool turned_query(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct attn_tensor *pre = attn_before_rope(run->t, ATTN_Q_PRE, ATTN_Q);
    struct attn_tensor *Q = &run->t->t[ATTN_Q];

    (void)piece;
    if (!p->rope.on)
        return attn_stage_all(run, ATTN_STAGE_POSITION_Q, err);
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++) {
        const double pos = attn_rope_position_q(p, x.b, x.i) + param_of(run)->value;
        const size_t at = attn_place4(Q, x.b, x.h, x.i);

        attn_rope_row(p, pos, (const double *)pre->p + at, (double *)Q->p + at);
    }
    return true;
}

static bool other_offset(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    if (run->p->dtype != ATTN_F64)
        return attn_stage_all(run, ATTN_STAGE_POSITION_Q, err);
    return turned_query(run, piece, err);
}

static bool other_base(const struct attn_run_ctx *run, enum attn_stage stage,
                       struct attn_err *err)
{
    struct attn_problem p = *run->p;
    struct attn_run_ctx other = *run;

    p.rope.base = param_of(run)->value;
    other.p = &p;
    return attn_stage_all(&other, stage, err);
}

static bool other_base_q(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    (void)piece;
    return other_base(run, ATTN_STAGE_POSITION_Q, err);
}

static bool other_base_k(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    (void)piece;
    return other_base(run, ATTN_STAGE_POSITION_K, err);
}

/* ---- M ---- */

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

/* ---- A, H ---- */

static void times(struct attn_tensor *t, double by)
{
    for (size_t n = 0; t->p && n < attn_tensor_count(t); n++)
        attn_put(t, n, by * attn_number(t, n));
}

static bool scaled_weights(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SOFTMAX, err))
        return false;
    times(&run->t->t[ATTN_A], param_of(run)->value);
    return true;
}

static bool scaled_output(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_err *err)
{
    struct attn_tensor *H = &run->t->t[ATTN_H], *heads = &run->t->t[ATTN_H_HEADS];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_MIX, err))
        return false;
    times(H, param_of(run)->value);
    if (heads->p != H->p)
        times(heads, param_of(run)->value);
    return true;
}

/* ---- what each needs ---- */

static bool scaled(const struct attn_problem *p)
{
    return p->scale != 0.0;
}

static bool capped(const struct attn_problem *p)
{
    return p->softcap > 0.0;
}

static bool turned(const struct attn_problem *p)
{
    return p->rope.on && p->dtype == ATTN_F64;
}

static bool turned_pairs(const struct attn_problem *p)
{
    return p->rope.on && p->d.d_k > 2;
}

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

static bool base_differs(const struct attn_problem *p, const void *param)
{
    if (!fits(p, param) || p->rope.base == ((const struct attn_fitted *)param)->value)
        return false;
    for (size_t b = 0; b < p->d.B; b++)
        for (size_t i = 0; i < p->d.T_q; i++)
            if (attn_rope_position_q(p, b, i) != 0.0)
                return true;
    return false;
}

/* ---- the rows ---- */

static const struct attn_fitted SCALE = {1.7, scaled}, CAP = {2.0, capped},
                                OFFSET = {5.0, turned};
static const struct attn_fitted BASE = {500000.0, turned_pairs}, WINDOW = {3.0, windowed};
static const struct attn_fitted DIAGONAL = {2.0, causal}, VALUE = {-5.0, always};
static const struct attn_fitted BIAS = {2.0, biased}, WEIGHTS = {0.6, attn_any_row_mixes},
                                HEADS = {0.7, attn_any_row_mixes};

static const struct attn_fault_row ROWS[] = {
    {"scale_other",
     "S",
     "score_shape_and_scale",
     "Scores carry another factor than the one asked.",
     "Multiply Q·Kᵀ by the scale once, and divide by the temperature.",
     "Scores that are not all 0.",
     fits,
     {{[ATTN_STAGE_SCORE] = other_scale}, &SCALE}},
    {"softcap_other",
     "S",
     "score_shape_and_scale",
     "The soft cap has another value than the one asked.",
     "Use cap·tanh(s/cap) with the cap of the model.",
     "A soft cap and scores that are not small beside it.",
     fits,
     {{[ATTN_STAGE_SCORE] = other_cap}, &CAP}},
    {"rope_base_other",
     "Q",
     "qkv_rows",
     "RoPE uses another base.",
     "Take the base from the configuration of the model.",
     "RoPE with d_k of 4 or more and a query that does not stand at position 0.",
     base_differs,
     {{[ATTN_STAGE_POSITION_Q] = other_base_q, [ATTN_STAGE_POSITION_K] = other_base_k},
      &BASE}},
    {"rope_query_offset",
     "Q",
     "qkv_rows",
     "Queries were rotated to positions that are all off by one number; keys were not.",
     "Count positions of queries and keys from the same start.",
     "RoPE.",
     fits,
     {{[ATTN_STAGE_POSITION_Q] = other_offset}, &OFFSET}},
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
    {"weights_scaled",
     "A",
     "softmax_rows",
     "All weights are multiplied by one factor: rows do not sum to 1.",
     "Leave the weights as the softmax gives them.",
     "A row with an allowed key.",
     fits,
     {{[ATTN_STAGE_SOFTMAX] = scaled_weights}, &WEIGHTS}},
    {"output_scaled",
     "H",
     "weighted_values",
     "A·V was multiplied by a factor.",
     "H is the plain weighted sum of the values.",
     "A row with an allowed key.",
     fits,
     {{[ATTN_STAGE_MIX] = scaled_output}, &HEADS}},
};
const struct attn_fault_theme ATTN_FAULTS_FITTED = {ROWS, ATTN_COUNT(ROWS)};
