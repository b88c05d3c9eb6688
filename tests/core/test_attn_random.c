/* test_attn_random.c - SplitMix64 against published numbers; draws below n are fair. */
#include "core/attn_core.h"

#include <criterion/criterion.h>

/* The first outputs for seed 1234567 as listed on Rosetta Code ("Pseudo-random
   numbers/Splitmix64") and for seed 0 as used by the seeding of xoshiro implementations.
 */
Test(attn_random, published_numbers)
{
    static const uint64_t from_1234567[] = {
        UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
        UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
        UINT64_C(16408922859458223821)};
    uint64_t state = 1234567, zero = 0;

    for (size_t n = 0; n < ATTN_COUNT(from_1234567); n++)
        cr_assert_eq(attn_random_u64(&state), from_1234567[n], "number %zu", n);
    cr_assert_eq(attn_random_u64(&zero), UINT64_C(0xe220a8397b1dcdaf));
}

Test(attn_random, below_stays_below_and_is_fair)
{
    enum { N = 7, DRAWS = 70000 };
    size_t hits[N] = {0};
    uint64_t state = 5;

    for (size_t n = 0; n < DRAWS; n++)
        hits[attn_random_below(&state, N)]++;
    /* 10,000 expected each, standard deviation 93: 500 is more than five of them. */
    for (size_t n = 0; n < N; n++)
        cr_assert(hits[n] > 9500 && hits[n] < 10500, "%zu came %zu times", n, hits[n]);
    cr_assert_eq(attn_random_below(&state, 1), 0);
}

/* A plain remainder would draw the lower third of 3 * 2^62 twice as often as the rest. */
Test(attn_random, large_ranges_are_fair_as_well)
{
    enum { DRAWS = 9000 };
    const size_t third = (size_t)1 << 62;
    size_t low = 0;
    uint64_t state = 6;

    for (size_t n = 0; n < DRAWS; n++)
        low += attn_random_below(&state, 3 * third) < third;
    /* 3000 expected, standard deviation 45. */
    cr_assert(low > 2775 && low < 3225, "%zu", low);
}
