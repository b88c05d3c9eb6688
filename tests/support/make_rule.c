/*
 * make_rule.c - problems that have sizes and mask rules, and nothing else.
 * Not here: whole problems (make_problem.c).
 * Start reading at make_rule_sizes.
 */
#include "make_rule.h"

#include <assert.h>

struct attn_mask *make_rule(struct attn_problem *p, const char *name)
{
    struct attn_mask *m = &p->mask[p->mask_count++];

    *m = (struct attn_mask){.row = attn_mask_find(name)};
    assert(m->row != NULL);
    return m;
}

void make_rule_causal(struct attn_problem *p, enum attn_alignment alignment)
{
    struct attn_mask *m = make_rule(p, "causal");

    m->arg[0].given = true;
    m->arg[0].number = alignment;
    p->shift = alignment == ATTN_ALIGN_TOP_LEFT
                   ? (ptrdiff_t)p->d.T_past
                   : (ptrdiff_t)p->d.T_kv - (ptrdiff_t)p->d.T_q;
}

void make_rule_window(struct attn_problem *p, int64_t left, int64_t right)
{
    struct attn_mask *m = make_rule(p, "window");

    m->arg[0] = (struct attn_arg){.given = true, .number = left};
    m->arg[1] = (struct attn_arg){.given = true, .number = right};
}

void make_rule_table(struct attn_problem *p, const char *name, int arg,
                     enum attn_elem elem, const void *data, size_t b, size_t h, size_t i)
{
    struct attn_mask *m = make_rule(p, name);

    m->arg[arg].given = true;
    m->arg[arg].table = (struct attn_table){elem, data, b, h, i};
}

struct attn_problem make_rule_sizes(size_t T_q, size_t T_kv, size_t T_past)
{
    struct attn_problem p = {.d = {.B = RULE_B,
                                   .T_q = T_q,
                                   .T_kv = T_kv,
                                   .T_past = T_past,
                                   .h = RULE_H,
                                   .h_kv = 1}};

    p.shift = (ptrdiff_t)T_kv - (ptrdiff_t)T_q;
    return p;
}
