/*
 * make_fault.c - see make_fault.h.
 * Not here: random problems (make_problem.c).
 * Start reading at make_shows.
 */
#include "make_fault.h"

#include <string.h>

enum { SEEDS = 40000 };

bool make_is_forward(const struct attn_fault_row *fault)
{
    for (size_t s = 0; s < ATTN_STAGE_COUNT; s++)
        if (attn_fault_swap(fault)->stage[s])
            return true;
    return false;
}

static void fill(struct attn_tensor *t, double x)
{
    for (size_t n = 0; t->p && n < attn_tensor_count(t); n++)
        if (t->dtype == ATTN_F64)
            ((double *)t->p)[n] = x;
        else
            ((float *)t->p)[n] = (float)x;
}

/* Faults of range need numbers of a size that random ones do not have. */
static void stretch(const char *fault, struct made *m)
{
    if (strcmp(fault, "softmax_overflow") == 0) {
        m->p.scale_stated = true;
        m->p.scale = 2000;
        m->p.softcap = 0;
    }
    if (strcmp(fault, "fp16_mask_overflow_nan") == 0) {
        fill(&m->p.in[ATTN_IN_Q], 7);
        fill(&m->p.in[ATTN_IN_K], -7);
        fill(&m->p.in[ATTN_IN_PAST_K], -7);
        m->p.softcap = 0;
    }
}

bool make_shows(const struct attn_fault_row *fault, bool float32_too, uint64_t *seed,
                struct made *m)
{
    for (; *seed < SEEDS; ++*seed) {
        const bool single = float32_too && *seed % 3 == 0;

        make_problem(m, *seed, single ? ATTN_F32 : ATTN_F64, 2 + *seed % 5,
                     *seed % 4 == 0 ? 1 : 0, &MAKE_ALL);
        stretch(attn_fault_name(fault), m);
        make_prepare(m);
        if (attn_fault_visible(fault, &m->p)) {
            ++*seed;
            return true;
        }
        make_free(m);
    }
    return false;
}
