/*
 * attn_diagnose_forms.h - names of the accepted forms, for the two files that find them.
 * Not here: what they say (attn_diagnose_forms.c).
 * Start reading at enum attn_form.
 */
#ifndef ATTN_DIAGNOSE_FORMS_H
#define ATTN_DIAGNOSE_FORMS_H

#include "core/attn_diagnose.h"

enum attn_form_kind {
    ATTN_FORM_MASKED_SCORES,
    ATTN_FORM_FINITE_FILL,
    ATTN_FORM_SAME_PRODUCTS,
    ATTN_FORM_SCALE_IN_PRODUCTS,
    ATTN_FORM_SCALED_RAW,
    ATTN_FORM_ROW_CONSTANT,
    ATTN_FORM_VALUE_BASIS,
    ATTN_FORM_LSE_BASE_2,
    ATTN_FORM_NO_FORBIDDEN_DA,
    ATTN_FORM_TRANSPOSED_WEIGHTS,
    ATTN_FORM_COUNT
};

/* Notes the form for the report, and which objects (bits) came in it. */
void attn_form_saw(struct attn_forms *forms, enum attn_form_kind form, uint32_t objects);

#endif
