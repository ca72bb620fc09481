"""The scikit-learn estimators: its own checks, the functions beneath, input forms."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import d2_pinball_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

import pskernels as psk
from pskernels import _preparation
from pskernels._points import total_variance
from pskernels._robust import robust_size, tighten, weighted_median
from pskernels.estimators import (
    KernelSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
)

# The data of scikit-learn's checks have fewer points than the sketch has rows.
few_points = pytest.mark.filterwarnings("ignore:n_components=.* is more than")

REGRESSION_LOSSES = ("huber", "epsilon_insensitive", "pinball", "absolute", "squared")
CLASSIFICATION_LOSSES = ("hinge", "squared_hinge", "logistic")

ESTIMATORS = [
    KernelSketch(random_state=0),
    SketchedKernelRegressor(random_state=0),
    SketchedQuantileRegressor(random_state=0),
    SketchedKernelClassifier(random_state=0),
]


def make_data(rng, n=400, d=3, outputs=()):
    X = rng.uniform(-1, 1, size=(n, d))
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2
    noise = 0.1 * rng.normal(size=(n, *outputs))
    return X, (y[:, None] * np.arange(1, outputs[0] + 1) if outputs else y) + noise


# ---- scikit-learn's own checks ----


def expected_failures(estimator):
    levels = getattr(estimator, "quantiles", 0.5)
    if np.ndim(levels) == 0:
        return {}
    reason = "predictions have a column for each level, y has one"
    return {
        check: reason
        for check in (
            "check_regressors_train",
            "check_estimator_sparse_array",
            "check_estimator_sparse_matrix",
        )
    }


def checks(*estimators):
    """Run scikit-learn's own checks, whose points are few and odd."""
    marks = (
        few_points,
        pytest.mark.filterwarnings("ignore:the sketch has .* rows for good"),
        pytest.mark.filterwarnings("ignore:.*carries .* of the squared distance"),
        pytest.mark.filterwarnings("ignore::pskernels.ConvergenceWarning"),
        parametrize_with_checks(
            list(estimators), expected_failed_checks=expected_failures
        ),
    )

    def mark_all(test):
        for mark in marks:
            test = mark(test)
        return test

    return mark_all


@checks(
    KernelSketch(),
    SketchedKernelRegressor(),
    SketchedKernelRegressor(loss="squared"),
    SketchedQuantileRegressor(quantiles=0.5),
    SketchedKernelClassifier(),
    SketchedKernelClassifier(loss="logistic"),
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.long
@checks(
    KernelSketch(sketch="nystroem", n_components=5),
    SketchedKernelRegressor(loss="epsilon_insensitive"),
    SketchedQuantileRegressor(),
    SketchedQuantileRegressor(noncrossing="penalty"),
    SketchedKernelClassifier(loss="squared_hinge"),
)
def test_scikit_learn_checks_of_other_losses(estimator, check):
    check(estimator)


def test_the_package_does_not_import_scikit_learn():
    code = (
        "import sys, pskernels; "
        "assert not {'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-P", "-c", code], check=True)


# ---- the same as the functions beneath, and as exact machines ----


@pytest.mark.parametrize("loss", REGRESSION_LOSSES)
@pytest.mark.parametrize("outputs", [(), (1,), (3,)])
def test_regressor_is_the_machine_of_the_functions(loss, outputs, rng):
    X, y = make_data(rng, outputs=outputs)
    model = SketchedKernelRegressor(
        loss=loss,
        kappa=0.1,
        epsilon=0.1,
        n_components=30,
        p=0.05,
        gamma=0.7,
        alpha=1e-4,
        random_state=3,
    ).fit(X, y)
    feature_map = psk.FeatureMap(
        gamma=0.7, sketch=psk.PSparsified(30, 0.05), random_state=3
    )
    factored = np.size(y) == len(y) and loss in ("huber", "squared")
    fit = feature_map.fit_features if factored else feature_map.fit_transform
    result = psk.solve(fit(X), y, loss=model.loss_, alpha=1e-4)
    np.testing.assert_array_equal(model.coef_, result.coef)
    expected = feature_map.predict(X, result.coef, result.intercept)
    predicted = model.predict(X)
    assert predicted.shape == y.shape
    np.testing.assert_array_equal(predicted.ravel(), expected.ravel())
    assert (model.dual_gap_, model.n_iter_) == (result.dual_gap, result.n_iter)
    K = reference.rbf(X, model.landmarks_, 0.7)
    by_landmarks = K @ model.dual_coef_ + model.intercept_
    np.testing.assert_allclose(predicted.ravel(), by_landmarks.ravel(), atol=1e-9)


@few_points
def test_regressor_on_all_points_is_kernel_ridge(rng):
    X, y = make_data(rng, n=80)
    model = SketchedKernelRegressor(
        loss="squared", gamma=0.5, alpha=1e-3, fit_intercept=False
    ).fit(X, y)
    exact = KernelRidge(kernel="rbf", gamma=0.5, alpha=1e-3 * 80).fit(X, y)
    np.testing.assert_allclose(model.predict(X), exact.predict(X), atol=1e-9)
    np.testing.assert_allclose(model.predict(X + 1), exact.predict(X + 1), atol=1e-9)


@few_points
@pytest.mark.parametrize("multiclass", [False, True])
def test_machines_on_all_points_are_support_vector_machines(multiclass, rng):
    X, y = make_data(rng, n=90)
    alpha = 1e-2
    ours = SketchedKernelRegressor(
        loss="epsilon_insensitive", epsilon=0.1, gamma=0.5, alpha=alpha, tol=1e-9
    ).fit(X, y)
    svr = SVR(gamma=0.5, C=1 / (alpha * 90), epsilon=0.1, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), svr.predict(X), atol=1e-4)
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [0.2, 0.8])]
    if not multiclass:
        labels = np.where(labels == "low", "a", "b")
    classifier = SketchedKernelClassifier(gamma=0.5, alpha=alpha, tol=1e-9)
    classifier.fit(X, labels)
    decisions = classifier.decision_function(X).reshape(len(X), -1)
    for j, decision in enumerate(decisions.T):
        target = classifier.classes_[j if multiclass else 1]
        svc = SVC(gamma=0.5, C=1 / (alpha * 90), tol=1e-8).fit(X, labels == target)
        np.testing.assert_allclose(decision, svc.decision_function(X), atol=1e-4)


def test_levels_are_those_of_solve_quantiles(rng):
    X, y = make_data(rng)
    levels = [0.1, 0.5, 0.9]
    for noncrossing in ("sort", "penalty", "none"):
        model = SketchedQuantileRegressor(
            n_components=100,
            quantiles=levels,
            alpha=1e-3,
            noncrossing=noncrossing,
            random_state=0,
        ).fit(X, y)
        feature_map = psk.FeatureMap(random_state=0)
        result = psk.solve_quantiles(
            feature_map.fit_transform(X),
            y,
            quantiles=levels,
            alpha=1e-3,
            noncrossing=noncrossing,
        )
        expected = result.predict(feature_map.transform(X))
        np.testing.assert_allclose(model.predict(X), expected, atol=1e-9)
    M = psk.quantile_matrix(levels, gamma=3.0)
    coupled = SketchedQuantileRegressor(
        n_components=100, quantiles=levels, alpha=1e-3, output_matrix=M, random_state=0
    ).fit(X, y)
    result = psk.solve(
        psk.FeatureMap(random_state=0).fit_transform(X),
        y,
        loss=psk.Pinball(levels),
        alpha=1e-3,
        output_matrix=M,
    )
    np.testing.assert_allclose(coupled.coef_, result.coef, atol=1e-9)


def test_outputs_are_coupled_by_output_matrix(rng):
    X, y = make_data(rng, outputs=(2,))
    M = np.array([[1.0, 0.9], [0.9, 1.0]])
    model = SketchedKernelRegressor(
        n_components=100, loss="squared", alpha=1e-2, output_matrix=M, random_state=0
    ).fit(X, y)
    Z = psk.FeatureMap(random_state=0).fit_transform(X)
    expected = psk.solve(Z, y, alpha=1e-2, output_matrix=M)
    np.testing.assert_array_equal(model.coef_, expected.coef)


# ---- parameters that are set by the data ----


@pytest.mark.parametrize("loss", REGRESSION_LOSSES)
def test_defaults_do_not_depend_on_the_unit_of_y(loss, rng):
    X, y = make_data(rng)
    model = SketchedKernelRegressor(loss=loss, random_state=0, tol=1e-8)
    predicted = model.fit(X, y).predict(X)
    scaled = clone(model).fit(X, 1000 * y + 5).predict(X)
    np.testing.assert_allclose(1000 * predicted + 5, scaled, rtol=1e-3, atol=0.5)


def test_kappa_follows_the_size_of_the_errors(rng):
    X = rng.uniform(-1, 1, size=(3000, 2))
    y = np.sin(3 * X[:, 0]) + 0.2 * rng.normal(size=3000)
    y[::20] += 50.0  # outliers, which a robust estimate does not see
    model = SketchedKernelRegressor(random_state=0).fit(X, y)
    assert model.loss_.kappa == pytest.approx(1.345 * 0.2, rel=0.2)
    tube = SketchedKernelRegressor(loss="epsilon_insensitive", random_state=0)
    assert tube.fit(X, y).loss_.epsilon == pytest.approx(0.612 * 0.2, rel=0.2)


def test_constant_targets(rng):
    X, _ = make_data(rng)
    for loss in REGRESSION_LOSSES:
        model = SketchedKernelRegressor(loss=loss).fit(X, np.full(len(X), 7.0))
        np.testing.assert_allclose(model.predict(X), 7.0, atol=1e-9)


def test_weighted_helpers_count_repetitions(rng):
    values = rng.normal(size=30)
    weight = rng.integers(1, 4, size=30)
    repeated = np.repeat(values, weight)
    assert weighted_median(values, weight.astype(float)) == np.median(repeated)
    assert robust_size(values, weight.astype(float)) == robust_size(repeated)
    assert robust_size(np.zeros(5)) == 0.0
    assert robust_size(np.array([0.0, 0.0, 0.0, 4.0])) == 1.0
    X = rng.normal(size=(30, 4)) + 3
    X[X > 3.5] = 0
    expected = np.repeat(X, weight, axis=0).var(axis=0).sum()
    for points in (X, sp.csr_array(X)):
        assert total_variance(points, weight.astype(float), 2**20) == pytest.approx(
            expected
        )


# ---- scores and intervals ----


def test_quantile_score_is_that_of_scikit_learn(rng):
    X, y = make_data(rng)
    weight = rng.uniform(size=len(y))
    model = SketchedQuantileRegressor(quantiles=[0.3], random_state=0).fit(X, y)
    assert model.predict(X).shape == (len(X), 1)
    for w in (None, weight):
        expected = d2_pinball_score(y, model.predict(X)[:, 0], alpha=0.3)
        if w is not None:
            expected = d2_pinball_score(
                y, model.predict(X)[:, 0], alpha=0.3, sample_weight=w
            )
        assert model.score(X, y, w) == pytest.approx(expected, abs=2e-3)


def test_intervals(rng):
    X, y = make_data(rng, n=1000)
    levels = [0.05, 0.1, 0.5, 0.9, 0.95]
    model = SketchedQuantileRegressor(quantiles=levels, alpha=1e-3, random_state=0)
    model.fit(X, y)
    for share in (0.8, 0.9):
        low, high = model.predict_interval(X, coverage=share).T
        assert psk.coverage(y, low, high) == pytest.approx(share, abs=0.03)
        ends = np.isclose(levels, (1 - share) / 2) | np.isclose(levels, (1 + share) / 2)
        expected = model.predict(X)[:, ends]
        np.testing.assert_array_equal(np.stack([low, high], axis=1), expected)
    # between levels, and beyond them
    for share in (0.5, 0.97):
        low, high = model.predict_interval(X, coverage=share).T
        assert psk.coverage(y, low, high) == pytest.approx(share, abs=0.1)


def test_levels_do_not_cross(rng):
    X, y = make_data(rng, n=200)
    levels = np.linspace(0.1, 0.9, 9)
    model = SketchedQuantileRegressor(quantiles=levels, alpha=1e-8, random_state=0)
    predicted = model.fit(X, y).predict(3 * X)
    assert psk.crossing_loss(predicted) == 0
    model.set_params(noncrossing="none")
    assert psk.crossing_loss(model.predict(3 * X)) == 0  # that of the fit
    assert psk.crossing_loss(model.fit(X, y).predict(3 * X)) > 0


# ---- classes ----


def test_digits():
    X, y = load_digits(return_X_y=True)
    train, test = slice(0, 1300), slice(1300, None)
    for loss in CLASSIFICATION_LOSSES:
        model = SketchedKernelClassifier(
            loss=loss, n_components=200, alpha=1e-5, random_state=0
        ).fit(X[train], y[train])
        assert model.score(X[test], y[test]) > 0.94
        assert model.decision_function(X[test]).shape == (len(X[test]), 10)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_calibrated(n_classes):
    X, y = make_classification(
        6000, n_informative=4, n_features=4, n_redundant=0, n_classes=n_classes,
        flip_y=0.2, class_sep=0.7, random_state=0,
    )  # fmt: skip
    names = np.array(["a", "b", "c"])[y]
    model = SketchedKernelClassifier(loss="logistic", alpha=1e-3, random_state=0)
    model.fit(X[:3000], names[:3000])
    probabilities = model.predict_proba(X[3000:])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(
        model.classes_[probabilities.argmax(axis=1)], model.predict(X[3000:])
    )
    for j in range(n_classes):
        p, hit = probabilities[:, j], y[3000:] == j
        for low in (0.1, 0.4, 0.7):  # among points of like probability
            chosen = (p >= low) & (p < low + 0.2)
            assert hit[chosen].mean() == pytest.approx(p[chosen].mean(), abs=0.11)


def test_other_losses_have_probabilities_by_calibration_only(rng):
    X, y = make_data(rng)
    labels = y > 0.5
    model = SketchedKernelClassifier(loss="hinge", random_state=0).fit(X, labels)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as error:
        model.predict_proba(X)
    assert "probability=True" in str(error.value.__cause__)
    calibrated = CalibratedClassifierCV(model, cv=3).fit(X, labels)
    assert calibrated.predict_proba(X).shape == (len(X), 2)


def test_class_weight_is_a_sample_weight(rng):
    X, y = make_data(rng)
    labels = (y > 1.2).astype(int)
    options = dict(alpha=1e-3, random_state=0)  # gamma does not see class weights
    balanced = SketchedKernelClassifier(class_weight="balanced", **options)
    weight = np.where(labels == 1, 0.5 / labels.mean(), 0.5 / (1 - labels.mean()))
    gamma = 1 / X.var(axis=0).sum()
    expected = SketchedKernelClassifier(gamma=gamma, **options).fit(X, labels, weight)
    np.testing.assert_allclose(
        balanced.fit(X, labels).decision_function(X),
        expected.decision_function(X),
        atol=1e-9,
    )


# ---- input as people have it ----


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_frames_lists_and_numbers_of_all_kinds(estimator, rng):
    import pandas as pd
    import polars as pl

    X = np.column_stack(
        [rng.normal(size=150), rng.integers(0, 3, size=150), rng.random(150) > 0.5]
    ).astype(float)
    y = (X[:, 0] + X[:, 1] > 0.5).astype(float)
    columns = {
        "size": X[:, 0],
        "count": X[:, 1].astype(np.int64),
        "flag": X[:, 2].astype(bool),
    }
    method = "transform" if hasattr(estimator, "transform") else "predict"
    expected = getattr(clone(estimator).fit(X, y), method)(X)
    pandas_X, pandas_y = pd.DataFrame(columns), pd.Series(y)
    for points, targets in [
        (pandas_X, pandas_y),
        (pl.DataFrame(columns), pl.Series(y)),
        (X.tolist(), y.tolist()),
        (np.asfortranarray(X), y[::-1][::-1]),
        (X.astype(">f8"), y.astype(int)),
    ]:
        model = clone(estimator).fit(points, targets)
        result = getattr(model, method)(points)
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)
    model = clone(estimator).fit(pandas_X, pandas_y)
    assert model.feature_names_in_.tolist() == list(columns)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        getattr(model, method)(X)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_float32_is_kept(estimator, rng):
    X, y = make_data(rng)
    method = "transform" if hasattr(estimator, "transform") else "predict"
    if isinstance(estimator, SketchedKernelClassifier):
        y, method = y > 0.5, "decision_function"
    model = clone(estimator).fit(X.astype(np.float32), y)
    result = getattr(model, method)(X.astype(np.float32))
    assert result.dtype == np.float32
    assert model.landmarks_.dtype == np.float32
    if method != "transform":  # features of another precision are other features
        expected = getattr(clone(estimator).fit(X, y), method)(X)
        assert np.abs(result - expected).mean() < 0.05 * np.abs(expected).mean()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_sparse_points(estimator, rng):
    X = sp.random_array((300, 50), density=0.1, random_state=rng, format="csr")
    y = np.asarray(X.sum(axis=1)).ravel()
    method = "transform" if hasattr(estimator, "transform") else "predict"
    if isinstance(estimator, SketchedKernelClassifier):
        y, method = y > np.median(y), "decision_function"
    model = clone(estimator).fit(X, y)
    assert sp.issparse(model.landmarks_)
    expected = getattr(clone(estimator).fit(X.toarray(), y), method)(X.toarray())
    for points in (X, X.tocsc(), sp.csr_matrix(X)):
        result = getattr(model, method)(points)
        np.testing.assert_allclose(result, expected, atol=1e-6)


@few_points
def test_precomputed_kernel_in_a_search(rng):
    X, y = make_data(rng, n=120)
    K = reference.rbf(X, X, 0.5)
    options = dict(loss="squared", sketch="nystroem", n_components=40, random_state=0)
    by_matrix = SketchedKernelRegressor(kernel="precomputed", **options)
    by_points = SketchedKernelRegressor(gamma=0.5, **options)
    np.testing.assert_allclose(
        cross_val_score(by_matrix, K, y), cross_val_score(by_points, X, y), rtol=1e-6
    )
    with pytest.raises(ValueError, match="X must be a square matrix"):
        by_matrix.fit(K[:, :50], y)


# ---- mistakes ----


def test_unscaled_features_are_named(rng):
    import pandas as pd

    X, y = make_data(rng)
    X[:, 2] *= 1000
    with pytest.warns(UserWarning, match=r"feature number 2 carries 100.0% .*Standard"):
        SketchedKernelRegressor().fit(X, y)
    with pytest.warns(UserWarning, match="feature 'income' carries"):
        KernelSketch().fit(pd.DataFrame(X, columns=["a", "b", "income"]))
    make_pipeline(StandardScaler(), SketchedKernelRegressor()).fit(X, y)
    X[:, :2] = 0  # nothing else to see
    SketchedKernelRegressor().fit(X, y)


@pytest.mark.filterwarnings("ignore::pskernels.ConvergenceWarning")
@pytest.mark.parametrize("kernel", ["linear", psk.Polynomial(1e-3), "cosine"], ids=str)
def test_points_far_from_zero_are_named(kernel, rng):
    """A date, or a constant year in float32, was all that such a kernel saw."""
    X, y = make_data(rng)
    X = X.astype(np.float32)
    model = SketchedKernelRegressor(kernel=kernel, loss="squared", random_state=0)
    for day in (20240101 + np.arange(len(y)) % 31, np.full(len(y), 2024.0)):
        far = np.column_stack([X, day]).astype(np.float32)
        with pytest.warns(UserWarning, match="number 3 keeps the points .* from 0"):
            clone(model).fit(far, y)
    scaled, alone = (
        make_pipeline(StandardScaler(), clone(model)).fit(points, y).score(points, y)
        for points in (far, X)
    )
    assert scaled == pytest.approx(alone, abs=1e-3)


@pytest.mark.parametrize("loss", ["huber", "absolute", "squared"])
def test_targets_that_are_missing(loss, rng):
    X, y = make_data(rng)
    missing = [None, *y[1:]]
    with pytest.raises(ValueError, match="y contains NaN"):
        SketchedKernelRegressor(loss=loss).fit(X, missing)


def test_mistakes_get_an_answer(rng):
    import pandas as pd

    X, y = make_data(rng)
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["city"] = "Paris"
    model = SketchedKernelRegressor()
    with pytest.raises(ValueError, match=r"not numbers: city; .*OneHotEncoder"):
        model.fit(frame, y)
    with pytest.raises(ValueError, match=r"not numbers; .*OneHotEncoder"):
        model.fit(frame.to_numpy(), y)
    dates = pd.DataFrame({"a": X[:, 0], "day": pd.date_range("2020", periods=len(X))})
    with pytest.raises(ValueError, match=r"not numbers: day; .*dates as days"):
        model.fit(dates, y)
    for regressor in (SketchedKernelRegressor(), SketchedQuantileRegressor()):
        with pytest.raises(
            ValueError, match="y must hold numbers, got <U1; for classes"
        ):
            regressor.fit(X, np.where(y > 0, "a", "b"))
    with pytest.raises(ValueError, match="y contains NaN"):
        model.fit(X, np.where(y > 1, np.nan, y))
    with pytest.raises(ValueError, match="X contains NaN"):
        model.fit(np.where(X > 0.9, np.nan, X), y)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.predict(X)
    assert not hasattr(model, "landmarks_")
    with pytest.warns(
        UserWarning, match=r"n_components=100 is more than the 50 points"
    ):
        clone(model).set_params(n_components=100).fit(X[:50], y[:50])
    model.fit(X[:50], y[:50])  # the default does not warn
    with pytest.raises(ValueError, match="X has 2 features, but .* expecting 3"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="at least two classes"):
        SketchedKernelClassifier().fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match="continuous"):
        SketchedKernelClassifier().fit(X, y)
    with pytest.raises(ValueError, match="at least one non-zero"):
        model.fit(X, y, sample_weight=np.zeros(len(y)))


@pytest.mark.parametrize(
    "parameters, message",
    [
        (dict(kernel="rbf2"), "kernel must be one of 'rbf'"),
        (
            dict(gamma="skale"),
            "gamma must be a positive number, 'scale', 'auto', 'median' or",
        ),
        (dict(gamma=-1.0), "gamma must be positive"),
        (dict(sketch="p-s"), "sketch must be one of 'p-sr'"),
        (dict(sketch=3), "sketch must be one of .* or a drawn Sketch, got 3"),
        (dict(sketch="nystroem", p=0.1), "sketch 'nystroem' takes no p"),
        (dict(n_components=0), "n_components must be at least 1"),
        (dict(p=5), r"p must be in \(0, 1\], got 5; for 5 non-zeros"),
        (dict(loss="hinge"), "loss must be one of 'huber'"),
        (dict(kappa="big"), "kappa must be a number or 'auto', got 'big'"),
        (dict(kappa=0.0), "kappa must be positive"),
        (dict(loss="epsilon_insensitive", epsilon=-1), "epsilon must be finite and"),
        (dict(loss="pinball", quantile=1.0), "quantile must be above 0 and below 1"),
        (
            dict(loss="pinball", quantile=[0.1]),
            "quantile must be one level, got .*Quant",
        ),
        (dict(alpha=0.0), "alpha must be positive"),
        (dict(alpha="small"), "alpha must be a number or 'auto'"),
        (dict(n_components=1000, p=-1.0), r"p must be in \(0, 1\]"),
        (dict(n_components=1000, p="x"), "p must be a number or 'auto'"),
        (dict(tol=0.0), "tol must be positive"),
        (dict(solver="svd"), "solver must be one of"),
        (dict(random_state="x"), "random_state must be None, an integer"),
    ],
)
def test_parameters_are_checked_in_fit(parameters, message, rng):
    model = SketchedKernelRegressor(**parameters)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(*make_data(rng))


# ---- in the ecosystem ----


@pytest.mark.parametrize(
    "sketch", ["p-sr", "p-sg", "nystroem", "gaussian", "accumulation", "count-sketch",
               "ros", psk.PSparsified(40, 0.1)]
)  # fmt: skip
def test_all_sketches(sketch, rng):
    X, y = make_data(rng)
    transformer = KernelSketch(sketch=sketch, n_components=40, random_state=0)
    Z = transformer.fit_transform(X)
    np.testing.assert_array_equal(transformer.transform(X), Z)
    K = reference.rbf(X, X, transformer.kernel_.gamma)
    assert np.linalg.norm(Z @ Z.T - K) < 0.05 * np.linalg.norm(K)
    assert transformer.get_feature_names_out()[0] == "kernelsketch0"
    model = make_pipeline(transformer, Ridge(1e-3)).fit(X, y)
    assert model.score(X, y) > 0.95


def test_set_output(rng):
    X, _ = make_data(rng)
    frame = KernelSketch(random_state=0).set_output(transform="pandas").fit_transform(X)
    assert list(frame.columns[:2]) == ["kernelsketch0", "kernelsketch1"]


def test_grid_search_and_clones(rng):
    X, y = make_data(rng)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SketchedKernelRegressor(random_state=0)),
        {"sketchedkernelregressor__alpha": [1e-4, 1e-2]},
        cv=3,
    ).fit(X, y)
    assert search.best_score_ > 0.9


def test_sample_weight_is_routed(rng):
    import sklearn

    X, y = make_data(rng)
    weight = rng.integers(1, 3, size=len(y)).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        model = SketchedKernelRegressor(random_state=0).set_fit_request(
            sample_weight=True
        )
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, model)
        pipeline.fit(X, y, sample_weight=weight)
    expected = SketchedKernelRegressor(random_state=0).fit(
        StandardScaler().fit_transform(X), y, weight
    )
    np.testing.assert_array_equal(pipeline[-1].coef_, expected.coef_)


def test_warm_start_keeps_the_sketch_and_begins_at_the_solution(rng):
    X, y = make_data(rng)
    model = SketchedKernelRegressor(warm_start=True, alpha=1e-4)
    first = model.fit(X, y).feature_map_
    cold = model.n_iter_
    assert cold > 1
    assert model.fit(X, y).feature_map_ is first
    assert model.n_iter_ == 0
    model.set_params(alpha=2e-4).fit(X, y)
    assert model.alpha_ == 2e-4 and model.dual_gap_ < 1e-6
    model.fit(X[:, :2], y)  # another number of features: from scratch
    assert model.feature_map_ is not first
    second = model.fit(X, y).feature_map_
    model.set_params(loss="absolute").fit(X[:300], y[:300])
    assert model.feature_map_ is second
    for changed in (dict(gamma=2.0), dict(n_components=30), dict(kernel="laplacian")):
        model.set_params(**changed).fit(X, y)
        assert model.feature_map_ is not second
        second = model.feature_map_
    model.fit(X, np.column_stack([y, -y]))  # other outputs: the sketch is kept
    assert model.feature_map_ is second and model.coef_.shape[1] == 2
    model.set_params(warm_start=False).fit(X, y)
    assert model.feature_map_ is not second


def test_warnings_reach_scripts(tmp_path):
    """There __package__ is None, which the search for the caller's line meets."""
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from pskernels.estimators import SketchedKernelRegressor\n"
        "def main():\n"
        "    X = np.random.default_rng(0).normal(size=(50, 4))\n"
        "    model = SketchedKernelRegressor(max_iter=1, n_components=100)\n"
        "    model.fit(X, X[:, 0])\n"
        "    print(model.predict(X).shape)\n"
        "main()\n"
    )
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert "(50,)" in run.stdout
    assert "script.py:6: ConvergenceWarning" in run.stderr
    assert "script.py:6: UserWarning: n_components=100 is more" in run.stderr


def test_fitted_models_do_not_follow_parameters(rng):
    X, y = make_data(rng)
    model = SketchedQuantileRegressor(random_state=0).fit(X, y)
    expected = model.predict(X)
    model.set_params(quantiles=0.5, noncrossing="none")
    np.testing.assert_array_equal(model.predict(X), expected)
    classifier = SketchedKernelClassifier(random_state=0).fit(X, y > 0.5)
    assert not hasattr(classifier.set_params(loss="logistic"), "predict_proba")
    assert hasattr(classifier.fit(X, y > 0.5), "predict_proba")


def test_probabilities_of_extreme_decisions(rng):
    X, y = make_data(rng)
    labels = np.digitize(y, [0, 1])
    model = SketchedKernelClassifier(
        loss="logistic", kernel="polynomial", gamma=1.0, random_state=0
    ).fit(X, labels)
    probabilities = model.predict_proba(1000 * X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


def test_zero_weights_of_a_precomputed_kernel(rng):
    X, y = make_data(rng)
    K = reference.rbf(X, X, 0.5)
    weight = np.ones(len(y))
    weight[:50] = 0
    model = SketchedKernelRegressor(
        kernel="precomputed", loss="squared", random_state=0
    ).fit(K, y, weight)
    assert r2_score(y, model.predict(K)) > 0.9


def test_warm_start_of_other_levels_and_classes(rng):
    X, y = make_data(rng)
    model = SketchedQuantileRegressor(warm_start=True).fit(X, y)
    for levels in ([0.1, 0.2, 0.5, 0.9], 0.3, [0.5]):
        predicted = model.set_params(quantiles=levels).fit(X, y).predict(X)
        assert predicted.shape == (len(X), *np.shape(levels))
    model = SketchedKernelClassifier(warm_start=True)
    for n_classes in (3, 2, 4):
        labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
        assert model.fit(X, labels).score(X, labels) > 0.8


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_pickles(estimator, rng):
    X, y = make_data(rng)
    method = "transform" if hasattr(estimator, "transform") else "predict"
    if isinstance(estimator, SketchedKernelClassifier):
        y, method = y > 0.5, "decision_function"
    model = clone(estimator).fit(X, y)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(getattr(other, method)(X), getattr(model, method)(X))


@pytest.mark.parametrize("random_state", [0, np.random.RandomState, None,
                                          np.random.default_rng])  # fmt: skip
def test_random_state(random_state, rng):
    X, y = make_data(rng)

    def fit():
        state = random_state(7) if callable(random_state) else random_state
        return SketchedKernelRegressor(random_state=state).fit(X, y).predict(X)

    assert np.array_equal(fit(), fit()) == (random_state is not None)


def test_results_do_not_depend_on_threads(rng):
    X, y = make_data(rng, n=3000)
    one, two = (
        SketchedKernelRegressor(random_state=0, n_threads=n).fit(X, y).predict(X)
        for n in (1, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_robust_losses_ignore_outliers(rng):
    X, y = make_data(rng, n=1000)
    spoilt = y.copy()
    spoilt[::10] += 100.0
    scores = {
        loss: r2_score(
            y,
            SketchedKernelRegressor(loss=loss, random_state=0)
            .fit(X, spoilt)
            .predict(X),
        )
        for loss in REGRESSION_LOSSES
    }
    assert min(scores[loss] for loss in REGRESSION_LOSSES[:-1]) > 0.9
    assert scores["squared"] < 0


@pytest.mark.parametrize("wild", [1e4, 1e8, 9999999999.0])
@pytest.mark.parametrize(
    "model",
    [
        *(SketchedKernelRegressor(loss=loss) for loss in REGRESSION_LOSSES[:-1]),
        SketchedQuantileRegressor(quantiles=[0.3, 0.5]),
    ],
    ids=lambda model: getattr(model, "loss", "levels"),
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_few_wild_targets_are_as_good_as_absent(model, wild, weighted, rng):
    """Though they are nearly all of the objective."""
    X = rng.normal(size=(1500, 3))
    f = np.sin(2 * X[:, 0])
    y = f + 0.1 * rng.normal(size=1500)
    weight = rng.uniform(0.5, 1.5, size=1500) if weighted else None
    model = clone(model).set_params(random_state=0)

    def miss(targets):
        predicted = model.fit(X, targets, sample_weight=weight).predict(X)
        return np.median(
            np.abs(predicted[:, -1] if predicted.ndim > 1 else predicted - f)
        )

    spoilt = y.copy()
    spoilt[:10] = wild
    assert miss(spoilt) < 1.5 * miss(y) + 0.005
    assert model.converged_


def test_the_tolerance_is_that_of_the_parameters_unless_targets_are_wild(rng):
    """Of ordinary targets, heavy tails and many equal ones among them."""
    for y in (
        rng.normal(size=1000),
        rng.standard_t(2, size=1000),
        rng.exponential(size=1000),
        rng.lognormal(size=1000),
        rng.poisson(0.3, size=1000).astype(float),
        np.where(rng.uniform(size=1000) < 0.1, rng.normal(size=1000), 0.0),
        rng.normal(size=(1000, 3)),
        np.zeros(1000),
    ):
        assert tighten(1e-6, y) == 1e-6
        assert tighten(1e-6, y, np.ones(1000)) == 1e-6
    y[0] = 1e6  # alone among zeros: it is all that there is to learn
    assert tighten(1e-6, y) == pytest.approx(1e-6, rel=1)
    wild = np.append(rng.normal(size=999), 1e6)
    assert tighten(1e-6, wild) == pytest.approx(1e-6 * 2 * 0.8 / 1e3, rel=0.2)
    assert tighten(1e-6, wild, (wild < 10).astype(float)) == 1e-6
    assert tighten(1e-6, 1e9 * wild + 1e15) == pytest.approx(tighten(1e-6, wild))
    with pytest.warns(UserWarning, match="so large, up to 1e\\+30 .*: leave them out"):
        assert tighten(1e-6, np.append(wild, 1e30)) == 1e-12
    with pytest.warns(UserWarning, match="no certificate sees the others"):
        assert tighten(1e-13, np.append(wild, 1e300)) == 1e-13
    clusters = np.append(rng.normal(size=800), rng.normal(1000.0, 1.0, size=200))
    assert tighten(1e-6, clusters) == 1e-6  # a fifth of all is not wild


@pytest.mark.parametrize(
    "model",
    [
        KernelSketch(n_components=10, random_state=0),
        SketchedKernelRegressor(n_components=10, random_state=0),
        SketchedKernelRegressorCV(
            n_components=10, alphas=[1e-3], gammas=[1.0], cv=3, random_state=0
        ),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_refit_that_fails_leaves_the_old_model(model, rng):
    X, y = make_data(rng)
    method = "predict" if hasattr(model, "predict") else "transform"
    before = getattr(model.fit(X, y), method)(X)
    wider = np.column_stack([X, X])
    with pytest.raises(ValueError, match=r"p must be in \(0, 1\]"):
        model.set_params(p=3.0).fit(wider, y)
    assert model.n_features_in_ == X.shape[1]
    np.testing.assert_array_equal(getattr(model, method)(X), before)


def test_weights_that_cannot_be_summed_are_blamed(rng):
    X, y = make_data(rng)
    model = SketchedKernelRegressor(n_components=10, random_state=0)
    with pytest.raises(ValueError, match="sample_weight must have a finite sum"):
        model.fit(X, y, sample_weight=np.full(len(y), 1e307))


@pytest.mark.parametrize(
    "labels, match",
    [
        ([1.0, 1.0], "got one class: 1.0$"),
        (["a", "a"], "got one class: 'a'$"),
        (["a", None], "labels of one kind.*got NoneType and str"),
        (["a", 1.5], "labels of one kind.*got float and str"),
    ],
)
def test_labels_that_are_no_classes(labels, match, rng):
    X, _ = make_data(rng)
    mixed = len({type(label) for label in labels}) > 1
    y = np.resize(np.array(labels, dtype=object if mixed else None), len(X))
    for options in ({}, {"class_weight": "balanced"}):
        with pytest.raises(ValueError, match=match):
            SketchedKernelClassifier(n_components=10, **options).fit(X, y)


@pytest.mark.parametrize("shift", [0.0, 2024.0, -1e5])
def test_no_shift_of_a_column_changes_the_default_kernel(shift, rng):
    X, y = make_data(rng)
    model = SketchedKernelRegressor(n_components=20, random_state=0).fit(X, y)
    expected = model.predict(X)
    moved = X.copy()
    moved[:, 0] += shift
    moved = np.column_stack(
        [moved, np.full(len(X), 2024.0)]
    )  # and one that is constant
    again = clone(model).fit(moved, y)
    assert again.kernel_.gamma == pytest.approx(1 / X.var(axis=0).sum(), rel=1e-6)
    np.testing.assert_allclose(again.predict(moved), expected, rtol=1e-4, atol=1e-4)


def test_a_variance_that_underflows_is_said(rng):
    X, y = make_data(rng)
    with pytest.warns(RuntimeWarning, match="variance of X, 0, underflows") as caught:
        SketchedKernelRegressor(n_components=20, random_state=0).fit(1e-170 * X, y)
    assert caught[0].filename == __file__
    # points that are all the same have no scale: nothing to say
    psk.sketch_gram(np.ones((50, 2)), 5, 0.5, random_state=0)


def test_new_points_are_looked_at_once(rng, monkeypatch):
    X, y = make_data(rng, n=50)
    model = SketchedKernelRegressor(n_components=5, random_state=0).fit(X, y)
    passes = []
    column_moments = _preparation.column_moments
    monkeypatch.setattr(
        _preparation,
        "column_moments",
        lambda *given: passes.append(1) or column_moments(*given),
    )
    looked = []
    monkeypatch.setattr(
        "sklearn.utils.validation._assert_all_finite", lambda *a, **k: looked.append(1)
    )
    model.predict(X)
    assert (len(passes), len(looked)) == (1, 0)
