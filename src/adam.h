/* Adam (Kingma and Ba, 2015) on the objective of a linear machine: mini-batches
 * of rows of Z, in a given order.  A step costs a few passes over vectors of the
 * first-level cache. */
#ifndef PSK_ADAM_H
#define PSK_ADAM_H

#include "losses.h"

typedef struct {
    double alpha, learning_rate, beta1, beta2, epsilon;
    int fit_intercept;
} psk_adam;

/* One step of one parameter; the moments are updated in place. */
INLINE double adam_step(
    const psk_adam *a, double rate, double root, double gradient,
    double *first, double *second)
{
    *first += (1 - a->beta1) * (gradient - *first);
    *second += (1 - a->beta2) * (gradient * gradient - *second);
    return rate * *first / (sqrt(*second) * root + a->epsilon);
}

/* What is learnt: k functions of the features, mixed to d outputs.  A residual is
 * sign * u - offset, where u = mix v + b and v = theta z; arrays over points are
 * (d, n_points).  `mix` is NULL for the identity, and a radial loss is that of the
 * norm over outputs. */
typedef struct {
    intptr_t n_points, r, k, d;
    const double *mix, *losses, *sign, *offset, *weight;
    int radial;
} psk_machine;

/* pulls = d l / d u, what point i pulls at its outputs with, from the values v. */
INLINE void output_pulls(
    const psk_machine *m, intptr_t i, const double *v, const double *b,
    double *pulls)
{
    double square = 0;
    for (intptr_t j = 0; j < m->d; j++) {
        const intptr_t at = j * m->n_points + i;
        double u = b[j] + (m->mix ? 0 : v[j]);
        if (m->mix)
            for (intptr_t a = 0; a < m->k; a++)
                u += m->mix[j * m->k + a] * v[a];
        pulls[j] = m->sign[at] * u - m->offset[at];
        square += pulls[j] * pulls[j];
    }
    if (m->radial) {
        const psk_loss l = unpack(m->losses);
        const double norm = sqrt(square);
        const double rho = over_norm(loss_derivative(&l, norm, 0), norm);
        for (intptr_t j = 0; j < m->d; j++)
            pulls[j] *= rho;
        return;
    }
    for (intptr_t j = 0; j < m->d; j++) {
        const psk_loss l = unpack(m->losses + 5 * j);
        pulls[j] =
            m->sign[j * m->n_points + i] * loss_derivative(&l, pulls[j], 0);
    }
}

/* Rows order[0:n] in batches.  `model` is theta (k, r) and then b (d), `first` and
 * `second` the moments of both, `gradient` room for as much, `work` for k + d;
 * `n_steps` steps were done before.  weight has a mean of 1. */
#define DEFINE_ADAM(REAL)                                                      \
CLONES(void, psk_adam_##REAL,                                                  \
    (const psk_machine *machine, const psk_adam *adam, intptr_t n,             \
     intptr_t batch, intptr_t n_steps, const intptr_t *order,                  \
     const REAL *Z, double *model, double *first, double *second,              \
     double *gradient, double *work),                                          \
    (machine, adam, n, batch, n_steps, order, Z, model, first, second,         \
     gradient, work))                                                          \
{                                                                              \
    const psk_machine m = *machine;                                            \
    const psk_adam a = *adam;                                                  \
    const intptr_t r = m.r, n_coef = m.k * r;                                  \
    double *v = work, *pulls = work + m.k;                                     \
    for (intptr_t start = 0; start < n; start += batch) {                      \
        const intptr_t end = start + batch < n ? start + batch : n;            \
        for (intptr_t j = 0; j < n_coef; j++)                                  \
            gradient[j] = a.alpha * model[j];                                  \
        for (intptr_t j = 0; j < m.d; j++)                                     \
            gradient[n_coef + j] = 0;                                          \
        for (intptr_t row = start; row < end; row++) {                         \
            const intptr_t i = order[row];                                     \
            const REAL *z = Z + i * r;                                         \
            for (intptr_t c = 0; c < m.k; c++) {                               \
                const double *theta = model + c * r;                           \
                double sum = 0;                                                \
                SIMD_SUM(sum)                                                  \
                for (intptr_t j = 0; j < r; j++)                               \
                    sum += z[j] * theta[j];                                    \
                v[c] = sum;                                                    \
            }                                                                  \
            output_pulls(&m, i, v, model + n_coef, pulls);                     \
            const double share = m.weight[i] / (double)(end - start);          \
            for (intptr_t j = 0; j < m.d; j++) {                               \
                pulls[j] *= share;                                             \
                gradient[n_coef + j] += pulls[j];                              \
            }                                                                  \
            for (intptr_t c = 0; c < m.k; c++) {                               \
                double *out = gradient + c * r, pull = m.mix ? 0 : pulls[c];   \
                if (m.mix)                                                     \
                    for (intptr_t j = 0; j < m.d; j++)                         \
                        pull += m.mix[j * m.k + c] * pulls[j];                 \
                if (pull == 0)                                                 \
                    continue;                                                  \
                SIMD                                                           \
                for (intptr_t j = 0; j < r; j++)                               \
                    out[j] += pull * z[j];                                     \
            }                                                                  \
        }                                                                      \
        const double step = (double)(++n_steps);                               \
        const double rate = a.learning_rate / (1 - pow(a.beta1, step));        \
        const double root = 1 / sqrt(1 - pow(a.beta2, step));                  \
        const intptr_t n_learnt = n_coef + (a.fit_intercept ? m.d : 0);        \
        SIMD                                                                   \
        for (intptr_t j = 0; j < n_learnt; j++)                                \
            model[j] -=                                                        \
                adam_step(&a, rate, root, gradient[j], first + j, second + j); \
    }                                                                          \
}

DEFINE_ADAM(double)
DEFINE_ADAM(float)

#endif
