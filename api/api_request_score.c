/*
 * api_request_score.c - score and position: functions, their numbers, RoPE tables, ALiBi
 * slopes.
 * Not here: what they compute (core/attn_score.c, core/attn_position.c).
 * Start reading at SCORE and POSITION.
 */
#include "api/api_request.h"

#include <string.h>

/* ---- score ---- */

static bool read_function(void *into, const struct api_doc *doc, const json_t *v,
                          const char *pointer, struct api_err *err)
{
    enum { SCORES_MAX = 32 };
    const char *names[SCORES_MAX];
    size_t count = 0;
    int choice;

    (void)doc;
    for (; count < attn_score_count() && count < SCORES_MAX; count++)
        names[count] = attn_score_at(count)->name;
    if (!api_read_choice(v, pointer, names, count, &choice, err))
        return false;
    ((struct api_reading *)into)->r->p.score = attn_score_at((size_t)choice);
    return true;
}

static bool read_scale(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    struct attn_problem *p = &((struct api_reading *)into)->r->p;

    (void)doc;
    p->scale_stated = true;
    return api_read_double(v, pointer, &p->scale, err);
}

static bool read_temperature(void *into, const struct api_doc *doc, const json_t *v,
                             const char *pointer, struct api_err *err)
{
    double *x = &((struct api_reading *)into)->r->p.temperature;

    (void)doc;
    return api_read_double(v, pointer, x, err) &&
           (*x > 0.0 || api_fail(err, "bad-value", pointer,
                                 "temperature must be greater than 0; it is %g.", *x));
}

static bool read_softcap(void *into, const struct api_doc *doc, const json_t *v,
                         const char *pointer, struct api_err *err)
{
    double *x = &((struct api_reading *)into)->r->p.softcap;

    (void)doc;
    return api_read_double(v, pointer, x, err) &&
           (*x >= 0.0 || api_fail(err, "bad-value", pointer,
                                  "softcap must be 0 (none) or more; it is %g.", *x));
}

/* clang-format off */
static const struct api_field_row SCORE[] = {
    { "function",    read_function,         false },
    { "scale",       read_scale,            false },
    { "temperature", read_temperature,      false },
    { "softcap",     read_softcap,          false },
    { "v_a",         api_read_input_tensor, false },
};
/* clang-format on */

bool api_read_score(void *into, const struct api_doc *doc, const json_t *v,
                    const char *pointer, struct api_err *err)
{
    const struct api_reading *rd = into;
    const struct attn_score_row *score;

    if (!api_read_object(into, doc, v, pointer, SCORE, API_COUNT(SCORE), err))
        return false;
    score = rd->r->p.score;
    if (score->needs_v_a && !rd->in[ATTN_IN_V_A].present)
        return api_fail(err, "missing", "/score/v_a", "The function \"%s\" needs v_a.",
                        score->name);
    if (!score->needs_v_a && rd->in[ATTN_IN_V_A].present)
        return api_fail(err, "contradiction", "/score/v_a",
                        "The function \"%s\" has no v_a.", score->name);
    return true;
}

/* ---- position ---- */

static bool read_layout(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    static const char *const LAYOUTS[] = {
        [ATTN_ROPE_HALF] = "half",
        [ATTN_ROPE_INTERLEAVED] = "interleaved",
    };
    int choice;

    (void)doc;
    if (!api_read_choice(v, pointer, LAYOUTS, API_COUNT(LAYOUTS), &choice, err))
        return false;
    ((struct api_reading *)into)->r->p.rope.layout = (enum attn_rope_layout)choice;
    return true;
}

static bool read_base(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    double *base = &((struct api_reading *)into)->r->p.rope.base;

    (void)doc;
    return api_read_double(v, pointer, base, err) &&
           (*base > 0.0 || api_fail(err, "bad-value", pointer,
                                    "base must be greater than 0; it is %g.", *base));
}

static bool read_rope_q(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    return api_tensor_scan(doc, v, pointer, &((struct api_reading *)into)->rope_q, err);
}

static bool read_rope_k(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    return api_tensor_scan(doc, v, pointer, &((struct api_reading *)into)->rope_k, err);
}

/* clang-format off */
static const struct api_field_row ROPE[] = {
    { "layout", read_layout, false },
    { "base",   read_base,   false },
    { "q",      read_rope_q, false },
    { "k",      read_rope_k, false },
};
/* clang-format on */

static bool read_rope(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    struct api_reading *rd = into;
    struct attn_rope *rope = &rd->r->p.rope;

    rope->on = true;
    rope->layout = ATTN_ROPE_HALF;
    rope->base = 10000.0;
    if (!api_read_object(into, doc, v, pointer, ROPE, API_COUNT(ROPE), err))
        return false;
    if (json_object_get(v, "layout") == NULL)
        api_warn(rd->r, "position.rope.layout was not stated: \"half\" was taken.");
    return true;
}

static bool read_slopes(void *into, const struct api_doc *doc, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    static const char *const NAMES[] = {"standard"};
    struct api_reading *rd = into;
    int choice;

    rd->alibi_standard = json_is_string(v);
    if (rd->alibi_standard)
        return api_read_choice(v, pointer, NAMES, API_COUNT(NAMES), &choice, err);
    return api_tensor_scan(doc, v, pointer, &rd->alibi_slopes, err);
}

static const struct api_field_row ALIBI[] = {{"slopes", read_slopes, true}};

static bool read_alibi(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    ((struct api_reading *)into)->alibi = true;
    return api_read_object(into, doc, v, pointer, ALIBI, API_COUNT(ALIBI), err);
}

static const struct api_field_row POSITION[] = {
    {"rope", read_rope, false},
    {"alibi", read_alibi, false},
};

bool api_read_position(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    return api_read_object(into, doc, v, pointer, POSITION, API_COUNT(POSITION), err);
}

/* Positions of one side: (n), the same for every item, or (B,n). */
static bool fill_rope(struct api_reading *rd, struct api_tensor_in *in,
                      const char *object, size_t n, struct attn_table *table,
                      struct api_err *err)
{
    const size_t one[] = {n}, each[] = {rd->r->p.d.B, n};
    const bool batch = in->shaped && in->rank == 2;

    if (!in->present)
        return true;
    if (!api_expect_shape(in, object, batch ? 2 : 1, batch ? each : one, err))
        return false;
    *table = (struct attn_table){.elem = ATTN_ELEM_F64, .stride_b = batch ? n : 0};
    table->p = api_take_tensor(rd, in, ATTN_F64, API_FINITE_ONLY, err);
    return table->p != NULL;
}

static bool fill_alibi(struct api_reading *rd, struct api_err *err)
{
    struct attn_problem *p = &rd->r->p;
    double *slopes;

    if (!rd->alibi)
        return true;
    if (!rd->alibi_standard) {
        p->alibi =
            api_expect_shape(&rd->alibi_slopes, "M", 1, &p->d.h, err)
                ? api_take_tensor(rd, &rd->alibi_slopes, ATTN_F64, API_FINITE_ONLY, err)
                : NULL;
        return p->alibi != NULL;
    }
    slopes = api_take(rd, p->d.h * sizeof *slopes, "/position/alibi/slopes", err);
    if (slopes == NULL)
        return false;
    attn_alibi_standard(p->d.h, slopes);
    p->alibi = slopes;
    return true;
}

bool api_fill_position(struct api_reading *rd, struct api_err *err)
{
    struct attn_problem *p = &rd->r->p;

    return fill_rope(rd, &rd->rope_q, "Q", p->d.T_q, &p->rope.q, err) &&
           fill_rope(rd, &rd->rope_k, "K", p->d.T_kv - p->d.T_past, &p->rope.k, err) &&
           fill_alibi(rd, err);
}
