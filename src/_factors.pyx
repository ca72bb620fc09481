"""Triangular factors of symmetric matrices: UᵀU, with or without pivots, and U⁻¹.

Stage: S·K·Sᵀ, Hessians -> triangles.

Parallel axis: tiles of what is left of the matrix, rows of the inverse and of
right-hand sides.  How they are cut depends on the size alone, so that results do not
depend on the number of threads, to the last bit.  Matrices are row-major, of which the
upper triangle is read and written; to BLAS, which counts by columns, that is a lower
one: L = Uᵀ.  BLAS runs inside of threads: callers limit it to one thread.  Sides are
those of matrices in memory, and fit in an int.
"""

from cpython.exc cimport PyErr_CheckSignals
from cython.parallel cimport prange, threadid
from libc.math cimport sqrt
from scipy.linalg.cython_blas cimport (
    dgemv, dscal, dtrsm, strsm,
)
from scipy.linalg.cython_lapack cimport dpotrf, spotrf

from _blocks cimport (
    PSK_DEPTH, psk_blocks, psk_blocks_for_double, psk_blocks_for_float, psk_product,
)
from _types cimport intp_t, real_t

from pskernels._simd import MAX_LEVEL

cdef const psk_blocks *DOUBLES = psk_blocks_for_double(MAX_LEVEL)
cdef const psk_blocks *FLOATS = psk_blocks_for_float(MAX_LEVEL)

cdef enum:
    TILE = 256           # rows of U at a time
    LEFT_TILE = 192      # of what is left; a multiple of every panel
    PIVOT_ROWS = 64      # rows of U at a time with pivots, for which BLAS adds vectors
    SIDE = 96            # of blocks of systems; a multiple of every panel
    MOST_ROWS = 192      # rows of the identity at a time; a multiple of SIDE
    RIGHT_ROWS = 128     # other right-hand sides, of which there are few

PACKED_ROWS = TILE
PACKED_MORE = LEFT_TILE
SYSTEM_ROWS = MOST_ROWS
RIGHT_SIDES = RIGHT_ROWS
SYSTEM_SIDE = SIDE


cdef void take_off(
    real_t *H,                    # INOUT (r, r), upper triangle
    intp_t r,
    intp_t first,
    intp_t depth,
    real_t *packed,               # WORK (depth, r + LEFT_TILE)
    int n_threads,
) noexcept nogil:
    """Take off UᵀU of `depth` rows from `first` on, from all that is below them."""
    cdef:
        const psk_blocks *blocks = DOUBLES if real_t is double else FLOATS
        intp_t below = first + depth
        intp_t n_tiles = (r - below + LEFT_TILE - 1) // LEFT_TILE
        intp_t padded = n_tiles * LEFT_TILE
        intp_t n_parts = (depth + PSK_DEPTH - 1) // PSK_DEPTH
        real_t *U = H + first * r + below
        intp_t task, i, j, row, col, part, start, n_rows
        psk_product product
    for task in prange(n_tiles * n_parts, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="static"):
        col = task // n_parts * LEFT_TILE
        start = task % n_parts * PSK_DEPTH
        n_rows = min(<intp_t>PSK_DEPTH, depth - start)
        blocks.pack(n_rows, min(<intp_t>LEFT_TILE, r - below - col), NULL, NULL,
                    U + start * r + col, r, packed + start * padded + n_rows * col)
    for task in prange(n_tiles * (n_tiles + 1) // 2, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="dynamic"):
        j = 0
        while (j + 1) * (j + 2) // 2 <= task:
            j = j + 1
        i = task - j * (j + 1) // 2
        row = i * LEFT_TILE
        col = j * LEFT_TILE
        for part in range(n_parts):
            start = part * PSK_DEPTH
            n_rows = min(<intp_t>PSK_DEPTH, depth - start)
            product = psk_product(
                depth=n_rows, height=min(<intp_t>LEFT_TILE, r - below - row),
                width=min(<intp_t>LEFT_TILE, r - below - col), scale=-1, adds=True,
                upper=i == j, reach=n_rows,
            )
            blocks.multiply(&product, packed + start * padded + n_rows * row,
                            packed + start * padded + n_rows * col,
                            H + (below + row) * r + below + col, r)


def cholesky(
    real_t[:, ::1] H,             # INOUT (r, r), the upper triangle is read
    real_t[:, ::1] packed,        # WORK (PACKED_ROWS, r + PACKED_MORE)
    int n_threads,
):
    """Upper triangle of H := U, where H = UᵀU; return 0, or where it is not positive.

    Some rows of U are computed at a time, and taken off all that is below.
    """
    cdef:
        intp_t r = H.shape[0]
        int ld = <int>r
        real_t one = 1
        intp_t size = TILE if r > 2 * TILE else r
        intp_t start = 0
        intp_t task, col
        int width, depth
        int info = 0
    with nogil:
        while start < r:
            depth = <int>min(size, r - start)
            if real_t is double:
                dpotrf("L", &depth, &H[start, start], &ld, &info)
            else:
                spotrf("L", &depth, &H[start, start], &ld, &info)
            if info != 0:
                info = info + <int>start
                break
            for task in prange((r - start - depth + TILE - 1) // TILE,
                               num_threads=n_threads, use_threads_if=n_threads > 1,
                               schedule="dynamic"):
                col = start + depth + task * TILE
                width = <int>min(<intp_t>TILE, r - col)
                if real_t is double:
                    dtrsm("R", "L", "T", "N", &width, &depth, &one, &H[start, start],
                          &ld, &H[start, col], &ld)
                else:
                    strsm("R", "L", "T", "N", &width, &depth, &one, &H[start, start],
                          &ld, &H[start, col], &ld)
            take_off(&H[0, 0], r, start, depth, &packed[0, 0], n_threads)
            start = start + depth
            with gil:
                PyErr_CheckSignals()
    return info


cdef void swap(double *a, double *b) noexcept nogil:
    cdef double kept = a[0]
    a[0] = b[0]
    b[0] = kept


cdef void swap_points(
    double *H,                    # INOUT (r, r), upper triangle
    intp_t r,
    intp_t first,
    intp_t j,
    intp_t p,
) noexcept nogil:
    """Change the places of j < p in the triangle, in rows from `first` on."""
    cdef intp_t i
    for i in range(first, j):
        swap(H + i * r + j, H + i * r + p)
    swap(H + j * r + j, H + p * r + p)
    for i in range(j + 1, p):
        swap(H + j * r + i, H + i * r + p)
    for i in range(p + 1, r):
        swap(H + j * r + i, H + p * r + i)


def pivoted_cholesky(
    double[:, ::1] H,             # INOUT (r, r), the upper triangle is read
    double cut,
    intp_t[::1] order,            # OUT (r,), points by the size of their pivots
    double[::1] taken,            # WORK (r,)
    double[:, ::1] packed,        # WORK (PACKED_ROWS, r + PACKED_MORE)
    int n_threads,
):
    """First rows of H := U, where H = UᵀU in the order of its largest pivots.

    Return how many pivots are above the cut; rows of others hold nothing of use.
    Of the rows above `start`, which are finished, columns change their places once for
    all pivots of a block, row by row.
    """
    cdef:
        intp_t r = H.shape[0]
        int ld = <int>r
        int one_apart = 1
        double minus = -1
        double one = 1
        double largest, left, scale
        intp_t start = 0
        intp_t rank = r
        intp_t places[PIVOT_ROWS]
        intp_t i, j, p, end, row, place
        int n_right, n_above
    with nogil:
        for i in range(r):
            order[i] = i
        while start < rank:
            end = min(r, start + PIVOT_ROWS)
            for i in range(start, r):
                taken[i] = 0
            for j in range(start, end):
                p = j
                largest = H[j, j] - taken[j]
                for i in range(j + 1, r):
                    left = H[i, i] - taken[i]
                    if left > largest:
                        p = i
                        largest = left
                if not largest > cut:
                    rank = j
                    end = j
                    break
                places[j - start] = p
                if p != j:
                    swap_points(&H[0, 0], r, start, j, p)
                    taken[p] = taken[j]
                    i = order[j]
                    order[j] = order[p]
                    order[p] = i
                H[j, j] = sqrt(largest)
                n_right = <int>(r - j - 1)
                n_above = <int>(j - start)
                if n_right == 0:
                    continue
                if n_above > 0:
                    # by columns: the row, less the rows above it times column j
                    dgemv("N", &n_right, &n_above, &minus, &H[start, j + 1], &ld,
                          &H[start, j], &ld, &one, &H[j, j + 1], &one_apart)
                scale = 1 / H[j, j]
                dscal(&n_right, &scale, &H[j, j + 1], &one_apart)
                for i in range(j + 1, r):
                    taken[i] += H[j, i] * H[j, i]
            for row in range(start):
                for j in range(start, end):
                    place = places[j - start]
                    if place != j:
                        swap(&H[row, j], &H[row, place])
            if rank == r and end < r:
                take_off(&H[0, 0], r, start, end - start, &packed[0, 0], n_threads)
            start = end
            with gil:
                PyErr_CheckSignals()
    return rank


cdef void solve_some_rows(
    const real_t *U,              # IN  (r, r), upper triangular
    intp_t r,
    intp_t first,                 # a multiple of SIDE; columns before it are 0
    intp_t n_rows,                # ≤ MOST_ROWS
    real_t *B,                    # INOUT (n_rows, stride)
    intp_t stride,
    real_t *work,                 # WORK (r + SIDE, MOST_ROWS)
) noexcept nogil:
    """B := B·U⁻¹, a block of columns after the other."""
    cdef:
        const psk_blocks *blocks = DOUBLES if real_t is double else FLOATS
        real_t *solved = work         # panels of the transpose of finished columns
        real_t *right = work + r * MOST_ROWS
        int height = <int>n_rows
        int ld = <int>r
        int ldb = <int>stride
        int width
        real_t one = 1
        intp_t block, above, col, row
        psk_product product
    for block in range(first // SIDE, (r + SIDE - 1) // SIDE):
        col = block * SIDE
        width = <int>min(<intp_t>SIDE, r - col)
        for above in range(first // SIDE, block):
            row = above * SIDE
            blocks.pack(SIDE, width, NULL, NULL, U + row * r + col, r, right)
            product = psk_product(
                depth=SIDE, height=n_rows, width=width, scale=-1, adds=True,
                upper=False, reach=SIDE,
            )
            blocks.multiply(&product, solved + row * MOST_ROWS, right, B + col, stride)
        # by columns: Bᵀ = L⁻¹ · Bᵀ
        if real_t is double:
            dtrsm("L", "L", "N", "N", &width, &height, &one,
                  <double *>U + col * r + col, &ld, B + col, &ldb)
        else:
            strsm("L", "L", "N", "N", &width, &height, &one,
                  <float *>U + col * r + col, &ld, B + col, &ldb)
        if col + SIDE < r:
            blocks.pack_transpose(width, n_rows, B + col, stride,
                                  solved + col * MOST_ROWS)


def solve_rows(
    const double[:, ::1] U,       # IN  (r, r), upper triangular
    double[:, ::1] B,             # INOUT (m, r)
    double[:, :, ::1] work,       # WORK (n_threads, r + SIDE, MOST_ROWS)
    int n_threads,
):
    """B := B·U⁻¹, some rows at a time; the diagonal of U has no 0."""
    cdef:
        intp_t m = B.shape[0]
        intp_t r = U.shape[0]
        intp_t task, start
    for task in prange((m + RIGHT_ROWS - 1) // RIGHT_ROWS, nogil=True,
                       num_threads=n_threads, use_threads_if=n_threads > 1,
                       schedule="dynamic"):
        start = task * RIGHT_ROWS
        solve_some_rows(&U[0, 0], r, 0, min(<intp_t>RIGHT_ROWS, m - start),
                        &B[start, 0], r, &work[threadid(), 0, 0])


def invert_triangle(
    const double[:, ::1] U,       # IN  (r, r), upper triangular
    double[:, ::1] W,             # INOUT (r, r), zeros
    double[:, :, ::1] work,       # WORK (n_threads, r + SIDE, MOST_ROWS)
    int n_threads,
):
    """W := U⁻¹, some rows of the identity at a time; the diagonal of U has no 0."""
    cdef:
        intp_t r = U.shape[0]
        intp_t task, start, end, i
    for task in prange((r + MOST_ROWS - 1) // MOST_ROWS, nogil=True,
                       num_threads=n_threads, use_threads_if=n_threads > 1,
                       schedule="dynamic"):
        start = task * MOST_ROWS
        end = min(r, start + MOST_ROWS)
        for i in range(start, end):
            W[i, i] = 1
        solve_some_rows(&U[0, 0], r, start, end - start, &W[start, 0], r,
                        &work[threadid(), 0, 0])


def inverse_squares(
    const float[:, ::1] U,        # IN  (r, r), upper triangular
    intp_t first,                 # a multiple of MOST_ROWS
    intp_t last,
    double[::1] sums,             # OUT (r,), from first to last
    float[:, :, ::1] rows,        # WORK (n_threads, MOST_ROWS, r)
    float[:, :, ::1] work,        # WORK (n_threads, r + SIDE, MOST_ROWS)
    int n_threads,
):
    """sums[i] := Σ (U⁻¹)[i, j]², some of the diagonal of (UᵀU)⁻¹."""
    cdef:
        intp_t r = U.shape[0]
        intp_t task, start, n_rows, i, j
        double total
        float *W
    for task in prange((last - first + MOST_ROWS - 1) // MOST_ROWS, nogil=True,
                       num_threads=n_threads, use_threads_if=n_threads > 1,
                       schedule="dynamic"):
        start = first + task * MOST_ROWS
        n_rows = min(<intp_t>MOST_ROWS, last - start)
        W = &rows[threadid(), 0, 0]
        for i in range(n_rows):
            for j in range(start, r):
                W[i * r + j] = start + i == j
        solve_some_rows(&U[0, 0], r, start, n_rows, W, r, &work[threadid(), 0, 0])
        for i in range(n_rows):
            total = 0
            for j in range(start + i, r):
                total = total + <double>W[i * r + j] * W[i * r + j]
            sums[start + i] = total
