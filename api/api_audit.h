/*
 * api_audit.h - what the files of POST /v1/audit share.
 * Not here: how a candidate is judged (core/attn.h, "somebody else's layer").
 * Start reading at struct api_judged, then api_audit.c.
 */
#ifndef API_AUDIT_H
#define API_AUDIT_H

#include "api/api_answer.h"

enum { API_COMPANIONS_MAX = 16 };

/* One problem, and what somebody's implementation made of it. */
struct api_judged {
    const char *name;            /* of a companion; NULL for the main one           */
    const struct api_judged *of; /* what a companion is held against                */
    struct api_request r;        /* r.p is float64, whatever the request says       */
    struct attn_candidate candidate;
    struct attn_tensor
        bad_object[ATTN_OBJECT_COUNT]; /* shapes as they came, where wrong */
    struct attn_tensor bad_gradient[ATTN_GRADIENT_COUNT];
    struct attn_tensor
        shared_additive; /* d_additive as given, where items or heads share it */
    struct attn_report report;
    bool tolerance_stated;       /* or the precision                                 */
    bool shows_float32;          /* every number is one: judged as such              */
    enum attn_precision coarser; /* in which all would be right; ATTN_FLOAT64 = none */
};

struct api_tolerance_in { /* as the request states it; NaN = not stated      */
    int precision;        /* enum attn_precision, or -1                      */
    double rtol, atol;
};

struct api_audit {
    struct api_judged main;
    struct api_judged *companion; /* in the arena                                    */
    size_t companions;
};

/*
 * Reads the whole body: problem, candidate, tolerance, companions.  Problems are read in
 * the dtype that they state, so that float32 inputs are the floats they stand for, and
 * then widened.
 */
bool api_audit_read(struct api_ctx *ctx, const char *body, size_t len,
                    struct api_audit *audit, struct api_err *err);

/* The candidate's tensors (api_audit_candidate.c); `pointer` is that of `object`. */
bool api_candidate_read(struct api_ctx *ctx, const struct api_doc *doc,
                        const json_t *object, const char *pointer,
                        const struct api_tolerance_in *tolerance,
                        struct api_judged *judged, struct api_err *err);

/* Whether every number is a float32, and some are no shorter (api_audit_precision.c). */
bool api_candidate_is_float32(const struct attn_candidate *c);
/* The precision in which everything of a wrong candidate would be right, if its errors
   are so small; else ATTN_FLOAT64.  False only without memory or time. */
bool api_candidate_coarser(const struct api_judged *judged,
                           const struct attn_grad_ask *ask, struct attn_arena *arena,
                           const struct attn_exec *exec, enum attn_precision *precision,
                           struct attn_err *err);

/* Gives the candidate's d_additive the axes that the judge wants; nothing when it has
 * them. */
bool api_spread_additive(struct api_ctx *ctx, const struct attn_exec *exec,
                         struct api_judged *judged, struct api_err *err);

/* Query rows of a companion that must give what rows of another problem give, because
   they read the same (api_audit_compare.c). */
struct api_rows_alike {
    enum attn_object object;       /* Y, or H where one of the two lacks Y            */
    bool given;                    /* both candidates hold it                         */
    size_t rows;                   /* compared                                        */
    size_t differ;                 /* beyond the tolerance                            */
    bool same_bits;                /* of every row compared                           */
    double largest;                /* |main - companion| / max(1, |main|); NaN where a
                                      number is missing                               */
    size_t at[2], companion_at[2]; /* item and row of the first that differs          */
};
bool api_rows_compare(struct api_ctx *ctx, const struct attn_exec *exec,
                      const struct api_judged *main, const struct api_judged *companion,
                      struct api_rows_alike *alike, struct api_err *err);

/* "verdict":…,"objects":{…},"diagnoses":[…],…: one judged candidate
 * (api_answer_report.c). */
bool api_put_report(struct api_buffer *b, const struct api_judged *judged);

#endif
