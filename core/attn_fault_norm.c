/*
 * attn_fault_norm.c - faults of S and A in the functions themselves: temperature, cap,
 * base, normalisation. Not here: masks wrongly applied (attn_fault_softmax.c), wrong axes
 * (attn_fault_axis.c). Start reading at ROWS, at the end.
 */
#include "core/attn_fault_softmax.h"

#include <math.h>

/* ---- S ---- */

struct score {
    bool (*fits)(const struct attn_problem *p);
    double (*of)(const struct attn_problem *p, double raw);
};

static double capped(const struct attn_problem *p, double s)
{
    return p->softcap > 0.0 ? p->softcap * tanh(s / p->softcap) : s;
}

static double no_temperature(const struct attn_problem *p, double raw)
{
    return capped(p, raw * p->scale);
}

static double times_temperature(const struct attn_problem *p, double raw)
{
    return capped(p, raw * p->scale * p->temperature);
}

static double cap_before_scale(const struct attn_problem *p, double raw)
{
    return capped(p, raw) * p->scale / p->temperature;
}

static double by_heads(const struct attn_problem *p, double raw)
{
    return capped(p, raw / sqrt((double)p->d.h) / p->temperature);
}

static double clipped(const struct attn_problem *p, double raw)
{
    const double s = raw * p->scale / p->temperature;

    return fmax(-p->softcap, fmin(p->softcap, s));
}

static bool wrong_score(const struct attn_run_ctx *run, struct attn_piece piece,
                        struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct score *fault = run->swap->param;
    const struct attn_tensor *Q = &run->t->t[ATTN_Q], *K = &run->t->t[ATTN_K];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SCORE, err))
        return false;
    for (struct attn_cell x = {0};
         fault->fits(p) && attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv); x.j++)
        attn_put4(&run->t->t[ATTN_S], x.b, x.h, x.i, x.j,
                  fault->of(p, attn_pair_raw(
                                   p, Q, attn_place4(Q, x.b, x.h, x.i), K,
                                   attn_place4(K, x.b, attn_kv_head(&p->d, x.h), x.j))));
    return true;
}

static bool has_temperature(const struct attn_problem *p)
{
    return p->temperature != 1.0;
}

static bool has_cap(const struct attn_problem *p)
{
    return p->softcap > 0.0;
}

static bool capped_and_scaled(const struct attn_problem *p)
{
    return has_cap(p) && fabs(p->scale / p->temperature - 1.0) > 1e-6;
}

static bool scaled_by_width(const struct attn_problem *p)
{
    return p->score->scaled_by_default && !p->scale_stated && p->d.h > 1 &&
           fabs(p->scale - 1.0 / sqrt((double)p->d.h)) > 1e-6;
}

static bool score_fits(const struct attn_problem *p, const void *param)
{
    return ((const struct score *)param)->fits(p);
}

/* ---- A ---- */

struct norm {
    void (*wrong)(const struct attn_run_ctx *run, struct attn_cell x);
};

static double weight(const struct attn_run_ctx *run, struct attn_cell x)
{
    return attn_at4(&run->t->t[ATTN_A], x.b, x.h, x.i, x.j);
}

static void set_weight(const struct attn_run_ctx *run, struct attn_cell x, double a)
{
    attn_put4(&run->t->t[ATTN_A], x.b, x.h, x.i, x.j, a);
}

/* Weights in proportion to `of` over allowed keys; `more` is added to their sum. */
static void in_proportion(const struct attn_run_ctx *run, struct attn_cell x,
                          double (*of)(const struct attn_run_ctx *run,
                                       struct attn_cell x),
                          double more)
{
    const size_t T = run->p->d.T_kv;
    double sum = more;

    for (x.j = 0; x.j < T; x.j++)
        if (attn_fault_allowed(run, x)) {
            const double e = of(run, x);

            set_weight(run, x, e);
            sum += e;
        }
    for (x.j = 0; x.j < T; x.j++)
        if (attn_fault_allowed(run, x))
            set_weight(run, x, weight(run, x) / sum);
}

static double power_of_2(const struct attn_run_ctx *run, struct attn_cell x)
{
    return exp2(attn_fault_masked(run, x));
}

static double exp_of_weight(const struct attn_run_ctx *run, struct attn_cell x)
{
    return exp(weight(run, x));
}

static double one(const struct attn_run_ctx *run, struct attn_cell x)
{
    (void)run, (void)x;
    return 1.0;
}

static double plain_exp(const struct attn_run_ctx *run, struct attn_cell x)
{
    return exp(attn_fault_masked(run, x));
}

static void base_2(const struct attn_run_ctx *run, struct attn_cell x)
{
    in_proportion(run, x, power_of_2, exp2(attn_fault_sink(run->p, x.h)));
}

static void twice(const struct attn_run_ctx *run, struct attn_cell x)
{
    in_proportion(run, x, exp_of_weight, 0.0);
}

static void equal(const struct attn_run_ctx *run, struct attn_cell x)
{
    in_proportion(run, x, one, 0.0);
}

static void sink_as_it_is(const struct attn_run_ctx *run, struct attn_cell x)
{
    in_proportion(run, x, plain_exp, fabs(attn_fault_sink(run->p, x.h)));
}

static void unnormalised(const struct attn_run_ctx *run, struct attn_cell x)
{
    for (x.j = 0; x.j < run->p->d.T_kv; x.j++)
        if (attn_fault_allowed(run, x))
            set_weight(run, x, plain_exp(run, x));
}

static void logistic(const struct attn_run_ctx *run, struct attn_cell x)
{
    for (x.j = 0; x.j < run->p->d.T_kv; x.j++)
        if (attn_fault_allowed(run, x))
            set_weight(run, x, 1.0 / (1.0 + exp(-attn_fault_masked(run, x))));
}

static void over_keys(const struct attn_run_ctx *run, struct attn_cell x)
{
    for (x.j = 0; x.j < run->p->d.T_kv; x.j++)
        set_weight(run, x, weight(run, x) / (double)run->p->d.T_kv);
}

static void largest_only(const struct attn_run_ctx *run, struct attn_cell x)
{
    struct attn_cell best = x;

    for (x.j = 0, best.j = 0; x.j < run->p->d.T_kv; x.j++)
        if (weight(run, x) > weight(run, best))
            best.j = x.j;
    for (x.j = 0; x.j < run->p->d.T_kv; x.j++)
        set_weight(run, x, x.j == best.j ? 1.0 : 0.0);
}

static bool wrong_norm(const struct attn_run_ctx *run, struct attn_piece piece,
                       struct attn_err *err)
{
    const struct attn_dims *d = &run->p->d;
    const struct norm *fault = run->swap->param;

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_SOFTMAX, err))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_q, 1); x.j++)
        if (!run->t->empty[(x.b * d->h + x.h) * d->T_q + x.i])
            fault->wrong(run, (struct attn_cell){x.b, x.h, x.i, 0});
    return true;
}

static bool sink_wrong(const struct attn_run_ctx *run, struct attn_piece piece,
                       struct attn_err *err)
{
    if (!run->p->in[ATTN_IN_SINK].p)
        return attn_stage_all(run, ATTN_STAGE_SOFTMAX, err);
    return wrong_norm(run, piece, err);
}

/* ---- what can show it ---- */

static bool two_keys(const struct attn_problem *p, const void *param)
{
    (void)param;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++)
        if (attn_row_allowed(p, x.b, x.h, x.i) > (p->in[ATTN_IN_SINK].p ? 0 : 1))
            return true;
    return false;
}

static bool any_row(const struct attn_problem *p, const void *param)
{
    (void)param;
    return attn_any_row_reads(p);
}

static bool row_and_keys(const struct attn_problem *p, const void *param)
{
    return any_row(p, param) && p->d.T_kv > 1;
}

static bool sink_and_row(const struct attn_problem *p, const void *param)
{
    return p->in[ATTN_IN_SINK].p && any_row(p, param);
}

/* ---- the rows ---- */

static const struct score NO_TEMPERATURE = {has_temperature, no_temperature};
static const struct score MULTIPLIED = {has_temperature, times_temperature};
static const struct score CAP_FIRST = {capped_and_scaled, cap_before_scale};
static const struct score HEADS = {scaled_by_width, by_heads};
static const struct score CLIPPED = {has_cap, clipped};
static const struct norm BASE_2 = {base_2}, TWICE = {twice}, EQUAL = {equal};
static const struct norm PLAIN_SINK = {sink_as_it_is}, UNNORMALISED = {unnormalised};
static const struct norm LOGISTIC = {logistic}, OVER_KEYS = {over_keys},
                         LARGEST = {largest_only};

#define SCORE   "S", "score_shape_and_scale"
#define WEIGHTS "A", "softmax_rows"
#define OF_S(fault)                                  \
    score_fits,                                      \
    {                                                \
        {[ATTN_STAGE_SCORE] = wrong_score}, &(fault) \
    }
#define OF_A(fault)                                   \
    {                                                 \
        {[ATTN_STAGE_SOFTMAX] = wrong_norm}, &(fault) \
    }

static const struct attn_fault_row ROWS[] = {
    {"temperature_ignored", SCORE, "The temperature was accepted but not used.",
     "Divide the scores by the temperature.", "A temperature other than 1.",
     OF_S(NO_TEMPERATURE)},
    {"temperature_multiplied", SCORE, "Scores were multiplied by the temperature.",
     "Divide the scores by the temperature.", "A temperature other than 1.",
     OF_S(MULTIPLIED)},
    {"scale_heads", SCORE, "Scores were divided by the root of the number of heads.",
     "Divide by √d_k.", "More than one head, and not as many as d_k.", OF_S(HEADS)},
    {"softcap_before_scale", SCORE, "The soft cap was applied before the scale.",
     "Scale first, then cap.", "A soft cap, and a scale other than 1.", OF_S(CAP_FIRST)},
    {"softcap_clips", SCORE, "Scores were clipped at the cap instead of bent.",
     "Use cap·tanh(s/cap).", "A soft cap and scores that are not small beside it.",
     OF_S(CLIPPED)},
    {"softmax_base_2", WEIGHTS, "Powers of 2 were taken instead of powers of e.",
     "Multiply scores by log₂e before exp2, or use exp.",
     "A row with two allowed keys, or with a sink.", two_keys, OF_A(BASE_2)},
    {"softmax_twice", WEIGHTS, "The softmax was applied to the weights once more.",
     "Apply it once.", "A row with two allowed keys, or with a sink.", two_keys,
     OF_A(TWICE)},
    {"softmax_missing", WEIGHTS,
     "Weights are all equal over allowed keys: scores were not read.",
     "Apply the softmax to S + M.", "A row with two allowed keys, or with a sink.",
     two_keys, OF_A(EQUAL)},
    {"softmax_not_normalised", WEIGHTS,
     "Weights are exp(S + M), not divided by their sum.", "Divide each row by its sum.",
     "A row with an allowed key.", any_row, OF_A(UNNORMALISED)},
    {"sigmoid_for_softmax", WEIGHTS, "Each score went through a sigmoid of its own.",
     "Normalise over the keys of a row.", "A row with an allowed key.", any_row,
     OF_A(LOGISTIC)},
    {"largest_weight_only", WEIGHTS, "The largest score took all the weight.",
     "Use the softmax, not its limit.", "A row with two allowed keys, or with a sink.",
     two_keys, OF_A(LARGEST)},
    {"weights_divided_by_keys", WEIGHTS, "Weights were divided by the number of keys.",
     "The softmax has normalised them already.", "More than one key.", row_and_keys,
     OF_A(OVER_KEYS)},
    {"sink_not_exponentiated",
     WEIGHTS,
     "The sink's logit itself was added to the denominator.",
     "Add exp(sink).",
     "A sink.",
     sink_and_row,
     {{[ATTN_STAGE_SOFTMAX] = sink_wrong}, &PLAIN_SINK}},
};
const struct attn_fault_theme ATTN_FAULTS_NORM = {ROWS, ATTN_COUNT(ROWS)};
