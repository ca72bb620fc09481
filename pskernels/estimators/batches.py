"""Machines that learn from batches of rows, one after another: `partial_fit`.

    squared loss   sums over all batches -> the ridge regression of all rows so far
    other losses   a fit to the first batch; then Adam, a step for every few rows

Landmarks are those of the first batch, or given: what comes later changes coefficients
alone.  Nothing else is kept of a row.
"""

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if

from pskernels._products import EPS
from pskernels._robust import scale_of
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._types import Array
from pskernels._validation import (
    check_option,
    check_positive,
    check_real_array,
    levels_to_the_caller,
)
from pskernels.estimators.defaults import LEAST_ROWS, default_alpha, is_auto
from pskernels.estimators.state import all_or_nothing
from pskernels.features import as_features
from pskernels.losses import SmoothLoss, Squared, WeightedLoss
from pskernels.outputs import Outputs
from pskernels.passes import Model, PassProblem, Request, answer, solve_squares
from pskernels.solvers import Adam, SolveResult, get_solver, solve
from pskernels.solvers.base import warn_if_not_converged

if TYPE_CHECKING:
    from pskernels.losses import Loss
    from pskernels.passes import Answer, Outcome

# Adam's by default: rows of a step, and its length in the unit of targets.  Of the
# steps 0.001 to 0.05 and batches of 1 and 32, for three losses and first batches of
# 1,000 and 5,000 of 100,000 rows, the losses of new points are within 1 % of the best.
STEP_ROWS = 32
LEARNING_RATE = 0.025
# Steps are so many times as long if they begin at 0, since the first batch lacks a
# class: of 6,000 rows then 93 % are right, as after a fit, and 84 % with short steps.
FROM_ZERO = 16


@dataclass(frozen=True)
class Batches:
    """What is kept of the rows so far."""

    given: dict[str, Any]  # parameters that must not change
    n_first: int  # rows of the first batch
    unit: float  # of targets, which alpha is divided by
    shift: Array | float  # of outputs: what is taken from targets of squares
    outputs: Outputs
    n_batches: int = 0
    n_rows: int = 0
    total: float = 0.0  # what rows count
    is_whole: bool = True  # whether they count whole numbers of times
    answers: "tuple[Answer, ...] | None" = None  # for each output, sums of squares
    adam: Adam | None = None
    state: Array | None = None  # of Adam
    n_steps: int = 0

    def add_rows(self, weight: Array) -> "Batches":
        """Count the rows of a batch."""
        return replace(
            self,
            n_batches=self.n_batches + 1,
            n_rows=self.n_rows + len(weight),
            total=self.total + float(weight.sum()),
            is_whole=self.is_whole and bool((weight == np.floor(weight)).all()),
        )

    def alpha(self, alpha: float | str, penalty: float) -> float:
        """Make alpha a number, by the rows so far and n·alpha, if it is "auto"."""
        if not is_auto(alpha, "alpha"):
            return check_positive(alpha, "alpha")
        n = self.total if self.is_whole else self.n_rows
        return default_alpha(n, penalty=penalty) / self.unit

    def make_state(self, coef: Array, intercept: npt.ArrayLike) -> Array:
        """Make Adam's state at a model: coefficients (r,) or (r, d)."""
        theta = self.outputs.theta(coef.reshape(len(coef), -1))
        state = np.zeros((4, theta.size + self.outputs.d))
        state[0, : theta.size] = theta.ravel()
        state[0, theta.size :] = intercept
        return state

    def model(self) -> tuple[Array, Array]:
        """Return coefficients (r, d) and intercepts (d,) of Adam's state."""
        assert self.state is not None
        theta, intercept = np.split(self.state[0].copy(), [-self.outputs.d])
        return self.outputs.coef(theta.reshape(self.outputs.k, -1)), intercept


if TYPE_CHECKING:  # what a machine of scikit-learn has, which comes without types
    from sklearn.base import BaseEstimator as _Estimator
else:
    _Estimator = object


class LearnsFromBatches(_Estimator):
    """What machines add to learn from batches."""

    if TYPE_CHECKING:
        loss_: Loss

    takes_batches = True  # searches do not

    @available_if(lambda self: self.takes_batches)
    def partial_fit(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None = None,
        *,
        landmarks: Any = None,
    ) -> Self:
        """Learn from a batch of rows, beside those of earlier calls.

        With the squared loss, the model is the ridge regression of all rows so far, on
        the features that the first call fixed: sums are kept, and its gap is certified.
        For other losses the first batch is fitted, and later ones are for Adam, a step
        for every few rows: what comes out depends on the order of rows, is some percent
        of the loss away from what `fit` finds, and has no certificate (dual_gap_ is
        NaN).  kappa and epsilon "auto" are those of the first batch.

        After `fit`, or `load`, landmarks and gamma stay.  Adam goes on from the model
        there; but sums of squares begin anew, with this batch, since neither keeps any.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
        y : array of shape (n,), or (n, n_outputs)
        sample_weight : array of shape (n,), optional
        landmarks : array of shape (m, d), optional
            In the first call: the points that the sketch is drawn from, all of them
            landmarks if m ≤ n_components; None means X.

        Returns
        -------
        The estimator itself.
        """
        return self._fit_batch(X, y, sample_weight, landmarks)

    def _fit_batch(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None,
        landmarks: Any,
        **options: Any,
    ) -> Self:
        with all_or_nothing(self), single_threaded_blas():
            batches = getattr(self, "_batches", None)
            is_fitted = hasattr(self, "feature_map_")
            X, y, weight = self._check_data(X, y, sample_weight, reset=not is_fitted)
            weight = np.ones(len(y)) if weight is None else weight
            used = np.flatnonzero(self._weigh_batch(y, weight))
            if len(used) == 0:
                raise ValueError("weights of a batch must add up to more than 0")
            X, y, weight = X[used], y[used], weight[used]
            check_positive(self.tol, "tol")
            for name in ("calibration", "probability"):
                if getattr(self, name, None):
                    raise ValueError(f"{name} needs all points at once: use fit")
            if not is_fitted:
                self._learn_batch(y, **options)
            labels = y
            y, weight = self._encode_batch(y, weight)
            if batches is None:
                if not is_fitted:
                    self._fit_map_to_batch(X, labels, y, weight, landmarks)
                elif landmarks is not None:
                    raise ValueError("landmarks are those of the fit before")
                elif getattr(self, "loss", None) == "squared":
                    warnings.warn(
                        "the sums of earlier rows are kept by partial_fit and pickle "
                        "alone, not by fit or in a file: the model will be one of the "
                        "rows from here on",
                        UserWarning,
                        stacklevel=levels_to_the_caller(),
                    )
                batches = self._begin_batches(X, y, weight)
            elif landmarks is not None:
                raise ValueError("landmarks are fixed by the first call of partial_fit")
            elif batches.given != self._fixed_parameters():
                raise ValueError(
                    "parameters must stay as they were in the first call of "
                    f"partial_fit, {batches.given}, got {self._fixed_parameters()}"
                )
            if batches.adam is None:
                batches, result = self._add_squares(batches, X, y, weight)
            else:
                batches, result = self._go_on(batches, X, y, weight)
            self._keep(self.feature_map_, result)
            self._batches = batches
        return self

    def _learn_batch(self, y: Any, **options: Any) -> None:
        """Learn what all targets have in common, by those of the first batch."""
        self._encode(y)

    def _encode_batch(self, y: Any, weight: Array) -> tuple[Array, Array]:
        """Check and encode the targets of a batch; return them, and weights."""
        return self._encode(y), self._weigh_batch(y, weight)

    def _weigh_batch(self, y: Any, weight: Array) -> Array:
        """Return weights, those of classes included, where these are given."""
        return weight

    def _fixed_parameters(self) -> dict[str, Any]:
        """Collect what sums and Adam's state are of."""
        names = ("loss", "fit_intercept", "solver", "quantiles")
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    def _begin_batches(self, X: Any, y: Any, weight: Array) -> Batches:
        """Find out what does not change later."""
        is_squared = getattr(self, "loss", None) == "squared"
        adam = None
        shift: Array | float = 0.0
        if is_squared:
            self.loss_, output_matrix = Squared(), self.output_matrix
            get_solver(self.solver, self.loss_)  # which is checked, and not used
            shift = np.zeros(math.prod(self._decision_shape()))
            if self.fit_intercept:
                Y = _by_output(self.loss_, y)
                shift = self.loss_.constant_minimisers(Y, weight / weight.sum())
        else:
            Z = as_features(self.feature_map_.transform(X), self._n_threads())
            self.loss_, output_matrix, _ = self._problem(
                Z, y, self._solve_options(weight)
            )
            if isinstance(self.loss_, SmoothLoss):
                raise ValueError(f"partial_fit has no steps for {self.loss_}")
            adam = self._get_adam(y, weight)
        outputs = _get_outputs(output_matrix, math.prod(self._decision_shape()))
        if is_squared and not outputs.separate:
            raise ValueError(
                "partial_fit of the squared loss learns outputs one by one: give "
                "output_matrix=None"
            )
        unit = self._alpha_unit(y, weight)
        given = self._fixed_parameters()
        return Batches(given, len(y), unit, shift, outputs, adam=adam)

    def _fit_map_to_batch(
        self, X: Any, labels: Any, y: Any, weight: Array | None, landmarks: Any
    ) -> None:
        """Fit the map to the first batch, or to given points."""
        if self._is_precomputed():
            raise ValueError("a precomputed kernel has no landmarks to be kept")
        self._warn_if_unscaled(X)
        seed = self._seed()
        kernel = self._choose_kernel(X, labels, y, weight, seed, self.gamma)
        points = X
        if landmarks is not None:
            points, y, weight = self._check_points(landmarks, reset=False), None, None
            if is_auto(self.n_components, "n_components"):
                raise ValueError("n_components='auto' and landmarks exclude each other")
        if self.n_components is None and points.shape[0] < LEAST_ROWS:
            warnings.warn(
                f"the sketch has {points.shape[0]} rows for good, as many as the first "
                f"batch or its landmarks: give {LEAST_ROWS} or more",
                UserWarning,
                stacklevel=levels_to_the_caller(),
            )
        make_map = self._map_maker(points, weight, kernel)
        self.feature_map_, _ = self._fit_map(
            make_map, points, y, weight, seed, form=None
        )
        self._made_with = self._map_parameters()

    def _get_adam(self, y: Any, weight: Array) -> Adam:
        """Take the solver that was given, or one whose steps fit the targets."""
        if isinstance(self.solver, Adam):
            return self.solver
        if not isinstance(self.solver, str) or self.solver not in ("auto", "adam"):
            raise ValueError(
                "partial_fit needs solver='auto' or 'adam', or an Adam object, got "
                f"{self.solver!r}"
            )
        if not self.loss_.classification:
            unit = scale_of(y, weight)
        else:
            unit = 1.0 if self._has_solution(y) else FROM_ZERO
        return Adam(learning_rate=LEARNING_RATE * unit, batch_size=STEP_ROWS)

    def _n_threads(self) -> int:
        return resolve_n_threads(self.n_threads)

    def _add_squares(
        self, batches: Batches, X: Any, y: Any, weight: Array
    ) -> tuple[Batches, SolveResult]:
        """Add the sums of a batch; solve for all rows."""
        features = as_features(self.feature_map_.transform(X), self._n_threads())
        Y = _by_output(self.loss_, y)
        fit_intercept = bool(self.fit_intercept)
        origin = Model(np.zeros(features.r), 0.0, 0.0)
        request = Request((), origin, error=0.0, survey=True)
        found, gram = [], None  # which all outputs share
        shifts = np.atleast_1d(batches.shift)
        for row in Y - shifts[:, None]:
            found.append(
                answer(features, self.loss_, row, weight, request, fit_intercept, gram)
            )
            gram = found[0].gram
        if batches.answers is not None:
            found = [a + b for a, b in zip(batches.answers, found, strict=True)]
            for other in found[1:]:
                other.gram = found[0].gram
        if not all(np.isfinite(sums.value).all() for sums in found):
            raise ValueError("squares of y overflow float64; scale y")
        batches = replace(batches.add_rows(weight), answers=tuple(found))
        alpha = batches.alpha(self.alpha, self._default_penalty())
        outcomes = [
            _solve_sums(
                PassProblem(
                    frame=features,
                    largest=cast(Array, sums.largest),  # of a survey
                    sum_error=EPS / 2 * (batches.n_rows + 64),
                    loss=self.loss_,
                    alpha=alpha,
                    fit_intercept=fit_intercept,
                    shift=float(shift),
                    null_objective=_null_objective(sums, batches.total, fit_intercept),
                ),
                sums.scaled(1 / batches.total),
                self.tol,
            )
            for sums, shift in zip(found, shifts, strict=True)
        ]
        result = self._as_result(outcomes, alpha)
        warn_if_not_converged(result)
        return batches, result

    def _go_on(
        self, batches: Batches, X: Any, y: Any, weight: Array
    ) -> tuple[Batches, SolveResult]:
        """Fit to the first batch, if that is possible; take steps with others."""
        is_first, batches = batches.n_batches == 0, batches.add_rows(weight)
        alpha = batches.alpha(self.alpha, self._default_penalty())
        Z = self.feature_map_.transform(X)
        if is_first and not hasattr(self, "coef_") and self._has_solution(y):
            result = solve(
                Z,
                y,
                loss=self.loss_,
                alpha=alpha,
                output_matrix=batches.outputs.matrix,
                tol=self.tol,
                **self._solve_options(weight),
            )
            state = batches.make_state(result.coef, result.intercept)
            # Adam learns how large gradients are, and does not move
            batches = self._take_steps(batches, Z, y, weight, state, alpha, rate=0.0)
            return batches, result
        if batches.state is not None:
            state = batches.state.copy()
        elif hasattr(self, "coef_"):
            state = batches.make_state(self.coef_, self.intercept_)
        else:
            d = batches.outputs.d
            state = batches.make_state(np.zeros((self.feature_map_.rank_, d)), 0.0)
        epochs = (batches.n_rows - len(y)) / batches.n_first
        rate = 1 / math.sqrt(1 + epochs)
        batches = self._take_steps(batches, Z, y, weight, state, alpha, rate)
        return batches, self._result_of_state(batches, alpha)

    def _take_steps(
        self,
        batches: Batches,
        Z: Array,
        y: Any,
        weight: Array,
        state: Array,
        alpha: float,
        rate: float,
    ) -> Batches:
        """Go over a batch with Adam, whose state is changed in place."""
        Y = _by_output(self.loss_, y)
        points = WeightedLoss(self.loss_, Y, weight / weight.sum(), self._n_threads())
        order = np.arange(len(y))
        assert batches.adam is not None
        if batches.adam.shuffle:
            np.random.default_rng([self._seed(), batches.n_steps]).shuffle(order)
        n_steps = batches.adam.take_steps(
            Z,
            points,
            order,
            weight * (batches.n_rows / batches.total),
            state,
            batches.n_steps,
            (alpha, rate, bool(self.fit_intercept)),
            batches.outputs.mix,
        )
        if not np.isfinite(state).all():
            raise ValueError("steps overflow float64; scale y, or give a solver")
        return replace(batches, state=state, n_steps=batches.n_steps + n_steps)

    def _has_solution(self, y: Any) -> bool:
        """Tell whether every output has both classes, if these are classes."""
        return not self.loss_.classification or bool(np.ptp(y, axis=0).all())

    def _result_of_state(self, batches: Batches, alpha: float) -> SolveResult:
        """Make a result of Adam's model, which has no certificate."""
        coef, intercepts = batches.model()
        intercept: Array | float = intercepts
        if not self._decision_shape():
            coef, intercept = coef[:, 0], float(intercepts[0])
        return SolveResult(
            coef=coef,
            intercept=intercept,
            objective=np.nan,
            null_objective=np.nan,
            dual_gap=np.nan,
            dual=None,
            converged=False,
            n_iter=batches.n_steps,
            history=[],
            alpha=alpha,
            tol=self.tol,
            solver="adam",
            output_matrix=batches.outputs.matrix,
            advice="fit has certificates",
        )


def _get_outputs(output_matrix: npt.ArrayLike | str | None, d: int) -> Outputs:
    """Make outputs of a matrix that is given."""
    if isinstance(output_matrix, str) and output_matrix == "residual":
        raise ValueError("output_matrix='residual' needs all points: use fit")
    if isinstance(output_matrix, str):
        check_option(output_matrix, "output_matrix", ("identity", "residual"))
        output_matrix = None
    if output_matrix is None:
        return Outputs.independent(d)
    return Outputs.of_matrix(check_real_array(output_matrix, "output_matrix"), d)


def _by_output(loss: "Loss", y: Array) -> Array:
    """Check encoded targets, and make them of shape (outputs, rows)."""
    return np.ascontiguousarray(loss.check_targets(y).T).reshape(-1, len(y))


def _null_objective(sums: "Answer", total: float, fit_intercept: bool) -> float:
    """Find the objective of the best constant, or of 0, by sums at the first shift."""
    value, flow = sums.value.sum() / total, sums.flow.sum() / total
    return max(float(value - flow**2 / 2), 0.0) if fit_intercept else float(value)


def _solve_sums(problem: PassProblem, sums: "Answer", tol: float) -> "Outcome":
    """Solve squares, given their sums: the only pass."""
    fit = solve_squares(problem, tol, max_passes=1)
    next(fit)
    try:
        fit.send(sums)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
    raise RuntimeError("squares took a second pass")
