/*
 * make_problem.c - see make_problem.h.
 * Not here: what is right (ref_forward.c).
 * Start reading at make_problem.
 */
#include "make_problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct make_features MAKE_ALL = {true, true, true, true, true, true, true,
                                       true, true, true, true, true, true};
const struct make_features MAKE_PLAIN = {0};
const struct attn_dims MAKE_DISTINCT = {.B = 2,
                                        .T_q = 3,
                                        .T_kv = 5,
                                        .T_past = 1,
                                        .d_model = 7,
                                        .d_model_kv = 11,
                                        .d_k = 13,
                                        .d_v = 17,
                                        .h = 6,
                                        .h_kv = 2};

static uint64_t draw(struct made *m) /* SplitMix64 (Steele, Lea, Flood 2014) */
{
    uint64_t z = m->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double uniform(struct made *m)
{
    return (double)(draw(m) >> 11) * 0x1p-53;
}

double make_normal(struct made *m)
{
    return sqrt(-2 * log(1 - uniform(m))) * cos(6.283185307179586 * uniform(m));
}

size_t make_below(struct made *m, size_t n)
{
    return (size_t)(draw(m) % n);
}

static bool coin(struct made *m, bool may)
{
    return may && make_below(m, 3) == 0;
}

void *make_block(struct made *m, size_t bytes)
{
    void *p = NULL;

    if (m->blocks == MAKE_BLOCKS_MAX || posix_memalign(&p, 64, bytes ? bytes : 1) != 0)
        abort();
    m->block[m->blocks++] = p;
    return p;
}

static void fill_input(struct made *m, enum attn_input n, double by)
{
    struct attn_tensor *t = &m->p.in[n];

    *t = (struct attn_tensor){.dtype = m->p.dtype};
    for (const enum attn_axis *a = ATTN_INPUTS[n].axis;
         t->rank < 4 && a[t->rank] != ATTN_AX_END;)
        t->dim[t->rank] = attn_axis_size(&m->p.d, a[t->rank]), t->rank++;
    t->p = make_block(m, attn_tensor_count(t) * attn_dtype_bytes(t->dtype));
    for (size_t i = 0; i < attn_tensor_count(t); i++) {
        const double x = by * make_normal(m);

        if (t->dtype == ATTN_F64)
            ((double *)t->p)[i] = x;
        else
            ((float *)t->p)[i] = (float)x;
    }
}

static void fill_inputs(struct made *m, bool biases)
{
    const struct attn_dims *d = &m->p.d;
    const double w = 1 / sqrt((double)d->d_model), wide = 1 / sqrt((double)d->d_model_kv);

    if (m->p.form.source == ATTN_PROJECTED) {
        fill_input(m, ATTN_IN_Q, 1);
        fill_input(m, ATTN_IN_K, 1);
        fill_input(m, ATTN_IN_V, 1);
    } else {
        fill_input(m, ATTN_IN_X, 1);
        fill_input(m, ATTN_IN_W_Q, w);
        fill_input(m, ATTN_IN_W_K, wide);
        fill_input(m, ATTN_IN_W_V, wide);
    }
    if (m->p.form.source == ATTN_CROSS)
        fill_input(m, ATTN_IN_X_KV, 1);
    if (m->p.form.has_output)
        fill_input(m, ATTN_IN_W_O, 1 / sqrt((double)(d->h * d->d_v)));
    if (d->T_past > 0) {
        fill_input(m, ATTN_IN_PAST_K, 1);
        fill_input(m, ATTN_IN_PAST_V, 1);
    }
    for (int n = ATTN_IN_B_Q;
         biases && n < ATTN_IN_B_O && m->p.form.source != ATTN_PROJECTED; n++)
        fill_input(m, (enum attn_input)n, 0.5);
    if (biases && m->p.form.has_output)
        fill_input(m, ATTN_IN_B_O, 0.5);
}

/* ---- features ---- */

static struct attn_table pairs_table(struct made *m, enum attn_elem elem, size_t bytes)
{
    const struct attn_dims *d = &m->p.d;
    const size_t per = d->T_q * d->T_kv, kind = make_below(m, 3);

    return (struct attn_table){.elem = elem,
                               .p = make_block(m, d->B * d->h * per * bytes),
                               .stride_b = kind == 0   ? 0
                                           : kind == 1 ? per
                                                       : d->h * per,
                               .stride_h = kind == 2 ? per : 0,
                               .stride_i = d->T_kv};
}

static void add_pairs(struct made *m)
{
    struct attn_mask *mask = make_mask(m, make_below(m, 2) ? "allowed" : "blocked");
    struct attn_table t = pairs_table(m, ATTN_ELEM_U8, 1);

    for (size_t n = 0; n < m->p.d.B * m->p.d.h * m->p.d.T_q * m->p.d.T_kv; n++)
        ((uint8_t *)t.p)[n] = make_below(m, 3) > 0;
    mask->arg[0].given = true;
    mask->arg[0].table = t;
}

static void add_bias(struct made *m)
{
    struct attn_table t = pairs_table(m, ATTN_ELEM_F64, sizeof(double));

    for (size_t n = 0; n < m->p.d.B * m->p.d.h * m->p.d.T_q * m->p.d.T_kv; n++)
        ((double *)t.p)[n] = make_below(m, 5) == 0 ? -INFINITY : make_normal(m);
    m->p.additive = t;
}

static void add_padding(struct made *m)
{
    const struct attn_dims *d = &m->p.d;
    struct attn_mask *mask = make_mask(m, "padding");
    int64_t *lengths = make_block(m, d->B * sizeof *lengths);
    uint8_t *valid = make_block(m, d->B * d->T_kv);
    const size_t form = make_below(m, 2);

    for (size_t b = 0; b < d->B; b++)
        lengths[b] = (int64_t)make_below(m, d->T_kv + 1);
    for (size_t n = 0; n < d->B * d->T_kv; n++)
        valid[n] = make_below(m, 4) > 0;
    mask->arg[form].given = true;
    mask->arg[form].table =
        form == 0
            ? (struct attn_table){.elem = ATTN_ELEM_I64, .p = lengths, .stride_b = 1}
            : (struct attn_table){.elem = ATTN_ELEM_U8, .p = valid, .stride_b = d->T_kv};
}

static void add_documents(struct made *m)
{
    const struct attn_dims *d = &m->p.d;
    struct attn_mask *mask = make_mask(m, "documents");
    int64_t *ids = make_block(m, d->B * d->T_kv * sizeof *ids);
    int64_t id = 0;

    for (size_t n = 0; n < d->B * d->T_kv; n++) {
        if (make_below(m, 4) == 0)
            id = (int64_t)make_below(m, 4) - 1;
        ids[n] = id;
    }
    mask->arg[0].given = true;
    mask->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_I64, .p = ids, .stride_b = d->T_kv};
}

static void add_window(struct made *m)
{
    struct attn_mask *mask = make_mask(m, "window");

    for (size_t side = 0; side < 2; side++) {
        mask->arg[side].given = make_below(m, 2) > 0;
        mask->arg[side].number = (int64_t)make_below(m, m->p.d.T_kv + 1) - 1;
    }
}

static void add_rope(struct made *m)
{
    const struct attn_dims *d = &m->p.d;
    struct attn_arg *rope = make_position(m, "rope")->arg;
    double *q = make_block(m, d->T_q * sizeof *q);

    rope[0].number = make_below(m, 2) ? ATTN_ROPE_HALF : ATTN_ROPE_INTERLEAVED;
    for (size_t i = 0; i < d->T_q; i++)
        q[i] = (double)make_below(m, 100);
    if (make_below(m, 2))
        rope[2].table = (struct attn_table){.elem = ATTN_ELEM_F64, .p = q};
}

static void add_alibi(struct made *m)
{
    double *slopes = make_block(m, m->p.d.h * sizeof *slopes);

    attn_alibi_standard(m->p.d.h, slopes);
    make_position(m, "alibi")->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_F64, .p = slopes};
}

static void add_features(struct made *m, const struct make_features *may)
{
    const struct attn_dims *d = &m->p.d;

    if (coin(m, may->rope && d->d_k % 2 == 0))
        add_rope(m);
    if (coin(m, may->alibi))
        add_alibi(m);
    if (coin(m, may->sink))
        fill_input(m, ATTN_IN_SINK, 2);
    if (coin(m, may->softcap))
        m->p.softcap = 1.5;
    if (coin(m, may->softcap))
        m->p.temperature = 0.7;
    if (coin(m, may->additive_score)) {
        m->p.score = attn_score_find("additive");
        fill_input(m, ATTN_IN_V_A, 1);
    }
    if (coin(m, may->additive_bias))
        add_bias(m);
    if (coin(m, may->causal)) {
        struct attn_mask *mask = make_mask(m, "causal");

        mask->arg[0].given = true;
        mask->arg[0].number =
            make_below(m, 2) ? ATTN_ALIGN_TOP_LEFT : ATTN_ALIGN_BOTTOM_RIGHT;
    }
    if (coin(m, may->padding))
        add_padding(m);
    if (coin(m, may->documents && m->p.form.source != ATTN_CROSS &&
                    (d->T_q == d->T_kv - d->T_past)))
        add_documents(m);
    if (coin(m, may->window))
        add_window(m);
    if (coin(m, may->pairs))
        add_pairs(m);
}

/* ---- problems ---- */

struct attn_mask *make_mask(struct made *m, const char *name)
{
    for (size_t n = 0; n < m->p.mask_count; n++)
        if (strcmp(m->p.mask[n].row->name, name) == 0)
            return &m->p.mask[n];
    m->p.mask[m->p.mask_count].row = attn_mask_find(name);
    if (!m->p.mask[m->p.mask_count].row)
        abort();
    return &m->p.mask[m->p.mask_count++];
}

struct attn_position *make_position(struct made *m, const char *name)
{
    const struct attn_position_row *row = attn_position_find(name);
    struct attn_position *x = &m->p.position[m->p.position_count];

    if (!row || m->p.position_count == ATTN_POSITIONS_MAX)
        abort();
    m->p.position_count++;
    *x = attn_position_of_row(row);
    return x;
}

void make_prepare(struct made *m)
{
    struct attn_err err = {0};

    if (attn_prepare(&m->p, &err))
        return;
    fprintf(stderr, "seed %llu: code %d at %s\n", (unsigned long long)m->seed,
            (int)err.code, err.object);
    abort();
}

static void start(struct made *m, uint64_t seed, enum attn_dtype dtype)
{
    *m = (struct made){.seed = seed, .state = seed};
    m->p = (struct attn_problem){.dtype = dtype,
                                 .score = attn_score_find("dot_product"),
                                 .temperature = 1,
                                 .form = {.batch_axis = true, .head_axis = true}};
}

void make_problem(struct made *m, uint64_t seed, enum attn_dtype dtype, size_t most,
                  size_t T, const struct make_features *may)
{
    struct attn_dims *d = &m->p.d;

    start(m, seed, dtype);
    m->p.form.source = (enum attn_source)make_below(m, 3);
    m->p.form.has_output = make_below(m, 4) > 0;
    d->B = 1 + make_below(m, 3);
    d->h_kv = 1 + make_below(m, 2);
    d->h = d->h_kv * (1 + make_below(m, 3));
    d->T_q = T ? T : 1 + make_below(m, most);
    d->T_past = coin(m, may->past) ? 1 + make_below(m, most) : 0;
    d->T_kv = d->T_past + (m->p.form.source == ATTN_SELF || make_below(m, 2)
                               ? d->T_q
                               : 1 + make_below(m, most));
    d->d_k = 1 + make_below(m, most);
    d->d_v = 1 + make_below(m, most);
    d->d_model = 1 + make_below(m, most);
    d->d_model_kv = m->p.form.source == ATTN_CROSS ? 1 + make_below(m, most) : d->d_model;
    if (may->empty_rows)
        m->p.empty_rows = (enum attn_empty)make_below(m, ATTN_EMPTY_ERROR);
    fill_inputs(m, make_below(m, 2) > 0);
    add_features(m, may);
    make_prepare(m);
}

void make_plain(struct made *m, uint64_t seed, enum attn_dtype dtype,
                enum attn_source source, struct attn_dims d)
{
    start(m, seed, dtype);
    m->p.d = d;
    m->p.form.source = source;
    m->p.form.has_output = true;
    fill_inputs(m, false);
    make_prepare(m);
}

void make_free(struct made *m)
{
    for (size_t n = 0; n < m->blocks; n++)
        free(m->block[n]);
}
