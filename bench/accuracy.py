"""Accuracy beside gradient boosting: regression, quantiles and classes.

    python bench/accuracy.py                                 three parts, many hours
    python bench/accuracy.py regression --results raw.jsonl  one, and keep the numbers
    python bench/accuracy.py regression --sets boston --methods auto,xRFM --splits 1
    python bench/accuracy.py tables plot --results raw.jsonl
    python bench/accuracy.py quarter --splits 1              xRFM's defaults, and ours

A fifth of the points of each set is for testing, and no choice sees it: methods that
have something to choose hold out 15 % of the others.  Features and targets have mean 0
and variance 1 on the training part, so that losses of all sets are in one unit.  rf1
and scm20d are left out: their test sets are official, and later in time.

Seconds are of fit and predict, and those of the processor count all threads of this
process.  All methods have one thread unless `--threads` says otherwise: threads of
OpenMP spin while they wait, and where another program had one of two cores, boosters
with two threads took fifty times as long as with one, and more.  Only the forest always
has two, whose threads do not wait for one another.
"""

import argparse
import importlib
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.datasets import load, standardise
from estimators import LEVELS, REGRESSION_SETS, scale_gamma
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import ParameterGrid, train_test_split
from threadpoolctl import threadpool_limits

import pskernels as psk

SETS = (*REGRESSION_SETS, "diabetes", "hidden")
MOST_ROWS = 20_000
MOST_ROWS_SVM = 10_000  # for training: time grows with the cube of them
MOST_ROWS_XRFM = 5_000  # for the choice of its settings: the same
HELD_OUT = 0.15
OURS = "pskernels.estimators"


class SkippedError(Exception):
    """Raised by a method that cannot be had here, or not for so many points."""


# -- data


def make_hidden(n=6_500, d=32):
    """Draw points of which 4 features matter: one length scale for all fits badly."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    f = np.sin(3 * X[:, 0]) * X[:, 1] + np.cos(2 * X[:, 2]) * X[:, 3]
    return X, f / f.std() + 0.1 * rng.normal(size=n)


def get_points(name):
    """Return X and y of a data set, by name."""
    if name == "hidden":
        return make_hidden()
    if name == "diabetes":
        return load_diabetes(return_X_y=True)
    data = load(name)
    return data["X"].astype(float), data["y"].astype(float)


def split(name, seed, rows):
    """Return X, y, X_test and y_test of at most so many rows, standardised."""
    X, y = get_points(name)
    kept = np.random.default_rng(seed).permutation(len(X))[:rows]
    X, X_test, y, y_test = train_test_split(
        X[kept], y[kept], test_size=0.2, random_state=seed
    )
    X, X_test = standardise(X, X_test)
    y, y_test = standardise(y[:, None], y_test[:, None])
    return X, y.ravel(), X_test, y_test.ravel()


def cut_at_tertiles(y, y_test):
    """Turn targets into three classes, cut at the tertiles of the training part."""
    cuts = np.quantile(y, [1 / 3, 2 / 3])
    return np.digitize(y, cuts), np.digitize(y_test, cuts)


def hold_out(X, y, seed):
    """Return X_fit, X_held, y_fit and y_held of the training part."""
    return train_test_split(X, y, test_size=HELD_OUT, random_state=seed)


# -- boosting and forests


def boost(booster, settings, X, y, X_test, seed, **options):
    """Predict by LightGBM, stopped early, with the best setting on held-out rows."""
    import lightgbm

    X_fit, X_held, y_fit, y_held = hold_out(X, y, seed)
    fitted = [
        getattr(lightgbm, booster)(
            # 0 threads are those of OpenMP, which `measure` sets
            n_estimators=2000, n_jobs=0, random_state=seed, verbose=-1,
            **setting, **options,
        ).fit(
            X_fit, y_fit, eval_set=[(X_held, y_held)],
            callbacks=[lightgbm.early_stopping(50, verbose=False)],
        )
        for setting in ParameterGrid(settings)
    ]  # fmt: skip
    best = min(fitted, key=lambda one: min(one.best_score_["valid_0"].values()))
    return best.predict(X_test)


BOOST_SETTINGS = dict(num_leaves=[31, 127], learning_rate=[0.05, 0.1])
QUANTILE_SETTINGS = dict(num_leaves=[15, 31], learning_rate=[0.05])


def lightgbm_regression(X, y, X_test, seed):
    return boost("LGBMRegressor", BOOST_SETTINGS, X, y, X_test, seed)


def lightgbm_classes(X, y, X_test, seed):
    return boost("LGBMClassifier", BOOST_SETTINGS, X, y, X_test, seed)


def predict_levels(predict_level):
    """Predict level by level, sorted as ours are: that can only lower the loss."""
    return np.sort(np.column_stack([predict_level(level) for level in LEVELS]), axis=1)


def lightgbm_quantiles(X, y, X_test, seed):
    return predict_levels(
        lambda level: boost(
            "LGBMRegressor", QUANTILE_SETTINGS, X, y, X_test, seed,
            objective="quantile", alpha=level,
        )
    )  # fmt: skip


def boost_histograms(booster, X, y, X_test, seed, **options):
    """Predict by scikit-learn's histogram gradient boosting, stopped early."""
    from sklearn import ensemble

    model = getattr(ensemble, booster)(
        max_iter=2000, early_stopping=True, validation_fraction=HELD_OUT,
        random_state=seed, **options,
    )  # fmt: skip
    return model.fit(X, y).predict(X_test)


def histogram_regression(X, y, X_test, seed):
    return boost_histograms("HistGradientBoostingRegressor", X, y, X_test, seed)


def histogram_classes(X, y, X_test, seed):
    return boost_histograms("HistGradientBoostingClassifier", X, y, X_test, seed)


def histogram_quantiles(X, y, X_test, seed):
    return predict_levels(
        lambda level: boost_histograms(
            "HistGradientBoostingRegressor", X, y, X_test, seed,
            loss="quantile", quantile=level,
        )
    )  # fmt: skip


def forest(X, y, X_test, seed):
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(n_jobs=2, random_state=seed).fit(X, y).predict(X_test)


# -- other kernel machines


def fit_best(models, X, y, seed):
    """Fit all points by the model that does best on held-out rows."""
    X_fit, X_held, y_fit, y_held = hold_out(X, y, seed)
    best = max(
        models, key=lambda model: clone(model).fit(X_fit, y_fit).score(X_held, y_held)
    )
    return best.fit(X, y)


def support_vectors(machine, X, y, X_test, seed):
    """Predict by an exact SVM, with the best of four C."""
    from sklearn import svm

    if len(X) > MOST_ROWS_SVM:
        raise SkippedError(f"{len(X)} rows are more than {MOST_ROWS_SVM}")
    models = [getattr(svm, machine)(C=C, cache_size=1000) for C in (0.1, 1, 10, 100)]
    return fit_best(models, X, y, seed).predict(X_test)


def svr(X, y, X_test, seed):
    return support_vectors("SVR", X, y, X_test, seed)


def svc(X, y, X_test, seed):
    return support_vectors("SVC", X, y, X_test, seed)


def nystroem(X, y, X_test, seed):
    """Predict by Nystroem + Ridge, with the best of twelve pairs of gamma and alpha."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    models = [
        make_pipeline(
            Nystroem(
                n_components=500, gamma=multiple * scale_gamma(X), random_state=seed
            ),
            Ridge(alpha=alpha),
        )
        for multiple in (1 / 9, 1 / 3, 1)
        for alpha in (0.01, 0.1, 1, 10)
    ]
    return fit_best(models, X, y, seed).predict(X_test)


def fit_xrfm(X, y, X_held, y_held, seed, diag, reg):
    """Fit a recursive feature machine; held-out rows say which iteration is best."""
    from xrfm import xRFM

    settings = dict(
        model=dict(kernel="l2", bandwidth=10.0, diag=diag),
        fit=dict(reg=reg, iters=5, early_stop_rfm=False),
    )
    # It seeds the global generators, too: nobody else here draws from them.
    model = xRFM(
        settings, device="cpu", tuning_metric="mse", random_state=seed, verbose=False
    )
    return model.fit(X, y, X_held, y_held)


def plain_xrfm(X, y, X_test, seed):
    """Predict by xRFM as it is."""
    from xrfm import xRFM

    X_fit, X_held, y_fit, y_held = hold_out(X, y, seed)
    model = xRFM(device="cpu", random_state=seed, verbose=False)
    return model.fit(X_fit, y_fit, X_held, y_held).predict(X_test).ravel()


def xrfm(X, y, X_test, seed):
    """Predict by xRFM, with the best of four settings on some of the rows."""
    X_fit, X_held, y_fit, y_held = hold_out(X, y, seed)

    def held_out_error(setting):
        some = X_fit[:MOST_ROWS_XRFM], y_fit[:MOST_ROWS_XRFM]
        model = fit_xrfm(*some, X_held, y_held, seed, **setting)
        return np.mean((model.predict(X_held).ravel() - y_held) ** 2)

    settings = ParameterGrid(dict(diag=[False, True], reg=[1e-3, 1e-1]))
    best = min(settings, key=held_out_error)
    return fit_xrfm(X_fit, y_fit, X_held, y_held, seed, **best).predict(X_test).ravel()


# -- ours


def ours(name, **options):
    """Make a method of one of our estimators, by its name."""

    def predict(X, y, X_test, seed):
        model = construct(name, random_state=seed, **options)
        return model.fit(X, y).predict(X_test)

    return predict


def construct(name, **options):
    """Construct one of our estimators; older releases lack some, and some options."""
    estimators = importlib.import_module(OURS)
    if not hasattr(estimators, name):
        raise SkippedError(f"{OURS} has no {name}")
    try:
        return getattr(estimators, name)(**options)
    except TypeError as error:
        raise SkippedError(str(error)) from error


# -- parts: methods are (package that must be there, function), by the names in tables


def regression_methods(budget):
    sketched = dict(loss="squared", n_components=1000)
    learned = dict(metric="learn", kernel="auto", **sketched)
    return {
        "LightGBM": ("lightgbm", lightgbm_regression),
        "HistGB": ("sklearn.ensemble", histogram_regression),
        "forest": ("sklearn.ensemble", forest),
        "SVM": ("sklearn.svm", svr),
        "Nystroem": ("sklearn.kernel_approximation", nystroem),
        "xRFM": ("xrfm", xrfm),
        "sketched": (OURS, ours("SketchedKernelRegressor", **sketched)),
        "learned": (OURS, ours("SketchedKernelRegressor", **learned)),
        "auto": (OURS, ours("AutoKernelRegressor", budget=budget)),
    }


def quantile_methods(budget):
    levels = dict(quantiles=LEVELS)
    return {
        "LightGBM": ("lightgbm", lightgbm_quantiles),
        "HistGB": ("sklearn.ensemble", histogram_quantiles),
        "sketched": (OURS, ours("SketchedQuantileRegressor", **levels)),
        "auto": (OURS, ours("AutoQuantileRegressor", budget=budget, **levels)),
    }


def class_methods(budget):
    return {
        "LightGBM": ("lightgbm", lightgbm_classes),
        "HistGB": ("sklearn.ensemble", histogram_classes),
        "SVM": ("sklearn.svm", svc),
        "sketched": (OURS, ours("SketchedKernelClassifier")),
        "auto": (OURS, ours("AutoKernelClassifier", budget=budget)),
    }


def mean_pinball_loss(y, predicted):
    """Average the pinball loss over levels and points."""
    return psk.pinball_loss(y, predicted, LEVELS)


class Part(NamedTuple):
    """What is compared, and how."""

    title: str
    methods: Callable  # of the budget
    score: Callable
    prepare: Callable = lambda y, y_test: (y, y_test)  # targets


PARTS = dict(
    regression=Part("R² of the test points", regression_methods, r2_score),
    quantiles=Part(
        "mean pinball loss of nine levels", quantile_methods, mean_pinball_loss
    ),
    classes=Part(
        "accuracy, three classes", class_methods, accuracy_score, cut_at_tertiles
    ),
)
METHODS = tuple(regression_methods(None))  # the other parts have some of these


def run_part(name, options):
    """Run a part, a line for each fit; return the results."""
    part, results = PARTS[name], []
    methods = part.methods(options.budget)
    for data in options.sets:
        for seed in range(options.first, options.first + options.splits):
            X, y, X_test, y_test = split(data, seed, options.rows)
            y, y_test = part.prepare(y, y_test)
            for method in (one for one in methods if one in options.methods):
                label = f"{data:<13} {method:<9} split {seed}:"
                try:
                    predicted, seconds = measure(
                        *methods[method], (X, y, X_test, seed), options.threads
                    )
                except SkippedError as reason:
                    print(label, "skipped,", reason, flush=True)
                    continue
                result = dict(part=name, set=data, method=method, split=seed)
                result |= dict(score=float(part.score(y_test, predicted)), **seconds)
                results.append(result)
                print(label, describe(result), flush=True)
                append(result, options)
    return results


def measure(package, method, arguments, threads):
    """Call a method; return its predictions, and its seconds."""
    try:
        importlib.import_module(package)  # not timed
    except ImportError as error:
        raise SkippedError(str(error)) from error
    time.sleep(0.1)  # BLAS workers of the method before may still spin
    with warnings.catch_warnings(), threadpool_limits(threads):
        if package != OURS:
            warnings.simplefilter("ignore")
        wall, cpu = time.perf_counter(), time.process_time()
        predicted = method(*arguments)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return predicted, dict(wall=wall, cpu=cpu)


def describe(result):
    return (
        f"{result['score']:.4f} in {result['wall']:.1f} s, {result['cpu']:.1f} s of "
        "the processor"
    )


def quarter(options):
    """Fit xRFM by its defaults, and ours in a quarter of its seconds."""
    for data in options.sets:
        for seed in range(options.first, options.first + options.splits):
            X, y, X_test, y_test = split(data, seed, options.rows)
            theirs, seconds = measure(
                "xrfm", plain_xrfm, (X, y, X_test, seed), options.threads
            )
            budget = seconds["cpu"] / 4
            auto = ours("AutoKernelRegressor", budget=budget)
            found, own = measure(OURS, auto, (X, y, X_test, seed), options.threads)
            both = [(theirs, seconds["cpu"]), (found, own["cpu"])]
            scores = [f"{r2_score(y_test, u):.4f} in {cpu:.1f} s" for u, cpu in both]
            share = own["cpu"] / seconds["cpu"]
            label = f"{data:<13} split {seed}:"
            print(
                f"{label} xRFM {scores[0]}, ours {scores[1]}, {share:.2f}", flush=True
            )


# -- results


def append(result, options):
    """Append a result to the file, if there is one, and what it was run with."""
    if options.results is not None:
        given = {name: getattr(options, name) for name in ("rows", "budget", "threads")}
        with options.results.open("a") as file:
            file.write(json.dumps(result | given) + "\n")


def read(path):
    """Read results; of fits that were repeated the last count."""
    latest = {}
    for line in path.read_text().splitlines():
        result = json.loads(line)
        latest[tuple(result[key] for key in ("part", "set", "method", "split"))] = (
            result
        )
    return list(latest.values())


def average(results, key):
    """Return the mean over splits of a number, by set and method."""
    values = defaultdict(list)
    for result in results:
        values[result["set"], result["method"]].append(result[key])
    return {cell: float(np.mean(found)) for cell, found in values.items()}


def in_order(names, results, key):
    """Return those of the names that results have."""
    return [name for name in names if any(name == result[key] for result in results)]


def print_table(part, results):
    """Print scores by set and method, and seconds of the processor below them."""
    sets, methods = in_order(SETS, results, "set"), in_order(METHODS, results, "method")
    print(f"\n{PARTS[part].title}; below: seconds of the processor")
    print(" " * 14 + "".join(f"{method:>10}" for method in methods))
    scores, seconds = (average(results, key) for key in ("score", "cpu"))
    for numbers in (scores, seconds):
        for method in methods:
            found = [
                numbers[data, method] for data in sets if (data, method) in numbers
            ]
            if len(found) == len(sets):  # else it would be a mean of other sets
                numbers["mean", method] = float(np.mean(found))
    for data in (*sets, "mean"):
        print_row(data, (scores.get((data, method)) for method in methods), ".4f")
        print_row("", (seconds.get((data, method)) for method in methods), ".1f")


def print_row(label, numbers, form):
    """Print a row of a table; None where there is no number."""
    cells = ("-" if number is None else format(number, form) for number in numbers)
    print(f"{label:<14}" + "".join(f"{cell:>10}" for cell in cells))


def print_tables(options):
    """Print the tables of the results on file."""
    results = read(options.results)
    for part in in_order(PARTS, results, "part"):
        print_table(part, [result for result in results if result["part"] == part])


def plot(options):
    """Draw the error of regression against seconds of the processor, of all sets."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    results = [one for one in read(options.results) if one["part"] == "regression"]
    scores, seconds = (average(results, key) for key in ("score", "cpu"))
    colours = {method: f"C{k}" for k, method in enumerate(METHODS)}
    markers = dict(zip(SETS, "osD^v<P*", strict=True))
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for (data, method), score in scores.items():
        axes.loglog(
            seconds[data, method], 1 - score, markers[data], color=colours[method],
            markersize=8, markeredgecolor="white", markeredgewidth=0.5,
        )  # fmt: skip
    axes.set(xlabel="seconds of the processor, fit and predict", ylabel="1 - R²")
    axes.grid(alpha=0.3)
    methods = in_order(METHODS, results, "method")
    add_legends(
        figure,
        methods=[dict(label=one, marker="s", color=colours[one]) for one in methods],
        sets=[
            dict(label=one, marker=markers[one], color="black")
            for one in in_order(SETS, results, "set")
        ],
    )
    figure.savefig(options.figure, dpi=120)
    print(f"written: {options.figure}")


def add_legends(figure, **legends):
    """Add legends on the right, above one another, by their titles."""
    from matplotlib.lines import Line2D

    places = "outside right upper", "outside right lower"
    for (title, entries), place in zip(legends.items(), places, strict=True):
        handles = [Line2D([], [], linestyle="", **entry) for entry in entries]
        figure.legend(handles=handles, title=title, loc=place)


# -- command line


def names_of(allowed):
    """Make a type of comma-separated names for argparse."""

    def parse_names(text):
        unknown = set(text.split(",")) - set(allowed)
        if unknown:
            problem = f"unknown: {', '.join(unknown)}; there are {', '.join(allowed)}"
            raise argparse.ArgumentTypeError(problem)
        return tuple(text.split(","))

    return parse_names


def parse(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = (*PARTS, "quarter", "tables", "plot")
    add = parser.add_argument
    add("parts", nargs="*", metavar="part", help=f"some of {', '.join(parts)}")
    add("--sets", type=names_of(SETS), default=SETS, help="comma-separated")
    add("--methods", type=names_of(METHODS), default=METHODS, help="comma-separated")
    add("--splits", type=int, default=5, help="how many (%(default)s)")
    add("--first", type=int, default=0, help="seed of the first one (%(default)s)")
    add("--rows", type=int, default=MOST_ROWS, help="at most (%(default)s)")
    add("--budget", default="30 s", help="of our searches (%(default)s)")
    add("--threads", type=int, default=1, help="of each method (%(default)s)")
    add("--results", type=Path, help="file that raw results are added to, JSON lines")
    add("--figure", type=Path, default=Path("accuracy.png"), help="file for the plot")
    options = parser.parse_args(arguments)
    options.parts = options.parts or list(PARTS)
    if not set(options.parts) <= set(parts):
        parser.error(f"name some of {', '.join(parts)}")
    if {"tables", "plot"} & set(options.parts) and options.results is None:
        parser.error("tables and plot read the file that --results names")
    return options


def main(options):
    """Run the parts that the command line names."""
    others = dict(quarter=quarter, tables=print_tables, plot=plot)
    for name in options.parts:
        if name in others:
            print(f"\n== {name}: {others[name].__doc__}")
            others[name](options)
        else:
            print(f"\n== {name}: {PARTS[name].title}")
            results = run_part(name, options)
            if results:
                print_table(name, results)


if __name__ == "__main__":
    main(parse())
