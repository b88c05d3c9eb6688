/*
 * attn_resolve.c - finds every size of a problem from what was declared and the shapes
 * given. Not here: values, masks, what sizes alone cannot decide (attn_problem.c). Start
 * reading at attn_resolve (at the end), then claim.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <string.h>

static const size_t SIZE_LIMIT = INT32_MAX; /* of one axis, and of heads joined */

struct resolve {
    const struct attn_decl *decl;
    const struct attn_given *given;
    struct attn_form form;
    size_t size[ATTN_AX_COUNT]; /* 0 = not known yet; joined axes stay unused */
    struct attn_err *err;
};

/* The order in which inputs fix sizes: of two that disagree, the later is named. */
static const enum attn_input ORDER[] = {
    ATTN_IN_X,   ATTN_IN_X_KV, ATTN_IN_Q,      ATTN_IN_W_Q,    ATTN_IN_K,    ATTN_IN_W_K,
    ATTN_IN_V,   ATTN_IN_W_V,  ATTN_IN_PAST_K, ATTN_IN_PAST_V, ATTN_IN_W_O,  ATTN_IN_B_Q,
    ATTN_IN_B_K, ATTN_IN_B_V,  ATTN_IN_B_O,    ATTN_IN_V_A,    ATTN_IN_SINK,
};
_Static_assert(ATTN_COUNT(ORDER) == ATTN_INPUT_COUNT, "every input once");

/* What the declaration says of an axis, 0 = nothing, and the name of its field. */
static size_t declared(const struct attn_decl *decl, enum attn_axis axis,
                       const char **field)
{
    const struct {
        const char *field;
        size_t size;
    } says[ATTN_AX_COUNT] = {
        [ATTN_AX_B] = {"B", decl->B},
        [ATTN_AX_H] = {"heads", decl->heads},
        [ATTN_AX_HKV] = {"kv_heads", decl->kv_heads},
        [ATTN_AX_TQ] = {"T", decl->T},
        [ATTN_AX_TKV] = {"T_kv", decl->T_kv},
        [ATTN_AX_DM] = {"d_model", decl->d_model},
        [ATTN_AX_DK] = {"d_k", decl->d_k},
        [ATTN_AX_DV] = {"d_v", decl->d_v},
    };

    *field = says[axis].field != NULL ? says[axis].field : ATTN_AXES[axis].name;
    return says[axis].size;
}

/* First of all, so that products of what is declared cannot wrap. */
static bool declared_within_limit(const struct resolve *r)
{
    for (int a = 1; a < ATTN_AX_COUNT; a++) {
        const char *field;
        const size_t says = declared(r->decl, (enum attn_axis)a, &field);

        if (says > SIZE_LIMIT)
            return attn_fail(r->err, ATTN_E_OVERFLOW, "shapes", field, SIZE_LIMIT, says);
    }
    return true;
}

static bool has(const struct resolve *r, enum attn_input in)
{
    return r->given[in].present;
}

static bool fail(const struct resolve *r, enum attn_code code, enum attn_input in)
{
    return attn_fail(r->err, code, ATTN_INPUTS[in].name, NULL, 0, 0);
}

/* Self-attention has one sequence of one width: the new keys are the queries' positions.
 */
static enum attn_axis same_axis(const struct resolve *r, enum attn_axis axis)
{
    if (r->form.source == ATTN_SELF && axis == ATTN_AX_TNEW)
        return ATTN_AX_TQ;
    if (r->form.source == ATTN_SELF && axis == ATTN_AX_DMKV)
        return ATTN_AX_DM;
    return axis;
}

/* Input `in` says that `axis` is n: fixes its size, or compares with what is known. */
static bool claim(struct resolve *r, enum attn_input in, enum attn_axis axis, size_t n)
{
    const char *object = ATTN_INPUTS[in].name, *field;
    const size_t heads =
        ATTN_AXES[axis].heads == ATTN_AX_END ? 1 : r->size[ATTN_AXES[axis].heads];
    const enum attn_axis width = same_axis(r, ATTN_AXES[axis].width);
    const char *name = ATTN_AXES[axis].heads == ATTN_AX_END ? ATTN_AXES[width].name
                                                            : ATTN_AXES[axis].name;
    const size_t says = declared(r->decl, width, &field), known = r->size[width];
    const bool first_said = known == 0 || width == ATTN_AX_H || width == ATTN_AX_HKV;

    if (n == 0)
        return attn_fail(r->err, ATTN_E_SIZE_ZERO, object, name, 1, 0);
    if (n > SIZE_LIMIT)
        return attn_fail(r->err, ATTN_E_OVERFLOW, object, name, SIZE_LIMIT, n);
    if (known == 0 && n % heads != 0)
        return attn_fail(r->err, ATTN_E_DIVIDE, object, name, heads, n);
    if (first_said && says != 0 && says != n / heads)
        return attn_fail(r->err, ATTN_E_DECLARED, object, field, says, n / heads);
    if (known != 0 && known * heads != n)
        return attn_fail(r->err, ATTN_E_SHAPE, object, name, known * heads, n);
    r->size[width] = n / heads;
    return true;
}

/* ---- what is there ---- */

static bool find_source(struct resolve *r)
{
    const bool projected = has(r, ATTN_IN_Q) || has(r, ATTN_IN_K) || has(r, ATTN_IN_V);
    const enum attn_input first = has(r, ATTN_IN_Q)   ? ATTN_IN_Q
                                  : has(r, ATTN_IN_K) ? ATTN_IN_K
                                                      : ATTN_IN_V;

    if (projected && has(r, ATTN_IN_X))
        return fail(r, ATTN_E_CONTRADICTION, first);
    if (projected && has(r, ATTN_IN_X_KV))
        return fail(r, ATTN_E_CONTRADICTION, ATTN_IN_X_KV);
    if (!projected && !has(r, ATTN_IN_X))
        return fail(r, ATTN_E_MISSING, ATTN_IN_X);
    r->form.source = projected              ? ATTN_PROJECTED
                     : has(r, ATTN_IN_X_KV) ? ATTN_CROSS
                                            : ATTN_SELF;
    return true;
}

static bool all_there(const struct resolve *r)
{
    static const enum attn_input projected[] = {ATTN_IN_Q, ATTN_IN_K, ATTN_IN_V};
    static const enum attn_input weights[] = {ATTN_IN_W_Q, ATTN_IN_W_K, ATTN_IN_W_V};
    static const enum attn_input biases[] = {ATTN_IN_B_Q, ATTN_IN_B_K, ATTN_IN_B_V};
    const bool weighted = r->form.source != ATTN_PROJECTED;

    for (size_t n = 0; n < 3; n++) {
        if (!weighted && !has(r, projected[n]))
            return fail(r, ATTN_E_MISSING, projected[n]);
        if (weighted && !has(r, weights[n]))
            return fail(r, ATTN_E_MISSING, weights[n]);
        if (!weighted && has(r, weights[n]))
            return fail(r, ATTN_E_CONTRADICTION, weights[n]);
        if (!weighted && has(r, biases[n]))
            return fail(r, ATTN_E_CONTRADICTION, biases[n]);
    }
    if (has(r, ATTN_IN_B_O) && !has(r, ATTN_IN_W_O))
        return fail(r, ATTN_E_CONTRADICTION, ATTN_IN_B_O);
    if (has(r, ATTN_IN_PAST_K) != has(r, ATTN_IN_PAST_V))
        return fail(r, ATTN_E_MISSING,
                    has(r, ATTN_IN_PAST_K) ? ATTN_IN_PAST_V : ATTN_IN_PAST_K);
    return true;
}

static bool find_heads(struct resolve *r)
{
    const size_t h = r->decl->heads != 0 ? r->decl->heads : 1;
    const size_t h_kv = r->decl->kv_heads != 0 ? r->decl->kv_heads : h;

    if (h % h_kv != 0)
        return attn_fail(r->err, ATTN_E_DIVIDE, "shapes.kv_heads", "kv_heads", h_kv, h);
    r->form.head_axis = r->decl->heads != 0;
    r->size[ATTN_AX_H] = h;
    r->size[ATTN_AX_HKV] = h_kv;
    return true;
}

/* ---- ranks ---- */

static unsigned full_rank(enum attn_input in)
{
    unsigned rank = 0;

    while (rank < ATTN_COUNT(ATTN_INPUTS[in].axis) &&
           ATTN_INPUTS[in].axis[rank] != ATTN_AX_END)
        rank++;
    return rank;
}

static bool is_sequence(enum attn_input in)
{
    return in <= ATTN_IN_V;
}

/* X X_kv Q K V come without a batch axis for one sequence; the first of them decides, and
   the declaration where it has no shape of its own. */
static bool find_batch_axis(struct resolve *r)
{
    const enum attn_input first =
        r->form.source == ATTN_PROJECTED ? ATTN_IN_Q : ATTN_IN_X;
    const struct attn_given *g = &r->given[first];

    r->form.batch_axis = g->shaped ? g->rank > 2 : r->decl->B != 0;
    if (!r->form.batch_axis && r->decl->B > 1)
        return attn_fail(r->err, ATTN_E_DECLARED, ATTN_INPUTS[first].name, "B",
                         r->decl->B, 1);
    if (!r->form.batch_axis)
        r->size[ATTN_AX_B] = 1;
    return true;
}

/* The rank that input `in` must have; `like` is that of the sequences before it, or 0. */
static unsigned wanted_rank(const struct resolve *r, enum attn_input in, unsigned like)
{
    const unsigned rank = r->given[in].rank;

    if (!is_sequence(in))
        return full_rank(in);
    if (like != 0)
        return like;
    if (!r->form.batch_axis)
        return 2;
    return r->form.source == ATTN_PROJECTED && rank == 4 ? 4 : 3;
}

static bool check_ranks(const struct resolve *r)
{
    unsigned like = 0;

    for (size_t n = 0; n < ATTN_COUNT(ORDER); n++) {
        const enum attn_input in = ORDER[n];
        const struct attn_given *g = &r->given[in];

        if (!g->present || !g->shaped)
            continue;
        if (g->rank != wanted_rank(r, in, like))
            return attn_fail(r->err, ATTN_E_RANK, ATTN_INPUTS[in].name, NULL,
                             wanted_rank(r, in, like), g->rank);
        if (is_sequence(in) && g->rank == 4 && !r->form.head_axis)
            return attn_fail(r->err, ATTN_E_MISSING, "shapes.heads", "heads", g->dim[1],
                             0);
        if (is_sequence(in))
            like = g->rank;
    }
    return true;
}

/* ---- sizes ---- */

static enum attn_axis joined(enum attn_axis heads, enum attn_axis width)
{
    for (int a = 0; a < ATTN_AX_COUNT; a++)
        if (ATTN_AXES[a].heads == heads && ATTN_AXES[a].width == width)
            return (enum attn_axis)a;
    assert(false && "no axis joins these");
    return ATTN_AX_END;
}

/* The axes of input `in` in the form in which it was given; returns how many. */
static unsigned given_axes(const struct resolve *r, enum attn_input in,
                           enum attn_axis axis[4])
{
    const enum attn_axis *full = ATTN_INPUTS[in].axis;
    const unsigned rank = r->given[in].rank;

    if (rank == full_rank(in)) {
        memcpy(axis, full, rank * sizeof *full);
        return rank;
    }

    unsigned n = 0;

    if (rank == 3)
        axis[n++] = ATTN_AX_B;
    if (full_rank(in) == 3) {
        axis[n++] = full[1];
        axis[n++] = full[2];
    } else {
        axis[n++] = full[2];
        axis[n++] = joined(full[1], full[3]);
    }
    assert(n == rank);
    return n;
}

static bool read_shapes(struct resolve *r)
{
    for (size_t n = 0; n < ATTN_COUNT(ORDER); n++) {
        const enum attn_input in = ORDER[n];
        enum attn_axis axis[4];

        if (!r->given[in].present || !r->given[in].shaped)
            continue;

        const unsigned rank = given_axes(r, in, axis);

        for (unsigned a = 0; a < rank; a++)
            if (!claim(r, in, axis[a], r->given[in].dim[a]))
                return false;
    }
    return true;
}

/* Sizes that no tensor fixed come from the declaration. */
static void read_declaration(struct resolve *r)
{
    const char *field;

    for (int a = 1; a < ATTN_AX_COUNT; a++) {
        const size_t says = declared(r->decl, (enum attn_axis)a, &field);

        if (r->size[a] == 0)
            r->size[a] = says;
    }
    if (r->size[ATTN_AX_B] == 0)
        r->size[ATTN_AX_B] = 1;
    if (r->form.source != ATTN_CROSS || r->size[ATTN_AX_DMKV] == 0)
        r->size[ATTN_AX_DMKV] = r->size[ATTN_AX_DM];
}

/* T_kv = T_past + T_new: where one of the two is open, the declared T_kv closes it. */
static bool find_lengths(struct resolve *r)
{
    const size_t says = r->decl->T_kv;
    size_t *past = &r->size[ATTN_AX_TPAST], *fresh = &r->size[ATTN_AX_TNEW];
    const bool has_past = has(r, ATTN_IN_PAST_K);
    const enum attn_input queries =
        r->form.source == ATTN_PROJECTED ? ATTN_IN_Q : ATTN_IN_X;
    const enum attn_input keys = has_past                           ? ATTN_IN_PAST_K
                                 : r->form.source == ATTN_PROJECTED ? ATTN_IN_K
                                 : r->form.source == ATTN_CROSS     ? ATTN_IN_X_KV
                                                                    : ATTN_IN_X;

    if (r->size[ATTN_AX_TQ] == 0)
        return attn_fail(r->err, ATTN_E_SIZE_UNKNOWN, ATTN_INPUTS[queries].name, "T", 0,
                         0);
    if (r->form.source == ATTN_SELF)
        *fresh = r->size[ATTN_AX_TQ];
    if (*fresh == 0 && says > *past && (!has_past || *past != 0))
        *fresh = says - *past;
    if (*fresh == 0 && says == 0 && r->form.source == ATTN_PROJECTED)
        *fresh = r->size[ATTN_AX_TQ];
    if (has_past && *past == 0 && *fresh != 0 && says > *fresh)
        *past = says - *fresh;
    if (*fresh == 0 || (has_past && *past == 0))
        return attn_fail(r->err, ATTN_E_SIZE_UNKNOWN, ATTN_INPUTS[keys].name,
                         r->form.source == ATTN_SELF && !has_past ? "T" : "T_kv", 0, 0);
    if (says != 0 && says != *past + *fresh)
        return attn_fail(r->err, ATTN_E_DECLARED, ATTN_INPUTS[keys].name, "T_kv", says,
                         *past + *fresh);
    r->size[ATTN_AX_TKV] = *past + *fresh;
    return true;
}

static bool all_known(const struct resolve *r)
{
    for (size_t n = 0; n < ATTN_COUNT(ORDER); n++) {
        const enum attn_input in = ORDER[n];

        for (unsigned a = 0; has(r, in) && a < full_rank(in); a++) {
            const enum attn_axis axis = ATTN_INPUTS[in].axis[a];
            const enum attn_axis width = same_axis(r, ATTN_AXES[axis].width);
            const char *field;

            declared(r->decl, width, &field);
            if (r->size[width] == 0)
                return attn_fail(r->err, ATTN_E_SIZE_UNKNOWN, ATTN_INPUTS[in].name, field,
                                 0, 0);
        }
    }
    return true;
}

static bool within_limit(const struct attn_dims *d, struct attn_err *err)
{
    for (int a = 1; a < ATTN_AX_COUNT; a++) {
        const size_t size = attn_axis_size(d, (enum attn_axis)a);

        if (size > SIZE_LIMIT)
            return attn_fail(err, ATTN_E_OVERFLOW, "shapes", ATTN_AXES[a].name,
                             SIZE_LIMIT, size);
    }
    return true;
}

bool attn_resolve(const struct attn_decl *decl,
                  const struct attn_given given[ATTN_INPUT_COUNT], struct attn_dims *d,
                  struct attn_form *form, struct attn_err *err)
{
    struct resolve r = {.decl = decl, .given = given, .err = err};

    if (!declared_within_limit(&r) || !find_source(&r) || !all_there(&r) ||
        !find_heads(&r) || !find_batch_axis(&r) || !check_ranks(&r) || !read_shapes(&r))
        return false;
    read_declaration(&r);
    if (!find_lengths(&r) || !all_known(&r))
        return false;
    r.form.has_output = has(&r, ATTN_IN_W_O);
    *form = r.form;
    *d = (struct attn_dims){
        .B = r.size[ATTN_AX_B],
        .T_q = r.size[ATTN_AX_TQ],
        .T_kv = r.size[ATTN_AX_TKV],
        .T_past = r.size[ATTN_AX_TPAST],
        .d_model = r.size[ATTN_AX_DM],
        .d_model_kv = r.size[ATTN_AX_DMKV],
        .d_k = r.size[ATTN_AX_DK],
        .d_v = r.size[ATTN_AX_DV],
        .h = r.size[ATTN_AX_H],
        .h_kv = r.size[ATTN_AX_HKV],
    };
    return within_limit(d, err);
}
