"""Tiles of W · K(landmarks, points) by the compiled engine, and columns' moments.

    NativeTiles     W of any kind: panels of K are summed up in the cache
    SelectedTiles   W with one entry in each row: panels of K are the result
    GradientTiles   gradients of W · K(landmarks, ·) at the points

What they are part of, and tiles that come from Python, is in `_tiles`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from pskernels import _gram
from pskernels._points import COPY_BYTES, Rows, in_metric, total_variance
from pskernels._threads import threads_for
from pskernels._types import Array, Dtype, Indices, PointsLike, Weights
from pskernels._validation import common_dtype

if TYPE_CHECKING:
    from pskernels.kernels import Kernel
    from pskernels.point_metric import Metric

# A panel of K, ROW_TILE landmarks by 4 to 32 points, stays in the first-level
# cache; GROUP_BYTES of landmarks, one tile or more, in the second-level one.
# GROUP_ADDITIONS bounds the float32 sums that are not yet carried to double.
# COL_TILE points are one thread's.  From half to twice of them, of ROW_TILE and of
# GROUP_BYTES, times are within 5 % (src/NOTES.md; `python bench/roofline.py`).
ROW_TILE = 120
GROUP_BYTES = 2**18
GROUP_ADDITIONS = 256
COL_TILE = 256

# The cost of a kernel value is counted in features, FIXED_COST of them for the
# kernel function (`python bench/roofline.py` prints times by features).  A thread takes
# well under 0.1 s for a tile of points and a block of landmarks of BLOCK_COST; a first
# call of FIRST_CALL_COST for each thread shows the speed, by which later ones are cut.
FIXED_COST = 32
BLOCK_COST = 2**21
FIRST_CALL_COST = 2**30

# Cost that makes a thread worthwhile: some 50 µs of it;
# `python bench/estimators.py overhead` prints times of short fits.
VALUE_GRAIN = 2**20

# Points whose moments are taken in one call, well under 0.1 s.
MOMENT_BYTES = 2**28
# Numbers that make a thread worthwhile: some 50 µs of them.
MOMENT_GRAIN = 2**15

# |a|² + |b|² - 2ab carries an error of about the unit roundoff times the norms,
# which the exponential turns into a relative one.  Tiles with norms above this
# (in units of the exponent of 2) sum the squared differences instead.
DIRECT_ABOVE = {"float32": 32.0, "float64": 1024.0}


def simd_level() -> str:
    """Name the SIMD level in use: "baseline", "avx2" or "avx512"."""
    return _gram.block_shape(True)[2]


def _ceil_to(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def column_moments(
    X: PointsLike,
    with_variance: bool,
    n_threads: int,
    memory_limit: int,
    metric: "Metric | None" = None,
) -> tuple[Array, float | None]:
    """Find column means (not finite if X is not), and the sum of variances or None.

    One pass over X, whose chunks are merged by the formula of Chan, Golub and
    LeVeque.  The result does not depend on n_threads.  With a metric, moments of L·x.
    """
    X = in_metric(X, metric)
    n, d = X.shape
    rows = Rows(X)
    if sp.issparse(X):
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
        m2 = None if m2s is None else m2s[chunks]
        n_worthwhile = threads_for(block.size, MOMENT_GRAIN, n_threads)
        _gram.column_moments(block, means[chunks], m2, n_worthwhile)
    counts = np.full((n_chunks, 1), _gram.CHUNK_ROWS)
    counts[-1] = n - (n_chunks - 1) * _gram.CHUNK_ROWS
    with np.errstate(invalid="ignore", over="ignore"):
        mean = (counts * means).sum(axis=0) / n
        if m2s is None:
            return mean, None
        between = (counts * (means - mean) ** 2).sum()
        return mean, (m2s.sum() + between) / n


def _sparse_moments(
    X: Any, with_variance: bool, memory_limit: int
) -> tuple[Array, float | None]:
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
    def is_double(self) -> bool:
        return self.dtype == np.float64

    @property
    def landmark_bytes(self) -> int:
        """A landmark is gathered and packed, and so are its weights."""
        point = self.dtype.itemsize * (2 * self.d + 1)
        # an entry of sparse weights is sliced, and has its landmark, row and value
        entry = self.dtype.itemsize if self.dense else 40
        return point + int(entry * self.weights_per_landmark) + 1

    @property
    def cost(self) -> int:
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

    def workspace_size(self, problem: _Problem) -> int:
        """Count the bytes for one thread."""
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

    def n_bytes(self, problem: _Problem) -> int:
        point_bytes = problem.dtype.itemsize * problem.d
        return (
            self.n_threads * self.workspace_size(problem)
            + self.row_tiles * self.row_tile * problem.landmark_bytes
            + self.copied_tiles * self.col_tile * point_bytes
        )

    def smaller(self, nr: int) -> "_Tiling":
        """Make a tiling that takes less memory, down to one tile of nr points."""
        if self.copied_tiles > 1:
            return replace(self, copied_tiles=self.copied_tiles // 2)
        if self.col_tile > nr:
            return replace(self, col_tile=_ceil_to(self.col_tile // 2, nr))
        return replace(self, n_threads=self.n_threads // 2)


def _choose_tiling(problem: _Problem, n_threads: int, memory_limit: int) -> _Tiling:
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
    _check_memory(least.n_bytes(problem), memory_limit, problem.s, problem.d)
    spare = memory_limit - least.n_bytes(problem)
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


def _aligned_buffers(n_threads: int, size: int) -> npt.NDArray[np.int8]:
    """Make (n_threads, size) bytes; rows begin on a cache line, size is a multiple."""
    buffer = np.empty(n_threads * size + 64, np.int8)
    shift = -buffer.ctypes.data % 64
    return buffer[shift : shift + n_threads * size].reshape(n_threads, size)


class _Packing:
    """How points of a kernel, for one gamma or several, are packed for the engine."""

    def __init__(
        self,
        kernel: "Kernel",
        center: Array,
        dtype: Dtype,
        gammas: Sequence[float] | None,
    ) -> None:
        self.dtype = dtype
        self.ratios = np.ones(1)
        if gammas is not None:
            # of the largest one: distances, and with them their errors, only shrink
            most = max(gammas)
            # only kernels with a gamma come here
            kernel = replace(kernel, gamma=most)  # type: ignore[call-arg]
            self.ratios = np.array(gammas) / most
        self._kernel = kernel
        self._center = center
        self.mr, self.nr, _ = _gram.block_shape(dtype == np.float64)
        self.spec = dict(
            kernel=_gram.KERNEL_CODES[kernel.name],
            degree=kernel.degree,
            coef0=kernel.coef0,
            direct_above=DIRECT_ABOVE[str(dtype)],
            factor=kernel.factor,
            normalised=kernel.normalised,
        )

    def pack(
        self, points: Rows, start: int, end: int, width: int, n_threads: int
    ) -> tuple[Array, Array]:
        """Pack points [start, end) in panels of so many, with their squared norms."""
        Z = points.get(start, end, self.dtype)
        size = _ceil_to(len(Z), width)
        packed = np.empty(size * Z.shape[1], self.dtype)
        norms = np.empty(size, self.dtype)
        n_threads = threads_for(Z.size, MOMENT_GRAIN, n_threads)
        _gram.pack(Z, self._center, packed, norms, self.spec, width, n_threads)
        if not np.isfinite(packed).all():
            raise ValueError(
                f"points overflow {self.dtype} when they are scaled for "
                f"{self._kernel}; take a smaller gamma, or float64"
            )
        return packed, norms

    @property
    def center(self) -> Array:
        return self._center


def _largest_of_tiles(norms: Array, n: int, row_tile: int) -> Array:
    return np.maximum.reduceat(norms, np.arange(0, n, row_tile)).astype(np.float64)


def _check_memory(needed: int, memory_limit: int, s: int, d: int) -> None:
    if needed > memory_limit:
        raise ValueError(
            f"memory_limit={memory_limit} bytes is too small for {s} rows of "
            f"results and {d} features: at least {needed} are needed"
        )


class NativeTiles:
    """W · K(landmarks, points) for one block of landmarks, by the engine.

    For several `gammas`, and W that is sparse, there is a product for each, an array of
    shape (gammas, s, n), from distances that are computed once.
    """

    def __init__(
        self,
        *,
        kernel: "Kernel",
        center: Array,
        dtype: Dtype,
        landmarks: Rows,
        points: Rows,
        weights: Weights,
        n_threads: int,
        memory_limit: int,
        gammas: Sequence[float] | None = None,
    ) -> None:
        self._packing = packing = _Packing(kernel, center, dtype, gammas)
        n_gammas = len(packing.ratios)
        s = weights.shape[0]
        self.n, self.m = points.n, landmarks.n
        self.shape = (s,) if gammas is None else (n_gammas, s)  # of a column of results
        self.dtype = dtype
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
            weights_per_landmark=weights.nnz / self.m if sp.issparse(weights) else s,
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
        self._loaded: dict[str, Any] = {}

    def load_rows(self, start: int, end: int) -> None:
        """Pack the landmarks [start, end) and their weights."""
        self._loaded = {}  # its memory is free for the next one
        packing, tiling = self._packing, self._tiling
        A, a_norm = packing.pack(
            self._landmarks, start, end, packing.mr, tiling.n_threads
        )
        weights = self._weights
        if end - start < self.m:
            weights = weights[:, start:end]
        self._rows = start, end
        self._loaded = dict(
            A=A,
            a_norm=a_norm,
            tile_norm_max=_largest_of_tiles(a_norm, end - start, tiling.row_tile),
            **self._native_weights(weights),
        )

    def _native_weights(self, weights: Weights) -> dict[str, Any]:
        """Convert the weights to what `gram_block` takes."""
        names = ("tile_ptr", "landmark", "row", "weight", "W")
        if not sp.issparse(weights):
            return dict.fromkeys(names) | {"W": weights.astype(self.dtype, copy=False)}
        row_tile, m = self._tiling.row_tile, weights.shape[1]
        tile_starts = np.append(np.arange(0, m, row_tile), m)
        column = np.arange(m, dtype=np.int32) % row_tile
        return dict(
            tile_ptr=weights.indptr[tile_starts].astype(np.int64),
            landmark=np.repeat(column, np.diff(weights.indptr)).astype(
                np.int32, copy=False
            ),
            row=weights.indices.astype(np.int32, copy=False),
            weight=weights.data.astype(self.dtype, copy=False),
            W=None,
        )

    def add_columns(
        self,
        out: Array,
        start: int,
        end: int,
        scale: float,
        accumulate: bool,
        triangle: bool,
    ) -> None:
        """out (+)= scale · W · K(loaded landmarks, points [start, end))."""
        row_start, row_end = self._rows
        tiling = self._tiling
        _gram.gram_block(
            self._points.get(start, end, self.dtype),
            self._packing.center,
            **self._loaded,
            out=out if out.ndim == 3 else out[None],
            buffers=self._buffers,
            ratios=self._packing.ratios,
            spec=self._packing.spec,
            tiling=dict(
                row_tile=tiling.row_tile, group=tiling.group, col_tile=tiling.col_tile
            ),
            window=dict(
                n_rows=row_end - row_start,
                row_start=row_start,
                col_start=start,
                triangle=triangle,
                accumulate=accumulate,
                scale=scale,
            ),
            n_threads=tiling.n_threads,
        )


def selected_landmarks(weights: Weights) -> tuple[Indices, Array] | None:
    """Find (landmarks, weights) of the rows of W if each has one entry, else None."""
    if not sp.issparse(weights) or weights.nnz != weights.shape[0]:
        return None
    rows = weights.indices
    chosen = np.full(weights.shape[0], -1, np.intp)
    chosen[rows] = np.repeat(np.arange(weights.shape[1]), np.diff(weights.indptr))
    if chosen.min(initial=0) < 0:
        return None
    values = np.empty(len(chosen))
    values[rows] = weights.data
    return chosen, values


class SelectedTiles:
    """`NativeTiles` of W with one entry in each row, that of a landmark.

    Nothing is summed: panels of K are written as they are, along the axis of the
    result whose numbers lie together.

    Parameters
    ----------
    chosen : array of int, shape (s,)
        The landmark of each row of W.
    weights : array of float64, shape (s,)
    """

    def __init__(
        self,
        *,
        kernel: "Kernel",
        center: Array,
        dtype: Dtype,
        landmarks: Rows,
        points: Rows,
        chosen: Indices,
        weights: Array,
        n_threads: int,
        memory_limit: int,
        gammas: Sequence[float] | None = None,
    ) -> None:
        self._packing = packing = _Packing(kernel, center, dtype, gammas)
        n_gammas = len(packing.ratios)
        s, d, itemsize = len(chosen), landmarks.d, dtype.itemsize
        self.n, self.m = points.n, s
        self.shape = (s,) if gammas is None else (n_gammas, s)
        self.dtype = dtype
        self._landmarks = landmarks.reordered(chosen)
        self._points = points
        self._weights = weights
        unit = math.lcm(packing.mr, packing.nr)
        most_rows = GROUP_BYTES // (itemsize * d)
        self.col_unit = _ceil_to(max(1, min(ROW_TILE, most_rows)), unit)
        panel_bytes = itemsize * 2 * self.col_unit * packing.nr
        # gathered, packed, and looked at for overflow
        point_bytes = itemsize * (2 * d + 2) + d
        least = panel_bytes + 2 * self.col_unit * point_bytes
        _check_memory(least, memory_limit, s * n_gammas, d)
        spare = memory_limit - least
        self._n_threads = min(n_threads, 1 + spare // 4 // panel_bytes)
        self.row_block = self.col_unit * (
            1 + spare // 4 // (self.col_unit * point_bytes)
        )
        most_bytes = min(COPY_BYTES, spare // 2)
        self.max_cols = self.col_unit * (
            1 + most_bytes // (self.col_unit * point_bytes)
        )
        cost = min(s, self.row_block) * (d + FIXED_COST * n_gammas) * self.col_unit
        self.first_cols = self._n_threads * self.col_unit * -(-FIRST_CALL_COST // cost)
        self._panels = np.empty((self._n_threads, 2, self.col_unit * packing.nr), dtype)

    def load_rows(self, start: int, end: int) -> None:
        """Choose the landmarks of rows [start, end)."""
        self._rows = start, end
        self._packed: dict[bool, tuple[Array, Array]] = {}

    def add_columns(
        self,
        out: Array,
        start: int,
        end: int,
        scale: float,
        accumulate: bool,
        triangle: bool,
    ) -> None:
        """out[rows] = scale · W[rows] · K(landmarks, points [start, end)).

        The rows are those that are loaded: what others have is left as it is.
        """
        row_start, row_end = self._rows
        weights = (scale * self._weights[row_start:row_end]).astype(self.dtype)
        out = (out if out.ndim == 3 else out[None])[:, row_start:row_end]
        if out.strides[2] == self.dtype.itemsize:
            self._write(out, weights, start, end, by_points=False)
        elif out.strides[1] == self.dtype.itemsize:
            self._write(out.swapaxes(1, 2), weights, start, end, by_points=True)
        else:
            step = self._packing.nr  # which takes little memory
            for first in range(start, end, step):
                last = min(end, first + step)
                part = np.empty((*out.shape[:2], last - first), self.dtype)
                self._write(part, weights, first, last, by_points=False)
                out[..., first - start : last - start] = part

    def _write(
        self, out: Array, weights: Array, start: int, end: int, by_points: bool
    ) -> None:
        """Write values of points [start, end) for landmarks, or the other way round."""
        packing = self._packing
        ones = np.ones(end - start, self.dtype)
        widths = (packing.mr, packing.nr) if by_points else (packing.nr, packing.mr)
        points = packing.pack(self._points, start, end, widths[0], self._n_threads)
        if by_points not in self._packed:
            self._packed[by_points] = packing.pack(
                self._landmarks, *self._rows, widths[1], self._n_threads
            )
        sides = [(*points, ones), (*self._packed[by_points], weights)]
        (A, a_norm, a_weight), (B, b_norm, b_weight) = sides[:: 1 if by_points else -1]
        cost = out.size * (self._landmarks.d + FIXED_COST)
        _gram.kernel_values(
            A,
            a_norm,
            _largest_of_tiles(a_norm, len(a_weight), self.col_unit),
            a_weight,
            B,
            b_norm,
            b_weight,
            out,
            self._panels,
            packing.ratios,
            packing.spec,
            self.col_unit,
            threads_for(cost, VALUE_GRAIN, self._n_threads),
        )


class GradientTiles:
    """Gradients of Σ_r W[:, r] k(z_r, ·) at the points: arrays (outputs, d, n).

    k is the kernel of points as they are packed, so that what `normalised` and the
    Sobolev kernel change is the caller's.

    Parameters
    ----------
    weights : array of shape (outputs, m)
    """

    def __init__(
        self,
        *,
        kernel: "Kernel",
        center: Array,
        dtype: Dtype,
        landmarks: Rows,
        points: Rows,
        weights: Array,
        n_threads: int,
        memory_limit: int,
    ) -> None:
        self._packing = packing = _Packing(kernel, center, dtype, None)
        n_outputs, d, itemsize = len(weights), landmarks.d, dtype.itemsize
        self.n, self.m = points.n, landmarks.n
        self.shape = n_outputs, d
        self.dtype = dtype
        self._landmarks, self._points = landmarks, points
        self._weights = weights.astype(dtype, copy=False)
        most_rows = GROUP_BYTES // (itemsize * d)
        self._row_tile = _ceil_to(max(1, min(ROW_TILE, most_rows)), packing.mr)
        size = _gram.gradient_workspace_size(
            dtype == np.float64, n_outputs, d, self._row_tile
        )
        size = _ceil_to(size, 64)
        self.col_unit = packing.nr
        point_bytes = itemsize * (2 * d + 2)
        weight_bytes = itemsize * n_outputs
        unit_bytes = self._row_tile * (point_bytes + weight_bytes)
        least = size + unit_bytes + self.col_unit * point_bytes
        _check_memory(least, memory_limit, n_outputs, d)
        spare = memory_limit - least
        # landmarks stay in the second-level cache while all points pass by
        tiles = max(1, GROUP_BYTES // (itemsize * d * self._row_tile))
        self.row_block = self._row_tile * min(tiles, 1 + spare // 4 // unit_bytes)
        self._n_threads = min(n_threads, 1 + spare // 4 // size)
        self.max_cols = self.n
        if not points.is_contiguous(dtype):
            most_bytes = min(COPY_BYTES, spare // 4)
            unit = self.col_unit * point_bytes
            self.max_cols = self.col_unit * (1 + most_bytes // unit)
        self._cost = d + FIXED_COST + 2 * d * n_outputs
        rows_cost = min(self.m, self.row_block) * self.col_unit * self._cost
        self.first_cols = (
            self._n_threads * self.col_unit * -(-FIRST_CALL_COST // rows_cost)
        )
        self._buffers = _aligned_buffers(self._n_threads, size)

    def load_rows(self, start: int, end: int) -> None:
        """Pack the landmarks [start, end) and their weights."""
        A, a_norm = self._packing.pack(
            self._landmarks, start, end, self._packing.mr, self._n_threads
        )
        self._loaded = dict(
            A=A,
            a_norm=a_norm,
            tile_norm_max=_largest_of_tiles(a_norm, end - start, self._row_tile),
            W=np.ascontiguousarray(self._weights[:, start:end]),
        )

    def add_columns(
        self,
        out: Array,
        start: int,
        end: int,
        scale: float,
        accumulate: bool,
        triangle: bool,
    ) -> None:
        """out (+)= gradients at points [start, end), of the loaded landmarks."""
        cost = (end - start) * self._loaded["W"].shape[1] * self._cost
        _gram.gradient_block(
            self._points.get(start, end, self.dtype),
            self._packing.center,
            **self._loaded,
            out=out,
            buffers=self._buffers,
            spec=self._packing.spec,
            row_tile=self._row_tile,
            accumulate=accumulate,
            n_threads=threads_for(cost, VALUE_GRAIN, self._n_threads),
        )
