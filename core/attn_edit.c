/*
 * attn_edit.c - the tables of ablation targets and changes, and what is asked rightly.
 * Not here: making a change (attn_edit_apply.c), running and comparing (attn_ablate.c).
 * Start reading at TARGETS and CHANGES; a new target is a row and its functions.
 */
#include "core/attn_edit.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum attn_input attn_edit_token_input(const struct attn_problem *p)
{
    return p->form.source == ATTN_CROSS ? ATTN_IN_X_KV : ATTN_IN_X;
}

size_t attn_edit_token_key(const struct attn_problem *p, const struct attn_edit *edit)
{
    return p->d.T_past + edit->index;
}

/* ---- checks: may this be asked of this problem? ---- */

static bool check_index(const char *name, size_t index, size_t count,
                        struct attn_err *err)
{
    return index < count || attn_fail(err, ATTN_E_RANGE, name, NULL, count - 1, index);
}

/* `with` holds as many numbers as what it replaces, in the same axes. */
static bool check_with(const struct attn_edit *edit, size_t rows, size_t cols,
                       struct attn_err *err)
{
    const struct attn_tensor *t = &edit->with;

    if (!attn_edit_is(edit, ATTN_CHANGE_REPLACE))
        return true;
    if (t->p == NULL)
        return attn_fail(err, ATTN_E_MISSING, "with", NULL, 0, 0);
    if (rows == 1 && t->rank <= 1)
        return attn_tensor_count(t) == cols ||
               attn_fail(err, ATTN_E_SHAPE, "with", "columns", cols,
                         attn_tensor_count(t));
    if (t->rank != 2)
        return attn_fail(err, ATTN_E_RANK, "with", NULL, 2, t->rank);
    if (t->dim[0] != rows)
        return attn_fail(err, ATTN_E_SHAPE, "with", "rows", rows, t->dim[0]);
    return t->dim[1] == cols ||
           attn_fail(err, ATTN_E_SHAPE, "with", "columns", cols, t->dim[1]);
}

static bool check_weight(const struct attn_problem *p, const struct attn_edit *edit,
                         struct attn_err *err)
{
    const int input = attn_edit_target_of(edit)->input;
    const struct attn_tensor *W = &p->in[input];

    if (W->p == NULL)
        return attn_fail(err, ATTN_E_MISSING, ATTN_INPUTS[input].name, NULL, 0, 0);
    if (attn_edit_is(edit, ATTN_CHANGE_IDENTITY) && W->dim[0] != W->dim[1])
        return attn_fail(err, ATTN_E_SQUARE, ATTN_INPUTS[input].name, NULL, W->dim[0],
                         W->dim[1]);
    return check_with(edit, W->dim[0], W->dim[1], err);
}

static bool check_scale(const struct attn_problem *p, const struct attn_edit *edit,
                        struct attn_err *err)
{
    (void)p;
    return check_with(edit, 1, 1, err);
}

static bool check_masks(const struct attn_problem *p, const struct attn_edit *edit,
                        struct attn_err *err)
{
    assert(edit->rule != NULL);
    if (strcmp(edit->rule, "additive") == 0)
        return p->additive.p != NULL ||
               attn_fail(err, ATTN_E_MISSING, "additive", NULL, 0, 0);
    return attn_mask_of(p, edit->rule) != NULL ||
           attn_fail(err, ATTN_E_MISSING, edit->rule, NULL, 0, 0);
}

static bool check_head(const struct attn_problem *p, const struct attn_edit *edit,
                       struct attn_err *err)
{
    return check_index("index", edit->index, p->d.h, err) &&
           check_with(edit, p->d.T_q, p->d.d_v, err);
}

static bool check_edge(const struct attn_problem *p, const struct attn_edit *edit,
                       struct attn_err *err)
{
    return check_index("query", edit->query, p->d.T_q, err) &&
           check_index("key", edit->key, p->d.T_kv, err);
}

/* Without X a token has no row of its own, but its key can still be forbidden. */
static bool check_position(const struct attn_problem *p, const struct attn_edit *edit,
                           struct attn_err *err)
{
    const struct attn_tensor *X = &p->in[attn_edit_token_input(p)];

    if (!check_index("index", edit->index, p->d.T_kv - p->d.T_past, err))
        return false;
    if (attn_edit_is(edit, ATTN_CHANGE_REMOVE))
        return true;
    if (p->form.source == ATTN_PROJECTED)
        return attn_fail(err, ATTN_E_MISSING, "X", NULL, 0, 0);
    return check_with(edit, 1, X->dim[2], err);
}

/* ---- memory, entry and reach ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
}

static size_t tensor_bytes(const struct attn_tensor *t)
{
    return rounded(attn_tensor_count(t) * attn_dtype_bytes(t->dtype));
}

static size_t weight_bytes(const struct attn_problem *p, const struct attn_edit *edit)
{
    return 2 * tensor_bytes(&p->in[attn_edit_target_of(edit)->input]);
}

static size_t no_bytes(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)p, (void)edit;
    return 0;
}

static size_t masks_bytes(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)edit;
    return p->additive.p == NULL ? 0
                                 : rounded(attn_edit_additive_count(p) * sizeof(double));
}

static size_t head_bytes(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)edit;
    return rounded(p->d.T_q * p->d.d_v * attn_dtype_bytes(p->dtype));
}

static size_t position_bytes(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)edit;
    return p->form.source == ATTN_PROJECTED
               ? 0
               : 2 * tensor_bytes(&p->in[attn_edit_token_input(p)]);
}

static uint32_t enters_q(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)p, (void)edit;
    return ATTN_BIT(ATTN_Q_PRE);
}

static uint32_t enters_k(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)p, (void)edit;
    return ATTN_BIT(ATTN_K_PRE);
}

static uint32_t enters_v(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)p, (void)edit;
    return ATTN_BIT(ATTN_V);
}

static uint32_t enters_y(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)p, (void)edit;
    return ATTN_BIT(ATTN_Y);
}

static uint32_t enters_s(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)p, (void)edit;
    return ATTN_BIT(ATTN_S);
}

static const uint32_t MASK_OBJECTS = ATTN_BIT(ATTN_M) | ATTN_BIT(ATTN_ALLOWED);

static uint32_t enters_m(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)p, (void)edit;
    return MASK_OBJECTS;
}

static uint32_t enters_h(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)p, (void)edit;
    return ATTN_BIT(ATTN_H_HEADS) | ATTN_BIT(ATTN_H);
}

static uint32_t edge_enters(const struct attn_problem *p, const struct attn_edit *edit)
{
    (void)p;
    return attn_edit_is(edit, ATTN_CHANGE_REMOVE) ? MASK_OBJECTS : ATTN_BIT(ATTN_A);
}

static uint32_t position_enters(const struct attn_problem *p,
                                const struct attn_edit *edit)
{
    if (attn_edit_is(edit, ATTN_CHANGE_REMOVE))
        return MASK_OBJECTS;
    return p->form.source == ATTN_CROSS ? ATTN_BIT(ATTN_X_KV) : ATTN_BIT(ATTN_X);
}

static bool head_spares(const struct attn_problem *p, const struct attn_edit *edit,
                        enum attn_object object, size_t b, size_t h, size_t i)
{
    (void)p, (void)object, (void)b, (void)i;
    return h != edit->index;
}

static bool edge_spares(const struct attn_problem *p, const struct attn_edit *edit,
                        enum attn_object object, size_t b, size_t h, size_t i)
{
    (void)p, (void)object, (void)b, (void)h;
    return i != edit->query;
}

static bool may_read(const struct attn_problem *p, const struct attn_edit *edit, size_t b,
                     size_t h, size_t i)
{
    return attn_allowed(p, b, h, i, attn_edit_token_key(p, edit));
}

/* Rows of other tokens in Q, K, V; from A on, rows of other queries that may not read
   it. */
static bool position_spares(const struct attn_problem *p, const struct attn_edit *edit,
                            enum attn_object object, size_t b, size_t h, size_t i)
{
    if (object == ATTN_K || object == ATTN_V)
        return i != attn_edit_token_key(p, edit);
    if (p->form.source == ATTN_SELF && !attn_edit_is(edit, ATTN_CHANGE_REMOVE) &&
        i == edit->index)
        return false;
    if (object == ATTN_Q)
        return true;
    if (object == ATTN_A || object == ATTN_H_HEADS)
        return !may_read(p, edit, b, h, i);
    for (size_t each = 0; each < p->d.h; each++)
        if (may_read(p, edit, b, each, i))
            return false;
    return true;
}

/* ---- the tables ---- */

#define C(change) (UINT32_C(1) << ATTN_CHANGE_##change)
#define NUMBERS \
    (C(ZERO) | C(NEGATE) | C(SCALE) | C(NOISE) | C(SHUFFLE) | C(REPLACE) | C(MEAN))
#define ON(object) ATTN_BIT(ATTN_##object)

/* clang-format off */
static const struct attn_edit_target TARGETS[] = {
    { { "W_Q", "The weights that make queries.", NUMBERS | C(IDENTITY), false, false },
      ATTN_IN_W_Q, check_weight, attn_edit_weight, weight_bytes, enters_q,
      NULL, NULL, 0 },
    { { "W_K", "The weights that make keys.", NUMBERS | C(IDENTITY), false, false },
      ATTN_IN_W_K, check_weight, attn_edit_weight, weight_bytes, enters_k,
      NULL, NULL, 0 },
    { { "W_V", "The weights that make values.", NUMBERS | C(IDENTITY), false, false },
      ATTN_IN_W_V, check_weight, attn_edit_weight, weight_bytes, enters_v,
      NULL, NULL, 0 },
    { { "W_O", "The weights that bring the heads back to the model's width.",
        NUMBERS | C(IDENTITY), false, false },
      ATTN_IN_W_O, check_weight, attn_edit_weight, weight_bytes, enters_y,
      NULL, NULL, 0 },
    { { "scale", "The number that multiplies q.k: remove and identity make it 1.",
        C(ZERO) | C(IDENTITY) | C(NEGATE) | C(SCALE) | C(REPLACE) | C(REMOVE),
        false, false },
      -1, check_scale, attn_edit_scale, no_bytes, enters_s, NULL, NULL, 0 },
    { { "masks", "One rule, named after a dot: remove it, or negate what it allows (of "
        "additive: the sign of its finite numbers).",
        C(REMOVE) | C(NEGATE), false, false },
      -1, check_masks, attn_edit_masks, masks_bytes, enters_m, NULL, NULL, 0 },
    { { "head", "The output of head `index`, after it was mixed from the values; remove "
        "and zero are the same, mean is over its query rows.",
        NUMBERS | C(REMOVE), true, false },
      -1, check_head, attn_edit_head, head_bytes, enters_h,
      head_spares, "the other heads the same bit for bit", ON(H_HEADS) },
    { { "edge", "The pair (query, key) in every head: remove forbids it before the "
        "softmax, zero and scale change its weight after it, without renormalising.",
        C(REMOVE) | C(ZERO) | C(SCALE), false, true },
      -1, check_edge, attn_edit_edge, no_bytes, edge_enters,
      edge_spares, "rows of the other queries the same",
      ON(M) | ON(A) | ON(H_HEADS) | ON(H) | ON(Y) },
    { { "position", "Token `index` of X (of X_kv in cross-attention): its row of numbers "
        "is changed; remove forbids its key to every query.",
        NUMBERS | C(REMOVE), true, false },
      -1, check_position, attn_edit_position, position_bytes, position_enters,
      position_spares, "rows that do not read the token the same",
      ON(Q) | ON(K) | ON(V) | ON(A) | ON(H_HEADS) | ON(H) | ON(Y) },
};

static const struct attn_edit_change CHANGES[ATTN_CHANGE_COUNT] = {
    [ATTN_CHANGE_ZERO] = { { "zero", "Every number becomes 0.",
                             false, false, false, false }, attn_change_zero },
    [ATTN_CHANGE_IDENTITY] = { { "identity",
                                 "The identity matrix (square ones only); of a scale: 1.",
                                 false, false, false, false }, attn_change_identity },
    [ATTN_CHANGE_NEGATE] = { { "negate",
                               "The opposite sign; of a rule: allowed and forbidden "
                               "change places.",
                               false, false, false, false }, attn_change_negate },
    [ATTN_CHANGE_SCALE] = { { "scale", "Multiplied by `by`.", true, false, false, false },
                            attn_change_scale },
    [ATTN_CHANGE_NOISE] = { { "noise",
                              "Plus seeded normal noise of deviation `std`, the same in "
                              "every item.",
                              false, true, true, false }, attn_change_noise },
    [ATTN_CHANGE_SHUFFLE] = { { "shuffle", "The same numbers in a seeded random order.",
                                false, true, false, false }, attn_change_shuffle },
    [ATTN_CHANGE_REPLACE] = { { "replace", "The tensor `with` instead.",
                                false, false, false, true }, attn_change_replace },
    [ATTN_CHANGE_MEAN] = { { "mean", "Every row becomes the mean of all rows.",
                             false, false, false, false }, attn_change_mean },
    [ATTN_CHANGE_REMOVE] = { { "remove", "Left out altogether.",
                               false, false, false, false }, NULL },
};
/* clang-format on */

size_t attn_edit_target_count(void)
{
    return ATTN_COUNT(TARGETS);
}

const struct attn_edit_target_row *attn_edit_target_at(size_t n)
{
    assert(n < ATTN_COUNT(TARGETS));
    return &TARGETS[n].row;
}

const struct attn_edit_target_row *attn_edit_target_find(const char *name)
{
    for (size_t n = 0; n < ATTN_COUNT(TARGETS); n++)
        if (strcmp(TARGETS[n].row.name, name) == 0)
            return &TARGETS[n].row;
    return NULL;
}

size_t attn_edit_change_count(void)
{
    return ATTN_COUNT(CHANGES);
}

const struct attn_edit_change_row *attn_edit_change_at(size_t n)
{
    assert(n < ATTN_COUNT(CHANGES));
    return &CHANGES[n].row;
}

const struct attn_edit_change_row *attn_edit_change_find(const char *name)
{
    for (size_t n = 0; n < ATTN_COUNT(CHANGES); n++)
        if (strcmp(CHANGES[n].row.name, name) == 0)
            return &CHANGES[n].row;
    return NULL;
}

const struct attn_edit_target *attn_edit_target_of(const struct attn_edit *edit)
{
    return (const struct attn_edit_target *)edit->target;
}

const struct attn_edit_change *attn_edit_change_of(const struct attn_edit *edit)
{
    return (const struct attn_edit_change *)edit->change;
}

bool attn_edit_is(const struct attn_edit *edit, enum attn_change change)
{
    return attn_edit_change_of(edit) == &CHANGES[change];
}

/*
 * Is this change one that the target accepts, with numbers in range and tensors of the
 * right shape?  Errors: CONTRADICTION (object: the target, axis: the change), MISSING,
 * RANGE (object "index", "query", "key", "by" or "std"), RANK, SHAPE (object "with", or
 * the matrix that is not square).
 */
bool attn_edit_check(const struct attn_problem *p, const struct attn_edit *edit,
                     struct attn_err *err)
{
    const struct attn_edit_target *target = attn_edit_target_of(edit);
    const struct attn_edit_change_row *change = edit->change;

    if ((target->row.changes >> (attn_edit_change_of(edit) - CHANGES) & 1) == 0)
        return attn_fail(err, ATTN_E_CONTRADICTION, target->row.name, change->name, 0, 0);
    if (change->needs_by && !isfinite(edit->by))
        return attn_fail(err, ATTN_E_RANGE, "by", NULL, 0, 0);
    if (change->needs_std && !(isfinite(edit->std) && edit->std > 0.0))
        return attn_fail(err, ATTN_E_RANGE, "std", NULL, 0, 0);
    return target->check(p, edit, err);
}
