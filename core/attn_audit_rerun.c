/*
 * attn_audit_rerun.c - checks 9 to 11: the layer runs again on changed inputs, and rows
 * that must not notice are compared bit by bit. Not here: poisoned values and the other
 * path (attn_audit_paths.c), judging by own loops. Start reading at attn_check_prefix.
 */
#include "core/attn_audit_rerun.h"

#include <assert.h>
#include <string.h>

enum { CUTS_MAX = 32 }; /* reruns of one item in a full audit */

/* ---- running again ----------------------------------------------------------------- */

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
 * everything. */
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

/* A block of rows of one item, or all its rows: a full audit, or a swap that works on the
 * whole. */
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

    for (size_t i = rows.i0; i < rows.i1; i++) {
        const size_t from = attn_place3(was, rows.b0, i),
                     from_again = attn_place3(is, b_again, i);

        if (compared && !compared[i])
            continue;
        diff->rows++;
        for (size_t c = 0; c < was->dim[2]; c++)
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
static void disturb(struct attn_auditor *a, struct attn_tensor *t, size_t from, size_t n)
{
    for (size_t k = from; k < from + n; k++) {
        const double x = (double)(attn_random_u64(&a->random) >> 11) * 0x1p-51 - 2.0;

        if (t->dtype == ATTN_F64)
            ((double *)t->p)[k] = x;
        else
            ((float *)t->p)[k] = (float)x;
    }
}

/* ---- 9: other items ---------------------------------------------------------------- */

static bool item_alone(struct attn_auditor *a, struct attn_rows rows,
                       struct attn_diff *diff)
{
    struct attn_problem item;
    struct attn_trace again;

    attn_problem_item(a->p, rows.b0, &item);
    if (!attn_rerun(a, &item, a->plan->path, (struct attn_rows){0, 1, rows.i0, rows.i1},
                    a->swap, &again))
        return false;
    attn_rerun_compare(a, &again, 0, rows, NULL, diff);
    return true;
}

static bool others_changed(struct attn_auditor *a, struct attn_rows rows,
                           struct attn_diff *diff)
{
    static const enum attn_input inputs[] = {ATTN_IN_X,     ATTN_IN_X_KV, ATTN_IN_Q,
                                             ATTN_IN_K,     ATTN_IN_V,    ATTN_IN_PAST_K,
                                             ATTN_IN_PAST_V};
    struct attn_problem changed = *a->p;
    struct attn_trace again;

    for (size_t n = 0; n < ATTN_COUNT(inputs); n++) {
        struct attn_tensor *t = &changed.in[inputs[n]];
        const size_t item = t->p ? attn_tensor_count(t) / t->dim[0] : 0;

        if (!attn_rerun_copy(a, t))
            return false;
        disturb(a, t, 0, rows.b0 * item);
        disturb(a, t, rows.b1 * item, t->p ? attn_tensor_count(t) - rows.b1 * item : 0);
    }
    if (!attn_rerun(a, &changed, a->plan->path, rows, a->swap, &again))
        return false;
    attn_rerun_compare(a, &again, rows.b0, rows, NULL, diff);
    return true;
}

bool attn_check_batch(struct attn_auditor *a, struct attn_finding *f)
{
    static const struct attn_words words = {
        "An item run alone, and run beside other items with other numbers, gives the "
        "same bits.",
        "{7} of {8} items run again: {0} rows, {1} numbers, every bit the same.",
        "{4} in the batch, {5} when run again, at the first number that differs.",
        "Items share weights and nothing else.",
    };
    const size_t B = a->p->d.B, mark = attn_arena_mark(a->arena);
    const size_t first = a->full ? 0 : attn_random_below(&a->random, B),
                 end = a->full ? B : first + 1;
    struct attn_diff diff = {0};
    bool done = true;

    if (!attn_rerun_possible(a, f))
        return true;
    if (B == 1) {
        attn_finding_skip(f, "There is one item only: no other that it could mix with.");
        return true;
    }
    for (size_t b = first; done && b < end; b++) {
        const struct attn_rows rows =
            attn_rerun_block(a, b, attn_random_below(&a->random, a->p->d.T_q));

        done = item_alone(a, rows, &diff);
        attn_arena_release(a->arena, mark);
        done = done && others_changed(a, rows, &diff);
        attn_arena_release(a->arena, mark);
    }
    attn_finding_set(f, &diff, &words);
    f->fact[7] = (double)(end - first);
    f->fact[8] = (double)B;
    return done;
}

/* ---- tokens that rows may not read ------------------------------------------------- */

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
        for (size_t n = 0; n < T; n++)
            if (flag[n])
                disturb(a, t, ((b * heads + h) * T + n) * width, width);
}

/* The problem with the unread keys of item b changed: the tokens themselves in
   self-attention (never those of compared queries), keys and values elsewhere. */
static bool change_unread(struct attn_auditor *a, size_t b, struct unread *u,
                          struct attn_problem *changed)
{
    static const enum attn_input fresh[] = {ATTN_IN_X, ATTN_IN_X_KV, ATTN_IN_K,
                                            ATTN_IN_V};
    static const enum attn_input cached[] = {ATTN_IN_PAST_K, ATTN_IN_PAST_V};
    const size_t past = a->p->d.T_past;
    const bool self = a->p->form.source == ATTN_SELF;

    *changed = *a->p;
    for (size_t t = 0; self && t < a->p->d.T_q; t++)
        u->key[past + t] = u->key[past + t] && !u->compared[t];
    for (size_t j = 0; j < a->p->d.T_kv; j++)
        u->keys += u->key[j];
    for (size_t n = 0; n < ATTN_COUNT(fresh); n++) {
        struct attn_tensor *t = &changed->in[fresh[n]];

        if (!t->p || (fresh[n] == ATTN_IN_X && !self))
            continue;
        if (!attn_rerun_copy(a, t))
            return false;
        disturb_rows(a, t, b, u->key + past);
    }
    for (size_t n = 0; n < ATTN_COUNT(cached); n++) {
        struct attn_tensor *t = &changed->in[cached[n]];

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

    if (!change_unread(a, rows.b0, u, &changed))
        return false;
    if (u->keys == 0)
        return true;
    if (!attn_rerun(a, &changed, a->plan->path, rows, a->swap, &again))
        return false;
    attn_rerun_compare(a, &again, rows.b0, rows, u->compared, diff);
    return true;
}

/* Which keys row r and its like may not read, for one reason. */
typedef void mark_fn(const struct attn_problem *p, size_t b, size_t r,
                     struct attn_rows rows, struct unread *u);

/* Rows without a key that spread their weight evenly read every key: nothing is asked of
 * them. */
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

/* Row r of item b, and the rows of its block that share the reason. */
static bool run_cut(struct attn_auditor *a, size_t b, size_t r, mark_fn *mark_keys,
                    struct attn_diff *diff)
{
    const size_t mark = attn_arena_mark(a->arena);
    const struct attn_rows rows = attn_rerun_block(a, b, r);
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

/* One drawn row r < end of one item; in a full audit up to CUTS_MAX rows of every item.
 */
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
        "{0} rows compared, {1} numbers, every bit the same although later tokens were "
        "others.",
        "{4} before and {5} after later tokens were changed, at the first number that "
        "differs.",
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
    return done;
}

/* ---- 11: other documents ----------------------------------------------------------- */

/* Is query i of the same document as row r?  Its own key is then one that row r may read.
 */
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
        "{0} rows compared, {1} numbers, every bit the same although other documents "
        "were others.",
        "{4} before and {5} after another document was changed, at the first number that "
        "differs.",
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
    return done;
}
