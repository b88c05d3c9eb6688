/*
 * attn_rerun.c - runs the judged layer again, on part of its rows or from its own Q, K
 * and V on, and compares bits.
 * Not here: what is changed before (attn_audit_items.c, attn_audit_tokens.c,
 * attn_audit_poison.c) and the other path (attn_audit_tiled.c).
 * Start reading at attn_rerun.
 */
#include "core/attn_rerun.h"

#include <assert.h>
#include <string.h>

enum attn_object attn_rerun_output(const struct attn_auditor *a)
{
    return attn_audit_has(a, ATTN_Y) ? ATTN_Y : ATTN_H;
}

bool attn_rerun_possible(const struct attn_auditor *a, struct attn_finding *f)
{
    f->object = attn_rerun_output(a);
    if (attn_audit_has(a, f->object) && (!a->p->form.has_output || f->object == ATTN_Y))
        return true;
    attn_finding_skip(f, "Neither Y nor H is held in its right shape.");
    return false;
}

/* What a rerun must hold: its output; everything when a replaced stage may read
   everything. */
static uint32_t wanted(const struct attn_auditor *a)
{
    const uint32_t inputs = ATTN_BIT(ATTN_X) | ATTN_BIT(ATTN_X_KV);

    return a->swap ? a->plan->held & ~inputs : ATTN_BIT(attn_rerun_output(a));
}

bool attn_rerun(const struct attn_auditor *a, const struct attn_problem *p,
                enum attn_path path, struct attn_rows rows, const struct attn_swap *swap,
                struct attn_trace *trace)
{
    const struct attn_rows all = {0, p->d.B, 0, p->d.T_q};
    const uint32_t want =
        path == a->plan->path ? wanted(a) : ATTN_BIT(attn_rerun_output(a));
    struct attn_plan plan;

    return attn_plan(p, want, path, SIZE_MAX, &plan, a->err) &&
           attn_run_rows(p, &plan, swap ? all : rows, a->arena, a->exec, swap, trace,
                         a->err);
}

/* ---- which rows, and what they must be --------------------------------------------- */

enum {
    LONG = 64, /* queries from which on a sampled audit runs a few rows again */
    FEW = 16   /* how many                                                    */
};

bool attn_rerun_short(const struct attn_auditor *a)
{
    return !a->full && !a->swap && a->p->d.T_q >= LONG && attn_audit_has(a, ATTN_Q) &&
           attn_audit_has(a, ATTN_K) && attn_audit_has(a, ATTN_V);
}

const char *const ATTN_RERUN_FEW =
    "In a sampled audit of a long sequence a few rows are run again from Q, K and V on, "
    "and held against the same rows run unchanged.";

struct attn_rows attn_rerun_around(const struct attn_auditor *a, size_t b, size_t i)
{
    const size_t T = a->p->d.T_q, some = a->full || a->swap    ? T
                                         : attn_rerun_short(a) ? FEW
                                                               : ATTN_ROW_BLOCK;
    const size_t from = i / some * some;

    return (struct attn_rows){b, b + 1, from, from + some < T ? from + some : T};
}

struct attn_mat attn_rerun_rows(const struct attn_auditor *a, const struct attn_trace *t,
                                struct attn_rows rows)
{
    return attn_mat_rows(attn_slice(&t->t[attn_rerun_output(a)], rows.b0, 0), rows.i0,
                         rows.i1 - rows.i0);
}

bool attn_rerun_keep(const struct attn_auditor *a, struct attn_mat *rows)
{
    struct attn_mat kept = *rows;

    kept.ld = rows->cols;
    kept.p = attn_arena_take(a->arena,
                             rows->rows * rows->cols * attn_dtype_bytes(rows->dtype));
    if (!kept.p)
        return attn_fail(a->err, ATTN_E_MEMORY, "audit", NULL, a->arena->size,
                         a->arena->used);
    attn_mat_copy(kept, *rows);
    *rows = kept;
    return true;
}

void attn_rerun_batch(const struct attn_auditor *a, struct attn_problem *p)
{
    *p = *a->p;
    if (attn_rerun_short(a))
        attn_rerun_projected(a, p);
}

struct attn_rows attn_rerun_base(const struct attn_auditor *a, struct attn_rows rows,
                                 struct attn_problem *p)
{
    struct attn_problem all;

    attn_rerun_batch(a, p);
    if (!attn_rerun_short(a))
        return rows;
    all = *p;
    attn_problem_item(&all, rows.b0, p);
    return (struct attn_rows){0, 1, rows.i0, rows.i1};
}

bool attn_rerun_wanted(const struct attn_auditor *a, struct attn_rows rows,
                       struct attn_wanted *want)
{
    struct attn_problem unchanged;
    struct attn_trace again;
    size_t mark;
    bool done;

    *want = (struct attn_wanted){rows, attn_rerun_rows(a, a->trace, rows)};
    if (!attn_rerun_short(a))
        return true;
    if (!attn_rerun_keep(a, &want->output))
        return false;
    mark = attn_arena_mark(a->arena);
    attn_rerun_batch(a, &unchanged);
    done = attn_rerun(a, &unchanged, a->plan->path, rows, NULL, &again);
    if (done)
        attn_mat_copy(want->output, attn_rerun_rows(a, &again, rows));
    attn_arena_release(a->arena, mark);
    return done;
}

/* One row of both; nearly always it is the same. */
static void compare_row(const struct attn_auditor *a, const struct attn_wanted *want,
                        struct attn_mat got, size_t r, struct attn_diff *diff)
{
    const size_t bytes = attn_dtype_bytes(got.dtype);
    const struct attn_mat is = attn_mat_rows(got, r, 1),
                          was = attn_mat_rows(want->output, r, 1);
    const struct attn_kernel *kernel = attn_kernel_of(got.dtype);

    diff->rows++;
    if (memcmp(is.p, was.p, got.cols * bytes) == 0) {
        diff->compared += got.cols;
        return;
    }
    for (size_t c = 0; c < got.cols; c++)
        attn_diff_exact(diff, attn_rerun_output(a),
                        (const size_t[4]){want->rows.b0, want->rows.i0 + r, c, SIZE_MAX},
                        kernel->get(is.p, c), kernel->get(was.p, c));
}

void attn_rerun_compare(const struct attn_auditor *a, const struct attn_wanted *want,
                        struct attn_mat got, const uint8_t *compared,
                        struct attn_diff *diff)
{
    assert(got.rows == want->output.rows && got.cols == want->output.cols);
    for (size_t r = 0; r < got.rows; r++)
        if (!compared || compared[want->rows.i0 + r])
            compare_row(a, want, got, r, diff);
}

/* ---- what is changed --------------------------------------------------------------- */

bool attn_rerun_copy(const struct attn_auditor *a, struct attn_tensor *t)
{
    const size_t bytes = attn_tensor_count(t) * attn_dtype_bytes(t->dtype);
    void *copy;

    if (!t->p)
        return true;
    copy = attn_arena_take(a->arena, bytes);
    if (!copy)
        return attn_fail(a->err, ATTN_E_MEMORY, "audit", NULL, a->arena->size,
                         a->arena->used);
    memcpy(copy, t->p, bytes);
    t->p = copy;
    return true;
}

/* Drawn once for many: drawing costs more than the layer does with a number. */
void attn_rerun_disturb(struct attn_auditor *a, struct attn_tensor *t, size_t from,
                        size_t n)
{
    enum { DRAWN = 64 };
    const size_t bytes = attn_dtype_bytes(t->dtype), drawn = n < DRAWN ? n : DRAWN;
    char *const to = (char *)t->p + from * bytes;
    double x[DRAWN];

    if (n == 0)
        return;
    for (size_t k = 0; k < drawn; k++)
        x[k] = (double)(attn_random_u64(&a->random) >> 11) * 0x1p-51 - 2.0;
    attn_kernel_of(t->dtype)->from_double(drawn, x, to);
    for (size_t k = drawn; k < n; k += drawn)
        memcpy(to + k * bytes, to, (n - k < drawn ? n - k : drawn) * bytes);
}

/* The layer from its own Q, K and V on: they have been turned, cached rows are among the
   keys. */
void attn_rerun_projected(const struct attn_auditor *a, struct attn_problem *p)
{
    *p = *a->p;
    for (int in = ATTN_IN_X; in <= ATTN_IN_W_V; in++)
        p->in[in].p = NULL;
    p->in[ATTN_IN_B_Q].p = p->in[ATTN_IN_B_K].p = p->in[ATTN_IN_B_V].p = NULL;
    p->form.source = ATTN_PROJECTED;
    attn_without_turn(p);
    p->d.T_past = 0;
    p->in[ATTN_IN_Q] = a->trace->t[ATTN_Q];
    p->in[ATTN_IN_K] = a->trace->t[ATTN_K];
    p->in[ATTN_IN_V] = a->trace->t[ATTN_V];
}

/* A swap without the stages that are done when Q, K and V are there. */
const struct attn_swap *attn_rerun_later(const struct attn_auditor *a,
                                         struct attn_swap *swap)
{
    if (!a->swap)
        return NULL;
    *swap = *a->swap;
    for (int s = ATTN_STAGE_PROJECT_Q; s <= ATTN_STAGE_PROJECT_V; s++)
        swap->stage[s] = NULL;
    return swap;
}

/* A dense run for a tiled trace must not cost memory that the request never meant to
   take. */
static const size_t DENSE_BYTES_MAX = (size_t)64 << 20;

bool attn_rerun_other_path(const struct attn_problem *p, const struct attn_plan *plan,
                           struct attn_plan *other)
{
    const enum attn_path path =
        plan->path == ATTN_PATH_DENSE ? ATTN_PATH_TILED : ATTN_PATH_DENSE;
    const enum attn_object o = p->form.has_output ? ATTN_Y : ATTN_H;
    struct attn_err err = {0};

    return attn_plan(p, ATTN_BIT(o), path,
                     path == ATTN_PATH_DENSE ? DENSE_BYTES_MAX : SIZE_MAX, other, &err);
}

/* ---- scratch of all reruns --------------------------------------------------------- */

static size_t bytes_of(const struct attn_tensor *t)
{
    return t->p ? attn_tensor_count(t) * attn_dtype_bytes(t->dtype) + ATTN_ALIGN : 0;
}

size_t attn_rerun_bytes(const struct attn_problem *p, const struct attn_plan *plan)
{
    const struct attn_dims *d = &p->d;
    const size_t number = attn_dtype_bytes(p->dtype);
    const size_t flags = d->T_q + d->T_kv + (d->d_model + d->h * d->d_v) * sizeof(double);
    const size_t widest = d->d_model > d->h * d->d_v ? d->d_model : d->h * d->d_v;
    const size_t queries = d->T_q < LONG ? 0 : d->B * d->h * d->T_q * d->d_k;
    const size_t keys =
        (queries + d->B * d->h_kv * d->T_kv * (d->d_k + d->d_v)) * number +
        d->T_q * widest * sizeof(double);
    struct attn_plan other = {0};
    size_t inputs = 0, runs = plan->trace_bytes;

    for (int in = ATTN_IN_X; in <= ATTN_IN_PAST_V; in++)
        inputs += bytes_of(&p->in[in]);
    if (attn_rerun_other_path(p, plan, &other) && other.trace_bytes > runs)
        runs = other.trace_bytes;
    return flags + 8 * (size_t)ATTN_ALIGN + FEW * widest * number + runs +
           (inputs > keys ? inputs : keys);
}
