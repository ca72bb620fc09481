"""`KernelSketch`: the feature map as a scikit-learn transformer."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from pskernels._types import (
    AnyArray,
    Array,
    KernelLike,
    MetricLike,
    RandomState,
    SketchLike,
)
from pskernels._validation import count_not_finite, raise_not_finite
from pskernels.choice import GrowingFeatures, Growth, grow, mean_residual
from pskernels.estimators.base import SketchedEstimator
from pskernels.estimators.defaults import is_auto
from pskernels.estimators.state import all_or_nothing
from pskernels.sources import Source, is_source, open_points

if TYPE_CHECKING:
    from pskernels.feature_map import FeatureMap
    from pskernels.kernels import Kernel


class KernelSketch(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, SketchedEstimator
):
    """Features whose scalar products approximate a kernel.

    A drop-in for scikit-learn's `Nystroem`, with any sketch: for a `Pipeline` with a
    linear model of yours.

    Parameters
    ----------
    kernel : str, kernel object or callable
        "rbf", "laplacian", "matern12", "matern32", "matern52", "polynomial",
        "linear", "cosine", "sobolev" (for features ≥ 0), "precomputed"; an object such
        as ``Matern(0.5, nu=2.5)``; or a function of two arrays of points.  "auto" is
        the best of "rbf", "laplacian", "matern12" and "matern32", by held-out points:
        `fit` needs y.
    gamma : float, "scale", "auto" or "median", optional
        Scale of the kernel.  None means "scale": 1 / the sum of the
        columns' variances.
    metric : array of shape (d,) or (r, d), "learn" or "learn-full", optional
        L: the kernel sees L·x in place of x.  "learn" finds a number for each feature,
        and "learn-full" a matrix, from the gradients of fits to y, in a few rounds on
        at most 5,000 points, and with it gamma, unless that is given; features need no
        scaling then.  Machines with alpha="auto" take the alpha of these fits as well.
    feature_groups : array of shape (d,), optional
        Labels: features with the same label, such as the columns of a category, share
        one number of a metric that is learnt.
    sketch : str or sketch
        "p-sr" and "p-sg" (p-sparsified, with signs or normal numbers), "nystroem",
        "gaussian", "accumulation", "count-sketch", "ros"; or an object such as
        ``PSparsified(s=100)``, which has its own n_components and p.
    n_components : int or "auto"
        Rows of the sketch, the largest number of features.  "auto" doubles 64 rows
        until that gains no more than `rtol`: of k(x, x) that features do not see, or,
        in the machines, of the loss of a fifth of the points, which are held out.  At
        most 2,048, and what memory_limit leaves to five arrays of features.
    p : float in (0, 1] or "auto", optional
        Probability of a non-zero of "p-sr" and "p-sg"; None means 20 / n.  "auto", the
        default of the machines, looks at 1,000 points: if a sub-sample of them misses a
        rare part with extreme targets, p = 50 / n, or less for more than 10,000
        landmarks (of the first rows, if n_components is "auto"); else the sketch is
        Nyström's.  Up to 2,000 points, p = 20 / n.
    rtol : float
        For n_components="auto".
    memory_limit : int, optional
        Bytes that may be used beside inputs, results and the features of all points,
        n × n_components; 1 GiB by default.
    n_threads : int, optional
        None means all cores this process may use.
    random_state : None, int, numpy Generator or numpy RandomState
        For drawing the sketch.
    verbose : int
        1 shows progress.

    Attributes
    ----------
    feature_map_ : FeatureMap
    kernel_ : kernel object
        The kernel, its gamma a number.
    sketch_ : Sketch
        The drawn sketch.
    landmarks_ : array of shape (m, d)
        The points of the fit that the features need.
    growth_ : list of Growth
        The steps of n_components="auto": n_components, n_landmarks, rank and value, the
        last of which may have been taken back.
    metric_ : ndarray, or None
        L.
    feature_importances_ : ndarray of shape (d,)
        Only if there is a metric: the shares of features in squared distances, in their
        standard deviations.
    rounds_ : list of Round
        Only if the kernel or the metric was learnt: kernel, gamma, alpha, loss of
        held-out points (as a share of that of a constant) and importances of each fit.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only if X has names.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from pskernels.estimators import KernelSketch
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(500, 2))
    >>> y = np.sin(6 * X[:, 0]) * X[:, 1]
    >>> model = make_pipeline(KernelSketch(gamma=5.0, random_state=0), Ridge(1e-3))
    >>> bool(model.fit(X, y).score(X, y) > 0.99)
    True
    """

    def __init__(
        self,
        *,
        kernel: KernelLike = "rbf",
        gamma: float | str | None = None,
        metric: MetricLike | None = None,
        feature_groups: npt.ArrayLike | None = None,
        sketch: str | SketchLike = "p-sr",
        n_components: int | str = 100,
        p: float | str | None = None,
        rtol: float = 0.01,
        memory_limit: int | None = None,
        n_threads: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.metric = metric
        self.feature_groups = feature_groups
        self.sketch = sketch
        self.n_components = n_components
        self.p = p
        self.rtol = rtol
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the sketch, and learn the map.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
            A source, as for `SketchedKernelRegressor`, is read in slices.
        y : array of shape (n,), optional
            Targets that are numbers help p="auto"; metric="learn" and kernel="auto"
            need them: numbers, or labels as text.

        Returns
        -------
        The transformer itself.
        """
        self._fit(X, y, None)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Compute ``fit(X, y).transform(X)``.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
        y : array of shape (n,), optional
            Targets that are numbers help p="auto".

        Returns
        -------
        ndarray of shape (n, n_features_out)
        """
        found: Array = self._fit(X, y, "transform")
        return found

    def _fit(self, X: Any, y: Any, form: str | None) -> Any:
        with all_or_nothing(self):
            if is_source(X):
                X = open_points(X)
                self._learn_form(X)
                if is_auto(self.n_components, "n_components"):
                    raise ValueError("n_components='auto' needs all points in memory")
            else:
                X = self._check_points(X, reset=True)
                self._warn_if_unscaled(X)
            targets = None
            if y is not None and self.p == "auto":
                check_consistent_length(X, y)
                targets = np.asarray(y)
                targets = targets if targets.dtype.kind in "biuf" else None
            make_map = self._map_maker(X, None, self._choose_kernel(X, y))
            self.feature_map_, Z = self._fit_map(
                make_map, X, targets, None, self._seed(), form
            )
        return Z

    def _choose_kernel(self, X: Any, y: Any) -> "Kernel":
        """Find the kernel of the parameters, or learn it."""
        self.__dict__.pop("rounds_", None)
        if not self._learns_kernel():
            return self._named_kernel(self.gamma)
        if y is None:
            raise ValueError(
                f"kernel={self.kernel!r} and metric={self.metric!r} are learnt from "
                "targets: fit(X, y) needs y"
            )
        if isinstance(X, Source):
            raise ValueError("a metric is learnt from points that are in memory")
        check_consistent_length(X, y)
        y = np.asarray(y)
        if y.dtype.kind not in "biuf":  # classes
            y = y.astype(str)
            y = np.where(y[:, None] == np.unique(y), 1.0, -1.0)
        elif count_not_finite(y.astype(np.float64)):
            raise_not_finite(y.reshape(len(y), -1), "y")
        return self._learn_kernel(X, y, None, self._seed()).kernel

    def _grow(
        self,
        features: GrowingFeatures,
        X: Any,
        y: Any,
        weight: Array | None,
        seed: int,
        rtol: float,
    ) -> "tuple[FeatureMap, Array, list[Growth]]":
        """Grow until the part of k(x, x) that features do not see stops falling."""

        def residual(feature_map: "FeatureMap", Z: Array) -> float:
            return mean_residual(feature_map, X, seed)

        return grow(features, residual, rtol, self._most_rows(X.shape[0]), scale=1.0)

    def transform(self, X: Any, *, out: AnyArray | None = None) -> Array:
        """Compute the features of points.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
            As for `fit`; a source is read block by block.
        out : ndarray of the shape and type of the result, optional
            Such as a memory map, which is filled block by block.

        Returns
        -------
        ndarray of shape (n, n_features_out)
            float32 if X and the points of the fit are, else float64.
        """
        return self._in_blocks(self._transform, X, out)

    def _transform(self, X: Any) -> Array:
        check_is_fitted(self)
        points: Any = X
        if not isinstance(X, Source):
            points = self._check_points(X, reset=False)
        return self.feature_map_.transform(points)

    @property
    def _n_features_out(self) -> int:
        return self.feature_map_.rank_
