/* test_attn_plan.c - the path, what is held, its bytes; taking needs what was planned. */
#include "core/attn_core.h"

#include <criterion/criterion.h>
#include <string.h>

static _Alignas(ATTN_ALIGN) unsigned char block[1 << 20];
static double X[2 * 3 * 7];

static struct attn_problem layer(void)
{
    struct attn_problem p = {
        .d = {.B = 2,
              .T_q = 3,
              .T_kv = 5,
              .T_past = 2,
              .d_model = 7,
              .d_model_kv = 7,
              .d_k = 4,
              .d_v = 3,
              .h = 4,
              .h_kv = 2},
        .form = {.batch_axis = true, .head_axis = true, .has_output = true},
    };

    p.in[ATTN_IN_X] =
        (struct attn_tensor){.dtype = ATTN_F64, .rank = 3, .dim = {2, 3, 7}, .p = X};
    return p;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static struct attn_plan planned(const struct attn_problem *p, uint32_t want,
                                enum attn_path path)
{
    struct attn_plan plan;
    struct attn_err err = {0};

    cr_assert(attn_plan(p, want, path, SIZE_MAX, &plan, &err), "code %d at %s", err.code,
              err.object);
    return plan;
}

Test(attn_plan, dense_holds_the_chain)
{
    const struct attn_problem p = layer();
    const struct attn_plan plan = planned(&p, ATTN_BIT(ATTN_Y), ATTN_PATH_DENSE);
    const size_t pairs = 2 * 4 * 3 * 5;

    cr_assert_eq(plan.path, ATTN_PATH_DENSE);
    cr_assert_eq(plan.held, ATTN_BIT(ATTN_X) | ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K) |
                                ATTN_BIT(ATTN_V) | ATTN_BIT(ATTN_S) |
                                ATTN_BIT(ATTN_ALLOWED) | ATTN_BIT(ATTN_A) |
                                ATTN_BIT(ATTN_H) | ATTN_BIT(ATTN_Y));
    cr_assert_eq(plan.trace_bytes, rounded(2 * 4 * 3) + rounded(2 * 4 * 3 * 4 * 8) +
                                       rounded(2 * 2 * 5 * 4 * 8) +
                                       rounded(2 * 2 * 5 * 3 * 8) +
                                       2 * rounded(pairs * 8) + rounded(pairs) +
                                       rounded(2 * 3 * 12 * 8) + rounded(2 * 3 * 7 * 8));
}

Test(attn_plan, m_is_held_when_wanted_or_biased)
{
    struct attn_problem p = layer();

    cr_assert_not(planned(&p, 0, ATTN_PATH_DENSE).held & ATTN_BIT(ATTN_M));
    cr_assert(planned(&p, ATTN_BIT(ATTN_M), ATTN_PATH_DENSE).held & ATTN_BIT(ATTN_M));
    p.position[p.position_count++].row = attn_position_find("alibi");
    cr_assert(planned(&p, 0, ATTN_PATH_DENSE).held & ATTN_BIT(ATTN_M));
    cr_assert_not(planned(&p, 0, ATTN_PATH_TILED).held & ATTN_BIT(ATTN_M));
}

Test(attn_plan, tiled_holds_nothing_pairwise)
{
    const struct attn_problem p = layer();
    const struct attn_plan plan = planned(&p, ATTN_BIT(ATTN_H_HEADS), ATTN_PATH_TILED);

    cr_assert_eq(plan.held, ATTN_BIT(ATTN_X) | ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K) |
                                ATTN_BIT(ATTN_V) | ATTN_BIT(ATTN_LSE) | ATTN_BIT(ATTN_H) |
                                ATTN_BIT(ATTN_H_HEADS) | ATTN_BIT(ATTN_Y));
}

Test(attn_plan, auto_tiles_when_no_pairs_are_wanted)
{
    struct attn_problem p = layer();

    cr_assert_eq(planned(&p, ATTN_BIT(ATTN_Y), ATTN_PATH_AUTO).path, ATTN_PATH_TILED);
    cr_assert_eq(planned(&p, ATTN_BIT(ATTN_Y) | ATTN_BIT(ATTN_LSE), ATTN_PATH_AUTO).path,
                 ATTN_PATH_TILED);
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++)
        if (ATTN_OBJECTS[o].pairwise && attn_object_exists(&p, (enum attn_object)o))
            cr_assert_eq(planned(&p, ATTN_BIT(o), ATTN_PATH_AUTO).path, ATTN_PATH_DENSE);
}

Test(attn_plan, refusals)
{
    struct attn_problem p = layer();
    struct attn_plan plan;
    struct attn_err err = {0};

    cr_assert_not(attn_plan(&p, ATTN_BIT(ATTN_Y) | ATTN_BIT(ATTN_A), ATTN_PATH_TILED,
                            SIZE_MAX, &plan, &err));
    cr_assert_eq(err.code, ATTN_E_CONTRADICTION);
    cr_assert_str_eq(err.object, "A");

    err = (struct attn_err){0};
    p.form.has_output = false;
    cr_assert_not(attn_plan(&p, ATTN_BIT(ATTN_Y), ATTN_PATH_AUTO, SIZE_MAX, &plan, &err));
    cr_assert_eq(err.code, ATTN_E_MISSING);
    cr_assert_str_eq(err.object, "Y");
}

Test(attn_plan, limit_is_exact)
{
    const struct attn_problem p = layer();
    const size_t bytes = planned(&p, 0, ATTN_PATH_DENSE).trace_bytes;
    struct attn_plan plan;
    struct attn_err err = {0};

    cr_assert(attn_plan(&p, 0, ATTN_PATH_DENSE, bytes, &plan, &err));
    cr_assert_not(attn_plan(&p, 0, ATTN_PATH_DENSE, bytes - 1, &plan, &err));
    cr_assert_eq(err.code, ATTN_E_MEMORY);
    cr_assert(err.want == bytes - 1 && err.got == bytes);
}

Test(attn_plan, products_that_overflow)
{
    struct attn_problem p = layer();
    struct attn_plan plan;
    struct attn_err err = {0};

    p.d.B = p.d.T_q = p.d.T_kv = INT32_MAX;
    cr_assert_not(attn_plan(&p, 0, ATTN_PATH_DENSE, SIZE_MAX, &plan, &err));
    cr_assert_eq(err.code, ATTN_E_OVERFLOW);
}

Test(attn_plan, taking_needs_exactly_what_was_planned)
{
    const uint32_t everything = (ATTN_BIT(ATTN_OBJECT_COUNT) - 1) & ~ATTN_BIT(ATTN_X_KV);
    const struct attn_problem p = layer();
    const struct attn_plan plan = planned(&p, everything, ATTN_PATH_DENSE);
    struct attn_arena arena = {.base = block, .size = plan.trace_bytes};
    struct attn_trace trace;
    struct attn_err err = {0};

    cr_assert_leq(plan.trace_bytes, sizeof block);
    memset(block, 0xff, sizeof block);
    cr_assert(attn_trace_take(&p, &plan, &arena, &trace, &err));
    cr_assert_eq(arena.used, plan.trace_bytes);
    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        struct attn_tensor shape;

        attn_object_full_shape(&p, (enum attn_object)o, &shape);
        cr_assert_eq(trace.t[o].p != NULL, o != ATTN_X_KV, "%s", ATTN_OBJECTS[o].name);
        if (o == ATTN_X_KV)
            continue;
        shape.p = trace.t[o].p;
        cr_assert_eq(memcmp(&shape, &trace.t[o], sizeof shape), 0, "%s",
                     ATTN_OBJECTS[o].name);
    }
    cr_assert_eq(trace.t[ATTN_X].p, (void *)X);
    for (size_t n = 0; n < 2 * 4 * 3; n++)
        cr_assert_eq(trace.empty[n], 0);

    arena = (struct attn_arena){.base = block, .size = plan.trace_bytes - 64};
    cr_assert_not(attn_trace_take(&p, &plan, &arena, &trace, &err));
    cr_assert_eq(err.code, ATTN_E_MEMORY);
}

Test(attn_plan, identical_objects_share_memory)
{
    const uint32_t want = ATTN_BIT(ATTN_PRESENT_K) | ATTN_BIT(ATTN_PRESENT_V) |
                          ATTN_BIT(ATTN_Q_PRE) | ATTN_BIT(ATTN_K_PRE) |
                          ATTN_BIT(ATTN_H_HEADS);
    struct attn_problem p = layer();
    struct attn_arena arena = {.base = block, .size = sizeof block};
    struct attn_trace t;
    struct attn_err err = {0};

    p.d.h = p.d.h_kv = 1;

    struct attn_plan plan = planned(&p, want, ATTN_PATH_DENSE);

    cr_assert_eq(plan.trace_bytes, planned(&p, 0, ATTN_PATH_DENSE).trace_bytes);
    cr_assert(attn_trace_take(&p, &plan, &arena, &t, &err));
    cr_assert_eq(t.t[ATTN_PRESENT_K].p, t.t[ATTN_K].p);
    cr_assert_eq(t.t[ATTN_PRESENT_V].p, t.t[ATTN_V].p);
    cr_assert_eq(t.t[ATTN_Q_PRE].p, t.t[ATTN_Q].p);
    cr_assert_eq(t.t[ATTN_K_PRE].p, t.t[ATTN_K].p);
    cr_assert_eq(t.t[ATTN_H_HEADS].p, t.t[ATTN_H].p);
    cr_assert_eq(t.t[ATTN_H_HEADS].rank, 4);

    p.position[p.position_count++].row = attn_position_find("rope");
    p.d.h = 2;
    plan = planned(&p, want, ATTN_PATH_DENSE);
    arena.used = 0;
    cr_assert(attn_trace_take(&p, &plan, &arena, &t, &err));
    cr_assert_neq(t.t[ATTN_Q_PRE].p, t.t[ATTN_Q].p);
    cr_assert_neq(t.t[ATTN_K_PRE].p, t.t[ATTN_K].p);
    cr_assert_neq(t.t[ATTN_H_HEADS].p, t.t[ATTN_H].p);
}
