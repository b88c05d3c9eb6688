/*
 * attn_grad_inputs.c - through the projections: dW_*, db_*, dX, dX_kv, and from dY to dH.
 * Not here: what has T_q*T_kv numbers (attn_grad_pairs.c).
 * Start reading at PATHS: the three ways from the input to the scores and values.
 */
#include "core/attn_grad.h"

#include <string.h>

struct path_row { /* X W + b = tensor, one of Q, K, V */
    enum attn_gradient of, dW, db;
    enum attn_input W;
    bool key_side; /* reads X_kv in cross-attention, has cached rows first */
    bool rotates;  /* a turn may stand between the product and the tensor */
};

/* clang-format off */
static const struct path_row PATHS[] = {
    { ATTN_DQ, ATTN_DW_Q, ATTN_DB_Q, ATTN_IN_W_Q, false, true  },
    { ATTN_DK, ATTN_DW_K, ATTN_DB_K, ATTN_IN_W_K, true,  true  },
    { ATTN_DV, ATTN_DW_V, ATTN_DB_V, ATTN_IN_W_V, true,  false },
};
/* clang-format on */

struct path_job {
    struct attn_grad_run *run;
    const struct path_row *path;
    struct attn_tensor d; /* cotangent of X W + b: (B, heads, rows, width) */
    size_t first;         /* rows of d before the first that flows back */
    enum attn_input source;
    enum attn_gradient dX;
};

static bool has(const struct attn_grad_run *run, enum attn_gradient g)
{
    return run->g[g].p != NULL;
}

/* The new rows of one head's cotangent. */
static struct attn_mat new_rows(const struct path_job *job, size_t b, size_t h)
{
    const struct attn_mat m = attn_slice(&job->d, b, h);

    return attn_grad_rows_at(m, job->first, m.rows);
}

static struct attn_mat matrix(const struct attn_tensor *t)
{
    return (struct attn_mat){t->dtype, t->p, t->dim[0], t->dim[1], t->dim[1]};
}

/* dW's columns of head h: sum over items of X^T d. */
static void weight_head(void *arg, size_t h)
{
    struct path_job *job = arg;
    const size_t width = job->d.dim[3];
    const struct attn_mat dW = matrix(&job->run->g[job->path->dW]);

    for (size_t b = 0; b < job->d.dim[0]; b++)
        attn_gemm(attn_grad_columns(dW, h * width, width),
                  attn_slice(&job->run->p->in[job->source], b, 0), true,
                  new_rows(job, b, h), false, 1.0, b > 0 ? 1.0 : 0.0);
}

/* dX of item b: sum over heads of d W^T, added to what the other paths brought. */
static void input_item(void *arg, size_t b)
{
    struct path_job *job = arg;
    const size_t width = job->d.dim[3];
    const struct attn_mat W = matrix(&job->run->p->in[job->path->W]);

    for (size_t h = 0; h < job->d.dim[1]; h++)
        attn_gemm(attn_slice(&job->run->g[job->dX], b, 0), new_rows(job, b, h), false,
                  attn_grad_columns(W, h * width, width), true, 1.0, 1.0);
}

/* db of head h: column sums in double. */
static void bias_head(struct path_job *job, size_t h, double *sum)
{
    const struct attn_grad_rows *rows = job->run->rows;
    const size_t width = job->d.dim[3], size = attn_dtype_bytes(job->d.dtype);

    memset(sum, 0, width * sizeof *sum);
    for (size_t b = 0; b < job->d.dim[0]; b++) {
        const struct attn_mat d = new_rows(job, b, h);

        for (size_t i = 0; i < d.rows; i++)
            rows->add(width, (const unsigned char *)d.p + i * d.ld * size, sum);
    }
    job->run->kernel->from_double(
        width, sum, (unsigned char *)job->run->g[job->path->db].p + h * width * size);
}

/* A turn is linear in the row: gradients go back through its transpose. */
static void rotate_back(struct path_job *job, const struct attn_position *x,
                        struct attn_tensor *out, double *row)
{
    const struct attn_problem *p = job->run->p;
    const size_t d_k = p->d.d_k, size = d_k * attn_dtype_bytes(p->dtype);
    struct attn_turn turn = {.of_key = job->path->key_side, .back = true};

    for (size_t b = 0; b < out->dim[0]; b++)
        for (size_t h = 0; h < out->dim[1]; h++) {
            const struct attn_mat from = new_rows(job, b, h), to = attn_slice(out, b, h);

            for (size_t i = 0; i < from.rows; i++) {
                turn.at = turn.of_key ? attn_position_of_key(p, x, b, job->first + i)
                                      : attn_position_of_query(p, x, b, i);
                job->run->kernel->to_double(d_k, (const unsigned char *)from.p + i * size,
                                            row);
                x->row->turn(p, x, turn, row);
                job->run->kernel->from_double(d_k, row, (unsigned char *)to.p + i * size);
            }
        }
    job->d = *out;
    job->first = 0;
}

static bool unrotate(struct path_job *job, struct attn_err *err)
{
    const struct attn_position *x = attn_turn_of(job->run->p);
    struct attn_arena *arena = job->run->arena;
    struct attn_tensor out = job->d;

    if (!job->path->rotates || x == NULL)
        return true;
    out.dim[2] -= job->first;
    out.p = attn_arena_take(arena, attn_grad_tensor_bytes(&out));

    double *row = attn_arena_take(arena, job->run->p->d.d_k * sizeof *row);

    if (out.p == NULL || row == NULL)
        return attn_fail(err, ATTN_E_MEMORY, ATTN_GRADIENTS[job->path->of].name, NULL,
                         arena->size, attn_grad_tensor_bytes(&out));
    rotate_back(job, x, &out, row);
    return true;
}

static bool path_back(struct path_job *job, struct attn_err *err)
{
    struct attn_grad_run *run = job->run;

    if (!unrotate(job, err))
        return false;
    if (has(run, job->path->dW))
        attn_grad_pieces(run, job->d.dim[1], weight_head, job);
    if (has(run, job->path->db)) {
        double *sum = attn_arena_take(run->arena, job->d.dim[3] * sizeof *sum);

        if (sum == NULL)
            return attn_fail(err, ATTN_E_MEMORY, ATTN_GRADIENTS[job->path->db].name, NULL,
                             run->arena->size, job->d.dim[3] * sizeof *sum);
        for (size_t h = 0; h < job->d.dim[1]; h++)
            bias_head(job, h, sum);
    }
    if (has(run, job->dX))
        attn_grad_pieces(run, job->d.dim[0], input_item, job);
    return true;
}

bool attn_grad_inputs(struct attn_grad_run *run, struct attn_err *err)
{
    const bool crosses = run->p->form.source == ATTN_CROSS;

    if (run->p->form.source == ATTN_PROJECTED)
        return true;
    for (size_t n = 0; n < ATTN_COUNT(PATHS); n++) {
        const struct path_row *path = &PATHS[n];
        const bool other = crosses && path->key_side;
        struct path_job job = {run,
                               path,
                               run->g[path->of],
                               path->key_side ? run->p->d.T_past : 0,
                               other ? ATTN_IN_X_KV : ATTN_IN_X,
                               other ? ATTN_DX_KV : ATTN_DX};
        const size_t mark = attn_arena_mark(run->arena);

        if (!has(run, path->of) ||
            (!has(run, path->dW) && !has(run, path->db) && !has(run, job.dX)))
            continue;
        if (!path_back(&job, err))
            return false;
        attn_arena_release(run->arena, mark);
    }
    return true;
}

size_t attn_grad_inputs_bytes(const struct attn_problem *p)
{
    const struct attn_dims *d = &p->d;
    const size_t rows =
        d->h * d->T_q > d->h_kv * d->T_kv ? d->h * d->T_q : d->h_kv * d->T_kv;
    const size_t widest = d->d_k > d->d_v ? d->d_k : d->d_v;
    const size_t turned =
        attn_turn_of(p) ? d->B * rows * d->d_k * attn_dtype_bytes(p->dtype) : 0;

    return turned + (2 * widest + d->d_model) * sizeof(double) + 4 * ATTN_ALIGN;
}

/* ---- from Y ---- */

static void output_item(void *arg, size_t b)
{
    struct attn_grad_run *run = arg;

    attn_gemm(attn_slice(&run->g[ATTN_DH], b, 0), attn_slice(&run->ask->cotangent, b, 0),
              false, matrix(&run->p->in[ATTN_IN_W_O]), true, 1.0, 0.0);
}

/* dW_O's rows of head h: sum over items of H^T dY, over the rows whose A counts. */
static void output_head(void *arg, size_t h)
{
    struct attn_grad_run *run = arg;
    const struct attn_dims *d = &run->p->d;
    const struct attn_mat dW =
        attn_grad_rows_at(matrix(&run->g[ATTN_DW_O]), h * d->d_v, (h + 1) * d->d_v);

    for (size_t b = 0; b < d->B; b++) {
        const struct attn_mat H = attn_grad_columns(
            attn_slice(&run->trace->t[ATTN_H], b, 0), h * d->d_v, d->d_v);
        const struct attn_mat dY = attn_slice(&run->ask->cotangent, b, 0);

        for (size_t i0, i1 = 0; attn_grad_next_rows(run, b, h, d->T_q, &i0, &i1);)
            attn_gemm(dW, attn_grad_rows_at(H, i0, i1), true,
                      attn_grad_rows_at(dY, i0, i1), false, 1.0, 1.0);
    }
}

/* dH = dY W_O^T, dW_O = H^T dY, db_O = column sums of dY. */
bool attn_grad_output(struct attn_grad_run *run, struct attn_err *err)
{
    const struct attn_dims *d = &run->p->d;
    const size_t mark = attn_arena_mark(run->arena);

    if (has(run, ATTN_DH))
        attn_grad_pieces(run, d->B, output_item, run);
    if (has(run, ATTN_DW_O))
        attn_grad_pieces(run, d->h, output_head, run);
    if (has(run, ATTN_DB_O)) {
        double *sum = attn_arena_take(run->arena, d->d_model * sizeof *sum);

        if (sum == NULL)
            return attn_fail(err, ATTN_E_MEMORY, "db_O", NULL, run->arena->size,
                             d->d_model * sizeof *sum);
        memset(sum, 0, d->d_model * sizeof *sum);
        for (size_t row = 0; row < d->B * d->T_q; row++)
            run->rows->add(d->d_model,
                           (const unsigned char *)run->ask->cotangent.p +
                               row * d->d_model * attn_dtype_bytes(run->p->dtype),
                           sum);
        run->kernel->from_double(d->d_model, sum, run->g[ATTN_DB_O].p);
    }
    attn_arena_release(run->arena, mark);
    return true;
}
