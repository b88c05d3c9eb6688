/*
 * attn_edit.h - what the ablation files share: the private halves of their tables.
 * Not here: anything another part of core/ may use (attn.h).
 * Start reading at struct attn_edit_target, then attn_edit.c.
 */
#ifndef ATTN_EDIT_H
#define ATTN_EDIT_H

#include "core/attn_core.h"

enum attn_change { /* rows of the change table: bits of `changes`      */
                   ATTN_CHANGE_ZERO,
                   ATTN_CHANGE_IDENTITY,
                   ATTN_CHANGE_NEGATE,
                   ATTN_CHANGE_SCALE,
                   ATTN_CHANGE_NOISE,
                   ATTN_CHANGE_SHUFFLE,
                   ATTN_CHANGE_REPLACE,
                   ATTN_CHANGE_MEAN,
                   ATTN_CHANGE_REMOVE,
                   ATTN_CHANGE_COUNT
};

/* Changes the numbers of m; `from` is what a mean is taken of; `noise` is as large as
   m. */
typedef void attn_change_fn(struct attn_mat m, struct attn_mat from,
                            const struct attn_edit *edit, struct attn_tensor *noise);

struct attn_edit_change {
    struct attn_edit_change_row row; /* first: a row is found by its public half */
    attn_change_fn *numbers;         /* NULL: means something else per target */
};

enum { ATTN_RULE_CUTS_MAX = ATTN_EDITS_MAX };

struct attn_cut_rule {        /* one extra rule: the pairs that edits forbid */
    struct attn_mask_row row; /* first: the rule's functions find the cuts by it */
    size_t count;
    struct {
        bool every_query;
        size_t i, j;
    } cut[ATTN_RULE_CUTS_MAX];
};

struct attn_inverse_rule {    /* a rule that forbids what another allows */
    struct attn_mask_row row; /* first */
    const struct attn_mask_row *of;
};

struct attn_edited { /* the layer with its changes made */
    struct attn_problem p;
    const struct attn_problem *baseline;
    struct attn_arena *arena;
    struct attn_cut_rule cuts;
    struct attn_inverse_rule inverse[ATTN_EDITS_MAX];
    size_t inverses;
    bool masks_changed;
    const struct attn_edit *after_softmax[ATTN_EDITS_MAX], *after_mix[ATTN_EDITS_MAX];
    struct attn_tensor noise[ATTN_EDITS_MAX]; /* of the edits in after_mix */
    size_t softmax_count, mix_count;
    struct attn_swap swap;
};

struct attn_edit_target {
    struct attn_edit_target_row row; /* first */
    int input;                       /* the weight it changes, or -1 */
    bool (*check)(const struct attn_problem *p, const struct attn_edit *edit,
                  struct attn_err *err);
    bool (*apply)(struct attn_edited *layer, const struct attn_edit *edit,
                  struct attn_err *err);
    /* Memory that apply takes, upper bound */
    size_t (*bytes)(const struct attn_problem *p, const struct attn_edit *edit);
    /* Objects that the edit touches at first hand: what depends on them may move */
    uint32_t (*enters)(const struct attn_problem *p, const struct attn_edit *edit);
    /* Of an object that may move: is this row (b, h, i) out of reach all the same?
       NULL = no */
    bool (*spares)(const struct attn_problem *p, const struct attn_edit *edit,
                   enum attn_object object, size_t b, size_t h, size_t i);
    const char *spares_says;
    uint32_t spares_in; /* objects that `spares` knows */
};

const struct attn_edit_target *attn_edit_target_of(const struct attn_edit *edit);
const struct attn_edit_change *attn_edit_change_of(const struct attn_edit *edit);
bool attn_edit_is(const struct attn_edit *edit, enum attn_change change);
/* The input whose row a "position" edit changes, and the row's place among the keys. */
enum attn_input attn_edit_token_input(const struct attn_problem *p);
size_t attn_edit_token_key(const struct attn_problem *p, const struct attn_edit *edit);

/* attn_edit_apply.c */
bool attn_edit_weight(struct attn_edited *layer, const struct attn_edit *edit,
                      struct attn_err *err);
bool attn_edit_scale(struct attn_edited *layer, const struct attn_edit *edit,
                     struct attn_err *err);
bool attn_edit_masks(struct attn_edited *layer, const struct attn_edit *edit,
                     struct attn_err *err);
bool attn_edit_head(struct attn_edited *layer, const struct attn_edit *edit,
                    struct attn_err *err);
bool attn_edit_edge(struct attn_edited *layer, const struct attn_edit *edit,
                    struct attn_err *err);
bool attn_edit_position(struct attn_edited *layer, const struct attn_edit *edit,
                        struct attn_err *err);
size_t attn_edit_additive_count(const struct attn_problem *p);
/* Edits of H made on a finished run: where there is no output stage that could make
   them. */
void attn_edit_mixed(const struct attn_edited *layer, struct attn_trace *trace);

/* attn_edit_numbers.c */
attn_change_fn attn_change_zero, attn_change_identity, attn_change_negate,
    attn_change_scale, attn_change_noise, attn_change_shuffle, attn_change_replace,
    attn_change_mean;

/* attn_claim.c: fills out->claim from the two traces. */
void attn_claims(const struct attn_problem *p, const struct attn_trace *baseline,
                 const struct attn_edit *edit, size_t edits, struct attn_ablation *out);

#endif
