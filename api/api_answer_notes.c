/*
 * api_answer_notes.c - what this answer does not hold, how far it may be read.
 * Not here: warnings about the request (they come with it).
 * Start reading at the two tables: a row is a sentence and when it is said.
 */
#include "api/api_answer.h"

typedef bool note_fn(const struct api_request *r);

static bool always(const struct api_request *r)
{
    (void)r;
    return true;
}

static bool without_position(const struct api_request *r)
{
    return r->p.position_count == 0;
}

static bool single_head(const struct api_request *r)
{
    return r->p.d.h == 1;
}

static bool shows_weights(const struct api_request *r)
{
    return (r->want & (ATTN_BIT(ATTN_A) | ATTN_BIT(ATTN_CONTRIBUTIONS))) != 0 ||
           r->traces > 0;
}

static bool has_ablations(const struct api_request *r)
{
    return r->ablations > 0;
}

static bool has_temperature(const struct api_request *r)
{
    return r->p.temperature != 1.0;
}

static bool has_documents(const struct api_request *r)
{
    return attn_mask_of(&r->p, "documents") != NULL;
}

struct note_row {
    const char *text;
    note_fn *said;
};

static const struct note_row NOT_IN_THIS_LAYER[] = {
    {"position information", without_position},
    {"several heads", single_head},
    {"residual update", always},
    {"normalization", always},
    {"position-wise MLP", always},
};

static const struct note_row INTERPRETATION[] = {
    {"This layer is position-blind: without RoPE or ALiBi a score depends on the two "
     "tokens alone, "
     "and only the masks tell positions apart.",
     without_position},
    {"Attention weights are not a causal explanation: they say how much of each value "
     "entered a "
     "row, not why a model answered as it did.",
     shows_weights},
    {"An ablation changes this layer with everything else as it was: it does not measure "
     "how a "
     "trained network would compensate.",
     has_ablations},
    {"Attention temperature is not output sampling: it divides the scores of this layer "
     "before "
     "the softmax.",
     has_temperature},
    {"A document that crosses a block boundary has lost its earlier context: its first "
     "tokens "
     "here read only what is in the block.",
     has_documents},
    {"A direct path between any two allowed positions is what the quadratic cost buys.",
     always},
    {"Generation waits for each new token: only training and the reading of a prompt run "
     "in one "
     "parallel step.",
     always},
};

static bool put_list(struct api_buffer *b, const char *name, const struct note_row *rows,
                     size_t count, const struct api_request *r)
{
    bool ok = api_put_key(b, name) && api_puts(b, "[");

    for (size_t n = 0; n < count && ok; n++)
        if (rows[n].said(r))
            ok = api_put_comma(b) && api_put_string(b, rows[n].text);
    return ok && api_puts(b, "]");
}

bool api_put_notes(struct api_buffer *b, const struct api_request *r)
{
    return api_put_key(b, "notes") && api_puts(b, "{") &&
           put_list(b, "not_in_this_layer", NOT_IN_THIS_LAYER,
                    API_COUNT(NOT_IN_THIS_LAYER), r) &&
           put_list(b, "interpretation", INTERPRETATION, API_COUNT(INTERPRETATION), r) &&
           api_puts(b, "}");
}
