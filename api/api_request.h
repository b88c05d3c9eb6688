/*
 * api_request.h - what the files that read a problem share: the reading, and one reader a
 * theme.
 * Not here: struct api_request, the result (api_private.h).
 * Start reading at struct api_reading, then api_request.c, which calls the readers in
 * order.
 */
#ifndef API_REQUEST_H
#define API_REQUEST_H

#include "api/api_private.h"

/* A problem half read: small fields are in r, tensors are known by form and shape only,
   and what needs sizes is remembered as a node of the tree until sizes are known. */
struct api_reading {
    struct api_ctx *ctx;
    const struct api_doc *doc;
    struct api_request *r;
    bool sizes_only; /* /v1/plan: tensors are neither taken nor read */
    bool judged;     /* /v1/audit: nothing is run, somebody else's tensors are judged */
    size_t reserved; /* bytes of the arena that the run itself will need */

    struct attn_decl decl;
    struct api_tensor_in in[ATTN_INPUT_COUNT];
    bool no_output; /* "W_O": null */
    bool empty_rows_stated;

    const json_t *position, *masks, *returned, *ablations, *gradients, *traces;
};

/* Bytes of the arena; too-large (413) with both numbers when they and what is reserved do
   not fit.  Nothing is touched. */
void *api_take(struct api_reading *rd, size_t bytes, const char *pointer,
               struct api_err *err);
/* Reads a tensor whose shape is already known to be right into fresh memory of this
   dtype. */
void *api_take_tensor(struct api_reading *rd, const struct api_tensor_in *in,
                      enum attn_dtype dtype, enum api_finite finite, struct api_err *err);
/* wrong-rank or wrong-shape unless `in` has this shape; an init without one gets it. */
bool api_expect_shape(struct api_tensor_in *in, const char *object, unsigned rank,
                      const size_t *dim, struct api_err *err);

/* Rows of the root's table: `into` is the struct api_reading. */
typedef bool api_read_fn(void *into, const struct api_doc *doc, const json_t *value,
                         const char *pointer, struct api_err *err);

/* api_request_inputs.c: shapes, inputs, weights, sink, score.v_a */
api_read_fn api_read_shapes, api_read_inputs, api_read_weights, api_read_input_tensor;
bool api_resolve_sizes(struct api_reading *rd, struct api_err *err);
/* Addresses for every input, untouched; then their numbers in the layout of core. */
bool api_take_inputs(struct api_reading *rd, struct api_err *err);
bool api_fill_inputs(struct api_reading *rd, struct api_err *err);
/* A matrix given as a weight is: turned when weights are (out,in). */
bool api_turn_matrix(struct api_reading *rd, const struct api_tensor_in *in,
                     struct attn_tensor *t, struct api_err *err);

/* api_request_options.c */
api_read_fn api_read_dtype, api_read_empty_rows, api_read_audit, api_read_path,
    api_read_encoding, api_read_inject;
api_read_fn api_read_injected; /* api_request_inject.c: the name or an object with it */
/* What is returned: names against what this problem has. */
bool api_read_return(struct api_reading *rd, struct api_err *err);

/* api_request_score.c */
api_read_fn api_read_score;

/* api_request_position.c: the kinds with all but their tensors; then those */
api_read_fn api_read_position;
bool api_fill_position(struct api_reading *rd, struct api_err *err);

/* api_request_masks.c */
bool api_read_masks(struct api_reading *rd, struct api_err *err);
/* Reads parameter n of a rule into mask->arg (api_mask_params.c). */
bool api_read_mask_param(struct api_reading *rd, struct attn_mask *mask, size_t n,
                         const json_t *value, const char *pointer, struct api_err *err);
/* A table of pairs: (T_q,T_kv), (B,T_q,T_kv) or (B,h,T_q,T_kv). */
bool api_read_pairs(struct api_reading *rd, const json_t *value, const char *pointer,
                    enum attn_dtype dtype, struct attn_table *table, struct api_err *err);

/* api_request_asks.c, api_request_ablations.c */
bool api_read_ablations(struct api_reading *rd, struct api_err *err);
bool api_read_gradients(struct api_reading *rd, struct api_err *err);
bool api_read_traces(struct api_reading *rd, struct api_err *err);
/* How long a list of objects is: at most max. */
bool api_read_list(const struct api_reading *rd, const json_t *v, const char *pointer,
                   size_t max, size_t *count, struct api_err *err);

/* Appends a sentence, which must outlive the request, to the answer's warnings. */
void api_warn(struct api_request *r, const char *sentence);

#endif
