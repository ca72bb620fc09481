"""`SketchedQuantileRegressor`: several quantiles at once."""

import zlib
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from pskernels._robust import scale_of, tighten
from pskernels._types import (
    AnyArray,
    Array,
    Indices,
    KernelLike,
    MetricLike,
    RandomState,
    SketchLike,
)
from pskernels._validation import check_positive, check_quantiles
from pskernels.conformal import bound_by_folds
from pskernels.distribution import QuantileDistribution
from pskernels.estimators.base import SketchedMachine
from pskernels.estimators.calibration import METHODS, CalibratesIntervals, ColumnModel
from pskernels.estimators.defaults import is_auto
from pskernels.losses import Loss, Pinball
from pskernels.metrics import pinball_loss
from pskernels.quantiles import get_coupling, rearrange

if TYPE_CHECKING:
    from pskernels.solvers.base import Solver, StartLike

# alpha="auto" of so many points is chosen by folds, from multiples of the default, and
# to this gap: of those whose loss is so near to the best one, that with the best shares
# of levels.  With more points, shares are as good, and the choice would take longer.
FEW_POINTS, CHOICE_FOLDS, CHOICE_TOL, NEAR_BEST = 2000, 3, 1e-2, 0.05
PENALTY_MULTIPLES = np.array([100.0, 30.0, 8.0, 1.0])


class SketchedQuantileRegressor(CalibratesIntervals, RegressorMixin, SketchedMachine):
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
        estimate of the scale of y; for at most 2,000 points up to 100 times as much,
        chosen by three folds, so that levels keep their share of held-out points.
    noncrossing : {"sort", "penalty", "none"}
        "sort" sorts the predictions of every point: no crossing, and never a larger
        pinball loss.  "penalty" couples the levels in one machine, the paper's way,
        which makes crossing rare.  "none" does neither.
    output_matrix : array of shape (levels, levels), optional
        Couples the levels; None means none for "sort" and "none", and
        ``quantile_matrix(quantiles)`` for "penalty".
    calibration : {"split", "cv+"}, optional
        Move the ends of `predict_interval` so that they keep their coverage [1]_: by a
        quarter of the points (at most 2,500), which the machine does not see, or by
        five folds, for some six times the time and no loss of points.  The two ends
        are moved by themselves: each side misses half of what is left.  `predict` is
        as without one; `predict_distribution` has levels that are moved.
    fit_intercept, solver, tol, max_iter, feature_storage, warm_start
        As for `SketchedKernelRegressor`.

    Attributes
    ----------
    quantiles_ : tuple of float
    calibration_ : Calibration
        Predictions of held-out points.
    coef_, intercept_, dual_coef_, landmarks_, sketch_, kernel_, feature_map_, \
loss_, growth_, metric_, feature_importances_, rounds_, alpha_, n_iter_, dual_gap_, \
objective_, converged_, history_, n_features_in_, feature_names_in_
        As for `SketchedKernelRegressor`; coef_, intercept_ and dual_coef_ have an
        output for each level.

    References
    ----------
    .. [1] Romano, Patterson, Candès, "Conformalized quantile regression", 2019.

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
        kernel: KernelLike = "rbf",
        gamma: float | str | None = None,
        metric: MetricLike | None = None,
        feature_groups: npt.ArrayLike | None = None,
        sketch: str | SketchLike = "p-sr",
        n_components: int | str | None = None,
        p: float | str | None = "auto",
        rtol: float = 0.01,
        quantiles: npt.ArrayLike = (0.1, 0.5, 0.9),
        alpha: float | str = "auto",
        fit_intercept: bool = True,
        output_matrix: npt.ArrayLike | str | None = None,
        noncrossing: str = "sort",
        calibration: str | None = None,
        solver: "str | Solver" = "auto",
        tol: float = 1e-6,
        max_iter: int | None = None,
        feature_storage: str = "auto",
        memory_limit: int | None = None,
        n_threads: int | None = None,
        random_state: RandomState = None,
        warm_start: bool = False,
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
        self.quantiles = quantiles
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.output_matrix = output_matrix
        self.noncrossing = noncrossing
        self.calibration = calibration
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.feature_storage = feature_storage
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def predict(self, X: Any, *, out: AnyArray | None = None) -> Array:
        """Predict quantiles, as they were fitted.

        A calibration does not move them: `predict_interval` and `predict_distribution`
        have it.

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

    def _predict(self, X: Any) -> Array:
        predicted = self._predict_levels(X)
        return predicted[:, 0] if self._one_level else predicted

    def _predict_levels(self, X: Any) -> Array:
        predicted = self._decide(X)
        if predicted.ndim == 1:
            return predicted[:, None]
        return rearrange(predicted) if self._sorts else predicted

    def predict_distribution(
        self, X: Any, *, groups: Any = None
    ) -> QuantileDistribution:
        """Predict the distribution of each target, by the levels of the fit.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
        groups : array of shape (n,), optional
            Labels, if the fit had them.

        Returns
        -------
        QuantileDistribution
            With `quantile`, `cdf`, `mean`, `interval`, `sample` and `crps`; its Notes
            say what tails are assumed.  With a calibration every level is moved so that
            its share of held-out targets lies below it, or left as it is where they are
            too few to tell.
        """
        check_is_fitted(self)
        if self._get_calibration() is None:
            if groups is not None:
                raise ValueError("groups are for calibrated distributions")
            levels = self._in_blocks(self._predict_levels, X)
            return QuantileDistribution(self.quantiles_, levels)
        groups = self._check_new_groups(groups, "predict_distribution")
        levels = self._in_blocks(self._calibrate_levels, X, None, groups)
        return QuantileDistribution(self.quantiles_, levels)

    def _calibrate_levels(self, X: Any, groups: Any) -> Array:
        """Move levels by the scores of held-out points; (n, levels)."""
        columns = np.sort(self._predict_columns(X), axis=2)
        found = np.median(columns, axis=1).astype(np.float64)
        for chosen, rows in self._match_groups(groups, len(columns)):
            predicted, folds, y, weight, mean = self.calibration_.take(chosen)
            predicted = np.sort(predicted, axis=1)
            for j, level in enumerate(self.quantiles_):
                # outwards, as intervals are
                sign, share = (1.0, level) if level > 0.5 else (-1.0, 1 - level)
                ends, scores = columns[rows, :, j], y - predicted[:, j]
                bound = bound_by_folds(
                    sign * ends, sign * scores, folds, share, weight, mean
                )
                told = np.isfinite(bound)
                found[rows[told], j] = sign * bound[told]
        return found

    _symmetric = False
    _calibrations = METHODS[:2]

    def _guess_interval(self, X: Any, coverage: float) -> Array:
        """Interpolate levels, without a calibration."""
        if len(self.quantiles_) == 1:
            raise ValueError(
                "intervals need two levels or more, or a calibration: fit with "
                "calibration='split' or 'cv+'"
            )
        predicted = self._predict_levels(X)
        ends, _, _ = self._ends(predicted, coverage)
        return ends.astype(predicted.dtype)

    def _ends(self, levels: Array, coverage: float) -> tuple[Array, Array, float]:
        """Find ends of intervals (n, 2), units of scores, and the share of each end."""
        tail = (1 - coverage) / 2
        if len(self.quantiles_) == 1:
            ends: Array = np.repeat(levels, 2, axis=1).astype(np.float64)
        else:
            law = QuantileDistribution(self.quantiles_, levels)
            ends = law.quantile([tail, 1 - tail])
        return ends, np.ones(len(levels)), 1 - tail

    def _get_columns(self, X: Any, y: Any, weight: Array | None) -> ColumnModel:
        coef = self.dual_coef_.reshape(len(self.dual_coef_), -1)
        return ColumnModel(coef, np.atleast_1d(self.intercept_))

    def _fit_columns(
        self, Z: Any, y: Any, weight: Array | None, start: "StartLike"
    ) -> tuple[Array, Array]:
        """Fit the levels to some points, from a start: (coef, intercept)."""
        (result,) = self._solve(Z, y, weight, [self.alpha_], start=start)
        return result.coef.reshape(len(result.coef), -1), np.atleast_1d(
            result.intercept
        )

    def _tolerance(self, y: Any, weight: Array | None) -> float:
        tol = check_positive(self.tol, "tol")
        return tighten(tol, y, weight) if self.solver in ("auto", "newton") else tol

    def _find_gradient(self, X: Any) -> Array:
        gradients = super()._find_gradient(X)
        if gradients.ndim == 3 and self._sorts:  # with the levels they belong to
            order = self._decide(X).argsort(axis=1, kind="stable")
            gradients = np.take_along_axis(gradients, order[:, :, None], axis=1)
        return gradients[:, 0] if self._one_level and gradients.ndim == 3 else gradients

    def score(
        self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None
    ) -> float:
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

    def _y_options(self) -> dict[str, Any]:
        return dict(y_numeric=True)

    def _encode(self, y: Any) -> Any:
        given = self.quantiles
        self.quantiles_ = check_quantiles(
            None if given is None else np.atleast_1d(given)
        )
        self._one_level = np.ndim(self.quantiles) == 0
        self._sorts = self.noncrossing == "sort"
        return y

    def check_learnt(self) -> None:
        """Check the levels, too."""
        super().check_learnt()
        check_quantiles(self.quantiles_)
        if not (hasattr(self, "_sorts") and hasattr(self, "_one_level")):
            raise ValueError("_sorts or _one_level is missing")

    def _decision_shape(self) -> tuple[int, ...]:
        n_levels = len(self.quantiles_)
        return (n_levels,) if n_levels > 1 else ()

    def _alpha_unit(self, y: Any, weight: Array | None) -> float:
        return scale_of(y, weight)

    def _learning_options(self) -> dict[str, Any]:
        return dict(robust=True, spread=True)

    def _settle_alpha(
        self, Z: Any, X: Any, y: Any, weight: Array | None
    ) -> float | str:
        few = CHOICE_FOLDS <= len(y) <= FEW_POINTS and isinstance(Z, np.ndarray)
        if few and is_auto(self.alpha, "alpha"):
            return self._choose_alpha(Z, X, y, weight)
        return self.alpha

    def _choose_alpha(
        self, Z: Any, X: Any, y: Any, weight: Array | None
    ) -> float | str:
        """Choose alpha by folds, so that levels keep their share of held-out points.

        Of penalties whose loss is next to the least, the one with the best shares.
        """
        n, machine = len(y), copy(self)
        machine.tol = max(self.tol, CHOICE_TOL)
        machine.verbose = 0
        alphas = self._get_alpha("auto", y, weight) * PENALTY_MULTIPLES
        fold = _draw_folds(X, y, self._seed())
        predicted = np.empty((len(alphas), n, len(self.quantiles_)))
        for k in range(CHOICE_FOLDS):
            rest, held = fold != k, fold == k
            some = None if weight is None else weight[rest]
            if not rest.any() or not held.any():  # all points are alike
                return "auto"
            results = machine._solve(Z[rest], y[rest], some, alphas.tolist(), warm=True)
            for levels, result in zip(predicted, results, strict=True):
                found = result.predict(Z[held]).reshape(held.sum(), -1)
                levels[held] = np.sort(found, axis=1)
        losses = [pinball_loss(y, one, self.quantiles_, weight) for one in predicted]
        below = y[:, None] <= predicted
        shares = np.average(below, axis=1, weights=weight)
        misses = np.abs(shares - self.quantiles_).mean(axis=1)
        misses[losses > (1 + NEAR_BEST) * np.min(losses)] = np.inf
        return float(alphas[np.argmin(misses)])

    def _problem(
        self, Z: Any, y: Any, options: dict[str, Any]
    ) -> tuple[Loss, npt.ArrayLike | str | None, None]:
        coupling: npt.ArrayLike | str | None = get_coupling(
            self.quantiles_, self.noncrossing
        )
        if self.output_matrix is not None:
            coupling = self.output_matrix
        return Pinball(self.quantiles_), coupling, None


def _draw_folds(X: Any, y: Any, seed: int) -> Indices:
    """Draw folds by what points are, so that equal ones, or weights, are together."""
    sparse = sp.issparse(X)
    if sparse:
        rows = [X[[i]] for i in range(len(y))]
        parts = [row.indices.tobytes() + row.data.tobytes() for row in rows]
    else:
        parts = [row.tobytes() for row in X]
    keys = [
        zlib.crc32(part + target.tobytes(), seed % 2**32)
        for part, target in zip(parts, np.asarray(y), strict=True)
    ]
    return np.unique(keys, return_inverse=True)[1] % CHOICE_FOLDS


def _ratio(part: float, whole: float) -> float:
    """Divide: 0 for 0 / 0, and 1 for other parts of nothing, as in `r2_score`."""
    if part == 0:
        return 0.0
    return part / whole if whole > 0 else 1.0
