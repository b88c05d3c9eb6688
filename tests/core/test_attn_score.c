/*
 * test_attn_score.c - the table of score functions: names, worked numbers, derivatives,
 * and that what runs equals what judges. Not here: scale and softcap
 * (test_attn_softmax.c). Start reading at worked_numbers.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>

enum { D_K = 5, KEYS = 3 };

Test(attn_score, names_are_found)
{
    cr_assert_eq(attn_score_count(), 2);
    for (size_t n = 0; n < attn_score_count(); n++)
        cr_assert_eq(attn_score_find(attn_score_at(n)->name), attn_score_at(n));
    cr_assert_null(attn_score_find("cosine"));
    cr_assert(attn_score_find("dot_product")->scaled_by_default);
    cr_assert(attn_score_find("additive")->needs_v_a);
}

Test(attn_score, worked_numbers)
{
    const double q[] = {1, 2}, k[] = {3, -1}, v_a[] = {2, -1};

    cr_assert_eq(attn_score_find("dot_product")->pair(2, q, k, NULL, 0, NULL, NULL, NULL),
                 1);
    /* 2 tanh 4 - tanh 1 */
    cr_assert_float_eq(
        attn_score_find("additive")->pair(2, q, k, v_a, 0, NULL, NULL, NULL),
        2 * 0.99932929973906704 - 0.76159415595576489, 1e-15);
}

/* Derivatives against central differences in each of the three arguments. */
Test(attn_score, derivatives)
{
    const double step = 1e-6, g = 0.7;

    for (size_t n = 0; n < attn_score_count(); n++) {
        const struct attn_score_row *row = attn_score_at(n);
        struct made m = {.state = 20 + n};
        double x[3][D_K], d[3][D_K];

        for (size_t c = 0; c < 3 * D_K; c++) {
            x[c / D_K][c % D_K] = make_normal(&m);
            d[c / D_K][c % D_K] = 1;
        }
        row->pair(D_K, x[0], x[1], x[2], g, d[0], d[1], d[2]);
        for (size_t c = 0; c < 3 * D_K; c++) {
            double *at = &x[c / D_K][c % D_K], was = *at;

            *at = was + step;
            const double up = row->pair(D_K, x[0], x[1], x[2], 0, NULL, NULL, NULL);
            *at = was - step;
            const double down = row->pair(D_K, x[0], x[1], x[2], 0, NULL, NULL, NULL);
            *at = was;
            cr_assert_float_eq(d[c / D_K][c % D_K], 1 + g * (up - down) / (2 * step),
                               1e-8, "%s argument %zu", row->name, c);
        }
    }
}

Test(attn_score, what_runs_is_what_judges)
{
    const struct attn_score_row *row = attn_score_find("additive");
    struct made m = {.state = 30};

    for (size_t d_k = 1; d_k < 40; d_k++) {
        double q[40], k[KEYS * 40], v_a[40], s[KEYS];

        for (size_t c = 0; c < 40; c++) {
            q[c] = make_normal(&m);
            v_a[c] = make_normal(&m);
        }
        for (size_t c = 0; c < KEYS * 40; c++)
            k[c] = make_normal(&m);
        row->keys(ATTN_F64, KEYS, d_k, q, k, v_a, s);
        for (size_t j = 0; j < KEYS; j++)
            cr_assert_float_eq(
                s[j], row->pair(d_k, q, k + j * d_k, v_a, 0, NULL, NULL, NULL), 1e-13);
    }
}
