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
      .source = "PyTorch 2.6, page torch.nn.functional.scaled_dot_product_attention: "
                "boolean True takes part; is_causal is tril(L,S) with diagonal 0. "
                "Rows without a key are 0 since 2.5 (_safe_softmax in "
                "aten/src/ATen/native/transformers/attention.cpp), NaN before." },
    { .name = "torch.mha", .mask_true_means = "is forbidden",
      .alignment = ATTN_ALIGN_TOP_LEFT, .empty_rows = ATTN_EMPTY_NAN,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "PyTorch 2.6, page torch.nn.MultiheadAttention: True in attn_mask is "
                "not allowed, True in key_padding_mask is ignored. With "
                "need_weights=True, the default, multi_head_attention_forward takes a "
                "plain softmax: NaN in a row without a key (0 with "
                "need_weights=False)." },
    { .name = "onnx.23", .mask_true_means = "may attend",
      .alignment = ATTN_ALIGN_TOP_LEFT, .empty_rows = ATTN_EMPTY_ZERO,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "ONNX operator page Attention, version 23: True in attn_mask takes "
                "part; is_causal is the upper left corner, shifted by past_key. "
                "Errata in release 1.23: rows without a key are 0 (NaN before)." },
    { .name = "onnx.24", .mask_true_means = "may attend",
      .alignment = ATTN_ALIGN_TOP_LEFT, .empty_rows = ATTN_EMPTY_ZERO,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "ONNX operator page Attention, version 24, with the errata in release "
                "1.23: is_causal is j <= i + past_sequence_length, which is top_left "
                "here; only an external cache (nonpad_kv_seqlen) is aligned bottom "
                "right. Rows without a key are 0 (NaN before)." },
    { .name = "keras.mha", .mask_true_means = "may attend",
      .alignment = ATTN_ALIGN_TOP_LEFT, .empty_rows = ATTN_EMPTY_UNIFORM,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "Keras 3, page MultiHeadAttention layer: 1 in attention_mask attends; "
                "use_causal_mask is row >= column from the upper left. The Softmax "
                "layer adds -1e9, which in float32 swallows the scores of a row "
                "without a key: uniform." },
    { .name = "flash_attn", .mask_true_means = "takes no boolean mask",
      .alignment = ATTN_ALIGN_BOTTOM_RIGHT, .empty_rows = ATTN_EMPTY_ZERO,
      .default_scale = "1/sqrt(d_k)", .window_counts_own_position = false,
      .source = "flash-attention README, flash_attn_func: causal is the bottom right "
                "corner since 2.1 (top left before), a row that is all zero gives "
                "zero; since 2.3 a window reads i + seqlen_k - seqlen_q - left to i + "
                "seqlen_k - seqlen_q + right, inclusive." },
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
