/*
 * bench_layer.h - one attention layer to be timed (B 1, d 64, float32, Q K V given),
 * and a second thread that helps. Not here: what is measured (bench_attention.c,
 * bench_scaling.c). Start reading at bench_layer_make.
 */
#ifndef BENCH_LAYER_H
#define BENCH_LAYER_H

#include "core/attn.h"

enum { BENCH_WIDTH = 64 }; /* d_k and d_v */

struct bench_layer {
    struct attn_problem p;
    struct attn_plan plan;
    struct attn_arena arena;
    void *input;
};

/* Sizes, random inputs, plan and memory, all touched once.  Ends the program on failure.
 */
void bench_layer_make(struct bench_layer *layer, size_t heads, size_t T, bool causal,
                      uint32_t want, enum attn_path path);
void bench_layer_free(struct bench_layer *layer);
/* Runs once with 1 or 2 threads; milliseconds. */
double bench_layer_ms(struct bench_layer *layer, size_t threads);
/* Multiply-adds of the two products over allowed pairs, times two. */
double bench_layer_flops(const struct bench_layer *layer);

/* The second thread: started once, sleeps between jobs. */
void bench_helper_start(void);
void bench_helper_stop(void);

double bench_now_ms(void);
/* Sorts x. */
double bench_median(double *x, size_t n);

#endif
