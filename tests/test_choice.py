"""Choosing the sketch by the data: sparsity, rows, and gamma."""

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from conftest import only_long
from sklearn.base import clone
from test_estimators import few_points, make_data
from test_memory import MB, peak_below

import pskernels as psk
from pskernels import _tiles, choice
from pskernels._validation import check_points
from pskernels.estimators import (
    KernelSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
)

SKETCHES = {
    "p-sr": lambda s: psk.PSparsified(s, 0.05),
    "p-sg": lambda s: psk.PSparsified(s, 0.05, "gaussian"),
    "dense": lambda s: psk.PSparsified(s, 0.6),
    "gaussian": psk.Gaussian,
    "nystroem": psk.SubSampling,
    "accumulation": lambda s: psk.Accumulation(s, m=3),
    "count-sketch": psk.CountSketch,
    "ros": psk.ROS,
}
EXTENDING = tuple(name for name in SKETCHES if name != "count-sketch")


# ---- sketches that grow ----


@pytest.mark.parametrize("name", SKETCHES)
def test_more_rows_extend_a_sketch(name):
    make = SKETCHES[name]
    small, large = make(10).draw(300, 5), make(25).draw(300, 5)
    same = np.allclose(
        small.to_dense() / small.scale, large.to_dense()[:10] / large.scale
    )
    assert same == (name in EXTENDING) == make(10).extends


@pytest.mark.parametrize("name", SKETCHES)
def test_rows_of_a_sketch(name):
    sketch = SKETCHES[name](12).draw(200, 0)
    rows = sketch.take_rows(4, 9)
    np.testing.assert_array_equal(rows.to_dense(), sketch.to_dense()[4:9])
    assert (rows.to_dense() != 0).any(axis=0).sum() == len(rows.indices)


@pytest.mark.parametrize("form", ["dense", "sparse", "float32", "precomputed"])
@pytest.mark.parametrize("name", SKETCHES)
def test_growing_features_are_those_of_the_sketch(name, form, rng):
    X = rng.normal(size=(300, 3))
    kernel = psk.RBF(0.5)
    K = reference.rbf(X, X, 0.5)
    if form == "sparse":
        X = sp.csr_array(X)
    elif form == "float32":
        X = X.astype(np.float32)
    elif form == "precomputed":
        X, kernel = K, "precomputed"

    def make_map(sketch):
        return psk.FeatureMap(kernel, sketch=sketch)

    features = choice.GrowingFeatures(make_map, SKETCHES[name], X, seed=3)
    for s in (5, 10, 20):
        feature_map, Z = features.grow(s)
        S = SKETCHES[name](s).draw(300, 3).to_dense()
        cut = s * np.finfo(Z.dtype).eps
        expected = reference.sketched_kernel(K, K, S, cut)
        Z = Z.astype(float)
        tolerance = 1e-3 if form == "float32" else 1e-9
        assert reference.relative_error(Z @ Z.T, expected) < tolerance
        np.testing.assert_allclose(feature_map.transform(X), Z, atol=10 * tolerance)


def test_rows_are_computed_once(rng, monkeypatch):
    X = rng.normal(size=(400, 3))
    values = []
    fill = _tiles.fill_product

    def counted(out, tiles, *rest, **options):
        if tiles.n == len(X):  # not S·K·Sᵀ
            values.append(tiles.m * tiles.n)
        return fill(out, tiles, *rest, **options)

    monkeypatch.setattr(_tiles, "fill_product", counted)
    features = choice.GrowingFeatures(
        lambda sketch: psk.FeatureMap(sketch=sketch), psk.SubSampling, X, seed=0
    )
    for s in (20, 40, 80):
        features.grow(s)
    assert sum(values) == 80 * 400


def test_growth_stops_where_it_no_longer_pays(rng):
    X = rng.uniform(-1, 1, size=(1000, 2))
    y = np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * rng.normal(size=1000)
    steps = {}
    for gamma in (0.05, 30.0):  # a kernel of few, and of many eigenvalues
        model = SketchedKernelRegressor(
            n_components="auto", gamma=gamma, alpha=1e-6, random_state=0
        ).fit(X, y)
        rows = [step.n_components for step in model.growth_]
        assert rows == [64 * 2**k for k in range(len(rows))] or rows[-1] == 1000
        losses = [step.value for step in model.growth_]
        gains = -np.diff(losses) / losses[:-1]
        assert (gains[:-1] > 0.01).all()
        taken_back = gains[-1] <= 0.01
        kept = model.growth_[-2 if taken_back else -1]
        assert model.sketch_.shape[0] == kept.n_components
        assert len(model.landmarks_) == kept.n_landmarks
        steps[gamma] = len(rows)
    assert model.score(X, y) > 0.95
    assert steps[0.05] < steps[30.0]


@few_points
@pytest.mark.parametrize(
    "estimator",
    [
        KernelSketch(gamma=3.0),
        SketchedKernelRegressor(gamma=3.0, loss="squared", sketch="nystroem"),
        SketchedKernelRegressor(gamma=3.0, p="auto"),
        SketchedKernelRegressor(gamma=3.0, sketch="ros"),
        SketchedQuantileRegressor(gamma=3.0, quantiles=[0.3, 0.7]),
        only_long(SketchedKernelClassifier(gamma=3.0)),
    ],
    ids=str,
)
def test_every_estimator_can_grow(estimator, rng):
    X, y = make_data(rng)
    if isinstance(estimator, SketchedKernelClassifier):
        y = np.digitize(y, [0, 1])
    model = clone(estimator).set_params(n_components="auto", random_state=0)
    model.fit(X, y)
    assert len(model.growth_) >= 2
    looser = clone(model).set_params(rtol=0.5).fit(X, y)
    assert len(looser.growth_) <= len(model.growth_)
    if not hasattr(model, "transform"):
        model.fit(X, y, sample_weight=rng.uniform(size=len(y)))
        for n in (20, 3):
            assert model.fit(X[:n], y[:n]).growth_[0].n_components == n


def test_growth_keeps_to_the_memory_limit(rng):
    X = rng.uniform(-1, 1, size=(3000, 3))
    y = np.sin(9 * X).sum(axis=1)
    model = SketchedKernelRegressor(
        n_components="auto", gamma=20.0, memory_limit=16 * MB, random_state=0
    )
    with (
        pytest.warns(UserWarning, match="stopped at 139 rows, the most"),
        peak_below(32 * MB),
    ):
        model.fit(X, y)
    assert model.growth_[-1].n_components == 139
    plain = model.set_params(n_components=50).fit(X, y)
    assert not hasattr(plain, "growth_")


def test_growth_is_checked(rng):
    X, y = make_data(rng)
    for parameters, message in [
        (dict(n_components="many"), "n_components must be a number or 'auto'"),
        (dict(n_components="auto", rtol=0.0), "rtol must be positive"),
        (dict(n_components="auto", sketch=psk.Gaussian(5)), "a sketch by name"),
    ]:
        with pytest.raises(ValueError, match=message):
            SketchedKernelRegressor(**parameters).fit(X, y)
    with pytest.raises(ValueError, match="n_components must be a number here"):
        SketchedKernelRegressorCV(n_components="auto").fit(X, y)


# ---- p ----


def rare_cluster(rng, n=4000):
    """A hundredth of the points far away, with targets that are far as well."""
    X = rng.uniform(size=(n, 5))
    X[: n // 100] = rng.normal(1.5, 0.25, size=(n // 100, 5))
    y = X[:, 0] + np.exp(4 * X[:, 1]) + 0.1 * rng.normal(size=n)
    order = rng.permutation(n)
    return X[order], y[order]


def row_entries(model):
    return model.sketch_.weights.nnz / model.sketch_.shape[0]


@pytest.mark.parametrize("sketch", ["p-sr", "p-sg"])
def test_a_rare_part_that_matters_asks_for_a_dense_sketch(sketch, rng):
    X, y = rare_cluster(rng)
    model = SketchedKernelRegressor(
        n_components=100, p="auto", sketch=sketch, gamma=0.5, random_state=0
    )
    assert row_entries(model.fit(X, y)) == pytest.approx(50, rel=0.1)
    transformer = KernelSketch(p="auto", sketch=sketch, gamma=0.5, random_state=0)
    assert row_entries(transformer.fit(X, y)) == pytest.approx(50, rel=0.1)
    # without targets, or with others, nothing matters more than the rest
    even = np.sin(X.sum(axis=1))
    for fitted in (
        transformer.fit(X),
        clone(model).fit(X, even),
        clone(model).fit(X, np.ones(len(X))),
    ):
        assert row_entries(fitted) == 1  # Nyström


def test_a_rare_part_is_learnt(rng):
    """Better than by Nyström's sketch, on new points of the same kind."""
    errors = {}
    for seed in range(5):
        X, y = rare_cluster(rng)
        X_new, y_new = rare_cluster(rng)
        for sketch in ("p-sr", "nystroem"):
            model = SketchedKernelRegressor(
                n_components=100,
                sketch=sketch,
                gamma=0.5,
                loss="squared",
                random_state=seed,
            ).fit(X, y)
            errors.setdefault(sketch, []).append(1 - model.score(X_new, y_new))
    assert np.mean(errors["p-sr"]) < 0.7 * np.mean(errors["nystroem"])


@pytest.mark.parametrize("kernel", ["linear", "polynomial", "cosine", "rbf"])
def test_rounding_is_no_part_that_matters(kernel, rng):
    """Kernels that 32 points see all of: what is left is rounding, of either sign."""
    X = rng.normal(size=(2500, 1 if kernel == "rbf" else 2))
    y = X[:, 0] + 0.1 * rng.normal(size=2500)
    for seed in range(4):
        model = SketchedKernelRegressor(
            n_components=100, kernel=kernel, loss="squared", random_state=seed
        )
        assert len(model.fit(X, y).landmarks_) == 100
    constant = SketchedKernelRegressor(n_components=100, loss="squared")
    constant.fit(np.ones((2500, 2)), y)
    assert len(constant.landmarks_) == 100


def test_targets_of_points_without_weight_do_not_choose_the_sketch(rng):
    X, y = rare_cluster(rng)
    weight = np.where(X.max(axis=1) > 1, 0.0, 1.0)  # the rare part
    other = np.where(weight > 0, np.sin(X[:, 0]), 1e3)

    def make_map(sketch):
        return psk.FeatureMap(gamma=0.5, sketch=sketch)

    options = make_map, X, other, 100, "rademacher", 0
    assert isinstance(choice.choose_sketch(*options), psk.PSparsified)
    chosen = choice.choose_sketch(*options, weight=weight)
    assert isinstance(chosen, psk.SubSampling)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_the_unit_of_targets_does_not_choose_the_sketch(size, rng):
    X, y = rare_cluster(rng)

    def make_map(sketch):
        return psk.FeatureMap(gamma=0.5, sketch=sketch)

    chosen = choice.choose_sketch(make_map, X, size * y, 100, "rademacher", 0)
    assert isinstance(chosen, psk.PSparsified)


def test_landmarks_are_limited(rng):
    X, y = rare_cluster(rng)
    entries = {
        s: row_entries(
            SketchedKernelRegressor(n_components=s, gamma=0.5, random_state=0).fit(X, y)
        )
        for s in (100, 400)
    }
    assert entries[100] == pytest.approx(50, rel=0.1)
    assert entries[400] == pytest.approx(25, rel=0.1)
    n = choice.MOST_LANDMARKS
    many = np.zeros((n, 1)), np.zeros(n)
    chosen = choice.choose_sketch(None, *many, n // 2 + 1, "rademacher", 0)
    assert isinstance(chosen, psk.SubSampling)


def test_few_points_have_the_sketch_of_the_paper(rng):
    X, y = rng.normal(size=(choice.FEW_POINTS + 1, 2)), None
    for n, expected in (
        (2000, psk.PSparsified(9, 0.01)),
        (50, psk.PSparsified(9, 0.4)),
    ):
        assert choice.choose_sketch(None, X[:n], y, 9, "rademacher", 0) == expected
    assert isinstance(
        choice.choose_sketch(None, X, y, 9, "rademacher", 0), psk.SubSampling
    )


@pytest.mark.parametrize("kernel", ["polynomial", "linear", "precomputed", "cosine"])
def test_p_of_other_kernels(kernel, rng):
    X, y = rare_cluster(rng, n=1500)
    X = X @ X.T if kernel == "precomputed" else X
    model = SketchedKernelRegressor(kernel=kernel, p="auto", random_state=0).fit(X, y)
    assert 4 < row_entries(model) < 56
    assert np.isfinite(model.predict(X)).all()


def test_p_is_checked(rng):
    X, y = make_data(rng)
    for parameters, message in [
        (dict(p="best"), "p must be a number or 'auto'"),
        (dict(p=0.1, sketch="nystroem"), "sketch 'nystroem' takes no p"),
        (dict(p=0.1, sketch=psk.PSparsified(9)), "takes no p, but p=0.1 was given"),
    ]:
        with pytest.raises(ValueError, match=message):
            SketchedKernelRegressor(**parameters).fit(X, y)


# ---- gamma ----


def test_gamma_by_folds(rng):
    X = rng.uniform(-1, 1, size=(800, 2))
    y = np.sin(12 * X[:, 0]) + 0.1 * rng.normal(size=800)  # needs a large gamma
    by_folds = SketchedKernelRegressor(gamma="cv", random_state=0).fit(X, y)
    scale = 1 / X.var(axis=0).sum()
    assert by_folds.kernel_.gamma == pytest.approx(3 * scale)
    assert by_folds.gamma == "cv"
    smooth = SketchedKernelRegressor(gamma="cv", random_state=0).fit(X, X[:, 0])
    assert smooth.kernel_.gamma < scale
    labels = SketchedKernelClassifier(gamma="cv", alpha=1e-5, random_state=0)
    labels.fit(X, y > 0)
    assert labels.score(X, y > 0) > 0.95
    with pytest.raises(ValueError, match="gamma='cv' needs a kernel that has a gamma"):
        SketchedKernelRegressor(kernel="linear", gamma="cv").fit(X, y)
    both = SketchedKernelRegressor(
        gamma="cv", alpha=1e-5, n_components="auto", random_state=0
    )
    assert both.fit(X, y).score(X, y) > 0.8
    with pytest.raises(ValueError, match="gamma must be a positive number, 'scale'"):
        KernelSketch(gamma="cv").fit(X)


def best_gamma(X, y, weight, gammas, alpha):
    """The best of gammas by R² of kernel ridge regressions, in three folds."""
    scores = np.zeros(len(gammas))
    for test in np.array_split(np.arange(len(X)), 3):
        train = np.setdiff1d(np.arange(len(X)), test)
        share = weight[train] / weight[train].sum()
        mean = np.average(y[test], weights=weight[test])
        for k, gamma in enumerate(gammas):
            K = reference.rbf(X[train], X[train], gamma) + np.diag(alpha / share)
            ones = np.ones((len(train), 1))
            system = np.block([[K, ones], [ones.T, np.zeros((1, 1))]])
            *dual, intercept = np.linalg.solve(system, np.append(y[train], 0.0))
            predicted = reference.rbf(X[test], X[train], gamma) @ dual + intercept
            errors = weight[test] @ (y[test] - predicted) ** 2
            scores[k] -= errors / (weight[test] @ (y[test] - mean) ** 2)
    return gammas[np.argmax(scores)]


def test_gamma_by_folds_of_some_points(monkeypatch, rng):
    """Others, and those of hardly any weight, would ask for another gamma."""
    monkeypatch.setattr("pskernels.estimators.search.GAMMA_POINTS", 150)
    X = rng.uniform(-1, 1, size=(400, 1))
    weight = rng.choice([1e-3, 1.0], size=400)
    some = np.random.default_rng(5).permutation(400)[:150]
    smooth = some[weight[some] == 1]
    y = 2 * np.sin(12 * X[:, 0])
    y[smooth] = X[smooth, 0] ** 2 + 0.1 * rng.normal(size=len(smooth))
    mean = np.average(X, axis=0, weights=weight)
    scale = 1 / np.average((X - mean) ** 2, axis=0, weights=weight).sum()
    gammas = scale * np.array([1 / 27, 1 / 9, 1 / 3, 1.0, 3.0])
    model = SketchedKernelRegressor(
        # as many rows as a fold has training points: kernel ridge regression itself
        gamma="cv",
        loss="squared",
        alpha=1e-4,
        sketch="nystroem",
        n_components=100,
        p=None,
        random_state=5,
    ).fit(X, y, sample_weight=weight)
    best = best_gamma(X[some], y[some], weight[some], gammas, 1e-4)
    assert model.kernel_.gamma == pytest.approx(best, rel=1e-12)
    for others in (np.arange(400), np.arange(150)):
        assert best_gamma(X[others], y[others], weight[others], gammas, 1e-4) != best
    assert best_gamma(X[some], y[some], weight[:150], gammas, 1e-4) != best


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "kernel",
    [psk.Polynomial(gamma=0.5, degree=2), psk.Linear(), psk.Cosine(), psk.Sobolev()],
    ids=str,
)
def test_diagonal(kernel, sparse, rng):
    """Against all of K; a point of zeros among them."""
    X = rng.uniform(size=(40, 3))
    X[2] = 0
    expected = np.diag(psk.kernel_matmul(X, None, np.eye(40), kernel=kernel))
    points = check_points(sp.csr_array(X), "X", accept_sparse=True) if sparse else X
    diagonal = kernel.diagonal(points, np.arange(40))
    np.testing.assert_allclose(diagonal, expected, rtol=1e-12)
