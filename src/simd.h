/* Plain loops, compiled for AVX2 as well, and the level that is chosen at run time.
 *
 * For elementwise formulas and for passes over memory, a loop that the compiler
 * vectorises is as fast as the hand-blocked code of engine_body.h; `CLONES` has
 * it compiled twice.  Sums are told to be reordered by `SIMD_SUM`, in one fixed
 * way for each clone.
 */
#ifndef PSK_SIMD_H
#define PSK_SIMD_H

#define INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__) && !defined(PSK_BASELINE_ONLY)
#define PSK_X86
#endif

/* The best level this processor runs, at most `max_level`: 0 baseline,
 * 1 AVX2 + FMA, 2 AVX-512. */
INLINE int psk_level_at_most(int max_level)
{
    int level = 0;
#ifdef PSK_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        level = 1;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        level = 2;
#endif
    return max_level < level ? max_level : level;
}

/* The level of the loops of one extension module, which sets it when it is loaded. */
static int psk_level = 0;

INLINE void psk_set_level(int max_level)
{
    psk_level = psk_level_at_most(max_level);
}

/* CLONES(type, name, (parameters), (their names)) and a body: a function that is
 * compiled for baseline and for AVX2. */
#ifdef PSK_X86
#define CLONES(type, name, params, args)                                       \
    INLINE type name##_body params;                                            \
    __attribute__((target("avx2,fma"))) static type name##_avx2 params         \
    {                                                                          \
        return name##_body args;                                               \
    }                                                                          \
    static type name params                                                    \
    {                                                                          \
        return psk_level > 0 ? name##_avx2 args : name##_body args;            \
    }                                                                          \
    INLINE type name##_body params
#else
#define CLONES(type, name, params, args) static type name params
#endif

#define PRAGMA(x) _Pragma(#x)
#define SIMD PRAGMA(omp simd)
#define SIMD_SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))

#endif
