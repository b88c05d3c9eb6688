/*
 * test_attn_mask.c - every rule against its sentence: worked patterns, and ranges.
 * Not here: rules together, on random problems (test_attn_mask_random.c).
 * Start reading at table.
 */
#include "make_rule.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void draw_rows(const struct attn_problem *p, char *text)
{
    uint8_t allow[2 * RULE_T_MAX];

    for (size_t i = 0; i < p->d.T_q; i++) {
        attn_allow_row(p, 0, 0, i, 0, p->d.T_kv, allow);
        for (size_t j = 0; j < p->d.T_kv; j++)
            *text++ = (char)('0' + allow[j]);
        *text++ = i + 1 < p->d.T_q ? '/' : '\0';
    }
}

static void expect_rows(const struct attn_problem *p, const char *rows)
{
    char text[RULE_T_MAX * (2 * RULE_T_MAX + 1) + 1];

    draw_rows(p, text);
    cr_assert_str_eq(text, rows, "got %s, expected %s", text, rows);
}

/* ---- the table ---- */

Test(attn_mask, table)
{
    static const char *const names[] = {"causal", "padding", "documents",
                                        "window", "allowed", "blocked"};

    cr_assert_eq(attn_mask_count(), ATTN_COUNT(names));
    for (size_t n = 0; n < ATTN_COUNT(names); n++) {
        cr_assert_str_eq(attn_mask_at(n)->name, names[n]);
        cr_assert_eq(attn_mask_find(names[n]), attn_mask_at(n));
        cr_assert_not_null(attn_mask_at(n)->allows);
    }
    cr_assert_null(attn_mask_find("mask"));
}

/* ---- worked patterns ---- */

Test(attn_mask, causal_corners)
{
    struct attn_problem p = make_rule_sizes(2, 5, 0);

    make_rule_causal(&p, ATTN_ALIGN_BOTTOM_RIGHT);
    expect_rows(&p, "11110/11111");
    p = make_rule_sizes(2, 5, 0);
    make_rule_causal(&p, ATTN_ALIGN_TOP_LEFT);
    expect_rows(&p, "10000/11000");
    p = make_rule_sizes(5, 2, 0);
    make_rule_causal(&p, ATTN_ALIGN_BOTTOM_RIGHT);
    expect_rows(&p, "00/00/00/10/11");
    p = make_rule_sizes(2, 5, 2);
    make_rule_causal(&p, ATTN_ALIGN_TOP_LEFT);
    expect_rows(&p, "11100/11110");
}

Test(attn_mask, window_does_not_count_the_own_position)
{
    struct attn_problem p = make_rule_sizes(5, 5, 0);

    make_rule_window(&p, 1, 2);
    expect_rows(&p, "11100/11110/01111/00111/00011");
    p = make_rule_sizes(4, 4, 0);
    make_rule_window(&p, -1, 0);
    expect_rows(&p, "1000/1100/1110/1111");
    p = make_rule_sizes(3, 3, 0);
    make_rule_window(&p, -1, -1);
    expect_rows(&p, "111/111/111");
    p = make_rule_sizes(3, 3, 0);
    make_rule_window(&p, INT64_MAX, 0);
    expect_rows(&p, "100/110/111");
    p = make_rule_sizes(2, 6, 0);
    make_rule_window(&p, 1, 0);
    expect_rows(&p, "000110/000011");
}

Test(attn_mask, packed_documents)
{
    static const int64_t ids[] = {0, 0, 1, 1, 1, 2};
    struct attn_problem p = make_rule_sizes(6, 6, 0);

    make_rule_causal(&p, ATTN_ALIGN_TOP_LEFT);
    make_rule_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    expect_rows(&p, "100000/110000/001000/001100/001110/000001");
}

Test(attn_mask, document_that_starts_at_slot_five)
{
    static const int64_t ids[] = {0, 0, 0, 1, 1, 2, 2, 2, 3};
    struct attn_problem p = make_rule_sizes(9, 9, 0);
    uint8_t allow[9];

    make_rule_causal(&p, ATTN_ALIGN_TOP_LEFT);
    make_rule_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    attn_allow_row(&p, 0, 0, 7, 0, 9, allow);
    for (size_t j = 0; j < 9; j++)
        cr_assert_eq(allow[j], j >= 5 && j <= 7);
}

Test(attn_mask, equal_ids_apart_see_each_other_and_none_is_alone)
{
    static const int64_t ids[] = {4, -1, 4, 7, -1};
    struct attn_problem p = make_rule_sizes(5, 5, 0);

    make_rule_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    expect_rows(&p, "10100/00000/10100/00010/00000");
}

Test(attn_mask, with_a_past_the_queries_are_the_last_ids)
{
    static const int64_t ids[] = {0, 0, 1, 1, 2};
    struct attn_problem p = make_rule_sizes(2, 5, 3);

    make_rule_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    expect_rows(&p, "00110/00001");
}

Test(attn_mask, padding_by_item)
{
    static const int64_t lengths[] = {0, 2};
    static const uint8_t valid[] = {0, 1, 1, 0, 1, 0};
    struct attn_problem p = make_rule_sizes(1, 3, 0);
    uint8_t allow[3];

    make_rule_table(&p, "padding", 0, ATTN_ELEM_I64, lengths, 1, 0, 0);
    expect_rows(&p, "000");
    attn_allow_row(&p, 1, 0, 0, 0, 3, allow);
    cr_assert(allow[0] == 1 && allow[1] == 1 && allow[2] == 0);
    p = make_rule_sizes(1, 3, 0);
    make_rule_table(&p, "padding", 1, ATTN_ELEM_U8, valid, 3, 0, 0);
    expect_rows(&p, "011");
    attn_allow_row(&p, 1, 0, 0, 0, 3, allow);
    cr_assert(allow[0] == 0 && allow[1] == 1 && allow[2] == 0);
}

Test(attn_mask, additive_minus_infinity_forbids)
{
    static const double bias[] = {0, -INFINITY, 3, -1e308};
    struct attn_problem p = make_rule_sizes(1, 4, 0);

    p.additive = (struct attn_table){ATTN_ELEM_F64, bias, 0, 0, 4};
    expect_rows(&p, "1011");
}

/* A row without `clear` and `range` must work: `allows` is all that a new rule needs. */
static bool only_even(const struct attn_problem *p, const struct attn_mask *m, size_t b,
                      size_t h, size_t i, size_t j)
{
    (void)p, (void)m, (void)b, (void)h, (void)i;
    return j % 2 == 0;
}

Test(attn_mask, a_rule_needs_only_its_predicate)
{
    static const struct attn_mask_row row = {.name = "even", .allows = only_even};
    struct attn_problem p = make_rule_sizes(1, 5, 0);
    size_t j0, j1;
    bool exact;

    p.mask[p.mask_count++].row = &row;
    expect_rows(&p, "10101");
    attn_allow_range(&p, 0, 0, 0, &j0, &j1, &exact);
    cr_assert(j0 == 0 && j1 == 5 && !exact);
}

Test(attn_mask, ranges_are_exact_where_they_can_be)
{
    static const int64_t ids[] = {0, 0, 1, 1, 1, 2}, lengths[] = {5};
    struct attn_problem p = make_rule_sizes(6, 6, 0);
    size_t j0, j1;
    bool exact;

    make_rule_causal(&p, ATTN_ALIGN_TOP_LEFT);
    make_rule_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    make_rule_table(&p, "padding", 0, ATTN_ELEM_I64, lengths, 0, 0, 0);
    make_rule_window(&p, 1, -1);
    attn_allow_range(&p, 0, 0, 4, &j0, &j1, &exact);
    cr_assert(j0 == 3 && j1 == 5 && exact);
}

Test(attn_mask, an_empty_range_is_exact_whatever_else_is_asked)
{
    static const double bias[2] = {0};
    struct attn_problem p = make_rule_sizes(5, 2, 0);
    size_t j0, j1;
    bool exact;

    make_rule_causal(&p, ATTN_ALIGN_BOTTOM_RIGHT);
    p.additive = (struct attn_table){ATTN_ELEM_F64, bias, 0, 0, 0};
    attn_allow_range(&p, 0, 0, 0, &j0, &j1, &exact);
    cr_assert(j0 == j1 && exact);
    attn_allow_range(&p, 0, 0, 4, &j0, &j1, &exact);
    cr_assert(j0 == 0 && j1 == 2 && !exact);
}
