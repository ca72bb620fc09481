/* Includes LEVEL_BODY once for each SIMD level, with
 *
 *   LEVEL, LEVEL_NAME   its name, and that as a string
 *   VBYTES              bytes of one SIMD register
 *   X86_PREFIX          of the names of intrinsics; only on x86
 *
 * and gives the body FN(name), a name for each LEVEL and floating type REAL, and
 * AT_LEVELS(name), the addresses of what has that name at all levels.
 */
#include "simd.h"

/* Loops over a register block must vanish, or the block lives on the stack. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

#define CONCAT_(a, b, c) a##_##b##_##c
#define CONCAT(a, b, c) CONCAT_(a, b, c)
#define FN(name) CONCAT(name, REAL, LEVEL)

#ifdef PSK_X86
#include <immintrin.h>
#define X86_OP(op, suffix) CONCAT(X86_PREFIX, op, suffix)
#define AT_LEVELS(name) {&name##_baseline, &name##_avx2, &name##_avx512}
#else
#define AT_LEVELS(name) {&name##_baseline, &name##_baseline, &name##_baseline}
#endif

/* ---- baseline: 16-byte vectors, which every target has or imitates ---- */
#define LEVEL baseline
#define LEVEL_NAME "baseline"
#define VBYTES 16
#define X86_PREFIX _mm
#include LEVEL_BODY
#undef LEVEL
#undef LEVEL_NAME
#undef VBYTES
#undef X86_PREFIX

#ifdef PSK_X86

/* ---- AVX2 and FMA: 16 registers ---- */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define LEVEL avx2
#define LEVEL_NAME "avx2"
#define VBYTES 32
#define X86_PREFIX _mm256
#include LEVEL_BODY
#undef LEVEL
#undef LEVEL_NAME
#undef VBYTES
#undef X86_PREFIX
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* ---- AVX-512: 32 registers ---- */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512dq"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512dq,prefer-vector-width=512")
#endif
#define LEVEL avx512
#define LEVEL_NAME "avx512"
#define VBYTES 64
#define X86_PREFIX _mm512
#include LEVEL_BODY
#undef LEVEL
#undef LEVEL_NAME
#undef VBYTES
#undef X86_PREFIX
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
