/*
 * attn_rerun.c - runs the judged layer again, on part of its rows or from its own Q, K
 * and V on, and compares bits.
 * Not here: what is changed before (attn_audit_items.c, attn_audit_tokens.c,
 * attn_audit_poison.c) and the other path (attn_audit_tiled.c).
 * Start reading at attn_rerun.
 */
#include "core/attn_rerun.h"

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

/* A block of rows of one item, or all its rows: a full audit, or a swap that works on
   the whole. */
struct attn_rows attn_rerun_block(struct attn_auditor *a, size_t b, size_t i)
{
    const size_t T = a->p->d.T_q, from = i / ATTN_ROW_BLOCK * ATTN_ROW_BLOCK;

    if (a->full || a->swap)
        return (struct attn_rows){b, b + 1, 0, T};
    return (struct attn_rows){b, b + 1, from,
                              from + ATTN_ROW_BLOCK < T ? from + ATTN_ROW_BLOCK : T};
}

void attn_rerun_compare(const struct attn_auditor *a, const struct attn_trace *again,
                        size_t b_again, struct attn_rows rows, const uint8_t *compared,
                        struct attn_diff *diff)
{
    const enum attn_object o = attn_rerun_output(a);
    const struct attn_tensor *was = &a->trace->t[o], *is = &again->t[o];
    const size_t width = was->dim[2], number = attn_dtype_bytes(was->dtype);

    for (size_t i = rows.i0; i < rows.i1; i++) {
        const size_t from = attn_place3(was, rows.b0, i),
                     from_again = attn_place3(is, b_again, i);

        if (compared && !compared[i])
            continue;
        diff->rows++;
        if (memcmp((const char *)is->p + from_again * number,
                   (const char *)was->p + from * number, width * number) == 0) {
            diff->compared += width;
            continue;
        }
        for (size_t c = 0; c < width; c++)
            attn_diff_exact(diff, o, (const size_t[4]){rows.b0, i, c, SIZE_MAX},
                            attn_number(is, from_again + c), attn_number(was, from + c));
    }
}

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

/* Other numbers, between -2 and 2, in the place of n numbers. */
void attn_rerun_disturb(struct attn_auditor *a, struct attn_tensor *t, size_t from,
                        size_t n)
{
    for (size_t k = from; k < from + n; k++) {
        const double x = (double)(attn_random_u64(&a->random) >> 11) * 0x1p-51 - 2.0;

        if (t->dtype == ATTN_F64)
            ((double *)t->p)[k] = x;
        else
            ((float *)t->p)[k] = (float)x;
    }
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
    const size_t keys = d->B * d->h_kv * d->T_kv * (d->d_k + d->d_v) * number +
                        d->T_q * widest * sizeof(double);
    struct attn_plan other = {0};
    size_t inputs = 0, runs = plan->trace_bytes;

    for (int in = ATTN_IN_X; in <= ATTN_IN_PAST_V; in++)
        inputs += bytes_of(&p->in[in]);
    if (attn_rerun_other_path(p, plan, &other) && other.trace_bytes > runs)
        runs = other.trace_bytes;
    return flags + 8 * (size_t)ATTN_ALIGN + runs + (inputs > keys ? inputs : keys);
}
