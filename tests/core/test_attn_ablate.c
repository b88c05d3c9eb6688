/*
 * test_attn_ablate.c - every target with every change it accepts: claims hold, what is
 * listed as unchanged is, and the numbers are those of the problem written out by hand.
 * Not here: ablations over HTTP.
 * Start reading at every_claim_holds, which walks the tables.
 */
#include "core/attn_edit.h"
#include "make_problem.h"
#include "ref_forward.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The reference sums in long double: differences are the layer's own rounding. */
static const double TOLERANCE = 1e-12;

struct ablated {
    struct made made;
    struct ran ran;
    struct attn_arena arena;
    struct attn_ablation out;
    struct attn_err err;
    bool ok;
};

static struct attn_edit edit_of(const char *target, const char *change)
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

static void run_baseline(struct ablated *a, enum attn_path path)
{
    make_run(&a->made.p, make_everything(&a->made.p, path), path, NULL, NULL, &a->ran);
    cr_assert(a->ran.ok, "seed %llu: code %d at %s", (unsigned long long)a->made.seed,
              (int)a->ran.err.code, a->ran.err.object);
}

static void ablate(struct ablated *a, const struct attn_edit *edit, size_t edits)
{
    a->arena.size = attn_ablate_bytes(&a->made.p, &a->ran.plan, edit, edits);
    cr_assert_eq(posix_memalign((void **)&a->arena.base, 64, a->arena.size), 0);
    memset(a->arena.base, 0xff, a->arena.size);
    a->ok = attn_ablate(&a->made.p, &a->ran.plan, &a->ran.trace, edit, edits, &a->arena,
                        NULL, &a->out, &a->err);
}

static void again(struct ablated *a)
{
    free(a->arena.base);
    a->arena = (struct attn_arena){0};
    a->err = (struct attn_err){0};
}

static void done(struct ablated *a)
{
    free(a->arena.base);
    make_run_free(&a->ran);
    make_free(&a->made);
}

/* ---- walking the tables ---- */

/* The tensor that "replace" would put there, or what makes the edit impossible here. */
static void fill_in(struct made *made, struct attn_edit *edit)
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

static void check_claims(const struct ablated *a, const char *what)
{
    for (size_t n = 0; n < a->out.claim_count; n++)
        cr_assert(a->out.claim[n].holds, "seed %llu, %s: %s is not %s",
                  (unsigned long long)a->made.seed, what,
                  ATTN_OBJECTS[a->out.claim[n].object].name, a->out.claim[n].says);
}

ParameterizedTestParameters(attn_ablate, every_claim_holds)
{
    static size_t row[64];
    const size_t n = attn_edit_target_count();

    for (size_t r = 0; r < n; r++)
        row[r] = r;
    return cr_make_param_array(size_t, row, n);
}

ParameterizedTest(size_t *target, attn_ablate, every_claim_holds)
{
    const struct attn_edit_target_row *row = attn_edit_target_at(*target);

    for (size_t c = 0; c < attn_edit_change_count(); c++) {
        const bool accepted = row->changes >> c & 1;
        size_t ran = 0, claims = 0;

        for (uint64_t seed = 1; seed <= 60; seed++) {
            struct ablated a = {0};
            struct attn_edit edit = edit_of(row->name, attn_edit_change_at(c)->name);

            make_problem(&a.made, seed, seed % 3 ? ATTN_F64 : ATTN_F32, 6, 0, &MAKE_ALL);
            fill_in(&a.made, &edit);
            if ((edit.rule == NULL && strcmp(row->name, "masks") == 0) ||
                (accepted && !attn_edit_check(&a.made.p, &edit, &a.err))) {
                make_free(&a.made);
                continue;
            }
            run_baseline(&a, ATTN_PATH_DENSE);
            ablate(&a, &edit, 1);
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
                check_claims(&a, row->name);
                claims += a.out.claim_count;
            }
            ran++;
            done(&a);
        }
        cr_assert_gt(ran, 0, "%s %s never ran", row->name, attn_edit_change_at(c)->name);
        cr_assert(!accepted || claims > 0, "%s %s claims nothing", row->name,
                  attn_edit_change_at(c)->name);
    }
}

Test(attn_ablate, two_edits_claim_what_both_claim)
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
                    edit_of(attn_edit_target_at(t)->name, attn_edit_change_at(c)->name);
                fill_in(&a.made, &edit[n]);
                a.err = (struct attn_err){0};
            } while (
                (edit[n].rule == NULL && strcmp(edit[n].target->name, "masks") == 0) ||
                !attn_edit_check(&a.made.p, &edit[n], &a.err));
        }
        run_baseline(&a, ATTN_PATH_DENSE);
        a.err = (struct attn_err){0};
        ablate(&a, edit, 2);
        cr_assert(a.ok, "seed %llu: code %d at %s", (unsigned long long)seed,
                  (int)a.err.code, a.err.object);
        check_lists(&a);
        check_claims(&a, "two edits");
        done(&a);
    }
}

/* ---- against the reference: the same problem written out ---- */

static void same_as_reference(const struct ablated *a, const struct attn_problem *p)
{
    struct ref_layer layer;

    ref_forward(p, &layer);
    for (int o = ATTN_Q; o < ATTN_OBJECT_COUNT; o++)
        if (a->out.trace.t[o].p != NULL)
            cr_assert(
                ref_same(p, (enum attn_object)o, &a->out.trace.t[o], &layer, TOLERANCE),
                "seed %llu", (unsigned long long)a->made.seed);
    ref_free(&layer);
}

Test(attn_ablate, weights_as_written_out)
{
    static const char *const names[] = {"W_Q", "W_K", "W_V", "W_O"};

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct ablated a = {0};
        const size_t which = seed % 4;
        const enum attn_input in = (enum attn_input)(ATTN_IN_W_Q + which);
        struct attn_edit edit = edit_of(names[which], seed % 3 ? "scale" : "negate");

        make_problem(&a.made, seed, ATTN_F64, 6, 0, &MAKE_ALL);
        if (attn_edit_check(&a.made.p, &edit, &a.err)) {
            run_baseline(&a, ATTN_PATH_DENSE);
            ablate(&a, &edit, 1);
            cr_assert(a.ok);
            for (size_t n = 0; n < attn_tensor_count(&a.made.p.in[in]); n++)
                ((double *)a.made.p.in[in].p)[n] *= seed % 3 ? edit.by : -1.0;
            same_as_reference(&a, &a.made.p);
        }
        done(&a);
    }
}

Test(attn_ablate, rules_as_written_out)
{
    struct make_features may = MAKE_ALL;
    size_t ran = 0;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct ablated a = {0};
        struct attn_edit edit = edit_of("masks", "remove");

        make_problem(&a.made, seed, ATTN_F64, 6, 0, &may);
        if (a.made.p.mask_count > 0) {
            edit.rule = a.made.p.mask[0].row->name;
            run_baseline(&a, ATTN_PATH_DENSE);
            ablate(&a, &edit, 1);
            cr_assert(a.ok);
            memmove(&a.made.p.mask[0], &a.made.p.mask[1],
                    --a.made.p.mask_count * sizeof a.made.p.mask[0]);
            make_prepare(&a.made);
            same_as_reference(&a, &a.made.p);
            ran++;
        }
        done(&a);
    }
    cr_assert_gt(ran, 50);
}

Test(attn_ablate, negated_rule_forbids_what_it_allowed)
{
    size_t pairs = 0;

    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct ablated a = {0};
        const struct attn_dims *d = &a.made.p.d;
        struct attn_edit edit = edit_of("masks", "negate");

        make_problem(&a.made, seed, ATTN_F64, 6, 0, &MAKE_ALL);
        if (a.made.p.mask_count == 1 && a.made.p.additive.p == NULL) {
            edit.rule = a.made.p.mask[0].row->name;
            run_baseline(&a, ATTN_PATH_DENSE);
            ablate(&a, &edit, 1);
            cr_assert(a.ok);
            for (size_t n = 0; n < d->B * d->h * d->T_q * d->T_kv; n++, pairs++)
                cr_assert_neq(attn_tensor_get(&a.ran.trace.t[ATTN_ALLOWED], n),
                              attn_tensor_get(&a.out.trace.t[ATTN_ALLOWED], n));
        }
        done(&a);
    }
    cr_assert_gt(pairs, 1000);
}

/* Knocked out before the softmax: the other weights grow by one factor; zeroed after
   it: they stay. */
Test(attn_ablate, edge_before_and_after_the_softmax)
{
    const struct attn_dims d = {.B = 2,
                                .T_q = 3,
                                .T_kv = 5,
                                .d_model = 4,
                                .d_model_kv = 7,
                                .d_k = 2,
                                .d_v = 6,
                                .h = 2,
                                .h_kv = 1};
    struct ablated a = {0};
    struct attn_edit edit = edit_of("edge", "remove");

    make_plain(&a.made, 3, ATTN_F64, ATTN_CROSS, d);
    edit.query = 1;
    edit.key = 4;
    run_baseline(&a, ATTN_PATH_DENSE);
    for (int zero = 0; zero < 2; zero++) {
        if (zero)
            edit.change = attn_edit_change_find("zero");
        ablate(&a, &edit, 1);
        cr_assert(a.ok);
        for (size_t each = 0; each < d.B * d.h; each++) {
            const size_t first = (each * d.T_q + 1) * d.T_kv;
            const double gone = attn_tensor_get(&a.ran.trace.t[ATTN_A], first + 4);

            cr_assert_eq(attn_tensor_get(&a.out.trace.t[ATTN_A], first + 4), 0.0);
            for (size_t j = 0; j < 4; j++)
                cr_assert_leq(fabs(attn_tensor_get(&a.out.trace.t[ATTN_A], first + j) -
                                   attn_tensor_get(&a.ran.trace.t[ATTN_A], first + j) /
                                       (zero ? 1 : 1 - gone)),
                              1e-14);
        }
        again(&a);
    }
    done(&a);
}

/* Head by head, H_heads and H say the same, and without the head its part of Y is
   gone. */
Test(attn_ablate, heads_add_up)
{
    const struct attn_dims d = {.B = 2,
                                .T_q = 5,
                                .T_kv = 5,
                                .d_model = 7,
                                .d_model_kv = 7,
                                .d_k = 2,
                                .d_v = 3,
                                .h = 4,
                                .h_kv = 2};
    struct ablated a = {0};
    double sum[2 * 5 * 7] = {0};

    make_plain(&a.made, 9, ATTN_F64, ATTN_SELF, d);
    run_baseline(&a, ATTN_PATH_DENSE);
    for (size_t h = 0; h < d.h; h++) {
        struct attn_edit edit = edit_of("head", "remove");

        edit.index = h;
        ablate(&a, &edit, 1);
        cr_assert(a.ok);
        for (size_t n = 0; n < ATTN_COUNT(sum); n++)
            sum[n] += attn_tensor_get(&a.ran.trace.t[ATTN_Y], n) -
                      attn_tensor_get(&a.out.trace.t[ATTN_Y], n);
        again(&a);
    }
    for (size_t n = 0; n < ATTN_COUNT(sum); n++)
        cr_assert_leq(fabs(sum[n] - attn_tensor_get(&a.ran.trace.t[ATTN_Y], n)),
                      TOLERANCE);
    done(&a);
}

Test(attn_ablate, head_mean_is_over_query_rows)
{
    const struct attn_dims d = {.B = 2,
                                .T_q = 5,
                                .T_kv = 5,
                                .d_model = 7,
                                .d_model_kv = 7,
                                .d_k = 2,
                                .d_v = 3,
                                .h = 4,
                                .h_kv = 2};
    struct ablated a = {0};
    struct attn_edit edit = edit_of("head", "mean");

    make_plain(&a.made, 9, ATTN_F64, ATTN_SELF, d);
    edit.index = 2;
    run_baseline(&a, ATTN_PATH_DENSE);
    ablate(&a, &edit, 1);
    cr_assert(a.ok);
    for (size_t b = 0; b < d.B; b++)
        for (size_t c = 0; c < d.d_v; c++) {
            const size_t first = (b * d.h + 2) * d.T_q * d.d_v + c;
            double mean = 0;

            for (size_t i = 0; i < d.T_q; i++)
                mean +=
                    attn_tensor_get(&a.ran.trace.t[ATTN_H_HEADS], first + i * d.d_v) / 5;
            for (size_t i = 0; i < d.T_q; i++) {
                const double got =
                    attn_tensor_get(&a.out.trace.t[ATTN_H_HEADS], first + i * d.d_v);

                cr_assert_leq(fabs(got - mean), 1e-15);
                cr_assert_eq(got,
                             attn_tensor_get(&a.out.trace.t[ATTN_H],
                                             ((b * d.T_q + i) * d.h + 2) * d.d_v + c));
            }
        }
    done(&a);
}

/* A change of the future does not reach the past of a causal layer. */
Test(attn_ablate, token_under_a_causal_rule)
{
    const struct attn_dims d = {.B = 1,
                                .T_q = 6,
                                .T_kv = 6,
                                .d_model = 7,
                                .d_model_kv = 7,
                                .d_k = 2,
                                .d_v = 3,
                                .h = 2,
                                .h_kv = 2};
    struct ablated a = {0};
    struct attn_edit edit = edit_of("position", "noise");
    bool claimed = false;

    make_plain(&a.made, 4, ATTN_F64, ATTN_SELF, d);
    make_mask(&a.made, "causal");
    make_prepare(&a.made);
    edit.index = 3;
    run_baseline(&a, ATTN_PATH_DENSE);
    ablate(&a, &edit, 1);
    cr_assert(a.ok);
    for (size_t n = 0; n < 3 * d.d_model; n++)
        cr_assert_eq(attn_tensor_get(&a.ran.trace.t[ATTN_Y], n),
                     attn_tensor_get(&a.out.trace.t[ATTN_Y], n));
    for (size_t i = 3; i < 6; i++)
        cr_assert_neq(attn_tensor_get(&a.ran.trace.t[ATTN_Y], i * d.d_model),
                      attn_tensor_get(&a.out.trace.t[ATTN_Y], i * d.d_model));
    for (size_t n = 0; n < a.out.claim_count; n++)
        claimed = claimed || a.out.claim[n].object == ATTN_Y;
    cr_assert(claimed);
    done(&a);
}

/* ---- claims named in the contract ---- */

static bool claims(const struct ablated *a, enum attn_object o, const char *says)
{
    for (size_t n = 0; n < a->out.claim_count; n++)
        if (a->out.claim[n].object == o && strcmp(a->out.claim[n].says, says) == 0)
            return a->out.claim[n].holds;
    return false;
}

#define ON(o) ATTN_BIT(ATTN_##o)

Test(attn_ablate, contract)
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
    const struct attn_dims d = {.B = 2,
                                .T_q = 5,
                                .T_kv = 5,
                                .d_model = 7,
                                .d_model_kv = 7,
                                .d_k = 2,
                                .d_v = 3,
                                .h = 4,
                                .h_kv = 2};

    for (size_t r = 0; r < ATTN_COUNT(rows); r++) {
        struct ablated a = {0};
        struct attn_edit edit = edit_of(rows[r].target, "zero");

        make_plain(&a.made, 9, ATTN_F64, ATTN_SELF, d);
        run_baseline(&a, ATTN_PATH_DENSE);
        ablate(&a, &edit, 1);
        cr_assert(a.ok);
        for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
            if (!(rows[r].same & ATTN_BIT(o)))
                continue;
            cr_assert(claims(&a, (enum attn_object)o, "the same bit for bit"), "%s: %s",
                      rows[r].target, ATTN_OBJECTS[o].name);
            cr_assert(a.out.unchanged & ATTN_BIT(o));
        }
        if (strcmp(rows[r].target, "W_O") == 0)
            cr_assert(claims(&a, ATTN_Y, "exactly 0"));
        cr_assert(a.out.changed & ATTN_BIT(ATTN_Y));
        done(&a);
    }
}

/* A claim that mathematics does not make fails when it is measured: the measure can
   say no. */
Test(attn_ablate, a_false_claim_does_not_hold)
{
    const struct attn_dims d = {.B = 1,
                                .T_q = 3,
                                .T_kv = 3,
                                .d_model = 4,
                                .d_model_kv = 4,
                                .d_k = 2,
                                .d_v = 5,
                                .h = 1,
                                .h_kv = 1};
    struct ablated a = {0};
    struct attn_edit edit = edit_of("W_V", "negate");

    make_plain(&a.made, 2, ATTN_F64, ATTN_SELF, d);
    run_baseline(&a, ATTN_PATH_DENSE);
    ablate(&a, &edit, 1);
    cr_assert(claims(&a, ATTN_A, "the same bit for bit"));
    ((double *)a.out.trace.t[ATTN_A].p)[4] =
        nextafter(((double *)a.out.trace.t[ATTN_A].p)[4], 2);
    a.out.claim_count = 0;
    attn_claims(&a.made.p, &a.ran.trace, &edit, 1, &a.out);
    cr_assert_not(claims(&a, ATTN_A, "the same bit for bit"));
    cr_assert(claims(&a, ATTN_S, "the same bit for bit"));
    done(&a);
}

/* ---- the tiled path, and what is refused ---- */

Test(attn_ablate, tiled_path)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct ablated a = {0};
        struct attn_edit head = edit_of("head", "zero"), edge = edit_of("edge", "zero");

        make_problem(&a.made, seed, ATTN_F64, 6, 0, &MAKE_ALL);
        run_baseline(&a, ATTN_PATH_TILED);
        ablate(&a, &head, 1);
        cr_assert(a.ok);
        check_claims(&a, "head on the tiled path");
        cr_assert(claims(&a, ATTN_H_HEADS, "this head exactly 0"));
        again(&a);
        ablate(&a, &edge, 1);
        cr_assert_not(a.ok);
        cr_assert_eq(a.err.code, ATTN_E_CONTRADICTION);
        cr_assert_str_eq(a.err.object, "A");
        done(&a);
    }
}

static void refused(const struct attn_problem *p, struct attn_edit edit,
                    enum attn_code code, const char *object, size_t want, size_t got)
{
    struct attn_err err = {0};

    cr_assert_not(attn_edit_check(p, &edit, &err));
    cr_assert_eq(err.code, code, "%s: code %d", object, (int)err.code);
    cr_assert_str_eq(err.object, object);
    cr_assert_eq(err.want, want);
    cr_assert_eq(err.got, got);
}

Test(attn_ablate, refusals_name_both_numbers)
{
    const struct attn_dims d = {.B = 1,
                                .T_q = 3,
                                .T_kv = 3,
                                .d_model = 4,
                                .d_model_kv = 4,
                                .d_k = 2,
                                .d_v = 5,
                                .h = 3,
                                .h_kv = 1};
    struct made m;
    struct attn_edit edit;
    double numbers[40] = {0};

    make_plain(&m, 2, ATTN_F64, ATTN_SELF, d);
    refused(&m.p, edit_of("W_Q", "identity"), ATTN_E_SHAPE, "W_Q", 4, 6);
    edit = edit_of("head", "zero");
    edit.index = 3;
    refused(&m.p, edit, ATTN_E_RANGE, "index", 3, 3);
    edit = edit_of("edge", "remove");
    edit.query = 7;
    refused(&m.p, edit, ATTN_E_RANGE, "query", 3, 7);
    edit = edit_of("edge", "remove");
    edit.key = 9;
    refused(&m.p, edit, ATTN_E_RANGE, "key", 3, 9);
    edit = edit_of("W_O", "replace");
    edit.with = (struct attn_tensor){ATTN_F64, 2, {4, 5}, numbers};
    refused(&m.p, edit, ATTN_E_SHAPE, "with", 15, 4);
    edit.with = (struct attn_tensor){ATTN_F64, 1, {4}, numbers};
    refused(&m.p, edit, ATTN_E_RANK, "with", 2, 1);
    edit = edit_of("masks", "remove");
    edit.rule = "causal";
    refused(&m.p, edit, ATTN_E_MISSING, "causal", 0, 0);
    edit = edit_of("W_Q", "noise");
    edit.std = 0;
    refused(&m.p, edit, ATTN_E_RANGE, "std", 0, 0);
    edit = edit_of("W_Q", "scale");
    edit.by = NAN;
    refused(&m.p, edit, ATTN_E_RANGE, "by", 0, 0);
    make_free(&m);
}

/* The baseline's problem and numbers are only read. */
Test(attn_ablate, the_problem_is_not_touched)
{
    const struct attn_dims d = {.B = 2,
                                .T_q = 3,
                                .T_kv = 3,
                                .d_model = 4,
                                .d_model_kv = 4,
                                .d_k = 4,
                                .d_v = 4,
                                .h = 1,
                                .h_kv = 1};

    for (size_t t = 0; t < attn_edit_target_count(); t++)
        for (size_t c = 0; c < attn_edit_change_count(); c++) {
            struct ablated a = {0};
            struct attn_edit edit =
                edit_of(attn_edit_target_at(t)->name, attn_edit_change_at(c)->name);
            struct ran after;

            make_plain(&a.made, 2, ATTN_F64, ATTN_SELF, d);
            make_mask(&a.made, "causal");
            make_prepare(&a.made);
            fill_in(&a.made, &edit);
            if (attn_edit_target_at(t)->changes >> c & 1) {
                run_baseline(&a, ATTN_PATH_DENSE);
                ablate(&a, &edit, 1);
                cr_assert(a.ok, "%s %s", edit.target->name, edit.change->name);
                make_run(&a.made.p, a.ran.plan.held, ATTN_PATH_DENSE, NULL, NULL, &after);
                for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++)
                    cr_assert(a.ran.trace.t[o].p == NULL ||
                              make_same_bits(&after.trace.t[o], &a.ran.trace.t[o],
                                             ATTN_OBJECTS[o].name));
                make_run_free(&after);
            }
            done(&a);
        }
}
