"""Choosing the sketch by the data: how sparse it is, and how many rows it has.

choose_sketch     Nyström or p = m/n, by a probe of some points, before any full pass
grow              rows are doubled until that stops paying; sketches keep the products
                  S·K of those before them
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pskernels import _points, _tiles
from pskernels._preparation import prepare
from pskernels._products import matmul
from pskernels._threads import single_threaded_blas
from pskernels._types import Array, Indices
from pskernels.gram import kernel_matmul
from pskernels.kernels import get_kernel, is_precomputed
from pskernels.sketches import (
    DEFAULT_ROW_ENTRIES,
    Distribution,
    PSparsified,
    Sketch,
    SubSampling,
)

if TYPE_CHECKING:
    from pskernels.feature_map import FeatureMap

# Points of a probe, and rows of the sketch that is tried on it.
PROBE = 1000
PROBE_ROWS = 32

# Rows that a sketch begins with, and those it ends with.
FIRST_ROWS = 64
MAX_ROWS = 2048

# Up to so many points, all of them may be landmarks, for some milliseconds: that is
# cheaper than to look whether it is needed (boston, n = 404, s = 100: 0.14 of the
# variance is left, 0.17 with Nyström's sketch: `python bench/estimators.py sparsity`).
FEW_POINTS = 2000

# Where a rare part matters, non-zeros in a row of the sketch, and landmarks, at most.
MOST_ENTRIES = 50
MOST_LANDMARKS = 10_000

# Where the residual, weighted by squared targets, is this many times the plain one,
# the sketch misses a small part of the points that matters: 14 to 41 times on the
# paper's toy data with its far cluster, 0.9 to 2.7 times on eight real data sets;
# `python bench/estimators.py sparsity` compares what is chosen with fixed choices.
UNEVEN = 6.0
# And it is at least this share of k(x, x): 0.15 to 0.6 on these data, 0.004 to 0.026 in
# the tails of normal points of one feature, and else it may be rounding.
MISSED = 0.05


def choose_sketch(
    make_map: "Callable[[Sketch | None], FeatureMap]",
    X: Any,
    y: Array | None,
    s: int,
    kind: str,
    seed: int,
    precomputed: bool = False,
    weight: Array | None = None,
    n: int | None = None,
) -> SubSampling | PSparsified:
    """Choose the distribution that is likely to be the best for its cost.

    On a probe of points, the residual of Nyström's sketch,

        r(x) = k(x, x) - ‖z_S(x)‖² ≥ 0,

    is the part of x that the sketch does not see.  If its mean, weighted by squared
    targets, is far above the plain mean, the data have a rare part that matters, and a
    dense sketch pays.  Else Nyström's is as good, and has the fewest landmarks: on six
    real data sets, s = 100 and 400, its errors are -4 to +4 % of those of p = 5/n to
    50/n, which is within the spread of seeds (bench/estimators.py, part "sparsity").

    Parameters
    ----------
    make_map : callable
        sketch -> FeatureMap, not yet fitted
    X : array of shape (n, d), checked
    y : array of shape (n,) or (n, outputs), or None
        Without targets all points weigh the same, and none is a part that matters.
    s : int
    kind : {"rademacher", "gaussian"}
    seed : int
    precomputed : bool
        X is K.
    weight : array of shape (n,), optional
    n : int, optional
        How many points there are, if X is some of them.

    Returns
    -------
    SubSampling or PSparsified
    """
    n = X.shape[0] if n is None else n
    m = DEFAULT_ROW_ENTRIES
    if n > FEW_POINTS:
        m = min(MOST_ENTRIES, MOST_LANDMARKS // s)
        if m < 2 or y is None:
            return SubSampling(s)
        weight = np.ones(X.shape[0]) if weight is None else weight
        if not _misses_a_part(make_map, X, y, weight, seed, precomputed):
            return SubSampling(s)
    return PSparsified(s, min(1.0, m / n), kind)


def _misses_a_part(
    make_map: "Callable[[Sketch | None], FeatureMap]",
    X: Any,
    y: Array,
    weight: Array,
    seed: int,
    precomputed: bool,
) -> bool:
    """Tell whether Nyström's sketch misses a small part of the points that matters.

    A smaller sketch of the probe alone tells as well.
    """
    n = X.shape[0]
    probe = np.random.default_rng(seed).choice(n, min(PROBE, n), replace=False)
    y, weight = y.reshape(n, -1), weight / weight.max()
    size = np.abs(y).max(initial=0.0)
    if not 0 < size < np.inf:
        return False
    centred = (y[probe] - weight @ y / weight.sum()) / size
    squares = weight[probe] * (centred**2).sum(axis=1)
    if not squares.any():
        return False
    X = X[np.ix_(probe, probe)] if precomputed else X[probe]
    residual, diagonal = _nystroem_residuals(make_map(None), X, PROBE_ROWS)
    missed = squares @ residual / squares.sum()
    # what is missed is more than rounding, and not missed of all points alike
    found: bool = missed > max(MISSED * diagonal.mean(), UNEVEN * residual.mean())
    return found


def _nystroem_residuals(
    feature_map: "FeatureMap", X: Any, m: int
) -> tuple[Array, Array]:
    """Compute (k(x, x) - ‖z_S(x)‖², k(x, x)) of points whose first m are the sketch.

    The points are in random order.  `FeatureMap` would give the same, at several times
    the price for so few points.
    """
    n = X.shape[0]
    kernel = get_kernel(feature_map.kernel, feature_map.gamma, feature_map.metric)
    kernel, _ = prepare(kernel, X, "X", 1, feature_map.limits()[1])
    K = X[:, :m]
    if not is_precomputed(kernel):
        eye = np.eye(min(m, n))
        limit = feature_map.limits()[1]
        with np.errstate(over="ignore", invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", RuntimeWarning
            )  # the fit itself will say it
            K = kernel_matmul(
                X, X[:m], eye, kernel=kernel, n_threads=1, memory_limit=limit
            )
    if not np.isfinite(K).all():
        return np.zeros(n), np.ones(n)
    with single_threaded_blas():
        values, vectors = np.linalg.eigh(K[:m])
        kept = values > len(values) * np.finfo(K.dtype).eps * values[-1]
        Z = K @ (vectors[:, kept] / np.sqrt(values[kept]))
    diagonal = kernel.diagonal(X, np.arange(n))
    return np.maximum(diagonal - np.einsum("ij,ij->i", Z, Z), 0.0), diagonal


def _residuals(
    feature_map: "FeatureMap", X: Any, indices: Indices
) -> tuple[Array, Array]:
    """Compute (k(x, x) - ‖z_S(x)‖², k(x, x)) of some points."""
    Z = feature_map.transform(X[indices]).astype(np.float64, copy=False)
    diagonal = feature_map.kernel_.diagonal(X, indices)
    return diagonal - (Z**2).sum(axis=1), diagonal


class Growth(NamedTuple):
    """A step of `grow`."""

    n_components: int
    n_landmarks: int
    rank: int
    value: float  # what was to become smaller


def grow(
    features: "GrowingFeatures",
    measure: "Callable[[FeatureMap, Array], float]",
    rtol: float,
    limit: int,
    scale: float | None = None,
) -> "tuple[FeatureMap, Array, list[Growth]]":
    """Double the rows of a sketch until a value stops falling.

    Parameters
    ----------
    features : GrowingFeatures
    measure : callable
        (feature map, features) -> a number to be made small
    rtol : float
        A step that gains no more than this share of the last value is taken back, and
        is the last one.
    limit : int
        Rows at most.
    scale : float, optional
        What gains are relative to, in place of the last value.

    Returns
    -------
    (feature map, features, list of Growth)
        The steps include the one that was taken back.
    """
    steps, best, s = [], None, min(FIRST_ROWS, limit)
    while True:
        feature_map, Z = features.grow(s)
        value = float(measure(feature_map, Z))
        n_landmarks = len(feature_map.sketch_.indices)
        steps.append(Growth(s, n_landmarks, feature_map.rank_, value))
        if best is not None:
            last = steps[-2].value
            if last - value <= rtol * (last if scale is None else scale):
                return *best, steps
        best = feature_map, Z
        if s == limit:
            return *best, steps
        s = min(2 * s, limit)


def mean_residual(feature_map: "FeatureMap", X: Any, seed: int) -> float:
    """Average k(x, x) - ‖z_S(x)‖² over a probe of points, as a share of k(x, x)."""
    n = X.shape[0]
    probe = np.random.default_rng(seed).choice(n, min(PROBE, n), replace=False)
    residual, diagonal = _residuals(feature_map, X, probe)
    found: float = residual.sum() / diagonal.sum()
    return found


class GrowingFeatures:
    """Features of sketches of more and more rows.

    A sketch that `extends` a smaller one has its rows, but for the scale, which
    features do not see: only the products S·K of new rows are computed.

    Parameters
    ----------
    make_map : callable
        sketch -> FeatureMap, not yet fitted
    make_sketch : callable
        s -> distribution
    X : array of shape (n, d), checked
    seed : int

    Notes
    -----
    All of S·K is kept beside the features, which doubles their memory.
    """

    def __init__(
        self,
        make_map: "Callable[[Sketch | None], FeatureMap]",
        make_sketch: Callable[[int], Distribution],
        X: Any,
        seed: int,
    ) -> None:
        self._make_map = make_map
        self._make_sketch = make_sketch
        self._X = X
        self._seed = seed
        self._KSt: Array | None = None

    def grow(self, s: int) -> "tuple[FeatureMap, Array]":
        """Grow the sketch to s rows: (fitted map, features of all points)."""
        distribution = self._make_sketch(s)
        n = self._X.shape[0]
        n_threads, _ = self._make_map(None).limits()
        sketch = distribution.draw(n, self._seed, n_threads)
        feature_map = self._make_map(sketch).fit(self._X)
        assert feature_map.whitening_ is not None
        before = self._KSt if distribution.extends else None
        first = 0 if before is None else before.shape[1]
        new = self._products(feature_map, sketch.take_rows(first, s))
        self._KSt = new if before is None else np.hstack([before, new])
        whitening = (sketch.scale * feature_map.whitening_).astype(new.dtype)
        Z = np.empty((n, feature_map.rank_), new.dtype)
        return feature_map, matmul(self._KSt, whitening, Z, n_threads)

    def _products(self, feature_map: "FeatureMap", rows: Sketch) -> Array:
        """Compute K·(rows of S)ᵀ, before scaling."""
        X = self._X
        n_threads, memory_limit = feature_map.limits()
        KSt = np.empty((X.shape[0], rows.shape[0]), feature_map._dtype)
        tiles = _tiles.make_tiles(
            kernel=feature_map.kernel_,
            center=feature_map._center,
            dtype=KSt.dtype,
            landmarks=_points.Rows(
                X.T if feature_map.landmarks_ is None else X, rows.indices
            ),
            points=_points.Rows(X),
            weights=rows.weights,
            n_threads=n_threads,
            memory_limit=memory_limit,
        )
        _tiles.fill_product(KSt.T, tiles, 1.0, "S·K", verbose=0)
        return KSt
