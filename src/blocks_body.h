/* The body of the products of blocks (blocks.h), included by blocks.h once for each
 * SIMD level and floating type REAL.  Expects levels.h.
 *
 * A register block is MR columns of the left side by a panel of the right one.
 */
#include "vectors.h"

#define MR (VBYTES == 64 ? 8 : VBYTES == 32 ? 4 : 3) /* a divisor of the panel */
#define NV 3 /* vectors of a panel */
#define NR (NV * LANES)

#define DEFINE_PACK(NAME, FROM)                                                \
static void FN(NAME)(intptr_t depth, intptr_t width, const intptr_t *rows,     \
                     const double *weight, const void *from_, intptr_t stride, \
                     void *out_)                                               \
{                                                                              \
    for (intptr_t k = 0; k < depth; k++) {                                     \
        const intptr_t row = rows ? rows[k] : k;                               \
        const FROM *from = (const FROM *)from_ + row * stride;                 \
        const REAL factor = weight ? (REAL)sqrt(weight[row]) : 1;              \
        REAL *restrict out = (REAL *)out_ + k * NR;                            \
        intptr_t j = 0;                                                        \
        for (; j + NR <= width; j += NR, out += depth * NR)                    \
            for (int c = 0; c < NR; c++)                                       \
                out[c] = factor * (REAL)from[j + c];                           \
        if (j < width)                                                         \
            for (int c = 0; c < NR; c++)                                       \
                out[c] = j + c < width ? factor * (REAL)from[j + c] : 0;       \
    }                                                                          \
}

DEFINE_PACK(pack, REAL)
DEFINE_PACK(pack_floats, float)

static void FN(pack_transpose)(intptr_t depth, intptr_t width, const void *from_,
                               intptr_t stride, void *out_)
{
    const REAL *from = from_;
    REAL *restrict out = out_;
    for (intptr_t j = 0; j < width; j += NR, from += NR * stride) {
        const intptr_t n = width - j < NR ? width - j : NR;
        for (intptr_t k = 0; k < depth; k++, out += NR) {
            if (n == NR)
                UNROLL
                for (int c = 0; c < NR; c++)
                    out[c] = from[c * stride + k];
            else
                for (int c = 0; c < NR; c++)
                    out[c] = c < n ? from[c * stride + k] : 0;
        }
    }
}

/* out (MR, NR) := or += scale * (MR columns of a panel)T . panel */
INLINE void FN(multiply_block)(intptr_t depth, double scale, int adds,
                               const REAL *left, const REAL *right, REAL *out,
                               intptr_t stride)
{
    vec sum[MR][NV];
    UNROLL
    for (int i = 0; i < MR; i++)
        UNROLL
        for (int v = 0; v < NV; v++)
            sum[i][v] = FN(spread)(0);
    for (intptr_t k = 0; k < depth; k++, left += NR, right += NR)
        UNROLL
        for (int i = 0; i < MR; i++)
            UNROLL
            for (int v = 0; v < NV; v++)
                sum[i][v] += left[i] * FN(load)(right + v * LANES);
    UNROLL
    for (int i = 0; i < MR; i++)
        UNROLL
        for (int v = 0; v < NV; v++) {
            REAL *to = out + i * stride + v * LANES;
            const vec before = adds ? FN(load)(to) : FN(spread)(0);
            FN(store)(to, before + (REAL)scale * sum[i][v]);
        }
}

static void FN(multiply)(const psk_product *p, const void *left_, const void *right_,
                         void *out_, intptr_t stride)
{
    const REAL *left = left_, *right = right_;
    REAL *out = out_, edge[MR * NR];
    for (intptr_t j = 0; j < p->width; j += NR, right += p->depth * NR) {
        const intptr_t end = p->upper && j + NR < p->height ? j + NR : p->height;
        const intptr_t reach = j + NR + p->reach;
        const intptr_t depth = reach < p->depth ? reach : p->depth;
        if (depth <= 0)
            continue;
        for (intptr_t i = 0; i < end; i += MR) {
            const REAL *columns = left + i / NR * NR * p->depth + i % NR;
            REAL *to = out + i * stride + j;
            const int whole = i + MR <= p->height && j + NR <= p->width;
            if (whole && !(p->upper && i + MR > j + 1)) {
                FN(multiply_block)(depth, p->scale, p->adds, columns, right, to, stride);
                continue;
            }
            FN(multiply_block)(depth, p->scale, 0, columns, right, edge, NR);
            for (int a = 0; a < MR && i + a < p->height; a++) {
                const intptr_t first = p->upper && i + a > j ? i + a - j : 0;
                const intptr_t last = p->width - j < NR ? p->width - j : NR;
                for (intptr_t c = first; c < last; c++)
                    to[a * stride + c] =
                        (p->adds ? to[a * stride + c] : 0) + edge[a * NR + c];
            }
        }
    }
}

static const psk_blocks FN(blocks) = {
    .panel = NR,
    .pack = FN(pack),
    .pack_floats = FN(pack_floats),
    .pack_transpose = FN(pack_transpose),
    .multiply = FN(multiply),
};

#undef vec
#undef LANES
#undef MR
#undef NV
#undef NR
#undef DEFINE_PACK
