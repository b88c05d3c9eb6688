/*
 * make_problem.h - random problems with a stated seed, and runs, for tests of core/.
 * Not here: what is right (ref_forward.h).
 * Start reading at make_problem.
 */
#ifndef MAKE_PROBLEM_H
#define MAKE_PROBLEM_H

#include "core/attn.h"

enum { MAKE_BLOCKS_MAX = 64 };

struct made { /* a problem and everything that it points to */
    struct attn_problem p;
    uint64_t seed, state;
    void *block[MAKE_BLOCKS_MAX];
    size_t blocks;
};

struct make_features { /* what the problem may draw; false = never */
    bool past, rope, alibi, sink, softcap, additive_score, additive_bias, empty_rows;
    bool causal, padding, documents, window, pairs;
};
extern const struct make_features MAKE_ALL;
extern const struct make_features MAKE_PLAIN; /* none of them */

/* Random numbers of the test itself, from the problem's seed. */
double make_normal(struct made *m);
size_t make_below(struct made *m, size_t n);
void *make_block(struct made *m, size_t bytes);

/*
 * Draws source, sizes up to `most` (all different where they can be), heads and every
 * feature that is let; d->T_q = T when `T` is not 0.  Prepared: ready to be planned.
 */
void make_problem(struct made *m, uint64_t seed, enum attn_dtype dtype, size_t most,
                  size_t T, const struct make_features *may);
/* Sizes of a layer whose two sequences are equally wide; the other sizes by their
   names. */
#define MAKE_DIMS(queries, keys, width, ...)                                         \
    {                                                                                \
        .T_q = (queries), .T_kv = (keys), .d_model = (width), .d_model_kv = (width), \
        __VA_ARGS__                                                                  \
    }
/* No size twice, so that an axis taken for another shows. */
extern const struct attn_dims MAKE_DISTINCT;
/* A problem of exactly these sizes, with W_O; no masks, no features. */
void make_plain(struct made *m, uint64_t seed, enum attn_dtype dtype,
                enum attn_source source, struct attn_dims d);
/* Adds a rule without parameters, or finds the one that is there. */
struct attn_mask *make_mask(struct made *m, const char *name);
/* Adds a position kind with every parameter left out. */
struct attn_position *make_position(struct made *m, const char *name);
/* Once more after a change of the problem. */
void make_prepare(struct made *m);
void make_free(struct made *m);

/* ---- runs (make_run.c) ---- */

struct ran { /* one run and the memory that it lives in */
    struct attn_plan plan;
    struct attn_arena arena;
    struct attn_trace trace;
    struct attn_err err;
    bool ok;
};

/* Plans and runs; memory that no tensor writes to holds NaN, so that it shows. */
void make_run(const struct attn_problem *p, uint32_t want, enum attn_path path,
              const struct attn_exec *exec, const struct attn_swap *swap, struct ran *r);
/* The same with everything, and no help. */
void make_run_all(const struct attn_problem *p, enum attn_path path,
                  const struct attn_swap *swap, struct ran *r);
void make_run_free(struct ran *r);
/* Every object that the problem has and the path can give. */
uint32_t make_everything(const struct attn_problem *p, enum attn_path path);

/* As many bytes, each 0xff: numbers that nobody writes are NaN.  free(arena.base). */
struct attn_arena make_arena(size_t size);

/* Bit for bit the same; prints the first place that differs. */
bool make_same_bits(const struct attn_tensor *a, const struct attn_tensor *b,
                    const char *name);

#endif
