/*
 * make_rule.h - problems that have sizes and mask rules, and nothing else.
 * Not here: whole problems (make_problem.h).
 * Start reading at make_rule_sizes.
 */
#ifndef MAKE_RULE_H
#define MAKE_RULE_H

#include "core/attn_core.h"

/* Lengths are RULE_T_MAX at most, of keys twice that. */
enum { RULE_T_MAX = 9, RULE_B = 2, RULE_H = 3 };

/* No rule yet; the shift is that of bottom_right. */
struct attn_problem make_rule_sizes(size_t T_q, size_t T_kv, size_t T_past);
/* Adds the rule of this name, and with what it is given. */
struct attn_mask *make_rule(struct attn_problem *p, const char *name);
void make_rule_causal(struct attn_problem *p, enum attn_alignment alignment);
void make_rule_window(struct attn_problem *p, int64_t left, int64_t right);
void make_rule_table(struct attn_problem *p, const char *name, int arg,
                     enum attn_elem elem, const void *data, size_t b, size_t h, size_t i);

#endif
