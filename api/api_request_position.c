/*
 * api_request_position.c - the object `position`: kinds as core's table declares them,
 * one reader a parameter kind.
 * Not here: what they compute (core/attn_position.c).
 * Start reading at KINDS, then api_read_position and api_fill_position.
 */
#include <string.h>

#include "api/api_request.h"

/* Before sizes are known: choices and numbers are read, tensors only looked at. */
typedef bool look_fn(struct api_reading *rd, const struct attn_position_param *param,
                     struct attn_arg *arg, const json_t *v, const char *pointer,
                     struct api_err *err);
/* Afterwards: the numbers of a tensor. */
typedef bool fill_fn(struct api_reading *rd, struct attn_arg *arg,
                     struct api_tensor_in *in, struct api_err *err);

/* ---- choices and numbers ---- */

static bool look_choice(struct api_reading *rd, const struct attn_position_param *param,
                        struct attn_arg *arg, const json_t *v, const char *pointer,
                        struct api_err *err)
{
    size_t count = 0;
    int choice;

    (void)rd;
    while (count < ATTN_CHOICES_MAX && param->choice[count] != NULL)
        count++;
    if (!api_read_choice(v, pointer, param->choice, count, &choice, err))
        return false;
    arg->number = choice;
    return true;
}

static bool look_real(struct api_reading *rd, const struct attn_position_param *param,
                      struct attn_arg *arg, const json_t *v, const char *pointer,
                      struct api_err *err)
{
    (void)rd;
    return api_read_double(v, pointer, &arg->real, err) &&
           (!param->positive || arg->real > 0.0 ||
            api_fail(err, "bad-value", pointer, "%s must be greater than 0; it is %g.",
                     param->name, arg->real));
}

/* ---- tensors ---- */

static bool look_tensor(struct api_reading *rd, const struct attn_position_param *param,
                        struct attn_arg *arg, const json_t *v, const char *pointer,
                        struct api_err *err)
{
    struct api_tensor_in in;

    (void)param, (void)arg;
    return api_tensor_scan(rd->doc, v, pointer, &in, err);
}

static bool look_slopes(struct api_reading *rd, const struct attn_position_param *param,
                        struct attn_arg *arg, const json_t *v, const char *pointer,
                        struct api_err *err)
{
    static const char *const NAMES[] = {"standard"};
    int choice;

    return json_is_string(v)
               ? api_read_choice(v, pointer, NAMES, API_COUNT(NAMES), &choice, err)
               : look_tensor(rd, param, arg, v, pointer, err);
}

static bool fill_table(struct api_reading *rd, struct attn_arg *arg,
                       struct api_tensor_in *in, size_t stride_b, struct api_err *err)
{
    arg->table = (struct attn_table){.elem = ATTN_ELEM_F64, .stride_b = stride_b};
    arg->table.p = api_take_tensor(rd, in, ATTN_F64, API_FINITE_ONLY, err);
    return arg->table.p != NULL;
}

/* Positions of one side: (n), the same for every item, or (B,n). */
static bool fill_positions(struct api_reading *rd, struct attn_arg *arg,
                           struct api_tensor_in *in, const char *object, size_t n,
                           struct api_err *err)
{
    const size_t one[] = {n}, each[] = {rd->r->p.d.B, n};
    const bool batch = in->shaped && in->rank == 2;

    return api_expect_shape(in, object, batch ? 2 : 1, batch ? each : one, err) &&
           fill_table(rd, arg, in, batch ? n : 0, err);
}

static bool fill_queries(struct api_reading *rd, struct attn_arg *arg,
                         struct api_tensor_in *in, struct api_err *err)
{
    return fill_positions(rd, arg, in, "Q", rd->r->p.d.T_q, err);
}

static bool fill_keys(struct api_reading *rd, struct attn_arg *arg,
                      struct api_tensor_in *in, struct api_err *err)
{
    return fill_positions(rd, arg, in, "K", rd->r->p.d.T_kv - rd->r->p.d.T_past, err);
}

static bool fill_slopes(struct api_reading *rd, struct attn_arg *arg,
                        struct api_tensor_in *in, struct api_err *err)
{
    const size_t h = rd->r->p.d.h;
    double *slopes;

    if (in->present)
        return api_expect_shape(in, "M", 1, &h, err) && fill_table(rd, arg, in, 0, err);
    slopes = api_take(rd, h * sizeof *slopes, in->pointer, err);
    if (slopes == NULL)
        return false;
    attn_alibi_standard(h, slopes);
    arg->table = (struct attn_table){.elem = ATTN_ELEM_F64, .p = slopes};
    return true;
}

/* ---- all kinds ---- */

static const struct {
    look_fn *look;
    fill_fn *fill;
} KINDS[] = {
    [ATTN_POSITION_CHOICE] = {look_choice, NULL},
    [ATTN_POSITION_REAL] = {look_real, NULL},
    [ATTN_POSITION_QUERIES] = {look_tensor, fill_queries},
    [ATTN_POSITION_KEYS] = {look_tensor, fill_keys},
    [ATTN_POSITION_SLOPES] = {look_slopes, fill_slopes},
};
_Static_assert(API_COUNT(KINDS) == ATTN_POSITION_PARAM_KIND_COUNT, "one reader a kind");

static size_t param_count(const struct attn_position_row *row)
{
    size_t n = 0;

    while (n < ATTN_PARAMS_MAX && row->param[n].kind != ATTN_POSITION_END)
        n++;
    return n;
}

/* Rows that only check names; what stands there is read afterwards, in the table's order.
 */
static bool keep(void *into, const struct api_doc *doc, const json_t *v,
                 const char *pointer, struct api_err *err)
{
    (void)into, (void)doc, (void)v, (void)pointer, (void)err;
    return true;
}

static bool look_param(struct api_reading *rd, struct attn_position *x, size_t n,
                       const json_t *object, const char *pointer, struct api_err *err)
{
    const struct attn_position_param *param = &x->row->param[n];
    const json_t *v = json_object_get(object, param->name);
    char place[API_POINTER_MAX];

    api_pointer(place, pointer, param->name);
    if (v == NULL && param->left_out != NULL)
        api_warn(rd->r, param->left_out);
    x->arg[n].given = v != NULL;
    return v == NULL || KINDS[param->kind].look(rd, param, &x->arg[n], v, place, err);
}

static bool read_kind(struct api_reading *rd, const struct attn_position_row *row,
                      const json_t *object, const char *pointer, struct api_err *err)
{
    struct attn_problem *p = &rd->r->p;
    struct attn_position x = attn_position_of_row(row);
    struct api_field_row field[ATTN_PARAMS_MAX];
    char place[API_POINTER_MAX];

    for (size_t n = 0; n < param_count(row); n++)
        field[n] =
            (struct api_field_row){row->param[n].name, keep, row->param[n].required};
    api_pointer(place, pointer, row->name);
    if (!api_read_object(rd, rd->doc, object, place, field, param_count(row), err))
        return false;
    for (size_t n = 0; n < param_count(row); n++)
        if (!look_param(rd, &x, n, object, place, err))
            return false;
    if (p->position_count == ATTN_POSITIONS_MAX)
        return api_fail_numbers(
            err, "not-supported", place, NULL, ATTN_POSITIONS_MAX, p->position_count + 1,
            "At most %d position kinds can be combined.", ATTN_POSITIONS_MAX);
    p->position[p->position_count++] = x;
    return true;
}

bool api_read_position(void *into, const struct api_doc *doc, const json_t *v,
                       const char *pointer, struct api_err *err)
{
    enum { KINDS_MAX = 32 };
    struct api_field_row field[KINDS_MAX];
    struct api_reading *rd = into;
    size_t count = 0;

    for (; count < attn_position_count() && count < KINDS_MAX; count++)
        field[count] = (struct api_field_row){attn_position_at(count)->name, keep, false};
    if (!api_read_object(rd, doc, v, pointer, field, count, err))
        return false;
    rd->position = v;
    for (size_t n = 0; n < count; n++) {
        const json_t *object = json_object_get(v, field[n].name);

        if (object != NULL && !read_kind(rd, attn_position_at(n), object, pointer, err))
            return false;
    }
    return true;
}

/* A word in the place of a tensor is not present; its pointer is. */
static bool fill_param(struct api_reading *rd, struct attn_position *x, size_t n,
                       struct api_err *err)
{
    const struct attn_position_param *param = &x->row->param[n];
    const json_t *object = json_object_get(rd->position, x->row->name);
    const json_t *v = json_object_get(object, param->name);
    struct api_tensor_in in = {0};
    char place[API_POINTER_MAX];

    if (v == NULL || KINDS[param->kind].fill == NULL)
        return true;
    api_pointer(place, api_pointer(place, "/position", x->row->name), param->name);
    memcpy(in.pointer, place, sizeof place);
    if (!json_is_string(v) && !api_tensor_scan(rd->doc, v, place, &in, err))
        return false;
    return KINDS[param->kind].fill(rd, &x->arg[n], &in, err);
}

bool api_fill_position(struct api_reading *rd, struct api_err *err)
{
    struct attn_problem *p = &rd->r->p;

    for (size_t k = 0; k < p->position_count; k++)
        for (size_t n = 0; n < param_count(p->position[k].row); n++)
            if (!fill_param(rd, &p->position[k], n, err))
                return false;
    return true;
}
