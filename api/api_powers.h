/*
 * api_powers.h - the powers of ten to 128 bits, computed while compiling (C++).
 * Not here: what is done with them (api_number_value.h, api_number_write.cc).
 * Start reading at power_of_ten.
 */
#ifndef API_POWERS_H
#define API_POWERS_H

#include <cstdint>

namespace api_powers
{

__extension__ using wide = unsigned __int128;

enum { LEAST = -330, MOST = 330, LIMBS = 20, LIMB_BITS = 64 };

/* floor(log2(10^k)) for |k| <= 1233 (Giulietti 2020, section 8). */
constexpr int log2_of(int k)
{
    return (k * 1741647) >> 19;
}

/* The first 128 bits of 10^k, cut: 10^k = (hi 2^64 + lo + r) 2^(log2_of(k) - 127), r < 1.
 */
struct power {
    std::uint64_t hi, lo;
};

struct table {
    power row[MOST - LEAST + 1];
};

struct big { /* limb[0] is the least */
    std::uint64_t limb[LIMBS];
};

constexpr power first_bits(const big &x)
{
    int top = LIMBS - 1;
    while (top > 0 && x.limb[top] == 0)
        top--;
    std::uint64_t word[3] = {};
    for (int n = 0; n < 3; n++)
        word[n] = top >= n ? x.limb[top - n] : 0;
    const int zeros = __builtin_clzll(word[0]);
    if (zeros == 0)
        return power{word[0], word[1]};
    return power{word[0] << zeros | word[1] >> (LIMB_BITS - zeros),
                 word[1] << zeros | word[2] >> (LIMB_BITS - zeros)};
}

/* 10^k and 5^k begin with the same bits.  5^-k is a large power of 2 divided by 5 again
   and again: what each division drops is dropped from the exact quotient too, as
   floor(floor(x/5)/5) = floor(x/25). */
constexpr table make()
{
    table t{};
    big up{}, down{};

    up.limb[0] = 1;
    down.limb[LIMBS - 1] = 1;
    t.row[-LEAST] = first_bits(up);
    for (int k = 1; k <= MOST; k++) {
        wide carry = 0, rest = 0;

        for (int n = 0; n < LIMBS; n++) {
            carry += static_cast<wide>(up.limb[n]) * 5;
            up.limb[n] = static_cast<std::uint64_t>(carry);
            carry >>= LIMB_BITS;
        }
        for (int n = LIMBS; n-- > 0;) {
            rest = rest << LIMB_BITS | down.limb[n];
            down.limb[n] = static_cast<std::uint64_t>(rest / 5);
            rest %= 5;
        }
        t.row[k - LEAST] = first_bits(up);
        t.row[-k - LEAST] = first_bits(down);
    }
    return t;
}

constexpr table POWERS = make();

constexpr const power &power_of_ten(int k)
{
    return POWERS.row[k - LEAST];
}

} // namespace api_powers

#endif
