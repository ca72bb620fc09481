"""Gram products that never form the Gram matrix: S·K, S·K·Sᵀ and K(X, Y)·B.

Every product here is W · K(landmarks, points): W = S_SG for a sketch, Bᵀ for
`kernel_matmul`.  `_fill_product` walks over blocks of landmarks and of points;
a *tiles* object computes one block, by the compiled engine (`_NativeTiles`) or
by a Python function on arrays (`_PythonTiles`).  Between blocks Python handles
signals, so that Ctrl-C works, and progress is reported.
"""

import os
import time
import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from pskernels import _gram
from pskernels._progress import progress
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._validation import (
    check_memory_limit,
    check_option,
    check_out,
    check_points,
    check_real_array,
    common_dtype,
    raise_not_finite,
)
from pskernels.kernels import CallableKernel, Precomputed, _GammaKernel, get_kernel
from pskernels.sketches import PSparsified, Sketch, _Distribution

DEFAULT_MEMORY_LIMIT = 2**30

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

CENTER_SUBSAMPLE = 32

# Copies of points that are not float and C-contiguous are made in such portions.
COPY_BYTES = 2**23

# Tiles that are evaluated in Python, and columns of S·U held for S·K·Sᵀ.
PYTHON_TILE = 512
TRIANGLE_COLUMNS = 4096

# |a|² + |b|² - 2ab carries an error of about the unit roundoff times the norms,
# which the exponential turns into a relative one.  Tiles with norms above this
# (in units of the exponent of 2) sum the squared differences instead.
DIRECT_ABOVE = {"float32": 32.0, "float64": 1024.0}

PARTS = ("SKSt", "SK")

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


class SketchedGram(NamedTuple):
    """What `sketch_gram` returns; a part that was not asked for is None."""

    SKSt: np.ndarray
    SK: np.ndarray
    sketch: Sketch


def sketch_gram(
    X,
    s=None,
    p=None,
    *,
    kernel="rbf",
    gamma=None,
    kind="rademacher",
    sketch=None,
    parts=PARTS,
    random_state=None,
    out=None,
    n_threads=None,
    memory_limit=None,
    verbose=0,
):
    """Sketch the Gram matrix K of X: S·K·Sᵀ and S·K, without forming K.

    Parameters
    ----------
    X : array of shape (n, d)
        The points.  float32 is computed and returned as float32, everything
        else as float64.  With ``kernel="precomputed"``, K itself, (n, n).
    s : int
        Rows of the sketch.
    p : float in (0, 1], optional
        Probability of a non-zero entry of S; None means min(1, 20/n).
    kernel : str, kernel object or callable
        "rbf", "laplacian", "matern12", "matern32", "matern52", "polynomial",
        "linear", "cosine", "sobolev", "precomputed" (X is K, symmetric, of which
        only rows of landmarks are read); an object such as
        ``Matern(0.5, nu=2.5)``; or a function of two arrays of points,
        (a, d) and (b, d), that returns their kernel values, (a, b).
    gamma : float, "scale" or "median", optional
        Scale of the kernel.  None means "scale": 1 / (d · X.var()).
    kind : {"rademacher", "gaussian"}
        Law of the non-zero entries.
    sketch : Sketch or distribution, optional
        In place of s, p and kind: ``SubSampling(s=100)``, or a drawn sketch.
    parts : sequence of {"SKSt", "SK"}
        What to compute.  "SKSt" alone evaluates half of K[idx, idx] and no more.
    random_state : None, int, numpy Generator or numpy RandomState
    out : ndarray of shape (s, n), optional
        Receives S·K; of the dtype of the result, in any memory order.
    n_threads : int, optional
        None means all cores this process may use.
    memory_limit : int, optional
        Bytes that may be used beside X and the results; 1 GiB by default.
    verbose : int
        1 shows progress.

    Returns
    -------
    SketchedGram
        A named tuple (SKSt, SK, sketch).

    Notes
    -----
    With m landmarks the cost is m·n evaluations of the kernel; p = 20/n has
    m ≈ 20·s.  The result does not depend on n_threads, to the last bit.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> X = np.random.default_rng(0).normal(size=(10_000, 5))
    >>> SKSt, SK, sketch = psk.sketch_gram(X, 50, 20 / 10_000, random_state=0)
    >>> SKSt.shape, SK.shape
    ((50, 50), (50, 10000))
    """
    X = check_points(X, "X")
    kernel = get_kernel(kernel, gamma)
    parts = _check_parts(parts, out)
    memory_limit = check_memory_limit(memory_limit, DEFAULT_MEMORY_LIMIT)
    n_threads = resolve_n_threads(n_threads)
    if isinstance(kernel, Precomputed) and X.shape[0] != X.shape[1]:
        raise ValueError(
            f"X must be a square Gram matrix for a precomputed kernel, got {X.shape}"
        )
    if isinstance(kernel, Precomputed) and X.flags.f_contiguous:
        X = X.T  # the same matrix, whose rows lie together
    sketch = _get_sketch(len(X), s, p, kind, sketch, random_state)
    dtype = common_dtype(X)
    if "SK" in parts:
        out = check_out(out, sketch.shape, dtype)

    kernel, center = _prepare(kernel, X, "X", n_threads, memory_limit)
    options = dict(
        kernel=kernel,
        center=center,
        dtype=dtype,
        weights=sketch.weights,
        n_threads=n_threads,
        memory_limit=memory_limit,
    )
    landmarks = _Rows(X, sketch.indices)
    SK = SKSt = None
    if "SK" in parts:
        tiles = _make_tiles(landmarks=landmarks, points=_Rows(X), **options)
        SK = _fill_product(out, tiles, sketch.scale, "S·K", verbose)
        _warn_if_not_finite(SK, kernel, "S·K")
    if "SKSt" in parts:
        if SK is not None:
            product = _times_weights_t(SK[:, sketch.indices], sketch.weights)
            SKSt = sketch.scale / 2 * (product + product.T)
        else:
            tiles = _make_tiles(landmarks=landmarks, points=landmarks, **options)
            SKSt = sketch.scale**2 * _symmetric_product(tiles, sketch.weights, verbose)
        SKSt = SKSt.astype(dtype, copy=False)
    return SketchedGram(SKSt, SK, sketch)


def kernel_matmul(
    X,
    Y,
    B,
    *,
    kernel="rbf",
    gamma=None,
    out=None,
    n_threads=None,
    memory_limit=None,
    verbose=0,
):
    """K(X, Y) @ B, without forming K(X, Y).

    Parameters
    ----------
    X : array of shape (n, d)
    Y : array of shape (m, d), or None
        None means X.  With ``kernel="precomputed"``, X is K(X, Y) and Y is None.
    B : array of shape (m,) or (m, c)
    kernel, gamma, n_threads, memory_limit, verbose
        As for `sketch_gram`; a rule for gamma is applied to Y.
    out : ndarray of shape (n,) or (n, c), optional

    Returns
    -------
    ndarray of shape (n,) or (n, c)
        float32 if X, Y and B are, else float64.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> psk.kernel_matmul(X, X, np.ones(3), kernel="linear")
    array([15., 51., 87.])
    """
    X = check_points(X, "X")
    B = check_real_array(B, "B")
    kernel = get_kernel(kernel, gamma)
    precomputed = isinstance(kernel, Precomputed)
    if precomputed and Y is not None:
        raise ValueError("Y must be None for a precomputed kernel: X is K(X, Y)")
    Y = X if Y is None else check_points(Y, "Y")
    n_landmarks = X.shape[1] if precomputed else len(Y)
    if Y.shape[1] != X.shape[1]:
        raise ValueError(
            f"X and Y must have the same number of features, got {X.shape[1]} "
            f"and {Y.shape[1]}"
        )
    if B.ndim not in (1, 2) or B.shape[0] != n_landmarks or 0 in B.shape:
        raise ValueError(
            f"B must have shape ({n_landmarks},) or ({n_landmarks}, c), got {B.shape}"
        )
    memory_limit = check_memory_limit(memory_limit, DEFAULT_MEMORY_LIMIT)
    n_threads = resolve_n_threads(n_threads)
    dtype = common_dtype(X, Y, B)
    out = check_out(out, (len(X), *B.shape[1:]), dtype)

    kernel, center = _prepare(kernel, Y, "Y", n_threads, memory_limit)
    if X is not Y:
        _prepare(kernel, X, "X", n_threads, memory_limit)
    if not np.isfinite(B).all():
        raise_not_finite(B.reshape(len(B), -1), "B")
    tiles = _make_tiles(
        kernel=kernel,
        center=center,
        dtype=dtype,
        landmarks=_Rows(X.T if precomputed else Y),
        points=_Rows(X),
        weights=B.reshape(n_landmarks, -1).T,
        n_threads=n_threads,
        memory_limit=memory_limit,
    )
    _fill_product(out.reshape(len(X), -1).T, tiles, 1.0, "K·B", verbose)
    _warn_if_not_finite(out, kernel, "K·B")
    return out


# --------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------


def _check_parts(parts, out):
    parts = (parts,) if isinstance(parts, str) else tuple(parts)
    if not parts or any(part not in PARTS for part in parts):
        raise ValueError(f"parts must be some of {PARTS}, got {parts}")
    if out is not None and "SK" not in parts:
        raise ValueError(f"out receives S·K, but parts={parts} does not ask for it")
    return parts


def _get_sketch(n, s, p, kind, sketch, random_state):
    """The drawn sketch that the arguments of `sketch_gram` describe."""
    if sketch is None:
        if s is None:
            raise TypeError("sketch_gram needs s, the rows of the sketch, or a sketch")
        sketch = PSparsified(s, p, kind)
    elif s is not None or p is not None:
        raise ValueError(f"s={s} and p={p} were given beside a sketch; give one")
    if isinstance(sketch, _Distribution):
        return sketch.draw(n, random_state)
    if not isinstance(sketch, Sketch):
        raise TypeError(
            "sketch must be a distribution such as PSparsified(s=100) or a drawn "
            f"Sketch, got {sketch!r}"
        )
    if sketch.shape[1] != n:
        raise ValueError(
            f"the sketch was drawn for {sketch.shape[1]} points, but X has {n}"
        )
    return sketch


def _prepare(kernel, X, name, n_threads, memory_limit):
    """Check the values of X; return the kernel with its gamma, and the center."""
    if isinstance(kernel, Precomputed):  # only what is needed of it is read
        return kernel, None
    needs_variance = getattr(kernel, "gamma", None) == "scale"
    mean, variance = _moments(X, needs_variance, n_threads, memory_limit)
    if not np.isfinite(mean).all():
        raise_not_finite(X, name)
    if kernel.non_negative and X.min() < 0:
        raise ValueError(
            f"the kernel {kernel} needs values that are not negative, but {name} has "
            f"a minimum of {X.min():g}"
        )
    if isinstance(kernel, _GammaKernel):
        kernel = kernel.with_gamma(X, variance)
    return kernel, _center(X) if kernel.centred else np.zeros_like(mean)


def _center(X):
    """A point amid X, subtracted before distances are taken by scalar products.

    Medians of a few points: unlike the mean, one far outlier cannot move them
    away from all others, which would cost these their digits in float32.
    """
    step = -(-len(X) // CENTER_SUBSAMPLE)
    return np.median(X[::step].astype(np.float64), axis=0)


def _moments(X, with_variance, n_threads, memory_limit):
    """Column means of X (not finite if X is not), and X.var() or None.

    One pass over X, whose chunks are merged by the formula of Chan, Golub and
    LeVeque.  The result does not depend on n_threads.
    """
    n, d = X.shape
    rows = _Rows(X)
    dtype = common_dtype(X)
    chunk_bytes = 8 * d * _gram.CHUNK_ROWS
    step = _gram.CHUNK_ROWS * max(1, min(COPY_BYTES, memory_limit // 2) // chunk_bytes)
    if rows.is_contiguous(dtype):
        step = n
    n_chunks = -(-n // _gram.CHUNK_ROWS)
    means = np.empty((n_chunks, d))
    m2s = np.empty((n_chunks, d)) if with_variance else None
    for start in range(0, n, step):
        block = rows.get(start, min(n, start + step), dtype)
        first = start // _gram.CHUNK_ROWS
        chunks = slice(first, first - (-len(block) // _gram.CHUNK_ROWS))
        m2 = m2s[chunks] if with_variance else None
        _gram.column_moments(block, means[chunks], m2, n_threads)
    counts = np.full((n_chunks, 1), _gram.CHUNK_ROWS)
    counts[-1] = n - (n_chunks - 1) * _gram.CHUNK_ROWS
    with np.errstate(invalid="ignore", over="ignore"):
        mean = (counts * means).sum(axis=0) / n
        if not with_variance:
            return mean, None
        between = (counts * (means - mean.mean()) ** 2).sum()
        return mean, (m2s.sum() + between) / (n * d)


def _warn_if_not_finite(product, kernel, name):
    if kernel.centred:  # shift-invariant, so that no value exceeds 1
        return
    n_bad = product.size - np.count_nonzero(np.isfinite(product))
    if n_bad:
        warnings.warn(
            f"{n_bad} of {product.size} values of {name} overflowed {product.dtype}; "
            "scale X, or use float64",
            RuntimeWarning,
            stacklevel=3,
        )


# --------------------------------------------------------------------------
# Blocks
# --------------------------------------------------------------------------


class _Rows:
    """Rows of X, or those at `indices`, fetched in blocks of a wanted dtype."""

    def __init__(self, X, indices=None):
        self.X = X
        self._indices = None if indices is None or len(indices) == len(X) else indices
        self.n = len(X) if indices is None else len(indices)
        self.d = X.shape[1]

    def is_contiguous(self, dtype):
        """Whether `get` makes no copy."""
        X = self.X
        return self._indices is None and X.flags.c_contiguous and X.dtype == dtype

    def numbers(self, start, end):
        """Where the rows are in X: a slice or an array of indices."""
        if self._indices is None:
            return slice(start, end)
        return self._indices[start:end]

    def get(self, start, end, dtype):
        return np.ascontiguousarray(self.X[self.numbers(start, end)], dtype)


def _make_tiles(*, kernel, landmarks, points, center, dtype, n_threads, **options):
    if isinstance(kernel, CallableKernel):
        tile = _function_tile(kernel.function, landmarks, points, dtype)
    elif isinstance(kernel, Precomputed):
        tile = _precomputed_tile(landmarks.X, landmarks, points)
    else:
        return _NativeTiles(
            kernel=kernel,
            center=center,
            landmarks=landmarks,
            points=points,
            dtype=dtype,
            n_threads=n_threads,
            **options,
        )
    return _PythonTiles(
        tile=tile, dtype=dtype, landmarks=landmarks, points=points, **options
    )


class _NativeTiles:
    """W · K(landmarks, points) for one block of landmarks, by the engine."""

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
    ):
        self.n, self.m, self.s = points.n, landmarks.n, weights.shape[0]
        self._kernel = kernel
        self._center = center
        self.dtype = dtype
        self._landmarks = landmarks
        self._points = points
        self._dense = not sp.issparse(weights)
        self._weights = weights
        self._n_threads = n_threads
        self._choose_tiles(memory_limit)

    def _choose_tiles(self, memory_limit):
        is_double = self.dtype == np.float64
        itemsize = self.dtype.itemsize
        d = self._landmarks.d
        mr, nr, _ = _gram.block_shape(is_double)
        row_tile = min(ROW_TILE, GROUP_BYTES // (itemsize * d), self.m)
        self._row_tile = -(-max(1, row_tile) // mr) * mr
        self._group = 1
        if not self._dense:
            tile_additions = self._weights.nnz / self.m * self._row_tile / self.s
            self._group = max(
                1,
                min(
                    GROUP_BYTES // (itemsize * d * self._row_tile),
                    int(GROUP_ADDITIONS / tile_additions),
                ),
            )
        cost = d + FIXED_COST + (self.s if self._dense else 0)
        row_tiles = max(1, BLOCK_COST // cost // self._row_tile)
        row_tiles = min(row_tiles, -(-self.m // self._row_tile))
        col_tile = min(COL_TILE, -(-self.n // nr) * nr)
        copied = 0 if self._points.is_contiguous(self.dtype) else COPY_BYTES

        def needed():
            # landmarks once as gathered and once as packed, weights and indices
            row_bytes = itemsize * (2 * d + 1)
            row_bytes += itemsize * self.s if self._dense else 3 * 8
            return (
                self._n_threads * self._workspace_size(col_tile)
                + row_tiles * self._row_tile * row_bytes
                + copied
            )

        while needed() > memory_limit:
            if row_tiles > 1:
                row_tiles = -(-row_tiles // 2)
            elif copied > itemsize * d * col_tile:
                copied = max(copied // 2, itemsize * d * col_tile)
            elif col_tile > nr:
                col_tile = -(-col_tile // 2 // nr) * nr
            else:
                raise ValueError(
                    f"memory_limit={memory_limit} bytes is too small for s={self.s}, "
                    f"{d} features and {self._n_threads} threads: at least {needed()} "
                    "are needed"
                )
        self._col_tile = col_tile
        self.row_block = row_tiles * self._row_tile
        self.col_unit = col_tile
        self.max_cols = self.n
        if copied:
            self.max_cols = max(1, copied // (itemsize * d * col_tile)) * col_tile
        tile_cost = min(self.m, self.row_block) * cost * col_tile
        tiles_per_thread = -(-FIRST_CALL_COST // tile_cost)
        self.first_cols = min(
            self.max_cols, self._n_threads * tiles_per_thread * col_tile
        )
        # the engine wants its buffers on a cache line
        size = -(-self._workspace_size(col_tile) // 64) * 64
        buffers = np.empty(self._n_threads * size + 64, np.int8)
        shift = -buffers.ctypes.data % 64
        self._buffers = buffers[shift : shift + self._n_threads * size].reshape(
            self._n_threads, size
        )

    def _workspace_size(self, col_tile):
        return _gram.workspace_size(
            self.dtype == np.float64,
            self.s,
            self._landmarks.d,
            self._dense,
            self._row_tile,
            col_tile,
        )

    def load_rows(self, start, end):
        """Pack the landmarks [start, end) and their weights."""
        Z = self._landmarks.get(start, end, self.dtype)
        mr, _, _ = _gram.block_shape(self.dtype == np.float64)
        n_padded = -(-len(Z) // mr) * mr
        self._A = np.empty(n_padded * Z.shape[1], self.dtype)
        self._a_norm = np.empty(n_padded, self.dtype)
        _gram.pack_landmarks(
            Z,
            self._center,
            self._A,
            self._a_norm,
            self._kernel.factor,
            self._kernel.normalised,
            self._n_threads,
        )
        tile_starts = np.arange(0, len(Z), self._row_tile)
        self._norm_max = np.maximum.reduceat(self._a_norm, tile_starts).astype(float)
        self._row_start = start
        self._n_rows = len(Z)
        weights = self._weights
        if len(Z) < self.m:
            weights = weights[:, start:end]
        if self._dense:
            self._W = weights.astype(self.dtype, copy=False)
            self._entries = None, None, None, None
            return
        column = np.repeat(np.arange(len(Z)), np.diff(weights.indptr))
        self._W = None
        self._entries = (
            weights.indptr[np.append(tile_starts, len(Z))].astype(np.int64),
            (column % self._row_tile).astype(np.int32),
            weights.indices.astype(np.int32, copy=False),
            weights.data.astype(self.dtype, copy=False),
        )

    def _native_kernel(self):
        kernel = self._kernel
        return (
            _gram.KERNEL_CODES[kernel.name],
            kernel.degree,
            kernel.coef0,
            DIRECT_ABOVE[str(self.dtype)],
        )

    def add_columns(self, out, start, end, scale, accumulate, triangle):
        """out (+)= scale · W · K(loaded landmarks, points [start, end))."""
        _gram.gram_block(
            self._points.get(start, end, self.dtype),
            self._center,
            self._A,
            self._a_norm,
            self._norm_max,
            *self._entries,
            self._W,
            out,
            self._buffers,
            self._native_kernel(),
            self._kernel.factor,
            self._kernel.normalised,
            scale,
            self._n_rows,
            self._row_tile,
            self._group,
            self._col_tile,
            accumulate,
            triangle,
            self._row_start,
            start,
            self._n_threads,
        )


class _PythonTiles:
    """The same where K comes from Python: a function of points, or an array."""

    row_block = col_unit = first_cols = max_cols = PYTHON_TILE

    def __init__(self, *, tile, dtype, landmarks, points, weights, memory_limit):
        self.n, self.m, self.s = points.n, landmarks.n, weights.shape[0]
        self.dtype = dtype
        self._tile = tile
        self._weights = weights
        # both arrays of points, the tile in two types, and the product
        needed = 8 * PYTHON_TILE * (2 * points.d + 2 * PYTHON_TILE + self.s)
        if needed > memory_limit:
            raise ValueError(
                f"memory_limit={memory_limit} bytes is too small for tiles of "
                f"{PYTHON_TILE} x {PYTHON_TILE} and s={self.s}: at least {needed} "
                "are needed"
            )

    def load_rows(self, start, end):
        self._rows = start, end

    def add_columns(self, out, start, end, scale, accumulate, triangle):
        row_start, row_end = self._rows
        if triangle and row_start >= end:
            out[...] = out if accumulate else 0
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


def _function_tile(function, landmarks, points, dtype):
    """K of blocks of landmarks and points, by a function of two arrays."""

    def tile(row_start, row_end, col_start, col_end):
        Z = landmarks.get(row_start, row_end, dtype)
        X = points.get(col_start, col_end, dtype)
        K = np.asarray(function(Z, X))
        if K.shape != (len(Z), len(X)):
            raise ValueError(
                f"the kernel function must return an array of shape "
                f"{(len(Z), len(X))} for inputs of shapes {Z.shape} and {X.shape}, "
                f"got {K.shape}"
            )
        return K

    return tile


def _precomputed_tile(K, landmarks, points):
    """K of blocks of landmarks and points, read from the array that holds it."""

    def tile(row_start, row_end, col_start, col_end):
        rows = landmarks.numbers(row_start, row_end)
        return K[rows][:, points.numbers(col_start, col_end)]

    return tile


def _upper_triangle(K, row_start, col_start):
    """K above the diagonal, half of it on the diagonal, 0 below."""
    row = row_start + np.arange(K.shape[0])[:, None]
    col = col_start + np.arange(K.shape[1])
    return np.where(row < col, K, np.where(row == col, 0.5 * K, 0.0))


def _fill_product(out, tiles, scale, label, verbose):
    """out = scale · W · K(landmarks, points)."""
    with progress(tiles.m * tiles.n, label, verbose) as report:
        _fill_columns(out, tiles, 0, tiles.n, tiles.m, scale, False, report)
    return out


def _symmetric_product(tiles, weights, verbose):
    """W · K(landmarks, landmarks) · Wᵀ in float64, from half of K.

    With U the upper triangle of K and half of its diagonal, K = U + Uᵀ, and the
    product is T·Wᵀ + (T·Wᵀ)ᵀ for T = W·U.
    """
    total = np.zeros((tiles.s, tiles.s))
    with progress(tiles.m * (tiles.m + 1) // 2, "S·K·Sᵀ", verbose) as report:
        for start in range(0, tiles.m, TRIANGLE_COLUMNS):
            end = min(tiles.m, start + TRIANGLE_COLUMNS)
            T = np.empty((tiles.s, end - start), tiles.dtype)
            _fill_columns(T, tiles, start, end, end, 1.0, True, report)
            total += _times_weights_t(T, weights[:, start:end])
    return total + total.T


def _times_weights_t(A, weights):
    """A · Wᵀ in float64."""
    A = A.astype(np.float64, copy=False)
    if sp.issparse(weights):
        return (weights @ A.T).T
    with single_threaded_blas():
        return A @ weights.T


def _fill_columns(out, tiles, col_start, col_end, row_end, scale, triangle, report):
    """Columns [col_start, col_end) of the product, from landmarks [0, row_end).

    Points are taken in calls of about CALL_SECONDS.  Where they are cut changes
    no bit of the result: each column is computed on its own.
    """
    for row_start in range(0, row_end, tiles.row_block):
        n_rows = min(row_end, row_start + tiles.row_block) - row_start
        tiles.load_rows(row_start, row_start + n_rows)
        size = tiles.first_cols
        start = col_start
        while start < col_end:
            end = min(col_end, start + size)
            began = time.perf_counter()
            block = out[:, start - col_start : end - col_start]
            tiles.add_columns(block, start, end, scale, row_start > 0, triangle)
            report((end - start) * n_rows)
            seconds = max(time.perf_counter() - began, 1e-6)
            growth = min(8.0, CALL_SECONDS / seconds)
            n_units = max(1, int((end - start) * growth / tiles.col_unit))
            size = min(n_units * tiles.col_unit, tiles.max_cols)
            start = end
