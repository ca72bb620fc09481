"""Products with the feature matrix Z (n × r): Z·v, Zᵀ·x, Zᵀ·diag(h)·Z.

Stage: Z, vectors over points or over features -> what a solver sees of Z.

Parallel axis: groups of rows (and, for the Gram matrix, tiles of the result).
Every sum over rows is kept for each group, and the groups are added in their
order; how rows are grouped depends on Z alone, so that results do not
depend on the number of threads, to the last bit.  Z is float or double, all else
double.  BLAS runs inside of threads: callers limit it to one thread.
"""

from cython.parallel cimport prange, threadid
from libc.limits cimport INT_MAX
from scipy.linalg.cython_blas cimport dgemm, sgemm

from _blocks cimport (
    PSK_BLOCK, PSK_DEPTH, PSK_EVEN, psk_blocks, psk_blocks_for_double,
    psk_blocks_for_float,
    psk_product,
)
from _types cimport intp_t, real_t

from pskernels._simd import MAX_LEVEL

cdef extern from "simd.h":
    void psk_set_level(int max_level)

psk_set_level(MAX_LEVEL)

cdef const psk_blocks *DOUBLES = psk_blocks_for_double(MAX_LEVEL)
cdef const psk_blocks *FLOATS = psk_blocks_for_float(MAX_LEVEL)

cdef extern from "linear.h" nogil:
    void psk_exact_double(intp_t n, intp_t r, const double *Z, const double *v,
                          double b, double b_low, const double *y, double *out)
    void psk_exact_float(intp_t n, intp_t r, const float *Z, const double *v,
                         double b, double b_low, const double *y, double *out)
    void psk_exact_t_double(intp_t n, intp_t r, const double *Z, const double *x,
                            double *sums)
    void psk_exact_t_float(intp_t n, intp_t r, const float *Z, const double *x,
                           double *sums)
    void psk_range_double(intp_t n, intp_t r, const double *Z, double *range, int ahead)
    void psk_range_float(intp_t n, intp_t r, const float *Z, double *range, int ahead)
    void psk_dot_double(intp_t n, intp_t r, const double *Z, const double *v,
                        double *out, int ahead)
    void psk_dot_float(intp_t n, intp_t r, const float *Z, const double *v,
                       double *out, int ahead)
    void psk_t_dot_double(intp_t n, intp_t stride, const intp_t *listed, intp_t r,
                          const double *Z, const double *x, const double *v,
                          double *out, int ahead)
    void psk_t_dot_float(intp_t n, intp_t stride, const intp_t *listed, intp_t r,
                         const float *Z, const double *x, const double *v,
                         double *out, int ahead)
    void psk_dots_double(intp_t n, intp_t r, intp_t m, const double *Z,
                         const double *V, double *out, intp_t stride)
    void psk_dots_float(intp_t n, intp_t r, intp_t m, const float *Z,
                        const double *V, double *out, intp_t stride)
    void psk_t_dots_double(intp_t n_rows, const intp_t *listed, intp_t r, intp_t m,
                           const double *Z, const double *X, intp_t stride,
                           double *out)
    void psk_t_dots_float(intp_t n_rows, const intp_t *listed, intp_t r, intp_t m,
                          const float *Z, const double *X, intp_t stride,
                          double *out)
    void psk_copy_rows_double(intp_t n_rows, const intp_t *rows, intp_t r,
                              const double *Z, double *out)
    void psk_copy_rows_float(intp_t n_rows, const intp_t *rows, intp_t r,
                             const float *Z, double *out)

cdef enum:
    DOT_ROWS = 256       # rows that a thread takes at a time
    FEW = 6              # outputs for which BLAS does not reach the speed of linear.h
    OUTPUT_ROWS = 256    # rows at a time for more of them
    TRIANGLE_ROWS = 96   # a multiple of every panel; PSK_DEPTH of them are in a cache
    CACHED = 1 << 23     # bytes of Z that a cache may keep from pass to pass

OUTPUT_BLOCK = OUTPUT_ROWS
FORM_ROWS = TRIANGLE_ROWS
MATMUL_ROWS = DOT_ROWS


# BLAS counts in int.  Numbers of columns, outputs and strides go through `to_int`;
# numbers of rows, which may be larger, are cut to blocks.
cdef int to_int(intp_t number) except? -1:
    """Convert the number to what BLAS takes."""
    if number > INT_MAX:
        raise OverflowError(f"BLAS takes sizes of at most {INT_MAX}, got {number}")
    return <int>number


cdef bint is_long(const real_t[:, ::1] Z) noexcept nogil:
    """Tell whether Z is too large for a cache, so that its rows are asked for ahead."""
    return Z.shape[0] * Z.shape[1] * <intp_t>sizeof(real_t) > CACHED


def column_range(
    const real_t[:, ::1] Z,       # IN  (n, r)
    double[:, :, ::1] partial,    # INOUT (n_groups, 3, r): sums, minima, maxima
    int n_threads,
):
    """Find sums, minima and maxima of the columns of Z, for each group of rows."""
    cdef:
        intp_t n = Z.shape[0]
        bint ahead = is_long(Z)
        intp_t n_groups = partial.shape[0]
        intp_t group, start, end
    for group in prange(n_groups, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="dynamic"):
        start = n * group // n_groups
        end = n * (group + 1) // n_groups
        if real_t is double:
            psk_range_double(end - start, Z.shape[1], &Z[start, 0],
                             &partial[group, 0, 0], ahead)
        else:
            psk_range_float(end - start, Z.shape[1], &Z[start, 0],
                            &partial[group, 0, 0], ahead)


def dot(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[::1] v,          # IN  (r,)
    double[::1] out,              # OUT (n,)
    int n_threads,
):
    """out := Z·v"""
    cdef:
        bint ahead = is_long(Z)
        intp_t n = Z.shape[0]
        intp_t r = Z.shape[1]
        intp_t chunk, start, n_rows
    for chunk in prange((n + DOT_ROWS - 1) // DOT_ROWS, nogil=True,
                        num_threads=n_threads, use_threads_if=n_threads > 1,
                        schedule="static"):
        start = chunk * DOT_ROWS
        n_rows = min(<intp_t>DOT_ROWS, n - start)
        if real_t is double:
            psk_dot_double(n_rows, r, &Z[start, 0], &v[0], &out[start], ahead)
        else:
            psk_dot_float(n_rows, r, &Z[start, 0], &v[0], &out[start], ahead)


def exact_residuals(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[::1] v,          # IN  (r,)
    double b,
    double b_low,                 # what a double has no room for in b
    const double[::1] y,          # IN  (n,)
    double[::1] out,              # OUT (n,)
    int n_threads,
):
    """out := Z·v + b - y, rounded once"""
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
            psk_exact_double(n_rows, r, &Z[start, 0], &v[0], b, b_low, &y[start],
                             &out[start])
        else:
            psk_exact_float(n_rows, r, &Z[start, 0], &v[0], b, b_low, &y[start],
                            &out[start])


def exact_t_dot(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[::1] x,          # IN  (n,)
    double[:, :, ::1] partial,    # INOUT (n_groups, 2, r): numbers, and what is beyond
    int n_threads,
):
    """partial += Zᵀ·x, as if in twice the digits, for each group of rows."""
    cdef:
        intp_t n = Z.shape[0]
        intp_t n_groups = partial.shape[0]
        intp_t group, start, end
    for group in prange(n_groups, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="dynamic"):
        start = n * group // n_groups
        end = n * (group + 1) // n_groups
        if real_t is double:
            psk_exact_t_double(end - start, Z.shape[1], &Z[start, 0], &x[start],
                               &partial[group, 0, 0])
        else:
            psk_exact_t_float(end - start, Z.shape[1], &Z[start, 0], &x[start],
                              &partial[group, 0, 0])


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
        bint ahead = is_long(Z)
        intp_t group, start, end
    if v is not None:
        v_data = &v[0]
    for group in prange(n_groups, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="dynamic"):
        start = n * group // n_groups
        end = n * (group + 1) // n_groups
        if real_t is double:
            psk_t_dot_double(end - start, 1, NULL, r, &Z[start, 0], &x[start],
                             v_data, &partial[group, 0], ahead)
        else:
            psk_t_dot_float(end - start, 1, NULL, r, &Z[start, 0], &x[start],
                            v_data, &partial[group, 0], ahead)


def sum_rows(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[::1] x,          # IN  (n,)
    const intp_t[::1] rows,       # IN  (n_rows,)
    intp_t first,
    intp_t stride,                # IN  > 0
    double[:, ::1] out,           # OUT (n_sums, r + 1), zeros; n_sums ≤ n_rows - first
    int n_threads,
):
    """out[b] := Σ x[i]·[Z 1][i] over i = rows[first + b], and every stride-th behind"""
    cdef:
        intp_t n_rows = rows.shape[0]
        intp_t r = Z.shape[1]
        intp_t n_sums = out.shape[0]
        bint ahead = is_long(Z)
        intp_t b, k
    for b in prange(n_sums, nogil=True, num_threads=n_threads,
                    use_threads_if=n_threads > 1, schedule="static"):
        k = first + b
        if real_t is double:
            psk_t_dot_double(n_rows - k, stride, &rows[k], r, &Z[0, 0], &x[0], NULL,
                             &out[b, 0], ahead)
        else:
            psk_t_dot_float(n_rows - k, stride, &rows[k], r, &Z[0, 0], &x[0], NULL,
                            &out[b, 0], ahead)


cdef const double *as_doubles(
    const real_t *Z,              # IN  (n, r)
    intp_t r,
    const intp_t *rows,           # IN  (n_rows,), or NULL: the first n_rows
    intp_t n_rows,
    double *buffer,               # WORK (OUTPUT_ROWS, r)
) noexcept nogil:
    """Return the rows as a block of doubles: Z itself, where it is one."""
    if real_t is double:
        if rows == NULL:
            return Z
        psk_copy_rows_double(n_rows, rows, r, Z, buffer)
    else:
        psk_copy_rows_float(n_rows, rows, r, Z, buffer)
    return buffer


def dot_outputs(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[:, ::1] V,       # IN  (m, r)
    double[:, ::1] out,           # OUT (m, n)
    intp_t first,
    intp_t last,
    double[:, ::1] buffers,       # WORK (n_threads, OUTPUT_ROWS · r)
    int n_threads,
):
    """out[:, first:last] := V·Zᵀ, of these rows of Z"""
    cdef:
        int r = to_int(Z.shape[1])
        int m = to_int(V.shape[0])
        intp_t stride = out.shape[1]
        int ld = <int>stride      # for BLAS, which is not called where it does not fit
        double one = 1
        double zero = 0
        intp_t block, start
        int n_rows
        const double *rows
    for block in prange((last - first + OUTPUT_ROWS - 1) // OUTPUT_ROWS, nogil=True,
                        num_threads=n_threads, use_threads_if=n_threads > 1,
                        schedule="dynamic"):
        start = first + block * OUTPUT_ROWS
        n_rows = <int>min(<intp_t>OUTPUT_ROWS, last - start)
        if m <= FEW or stride > INT_MAX:
            if real_t is double:
                psk_dots_double(n_rows, r, m, &Z[start, 0], &V[0, 0],
                                &out[0, start], stride)
            else:
                psk_dots_float(n_rows, r, m, &Z[start, 0], &V[0, 0],
                               &out[0, start], stride)
            continue
        rows = as_doubles(&Z[start, 0], r, NULL, n_rows, &buffers[threadid(), 0])
        # by columns: out = Z @ Vᵀ
        dgemm("T", "N", &n_rows, &m, &r, &one, <double *>rows, &r, <double *>&V[0, 0],
              &r, &zero, &out[0, start], &ld)


cdef void add_t_dot(
    const real_t *Z,              # IN  (n, r)
    int r,
    const double *X,              # IN  (m, n)
    int m,
    intp_t n,
    const intp_t *rows,           # IN  (n_rows,), or NULL: all from the first on
    intp_t n_rows,
    double *buffer,               # WORK (OUTPUT_ROWS, r + m)
    double *out,                  # INOUT (m, r)
) noexcept nogil:
    """out += X·Z, over the listed rows of Z and columns of X."""
    cdef:
        double one = 1
        double *some = buffer + OUTPUT_ROWS * r
        const double *left
        const double *right
        const intp_t *listed
        int depth, ld
        intp_t block, start, i, j
    if m <= FEW or n > INT_MAX:
        if real_t is double:
            psk_t_dots_double(n_rows, rows, r, m, Z, X, n, out)
        else:
            psk_t_dots_float(n_rows, rows, r, m, Z, X, n, out)
        return
    for block in range((n_rows + OUTPUT_ROWS - 1) // OUTPUT_ROWS):
        start = block * OUTPUT_ROWS
        depth = <int>min(<intp_t>OUTPUT_ROWS, n_rows - start)
        if rows == NULL:
            left = as_doubles(Z + start * r, r, NULL, depth, buffer)
            right = X + start
            ld = <int>n
        else:
            listed = rows + start
            left = as_doubles(Z, r, listed, depth, buffer)
            for j in range(m):
                for i in range(depth):
                    some[j * depth + i] = X[j * n + listed[i]]
            right = some
            ld = depth
        # by columns: outᵀ += Zᵀ @ Xᵀ
        dgemm("N", "N", &r, &m, &depth, &one, <double *>left, &r, <double *>right, &ld,
              &one, out, &r)


def t_dot_outputs(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[:, ::1] X,       # IN  (m, n)
    const intp_t[::1] rows,       # IN  (n_rows,), or None: all
    intp_t first,
    intp_t last,
    double[:, :, ::1] partial,    # INOUT (n_groups, m, r)
    double[:, ::1] buffers,       # WORK (n_threads, OUTPUT_ROWS · (r + m))
    int n_threads,
):
    """Σ over groups of partial += X·Z, over rows[first:last]."""
    cdef:
        intp_t n = Z.shape[0]
        int r = to_int(Z.shape[1])
        int m = to_int(X.shape[0])
        intp_t n_groups = partial.shape[0]
        bint listed = rows is not None
        intp_t group, start, end
    for group in prange(n_groups, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="dynamic"):
        start = first + (last - first) * group // n_groups
        end = first + (last - first) * (group + 1) // n_groups
        if start == end:
            continue
        if listed:
            add_t_dot(&Z[0, 0], r, &X[0, 0], m, n, &rows[start], end - start,
                      &buffers[threadid(), 0], &partial[group, 0, 0])
        else:
            add_t_dot(&Z[start, 0], r, &X[0, start], m, n, NULL, end - start,
                      &buffers[threadid(), 0], &partial[group, 0, 0])


cdef intp_t tile_side(intp_t r) noexcept nogil:
    """Cut r columns into tiles of one size: a narrow one costs a thread its share."""
    cdef:
        intp_t n_tiles = (r + PSK_BLOCK - 1) // PSK_BLOCK
        intp_t side = (r + n_tiles - 1) // n_tiles
    return (side + PSK_EVEN - 1) // PSK_EVEN * PSK_EVEN


def plan_gram(intp_t r):
    """Return the tiles of a Gram matrix of r columns, and the buffer that one takes."""
    cdef:
        intp_t side = tile_side(r)
        intp_t n_tiles = (r + side - 1) // side
    return n_tiles * (n_tiles + 1) // 2, min(2, n_tiles) * PSK_DEPTH * side


cdef void gram_tile(
    const real_t *Z,              # IN  (n, r)
    intp_t r,
    intp_t side,                  # of a tile
    const double *weight,         # IN  (n,)
    const intp_t *rows,           # IN  (n_rows,)
    intp_t n_rows,
    intp_t row_tile,
    intp_t col_tile,
    double *buffer,               # WORK (2, PSK_DEPTH, side), half for a single tile
    double *out,                  # INOUT (r, stride), row-major, upper triangle
    intp_t stride,
) noexcept nogil:
    """out += Zᵀ·diag(weight)·Z in one tile, over the listed rows."""
    cdef:
        intp_t row_start = row_tile * side
        intp_t col_start = col_tile * side
        intp_t height = min(side, r - row_start)
        intp_t width = min(side, r - col_start)
        double *right = buffer
        double *left = right
        psk_product product
        intp_t block, start, depth
    if row_tile != col_tile:
        left = buffer + PSK_DEPTH * side
    for block in range((n_rows + PSK_DEPTH - 1) // PSK_DEPTH):
        start = block * PSK_DEPTH
        depth = min(<intp_t>PSK_DEPTH, n_rows - start)
        pack_points(Z + col_start, r, weight, rows + start, depth, width, right)
        if row_tile != col_tile:
            pack_points(Z + row_start, r, weight, rows + start, depth, height, left)
        product = psk_product(
            depth=depth, height=height, width=width, scale=1, adds=True,
            upper=row_tile == col_tile, reach=depth,
        )
        DOUBLES.multiply(&product, left, right, out + row_start * stride + col_start,
                         stride)


cdef inline void pack_points(
    const real_t *Z,
    intp_t stride,
    const double *weight,
    const intp_t *rows,
    intp_t depth,
    intp_t width,
    double *out,
) noexcept nogil:
    """Pack columns of the listed rows, times the square roots of their weights."""
    if real_t is double:
        DOUBLES.pack(depth, width, rows, weight, Z, stride, out)
    else:
        DOUBLES.pack_floats(depth, width, rows, weight, Z, stride, out)


def add_weighted_gram(
    const real_t[:, ::1] Z,       # IN  (n, r)
    const double[::1] weight,     # IN  (n,), not negative
    const intp_t[::1] rows,       # IN  (n_rows,), rows to be summed
    double[:, :, ::1] out,        # INOUT (n_groups, ≥ r, ≥ r), upper triangles
    double[:, ::1] buffers,       # WORK (n_threads, as `plan_gram` says)
    int n_threads,
):
    """Σ over groups of out += Zᵀ·diag(weight)·Z, over the listed rows.

    Tiles on and above the diagonal are computed: half of the work.
    """
    cdef:
        intp_t r = Z.shape[1]
        intp_t n_rows = rows.shape[0]
        intp_t n_groups = out.shape[0]
        intp_t side = tile_side(r)
        intp_t n_tiles = (r + side - 1) // side
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
        gram_tile(&Z[0, 0], r, side, &weight[0], &rows[start], end - start, row_tile,
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
        int s = to_int(A.shape[1])
        int r = to_int(B.shape[1])
        int lda = to_int(A.strides[0] // sizeof(real_t))
        int ldo = to_int(out.strides[0] // sizeof(real_t))
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


def packed_width(const real_t[:, ::1] W, intp_t first):
    """Count the columns of what `pack_triangle` writes."""
    cdef intp_t panel = DOUBLES.panel if real_t is double else FLOATS.panel
    return (W.shape[1] - first + panel - 1) // panel * panel


def pack_triangle(
    const real_t[:, ::1] W,       # IN  (r, r)
    intp_t first,
    real_t[:, ::1] packed,        # OUT (r, packed_width)
    int n_threads,
):
    """packed := panels of W[:, first:], of PSK_DEPTH rows at a time"""
    cdef:
        const psk_blocks *blocks = DOUBLES if real_t is double else FLOATS
        intp_t r = W.shape[0]
        intp_t chunk, row
    for chunk in prange((r + PSK_DEPTH - 1) // PSK_DEPTH, nogil=True,
                        num_threads=n_threads, use_threads_if=n_threads > 1,
                        schedule="static"):
        row = chunk * PSK_DEPTH
        blocks.pack(min(<intp_t>PSK_DEPTH, r - row), r - first, NULL, NULL,
                    &W[row, first], r, &packed[row, 0])


def form_columns(
    real_t[:, :] A,               # INOUT (n, r), rows are contiguous
    const real_t[:, ::1] packed,  # IN  (r, packed_width), an upper triangle
    intp_t first,
    real_t[:, :, ::1] buffers,    # WORK (n_threads, r, FORM_ROWS)
    int n_threads,
):
    """A[:, first:] := A @ W[:, first:]

    Rows of A are packed some at a time, before their columns are written over.
    """
    cdef:
        const psk_blocks *blocks = DOUBLES if real_t is double else FLOATS
        intp_t n = A.shape[0]
        intp_t r = A.shape[1]
        intp_t stride = A.strides[0] // <intp_t>sizeof(real_t)
        intp_t chunk, start, block, row, n_rows
        real_t *rows
        psk_product product
    for chunk in prange((n + TRIANGLE_ROWS - 1) // TRIANGLE_ROWS, nogil=True,
                        num_threads=n_threads, use_threads_if=n_threads > 1,
                        schedule="dynamic"):
        start = chunk * TRIANGLE_ROWS
        n_rows = min(<intp_t>TRIANGLE_ROWS, n - start)
        rows = &buffers[threadid(), 0, 0]
        for block in range((r + PSK_DEPTH - 1) // PSK_DEPTH):
            row = block * PSK_DEPTH
            blocks.pack_transpose(min(<intp_t>PSK_DEPTH, r - row), n_rows,
                                  &A[start, row], stride, rows + row * TRIANGLE_ROWS)
        for block in range((r + PSK_DEPTH - 1) // PSK_DEPTH):
            row = block * PSK_DEPTH
            product = psk_product(
                depth=min(<intp_t>PSK_DEPTH, r - row), height=n_rows, width=r - first,
                scale=1, adds=block > 0, upper=False, reach=first - row,
            )
            blocks.multiply(&product, rows + row * TRIANGLE_ROWS, &packed[row, 0],
                            &A[start, first], stride)
