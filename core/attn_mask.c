/*
 * attn_mask.c - the mask rules: which query may read which key, and how to find it out
 * fast. Not here: additive bias and the verdict of all rules on one pair
 * (attn_problem.c). Start reading at MASKS; a new rule is a row and a function `allows`.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static size_t place(const struct attn_table *t, size_t b, size_t h, size_t i, size_t j)
{
    return b * t->stride_b + h * t->stride_h + i * t->stride_i + j;
}

static const uint8_t *bytes_at(const struct attn_table *t, size_t b, size_t h, size_t i)
{
    assert(t->elem == ATTN_ELEM_U8);
    return (const uint8_t *)t->p + place(t, b, h, i, 0);
}

static const int64_t *numbers_at(const struct attn_table *t, size_t b)
{
    assert(t->elem == ATTN_ELEM_I64);
    return (const int64_t *)t->p + place(t, b, 0, 0, 0);
}

/* Where query i stands among the keys; may lie outside 0 … T_kv - 1. */
static ptrdiff_t stands_at(const struct attn_problem *p, size_t i)
{
    return (ptrdiff_t)i + p->shift;
}

static size_t between(ptrdiff_t j, size_t lowest, size_t highest)
{
    return j < (ptrdiff_t)lowest ? lowest : j > (ptrdiff_t)highest ? highest : (size_t)j;
}

/* Clears what lies outside [first, end). */
static void clear_outside(size_t first, size_t end, size_t j0, size_t j1, uint8_t *allow)
{
    const size_t a = first < j0 ? j0 : first > j1 ? j1 : first;
    const size_t z = end < a ? a : end > j1 ? j1 : end;

    memset(allow, 0, a - j0);
    memset(allow + (z - j0), 0, j1 - z);
}

static bool narrow(size_t first, size_t end, size_t *j0, size_t *j1)
{
    if (first > *j0)
        *j0 = first;
    if (end < *j1)
        *j1 = end;
    if (*j0 > *j1)
        *j0 = *j1;
    return true;
}

/* ---- causal: j <= i + shift ---- */

static bool causal_allows(const struct attn_problem *p, const struct attn_mask *m,
                          size_t b, size_t h, size_t i, size_t j)
{
    (void)m, (void)b, (void)h;
    return (ptrdiff_t)j <= stands_at(p, i);
}

static bool causal_range(const struct attn_problem *p, const struct attn_mask *m,
                         size_t b, size_t h, size_t i, size_t *j0, size_t *j1)
{
    (void)m, (void)b, (void)h;
    return narrow(0, between(stands_at(p, i) + 1, 0, p->d.T_kv), j0, j1);
}

static void causal_clear(const struct attn_problem *p, const struct attn_mask *m,
                         size_t b, size_t h, size_t i, size_t j0, size_t j1,
                         uint8_t *allow)
{
    (void)m, (void)b, (void)h;
    clear_outside(0, between(stands_at(p, i) + 1, 0, p->d.T_kv), j0, j1, allow);
}

/* ---- window: i + shift - left <= j <= i + shift + right ---- */

enum { WINDOW_LEFT, WINDOW_RIGHT };

/* -1 and an absent parameter leave the side open; wider than the sequence is open as
   well, which keeps the sums small. */
static bool window_side(const struct attn_problem *p, const struct attn_mask *m, int side,
                        ptrdiff_t *extent)
{
    const int64_t n = m->arg[side].given ? m->arg[side].number : -1;

    *extent = (ptrdiff_t)n;
    return n >= 0 && (uint64_t)n < (uint64_t)p->d.T_q + (uint64_t)p->d.T_kv;
}

static void window_ends(const struct attn_problem *p, const struct attn_mask *m, size_t i,
                        size_t *first, size_t *end)
{
    ptrdiff_t extent;

    *first = 0;
    *end = p->d.T_kv;
    if (window_side(p, m, WINDOW_LEFT, &extent))
        *first = between(stands_at(p, i) - extent, 0, p->d.T_kv);
    if (window_side(p, m, WINDOW_RIGHT, &extent))
        *end = between(stands_at(p, i) + extent + 1, 0, p->d.T_kv);
}

static bool window_allows(const struct attn_problem *p, const struct attn_mask *m,
                          size_t b, size_t h, size_t i, size_t j)
{
    const ptrdiff_t distance = (ptrdiff_t)j - stands_at(p, i);
    ptrdiff_t extent;

    (void)b, (void)h;
    if (window_side(p, m, WINDOW_LEFT, &extent) && distance < -extent)
        return false;
    return !window_side(p, m, WINDOW_RIGHT, &extent) || distance <= extent;
}

static bool window_range(const struct attn_problem *p, const struct attn_mask *m,
                         size_t b, size_t h, size_t i, size_t *j0, size_t *j1)
{
    size_t first, end;

    (void)b, (void)h;
    window_ends(p, m, i, &first, &end);
    return narrow(first, end, j0, j1);
}

static void window_clear(const struct attn_problem *p, const struct attn_mask *m,
                         size_t b, size_t h, size_t i, size_t j0, size_t j1,
                         uint8_t *allow)
{
    size_t first, end;

    (void)b, (void)h;
    window_ends(p, m, i, &first, &end);
    clear_outside(first, end, j0, j1, allow);
}

/* ---- padding: the key is a real one ---- */

enum { PADDING_LENGTHS, PADDING_VALID };

static bool padding_allows(const struct attn_problem *p, const struct attn_mask *m,
                           size_t b, size_t h, size_t i, size_t j)
{
    const struct attn_table *lengths = &m->arg[PADDING_LENGTHS].table;

    (void)p, (void)h, (void)i;
    if (lengths->p != NULL)
        return (int64_t)j < *numbers_at(lengths, b);
    return bytes_at(&m->arg[PADDING_VALID].table, b, 0, 0)[j] != 0;
}

static bool padding_range(const struct attn_problem *p, const struct attn_mask *m,
                          size_t b, size_t h, size_t i, size_t *j0, size_t *j1)
{
    const struct attn_table *lengths = &m->arg[PADDING_LENGTHS].table;

    (void)h, (void)i;
    if (lengths->p != NULL)
        return narrow(0, between((ptrdiff_t)*numbers_at(lengths, b), 0, p->d.T_kv), j0,
                      j1);

    const uint8_t *valid = bytes_at(&m->arg[PADDING_VALID].table, b, 0, 0);

    while (*j0 < *j1 && valid[*j0] == 0)
        ++*j0;
    while (*j0 < *j1 && valid[*j1 - 1] == 0)
        --*j1;
    return memchr(valid + *j0, 0, *j1 - *j0) == NULL;
}

static void padding_clear(const struct attn_problem *p, const struct attn_mask *m,
                          size_t b, size_t h, size_t i, size_t j0, size_t j1,
                          uint8_t *allow)
{
    const struct attn_table *lengths = &m->arg[PADDING_LENGTHS].table;

    (void)h, (void)i;
    if (lengths->p != NULL) {
        clear_outside(0, between((ptrdiff_t)*numbers_at(lengths, b), 0, p->d.T_kv), j0,
                      j1, allow);
        return;
    }

    const uint8_t *valid = bytes_at(&m->arg[PADDING_VALID].table, b, 0, 0);

    for (size_t j = j0; j < j1; j++)
        allow[j - j0] &= (uint8_t)(valid[j] != 0);
}

/* ---- documents: query and key belong to one document ---- */

enum { DOCUMENTS_IDS };

/* Ids cover the keys; queries are the last T_q of them, whatever the causal alignment. */
static int64_t query_document(const struct attn_problem *p, const int64_t *ids, size_t i)
{
    assert(p->d.T_q <= p->d.T_kv);
    return ids[p->d.T_kv - p->d.T_q + i];
}

static bool documents_allows(const struct attn_problem *p, const struct attn_mask *m,
                             size_t b, size_t h, size_t i, size_t j)
{
    const int64_t *ids = numbers_at(&m->arg[DOCUMENTS_IDS].table, b);

    (void)h;
    return ids[j] >= 0 && ids[j] == query_document(p, ids, i);
}

static bool documents_range(const struct attn_problem *p, const struct attn_mask *m,
                            size_t b, size_t h, size_t i, size_t *j0, size_t *j1)
{
    const int64_t *ids = numbers_at(&m->arg[DOCUMENTS_IDS].table, b);
    const int64_t mine = query_document(p, ids, i);

    (void)h;
    if (mine < 0)
        return narrow(*j1, *j1, j0, j1);
    while (*j0 < *j1 && ids[*j0] != mine)
        ++*j0;
    while (*j0 < *j1 && ids[*j1 - 1] != mine)
        --*j1;
    for (size_t j = *j0; j < *j1; j++)
        if (ids[j] != mine)
            return false;
    return true;
}

static void documents_clear(const struct attn_problem *p, const struct attn_mask *m,
                            size_t b, size_t h, size_t i, size_t j0, size_t j1,
                            uint8_t *allow)
{
    const int64_t *ids = numbers_at(&m->arg[DOCUMENTS_IDS].table, b);
    const int64_t mine = query_document(p, ids, i);

    (void)h;
    if (mine < 0) {
        memset(allow, 0, j1 - j0);
        return;
    }
    for (size_t j = j0; j < j1; j++)
        allow[j - j0] &= (uint8_t)(ids[j] == mine);
}

/* ---- allowed, blocked: a table of pairs ---- */

static bool allowed_allows(const struct attn_problem *p, const struct attn_mask *m,
                           size_t b, size_t h, size_t i, size_t j)
{
    (void)p;
    return bytes_at(&m->arg[0].table, b, h, i)[j] != 0;
}

static bool blocked_allows(const struct attn_problem *p, const struct attn_mask *m,
                           size_t b, size_t h, size_t i, size_t j)
{
    (void)p;
    return bytes_at(&m->arg[0].table, b, h, i)[j] == 0;
}

static void allowed_clear(const struct attn_problem *p, const struct attn_mask *m,
                          size_t b, size_t h, size_t i, size_t j0, size_t j1,
                          uint8_t *allow)
{
    const uint8_t *pairs = bytes_at(&m->arg[0].table, b, h, i);

    (void)p;
    for (size_t j = j0; j < j1; j++)
        allow[j - j0] &= (uint8_t)(pairs[j] != 0);
}

static void blocked_clear(const struct attn_problem *p, const struct attn_mask *m,
                          size_t b, size_t h, size_t i, size_t j0, size_t j1,
                          uint8_t *allow)
{
    const uint8_t *pairs = bytes_at(&m->arg[0].table, b, h, i);

    (void)p;
    for (size_t j = j0; j < j1; j++)
        allow[j - j0] &= (uint8_t)(pairs[j] == 0);
}

/* ---- the table ---- */

/* clang-format off */
static const struct attn_mask_row MASKS[] = {
    { "causal", "A query reads no key after its own position: j <= i + o.",
      ATTN_MASK_SWITCH, { { "alignment", ATTN_PARAM_ALIGNMENT, 0 } },
      causal_allows, causal_clear, causal_range, false },
    { "padding", "No query reads an artificial key; the rows of padded queries stay.",
      ATTN_MASK_OBJECT,
      { [PADDING_LENGTHS] = { "lengths", ATTN_PARAM_LENGTHS, 1 },
        [PADDING_VALID]   = { "valid", ATTN_PARAM_VALID, 1 } },
      padding_allows, padding_clear, padding_range, false },
    { "documents", "A query reads only keys of its own document; id -1 belongs to none.",
      ATTN_MASK_OBJECT,
      { [DOCUMENTS_IDS] = { "ids", ATTN_PARAM_IDS, 1 },
        { "lengths", ATTN_PARAM_SEGMENTS, 1 },
        { "cu_seqlens", ATTN_PARAM_CU_SEQLENS, 1 },
        { "next_id", ATTN_PARAM_NEXT_ID, 0 } },
      documents_allows, documents_clear, documents_range, false },
    { "window", "A query reads from `left` keys before its position to `right` keys "
      "after it, its own not counted; -1 is open.", ATTN_MASK_OBJECT,
      { [WINDOW_LEFT]  = { "left", ATTN_PARAM_EXTENT, 0 },
        [WINDOW_RIGHT] = { "right", ATTN_PARAM_EXTENT, 0 } },
      window_allows, window_clear, window_range, false },
    { "allowed", "A query reads only the pairs that are true.", ATTN_MASK_TENSOR,
      { { "pairs", ATTN_PARAM_PAIRS, 0 } },
      allowed_allows, allowed_clear, NULL, true },
    { "blocked", "A query reads only the pairs that are false.", ATTN_MASK_TENSOR,
      { { "pairs", ATTN_PARAM_PAIRS, 0 } },
      blocked_allows, blocked_clear, NULL, true },
};
/* clang-format on */

size_t attn_mask_count(void)
{
    return ATTN_COUNT(MASKS);
}

const struct attn_mask_row *attn_mask_at(size_t n)
{
    assert(n < ATTN_COUNT(MASKS));
    return &MASKS[n];
}

const struct attn_mask_row *attn_mask_find(const char *name)
{
    for (size_t n = 0; n < ATTN_COUNT(MASKS); n++)
        if (strcmp(MASKS[n].name, name) == 0)
            return &MASKS[n];
    return NULL;
}

/* ---- all rules on one row ---- */

static void clear_rule(const struct attn_problem *p, const struct attn_mask *m, size_t b,
                       size_t h, size_t i, size_t j0, size_t j1, uint8_t *allow)
{
    if (m->row->clear != NULL) {
        m->row->clear(p, m, b, h, i, j0, j1, allow);
        return;
    }
    for (size_t j = j0; j < j1; j++)
        allow[j - j0] &= (uint8_t)m->row->allows(p, m, b, h, i, j);
}

/* allow [j1 - j0] out: 1 where query (b,h,i) may read the key, 0 elsewhere. */
void attn_allow_row(const struct attn_problem *p, size_t b, size_t h, size_t i, size_t j0,
                    size_t j1, uint8_t *allow)
{
    assert(j0 <= j1 && j1 <= p->d.T_kv);
    memset(allow, 1, j1 - j0);
    for (size_t n = 0; n < p->mask_count; n++)
        clear_rule(p, &p->mask[n], b, h, i, j0, j1, allow);
    if (p->additive.p == NULL)
        return;

    const double *bias = (const double *)p->additive.p + place(&p->additive, b, h, i, 0);

    for (size_t j = j0; j < j1; j++)
        if (bias[j] == -INFINITY)
            allow[j - j0] = 0;
}

/* O(1) a row for causal, window and padding lengths; one pass over a row of ids or
 * `valid`. */
void attn_allow_range(const struct attn_problem *p, size_t b, size_t h, size_t i,
                      size_t *j0, size_t *j1, bool *exact)
{
    *j0 = 0;
    *j1 = p->d.T_kv;
    *exact = p->additive.p == NULL;
    for (size_t n = 0; n < p->mask_count; n++) {
        const struct attn_mask *m = &p->mask[n];

        if (m->row->range == NULL || !m->row->range(p, m, b, h, i, j0, j1))
            *exact = false;
    }
    if (*j0 == *j1)
        *exact = true;
}
