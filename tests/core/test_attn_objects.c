/* test_attn_objects.c - the table is in dependency order, complete, and gives right
 * shapes. */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <string.h>

static struct attn_problem layer(enum attn_source source)
{
    return (struct attn_problem){
        .dtype = ATTN_F32,
        .d = MAKE_DISTINCT,
        .form = {.batch_axis = true,
                 .head_axis = true,
                 .has_output = true,
                 .source = source},
    };
}

static void expect_shape(const struct attn_problem *p, enum attn_object o, bool full,
                         unsigned rank, const size_t *dim)
{
    struct attn_tensor shape;

    if (full)
        attn_object_full_shape(p, o, &shape);
    else
        attn_object_shape(p, o, &shape);
    cr_assert_eq(shape.rank, rank, "%s has rank %u", ATTN_OBJECTS[o].name, shape.rank);
    for (unsigned a = 0; a < rank; a++)
        cr_assert_eq(shape.dim[a], dim[a], "%s axis %u is %zu", ATTN_OBJECTS[o].name, a,
                     shape.dim[a]);
    cr_assert_null(shape.p);
    cr_assert_eq(shape.dtype, ATTN_OBJECTS[o].is_bool ? ATTN_BOOL : p->dtype);
}
#define FULL(o, ...)                                                            \
    expect_shape(&p, o, true, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), \
                 (size_t[]){__VA_ARGS__})
#define GIVEN(o, ...)                                                            \
    expect_shape(&p, o, false, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), \
                 (size_t[]){__VA_ARGS__})

Test(attn_objects, names_are_unique_and_found)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        cr_assert_eq(attn_object_find(ATTN_OBJECTS[o].name), o, "%s",
                     ATTN_OBJECTS[o].name);
    cr_assert_eq(attn_object_find("mask"), -1);
}

Test(attn_objects, dependency_order)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        const struct attn_object_row *row = &ATTN_OBJECTS[o];

        cr_assert_lt(row->depends_on, ATTN_BIT(o), "%s depends on a later one",
                     row->name);
        cr_assert_eq(ATTN_OBJECTS[row->counts_as].counts_as, row->counts_as, "%s",
                     row->name);
        cr_assert_gt(strlen(row->formula), 0);
    }
}

Test(attn_objects, default_answer)
{
    static const char *const names[] = {"Q", "K", "V", "S", "M", "A", "H", "Y"};
    size_t n = 0;

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        if (!ATTN_OBJECTS[o].by_default)
            continue;
        cr_assert_lt(n, ATTN_COUNT(names));
        cr_assert_str_eq(ATTN_OBJECTS[o].name, names[n++]);
        cr_assert(ATTN_OBJECTS[o].returnable);
    }
    cr_assert_eq(n, ATTN_COUNT(names));
}

Test(attn_objects, counted_as)
{
    static const char *const pairs[][2] = {
        {"allowed", "M"}, {"S_masked", "M"},  {"H_heads", "H"},
        {"S_raw", "S"},   {"lse", "A"},       {"Q_pre", "Q"},
        {"K_pre", "K"},   {"present_K", "K"}, {"present_V", "V"}};

    for (size_t n = 0; n < ATTN_COUNT(pairs); n++) {
        const int o = attn_object_find(pairs[n][0]);

        cr_assert_geq(o, 0);
        cr_assert_str_eq(ATTN_OBJECTS[ATTN_OBJECTS[o].counts_as].name, pairs[n][1]);
    }
}

Test(attn_objects, pairwise_means_queries_times_keys)
{
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        bool queries = false, keys = false;

        for (const enum attn_axis *a = ATTN_OBJECTS[o].axis; *a != ATTN_AX_END; a++) {
            queries = queries || *a == ATTN_AX_TQ;
            keys = keys || *a == ATTN_AX_TKV;
        }
        cr_assert_eq(ATTN_OBJECTS[o].pairwise, queries && keys, "%s",
                     ATTN_OBJECTS[o].name);
    }
}

Test(attn_objects, full_shapes)
{
    const struct attn_problem p = layer(ATTN_CROSS);

    FULL(ATTN_X, 2, 3, 7);
    FULL(ATTN_X_KV, 2, 4, 11);
    FULL(ATTN_Q, 2, 6, 3, 13);
    FULL(ATTN_K, 2, 2, 5, 13);
    FULL(ATTN_V, 2, 2, 5, 17);
    FULL(ATTN_S, 2, 6, 3, 5);
    FULL(ATTN_ALLOWED, 2, 6, 3, 5);
    FULL(ATTN_LSE, 2, 6, 3);
    FULL(ATTN_CONTRIBUTIONS, 2, 6, 3, 5, 17);
    FULL(ATTN_H_HEADS, 2, 6, 3, 17);
    FULL(ATTN_H, 2, 3, 102);
    FULL(ATTN_Y, 2, 3, 7);
}

Test(attn_objects, answers_drop_what_was_not_stated)
{
    struct attn_problem p = layer(ATTN_SELF);

    GIVEN(ATTN_S, 2, 6, 3, 5);
    GIVEN(ATTN_H, 2, 3, 102);
    p.form.batch_axis = false;
    p.d.B = 1;
    GIVEN(ATTN_S, 6, 3, 5);
    GIVEN(ATTN_K, 2, 5, 13);
    GIVEN(ATTN_Y, 3, 7);
    p.form.head_axis = false;
    p.d.h = p.d.h_kv = 1;
    GIVEN(ATTN_Q, 3, 13);
    GIVEN(ATTN_CONTRIBUTIONS, 3, 5, 17);
    GIVEN(ATTN_LSE, 3);
    FULL(ATTN_Q, 1, 1, 3, 13);
}

Test(attn_objects, existence)
{
    struct attn_problem p = layer(ATTN_SELF);

    cr_assert(attn_object_exists(&p, ATTN_X) && !attn_object_exists(&p, ATTN_X_KV));
    cr_assert(attn_object_exists(&p, ATTN_Y));
    p.form.source = ATTN_CROSS;
    cr_assert(attn_object_exists(&p, ATTN_X) && attn_object_exists(&p, ATTN_X_KV));
    p.form.source = ATTN_PROJECTED;
    p.form.has_output = false;
    cr_assert(!attn_object_exists(&p, ATTN_X) && !attn_object_exists(&p, ATTN_X_KV));
    cr_assert(!attn_object_exists(&p, ATTN_Y) && attn_object_exists(&p, ATTN_H));
}
