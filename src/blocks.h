/* Products of blocks of matrices, of which both sides are packed in panels.
 *
 * A panel is `panel` columns side by side, row after row (depth, panel); panels of a
 * block lie one behind the other, the last one filled up with zeros.  Both sides of
 * leftT . right have this form, so that the square of a block is packed once.
 * Matrices are row-major, `stride` numbers from row to row.
 *
 * BLAS would pack again what is gathered, weighed and made double on the way here, and
 * may take a new processor for an old one.
 */
#ifndef PSK_BLOCKS_H
#define PSK_BLOCKS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    intptr_t depth, height, width;
    double scale;
    int adds;       /* whether out is added to, or written over */
    int upper;      /* whether out is computed on and above its diagonal only */
    intptr_t reach; /* column j of the right side is 0 from row j + reach + 1 on */
} psk_product;

typedef struct {
    int panel; /* it divides PSK_EVEN */

    /* out := panels of sqrt(weight[i]) * from[i, :width], i from rows[:depth], or of
     * from[:depth, :width] if `rows` and `weight` are NULL. */
    void (*pack)(intptr_t depth, intptr_t width, const intptr_t *rows,
                 const double *weight, const void *from, intptr_t stride, void *out);

    /* The same of floats, for panels of doubles. */
    void (*pack_floats)(intptr_t depth, intptr_t width, const intptr_t *rows,
                        const double *weight, const void *from, intptr_t stride,
                        void *out);

    /* out := panels of the transpose of from[:width, :depth] */
    void (*pack_transpose)(intptr_t depth, intptr_t width, const void *from,
                           intptr_t stride, void *out);

    /* out (height, width) := or += scale * leftT . right */
    void (*multiply)(const psk_product *product, const void *left, const void *right,
                     void *out, intptr_t stride);
} psk_blocks;

/* Columns of a block at most, and rows at a time: 1 MB for both sides of it.  Columns
 * are cut at multiples of PSK_EVEN. */
enum { PSK_BLOCK = 480, PSK_DEPTH = 128, PSK_EVEN = 48 };

#define LEVEL_BODY "blocks_types.h"
#include "levels.h"

/* Those of the best level this processor runs, at most `max_level`. */
INLINE const psk_blocks *psk_blocks_for_double(int max_level)
{
    static const psk_blocks *const blocks[] = AT_LEVELS(blocks_double);
    return blocks[psk_level_at_most(max_level)];
}

INLINE const psk_blocks *psk_blocks_for_float(int max_level)
{
    static const psk_blocks *const blocks[] = AT_LEVELS(blocks_float);
    return blocks[psk_level_at_most(max_level)];
}

#endif
