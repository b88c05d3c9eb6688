/*
 * api_answer_gradients.c - gradients as JSON, shaped as their tensors were given.
 * Not here: the backward pass (core/attn_grad*.c).
 * Start reading at api_put_gradients.
 */
#include <string.h>

#include "api/api_answer.h"

static bool is_matrix(int input)
{
    return input == ATTN_IN_W_Q || input == ATTN_IN_W_K || input == ATTN_IN_W_V ||
           input == ATTN_IN_W_O;
}

bool api_gradient_asked(const struct api_request *r, enum attn_gradient g)
{
    const uint32_t named = r->gradients.with_respect_to;

    return r->has_gradients && (named == 0 || (named & ATTN_BIT(g))) &&
           attn_gradient_exists(&r->p, g) && attn_gradient_reaches(r->gradients.of, g);
}

/* The shape in which masks.additive was given, which its strides tell. */
static void additive_shape(const struct attn_problem *p, struct attn_tensor *shape)
{
    const struct attn_dims *d = &p->d;

    *shape = (struct attn_tensor){.dtype = p->dtype};
    if (p->additive.stride_b > 0)
        shape->dim[shape->rank++] = d->B;
    if (p->additive.stride_h > 0)
        shape->dim[shape->rank++] = d->h;
    shape->dim[shape->rank++] = d->T_q;
    shape->dim[shape->rank++] = d->T_kv;
}

static void input_shape(const struct attn_problem *p, int input,
                        struct attn_tensor *shape)
{
    const enum attn_axis *axis = ATTN_INPUTS[input].axis;

    *shape = (struct attn_tensor){.dtype = p->dtype};
    for (int a = 0; a < 4 && axis[a] != ATTN_AX_END; a++)
        if (axis[a] != ATTN_AX_B || p->form.batch_axis)
            shape->dim[shape->rank++] = attn_axis_size(&p->d, axis[a]);
}

bool api_gradient_shape(const struct api_request *r, enum attn_gradient g,
                        struct attn_tensor *shape)
{
    const struct attn_gradient_row *row = &ATTN_GRADIENTS[g];
    size_t in;

    if (g == ATTN_D_ADDITIVE) {
        additive_shape(&r->p, shape);
        return true;
    }
    if (row->like_object >= 0) {
        attn_object_shape(&r->p, (enum attn_object)row->like_object, shape);
        return false;
    }
    input_shape(&r->p, row->like_input, shape);
    if (!r->torch_linear || !is_matrix(row->like_input))
        return false;
    in = shape->dim[0];
    shape->dim[0] = shape->dim[1];
    shape->dim[1] = in;
    return true;
}

/* t [rows, cols] into to [cols, rows] */
static void transpose(const struct attn_tensor *t, struct attn_tensor *to)
{
    const size_t rows = t->dim[0], cols = t->dim[1], bytes = attn_dtype_bytes(t->dtype);
    const char *from = t->p;
    char *into = to->p;

    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            memcpy(into + (c * rows + r) * bytes, from + (r * cols + c) * bytes, bytes);
}

/* The bias of pair (i, j) was added for every item and head that it was not given for:
   its gradient is the sum over them.  t [B, h, T_q, T_kv] */
static void sum_shared(const struct attn_problem *p, const struct attn_tensor *t,
                       struct attn_tensor *to)
{
    const size_t pairs = p->d.T_q * p->d.T_kv, h = p->d.h;
    const size_t sharing = p->additive.stride_h > 0   ? 1
                           : p->additive.stride_b > 0 ? h
                                                      : p->d.B * h;

    for (size_t n = 0; n < attn_tensor_count(to); n++) {
        const size_t pair = n % pairs, first = n / pairs * sharing;
        double sum = 0.0;

        for (size_t bh = first; bh < first + sharing; bh++)
            sum += attn_tensor_get(t, bh * pairs + pair);
        if (to->dtype == ATTN_F64)
            ((double *)to->p)[n] = sum;
        else
            ((float *)to->p)[n] = (float)sum;
    }
}

static bool put_gradient(struct api_work *w, enum attn_gradient g, struct api_err *err)
{
    struct attn_arena *arena = &w->ctx->arena;
    const size_t mark = attn_arena_mark(arena);
    const struct attn_tensor *t = &w->grads.t[g];
    struct attn_tensor shape, given;
    bool ok;

    if (api_gradient_shape(&w->r, g, &shape)) {
        given = shape;
        given.p = attn_arena_take(arena,
                                  attn_tensor_count(&given) * attn_dtype_bytes(t->dtype));
        if (!given.p)
            return api_fail(err, "too-large", NULL,
                            "There is no room to write %s in the shape that was given.",
                            ATTN_GRADIENTS[g].name);
        if (g == ATTN_D_ADDITIVE)
            sum_shared(&w->r.p, t, &given);
        else
            transpose(t, &given);
        t = &given;
    }
    ok = api_answer_tensor(w, "gradients.", ATTN_GRADIENTS[g].name, t, &shape);
    attn_arena_release(arena, mark);
    return ok || api_fail_buffer(err);
}

/* The worst entry's index in the gradient as it is answered; of d_additive, whose pairs
   were moved one by one, the index of the pair in S. */
static bool put_worst_index(struct api_work *w, const struct attn_grad_check *check)
{
    struct attn_tensor shape;
    bool transposed = api_gradient_shape(&w->r, (enum attn_gradient)check->worst, &shape);
    size_t index[ATTN_RANK_MAX] = {0}, left = check->worst_at;
    bool ok = api_put_key(w->out, "index") && api_puts(w->out, "[");

    if (check->worst == ATTN_D_ADDITIVE) {
        attn_object_shape(&w->r.p, ATTN_S, &shape);
        transposed = false;
    }
    if (transposed) {
        index[0] = left % shape.dim[0];
        index[1] = left / shape.dim[0];
    } else {
        for (unsigned a = shape.rank; a-- > 0; left /= shape.dim[a])
            index[a] = left % shape.dim[a];
    }
    for (unsigned a = 0; a < shape.rank; a++)
        ok = ok && api_put_comma(w->out) && api_put_u64(w->out, index[a]);
    return ok && api_puts(w->out, "]");
}

static bool put_check(struct api_work *w)
{
    const struct attn_grad_check *check = &w->grads.check;
    struct api_buffer *b = w->out;
    bool ok;

    if (!check->done)
        return true;
    ok = api_put_key(b, "check") && api_puts(b, "{") &&
         api_put_text_member(b, "status", check->pass ? "pass" : "fail") &&
         api_put_u64_member(b, "entries", check->entries) &&
         api_put_double_member(b, "relative_error", check->worst_relative_error) &&
         api_put_double_member(b, "tolerance", check->tolerance) &&
         api_put_double_member(b, "step", check->step) && api_put_key(b, "worst") &&
         api_puts(b, "{") &&
         api_put_text_member(b, "gradient", ATTN_GRADIENTS[check->worst].name);
    return ok && put_worst_index(w, check) &&
           api_put_double_member(b, "analytic", check->analytic) &&
           api_put_double_member(b, "central_difference", check->numeric) &&
           api_puts(b, "}}");
}

bool api_put_gradients(struct api_work *w, struct api_err *err)
{
    if (!w->r.has_gradients)
        return true;
    if (!api_put_key(w->out, "gradients") || !api_puts(w->out, "{"))
        return api_fail_buffer(err);
    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++)
        if (w->grads.t[g].p && !put_gradient(w, (enum attn_gradient)g, err))
            return false;
    return (put_check(w) && api_puts(w->out, "}")) || api_fail_buffer(err);
}
