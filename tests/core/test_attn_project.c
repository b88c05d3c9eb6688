/*
 * test_attn_project.c - projections: orientation on worked numbers, cached and given rows
 * bit for bit, biases, and rows of matrices. Not here: random problems against slow loops
 * (test_attn_run.c). Start reading at worked_numbers.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* X W with heads side by side: head i owns columns i*d … (i+1)*d - 1. */
Test(attn_project, worked_numbers)
{
    const struct attn_dims d =
        MAKE_DIMS(2, 2, 2, .B = 1, .d_k = 1, .d_v = 2, .h = 2, .h_kv = 1);
    const double X[] = {1, 2, 3, 4}, W_Q[] = {1, 10, 100, 1000}, W_K[] = {1, -1};
    const double W_V[] = {1, 0, 0, 2}, b_V[] = {0.5, 0};
    const double Q[] = {201, 403, 2010, 4030}, K[] = {-1, -1}, V[] = {1.5, 4, 3.5, 8};
    struct made m;
    struct ran r;

    make_plain(&m, 1, ATTN_F64, ATTN_SELF, d);
    memcpy(m.p.in[ATTN_IN_X].p, X, sizeof X);
    memcpy(m.p.in[ATTN_IN_W_Q].p, W_Q, sizeof W_Q);
    memcpy(m.p.in[ATTN_IN_W_K].p, W_K, sizeof W_K);
    memcpy(m.p.in[ATTN_IN_W_V].p, W_V, sizeof W_V);
    m.p.in[ATTN_IN_B_V] = (struct attn_tensor){ATTN_F64, 1, {2}, (void *)b_V};
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
    cr_assert(r.ok);
    cr_assert_arr_eq(r.trace.t[ATTN_Q].p, Q, sizeof Q);
    cr_assert_arr_eq(r.trace.t[ATTN_K].p, K, sizeof K);
    cr_assert_arr_eq(r.trace.t[ATTN_V].p, V, sizeof V);
    cr_assert_arr_eq(r.trace.t[ATTN_PRESENT_V].p, V, sizeof V);
    make_run_free(&r);
    make_free(&m);
}

/* What was given or cached arrives bit for bit, cached rows first. */
Test(attn_project, given_rows_keep_their_bits)
{
    const struct attn_dims d =
        MAKE_DIMS(3, 5, 4, .B = 2, .T_past = 2, .d_k = 6, .d_v = 3, .h = 4, .h_kv = 2);
    struct made m;
    struct ran r;

    make_plain(&m, 2, ATTN_F32, ATTN_PROJECTED, d);
    make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
    cr_assert(r.ok);
    cr_assert(make_same_bits(&m.p.in[ATTN_IN_Q], &r.trace.t[ATTN_Q], "Q"));
    for (size_t b = 0; b < d.B; b++)
        for (size_t g = 0; g < d.h_kv; g++) {
            const struct attn_mat K = attn_slice(&r.trace.t[ATTN_K], b, g);
            const struct attn_mat past = attn_slice(&m.p.in[ATTN_IN_PAST_K], b, g);
            const struct attn_mat fresh = attn_slice(&m.p.in[ATTN_IN_K], b, g);
            const size_t row = d.d_k * sizeof(float);

            cr_assert_arr_eq(K.p, past.p, 2 * row);
            cr_assert_arr_eq((char *)K.p + 2 * row, fresh.p, 3 * row);
        }
    make_run_free(&r);
    make_free(&m);
}

/* A row that reads nothing has H = 0 and so Y = b_O. */
Test(attn_project, empty_rows_answer_the_output_bias)
{
    const struct attn_dims d =
        MAKE_DIMS(4, 4, 3, .B = 1, .d_k = 2, .d_v = 2, .h = 2, .h_kv = 2);
    const double b_O[] = {1.25, -3, 0.1};
    const int64_t none = 0;
    struct made m;
    struct ran r;

    for (int path = ATTN_PATH_DENSE; path <= ATTN_PATH_TILED; path++) {
        make_plain(&m, 3, ATTN_F64, ATTN_SELF, d);

        struct attn_mask *mask = make_mask(&m, "padding");

        mask->arg[0].given = true;
        mask->arg[0].table = (struct attn_table){.elem = ATTN_ELEM_I64, .p = &none};
        m.p.in[ATTN_IN_B_O] = (struct attn_tensor){ATTN_F64, 1, {3}, (void *)b_O};
        make_run(&m.p, ATTN_BIT(ATTN_Y), (enum attn_path)path, NULL, NULL, &r);
        cr_assert(r.ok);
        for (size_t i = 0; i < d.T_q; i++)
            cr_assert_arr_eq((double *)r.trace.t[ATTN_Y].p + i * 3, b_O, sizeof b_O);
        make_run_free(&r);
        make_free(&m);
    }
}

Test(attn_project, rows_of_a_matrix)
{
    double from[] = {1, 2, 3, 4, 5, 6}, to[8] = {0};
    const struct attn_mat F = {ATTN_F64, from, 3, 2, 2}, T = {ATTN_F64, to, 2, 2, 4};
    const double want[8] = {3, 4, 0, 0, 5, 6, 0, 0};

    attn_mat_copy(T, attn_mat_rows(F, 1, 2));
    cr_assert_arr_eq(to, want, sizeof want);
}
