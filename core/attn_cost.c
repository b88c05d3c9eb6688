/*
 * attn_cost.c - what a problem costs, counted from its sizes and rules without any
 * tensor. Not here: measured time (server/), limits (attn_plan.c). Start reading at
 * attn_cost.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <string.h>

enum { CHUNK = 512, ROWS_BETWEEN_POLLS = 64 };

/* ---- saturating arithmetic ---- */

static uint64_t times(uint64_t a, uint64_t b)
{
    return a != 0 && b > UINT64_MAX / a ? UINT64_MAX : a * b;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static uint64_t product(size_t n, const size_t *factor)
{
    uint64_t p = 1;

    for (size_t f = 0; f < n; f++)
        p = times(p, factor[f]);
    return p;
}
#define PRODUCT(...)                                                \
    product(sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t), \
            (const size_t[]){__VA_ARGS__})

/* ---- allowed pairs ---- */

struct count {
    const struct attn_problem *p;
    const struct attn_exec *exec;
    size_t rows;
};

static bool stopped(struct count *c)
{
    return c->rows++ % ROWS_BETWEEN_POLLS == 0 && c->exec != NULL &&
           c->exec->stop != NULL && c->exec->stop(c->exec->ctx);
}

static uint64_t count_row(const struct attn_problem *p, size_t b, size_t h, size_t i)
{
    uint8_t allow[CHUNK];
    uint64_t allowed = 0;
    size_t j0, j1;
    bool exact;

    attn_allow_range(p, b, h, i, &j0, &j1, &exact);
    if (exact)
        return j1 - j0;
    for (size_t j = j0; j < j1; j += CHUNK) {
        const size_t end = j1 - j < CHUNK ? j1 : j + CHUNK;

        attn_allow_row(p, b, h, i, j, end, allow);
        for (size_t n = 0; n < end - j; n++)
            allowed += allow[n];
    }
    return allowed;
}

static bool count_head(struct count *c, size_t b, size_t h, uint64_t *allowed)
{
    for (size_t i = 0; i < c->p->d.T_q; i++) {
        if (stopped(c))
            return false;
        *allowed = plus(*allowed, count_row(c->p, b, h, i));
    }
    return true;
}

/* Whether any rule differs between items, or between heads. */
static void rules_differ(const struct attn_problem *p, bool *items, bool *heads)
{
    *items = p->additive.p != NULL && p->additive.stride_b != 0;
    *heads = p->additive.p != NULL && p->additive.stride_h != 0;
    for (size_t n = 0; n < p->mask_count; n++)
        for (size_t a = 0; a < ATTN_PARAMS_MAX; a++) {
            const struct attn_table *t = &p->mask[n].arg[a].table;

            *items = *items || (t->p != NULL && t->stride_b != 0);
            *heads =
                *heads || (t->p != NULL && t->stride_h != 0 && p->mask[n].row->per_head);
        }
}

/* Pairs that every rule allows, over all items and heads; what is alike is counted once.
 */
static bool count_allowed(const struct attn_problem *p, const struct attn_exec *exec,
                          uint64_t *allowed)
{
    struct count c = {.p = p, .exec = exec};
    bool items, heads;

    rules_differ(p, &items, &heads);
    *allowed = 0;
    for (size_t b = 0; b < (items ? p->d.B : 1); b++)
        for (size_t h = 0; h < (heads ? p->d.h : 1); h++)
            if (!count_head(&c, b, h, allowed))
                return false;
    *allowed = times(*allowed, items ? 1 : p->d.B);
    *allowed = times(*allowed, heads ? 1 : p->d.h);
    return true;
}

/* ---- work ---- */

/* One multiply-add a term of each inner product; biases, exp and tanh are not counted. */
static void count_work(const struct attn_problem *p, struct attn_cost *c)
{
    const struct attn_dims *d = &p->d;
    const size_t T_new = d->T_kv - d->T_past;
    const bool projects = p->form.source != ATTN_PROJECTED;

    c->multiply_adds.Q = projects ? PRODUCT(d->B, d->T_q, d->d_model, d->h, d->d_k) : 0;
    c->multiply_adds.K =
        projects ? PRODUCT(d->B, T_new, d->d_model_kv, d->h_kv, d->d_k) : 0;
    c->multiply_adds.V =
        projects ? PRODUCT(d->B, T_new, d->d_model_kv, d->h_kv, d->d_v) : 0;
    c->multiply_adds.S = PRODUCT(d->B, d->h, d->T_q, d->T_kv, d->d_k);
    c->multiply_adds.H = PRODUCT(d->B, d->h, d->T_q, d->T_kv, d->d_v);
    c->multiply_adds.Y =
        p->form.has_output ? PRODUCT(d->B, d->T_q, d->h, d->d_v, d->d_model) : 0;

    const uint64_t projections = plus(plus(c->multiply_adds.Q, c->multiply_adds.K),
                                      plus(c->multiply_adds.V, c->multiply_adds.Y));

    c->multiply_adds.total =
        plus(projections, plus(c->multiply_adds.S, c->multiply_adds.H));
    c->multiply_adds.allowed_total =
        plus(projections, times(c->allowed_total, plus(d->d_k, d->d_v)));
}

/* ---- bytes ---- */

static uint64_t object_bytes(const struct attn_problem *p, enum attn_object o)
{
    struct attn_tensor shape;

    attn_object_full_shape(p, o, &shape);
    return times(product(shape.rank, shape.dim), attn_dtype_bytes(shape.dtype));
}

/* What the tiled path keeps beyond its inputs: the objects it needs, and for one block of
   query rows one tile of scores with a running maximum and sum a row. */
static uint64_t tiled_bytes(const struct attn_problem *p)
{
    static const enum attn_object kept[] = {ATTN_Q, ATTN_K,   ATTN_V,
                                            ATTN_H, ATTN_LSE, ATTN_Y};
    const size_t rows = p->d.T_q < ATTN_ROW_BLOCK ? p->d.T_q : ATTN_ROW_BLOCK;
    const size_t tile = attn_tile_keys(p->dtype);
    const size_t keys = p->d.T_kv < tile ? p->d.T_kv : tile;
    uint64_t bytes = PRODUCT(rows, keys + 2, attn_dtype_bytes(p->dtype));

    for (size_t n = 0; n < ATTN_COUNT(kept); n++)
        if (attn_object_exists(p, kept[n]))
            bytes = plus(bytes, object_bytes(p, kept[n]));
    return bytes;
}

/* all_intermediates adds up the objects of a default answer: Q K V S M A H Y. */
static void count_bytes(const struct attn_problem *p, struct attn_cost *c)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        if (!attn_object_exists(p, (enum attn_object)o))
            continue;
        c->bytes[o] = object_bytes(p, (enum attn_object)o);
        if (ATTN_OBJECTS[o].by_default)
            c->all_intermediates = plus(c->all_intermediates, c->bytes[o]);
    }
    c->score_matrix = c->bytes[ATTN_S];
    c->tiled_working_set = tiled_bytes(p);
}

/* ---- growth and generation ---- */

/* Rows at T, 2T, 4T, 8T, T = T_q.  The keys, cached ones too, grow by the same factor,
   whatever their source; pairs and bytes are those of all items and heads. */
static void count_scaling(const struct attn_problem *p, struct attn_cost *c)
{
    for (size_t n = 0; n < ATTN_COUNT(c->scaling); n++) {
        struct attn_problem longer = {.d = p->d, .form = p->form, .dtype = p->dtype};
        struct attn_cost work = {0};
        const size_t factor = (size_t)1 << n;

        longer.d.T_q *= factor;
        longer.d.T_kv *= factor;
        longer.d.T_past *= factor;
        count_work(&longer, &work);
        c->scaling[n].T = longer.d.T_q;
        c->scaling[n].pairs =
            PRODUCT(longer.d.B, longer.d.h, longer.d.T_q, longer.d.T_kv);
        c->scaling[n].multiply_adds = work.multiply_adds.total;
        c->scaling[n].score_bytes = object_bytes(&longer, ATTN_S);
    }
}

/*
 * Pairs of one sequence and head when the T_q rows are generated one after the other.
 * Keys grow with the queries when they are new with them (self-attention; projected with
 * T_q = T_new): step t = 1 … T_q sees n_t = T_past + t keys; otherwise (cross) every step
 * sees n_t = T_kv. With a cache a step computes one row: sum_t n_t.  Without, it computes
 * all rows so far again: sum_t n_t^2 where keys grow (T_past rows are recomputed too),
 * sum_t t * T_kv otherwise.
 */
static void count_generation(const struct attn_problem *p, struct attn_cost *c)
{
    const struct attn_dims *d = &p->d;
    const bool grows = p->form.source != ATTN_CROSS && d->T_q == d->T_kv - d->T_past;
    uint64_t with = 0, without = 0;

    for (size_t t = 1; t <= d->T_q; t++) {
        const size_t keys = grows ? d->T_past + t : d->T_kv;

        with = plus(with, keys);
        without = plus(without, times(keys, grows ? keys : t));
    }
    c->generation.parallel_training_steps = 1;
    c->generation.autoregressive_steps = d->T_q;
    c->generation.pairs_with_cache = with;
    c->generation.pairs_without_cache = without;
    c->generation.kv_cache_bytes =
        PRODUCT(d->B, d->h_kv, d->T_kv, d->d_k + d->d_v, attn_dtype_bytes(p->dtype));
}

bool attn_cost(const struct attn_problem *p, const struct attn_exec *exec,
               struct attn_cost *cost, struct attn_err *err)
{
    const struct attn_dims *d = &p->d;

    *cost = (struct attn_cost){0};
    if (!count_allowed(p, exec, &cost->allowed_total))
        return attn_fail(err, ATTN_E_DEADLINE, NULL, NULL, 0, 0);
    cost->dense_per_sequence_per_head = PRODUCT(d->T_q, d->T_kv);
    cost->dense_total = PRODUCT(d->B, d->h, d->T_q, d->T_kv);
    cost->allowed_fraction = (double)cost->allowed_total / (double)cost->dense_total;
    cost->exponentials =
        plus(cost->allowed_total,
             p->in[ATTN_IN_SINK].p != NULL ? PRODUCT(d->B, d->h, d->T_q) : 0);
    count_work(p, cost);
    count_bytes(p, cost);
    count_scaling(p, cost);
    count_generation(p, cost);
    return true;
}
