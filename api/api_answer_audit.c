/*
 * api_answer_audit.c - the audit as JSON: every check with its sentences.
 * Not here: the checks (core/attn_audit*.c).
 * Start reading at api_put_audit.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api_answer.h"

enum { FACT_MAX = 40, SENTENCE_MAX = 1024 };

/* Whole numbers as they are, others with six digits; names of non-finite values as in
 * tensors. */
static void fact_text(char out[FACT_MAX], double x)
{
    if (isnan(x))
        snprintf(out, FACT_MAX, "NaN");
    else if (isinf(x))
        snprintf(out, FACT_MAX, x > 0 ? "Infinity" : "-Infinity");
    else if (x == floor(x) && fabs(x) < 1e15)
        snprintf(out, FACT_MAX, "%.0f", x == 0 ? 0.0 : x);
    else
        snprintf(out, FACT_MAX, "%.6g", x);
}

/* Copies `sentence` with each {n} replaced by fact[n]; what does not fit is an error of
   whoever wrote the sentence, so it is cut where a reader sees it. */
static void fill_sentence(char *out, size_t size, const char *sentence,
                          const double *fact)
{
    size_t len = 0;

    while (*sentence && len + FACT_MAX < size) {
        if (sentence[0] == '{' && isdigit((unsigned char)sentence[1]) &&
            sentence[2] == '}') {
            char text[FACT_MAX];

            fact_text(text, fact[sentence[1] - '0']);
            memcpy(out + len, text, strlen(text));
            len += strlen(text);
            sentence += 3;
        } else {
            out[len++] = *sentence++;
        }
    }
    out[len] = '\0';
}

bool api_put_sentence(struct api_buffer *b, const char *sentence, const double *fact)
{
    char text[SENTENCE_MAX];

    if (!sentence)
        return api_puts(b, "null");
    fill_sentence(text, sizeof text, sentence, fact);
    return api_put_string(b, text);
}

/* Joined heads and Y have no head axis; H counts for H_heads too, which has. */
static bool is_joined(const struct attn_finding *f)
{
    return (f->object == ATTN_H || f->object == ATTN_Y) && f->at[3] == SIZE_MAX;
}

/* The first difference: batch, head, row and column, named as the object's axes are. */
static bool put_at(struct api_buffer *b, const struct attn_finding *f)
{
    const enum attn_axis *axis = ATTN_OBJECTS[f->object].axis;
    const char *name[4] = {"batch", "head", "query", "feature"};
    bool ok = api_put_key(b, "at");

    if (!f->has_place)
        return ok && api_puts(b, "null");
    if (is_joined(f)) {
        name[1] = "query";
        name[2] = "feature";
    }
    for (int a = 0; axis[a] != ATTN_AX_END; a++) {
        const bool keys = axis[a] == ATTN_AX_TKV || axis[a] == ATTN_AX_TNEW;

        if (keys)
            name[ATTN_OBJECTS[f->object].pairwise ? 3 : 2] = "key";
    }
    ok = ok && api_puts(b, "{");
    for (int n = 0; n < 4 && ok; n++)
        if (f->at[n] != SIZE_MAX)
            ok = api_put_u64_member(b, name[n], f->at[n]);
    return ok && api_puts(b, "}");
}

static bool put_finding(struct api_buffer *b, const struct attn_finding *f)
{
    return api_put_comma(b) && api_puts(b, "{") &&
           api_put_u64_member(b, "order", (uint64_t)f->row->order) &&
           api_put_text_member(b, "id", f->row->id) &&
           api_put_text_member(b, "object", f->row->object) &&
           api_put_text_member(b, "status", ATTN_STATUS_NAMES[f->status]) &&
           api_put_key(b, "expected") && api_put_sentence(b, f->expected, f->fact) &&
           api_put_key(b, "observed") && api_put_sentence(b, f->observed, f->fact) &&
           api_put_key(b, "detail") && api_put_sentence(b, f->detail, f->fact) &&
           put_at(b, f) && api_puts(b, "}");
}

void api_audit_off(struct attn_audit *audit)
{
    *audit =
        (struct attn_audit){.status = ATTN_NOT_APPLICABLE, .count = attn_check_count()};
    for (size_t n = 0; n < audit->count; n++)
        audit->finding[n] = (struct attn_finding){
            .row = attn_check_at(n),
            .status = ATTN_NOT_APPLICABLE,
            .gradient = -1,
            .detail = "The audit is off: nothing was checked.",
        };
}

bool api_put_audit(struct api_buffer *b, const struct attn_audit *audit)
{
    bool ok = api_put_key(b, "audit") && api_puts(b, "{") &&
              api_put_text_member(b, "status", ATTN_STATUS_NAMES[audit->status]) &&
              api_put_text_member(b, "first_incorrect", audit->first_incorrect) &&
              api_put_u64_member(b, "seed", audit->seed) &&
              api_put_u64_member(b, "rows_looked_at", audit->rows_looked_at) &&
              api_put_key(b, "checks") && api_puts(b, "[");

    for (size_t n = 0; n < audit->count && ok; n++)
        ok = put_finding(b, &audit->finding[n]);
    return ok && api_puts(b, "]}");
}
