"""Points: rows of them in blocks, their variance, a center, distances of a few.

Sparse points become dense in blocks alone, and nothing here takes more memory than it
is told to.
"""

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from pskernels._types import AnyArray, Array, Dtype, Indices, PointsLike, SparsePoints

if TYPE_CHECKING:
    from pskernels.point_metric import Metric

# Points that are not C-contiguous and of the right type are copied in portions.
COPY_BYTES = 2**23

# Points of which L·x is computed at a time.
METRIC_BYTES = 2**19

# Points whose medians are the center, and whose median distance makes a gamma.
CENTER_SUBSAMPLE = 32
MEDIAN_SUBSAMPLE = 1000


class Rows:
    """Rows of X, or those at `indices`, fetched in blocks of a wanted dtype."""

    def __init__(self, X: PointsLike, indices: Indices | None = None) -> None:
        self.X = X
        n, self.d = X.shape
        self._indices = None if indices is None or len(indices) == n else indices
        self.n = n if indices is None else len(indices)
        self.sparse = sp.issparse(X)

    def reordered(self, order: Indices) -> "Rows":
        """Take some of these rows, in another order."""
        other = copy(self)
        other._indices = order if self._indices is None else self._indices[order]
        other.n = len(order)
        return other

    def in_metric(
        self, metric: "Metric | None", center: Array | float | None
    ) -> "Rows":
        """Take L·(x - center) of these rows; themselves if there is no metric."""
        if metric is None:
            return self
        other = copy(self)
        other.X = PointsInMetric(self.X, metric, center)
        other.d, other.sparse = metric.d_seen, False
        return other

    def is_contiguous(self, dtype: Dtype) -> bool:
        """Tell whether `get` makes no copy."""
        X = self.X
        if self._indices is not None or not isinstance(X, np.ndarray):
            return False
        return X.flags.c_contiguous and X.dtype == dtype

    def numbers(self, start: int, end: int) -> slice | Indices:
        """Tell where the rows are in X: a slice or an array of indices."""
        if self._indices is None:
            return slice(start, end)
        return self._indices[start:end]

    def get(self, start: int, end: int, dtype: npt.DTypeLike) -> AnyArray:
        """Take a block of rows; sparse ones become dense in `take`, and only there."""
        return self.take(self.numbers(start, end), dtype)

    def take(self, numbers: Any, dtype: npt.DTypeLike) -> AnyArray:
        """Take the rows of X at these numbers, dense and contiguous."""
        rows = self.X[numbers]
        if self.sparse:
            rows = rows.toarray()
        return np.ascontiguousarray(rows, dtype)


class PointsInMetric:
    """L·(x - center) of points, computed in float64 when they are read.

    Parameters
    ----------
    X : array, sparse array or Source of shape (n, d)
    metric : Metric
    center : array of shape (d,), optional
    """

    dtype = np.dtype(np.float64)

    def __init__(
        self, X: PointsLike, metric: "Metric", center: Array | float | None = None
    ) -> None:
        self.shape = X.shape[0], metric.d_seen
        self._X, self._metric, self._sparse = X, metric, bool(sp.issparse(X))
        self._center = 0.0 if center is None else center

    def __getitem__(self, numbers: Any) -> Array:
        """Read rows, or a pair of rows and columns."""
        if isinstance(numbers, tuple):
            rows, columns = numbers
            return self[rows][:, columns]
        rows = self._X[numbers]
        n, d = rows.shape
        if d != self._metric.d:
            raise ValueError(f"points have {d} features, {self._metric} has others")
        out, step = np.empty((n, self.shape[1])), max(1, METRIC_BYTES // (8 * d))
        for start in range(0, n, step):
            some = rows[start : start + step]
            if self._sparse:
                some = some.toarray()
            some = some.astype(np.float64) - self._center
            out[start : start + step] = self._metric.apply(some)
        return out


def in_metric(X: PointsLike, metric: "Metric | None") -> PointsLike:
    """See points in a metric; X itself if there is none."""
    return X if metric is None else PointsInMetric(X, metric)


def total_variance(X: Any, weight: Array, memory_limit: int) -> float:
    """Add up the columns' variances, of points that count `weight` times each."""
    n, d = X.shape
    total = weight.sum()
    sparse = sp.issparse(X)
    width = d if not sparse else 4 * (1 + X.nnz // n)
    step = max(1, min(COPY_BYTES, memory_limit // 4) // (16 * width))
    blocks = [slice(start, min(n, start + step)) for start in range(0, n, step)]
    add: Callable[..., Any] = _add_sparse if sparse else _add_dense
    mean, squares = np.zeros(d), 0.0
    for rows in blocks:
        mean += add(X, weight, rows, None)
    mean /= total
    for rows in blocks:
        squares += add(X, weight, rows, mean)
    if sparse:  # what is not stored is 0, and as far from the mean
        filled = np.zeros(d)
        for rows in blocks:
            filled += _add_sparse(X, weight, rows, None, ones=True)
        squares += np.maximum(total - filled, 0.0) @ mean**2
    return float(squares / total)


def _add_dense(X: PointsLike, weight: Array, rows: slice, mean: Array | None) -> Any:
    """Compute weighted sums of columns, or, given a mean, of all squares around it."""
    block = X[rows].astype(np.float64)
    if mean is None:
        return weight[rows] @ block
    block -= mean
    return weight[rows] @ np.einsum("ij,ij->i", block, block)


def _add_sparse(
    X: Any, weight: Array, rows: slice, mean: Array | None, ones: bool = False
) -> Any:
    """Do `_add_dense` for the entries that are stored; `ones` counts them."""
    entries = slice(X.indptr[rows.start], X.indptr[rows.stop])
    weights = np.repeat(weight[rows], np.diff(X.indptr[rows.start : rows.stop + 1]))
    indices = X.indices[entries]
    if mean is not None:
        return weights @ (X.data[entries].astype(np.float64) - mean[indices]) ** 2
    if not ones:
        weights = weights * X.data[entries]
    return np.bincount(indices, weights=weights, minlength=X.shape[1])


def find_center(X: PointsLike, memory_limit: int) -> Array:
    """Find a point amid X, to subtract before distances are taken by scalar products.

    Medians of a few points: unlike the mean, one far outlier cannot move them
    away from all others, which would cost these their digits in float32.
    """
    rows = np.arange(0, X.shape[0], -(-X.shape[0] // CENTER_SUBSAMPLE))
    center = np.zeros(X.shape[1])
    # a block, and the copy that its median sorts
    for columns, block in dense_columns(X, rows, memory_limit // 4):
        center[columns] = np.median(block, axis=0)
    return center


def median_distance(
    X: PointsLike, metric: Literal["sqeuclidean", "cityblock"], memory_limit: int
) -> float:
    """Find the median "sqeuclidean" or "cityblock" distance among at most 1,000 points.

    Both are sums over features, and are added up over blocks of them.  Fewer points
    are taken if memory_limit has no room for all their distances, twice.
    """
    from scipy.spatial.distance import pdist

    n = X.shape[0]
    m = min(MEDIAN_SUBSAMPLE, max(2, int((memory_limit / 16) ** 0.5)))
    rows = np.arange(n)
    if n > m:
        rows = np.random.default_rng(0).choice(n, m, replace=False)
    if sp.issparse(X) and metric == "sqeuclidean":
        distances = _sparse_squared_distances(X[rows])
    else:
        distances = np.zeros(len(rows) * (len(rows) - 1) // 2)
        for _, block in dense_columns(X, rows, memory_limit // 4):
            distances += pdist(block, metric)
    return float(np.median(distances, overwrite_input=True)) if len(distances) else 0.0


def _sparse_squared_distances(X: SparsePoints) -> Array:
    """Compute ‖x - x'‖² of all pairs of a few points, by products of sparse rows."""
    X = X.astype(np.float64)
    squares = (X @ X.T).toarray()
    norms = squares.diagonal().copy()
    squares *= -2
    squares += norms[:, None]
    squares += norms
    found: Array = np.maximum(squares[np.triu(np.ones(squares.shape, bool), 1)], 0.0)
    return found


def dense_columns(
    X: Any, rows: Indices, n_bytes: int
) -> Iterator[tuple[slice | Indices, Array]]:
    """Yield some rows of X, a block of columns at a time: (columns, float64 block).

    Columns of a sparse X that are null in these rows are left out.
    """
    columns = np.arange(X.shape[1])
    sparse = sp.issparse(X)
    if sparse:
        X = X[rows].tocsc()
        columns = np.flatnonzero(np.diff(X.indptr))
    step = max(1, n_bytes // (8 * len(rows)))
    for start in range(0, len(columns), step):
        some = columns[start : start + step]
        if sparse:
            yield some, X[:, some].toarray().astype(np.float64, copy=False)
        else:
            block = slice(start, start + len(some))
            yield block, X[rows, block].astype(np.float64)


def squared_norms(X: Any) -> Array:
    """Compute ‖x‖² of each point, dense or sparse, in float64."""
    sparse = sp.issparse(X)
    if not sparse:
        norms: Array = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    else:
        norms = X.power(2, dtype=np.float64).sum(axis=1)
    return norms
