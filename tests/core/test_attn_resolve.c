/* test_attn_resolve.c - sizes from tensors and declarations; every disagreement names
 * both. */
#include "core/attn_core.h"

#include <criterion/criterion.h>
#include <stdarg.h>

struct ask {
    struct attn_decl decl;
    struct attn_given given[ATTN_INPUT_COUNT];
    struct attn_dims d;
    struct attn_form form;
    struct attn_err err;
};

/* dims end with 0; an empty list is a field without a shape (init). */
static void give(struct ask *a, enum attn_input in, unsigned rank, ...)
{
    va_list dims;

    a->given[in] = (struct attn_given){.present = true, .shaped = rank > 0, .rank = rank};
    va_start(dims, rank);
    for (unsigned n = 0; n < rank && n < ATTN_RANK_MAX; n++)
        a->given[in].dim[n] = (size_t)va_arg(dims, int);
    va_end(dims);
}

static bool resolve(struct ask *a)
{
    a->err = (struct attn_err){0};
    return attn_resolve(&a->decl, a->given, &a->d, &a->form, &a->err);
}

static void refused(struct ask *a, enum attn_code code, const char *object,
                    const char *axis, size_t want, size_t got)
{
    cr_assert_not(resolve(a), "accepted; expected code %d at %s", code, object);
    cr_assert_eq(a->err.code, code, "code %d at %s, expected %d", a->err.code,
                 a->err.object, code);
    cr_assert_str_eq(a->err.object, object);
    if (axis != NULL)
        cr_assert_str_eq(a->err.axis, axis);
    cr_assert_eq(a->err.want, want, "want %zu", a->err.want);
    cr_assert_eq(a->err.got, got, "got %zu", a->err.got);
}

/* One sequence, T 12, d_model 10, 3 heads over 1: d_k 4, d_v 2. */
static struct ask self(void)
{
    struct ask a = {.decl = {.heads = 3, .kv_heads = 1}};

    give(&a, ATTN_IN_X, 2, 12, 10);
    give(&a, ATTN_IN_W_Q, 2, 10, 12);
    give(&a, ATTN_IN_W_K, 2, 10, 4);
    give(&a, ATTN_IN_W_V, 2, 10, 2);
    give(&a, ATTN_IN_W_O, 2, 6, 10);
    return a;
}

static struct ask projected(void)
{
    struct ask a = {.decl = {.heads = 4, .kv_heads = 2}};

    give(&a, ATTN_IN_Q, 4, 2, 4, 3, 5);
    give(&a, ATTN_IN_K, 4, 2, 2, 7, 5);
    give(&a, ATTN_IN_V, 4, 2, 2, 7, 6);
    return a;
}

Test(attn_resolve, self_attention)
{
    struct ask a = self();

    cr_assert(resolve(&a));
    cr_assert(a.d.B == 1 && a.d.T_q == 12 && a.d.T_kv == 12 && a.d.T_past == 0);
    cr_assert(a.d.d_model == 10 && a.d.d_model_kv == 10 && a.d.d_k == 4 && a.d.d_v == 2);
    cr_assert(a.d.h == 3 && a.d.h_kv == 1);
    cr_assert(!a.form.batch_axis && a.form.head_axis && a.form.has_output);
    cr_assert_eq(a.form.source, ATTN_SELF);
}

Test(attn_resolve, head_axis_only_when_heads_are_stated)
{
    struct ask a = self();

    a.decl = (struct attn_decl){.kv_heads = 1};
    give(&a, ATTN_IN_W_Q, 2, 10, 4);
    give(&a, ATTN_IN_W_O, 2, 2, 10);
    cr_assert(resolve(&a));
    cr_assert(a.d.h == 1 && a.d.h_kv == 1 && !a.form.head_axis);
}

Test(attn_resolve, output_weights_of_the_wrong_shape)
{
    struct ask a = self();

    give(&a, ATTN_IN_W_O, 2, 10, 6);
    refused(&a, ATTN_E_SHAPE, "W_O", "h*d_v", 6, 10);
    a.decl.d_v = 2;
    refused(&a, ATTN_E_SHAPE, "W_O", "h*d_v", 6, 10);
    give(&a, ATTN_IN_W_O, 2, 6, 11);
    refused(&a, ATTN_E_SHAPE, "W_O", "d_model", 10, 11);
}

Test(attn_resolve, the_later_tensor_is_named)
{
    struct ask a = self();

    give(&a, ATTN_IN_W_Q, 2, 9, 12);
    refused(&a, ATTN_E_SHAPE, "W_Q", "d_model", 10, 9);
    a = self();
    give(&a, ATTN_IN_W_K, 2, 10, 5);
    refused(&a, ATTN_E_SHAPE, "W_K", "h_kv*d_k", 4, 5);
    a = self();
    give(&a, ATTN_IN_W_K, 2, 8, 4);
    refused(&a, ATTN_E_SHAPE, "W_K", "d_model", 10, 8);
    a = self();
    give(&a, ATTN_IN_B_Q, 1, 11);
    refused(&a, ATTN_E_SHAPE, "b_Q", "h*d_k", 12, 11);
    a = self();
    give(&a, ATTN_IN_SINK, 1, 2);
    refused(&a, ATTN_E_DECLARED, "sink", "heads", 3, 2);
    a = self();
    give(&a, ATTN_IN_V_A, 1, 3);
    refused(&a, ATTN_E_SHAPE, "v_a", "d_k", 4, 3);
}

Test(attn_resolve, heads_that_do_not_divide)
{
    struct ask a = self();

    a.decl.kv_heads = 2;
    refused(&a, ATTN_E_DIVIDE, "shapes.kv_heads", "kv_heads", 2, 3);
    a = self();
    give(&a, ATTN_IN_W_Q, 2, 10, 13);
    refused(&a, ATTN_E_DIVIDE, "W_Q", "h*d_k", 3, 13);
}

Test(attn_resolve, declarations_must_agree)
{
    struct ask a = self();

    a.decl = (struct attn_decl){.T = 12,
                                .T_kv = 12,
                                .d_model = 10,
                                .d_k = 4,
                                .d_v = 2,
                                .heads = 3,
                                .kv_heads = 1,
                                .B = 1};
    cr_assert(resolve(&a), "redundant is not contradictory");
    a.decl.T = 11;
    refused(&a, ATTN_E_DECLARED, "X", "T", 11, 12);
    a = self();
    a.decl.d_k = 3;
    refused(&a, ATTN_E_DECLARED, "W_Q", "d_k", 3, 4);
    a = self();
    a.decl.B = 2;
    refused(&a, ATTN_E_DECLARED, "X", "B", 2, 1);
    a = self();
    a.decl.T_kv = 13;
    refused(&a, ATTN_E_DECLARED, "X", "T_kv", 13, 12);
    a = self();
    a.decl.d_v = 7;
    refused(&a, ATTN_E_DECLARED, "W_V", "d_v", 7, 2);
}

Test(attn_resolve, generated_tensors_take_sizes_from_the_declaration)
{
    struct ask a = {.decl = {.T = 3, .d_model = 5, .d_k = 2, .d_v = 4}};

    give(&a, ATTN_IN_X, 0);
    give(&a, ATTN_IN_W_Q, 0);
    give(&a, ATTN_IN_W_K, 0);
    give(&a, ATTN_IN_W_V, 0);
    cr_assert(resolve(&a));
    cr_assert(a.d.B == 1 && a.d.T_kv == 3 && a.d.d_v == 4 && !a.form.batch_axis);
    cr_assert_not(a.form.has_output);
    a.decl.B = 2;
    cr_assert(resolve(&a));
    cr_assert(a.d.B == 2 && a.form.batch_axis);
    a.decl.d_k = 0;
    refused(&a, ATTN_E_SIZE_UNKNOWN, "W_Q", "d_k", 0, 0);
    a.decl.d_k = 2;
    a.decl.T = 0;
    refused(&a, ATTN_E_SIZE_UNKNOWN, "X", "T", 0, 0);
    a.decl.T = 3;
    a.decl.d_model = 0;
    refused(&a, ATTN_E_SIZE_UNKNOWN, "X", "d_model", 0, 0);
    give(&a, ATTN_IN_W_Q, 2, 5, 2);
    cr_assert(resolve(&a), "W_Q fixes d_model");
    cr_assert_eq(a.d.d_model, 5);
}

Test(attn_resolve, cross_attention_has_its_own_width)
{
    struct ask a = self();

    give(&a, ATTN_IN_X_KV, 2, 7, 9);
    give(&a, ATTN_IN_W_K, 2, 9, 4);
    give(&a, ATTN_IN_W_V, 2, 9, 2);
    cr_assert(resolve(&a));
    cr_assert(a.d.T_q == 12 && a.d.T_kv == 7 && a.d.d_model_kv == 9);
    cr_assert_eq(a.form.source, ATTN_CROSS);
    give(&a, ATTN_IN_W_V, 2, 10, 2);
    refused(&a, ATTN_E_SHAPE, "W_V", "d_model_kv", 9, 10);
    give(&a, ATTN_IN_X_KV, 3, 1, 7, 9);
    refused(&a, ATTN_E_RANK, "X_kv", NULL, 2, 3);
}

Test(attn_resolve, batches_must_be_equal)
{
    struct ask a = self();

    give(&a, ATTN_IN_X, 3, 2, 12, 10);
    give(&a, ATTN_IN_X_KV, 3, 3, 7, 10);
    refused(&a, ATTN_E_SHAPE, "X_kv", "B", 2, 3);
    give(&a, ATTN_IN_X_KV, 2, 7, 10);
    refused(&a, ATTN_E_RANK, "X_kv", NULL, 3, 2);
    give(&a, ATTN_IN_X_KV, 3, 2, 7, 10);
    cr_assert(resolve(&a));
    cr_assert(a.d.B == 2 && a.form.batch_axis);
}

Test(attn_resolve, projected_ranks)
{
    struct ask a = projected();

    cr_assert(resolve(&a));
    cr_assert(a.d.B == 2 && a.d.T_q == 3 && a.d.T_kv == 7 && a.d.d_k == 5 &&
              a.d.d_v == 6);
    cr_assert(a.d.h == 4 && a.d.h_kv == 2 && a.form.batch_axis && !a.form.has_output);
    give(&a, ATTN_IN_Q, 3, 2, 3, 20);
    give(&a, ATTN_IN_K, 3, 2, 7, 10);
    give(&a, ATTN_IN_V, 3, 2, 7, 12);
    cr_assert(resolve(&a));
    cr_assert(a.d.d_k == 5 && a.d.d_v == 6 && a.form.batch_axis);
    give(&a, ATTN_IN_Q, 2, 3, 20);
    refused(&a, ATTN_E_RANK, "K", NULL, 2, 3);
    give(&a, ATTN_IN_K, 2, 7, 10);
    give(&a, ATTN_IN_V, 2, 7, 12);
    cr_assert(resolve(&a));
    cr_assert(a.d.B == 1 && a.d.d_v == 6 && !a.form.batch_axis);
}

Test(attn_resolve, projected_errors)
{
    struct ask a = projected();

    a.decl = (struct attn_decl){0};
    cr_assert_not(resolve(&a));
    cr_assert_eq(a.err.code, ATTN_E_MISSING);
    cr_assert_str_eq(a.err.object, "shapes.heads");
    a = projected();
    give(&a, ATTN_IN_V, 4, 2, 2, 8, 6);
    refused(&a, ATTN_E_SHAPE, "V", "T_new", 7, 8);
    a = projected();
    give(&a, ATTN_IN_K, 4, 2, 4, 7, 5);
    refused(&a, ATTN_E_DECLARED, "K", "kv_heads", 2, 4);
    a = projected();
    give(&a, ATTN_IN_W_Q, 2, 5, 5);
    refused(&a, ATTN_E_CONTRADICTION, "W_Q", NULL, 0, 0);
    a = projected();
    give(&a, ATTN_IN_B_V, 1, 12);
    refused(&a, ATTN_E_CONTRADICTION, "b_V", NULL, 0, 0);
    a = projected();
    give(&a, ATTN_IN_X, 2, 3, 4);
    refused(&a, ATTN_E_CONTRADICTION, "Q", NULL, 0, 0);
    a = projected();
    a.given[ATTN_IN_V].present = false;
    refused(&a, ATTN_E_MISSING, "V", NULL, 0, 0);
}

Test(attn_resolve, projected_output_fixes_the_model_width)
{
    struct ask a = projected();

    give(&a, ATTN_IN_W_O, 2, 24, 9);
    give(&a, ATTN_IN_B_O, 1, 9);
    cr_assert(resolve(&a));
    cr_assert(a.d.d_model == 9 && a.form.has_output);
    a.given[ATTN_IN_W_O].present = false;
    refused(&a, ATTN_E_CONTRADICTION, "b_O", NULL, 0, 0);
}

Test(attn_resolve, past_comes_before_the_new_keys)
{
    struct ask a = self();

    give(&a, ATTN_IN_PAST_K, 4, 1, 1, 5, 4);
    refused(&a, ATTN_E_MISSING, "past.V", NULL, 0, 0);
    give(&a, ATTN_IN_PAST_V, 4, 1, 1, 5, 2);
    cr_assert(resolve(&a));
    cr_assert(a.d.T_past == 5 && a.d.T_q == 12 && a.d.T_kv == 17);
    a.decl.T_kv = 17;
    cr_assert(resolve(&a));
    a.decl.T_kv = 12;
    refused(&a, ATTN_E_DECLARED, "past.K", "T_kv", 12, 17);
    a.decl.T_kv = 0;
    give(&a, ATTN_IN_PAST_V, 4, 1, 1, 6, 2);
    refused(&a, ATTN_E_SHAPE, "past.V", "T_past", 5, 6);
    give(&a, ATTN_IN_PAST_K, 4, 1, 1, 5, 3);
    refused(&a, ATTN_E_SHAPE, "past.K", "d_k", 4, 3);
    give(&a, ATTN_IN_PAST_K, 4, 2, 1, 5, 4);
    refused(&a, ATTN_E_SHAPE, "past.K", "B", 1, 2);
    give(&a, ATTN_IN_PAST_K, 3, 1, 5, 4);
    refused(&a, ATTN_E_RANK, "past.K", NULL, 4, 3);
}

Test(attn_resolve, generated_past_and_keys_share_the_declared_length)
{
    struct ask a = self();

    give(&a, ATTN_IN_PAST_K, 0);
    give(&a, ATTN_IN_PAST_V, 0);
    refused(&a, ATTN_E_SIZE_UNKNOWN, "past.K", "T_kv", 0, 0);
    a.decl.T_kv = 17;
    cr_assert(resolve(&a));
    cr_assert(a.d.T_past == 5 && a.d.T_kv == 17);
}

Test(attn_resolve, what_must_be_there)
{
    struct ask a = {0};

    refused(&a, ATTN_E_MISSING, "X", NULL, 0, 0);
    a = self();
    a.given[ATTN_IN_W_K].present = false;
    refused(&a, ATTN_E_MISSING, "W_K", NULL, 0, 0);
    a = self();
    a.given[ATTN_IN_W_O].present = false;
    cr_assert(resolve(&a));
    cr_assert_not(a.form.has_output);
}

Test(attn_resolve, ranks)
{
    struct ask a = self();

    give(&a, ATTN_IN_X, 1, 12);
    refused(&a, ATTN_E_RANK, "X", NULL, 2, 1);
    give(&a, ATTN_IN_X, 4, 1, 1, 12, 10);
    refused(&a, ATTN_E_RANK, "X", NULL, 3, 4);
    a = self();
    give(&a, ATTN_IN_W_Q, 1, 12);
    refused(&a, ATTN_E_RANK, "W_Q", NULL, 2, 1);
    a = self();
    give(&a, ATTN_IN_B_O, 2, 1, 10);
    refused(&a, ATTN_E_RANK, "b_O", NULL, 1, 2);
}

Test(attn_resolve, empty_and_enormous_axes)
{
    struct ask a = self();

    a.given[ATTN_IN_X].dim[0] = 0;
    refused(&a, ATTN_E_SIZE_ZERO, "X", "T_q", 1, 0);
    a.given[ATTN_IN_X].dim[0] = (size_t)INT32_MAX + 1;
    refused(&a, ATTN_E_OVERFLOW, "X", "T_q", INT32_MAX, (size_t)INT32_MAX + 1);
    a = (struct ask){.decl = {.T = 3, .d_model = SIZE_MAX, .d_k = 2, .d_v = 4}};
    give(&a, ATTN_IN_X, 0);
    give(&a, ATTN_IN_W_Q, 0);
    give(&a, ATTN_IN_W_K, 0);
    give(&a, ATTN_IN_W_V, 0);
    refused(&a, ATTN_E_OVERFLOW, "shapes", "d_model", INT32_MAX, SIZE_MAX);
    a.decl.d_model = 5;
    a.decl.heads = INT32_MAX;
    a.decl.kv_heads = 1;
    refused(&a, ATTN_E_OVERFLOW, "shapes", "h*d_k", INT32_MAX, (size_t)2 * INT32_MAX);
    a.decl.heads = SIZE_MAX;
    refused(&a, ATTN_E_OVERFLOW, "shapes", "heads", INT32_MAX, SIZE_MAX);
}
