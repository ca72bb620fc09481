/* The inner kernels (engine_body.h), compiled for each SIMD level and type. */

#include "engine.h"

#include <math.h>

#include "simd.h"

#define LOG2_E 1.44269504088896340736

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
#endif

/* ---- baseline: 16-byte vectors, which every target has or imitates ---- */
#define LEVEL baseline
#define LEVEL_NAME "baseline"
#define VBYTES 16
#define X86_PREFIX _mm
#define MR 6
#include "engine_types.h"
#undef LEVEL
#undef LEVEL_NAME
#undef VBYTES
#undef X86_PREFIX
#undef MR

#ifdef PSK_X86

/* ---- AVX2 and FMA: 16 registers, 12 of them accumulators ---- */
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
#define MR 6
#include "engine_types.h"
#undef LEVEL
#undef LEVEL_NAME
#undef VBYTES
#undef X86_PREFIX
#undef MR
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* ---- AVX-512: 32 registers, 24 of them accumulators ---- */
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
#define MR 12
#include "engine_types.h"
#undef LEVEL
#undef LEVEL_NAME
#undef VBYTES
#undef X86_PREFIX
#undef MR
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#ifdef PSK_X86
#define ENGINES(REAL) \
    {&engine_##REAL##_baseline, &engine_##REAL##_avx2, &engine_##REAL##_avx512}
#else
#define ENGINES(REAL) \
    {&engine_##REAL##_baseline, &engine_##REAL##_baseline, &engine_##REAL##_baseline}
#endif

const psk_engine *psk_engine_for_double(int max_level)
{
    static const psk_engine *const engines[] = ENGINES(double);
    return engines[psk_level_at_most(max_level)];
}

const psk_engine *psk_engine_for_float(int max_level)
{
    static const psk_engine *const engines[] = ENGINES(float);
    return engines[psk_level_at_most(max_level)];
}
