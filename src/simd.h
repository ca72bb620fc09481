/* Plain loops, compiled for AVX2 as well where the loader can choose.
 *
 * For elementwise formulas and for passes over memory, a loop that the compiler
 * vectorises is as fast as the hand-blocked code of engine_body.h; `CLONES` has
 * it compiled twice, and the dynamic loader picks one.  Sums are told to be
 * reordered by `SIMD_SUM`, in one fixed way for each clone.
 */
#ifndef PSK_SIMD_H
#define PSK_SIMD_H

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) \
    && !defined(__clang__)
#define CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

#define INLINE static inline __attribute__((always_inline))

#define PRAGMA(x) _Pragma(#x)
#define SIMD PRAGMA(omp simd)
#define SIMD_SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))

#endif
