/* Philox-4x64-10, the counter-based generator of Salmon, Moraes, Dror and Shaw,
 * "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  Four random words
 * are a pure function of a counter and a key. */
#ifndef PSK_PHILOX_H
#define PSK_PHILOX_H

#include <stdint.h>

#define PSK_PHILOX_ROUNDS 10

static inline uint64_t psk_multiply_high(uint64_t a, uint64_t b, uint64_t *low)
{
#ifdef __SIZEOF_INT128__
    unsigned __int128 product = (unsigned __int128)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
#else
    uint64_t a_low = (uint32_t)a, a_high = a >> 32;
    uint64_t b_low = (uint32_t)b, b_high = b >> 32;
    uint64_t low_low = a_low * b_low;
    uint64_t mid = a_high * b_low + (low_low >> 32); /* at most 2^64 - 2^32 */
    uint64_t mid_low = a_low * b_high + (uint32_t)mid;
    *low = a * b;
    return a_high * b_high + (mid >> 32) + (mid_low >> 32);
#endif
}

static inline void psk_philox(const uint64_t counter[4], const uint64_t key[2],
                              uint64_t words[4])
{
    uint64_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint64_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PSK_PHILOX_ROUNDS; round++) {
        uint64_t low0, low1;
        uint64_t high0 = psk_multiply_high(UINT64_C(0xD2E7470EE14C6C93), x0, &low0);
        uint64_t high1 = psk_multiply_high(UINT64_C(0xCA5A826395121157), x2, &low1);
        x0 = high1 ^ x1 ^ k0;
        x1 = low1;
        x2 = high0 ^ x3 ^ k1;
        x3 = low0;
        k0 += UINT64_C(0x9E3779B97F4A7C15); /* golden ratio */
        k1 += UINT64_C(0xBB67AE8584CAA73B); /* sqrt(3) - 1 */
    }
    words[0] = x0;
    words[1] = x1;
    words[2] = x2;
    words[3] = x3;
}

#endif
