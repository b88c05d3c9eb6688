/*
 * attn_audit_items.c - check 9: items share weights and nothing else.
 * Not here: tokens of the same item (attn_audit_tokens.c).
 * Start reading at attn_check_batch.
 */
#include "core/attn_rerun.h"

static bool item_alone(struct attn_auditor *a, const struct attn_wanted *want,
                       struct attn_diff *diff)
{
    const struct attn_rows rows = {0, 1, want->rows.i0, want->rows.i1};
    struct attn_problem all, item;
    struct attn_trace again;

    attn_rerun_batch(a, &all);
    attn_problem_item(&all, want->rows.b0, &item);
    if (!attn_rerun(a, &item, a->plan->path, rows, a->swap, &again))
        return false;
    attn_rerun_compare(a, want, attn_rerun_rows(a, &again, rows), NULL, diff);
    return true;
}

static bool others_changed(struct attn_auditor *a, const struct attn_wanted *want,
                           struct attn_diff *diff)
{
    static const enum attn_input inputs[] = {ATTN_IN_X,     ATTN_IN_X_KV, ATTN_IN_Q,
                                             ATTN_IN_K,     ATTN_IN_V,    ATTN_IN_PAST_K,
                                             ATTN_IN_PAST_V};
    const struct attn_rows rows = want->rows;
    struct attn_problem changed;
    struct attn_trace again;

    attn_rerun_batch(a, &changed);
    for (size_t n = 0; n < ATTN_COUNT(inputs); n++) {
        struct attn_tensor *t = &changed.in[inputs[n]];
        const size_t item = t->p ? attn_tensor_count(t) / t->dim[0] : 0;

        if (!attn_rerun_copy(a, t))
            return false;
        attn_rerun_disturb(a, t, 0, rows.b0 * item);
        attn_rerun_disturb(a, t, rows.b1 * item,
                           t->p ? attn_tensor_count(t) - rows.b1 * item : 0);
    }
    if (!attn_rerun(a, &changed, a->plan->path, rows, a->swap, &again))
        return false;
    attn_rerun_compare(a, want, attn_rerun_rows(a, &again, rows), NULL, diff);
    return true;
}

static bool check_item(struct attn_auditor *a, size_t b, struct attn_diff *diff)
{
    const struct attn_rows rows =
        attn_rerun_around(a, b, attn_random_below(&a->random, a->p->d.T_q));
    struct attn_wanted want;
    size_t mark;
    bool done;

    if (!attn_rerun_wanted(a, rows, &want))
        return false;
    mark = attn_arena_mark(a->arena);
    done = item_alone(a, &want, diff);
    attn_arena_release(a->arena, mark);
    return done && others_changed(a, &want, diff);
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
        done = check_item(a, b, &diff);
        attn_arena_release(a->arena, mark);
    }
    attn_finding_set(f, &diff, &words);
    if (attn_rerun_short(a))
        f->detail = ATTN_RERUN_FEW;
    f->fact[7] = (double)(end - first);
    f->fact[8] = (double)B;
    return done;
}
