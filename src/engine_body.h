/* The body of the inner kernels, included by engine.c once for each SIMD level
 * and floating type.  Expects levels.h, and
 *
 *   REAL, INT      floating type, and the signed integer of the same size
 *   SQRT, EXP2_*   for REAL (engine_types.h)
 *   X86_OP(op, X86_SUFFIX)   name of an intrinsic; only on x86
 *
 * Minimum and square root of vectors have no operator: x86 has an instruction for
 * each, others a loop.
 */
#include "vectors.h"

#define MR (VBYTES == 64 ? 12 : 6) /* landmarks of one register block */
#define NV 2 /* vectors side by side in a block: MR * NV accumulators */
#define NR (NV * LANES)
#define GROUP 6 /* vectors that go through the kernel function in step */
#define EACH(g) UNROLL for (int g = 0; g < GROUP; g++)

#define ivec FN(ivec)

typedef INT ivec __attribute__((vector_size(VBYTES)));

INLINE vec FN(minimum)(vec a, vec b)
{
#ifdef X86_OP
    return X86_OP(min, X86_SUFFIX)(a, b);
#else
    ivec mask = a < b;
    return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
#endif
}

INLINE vec FN(absolute)(vec a)
{
    const ivec sign_bit = (ivec)FN(spread)((REAL)-0.0);
    return (vec)((ivec)a & ~sign_bit);
}

INLINE vec FN(square_root)(vec a)
{
#ifdef X86_OP
    return X86_OP(sqrt, X86_SUFFIX)(a);
#else
    for (int lane = 0; lane < LANES; lane++)
        a[lane] = SQRT(a[lane]);
    return a;
#endif
}

/* 2^t in place, for t <= 0 and a group of vectors in step with each other: one
 * vector alone is a chain of dependent operations and leaves the units idle.
 * t = n + f with n the nearest integer: adding EXP2_SHIFT leaves n in the low
 * bits of the sum, from where it is shifted into the exponent of the
 * polynomial for 2^f.  Below EXP2_MIN the result is 0. */
INLINE void FN(exp2_nonpositive)(vec t[GROUP])
{
    static const REAL coef[] = {EXP2_COEFFICIENTS};
    const int n_coef = (int)(sizeof coef / sizeof coef[0]);
    vec shifted[GROUP], power[GROUP];
    EACH(g) {
        shifted[g] = t[g] + (REAL)EXP2_SHIFT;
        t[g] -= shifted[g] - (REAL)EXP2_SHIFT;
        power[g] = FN(spread)(coef[n_coef - 1]);
    }
    UNROLL
    for (int k = n_coef - 2; k >= 0; k--)
        EACH(g)
            power[g] = power[g] * t[g] + coef[k];
    EACH(g) {
        power[g] = power[g] * t[g] + 1; /* exactly 1 at t = 0: k(x, x) = 1 */
        ivec scaled = (ivec)power[g] + ((ivec)shifted[g] << EXP2_EXPONENT_BITS);
        ivec normal = shifted[g] > (REAL)(EXP2_SHIFT + EXP2_MIN);
        t[g] = (vec)(scaled & normal);
    }
}

/* How one feature enters the accumulator. */
enum FN(inner) { FN(DOT), FN(SQUARED_DIFFERENCE), FN(L1), FN(MIN_PRODUCT) };

INLINE vec FN(step)(const int inner, vec acc, vec a, vec b)
{
    vec diff = a - b;
    switch (inner) {
    case FN(SQUARED_DIFFERENCE):
        return acc + diff * diff;
    case FN(L1):
        return acc + FN(absolute)(diff);
    case FN(MIN_PRODUCT):
        return acc * (1 + FN(minimum)(a, b));
    default:
        return acc + a * b;
    }
}

/* Accumulator -> what the kernel is a function of, in place: a negative
 * distance, a squared distance or a scalar product, in proportion to gamma.
 * Rounding can make 2 * acc - norms, a negative squared distance, slightly
 * positive. */
INLINE void FN(argument)(const int kernel, const int inner, vec acc[GROUP],
                         const vec norms[GROUP])
{
    const vec zero = {0};
    switch (kernel) {
    case PSK_RBF:
        EACH(g)
            acc[g] = inner == FN(DOT) ? FN(minimum)(2 * acc[g] - norms[g], zero)
                                      : -acc[g];
        break;
    case PSK_LAPLACIAN:
        EACH(g)
            acc[g] = -acc[g];
        break;
    case PSK_MATERN12:
    case PSK_MATERN32:
    case PSK_MATERN52:
        if (inner == FN(DOT))
            EACH(g)
                acc[g] = -FN(minimum)(2 * acc[g] - norms[g], zero);
        break;
    default:
        break;
    }
}

/* Argument -> kernel value, in place.  What is constant for the whole kernel,
 * such as gamma or log2(e), was multiplied into the points when they were
 * packed. */
INLINE void FN(value)(const int kernel, const psk_kernel_spec *spec,
                      vec acc[GROUP])
{
    vec q[GROUP];
    switch (kernel) {
    case PSK_RBF:
    case PSK_LAPLACIAN:
        FN(exp2_nonpositive)(acc);
        break;
    case PSK_MATERN12:
    case PSK_MATERN32:
    case PSK_MATERN52:
        EACH(g) {
            /* exp(-q) is 0 long before; an infinite q would make 0 * inf */
            acc[g] = FN(minimum)(acc[g], FN(spread)((REAL)4e6));
            q[g] = FN(square_root)(acc[g]);
            acc[g] = q[g] * (REAL)-LOG2_E;
        }
        FN(exp2_nonpositive)(acc);
        EACH(g) {
            if (kernel == PSK_MATERN32)
                acc[g] *= 1 + q[g];
            if (kernel == PSK_MATERN52)
                acc[g] *= 1 + q[g] + q[g] * q[g] * (REAL)(1.0 / 3.0);
        }
        break;
    case PSK_POLYNOMIAL:
        EACH(g) {
            q[g] = acc[g] + (REAL)spec->coef0;
            acc[g] = FN(spread)(1);
        }
        for (int power = spec->degree; power > 0; power >>= 1) {
            if (power & 1)
                EACH(g)
                    acc[g] *= q[g];
            EACH(g)
                q[g] *= q[g];
        }
        break;
    default: /* linear, sobolev: the accumulator is the value */
        break;
    }
}

/* The loop nest of every kernel; `kernel`, `inner` and `arguments_only` are
 * compile-time constants at each call, so that the switches above vanish. */
INLINE void FN(panel)(const int kernel, const int inner, const int arguments_only,
                      const psk_kernel_spec *spec, intptr_t d, intptr_t n_rows,
                      const REAL *A, const REAL *a_norm, const REAL *B,
                      const REAL *b_norm, REAL *K_panel)
{
    const REAL start = inner == FN(MIN_PRODUCT) ? 1 : 0;
    for (intptr_t row = 0; row < n_rows; row += MR, A += d * MR) {
        vec acc[MR][NV];
        UNROLL
        for (int r = 0; r < MR; r++)
            UNROLL
            for (int v = 0; v < NV; v++)
                acc[r][v] = FN(spread)(start);
        for (intptr_t k = 0; k < d; k++) {
            vec b[NV];
            UNROLL
            for (int v = 0; v < NV; v++)
                b[v] = FN(load)(B + k * NR + v * LANES);
            UNROLL
            for (int r = 0; r < MR; r++) {
                vec a = FN(spread)(A[k * MR + r]);
                UNROLL
                for (int v = 0; v < NV; v++)
                    acc[r][v] = FN(step)(inner, acc[r][v], a, b[v]);
            }
        }
        UNROLL
        for (int r = 0; r < MR; r += GROUP / NV) {
            vec group[GROUP], norms[GROUP];
            REAL *to = K_panel + (row + r) * NR;
            EACH(g) {
                group[g] = acc[r + g / NV][g % NV];
                norms[g] = a_norm[row + r + g / NV]
                           + FN(load)(b_norm + g % NV * LANES);
            }
            FN(argument)(kernel, inner, group, norms);
            if (!arguments_only)
                FN(value)(kernel, spec, group);
            EACH(g)
                FN(store)(to + g * LANES, group[g]);
        }
    }
}

static void FN(kernel_panel)(const psk_kernel_spec *spec, int arguments_only,
                             intptr_t d,
                             intptr_t n_rows, const void *A_,
                             const void *a_norm_, double a_norm_max,
                             const void *B_, const void *b_norm_,
                             void *K_panel_)
{
    const REAL *A = A_, *a_norm = a_norm_, *B = B_, *b_norm = b_norm_;
    REAL *K_panel = K_panel_;

    REAL b_norm_max = 0;
    for (int c = 0; c < NR; c++)
        b_norm_max = b_norm[c] > b_norm_max ? b_norm[c] : b_norm_max;
    const int direct = a_norm_max + b_norm_max > spec->direct_above;

#define PANEL(kernel, inner)                                                   \
    do {                                                                       \
        if (arguments_only)                                                    \
            FN(panel)(kernel, FN(inner), 1, spec, d, n_rows, A, a_norm, B,     \
                      b_norm, K_panel);                                        \
        else                                                                   \
            FN(panel)(kernel, FN(inner), 0, spec, d, n_rows, A, a_norm, B,     \
                      b_norm, K_panel);                                        \
    } while (0)
    switch (spec->kernel) {
    case PSK_RBF:
        if (direct)
            PANEL(PSK_RBF, SQUARED_DIFFERENCE);
        else
            PANEL(PSK_RBF, DOT);
        break;
    case PSK_LAPLACIAN:
        PANEL(PSK_LAPLACIAN, L1);
        break;
    case PSK_MATERN12: /* not differentiable at 0: it needs every digit */
        PANEL(PSK_MATERN12, SQUARED_DIFFERENCE);
        break;
    case PSK_MATERN32:
        if (direct)
            PANEL(PSK_MATERN32, SQUARED_DIFFERENCE);
        else
            PANEL(PSK_MATERN32, DOT);
        break;
    case PSK_MATERN52:
        if (direct)
            PANEL(PSK_MATERN52, SQUARED_DIFFERENCE);
        else
            PANEL(PSK_MATERN52, DOT);
        break;
    case PSK_POLYNOMIAL:
        PANEL(PSK_POLYNOMIAL, DOT);
        break;
    case PSK_LINEAR:
        PANEL(PSK_LINEAR, DOT);
        break;
    case PSK_SOBOLEV:
        PANEL(PSK_SOBOLEV, MIN_PRODUCT);
        break;
    }
#undef PANEL
}

INLINE void FN(values)(const int kernel, const psk_kernel_spec *spec, REAL ratio,
                       intptr_t n, const REAL *arguments, REAL *K_panel)
{
    for (intptr_t i = 0; i < n; i += GROUP * LANES) {
        vec group[GROUP];
        EACH(g)
            group[g] = ratio * FN(load)(arguments + i + g * LANES);
        FN(value)(kernel, spec, group);
        EACH(g)
            FN(store)(K_panel + i + g * LANES, group[g]);
    }
}

static void FN(value_panel)(const psk_kernel_spec *spec, double ratio,
                            intptr_t n_rows, const void *arguments, void *K_panel)
{
#define VALUES(kernel)                                                         \
    case kernel:                                                               \
        FN(values)(kernel, spec, (REAL)ratio, n_rows * NR, arguments, K_panel); \
        break
    switch (spec->kernel) {
        VALUES(PSK_RBF);
        VALUES(PSK_LAPLACIAN);
        VALUES(PSK_MATERN12);
        VALUES(PSK_MATERN32);
        VALUES(PSK_MATERN52);
        VALUES(PSK_POLYNOMIAL);
    }
#undef VALUES
}

/* Argument -> slope, in place: what `direction` is multiplied by in the gradient
 * of the kernel at a point.  Points are packed, their factor is the caller's. */
INLINE void FN(slope)(const int kernel, const psk_kernel_spec *spec, vec acc[GROUP])
{
    vec q[GROUP];
    switch (kernel) {
    case PSK_RBF: /* k = 2^-|a - b|^2 */
        FN(exp2_nonpositive)(acc);
        EACH(g)
            acc[g] *= (REAL)(2 / LOG2_E);
        break;
    case PSK_LAPLACIAN: /* k = 2^-|a - b|_1 */
        FN(exp2_nonpositive)(acc);
        EACH(g)
            acc[g] *= (REAL)(1 / LOG2_E);
        break;
    case PSK_MATERN12: /* exp(-q) / q, and 0 where the point is the landmark */
    case PSK_MATERN32: /* exp(-q) */
    case PSK_MATERN52: /* (1 + q) exp(-q) / 3 */
        EACH(g) {
            acc[g] = FN(minimum)(acc[g], FN(spread)((REAL)4e6));
            q[g] = FN(square_root)(acc[g]);
            acc[g] = q[g] * (REAL)-LOG2_E;
        }
        FN(exp2_nonpositive)(acc);
        EACH(g) {
            if (kernel == PSK_MATERN12)
                acc[g] = (vec)((ivec)(acc[g] / q[g]) & (q[g] > 0));
            if (kernel == PSK_MATERN52)
                acc[g] *= (1 + q[g]) * (REAL)(1.0 / 3.0);
        }
        break;
    case PSK_POLYNOMIAL: { /* degree * (<a, b> + coef0)^(degree - 1) */
        psk_kernel_spec lower = *spec;
        lower.degree = spec->degree - 1;
        FN(value)(kernel, &lower, acc);
        EACH(g)
            acc[g] *= (REAL)spec->degree;
        break;
    }
    case PSK_LINEAR:
        EACH(g)
            acc[g] = FN(spread)(1);
        break;
    default: /* sobolev: the value */
        break;
    }
}

INLINE void FN(slopes)(const int kernel, const psk_kernel_spec *spec, intptr_t n,
                       const REAL *arguments, REAL *slopes)
{
    for (intptr_t i = 0; i < n; i += GROUP * LANES) {
        vec group[GROUP];
        EACH(g)
            group[g] = FN(load)(arguments + i + g * LANES);
        FN(slope)(kernel, spec, group);
        EACH(g)
            FN(store)(slopes + i + g * LANES, group[g]);
    }
}

static void FN(slope_panel)(const psk_kernel_spec *spec, intptr_t n_rows,
                            const void *arguments, void *slopes)
{
#define SLOPES(kernel)                                                         \
    case kernel:                                                               \
        FN(slopes)(kernel, spec, n_rows * NR, arguments, slopes);              \
        break
    switch (spec->kernel) {
        SLOPES(PSK_RBF);
        SLOPES(PSK_LAPLACIAN);
        SLOPES(PSK_MATERN12);
        SLOPES(PSK_MATERN32);
        SLOPES(PSK_MATERN52);
        SLOPES(PSK_POLYNOMIAL);
        SLOPES(PSK_LINEAR);
        SLOPES(PSK_SOBOLEV);
    }
#undef SLOPES
}

/* How one feature of a landmark a and of a point b enters the gradient at b,
 * for a slope w. */
enum FN(direction) { FN(DIFFERENCE), FN(SIGN), FN(LANDMARK), FN(BELOW) };

INLINE vec FN(turn)(const int direction, vec acc, vec w, vec a, vec b)
{
    switch (direction) {
    case FN(SIGN): /* 0 where they are equal, as categories often are */
        acc += (vec)((ivec)w & (a > b));
        return acc - (vec)((ivec)w & (a < b));
    case FN(LANDMARK):
        return acc + w * a;
    case FN(BELOW):
        return acc + (vec)((ivec)w & (b < a));
    default:
        return acc + w * (a - b);
    }
}

/* Features that are summed in step: their sums and points stay in registers. */
#define KR (MR / 3)

/* `n_k` (a constant) of the features of a panel, from number k on. */
INLINE void FN(turn_features)(const int direction, const int n_k, intptr_t k,
                              intptr_t d, intptr_t n_rows, const REAL *A,
                              const REAL *B, const REAL *slopes, double *total)
{
    vec acc[KR][NV], b[KR][NV];
    UNROLL
    for (int i = 0; i < n_k; i++)
        UNROLL
        for (int v = 0; v < NV; v++) {
            acc[i][v] = FN(spread)(0);
            b[i][v] = FN(load)(B + (k + i) * NR + v * LANES);
        }
    for (intptr_t row = 0; row < n_rows; row += MR, A += d * MR) {
        const int n = n_rows - row < MR ? (int)(n_rows - row) : MR;
        for (int r = 0; r < n; r++) {
            const REAL *w = slopes + (row + r) * NR;
            UNROLL
            for (int i = 0; i < n_k; i++)
                UNROLL
                for (int v = 0; v < NV; v++)
                    acc[i][v] = FN(turn)(direction, acc[i][v],
                                         FN(load)(w + v * LANES),
                                         FN(spread)(A[(k + i) * MR + r]), b[i][v]);
        }
    }
    for (int i = 0; i < n_k; i++)
        for (int v = 0; v < NV; v++)
            for (int lane = 0; lane < LANES; lane++)
                total[(k + i) * NR + v * LANES + lane] += acc[i][v][lane];
}

INLINE void FN(turn_panel)(const int direction, intptr_t d, intptr_t n_rows,
                           const REAL *A, const REAL *B, const REAL *slopes,
                           double *total)
{
    intptr_t k = 0;
    for (; k + KR <= d; k += KR)
        FN(turn_features)(direction, KR, k, d, n_rows, A, B, slopes, total);
    for (; k < d; k++)
        FN(turn_features)(direction, 1, k, d, n_rows, A, B, slopes, total);
}

static void FN(gradient_panel)(const psk_kernel_spec *spec, intptr_t d,
                               intptr_t n_rows, const void *A, const void *B,
                               const void *slopes, double *total)
{
    switch (spec->kernel) {
    case PSK_LAPLACIAN:
        FN(turn_panel)(FN(SIGN), d, n_rows, A, B, slopes, total);
        break;
    case PSK_POLYNOMIAL:
    case PSK_LINEAR:
        FN(turn_panel)(FN(LANDMARK), d, n_rows, A, B, slopes, total);
        break;
    case PSK_SOBOLEV:
        FN(turn_panel)(FN(BELOW), d, n_rows, A, B, slopes, total);
        break;
    default:
        FN(turn_panel)(FN(DIFFERENCE), d, n_rows, A, B, slopes, total);
        break;
    }
}

static void FN(scatter_panel)(intptr_t nnz, const int32_t *landmark,
                              const int32_t *row, const void *weight_,
                              const void *K_panel_, void *acc_)
{
    const REAL *weight = weight_, *K_panel = K_panel_;
    REAL *acc = acc_;
    for (intptr_t e = 0; e < nnz; e++) {
        const REAL *from = K_panel + (intptr_t)landmark[e] * NR;
        REAL *to = acc + (intptr_t)row[e] * NR;
        UNROLL
        for (int v = 0; v < NV * LANES; v += LANES)
            FN(store)(to + v, FN(load)(to + v) + weight[e] * FN(load)(from + v));
    }
}

/* `n_rows` (a constant) of the rows of one packed block of W. */
INLINE void FN(gemm_block)(const int n_rows, intptr_t depth, const REAL *W,
                           const REAL *K_panel, REAL *acc)
{
    vec sum[MR][NV];
    UNROLL
    for (int i = 0; i < n_rows; i++)
        UNROLL
        for (int v = 0; v < NV; v++)
            sum[i][v] = FN(spread)(0);
    for (intptr_t r = 0; r < depth; r++)
        UNROLL
        for (int i = 0; i < n_rows; i++)
            UNROLL
            for (int v = 0; v < NV; v++)
                sum[i][v] += W[r * MR + i] * FN(load)(K_panel + r * NR + v * LANES);
    UNROLL
    for (int i = 0; i < n_rows; i++)
        UNROLL
        for (int v = 0; v < NV; v++) {
            REAL *to = acc + i * NR + v * LANES;
            FN(store)(to, FN(load)(to) + sum[i][v]);
        }
}

static void FN(gemm_panel)(intptr_t s, intptr_t depth, const void *W_,
                           const void *K_panel_, void *acc_)
{
    const REAL *W = W_, *K_panel = K_panel_;
    REAL *acc = acc_;
    for (; s >= MR; s -= MR, W += depth * MR, acc += MR * NR)
        FN(gemm_block)(MR, depth, W, K_panel, acc);
    for (; s > 0; s--, W++, acc += NR)
        FN(gemm_block)(1, depth, W, K_panel, acc);
}

static void FN(scale_panel)(double scale, const void *acc_,
                            const double *total, void *values_)
{
    const REAL *acc = acc_;
    REAL *restrict values = values_;
    if (total)
        for (int c = 0; c < NR; c++)
            values[c] = (REAL)(scale * (acc[c] + total[c]));
    else
        for (int c = 0; c < NR; c++)
            values[c] = (REAL)(scale * acc[c]);
}

static void FN(weigh_panel)(intptr_t n_rows, intptr_t n_cols, const void *a_,
                            const void *b_, const void *K_panel_, void *out_,
                            intptr_t stride)
{
    const REAL *a = a_, *b = b_, *K_panel = K_panel_;
    REAL *restrict out = out_;
    if (n_cols < NR) {
        for (intptr_t r = 0; r < n_rows; r++)
            for (intptr_t c = 0; c < n_cols; c++)
                out[r * stride + c] = a[r] * b[c] * K_panel[r * NR + c];
        return;
    }
    vec weight[NV];
    UNROLL
    for (int v = 0; v < NV; v++)
        weight[v] = FN(load)(b + v * LANES);
    for (intptr_t r = 0; r < n_rows; r++)
        UNROLL
        for (int v = 0; v < NV; v++)
            FN(store)(out + r * stride + v * LANES,
                      a[r] * weight[v] * FN(load)(K_panel + r * NR + v * LANES));
}

static void FN(exp2_buffer)(intptr_t n, const void *x_, void *y_)
{
    const REAL *x = x_;
    REAL *y = y_;
    for (intptr_t i = 0; i + GROUP * LANES <= n; i += GROUP * LANES) {
        vec t[GROUP];
        EACH(g)
            t[g] = FN(load)(x + i + g * LANES);
        FN(exp2_nonpositive)(t);
        EACH(g)
            FN(store)(y + i + g * LANES, t[g]);
    }
}

static const psk_engine FN(engine) = {
    .name = LEVEL_NAME,
    .mr = MR,
    .nr = NR,
    .kernel_panel = FN(kernel_panel),
    .value_panel = FN(value_panel),
    .slope_panel = FN(slope_panel),
    .gradient_panel = FN(gradient_panel),
    .scatter_panel = FN(scatter_panel),
    .gemm_panel = FN(gemm_panel),
    .scale_panel = FN(scale_panel),
    .weigh_panel = FN(weigh_panel),
    .exp2_buffer = FN(exp2_buffer),
};

#undef vec
#undef ivec
#undef MR
#undef NV
#undef NR
#undef GROUP
#undef KR
#undef EACH
#undef LANES
