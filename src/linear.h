/* Passes over the rows of Z, a row-major matrix of float or double.
 *
 * Sums are in double whatever the type of Z: reading is what a pass costs, and
 * a certificate needs the digits.  Rows are taken ROWS at a time, so that the
 * vector that they share is loaded once for all of them.  So many short streams are
 * more than processors foresee: the rows of the next block are asked for while
 * those of this one are multiplied, where `ahead` says that Z is in no cache.
 */
#ifndef PSK_LINEAR_H
#define PSK_LINEAR_H

#include <stddef.h>
#include <stdint.h>

#include "simd.h"

/* CHUNK: columns between two requests for memory, LINE bytes each.  NEAR: bytes of a
 * block that the first cache has room for, beside the block in use. */
enum { ROWS = 4, LANES = 8, EXACT_BLOCK = 256, CHUNK = 64, LINE = 64, NEAR = 8192 };

INLINE intptr_t smaller(intptr_t a, intptr_t b)
{
    return a < b ? a : b;
}

/* high += x, and low += y and what rounding took from high (Knuth) */
INLINE void two_sum(double *high, double *low, double x, double y)
{
    double sum = *high + x, change = sum - *high;
    *low += ((*high - (sum - change)) + (x - change)) + y;
    *high = sum;
}

#define DEFINE_PASSES(REAL)                                                    \
                                                                               \
/* Rows that are asked for, one after the other: k of them so far, and j columns. */\
typedef struct {                                                               \
    const REAL *rows[ROWS];                                                    \
    intptr_t j;                                                                \
    int k;                                                                     \
} ahead_##REAL;                                                                \
                                                                               \
/* Ask for `count` columns more. */                                            \
INLINE void fetch_##REAL(ahead_##REAL *next, intptr_t r, intptr_t count)       \
{                                                                              \
    const intptr_t step = LINE / sizeof(REAL);                                 \
    const int near = ROWS * r * (intptr_t)sizeof(REAL) <= NEAR;                \
    while (count > 0 && next->k < ROWS) {                                      \
        const REAL *row = next->rows[next->k];                                 \
        const intptr_t start = next->j, end = smaller(start + count, r);       \
        if (near)                                                              \
            for (intptr_t j = start; j < end; j += step)                       \
                __builtin_prefetch(row + j, 0, 3);                             \
        else                                                                   \
            for (intptr_t j = start; j < end; j += step)                       \
                __builtin_prefetch(row + j, 0, 2);                             \
        count -= end - start;                                                  \
        next->j = end < r ? end : 0;                                           \
        next->k += end == r;                                                   \
    }                                                                          \
}                                                                              \
                                                                               \
/* Rows i, i + 1, … of Z; behind the end the last row again. */                \
INLINE void list_rows_##REAL(                                                  \
    intptr_t n, intptr_t r, const REAL *Z, intptr_t i, const REAL *rows[ROWS]) \
{                                                                              \
    for (int k = 0; k < ROWS; k++)                                             \
        rows[k] = Z + smaller(i + k, n - 1) * r;                               \
}                                                                              \
                                                                               \
/* sums[k] = rows[k] . v */                                                    \
INLINE void dot_block_##REAL(                                                  \
    intptr_t r, const REAL *const rows[ROWS], const double *v, double *sums,   \
    ahead_##REAL *next, int share)                                             \
{                                                                              \
    const REAL *z0 = rows[0], *z1 = rows[1], *z2 = rows[2], *z3 = rows[3];     \
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;                                     \
    for (intptr_t start = 0; start < r; start += CHUNK) {                      \
        const intptr_t end = smaller(r, start + CHUNK);                        \
        fetch_##REAL(next, r, share * CHUNK);                                  \
        SIMD_SUM(s0, s1, s2, s3)                                               \
        for (intptr_t j = start; j < end; j++) {                               \
            s0 += z0[j] * v[j];                                                \
            s1 += z1[j] * v[j];                                                \
            s2 += z2[j] * v[j];                                                \
            s3 += z3[j] * v[j];                                                \
        }                                                                      \
    }                                                                          \
    sums[0] = s0;                                                              \
    sums[1] = s1;                                                              \
    sums[2] = s2;                                                              \
    sums[3] = s3;                                                              \
}                                                                              \
                                                                               \
/* out += sum of x[k] * rows[k] */                                             \
INLINE void add_block_##REAL(                                                  \
    intptr_t r, const REAL *const rows[ROWS], const double *x, double *out,    \
    ahead_##REAL *next, int share)                                             \
{                                                                              \
    const REAL *z0 = rows[0], *z1 = rows[1], *z2 = rows[2], *z3 = rows[3];     \
    const double x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];                   \
    for (intptr_t start = 0; start < r; start += CHUNK) {                      \
        const intptr_t end = smaller(r, start + CHUNK);                        \
        fetch_##REAL(next, r, share * CHUNK);                                  \
        SIMD                                                                   \
        for (intptr_t j = start; j < end; j++)                                 \
            out[j] += (x0 * z0[j] + x1 * z1[j]) + (x2 * z2[j] + x3 * z3[j]);   \
    }                                                                          \
}                                                                              \
                                                                               \
/* Sums, minima and maxima of columns, taken further: range is (3, r). */      \
CLONES(void, psk_range_##REAL,                                                 \
    (intptr_t n, intptr_t r, const REAL *Z, double *range, int ahead),         \
    (n, r, Z, range, ahead))                                                   \
{                                                                              \
    double *sum = range, *low = range + r, *high = range + 2 * r;              \
    for (intptr_t i = 0; i < n; i += ROWS) {                                   \
        const REAL *rows[ROWS];                                                \
        ahead_##REAL next = {.j = 0};                                          \
        list_rows_##REAL(n, r, Z, i, rows);                                    \
        list_rows_##REAL(n, r, Z, i + ROWS, next.rows);                        \
        const REAL *z0 = rows[0], *z1 = rows[1], *z2 = rows[2], *z3 = rows[3]; \
        const double is1 = i + 1 < n, is2 = i + 2 < n, is3 = i + 3 < n;        \
        for (intptr_t start = 0; start < r; start += CHUNK) {                  \
            const intptr_t end = smaller(r, start + CHUNK);                    \
            fetch_##REAL(&next, r, ahead * ROWS * CHUNK);                      \
            SIMD                                                               \
            for (intptr_t j = start; j < end; j++) {                           \
                double a = z0[j], b = z1[j], c = z2[j], d = z3[j];             \
                double small = a < b ? a : b, least = c < d ? c : d;           \
                double large = a > b ? a : b, most = c > d ? c : d;            \
                small = small < least ? small : least;                         \
                large = large > most ? large : most;                           \
                sum[j] += (a + is1 * b) + (is2 * c + is3 * d);                 \
                low[j] = small < low[j] ? small : low[j];                      \
                high[j] = large > high[j] ? large : high[j];                   \
            }                                                                  \
        }                                                                      \
    }                                                                          \
}                                                                              \
                                                                               \
/* out = Z v + (b + b_low) - y, as if in twice the digits, rounded once: the sum\
 * of exact products (by FMA), with the error of every addition kept (Ogita, Rump\
 * and Oishi, 2005).  The barrier keeps the compiler from contracting a product\
 * with the addition behind it, which would lose that error. */                \
CLONES(void, psk_exact_##REAL,                                                 \
    (intptr_t n, intptr_t r, const REAL *Z, const double *v, double b,         \
     double b_low, const double *y, double *out),                              \
    (n, r, Z, v, b, b_low, y, out))                                            \
{                                                                              \
    double product[EXACT_BLOCK], rest[EXACT_BLOCK];                            \
    for (intptr_t i = 0; i < n; i++) {                                         \
        double high[LANES] = {b, -y[i]}, low[LANES] = {b_low};                 \
        for (intptr_t start = 0; start < r; start += EXACT_BLOCK) {            \
            const REAL *z = Z + i * r + start;                                 \
            intptr_t size = r - start < EXACT_BLOCK ? r - start : EXACT_BLOCK; \
            for (intptr_t j = 0; j < EXACT_BLOCK; j++)                         \
                product[j] = rest[j] = 0;                                      \
            SIMD                                                               \
            for (intptr_t j = 0; j < size; j++) {                              \
                double p = z[j] * v[start + j];                                \
                product[j] = p;                                                \
                rest[j] = __builtin_fma(z[j], v[start + j], -p);               \
            }                                                                  \
            __asm__ volatile("" : : "r"(product) : "memory");                  \
            for (intptr_t j = 0; j < size; j += LANES)                         \
                for (int k = 0; k < LANES; k++)                                \
                    two_sum(&high[k], &low[k], product[j + k], rest[j + k]);   \
        }                                                                      \
        for (int k = 1; k < LANES; k++)                                        \
            two_sum(&high[0], &low[0], high[k], low[k]);                       \
        out[i] = high[0] + low[0];                                             \
    }                                                                          \
}                                                                              \
                                                                               \
/* (high, low) += Zᵀ x, the same for columns; sums is (2, r). */               \
CLONES(void, psk_exact_t_##REAL,                                               \
    (intptr_t n, intptr_t r, const REAL *Z, const double *x,                   \
     double *sums),                                                            \
    (n, r, Z, x, sums))                                                        \
{                                                                              \
    double product[EXACT_BLOCK], rest[EXACT_BLOCK];                            \
    for (intptr_t i = 0; i < n; i++)                                           \
        for (intptr_t start = 0; start < r; start += EXACT_BLOCK) {            \
            const REAL *z = Z + i * r + start;                                 \
            double *high = sums + start, *low = sums + r + start;              \
            intptr_t size = r - start < EXACT_BLOCK ? r - start : EXACT_BLOCK; \
            SIMD                                                               \
            for (intptr_t j = 0; j < size; j++) {                              \
                double p = z[j] * x[i];                                        \
                product[j] = p;                                                \
                rest[j] = __builtin_fma(z[j], x[i], -p);                       \
            }                                                                  \
            __asm__ volatile("" : : "r"(product) : "memory");                  \
            SIMD                                                               \
            for (intptr_t j = 0; j < size; j++)                                \
                two_sum(&high[j], &low[j], product[j], rest[j]);               \
        }                                                                      \
}                                                                              \
                                                                               \
/* out = Z v */                                                                \
CLONES(void, psk_dot_##REAL,                                                   \
    (intptr_t n, intptr_t r, const REAL *Z, const double *v, double *out,      \
     int ahead),                                                               \
    (n, r, Z, v, out, ahead))                                                  \
{                                                                              \
    for (intptr_t i = 0; i < n; i += ROWS) {                                   \
        const REAL *rows[ROWS];                                                \
        ahead_##REAL next = {.j = 0};                                          \
        double sums[ROWS];                                                     \
        list_rows_##REAL(n, r, Z, i, rows);                                    \
        list_rows_##REAL(n, r, Z, i + ROWS, next.rows);                        \
        dot_block_##REAL(r, rows, v, sums, &next, ahead * ROWS);               \
        for (int k = 0; k < ROWS && i + k < n; k++)                            \
            out[i + k] = sums[k];                                              \
    }                                                                          \
}                                                                              \
                                                                               \
/* The next of rows i, i + stride … whose x is not 0, with their x; returns where to\
 * go on.  If fewer than ROWS are left, another one takes their place: its x is 0.\
 * `listed` are the numbers of the rows, or NULL. */                           \
INLINE intptr_t next_block_##REAL(                                             \
    intptr_t n, intptr_t stride, const intptr_t *listed, intptr_t r, const REAL *Z,\
    const double *x, intptr_t i, const REAL *rows[ROWS], double *factors,      \
    int *filled)                                                               \
{                                                                              \
    *filled = 0;                                                               \
    for (; i < n && *filled < ROWS; i += stride) {                             \
        const intptr_t row = listed ? listed[i] : i;                           \
        if (x[row] != 0) {                                                     \
            rows[*filled] = Z + row * r;                                       \
            factors[(*filled)++] = x[row];                                     \
        }                                                                      \
    }                                                                          \
    for (int k = *filled; k < ROWS; k++) {                                     \
        rows[k] = *filled > 0 ? rows[0] : Z;                                   \
        factors[k] = 0;                                                        \
    }                                                                          \
    return i;                                                                  \
}                                                                              \
                                                                               \
/* out[:r] += Z^T f and out[r] += sum f, where f = x * (Z v[:r] + v[r]), or    \
 * f = x if v is NULL, over rows 0, stride, 2 * stride … of those that are listed, or\
 * of all.  Rows whose x is 0 are not read. */                                 \
CLONES(void, psk_t_dot_##REAL,                                                 \
    (intptr_t n, intptr_t stride, const intptr_t *listed, intptr_t r,          \
     const REAL *Z, const double *x, const double *v, double *out, int ahead), \
    (n, stride, listed, r, Z, x, v, out, ahead))                               \
{                                                                              \
    const REAL *rows[ROWS];                                                    \
    double factors[ROWS], next_factors[ROWS], sums[ROWS], total = 0;           \
    const int share = ahead * (v ? ROWS / 2 : ROWS); /* for each product */    \
    int filled, next_filled;                                                   \
    intptr_t i = next_block_##REAL(                                            \
        n, stride, listed, r, Z, x, 0, rows, factors, &filled);                \
    while (filled > 0) {                                                       \
        ahead_##REAL next = {.j = 0};                                          \
        i = next_block_##REAL(                                                 \
            n, stride, listed, r, Z, x, i, next.rows, next_factors, &next_filled);\
        if (v) {                                                               \
            dot_block_##REAL(r, rows, v, sums, &next, share);                  \
            for (int k = 0; k < ROWS; k++)                                     \
                factors[k] *= sums[k] + v[r];                                  \
        }                                                                      \
        add_block_##REAL(r, rows, factors, out, &next, share);                 \
        total += (factors[0] + factors[1]) + (factors[2] + factors[3]);        \
        for (int k = 0; k < ROWS; k++) {                                       \
            rows[k] = next.rows[k];                                            \
            factors[k] = next_factors[k];                                      \
        }                                                                      \
        filled = next_filled;                                                  \
    }                                                                          \
    out[r] += total;                                                           \
}                                                                              \
                                                                               \
/* sums[k] = rows[k] . v and sums[ROWS + k] = rows[k] . w */                   \
INLINE void dot_pair_##REAL(                                                   \
    intptr_t r, const REAL *const rows[ROWS], const double *v,                 \
    const double *w, double *sums)                                             \
{                                                                              \
    const REAL *z0 = rows[0], *z1 = rows[1], *z2 = rows[2], *z3 = rows[3];     \
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0, t0 = 0, t1 = 0, t2 = 0, t3 = 0;     \
    for (intptr_t start = 0; start < r; start += CHUNK) {                      \
        const intptr_t end = smaller(r, start + CHUNK);                        \
        SIMD_SUM(s0, s1, s2, s3, t0, t1, t2, t3)                               \
        for (intptr_t j = start; j < end; j++) {                               \
            s0 += z0[j] * v[j];                                                \
            s1 += z1[j] * v[j];                                                \
            s2 += z2[j] * v[j];                                                \
            s3 += z3[j] * v[j];                                                \
            t0 += z0[j] * w[j];                                                \
            t1 += z1[j] * w[j];                                                \
            t2 += z2[j] * w[j];                                                \
            t3 += z3[j] * w[j];                                                \
        }                                                                      \
    }                                                                          \
    double all[2 * ROWS] = {s0, s1, s2, s3, t0, t1, t2, t3};                   \
    for (int k = 0; k < 2 * ROWS; k++)                                         \
        sums[k] = all[k];                                                      \
}                                                                              \
                                                                               \
/* out += sum of x[k] * rows[k], and more += sum of y[k] * rows[k] */          \
INLINE void add_pair_##REAL(                                                   \
    intptr_t r, const REAL *const rows[ROWS], const double *x,                 \
    const double *y, double *restrict out, double *restrict more)              \
{                                                                              \
    const REAL *z0 = rows[0], *z1 = rows[1], *z2 = rows[2], *z3 = rows[3];     \
    const double x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];                   \
    const double y0 = y[0], y1 = y[1], y2 = y[2], y3 = y[3];                   \
    SIMD                                                                       \
    for (intptr_t j = 0; j < r; j++) {                                         \
        double a = z0[j], b = z1[j], c = z2[j], d = z3[j];                     \
        out[j] += (x0 * a + x1 * b) + (x2 * c + x3 * d);                       \
        more[j] += (y0 * a + y1 * b) + (y2 * c + y3 * d);                      \
    }                                                                          \
}                                                                              \
                                                                               \
/* out = V Z^T, a row of `stride` numbers for each of m vectors */             \
CLONES(void, psk_dots_##REAL,                                                  \
    (intptr_t n, intptr_t r, intptr_t m, const REAL *Z, const double *V,       \
     double *out, intptr_t stride),                                            \
    (n, r, m, Z, V, out, stride))                                              \
{                                                                              \
    for (intptr_t i = 0; i < n; i += ROWS) {                                   \
        const REAL *rows[ROWS];                                                \
        double sums[2 * ROWS];                                                 \
        list_rows_##REAL(n, r, Z, i, rows);                                    \
        for (intptr_t c = 0; c < m; c += 2) {                                  \
            const intptr_t width = c + 1 < m ? 2 : 1;                          \
            if (width == 2)                                                    \
                dot_pair_##REAL(r, rows, V + c * r, V + (c + 1) * r, sums);    \
            else                                                               \
                dot_block_##REAL(r, rows, V + c * r, sums, NULL, 0);           \
            for (int k = 0; k < width * ROWS; k++)                             \
                if (i + k % ROWS < n)                                          \
                    out[(c + k / ROWS) * stride + i + k % ROWS] = sums[k];     \
        }                                                                      \
    }                                                                          \
}                                                                              \
                                                                               \
/* out += X Z over the listed rows of Z and columns of X, or over the first    \
 * n_rows if `listed` is NULL; X has m rows of `stride` numbers. */            \
CLONES(void, psk_t_dots_##REAL,                                                \
    (intptr_t n_rows, const intptr_t *listed, intptr_t r, intptr_t m,          \
     const REAL *Z, const double *X, intptr_t stride, double *out),            \
    (n_rows, listed, r, m, Z, X, stride, out))                                 \
{                                                                              \
    for (intptr_t i = 0; i < n_rows; i += ROWS) {                              \
        const REAL *rows[ROWS];                                                \
        intptr_t at[ROWS];                                                     \
        double kept[ROWS];                                                     \
        for (int k = 0; k < ROWS; k++) {                                       \
            const intptr_t row = i + k < n_rows ? i + k : i;                   \
            at[k] = listed ? listed[row] : row;                                \
            kept[k] = i + k < n_rows;                                          \
            rows[k] = Z + at[k] * r;                                           \
        }                                                                      \
        for (intptr_t c = 0; c < m; c += 2) {                                  \
            const double *x = X + c * stride;                                  \
            double first[ROWS], second[ROWS];                                  \
            for (int k = 0; k < ROWS; k++) {                                   \
                first[k] = kept[k] * x[at[k]];                                 \
                second[k] = c + 1 < m ? kept[k] * x[stride + at[k]] : 0;       \
            }                                                                  \
            if (c + 1 < m)                                                     \
                add_pair_##REAL(                                               \
                    r, rows, first, second, out + c * r, out + (c + 1) * r);   \
            else                                                               \
                add_block_##REAL(r, rows, first, out + c * r, NULL, 0);        \
        }                                                                      \
    }                                                                          \
}

/* out[k, :] = Z[row, :] for the listed rows; NULL lists all, from the first on. */
#define DEFINE_COPY(REAL)                                                      \
CLONES(void, psk_copy_rows_##REAL,                                             \
    (intptr_t n_rows, const intptr_t *rows, intptr_t r, const REAL *Z,         \
     double *out),                                                             \
    (n_rows, rows, r, Z, out))                                                 \
{                                                                              \
    for (intptr_t k = 0; k < n_rows; k++) {                                    \
        const REAL *z = Z + (rows ? rows[k] : k) * r;                          \
        SIMD                                                                   \
        for (intptr_t j = 0; j < r; j++)                                       \
            out[k * r + j] = z[j];                                             \
    }                                                                          \
}

DEFINE_PASSES(double)
DEFINE_PASSES(float)
DEFINE_COPY(double)
DEFINE_COPY(float)

#endif
