"""Intervals and probabilities: do they keep their word, and how sharp are they?

    python bench/intervals.py coverage                   20 splits, an hour
    python bench/intervals.py coverage --sets diabetes,abalone --splits 5
    python bench/intervals.py points cost classes crps   some minutes each

coverage  share of test targets in intervals of 80, 90 and 95 %, and mean width in
          standard deviations of y: calibrated levels, levels as they were fitted, a
          constant width around a regression, and MAPIE's conformalised quantile
          regression around LightGBM (stopped early), with the same held-out share
points    the same at 90 % without a calibration, by the number of training points
cost      seconds of calibrations, as multiples of the fit without one
classes   log-loss, Brier score, expected calibration error and seconds, beside
          scikit-learn's SVC(probability=True) and LightGBM
crps      of nine levels, with and without a calibration, beside LightGBM's

Splits hold out a fifth for testing; features and targets are standardised.
"""

import argparse
import time
import warnings
from collections import defaultdict

import numpy as np
from accuracy import get_points, split, standardise
from scipy.special import xlogy
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

import pskernels as psk
from pskernels.estimators import (
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedQuantileRegressor,
)

SETS = ("diabetes", "abalone", "california", "bike_hour", "kin8nm")
COVERAGES = (0.8, 0.9, 0.95)
LEVELS = (0.025, 0.05, 0.1, 0.5, 0.9, 0.95, 0.975)
NINE = tuple(np.round(np.arange(0.1, 0.95, 0.1), 1).tolist())
HELD_OUT = 0.25


def levels(seed, **options):
    return SketchedQuantileRegressor(
        quantiles=LEVELS, metric="learn", tol=1e-3, random_state=seed, **options
    )


def by_levels(X, y, X_test, seed):
    model = levels(seed, calibration="split").fit(X, y)
    return [model.predict_interval(X_test, c) for c in COVERAGES]


def as_fitted(X, y, X_test, seed):
    model = levels(seed).fit(X, y)
    return [model.predict_interval(X_test, c) for c in COVERAGES]


def by_folds(X, y, X_test, seed):
    model = levels(seed, calibration="cv+").fit(X, y)
    return [model.predict_interval(X_test, c) for c in COVERAGES]


def by_regression(X, y, X_test, seed):
    model = SketchedKernelRegressor(
        metric="learn", calibration="split", tol=1e-3, random_state=seed
    ).fit(X, y)
    return [model.predict_interval(X_test, c) for c in COVERAGES]


def by_mapie(X, y, X_test, seed):
    from lightgbm import LGBMRegressor, early_stopping
    from mapie.regression import ConformalizedQuantileRegressor

    X, X_held, y, y_held = train_test_split(X, y, test_size=HELD_OUT, random_state=seed)
    X_fit, X_stop, y_fit, y_stop = train_test_split(
        X, y, test_size=0.15, random_state=seed
    )
    fitted = {}

    def boost(level):
        if level not in fitted:
            fitted[level] = LGBMRegressor(
                objective="quantile", alpha=level, n_estimators=2000,
                learning_rate=0.05, num_leaves=15, random_state=seed, verbose=-1,
                n_jobs=2,
            ).fit(
                X_fit, y_fit, eval_set=[(X_stop, y_stop)],
                callbacks=[early_stopping(50, verbose=False)],
            )  # fmt: skip
        return fitted[level]

    found = []
    for coverage in COVERAGES:
        ends = [(1 - coverage) / 2, (1 + coverage) / 2, 0.5]
        machine = ConformalizedQuantileRegressor(
            [boost(round(level, 6)) for level in ends],
            confidence_level=coverage,
            prefit=True,
        ).conformalize(X_held, y_held)
        found.append(machine.predict_interval(X_test)[1][:, :, 0])
    return found


METHODS = {
    "levels": by_levels,
    "folds": by_folds,
    "as fitted": as_fitted,
    "constant": by_regression,
    "MAPIE": by_mapie,
}


def run_coverage(options):
    print(f"{'':<34}" + "".join(f"{c:>17.0%}" for c in COVERAGES))
    for data in options.sets:
        results, seconds = defaultdict(list), defaultdict(float)
        for seed in range(options.splits):
            X, y, X_test, y_test = split(data, seed, options.rows)
            for name in options.methods:
                began = time.perf_counter()
                intervals = METHODS[name](X, y, X_test, seed)
                seconds[name] += time.perf_counter() - began
                results[name].append(
                    [(psk.coverage(y_test, *i.T), np.diff(i).mean()) for i in intervals]
                )
        for name, found in results.items():
            found = np.array(found)
            mean, error = found.mean(axis=0), found.std(axis=0) / np.sqrt(len(found))
            cells = "".join(
                f"  {share:6.1%} {width:8.3f}" for share, width in mean.tolist()
            )
            label = f"{data:<11}{name:<11}{seconds[name] / len(found):6.1f} s"
            print(f"{label:<32}{cells}   ± {error[:, 0].max():.1%}", flush=True)


def run_points(options):
    sizes = (100, 200, 400, 800, 1600, 3200)
    print("share in levels 5 % to 95 %, without a calibration")
    print(f"{'':<12}" + "".join(f"{n:>8}" for n in sizes))
    for data in options.sets:
        X, y = get_points(data)
        cells = []
        for n in sizes:
            if n + 80 > len(X):
                cells.append(f"{'':>8}")
                continue
            shares = []
            for seed in range(options.splits):
                order = np.random.default_rng(seed).permutation(len(X))
                train, test = order[:n], order[n : n + 2000]
                mean, scale = X[train].mean(axis=0), X[train].std(axis=0) + 1e-12
                model = SketchedQuantileRegressor(
                    quantiles=(0.05, 0.5, 0.95), random_state=seed, tol=1e-4
                ).fit((X[train] - mean) / scale, y[train])
                ends = model.predict_interval((X[test] - mean) / scale, 0.9)
                shares.append(psk.coverage(y[test], *ends.T))
            cells.append(f"{np.mean(shares):8.1%}")
        print(f"{data:<12}" + "".join(cells), flush=True)


def run_cost(options):
    """Time calibrations and fits in turns, the least of three."""
    X, y, *_ = split("california", 0, options.rows)
    print(f"california, {len(y)} points: multiples of a fit without a calibration")
    squares = SketchedKernelRegressor(loss="squared", random_state=0)
    for label, model, methods in (
        ("levels", SketchedQuantileRegressor(random_state=0), ("split", "cv+")),
        ("huber", SketchedKernelRegressor(random_state=0), ("split", "cv+")),
        ("squared", squares, ("split", "cv+", "jackknife+")),
    ):
        seconds = defaultdict(list)
        for _ in range(3):
            for method in (None, *methods):
                began = time.perf_counter()
                clone(model).set_params(calibration=method).fit(X, y)
                seconds[method].append(time.perf_counter() - began)
        plain = min(seconds.pop(None))
        cells = ", ".join(
            f"{name} {min(times) / plain:.2f}" for name, times in seconds.items()
        )
        print(f"{label:<10} {plain:.2f} s: {cells}", flush=True)


def calibration_error(probabilities, y, bins=15):
    """Average |share of right classes - confidence| over bins of confidence."""
    sure = probabilities.max(axis=1)
    hits = probabilities.argmax(axis=1) == y
    place = np.minimum((sure * bins).astype(int), bins - 1)
    return np.abs(np.bincount(place, hits - sure, bins)).sum() / len(y)


def class_sets(seed):
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(
        X / 16, y, test_size=0.3, random_state=seed, stratify=y
    )
    yield "digits", X, y, X_test, y_test
    for data, k in (("california", 3), ("protein_casp", 4)):
        # all others are test points: of 2,500, chance alone makes an error of 0.02
        X, y = get_points(data)
        X, X_test, y, y_test = train_test_split(
            X, y, train_size=10_000, random_state=seed
        )
        X, X_test = standardise(X, X_test)
        cuts = np.quantile(y, np.arange(1, k) / k)
        yield data, X, np.digitize(y, cuts), X_test, np.digitize(y_test, cuts)


def run_classes(options):
    from lightgbm import LGBMClassifier

    machines = {
        "logistic": SketchedKernelClassifier(loss="logistic"),
        "logistic, folds": SketchedKernelClassifier(loss="logistic", probability=True),
        "hinge, folds": SketchedKernelClassifier(probability=True),
        "SVC": SVC(probability=True),
        "LightGBM": LGBMClassifier(n_jobs=2, verbose=-1),
    }
    results = defaultdict(list)
    for seed in range(min(options.splits, 3)):
        for data, X, y, X_test, y_test in class_sets(seed):
            truth = np.eye(y.max() + 1)[y_test]
            for name, machine in machines.items():
                began = time.perf_counter()
                model = clone(machine).set_params(random_state=seed).fit(X, y)
                seconds = time.perf_counter() - began
                p = model.predict_proba(X_test)
                results[data, name].append(
                    [
                        -xlogy(truth, p).sum(axis=1).mean(),
                        ((p - truth) ** 2).sum(axis=1).mean(),
                        calibration_error(p, y_test),
                        np.mean(p.argmax(axis=1) == y_test),
                        seconds,
                    ]
                )
    print(f"{'':<30}{'log-loss':>9}{'Brier':>8}{'ECE':>8}{'right':>8}{'s':>8}")
    for (data, name), rows in results.items():
        loss, brier, error, right, seconds = np.mean(rows, axis=0)
        print(
            f"{data:<13}{name:<17}{loss:9.4f}{brier:8.4f}{error:8.4f}{right:8.4f}"
            f"{seconds:8.2f}"
        )


def run_crps(options):
    from lightgbm import LGBMRegressor

    for data in options.sets:
        scores = defaultdict(list)
        for seed in range(min(options.splits, 3)):
            X, y, X_test, y_test = split(data, seed, options.rows)
            for name in (None, "split"):
                model = SketchedQuantileRegressor(
                    quantiles=NINE, metric="learn", calibration=name, tol=1e-3,
                    random_state=seed,
                ).fit(X, y)  # fmt: skip
                law = model.predict_distribution(X_test)
                scores["ours" + (f", {name}" if name else "")].append(
                    psk.crps(y_test, law)
                )
            predicted = [
                LGBMRegressor(
                    objective="quantile", alpha=level, n_estimators=300, num_leaves=15,
                    learning_rate=0.05, random_state=seed, verbose=-1, n_jobs=2,
                ).fit(X, y).predict(X_test)
                for level in NINE
            ]  # fmt: skip
            law = psk.QuantileDistribution(NINE, np.stack(predicted, axis=1))
            scores["LightGBM"].append(psk.crps(y_test, law))
        cells = ", ".join(f"{name} {np.mean(v):.4f}" for name, v in scores.items())
        print(f"CRPS, {data}: {cells}", flush=True)


PARTS = {
    "coverage": run_coverage,
    "points": run_points,
    "cost": run_cost,
    "classes": run_classes,
    "crps": run_crps,
}


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def names(text):
        return tuple(text.split(","))

    add = parser.add_argument
    add("parts", nargs="*", help=f"some of {', '.join(PARTS)}; by default all")
    add("--sets", type=names, default=SETS, help="comma-separated")
    add("--methods", type=names, default=tuple(METHODS), help="of coverage")
    add("--splits", type=int, default=20)
    add("--rows", type=int, default=20_000, help="at most (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    options = parse()
    warnings.simplefilter("ignore")
    for part in options.parts or PARTS:
        print(f"\n== {part}", flush=True)
        PARTS[part](options)
