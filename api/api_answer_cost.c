/*
 * api_answer_cost.c - what the layer's work costs, as JSON.
 * Not here: the counting (core/attn_cost.c).
 * Start reading at api_put_cost.
 */
#include "api/api_answer.h"

static bool put_pairs(struct api_buffer *b, const struct attn_cost *cost)
{
    return api_put_key(b, "pairs") && api_puts(b, "{") &&
           api_put_u64_member(b, "dense_per_sequence_per_head",
                              cost->dense_per_sequence_per_head) &&
           api_put_u64_member(b, "dense_total", cost->dense_total) &&
           api_put_u64_member(b, "allowed_total", cost->allowed_total) &&
           api_put_double_member(b, "allowed_fraction", cost->allowed_fraction) &&
           api_puts(b, "}");
}

static bool put_multiply_adds(struct api_buffer *b, const struct attn_cost *cost)
{
    return api_put_key(b, "multiply_adds") && api_puts(b, "{") &&
           api_put_u64_member(b, "Q", cost->multiply_adds.Q) &&
           api_put_u64_member(b, "K", cost->multiply_adds.K) &&
           api_put_u64_member(b, "V", cost->multiply_adds.V) &&
           api_put_u64_member(b, "S", cost->multiply_adds.S) &&
           api_put_u64_member(b, "H", cost->multiply_adds.H) &&
           api_put_u64_member(b, "Y", cost->multiply_adds.Y) &&
           api_put_u64_member(b, "total", cost->multiply_adds.total) &&
           api_put_u64_member(b, "allowed_total", cost->multiply_adds.allowed_total) &&
           api_puts(b, "}");
}

static bool put_bytes(struct api_buffer *b, const struct attn_problem *p,
                      const struct attn_cost *cost)
{
    bool ok = api_put_key(b, "bytes") && api_puts(b, "{");

    for (int o = 0; o < ATTN_OBJECT_COUNT && ok; o++)
        if (attn_object_exists(p, (enum attn_object)o))
            ok = api_put_u64_member(b, ATTN_OBJECTS[o].name, cost->bytes[o]);
    return ok && api_put_u64_member(b, "all_intermediates", cost->all_intermediates) &&
           api_put_u64_member(b, "tiled_working_set", cost->tiled_working_set) &&
           api_put_u64_member(b, "score_matrix", cost->score_matrix) && api_puts(b, "}");
}

static bool put_scaling(struct api_buffer *b, const struct attn_cost *cost)
{
    bool ok = api_put_key(b, "scaling") && api_puts(b, "[");

    for (size_t n = 0; n < API_COUNT(cost->scaling) && ok; n++)
        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_u64_member(b, "T", cost->scaling[n].T) &&
             api_put_u64_member(b, "pairs", cost->scaling[n].pairs) &&
             api_put_u64_member(b, "multiply_adds", cost->scaling[n].multiply_adds) &&
             api_put_u64_member(b, "score_bytes", cost->scaling[n].score_bytes) &&
             api_puts(b, "}");
    return ok && api_puts(b, "]");
}

static bool put_generation(struct api_buffer *b, const struct attn_cost *cost)
{
    return api_put_key(b, "generation") && api_puts(b, "{") &&
           api_put_u64_member(b, "parallel_training_steps",
                              cost->generation.parallel_training_steps) &&
           api_put_u64_member(b, "autoregressive_steps",
                              cost->generation.autoregressive_steps) &&
           api_put_u64_member(b, "pairs_with_cache", cost->generation.pairs_with_cache) &&
           api_put_u64_member(b, "pairs_without_cache",
                              cost->generation.pairs_without_cache) &&
           api_put_u64_member(b, "kv_cache_bytes", cost->generation.kv_cache_bytes) &&
           api_puts(b, "}");
}

bool api_put_cost(struct api_buffer *b, const struct attn_problem *p,
                  const struct attn_cost *cost)
{
    return api_put_key(b, "cost") && api_puts(b, "{") && put_pairs(b, cost) &&
           put_multiply_adds(b, cost) &&
           api_put_u64_member(b, "exponentials", cost->exponentials) &&
           put_bytes(b, p, cost) && put_scaling(b, cost) && put_generation(b, cost) &&
           api_puts(b, "}");
}
