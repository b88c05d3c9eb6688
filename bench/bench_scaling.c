/*
 * bench_scaling.c - how time and memory grow with the length of the sequence, dense and
 * tiled: one head, no mask, two threads.
 * Not here: speed at one length against others (bench_attention.c).
 * Start reading at main; scaling_svg.py draws the table.
 */
#include "bench_layer.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5, SIZES = 8, FIRST = 128 };

static const struct path_row {
    const char *name;
    enum attn_path path;
    uint32_t want;
} PATHS[] = {
    {"dense", ATTN_PATH_DENSE, ATTN_BIT(ATTN_H) | ATTN_BIT(ATTN_S) | ATTN_BIT(ATTN_A)},
    {"tiled", ATTN_PATH_TILED, ATTN_BIT(ATTN_H)},
};

struct point {
    double ms[ROUNDS], median;
    size_t bytes;
};

static void measure(const struct path_row *path, struct point *point)
{
    struct bench_layer layer[SIZES];

    for (size_t n = 0; n < SIZES; n++) {
        bench_layer_make(&layer[n], 1, (size_t)FIRST << n, false, path->want, path->path);
        bench_layer_ms(&layer[n], 2);
        point[n].bytes = layer[n].plan.trace_bytes;
    }
    for (size_t r = 0; r < ROUNDS; r++)
        for (size_t n = 0; n < SIZES; n++)
            point[n].ms[r] = bench_layer_ms(&layer[n], 2);
    for (size_t n = 0; n < SIZES; n++) {
        point[n].median = bench_median(point[n].ms, ROUNDS);
        bench_layer_free(&layer[n]);
    }
}

static void print(const char *name, const struct point *point)
{
    for (size_t n = 0; n < SIZES; n++) {
        printf("| %s | %d | %.4g | %.4g |", name, FIRST << n, point[n].median,
               (double)point[n].bytes / 1e6);
        if (n > 0)
            printf(" %.2f | %.2f |\n", point[n].median / point[n - 1].median,
                   (double)point[n].bytes / (double)point[n - 1].bytes);
        else
            printf(" | |\n");
    }
}

int main(void)
{
    struct point point[SIZES];

    attn_blas_init();
    bench_helper_start();
    printf("| path | T | ms | MB | time against half of T | memory against half of T |\n"
           "|---|---|---|---|---|---|\n");
    for (size_t n = 0; n < sizeof PATHS / sizeof PATHS[0]; n++) {
        measure(&PATHS[n], point);
        print(PATHS[n].name, point);
    }
    bench_helper_stop();
    return EXIT_SUCCESS;
}
