/* engine_body.h for both floating types at the current SIMD level.
 *
 * EXP2_COEFFICIENTS: 2^f = 1 + f * (c0 + c1 f + ...) on [-1/2, 1/2], fitted by
 * bench/exp2_coefficients.py, by least squares of the relative error on Chebyshev
 * nodes; the largest relative error is 2.5e-16 (double) and 2.2e-9 (float).
 * EXP2_SHIFT is 1.5 * 2^(mantissa bits): in that binade the unit in the last
 * place is 1, so that adding it rounds to an integer.
 */

#define REAL double
#define INT int64_t
#define SQRT sqrt
#define X86_SUFFIX pd
#define EXP2_COEFFICIENTS                                                      \
    0x1.62e42fefa3a17p-1, 0x1.ebfbdff82c467p-3, 0x1.c6b08d703d532p-5,          \
        0x1.3b2ab6fbcfd8bp-7, 0x1.5d87fe9cb2d13p-10, 0x1.4309127f03119p-13,    \
        0x1.ffcb561b0ca12p-17, 0x1.62c11d71ddd65p-20, 0x1.b673e274262e7p-24,   \
        0x1.e3ead2fc5eb7ap-28
#define EXP2_SHIFT 0x1.8p52
#define EXP2_EXPONENT_BITS 52
#define EXP2_MIN -1021.0
#include "engine_body.h"
#undef REAL
#undef INT
#undef SQRT
#undef X86_SUFFIX
#undef EXP2_COEFFICIENTS
#undef EXP2_SHIFT
#undef EXP2_EXPONENT_BITS
#undef EXP2_MIN

#define REAL float
#define INT int32_t
#define SQRT sqrtf
#define X86_SUFFIX ps
#define EXP2_COEFFICIENTS                                                      \
    0x1.62e430c688ed4p-1f, 0x1.ebfbdcf8b4487p-3f, 0x1.c6aed61c2aeebp-5f,       \
        0x1.3b2cc34713519p-7f, 0x1.5f44dc126c056p-10f, 0x1.4258d7d76085ep-13f
#define EXP2_SHIFT 0x1.8p23f
#define EXP2_EXPONENT_BITS 23
#define EXP2_MIN -125.0f
#include "engine_body.h"
#undef REAL
#undef INT
#undef SQRT
#undef X86_SUFFIX
#undef EXP2_COEFFICIENTS
#undef EXP2_SHIFT
#undef EXP2_EXPONENT_BITS
#undef EXP2_MIN
