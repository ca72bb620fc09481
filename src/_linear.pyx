"""Products with the feature matrix Z (n × r): Z·v, Zᵀ·x, Zᵀ·diag(h)·Z.

Stage: Z, vectors over points or over features -> what a solver sees of Z.

Parallel axis: groups of rows (and, for the Gram matrix, tiles of the result).
Every sum over rows is kept for each group, and the groups are added in their
order; how rows are grouped depends on n and r alone, so that results do not
depend on the number of threads, to the last bit.  Z is float or double, all else
double.  BLAS runs inside of threads: callers limit it to one thread.
"""

from cython.parallel cimport prange, threadid
from scipy.linalg.cython_blas cimport dgemm, dsyrk, sgemm

from _types cimport intp_t, real_t

cdef extern from "linear.h" nogil:
    void psk_dot_double(intp_t n, intp_t r, const double *Z, const double *v,
                        double *out)
    void psk_dot_float(intp_t n, intp_t r, const float *Z, const double *v,
                       double *out)
    void psk_t_dot_double(intp_t n, intp_t r, const double *Z, const double *x,
                          const double *v, double *out)
    void psk_t_dot_float(intp_t n, intp_t r, const float *Z, const double *x,
                         const double *v, double *out)
    void psk_gather_double(intp_t n_rows, const intp_t *rows, const double *weight,
                           intp_t r, const double *Z, intp_t start, intp_t end,
                           double *out)
    void psk_gather_float(intp_t n_rows, const intp_t *rows, const double *weight,
                          intp_t r, const float *Z, intp_t start, intp_t end,
                          double *out)

cdef enum:
    DOT_ROWS = 256       # rows that a thread takes at a time
    GRAM_ROWS = 128      # GRAM_ROWS × 2 tiles stay in the second-level cache
    TILE = 256

GRAM_BUFFER = 2 * GRAM_ROWS * TILE
GRAM_TILE = TILE
MATMUL_ROWS = DOT_ROWS


def dot(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[::1] v,          # IN  (r,)
    double[::1] out,              # OUT (n,)
    int n_threads,
):
    """out := Z·v"""
    cdef:
        intp_t n = Z.shape[0]
        intp_t r = Z.shape[1]
        intp_t chunk, start, n_rows
    for chunk in prange((n + DOT_ROWS - 1) // DOT_ROWS, nogil=True,
                        num_threads=n_threads, use_threads_if=n_threads > 1,
                        schedule="static"):
        start = chunk * DOT_ROWS
        n_rows = min(<intp_t>DOT_ROWS, n - start)
        if real_t is double:
            psk_dot_double(n_rows, r, &Z[start, 0], &v[0], &out[start])
        else:
            psk_dot_float(n_rows, r, &Z[start, 0], &v[0], &out[start])


def t_dot(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[::1] x,          # IN  (n,), rows whose x is 0 are not read
    const double[::1] v,          # IN  (r + 1,) or None
    double[:, ::1] partial,       # OUT (n_groups, r + 1), zeros
    int n_threads,
):
    """Σ over groups of partial := [Z 1]ᵀ·x, or [Z 1]ᵀ·(x ∘ [Z 1]·v), in one pass."""
    cdef:
        intp_t n = Z.shape[0]
        intp_t r = Z.shape[1]
        intp_t n_groups = partial.shape[0]
        const double *v_data = NULL
        intp_t group, start, end
    if v is not None:
        v_data = &v[0]
    for group in prange(n_groups, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="dynamic"):
        start = n * group // n_groups
        end = n * (group + 1) // n_groups
        if real_t is double:
            psk_t_dot_double(end - start, r, &Z[start, 0], &x[start], v_data,
                             &partial[group, 0])
        else:
            psk_t_dot_float(end - start, r, &Z[start, 0], &x[start], v_data,
                            &partial[group, 0])


cdef void gram_tile(
    const real_t *Z,              # IN  (n, r)
    intp_t r,
    const double *weight,         # IN  (n,)
    const intp_t *rows,           # IN  (n_rows,)
    intp_t n_rows,
    intp_t row_tile,
    intp_t col_tile,
    double *buffer,               # WORK (2, GRAM_ROWS, TILE)
    double *out,                  # INOUT (r, stride), row-major, upper triangle
    intp_t stride,
) noexcept nogil:
    """One tile of out += Zᵀ·diag(weight)·Z, over the listed rows."""
    cdef:
        double one = 1
        intp_t row_start = row_tile * TILE
        intp_t row_end = min(r, row_start + TILE)
        intp_t col_start = col_tile * TILE
        intp_t col_end = min(r, col_start + TILE)
        int height = <int>(row_end - row_start)
        int width = <int>(col_end - col_start)
        int ld = <int>stride
        int depth
        double *left = buffer
        double *right = buffer + GRAM_ROWS * TILE
        double *corner = out + row_start * stride + col_start
        intp_t block, start
    for block in range((n_rows + GRAM_ROWS - 1) // GRAM_ROWS):
        start = block * GRAM_ROWS
        depth = <int>min(<intp_t>GRAM_ROWS, n_rows - start)
        if real_t is double:
            psk_gather_double(depth, rows + start, weight, r, Z, row_start, row_end,
                              left)
        else:
            psk_gather_float(depth, rows + start, weight, r, Z, row_start, row_end,
                             left)
        # to BLAS, which counts by columns, a row-major upper tile is a lower one
        if row_tile == col_tile:
            dsyrk("L", "N", &height, &depth, &one, left, &height, &one, corner, &ld)
            continue
        if real_t is double:
            psk_gather_double(depth, rows + start, weight, r, Z, col_start, col_end,
                              right)
        else:
            psk_gather_float(depth, rows + start, weight, r, Z, col_start, col_end,
                             right)
        # corner += leftᵀ @ right
        dgemm("N", "T", &width, &height, &depth, &one, right, &width, left, &height,
              &one, corner, &ld)


def add_weighted_gram(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[::1] weight,     # IN  (n,), not negative
    const intp_t[::1] rows,       # IN  (n_rows,), rows to be summed
    double[:, :, ::1] out,        # INOUT (n_groups, ≥ r, ≥ r), upper triangles
    double[:, ::1] buffers,       # WORK (n_threads, GRAM_BUFFER)
    int n_threads,
):
    """Σ over groups of out += Zᵀ·diag(weight)·Z, over the listed rows.

    Tiles on and above the diagonal are computed: half of the work.
    """
    cdef:
        intp_t r = Z.shape[1]
        intp_t n_rows = rows.shape[0]
        intp_t n_groups = out.shape[0]
        intp_t n_tiles = (r + TILE - 1) // TILE
        intp_t n_pairs = n_tiles * (n_tiles + 1) // 2
        intp_t task, group, pair, row_tile, col_tile, start, end
    if n_rows == 0:
        return
    for task in prange(n_groups * n_pairs, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="dynamic"):
        group = task // n_pairs
        pair = task % n_pairs
        col_tile = 0
        while (col_tile + 1) * (col_tile + 2) // 2 <= pair:
            col_tile = col_tile + 1
        row_tile = pair - col_tile * (col_tile + 1) // 2
        start = n_rows * group // n_groups
        end = n_rows * (group + 1) // n_groups
        gram_tile(&Z[0, 0], r, &weight[0], &rows[start], end - start, row_tile,
                  col_tile, &buffers[threadid(), 0], &out[group, 0, 0],
                  out.shape[2])


def matmul(
    const real_t[:, :] A,         # IN  (n, s), rows are contiguous
    const real_t[:, ::1] B,       # IN  (s, r)
    real_t[:, :] out,             # OUT (n, r), rows are contiguous
    int n_threads,
):
    """out := A @ B"""
    cdef:
        intp_t n = A.shape[0]
        int s = <int>A.shape[1]
        int r = <int>B.shape[1]
        int lda = <int>(A.strides[0] // sizeof(real_t))
        int ldo = <int>(out.strides[0] // sizeof(real_t))
        real_t one = 1
        real_t zero = 0
        intp_t chunk, start
        int n_rows
    for chunk in prange((n + DOT_ROWS - 1) // DOT_ROWS, nogil=True,
                        num_threads=n_threads, use_threads_if=n_threads > 1,
                        schedule="dynamic"):
        start = chunk * DOT_ROWS
        n_rows = <int>min(<intp_t>DOT_ROWS, n - start)
        # by columns: outᵀ = Bᵀ @ Aᵀ
        if real_t is double:
            dgemm("N", "N", &r, &n_rows, &s, &one, <double *>&B[0, 0], &r,
                  <double *>&A[start, 0], &lda, &zero, &out[start, 0], &ldo)
        else:
            sgemm("N", "N", &r, &n_rows, &s, &one, <float *>&B[0, 0], &r,
                  <float *>&A[start, 0], &lda, &zero, &out[start, 0], &ldo)
