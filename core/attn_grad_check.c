/*
 * attn_grad_check.c - gradients against central differences of the forward pass alone.
 * Not here: the gradients (attn_grad.c), the audit's sentence about them (attn_audit.c).
 * Start reading at attn_grad_check_run, then numeric.
 */
#include "core/attn_grad.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

/*
 * A central difference errs by f'''/6 step^2 + rounding/step; DBL_EPSILON^(1/3), about
 * 6e-6, makes both about 1e-10 for functions of size 1.  Where scores are steep or large
 * one of them grows, so an entry that disagrees is tried again with the other steps: a
 * right derivative then agrees, a wrong one with none.
 */
static const double STEPS[] = {6e-6, 7.5e-7, 4.8e-5, 9e-8, 4e-4, 1e-8, 1e-9};

/* Per dtype: what a gradient computed in it may be off, relative to max(1, |entry|)
   for float64, where 1e-6 is a hundred times the usual error of the difference;
   float32 sums in 24 bits. */
static const double TOLERANCES[] = {[ATTN_F64] = 1e-6, [ATTN_F32] = 1e-3};
/* Cancelled sums err by the size of what was cancelled: so many roundings of the
   largest entry.  And a score's own rounding, which grows with it, is a relative error
   of its weight: so many times the largest score more. */
static const double ROUNDINGS = 1024.0, SCORE_ROUNDINGS = 16.0;
static const double EPSILONS[] = {[ATTN_F64] = DBL_EPSILON, [ATTN_F32] = FLT_EPSILON};

/* Places sampled a tensor. */
enum { ENTRIES = 4 };
/* Multiply-adds of a forward pass that takes about 10 ms. */
static const double LARGE_LAYER = 5e7;

struct moved_row {           /* how the tensor of a gradient is moved by a step */
    enum attn_object object; /* an object, right after its stage; or X: an input */
    enum attn_stage stage;
};

/* clang-format off */
static const struct moved_row MOVED[ATTN_GRADIENT_COUNT] = {
    [ATTN_DH] = { ATTN_H, ATTN_STAGE_MIX },
    [ATTN_DV] = { ATTN_V, ATTN_STAGE_PROJECT_V },
    [ATTN_DA] = { ATTN_A, ATTN_STAGE_SOFTMAX },
    [ATTN_DS] = { ATTN_S, ATTN_STAGE_SCORE },
    [ATTN_DQ] = { ATTN_Q, ATTN_STAGE_POSITION_Q },
    [ATTN_DK] = { ATTN_K, ATTN_STAGE_POSITION_K },
};
/* clang-format on */
static_assert(ATTN_X == 0, "rows of MOVED left out move an input");

struct nudge { /* what the replaced stage adds, and to which number */
    enum attn_stage stage;
    enum attn_object object;
    size_t place;
    double by;
};

struct check_run {
    struct attn_problem p; /* in float64 */
    const struct attn_grad_ask *ask;
    const struct attn_exec *exec;
    struct attn_arena *arena;
    double *bias; /* additive at full shape, or NULL */
    double *plus; /* the object under the step up */
    double score; /* the largest finite |S| before the softcap */
    struct attn_grad_check *check;
};

static bool nudged_stage(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    const struct nudge *nudge = run->swap->param;

    (void)piece;
    if (!attn_stage_all(run, nudge->stage, err))
        return false;
    ((double *)run->t->t[nudge->object].p)[nudge->place] += nudge->by;
    return true;
}

/* One forward run; what it took stays taken, so that the caller may read the trace. */
static bool forward(struct check_run *run, const struct nudge *nudge,
                    struct attn_tensor *out, struct attn_err *err)
{
    uint32_t want = ATTN_BIT(run->ask->of);
    struct attn_swap swap = {.param = nudge};
    struct attn_trace trace = {0};
    struct attn_plan plan;

    if (nudge != NULL) {
        want |= ATTN_BIT(nudge->object);
        swap.stage[nudge->stage] = nudged_stage;
    }
    if (!attn_plan(&run->p, want, ATTN_PATH_DENSE, SIZE_MAX, &plan, err) ||
        !attn_run(&run->p, &plan, run->arena, run->exec, nudge ? &swap : NULL, &trace,
                  err))
        return false;
    *out = trace.t[run->ask->of];
    return true;
}

/* How large scores are, the softcap left out, decides how well weights are known. */
static bool measure_scores(struct check_run *run, struct attn_err *err)
{
    const size_t mark = attn_arena_mark(run->arena);
    struct attn_trace trace = {0};
    struct attn_plan plan;
    bool ok =
        attn_plan(&run->p, ATTN_BIT(ATTN_S_RAW), ATTN_PATH_DENSE, SIZE_MAX, &plan, err) &&
        attn_run(&run->p, &plan, run->arena, run->exec, NULL, &trace, err);
    const size_t count = ok ? attn_tensor_count(&trace.t[ATTN_S_RAW]) : 0;
    const double factor = run->p.scale / run->p.temperature;

    for (size_t n = 0; n < count; n++) {
        const double size = fabs(((const double *)trace.t[ATTN_S_RAW].p)[n] * factor);

        if (isfinite(size))
            run->score = fmax(run->score, size);
    }
    attn_arena_release(run->arena, mark);
    return ok;
}

/* dH is joined; a layer judged by H_heads is moved there. */
static void aim(const struct check_run *run, enum attn_gradient g, size_t place,
                struct nudge *nudge)
{
    const struct attn_dims *d = &run->p.d;
    const size_t c = place % d->d_v, h = place / d->d_v % d->h;
    const size_t i = place / d->d_v / d->h % d->T_q, b = place / d->d_v / d->h / d->T_q;

    *nudge = (struct nudge){MOVED[g].stage, MOVED[g].object, place, 0.0};
    if (g == ATTN_DH && run->ask->of == ATTN_H_HEADS) {
        nudge->object = ATTN_H_HEADS;
        nudge->place = ((b * d->h + h) * d->T_q + i) * d->d_v + c;
    }
}

/* The number that a step moves, or NULL when it is made on the way (an object). */
static double *input_at(struct check_run *run, enum attn_gradient g, size_t place)
{
    if (g == ATTN_D_ADDITIVE)
        return run->bias + place;
    if (ATTN_GRADIENTS[g].like_input < 0)
        return NULL;
    return (double *)run->p.in[ATTN_GRADIENTS[g].like_input].p + place;
}

/* sum C (O+ - O-), term by term so that what both share cancels; *size is sum |C O|. */
static double difference(const struct attn_tensor *C, const double *plus,
                         const double *minus, double *size)
{
    const size_t count = attn_tensor_count(C);
    double sum = 0.0;

    *size = 0.0;
    for (size_t n = 0; n < count; n++) {
        const double c = attn_tensor_get(C, n);

        if (c == 0.0 || plus[n] == minus[n])
            continue;
        sum += c * (plus[n] - minus[n]);
        *size += fabs(c * plus[n]);
    }
    return sum;
}

/* One entry by central differences; *noise is what rounding alone may have made of it. */
static bool numeric(struct check_run *run, enum attn_gradient g, size_t place,
                    double step, double *value, double *noise, struct attn_err *err)
{
    double *x = input_at(run, g, place), size;
    const double old = x != NULL ? *x : 0.0, by = step * fmax(1.0, fabs(old));
    const size_t mark = attn_arena_mark(run->arena);
    struct attn_tensor out;
    struct nudge nudge;
    bool ok;

    aim(run, g, place, &nudge);
    nudge.by = by;
    if (x != NULL)
        *x = old + by;
    ok = forward(run, x == NULL ? &nudge : NULL, &out, err);
    if (ok)
        memcpy(run->plus, out.p, attn_tensor_count(&out) * sizeof(double));
    attn_arena_release(run->arena, mark);
    nudge.by = -by;
    if (x != NULL)
        *x = old - by;
    ok = ok && forward(run, x == NULL ? &nudge : NULL, &out, err);
    if (ok) {
        *value = difference(&run->ask->cotangent, run->plus, out.p, &size) / (2.0 * by);
        *noise = 8.0 * DBL_EPSILON * (1.0 + run->score) * size / by;
    }
    attn_arena_release(run->arena, mark);
    if (x != NULL)
        *x = old;
    return ok;
}

/* An entry costs two forward passes: of a large layer only the largest is looked at. */
size_t attn_grad_check_entries(const struct attn_problem *p)
{
    const struct attn_dims *d = &p->d;
    const double each = (double)d->d_model * (double)(d->d_k + d->d_v) +
                        (double)d->T_kv * (double)(d->d_k + d->d_v);

    return (double)d->B * (double)d->h * (double)d->T_q * each > LARGE_LAYER ? 1
                                                                             : ENTRIES;
}

/* Relative error of one entry, by the first step that agrees or else by the best. */
static bool judge(struct check_run *run, enum attn_gradient g,
                  const struct attn_tensor *t, size_t place, double slack,
                  struct attn_err *err)
{
    struct attn_grad_check *check = run->check;
    const double analytic = attn_tensor_get(t, place);
    double best = INFINITY, seen = 0.0;

    for (size_t s = 0; s < ATTN_COUNT(STEPS) && !(best <= check->tolerance); s++) {
        double value, noise;

        if (!numeric(run, g, place, STEPS[s], &value, &noise, err))
            return false;

        /* What rounding explains is within the tolerance by definition. */
        const double rounding = (noise + slack) / check->tolerance;
        const double scale = fmax(fmax(1.0, rounding), fmax(fabs(value), fabs(analytic)));
        const double error = isfinite(analytic) && isfinite(value)
                                 ? fabs(analytic - value) / scale
                                 : (double)INFINITY;

        if (s == 0 || error < best) {
            best = error;
            seen = value;
        }
    }
    check->entries++;
    if (check->first < 0 && !(best <= check->tolerance))
        check->first = (int)g;
    if (check->worst < 0 || best > check->worst_relative_error) {
        check->worst = (int)g;
        check->worst_relative_error = best;
        check->worst_at = place;
        check->analytic = analytic;
        check->numeric = seen;
    }
    return true;
}

/* Place of the largest entry, or of the first that is not finite. */
static size_t largest(const struct attn_tensor *t, double *size)
{
    const size_t count = attn_tensor_count(t);
    size_t at = 0;

    *size = 0.0;
    for (size_t n = 0; n < count; n++) {
        const double x = fabs(attn_tensor_get(t, n));

        if (!isfinite(x)) {
            *size = 0.0;
            return n;
        }
        if (x > *size) {
            *size = x;
            at = n;
        }
    }
    return at;
}

/* An additive bias or sink of -Infinity has no step up. */
static bool movable(struct check_run *run, enum attn_gradient g, size_t place)
{
    const double *x = input_at(run, g, place);

    return x == NULL || isfinite(*x);
}

static bool check_tensor(struct check_run *run, enum attn_gradient g,
                         const struct attn_tensor *t, size_t entries, uint64_t *random,
                         struct attn_err *err)
{
    const size_t count = attn_tensor_count(t);
    double size;
    const size_t first = largest(t, &size);
    const double slack =
        (ROUNDINGS + SCORE_ROUNDINGS * run->score) * EPSILONS[t->dtype] * size;

    for (size_t n = 0; n < entries && n < count; n++) {
        const size_t place = entries >= count ? n
                             : n == 0         ? first
                                              : attn_random_below(random, count);

        if (movable(run, g, place) && !judge(run, g, t, place, slack, err))
            return false;
    }
    return true;
}

/* ---- the problem in float64 ---- */

static bool promote(struct check_run *run, const struct attn_problem *p,
                    struct attn_err *err)
{
    run->p = *p;
    run->p.dtype = ATTN_F64;
    /* The backward pass counts A as 0 in an empty row; NaN there would drown the
       objective. */
    if (p->empty_rows == ATTN_EMPTY_NAN)
        run->p.empty_rows = ATTN_EMPTY_ZERO;
    for (int in = 0; in < ATTN_INPUT_COUNT; in++) {
        struct attn_tensor *t = &run->p.in[in];

        if (t->p == NULL)
            continue;
        t->dtype = ATTN_F64;
        t->p = attn_arena_take(run->arena, attn_grad_tensor_bytes(t));
        if (t->p == NULL)
            return attn_fail(err, ATTN_E_MEMORY, ATTN_INPUTS[in].name, NULL,
                             run->arena->size, attn_grad_tensor_bytes(t));
        for (size_t n = 0, count = attn_tensor_count(t); n < count; n++)
            ((double *)t->p)[n] = attn_tensor_get(&p->in[in], n);
    }
    return true;
}

/* The additive bias at full shape, so that one pair can be moved alone. */
static bool spread_bias(struct check_run *run, struct attn_err *err)
{
    const struct attn_dims *d = &run->p.d;
    struct attn_table *table = &run->p.additive;
    const struct attn_table given = *table;
    const size_t count = d->B * d->h * d->T_q * d->T_kv;

    run->bias = attn_arena_take(run->arena, count * sizeof *run->bias);
    if (run->bias == NULL)
        return attn_fail(err, ATTN_E_MEMORY, "d_additive", NULL, run->arena->size,
                         count * sizeof *run->bias);
    for (size_t row = 0; row < d->B * d->h * d->T_q; row++) {
        const size_t b = row / d->T_q / d->h, h = row / d->T_q % d->h, i = row % d->T_q;

        memcpy(run->bias + row * d->T_kv,
               (const double *)given.p + b * given.stride_b + h * given.stride_h +
                   i * given.stride_i,
               d->T_kv * sizeof *run->bias);
    }
    *table = (struct attn_table){ATTN_ELEM_F64, run->bias, d->h * d->T_q * d->T_kv,
                                 d->T_q * d->T_kv, d->T_kv};
    return true;
}

static struct attn_tensor in_float64(struct attn_tensor t)
{
    t.dtype = ATTN_F64;
    return t;
}

size_t attn_grad_check_bytes(const struct attn_problem *p,
                             const struct attn_grad_ask *ask)
{
    const struct attn_dims *d = &p->d;
    struct attn_problem wide = *p;
    struct attn_plan plan;
    struct attn_err err = {0};
    struct attn_tensor of;
    uint32_t want = ATTN_BIT(ask->of) | ATTN_BIT(ATTN_S_RAW);
    size_t bytes = 0;

    wide.dtype = ATTN_F64;
    for (int in = 0; in < ATTN_INPUT_COUNT; in++) {
        const struct attn_tensor t = in_float64(p->in[in]);

        bytes += t.p == NULL ? 0 : attn_grad_tensor_bytes(&t);
    }
    if (p->additive.p != NULL)
        bytes += d->B * d->h * d->T_q * d->T_kv * sizeof(double) + ATTN_ALIGN;
    attn_object_full_shape(&wide, ask->of, &of);
    of = in_float64(of);
    bytes += attn_grad_tensor_bytes(&of);
    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
        want |= MOVED[g].object != ATTN_X ? ATTN_BIT(MOVED[g].object) : 0;
    return attn_plan(&wide, want, ATTN_PATH_DENSE, SIZE_MAX, &plan, &err)
               ? bytes + plan.trace_bytes
               : SIZE_MAX / 2;
}

/*
 * Fills grads->check: sampled entries of every gradient that grads holds, the largest of
 * each first, against (L(x + step) - L(x - step)) / (2 step) with L = sum(cotangent *
 * object), all in float64.  Scratch is given back.  Errors: MEMORY, DEADLINE.
 */
bool attn_grad_check_run(const struct attn_problem *p, const struct attn_grad_ask *ask,
                         size_t entries, uint64_t seed, struct attn_arena *arena,
                         const struct attn_exec *exec, struct attn_grads *grads,
                         struct attn_err *err)
{
    const size_t mark = attn_arena_mark(arena);
    struct attn_grad_check check = {
        .worst = -1, .first = -1, .step = STEPS[0], .tolerance = TOLERANCES[p->dtype]};
    struct check_run run = {.ask = ask, .exec = exec, .arena = arena, .check = &check};
    struct attn_tensor of = in_float64(ask->cotangent);
    bool ok = promote(&run, p, err) && (p->additive.p == NULL || spread_bias(&run, err));

    if (ok) {
        run.plus = attn_arena_take(arena, attn_grad_tensor_bytes(&of));
        ok = run.plus != NULL || attn_fail(err, ATTN_E_MEMORY, "cotangent", NULL,
                                           arena->size, attn_grad_tensor_bytes(&of));
    }
    ok = ok && measure_scores(&run, err);
    for (enum attn_gradient g = 0; g < ATTN_GRADIENT_COUNT && ok; g++)
        if (grads->t[g].p != NULL)
            ok = check_tensor(&run, g, &grads->t[g], entries, &seed, err);
    attn_arena_release(arena, mark);
    check.done = ok;
    check.pass = check.worst_relative_error <= check.tolerance;
    grads->check = check;
    return ok;
}
