/*
 * test_attn_fault_common.c - of faults with the same numbers on an input the one met
 * more often is named first, the other beside it.
 * Not here: that each is named at all (test_attn_diagnose.c).
 * Start reading at PAIRS.
 */
#include "make_candidate.h"

#include "core/attn_fault.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* Its table is its own: here once more, its function under another name. */
#define attn_fault_met met_again
#include "core/attn_fault_common.c"
#undef attn_fault_met

static const struct pair_row { /* the rarer one, injected, and what it looks like */
    const char *injected, *first;
    struct attn_dims d;
    bool causal;
} PAIRS[] = {
    {"scale_value_width", "scale_d_model",
     MAKE_DIMS(5, 5, 8, .B = 2, .d_k = 3, .d_v = 4, .h = 2, .h_kv = 2), true},
    {"scale_heads", "scale_d_model",
     MAKE_DIMS(5, 5, 4, .B = 2, .d_k = 3, .d_v = 2, .h = 4, .h_kv = 2), true},
    {"scale_d_model", "scale_no_sqrt",
     MAKE_DIMS(5, 5, 16, .B = 2, .d_k = 4, .d_v = 3, .h = 2, .h_kv = 2), false},
    {"scale_twice", "scale_no_sqrt",
     MAKE_DIMS(5, 5, 7, .B = 2, .d_k = 4, .d_v = 3, .h = 2, .h_kv = 2), false},
    {"causal_skipped_in_prefill", "mask_ignored",
     MAKE_DIMS(5, 5, 7, .B = 2, .d_k = 4, .d_v = 3, .h = 2, .h_kv = 2), true},
    {"chunk_mask_offset", "causal_top_left",
     MAKE_DIMS(3, 5, 7, .B = 2, .d_k = 4, .d_v = 3, .h = 2, .h_kv = 2), true},
};

static bool lists(const struct attn_diagnosis *d, const char *fault)
{
    for (size_t n = 0; n < d->same; n++)
        if (strcmp(d->same_as[n]->name, fault) == 0)
            return true;
    return false;
}

Test(attn_fault_common, the_one_met_more_often_is_first)
{
    static const uint32_t SHOWN[] = {SEEN_ALL, ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_Y)};
    size_t wrong = 0;

    for (size_t n = 0; n < ATTN_COUNT(PAIRS); n++)
        for (size_t s = 0; s < ATTN_COUNT(SHOWN); s++) {
            const struct pair_row *pair = &PAIRS[n];
            const struct attn_fault_row *fault = attn_fault_find(pair->injected);
            struct attn_candidate c;
            struct attn_report report;
            struct made m;
            struct ran r;
            bool right;

            make_plain(&m, 3, ATTN_F64,
                       pair->d.T_q == pair->d.T_kv ? ATTN_SELF : ATTN_CROSS, pair->d);
            m.p.scale = 1.0 / sqrt((double)pair->d.d_k);
            if (pair->causal)
                make_mask(&m, "causal")->arg[0] =
                    (struct attn_arg){.given = true, .number = ATTN_ALIGN_BOTTOM_RIGHT};
            make_prepare(&m);
            make_run_all(&m.p, ATTN_PATH_DENSE, attn_fault_swap(fault), &r);
            c = candidate_of(&r.trace, SHOWN[s]);
            report = diagnose(&m.p, &c, NULL);
            right = report.diagnoses > 1 &&
                    strcmp(report.diagnosis[0].fault->name, pair->first) == 0 &&
                    lists(&report.diagnosis[0], pair->injected);
            if (!right)
                print(pair->injected, m.seed, &report);
            wrong += !right;
            make_run_free(&r);
            make_free(&m);
        }
    cr_assert_eq(wrong, 0);
}

/* A name that is no fault's, or stands twice, would change nothing. */
Test(attn_fault_common, every_row_ranks_a_fault)
{
    for (size_t n = 0; n < ATTN_COUNT(MET); n++) {
        const struct attn_fault_row *fault = attn_fault_find(MET[n].fault);

        cr_assert(fault != NULL, "%s is no fault", MET[n].fault);
        cr_expect(MET[n].met != ATTN_MET_USUALLY, "%s needs no row", MET[n].fault);
        cr_expect_eq(attn_fault_met(fault), MET[n].met, "%s stands twice", MET[n].fault);
    }
}
