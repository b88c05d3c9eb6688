/*
 * test_attn_mask_random.c - rules together on random problems: the fast forms against the
 * slow one and against a reference, written from the contract without the tables.
 * Not here: worked patterns (test_attn_mask.c).
 * Start reading at reference.
 */
#include "make_rule.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

struct world { /* a random problem and all that its tables point to        */
    struct attn_problem p;
    int64_t lengths[RULE_B], ids[RULE_B * 2 * RULE_T_MAX];
    uint8_t valid[RULE_B * 2 * RULE_T_MAX],
        allowed[RULE_B * RULE_H * RULE_T_MAX * 2 * RULE_T_MAX];
    uint8_t blocked[RULE_T_MAX * 2 * RULE_T_MAX];
    double bias[RULE_T_MAX * 2 * RULE_T_MAX];
};

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
            !w->allowed[((b * RULE_H + h) * p->d.T_q + i) * p->d.T_kv + j])
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

    for (size_t b = 0; b < RULE_B; b++)
        w->lengths[b] = (int64_t)attn_random_below(seed, T_kv + 1);
    for (size_t n = 0; n < RULE_B * T_kv; n++) {
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
    const size_t T_q = 1 + attn_random_below(seed, RULE_T_MAX);
    const size_t T_kv = 1 + attn_random_below(seed, 2 * RULE_T_MAX);

    *w = (struct world){.p = make_rule_sizes(T_q, T_kv, attn_random_below(seed, T_kv))};
    fill_world(w, seed);
    if (coin(seed, 2))
        make_rule_causal(&w->p,
                         coin(seed, 2) ? ATTN_ALIGN_TOP_LEFT : ATTN_ALIGN_BOTTOM_RIGHT);
    if (coin(seed, 3))
        make_rule_window(&w->p, (int64_t)attn_random_below(seed, 6) - 1,
                         (int64_t)attn_random_below(seed, 6) - 1);
    if (coin(seed, 4))
        make_rule_table(&w->p, "padding", 0, ATTN_ELEM_I64, w->lengths, 1, 0, 0);
    else if (coin(seed, 4))
        make_rule_table(&w->p, "padding", 1, ATTN_ELEM_U8, w->valid, T_kv, 0, 0);
    if (T_q <= T_kv && coin(seed, 3))
        make_rule_table(&w->p, "documents", 0, ATTN_ELEM_I64, w->ids, T_kv, 0, 0);
    if (coin(seed, 4))
        make_rule_table(&w->p, "allowed", 0, ATTN_ELEM_U8, w->allowed,
                        RULE_H * T_q * T_kv, T_q * T_kv, T_kv);
    if (coin(seed, 4))
        make_rule_table(&w->p, "blocked", 0, ATTN_ELEM_U8, w->blocked, 0, 0, T_kv);
    if (coin(seed, 4))
        w->p.additive = (struct attn_table){ATTN_ELEM_F64, w->bias, 0, 0, T_kv};
}

static void check_row(const struct world *w, size_t b, size_t h, size_t i, uint64_t seed)
{
    const size_t T_kv = w->p.d.T_kv;
    uint8_t allow[2 * RULE_T_MAX];
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
        uint8_t part[2 * RULE_T_MAX];

        attn_allow_row(&w->p, b, h, i, from, T_kv, part);
        cr_assert_eq(memcmp(part, allow + from, T_kv - from), 0, "part: seed %llu",
                     (unsigned long long)seed);
    }
}

Test(attn_mask_random, fast_forms_agree_with_the_contract)
{
    static struct world w;

    for (uint64_t n = 0; n < 3000; n++) {
        uint64_t seed = n;

        random_world(&w, &seed);
        for (size_t b = 0; b < RULE_B; b++)
            for (size_t h = 0; h < RULE_H; h++)
                for (size_t i = 0; i < w.p.d.T_q; i++)
                    check_row(&w, b, h, i, n);
    }
}
