/*
 * bench_layer.c - the layer that the benches time, and the thread that helps it.
 * Not here: what is measured and printed (bench_attention.c, bench_scaling.c).
 * Start reading at bench_layer_make.
 */
#include "bench_layer.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double bench_median(double *x, size_t n)
{
    qsort(x, n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* ---- the second thread ---- */

static struct helper {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool busy, ending; /* guarded by lock, as are fn and arg */
    attn_piece_fn *fn;
    void *arg;
    size_t count;
    atomic_size_t next;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void take_pieces(void)
{
    size_t n;

    while ((n = atomic_fetch_add(&helper.next, 1)) < helper.count)
        helper.fn(helper.arg, n);
}

static void *help(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&helper.lock);
    for (;;) {
        while (!helper.busy && !helper.ending)
            pthread_cond_wait(&helper.changed, &helper.lock);
        if (helper.ending)
            break;
        pthread_mutex_unlock(&helper.lock);
        take_pieces();
        pthread_mutex_lock(&helper.lock);
        helper.busy = false;
        pthread_cond_broadcast(&helper.changed);
    }
    pthread_mutex_unlock(&helper.lock);
    return NULL;
}

static void share(void *ctx, size_t count, attn_piece_fn *fn, void *arg)
{
    (void)ctx;
    pthread_mutex_lock(&helper.lock);
    helper.fn = fn;
    helper.arg = arg;
    helper.count = count;
    atomic_store(&helper.next, 0);
    helper.busy = true;
    pthread_cond_broadcast(&helper.changed);
    pthread_mutex_unlock(&helper.lock);
    take_pieces();
    pthread_mutex_lock(&helper.lock);
    while (helper.busy)
        pthread_cond_wait(&helper.changed, &helper.lock);
    pthread_mutex_unlock(&helper.lock);
}

void bench_helper_start(void)
{
    if (pthread_create(&helper.thread, NULL, help, NULL) != 0)
        exit(EXIT_FAILURE);
}

void bench_helper_stop(void)
{
    pthread_mutex_lock(&helper.lock);
    helper.ending = true;
    pthread_cond_broadcast(&helper.changed);
    pthread_mutex_unlock(&helper.lock);
    pthread_join(helper.thread, NULL);
}

/* ---- the layer ---- */

static void fail(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(EXIT_FAILURE);
}

static void *memory(size_t bytes)
{
    void *p =
        aligned_alloc(ATTN_ALIGN, (bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN);

    if (!p)
        fail("no memory");
    memset(p, 0, bytes);
    return p;
}

static void give_inputs(struct bench_layer *layer, size_t heads, size_t T)
{
    static const enum attn_input GIVEN[] = {ATTN_IN_Q, ATTN_IN_K, ATTN_IN_V};
    const size_t count = heads * T * BENCH_WIDTH;

    layer->input = memory(3 * count * sizeof(float));
    for (size_t n = 0; n < 3; n++) {
        struct attn_tensor *t = &layer->p.in[GIVEN[n]];

        *t = (struct attn_tensor){.dtype = ATTN_F32,
                                  .rank = 4,
                                  .dim = {1, heads, T, BENCH_WIDTH},
                                  .p = (float *)layer->input + n * count};
        attn_init_fill(ATTN_INIT_NORMAL, n, 1, t);
    }
}

void bench_layer_make(struct bench_layer *layer, size_t heads, size_t T, bool causal,
                      uint32_t want, enum attn_path path)
{
    struct attn_err err = {0};

    *layer =
        (struct bench_layer){.p = {.dtype = ATTN_F32,
                                   .d = {.B = 1,
                                         .T_q = T,
                                         .T_kv = T,
                                         .d_model = heads * BENCH_WIDTH,
                                         .d_model_kv = heads * BENCH_WIDTH,
                                         .d_k = BENCH_WIDTH,
                                         .d_v = BENCH_WIDTH,
                                         .h = heads,
                                         .h_kv = heads},
                                   .form = {.head_axis = true, .source = ATTN_PROJECTED},
                                   .score = attn_score_find("dot_product"),
                                   .scale = 1 / sqrt(BENCH_WIDTH),
                                   .temperature = 1,
                                   .mask = {{.row = attn_mask_find("causal")}},
                                   .mask_count = causal}};
    give_inputs(layer, heads, T);
    if (!attn_prepare(&layer->p, &err) ||
        !attn_plan(&layer->p, want, path, SIZE_MAX, &layer->plan, &err))
        fail("the layer cannot be planned");
    layer->arena.size = layer->plan.trace_bytes;
    layer->arena.base = memory(layer->arena.size);
}

void bench_layer_free(struct bench_layer *layer)
{
    free(layer->input);
    free(layer->arena.base);
}

double bench_layer_ms(struct bench_layer *layer, size_t threads)
{
    const struct attn_exec exec = {.parallel_for = threads > 1 ? share : NULL};
    struct attn_err err = {0};
    struct attn_trace trace;
    const double begin = bench_now_ms();

    if (!attn_run(&layer->p, &layer->plan, &layer->arena, &exec, NULL, &trace, &err))
        fail("the layer failed");
    attn_arena_release(&layer->arena, 0);
    return bench_now_ms() - begin;
}

double bench_layer_flops(const struct bench_layer *layer)
{
    const double T = (double)layer->p.d.T_q;
    const double pairs = layer->p.mask_count > 0 ? T * (T + 1) / 2 : T * T;

    return 4 * pairs * BENCH_WIDTH * (double)layer->p.d.h;
}
