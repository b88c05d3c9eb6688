/*
 * api_probe_rows.c - the kinds of problems that a probe can issue: sizes and rules chosen
 * so that faults show. Not here: drawing the numbers (api_probe_make.c). Start reading at
 * API_PROBE_ROWS.
 */
#include "api/api_probe.h"

enum purpose {
    GENERAL,
    PROJECTIONS,
    SCORES,
    MASKS,
    SOFTMAX,
    HEADS,
    POSITIONS,
    CACHE,
    PACKING,
    GRADIENTS,
    PURPOSES
};
#define FOR(purpose) (UINT32_C(1) << (purpose))

const struct api_purpose_row API_PURPOSES[] = {
    [GENERAL] = {"general",
                 "One chunk after a cache with everything that a layer can have."},
    [PROJECTIONS] = {"projections", "Square and equal widths, at which a transposed or "
                                    "exchanged matrix keeps every shape."},
    [SCORES] = {"scores",
                "Equal axes, at which scores over a wrong axis keep their shape."},
    [MASKS] = {"masks",
               "Both alignments, more keys than queries and the reverse, padding."},
    [SOFTMAX] = {"softmax",
                 "Empty rows, rules that forbid a key twice, scores beyond exp."},
    [HEADS] = {"heads", "Grouped heads, and heads that can be confused with tokens."},
    [POSITIONS] = {"positions", "RoPE in a later chunk and in packed documents; ALiBi."},
    [CACHE] = {"cache", "One new token, or a chunk, after cached keys."},
    [PACKING] = {"packing", "Three documents of unequal length in one sequence."},
    [GRADIENTS] = {"gradients", "A cotangent for Y, with an empty row."},
};
_Static_assert(API_COUNT(API_PURPOSES) == PURPOSES, "one row a purpose");
const size_t API_PURPOSE_COUNT = API_COUNT(API_PURPOSES);

/* ---- masks ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many keys at the left of item b are padding: of later items so many that their
   first query has none left under a causal rule. */
static size_t left_padding(const struct api_probe_sizes *z, size_t b)
{
    const size_t offset = z->T_kv > z->T_q ? z->T_kv - z->T_q : 0;

    if (b == 0)
        return offset > 0 ? 1 : 0;
    return least(offset + b, z->T_kv - 1);
}

static bool put_left_padding(struct api_buffer *b, const struct api_probe_sizes *z)
{
    bool ok = api_put_key(b, "padding") && api_puts(b, "{\"valid\":[");

    for (size_t n = 0; n < z->B && ok; n++) {
        ok = api_put_comma(b) && api_puts(b, "[");
        for (size_t j = 0; j < z->T_kv && ok; j++)
            ok = api_put_comma(b) &&
                 api_puts(b, j < left_padding(z, n) ? "false" : "true");
        ok = ok && api_puts(b, "]");
    }
    return ok && api_puts(b, "]}");
}

static bool put_causal(struct api_buffer *b, const char *alignment)
{
    return api_put_key(b, "causal") && api_puts(b, "{") &&
           api_put_text_member(b, "alignment", alignment) && api_puts(b, "}");
}

static bool chunk_rules(struct api_buffer *b, const struct api_probe_sizes *z)
{
    return put_causal(b, "bottom_right") && put_left_padding(b, z) &&
           api_put_key(b, "window") && api_puts(b, "{") &&
           api_put_u64_member(b, "left", z->T_kv > 2 ? (z->T_kv - 1) / 2 : 1) &&
           api_puts(b, "}");
}

static bool causal_only(struct api_buffer *b, const struct api_probe_sizes *z)
{
    (void)z;
    return put_causal(b, "bottom_right");
}

static bool top_left(struct api_buffer *b, const struct api_probe_sizes *z)
{
    (void)z;
    return put_causal(b, "top_left");
}

static bool causal_and_padding(struct api_buffer *b, const struct api_probe_sizes *z)
{
    return put_causal(b, "bottom_right") && put_left_padding(b, z);
}

static bool decode_rules(struct api_buffer *b, const struct api_probe_sizes *z)
{
    (void)z;
    return put_causal(b, "bottom_right") && api_put_key(b, "window") &&
           api_puts(b, "{\"left\":2}");
}

/* Neither symmetric nor the same for two rows, heads or items; head 0 of item 0 has no
   key in its last row, where the other heads have some; the last item's first row is
   empty in every head. */
static bool may(const struct api_probe_sizes *z, size_t n, size_t h, size_t i, size_t j)
{
    if (n == 0 && h == 0 && i + 1 == z->T_q)
        return false;
    if (n > 0 && n + 1 == z->B && i == 0)
        return false;
    return j == i || (3 * i + j + n + 2 * h) % 4 != 0;
}

static bool put_uneven_row(struct api_buffer *b, const struct api_probe_sizes *z,
                           size_t n, size_t h, size_t i)
{
    bool ok = api_put_comma(b) && api_puts(b, "[");

    for (size_t j = 0; j < z->T_kv && ok; j++)
        ok = api_put_comma(b) && api_puts(b, may(z, n, h, i, j) ? "true" : "false");
    return ok && api_puts(b, "]");
}

static bool uneven(struct api_buffer *b, const struct api_probe_sizes *z)
{
    bool ok = api_put_key(b, "allowed") && api_puts(b, "[");

    for (size_t n = 0; n < z->B && ok; n++) {
        ok = api_put_comma(b) && api_puts(b, "[");
        for (size_t h = 0; h < z->h && ok; h++) {
            ok = api_put_comma(b) && api_puts(b, "[");
            for (size_t i = 0; i < z->T_q && ok; i++)
                ok = put_uneven_row(b, z, n, h, i);
            ok = ok && api_puts(b, "]");
        }
        ok = ok && api_puts(b, "]");
    }
    return ok && api_puts(b, "]");
}

/* Document of token j: the first third, then the rest but the last, then the last;
   shifted from item to item. */
static size_t document(const struct api_probe_sizes *z, size_t n, size_t j)
{
    const size_t first = least(z->T_kv / 3 + n % 2, z->T_kv);

    return j < first ? 0 : j + 1 < z->T_kv ? 1 : 2;
}

static bool put_table(struct api_buffer *b, const struct api_probe_sizes *z,
                      size_t (*entry)(const struct api_probe_sizes *z, size_t n,
                                      size_t j))
{
    bool ok = api_puts(b, "[");

    for (size_t n = 0; n < z->B && ok; n++) {
        ok = api_put_comma(b) && api_puts(b, "[");
        for (size_t j = 0; j < z->T_kv && ok; j++)
            ok = api_put_comma(b) && api_put_u64(b, entry(z, n, j));
        ok = ok && api_puts(b, "]");
    }
    return ok && api_puts(b, "]");
}

static bool documents(struct api_buffer *b, const struct api_probe_sizes *z)
{
    return put_causal(b, "bottom_right") && api_put_key(b, "documents") &&
           api_puts(b, "{\"ids\":") && put_table(b, z, document) && api_puts(b, "}");
}

/* Finite biases on every pair, -Infinity on some, other ones for each item. */
static bool put_bias(struct api_buffer *b, size_t n, size_t i, size_t j)
{
    if (j != i && (i + 2 * j + n) % 5 == 0)
        return api_puts(b, "\"-Infinity\"");
    return api_put_double(b, (double)((7 * i + 3 * j + 5 * n) % 11) / 4.0 - 1.25);
}

static bool additive(struct api_buffer *b, const struct api_probe_sizes *z)
{
    bool ok = api_put_key(b, "additive") && api_puts(b, "[");

    for (size_t n = 0; n < z->B && ok; n++) {
        ok = api_put_comma(b) && api_puts(b, "[");
        for (size_t i = 0; i < z->T_q && ok; i++) {
            ok = api_put_comma(b) && api_puts(b, "[");
            for (size_t j = 0; j < z->T_kv && ok; j++)
                ok = api_put_comma(b) && put_bias(b, n, i, j);
            ok = ok && api_puts(b, "]");
        }
        ok = ok && api_puts(b, "]");
    }
    return ok && api_puts(b, "]");
}

/* ---- positions ---- */

static bool rope(struct api_buffer *b, const struct api_probe_sizes *z)
{
    (void)z;
    return api_put_key(b, "rope") && api_puts(b, "{\"layout\":\"half\",\"base\":100}");
}

static size_t since_document_began(const struct api_probe_sizes *z, size_t n, size_t j)
{
    size_t start = j;

    while (start > 0 && document(z, n, start - 1) == document(z, n, j))
        start--;
    return j - start;
}

static bool rope_reset(struct api_buffer *b, const struct api_probe_sizes *z)
{
    return api_put_key(b, "rope") &&
           api_puts(b, "{\"layout\":\"interleaved\",\"base\":100,\"q\":") &&
           put_table(b, z, since_document_began) && api_puts(b, ",\"k\":") &&
           put_table(b, z, since_document_began) && api_puts(b, "}");
}

static bool alibi(struct api_buffer *b, const struct api_probe_sizes *z)
{
    (void)z;
    return api_put_key(b, "alibi") && api_puts(b, "{\"slopes\":\"standard\"}");
}

/* ---- the kinds ---- */

/* Sizes all differ unless equality is the point of the row: B T_q T_kv d_model d_k d_v h
 * h_kv. */
/* clang-format off */
const struct api_probe_row API_PROBE_ROWS[] = {
    { .name = "general",
      .says = "Grouped heads, a cache, biases, soft cap, sink, three rules, an empty "
              "row; all sizes differ.",
      .purposes = FOR(GENERAL) | FOR(SCORES) | FOR(MASKS) | FOR(SOFTMAX) |
                  FOR(HEADS) | FOR(CACHE),
      .sizes = { 2, 3, 5, 7, 3, 6, 4, 2, false },
      .with = API_WITH_BIASES | API_WITH_SINK,
      .score = "\"softcap\":3", .masks = chunk_rules },
    { .name = "square",
      .says = "Multi-head self-attention whose matrices are all square and equally wide.",
      .purposes = FOR(PROJECTIONS) | FOR(HEADS),
      .sizes = { 2, 5, 5, 12, 4, 4, 3, 3, false },
      .with = API_WITH_BIASES, .masks = causal_and_padding },
    { .name = "cross",
      .says = "Cross-attention between two sequences of one length and width.",
      .purposes = FOR(PROJECTIONS),
      .sizes = { 2, 5, 5, 7, 3, 4, 2, 2, true } },
    { .name = "equal_axes",
      .says = "Items, heads, queries and keys are equally many.",
      .purposes = FOR(SCORES) | FOR(HEADS) | FOR(SOFTMAX),
      .sizes = { 4, 4, 4, 7, 3, 5, 4, 4, false }, .masks = uneven },
    { .name = "causal",
      .says = "A causal rule alone, as many queries as keys.",
      .purposes = FOR(MASKS) | FOR(SCORES),
      .sizes = { 2, 5, 5, 7, 3, 4, 2, 2, false }, .masks = causal_only },
    { .name = "top_left",
      .says = "The causal rule at the top left, fewer queries than keys.",
      .purposes = FOR(MASKS),
      .sizes = { 2, 3, 5, 7, 2, 4, 2, 1, true }, .masks = top_left },
    { .name = "more_queries",
      .says = "The causal rule at the bottom right, more queries than keys.",
      .purposes = FOR(MASKS),
      .sizes = { 2, 5, 3, 7, 2, 4, 2, 1, true }, .masks = causal_only },
    { .name = "large_scores",
      .says = "Scores of several hundred, with rows that causal rule and "
              "padding leave empty.",
      .purposes = FOR(SOFTMAX),
      .sizes = { 3, 4, 4, 7, 3, 5, 6, 6, false },
      .score = "\"scale\":250", .masks = causal_and_padding },
    { .name = "bias",
      .says = "An additive bias and a temperature.",
      .purposes = FOR(SCORES) | FOR(MASKS),
      .sizes = { 2, 4, 6, 7, 3, 5, 2, 1, false },
      .score = "\"temperature\":1.5", .masks = additive },
    { .name = "decode",
      .says = "One new token after cached keys, with a window and ALiBi.",
      .purposes = FOR(CACHE) | FOR(MASKS) | FOR(POSITIONS),
      .sizes = { 2, 1, 6, 7, 4, 5, 3, 3, false },
      .masks = decode_rules, .position = alibi },
    { .name = "decode_causal",
      .says = "One new token after cached keys, with the causal rule alone.",
      .purposes = FOR(CACHE) | FOR(MASKS),
      .sizes = { 2, 1, 6, 7, 3, 5, 2, 1, false }, .masks = causal_only },
    { .name = "rope_chunk",
      .says = "RoPE on a chunk of several tokens after cached keys.",
      .purposes = FOR(POSITIONS) | FOR(CACHE),
      .sizes = { 2, 3, 5, 7, 6, 4, 4, 2, false },
      .masks = causal_only, .position = rope },
    { .name = "alibi",
      .says = "ALiBi with three heads, which is no power of two.",
      .purposes = FOR(POSITIONS),
      .sizes = { 2, 5, 5, 7, 4, 6, 3, 3, false },
      .masks = causal_only, .position = alibi },
    { .name = "packed",
      .says = "Three documents of unequal length in each sequence, whose "
              "positions start again; keys and values are equally wide.",
      .purposes = FOR(PACKING) | FOR(POSITIONS),
      .sizes = { 2, 7, 7, 5, 4, 4, 2, 1, false },
      .masks = documents, .position = rope_reset },
    { .name = "gradients",
      .says = "Every gradient of Y from a drawn cotangent; some query rows are empty.",
      .purposes = FOR(GRADIENTS),
      .sizes = { 2, 4, 4, 7, 3, 5, 4, 4, false },
      .with = API_WITH_BIASES | API_WITH_GRADIENTS, .masks = uneven },
    { .name = "gradients_grouped",
      .says = "Every gradient of Y where query heads share a key/value "
              "head and W_O is square.",
      .purposes = FOR(GRADIENTS) | FOR(HEADS),
      .sizes = { 2, 5, 5, 12, 4, 3, 4, 2, false },
      .with = API_WITH_BIASES | API_WITH_GRADIENTS, .masks = causal_and_padding,
      .position = rope },
};
/* clang-format on */
const size_t API_PROBE_ROW_COUNT = API_COUNT(API_PROBE_ROWS);
_Static_assert(API_COUNT(API_PROBE_ROWS) <= API_PROBE_ROWS_MAX, "room for every kind");
