/*
 * test_attn_rotate.c - RoPE on blocks of rows: the same numbers as the one-row rotation
 * of those who judge, untouched cached keys, and scores that depend on distances only.
 * Not here: worked angles (the tests of attn_position.c).
 * Start reading at blocks_are_rows.
 */
#include "core/attn_core.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const struct attn_dims SIZES =
    MAKE_DIMS(3, 5, 7, .B = 2, .T_past = 2, .d_k = 6, .d_v = 4, .h = 4, .h_kv = 2);

static void make_rope(struct made *m, enum attn_dtype dtype, enum attn_rope_layout layout)
{
    make_plain(m, 4, dtype, ATTN_SELF, SIZES);
    make_position(m, "rope")->arg[0].number = layout;
    m->p.position[0].arg[1].real = 100;
    make_prepare(m);
}

static void check_rows(const struct attn_problem *p, struct attn_mat pre,
                       struct attn_mat got, size_t first,
                       double (*position)(const struct attn_problem *, size_t, size_t))
{
    const struct attn_kernel *kernel = attn_kernel_of(p->dtype);

    for (size_t r = first; r < got.rows; r++) {
        double in[6], want[6];

        for (size_t c = 0; c < 6; c++)
            in[c] = kernel->get(pre.p, r * pre.ld + c);
        attn_rope_row(p, position(p, 0, r), in, want);
        for (size_t c = 0; c < 6; c++)
            cr_assert_float_eq(kernel->get(got.p, r * got.ld + c), want[c],
                               p->dtype == ATTN_F64 ? 1e-15 : 1e-6);
    }
}

Test(attn_rotate, blocks_are_rows)
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++)
        for (int layout = ATTN_ROPE_HALF; layout <= ATTN_ROPE_INTERLEAVED; layout++) {
            struct made m;
            struct ran r;

            make_rope(&m, (enum attn_dtype)dtype, (enum attn_rope_layout)layout);
            make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
            cr_assert(r.ok);
            check_rows(&m.p, attn_slice(&r.trace.t[ATTN_Q_PRE], 0, 3),
                       attn_slice(&r.trace.t[ATTN_Q], 0, 3), 0, attn_rope_position_q);
            check_rows(&m.p, attn_slice(&r.trace.t[ATTN_K_PRE], 0, 1),
                       attn_slice(&r.trace.t[ATTN_K], 0, 1), 2, attn_rope_position_k);
            make_run_free(&r);
            make_free(&m);
        }
}

Test(attn_rotate, cached_keys_are_not_rotated_again)
{
    struct made m;
    struct ran r;

    make_rope(&m, ATTN_F64, ATTN_ROPE_HALF);
    make_run(&m.p, ATTN_BIT(ATTN_K), ATTN_PATH_DENSE, NULL, NULL, &r);
    for (size_t b = 0; b < 2; b++)
        for (size_t g = 0; g < 2; g++)
            cr_assert_arr_eq(attn_slice(&r.trace.t[ATTN_K], b, g).p,
                             attn_slice(&m.p.in[ATTN_IN_PAST_K], b, g).p,
                             2 * 6 * sizeof(double));
    make_run_free(&r);
    make_free(&m);
}

/* Held or not, the rows before rotation leave the result alone. */
Test(attn_rotate, in_place_is_the_same)
{
    struct made m;
    struct ran apart, in_place;

    make_rope(&m, ATTN_F64, ATTN_ROPE_INTERLEAVED);
    make_run(&m.p, ATTN_BIT(ATTN_Q_PRE) | ATTN_BIT(ATTN_K_PRE), ATTN_PATH_DENSE, NULL,
             NULL, &apart);
    make_run(&m.p, ATTN_BIT(ATTN_Q), ATTN_PATH_DENSE, NULL, NULL, &in_place);
    cr_assert_neq(apart.trace.t[ATTN_Q_PRE].p, apart.trace.t[ATTN_Q].p);
    cr_assert_null(in_place.trace.t[ATTN_Q_PRE].p);
    cr_assert(make_same_bits(&apart.trace.t[ATTN_Q], &in_place.trace.t[ATTN_Q], "Q"));
    cr_assert(make_same_bits(&apart.trace.t[ATTN_K], &in_place.trace.t[ATTN_K], "K"));
    make_run_free(&apart);
    make_run_free(&in_place);
    make_free(&m);
}

/* Su et al. 2021, section 3.4.3: moving queries and keys together changes no score. */
Test(attn_rotate, scores_depend_on_distances)
{
    struct attn_dims d = SIZES;
    double q[3], k[3];
    struct made m;
    struct ran here, there;

    d.T_past = 0;
    d.T_kv = 3;
    make_plain(&m, 5, ATTN_F64, ATTN_SELF, d);
    make_position(&m, "rope");
    make_prepare(&m);
    make_run(&m.p, ATTN_BIT(ATTN_S), ATTN_PATH_DENSE, NULL, NULL, &here);
    for (size_t i = 0; i < 3; i++)
        q[i] = k[i] = 50 + (double)i;
    m.p.position[0].arg[2].table = (struct attn_table){.elem = ATTN_ELEM_F64, .p = q};
    m.p.position[0].arg[3].table = (struct attn_table){.elem = ATTN_ELEM_F64, .p = k};
    make_run(&m.p, ATTN_BIT(ATTN_S), ATTN_PATH_DENSE, NULL, NULL, &there);
    for (size_t n = 0; n < attn_tensor_count(&here.trace.t[ATTN_S]); n++)
        cr_assert_float_eq(attn_tensor_get(&here.trace.t[ATTN_S], n),
                           attn_tensor_get(&there.trace.t[ATTN_S], n), 1e-13);
    make_run_free(&here);
    make_run_free(&there);
    make_free(&m);
}
