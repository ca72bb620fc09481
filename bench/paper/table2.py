"""Table 2: kernel ridge regression with several outputs, M = I.

protocol  targets cut to integers, as the paper's loader did, missing features 0 before
          they are standardised, the effective λ; solved stably, where the paper's
          pseudo-inverse is not
proper    the targets as they are
tuned     gamma and λ by folds, for the first sketch of each kind

Folds are blocks of rows, in their order.  Rows are in the order of time, and the test
sets come last: what is best on folds need not be so on them.
"""

from functools import cache, partial

import numpy as np
import scipy.linalg

import pskernels as psk
from bench.benchmarks.common import rbf_kernel
from bench.paper import data, published
from bench.paper.runs import FULL_RUN_ONLY, Row, Unit
from bench.paper.training import fit_map, timed
from pskernels.estimators import SketchedKernelRegressorCV

DATASETS = ("rf1", "rf2", "scm1d", "scm20d")
SKETCHES = {
    "p-SR": psk.PSparsified,
    "p-SG": partial(psk.PSparsified, kind="gaussian"),
    "Accumulation": partial(psk.Accumulation, m=published.ROW_ENTRIES),
    "CountSketch": psk.CountSketch,
}
SPARSIFIED = ("p-SR", "p-SG")

load = cache(data.multi_output)


def units(run, replicates, quick, download):
    work = []
    for name in DATASETS:
        try:
            load(name, download)
        except data.MissingDataError as missing:
            run.missing["table2", name] = str(missing)
            continue
        get = partial(load, name, download)
        work.append(Unit(f"table2/{name}/none", partial(run_exact, name, get)))
        if quick:
            run.missing["table2", name, "none", "tuned"] = FULL_RUN_ONLY
        else:
            tune = partial(tune_exact, name, get)
            work.append(Unit(f"table2/{name}/none/tuned", tune))
        for sketch in SKETCHES:
            work += [
                Unit(
                    f"table2/{name}/{sketch}/{k}",
                    partial(compare, name, get, sketch, k),
                )
                for k in range(replicates)
            ]
            tune = partial(tune_sketched, name, get, sketch, quick)
            work.append(Unit(f"table2/{name}/{sketch}/tune", tune))
            work += [
                Unit(
                    f"table2/{name}/{sketch}/tuned/{k}",
                    partial(run_tuned, run, name, get, sketch, k),
                )
                for k in range(replicates)
            ]
    return work


def make_rows(name, column, sketch, replicate, **numbers):
    s = 0 if sketch == "none" else published.TABLE2_ROWS
    return [
        Row("table2", name, column, sketch, s, replicate, metric, float(value))
        for metric, value in numbers.items()
    ]


def targets(column, Y_train, Y_test):
    if column == "protocol":
        return np.trunc(Y_train), np.trunc(Y_test)
    return Y_train, Y_test


def compare(name, get, sketch, replicate):
    X, Y_train, X_test, Y_test = get()
    gamma, printed = published.TABLE2_SETTINGS[sketch]
    alpha = printed
    if sketch in SPARSIFIED:
        alpha = published.effective_alpha(printed, published.ROW_ENTRIES / len(X))
    fitted = fit_map(make_map(sketch, gamma, replicate), X)
    rows = []
    for column in ("protocol", "proper"):
        Y, Y_new = targets(column, Y_train, Y_test)
        numbers = evaluate(fitted, alpha, Y, X_test, Y_new)
        rows += make_rows(name, column, sketch, replicate, **numbers)
    return rows


def make_map(sketch, gamma, seed):
    distribution = SKETCHES[sketch](published.TABLE2_ROWS)
    return psk.FeatureMap(gamma=gamma, sketch=distribution, random_state=seed)


def evaluate(fitted, alpha, Y, X_test, Y_test):
    """Train on the features, predict, and score."""
    seconds, result = timed(psk.solve, fitted.Z, Y, alpha=alpha, fit_intercept=False)
    predicted = fitted.map.predict(X_test, result.coef)
    return {
        "arrmse": psk.arrmse(Y_test, predicted, Y),
        "seconds": fitted.seconds + seconds,
        "gap": result.dual_gap,
    }


def tune_sketched(name, get, sketch, quick):
    X, Y, _, _ = get()
    step = 2 if quick else 1
    search = SketchedKernelRegressorCV(
        loss="squared",
        alphas=published.ALPHAS[::step],
        gammas=published.GAMMAS[::step],
        sketch=SKETCHES[sketch](published.TABLE2_ROWS),
        cv=published.FOLDS,
        fit_intercept=False,
        random_state=0,
    )
    seconds, _ = timed(search.fit, X, Y)
    return make_rows(
        name, "folds", sketch, 0, search_seconds=seconds, **search.best_params_
    )


def run_tuned(run, name, get, sketch, replicate):
    X, Y, X_test, Y_test = get()
    chosen = run.chosen("table2", name, sketch)
    fitted = fit_map(make_map(sketch, chosen["gamma"], replicate), X)
    numbers = evaluate(fitted, chosen["alpha"], Y, X_test, Y_test)
    return make_rows(name, "tuned", sketch, replicate, **numbers)


# --------------------------------------------------------------------------
# Without a sketch
# --------------------------------------------------------------------------


def run_exact(name, get):
    X, Y_train, X_test, Y_test = get()
    gamma, alpha = published.TABLE2_SETTINGS["none"]
    rows = []
    for column in ("protocol", "proper"):
        Y, Y_new = targets(column, Y_train, Y_test)
        seconds, dual = timed(fit_exact, X, Y, gamma, alpha)
        predicted = psk.kernel_matmul(X_test, X, dual, gamma=gamma)
        arrmse = psk.arrmse(Y_new, predicted, Y)
        rows += make_rows(name, column, "none", 0, arrmse=arrmse, seconds=seconds)
    return rows


def fit_exact(X, Y, gamma, alpha):
    K = rbf_kernel(X, X, gamma=gamma)
    K.flat[:: len(K) + 1] += len(X) * alpha
    return scipy.linalg.solve(K, Y, assume_a="pos", overwrite_a=True)


def tune_exact(name, get):
    """Folds without a sketch: an eigendecomposition for each gamma and fold."""
    X, Y, X_test, Y_test = get()
    folds = np.array_split(np.arange(len(X)), published.FOLDS)
    scores = np.zeros((len(published.GAMMAS), len(published.ALPHAS)))
    for test in folds:
        train = np.setdiff1d(np.arange(len(X)), test)
        baseline = ((Y[test] - Y[test].mean(axis=0)) ** 2).sum(axis=0)
        for i, gamma in enumerate(published.GAMMAS):
            values, U = scipy.linalg.eigh(rbf_kernel(X[train], gamma=gamma))
            UtY = U.T @ Y[train]
            KU = rbf_kernel(X[test], X[train], gamma=gamma) @ U
            for j, alpha in enumerate(published.ALPHAS):
                predicted = KU @ (UtY / (values + len(train) * alpha)[:, None])
                errors = ((Y[test] - predicted) ** 2).sum(axis=0)
                scores[i, j] += np.mean(1 - errors / baseline)
    i, j = np.unravel_index(np.argmax(scores), scores.shape)
    gamma, alpha = published.GAMMAS[i], published.ALPHAS[j]
    seconds, dual = timed(fit_exact, X, Y, gamma, alpha)
    arrmse = psk.arrmse(Y_test, psk.kernel_matmul(X_test, X, dual, gamma=gamma), Y)
    return [
        *make_rows(name, "tuned", "none", 0, arrmse=arrmse, seconds=seconds),
        *make_rows(name, "folds", "none", 0, gamma=gamma, alpha=alpha),
    ]
