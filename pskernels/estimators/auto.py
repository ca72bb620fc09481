"""Machines for people who do not want to choose: everything by the data, in a budget.

learn    kernel, gamma, metric: `pskernels.metric_learning`, on some points
alpha    by held-out points; for losses that are not squares, with the loss itself
grow     the machine is fitted to all points, with as many rows as time allows
"""

import math
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from pskernels._robust import scale_of
from pskernels._threads import single_threaded_blas
from pskernels._types import AnyArray, Array, RandomState
from pskernels._validation import check_memory_limit, check_positive
from pskernels.estimators.calibration import (
    SplitsForIntervals,
    check_groups,
)
from pskernels.estimators.classifier import SketchedKernelClassifier
from pskernels.estimators.quantile import SketchedQuantileRegressor
from pskernels.estimators.regressor import SketchedKernelRegressor
from pskernels.estimators.state import (
    all_or_nothing,
    keep_weighted,
    make_machine,
    take_learnt,
)
from pskernels.exact import solve_all_points
from pskernels.kernels import GammaKernel, Kernel
from pskernels.metric_learning import Learnt, MetricLearner, is_learnt

# Shares of the budget that may have passed after learning, and after alpha is found.
LEARNING_SHARE, ALPHA_SHARE = 0.5, 0.65
# Points whose last fit, which takes n³, leaves time to look for hidden parts.
FEW_POINTS = 8000
# Rows of the sketch on which kernels are compared: if all points may become landmarks,
# and else, where alpha of squares is found as well.
SMALL_ROWS, LARGE_ROWS = 600, 2000

# Features, at most, whose metric may be a matrix.
FULL_FEATURES = 64

# Points of the fits that find alpha; rows and gap for losses that are not squares.
TRIAL_POINTS, TRIAL_ROWS, TRIAL_TOL = 4000, 400, 1e-2
# How n·alpha goes up or down: in so many steps for a factor of 10, how far, and for
# what gain; where it begins with all points as landmarks: few rows want less.
STEPS, LEAST_PENALTY, MOST_PENALTY, LEAST_GAIN = 2, 1e-5, 1e2, 1e-3
EXACT_PENALTY = 0.01
# Multiples of gamma that are tried at last.
GAMMA_STEPS = (0.6, 1.6)

# Rows of the first fit to all points, and how many times as many the next one may have.
FIRST_ROWS, LARGEST_STEP = 300, 4.0
# A step is worth its time from so many times the rows on.
LEAST_STEP = 1.3
# Fits of s rows take s^EXPONENT, or less by what fits of fewer rows have shown, and
# this share of the time that is left is planned for.  Exponents rise with s, by as much
# as RISE from step to step (three classes of kin8nm: 1.5 up to 1,200 rows, 2.1 up to
# 4,800: 41 s for a budget of 30 s without it).
EXPONENT, LEAST_EXPONENT, RISE, PLANNED = 2.4, 1.5, 0.5, 0.75
# Rows of levels around a mean that has all points: more gain less than 1 % (bike_hour,
# nine levels, 100, 300, 600 rows: 0.0507, 0.0503, 0.0503); where their n·alpha begins.
AROUND_ROWS, START_PENALTY = 600, 1.0
# Standard deviations of targets, in robust ones, that a mean is not for.
HEAVY = 10.0
# Large systems take this share of what n³ says of small ones.
LARGE_SHARE = 0.6
# Features of all points take so many times memory_limit, at most.
FEATURES = 4

# The certified gap of the machine: smaller ones change predictions by less than noise.
TOL = 1e-3

# Units of budgets by their first letter, and how they may be spelt.
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
SPELLINGS = "s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?"


def parse_budget(budget: str | float) -> float:
    """Turn "30 s", "2 min" or a number of seconds into seconds."""
    if not isinstance(budget, str):
        return check_positive(budget, "budget")
    found = re.fullmatch(rf"\s*([0-9.]+)\s*({SPELLINGS})?\s*", budget.lower())
    try:
        number, unit = found.groups() if found else ("", None)
        return check_positive(float(number) * UNITS[(unit or "s")[0]], "budget")
    except ValueError:
        raise ValueError(
            "budget must be seconds, above 0, or text like '30 s', '2 min' or '1 h', "
            f"got {budget!r}"
        ) from None


class Auto(SplitsForIntervals):
    """Fit the machine of a kernel, metric, alpha and rows that the data choose.

    A mixin in front of a machine, whose class is `_machine_type`.
    """

    takes_batches = False
    # what machines have as parameters, and their methods look at
    kernel, metric, gamma, feature_groups = "auto", "learn", None, None
    n_components, sketch, p, rtol = None, "p-sr", "auto", 0.01
    alpha, output_matrix, probability = "auto", None, False
    class_weight: dict[Any, float] | str | None = None
    solver, tol, max_iter, fit_intercept = "auto", TOL, None, True
    feature_storage, warm_start = "auto", False

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None = None,
        groups: Any = None,
    ) -> Self:
        """Choose everything, and fit.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
        groups : array of shape (n,), optional
            Labels, if there is a calibration: intervals are calibrated for each group
            by itself.

        Returns
        -------
        The estimator itself.
        """
        with all_or_nothing(self), single_threaded_blas():
            began = time.perf_counter()
            seconds = parse_budget(self.budget)
            X, y, weight = self._check_data(X, y, sample_weight)
            groups = self._check_labels_of(groups, len(y))
            X, y, weight, groups = keep_weighted(X, y, weight, groups)

            def choose_and_fit(
                X: Any, y: Any, weight: Array | None, groups: Any
            ) -> None:
                self._choose_and_fit(X, y, weight, began, seconds)

            self._fit_in_parts(X, y, weight, groups, choose_and_fit)
        return self

    def _check_labels_of(self, groups: Any, n: int) -> AnyArray | None:
        """Check groups, which are for a calibration."""
        if groups is None:
            return None
        if self.calibration is None:
            raise ValueError("groups are for intervals: choose a calibration")
        return check_groups(groups, n)

    def _choose_and_fit(
        self, X: Any, y: Any, weight: Array | None, began: float, seconds: float
    ) -> None:
        report = [f"{X.shape[0]} points, {X.shape[1]} features, budget {seconds:g} s"]
        seed, end = self._seed(), began + seconds
        targets, weight = self._encode(y), self._balance(y, weight)
        small = self._may_be_exact(X, y)
        few = X.shape[0] <= FEW_POINTS
        share = ALPHA_SHARE if few else LEARNING_SHARE
        options = self._learning_options()
        if small and options:  # of the mean, not of the median
            options["robust"] = False
        learnt = self._learn_kernel(
            X,
            targets,
            weight,
            seed,
            rows=SMALL_ROWS if small else LARGE_ROWS,
            thorough=few,
            verbose=self.verbose,
            seconds=share * seconds - (time.perf_counter() - began),
            **options,
        )
        report += _describe_learning(learnt, time.perf_counter() - began)
        self._tell(report)
        machine = self._make_machine(learnt.kernel, seed)
        machine.n_features_in_ = self.n_features_in_
        machine._encode(y)  # which learns levels or classes
        penalty, around = learnt.penalty, None
        if small:
            full = self._learn_full(X, targets, weight, seed, learnt, began, seconds)
            squares = self._make_squares(machine)
            left = began + ALPHA_SHARE * seconds - time.perf_counter()
            trial = Trial(squares, X, y, targets, weight, seed, left)
            penalty = trial.compare_exactly([*learnt.finalists, *full], penalty)
            machine.set_params(kernel=squares.kernel)
            report += trial.report
            small = trial.is_in_time(end, twice=squares is not machine)
            if small and squares is not machine:
                squares.set_params(alpha=penalty / len(y))
                around = Mean(squares, X, y, weight)
                report.append(around.report)
                y, penalty, small = around.errors, START_PENALTY, False
                targets = machine._encode(y)
        if getattr(self, "loss", None) != "squared" and not small:
            left = began + ALPHA_SHARE * seconds - time.perf_counter()
            trial = Trial(machine, X, y, targets, weight, seed, left)
            penalty = trial.find_penalty(penalty)
            report += trial.report
        self._tell(report)
        alpha = penalty / len(y) / machine._alpha_unit(targets, weight)
        machine.set_params(alpha=float(alpha), tol=TOL)
        most = None if around is None else AROUND_ROWS
        report += self._grow_machine(machine, X, y, weight, small, end, most)
        if around is not None:
            around.add_to(machine)
        take_learnt(self, machine)
        self.rounds_ = learnt.rounds
        if self.kernel_.metric is not None:
            self.feature_importances_ = learnt.importances(self.kernel_.metric)
        report.append(f"importance of features: {self._list_importances()}")
        report.append(f"{time.perf_counter() - began:.1f} s in all")
        self.report_ = "\n".join(report)
        self._tell(report)

    def _list_importances(self) -> str:
        """List the features that matter most, if that was learnt."""
        shares = self.feature_importances_
        if not is_learnt(self.rounds_, shares):
            return "not learnt in this time"
        top = np.argsort(-shares, kind="stable")[:5]
        names = getattr(self, "feature_names_in_", range(len(shares)))
        return ", ".join(f"{names[number]}: {shares[number]:.0%}" for number in top)

    def _learn_full(
        self,
        X: Any,
        y: Any,
        weight: Array | None,
        seed: int,
        learnt: Learnt,
        began: float,
        seconds: float,
    ) -> list[Kernel]:
        """Learn a matrix as metric of the best kernel, if there is time: [kernel]."""
        left = LEARNING_SHARE * seconds - (time.perf_counter() - began)
        if X.shape[1] > FULL_FEATURES or left < 0:
            return []
        learner = MetricLearner(
            kernels=(learnt.kernel.name,),
            metric="learn-full",
            seed=seed,
            n_threads=self.n_threads,
            memory_limit=self.memory_limit,
            seconds=left,
        )
        return [learner.learn(X, y, weight).kernel]

    def _may_be_exact(self, X: Any, y: Any) -> bool:
        """Tell whether squares are of use, with all points as landmarks, and have room.

        They are what is asked for, or the mean that quantiles are around, unless
        outliers are all that it sees.
        """
        loss = getattr(self, "loss", "pinball")
        if loss == "pinball" and np.ndim(y) > 1:
            return False
        if loss == "pinball" and np.std(y) > HEAVY * scale_of(y):
            return False
        limit = FEATURES * check_memory_limit(self.memory_limit)
        return (
            loss in ("squared", "pinball")
            and 4 * X.shape[0] ** 2 <= limit
            and not sp.issparse(X)
        )

    def _make_squares(self, machine: Any) -> Any:
        """Make a machine of squares: the one that there is, or that of the mean."""
        if getattr(machine, "loss", None) == "squared":
            return machine
        squares = SketchedKernelRegressor(
            kernel=machine.kernel,
            loss="squared",
            memory_limit=self.memory_limit,
            n_threads=self.n_threads,
            random_state=machine.random_state,
        )
        squares.n_features_in_ = self.n_features_in_
        squares._y_shape = ()
        return squares

    def _tell(self, report: list[str]) -> None:
        if self.verbose:
            print(report[-1], file=sys.stderr)

    def _make_machine(self, kernel: Kernel, seed: int) -> Any:
        machine = make_machine(self, self._machine_type)
        if hasattr(
            machine, "class_weight"
        ):  # `_balance` has made them weights of points
            machine.set_params(class_weight=None)
        return machine.set_params(kernel=kernel, random_state=seed, verbose=0)

    def _grow_machine(
        self,
        machine: Any,
        X: Any,
        y: Any,
        weight: Array | None,
        exact: bool,
        end: float,
        most: int | None = None,
    ) -> list[str]:
        """Fit machines of more and more rows; return lines of the report."""
        n = X.shape[0]
        limit = FEATURES * check_memory_limit(self.memory_limit)
        most = min(n, max(FIRST_ROWS, limit // (8 * n)), most or n)
        rows, lines = min(FIRST_ROWS, most), []
        if exact:
            rows = most = n
        exponent, before = EXPONENT, None
        while True:
            began = time.perf_counter()
            machine.set_params(n_components=int(rows))._fit_checked(X, y, weight)
            seconds = time.perf_counter() - began
            what = "all points" if rows >= n else f"{int(rows)} rows"
            lines.append(
                f"{what}: {seconds:.2f} s, certified gap {machine.dual_gap_:.1e}"
            )
            self._tell(lines)
            if before is not None:
                measured = math.log(seconds / before[1]) / math.log(rows / before[0])
                exponent = min(max(measured + RISE, LEAST_EXPONENT), EXPONENT)
            left = PLANNED * (end - time.perf_counter())
            growth = min((max(left, 0.0) / seconds) ** (1 / exponent), LARGEST_STEP)
            if rows >= most or growth < LEAST_STEP:
                return lines
            before = rows, seconds
            rows = min(most, rows * growth)


def _describe_learning(learnt: Learnt, seconds: float) -> list[str]:
    """Say which kernel and metric were found, and how good others were."""
    best: dict[str, float] = {}
    for one in learnt.rounds:
        best[one.kernel] = min(one.loss, best.get(one.kernel, np.inf))
    losses = ", ".join(f"{name} {loss:.4f}" for name, loss in best.items())
    return [
        f"held-out loss, as a share of that of a constant, by kernel: {losses}",
        f"kernel {_name(learnt.kernel)}: {len(learnt.rounds)} rounds, {seconds:.1f} s",
    ]


class Trial:
    """Fits of a machine to some points, which others judge: they choose n·alpha.

    Parameters
    ----------
    machine : SketchedMachine
        Whose parameters are set to what is best.
    X, y, targets, weight
        All points, targets as they are given and as `solve` takes them, and weights
        or None.
    seed : int
    seconds : float
        Begin no fit later than that from now.
    """

    def __init__(
        self,
        machine: Any,
        X: Any,
        y: Any,
        targets: Array,
        weight: Array | None,
        seed: int,
        seconds: float,
    ) -> None:
        self.machine = machine
        self.report: list[str] = []
        n = X.shape[0]
        order = np.random.default_rng(seed).permutation(n)
        n_held = max(1, min(TRIAL_POINTS // 2, n // 4))
        self._held, self._rest = np.split(order[: n_held + TRIAL_POINTS], [n_held])
        self._n, self._X, self._y, self._targets = n, X, y, targets
        self._weights = [
            None if weight is None else weight[some]
            for some in (self._held, self._rest)
        ]
        self._unit = machine._alpha_unit(targets, weight) * len(self._rest)
        self._end = time.perf_counter() + seconds
        self._seconds = math.inf  # of the fastest fit

    def compare_exactly(self, kernels: Iterable[Kernel], penalty: float) -> float:
        """Choose kernel, gamma and n·alpha of fits with all points as landmarks."""
        self.machine.set_params(tol=TOL)
        best = None
        for kernel in kernels:
            found = self._climb(
                partial(self._fit_exactly, kernel), max(penalty, EXACT_PENALTY)
            )
            self.report.append(
                f"all points as landmarks, {_name(kernel)}: held-out loss by n·alpha, "
                f"over the least: {_compare(found)}"
            )
            here = min(found, key=lambda one: found[one])
            if best is None or found[here] < best[0]:
                best = found[here], here, kernel
            if time.perf_counter() > self._end:
                break
        assert best is not None
        loss, penalty, kernel = best
        assert isinstance(kernel, GammaKernel)
        gammas = {kernel.known_gamma: loss}
        for step in GAMMA_STEPS:
            if time.perf_counter() > self._end:
                break
            one = replace(kernel, gamma=kernel.known_gamma * step)
            gammas[one.known_gamma] = self._fit_exactly(one, penalty)
        self.report.append(f"and by gamma: {_compare(gammas)}")
        gamma = min(gammas, key=lambda one: gammas[one])
        self.machine.set_params(kernel=replace(kernel, gamma=gamma))
        return penalty

    def is_in_time(self, end: float, twice: bool = False) -> bool:
        """Tell whether the fit of all points, which takes n³, ends in time.

        `twice`: with leave-one-out errors.
        """
        seconds = LARGE_SHARE * self._seconds * (self._n / len(self._rest)) ** 3
        seconds *= 2 if twice else 1
        found: bool = time.perf_counter() + seconds <= end
        return found

    def find_penalty(self, penalty: float) -> float:
        """Choose n·alpha of a loss that is not squared, on a sketch of few rows."""
        machine, rest = self.machine, self._rest
        machine.set_params(n_components=min(TRIAL_ROWS, len(rest)), tol=TRIAL_TOL)
        X, y = self._X[rest], self._targets[rest]
        make_map = machine._map_maker(X, None, machine.kernel)
        feature_map = make_map(machine._draw_sketch(make_map, X, y, None, 0))
        Z, Z_held = (
            feature_map.fit_transform(X),
            feature_map.transform(self._X[self._held]),
        )

        def loss_of(penalty: float) -> float:
            alphas = [penalty / self._unit]
            (result,) = machine._solve(Z, y, self._weights[1], alphas)
            return self._loss(result.predict(Z_held))

        found = self._climb(loss_of, penalty)
        self.report.append(
            f"held-out loss by n·alpha, over the least: {_compare(found)}"
        )
        return min(found, key=lambda one: found[one])

    def _fit_exactly(self, kernel: Kernel, penalty: float) -> float:
        began, machine, X = time.perf_counter(), self.machine, self._X[self._rest]
        machine.set_params(kernel=kernel, alpha=penalty / self._unit)
        feature_map = machine._map_maker(X, None, kernel)(None)
        y, weight = self._y[self._rest], self._weights[1]
        if not machine._fit_exactly(feature_map, X, y, weight):
            return math.inf
        self._seconds = min(self._seconds, time.perf_counter() - began)
        return self._loss(self.machine._decide(self._X[self._held]))

    def _loss(self, decisions: Array) -> float:
        targets = self._targets[self._held]
        found: float = self.machine.loss_of_decisions(
            decisions, targets, self._weights[0]
        )
        return found

    def _climb(
        self, loss_of: Callable[[float], float], penalty: float
    ) -> dict[float, float]:
        """Go up or down in n·alpha while the loss falls: {n·alpha: loss}."""
        k = round(STEPS * math.log10(np.clip(penalty, LEAST_PENALTY, MOST_PENALTY)))
        found = {k: loss_of(10 ** (k / STEPS))}
        for step in (1, -1):
            while LEAST_PENALTY <= 10 ** ((k + step) / STEPS) <= MOST_PENALTY:
                if time.perf_counter() > self._end or k + step in found:
                    break
                found[k + step] = loss_of(10 ** ((k + step) / STEPS))
                if found[k + step] >= (1 - LEAST_GAIN) * found[k]:
                    break
                k += step
        return {10 ** (k / STEPS): loss for k, loss in found.items()}


class Mean:
    """The mean of all points, for quantiles around it.

    A mean may need thousands of rows, where the spread around it needs a few hundred.
    Errors are those of leave-one-out: those of the fit itself would be too small.

    Parameters
    ----------
    machine : SketchedKernelRegressor
        Of squares, with its kernel and alpha.
    X, y, weight
        All points.
    """

    def __init__(self, machine: Any, X: Any, y: Any, weight: Array | None) -> None:
        began = time.perf_counter()
        self._map = machine._map_maker(X, None, machine.kernel)(None)
        self._result, self.errors = solve_all_points(
            self._map,
            self._map.fit_all_points(X),
            y,
            alpha=machine.alpha,
            weight=weight,
            fit_intercept=True,
            tol=TOL,
            max_iter=None,
            leave_one_out=True,
        )
        share = (self.errors**2).mean() / (np.var(y) or 1.0)
        self.report = (
            f"mean of all points: {time.perf_counter() - began:.2f} s, certified gap "
            f"{self._result.dual_gap:.1e}; its leave-one-out errors, which levels are "
            f"fitted to, have {share:.3g} of the variance"
        )

    def add_to(self, machine: Any) -> None:
        """Add the mean to a machine that was fitted to the errors."""
        levels = machine.dual_coef_
        coef = np.zeros((len(self.errors), *levels.shape[1:]))
        coef[machine.sketch_.indices] = levels
        mean = self._result.coef
        coef += mean[:, None] if coef.ndim > 1 else mean
        machine.coef_ = machine.dual_coef_ = coef
        machine.intercept_ = machine.intercept_ + self._result.intercept
        machine.feature_map_ = self._map
        machine._made_with = {}


def _compare(found: dict[float, float]) -> str:
    """List losses, over the least of them."""
    least = min(found.values()) or 1.0
    return ", ".join(
        f"{k:.2g}: {loss / least:.4g}" for k, loss in sorted(found.items())
    )


def _name(kernel: Kernel) -> str:
    gamma = f"{kernel.known_gamma:.4g}" if isinstance(kernel, GammaKernel) else ""
    return f"{kernel.name}, gamma = {gamma}" if gamma else kernel.name


class AutoKernelRegressor(  # type: ignore[misc]  # fit: no checkpoint
    Auto, SketchedKernelRegressor
):
    """Kernel regression that chooses everything itself, within a time budget.

    The kernel (rbf, laplacian, Matérn 1/2 and 3/2), the metric of the features and
    gamma are learnt on some of the points, alpha by others, and the sketch has as many
    rows as the budget allows.  Features need no scaling.

    Parameters
    ----------
    budget : str or float
        Time for `fit`, "30 s", "2 min", or seconds.  What is chosen depends on how fast
        the machine is: fits are repeatable only where everything ends in time.
    loss : {"squared", "huber", "epsilon_insensitive", "pinball", "absolute"}
    kappa, epsilon, quantile
        As for `SketchedKernelRegressor`.
    calibration : {"split"}, optional
        For `predict_interval`: a quarter of the points (at most 2,500) is held out.
    memory_limit
        As for `SketchedKernelRegressor`; features may take four times as much.
    n_threads, random_state
        As for `SketchedKernelRegressor`.
    verbose : int
        1 tells what is chosen.

    Attributes
    ----------
    report_ : str
        What was chosen, and why.
    rounds_ : list of Round
    metric_ : ndarray of shape (d,) or (d, d)
        L: the kernel sees L·x.
    feature_importances_ : ndarray of shape (d,)
        Shares of features in squared distances, in their standard deviations.

    And those of `SketchedKernelRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from pskernels.estimators import AutoKernelRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 10))
    >>> y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=2000)
    >>> model = AutoKernelRegressor(budget="5 s", random_state=0).fit(X, y)
    >>> print(model.report_.splitlines()[0])
    2000 points, 10 features, budget 5 s
    """

    _machine_type = SketchedKernelRegressor

    def __init__(
        self,
        *,
        budget: str | float = "30 s",
        loss: str = "squared",
        kappa: float | str = "auto",
        epsilon: float | str = "auto",
        quantile: float = 0.5,
        calibration: str | None = None,
        memory_limit: int | None = None,
        n_threads: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.budget = budget
        self.loss = loss
        self.kappa = kappa
        self.epsilon = epsilon
        self.quantile = quantile
        self.calibration = calibration
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose


class AutoQuantileRegressor(  # type: ignore[misc]  # fit: no checkpoint
    Auto, SketchedQuantileRegressor
):
    """Quantile regression that chooses everything itself, within a time budget.

    Parameters
    ----------
    budget, memory_limit, n_threads, random_state, verbose
        As for `AutoKernelRegressor`.
    quantiles, noncrossing
        As for `SketchedQuantileRegressor`.
    calibration : {"split"}, optional
        As for `AutoKernelRegressor`.

    Attributes
    ----------
    report_, rounds_, metric_, feature_importances_
        As for `AutoKernelRegressor`.

    And those of `SketchedQuantileRegressor`.

    Notes
    -----
    Where there is time and room, a mean is fitted to all points, and levels to its
    leave-one-out errors: predictions are their sum, and alpha_, objective_, dual_gap_
    and history_ are those of the levels around the mean.
    """

    _machine_type = SketchedQuantileRegressor

    def __init__(
        self,
        *,
        budget: str | float = "60 s",
        quantiles: npt.ArrayLike = (0.1, 0.5, 0.9),
        noncrossing: str = "sort",
        calibration: str | None = None,
        memory_limit: int | None = None,
        n_threads: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.budget = budget
        self.quantiles = quantiles
        self.noncrossing = noncrossing
        self.calibration = calibration
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose


class AutoKernelClassifier(  # type: ignore[misc]  # fit: no checkpoint
    Auto, SketchedKernelClassifier
):
    """Kernel classification that chooses everything itself, within a time budget.

    Parameters
    ----------
    budget, memory_limit, n_threads, random_state, verbose
        As for `AutoKernelRegressor`.
    loss : {"logistic", "hinge", "squared_hinge"}
        "logistic" has probabilities.
    class_weight
        As for `SketchedKernelClassifier`.

    Attributes
    ----------
    report_, rounds_, metric_, feature_importances_
        As for `AutoKernelRegressor`.

    And those of `SketchedKernelClassifier`.
    """

    _machine_type = SketchedKernelClassifier

    def __init__(
        self,
        *,
        budget: str | float = "30 s",
        loss: str = "logistic",
        class_weight: dict[Any, float] | str | None = None,
        memory_limit: int | None = None,
        n_threads: int | None = None,
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.budget = budget
        self.loss = loss
        self.class_weight = class_weight
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose
