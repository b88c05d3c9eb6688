/*
 * test_attn_audit_broken.c - broken stages and touched traces fail the audit where they
 * should. Not here: right layers (test_attn_audit.c), known faults (test_attn_fault.c).
 * Start reading at fails_first.
 */
#include "make_audit.h"

#include <criterion/criterion.h>
#include <string.h>

/* ---- broken stages: too small for a tolerance, not for a comparison of bits -------- */

/* Half a unit in the last place of numbers of size 1: within what rounding may do. */
static const double NUDGE = 1e-16;
static const double TINY = 1e-308; /* lost in any sum, unless the value is 1e300 */

static double value_at(const struct attn_run_ctx *run, size_t b, size_t h, size_t j,
                       size_t c)
{
    const struct attn_tensor *V = &run->t->t[ATTN_V];

    return ((double *)V->p)[((b * V->dim[1] + h) * V->dim[2] + j) * V->dim[3] + c];
}

typedef double nudge_fn(const struct attn_run_ctx *run, size_t b, size_t i, size_t c);

/* H = A V as it should be, and then something of a value that the row must not read. */
static bool nudge_all(const struct attn_run_ctx *run, nudge_fn *nudge,
                      struct attn_err *err)
{
    struct attn_tensor *H = &run->t->t[ATTN_H];

    if (!attn_stage_all(run, ATTN_STAGE_MIX, err))
        return false;
    for (size_t b = 0; b < H->dim[0]; b++)
        for (size_t i = 0; i < H->dim[1]; i++)
            for (size_t c = 0; c < H->dim[2]; c++)
                ((double *)H->p)[(b * H->dim[1] + i) * H->dim[2] + c] +=
                    nudge(run, b, i, c % run->p->d.d_v);
    return true;
}

static double of_next_item(const struct attn_run_ctx *run, size_t b, size_t i, size_t c)
{
    return NUDGE * value_at(run, (b + 1) % run->p->d.B, 0, i % run->p->d.T_kv, c);
}

static double of_last_key(const struct attn_run_ctx *run, size_t b, size_t i, size_t c)
{
    (void)i;
    return NUDGE * value_at(run, b, 0, run->p->d.T_kv - 1, c);
}

static double of_all_keys(const struct attn_run_ctx *run, size_t b, size_t i, size_t c)
{
    double sum = 0;

    (void)i;
    for (size_t j = 0; j < run->p->d.T_kv; j++)
        sum += TINY * value_at(run, b, 0, j, c);
    return sum;
}

static bool mix_next_item(const struct attn_run_ctx *run, struct attn_piece piece,
                          struct attn_err *err)
{
    (void)piece;
    return nudge_all(run, of_next_item, err);
}

static bool mix_last_key(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    (void)piece;
    return nudge_all(run, of_last_key, err);
}

static bool mix_all_keys(const struct attn_run_ctx *run, struct attn_piece piece,
                         struct attn_err *err)
{
    (void)piece;
    return nudge_all(run, of_all_keys, err);
}

/* Audits a layer with MIX replaced; the named check must be the first to fail. */
static void fails_first(const struct made *m, attn_stage_fn *mix, const char *id)
{
    const struct attn_swap swap = {.stage = {[ATTN_STAGE_MIX] = mix}};
    const char *first;
    struct audited a;
    struct ran r;

    make_run_all(&m->p, ATTN_PATH_DENSE, &swap, &r);
    a = make_audit(&m->p, &r, ATTN_AUDIT_FULL, 1, &swap);
    cr_assert(a.ok);
    first = make_first_failing(&a.audit);
    if (strcmp(first, id) != 0)
        make_audit_print(&a.audit);
    cr_assert_str_eq(first, id);
    cr_assert_str_eq(a.audit.first_incorrect, "Y");
    make_run_free(&r);
}

static const struct attn_dims BATCH =
    MAKE_DIMS(9, 9, 11, .B = 3, .d_k = 3, .d_v = 4, .h = 2, .h_kv = 2);
static const struct attn_dims LONG =
    MAKE_DIMS(300, 300, 8, .B = 1, .d_k = 4, .d_v = 4, .h = 1, .h_kv = 1);

Test(attn_audit_broken, a_stage_that_mixes_items_is_found)
{
    struct made m;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
    fails_first(&m, mix_next_item, "batch_independence");
    make_free(&m);
}

Test(attn_audit_broken, a_stage_that_reads_later_tokens_is_found)
{
    struct made m;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
    make_mask(&m, "causal");
    make_prepare(&m);
    fails_first(&m, mix_last_key, "prefix_invariance");
    make_free(&m);
}

Test(attn_audit_broken, a_stage_that_lets_another_document_in_is_found)
{
    struct made m;
    struct attn_mask *documents;
    int64_t *ids;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
    documents = make_mask(&m, "documents");
    ids = make_block(&m, 27 * sizeof *ids);
    for (size_t n = 0; n < 27; n++)
        ids[n] = n % 9 < 2 ? 0 : n % 9 < 5 ? 1 : 2;
    documents->arg[0].given = true;
    documents->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_I64, .p = ids, .stride_b = 9};
    make_prepare(&m);
    fails_first(&m, mix_last_key, "document_isolation");
    make_free(&m);
}

Test(attn_audit_broken, a_stage_that_reads_what_nobody_may_read_is_found)
{
    struct made m;
    struct attn_mask *padding;
    int64_t *lengths;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
    padding = make_mask(&m, "padding");
    lengths = make_block(&m, 3 * sizeof *lengths);
    for (size_t b = 0; b < 3; b++)
        lengths[b] = (int64_t)(4 + b);
    padding->arg[0].given = true;
    padding->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_I64, .p = lengths, .stride_b = 1};
    make_prepare(&m);
    fails_first(&m, mix_all_keys, "masked_value_poison");
    make_free(&m);
}

/* ---- touched traces ---------------------------------------------------------------- */

/* The other path cannot know that a number of Y was touched; every row of a small problem
   is looked at in a sampled audit too. */
Test(attn_audit_broken, a_touched_output_disagrees_with_the_other_path)
{
    for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++) {
        struct made m;
        struct ran r;
        struct audited a;

        make_plain(&m, 1, ATTN_F64, ATTN_SELF, BATCH);
        make_run_all(&m.p, (enum attn_path)path, NULL, &r);
        ((double *)r.trace.t[ATTN_Y].p)[5] += 1e-9;
        a = make_audit(&m.p, &r, ATTN_AUDIT_FULL, 1, NULL);
        cr_assert_eq(make_finding(&a.audit, "output_projection")->status, ATTN_FAIL);
        cr_assert_eq(make_finding(&a.audit, "tiled_agreement")->status, ATTN_FAIL);
        cr_assert_str_eq(a.audit.first_incorrect, "Y");
        make_run_free(&r);
        make_free(&m);
    }
}

/* A weight where none may be, too small for any sum to notice. */
Test(attn_audit_broken, a_weight_at_a_forbidden_pair_is_found_in_any_row)
{
    struct made m;
    struct ran r;
    struct audited a;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, LONG);
    make_mask(&m, "causal");
    make_prepare(&m);
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
    ((double *)r.trace.t[ATTN_A].p)[123 * 300 + 200] = 1e-30;
    a = make_audit(&m.p, &r, ATTN_AUDIT_SAMPLED, 1, NULL);
    cr_assert_eq(make_finding(&a.audit, "forbidden_zeros")->status, ATTN_FAIL);
    cr_assert_eq(make_finding(&a.audit, "forbidden_zeros")->at[2], 123);
    cr_assert_eq(make_finding(&a.audit, "forbidden_zeros")->at[3], 200);
    cr_assert_str_eq(a.audit.first_incorrect, "A");
    make_run_free(&r);
    make_free(&m);
}

/* One large token among 300: its scores overflow, and nothing else does. */
Test(attn_audit_broken, overflow_is_found_where_it_begins)
{
    struct made m;
    struct ran r;
    struct audited a;

    make_plain(&m, 1, ATTN_F32, ATTN_SELF, LONG);
    for (size_t c = 0; c < 8; c++)
        ((float *)m.p.in[ATTN_IN_X].p)[177 * 8 + c] *= 1e25f;
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
    a = make_audit(&m.p, &r, ATTN_AUDIT_SAMPLED, 1, NULL);
    cr_assert_str_eq(a.audit.first_incorrect, "S");
    cr_assert_eq(make_finding(&a.audit, "qkv_rows")->status, ATTN_PASS);
    cr_assert_eq(make_finding(&a.audit, "score_shape_and_scale")->at[2], 177);
    cr_assert_eq(make_finding(&a.audit, "score_shape_and_scale")->at[3], 177);
    make_run_free(&r);
    make_free(&m);
}
