/*
 * attn_convention.c - how other systems mean masks, corners and empty rows, with the
 * source. Not here: applying a convention to a request (api/), the rules themselves
 * (attn_mask.c). Start reading at CONVENTIONS.
 */
#include "core/attn_core.h"

#include <assert.h>
#include <string.h>

/*
 * `alignment` is in the words of this library: top_left is j <= i + T_past, which for a
 * system without a cache is the upper left corner.  default_scale is what the system uses
 * when none is given.  window_counts_own_position is false also where a system has no
 * window.
 */
/* clang-format off */
static const struct attn_convention_row CONVENTIONS[] = {
    { .name = "torch.sdpa", .mask_true_means = "may attend",
      .alignment = ATTN_ALIGN_TOP_LEFT, .empty_rows = ATTN_EMPTY_ZERO,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "PyTorch 2.6, page torch.nn.functional.scaled_dot_product_attention (is_causal: "
                "tril of (L,S) with diagonal 0; boolean True takes part); rows without a key are "
                "0 since 2.5 (_safe_softmax, pull request 131060), NaN before" },
    { .name = "torch.mha", .mask_true_means = "is forbidden",
      .alignment = ATTN_ALIGN_TOP_LEFT, .empty_rows = ATTN_EMPTY_NAN,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "PyTorch 2.6, page torch.nn.MultiheadAttention (attn_mask and "
                "key_padding_mask: True is not allowed, or ignored); with need_weights=True, the "
                "default, a plain softmax, so a row without a key is NaN" },
    { .name = "onnx.23", .mask_true_means = "may attend",
      .alignment = ATTN_ALIGN_TOP_LEFT, .empty_rows = ATTN_EMPTY_NAN,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "ONNX operator Attention, since version 23 (attn_mask True takes part; "
                "is_causal: upper left corner, behind past_key); its function is a plain softmax, "
                "so a row without a key is NaN" },
    { .name = "onnx.24", .mask_true_means = "may attend",
      .alignment = ATTN_ALIGN_TOP_LEFT, .empty_rows = ATTN_EMPTY_ZERO,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "ONNX operator Attention, since version 24, with the errata of pull request 8068 "
                "(is_causal: j <= i + past_sequence_length, and nonpad_kv_seqlen - "
                "q_sequence_length only with an external cache; rows without a key are 0)" },
    { .name = "keras.mha", .mask_true_means = "may attend",
      .alignment = ATTN_ALIGN_TOP_LEFT, .empty_rows = ATTN_EMPTY_UNIFORM,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "Keras 3, page MultiHeadAttention layer (attention_mask 1 attends; "
                "use_causal_mask: row >= column from the upper left); layer Softmax adds -1e9, "
                "which in float32 swallows the scores of a row without a key: uniform" },
    { .name = "flash_attn", .mask_true_means = "takes no boolean mask",
      .alignment = ATTN_ALIGN_BOTTOM_RIGHT, .empty_rows = ATTN_EMPTY_ZERO,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "flash-attention README, flash_attn_func and change log 2.1 (bottom right corner; "
                "a row that is all zero gives zero) and 2.3 (window [i + T_kv - T_q - left, "
                "i + T_kv - T_q + right] inclusive)" },
};
/* clang-format on */

size_t attn_convention_count(void)
{
    return ATTN_COUNT(CONVENTIONS);
}

const struct attn_convention_row *attn_convention_at(size_t n)
{
    assert(n < ATTN_COUNT(CONVENTIONS));
    return &CONVENTIONS[n];
}

const struct attn_convention_row *attn_convention_find(const char *name)
{
    for (size_t n = 0; n < ATTN_COUNT(CONVENTIONS); n++)
        if (strcmp(CONVENTIONS[n].name, name) == 0)
            return &CONVENTIONS[n];
    return NULL;
}
