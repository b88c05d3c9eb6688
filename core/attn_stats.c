/*
 * attn_stats.c - what rows of A tell: entropy, one row taken apart, variance and
 * saturation of the scores.
 * Not here: computing the layer, judging it.
 * Start reading at attn_row_trace.
 */
#include "core/attn_core.h"

#include <math.h>
#include <string.h>

/* A row whose largest weight is above this passes hardly any gradient to its scores. */
static const double SATURATED = 0.99;

/* -a ln a, which goes to 0 with a. */
static double entropy_term(double a)
{
    return a > 0.0 ? -a * log(a) : a == 0.0 ? 0.0 : a;
}

static bool is_empty(const struct attn_trace *trace, size_t row)
{
    return trace->empty != NULL && trace->empty[row] != 0;
}

/* ---- all rows ---- */

static double some_entropy(size_t n, const double *a)
{
    double entropy;

    if (attn_kernel_of(ATTN_F64)->entropy(n, a, &entropy))
        return entropy;
    entropy = 0.0;
    for (size_t j = 0; j < n; j++)
        entropy += entropy_term(a[j]);
    return entropy;
}

static double row_entropy(const struct attn_tensor *A, size_t row, size_t n)
{
    enum { PIECE = 64 };
    static const double zeros[PIECE];
    const struct attn_kernel *kernel = attn_kernel_of(A->dtype);
    const size_t bytes = attn_dtype_bytes(A->dtype);
    double a[PIECE], entropy = 0.0;

    for (size_t j = 0; j < n; j += PIECE) {
        const size_t some = n - j < PIECE ? n - j : PIECE;
        const char *const from = (const char *)A->p + (row * n + j) * bytes;

        if (memcmp(from, zeros, some * bytes) == 0) /* forbidden, most of the time */
            continue;
        kernel->to_double(some, from, a);
        entropy += some_entropy(some, a);
    }
    return entropy;
}

/*
 * Entropy -sum_j A_ij ln A_ij in nats, and exp of it, over the rows that have a key; NaN
 * when none has.  The share of a sink is no key's and does not count. Returns false when
 * A is not held.
 */
bool attn_row_statistics(const struct attn_problem *p, const struct attn_trace *trace,
                         struct attn_row_stats *stats)
{
    const struct attn_tensor *A = &trace->t[ATTN_A];
    const size_t rows = p->d.B * p->d.h * p->d.T_q, T_kv = p->d.T_kv;
    double sum = 0.0, keys = 0.0, least = NAN, most = NAN;
    size_t count = 0;

    if (A->p == NULL)
        return false;
    for (size_t row = 0; row < rows; row++) {
        if (is_empty(trace, row))
            continue;

        const double entropy = row_entropy(A, row, T_kv);

        count++;
        sum += entropy;
        keys += exp(entropy);
        least = fmin(least, entropy);
        most = fmax(most, entropy);
    }
    *stats =
        (struct attn_row_stats){sum / (double)count, least, most, keys / (double)count};
    return true;
}

/* ---- scores in double ---- */

struct scratch { /* one query, its keys and its logits */
    double *q, *k, *v_a, *logit;
    uint8_t *allow;
};

static bool take_scratch(const struct attn_problem *p, struct attn_arena *arena,
                         struct scratch *s, struct attn_err *err)
{
    const size_t d_k = p->d.d_k, T_kv = p->d.T_kv;

    s->q = attn_arena_take(arena, 3 * d_k * sizeof(double));
    s->logit = attn_arena_take(arena, 2 * T_kv * sizeof(double));
    s->allow = attn_arena_take(arena, T_kv);
    if (s->q == NULL || s->logit == NULL || s->allow == NULL)
        return attn_fail(err, ATTN_E_MEMORY, "score_statistics", NULL, arena->size,
                         (3 * d_k + 2 * T_kv) * sizeof(double));
    s->k = s->q + d_k;
    s->v_a = s->k + d_k;
    if (p->in[ATTN_IN_V_A].p != NULL)
        attn_kernel_of(p->dtype)->to_double(d_k, p->in[ATTN_IN_V_A].p, s->v_a);
    return true;
}

static void *row_of(const struct attn_tensor *t, size_t b, size_t h, size_t row)
{
    const struct attn_mat m = attn_slice(t, b, h);

    return (unsigned char *)m.p + row * m.ld * attn_dtype_bytes(m.dtype);
}

/* The unscaled score of query (b,h,i), loaded in s->q, and key j. */
static double unscaled(const struct attn_problem *p, const struct attn_trace *trace,
                       const struct scratch *s, size_t b, size_t h, size_t j)
{
    const void *k = row_of(&trace->t[ATTN_K], b, attn_kv_head(&p->d, h), j);

    attn_kernel_of(p->dtype)->to_double(p->d.d_k, k, s->k);
    return p->score->pair(p->d.d_k, s->q, s->k, s->v_a, 0.0, NULL, NULL, NULL);
}

static void load_query(const struct attn_problem *p, const struct attn_trace *trace,
                       const struct scratch *s, size_t b, size_t h, size_t i)
{
    attn_kernel_of(p->dtype)->to_double(p->d.d_k, row_of(&trace->t[ATTN_Q], b, h, i),
                                        s->q);
}

static double score_of(const struct attn_problem *p, double raw, double scale)
{
    const double s = raw * scale / p->temperature;

    return p->softcap > 0.0 ? p->softcap * tanh(s / p->softcap) : s;
}

/* The largest weight of a softmax over n logits and the sink's. */
static double largest_weight(size_t n, const double *logit, const double *sink)
{
    double max = -(double)INFINITY, sum = 0.0;

    for (size_t j = 0; j < n; j++)
        max = fmax(max, logit[j]);
    for (size_t j = 0; j < n; j++)
        sum += exp(logit[j] - max);
    if (sink != NULL)
        sum += exp(*sink - max);
    return 1.0 / sum;
}

/* ---- all scores ---- */

struct moments { /* running mean and sum of squares about it (Welford 1962) */
    size_t count;
    double mean, squares;
};

static void include(struct moments *m, double x)
{
    const double before = x - m->mean;

    m->mean += before / (double)++m->count;
    m->squares += before * (x - m->mean);
}

struct census {
    const struct attn_problem *p;
    const struct attn_trace *trace;
    struct scratch s;
    struct moments raw, scaled;
    size_t rows, saturated, saturated_unscaled;
};

static void count_row(struct census *c, size_t b, size_t h, size_t i)
{
    const struct attn_problem *p = c->p;
    double *scaled = c->s.logit, *bare = scaled + p->d.T_kv, sink = 0.0;
    const bool has_sink = p->in[ATTN_IN_SINK].p != NULL;
    size_t n = 0;

    load_query(p, c->trace, &c->s, b, h, i);
    attn_allow_row(p, b, h, i, 0, p->d.T_kv, c->s.allow);
    if (has_sink)
        sink = attn_tensor_get(&p->in[ATTN_IN_SINK], h);
    for (size_t j = 0; j < p->d.T_kv; j++) {
        const double raw = unscaled(p, c->trace, &c->s, b, h, j);
        const double score = score_of(p, raw, p->scale);

        include(&c->raw, raw);
        include(&c->scaled, score);
        if (!c->s.allow[j])
            continue;

        const double bias = attn_bias(p, b, h, i, j);

        scaled[n] = score + bias;
        bare[n++] = score_of(p, raw, 1.0) + bias;
    }
    if (n == 0)
        return;
    c->rows++;
    c->saturated += largest_weight(n, scaled, has_sink ? &sink : NULL) > SATURATED;
    c->saturated_unscaled += largest_weight(n, bare, has_sink ? &sink : NULL) > SATURATED;
}

/*
 * Mean and variance (divided by their number) of the unscaled scores of every pair,
 * forbidden ones too, as S_raw is defined there; variance of S; and the share of rows
 * with a key whose largest weight is above 0.99, as the layer stands and with the scale
 * left out.  For independent q and k of unit variance the first variance is d_k.  Needs Q
 * and K.  Scratch is given back.
 * Errors: MISSING, MEMORY.  Source: Vaswani et al. 2017, section 3.2.1, footnote 4.
 */
bool attn_score_statistics(const struct attn_problem *p, const struct attn_trace *trace,
                           struct attn_arena *arena, struct attn_score_stats *stats,
                           struct attn_err *err)
{
    const size_t mark = attn_arena_mark(arena), rows = p->d.B * p->d.h * p->d.T_q;
    struct census c = {.p = p, .trace = trace};

    if (trace->t[ATTN_Q].p == NULL || trace->t[ATTN_K].p == NULL)
        return attn_fail(err, ATTN_E_MISSING, trace->t[ATTN_Q].p == NULL ? "Q" : "K",
                         NULL, 0, 0);
    if (!take_scratch(p, arena, &c.s, err)) {
        attn_arena_release(arena, mark);
        return false;
    }
    for (size_t row = 0; row < rows; row++)
        count_row(&c, row / p->d.T_q / p->d.h, row / p->d.T_q % p->d.h, row % p->d.T_q);
    attn_arena_release(arena, mark);
    *stats = (struct attn_score_stats){
        .mean = c.raw.mean,
        .variance = c.raw.squares / (double)c.raw.count,
        .d_k = (double)p->d.d_k,
        .variance_of_scaled = c.scaled.squares / (double)c.scaled.count,
        .saturated_share = (double)c.saturated / (double)c.rows,
        .saturated_share_unscaled = (double)c.saturated_unscaled / (double)c.rows,
        .pairs = c.raw.count,
        .rows = c.rows,
    };
    return true;
}

/* ---- one row ---- */

static bool take_row(const struct attn_problem *p, struct attn_arena *arena,
                     struct attn_row_trace *out, struct attn_err *err)
{
    const size_t T_kv = p->d.T_kv, vectors = T_kv * p->d.d_v;
    struct {
        double **to;
        size_t count;
    } parts[] = {
        {&out->score, T_kv},          {&out->mask, T_kv},
        {&out->weight, T_kv},         {&out->entropy_term, T_kv},
        {&out->value, vectors},       {&out->contribution, vectors},
        {&out->running_sum, vectors}, {&out->derivative, vectors},
        {&out->output, p->d.d_v},
    };

    out->key = attn_arena_take(arena, T_kv * sizeof *out->key);
    for (size_t n = 0; n < ATTN_COUNT(parts); n++) {
        *parts[n].to = attn_arena_take(arena, parts[n].count * sizeof(double));
        if (*parts[n].to == NULL || out->key == NULL)
            return attn_fail(err, ATTN_E_MEMORY, "traces", NULL, arena->size,
                             parts[n].count * sizeof(double));
    }
    return true;
}

/* Score and weight of every allowed key from the trace where it holds them. */
static void read_weights(const struct attn_problem *p, const struct attn_trace *trace,
                         struct attn_row_trace *row)
{
    const size_t first = ((row->b * p->d.h + row->h) * p->d.T_q + row->i) * p->d.T_kv;

    for (size_t n = 0; n < row->count; n++) {
        row->score[n] = attn_tensor_get(&trace->t[ATTN_S], first + row->key[n]);
        row->weight[n] = attn_tensor_get(&trace->t[ATTN_A], first + row->key[n]);
    }
}

/* The same from Q and K, where the tiled path held neither S nor A. */
static bool make_weights(const struct attn_problem *p, const struct attn_trace *trace,
                         struct attn_arena *arena, struct attn_row_trace *row,
                         struct attn_err *err)
{
    const size_t mark = attn_arena_mark(arena);
    struct scratch s;
    double max = -(double)INFINITY, sum = 0.0;

    if (!take_scratch(p, arena, &s, err))
        return false;
    load_query(p, trace, &s, row->b, row->h, row->i);
    for (size_t n = 0; n < row->count; n++) {
        const double raw = unscaled(p, trace, &s, row->b, row->h, row->key[n]);

        row->score[n] = score_of(p, raw, p->scale);
        max = fmax(max, row->score[n] + row->mask[n]);
    }
    for (size_t n = 0; n < row->count; n++)
        sum += row->weight[n] = exp(row->score[n] + row->mask[n] - max);
    if (p->in[ATTN_IN_SINK].p != NULL)
        sum += exp(attn_tensor_get(&p->in[ATTN_IN_SINK], row->h) - max);
    for (size_t n = 0; n < row->count; n++)
        row->weight[n] /= sum;
    attn_arena_release(arena, mark);
    return true;
}

static void find_keys(const struct attn_problem *p, struct attn_row_trace *row)
{
    row->count = 0;
    for (size_t j = 0; j < p->d.T_kv; j++)
        if (attn_allowed(p, row->b, row->h, row->i, j)) {
            row->mask[row->count] = attn_bias(p, row->b, row->h, row->i, j);
            row->key[row->count++] = j;
        }
}

/* h_i as it is built up, and then what each score moves of it. */
static void add_up(const struct attn_problem *p, const struct attn_trace *trace,
                   struct attn_row_trace *row)
{
    const size_t d_v = p->d.d_v, kv = attn_kv_head(&p->d, row->h);

    for (size_t c = 0; c < d_v; c++)
        row->output[c] = 0.0;
    for (size_t n = 0; n < row->count; n++) {
        attn_kernel_of(p->dtype)->to_double(
            d_v, row_of(&trace->t[ATTN_V], row->b, kv, row->key[n]),
            row->value + n * d_v);
        for (size_t c = 0; c < d_v; c++) {
            row->contribution[n * d_v + c] = row->weight[n] * row->value[n * d_v + c];
            row->output[c] += row->contribution[n * d_v + c];
            row->running_sum[n * d_v + c] = row->output[c];
        }
    }
    for (size_t n = 0; n < row->count; n++)
        for (size_t c = 0; c < d_v; c++)
            row->derivative[n * d_v + c] =
                row->weight[n] * (row->value[n * d_v + c] - row->output[c]);
}

/* What a row without keys gives, as the layer gave it; there is no distribution to
   speak of. */
static void empty_row(const struct attn_problem *p, const struct attn_trace *trace,
                      struct attn_row_trace *row)
{
    const size_t first = ((row->b * p->d.T_q + row->i) * p->d.h + row->h) * p->d.d_v;

    for (size_t c = 0; c < p->d.d_v; c++)
        row->output[c] = attn_tensor_get(&trace->t[ATTN_H], first + c);
    row->entropy = row->effective_keys = (double)NAN;
}

/*
 * One query row taken apart: for each allowed key its score, mask, weight, value,
 * contribution a_j v_j, the running sum up to it, and dh/ds_j = a_j (v_j - h).  With a
 * sink the weights sum to less than 1 and the derivative is the same:
 * da_k/ds_j = a_k ([k = j] - a_j) whatever else stands in the denominator.  Needs V, H,
 * and S and A or else Q and K; in double, from the trace's numbers. out  out  arrays in
 * the arena; `output` is the last running sum Errors: MISSING, RANGE ("batch", "head",
 * "query"), MEMORY.
 */
bool attn_row_trace(const struct attn_problem *p, const struct attn_trace *trace,
                    size_t b, size_t h, size_t i, struct attn_arena *arena,
                    struct attn_row_trace *out, struct attn_err *err)
{
    const bool weighed = trace->t[ATTN_S].p != NULL && trace->t[ATTN_A].p != NULL;

    *out = (struct attn_row_trace){.b = b, .h = h, .i = i};
    if (b >= p->d.B)
        return attn_fail(err, ATTN_E_RANGE, "batch", NULL, p->d.B - 1, b);
    if (h >= p->d.h)
        return attn_fail(err, ATTN_E_RANGE, "head", NULL, p->d.h - 1, h);
    if (i >= p->d.T_q)
        return attn_fail(err, ATTN_E_RANGE, "query", NULL, p->d.T_q - 1, i);
    if (trace->t[ATTN_V].p == NULL || trace->t[ATTN_H].p == NULL)
        return attn_fail(err, ATTN_E_MISSING, trace->t[ATTN_V].p == NULL ? "V" : "H",
                         NULL, 0, 0);
    if (!weighed && (trace->t[ATTN_Q].p == NULL || trace->t[ATTN_K].p == NULL))
        return attn_fail(err, ATTN_E_MISSING, "A", NULL, 0, 0);
    if (!take_row(p, arena, out, err))
        return false;
    find_keys(p, out);
    if (out->count == 0) {
        empty_row(p, trace, out);
        return true;
    }
    if (weighed)
        read_weights(p, trace, out);
    else if (!make_weights(p, trace, arena, out, err))
        return false;
    add_up(p, trace, out);
    for (size_t n = 0; n < out->count; n++)
        out->entropy += out->entropy_term[n] = entropy_term(out->weight[n]);
    out->effective_keys = exp(out->entropy);
    return true;
}
