/*
 * attn_fault_rule.c - faults of M in single rules: sides, corners and signs exchanged.
 * Not here: masks left out or put in the wrong corner (attn_fault_mask.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault.h"

#include <math.h>
#include <string.h>

struct rule {
    bool (*fits)(const struct attn_problem *p);
    bool (*allows)(const struct attn_problem *p,
                   struct attn_cell x); /* NULL = the right one */
    double (*bias)(const struct attn_problem *p,
                   struct attn_cell x); /* NULL = the right one */
};

/* ---- the wrong stage ---- */

static bool right_verdict(const struct attn_problem *p, struct attn_cell x)
{
    return attn_allowed(p, x.b, x.h, x.i, x.j);
}

static double right_bias(const struct attn_problem *p, struct attn_cell x)
{
    return attn_bias(p, x.b, x.h, x.i, x.j);
}

static bool wrong_mask(const struct attn_run_ctx *run, struct attn_piece piece,
                       struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct rule *fault = run->swap->param;
    struct attn_tensor *allowed = &run->t->t[ATTN_ALLOWED], *M = &run->t->t[ATTN_M];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_MASK, err))
        return false;
    for (struct attn_cell x = {0};
         fault->fits(p) && attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv); x.j++) {
        const bool may = (fault->allows ? fault->allows : right_verdict)(p, x);

        attn_put4(allowed, x.b, x.h, x.i, x.j, may);
        if (M->p)
            attn_put4(M, x.b, x.h, x.i, x.j,
                      may ? (fault->bias ? fault->bias : right_bias)(p, x) : -INFINITY);
    }
    return true;
}

static bool differs(const struct attn_problem *p, const void *param)
{
    const struct rule *fault = param;

    for (struct attn_cell x = {0};
         fault->fits(p) && attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv); x.j++) {
        const bool right = right_verdict(p, x);

        if (fault->allows && fault->allows(p, x) != right)
            return true;
        if (fault->bias && right && fabs(fault->bias(p, x) - right_bias(p, x)) > 1e-4)
            return true;
    }
    return false;
}

/* ---- rules ---- */

/* All rules but one, additive -Infinity included. */
static bool without(const struct attn_problem *p, const char *rule, struct attn_cell x)
{
    struct attn_problem other = *p;
    size_t kept = 0;

    for (size_t n = 0; n < p->mask_count; n++)
        if (strcmp(p->mask[n].row->name, rule) != 0)
            other.mask[kept++] = p->mask[n];
    other.mask_count = kept;
    return attn_allowed(&other, x.b, x.h, x.i, x.j);
}

static bool by_rule(const struct attn_problem *p, const char *rule, struct attn_cell x)
{
    const struct attn_mask *m = attn_mask_of(p, rule);

    return m->row->allows(p, m, x.b, x.h, x.i, x.j);
}

static bool own_position_forbidden(const struct attn_problem *p, struct attn_cell x)
{
    return right_verdict(p, x) && (ptrdiff_t)x.j != (ptrdiff_t)x.i + p->shift;
}

static bool later_forbidden(const struct attn_problem *p, struct attn_cell x)
{
    return right_verdict(p, x) && (ptrdiff_t)x.j <= (ptrdiff_t)x.i + p->shift;
}

static bool padding_inverted(const struct attn_problem *p, struct attn_cell x)
{
    return without(p, "padding", x) && !by_rule(p, "padding", x);
}

/* Artificial keys sought at the other end. */
static bool padding_mirrored(const struct attn_problem *p, struct attn_cell x)
{
    struct attn_cell other = x;

    other.j = p->d.T_kv - 1 - x.j;
    return without(p, "padding", x) && by_rule(p, "padding", other);
}

static bool window_mirrored(const struct attn_problem *p, struct attn_cell x)
{
    struct attn_mask other = *attn_mask_of(p, "window");
    const struct attn_arg left = other.arg[0];

    other.arg[0] = other.arg[1];
    other.arg[1] = left;
    return without(p, "window", x) && other.row->allows(p, &other, x.b, x.h, x.i, x.j);
}

static bool pairs_transposed(const struct attn_problem *p, struct attn_cell x)
{
    return attn_allowed(p, x.b, x.h, x.j, x.i);
}

static bool of_head_0(const struct attn_problem *p, struct attn_cell x)
{
    return attn_allowed(p, x.b, 0, x.i, x.j);
}

/* The first boundary only: what follows it is taken for one document. */
static bool first_boundary(const struct attn_problem *p, struct attn_cell x)
{
    const struct attn_table *ids = &attn_mask_of(p, "documents")->arg[0].table;
    const int64_t *id = (const int64_t *)ids->p + x.b * ids->stride_b;
    const size_t i = x.i + p->d.T_kv - p->d.T_q;
    const bool both = id[i] != -1 && id[x.j] != -1;

    return without(p, "documents", x) && both && (id[i] == id[0]) == (id[x.j] == id[0]);
}

/* ---- bias ---- */

static double no_additive(const struct attn_problem *p, struct attn_cell x)
{
    struct attn_problem other = *p;

    other.additive.p = NULL;
    return attn_bias(&other, x.b, x.h, x.i, x.j);
}

static double additive_negated(const struct attn_problem *p, struct attn_cell x)
{
    return 2.0 * no_additive(p, x) - right_bias(p, x);
}

static double distance(const struct attn_problem *p, struct attn_cell x)
{
    return fabs((double)x.i + (double)p->shift - (double)x.j);
}

static double slope_of_head(const struct attn_problem *p, struct attn_cell x, size_t head)
{
    return right_bias(p, x) + (p->alibi[x.h] - p->alibi[head]) * distance(p, x);
}

static double slopes_shared(const struct attn_problem *p, struct attn_cell x)
{
    return slope_of_head(p, x, 0);
}

static double slopes_reversed(const struct attn_problem *p, struct attn_cell x)
{
    return slope_of_head(p, x, p->d.h - 1 - x.h);
}

/* Distance counted from the row's number, not from where the query stands. */
static double unshifted(const struct attn_problem *p, struct attn_cell x)
{
    return right_bias(p, x) +
           p->alibi[x.h] * (distance(p, x) - fabs((double)x.i - (double)x.j));
}

static double no_alibi(const struct attn_problem *p, struct attn_cell x)
{
    struct attn_problem other = *p;

    other.alibi = NULL;
    return attn_bias(&other, x.b, x.h, x.i, x.j);
}

/* ---- what each needs ---- */

static bool causal(const struct attn_problem *p)
{
    return attn_mask_of(p, "causal") != NULL;
}

static bool not_causal(const struct attn_problem *p)
{
    return !causal(p);
}

static bool padding(const struct attn_problem *p)
{
    return attn_mask_of(p, "padding") != NULL;
}

static bool window(const struct attn_problem *p)
{
    return attn_mask_of(p, "window") != NULL;
}

static bool documents(const struct attn_problem *p)
{
    return attn_mask_of(p, "documents") != NULL;
}

static bool square_rules(const struct attn_problem *p)
{
    return p->mask_count > 0 && p->d.T_q == p->d.T_kv && !p->additive.p;
}

static bool rules_of_heads(const struct attn_problem *p)
{
    return p->mask_count > 0 && p->d.h > 1;
}

static bool additive(const struct attn_problem *p)
{
    return p->additive.p != NULL;
}

static bool alibi(const struct attn_problem *p)
{
    return p->alibi != NULL;
}

static bool alibi_moved(const struct attn_problem *p)
{
    return p->alibi != NULL && p->shift != 0;
}

/* ---- the rows ---- */

static const struct rule STRICT = {causal, own_position_forbidden, NULL};
static const struct rule NOT_ASKED = {not_causal, later_forbidden, NULL};
static const struct rule INVERTED = {padding, padding_inverted, NULL};
static const struct rule OTHER_SIDE = {padding, padding_mirrored, NULL};
static const struct rule MIRRORED = {window, window_mirrored, NULL};
static const struct rule TRANSPOSED = {square_rules, pairs_transposed, NULL};
static const struct rule HEAD_0 = {rules_of_heads, of_head_0, NULL};
static const struct rule FIRST = {documents, first_boundary, NULL};
static const struct rule NO_ADDITIVE = {additive, NULL, no_additive};
static const struct rule NEGATED = {additive, NULL, additive_negated};
static const struct rule SHARED = {alibi, NULL, slopes_shared};
static const struct rule REVERSED = {alibi, NULL, slopes_reversed};
static const struct rule UNSHIFTED = {alibi_moved, NULL, unshifted};
static const struct rule NO_ALIBI = {alibi, NULL, no_alibi};

#define CAUGHT "M", "mask_entries"
#define WRONG(rule)                               \
    differs,                                      \
    {                                             \
        {[ATTN_STAGE_MASK] = wrong_mask}, &(rule) \
    }

static const struct attn_fault_row ROWS[] = {
    {"causal_own_position_forbidden", CAUGHT, "A query may not read its own position.",
     "Allow j ≤ i + shift, the own position included.", "A causal rule.", WRONG(STRICT)},
    {"causal_not_asked", CAUGHT, "A causal mask was applied that was not asked for.",
     "Switch the causal mask off (it is the default of some systems).",
     "No causal rule, and a row with a later key.", WRONG(NOT_ASKED)},
    {"mask_transposed", CAUGHT, "The mask was applied with queries and keys exchanged.",
     "Rows of the mask belong to queries.",
     "Rules on as many queries as keys, not symmetric.", WRONG(TRANSPOSED)},
    {"mask_of_first_head", CAUGHT, "The mask of head 0 was used for every head.",
     "Index the mask by the head.", "Rules that differ between heads.", WRONG(HEAD_0)},
    {"padding_inverted", CAUGHT, "Real keys were forbidden and artificial ones allowed.",
     "Here true means: a real key.", "A padding rule.", WRONG(INVERTED)},
    {"padding_on_the_other_side", CAUGHT, "Artificial keys were sought at the other end.",
     "Mask the side on which the sequence was padded.",
     "A padding rule that is not symmetric.", WRONG(OTHER_SIDE)},
    {"window_mirrored", CAUGHT, "Left and right extents of the window were exchanged.",
     "Left counts keys before the query.", "A window with two different extents.",
     WRONG(MIRRORED)},
    {"packed_first_boundary_only", CAUGHT,
     "Only the first boundary was kept: later documents read each other.",
     "Every boundary separates.", "Three or more documents.", WRONG(FIRST)},
    {"additive_ignored", CAUGHT, "The additive bias was accepted but not used.",
     "Add the bias to the scores.", "An additive bias that is not 0.",
     WRONG(NO_ADDITIVE)},
    {"additive_negated", CAUGHT, "The additive bias was subtracted.", "Add the bias.",
     "An additive bias that is not 0.", WRONG(NEGATED)},
    {"alibi_missing", CAUGHT, "ALiBi was left out.", "Add −slope·distance.",
     "ALiBi and an allowed pair at some distance.", WRONG(NO_ALIBI)},
    {"alibi_slopes_shared", CAUGHT, "Every head got the slope of head 0.",
     "Each head has a slope of its own.", "ALiBi with more than one head.",
     WRONG(SHARED)},
    {"alibi_slopes_reversed", CAUGHT, "Slopes were handed out in the reverse order.",
     "Head 0 has the steepest slope.", "ALiBi with more than one head.", WRONG(REVERSED)},
    {"alibi_not_shifted", CAUGHT,
     "Distances were counted from the number of the row, not from where the query "
     "stands.",
     "Shift rows by the keys before the first query.", "ALiBi, and T_q other than T_kv.",
     WRONG(UNSHIFTED)},
};
const struct attn_fault_theme ATTN_FAULTS_RULE = {ROWS, ATTN_COUNT(ROWS)};
