"""Fits of machines to points that are not in memory: `pskernels.streaming` for users.

    a subsample    a hundredth of the points, then a tenth, or as many as pay: kappa and
                   the like, a start
    all points     a few passes from there, to the certified gap

The squared loss needs one pass, and no start.
"""

import hashlib
import math
import sys
import time
from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from pskernels._threads import single_threaded_blas
from pskernels._types import AnyArray, Array, Indices, Path
from pskernels._validation import (
    check_int,
    check_memory_limit,
    check_option,
    check_positive,
)
from pskernels.checkpoint import Checkpoint
from pskernels.estimators.defaults import LEAST_ROWS, default_alpha, is_auto
from pskernels.feature_map import STORAGES
from pskernels.losses import SmoothLoss, Squared
from pskernels.objective import gap_scale, relative_gap
from pskernels.passes import Model, PassProblem, minimise, solve_squares
from pskernels.scratch import choose_storage
from pskernels.sketches import ROS, Gaussian, Sketch
from pskernels.solvers import SolveResult, solve
from pskernels.solvers.base import warn_if_not_converged
from pskernels.sources import open_points, open_targets
from pskernels.streaming import (
    ROW_NUMBERS,
    Chunks,
    PassLog,
    run_passes,
    shifted,
    strata,
    total_weight,
)

if TYPE_CHECKING:
    from pskernels.feature_map import ChunkFeatures
    from pskernels.kernels import Kernel
    from pskernels.losses import Loss
    from pskernels.passes import Answer, Outcome, Request
    from pskernels.solvers.base import Iteration
    from pskernels.sources import Source
    from pskernels.streaming import Reweigh

# Shares of the points that the fit begins with, as far as they have room.
SUBSAMPLE = 0.1
NESTED = 0.1
# Points of a subsample for each feature, at least, and at most: with 500, 2,000 and
# 10,000, n = 10⁷ and s = 100, Huber's loss takes 3, 2, 2 passes and 23, 17, 19 s,
# pinball 0.9 4, 3, 3 passes and 24, 22, 21 s.
LEAST_POINTS, MOST_POINTS = 4, 2000
# At most where they come from other machines, which wait for the start here.
MOST_GATHERED = 500
# A gap that is small enough for a start.
START_TOL = 1e-4

# The first envelope of all points, as a share of the one that the larger subsample
# began with, times the ratio of the subsamples: as much closer is the start.  From 0.1
# to 1 a gap of 1e-3 takes 3 to 6 passes: `python bench/scaling.py passes`.
FIRST_WIDTH = 0.3
# And so many points for each feature have a curvature there, or steps go back and forth
# (hinge, n = 300,000, s = 100: 13 passes with 9 points, 5 with 30).
CURVED_POINTS = 30

MAX_PASSES = 200

# Features that are kept are rounded if that hides no more than this share of tol.
ROUNDED_SHARE = 0.2


class _Some(NamedTuple):
    """Some of the points, in memory."""

    X: AnyArray
    y: AnyArray  # as they are given
    targets: AnyArray  # of `solve`
    weight: Array | None  # those of classes included


if TYPE_CHECKING:  # what a machine of scikit-learn has, which comes without types
    from sklearn.base import BaseEstimator as _Estimator
else:
    _Estimator = object


class FitsSources(_Estimator):
    """What machines add to fit a `Source`: a memory map, a file, slices of rows."""

    if TYPE_CHECKING:
        loss_: Loss

    def _fit_source(
        self, X: Any, y: Any, sample_weight: Any, checkpoint: Path | None = None
    ) -> Self:
        """Fit to points that are read in slices; in memory, if all have room."""
        given = X
        X, y = open_points(X, y), open_targets(y, given, real=self.takes_numbers)
        weight = None
        if sample_weight is not None:
            weight = open_targets(sample_weight, given, "sample_weight")
        for name, array in (("y", y), ("sample_weight", weight)):
            if array is not None and len(array) != len(X):
                raise ValueError(
                    f"X has {len(X)} rows, but {name} has {len(array)}: they must be "
                    "aligned"
                )
        if weight is not None and weight.ndim != 1:
            raise ValueError(
                f"sample_weight must be one number for each row, got {weight.shape}"
            )
        if y.ndim > 2:
            raise ValueError(f"y must have one or two dimensions, got {y.shape}")
        if self._is_precomputed() or self._has_room(X):
            weights = None if weight is None else weight[:]
            names = X.names
            X, y, weights = self._check_data(X[:], y[:], weights)
            if names is not None:
                self.feature_names_in_ = np.array(names, dtype=object)
            self._warn_if_unscaled(X)
            self._fit_checked(X, y, weights)
            return self
        self._check_streamable()
        self._learn_form(X)
        return self._fit_streamed(X, y, weight, checkpoint)

    @property
    def takes_numbers(self) -> bool:
        """Whether targets are real numbers, and not labels."""
        return bool(self._y_options().get("y_numeric", False))

    def fit_distributed(
        self,
        X: "Source",
        y: "Source",
        weight: "Source | None" = None,
        checkpoint: Path | None = None,
    ) -> Self:
        """Fit to sources whose passes run elsewhere, whatever room there is here.

        Parameters
        ----------
        X, y, weight : Source
            Of as many rows, in the same partitions; weight may be None.
        checkpoint : path, optional
            As for `fit`.
        """
        with single_threaded_blas():
            self._check_streamable()
            self._learn_form(X)
            return self._fit_streamed(X, y, weight, checkpoint)

    def _has_room(self, X: "Source") -> bool:
        """Tell whether X and its features fit in memory_limit."""
        if is_auto(self.n_components, "n_components"):
            found: bool = len(X) * X.shape[1] * X.dtype.itemsize <= self._limit() // 4
            return found
        return len(X) * self._row_bytes(X) <= self._limit()

    def _row_bytes(self, X: "Source") -> int:
        """Count bytes of a point, its features, and what a solver has of it."""
        s = self._n_rows(len(X))
        found: int = (s + X.shape[1]) * X.dtype.itemsize + 8 * ROW_NUMBERS
        return found

    def _streamed_rows(self) -> int:
        """Count rows of a sketch, by default the least: every pass pays for them."""
        if self.n_components is None:
            return LEAST_ROWS
        return check_int(self.n_components, "n_components", minimum=1)

    def _limit(self) -> int:
        return check_memory_limit(self.memory_limit)

    def _check_streamable(self) -> None:
        """Refuse what needs all points at once."""
        reasons = {
            "n_components='auto'": isinstance(self.n_components, str),
            f"sketch={self.sketch!r}": isinstance(self.sketch, (Sketch, Gaussian, ROS))
            or self.sketch in ("gaussian", "ros"),
            f"solver={self.solver!r}": self.solver not in ("auto", "newton", "direct"),
            "warm_start=True": self.warm_start,
        }
        for what, is_so in reasons.items():
            if is_so:
                raise ValueError(
                    f"{what} needs all points in memory, for which memory_limit="
                    f"{self._limit()} has no room: raise it, or give a number of "
                    "n_components, a sketch by name, solver='auto', warm_start=False"
                )

    def _fit_streamed(
        self, X: "Source", y: "Source", weight: "Source | None", path: Path | None
    ) -> Self:
        seed = self._seed()
        check_option(self.feature_storage, "feature_storage", STORAGES)
        if path is not None:
            checkpoint = Checkpoint(path, self._key_of_fit(X, y, weight))
            if not checkpoint.records:
                checkpoint.add({"seed": np.array(seed)})
            seed = int(checkpoint.records[0]["seed"])  # that of before, if any
        reweigh = self._learn_targets(y)
        total = total_weight(y, weight, reweigh)
        some = self._read_some(X, y, weight, reweigh, seed)
        self._warn_if_unscaled(some.X)
        kernel = self._choose_kernel(
            some.X, some.y, some.targets, some.weight, seed, self.gamma
        )
        alpha = self._streamed_alpha(some, weight, len(X))
        features_of = self._fit_chunks(X, some, kernel, alpha, seed)
        chunks = (X.chunks_type or Chunks)(
            X,
            y,
            weight,
            features_of,
            self._targets_of,
            reweigh,
            total,
            self._limit(),
            math.prod(self._decision_shape()),
        )
        if self.verbose:
            self._say_cost(chunks, some)
        try:
            losses, makers = self._make_fits(chunks, some, alpha)
            log = None if path is None else PassLog(checkpoint, chunks)
            outcomes = run_passes(
                chunks, losses, makers, bool(self.fit_intercept), log, self.verbose
            )
        finally:
            chunks.drop_scratch()
        result = self._as_result(outcomes, alpha)
        warn_if_not_converged(result)
        self._keep(features_of.feature_map, result)
        if path is not None:
            checkpoint.remove()
        return self

    def _key_of_fit(self, X: "Source", y: "Source", weight: "Source | None") -> bytes:
        """Compute a digest of data and parameters that decide on every bit of a fit."""
        ignored = "verbose", "n_threads"
        parameters = {
            name: repr(value)
            for name, value in self.get_params(deep=False).items()
            if name not in ignored
        }
        sources = [
            None
            if source is None
            else (source.shape, str(source.dtype), source.lengths)
            for source in (X, y, weight)
        ]
        text = repr((type(self).__name__, sorted(parameters.items()), sources))
        return hashlib.sha256(text.encode()).digest()

    def _say_cost(self, chunks: Chunks, some: _Some) -> None:
        """Say what a pass will read, compute and take."""
        probe = some.X[: min(len(some.X), chunks.step)]
        start = time.perf_counter()
        chunks.features_of(probe)
        # sums take about as long as features
        seconds = 2 * (time.perf_counter() - start) / len(probe) * len(chunks.X)
        n, m = len(chunks.X), len(chunks.features_of.feature_map.sketch_.indices)
        n_bytes = n * (chunks.X.shape[1] * chunks.X.dtype.itemsize + 8)
        passes = "one pass"
        if not self._is_squared():
            passes = "some 2 to 6 passes for a gap of 1e-3 (more for less)"
        print(
            f"{n} rows in {len(chunks.slices())} chunks, {n_bytes / 1e6:.0f} MB and "
            f"{n * m:.1e} kernel values in a pass; {passes}, some {seconds / 60:.2g} "
            "minutes each",
            file=sys.stderr,
        )

    def _report(self, began: float, line: "Iteration") -> None:
        """Print what a pass has found, and how long it may still take."""
        if not self.verbose:
            return
        seconds = time.perf_counter() - began
        each = seconds / (line.n_iter + 1)
        digits = math.log10(max(line.dual_gap / self.tol, 1.0))
        left = math.ceil(min(digits, 1e3))  # Newton steps gain a digit at least, mostly
        print(
            f"pass {line.n_iter + 1}: objective {line.objective:.9e}, certified gap "
            f"{line.dual_gap:.2e}, {seconds:.1f} s; some {left} passes left, "
            f"{left * each:.0f} s",
            file=sys.stderr,
        )

    def _read_some(
        self,
        X: "Source",
        y: "Source",
        weight: "Source | None",
        reweigh: "Reweigh",
        seed: int,
    ) -> _Some:
        """Read a tenth of the points, or as many as have room."""
        room = self._limit() // 2 // self._row_bytes(X)
        each = MOST_POINTS if X.chunks_type is None else MOST_GATHERED
        most = min(SUBSAMPLE * len(X), room, each * self._streamed_rows())
        least = LEAST_POINTS * self._streamed_rows()
        rows = strata(len(X), max(least, int(most)), seed)
        labels = np.asarray(y[rows])
        given = None if weight is None else np.asarray(weight[rows], np.float64)
        targets, some = self._encode_chunk(labels), reweigh(labels, given)
        _check_some_weight(some)
        return _Some(X[rows], labels, targets, some)

    def _streamed_alpha(self, some: _Some, weight: "Source | None", n: int) -> float:
        """Find alpha of all points; the unit of targets is that of some of them."""
        if not is_auto(self.alpha, "alpha"):
            return check_positive(self.alpha, "alpha")
        if weight is not None and some.weight is not None:
            whole = (some.weight == np.floor(some.weight)).all()
            n = sum(weight.map_blocks(_sum_of if whole else _count_of))
        alpha = default_alpha(n, penalty=self._default_penalty())
        found: float = alpha / self._alpha_unit(some.targets, some.weight)
        return found

    def _fit_chunks(
        self, X: "Source", some: _Some, kernel: "Kernel", alpha: float, seed: int
    ) -> "ChunkFeatures":
        """Fit the map to all points, of which it keeps the landmarks alone."""
        make_map = self._map_maker(some.X, some.weight, kernel)
        s, n = self._streamed_rows(), len(X)
        sketch = self._get_distribution(
            make_map, some.X, some.targets, some.weight, s, seed, n
        )
        feature_map = make_map(sketch.draw(n, seed, self.n_threads))
        found: ChunkFeatures = feature_map.fit_chunks(
            X, alpha, formed=self._is_squared()
        )
        return found

    def _is_squared(self) -> bool:
        """Tell whether one pass is enough: its moments need all digits of Z."""
        return getattr(self, "loss", None) == "squared"

    def _targets_of(self, y: AnyArray) -> Array:
        """Encode targets of a chunk: (outputs, rows)."""
        Y = self.loss_.check_targets(self._encode_chunk(y))
        return np.ascontiguousarray(Y.T).reshape(-1, len(y))

    def _make_fits(
        self, chunks: Chunks, some: _Some, alpha: float
    ) -> "tuple[Sequence[Loss], list[Generator[Request, Answer, Outcome]]]":
        """Make losses of outputs, and generators of requests, one for each."""
        features_of, starts = chunks.features_of, None
        if self._is_squared():
            self.loss_ = Squared()
        else:
            self._find_loss(features_of, some)
        Y = self._targets_of(some.y)
        weight = np.ones(len(some.X)) if some.weight is None else some.weight
        shift: Array = np.zeros(len(Y))
        if self.fit_intercept and not self.loss_.classification:
            shift = self.loss_.constant_minimisers(Y, weight / weight.sum())
        chunks.shift = shift
        Y = shifted(Y, shift)
        nulls = [
            float(np.average(loss.value(np.zeros(len(y)), y), weights=weight))
            for loss, y in zip(self.loss_.of_outputs(len(Y)), Y, strict=True)
        ]
        if not self._is_squared():
            starts, objectives = self._starts(
                features_of, some, Y, alpha, len(chunks.X)
            )
            self._choose_scratch(chunks, starts, objectives, alpha)
            features_of = chunks.features_of
        losses = self.loss_.of_outputs(len(self._targets_of(some.y[:1])))
        largest = features_of.largest()
        if largest is None:
            largest = chunks.survey()
        max_passes = MAX_PASSES
        if self.max_iter is not None:
            max_passes = check_int(self.max_iter, "max_iter", minimum=1)
        report = partial(self._report, time.perf_counter())
        limits = check_positive(self.tol, "tol"), max_passes, report
        makers, frame = [], features_of(some.X[:1])
        for j, loss in enumerate(losses):
            problem = PassProblem(
                frame=frame,
                largest=largest,
                sum_error=chunks.sum_error,
                loss=loss,
                alpha=alpha,
                fit_intercept=bool(self.fit_intercept),
                shift=float(shift[j]),
                null_objective=nulls[j],
            )
            if starts is None:
                makers.append(solve_squares(problem, *limits))
            else:
                makers.append(minimise(problem, starts[j], *limits))
        return losses, makers

    def _find_loss(self, features_of: "ChunkFeatures", some: _Some) -> None:
        """Find the loss, kappa and the like by the smaller subsample."""
        rows = self._nested(features_of, some)
        few = None if some.weight is None else some.weight[rows]
        _check_some_weight(few)
        self.loss_, output_matrix, _ = self._problem(
            features_of(some.X[rows]), some.targets[rows], self._solve_options(few)
        )
        if isinstance(self.loss_, SmoothLoss):
            raise ValueError(
                f"{self.loss_} needs all points in the memory of one machine; raise "
                f"memory_limit={self._limit()} if they have room there"
            )
        several = len(self._targets_of(some.y[:1])) > 1
        if output_matrix is not None or (self.loss_.of_norm and several):
            raise ValueError(
                "outputs that are learnt together (by an output_matrix, or a loss of "
                "their norm, as 'huber') need all points in memory, for which "
                f"memory_limit={self._limit()} has no room: raise it, or fit them one "
                "by one (noncrossing='sort', output_matrix=None, or loss='squared')"
            )

    def _nested(self, features_of: "ChunkFeatures", some: _Some) -> Indices:
        """Choose the smaller subsample of the larger one."""
        k = max(int(NESTED * len(some.X)), LEAST_POINTS * features_of.r)
        return strata(len(some.X), k, 0)

    def _starts(
        self, features_of: "ChunkFeatures", some: _Some, Y: Array, alpha: float, n: int
    ) -> tuple[list[Model], list[float]]:
        """Find a model for each output, by nested subsamples of shifted targets."""
        rows = self._nested(features_of, some)
        few = None if some.weight is None else some.weight[rows]
        Z, Z_few = features_of(some.X), features_of(some.X[rows])
        models, objectives = [], []
        for loss, y in zip(self.loss_.of_outputs(len(Y)), Y, strict=True):
            if loss.classification and np.ptp(y[rows]) == 0:  # of a rare class
                b = float(y[rows[0]]) if self.fit_intercept else 0.0
                models.append(Model(np.zeros(Z.r), b, 0.0 if loss.smooth else 1.0))
                objectives.append(0.0)
                continue
            options = self._solve_options(few) | dict(
                loss=loss, alpha=alpha, tol=max(self.tol, START_TOL)
            )
            first = solve(Z_few, y[rows], **options)
            options |= dict(sample_weight=some.weight, start=first)
            second = solve(Z, y, **options)
            mu = 0.0
            if not loss.smooth:
                mu = _first_width(second.history[0], len(rows), len(some.X), n, Z.r)
            models.append(Model(second.coef, float(second.intercept), mu))
            objectives.append(second.objective)
        return models, objectives

    def _choose_scratch(
        self, chunks: Chunks, starts: list[Model], objectives: list[float], alpha: float
    ) -> None:
        """Keep features in a file if that costs less; in float32 if tol allows."""
        if chunks.is_distributed or self.feature_storage == "recomputed":
            return
        row_rounding = chunks.features_of.rounded().row_rounding
        losses = self.loss_.of_outputs(len(starts))
        hidden = [
            _hidden_by_rounding(row_rounding, loss, start, alpha)
            for loss, start in zip(losses, starts, strict=True)
        ]
        small = np.array(hidden) <= ROUNDED_SHARE * self.tol * np.array(objectives)
        may_round = small.all() or self.feature_storage == "float32"
        chunks.features_of, chunks.scratch = choose_storage(
            chunks.features_of, len(chunks.X), self.loss_.smooth, may_round
        )
        if self.verbose and chunks.scratch is not None:
            print(
                f"features are kept in a temporary file, as {chunks.scratch.dtype}",
                file=sys.stderr,
            )

    def _as_result(self, outcomes: "Sequence[Outcome]", alpha: float) -> SolveResult:
        """Make a result of those of each output."""
        objective = sum(outcome.objective for outcome in outcomes)
        if len(outcomes) == 1:
            dual_gap = outcomes[0].dual_gap
        else:
            gap = sum(outcome.gap for outcome in outcomes)
            dual_gap = float(relative_gap(gap, gap_scale(objective, 0.0)))
        coef = np.column_stack([outcome.theta for outcome in outcomes])
        intercepts = np.array([outcome.intercept for outcome in outcomes])
        intercept: Array | float = intercepts
        if not self._decision_shape():
            coef, intercept = coef[:, 0], float(intercepts[0])
        longest = max(outcomes, key=lambda outcome: len(outcome.history))
        return SolveResult(
            coef=coef,
            intercept=intercept,
            objective=objective,
            null_objective=np.nan,
            dual_gap=dual_gap,
            dual=None,
            converged=dual_gap <= self.tol,
            n_iter=len(longest.history),
            history=longest.history,
            alpha=alpha,
            tol=self.tol,
            solver="passes",
            output_matrix=None,
            advice="raise max_iter, tol or alpha",
        )


def _hidden_by_rounding(
    row_rounding: float, loss: "Loss", start: Model, alpha: float
) -> float:
    """Estimate what rounding of features would hide of a gap, as certificates do."""
    slope = row_rounding * max(abs(loss.lower), abs(loss.upper))
    return float(slope * np.linalg.norm(start.theta) + slope**2 / (2 * alpha))


def _check_some_weight(weight: Array | None) -> None:
    """Check that a subsample has points that count."""
    if weight is not None and not weight.any():
        raise ValueError(
            f"none of {len(weight)} points of a subsample has a weight: leave out "
            "points of weight 0"
        )


def _sum_of(start: Model, weight: AnyArray) -> float:
    return float(weight.sum(dtype=np.float64))


def _count_of(start: Model, weight: AnyArray) -> int:
    return int(np.count_nonzero(weight))


def _first_width(first: "Iteration", n_few: int, n_some: int, n: int, r: int) -> float:
    """Find the first envelope of n points, from the first of the larger subsample.

    Parameters
    ----------
    first : Iteration
        Where the fit to n_some points began, at the model of n_few of them.
    """
    width = FIRST_WIDTH * n_few / n_some * first.mu
    if first.n_active > 0:  # about as many points are curved as the envelope is wide
        points = first.n_active * n / n_some
        width = max(width, first.mu * CURVED_POINTS * r / points)
    return width
