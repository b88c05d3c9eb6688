/*
 * attn_fault_other.c - one tensor in the place of another: Q, K or V made as another of
 * the three or not projected at all, scores of two queries or of two keys.
 * Not here: two of them exchanged (attn_fault_project.c), A·K (attn_fault_output.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_part.h"

#include <math.h>

/* ---- Q, K, V: an entry of another of the three ------------------------------------- */

struct other {
    enum part part, from;
    bool (*fits)(const struct attn_problem *p, const struct other *o);
    attn_entry_fn *entry;
};

static bool wrong_part(const struct attn_run_ctx *run, struct attn_piece piece,
                       struct attn_err *err)
{
    static const enum attn_stage STAGES[] = {[PART_Q] = ATTN_STAGE_PROJECT_Q,
                                             [PART_K] = ATTN_STAGE_PROJECT_K,
                                             [PART_V] = ATTN_STAGE_PROJECT_V};
    const struct other *o = run->swap->param;

    (void)piece;
    if (!o->fits(run->p, o))
        return attn_stage_all(run, STAGES[o->part], err);
    return attn_fault_replace(run, o->part, o->entry, err);
}

/* The head of `from` that stands for head h of `part`: repeated to more heads, or the
   first of more. */
static size_t head_for(const struct attn_problem *p, const struct other *o, size_t h)
{
    const size_t want = attn_fault_heads(p, o->part), have = attn_fault_heads(p, o->from);

    return want > have ? h / (want / have) : h;
}

/* By the other's weights; where none are given, the other itself. */
static double of_other(const struct attn_run_ctx *run, enum part part, struct attn_cell x)
{
    const struct attn_problem *p = run->p;
    const struct other *o = run->swap->param;
    const size_t head = head_for(p, o, x.h);
    const size_t col = head * attn_fault_width(p, o->from) + x.j;

    if (p->form.source == ATTN_PROJECTED)
        return attn_at4(&p->in[ATTN_IN_Q + o->from], x.b, head, x.i, x.j);
    return attn_fault_product(attn_fault_source(p, part), x, p, o->from, col, col);
}

static double unprojected(const struct attn_run_ctx *run, enum part part,
                          struct attn_cell x)
{
    const struct attn_tensor *in = attn_fault_source(run->p, part);

    return attn_number(in, attn_place3(in, x.b, x.i) +
                               x.h * attn_fault_width(run->p, part) + x.j);
}

/* ---- what each needs --------------------------------------------------------------- */

static bool one_width(const struct attn_problem *p)
{
    return p->d.d_k == p->d.d_v;
}

/* Do all tokens of one side fit the other?  With weights, its input must fit them. */
static bool other_fits(const struct attn_problem *p, const struct other *o)
{
    if (attn_fault_width(p, o->part) != attn_fault_width(p, o->from))
        return false;
    if (p->form.source == ATTN_PROJECTED)
        return p->in[ATTN_IN_Q + o->part].dim[2] == p->in[ATTN_IN_Q + o->from].dim[2];
    return attn_fault_source(p, o->part)->dim[2] == p->in[ATTN_IN_W_Q + o->from].dim[0];
}

static bool unprojected_fits(const struct attn_problem *p, const struct other *o)
{
    return p->form.source != ATTN_PROJECTED &&
           attn_fault_heads(p, o->part) * attn_fault_width(p, o->part) ==
               attn_fault_source(p, o->part)->dim[2];
}

/* ---- what can show it -------------------------------------------------------------- */

static double bias_at(const struct attn_problem *p, enum part part, size_t col)
{
    const struct attn_tensor *bias = &p->in[ATTN_IN_B_Q + part];

    return bias->p ? attn_number(bias, col) : 0.0;
}

/* Is a column of the two weights, or an entry of the two biases, another? */
static bool weights_differ(const struct attn_problem *p, const struct other *o)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q + o->part];
    const struct attn_tensor *from = &p->in[ATTN_IN_W_Q + o->from];
    const size_t width = attn_fault_width(p, o->part);

    for (size_t col = 0; col < W->dim[1]; col++) {
        const size_t at = head_for(p, o, col / width) * width + col % width;

        if (bias_at(p, o->part, col) != bias_at(p, o->from, at))
            return true;
        for (size_t k = 0; k < W->dim[0]; k++)
            if (attn_number(W, k * W->dim[1] + col) !=
                attn_number(from, k * from->dim[1] + at))
                return true;
    }
    return false;
}

static bool given_differ(const struct attn_problem *p, const struct other *o)
{
    const struct attn_tensor *own = &p->in[ATTN_IN_Q + o->part];
    const struct attn_tensor *from = &p->in[ATTN_IN_Q + o->from];

    for (struct attn_cell x = {0};
         attn_cell_in(&x, own->dim[0], own->dim[1], own->dim[2], own->dim[3]); x.j++)
        if (attn_at4(own, x.b, x.h, x.i, x.j) !=
            attn_at4(from, x.b, head_for(p, o, x.h), x.i, x.j))
            return true;
    return false;
}

static bool other_shows(const struct attn_problem *p, const void *param)
{
    if (!other_fits(p, param))
        return false;
    return (p->form.source == ATTN_PROJECTED ? given_differ : weights_differ)(p, param);
}

static bool weights_not_identity(const struct attn_problem *p, const void *param)
{
    const enum part part = ((const struct other *)param)->part;
    const struct attn_tensor *W = &p->in[ATTN_IN_W_Q + part];

    if (!unprojected_fits(p, param))
        return false;
    for (size_t col = 0; col < W->dim[1]; col++) {
        if (bias_at(p, part, col) != 0.0)
            return true;
        for (size_t k = 0; k < W->dim[0]; k++)
            if (attn_number(W, k * W->dim[1] + col) != (k == col ? 1.0 : 0.0))
                return true;
    }
    return false;
}

/* ---- V: K as the scores read it ---------------------------------------------------- */

/* Elsewhere value_is_key says the same. */
static bool keys_end_otherwise(const struct attn_problem *p)
{
    return one_width(p) && (attn_turn_of(p) != NULL || p->d.T_past > 0);
}

static bool final_keys(const struct attn_run_ctx *run, struct attn_piece piece,
                       struct attn_err *err)
{
    const struct attn_tensor *K = &run->t->t[ATTN_K];
    struct attn_tensor *V = &run->t->t[ATTN_V];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_PROJECT_V, err))
        return false;
    for (size_t n = 0; keys_end_otherwise(run->p) && n < attn_tensor_count(V); n++)
        attn_put(V, n, attn_number(K, n));
    return true;
}

static bool final_keys_show(const struct attn_problem *p, const void *param)
{
    (void)param;
    return keys_end_otherwise(p);
}

/* ---- S: of another two ------------------------------------------------------------- */

struct meeting {
    enum attn_object row, column; /* in the places of Q and K */
    bool (*fits)(const struct attn_problem *p);
};

/* Row i of head h of Q; of K or V, of the head that h reads. */
static size_t row_at(const struct attn_problem *p, const struct attn_tensor *t, size_t b,
                     size_t h, size_t i)
{
    return attn_place4(t, b, t->dim[1] == p->d.h ? h : attn_kv_head(&p->d, h), i);
}

static bool wrong_meeting(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct meeting *fault = run->swap->param;
    const struct attn_tensor *row = &run->t->t[fault->row],
                             *column = &run->t->t[fault->column];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SCORE, err))
        return false;
    for (struct attn_cell x = {0};
         fault->fits(p) && attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv); x.j++) {
        const double s = p->scale / p->temperature *
                         attn_pair_raw(p, row, row_at(p, row, x.b, x.h, x.i), column,
                                       row_at(p, column, x.b, x.h, x.j));

        attn_put4(&run->t->t[ATTN_S], x.b, x.h, x.i, x.j,
                  p->softcap > 0.0 ? p->softcap * tanh(s / p->softcap) : s);
    }
    return true;
}

static bool one_length(const struct attn_problem *p)
{
    return p->d.T_q == p->d.T_kv && p->scale != 0.0;
}

static bool scaled_one_width(const struct attn_problem *p)
{
    return one_width(p) && p->scale != 0.0;
}

static bool meeting_fits(const struct attn_problem *p, const void *param)
{
    return ((const struct meeting *)param)->fits(p);
}

/* ---- the rows ---------------------------------------------------------------------- */

#define OTHER(part, from)                    \
    {                                        \
        (part), (from), other_fits, of_other \
    }
#define UNPROJECTED(part)                             \
    {                                                 \
        (part), (part), unprojected_fits, unprojected \
    }
#define WRONG_Q [ATTN_STAGE_PROJECT_Q] = wrong_part
#define WRONG_K [ATTN_STAGE_PROJECT_K] = wrong_part
#define WRONG_V [ATTN_STAGE_PROJECT_V] = wrong_part
static const struct other Q_IS_K = OTHER(PART_Q, PART_K), Q_IS_V = OTHER(PART_Q, PART_V);
static const struct other K_IS_Q = OTHER(PART_K, PART_Q), K_IS_V = OTHER(PART_K, PART_V);
static const struct other V_IS_Q = OTHER(PART_V, PART_Q), V_IS_K = OTHER(PART_V, PART_K);
static const struct other Q_IS_X = UNPROJECTED(PART_Q), K_IS_X = UNPROJECTED(PART_K),
                          V_IS_X = UNPROJECTED(PART_V);
static const struct meeting QUERIES = {ATTN_Q, ATTN_Q, one_length};
static const struct meeting KEYS = {ATTN_K, ATTN_K, one_length};
static const struct meeting VALUES = {ATTN_Q, ATTN_V, scaled_one_width};

#define CAUGHT        "qkv_rows"
#define FITS_ONE_KIND "Both have one width, and their weights (or the tensors) differ."
#define FITS_THE_INPUT \
    "The joined heads are as wide as the input, and the weights are not the identity."
#define SCORES "S", "score_shape_and_scale"
#define MEETING(fault)                                 \
    meeting_fits,                                      \
    {                                                  \
        {[ATTN_STAGE_SCORE] = wrong_meeting}, &(fault) \
    }

static const struct attn_fault_row ROWS[] = {
    {"query_not_projected",
     "Q",
     CAUGHT,
     "W_Q was left out: Q is the input, cut into heads.",
     "Project Q from X by W_Q.",
     FITS_THE_INPUT,
     weights_not_identity,
     {{WRONG_Q}, &Q_IS_X}},
    {"query_is_value",
     "Q",
     CAUGHT,
     "Q was made as V is: W_V was used for it, or V put in its place.",
     "Project Q by W_Q.",
     FITS_ONE_KIND,
     other_shows,
     {{WRONG_Q}, &Q_IS_V}},
    {"query_is_key",
     "Q",
     CAUGHT,
     "Q was made as K is: W_K was used for it, or K put in its place.",
     "Project Q by W_Q.",
     "Their weights (or the tensors) differ.",
     other_shows,
     {{WRONG_Q}, &Q_IS_K}},
    {"key_not_projected",
     "K",
     CAUGHT,
     "W_K was left out: K is the input, cut into heads.",
     "Project K from X (or X_kv) by W_K.",
     FITS_THE_INPUT,
     weights_not_identity,
     {{WRONG_K}, &K_IS_X}},
    {"key_is_value",
     "K",
     CAUGHT,
     "K was made as V is: W_V was used for it, or V put in its place.",
     "Project K by W_K.",
     FITS_ONE_KIND,
     other_shows,
     {{WRONG_K}, &K_IS_V}},
    {"key_is_query",
     "K",
     CAUGHT,
     "K was made as Q is: W_Q (its first heads) was used for it, or Q put in its place.",
     "Project K by W_K.",
     "Their weights (or the tensors) differ.",
     other_shows,
     {{WRONG_K}, &K_IS_Q}},
    {"value_not_projected",
     "V",
     CAUGHT,
     "W_V was left out: V is the input, cut into heads.",
     "Project V from X (or X_kv) by W_V.",
     FITS_THE_INPUT,
     weights_not_identity,
     {{WRONG_V}, &V_IS_X}},
    {"value_is_query",
     "V",
     CAUGHT,
     "V was made as Q is: W_Q (its first heads) was used for it, or Q put in its place.",
     "Project V by W_V.",
     FITS_ONE_KIND,
     other_shows,
     {{WRONG_V}, &V_IS_Q}},
    {"value_is_key",
     "V",
     CAUGHT,
     "V was made as K is: W_K was used for it, or K put in its place.",
     "Project V by W_V.",
     FITS_ONE_KIND,
     other_shows,
     {{WRONG_V}, &V_IS_K}},
    {"value_is_final_key",
     "V",
     CAUGHT,
     "V is a copy of K as the scores read it: rotated, and with its cached rows.",
     "Project V by W_V; only queries and keys are rotated.",
     "d_k = d_v, and RoPE or cached rows.",
     final_keys_show,
     {{[ATTN_STAGE_PROJECT_V] = final_keys}, NULL}},
    {"queries_meet_values", SCORES, "Scores were taken of queries and values: Q·Vᵀ.",
     "Multiply queries with keys.", "d_k = d_v, so that both have one width.",
     MEETING(VALUES)},
    {"keys_meet_keys", SCORES, "Scores were taken of keys and keys: K·Kᵀ.",
     "Multiply queries with keys.", "T_q = T_kv; other lengths give another shape.",
     MEETING(KEYS)},
    {"queries_meet_queries", SCORES, "Scores were taken of queries and queries: Q·Qᵀ.",
     "Multiply queries with keys.", "T_q = T_kv; other lengths give another shape.",
     MEETING(QUERIES)},
};
const struct attn_fault_theme ATTN_FAULTS_OTHER = {ROWS, ATTN_COUNT(ROWS)};
