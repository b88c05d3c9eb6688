/*
 * attn_fault_weights.c - faults of Q, K and V that come from weights, biases, heads and
 * the cache. Not here: projections taken for one another (attn_fault_project.c),
 * positions (attn_fault_position.c, attn_fault_turn.c). Start reading at ROWS, at the
 * end.
 */
#include "core/attn_fault.h"

#include <math.h>

enum part { PART_Q, PART_K, PART_V };

struct weights {
    bool (*fits)(const struct attn_problem *p, enum part part);
    /* Entry c of new row i of head h; `out` holds the right ones, of which others may be
     * read. */
    double (*entry)(const struct attn_problem *p, const struct attn_tensor *out,
                    enum part part, struct attn_cell x);
};

/* ---- the wrong stages ---- */

static bool replace(const struct attn_run_ctx *run, enum part part, struct attn_err *err)
{
    static const struct {
        enum attn_stage stage;
        enum attn_object pre, after;
    } PARTS[] = {
        [PART_Q] = {ATTN_STAGE_PROJECT_Q, ATTN_Q_PRE, ATTN_Q},
        [PART_K] = {ATTN_STAGE_PROJECT_K, ATTN_K_PRE, ATTN_K},
        [PART_V] = {ATTN_STAGE_PROJECT_V, ATTN_V, ATTN_V},
    };
    const struct weights *fault = run->swap->param;
    struct attn_tensor out =
        *attn_before_rope(run->t, PARTS[part].pre, PARTS[part].after);
    const size_t first = part == PART_Q ? 0 : run->p->d.T_past;

    if (!attn_stage_all(run, PARTS[part].stage, err))
        return false;
    if (run->p->form.source == ATTN_PROJECTED || !fault->fits(run->p, part))
        return true;
    for (struct attn_cell x = {0};
         attn_cell_in(&x, out.dim[0], out.dim[1], out.dim[2] - first, out.dim[3]); x.j++)
        attn_put4(&out, x.b, x.h, first + x.i, x.j, fault->entry(run->p, &out, part, x));
    return true;
}

static bool wrong_q(const struct attn_run_ctx *run, struct attn_piece piece,
                    struct attn_err *err)
{
    (void)piece;
    return replace(run, PART_Q, err);
}

static bool wrong_k(const struct attn_run_ctx *run, struct attn_piece piece,
                    struct attn_err *err)
{
    (void)piece;
    return replace(run, PART_K, err);
}

static bool wrong_v(const struct attn_run_ctx *run, struct attn_piece piece,
                    struct attn_err *err)
{
    (void)piece;
    return replace(run, PART_V, err);
}

/* ---- entries ---- */

static const struct attn_tensor *source_of(const struct attn_problem *p, enum part part)
{
    return &p->in[part != PART_Q && p->form.source == ATTN_CROSS ? ATTN_IN_X_KV
                                                                 : ATTN_IN_X];
}

/* Row i of item b of the input times column col of W (or of its transpose), plus the bias
   at `bias`, SIZE_MAX = none. */
static double product(const struct attn_problem *p, enum part part, struct attn_cell x,
                      size_t col, bool transposed, size_t bias)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q + part],
                             *b = &p->in[ATTN_IN_B_Q + part];
    const struct attn_tensor *in = source_of(p, part);
    const size_t from = attn_place3(in, x.b, x.i), n = W->dim[1];
    double sum = b->p && bias != SIZE_MAX ? attn_number(b, bias) : 0.0;

    for (size_t k = 0; k < W->dim[0]; k++)
        sum += attn_number(in, from + k) *
               attn_number(W, transposed ? col * n + k : k * n + col);
    return sum;
}

static size_t heads_of(const struct attn_problem *p, enum part part)
{
    return part == PART_Q ? p->d.h : p->d.h_kv;
}

static double by_transpose(const struct attn_problem *p, const struct attn_tensor *out,
                           enum part part, struct attn_cell x)
{
    const size_t col = x.h * out->dim[3] + x.j;

    return product(p, part, x, col, true, col);
}

static double without_bias(const struct attn_problem *p, const struct attn_tensor *out,
                           enum part part, struct attn_cell x)
{
    return product(p, part, x, x.h * out->dim[3] + x.j, false, SIZE_MAX);
}

static double heads_reversed(const struct attn_problem *p, const struct attn_tensor *out,
                             enum part part, struct attn_cell x)
{
    const size_t col = (heads_of(p, part) - 1 - x.h) * out->dim[3] + x.j;

    return product(p, part, x, col, false, col);
}

/* Columns cut as (d, heads), not as (heads, d). */
static double width_first(const struct attn_problem *p, const struct attn_tensor *out,
                          enum part part, struct attn_cell x)
{
    const size_t col = x.j * heads_of(p, part) + x.h;

    (void)out;
    return product(p, part, x, col, false, col);
}

static double bias_of_first_head(const struct attn_problem *p,
                                 const struct attn_tensor *out, enum part part,
                                 struct attn_cell x)
{
    return product(p, part, x, x.h * out->dim[3] + x.j, false, x.j);
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

static bool square(const struct attn_problem *p, enum part part)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q + part];

    return W->p && W->dim[0] == W->dim[1];
}

static bool has_bias(const struct attn_problem *p, enum part part)
{
    return p->in[ATTN_IN_B_Q + part].p != NULL;
}

static bool several_heads(const struct attn_problem *p, enum part part)
{
    return heads_of(p, part) > 1;
}

/* All three are cut alike: where queries do not show it, nothing is wrong. */
static bool heads_and_width(const struct attn_problem *p, enum part part)
{
    (void)part;
    return p->d.h > 1 && p->d.d_k > 1;
}

static bool biased_heads(const struct attn_problem *p, enum part part)
{
    return has_bias(p, part) && several_heads(p, part);
}

static bool shows(const struct attn_problem *p, const void *param, enum part part)
{
    return p->form.source != ATTN_PROJECTED &&
           ((const struct weights *)param)->fits(p, part);
}

static bool shows_q(const struct attn_problem *p, const void *param)
{
    return shows(p, param, PART_Q);
}

static bool shows_k(const struct attn_problem *p, const void *param)
{
    return shows(p, param, PART_K);
}

static bool shows_v(const struct attn_problem *p, const void *param)
{
    return shows(p, param, PART_V);
}

static bool asymmetric(const struct attn_problem *p, enum part part)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q + part];

    for (size_t k = 0; k < W->dim[0]; k++)
        for (size_t c = 0; c < k; c++)
            if (attn_number(W, k * W->dim[1] + c) != attn_number(W, c * W->dim[1] + k))
                return true;
    return false;
}

static bool transpose_k(const struct attn_problem *p, const void *param)
{
    return shows_k(p, param) && asymmetric(p, PART_K);
}

static bool transpose_v(const struct attn_problem *p, const void *param)
{
    return shows_v(p, param) && asymmetric(p, PART_V);
}

static bool has_past(const struct attn_problem *p, const void *param)
{
    (void)param;
    return p->d.T_past > 0;
}

/* ---- the rows ---- */

static const struct weights TRANSPOSED = {square, by_transpose},
                            NO_BIAS = {has_bias, without_bias};
static const struct weights REVERSED = {several_heads, heads_reversed};
static const struct weights WIDTH_FIRST = {heads_and_width, width_first};
static const struct weights ONE_BIAS = {biased_heads, bias_of_first_head};

#define CAUGHT "qkv_rows"
#define ALL_THREE                                                       \
    [ATTN_STAGE_PROJECT_Q] = wrong_q, [ATTN_STAGE_PROJECT_K] = wrong_k, \
    [ATTN_STAGE_PROJECT_V] = wrong_v

static const struct attn_fault_row ROWS[] = {
    {"wk_transposed",
     "K",
     CAUGHT,
     "W_K was read as (out,in): K = X·W_Kᵀ.",
     "Store W_K with inputs on the left, or transpose it once when it is loaded.",
     "W_K is square and not symmetric.",
     transpose_k,
     {{[ATTN_STAGE_PROJECT_K] = wrong_k}, &TRANSPOSED}},
    {"wv_transposed",
     "V",
     CAUGHT,
     "W_V was read as (out,in): V = X·W_Vᵀ.",
     "Store W_V with inputs on the left, or transpose it once when it is loaded.",
     "W_V is square and not symmetric.",
     transpose_v,
     {{[ATTN_STAGE_PROJECT_V] = wrong_v}, &TRANSPOSED}},
    {"query_bias_missing",
     "Q",
     CAUGHT,
     "The bias of the query projection was dropped.",
     "Add b_Q to every row of Q.",
     "b_Q is given.",
     shows_q,
     {{[ATTN_STAGE_PROJECT_Q] = wrong_q}, &NO_BIAS}},
    {"value_bias_missing",
     "V",
     CAUGHT,
     "The bias of the value projection was dropped.",
     "Add b_V to every new row of V.",
     "b_V is given.",
     shows_v,
     {{[ATTN_STAGE_PROJECT_V] = wrong_v}, &NO_BIAS}},
    {"query_bias_of_first_head",
     "Q",
     CAUGHT,
     "Every query head got the bias of head 0.",
     "The bias has one entry per column of W_Q.",
     "b_Q is given, more than one head.",
     shows_q,
     {{[ATTN_STAGE_PROJECT_Q] = wrong_q}, &ONE_BIAS}},
    {"query_heads_reversed",
     "Q",
     CAUGHT,
     "Query heads were cut out in the reverse order.",
     "Head i owns columns i·d … (i+1)·d − 1.",
     "More than one head.",
     shows_q,
     {{[ATTN_STAGE_PROJECT_Q] = wrong_q}, &REVERSED}},
    {"heads_cut_width_first",
     "Q",
     CAUGHT,
     "Columns were cut as (d, heads) instead of as (heads, d).",
     "Reshape the projection to (T, heads, d).",
     "More than one head, and d_k > 1.",
     shows_q,
     {{ALL_THREE}, &WIDTH_FIRST}},
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
