"""`partial_fit`: sums of squares against NumPy, Adam against a fit to all rows."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from pskernels import Adam, ConvergenceWarning, Huber, Pinball, solve
from pskernels.estimators import (
    KernelSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
    load,
)

OPTIONS = dict(n_components=25, gamma=0.3, random_state=0)


def make_data(n=1200, seed=0, outputs=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.standard_t(3, size=n) + 7
    if outputs:
        y = np.stack([(j + 1) * y + X[:, 0] for j in range(outputs)], axis=1)
    return X, y


def feed(model, X, y, sizes=(300, 1, 499, 400), weight=None, **options):
    start = 0
    for size in sizes:
        rows = slice(start, start + size)
        some = {} if weight is None else dict(sample_weight=weight[rows])
        model.partial_fit(X[rows], y[rows], **some, **options)
        start += size
    assert start == X.shape[0]
    return model


def ridge(Z, y, weight, alpha, fit_intercept):
    """Solve the normal equations, with an intercept that is not penalised."""
    A = np.column_stack([Z, np.ones(len(Z))]) if fit_intercept else Z
    penalty = alpha * np.eye(A.shape[1])
    if fit_intercept:
        penalty[-1, -1] = 0
    omega = weight / weight.sum()
    found = np.linalg.solve((A.T * omega) @ A + penalty, (A.T * omega) @ y)
    return (found[:-1], found[-1]) if fit_intercept else (found, 0 * found[0])


class TestSquares:
    @pytest.mark.parametrize("outputs", [0, 1, 3])
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_are_those_of_all_rows(self, outputs, weighted, fit_intercept):
        X, y = make_data(outputs=outputs)
        weight = np.random.default_rng(1).uniform(0, 2, size=len(y))
        weight[[0, 5, 300]] = [0.0, 0.0, 1.0]
        model = SketchedKernelRegressor(
            loss="squared", alpha=1e-3, fit_intercept=fit_intercept, **OPTIONS
        )
        feed(model, X, y, weight=weight if weighted else None)
        Z = model.feature_map_.transform(X)
        weight = weight if weighted else np.ones(len(y))
        coef, intercept = ridge(Z, y, weight, 1e-3, fit_intercept)
        found = model.coef_.reshape(coef.shape)
        np.testing.assert_allclose(found, coef, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(
            np.reshape(model.intercept_, np.shape(intercept)), intercept, rtol=1e-9
        )
        assert model.converged_ and model.dual_gap_ < 1e-6
        assert model.predict(X).shape == y.shape

    def test_batches_do_not_matter(self):
        X, y = make_data()
        found = [
            feed(
                SketchedKernelRegressor(loss="squared", **OPTIONS), X, y, (300, *sizes)
            ).coef_
            for sizes in ([900], [450, 450], [1] * 50 + [850])
        ]
        for coef in found[1:]:
            np.testing.assert_allclose(coef, found[0], rtol=1e-8, atol=1e-9)

    def test_alpha_is_that_of_all_rows(self):
        X, y = make_data()
        model = feed(SketchedKernelRegressor(loss="squared", **OPTIONS), X, y)
        assert model.alpha_ == pytest.approx(0.1 / 1200)
        model = SketchedKernelRegressor(loss="squared", **OPTIONS)
        feed(model, X, y, weight=np.full(1200, 3.0))
        assert model.alpha_ == pytest.approx(0.1 / 3600)

    def test_sparse_rows_in_float32(self):
        X, y = make_data()
        X = (X * (np.abs(X) > 0.5)).astype(np.float32)
        dense = feed(SketchedKernelRegressor(loss="squared", **OPTIONS), X, y)
        model = SketchedKernelRegressor(loss="squared", **OPTIONS)
        sparse = feed(model, sp.csr_array(X), y)
        np.testing.assert_allclose(sparse.predict(X), dense.predict(X), rtol=1e-3)

    def test_after_a_fit_sums_begin_anew(self, tmp_path):
        X, y = make_data()
        model = SketchedKernelRegressor(loss="squared", **OPTIONS).fit(X, -y)
        landmarks = model.landmarks_
        with pytest.warns(UserWarning, match="rows from here on"):
            model.partial_fit(X, y)
        assert model.landmarks_ is landmarks
        fitted = SketchedKernelRegressor(loss="squared", **OPTIONS).fit(X, y)
        np.testing.assert_allclose(model.predict(X), fitted.predict(X), rtol=1e-3)
        model.save(tmp_path / "model.npz")
        again = load(tmp_path / "model.npz")
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        with pytest.warns(UserWarning, match="rows from here on"):
            again.partial_fit(X, -y)
        np.testing.assert_allclose(again.predict(X), -model.predict(X), rtol=1e-5)
        # a fit has no sums of what was before
        with pytest.warns(UserWarning, match="rows from here on"):
            model.fit(X, y).partial_fit(X, -y)
        np.testing.assert_allclose(model.predict(X), again.predict(X), rtol=1e-5)

    def test_targets_that_drift_far_away_are_not_certified(self):
        """Sums around the first batch have lost the digits of the others."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1000, 3))
        y = 1e-6 * (np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=1000))
        y[:100] += 1e7
        weight = np.r_[np.full(100, 1e-30), np.ones(900)]
        model = SketchedKernelRegressor(loss="squared", **OPTIONS)
        model.partial_fit(X[:100], y[:100], weight[:100])
        with pytest.warns(ConvergenceWarning):
            model.partial_fit(X[100:], y[100:], weight[100:])
        assert not model.converged_ and model.dual_gap_ > 1e-3

    def test_a_pickle_goes_on(self):
        X, y = make_data()
        model = SketchedKernelRegressor(loss="squared", **OPTIONS)
        model.partial_fit(X[:600], y[:600])
        again = pickle.loads(pickle.dumps(model))
        for one in (model, again):
            one.partial_fit(X[600:], y[600:])
        np.testing.assert_array_equal(model.coef_, again.coef_)


class TestAdam:
    @pytest.mark.parametrize("unit", [1.0, 1e4])
    @pytest.mark.parametrize(
        "loss, options",
        [
            (Huber(0.3), dict(loss="huber", kappa=0.3)),
            (Pinball(0.8), dict(loss="pinball", quantile=0.8)),
        ],
    )
    def test_comes_close_to_a_fit_to_all_rows(self, loss, options, unit):
        if "kappa" in options:
            loss, options = Huber(0.3 * unit), dict(loss="huber", kappa=0.3 * unit)
        X, y = make_data(20_000)
        X_new, y_new = make_data(5000, seed=1)
        y, y_new = unit * y, unit * y_new
        model = SketchedKernelRegressor(**options, **OPTIONS)
        values = []
        for start in range(0, len(X), 500):
            rows = slice(start, start + 500)
            model.partial_fit(X[rows], y[rows])
            values.append(loss.value(model.predict(X_new), y_new).mean())
        Z = model.feature_map_.transform(X)
        best = solve(Z, y, loss=loss, alpha=model.alpha_)
        Z_new = model.feature_map_.transform(X_new)
        least = loss.value(best.predict(Z_new), y_new).mean()
        assert values[-1] < 1.05 * least
        assert values[-1] - least < 0.6 * (values[0] - least)
        assert np.isnan(model.dual_gap_) and not model.converged_
        assert model.n_iter_ == 40 * 16  # 500 rows are 16 steps

    def test_the_first_batch_is_fitted(self):
        X, y = make_data()
        model = SketchedKernelRegressor(**OPTIONS).partial_fit(X, y)
        fitted = SketchedKernelRegressor(**OPTIONS).fit(X, y)
        np.testing.assert_allclose(model.predict(X), fitted.predict(X), rtol=1e-4)
        assert model.converged_

    def test_a_fit_goes_on(self):
        X, y = make_data()
        model = SketchedKernelRegressor(**OPTIONS).fit(X[:600], y[:600])
        landmarks, before = model.landmarks_, model.coef_
        model.partial_fit(X[600:], y[600:])
        assert model.landmarks_ is landmarks
        assert 0 < np.abs(model.coef_ - before).max() < 1

    def test_batches_of_little_weight_change_little(self):
        X, y = make_data()
        model = SketchedKernelRegressor(loss="absolute", **OPTIONS).partial_fit(X, y)
        before = model.score(X, y)
        model.partial_fit(X, np.full(len(y), 100.0), np.full(len(y), 1e-12))
        assert model.score(X, y) > before - 0.05

    def test_the_solver_may_be_given(self):
        X, y = make_data()
        model = SketchedKernelRegressor(
            solver=Adam(learning_rate=1e-3, batch_size=100, shuffle=False), **OPTIONS
        )
        feed(model, X, y)
        assert model.n_iter_ == 3 + 1 + 5 + 4
        with pytest.raises(ValueError, match="solver='auto'"):
            SketchedKernelRegressor(solver="lbfgs", **OPTIONS).partial_fit(X, y)

    def test_several_outputs_and_levels(self):
        X, y = make_data(6000, outputs=2)
        model = SketchedKernelRegressor(**OPTIONS)  # Huber's loss of the norm
        feed(model, X, y, [1000] * 6)
        assert model.score(X, y) > 0.5
        levels = SketchedQuantileRegressor(quantiles=[0.1, 0.9], **OPTIONS)
        feed(levels, X, y[:, 0], [1000] * 6)
        below = (y[:, :1] < levels.predict(X)).mean(axis=0)
        np.testing.assert_allclose(below, [0.1, 0.9], atol=0.04)
        joint = SketchedQuantileRegressor(
            quantiles=[0.1, 0.9], noncrossing="penalty", **OPTIONS
        )
        feed(joint, X, y[:, 0], [1000] * 6)
        below = (y[:, :1] < joint.predict(X)).mean(axis=0)
        np.testing.assert_allclose(below, [0.1, 0.9], atol=0.04)
        for options in (
            dict(loss="squared", output_matrix=np.array([[1.0, 0.5], [0.5, 1.0]])),
            dict(output_matrix="residual"),
        ):
            with pytest.raises(ValueError, match="output_matrix"):
                SketchedKernelRegressor(**options, **OPTIONS).partial_fit(X, y)


class TestClasses:
    @pytest.mark.parametrize("loss", ["hinge", "logistic", "squared_hinge"])
    def test_come_close_to_a_fit_to_all_rows(self, loss):
        X, y = make_data(8000)
        labels = np.array(["low", "middle", "high"])[np.digitize(y, [6.3, 7.7])]
        model = SketchedKernelClassifier(loss=loss, **OPTIONS)
        feed(model, X, labels, [500] * 16, classes=["low", "middle", "high"])
        # one class against the rest, as batches are
        fitted = SketchedKernelClassifier(loss=loss, solver="newton", **OPTIONS)
        fitted.fit(X, labels)
        assert model.score(X, labels) > fitted.score(X, labels) - 0.02
        assert model.classes_.tolist() == ["high", "low", "middle"]

    @pytest.mark.parametrize("loss", ["hinge", "logistic"])
    def test_a_first_batch_of_one_class(self, loss):
        X, y = make_data(6000)
        order = np.argsort(y > 6, kind="stable")
        first = order[:200]  # all of one class
        rest = np.random.default_rng(0).permutation(order[200:])
        model = SketchedKernelClassifier(loss=loss, **OPTIONS)
        model.partial_fit(X[first], y[first] > 6, classes=[False, True])
        assert model.predict(X[first]).sum() == 0
        feed(model, X[rest], y[rest] > 6, [580] * 10)
        assert model.score(X, y > 6) > 0.85

    def test_weights_of_classes(self):
        X, y = make_data(4000)
        labels = (y > 8).astype(int)
        found = []
        for class_weight in (None, {1: 10.0}):
            model = SketchedKernelClassifier(class_weight=class_weight, **OPTIONS)
            feed(model, X, labels, [1000] * 4, classes=[0, 1])
            found.append(model.predict(X).mean())
        assert found[1] > found[0] + 0.05

    def test_gamma_by_folds(self):
        X, y = make_data(300)
        labels = np.digitize(y, [6.5, 7.5])
        model = SketchedKernelClassifier(**OPTIONS | dict(gamma="cv"))
        model.partial_fit(X, labels, classes=[0, 1, 2])
        assert model.score(X, labels) > 0.6

    def test_labels_are_checked(self):
        X, y = make_data(300)
        labels = np.where(y > 7, "a", "b")
        model = SketchedKernelClassifier(**OPTIONS)
        with pytest.raises(ValueError, match="needs classes"):
            model.partial_fit(X, labels)
        with pytest.raises(ValueError, match="label 'b'.*'a', 'c'"):
            model.partial_fit(X, labels, classes=["a", "c"])
        with pytest.raises(ValueError, match="balanced"):
            SketchedKernelClassifier(class_weight="balanced").partial_fit(
                X, labels, classes=["a", "b"]
            )
        for classes in ([], ["a"]):
            with pytest.raises(ValueError, match="at least two classes"):
                model.partial_fit(X, labels, classes=classes)
        with pytest.raises(ValueError, match="more than 0"):
            SketchedKernelClassifier(class_weight={"a": 0.0, "b": 0.0}).partial_fit(
                X, labels, classes=["a", "b"]
            )
        balanced = SketchedKernelClassifier(class_weight="balanced", **OPTIONS)
        with pytest.raises(ValueError, match="balanced"):
            balanced.fit(X, labels).partial_fit(X, labels)
        assert not hasattr(model, "feature_map_")
        model.partial_fit(X, labels, classes=["a", "b"])
        with pytest.raises(ValueError, match="those of before"):
            model.partial_fit(X, labels, classes=["a", "b", "c"])


def test_landmarks_may_be_given():
    X, y = make_data()
    centers = make_data(20, seed=3)[0]
    model = SketchedKernelRegressor(loss="squared", **OPTIONS | dict(n_components=20))
    model.partial_fit(X[:2], y[:2], landmarks=centers)
    np.testing.assert_array_equal(model.landmarks_, centers)
    with pytest.raises(ValueError, match="fixed by the first call"):
        model.partial_fit(X, y, landmarks=centers)
    model.partial_fit(X[2:], y[2:])
    assert model.score(X, y) > 0.3
    with pytest.raises(ValueError, match="3"):
        SketchedKernelRegressor(**OPTIONS).partial_fit(X, y, landmarks=centers[:, :2])


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_a_bad_batch_changes_nothing(loss):
    X, y = make_data()
    model = SketchedKernelRegressor(loss=loss, **OPTIONS)
    model.partial_fit(X[:500], y[:500])
    with_nan = X.copy()
    with_nan[3, 1] = np.nan
    before = model.coef_.copy()
    for bad in (
        (with_nan, y),
        (X[:, :2], y),
        (X, y[:, None]),
        (X, y[:-1]),
        (X, np.where(y > 7, np.inf, y)),
        (X, y, np.zeros(len(y))),
        (X, y, -np.ones(len(y))),
    ):
        with pytest.raises(ValueError):
            model.partial_fit(*bad)
        np.testing.assert_array_equal(model.coef_, before)
    other = SketchedKernelRegressor(loss=loss, **OPTIONS)
    for one in (model, other.partial_fit(X[:500], y[:500])):
        one.partial_fit(X[500:], y[500:])
    np.testing.assert_array_equal(model.coef_, other.coef_)


def test_compressed_models_begin_anew():
    X, y = make_data()
    model = SketchedKernelRegressor(loss="squared", **OPTIONS).partial_fit(X, y)
    with pytest.warns(UserWarning, match="rows from here on"):
        small = model.compress(10).partial_fit(X, -y)
    assert len(small.landmarks_) == 10
    assert np.corrcoef(small.predict(X), -model.predict(X))[0, 1] > 0.9


def test_a_small_first_batch_is_told():
    X, y = make_data(300)
    model = SketchedKernelRegressor(loss="squared", random_state=0)
    with pytest.warns(UserWarning, match="30 rows for good"):
        model.partial_fit(X[:30], y[:30])
    model = SketchedKernelRegressor(loss="squared", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[:30], y[:30], landmarks=X)
        model.partial_fit(X[30:], y[30:])
        pickle.loads(pickle.dumps(model)).partial_fit(X, y)  # which keeps the sums


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize(
    "options",
    [
        dict(alpha=-1.0),
        dict(alpha=0),
        dict(tol=-1.0),
        dict(solver="junk"),
        dict(output_matrix="junk"),
    ],
    ids=str,
)
def test_parameters_are_checked(loss, options):
    X, y = make_data(100)
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        SketchedKernelRegressor(loss=loss, **OPTIONS, **options).partial_fit(X, y)


@pytest.mark.parametrize("change", [dict(loss="huber"), dict(fit_intercept=False)])
def test_parameters_stay(change):
    X, y = make_data(100)
    model = SketchedKernelRegressor(loss="squared", **OPTIONS).partial_fit(X, y)
    with pytest.raises(ValueError, match="must stay"):
        model.set_params(**change).partial_fit(X, y)


@pytest.mark.filterwarnings("ignore:overflow")
def test_targets_that_overflow_are_refused():
    X, y = make_data(100)
    model, other = (
        SketchedKernelRegressor(loss="squared", **OPTIONS).partial_fit(X, y)
        for _ in range(2)
    )
    with pytest.raises(ValueError, match="overflow"):
        model.partial_fit(X, 1e200 * y)
    for one in (model, other):
        one.partial_fit(X, y)
    np.testing.assert_array_equal(model.coef_, other.coef_)
    assert model.converged_


def test_a_warm_fit_has_the_kernel_that_is_asked_for():
    X, y = make_data(300)
    model = SketchedKernelRegressor(**OPTIONS, warm_start=True).fit(X, y)
    model.set_params(gamma=5.0).partial_fit(X, y)
    assert model.fit(X, y).kernel_.gamma == 5.0


def test_what_has_no_partial_fit():
    assert not hasattr(SketchedKernelRegressorCV(), "partial_fit")
    assert not hasattr(KernelSketch(), "partial_fit")
    X, y = make_data(100)
    with pytest.raises(ValueError, match="precomputed"):
        SketchedKernelRegressor(kernel="precomputed").partial_fit(np.eye(100), y)
