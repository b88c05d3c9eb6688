/*
 * api_request_inputs.c - shapes, inputs and weights: their sizes, then their numbers.
 * Not here: how sizes agree (core/attn_resolve.c), forms of tensors (api_tensor.c).
 * Start reading at api_resolve_sizes, then api_fill_inputs.
 */
#include "api/api_request.h"

#include <string.h>

/* ---- fields ---- */

/* Not a wrong number but one that no memory holds. */
static bool fail_beyond(struct api_err *err, const char *pointer, const json_t *size)
{
    char text[48];

    if (json_is_integer(size))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(size));
    else
        snprintf(text, sizeof text, "%.17g", json_real_value(size));
    api_fail(err, "too-large", pointer, "A size of %s is beyond every limit.", text);
    snprintf(err->expected, sizeof err->expected, "at most %.0f", API_WHOLE_MAX);
    snprintf(err->observed, sizeof err->observed, "%s", text);
    return false;
}

/* Sizes take memory: one beyond counting is too large.  Numbers of heads share out a
   width, and one beyond any width is a wrong value. */
static bool read_declared(void *into, const struct api_doc *doc, const json_t *v,
                          const char *pointer, struct api_err *err)
{
    struct attn_decl *decl = &((struct api_reading *)into)->decl;
    const struct {
        const char *pointer;
        size_t *size;
        bool shares;
    } declared[] = {
        {"/shapes/B", &decl->B, false},
        {"/shapes/T", &decl->T, false},
        {"/shapes/T_kv", &decl->T_kv, false},
        {"/shapes/d_model", &decl->d_model, false},
        {"/shapes/d_k", &decl->d_k, false},
        {"/shapes/d_v", &decl->d_v, false},
        {"/shapes/heads", &decl->heads, true},
        {"/shapes/kv_heads", &decl->kv_heads, true},
    };
    size_t n = 0;

    (void)doc;
    while (strcmp(declared[n].pointer, pointer) != 0)
        n++;
    if (declared[n].shares)
        return api_read_size(v, pointer, 1, INT32_MAX, declared[n].size, err);
    if (json_is_integer(v) ? json_integer_value(v) > (json_int_t)API_WHOLE_MAX
                           : json_number_value(v) > API_WHOLE_MAX)
        return fail_beyond(err, pointer, v);
    return api_read_size(v, pointer, 1, SIZE_MAX, declared[n].size, err);
}

bool api_read_input_tensor(void *into, const struct api_doc *doc, const json_t *v,
                           const char *pointer, struct api_err *err)
{
    struct api_reading *rd = into;
    int k = 0;

    while (strcmp(ATTN_INPUTS[k].place, pointer) != 0)
        k++;
    return api_tensor_scan(doc, v, pointer, &rd->in[k], err);
}

static bool read_W_O(void *into, const struct api_doc *doc, const json_t *v,
                     const char *pointer, struct api_err *err)
{
    struct api_reading *rd = into;

    rd->no_output = json_is_null(v);
    return rd->no_output || api_read_input_tensor(into, doc, v, pointer, err);
}

static bool read_weights_convention(void *into, const struct api_doc *doc,
                                    const json_t *v, const char *pointer,
                                    struct api_err *err)
{
    static const char *const NAMES[] = {"torch_linear"};
    int choice;

    (void)doc;
    if (!api_read_choice(v, pointer, NAMES, API_COUNT(NAMES), &choice, err))
        return false;
    ((struct api_reading *)into)->r->torch_linear = true;
    return true;
}

/* clang-format off */
static const struct api_field_row SHAPES[] = {
    { "B", read_declared, false },       { "T", read_declared, false },
    { "T_kv", read_declared, false },    { "d_model", read_declared, false },
    { "d_k", read_declared, false },     { "d_v", read_declared, false },
    { "heads", read_declared, false },   { "kv_heads", read_declared, false },
};
static const struct api_field_row PAST[] = {
    { "K", api_read_input_tensor, true },
    { "V", api_read_input_tensor, true },
};
static bool read_past(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    return api_read_object(into, doc, v, pointer, PAST, API_COUNT(PAST), err);
}
static const struct api_field_row INPUTS[] = {
    { "X", api_read_input_tensor, false },  { "X_kv", api_read_input_tensor, false },
    { "Q", api_read_input_tensor, false },  { "K", api_read_input_tensor, false },
    { "V", api_read_input_tensor, false },  { "past", read_past, false },
};
static const struct api_field_row WEIGHTS[] = {
    { "W_Q", api_read_input_tensor, false },  { "b_Q", api_read_input_tensor, false },
    { "W_K", api_read_input_tensor, false },  { "b_K", api_read_input_tensor, false },
    { "W_V", api_read_input_tensor, false },  { "b_V", api_read_input_tensor, false },
    { "W_O", read_W_O, false },               { "b_O", api_read_input_tensor, false },
    { "convention", read_weights_convention, false },
};
/* clang-format on */

bool api_read_shapes(void *into, const struct api_doc *doc, const json_t *v,
                     const char *pointer, struct api_err *err)
{
    return api_read_object(into, doc, v, pointer, SHAPES, API_COUNT(SHAPES), err);
}

bool api_read_inputs(void *into, const struct api_doc *doc, const json_t *v,
                     const char *pointer, struct api_err *err)
{
    return api_read_object(into, doc, v, pointer, INPUTS, API_COUNT(INPUTS), err);
}

bool api_read_weights(void *into, const struct api_doc *doc, const json_t *v,
                      const char *pointer, struct api_err *err)
{
    return api_read_object(into, doc, v, pointer, WEIGHTS, API_COUNT(WEIGHTS), err);
}

/* ---- sizes ---- */

static bool is_matrix(int k)
{
    return k >= ATTN_IN_W_Q && k <= ATTN_IN_W_O;
}

static bool is_turned(const struct api_reading *rd, int k)
{
    return rd->r->torch_linear && is_matrix(k);
}

static void swap_axes(size_t *dim)
{
    const size_t first = dim[0];

    dim[0] = dim[1];
    dim[1] = first;
}

/* A plan needs no tensors: where no input is named, X and the weights are understood, and
   keys of their own when another length is declared for them. */
static void understand_inputs(const struct api_reading *rd, struct attn_given *given)
{
    const bool projected =
        given[ATTN_IN_Q].present || given[ATTN_IN_K].present || given[ATTN_IN_V].present;
    const struct attn_decl *decl = &rd->decl;

    if (projected)
        return;
    if (!given[ATTN_IN_X].present && !given[ATTN_IN_X_KV].present &&
        !given[ATTN_IN_PAST_K].present && decl->T_kv != 0 && decl->T_kv != decl->T)
        given[ATTN_IN_X_KV].present = true;
    given[ATTN_IN_X].present = true;
    for (int k = ATTN_IN_W_Q; k <= ATTN_IN_W_O; k++)
        if (k != ATTN_IN_W_O || !rd->no_output)
            given[k].present = true;
}

static void given_of(const struct api_reading *rd, struct attn_given *given)
{
    for (int k = 0; k < ATTN_INPUT_COUNT; k++) {
        const struct api_tensor_in *in = &rd->in[k];

        given[k] = (struct attn_given){
            .present = in->present, .shaped = in->shaped, .rank = in->rank};
        memcpy(given[k].dim, in->dim, sizeof given[k].dim);
        if (is_turned(rd, k) && in->rank == 2)
            swap_axes(given[k].dim);
    }
    if (rd->sizes_only)
        understand_inputs(rd, given);
}

/* Projected inputs leave nothing to project: which of them is in the way of what. */
static bool fail_projected(const struct api_reading *rd, const char *object,
                           struct api_err *err)
{
    for (int k = ATTN_IN_Q; k <= ATTN_IN_V; k++)
        if (rd->in[ATTN_IN_X].present && strcmp(ATTN_INPUTS[k].name, object) == 0)
            return api_fail(
                err, "contradiction", ATTN_INPUTS[k].place,
                "%s cannot be given together with X: give X with W_Q, W_K and "
                "W_V, or Q, K and V without them.",
                object);
    for (int k = 0; k < ATTN_INPUT_COUNT; k++) {
        const bool projects = k >= ATTN_IN_W_Q && k <= ATTN_IN_W_V;
        const bool biases = k >= ATTN_IN_B_Q && k <= ATTN_IN_B_V;
        const int made = ATTN_IN_Q + k - (biases ? ATTN_IN_B_Q : ATTN_IN_W_Q);

        if ((projects || biases) && rd->in[made].present &&
            strcmp(ATTN_INPUTS[k].name, object) == 0)
            return api_fail(err, "contradiction", ATTN_INPUTS[k].place,
                            "%s cannot be given together with %s, which is already "
                            "projected: give X with W_Q, W_K and W_V, or Q, K and V "
                            "without them.",
                            object, ATTN_INPUTS[made].name);
    }
    return false;
}

/* Errors speak of the shape as it was given. */
static bool fail_resolve(const struct api_reading *rd, const struct attn_err *core,
                         struct api_err *err)
{
    char shape[API_SHAPE_TEXT_MAX];
    size_t len;

    if (core->code == ATTN_E_CONTRADICTION && core->object != NULL)
        fail_projected(rd, core->object, err);
    api_fail_core(err, core);
    len = strlen(err->detail);
    for (int k = 0; k < ATTN_INPUT_COUNT; k++)
        if (core->object != NULL && strcmp(ATTN_INPUTS[k].name, core->object) == 0 &&
            rd->in[k].shaped)
            snprintf(err->detail + len, sizeof err->detail - len,
                     " %s was given as %s%s.", core->object,
                     api_shape_text(shape, rd->in[k].rank, rd->in[k].dim),
                     is_turned(rd, k) ? ", which torch_linear reads as (out,in)"
                     : is_matrix(k) ? ", read as (in,out); if weights are (out,in), say "
                                      "\"convention\": \"torch_linear\""
                                    : "");
    return false;
}

bool api_resolve_sizes(struct api_reading *rd, struct api_err *err)
{
    struct attn_problem *p = &rd->r->p;
    struct attn_given given[ATTN_INPUT_COUNT];
    struct attn_err core = {0};

    given_of(rd, given);
    if (!attn_resolve(&rd->decl, given, &p->d, &p->form, &core))
        return fail_resolve(rd, &core, err);
    if (p->form.source != ATTN_PROJECTED && !given[ATTN_IN_W_O].present && !rd->no_output)
        return api_fail(
            err, "missing", ATTN_INPUTS[ATTN_IN_W_O].place,
            "W_O is needed here and was not given; \"W_O\": null says that there is "
            "no output projection.");
    for (int k = 0; k < ATTN_INPUT_COUNT; k++) {
        struct attn_tensor *t = &p->in[k];

        t->dtype = p->dtype;
        for (t->rank = 0; given[k].present && t->rank < API_COUNT(ATTN_INPUTS[k].axis) &&
                          ATTN_INPUTS[k].axis[t->rank] != ATTN_AX_END;
             t->rank++)
            t->dim[t->rank] = attn_axis_size(&p->d, ATTN_INPUTS[k].axis[t->rank]);
    }
    return true;
}

/* ---- memory ---- */

bool api_take_inputs(struct api_reading *rd, struct api_err *err)
{
    size_t count;

    for (int k = 0; k < ATTN_INPUT_COUNT; k++) {
        struct attn_tensor *t = &rd->r->p.in[k];

        if (t->rank == 0)
            continue;
        /* In a plan the address says only that the input is there; nobody reads it. */
        if (rd->sizes_only) {
            t->p = rd->ctx->arena.base;
            continue;
        }
        if (!api_count_of(t->rank, t->dim, &count))
            return api_fail(err, "too-large", ATTN_INPUTS[k].place,
                            "The sizes of %s multiply to more than can be counted.",
                            ATTN_INPUTS[k].name);
        t->p =
            api_take(rd, count * attn_dtype_bytes(t->dtype), ATTN_INPUTS[k].place, err);
        if (t->p == NULL)
            return false;
    }
    return true;
}

/* ---- numbers ---- */

/* out[j][i] = in[i][j] for `items` matrices of elements of `width` bytes each. */
static void turn(const unsigned char *in, unsigned char *out, size_t items, size_t rows,
                 size_t cols, size_t width)
{
    for (size_t n = 0; n < items;
         n++, in += rows * cols * width, out += rows * cols * width)
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++)
                memcpy(out + (j * rows + i) * width, in + (i * cols + j) * width, width);
}

/* Reads a tensor as it was given into scratch, and turns it from there into t: `items`
   times a matrix of `rows` by `cols`, whose entries are `inner` numbers each. */
static bool fill_turned(struct api_reading *rd, const struct api_tensor_in *in,
                        size_t items, size_t rows, size_t cols, size_t inner,
                        struct attn_tensor *t, struct api_err *err)
{
    struct attn_arena *arena = &rd->ctx->arena;
    const size_t mark = attn_arena_mark(arena), reserved = rd->reserved;
    const unsigned char *given;

    /* The run has not begun: what is reserved for it serves as scratch. */
    rd->reserved = 0;
    given = api_take_tensor(rd, in, t->dtype, API_FINITE_ONLY, err);
    rd->reserved = reserved;
    if (given != NULL)
        turn(given, t->p, items, rows, cols, inner * attn_dtype_bytes(t->dtype));
    attn_arena_release(arena, mark);
    return given != NULL;
}

bool api_turn_matrix(struct api_reading *rd, const struct api_tensor_in *in,
                     struct attn_tensor *t, struct api_err *err)
{
    return fill_turned(rd, in, 1, in->dim[0], in->dim[1], 1, t, err);
}

static bool fill_input(struct api_reading *rd, int k, struct api_err *err)
{
    struct api_tensor_in *in = &rd->in[k];
    struct attn_tensor *t = &rd->r->p.in[k];
    size_t dim[ATTN_RANK_MAX];

    memcpy(dim, t->dim, sizeof dim);
    if (is_turned(rd, k)) {
        swap_axes(dim);
        api_tensor_set_shape(in, t->rank, dim);
        return api_turn_matrix(rd, in, t, err);
    }
    api_tensor_set_shape(in, t->rank, dim);
    /* (B,T,h*d) holds the heads of one row side by side: to (B,h,T,d). */
    if (k >= ATTN_IN_Q && k <= ATTN_IN_V && in->rank < 4 && t->dim[1] > 1)
        return fill_turned(rd, in, t->dim[0], t->dim[2], t->dim[1], t->dim[3], t, err);
    return api_tensor_read(in, API_FINITE_ONLY, t, err);
}

/* Whether two tensors were drawn alike by accident: nobody stated the one's seed. */
static bool drawn_alike(const struct api_tensor_in *a, const struct api_tensor_in *b)
{
    return a->present && b->present && a->form == API_INIT && b->form == API_INIT &&
           a->init >= ATTN_INIT_NORMAL && a->init == b->init && a->seed == b->seed &&
           !(a->seeded && b->seeded) && a->std == b->std && a->rank == b->rank &&
           memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

static void warn_of_seeds(struct api_reading *rd)
{
    for (int k = 0; k < ATTN_INPUT_COUNT; k++)
        for (int n = 0; n < k; n++)
            if (drawn_alike(&rd->in[k], &rd->in[n])) {
                api_warn(rd->r, "Tensors made by init without a seed all have seed 0: "
                                "those of one kind and shape hold the same numbers. Give "
                                "each a seed of its own.");
                return;
            }
}

bool api_fill_inputs(struct api_reading *rd, struct api_err *err)
{
    warn_of_seeds(rd);
    if (rd->sizes_only)
        return true;
    for (int k = 0; k < ATTN_INPUT_COUNT; k++)
        if (rd->in[k].present && !fill_input(rd, k, err))
            return false;
    return true;
}
