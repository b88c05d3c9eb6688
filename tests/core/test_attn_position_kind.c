/*
 * test_attn_position_kind.c - a position kind is a row and one function: two rows that no
 * table knows run, are judged, give gradients and bias as their one function says; and
 * every row of the table keeps what its faster forms promise.
 * Not here: what RoPE and ALiBi compute (test_attn_position.c, test_attn_rotate.c).
 * Start reading at SHEAR and DECAY.
 */
#include "core/attn_core.h"
#include "core/attn_judge.h"
#include "make_problem.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct attn_dims SIZES =
    MAKE_DIMS(3, 5, 7, .B = 2, .T_past = 2, .d_k = 6, .d_v = 4, .h = 4, .h_kv = 2);

/* ---- two kinds of this file -------------------------------------------------------- */

/* Of a row at position t: x_0 + t·strength·x_1 in the place of x_0; neither symmetric nor
   orthogonal, so that a transpose forgotten shows. */
static void shear(const struct attn_problem *p, const struct attn_position *x,
                  struct attn_turn turn, double *row)
{
    const double by = turn.at * x->arg[0].real * (turn.of_key ? -1 : 1);

    (void)p;
    if (turn.back)
        row[1] += by * row[0];
    else
        row[0] += by * row[1];
}

static double decay(const struct attn_problem *p, const struct attn_position *x, size_t b,
                    size_t h, size_t i, size_t j)
{
    (void)p, (void)b, (void)i;
    return -x->arg[0].real * (double)(j * (h + 1));
}

static const struct attn_position_row SHEAR = {
    .name = "shear",
    .param = {{"strength", ATTN_POSITION_REAL, .otherwise = .25},
              {"q", ATTN_POSITION_QUERIES}},
    .turn = shear};
static const struct attn_position_row DECAY = {
    .name = "decay",
    .param = {{"rate", ATTN_POSITION_REAL, .otherwise = .5, .positive = true}},
    .bias = decay};

static void make(struct made *m, enum attn_dtype dtype)
{
    make_plain(m, 11, dtype, ATTN_SELF, SIZES);
    m->p.position[m->p.position_count++] = attn_position_of_row(&SHEAR);
    m->p.position[m->p.position_count++] = attn_position_of_row(&DECAY);
    make_prepare(m);
}

static double close_to(enum attn_dtype dtype)
{
    return dtype == ATTN_F64 ? 1e-14 : 1e-5;
}

Test(attn_position_kind, rows_are_turned_where_they_stand)
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++) {
        const struct attn_kernel *kernel = attn_kernel_of((enum attn_dtype)dtype);
        struct made m;
        struct ran r;

        make(&m, (enum attn_dtype)dtype);
        make_run_all(&m.p, ATTN_PATH_DENSE, NULL, &r);
        cr_assert(r.ok);
        cr_assert_neq(r.trace.t[ATTN_Q_PRE].p, r.trace.t[ATTN_Q].p);
        for (size_t i = 0; i < 3; i++) {
            const void *pre = attn_slice(&r.trace.t[ATTN_Q_PRE], 1, 3).p;
            const void *Q = attn_slice(&r.trace.t[ATTN_Q], 1, 3).p;

            cr_assert_float_eq(kernel->get(Q, i * 6),
                               kernel->get(pre, i * 6) +
                                   .25 * (double)(2 + i) * kernel->get(pre, i * 6 + 1),
                               close_to((enum attn_dtype)dtype));
            cr_assert_eq(kernel->get(Q, i * 6 + 1), kernel->get(pre, i * 6 + 1));
        }
        for (size_t j = 0; j < 5; j++) {
            const void *pre = attn_slice(&r.trace.t[ATTN_K_PRE], 1, 1).p;
            const void *K = attn_slice(&r.trace.t[ATTN_K], 1, 1).p;
            const double by = j < 2 ? 0 : -.25 * (double)j;

            cr_assert_float_eq(kernel->get(K, j * 6),
                               kernel->get(pre, j * 6) + by * kernel->get(pre, j * 6 + 1),
                               close_to((enum attn_dtype)dtype));
        }
        make_run_free(&r);
        make_free(&m);
    }
}

Test(attn_position_kind, bias_enters_m_on_both_paths)
{
    struct made m;
    struct ran dense, tiled;

    make(&m, ATTN_F64);
    make_run(&m.p, ATTN_BIT(ATTN_Y), ATTN_PATH_DENSE, NULL, NULL, &dense);
    make_run(&m.p, ATTN_BIT(ATTN_Y), ATTN_PATH_TILED, NULL, NULL, &tiled);
    cr_assert(dense.ok && tiled.ok);
    cr_assert(dense.plan.held & ATTN_BIT(ATTN_M));
    cr_assert_eq(attn_tensor_get(&dense.trace.t[ATTN_M], ((1 * 4 + 2) * 3 + 1) * 5 + 4),
                 -.5 * 4 * 3);
    for (size_t n = 0; n < attn_tensor_count(&dense.trace.t[ATTN_Y]); n++)
        cr_assert_float_eq(attn_tensor_get(&dense.trace.t[ATTN_Y], n),
                           attn_tensor_get(&tiled.trace.t[ATTN_Y], n), 1e-12);
    make_run_free(&dense);
    make_run_free(&tiled);
    make_free(&m);
}

static void passes_audit(const struct made *m, enum attn_path path)
{
    struct attn_arena arena = {0};
    struct attn_err err = {0};
    struct attn_audit audit;
    struct ran r;

    make_run_all(&m->p, path, NULL, &r);
    cr_assert(r.ok);
    arena.size = attn_audit_bytes(&m->p, &r.plan, ATTN_AUDIT_FULL);
    arena.base = aligned_alloc(ATTN_ALIGN, (arena.size + 63) / 64 * 64);
    cr_assert(attn_audit_trace(&m->p, &r.plan, &r.trace, NULL, ATTN_AUDIT_FULL, 1, NULL,
                               &arena, NULL, &audit, &err));
    for (size_t n = 0; n < audit.count; n++)
        cr_assert(audit.finding[n].status != ATTN_FAIL, "%s", audit.finding[n].row->id);
    cr_assert_eq(audit.status, ATTN_PASS);
    free(arena.base);
    make_run_free(&r);
}

Test(attn_position_kind, the_judge_agrees)
{
    for (int dtype = ATTN_F64; dtype <= ATTN_F32; dtype++) {
        struct made m;

        make(&m, (enum attn_dtype)dtype);
        passes_audit(&m, ATTN_PATH_DENSE);
        passes_audit(&m, ATTN_PATH_TILED);
        make_free(&m);
    }
}

/* The judge's bound is no blank cheque: a layer that does not turn is found out. */
Test(attn_position_kind, the_judge_sees_rows_that_were_not_turned)
{
    struct attn_judged turned[6], before[6];
    struct made m;

    make(&m, ATTN_F32);
    attn_judge_q(&m.p, 1, 2, 1, false, before);
    attn_judge_q(&m.p, 1, 2, 1, true, turned);
    cr_assert_not(attn_judge_near(before[0].value, turned[0]));
    cr_assert(attn_judge_near(before[0].value + .25 * 3 * before[1].value, turned[0]));
    cr_assert(attn_judge_near(before[5].value, turned[5]));
    make_free(&m);
}

Test(attn_position_kind, gradients_go_back_through_the_transpose)
{
    struct attn_grad_ask ask = {.of = ATTN_Y, .check = true};
    struct attn_arena arena = {0};
    struct attn_err err = {0};
    struct attn_grads grads;
    struct made m;
    struct ran r;

    make(&m, ATTN_F64);
    ask.cotangent = (struct attn_tensor){.dtype = ATTN_F64, .rank = 3, .dim = {2, 3, 7}};
    ask.cotangent.p = make_block(&m, 2 * 3 * 7 * sizeof(double));
    for (size_t n = 0; n < 2 * 3 * 7; n++)
        ((double *)ask.cotangent.p)[n] = make_normal(&m);
    make_run(&m.p, attn_grad_needs(&m.p, &ask), ATTN_PATH_DENSE, NULL, NULL, &r);
    cr_assert(r.ok);
    arena.size = attn_grad_bytes(&m.p, &ask);
    arena.base = aligned_alloc(ATTN_ALIGN, (arena.size + 63) / 64 * 64);
    cr_assert(attn_grad(&m.p, &r.trace, &ask, &arena, NULL, &grads, &err));
    cr_assert(grads.check.done && grads.check.pass, "relative error %g",
              grads.check.worst_relative_error);
    free(arena.base);
    make_run_free(&r);
    make_free(&m);
}

/* ---- refusals ---------------------------------------------------------------------- */

static void refused(struct attn_problem p, enum attn_code code, const char *object,
                    const char *axis)
{
    struct attn_err err = {0};

    cr_assert_not(attn_prepare(&p, &err));
    cr_assert_eq(err.code, code);
    cr_assert_str_eq(err.object, object);
    cr_assert_str_eq(err.axis, axis);
}

Test(attn_position_kind, what_cannot_be_is_refused)
{
    struct attn_problem p;
    struct made m;

    make(&m, ATTN_F64);
    p = m.p;
    p.position[1].arg[0].real = 0;
    refused(p, ATTN_E_RANGE, "decay", "rate");
    p = m.p;
    p.position[0].arg[0].real = INFINITY;
    refused(p, ATTN_E_RANGE, "shear", "strength");
    p = m.p;
    p.position[p.position_count++] = attn_position_of_row(attn_position_find("rope"));
    refused(p, ATTN_E_CONTRADICTION, "rope", "shear");
    p = m.p;
    p.d.d_k = ATTN_TURN_WIDTH_MAX + 1;
    refused(p, ATTN_E_OVERFLOW, "shear", "d_k");
    make_free(&m);
}

Test(attn_position_kind, a_turn_taken_away_leaves_the_biases)
{
    struct made m;

    make(&m, ATTN_F64);
    attn_without_turn(&m.p);
    cr_assert_null(attn_turn_of(&m.p));
    cr_assert(m.p.position_count == 1 && attn_is_biased(&m.p));
    cr_assert_eq(attn_bias(&m.p, 0, 1, 0, 3), -.5 * 6);
    make_free(&m);
}

/* ---- every row of the table -------------------------------------------------------- */

/* A problem with kind n alone, every table stated. */
static void make_kind(struct made *m, size_t n, int choice)
{
    const struct attn_position_row *row = attn_position_at(n);
    double *numbers;

    make_plain(m, 20 + n, ATTN_F64, ATTN_SELF, SIZES);
    numbers = make_block(m, 8 * sizeof *numbers);
    for (size_t k = 0; k < 8; k++)
        numbers[k] = (double)(3 * k) + .5;
    struct attn_position *x = make_position(m, row->name);

    for (size_t a = 0; a < ATTN_PARAMS_MAX; a++) {
        if (row->param[a].kind == ATTN_POSITION_CHOICE && row->param[a].choice[choice])
            x->arg[a].number = choice;
        if (row->param[a].kind >= ATTN_POSITION_QUERIES)
            x->arg[a].table = (struct attn_table){.elem = ATTN_ELEM_F64, .p = numbers};
    }
    make_prepare(m);
}

static void turned(const struct made *m, struct attn_turn how, const double *in,
                   double *out)
{
    memcpy(out, in, 6 * sizeof *out);
    m->p.position[0].row->turn(&m->p, &m->p.position[0], how, out);
}

static double product(const double *a, const double *b)
{
    double sum = 0;

    for (size_t c = 0; c < 6; c++)
        sum += a[c] * b[c];
    return sum;
}

static void check_turn(struct made *m, struct attn_turn how)
{
    const struct attn_turn back = {how.at, how.of_key, true};
    double u[6], v[6], both[6], Tu[6], Tv[6], Tboth[6], back_v[6];

    for (size_t c = 0; c < 6; c++) {
        u[c] = make_normal(m);
        v[c] = make_normal(m);
        both[c] = 2 * u[c] - v[c];
    }
    turned(m, how, u, Tu);
    turned(m, how, v, Tv);
    turned(m, how, both, Tboth);
    turned(m, back, v, back_v);
    for (size_t c = 0; c < 6; c++)
        cr_assert_float_eq(Tboth[c], 2 * Tu[c] - Tv[c], 1e-13, "not linear");
    cr_assert_float_eq(product(Tu, v), product(u, back_v), 1e-13, "no transpose");
}

static void check_forms(struct made *m)
{
    const struct attn_position *x = &m->p.position[0];
    double in[6], out[6], want[6];

    if (x->row->bias_row)
        for (size_t i = 0; i < 3; i++) {
            double row[5] = {1, 1, 1, 1, 1};

            x->row->bias_row(&m->p, x, 1, 2, i, 1, 5, row + 1);
            for (size_t j = 0; j < 5; j++)
                cr_assert_eq(row[j], 1 + (j ? x->row->bias(&m->p, x, 1, 2, i, j) : 0));
        }
    if (x->row->turn_rows && x->row->turn_judged)
        for (size_t i = 0; i < 3; i++) {
            struct attn_judged judged[6];
            const struct attn_turn how = {.at = attn_position_of_query(&m->p, x, 1, i)};

            for (size_t c = 0; c < 6; c++) {
                in[c] = make_normal(m);
                judged[c] = (struct attn_judged){in[c], 0};
            }
            turned(m, how, in, want);
            x->row->turn_judged(&m->p, x, how, judged);
            x->row->turn_rows(&m->p, x, 1, i, false,
                              (struct attn_mat){ATTN_F64, in, 1, 6, 6},
                              (struct attn_mat){ATTN_F64, out, 1, 6, 6});
            for (size_t c = 0; c < 6; c++) {
                cr_assert(attn_judge_near(want[c], judged[c]));
                cr_assert(attn_judge_near(out[c], judged[c]));
            }
        }
}

Test(attn_position_kind, every_row_is_linear_and_its_forms_agree)
{
    for (size_t n = 0; n < attn_position_count(); n++)
        for (int choice = 0; choice < ATTN_CHOICES_MAX; choice++) {
            const struct attn_position_row *row = attn_position_at(n);
            struct made m;

            cr_assert((row->turn != NULL) != (row->bias != NULL), "%s", row->name);
            make_kind(&m, n, choice);
            for (int side = 0; row->turn && side < 2; side++)
                check_turn(&m, (struct attn_turn){.at = 2.5, .of_key = side == 1});
            check_forms(&m);
            make_free(&m);
        }
}
