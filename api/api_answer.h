/*
 * api_answer.h - what the files that write answers share: small writers, one part a file.
 * Not here: reading requests, errors, bytes (api_private.h).
 * Start reading at struct api_work, then api_attention.c, which fills it.
 */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include "api/api_file.h"
#include "api/api_private.h"

/* ---- small writers (api_write.c) ---- */

/* `,` unless it is the first of its object or array. */
bool api_put_comma(struct api_buffer *b);
/* `,"name":` or `"name":` when it is the first of its object. */
bool api_put_key(struct api_buffer *b, const char *name);
/* The key and its value. */
bool api_put_text_member(struct api_buffer *b, const char *name,
                         const char *text_or_null);
bool api_put_u64_member(struct api_buffer *b, const char *name, uint64_t x);
bool api_put_double_member(struct api_buffer *b, const char *name, double x);
bool api_put_bool_member(struct api_buffer *b, const char *name, bool x);
/* x as a number of the stated dtype: float32 answers hold float32 decimals everywhere. */
bool api_put_number(struct api_buffer *b, enum attn_dtype dtype, double x);
bool api_put_number_member(struct api_buffer *b, const char *name, enum attn_dtype dtype,
                           double x);
/* [n, n, …] */
bool api_put_shape(struct api_buffer *b, const struct attn_tensor *shape);

/* ---- one request being answered ---- */

struct api_work {
    struct api_ctx *ctx;
    const struct api_call *call;
    struct api_buffer *out; /* of the JSON                                  */
    struct api_file *file;  /* where tensors go instead; NULL = into the JSON */
    struct api_request r;
    struct attn_exec exec;
    struct attn_plan plan;
    const struct attn_swap *swap; /* of the injected fault; or NULL */
    union attn_fault_room swap_room;
    struct attn_trace trace;
    struct attn_grads grads;
    struct attn_audit audit;
    struct attn_cost cost;
    struct attn_row_stats row_stats;
    bool has_row_stats;  /* A is held */
    char nonfinite[256]; /* the warning of api_warn_nonfinite */
    struct {
        double parse, compute, audit, gradients, ablations;
    } ms;
};

/* What the call lends to core: threads and deadline.  `call` must outlive *exec. */
void api_exec_of(const struct api_call *call, struct attn_exec *exec);

/* ---- budget: memory and answer bytes from sizes alone (api_budget.c) ---- */

struct api_budget { /* bytes; upper bounds, SIZE_MAX = more than can be counted */
    size_t inputs, trace, audit, gradients, ablations, row_traces;
    size_t total, limit; /* memory                                                   */
    size_t answer, answer_limit;
};

/* Every object that the request needs held: returned, or read by gradients and traces. */
uint32_t api_needs(const struct api_request *r);
void api_budget(const struct api_ctx *ctx, const struct api_request *r,
                const struct attn_plan *plan, struct api_budget *budget);
/* How long the request will take, as a round number of nanoseconds that is rather too
   high; UINT64_MAX for what is never cheap. */
uint64_t api_work_ns(const struct api_request *r, const struct api_budget *budget);
/* Refuses with too-large (413), naming both numbers. */
bool api_budget_check(const struct api_budget *budget, struct api_err *err);
/* The same for the list of empty rows, whose length is known only after the run. */
bool api_budget_check_rows(const struct api_budget *budget, size_t empty_rows,
                           struct api_err *err);

/* ---- parts of the answer ---- */

/* A sentence with {0} … {9} replaced by facts, as a JSON string (api_answer_audit.c). */
bool api_put_sentence(struct api_buffer *b, const char *sentence, const double *fact);
/* All checks as not_applicable, for "audit":"off". */
void api_audit_off(struct attn_audit *audit);

/* {"batch":b,"head":h,"query":i} with the axes of this answer (api_answer_rows.c). */
bool api_put_place(struct api_buffer *b, const struct attn_form *form, size_t batch,
                   size_t head, size_t query);
bool api_put_rows(struct api_work *w);
/* For packed documents only; nothing otherwise. */
bool api_put_supervision(struct api_buffer *b, const struct api_request *r);

/* "name":value lists of what was asked for (api_answer.c). */
bool api_put_tensors(struct api_buffer *b, const struct api_request *r, uint32_t objects,
                     const struct attn_trace *trace);
/* One tensor of the answer: a member of the object that is open, or, in an answer as a
   file, the tensor "prefix" "name". */
bool api_answer_tensor(struct api_work *w, const char *prefix, const char *name,
                       const struct attn_tensor *t, const struct attn_tensor *shape);
/* "tensors":{…}; in a file no member at all. */
bool api_answer_tensors(struct api_work *w, const char *prefix, uint32_t objects,
                        const struct attn_trace *trace);
/* Where numbers stopped to be finite, when the audit failed (api_answer_finite.c). */
void api_warn_nonfinite(struct api_work *w);
bool api_put_warnings(struct api_buffer *b, const struct api_request *r);

/* Will the answer hold it? */
bool api_gradient_asked(const struct api_request *r, enum attn_gradient g);
/* Shape of a gradient as answered; true when its numbers must be turned or summed into
   that shape first (api_answer_gradients.c). */
bool api_gradient_shape(const struct api_request *r, enum attn_gradient g,
                        struct attn_tensor *shape);
bool api_put_gradients(struct api_work *w, struct api_err *err);

/* Runs each ablation and writes it at once (api_answer_ablations.c). */
bool api_put_ablations(struct api_work *w, struct api_err *err);
/* "traces" and "score_statistics" (api_answer_traces.c). */
bool api_put_traces(struct api_work *w, struct api_err *err);

/* ---- examples (api_examples.c) ---- */

struct api_example_row {
    const char *name, *title, *description;
};
extern const struct api_example_row API_EXAMPLE_TITLES[];
extern const size_t API_EXAMPLE_TITLE_COUNT;

/* The answer's buffer could not grow: out-of-memory (503).  Returns false. */
bool api_fail_buffer(struct api_err *err);

#endif
