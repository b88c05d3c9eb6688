/*
 * attn_fault_project.c - faults of the projections: wrong Q, K or V.
 * Not here: RoPE (attn_fault_position.c), W_O (attn_fault_output.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault.h"

enum part { PART_Q, PART_K, PART_V };

/* Entry (b,h,i,c) of the wrong Q, K or V; i counts new rows only. */
typedef double entry_fn(const struct attn_run_ctx *run, enum part part, size_t b,
                        size_t h, size_t i, size_t c);
struct project {
    bool (*fits)(const struct attn_problem *p);
    entry_fn *entry;
};

/* ---- the wrong stages -------------------------------------------------------------- */

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
    const struct project *fault = run->swap->param;
    struct attn_tensor out =
        *attn_before_rope(run->t, PARTS[part].pre, PARTS[part].after);
    const size_t first = part == PART_Q ? 0 : run->p->d.T_past;

    if (!attn_stage_all(run, PARTS[part].stage, err))
        return false;
    if (run->p->form.source == ATTN_PROJECTED || !fault->fits(run->p))
        return true;
    for (struct attn_cell x = {0};
         attn_cell_in(&x, out.dim[0], out.dim[1], out.dim[2] - first, out.dim[3]); x.j++)
        attn_put4(&out, x.b, x.h, first + x.i, x.j,
                  fault->entry(run, part, x.b, x.h, x.i, x.j));
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

/* ---- entries ----------------------------------------------------------------------- */

static const struct attn_tensor *source_of(const struct attn_problem *p, enum part part)
{
    return &p->in[part != PART_Q && p->form.source == ATTN_CROSS ? ATTN_IN_X_KV
                                                                 : ATTN_IN_X];
}

/* Row i of item b of x times column col of W, plus that entry of the bias. */
static double times(const struct attn_problem *p, const struct attn_tensor *x, size_t b,
                    size_t i, enum part weight, size_t col)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q + weight],
                             *bias = &p->in[ATTN_IN_B_Q + weight];
    const size_t from = attn_place3(x, b, i);
    double sum = bias->p ? attn_number(bias, col) : 0.0;

    for (size_t k = 0; k < W->dim[0]; k++)
        sum += attn_number(x, from + k) * attn_number(W, k * W->dim[1] + col);
    return sum;
}

static size_t width_of(const struct attn_problem *p, enum part part)
{
    return part == PART_V ? p->d.d_v : p->d.d_k;
}

static double by_transpose(const struct attn_run_ctx *run, enum part part, size_t b,
                           size_t h, size_t i, size_t c)
{
    const struct attn_problem *p = run->p;
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q], *bias = &p->in[ATTN_IN_B_Q];
    const size_t col = h * p->d.d_k + c, from = attn_place3(&p->in[ATTN_IN_X], b, i);
    double sum = bias->p ? attn_number(bias, col) : 0.0;

    (void)part;
    for (size_t k = 0; k < W->dim[1]; k++)
        sum += attn_number(&p->in[ATTN_IN_X], from + k) *
               attn_number(W, col * W->dim[1] + k);
    return sum;
}

static double by_other(const struct attn_run_ctx *run, enum part part, enum part weight,
                       size_t b, size_t h, size_t i, size_t c)
{
    return times(run->p, source_of(run->p, part), b, i, weight,
                 h * width_of(run->p, part) + c);
}

static double q_k_swapped(const struct attn_run_ctx *run, enum part part, size_t b,
                          size_t h, size_t i, size_t c)
{
    return by_other(run, part, part == PART_Q ? PART_K : PART_Q, b, h, i, c);
}

static double k_v_swapped(const struct attn_run_ctx *run, enum part part, size_t b,
                          size_t h, size_t i, size_t c)
{
    return by_other(run, part, part == PART_K ? PART_V : PART_K, b, h, i, c);
}

/* Stored as Q, K, V, read as K, V, Q. */
static double packed_order(const struct attn_run_ctx *run, enum part part, size_t b,
                           size_t h, size_t i, size_t c)
{
    static const enum part read[] = {
        [PART_Q] = PART_V, [PART_K] = PART_Q, [PART_V] = PART_K};

    return by_other(run, part, read[part], b, h, i, c);
}

/* Column (3 h + part) d + c of [Q | K | V]. */
static double packed_interleaved(const struct attn_run_ctx *run, enum part part, size_t b,
                                 size_t h, size_t i, size_t c)
{
    const struct attn_problem *p = run->p;
    const size_t block = p->d.h * p->d.d_k, col = (3 * h + (size_t)part) * p->d.d_k + c;

    return times(p, &p->in[ATTN_IN_X], b, i, (enum part)(col / block), col % block);
}

static double from_query_side(const struct attn_run_ctx *run, enum part part, size_t b,
                              size_t h, size_t i, size_t c)
{
    return times(run->p, &run->p->in[ATTN_IN_X], b, i, part,
                 h * width_of(run->p, part) + c);
}

/* Place (h,i,c) of (heads,T,d) laid over (T,heads*d) as it lies in memory. */
static double split_by_view(const struct attn_run_ctx *run, enum part part, size_t b,
                            size_t h, size_t i, size_t c)
{
    const struct attn_problem *p = run->p;
    const size_t heads = part == PART_Q ? p->d.h : p->d.h_kv, width = width_of(p, part);
    const size_t T = part == PART_Q ? p->d.T_q : p->d.T_kv - p->d.T_past;
    const size_t flat = (h * T + i) * width + c;

    return times(p, source_of(p, part), b, flat / (heads * width), part,
                 flat % (heads * width));
}

static double without_bias(const struct attn_run_ctx *run, enum part part, size_t b,
                           size_t h, size_t i, size_t c)
{
    const size_t col = h * run->p->d.d_k + c;

    return times(run->p, source_of(run->p, part), b, i, part, col) -
           attn_number(&run->p->in[ATTN_IN_B_K], col);
}

static double key_times_w_v(const struct attn_run_ctx *run, enum part part, size_t b,
                            size_t h, size_t i, size_t c)
{
    const struct attn_problem *p = run->p;
    const struct attn_tensor *K = attn_before_rope(run->t, ATTN_K_PRE, ATTN_K);
    const struct attn_tensor *W = &p->in[ATTN_IN_W_V], *bias = &p->in[ATTN_IN_B_V];
    const size_t col = h * p->d.d_v + c;
    double sum = bias->p ? attn_number(bias, col) : 0.0;

    (void)part;
    for (size_t k = 0; k < W->dim[0]; k++)
        sum += attn_at4(K, b, k / p->d.d_k, p->d.T_past + i, k % p->d.d_k) *
               attn_number(W, k * W->dim[1] + col);
    return sum;
}

/* ---- what each needs --------------------------------------------------------------- */

static bool square_w_q(const struct attn_problem *p)
{
    return p->d.h * p->d.d_k == p->d.d_model;
}

static bool equal_q_k(const struct attn_problem *p)
{
    return p->d.h == p->d.h_kv && p->in[ATTN_IN_W_Q].p &&
           p->in[ATTN_IN_W_Q].dim[0] == p->in[ATTN_IN_W_K].dim[0];
}

static bool equal_k_v(const struct attn_problem *p)
{
    return p->d.d_k == p->d.d_v;
}

static bool packed(const struct attn_problem *p)
{
    return p->form.source == ATTN_SELF && equal_q_k(p) && equal_k_v(p);
}

static bool packed_heads(const struct attn_problem *p)
{
    return packed(p) && p->d.h > 1;
}

static bool cross_alike(const struct attn_problem *p)
{
    return p->form.source == ATTN_CROSS && p->d.T_q == p->d.T_kv - p->d.T_past &&
           p->in[ATTN_IN_X].dim[2] == p->in[ATTN_IN_X_KV].dim[2];
}

static bool several_heads_and_rows(const struct attn_problem *p)
{
    return p->d.h > 1 && p->d.T_q > 1;
}

static bool has_key_bias(const struct attn_problem *p)
{
    return p->in[ATTN_IN_B_K].p != NULL;
}

static bool key_is_model_wide(const struct attn_problem *p)
{
    return p->in[ATTN_IN_W_V].p && p->d.h_kv * p->d.d_k == p->in[ATTN_IN_W_V].dim[0];
}

/* ---- what can show it -------------------------------------------------------------- */

static bool fits(const struct attn_problem *p, const void *param)
{
    const struct project *fault = param;

    return p->form.source != ATTN_PROJECTED && fault->fits(p);
}

static bool w_q_asymmetric(const struct attn_problem *p, const void *param)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q];

    if (!fits(p, param))
        return false;
    for (size_t k = 0; k < W->dim[0]; k++)
        for (size_t c = 0; c < k; c++)
            if (attn_number(W, k * W->dim[1] + c) != attn_number(W, c * W->dim[1] + k))
                return true;
    return false;
}

static bool w_q_is_not_w_k(const struct attn_problem *p, const void *param)
{
    return fits(p, param) && !attn_same_numbers(&p->in[ATTN_IN_W_Q], &p->in[ATTN_IN_W_K]);
}

static bool w_k_is_not_w_v(const struct attn_problem *p, const void *param)
{
    return fits(p, param) && !attn_same_numbers(&p->in[ATTN_IN_W_K], &p->in[ATTN_IN_W_V]);
}

static bool w_q_is_not_w_v(const struct attn_problem *p, const void *param)
{
    return fits(p, param) && !attn_same_numbers(&p->in[ATTN_IN_W_Q], &p->in[ATTN_IN_W_V]);
}

static bool sources_differ(const struct attn_problem *p, const void *param)
{
    return fits(p, param) && !attn_same_numbers(&p->in[ATTN_IN_X], &p->in[ATTN_IN_X_KV]);
}

static bool key_bias_is_not_0(const struct attn_problem *p, const void *param)
{
    for (size_t c = 0; fits(p, param) && c < attn_tensor_count(&p->in[ATTN_IN_B_K]); c++)
        if (attn_number(&p->in[ATTN_IN_B_K], c) != 0.0)
            return true;
    return false;
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct project TRANSPOSED = {square_w_q, by_transpose};
static const struct project QK_SWAPPED = {equal_q_k, q_k_swapped};
static const struct project KV_SWAPPED = {equal_k_v, k_v_swapped};
static const struct project PACKED_ORDER = {packed, packed_order};
static const struct project PACKED_INTERLEAVED = {packed_heads, packed_interleaved};
static const struct project CROSS_SOURCE = {cross_alike, from_query_side};
static const struct project BY_VIEW = {several_heads_and_rows, split_by_view};
static const struct project NO_KEY_BIAS = {has_key_bias, without_bias};
static const struct project FROM_KEY = {key_is_model_wide, key_times_w_v};

#define ALL_THREE                                                       \
    [ATTN_STAGE_PROJECT_Q] = wrong_q, [ATTN_STAGE_PROJECT_K] = wrong_k, \
    [ATTN_STAGE_PROJECT_V] = wrong_v

static const struct attn_fault_row ROWS[] = {
    {"wq_transposed",
     "Q",
     "qkv_rows",
     "W_Q was read as (out,in): Q = X·W_Qᵀ instead of X·W_Q.",
     "Store W_Q with inputs on the left, or transpose it once when it is loaded.",
     "W_Q is square (h·d_k = d_model) and not symmetric; other widths refuse the "
     "product.",
     w_q_asymmetric,
     {{[ATTN_STAGE_PROJECT_Q] = wrong_q}, &TRANSPOSED}},
    {"qk_swapped",
     "Q",
     "qkv_rows",
     "W_Q and W_K were taken in each other's place.",
     "Give the query projection W_Q and the key projection W_K.",
     "h = h_kv, so that both have one shape, and W_Q differs from W_K.",
     w_q_is_not_w_k,
     {{[ATTN_STAGE_PROJECT_Q] = wrong_q, [ATTN_STAGE_PROJECT_K] = wrong_k}, &QK_SWAPPED}},
    {"packed_qkv_order",
     "Q",
     "qkv_rows",
     "A packed projection stored as Q, K, V was read as K, V, Q.",
     "Cut the packed matrix in the order in which it was stored.",
     "Self-attention with h = h_kv and d_k = d_v, so that the three blocks have one "
     "shape.",
     w_q_is_not_w_v,
     {{ALL_THREE}, &PACKED_ORDER}},
    {"packed_qkv_interleaved",
     "Q",
     "qkv_rows",
     "A projection packed as [Q|K|V] was read head by head as [q0,k0,v0,q1,k1,v1,…].",
     "Reshape the packed result to (3, h, d), not to (h, 3, d).",
     "Self-attention with more than one head, h = h_kv and d_k = d_v.",
     fits,
     {{ALL_THREE}, &PACKED_INTERLEAVED}},
    {"split_heads_by_view",
     "Q",
     "qkv_rows",
     "Heads were split by a reshape to (h,T,d) of what lies in memory as (T,h,d).",
     "Reshape to (T,h,d) and then move the head axis to the front.",
     "More than one head and more than one query.",
     fits,
     {{ALL_THREE}, &BY_VIEW}},
    {"kv_swapped",
     "K",
     "qkv_rows",
     "K and V were taken in each other's place.",
     "Give the scores K = X_kv·W_K and the sum V = X_kv·W_V.",
     "d_k = d_v, so that both have one shape, and W_K differs from W_V.",
     w_k_is_not_w_v,
     {{[ATTN_STAGE_PROJECT_K] = wrong_k, [ATTN_STAGE_PROJECT_V] = wrong_v}, &KV_SWAPPED}},
    {"cross_source_wrong",
     "K",
     "qkv_rows",
     "In cross-attention, keys and values were made from the query sequence X instead of "
     "X_kv.",
     "Project keys and values from X_kv; only queries come from X.",
     "Cross-attention between different sequences of one length and width.",
     sources_differ,
     {{[ATTN_STAGE_PROJECT_K] = wrong_k, [ATTN_STAGE_PROJECT_V] = wrong_v},
      &CROSS_SOURCE}},
    {"key_bias_missing",
     "K",
     "qkv_rows",
     "The bias of the key projection was dropped.  Without RoPE the weights A do not "
     "change: the "
     "bias adds the same number to a whole row of scores.",
     "Add b_K to every new row of K.",
     "b_K is given and not all 0.",
     key_bias_is_not_0,
     {{[ATTN_STAGE_PROJECT_K] = wrong_k}, &NO_KEY_BIAS}},
    {"value_from_key",
     "V",
     "qkv_rows",
     "V was projected from K instead of from the input: V = K·W_V.",
     "Project V from X (or X_kv), as K is.",
     "The joined keys are as wide as the input (h_kv·d_k = d_model).",
     fits,
     {{[ATTN_STAGE_PROJECT_V] = wrong_v}, &FROM_KEY}},
};
const struct attn_fault_theme ATTN_FAULTS_PROJECT = {ROWS, ATTN_COUNT(ROWS)};
