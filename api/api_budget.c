/*
 * api_budget.c - what a request will take, from its sizes: memory and answer.
 * Not here: the plan of one run (core/attn_plan.c).
 * Start reading at api_budget.
 */
#include "api/api_answer.h"

static size_t add(size_t a, size_t b)
{
    size_t sum;

    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static size_t multiply(size_t a, size_t b)
{
    size_t product;

    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Wrong stages and edited ones stand in for those of the dense path, and a full audit
   looks at every S, M and A. */
static bool needs_pairs(const struct api_request *r)
{
    return r->inject != NULL || r->ablations > 0 ||
           (r->audit == ATTN_AUDIT_FULL && r->path == ATTN_PATH_AUTO);
}

uint32_t api_needs(const struct api_request *r)
{
    uint32_t needs = r->want;

    if (needs_pairs(r))
        needs |= ATTN_BIT(ATTN_S) | ATTN_BIT(ATTN_M) | ATTN_BIT(ATTN_ALLOWED) |
                 ATTN_BIT(ATTN_A);

    if (r->has_gradients)
        needs |= attn_grad_needs(&r->p, &r->gradients);
    if (r->traces > 0)
        needs |= ATTN_BIT(ATTN_Q) | ATTN_BIT(ATTN_K) | ATTN_BIT(ATTN_V) |
                 ATTN_BIT(ATTN_S) | ATTN_BIT(ATTN_M) | ATTN_BIT(ATTN_ALLOWED) |
                 ATTN_BIT(ATTN_A);
    return needs;
}

/* ---- memory ---- */

static size_t tensor_memory(const struct attn_tensor *shape)
{
    size_t bytes = attn_dtype_bytes(shape->dtype);

    for (unsigned a = 0; a < shape->rank; a++)
        bytes = multiply(bytes, shape->dim[a]);
    return bytes;
}

/* They run one after the other. */
static size_t ablation_memory(const struct api_request *r, const struct attn_plan *plan)
{
    size_t most = 0;

    for (size_t n = 0; n < r->ablations; n++)
        most = larger(most, attn_ablate_bytes(&r->p, plan, r->ablation[n].edit,
                                              r->ablation[n].edits));
    return most;
}

/* One row taken apart: five lists of numbers, four of vectors, an output. */
static size_t row_trace_memory(const struct api_request *r)
{
    enum { ARRAYS = 10 };
    const size_t row = multiply(
        r->p.d.T_kv, add(5 * sizeof(double), multiply(4 * sizeof(double), r->p.d.d_v)));

    return r->traces == 0
               ? 0
               : add(add(row, r->p.d.d_v * sizeof(double)), ARRAYS * ATTN_ALIGN);
}

/* Room for one gradient in the shape in which its tensor was given. */
static size_t given_memory(const struct api_request *r)
{
    size_t most = 0;

    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++) {
        struct attn_tensor shape;

        if (api_gradient_asked(r, (enum attn_gradient)g) &&
            api_gradient_shape(r, (enum attn_gradient)g, &shape))
            most = larger(most, tensor_memory(&shape) + ATTN_ALIGN);
    }
    return most;
}

static void count_memory(const struct api_ctx *ctx, const struct api_request *r,
                         const struct attn_plan *plan, struct api_budget *budget)
{
    size_t scratch;

    budget->inputs = ctx->arena.used;
    budget->trace = plan->trace_bytes;
    budget->audit =
        r->audit == ATTN_AUDIT_OFF ? 0 : attn_audit_bytes(&r->p, plan, r->audit);
    budget->gradients = r->has_gradients ? attn_grad_bytes(&r->p, &r->gradients) : 0;
    budget->ablations = ablation_memory(r, plan);
    budget->row_traces = row_trace_memory(r);
    /* One after the other, each giving its scratch back. */
    scratch = larger(larger(budget->audit, budget->ablations),
                     larger(budget->row_traces, given_memory(r)));
    budget->total =
        add(add(budget->inputs, budget->trace), add(budget->gradients, scratch));
    budget->limit = ctx->arena.size;
}

/* ---- answer ---- */

enum {
    NUMBER_BYTES = 28,        /* a number and its comma                         */
    FRAME_BYTES = 48 << 10,   /* audit sentences, cost, notes, names            */
    ABLATION_BYTES = 8 << 10, /* names, deltas and claims of one                */
    PLACE_BYTES = 72          /* {"batch":…,"head":…,"query":…}                 */
};

/* One tensor of the answer, in the form asked for. */
static size_t tensor_answer(const struct api_request *r, const struct attn_tensor *shape)
{
    return r->as_file ? tensor_memory(shape) : api_tensor_bytes(shape, r->encoding);
}

static size_t tensors_text(const struct api_request *r)
{
    size_t bytes = 0;

    for (int o = 0; o < ATTN_OBJECT_COUNT; o++) {
        struct attn_tensor shape;

        if (!(r->want & ATTN_BIT(o)) || !attn_object_exists(&r->p, (enum attn_object)o))
            continue;
        attn_object_shape(&r->p, (enum attn_object)o, &shape);
        bytes = add(bytes, tensor_answer(r, &shape));
    }
    return bytes;
}

static size_t gradients_text(const struct api_request *r)
{
    size_t bytes = 0;

    for (int g = 0; g < ATTN_GRADIENT_COUNT; g++) {
        struct attn_tensor shape;

        if (!api_gradient_asked(r, (enum attn_gradient)g))
            continue;
        api_gradient_shape(r, (enum attn_gradient)g, &shape);
        bytes = add(bytes, tensor_answer(r, &shape));
    }
    return bytes;
}

static size_t traces_text(const struct api_request *r)
{
    enum { KEY_NAMES = 160 };
    const size_t numbers = add(5, multiply(4, r->p.d.d_v));
    const size_t key = add(KEY_NAMES, multiply(numbers, NUMBER_BYTES));
    const size_t output = multiply(r->p.d.d_v, NUMBER_BYTES);

    return multiply(r->traces, add(multiply(r->p.d.T_kv, key), add(output, KEY_NAMES)));
}

/* In a file's header the frame is one string, its quotes escaped, beside the rows. */
static size_t frames_of(const struct api_request *r)
{
    return r->as_file ? 4 : 1;
}

static size_t answer_text(const struct api_request *r)
{
    const struct attn_dims *d = &r->p.d;
    const size_t tensors = tensors_text(r);
    size_t bytes = add(FRAME_BYTES, tensors);

    bytes = add(bytes, multiply(r->ablations, add(tensors, ABLATION_BYTES)));
    bytes = add(bytes, gradients_text(r));
    bytes = add(bytes, traces_text(r));
    if (attn_mask_of(&r->p, "padding"))
        bytes = add(bytes, multiply(multiply(d->B, d->T_q), PLACE_BYTES));
    if (attn_mask_of(&r->p, "documents"))
        bytes = add(bytes, multiply(multiply(d->B, d->T_kv), sizeof "false,"));
    return add(bytes, FRAME_BYTES * (frames_of(r) - 1));
}

void api_budget(const struct api_ctx *ctx, const struct api_request *r,
                const struct attn_plan *plan, struct api_budget *budget)
{
    *budget = (struct api_budget){.answer_limit = ctx->limits->answer_max_bytes};
    count_memory(ctx, r, plan, budget);
    budget->answer = answer_text(r);
}

/* ---- time ---- */

/* Measured on the slowest machine at hand, float64 with its audit, T from 2 to 32; only
   what is small need be right. */
enum {
    FIXED_NS = 40000,  /* names, notes, cost, audit sentences              */
    HEAD_NS = 10000,   /* calls for one head of one item, and their reruns */
    PRODUCT_NS = 1,    /* a multiply-add, with its share of the audit      */
    PAIR_NS = 30,      /* score, mask, exp, audit of one pair              */
    ANSWER_BYTE_NS = 1 /* of the most that the text may be                 */
};

uint64_t api_work_ns(const struct api_request *r, const struct api_budget *budget)
{
    const struct attn_dims *d = &r->p.d;
    const size_t rows = multiply(d->B, add(d->T_q, d->T_kv));
    const size_t pairs = multiply(multiply(d->B, d->h), multiply(d->T_q, d->T_kv));
    const size_t widths = multiply(d->h, add(d->d_k, d->d_v));
    const size_t products =
        add(multiply(pairs, add(d->d_k, d->d_v)),
            multiply(rows, multiply(add(d->d_model, d->d_model_kv), widths)));

    if (needs_pairs(r) || r->audit == ATTN_AUDIT_FULL)
        return UINT64_MAX;
    return add(
        add(add(FIXED_NS, multiply(multiply(d->B, d->h), HEAD_NS)),
            multiply(pairs, PAIR_NS)),
        add(multiply(products, PRODUCT_NS),
            multiply(budget->answer - FRAME_BYTES * frames_of(r), ANSWER_BYTE_NS)));
}

/* ---- refusals ---- */

static bool refuse(struct api_err *err, const char *what, size_t limit, size_t bytes)
{
    return api_fail_numbers(err, "too-large", NULL, what, limit, bytes,
                            "The %s may take %zu bytes, this request needs up to %zu.",
                            what, limit, bytes);
}

bool api_budget_check(const struct api_budget *budget, struct api_err *err)
{
    if (budget->total > budget->limit)
        return refuse(err, "tensors", budget->limit, budget->total);
    if (budget->answer > budget->answer_limit)
        return refuse(err, "answer", budget->answer_limit, budget->answer);
    return true;
}

bool api_budget_check_rows(const struct api_budget *budget, size_t empty_rows,
                           struct api_err *err)
{
    const size_t bytes = add(budget->answer, multiply(empty_rows, PLACE_BYTES));

    return bytes <= budget->answer_limit ||
           refuse(err, "answer", budget->answer_limit, bytes);
}
