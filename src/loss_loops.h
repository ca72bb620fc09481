/* Loops over points: the formulas of losses.h on arrays, and their sums. */
#ifndef PSK_LOSS_LOOPS_H
#define PSK_LOSS_LOOPS_H

#include "losses.h"

/* The residuals e in place of predictions u without their intercept: u + b - y, or
 * y (u + b) - margin if y is a class. */
CLONES(void, psk_residuals,
    (int classes, double margin, double b, intptr_t n, const double *y,
     double *u),
    (classes, margin, b, n, y, u))
{
    if (classes)
        for (intptr_t i = 0; i < n; i++)
            u[i] = y[i] * (u[i] + b) - margin;
    else
        for (intptr_t i = 0; i < n; i++)
            u[i] = (u[i] + b) - y[i];
}

INLINE void flow_sums(
    const int classes, intptr_t n, const double *zeta, const double *weight,
    const double *y, double *flow, double *sums)
{
    double total = 0, size = 0;
    SIMD_SUM(total, size)
    for (intptr_t i = 0; i < n; i++) {
        double pull = weight[i] * zeta[i];
        flow[i] = classes ? y[i] * pull : pull;
        total += flow[i];
        size += fabs(pull);
    }
    sums[0] = total;
    sums[1] = size;
}

/* flow = weight * dl/du, from zeta = dl/de; its sum, and that of its size. */
CLONES(void, psk_flow,
    (int classes, intptr_t n, const double *zeta, const double *weight,
     const double *y, double *flow, double *sums),
    (classes, n, zeta, weight, y, flow, sums))
{
    if (classes)
        flow_sums(1, n, zeta, weight, y, flow, sums);
    else
        flow_sums(0, n, zeta, weight, y, flow, sums);
}

enum psk_function { PSK_VALUE, PSK_DERIVATIVE, PSK_SECOND, PSK_PROX, PSK_CONJUGATE };

CLONES(void, psk_evaluate,
    (const double *loss, int function, double mu, intptr_t n,
     const double *e, double *out),
    (loss, function, mu, n, e, out))
{
    const psk_loss l = unpack(loss);
    switch (function) {
    case PSK_VALUE:
        for (intptr_t i = 0; i < n; i++)
            out[i] = loss_value(&l, e[i], mu);
        break;
    case PSK_DERIVATIVE:
        for (intptr_t i = 0; i < n; i++)
            out[i] = loss_derivative(&l, e[i], mu);
        break;
    case PSK_SECOND:
        for (intptr_t i = 0; i < n; i++)
            out[i] = loss_second(&l, e[i], mu);
        break;
    case PSK_PROX:
        for (intptr_t i = 0; i < n; i++)
            out[i] = loss_prox(&l, e[i], mu);
        break;
    default:
        for (intptr_t i = 0; i < n; i++)
            out[i] = loss_conjugate(&l, e[i]);
    }
}

/* Where the loss is taken: e + mu shift, and `shift` (the multipliers of the
 * solver) may be NULL.  Loops test for that outside, or they stay scalar. */
#define AT(i) (shifted ? e[i] + mu * shift[i] : e[i])

INLINE intptr_t smooth_derivatives(
    const int shifted, const psk_loss l, double mu, intptr_t n, const double *e,
    const double *shift, const double *weight, double *zeta, double *curvature)
{
    const double radius = l.radius + mu, steep = steepness(radius);
    const double curved = radius > 0; /* a step has no curvature */
    intptr_t n_active = 0;
    if (l.logistic) {
        for (intptr_t i = 0; i < n; i++) {
            zeta[i] = loss_derivative(&l, AT(i), mu);
            curvature[i] = weight[i] * loss_second(&l, AT(i), mu);
            n_active += curvature[i] != 0;
        }
        return n_active;
    }
    SIMD_SUM(n_active)
    for (intptr_t i = 0; i < n; i++) {
        zeta[i] = ramp(&l, steep, AT(i));
        curvature[i] = curved * weight[i] * ramp_slope(&l, steep, AT(i));
        n_active += curvature[i] != 0;
    }
    return n_active;
}

/* zeta = l'(e + mu shift) of the envelope, and weight * l''; returns how many
 * l'' are not 0. */
CLONES(intptr_t, psk_smooth_derivatives,
    (const double *loss, double mu, intptr_t n, const double *e,
     const double *shift, const double *weight, double *zeta,
     double *curvature),
    (loss, mu, n, e, shift, weight, zeta, curvature))
{
    const psk_loss l = unpack(loss);
    if (shift)
        return smooth_derivatives(1, l, mu, n, e, shift, weight, zeta, curvature);
    return smooth_derivatives(0, l, mu, n, e, shift, weight, zeta, curvature);
}

INLINE void slope_sums(
    const int shifted, const psk_loss l, double mu, double t, intptr_t n,
    const double *e, const double *step, const double *shift, const double *weight,
    double *sums)
{
    const double steep = steepness(l.radius + mu);
    double first = 0, second = 0;
    if (l.logistic) {
        for (intptr_t i = 0; i < n; i++) {
            double at = AT(i) + t * step[i];
            first += weight[i] * step[i] * loss_derivative(&l, at, mu);
            second += weight[i] * step[i] * step[i] * loss_second(&l, at, mu);
        }
    } else {
        SIMD_SUM(first, second)
        for (intptr_t i = 0; i < n; i++) {
            double at = AT(i) + t * step[i], weighted = weight[i] * step[i];
            first += weighted * ramp(&l, steep, at);
            second += weighted * step[i] * ramp_slope(&l, steep, at);
        }
    }
    sums[0] = first;
    sums[1] = second;
}

/* The first two derivatives in t of sum weight * l(e + t step + mu shift). */
CLONES(void, psk_slope,
    (const double *loss, double mu, double t, intptr_t n, const double *e,
     const double *step, const double *shift, const double *weight,
     double *sums),
    (loss, mu, t, n, e, step, shift, weight, sums))
{
    if (shift)
        slope_sums(1, unpack(loss), mu, t, n, e, step, shift, weight, sums);
    else
        slope_sums(0, unpack(loss), mu, t, n, e, step, shift, weight, sums);
}

/* sum weight * l(e), and what it exceeds its bound by: the Fenchel-Young sum
 * of weight * (l(e) + l*(zeta) - e zeta), each term of which is not negative. */
CLONES(void, psk_fenchel_young,
    (const double *loss, intptr_t n, const double *e, const double *zeta,
     const double *weight, double *sums),
    (loss, n, e, zeta, weight, sums))
{
    const psk_loss l = unpack(loss);
    double value = 0, excess = 0;
    if (l.logistic) {
        for (intptr_t i = 0; i < n; i++) {
            double at = logistic_value(e[i]);
            double above = at + logistic_conjugate(zeta[i]) - e[i] * zeta[i];
            value += weight[i] * at;
            excess += weight[i] * (above < 0 ? 0 : above);
        }
    } else {
        SIMD_SUM(value, excess)
        for (intptr_t i = 0; i < n; i++) {
            double at = piecewise_value(&l, l.radius, e[i]);
            double above =
                at + piecewise_conjugate(&l, l.radius, zeta[i]) - e[i] * zeta[i];
            value += weight[i] * at;
            excess += weight[i] * (above < 0 ? 0 : above);
        }
    }
    sums[0] = value;
    sums[1] = excess;
}

/* What rounding may hide of `psk_fenchel_young`: by how much its second sum may be
 * larger if every e is wrong by up to eps (own |y| + |e|) + error, and every term
 * by some roundings of its parts.
 *
 * l(e + d) - l(e) - zeta d is convex in d, and at most |d| times the difference of
 * zeta and the slope at the end.  sums[1] is the sum of weight * |e zeta|. */
CLONES(void, psk_rounding,
    (const double *loss, double eps, double own, double error, intptr_t n,
     const double *e, const double *zeta, const double *y,
     const double *weight, double *sums),
    (loss, eps, own, error, n, e, zeta, y, weight, sums))
{
    const psk_loss l = unpack(loss);
    const double steep = steepness(l.radius);
    double hidden = 0, size = 0;
    if (l.logistic) {
        for (intptr_t i = 0; i < n; i++) {
            double wrong = eps * (own * fabs(y[i]) + fabs(e[i])) + error;
            double up = logistic_derivative(e[i] + wrong) - zeta[i];
            double down = zeta[i] - logistic_derivative(e[i] - wrong);
            double parts = logistic_value(e[i]) - logistic_conjugate(zeta[i]);
            double product = fabs(e[i] * zeta[i]);
            hidden += weight[i]
                * (wrong * fmax(up, fmax(down, 0)) + 4 * eps * (parts + product));
            size += weight[i] * product;
        }
    } else {
        SIMD_SUM(hidden, size)
        for (intptr_t i = 0; i < n; i++) {
            double wrong = eps * (own * fabs(y[i]) + fabs(e[i])) + error;
            double up = ramp(&l, steep, e[i] + wrong) - zeta[i];
            double down = zeta[i] - ramp(&l, steep, e[i] - wrong);
            double slope = up > down ? up : down;
            double parts = piecewise_value(&l, l.radius, e[i])
                + piecewise_conjugate(&l, l.radius, zeta[i]);
            double product = fabs(e[i] * zeta[i]);
            slope = slope > 0 ? slope : 0;
            hidden += weight[i] * (wrong * slope + 4 * eps * (parts + product));
            size += weight[i] * product;
        }
    }
    sums[0] = hidden;
    sums[1] = size;
}

#endif
