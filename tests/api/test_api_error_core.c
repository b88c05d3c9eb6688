/* test_api_error_core.c - every code of core has a sentence, a name and the right
   pointer. */
#include "api/api_private.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct api_err told(enum attn_code code, const char *object, const char *axis)
{
    const struct attn_err core = {.code = code,
                                  .object = object,
                                  .axis = axis,
                                  .at = {1, 2, 3, SIZE_MAX},
                                  .want = 6,
                                  .got = 10};
    struct api_err err = {0};

    cr_assert(!api_fail_core(&err, &core));
    cr_assert(err.set && err.detail[0] != '\0');
    return err;
}

Test(api_error_core, every_code_has_a_sentence_with_and_without_names)
{
    for (int code = ATTN_OK + 1; code < ATTN_CODE_COUNT; code++) {
        told((enum attn_code)code, NULL, NULL);
        told((enum attn_code)code, "W_O", "d_model");
    }
}

Test(api_error_core, shapes_name_both_numbers)
{
    const struct api_err err = told(ATTN_E_SHAPE, "W_O", "h*d_v");

    cr_expect_str_eq(err.name, "wrong-shape");
    cr_expect_str_eq(err.pointer, "/weights/W_O");
    cr_expect(strstr(err.detail, "6") != NULL && strstr(err.detail, "10") != NULL);
    cr_expect_str_eq(err.expected, "6");
    cr_expect_str_eq(err.observed, "10");
}

Test(api_error_core, points_to_what_was_meant)
{
    static const struct {
        enum attn_code code;
        const char *object, *axis, *name, *pointer;
    } ROWS[] = {
        {ATTN_E_RANK, "past.K", NULL, "wrong-rank", "/inputs/past/K"},
        {ATTN_E_MISSING, "W_Q", NULL, "missing", "/weights/W_Q"},
        {ATTN_E_MISSING, "v_a", NULL, "missing", "/score/v_a"},
        {ATTN_E_DECLARED, "X", "T", "wrong-shape", "/shapes/T"},
        {ATTN_E_SIZE_UNKNOWN, "W_Q", "d_k", "missing", "/shapes/d_k"},
        {ATTN_E_DIVIDE, "shapes.kv_heads", "kv_heads", "heads-not-divisible",
         "/shapes/kv_heads"},
        {ATTN_E_ALIGNMENT, "causal", NULL, "ambiguous-alignment", "/masks/causal"},
        {ATTN_E_SQUARE, "W_O", NULL, "wrong-shape", "/weights/W_O"},
        {ATTN_E_ODD_WIDTH, "rope", "d_k", "bad-value", "/position/rope"},
        {ATTN_E_RANGE, "padding.lengths", NULL, "bad-value", "/masks/padding/lengths"},
        {ATTN_E_RANGE, "score.softcap", NULL, "bad-value", "/score/softcap"},
        {ATTN_E_RANGE, "rope.base", NULL, "bad-value", "/position/rope/base"},
        {ATTN_E_CONTRADICTION, "documents", NULL, "contradiction", "/masks/documents"},
        {ATTN_E_EMPTY_ROW, "M", NULL, "empty-row", "/masks"},
        {ATTN_E_OVERFLOW, "shapes", "T_q", "too-large", "/shapes/T"},
        {ATTN_E_OVERFLOW, "shapes", "h*d_k", "too-large", "/shapes"},
        {ATTN_E_OVERFLOW, "S", NULL, "too-large", "/shapes"},
        {ATTN_E_CONTRADICTION, "dW_O", NULL, "contradiction",
         "/gradients/with_respect_to"},
        {ATTN_E_MEMORY, "trace", NULL, "too-large", ""},
        {ATTN_E_DEADLINE, "S", NULL, "deadline", ""},
    };

    for (size_t n = 0; n < API_COUNT(ROWS); n++) {
        const struct api_err err = told(ROWS[n].code, ROWS[n].object, ROWS[n].axis);

        cr_expect(strcmp(err.name, ROWS[n].name) == 0, "row %zu: %s", n, err.name);
        cr_expect(strcmp(err.pointer, ROWS[n].pointer) == 0, "row %zu: %s", n,
                  err.pointer);
    }
}

Test(api_error_core, an_empty_row_says_which)
{
    const struct api_err err = told(ATTN_E_EMPTY_ROW, "M", NULL);

    cr_expect(strstr(err.detail, "batch 1, head 2, query 3") != NULL, "%s", err.detail);
}
