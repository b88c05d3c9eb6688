/*
 * ref_forward.c - see ref_forward.h.
 * Not here: speed, blocks, anything clever.
 * Start reading at ref_forward.
 */
#include "ref_forward.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long double in(const struct attn_problem *p, enum attn_input n, size_t flat)
{
    return (long double)attn_tensor_get(&p->in[n], flat);
}

static long double *numbers(size_t n)
{
    long double *x = calloc(n ? n : 1, sizeof *x);

    if (!x)
        abort();
    return x;
}

/* ---- which pair is allowed ---- */

static size_t at(const struct attn_table *t, size_t b, size_t h, size_t i, size_t j)
{
    return b * t->stride_b + h * t->stride_h + i * t->stride_i + j;
}

static bool rule_allows(const struct attn_problem *p, const struct attn_mask *m, size_t b,
                        size_t h, size_t i, size_t j)
{
    const char *name = m->row->name;
    const struct attn_table *t = &m->arg[0].table;
    const long long T_q = (long long)p->d.T_q, T_kv = (long long)p->d.T_kv;
    const long long q = (long long)i, k = (long long)j, o = (long long)p->shift;

    if (strcmp(name, "causal") == 0)
        return k <= q + o;
    if (strcmp(name, "window") == 0) {
        const long long left = m->arg[0].given ? m->arg[0].number : -1;
        const long long right = m->arg[1].given ? m->arg[1].number : -1;

        return (left < 0 || k >= q + o - left) && (right < 0 || k <= q + o + right);
    }
    if (strcmp(name, "padding") == 0 && t->p)
        return k < ((const int64_t *)t->p)[at(t, b, 0, 0, 0)];
    if (strcmp(name, "padding") == 0)
        return ((const uint8_t *)m->arg[1].table.p)[at(&m->arg[1].table, b, 0, 0, j)];
    if (strcmp(name, "documents") == 0) {
        const int64_t mine =
            ((const int64_t *)t->p)[at(t, b, 0, 0, (size_t)(T_kv - T_q + q))];

        return mine >= 0 && ((const int64_t *)t->p)[at(t, b, 0, 0, j)] == mine;
    }
    if (strcmp(name, "allowed") == 0)
        return ((const uint8_t *)t->p)[at(t, b, h, i, j)];
    if (strcmp(name, "blocked") == 0)
        return !((const uint8_t *)t->p)[at(t, b, h, i, j)];
    fprintf(stderr, "ref_forward does not know the rule %s\n", name);
    abort();
}

bool ref_allowed(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j)
{
    for (size_t n = 0; n < p->mask_count; n++)
        if (!rule_allows(p, &p->mask[n], b, h, i, j))
            return false;
    return !p->additive.p ||
           ((const double *)p->additive.p)[at(&p->additive, b, h, i, j)] != -INFINITY;
}

long double ref_bias(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j)
{
    long double m = 0;

    if (p->additive.p)
        m += (long double)((const double *)p->additive.p)[at(&p->additive, b, h, i, j)];
    if (p->alibi)
        m -= (long double)p->alibi[h] *
             fabsl((long double)i + (long double)p->shift - (long double)j);
    return m;
}

/* ---- Q, K, V ---- */

struct side { /* one of Q, K, V */
    enum attn_input x, given, past, w, bias;
    size_t heads, width, T, T_past, d_model;
};

/* t [B, heads, T, width]: cached rows, then projected or given ones. */
static void project(const struct attn_problem *p, const struct side *s, long double *t)
{
    const size_t T_new = s->T - s->T_past;

    for (size_t b = 0; b < p->d.B; b++)
        for (size_t h = 0; h < s->heads; h++)
            for (size_t r = 0; r < s->T; r++)
                for (size_t c = 0; c < s->width; c++) {
                    const size_t n = r - s->T_past, col = h * s->width + c;
                    long double sum = 0;

                    if (r < s->T_past) {
                        sum = in(p, s->past,
                                 ((b * s->heads + h) * s->T_past + r) * s->width + c);
                    } else if (p->form.source == ATTN_PROJECTED) {
                        sum = in(p, s->given,
                                 ((b * s->heads + h) * T_new + n) * s->width + c);
                    } else {
                        for (size_t m = 0; m < s->d_model; m++)
                            sum += in(p, s->x, (b * T_new + n) * s->d_model + m) *
                                   in(p, s->w, m * s->heads * s->width + col);
                        if (p->in[s->bias].p)
                            sum += in(p, s->bias, col);
                    }
                    t[((b * s->heads + h) * s->T + r) * s->width + c] = sum;
                }
}

static long double position(const struct attn_problem *p, const struct attn_table *t,
                            size_t b, size_t n, long double first)
{
    (void)p;
    return t->p ? (long double)((const double *)t->p)[b * t->stride_b + n]
                : first + (long double)n;
}

/* to = from with rows T_past … of every head turned to their positions. */
static void rotate(const struct attn_problem *p, const struct side *s,
                   const struct attn_table *t, long double first, const long double *from,
                   long double *to)
{
    const size_t pairs = s->width / 2;

    memcpy(to, from, p->d.B * s->heads * s->T * s->width * sizeof *to);
    for (size_t b = 0; p->rope.on && b < p->d.B; b++)
        for (size_t h = 0; h < s->heads; h++)
            for (size_t r = s->T_past; r < s->T; r++)
                for (size_t k = 0; k < pairs; k++) {
                    const long double pos = position(p, t, b, r - s->T_past, first);
                    const long double theta =
                        powl((long double)p->rope.base,
                             -2 * (long double)k / (long double)s->width);
                    const bool half = p->rope.layout == ATTN_ROPE_HALF;
                    const size_t row = ((b * s->heads + h) * s->T + r) * s->width;
                    const size_t u = row + (half ? k : 2 * k);
                    const size_t v = row + (half ? k + pairs : 2 * k + 1);

                    to[u] = from[u] * cosl(pos * theta) - from[v] * sinl(pos * theta);
                    to[v] = from[u] * sinl(pos * theta) + from[v] * cosl(pos * theta);
                }
}

static const struct attn_table *rope_table(const struct attn_problem *p, const char *name)
{
    static const struct attn_table none;

    for (size_t n = 0; n < p->position_count; n++)
        for (size_t a = 0; a < ATTN_PARAMS_MAX; a++)
            if (strcmp(p->position[n].row->name, "rope") == 0 &&
                strcmp(p->position[n].row->param[a].name, name) == 0)
                return &p->position[n].arg[a].table;
    return &none;
}

static void queries_keys_values(const struct attn_problem *p, struct ref_layer *l)
{
    const struct attn_dims *d = &p->d;
    const enum attn_input kv = p->form.source == ATTN_CROSS ? ATTN_IN_X_KV : ATTN_IN_X;
    const size_t wide = p->form.source == ATTN_CROSS ? d->d_model_kv : d->d_model;
    const struct side q = {ATTN_IN_X, ATTN_IN_Q, ATTN_IN_Q, ATTN_IN_W_Q, ATTN_IN_B_Q,
                           d->h,      d->d_k,    d->T_q,    0,           d->d_model};
    const struct side k = {kv,      ATTN_IN_K, ATTN_IN_PAST_K, ATTN_IN_W_K, ATTN_IN_B_K,
                           d->h_kv, d->d_k,    d->T_kv,        d->T_past,   wide};
    const struct side v = {kv,      ATTN_IN_V, ATTN_IN_PAST_V, ATTN_IN_W_V, ATTN_IN_B_V,
                           d->h_kv, d->d_v,    d->T_kv,        d->T_past,   wide};

    project(p, &q, l->t[ATTN_Q_PRE]);
    project(p, &k, l->t[ATTN_K_PRE]);
    project(p, &v, l->t[ATTN_V]);
    rotate(p, &q, rope_table(p, "q"), (long double)d->T_kv - (long double)d->T_q,
           l->t[ATTN_Q_PRE], l->t[ATTN_Q]);
    rotate(p, &k, rope_table(p, "k"), (long double)d->T_past, l->t[ATTN_K_PRE],
           l->t[ATTN_K]);
    memcpy(l->t[ATTN_PRESENT_K], l->t[ATTN_K],
           d->B * d->h_kv * d->T_kv * d->d_k * sizeof(long double));
    memcpy(l->t[ATTN_PRESENT_V], l->t[ATTN_V],
           d->B * d->h_kv * d->T_kv * d->d_v * sizeof(long double));
}

/* ---- one row of S, M, A, H ---- */

static void score_row(const struct attn_problem *p, struct ref_layer *l, size_t b,
                      size_t h, size_t i)
{
    const struct attn_dims *d = &p->d;
    const size_t row = (b * d->h + h) * d->T_q + i, g = h / (d->h / d->h_kv);

    for (size_t j = 0; j < d->T_kv; j++) {
        const long double *q = l->t[ATTN_Q] + row * d->d_k;
        const long double *k = l->t[ATTN_K] + ((b * d->h_kv + g) * d->T_kv + j) * d->d_k;
        const size_t ij = row * d->T_kv + j;
        long double s = 0;

        for (size_t c = 0; c < d->d_k; c++)
            s += p->score->bilinear ? q[c] * k[c]
                                    : in(p, ATTN_IN_V_A, c) * tanhl(q[c] + k[c]);
        l->t[ATTN_S_RAW][ij] = s;
        s = s * (long double)p->scale / (long double)p->temperature;
        if (p->softcap > 0)
            s = (long double)p->softcap * tanhl(s / (long double)p->softcap);
        l->t[ATTN_S][ij] = s;
        l->t[ATTN_ALLOWED][ij] = ref_allowed(p, b, h, i, j);
        l->t[ATTN_M][ij] = l->t[ATTN_ALLOWED][ij] != 0 ? ref_bias(p, b, h, i, j)
                                                       : -(long double)INFINITY;
        l->t[ATTN_S_MASKED][ij] = s + l->t[ATTN_M][ij];
    }
}

static void weight_row(const struct attn_problem *p, struct ref_layer *l, size_t b,
                       size_t h, size_t i)
{
    const size_t T = p->d.T_kv, row = (b * p->d.h + h) * p->d.T_q + i;
    const long double *allowed = l->t[ATTN_ALLOWED] + row * T,
                      *sm = l->t[ATTN_S_MASKED] + row * T;
    long double *a = l->t[ATTN_A] + row * T, max = -(long double)INFINITY, sum = 0;

    l->empty[row] = 1;
    for (size_t j = 0; j < T; j++)
        if (allowed[j] != 0) {
            l->empty[row] = 0;
            max = sm[j] > max ? sm[j] : max;
        }
    l->empty_count += l->empty[row];
    l->t[ATTN_LSE][row] = -(long double)INFINITY;
    for (size_t j = 0; l->empty[row] && j < T; j++)
        a[j] = p->empty_rows == ATTN_EMPTY_NAN       ? (long double)NAN
               : p->empty_rows == ATTN_EMPTY_UNIFORM ? 1 / (long double)T
                                                     : 0;
    if (l->empty[row])
        return;
    if (p->in[ATTN_IN_SINK].p) {
        max = fmaxl(max, in(p, ATTN_IN_SINK, h));
        sum = expl(in(p, ATTN_IN_SINK, h) - max);
    }
    for (size_t j = 0; j < T; j++)
        sum += allowed[j] != 0 ? expl(sm[j] - max) : 0;
    for (size_t j = 0; j < T; j++)
        a[j] = allowed[j] != 0 ? expl(sm[j] - max) / sum : 0;
    l->t[ATTN_LSE][row] = max + logl(sum);
}

static void value_row(const struct attn_problem *p, struct ref_layer *l, size_t b,
                      size_t h, size_t i)
{
    const struct attn_dims *d = &p->d;
    const size_t row = (b * d->h + h) * d->T_q + i, g = h / (d->h / d->h_kv);

    for (size_t c = 0; c < d->d_v; c++) {
        long double sum = 0;

        for (size_t j = 0; j < d->T_kv; j++) {
            const size_t ij = row * d->T_kv + j;
            const long double v =
                l->t[ATTN_V][((b * d->h_kv + g) * d->T_kv + j) * d->d_v + c];
            const long double part = l->t[ATTN_A][ij] == 0 && l->t[ATTN_ALLOWED][ij] == 0
                                         ? 0
                                         : l->t[ATTN_A][ij] * v;

            l->t[ATTN_CONTRIBUTIONS][ij * d->d_v + c] = part;
            sum += part;
        }
        l->t[ATTN_H_HEADS][row * d->d_v + c] = sum;
        l->t[ATTN_H][((b * d->T_q + i) * d->h + h) * d->d_v + c] = sum;
    }
}

static void output(const struct attn_problem *p, struct ref_layer *l)
{
    const struct attn_dims *d = &p->d;
    const size_t joined = d->h * d->d_v;

    for (size_t row = 0; row < d->B * d->T_q; row++)
        for (size_t m = 0; m < d->d_model; m++) {
            long double sum = p->in[ATTN_IN_B_O].p ? in(p, ATTN_IN_B_O, m) : 0;

            for (size_t c = 0; c < joined; c++)
                sum += l->t[ATTN_H][row * joined + c] *
                       in(p, ATTN_IN_W_O, c * d->d_model + m);
            l->t[ATTN_Y][row * d->d_model + m] = sum;
        }
}

void ref_forward(const struct attn_problem *p, struct ref_layer *layer)
{
    *layer = (struct ref_layer){.empty = calloc(p->d.B * p->d.h * p->d.T_q, 1)};
    for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++) {
        struct attn_tensor shape;

        if (!attn_object_exists(p, (enum attn_object)o))
            continue;
        attn_object_full_shape(p, (enum attn_object)o, &shape);
        layer->t[o] = numbers(attn_tensor_count(&shape));
    }
    queries_keys_values(p, layer);
    for (size_t b = 0; b < p->d.B; b++)
        for (size_t h = 0; h < p->d.h; h++)
            for (size_t i = 0; i < p->d.T_q; i++) {
                score_row(p, layer, b, h, i);
                weight_row(p, layer, b, h, i);
                value_row(p, layer, b, h, i);
            }
    if (layer->t[ATTN_Y])
        output(p, layer);
}

void ref_free(struct ref_layer *layer)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        free(layer->t[o]);
    free(layer->empty);
}

bool ref_same(const struct attn_problem *p, enum attn_object o,
              const struct attn_tensor *got, const struct ref_layer *layer,
              double tolerance)
{
    struct attn_tensor shape;

    attn_object_full_shape(p, o, &shape);
    for (size_t n = 0; n < attn_tensor_count(&shape); n++) {
        const long double want = layer->t[o][n],
                          is = (long double)attn_tensor_get(got, n);

        if (isnan(want) ? isnan(is)
            : isinf(want)
                ? is == want
                : fabsl(is - want) <= (long double)tolerance * fmaxl(1, fabsl(want)))
            continue;
        fprintf(stderr, "%s at %zu: expected %.20Lg, got %.20Lg\n", ATTN_OBJECTS[o].name,
                n, want, is);
        return false;
    }
    return true;
}
