"""Models inside other libraries for intervals and probabilities, where installed."""

import re
import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

import pskernels as psk
from bench import peers
from pskernels.estimators import (
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedQuantileRegressor,
)


@pytest.fixture(scope="module")
def parts():
    """(X, y) for fitting, for calibration, and for testing."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(2400, 2))
    y = np.sin(3 * X[:, 0]) + (0.2 + np.abs(X[:, 1])) * rng.normal(size=2400)
    return [(X[rows], y[rows]) for rows in np.split(np.arange(2400), [800, 1400])]


def test_mapie_takes_fitted_levels(parts):
    regression = pytest.importorskip("mapie.regression")
    fit, held, (X, y) = parts
    # MAPIE wants a model for each of the levels 0.05, 0.95 and 0.5
    models = [
        SketchedQuantileRegressor(quantiles=level, random_state=0).fit(*fit)
        for level in (0.05, 0.95, 0.5)
    ]
    machine = regression.ConformalizedQuantileRegressor(
        models, confidence_level=0.9, prefit=True
    ).conformalize(*held)
    interval = machine.predict_interval(X)[1][:, :, 0]
    assert 0.86 < psk.coverage(y, *interval.T) < 0.94


def test_mapie_splits_around_a_fitted_regressor(parts):
    regression = pytest.importorskip("mapie.regression")
    fit, held, (X, y) = parts
    model = SketchedKernelRegressor(random_state=0).fit(*fit)
    machine = regression.SplitConformalRegressor(
        model, confidence_level=0.9, prefit=True
    ).conformalize(*held)
    interval = machine.predict_interval(X)[1][:, :, 0]
    assert 0.86 < psk.coverage(y, *interval.T) < 0.94


def test_our_split_is_that_of_mapie(parts):
    """Absolute scores of the same held-out points give the same intervals."""
    regression = pytest.importorskip("mapie.regression")
    (X, y), _, (X_new, _) = parts
    model = SketchedKernelRegressor(calibration="split", random_state=0).fit(X, y)
    held = np.isin(y, model.calibration_.y)
    machine = regression.SplitConformalRegressor(
        model, confidence_level=0.9, prefit=True
    ).conformalize(X[held], y[held])
    np.testing.assert_allclose(
        model.predict_interval(X_new, 0.9),
        machine.predict_interval(X_new)[1][:, :, 0],
        atol=1e-9,
    )


def test_crepes_wraps_a_fitted_regressor(parts):
    crepes = pytest.importorskip("crepes")
    fit, held, (X, y) = parts
    model = crepes.WrapRegressor(SketchedKernelRegressor(random_state=0).fit(*fit))
    model.calibrate(*held)
    interval = model.predict_int(X, confidence=0.9)
    assert 0.86 < psk.coverage(y, *interval.T) < 0.94


def test_skpro_regressors(parts):
    pytest.importorskip("skpro")
    pandas = pytest.importorskip("pandas")
    from pskernels.skpro import SkproQuantileRegressor

    (X, y), _, (X_new, y_new) = parts
    names = ["a", "b"]
    model = SkproQuantileRegressor(
        SketchedQuantileRegressor(calibration="split", random_state=0)
    )
    frame = pandas.DataFrame(X, columns=names)
    new = pandas.DataFrame(X_new, columns=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(frame, pandas.DataFrame({"y": y}))
        interval = model.predict_interval(new, coverage=0.9).to_numpy()
        quantiles = model.predict_quantiles(new, alpha=[0.1, 0.5, 0.9]).to_numpy()
    assert 0.84 < psk.coverage(y_new, *interval.T) < 0.96
    assert (np.diff(quantiles, axis=1) >= 0).all()
    law = model.estimator_.predict_distribution(new)
    np.testing.assert_allclose(quantiles, law.quantile([0.1, 0.5, 0.9]))
    np.testing.assert_allclose(model.predict(new)["y"], law.mean())


def test_probabilities_by_scikit_learn(parts):
    (X, y), (X_held, y_held), (X_new, y_new) = parts
    frozen = FrozenEstimator(SketchedKernelClassifier(random_state=0).fit(X, y > 0))
    model = CalibratedClassifierCV(frozen, method="sigmoid").fit(X_held, y_held > 0)
    folds = CalibratedClassifierCV(SketchedKernelClassifier(random_state=0), cv=3)
    for one in (model, folds.fit(X, y > 0)):
        p = one.predict_proba(X_new)[:, 1]
        for low in (0.1, 0.5, 0.8):
            chosen = (p >= low) & (p < low + 0.2)
            assert abs(p[chosen].mean() - (y_new > 0)[chosen].mean()) < 0.15


@pytest.mark.parametrize("task", peers.TASKS)
@pytest.mark.parametrize("method", ["pskernels", "SVR, SVC", "linear"])
def test_the_benchmark_of_peers_measures(method, task):
    found = peers.measure(method, task, "diabetes", 200)
    if method == "SVR, SVC" and task == "quantiles":
        assert found is None
        return
    assert min(found["fit"], found["predict"]) > 0
    assert 0 < found["error"] < 1


@pytest.mark.long
def test_a_method_has_a_process_of_its_own(capsys, tmp_path, monkeypatch):
    kept = {name: peers.METHODS[name] for name in ("linear", "KernelRidge", "KeOps")}
    monkeypatch.setattr(peers, "METHODS", kept)
    path = tmp_path / "peers.png"
    peers.main(["regression", "--sets", "diabetes", "--figure", str(path)])
    printed = capsys.readouterr().out
    assert "353 training points" in printed
    assert re.search(r"^KernelRidge +\d+\.\d+ +\d", printed, re.M)
    assert path.read_bytes().startswith(b"\x89PNG")
