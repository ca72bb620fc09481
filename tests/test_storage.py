"""Features that are recomputed in every pass, or stored in float32."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from reference import dual_objective, primal_objective, relative_error
from test_sample import LOSSES, make_data

import pskernels as psk
from pskernels._products import Features
from pskernels._threads import single_threaded_blas
from pskernels.estimators import (
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedQuantileRegressor,
    load,
)
from pskernels.features import FactoredFeatures, FeatureBlocks, RecomputedFeatures

WIDE = np.longdouble


def recomputed(Z, step, n_threads=2):
    """Features of Z, whose rows are copied where others would be computed."""

    def compute(rows, out, n_threads):
        out[:] = rows

    return RecomputedFeatures(compute, Z, Z.shape[1], Z.dtype, n_threads, step)


def make_map(s=40, **options):
    return psk.FeatureMap(
        gamma=0.5, sketch=psk.SubSampling(s), random_state=0, **options
    )


@pytest.mark.parametrize("step", [1, 64, 99, 100, 101, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products(step, dtype, rng):
    n, r = 100 if step == 1 else 300, 17
    Z = rng.normal(size=(n, r)).astype(dtype)
    F, wide = recomputed(Z, step), Z.astype(float)
    v, x, weight = rng.normal(size=r + 1), rng.normal(size=n), rng.normal(size=n)
    V, X = rng.normal(size=(3, r)), rng.normal(size=(3, n))
    weight[: n // 2] = 0
    X[:, n // 3 :: 2] = 0
    bordered = np.column_stack([wide, np.ones(n)])
    some = np.arange(0, n, 7)
    with single_threaded_blas():
        pairs = [
            (F.dot(V), V @ wide.T),
            (F.dot(V[:1]), V[:1] @ wide.T),
            (F.t_dot(X), X @ wide),
            (F.t_dot(X[:1]), X[:1] @ wide),
            (F.bordered_t_dot(x), bordered.T @ x),
            (F.bordered_gram_dot(weight, v), bordered.T @ (weight * (bordered @ v))),
            (F.gram(weight), np.triu(wide.T @ (weight[:, None] * wide))),
            (F.rows(some), wide[some]),
            (F.rows(some, bordered=True), bordered[some]),
            (np.sum(F.exact_t_dot(x), axis=0), wide.T @ x),
            (F.exact_residuals(v[:-1], (v[-1], 0.0), x), bordered @ v - x),
            (F.largest, np.abs(wide).max(axis=0)),
        ]
        gram = F.gram(weight, bordered=True)
        assert not F.dot(0 * V).any()
    expected = bordered.T @ (weight[:, None] * bordered)
    pairs.append((gram[:r], np.triu(expected)[:r]))
    for one, expected in pairs:
        assert one.shape == expected.shape
        assert relative_error(one, expected) < 1e-12


@pytest.mark.parametrize("step", [64, 1000])
def test_sketched_gram(step, rng):
    """The sum of those of blocks, of as many sums as they have weighted rows."""
    Z, weight = rng.normal(size=(300, 5)), rng.uniform(size=300)
    weight[100:200] = 0
    with single_threaded_blas():
        total = recomputed(Z, step).sketched_gram(weight, 60, bordered=True)
        expected = np.zeros((6, 6))
        for start in range(0, 300, step):
            rows = start + np.flatnonzero(weight[start : start + step])
            if len(rows):
                some, n_sums = Features(Z[rows], 1), -(-60 * len(rows) // 200)
                expected += some.sketched_gram(weight[rows], n_sums, bordered=True)
    np.testing.assert_allclose(total, expected, rtol=1e-12)


def test_rows_without_weight_are_not_computed(rng):
    Z, seen = rng.normal(size=(500, 3)), []

    def compute(rows, out, n_threads):
        seen.append(len(rows))
        out[:] = rows

    F = RecomputedFeatures(compute, Z, 3, "float64", 1, 100)
    weight = np.zeros(500)
    weight[210:240] = 1
    with single_threaded_blas():
        F.bordered_gram_dot(weight, np.ones(4))
        F.gram(weight)
        F.t_dot(np.stack([weight, 2 * weight]))
    assert seen == [30, 30, 30]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_solutions(loss, offset, rng):
    """Those of arrays, but for rounding; also where columns are moved to an origin."""
    Z, y = make_data(rng, loss)
    Z = Z + offset
    array = psk.solve(Z, y, loss=loss, alpha=1e-3, tol=1e-8)
    result = psk.solve(recomputed(Z, 170), y, loss=loss, alpha=1e-3, tol=1e-8)
    assert result.converged
    np.testing.assert_allclose(result.objective, array.objective, rtol=2e-8)
    np.testing.assert_allclose(
        result.predict(recomputed(Z, 130)), result.predict(Z), rtol=1e-12
    )


def test_maps_of_all_kinds(rng):
    """Rows that are computed anew are those of `transform`."""
    X = rng.normal(size=(700, 4))
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    for points, options in [
        (X, {}),
        (X.astype("float32"), {}),
        (np.asfortranarray(X)[::-1], {}),
        (sp.csr_array(X), {}),
        (X, dict(kernel=lambda a, b: a @ b.T + 1, gamma=None)),
        (K, dict(kernel="precomputed", gamma=None)),
    ]:
        given = dict(gamma=0.5, sketch=psk.PSparsified(30), random_state=0) | options
        feature_map = psk.FeatureMap(**given)
        features = feature_map.fit_features(points, storage="recomputed")
        Z = feature_map.transform(points)
        tolerance = 1e-3 if Z.dtype == np.float32 else 1e-9
        with single_threaded_blas():
            found = features.formed().rows(np.arange(700))
        np.testing.assert_allclose(found, Z, atol=tolerance)


@pytest.mark.parametrize("loss", ["squared", "huber", "pinball"])
def test_results_do_not_depend_on_threads(loss, rng):
    X = rng.normal(size=(2100, 3))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=2100)
    models = [
        SketchedKernelRegressor(
            loss=loss, n_components=30, random_state=0, n_threads=k,
            feature_storage=storage, memory_limit=10**6,
        ).fit(X, y)
        for storage in ("recomputed", "float32")
        for k in (1, 2, 3)
    ]  # fmt: skip
    for first, *others in (models[:3], models[3:]):
        for other in others:
            np.testing.assert_array_equal(first.coef_, other.coef_)
            assert first.dual_gap_ == other.dual_gap_


@pytest.mark.parametrize("storage, limit", [("recomputed", 0.3), ("float32", 0.8)])
def test_memory_of_a_fit(storage, limit, rng):
    """Shares of the features in float64, all else of the fit included."""
    n, s = 40_000, 300
    X, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    model = SketchedKernelRegressor(
        loss="squared", n_components=s, random_state=0, feature_storage=storage,
        memory_limit=2**24, alpha=1e-3, tol=1e-3,
    )  # fmt: skip
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit * n * s * 8


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_certificate_of_rounded_features(loss, rng):
    """The gap of the machine on the features before they were rounded."""
    X = rng.normal(size=(500, 3))
    _, y = make_data(rng, loss)
    feature_map = make_map()
    features = feature_map.fit_features(X, storage="float32")
    assert features.dtype == np.float32
    Z = feature_map.transform(X)
    assert np.linalg.norm(features.Z - Z, axis=1).max() <= features.row_rounding
    for alpha in (1e-2, 1e-5):
        result = psk.solve(features, y, loss=loss, alpha=alpha, tol=1e-2)
        given = Z.astype(WIDE), y.astype(WIDE)
        primal = primal_objective(
            loss, *given, result.coef, result.intercept, alpha, np.ones(500, WIDE)
        )
        # ζ of rounded features is as feasible for those before
        dual = dual_objective(loss, *given, result.dual, alpha, np.ones(500, WIDE))
        assert primal - dual <= result.dual_gap * result.objective * (1 + 1e-9)
        assert result.dual_gap < 1e-2


def test_rounding_of_storage_is_part_of_the_certificate(rng):
    Z = rng.normal(size=(400, 5))
    y = Z @ np.ones(5) + rng.normal(size=400)
    gaps = [
        psk.solve(
            Features(Z, 1, row_rounding=rounding), y, loss="huber", alpha=1e-3
        ).dual_gap
        for rounding in (0.0, 1e-5)
    ]
    assert gaps[0] < 1e-8 < gaps[1]


@pytest.mark.parametrize("storage", ["float32", "recomputed"])
@pytest.mark.parametrize(
    "estimator",
    [
        SketchedKernelRegressor(),
        SketchedKernelRegressor(loss="squared"),
        SketchedQuantileRegressor(noncrossing="penalty"),
        SketchedKernelClassifier(loss="logistic"),
    ],
)
def test_estimators(estimator, storage, rng, tmp_path):
    X = rng.normal(size=(400, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=400)
    if isinstance(estimator, SketchedKernelClassifier):
        y = np.digitize(y, [-0.3, 0.3])
    estimator.set_params(n_components=20, random_state=0, tol=1e-5, alpha=1e-3)
    expected = estimator.set_params(feature_storage="auto").fit(X, y).predict(X)
    model = estimator.set_params(feature_storage=storage).fit(X, y)
    assert model.converged_
    np.testing.assert_allclose(model.predict(X), expected, atol=0.02)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert again.feature_storage == storage
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_what_comes_back(rng):
    X = rng.normal(size=(300, 2))
    kinds = {
        ("float64", "auto"): FactoredFeatures,
        ("float64", "recomputed"): FactoredFeatures,
        ("float64", "float32"): Features,
        ("float32", "float32"): FactoredFeatures,
    }
    for (dtype, storage), kind in kinds.items():
        features = make_map().fit_features(X.astype(dtype), storage=storage)
        assert type(features) is kind
    inner = make_map().fit_features(X, storage="recomputed").inner
    assert isinstance(inner, RecomputedFeatures)


def test_bad_values(rng):
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    with pytest.raises(ValueError, match="storage must be one of"):
        make_map().fit_features(X, storage="float16")
    with pytest.raises(ValueError, match="feature_storage must be one of"):
        SketchedKernelRegressor(feature_storage="disk").fit(X, y)
    model = SketchedKernelRegressor(n_components="auto", feature_storage="float32")
    with pytest.raises(ValueError, match="needs a number of n_components"):
        model.fit(X, y)
    Z = np.full((50, 2), np.inf)
    with pytest.raises(ValueError, match="features overflow"):
        psk.solve(recomputed(Z, 20), y, alpha=1.0)


def test_advice_names_the_storage(rng):
    Z = rng.normal(size=(300, 4))
    features = Features(Z.astype("float32"), 1, row_rounding=1e-3)
    with pytest.warns(psk.ConvergenceWarning, match="stored in float32 hides more"):
        psk.solve(features, Z[:, 0] + rng.normal(size=300), loss="absolute", alpha=1e-3)


@pytest.mark.parametrize("storage", ["auto", "recomputed", "float32"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("M", ["unequal", "residual"])
def test_squares_of_several_outputs(M, fit_intercept, storage, rng):
    X = rng.normal(size=(800, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2], X[:, 0] + 2])
    Y += 0.1 * rng.normal(size=Y.shape)
    if M == "unequal":
        M = np.array([[2, 0.5, 0], [0.5, 1, 0.2], [0, 0.2, 0.3]])
    options = dict(alpha=1e-3, output_matrix=M, fit_intercept=fit_intercept)
    feature_map = make_map(60)
    result = psk.solve(feature_map.fit_features(X, storage=storage), Y, **options)
    expected = psk.solve(feature_map.transform(X), Y, **options)
    assert result.converged and result.n_iter <= expected.n_iter + 1
    np.testing.assert_allclose(result.objective, expected.objective, rtol=1e-6)


def test_squares_of_several_outputs_have_all_digits(rng):
    """Where the Gram matrix of K·Sᵀ has lost too many, Z is formed."""
    X = rng.normal(size=(1000, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1]]) + 0.1 * rng.normal(size=(1000, 2))
    features = make_map(150).fit_features(X)
    alpha = features.rounding_of_gram(1.0) / 30
    assert psk.solve(features, Y, alpha=alpha, tol=1e-9).converged


@pytest.mark.parametrize("storage", ["recomputed", "float32"])
def test_adam(storage, rng):
    X = rng.normal(size=(200, 2))
    model = SketchedKernelRegressor(
        solver="adam",
        feature_storage=storage,
        n_components=10,
        kappa=1.0,
        tol=0.5,
        alpha=0.01,
        random_state=0,
    )
    if storage == "float32":
        assert model.fit(X, X[:, 0]).score(X, X[:, 0]) > 0.5
        return
    with pytest.raises(ValueError, match="'adam' needs an array of features"):
        model.fit(X, X[:, 0])


def test_blocks_of_which_one_does_not_change(rng):
    Z = rng.normal(size=(1200, 300)) / np.sqrt(300)
    y = Z @ rng.normal(size=300) + 0.3 * rng.normal(size=1200)
    F = FeatureBlocks([recomputed(Z[:100], 64), recomputed(Z[100:], 500)])
    result = psk.solve(F, y, loss="absolute", alpha=1e-4)
    assert result.converged
    with single_threaded_blas():
        assert recomputed(Z, 100).rows(np.arange(0), bordered=True).shape == (0, 301)


def test_what_is_rounded_cannot_be_factored(rng):
    rounded = Features(rng.normal(size=(9, 2)), 1, row_rounding=1e-3)
    with pytest.raises(ValueError, match="neither rounded nor around an origin"):
        FactoredFeatures(rounded, np.eye(2), np.eye(2), 1)


def test_storage_is_checked_before_a_warm_start(rng):
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    model = SketchedKernelRegressor(n_components=5, warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="feature_storage must be one of"):
        model.set_params(feature_storage="x").fit(X, y)
