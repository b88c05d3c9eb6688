/*
 * attn_audit_paths.c - checks 12 and 13: values that nobody reads, and the other path.
 * Not here: changed tokens (attn_audit_rerun.c).
 * Start reading at attn_check_poison.
 */
#include "core/attn_audit_rerun.h"

#include <math.h>
#include <string.h>

/* ---- 12: poison -------------------------------------------------------------------- */

enum { PAIRS_ASKED = 1 << 16 }; /* of the rules, in a sampled audit */

static double poison_of(enum attn_dtype dtype)
{
    return dtype == ATTN_F32 ? 1e38 : 1e300;
}

/* The layer from its own Q, K and V on: RoPE has been applied, cached rows are among the
 * keys. */
static bool from_projected(const struct attn_auditor *a, struct attn_problem *p)
{
    *p = *a->p;
    for (int in = ATTN_IN_X; in <= ATTN_IN_W_V; in++)
        p->in[in].p = NULL;
    p->in[ATTN_IN_B_Q].p = p->in[ATTN_IN_B_K].p = p->in[ATTN_IN_B_V].p = NULL;
    p->form.source = ATTN_PROJECTED;
    p->rope.on = false;
    p->d.T_past = 0;
    p->in[ATTN_IN_Q] = a->trace->t[ATTN_Q];
    p->in[ATTN_IN_K] = a->trace->t[ATTN_K];
    p->in[ATTN_IN_V] = a->trace->t[ATTN_V];
    return attn_rerun_copy(a, &p->in[ATTN_IN_K]) && attn_rerun_copy(a, &p->in[ATTN_IN_V]);
}

/* A swap without the stages that are done when Q, K and V are there. */
static const struct attn_swap *after_projection(const struct attn_auditor *a,
                                                struct attn_swap *swap)
{
    if (!a->swap)
        return NULL;
    *swap = *a->swap;
    for (int s = ATTN_STAGE_PROJECT_Q; s <= ATTN_STAGE_PROJECT_V; s++)
        swap->stage[s] = NULL;
    return swap;
}

/* A row without a key that spreads its weight evenly reads every key. */
static bool reads(const struct attn_auditor *a, size_t b, size_t h, size_t i, size_t j)
{
    const struct attn_dims *d = &a->p->d;

    return attn_allowed(a->p, b, h, i, j) ||
           (a->p->empty_rows == ATTN_EMPTY_UNIFORM && a->trace->empty &&
            a->trace->empty[(b * d->h + h) * d->T_q + i]);
}

/* May no query of the item read key j of the key/value head?  Its own position is asked
   first, then the last rows: most keys are then answered at once.  Gives up (false) when
   too much was asked. */
static bool unread_key(const struct attn_auditor *a, size_t b, size_t g, size_t j,
                       size_t *asked)
{
    const struct attn_dims *d = &a->p->d;
    const size_t group = d->h / d->h_kv;
    const ptrdiff_t own = (ptrdiff_t)j - a->p->shift;

    for (size_t h = g * group; h < (g + 1) * group; h++) {
        if (own >= 0 && (size_t)own < d->T_q && reads(a, b, h, (size_t)own, j))
            return false;
        for (size_t i = d->T_q; i-- > 0;) {
            if (!a->full && ++*asked > PAIRS_ASKED)
                return false;
            if (reads(a, b, h, i, j))
                return false;
        }
    }
    return true;
}

static void poison_row(struct attn_tensor *t, size_t b, size_t g, size_t j, double sign)
{
    const size_t from = attn_place4(t, b, g, j);
    const double huge = sign * poison_of(t->dtype);

    for (size_t c = from; c < from + t->dim[3]; c++)
        if (t->dtype == ATTN_F64)
            ((double *)t->p)[c] = huge;
        else
            ((float *)t->p)[c] = (float)huge;
}

/* Poisons what item b may not read; returns how many keys that are. */
static size_t poison_item(const struct attn_auditor *a, size_t b, struct attn_problem *p)
{
    size_t count = 0, asked = 0;

    for (size_t g = 0; g < a->p->d.h_kv; g++)
        for (size_t j = 0; j < a->p->d.T_kv; j++)
            if (unread_key(a, b, g, j, &asked)) {
                poison_row(&p->in[ATTN_IN_K], b, g, j, 1.0);
                poison_row(&p->in[ATTN_IN_V], b, g, j, count % 2 ? -1.0 : 1.0);
                count++;
            }
    return count;
}

/* Keeps the output of the poisoned run, runs without the poison, and compares the two:
   only a difference between them is the poison's. */
static bool compare_unpoisoned(struct attn_auditor *a, const struct attn_trace *poisoned,
                               struct attn_rows rows, struct attn_diff *diff)
{
    const enum attn_object o = attn_rerun_output(a);
    const struct attn_tensor *is = &poisoned->t[o];
    struct attn_problem clean;
    struct attn_swap later;
    struct attn_trace again;

    *diff = (struct attn_diff){0};
    if (!from_projected(a, &clean) ||
        !attn_rerun(a, &clean, a->plan->path, rows, after_projection(a, &later), &again))
        return false;
    for (size_t i = rows.i0; i < rows.i1; i++) {
        const size_t from = attn_place3(is, rows.b0, i);

        diff->rows++;
        for (size_t c = 0; c < is->dim[2]; c++)
            attn_diff_exact(diff, o, (const size_t[4]){rows.b0, i, c, SIZE_MAX},
                            attn_number(is, from + c),
                            attn_number(&again.t[o], from + c));
    }
    return true;
}

/* Item b; *keys counts what was poisoned. */
static bool poison(struct attn_auditor *a, size_t b, size_t *keys, struct attn_diff *diff)
{
    const struct attn_rows rows =
        attn_rerun_block(a, b, attn_random_below(&a->random, a->p->d.T_q));
    struct attn_diff own = {0};
    struct attn_problem p;
    struct attn_swap later;
    struct attn_trace again;
    size_t count;

    if (!from_projected(a, &p))
        return false;
    count = poison_item(a, b, &p);
    *keys += count;
    if (count == 0)
        return true;
    if (!attn_rerun(a, &p, a->plan->path, rows, after_projection(a, &later), &again))
        return false;
    attn_rerun_compare(a, &again, b, rows, NULL, &own);
    if (own.bad && !compare_unpoisoned(a, &again, rows, &own))
        return false;
    diff->rows += own.rows;
    diff->compared += own.compared;
    if (own.bad && !diff->bad) {
        own.rows = diff->rows;
        own.compared = diff->compared;
        *diff = own;
    }
    return true;
}

bool attn_check_poison(struct attn_auditor *a, struct attn_finding *f)
{
    static const struct attn_words words = {
        "Keys and values that no query of their item may read, set to {8}, change no "
        "bit.",
        "{7} rows of K and V were poisoned; {0} rows compared, {1} numbers, every bit "
        "the same.",
        "{4} before and {5} after {7} rows of K and V that nobody may read were "
        "poisoned, at the first "
        "number that differs.",
        "A weight that is merely small, or a 0 that is multiplied with Infinity, would "
        "let the poison "
        "through.",
    };
    const size_t B = a->p->d.B, mark = attn_arena_mark(a->arena);
    const size_t first = a->full ? 0 : attn_random_below(&a->random, B),
                 end = a->full ? B : first + 1;
    struct attn_diff diff = {0};
    size_t keys = 0;
    bool done = true;

    if (!attn_rerun_possible(a, f))
        return true;
    if (!attn_audit_has(a, ATTN_Q) || !attn_audit_has(a, ATTN_K) ||
        !attn_audit_has(a, ATTN_V)) {
        attn_finding_skip(f, "Q, K or V is not held in its right shape.");
        return true;
    }
    for (size_t b = first; done && b < end; b++) {
        done = attn_audit_goes_on(a) && poison(a, b, &keys, &diff);
        attn_arena_release(a->arena, mark);
    }
    if (keys == 0)
        attn_finding_skip(f, "Some query may read every key of the items looked at.");
    else
        attn_finding_set(f, &diff, &words);
    f->fact[7] = (double)keys;
    f->fact[8] = poison_of(a->p->dtype);
    return done;
}

/* ---- 13: the other path ------------------------------------------------------------ */

/* A dense run for a tiled trace must not cost memory that the request never meant to
 * take. */
static const size_t DENSE_BYTES_MAX = (size_t)64 << 20;

static bool other_path(const struct attn_problem *p, const struct attn_plan *plan,
                       struct attn_plan *other)
{
    const enum attn_path path =
        plan->path == ATTN_PATH_DENSE ? ATTN_PATH_TILED : ATTN_PATH_DENSE;
    const enum attn_object o = p->form.has_output ? ATTN_Y : ATTN_H;
    struct attn_err err = {0};

    return attn_plan(p, ATTN_BIT(o), path,
                     path == ATTN_PATH_DENSE ? DENSE_BYTES_MAX : SIZE_MAX, other, &err);
}

static double largest_row(const struct attn_tensor *t, size_t b, size_t h, size_t i0,
                          size_t i1)
{
    const size_t width = t->dim[3];
    double largest = 0.0;

    for (size_t i = i0; i < i1; i++) {
        const size_t from = attn_place4(t, b, h, i);
        double sum = 0.0;

        for (size_t c = 0; c < width; c++)
            sum += attn_number(t, from + c) * attn_number(t, from + c);
        largest = fmax(largest, sqrt(sum));
    }
    return largest;
}

static double largest_bias(const struct attn_problem *p, struct attn_rows rows, size_t h)
{
    double largest = 0.0;

    if (!p->alibi && !p->additive.p)
        return 0.0;
    for (size_t i = rows.i0; i < rows.i1; i++)
        for (size_t j = 0; j < p->d.T_kv; j++)
            largest = fmax(largest, fabs(attn_bias(p, rows.b0, h, i, j)));
    return largest;
}

/*
 * How far weights of one head may be apart, relative: twice the rounding of the logits
 * (largest |q||k| by Cauchy and Schwarz) and of the sum, see attn_judge.c.
 */
static double weight_error(const struct attn_auditor *a, struct attn_rows rows, size_t h)
{
    const struct attn_problem *p = a->p;
    const struct attn_tensor *va = &p->in[ATTN_IN_V_A], *sink = &p->in[ATTN_IN_SINK];
    const double eps = attn_judge_eps(p->dtype), d_k = (double)p->d.d_k;
    const double q = largest_row(&a->trace->t[ATTN_Q], rows.b0, h, rows.i0, rows.i1);
    const double k =
        largest_row(&a->trace->t[ATTN_K], rows.b0, attn_kv_head(&p->d, h), 0, p->d.T_kv);
    double logit = q * k;

    if (!p->score->bilinear) {
        logit = 0.0;
        for (size_t c = 0; va->p && c < p->d.d_k; c++)
            logit += fabs(attn_number(va, c)) * (1.0 + q + k);
    }
    logit = logit * fabs(p->scale / p->temperature) + largest_bias(p, rows, h) +
            (sink->p ? fabs(attn_number(sink, h)) : 0.0);
    return 4.0 * eps * ((d_k + 16.0) * logit + (double)p->d.T_kv + 16.0);
}

/* value: the largest |v| that a feature of H can take; error: what its two paths may
 * differ by. */
static void mix_error(const struct attn_auditor *a, struct attn_rows rows,
                      struct attn_judged *H)
{
    const struct attn_tensor *V = &a->trace->t[ATTN_V];
    const size_t d_v = a->p->d.d_v;

    for (size_t h = 0; h < a->p->d.h; h++) {
        const size_t from = attn_place4(V, rows.b0, attn_kv_head(&a->p->d, h), 0);
        const double relative = weight_error(a, rows, h);

        for (size_t c = 0; c < d_v; c++) {
            double v = 0.0;

            for (size_t j = 0; j < a->p->d.T_kv; j++)
                v = fmax(v, fabs(attn_number(V, from + j * d_v + c)));
            H[h * d_v + c] =
                (struct attn_judged){v, v * relative + attn_judge_tiny(a->p->dtype)};
        }
    }
}

/* The same for one feature of Y, through W_O. */
static double output_error(const struct attn_problem *p, const struct attn_judged *H,
                           size_t c)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_O], *add = &p->in[ATTN_IN_B_O];
    const size_t width = p->d.h * p->d.d_v;
    const double eps = attn_judge_eps(p->dtype);
    double error = add->p ? 16.0 * eps * fabs(attn_number(add, c)) : 0.0;

    for (size_t k = 0; k < width; k++)
        error += fabs(attn_number(W, k * W->dim[1] + c)) *
                 (H[k].error + 2.0 * ((double)width + 16.0) * eps * H[k].value);
    return error;
}

static void compare_paths(struct attn_auditor *a, const struct attn_trace *other,
                          struct attn_rows rows, double *allowed, struct attn_diff *diff)
{
    const enum attn_object o = attn_rerun_output(a);
    const struct attn_tensor *was = &a->trace->t[o], *is = &other->t[o];

    mix_error(a, rows, a->judged);
    for (size_t c = 0; c < was->dim[2]; c++)
        allowed[c] = o == ATTN_Y ? output_error(a->p, a->judged, c) : a->judged[c].error;
    for (size_t i = rows.i0; i < rows.i1; i++) {
        const size_t from = attn_place3(was, rows.b0, i);

        diff->rows++;
        for (size_t c = 0; c < was->dim[2]; c++) {
            const size_t at[4] = {rows.b0, i, c, SIZE_MAX};
            const double want = attn_number(was, from + c),
                         got = attn_number(is, from + c);

            if (isnan(want)) /* an empty row asked to be NaN is NaN on both paths */
                attn_diff_exact(diff, o, at, got, want);
            else
                attn_diff_note(diff, o, at, got, (struct attn_judged){want, allowed[c]});
        }
    }
}

static bool run_other_path(struct attn_auditor *a, enum attn_path path,
                           struct attn_diff *diff)
{
    const size_t B = a->p->d.B, mark = attn_arena_mark(a->arena);
    const size_t first = a->full ? 0 : attn_random_below(&a->random, B),
                 end = a->full ? B : first + 1;
    bool done = true;

    for (size_t b = first; done && b < end; b++) {
        const struct attn_rows rows =
            attn_rerun_block(a, b, attn_random_below(&a->random, a->p->d.T_q));
        double *allowed =
            attn_arena_take(a->arena, a->p->d.d_model * sizeof *allowed +
                                          a->p->d.h * a->p->d.d_v * sizeof *allowed);
        struct attn_trace other;

        if (!allowed)
            return attn_fail(a->err, ATTN_E_MEMORY, "audit", NULL, a->arena->size,
                             a->arena->used);
        done = attn_audit_goes_on(a) && attn_rerun(a, a->p, path, rows, a->swap, &other);
        if (done)
            compare_paths(a, &other, rows, allowed, diff);
        attn_arena_release(a->arena, mark);
    }
    return done;
}

static bool swaps_pairs(const struct attn_swap *swap)
{
    for (int s = ATTN_STAGE_SCORE; swap && s <= ATTN_STAGE_MIX; s++)
        if (swap->stage[s])
            return true;
    return false;
}

bool attn_check_tiled(struct attn_auditor *a, struct attn_finding *f)
{
    static const struct attn_words words = {
        "The path that holds every pair and the path that keeps only a running maximum "
        "and sum give the "
        "same rows up to rounding.",
        "{0} rows run on the other path, {1} numbers: the largest difference is {2}, {3} "
        "is allowed "
        "there.",
        "{4} on the audited path, {5} on the other, at the first number that differs; "
        "{6} is allowed.",
        "The two add in another order, so bits may differ; the tolerance grows with the "
        "largest score, "
        "d_k and T.",
    };
    struct attn_diff diff = {0};
    struct attn_plan other;
    bool done;

    if (!attn_rerun_possible(a, f))
        return true;
    if (swaps_pairs(a->swap)) {
        attn_finding_skip(
            f,
            "A stage between Q·K and A·V was replaced; the tiled path does them all at "
            "once and has none of them.");
        return true;
    }
    if (!attn_audit_has(a, ATTN_Q) || !attn_audit_has(a, ATTN_K) ||
        !attn_audit_has(a, ATTN_V)) {
        attn_finding_skip(f, "Q, K or V is not held in its right shape.");
        return true;
    }
    if (!other_path(a->p, a->plan, &other)) {
        attn_finding_skip(
            f, "The dense path would need more memory than an audit may take; rows of H "
               "were recomputed from Q, K and V (check 7).");
        return true;
    }
    done = run_other_path(a, other.path, &diff);
    attn_finding_set(f, &diff, &words);
    return done;
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
    const size_t keys = d->B * d->h_kv * d->T_kv * (d->d_k + d->d_v) * number;
    struct attn_plan other = {0};
    size_t inputs = 0, runs = 2 * plan->trace_bytes;

    for (int in = ATTN_IN_X; in <= ATTN_IN_PAST_V; in++)
        inputs += bytes_of(&p->in[in]);
    if (other_path(p, plan, &other) && other.trace_bytes > runs)
        runs = other.trace_bytes;
    return flags + 8 * (size_t)ATTN_ALIGN + runs +
           (inputs > 2 * keys ? inputs : 2 * keys);
}
