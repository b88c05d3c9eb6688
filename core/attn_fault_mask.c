/*
 * attn_fault_mask.c - faults of M: wrong rules, wrong corner.
 * Not here: ALiBi (attn_fault_bias.c), masks that are right but wrongly applied
 * (attn_fault_softmax.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault_mask.h"

#include <math.h>
#include <string.h>

/* ---- the wrong stage --------------------------------------------------------------- */

bool attn_fault_wrong_mask(const struct attn_run_ctx *run, struct attn_piece piece,
                           struct attn_err *err)
{
    const struct attn_problem *p = run->p;
    const struct mask *fault = run->swap->param;
    struct attn_tensor *allowed = &run->t->t[ATTN_ALLOWED], *M = &run->t->t[ATTN_M];

    (void)piece;
    if (!attn_stage_all(run, ATTN_STAGE_MASK, err))
        return false;
    if (!fault->fits(p))
        return true;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv);
         x.j++) {
        const bool may =
            (fault->allows ? fault->allows : attn_allowed)(p, x.b, x.h, x.i, x.j);

        attn_put4(allowed, x.b, x.h, x.i, x.j, may);
        if (M->p)
            attn_put4(M, x.b, x.h, x.i, x.j,
                      may ? (fault->bias ? fault->bias : attn_bias)(p, x.b, x.h, x.i, x.j)
                          : -INFINITY);
    }
    return true;
}

/* Is any pair of M another?  Both verdicts are asked, until one differs. */
bool attn_fault_mask_differs(const struct attn_problem *p, const void *param)
{
    const struct mask *fault = param;

    if (!fault->fits(p))
        return false;
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, p->d.T_kv);
         x.j++) {
        const bool right = attn_allowed(p, x.b, x.h, x.i, x.j);

        if (fault->allows && fault->allows(p, x.b, x.h, x.i, x.j) != right)
            return true;
        if (fault->bias && right &&
            fabs(fault->bias(p, x.b, x.h, x.i, x.j) - attn_bias(p, x.b, x.h, x.i, x.j)) >
                1e-4)
            return true;
    }
    return false;
}

/* ---- rules left out or replaced ---------------------------------------------------- */

/* The verdict of all rules but one, additive -Infinity included. */
static bool without(const struct attn_problem *p, const char *rule, size_t b, size_t h,
                    size_t i, size_t j)
{
    struct attn_problem only_additive = *p;

    for (size_t n = 0; n < p->mask_count; n++)
        if (strcmp(p->mask[n].row->name, rule) != 0 &&
            !p->mask[n].row->allows(p, &p->mask[n], b, h, i, j))
            return false;
    only_additive.mask_count = 0;
    return attn_allowed(&only_additive, b, h, i, j);
}

static bool no_causal(const struct attn_problem *p, size_t b, size_t h, size_t i,
                      size_t j)
{
    return without(p, "causal", b, h, i, j);
}

static bool no_documents(const struct attn_problem *p, size_t b, size_t h, size_t i,
                         size_t j)
{
    return without(p, "documents", b, h, i, j);
}

static bool no_window(const struct attn_problem *p, size_t b, size_t h, size_t i,
                      size_t j)
{
    return without(p, "window", b, h, i, j);
}

static bool everything(const struct attn_problem *p, size_t b, size_t h, size_t i,
                       size_t j)
{
    (void)p, (void)b, (void)h, (void)i, (void)j;
    return true;
}

static bool inverted(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j)
{
    return !attn_allowed(p, b, h, i, j);
}

static bool of_first_item(const struct attn_problem *p, size_t b, size_t h, size_t i,
                          size_t j)
{
    (void)b;
    return attn_allowed(p, 0, h, i, j);
}

static double bias_of_first_item(const struct attn_problem *p, size_t b, size_t h,
                                 size_t i, size_t j)
{
    (void)b;
    return attn_bias(p, 0, h, i, j);
}

/* ---- causal ------------------------------------------------------------------------ */

static bool past_forbidden(const struct attn_problem *p, size_t b, size_t h, size_t i,
                           size_t j)
{
    return no_causal(p, b, h, i, j) && (ptrdiff_t)j >= (ptrdiff_t)i + p->shift;
}

static bool one_later(const struct attn_problem *p, size_t b, size_t h, size_t i,
                      size_t j)
{
    return no_causal(p, b, h, i, j) && (ptrdiff_t)j <= (ptrdiff_t)i + p->shift + 1;
}

static bool top_left(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j)
{
    return no_causal(p, b, h, i, j) && j <= i;
}

static bool bottom_right(const struct attn_problem *p, size_t b, size_t h, size_t i,
                         size_t j)
{
    return no_causal(p, b, h, i, j) && j + p->d.T_q <= i + p->d.T_kv;
}

/* ---- padding, documents, window ---------------------------------------------------- */

/* The verdict of the padding rule on a position, whatever it is read by. */
static bool valid(const struct attn_problem *p, size_t b, size_t position)
{
    const struct attn_mask *m = attn_mask_of(p, "padding");

    return position >= p->d.T_kv || m->row->allows(p, m, b, 0, 0, position);
}

static bool padded_queries(const struct attn_problem *p, size_t b, size_t h, size_t i,
                           size_t j)
{
    return without(p, "padding", b, h, i, j) && valid(p, b, i);
}

static bool padded_both(const struct attn_problem *p, size_t b, size_t h, size_t i,
                        size_t j)
{
    return attn_allowed(p, b, h, i, j) && valid(p, b, i);
}

/* Every boundary one token early: a position has the id of the next one. */
static int64_t early_id(const struct attn_problem *p, size_t b, size_t position)
{
    const struct attn_table *ids = &attn_mask_of(p, "documents")->arg[0].table;
    const size_t next = position + 1 < p->d.T_kv ? position + 1 : position;

    return ((const int64_t *)ids->p)[b * ids->stride_b + next];
}

static bool early_boundary(const struct attn_problem *p, size_t b, size_t h, size_t i,
                           size_t j)
{
    const int64_t query = early_id(p, b, i + p->d.T_kv - p->d.T_q);

    return no_documents(p, b, h, i, j) && query != -1 && query == early_id(p, b, j);
}

static bool wider_window(const struct attn_problem *p, size_t b, size_t h, size_t i,
                         size_t j)
{
    const struct attn_mask *m = attn_mask_of(p, "window");
    struct attn_mask wide = *m;

    wide.arg[0].number += wide.arg[0].given && wide.arg[0].number >= 0;
    return no_window(p, b, h, i, j) && wide.row->allows(p, &wide, b, h, i, j);
}

/* ---- bias -------------------------------------------------------------------------- */

/* The bias without its additive part. */
static double alibi_only(const struct attn_problem *p, size_t b, size_t h, size_t i,
                         size_t j)
{
    struct attn_problem plain = *p;

    plain.additive.p = NULL;
    return attn_bias(&plain, b, h, i, j);
}

static double one_if_allowed(const struct attn_problem *p, size_t b, size_t h, size_t i,
                             size_t j)
{
    return attn_bias(p, b, h, i, j) + (attn_allowed(p, b, h, i, j) ? 1.0 : 0.0);
}

/* ---- what each needs --------------------------------------------------------------- */

static bool any_rule(const struct attn_problem *p)
{
    return p->mask_count > 0 || p->additive.p;
}

static bool boolean_rule(const struct attn_problem *p)
{
    return p->mask_count > 0;
}

static bool causal(const struct attn_problem *p)
{
    return attn_mask_of(p, "causal") != NULL;
}

static bool causal_fewer_queries(const struct attn_problem *p)
{
    return causal(p) && p->d.T_q < p->d.T_kv &&
           p->shift == (ptrdiff_t)(p->d.T_kv - p->d.T_q);
}

static bool causal_one_query(const struct attn_problem *p)
{
    return causal_fewer_queries(p) && p->d.T_q == 1;
}

static bool causal_chunk(const struct attn_problem *p)
{
    return causal_fewer_queries(p) && p->d.T_q > 1;
}

static bool causal_at_top_left(const struct attn_problem *p)
{
    return causal(p) && p->d.T_q < p->d.T_kv &&
           p->shift < (ptrdiff_t)(p->d.T_kv - p->d.T_q);
}

static bool causal_more_queries(const struct attn_problem *p)
{
    return causal(p) && p->d.T_q > p->d.T_kv && p->shift < 0;
}

static bool padding(const struct attn_problem *p)
{
    return attn_mask_of(p, "padding") != NULL;
}

static bool documents(const struct attn_problem *p)
{
    return attn_mask_of(p, "documents") != NULL;
}

static bool documents_and_causal(const struct attn_problem *p)
{
    return documents(p) && causal(p);
}

static bool window(const struct attn_problem *p)
{
    return attn_mask_of(p, "window") != NULL;
}

static bool window_in_decode(const struct attn_problem *p)
{
    return window(p) && p->d.T_q == 1;
}

static bool items(const struct attn_problem *p)
{
    return p->d.B > 1;
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct mask INVERTED = {any_rule, inverted, NULL};
static const struct mask IGNORED = {any_rule, everything, alibi_only};
static const struct mask FLIPPED = {causal, past_forbidden, NULL};
static const struct mask LEAKS_ONE = {causal, one_later, NULL};
static const struct mask SKIPPED = {causal, no_causal, NULL};
static const struct mask TOP_LEFT = {causal_fewer_queries, top_left, NULL};
static const struct mask BOTTOM_RIGHT = {causal_at_top_left, bottom_right, NULL};
static const struct mask MORE_QUERIES = {causal_more_queries, top_left, NULL};
static const struct mask FIRST_KEY = {causal_one_query, top_left, NULL};
static const struct mask CHUNK = {causal_chunk, top_left, NULL};
static const struct mask QUERY_AXIS = {padding, padded_queries, NULL};
static const struct mask BOTH_AXES = {padding, padded_both, NULL};
static const struct mask FIRST_ITEM = {items, of_first_item, bias_of_first_item};
static const struct mask LEAK = {documents, no_documents, NULL};
static const struct mask EARLY = {documents, early_boundary, NULL};
static const struct mask NOT_CAUSAL = {documents_and_causal, no_causal, NULL};
static const struct mask WIDER = {window, wider_window, NULL};
static const struct mask DECODE_WINDOW = {window_in_decode, no_window, NULL};
static const struct mask ADDED = {boolean_rule, everything, one_if_allowed};

#define CAUGHT "M", "mask_entries"

static const struct attn_fault_row ROWS[] = {
    {"mask_inverted", CAUGHT, "True was read as forbidden.",
     "Here true means: may attend.  Negate masks of systems in which true means: is "
     "forbidden.",
     "Any mask rule.", ATTN_FAULT_MASK(INVERTED)},
    {"mask_ignored", CAUGHT, "The mask was accepted but not used.",
     "Add the mask to the scores before the softmax.", "A mask that forbids some pair.",
     ATTN_FAULT_MASK(IGNORED)},
    {"causal_flipped", CAUGHT, "The past was forbidden instead of the future.",
     "Allow keys at or before the query's own position (lower triangle).",
     "A causal rule and more than one key.", ATTN_FAULT_MASK(FLIPPED)},
    {"causal_leaks_one", CAUGHT,
     "One future key was allowed: the diagonal is off by one.",
     "Allow j ≤ i + shift, not j ≤ i + shift + 1.",
     "A causal rule and a row with a later key.", ATTN_FAULT_MASK(LEAKS_ONE)},
    {"causal_skipped_in_prefill", CAUGHT,
     "The causal mask was left out because a cache object was present.",
     "Skip the causal mask only when there is one query, not when there is a cache.",
     "A causal rule that forbids some pair.", ATTN_FAULT_MASK(SKIPPED)},
    {"causal_top_left", CAUGHT,
     "The causal triangle was put into the top left corner: query i reads keys 0 … i "
     "only.",
     "With fewer queries than keys, the last query stands at the last key (bottom "
     "right).",
     "A causal rule at the bottom right, T_q < T_kv.", ATTN_FAULT_MASK(TOP_LEFT)},
    {"causal_bottom_right", CAUGHT,
     "The bottom right corner was used where the top left was asked.",
     "Let the first query stand at the first new key.",
     "A causal rule at the top left, T_q less than the number of keys.",
     ATTN_FAULT_MASK(BOTTOM_RIGHT)},
    {"causal_more_queries", CAUGHT,
     "With more queries than keys the top left corner was used: the first rows should be "
     "empty.",
     "Let the last query stand at the last key; earlier rows may then have no key.",
     "A causal rule at the bottom right, T_q > T_kv.", ATTN_FAULT_MASK(MORE_QUERIES)},
    {"decode_sees_first_key_only", CAUGHT,
     "One new query with a top-left mask sees key 0 only.",
     "A single new query stands at the last key and may read all of them.",
     "A causal rule at the bottom right, T_q = 1 and more keys.",
     ATTN_FAULT_MASK(FIRST_KEY)},
    {"chunk_mask_offset", CAUGHT,
     "A later chunk of a prefill was masked as if it began the sequence.",
     "Shift the triangle by the number of keys that came before the chunk.",
     "A causal rule at the bottom right, 1 < T_q < T_kv.", ATTN_FAULT_MASK(CHUNK)},
    {"padding_on_query_axis", CAUGHT, "The key padding was put on the query axis.",
     "Padding forbids columns (keys); padded query rows stay.",
     "A padding rule with an artificial key.", ATTN_FAULT_MASK(QUERY_AXIS)},
    {"padding_both_axes", CAUGHT,
     "Rows of padded queries were emptied as well as padded keys.",
     "Forbid padded keys only; ignore padded query rows afterwards.",
     "A padded position that is also a query.", ATTN_FAULT_MASK(BOTH_AXES)},
    {"batch_mask_from_first", CAUGHT, "The mask of item 0 was used for every item.",
     "Index the mask by the item.", "Two items whose masks differ.",
     ATTN_FAULT_MASK(FIRST_ITEM)},
    {"packed_leak", CAUGHT,
     "Packed documents were separated by nothing: a document reads the one before it.",
     "Forbid every pair of different documents, besides the causal rule.",
     "Two documents with a pair that no other rule forbids.", ATTN_FAULT_MASK(LEAK)},
    {"packed_boundary_off_by_one", CAUGHT, "Document boundaries stand one token early.",
     "A document starts at its cumulated length, not one before it.",
     "More than one document.", ATTN_FAULT_MASK(EARLY)},
    {"packed_not_causal", CAUGHT, "The document mask was kept, the causal mask lost.",
     "A pair must be allowed by both rules.",
     "A causal rule with a document of more than one token.",
     ATTN_FAULT_MASK(NOT_CAUSAL)},
    {"window_one_too_wide", CAUGHT,
     "The window holds w keys before the query, plus itself: one too many.",
     "Count the query's own position as the system at hand does.",
     "A window with a left limit that leaves out some key.", ATTN_FAULT_MASK(WIDER)},
    {"window_ignored_in_decode", CAUGHT, "A decoding step reads the whole cache.",
     "Apply the window to the single new query too.",
     "A window, T_q = 1 and a key outside it.", ATTN_FAULT_MASK(DECODE_WINDOW)},
    {"bool_mask_added", CAUGHT,
     "A boolean mask was added as 0 and 1 instead of as -Infinity and 0.",
     "Turn the booleans into -Infinity and 0 first.", "Any boolean rule.",
     ATTN_FAULT_MASK(ADDED)},
};
const struct attn_fault_theme ATTN_FAULTS_MASK = {ROWS, ATTN_COUNT(ROWS)};
