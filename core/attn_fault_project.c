/*
 * attn_fault_project.c - faults of the projections: wrong Q, K or V.
 * Not here: RoPE (attn_fault_position.c), W_O (attn_fault_output.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_part.h"

/* ---- entries ----------------------------------------------------------------------- */

static size_t column(const struct attn_problem *p, enum part part, struct attn_cell x)
{
    return x.h * attn_fault_width(p, part) + x.j;
}

/* Row i of item b of x times column col of W, plus that entry of the bias. */
static double times(const struct attn_problem *p, const struct attn_tensor *in,
                    struct attn_cell x, enum part weight, size_t col)
{
    return attn_fault_product(in, x, p, weight, col, col);
}

static double by_other(const struct attn_run_ctx *run, enum part part, enum part weight,
                       struct attn_cell x)
{
    return times(run->p, attn_fault_source(run->p, part), x, weight,
                 column(run->p, part, x));
}

static double q_k_swapped(const struct attn_run_ctx *run, enum part part,
                          struct attn_cell x)
{
    return by_other(run, part, part == PART_Q ? PART_K : PART_Q, x);
}

static double k_v_swapped(const struct attn_run_ctx *run, enum part part,
                          struct attn_cell x)
{
    return by_other(run, part, part == PART_K ? PART_V : PART_K, x);
}

/* Stored as Q, K, V, read as K, V, Q. */
static double packed_order(const struct attn_run_ctx *run, enum part part,
                           struct attn_cell x)
{
    static const enum part read[] = {
        [PART_Q] = PART_V, [PART_K] = PART_Q, [PART_V] = PART_K};

    return by_other(run, part, read[part], x);
}

/* Stored as Q, K, V, read as V, Q, K. */
static double packed_backwards(const struct attn_run_ctx *run, enum part part,
                               struct attn_cell x)
{
    static const enum part read[] = {
        [PART_Q] = PART_K, [PART_K] = PART_V, [PART_V] = PART_Q};

    return by_other(run, part, read[part], x);
}

static double q_v_swapped(const struct attn_run_ctx *run, enum part part,
                          struct attn_cell x)
{
    return by_other(run, part, part == PART_Q ? PART_V : PART_Q, x);
}

/* Column (3 h + part) d + c of [Q | K | V]. */
static double packed_interleaved(const struct attn_run_ctx *run, enum part part,
                                 struct attn_cell x)
{
    const struct attn_problem *p = run->p;
    const size_t block = p->d.h * p->d.d_k,
                 col = (3 * x.h + (size_t)part) * p->d.d_k + x.j;

    return times(p, &p->in[ATTN_IN_X], x, (enum part)(col / block), col % block);
}

static double from_query_side(const struct attn_run_ctx *run, enum part part,
                              struct attn_cell x)
{
    return times(run->p, &run->p->in[ATTN_IN_X], x, part, column(run->p, part, x));
}

/* Place (h,i,c) of (heads,T,d) laid over (T,heads*d) as it lies in memory. */
static double split_by_view(const struct attn_run_ctx *run, enum part part,
                            struct attn_cell x)
{
    const struct attn_problem *p = run->p;
    const size_t width = attn_fault_width(p, part),
                 joined = attn_fault_heads(p, part) * width;
    const size_t T = part == PART_Q ? p->d.T_q : p->d.T_kv - p->d.T_past;
    const size_t flat = (x.h * T + x.i) * width + x.j;

    x.i = flat / joined;
    return times(p, attn_fault_source(p, part), x, part, flat % joined);
}

static double without_bias(const struct attn_run_ctx *run, enum part part,
                           struct attn_cell x)
{
    return by_other(run, part, part, x) -
           attn_number(&run->p->in[ATTN_IN_B_K], column(run->p, part, x));
}

static double row_times_w_v(const struct attn_run_ctx *run, const struct attn_tensor *K,
                            enum part part, struct attn_cell x)
{
    const struct attn_problem *p = run->p;
    const struct attn_tensor *W = &p->in[ATTN_IN_W_V], *bias = &p->in[ATTN_IN_B_V];
    const size_t col = column(p, part, x);
    double sum = bias->p ? attn_number(bias, col) : 0.0;

    for (size_t k = 0; k < W->dim[0]; k++)
        sum += attn_at4(K, x.b, k / p->d.d_k, p->d.T_past + x.i, k % p->d.d_k) *
               attn_number(W, k * W->dim[1] + col);
    return sum;
}

static double key_times_w_v(const struct attn_run_ctx *run, enum part part,
                            struct attn_cell x)
{
    return row_times_w_v(run, &run->t->t[ATTN_K], part, x);
}

/* K before RoPE, where it is held: a run that does not return it rotates in place. */
static double unrotated_times_w_v(const struct attn_run_ctx *run, enum part part,
                                  struct attn_cell x)
{
    return row_times_w_v(run, attn_before_rope(run->t, ATTN_K_PRE, ATTN_K), part, x);
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

static bool w_q_asymmetric(const struct attn_problem *p, const void *param)
{
    return attn_fault_part_fits(p, param) && attn_asymmetric(&p->in[ATTN_IN_W_Q]);
}

static bool differ(const struct attn_problem *p, const void *param, enum attn_input a,
                   enum attn_input b)
{
    return attn_fault_part_fits(p, param) && !attn_same_numbers(&p->in[a], &p->in[b]);
}

static bool w_q_is_not_w_k(const struct attn_problem *p, const void *param)
{
    return differ(p, param, ATTN_IN_W_Q, ATTN_IN_W_K);
}

static bool w_k_is_not_w_v(const struct attn_problem *p, const void *param)
{
    return differ(p, param, ATTN_IN_W_K, ATTN_IN_W_V);
}

static bool w_q_is_not_w_v(const struct attn_problem *p, const void *param)
{
    return differ(p, param, ATTN_IN_W_Q, ATTN_IN_W_V);
}

static bool sources_differ(const struct attn_problem *p, const void *param)
{
    return differ(p, param, ATTN_IN_X, ATTN_IN_X_KV);
}

static bool key_bias_is_not_0(const struct attn_problem *p, const void *param)
{
    for (size_t c = 0;
         attn_fault_part_fits(p, param) && c < attn_tensor_count(&p->in[ATTN_IN_B_K]);
         c++)
        if (attn_number(&p->in[ATTN_IN_B_K], c) != 0.0)
            return true;
    return false;
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct part_fault TRANSPOSED = {square_w_q, attn_fault_by_transpose};
static const struct part_fault QK_SWAPPED = {equal_q_k, q_k_swapped};
static const struct part_fault KV_SWAPPED = {equal_k_v, k_v_swapped};
static const struct part_fault PACKED_ORDER = {packed, packed_order};
static const struct part_fault PACKED_BACKWARDS = {packed, packed_backwards};
static const struct part_fault QV_SWAPPED = {packed, q_v_swapped};
static const struct part_fault PACKED_INTERLEAVED = {packed_heads, packed_interleaved};
static const struct part_fault CROSS_SOURCE = {cross_alike, from_query_side};
static const struct part_fault BY_VIEW = {several_heads_and_rows, split_by_view};
static const struct part_fault NO_KEY_BIAS = {has_key_bias, without_bias};
static const struct part_fault FROM_KEY = {key_is_model_wide, key_times_w_v};
static const struct part_fault FROM_UNROTATED = {key_is_model_wide, unrotated_times_w_v};

#define ALL_THREE ATTN_FAULT_WRONG_Q, ATTN_FAULT_WRONG_K, ATTN_FAULT_WRONG_V

static const struct attn_fault_row ROWS[] = {
    {"wq_transposed",
     "Q",
     "qkv_rows",
     "W_Q was read as (out,in): Q = X·W_Qᵀ instead of X·W_Q.",
     "Store W_Q with inputs on the left, or transpose it once when it is loaded.",
     "W_Q is square (h·d_k = d_model) and not symmetric; other widths refuse the "
     "product.",
     w_q_asymmetric,
     {{ATTN_FAULT_WRONG_Q}, &TRANSPOSED}},
    {"qk_swapped",
     "Q",
     "qkv_rows",
     "W_Q and W_K were taken in each other's place.",
     "Give the query projection W_Q and the key projection W_K.",
     "h = h_kv, so that both have one shape, and W_Q differs from W_K.",
     w_q_is_not_w_k,
     {{ATTN_FAULT_WRONG_Q, ATTN_FAULT_WRONG_K}, &QK_SWAPPED}},
    {"packed_qkv_order",
     "Q",
     "qkv_rows",
     "A packed projection stored as Q, K, V was read as K, V, Q.",
     "Cut the packed matrix in the order in which it was stored.",
     "Self-attention with h = h_kv and d_k = d_v, so that the three blocks have one "
     "shape.",
     w_q_is_not_w_v,
     {{ALL_THREE}, &PACKED_ORDER}},
    {"packed_vqk_order",
     "Q",
     "qkv_rows",
     "A packed projection stored as Q, K, V was read as V, Q, K.",
     "Cut the packed matrix in the order in which it was stored.",
     "Self-attention with h = h_kv and d_k = d_v, so that the three blocks have one "
     "shape.",
     w_q_is_not_w_k,
     {{ALL_THREE}, &PACKED_BACKWARDS}},
    {"qv_swapped",
     "Q",
     "qkv_rows",
     "W_Q and W_V were taken in each other's place.",
     "Give the query projection W_Q and the value projection W_V.",
     "Self-attention with h = h_kv and d_k = d_v, and W_Q differs from W_V.",
     w_q_is_not_w_v,
     {{ATTN_FAULT_WRONG_Q, ATTN_FAULT_WRONG_V}, &QV_SWAPPED}},
    {"packed_qkv_interleaved",
     "Q",
     "qkv_rows",
     "A projection packed as [Q|K|V] was read head by head as [q0,k0,v0,q1,k1,v1,…].",
     "Reshape the packed result to (3, h, d), not to (h, 3, d).",
     "Self-attention with more than one head, h = h_kv and d_k = d_v.",
     attn_fault_part_fits,
     {{ALL_THREE}, &PACKED_INTERLEAVED}},
    {"split_heads_by_view",
     "Q",
     "qkv_rows",
     "Heads were split by a reshape to (h,T,d) of what lies in memory as (T,h,d).",
     "Reshape to (T,h,d) and then move the head axis to the front.",
     "More than one head and more than one query.",
     attn_fault_part_fits,
     {{ALL_THREE}, &BY_VIEW}},
    {"kv_swapped",
     "K",
     "qkv_rows",
     "K and V were taken in each other's place.",
     "Give the scores K = X_kv·W_K and the sum V = X_kv·W_V.",
     "d_k = d_v, so that both have one shape, and W_K differs from W_V.",
     w_k_is_not_w_v,
     {{ATTN_FAULT_WRONG_K, ATTN_FAULT_WRONG_V}, &KV_SWAPPED}},
    {"cross_source_wrong",
     "K",
     "qkv_rows",
     "In cross-attention, keys and values were made from the query sequence X instead of "
     "X_kv.",
     "Project keys and values from X_kv; only queries come from X.",
     "Cross-attention between different sequences of one length and width.",
     sources_differ,
     {{ATTN_FAULT_WRONG_K, ATTN_FAULT_WRONG_V}, &CROSS_SOURCE}},
    {"key_bias_missing",
     "K",
     "qkv_rows",
     "The bias of the key projection was dropped.  Without RoPE the weights A do not "
     "change: the "
     "bias adds the same number to a whole row of scores.",
     "Add b_K to every new row of K.",
     "b_K is given and not all 0.",
     key_bias_is_not_0,
     {{ATTN_FAULT_WRONG_K}, &NO_KEY_BIAS}},
    {"value_from_key",
     "V",
     "qkv_rows",
     "V was projected from K instead of from the input: V = K·W_V.",
     "Project V from X (or X_kv), as K is.",
     "The joined keys are as wide as the input (h_kv·d_k = d_model).",
     attn_fault_part_fits,
     {{ATTN_FAULT_WRONG_V}, &FROM_KEY}},
};
const struct attn_fault_theme ATTN_FAULTS_PROJECT = {ROWS, ATTN_COUNT(ROWS)};

static const struct attn_fault_way WAYS[] = {
    {"value_from_key", {{ATTN_FAULT_WRONG_V}, &FROM_UNROTATED}},
};
const struct attn_fault_ways ATTN_WAYS_PROJECT = {WAYS, ATTN_COUNT(WAYS)};
