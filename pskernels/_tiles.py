"""Products W · K(landmarks, points), tile by tile.

`fill_product` walks over blocks of landmarks and of points; a *tiles* object
computes one block, by the compiled engine (`_engine`) or where K comes from
Python (`PythonTiles`).  Between blocks Python handles signals, so that Ctrl-C
works, and progress is reported.
"""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from pskernels._engine import (
    DIRECT_ABOVE,
    GradientTiles,
    NativeTiles,
    SelectedTiles,
    selected_landmarks,
)
from pskernels._matrices import make_symmetric
from pskernels._points import Rows, squared_norms
from pskernels._progress import progress
from pskernels._threads import single_threaded_blas
from pskernels._types import AnyArray, Array, Dtype, Weights
from pskernels._validation import check_compressed, check_real_array
from pskernels.kernels import CallableKernel, Kernel, Precomputed

if TYPE_CHECKING:
    from pskernels.point_metric import Metric

# How long a call of tiles is to take: Ctrl-C is heard between calls.
CALL_SECONDS = 0.15

# K of rows and columns, by where they start and end.
Tile: TypeAlias = Callable[[int, int, int, int], AnyArray]
Tiles: TypeAlias = "NativeTiles | SelectedTiles | GradientTiles | PythonTiles"

# Side of a tile of K that comes from Python.
PYTHON_TILE = 512

# Landmarks whose columns of S·K are multiplied by Sᵀ at a time.
SKST_COLUMNS = 4096

# Cost of a scalar product of two sparse rows and of a kernel value by NumPy, and of
# each entry that they have in common, counted in features of the compiled engine
# (`python bench/roofline.py` prints its times by features).
SPARSE_PAIR_COST = 600
SPARSE_ENTRY_COST = 150

# --------------------------------------------------------------------------
# Tiles that come from Python
# --------------------------------------------------------------------------


class PythonTiles:
    """Tiles of W · K(landmarks, points) where K comes from Python, or is an array."""

    row_block = col_unit = first_cols = max_cols = PYTHON_TILE

    def __init__(
        self,
        *,
        tile: Tile,
        n: int,
        m: int,
        point_size: int,
        dtype: Dtype,
        weights: Weights,
        memory_limit: int,
    ) -> None:
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

    def load_rows(self, start: int, end: int) -> None:
        self._rows = start, end

    def add_columns(
        self,
        out: Array,
        start: int,
        end: int,
        scale: float,
        accumulate: bool,
        triangle: bool,
    ) -> None:
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


def _upper_triangle(K: Array, row_start: int, col_start: int) -> Array:
    """Keep K above the diagonal, half of it on the diagonal, 0 below."""
    row = row_start + np.arange(K.shape[0])[:, None]
    col = col_start + np.arange(K.shape[1])
    return np.where(row < col, K, np.where(row == col, 0.5 * K, 0.0))


def _read_only(block: AnyArray) -> AnyArray:
    """Make a view that a function cannot write through: it may be the caller's X."""
    view = block.view()
    view.flags.writeable = False
    return view


def _function_tile(
    function: Callable[[Any, Any], npt.ArrayLike],
    landmarks: Rows,
    points: Rows,
    dtype: Dtype,
) -> Tile:
    """Make a function that gives tiles of K, by a function of two arrays."""

    def tile(row_start: int, row_end: int, col_start: int, col_end: int) -> AnyArray:
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


def _precomputed_tile(landmarks: Rows, points: Rows) -> Tile:
    """Make a function that gives tiles of K, read from the array that holds it."""

    def tile(row_start: int, row_end: int, col_start: int, col_end: int) -> AnyArray:
        rows = landmarks.numbers(row_start, row_end)
        columns = points.numbers(col_start, col_end)
        if isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray):
            rows = rows[:, None]
        found: AnyArray = landmarks.X[rows, columns]
        return found

    return tile


def _sparse_tile(kernel: Kernel, landmarks: Rows, points: Rows) -> Tile:
    """Make a function that gives tiles of K of sparse points, by scalar products."""

    def tile(row_start: int, row_end: int, col_start: int, col_end: int) -> Array:
        Z = landmarks.X[landmarks.numbers(row_start, row_end)].astype(np.float64)
        X = points.X[points.numbers(col_start, col_end)].astype(np.float64)
        return kernel.of_products(
            (Z @ X.T).toarray(), squared_norms(Z)[:, None], squared_norms(X)
        )

    return tile


def _by_sparse_products(kernel: Kernel, landmarks: Rows, points: Rows) -> bool:
    """Tell whether products of sparse rows are cheaper than blocks made dense."""
    sparse = landmarks.sparse and points.sparse and kernel.metric is None
    if not (sparse and kernel.by_products):
        return False
    X: Any = points.X
    if kernel.centred:  # as in dense tiles, far points lose their digits
        norm = kernel.factor**2 * (
            squared_norms(X).max() + squared_norms(landmarks.X).max()
        )
        if not norm <= DIRECT_ABOVE["float64"]:
            return False
    n_common = (X.nnz / X.shape[0]) ** 2 / points.d
    found: bool = points.d > SPARSE_PAIR_COST + SPARSE_ENTRY_COST * n_common
    return found


def _check_product(
    kernel: Kernel,
    center: Array | None,
    landmarks: Rows,
    points: Rows,
    weights: Weights,
) -> None:
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
    fits = np.shape(center) == (d,) if center is not None else False
    if points.d != d or center is None or not fits or center.dtype != np.float64:
        raise ValueError(
            f"landmarks have {d} features, points {points.d}, and the center must be a "
            f"float64 array of as many numbers, got {center!r}"
        )


def make_tiles(
    *,
    kernel: Kernel,
    landmarks: Rows,
    points: Rows,
    center: Array | None,
    dtype: Dtype,
    n_threads: int,
    triangle: bool = False,
    **options: Any,
) -> "Tiles":
    """Make the tiles of a kernel; for a precomputed one, `landmarks` are rows of K.

    `triangle`: for `symmetric_product`, else for `fill_product`.
    """
    weights = options["weights"]
    _check_product(kernel, center, landmarks, points, weights)
    python = dict(n=points.n, m=landmarks.n, point_size=0, dtype=dtype, **options)
    if isinstance(kernel, CallableKernel):
        tile = _function_tile(kernel.function, landmarks, points, dtype)
        return PythonTiles(tile=tile, **(python | {"point_size": points.d}))
    if isinstance(kernel, Precomputed):
        return PythonTiles(tile=_precomputed_tile(landmarks, points), **python)
    if _by_sparse_products(kernel, landmarks, points):
        return PythonTiles(tile=_sparse_tile(kernel, landmarks, points), **python)
    options.update(
        kernel=kernel,
        dtype=dtype,
        n_threads=n_threads,
        **_in_metric(kernel.metric, landmarks, points, center),
    )
    selected = None if triangle else selected_landmarks(weights)
    if selected is None:
        return NativeTiles(**options)
    chosen, weights = selected
    return SelectedTiles(**(options | {"weights": weights}), chosen=chosen)


def make_gradient_tiles(
    *,
    kernel: Kernel,
    landmarks: Rows,
    points: Rows,
    center: Array | None,
    weights: Array,
    **options: Any,
) -> GradientTiles:
    """Make the tiles of gradients, in L·x if the kernel has a metric."""
    _check_product(kernel, center, landmarks, points, weights)
    seen = _in_metric(kernel.metric, landmarks, points, center)
    return GradientTiles(kernel=kernel, weights=weights, **seen, **options)


def _in_metric(
    metric: "Metric | None", landmarks: Rows, points: Rows, center: Array | None
) -> dict[str, Any]:
    """Collect landmarks, points and center, as compiled code is to see them."""
    seen_center = center if metric is None else np.zeros(metric.d_seen)
    return dict(
        landmarks=landmarks.in_metric(metric, center),
        points=points.in_metric(metric, center),
        center=seen_center,
    )


# --------------------------------------------------------------------------
# Products
# --------------------------------------------------------------------------


def fill_product(
    out: Array, tiles: "Tiles", scale: float, label: str, verbose: int
) -> Array:
    """out = scale · W · K(landmarks, points)."""
    if out.shape != (*tiles.shape, tiles.n):
        raise ValueError(f"out must have shape {(*tiles.shape, tiles.n)}: {out.shape}")
    with progress(tiles.m * tiles.n, label, verbose) as report:
        _fill_columns(out, tiles, 0, tiles.n, tiles.m, scale, False, report)
    return out


def symmetric_product(
    tiles: "Tiles", weights: Weights, memory_limit: int, verbose: int
) -> Array:
    """Compute W · K(landmarks, landmarks) · Wᵀ in float64, from half of K.

    With U the upper triangle of K and half of its diagonal, K = U + Uᵀ, and the
    product is T·Wᵀ + (T·Wᵀ)ᵀ for T = W·U.  For several gammas, one for each.
    """
    with progress(tiles.m * (tiles.m + 1) // 2, "S·K·Sᵀ", verbose) as report:

        def columns_of_t(start: int, end: int) -> Array:
            T = np.empty((*tiles.shape, end - start), tiles.dtype)
            _fill_columns(T, tiles, start, end, end, 1.0, True, report)
            return T.reshape(-1, end - start)

        n_rows = math.prod(tiles.shape)
        product = times_weights_t(columns_of_t, weights, memory_limit, n_rows)
    product = product.reshape(*tiles.shape, -1)
    return product + product.swapaxes(-1, -2)


def selected_product(
    *, landmarks: Rows, weights: Weights, scale: float, verbose: int, **options: Any
) -> Array | None:
    """Compute scale · W · K · Wᵀ by the engine, if rows of W have one entry; else None.

    All of K, for half of it and its sums would take longer.
    """
    _check_product(options["kernel"], options["center"], landmarks, landmarks, weights)
    selected = selected_landmarks(weights)
    if selected is None:
        return None
    chosen, values = selected
    points = landmarks.reordered(chosen)
    tiles = make_tiles(landmarks=landmarks, points=points, weights=weights, **options)
    if not isinstance(tiles, SelectedTiles):
        return None
    out = np.empty((*tiles.shape, points.n), tiles.dtype)
    fill_product(out, tiles, scale, "S·K·Sᵀ", verbose)
    out *= values
    for product in out.reshape(-1, points.n, points.n):
        make_symmetric(product)
    return out


def times_weights_t(
    get_columns: Callable[[int, int], Array],
    weights: Weights,
    memory_limit: int,
    n_rows: int,
) -> Array:
    """Find A · Wᵀ in float64; get_columns(start, end) are columns of A, of n_rows."""
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


def _fill_columns(
    out: Array,
    tiles: "Tiles",
    col_start: int,
    col_end: int,
    row_end: int,
    scale: float,
    triangle: bool,
    report: Callable[[float], object],
) -> None:
    """Fill columns [col_start, col_end) of the product, from landmarks [0, row_end).

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


def _n_evaluated(
    row_start: int, n_rows: int, col_start: int, col_end: int, triangle: bool
) -> int:
    """Count kernel values of a block, without those below the diagonal if triangle."""
    if not triangle:
        return n_rows * (col_end - col_start)
    columns = np.arange(col_start, col_end)
    return int(np.clip(columns + 1 - row_start, 0, n_rows).sum())
