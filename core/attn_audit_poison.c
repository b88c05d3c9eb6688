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

/* How many keys item b may not read; with p they are poisoned in its item `at`. */
static size_t unread_keys(const struct attn_auditor *a, size_t b, struct attn_problem *p,
                          size_t at)
{
    size_t count = 0, asked = 0;

    for (size_t g = 0; g < a->p->d.h_kv; g++)
        for (size_t j = 0; j < a->p->d.T_kv; j++) {
            if (!unread_key(a, b, g, j, &asked))
                continue;
            if (p) {
                poison_row(&p->in[ATTN_IN_K], at, g, j, 1.0);
                poison_row(&p->in[ATTN_IN_V], at, g, j, count % 2 ? -1.0 : 1.0);
            }
            count++;
        }
    return count;
}

/* Runs the poisoned problem.  Where its rows are not those wanted, it runs once more from
   Q, K and V on without the poison: only a difference between those two is the poison's.
 */
static bool run_poisoned(struct attn_auditor *a, const struct attn_problem *p,
                         struct attn_rows rows, const struct attn_wanted *want,
                         struct attn_diff *diff)
{
    const enum attn_path path = a->plan->path;
    struct attn_wanted clean = *want;
    struct attn_mat got = want->output;
    struct attn_problem unpoisoned;
    struct attn_swap later;
    struct attn_trace again;
    size_t mark;

    if (!attn_rerun_keep(a, &got)) /* the room for them */
        return false;
    mark = attn_arena_mark(a->arena);
    if (!attn_rerun(a, p, path, rows, attn_rerun_later(a, &later), &again))
        return false;
    attn_mat_copy(got, attn_rerun_rows(a, &again, rows));
    attn_rerun_compare(a, want, got, NULL, diff);
    if (!diff->bad || attn_rerun_short(a))
        return true;
    attn_arena_release(a->arena, mark);
    attn_rerun_projected(a, &unpoisoned);
    if (!attn_rerun(a, &unpoisoned, path, rows, attn_rerun_later(a, &later), &again))
        return false;
    clean.output = attn_rerun_rows(a, &again, rows);
    *diff = (struct attn_diff){0};
    attn_rerun_compare(a, &clean, got, NULL, diff);
    return true;
}

/* Item b; *keys counts what was poisoned. */
static bool poison(struct attn_auditor *a, size_t b, size_t *keys, struct attn_diff *diff)
{
    const struct attn_rows rows =
        attn_rerun_around(a, b, attn_random_below(&a->random, a->p->d.T_q));
    struct attn_diff own = {0};
    struct attn_wanted want;
    struct attn_problem p;
    struct attn_rows again;

    if (unread_keys(a, b, NULL, 0) == 0)
        return true;
    if (!attn_rerun_wanted(a, rows, &want))
        return false;
    again = attn_rerun_base(a, rows, &p);
    if (!attn_rerun_short(a))
        attn_rerun_projected(a, &p);
    if (!attn_rerun_copy(a, &p.in[ATTN_IN_K]) || !attn_rerun_copy(a, &p.in[ATTN_IN_V]))
        return false;
    *keys += unread_keys(a, b, &p, again.b0);
    if (!run_poisoned(a, &p, again, &want, &own))
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
    if (keys > 0 && attn_rerun_short(a))
        f->detail = ATTN_RERUN_FEW;
    f->fact[7] = (double)keys;
    f->fact[8] = poison_of(a->p->dtype);
    return done;
}
