/*
 * attn_audit_items.c - check 9: items share weights and nothing else.
 * Not here: tokens of the same item (attn_audit_tokens.c).
 * Start reading at attn_check_batch.
 */
#include "core/attn_rerun.h"

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
        attn_rerun_disturb(a, t, 0, rows.b0 * item);
        attn_rerun_disturb(a, t, rows.b1 * item,
                           t->p ? attn_tensor_count(t) - rows.b1 * item : 0);
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
