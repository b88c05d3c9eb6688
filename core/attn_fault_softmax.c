/*
 * attn_fault_softmax.c - faults of A: masks wrongly applied, sinks, dropout.
 * Not here: M itself (attn_fault_mask.c), rows without a key (attn_fault_empty.c), half
 * precision (attn_fault_half.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_softmax.h"

#include <math.h>

/* ---- a row of weights from wrong logits -------------------------------------------- */

double attn_fault_bias(const struct attn_run_ctx *run, struct attn_cell x)
{
    const struct attn_tensor *M = &run->t->t[ATTN_M];
    const double m = M->p ? attn_at4(M, x.b, x.h, x.i, x.j) : 0.0;

    return m == -INFINITY ? 0.0 : m;
}

bool attn_fault_allowed(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_at4(&run->t->t[ATTN_ALLOWED], x.b, x.h, x.i, x.j) != 0.0;
}

double attn_fault_score(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_at4(&run->t->t[ATTN_S], x.b, x.h, x.i, x.j);
}

double attn_fault_sink(const struct attn_problem *p, size_t h)
{
    return p->in[ATTN_IN_SINK].p ? attn_number(&p->in[ATTN_IN_SINK], h) : -INFINITY;
}

/* A = exp(l - max) / sum over all T_kv keys; NaN when every logit is -Infinity. */
static void weigh(const struct attn_run_ctx *run, const struct softmax *fault,
                  struct attn_cell x)
{
    const size_t T = run->p->d.T_kv;
    const double sink = fault->no_sink ? -INFINITY : attn_fault_sink(run->p, x.h);
    struct attn_tensor *A = &run->t->t[ATTN_A];
    double top = sink, sum;

    for (x.j = 0; x.j < T; x.j++)
        top = fmax(top, fault->logit(run, x));
    if (fault->no_maximum)
        top = 0.0;
    sum = exp(sink - top);
    for (x.j = 0; x.j < T; x.j++)
        sum += exp(fault->logit(run, x) - top);
    if (fault->no_maximum && sum > fault->no_maximum(run->p))
        sum = INFINITY;
    for (x.j = 0; x.j < T; x.j++) {
        double e = exp(fault->logit(run, x) - top);

        if (fault->no_maximum && e > fault->no_maximum(run->p))
            e = INFINITY;
        attn_put4(A, x.b, x.h, x.i, x.j,
                  fault->zero_after && !attn_fault_allowed(run, x) ? 0.0 : e / sum);
    }
}

bool attn_fault_wrong_rows(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct softmax *fault = run->swap->param;

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SOFTMAX, err))
        return false;
    for (struct attn_cell x = {0};
         fault->fits(p) && attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++) {
        const bool empty = run->t->empty[(x.b * p->d.h + x.h) * p->d.T_q + x.i];

        if (!empty || !fault->leave_empty)
            weigh(run, fault, x);
    }
    return true;
}

double attn_fault_masked(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_fault_allowed(run, x) ? attn_fault_score(run, x) + attn_fault_bias(run, x)
                                      : -INFINITY;
}

bool attn_fault_softmax_fits(const struct attn_problem *p, const void *param)
{
    const struct softmax *fault = param;

    return fault->fits(p);
}

/* ---- logits ------------------------------------------------------------------------ */

static double unmasked(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_fault_score(run, x) + attn_fault_bias(run, x);
}

static double times_mask(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_fault_allowed(run, x) ? unmasked(run, x) : 0.0;
}

static double filled(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_fault_allowed(run, x) ? unmasked(run, x) : -1e9;
}

static double less_ten(const struct attn_run_ctx *run, struct attn_cell x)
{
    return unmasked(run, x) - (attn_fault_allowed(run, x) ? 0.0 : 10.0);
}

/* cap·tanh((s + M)/cap), s made again from Q and K: S has been through the cap
   already. */
static double capped_late(const struct attn_run_ctx *run, struct attn_cell x)
{
    const struct attn_problem *p = run->p;
    const struct attn_tensor *Q = &run->t->t[ATTN_Q], *K = &run->t->t[ATTN_K];
    double s;

    if (!attn_fault_allowed(run, x))
        return -p->softcap;
    s = p->scale / p->temperature *
        attn_pair_raw(p, Q, attn_place4(Q, x.b, x.h, x.i), K,
                      attn_place4(K, x.b, attn_kv_head(&p->d, x.h), x.j));
    return p->softcap * tanh((s + attn_fault_bias(run, x)) / p->softcap);
}

/* ---- dropout ----------------------------------------------------------------------- */

/* Weights become 0 with probability p, drawn by the seed; the others are divided by
   1 - p. */
static bool dropped(const struct attn_run_ctx *run, struct attn_piece piece,
                    struct attn_err *err)
{
    const struct attn_dropout *dropout = run->swap->param;
    struct attn_tensor *A = &run->t->t[ATTN_A];
    uint64_t state = dropout->seed;

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SOFTMAX, err))
        return false;
    for (size_t n = 0; n < attn_tensor_count(A); n++)
        attn_put(A, n,
                 (double)(attn_random_u64(&state) >> 11) * 0x1p-53 >= dropout->p
                     ? attn_number(A, n) / (1.0 - dropout->p)
                     : 0.0);
    return true;
}

/* ---- what can show it -------------------------------------------------------------- */

static bool always(const struct attn_problem *p)
{
    (void)p;
    return true;
}

static bool has_sink(const struct attn_problem *p)
{
    return p->in[ATTN_IN_SINK].p != NULL;
}

static bool has_cap(const struct attn_problem *p)
{
    return p->softcap > 0.0;
}

static bool some_row_reads(const struct attn_problem *p, const void *param)
{
    return attn_fault_softmax_fits(p, param) && attn_any_row_reads(p);
}

static bool any_weight(const struct attn_problem *p, const void *param)
{
    (void)param;
    return attn_any_row_reads(p) || p->empty_rows != ATTN_EMPTY_ZERO;
}

/* A row with keys of both kinds. */
static bool mixed_row(const struct attn_problem *p, const void *param)
{
    if (!attn_fault_softmax_fits(p, param))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++) {
        const size_t n = attn_row_allowed(p, x.b, x.h, x.i);

        if (n > 0 && n < p->d.T_kv)
            return true;
    }
    return false;
}

/* A row without a key becomes an average, plain unless the fault weighs its keys. */
static bool mixed_or_empty(const struct attn_problem *p, const void *param)
{
    const struct softmax *fault = param;
    const bool plain =
        p->in[ATTN_IN_SINK].p == NULL && (p->d.T_kv == 1 || !fault->weighs_empty);

    return mixed_row(p, param) || (fault->fits(p) && attn_any_row_empty(p) &&
                                   !(plain && p->empty_rows == ATTN_EMPTY_UNIFORM));
}

/* Besides forbidden keys, a bias inside the cap shows in any row of several keys. */
static bool cap_shows(const struct attn_problem *p, const void *param)
{
    if (mixed_or_empty(p, param))
        return true;
    for (struct attn_cell x = {0};
         has_cap(p) && attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv); x.j++)
        if (attn_allowed(p, x.b, x.h, x.i, x.j) &&
            attn_bias(p, x.b, x.h, x.i, x.j) != 0.0 &&
            (p->in[ATTN_IN_SINK].p || attn_row_allowed(p, x.b, x.h, x.i) > 1))
            return true;
    return false;
}

/* With a sink, a row of large negative numbers gives all its weight to the sink:
   zeros. */
static bool empty_row_not_so(const struct attn_problem *p, const void *param)
{
    const enum attn_empty filled_row =
        p->in[ATTN_IN_SINK].p ? ATTN_EMPTY_ZERO : ATTN_EMPTY_UNIFORM;

    (void)param;
    return p->empty_rows != filled_row && attn_any_row_empty(p);
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct softmax AFTER = {
    .fits = always, .logit = unmasked, .zero_after = true, .leave_empty = true};
static const struct softmax AFTER_ALL = {
    .fits = always, .logit = attn_fault_score, .zero_after = true, .leave_empty = true};
static const struct softmax MULTIPLIED = {.fits = always, .logit = times_mask};
static const struct softmax FILLED = {.fits = always, .logit = filled};
static const struct softmax TOO_SMALL = {
    .fits = always, .logit = less_ten, .weighs_empty = true};
static const struct softmax NO_SINK = {
    .fits = has_sink, .logit = attn_fault_masked, .no_sink = true, .leave_empty = true};
static const struct softmax LATE_CAP = {.fits = has_cap, .logit = capped_late};
static const struct attn_dropout DROPOUT = {.p = 0.5, .seed = 1};

#define CAUGHT "A", "softmax_rows"
#define STAGE(wrong)                   \
    {                                  \
        [ATTN_STAGE_SOFTMAX] = (wrong) \
    }
#define ROWS_OF(fault)                         \
    {                                          \
        STAGE(attn_fault_wrong_rows), &(fault) \
    }

static const struct attn_fault_row ROWS[] = {
    {"softcap_after_mask", CAUGHT,
     "The soft cap was applied after the mask, so -Infinity became -cap.",
     "Cap the scores first, mask them afterwards.",
     "A soft cap, and a row with a forbidden key or a bias.", cap_shows,
     ROWS_OF(LATE_CAP)},
    {"mask_after_softmax", CAUGHT,
     "The mask was multiplied in after the softmax: rows no longer sum to 1.",
     "Mask the scores before the softmax (or divide each row by its sum afterwards).",
     "A row that has both allowed and forbidden keys.", mixed_row, ROWS_OF(AFTER)},
    {"mask_multiplied_into_scores", CAUGHT,
     "Scores were multiplied by 0 at forbidden keys: exp(0) = 1 still counts.",
     "Add -Infinity at forbidden keys.", "A row with a forbidden key.", mixed_or_empty,
     ROWS_OF(MULTIPLIED)},
    {"mask_constant_too_small", CAUGHT,
     "Forbidden keys got -10 instead of -Infinity and keep some weight.",
     "Add -Infinity at forbidden keys.", "A row with a forbidden key.", mixed_or_empty,
     ROWS_OF(TOO_SMALL)},
    {"masked_row_uniform", CAUGHT,
     "A large negative number stood for -Infinity: a row without a key became a plain "
     "average over "
     "forbidden keys.",
     "Find rows without a key and give them a stated value.",
     "A row without an allowed key, and empty_rows other than uniform.", empty_row_not_so,
     ROWS_OF(FILLED)},
    {"sink_ignored", CAUGHT, "The sink's logit was left out of the denominator.",
     "Add exp(sink) to the sum of each row, and to no key.",
     "A sink that is not far below the scores.", some_row_reads, ROWS_OF(NO_SINK)},
    {"dropout_in_eval",
     CAUGHT,
     "Dropout was left on: weights are 0 or divided by 1 - p, rows do not sum to 1.",
     "Switch to evaluation, or set dropout to 0 when inferring.",
     "Any row with an allowed key.",
     any_weight,
     {STAGE(dropped), &DROPOUT}},
};
const struct attn_fault_theme ATTN_FAULTS_SOFTMAX = {ROWS, ATTN_COUNT(ROWS)};

/* All of M came too late, its bias with it. */
static const struct attn_fault_way WAYS[] = {
    {"mask_after_softmax", ROWS_OF(AFTER_ALL)},
};
const struct attn_fault_ways ATTN_WAYS_SOFTMAX = {WAYS, ATTN_COUNT(WAYS)};
