/*
 * attn_diagnose_walk.c - the layer walked in dependency order over a candidate's own
 * objects. Not here: what a mismatch means (attn_diagnose.c), tolerances
 * (attn_diagnose_compare.c). Start reading at STEPS, then attn_walk_run.
 */
#include "core/attn_diagnose.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- carrying on from what was given ---- */

/* K from present_K and the like, when the object itself was not given. */
static void carry_key_cache(struct attn_walk *w)
{
    if (!attn_walk_given(w, ATTN_PRESENT_K) || attn_walk_given(w, ATTN_K))
        return;
    memcpy(w->t.t[ATTN_K].p, w->c->object[ATTN_PRESENT_K].p,
           attn_tensor_count(&w->t.t[ATTN_K]) * sizeof(double));
}

static void carry_value_cache(struct attn_walk *w)
{
    if (!attn_walk_given(w, ATTN_PRESENT_V) || attn_walk_given(w, ATTN_V))
        return;
    memcpy(w->t.t[ATTN_V].p, w->c->object[ATTN_PRESENT_V].p,
           attn_tensor_count(&w->t.t[ATTN_V]) * sizeof(double));
}

/* S from the candidate's own S_raw; a replaced stage has its own way from Q and K to S.
 */
static void carry_raw_scores(struct attn_walk *w)
{
    const struct attn_tensor *raw = &w->c->object[ATTN_S_RAW];

    if (!attn_walk_given(w, ATTN_S_RAW) || (w->swap && w->swap->stage[ATTN_STAGE_SCORE]))
        return;
    attn_kernel_of(ATTN_F64)->scale_cap(attn_tensor_count(raw), raw->p,
                                        w->p->scale / w->p->temperature, w->p->softcap,
                                        w->t.t[ATTN_S].p);
}

static double finite_bias(const struct attn_walk *w, struct attn_cell x, double m)
{
    return m == -INFINITY ? attn_bias(w->p, x.b, x.h, x.i, x.j) : m;
}

static void carry_allowed(struct attn_walk *w)
{
    const struct attn_tensor *allowed = &w->t.t[ATTN_ALLOWED];
    struct attn_tensor *M = &w->t.t[ATTN_M];
    size_t n = 0;

    if (!attn_walk_given(w, ATTN_ALLOWED))
        return;
    for (struct attn_cell x = {0};
         attn_cell_in(&x, M->dim[0], M->dim[1], M->dim[2], M->dim[3]); x.j++, n++)
        attn_put(M, n,
                 attn_number(allowed, n) != 0.0 ? finite_bias(w, x, attn_number(M, n))
                                                : -INFINITY);
}

static void carry_mask(struct attn_walk *w)
{
    struct attn_tensor *allowed = &w->t.t[ATTN_ALLOWED];
    const struct attn_tensor *M = &w->t.t[ATTN_M];

    if (!attn_walk_given(w, ATTN_M))
        return;
    for (size_t n = 0; n < attn_tensor_count(M); n++)
        attn_put(allowed, n, attn_number(M, n) != -INFINITY);
}

static void expect_masked(struct attn_walk *w)
{
    attn_kernel_of(ATTN_F64)->masked(attn_tensor_count(&w->t.t[ATTN_S]), w->t.t[ATTN_S].p,
                                     w->t.t[ATTN_M].p, w->t.t[ATTN_ALLOWED].p,
                                     w->t.t[ATTN_S_MASKED].p);
}

/* The softmax reads S and M: S_masked, which it would be computed from, is put into them.
 */
static void carry_masked(struct attn_walk *w)
{
    const struct attn_tensor *given = &w->c->object[ATTN_S_MASKED];
    const bool needed = !w->seen[ATTN_S_MASKED].same || !attn_walk_given(w, ATTN_S);
    size_t n = 0;

    if (!attn_walk_given(w, ATTN_S_MASKED) || !needed)
        return;
    for (struct attn_cell x = {0};
         attn_cell_in(&x, given->dim[0], given->dim[1], given->dim[2], given->dim[3]);
         x.j++, n++) {
        const double sum = attn_number(given, n);
        const double m = finite_bias(w, x, attn_number(&w->t.t[ATTN_M], n));

        attn_put(&w->t.t[ATTN_ALLOWED], n, sum != -INFINITY);
        attn_put(&w->t.t[ATTN_M], n, sum != -INFINITY ? m : -INFINITY);
        if (sum != -INFINITY)
            attn_put(&w->t.t[ATTN_S], n, sum - m);
    }
}

/* H from the candidate's own heads; a replaced stage joins them its own way. */
static void carry_heads(struct attn_walk *w)
{
    const struct attn_tensor *heads = &w->c->object[ATTN_H_HEADS];
    struct attn_tensor *H = &w->t.t[ATTN_H];
    const size_t d_v = w->p->d.d_v;

    if (!attn_walk_given(w, ATTN_H_HEADS) || (w->swap && w->swap->stage[ATTN_STAGE_MIX]))
        return;
    for (struct attn_cell x = {0};
         attn_cell_in(&x, heads->dim[0], heads->dim[1], heads->dim[2], d_v); x.j++)
        attn_put(H, attn_place3(H, x.b, x.i) + x.h * d_v + x.j,
                 attn_at4(heads, x.b, x.h, x.i, x.j));
}

/* ---- the steps ---- */

static const struct step_row {
    enum attn_object object;
    enum attn_stage stage;
    void (*expect)(struct attn_walk *w); /* besides the stage, or NULL */
    void (*carry)(struct attn_walk *w);  /* besides the object itself, or NULL */
} STEPS[] = {
    {ATTN_Q_PRE, ATTN_STAGE_PROJECT_Q, NULL, NULL},
    {ATTN_Q, ATTN_STAGE_POSITION_Q, NULL, NULL},
    {ATTN_K_PRE, ATTN_STAGE_PROJECT_K, NULL, NULL},
    {ATTN_K, ATTN_STAGE_POSITION_K, NULL, NULL},
    {ATTN_PRESENT_K, ATTN_STAGE_POSITION_K, NULL, carry_key_cache},
    {ATTN_V, ATTN_STAGE_PROJECT_V, NULL, NULL},
    {ATTN_PRESENT_V, ATTN_STAGE_PROJECT_V, NULL, carry_value_cache},
    {ATTN_S_RAW, ATTN_STAGE_SCORE, NULL, carry_raw_scores},
    {ATTN_S, ATTN_STAGE_SCORE, NULL, NULL},
    {ATTN_ALLOWED, ATTN_STAGE_MASK, NULL, carry_allowed},
    {ATTN_M, ATTN_STAGE_MASK, NULL, carry_mask},
    {ATTN_S_MASKED, ATTN_STAGE_MASK, expect_masked, carry_masked},
    {ATTN_A, ATTN_STAGE_SOFTMAX, NULL, NULL},
    {ATTN_LSE, ATTN_STAGE_SOFTMAX, NULL, NULL},
    {ATTN_CONTRIBUTIONS, ATTN_STAGE_MIX, NULL, NULL},
    {ATTN_H_HEADS, ATTN_STAGE_MIX, NULL, carry_heads},
    {ATTN_H, ATTN_STAGE_MIX, NULL, NULL},
    {ATTN_Y, ATTN_STAGE_OUTPUT, NULL, NULL},
};
_Static_assert(ATTN_COUNT(STEPS) == ATTN_WALK_STEPS, "attn_walk_object knows them all");

enum attn_object attn_walk_object(size_t n)
{
    assert(n < ATTN_WALK_STEPS);
    return STEPS[n].object;
}

enum attn_stage attn_walk_stage(enum attn_object o)
{
    for (size_t n = 0; n < ATTN_WALK_STEPS; n++)
        if (STEPS[n].object == o)
            return STEPS[n].stage;
    return ATTN_STAGE_PROJECT_Q;
}

bool attn_walk_given(const struct attn_walk *w, enum attn_object o)
{
    return w->c->object[o].p && !(w->ignore & ATTN_BIT(o));
}

/* Weights of anybody may stand anywhere, so the mix looks at every key. */
static const struct attn_swap ANY_WEIGHTS = {{[ATTN_STAGE_SOFTMAX] = attn_stage_softmax},
                                             NULL};

static bool run_stage(struct attn_walk *w, enum attn_stage stage, struct attn_err *err)
{
    attn_stage_fn *other = w->swap ? w->swap->stage[stage] : NULL;
    const struct attn_run_ctx run = {.p = w->p,
                                     .plan = w->plan,
                                     .t = &w->t,
                                     .exec = w->exec,
                                     .swap = other ? w->swap : &ANY_WEIGHTS,
                                     .rows = {.b1 = w->p->d.B, .i1 = w->p->d.T_q}};

    if (stage == ATTN_STAGE_OUTPUT && !w->t.t[ATTN_Y].p)
        return true;
    return other ? other(&run, (struct attn_piece){0}, err)
                 : attn_stage_all(&run, stage, err);
}

/* ---- comparing ---- */

/* Numbers to compare object o with; objects that share the noise of another. */
static const double *noise_of(const struct attn_walk *w, enum attn_object o)
{
    static const int like[ATTN_OBJECT_COUNT] = {
        [ATTN_Q_PRE] = ATTN_Q,     [ATTN_Q] = ATTN_Q,         [ATTN_K_PRE] = ATTN_K,
        [ATTN_K] = ATTN_K,         [ATTN_PRESENT_K] = ATTN_K, [ATTN_V] = ATTN_V,
        [ATTN_PRESENT_V] = ATTN_V, [ATTN_S_MASKED] = ATTN_S,  [ATTN_S] = ATTN_S,
        [ATTN_A] = ATTN_A,         [ATTN_LSE] = ATTN_LSE,     [ATTN_H] = ATTN_H,
        [ATTN_Y] = ATTN_Y,
    };

    return like[o] ? w->noise[like[o]] : NULL;
}

static double largest_noise(const double *noise, size_t n)
{
    double most = 0.0;

    for (size_t i = 0; noise && i < n; i++)
        if (noise[i] > most)
            most = noise[i];
    return most;
}

/* What has no noise of its own gets the largest of what it is made of. */
static double flat_noise(const struct attn_walk *w, enum attn_object o)
{
    const double factor = fabs(w->p->scale / w->p->temperature);

    if (o == ATTN_S_RAW && factor > 0.0)
        return largest_noise(w->noise[ATTN_S], attn_tensor_count(&w->t.t[ATTN_S])) /
               factor;
    if (o == ATTN_H_HEADS || o == ATTN_CONTRIBUTIONS)
        return largest_noise(w->noise[ATTN_H], attn_tensor_count(&w->t.t[ATTN_H]));
    return 0.0;
}

static void compare_contributions(const struct attn_walk *w,
                                  const struct attn_margin *margin,
                                  struct attn_seen *seen)
{
    const struct attn_tensor *given = &w->c->object[ATTN_CONTRIBUTIONS];
    const struct attn_tensor *A = &w->t.t[ATTN_A], *V = &w->t.t[ATTN_V];
    const size_t T = w->p->d.T_kv, d_v = w->p->d.d_v;

    *seen = (struct attn_seen){.given = true, .same = true};
    for (struct attn_cell x = {0};
         attn_cell_in(&x, w->p->d.B, w->p->d.h, w->p->d.T_q, T * d_v); x.j++) {
        const double a = attn_at4(A, x.b, x.h, x.i, x.j / d_v);
        const double v =
            attn_at4(V, x.b, attn_kv_head(&w->p->d, x.h), x.j / d_v, x.j % d_v);
        const size_t at = ((x.b * w->p->d.h + x.h) * w->p->d.T_q + x.i) * T * d_v + x.j;
        double expected = a == 0.0 ? 0.0 : a * v, observed = attn_number(given, at);
        struct attn_seen one;

        attn_compare(
            &(struct attn_tensor){
                .dtype = ATTN_F64, .rank = 1, .dim = {1}, .p = &expected},
            &(struct attn_tensor){
                .dtype = ATTN_F64, .rank = 1, .dim = {1}, .p = &observed},
            margin, NULL, &one);
        if (!(one.error <= seen->error) && !isnan(seen->error))
            seen->error = one.error;
        seen->excess = fmax(seen->excess, one.excess);
        seen->largest = fmax(seen->largest, one.largest);
        seen->beyond += !one.same;
        if (!one.same && seen->same) {
            seen->same = false;
            seen->first = at;
            seen->expected = expected;
            seen->observed = observed;
        }
    }
}

static void compare(struct attn_walk *w, enum attn_object o)
{
    const struct attn_walk *noisy = w->base ? w->base : w;
    struct attn_margin margin = attn_margin_of(w->c);

    margin.noise = noise_of(noisy, o);
    margin.flat = flat_noise(noisy, o);
    /* A fault may make larger numbers, which round as much more. */
    if (w->base && o != ATTN_CONTRIBUTIONS && w->base->seen[o].largest > 0.0) {
        struct attn_seen size;

        attn_compare(&w->t.t[o], &w->t.t[o], &margin, NULL, &size);
        margin.times = fmax(1.0, size.largest / w->base->seen[o].largest);
    }
    if (o == ATTN_CONTRIBUTIONS)
        compare_contributions(w, &margin, &w->seen[o]);
    else
        attn_compare(&w->t.t[o], &w->c->object[o], &margin,
                     o == ATTN_S ? w->skip_scores : NULL, &w->seen[o]);
}

/* The candidate's object takes the place of the computed one. */
static void adopt(struct attn_walk *w, enum attn_object o)
{
    struct attn_tensor *to = &w->t.t[o];
    const struct attn_tensor *from = &w->c->object[o];

    /* Caches share the memory of K and V, which may have been given too. */
    if (o == ATTN_CONTRIBUTIONS || o == ATTN_PRESENT_K || o == ATTN_PRESENT_V)
        return;
    for (size_t n = 0; n < attn_tensor_count(from); n++)
        if (o != ATTN_S || !w->skip_scores || !w->skip_scores[n])
            attn_put(to, n, attn_number(from, n));
}

static void settle(struct attn_walk *w, const struct step_row *step)
{
    if (step->expect)
        step->expect(w);
    if (!w->base)
        attn_noise_of(w, step->object);
    w->seen[step->object] = (struct attn_seen){0};
    if (attn_walk_given(w, step->object)) {
        compare(w, step->object);
        adopt(w, step->object);
    }
    if (step->carry)
        step->carry(w);
}

bool attn_walk_run(struct attn_walk *w, struct attn_err *err)
{
    int done = -1;

    w->stopped = false;
    for (size_t n = 0; n < ATTN_WALK_STEPS; n++) {
        const struct step_row *step = &STEPS[n];

        if (step->stage < w->start) {
            w->seen[step->object] = w->base->seen[step->object];
            continue;
        }
        if ((int)step->stage > done && !run_stage(w, step->stage, err))
            return false;
        done = (int)step->stage;
        if (!attn_object_exists(w->p, step->object))
            continue;
        settle(w, step);
        if (!w->seen[step->object].same && (w->must & ATTN_BIT(step->object)) &&
            attn_walk_given(w, step->object)) {
            w->stopped = true;
            return true;
        }
    }
    return true;
}
