/*
 * bench_attention.c - attention in process against the machine's own matrix product.
 * Not here: other programs (bench/peers), memory and long sequences (bench_scaling.c).
 * Start reading at ENTRIES, then measure_case.
 *
 * Without arguments: a table.  With --serve: answers each line "T causal threads path" on
 * stdin with milliseconds, so that a driver can let peers take turns.
 */
#include "bench_layer.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, GEMM = 1024, HEADS = 8 };

static const struct entry_row {
    const char *name;
    enum attn_path path;
    uint32_t want;
} ENTRIES[] = {
    {"dense, S and A returned", ATTN_PATH_DENSE,
     ATTN_BIT(ATTN_H) | ATTN_BIT(ATTN_S) | ATTN_BIT(ATTN_A)},
    {"dense, H returned", ATTN_PATH_DENSE, ATTN_BIT(ATTN_H)},
    {"tiled", ATTN_PATH_TILED, ATTN_BIT(ATTN_H)},
};
enum { ENTRY_COUNT = sizeof ENTRIES / sizeof ENTRIES[0] };

/* GFLOP/s of one thread on a product of GEMM x GEMM matrices. */
static double sgemm_rate(void)
{
    static float a[GEMM * GEMM], b[GEMM * GEMM], c[GEMM * GEMM];
    for (size_t n = 0; n < (size_t)GEMM * GEMM; n++)
        a[n] = b[n] = (float)(n % 7) - 3;

    const double begin = bench_now_ms();

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, GEMM, GEMM, GEMM, 1, a, GEMM,
                b, GEMM, 0, c, GEMM);
    return 2.0 * GEMM * GEMM * GEMM / (bench_now_ms() - begin) * 1e-6;
}

struct samples {
    double one[ROUNDS], two[ROUNDS];
};

static void print_row(const struct bench_layer *layer, const char *name,
                      struct samples *s, double gemm)
{
    const double one = bench_median(s->one, ROUNDS), two = bench_median(s->two, ROUNDS);
    const double rate = bench_layer_flops(layer) / two * 1e-6;

    printf("| %zu | %s | %s | %.1f | %.1f | %.2f | %.0f | %.2f |\n", layer->p.d.T_q,
           layer->p.mask_count > 0 ? "causal" : "open", name, one, two, one / two, rate,
           rate / (2 * gemm));
}

static void measure_case(size_t T, bool causal)
{
    struct bench_layer layer[ENTRY_COUNT];
    static struct samples sample[ENTRY_COUNT];
    double gemm[ROUNDS], rate;

    for (size_t e = 0; e < ENTRY_COUNT; e++) {
        bench_layer_make(&layer[e], HEADS, T, causal, ENTRIES[e].want, ENTRIES[e].path);
        bench_layer_ms(&layer[e], 2);
    }
    for (size_t n = 0; n < ROUNDS; n++) {
        gemm[n] = sgemm_rate();
        for (size_t e = 0; e < ENTRY_COUNT; e++) {
            sample[e].two[n] = bench_layer_ms(&layer[e], 2);
            sample[e].one[n] = bench_layer_ms(&layer[e], 1);
        }
    }
    rate = bench_median(gemm, ROUNDS);
    for (size_t e = 0; e < ENTRY_COUNT; e++) {
        print_row(&layer[e], ENTRIES[e].name, &sample[e], rate);
        bench_layer_free(&layer[e]);
    }
    printf("| %zu | %s | sgemm %d³, one thread | | | | %.0f | |\n", T,
           causal ? "causal" : "open", GEMM, rate);
}

static void print_table(void)
{
    printf(
        "| T | mask | path | ms, 1 thread | ms, 2 threads | 1 / 2 | GFLOP/s, 2 threads "
        "| share of 2 x sgemm |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t T = 1024; T <= 2048; T *= 2)
        for (int causal = 0; causal < 2; causal++)
            measure_case(T, causal);
}

static int serve(void)
{
    char line[128], path[16];
    size_t T, threads;
    int causal;

    while (fgets(line, sizeof line, stdin)) {
        struct bench_layer layer;

        if (sscanf(line, "%zu %d %zu %15s", &T, &causal, &threads, path) != 4)
            return EXIT_FAILURE;
        bench_layer_make(&layer, HEADS, T, causal != 0, ATTN_BIT(ATTN_H),
                         strcmp(path, "dense") == 0 ? ATTN_PATH_DENSE : ATTN_PATH_TILED);
        bench_layer_ms(&layer, threads);
        printf("%.4f\n", bench_layer_ms(&layer, threads));
        fflush(stdout);
        bench_layer_free(&layer);
    }
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    int status = EXIT_SUCCESS;

    attn_blas_init();
    bench_helper_start();
    if (argc > 1 && strcmp(argv[1], "--serve") == 0)
        status = serve();
    else
        print_table();
    bench_helper_stop();
    return status;
}
