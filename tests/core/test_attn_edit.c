/*
 * test_attn_edit.c - what may be asked of an ablation: refusals name both numbers.
 * Not here: what is accepted (test_attn_claim.c walks all of it).
 * Start reading at refusals_name_both_numbers.
 */
#include "make_ablation.h"

#include <criterion/criterion.h>
#include <math.h>

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

Test(attn_edit, refusals_name_both_numbers)
{
    const struct attn_dims d =
        MAKE_DIMS(3, 3, 4, .B = 1, .d_k = 2, .d_v = 5, .h = 3, .h_kv = 1);
    struct made m;
    struct attn_edit edit;
    double numbers[40] = {0};

    make_plain(&m, 2, ATTN_F64, ATTN_SELF, d);
    refused(&m.p, make_edit("W_Q", "identity"), ATTN_E_SQUARE, "W_Q", 4, 6);
    edit = make_edit("head", "zero");
    edit.index = 3;
    refused(&m.p, edit, ATTN_E_RANGE, "index", 2, 3);
    edit = make_edit("edge", "remove");
    edit.query = 7;
    refused(&m.p, edit, ATTN_E_RANGE, "query", 2, 7);
    edit = make_edit("edge", "remove");
    edit.key = 9;
    refused(&m.p, edit, ATTN_E_RANGE, "key", 2, 9);
    edit = make_edit("W_O", "replace");
    edit.with = (struct attn_tensor){ATTN_F64, 2, {4, 5}, numbers};
    refused(&m.p, edit, ATTN_E_SHAPE, "with", 15, 4);
    edit.with = (struct attn_tensor){ATTN_F64, 1, {4}, numbers};
    refused(&m.p, edit, ATTN_E_RANK, "with", 2, 1);
    edit = make_edit("masks", "remove");
    edit.rule = "causal";
    refused(&m.p, edit, ATTN_E_MISSING, "causal", 0, 0);
    edit = make_edit("W_Q", "noise");
    edit.std = 0;
    refused(&m.p, edit, ATTN_E_RANGE, "std", 0, 0);
    edit = make_edit("W_Q", "scale");
    edit.by = NAN;
    refused(&m.p, edit, ATTN_E_RANGE, "by", 0, 0);
    make_free(&m);
}
