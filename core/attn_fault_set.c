/*
 * attn_fault_set.c - a fault with another constant or another seed than its own.
 * Not here: the faults (attn_fault_fitted.c, attn_fault_softmax.c), how the constant is
 * found in a candidate (attn_diagnose_fit.c).
 * Start reading at TAKES, then attn_fault_set.
 */
#include "core/attn_diagnose.h"
#include "core/attn_fault_softmax.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* With `right` in its place the layer is the right one. */
struct takes {
    const char *fault;
    double right;
    struct attn_fault_takes says;
};

/* Sizes are bounded so that a float32 holds the constant. */
static const struct takes TAKES[] = {
    {"scale_other", 1.0, {.low = -1e6, .high = 1e6}},
    {"softcap_other", 1.0, {.low = 1e-6, .high = 1e6}},
    {"rope_base_other", (double)NAN, {.low = 1e-3, .high = 1e12}},
    {"rope_query_offset", 0.0, {.low = -1e9, .high = 1e9}},
    {"window_other_width", (double)NAN, {.low = -1.0, .high = 1e9, .whole = true}},
    {"causal_other_offset", 0.0, {.low = -1e9, .high = 1e9, .whole = true}},
    {"finite_mask_value", (double)NAN, {.low = -1e38, .high = 1e38}},
    {"bias_scaled", 1.0, {.low = -1e6, .high = 1e6}},
    {"weights_scaled", 1.0, {.low = -1e6, .high = 1e6}},
    {"output_scaled", 1.0, {.low = -1e6, .high = 1e6}},
    {"dropout_in_eval",
     (double)NAN,
     {.low = 0.0, .high = 1.0, .open = true, .seed = true}},
};

static const struct takes *takes_of(const struct attn_fault_row *row)
{
    for (size_t n = 0; n < ATTN_COUNT(TAKES); n++)
        if (strcmp(TAKES[n].fault, row->name) == 0)
            return &TAKES[n];
    return NULL;
}

static double constant(const struct attn_fault_row *row, const void *param)
{
    return attn_fit_find(row)->set ? ((const struct attn_fitted *)param)->value
                                   : ((const struct attn_dropout *)param)->p;
}

bool attn_fault_takes(const struct attn_fault_row *row, struct attn_fault_takes *takes)
{
    const struct takes *found = takes_of(row);

    if (!found)
        return false;
    *takes = found->says;
    takes->name = attn_fit_find(row)->param;
    takes->standard = constant(row, row->swap.param);
    return true;
}

bool attn_fault_in_range(const struct attn_fault_takes *takes, double x)
{
    if (takes->whole && x != floor(x))
        return false;
    return takes->open ? x > takes->low && x < takes->high
                       : x >= takes->low && x <= takes->high;
}

struct made { /* what the room holds */
    struct attn_swap swap;
    double param[ATTN_FIT_ROOM];
};
_Static_assert(sizeof(struct made) <= sizeof(union attn_fault_room),
               "a swap and its param fit into their room");

const struct attn_swap *attn_fault_set(const struct attn_fault_row *row,
                                       const double *parameter, const uint64_t *seed,
                                       union attn_fault_room *room)
{
    struct made *made = (struct made *)(void *)room;
    const struct takes *takes = takes_of(row);

    assert((!parameter && !seed) || takes);
    assert(!parameter || attn_fault_in_range(&takes->says, *parameter));
    assert(!seed || takes->says.seed);
    made->swap = row->swap;
    if (takes && takes->says.seed) {
        struct attn_dropout dropout = *(const struct attn_dropout *)row->swap.param;

        dropout.p = parameter ? *parameter : dropout.p;
        dropout.seed = seed ? *seed : dropout.seed;
        memcpy(made->param, &dropout, sizeof dropout);
        made->swap.param = made->param;
    } else if (parameter) {
        made->swap.param =
            attn_fit_find(row)->set(row->swap.param, *parameter, made->param);
    }
    return &made->swap;
}

bool attn_fault_shows(const struct attn_fault_row *row, const struct attn_swap *swap,
                      const struct attn_problem *p)
{
    const struct takes *takes = takes_of(row);

    return !(takes && constant(row, swap->param) == takes->right) &&
           row->visible(p, swap->param);
}
