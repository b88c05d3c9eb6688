/*
 * api_probe.h - what the files of POST /v1/probe share.
 * Not here: which faults there are (core/attn.h).
 * Start reading at struct api_probe_row, then api_probe_rows.c.
 */
#ifndef API_PROBE_H
#define API_PROBE_H

#include "api/api_answer.h"

enum { API_PROBE_SIZE_MAX = 64, API_FAULTS_MAX = 192, API_PROBE_ROWS_MAX = 32 };

struct api_probe_sizes {
    size_t B, T_q, T_kv, d_model, d_k, d_v, h, h_kv;
    bool cross; /* keys from X_kv; else from X after T_kv - T_q cached */
};

/* Writes the object of a member of the problem for these sizes. */
typedef bool api_probe_part_fn(struct api_buffer *b, const struct api_probe_sizes *z);

enum api_probe_with { /* what a problem has besides projections and masks    */
                      API_WITH_BIASES = 1,
                      API_WITH_SINK = 2,
                      API_WITH_GRADIENTS = 4
};

/* One kind of problem: sizes and rules under which certain faults cannot hide. */
struct api_probe_row {
    const char *name, *says;
    uint32_t purposes; /* bit per row of API_PURPOSES                         */
    struct api_probe_sizes sizes;
    uint32_t with;
    const char *score; /* members of the object, or NULL                      */
    api_probe_part_fn *masks, *position; /* or NULL */
};
extern const struct api_probe_row API_PROBE_ROWS[];
extern const size_t API_PROBE_ROW_COUNT;

struct api_purpose_row {
    const char *name, *says;
};
extern const struct api_purpose_row API_PURPOSES[];
extern const size_t API_PURPOSE_COUNT;

/* ---- a request (api_probe.c) ---- */

struct api_probe_ask {
    struct attn_decl sizes; /* 0 = not stated                                      */
    struct api_buffer masks, position; /* as they were given; empty = not stated */
    bool causal_unaligned; /* "causal": true, which needs T_q = T_kv              */
    bool even_d_k;         /* a position kind turns pairs of features           */
    uint64_t seed;
    uint32_t purposes; /* 0 = all                                             */
};

/* ---- making (api_probe_make.c) ---- */

struct api_probe_problem {
    const char *name, *of; /* `of`: the problem that it varies; NULL = none       */
    const char *says;
    struct api_request r;
    bool shows[API_FAULTS_MAX]; /* bit per fault: can these numbers show it?           */
};

/* The row's problem with what the request states instead, numbers drawn and rounded so
   that as many faults as possible show. */
bool api_probe_make(struct api_ctx *ctx, const struct api_probe_ask *ask,
                    const struct api_probe_row *row, struct api_probe_problem *out,
                    struct api_err *err);
void api_probe_see(struct api_probe_problem *problem);

/* ---- variations that must not matter (api_probe_vary.c) ---- */

typedef bool api_vary_fn(struct api_ctx *ctx, const struct api_probe_problem *from,
                         const struct attn_exec *exec, struct attn_problem *out,
                         struct api_err *err);
struct api_vary_row {
    const char *name, *says;
    bool (*fits)(const struct attn_problem *p);
    api_vary_fn *vary;
};
extern const struct api_vary_row API_VARIES[];
extern const size_t API_VARY_COUNT;

/* ---- a problem as a request (api_put_problem.c) ---- */

/* {"shapes":…,"inputs":…,…} with every number stated: api_request_read reads back
 * the same. */
bool api_put_problem(struct api_buffer *b, const struct api_request *r);

#endif
