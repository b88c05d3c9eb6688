/*
 * test_attn_claim.c - every target with every change it accepts: each claim holds, what
 * is listed as unchanged is, and a false claim would be found.
 * Not here: the numbers of a changed layer (test_attn_ablate.c).
 * Start reading at every_claim_holds, which walks the tables.
 */
#include "make_ablation.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

/* Everything else held still, does what is said agree with a comparison by hand? */
static void check_lists(const struct ablated *a)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        const struct attn_tensor *x = &a->ran.trace.t[o], *y = &a->out.trace.t[o];
        const bool listed = ((a->out.changed ^ a->out.unchanged) & ATTN_BIT(o)) != 0;
        double most = 0;

        cr_assert_eq(listed, x->p != NULL && o != ATTN_X && o != ATTN_X_KV);
        if (!listed)
            continue;
        for (size_t n = 0; n < attn_tensor_count(x); n++) {
            const double u = attn_tensor_get(x, n), v = attn_tensor_get(y, n);

            if (u != v && !(isnan(u) && isnan(v)))
                most = fmax(most, isfinite(u) && isfinite(v) ? fabs(u - v) : INFINITY);
        }
        cr_assert_eq(a->out.max_abs_delta[o], most);
        cr_assert_eq((a->out.changed & ATTN_BIT(o)) != 0, most > 0);
    }
}

ParameterizedTestParameters(attn_claim, every_claim_holds)
{
    static size_t row[64];
    const size_t n = attn_edit_target_count();

    for (size_t r = 0; r < n; r++)
        row[r] = r;
    return cr_make_param_array(size_t, row, n);
}

ParameterizedTest(size_t *target, attn_claim, every_claim_holds)
{
    const struct attn_edit_target_row *row = attn_edit_target_at(*target);

    for (size_t c = 0; c < attn_edit_change_count(); c++) {
        const bool accepted = row->changes >> c & 1;
        size_t ran = 0, claims = 0;

        for (uint64_t seed = 1; seed <= 60; seed++) {
            struct ablated a = {0};
            struct attn_edit edit = make_edit(row->name, attn_edit_change_at(c)->name);

            make_problem(&a.made, seed, seed % 3 ? ATTN_F64 : ATTN_F32, 6, 0, &MAKE_ALL);
            make_edit_fill(&a.made, &edit);
            if ((edit.rule == NULL && strcmp(row->name, "masks") == 0) ||
                (accepted && !attn_edit_check(&a.made.p, &edit, &a.err))) {
                make_free(&a.made);
                continue;
            }
            make_baseline(&a, ATTN_PATH_DENSE);
            make_ablated(&a, &edit, 1);
            if (!accepted) {
                cr_assert_not(a.ok);
                cr_assert_eq(a.err.code, ATTN_E_CONTRADICTION);
                cr_assert_str_eq(a.err.object, row->name);
                cr_assert_eq(a.arena.used, 0);
            } else {
                cr_assert(a.ok, "seed %llu, %s %s: code %d at %s",
                          (unsigned long long)seed, row->name, edit.change->name,
                          (int)a.err.code, a.err.object);
                check_lists(&a);
                make_check_claims(&a, row->name);
                claims += a.out.claim_count;
            }
            ran++;
            make_ablation_free(&a);
        }
        cr_assert_gt(ran, 0, "%s %s never ran", row->name, attn_edit_change_at(c)->name);
        cr_assert(!accepted || claims > 0, "%s %s claims nothing", row->name,
                  attn_edit_change_at(c)->name);
    }
}

Test(attn_claim, two_edits_claim_what_both_claim)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct ablated a = {0};
        struct attn_edit edit[2];

        make_problem(&a.made, seed, ATTN_F64, 6, 0, &MAKE_ALL);
        for (size_t n = 0; n < 2; n++) {
            do {
                const size_t t = make_below(&a.made, attn_edit_target_count());
                const size_t c = make_below(&a.made, attn_edit_change_count());

                edit[n] =
                    make_edit(attn_edit_target_at(t)->name, attn_edit_change_at(c)->name);
                make_edit_fill(&a.made, &edit[n]);
                a.err = (struct attn_err){0};
            } while (
                (edit[n].rule == NULL && strcmp(edit[n].target->name, "masks") == 0) ||
                !attn_edit_check(&a.made.p, &edit[n], &a.err));
        }
        make_baseline(&a, ATTN_PATH_DENSE);
        a.err = (struct attn_err){0};
        make_ablated(&a, edit, 2);
        cr_assert(a.ok, "seed %llu: code %d at %s", (unsigned long long)seed,
                  (int)a.err.code, a.err.object);
        check_lists(&a);
        make_check_claims(&a, "two edits");
        make_ablation_free(&a);
    }
}

/* ---- claims named in the contract ---- */

#define ON(o) ATTN_BIT(ATTN_##o)

Test(attn_claim, contract)
{
    static const struct {
        const char *target;
        uint32_t same;
    } rows[] = {
        {"W_Q", ON(K) | ON(V) | ON(M)},
        {"W_K", ON(Q) | ON(V) | ON(M)},
        {"W_V", ON(Q) | ON(K) | ON(S) | ON(M) | ON(A)},
        {"W_O", ON(Q) | ON(K) | ON(V) | ON(S) | ON(M) | ON(A) | ON(H)},
        {"scale", ON(Q) | ON(K) | ON(V) | ON(M)},
    };
    const struct attn_dims d =
        MAKE_DIMS(5, 5, 7, .B = 2, .d_k = 2, .d_v = 3, .h = 4, .h_kv = 2);

    for (size_t r = 0; r < ATTN_COUNT(rows); r++) {
        struct ablated a = {0};
        struct attn_edit edit = make_edit(rows[r].target, "zero");

        make_plain(&a.made, 9, ATTN_F64, ATTN_SELF, d);
        make_one_edit(&a, &edit);
        for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
            if (!(rows[r].same & ATTN_BIT(o)))
                continue;
            cr_assert(make_claims(&a, (enum attn_object)o, "the same bit for bit"),
                      "%s: %s", rows[r].target, ATTN_OBJECTS[o].name);
            cr_assert(a.out.unchanged & ATTN_BIT(o));
        }
        if (strcmp(rows[r].target, "W_O") == 0)
            cr_assert(make_claims(&a, ATTN_Y, "exactly 0"));
        cr_assert(a.out.changed & ATTN_BIT(ATTN_Y));
        make_ablation_free(&a);
    }
}

/* M is claimed although only `allowed` is held. */
Test(attn_claim, M_by_what_is_allowed)
{
    const struct attn_dims d =
        MAKE_DIMS(3, 3, 4, .B = 1, .d_k = 2, .d_v = 5, .h = 1, .h_kv = 1);
    struct ablated a = {0};
    struct attn_edit edit = make_edit("W_Q", "negate");

    make_plain(&a.made, 2, ATTN_F64, ATTN_SELF, d);
    make_run(&a.made.p, ATTN_BIT(ATTN_Y), ATTN_PATH_DENSE, NULL, NULL, &a.ran);
    cr_assert_null(a.ran.trace.t[ATTN_M].p);
    make_ablated(&a, &edit, 1);
    cr_assert(a.ok);
    cr_assert(make_claims(&a, ATTN_M, "the same bit for bit"));
    cr_assert_not((a.out.changed | a.out.unchanged) & ATTN_BIT(ATTN_M));
    make_ablation_free(&a);
}

/* A claim that mathematics does not make fails when it is measured: the measure can
   say no. */
Test(attn_claim, a_false_claim_does_not_hold)
{
    const struct attn_dims d =
        MAKE_DIMS(3, 3, 4, .B = 1, .d_k = 2, .d_v = 5, .h = 1, .h_kv = 1);
    struct ablated a = {0};
    struct attn_edit edit = make_edit("W_V", "negate");

    make_plain(&a.made, 2, ATTN_F64, ATTN_SELF, d);
    make_one_edit(&a, &edit);
    cr_assert(make_claims(&a, ATTN_A, "the same bit for bit"));
    ((double *)a.out.trace.t[ATTN_A].p)[4] =
        nextafter(((double *)a.out.trace.t[ATTN_A].p)[4], 2);
    a.out.claim_count = 0;
    attn_claims(&a.made.p, &a.ran.trace, &edit, 1, &a.out);
    cr_assert_not(make_claims(&a, ATTN_A, "the same bit for bit"));
    cr_assert(make_claims(&a, ATTN_S, "the same bit for bit"));
    make_ablation_free(&a);
}
