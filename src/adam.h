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

/* Rows order[0:n] in batches.  `model` is w and then b, `first` and `second`
 * the moments of both, `gradient` room for as much; `n_steps` steps were done
 * before.  weight has a mean of 1; a residual is sign * u - offset. */
#define DEFINE_ADAM(REAL)                                                      \
CLONES static void psk_adam_##REAL(                                            \
    const psk_loss *loss, const psk_adam *adam, intptr_t n, intptr_t r,        \
    intptr_t batch, intptr_t n_steps, const intptr_t *order, const REAL *Z,    \
    const double *sign, const double *offset, const double *weight,            \
    double *model, double *first, double *second, double *gradient)            \
{                                                                              \
    const psk_loss l = *loss;                                                  \
    const psk_adam a = *adam;                                                  \
    for (intptr_t start = 0; start < n; start += batch) {                      \
        const intptr_t end = start + batch < n ? start + batch : n;            \
        const double share = 1.0 / (double)(end - start);                      \
        for (intptr_t j = 0; j < r; j++)                                       \
            gradient[j] = a.alpha * model[j];                                  \
        gradient[r] = 0;                                                       \
        for (intptr_t k = start; k < end; k++) {                               \
            const intptr_t i = order[k];                                       \
            const REAL *z = Z + i * r;                                         \
            double u = 0;                                                      \
            SIMD_SUM(u)                                                        \
            for (intptr_t j = 0; j < r; j++)                                   \
                u += z[j] * model[j];                                          \
            double e = sign[i] * (u + model[r]) - offset[i];                   \
            double pull = share * weight[i] * sign[i] * loss_derivative(&l, e, 0);\
            if (pull == 0)                                                     \
                continue;                                                      \
            SIMD                                                               \
            for (intptr_t j = 0; j < r; j++)                                   \
                gradient[j] += pull * z[j];                                    \
            gradient[r] += pull;                                               \
        }                                                                      \
        const double step = (double)(++n_steps);                               \
        const double rate = a.learning_rate / (1 - pow(a.beta1, step));        \
        const double root = 1 / sqrt(1 - pow(a.beta2, step));                  \
        SIMD                                                                   \
        for (intptr_t j = 0; j < r; j++)                                       \
            model[j] -=                                                        \
                adam_step(&a, rate, root, gradient[j], first + j, second + j); \
        if (a.fit_intercept)                                                   \
            model[r] -=                                                        \
                adam_step(&a, rate, root, gradient[r], first + r, second + r); \
    }                                                                          \
}

DEFINE_ADAM(double)
DEFINE_ADAM(float)

#endif
