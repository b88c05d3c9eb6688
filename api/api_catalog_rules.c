/*
 * api_catalog_rules.c - what a request may ask for: masks, scores, positions, ablations.
 * Not here: the tables (core/), the catalog as a whole (api_catalog.c).
 * Start reading at api_catalog_masks.
 */
#include "api/api_answer.h"
#include "api/api_catalog.h"

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

bool api_catalog_masks(struct api_buffer *b, const struct api_limits *limits)
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

bool api_catalog_scores(struct api_buffer *b, const struct api_limits *limits)
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

bool api_catalog_positions(struct api_buffer *b, const struct api_limits *limits)
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

bool api_catalog_ablations(struct api_buffer *b, const struct api_limits *limits)
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

bool api_catalog_conventions(struct api_buffer *b, const struct api_limits *limits)
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
