/*
 * attn_fault_position.c - faults of RoPE: wrong rotation of Q or K.
 * Not here: ALiBi, which is part of M (attn_fault_mask.c).
 * Start reading at ROWS, at the end.
 */
#include "core/attn_fault.h"

#include <math.h>

enum pairing { AS_ASKED, THE_OTHER, MIXED, NOT_AT_ALL };

struct turn {
    bool (*fits)(const struct attn_problem *p);
    enum pairing pairing;
    double (*query)(const struct attn_problem *p, size_t b,
                    size_t i); /* NULL = the right one */
    double (*key)(const struct attn_problem *p, size_t b, size_t j);
};

/* ---- the wrong stages -------------------------------------------------------------- */

static double theta(const struct attn_problem *p, size_t k)
{
    return pow(p->rope.base, -2.0 * (double)k / (double)p->d.d_k);
}

/* Rotates features a and c of the row at `from` by their angles and writes them to
   `to`. */
static void turn_pair(const struct attn_tensor *pre, size_t from, struct attn_tensor *out,
                      size_t to, const size_t at[2], const double angle[2])
{
    const double x = attn_number(pre, from + at[0]), y = attn_number(pre, from + at[1]);

    attn_put(out, to + at[0], x * cos(angle[0]) - y * sin(angle[0]));
    attn_put(out, to + at[1], y * cos(angle[1]) + x * sin(angle[1]));
}

/* Pairs are read before they are written, so `pre` may be `out`. */
static void turn_row(const struct attn_problem *p, enum pairing pairing, double pos,
                     const struct attn_tensor *pre, size_t from, struct attn_tensor *out,
                     size_t to)
{
    const size_t half = p->d.d_k / 2;
    const bool halves =
        pairing == MIXED || (p->rope.layout == ATTN_ROPE_HALF) == (pairing == AS_ASKED);

    for (size_t k = 0; k < half; k++) {
        const size_t at[2] = {halves ? k : 2 * k, halves ? k + half : 2 * k + 1};
        const double angle[2] = {pos * theta(p, pairing == MIXED ? at[0] / 2 : k),
                                 pos * theta(p, pairing == MIXED ? at[1] / 2 : k)};

        turn_pair(pre, from, out, to, at,
                  pairing == NOT_AT_ALL ? (const double[2]){0.0, 0.0} : angle);
    }
}

static bool fits(const struct attn_problem *p, const void *param)
{
    const struct turn *fault = param;

    return p->rope.on && fault->fits(p);
}

static bool wrong_q(const struct attn_run_ctx *run, struct attn_piece piece,
                    struct attn_err *err)
{
    const struct turn *fault = run->swap->param;
    const struct attn_problem *p = run->p;
    const struct attn_tensor *pre = attn_before_rope(run->t, ATTN_Q_PRE, ATTN_Q);
    struct attn_tensor *Q = &run->t->t[ATTN_Q];

    (void)piece;
    if (!fits(p, fault))
        return attn_stage_all(run, ATTN_STAGE_POSITION_Q, err);
    for (struct attn_cell x = {0}; attn_cell_in(&x, p->d.B, p->d.h, p->d.T_q, 1); x.j++)
        turn_row(p, fault->pairing,
                 (fault->query ? fault->query : attn_rope_position_q)(p, x.b, x.i), pre,
                 attn_place4(pre, x.b, x.h, x.i), Q, attn_place4(Q, x.b, x.h, x.i));
    return true;
}

/* Cached keys were rotated when they were new: the right stage has only to put them in
   place. */
static void copy_past(const struct attn_problem *p, const struct attn_tensor *pre,
                      struct attn_tensor *K)
{
    for (struct attn_cell x = {0};
         p->d.T_past > 0 && attn_cell_in(&x, p->d.B, p->d.h_kv, p->d.T_past, p->d.d_k);
         x.j++)
        attn_put4(K, x.b, x.h, x.i, x.j, attn_at4(pre, x.b, x.h, x.i, x.j));
}

static bool wrong_k(const struct attn_run_ctx *run, struct attn_piece piece,
                    struct attn_err *err)
{
    const struct turn *fault = run->swap->param;
    const struct attn_problem *p = run->p;
    const struct attn_tensor *pre = attn_before_rope(run->t, ATTN_K_PRE, ATTN_K);
    struct attn_tensor *K = &run->t->t[ATTN_K];
    const size_t past = p->d.T_past;

    (void)piece;
    if (!fits(p, fault))
        return attn_stage_all(run, ATTN_STAGE_POSITION_K, err);
    copy_past(p, pre, K);
    for (struct attn_cell x = {0};
         attn_cell_in(&x, p->d.B, p->d.h_kv, p->d.T_kv - past, 1); x.j++)
        turn_row(p, fault->pairing,
                 (fault->key ? fault->key : attn_rope_position_k)(p, x.b, past + x.i),
                 pre, attn_place4(pre, x.b, x.h, past + x.i), K,
                 attn_place4(K, x.b, x.h, past + x.i));
    return true;
}

/* ---- wrong positions --------------------------------------------------------------- */

static double from_zero(const struct attn_problem *p, size_t b, size_t i)
{
    (void)p, (void)b;
    return (double)i;
}

static double one_too_far(const struct attn_problem *p, size_t b, size_t i)
{
    return attn_rope_position_q(p, b, i) + 1.0;
}

/* The cache was allocated two slots wider than it is filled. */
static double by_cache_width(const struct attn_problem *p, size_t b, size_t i)
{
    return attn_rope_position_q(p, b, i) + 2.0;
}

static double start_twice(const struct attn_problem *p, size_t b, size_t i)
{
    return attn_rope_position_q(p, b, i) + attn_rope_position_q(p, b, 0);
}

/* A new token's key goes wrong with its query: the last T_q keys are those of the
   queries. */
static double with_query(const struct attn_problem *p, size_t b, size_t j,
                         double (*wrong)(const struct attn_problem *, size_t, size_t))
{
    const size_t first = p->d.T_kv - p->d.T_q;

    return j < first ? attn_rope_position_k(p, b, j) : wrong(p, b, j - first);
}

static double key_from_zero(const struct attn_problem *p, size_t b, size_t j)
{
    return with_query(p, b, j, from_zero);
}

static double key_too_far(const struct attn_problem *p, size_t b, size_t j)
{
    return with_query(p, b, j, one_too_far);
}

static double key_start_twice(const struct attn_problem *p, size_t b, size_t j)
{
    return with_query(p, b, j, start_twice);
}

static double slot_of_query(const struct attn_problem *p, size_t b, size_t i)
{
    (void)b;
    return (double)(i + p->d.T_kv) - (double)p->d.T_q;
}

static double slot_of_key(const struct attn_problem *p, size_t b, size_t j)
{
    (void)p, (void)b;
    return (double)j;
}

/* ---- what each needs --------------------------------------------------------------- */

static bool any_query(const struct attn_problem *p,
                      double (*wrong)(const struct attn_problem *, size_t, size_t))
{
    for (size_t b = 0; b < p->d.B; b++)
        for (size_t i = 0; i < p->d.T_q; i++)
            if (attn_rope_position_q(p, b, i) != (wrong ? wrong(p, b, i) : 0.0))
                return true;
    return false;
}

static bool pairs_can_differ(const struct attn_problem *p)
{
    return p->d.d_k > 2 && any_query(p, NULL);
}

static bool keys_are_turned(const struct attn_problem *p)
{
    for (size_t b = 0; b < p->d.B; b++)
        for (size_t j = p->d.T_past; j < p->d.T_kv; j++)
            if (attn_rope_position_k(p, b, j) != 0.0)
                return true;
    return false;
}

static bool not_from_zero(const struct attn_problem *p)
{
    return p->d.T_q < p->d.T_kv && any_query(p, from_zero);
}

static bool more_keys(const struct attn_problem *p)
{
    return p->d.T_q < p->d.T_kv;
}

static bool later_chunk(const struct attn_problem *p)
{
    return p->d.T_q > 1 && more_keys(p) && any_query(p, start_twice);
}

static bool positions_reset(const struct attn_problem *p)
{
    return attn_mask_of(p, "documents") && any_query(p, slot_of_query);
}

/* ---- the rows ---------------------------------------------------------------------- */

static const struct turn OTHER_PAIRS = {pairs_can_differ, THE_OTHER, NULL, NULL};
static const struct turn MIXED_LAYOUT = {pairs_can_differ, MIXED, NULL, NULL};
static const struct turn UNTURNED_KEY = {keys_are_turned, NOT_AT_ALL, NULL, NULL};
static const struct turn FROM_ZERO = {not_from_zero, AS_ASKED, from_zero, key_from_zero};
static const struct turn ONE_TOO_FAR = {more_keys, AS_ASKED, one_too_far, key_too_far};
static const struct turn CACHE_WIDTH = {more_keys, AS_ASKED, by_cache_width, NULL};
static const struct turn START_TWICE = {later_chunk, AS_ASKED, start_twice,
                                        key_start_twice};
static const struct turn NOT_RESET = {positions_reset, AS_ASKED, slot_of_query,
                                      slot_of_key};

static const struct attn_fault_row ROWS[] = {
    {"rope_pairing",
     "Q",
     "qkv_rows",
     "Features were rotated in the other pairs: halves where neighbours were asked, or "
     "the reverse.",
     "Rotate in the layout for which the weights were made, or permute their columns "
     "once.",
     "RoPE with d_k of 4 or more and a query that does not stand at position 0.",
     fits,
     {{[ATTN_STAGE_POSITION_Q] = wrong_q, [ATTN_STAGE_POSITION_K] = wrong_k},
      &OTHER_PAIRS}},
    {"rope_mixed_layout",
     "Q",
     "qkv_rows",
     "Angles were laid out for adjacent pairs, but the rotation was done on halves.",
     "Repeat the angles as the rotation pairs its features: halves need [θ,θ], "
     "neighbours [θ0,θ0,…].",
     "RoPE with d_k of 4 or more and a query that does not stand at position 0.",
     fits,
     {{[ATTN_STAGE_POSITION_Q] = wrong_q, [ATTN_STAGE_POSITION_K] = wrong_k},
      &MIXED_LAYOUT}},
    {"rope_on_query_only",
     "K",
     "qkv_rows",
     "Keys were never rotated: scores then depend on the query's absolute position.",
     "Rotate new keys too, once, before they enter the cache.",
     "RoPE and a new key that does not stand at position 0.",
     fits,
     {{[ATTN_STAGE_POSITION_K] = wrong_k}, &UNTURNED_KEY}},
    {"decode_position_zero",
     "Q",
     "qkv_rows",
     "New tokens were rotated as if they began the sequence at position 0.",
     "Start positions of new tokens at the length of the cache.",
     "RoPE, fewer queries than keys, and queries that do not stand at 0, 1, 2, ….",
     fits,
     {{[ATTN_STAGE_POSITION_Q] = wrong_q, [ATTN_STAGE_POSITION_K] = wrong_k},
      &FROM_ZERO}},
    {"decode_position_off_by_one",
     "Q",
     "qkv_rows",
     "New tokens were placed one position too far: the cache's length already counted "
     "them.",
     "Take the length of the cache before the new token is appended.",
     "RoPE and fewer queries than keys.",
     fits,
     {{[ATTN_STAGE_POSITION_Q] = wrong_q, [ATTN_STAGE_POSITION_K] = wrong_k},
      &ONE_TOO_FAR}},
    {"decode_query_position_only",
     "Q",
     "qkv_rows",
     "The query was rotated by the width for which the cache was allocated, cached keys "
     "by their own "
     "length.",
     "Rotate the query to the number of keys that are really there, less one.",
     "RoPE and fewer queries than keys.",
     fits,
     {{[ATTN_STAGE_POSITION_Q] = wrong_q}, &CACHE_WIDTH}},
    {"chunk_position_counted_twice",
     "Q",
     "qkv_rows",
     "The start of a later chunk was added twice: its first token stands at 2·start.",
     "Add the offset either to the positions or inside the rotation, not in both.",
     "RoPE, and a chunk of several queries that does not start at position 0.",
     fits,
     {{[ATTN_STAGE_POSITION_Q] = wrong_q, [ATTN_STAGE_POSITION_K] = wrong_k},
      &START_TWICE}},
    {"packed_positions_not_reset",
     "Q",
     "qkv_rows",
     "A later document of a packed sequence kept counting positions.  A does not change "
     "while the "
     "document mask holds, since rotation is relative.",
     "Start every packed document at position 0.",
     "RoPE with documents, and positions that start again in a later document.",
     fits,
     {{[ATTN_STAGE_POSITION_Q] = wrong_q, [ATTN_STAGE_POSITION_K] = wrong_k},
      &NOT_RESET}},
};
const struct attn_fault_theme ATTN_FAULTS_POSITION = {ROWS, ATTN_COUNT(ROWS)};
