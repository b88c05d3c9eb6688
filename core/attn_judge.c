/*
 * attn_judge.c - single rows of the layer recomputed by plain loops in float64.
 * Not here: the layer itself (attn_run.c); nothing of it is called, so that one error
 * cannot hide in both, but the one function that a row of MASKS, SCORES or POSITIONS must
 * have.
 * Start reading at attn_judge_q, then follow the layer down to attn_judge_output.
 *
 * Tolerances.  A sum of n products in floating point differs from the exact one by at
 * most about n eps sum|a b| (Higham, Accuracy and Stability of Numerical Algorithms,
 * section 3.1), whatever the order of the terms; eps is 2^-52 or 2^-23.  Every judged
 * number carries that bound for its own terms, with SLACK steps more for what is done
 * after the sum.  exp multiplies an absolute error of its argument into a relative one of
 * its value, so weights carry the size of their logits.  Nothing here is tuned: the
 * bounds grow with d_k and T as the theory says.  Where results are not normal numbers
 * each operation may also lose a part of the smallest one (Higham, section 2.2).
 */
#include "core/attn_judge.h"

#include <assert.h>
#include <float.h>
#include <math.h>

static const double SLACK = 8.0; /* roundings after a sum: scale, bias, storing */

double attn_judge_eps(enum attn_dtype dtype)
{
    return dtype == ATTN_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
}

double attn_judge_tiny(enum attn_dtype dtype)
{
    return dtype == ATTN_F32 ? 1e-35 : 1e-300;
}

/* What n operations may lose where their results are not normal numbers: each at most the
   smallest number that there is, whatever the size of its terms. */
static double underflow(enum attn_dtype dtype, double n)
{
    return (n + SLACK) * (dtype == ATTN_F32 ? (double)FLT_TRUE_MIN : DBL_TRUE_MIN);
}

bool attn_judge_near(double got, struct attn_judged want)
{
    return isfinite(got) && fabs(got - want.value) <= want.error;
}

static struct attn_judged exactly(double value)
{
    return (struct attn_judged){.value = value, .error = 0.0};
}

enum { TERMS = 64 }; /* added at once */

/* out[c] = x · W[:, col + c] + bias[col + c] for c < n; x is `width` numbers of X from
   `row` on. */
static void times(const struct attn_tensor *x, size_t row, size_t width,
                  const struct attn_tensor *w, const struct attn_tensor *bias, size_t col,
                  size_t n, struct attn_judged *out)
{
    const double step = ((double)width + SLACK) * attn_judge_eps(x->dtype);
    struct attn_term term[TERMS];

    for (size_t c = 0; c < n; c++) {
        const double start = bias->p ? attn_number(bias, col + c) : 0.0;

        out[c] = (struct attn_judged){start, fabs(start)};
    }
    for (size_t k = 0; k < width; k += TERMS) {
        const size_t some = width - k < TERMS ? width - k : TERMS;

        for (size_t m = 0; m < some; m++) {
            const double v = attn_number(x, row + k + m);

            term[m] = (struct attn_term){v, fabs(v), (k + m) * w->dim[1] + col};
        }
        attn_judge_add_terms(w, some, term, n, out);
    }
    for (size_t c = 0; c < n; c++)
        out[c].error = step * out[c].error + underflow(x->dtype, (double)width);
}

static void project(const struct attn_problem *p, enum attn_input X, enum attn_input W,
                    enum attn_input bias, size_t row, size_t col, size_t n,
                    struct attn_judged *out)
{
    const size_t width = p->in[X].dim[2];

    times(&p->in[X], row * width, width, &p->in[W], &p->in[bias], col, n, out);
}

static void take_row(const struct attn_tensor *t, size_t b, size_t h, size_t i,
                     struct attn_judged *out)
{
    const size_t from = attn_place4(t, b, h, i);

    for (size_t c = 0; c < t->dim[3]; c++)
        out[c] = exactly(attn_number(t, from + c));
}

/* RoPE: pair (a, b) → (a cos pθ - b sin pθ, a sin pθ + b cos pθ), θ_k = base^(-2k/d_k)
   (Su et al. 2021, section 3.2.2).  The angle's own rounding grows with its size. */
void attn_rope_judged(const struct attn_problem *p, const struct attn_position *position,
                      struct attn_turn turn, struct attn_judged *x)
{
    const size_t d = p->d.d_k;
    const bool half = p->rope.layout == ATTN_ROPE_HALF;
    const double pos = turn.back ? -turn.at : turn.at;

    (void)position;
    for (size_t k = 0; k < d / 2; k++) {
        struct attn_judged *a = &x[half ? k : 2 * k],
                           *b = &x[half ? k + d / 2 : 2 * k + 1];
        const double angle = pos * pow(p->rope.base, -2.0 * (double)k / (double)d);
        const double c = cos(angle), s = sin(angle);
        const double rounding =
            attn_judge_eps(p->dtype) + SLACK * DBL_EPSILON * (1 + fabs(angle));
        const double size = fabs(a->value) + fabs(b->value);
        const double error = a->error + b->error + SLACK * rounding * size;
        const double first = a->value * c - b->value * s;

        *b = (struct attn_judged){a->value * s + b->value * c, error};
        *a = (struct attn_judged){first, error};
    }
}

/* Any kind, being linear: feature c brings |T e_c| times its own error and rounding. */
static void turn_any(const struct attn_problem *p, const struct attn_position *x,
                     struct attn_turn turn, struct attn_judged *row)
{
    const size_t d = p->d.d_k;
    const double rounding =
        attn_judge_eps(p->dtype) + SLACK * DBL_EPSILON * (1 + fabs(turn.at));
    double value[ATTN_TURN_WIDTH_MAX], share[ATTN_TURN_WIDTH_MAX],
        column[ATTN_TURN_WIDTH_MAX];

    assert(d <= ATTN_TURN_WIDTH_MAX);
    for (size_t c = 0; c < d; c++) {
        value[c] = row[c].value;
        share[c] = row[c].error + SLACK * rounding * fabs(row[c].value);
    }
    x->row->turn(p, x, turn, value);
    for (size_t c = 0; c < d; c++)
        row[c] = exactly(value[c]);
    for (size_t c = 0; c < d; c++) {
        for (size_t r = 0; r < d; r++)
            column[r] = r == c ? 1.0 : 0.0;
        x->row->turn(p, x, turn, column);
        for (size_t r = 0; r < d; r++)
            row[r].error += fabs(column[r]) * share[c];
    }
}

static void turn_row(const struct attn_problem *p, size_t b, size_t row, bool of_key,
                     struct attn_judged *out)
{
    const struct attn_position *x = attn_turn_of(p);
    struct attn_turn turn = {.of_key = of_key};

    if (x == NULL)
        return;
    turn.at = of_key ? attn_position_of_key(p, x, b, row)
                     : attn_position_of_query(p, x, b, row);
    (x->row->turn_judged != NULL ? x->row->turn_judged : turn_any)(p, x, turn, out);
}

void attn_judge_q(const struct attn_problem *p, size_t b, size_t h, size_t i,
                  bool rotated, struct attn_judged *out)
{
    if (p->form.source == ATTN_PROJECTED)
        take_row(&p->in[ATTN_IN_Q], b, h, i, out);
    else
        project(p, ATTN_IN_X, ATTN_IN_W_Q, ATTN_IN_B_Q, b * p->d.T_q + i, h * p->d.d_k,
                p->d.d_k, out);
    if (rotated)
        turn_row(p, b, i, false, out);
}

void attn_judge_k(const struct attn_problem *p, size_t b, size_t h_kv, size_t j,
                  bool rotated, struct attn_judged *out)
{
    const size_t past = p->d.T_past;
    const bool self = p->form.source == ATTN_SELF;

    if (j < past) {
        take_row(&p->in[ATTN_IN_PAST_K], b, h_kv, j, out);
        return; /* cached keys were rotated when they were new */
    }
    if (p->form.source == ATTN_PROJECTED)
        take_row(&p->in[ATTN_IN_K], b, h_kv, j - past, out);
    else
        project(p, self ? ATTN_IN_X : ATTN_IN_X_KV, ATTN_IN_W_K, ATTN_IN_B_K,
                b * (p->d.T_kv - past) + j - past, h_kv * p->d.d_k, p->d.d_k, out);
    if (rotated)
        turn_row(p, b, j, true, out);
}

void attn_judge_v(const struct attn_problem *p, size_t b, size_t h_kv, size_t j,
                  struct attn_judged *out)
{
    const size_t past = p->d.T_past;
    const bool self = p->form.source == ATTN_SELF;

    if (j < past)
        take_row(&p->in[ATTN_IN_PAST_V], b, h_kv, j, out);
    else if (p->form.source == ATTN_PROJECTED)
        take_row(&p->in[ATTN_IN_V], b, h_kv, j - past, out);
    else
        project(p, self ? ATTN_IN_X : ATTN_IN_X_KV, ATTN_IN_W_V, ATTN_IN_B_V,
                b * (p->d.T_kv - past) + j - past, h_kv * p->d.d_v, p->d.d_v, out);
}

/*
 * The row's own formula.  Its bound: |v_a| (1 + |q| + |k|), from a Lipschitz constant 1
 * in q + k as tanh has, or the score and what the derivatives make of a relative error of
 * each number, where that is more.  k has room for v_a and three derivatives behind it.
 */
static struct attn_judged pair_score(const struct attn_problem *p, const double *q,
                                     double *k, const struct attn_tensor *K, size_t from)
{
    const struct attn_tensor *va = &p->in[ATTN_IN_V_A];
    const size_t n = p->d.d_k;
    double *v = k + n, *dq = v + n, *dk = dq + n, *dv = dk + n;
    double size = 0.0, moved = 0.0, s;

    for (size_t c = 0; c < n; c++) {
        k[c] = attn_number(K, from + c);
        v[c] = va->p ? attn_number(va, c) : 0.0;
        dq[c] = dk[c] = dv[c] = 0.0;
        size += fabs(v[c]) * (1.0 + fabs(q[c]) + fabs(k[c]));
    }
    s = p->score->pair(n, q, k, va->p ? v : NULL, 1.0, dq, dk, dv);
    for (size_t c = 0; c < n; c++)
        moved +=
            (fabs(dq[c]) + fabs(dk[c])) * (fabs(q[c]) + fabs(k[c])) + fabs(dv[c] * v[c]);
    return (struct attn_judged){s, ((double)n + SLACK) * attn_judge_eps(p->dtype) *
                                       fmax(size, fabs(s) + moved)};
}

static void copy_q(const struct attn_problem *p, const struct attn_trace *t, size_t b,
                   size_t h, size_t i, double *q)
{
    const size_t from = attn_place4(&t->t[ATTN_Q], b, h, i);

    for (size_t c = 0; c < p->d.d_k; c++)
        q[c] = attn_number(&t->t[ATTN_Q], from + c);
}

/* q·k; k begins at `from` in K. */
static struct attn_judged raw_dot(const struct attn_problem *p, const double *q,
                                  const struct attn_tensor *K, size_t from)
{
    const size_t n = p->d.d_k;
    double size;
    const double sum = attn_judge_dot(K, from, n, q, &size);

    return (struct attn_judged){sum,
                                ((double)n + SLACK) * attn_judge_eps(p->dtype) * size +
                                    underflow(p->dtype, (double)n)};
}

static struct attn_judged raw_of(const struct attn_problem *p, const struct attn_trace *t,
                                 size_t b, size_t h, size_t j, const double *q, double *k)
{
    const struct attn_tensor *K = &t->t[ATTN_K];
    const size_t from = attn_place4(K, b, attn_kv_head(&p->d, h), j);

    if (p->score->bilinear)
        return raw_dot(p, q, K, from);
    return pair_score(p, q, k, K, from);
}

struct attn_judged attn_judge_score(const struct attn_problem *p, struct attn_judged raw)
{
    const double factor = p->scale / p->temperature, cap = p->softcap;
    const double eps = attn_judge_eps(p->dtype);
    struct attn_judged s = {raw.value * factor, raw.error * fabs(factor)};

    s.error += SLACK * eps * fabs(s.value) + underflow(p->dtype, 0.0);
    if (cap > 0.0) /* |d/ds cap tanh(s/cap)| <= 1 */
        s = (struct attn_judged){cap * tanh(s.value / cap), s.error + SLACK * eps * cap};
    return s;
}

void attn_judge_raw_row(const struct attn_problem *p, const struct attn_trace *t,
                        size_t b, size_t h, size_t i, double *scratch,
                        struct attn_judged *out)
{
    copy_q(p, t, b, h, i, scratch);
    for (size_t j = 0; j < p->d.T_kv; j++)
        out[j] = raw_of(p, t, b, h, j, scratch, scratch + p->d.d_k);
}

bool attn_judge_allowed(const struct attn_problem *p, const struct attn_trace *t,
                        size_t b, size_t h, size_t i, size_t j)
{
    const struct attn_tensor *allowed = &t->t[ATTN_ALLOWED], *M = &t->t[ATTN_M];

    if (allowed->p)
        return attn_number(allowed, attn_place4(allowed, b, h, i) + j) != 0.0;
    if (M->p)
        return attn_number(M, attn_place4(M, b, h, i) + j) != -INFINITY;
    return attn_allowed(p, b, h, i, j);
}

static double bias_of(const struct attn_problem *p, const struct attn_trace *t, size_t b,
                      size_t h, size_t i, size_t j)
{
    const struct attn_tensor *M = &t->t[ATTN_M];

    return M->p ? attn_number(M, attn_place4(M, b, h, i) + j) : attn_bias(p, b, h, i, j);
}

void attn_judge_logits(const struct attn_problem *p, const struct attn_trace *t, size_t b,
                       size_t h, size_t i, double *scratch, struct attn_logits *row)
{
    const struct attn_tensor *S = &t->t[ATTN_S];
    const double eps = attn_judge_eps(p->dtype);

    row->n = p->d.T_kv;
    row->allowed = 0;
    row->error = row->largest = 0.0;
    copy_q(p, t, b, h, i, scratch);
    for (size_t j = 0; j < row->n; j++) {
        struct attn_judged s;
        double m;

        row->allow[j] = attn_judge_allowed(p, t, b, h, i, j);
        if (!row->allow[j])
            continue;
        s = S->p
                ? exactly(attn_number(S, attn_place4(S, b, h, i) + j))
                : attn_judge_score(p, raw_of(p, t, b, h, j, scratch, scratch + p->d.d_k));
        m = bias_of(p, t, b, h, i, j);
        row->allowed++;
        row->logit[j] = s.value + m;
        row->error = fmax(row->error, s.error + SLACK * eps * (fabs(s.value) + fabs(m)));
        row->largest = fmax(row->largest, fabs(row->logit[j]));
    }
}

/* A row with no allowed key gives what `empty_rows` says: an exact 0, NaN, or 1/T_kv. */
static void empty_row(const struct attn_problem *p, size_t n, struct attn_judged *a)
{
    const double share = 1.0 / (double)n;

    for (size_t j = 0; j < n; j++)
        a[j] = p->empty_rows == ATTN_EMPTY_NAN ? exactly(NAN)
               : p->empty_rows == ATTN_EMPTY_UNIFORM
                   ? (struct attn_judged){share, SLACK * attn_judge_eps(p->dtype) * share}
                   : exactly(0.0);
}

struct attn_judged attn_judge_weights(const struct attn_problem *p, size_t h,
                                      const struct attn_logits *row,
                                      struct attn_judged *a)
{
    const bool has_sink = p->in[ATTN_IN_SINK].p != NULL;
    const double sink = has_sink ? attn_number(&p->in[ATTN_IN_SINK], h) : -INFINITY;
    const double eps = attn_judge_eps(p->dtype), tiny = attn_judge_tiny(p->dtype);
    double top = sink, sum = 0.0;

    if (row->allowed == 0) {
        empty_row(p, row->n, a);
        return exactly(-INFINITY);
    }
    for (size_t j = 0; j < row->n; j++)
        if (row->allow[j])
            top = fmax(top, row->logit[j]);
    for (size_t j = 0; j < row->n; j++) {
        a[j].value = row->allow[j] ? exp(row->logit[j] - top) : 0.0;
        sum += a[j].value;
    }
    if (has_sink) /* takes its share of the weight and gives it to no key */
        sum += exp(sink - top);

    const double largest = fmax(row->largest, has_sink ? fabs(sink) : 0.0);
    const double relative =
        ((double)row->n + SLACK) * eps + SLACK * row->error + 2.0 * SLACK * eps * largest;

    for (size_t j = 0; j < row->n; j++) {
        a[j].value /= sum;
        a[j].error = row->allow[j] ? a[j].value * relative + tiny : 0.0;
    }
    return (struct attn_judged){top + log(sum), relative};
}

void attn_judge_mix(const struct attn_problem *p, const struct attn_trace *t, size_t b,
                    size_t h, const struct attn_judged *a, struct attn_judged *out)
{
    const struct attn_tensor *V = &t->t[ATTN_V];
    const double eps = attn_judge_eps(p->dtype);
    const size_t n = p->d.T_kv, from = attn_place4(V, b, attn_kv_head(&p->d, h), 0);

    struct attn_term term[TERMS];
    size_t terms = 0;

    for (size_t c = 0; c < p->d.d_v; c++)
        out[c] = exactly(0.0);
    for (size_t j = 0; j < n; j++) {
        if (a[j].value != 0.0)
            term[terms++] = (struct attn_term){
                a[j].value, ((double)n + SLACK) * eps * fabs(a[j].value) + a[j].error,
                from + j * p->d.d_v};
        if (terms < TERMS && j + 1 < n)
            continue;
        attn_judge_add_terms(V, terms, term, p->d.d_v, out);
        terms = 0;
    }
    for (size_t c = 0; c < p->d.d_v; c++)
        out[c].error += underflow(p->dtype, (double)n);
}

void attn_judge_output(const struct attn_problem *p, const struct attn_trace *t, size_t b,
                       size_t i, struct attn_judged *out)
{
    const struct attn_tensor *H = &t->t[ATTN_H];

    times(H, attn_place3(H, b, i), H->dim[2], &p->in[ATTN_IN_W_O], &p->in[ATTN_IN_B_O], 0,
          p->d.d_model, out);
}
