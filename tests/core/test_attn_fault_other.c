/*
 * test_attn_fault_other.c - layers in which one tensor stands in the place of another.
 * The wrong layer is the right one with another weight, or a mixture of both.
 * Not here: faults made by their own stages (test_attn_fault.c, test_attn_diagnose.c).
 * Start reading at SLIPS.
 */
#include "make_candidate.h"

#include <criterion/criterion.h>

enum { SEEDS = 5 };

static const struct slip_row {
    enum attn_input own, taken; /* weights: the one left out, and the one used for it */
    enum attn_object object;    /* what the weight makes */
    const char *fault, *later;  /* with the wrong object sent; with the right one */
} SLIPS[] = {
    {ATTN_IN_W_Q, ATTN_IN_W_K, ATTN_Q, "query_is_key", "keys_meet_keys"},
    {ATTN_IN_W_Q, ATTN_IN_W_V, ATTN_Q, "query_is_value", NULL},
    {ATTN_IN_W_K, ATTN_IN_W_Q, ATTN_K, "key_is_query", "queries_meet_queries"},
    {ATTN_IN_W_K, ATTN_IN_W_V, ATTN_K, "key_is_value", "queries_meet_values"},
    {ATTN_IN_W_V, ATTN_IN_W_Q, ATTN_V, "value_is_query", "mixes_queries_not_values"},
    {ATTN_IN_W_V, ATTN_IN_W_K, ATTN_V, "value_is_key", "mixes_keys_not_values"},
};

/* Heads of the other weight are repeated to more heads, or its first ones are taken. */
static void take_columns(struct made *m, enum attn_input own, enum attn_input taken,
                         size_t width)
{
    struct attn_tensor *to = &m->p.in[own];
    const struct attn_tensor *from = &m->p.in[taken];
    const size_t want = to->dim[1] / width, have = from->dim[1] / width;

    for (size_t k = 0; k < to->dim[0]; k++)
        for (size_t c = 0; c < to->dim[1]; c++) {
            const size_t h = c / width, head = want > have ? h / (want / have) : h;

            ((double *)to->p)[k * to->dim[1] + c] =
                ((double *)from->p)[k * from->dim[1] + head * width + c % width];
        }
}

static size_t missed(const char *fault, bool best, const struct made *m,
                     const struct attn_candidate *c)
{
    const struct attn_report report = diagnose(&m->p, c, NULL);
    const struct attn_fault_row *row = attn_fault_find(fault);

    cr_assert_not_null(row, "%s", fault);
    if (best ? report.diagnoses > 0 && report.diagnosis[0].fault == row
             : names(&report, row))
        return 0;
    print(fault, m->seed, &report);
    return 1;
}

/* Every tensor, the first three, and what a layer usually shows. */
static size_t slipped(const struct slip_row *slip, enum attn_source source,
                      struct attn_dims d, uint64_t seed)
{
    static const uint32_t SHOWN[] = {
        SEEN_ALL, ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K) | ATTN_BIT(ATTN_V),
        ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_Y), ATTN_BIT(ATTN_Y)};
    struct made right, wrong;
    struct ran good, bad;
    size_t count = 0;

    make_plain(&right, seed, ATTN_F64, source, d);
    make_plain(&wrong, seed, ATTN_F64, source, d);
    take_columns(&wrong, slip->own, slip->taken, d.d_k);
    make_prepare(&wrong);
    make_run_all(&right.p, ATTN_PATH_DENSE, NULL, &good);
    make_run_all(&wrong.p, ATTN_PATH_DENSE, NULL, &bad);
    for (size_t n = 0; n < ATTN_COUNT(SHOWN); n++) {
        struct attn_candidate c = candidate_of(&bad.trace, SHOWN[n]);

        count += missed(slip->fault, n < 2, &right, &c);
    }
    /* The same numbers from there on, with the tensor itself as it should be.  Where the
       two sides have other heads or other inputs that is no fault of the catalogue. */
    if (slip->later && d.h == d.h_kv && source == ATTN_SELF) {
        struct attn_candidate c = candidate_of(&bad.trace, SEEN_ALL);

        c.object[slip->object] = good.trace.t[slip->object];
        count += missed(slip->later, true, &right, &c);
    }
    make_run_free(&good);
    make_run_free(&bad);
    make_free(&right);
    make_free(&wrong);
    return count;
}

Test(attn_fault_other, one_weight_used_twice)
{
    static const struct attn_dims HEADS =
        MAKE_DIMS(5, 5, 7, .B = 2, .d_k = 3, .d_v = 3, .h = 2, .h_kv = 2);
    static const struct attn_dims GROUPS =
        MAKE_DIMS(5, 5, 7, .B = 2, .d_k = 3, .d_v = 3, .h = 4, .h_kv = 2);
    static const struct attn_dims ACROSS =
        MAKE_DIMS(4, 6, 7, .B = 2, .d_k = 3, .d_v = 3, .h = 2, .h_kv = 2);
    size_t count = 0;

    for (size_t n = 0; n < ATTN_COUNT(SLIPS); n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++)
            count += slipped(&SLIPS[n], ATTN_SELF, HEADS, seed) +
                     slipped(&SLIPS[n], ATTN_SELF, GROUPS, seed) +
                     slipped(&SLIPS[n], ATTN_CROSS, ACROSS, seed);
    cr_assert_eq(count, 0);
}

/* Q, K and V are the inputs themselves: one is handed over in another's place. */
Test(attn_fault_other, one_tensor_given_twice)
{
    static const struct attn_dims D =
        MAKE_DIMS(5, 5, 6, .B = 2, .d_k = 3, .d_v = 3, .h = 2, .h_kv = 2);
    static const enum attn_input GIVEN[] = {
        [ATTN_IN_W_Q] = ATTN_IN_Q, [ATTN_IN_W_K] = ATTN_IN_K, [ATTN_IN_W_V] = ATTN_IN_V};
    size_t count = 0;

    for (size_t n = 0; n < ATTN_COUNT(SLIPS); n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct made right, wrong;
            struct ran bad;

            make_plain(&right, seed, ATTN_F64, ATTN_PROJECTED, D);
            make_plain(&wrong, seed, ATTN_F64, ATTN_PROJECTED, D);
            wrong.p.in[GIVEN[SLIPS[n].own]] = wrong.p.in[GIVEN[SLIPS[n].taken]];
            make_run_all(&wrong.p, ATTN_PATH_DENSE, NULL, &bad);
            for (int all = 0; all < 2; all++) {
                struct attn_candidate c = candidate_of(
                    &bad.trace, all ? SEEN_ALL : ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_Y));

                count += missed(SLIPS[n].fault, all, &right, &c);
            }
            make_run_free(&bad);
            make_free(&right);
            make_free(&wrong);
        }
    cr_assert_eq(count, 0);
}

/* A weight that is the identity is none. */
Test(attn_fault_other, projections_left_out)
{
    static const struct attn_dims D =
        MAKE_DIMS(5, 5, 6, .B = 2, .d_k = 3, .d_v = 3, .h = 2, .h_kv = 2);
    static const struct {
        enum attn_input W;
        const char *fault;
    } LEFT_OUT[] = {{ATTN_IN_W_Q, "query_not_projected"},
                    {ATTN_IN_W_K, "key_not_projected"},
                    {ATTN_IN_W_V, "value_not_projected"}};
    size_t count = 0;

    for (size_t n = 0; n < ATTN_COUNT(LEFT_OUT); n++)
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            struct made right, wrong;
            struct attn_tensor *W;
            struct ran bad;

            make_plain(&right, seed, ATTN_F64, ATTN_SELF, D);
            make_plain(&wrong, seed, ATTN_F64, ATTN_SELF, D);
            W = &wrong.p.in[LEFT_OUT[n].W];
            for (size_t k = 0; k < attn_tensor_count(W); k++)
                ((double *)W->p)[k] = k / W->dim[1] == k % W->dim[1];
            make_run_all(&wrong.p, ATTN_PATH_DENSE, NULL, &bad);
            for (int all = 0; all < 2; all++) {
                struct attn_candidate c =
                    candidate_of(&bad.trace, all ? SEEN_ALL : ATTN_BIT(ATTN_Y));

                count += missed(LEFT_OUT[n].fault, true, &right, &c);
            }
            make_run_free(&bad);
            make_free(&right);
            make_free(&wrong);
        }
    cr_assert_eq(count, 0);
}
