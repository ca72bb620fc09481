"""The loop of Adam over mini-batches: adam.h for both types of features.

Stage: rows of Z in a given order -> an updated model.  One thread: each step
needs the one before.
"""

from _types cimport intp_t, real_t

from pskernels._simd import MAX_LEVEL

cdef extern from "simd.h":
    void psk_set_level(int max_level)

psk_set_level(MAX_LEVEL)

cdef extern from "adam.h" nogil:
    ctypedef struct psk_adam:
        double alpha
        double learning_rate
        double beta1
        double beta2
        double epsilon
        int fit_intercept

    ctypedef struct psk_machine:
        intp_t n_points
        intp_t r
        intp_t k
        intp_t d
        const double *mix
        const double *losses
        const double *sign
        const double *offset
        const double *weight
        int radial

    void psk_adam_double(
        const psk_machine *machine, const psk_adam *adam, intp_t n, intp_t batch,
        intp_t n_steps, const intp_t *order, const double *Z, double *model,
        double *first, double *second, double *gradient, double *work)
    void psk_adam_float(
        const psk_machine *machine, const psk_adam *adam, intp_t n, intp_t batch,
        intp_t n_steps, const intp_t *order, const float *Z, double *model,
        double *first, double *second, double *gradient, double *work)


def adam_steps(
    const real_t[:, ::1] Z,       # IN    (n, r)
    const intp_t[::1] order,      # IN    (n_rows,), rows of Z
    const double[:, ::1] mix,     # IN    (d, k), or None: the identity
    const double[:, ::1] sign,    # IN    (d, n)
    const double[:, ::1] offset,  # IN    (d, n)
    const double[::1] weight,     # IN    (n,), of mean 1
    double[:, ::1] state,         # INOUT (4, k·r + d): the model, moments; room
    const double[:, ::1] losses,  # IN    (d, 5), or (1, 5) if radial; as in _losses.pyx
    bint radial,
    double[::1] work,             # WORK  (k + d,)
    tuple adam,                   # (alpha, learning_rate, beta1, beta2, epsilon, b)
    intp_t batch,
    intp_t n_steps,
):
    """Take steps over the listed rows, in batches; n_steps were done before."""
    cdef:
        psk_machine machine
        psk_adam options
        intp_t n = order.shape[0]
    (options.alpha, options.learning_rate, options.beta1, options.beta2,
     options.epsilon, options.fit_intercept) = adam
    if n == 0:
        return
    machine.n_points = Z.shape[0]
    machine.r = Z.shape[1]
    machine.d = sign.shape[0]
    machine.k = machine.d
    machine.mix = NULL
    if mix is not None:
        machine.k = mix.shape[1]
        machine.mix = &mix[0, 0]
    machine.losses = &losses[0, 0]
    machine.sign = &sign[0, 0]
    machine.offset = &offset[0, 0]
    machine.weight = &weight[0]
    machine.radial = radial
    with nogil:
        if real_t is double:
            psk_adam_double(
                &machine, &options, n, batch, n_steps, &order[0], &Z[0, 0],
                &state[0, 0], &state[1, 0], &state[2, 0], &state[3, 0], &work[0])
        else:
            psk_adam_float(
                &machine, &options, n, batch, n_steps, &order[0], &Z[0, 0],
                &state[0, 0], &state[1, 0], &state[2, 0], &state[3, 0], &work[0])
