"""The feature map of a sketch: vectors whose scalar products approximate a kernel.

    fit        landmarks X[idx] -> S·K·Sᵀ -> W, such that Wᵀ (S·K·Sᵀ) W = I
    transform  blocks of points -> S·k(·, block) -> times W -> rows of Z
    predict    K(X, landmarks) · (S_SGᵀ W coef), with neither S·K nor Z

The map z_S of the paper.  It does not see y or a loss.
"""

import math
import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.linalg import lapack

from pskernels import _points, _tiles
from pskernels._matrices import (
    absolute_product,
    inverse_of_triangle,
    pivoted_cholesky,
    principal,
)
from pskernels._preparation import prepare
from pskernels._products import (
    EPS,
    Features,
    PlainFeatures,
    far_origin,
    has_whole_rows,
    times_triangle,
)
from pskernels._progress import progress
from pskernels._threads import single_threaded_blas
from pskernels._types import (
    Array,
    CheckedPoints,
    Dtype,
    Indices,
    KernelLike,
    MetricLike,
    Points,
    PointsLike,
    RandomState,
    Shape,
    SketchLike,
    Weights,
)
from pskernels._validation import (
    check_option,
    check_points,
    common_dtype,
    levels_to_the_caller,
    warn_if_not_finite,
)
from pskernels.features import EXACT_ENOUGH, FactoredFeatures, RecomputedFeatures
from pskernels.gram import (
    draw_sketch,
    fill_kernel_matmul,
    find_gradients,
    sketch_landmarks,
)
from pskernels.kernel_map import KernelMap, check_coef, points_of_a_block
from pskernels.kernels import (
    CallableKernel,
    GammaKernel,
    Kernel,
    Precomputed,
    get_kernel,
)
from pskernels.point_metric import check_metric
from pskernels.sketches import PSparsified, Sketch, SubSampling

if TYPE_CHECKING:
    from pskernels._points import Rows

# Rows of a sketch where none is given.
DEFAULT_ROWS = 100

# Points whose S·K is computed at a time: 64 tiles, so that as many threads have
# work.  From 4,096 to 32,768 points the time is the same within 10 %;
# `python bench/estimators.py large` has such fits.
BLOCK_POINTS = 2**14

# The same where several gammas share distances: they stay in the third-level cache.
SHARED_BYTES = 2**24

# A copy of a number of S·K costs as much as the distance of two points of so many
# features: 3 ns, beside 0.04 ns for a feature (`python bench/roofline.py` prints the
# latter; Nyström's sketch, 5 gammas, n = 32,000, s = 1,000, d = 8: 0.80 s shared,
# 0.30 s one by one; `python bench/estimators.py large_search` is such a search).
COPY_COST = 80

# What of recomputed features is in memory: 4,096 points of 1,000 features;
# `python bench/estimators.py storage` has such fits.
RECOMPUTED_BYTES = 2**25

STORAGES = ("auto", "float32", "recomputed")

FLOAT32_EPS = float(np.finfo(np.float32).eps)
FLOAT32_LEAST = float(np.finfo(np.float32).smallest_subnormal)

# Pivots below this many times s·eps·‖S·K·Sᵀ‖ are rounding, eps that of the values of k;
# a pivot is a few times the least eigenvalue that is left.
PIVOT_CUT = 4.0

# A feature of pivot p is S·k divided by √p, and so is its rounding, some √s·eps.
# Pivots of float32 features are kept down to where that is 1/300.  On protein_casp, at
# s = 1,000 and alpha = 3e-6, R² is 0.496 with 30 to 300, 0.492 with 3,000 (0.497 in
# float64); at alpha = 1e-8 it is 0.515, 0.518, 0.517, 0.507 with 30, 100, 300, 1,000
# (0.530).  `python bench/estimators.py large` prints R² of both types.
SMALLEST_PIVOT = 300.0

# Whitenings of maps, and their triangles: beside the maps, so that these are copied,
# pickled and saved without them.
_kept_triangles: "WeakKeyDictionary[FeatureMap, tuple[Array, Indices, Array]]" = (
    WeakKeyDictionary()
)


class FeatureMap(KernelMap):
    """The feature map z_S of a sketched kernel machine.

    With S·K·Sᵀ of rank r, and W of r columns such that Wᵀ (S·K·Sᵀ) W = I,

        z_S(x) = Wᵀ · S · (k(x, x_1), …, k(x, x_n))ᵀ,

    and z_S(x)ᵀ z_S(x') approximates k(x, x').  Every such W gives the same scalar
    products: the paper has eigenvectors, here it is the inverse of a Cholesky factor.
    By Proposition 5 of [1]_ the sketched kernel machine is the linear machine on z_S
    with the plain ridge penalty, whatever the loss.

    Parameters
    ----------
    kernel : str, kernel object or callable
        As for `sketch_gram`.
    gamma : float, "scale", "auto" or "median", optional
        Scale of the kernel.  None means "scale": 1 / the sum of the
        columns' variances.
    metric : array of shape (d,) or (r, d), or Metric, optional
        L: the kernel sees L·x in place of x, see `sketch_gram`.
    sketch : Sketch or distribution, optional
        None means ``PSparsified(100)``, or n rows if there are fewer points.
    random_state : None, int, numpy Generator or numpy RandomState
        For drawing the sketch.
    n_threads : int, optional
        None means all cores this process may use.
    memory_limit : int, optional
        Bytes that may be used beside X, the results and matrices of s × s; 1 GiB by
        default.
    verbose : int
        1 shows progress.

    Attributes
    ----------
    kernel_ : kernel object
        The kernel, its gamma a number.
    sketch_ : Sketch
        The drawn sketch.
    landmarks_ : ndarray or sparse array of shape (m, d)
        A copy of the points of the fit that the sketch needs; None for a precomputed
        kernel.
    whitening_ : ndarray of float64, shape (s, r)
        W: the inverse of a triangle, in the rows of its pivots, and 0 in others.  To be
        replaced as a whole only: `transform` of few points makes it read-only.  None
        after `fit_all_points`.
    rank_ : int
        r, the number of features.
    n_features_in_ : int
        d.

    Notes
    -----
    With m landmarks, `transform` takes m evaluations of the kernel and 2·s·r further
    operations for each point.  The result does not depend on n_threads, to the last
    bit.

    r counts the pivots above 4·s·eps·‖S·K·Sᵀ‖, eps that of float64; smaller ones are
    lost in rounding.  (Should S·K·Sᵀ be indefinite by more than that, r counts those
    above it only.  For a function or a precomputed kernel in float32, eps is that.)

    S·K·Sᵀ and W are computed in float64, the rest in float32 if the result is.  Then
    pivots are kept down to s·(300·eps)² of the largest, eps that of float32: rounding
    of a feature is some 1/300 at the most, and the error of z_S(x), in the norm, below
    0.01·√k(x, x): measured, 0.006 at most in 576 settings, and far less where no pivot
    comes near the cut.  `predict` errs by at most ‖coef‖₂ times as much, like
    ``transform(X) @ coef``.  What that costs: R² of ridge regressions on protein_casp,
    s = 400 to 2,000, alpha = 3e-6, falls by less than 0.001.  float64 takes twice as
    long: it is used for points that are float64, also if those of the fit were float32.

    With ``kernel="precomputed"``, X is K in `fit`, and K(X_new, X), of shape
    (n_new, n), in `transform` and `predict`, which read only columns of landmarks.

    References
    ----------
    .. [1] T. El Ahmad, P. Laforgue, F. d'Alché-Buc, "Fast Kernel Methods for Generic
       Lipschitz Losses via p-Sparsified Sketches", TMLR, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> Z = psk.FeatureMap("rbf", gamma=0.5, random_state=0).fit_transform(X)
    >>> Z.shape
    (1000, 100)
    >>> K = np.exp(-0.5 * ((X[:5, None] - X) ** 2).sum(axis=2))
    >>> bool(abs(Z[:5] @ Z.T - K).max() < 0.01)
    True
    """

    def __init__(
        self,
        kernel: KernelLike = "rbf",
        *,
        gamma: float | str | None = None,
        metric: MetricLike | None = None,
        sketch: SketchLike | None = None,
        random_state: RandomState = None,
        n_threads: int | None = None,
        memory_limit: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.metric = metric
        self.sketch = sketch
        self.random_state = random_state
        self.n_threads = n_threads
        self.memory_limit = memory_limit
        self.verbose = verbose

    if TYPE_CHECKING:
        sketch_: Sketch
        landmarks_: CheckedPoints | None
        whitening_: Array | None
        _center: Array | None

    def fit_features(
        self, X: Points, alpha: float | None = None, storage: str = "auto"
    ) -> FactoredFeatures | PlainFeatures:
        """Fit the map; return the features of X as `solve` takes them.

        Z itself is not formed, but K·Sᵀ and W, for n·r² operations less than
        `fit_transform`.  (Where K·Sᵀ is so far from 0 that digits would be lost, it is
        Z after all; and `solve` forms it beside K·Sᵀ for losses with corners, and where
        alpha is too small for what the Gram matrix of K·Sᵀ loses.  What is formed has
        the type of K·Sᵀ, and a certificate is that of the features as they are.)

        Parameters
        ----------
        X : array of shape (n, d)
        alpha : float, optional
            The least penalty of the fits to come: columns of Z that it needs are formed
            in place.
        storage : {"auto", "float32", "recomputed"}
            What is kept.  "auto": K·Sᵀ, in the type of X.  "float32": Z, computed in
            float64 and rounded, at half of the memory; sums are in float64, and
            certificates are those of the features before they were rounded: what
            rounding hides is part of them.  (X of float32 has float32 features in any
            case, and their certificates are those of the features as they are.)
            "recomputed": nothing; K·Sᵀ is computed anew, a block of points at a time,
            in every pass, where n·r numbers have no room.

        Returns
        -------
        FactoredFeatures, Features or RecomputedFeatures
        """
        check_option(storage, "storage", STORAGES)
        X, SKSt, (rows, W) = self.learn(X)
        n_threads, _ = self.limits()
        if storage == "float32" and self._dtype == np.float64:
            return self._rounded_features(X)
        compute = partial(self.fill_products, rows)
        if storage == "recomputed":
            A: Any = RecomputedFeatures(
                compute, X, self.rank_, self._dtype, n_threads, self._block_points(X)
            )
        else:
            A = np.empty((X.shape[0], self.rank_), self._dtype)
            compute(X, A, n_threads)
            if not self.kernel_.centred:
                warn_if_not_finite(A, "K·Sᵀ")
        features = _as_factored(A, SKSt, rows, W, n_threads)
        if alpha is None or not isinstance(features, FactoredFeatures):
            return features
        return features.form_for(alpha)

    def fit_chunks(
        self, X: PointsLike, alpha: float, formed: bool = False
    ) -> "ChunkFeatures":
        """Fit the map; return what computes the features of some points at a time.

        Parameters
        ----------
        X : array or Source of shape (n, d)
        alpha : float
            The penalty of the fit to come: where Gram matrices of K·Sᵀ would lose too
            much beside it, Z is formed.
        formed : bool
            Form Z in any case.

        Returns
        -------
        ChunkFeatures
        """
        X, SKSt, (rows, W) = self.learn(X)
        chunks = ChunkFeatures(self, rows, W, principal(SKSt, rows))
        if not formed:
            probe = chunks(X[: _points.MEDIAN_SUBSAMPLE])
            formed = probe.rounding_of_gram(alpha) > EXACT_ENOUGH
        return replace(chunks, is_formed=bool(formed))

    @property
    def feature_dtype(self) -> Dtype:
        """The type of features of the points of the fit."""
        return self._dtype

    def fill_products(
        self, rows: Indices, X: PointsLike, out: Array, n_threads: int
    ) -> None:
        """out = K·Sᵀ of some checked points, for some rows of S."""
        weights = self.sketch_.checked_weights()[rows]
        half = self.limits()[1] // 2  # for tiles of K
        self._sketch_block(out.T, X, n_threads, half, weights)

    def _block_points(self, X: PointsLike) -> int:
        """Count points of a block of features beside which little else has room."""
        point_bytes = self.rank_ * self._dtype.itemsize
        memory_limit = self.limits()[1]
        n_bytes = min(RECOMPUTED_BYTES, memory_limit // 2)
        return points_of_a_block(point_bytes, n_bytes, memory_limit)

    def _rounded_features(self, X: PointsLike) -> Features:
        """Compute Z in float32, from blocks in float64."""
        n_threads, _ = self.limits()
        Z = np.empty((X.shape[0], self.rank_), np.float32)
        step, largest = self._block_points(X), 0.0
        room = np.empty((min(step, X.shape[0]), self.rank_))
        for start in range(0, X.shape[0], step):
            points = X[start : start + step]
            block = self._fill(room[: points.shape[0]], points)
            with np.errstate(over="ignore"):  # solvers look at what is not finite
                Z[start : start + step] = block
            largest = max(largest, float(np.einsum("ij,ij->i", block, block).max()))
        rounding = _rounding_of_rows(largest * (1 + self.rank_ * EPS), self.rank_)
        return Features(Z, n_threads, row_rounding=rounding)

    def fit_all_points(self, X: Points) -> CheckedPoints:
        """Make all points landmarks, and features of their kernels as they are.

        What `pskernels.exact` solves: coefficients are those of landmarks, W is not
        computed, and there is no `transform`.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        X, in the form that products read best.
        """
        X = self._check_points(X)
        n_threads, memory_limit = self.limits()
        kernel = get_kernel(self.kernel, self.gamma, self.metric)
        kernel, center = prepare(kernel, X, "X", n_threads, memory_limit)
        n = X.shape[0]
        self.kernel_ = kernel
        self.sketch_ = SubSampling(indices=np.arange(n)).draw(n)
        self.landmarks_ = _take_rows(X, np.arange(n))
        self.whitening_ = None
        self.rank_, self.n_features_in_ = X.shape
        self._center, self._dtype = center, common_dtype(X)
        _kept_triangles.pop(self, None)
        return X

    @property
    def center(self) -> Array | None:
        """What is subtracted from points before distances are taken."""
        return self._center

    def _fit(self, X: CheckedPoints) -> CheckedPoints:
        """Fit to checked points; return them in the form that `_fill` reads best."""
        return self.learn(X)[0]

    def learn(self, X: Any) -> tuple[CheckedPoints, Array, tuple[Indices, Array]]:
        """Fit the map; return what a fit goes on with.

        Parameters
        ----------
        X : array of shape (n, d)

        Returns
        -------
        (X in the form that products read best, S·K·Sᵀ, (rows, W)), W being the triangle
        of the whitening, in these rows.
        """
        X = self._check_points(X)
        kernel = get_kernel(self.kernel, self.gamma, self.metric)
        n_threads, memory_limit = self.limits()
        precomputed = isinstance(kernel, Precomputed)
        if precomputed and X.shape[0] != X.shape[1]:
            raise ValueError(
                "X must be a square Gram matrix for a precomputed kernel, got "
                f"{X.shape}"
            )
        sketch = self.sketch
        if sketch is None:
            sketch = PSparsified(min(DEFAULT_ROWS, X.shape[0]))
        sketch = draw_sketch(sketch, X.shape[0], self.random_state, n_threads)
        s, n = sketch.shape
        if s > n:
            warnings.warn(
                f"the sketch has s={s} rows for n={n} points, which is slower than no "
                "sketch; a rank above n is not possible",
                RuntimeWarning,
                stacklevel=levels_to_the_caller(),
            )
        kernel, center = prepare(kernel, X, "X", n_threads, memory_limit)
        landmarks = None if precomputed else _take_rows(X, sketch.indices)
        rows = _points.Rows(X, sketch.indices) if precomputed else landmarks
        SKSt = self._sketch_landmarks(rows, sketch, kernel, center)
        triangle = self._set(X, sketch, landmarks, kernel, center, SKSt)
        # K is symmetric: its rows of landmarks lie together, their columns do not
        X = X.T if precomputed and X.flags.c_contiguous else X
        return X, SKSt, triangle

    def _sketch_landmarks(
        self,
        landmarks: Any,
        sketch: Sketch,
        kernel: Kernel,
        center: Array | None,
        **options: Any,
    ) -> Array:
        """Compute S·K·Sᵀ in float64."""
        n_threads, memory_limit = self.limits()
        if not isinstance(landmarks, _points.Rows):
            landmarks = _points.Rows(landmarks)
        return sketch_landmarks(
            sketch,
            landmarks,
            kernel=kernel,
            center=center,
            dtype=np.dtype(np.float64),
            n_threads=n_threads,
            memory_limit=memory_limit,
            verbose=self.verbose,
            **options,
        )

    def _set(
        self,
        X: PointsLike,
        sketch: Sketch,
        landmarks: CheckedPoints | None,
        kernel: Kernel,
        center: Array | None,
        SKSt: Array,
    ) -> tuple[Indices, Array]:
        """Set what was learnt; return the triangle, and its rows, of the whitening.

        A fit that fails leaves the map as it was.
        """
        dtype = common_dtype(X)
        if not np.isfinite(SKSt).all():
            raise ValueError("S·K·Sᵀ overflows float64; scale X")
        rounded = isinstance(kernel, (CallableKernel, Precomputed))
        cut = _pivot_cut(SKSt, float(np.finfo(dtype).eps), rounded)
        rows, W = _whitening(SKSt, cut, self.limits()[0])
        whitening = np.zeros((len(SKSt), len(rows)))
        whitening[rows] = W
        self.kernel_ = kernel
        self.sketch_ = sketch
        self.landmarks_ = landmarks
        self.whitening_ = whitening
        self.rank_ = whitening.shape[1]
        self.n_features_in_ = X.shape[1]
        self._center = center
        self._dtype = dtype
        _kept_triangles.pop(self, None)
        return rows, W

    def check_learnt(self) -> None:
        """Check that what was learnt fits together, for a map out of a file."""
        self.limits()
        s, m = self.sketch_.weights.shape
        d = self.n_features_in_
        shapes: dict[str, Shape | None] = {
            "whitening_": (s, self.rank_),
            "landmarks_": (m, d),
            "_center": (d,),
        }
        if self.whitening_ is None and self.rank_ == s == m:
            del shapes["whitening_"]
        if isinstance(self.kernel_, Precomputed):
            shapes.update(landmarks_=None, _center=None)
            d = self.sketch_.shape[1]
        for name, shape in shapes.items():
            found = getattr(getattr(self, name), "shape", None)
            if found != shape:
                raise ValueError(f"{name} must have the shape {shape}, got {found}")
        if m == 0 or self.rank_ == 0 or self.n_features_in_ != d:
            raise ValueError(
                f"a map needs landmarks, features and {d} inputs, got {m}, "
                f"{self.rank_} and {self.n_features_in_}"
            )
        if self.landmarks_ is not None:
            check_metric(self.kernel_.metric, self.landmarks_, "landmarks_")
        if isinstance(getattr(self.kernel_, "gamma", None), str):
            raise ValueError(f"the gamma of {self.kernel_} must be a number")
        if not hasattr(self, "_dtype"):
            raise ValueError("the type of features is missing")
        if self.whitening_ is not None:
            _triangle(self.whitening_, np.dtype(np.float64))

    def _triangle(self, dtype: Dtype, n: int) -> tuple[Indices, Array]:
        """Find `_triangle` of the whitening, kept where n points are few."""
        if self.whitening_ is None:
            raise ValueError(
                "a model with all points as landmarks has no features to transform to "
                "or to go on from: fit it with n_components below the number of points"
            )
        kept = _kept_triangles.get(self)
        if kept is None or kept[0] is not self.whitening_ or kept[2].dtype != dtype:
            kept = self.whitening_, *_triangle(self.whitening_, dtype)
            if n < self.rank_:
                kept[0].flags.writeable = False  # or it could change unseen
                _kept_triangles[self] = kept
        return kept[1:]

    def _landmark_rows(self, X: Any) -> "Rows":
        """Take the landmarks, or their rows of K(landmarks, X) if it is precomputed."""
        if self.landmarks_ is None:
            return _points.Rows(X.T, self.sketch_.indices)
        return _points.Rows(self.landmarks_)

    def _fill(self, out: Array, X: Any) -> Array:
        """out = z_S(X), of points that are checked."""
        _fill_maps([self], [out], X)
        if not self.kernel_.centred:  # shift-invariant kernels are at most 1
            warn_if_not_finite(out, "z_S")
        return out

    def _sketch_block(
        self,
        SK: Array,
        X: PointsLike,
        n_threads: int,
        memory_limit: int,
        weights: Weights | None = None,
        **options: Any,
    ) -> None:
        """SK = S · K(points of the fit, X) of a block of points, or rows of it."""
        try:
            tiles = _tiles.make_tiles(
                kernel=self.kernel_,
                center=self._center,
                dtype=SK.dtype,
                landmarks=self._landmark_rows(X),
                points=_points.Rows(X),
                weights=self.sketch_.weights if weights is None else weights,
                n_threads=n_threads,
                memory_limit=memory_limit,
                **options,
            )
        except ValueError as error:
            if not str(error).startswith("memory_limit"):
                raise
            raise ValueError(
                f"half of memory_limit is for tiles of K: {error}, twice that in all"
            ) from None
        _tiles.fill_product(SK, tiles, self.sketch_.scale, "S·K", verbose=0)

    def _products_of_pivots(
        self,
        rows: Indices,
        out: Array,
        X: PointsLike,
        n_threads: int,
        memory_limit: int,
    ) -> Array:
        """Compute K·Sᵀ of a block, for some rows of S: in `out` if rows are whole."""
        if not has_whole_rows(out):
            out = np.empty(out.shape, out.dtype)
        weights = self.sketch_.checked_weights()[rows]
        self._sketch_block(out.T, X, n_threads, memory_limit, weights)
        return out

    def fold(self, coef: npt.ArrayLike) -> Array:
        """Compute one coefficient for each landmark, S_SGᵀ W coef.

        Parameters
        ----------
        coef : array of shape (rank_,) or (rank_, c)

        Returns
        -------
        ndarray of float64, shape (m,) or (m, c)
            K(X, landmarks_) @ fold(coef) is transform(X) @ coef.
        """
        coef = self._check_coef(coef)
        if self.whitening_ is None:
            return coef
        with single_threaded_blas():
            found: Array = self.sketch_.scaled_weights().T @ (self.whitening_ @ coef)
            return found

    def predict_folded(
        self, X: Points, dual_coef: npt.ArrayLike, intercept: npt.ArrayLike = 0.0
    ) -> Array:
        """Compute K(X, landmarks_) @ dual_coef + intercept, for what `fold` returned.

        Parameters
        ----------
        X : array of shape (n, d)
        dual_coef : array of shape (m,) or (m, c)
        intercept : float, or array of shape (c,)

        Returns
        -------
        ndarray of shape (n,) or (n, c)
            As that of `predict`.
        """
        self._check_fitted()
        m = len(self.sketch_.indices)
        return self._predict(X, check_coef(dual_coef, m, "dual_coef"), intercept)

    def gradient(self, X: Points, coef: npt.ArrayLike) -> Array:
        """Compute gradients of ``predict(·, coef)`` at points.

        Parameters
        ----------
        X : array of shape (n, d)
        coef : array of shape (rank_,) or (rank_, c)

        Returns
        -------
        ndarray of shape (n, d), or (n, c, d)
            As those of `kernel_gradient`.
        """
        return self.gradient_folded(X, self.fold(coef))

    def gradient_folded(self, X: Points, dual_coef: npt.ArrayLike) -> Array:
        """Compute gradients of K(·, landmarks_) @ dual_coef at points.

        Parameters
        ----------
        X : array of shape (n, d)
        dual_coef : array of shape (m,) or (m, c)

        Returns
        -------
        ndarray of shape (n, d), or (n, c, d)
        """
        self._check_fitted()
        if isinstance(self.kernel_, (CallableKernel, Precomputed)):
            raise ValueError(
                "gradients are those of kernels by name: a function or a precomputed "
                "kernel has none"
            )
        dual_coef = check_coef(dual_coef, len(self.sketch_.indices), "dual_coef")
        X = self.check_new_points(X)
        n_threads, memory_limit = self.limits()
        gradients = find_gradients(
            _points.Rows(X),
            self._landmark_rows(X),
            dual_coef.reshape(len(dual_coef), -1),
            kernel=self.kernel_,
            center=self._center,
            dtype=self._result_dtype(X),
            n_threads=n_threads,
            memory_limit=memory_limit,
            verbose=self.verbose,
        )
        return gradients if dual_coef.ndim > 1 else gradients[:, 0]

    def _fill_prediction(self, out: Array, X: PointsLike, dual_coef: Array) -> None:
        n_threads, memory_limit = self.limits()
        fill_kernel_matmul(
            out,
            _points.Rows(X),
            self._landmark_rows(X),
            dual_coef,
            kernel=self.kernel_,
            center=self._center,
            n_threads=n_threads,
            memory_limit=memory_limit,
            verbose=self.verbose,
        )


@dataclass(frozen=True)
class ChunkFeatures:
    """Features of some points at a time, of a map that is fitted.

    Parameters
    ----------
    feature_map : FeatureMap
    rows : array of int
        Rows of the pivots.
    W : array of shape (r, r)
        The triangle of the whitening, in these rows.
    penalty : array of shape (r, r)
        S·K·Sᵀ in these rows.
    is_formed : bool
        Whether features are Z, or else K·Sᵀ with W.
    is_rounded : bool
        Whether Z is rounded to float32.
    """

    feature_map: FeatureMap
    rows: Indices
    W: Array
    penalty: Array
    is_formed: bool = False
    is_rounded: bool = False

    @property
    def r(self) -> int:
        return len(self.rows)

    @property
    def dtype(self) -> Dtype:
        return np.dtype(np.float32) if self.is_rounded else self._dtype

    @property
    def _dtype(self) -> Dtype:
        return self.feature_map.feature_dtype

    @property
    def can_be_rounded(self) -> bool:
        """Whether rounding to float32 saves something, and is bounded."""
        centred = self.feature_map.kernel_.centred
        return self._dtype == np.float64 and centred

    def rounded(self) -> "ChunkFeatures":
        """Make the same with Z rounded to float32."""
        return replace(self, is_formed=True, is_rounded=True)

    @property
    def row_rounding(self) -> float:
        """A bound on the norm of what rounding takes of a row; ‖z‖² ≤ k(x, x) = 1."""
        if not self.is_rounded:
            return 0.0
        return _rounding_of_rows(1 + 1e-6, self.r)

    def __call__(
        self, X: PointsLike, n_threads: int | None = None
    ) -> FactoredFeatures | Features:
        """Compute features of checked points."""
        return self.of_numbers(self.numbers(X, n_threads), n_threads)

    def numbers(self, X: PointsLike, n_threads: int | None = None) -> Array:
        """Compute the numbers that features are made of, K·Sᵀ or Z."""
        n_threads = self._threads(n_threads)
        A = np.empty((X.shape[0], self.r), self._dtype)
        self.feature_map.fill_products(self.rows, X, A, n_threads)
        if self.is_formed:
            times_triangle(A, self.W.astype(self._dtype, order="C"), n_threads)
        return A.astype(self.dtype, copy=False)

    def of_numbers(
        self, A: Array, n_threads: int | None = None
    ) -> FactoredFeatures | Features:
        """Make features of numbers that were computed before."""
        n_threads = self._threads(n_threads)
        if self.is_formed:
            return Features(A, n_threads, row_rounding=self.row_rounding)
        return FactoredFeatures(A, self.W, self.penalty, n_threads)

    def _threads(self, n_threads: int | None) -> int:
        return self.feature_map.limits()[0] if n_threads is None else n_threads

    def largest(self) -> Array | None:
        """Bound |z| of each column for all points; None if the kernel has no bound."""
        feature_map = self.feature_map
        if not feature_map.kernel_.centred:  # shift-invariant kernels are at most 1
            return None
        weights = np.abs(feature_map.sketch_.scaled_weights()[self.rows])
        sums = np.asarray(weights.sum(axis=1)).ravel()
        return absolute_product(sums, self.W) * (1 + self.r * FLOAT32_EPS)


def _rounding_of_rows(largest: float, r: int) -> float:
    """Bound the norm of what float32 takes of rows of r numbers, ‖z‖² ≤ largest."""
    return FLOAT32_EPS / 2 * math.sqrt(largest) + FLOAT32_LEAST * math.sqrt(r)


def _fill_maps(
    maps: list[FeatureMap], outs: list[Array], X: PointsLike, formed: bool = True
) -> None:
    """Compute features of maps that differ by gamma alone, of points that are checked.

    Unless `formed`, what their triangles are to multiply.
    """
    first, dtype = maps[0], outs[0].dtype
    n_threads, memory_limit = first.limits()
    s, n = first.sketch_.shape[0], X.shape[0]
    half = memory_limit // 2  # for a block of S·K, and as much for tiles of K
    point_bytes = len(maps) * s * dtype.itemsize
    n_bytes = min(half, BLOCK_POINTS * s * dtype.itemsize)
    if len(maps) > 1:
        n_bytes = min(n_bytes, max(SHARED_BYTES, point_bytes))
    step = points_of_a_block(point_bytes, n_bytes, memory_limit)
    triangles = [one._triangle(dtype, n) for one in maps]
    if len(maps) > 1:
        KSts = np.empty((len(maps), min(step, n), s), dtype)
        gammas = [one.kernel_.gamma for one in maps]  # type: ignore[attr-defined]
    with progress(n, "z_S", first.verbose) as report:
        for start in range(0, n, step):
            block = X[start : start + step]
            if len(maps) > 1:  # one product for all gammas, each with rows of its own
                shared = KSts[:, : block.shape[0]]
                SKs = shared.swapaxes(1, 2)
                first._sketch_block(SKs, block, n_threads, half, gammas=gammas)
            for k, (rows, W) in enumerate(triangles):
                part = outs[k][start : start + step]
                if len(maps) > 1:
                    # "clip": "raise", the default, would copy twice
                    A = np.take(shared[k], rows, axis=1, out=part, mode="clip")
                else:
                    A = first._products_of_pivots(rows, part, block, n_threads, half)
                if formed:
                    times_triangle(A, W, n_threads)
                if A is not part:
                    part[...] = A
            report(block.shape[0])


def share_distances(kernel: Kernel, sketch: Sketch, X: PointsLike) -> bool:
    """Tell whether `fit_transform_gammas` is possible, and pays.

    It copies s numbers for each point and gamma, where each map by itself computes the
    distances of the point to all landmarks once more.
    """
    if not isinstance(kernel, GammaKernel) or sketch.is_dense or sp.issparse(X):
        return False
    return len(sketch.indices) * X.shape[1] > COPY_COST * sketch.shape[0]


def fit_and_transform(
    feature_map: FeatureMap,
    X: Points,
    X_new: Points,
    formed: bool = True,
    room: dict[tuple[int, int], Array] | None = None,
) -> tuple[FeatureMap, Any, Any]:
    """Fit a map; return it, with the features of X and of others.

    Parameters
    ----------
    feature_map : FeatureMap
        Not fitted.
    X, X_new, formed, room
        As for `fit_transform_gammas`.

    Returns
    -------
    (FeatureMap, features of X, features of X_new)
    """
    X, *learnt = feature_map.learn(X)
    X_new = feature_map.check_new_points(X_new, "X_new")
    return feature_map, *(
        _features_of([feature_map], [learnt], points, formed, room, side)[0]
        for side, points in enumerate((X, X_new))
    )


def fit_transform_gammas(
    feature_map: FeatureMap,
    gammas: list[float],
    X: Points,
    X_new: Points,
    formed: bool = True,
    room: dict[tuple[int, int], Array] | None = None,
) -> list[tuple[FeatureMap, Any, Any]]:
    """Fit maps of several gammas, whose distances are computed once.

    Parameters
    ----------
    feature_map : FeatureMap
        Not fitted; its sketch is drawn, and its kernel has a gamma.
    gammas : list of float
    X, X_new : array of shape (n, d), (n_new, d)
        Points to fit to, and others.
    formed : bool
        Whether features are arrays, or else those of `FeatureMap.fit_features`.
    room : dict, optional
        Memory of features that are no longer used, from an earlier call: new memory may
        cost more than what is done with it.

    Returns
    -------
    list of (FeatureMap, features of X, features of X_new)
    """
    X, X_new = check_points(X, "X"), check_points(X_new, "X_new")
    kernel = replace(
        get_kernel(feature_map.kernel),
        gamma=max(gammas),  # type: ignore[call-arg]
    )
    n_threads, memory_limit = feature_map.limits()
    kernel, center = prepare(kernel, X, "X", n_threads, memory_limit)
    prepare(kernel, X_new, "X_new", n_threads, memory_limit)
    sketch = feature_map.sketch
    assert isinstance(sketch, Sketch)
    landmarks = _take_rows(X, sketch.indices)
    SKSts = feature_map._sketch_landmarks(
        landmarks, sketch, kernel, center, gammas=gammas
    )
    maps, learnt = [], []
    for gamma, SKSt in zip(gammas, SKSts, strict=True):
        one = copy(feature_map)
        of_gamma = replace(kernel, gamma=gamma)  # type: ignore[call-arg]
        one.kernel = of_gamma
        triangle = one._set(X, sketch, landmarks, of_gamma, center, SKSt)
        maps.append(one)
        learnt.append((SKSt, triangle))
    features = (
        _features_of(maps, learnt, points, formed, room, side)
        for side, points in enumerate((X, X_new))
    )
    return list(zip(maps, *features, strict=True))


def _features_of(
    maps: list[FeatureMap],
    learnt: Sequence[Any],
    X: PointsLike,
    formed: bool,
    room: dict[tuple[int, int], Array] | None,
    side: int,
) -> list[Any]:
    """Compute features of maps that differ by gamma alone, of checked points."""
    dtype, (n_threads, _) = maps[0]._result_dtype(X), maps[0].limits()
    outs = [
        _array(room, (side, k), (X.shape[0], one.rank_), dtype)
        for k, one in enumerate(maps)
    ]
    _fill_maps(maps, outs, X, formed)
    if formed:
        return outs
    return [
        _as_factored(A, SKSt, rows, W, n_threads)
        for A, (SKSt, (rows, W)) in zip(outs, learnt, strict=True)
    ]


def _array(
    room: dict[tuple[int, int], Array] | None,
    key: tuple[int, int],
    shape: tuple[int, ...],
    dtype: Dtype,
) -> Array:
    """Make an array, in memory that is kept under a key if there is any."""
    room, size = {} if room is None else room, math.prod(shape)
    if key not in room or room[key].size < size or room[key].dtype != dtype:
        room[key] = np.empty(size, dtype)
    return room[key][:size].reshape(shape)


def _as_factored(
    A: Array | RecomputedFeatures, SKSt: Array, rows: Indices, W: Array, n_threads: int
) -> FactoredFeatures | PlainFeatures:
    """Make features of K·Sᵀ and the triangle, formed if they are far from 0."""
    features = FactoredFeatures(A, W, principal(SKSt, rows), n_threads)
    far = far_origin(*features.inner.column_range, features.dtype) is not None
    return features.formed() if far else features


def _take_rows(X: PointsLike, indices: Indices) -> CheckedPoints:
    """Copy some points, C-contiguous, or sparse if X is."""
    rows: CheckedPoints = X[indices]
    return rows if sp.issparse(rows) else np.ascontiguousarray(rows)


def _norm(A: Array) -> float:
    """Compute the Frobenius norm, which does not overflow."""
    size: float = lapack.dlange("F", A.T)  # type: ignore[call-arg]
    return size


def _pivot_cut(SKSt: Array, eps: float, rounded: bool) -> float:
    """Find up to where pivots of S·K·Sᵀ are lost; `rounded`: k itself has that eps."""
    s, size = len(SKSt), _norm(SKSt)
    if rounded:
        return PIVOT_CUT * s * eps * size
    noise = s * (SMALLEST_PIVOT * eps) ** 2 * float(np.abs(SKSt.diagonal()).max())
    return max(PIVOT_CUT * s * EPS * size, noise)


def _whitening(SKSt: Array, cut: float, n_threads: int) -> tuple[Indices, Array]:
    """Find (rows, W): Wᵀ (S·K·Sᵀ) W = I in these rows, those of pivots above the cut.

    S·K·Sᵀ = UᵀU, the largest pivot first, up to what is rounding; W = U⁻¹, a triangle.
    Eigenvectors would do as well, for twenty times the time.
    """
    s, size = len(SKSt), _norm(SKSt)
    U, order = pivoted_cholesky(SKSt, cut, n_threads)
    rank = len(U)
    left = order[rank:]
    with single_threaded_blas():
        rest = principal(SKSt, left) - U[:, rank:].T @ U[:, rank:]
    rounding = np.abs(rest).max(initial=0.0)
    # values of k that were rounded to float32 may cause as much, even in float64
    if rounding > max(cut, s * FLOAT32_EPS * size):
        _refuse(SKSt)
    cut = max(cut, rounding)  # others are as wrong
    rank = int(np.count_nonzero(U.diagonal() ** 2 > cut))
    if rank == 0:
        _refuse(SKSt)
    return order[:rank], inverse_of_triangle(U[:rank, :rank], n_threads)


def _triangle(whitening: Array, dtype: Dtype) -> tuple[Indices, Array]:
    """Find (rows, W): the rows of the pivots, in which the whitening is a triangle."""
    entries = whitening != 0
    used = np.flatnonzero(entries.any(axis=1))
    rows = used[np.argsort(entries[used].argmax(axis=1))]
    W = np.ascontiguousarray(whitening[rows], dtype)
    if W.shape[0] != W.shape[1] or np.tril(W, -1).any():
        raise ValueError("whitening_ must be a triangle in the rows of its pivots")
    return rows, W


def _refuse(SKSt: Array) -> NoReturn:
    """Say what is wrong with the eigenvalues of S·K·Sᵀ."""
    eigenvalues = np.linalg.eigvalsh(SKSt)
    smallest, largest = eigenvalues[0], eigenvalues[-1]
    if not largest > 0:
        raise ValueError(
            "S·K·Sᵀ must have a positive eigenvalue, but the largest one is "
            f"{largest:g}"
        )
    raise ValueError(
        "the kernel must be positive semidefinite, but S·K·Sᵀ has the eigenvalue "
        f"{smallest:g} (the largest one is {largest:g})"
    )
