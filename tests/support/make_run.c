/*
 * make_run.c - runs of a problem, for tests of core/.
 * Not here: problems (make_problem.c).
 * Start reading at make_run.
 */
#include "make_problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t make_everything(const struct attn_problem *p, enum attn_path path)
{
    uint32_t want = 0;

    for (int o = ATTN_Q_PRE; o < ATTN_OBJECT_COUNT; o++)
        if (attn_object_exists(p, (enum attn_object)o) &&
            (path == ATTN_PATH_DENSE || !ATTN_OBJECTS[o].pairwise))
            want |= ATTN_BIT(o);
    return want;
}

struct attn_arena make_arena(size_t size)
{
    struct attn_arena arena = {.size = size};

    if (posix_memalign((void **)&arena.base, 64, size ? size : 1) != 0)
        abort();
    memset(arena.base, 0xff, size);
    return arena;
}

void make_run(const struct attn_problem *p, uint32_t want, enum attn_path path,
              const struct attn_exec *exec, const struct attn_swap *swap, struct ran *r)
{
    *r = (struct ran){0};
    if (!attn_plan(p, want, path, SIZE_MAX / 2, &r->plan, &r->err))
        return;
    r->arena = make_arena(r->plan.trace_bytes);
    r->ok = attn_run(p, &r->plan, &r->arena, exec, swap, &r->trace, &r->err);
}

void make_run_all(const struct attn_problem *p, enum attn_path path,
                  const struct attn_swap *swap, struct ran *r)
{
    make_run(p, make_everything(p, path), path, NULL, swap, r);
}

void make_run_free(struct ran *r)
{
    free(r->arena.base);
}

bool make_same_bits(const struct attn_tensor *a, const struct attn_tensor *b,
                    const char *name)
{
    const size_t bytes = attn_dtype_bytes(a->dtype);

    for (size_t n = 0; n < attn_tensor_count(a); n++)
        if (memcmp((char *)a->p + n * bytes, (char *)b->p + n * bytes, bytes) != 0) {
            fprintf(stderr, "%s at %zu: %.17g and %.17g\n", name, n,
                    attn_tensor_get(a, n), attn_tensor_get(b, n));
            return false;
        }
    return true;
}
