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
        {"deadline_ms", limits->deadline_ms, "milliseconds"},
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
    {"masks", api_catalog_masks},
    {"scores", api_catalog_scores},
    {"positions", api_catalog_positions},
    {"empty_rows", put_empty_rows},
    {"checks", api_catalog_checks},
    {"faults", api_catalog_faults},
    {"accepted_forms", api_catalog_accepted_forms},
    {"candidate_dtypes", api_catalog_candidate_dtypes},
    {"purposes", api_catalog_purposes},
    {"ablations", api_catalog_ablations},
    {"conventions", api_catalog_conventions},
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
