/*
 * test_attn_mask.c - every rule against its sentence, and the fast forms against the slow
 * one. The reference below is written from the contract, in wide integers and without the
 * tables.
 */
#include "core/attn_core.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { T_MAX = 9, B = 2, H = 3 };

struct world { /* a random problem and all that its tables point to        */
    struct attn_problem p;
    int64_t lengths[B], ids[B * 2 * T_MAX];
    uint8_t valid[B * 2 * T_MAX], allowed[B * H * T_MAX * 2 * T_MAX];
    uint8_t blocked[T_MAX * 2 * T_MAX];
    double bias[T_MAX * 2 * T_MAX];
};

static struct attn_mask *add(struct attn_problem *p, const char *name)
{
    struct attn_mask *m = &p->mask[p->mask_count++];

    *m = (struct attn_mask){.row = attn_mask_find(name)};
    cr_assert_not_null(m->row, "%s", name);
    return m;
}

static void add_causal(struct attn_problem *p, enum attn_alignment alignment)
{
    struct attn_mask *m = add(p, "causal");

    m->arg[0].given = true;
    m->arg[0].number = alignment;
    p->shift = alignment == ATTN_ALIGN_TOP_LEFT
                   ? (ptrdiff_t)p->d.T_past
                   : (ptrdiff_t)p->d.T_kv - (ptrdiff_t)p->d.T_q;
}

static void add_window(struct attn_problem *p, int64_t left, int64_t right)
{
    struct attn_mask *m = add(p, "window");

    m->arg[0] = (struct attn_arg){.given = true, .number = left};
    m->arg[1] = (struct attn_arg){.given = true, .number = right};
}

static void add_table(struct attn_problem *p, const char *name, int arg,
                      enum attn_elem elem, const void *data, size_t b, size_t h, size_t i)
{
    struct attn_mask *m = add(p, name);

    m->arg[arg].given = true;
    m->arg[arg].table = (struct attn_table){elem, data, b, h, i};
}

static struct attn_problem sizes(size_t T_q, size_t T_kv, size_t T_past)
{
    struct attn_problem p = {
        .d = {.B = B, .T_q = T_q, .T_kv = T_kv, .T_past = T_past, .h = H, .h_kv = 1}};

    p.shift = (ptrdiff_t)T_kv - (ptrdiff_t)T_q;
    return p;
}

static void draw_rows(const struct attn_problem *p, char *text)
{
    uint8_t allow[2 * T_MAX];

    for (size_t i = 0; i < p->d.T_q; i++) {
        attn_allow_row(p, 0, 0, i, 0, p->d.T_kv, allow);
        for (size_t j = 0; j < p->d.T_kv; j++)
            *text++ = (char)('0' + allow[j]);
        *text++ = i + 1 < p->d.T_q ? '/' : '\0';
    }
}

static void expect_rows(const struct attn_problem *p, const char *rows)
{
    char text[T_MAX * (2 * T_MAX + 1) + 1];

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
    struct attn_problem p = sizes(2, 5, 0);

    add_causal(&p, ATTN_ALIGN_BOTTOM_RIGHT);
    expect_rows(&p, "11110/11111");
    p = sizes(2, 5, 0);
    add_causal(&p, ATTN_ALIGN_TOP_LEFT);
    expect_rows(&p, "10000/11000");
    p = sizes(5, 2, 0);
    add_causal(&p, ATTN_ALIGN_BOTTOM_RIGHT);
    expect_rows(&p, "00/00/00/10/11");
    p = sizes(2, 5, 2);
    add_causal(&p, ATTN_ALIGN_TOP_LEFT);
    expect_rows(&p, "11100/11110");
}

Test(attn_mask, window_does_not_count_the_own_position)
{
    struct attn_problem p = sizes(5, 5, 0);

    add_window(&p, 1, 2);
    expect_rows(&p, "11100/11110/01111/00111/00011");
    p = sizes(4, 4, 0);
    add_window(&p, -1, 0);
    expect_rows(&p, "1000/1100/1110/1111");
    p = sizes(3, 3, 0);
    add_window(&p, -1, -1);
    expect_rows(&p, "111/111/111");
    p = sizes(3, 3, 0);
    add_window(&p, INT64_MAX, 0);
    expect_rows(&p, "100/110/111");
    p = sizes(2, 6, 0);
    add_window(&p, 1, 0);
    expect_rows(&p, "000110/000011");
}

Test(attn_mask, packed_documents)
{
    static const int64_t ids[] = {0, 0, 1, 1, 1, 2};
    struct attn_problem p = sizes(6, 6, 0);

    add_causal(&p, ATTN_ALIGN_TOP_LEFT);
    add_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    expect_rows(&p, "100000/110000/001000/001100/001110/000001");
}

Test(attn_mask, document_that_starts_at_slot_five)
{
    static const int64_t ids[] = {0, 0, 0, 1, 1, 2, 2, 2, 3};
    struct attn_problem p = sizes(9, 9, 0);
    uint8_t allow[9];

    add_causal(&p, ATTN_ALIGN_TOP_LEFT);
    add_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    attn_allow_row(&p, 0, 0, 7, 0, 9, allow);
    for (size_t j = 0; j < 9; j++)
        cr_assert_eq(allow[j], j >= 5 && j <= 7);
}

Test(attn_mask, equal_ids_apart_see_each_other_and_none_is_alone)
{
    static const int64_t ids[] = {4, -1, 4, 7, -1};
    struct attn_problem p = sizes(5, 5, 0);

    add_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    expect_rows(&p, "10100/00000/10100/00010/00000");
}

Test(attn_mask, with_a_past_the_queries_are_the_last_ids)
{
    static const int64_t ids[] = {0, 0, 1, 1, 2};
    struct attn_problem p = sizes(2, 5, 3);

    add_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    expect_rows(&p, "00110/00001");
}

Test(attn_mask, padding_by_item)
{
    static const int64_t lengths[] = {0, 2};
    static const uint8_t valid[] = {0, 1, 1, 0, 1, 0};
    struct attn_problem p = sizes(1, 3, 0);
    uint8_t allow[3];

    add_table(&p, "padding", 0, ATTN_ELEM_I64, lengths, 1, 0, 0);
    expect_rows(&p, "000");
    attn_allow_row(&p, 1, 0, 0, 0, 3, allow);
    cr_assert(allow[0] == 1 && allow[1] == 1 && allow[2] == 0);
    p = sizes(1, 3, 0);
    add_table(&p, "padding", 1, ATTN_ELEM_U8, valid, 3, 0, 0);
    expect_rows(&p, "011");
    attn_allow_row(&p, 1, 0, 0, 0, 3, allow);
    cr_assert(allow[0] == 0 && allow[1] == 1 && allow[2] == 0);
}

Test(attn_mask, additive_minus_infinity_forbids)
{
    static const double bias[] = {0, -INFINITY, 3, -1e308};
    struct attn_problem p = sizes(1, 4, 0);

    p.additive = (struct attn_table){ATTN_ELEM_F64, bias, 0, 0, 4};
    expect_rows(&p, "1011");
}

/* ---- random problems against the reference ---- */

static bool reference(const struct world *w, size_t b, size_t h, size_t i, size_t j)
{
    const struct attn_problem *p = &w->p;
    const long long T_q = (long long)p->d.T_q, T_kv = (long long)p->d.T_kv;
    long long o = T_kv - T_q;

    for (size_t n = 0; n < p->mask_count; n++)
        if (strcmp(p->mask[n].row->name, "causal") == 0 &&
            p->mask[n].arg[0].number == ATTN_ALIGN_TOP_LEFT)
            o = (long long)p->d.T_past;
    for (size_t n = 0; n < p->mask_count; n++) {
        const struct attn_mask *m = &p->mask[n];
        const char *name = m->row->name;
        const long long at = (long long)i + o, key = (long long)j;

        if (strcmp(name, "causal") == 0 && key > at)
            return false;
        if (strcmp(name, "window") == 0 && m->arg[0].number >= 0 &&
            key < at - m->arg[0].number)
            return false;
        if (strcmp(name, "window") == 0 && m->arg[1].number >= 0 &&
            key > at + m->arg[1].number)
            return false;
        if (strcmp(name, "padding") == 0 && m->arg[0].given && key >= w->lengths[b])
            return false;
        if (strcmp(name, "padding") == 0 && m->arg[1].given &&
            !w->valid[b * p->d.T_kv + j])
            return false;
        if (strcmp(name, "documents") == 0) {
            const int64_t *ids = w->ids + b * p->d.T_kv;
            const int64_t mine = ids[T_kv - T_q + (long long)i];

            if (mine == -1 || ids[j] != mine)
                return false;
        }
        if (strcmp(name, "allowed") == 0 &&
            !w->allowed[((b * H + h) * p->d.T_q + i) * p->d.T_kv + j])
            return false;
        if (strcmp(name, "blocked") == 0 && w->blocked[i * p->d.T_kv + j])
            return false;
    }
    return p->additive.p == NULL || w->bias[i * p->d.T_kv + j] != -INFINITY;
}

static bool coin(uint64_t *seed, size_t of)
{
    return attn_random_below(seed, of) == 0;
}

static void fill_world(struct world *w, uint64_t *seed)
{
    const size_t T_kv = w->p.d.T_kv;

    for (size_t b = 0; b < B; b++)
        w->lengths[b] = (int64_t)attn_random_below(seed, T_kv + 1);
    for (size_t n = 0; n < B * T_kv; n++) {
        w->ids[n] = (int64_t)attn_random_below(seed, 4) - 1;
        w->valid[n] = !coin(seed, 3);
    }
    for (size_t n = 0; n < sizeof w->allowed; n++)
        w->allowed[n] = !coin(seed, 4);
    for (size_t n = 0; n < sizeof w->blocked; n++) {
        w->blocked[n] = coin(seed, 5);
        w->bias[n] = coin(seed, 5) ? -INFINITY : 0.5;
    }
}

static void random_world(struct world *w, uint64_t *seed)
{
    const size_t T_q = 1 + attn_random_below(seed, T_MAX);
    const size_t T_kv = 1 + attn_random_below(seed, 2 * T_MAX);

    *w = (struct world){.p = sizes(T_q, T_kv, attn_random_below(seed, T_kv))};
    fill_world(w, seed);
    if (coin(seed, 2))
        add_causal(&w->p, coin(seed, 2) ? ATTN_ALIGN_TOP_LEFT : ATTN_ALIGN_BOTTOM_RIGHT);
    if (coin(seed, 3))
        add_window(&w->p, (int64_t)attn_random_below(seed, 6) - 1,
                   (int64_t)attn_random_below(seed, 6) - 1);
    if (coin(seed, 4))
        add_table(&w->p, "padding", 0, ATTN_ELEM_I64, w->lengths, 1, 0, 0);
    else if (coin(seed, 4))
        add_table(&w->p, "padding", 1, ATTN_ELEM_U8, w->valid, T_kv, 0, 0);
    if (T_q <= T_kv && coin(seed, 3))
        add_table(&w->p, "documents", 0, ATTN_ELEM_I64, w->ids, T_kv, 0, 0);
    if (coin(seed, 4))
        add_table(&w->p, "allowed", 0, ATTN_ELEM_U8, w->allowed, H * T_q * T_kv,
                  T_q * T_kv, T_kv);
    if (coin(seed, 4))
        add_table(&w->p, "blocked", 0, ATTN_ELEM_U8, w->blocked, 0, 0, T_kv);
    if (coin(seed, 4))
        w->p.additive = (struct attn_table){ATTN_ELEM_F64, w->bias, 0, 0, T_kv};
}

static void check_row(const struct world *w, size_t b, size_t h, size_t i, uint64_t seed)
{
    const size_t T_kv = w->p.d.T_kv;
    uint8_t allow[2 * T_MAX];
    size_t j0, j1;
    bool exact;

    attn_allow_range(&w->p, b, h, i, &j0, &j1, &exact);
    cr_assert(j0 <= j1 && j1 <= T_kv, "seed %llu", (unsigned long long)seed);
    attn_allow_row(&w->p, b, h, i, 0, T_kv, allow);
    for (size_t j = 0; j < T_kv; j++) {
        const bool want = reference(w, b, h, i, j);
        const bool inside = j >= j0 && j < j1;

        cr_assert_eq(attn_allowed(&w->p, b, h, i, j), want,
                     "seed %llu at %zu %zu %zu %zu", (unsigned long long)seed, b, h, i,
                     j);
        cr_assert_eq(allow[j], want, "row: seed %llu at %zu %zu %zu %zu",
                     (unsigned long long)seed, b, h, i, j);
        cr_assert(inside || !want, "range: seed %llu at %zu %zu %zu %zu",
                  (unsigned long long)seed, b, h, i, j);
        cr_assert(!exact || inside == want, "exact: seed %llu at %zu %zu %zu %zu",
                  (unsigned long long)seed, b, h, i, j);
    }
    for (size_t from = 0; from < T_kv; from += 3) {
        uint8_t part[2 * T_MAX];

        attn_allow_row(&w->p, b, h, i, from, T_kv, part);
        cr_assert_eq(memcmp(part, allow + from, T_kv - from), 0, "part: seed %llu",
                     (unsigned long long)seed);
    }
}

Test(attn_mask, fast_forms_agree_with_the_contract)
{
    static struct world w;

    for (uint64_t n = 0; n < 3000; n++) {
        uint64_t seed = n;

        random_world(&w, &seed);
        for (size_t b = 0; b < B; b++)
            for (size_t h = 0; h < H; h++)
                for (size_t i = 0; i < w.p.d.T_q; i++)
                    check_row(&w, b, h, i, n);
    }
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
    struct attn_problem p = sizes(1, 5, 0);
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
    struct attn_problem p = sizes(6, 6, 0);
    size_t j0, j1;
    bool exact;

    add_causal(&p, ATTN_ALIGN_TOP_LEFT);
    add_table(&p, "documents", 0, ATTN_ELEM_I64, ids, 0, 0, 0);
    add_table(&p, "padding", 0, ATTN_ELEM_I64, lengths, 0, 0, 0);
    add_window(&p, 1, -1);
    attn_allow_range(&p, 0, 0, 4, &j0, &j1, &exact);
    cr_assert(j0 == 3 && j1 == 5 && exact);
}

Test(attn_mask, an_empty_range_is_exact_whatever_else_is_asked)
{
    static const double bias[2] = {0};
    struct attn_problem p = sizes(5, 2, 0);
    size_t j0, j1;
    bool exact;

    add_causal(&p, ATTN_ALIGN_BOTTOM_RIGHT);
    p.additive = (struct attn_table){ATTN_ELEM_F64, bias, 0, 0, 0};
    attn_allow_range(&p, 0, 0, 0, &j0, &j1, &exact);
    cr_assert(j0 == j1 && exact);
    attn_allow_range(&p, 0, 0, 4, &j0, &j1, &exact);
    cr_assert(j0 == 0 && j1 == 2 && !exact);
}
