"""Displays of estimators show what the estimators have."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_estimators import make_data

from pskernels.estimators import (
    ConvergenceDisplay,
    CVResultsDisplay,
    MetricDisplay,
    PITDisplay,
    QuantileDisplay,
    ReliabilityDisplay,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def test_quantiles_along_a_feature(rng):
    import pandas as pd

    X, y = make_data(rng)
    levels = [0.1, 0.5, 0.9]
    model = SketchedQuantileRegressor(quantiles=levels, random_state=0).fit(X, y)
    display = QuantileDisplay.from_estimator(model, X, y, feature=1)
    assert len(display.lines_) == 3
    assert display.ax_.get_xlabel() == "feature 1"
    at, drawn = display.lines_[2].get_data()
    assert (at[0], at[-1]) == (X[:, 1].min(), X[:, 1].max())
    row = np.median(X, axis=0)
    row[1] = at[77]
    assert drawn[77] == pytest.approx(model.predict(row[None])[0, 2])
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = SketchedQuantileRegressor(quantiles=0.5, random_state=0).fit(frame, y)
    _, ax = pyplot.subplots()
    display = QuantileDisplay.from_estimator(named, frame, feature="c", ax=ax)
    assert display.ax_ is ax and ax.get_xlabel() == "c" and len(display.lines_) == 1
    with pytest.raises(ValueError, match="feature 'd' is not known; the fit had a, b"):
        QuantileDisplay.from_estimator(named, frame, feature="d")
    with pytest.raises(ValueError, match="feature must be from 0 to 2, got 3"):
        QuantileDisplay.from_estimator(model, X, feature=3)


def test_pipelines_and_order_of_columns(rng):
    import pandas as pd
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = make_data(rng)
    frame = pd.DataFrame(X * [1, 10, 100], columns=["a", "b", "c"])
    model = make_pipeline(StandardScaler(), SketchedQuantileRegressor(random_state=0))
    model.fit(frame, y)
    display = QuantileDisplay.from_estimator(model, frame[["c", "b", "a"]], feature="a")
    assert abs(display.values).max() < 1.1
    assert len(ConvergenceDisplay.from_estimator(model).lines_) == 1
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SketchedKernelRegressor(loss="squared")),
        dict(sketchedkernelregressor__alpha=[1e-3, 1e-2]),
        cv=2,
    ).fit(frame, y)
    (line,) = CVResultsDisplay.from_estimator(search).lines_
    np.testing.assert_allclose(line.get_xdata(), [1e-3, 1e-2])


def test_scores_of_a_search(rng):
    X, y = make_data(rng)
    grid = dict(alpha=[1e-4, 1e-3, 1e-2], gamma=[0.5, 2.0])
    ours = SketchedKernelRegressorCV(
        loss="squared", alphas=grid["alpha"], gammas=grid["gamma"], cv=3, random_state=0
    ).fit(X, y)
    theirs = GridSearchCV(
        SketchedKernelRegressor(loss="squared", random_state=0), grid, cv=3
    ).fit(X, y)
    for search in (ours, theirs):
        display = CVResultsDisplay.from_estimator(search)
        labels = [line.get_label() for line in display.lines_]
        assert labels == ["gamma=0.5", "gamma=2"]
        at, scores = display.lines_[1].get_data()
        np.testing.assert_allclose(at, grid["alpha"])
        chosen = ours.cv_results_["param_gamma"] == 2.0
        np.testing.assert_allclose(scores, ours.cv_results_["mean_test_score"][chosen])
    with pytest.raises(
        ValueError, match="the search must have alphas that are numbers"
    ):
        other = GridSearchCV(SketchedKernelRegressor(), dict(gamma=[1.0]), cv=2)
        CVResultsDisplay.from_estimator(other.fit(X, y))


@pytest.mark.parametrize("x", ["seconds", "iterations"])
def test_convergence(x, rng):
    X, y = make_data(rng)
    models = [
        SketchedKernelRegressor(loss=loss, random_state=0).fit(X, y)
        for loss in ("huber", "absolute")
    ]
    display = ConvergenceDisplay.from_estimator(*models, x=x)
    assert len(display.lines_) == 2
    assert display.ax_.get_xlabel() == x
    gaps = display.lines_[1].get_ydata()
    assert gaps[-1] == pytest.approx(models[1].dual_gap_, rel=1e-3)
    with pytest.raises(ValueError, match="x must be one of"):
        ConvergenceDisplay.from_estimator(*models, x="hours")
    with pytest.raises(ValueError, match="at least one estimator"):
        ConvergenceDisplay.from_estimator()


def test_importances_by_round(rng):
    X = rng.normal(size=(800, 12))
    y = np.sin(2 * X[:, 3]) * X[:, 5]
    model = SketchedKernelRegressor(metric="learn", random_state=0).fit(X, y)
    display = MetricDisplay.from_estimator(model, max_features=4)
    rounds = [one for one in model.rounds_ if one.number is not None]
    assert len(display.lines_) == 4 and len(display.losses) == len(rounds)
    assert set(display.names[:2]) == {"feature 3", "feature 5"}
    drawn = display.lines_[0].get_ydata()
    number = int(display.names[0].split()[1])
    assert drawn[-1] == rounds[-1].importances[number]
    assert "round of rbf" in display.ax_.get_xlabel()
    with pytest.raises(ValueError, match="fit it with metric='learn'"):
        MetricDisplay.from_estimator(SketchedKernelRegressor(random_state=0).fit(X, y))


def test_calibration_of_distributions(rng):
    X, y = make_data(rng, n=1500)
    levels = np.linspace(0.1, 0.9, 9)
    model = SketchedQuantileRegressor(
        quantiles=levels, calibration="split", random_state=0
    )
    pipeline = make_pipeline(StandardScaler(), model).fit(X[:1000], y[:1000])
    display = PITDisplay.from_estimator(pipeline, X[1000:], y[1000:], bins=5)
    heights = [bar.get_height() for bar in display.ax_.patches[:5]]
    assert np.mean(heights) == pytest.approx(1)
    law = model.predict_distribution(pipeline[:-1].transform(X[1000:]))
    np.testing.assert_allclose(display.values, law.cdf(y[1000:]))
    reliability = ReliabilityDisplay.from_estimator(pipeline, X[1000:], y[1000:])
    at, shares = reliability.line_.get_data()
    np.testing.assert_allclose(at, levels)
    np.testing.assert_allclose(shares, (y[1000:, None] <= law.values).mean(axis=0))
    with pytest.raises(TypeError, match="SketchedQuantileRegressor"):
        other = SketchedKernelRegressor(random_state=0).fit(X, y)
        PITDisplay.from_estimator(other, X, y)


@pytest.mark.parametrize(
    "display, options, message",
    [
        (QuantileDisplay, dict(X=np.zeros((3, 2))), "a fitted SketchedQuantileRegr"),
        (CVResultsDisplay, {}, "a fitted search"),
        (ConvergenceDisplay, {}, "a fitted machine of pskernels"),
    ],
)
def test_other_estimators_are_refused_in_words(display, options, message):
    other = Ridge().fit(np.eye(2), [0.0, 1.0])
    with pytest.raises(TypeError, match=f"{message}.*got Ridge"):
        display.from_estimator(other, **options)


def test_outliers_do_not_stretch_quantiles(rng):
    X = rng.uniform(size=(400, 1))
    y = X[:, 0] + rng.normal(size=400)
    y[0] = 1e6
    model = SketchedQuantileRegressor(random_state=0).fit(X, y)
    display = QuantileDisplay.from_estimator(model, X, y)
    assert display.ax_.get_ylim()[1] < 100


def test_numbers_of_losses_are_short(rng):
    X = rng.normal(size=(100, 2))
    model = SketchedKernelRegressor(kappa=1.23456789, random_state=0).fit(X, X[:, 0])
    (label,) = ConvergenceDisplay.from_estimator(model).histories
    assert "kappa=1.23," in label.replace(")", ",")
