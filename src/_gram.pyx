"""The tile engine: S_SG · K(landmarks, points), without ever forming K.

Stage: packed landmarks, points, weights -> out[i, j] = Σ_r W[i, r] k(z_r, x_j), for
one gamma or, from the same distances, for several.

Parallel axis: tiles of points (columns of the output).  Each tile is owned by
one thread, which goes through the tiles of landmarks in their order, so that
results are bitwise the same for any number of threads.  Inside a tile the work
is done panel by panel by the compiled kernels of engine.h: a panel of K lives
in the first-level cache and is consumed at once.

Precision: points are centred and scaled in double and then rounded to the type
of the data; norms are summed in double; float32 sums are carried over to
double after every FLUSH_AFTER additions to an output.
"""

from cython.parallel cimport prange, threadid
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from _types cimport intp_t, real_t

from pskernels._simd import MAX_LEVEL

cdef extern from "engine.h" nogil:
    ctypedef struct psk_kernel_spec:
        int kernel
        int degree
        double coef0
        double direct_above
        double factor
        int normalised

    ctypedef struct psk_engine:
        const char *name
        int mr
        int nr
        void (*kernel_panel)(
            const psk_kernel_spec *spec, int arguments_only, intp_t d, intp_t n_rows,
            const void *A, const void *a_norm, double a_norm_max, const void *B,
            const void *b_norm, void *K_panel) noexcept nogil
        void (*value_panel)(
            const psk_kernel_spec *spec, double ratio, intp_t n_rows,
            const void *arguments, void *K_panel) noexcept nogil
        void (*slope_panel)(
            const psk_kernel_spec *spec, intp_t n_rows, const void *arguments,
            void *slopes) noexcept nogil
        void (*gradient_panel)(
            const psk_kernel_spec *spec, intp_t d, intp_t n_rows, const void *A,
            const void *B, const void *slopes, double *total) noexcept nogil
        void (*scatter_panel)(
            intp_t nnz, const int32_t *landmark, const int32_t *row,
            const void *weight, const void *K_panel, void *acc) noexcept nogil
        void (*gemm_panel)(
            intp_t s, intp_t depth, const void *W, const void *K_panel,
            void *acc) noexcept nogil
        void (*scale_panel)(
            double scale, const void *acc, const double *total,
            void *values) noexcept nogil
        void (*weigh_panel)(
            intp_t n_rows, intp_t n_cols, const void *a, const void *b,
            const void *K_panel, void *out, intp_t stride) noexcept nogil
        void (*exp2_buffer)(intp_t n, const void *x, void *y) noexcept nogil

    const psk_engine *psk_engine_for_double(int max_level)
    const psk_engine *psk_engine_for_float(int max_level)

    cdef enum:
        PSK_RBF
        PSK_LAPLACIAN
        PSK_MATERN12
        PSK_MATERN32
        PSK_MATERN52
        PSK_POLYNOMIAL
        PSK_LINEAR
        PSK_SOBOLEV

cdef enum:
    # A row of W · K_tile is summed in registers over one tile of landmarks;
    # S_BLOCK rows of W (in packed form) and the tile of K fit in 1 MB of L2.
    S_BLOCK = 96
    # additions in float32 before the sum is carried over to double
    FLUSH_AFTER = 256
    MOMENT_CHUNK = 1024
    MAX_WIDTH = 64    # points of a panel, at any SIMD level
    WRITE_ROWS = 8    # a cache line of doubles
    VALUE_PANELS = 32    # of a task: so many cache lines of every row are written

KERNEL_CODES = {
    "rbf": PSK_RBF,
    "laplacian": PSK_LAPLACIAN,
    "matern12": PSK_MATERN12,
    "matern32": PSK_MATERN32,
    "matern52": PSK_MATERN52,
    "polynomial": PSK_POLYNOMIAL,
    "linear": PSK_LINEAR,
    "sobolev": PSK_SOBOLEV,
}

cdef int max_simd_level = MAX_LEVEL


cdef inline const psk_engine *get_engine(bint is_double) noexcept nogil:
    if is_double:
        return psk_engine_for_double(max_simd_level)
    return psk_engine_for_float(max_simd_level)


def block_shape(bint is_double):
    """Return (mr, nr, name): landmarks and points of a register block, SIMD level."""
    cdef const psk_engine *engine = get_engine(is_double)
    return engine.mr, engine.nr, engine.name.decode()


cdef inline double inverse_norm(const real_t *x, intp_t d) noexcept nogil:
    """Compute 1 / |x|, 0 for x = 0; scaled by max |x_k|, whose square may overflow."""
    cdef:
        intp_t k
        double largest = 0
        double norm = 0
    for k in range(d):
        largest = max(largest, fabs(x[k]))
    if largest == 0:
        return 0
    for k in range(d):
        norm += (x[k] / largest) * (x[k] / largest)
    return 1 / sqrt(norm) / largest


cdef inline void pack_panel(
    const psk_kernel_spec *spec,
    const real_t *X,          # IN  (n_points, d)
    intp_t n_points,
    intp_t d,
    const double *center,     # IN  (d,)
    intp_t width,
    real_t *packed,           # OUT (d, width), zero behind n_points
    real_t *norms,            # OUT (width,), squared norms of what was packed
) noexcept nogil:
    """packed[k, i] = factor * (X[i, k] - center[k]), normalised if asked to."""
    cdef:
        intp_t i, k
        double point_factor[MAX_WIDTH]
        double norm[MAX_WIDTH]
        real_t value
    if n_points < width:
        memset(packed, 0, d * width * sizeof(real_t))
        memset(norms, 0, width * sizeof(real_t))
    for i in range(n_points):
        point_factor[i] = inverse_norm(X + i * d, d) if spec.normalised else spec.factor
        norm[i] = 0
    for k in range(d):
        for i in range(n_points):    # innermost: no sum waits for itself
            value = <real_t>((X[i * d + k] - center[k]) * point_factor[i])
            packed[k * width + i] = value
            norm[i] += <double>value * <double>value
    for i in range(n_points):
        norms[i] = <real_t>norm[i]


def pack(
    const real_t[:, ::1] Z,       # IN  (m, d)
    const double[::1] center,     # IN  (d,)
    real_t[::1] packed,           # OUT (ceil(m / width) * d * width,)
    real_t[::1] norms,            # OUT (ceil(m / width) * width,)
    psk_kernel_spec spec,
    intp_t width,
    int n_threads,
):
    """Pack points into panels of width mr (landmarks of `gram_block`) or nr."""
    cdef:
        intp_t m = Z.shape[0]
        intp_t d = Z.shape[1]
        intp_t n_panels = (m + width - 1) // width
        intp_t panel, start
    for panel in prange(n_panels, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="static"):
        start = panel * width
        pack_panel(&spec, &Z[start, 0], min(width, m - start), d, &center[0], width,
                   &packed[start * d], &norms[start])


cdef struct Tiling:
    intp_t row_tile           # landmarks of one tile, a multiple of mr
    intp_t group              # tiles that one panel of points meets in a row
    intp_t col_tile           # points of one tile


cdef struct Window:
    # the part of W · K that a call computes
    intp_t n_rows             # landmarks
    intp_t row_start          # number of the first one (triangle only)
    intp_t col_start          # number of the first point (triangle only)
    bint triangle
    bint accumulate
    double scale


cdef struct Landmarks:
    # One block of landmarks, and the weights W = S_SG of those landmarks:
    # entries sorted by landmark if sparse, a strided (s, n_rows) array if dense.
    intp_t n_rows             # landmarks
    intp_t row_tile           # see `Tiling`
    intp_t group
    intp_t row_start          # number of the first one (triangle only)
    const void *A
    const void *a_norm
    const double *tile_norm_max
    bint dense
    const int64_t *tile_ptr   # sparse: first entry of each tile
    const int32_t *landmark   # sparse: counted from the start of the tile
    const int32_t *row
    const void *weight
    const char *W             # dense, with its strides in bytes
    intp_t W_stride_s
    intp_t W_stride_row


cdef struct Workspace:
    # one thread's memory, in panels of nr points
    void *B                   # (n_panels, d, nr)  points
    void *b_norm              # (n_panels, nr)
    void *K                   # (row_tile, nr), for every panel if W is dense
    void *arguments           # (group · row_tile, nr), for several gammas only
    void *W                   # (ceil(S_BLOCK / mr) * mr, row_tile)  dense only
    void *acc                 # (n_panels, n_ratios · s, nr)
    double *total             # the same, float32 only


cdef inline void keep_triangle(
    real_t *K_panel,          # INOUT (n_rows, nr)
    intp_t n_rows,
    intp_t nr,
    intp_t row_start,
    intp_t col_start,
) noexcept nogil:
    """Keep entries above the diagonal, halve the diagonal, and set the rest to 0.

    So U + Uᵀ is all of the symmetric K[idx, idx], from half of its entries.
    """
    cdef intp_t r, c
    for r in range(max(<intp_t>0, col_start - row_start), n_rows):
        for c in range(nr):
            if row_start + r == col_start + c:
                K_panel[r * nr + c] *= <real_t>0.5
            elif row_start + r > col_start + c:
                K_panel[r * nr + c] = 0


cdef inline void pack_weights(
    const Landmarks *lm,
    intp_t s_start,
    intp_t s_end,
    intp_t row_start,
    intp_t depth,
    intp_t mr,
    real_t *packed,           # OUT (ceil((s_end - s_start) / mr), depth, mr)
) noexcept nogil:
    cdef:
        intp_t i, r
        const char *source
        real_t *to
    for i in range(s_end - s_start):
        to = packed + (i // mr) * depth * mr + i % mr
        source = (lm.W + (s_start + i) * lm.W_stride_s
                  + row_start * lm.W_stride_row)
        for r in range(depth):
            to[r * mr] = (<const real_t *>(source + r * lm.W_stride_row))[0]


cdef inline void apply_dense(
    const psk_engine *engine,
    const Landmarks *lm,
    const Workspace *work,
    intp_t s,
    intp_t n_panels,
    intp_t tile,
    const real_t *type_tag,   # not read: tells Cython which real_t is meant
) noexcept nogil:
    """acc[panel] += W[:, tile] @ K[panel], S_BLOCK rows of W at a time."""
    cdef:
        intp_t tile_start = tile * lm.row_tile
        intp_t depth = min(lm.row_tile, lm.n_rows - tile_start)
        intp_t panel, block, s_start, s_end
    for block in range((s + S_BLOCK - 1) // S_BLOCK):
        s_start = block * S_BLOCK
        s_end = min(s, s_start + S_BLOCK)
        pack_weights(lm, s_start, s_end, tile_start, depth, engine.mr,
                     <real_t *>work.W)
        for panel in range(n_panels):
            engine.gemm_panel(
                s_end - s_start, depth, work.W,
                <real_t *>work.K + panel * lm.row_tile * engine.nr,
                <real_t *>work.acc + (panel * s + s_start) * engine.nr)


cdef inline void carry_to_double(
    real_t *acc, double *total, intp_t size, bint first
) noexcept nogil:
    """total += acc (or = the first time); acc = 0"""
    cdef intp_t i
    for i in range(size):
        total[i] = acc[i] if first else total[i] + acc[i]
        acc[i] = 0


cdef inline void fill_panel(
    const psk_engine *engine,
    const psk_kernel_spec *spec,
    bint arguments_only,
    const Landmarks *lm,
    intp_t tile,
    intp_t d,
    const real_t *B,          # IN  (d, nr)
    const real_t *b_norm,     # IN  (nr,)
    real_t *K_panel,          # OUT (row_tile, nr)
    bint triangle,
    intp_t col_start,         # number of the first point (triangle only)
) noexcept nogil:
    """K_panel := K(landmarks of the tile, points of the panel), or its arguments."""
    cdef:
        intp_t mr = engine.mr
        intp_t nr = engine.nr
        intp_t tile_start = tile * lm.row_tile
        intp_t n_rows = min(lm.row_tile, lm.n_rows - tile_start)
        intp_t row_start = lm.row_start + tile_start
        intp_t n_filled = n_rows
    if triangle:    # rows behind the last column of the panel are 0
        n_filled = max(<intp_t>0, min(n_rows, col_start + nr - row_start))
        memset(K_panel + n_filled * nr, 0, (n_rows - n_filled) * nr * sizeof(real_t))
    if n_filled > 0:
        engine.kernel_panel(
            spec, arguments_only, d, (n_filled + mr - 1) // mr * mr,
            <const real_t *>lm.A + tile_start * d,
            <const real_t *>lm.a_norm + tile_start,
            lm.tile_norm_max[tile], B, b_norm, K_panel)
    if triangle and not arguments_only:
        keep_triangle(K_panel, n_rows, nr, row_start, col_start)


cdef inline void scatter_ratio(
    const psk_engine *engine,
    const psk_kernel_spec *spec,
    const Landmarks *lm,
    const Workspace *work,
    intp_t tile,
    const real_t *arguments,  # IN  (row_tile, nr)
    double ratio,
    real_t *acc,              # INOUT (s, nr)
    bint triangle,
    intp_t col_start,
) noexcept nogil:
    """acc += W · K of one tile and panel, for one of several gammas."""
    cdef:
        intp_t mr = engine.mr
        intp_t tile_start = tile * lm.row_tile
        intp_t n_rows = min(lm.row_tile, lm.n_rows - tile_start)
        int64_t entry = lm.tile_ptr[tile]
        real_t *K_panel = <real_t *>work.K
    engine.value_panel(
        spec, ratio, (n_rows + mr - 1) // mr * mr, arguments, K_panel)
    if triangle:
        keep_triangle(K_panel, n_rows, engine.nr, lm.row_start + tile_start, col_start)
    engine.scatter_panel(
        lm.tile_ptr[tile + 1] - entry, lm.landmark + entry, lm.row + entry,
        <const real_t *>lm.weight + entry, K_panel, acc)


cdef bint gram_tile(
    const psk_engine *engine,
    const psk_kernel_spec *spec,
    const Landmarks *lm,
    const Workspace *work,
    const real_t *points,     # IN  (n_points, d)
    intp_t n_points,
    intp_t d,
    const double *center,     # IN  (d,)
    const double *ratios,     # IN  (n_ratios,)
    intp_t n_ratios,
    intp_t s,                 # rows of W
    bint triangle,
    intp_t col_start,         # number of the first point (triangle only)
) noexcept nogil:
    """acc (+ total) := W · K(landmarks, points) for one tile of points.

    For several gammas, `ratios` times that of the packed points, one above the other.

    Returns whether there is a total: float32 sums carried over to double.
    """
    cdef:
        intp_t nr = engine.nr
        intp_t n_panels = (n_points + nr - 1) // nr
        intp_t acc_rows = n_ratios * s
        intp_t acc_size = n_panels * acc_rows * nr
        intp_t n_tiles = (lm.n_rows + lm.row_tile - 1) // lm.row_tile
        intp_t n_groups = (n_tiles + lm.group - 1) // lm.group
        intp_t group, first_tile, last_tile, panel, tile, g
        int64_t entry
        double n_added = 0
        bint has_total = False
        real_t *K_panel = <real_t *>work.K
        real_t *arguments = <real_t *>work.arguments
        real_t *B
        real_t *b_norm
    for panel in range(n_panels):
        pack_panel(spec, points + panel * nr * d, min(nr, n_points - panel * nr), d,
                   center, nr, <real_t *>work.B + panel * nr * d,
                   <real_t *>work.b_norm + panel * nr)
    memset(work.acc, 0, acc_size * sizeof(real_t))

    # A group of landmark tiles stays in the second-level cache; what belongs to
    # one panel of points, its sums included, in the first-level one.
    for group in range(n_groups):
        first_tile = group * lm.group
        last_tile = min(n_tiles, first_tile + lm.group)
        for panel in range(n_panels):
            B = <real_t *>work.B + panel * nr * d
            b_norm = <real_t *>work.b_norm + panel * nr
            if lm.dense:    # invariant: groups of one tile, and one gamma
                fill_panel(engine, spec, False, lm, first_tile, d, B, b_norm,
                           K_panel + panel * lm.row_tile * nr, triangle,
                           col_start + panel * nr)
                continue
            if n_ratios > 1:    # sums of one gamma stay in the first-level cache
                for tile in range(first_tile, last_tile):
                    fill_panel(engine, spec, True, lm, tile, d, B, b_norm,
                               arguments + (tile - first_tile) * lm.row_tile * nr,
                               triangle, col_start + panel * nr)
                for g in range(n_ratios):
                    for tile in range(first_tile, last_tile):
                        scatter_ratio(
                            engine, spec, lm, work, tile,
                            arguments + (tile - first_tile) * lm.row_tile * nr,
                            ratios[g],
                            <real_t *>work.acc + (panel * acc_rows + g * s) * nr,
                            triangle, col_start + panel * nr)
                continue
            for tile in range(first_tile, last_tile):
                fill_panel(engine, spec, False, lm, tile, d, B, b_norm, K_panel,
                           triangle, col_start + panel * nr)
                entry = lm.tile_ptr[tile]
                engine.scatter_panel(
                    lm.tile_ptr[tile + 1] - entry, lm.landmark + entry,
                    lm.row + entry, <const real_t *>lm.weight + entry, K_panel,
                    <real_t *>work.acc + panel * s * nr)
        if lm.dense:
            apply_dense(engine, lm, work, s, n_panels, first_tile, points)
            n_added += lm.row_tile
        else:
            n_added += (<double>(lm.tile_ptr[last_tile] - lm.tile_ptr[first_tile])
                        / s)
        if real_t is float:
            if n_added >= FLUSH_AFTER:
                carry_to_double(
                    <real_t *>work.acc, work.total, acc_size, not has_total)
                has_total = True
                n_added = 0
    return has_total


cdef void write_tile(
    const psk_engine *engine,
    const Workspace *work,
    bint has_total,
    real_t[:, :, :] out,      # OUT (n_ratios, s, n), columns [col_start, col_end)
    intp_t col_start,
    intp_t col_end,
    double scale,
    bint accumulate,
) noexcept nogil:
    """out = scale * (acc + total), or += if `accumulate`.

    WRITE_ROWS rows of a panel at a time: where out has columns that lie together,
    as features of a point do, these are a cache line of each.
    """
    cdef:
        intp_t s = out.shape[1]
        intp_t nr = engine.nr
        intp_t n_panels = (col_end - col_start + nr - 1) // nr
        intp_t n_blocks = (s + WRITE_ROWS - 1) // WRITE_ROWS
        intp_t g, panel, block, start, n_rows, i, c, at, col, n_points
        real_t values[WRITE_ROWS * MAX_WIDTH]
    for panel in range(n_panels):
        col = col_start + panel * nr
        n_points = min(nr, col_end - col)
        for g in range(out.shape[0]):
            for block in range(n_blocks):
                start = block * WRITE_ROWS
                n_rows = min(<intp_t>WRITE_ROWS, s - start)
                at = ((panel * out.shape[0] + g) * s + start) * nr
                for i in range(n_rows):
                    engine.scale_panel(
                        scale, <real_t *>work.acc + at + i * nr,
                        work.total + at + i * nr if has_total else NULL,
                        values + i * nr)
                if accumulate:
                    for i in range(n_rows):
                        for c in range(n_points):
                            values[i * nr + c] += out[g, start + i, col + c]
                if out.strides[2] == sizeof(real_t):
                    for i in range(n_rows):
                        memcpy(&out[g, start + i, col], values + i * nr,
                               n_points * sizeof(real_t))
                    continue
                for c in range(n_points):
                    for i in range(n_rows):
                        out[g, start + i, col + c] = values[i * nr + c]


def workspace_size(
    bint is_double, intp_t s, intp_t d, bint dense, intp_t row_tile, intp_t col_tile,
    intp_t argument_rows,
):
    """Count bytes of a thread's workspace, for tiles of that size and s result rows.

    argument_rows is group · row_tile for several gammas, else 0.
    """
    cdef:
        intp_t itemsize = 8 if is_double else 4
        intp_t acc = col_tile * s
        intp_t nr = get_engine(is_double).nr
        intp_t K = row_tile * (col_tile if dense else nr) + argument_rows * nr
        intp_t W = (S_BLOCK + get_engine(is_double).mr) * row_tile if dense else 0
        intp_t total = 0 if is_double else 8 * acc
    # every part is rounded up to a cache line, see `lay_out`
    return total + itemsize * (col_tile * (d + 1) + K + W + acc) + 7 * 64


cdef inline char *take(char **cursor, intp_t n_bytes) noexcept nogil:
    """Take the next n_bytes of a buffer, and move the cursor on to a cache line."""
    cdef char *part = cursor[0]
    cursor[0] = part + (n_bytes + 63) // 64 * 64
    return part


cdef Workspace lay_out(
    char *buffer, bint is_double, intp_t s, intp_t d, bint dense, intp_t row_tile,
    intp_t col_tile, intp_t argument_rows,
) noexcept nogil:
    """Cut one thread's buffer into the parts of `workspace_size`."""
    cdef:
        Workspace work
        intp_t itemsize = 8 if is_double else 4
        const psk_engine *engine = get_engine(is_double)
    work.B = take(&buffer, itemsize * col_tile * d)
    work.b_norm = take(&buffer, itemsize * col_tile)
    work.K = take(
        &buffer, itemsize * row_tile * (col_tile if dense else engine.nr))
    work.arguments = take(&buffer, itemsize * argument_rows * engine.nr)
    work.W = take(
        &buffer, itemsize * (S_BLOCK + engine.mr) * row_tile if dense else 0)
    work.acc = take(&buffer, itemsize * col_tile * s)
    work.total = <double *>buffer
    return work


def gram_block(
    const real_t[:, ::1] points,      # IN  (n, d)
    const double[::1] center,         # IN  (d,)
    const real_t[::1] A,              # IN  packed landmarks
    const real_t[::1] a_norm,         # IN  their squared norms
    const double[::1] tile_norm_max,  # IN  (n_tiles,) largest a_norm of a tile
    const int64_t[::1] tile_ptr,      # IN  (n_tiles + 1,)     None if W is dense
    const int32_t[::1] landmark,      # IN  (nnz,)             None if W is dense
    const int32_t[::1] row,           # IN  (nnz,)             None if W is dense
    const real_t[::1] weight,         # IN  (nnz,)             None if W is dense
    const real_t[:, :] W,             # IN  (s, n_landmarks)   None if sparse
    real_t[:, :, :] out,              # OUT (n_ratios, s, n)
    char[:, ::1] buffers,             # WORK (n_threads, workspace_size)
    const double[::1] ratios,         # IN  (n_ratios,), (1,) if W is dense
    psk_kernel_spec spec,
    Tiling tiling,
    Window window,
    int n_threads,
):
    """out (+)= scale * W · K(landmarks, points).

    With `triangle`, row_start and col_start of the window are the numbers of the first
    landmark and of the first point in one common order, and only entries of K on and
    above its diagonal count (`keep_triangle`).
    """
    cdef:
        const psk_engine *engine = get_engine(real_t is double)
        Landmarks lm
        Workspace work
        intp_t n = points.shape[0]
        intp_t d = points.shape[1]
        intp_t n_ratios = out.shape[0]
        intp_t s = out.shape[1]
        intp_t n_tiles = (n + tiling.col_tile - 1) // tiling.col_tile
        intp_t tile, start, end
        bint has_total
    lm.n_rows = window.n_rows
    lm.row_tile = tiling.row_tile
    lm.group = tiling.group
    lm.row_start = window.row_start
    lm.A = &A[0]
    lm.a_norm = &a_norm[0]
    lm.tile_norm_max = &tile_norm_max[0]
    lm.dense = W is not None
    if lm.dense:
        lm.W = <const char *>&W[0, 0]
        lm.W_stride_s = W.strides[0]
        lm.W_stride_row = W.strides[1]
    elif weight.shape[0] > 0:
        lm.tile_ptr = &tile_ptr[0]
        lm.landmark = &landmark[0]
        lm.row = &row[0]
        lm.weight = &weight[0]
    else:
        raise ValueError("no weights: every landmark has a non-null column")

    for tile in prange(n_tiles, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="dynamic"):
        start = tile * tiling.col_tile
        end = min(n, start + tiling.col_tile)
        work = lay_out(&buffers[threadid(), 0], real_t is double, n_ratios * s, d,
                       lm.dense, lm.row_tile, tiling.col_tile,
                       lm.group * lm.row_tile if n_ratios > 1 else 0)
        has_total = gram_tile(
            engine, &spec, &lm, &work, &points[start, 0], end - start, d, &center[0],
            &ratios[0], n_ratios, s, window.triangle, window.col_start + start)
        write_tile(engine, &work, has_total, out, start, end, window.scale,
                   window.accumulate)


def kernel_values(
    const real_t[::1] A,              # IN  packed in panels of mr
    const real_t[::1] a_norm,         # IN  their squared norms
    const double[::1] tile_norm_max,  # IN  (tiles of A,) largest a_norm of a tile
    const real_t[::1] a_weight,       # IN  (n_a,)
    const real_t[::1] B,              # IN  packed in panels of nr
    const real_t[::1] b_norm,         # IN  their squared norms
    const real_t[::1] b_weight,       # IN  (n_b,)
    real_t[:, :, :] out,              # OUT (n_ratios, n_a, n_b), rows are contiguous
    real_t[:, :, ::1] panels,         # WORK (n_threads, 2, row_tile · nr)
    const double[::1] ratios,         # IN  (n_ratios,)
    psk_kernel_spec spec,
    intp_t row_tile,                  # of A
    int n_threads,
):
    """out[:, i, j] = a_weight[i] * k(a_i, b_j) * b_weight[j].

    Where a row of W has one entry, as those of sub-sampling do, nothing is summed: a
    panel of K is the result.  Parallel axes: tiles of A and groups of panels of B.
    """
    cdef:
        const psk_engine *engine = get_engine(real_t is double)
        intp_t nr = engine.nr
        intp_t mr = engine.mr
        intp_t n_a = out.shape[1]
        intp_t n_b = out.shape[2]
        intp_t d = B.shape[0] // b_norm.shape[0]
        intp_t n_panels = (n_b + nr - 1) // nr
        intp_t n_tiles = (n_a + row_tile - 1) // row_tile
        intp_t n_groups = (n_panels + VALUE_PANELS - 1) // VALUE_PANELS
        intp_t stride = out.strides[1] // sizeof(real_t)
        intp_t task, tile, start, n_rows, n_padded, panel, end, col, n_cols, g
        real_t *K_panel
        real_t *arguments
    for task in prange(n_groups * n_tiles, nogil=True, num_threads=n_threads,
                       use_threads_if=n_threads > 1, schedule="dynamic"):
        arguments = &panels[threadid(), 0, 0]
        K_panel = &panels[threadid(), 1, 0]
        tile = task // n_groups
        start = tile * row_tile
        n_rows = min(row_tile, n_a - start)
        n_padded = (n_rows + mr - 1) // mr * mr
        end = min(n_panels, (task % n_groups + 1) * VALUE_PANELS)
        for panel in range(task % n_groups * VALUE_PANELS, end):
            col = panel * nr
            n_cols = min(nr, n_b - col)
            engine.kernel_panel(
                &spec, out.shape[0] > 1, d, n_padded, &A[start * d], &a_norm[start],
                tile_norm_max[tile], &B[col * d], &b_norm[col], arguments)
            if out.shape[0] == 1:
                engine.weigh_panel(n_rows, n_cols, &a_weight[start], &b_weight[col],
                                   arguments, &out[0, start, col], stride)
                continue
            for g in range(out.shape[0]):
                engine.value_panel(&spec, ratios[g], n_padded, arguments, K_panel)
                engine.weigh_panel(n_rows, n_cols, &a_weight[start], &b_weight[col],
                                   K_panel, &out[g, start, col], stride)


cdef void gradient_tile(
    const psk_engine *engine,
    const psk_kernel_spec *spec,
    const real_t *A,          # IN  packed landmarks
    const real_t *a_norm,
    const double *tile_norm_max,
    const real_t *W,          # IN  (n_outputs, n_rows)
    intp_t n_outputs,
    intp_t n_rows,
    intp_t row_tile,
    const real_t *B,          # IN  (d, nr)
    const real_t *b_norm,     # IN  (nr,)
    const real_t *ones,       # IN  (nr,)
    intp_t d,
    real_t *panels,           # WORK (2, row_tile · nr)
    double *total,            # OUT (n_outputs, d, nr)
) noexcept nogil:
    """total := Σ_r W[:, r] ∇k(z_r, ·) at the points of one panel."""
    cdef:
        intp_t mr = engine.mr
        intp_t nr = engine.nr
        intp_t tile, start, n, o
        real_t *slopes = panels
        real_t *weighed = panels + row_tile * nr
    memset(total, 0, n_outputs * d * nr * sizeof(double))
    for tile in range((n_rows + row_tile - 1) // row_tile):
        start = tile * row_tile
        n = min(row_tile, n_rows - start)
        engine.kernel_panel(
            spec, True, d, (n + mr - 1) // mr * mr, A + start * d, a_norm + start,
            tile_norm_max[tile], B, b_norm, weighed)
        engine.slope_panel(spec, (n + mr - 1) // mr * mr, weighed, slopes)
        for o in range(n_outputs):
            engine.weigh_panel(n, nr, W + o * n_rows + start, ones, slopes, weighed, nr)
            engine.gradient_panel(
                spec, d, n, A + start * d, B, weighed, total + o * d * nr)


def gradient_block(
    const real_t[:, ::1] points,      # IN  (n, d)
    const double[::1] center,         # IN  (d,)
    const real_t[::1] A,              # IN  packed landmarks
    const real_t[::1] a_norm,         # IN  their squared norms
    const double[::1] tile_norm_max,  # IN  (n_tiles,) largest a_norm of a tile
    const real_t[:, ::1] W,           # IN  (n_outputs, n_rows)
    real_t[:, :, :] out,              # OUT (n_outputs, d, n)
    char[:, ::1] buffers,             # WORK (n_threads, gradient_workspace_size)
    psk_kernel_spec spec,
    intp_t row_tile,
    bint accumulate,
    int n_threads,
):
    """out (+)= factor * Σ_r W[:, r] ∇k(z_r, ·), k of packed points.

    Parallel axis: panels of points, each owned by one thread.  Sums of a tile of
    landmarks are carried to double.
    """
    cdef:
        const psk_engine *engine = get_engine(real_t is double)
        intp_t n = points.shape[0]
        intp_t d = points.shape[1]
        intp_t nr = engine.nr
        intp_t n_outputs = out.shape[0]
        intp_t panel, start, n_points, o, k, c
        double scale = spec.factor
        char *cursor
        real_t *panels
        real_t *B
        real_t *b_norm
        real_t *ones
        double *total
    for panel in prange((n + nr - 1) // nr, nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="static"):
        cursor = &buffers[threadid(), 0]
        total = <double *>take(&cursor, n_outputs * d * nr * sizeof(double))
        panels = <real_t *>take(&cursor, 2 * row_tile * nr * sizeof(real_t))
        B = <real_t *>take(&cursor, d * nr * sizeof(real_t))
        b_norm = <real_t *>take(&cursor, nr * sizeof(real_t))
        ones = <real_t *>cursor
        for c in range(nr):
            ones[c] = 1
        start = panel * nr
        n_points = min(nr, n - start)
        pack_panel(&spec, &points[start, 0], n_points, d, &center[0], nr, B, b_norm)
        gradient_tile(engine, &spec, &A[0], &a_norm[0], &tile_norm_max[0], &W[0, 0],
                      n_outputs, W.shape[1], row_tile, B, b_norm, ones, d, panels,
                      total)
        for c in range(n_points):
            for o in range(n_outputs):
                for k in range(d):
                    out[o, k, start + c] = <real_t>(
                        scale * total[(o * d + k) * nr + c]
                        + (out[o, k, start + c] if accumulate else 0))


def gradient_workspace_size(
    bint is_double, intp_t n_outputs, intp_t d, intp_t row_tile
):
    """Count bytes of a thread's workspace of `gradient_block`."""
    cdef:
        intp_t itemsize = 8 if is_double else 4
        intp_t nr = get_engine(is_double).nr
    return nr * (8 * n_outputs * d + itemsize * (2 * row_tile + d + 2)) + 5 * 64


def column_moments(
    const real_t[:, ::1] X,   # IN  (n, d)
    double[:, ::1] mean,      # OUT (n_chunks, d)
    double[:, ::1] m2,        # OUT (n_chunks, d), or None
    int n_threads,
):
    """Compute column means of each chunk of rows; m2: sums of squared deviations."""
    cdef:
        intp_t n = X.shape[0]
        intp_t d = X.shape[1]
        bint with_m2 = m2 is not None
        intp_t chunk, start, end, i, k
        double deviation
    for chunk in prange(mean.shape[0], nogil=True, num_threads=n_threads,
                        use_threads_if=n_threads > 1, schedule="static"):
        start = chunk * MOMENT_CHUNK
        end = min(n, start + MOMENT_CHUNK)
        for k in range(d):
            mean[chunk, k] = 0
        for i in range(start, end):
            for k in range(d):
                mean[chunk, k] += X[i, k]
        for k in range(d):
            mean[chunk, k] /= end - start
        if with_m2:
            for k in range(d):
                m2[chunk, k] = 0
            for i in range(start, end):
                for k in range(d):
                    deviation = X[i, k] - mean[chunk, k]
                    m2[chunk, k] += deviation * deviation


CHUNK_ROWS = MOMENT_CHUNK


def exp2_buffer(
    const real_t[::1] x,      # IN  (n,), not above 0; n is a multiple of 6 * nr
    real_t[::1] out,          # OUT (n,)
    intp_t n_repeats,
):
    """out := 2^x, n_repeats times over: for its test and for the roofline."""
    cdef:
        const psk_engine *engine = get_engine(real_t is double)
        intp_t _repeat
    with nogil:
        for _repeat in range(n_repeats):
            engine.exp2_buffer(x.shape[0], &x[0], &out[0])
