/*
 * test_attn_fault_set.c - faults with a given constant: as they stand with their own, and
 * otherwise with another.
 * Not here: the faults with their own constants (test_attn_fault.c).
 * Start reading at dropout_drops_the_share_asked.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(attn_fault_set, every_constant_is_named_and_in_its_own_range)
{
    size_t count = 0, seeds = 0;

    for (size_t n = 0; n < attn_fault_count(); n++) {
        struct attn_fault_takes takes;

        if (!attn_fault_takes(attn_fault_at(n), &takes))
            continue;
        count++;
        seeds += takes.seed;
        cr_expect(takes.name && *takes.name);
        cr_expect(attn_fault_in_range(&takes, takes.standard), "%s",
                  attn_fault_name(attn_fault_at(n)));
        cr_expect(!attn_fault_in_range(&takes, 2e38));
        cr_expect(!attn_fault_in_range(&takes, (double)NAN));
    }
    cr_expect(count == 11 && seeds == 1, "%zu, %zu", count, seeds);
}

Test(attn_fault_set, without_a_constant_it_is_the_row_s_own_swap)
{
    for (size_t n = 0; n < attn_fault_count(); n++) {
        const struct attn_fault_row *row = attn_fault_at(n);
        union attn_fault_room room;
        const struct attn_swap *set = attn_fault_set(row, NULL, NULL, &room);
        struct attn_fault_takes takes;

        cr_expect(memcmp(set->stage, attn_fault_swap(row)->stage, sizeof set->stage) ==
                  0);
        if (!attn_fault_takes(row, &takes) || !takes.seed)
            cr_expect(set->param == attn_fault_swap(row)->param);
    }
}

Test(attn_fault_set, a_constant_that_changes_nothing_does_not_show)
{
    const struct attn_fault_row *row = attn_fault_find("scale_other");
    union attn_fault_room room;
    const double same = 1.0, other = 3.0;
    struct made m;

    make_problem(&m, 3, ATTN_F64, 5, 0, &MAKE_ALL);
    make_prepare(&m);
    cr_expect(!attn_fault_shows(row, attn_fault_set(row, &same, NULL, &room), &m.p));
    cr_expect(attn_fault_shows(row, attn_fault_set(row, &other, NULL, &room), &m.p));
    make_free(&m);
}

/* ---- dropout ----------------------------------------------------------------------- */

enum { T = 32 };

/* A of the run with this dropout, into out; how many weights are 0. */
static size_t dropped(const struct made *m, double p, uint64_t seed, double *out)
{
    const struct attn_fault_row *row = attn_fault_find("dropout_in_eval");
    union attn_fault_room room;
    const struct attn_swap *swap = attn_fault_set(row, &p, &seed, &room);
    size_t zeros = 0;
    struct ran right, r;

    make_run(&m->p, ATTN_BIT(ATTN_A), ATTN_PATH_DENSE, NULL, NULL, &right);
    make_run(&m->p, ATTN_BIT(ATTN_A), ATTN_PATH_DENSE, NULL, swap, &r);
    cr_assert(right.ok && r.ok);
    for (size_t n = 0; n < T * T; n++) {
        const double a = ((const double *)right.trace.t[ATTN_A].p)[n];

        out[n] = ((const double *)r.trace.t[ATTN_A].p)[n];
        zeros += out[n] == 0.0;
        cr_expect(out[n] == 0.0 || fabs(out[n] * (1.0 - p) - a) <= 1e-15);
    }
    make_run_free(&right);
    make_run_free(&r);
    return zeros;
}

Test(attn_fault_set, dropout_drops_the_share_asked)
{
    static double a[T * T], b[T * T];
    const struct attn_dims d =
        MAKE_DIMS(T, T, 4, .B = 1, .d_k = 4, .d_v = 4, .h = 1, .h_kv = 1);
    struct made m;

    make_plain(&m, 5, ATTN_F64, ATTN_SELF, d);
    cr_expect_float_eq((double)dropped(&m, 0.25, 9, a) / (T * T), 0.25, 0.06);
    cr_expect_float_eq((double)dropped(&m, 0.9, 9, a) / (T * T), 0.9, 0.06);
    dropped(&m, 0.9, 9, b);
    cr_expect(memcmp(a, b, sizeof a) == 0);
    dropped(&m, 0.9, 10, b);
    cr_expect(memcmp(a, b, sizeof a) != 0);
    make_free(&m);
}
