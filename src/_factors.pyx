"""Triangular factors of symmetric matrices: UᵀU, with or without pivots, and U⁻¹.

Stage: S·K·Sᵀ, Hessians -> triangles.

Parallel axis: tiles of what is left of the matrix, blocks of columns of the
inverse.  How they are cut depends on the size alone, so that results do not depend
on the number of threads, to the last bit.  Matrices are row-major, of which the
upper triangle is read and written; to BLAS, which counts by columns, that is a lower
one: L = Uᵀ.  BLAS runs inside of threads: callers limit it to one thread.  Sides are
those of matrices in memory, and fit in an int.
"""

from cython.parallel cimport prange, threadid
from libc.math cimport sqrt
from scipy.linalg.cython_blas cimport (
    dgemv, dscal, dtrmm, dtrsm, strmm, strsm,
)
from scipy.linalg.cython_lapack cimport dpotrf, dtrtri, spotrf, strtri

from _blocks cimport (
    PSK_DEPTH, psk_blocks, psk_blocks_for_double, psk_blocks_for_float, psk_product,
)
from _types cimport intp_t, real_t

from pskernels._simd import MAX_LEVEL

cdef const psk_blocks *DOUBLES = psk_blocks_for_double(MAX_LEVEL)
cdef const psk_blocks *FLOATS = psk_blocks_for_float(MAX_LEVEL)

cdef enum:
    TILE = 256           # rows of U at a time, and columns of its inverse
    LEFT_TILE = 192      # of what is left; a multiple of every panel
    PIVOT_ROWS = 64      # rows of U at a time with pivots, for which BLAS adds vectors
    RIGHT_ROWS = 128     # right-hand sides at a time

PACKED_ROWS = TILE
PACKED_MORE = LEFT_TILE


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
    return rank


def invert_triangle(
    const double[:, ::1] U,       # IN  (r, r), upper triangular
    double[:, ::1] W,             # OUT (r, r), the upper triangle is written
    int n_threads,
):
    """W := U⁻¹, a block of columns at a time; the diagonal of U has no 0."""
    cdef:
        intp_t r = U.shape[0]
        int ld = <int>r
        double one = 1
        double minus = -1
        intp_t n_blocks = (r + TILE - 1) // TILE
        intp_t task, start, i, j
        int width, above
        int info
    for task in prange(n_blocks, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="dynamic"):
        start = (n_blocks - 1 - task) * TILE  # the longest columns first
        width = <int>min(<intp_t>TILE, r - start)
        above = <int>start
        info = 0  # assigned here, so that each thread has its own
        for i in range(start + width):
            for j in range(max(i, start), start + width):
                W[i, j] = U[i, j]
        dtrtri("L", "N", &width, &W[start, start], &ld, &info)
        if above > 0:
            # by columns: Wᵀ of the columns = - (their W)ᵀ · Uᵀ of them · (Uᵀ above)⁻¹
            dtrmm("L", "L", "N", "N", &width, &above, &minus, &W[start, start], &ld,
                  &W[0, start], &ld)
            dtrsm("R", "L", "N", "N", &width, &above, &one, <double *>&U[0, 0], &ld,
                  &W[0, start], &ld)


INVERSE_COLUMNS = TILE


def inverse_squares(
    const float[:, ::1] U,        # IN  (r, r), upper triangular
    double[:, ::1] sums,          # OUT (blocks of INVERSE_COLUMNS, r)
    float[:, :, ::1] columns,     # WORK (n_threads, r, INVERSE_COLUMNS)
    int n_threads,
):
    """sums[block, i] := Σ (U⁻¹)[i, j]² over the columns j of a block.

    As `invert_triangle`, of which a block of columns is there at a time: their sum over
    blocks is the diagonal of (UᵀU)⁻¹.
    """
    cdef:
        intp_t r = U.shape[0]
        int ld = <int>r
        int ld_columns = TILE
        float one = 1
        float minus = -1
        intp_t n_blocks = sums.shape[0]
        intp_t task, block, start, i, j
        int width, above
        int info
        double total
        float *W
    for task in prange(n_blocks, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="dynamic"):
        block = n_blocks - 1 - task  # the longest columns first
        start = block * TILE
        width = <int>min(<intp_t>TILE, r - start)
        above = <int>start
        info = 0
        W = &columns[threadid(), 0, 0]
        for i in range(start + width):
            for j in range(width):
                W[i * TILE + j] = U[i, start + j] if start + j >= i else 0
        strtri("L", "N", &width, W + start * TILE, &ld_columns, &info)
        if above > 0:
            strmm("L", "L", "N", "N", &width, &above, &minus, W + start * TILE,
                  &ld_columns, W, &ld_columns)
            strsm("R", "L", "N", "N", &width, &above, &one, <float *>&U[0, 0], &ld,
                  W, &ld_columns)
        for i in range(start + width):
            total = 0
            for j in range(width):
                total = total + <double>W[i * TILE + j] * W[i * TILE + j]
            sums[block, i] = total
        for i in range(start + width, r):
            sums[block, i] = 0


def solve_rows(
    const double[:, ::1] U,       # IN  (r, r), upper triangular
    double[:, ::1] B,             # INOUT (m, r)
    int n_threads,
):
    """B := B·U⁻¹, some rows at a time; the diagonal of U has no 0."""
    cdef:
        intp_t m = B.shape[0]
        int r = <int>U.shape[0]
        double one = 1
        intp_t task, start
        int n_rows
    for task in prange((m + RIGHT_ROWS - 1) // RIGHT_ROWS, nogil=True,
                       num_threads=n_threads, use_threads_if=n_threads > 1,
                       schedule="dynamic"):
        start = task * RIGHT_ROWS
        n_rows = <int>min(<intp_t>RIGHT_ROWS, m - start)
        # by columns: Bᵀ = L⁻¹ · Bᵀ
        dtrsm("L", "L", "N", "N", &r, &n_rows, &one, <double *>&U[0, 0], &r,
              &B[start, 0], &r)
