/*
 * api_catalog.h - what the files of GET /v1/catalog share.
 * Not here: the tables (core/).
 * Start reading at the table PARTS in api_catalog.c.
 */
#ifndef API_CATALOG_H
#define API_CATALOG_H

#include "api/api_private.h"

typedef bool api_catalog_part_fn(struct api_buffer *b, const struct api_limits *limits);

/* What a request may ask for (api_catalog_rules.c). */
api_catalog_part_fn api_catalog_masks, api_catalog_scores, api_catalog_positions,
    api_catalog_ablations, api_catalog_conventions;
/* What judges, and what is judged (api_catalog_audit.c). */
api_catalog_part_fn api_catalog_checks, api_catalog_faults, api_catalog_accepted_forms,
    api_catalog_candidate_dtypes, api_catalog_purposes;

#endif
