/*
 * attn_fault_weights.c - faults of Q, K and V that come from weights, biases, heads and
 * the cache. Not here: projections taken for one another (attn_fault_project.c),
 * positions (attn_fault_position.c, attn_fault_turn.c). Start reading at ROWS, at the
 * end.
 */
#include "core/attn_fault_part.h"

/* ---- entries ---- */

/* The entry made by column col, with the entry `bias` of the bias. */
static double by_column(const struct attn_problem *p, enum part part, struct attn_cell x,
                        size_t col, size_t bias)
{
    return attn_fault_product(attn_fault_source(p, part), x, p, part, col, bias);
}

static double without_bias(const struct attn_run_ctx *run, enum part part,
                           struct attn_cell x)
{
    const size_t col = x.h * attn_fault_width(run->p, part) + x.j;

    return by_column(run->p, part, x, col, SIZE_MAX);
}

static double heads_reversed(const struct attn_run_ctx *run, enum part part,
                             struct attn_cell x)
{
    const size_t head = attn_fault_heads(run->p, part) - 1 - x.h;
    const size_t col = head * attn_fault_width(run->p, part) + x.j;

    return by_column(run->p, part, x, col, col);
}

/* Columns cut as (d, heads), not as (heads, d). */
static double width_first(const struct attn_run_ctx *run, enum part part,
                          struct attn_cell x)
{
    const size_t col = x.j * attn_fault_heads(run->p, part) + x.h;

    return by_column(run->p, part, x, col, col);
}

static double bias_of_first_head(const struct attn_run_ctx *run, enum part part,
                                 struct attn_cell x)
{
    const size_t col = x.h * attn_fault_width(run->p, part) + x.j;

    return by_column(run->p, part, x, col, x.j);
}

/* ---- the cache ---- */

static void each_row(const struct attn_run_ctx *run, enum part part,
                     void (*wrong)(struct attn_tensor *t, size_t past,
                                   struct attn_cell x))
{
    const enum attn_object o = part == PART_K ? ATTN_K : ATTN_V;
    struct attn_tensor *t = &run->t->t[o];

    for (struct attn_cell x = {0}; attn_cell_in(&x, t->dim[0], t->dim[1], 1, t->dim[3]);
         x.j++)
        wrong(t, run->p->d.T_past, x);
}

static void clear_past(struct attn_tensor *t, size_t past, struct attn_cell x)
{
    for (size_t i = 0; i < past; i++)
        attn_put4(t, x.b, x.h, i, x.j, 0.0);
}

/* Rows first … last - 1 of one column in the reverse order. */
static void turn_round(struct attn_tensor *t, struct attn_cell x, size_t first,
                       size_t last)
{
    for (; first + 1 < last; first++, last--) {
        const double a = attn_at4(t, x.b, x.h, first, x.j);

        attn_put4(t, x.b, x.h, first, x.j, attn_at4(t, x.b, x.h, last - 1, x.j));
        attn_put4(t, x.b, x.h, last - 1, x.j, a);
    }
}

/* New rows before cached ones: a rotation, made of three reversals. */
static void new_in_front(struct attn_tensor *t, size_t past, struct attn_cell x)
{
    turn_round(t, x, 0, past);
    turn_round(t, x, past, t->dim[2]);
    turn_round(t, x, 0, t->dim[2]);
}

static bool cache_fault(const struct attn_run_ctx *run, enum part part,
                        void (*wrong)(struct attn_tensor *, size_t, struct attn_cell),
                        struct attn_err *err)
{
    if (!attn_stage_all(
            run, part == PART_K ? ATTN_STAGE_POSITION_K : ATTN_STAGE_PROJECT_V, err))
        return false;
    each_row(run, part, wrong);
    return true;
}

static bool no_cached_keys(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    (void)piece;
    return cache_fault(run, PART_K, clear_past, err);
}

static bool no_cached_values(const struct attn_run_ctx *run, struct attn_piece piece,
                             struct attn_err *err)
{
    (void)piece;
    return cache_fault(run, PART_V, clear_past, err);
}

static bool keys_in_front(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_err *err)
{
    (void)piece;
    return cache_fault(run, PART_K, new_in_front, err);
}

static bool values_in_front(const struct attn_run_ctx *run, struct attn_piece piece,
                            struct attn_err *err)
{
    (void)piece;
    return cache_fault(run, PART_V, new_in_front, err);
}

/* ---- what each needs ---- */

static bool square(const struct attn_tensor *W)
{
    return W->dim[0] == W->dim[1];
}

static bool square_w_k(const struct attn_problem *p)
{
    return square(&p->in[ATTN_IN_W_K]);
}

static bool square_w_v(const struct attn_problem *p)
{
    return square(&p->in[ATTN_IN_W_V]);
}

static bool has_query_bias(const struct attn_problem *p)
{
    return p->in[ATTN_IN_B_Q].p != NULL;
}

static bool has_value_bias(const struct attn_problem *p)
{
    return p->in[ATTN_IN_B_V].p != NULL;
}

static bool several_heads(const struct attn_problem *p)
{
    return p->d.h > 1;
}

/* All three are cut alike: where queries do not show it, nothing is wrong. */
static bool heads_and_width(const struct attn_problem *p)
{
    return p->d.h > 1 && p->d.d_k > 1;
}

static bool biased_heads(const struct attn_problem *p)
{
    return has_query_bias(p) && several_heads(p);
}

static bool transpose_k(const struct attn_problem *p, const void *param)
{
    return attn_fault_part_fits(p, param) && attn_asymmetric(&p->in[ATTN_IN_W_K]);
}

static bool transpose_v(const struct attn_problem *p, const void *param)
{
    return attn_fault_part_fits(p, param) && attn_asymmetric(&p->in[ATTN_IN_W_V]);
}

static bool has_past(const struct attn_problem *p, const void *param)
{
    (void)param;
    return p->d.T_past > 0;
}

/* ---- the rows ---- */

static const struct part_fault W_K_TRANSPOSED = {square_w_k, attn_fault_by_transpose};
static const struct part_fault W_V_TRANSPOSED = {square_w_v, attn_fault_by_transpose};
static const struct part_fault NO_QUERY_BIAS = {has_query_bias, without_bias};
static const struct part_fault NO_VALUE_BIAS = {has_value_bias, without_bias};
static const struct part_fault ONE_BIAS = {biased_heads, bias_of_first_head};
static const struct part_fault REVERSED = {several_heads, heads_reversed};
static const struct part_fault WIDTH_FIRST = {heads_and_width, width_first};

#define CAUGHT "qkv_rows"

static const struct attn_fault_row ROWS[] = {
    {"wk_transposed",
     "K",
     CAUGHT,
     "W_K was read as (out,in): K = X·W_Kᵀ.",
     "Store W_K with inputs on the left, or transpose it once when it is loaded.",
     "W_K is square and not symmetric.",
     transpose_k,
     {{ATTN_FAULT_WRONG_K}, &W_K_TRANSPOSED}},
    {"wv_transposed",
     "V",
     CAUGHT,
     "W_V was read as (out,in): V = X·W_Vᵀ.",
     "Store W_V with inputs on the left, or transpose it once when it is loaded.",
     "W_V is square and not symmetric.",
     transpose_v,
     {{ATTN_FAULT_WRONG_V}, &W_V_TRANSPOSED}},
    {"query_bias_missing",
     "Q",
     CAUGHT,
     "The bias of the query projection was dropped.",
     "Add b_Q to every row of Q.",
     "b_Q is given.",
     attn_fault_part_fits,
     {{ATTN_FAULT_WRONG_Q}, &NO_QUERY_BIAS}},
    {"value_bias_missing",
     "V",
     CAUGHT,
     "The bias of the value projection was dropped.",
     "Add b_V to every new row of V.",
     "b_V is given.",
     attn_fault_part_fits,
     {{ATTN_FAULT_WRONG_V}, &NO_VALUE_BIAS}},
    {"query_bias_of_first_head",
     "Q",
     CAUGHT,
     "Every query head got the bias of head 0.",
     "The bias has one entry per column of W_Q.",
     "b_Q is given, more than one head.",
     attn_fault_part_fits,
     {{ATTN_FAULT_WRONG_Q}, &ONE_BIAS}},
    {"query_heads_reversed",
     "Q",
     CAUGHT,
     "Query heads were cut out in the reverse order.",
     "Head i owns columns i·d … (i+1)·d − 1.",
     "More than one head.",
     attn_fault_part_fits,
     {{ATTN_FAULT_WRONG_Q}, &REVERSED}},
    {"heads_cut_width_first",
     "Q",
     CAUGHT,
     "Columns were cut as (d, heads) instead of as (heads, d).",
     "Reshape the projection to (T, heads, d).",
     "More than one head, and d_k > 1.",
     attn_fault_part_fits,
     {{ATTN_FAULT_WRONG_Q, ATTN_FAULT_WRONG_K, ATTN_FAULT_WRONG_V}, &WIDTH_FIRST}},
    {"cache_empty",
     "K",
     CAUGHT,
     "The cache was allocated but never filled: cached keys and values are 0.",
     "Write keys and values into the cache before it is read.",
     "Cached keys.",
     has_past,
     {{[ATTN_STAGE_POSITION_K] = no_cached_keys,
       [ATTN_STAGE_PROJECT_V] = no_cached_values},
      NULL}},
    {"cache_behind_new_rows",
     "K",
     CAUGHT,
     "New keys and values were put before the cached ones instead of after them.",
     "Append new rows to the cache.",
     "Cached keys.",
     has_past,
     {{[ATTN_STAGE_POSITION_K] = keys_in_front, [ATTN_STAGE_PROJECT_V] = values_in_front},
      NULL}},
};
const struct attn_fault_theme ATTN_FAULTS_WEIGHTS = {ROWS, ATTN_COUNT(ROWS)};
