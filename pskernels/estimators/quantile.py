"""`SketchedQuantileRegressor`: several quantiles at once."""

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from pskernels._robust import scale_of
from pskernels._validation import check_open_probability, check_quantiles
from pskernels.estimators.base import SketchedMachine
from pskernels.losses import Pinball
from pskernels.metrics import pinball_loss
from pskernels.quantiles import get_coupling, rearrange


class SketchedQuantileRegressor(RegressorMixin, SketchedMachine):
    """Kernel quantile regression on a sketch, for several levels at once.

    Parameters
    ----------
    kernel, gamma, metric, feature_groups, sketch, p, rtol, memory_limit, n_threads, \
random_state, verbose
        As for `KernelSketch`; gamma="cv" is the best of five by three folds (of at most
        5,000 points), with the given alpha.
    n_components : int or "auto", optional
        As for `KernelSketch`; None means 6·√n, from 100 to 1,000 (100 if points are not
        in memory).
    quantiles : sequence of float, or float
        Levels in (0, 1), increasing.  For a single number, predictions are 1-d.
    alpha : float or "auto"
        Penalty, see `SketchedKernelRegressor`.  "auto" is 0.1 / n divided by a robust
        estimate of the scale of y.
    noncrossing : {"sort", "penalty", "none"}
        "sort" sorts the predictions of every point: no crossing, and never a larger
        pinball loss.  "penalty" couples the levels in one machine, the paper's way,
        which makes crossing rare.  "none" does neither.
    output_matrix : array of shape (levels, levels), optional
        Couples the levels; None means none for "sort" and "none", and
        ``quantile_matrix(quantiles)`` for "penalty".
    fit_intercept, solver, tol, max_iter, feature_storage, warm_start
        As for `SketchedKernelRegressor`.

    Attributes
    ----------
    quantiles_ : tuple of float
    coef_, intercept_, dual_coef_, landmarks_, sketch_, kernel_, feature_map_, \
loss_, growth_, metric_, feature_importances_, rounds_, alpha_, n_iter_, dual_gap_, \
objective_, converged_, history_, n_features_in_, feature_names_in_
        As for `SketchedKernelRegressor`, with an output for each level.

    Examples
    --------
    >>> import numpy as np
    >>> from pskernels.estimators import SketchedQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 2))
    >>> y = np.sin(6 * X[:, 0]) + X[:, 1] * rng.normal(size=1000)
    >>> model = SketchedQuantileRegressor(quantiles=[0.1, 0.5, 0.9], random_state=0)
    >>> model.fit(X, y).predict(X).shape
    (1000, 3)
    >>> low, high = model.predict_interval(X, coverage=0.8).T
    >>> bool(0.75 < np.mean((low <= y) & (y <= high)) < 0.85)
    True
    """

    def __init__(
        self,
        *,
        kernel="rbf",
        gamma=None,
        metric=None,
        feature_groups=None,
        sketch="p-sr",
        n_components=None,
        p="auto",
        rtol=0.01,
        quantiles=(0.1, 0.5, 0.9),
        alpha="auto",
        fit_intercept=True,
        output_matrix=None,
        noncrossing="sort",
        solver="auto",
        tol=1e-6,
        max_iter=None,
        feature_storage="auto",
        memory_limit=None,
        n_threads=None,
        random_state=None,
        warm_start=False,
        verbose=0,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.metric = metric
        self.feature_groups = feature_groups
        self.sketch = sketch
        self.n_components = n_components
        self.p = p
        self.rtol = rtol
        self.quantiles = quantiles
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.output_matrix = output_matrix
        self.noncrossing = noncrossing
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.feature_storage = feature_storage
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def predict(self, X, *, out=None):
        """Predict quantiles.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
            As for `fit`; a source is read block by block.
        out : ndarray of the shape and type of the result, optional
            Such as a memory map, which is filled block by block.

        Returns
        -------
        ndarray of shape (n, levels), or (n,) if `quantiles` is a number
        """
        return self._in_blocks(self._predict, X, out)

    def _predict(self, X):
        predicted = self._predict_levels(X)
        return predicted[:, 0] if self._one_level else predicted

    def _predict_levels(self, X):
        predicted = self._decide(X)
        if predicted.ndim == 1:
            return predicted[:, None]
        return rearrange(predicted) if self._sorts else predicted

    def predict_interval(self, X, coverage=0.8, *, out=None):
        """Predict intervals that are meant to contain a share of the targets.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
        coverage : float in (0, 1)
            The interval goes from the level (1 - coverage)/2 to 1 minus that; both must
            be among the quantiles of the fit.
        out : ndarray of shape (n, 2), optional
            As for `predict`.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends, also where levels cross.
        """
        check_is_fitted(self)
        tail = (1 - check_open_probability(coverage, "coverage")) / 2
        ends = [_find_level(self.quantiles_, level) for level in (tail, 1 - tail)]
        if None in ends:
            raise ValueError(
                f"coverage={coverage} needs the levels {tail:g} and {1 - tail:g}, but "
                f"the fit has {', '.join(f'{level:g}' for level in self.quantiles_)}"
            )

        def interval(X):
            return np.sort(self._predict_levels(X)[:, ends], axis=1)

        return self._in_blocks(interval, X, out)

    def _find_gradient(self, X):
        gradients = super()._find_gradient(X)
        if gradients.ndim == 3 and self._sorts:  # with the levels they belong to
            order = self._decide(X).argsort(axis=1, kind="stable")
            gradients = np.take_along_axis(gradients, order[:, :, None], axis=1)
        return gradients[:, 0] if self._one_level and gradients.ndim == 3 else gradients

    def score(self, X, y, sample_weight=None):
        """Find the share of the pinball loss of constant quantiles that is explained.

        1 is perfect, and 0 as good as the quantiles of y itself, for all points alike:
        scikit-learn's `d2_pinball_score`, of the sum over levels.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional

        Returns
        -------
        float
        """
        predicted = self._predict_levels(X)
        y = column_or_1d(y).astype(np.float64)
        constants = [
            Pinball(level).constant_minimiser(y, sample_weight)
            for level in self.quantiles_
        ]
        return 1 - _ratio(
            pinball_loss(y, predicted, self.quantiles_, sample_weight),
            pinball_loss(
                y,
                np.tile(constants, (len(y), 1)),
                self.quantiles_,
                sample_weight,
            ),
        )

    def _y_options(self):
        return dict(y_numeric=True)

    def _encode(self, y):
        self.quantiles_ = check_quantiles(np.atleast_1d(self.quantiles))
        self._one_level = np.ndim(self.quantiles) == 0
        self._sorts = self.noncrossing == "sort"
        return y

    def check_learnt(self):
        """Check the levels, too."""
        super().check_learnt()
        check_quantiles(self.quantiles_)
        if not (hasattr(self, "_sorts") and hasattr(self, "_one_level")):
            raise ValueError("_sorts or _one_level is missing")

    def _decision_shape(self):
        n_levels = len(self.quantiles_)
        return (n_levels,) if n_levels > 1 else ()

    def _alpha_unit(self, y, weight):
        return scale_of(y, weight)

    def _learning_options(self):
        return dict(robust=True, spread=True)

    def _problem(self, Z, y, options):
        coupling = get_coupling(self.quantiles_, self.noncrossing)
        if self.output_matrix is not None:
            coupling = self.output_matrix
        return Pinball(self.quantiles_), coupling, None


def _find_level(levels, level):
    """Find the place of a level, but for rounding; None if it is not there."""
    close = np.flatnonzero(np.isclose(levels, level, rtol=0, atol=1e-9))
    return int(close[0]) if len(close) else None


def _ratio(part, whole):
    """Divide: 0 for 0 / 0, and 1 for other parts of nothing, as in `r2_score`."""
    if part == 0:
        return 0.0
    return part / whole if whole > 0 else 1.0
