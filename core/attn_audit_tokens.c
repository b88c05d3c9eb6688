/*
 * attn_audit_tokens.c - checks 10 and 11: tokens that a row may not read are changed,
 * and the row must not notice.
 * Not here: keys that no row may read (attn_audit_poison.c).
 * Start reading at attn_check_prefix.
 */
#include "core/attn_rerun.h"

#include <string.h>

enum { CUTS_MAX = 32 }; /* reruns of one item in a full audit */

struct unread {        /* of one item */
    uint8_t *key;      /* [T_kv] 1: to be changed */
    uint8_t *compared; /* [T_q] 1: must not notice */
    size_t keys;
};

static bool take_unread(const struct attn_auditor *a, struct unread *u)
{
    u->key = attn_arena_take(a->arena, a->p->d.T_kv);
    u->compared = attn_arena_take(a->arena, a->p->d.T_q);
    u->keys = 0;
    if (u->key && u->compared)
        return true;
    return attn_fail(a->err, ATTN_E_MEMORY, "audit", NULL, a->arena->size,
                     a->arena->used);
}

/* Changes row t of every [.., T, width] matrix of item b where the flag says so. */
static void disturb_rows(struct attn_auditor *a, struct attn_tensor *t, size_t b,
                         const uint8_t *flag)
{
    const size_t heads = t->rank == 4 ? t->dim[1] : 1, T = t->dim[t->rank - 2];
    const size_t width = t->dim[t->rank - 1];

    for (size_t h = 0; h < heads; h++)
        for (size_t n = 0, end; n < T; n = end) {
            for (end = n; end < T && flag[end]; end++)
                continue;
            attn_rerun_disturb(a, t, ((b * heads + h) * T + n) * width,
                               (end - n) * width);
            end += end == n;
        }
}

/* Leaves the keys that can be changed: in self-attention they are tokens, and never those
   of compared queries. */
static void count_unread(const struct attn_problem *p, struct unread *u)
{
    for (size_t t = 0; p->form.source == ATTN_SELF && t < p->d.T_q; t++)
        u->key[p->d.T_past + t] = u->key[p->d.T_past + t] && !u->compared[t];
    for (size_t j = 0; j < p->d.T_kv; j++)
        u->keys += u->key[j];
}

/* Changes the unread keys of item b in p: the tokens themselves in self-attention, keys
   and values elsewhere. */
static bool change_unread(struct attn_auditor *a, size_t b, const struct unread *u,
                          struct attn_problem *p)
{
    static const enum attn_input fresh[] = {ATTN_IN_X, ATTN_IN_X_KV, ATTN_IN_K,
                                            ATTN_IN_V};
    static const enum attn_input cached[] = {ATTN_IN_PAST_K, ATTN_IN_PAST_V};

    for (size_t n = 0; n < ATTN_COUNT(fresh); n++) {
        struct attn_tensor *t = &p->in[fresh[n]];

        if (!t->p || (fresh[n] == ATTN_IN_X && p->form.source != ATTN_SELF))
            continue;
        if (!attn_rerun_copy(a, t))
            return false;
        disturb_rows(a, t, b, u->key + p->d.T_past);
    }
    for (size_t n = 0; n < ATTN_COUNT(cached); n++) {
        struct attn_tensor *t = &p->in[cached[n]];

        if (!attn_rerun_copy(a, t))
            return false;
        if (t->p)
            disturb_rows(a, t, b, u->key);
    }
    return true;
}

static bool run_unread(struct attn_auditor *a, struct attn_rows rows, struct unread *u,
                       struct attn_diff *diff)
{
    struct attn_problem changed;
    struct attn_trace again;
    struct attn_wanted want;
    const struct attn_rows at = attn_rerun_base(a, rows, &changed);

    count_unread(&changed, u);
    if (u->keys == 0)
        return true;
    if (!attn_rerun_wanted(a, rows, &want) || !change_unread(a, at.b0, u, &changed) ||
        !attn_rerun(a, &changed, a->plan->path, at, a->swap, &again))
        return false;
    attn_rerun_compare(a, &want, attn_rerun_rows(a, &again, at), u->compared, diff);
    return true;
}

/* Which keys row r and its like may not read, for one reason. */
typedef void mark_fn(const struct attn_problem *p, size_t b, size_t r,
                     struct attn_rows rows, struct unread *u);

/* Rows without a key that spread their weight evenly read every key: nothing is asked
   of them. */
static void leave_uniform(const struct attn_auditor *a, size_t b, struct unread *u)
{
    const struct attn_dims *d = &a->p->d;

    if (a->p->empty_rows != ATTN_EMPTY_UNIFORM || !a->trace->empty)
        return;
    for (size_t h = 0; h < d->h; h++)
        for (size_t i = 0; i < d->T_q; i++)
            if (a->trace->empty[(b * d->h + h) * d->T_q + i])
                u->compared[i] = 0;
}

/* Row r of item b, and the rows run beside it that share the reason. */
static bool run_cut(struct attn_auditor *a, size_t b, size_t r, mark_fn *mark_keys,
                    struct attn_diff *diff)
{
    const size_t mark = attn_arena_mark(a->arena);
    const struct attn_rows rows = attn_rerun_around(a, b, r);
    struct unread u;
    bool done = take_unread(a, &u);

    if (done) {
        memset(u.key, 0, a->p->d.T_kv);
        memset(u.compared, 0, a->p->d.T_q);
        mark_keys(a->p, b, r, rows, &u);
        leave_uniform(a, b, &u);
        done = run_unread(a, rows, &u, diff);
    }
    attn_arena_release(a->arena, mark);
    return done;
}

/* One drawn row r < end of one item; in a full audit up to CUTS_MAX rows of every
   item. */
static bool run_cuts(struct attn_auditor *a, size_t end, mark_fn *mark_keys,
                     struct attn_diff *diff)
{
    const size_t B = a->p->d.B, cuts = end < CUTS_MAX ? end : CUTS_MAX;

    if (!a->full)
        return run_cut(a, attn_random_below(&a->random, B),
                       attn_random_below(&a->random, end), mark_keys, diff);
    for (size_t b = 0; b < B; b++)
        for (size_t n = 0; n < cuts; n++)
            if (!attn_audit_goes_on(a) ||
                !run_cut(a, b, end <= CUTS_MAX ? n : n * (end - 1) / (cuts - 1),
                         mark_keys, diff))
                return false;
    return true;
}

/* ---- 10: later tokens -------------------------------------------------------------- */

static void mark_later(const struct attn_problem *p, size_t b, size_t r,
                       struct attn_rows rows, struct unread *u)
{
    const ptrdiff_t last = (ptrdiff_t)r + p->shift;

    (void)b;
    for (size_t j = 0; j < p->d.T_kv; j++)
        u->key[j] = (ptrdiff_t)j > last;
    for (size_t i = rows.i0; i <= r; i++)
        u->compared[i] = 1;
}

bool attn_check_prefix(struct attn_auditor *a, struct attn_finding *f)
{
    static const struct attn_words words = {
        "Other tokens at positions after a row leave that row, and every earlier one, "
        "the same bits.",
        "{0} rows compared, {1} numbers, every bit the same although later keys and "
        "values were others.",
        "{4} before and {5} after later keys and values were changed, at the first "
        "number that differs.",
        "Under a causal rule a row is complete once its own token is there: this is what "
        "lets "
        "training compute all rows at once and generation keep a cache.",
    };
    const ptrdiff_t readable = (ptrdiff_t)a->p->d.T_kv - 1 - a->p->shift;
    struct attn_diff diff = {0};
    bool done;

    if (!attn_rerun_possible(a, f))
        return true;
    if (!attn_mask_of(a->p, "causal")) {
        attn_finding_skip(f, "There is no causal rule: every row may read later tokens.");
        return true;
    }
    if (readable <= 0) {
        attn_finding_skip(
            f, "No key is later than the first query, so there is none to change.");
        return true;
    }
    done = run_cuts(a, (size_t)readable < a->p->d.T_q ? (size_t)readable : a->p->d.T_q,
                    mark_later, &diff);
    if (diff.rows == 0)
        attn_finding_skip(f, "No token after a row could be changed.");
    else
        attn_finding_set(f, &diff, &words);
    if (diff.rows > 0 && attn_rerun_short(a))
        f->detail = ATTN_RERUN_FEW;
    return done;
}

/* ---- 11: other documents ----------------------------------------------------------- */

/* Is query i of the same document as row r?  Its own key is then one that row r may
   read. */
static bool same_document(const struct attn_problem *p, const struct attn_mask *documents,
                          size_t b, size_t r, size_t i)
{
    const size_t own = i + p->d.T_kv - p->d.T_q;

    return i == r ||
           (own < p->d.T_kv && documents->row->allows(p, documents, b, 0, r, own));
}

static void mark_others(const struct attn_problem *p, size_t b, size_t r,
                        struct attn_rows rows, struct unread *u)
{
    const struct attn_mask *documents = attn_mask_of(p, "documents");

    for (size_t j = 0; j < p->d.T_kv; j++)
        u->key[j] = !documents->row->allows(p, documents, b, 0, r, j);
    for (size_t i = rows.i0; i < rows.i1; i++)
        u->compared[i] = same_document(p, documents, b, r, i);
}

bool attn_check_documents(struct attn_auditor *a, struct attn_finding *f)
{
    static const struct attn_words words = {
        "Other tokens in other documents of the same sequence leave a document's rows "
        "the same bits.",
        "{0} rows compared, {1} numbers, every bit the same although keys and values of "
        "other documents were others.",
        "{4} before and {5} after keys and values of another document were changed, at "
        "the first number that differs.",
        "Documents that are packed into one sequence share storage, not meaning.",
    };
    struct attn_diff diff = {0};
    bool done = true;

    if (!attn_rerun_possible(a, f))
        return true;
    if (!attn_mask_of(a->p, "documents")) {
        attn_finding_skip(f, "No documents are stated.");
        return true;
    }
    for (int tries = 0; done && diff.rows == 0 && tries < (a->full ? 1 : 4); tries++)
        done = run_cuts(a, a->p->d.T_q, mark_others, &diff);
    if (diff.rows == 0)
        attn_finding_skip(f, "The rows looked at have no other document beside them.");
    else
        attn_finding_set(f, &diff, &words);
    if (diff.rows > 0 && attn_rerun_short(a))
        f->detail = ATTN_RERUN_FEW;
    return done;
}
