/*
 * attn_fault_score.c - faults of the scores: wrong factor, wrong partners, no soft cap.
 * Not here: what is done to scores inside the softmax (attn_fault_softmax.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault.h"

#include <math.h>

struct place {
    size_t b, h, i;
};

/* Who meets whom: row of Q, and row of K and V, for the score at (b,h,i,j); and where row
   (b,h,i) of A V goes in the joined H.  NULL = as it should be. */
struct score {
    bool (*fits)(const struct attn_problem *p);
    double (*factor)(const struct attn_problem *p);
    bool no_cap;
    struct place (*query)(const struct attn_problem *p, struct attn_cell x);
    struct place (*key)(const struct attn_problem *p, struct attn_cell x);
    struct place (*joined)(struct attn_cell x); /* b, head, row */
    bool heads_joined; /* H_heads has the same order as the joined H */
};

/* ---- the wrong stages -------------------------------------------------------------- */

static struct place right_query(const struct attn_problem *p, struct attn_cell x)
{
    (void)p;
    return (struct place){x.b, x.h, x.i};
}

static struct place right_key(const struct attn_problem *p, struct attn_cell x)
{
    return (struct place){x.b, attn_kv_head(&p->d, x.h), x.j};
}

static double right_factor(const struct attn_problem *p)
{
    return p->scale / p->temperature;
}

static bool wrong_score(const struct attn_run_ctx *run, struct attn_piece piece,
                        struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct score *fault = run->swap->param;
    const struct attn_tensor *Q = &run->t->t[ATTN_Q], *K = &run->t->t[ATTN_K];
    struct attn_tensor *S = &run->t->t[ATTN_S];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SCORE, err))
        return false;
    if (!fault->fits(p))
        return true;

    const double factor = (fault->factor ? fault->factor : right_factor)(p);

    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv);
         x.j++) {
        const struct place q = (fault->query ? fault->query : right_query)(p, x);
        const struct place k = (fault->key ? fault->key : right_key)(p, x);
        const double s = factor * attn_pair_raw(p, Q, attn_place4(Q, q.b, q.h, q.i), K,
                                                attn_place4(K, k.b, k.h, k.i));
        const bool cap = p->softcap > 0.0 && !fault->no_cap;

        attn_put4(S, x.b, x.h, x.i, x.j, cap ? p->softcap * tanh(s / p->softcap) : s);
    }
    return true;
}

/* Values come from the same wrong places as keys. */
static bool wrong_mix(const struct attn_run_ctx *run, struct attn_piece piece,
                      struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct score *fault = run->swap->param;
    const struct attn_tensor *A = &run->t->t[ATTN_A], *V = &run->t->t[ATTN_V];
    struct attn_tensor *heads = &run->t->t[ATTN_H_HEADS], *H = &run->t->t[ATTN_H];
    const size_t d_v = p->d.d_v;

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_MIX, err))
        return false;
    if (!fault->fits(p))
        return true;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, d_v);
         x.j++) {
        const struct place to =
            fault->joined ? fault->joined(x) : (struct place){x.b, x.h, x.i};
        const struct place at = fault->heads_joined ? to : (struct place){x.b, x.h, x.i};
        double sum = 0.0;

        for (size_t j = 0; j < p->d.T_kv; j++) {
            const struct place v = fault->key(p, (struct attn_cell){x.b, x.h, x.i, j});

            sum += attn_at4(A, x.b, x.h, x.i, j) * attn_at4(V, v.b, v.h, v.i, x.j);
        }
        if (heads->p && heads->p != H->p)
            attn_put4(heads, at.b, at.h, at.i, x.j, sum);
        attn_put(H, attn_place3(H, to.b, to.i) + to.h * d_v + x.j, sum);
    }
    return true;
}

static bool scaled_weights(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    struct attn_tensor *A = &run->t->t[ATTN_A];
    const struct score *fault = run->swap->param;

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SOFTMAX, err))
        return false;
    for (size_t n = 0; fault->fits(run->p) && n < attn_tensor_count(A); n++)
        attn_put(A, n, attn_number(A, n) * run->p->scale);
    return true;
}

/* ---- factors ----------------------------------------------------------------------- */

static double no_scale(const struct attn_problem *p)
{
    return 1.0 / p->temperature;
}

static double scale_squared(const struct attn_problem *p)
{
    return p->scale * p->scale / p->temperature;
}

static double over_d_k(const struct attn_problem *p)
{
    return 1.0 / (double)p->d.d_k / p->temperature;
}

static double over_root_d_model(const struct attn_problem *p)
{
    return 1.0 / sqrt((double)p->d.d_model) / p->temperature;
}

static double over_root_values(const struct attn_problem *p)
{
    return 1.0 / sqrt((double)(p->d.h * p->d.d_v)) / p->temperature;
}

static double inverted(const struct attn_problem *p)
{
    return 1.0 / p->scale / p->temperature;
}

/* ---- partners ---------------------------------------------------------------------- */

static struct place query_is_j(const struct attn_problem *p, struct attn_cell x)
{
    (void)p;
    return (struct place){x.b, x.h, x.j};
}

static struct place key_is_i(const struct attn_problem *p, struct attn_cell x)
{
    return (struct place){x.b, attn_kv_head(&p->d, x.h), x.i};
}

static struct place tiled_head(const struct attn_problem *p, struct attn_cell x)
{
    return (struct place){x.b, x.h % p->d.h_kv, x.j};
}

/* (B,T,h,d) taken for (B,h,T,d): at token h, head i meets head j. */
static struct place head_meets(const struct attn_problem *p, struct attn_cell x)
{
    (void)p;
    return (struct place){x.b, x.i, x.h};
}

static struct place head_met(const struct attn_problem *p, struct attn_cell x)
{
    (void)p;
    return (struct place){x.b, x.j, x.h};
}

static struct place token_row(struct attn_cell x)
{
    return (struct place){x.b, x.i, x.h};
}

/* (B,T,…) taken for (T,B,…): at token b, item i meets item j. */
static struct place item_meets(const struct attn_problem *p, struct attn_cell x)
{
    (void)p;
    return (struct place){x.i, x.h, x.b};
}

static struct place item_met(const struct attn_problem *p, struct attn_cell x)
{
    (void)p;
    return (struct place){x.j, x.h, x.b};
}

static struct place item_row(struct attn_cell x)
{
    return (struct place){x.i, x.h, x.b};
}

/* ---- what each needs --------------------------------------------------------------- */

static bool scaled(const struct attn_problem *p)
{
    return p->score->scaled_by_default && p->scale != 0.0;
}

static bool scaled_with_model(const struct attn_problem *p)
{
    return scaled(p) && p->d.d_model > 0;
}

static bool has_cap(const struct attn_problem *p)
{
    return p->softcap > 0.0;
}

static bool square(const struct attn_problem *p)
{
    return p->d.T_q == p->d.T_kv && p->d.T_q > 1;
}

static bool grouped(const struct attn_problem *p)
{
    return p->d.h_kv > 1 && p->d.h_kv < p->d.h;
}

static bool heads_are_tokens(const struct attn_problem *p)
{
    return square(p) && p->d.h == p->d.T_q && p->d.h_kv == p->d.h;
}

static bool items_are_tokens(const struct attn_problem *p)
{
    return square(p) && p->d.B == p->d.T_q && p->d.h_kv == p->d.h;
}

static bool fits(const struct attn_problem *p, const void *param)
{
    const struct score *fault = param;

    return fault->fits(p);
}

static bool factor_differs(const struct attn_problem *p, const void *param)
{
    const struct score *fault = param;

    return fault->fits(p) &&
           fabs(fault->factor(p) - right_factor(p)) > 1e-6 * fabs(right_factor(p));
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct score NO_SCALE = {.fits = scaled, .factor = no_scale};
static const struct score TWICE = {.fits = scaled, .factor = scale_squared};
static const struct score NO_ROOT = {.fits = scaled, .factor = over_d_k};
static const struct score D_MODEL = {.fits = scaled_with_model,
                                     .factor = over_root_d_model};
static const struct score VALUE_WIDTH = {.fits = scaled, .factor = over_root_values};
static const struct score INVERTED = {.fits = scaled, .factor = inverted};
static const struct score NO_CAP = {.fits = has_cap, .no_cap = true};
static const struct score TRANSPOSED = {
    .fits = square, .query = query_is_j, .key = key_is_i};
static const struct score TILED = {.fits = grouped, .key = tiled_head};
static const struct score HEADS = {.fits = heads_are_tokens,
                                   .query = head_meets,
                                   .key = head_met,
                                   .joined = token_row,
                                   .heads_joined = true};
static const struct score ITEMS = {
    .fits = items_are_tokens, .query = item_meets, .key = item_met, .joined = item_row};

#define SCORE_ONLY [ATTN_STAGE_SCORE] = wrong_score
#define CAUGHT     "S", "score_shape_and_scale"

static const struct attn_fault_row ROWS[] = {
    {"scale_missing",
     CAUGHT,
     "Scores were not divided by √d_k.",
     "Multiply Q·Kᵀ by 1/√d_k before the softmax.",
     "d_k > 1, so that the scale is not 1.",
     factor_differs,
     {{SCORE_ONLY}, &NO_SCALE}},
    {"scale_twice",
     CAUGHT,
     "The scale was applied to Q and once more to the scores.",
     "Scale in one place only.",
     "d_k > 1.  The same numbers as dividing by d_k without the root.",
     factor_differs,
     {{SCORE_ONLY}, &TWICE}},
    {"scale_no_sqrt",
     CAUGHT,
     "Scores were divided by d_k instead of by its root.",
     "Divide by √d_k: the standard deviation of q·k, not its variance.",
     "d_k > 1.  The same numbers as scaling twice.",
     factor_differs,
     {{SCORE_ONLY}, &NO_ROOT}},
    {"scale_d_model",
     CAUGHT,
     "Scores were divided by √d_model instead of by √d_k.",
     "Use the width of one head's queries and keys.",
     "d_model differs from d_k.",
     factor_differs,
     {{SCORE_ONLY}, &D_MODEL}},
    {"scale_value_width",
     CAUGHT,
     "Scores were divided by the root of the whole value width h·d_v instead of by √d_k.",
     "Use d_k: values take no part in the scores.",
     "h·d_v differs from d_k.",
     factor_differs,
     {{SCORE_ONLY}, &VALUE_WIDTH}},
    {"scale_inverted",
     CAUGHT,
     "Scores were divided by 1/√d_k, that is, multiplied by √d_k.",
     "Multiply by the scale, or divide by its inverse.",
     "d_k > 1, so that the scale is not its own inverse.",
     factor_differs,
     {{SCORE_ONLY}, &INVERTED}},
    {"scale_after_softmax",
     CAUGHT,
     "The scale was applied to the weights instead of to the scores: rows of A sum to "
     "the scale.",
     "Scale the scores; the softmax comes last.",
     "d_k > 1, so that the scale is not 1.",
     factor_differs,
     {{SCORE_ONLY, [ATTN_STAGE_SOFTMAX] = scaled_weights}, &NO_SCALE}},
    {"softcap_dropped",
     CAUGHT,
     "The soft cap was accepted but never applied.",
     "Replace each scaled score s by cap·tanh(s/cap), before any mask.",
     "A soft cap is asked and scores are not small beside it.",
     fits,
     {{SCORE_ONLY}, &NO_CAP}},
    {"score_transposed",
     CAUGHT,
     "K·Qᵀ was computed instead of Q·Kᵀ: S is transposed.",
     "Queries give the rows of S, keys its columns.",
     "T_q = T_kv > 1; other lengths give another shape.",
     fits,
     {{SCORE_ONLY}, &TRANSPOSED}},
    {"gqa_tile",
     CAUGHT,
     "Key/value heads were tiled (0,1,0,1) instead of repeated (0,0,1,1).",
     "Query head h reads key/value head h / (heads/kv_heads).",
     "1 < h_kv < h.",
     fits,
     {{SCORE_ONLY, [ATTN_STAGE_MIX] = wrong_mix}, &TILED}},
    {"attends_across_heads",
     CAUGHT,
     "(B,T,h,d) was never moved to (B,h,T,d): every token attends over its own heads.",
     "Swap the axes of heads and tokens before Q·Kᵀ, and back after A·V.",
     "h = h_kv = T_q = T_kv > 1 hides it from a check of shapes; other sizes give "
     "another shape.",
     fits,
     {{SCORE_ONLY, [ATTN_STAGE_MIX] = wrong_mix}, &HEADS}},
    {"attends_across_batch",
     CAUGHT,
     "A layer that expects the sequence first was fed batch-first data: items attend to "
     "each other.",
     "State the layout of the batch, or move its axis.",
     "B = T_q = T_kv > 1 hides it from a check of shapes; other sizes give another "
     "shape.",
     fits,
     {{SCORE_ONLY, [ATTN_STAGE_MIX] = wrong_mix}, &ITEMS}},
};
const struct attn_fault_theme ATTN_FAULTS_SCORE = {ROWS, ATTN_COUNT(ROWS)};
