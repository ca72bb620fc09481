"""Losses on arrays: loss_loops.h and radial_loops.h, by several threads.

Stage: residuals e of n points -> values, derivatives, proximal points; and the
sums over points that a solver needs.

Arrays over points have a row for each of the d outputs, (d, n).  A loss is a sum
over outputs, each with its own parameters, or the loss of the norm over outputs
("radial").  Its parameters are five numbers for each output, `unpack` in losses.h;
a radial loss has one row of them.

Parallel axis: chunks of CHUNK points of an output, or of all outputs, each owned
by one thread.  Sums are kept for each chunk and added by the caller in the order
of the chunks, so that they do not depend on the number of threads.  Everything
is double.
"""

from cython.parallel cimport prange

from _types cimport intp_t

from pskernels._simd import MAX_LEVEL

cdef extern from "simd.h":
    void psk_set_level(int max_level)

psk_set_level(MAX_LEVEL)

cdef extern from "loss_loops.h" nogil:
    cdef enum:
        PSK_VALUE
        PSK_DERIVATIVE
        PSK_SECOND
        PSK_PROX
        PSK_CONJUGATE

    void psk_residuals(
        int classes, double margin, double b, intp_t n, const double *y, double *u)
    void psk_flow(
        int classes, intp_t n, const double *zeta, const double *weight,
        const double *y, double *flow, double *sums)
    void psk_evaluate(
        const double *loss, int function, double mu, intp_t n, const double *e,
        double *out)
    intp_t psk_smooth_derivatives(
        const double *loss, double mu, intp_t n, const double *e,
        const double *shift, const double *weight, double *zeta, double *curvature)
    void psk_slope(
        const double *loss, double mu, double t, intp_t n, const double *e,
        const double *step, const double *shift, const double *weight, double *sums)
    void psk_fenchel_young(
        const double *loss, intp_t n, const double *e, const double *zeta,
        const double *weight, double *sums)
    void psk_rounding(
        const double *loss, double eps, double own, double error, intp_t n,
        const double *e, const double *zeta, const double *y, const double *weight,
        double *sums)

cdef extern from "radial_loops.h" nogil:
    intp_t psk_radial_derivatives(
        const double *loss, double mu, intp_t d, intp_t stride, intp_t n,
        const double *e, const double *shift, const double *weight, double *zeta,
        double *across, double *along)
    void psk_radial_slope(
        const double *loss, double mu, double t, intp_t d, intp_t stride, intp_t n,
        const double *e, const double *step, const double *shift,
        const double *weight, double *sums)
    void psk_radial_fenchel_young(
        const double *loss, intp_t d, intp_t stride, intp_t n, const double *e,
        const double *zeta, const double *weight, double *sums)
    void psk_radial_rounding(
        const double *loss, double eps, double own, const double *error, intp_t d,
        intp_t stride, intp_t n, const double *e, const double *zeta,
        const double *y, const double *weight, double *sums)

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
    const double[::1] loss,   # IN  (5,)
    int function,
    double mu,
    int n_threads,
):
    """out := the function of the loss, at the residuals e (conjugate: at zeta)."""
    cdef:
        intp_t n = e.shape[0]
        intp_t chunk, start
    for chunk in prange((n + CHUNK - 1) // CHUNK, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="static"):
        start = chunk * CHUNK
        psk_evaluate(&loss[0], function, mu, min(<intp_t>CHUNK, n - start), &e[start],
                     &out[start])


def residuals(
    double[:, ::1] u,            # INOUT (d, n)
    const double[:, ::1] y,      # IN    (d, n)
    const double[::1] b,         # IN    (d,)
    bint classes,
    double margin,
    int n_threads,
):
    """u := u + b - y, or y·(u + b) - margin if y are classes."""
    cdef:
        intp_t n = u.shape[1]
        intp_t n_chunks = (n + CHUNK - 1) // CHUNK
        intp_t task, start, j
    for task in prange(u.shape[0] * n_chunks, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="static"):
        j = task // n_chunks
        start = (task % n_chunks) * CHUNK
        psk_residuals(classes, margin, b[j], min(<intp_t>CHUNK, n - start),
                      &y[j, start], &u[j, start])


def flow(
    const double[:, ::1] zeta,   # IN  (d, n)
    const double[::1] weight,    # IN  (n,)
    const double[:, ::1] y,      # IN  (d, n)
    double[:, ::1] out,          # OUT (d, n)
    double[:, :, ::1] sums,      # OUT (d, n_chunks, 2)
    bint classes,
    int n_threads,
):
    """out := weight · zeta, times y if they are classes; Σ out and Σ |out|."""
    cdef:
        intp_t n = zeta.shape[1]
        intp_t n_chunks = sums.shape[1]
        intp_t task, start, j
    for task in prange(zeta.shape[0] * n_chunks, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="static"):
        j = task // n_chunks
        start = (task % n_chunks) * CHUNK
        psk_flow(classes, min(<intp_t>CHUNK, n - start), &zeta[j, start],
                 &weight[start], &y[j, start], &out[j, start],
                 &sums[j, task % n_chunks, 0])


cdef intp_t derivatives_of_chunk(
    const double *loss, bint radial, double mu, intp_t d, intp_t stride, intp_t n,
    const double *e, const double *shift, const double *weight, double *zeta,
    double *curvature,
) noexcept nogil:
    if radial:
        return psk_radial_derivatives(loss, mu, d, stride, n, e, shift, weight, zeta,
                                      curvature, curvature + stride)
    return psk_smooth_derivatives(loss, mu, n, e, shift, weight, zeta, curvature)


cdef void slope_of_chunk(
    const double *loss, bint radial, double mu, double t, intp_t d, intp_t stride,
    intp_t n, const double *e, const double *step, const double *shift,
    const double *weight, double *sums,
) noexcept nogil:
    if radial:
        psk_radial_slope(loss, mu, t, d, stride, n, e, step, shift, weight, sums)
    else:
        psk_slope(loss, mu, t, n, e, step, shift, weight, sums)


cdef void fenchel_young_of_chunk(
    const double *loss, bint radial, intp_t d, intp_t stride, intp_t n,
    const double *e, const double *zeta, const double *weight, double *sums,
) noexcept nogil:
    if radial:
        psk_radial_fenchel_young(loss, d, stride, n, e, zeta, weight, sums)
    else:
        psk_fenchel_young(loss, n, e, zeta, weight, sums)


cdef void rounding_of_chunk(
    const double *loss, bint radial, double eps, double own, const double *error,
    intp_t d, intp_t stride, intp_t n, const double *e, const double *zeta,
    const double *y, const double *weight, double *sums,
) noexcept nogil:
    if radial:
        psk_radial_rounding(
            loss, eps, own, error, d, stride, n, e, zeta, y, weight, sums)
    else:
        psk_rounding(loss, eps, own, error[0], n, e, zeta, y, weight, sums)


def smooth_derivatives(
    const double[:, ::1] e,          # IN  (d, n)
    const double[:, ::1] shift,      # IN  (d, n) or None
    const double[::1] weight,        # IN  (n,)
    double[:, ::1] zeta,             # OUT (d, n)
    double[:, ::1] curvature,        # OUT (d, n), or if radial (2, n): across, along
    intp_t[:, ::1] n_active,         # OUT (rows of losses, n_chunks)
    const double[:, ::1] losses,     # IN  (d, 5), or (1, 5)
    bint radial,
    double mu,
    int n_threads,
):
    """zeta := l'(e + mu shift), curvature := weight * l'', of the envelope."""
    cdef:
        intp_t d = e.shape[0]
        intp_t n = e.shape[1]
        intp_t n_chunks = n_active.shape[1]
        bint shifted = shift is not None
        intp_t task, start, j
    for task in prange(n_active.shape[0] * n_chunks, nogil=True,
                       num_threads=n_threads, use_threads_if=n_threads > 1,
                       schedule="static"):
        j = task // n_chunks
        start = (task % n_chunks) * CHUNK
        n_active[j, task % n_chunks] = derivatives_of_chunk(
            &losses[j, 0], radial, mu, d, n, min(<intp_t>CHUNK, n - start),
            &e[j, start], &shift[j, start] if shifted else NULL, &weight[start],
            &zeta[j, start], &curvature[j, start])


def slope(
    const double[:, ::1] e,          # IN  (d, n)
    const double[:, ::1] step,       # IN  (d, n)
    const double[:, ::1] shift,      # IN  (d, n) or None
    const double[::1] weight,        # IN  (n,)
    double[:, :, ::1] sums,          # OUT (rows of losses, n_chunks, 2)
    const double[:, ::1] losses,     # IN  (d, 5), or (1, 5)
    bint radial,
    double mu,
    double t,
    int n_threads,
):
    """Compute d/dt and d²/dt² of Σ weight · l(e + t step + mu shift)."""
    cdef:
        intp_t d = e.shape[0]
        intp_t n = e.shape[1]
        intp_t n_chunks = sums.shape[1]
        bint shifted = shift is not None
        intp_t task, start, j
    for task in prange(sums.shape[0] * n_chunks, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="static"):
        j = task // n_chunks
        start = (task % n_chunks) * CHUNK
        slope_of_chunk(
            &losses[j, 0], radial, mu, t, d, n, min(<intp_t>CHUNK, n - start),
            &e[j, start], &step[j, start], &shift[j, start] if shifted else NULL,
            &weight[start], &sums[j, task % n_chunks, 0])


def fenchel_young(
    const double[:, ::1] e,          # IN  (d, n)
    const double[:, ::1] zeta,       # IN  (d, n), in the domain of the conjugate
    const double[::1] weight,        # IN  (n,)
    double[:, :, ::1] sums,          # OUT (rows of losses, n_chunks, 2)
    const double[:, ::1] losses,     # IN  (d, 5), or (1, 5)
    bint radial,
    int n_threads,
):
    """Compute Σ weight · l(e) and Σ weight · (l(e) + l*(zeta) - e·zeta)."""
    cdef:
        intp_t d = e.shape[0]
        intp_t n = e.shape[1]
        intp_t n_chunks = sums.shape[1]
        intp_t task, start, j
    for task in prange(sums.shape[0] * n_chunks, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="static"):
        j = task // n_chunks
        start = (task % n_chunks) * CHUNK
        fenchel_young_of_chunk(
            &losses[j, 0], radial, d, n, min(<intp_t>CHUNK, n - start), &e[j, start],
            &zeta[j, start], &weight[start], &sums[j, task % n_chunks, 0])


def rounding(
    const double[:, ::1] e,          # IN  (d, n)
    const double[:, ::1] zeta,       # IN  (d, n), in the domain of the conjugate
    const double[:, ::1] y,          # IN  (d, n)
    const double[::1] error,         # IN  (d,), by which all e may be wrong
    const double[::1] weight,        # IN  (n,)
    double[:, :, ::1] sums,          # OUT (rows of losses, n_chunks, 2)
    const double[:, ::1] losses,     # IN  (d, 5), or (1, 5)
    bint radial,
    double eps,
    double own,                      # whether y was rounded, too: 1 or 0
    int n_threads,
):
    """Bound what rounding hides of the excess of `fenchel_young`; Σ weight·|e·zeta|."""
    cdef:
        intp_t d = e.shape[0]
        intp_t n = e.shape[1]
        intp_t n_chunks = sums.shape[1]
        intp_t task, start, j
    for task in prange(sums.shape[0] * n_chunks, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="static"):
        j = task // n_chunks
        start = (task % n_chunks) * CHUNK
        rounding_of_chunk(
            &losses[j, 0], radial, eps, own, &error[j], d, n,
            min(<intp_t>CHUNK, n - start), &e[j, start], &zeta[j, start],
            &y[j, start], &weight[start], &sums[j, task % n_chunks, 0])
