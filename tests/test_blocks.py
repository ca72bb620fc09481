"""Predictions and features block by block: of sources, and into a given array."""

import tracemalloc

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from pskernels.estimators import (
    KernelSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedQuantileRegressor,
)
from pskernels.sources import Source

OPTIONS = dict(n_components=15, random_state=0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Make blocks of 13 rows of float64, and one number for each."""
    monkeypatch.setattr("pskernels.estimators.base.READ_BYTES", 13 * 4 * 8)


@pytest.fixture(name="X")
def make_points(rng):
    return rng.normal(size=(100, 3))


def methods(X):
    y = np.sin(X[:, 0]) + X[:, 1]
    labels = np.array(["a", "b", "c"])[np.digitize(y, [-0.5, 0.5])]
    regressor = SketchedKernelRegressor(**OPTIONS)
    yield regressor.fit(X, y).predict
    several = SketchedKernelRegressor(loss="squared", **OPTIONS)
    yield several.fit(X, np.stack([y, -y], axis=1)).predict
    levels = SketchedQuantileRegressor(quantiles=[0.1, 0.5, 0.9], **OPTIONS).fit(X, y)
    yield levels.predict
    yield levels.predict_interval
    yield SketchedQuantileRegressor(quantiles=0.5, **OPTIONS).fit(X, y).predict
    classifier = SketchedKernelClassifier(loss="logistic", **OPTIONS)
    for targets in (labels, y > 0):
        model = classifier.fit(X, targets)
        yield model.decision_function
        yield model.predict
        yield model.predict_proba
        yield model.predict_log_proba
    yield KernelSketch(**OPTIONS).fit(X).transform


def test_sources_and_given_arrays(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    forms = [
        str(tmp_path / "X.npy"),
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        Source(X, "X"),
        X,
        np.asfortranarray(X),
        X.tolist(),
    ]
    for method in methods(X):
        expected = method(X)
        for points in forms:
            out = np.empty_like(expected)
            assert method(points, out=out) is out
            found = method(points)
            assert found.dtype == expected.dtype
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
            else:
                np.testing.assert_array_equal(out, expected)
                np.testing.assert_array_equal(found, expected)


def test_a_memory_map_is_filled(X, tmp_path):
    model = SketchedKernelRegressor(**OPTIONS).fit(X, X[:, 0])
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float64, (100,))
    model.predict(X, out=out)
    out.flush()
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), model.predict(X))


def test_memory_does_not_depend_on_n(tmp_path, monkeypatch):
    monkeypatch.setattr("pskernels.estimators.base.READ_BYTES", 2**16)
    n = 100_000
    X = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", np.float32, (n, 5))
    X[:] = np.random.default_rng(0).normal(size=X.shape)
    model = SketchedKernelRegressor(memory_limit=2**22, **OPTIONS)
    model.fit(np.array(X[:500]), np.array(X[:500, 0]))
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float32, (n,))
    tracemalloc.start()
    model.predict(X, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20  # X has 2 MB, and its features 6


def test_results_that_are_wide_keep_to_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("pskernels.estimators.base.READ_BYTES", 2**24)
    X = np.random.default_rng(0).normal(size=(20_000, 2))
    model = KernelSketch(n_components=200, random_state=0, memory_limit=2**20)
    model.fit(X)
    shape = len(X), model.feature_map_.rank_
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.float64, shape)
    tracemalloc.start()
    model.transform(X, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 2**20  # and 32 MB of features
    np.testing.assert_allclose(out[-5:], model.transform(X[-5:]), atol=1e-9)


def test_precomputed_kernels(X):
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    model = SketchedKernelRegressor(kernel="precomputed", **OPTIONS).fit(K, X[:, 0])
    out = np.empty(len(X))
    np.testing.assert_array_equal(model.predict(K, out=out), model.predict(K))
    np.testing.assert_array_equal(model.predict(Source(K, "X")), out)


def test_what_does_not_fit(X):
    model = SketchedKernelRegressor(**OPTIONS).fit(X, X[:, 0])
    for out in (np.empty(99), np.empty((100, 1)), np.empty(100, np.float32)):
        with pytest.raises(ValueError, match="out must have shape"):
            model.predict(X, out=out)
    with pytest.raises(TypeError, match="out must be"):
        model.predict(X, out=[0.0] * 100)
    with pytest.raises(ValueError, match="share memory"):
        model.predict(X, out=X[:, 0])
    with pytest.raises(ValueError, match="3"):
        model.predict(Source(X[:, :2], "X"))
    bad = X.copy()
    bad[50, 1] = np.nan
    with pytest.raises(
        ValueError, match="rows 39 to 52, counted from 39: .*row 11, column 1"
    ):
        model.predict(Source(bad, "X"))
    with pytest.raises(NotFittedError):
        SketchedKernelRegressor().predict(Source(X, "X"))
    with pytest.raises(NotFittedError):
        KernelSketch().transform(X, out=np.empty((100, 15)))
