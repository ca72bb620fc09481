"""Points: rows of them in blocks, their moments, a center, distances of a few.

Sparse points become dense in blocks alone, and nothing here takes more memory than it
is told to.
"""

import numpy as np
import scipy.sparse as sp

from pskernels import _gram
from pskernels._validation import common_dtype

# Points that are not C-contiguous and of the right type are copied in portions.
COPY_BYTES = 2**23

# Points whose moments are taken in one call, well under 0.1 s.
MOMENT_BYTES = 2**28

CENTER_SUBSAMPLE = 32
MEDIAN_SUBSAMPLE = 1000


class Rows:
    """Rows of X, or those at `indices`, fetched in blocks of a wanted dtype."""

    def __init__(self, X, indices=None):
        self.X = X
        n, self.d = X.shape
        self._indices = None if indices is None or len(indices) == n else indices
        self.n = n if indices is None else len(indices)
        self.sparse = sp.issparse(X)

    def is_contiguous(self, dtype):
        """Whether `get` makes no copy."""
        X = self.X
        if self.sparse or self._indices is not None:
            return False
        return X.flags.c_contiguous and X.dtype == dtype

    def numbers(self, start, end):
        """Where the rows are in X: a slice or an array of indices."""
        if self._indices is None:
            return slice(start, end)
        return self._indices[start:end]

    def get(self, start, end, dtype):
        """A block of rows; sparse ones become dense here, and only here."""
        rows = self.X[self.numbers(start, end)]
        if self.sparse:
            rows = rows.toarray()
        return np.ascontiguousarray(rows, dtype)


def column_moments(X, with_variance, n_threads, memory_limit):
    """Column means of X (not finite if X is not), and the sum of variances or None.

    One pass over X, whose chunks are merged by the formula of Chan, Golub and
    LeVeque.  The result does not depend on n_threads.
    """
    n, d = X.shape
    rows = Rows(X)
    if rows.sparse:
        return _sparse_moments(X, with_variance)
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
        _gram.column_moments(block, means[chunks], m2, n_threads)
    counts = np.full((n_chunks, 1), _gram.CHUNK_ROWS)
    counts[-1] = n - (n_chunks - 1) * _gram.CHUNK_ROWS
    with np.errstate(invalid="ignore", over="ignore"):
        mean = (counts * means).sum(axis=0) / n
        if not with_variance:
            return mean, None
        between = (counts * (means - mean) ** 2).sum()
        return mean, (m2s.sum() + between) / n


def _sparse_moments(X, with_variance):
    n, d = X.shape
    data = X.data.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = np.bincount(X.indices, weights=data, minlength=d) / n
        if not with_variance:
            return mean, None
        return mean, total_variance(X, np.ones(n))


def total_variance(X, weight):
    """The sum of the columns' variances, of points that count `weight` times each."""
    n, d = X.shape
    total = weight.sum()
    if sp.issparse(X):
        weights = np.repeat(weight, np.diff(X.indptr))  # of entries
        data = X.data.astype(np.float64, copy=False)
        mean = np.bincount(X.indices, weights=weights * data, minlength=d) / total
        filled = np.bincount(X.indices, weights=weights, minlength=d)
        squares = weights @ (data - mean[X.indices]) ** 2
        return (squares + np.maximum(total - filled, 0.0) @ mean**2) / total
    step = max(1, MOMENT_BYTES // (64 * d))  # in blocks: no copy of all of X
    blocks = [slice(start, start + step) for start in range(0, n, step)]
    mean = sum(weight[rows] @ X[rows].astype(np.float64) for rows in blocks) / total
    squares = (weight[rows] @ ((X[rows] - mean) ** 2).sum(axis=1) for rows in blocks)
    return sum(squares) / total


def find_center(X, memory_limit):
    """A point amid X, subtracted before distances are taken by scalar products.

    Medians of a few points: unlike the mean, one far outlier cannot move them
    away from all others, which would cost these their digits in float32.
    """
    rows = np.arange(0, X.shape[0], -(-X.shape[0] // CENTER_SUBSAMPLE))
    center = np.zeros(X.shape[1])
    # a block, and the copy that its median sorts
    for columns, block in dense_columns(X, rows, memory_limit // 4):
        center[columns] = np.median(block, axis=0)
    return center


def median_distance(X, metric, memory_limit):
    """The median "sqeuclidean" or "cityblock" distance of two points, of at most 1,000.

    Both are sums over features, and are added up over blocks of them.  Fewer points
    are taken if memory_limit has no room for all their distances, twice.
    """
    from scipy.spatial.distance import pdist

    n = X.shape[0]
    m = min(MEDIAN_SUBSAMPLE, max(2, int((memory_limit / 16) ** 0.5)))
    rows = np.arange(n)
    if n > m:
        rows = np.random.default_rng(0).choice(n, m, replace=False)
    distances = np.zeros(len(rows) * (len(rows) - 1) // 2)
    for _, block in dense_columns(X, rows, memory_limit // 4):
        distances += pdist(block, metric)
    return np.median(distances, overwrite_input=True) if len(distances) else 0.0


def dense_columns(X, rows, n_bytes):
    """Some rows of X, a block of columns at a time: (columns, float64 block).

    Columns of a sparse X that are null in these rows are left out.
    """
    columns = np.arange(X.shape[1])
    if sp.issparse(X):
        X = X[rows].tocsc()
        columns = np.flatnonzero(np.diff(X.indptr))
    step = max(1, n_bytes // (8 * len(rows)))
    for start in range(0, len(columns), step):
        some = columns[start : start + step]
        if sp.issparse(X):
            yield some, X[:, some].toarray().astype(np.float64, copy=False)
        else:
            block = slice(start, start + len(some))
            yield block, X[rows, block].astype(np.float64)


def squared_norms(X):
    """‖x‖² of each point, dense or sparse, in float64."""
    if not sp.issparse(X):
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return X.multiply(X).sum(axis=1, dtype=np.float64)
