/*
 * api_audit_compare.c - a companion against the main problem: query rows that read the
 * same must give the same. Not here: whether either is right (core/attn_diagnose*.c).
 * Start reading at api_rows_compare.
 *
 * Which rows read the same is not taken from the companion's name.  An item alone, an
 * earlier row under a causal mask, a row of an untouched document, a token decoded from a
 * cache: in each case the right layer gives the same numbers in both problems, so two
 * rows are held against each other exactly when their right outputs agree.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "api/api_audit.h"

/* Right rows agree: rounding of a float64 layer of another length. */
static const double SAME_RIGHT = 1e-12;
/* Beyond so many pairs of rows only those at the same place are looked at. */
static const double PAIRS_MAX = 4e6;

struct rows { /* one problem's rows of the object compared, [B*T_q, width] */
    size_t count, T_q, width;
    const double *right, *observed;
};

static bool is_zero(const double *x, size_t n)
{
    for (size_t c = 0; c < n; c++)
        if (x[c] != 0.0)
            return false;
    return true;
}

static bool is_close(const double *x, const double *y, size_t n)
{
    for (size_t c = 0; c < n; c++)
        if (!(fabs(x[c] - y[c]) <= SAME_RIGHT * fmax(1.0, fabs(x[c]))))
            return false;
    return true;
}

/* The row of `main` that gives what row n of `companion` gives; SIZE_MAX when none does.
 */
static size_t find_row(const struct rows *main, const struct rows *companion, size_t n)
{
    const double *right = companion->right + n * companion->width;
    const bool same_layout =
        main->T_q == companion->T_q && main->count == companion->count;

    /* Empty rows are alike without reading anything. */
    if (is_zero(right, companion->width))
        return SIZE_MAX;
    if (same_layout && is_close(main->right + n * main->width, right, main->width))
        return n;
    if ((double)main->count * (double)companion->count > PAIRS_MAX)
        return SIZE_MAX;
    for (size_t m = 0; m < main->count; m++)
        if (is_close(main->right + m * main->width, right, main->width))
            return m;
    return SIZE_MAX;
}

/* Largest relative difference of two rows; NaN when a number is missing in one. */
static double row_distance(const double *x, const double *y, size_t n)
{
    double largest = 0.0;

    for (size_t c = 0; c < n; c++) {
        const double d = fabs(x[c] - y[c]) / fmax(1.0, fabs(x[c]));

        if (isnan(d) && !(x[c] == y[c]))
            return NAN;
        if (d > largest)
            largest = d;
    }
    return largest;
}

static bool within(const struct attn_candidate *c, const double *right, const double *x,
                   const double *y, size_t n)
{
    for (size_t k = 0; k < n; k++)
        if (!(fabs(x[k] - y[k]) <= 2.0 * (c->atol + c->rtol * fabs(right[k]))))
            return false;
    return true;
}

static void compare(const struct rows *main, const struct rows *companion,
                    const struct attn_candidate *candidate, struct api_rows_alike *alike)
{
    const size_t width = main->width;

    assert(main->observed != NULL && companion->observed != NULL);
    for (size_t n = 0; n < companion->count; n++) {
        const size_t m = find_row(main, companion, n);
        const double *x, *y;
        double d;

        if (m == SIZE_MAX)
            continue;
        x = main->observed + m * width;
        y = companion->observed + n * width;
        d = row_distance(x, y, width);
        alike->rows++;
        alike->same_bits = alike->same_bits && memcmp(x, y, width * sizeof *x) == 0;
        if (!isnan(alike->largest) && (isnan(d) || d > alike->largest))
            alike->largest = d;
        if (within(candidate, main->right + m * width, x, y, width))
            continue;
        if (alike->differ++ == 0) {
            alike->at[0] = m / main->T_q;
            alike->at[1] = m % main->T_q;
            alike->companion_at[0] = n / companion->T_q;
            alike->companion_at[1] = n % companion->T_q;
        }
    }
}

static bool run(struct api_ctx *ctx, const struct attn_exec *exec,
                const struct api_judged *judged, enum attn_object o, struct rows *rows,
                struct api_err *err)
{
    const struct attn_problem *p = &judged->r.p;
    struct attn_arena *arena = &ctx->arena;
    struct attn_err core = {0};
    struct attn_plan plan;
    struct attn_trace trace;

    if (!attn_plan(p, ATTN_BIT(o), ATTN_PATH_DENSE, arena->size - arena->used, &plan,
                   &core) ||
        !attn_run(p, &plan, arena, exec, NULL, &trace, &core))
        return api_fail_core(err, &core);
    *rows = (struct rows){.count = p->d.B * p->d.T_q,
                          .T_q = p->d.T_q,
                          .width = trace.t[o].dim[2],
                          .right = trace.t[o].p,
                          .observed = judged->candidate.object[o].p};
    return true;
}

bool api_rows_compare(struct api_ctx *ctx, const struct attn_exec *exec,
                      const struct api_judged *main, const struct api_judged *companion,
                      struct api_rows_alike *alike, struct api_err *err)
{
    static const enum attn_object OF[] = {ATTN_Y, ATTN_H};
    const size_t mark = attn_arena_mark(&ctx->arena);
    struct rows of_main = {0}, of_companion = {0};

    *alike = (struct api_rows_alike){.object = ATTN_H, .same_bits = true};
    for (size_t n = 0; n < API_COUNT(OF) && !alike->given; n++) {
        alike->object = OF[n];
        alike->given = main->candidate.object[OF[n]].p != NULL &&
                       companion->candidate.object[OF[n]].p != NULL;
    }
    if (!alike->given)
        return true;
    if (!run(ctx, exec, main, alike->object, &of_main, err) ||
        !run(ctx, exec, companion, alike->object, &of_companion, err))
        return false;
    if (of_main.width == of_companion.width)
        compare(&of_main, &of_companion, &companion->candidate, alike);
    attn_arena_release(&ctx->arena, mark);
    return true;
}
