/*
 * attn_fault_common.c - how often a fault is met beside others that have its numbers.
 * Not here: which faults have the same numbers (attn_diagnose_cause.c finds out).
 * Start reading at MET.
 */
#include "core/attn_fault.h"

#include <string.h>

/* Of two that cannot be told apart on an input, the one met more often is named first.
   What stands here is judgement: what people write by mistake, before what takes a
   coincidence of sizes or another slip besides.  Others are met USUALLY. */
static const struct met_row {
    const char *fault;
    enum attn_met met;
} MET[] = {
    {"mask_ignored", ATTN_MET_OFTEN},
    {"causal_skipped_in_prefill", ATTN_MET_RARELY}, /* as any causal mask left out */
    {"chunk_mask_offset", ATTN_MET_RARELY},         /* as the top left corner */
    {"masked_row_nan_spreads", ATTN_MET_RARELY},    /* as its cause, the NaN */
    {"qk_swapped", ATTN_MET_OFTEN},
    {"scale_missing", ATTN_MET_OFTEN},
    {"scale_no_sqrt", ATTN_MET_OFTEN},
    {"scale_value_width", ATTN_MET_RARELY}, /* as √d_model where h·d_v = d_model */
    {"scale_heads", ATTN_MET_RARELY},    /* as √d_model or √d_k where h is either */
    {"keys_meet_keys", ATTN_MET_RARELY}, /* as W_K used for queries, too */
    {"queries_meet_queries", ATTN_MET_RARELY},
    {"queries_meet_values", ATTN_MET_RARELY},
    {"largest_weight_only", ATTN_MET_RARELY}, /* as any scores that are too large */
};

enum attn_met attn_fault_met(const struct attn_fault_row *row)
{
    for (size_t n = 0; n < ATTN_COUNT(MET); n++)
        if (strcmp(MET[n].fault, row->name) == 0)
            return MET[n].met;
    return ATTN_MET_USUALLY;
}
