/*
 * api_request_score.c - score: functions and their numbers.
 * Not here: what they compute (core/attn_score.c).
 * Start reading at SCORE.
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
