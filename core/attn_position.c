/*
 * attn_position.c - position kinds: those that turn queries and keys, those that bias M.
 * Not here: when rows are turned (the stages, attn_rotate.c), the sum of all biases
 * (attn_problem.c).
 * Start reading at POSITIONS.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- rope -------------------------------------------------------------------------- */

enum { ROPE_LAYOUT, ROPE_BASE, ROPE_Q, ROPE_K };

/*
 * attn_rope_row - turn pair k of one row by the angle pos * base^(-2k/d_k), k = 0 … d_k/2
 * - 1
 *
 * in   [d_k]  in
 * out  [d_k]  out  may be the same memory as in
 *
 * A pair is (k, k + d_k/2) in the layout "half", (2k, 2k + 1) in "interleaved".  d_k is
 * even (attn_prepare).  Source: Su et al. 2021, equations 15 and 34.
 */
void attn_rope_row(const struct attn_problem *p, double pos, const double *in,
                   double *out)
{
    const size_t d_k = p->d.d_k, pairs = d_k / 2;
    const bool half = p->rope.layout == ATTN_ROPE_HALF;

    assert(d_k % 2 == 0);
    for (size_t k = 0; k < pairs; k++) {
        const double angle = pos * pow(p->rope.base, -2.0 * (double)k / (double)d_k);
        const double cosine = cos(angle), sine = sin(angle);
        const size_t first = half ? k : 2 * k, second = half ? k + pairs : 2 * k + 1;
        const double a = in[first], b = in[second];

        out[first] = a * cosine - b * sine;
        out[second] = a * sine + b * cosine;
    }
}

static void rope_turn(const struct attn_problem *p, const struct attn_position *x,
                      struct attn_turn turn, double *row)
{
    (void)x;
    attn_rope_row(p, turn.back ? -turn.at : turn.at, row, row);
}

static void rope_derive(struct attn_problem *p, const struct attn_position *x)
{
    p->rope = (struct attn_rope){
        .on = true,
        .layout = (enum attn_rope_layout)x->arg[ROPE_LAYOUT].number,
        .base = x->arg[ROPE_BASE].real,
    };
}

/* ---- alibi ------------------------------------------------------------------------- */

enum { ALIBI_SLOPES };

/*
 * Slopes 2^(-8m/n), m = 1 … n, for n a power of two; otherwise those of the largest power
 * of two below n, then every second one (m = 1, 3, …) of twice that power. slopes [n]
 * out.  Source: Press, Smith, Lewis 2022, section 3, and their published code.
 */
void attn_alibi_standard(size_t n, double *slopes)
{
    size_t power = 1;

    assert(n > 0);
    while (power <= n / 2)
        power *= 2;
    for (size_t m = 1; m <= power; m++)
        slopes[m - 1] = exp2(-8.0 * (double)m / (double)power);
    for (size_t m = 1; power + (m - 1) / 2 < n; m += 2)
        slopes[power + (m - 1) / 2] = exp2(-8.0 * (double)m / (double)(2 * power));
}

/* Slopes are read from p->alibi, so that who looks for a wrong layer can take them away.
 */
static double alibi_bias(const struct attn_problem *p, const struct attn_position *x,
                         size_t b, size_t h, size_t i, size_t j)
{
    const ptrdiff_t distance = (ptrdiff_t)i + p->shift - (ptrdiff_t)j;

    (void)x, (void)b;
    if (p->alibi == NULL)
        return 0.0;
    return -(p->alibi[h] * (double)(distance < 0 ? -distance : distance));
}

static void alibi_bias_row(const struct attn_problem *p, const struct attn_position *x,
                           size_t b, size_t h, size_t i, size_t j0, size_t j1, double *m)
{
    const double slope = p->alibi != NULL ? p->alibi[h] : 0.0;
    const double at = (double)((ptrdiff_t)i + p->shift);

    (void)x, (void)b;
    for (size_t j = j0; p->alibi != NULL && j < j1; j++)
        m[j - j0] -= slope * fabs(at - (double)j);
}

static void alibi_derive(struct attn_problem *p, const struct attn_position *x)
{
    p->alibi = x->arg[ALIBI_SLOPES].table.p;
}

/* ---- the table --------------------------------------------------------------------- */

/* clang-format off */
static const struct attn_position_row POSITIONS[] = {
    { .name = "rope",
      .formula = "theta_k = base^(-2k/d_k); (a,b) -> (a cos p theta_k - b sin p theta_k, "
                 "a sin p theta_k + b cos p theta_k)",
      .param = {
          [ROPE_LAYOUT] = { "layout", ATTN_POSITION_CHOICE,
                            .choice = { [ATTN_ROPE_HALF] = "half",
                                        [ATTN_ROPE_INTERLEAVED] = "interleaved" },
                            .left_out = "position.rope.layout was not stated: \"half\" "
                                        "was taken." },
          [ROPE_BASE]   = { "base", ATTN_POSITION_REAL, .otherwise = 10000,
                            .positive = true },
          [ROPE_Q]      = { "q", ATTN_POSITION_QUERIES, .required = false },
          [ROPE_K]      = { "k", ATTN_POSITION_KEYS, .required = false } },
      .turn = rope_turn, .turn_rows = attn_rope_rows, .turn_judged = attn_rope_judged,
      .derive = rope_derive, .needs_even = true },
    { .name = "alibi", .formula = "M_ij += -slope_h * |i + o - j|",
      .param = { [ALIBI_SLOPES] = { "slopes", ATTN_POSITION_SLOPES, .required = true } },
      .bias = alibi_bias, .bias_row = alibi_bias_row, .derive = alibi_derive },
};
/* clang-format on */

size_t attn_position_count(void)
{
    return ATTN_COUNT(POSITIONS);
}

const struct attn_position_row *attn_position_at(size_t n)
{
    assert(n < ATTN_COUNT(POSITIONS));
    return &POSITIONS[n];
}

const struct attn_position_row *attn_position_find(const char *name)
{
    for (size_t n = 0; n < ATTN_COUNT(POSITIONS); n++)
        if (strcmp(POSITIONS[n].name, name) == 0)
            return &POSITIONS[n];
    return NULL;
}

const char *attn_position_acts_on(const struct attn_position_row *row)
{
    return row->turn != NULL ? "Q,K" : "M";
}

struct attn_position attn_position_of_row(const struct attn_position_row *row)
{
    struct attn_position x = {.row = row};

    for (size_t a = 0; a < ATTN_PARAMS_MAX; a++)
        if (row->param[a].kind == ATTN_POSITION_REAL)
            x.arg[a].real = row->param[a].otherwise;
    return x;
}

/* ---- what was requested ------------------------------------------------------------ */

const struct attn_position *attn_turn_of(const struct attn_problem *p)
{
    for (size_t n = 0; n < p->position_count; n++)
        if (p->position[n].row->turn != NULL)
            return &p->position[n];
    return NULL;
}

bool attn_is_biased(const struct attn_problem *p)
{
    bool biased = p->additive.p != NULL;

    for (size_t n = 0; n < p->position_count; n++)
        biased = biased || p->position[n].row->bias != NULL;
    return biased;
}

static void derive(struct attn_problem *p)
{
    p->rope = (struct attn_rope){0};
    p->alibi = NULL;
    for (size_t n = 0; n < p->position_count; n++)
        if (p->position[n].row->derive != NULL)
            p->position[n].row->derive(p, &p->position[n]);
}

void attn_without_turn(struct attn_problem *p)
{
    size_t kept = 0;

    for (size_t n = 0; n < p->position_count; n++)
        if (p->position[n].row->turn == NULL)
            p->position[kept++] = p->position[n];
    p->position_count = kept;
    derive(p);
}

static bool check_params(const struct attn_position *x, struct attn_err *err)
{
    for (size_t a = 0; a < ATTN_PARAMS_MAX; a++) {
        const struct attn_position_param *param = &x->row->param[a];
        const double real = x->arg[a].real;

        if (param->kind == ATTN_POSITION_REAL &&
            (!isfinite(real) || (param->positive && !(real > 0.0))))
            return attn_fail(err, ATTN_E_RANGE, x->row->name, param->name, 0, 0);
        if (param->kind == ATTN_POSITION_SLOPES && param->required &&
            x->arg[a].table.p == NULL)
            return attn_fail(err, ATTN_E_MISSING, x->row->name, param->name, 0, 0);
    }
    return true;
}

/* Only the faster forms of a turn do with rows of any width. */
static bool check_turn(const struct attn_problem *p, const struct attn_position *x,
                       struct attn_err *err)
{
    const struct attn_position_row *row = x->row;
    const size_t d_k = p->d.d_k;

    if (row->turn != NULL && attn_turn_of(p) != x)
        return attn_fail(err, ATTN_E_CONTRADICTION, row->name, attn_turn_of(p)->row->name,
                         0, 0);
    if (row->needs_even && d_k % 2 != 0)
        return attn_fail(err, ATTN_E_ODD_WIDTH, row->name, "d_k", d_k + 1, d_k);
    if (row->turn != NULL && (row->turn_rows == NULL || row->turn_judged == NULL) &&
        d_k > ATTN_TURN_WIDTH_MAX)
        return attn_fail(err, ATTN_E_OVERFLOW, row->name, "d_k", ATTN_TURN_WIDTH_MAX,
                         d_k);
    return true;
}

bool attn_prepare_positions(struct attn_problem *p, struct attn_err *err)
{
    assert(p->position_count <= ATTN_POSITIONS_MAX);
    for (size_t n = 0; n < p->position_count; n++)
        if (!check_turn(p, &p->position[n], err) || !check_params(&p->position[n], err))
            return false;
    derive(p);
    return true;
}

/* ---- where rows stand -------------------------------------------------------------- */

/* Entry n of the stated positions of this kind, else `otherwise`. */
static double stated(const struct attn_position *x, enum attn_position_param_kind kind,
                     size_t b, size_t n, double otherwise)
{
    for (size_t a = 0; x != NULL && a < ATTN_PARAMS_MAX; a++) {
        const struct attn_table *t = &x->arg[a].table;

        if (x->row->param[a].kind != kind || t->p == NULL)
            continue;
        assert(t->elem == ATTN_ELEM_F64);
        return ((const double *)t->p)[b * t->stride_b + n];
    }
    return otherwise;
}

/* The last query stands at the last key. */
double attn_position_of_query(const struct attn_problem *p, const struct attn_position *x,
                              size_t b, size_t i)
{
    const ptrdiff_t first = (ptrdiff_t)p->d.T_kv - (ptrdiff_t)p->d.T_q;

    assert(i < p->d.T_q);
    return stated(x, ATTN_POSITION_QUERIES, b, i, (double)(first + (ptrdiff_t)i));
}

/* Cached keys hold 0 … T_past - 1. */
double attn_position_of_key(const struct attn_problem *p, const struct attn_position *x,
                            size_t b, size_t j)
{
    assert(j >= p->d.T_past && j < p->d.T_kv);
    return stated(x, ATTN_POSITION_KEYS, b, j - p->d.T_past, (double)j);
}

double attn_rope_position_q(const struct attn_problem *p, size_t b, size_t i)
{
    return attn_position_of_query(p, attn_turn_of(p), b, i);
}

double attn_rope_position_k(const struct attn_problem *p, size_t b, size_t j)
{
    return attn_position_of_key(p, attn_turn_of(p), b, j);
}
