"""Calibrated intervals of estimators: the promised share, against other code."""

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pskernels as psk
from pskernels.estimators import (
    AutoKernelRegressor,
    SketchedKernelRegressor,
    SketchedQuantileRegressor,
    SketchedQuantileRegressorCV,
    load,
)
from pskernels.estimators.calibration import FOLDS, HELD_OUT

RARE = 1e-6  # the probability that a right machine fails a test

CALIBRATED = {
    "levels, split": SketchedQuantileRegressor(calibration="split"),
    "levels, folds": SketchedQuantileRegressor(calibration="cv+"),
    "median, split": SketchedQuantileRegressor(quantiles=0.5, calibration="split"),
    "huber, split": SketchedKernelRegressor(calibration="split"),
    "huber, folds": SketchedKernelRegressor(calibration="cv+"),
    "studentised, split": SketchedKernelRegressor(
        calibration="split", interval_scores="studentised"
    ),
    "studentised, folds": SketchedKernelRegressor(
        calibration="cv+", interval_scores="studentised"
    ),
    "squares, points": SketchedKernelRegressor(
        loss="squared", calibration="jackknife+"
    ),
}


def draw(n, seed):
    """Errors grow with the second feature, and have a long upper tail."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3))
    errors = rng.exponential(size=n) - 0.3 * rng.exponential(size=n)
    return X, np.sin(3 * X[:, 0]) + (0.1 + np.abs(X[:, 1])) * errors


@pytest.fixture(params=CALIBRATED, scope="module")
def fitted(request):
    model = clone(CALIBRATED[request.param])
    model.set_params(n_components=60, random_state=0, tol=1e-4)
    return model.fit(*draw(800, seed=1))


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95])
def test_intervals_keep_their_coverage(fitted, coverage):
    """By split, what one side misses of m new points is beta-binomial.

    Two sides of CQR, or the one of absolute scores, are each a rank among held-out
    points.  Folds and leave-one-out are exact for no machine: a tenth more is allowed.
    """
    X, y = draw(4000, seed=2)
    low, high = fitted.predict_interval(X, coverage).T
    levels = isinstance(fitted, SketchedQuantileRegressor)
    share = (1 + coverage) / 2 if levels else coverage
    sides = [y < low, y > high] if levels else [(y < low) | (y > high)]
    n = len(fitted.calibration_.y)
    rank = np.ceil((n + 1) * share)
    law = stats.betabinom(len(y), n + 1 - rank, rank)
    slack = 0.0 if fitted.calibration == "split" else 0.1 * len(y) * (1 - share)
    for missed in sides:
        assert missed.sum() <= law.ppf(1 - RARE) + slack
        assert missed.sum() >= law.ppf(RARE) - slack - 0.02 * len(y) * (slack > 0)


def test_intervals_are_wide_where_errors_are(fitted):
    X, _ = draw(2000, seed=3)
    low, high = fitted.predict_interval(X, 0.9).T
    far = np.abs(X[:, 1]) > 0.7
    ratio = np.mean((high - low)[far]) / np.mean((high - low)[np.abs(X[:, 1]) < 0.3])
    adaptive = (
        isinstance(fitted, SketchedQuantileRegressor)
        and len(fitted.quantiles_) > 1
        or getattr(fitted, "interval_scores", "") == "studentised"
    )
    assert ratio > 1.5 if adaptive else ratio == pytest.approx(1, abs=0.1)


def test_saved_models_have_the_same_intervals(fitted, tmp_path):
    X, _ = draw(50, seed=4)
    fitted.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(
        loaded.predict_interval(X, 0.8), fitted.predict_interval(X, 0.8)
    )


def test_out_sources_and_blocks(fitted, tmp_path):
    X, _ = draw(300, seed=5)
    expected = fitted.predict_interval(X, 0.9)
    out = np.empty_like(expected)
    assert fitted.predict_interval(X, 0.9, out=out) is out
    np.testing.assert_array_equal(out, expected)
    np.save(tmp_path / "X.npy", X)
    found = fitted.predict_interval(tmp_path / "X.npy", 0.9)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_split_holds_out_points_that_the_machine_has_not_seen():
    X, y = draw(400, seed=6)
    model = SketchedKernelRegressor(calibration="split", random_state=3).fit(X, y)
    held = model.calibration_
    assert len(held.y) == HELD_OUT * 400
    # changing the held-out targets changes no prediction
    numbers = np.flatnonzero(np.isin(y, held.y))
    other = y.copy()
    other[numbers] += 100
    again = clone(model).fit(X, other)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    # and scores are errors of these predictions
    np.testing.assert_allclose(held.predicted[:, 0], model.predict(X[numbers]))


def test_machines_of_folds_are_fits_to_the_other_folds():
    X, y = draw(200, seed=7)
    model = SketchedQuantileRegressor(
        calibration="cv+", n_components=50, random_state=0, tol=1e-9
    ).fit(X, y)
    held, Z = model.calibration_, model.feature_map_.transform(X)
    assert np.bincount(held.folds).tolist() == [200 // FOLDS] * FOLDS
    for k in range(FOLDS):
        rest = held.folds != k
        result = psk.solve(
            Z[rest],
            y[rest],
            loss=psk.Pinball(model.quantiles_),
            alpha=model.alpha_,
            tol=1e-9,
        )
        np.testing.assert_allclose(
            held.predicted[~rest], result.predict(Z[~rest]), atol=2e-3
        )
    columns = held.predict(X, model.feature_map_)
    own = columns[np.arange(200), held.folds]
    np.testing.assert_allclose(own, held.predicted, atol=1e-9)


@pytest.mark.parametrize("storage", ["auto", "float32", "recomputed"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_squares_of_folds_by_subtraction(weighted, fit_intercept, storage, rng):
    """One Gram matrix, less that of each fold, against scikit-learn's `Ridge`."""
    X, y = draw(300, seed=21)
    weight = rng.uniform(0.5, 2, size=300) if weighted else None
    model = SketchedKernelRegressor(
        loss="squared",
        calibration="cv+",
        n_components=40,
        alpha=1e-6,
        fit_intercept=fit_intercept,
        feature_storage=storage,
        random_state=0,
    ).fit(X, y, weight)
    held, Z = model.calibration_, model.feature_map_.transform(X)
    for k in range(FOLDS):
        rest = held.folds != k
        some = np.ones(rest.sum()) if weight is None else weight[rest]
        ridge = Ridge(alpha=1e-6 * some.sum(), fit_intercept=fit_intercept)
        ridge.fit(Z[rest], y[rest], some)
        atol = 1e-3 if storage == "float32" else 1e-7
        np.testing.assert_allclose(
            held.predicted[~rest, 0], ridge.predict(Z[~rest]), atol=atol
        )
    own = held.predict(X, model.feature_map_)[np.arange(300), held.folds]
    np.testing.assert_allclose(own, held.predicted, atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_machines_without_a_point_are_fits_to_the_others(weighted, fit_intercept, rng):
    """Jackknife+ by brute force: ridge regression without each point."""
    X, y = draw(60, seed=8)
    weight = rng.uniform(0.5, 2, size=60) if weighted else None
    model = SketchedKernelRegressor(
        loss="squared",
        calibration="jackknife+",
        n_components=20,
        alpha=1e-3,
        fit_intercept=fit_intercept,
        random_state=0,
    ).fit(X, y, weight)
    X_new = draw(7, seed=9)[0]
    Z, Z_new = (model.feature_map_.transform(points) for points in (X, X_new))
    ends, scores = np.empty((7, 60)), np.empty(60)
    total = 60.0 if weight is None else weight.sum()
    for i in range(60):
        rest = np.arange(60) != i
        some = None if weight is None else weight[rest]
        share = (59.0 if weight is None else some.sum()) / total
        result = psk.solve(
            Z[rest],
            y[rest],
            loss="squared",
            alpha=1e-3 / share,  # n·alpha is the same
            sample_weight=some,
            fit_intercept=fit_intercept,
            tol=1e-12,
        )
        ends[:, i] = result.predict(Z_new)
        scores[i] = np.abs(y[i] - result.predict(Z[i : i + 1])[0])
    (machines,) = model.calibration_.models
    columns = machines.predict(X_new, model.feature_map_)
    np.testing.assert_allclose(machines.ends(columns, np.arange(60)), ends, atol=1e-6)
    if not weighted:
        rank = int(np.ceil(61 * 0.8)) - 1
        expected = np.stack(
            [-np.sort(scores - ends)[:, rank], np.sort(ends + scores)[:, rank]], axis=1
        )
        np.testing.assert_allclose(
            model.predict_interval(X_new, 0.8), expected, atol=1e-6
        )


def test_some_points_left_out_stand_for_many(rng, monkeypatch):
    """Each of them by itself: all others are in its machine, chosen or not."""
    X, y = draw(60, seed=18)
    weight, groups = rng.uniform(0.5, 2, size=60), np.repeat(["a", "b"], [45, 15])
    weight[:3] = 0
    model = SketchedKernelRegressor(
        loss="squared", calibration="jackknife+", n_components=20, random_state=0
    )
    whole = clone(model).fit(X, y, weight, groups=groups).calibration_
    monkeypatch.setattr("pskernels.estimators.calibration.MOST_HELD_OUT", 12)
    model.fit(X, y, weight, groups=groups)
    some = model.calibration_
    assert np.unique(some.groups, return_counts=True)[1].tolist() == [12, 12]
    places = [whole.y.tolist().index(one) for one in some.y]
    assert places == sorted(set(places))
    np.testing.assert_array_equal(some.weight, whole.weight[places])
    np.testing.assert_allclose(some.predicted, whole.predicted[places], atol=1e-9)
    X_new = draw(5, seed=19)[0]
    found, expected = (
        one.models[0].ends(one.predict(X_new, model.feature_map_), chosen)
        for one, chosen in ((some, np.arange(24)), (whole, np.array(places)))
    )
    np.testing.assert_allclose(found, expected, atol=1e-9)
    plain = clone(model).fit(X, y).calibration_
    assert len(plain.y) == 12
    assert not np.isin(plain.y, y[:12]).all()  # they are drawn
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))  # whose rows all stay
    weight[:] = np.arange(60) < 8
    weight[8:20] = 1e-3
    few = clone(model).set_params(kernel="precomputed", n_components=60).fit(
        K, y, weight
    )  # fmt: skip
    assert few.calibration_.weight.all()


def test_groups_are_calibrated_by_themselves():
    """Errors of one group are ten times as large; each keeps its coverage."""
    rng = np.random.default_rng(0)

    def draw_groups(n):
        X = rng.uniform(size=(n, 2))
        group = rng.choice(["calm", "wild"], n)
        noise = np.where(group == "wild", 1.0, 0.1) * rng.normal(size=n)
        return X, np.sin(6 * X[:, 0]) + noise, group

    X, y, group = draw_groups(1500)
    X_new, y_new, new_group = draw_groups(6000)
    for calibration in ("split", "cv+"):
        model = SketchedKernelRegressor(calibration=calibration, random_state=0)
        model.fit(X, y, groups=group)
        low, high = model.predict_interval(X_new, 0.9, groups=new_group).T
        for label in ("calm", "wild"):
            chosen = new_group == label
            inside = psk.coverage(y_new[chosen], low[chosen], high[chosen])
            assert 0.84 < inside < 0.95
        wide = np.median((high - low)[new_group == "wild"])
        assert wide > 5 * np.median((high - low)[new_group == "calm"])
    with pytest.raises(ValueError, match="'other'"):
        model.predict_interval(X_new[:1], groups=["other"])
    with pytest.raises(ValueError, match="both fit and predict_interval"):
        model.predict_interval(X_new)


def test_weights_of_new_points_widen_intervals():
    X, y = draw(600, seed=10)
    weight = np.exp(2 * np.abs(X[:, 1]))
    model = SketchedKernelRegressor(calibration="split", random_state=0)
    plain = model.fit(X, y).predict_interval(X[:5], 0.9)
    weighted = model.fit(X, y, weight).predict_interval(
        X[:5], 0.9, sample_weight=weight[:5]
    )
    assert (np.diff(weighted) > np.diff(plain)).all()
    with pytest.warns(UserWarning, match="infinite"):
        heavy = model.predict_interval(X[:5], 0.9, sample_weight=np.full(5, 1e9))
    assert np.isinf(heavy).all()  # the held-out points say nothing of such a one


def test_learnt_kernels_are_learnt_anew_for_each_fold():
    X, y = draw(300, seed=11)
    model = SketchedKernelRegressor(
        metric="learn", calibration="cv+", n_components=50, random_state=0
    ).fit(X, y)
    models = model.calibration_.models
    metrics = {one.feature_map.kernel_.metric.L.tobytes() for one in models}
    assert len(metrics) == FOLDS
    X_new, y_new = draw(2000, seed=12)
    low, high = model.predict_interval(X_new, 0.9).T
    assert 0.85 < psk.coverage(y_new, low, high) < 0.97


def test_searches_hold_out_points_for_calibration():
    X, y = draw(500, seed=13)
    search = SketchedQuantileRegressorCV(
        calibration="split", alphas=[1e-3, 1e-2], gammas=[1.0], cv=2, random_state=0
    ).fit(X, y)
    X_new, y_new = draw(3000, seed=14)
    low, high = search.predict_interval(X_new, 0.8).T
    n = len(search.calibration_.y)
    assert n == 125
    law = stats.betabinom(3000, n + 1 - np.ceil((n + 1) * 0.9), np.ceil((n + 1) * 0.9))
    assert np.sum(y_new > high) <= law.ppf(1 - RARE)
    auto = AutoKernelRegressor(calibration="split", budget="2 s", random_state=0)
    low, high = auto.fit(X, y).predict_interval(X_new, 0.9).T
    assert 0.8 < psk.coverage(y_new, low, high) < 0.97
    with pytest.raises(ValueError, match="calibration"):
        clone(search).set_params(calibration="cv+").fit(X, y)


def test_all_points_as_landmarks(rng):
    """An exact kernel machine, as scikit-learn's `KernelRidge` has it."""
    X, y = draw(120, seed=15)
    y -= y.mean()
    model = SketchedKernelRegressor(
        loss="squared",
        calibration="jackknife+",
        n_components=120,
        gamma=1.0,
        alpha=0.01,
        fit_intercept=False,
        random_state=0,
    ).fit(X, y)
    ridge = KernelRidge(kernel="rbf", gamma=1.0, alpha=0.01 * 120)
    without = [
        ridge.fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[i : i + 1])[0]
        for i in range(120)
    ]
    np.testing.assert_allclose(model.calibration_.predicted[:, 0], without, atol=1e-5)


def test_distributions_are_calibrated():
    X, y = draw(400, seed=16)
    X_new, y_new = draw(2000, seed=17)
    levels = np.linspace(0.1, 0.9, 5)
    plain = SketchedQuantileRegressor(quantiles=levels, random_state=0).fit(X, y)
    assert np.isfinite(plain.predict_distribution(X_new).crps(y_new)).all()
    for calibration in ("split", "cv+"):
        model = clone(plain).set_params(calibration=calibration).fit(X, y)
        law = model.predict_distribution(X_new)
        shares = (y_new[:, None] <= law.quantile(levels)).mean(axis=0)
        # five standard deviations of the share of held-out points, and 0.02
        n = len(model.calibration_.y)
        np.testing.assert_allclose(shares, levels, atol=0.02 + 2.5 / np.sqrt(n))
        pit = law.cdf(y_new)
        assert pit.min() >= 0 and pit.max() <= 1
        # a split fits three quarters of the points
        assert psk.crps(y_new, law) < 1.05 * psk.crps(
            y_new, plain.predict_distribution(X_new)
        )


def test_one_level_has_no_distribution():
    model = SketchedQuantileRegressor(quantiles=0.5).fit(*draw(100, seed=0))
    with pytest.raises(ValueError, match="two levels"):
        model.predict_distribution(draw(5, seed=1)[0])


def test_pipelines_and_float32():
    X, y = draw(300, seed=18)
    model = SketchedQuantileRegressor(calibration="split", random_state=0)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
    interval = pipeline[-1].predict_interval(pipeline[:-1].transform(X), 0.9)
    assert interval.dtype == np.float64
    narrow = clone(model).fit(X.astype(np.float32), y.astype(np.float32))
    assert narrow.predict_interval(X[:9].astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    "params, message",
    [
        (dict(calibration="cv"), "calibration must be"),
        (dict(calibration="jackknife+"), "loss='squared' only"),
        (dict(calibration="split", kernel="precomputed"), "precomputed"),
        (dict(calibration="split", interval_scores="other"), "interval_scores"),
        (
            dict(
                calibration="jackknife+", loss="squared", interval_scores="studentised"
            ),
            "studentised",
        ),
    ],
)
def test_what_cannot_be_calibrated_is_refused(params, message):
    X, y = draw(40, seed=0)
    if params.get("kernel") == "precomputed":
        X = X @ X.T
    with pytest.raises(ValueError, match=message):
        SketchedKernelRegressor(**params).fit(X, y)


@pytest.mark.parametrize("calibration", ["split", "cv+", "jackknife+"])
def test_groups_that_do_not_sort_are_refused(calibration):
    X, y = draw(40, seed=0)
    model = SketchedKernelRegressor(loss="squared", calibration=calibration)
    for labels, message in (
        ([2, "a"] * 20, "groups must have labels that sort"),
        (["a", None] * 20, "label for each point, row 1 has None"),
        ([0.0, 1.0, np.nan, 1.0] * 10, "label for each point, row 2 has"),
    ):
        kind = object if "a" in labels else float
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, groups=np.array(labels, dtype=kind))
    model.fit(X, y, groups=np.array(["b", "a"] * 20, dtype=object))


def test_a_group_that_is_not_held_out_is_named():
    X, y = draw(40, seed=0)
    model = SketchedKernelRegressor(calibration="split", random_state=0)
    with pytest.warns(UserWarning, match="no point of group 'rare' is held out"):
        for place in range(2):  # a quarter is held out: at least one of these is not
            model.fit(X, y, groups=np.where(np.arange(40) == place, "rare", "other"))


def test_quantiles_have_two_calibrations():
    X, y = draw(40, seed=0)
    with pytest.raises(ValueError, match="calibration must be") as error:
        SketchedQuantileRegressor(calibration="jackknife+").fit(X, y)
    assert "cv+" in str(error.value)
    assert str(error.value).count("jackknife+") == 1  # what was given


def test_bad_input(tmp_path):
    X, y = draw(40, seed=0)
    model = SketchedKernelRegressor(calibration="split", random_state=0)
    with pytest.raises(ValueError, match="one output"):
        model.fit(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="10 points or more"):
        model.fit(X[:9], y[:9])
    with pytest.raises(ValueError, match="40 labels"):
        model.fit(X, y, groups=["a"])
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match="points in memory"):
        model.fit(tmp_path / "X.npy", y)
    model.fit(X, y)
    with pytest.raises(ValueError, match="coverage"):
        model.predict_interval(X, 1.0)
    with pytest.raises(ValueError, match="sample_weight"):
        model.predict_interval(X, 0.5, sample_weight=[1.0])
    plain = SketchedKernelRegressor().fit(X, y)
    with pytest.raises(ValueError, match="need a calibration"):
        plain.predict_interval(X)
    one = SketchedQuantileRegressor(quantiles=[0.5], random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="two levels or more, or a calibration"):
        one.predict_interval(X)
    with pytest.raises(ValueError, match="choose a calibration"):
        plain.fit(X, y, groups=np.arange(40))
    with pytest.raises(ValueError, match="got 90: divide percentages by 100"):
        model.predict_interval(X, 90)
    # too few held-out points for the coverage: honest ends
    with pytest.warns(UserWarning, match="infinite: .*of 0.99, the 10 points"):
        assert np.isinf(model.predict_interval(X, 0.99)).all()


def test_a_model_that_has_changed_has_no_calibration_of_before():
    X, y = draw(200, seed=20)
    model = SketchedKernelRegressor(
        loss="squared", calibration="split", n_components=60, random_state=0
    ).fit(X, y)
    small = model.compress(20)
    with pytest.raises(ValueError, match="need a calibration"):
        small.predict_interval(X)
    with pytest.raises(ValueError, match="calibration needs all points"):
        model.partial_fit(X, y)
    model.set_params(calibration=None).fit(X, y)
    assert not hasattr(model, "calibration_")


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_points_without_weight_are_as_if_they_were_not_there(kernel):
    """20 points cannot tell of 96 %, and 40 more without weight do not help."""
    X, y = draw(60, seed=21)
    weight = np.repeat([1.0, 0.0], [20, 40])
    if kernel == "precomputed":
        X = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    model = SketchedKernelRegressor(kernel=kernel, calibration="cv+", random_state=0)
    model.fit(X, y, weight)
    with pytest.warns(UserWarning, match="infinite: .*of 0.96, the 20 points"):
        assert np.isinf(model.predict_interval(X, 0.96)).all()
    assert np.isfinite(model.predict_interval(X, 0.95)).all()


def test_weights_that_differ_between_groups_cancel():
    X, y = draw(400, seed=22)
    groups = np.arange(400) % 2
    weight = np.where(groups == 0, 1.0, 0.01)
    model = SketchedKernelRegressor(calibration="split", alpha=1e-3, random_state=0)
    model.fit(X, y, weight, groups=groups)
    found = model.predict_interval(X, 0.9, groups=groups)
    held = model.calibration_
    for label in (0, 1):
        scores = np.abs(held.y - held.predicted[:, 0])[held.groups == label]
        rank = int(np.ceil((len(scores) + 1) * 0.9)) - 1
        width = np.diff(found[groups == label])
        np.testing.assert_allclose(width, 2 * np.sort(scores)[rank], rtol=1e-6)


def test_distributions_of_groups():
    rng = np.random.default_rng(0)
    X, groups = rng.uniform(size=(800, 2)), np.arange(800) % 2
    y = X[:, 0] + np.where(groups == 1, 1.0, 0.1) * rng.normal(size=800)
    model = SketchedQuantileRegressor(calibration="split", alpha=0.03, random_state=0)
    model.fit(X, y, groups=groups)
    law = model.predict_distribution(X, groups=groups)
    interval = model.predict_interval(X, 0.8, groups=groups)
    same = np.isclose(law.interval(0.8), interval).mean()  # but where levels cross
    assert same > 0.95
    with pytest.raises(ValueError, match="both fit and predict_distribution"):
        model.predict_distribution(X)


def test_intervals_of_positive_targets_are_positive(rng):
    X = rng.normal(size=(300, 2))
    y = rng.poisson(1.0, size=300).astype(float)
    model = SketchedKernelRegressor(
        loss="poisson", calibration="split", random_state=0
    ).fit(X, y)
    assert model.predict_interval(X, 0.95).min() >= 0


def test_frames_with_studentised_scores(rng):
    pandas = pytest.importorskip("pandas")
    X, y = draw(100, seed=23)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    model = SketchedKernelRegressor(
        calibration="split", interval_scores="studentised", random_state=0
    ).fit(frame, y)  # a warning would be an error
    assert model.predict_interval(frame, 0.8).shape == (100, 2)


def test_searches_forget_the_calibration_of_a_fit_before():
    X, y = draw(200, seed=24)
    search = SketchedQuantileRegressorCV(
        calibration="split",
        alphas=[1e-2],
        gammas=[1.0],
        cv=2,
        n_components=40,
        random_state=0,
    ).fit(X, y)
    assert hasattr(search, "calibration_")
    search.set_params(calibration=None).fit(X, y)
    assert not hasattr(search, "calibration_")


@pytest.mark.parametrize("calibration", ["cv+", "jackknife+"])
def test_what_the_caller_changes_later_changes_nothing(calibration, rng):
    X, y = draw(100, seed=30)
    weight, groups = rng.uniform(1, 2, size=100), np.repeat([0, 1], 50)
    model = SketchedKernelRegressor(
        loss="squared", calibration=calibration, random_state=0
    ).fit(X, y, weight, groups=groups)
    before = model.predict_interval(X, groups=np.repeat([0, 1], 50))
    weight[:], groups[:] = 0, 5
    after = model.predict_interval(X, groups=np.repeat([0, 1], 50))
    np.testing.assert_array_equal(after, before)


def test_points_without_weight_do_not_count(rng):
    X, y = draw(50, seed=31)
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    model = SketchedKernelRegressor(
        kernel="precomputed", loss="squared", calibration="cv+", random_state=0
    )
    with pytest.raises(ValueError, match="10 points or more, of some weight, got 1$"):
        model.fit(K, y, np.eye(50)[0])
