"""Blocks of W · K(landmarks, points): between the public API and native code.

`fill_product` walks over blocks of landmarks and of points; a *tiles* object
computes one block, by the compiled engine (`NativeTiles`) or where K comes from
Python (`PythonTiles`).  Between blocks Python handles signals, so that Ctrl-C
works, and progress is reported.
"""

import math
import os
import time
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from pskernels import _gram
from pskernels._points import COPY_BYTES, Rows, squared_norms, total_variance
from pskernels._progress import progress
from pskernels._threads import single_threaded_blas, threads_for
from pskernels._validation import (
    check_compressed,
    check_option,
    check_real_array,
    common_dtype,
)
from pskernels.kernels import CallableKernel, Precomputed

# A panel of K, ROW_TILE landmarks by 4 to 32 points, stays in the first-level
# cache; GROUP_BYTES of landmarks, one tile or more, in the second-level one.
# GROUP_ADDITIONS bounds the float32 sums that are not yet carried to double.
ROW_TILE = 120
GROUP_BYTES = 2**18
GROUP_ADDITIONS = 256
COL_TILE = 256

# The cost of a kernel value is counted in features, FIXED_COST of them for the
# kernel function.  A thread takes well under 0.1 s for a tile of points and a
# block of landmarks of BLOCK_COST; a first call of FIRST_CALL_COST for each
# thread shows the speed, and later ones are cut to take CALL_SECONDS.
FIXED_COST = 32
BLOCK_COST = 2**21
FIRST_CALL_COST = 2**30
CALL_SECONDS = 0.15

# Points whose moments are taken in one call, well under 0.1 s.
MOMENT_BYTES = 2**28
# Numbers that make a thread worthwhile: some 50 µs of them.
MOMENT_GRAIN = 2**15

# Side of a tile of K that comes from Python.
PYTHON_TILE = 512

# Landmarks whose columns of S·K are multiplied by Sᵀ at a time.
SKST_COLUMNS = 4096

# Cost of a scalar product of two sparse rows and of a kernel value by NumPy, and of
# each entry that they have in common, counted in features of the compiled engine.
SPARSE_PAIR_COST = 600
SPARSE_ENTRY_COST = 150

# |a|² + |b|² - 2ab carries an error of about the unit roundoff times the norms,
# which the exponential turns into a relative one.  Tiles with norms above this
# (in units of the exponent of 2) sum the squared differences instead.
DIRECT_ABOVE = {"float32": 32.0, "float64": 1024.0}

SIMD_LEVELS = ("baseline", "avx2", "avx512")
if "PSKERNELS_SIMD" in os.environ:  # at most this level, for tests and bug reports
    _gram.set_max_simd_level(
        SIMD_LEVELS.index(
            check_option(os.environ["PSKERNELS_SIMD"], "PSKERNELS_SIMD", SIMD_LEVELS)
        )
    )


def simd_level():
    """The SIMD level in use: "baseline", "avx2" or "avx512"."""
    return _gram.block_shape(True)[2]


def _ceil_to(number, unit):
    return -(-number // unit) * unit


def column_moments(X, with_variance, n_threads, memory_limit):
    """Column means of X (not finite if X is not), and the sum of variances or None.

    One pass over X, whose chunks are merged by the formula of Chan, Golub and
    LeVeque.  The result does not depend on n_threads.
    """
    n, d = X.shape
    rows = Rows(X)
    if rows.sparse:
        return _sparse_moments(X, with_variance, memory_limit)
    dtype = common_dtype(X)
    chunk_bytes = 8 * d * _gram.CHUNK_ROWS
    block_bytes = MOMENT_BYTES
    if not rows.is_contiguous(dtype):
        block_bytes = min(COPY_BYTES, memory_limit // 2)
    step = _gram.CHUNK_ROWS * max(1, block_bytes // chunk_bytes)
    n_chunks = -(-n // _gram.CHUNK_ROWS)
    means = np.empty((n_chunks, d))
    m2s = np.empty((n_chunks, d)) if with_variance else None
    for start in range(0, n, step):
        block = rows.get(start, min(n, start + step), dtype)
        first = start // _gram.CHUNK_ROWS
        chunks = slice(first, first - (-len(block) // _gram.CHUNK_ROWS))
        m2 = m2s[chunks] if with_variance else None
        n_worthwhile = threads_for(block.size, MOMENT_GRAIN, n_threads)
        _gram.column_moments(block, means[chunks], m2, n_worthwhile)
    counts = np.full((n_chunks, 1), _gram.CHUNK_ROWS)
    counts[-1] = n - (n_chunks - 1) * _gram.CHUNK_ROWS
    with np.errstate(invalid="ignore", over="ignore"):
        mean = (counts * means).sum(axis=0) / n
        if not with_variance:
            return mean, None
        between = (counts * (means - mean) ** 2).sum()
        return mean, (m2s.sum() + between) / n


def _sparse_moments(X, with_variance, memory_limit):
    n, d = X.shape
    with np.errstate(invalid="ignore", over="ignore"):
        mean = np.bincount(X.indices, weights=X.data, minlength=d) / n
        if not with_variance:
            return mean, None
        return mean, total_variance(X, np.ones(n), memory_limit)


# --------------------------------------------------------------------------
# Tiles by the compiled engine
# --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Problem:
    """What the sizes of tiles depend on."""

    dtype: np.dtype
    n: int
    m: int
    s: int  # rows of results, for all gammas
    d: int
    weights_per_landmark: float  # all rows of W if it is dense
    dense: bool
    copies_points: bool
    n_gammas: int

    @property
    def is_double(self):
        return self.dtype == np.float64

    @property
    def landmark_bytes(self):
        """A landmark is gathered and packed, and so are its weights."""
        point = self.dtype.itemsize * (2 * self.d + 1)
        # an entry of sparse weights is sliced, and has its landmark, row and value
        entry = self.dtype.itemsize if self.dense else 40
        return point + int(entry * self.weights_per_landmark) + 1

    @property
    def cost(self):
        """Of a kernel value and its use, counted in features."""
        return self.d + FIXED_COST * self.n_gammas + (self.s if self.dense else 0)


@dataclass(frozen=True)
class _Tiling:
    """Sizes of tiles (src/_gram.pyx) and of blocks, in landmarks and points.

    Sums over landmarks are cut by row_tile, group and row_tiles: were these to
    depend on the number of threads, so would the last bits of the result.
    """

    row_tile: int
    group: int  # landmark tiles
    row_tiles: int  # of a block of landmarks
    col_tile: int
    copied_tiles: int  # tiles of points copied at a time; 0 if none are
    n_threads: int

    def workspace_size(self, problem):
        """Bytes for one thread."""
        size = _gram.workspace_size(
            problem.is_double,
            problem.s,
            problem.d,
            problem.dense,
            self.row_tile,
            self.col_tile,
            self.group * self.row_tile if problem.n_gammas > 1 else 0,
        )
        return _ceil_to(size, 64)

    def n_bytes(self, problem):
        point_bytes = problem.dtype.itemsize * problem.d
        return (
            self.n_threads * self.workspace_size(problem)
            + self.row_tiles * self.row_tile * problem.landmark_bytes
            + self.copied_tiles * self.col_tile * point_bytes
        )

    def smaller(self, nr):
        """A tiling that takes less memory, down to one tile of nr points."""
        if self.copied_tiles > 1:
            return replace(self, copied_tiles=self.copied_tiles // 2)
        if self.col_tile > nr:
            return replace(self, col_tile=_ceil_to(self.col_tile // 2, nr))
        return replace(self, n_threads=self.n_threads // 2)


def _choose_tiling(problem, n_threads, memory_limit):
    itemsize = problem.dtype.itemsize
    mr, nr, _ = _gram.block_shape(problem.is_double)
    row_bytes = itemsize * problem.d
    row_tile = _ceil_to(max(1, min(ROW_TILE, GROUP_BYTES // row_bytes, problem.m)), mr)
    group = 1  # dense weights are applied after each tile
    if not problem.dense:
        weight_rows = problem.s // problem.n_gammas
        tile_additions = row_tile * problem.weights_per_landmark / weight_rows
        # landmarks, or for several gammas the arguments of their kernel values
        widest = max(row_bytes, nr * itemsize if problem.n_gammas > 1 else 0)
        group = min(
            GROUP_BYTES // (row_tile * widest), int(GROUP_ADDITIONS / tile_additions)
        )
    copied_tiles = int(problem.copies_points)
    least = _Tiling(row_tile, max(1, group), 1, nr, copied_tiles, 1)
    spare = memory_limit - least.n_bytes(problem)
    if spare < 0:
        raise ValueError(
            f"memory_limit={memory_limit} bytes is too small for {problem.s} rows of "
            f"results and {problem.d} features: at least {least.n_bytes(problem)} are "
            "needed"
        )
    # half of what is to spare for landmarks, the other for threads and points
    row_tiles = min(
        max(1, BLOCK_COST // (problem.cost * row_tile)),
        -(-problem.m // row_tile),
        1 + spare // 2 // (row_tile * problem.landmark_bytes),
    )
    col_tile = min(COL_TILE, _ceil_to(problem.n, nr))
    tiling = replace(
        least,
        row_tiles=row_tiles,
        col_tile=col_tile,
        copied_tiles=copied_tiles * max(1, COPY_BYTES // (row_bytes * col_tile)),
        n_threads=min(n_threads, -(-problem.n // col_tile)),
    )
    while tiling.n_bytes(problem) > memory_limit:
        tiling = tiling.smaller(nr)
    return tiling


def _aligned_buffers(n_threads, size):
    """(n_threads, size) bytes; rows begin on a cache line, size is a multiple."""
    buffer = np.empty(n_threads * size + 64, np.int8)
    shift = -buffer.ctypes.data % 64
    return buffer[shift : shift + n_threads * size].reshape(n_threads, size)


class NativeTiles:
    """W · K(landmarks, points) for one block of landmarks, by the engine.

    For several `gammas`, and W that is sparse, there is a product for each, an array of
    shape (gammas, s, n), from distances that are computed once.
    """

    def __init__(
        self,
        *,
        kernel,
        center,
        dtype,
        landmarks,
        points,
        weights,
        n_threads,
        memory_limit,
        gammas=None,
    ):
        self._ratios = np.ones(1)
        if gammas is not None:
            # of the largest one: distances, and with them their errors, only shrink
            kernel = replace(kernel, gamma=max(gammas))
            self._ratios = np.array(gammas) / kernel.gamma
        n_gammas = len(self._ratios)
        s = weights.shape[0]
        self.n, self.m = points.n, landmarks.n
        self.shape = (s,) if gammas is None else (n_gammas, s)  # of a column of results
        self.dtype = dtype
        self._kernel = kernel
        self._center = center
        self._landmarks = landmarks
        self._points = points
        self._weights = weights
        dense = not sp.issparse(weights)
        problem = _Problem(
            dtype=dtype,
            n=self.n,
            m=self.m,
            s=n_gammas * s,
            d=landmarks.d,
            weights_per_landmark=s if dense else weights.nnz / self.m,
            dense=dense,
            copies_points=not points.is_contiguous(dtype),
            n_gammas=n_gammas,
        )
        self._tiling = tiling = _choose_tiling(problem, n_threads, memory_limit)
        self._buffers = _aligned_buffers(
            tiling.n_threads, tiling.workspace_size(problem)
        )
        self.col_unit = tiling.col_tile
        self.row_block = tiling.row_tiles * tiling.row_tile
        self.max_cols = tiling.copied_tiles * tiling.col_tile or self.n
        tile_cost = min(self.m, self.row_block) * tiling.col_tile * problem.cost
        tiles_of_a_thread = -(-FIRST_CALL_COST // tile_cost)
        self.first_cols = tiling.n_threads * tiles_of_a_thread * self.col_unit
        self._loaded = None

    def load_rows(self, start, end):
        """Pack the landmarks [start, end) and their weights."""
        self._loaded = None  # its memory is free for the next one
        Z = self._landmarks.get(start, end, self.dtype)
        mr, _, _ = _gram.block_shape(self.dtype == np.float64)
        A = np.empty(_ceil_to(len(Z), mr) * Z.shape[1], self.dtype)
        a_norm = np.empty(_ceil_to(len(Z), mr), self.dtype)
        _gram.pack_landmarks(
            Z,
            self._center,
            A,
            a_norm,
            self._kernel.factor,
            self._kernel.normalised,
            self._tiling.n_threads,
        )
        if not np.isfinite(A).all():
            raise ValueError(
                f"points overflow {self.dtype} when they are scaled for "
                f"{self._kernel}; take a smaller gamma, or float64"
            )
        tile_starts = np.arange(0, len(Z), self._tiling.row_tile)
        norm_max = np.maximum.reduceat(a_norm, tile_starts).astype(np.float64)
        weights = self._weights
        if len(Z) < self.m:
            weights = weights[:, start:end]
        self._n_rows = len(Z)
        self._row_start = start
        self._loaded = A, a_norm, norm_max, *self._native_weights(weights, tile_starts)

    def _native_weights(self, weights, tile_starts):
        """(tile_ptr, landmark, row, weight, W) of `gram_block`."""
        if not sp.issparse(weights):
            return None, None, None, None, weights.astype(self.dtype, copy=False)
        column = np.arange(weights.shape[1], dtype=np.int32) % self._tiling.row_tile
        return (
            weights.indptr[np.append(tile_starts, weights.shape[1])].astype(np.int64),
            np.repeat(column, np.diff(weights.indptr)).astype(np.int32, copy=False),
            weights.indices.astype(np.int32, copy=False),
            weights.data.astype(self.dtype, copy=False),
            None,
        )

    def add_columns(self, out, start, end, scale, accumulate, triangle):
        """out (+)= scale · W · K(loaded landmarks, points [start, end))."""
        kernel = self._kernel
        _gram.gram_block(
            self._points.get(start, end, self.dtype),
            self._center,
            *self._loaded,
            out if out.ndim == 3 else out[None],
            self._buffers,
            (
                _gram.KERNEL_CODES[kernel.name],
                kernel.degree,
                kernel.coef0,
                DIRECT_ABOVE[str(self.dtype)],
            ),
            self._ratios,
            kernel.factor,
            kernel.normalised,
            scale,
            self._n_rows,
            self._tiling.row_tile,
            self._tiling.group,
            self._tiling.col_tile,
            accumulate,
            triangle,
            self._row_start,
            start,
            self._tiling.n_threads,
        )


# --------------------------------------------------------------------------
# Tiles that come from Python
# --------------------------------------------------------------------------


class PythonTiles:
    """The same where K comes from Python: a function of points, or an array."""

    row_block = col_unit = first_cols = max_cols = PYTHON_TILE

    def __init__(self, *, tile, n, m, point_size, dtype, weights, memory_limit):
        self.n, self.m = n, m
        s = weights.shape[0]
        self.shape = (s,)
        self.dtype = dtype
        self._tile = tile
        self._weights = weights
        # landmarks and points, the tile in two types, and the product
        needed = 8 * PYTHON_TILE * (2 * point_size + 2 * PYTHON_TILE + s)
        if needed > memory_limit:
            raise ValueError(
                f"memory_limit={memory_limit} bytes is too small for tiles of "
                f"{PYTHON_TILE} x {PYTHON_TILE} and {s} rows of results: at "
                f"least {needed} are needed"
            )

    def load_rows(self, start, end):
        self._rows = start, end

    def add_columns(self, out, start, end, scale, accumulate, triangle):
        row_start, row_end = self._rows
        if triangle and row_start >= end:
            if not accumulate:
                out[...] = 0
            return
        K = self._tile(row_start, row_end, start, end)
        if not np.isfinite(K).all():
            raise ValueError("the kernel has values that are not finite")
        if triangle:
            K = _upper_triangle(K, row_start, start)
        with single_threaded_blas():
            product = scale * (self._weights[:, row_start:row_end] @ K)
        if accumulate:
            product += out
        out[...] = product


def _upper_triangle(K, row_start, col_start):
    """K above the diagonal, half of it on the diagonal, 0 below."""
    row = row_start + np.arange(K.shape[0])[:, None]
    col = col_start + np.arange(K.shape[1])
    return np.where(row < col, K, np.where(row == col, 0.5 * K, 0.0))


def _read_only(block):
    """A view that a function cannot write through: it may be the caller's X."""
    view = block.view()
    view.flags.writeable = False
    return view


def _function_tile(function, landmarks, points, dtype):
    """K of blocks of landmarks and points, by a function of two arrays."""

    def tile(row_start, row_end, col_start, col_end):
        Z = _read_only(landmarks.get(row_start, row_end, dtype))
        X = _read_only(points.get(col_start, col_end, dtype))
        K = check_real_array(function(Z, X), "what the kernel function returns")
        if K.shape != (len(Z), len(X)):
            raise ValueError(
                f"the kernel function must return an array of shape "
                f"{(len(Z), len(X))} for inputs of shapes {Z.shape} and {X.shape}, "
                f"got {K.shape}"
            )
        return K

    return tile


def _precomputed_tile(landmarks, points):
    """K of blocks of landmarks and points, read from the array that holds it."""

    def tile(row_start, row_end, col_start, col_end):
        rows = landmarks.numbers(row_start, row_end)
        columns = points.numbers(col_start, col_end)
        if isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray):
            rows = rows[:, None]
        return landmarks.X[rows, columns]

    return tile


def _sparse_tile(kernel, landmarks, points):
    """K of blocks of sparse points, from their scalar products."""

    def tile(row_start, row_end, col_start, col_end):
        Z = landmarks.X[landmarks.numbers(row_start, row_end)].astype(np.float64)
        X = points.X[points.numbers(col_start, col_end)].astype(np.float64)
        return kernel.of_products(
            (Z @ X.T).toarray(), squared_norms(Z)[:, None], squared_norms(X)
        )

    return tile


def _by_sparse_products(kernel, landmarks, points):
    """Whether scalar products of sparse rows are cheaper than blocks made dense."""
    if not (landmarks.sparse and points.sparse and kernel.by_products):
        return False
    X = points.X
    if kernel.centred:  # as in dense tiles, far points lose their digits
        norm = kernel.factor**2 * (
            squared_norms(X).max() + squared_norms(landmarks.X).max()
        )
        if not norm <= DIRECT_ABOVE["float64"]:
            return False
    n_common = (X.nnz / X.shape[0]) ** 2 / points.d
    return points.d > SPARSE_PAIR_COST + SPARSE_ENTRY_COST * n_common


def _check_product(kernel, center, landmarks, points, weights):
    """Check all that compiled code, ours and SciPy's, takes on trust, whoever made it.

    Sketches and fitted maps may come from files, and their arrays may be changed after
    they were checked.
    """
    if weights.ndim != 2 or weights.shape[1] != landmarks.n or 0 in weights.shape:
        raise ValueError(
            f"weights must have a column for each of {landmarks.n} landmarks, got "
            f"shape {weights.shape}"
        )
    for array, name in ((weights, "weights"), (landmarks.X, "landmarks")):
        if sp.issparse(array):
            check_compressed(array, name)
    if isinstance(kernel, (CallableKernel, Precomputed)):
        return
    d = landmarks.d
    if points.d != d or np.shape(center) != (d,) or center.dtype != np.float64:
        raise ValueError(
            f"landmarks have {d} features, points {points.d}, and the center must be a "
            f"float64 array of as many numbers, got {center!r}"
        )


def make_tiles(*, kernel, landmarks, points, center, dtype, n_threads, **options):
    """The tiles of a kernel; for a precomputed one, `landmarks` are rows of K."""
    _check_product(kernel, center, landmarks, points, options["weights"])
    if isinstance(kernel, CallableKernel):
        tile = _function_tile(kernel.function, landmarks, points, dtype)
        point_size = points.d
    elif isinstance(kernel, Precomputed):
        tile = _precomputed_tile(landmarks, points)
        point_size = 0
    elif _by_sparse_products(kernel, landmarks, points):
        tile = _sparse_tile(kernel, landmarks, points)
        point_size = 0
    else:
        return NativeTiles(
            kernel=kernel,
            center=center,
            landmarks=landmarks,
            points=points,
            dtype=dtype,
            n_threads=n_threads,
            **options,
        )
    return PythonTiles(
        tile=tile,
        n=points.n,
        m=landmarks.n,
        point_size=point_size,
        dtype=dtype,
        **options,
    )


# --------------------------------------------------------------------------
# Products
# --------------------------------------------------------------------------


def fill_product(out, tiles, scale, label, verbose):
    """out = scale · W · K(landmarks, points)."""
    if out.shape != (*tiles.shape, tiles.n):
        raise ValueError(f"out must have shape {(*tiles.shape, tiles.n)}: {out.shape}")
    with progress(tiles.m * tiles.n, label, verbose) as report:
        _fill_columns(out, tiles, 0, tiles.n, tiles.m, scale, False, report)
    return out


def symmetric_product(tiles, weights, memory_limit, verbose):
    """W · K(landmarks, landmarks) · Wᵀ in float64, from half of K.

    With U the upper triangle of K and half of its diagonal, K = U + Uᵀ, and the
    product is T·Wᵀ + (T·Wᵀ)ᵀ for T = W·U.  For several gammas, one for each.
    """
    with progress(tiles.m * (tiles.m + 1) // 2, "S·K·Sᵀ", verbose) as report:

        def columns_of_t(start, end):
            T = np.empty((*tiles.shape, end - start), tiles.dtype)
            _fill_columns(T, tiles, start, end, end, 1.0, True, report)
            return T.reshape(-1, end - start)

        n_rows = math.prod(tiles.shape)
        product = times_weights_t(columns_of_t, weights, memory_limit, n_rows)
    product = product.reshape(*tiles.shape, -1)
    return product + product.swapaxes(-1, -2)


def times_weights_t(get_columns, weights, memory_limit, n_rows):
    """A · Wᵀ in float64; get_columns(start, end) are columns of A, of n_rows."""
    s, m = weights.shape
    # columns in their type and in float64; half of the limit is left to tiles
    step = max(1, min(SKST_COLUMNS * s // n_rows, memory_limit // (2 * 16 * n_rows)))
    total = np.zeros((n_rows, s))
    for start in range(0, m, step):
        end = min(m, start + step)
        A = get_columns(start, end).astype(np.float64, copy=False)
        W = weights[:, start:end]
        with single_threaded_blas():
            total += (W @ A.T).T
    return total


def _fill_columns(out, tiles, col_start, col_end, row_end, scale, triangle, report):
    """Columns [col_start, col_end) of the product, from landmarks [0, row_end).

    Points are taken in calls of about CALL_SECONDS.  Where they are cut changes
    no bit of the result: each column is computed on its own.
    """
    for row_start in range(0, row_end, tiles.row_block):
        n_rows = min(row_end, row_start + tiles.row_block) - row_start
        tiles.load_rows(row_start, row_start + n_rows)
        size = min(tiles.first_cols, tiles.max_cols)
        start = col_start
        while start < col_end:
            end = min(col_end, start + size)
            began = time.perf_counter()
            block = out[..., start - col_start : end - col_start]
            tiles.add_columns(block, start, end, scale, row_start > 0, triangle)
            seconds = max(time.perf_counter() - began, 1e-6)
            report(_n_evaluated(row_start, n_rows, start, end, triangle))
            growth = min(8.0, CALL_SECONDS / seconds)
            n_units = max(1, int((end - start) * growth / tiles.col_unit))
            size = min(n_units * tiles.col_unit, tiles.max_cols)
            start = end


def _n_evaluated(row_start, n_rows, col_start, col_end, triangle):
    """Kernel values of a block, without those below the diagonal if triangle."""
    if not triangle:
        return n_rows * (col_end - col_start)
    columns = np.arange(col_start, col_end)
    return int(np.clip(columns + 1 - row_start, 0, n_rows).sum())
