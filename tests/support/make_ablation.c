/*
 * make_ablation.c - see make_ablation.h.
 * Not here: random problems (make_problem.c).
 * Start reading at make_ablated.
 */
#include "make_ablation.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct attn_edit make_edit(const char *target, const char *change)
{
    struct attn_edit edit = {.target = attn_edit_target_find(target),
                             .change = attn_edit_change_find(change),
                             .by = 0.5,
                             .std = 0.3,
                             .seed = 11};

    cr_assert_not_null(edit.target, "%s", target);
    cr_assert_not_null(edit.change, "%s", change);
    return edit;
}

void make_baseline(struct ablated *a, enum attn_path path)
{
    make_run_all(&a->made.p, path, NULL, &a->ran);
    cr_assert(a->ran.ok, "seed %llu: code %d at %s", (unsigned long long)a->made.seed,
              (int)a->ran.err.code, a->ran.err.object);
}

void make_ablated(struct ablated *a, const struct attn_edit *edit, size_t edits)
{
    a->arena = make_arena(attn_ablate_bytes(&a->made.p, &a->ran.plan, edit, edits));
    a->ok = attn_ablate(&a->made.p, &a->ran.plan, &a->ran.trace, edit, edits, &a->arena,
                        NULL, &a->out, &a->err);
}

void make_one_edit(struct ablated *a, const struct attn_edit *edit)
{
    make_baseline(a, ATTN_PATH_DENSE);
    make_ablated(a, edit, 1);
    cr_assert(a->ok, "seed %llu, %s %s: code %d at %s", (unsigned long long)a->made.seed,
              edit->target->name, edit->change->name, (int)a->err.code, a->err.object);
}

void make_ablation_again(struct ablated *a)
{
    free(a->arena.base);
    a->arena = (struct attn_arena){0};
    a->err = (struct attn_err){0};
}

void make_ablation_free(struct ablated *a)
{
    free(a->arena.base);
    make_run_free(&a->ran);
    make_free(&a->made);
}

void make_edit_fill(struct made *made, struct attn_edit *edit)
{
    const struct attn_dims *d = &made->p.d;
    const struct attn_edit_target *target = attn_edit_target_of(edit);
    const enum attn_input token = attn_edit_token_input(&made->p);
    size_t rows = 1, cols = 1;

    edit->index = make_below(
        made, strcmp(edit->target->name, "head") == 0 ? d->h : d->T_kv - d->T_past);
    edit->query = make_below(made, d->T_q);
    edit->key = make_below(made, d->T_kv);
    if (made->p.mask_count > 0)
        edit->rule = made->p.mask[make_below(made, made->p.mask_count)].row->name;
    if (made->p.additive.p != NULL && (edit->rule == NULL || make_below(made, 2)))
        edit->rule = "additive";
    if (target->input >= 0 && made->p.in[target->input].p != NULL) {
        rows = made->p.in[target->input].dim[0];
        cols = made->p.in[target->input].dim[1];
    } else if (strcmp(edit->target->name, "head") == 0) {
        rows = d->T_q;
        cols = d->d_v;
    } else if (strcmp(edit->target->name, "position") == 0 &&
               made->p.in[token].p != NULL) {
        cols = made->p.in[token].dim[2];
    }
    edit->with =
        (struct attn_tensor){.dtype = made->p.dtype, .rank = 2, .dim = {rows, cols}};
    edit->with.p = make_block(made, rows * cols * sizeof(double));
    attn_init_fill(ATTN_INIT_NORMAL, made->seed, 1, &edit->with);
}

bool make_claims(const struct ablated *a, enum attn_object o, const char *says)
{
    for (size_t n = 0; n < a->out.claim_count; n++)
        if (a->out.claim[n].object == o && strcmp(a->out.claim[n].says, says) == 0)
            return a->out.claim[n].holds;
    return false;
}

void make_check_claims(const struct ablated *a, const char *what)
{
    for (size_t n = 0; n < a->out.claim_count; n++)
        cr_assert(a->out.claim[n].holds, "seed %llu, %s: %s is not %s",
                  (unsigned long long)a->made.seed, what,
                  ATTN_OBJECTS[a->out.claim[n].object].name, a->out.claim[n].says);
}
