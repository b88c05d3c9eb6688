/*
 * attn_fault_fitted.c - faults with one constant: a ratio, a cap, an offset, a base.
 * Not here: constants of masks (attn_fault_fitted_mask.c), how one is found in a
 * candidate (attn_diagnose_fit.c). Start reading at ROWS, at the end.
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
static const struct attn_fitted BASE = {500000.0, turned_pairs};
static const struct attn_fitted WEIGHTS = {0.6, attn_any_row_mixes},
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
