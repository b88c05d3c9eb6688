/*
 * api_audit_candidate.c - the tensors that an implementation computed, named as this
 * service names them and shaped as it would answer them. Not here: whether they are right
 * (core/attn_diagnose*.c). Start reading at api_candidate_read.
 */
#include <math.h>
#include <string.h>

#include "api/api_audit.h"

_Static_assert((int)API_DT_F64 == (int)ATTN_FLOAT64 &&
                   (int)API_DT_F32 == (int)ATTN_FLOAT32 &&
                   (int)API_DT_F16 == (int)ATTN_FLOAT16 &&
                   (int)API_DT_BF16 == (int)ATTN_BFLOAT16,
               "dtypes of tensors are precisions of candidates");

struct reading {
    struct api_ctx *ctx;
    const struct api_doc *doc;
    struct api_judged *judged;
    bool precision_stated;
};

/* ---- names ---- */

static const char *name_at(const void *names, size_t n)
{
    (void)names;
    if (n >= ATTN_OBJECT_COUNT)
        return ATTN_GRADIENTS[n - ATTN_OBJECT_COUNT].name;
    return ATTN_OBJECTS[n].returnable ? ATTN_OBJECTS[n].name : "";
}

static bool fail_unknown(const char *name, const char *pointer, struct api_err *err)
{
    return api_fail_unknown(err, "unknown-name", pointer, name, name_at, NULL,
                            (size_t)ATTN_OBJECT_COUNT + ATTN_GRADIENT_COUNT);
}

/* ---- numbers ---- */

static bool same_shape(const struct api_tensor_in *in, const struct attn_tensor *shape)
{
    return in->rank == shape->rank &&
           memcmp(in->dim, shape->dim, shape->rank * sizeof *shape->dim) == 0;
}

/* Reads into fresh memory; `t` says dtype and the layout in which core wants the numbers.
 */
static bool read_numbers(struct reading *rd, const struct api_tensor_in *in,
                         struct attn_tensor *t, struct api_err *err)
{
    struct attn_arena *arena = &rd->ctx->arena;
    const size_t bytes = attn_tensor_count(t) * attn_dtype_bytes(t->dtype);

    t->p = attn_arena_take(arena, bytes);
    if (t->p == NULL)
        return api_fail_numbers(err, "too-large", in->pointer, NULL, arena->size,
                                arena->used + bytes,
                                "%zu bytes are needed for the candidate; the limit of "
                                "one request is %zu.",
                                arena->used + bytes, arena->size);
    return api_tensor_read(in, API_ANY_NUMBER, t, err);
}

/* The coarsest precision that a tensor states is that of the whole candidate. */
static void note_precision(struct reading *rd, const struct api_tensor_in *in)
{
    enum attn_precision *precision = &rd->judged->candidate.precision;

    if (!rd->precision_stated && in->source_dtype <= API_DT_BF16 &&
        in->source_dtype > (int)*precision)
        *precision = (enum attn_precision)in->source_dtype;
}

/* ---- objects ---- */

static bool read_object(struct reading *rd, enum attn_object o, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    struct api_judged *judged = rd->judged;
    struct attn_tensor *t = &judged->candidate.object[o], shape;
    struct api_tensor_in in;

    if (!attn_object_exists(&judged->r.p, o))
        return api_fail(err, "contradiction", pointer,
                        "%s does not exist in this problem%s.", ATTN_OBJECTS[o].name,
                        o == ATTN_Y ? ": there is no W_O" : "");
    if (!api_tensor_scan(rd->doc, v, pointer, &in, err))
        return false;
    note_precision(rd, &in);
    attn_object_shape(&judged->r.p, o, &shape);
    api_tensor_set_shape(&in, shape.rank, shape.dim);
    if (!same_shape(&in, &shape)) {
        struct attn_tensor *bad = &judged->bad_object[o];

        judged->candidate.bad_object |= ATTN_BIT(o);
        bad->rank = in.rank;
        memcpy(bad->dim, in.dim, sizeof bad->dim);
        return true;
    }
    attn_object_full_shape(&judged->r.p, o, t);
    t->dtype = ATTN_OBJECTS[o].is_bool ? ATTN_BOOL : ATTN_F64;
    return read_numbers(rd, &in, t, err);
}

/* ---- gradients ---- */

static bool check_gradient(const struct api_request *r, enum attn_gradient g,
                           const char *pointer, struct api_err *err)
{
    const char *name = ATTN_GRADIENTS[g].name;

    if (!r->has_gradients)
        return api_fail(err, "contradiction", pointer,
                        "%s can be judged only when the problem states in \"gradients\" "
                        "of what and from which cotangent it was taken.",
                        name);
    if (!attn_gradient_exists(&r->p, g))
        return api_fail(err, "contradiction", pointer,
                        "%s does not exist in this problem.", name);
    if (!attn_gradient_reaches(r->gradients.of, g))
        return api_fail(err, "contradiction", pointer,
                        "%s has no gradient of %s, which does not depend on it.",
                        ATTN_OBJECTS[r->gradients.of].name, name);
    if (!api_gradient_asked(r, g))
        return api_fail(err, "contradiction", pointer,
                        "gradients.with_respect_to does not name %s.", name);
    return true;
}

static void gradient_full_shape(const struct attn_problem *p, enum attn_gradient g,
                                struct attn_tensor *t)
{
    const struct attn_gradient_row *row = &ATTN_GRADIENTS[g];
    const enum attn_axis *axis;

    if (row->like_object >= 0 || g == ATTN_D_ADDITIVE) {
        attn_object_full_shape(
            p, g == ATTN_D_ADDITIVE ? ATTN_S : (enum attn_object)row->like_object, t);
    } else {
        *t = (struct attn_tensor){0};
        axis = ATTN_INPUTS[row->like_input].axis;
        for (size_t a = 0; a < 4 && axis[a] != ATTN_AX_END; a++)
            t->dim[t->rank++] = attn_axis_size(&p->d, axis[a]);
    }
    t->dtype = ATTN_F64;
}

/* (out,in) as it was given into (in,out). */
static bool read_turned(struct reading *rd, const struct api_tensor_in *in,
                        struct attn_tensor *t, struct api_err *err)
{
    const size_t rows = t->dim[0], cols = t->dim[1];
    struct attn_tensor given = {.dtype = ATTN_F64, .rank = 2, .dim = {cols, rows}};
    const double *from;
    double *to;

    if (!read_numbers(rd, in, &given, err))
        return false;
    to = attn_arena_take(&rd->ctx->arena, rows * cols * sizeof *to);
    if (to == NULL)
        return api_fail(err, "too-large", in->pointer,
                        "There is no room to turn this matrix.");
    from = given.p;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            to[r * cols + c] = from[c * rows + r];
    t->p = to;
    return true;
}

static bool read_gradient(struct reading *rd, enum attn_gradient g, const json_t *v,
                          const char *pointer, struct api_err *err)
{
    struct api_judged *judged = rd->judged;
    struct attn_tensor *t = &judged->candidate.gradient[g], shape;
    struct api_tensor_in in;
    bool other_layout;

    if (!check_gradient(&judged->r, g, pointer, err) ||
        !api_tensor_scan(rd->doc, v, pointer, &in, err))
        return false;
    note_precision(rd, &in);
    other_layout = api_gradient_shape(&judged->r, g, &shape);
    api_tensor_set_shape(&in, shape.rank, shape.dim);
    if (!same_shape(&in, &shape)) {
        struct attn_tensor *bad = &judged->bad_gradient[g];

        judged->candidate.bad_gradient |= ATTN_BIT(g);
        bad->rank = in.rank;
        memcpy(bad->dim, in.dim, sizeof bad->dim);
        return true;
    }
    gradient_full_shape(&judged->r.p, g, t);
    if (g == ATTN_D_ADDITIVE && attn_tensor_count(&shape) != attn_tensor_count(t)) {
        *t = (struct attn_tensor){0};
        judged->shared_additive = shape;
        judged->shared_additive.dtype = ATTN_F64;
        return read_numbers(rd, &in, &judged->shared_additive, err);
    }
    return g != ATTN_D_ADDITIVE && other_layout ? read_turned(rd, &in, t, err)
                                                : read_numbers(rd, &in, t, err);
}

/* ---- the whole ---- */

static bool read_member(struct reading *rd, const char *name, const json_t *v,
                        const char *pointer, struct api_err *err)
{
    const int o = attn_object_find(name), g = attn_gradient_find(name);

    if (o >= 0 && ATTN_OBJECTS[o].returnable)
        return read_object(rd, (enum attn_object)o, v, pointer, err);
    if (g >= 0)
        return read_gradient(rd, (enum attn_gradient)g, v, pointer, err);
    return fail_unknown(name, pointer, err);
}

static void set_tolerance(const struct api_tolerance_in *stated,
                          struct attn_candidate *candidate)
{
    attn_tolerance(candidate->precision, &candidate->rtol, &candidate->atol);
    if (!isnan(stated->rtol))
        candidate->rtol = stated->rtol;
    if (!isnan(stated->atol))
        candidate->atol = stated->atol;
}

bool api_candidate_read(struct api_ctx *ctx, const struct api_doc *doc,
                        const json_t *object, const char *pointer,
                        const struct api_tolerance_in *tolerance,
                        struct api_judged *judged, struct api_err *err)
{
    struct reading rd = {.ctx = ctx,
                         .doc = doc,
                         .judged = judged,
                         .precision_stated = tolerance->precision >= 0};
    char place[API_POINTER_MAX];
    const char *name;
    json_t *v;

    if (rd.precision_stated)
        judged->candidate.precision = (enum attn_precision)tolerance->precision;
    if (!json_is_object(object))
        return api_fail_type(err, pointer, "An object of tensors by name",
                             api_type_name(doc, object));
    if (json_object_size(object) == 0)
        return api_fail(err, "missing", pointer,
                        "The candidate holds no tensor: send at least one of those that "
                        "your implementation computed.");
    json_object_foreach((json_t *)(uintptr_t)object, name, v)
    {
        if (!read_member(&rd, name, v, api_pointer(place, pointer, name), err))
            return false;
    }
    judged->tolerance_stated =
        rd.precision_stated || !isnan(tolerance->rtol) || !isnan(tolerance->atol);
    judged->shows_float32 = !judged->tolerance_stated &&
                            judged->candidate.precision == ATTN_FLOAT64 &&
                            api_candidate_is_float32(&judged->candidate);
    if (judged->shows_float32)
        judged->candidate.precision = ATTN_FLOAT32;
    set_tolerance(tolerance, &judged->candidate);
    return true;
}
