"""Metrics that are learnt, kernels that are chosen, and machines under a budget."""

import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import mostly_long, only_long
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.inspection import partial_dependence
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import pskernels as psk
from pskernels import metric_learning
from pskernels._matrices import diagonal_of_inverse
from pskernels._products import Features
from pskernels.estimators import (
    AutoKernelClassifier,
    AutoKernelRegressor,
    AutoQuantileRegressor,
    KernelSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
    load,
)
from pskernels.estimators.auto import parse_budget
from pskernels.exact import solve_all_points
from pskernels.metric_learning import KERNELS, MetricLearner, Round, is_learnt
from pskernels.solvers.direct import ridge_path

few_points = pytest.mark.filterwarnings("ignore:n_components=.* is more than")


def make_hidden(rng, n=1500, d=8):
    """Points of which two features matter."""
    X = rng.normal(size=(n, d))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)
    return X, y


@pytest.fixture
def hidden(rng):
    return make_hidden(rng)


# ---- ridge regressions without certificates ----


@pytest.mark.parametrize("outputs", (1, 3))
def test_ridge_path_is_that_of_scikit_learn(outputs, rng):
    Z, y = rng.normal(size=(80, 6)) + 1, rng.normal(size=(80, outputs)) + 2
    weight = rng.uniform(0.5, 2, size=80)
    for ridge in ridge_path(Features(Z, 1), y, [1e-3, 1.0], weight):
        other = Ridge(ridge.alpha * weight.sum()).fit(Z, y, sample_weight=weight)
        np.testing.assert_allclose(ridge.predict(Z), other.predict(Z).reshape(80, -1))


# ---- the learner ----


@pytest.mark.parametrize("kernel", ("rbf", "matern12", "matern32"))
def test_features_that_matter_are_found(kernel, hidden):
    X, y = hidden
    learnt = MetricLearner((kernel,)).learn(X * np.geomspace(1e-3, 1e3, 8), y)
    last = learnt.rounds[-1]
    assert sum(last.importances[:2]) > 0.9
    assert last.loss < 0.6 * learnt.rounds[0].loss
    assert learnt.kernel.metric.is_diagonal and learnt.kernel.name == kernel


@pytest.mark.long
def test_parts_behind_the_first_are_found(rng):
    """A metric that sees one product gives features of the other a weight of 0."""
    X = rng.normal(size=(3000, 10))
    y = 2 * X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) * X[:, 3]
    learnt = MetricLearner(("rbf",)).learn(X, y)
    assert learnt.rounds[-1].loss < 0.1
    assert min(learnt.rounds[-1].importances[:4]) > 0.01
    assert sum(learnt.rounds[-1].importances[:4]) > 0.95


def test_a_full_metric_finds_directions(rng):
    X = rng.normal(size=(1500, 6))
    direction = np.array([1.0, 1, 1, 1, 0, 0]) / 2
    y = np.sin(3 * X @ direction)
    learnt = MetricLearner(("rbf",), metric="learn-full").learn(X, y)
    L = learnt.kernel.metric.L
    values, vectors = np.linalg.eigh(L.T @ L)
    assert L.shape == (6, 6) and values[-1] > 10 * values[-2]
    assert abs(vectors[:, -1] @ direction) > 0.99


def test_the_gradient_of_squares_is_that_of_the_first_round(hidden):
    """The metric of round 1 is the root mean square of gradients, by differences."""
    X, y = hidden
    learner = MetricLearner(("rbf",), gamma=0.1)
    held, _, train = learner._take_points(X, y, None)
    unit = train.X.std(axis=0)
    clock = metric_learning._Clock(None)
    rounds = learner._rounds("rbf", train, held, unit, np.inf, clock)
    first, second = next(rounds), next(rounds)
    squares = np.empty(8)
    for k, shift in enumerate(1e-5 * np.eye(8)):
        change = first.predict(train.X + shift) - first.predict(train.X - shift)
        squares[k] = np.mean((change / 2e-5) ** 2)
    expected = np.sqrt(squares)
    expected /= np.sqrt(np.mean((expected * unit) ** 2))
    np.testing.assert_allclose(second.metric.L, expected, rtol=1e-3)


@pytest.mark.long
def test_what_only_the_spread_sees_is_kept(rng):
    X = rng.normal(size=(3000, 6))
    y = X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=3000)
    shares = {}
    for spread in (False, True):
        learner = MetricLearner(("rbf",), robust=True, spread=spread)
        shares[spread] = learner.learn(X, y).rounds[-1].importances
    assert shares[True][1] > 0.2 and shares[True][0] + shares[True][1] > 0.8


def test_outliers_do_not_move_robust_rounds(hidden, rng):
    X, y = hidden
    y = y.copy()
    y[rng.choice(len(y), 30, replace=False)] += 1e4
    shares = MetricLearner(("rbf",), robust=True).learn(X, y).rounds[-1].importances
    assert sum(shares[:2]) > 0.9


def test_features_of_a_group_weigh_the_same(hidden):
    X, y = hidden
    groups = np.array([0, 0, 1, 1, 1, 2, 2, 2])
    learnt = MetricLearner(("rbf",), groups=groups).learn(X, y)
    weights = learnt.kernel.metric.L * X[: metric_learning.POINTS].std(axis=0)
    for group in range(3):
        assert np.ptp(weights[groups == group]) < 0.05 * weights.max()


def test_weights_count(rng):
    X, y = make_hidden(rng)
    junk = rng.normal(size=(1500, 8))
    both, targets = np.vstack([X, junk]), np.append(y, 3 * junk[:, 5])
    weight = np.repeat([1.0, 1e-9], 1500)
    shares = MetricLearner(("rbf",)).learn(both, targets, weight).rounds[-1].importances
    assert sum(shares[:2]) > 0.85


def test_the_best_kernel_is_chosen(rng):
    X = rng.uniform(-1, 1, size=(1000, 2))
    smooth = MetricLearner(KERNELS).learn(X, np.sin(3 * X[:, 0]) + X[:, 1])
    rough = MetricLearner(KERNELS).learn(X, np.sign(X[:, 0]) + np.sign(X[:, 1]))
    assert smooth.kernel.name in ("rbf", "matern32")
    assert rough.kernel.name in ("laplacian", "matern12")
    best = min(smooth.rounds, key=lambda one: one.loss)
    assert best.loss <= min(one.loss for one in smooth.rounds if one.kernel != "rbf")


def test_targets_without_signal_end(rng):
    for y in (np.zeros(100), rng.normal(size=100)):
        learnt = MetricLearner(("rbf",)).learn(rng.normal(size=(100, 3)), y)
        assert np.isfinite(learnt.rounds[-1].loss)


@pytest.mark.parametrize("constant", (1.0, 0.7))
def test_constant_features(constant, rng):
    """The standard deviation of many 0.7 is not 0 in floating point."""
    X = np.column_stack([np.full(500, constant), rng.normal(size=500)])
    learnt = MetricLearner(("rbf",)).learn(X, X[:, 1])
    assert max(one.importances[0] for one in learnt.rounds) == 0
    assert np.abs(learnt.kernel.metric.L).max() < 10


def test_one_point_and_far_points_are_refused():
    with pytest.raises(ValueError, match="two points or more"):
        MetricLearner(("rbf",)).learn(np.ones((1, 2)), np.ones(1))
    with pytest.raises(ValueError, match="variance of X overflows"):
        MetricLearner(("rbf",)).learn(1e300 * np.eye(9), np.arange(9.0))


def test_rounds_are_checked():
    with pytest.raises(ValueError, match="a name and numbers"):
        Round("rbf", 0, gamma=np.nan, alpha=1.0, loss=1.0, importances=(1.0,))


# ---- estimators ----


@pytest.mark.parametrize(
    "loss", ("huber", only_long("squared"), only_long("absolute"), "pinball")
)
@few_points
def test_regressors_learn_metrics(loss, hidden):
    X, y = hidden
    options = dict(loss=loss, n_components=200, random_state=0)
    plain = SketchedKernelRegressor(**options).fit(X[:1000], y[:1000])
    model = SketchedKernelRegressor(metric="learn", **options).fit(X[:1000], y[:1000])
    before, after = (
        np.mean((one.predict(X[1000:]) - y[1000:]) ** 2) for one in (plain, model)
    )
    assert after < 0.5 * before
    assert model.feature_importances_[:2].sum() > 0.9
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert model.metric_.shape == (8,) and plain.metric_ is None
    assert not hasattr(plain, "feature_importances_") and not hasattr(plain, "rounds_")


@few_points
@pytest.mark.long
def test_other_machines_learn_metrics(hidden):
    X, y = hidden
    options = dict(metric="learn", n_components=200, random_state=0)
    labels = np.digitize(y, [-0.3, 0.3])
    classifier = SketchedKernelClassifier(**options).fit(X, labels)
    quantiles = SketchedQuantileRegressor(**options).fit(X, y)
    several = SketchedKernelRegressor(loss="squared", **options)
    several.fit(X, np.column_stack([y, -y]))
    sketch = KernelSketch(**options).fit(X, np.array(["low", "mid", "up"])[labels])
    for model in (classifier, quantiles, several, sketch):
        assert model.feature_importances_[:2].sum() > 0.85
    assert classifier.predict_gradient(X[:5]).shape == (5, 3, 8)
    assert quantiles.predict_gradient(X[:5]).shape == (5, 3, 8)
    assert several.predict_gradient(X[:5]).shape == (5, 2, 8)


@pytest.mark.parametrize("metric", (np.arange(1.0, 9.0), np.eye(8)[:3]))
@few_points
def test_metrics_that_are_given(metric, hidden):
    X, y = hidden
    options = dict(gamma=0.1, n_components=100, random_state=0, alpha=1e-4)
    model = SketchedKernelRegressor(metric=metric, **options).fit(X, y)
    seen = X * metric if metric.ndim == 1 else X @ metric.T
    other = SketchedKernelRegressor(**options).fit(seen, y)
    np.testing.assert_allclose(model.predict(X), other.predict(seen), atol=1e-6)
    weights = metric**2 if metric.ndim == 1 else (metric**2).sum(axis=0)
    weights = weights * X.var(axis=0)
    np.testing.assert_allclose(model.feature_importances_, weights / weights.sum())


@few_points
def test_gradients_of_quantiles_belong_to_sorted_levels(hidden):
    X, y = hidden
    model = SketchedQuantileRegressor(
        quantiles=np.linspace(0.1, 0.9, 9), n_components=300, alpha=1e-8, random_state=0
    ).fit(X[:200], y[:200])
    found = model.predict_gradient(X[:50])
    step = 1e-6 * np.eye(8)[0]
    change = model.predict(X[:50] + step) - model.predict(X[:50] - step)
    np.testing.assert_allclose(found[..., 0], change / 2e-6, rtol=1e-3, atol=1e-3)


def test_saved_models_keep_their_metric(hidden, tmp_path):
    X, y = hidden
    for metric in ("learn", "learn-full"):
        model = SketchedKernelRegressor(metric=metric, random_state=0).fit(X, y)
        model.save(tmp_path / "model")
        other = load(tmp_path / "model")
        assert np.array_equal(other.predict(X), model.predict(X))
        assert np.array_equal(other.metric_, model.metric_)
        assert other.rounds_ == model.rounds_
        assert np.array_equal(other.feature_importances_, model.feature_importances_)


def test_seeds_and_threads_repeat_a_fit(hidden):
    X, y = hidden
    one, three = (
        SketchedKernelRegressor(metric="learn", n_threads=n, random_state=3).fit(X, y)
        for n in (1, 3)
    )
    assert np.array_equal(one.metric_, three.metric_)
    assert np.array_equal(one.predict(X), three.predict(X))


def test_sparse_and_float32_points_learn(hidden):
    X, y = hidden
    X = np.where(np.abs(X) < 0.3, 0.0, X)
    dense = SketchedKernelRegressor(metric="learn", random_state=0).fit(X, y)
    sparse = clone(dense).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.metric_, dense.metric_, rtol=1e-6)
    small = clone(dense).fit(X.astype(np.float32), y)
    assert small.predict(X.astype(np.float32)).dtype == np.float32
    assert small.feature_importances_[:2].sum() > 0.85


def test_sources_learn_their_metric(hidden):
    from pskernels.sources import Source

    X, y = hidden
    model = SketchedKernelRegressor(
        metric="learn", n_components=50, memory_limit=2**18, random_state=0
    ).fit(Source(X, "X"), y)
    assert model.feature_importances_[:2].sum() > 0.8


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(metric="Learn"), "metric must be one of"),
        (dict(metric=np.ones(3)), "the metric has 3 features, but X has 8"),
        (dict(metric="learn", gamma="scale"), "must be a number, or None"),
        (dict(metric="learn", gamma=-1.0), "gamma must be positive"),
        (dict(metric="learn", kernel=lambda X, Y: X @ Y.T), "needs a kernel by name"),
        (dict(metric="learn", feature_groups=[0, 1]), "a label for each of 8 features"),
        (dict(kernel="Auto"), "kernel must be one of"),
    ],
)
def test_bad_parameters(options, message, hidden):
    with pytest.raises(ValueError, match=message):
        SketchedKernelRegressor(**options).fit(*hidden)


def test_a_transformer_learns_from_targets(hidden):
    X, y = hidden
    with pytest.raises(ValueError, match=r"fit\(X, y\) needs y"):
        KernelSketch(metric="learn").fit(X)
    model = make_pipeline(
        KernelSketch(metric="learn", n_components=200, random_state=0), Ridge(1e-2)
    ).fit(X[:1000], y[:1000])
    assert model.score(X[1000:], y[1000:]) > 0.8


@pytest.mark.long
def test_compressed_models_keep_their_metric(hidden):
    X, y = hidden
    model = SketchedKernelRegressor(metric="learn", p=None, random_state=0).fit(X, y)
    small = model.compress(150)
    assert np.array_equal(small.metric_, model.metric_)
    assert np.mean((small.predict(X) - model.predict(X)) ** 2) < 0.05 * y.var()


def test_categories_share_a_weight(rng):
    """The recipe of the README: one-hot columns of a category are a group."""
    pandas = pytest.importorskip("pandas")
    n = 1500
    frame = pandas.DataFrame(
        dict(
            city=rng.choice(["a", "b", "c", "d"], n),
            colour=rng.choice(["red", "green"], n),
            size=rng.normal(size=n),
            noise=rng.normal(size=n),
        )
    )
    sign = frame["city"].isin(["a", "c"]) * 2 - 1
    y = frame["size"] * sign + 0.1 * rng.normal(size=n)
    columns = ColumnTransformer(
        [("words", OneHotEncoder(), ["city", "colour"])], remainder=StandardScaler()
    ).fit(frame)
    names = [name.split("_")[2] for name in columns.get_feature_names_out()[:6]]
    assert len(names) == 6
    groups = ["city"] * 4 + ["colour"] * 2 + ["size", "noise"]
    model = make_pipeline(
        columns,
        SketchedKernelRegressor(
            loss="squared",
            metric="learn",
            feature_groups=groups,
            n_components=200,
            random_state=0,
        ),
    ).fit(frame[:1000], y[:1000])
    assert model.score(frame[1000:], y[1000:]) > 0.9
    shares = model[-1].feature_importances_
    assert shares[4:6].sum() + shares[7] < 0.1


def test_partial_dependence_of_scikit_learn(hidden):
    X, y = hidden
    model = SketchedKernelRegressor(metric="learn", n_components=200, random_state=0)
    model.fit(X, y)
    spread = [
        np.ptp(partial_dependence(model, X, [k], grid_resolution=9)["average"])
        for k in (1, 7)
    ]
    interaction = partial_dependence(model, X[:200], [0, 1], grid_resolution=5)
    assert spread[1] < 0.3 and np.ptp(interaction["average"]) > 1


def test_a_metric_that_weighs_all_alike_was_not_learnt():
    """That of the first round, which may be the best one; constants weigh nothing."""
    first = Round("rbf", 0, 1.0, 1e-3, 0.5, (0.5, 0.0, 0.5))
    second = Round("rbf", 1, 1.0, 1e-3, 0.6, (0.49, 0.0, 0.51))
    assert not is_learnt([first, second], np.array(first.importances))
    assert is_learnt([first, second], np.array(second.importances))
    assert not is_learnt([first], np.array(second.importances))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)) * [1.0, 10.0, 0.1]
    model = AutoKernelRegressor(budget=2, random_state=0)
    model.fit(X, rng.normal(size=400))  # noise: nothing can be learnt
    if "not learnt" in model.report_:
        np.testing.assert_allclose(model.feature_importances_, 1 / 3)
    else:
        assert np.ptp(model.feature_importances_) > 1e-6


# ---- all points as landmarks ----


@pytest.mark.parametrize(
    "kernel, fit_intercept",
    mostly_long(
        [(k, b) for k in ("rbf", "laplacian", "matern12") for b in (True, False)],
        [("rbf", True), ("matern12", False)],
    ),
)
def test_exact_fits_agree_with_scikit_learn(kernel, fit_intercept, rng):
    X, y = make_hidden(rng, n=2000, d=3)
    weight = rng.uniform(0.5, 2, size=2000)
    model = SketchedKernelRegressor(
        kernel=kernel, gamma=0.5, loss="squared", alpha=1e-4, n_components=2000,
        fit_intercept=fit_intercept, tol=1e-9, random_state=0,
    ).fit(X, y, sample_weight=weight)  # fmt: skip
    assert model.feature_map_.whitening_ is None and model.dual_gap_ <= 1e-9
    K = psk.kernel_matmul(X, None, np.eye(2000), kernel=model.kernel_)
    if not fit_intercept:
        exact = KernelRidge(alpha=1e-4 * weight.sum(), kernel="precomputed")
        expected = exact.fit(K, y, sample_weight=weight).predict(K)
    else:
        M = K + np.diag(1e-4 * weight.sum() / weight)
        system = np.block([[M, np.ones((2000, 1))], [np.ones(2000), np.zeros(1)]])
        solved = np.linalg.solve(system, np.append(y, 0.0))
        expected = K @ solved[:-1] + solved[-1]
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-4 * y.std())


def test_exact_gaps_are_certified(rng):
    """A loose tolerance stops early; its gap bounds the distance from the optimum."""
    X, y = make_hidden(rng, n=2500, d=4)
    options = dict(
        gamma=0.05, loss="squared", alpha=1e-7, n_components=2500, random_state=0
    )
    loose = SketchedKernelRegressor(tol=0.5, **options).fit(X, y)
    tight = SketchedKernelRegressor(tol=1e-8, **options).fit(X, y)
    assert tight.converged_ and tight.n_iter_ >= loose.n_iter_
    assert tight.objective_ <= loose.objective_ * (1 + 1e-12)
    assert loose.objective_ * (1 - loose.dual_gap_) <= tight.objective_ * (1 + 1e-9)


@pytest.mark.parametrize("fit_intercept", (True, False))
def test_leave_one_out_errors_are_those_of_fits_without_a_point(fit_intercept, rng):
    n, alpha = 300, 1e-3
    X, y = make_hidden(rng, n=n, d=3)
    weight = rng.uniform(0.5, 2, size=n)
    weight *= n / weight.sum()
    feature_map = psk.FeatureMap("matern32", gamma=0.3)
    _, errors = solve_all_points(
        feature_map, feature_map.fit_all_points(X), y, alpha, weight, fit_intercept,
        1e-8, None, leave_one_out=True,
    )  # fmt: skip
    K = psk.kernel_matmul(X, None, np.eye(n), kernel=feature_map.kernel_)
    for i in (0, 7, 299):
        rest = np.delete(np.arange(n), i)
        M = K[np.ix_(rest, rest)] + np.diag(n * alpha / weight[rest])
        a, ones = np.linalg.solve(M, np.column_stack([y[rest], np.ones(n - 1)])).T
        b = a.sum() / ones.sum() if fit_intercept else 0.0
        predicted = K[i, rest] @ (a - b * ones) + b
        assert errors[i] == pytest.approx(y[i] - predicted, rel=1e-3, abs=1e-4)


def test_diagonals_of_inverses(rng):
    for n in (1, 5, 95, 97, 191, 193, 600):
        A = rng.normal(size=(n, n + 5))
        H = (A @ A.T / n + np.eye(n)).astype(np.float32)
        U = np.linalg.cholesky(H.astype(float)).T.astype(np.float32).copy()
        found = [diagonal_of_inverse(U, n_threads) for n_threads in (1, 3)]
        np.testing.assert_allclose(found[0], np.linalg.inv(H).diagonal(), rtol=1e-4)
        assert np.array_equal(*found)


@pytest.mark.parametrize("shift, scale", [(0, 0), (1e9, 1), (0, 1e39), (0, 1e-60)])
def test_exact_fits_in_any_unit(shift, scale, rng):
    X, y = make_hidden(rng, n=2000, d=3)
    options = dict(loss="squared", n_components=2000, gamma=0.3, random_state=0)
    plain = SketchedKernelRegressor(**options).fit(X, y)
    other = SketchedKernelRegressor(**options).fit(X, shift + scale * y)
    assert other.converged_ and other.feature_map_.whitening_ is None
    expected = shift + scale * plain.predict(X)
    atol = max(1e-3 * scale, 1e-6 * shift)
    np.testing.assert_allclose(other.predict(X), expected, rtol=0, atol=atol)


def test_what_float32_cannot_solve_is_solved_otherwise(rng):
    X, y = make_hidden(rng, n=2000, d=3)
    model = SketchedKernelRegressor(
        loss="squared", alpha=1e-12, gamma=0.3, n_components=2000, random_state=0
    ).fit(X, y)
    assert model.converged_ and model.score(X, y) > 0.98


def test_warm_starts_with_metrics(hidden):
    X, y = hidden
    model = SketchedKernelRegressor(
        metric=np.arange(1.0, 9.0), feature_groups=np.arange(8), warm_start=True,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    first = model.feature_map_
    assert model.fit(X, y + 1).feature_map_ is first
    assert model.set_params(metric=np.ones(8)).fit(X, y).feature_map_ is not first


def test_batches_and_sources_take_the_alpha_that_was_learnt(hidden):
    from pskernels.sources import Source

    X, y = hidden
    options = dict(metric="learn", loss="squared", n_components=50, random_state=0)
    whole = SketchedKernelRegressor(**options).fit(X, y)
    batch = SketchedKernelRegressor(**options).partial_fit(X, y)
    assert batch.alpha_ == pytest.approx(whole.alpha_)
    source = SketchedKernelRegressor(memory_limit=2**18, **options)
    source.fit(Source(X, "X"), y)
    assert source.alpha_ == pytest.approx(source._penalty / len(y))


@pytest.mark.long
def test_searches_over_kernels_metrics_and_rows(hidden):
    X, y = hidden
    search = SketchedKernelRegressorCV(
        kernel=["rbf", "laplacian"], metric=[None, "learn"], n_components=[50, 150],
        alphas=[1e-3, 1e-5], gammas=[0.05, 0.2], cv=2, random_state=0,
    ).fit(X, y)  # fmt: skip
    assert len(search.cv_results_["params"]) == 2 * 2 * 2 * (2 + 1)
    assert search.best_params_["metric"] == "learn"
    assert search.best_params_["n_components"] == 150
    given = SketchedKernelRegressorCV(
        metric=[np.ones(8), np.array([1.0, 1, 0, 0, 0, 0, 0, 0])], cv=2, random_state=0
    ).fit(X, y)
    assert given.best_params_["metric"].L[2] == 0


def test_gammas_of_searches_see_the_metric(hidden):
    X, y = hidden
    options = dict(cv=2, alphas=[1e-4], random_state=0)
    plain = SketchedKernelRegressorCV(**options).fit(X, y)
    other = SketchedKernelRegressorCV(metric=np.full(8, 1e-3), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of features that drown others
        other.fit(1e3 * X, y)
    assert other.best_score_ == pytest.approx(plain.best_score_, rel=1e-6)
    assert other.best_params_["gamma"] == pytest.approx(plain.best_params_["gamma"])


def test_fourier_features_see_the_metric(rng):
    X, L = rng.normal(size=(20, 3)), np.array([1.0, 0.0, 2.0])
    Z = psk.RandomFourierFeatures(
        20_000, kernel=psk.RBF(0.3, metric=L), random_state=0
    ).fit_transform(X)
    K = psk.kernel_matmul(X, None, np.eye(20), gamma=0.3, metric=L)
    assert np.abs(Z @ Z.T - K).max() < 0.05


def test_exact_fits_are_saved_and_refuse_features(rng, tmp_path):
    X, y = make_hidden(rng, n=2000, d=3)
    model = SketchedKernelRegressor(
        loss="squared", n_components=2000, random_state=0
    ).fit(X, np.column_stack([y, -y]))
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    assert model.predict_gradient(X[:3]).shape == (3, 2, 3)
    with pytest.raises(ValueError, match="no features"):
        model.feature_map_.transform(X)


def test_exact_fits_warn_of_more_rows_than_points(rng):
    X, y = make_hidden(rng, n=2000, d=3)
    with pytest.warns(UserWarning, match="n_components=3000 is more than the 2000"):
        SketchedKernelRegressor(loss="squared", n_components=3000).fit(X, y)


def test_exact_threads_do_not_change_a_bit(rng):
    X, y = make_hidden(rng, n=2100, d=3)
    one, three = (
        SketchedKernelRegressor(
            loss="squared", n_components=2100, n_threads=n, random_state=0
        ).fit(X, y)
        for n in (1, 3)
    )
    assert np.array_equal(one.dual_coef_, three.dual_coef_)


# ---- machines that choose everything ----


def test_auto_regression(rng):
    X, y = make_hidden(rng, n=2000)
    model = AutoKernelRegressor(budget="4 s", random_state=0).fit(X[:1500], y[:1500])
    assert model.score(X[1500:], y[1500:]) > 0.9
    assert model.feature_importances_[:2].sum() > 0.9
    assert "all points" in model.report_ and "budget 4 s" in model.report_
    assert model.converged_


@pytest.mark.long
def test_auto_quantiles_and_classes(rng, tmp_path):
    X, y = make_hidden(rng, n=2000)
    quantiles = AutoQuantileRegressor(budget=4, random_state=0).fit(X[:1500], y[:1500])
    predicted = quantiles.predict(X[1500:])
    assert (np.diff(predicted, axis=1) >= 0).all()
    inside = (predicted[:, 0] <= y[1500:]) & (y[1500:] <= predicted[:, 2])
    assert 0.7 < inside.mean() < 0.9
    assert "leave-one-out errors" in quantiles.report_
    assert quantiles.predict_gradient(X[:3]).shape == (3, 3, 8)
    labels = np.where(y > 0, "up", "down")
    classes = AutoKernelClassifier(budget=3, random_state=0)
    classes.fit(X[:1500], labels[:1500])
    assert classes.score(X[1500:], labels[1500:]) > 0.85
    assert classes.predict_proba(X[1500:]).shape == (500, 2)
    for model in (quantiles, classes):
        assert "n·alpha" in model.report_
        model.save(tmp_path / "model")
        assert np.array_equal(load(tmp_path / "model").predict(X), model.predict(X))


def test_weights_of_classes_count_once(rng, monkeypatch):
    X, y = make_hidden(rng, n=600)
    labels = (y > np.quantile(y, 0.85)).astype(int)
    seen = []
    solve = SketchedKernelClassifier._solve

    def record(self, Z, y, weight, *args, **options):
        seen.append(np.unique(np.round(weight, 6)))
        return solve(self, Z, y, weight, *args, **options)

    monkeypatch.setattr(SketchedKernelClassifier, "_solve", record)
    AutoKernelClassifier(class_weight="balanced", budget=2, random_state=0).fit(
        X, labels
    )
    expected = np.round(600 / (2 * np.bincount(labels)), 6)
    assert all(np.array_equal(weights, np.sort(expected)) for weights in seen)


@pytest.mark.long
def test_constant_and_several_targets(rng):
    X, y = make_hidden(rng, n=300)
    for targets in (np.full(300, 3.7), np.column_stack([y, -y])):
        model = AutoKernelRegressor(budget=2, random_state=0).fit(X, targets)
        assert np.isfinite(model.predict(X)).all()
    constant = AutoQuantileRegressor(budget=2, random_state=0).fit(X, np.full(300, 3.7))
    np.testing.assert_allclose(constant.predict(X), 3.7)
    model = AutoKernelRegressor(loss="pinball", budget=2, random_state=0)
    assert model.fit(X, y[:, None]).predict(X).shape == (300, 1)


def test_auto_with_another_loss_and_weights(rng):
    X, y = make_hidden(rng, n=1200)
    weight = np.append(np.ones(1100), np.zeros(100))
    y = np.append(y[:1100], np.full(100, 1e6))
    model = AutoKernelRegressor(loss="huber", budget=3, random_state=0)
    model.fit(X, y, sample_weight=weight)
    assert np.mean((model.predict(X[:1100]) - y[:1100]) ** 2) < 0.2 * y[:1100].var()


def test_a_small_budget_is_kept(rng):
    X, y = make_hidden(rng, n=4000)
    began = time.perf_counter()
    model = AutoKernelRegressor(budget="1 s", random_state=0).fit(X, y)
    assert time.perf_counter() - began < 10  # on a machine that others use
    assert np.isfinite(model.predict(X[:5])).all()


@pytest.mark.parametrize(
    "budget, seconds",
    [
        (3, 3.0),
        ("30 s", 30),
        ("2min", 120),
        (" 1.5 h ", 5400),
        ("30", 30),
        ("10 sec", 10),
        ("1 minute", 60),
        ("2 hours", 7200),
        ("3m", 180),
        ("1 Hr", 3600),
    ],
)
def test_budgets(budget, seconds):
    assert parse_budget(budget) == seconds


@pytest.mark.parametrize("budget", ("soon", -1, "0 s", "1.2.3 s", "3 sm", None, np.inf))
def test_bad_budgets(budget):
    with pytest.raises((ValueError, TypeError), match="budget"):
        AutoKernelRegressor(budget=budget).fit(np.eye(5), np.arange(5.0))


def test_auto_refuses_what_machines_refuse(rng):
    X, y = make_hidden(rng, n=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="NaN|finite|infinity"):
            AutoKernelRegressor(budget=1).fit(np.where(X > 2, np.nan, X), y)
        with pytest.raises(ValueError, match="y must hold numbers"):
            AutoKernelRegressor(budget=1).fit(X, np.where(y > 0, "a", "b"))
