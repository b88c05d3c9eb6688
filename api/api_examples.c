/*
 * api_examples.c - GET /v1/examples and /v1/examples/{name}: files of examples/.
 * Not here: the files; how they are embedded (scripts/assets.sh).
 * Start reading at the table API_EXAMPLE_TITLES.
 */
#include <string.h>

#include "api/api_answer.h"

/* One row a file of examples/, without its ".json"; a test proves that table and folder
 * agree. */
/* clang-format off */
const struct api_example_row API_EXAMPLE_TITLES[] = {
    { "additive-score", "Additive scores",
      "Bahdanau's v_a tanh(q + k) on a worked 2 x 2 example: no scale by default." },
    { "causal-trace", "Four tokens, causal, two rows taken apart",
      "Each key that rows 0 and 3 read: score, weight, value, contribution." },
    { "cross-attention", "Cross-attention",
      "Three queries read five keys of another sequence with another width." },
    { "decode-with-cache", "One new token with cached keys and values",
      "The query stands at the last key, so nothing is in its future." },
    { "gradients", "Gradients, checked",
      "Every gradient of Y, compared with central differences in float64." },
    { "grouped-query", "Grouped-query heads with RoPE",
      "Four query heads share two key/value heads; float32, rotary positions." },
    { "inject-fault", "A layer with a known fault",
      "The scale is left out; the audit names S as the first wrong object." },
    { "ln3", "The ln 3 example",
      "Scores [0, ln 3], values [2, 6]: A = [1/4, 3/4], H = 5, and dS = [-3/4, 3/4]." },
    { "packed-documents", "Three packed documents",
      "A query reads its own document only; supervision says which labels count." },
    { "padded-batch", "A padded batch",
      "Lengths 5 and 3: padded keys are forbidden, padded rows are listed." },
    { "projection-ablation", "What each projection does",
      "W_Q, W_K, W_V and W_O set to zero in turn, with what must not move." },
    { "sink", "An attention sink",
      "An extra logit in the denominator only: rows of A sum to less than 1." },
    { "window-alibi", "A sliding window with ALiBi",
      "Each query reads itself and the two positions before it, nearer ones favoured." },
};
/* clang-format on */
const size_t API_EXAMPLE_TITLE_COUNT = API_COUNT(API_EXAMPLE_TITLES);

static const struct api_asset *find(const char *name)
{
    for (size_t n = 0; name && n < API_EXAMPLE_COUNT; n++)
        if (strcmp(API_EXAMPLES[n].name, name) == 0)
            return &API_EXAMPLES[n];
    return NULL;
}

static bool put_list(struct api_buffer *b)
{
    bool ok = api_puts(b, "{") && api_put_key(b, "examples") && api_puts(b, "[");

    for (size_t n = 0; n < API_EXAMPLE_TITLE_COUNT && ok; n++)
        ok = api_put_comma(b) && api_puts(b, "{") &&
             api_put_text_member(b, "name", API_EXAMPLE_TITLES[n].name) &&
             api_put_text_member(b, "title", API_EXAMPLE_TITLES[n].title) &&
             api_put_text_member(b, "description", API_EXAMPLE_TITLES[n].description) &&
             api_puts(b, "}");
    return ok && api_puts(b, "]}");
}

void api_examples(struct api_ctx *ctx, const struct api_call *call,
                  struct api_reply *reply)
{
    struct api_err err = {0};

    (void)ctx;
    reply->out->len = 0;
    if (put_list(reply->out)) {
        reply->status = 200;
        reply->content_type = "application/json";
        reply->cache_control = "no-cache";
        return;
    }
    reply->out->len = 0;
    api_fail_buffer(&err);
    api_reply_error(reply, call->request_id, &err);
}

void api_example(struct api_ctx *ctx, const struct api_call *call,
                 struct api_reply *reply)
{
    const struct api_asset *asset = find(call->tail);

    (void)ctx;
    reply->out->len = 0;
    if (!asset) {
        api_problem(reply, call->request_id, API_P_NOT_FOUND,
                    "There is no example of this name; GET /v1/examples lists them.",
                    false, 0, 0);
        return;
    }
    reply->status = 200;
    reply->content_type = "application/json";
    reply->cache_control = "no-cache";
    reply->fixed = asset->begin;
    reply->fixed_len = (size_t)(asset->end - asset->begin);
}
