/* test_attn_problem.c - what attn_prepare refuses and sets; items cut out; bias of a
 * pair. */
#include "core/attn_core.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const struct attn_score_row DOT = {
    .name = "dot", .scaled_by_default = true, .bilinear = true};
static const struct attn_score_row ADDITIVE = {.name = "add", .needs_v_a = true};

static struct attn_problem layer(size_t T_q, size_t T_kv, size_t T_past)
{
    return (struct attn_problem){
        .d = {.B = 1,
              .T_q = T_q,
              .T_kv = T_kv,
              .T_past = T_past,
              .d_model = 5,
              .d_model_kv = 5,
              .d_k = 4,
              .d_v = 3,
              .h = 2,
              .h_kv = 1},
        .score = &DOT,
        .temperature = 1.0,
    };
}

static struct attn_mask *add(struct attn_problem *p, const char *name)
{
    struct attn_mask *m = &p->mask[p->mask_count++];

    *m = (struct attn_mask){.row = attn_mask_find(name)};
    return m;
}

static void refused(struct attn_problem *p, enum attn_code code, const char *object)
{
    struct attn_err err = {0};

    cr_assert_not(attn_prepare(p, &err), "accepted; expected %s", object);
    cr_assert_eq(err.code, code, "code %d, expected %d", err.code, code);
    cr_assert_str_eq(err.object, object);
}

static void accepted(struct attn_problem *p)
{
    struct attn_err err = {0};

    cr_assert(attn_prepare(p, &err), "refused with code %d at %s", err.code, err.object);
}

Test(attn_problem, shift_without_a_causal_rule_is_bottom_right)
{
    struct attn_problem p = layer(2, 5, 0);

    accepted(&p);
    cr_assert_eq(p.shift, 3);
    p = layer(5, 2, 0);
    accepted(&p);
    cr_assert_eq(p.shift, -3);
}

Test(attn_problem, alignment_must_be_stated_where_it_matters)
{
    struct attn_problem p = layer(2, 7, 3);
    struct attn_err err = {0};

    add(&p, "causal");
    cr_assert_not(attn_prepare(&p, &err));
    cr_assert_eq(err.code, ATTN_E_ALIGNMENT);
    cr_assert(err.want == 2 && err.got == 4);
    p.mask[0].arg[0] = (struct attn_arg){.given = true, .number = ATTN_ALIGN_TOP_LEFT};
    accepted(&p);
    cr_assert_eq(p.shift, 3);
    p.mask[0].arg[0].number = ATTN_ALIGN_BOTTOM_RIGHT;
    accepted(&p);
    cr_assert_eq(p.shift, 5);
}

Test(attn_problem, unstated_alignment_is_fine_when_both_are_the_same)
{
    struct attn_problem p = layer(4, 7, 3);

    add(&p, "causal");
    accepted(&p);
    cr_assert_eq(p.shift, 3);
}

Test(attn_problem, scale_defaults_to_the_width_of_the_score)
{
    struct attn_problem p = layer(2, 2, 0);
    double v_a[4] = {0};

    accepted(&p);
    cr_assert_eq(p.scale, 0.5);
    p.scale = 0.125;
    p.scale_stated = true;
    accepted(&p);
    cr_assert_eq(p.scale, 0.125);
    p = layer(2, 2, 0);
    p.score = &ADDITIVE;
    p.in[ATTN_IN_V_A].p = v_a;
    accepted(&p);
    cr_assert_eq(p.scale, 1.0);
}

Test(attn_problem, v_a_belongs_to_additive_scores)
{
    struct attn_problem p = layer(2, 2, 0);
    double v_a[4] = {0};

    p.in[ATTN_IN_V_A].p = v_a;
    refused(&p, ATTN_E_CONTRADICTION, "v_a");
    p = layer(2, 2, 0);
    p.score = &ADDITIVE;
    refused(&p, ATTN_E_MISSING, "v_a");
}

Test(attn_problem, numbers_outside_their_range)
{
    struct attn_problem p = layer(2, 2, 0);

    p.temperature = 0;
    refused(&p, ATTN_E_RANGE, "score.temperature");
    p.temperature = NAN;
    refused(&p, ATTN_E_RANGE, "score.temperature");
    p = layer(2, 2, 0);
    p.softcap = -1;
    refused(&p, ATTN_E_RANGE, "score.softcap");
    p = layer(2, 2, 0);
    p.scale_stated = true;
    p.scale = INFINITY;
    refused(&p, ATTN_E_RANGE, "score.scale");
}

Test(attn_problem, rope_needs_pairs)
{
    struct attn_problem p = layer(2, 2, 0);
    struct attn_err err = {0};

    p.position[p.position_count++] = attn_position_of_row(attn_position_find("rope"));
    accepted(&p);
    cr_assert(p.rope.on && p.rope.layout == ATTN_ROPE_HALF && p.rope.base == 10000);
    p.position[0].arg[1].real = 0;
    refused(&p, ATTN_E_RANGE, "rope");
    p.position[0].arg[1].real = 10000;
    p.d.d_k = 3;
    cr_assert_not(attn_prepare(&p, &err));
    cr_assert_eq(err.code, ATTN_E_ODD_WIDTH);
    cr_assert_eq(err.got, 3);
}

Test(attn_problem, documents_name_one_sequence)
{
    static const int64_t ids[9] = {0};
    struct attn_problem p = layer(5, 5, 0);

    add(&p, "documents")->arg[0].table = (struct attn_table){ATTN_ELEM_I64, ids, 0, 0, 0};
    accepted(&p);
    p.form.source = ATTN_CROSS;
    refused(&p, ATTN_E_CONTRADICTION, "documents");
    p.form.source = ATTN_PROJECTED;
    p.d.T_kv = 7;
    refused(&p, ATTN_E_CONTRADICTION, "documents");
    p.d.T_past = 2;
    accepted(&p);
    p.d.T_kv = 4;
    refused(&p, ATTN_E_CONTRADICTION, "documents");
}

Test(attn_problem, parameters_outside_their_range)
{
    static const int64_t lengths[] = {2, 6, -1};
    struct attn_problem p = layer(5, 5, 0);
    struct attn_mask *m = add(&p, "padding");
    struct attn_err err = {0};

    refused(&p, ATTN_E_MISSING, "padding.lengths");
    m->arg[0].table = (struct attn_table){ATTN_ELEM_I64, lengths, 1, 0, 0};
    accepted(&p);
    p.d.B = 2;
    cr_assert_not(attn_prepare(&p, &err));
    cr_assert_eq(err.code, ATTN_E_RANGE);
    cr_assert(err.at[0] == 1 && err.want == 5 && err.got == 6);
    p = layer(5, 5, 0);
    add(&p, "window")->arg[1] = (struct attn_arg){.given = true, .number = -2};
    refused(&p, ATTN_E_RANGE, "window.right");
}

Test(attn_problem, an_item_alone_has_its_own_tables)
{
    static double X[2 * 3 * 5], W_Q[5 * 8], past[2 * 1 * 2 * 4], bias[2 * 2 * 3 * 3];
    static const uint8_t pairs[9] = {0}, valid[2 * 3] = {0};
    static const double q[2 * 3] = {0};
    struct attn_problem p = layer(3, 3, 0), item;

    p.d.B = 2;
    p.form.batch_axis = true;
    p.in[ATTN_IN_X] =
        (struct attn_tensor){.dtype = ATTN_F64, .rank = 3, .dim = {2, 3, 5}, .p = X};
    p.in[ATTN_IN_W_Q] =
        (struct attn_tensor){.dtype = ATTN_F64, .rank = 2, .dim = {5, 8}, .p = W_Q};
    p.in[ATTN_IN_PAST_K] = (struct attn_tensor){
        .dtype = ATTN_F64, .rank = 4, .dim = {2, 1, 2, 4}, .p = past};
    add(&p, "allowed")->arg[0].table = (struct attn_table){ATTN_ELEM_U8, pairs, 0, 0, 3};
    add(&p, "padding")->arg[1].table = (struct attn_table){ATTN_ELEM_U8, valid, 3, 0, 0};
    p.additive = (struct attn_table){ATTN_ELEM_F64, bias, 18, 9, 3};
    p.position[p.position_count++].row = attn_position_find("rope");
    p.position[0].arg[2].table = (struct attn_table){ATTN_ELEM_F64, q, 3, 0, 0};

    attn_problem_item(&p, 1, &item);
    cr_assert(item.d.B == 1 && item.form.batch_axis);
    cr_assert_eq((double *)item.in[ATTN_IN_X].p, X + 15);
    cr_assert(item.in[ATTN_IN_X].dim[0] == 1 && item.in[ATTN_IN_X].dim[1] == 3);
    cr_assert_eq((double *)item.in[ATTN_IN_W_Q].p, W_Q);
    cr_assert_eq(item.in[ATTN_IN_W_Q].dim[0], 5);
    cr_assert_eq((double *)item.in[ATTN_IN_PAST_K].p, past + 8);
    cr_assert_eq(item.mask[0].arg[0].table.p, (const void *)pairs);
    cr_assert_eq(item.mask[1].arg[1].table.p, (const void *)(valid + 3));
    cr_assert_eq(item.additive.p, (const void *)(bias + 18));
    cr_assert_eq(item.position[0].arg[2].table.p, (const void *)(q + 3));
    cr_assert_null(item.in[ATTN_IN_X_KV].p);
}

Test(attn_problem, bias_is_additive_and_distance)
{
    static const double bias[] = {1, -INFINITY, 3, 4, 5, 6}, slopes[] = {.5, .25};
    struct attn_problem p = layer(2, 3, 0);

    accepted(&p);
    cr_assert_eq(attn_bias(&p, 0, 0, 0, 0), 0.0);
    p.position[p.position_count++] = attn_position_of_row(attn_position_find("alibi"));
    refused(&p, ATTN_E_MISSING, "alibi");
    p.position[0].arg[0].table = (struct attn_table){.elem = ATTN_ELEM_F64, .p = slopes};
    accepted(&p);
    cr_assert_eq(attn_bias(&p, 0, 0, 0, 0), -.5, "query 0 stands at key 1");
    cr_assert_eq(attn_bias(&p, 0, 1, 1, 0), -.5);
    cr_assert_eq(attn_bias(&p, 0, 0, 0, 2), -.5, "later keys are as far");
    p.additive = (struct attn_table){ATTN_ELEM_F64, bias, 0, 0, 3};
    cr_assert_eq(attn_bias(&p, 0, 0, 1, 2), 6.0);
    cr_assert_eq(attn_bias(&p, 0, 0, 0, 1), 0.0, "no finite part");
    cr_assert_not(attn_allowed(&p, 0, 0, 0, 1));
    cr_assert(attn_allowed(&p, 0, 0, 0, 2));
}

Test(attn_problem, rules_are_found_by_name)
{
    struct attn_problem p = layer(2, 2, 0);

    add(&p, "window");
    cr_assert_null(attn_mask_of(&p, "causal"));
    cr_assert_eq(attn_mask_of(&p, "window"), &p.mask[0]);
    for (int e = 0; e < ATTN_EMPTY_COUNT; e++)
        cr_assert_not_null(ATTN_EMPTY_NAMES[e]);
}
