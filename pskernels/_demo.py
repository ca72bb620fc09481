"""``pskernels demo``: four tasks, each beside what one would take otherwise.

scikit-learn where it is installed, and else NumPy: kernel ridge regression, all pairs
of points in one matrix.
"""

import time
import tracemalloc
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy.special import ndtr

from pskernels._bench import rbf_kernel
from pskernels._types import Array
from pskernels.conformal import bound_by_folds
from pskernels.feature_map import FeatureMap
from pskernels.losses import Huber, Logistic
from pskernels.metric_learning import MetricLearner
from pskernels.metrics import coverage
from pskernels.quantiles import rearrange, solve_quantiles
from pskernels.sketches import SubSampling
from pskernels.solvers import solve

ROWS = 200
COVERAGE = 0.9
LEAST_POINTS = 300  # of which a quarter is held out


class Method(NamedTuple):
    """What a method has found."""

    name: str
    predict: Callable[[Array], Array]  # of new points
    gap: float | None  # what is certified
    importances: Sequence[float] = ()


Fit = Callable[[Array, Array], Method]


class Task(NamedTuple):
    """A question, data, and methods that answer it: functions of X and y."""

    title: str
    train: tuple[Array, Array]
    test: tuple[Array, Array]
    methods: tuple[Fit, ...]
    score: Callable[[Method, Array, Array], str]


def run(n: int, n_threads: int | None = None, plot: str | None = None) -> None:
    """Run the tasks, print a table, and draw it where matplotlib is installed."""
    if n < LEAST_POINTS:
        raise ValueError(f"the demo needs {LEAST_POINTS} points or more, got {n}")
    rng = np.random.default_rng(0)
    print(f"{n:,} points each; errors are those of as many new points\n")
    print(f"{'':<32}{'seconds':>9}{'MB':>7}   on new points")
    done, gaps = [], []
    for make in (robust_task, interval_task, class_task, metric_task):
        task = make(n, rng, n_threads)
        print(task.title, flush=True)
        found = []
        for fit in task.methods:
            method, seconds, megabytes = measure(fit, *task.train)
            score = task.score(method, *task.test)
            print(
                f"  {method.name:<30}{seconds:>9.2f}{megabytes:>7.0f}   {score}",
                flush=True,
            )
            found.append(method)
            gaps += [] if method.gap is None else [method.gap]
        done.append((task, found))
    print(
        f"\nCertified: each fit of pskernels is within {max(gaps):.0e} of the least "
        "value that its\nobjective can have, relatively; a bound that is computed "
        "with the fit, not a guess.\nA learnt metric is several fits, and tells which "
        "features matter.\nMB are the peak that Python allocates; compiled "
        "code of others may take more."
    )
    if plot:
        _draw(done, plot)


def measure(fit: Fit, X: Array, y: Array) -> tuple[Method, float, float]:
    """Fit, and find the seconds and the peak of memory, in MB."""
    tracemalloc.start()
    began = time.perf_counter()
    method = fit(X, y)
    seconds = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return method, seconds, peak / 1e6


def has_sklearn() -> bool:
    """Tell whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


def make_map(n_threads: int | None, **options: Any) -> FeatureMap:
    return FeatureMap(
        sketch=SubSampling(ROWS), random_state=0, n_threads=n_threads, **options
    )


def kernel_ridge(X: Array, y: Array, gamma: float) -> Callable[[Array], Array]:
    """Fit by NumPy, as fast as NumPy does it: f(x) with K of all pairs of points."""
    K = rbf_kernel(X, X, gamma)
    K.reshape(-1)[:: len(X) + 1] += 1.0
    mean = y.mean()
    coef = scipy.linalg.solve(K, y - mean, assume_a="pos", overwrite_a=True)
    return lambda X_new: rbf_kernel(X_new, X, gamma) @ coef + mean


# -- robust regression


def robust_task(n: int, rng: np.random.Generator, n_threads: int | None) -> Task:
    def f(X: Array) -> Array:
        values: Array = np.sin(8 * X[:, 0]) + 0.5 * X[:, 1]
        return values

    def draw() -> tuple[Array, Array]:
        X = rng.uniform(size=(n, 2))
        y = f(X) + 0.2 * rng.normal(size=n)
        wrong = rng.choice(n, size=n // 10, replace=False)
        y[wrong] += rng.exponential(8.0, size=len(wrong))
        return X, y

    def ours(X: Array, y: Array) -> Method:
        feature_map = make_map(n_threads, gamma=10.0)
        Z = feature_map.fit_transform(X)
        model = solve(Z, y, loss=Huber(0.3), alpha=1e-6, n_threads=n_threads)
        return Method(
            "pskernels, Huber's loss",
            lambda X: feature_map.predict(X, model.coef, model.intercept),
            model.dual_gap,
        )

    def theirs(X: Array, y: Array) -> Method:
        if not has_sklearn():
            return Method("NumPy, kernel ridge", kernel_ridge(X, y, 10.0), None)
        from sklearn.svm import SVR

        return Method("scikit-learn, SVR", SVR(gamma=10.0).fit(X, y).predict, None)

    def score(method: Method, X: Array, y: Array) -> str:
        error = np.abs(method.predict(X) - f(X)).mean()
        return f"mean error {error:.3f}, without the noise"

    title = "regression, a tenth of the targets wrong"
    return Task(title, draw(), draw(), (ours, theirs), score)


# -- intervals


def interval_task(n: int, rng: np.random.Generator, n_threads: int | None) -> Task:
    def draw() -> tuple[Array, Array]:
        X = rng.uniform(size=(n, 2))
        noise = (0.05 + 0.8 * X[:, 0] ** 2) * rng.normal(size=n)
        return X, np.sin(8 * X[:, 0]) + 0.5 * X[:, 1] + noise

    def ours(X: Array, y: Array) -> Method:
        tail = (1 - COVERAGE) / 2
        levels = (tail, 0.5, 1 - tail)
        held = np.arange(len(X)) % 4 == 0
        feature_map = make_map(n_threads, gamma=10.0)
        Z = feature_map.fit_transform(X[~held])
        model = solve_quantiles(
            Z, y[~held], quantiles=levels, alpha=1e-5, tol=1e-3, n_threads=n_threads
        )

        def predict_levels(X: Array) -> Array:
            return rearrange(feature_map.predict(X, model.coef, model.intercept))

        known = predict_levels(X[held])
        nothing = np.zeros(held.sum(), np.intp)

        def predict(X: Array) -> Array:
            """Move the ends by what held-out points say."""
            ends = predict_levels(X)
            low, high = (
                sign
                * bound_by_folds(
                    sign * ends[:, [column]],
                    sign * (y[held] - known[:, column]),
                    nothing,
                    1 - tail,
                )
                for sign, column in ((-1, 0), (1, 2))
            )
            return np.stack([low, high], axis=1)

        return Method("pskernels, calibrated levels", predict, model.dual_gap)

    def theirs(X: Array, y: Array) -> Method:
        if not has_sklearn():
            return _constant_width(X, y)
        from sklearn.ensemble import HistGradientBoostingRegressor

        tail = (1 - COVERAGE) / 2
        ends = [
            HistGradientBoostingRegressor(loss="quantile", quantile=level).fit(X, y)
            for level in (tail, 1 - tail)
        ]
        return Method(
            "scikit-learn, boosted levels",
            lambda X: np.stack([end.predict(X) for end in ends], axis=1),
            None,
        )

    def score(method: Method, X: Array, y: Array) -> str:
        low, high = method.predict(X).T
        return (
            f"{coverage(y, low, high):.1%} inside, mean width {np.mean(high - low):.2f}"
        )

    title = f"intervals that are to contain {COVERAGE:.0%}"
    return Task(title, draw(), draw(), (ours, theirs), score)


def _constant_width(X: Array, y: Array) -> Method:
    held = np.arange(len(X)) % 4 == 0
    mean = kernel_ridge(X[~held], y[~held], 10.0)
    reach = np.quantile(np.abs(y[held] - mean(X[held])), COVERAGE)
    return Method(
        "NumPy, ridge and one width",
        lambda X: mean(X)[:, None] + reach * np.array([-1.0, 1.0]),
        None,
    )


# -- classes


def class_task(n: int, rng: np.random.Generator, n_threads: int | None) -> Task:
    noise = 0.6

    def spiral(X: Array) -> Array:
        radius, angle = np.hypot(*X.T), np.arctan2(X[:, 1], X[:, 0])
        found: Array = np.sin(2 * angle + 7 * radius)
        return found

    def draw() -> tuple[Array, Array]:
        X = rng.uniform(-1, 1, size=(n, 2))
        return X, np.where(spiral(X) + noise * rng.normal(size=n) > 0, 1.0, -1.0)

    def ours(X: Array, y: Array) -> Method:
        feature_map = make_map(n_threads, gamma=10.0)
        Z = feature_map.fit_transform(X)
        model = solve(Z, y, loss=Logistic(), alpha=1e-5, n_threads=n_threads)
        return Method(
            "pskernels, logistic",
            lambda X: feature_map.predict(X, model.coef, model.intercept),
            model.dual_gap,
        )

    def theirs(X: Array, y: Array) -> Method:
        if not has_sklearn():
            return Method("NumPy, kernel least squares", kernel_ridge(X, y, 10.0), None)
        from sklearn.svm import SVC

        return Method("scikit-learn, SVC", SVC(gamma=10.0).fit(X, y).predict, None)

    def score(method: Method, X: Array, y: Array) -> str:
        right = np.mean((method.predict(X) > 0) == (y > 0))
        possible = ndtr(np.abs(spiral(X)) / noise).mean()
        return f"{right:.1%} right; noise leaves {possible:.1%}"

    return Task("two classes, in a spiral", draw(), draw(), (ours, theirs), score)


# -- a metric


def metric_task(n: int, rng: np.random.Generator, n_threads: int | None) -> Task:
    def draw() -> tuple[Array, Array]:
        X = rng.normal(size=(n, 12))
        y = np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2]
        return X, y + 0.1 * rng.normal(size=n)

    def ours(X: Array, y: Array) -> Method:
        learner = MetricLearner(kernels=("rbf",), n_threads=n_threads)
        learnt = learner.learn(X, y, None)
        feature_map = make_map(n_threads, kernel=learnt.kernel)
        Z = feature_map.fit_transform(X)
        model = solve(
            Z, y, loss="squared", alpha=learnt.penalty / len(y), n_threads=n_threads
        )

        def predict(X: Array) -> Array:
            return feature_map.predict(X, model.coef, model.intercept)

        shares = learnt.rounds[-1].importances
        return Method("pskernels, learnt metric", predict, model.dual_gap, shares)

    def theirs(X: Array, y: Array) -> Method:
        if not has_sklearn():
            return Method("NumPy, kernel ridge", kernel_ridge(X, y, 1 / 12), None)
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor().fit(X, y)
        return Method("scikit-learn, boosting", model.predict, None)

    def score(method: Method, X: Array, y: Array) -> str:
        return f"R² {1 - np.mean((y - method.predict(X)) ** 2) / y.var():.3f}"

    return Task("12 features, of which 3 matter", draw(), draw(), (ours, theirs), score)


# -- the picture


def _draw(done: list[tuple[Task, list[Method]]], path: str) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("\nA picture needs matplotlib: pip install matplotlib")
        return
    figure = Figure(figsize=(10, 7.5), layout="constrained", dpi=120)
    axes = figure.subplots(2, 2).flat
    drawings = (_draw_robust, _draw_intervals, _draw_classes, _draw_metric)
    for ax, draw, (task, methods) in zip(axes, drawings, done, strict=True):
        draw(ax, task, methods)
        ax.set_title(task.title, fontsize="medium")
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    print(f"\n{path}: the four tasks in pictures")


def _grid() -> tuple[Array, Array]:
    x = np.linspace(0, 1, 300)
    return x, np.column_stack([x, np.full(300, 0.5)])


def _draw_robust(ax: Any, task: Task, methods: list[Method]) -> None:
    X, y = task.train
    x, grid = _grid()
    ax.plot(X[:, 0], y, ".", color="0.8", markersize=2, zorder=0)
    for method, color in zip(methods, ("C0", "C1"), strict=True):
        ax.plot(x, method.predict(grid), color=color, label=method.name, linewidth=2)
    ax.plot(x, np.sin(8 * x) + 0.25, "k--", label="the truth", linewidth=1)
    ax.set_ylim(-2.5, 5)
    ax.legend(loc="upper right", frameon=False)


def _draw_intervals(ax: Any, task: Task, methods: list[Method]) -> None:
    X, y = task.test
    x, grid = _grid()
    ax.plot(X[:, 0], y - 0.5 * (X[:, 1] - 0.5), ".", color="0.75", markersize=2)
    for method, color in zip(methods, ("C0", "C1"), strict=True):
        for end, label in zip(method.predict(grid).T, (method.name, None), strict=True):
            ax.plot(x, end, color=color, label=label)
    ax.legend(loc="upper left", frameon=False)


def _draw_classes(ax: Any, task: Task, methods: list[Method]) -> None:
    X, y = task.train
    side = np.linspace(-1, 1, 150)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    decision = methods[0].predict(grid).reshape(150, 150)
    ax.contourf(side, side, np.tanh(decision / 2), levels=20, cmap="RdBu", alpha=0.8)
    for sign, color in ((1.0, "navy"), (-1.0, "darkred")):
        some = X[y == sign][:300]
        ax.plot(*some.T, ".", color=color, markersize=3)
    ax.set_aspect("equal")


def _draw_metric(ax: Any, task: Task, methods: list[Method]) -> None:
    shares = np.asarray(methods[0].importances)
    colors = np.where(np.arange(len(shares)) < 3, "C0", "0.7")
    numbers = np.arange(1, len(shares) + 1)
    ax.bar(numbers, shares, color=colors)
    ax.set_xticks(numbers)
    ax.set(xlabel="feature", ylabel="share of the metric")
