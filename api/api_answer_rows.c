/*
 * api_answer_rows.c - rows that need a word: empty, padded; entropy, labels.
 * Not here: one row taken apart (api_answer_traces.c).
 * Start reading at api_put_rows.
 */
#include "api/api_answer.h"

bool api_put_place(struct api_buffer *b, const struct attn_form *form, size_t batch,
                   size_t head, size_t query)
{
    return api_put_comma(b) && api_puts(b, "{") &&
           (!form->batch_axis || api_put_u64_member(b, "batch", batch)) &&
           (!form->head_axis || api_put_u64_member(b, "head", head)) &&
           api_put_u64_member(b, "query", query) && api_puts(b, "}");
}

static bool put_empty(struct api_buffer *b, const struct attn_problem *p,
                      const struct attn_trace *trace)
{
    const struct attn_dims *d = &p->d;
    size_t left = trace->empty ? trace->empty_count : 0, at = 0;
    bool ok = api_put_u64_member(b, "empty_count", left) && api_put_key(b, "empty") &&
              api_puts(b, "[");

    for (; left > 0 && ok; at++) {
        if (!trace->empty[at])
            continue;
        ok = api_put_place(b, &p->form, at / (d->h * d->T_q), at / d->T_q % d->h,
                           at % d->T_q);
        left--;
    }
    return ok && api_puts(b, "]");
}

/* Queries stand at the new keys: then a padded key is a padded query row as well. */
static bool queries_are_keys(const struct attn_problem *p)
{
    return p->form.source != ATTN_CROSS && p->d.T_q == p->d.T_kv - p->d.T_past;
}

static bool put_padded(struct api_buffer *b, const struct attn_problem *p)
{
    const struct attn_mask *padding = attn_mask_of(p, "padding");
    const struct attn_form form = {.batch_axis = p->form.batch_axis};
    size_t count = 0;
    bool ok = api_put_key(b, "padded") && api_puts(b, "[");

    if (padding && queries_are_keys(p))
        for (size_t n = 0; n < p->d.B * p->d.T_q && ok; n++) {
            const size_t item = n / p->d.T_q, i = n % p->d.T_q;

            if (padding->row->allows(p, padding, item, 0, i, p->d.T_past + i))
                continue;
            ok = api_put_place(b, &form, item, 0, i);
            count++;
        }
    return ok && api_puts(b, "]") && api_put_u64_member(b, "padded_count", count);
}

static bool put_entropy(struct api_buffer *b, enum attn_dtype dtype,
                        const struct attn_row_stats *stats)
{
    return api_put_key(b, "entropy") && api_puts(b, "{") &&
           api_put_text_member(b, "unit", "nats") &&
           api_put_number_member(b, "mean", dtype, stats->entropy_mean) &&
           api_put_number_member(b, "min", dtype, stats->entropy_min) &&
           api_put_number_member(b, "max", dtype, stats->entropy_max) &&
           api_put_number_member(b, "effective_keys_mean", dtype,
                                 stats->effective_keys_mean) &&
           api_puts(b, "}");
}

bool api_put_rows(struct api_work *w)
{
    const struct attn_problem *p = &w->r.p;
    struct api_buffer *b = w->out;

    return api_put_key(b, "rows") && api_puts(b, "{") &&
           api_put_text_member(b, "empty_rows", ATTN_EMPTY_NAMES[p->empty_rows]) &&
           put_empty(b, p, &w->trace) && put_padded(b, p) &&
           (w->has_row_stats ? put_entropy(b, p->dtype, &w->row_stats)
                             : api_put_text_member(b, "entropy", NULL)) &&
           api_puts(b, "}");
}

/* The document of every slot; a rule has exactly one such table, however it was given. */
static const struct attn_table *document_ids(const struct attn_mask *documents)
{
    for (int n = 0; n < ATTN_PARAMS_MAX; n++)
        if (documents->row->param[n].kind == ATTN_PARAM_IDS)
            return &documents->arg[n].table;
    return NULL;
}

/*
 * true where the label of a slot, the token after it, belongs to the slot's own document:
 * elsewhere the loss must be masked although storage is adjacent.  The last slot's label
 * lies outside the block: its document is next_id, and without next_id it is nobody's.
 */
static bool put_labels(struct api_buffer *b, const struct api_request *r,
                       const struct attn_table *ids, size_t item)
{
    const int64_t *id = (const int64_t *)ids->p + item * ids->stride_b;
    const size_t T = r->p.d.T_kv;
    bool ok = api_puts(b, "[");

    for (size_t j = 0; j < T && ok; j++) {
        const int64_t next = j + 1 < T ? id[j + 1] : r->next_id ? r->next_id[item] : -1;

        ok = api_put_comma(b) &&
             api_puts(b, id[j] >= 0 && next == id[j] ? "true" : "false");
    }
    return ok && api_puts(b, "]");
}

bool api_put_supervision(struct api_buffer *b, const struct api_request *r)
{
    const struct attn_mask *documents = attn_mask_of(&r->p, "documents");
    const struct attn_table *ids = documents ? document_ids(documents) : NULL;
    bool ok;

    if (!ids || !ids->p)
        return true;
    ok = api_put_key(b, "supervision");
    if (!r->p.form.batch_axis)
        return ok && put_labels(b, r, ids, 0);
    ok = ok && api_puts(b, "[");
    for (size_t item = 0; item < r->p.d.B && ok; item++)
        ok = api_put_comma(b) && put_labels(b, r, ids, item);
    return ok && api_puts(b, "]");
}
