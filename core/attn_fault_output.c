/*
 * attn_fault_output.c - faults of H and Y: what is mixed, how heads are joined, W_O.
 * Not here: values of wrong heads or items (attn_fault_score.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault.h"

struct mix {
    bool (*fits)(const struct attn_problem *p);
    /* Entry c of row i of head h. */
    double (*entry)(const struct attn_run_ctx *run, struct attn_cell x);
    bool sum_heads, join_by_view;
};

/* ---- the wrong stages -------------------------------------------------------------- */

static double values_mixed(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_mixed(run, ATTN_V, x);
}

static double keys_mixed(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_mixed(run, ATTN_K, x);
}

/* The query of head h at key j. */
static double queries_mixed(const struct attn_run_ctx *run, struct attn_cell x)
{
    double sum = 0.0;

    for (size_t j = 0; j < run->p->d.T_kv; j++)
        sum += attn_at4(&run->t->t[ATTN_A], x.b, x.h, x.i, j) *
               attn_at4(&run->t->t[ATTN_Q], x.b, x.h, j, x.j);
    return sum;
}

static double transposed_weights(const struct attn_run_ctx *run, struct attn_cell x)
{
    const size_t g = attn_kv_head(&run->p->d, x.h);
    double sum = 0.0;

    for (size_t j = 0; j < run->p->d.T_kv; j++)
        sum += attn_at4(&run->t->t[ATTN_A], x.b, x.h, j, x.i) *
               attn_at4(&run->t->t[ATTN_V], x.b, g, j, x.j);
    return sum;
}

/* Where row i of head h of (h,T,d_v) falls when that is read as (T,h,d_v). */
static void by_view(const struct attn_dims *d, size_t h, size_t i, size_t *head,
                    size_t *row)
{
    const size_t flat = h * d->T_q + i;

    *row = flat / d->h;
    *head = flat % d->h;
}

static void put_joined(const struct attn_run_ctx *run, const struct mix *fault,
                       struct attn_cell x, double value)
{
    struct attn_tensor *H = &run->t->t[ATTN_H];
    const size_t d_v = run->p->d.d_v;
    size_t head = x.h, row = x.i;

    if (fault->join_by_view)
        by_view(&run->p->d, x.h, x.i, &head, &row);
    attn_put(H, attn_place3(H, x.b, row) + head * d_v + x.j, value);
}

static bool wrong_mix(const struct attn_run_ctx *run, struct attn_piece piece,
                      struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct mix *fault = run->swap->param;
    struct attn_tensor *heads = &run->t->t[ATTN_H_HEADS], *H = &run->t->t[ATTN_H];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_MIX, err))
        return false;
    if (!fault->fits(p))
        return true;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.d_v);
         x.j++) {
        const double one = fault->entry(run, x);
        double value = fault->sum_heads ? 0.0 : one;

        for (size_t h = 0; fault->sum_heads && h < p->d.h; h++)
            value += fault->entry(run, (struct attn_cell){x.b, h, x.i, x.j});
        if (heads->p && heads->p != H->p)
            attn_put4(heads, x.b, x.h, x.i, x.j, one);
        put_joined(run, fault, x, value);
    }
    return true;
}

static bool square_output(const struct attn_problem *p)
{
    return p->form.has_output && p->d.h * p->d.d_v == p->d.d_model;
}

static bool output_transposed(const struct attn_run_ctx *run, struct attn_piece piece,
                              struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct attn_tensor *W = &p->in[ATTN_IN_W_O], *bias = &p->in[ATTN_IN_B_O];
    struct attn_tensor *H = &run->t->t[ATTN_H], *Y = &run->t->t[ATTN_Y];

    (void)piece;
    if (!square_output(p))
        return attn_stage_all(run, ATTN_STAGE_OUTPUT, err);
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, 1, p->d.T_q, p->d.d_model);
         x.j++) {
        double sum = bias->p ? attn_number(bias, x.j) : 0.0;

        for (size_t k = 0; k < p->d.d_model; k++)
            sum += attn_number(H, attn_place3(H, x.b, x.i) + k) *
                   attn_number(W, x.j * p->d.d_model + k);
        attn_put(Y, attn_place3(Y, x.b, x.i) + x.j, sum);
    }
    return true;
}

static bool output_missing(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    struct attn_tensor *H = &run->t->t[ATTN_H], *Y = &run->t->t[ATTN_Y];

    (void)piece;
    if (!square_output(run->p))
        return attn_stage_all(run, ATTN_STAGE_OUTPUT, err);
    for (size_t n = 0; n < attn_tensor_count(Y); n++)
        attn_put(Y, n, attn_number(H, n));
    return true;
}

/* ---- what can show it -------------------------------------------------------------- */

static bool one_width(const struct attn_problem *p)
{
    return p->d.d_k == p->d.d_v;
}

static bool one_length(const struct attn_problem *p)
{
    return p->d.T_q == p->d.T_kv && p->d.T_q > 1;
}

static bool one_width_and_length(const struct attn_problem *p)
{
    return one_width(p) && p->d.T_q == p->d.T_kv;
}

static bool several_heads(const struct attn_problem *p)
{
    return p->d.h > 1;
}

static bool several_heads_and_rows(const struct attn_problem *p)
{
    return p->d.h > 1 && p->d.T_q > 1;
}

static bool some_row_reads(const struct attn_problem *p, const void *param)
{
    const struct mix *fault = param;

    return fault->fits(p) && attn_any_row_mixes(p);
}

/* A row that reads, and that the view puts elsewhere. */
static bool some_row_moves(const struct attn_problem *p, const void *param)
{
    const struct mix *fault = param;
    size_t head, row;

    if (!fault->fits(p))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++) {
        by_view(&p->d, x.h, x.i, &head, &row);
        if ((head != x.h || row != x.i) &&
            (p->empty_rows == ATTN_EMPTY_UNIFORM || !attn_row_empty(p, x.b, x.h, x.i)))
            return true;
    }
    return false;
}

/* An allowed pair off the diagonal, or an empty row that holds something: A is not its
   own transpose. */
static bool off_diagonal(const struct attn_problem *p, const void *param)
{
    const struct mix *fault = param;

    if (!fault->fits(p))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv);
         x.j++)
        if (x.i != x.j && attn_allowed(p, x.b, x.h, x.i, x.j))
            return true;
    return p->empty_rows != ATTN_EMPTY_ZERO && attn_any_row_reads(p) &&
           attn_any_row_empty(p);
}

static bool asymmetric_output(const struct attn_problem *p, const void *param)
{
    (void)param;
    return square_output(p) && attn_any_row_mixes(p) &&
           attn_asymmetric(&p->in[ATTN_IN_W_O]);
}

static bool output_not_identity(const struct attn_problem *p, const void *param)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_O];

    (void)param;
    if (!square_output(p) || !attn_any_row_mixes(p))
        return false;
    for (size_t n = 0; n < attn_tensor_count(W); n++)
        if (attn_number(W, n) != (n % (W->dim[1] + 1) == 0 ? 1.0 : 0.0))
            return true;
    return false;
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct mix KEYS = {one_width, keys_mixed, false, false};
static const struct mix QUERIES = {one_width_and_length, queries_mixed, false, false};
static const struct mix TRANSPOSED = {one_length, transposed_weights, false, false};
static const struct mix SUMMED = {several_heads, values_mixed, true, false};
static const struct mix BY_VIEW = {several_heads_and_rows, values_mixed, false, true};

#define MIX(fault)                               \
    {                                            \
        {[ATTN_STAGE_MIX] = wrong_mix}, &(fault) \
    }

static const struct attn_fault_row ROWS[] = {
    {"mixes_queries_not_values", "H", "weighted_values",
     "H = A·Q: the values were never read.", "Multiply the weights with V.",
     "d_k = d_v and T_q = T_kv; other sizes give another shape.", some_row_reads,
     MIX(QUERIES)},
    {"mixes_keys_not_values", "H", "weighted_values",
     "H = A·K: the values were never read.", "Multiply the weights with V.",
     "d_k = d_v; other widths give another shape.", some_row_reads, MIX(KEYS)},
    {"weights_transposed", "H", "weighted_values", "H = Aᵀ·V instead of A·V.",
     "Rows of A belong to queries, columns to keys.",
     "T_q = T_kv > 1 and a pair off the diagonal.", off_diagonal, MIX(TRANSPOSED)},
    {"heads_summed", "H", "weighted_values",
     "Outputs of the heads were added up instead of put side by side.",
     "Join heads along the feature axis: H is h·d_v wide.", "More than one head.",
     some_row_reads, MIX(SUMMED)},
    {"merge_heads_by_view", "H", "weighted_values",
     "Heads were joined by a reshape of (h,T,d_v) to (T,h·d_v): rows of different tokens "
     "stand side "
     "by side.",
     "Move the head axis back behind the tokens before the reshape.",
     "More than one head and more than one query.", some_row_moves, MIX(BY_VIEW)},
    {"wo_transposed",
     "Y",
     "output_projection",
     "W_O was applied as its transpose.",
     "Apply W_O as H·W_O, inputs on the left.",
     "W_O is square (h·d_v = d_model) and not symmetric.",
     asymmetric_output,
     {{[ATTN_STAGE_OUTPUT] = output_transposed}, NULL}},
    {"wo_missing",
     "Y",
     "output_projection",
     "The output projection was left out: Y is H.",
     "Multiply the joined heads with W_O.",
     "h·d_v = d_model and W_O is not the identity.",
     output_not_identity,
     {{[ATTN_STAGE_OUTPUT] = output_missing}, NULL}},
};
const struct attn_fault_theme ATTN_FAULTS_OUTPUT = {ROWS, ATTN_COUNT(ROWS)};
