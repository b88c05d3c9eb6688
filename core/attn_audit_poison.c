/*
 * attn_audit_poison.c - check 12: huge numbers in keys and values that no query may
 * read.
 * Not here: tokens that some rows may read (attn_audit_tokens.c).
 * Start reading at attn_check_poison.
 */
#include "core/attn_rerun.h"

enum { PAIRS_ASKED = 1 << 16 }; /* of the rules, in a sampled audit */

static double poison_of(enum attn_dtype dtype)
{
    return dtype == ATTN_F32 ? 1e38 : 1e300;
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

/* The rows of a run's output, kept as numbers while another run takes its memory. */
static void keep_rows(const struct attn_tensor *t, struct attn_rows rows, double *kept)
{
    for (size_t i = rows.i0; i < rows.i1; i++)
        for (size_t c = 0; c < t->dim[2]; c++)
            *kept++ = attn_number(t, attn_place3(t, rows.b0, i) + c);
}

static void compare_kept(enum attn_object o, const double *kept,
                         const struct attn_tensor *clean, struct attn_rows rows,
                         struct attn_diff *diff)
{
    *diff = (struct attn_diff){0};
    for (size_t i = rows.i0; i < rows.i1; i++) {
        diff->rows++;
        for (size_t c = 0; c < clean->dim[2]; c++)
            attn_diff_exact(diff, o, (const size_t[4]){rows.b0, i, c, SIZE_MAX}, *kept++,
                            attn_number(clean, attn_place3(clean, rows.b0, i) + c));
    }
}

/* Runs the poisoned problem.  Where its rows are not those of the trace, it runs once
   more from Q, K and V on without the poison: only a difference between those two is the
   poison's. */
static bool run_poisoned(struct attn_auditor *a, const struct attn_problem *p,
                         struct attn_rows rows, struct attn_diff *diff)
{
    const enum attn_object o = attn_rerun_output(a);
    const size_t count = (rows.i1 - rows.i0) * a->trace->t[o].dim[2];
    double *kept = attn_arena_take(a->arena, count * sizeof *kept);
    const size_t mark = attn_arena_mark(a->arena);
    struct attn_problem clean;
    struct attn_swap later;
    struct attn_trace again;

    if (!kept)
        return attn_fail(a->err, ATTN_E_MEMORY, "audit", NULL, a->arena->size,
                         a->arena->used);
    if (!attn_rerun(a, p, a->plan->path, rows, attn_rerun_later(a, &later), &again))
        return false;
    attn_rerun_compare(a, &again, rows.b0, rows, NULL, diff);
    if (!diff->bad)
        return true;
    keep_rows(&again.t[o], rows, kept);
    attn_arena_release(a->arena, mark);
    attn_rerun_projected(a, &clean);
    if (!attn_rerun(a, &clean, a->plan->path, rows, attn_rerun_later(a, &later), &again))
        return false;
    compare_kept(o, kept, &again.t[o], rows, diff);
    return true;
}

/* Item b; *keys counts what was poisoned. */
static bool poison(struct attn_auditor *a, size_t b, size_t *keys, struct attn_diff *diff)
{
    const struct attn_rows rows =
        attn_rerun_block(a, b, attn_random_below(&a->random, a->p->d.T_q));
    struct attn_diff own = {0};
    struct attn_problem p;
    size_t count;

    attn_rerun_projected(a, &p);
    if (!attn_rerun_copy(a, &p.in[ATTN_IN_K]) || !attn_rerun_copy(a, &p.in[ATTN_IN_V]))
        return false;
    count = poison_item(a, b, &p);
    *keys += count;
    if (count > 0 && !run_poisoned(a, &p, rows, &own))
        return false;
    own.rows += diff->rows;
    own.compared += diff->compared;
    if (!diff->bad)
        *diff = own;
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
        attn_finding_skip(f,
                          "Every key of the items looked at may be read by some query.");
    else
        attn_finding_set(f, &diff, &words);
    f->fact[7] = (double)keys;
    f->fact[8] = poison_of(a->p->dtype);
    return done;
}
