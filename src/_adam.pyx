"""The loop of Adam over mini-batches: adam.h for both types of features.

Stage: rows of Z in a given order -> an updated model.  One thread: each step
needs the one before.
"""

from _loss_spec cimport psk_loss, unpack
from _types cimport intp_t, real_t

cdef extern from "adam.h" nogil:
    ctypedef struct psk_adam:
        double alpha
        double learning_rate
        double beta1
        double beta2
        double epsilon
        int fit_intercept

    void psk_adam_double(
        const psk_loss *loss, const psk_adam *adam, intp_t n, intp_t r,
        intp_t batch, intp_t n_steps, const intp_t *order, const double *Z,
        const double *sign, const double *offset, const double *weight,
        double *model, double *first, double *second, double *gradient)
    void psk_adam_float(
        const psk_loss *loss, const psk_adam *adam, intp_t n, intp_t r,
        intp_t batch, intp_t n_steps, const intp_t *order, const float *Z,
        const double *sign, const double *offset, const double *weight,
        double *model, double *first, double *second, double *gradient)


def adam_steps(
    const real_t[:, ::1] Z,       # IN    (n, r)
    const intp_t[::1] order,      # IN    (n_rows,), rows of Z
    const double[::1] sign,       # IN    (n,)
    const double[::1] offset,     # IN    (n,)
    const double[::1] weight,     # IN    (n,), of mean 1
    double[:, ::1] state,         # INOUT (4, r + 1): w and b, moments; room
    tuple loss,                   # as in _losses.pyx
    tuple adam,                   # (alpha, learning_rate, beta1, beta2, epsilon, b)
    intp_t batch,
    intp_t n_steps,
):
    """Steps over the listed rows, in batches; n_steps were done before."""
    cdef:
        psk_loss spec = unpack(loss)
        psk_adam options
        intp_t n = order.shape[0]
        intp_t r = Z.shape[1]
    (options.alpha, options.learning_rate, options.beta1, options.beta2,
     options.epsilon, options.fit_intercept) = adam
    if n == 0:
        return
    with nogil:
        if real_t is double:
            psk_adam_double(
                &spec, &options, n, r, batch, n_steps, &order[0], &Z[0, 0], &sign[0],
                &offset[0], &weight[0], &state[0, 0], &state[1, 0], &state[2, 0],
                &state[3, 0])
        else:
            psk_adam_float(
                &spec, &options, n, r, batch, n_steps, &order[0], &Z[0, 0], &sign[0],
                &offset[0], &weight[0], &state[0, 0], &state[1, 0], &state[2, 0],
                &state[3, 0])
