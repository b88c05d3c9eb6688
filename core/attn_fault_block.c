/*
 * attn_fault_block.c - faults of H and Y: heads in another order, and what belongs to the
 * block around the layer (residual, norm) done in it. Not here: A·V itself and W_O
 * (attn_fault_output.c). Start reading at ROWS, at the end.
 */
#include "core/attn_fault.h"

#include <math.h>

/* ---- H ---- */

struct join { /* column of H for entry c of head h */
    size_t (*column)(const struct attn_dims *d, size_t h, size_t c);
    bool (*fits)(const struct attn_problem *p);
    bool mean;
};

static size_t right_column(const struct attn_dims *d, size_t h, size_t c)
{
    return h * d->d_v + c;
}

static size_t reversed_column(const struct attn_dims *d, size_t h, size_t c)
{
    return (d->h - 1 - h) * d->d_v + c;
}

static size_t width_first_column(const struct attn_dims *d, size_t h, size_t c)
{
    return c * d->h + h;
}

static double mean_over_heads(const struct attn_run_ctx *run, struct attn_cell x)
{
    double sum = 0.0;

    for (x.h = 0; x.h < run->p->d.h; x.h++)
        sum += attn_mixed(run, ATTN_V, x);
    return sum / (double)run->p->d.h;
}

static bool wrong_join(const struct attn_run_ctx *run, struct attn_piece piece,
                       struct attn_err *err)
{
    const struct attn_dims *d = &run->p->d;
    const struct join *fault = run->swap->param;
    struct attn_tensor *H = &run->t->t[ATTN_H];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_MIX, err))
        return false;
    for (struct attn_cell x = {0};
         fault->fits(run->p) && attn_cell_in(&x, d->B, d->h, d->T_q, d->d_v); x.j++)
        attn_put(H, attn_place3(H, x.b, x.i) + fault->column(d, x.h, x.j),
                 fault->mean ? mean_over_heads(run, x) : attn_mixed(run, ATTN_V, x));
    return true;
}

static bool several_heads(const struct attn_problem *p)
{
    return p->d.h > 1;
}

static bool heads_and_width(const struct attn_problem *p)
{
    return p->d.h > 1 && p->d.d_v > 1;
}

static bool join_shows(const struct attn_problem *p, const void *param)
{
    return ((const struct join *)param)->fits(p) && attn_any_row_mixes(p);
}

/* ---- Y ---- */

typedef void row_fn(const struct attn_run_ctx *run, size_t b, size_t i, size_t at);

struct result {
    row_fn *wrong; /* changes row i of item b of the right Y, at `at` */
    bool (*fits)(const struct attn_problem *p);
};

static void add(const struct attn_run_ctx *run, size_t at, const struct attn_tensor *t,
                size_t from, double by)
{
    struct attn_tensor *Y = &run->t->t[ATTN_Y];

    for (size_t c = 0; c < run->p->d.d_model; c++)
        attn_put(Y, at + c, attn_number(Y, at + c) + by * attn_number(t, from + c));
}

static void residual(const struct attn_run_ctx *run, size_t b, size_t i, size_t at)
{
    add(run, at, &run->p->in[ATTN_IN_X], attn_place3(&run->p->in[ATTN_IN_X], b, i), 1.0);
}

static void bias_off(const struct attn_run_ctx *run, size_t b, size_t i, size_t at)
{
    (void)b, (void)i;
    add(run, at, &run->p->in[ATTN_IN_B_O], 0, -1.0);
}

static void bias_again(const struct attn_run_ctx *run, size_t b, size_t i, size_t at)
{
    (void)b, (void)i;
    add(run, at, &run->p->in[ATTN_IN_B_O], 0, 1.0);
}

/* (y - mean) / sqrt(variance + 1e-5) */
static void normalise(const struct attn_run_ctx *run, size_t at)
{
    struct attn_tensor *Y = &run->t->t[ATTN_Y];
    const size_t n = run->p->d.d_model;
    double mean = 0.0, variance = 0.0;

    for (size_t c = 0; c < n; c++)
        mean += attn_number(Y, at + c) / (double)n;
    for (size_t c = 0; c < n; c++)
        variance +=
            (attn_number(Y, at + c) - mean) * (attn_number(Y, at + c) - mean) / (double)n;
    for (size_t c = 0; c < n; c++)
        attn_put(Y, at + c, (attn_number(Y, at + c) - mean) / sqrt(variance + 1e-5));
}

static void norm(const struct attn_run_ctx *run, size_t b, size_t i, size_t at)
{
    (void)b, (void)i;
    normalise(run, at);
}

static void residual_and_norm(const struct attn_run_ctx *run, size_t b, size_t i,
                              size_t at)
{
    residual(run, b, i, at);
    normalise(run, at);
}

static bool wrong_result(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    const struct result *fault = run->swap->param;
    const struct attn_tensor *Y = &run->t->t[ATTN_Y];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_OUTPUT, err))
        return false;
    for (size_t b = 0; fault->fits(run->p) && b < run->p->d.B; b++)
        for (size_t i = 0; i < run->p->d.T_q; i++)
            fault->wrong(run, b, i, attn_place3(Y, b, i));
    return true;
}

static bool has_x(const struct attn_problem *p)
{
    return p->form.has_output && p->in[ATTN_IN_X].p;
}

static bool has_output(const struct attn_problem *p)
{
    return p->form.has_output;
}

static bool has_bias(const struct attn_problem *p)
{
    return p->form.has_output && p->in[ATTN_IN_B_O].p;
}

static bool result_shows(const struct attn_problem *p, const void *param)
{
    return ((const struct result *)param)->fits(p);
}

static bool row_shows(const struct attn_problem *p, const void *param)
{
    return result_shows(p, param) && (attn_any_row_mixes(p) || p->in[ATTN_IN_B_O].p);
}

/* ---- the rows ---- */

static const struct join REVERSED = {reversed_column, several_heads, false};
static const struct join WIDTH_FIRST = {width_first_column, heads_and_width, false};
static const struct join MEAN = {right_column, several_heads, true};
static const struct result RESIDUAL = {residual, has_x}, NORM = {norm, has_output};
static const struct result BOTH = {residual_and_norm, has_x};
static const struct result NO_BIAS = {bias_off, has_bias},
                           TWO_BIASES = {bias_again, has_bias};

#define JOIN(fault)                               \
    join_shows,                                   \
    {                                             \
        {[ATTN_STAGE_MIX] = wrong_join}, &(fault) \
    }
#define RESULT(fault)                                  \
    {                                                  \
        {[ATTN_STAGE_OUTPUT] = wrong_result}, &(fault) \
    }

static const struct attn_fault_row ROWS[] = {
    {"heads_joined_in_reverse", "H", "weighted_values",
     "Heads were put side by side in the reverse order.",
     "Head i owns columns i·d_v … (i+1)·d_v − 1 of H.", "More than one head.",
     JOIN(REVERSED)},
    {"heads_joined_width_first", "H", "weighted_values",
     "Heads were joined as (d_v, heads) instead of as (heads, d_v).",
     "Move the head axis before the feature axis, then reshape.",
     "More than one head, and d_v > 1.", JOIN(WIDTH_FIRST)},
    {"heads_averaged", "H", "weighted_values", "Outputs of the heads were averaged.",
     "Put heads side by side: W_O mixes them.", "More than one head.", JOIN(MEAN)},
    {"output_bias_missing", "Y", "output_projection",
     "The bias of the output was dropped.", "Add b_O to every row of Y.", "b_O is given.",
     result_shows, RESULT(NO_BIAS)},
    {"output_bias_twice", "Y", "output_projection",
     "The bias of the output was added twice.", "Add b_O once.", "b_O is given.",
     result_shows, RESULT(TWO_BIASES)},
    {"residual_added", "Y", "output_projection", "The input was added to the output.",
     "The residual belongs to the block, outside the layer.", "An input X, and W_O.",
     result_shows, RESULT(RESIDUAL)},
    {"norm_applied", "Y", "output_projection", "The output went through a layer norm.",
     "The norm belongs to the block, outside the layer.",
     "A row with an allowed key, and W_O.", row_shows, RESULT(NORM)},
    {"residual_and_norm", "Y", "output_projection",
     "The input was added to the output, and the sum normalised.",
     "Residual and norm belong to the block, outside the layer.", "An input X, and W_O.",
     result_shows, RESULT(BOTH)},
};
const struct attn_fault_theme ATTN_FAULTS_BLOCK = {ROWS, ATTN_COUNT(ROWS)};
