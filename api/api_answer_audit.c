/*
 * api_answer_audit.c - the audit as JSON: every check with its sentences.
 * Not here: the checks (core/attn_audit*.c).
 * Start reading at api_put_audit.
 */
#include <ctype.h>
#include <string.h>

#include "api/api_answer.h"

bool api_put_sentence(struct api_buffer *b, const char *sentence, const double *fact)
{
    bool ok;

    if (!sentence)
        return api_puts(b, "null");
    for (ok = api_put(b, "\"", 1); ok && *sentence;) {
        const size_t run = (size_t)(strchrnul(sentence, '{') - sentence);
        const bool is_fact = sentence[run] == '{' &&
                             isdigit((unsigned char)sentence[run + 1]) &&
                             sentence[run + 2] == '}';
        const size_t brace = sentence[run] == '{' && !is_fact;

        ok = api_put_escaped(b, sentence, run + brace) &&
             (!is_fact || api_put_fact(b, fact[sentence[run + 1] - '0']));
        sentence += is_fact ? run + 3 : run + brace;
    }
    return ok && api_put(b, "\"", 1);
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
