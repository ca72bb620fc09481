"""Figure 1 and its versions of the appendix: the toy data.

protocol  as the paper's scripts: Adam, 25 epochs, a point a step; and for p-sparsified
          sketches what their slip of scale made of the settings: λ·p², learning rates
          divided by p, and eigenvalues of S·K·Sᵀ below 1e-8/p² left out
proper    the same objective, λ·p² included, on all eigenvectors, to a certified gap of
          1e-6
tuned     gamma, λ and kappa or epsilon by folds, for p-SR at 30/n and s = 100, and used
          for all sketches; the folds look at squared errors

Random Fourier features have settings of their own (gamma = 0.5), but for "tuned".
"""

import time
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import HuberRegressor
from sklearn.pipeline import make_pipeline

import pskernels as psk
from bench.benchmarks import common
from bench.paper import published
from bench.paper.runs import Row, Unit
from bench.paper.training import EPOCHS, fit_map, make_adam, timed
from pskernels.estimators import SketchedKernelRegressorCV

N = 10_000
SIZES = tuple(range(40, 150, 10))
GAMMA = 0.1
FOURIER_GAMMA = 0.5
ENTRIES = (5, 10, 30, 50)
TUNED_ON = "p-SR 30/n"
TUNED_ROWS = 100
# scikit-learn, 100 iterations at the most, by epsilon: its default, and kappa
PEER = "Nystroem + HuberRegressor()"
PEERS = {PEER: 1.35, "Nystroem + HuberRegressor(epsilon=100)": 100.0}
# np.isclose(eigenvalue, 0) of the scripts
SCRIPTS_CUT = 1e-8


class Method(NamedTuple):
    make: Callable  # s -> distribution; None: random Fourier features
    learning_rate: float
    p: float = 1.0


def _sparsified(kind, m, printed_rate):
    p = m / N
    # features of the scripts are 1/p too large, and steps, in effect, too
    return Method(lambda s: psk.PSparsified(s, p, kind), printed_rate / p, p)


METHODS = {
    "Nystrom": Method(psk.SubSampling, 0.05),
    **{
        f"{name} {m}/n": _sparsified(kind, m, rate)
        for name, kind in (("p-SR", "rademacher"), ("p-SG", "gaussian"))
        for m, rate in zip(ENTRIES, (2e-5, 5e-5, 1e-4, 5e-4), strict=True)
    },
    "Gaussian": Method(psk.Gaussian, 0.05),
    "Accumulation": Method(partial(psk.Accumulation, m=30), 0.05),
    "CountSketch": Method(psk.CountSketch, 0.05),
    "RFF": Method(None, 0.03),
}
# The sketches of each of the paper's plots, from the least accurate one on.
PLOTS = {
    plot: ("Nystrom", *(f"p-{plot} {m}/n" for m in ENTRIES), "Gaussian")
    for plot in ("SR", "SG")
}
# Whose times are compared with scikit-learn's.
TIMED = PLOTS["SR"][1:-1]
TIMED_ROUNDS = 3
# Seconds between jobs: BLAS workers of the one before spin for a while.
PAUSE = 0.2
# What the paper has in its scatter plots only.
OTHERS = ("Accumulation", "CountSketch", "RFF")


class Setting(NamedTuple):
    loss: psk.Loss
    alpha: float


class Case(NamedTuple):
    name: str  # in SketchedKernelRegressorCV
    tube: str  # its parameter
    make: type
    setting: Setting
    fourier: Setting


CASES = {
    "k-huber": Case(
        "huber",
        "kappa",
        psk.Huber,
        Setting(psk.Huber(100.0), 1e-7),
        Setting(psk.Huber(100.0), 1e-7),
    ),
    "e-svr": Case(
        "epsilon_insensitive",
        "epsilon",
        psk.EpsilonInsensitive,
        Setting(psk.EpsilonInsensitive(10 ** (2 / 3)), 1e-8),
        Setting(psk.EpsilonInsensitive(10.0), 1e-11),
    ),
}


@cache
def toy():
    return common.toy(N)


def units(run, replicates, quick):
    """All units of the figures."""
    work = [
        Unit(f"figure1/{name}/{s}/{k}", partial(compare, name, s, k))
        for k in range(replicates)
        for s in SIZES
        for name in METHODS
    ]
    work += [Unit(f"figure1/times/{s}", partial(compare_times, s)) for s in SIZES]
    work += [Unit(f"figure1/tune/{case}", partial(tune, case, quick)) for case in CASES]
    work += [
        Unit(f"figure1/tuned/{name}/{s}/{k}", partial(run_tuned, run, name, s, k))
        for k in range(replicates if not quick else 1)
        for s in SIZES
        for name in METHODS
    ]
    return work


def make_map(name, s, gamma, replicate):
    # of its own for every s: with the same seed a sketch has the rows of smaller ones
    seed = 1000 * replicate + s
    make = METHODS[name].make
    if make is None:
        return psk.RandomFourierFeatures(s, gamma=gamma, random_state=seed)
    return psk.FeatureMap(gamma=gamma, sketch=make(s), random_state=seed)


def compare(name, s, replicate):
    """Both losses, as the paper and properly, on the same features."""
    (X, y), _ = toy()
    fourier = METHODS[name].make is None
    gamma = FOURIER_GAMMA if fourier else GAMMA
    fitted = fit_map(make_map(name, s, gamma, replicate), X)
    models = {}
    for case, of_case in CASES.items():
        loss, printed = of_case.fourier if fourier else of_case.setting
        options = dict(
            loss=loss,
            alpha=published.effective_alpha(printed, METHODS[name].p),
            fit_intercept=False,
        )
        adam = dict(solver=make_adam(METHODS[name].learning_rate), max_iter=EPOCHS)
        models[case, "protocol"] = timed(
            psk.solve, cut_as_scripts(fitted, METHODS[name].p), y, **options, **adam
        )
        models[case, "proper"] = timed(psk.solve, fitted.Z, y, **options)
    return score(fitted, models, name, s, replicate)


def cut_as_scripts(fitted, p):
    """Features of eigenvectors whose eigenvalues the scripts do not take for 0.

    With S·K·Sᵀ = L·Lᵀ, L = (S·K·Sᵀ)·W, the singular values of L are the roots of the
    eigenvalues, and its right singular vectors turn features to those of eigenvectors.
    """
    fm = fitted.map
    if isinstance(fm, psk.RandomFourierFeatures):
        return fitted.Z
    (s, m), drawn = fm.sketch_.weights.shape, fm.sketch_
    sketch = psk.Sketch((s, m), np.arange(m), drawn.weights, drawn.scale)
    options = dict(sketch=sketch, kernel=fm.kernel_, parts="SKSt")
    SKSt = psk.sketch_gram(fm.landmarks_, **options).SKSt
    _, roots, rotation = np.linalg.svd(SKSt @ fm.whitening_, full_matrices=False)
    kept = p**2 * roots**2 > SCRIPTS_CUT
    return np.ascontiguousarray(fitted.Z @ rotation[kept].T)


def score(fitted, models, name, s, replicate):
    """Rows of models of the same features: {(case, column): (seconds, result)}.

    Models of the first features only have no coefficients for the others.
    """
    _, (X_test, y_test) = toy()
    coefs = np.zeros((fitted.Z.shape[1], len(models)))
    for column, (_, result) in enumerate(models.values()):
        coefs[: len(result.coef), column] = result.coef
    intercepts = np.array([result.intercept for _, result in models.values()])
    predicted = fitted.map.predict(X_test, coefs, intercepts)
    rows = []
    for column, ((case, how), (seconds, result)) in enumerate(models.items()):
        numbers = {
            "mse": psk.relative_mse(y_test, predicted[:, column]),
            "seconds": fitted.seconds + seconds,
            "gap": result.dual_gap,
        }
        rows += [
            Row("figure1", case, how, name, s, replicate, metric, float(value))
            for metric, value in numbers.items()
        ]
    return rows


def compare_times(s):
    """Training, sketch included, of the p-SR sketches and of scikit-learn, in turns."""
    (X, y), (X_test, y_test) = toy()
    loss, alpha = CASES["k-huber"].setting
    peers = {
        name: make_pipeline(
            Nystroem(gamma=GAMMA, n_components=s, random_state=0),
            # its objective is a sum of squares, not half of their mean
            HuberRegressor(epsilon=epsilon, alpha=alpha * N),
        )
        for name, epsilon in PEERS.items()
    }

    def train(name):
        p = METHODS[name].p
        Z = make_map(name, s, GAMMA, 0).fit_transform(X)
        alpha_p = published.effective_alpha(alpha, p)
        psk.solve(Z, y, loss=loss, alpha=alpha_p, fit_intercept=False)

    jobs = {name: partial(train, name) for name in TIMED}
    jobs |= {name: partial(peer.fit, X, y) for name, peer in peers.items()}
    least = dict.fromkeys(jobs, np.inf)
    for _ in range(TIMED_ROUNDS):
        for name, job in jobs.items():
            time.sleep(PAUSE)
            least[name] = min(least[name], timed(job)[0])
    errors = {
        name: psk.relative_mse(y_test, peer.predict(X_test))
        for name, peer in peers.items()
    }
    return [
        Row("figure1", "k-huber", "times", name, s, 0, metric, value)
        for metric, values in (("seconds", least), ("mse", errors))
        for name, value in values.items()
    ]


def tune(case, quick):
    """gamma, alpha and the tube by folds."""
    (X, y), _ = toy()
    of_case = CASES[case]
    step = 2 if quick else 1
    search = SketchedKernelRegressorCV(
        loss=of_case.name,
        alphas=published.ALPHAS[::step],
        gammas=published.GAMMAS[::step],
        **{f"{of_case.tube}s": published.TUBES[::step]},
        sketch=METHODS[TUNED_ON].make(TUNED_ROWS),
        cv=published.FOLDS,
        scoring="neg_mean_squared_error",
        tol=1e-4,
        fit_intercept=False,
        random_state=0,
    )
    seconds, _ = timed(search.fit, X, y)
    chosen = {"search_seconds": seconds, **search.best_params_}
    return [
        Row("figure1", case, "folds", TUNED_ON, TUNED_ROWS, 0, metric, float(value))
        for metric, value in chosen.items()
    ]


def run_tuned(run, name, s, replicate):
    (X, y), _ = toy()
    rows = []
    for case, of_case in CASES.items():
        chosen = run.chosen("figure1", case, TUNED_ON)
        fitted = fit_map(make_map(name, s, chosen["gamma"], replicate), X)
        options = dict(
            loss=of_case.make(chosen[of_case.tube]),
            alpha=chosen["alpha"],
            fit_intercept=False,
        )
        models = {(case, "tuned"): timed(psk.solve, fitted.Z, y, **options)}
        rows += score(fitted, models, name, s, replicate)
    return rows


def summarise(run, case, column, name, metric):
    """(s, mean, standard deviation) over replicates."""
    fields = dict(experiment="figure1", case=case, column=column, sketch=name)
    groups = [run.values(s=s, metric=metric, **fields) for s in SIZES]
    return (
        np.array(SIZES),
        np.array([values.mean() for values in groups]),
        np.array([values.std() for values in groups]),
    )
