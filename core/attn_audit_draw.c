/*
 * attn_audit_draw.c - which rows the audit looks at.
 * Not here: what it does with them (attn_audit_rows.c, attn_audit_weights.c, …).
 * Start reading at attn_audit_draw.
 */
#include "core/attn_audit.h"

#include <assert.h>
#include <string.h>

enum { ROWS_MIN = 2, ROWS_MAX = 64, ROWS_EACH = 512, ROWS_SPECIAL = 4 };
enum { SMALL_PAIRS = 64 }; /* up to here every row is looked at in any case */

/* Rows that are drawn: one for each head of each item, and one for every ROWS_EACH that
   there are, as a row costs the judge's plain loops about what twenty cost the layer. */
static size_t rows_drawn(const struct attn_dims *d)
{
    const size_t heads = attn_within(d->B * d->h, ROWS_MIN, ROWS_MAX);

    return attn_within(d->B * d->h * d->T_q / ROWS_EACH, heads, ROWS_MAX);
}

/* Those, and some that are special. */
size_t attn_audit_rows_wanted(const struct attn_problem *p, enum attn_audit_level level)
{
    const size_t all = p->d.B * p->d.h * p->d.T_q, n = rows_drawn(&p->d) + ROWS_SPECIAL;

    if (level == ATTN_AUDIT_FULL || all * p->d.T_kv <= SMALL_PAIRS)
        return all;
    return n < all ? n : all;
}

static size_t row_number(const struct attn_dims *d, struct attn_audit_row r)
{
    return (r.b * d->h + r.h) * d->T_q + r.i;
}

static struct attn_audit_row row_of(const struct attn_dims *d, size_t n)
{
    return (struct attn_audit_row){n / d->T_q / d->h, n / d->T_q % d->h, n % d->T_q};
}

struct attn_audit_row attn_audit_row(const struct attn_auditor *a, size_t n)
{
    assert(n < a->row_count);
    return a->all_rows ? row_of(&a->p->d, n) : a->drawn[n];
}

bool attn_audit_nan_row(const struct attn_auditor *a, struct attn_audit_row r)
{
    if (a->p->empty_rows != ATTN_EMPTY_NAN)
        return false;
    for (size_t j = 0; j < a->p->d.T_kv; j++)
        if (attn_judge_allowed(a->p, a->trace, r.b, r.h, r.i, j))
            return false;
    return true;
}

/* The first row without an allowed key, and the first with some forbidden one, as far as
   the trace says; or the row given. */
static size_t special_row(const struct attn_auditor *a, bool empty, size_t otherwise)
{
    const struct attn_dims *d = &a->p->d;
    const struct attn_tensor *allowed = &a->trace->t[ATTN_ALLOWED];
    const size_t rows = d->B * d->h * d->T_q;

    if (empty) {
        const uint8_t *hit = a->trace->empty ? memchr(a->trace->empty, 1, rows) : NULL;

        return hit ? (size_t)(hit - a->trace->empty) : otherwise;
    }
    if (!attn_audit_has(a, ATTN_ALLOWED))
        return otherwise;
    for (size_t r = 0; r < rows; r++) {
        const uint8_t *keys = (const uint8_t *)allowed->p + r * d->T_kv;

        if (memchr(keys, 0, d->T_kv) && memchr(keys, 1, d->T_kv))
            return r;
    }
    return otherwise;
}

/* Sorted and each once, so that places of first differences are the first in order. */
static void insert_row(struct attn_auditor *a, size_t number)
{
    const struct attn_dims *d = &a->p->d;
    size_t at = a->row_count;

    while (at > 0 && row_number(d, a->drawn[at - 1]) >= number)
        if (row_number(d, a->drawn[--at]) == number)
            return;
    memmove(&a->drawn[at + 1], &a->drawn[at], (a->row_count - at) * sizeof a->drawn[0]);
    a->drawn[at] = row_of(d, number);
    a->row_count++;
}

/* Every item and head in turn, from a drawn one on. */
void attn_audit_draw(struct attn_auditor *a, size_t most)
{
    const struct attn_dims *d = &a->p->d;
    const size_t last = d->B * d->h * d->T_q - 1,
                 start = attn_random_below(&a->random, d->B * d->h);
    size_t wanted;

    insert_row(a, 0);
    insert_row(a, last);
    insert_row(a, special_row(a, true, last));
    insert_row(a, special_row(a, false, last));
    wanted = attn_within(a->row_count + rows_drawn(d), 0, most);
    for (size_t n = start; a->row_count < wanted && n < start + 4 * most; n++) {
        const struct attn_audit_row r = {n % d->B, n / d->B % d->h,
                                         attn_random_below(&a->random, d->T_q)};

        insert_row(a, row_number(d, r));
    }
}
