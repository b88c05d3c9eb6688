/*
 * api_catalog_audit.c - the catalog's parts about judging: checks, faults, forms, probes.
 * Not here: the other parts (api_catalog.c), the tables (core/, api_probe_rows.c).
 * Start reading at api_catalog_faults.
 */
#include "api/api_catalog.h"
#include "api/api_probe.h"

bool api_catalog_checks(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t n = 0; n < attn_check_count() && ok; n++) {
        const struct attn_check_row *row = attn_check_at(n);

        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_u64_member(b, "order", (uint64_t)row->order) &&
             api_put_text_member(b, "id", row->id) &&
             api_put_text_member(b, "object", row->object) &&
             api_put_text_member(b, "shows", row->shows) && api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

/* The constant that inject may set, and whether it takes a seed. */
static bool put_takes(struct api_buffer *b, const struct attn_fault_row *row)
{
    struct attn_fault_takes takes;

    if (!attn_fault_takes(row, &takes))
        return api_put_text_member(b, "parameter", NULL) &&
               api_put_bool_member(b, "takes_seed", false);
    return api_put_key(b, "parameter") && api_puts(b, "{") &&
           api_put_text_member(b, "name", takes.name) &&
           api_put_double_member(b, "default", takes.standard) && api_puts(b, "}") &&
           api_put_bool_member(b, "takes_seed", takes.seed);
}

bool api_catalog_faults(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t n = 0; n < attn_fault_count() && ok; n++) {
        const struct attn_fault_row *row = attn_fault_at(n);

        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", attn_fault_name(row)) &&
             api_put_text_member(b, "object", attn_fault_object(row)) &&
             api_put_text_member(b, "explanation", attn_fault_explanation(row)) &&
             api_put_text_member(b, "fix", attn_fault_fix(row)) &&
             api_put_text_member(b, "visible_when", attn_fault_visible_when(row)) &&
             api_put_text_member(b, "caught_by", attn_fault_caught_by(row)) &&
             put_takes(b, row) && api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

bool api_catalog_candidate_dtypes(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (int n = 0; n < ATTN_PRECISION_COUNT && ok; n++) {
        double rtol, atol;

        attn_tolerance((enum attn_precision)n, &rtol, &atol);
        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", ATTN_PRECISION_NAMES[n]) &&
             api_put_double_member(b, "rtol", rtol) &&
             api_put_double_member(b, "atol", atol) && api_puts(b, "}");
    }
    return ok && api_puts(b, "]");
}

static bool put_says(struct api_buffer *b, const char *name, const char *says)
{
    return api_put_comma(b) && api_puts(b, "{") && api_put_text_member(b, "name", name) &&
           api_put_text_member(b, "says", says) && api_puts(b, "}");
}

bool api_catalog_accepted_forms(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t n = 0; n < attn_accepted_count() && ok; n++)
        ok = put_says(b, attn_accepted_at(n)->name, attn_accepted_at(n)->says);
    return ok && api_puts(b, "]");
}

bool api_catalog_purposes(struct api_buffer *b, const struct api_limits *limits)
{
    bool ok = api_puts(b, "[");

    (void)limits;
    for (size_t n = 0; n < API_PURPOSE_COUNT && ok; n++)
        ok = put_says(b, API_PURPOSES[n].name, API_PURPOSES[n].says);
    return ok && api_puts(b, "]");
}
