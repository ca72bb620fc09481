"""Peers: time of training and of prediction, peak memory and test error, in one run.

    python -m bench.peers                                  three tasks, some minutes
    python -m bench.peers quantiles --sets california --rows 10000 --limit 300
    python -m bench.peers --figure peers.png

Every method has a process of its own: its peak is that of the process beside data and
imports.  All have one thread unless `--threads` says otherwise: on a busy machine
threads that wait for one another take many times as long.  Methods that are not
installed are named and left out:

    scikit-learn            Nystroem, RBFSampler, SVR, SVC, KernelRidge, HuberRegressor,
                            QuantileRegressor, LogisticRegression, boosting
    scikit-learn-intelex    SVR, SVC        lightgbm, quantile-forest, skglm, xrfm
    pykeops                 kernel ridge regression by conjugate gradients, no K formed;
                            its first run compiles, and that is counted

regression  1 - R², a tenth of the training targets moved far up
quantiles   mean pinball loss of 0.1, 0.5 and 0.9, in standard deviations of y
classes     share of wrong classes, y cut at its tertiles

A fifth of the points is for testing.  Features and targets are standardised.  Nothing
is tuned: defaults, or what the table's name says.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

if __name__ == "__main__":  # the pskernels that is installed, not the folder's
    sys.path.append(sys.path.pop(0))

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

import pskernels as psk
from bench.benchmarks.datasets import folder, load, standardise

LEVELS = (0.1, 0.5, 0.9)
ROWS = 300
TASKS = ("regression", "quantiles", "classes")


def get_data(name, task, rows, seed=0):
    """Return X, y, X_test and y_test of a set."""
    if name == "friedman":
        X, y = make_friedman1(rows, noise=1.0, random_state=0)
    elif name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        data = load(name)
        X, y = data["X"].astype(float), data["y"].astype(float)
    kept = np.random.default_rng(seed).permutation(len(X))[:rows]
    X, X_test, y, y_test = train_test_split(
        X[kept], y[kept], test_size=0.2, random_state=seed
    )
    X, X_test = standardise(X, X_test)
    y, y_test = (one.ravel() for one in standardise(y[:, None], y_test[:, None]))
    if task == "classes":
        cuts = np.quantile(y, [1 / 3, 2 / 3])
        y, y_test = np.digitize(y, cuts), np.digitize(y_test, cuts)
    if task == "regression":
        rng = np.random.default_rng(seed)
        y = y + np.where(rng.uniform(size=len(y)) < 0.1, rng.exponential(5, len(y)), 0)
    return X, y, X_test, y_test


def score(task, y, predicted):
    """Compute the error of a task: smaller is better."""
    if task == "classes":
        return float(np.mean(predicted != y))
    if task == "quantiles":
        return psk.pinball_loss(y, np.sort(predicted, axis=1), LEVELS)
    return float(np.mean((y - predicted) ** 2) / np.var(y))


class ByLevel(RegressorMixin, BaseEstimator):
    """A machine for each level."""

    def __init__(self, make):
        self.make = make

    def fit(self, X, y):
        self.machines_ = [self.make(level).fit(X, y) for level in LEVELS]
        return self

    def predict(self, X):
        return np.column_stack([machine.predict(X) for machine in self.machines_])


# -- methods: functions of the task that make an estimator, or None


def sketched(task):
    from pskernels.estimators import (
        SketchedKernelClassifier,
        SketchedKernelRegressor,
        SketchedQuantileRegressor,
    )

    return {
        "regression": SketchedKernelRegressor(random_state=0),
        "quantiles": SketchedQuantileRegressor(quantiles=LEVELS, random_state=0),
        "classes": SketchedKernelClassifier(loss="logistic", random_state=0),
    }[task]


def sketched_metric(task):
    return sketched(task).set_params(metric="learn", kernel="auto", tol=1e-3)


def automatic(task):
    from pskernels.estimators import (
        AutoKernelClassifier,
        AutoKernelRegressor,
        AutoQuantileRegressor,
    )

    return {
        "regression": AutoKernelRegressor(loss="huber", budget="30 s", random_state=0),
        "quantiles": AutoQuantileRegressor(
            quantiles=LEVELS, budget="30 s", random_state=0
        ),
        "classes": AutoKernelClassifier(budget="30 s", random_state=0),
    }[task]


def nystroem(task):
    from sklearn.kernel_approximation import Nystroem

    return make_pipeline(Nystroem(n_components=ROWS, random_state=0), linear(task))


def fourier(task):
    from sklearn.kernel_approximation import RBFSampler

    features = RBFSampler(gamma="scale", n_components=ROWS, random_state=0)
    return make_pipeline(features, linear(task))


def linear(task):
    """Make the machine of scikit-learn for the features of others."""
    from sklearn.linear_model import HuberRegressor, LogisticRegression

    if task == "quantiles":
        return ByLevel(_linear_quantile)
    if task == "classes":
        return LogisticRegression(max_iter=1000)
    return HuberRegressor(max_iter=1000)


def _linear_quantile(level):
    from sklearn.linear_model import QuantileRegressor

    return QuantileRegressor(quantile=level, alpha=0.0, solver="highs")


def svm(task):
    from sklearn.svm import SVC, SVR

    return {"regression": SVR(), "classes": SVC()}.get(task)


def intel_svm(task):
    from sklearnex.svm import SVC, SVR

    return {"regression": SVR(), "classes": SVC()}.get(task)


def kernel_ridge(task):
    from sklearn.kernel_ridge import KernelRidge

    return KernelRidge(kernel="rbf") if task == "regression" else None


def keops(task):
    return KeopsRidge() if task == "regression" else None


class KeopsRidge:
    """Kernel ridge regression whose products KeOps computes, K never formed."""

    def __init__(self):
        from pykeops.numpy import LazyTensor

        self._tensor = LazyTensor

    def _kernel(self, X, Y):
        distances = self._tensor(X[:, None]) - self._tensor(Y[None])
        return (-(distances**2).sum(-1) / X.shape[1]).exp()

    def fit(self, X, y):
        self._X, self._mean = X, y.mean()
        self._coef = self._kernel(X, X).solve((y - self._mean)[:, None], alpha=1.0)
        return self

    def predict(self, X):
        return (self._kernel(X, self._X) @ self._coef).ravel() + self._mean


def lightgbm(task):
    from lightgbm import LGBMClassifier, LGBMRegressor

    options = dict(n_estimators=300, verbose=-1, random_state=0)
    if task == "quantiles":
        return ByLevel(
            lambda level: LGBMRegressor(objective="quantile", alpha=level, **options)
        )
    if task == "classes":
        return LGBMClassifier(**options)
    return LGBMRegressor(objective="huber", **options)


def boosting(task):
    from sklearn.ensemble import (
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

    if task == "quantiles":
        return ByLevel(
            lambda level: HistGradientBoostingRegressor(loss="quantile", quantile=level)
        )
    if task == "classes":
        return HistGradientBoostingClassifier()
    return HistGradientBoostingRegressor(loss="absolute_error")


class QuantileForest:
    def __init__(self):
        from quantile_forest import RandomForestQuantileRegressor

        self._forest = RandomForestQuantileRegressor(random_state=0)

    def fit(self, X, y):
        self._forest.fit(X, y)
        return self

    def predict(self, X):
        return self._forest.predict(X, quantiles=list(LEVELS))


def quantile_forest(task):
    return QuantileForest() if task == "quantiles" else None


def skglm_huber(task):
    if task != "regression":
        return None
    from skglm import GeneralizedLinearEstimator
    from skglm.datafits import Huber
    from skglm.penalties import L1

    return GeneralizedLinearEstimator(datafit=Huber(1.35), penalty=L1(1e-3))


class XRFM:
    def __init__(self):
        from xrfm import xRFM

        self._make = xRFM

    def fit(self, X, y):
        X, X_held, y, y_held = train_test_split(X, y, test_size=0.15, random_state=0)
        self._model = self._make(device="cpu").fit(X, y, X_held, y_held)
        return self

    def predict(self, X):
        return np.ravel(self._model.predict(X))


def xrfm(task):
    return XRFM() if task == "regression" else None


METHODS = {
    "pskernels": sketched,
    "pskernels, learnt metric": sketched_metric,
    "pskernels, automatic": automatic,
    f"Nystroem({ROWS}) + linear": nystroem,
    f"RBFSampler({ROWS}) + linear": fourier,
    "linear": linear,
    "SVR, SVC": svm,
    "SVR, SVC (intelex)": intel_svm,
    "KernelRidge": kernel_ridge,
    "KeOps": keops,
    "HistGradientBoosting": boosting,
    "LightGBM": lightgbm,
    "quantile-forest": quantile_forest,
    "skglm": skglm_huber,
    "xRFM": xrfm,
}


def measure(method, task, data, rows):
    """Fit and predict here; return seconds, megabytes and the error, or None."""
    X, y, X_test, y_test = get_data(data, task, rows)
    estimator = METHODS[method](task)
    if estimator is None:
        return None
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    estimator.fit(X, y)
    fitted = time.perf_counter()
    predicted = estimator.predict(X_test)
    ended = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return dict(
        fit=fitted - began,
        predict=ended - fitted,
        megabytes=peak / 1024,
        error=score(task, y_test, predicted),
    )


def measure_apart(method, task, data, options):
    """Do `measure` in a process of its own: a dict, or a text that says why not."""
    command = [
        sys.executable, "-m", "bench.peers", "--one", method, task, data,
        "--rows", str(options.rows),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=options.limit,
            cwd=Path(__file__).parents[1],
            env=os.environ | {"OMP_NUM_THREADS": str(options.threads)},
        )
    except subprocess.TimeoutExpired:
        return f"more than {options.limit} s"
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    last = (done.stderr.strip().splitlines() or ["stopped"])[-1]
    return "not installed" if "ModuleNotFoundError" in last else last[:60]


def run(options):
    """Measure all methods, print a table for each task and set, and draw them."""
    results = []
    for task in options.tasks:
        for data in options.sets:
            n = len(get_data(data, task, options.rows)[0])
            print(f"\n{task}, {data}, {n:,} training points")
            print(f"{'':<28}{'fit s':>9}{'predict s':>11}{'MB':>8}{'error':>9}")
            for method in METHODS:
                found = measure_apart(method, task, data, options)
                if found is None:
                    continue
                if isinstance(found, str):
                    print(f"{method:<28}  {found}", flush=True)
                    continue
                print(
                    f"{method:<28}{found['fit']:>9.2f}{found['predict']:>11.3f}"
                    f"{found['megabytes']:>8.0f}{found['error']:>9.4f}",
                    flush=True,
                )
                results.append(dict(method=method, task=task, data=data, **found))
    if options.figure:
        draw(results, options.figure)


def draw(results, path):
    """Draw the error against the seconds of a fit, for each task and set."""
    from matplotlib.figure import Figure

    pairs = list(dict.fromkeys((one["task"], one["data"]) for one in results))
    columns = min(3, len(pairs))
    rows = -(-len(pairs) // columns)
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained", dpi=120)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    colors = {name: f"C{number % 10}" for number, name in enumerate(METHODS)}
    for ax, (task, data) in zip(axes, pairs, strict=False):
        for one in results:
            if (one["task"], one["data"]) == (task, data):
                ours = one["method"].startswith("pskernels")
                ax.plot(
                    one["fit"] + one["predict"],
                    one["error"],
                    "*" if ours else "o",
                    color=colors[one["method"]],
                    markersize=11 if ours else 6,
                    label=one["method"],
                )
        ax.set_xscale("log")
        ax.set(title=f"{task}, {data}", xlabel="seconds", ylabel="error")
    for ax in axes[len(pairs) :]:
        ax.set_axis_off()
    labelled = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        labelled.values(), labelled.keys(), loc="outside right upper", frameon=False
    )
    figure.savefig(path)
    print(f"\n{path}")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sets = "california,bike_hour" if folder().is_dir() else "friedman,diabetes"
    parser.add_argument("tasks", nargs="*", help=", ".join(TASKS))
    parser.add_argument("--sets", default=sets, help=f"comma-separated ({sets})")
    parser.add_argument("--rows", type=int, default=5000, help="at most (5000)")
    parser.add_argument("--limit", type=float, default=120, help="seconds each (120)")
    parser.add_argument("--threads", type=int, default=1, help="of each method (1)")
    parser.add_argument("--figure", help="file for the plot")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(measure(*options.one, options.rows)))
        return
    options.sets = options.sets.split(",")
    options.tasks = options.tasks or list(TASKS)
    for task in options.tasks:
        if task not in TASKS:
            parser.error(f"there is no task {task!r}: {', '.join(TASKS)}")
    run(options)


if __name__ == "__main__":
    main()
