"""Machines for people who do not want to choose: everything by the data, in a budget.

learn    kernel, gamma, metric: `pskernels.metric_learning`, on some points
alpha    by held-out points; for losses that are not squares, with the loss itself
grow     the machine is fitted to all points, with as many rows as time allows
"""

import re
import sys
import time

import numpy as np

from pskernels._threads import single_threaded_blas
from pskernels._validation import check_memory_limit, check_positive
from pskernels.estimators.classifier import SketchedKernelClassifier
from pskernels.estimators.quantile import SketchedQuantileRegressor
from pskernels.estimators.regressor import SketchedKernelRegressor
from pskernels.estimators.state import all_or_nothing

# Shares of the budget that may have passed after learning, and after alpha is found.
LEARNING_SHARE, ALPHA_SHARE = 0.5, 0.65
# Rows of the sketch on which the last kernels are compared, and alpha of squares found.
COMPARED_ROWS = 2000

# Points and rows of the fits that find alpha of other losses, their gap, and how far
# n·alpha may go.
ALPHA_POINTS, ALPHA_ROWS, ALPHA_TOL = 4000, 400, 1e-2
PENALTY_STEP, LEAST_PENALTY, MOST_PENALTY = 10.0**0.5, 1e-5, 1e2

# Rows of the first fit to all points, and how many times as many the next one may have.
FIRST_ROWS, LARGEST_STEP = 300, 4.0
# A step is worth its time from so many times the rows on.
LEAST_STEP = 1.3
# Fits of s rows take s^EXPONENT, and this share of the time that is left is planned
# for: `python bench/accuracy.py budget` shows what is taken.
EXPONENT, PLANNED = 2.4, 0.75
# Features of all points take so many times memory_limit, at most.
FEATURES = 4

# The certified gap of the machine: smaller ones change predictions by less than noise.
TOL = 1e-4

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def parse_budget(budget):
    """Turn "30 s", "2 min" or a number of seconds into seconds."""
    if not isinstance(budget, str):
        return check_positive(budget, "budget")
    found = re.fullmatch(r"\s*([0-9.]+)\s*(s|min|h)\s*", budget)
    try:
        return check_positive(float(found[1]) * UNITS[found[2]], "budget")
    except (TypeError, ValueError):
        raise ValueError(
            f"budget must be seconds, or text like '30 s' or '2 min', got {budget!r}"
        ) from None


class Auto:
    """Fit the machine of a kernel, metric, alpha and rows that the data choose.

    A mixin in front of a machine, whose class is `_machine_type`.
    """

    takes_batches = False
    # what machines have as parameters, and their methods look at
    kernel, metric, gamma, feature_groups = "auto", "learn", None, None
    n_components, sketch, p, rtol = None, "p-sr", "auto", 0.01
    alpha, output_matrix, class_weight = "auto", None, None
    solver, tol, max_iter, fit_intercept = "auto", TOL, None, True
    feature_storage, warm_start = "auto", False

    def fit(self, X, y, sample_weight=None):
        """Choose everything, and fit.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional

        Returns
        -------
        The estimator itself.
        """
        with all_or_nothing(self), single_threaded_blas():
            began = time.perf_counter()
            seconds = parse_budget(self.budget)
            X, y, weight = self._check_data(X, y, sample_weight)
            if weight is not None and not weight.all():
                used = np.flatnonzero(weight)
                X, y, weight = X[used], y[used], weight[used]
            self._choose_and_fit(X, y, weight, began, seconds)
        return self

    def _choose_and_fit(self, X, y, weight, began, seconds):
        report = [f"{X.shape[0]} points, {X.shape[1]} features, budget {seconds:g} s"]
        seed = self._seed()
        targets, weight = self._encode(y), self._balance(y, weight)
        spent = time.perf_counter() - began
        learnt = self._learn_kernel(
            X,
            targets,
            weight,
            seed,
            rows=COMPARED_ROWS,
            seconds=LEARNING_SHARE * seconds - spent,
            **self._learning_options(),
        )
        report += _describe_learning(learnt, time.perf_counter() - began)
        self._tell(report)
        machine = self._make_machine(learnt.kernel, seed)
        machine.n_features_in_ = self.n_features_in_
        penalty = learnt.penalty
        if getattr(self, "loss", None) != "squared":
            end = began + ALPHA_SHARE * seconds
            penalty, line = _find_penalty(machine, X, y, weight, penalty, seed, end)
            report.append(line)
            self._tell(report)
        alpha = penalty / len(y) / machine._alpha_unit(targets, weight)
        machine.set_params(alpha=float(alpha), tol=TOL)
        report += self._grow_machine(machine, X, y, weight, began + seconds)
        learnt_names = vars(machine).keys() - machine.get_params(deep=False).keys()
        vars(self).update({name: vars(machine)[name] for name in learnt_names})
        self.rounds_ = learnt.rounds
        report.append(f"{time.perf_counter() - began:.1f} s in all")
        self.report_ = "\n".join(report)
        self._tell(report)

    def _tell(self, report):
        if self.verbose:
            print(report[-1], file=sys.stderr)

    def _make_machine(self, kernel, seed):
        given = self.get_params(deep=False)
        shared = given.keys() & set(self._machine_type._get_param_names())
        machine = self._machine_type(**{name: given[name] for name in shared})
        return machine.set_params(kernel=kernel, random_state=seed, verbose=0)

    def _grow_machine(self, machine, X, y, weight, end):
        """Fit machines of more and more rows; return lines of the report."""
        n = X.shape[0]
        limit = FEATURES * check_memory_limit(self.memory_limit)
        most = min(n, max(FIRST_ROWS, limit // (8 * n)))
        rows, lines = min(FIRST_ROWS, most), []
        while True:
            began = time.perf_counter()
            machine.set_params(n_components=int(rows))._fit_checked(X, y, weight)
            seconds = time.perf_counter() - began
            lines.append(
                f"{int(rows)} rows: {seconds:.2f} s, certified gap "
                f"{machine.dual_gap_:.1e}"
            )
            self._tell(lines)
            left = PLANNED * (end - time.perf_counter())
            growth = min((max(left, 0.0) / seconds) ** (1 / EXPONENT), LARGEST_STEP)
            if rows >= most or growth < LEAST_STEP:
                return lines
            rows = min(most, rows * growth)


def _describe_learning(learnt, seconds):
    """Say which kernel and metric were found, and how good others were."""
    best = {}
    for one in learnt.rounds:
        best[one.kernel] = min(one.loss, best.get(one.kernel, np.inf))
    losses = ", ".join(f"{name} {loss:.4f}" for name, loss in best.items())
    chosen = min(learnt.rounds, key=lambda one: one.loss)
    shares = np.array(chosen.importances)
    order = np.argsort(-shares)[:5]
    top = ", ".join(f"{number}: {shares[number]:.0%}" for number in order)
    return [
        f"held-out loss, as a share of that of a constant, by kernel: {losses}",
        f"importance of features: {top}",
        f"kernel {learnt.kernel}: {len(learnt.rounds)} rounds, {seconds:.1f} s",
    ]


def _find_penalty(machine, X, y, weight, penalty, seed, end):
    """Find n·alpha by held-out points, from where squares have it: (it, a line)."""
    n = X.shape[0]
    order = np.random.default_rng(seed).permutation(n)
    n_held = max(1, min(ALPHA_POINTS // 2, n // 4))
    held, rest = order[:n_held], order[n_held : n_held + ALPHA_POINTS]
    weights = [None if weight is None else weight[some] for some in (held, rest)]
    targets = machine._encode(y)  # classes are those of all points
    make_map = machine._map_maker(X, None, machine.kernel)
    machine.set_params(n_components=min(ALPHA_ROWS, len(rest)), tol=ALPHA_TOL)
    sketch = machine._draw_sketch(make_map, X[rest], targets[rest], None, seed)
    feature_map = make_map(sketch)
    Z, Z_held = feature_map.fit_transform(X[rest]), feature_map.transform(X[held])
    unit = machine._alpha_unit(targets, weight) * len(rest)
    found = {}

    def loss_of(penalty):
        if penalty not in found:
            (result,) = machine._solve(Z, targets[rest], weights[1], [penalty / unit])
            found[penalty] = machine.loss_of_decisions(
                result.predict(Z_held), targets[held], weights[0]
            )
        return found[penalty]

    best = float(np.clip(penalty, LEAST_PENALTY, MOST_PENALTY))
    for step in (PENALTY_STEP, 1 / PENALTY_STEP):
        while LEAST_PENALTY <= best * step <= MOST_PENALTY:
            if time.perf_counter() > end or loss_of(best * step) >= loss_of(best):
                break
            best *= step
    tried = ", ".join(f"{one:.2g}: {loss:.4g}" for one, loss in sorted(found.items()))
    return best, f"held-out loss by n·alpha: {tried}"


class AutoKernelRegressor(Auto, SketchedKernelRegressor):
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
    memory_limit, n_threads, random_state
        As for `SketchedKernelRegressor`; features may take four times memory_limit.
    verbose : int
        1 tells what is chosen.

    Attributes
    ----------
    report_ : str
        What was chosen, and why.
    rounds_ : list of Round
    metric_ : ndarray of shape (d,)
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
    >>> sorted(model.feature_importances_.argsort()[-2:].tolist())
    [0, 1]
    """

    _machine_type = SketchedKernelRegressor

    def __init__(
        self,
        *,
        budget="30 s",
        loss="squared",
        kappa="auto",
        epsilon="auto",
        quantile=0.5,
        memory_limit=None,
        n_threads=None,
        random_state=None,
        verbose=0,
    ):
        self.budget = budget
        self.loss = loss
        self.kappa = kappa
        self.epsilon = epsilon
        self.quantile = quantile
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose


class AutoQuantileRegressor(Auto, SketchedQuantileRegressor):
    """Quantile regression that chooses everything itself, within a time budget.

    Parameters
    ----------
    budget, memory_limit, n_threads, random_state, verbose
        As for `AutoKernelRegressor`.
    quantiles, noncrossing
        As for `SketchedQuantileRegressor`.

    Attributes
    ----------
    report_, rounds_, metric_, feature_importances_
        As for `AutoKernelRegressor`.

    And those of `SketchedQuantileRegressor`.
    """

    _machine_type = SketchedQuantileRegressor

    def __init__(
        self,
        *,
        budget="60 s",
        quantiles=(0.1, 0.5, 0.9),
        noncrossing="sort",
        memory_limit=None,
        n_threads=None,
        random_state=None,
        verbose=0,
    ):
        self.budget = budget
        self.quantiles = quantiles
        self.noncrossing = noncrossing
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose


class AutoKernelClassifier(Auto, SketchedKernelClassifier):
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
        budget="30 s",
        loss="logistic",
        class_weight=None,
        memory_limit=None,
        n_threads=None,
        random_state=None,
        verbose=0,
    ):
        self.budget = budget
        self.loss = loss
        self.class_weight = class_weight
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose
