/*
 * attn_audit_tiled.c - check 13: the dense and the tiled path give the same rows up to
 * rounding.
 * Not here: the paths (attn_run.c, attn_tiled.c).
 * Start reading at attn_check_tiled.
 */
#include "core/attn_rerun.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* At least the largest |x| of some rows of a head, of Euclid's norm. */
static double largest_row(const struct attn_tensor *t, size_t b, size_t h, size_t i0,
                          size_t i1)
{
    const struct attn_kernel *kernel = attn_kernel_of(t->dtype);
    const size_t bytes = attn_dtype_bytes(t->dtype), width = t->dim[3];
    double largest = 0.0;

    for (size_t i = i0; i < i1; i++) {
        const size_t from = attn_place4(t, b, h, i);
        const char *row = (const char *)t->p + from * bytes;
        double sum = kernel->dot(width, row, row);

        if (!isfinite(sum)) { /* squares may be where the numbers are not */
            sum = 0.0;
            for (size_t c = from; c < from + width; c++)
                sum += attn_number(t, c) * attn_number(t, c);
        }

        largest = sum > largest ? sum : largest;
    }
    /* The sums are rounded, and squares of tiny numbers are 0. */
    return sqrt(largest * (1.0 + (double)width * attn_judge_eps(t->dtype))) +
           sqrt((double)width * (t->dtype == ATTN_F32 ? (double)FLT_MIN : DBL_MIN));
}

static double largest_bias(const struct attn_problem *p, struct attn_rows rows, size_t h)
{
    double largest = 0.0;

    if (!attn_is_biased(p))
        return 0.0;
    for (size_t i = rows.i0; i < rows.i1; i++)
        for (size_t j = 0; j < p->d.T_kv; j++)
            largest = fmax(largest, fabs(attn_bias(p, rows.b0, h, i, j)));
    return largest;
}

/* The largest |score| of one head, pair by pair: what bounds a function of which nothing
   else is known. */
static double largest_raw(struct attn_auditor *a, struct attn_rows rows, size_t h)
{
    double largest = 0.0;

    for (size_t i = rows.i0; i < rows.i1; i++) {
        attn_judge_raw_row(a->p, a->trace, rows.b0, h, i, a->scratch, a->weights);
        for (size_t j = 0; j < a->p->d.T_kv; j++)
            largest = fmax(largest, fabs(a->weights[j].value));
    }
    return largest;
}

/*
 * How far weights of one head may be apart, relative: twice the rounding of the logits
 * (largest |q||k| by Cauchy and Schwarz, or the largest score itself) and of the sum, see
 * attn_judge.c.
 */
static double weight_error(struct attn_auditor *a, struct attn_rows rows, size_t h)
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
        if (!va->p)
            logit = largest_raw(a, rows, h);
    }
    logit = logit * fabs(p->scale / p->temperature) + largest_bias(p, rows, h) +
            (sink->p ? fabs(attn_number(sink, h)) : 0.0);
    return 4.0 * eps * ((d_k + 16.0) * logit + (double)p->d.T_kv + 16.0);
}

/* value: the largest |v| that a feature of H can take; error: what its two paths may
   differ by.  `largest` is scratch of one head's features. */
static void mix_error(struct attn_auditor *a, struct attn_rows rows, double *largest,
                      struct attn_judged *H)
{
    const struct attn_tensor *V = &a->trace->t[ATTN_V];
    const size_t d_v = a->p->d.d_v;

    for (size_t h = 0; h < a->p->d.h; h++) {
        const size_t from = attn_place4(V, rows.b0, attn_kv_head(&a->p->d, h), 0);
        /* Weights sum to 1 at most on either path. */
        const double relative = fmin(weight_error(a, rows, h), 2.0);

        memset(largest, 0, d_v * sizeof *largest);
        for (size_t j = 0; j < a->p->d.T_kv; j++)
            attn_judge_largest(V, from + j * d_v, d_v, largest);
        for (size_t c = 0; c < d_v; c++)
            H[h * d_v + c] = (struct attn_judged){
                largest[c], largest[c] * relative + attn_judge_tiny(a->p->dtype)};
    }
}

/* The same for the features of Y, through W_O. */
static void output_error(const struct attn_problem *p, const struct attn_judged *H,
                         double *error)
{
    const struct attn_tensor *W = &p->in[ATTN_IN_W_O], *add = &p->in[ATTN_IN_B_O];
    const size_t width = p->d.h * p->d.d_v, n = W->dim[1];
    const double eps = attn_judge_eps(p->dtype);

    for (size_t c = 0; c < n; c++)
        error[c] = add->p ? 16.0 * eps * fabs(attn_number(add, c)) : 0.0;
    for (size_t k = 0; k < width; k++) {
        const double each = H[k].error + 2.0 * ((double)width + 16.0) * eps * H[k].value;

        attn_judge_add_sizes(W, k * n, n, each, error);
    }
}

static void compare_paths(struct attn_auditor *a, const struct attn_trace *other,
                          struct attn_rows rows, double *allowed, struct attn_diff *diff)
{
    const enum attn_object o = attn_rerun_output(a);
    const struct attn_tensor *was = &a->trace->t[o], *is = &other->t[o];

    mix_error(a, rows, allowed, a->judged);
    if (o == ATTN_Y)
        output_error(a->p, a->judged, allowed);
    else
        for (size_t c = 0; c < was->dim[2]; c++)
            allowed[c] = a->judged[c].error;
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

/* Rows around row i that the other path is to run: bits are not compared here, so a part
   of a block is enough. */
static struct attn_rows some_rows(struct attn_auditor *a, size_t b, size_t i)
{
    enum { SOME = 16 };
    struct attn_rows rows = attn_rerun_around(a, b, i);

    if (a->full || a->swap)
        return rows;
    rows.i0 = i / SOME * SOME;
    rows.i1 = rows.i0 + SOME < rows.i1 ? rows.i0 + SOME : rows.i1;
    return rows;
}

static bool run_other_path(struct attn_auditor *a, enum attn_path path,
                           struct attn_diff *diff)
{
    const size_t B = a->p->d.B, mark = attn_arena_mark(a->arena);
    const size_t first = a->full ? 0 : attn_random_below(&a->random, B),
                 end = a->full ? B : first + 1;
    struct attn_problem p;
    struct attn_swap later;
    bool done = true;

    attn_rerun_projected(a, &p);
    for (size_t b = first; done && b < end; b++) {
        const struct attn_rows rows =
            some_rows(a, b, attn_random_below(&a->random, a->p->d.T_q));
        double *allowed =
            attn_arena_take(a->arena, a->p->d.d_model * sizeof *allowed +
                                          a->p->d.h * a->p->d.d_v * sizeof *allowed);
        struct attn_trace other;

        if (!allowed)
            return attn_fail(a->err, ATTN_E_MEMORY, "audit", NULL, a->arena->size,
                             a->arena->used);
        done = attn_audit_goes_on(a) &&
               attn_rerun(a, &p, path, rows, attn_rerun_later(a, &later), &other);
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
    if (!attn_rerun_other_path(a->p, a->plan, &other)) {
        attn_finding_skip(
            f, "The dense path would need more memory than an audit may take; rows of H "
               "were recomputed from Q, K and V (check 7).");
        return true;
    }
    done = run_other_path(a, other.path, &diff);
    attn_finding_set(f, &diff, &words);
    return done;
}
