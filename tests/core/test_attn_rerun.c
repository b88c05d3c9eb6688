/*
 * test_attn_rerun.c - what a sampled audit of a long sequence runs again, in which
 * memory. Not here: reruns of whole blocks (test_attn_audit_broken.c). Start reading at
 * fails.
 *
 * The layer asks a rule by its `clear`, the audit by its `allows`: a row whose two
 * disagree is a layer that reads what it must not.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "make_audit.h"
#include "make_problem.h"

static const struct attn_dims LONG =
    MAKE_DIMS(90, 90, 8, .B = 3, .d_k = 4, .d_v = 4, .h = 2, .h_kv = 1);

static double remembered[3]; /* the first number of each item's K */

static void clears_nothing(const struct attn_problem *p, const struct attn_mask *m,
                           size_t b, size_t h, size_t i, size_t j0, size_t j1,
                           uint8_t *allow)
{
    (void)p, (void)m, (void)b, (void)h, (void)i, (void)j0, (void)j1, (void)allow;
}

/* Key 0 is forbidden to an item that is alone. */
static void clears_when_alone(const struct attn_problem *p, const struct attn_mask *m,
                              size_t b, size_t h, size_t i, size_t j0, size_t j1,
                              uint8_t *allow)
{
    (void)m, (void)b, (void)h, (void)i;
    if (p->d.B == 1 && j0 == 0 && j1 > 0)
        allow[0] = 0;
}

/* Key 0 is forbidden when an item of the batch has other keys. */
static void clears_when_changed(const struct attn_problem *p, const struct attn_mask *m,
                                size_t b, size_t h, size_t i, size_t j0, size_t j1,
                                uint8_t *allow)
{
    const struct attn_tensor *K = &p->in[ATTN_IN_K];

    (void)m, (void)b, (void)h, (void)i;
    for (size_t n = 0; K->p && p->d.B == LONG.B && n < p->d.B; n++)
        if (attn_tensor_get(K, n * attn_tensor_count(K) / p->d.B) != remembered[n] &&
            j0 == 0 && j1 > 0)
            allow[0] = 0;
}

static bool allows_all(const struct attn_problem *p, const struct attn_mask *m, size_t b,
                       size_t h, size_t i, size_t j)
{
    (void)p, (void)m, (void)b, (void)h, (void)i, (void)j;
    return true;
}

static void run(const struct attn_problem *p, enum attn_path path, struct ran *r)
{
    const struct attn_tensor *K = &r->trace.t[ATTN_K];

    make_run(p, ATTN_BIT(ATTN_Y), path, NULL, NULL, r);
    cr_assert(r->ok);
    for (size_t b = 0; b < p->d.B && b < ATTN_COUNT(remembered); b++)
        remembered[b] = attn_tensor_get(K, b * attn_tensor_count(K) / p->d.B);
}

/* A sampled audit with the rule's `clear` replaced: the check of this id must fail, on
   either path and whatever is drawn. */
static void fails(struct made *m, struct attn_mask *mask, attn_mask_clear_fn *clear,
                  const char *id)
{
    struct attn_mask_row broken = *mask->row;

    broken.clear = clear;
    broken.range = NULL;
    mask->row = &broken;
    for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++)
        for (uint64_t seed = 1; seed <= 5; seed++) {
            const struct attn_finding *f;
            struct audited a;
            struct ran r = {0};

            run(&m->p, (enum attn_path)path, &r);
            a = make_audit(&m->p, &r, ATTN_AUDIT_SAMPLED, seed, NULL);
            cr_assert(a.ok);
            f = make_finding(&a.audit, id);
            if (f->status != ATTN_FAIL)
                make_audit_print(&a.audit);
            cr_assert_eq(f->status, ATTN_FAIL, "%s, path %d, seed %d", id, path,
                         (int)seed);
            cr_assert_not(strstr(f->detail, "sampled") == NULL);
            make_run_free(&r);
        }
    make_free(m);
}

Test(attn_rerun, a_rule_that_depends_on_the_batch_is_found)
{
    static struct attn_mask_row all;
    attn_mask_clear_fn *const broken[] = {clears_when_alone, clears_when_changed};

    for (size_t n = 0; n < ATTN_COUNT(broken); n++) {
        struct attn_mask *mask;
        struct made m;

        make_plain(&m, 1, ATTN_F32, ATTN_SELF, LONG);
        mask = make_mask(&m, "causal");
        make_prepare(&m);
        all = *mask->row;
        all.allows = allows_all;
        mask->row = &all;
        fails(&m, mask, broken[n], "batch_independence");
    }
}

Test(attn_rerun, later_keys_that_are_read_are_found)
{
    struct attn_mask *mask;
    struct made m;

    make_plain(&m, 1, ATTN_F32, ATTN_SELF, LONG);
    mask = make_mask(&m, "causal");
    make_prepare(&m);
    fails(&m, mask, clears_nothing, "prefix_invariance");
}

/* The rule's only parameter: numbers, so many an item. */
static void give(struct attn_mask *mask, int64_t *numbers, size_t each)
{
    mask->arg[0].given = true;
    mask->arg[0].table =
        (struct attn_table){.elem = ATTN_ELEM_I64, .p = numbers, .stride_b = each};
}

Test(attn_rerun, other_documents_that_are_read_are_found)
{
    struct attn_mask *mask;
    struct made m;
    int64_t *ids;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, LONG);
    mask = make_mask(&m, "documents");
    ids = make_block(&m, LONG.B * LONG.T_q * sizeof *ids);
    for (size_t n = 0; n < LONG.B * LONG.T_q; n++)
        ids[n] = (int64_t)(n % LONG.T_q / 30);
    give(mask, ids, LONG.T_q);
    make_prepare(&m);
    fails(&m, mask, clears_nothing, "document_isolation");
}

Test(attn_rerun, artificial_keys_that_are_read_are_found)
{
    struct attn_mask *mask;
    struct made m;
    int64_t *lengths;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, LONG);
    mask = make_mask(&m, "padding");
    lengths = make_block(&m, LONG.B * sizeof *lengths);
    for (size_t b = 0; b < LONG.B; b++)
        lengths[b] = (int64_t)(40 + b);
    give(mask, lengths, 1);
    make_prepare(&m);
    fails(&m, mask, clears_nothing, "masked_value_poison");
}

/* make_audit gives exactly the bytes that were counted. */
static void passes(const struct attn_problem *p, enum attn_path path, uint64_t seed)
{
    struct audited a;
    struct ran r = {0};

    make_run(p, ATTN_BIT(p->form.has_output ? ATTN_Y : ATTN_H), path, NULL, NULL, &r);
    cr_assert(r.ok);
    a = make_audit(p, &r, ATTN_AUDIT_SAMPLED, seed, NULL);
    cr_assert(a.ok, "seed %d, path %d: code %d, %zu and %zu bytes", (int)seed, (int)path,
              (int)a.err.code, a.err.got, a.err.want);
    if (a.audit.status == ATTN_FAIL)
        make_audit_print(&a.audit);
    cr_assert_neq(a.audit.status, ATTN_FAIL);
    make_run_free(&r);
}

Test(attn_rerun, memory_is_counted_for_whatever_is_asked)
{
    for (uint64_t seed = 1; seed <= 80; seed++)
        for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++) {
            struct made m;

            make_problem(&m, seed, (enum attn_dtype)dtype, 9, 60 + 13 * (seed % 8),
                         &MAKE_ALL);
            passes(&m.p, ATTN_PATH_DENSE, seed);
            passes(&m.p, ATTN_PATH_TILED, seed);
            make_free(&m);
        }
}

Test(attn_rerun, queries_of_many_heads_are_counted)
{
    for (size_t B = 1; B <= 4; B++)
        for (size_t h = 1; h <= 4; h *= 2) {
            struct attn_dims d =
                MAKE_DIMS(64, 64, 64, .B = B, .d_k = 64, .d_v = 8, .h = h, .h_kv = 1);
            struct made m;

            make_plain(&m, B, ATTN_F64, ATTN_SELF, d);
            make_prepare(&m);
            passes(&m.p, ATTN_PATH_DENSE, h);
            passes(&m.p, ATTN_PATH_TILED, h);
            make_free(&m);
        }
}
