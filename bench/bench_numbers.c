/*
 * bench_numbers.c - how long one number takes to write and to read: ours against libc and
 * jansson. Not here: whole requests (bench_http.py). Start reading at CONTESTANTS.
 *
 * Without arguments: a table.  With --serve: a round for each line on stdin, so that
 * others can take their turns between (peers/run_numbers.py).
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api_private.h"

enum { NUMBERS = 200000, ROUNDS = 7 };

static double value[NUMBERS];
static float value32[NUMBERS];
static char out[NUMBERS * API_NUMBER_MAX + API_NUMBER_MAX];
static char text[NUMBERS * API_NUMBER_MAX], text32[NUMBERS * API_NUMBER_MAX];
static size_t text_len, text32_len;
static double sink;

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* ---- writing ---- */

static void write_ours(void)
{
    sink += (double)(api_number_run_f64(out, value, NUMBERS) - out);
}

static void write_ours32(void)
{
    sink += (double)(api_number_run_f32(out, value32, NUMBERS) - out);
}

static void write_with(const char *format, bool narrow)
{
    size_t len = 0;

    for (size_t n = 0; n < NUMBERS; n++)
        len += (size_t)snprintf(out + len, API_NUMBER_MAX, format,
                                narrow ? (double)value32[n] : value[n]);
    sink += (double)len;
}

static void write_snprintf(void)
{
    write_with("%.17g,", false);
}

static void write_snprintf32(void)
{
    write_with("%.9g,", true);
}

static void write_tree(size_t flags, bool narrow)
{
    json_t *array = json_array();

    for (size_t n = 0; n < NUMBERS; n++)
        json_array_append_new(array, json_real(narrow ? (double)value32[n] : value[n]));
    char *dump = json_dumps(array, JSON_COMPACT | flags);

    sink += (double)strlen(dump);
    free(dump);
    json_decref(array);
}

static void write_jansson(void)
{
    write_tree(0, false);
}

static void write_jansson32(void)
{
    write_tree(JSON_REAL_PRECISION(9), true);
}

/* ---- reading ---- */

/* A list is checked where it is found and converted later, as in a request. */
static void check_list(const char *from, size_t len)
{
    size_t count;
    bool comma;

    if (api_number_list_end(from + 1, from + len, &count, &comma) == NULL ||
        count != NUMBERS)
        abort();
}

static void read_ours(void)
{
    static double x[NUMBERS];
    const char *p = text + 1;

    check_list(text, text_len);
    if (api_number_list_read_f64(&p, text + text_len, x) != NUMBERS)
        abort();
    sink += x[NUMBERS - 1];
}

static void read_ours32(void)
{
    static float x[NUMBERS];
    const char *p = text32 + 1;

    check_list(text32, text32_len);
    if (api_number_list_read_f32(&p, text32 + text32_len, x) != NUMBERS)
        abort();
    sink += (double)x[NUMBERS - 1];
}

static void read_strtod(void)
{
    char *p = text + 1;

    for (size_t n = 0; n < NUMBERS; n++, p++)
        sink += strtod(p, &p);
}

static void read_strtof(void)
{
    char *p = text32 + 1;

    for (size_t n = 0; n < NUMBERS; n++, p++)
        sink += (double)strtof(p, &p);
}

static void read_tree(const char *from, size_t len)
{
    json_t *array = json_loadb(from, len, 0, NULL);

    for (size_t n = 0; n < NUMBERS; n++)
        sink += json_real_value(json_array_get(array, n));
    json_decref(array);
}

static void read_jansson(void)
{
    read_tree(text, text_len);
}

static void read_jansson32(void)
{
    read_tree(text32, text32_len);
}

static const struct contestant {
    const char *question, *name;
    void (*run)(void);
} CONTESTANTS[] = {
    {"write a float32", "attentiond", write_ours32},
    {"write a float32", "snprintf %.9g", write_snprintf32},
    {"write a float32", "jansson", write_jansson32},
    {"write a float64", "attentiond", write_ours},
    {"write a float64", "snprintf %.17g", write_snprintf},
    {"write a float64", "jansson", write_jansson},
    {"read a float32", "attentiond", read_ours32},
    {"read a float32", "strtof", read_strtof},
    {"read a float32", "jansson", read_jansson32},
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

static void make_numbers(void)
{
    uint64_t state = 1;

    for (size_t n = 0; n < NUMBERS; n++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value[n] = ((double)(state >> 11) * 0x1p-53 - 0.5) * 6;
        value32[n] = (float)value[n];
    }
    text[0] = text32[0] = '[';
    text_len = (size_t)(api_number_run_f64(text + 1, value, NUMBERS) - text);
    text32_len = (size_t)(api_number_run_f32(text32 + 1, value32, NUMBERS) - text32);
    text[text_len++] = text32[text32_len++] = ']';
}

/* Nanoseconds a number of every contestant, one after the other. */
static void run_round(double ns[COUNT])
{
    for (int c = 0; c < COUNT; c++) {
        const double begin = now_ns();

        CONTESTANTS[c].run();
        ns[c] = (now_ns() - begin) / NUMBERS;
    }
}

static void print_table(void)
{
    static double ns[ROUNDS][COUNT];
    double ours = 0;

    for (int r = 0; r < ROUNDS; r++)
        run_round(ns[r]);
    printf("| question | who | ns a number (median of %d) | ratio to attentiond "
           "|\n|---|---|---|---|\n",
           ROUNDS);
    for (int c = 0; c < COUNT; c++) {
        double sorted[ROUNDS];

        for (int r = 0; r < ROUNDS; r++)
            sorted[r] = ns[r][c];
        qsort(sorted, ROUNDS, sizeof(double), by_value);
        if (c == 0 || strcmp(CONTESTANTS[c].question, CONTESTANTS[c - 1].question) != 0)
            ours = sorted[ROUNDS / 2];
        printf("| %s | %s | %.1f | %.2f |\n", CONTESTANTS[c].question,
               CONTESTANTS[c].name, sorted[ROUNDS / 2], sorted[ROUNDS / 2] / ours);
    }
}

/* A line a contestant and an empty one; then, for each line that comes, one of figures.
 */
static void serve(void)
{
    double ns[COUNT];
    char line[16];

    for (int c = 0; c < COUNT; c++)
        printf("%s\t%s\n", CONTESTANTS[c].question, CONTESTANTS[c].name);
    putchar('\n');
    while (fflush(stdout) == 0 && fgets(line, sizeof line, stdin) != NULL) {
        run_round(ns);
        for (int c = 0; c < COUNT; c++)
            printf("%.2f%c", ns[c], c + 1 < COUNT ? ' ' : '\n');
    }
}

int main(int argc, char **argv)
{
    make_numbers();
    if (argc > 1 && strcmp(argv[1], "--serve") == 0)
        serve();
    else
        print_table();
    return sink == 0.5;
}
