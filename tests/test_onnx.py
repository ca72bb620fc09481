"""ONNX graphs of fitted machines, run by onnxruntime."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pskernels.estimators import (
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedQuantileRegressor,
)

skl2onnx = pytest.importorskip("skl2onnx", reason="the extra onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="to run graphs")
pytest.importorskip("pskernels.onnx")  # which registers the machines

OPTIONS = dict(n_components=20, p=0.02, random_state=0)


def make_data(dtype=np.float32):
    rng = np.random.default_rng(0)
    X = (3 * rng.normal(size=(600, 4)) + 50).astype(dtype)
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=600)
    return X, y


def run(model, X, **options):
    graph = skl2onnx.to_onnx(model, X[:1], **options).SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})


def agree(found, expected):
    assert found.dtype == expected.dtype
    rtol = 1e-5 if found.dtype == np.float32 else 1e-10
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_regressors(kernel, dtype):
    X, y = make_data(dtype)
    model = SketchedKernelRegressor(kernel=kernel, **OPTIONS).fit(X, y).compress(60)
    (found,) = run(model, X)
    agree(found[:, 0], model.predict(X))


@pytest.mark.parametrize("metric", ["learn", np.eye(4)[:2] + 0.1])
def test_metrics(metric):
    X, y = make_data(np.float64)
    model = SketchedKernelRegressor(metric=metric, **OPTIONS).fit(X, y)
    (found,) = run(model, X)
    agree(found[:, 0], model.predict(X))


def test_several_outputs_and_a_pipeline():
    X, y = make_data()
    model = make_pipeline(
        StandardScaler(), SketchedKernelRegressor(loss="squared", **OPTIONS)
    ).fit(X, np.stack([y, -(y**2)], axis=1))
    (found,) = run(model, X)
    agree(found, model.predict(X).astype(np.float32))


@pytest.mark.parametrize("noncrossing", ["sort", "none"])
def test_quantiles(noncrossing):
    X, y = make_data()
    levels = [0.1, 0.3, 0.5, 0.7, 0.9]
    model = SketchedQuantileRegressor(
        quantiles=levels, noncrossing=noncrossing, **OPTIONS
    ).fit(X, y)
    far = (X + 100 * (np.arange(600) % 2)[:, None]).astype(np.float32)
    (found,) = run(model, far)
    agree(found, model.predict(far))


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize(
    "classes",
    [[0, 1], [3, 7, 9], [1.0, 2.0], ["no", "yes"], ["a", "bb", "c"], [False, True]],
)
def test_classifiers(classes, loss):
    X, y = make_data()
    labels = np.array(classes)[
        np.digitize(y, np.quantile(y, [0.5, 0.8])) % len(classes)
    ]
    model = SketchedKernelClassifier(loss=loss, **OPTIONS).fit(X, labels)
    model = model.compress(50)
    label, scores = run(model, X, options={"zipmap": False})
    assert (label == model.predict(X)).all()
    if loss == "logistic":
        agree(scores, model.predict_proba(X).astype(np.float32))
    else:
        decisions = model.decision_function(X)
        if len(classes) == 2:
            decisions = np.stack([-decisions, decisions], axis=1)
        agree(scores, decisions.astype(np.float32))


def test_probabilities_by_name():
    X, y = make_data()
    labels = np.where(y > y.mean(), "up", "down")
    model = SketchedKernelClassifier(loss="logistic", **OPTIONS).fit(X, labels)
    _, scores = run(model, X[:5])
    assert [set(row) for row in scores] == [{"up", "down"}] * 5


def test_probabilities_far_away():
    """σ is 0 for all classes there, but not their logarithms."""
    X, y = make_data(np.float64)
    labels = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    model = SketchedKernelClassifier(loss="logistic", alpha=1e-9, **OPTIONS)
    model.fit(X, labels)
    model.dual_coef_, model.intercept_ = 500 * model.dual_coef_, model.intercept_ - 2e3
    _, scores = run(model, X, options={"zipmap": False}, target_opset=15)
    np.testing.assert_allclose(scores, model.predict_proba(X), rtol=1e-6, atol=1e-9)
    assert np.isfinite(scores).all()


def test_what_cannot_be_exported():
    X, y = make_data()
    with pytest.raises(NotFittedError):
        skl2onnx.to_onnx(SketchedKernelRegressor(), X[:1])
    labels = np.where(y > y.mean(), 2**63 + 5, 1).astype(np.uint64)
    model = SketchedKernelClassifier(**OPTIONS).fit(X, labels)
    with pytest.raises(ValueError, match="labels"):
        skl2onnx.to_onnx(model, X[:1])
    model = SketchedKernelRegressor(kernel="matern32", **OPTIONS).fit(X, y)
    with pytest.raises(ValueError, match="rbf"):
        skl2onnx.to_onnx(model, X[:1])
