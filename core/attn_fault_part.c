/*
 * attn_fault_part.c - the wrong stages that make Q, K and V, and what their entries ask.
 * Not here: the faults themselves (attn_fault_project.c and the files beside it).
 * Start reading at attn_fault_replace.
 */
#include "core/attn_fault_part.h"

/* ---- the wrong stages -------------------------------------------------------------- */

static const struct {
    enum attn_stage stage;
    enum attn_object pre, after;
} PARTS[] = {
    [PART_Q] = {ATTN_STAGE_PROJECT_Q, ATTN_Q_PRE, ATTN_Q},
    [PART_K] = {ATTN_STAGE_PROJECT_K, ATTN_K_PRE, ATTN_K},
    [PART_V] = {ATTN_STAGE_PROJECT_V, ATTN_V, ATTN_V},
};

bool attn_fault_replace(const struct attn_run_ctx *run, enum part part,
                        attn_entry_fn *entry, struct attn_err *err)
{
    struct attn_tensor out =
        *attn_before_rope(run->t, PARTS[part].pre, PARTS[part].after);
    const size_t first = part == PART_Q ? 0 : run->p->d.T_past;

    if (!attn_stage_all(run, PARTS[part].stage, err))
        return false;
    for (struct attn_cell x = {0};
         attn_cell_in(&x, out.dim[0], out.dim[1], out.dim[2] - first, out.dim[3]); x.j++)
        attn_put4(&out, x.b, x.h, first + x.i, x.j, entry(run, part, x));
    return true;
}

static bool replace(const struct attn_run_ctx *run, enum part part, struct attn_err *err)
{
    const struct part_fault *fault = run->swap->param;

    if (!attn_fault_part_fits(run->p, fault))
        return attn_stage_all(run, PARTS[part].stage, err);
    return attn_fault_replace(run, part, fault->entry, err);
}

bool attn_fault_wrong_q(const struct attn_run_ctx *run, struct attn_piece piece,
                        struct attn_err *err)
{
    (void)piece;
    return replace(run, PART_Q, err);
}

bool attn_fault_wrong_k(const struct attn_run_ctx *run, struct attn_piece piece,
                        struct attn_err *err)
{
    (void)piece;
    return replace(run, PART_K, err);
}

bool attn_fault_wrong_v(const struct attn_run_ctx *run, struct attn_piece piece,
                        struct attn_err *err)
{
    (void)piece;
    return replace(run, PART_V, err);
}

/* ---- what can show it -------------------------------------------------------------- */

bool attn_fault_part_fits(const struct attn_problem *p, const void *param)
{
    const struct part_fault *fault = param;

    return p->form.source != ATTN_PROJECTED && fault->fits(p);
}

/* ---- entries ----------------------------------------------------------------------- */

const struct attn_tensor *attn_fault_source(const struct attn_problem *p, enum part part)
{
    return &p->in[part != PART_Q && p->form.source == ATTN_CROSS ? ATTN_IN_X_KV
                                                                 : ATTN_IN_X];
}

size_t attn_fault_heads(const struct attn_problem *p, enum part part)
{
    return part == PART_Q ? p->d.h : p->d.h_kv;
}

size_t attn_fault_width(const struct attn_problem *p, enum part part)
{
    return part == PART_V ? p->d.d_v : p->d.d_k;
}

/* n entries of `in` from `from` on, times those of W from `at` on, `step` apart. */
static double dot(const struct attn_tensor *in, size_t from, const struct attn_tensor *W,
                  size_t at, size_t step, double sum)
{
    for (size_t k = 0; k < W->dim[0]; k++)
        sum += attn_number(in, from + k) * attn_number(W, at + k * step);
    return sum;
}

static double bias_of(const struct attn_problem *p, enum part weight, size_t at)
{
    const struct attn_tensor *bias = &p->in[ATTN_IN_B_Q + weight];

    return bias->p != NULL && at != SIZE_MAX ? attn_number(bias, at) : 0.0;
}

double attn_fault_product(const struct attn_tensor *in, struct attn_cell x,
                          const struct attn_problem *p, enum part weight, size_t col,
                          size_t bias)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q + weight];

    return dot(in, attn_place3(in, x.b, x.i), W, col, W->dim[1],
               bias_of(p, weight, bias));
}

double attn_fault_by_transpose(const struct attn_run_ctx *run, enum part part,
                               struct attn_cell x)
{
    const struct attn_problem *p = run->p;
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q + part];
    const struct attn_tensor *in = attn_fault_source(p, part);
    const size_t col = x.h * attn_fault_width(p, part) + x.j;

    return dot(in, attn_place3(in, x.b, x.i), W, col * W->dim[1], 1,
               bias_of(p, part, col));
}
