/* Losses of vectors, l(e) = g(|e|) with a g of losses.h and the Euclidean norm.
 *
 * Its conjugate is g*(|z|), its derivative and Hessian are
 *
 *     zeta = g'(|e|) e / |e|
 *     H    = rho (I - n n^T) + g''(|e|) n n^T,   rho = g'(|e|) / |e|,  n = e / |e|
 *
 * and the envelope is that of g, taken at |e|.  H is kept as two numbers a point,
 * H = across I + along zeta zeta^T.
 *
 * Output j of point i is at [j * stride + i]: loops run over points, BLOCK of
 * them at a time, whose norms stay in the first-level cache. */
#ifndef PSK_RADIAL_LOOPS_H
#define PSK_RADIAL_LOOPS_H

#include "losses.h"

enum { BLOCK = 256 };

#define FOR_BLOCKS(n)                                                          \
    for (intptr_t start = 0, size = (n) < BLOCK ? (n) : BLOCK; start < (n);    \
         start += BLOCK, size = (n) - start < BLOCK ? (n) - start : BLOCK)

/* out[i] = sum over outputs of a * b */
INLINE void inner(
    intptr_t d, intptr_t stride, intptr_t n, const double *a, const double *b,
    double *out)
{
    for (intptr_t i = 0; i < n; i++)
        out[i] = 0;
    for (intptr_t j = 0; j < d; j++)
        for (intptr_t i = 0; i < n; i++)
            out[i] += a[j * stride + i] * b[j * stride + i];
}

/* out[i] = |e + mu shift|^2, and shift may be NULL */
INLINE void squared_norms(
    intptr_t d, intptr_t stride, intptr_t n, const double *e, const double *shift,
    double mu, double *out)
{
    if (!shift) {
        inner(d, stride, n, e, e, out);
        return;
    }
    for (intptr_t i = 0; i < n; i++)
        out[i] = 0;
    for (intptr_t j = 0; j < d; j++)
        for (intptr_t i = 0; i < n; i++) {
            double at = e[j * stride + i] + mu * shift[j * stride + i];
            out[i] += at * at;
        }
}

/* zeta = l'(e + mu shift) of the envelope; weight * across, weight * along.
 * Returns how many points have a curvature. */
CLONES(intptr_t, psk_radial_derivatives,
    (const double *loss, double mu, intptr_t d, intptr_t stride,
     intptr_t n, const double *e, const double *shift,
     const double *weight, double *zeta, double *across, double *along),
    (loss, mu, d, stride, n, e, shift, weight, zeta, across, along))
{
    const psk_loss l = unpack(loss);
    const double radius = l.radius + mu, steep = steepness(radius);
    const double curved = radius > 0;
    double square[BLOCK], rho[BLOCK];
    intptr_t n_active = 0;
    FOR_BLOCKS(n) {
        squared_norms(
            d, stride, size, e + start, shift ? shift + start : shift, mu, square);
        SIMD_SUM(n_active)
        for (intptr_t i = 0; i < size; i++) {
            double t = sqrt(square[i]), z = ramp(&l, steep, t);
            double slope = curved * ramp_slope(&l, steep, t), w = weight[start + i];
            rho[i] = over_norm(z, t);
            across[start + i] = w * rho[i];
            along[start + i] = z * z > 0 ? w * ((slope - rho[i]) / (z * z)) : 0;
            n_active += across[start + i] != 0;
        }
        for (intptr_t j = 0; j < d; j++) {
            const double *at = e + j * stride + start;
            double *out = zeta + j * stride + start;
            if (shift) {
                const double *by = shift + j * stride + start;
                for (intptr_t i = 0; i < size; i++)
                    out[i] = rho[i] * (at[i] + mu * by[i]);
            } else {
                for (intptr_t i = 0; i < size; i++)
                    out[i] = rho[i] * at[i];
            }
        }
    }
    return n_active;
}

/* The first two derivatives in t of sum weight * l(e + t step + mu shift). */
CLONES(void, psk_radial_slope,
    (const double *loss, double mu, double t, intptr_t d, intptr_t stride,
     intptr_t n, const double *e, const double *step, const double *shift,
     const double *weight, double *sums),
    (loss, mu, t, d, stride, n, e, step, shift, weight, sums))
{
    const psk_loss l = unpack(loss);
    const double radius = l.radius + mu, steep = steepness(radius);
    const double curved = radius > 0;
    /* |at|^2, at . step and |step|^2 */
    double square[BLOCK], cross[BLOCK], length[BLOCK];
    double first = 0, second = 0;
    FOR_BLOCKS(n) {
        for (intptr_t i = 0; i < size; i++)
            square[i] = cross[i] = length[i] = 0;
        for (intptr_t j = 0; j < d; j++) {
            const double *from = e + j * stride + start;
            const double *by = step + j * stride + start;
            const double *more = shift ? shift + j * stride + start : from;
            const double factor = shift ? mu : 0;
            for (intptr_t i = 0; i < size; i++) {
                double at = from[i] + t * by[i] + factor * more[i];
                square[i] += at * at;
                cross[i] += at * by[i];
                length[i] += by[i] * by[i];
            }
        }
        SIMD_SUM(first, second)
        for (intptr_t i = 0; i < size; i++) {
            double norm = sqrt(square[i]), w = weight[start + i];
            double rho = over_norm(ramp(&l, steep, norm), norm);
            double bend = curved * ramp_slope(&l, steep, norm) - rho;
            double along = over_norm(cross[i], norm); /* n . step */
            first += w * rho * cross[i];
            second += w * (rho * length[i] + bend * along * along);
        }
    }
    sums[0] = first;
    sums[1] = second;
}

/* sum weight * l(e), and sum weight * (l(e) + l*(zeta) - e . zeta).  |zeta| may
 * exceed the domain of the conjugate by rounding only. */
CLONES(void, psk_radial_fenchel_young,
    (const double *loss, intptr_t d, intptr_t stride, intptr_t n,
     const double *e, const double *zeta, const double *weight,
     double *sums),
    (loss, d, stride, n, e, zeta, weight, sums))
{
    const psk_loss l = unpack(loss);
    double e_e[BLOCK], e_zeta[BLOCK], zeta_zeta[BLOCK];
    double value = 0, excess = 0;
    FOR_BLOCKS(n) {
        inner(d, stride, size, e + start, e + start, e_e);
        inner(d, stride, size, e + start, zeta + start, e_zeta);
        inner(d, stride, size, zeta + start, zeta + start, zeta_zeta);
        SIMD_SUM(value, excess)
        for (intptr_t i = 0; i < size; i++) {
            double w = weight[start + i];
            double at = piecewise_value(&l, l.radius, sqrt(e_e[i]));
            double above = at - e_zeta[i]
                + piecewise_conjugate(&l, l.radius, sqrt(zeta_zeta[i]));
            value += w * at;
            excess += w * (above < 0 ? 0 : above);
        }
    }
    sums[0] = value;
    sums[1] = excess;
}

/* `psk_rounding` of a loss of the norm: every output of e is wrong by up to
 * eps (own |y| + |e|) + error of that output. */
CLONES(void, psk_radial_rounding,
    (const double *loss, double eps, double own, const double *error,
     intptr_t d, intptr_t stride, intptr_t n, const double *e,
     const double *zeta, const double *y, const double *weight,
     double *sums),
    (loss, eps, own, error, d, stride, n, e, zeta, y, weight, sums))
{
    const psk_loss l = unpack(loss);
    const double steep = steepness(l.radius);
    double e_e[BLOCK], zeta_zeta[BLOCK], wrong_wrong[BLOCK];
    double hidden = 0, total = 0;
    FOR_BLOCKS(n) {
        inner(d, stride, size, e + start, e + start, e_e);
        inner(d, stride, size, zeta + start, zeta + start, zeta_zeta);
        for (intptr_t i = 0; i < size; i++)
            wrong_wrong[i] = 0;
        for (intptr_t j = 0; j < d; j++) {
            const double *at = e + j * stride + start;
            const double *target = y + j * stride + start;
            for (intptr_t i = 0; i < size; i++) {
                double one = eps * (own * fabs(target[i]) + fabs(at[i])) + error[j];
                wrong_wrong[i] += one * one;
            }
        }
        SIMD_SUM(hidden, total)
        for (intptr_t i = 0; i < size; i++) {
            double w = weight[start + i], wrong = sqrt(wrong_wrong[i]);
            double norm = sqrt(e_e[i]), z = sqrt(zeta_zeta[i]);
            double parts = piecewise_value(&l, l.radius, norm)
                + piecewise_conjugate(&l, l.radius, z);
            double slope = ramp(&l, steep, norm + wrong) + z;
            hidden += w * (wrong * slope + (d + 4) * eps * (parts + norm * z));
            total += w * norm * z;
        }
    }
    sums[0] = hidden;
    sums[1] = total;
}

#endif
