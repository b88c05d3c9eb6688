/*
 * bench_machine.c - how dear it is on this machine that another core has read what one
 * writes: on virtual machines this changes from minute to minute by a factor of six.
 * Not here: the service. Start reading at main.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 850000, ROUNDS = 401 }; /* the text of all tensors at T = 128 */

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void run_on(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median microseconds in which core 0 writes what core `reader` read. */
static double write_us(int reader, char *text, char *copy)
{
    static double us[ROUNDS];

    for (int n = 0; n < ROUNDS; n++) {
        run_on(0);
        us[n] = now_us();
        memset(text, n, BYTES);
        us[n] = now_us() - us[n];
        run_on(reader);
        memcpy(copy, text, BYTES);
    }
    qsort(us, ROUNDS, sizeof *us, by_size);
    return us[ROUNDS / 2];
}

int main(void)
{
    char *const text = calloc(1, BYTES), *const copy = calloc(1, BYTES);
    double own, shared;

    if (!text || !copy)
        return 1;
    own = write_us(0, text, copy);
    shared = write_us(1, text, copy);
    printf("One core writes %d kB in %.0f us, and in %.0f us when the other core has read "
           "them.\n",
           BYTES / 1000, own, shared);
    free(text);
    free(copy);
    return 0;
}
