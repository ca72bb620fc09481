/* Every loss of the library, one formula each.
 *
 * A loss of prediction u and target y is a function of the residual
 *
 *     e = u - y      regression
 *     e = y u - 1    hinge and squared hinge, y = +1 or -1
 *     e = y u        logistic
 *
 * and all but the logistic one are one function: the conjugate is
 *
 *     l*(z) = epsilon |z| + radius z^2 / 2     for lower <= z <= upper,
 *
 * infinite elsewhere, so that by Fenchel's equality
 *
 *     l'(e) = z = clip(soft(e, epsilon) / radius, lower, upper)
 *     l(e)  = z e - l*(z).
 *
 *                          epsilon   lower   upper     radius
 *     Huber(kappa)            0     -kappa   kappa       1
 *     EpsilonInsensitive   epsilon    -1       1         0
 *     Pinball(tau)            0      -tau    1 - tau     0
 *     Absolute                0       -1       1         0
 *     Squared                 0      -inf     inf        1
 *     Hinge                   0       -1       0         0
 *     SquaredHinge            0      -inf      0        1/2
 *
 * The Moreau envelope of width mu, min over v of l(v) + (e - v)^2 / (2 mu), has
 * the conjugate l*(z) + mu z^2 / 2: the same loss with radius + mu.  Its
 * derivative is (e - prox(e)) / mu and lies between lower and upper, where l*
 * is finite: a dual-feasible point.
 */
#ifndef PSK_LOSSES_H
#define PSK_LOSSES_H

#include <float.h>
#include <math.h>
#include <stdint.h>

#include "simd.h"

typedef struct {
    int logistic; /* else piecewise, by the four numbers */
    double epsilon, lower, upper, radius;
} psk_loss;

/* The loss from its five numbers, as Python gives them. */
INLINE psk_loss unpack(const double *numbers)
{
    psk_loss l = {
        .logistic = numbers[0] != 0,
        .epsilon = numbers[1],
        .lower = numbers[2],
        .upper = numbers[3],
        .radius = numbers[4],
    };
    return l;
}

/* ---- piecewise ---- */

/* 1 / radius; a radius of 0 makes a step of the ramp, and 0 * DBL_MAX is 0. */
INLINE double steepness(double radius)
{
    return radius > 1 / DBL_MAX ? 1 / radius : DBL_MAX;
}

/* sign(e) max(|e| - epsilon, 0) */
INLINE double soft(double e, double epsilon)
{
    double above = e - epsilon, below = e + epsilon;
    return above > 0 ? above : below < 0 ? below : 0;
}

INLINE double ramp(const psk_loss *l, double steep, double e)
{
    double z = soft(e, l->epsilon) * steep;
    z = z > l->upper ? l->upper : z;
    return z < l->lower ? l->lower : z;
}

/* The derivative of `ramp`: not 0 strictly between its corners only. */
INLINE double ramp_slope(const psk_loss *l, double steep, double e)
{
    double rest = soft(e, l->epsilon), z = rest * steep;
    int inside = (rest != 0) & (z < l->upper) & (z > l->lower);
    return inside ? steep : 0;
}

INLINE double piecewise_conjugate(const psk_loss *l, double radius, double z)
{
    return l->epsilon * fabs(z) + radius / 2 * z * z;
}

/* l(e) = z e - l*(z), by Fenchel's equality */
INLINE double piecewise_value(const psk_loss *l, double radius, double e)
{
    double z = ramp(l, steepness(radius), e);
    return z * e - piecewise_conjugate(l, radius, z);
}

/* g'(t) / t, the factor of e in the derivative of g(|e|), given z = g'(t) */
INLINE double over_norm(double z, double t)
{
    return t > 0 ? z / t : 0;
}

/* ---- logistic: l(e) = log(1 + exp(-e)), l*(z) = q log q + (1 - q) log(1 - q)
 * with q = -z in [0, 1] ---- */

INLINE double logistic_value(double e)
{
    return log1p(exp(-fabs(e))) + (e < 0 ? -e : 0);
}

INLINE double logistic_derivative(double e)
{
    double t = exp(-fabs(e));
    return e < 0 ? -1 / (1 + t) : -t / (1 + t);
}

INLINE double logistic_second(double e)
{
    double t = exp(-fabs(e));
    return t / ((1 + t) * (1 + t));
}

INLINE double x_log_x(double x)
{
    return x > 0 ? x * log(x) : 0;
}

INLINE double logistic_conjugate(double z)
{
    /* (1 + z) log(1 + z), with the digits of a z near 0 */
    return x_log_x(-z) + (z > -1 ? (1 + z) * log1p(z) : 0);
}

/* The root v of v - e + mu l'(v), in [e, e + mu]: Newton's method, kept inside
 * a bracket that shrinks. */
INLINE double logistic_prox(double e, double mu)
{
    double low = e, high = e + mu, v = e - mu * logistic_derivative(e);
    for (int iteration = 0; iteration < 100 && low < high; iteration++) {
        double excess = v - e + mu * logistic_derivative(v);
        if (excess > 0)
            high = v;
        else
            low = v;
        double next = v - excess / (1 + mu * logistic_second(v));
        if (!(next > low && next < high))
            next = low + (high - low) / 2;
        if (next == v)
            break;
        v = next;
    }
    return v;
}

/* ---- any loss, as functions of the residual ---- */

INLINE double loss_value(const psk_loss *l, double e, double mu)
{
    if (l->logistic) {
        double v = mu > 0 ? logistic_prox(e, mu) : e;
        return logistic_value(v) + (mu > 0 ? (e - v) * (e - v) / (2 * mu) : 0);
    }
    return piecewise_value(l, l->radius + mu, e);
}

INLINE double loss_derivative(const psk_loss *l, double e, double mu)
{
    if (l->logistic)
        return logistic_derivative(mu > 0 ? logistic_prox(e, mu) : e);
    return ramp(l, steepness(l->radius + mu), e);
}

/* 0 at a kink, where the second derivative does not exist. */
INLINE double loss_second(const psk_loss *l, double e, double mu)
{
    if (l->logistic) {
        double second = logistic_second(mu > 0 ? logistic_prox(e, mu) : e);
        return second / (1 + mu * second);
    }
    double radius = l->radius + mu;
    return radius > 0 ? ramp_slope(l, steepness(radius), e) : 0;
}

INLINE double loss_prox(const psk_loss *l, double e, double mu)
{
    return e - mu * loss_derivative(l, e, mu);
}

/* Infinite outside of the domain. */
INLINE double loss_conjugate(const psk_loss *l, double z)
{
    if (!(z >= l->lower && z <= l->upper))
        return INFINITY;
    return l->logistic ? logistic_conjugate(z)
                       : piecewise_conjugate(l, l->radius, z);
}

#endif
