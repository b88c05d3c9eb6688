/*
 * attn_random.c - SplitMix64, the one source of pseudo-random numbers in core.
 * Not here: random tensors (attn_init.c), which rows an audit draws (attn_audit.c).
 * Start reading at attn_random_u64.
 */
#include "core/attn_core.h"

#include <assert.h>

/*
 * The next number of the stream; *state moves on by the golden gamma, so the n-th number
 * from a seed s (n = 0, 1, …) can also be had alone, from the state s + n * gamma.
 * Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators",
 * figure 15 with the mixing constants of its variant 13 (Stafford).
 */
uint64_t attn_random_u64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A number in 0 … n-1, all equally likely: the incomplete last round is drawn again. */
size_t attn_random_below(uint64_t *state, size_t n)
{
    assert(n > 0);

    const uint64_t whole = UINT64_MAX - UINT64_MAX % n;
    uint64_t x;

    do
        x = attn_random_u64(state);
    while (x >= whole);
    return (size_t)(x % n);
}
