/*
 * attn_diagnose_noise.c - how far honest rounding may move an object: standard deviations
 * carried through the layer, as sums of independent roundings. Not here: the comparison
 * that uses them (attn_diagnose_compare.c). Start reading at NOISES, at the end.
 */
#include "core/attn_diagnose.h"

#include <math.h>

/* A rounding error is spread over half a unit either way: about half of that in the mean
   square. Six deviations are not met by chance in 10^8 numbers; what is kept here is six
   of them. */
static const double SPREAD = 0.5, DEVIATIONS = 6.0;

static double unit_of(const struct attn_walk *w)
{
    return SPREAD * attn_precision_unit(w->c->precision);
}

static double square(double x)
{
    return x * x;
}

/* Deviation of what stands in the trace: one rounding when the candidate gave it. */
static double deviation(const struct attn_walk *w, enum attn_object o, size_t n)
{
    if (attn_walk_given(w, o) || !w->noise[o])
        return unit_of(w) * fabs(attn_number(&w->t.t[o], n));
    return w->noise[o][n] / DEVIATIONS;
}

/* A sum of n products whose squares add up to `squares`, rounded as it grows, and its
 * result. */
static double sum_rounding(const struct attn_walk *w, size_t n, double squares,
                           double result)
{
    return square(unit_of(w)) *
           ((double)n / 2.0 * squares + (1.0 + (double)n / 3.0) * square(result));
}

static void put(const struct attn_walk *w, enum attn_object o, size_t n, double variance)
{
    w->noise[o][n] = DEVIATIONS * sqrt(variance);
}

/* ---- Q, K, V ---- */

struct projection {
    enum attn_object after; /* what the noise is kept for */
    enum attn_input W, x;
    bool key_side, turned;
};

/* Square of the deviation of entry `col` of row i of x W; x and W are rounded too. */
static double product_variance(const struct attn_walk *w, const struct projection *part,
                               size_t b, size_t i, size_t col, double result)
{
    const struct attn_tensor *x = &w->p->in[part->x], *W = &w->p->in[part->W];
    const size_t from = attn_place3(x, b, i);
    double squares = 0.0;

    for (size_t k = 0; k < W->dim[0]; k++)
        squares += square(attn_number(x, from + k) * attn_number(W, k * W->dim[1] + col));
    return 2.0 * square(unit_of(w)) * squares +
           sum_rounding(w, W->dim[0], squares, result);
}

/* Angles are computed in float32 by those who compute in less. */
static double angle_unit(const struct attn_walk *w, const struct projection *part,
                         size_t b, size_t i)
{
    const double unit = fmin(attn_precision_unit(w->c->precision), 0x1p-24);
    const double at = !part->key_side       ? attn_rope_position_q(w->p, b, i)
                      : i >= w->p->d.T_past ? attn_rope_position_k(w->p, b, i)
                                            : 0.0;

    return 2.0 * unit * (1.0 + fabs(at));
}

/* A rotation mixes features of a row: each may get the largest deviation of two. */
static void turn_row(const struct attn_walk *w, const struct projection *part, size_t b,
                     size_t i, size_t at, size_t d)
{
    const struct attn_tensor *t = &w->t.t[part->after];
    double most = 0.0, size = 0.0;

    for (size_t c = 0; c < d; c++) {
        most = fmax(most, w->noise[part->after][at + c] / DEVIATIONS);
        size = fmax(size, fabs(attn_number(t, at + c)));
    }
    for (size_t c = 0; c < d; c++)
        put(w, part->after, at + c,
            2.0 * square(most) + square(unit_of(w) * size) +
                square(angle_unit(w, part, b, i) * 2.0 * size));
}

/* Of the projection, and of its rotation where `o` is what comes after it. */
static void project_noise(struct attn_walk *w, const struct projection *part,
                          enum attn_object o)
{
    const struct attn_tensor *t = &w->t.t[o];
    const size_t past = part->key_side ? w->p->d.T_past : 0, d = t->dim[3];
    const bool projected = w->p->form.source == ATTN_PROJECTED;

    for (struct attn_cell x = {0}; attn_cell_in(&x, t->dim[0], t->dim[1], t->dim[2], 1);
         x.j++) {
        const size_t at = attn_place4(t, x.b, x.h, x.i);

        for (size_t c = 0; c < d; c++) {
            const double value = attn_number(t, at + c);

            put(w, part->after, at + c,
                projected || x.i < past
                    ? square(2.0 * unit_of(w) * value)
                    : product_variance(w, part, x.b, x.i - past, x.h * d + c, value));
        }
        if (attn_turn_of(w->p) != NULL && part->turned && o == part->after)
            turn_row(w, part, x.b, x.i, at, d);
    }
}

static enum attn_input key_source(const struct attn_walk *w)
{
    return w->p->form.source == ATTN_CROSS ? ATTN_IN_X_KV : ATTN_IN_X;
}

static const struct projection QUERY = {ATTN_Q, ATTN_IN_W_Q, ATTN_IN_X, false, true};

static struct projection keys_of(const struct attn_walk *w)
{
    return (struct projection){ATTN_K, ATTN_IN_W_K, key_source(w), true, true};
}

static void noise_q_pre(struct attn_walk *w)
{
    project_noise(w, &QUERY, ATTN_Q_PRE);
}

static void noise_q(struct attn_walk *w)
{
    project_noise(w, &QUERY, ATTN_Q);
}

static void noise_k_pre(struct attn_walk *w)
{
    const struct projection keys = keys_of(w);

    project_noise(w, &keys, ATTN_K_PRE);
}

static void noise_k(struct attn_walk *w)
{
    const struct projection keys = keys_of(w);

    project_noise(w, &keys, ATTN_K);
}

static void noise_v(struct attn_walk *w)
{
    project_noise(
        w, &(struct projection){ATTN_V, ATTN_IN_W_V, key_source(w), true, false}, ATTN_V);
}

/* ---- S, A, H, Y ---- */

/* One feature of a score function of which only its derivatives are known: adds what the
   deviations of q and k make of it, returns its square. */
static double pair_noise(const struct attn_walk *w, size_t q, size_t k, double *spread)
{
    const double x = attn_number(&w->t.t[ATTN_Q], q), y = attn_number(&w->t.t[ATTN_K], k);
    double dq = 0.0, dk = 0.0, dv = 0.0;
    const double s = w->p->score->pair(1, &x, &y, NULL, 1.0, &dq, &dk, &dv);

    *spread +=
        square(deviation(w, ATTN_Q, q) * dq) + square(deviation(w, ATTN_K, k) * dk);
    return square(s);
}

static void noise_s(struct attn_walk *w)
{
    const struct attn_problem *p = w->p;
    const struct attn_tensor *Q = &w->t.t[ATTN_Q], *K = &w->t.t[ATTN_K],
                             *S = &w->t.t[ATTN_S];
    const double factor = p->scale / p->temperature;
    const bool products = p->score->bilinear;

    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv);
         x.j++) {
        const size_t q = attn_place4(Q, x.b, x.h, x.i),
                     at = attn_place4(S, x.b, x.h, x.i) + x.j;
        const size_t k = attn_place4(K, x.b, attn_kv_head(&p->d, x.h), x.j);
        double spread = 0.0, squares = 0.0;

        for (size_t c = 0; !products && !p->in[ATTN_IN_V_A].p && c < p->d.d_k; c++)
            squares += pair_noise(w, q + c, k + c, &spread);
        for (size_t c = 0; (products || p->in[ATTN_IN_V_A].p) && c < p->d.d_k; c++) {
            const double a = products ? attn_number(Q, q + c) : 1.0;
            const double b =
                products ? attn_number(K, k + c) : attn_number(&p->in[ATTN_IN_V_A], c);
            const double of_a = deviation(w, ATTN_Q, q + c),
                         of_b = deviation(w, ATTN_K, k + c);

            spread += square(of_a * b) + square((products ? a : b) * of_b);
            squares += square(a * b);
        }
        put(w, ATTN_S, at,
            square(factor) * (2.0 * spread + sum_rounding(w, p->d.d_k, squares, 0.0)) +
                sum_rounding(w, p->d.d_k, 0.0, attn_number(S, at)) +
                square(2.0 * unit_of(w) * p->softcap));
    }
}

/* Largest finite logit of a row. */
static double row_top(const struct attn_walk *w, size_t row)
{
    double top = -INFINITY;

    for (size_t j = 0; j < w->p->d.T_kv; j++) {
        const double l =
            attn_number(&w->t.t[ATTN_S], row + j) + attn_number(&w->t.t[ATTN_M], row + j);

        if (isfinite(l))
            top = fmax(top, l);
    }
    return top;
}

/* Deviation of the logit at a pair; sums and differences from the maximum are rounded. */
static double logit_deviation(const struct attn_walk *w, size_t n, double top)
{
    const double s = attn_number(&w->t.t[ATTN_S], n), m = attn_number(&w->t.t[ATTN_M], n);
    const double bias = isfinite(m) ? m : 0.0, own = isfinite(s) ? s : 0.0;

    return sqrt(square(deviation(w, ATTN_S, n)) +
                square(unit_of(w)) * (square(bias) * 4.0 + square(own + bias) +
                                      square(isfinite(top) ? own + bias - top : 0.0)));
}

/* d a_j = a_j (d l_j - sum_k a_k d l_k): the mean may be as far off as all its terms
 * together. */
static void noise_a(struct attn_walk *w)
{
    const size_t T = w->p->d.T_kv, rows = attn_tensor_count(&w->t.t[ATTN_A]) / T;
    const double unit = unit_of(w);

    for (size_t r = 0; r < rows; r++) {
        const double top = row_top(w, r * T);
        double mean = 0.0;

        for (size_t j = 0; j < T; j++) {
            const double a = attn_number(&w->t.t[ATTN_A], r * T + j);

            if (a > 0.0)
                mean += a * logit_deviation(w, r * T + j, top);
        }
        for (size_t j = 0; j < T; j++) {
            const double a = attn_number(&w->t.t[ATTN_A], r * T + j);
            const double own = a > 0.0 ? logit_deviation(w, r * T + j, top) : 0.0;
            const double all = own + mean + unit * (4.0 + (double)T / 2.0);

            put(w, ATTN_A, r * T + j,
                a > 0.0 ? square(a * all * (1.0 + 3.0 * all)) : 0.0);
        }
        if (w->noise[ATTN_LSE])
            put(w, ATTN_LSE, r, square(mean + unit * (4.0 + (double)T / 2.0)));
    }
}

static void noise_h(struct attn_walk *w)
{
    const struct attn_dims *d = &w->p->d;
    const struct attn_tensor *A = &w->t.t[ATTN_A], *V = &w->t.t[ATTN_V],
                             *H = &w->t.t[ATTN_H];

    for (struct attn_cell x = {0}; attn_cell_in(&x, d->B, d->h, d->T_q, d->d_v); x.j++) {
        const size_t row = attn_place4(A, x.b, x.h, x.i), g = attn_kv_head(d, x.h);
        const size_t at = attn_place3(H, x.b, x.i) + x.h * d->d_v + x.j;
        double spread = 0.0, squares = 0.0, common = 0.0;

        for (size_t j = 0; j < d->T_kv; j++) {
            const size_t v = attn_place4(V, x.b, g, j) + x.j;
            const double a = attn_number(A, row + j), value = attn_number(V, v);
            const double of_a = deviation(w, ATTN_A, row + j);

            if (a == 0.0)
                continue;
            spread += square(of_a * value) + square(a * deviation(w, ATTN_V, v));
            squares += square(a * value);
            common = fmax(common, of_a / fabs(a));
        }
        put(w, ATTN_H, at,
            spread + square(common * attn_number(H, at)) +
                sum_rounding(w, d->T_kv, squares, attn_number(H, at)));
    }
}

static void noise_y(struct attn_walk *w)
{
    const struct attn_tensor *H = &w->t.t[ATTN_H], *W = &w->p->in[ATTN_IN_W_O];
    const struct attn_tensor *Y = &w->t.t[ATTN_Y];
    const size_t rows = Y->dim[0] * Y->dim[1], wide = W->dim[0], cols = W->dim[1];

    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            double spread = 0.0, squares = 0.0;

            for (size_t k = 0; k < wide; k++) {
                const double m = attn_number(W, k * cols + c);

                spread += square(deviation(w, ATTN_H, r * wide + k) * m);
                squares += square(attn_number(H, r * wide + k) * m);
            }
            put(w, ATTN_Y, r * cols + c,
                2.0 * spread + square(unit_of(w)) * squares +
                    sum_rounding(w, wide, squares, attn_number(Y, r * cols + c)));
        }
}

/* In float64 rounding is far below the tolerance: its size will do.  10^4 roundings. */
static void noise_of_size(struct attn_walk *w, enum attn_object o)
{
    const struct attn_tensor *t = &w->t.t[o];
    const double unit = 1e4 * attn_precision_unit(w->c->precision);
    double largest = 1.0;

    for (size_t n = 0; n < attn_tensor_count(t); n++)
        if (isfinite(attn_number(t, n)))
            largest = fmax(largest, fabs(attn_number(t, n)));
    for (size_t n = 0; n < attn_tensor_count(t); n++)
        w->noise[o][n] = unit * largest;
}

/* Found when the walk meets `at`; objects made together share the noise of one of them.
 */
static const struct noise_row {
    enum attn_object at, kept;
    void (*find)(struct attn_walk *w);
} NOISES[] = {
    {ATTN_Q_PRE, ATTN_Q, noise_q_pre}, {ATTN_Q, ATTN_Q, noise_q},
    {ATTN_K_PRE, ATTN_K, noise_k_pre}, {ATTN_K, ATTN_K, noise_k},
    {ATTN_V, ATTN_V, noise_v},         {ATTN_S_RAW, ATTN_S, noise_s},
    {ATTN_A, ATTN_A, noise_a},         {ATTN_CONTRIBUTIONS, ATTN_H, noise_h},
    {ATTN_Y, ATTN_Y, noise_y},
};

static const enum attn_object KEPT[] = {ATTN_Q, ATTN_K, ATTN_V, ATTN_S,
                                        ATTN_A, ATTN_H, ATTN_Y, ATTN_LSE};

void attn_noise_of(struct attn_walk *w, enum attn_object o)
{
    for (size_t n = 0; n < ATTN_COUNT(NOISES); n++)
        if (NOISES[n].at == o && w->c->precision != ATTN_FLOAT64)
            NOISES[n].find(w);
        else if (NOISES[n].at == o)
            noise_of_size(w, NOISES[n].kept);
    if (o == ATTN_A && w->c->precision == ATTN_FLOAT64)
        noise_of_size(w, ATTN_LSE);
}

static size_t object_bytes(const struct attn_problem *p, enum attn_object o)
{
    struct attn_tensor shape;

    if (!attn_object_exists(p, o))
        return 0;
    attn_object_full_shape(p, o, &shape);
    return (attn_tensor_count(&shape) * sizeof(double) + ATTN_ALIGN - 1) / ATTN_ALIGN *
           ATTN_ALIGN;
}

size_t attn_noise_bytes(const struct attn_problem *p)
{
    size_t bytes = 0;

    for (size_t n = 0; n < ATTN_COUNT(KEPT); n++)
        bytes += object_bytes(p, KEPT[n]);
    return bytes;
}

bool attn_noise_take(struct attn_walk *w, struct attn_arena *arena, struct attn_err *err)
{
    for (size_t n = 0; n < ATTN_COUNT(KEPT); n++) {
        const enum attn_object o = KEPT[n];

        if (!attn_object_exists(w->p, o))
            continue;
        w->noise[o] = attn_arena_take(arena, object_bytes(w->p, o));
        if (!w->noise[o])
            return attn_fail(err, ATTN_E_MEMORY, "noise", NULL, arena->size,
                             object_bytes(w->p, o));
    }
    return true;
}
