/*
 * attn_plan.c - decides the path and what a run holds, counts its bytes, then takes them.
 * Not here: scratch of the stages and of the audit, sizes of the answer (api/).
 * Start reading at attn_plan.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <string.h>

const char *const ATTN_PATH_NAMES[] = {
    [ATTN_PATH_AUTO] = "auto",
    [ATTN_PATH_DENSE] = "dense",
    [ATTN_PATH_TILED] = "tiled",
};
_Static_assert(ATTN_COUNT(ATTN_PATH_NAMES) == ATTN_PATH_COUNT, "one name per path");

static const uint32_t INPUTS = ATTN_BIT(ATTN_X) | ATTN_BIT(ATTN_X_KV);
static const uint32_t DENSE_NEEDS =
    ATTN_BIT(ATTN_X) | ATTN_BIT(ATTN_X_KV) | ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K) |
    ATTN_BIT(ATTN_V) | ATTN_BIT(ATTN_S) | ATTN_BIT(ATTN_ALLOWED) | ATTN_BIT(ATTN_A) |
    ATTN_BIT(ATTN_H) | ATTN_BIT(ATTN_Y);
static const uint32_t TILED_NEEDS =
    ATTN_BIT(ATTN_X) | ATTN_BIT(ATTN_X_KV) | ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K) |
    ATTN_BIT(ATTN_V) | ATTN_BIT(ATTN_LSE) | ATTN_BIT(ATTN_H) | ATTN_BIT(ATTN_Y);

/* The object whose memory `o` shares, or `o` itself where it has memory of its own. */
static enum attn_object shares(const struct attn_problem *p, enum attn_object o)
{
    switch (o) {
    case ATTN_PRESENT_K:
        return ATTN_K;
    case ATTN_PRESENT_V:
        return ATTN_V;
    case ATTN_Q_PRE:
        return attn_turn_of(p) ? o : ATTN_Q;
    case ATTN_K_PRE:
        return attn_turn_of(p) ? o : ATTN_K;
    case ATTN_H_HEADS:
        return p->d.h == 1 ? ATTN_H : o;
    default:
        return o;
    }
}

static bool owns_memory(const struct attn_problem *p, uint32_t held, enum attn_object o)
{
    return (held & ATTN_BIT(o)) != 0 && (INPUTS & ATTN_BIT(o)) == 0 && shares(p, o) == o;
}

/* Adds a tensor's bytes, rounded up as the arena does; false on overflow. */
static bool add_bytes(size_t *total, const struct attn_tensor *shape)
{
    size_t bytes = attn_dtype_bytes(shape->dtype);

    for (unsigned a = 0; a < shape->rank; a++) {
        if (shape->dim[a] != 0 && bytes > SIZE_MAX / shape->dim[a])
            return false;
        bytes *= shape->dim[a];
    }
    if (bytes > SIZE_MAX - (ATTN_ALIGN - 1))
        return false;
    bytes = (bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
    if (bytes > SIZE_MAX - *total)
        return false;
    *total += bytes;
    return true;
}

static struct attn_tensor empty_flags(const struct attn_dims *d)
{
    return (struct attn_tensor){
        .dtype = ATTN_BOOL, .rank = 3, .dim = {d->B, d->h, d->T_q}};
}

static bool count_bytes(const struct attn_problem *p, struct attn_plan *plan,
                        struct attn_err *err)
{
    struct attn_tensor shape = empty_flags(&p->d);

    plan->trace_bytes = 0;
    if (!add_bytes(&plan->trace_bytes, &shape))
        return attn_fail(err, ATTN_E_OVERFLOW, "A", NULL, SIZE_MAX, SIZE_MAX);
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        if (!owns_memory(p, plan->held, (enum attn_object)o))
            continue;
        attn_object_full_shape(p, (enum attn_object)o, &shape);
        if (!add_bytes(&plan->trace_bytes, &shape))
            return attn_fail(err, ATTN_E_OVERFLOW, ATTN_OBJECTS[o].name, NULL, SIZE_MAX,
                             SIZE_MAX);
    }
    return true;
}

/* The first wanted object, in dependency order, that is pairwise; -1 = none. */
static int first_pairwise(uint32_t want)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if ((want & ATTN_BIT(o)) != 0 && ATTN_OBJECTS[o].pairwise)
            return o;
    return -1;
}

static bool decide_path(uint32_t want, enum attn_path path, struct attn_plan *plan,
                        struct attn_err *err)
{
    const int pairwise = first_pairwise(want);

    if (path == ATTN_PATH_TILED && pairwise >= 0)
        return attn_fail(err, ATTN_E_CONTRADICTION, ATTN_OBJECTS[pairwise].name, NULL, 0,
                         0);
    if (path == ATTN_PATH_AUTO)
        path = pairwise < 0 ? ATTN_PATH_TILED : ATTN_PATH_DENSE;
    plan->path = path;
    return true;
}

bool attn_plan(const struct attn_problem *p, uint32_t want, enum attn_path path,
               size_t limit, struct attn_plan *plan, struct attn_err *err)
{
    uint32_t there = 0;

    assert(path < ATTN_PATH_COUNT);
    assert(p->d.T_q > 0 && p->d.T_kv > 0);
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        if (attn_object_exists(p, (enum attn_object)o))
            there |= ATTN_BIT(o);
        else if ((want & ATTN_BIT(o)) != 0)
            return attn_fail(err, ATTN_E_MISSING, ATTN_OBJECTS[o].name, NULL, 0, 0);
    }
    if (!decide_path(want, path, plan, err))
        return false;
    plan->held = want | (plan->path == ATTN_PATH_TILED ? TILED_NEEDS : DENSE_NEEDS);
    if (plan->path == ATTN_PATH_DENSE && attn_is_biased(p))
        plan->held |= ATTN_BIT(ATTN_M);
    plan->held &= there;
    if (!count_bytes(p, plan, err))
        return false;
    if (plan->trace_bytes > limit)
        return attn_fail(err, ATTN_E_MEMORY, "trace", NULL, limit, plan->trace_bytes);
    return true;
}

/* ---- taking ---- */

static bool take(struct attn_arena *arena, struct attn_tensor *t, struct attn_err *err)
{
    const size_t bytes = attn_tensor_count(t) * attn_dtype_bytes(t->dtype);

    t->p = attn_arena_take(arena, bytes);
    if (t->p == NULL)
        return attn_fail(err, ATTN_E_MEMORY, "trace", NULL, arena->size - arena->used,
                         bytes);
    return true;
}

static bool take_object(const struct attn_problem *p, const struct attn_plan *plan,
                        enum attn_object o, struct attn_arena *arena,
                        struct attn_trace *trace, struct attn_err *err)
{
    struct attn_tensor *t = &trace->t[o];

    attn_object_full_shape(p, o, t);
    if (o == ATTN_X || o == ATTN_X_KV) {
        t->p = p->in[o == ATTN_X ? ATTN_IN_X : ATTN_IN_X_KV].p;
        return true;
    }
    return !owns_memory(p, plan->held, o) || take(arena, t, err);
}

bool attn_trace_take(const struct attn_problem *p, const struct attn_plan *plan,
                     struct attn_arena *arena, struct attn_trace *trace,
                     struct attn_err *err)
{
    struct attn_tensor empty = empty_flags(&p->d);

    *trace = (struct attn_trace){0};
    if (!take(arena, &empty, err))
        return false;
    trace->empty = empty.p;
    memset(trace->empty, 0, attn_tensor_count(&empty));
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if ((plan->held & ATTN_BIT(o)) != 0 &&
            !take_object(p, plan, (enum attn_object)o, arena, trace, err))
            return false;
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        const enum attn_object source = shares(p, (enum attn_object)o);

        if ((plan->held & ATTN_BIT(o)) != 0 && source != (enum attn_object)o) {
            assert((plan->held & ATTN_BIT(source)) != 0);
            trace->t[o].p = trace->t[source].p;
        }
    }
    return true;
}
