/*
 * attn_fault.c - the catalogue of faults: themes in the order of the layer, and
 * questions about a row.
 * Not here: the faults themselves (attn_fault_project.c and the files beside it).
 * Start reading at FAULTS.
 */
#include "core/attn_fault.h"

#include <assert.h>
#include <string.h>

static const struct attn_fault_theme *const FAULTS[] = {
    &ATTN_FAULTS_OTHER,    &ATTN_FAULTS_PROJECT,    &ATTN_FAULTS_WEIGHTS,
    &ATTN_FAULTS_POSITION, &ATTN_FAULTS_TURN,       &ATTN_FAULTS_SCORE,
    &ATTN_FAULTS_RULE,     &ATTN_FAULTS_MASK,       &ATTN_FAULTS_BIAS,
    &ATTN_FAULTS_NORM,     &ATTN_FAULTS_AXIS,       &ATTN_FAULTS_EMPTY,
    &ATTN_FAULTS_SOFTMAX,  &ATTN_FAULTS_HALF,       &ATTN_FAULTS_OUTPUT,
    &ATTN_FAULTS_BLOCK,    &ATTN_FAULTS_FITTED,     &ATTN_FAULTS_FITTED_MASK,
    &ATTN_FAULTS_GRAD,     &ATTN_FAULTS_GRAD_INPUT,
};

size_t attn_fault_count(void)
{
    size_t count = 0;

    for (size_t t = 0; t < ATTN_COUNT(FAULTS); t++)
        count += FAULTS[t]->count;
    return count;
}

const struct attn_fault_row *attn_fault_at(size_t n)
{
    size_t t = 0;

    while (n >= FAULTS[t]->count) {
        n -= FAULTS[t++]->count;
        assert(t < ATTN_COUNT(FAULTS));
    }
    return &FAULTS[t]->row[n];
}

const struct attn_fault_row *attn_fault_find(const char *name)
{
    for (size_t n = 0; n < attn_fault_count(); n++)
        if (strcmp(attn_fault_at(n)->name, name) == 0)
            return attn_fault_at(n);
    return NULL;
}

const struct attn_swap *attn_fault_way(const struct attn_fault_row *row, size_t n)
{
    static const struct attn_fault_ways *const WAYS[] = {
        &ATTN_WAYS_AXIS, &ATTN_WAYS_EMPTY, &ATTN_WAYS_PROJECT, &ATTN_WAYS_SOFTMAX};

    for (size_t t = 0; t < ATTN_COUNT(WAYS); t++)
        for (size_t k = 0; k < WAYS[t]->count; k++)
            if (strcmp(WAYS[t]->row[k].fault, row->name) == 0 && n-- == 0)
                return &WAYS[t]->row[k].swap;
    return NULL;
}

const char *attn_fault_name(const struct attn_fault_row *row)
{
    return row->name;
}

const char *attn_fault_object(const struct attn_fault_row *row)
{
    return row->object;
}

const char *attn_fault_explanation(const struct attn_fault_row *row)
{
    return row->explanation;
}

const char *attn_fault_fix(const struct attn_fault_row *row)
{
    return row->fix;
}

const char *attn_fault_visible_when(const struct attn_fault_row *row)
{
    return row->visible_when;
}

const char *attn_fault_caught_by(const struct attn_fault_row *row)
{
    return row->caught_by;
}

bool attn_fault_visible(const struct attn_fault_row *row, const struct attn_problem *p)
{
    return row->visible(p, row->swap.param);
}

const struct attn_swap *attn_fault_swap(const struct attn_fault_row *row)
{
    return &row->swap;
}

/* ---- what predicates and wrong stages share ---------------------------------------- */

bool attn_any_row_reads(const struct attn_problem *p)
{
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++)
        if (!attn_row_empty(p, x.b, x.h, x.i))
            return true;
    return false;
}

bool attn_any_row_empty(const struct attn_problem *p)
{
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++)
        if (attn_row_empty(p, x.b, x.h, x.i))
            return true;
    return false;
}

bool attn_any_row_mixes(const struct attn_problem *p)
{
    return p->empty_rows == ATTN_EMPTY_UNIFORM || attn_any_row_reads(p);
}

bool attn_same_numbers(const struct attn_tensor *a, const struct attn_tensor *b)
{
    return attn_tensor_count(a) == attn_tensor_count(b) &&
           memcmp(a->p, b->p, attn_tensor_count(a) * attn_dtype_bytes(a->dtype)) == 0;
}

bool attn_asymmetric(const struct attn_tensor *W)
{
    for (size_t k = 0; k < W->dim[0]; k++)
        for (size_t c = 0; c < k; c++)
            if (attn_number(W, k * W->dim[1] + c) != attn_number(W, c * W->dim[1] + k))
                return true;
    return false;
}

/* Piece by piece, as attn_score_fn allows. */
double attn_pair_raw(const struct attn_problem *p, const struct attn_tensor *Q, size_t q,
                     const struct attn_tensor *K, size_t k)
{
    const struct attn_tensor *va = &p->in[ATTN_IN_V_A];
    double x[ATTN_SCORE_PIECE], y[ATTN_SCORE_PIECE], v[ATTN_SCORE_PIECE], sum = 0.0;

    for (size_t from = 0; from < p->d.d_k; from += ATTN_SCORE_PIECE) {
        const size_t left = p->d.d_k - from;
        const size_t n = left < ATTN_SCORE_PIECE ? left : ATTN_SCORE_PIECE;

        for (size_t c = 0; c < n; c++) {
            x[c] = attn_number(Q, q + from + c);
            y[c] = attn_number(K, k + from + c);
            v[c] = va->p ? attn_number(va, from + c) : 0.0;
        }
        sum += p->score->pair(n, x, y, va->p ? v : NULL, 0.0, NULL, NULL, NULL);
    }
    return sum;
}

double attn_mixed(const struct attn_run_ctx *run, enum attn_object rows,
                  struct attn_cell x)
{
    const size_t g = attn_kv_head(&run->p->d, x.h);
    double sum = 0.0;

    for (size_t j = 0; j < run->p->d.T_kv; j++)
        sum += attn_at4(&run->t->t[ATTN_A], x.b, x.h, x.i, j) *
               attn_at4(&run->t->t[rows], x.b, g, j, x.j);
    return sum;
}
