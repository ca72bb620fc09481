"""The scikit-learn estimators: how good, and how fast, next to their peers.

Times are the least of a few rounds, in one process.  The data sets are those of
bench/README.md; features are standardised.
"""

import os
import time
import tracemalloc
import warnings

import numpy as np
from benchmarks.common import best_threads, least, run_parts, toy
from benchmarks.datasets import load, standardised
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pskernels as psk
from pskernels import estimators
from pskernels.estimators import (
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressorCV,
)

ALPHAS = np.logspace(-2, -7, 10)
MULTIPLES = np.array([1 / 27, 1 / 9, 1 / 3, 1.0, 3.0])
LEVELS = np.linspace(0.1, 0.9, 9)

REGRESSION_SETS = (
    "boston", "abalone", "kin8nm", "bike_hour", "california", "protein_casp",
)  # fmt: skip
OUTPUT_SETS = "rf1", "scm20d"


def split(name, seed=0):
    """(X_train, X_test, y_train, y_test), standardised; a fifth is for testing."""
    if name == "toy":
        (X, y), (X_test, y_test) = toy(10_000, random_state=42 + seed)
        return X, X_test, y, y_test
    data = load(name)
    if name in OUTPUT_SETS:  # the official test sets are later in time: other data
        data = dict(X=np.nan_to_num(data["X_train"]), y=data["y_train"])
    X, X_test, y, y_test = train_test_split(
        data["X"].astype(float),
        data["y"].astype(float),
        test_size=0.2,
        random_state=seed,
    )
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), scaler.transform(X_test), y, y_test


def scale_gamma(X):
    return 1 / (X.shape[1] * X.var())


def search(rounds):
    """A search over 10 alphas × 5 gammas × 5 folds, against GridSearchCV.

    Its fits have all threads, one fit after the other, or are shared among processes of
    one thread each.
    """
    X, _, y, _ = split("toy")
    X = StandardScaler().fit_transform(X)
    labels = y > np.median(y)
    gammas = scale_gamma(X) * MULTIPLES
    for name, options, targets in (
        ("SketchedKernelRegressor", dict(loss="huber"), y),
        ("SketchedKernelRegressor", dict(loss="squared"), y),
        ("SketchedKernelRegressor", dict(loss="epsilon_insensitive"), y),
        ("SketchedQuantileRegressor", dict(quantiles=[0.1, 0.5, 0.9]), y),
        ("SketchedKernelClassifier", dict(loss="hinge"), labels),
        ("SketchedKernelClassifier", dict(loss="logistic"), labels),
    ):
        options = dict(options, n_components=100, random_state=0)
        machine = getattr(estimators, name)
        ours = getattr(estimators, name + "CV")(
            alphas=ALPHAS, gammas=gammas, cv=5, **options
        )
        grid = dict(alpha=ALPHAS, gamma=gammas)
        theirs = GridSearchCV(machine(**options), grid, cv=5)
        shared = GridSearchCV(machine(n_threads=1, **options), grid, cv=5, n_jobs=-1)
        seconds, _ = least(2, ours.fit, X, targets)
        others = [least(1, one.fit, X, targets)[0] for one in (theirs, shared)]
        difference = max(
            abs(ours.cv_results_[key] - theirs.cv_results_[key]).max()
            for key in (f"split{k}_test_score" for k in range(5))
        )
        print(
            f"{name} {next(iter(options.values()))}: {seconds:.2f} s, GridSearchCV "
            f"{others[0]:.2f} s ({others[0] / seconds:.1f} times), in processes "
            f"{others[1]:.2f} s ({others[1] / seconds:.1f} times); scores differ by "
            f"{difference:.0e}",
            flush=True,
        )


def tuned_nystroem(X, y, n_components, alphas, gammas):
    """scikit-learn's usual recipe, tuned by five folds; the map is not shared."""
    n_train = len(X) * 4 // 5
    pipeline = make_pipeline(
        Nystroem(n_components=n_components, random_state=0), Ridge()
    )
    grid = dict(nystroem__gamma=gammas, ridge__alpha=np.multiply(alphas, n_train))
    return GridSearchCV(pipeline, grid, cv=5).fit(X, y)


def rows(rounds):
    """Scores and seconds of fits by rows of the sketch, and those of the default."""
    for name in ("abalone", "kin8nm", "bike_hour", "california", "protein_casp"):
        X, X_test, y, y_test = split(name)
        for n_components in (100, 300, 1000, 2000, None):
            model = SketchedKernelRegressor(n_components=n_components, random_state=0)
            seconds, _ = least(1, model.fit, X, y)
            print(
                f"{name:<13} {model.sketch_.shape[0]:5d} rows: {seconds:5.2f} s, "
                f"test R² {model.score(X_test, y_test):.4f}"
                + (" (the default)" if n_components is None else "")
            )


def california(rounds):
    """Huber and squared, s = 400, tuned, against tuned Nystroem(400) + Ridge."""
    X, X_test, y, y_test = split("california")
    alphas, gammas = np.logspace(-3, -8, 6), scale_gamma(X) * MULTIPLES
    seconds, theirs = best_threads(1, tuned_nystroem, X, y, 400, alphas, gammas)
    print(
        f"Nystroem + Ridge {seconds:7.1f} s, test R² {theirs.score(X_test, y_test):.4f}"
    )
    for loss in ("huber", "squared"):
        model = SketchedKernelRegressorCV(
            loss=loss, n_components=400, alphas=alphas, gammas=gammas, cv=5,
            random_state=0,
        )  # fmt: skip
        ours, _ = least(1, model.fit, X, y)
        print(
            f"{loss:<16} {ours:7.1f} s ({ours / seconds:.2f} of it), test R² "
            f"{model.score(X_test, y_test):.4f}, {model.best_params_}"
        )


def defaults(rounds):
    """`SketchedKernelRegressor()`, not tuned, against tuned Nystroem + Ridge."""
    sets = {name: split(name) for name in REGRESSION_SETS + OUTPUT_SETS}
    X, y, X_test, y_test = standardised("scm20d")
    sets["scm20d, official"] = X, X_test, y, y_test
    for name, (X, X_test, y, y_test) in sets.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # boston: few points
            tuned = tuned_nystroem(
                X, y, 100, np.logspace(-2, -7, 6), scale_gamma(X) * MULTIPLES
            )
        scores = [
            SketchedKernelRegressor(random_state=seed).fit(X, y).score(X_test, y_test)
            for seed in range(5)
        ]
        reference = tuned.score(X_test, y_test)
        print(
            f"{name:<17} R² {np.mean(scores):7.3f} ({min(scores):.3f} to "
            f"{max(scores):.3f}), tuned Nystroem + Ridge {reference:7.3f}: "
            f"{np.mean(scores) - reference:+.3f}"
        )


def quantiles(rounds):
    """Nine levels, tuned, against LightGBM's quantile objective, tuned."""
    for name in ("kin8nm", "california", "bike_hour"):
        X, X_test, y, y_test = split(name)
        model = SketchedQuantileRegressorCV(
            quantiles=LEVELS, n_components=400, cv=3, alphas=_alphas(y),
            gammas=scale_gamma(X) * MULTIPLES[1:4], tol=1e-4, random_state=0,
        )  # fmt: skip
        seconds, _ = least(1, model.fit, X, y)
        predicted = model.predict(X_test)
        loss = psk.pinball_loss(y_test, predicted, LEVELS)
        peer_seconds, peer = least(1, _lightgbm, X, y, X_test)
        peer_loss = psk.pinball_loss(y_test, peer, LEVELS)
        print(
            f"{name:<12} pinball {loss:.5f} in {seconds:.0f} s, crossing "
            f"{psk.crossing_loss(predicted):.1g}; LightGBM {peer_loss:.5f} in "
            f"{peer_seconds:.0f} s, crossing {psk.crossing_loss(peer):.1g}"
        )


def _alphas(y):
    return np.logspace(-4, -7, 4) / np.std(y)


def _lightgbm(X, y, X_test):
    """Nine boosters, each tuned by three folds; one thread is the fastest here."""
    from lightgbm import LGBMRegressor

    grid = dict(num_leaves=[15, 31, 63], n_estimators=[100, 300, 1000])
    columns = []
    for level in LEVELS:
        booster = LGBMRegressor(
            objective="quantile", alpha=level, learning_rate=0.05, n_jobs=1,
            random_state=0, verbose=-1,
        )  # fmt: skip
        found = GridSearchCV(booster, grid, cv=3, scoring=_pinball(level)).fit(X, y)
        columns.append(found.predict(X_test))
    return np.column_stack(columns)


def _pinball(level):
    def score(model, X, y):
        return -psk.pinball_loss(y, model.predict(X)[:, None], [level])

    return score


def overhead(rounds):
    """What an estimator costs beyond the functions beneath it, n = 1,000."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1000, 10))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=1000)

    def functions(loss):
        feature_map = psk.FeatureMap(random_state=0)
        Z = feature_map.fit_transform(X)
        result = psk.solve(Z, y, loss=loss, alpha=1e-5)
        return feature_map.predict(X, result.coef, result.intercept)

    def estimator(**options):
        model = SketchedKernelRegressor(alpha=1e-5, random_state=0, **options)
        return model.fit(X, y).predict(X)

    for loss, options in [
        (psk.Squared(), dict(loss="squared")),
        (psk.Huber(0.1), dict(loss="huber", kappa=0.1)),
    ]:
        times = []
        for _ in range(20 * rounds):
            times.append((
                least(1, functions, loss)[0], least(1, estimator, **options)[0]
            ))  # fmt: skip
        beneath, above = np.min(times, axis=0)
        print(
            f"{loss}: {1e3 * above:.2f} ms, functions {1e3 * beneath:.2f} ms: "
            f"{1e3 * (above - beneath):.2f} ms more"
        )


def sparsity(rounds):
    """p="auto" against every fixed choice: test error and time, squared loss."""
    fixed = {"nystroem": dict(sketch="nystroem")}
    for name in ("toy",) + REGRESSION_SETS + OUTPUT_SETS:
        choices = {
            **fixed,
            **{f"{m}/n": m for m in (2, 5, 10, 20, 50)},
            "auto": dict(p="auto"),
        }
        errors, times = {}, {}
        n_seeds = 12 if name == "boston" else 6
        for seed in range(n_seeds):
            X, X_test, y, y_test = split(name, seed)
            for label, options in choices.items():
                if isinstance(options, int):
                    options = dict(p=min(1.0, options / len(X)))
                error, seconds = _error_and_time(X, X_test, y, y_test, options, seed)
                errors.setdefault(label, []).append(error)
                times.setdefault(label, []).append(seconds)
        means = {label: np.mean(values) for label, values in errors.items()}
        auto = means.pop("auto")
        best = min(means, key=means.get)
        print(
            f"{name:<13} "
            + " ".join(f"{label} {mean:.4f}" for label, mean in means.items())
            + f" auto {auto:.4f}: {auto / means[best] - 1:+.1%} of the best, {best}; "
            f"time {np.mean(times['auto']) / np.mean(times[best]):.2f} of it",
            flush=True,
        )


def _error_and_time(X, X_test, y, y_test, options, seed):
    """Relative squared error with the best of a few alphas, and seconds of one fit."""
    model = SketchedKernelRegressor(
        loss="squared", gamma=0.1 if len(X) == 10_000 else None, random_state=seed,
        **options,
    )  # fmt: skip
    seconds = np.inf
    for _ in range(3):
        time.sleep(0.02)
        start = time.perf_counter()
        model.fit(X, y)
        seconds = min(seconds, time.perf_counter() - start)
    Z, Z_test = model.feature_map_.transform(X), model.feature_map_.transform(X_test)
    folds = list(KFold(5, shuffle=True, random_state=0).split(Z))
    alphas = np.logspace(-3, -9, 13)
    held = np.zeros(len(alphas))
    for train, test in folds:
        for k, result in enumerate(psk.path(Z[train], y[train], alphas=alphas)):
            held[k] += r2_score(y[test], result.predict(Z[test]))
    result = psk.solve(Z, y, alpha=alphas[held.argmax()])
    return 1 - r2_score(y_test, result.predict(Z_test)), seconds


def _touch_memory():
    """Use memory once: a virtual machine may first have to get it from its host."""
    spare = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    np.ones(min(spare // 2, 2**33) // 8)


def _large_data():
    """(name, X, y) of 36,000 points each, standardised."""
    _touch_memory()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(36_000, 8))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + np.cos(X[:, 3])
    y += 0.3 * rng.normal(size=len(y))
    yield "normal", X, (y - y.mean()) / y.std()
    data = load("protein_casp")
    order = rng.permutation(len(data["X"]))[:36_000]
    X = StandardScaler().fit_transform(data["X"][order].astype(float))
    y = data["y"][order].astype(float).ravel()
    yield "protein_casp", X, (y - y.mean()) / y.std()


def large(rounds):
    """Whole fits of large sketches, n = 32,000, against Nystroem + Ridge."""
    for name, X, y in _large_data():
        _fit_large(name, X, y, rounds)


def _fit_large(name, X, y, rounds):
    n, gamma = 32_000, 1 / X.shape[1]
    for s in (100, 400, 1000, 2000, 4000):
        options = dict(n_components=s, gamma=gamma, random_state=0)
        squared = dict(loss="squared", alpha=0.1 / n, **options)
        models = {
            "scikit-learn": make_pipeline(Nystroem(**options), Ridge(alpha=0.1)),
            "ours": SketchedKernelRegressor(**squared),
            "float32": SketchedKernelRegressor(**squared),
            "p = 20/n": SketchedKernelRegressor(p=20 / n, **squared),
        }
        points = {label: X for label in models} | {"float32": X.astype(np.float32)}
        times = [
            [least(1, model.fit, points[label][:n], y[:n])[0]
             for label, model in models.items()]
            for _ in range(rounds if s < 4000 else 2)
        ]  # fmt: skip
        seconds = np.min(times, axis=0)
        parts = (
            f"{label} {time:.3f} s ({time / seconds[0]:.2f}), R² "
            f"{model.score(points[label][n:], y[n:]):.4f}"
            for (label, model), time in zip(models.items(), seconds, strict=True)
        )
        print(f"{name}, s = {s}: {'; '.join(parts)}", flush=True)


LARGE_LOSSES = {
    "squared": dict(loss="squared"),
    "huber": dict(loss="huber"),
    "epsilon_insensitive": dict(loss="epsilon_insensitive"),
    "pinball 0.5": dict(loss="pinball"),
    "pinball 0.9": dict(loss="pinball", quantile=0.9),
}


def large_losses(rounds):
    """Fits of large sketches by loss, certified to 1e-6, as multiples of "squared"."""
    for name, X, y in _large_data():
        for s in (1000, 2000):
            times = [
                [
                    least(
                        1,
                        SketchedKernelRegressor(
                            n_components=s, gamma=1 / X.shape[1], alpha=0.1 / 32_000,
                            random_state=0, **options,
                        ).fit,
                        X[:32_000],
                        y[:32_000],
                    )[0]
                    for options in LARGE_LOSSES.values()
                ]
                for _ in range(rounds)
            ]  # fmt: skip
            seconds = np.min(times, axis=0)
            parts = (
                f"{label} {time:.2f} s ({time / seconds[0]:.2f})"
                for label, time in zip(LARGE_LOSSES, seconds, strict=True)
            )
            print(f"{name}, s = {s}: {'; '.join(parts)}", flush=True)


def large_search(rounds):
    """5 gammas × 10 alphas × 5 folds, n = 32,000, s = 1,000, squared loss."""
    name, X, y = next(_large_data())
    model = SketchedKernelRegressorCV(
        loss="squared", alphas=ALPHAS, gammas=MULTIPLES / X.shape[1], cv=5,
        n_components=1000, random_state=0,
    )  # fmt: skip
    seconds, _ = least(1, model.fit, X[:32_000], y[:32_000])
    print(f"{name}, search: {seconds:.1f} s, best {model.best_params_}")


def storage(rounds):
    """What is kept of the features, n = 32,000, s = 1,000: time and peak memory."""
    name, X, y = next(_large_data())
    for label, options in LARGE_LOSSES.items():
        for kept in ("auto", "float32", "recomputed"):
            model = SketchedKernelRegressor(
                n_components=1000, gamma=1 / X.shape[1], alpha=0.1 / 32_000,
                random_state=0, feature_storage=kept, **options,
            )  # fmt: skip
            seconds, _ = least(1, model.fit, X[:32_000], y[:32_000])
            tracemalloc.start()
            model.fit(X[:32_000], y[:32_000])
            peak = tracemalloc.get_traced_memory()[1] / (32_000 * 1000 * 8)
            tracemalloc.stop()
            print(
                f"{name}, {label}, {kept}: {seconds:.2f} s, {peak:.2f} of n·s·8 bytes, "
                f"gap {model.dual_gap_:.1e}",
                flush=True,
            )


def compression(rounds):
    """A fifth of the landmarks: time of predictions, test error, and the bound."""
    for name in ("toy", "california"):
        X, X_test, y, y_test = split(name)
        X_many = np.tile(X_test, (100_000 // len(X_test) + 1, 1))
        for kernel, s in (("rbf", 100), ("laplacian", 100), ("rbf", 400)):
            model = SketchedKernelRegressor(
                kernel=kernel, n_components=s, p=20 / len(X), random_state=0
            ).fit(X, y)
            k = len(model.landmarks_) // 5
            seconds, small = least(1, model.compress, k)
            both = model, small
            errors = [np.mean((one.predict(X_test) - y_test) ** 2) for one in both]
            # in turns: a noisy machine is as noisy for both
            times = [
                [least(1, one.predict, X_many)[0] for one in both]
                for _ in range(rounds)
            ]
            times = np.min(times, axis=0)
            print(
                f"{name}, {kernel}, s = {s}: {len(model.landmarks_)} -> {k} landmarks "
                f"in {seconds:.2f} s, predictions {times[0] / times[1]:.2f} times as "
                f"fast, squared error {errors[1] / errors[0]:.4f} of before, change "
                f"rms {small.compression_.rms:.2g}, bound "
                f"{small.compression_.bound:.2g}",
                flush=True,
            )


if __name__ == "__main__":
    run_parts(
        dict(
            overhead=overhead,
            defaults=defaults,
            search=search,
            rows=rows,
            california=california,
            quantiles=quantiles,
            sparsity=sparsity,
            large=large,
            large_losses=large_losses,
            large_search=large_search,
            storage=storage,
            compression=compression,
        ),
        __doc__,
    )
