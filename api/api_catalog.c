/*
 * api_catalog.c - GET /v1/catalog: what this service knows, from its tables.
 * Not here: the tables (core/), the limits' values (server/).
 * Start reading at the table PARTS.
 */
#include <stdio.h>

#include "api/api_audit.h"
#include "api/api_catalog.h"
#include "api/api_probe.h"

static bool put_names(struct api_buffer *b, const char *const *names, size_t count)
{
    bool ok = api_puts(b, "[");

    for (size_t n = 0; n < count && ok; n++)
        ok = api_put_comma(b) && api_put_string(b, names[n]);
    return ok && api_puts(b, "]");
}

/* ---- objects ---- */

static bool put_axes(struct api_buffer *b, const enum attn_axis *axis, size_t max)
{
    bool ok = api_puts(b, "[");

    for (size_t a = 0; a < max && axis[a] != ATTN_AX_END && ok; a++)
        ok = api_put_comma(b) && api_put_string(b, attn_axis_name(axis[a]));
    return ok && api_puts(b, "]");
}

static bool put_depends_on(struct api_buffer *b, uint32_t objects)
{
    bool ok = api_puts(b, "[");

    for (int o = 0; o < ATTN_OBJECT_COUNT && ok; o++)
        if (objects & ATTN_BIT(o))
            ok = api_put_comma(b) && api_put_string(b, ATTN_OBJECTS[o].name);
    return ok && api_puts(b, "]");
}

static bool put_objects(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t o = 0; o < ATTN_OBJECT_COUNT && ok; o++) {
        const struct attn_object_row *row = &ATTN_OBJECTS[o];

        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", row->name) && api_put_key(b, "shape") &&
             put_axes(b, row->axis, ATTN_RANK_MAX + 1) && api_put_key(b, "depends_on") &&
             put_depends_on(b, row->depends_on) &&
             api_put_text_member(b, "formula", row->formula) &&
             api_put_bool_member(b, "returnable", row->returnable) &&
             api_put_bool_member(b, "by_default", row->by_default) &&
             api_put_bool_member(b, "pairwise", row->pairwise) &&
             api_put_text_member(b, "counts_as", ATTN_OBJECTS[row->counts_as].name) &&
             api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

static bool put_tensors(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t o = 0; o < ATTN_OBJECT_COUNT && ok; o++)
        if (ATTN_OBJECTS[o].returnable)
            ok = api_put_comma(b) && api_put_string(b, ATTN_OBJECTS[o].name);
    return ok && api_puts(b, "]");
}

static bool put_gradients(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t g = 0; g < ATTN_GRADIENT_COUNT && ok; g++) {
        const struct attn_gradient_row *row = &ATTN_GRADIENTS[g];
        const char *like = row->like_object >= 0 ? ATTN_OBJECTS[row->like_object].name
                                                 : ATTN_INPUTS[row->like_input].name;

        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", row->name) &&
             api_put_text_member(b, "shaped_like", like) &&
             api_put_text_member(b, "formula", row->formula) && api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

/* ---- masks, scores, positions ---- */

static const char *const PARAM_KINDS[ATTN_PARAM_KIND_COUNT] = {
    [ATTN_PARAM_END] = "",
    [ATTN_PARAM_ALIGNMENT] = "\"top_left\" or \"bottom_right\"",
    [ATTN_PARAM_EXTENT] = "whole number from -1; -1 = open",
    [ATTN_PARAM_LENGTHS] = "whole numbers (B), each from 0 to T_kv",
    [ATTN_PARAM_VALID] = "booleans (B,T_kv), true = a real token",
    [ATTN_PARAM_IDS] =
        "whole numbers (B,T_kv), -1 = no document; rank 1 for one sequence",
    [ATTN_PARAM_SEGMENTS] = "lengths of the documents of each item, in order",
    [ATTN_PARAM_CU_SEQLENS] = "cumulated lengths from 0 to T_kv",
    [ATTN_PARAM_NEXT_ID] = "whole numbers (B), or one for one sequence: document of the "
                           "token just outside the "
                           "block",
    [ATTN_PARAM_PAIRS] = "booleans (T_q,T_kv), (B,T_q,T_kv) or (B,h,T_q,T_kv)",
};

static bool put_mask_parameters(struct api_buffer *b, const struct attn_mask_row *row)
{
    bool ok = api_puts(b, "[");

    for (size_t n = 0; n < ATTN_PARAMS_MAX && ok; n++) {
        const struct attn_mask_param *param = &row->param[n];

        if (param->kind == ATTN_PARAM_END)
            break;
        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", param->name) &&
             api_put_text_member(b, "takes", PARAM_KINDS[param->kind]) &&
             api_put_bool_member(b, "one_of", param->one_of > 0) && api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

/* Not a rule of the table: it forbids where it is -Infinity and moves the scores
   elsewhere. */
static bool put_additive(struct api_buffer *b)
{
    return api_put_comma(b) && api_puts(b, "{") &&
           api_put_text_member(b, "name", "additive") &&
           api_put_text_member(
               b, "rule", "Its numbers are added to S; -Infinity forbids the pair.") &&
           api_put_text_member(b, "given_as", "tensor") && api_put_key(b, "parameters") &&
           api_puts(b, "[{") && api_put_text_member(b, "name", "pairs") &&
           api_put_text_member(b, "takes",
                               "numbers or \"-Infinity\", (T_q,T_kv), (B,T_q,T_kv) or "
                               "(B,h,T_q,T_kv)") &&
           api_put_bool_member(b, "one_of", false) && api_puts(b, "}]}");
}

static bool put_masks(struct api_buffer *b, const struct api_limits *limits)
{
    static const char *const FORMS[] = {
        [ATTN_MASK_SWITCH] = "true or object",
        [ATTN_MASK_OBJECT] = "object",
        [ATTN_MASK_TENSOR] = "tensor",
    };
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t n = 0; n < attn_mask_count() && ok; n++) {
        const struct attn_mask_row *row = attn_mask_at(n);

        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", row->name) &&
             api_put_text_member(b, "rule", row->rule) &&
             api_put_text_member(b, "given_as", FORMS[row->form]) &&
             api_put_key(b, "parameters") && put_mask_parameters(b, row) &&
             api_puts(b, "}");
    }
    return ok && put_additive(b) && api_puts(b, "]");
}

static bool put_scores(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t n = 0; n < attn_score_count() && ok; n++) {
        const struct attn_score_row *row = attn_score_at(n);

        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", row->name) &&
             api_put_text_member(b, "formula", row->formula) &&
             api_put_text_member(b, "default_scale",
                                 row->scaled_by_default ? "1/sqrt(d_k)" : "1") &&
             api_put_bool_member(b, "needs_v_a", row->needs_v_a) && api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

static const char *const POSITION_PARAM_KINDS[] = {
    [ATTN_POSITION_CHOICE] = "one of: ",
    [ATTN_POSITION_REAL] = "number",
    [ATTN_POSITION_QUERIES] = "numbers (T_q) or (B,T_q): positions of the queries",
    [ATTN_POSITION_KEYS] = "numbers (T_new) or (B,T_new): positions of the new keys",
    [ATTN_POSITION_SLOPES] = "numbers (h), or \"standard\"",
};
_Static_assert(API_COUNT(POSITION_PARAM_KINDS) == ATTN_POSITION_PARAM_KIND_COUNT,
               "one sentence a kind");

/* What a parameter takes, in words of its kind and its own bounds. */
static bool put_takes(struct api_buffer *b, const struct attn_position_param *param)
{
    char text[160];
    size_t len =
        (size_t)snprintf(text, sizeof text, "%s", POSITION_PARAM_KINDS[param->kind]);

    for (size_t n = 0; n < ATTN_CHOICES_MAX && param->choice[n] && len < sizeof text; n++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%s\"%s\"",
                                n > 0 ? ", " : "", param->choice[n]);
    if (param->kind == ATTN_POSITION_REAL && len < sizeof text)
        snprintf(text + len, sizeof text - len, "%s; %g when left out",
                 param->positive ? " greater than 0" : "", param->otherwise);
    return api_put_text_member(b, "takes", text);
}

static bool put_position_parameters(struct api_buffer *b,
                                    const struct attn_position_row *row)
{
    bool ok = api_puts(b, "[");

    for (size_t n = 0; n < ATTN_PARAMS_MAX && ok; n++) {
        const struct attn_position_param *param = &row->param[n];

        if (param->kind == ATTN_POSITION_END)
            break;
        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", param->name) && put_takes(b, param) &&
             api_put_bool_member(b, "required", param->required) && api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

static bool put_positions(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t n = 0; n < attn_position_count() && ok; n++) {
        const struct attn_position_row *row = attn_position_at(n);

        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", row->name) &&
             api_put_text_member(b, "formula", row->formula) &&
             api_put_text_member(b, "acts_on", attn_position_acts_on(row)) &&
             api_put_key(b, "parameters") && put_position_parameters(b, row) &&
             api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

/* ---- ablations, conventions ---- */

static bool put_target(struct api_buffer *b, const struct attn_edit_target_row *row)
{
    bool ok = api_put_comma(b) && api_puts(b, "{") &&
              api_put_text_member(b, "name", row->name) &&
              api_put_text_member(b, "says", row->says) && api_put_key(b, "changes") &&
              api_puts(b, "[");

    for (size_t n = 0; n < attn_edit_change_count() && ok; n++)
        if (row->changes >> n & 1)
            ok = api_put_comma(b) && api_put_string(b, attn_edit_change_at(n)->name);
    ok = ok && api_puts(b, "]") && api_put_key(b, "parameters") && api_puts(b, "[");
    if (row->needs_index)
        ok = ok && api_put_comma(b) && api_put_string(b, "index");
    if (row->needs_query_key)
        ok = ok && api_put_comma(b) && api_put_string(b, "query") && api_put_comma(b) &&
             api_put_string(b, "key");
    return ok && api_puts(b, "]}");
}

static bool put_change(struct api_buffer *b, const struct attn_edit_change_row *row)
{
    const struct {
        const char *name;
        bool needed;
    } parameter[] = {
        {"by", row->needs_by},
        {"seed", row->needs_seed},
        {"std", row->needs_std},
        {"with", row->needs_with},
    };
    bool ok = api_put_comma(b) && api_puts(b, "{") &&
              api_put_text_member(b, "name", row->name) &&
              api_put_text_member(b, "says", row->says) && api_put_key(b, "parameters") &&
              api_puts(b, "[");

    for (size_t n = 0; n < API_COUNT(parameter) && ok; n++)
        if (parameter[n].needed)
            ok = api_put_comma(b) && api_put_string(b, parameter[n].name);
    return ok && api_puts(b, "]}");
}

static bool put_ablations(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "{") && api_put_key(b, "targets") && api_puts(b, "[");

    (void)limits;
    for (size_t n = 0; n < attn_edit_target_count() && ok; n++)
        ok = put_target(b, attn_edit_target_at(n));
    ok = ok && api_puts(b, "]") && api_put_key(b, "changes") && api_puts(b, "[");
    for (size_t n = 0; n < attn_edit_change_count() && ok; n++)
        ok = put_change(b, attn_edit_change_at(n));
    return ok && api_puts(b, "]}");
}

static bool put_conventions(struct api_buffer *b, const struct api_limits *limits)
{
    static const char *const ALIGNMENTS[] = {
        [ATTN_ALIGN_UNSTATED] = NULL,
        [ATTN_ALIGN_TOP_LEFT] = "top_left",
        [ATTN_ALIGN_BOTTOM_RIGHT] = "bottom_right",
    };
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t n = 0; n < attn_convention_count() && ok; n++) {
        const struct attn_convention_row *row = attn_convention_at(n);

        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", row->name) &&
             api_put_text_member(b, "mask_true_means", row->mask_true_means) &&
             api_put_text_member(b, "alignment", ALIGNMENTS[row->alignment]) &&
             api_put_text_member(b, "empty_rows", ATTN_EMPTY_NAMES[row->empty_rows]) &&
             api_put_text_member(b, "default_scale", row->default_scale) &&
             api_put_bool_member(b, "window_counts_own_position",
                                 row->window_counts_own_position) &&
             api_put_text_member(b, "source", row->source) && api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

/* ---- limits and choices ---- */

static bool put_limits(struct api_buffer *b, const struct api_limits *limits)
{
    const struct {
        const char *name;
        uint64_t value;
        const char *unit;
    } row[] = {
        {"body_max_bytes", limits->body_max_bytes, "bytes"},
        {"memory_max_bytes", limits->memory_max_bytes, "bytes"},
        {"answer_max_bytes", limits->answer_max_bytes, "bytes"},
        {"deadline_ms", limits->deadline_ms, "milliseconds, 0 = none"},
        {"workers", limits->workers, "threads"},
        {"queue_max", limits->queue_max, "requests"},
        {"ablations_max", API_ABLATIONS_MAX, "ablations of one request"},
        {"changes_max", ATTN_EDITS_MAX, "changes of one ablation"},
        {"traces_max", API_TRACES_MAX, "rows of one request"},
        {"companions_max", API_COMPANIONS_MAX, "companions of one audit"},
        {"probe_size_max", API_PROBE_SIZE_MAX, "largest size of a probe"},
    };
    bool ok = api_puts(b, "{");

    for (size_t n = 0; n < API_COUNT(row) && ok; n++)
        ok = api_put_key(b, row[n].name) && api_puts(b, "{") &&
             api_put_u64_member(b, "value", row[n].value) &&
             api_put_text_member(b, "unit", row[n].unit) && api_puts(b, "}");
    return ok && api_puts(b, "}");
}

static bool put_encodings(struct api_buffer *b, const struct api_limits *limits)
{
    (void)limits;
    return put_names(b, API_ENCODING_NAMES, API_ENC_COUNT);
}

static bool put_paths(struct api_buffer *b, const struct api_limits *limits)
{
    (void)limits;
    return put_names(b, ATTN_PATH_NAMES, ATTN_PATH_COUNT);
}

static bool put_empty_rows(struct api_buffer *b, const struct api_limits *limits)
{
    (void)limits;
    return put_names(b, ATTN_EMPTY_NAMES, ATTN_EMPTY_COUNT);
}

static bool put_inits(struct api_buffer *b, const struct api_limits *limits)
{
    (void)limits;
    return put_names(b, ATTN_INIT_NAMES, ATTN_INIT_COUNT);
}

static bool put_version(struct api_buffer *b, const struct api_limits *limits)
{
    (void)limits;
    return api_put_string(b, API_VERSION);
}

static const struct {
    const char *name;
    api_catalog_part_fn *put;
} PARTS[] = {
    {"version", put_version},
    {"objects", put_objects},
    {"tensors", put_tensors},
    {"gradients", put_gradients},
    {"masks", put_masks},
    {"scores", put_scores},
    {"positions", put_positions},
    {"empty_rows", put_empty_rows},
    {"checks", api_catalog_checks},
    {"faults", api_catalog_faults},
    {"accepted_forms", api_catalog_accepted_forms},
    {"candidate_dtypes", api_catalog_candidate_dtypes},
    {"purposes", api_catalog_purposes},
    {"ablations", put_ablations},
    {"conventions", put_conventions},
    {"inits", put_inits},
    {"encodings", put_encodings},
    {"paths", put_paths},
    {"limits", put_limits},
};

static bool put_catalog(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "{");

    for (size_t n = 0; n < API_COUNT(PARTS) && ok; n++)
        ok = api_put_key(b, PARTS[n].name) && PARTS[n].put(b, limits);
    return ok && api_puts(b, "}");
}

void api_catalog(struct api_ctx *ctx, const struct api_call *call,
                 struct api_reply *reply)
{
    struct api_err err = {0};

    reply->out->len = 0;
    if (put_catalog(reply->out, ctx->limits)) {
        reply->status = 200;
        reply->content_type = "application/json";
        reply->cache_control = "no-cache";
        return;
    }
    reply->out->len = 0;
    api_fail_buffer(&err);
    api_reply_error(reply, call->request_id, &err);
}
