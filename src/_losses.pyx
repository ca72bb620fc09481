"""Losses on arrays: loss_loops.h in chunks of points, by several threads.

Stage: residuals e of n points -> values, derivatives, proximal points; and the
sums over points that a solver needs.

Parallel axis: chunks of CHUNK points, each owned by one thread.  Sums are kept
for each chunk and added by the caller in the order of the chunks, so that they
do not depend on the number of threads.  Everything is double.

A loss is a tuple (logistic, epsilon, lower, upper, radius), see _loss_spec.pxd.
"""

from cython.parallel cimport prange

from _loss_spec cimport psk_loss, unpack
from _types cimport intp_t

cdef extern from "loss_loops.h" nogil:
    cdef enum:
        PSK_VALUE
        PSK_DERIVATIVE
        PSK_SECOND
        PSK_PROX
        PSK_CONJUGATE

    void psk_evaluate(
        const psk_loss *loss, int function, double mu, intp_t n, const double *e,
        double *out)
    intp_t psk_smooth_derivatives(
        const psk_loss *loss, double mu, intp_t n, const double *e,
        const double *shift, const double *weight, double *zeta, double *curvature)
    void psk_slope(
        const psk_loss *loss, double mu, double t, intp_t n, const double *e,
        const double *step, const double *shift, const double *weight, double *sums)
    void psk_fenchel_young(
        const psk_loss *loss, intp_t n, const double *e, const double *zeta,
        const double *weight, double *sums)

cdef enum:
    # five arrays of a chunk fit in the second-level cache
    CHUNK = 4096

CHUNK_POINTS = CHUNK

FUNCTIONS = {
    "value": PSK_VALUE,
    "derivative": PSK_DERIVATIVE,
    "second": PSK_SECOND,
    "prox": PSK_PROX,
    "conjugate": PSK_CONJUGATE,
}


def evaluate(
    const double[::1] e,      # IN  (n,)
    double[::1] out,          # OUT (n,)
    tuple loss,
    int function,
    double mu,
    int n_threads,
):
    """out := the function of the loss, at the residuals e (conjugate: at zeta)."""
    cdef:
        psk_loss spec = unpack(loss)
        intp_t n = e.shape[0]
        intp_t chunk, start
    for chunk in prange((n + CHUNK - 1) // CHUNK, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="static"):
        start = chunk * CHUNK
        psk_evaluate(&spec, function, mu, min(<intp_t>CHUNK, n - start), &e[start],
                     &out[start])


def smooth_derivatives(
    const double[::1] e,          # IN  (n,)
    const double[::1] shift,      # IN  (n,) or None
    const double[::1] weight,     # IN  (n,)
    double[::1] zeta,             # OUT (n,)
    double[::1] curvature,        # OUT (n,)
    intp_t[::1] n_active,         # OUT (n_chunks,)
    tuple loss,
    double mu,
    int n_threads,
):
    """zeta := l'(e + mu shift), curvature := weight * l'', of the envelope."""
    cdef:
        psk_loss spec = unpack(loss)
        intp_t n = e.shape[0]
        bint shifted = shift is not None
        intp_t chunk, start
    for chunk in prange((n + CHUNK - 1) // CHUNK, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="static"):
        start = chunk * CHUNK
        n_active[chunk] = psk_smooth_derivatives(
            &spec, mu, min(<intp_t>CHUNK, n - start), &e[start],
            &shift[start] if shifted else NULL, &weight[start], &zeta[start],
            &curvature[start])


def slope(
    const double[::1] e,          # IN  (n,)
    const double[::1] step,       # IN  (n,)
    const double[::1] shift,      # IN  (n,) or None
    const double[::1] weight,     # IN  (n,)
    double[:, ::1] sums,          # OUT (n_chunks, 2)
    tuple loss,
    double mu,
    double t,
    int n_threads,
):
    """d/dt and d²/dt² of Σ weight · l(e + t step + mu shift)."""
    cdef:
        psk_loss spec = unpack(loss)
        intp_t n = e.shape[0]
        bint shifted = shift is not None
        intp_t chunk, start
    for chunk in prange((n + CHUNK - 1) // CHUNK, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="static"):
        start = chunk * CHUNK
        psk_slope(&spec, mu, t, min(<intp_t>CHUNK, n - start), &e[start], &step[start],
                  &shift[start] if shifted else NULL, &weight[start],
                  &sums[chunk, 0])


def fenchel_young(
    const double[::1] e,          # IN  (n,)
    const double[::1] zeta,       # IN  (n,), in the domain of the conjugate
    const double[::1] weight,     # IN  (n,)
    double[:, ::1] sums,          # OUT (n_chunks, 2)
    tuple loss,
    int n_threads,
):
    """Σ weight · l(e) and Σ weight · (l(e) + l*(zeta) - e·zeta)."""
    cdef:
        psk_loss spec = unpack(loss)
        intp_t n = e.shape[0]
        intp_t chunk, start
    for chunk in prange((n + CHUNK - 1) // CHUNK, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="static"):
        start = chunk * CHUNK
        psk_fenchel_young(&spec, min(<intp_t>CHUNK, n - start), &e[start], &zeta[start],
                          &weight[start], &sums[chunk, 0])
