/*
 * attn_run.c - runs the layer: the table of stages, and the cutting of work into pieces.
 * Not here: what a stage computes (attn_project.c, attn_rotate.c, attn_softmax.c,
 * attn_mix.c, attn_tiled.c).
 * Start reading at ATTN_STAGES, then GROUPS, then attn_run_rows.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <stdatomic.h>

/* clang-format off */
const struct attn_stage_row ATTN_STAGES[] = {
    [ATTN_STAGE_PROJECT_Q] =
        { "project_q", ATTN_OVER_QUERY_ROWS, attn_stage_project_q },
    [ATTN_STAGE_POSITION_Q] =
        { "position_q", ATTN_OVER_QUERY_ROWS, attn_stage_position_q },
    [ATTN_STAGE_PROJECT_K] =
        { "project_k", ATTN_OVER_KEY_HEADS, attn_stage_project_k },
    [ATTN_STAGE_POSITION_K] =
        { "position_k", ATTN_OVER_KEY_HEADS, attn_stage_position_k },
    [ATTN_STAGE_PROJECT_V] =
        { "project_v", ATTN_OVER_KEY_HEADS, attn_stage_project_v },
    [ATTN_STAGE_SCORE] =
        { "score", ATTN_OVER_QUERY_ROWS, attn_stage_score },
    [ATTN_STAGE_MASK] =
        { "mask", ATTN_OVER_QUERY_ROWS, attn_stage_mask },
    [ATTN_STAGE_SOFTMAX] =
        { "softmax", ATTN_OVER_QUERY_ROWS, attn_stage_softmax },
    [ATTN_STAGE_MIX] =
        { "mix", ATTN_OVER_QUERY_ROWS, attn_stage_mix },
    [ATTN_STAGE_OUTPUT] =
        { "output", ATTN_OVER_ITEM_ROWS, attn_stage_output },
};
/* clang-format on */
_Static_assert(ATTN_COUNT(ATTN_STAGES) == ATTN_STAGE_COUNT, "one row per stage");

/* Stages of one domain that a piece goes through at once, while its rows are in the
 * cache. */
static const struct group_row {
    enum attn_stage first, last;
} GROUPS[] = {
    {ATTN_STAGE_PROJECT_Q, ATTN_STAGE_POSITION_Q},
    {ATTN_STAGE_PROJECT_K, ATTN_STAGE_POSITION_K},
    {ATTN_STAGE_PROJECT_V, ATTN_STAGE_PROJECT_V},
    {ATTN_STAGE_SCORE, ATTN_STAGE_MIX},
    {ATTN_STAGE_OUTPUT, ATTN_STAGE_OUTPUT},
};

/* ---- pieces ---- */

struct job { /* some stages over every piece of their domain */
    const struct attn_run_ctx *run;
    attn_stage_fn *stage[ATTN_STAGE_COUNT];
    size_t stages;
    size_t heads, blocks; /* pieces = items * heads * blocks */
    bool cut_rows;
    size_t count;
    bool backwards;       /* pieces are taken from the last on */
    atomic_size_t failed; /* lowest piece that failed so far */
    atomic_flag lock;     /* guards err */
    struct attn_err err;  /* of that piece */
};

static struct attn_piece piece_at(const struct job *job, size_t n)
{
    const struct attn_rows *rows = &job->run->rows;
    struct attn_piece piece = {.b = rows->b0 + n / job->blocks / job->heads,
                               .h = n / job->blocks % job->heads};

    if (job->cut_rows) {
        piece.i0 = rows->i0 + n % job->blocks * ATTN_ROW_BLOCK;
        piece.i1 =
            piece.i0 + ATTN_ROW_BLOCK < rows->i1 ? piece.i0 + ATTN_ROW_BLOCK : rows->i1;
    }
    return piece;
}

/* Keeps the error of the lowest piece, so that the same problem fails the same way
   however many threads ran it. */
static void note_failure(struct job *job, size_t n, const struct attn_err *err)
{
    while (atomic_flag_test_and_set(&job->lock))
        continue;
    if (n < atomic_load(&job->failed)) {
        job->err = *err;
        atomic_store(&job->failed, n);
    }
    atomic_flag_clear(&job->lock);
}

bool attn_stopped(const struct attn_run_ctx *run, struct attn_err *err)
{
    const struct attn_exec *exec = run->exec;

    if (!exec || !exec->stop || !exec->stop(exec->ctx))
        return false;
    attn_fail(err, ATTN_E_DEADLINE, NULL, NULL, 0, 0);
    return true;
}

static bool run_piece(const struct job *job, size_t n, struct attn_err *err)
{
    const struct attn_piece piece = piece_at(job, n);

    if (attn_stopped(job->run, err))
        return false;
    for (size_t s = 0; s < job->stages; s++)
        if (!job->stage[s](job->run, piece, err))
            return false;
    return true;
}

static void piece_of_job(void *arg, size_t nth)
{
    struct job *job = arg;
    const size_t n = job->backwards ? job->count - 1 - nth : nth;
    struct attn_err err = {0};

    if (n < atomic_load(&job->failed) && !run_piece(job, n, &err))
        note_failure(job, n, &err);
}

/* Help costs some microseconds to call: not worth it below a million multiply-adds. */
static bool worth_help(const struct attn_run_ctx *run)
{
    const struct attn_dims *d = &run->p->d;
    const double rows = (double)(run->rows.i1 - run->rows.i0);
    const double each =
        (double)d->d_model * (double)d->d_k + (double)d->T_kv * (double)(d->d_k + d->d_v);

    return (double)(run->rows.b1 - run->rows.b0) * (double)d->h * rows * each >= 1e6;
}

static bool run_job(struct job *job, struct attn_err *err)
{
    const struct attn_run_ctx *run = job->run;
    const size_t count = (run->rows.b1 - run->rows.b0) * job->heads * job->blocks;

    job->count = count;
    atomic_init(&job->failed, SIZE_MAX);
    atomic_flag_clear(&job->lock);
    if (count > 1 && run->exec && run->exec->parallel_for && worth_help(run)) {
        /* Later rows read more keys under a causal rule: the small pieces come at the
           end, where helpers wait for each other. */
        job->backwards = true;
        run->exec->parallel_for(run->exec->ctx, count, piece_of_job, job);
    } else
        for (size_t n = 0; n < count; n++)
            piece_of_job(job, n);
    if (atomic_load(&job->failed) == SIZE_MAX)
        return true;
    if (err->code == ATTN_OK)
        *err = job->err;
    return false;
}

static void set_domain(struct job *job, enum attn_stage stage)
{
    const struct attn_rows *rows = &job->run->rows;
    const struct attn_dims *d = &job->run->p->d;
    const size_t blocks = (rows->i1 - rows->i0 + ATTN_ROW_BLOCK - 1) / ATTN_ROW_BLOCK;

    job->cut_rows = ATTN_STAGES[stage].domain != ATTN_OVER_KEY_HEADS;
    job->blocks = job->cut_rows ? blocks : 1;
    job->heads = ATTN_STAGES[stage].domain == ATTN_OVER_QUERY_ROWS  ? d->h
                 : ATTN_STAGES[stage].domain == ATTN_OVER_KEY_HEADS ? d->h_kv
                                                                    : 1;
}

/* The right stages first … last on every piece. */
static bool run_fused(const struct attn_run_ctx *run, enum attn_stage first,
                      enum attn_stage last, struct attn_err *err)
{
    struct job job = {.run = run};

    set_domain(&job, first);
    for (int s = (int)first; s <= (int)last; s++)
        job.stage[job.stages++] = ATTN_STAGES[s].run;
    return run_job(&job, err);
}

static bool run_tiled(const struct attn_run_ctx *run, struct attn_err *err)
{
    struct job job = {.run = run, .stage = {attn_tiled}, .stages = 1};

    set_domain(&job, ATTN_STAGE_SCORE);
    return run_job(&job, err);
}

/* ---- the layer ---- */

bool attn_stage_all(const struct attn_run_ctx *run, enum attn_stage stage,
                    struct attn_err *err)
{
    return run_fused(run, stage, stage, err);
}

/* One stage after the other everywhere, since a replacement may read what other pieces
 * wrote. */
static bool run_swapped(const struct attn_run_ctx *run, const struct group_row *group,
                        struct attn_err *err)
{
    for (int s = (int)group->first; s <= (int)group->last; s++) {
        attn_stage_fn *other = run->swap->stage[s];

        if (other ? !other(run, (struct attn_piece){0}, err)
                  : !attn_stage_all(run, (enum attn_stage)s, err))
            return false;
    }
    return true;
}

static bool run_group(const struct attn_run_ctx *run, const struct group_row *group,
                      struct attn_err *err)
{
    if (group->first == ATTN_STAGE_OUTPUT && !run->t->t[ATTN_Y].p)
        return true;
    if (group->first == ATTN_STAGE_SCORE && run->plan->path == ATTN_PATH_TILED)
        return run_tiled(run, err);
    if (run->swap)
        return run_swapped(run, group, err);
    return run_fused(run, group->first, group->last, err);
}

static size_t count_empty(const struct attn_run_ctx *run)
{
    const struct attn_dims *d = &run->p->d;
    size_t count = 0;

    for (size_t row = run->rows.b0 * d->h; row < run->rows.b1 * d->h; row++)
        for (size_t i = run->rows.i0; i < run->rows.i1; i++)
            count += run->t->empty[row * d->T_q + i] != 0;
    return count;
}

/* The tiled path has no stages SCORE … MIX to replace: a swap of those does nothing
 * there. */
bool attn_run_rows(const struct attn_problem *p, const struct attn_plan *plan,
                   struct attn_rows rows, struct attn_arena *arena,
                   const struct attn_exec *exec, const struct attn_swap *swap,
                   struct attn_trace *trace, struct attn_err *err)
{
    const struct attn_run_ctx run = {
        .p = p, .plan = plan, .t = trace, .exec = exec, .swap = swap, .rows = rows};

    assert(plan->path == ATTN_PATH_DENSE || plan->path == ATTN_PATH_TILED);
    assert(rows.b0 <= rows.b1 && rows.b1 <= p->d.B);
    assert(rows.i0 <= rows.i1 && rows.i1 <= p->d.T_q);
    if (!attn_trace_take(p, plan, arena, trace, err))
        return false;
    for (size_t g = 0; g < ATTN_COUNT(GROUPS); g++)
        if (!run_group(&run, &GROUPS[g], err))
            return false;
    trace->empty_count = count_empty(&run);
    return true;
}

bool attn_run(const struct attn_problem *p, const struct attn_plan *plan,
              struct attn_arena *arena, const struct attn_exec *exec,
              const struct attn_swap *swap, struct attn_trace *trace,
              struct attn_err *err)
{
    const struct attn_rows all = {.b1 = p->d.B, .i1 = p->d.T_q};

    return attn_run_rows(p, plan, all, arena, exec, swap, trace, err);
}
