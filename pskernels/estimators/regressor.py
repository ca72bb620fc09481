"""`SketchedKernelRegressor`: kernel regression with any of the losses."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from pskernels._robust import robust_size, scale_of, tighten
from pskernels._threads import resolve_n_threads
from pskernels._types import (
    AnyArray,
    Array,
    Indices,
    KernelLike,
    MetricLike,
    RandomState,
    SketchLike,
)
from pskernels._validation import (
    check_non_negative,
    check_open_probability,
    check_option,
    check_positive,
)
from pskernels.estimators.base import SketchedMachine
from pskernels.estimators.calibration import METHODS, CalibratesIntervals, ColumnModel
from pskernels.estimators.defaults import default_alpha, is_auto
from pskernels.features import as_features
from pskernels.losses import (
    SMOOTH_LOSSES,
    Absolute,
    EpsilonInsensitive,
    Expectile,
    Huber,
    Loss,
    Pinball,
    Squared,
)
from pskernels.solvers import solve
from pskernels.solvers.direct import Ridge, ridge_path

if TYPE_CHECKING:
    from pskernels.solvers.base import Solver, SolveResult, StartLike

# 95 % of the efficiency of least squares, if errors are normal (Huber, 1964).
HUBER_KAPPA = 1.345
# The best tube for normal errors (Smola, Murata, Schölkopf and Müller, 1998).
TUBE_EPSILON = 0.612

# A pilot fit only has to find the size of the errors.
PILOT_TOL = 1e-2

# Studentised scores: n·alpha of what is learnt of log|error|, the least error in units
# of the median one, and the share of points that choose.
SPREAD_PENALTIES = 10.0 ** np.arange(-1, 4)
LEAST_ERROR, SPREAD_HELD_OUT = 0.05, 0.25

# Those that wild targets do not move far.
ROBUST_LOSSES = ("huber", "epsilon_insensitive", "pinball", "absolute")
LOSSES = (*ROBUST_LOSSES, "squared", *SMOOTH_LOSSES)


class SketchedKernelRegressor(CalibratesIntervals, RegressorMixin, SketchedMachine):
    """Kernel regression on a sketch, for any Lipschitz loss.

    Minimises mean ℓ(f(x), y) + (alpha/2)·‖f‖² over the functions f of the sketched
    kernel, plus an intercept, to a certified gap.  For people who would otherwise wait
    for `SVR` or `KernelRidge`.

    Parameters
    ----------
    kernel, gamma, metric, feature_groups, sketch, p, rtol, memory_limit, n_threads, \
random_state, verbose
        As for `KernelSketch`; gamma="cv" is the best of five by three folds (of at most
        5,000 points), with the given alpha.
    n_components : int or "auto", optional
        As for `KernelSketch`; None means 6·√n, from 100 to 1,000 (100 if points are not
        in memory).  All points, with "squared", are solved as one n × n system.
    loss : {"huber", "epsilon_insensitive", "pinball", "absolute", "squared", \
"poisson", "gamma", "expectile"}
        "poisson" and "gamma" are deviances with a logarithmic link, for counts and for
        positive targets whose errors are in proportion to their size: predictions are
        means, exp of the function that is learnt.  These and "expectile" are for one
        output, and points in memory.  Of several outputs, "huber" and
        "epsilon_insensitive" take the Euclidean norm of the errors, the others a sum
        over outputs.
    kappa : float or "auto"
        Of "huber": errors above it count by their size only, in the unit of y.  "auto"
        is 1.345 times a robust estimate of the size of the errors (their median size,
        after a pilot fit).
    epsilon : float or "auto"
        Of "epsilon_insensitive": errors below it do not count, in the unit of y.
        "auto" is 0.612 times the same estimate.
    quantile : float in (0, 1)
        The level of "pinball" or "expectile".
    alpha : float or "auto"
        Penalty, the paper's λ_n: `Ridge`'s alpha divided by n, or 1/(C·n).  "auto" is
        0.1 / n for "huber" and smooth losses, and that divided by a robust estimate of
        the scale of y for the others, so that the fit does not depend on its unit.
    fit_intercept : bool
        The intercept is not penalised.
    output_matrix : array of shape (d, d), "identity" or "residual", optional
        Couples several outputs, see `pskernels.solve`.
    calibration : {"split", "cv+", "jackknife+"}, optional
        For `predict_interval`, of one output: by a quarter of the points (at most
        2,500), which the machine does not see; by five folds; or, with "squared", by
        machines without one point each (2,500 points at most, of every group), in
        closed form.
    interval_scores : {"absolute", "studentised"}
        Of a calibration: intervals of one width, or as wide as errors are large nearby,
        which is learnt on the same features (not for "jackknife+").
    solver : {"auto", "newton", "direct", "lbfgs", "adam"} or solver object
        "auto" is "direct" for the squared loss of several outputs, else "newton".
    tol : float
        The certified gap to stop at, relative to the objective; of a robust loss,
        relative to what is left of it without wild targets, if there are any.
    max_iter : int, optional
        See `pskernels.solve`.
    feature_storage : {"auto", "float32", "recomputed"}
        What of the features is in memory: all, all in float32, or a block of points at
        a time, computed anew in every pass; `FeatureMap.fit_features` has what that
        means for certificates.  (A warm start has all of them.)
    warm_start : bool
        Whether `fit` keeps the sketch and the landmarks of the last fit, and begins
        from its solution: for another alpha or loss, or for more data of the same kind.

    Attributes
    ----------
    coef_ : ndarray of shape (r,), or (r, d) for d outputs
        Coefficients of the features z_S(x).
    intercept_ : float, or ndarray of shape (d,)
    dual_coef_ : ndarray of shape (m,), or (m, d)
        The same model by landmarks: K(X, landmarks_) @ dual_coef_ + intercept_, which
        is what `predict` computes (a change of coef_ alone is not seen).
    landmarks_ : array of shape (m, n_features_in_)
    sketch_ : Sketch
    kernel_ : kernel object
        The kernel, its gamma a number.
    feature_map_ : FeatureMap
    loss_ : Loss
        The loss, kappa or epsilon a number.
    growth_ : list of Growth
        The steps of n_components="auto", as for `KernelSketch`.
    metric_, feature_importances_, rounds_
        As for `KernelSketch`.
    calibration_ : Calibration
        Predictions of held-out points.
    alpha_ : float
    n_iter_ : int
    dual_gap_ : float
        Certified: the objective is at most this much, relative to itself, above the
        optimum.
    objective_ : float
    converged_ : bool
        Whether dual_gap_ ≤ tol.
    history_ : list of Iteration
    n_features_in_ : int
    feature_names_in_ : array of str
        Only if X has names.

    Examples
    --------
    >>> import numpy as np
    >>> from pskernels.estimators import SketchedKernelRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 2))
    >>> y = np.sin(6 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_t(2, size=1000)
    >>> model = SketchedKernelRegressor(random_state=0).fit(X, y)
    >>> model.predict(X).shape, model.converged_
    ((1000,), True)
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
        loss: str = "huber",
        kappa: float | str = "auto",
        epsilon: float | str = "auto",
        quantile: float = 0.5,
        alpha: float | str = "auto",
        fit_intercept: bool = True,
        output_matrix: npt.ArrayLike | str | None = None,
        calibration: str | None = None,
        interval_scores: str = "absolute",
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
        self.loss = loss
        self.kappa = kappa
        self.epsilon = epsilon
        self.quantile = quantile
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.output_matrix = output_matrix
        self.calibration = calibration
        self.interval_scores = interval_scores
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.feature_storage = feature_storage
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any, *, out: AnyArray | None = None) -> Array:
        """Predict targets.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
            As for `fit`; a source is read block by block.
        out : ndarray of the shape and type of the result, optional
            Such as a memory map, which is filled block by block.

        Returns
        -------
        ndarray of shape (n,), or (n, n_outputs) if y had two dimensions
            float32 if X and the points of the fit are, else float64.
        """
        return self._in_blocks(self._predict, X, out)

    def _predict(self, X: Any) -> Array:
        predicted = self._to_means(self._decide(X))
        return predicted.reshape(-1, *self._y_shape) if self._y_shape else predicted

    def _to_means(self, decisions: Array) -> Array:
        """Undo the link of the loss."""
        return np.exp(decisions) if self.loss_.log_link else decisions

    def _find_gradient(self, X: Any) -> Array:
        gradients = super()._find_gradient(X)
        if self.loss_.log_link:  # exp(f) has the slope exp(f)·f'
            gradients = gradients * np.exp(self._decide(X))[:, None]
        return gradients[:, None] if self._y_shape == (1,) else gradients

    _symmetric = True
    _calibrations = METHODS

    def _check_calibrated(self, method: str, y: Any, weight: Any) -> None:
        super()._check_calibrated(method, y, weight)
        if method == "jackknife+" and self.output_matrix is not None:
            raise ValueError("calibration='jackknife+' takes no output_matrix")
        kinds = ("absolute", "studentised")
        kind = check_option(self.interval_scores, "interval_scores", kinds)
        if kind == "studentised" and method == "jackknife+":
            raise ValueError(
                "interval_scores='studentised' is for calibration='split' or 'cv+'"
            )

    def _has_closed_form(self) -> bool:
        plain = self.output_matrix is None and self.interval_scores == "absolute"
        return plain and self.loss == "squared"

    def _guess_interval(self, X: Any, coverage: float) -> NoReturn:
        raise ValueError(
            "intervals need a calibration: fit with calibration='split' or 'cv+', or "
            "'jackknife+' if loss='squared'"
        )

    def _ends(self, columns: Array, coverage: float) -> tuple[Array, Array, float]:
        """Find ends of intervals (n, 2), units of scores, and the share of each end."""
        means = self._to_means(columns[:, :1].astype(np.float64))
        ends = np.repeat(means, 2, axis=1)
        units = np.ones(len(ends))
        if columns.shape[1] > 1:
            units = np.exp(columns[:, 1].astype(np.float64))
        return ends, units, coverage

    def _finish_ends(self, ends: Array) -> Array:
        """Cut off what cannot be: means of a logarithmic link are positive."""
        return np.maximum(ends, 0.0) if self.loss_.log_link else ends

    def _get_columns(self, X: Any, y: Any, weight: Array | None) -> ColumnModel:
        coef, intercept = self.dual_coef_.reshape(-1, 1), np.atleast_1d(self.intercept_)
        if self.interval_scores == "absolute":
            return ColumnModel(coef, intercept)
        if self.feature_map_.whitening_ is None:
            raise ValueError(
                "interval_scores='studentised' needs fewer n_components than points"
            )
        Z, y = self.feature_map_.transform(X), self._encode(y)
        decisions = self.feature_map_.predict_folded(X, *coef.T, *intercept)
        errors = y - self._to_means(decisions)
        spread, log_unit = self._fit_spread(Z, errors, weight)
        spread = self.feature_map_.fold(spread)
        return ColumnModel(np.hstack([coef, spread]), np.append(intercept, log_unit))

    def _fit_columns(
        self, Z: Any, y: Any, weight: Array | None, start: "StartLike"
    ) -> tuple[Array, Array]:
        """Fit the mean to some points, and the size of errors: (coef, intercept)."""
        loss = self.loss_
        (result,) = self._solve(Z, y, weight, [self.alpha_], start=start)
        self.loss_ = loss
        coef, intercept = result.coef.reshape(-1, 1), np.atleast_1d(result.intercept)
        if self.interval_scores == "absolute":
            return coef, intercept
        errors = y - self._to_means(result.predict(Z))
        spread, log_unit = self._fit_spread(Z, errors, weight)
        return np.hstack([coef, spread]), np.append(intercept, log_unit)

    def _fit_spread(
        self, Z: Any, errors: Array, weight: Array | None
    ) -> tuple[Array, float]:
        """Fit log|error|, with the best of some penalties: (coef (r, 1), intercept)."""
        sizes = np.abs(errors)
        least = LEAST_ERROR * np.median(sizes) or np.finfo(float).tiny
        logs = np.log(np.maximum(sizes, least))[:, None]
        weight = np.ones(len(Z)) if weight is None else weight
        order = np.random.default_rng(self._seed()).permutation(len(Z))
        held, rest = np.split(order, [int(SPREAD_HELD_OUT * len(Z))])
        n_threads = resolve_n_threads(self.n_threads)

        def fit(some: Indices, penalties: npt.ArrayLike) -> Iterator[Ridge]:
            features = as_features(np.ascontiguousarray(Z[some]), n_threads)
            alphas = np.asarray(penalties) / len(some)
            return ridge_path(features, logs[some], alphas, weight[some])

        losses = [
            np.average((logs[held] - ridge.predict(Z[held]))[:, 0] ** 2)
            for ridge in fit(rest, SPREAD_PENALTIES)
        ]
        (ridge,) = fit(order, [SPREAD_PENALTIES[int(np.argmin(losses))]])
        return ridge.coef, ridge.intercept[0]

    def _y_options(self) -> dict[str, Any]:
        return dict(multi_output=True, y_numeric=True)

    def _encode(self, y: Any) -> Any:
        self._y_shape = y.shape[1:]
        return y[:, 0] if y.shape[1:] == (1,) else y

    def _encode_batch(self, y: Any, weight: Array) -> tuple[Array, Array]:
        if y.shape[1:] != self._y_shape:
            raise ValueError(
                f"y must have the shape (n, {', '.join(map(str, self._y_shape))}) of "
                f"earlier batches, got {y.shape}"
            )
        return super()._encode_batch(y, weight)

    def _decision_shape(self) -> tuple[int, ...]:
        return () if self._y_shape == (1,) else self._y_shape

    def _alpha_unit(self, y: Any, weight: Array | None) -> float:
        # the others square small errors, as the penalty does the function
        if self.loss in ("huber", "squared", *SMOOTH_LOSSES):
            return 1.0
        return scale_of(y, weight)

    def _tolerance(self, y: Any, weight: Array | None) -> float:
        tol: float = check_positive(self.tol, "tol")
        by_steps = self.solver in ("auto", "newton")  # the others do not get there
        robust = by_steps and self.loss in ROBUST_LOSSES
        return tighten(tol, y, weight) if robust else tol

    def _learning_options(self) -> dict[str, Any]:
        robust = self.loss not in ("squared", "poisson", "gamma")
        return dict(robust=robust, spread=self.loss in ("pinball", "expectile"))

    def _problem(
        self, Z: Any, y: Any, options: dict[str, Any]
    ) -> "tuple[Loss, npt.ArrayLike | str | None, SolveResult | None]":
        check_option(self.loss, "loss", LOSSES)
        start = None
        loss: Loss
        if self.loss == "huber":
            kappa = self.kappa
            if is_auto(kappa, "kappa"):
                # which depends on neither alpha nor other fits, and saves a third of
                # the steps
                start, size = _fit_pilot(Z, y, options)
                kappa = HUBER_KAPPA * size or 1.0
            loss = Huber(check_positive(kappa, "kappa"))
        elif self.loss == "epsilon_insensitive":
            epsilon = self.epsilon
            if is_auto(epsilon, "epsilon"):
                # here it saves first steps, of many active points
                start, size = _fit_pilot(Z, y, options)
                epsilon = TUBE_EPSILON * size
            loss = EpsilonInsensitive(check_non_negative(epsilon, "epsilon"))
        elif self.loss == "pinball":
            if np.ndim(self.quantile) > 0:
                raise ValueError(
                    f"quantile must be one level, got {self.quantile!r}; for several "
                    "there is SketchedQuantileRegressor"
                )
            loss = Pinball(check_open_probability(self.quantile, "quantile"))
        elif self.loss == "expectile":
            loss = Expectile(check_open_probability(self.quantile, "quantile"))
        elif self.loss in SMOOTH_LOSSES:
            loss = SMOOTH_LOSSES[self.loss]()
        else:
            loss = Absolute() if self.loss == "absolute" else Squared()
        return loss, self.output_matrix, start


def _fit_pilot(Z: Any, y: Any, options: dict[str, Any]) -> "tuple[SolveResult, float]":
    """Fit Huber's loss, its kappa from y alone: (model, robust size of its errors)."""
    weight = options["sample_weight"]
    kappa = HUBER_KAPPA * scale_of(y, weight)
    alpha = default_alpha(len(y), weight)
    tol = tighten(PILOT_TOL, y, weight)
    pilot = solve(Z, y, loss=Huber(kappa), alpha=alpha, tol=tol, **options)
    return pilot, robust_size(y - pilot.predict(Z), weight)
