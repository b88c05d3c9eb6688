/*
 * attn_grad_pairs.c - from dH back to dV, dA, dS, dQ, dK: what has T_q*T_kv numbers.
 * Not here: Y and the projections (attn_grad_inputs.c).
 * Start reading at one_kv_head: the group of query heads that read one key/value head.
 */
#include "core/attn_grad.h"

#include <math.h>
#include <string.h>

struct pairs_job { /* pieces are (b, key/value head): no two write one place */
    struct attn_grad_run *run;
    unsigned char *raw;   /* [pieces][block][T_kv] dS before the softcap */
    double *wide;         /* [pieces][...] rows in double for score functions */
    double *dsink, *dv_a; /* [B*h], [pieces][d_k]: summed in order at the end */
    size_t raw_bytes, wide_count;
};

struct block { /* rows i0 … i1-1 of query head h of item b */
    size_t b, h, kv, i0, i1, piece;
};

static bool has(const struct attn_grad_run *run, enum attn_gradient g)
{
    return run->g[g].p != NULL;
}

static struct attn_mat rows_of(const struct attn_tensor *t, const struct block *at)
{
    return attn_grad_rows_at(attn_slice(t, at->b, at->h), at->i0, at->i1);
}

static struct attn_mat dh_of(const struct attn_grad_run *run, const struct block *at)
{
    const size_t d_v = run->p->d.d_v;
    struct attn_mat dH = attn_slice(&run->g[ATTN_DH], at->b, 0);

    return attn_grad_columns(attn_grad_rows_at(dH, at->i0, at->i1), at->h * d_v, d_v);
}

/* dA = dH V^T at every pair; dV += A^T dH over the rows whose A counts. */
static void values_back(struct attn_grad_run *run, const struct block *at)
{
    if (!has(run, ATTN_DH))
        return;
    if (has(run, ATTN_DA))
        attn_gemm(rows_of(&run->g[ATTN_DA], at), dh_of(run, at), false,
                  attn_slice(&run->trace->t[ATTN_V], at->b, at->kv), true, 1.0, 0.0);
    if (!has(run, ATTN_DV))
        return;

    struct block live = *at;

    live.i1 = at->i0;
    while (attn_grad_next_rows(run, at->b, at->h, at->i1, &live.i0, &live.i1))
        attn_gemm(attn_slice(&run->g[ATTN_DV], at->b, at->kv),
                  rows_of(&run->trace->t[ATTN_A], &live), true, dh_of(run, &live), false,
                  1.0, 1.0);
}

static void *row_at(struct attn_mat m, size_t i)
{
    return (unsigned char *)m.p + i * m.ld * attn_dtype_bytes(m.dtype);
}

static bool is_empty(const struct attn_grad_run *run, const struct block *at, size_t i)
{
    const struct attn_dims *d = &run->p->d;

    return run->trace->empty != NULL &&
           run->trace->empty[(at->b * d->h + at->h) * d->T_q + i];
}

/* dS from A and dA, row by row; empty rows stay exactly 0, whatever stands in A. */
static void softmax_back(struct pairs_job *job, const struct block *at)
{
    struct attn_grad_run *run = job->run;
    const size_t T_kv = run->p->d.T_kv;

    if (!has(run, ATTN_DS) || attn_grad_known(run->ask) == ATTN_DS)
        return;

    const struct attn_mat A = rows_of(&run->trace->t[ATTN_A], at);
    const struct attn_mat dA = rows_of(&run->g[ATTN_DA], at);
    const struct attn_mat dS = rows_of(&run->g[ATTN_DS], at);

    for (size_t i = 0; i < A.rows; i++) {
        if (is_empty(run, at, at->i0 + i))
            continue;

        double mass;
        const double mean =
            run->rows->softmax(T_kv, row_at(A, i), row_at(dA, i), row_at(dS, i), &mass);

        /* The sink's own weight is what the keys' weights leave of 1. */
        job->dsink[at->b * run->p->d.h + at->h] -= (1.0 - mass) * mean;
    }
}

/* The cotangent of scale*score: dS where there is no softcap, else dS (1 - tanh^2). */
static struct attn_mat uncap(struct pairs_job *job, const struct block *at)
{
    struct attn_grad_run *run = job->run;
    struct attn_mat dS = rows_of(&run->g[ATTN_DS], at);

    if (!(run->p->softcap > 0.0))
        return dS;

    const struct attn_mat S = rows_of(&run->trace->t[ATTN_S], at);
    struct attn_mat raw = {dS.dtype, job->raw + at->piece * job->raw_bytes, dS.rows,
                           dS.cols, dS.cols};

    for (size_t i = 0; i < dS.rows; i++)
        run->rows->softcap(dS.cols, row_at(S, i), run->p->softcap, row_at(dS, i),
                           row_at(raw, i));
    return raw;
}

/* Any score function, pair by pair in double. */
static void pair_back(struct pairs_job *job, const struct block *at, struct attn_mat raw,
                      double factor)
{
    struct attn_grad_run *run = job->run;
    const struct attn_problem *p = run->p;
    const size_t d_k = p->d.d_k, T_kv = p->d.T_kv;
    double *k = job->wide + at->piece * job->wide_count, *dk = k + T_kv * d_k;
    double *q = dk + T_kv * d_k, *dq = q + d_k, *v_a = dq + d_k, *ds = v_a + d_k;
    double *dv = job->dv_a + at->piece * d_k;
    const struct attn_mat Q = rows_of(&run->trace->t[ATTN_Q], at);

    for (size_t i = 0; i < raw.rows; i++) {
        run->kernel->to_double(d_k, row_at(Q, i), q);
        run->kernel->to_double(T_kv, row_at(raw, i), ds);
        memset(dq, 0, d_k * sizeof *dq);
        for (size_t j = 0; j < T_kv; j++)
            if (ds[j] != 0.0)
                p->score->pair(d_k, q, k + j * d_k, v_a, ds[j] * factor, dq, dk + j * d_k,
                               dv);
        if (has(run, ATTN_DQ))
            run->kernel->from_double(d_k, dq, row_at(rows_of(&run->g[ATTN_DQ], at), i));
    }
}

/* dQ = scale raw K, dK += scale raw^T Q. */
static void scores_back(struct pairs_job *job, const struct block *at)
{
    struct attn_grad_run *run = job->run;
    const double factor = run->p->scale / run->p->temperature;

    if (!has(run, ATTN_DQ) && !has(run, ATTN_DK) && !has(run, ATTN_DV_A))
        return;

    const struct attn_mat raw = uncap(job, at);

    if (!run->p->score->bilinear) {
        pair_back(job, at, raw, factor);
        return;
    }
    if (has(run, ATTN_DQ))
        attn_gemm(rows_of(&run->g[ATTN_DQ], at), raw, false,
                  attn_slice(&run->trace->t[ATTN_K], at->b, at->kv), false, factor, 0.0);
    if (has(run, ATTN_DK))
        attn_gemm(attn_slice(&run->g[ATTN_DK], at->b, at->kv), raw, true,
                  rows_of(&run->trace->t[ATTN_Q], at), false, factor, 1.0);
}

/* Rows of one key/value head in double before its query heads are walked, and back
   after. */
static void widen_keys(struct pairs_job *job, size_t b, size_t kv, size_t piece)
{
    const struct attn_problem *p = job->run->p;
    const size_t d_k = p->d.d_k, T_kv = p->d.T_kv;
    double *k = job->wide + piece * job->wide_count;

    job->run->kernel->to_double(T_kv * d_k,
                                attn_slice(&job->run->trace->t[ATTN_K], b, kv).p, k);
    memset(k + T_kv * d_k, 0, T_kv * d_k * sizeof *k);
    if (p->in[ATTN_IN_V_A].p != NULL)
        job->run->kernel->to_double(d_k, p->in[ATTN_IN_V_A].p,
                                    k + 2 * T_kv * d_k + 2 * d_k);
}

static void one_kv_head(void *arg, size_t piece)
{
    struct pairs_job *job = arg;
    struct attn_grad_run *run = job->run;
    const struct attn_dims *d = &run->p->d;
    const size_t b = piece / d->h_kv, kv = piece % d->h_kv, group = d->h / d->h_kv;

    if (job->wide != NULL)
        widen_keys(job, b, kv, piece);
    for (size_t h = kv * group; h < (kv + 1) * group; h++)
        for (size_t i0 = 0; i0 < d->T_q; i0 += ATTN_ROW_BLOCK) {
            const size_t i1 = i0 + ATTN_ROW_BLOCK < d->T_q ? i0 + ATTN_ROW_BLOCK : d->T_q;
            const struct block at = {b, h, kv, i0, i1, piece};

            if (attn_grad_stopped(run))
                return;
            values_back(run, &at);
            softmax_back(job, &at);
            scores_back(job, &at);
        }
    if (job->wide != NULL && has(run, ATTN_DK))
        run->kernel->from_double(d->T_kv * d->d_k,
                                 job->wide + piece * job->wide_count + d->T_kv * d->d_k,
                                 attn_slice(&run->g[ATTN_DK], b, kv).p);
}

/* The sums over pieces, in one order whoever computed them. */
static void gather(struct pairs_job *job)
{
    struct attn_grad_run *run = job->run;
    const struct attn_dims *d = &run->p->d;

    for (size_t n = d->h; n < d->B * d->h; n++)
        job->dsink[n % d->h] += job->dsink[n];
    for (size_t n = d->d_k; n < d->B * d->h_kv * d->d_k; n++)
        job->dv_a[n % d->d_k] += job->dv_a[n];
    if (has(run, ATTN_DSINK))
        run->kernel->from_double(d->h, job->dsink, run->g[ATTN_DSINK].p);
    if (has(run, ATTN_DV_A))
        run->kernel->from_double(d->d_k, job->dv_a, run->g[ATTN_DV_A].p);
}

static size_t block_rows(const struct attn_dims *d)
{
    return d->T_q < ATTN_ROW_BLOCK ? d->T_q : ATTN_ROW_BLOCK;
}

static struct pairs_job sizes(const struct attn_problem *p)
{
    const struct attn_dims *d = &p->d;
    struct pairs_job job = {0};

    if (p->softcap > 0.0)
        job.raw_bytes =
            (block_rows(d) * d->T_kv * attn_dtype_bytes(p->dtype) + ATTN_ALIGN - 1) /
            ATTN_ALIGN * ATTN_ALIGN;
    if (!p->score->bilinear)
        job.wide_count = 2 * d->T_kv * d->d_k + 3 * d->d_k + d->T_kv;
    return job;
}

size_t attn_grad_pairs_bytes(const struct attn_problem *p)
{
    const struct pairs_job job = sizes(p);
    const size_t pieces = p->d.B * p->d.h_kv;

    return pieces * (job.raw_bytes + job.wide_count * sizeof(double)) +
           (p->d.B * p->d.h + pieces * p->d.d_k) * sizeof(double) + 4 * ATTN_ALIGN;
}

static void *take_zeros(struct attn_arena *arena, size_t bytes)
{
    void *p = attn_arena_take(arena, bytes);

    return p == NULL ? NULL : memset(p, 0, bytes);
}

bool attn_grad_pairs(struct attn_grad_run *run, struct attn_err *err)
{
    struct attn_arena *arena = run->arena;
    const struct attn_dims *d = &run->p->d;
    const size_t pieces = d->B * d->h_kv, mark = attn_arena_mark(arena);
    struct pairs_job job = sizes(run->p);
    bool room = true;

    job.run = run;
    job.dsink = take_zeros(arena, d->B * d->h * sizeof(double));
    job.dv_a = take_zeros(arena, pieces * d->d_k * sizeof(double));
    if (job.raw_bytes > 0)
        room = (job.raw = attn_arena_take(arena, pieces * job.raw_bytes)) != NULL;
    if (room && job.wide_count > 0)
        room = (job.wide = attn_arena_take(arena, pieces * job.wide_count *
                                                      sizeof(double))) != NULL;
    if (!room || job.dsink == NULL || job.dv_a == NULL)
        return attn_fail(err, ATTN_E_MEMORY, "dS", NULL, arena->size,
                         attn_grad_pairs_bytes(run->p));
    attn_grad_pieces(run, pieces, one_kv_head, &job);
    gather(&job);
    attn_arena_release(arena, mark);
    if (attn_grad_stopped(run))
        return attn_fail(err, ATTN_E_DEADLINE, "dS", NULL, 0, 0);
    return true;
}
