/*
 * attn_fault_turn.c - faults of RoPE in what is turned, which way, and how fast.
 * Not here: wrong pairs and wrong positions (attn_fault_position.c), another base
 * (attn_fault_fitted.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault.h"

#include <math.h>

struct turn {
    bool query, key; /* which of them is turned at all */
    double sign;
    double (*theta)(const struct attn_problem *p, size_t k);
};

/* ---- the wrong stages ---- */

static double right_theta(const struct attn_problem *p, size_t k)
{
    return pow(p->rope.base, -2.0 * (double)k / (double)p->d.d_k);
}

/* base^(-k/d_k): the 2 was left out. */
static double slow_theta(const struct attn_problem *p, size_t k)
{
    return pow(p->rope.base, -(double)k / (double)p->d.d_k);
}

static void turn_row(const struct attn_problem *p, const struct turn *fault, double pos,
                     const struct attn_tensor *pre, struct attn_tensor *out, size_t at)
{
    const size_t half = p->d.d_k / 2;
    const bool halves = p->rope.layout == ATTN_ROPE_HALF;

    for (size_t k = 0; k < half; k++) {
        const size_t u = at + (halves ? k : 2 * k),
                     v = at + (halves ? k + half : 2 * k + 1);
        const double angle = fault->sign * pos * fault->theta(p, k);
        const double x = attn_number(pre, u), y = attn_number(pre, v);

        attn_put(out, u, x * cos(angle) - y * sin(angle));
        attn_put(out, v, x * sin(angle) + y * cos(angle));
    }
}

static bool wrong_q(const struct attn_run_ctx *run, struct attn_piece piece,
                    struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct turn *fault = run->swap->param;
    const struct attn_tensor *pre = attn_before_rope(run->t, ATTN_Q_PRE, ATTN_Q);
    struct attn_tensor *Q = &run->t->t[ATTN_Q];

    (void)piece;
    if (!p->rope.on)
        return attn_stage_all(run, ATTN_STAGE_POSITION_Q, err);
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++)
        turn_row(p, fault, fault->query ? attn_rope_position_q(p, x.b, x.i) : 0.0, pre, Q,
                 attn_place4(Q, x.b, x.h, x.i));
    return true;
}

static bool wrong_k(const struct attn_run_ctx *run, struct attn_piece piece,
                    struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct turn *fault = run->swap->param;
    const struct attn_tensor *pre = attn_before_rope(run->t, ATTN_K_PRE, ATTN_K);
    struct attn_tensor *K = &run->t->t[ATTN_K];

    (void)piece;
    if (!p->rope.on)
        return attn_stage_all(run, ATTN_STAGE_POSITION_K, err);
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h_kv, p->d.T_kv, 1);
         x.j++)
        turn_row(p, fault,
                 fault->key && x.i >= p->d.T_past ? attn_rope_position_k(p, x.b, x.i)
                                                  : 0.0,
                 pre, K, attn_place4(K, x.b, x.h, x.i));
    return true;
}

/* Cached keys come turned and are turned once more, to the slot at which they stand. */
static bool turned_again(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct turn *fault = run->swap->param;
    struct attn_tensor *K = &run->t->t[ATTN_K];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_POSITION_K, err))
        return false;
    for (struct attn_cell x = {0}; p->rope.on && p->d.T_past > 0 &&
                                   attn_cell_in(&x, p->d.B, p->d.h_kv, p->d.T_past, 1);
         x.j++)
        turn_row(p, fault, (double)x.i, K, K, attn_place4(K, x.b, x.h, x.i));
    return true;
}

/* ---- what can show it ---- */

static bool query_turns(const struct attn_problem *p, const void *param)
{
    const struct turn *fault = param;

    if (!p->rope.on || (fault->theta == slow_theta && p->d.d_k < 4))
        return false;
    for (size_t b = 0; b < p->d.B; b++)
        for (size_t i = 0; i < p->d.T_q; i++)
            if (attn_rope_position_q(p, b, i) != 0.0)
                return true;
    return false;
}

static bool past_turns(const struct attn_problem *p, const void *param)
{
    (void)param;
    return p->rope.on && p->d.T_past > 1;
}

/* ---- the rows ---- */

static const struct turn BACKWARDS = {true, true, -1.0, right_theta};
static const struct turn KEY_ONLY = {false, true, 1.0, right_theta};
static const struct turn NEITHER = {false, false, 1.0, right_theta};
static const struct turn SLOW = {true, true, 1.0, slow_theta};
static const struct turn AGAIN = {true, true, 1.0, right_theta};

#define CAUGHT "qkv_rows"
#define BOTH   [ATTN_STAGE_POSITION_Q] = wrong_q, [ATTN_STAGE_POSITION_K] = wrong_k

static const struct attn_fault_row ROWS[] = {
    {"rope_missing",
     "Q",
     CAUGHT,
     "Neither queries nor keys were rotated.",
     "Rotate Q and K before the scores.",
     "RoPE and a query that does not stand at position 0.",
     query_turns,
     {{BOTH}, &NEITHER}},
    {"rope_backwards",
     "Q",
     CAUGHT,
     "Features were rotated by the opposite angle.",
     "(a,b) → (a·cos − b·sin, a·sin + b·cos).",
     "RoPE and a query that does not stand at position 0.",
     query_turns,
     {{BOTH}, &BACKWARDS}},
    {"rope_on_key_only",
     "Q",
     CAUGHT,
     "Queries were never rotated, keys were.",
     "Rotate both by their own positions.",
     "RoPE and a query that does not stand at position 0.",
     query_turns,
     {{[ATTN_STAGE_POSITION_Q] = wrong_q}, &KEY_ONLY}},
    {"rope_exponent",
     "Q",
     CAUGHT,
     "Angles fall as base^(−k/d_k): the exponent lacks its 2.",
     "θ_k = base^(−2k/d_k).",
     "RoPE with d_k of 4 or more, and a query beyond position 0.",
     query_turns,
     {{BOTH}, &SLOW}},
    {"cache_rotated_again",
     "K",
     CAUGHT,
     "Cached keys were rotated when they were new, and once more when they were read.",
     "Keep rotated keys in the cache, and rotate new ones only.",
     "RoPE and more than one cached key.",
     past_turns,
     {{[ATTN_STAGE_POSITION_K] = turned_again}, &AGAIN}},
};
const struct attn_fault_theme ATTN_FAULTS_TURN = {ROWS, ATTN_COUNT(ROWS)};
