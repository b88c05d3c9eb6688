/*
 * bench_numbers.c - how long one number takes to write and to read: ours against libc and jansson.
 * Not here: whole requests (bench_http.py).
 * Start reading at CONTESTANTS.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api_private.h"

enum { NUMBERS = 200000, ROUNDS = 7 };

static double value[NUMBERS];
static char text[NUMBERS * API_NUMBER_MAX];
static size_t text_len;
static double sink;

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void write_ours(void)
{
    static char out[NUMBERS * API_NUMBER_MAX];
    size_t len = 0;

    for (size_t n = 0; n < NUMBERS; n++) {
        len += api_number_write_f64(out + len, value[n]);
        out[len++] = ',';
    }
    sink += (double)len;
}

static void write_snprintf(void)
{
    static char out[NUMBERS * API_NUMBER_MAX];
    size_t len = 0;

    for (size_t n = 0; n < NUMBERS; n++)
        len += (size_t)snprintf(out + len, API_NUMBER_MAX, "%.17g,", value[n]);
    sink += (double)len;
}

static void write_jansson(void)
{
    json_t *array = json_array();

    for (size_t n = 0; n < NUMBERS; n++)
        json_array_append_new(array, json_real(value[n]));
    char *dump = json_dumps(array, JSON_COMPACT);

    sink += (double)strlen(dump);
    free(dump);
    json_decref(array);
}

static void read_ours(void)
{
    const char *p = text + 1, *end = text + text_len;
    double x;

    for (size_t n = 0; n < NUMBERS; n++, p++) {
        if (api_number_read_f64(&p, end, &x) != API_NUMBER_OK)
            abort();
        sink += x;
    }
}

static void read_strtod(void)
{
    char *p = text + 1;

    for (size_t n = 0; n < NUMBERS; n++, p++)
        sink += strtod(p, &p);
}

static void read_jansson(void)
{
    json_t *array = json_loadb(text, text_len, 0, NULL);

    for (size_t n = 0; n < NUMBERS; n++)
        sink += json_real_value(json_array_get(array, n));
    json_decref(array);
}

static const struct contestant {
    const char *question, *name;
    void (*run)(void);
} CONTESTANTS[] = {
    {"write a float64", "attentiond", write_ours},
    {"write a float64", "snprintf %.17g", write_snprintf},
    {"write a float64", "jansson", write_jansson},
    {"read a float64", "attentiond", read_ours},
    {"read a float64", "strtod", read_strtod},
    {"read a float64", "jansson", read_jansson},
};
enum { COUNT = sizeof CONTESTANTS / sizeof CONTESTANTS[0] };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int main(void)
{
    static double time_ns[COUNT][ROUNDS];
    uint64_t state = 1;

    text[text_len++] = '[';
    for (size_t n = 0; n < NUMBERS; n++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value[n] = ((double)(state >> 11) * 0x1p-53 - 0.5) * 6;
        text_len += api_number_write_f64(text + text_len, value[n]);
        text[text_len++] = n + 1 < NUMBERS ? ',' : ']';
    }
    for (int r = 0; r < ROUNDS; r++)
        for (int c = 0; c < COUNT; c++) {
            const double begin = now_ns();

            CONTESTANTS[c].run();
            time_ns[c][r] = now_ns() - begin;
        }
    printf("| question | who | ns a number (median of %d) | ratio to attentiond |\n|---|---|---|---|\n",
           ROUNDS);
    double ours = 0;

    for (int c = 0; c < COUNT; c++) {
        qsort(time_ns[c], ROUNDS, sizeof(double), by_value);
        const double median = time_ns[c][ROUNDS / 2] / NUMBERS;

        if (c == 0 || strcmp(CONTESTANTS[c].question, CONTESTANTS[c - 1].question) != 0)
            ours = median;
        printf("| %s | %s | %.1f | %.2f |\n", CONTESTANTS[c].question, CONTESTANTS[c].name,
               median, median / ours);
    }
    return sink == 0.5;
}
