"""Multinomial machines, against scikit-learn and SciPy; calibrated probabilities."""

import numpy as np
import pytest
from conftest import only_long
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import pskernels as psk
from pskernels.estimators import (
    AutoKernelClassifier,
    SketchedKernelClassifier,
    SketchedKernelClassifierCV,
    classifier,
    load,
)
from pskernels.softmax import softmax_without_folds
from pskernels.solvers import newton_cg


def draw(rng, n=300, r=6, classes=4):
    Z = rng.normal(size=(n, r)) + 2
    logits = (Z - 2) @ rng.normal(size=(r, classes))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Z, y


def objective(Z, y, coef, intercept, alpha, weight=None):
    f = Z @ coef + intercept
    losses = logsumexp(f, axis=1) - f[np.arange(len(y)), y]
    return np.average(losses, weights=weight) + alpha / 2 * (coef**2).sum()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [1e-5, 1e-2, 1.0])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_minimum_is_that_of_scikit_learn(rng, alpha, weighted, fit_intercept):
    Z, y = draw(rng)
    weight = rng.uniform(0.1, 2, size=len(y)) if weighted else None
    (result,) = psk.solve_softmax(
        Z,
        y,
        alphas=[alpha],
        sample_weight=weight,
        fit_intercept=fit_intercept,
        tol=1e-12,
    )
    total = len(y) if weight is None else weight.sum()
    model = LogisticRegression(
        C=1 / (alpha * total),
        fit_intercept=fit_intercept,
        tol=1e-10,
        max_iter=10_000,
    ).fit(Z, y, weight)
    assert result.converged
    np.testing.assert_allclose(result.coef, model.coef_.T, atol=2e-5, rtol=1e-3)
    value = objective(Z, y, result.coef, result.intercept, alpha, weight)
    assert value == pytest.approx(result.objective, rel=1e-12)
    expected = objective(Z, y, model.coef_.T, model.intercept_, alpha, weight)
    assert value <= expected * (1 + 1e-9)


@pytest.mark.parametrize("max_iter", [0, 1, 2, 3])
def test_the_certificate_holds_before_the_end(rng, max_iter):
    Z, y = draw(rng)
    (best,) = psk.solve_softmax(Z, y, alphas=[1e-3], tol=1e-13)
    with pytest.warns(psk.ConvergenceWarning):
        (early,) = psk.solve_softmax(Z, y, alphas=[1e-3], tol=1e-13, max_iter=max_iter)
    assert early.objective - best.objective <= early.dual_gap * early.objective
    assert early.dual_gap > best.dual_gap


def test_scipy_finds_nothing_lower(rng):
    Z, y = draw(rng, n=60, r=3, classes=3)
    (result,) = psk.solve_softmax(Z, y, alphas=[1e-2], tol=1e-10)

    def value(x):
        return objective(Z, y, x[:9].reshape(3, 3), x[9:], 1e-2)

    start = np.concatenate([result.coef.ravel(), result.intercept])
    found = minimize(value, start + 0.1 * rng.normal(size=12), tol=1e-12)
    assert result.objective <= found.fun * (1 + 1e-8)


def test_alphas_starts_and_threads(rng):
    Z, y = draw(rng)
    alphas = [1e-3, 1.0, 1e-2]
    cold = psk.solve_softmax(Z, y, alphas=alphas, warm=False, tol=1e-10)
    warm = psk.solve_softmax(Z, y, alphas=alphas, tol=1e-10)
    for one, other, alpha in zip(cold, warm, alphas, strict=True):
        assert one.alpha == alpha
        assert one.objective == pytest.approx(other.objective, rel=1e-9)
    single, many = (
        psk.solve_softmax(Z, y, alphas=[1e-3], n_threads=n)[0] for n in (1, 3)
    )
    np.testing.assert_array_equal(single.coef, many.coef)
    start = cold[0].coef, cold[0].intercept
    (again,) = psk.solve_softmax(Z, y, alphas=[1e-3], start=start, tol=1e-9)
    assert again.n_iter == 0
    np.testing.assert_allclose(again.coef, cold[0].coef)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("factors", [True, False])
def test_machines_without_a_fold_are_fits_to_the_others(
    rng, factors, weighted, fit_intercept, monkeypatch
):
    if not factors:
        monkeypatch.setattr(newton_cg, "FACTORS_BYTES", 0)
    Z, y = draw(rng, n=100, r=18)
    weight = rng.uniform(0.5, 2, size=100) if weighted else None
    folds = rng.permutation(100) % 3
    options = dict(fit_intercept=fit_intercept, tol=1e-11)
    (whole,) = psk.solve_softmax(Z, y, alphas=[1e-3], sample_weight=weight, **options)
    found = softmax_without_folds(
        Z,
        y,
        folds,
        alpha=1e-3,
        start=(whole.coef, whole.intercept),
        sample_weight=weight,
        **options,
    )
    for k in range(3):
        rest = folds != k
        some = None if weight is None else weight[rest]
        (result,) = psk.solve_softmax(
            Z[rest], y[rest], alphas=[1e-3], n_classes=4, sample_weight=some, **options
        )
        expected = result.predict(Z[~rest])
        np.testing.assert_allclose(
            log_softmax(found[~rest], axis=1), log_softmax(expected, axis=1), atol=1e-4
        )


def test_what_no_loss_sees_is_left_alone(rng, monkeypatch):
    """A number for all classes alike: a start may have it, steps do not."""
    Z, y = draw(rng, n=3000, r=40)
    Z *= 0.8 ** np.arange(40)
    y[rng.random(3000) < 0.9] = 0
    products = []
    curve = newton_cg.SmoothProblem.curve

    def count(*given):
        products.append(None)
        return curve(*given)

    monkeypatch.setattr(newton_cg.SmoothProblem, "curve", count)
    (best,) = psk.solve_softmax(Z, y, alphas=[1e-5], tol=1e-9)
    n_products = len(products)
    assert n_products <= 30  # 10, and 121 when steps had it
    Z += 500  # where W of a start moves b far
    (best,) = psk.solve_softmax(Z, y, alphas=[1e-5], tol=1e-9)
    start = best.coef + 1e4 * rng.normal(size=(40, 1)), best.intercept + 3
    (again,) = psk.solve_softmax(Z, y, alphas=[1e-5], tol=1e-9, start=start)
    np.testing.assert_allclose(again.coef.sum(axis=1), 0, atol=1e-8)
    assert again.n_iter <= 1


def test_factors_serve_all_machines_without_a_fold(rng, monkeypatch):
    Z, y = draw(rng, n=400, r=40)
    (whole,) = psk.solve_softmax(Z, y, alphas=[1e-4])
    made = []
    factorise = newton_cg.factorise

    def count(*given):
        made.append(None)
        return factorise(*given)

    monkeypatch.setattr(newton_cg, "factorise", count)
    monkeypatch.setattr(newton_cg, "FACTORS_COST", 1e9)  # none beside the shared ones
    options = dict(alpha=1e-4, start=(whole.coef, whole.intercept))
    softmax_without_folds(Z, y, rng.permutation(400) % 5, **options)
    assert len(made) == 4  # classes


def test_factors_that_overflow_are_done_without(rng, monkeypatch):
    Z, y = draw(rng)
    (expected,) = psk.solve_softmax(Z, y, alphas=[1e-3], tol=1e-9)

    def fail(*given):
        raise FloatingPointError

    monkeypatch.setattr(newton_cg, "factorise", fail)
    (found,) = psk.solve_softmax(Z, y, alphas=[1e-3], tol=1e-9)
    np.testing.assert_allclose(found.coef, expected.coef, atol=1e-4)


@pytest.mark.parametrize("alpha", [1e-4, 0.1, 10.0])
def test_probabilities_of_noise_are_those_of_no_model(alpha):
    """Machines without a fold begin where all points led, and must not stay there."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 10)), rng.integers(3, size=4000)
    model = SketchedKernelClassifier(
        loss="logistic", probability=True, n_components=800, gamma=0.2, alpha=alpha,
        random_state=0,
    ).fit(X[:1000], y[:1000])  # fmt: skip
    p = model.predict_proba(X[1000:])
    assert log_loss(y[1000:], p) < np.log(3) + 0.006  # 0.016 for alpha = 0.1


def test_a_class_without_weight_leaves_the_others_alone(rng):
    X, y = rng.normal(size=(60, 3)), rng.integers(3, size=60)
    options = dict(loss="logistic", probability=True, n_components=20, random_state=0)
    found = [
        SketchedKernelClassifier(class_weight={0: 0, 1: 1, 2: 1}, tol=tol, **options)
        .fit(X, y)
        .predict_proba(X)
        for tol in (1e-6, 1e-12)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=0.01)


def test_points_far_from_zero(rng):
    Z, y = draw(rng)
    (near,) = psk.solve_softmax(Z, y, alphas=[1e-2], tol=1e-10)
    (far,) = psk.solve_softmax(Z + 1e6, y, alphas=[1e-2], tol=1e-10)
    assert far.converged
    np.testing.assert_allclose(far.coef, near.coef, atol=1e-5)
    np.testing.assert_allclose(
        log_softmax(far.predict(Z + 1e6), axis=1),
        log_softmax(near.predict(Z), axis=1),
        atol=1e-4,
    )


def test_a_class_without_points_is_improbable(rng):
    Z, y = draw(rng, classes=3)
    (result,) = psk.solve_softmax(Z, y, alphas=[1e-2], n_classes=4)
    assert np.exp(log_softmax(result.predict(Z), axis=1))[:, 3].max() < 1e-6


def test_separable_classes_converge(rng):
    Z = np.repeat(np.eye(3), 50, axis=0) + 0.01 * rng.normal(size=(150, 3))
    y = np.repeat(np.arange(3), 50)
    (result,) = psk.solve_softmax(Z, y, alphas=[1e-7])
    assert result.converged and (result.predict(Z).argmax(axis=1) == y).all()


@pytest.mark.parametrize(
    "y, options, message",
    [
        ([0.5] * 5, {}, "number of a class"),
        ([0, 1], {}, "each of 5 rows"),
        ([-1, 0, 1, 0, 1], {}, "from 0 on"),
        ([0, 1, 2, 0, 1], dict(n_classes=2), "at least 3"),
        ([0, 0, 0, 0, 0], dict(n_classes=1), "at least 2"),
        ([0, 1, 0, 1, 0], dict(alphas=[0.0]), "alpha"),
        ([0, 1, 0, 1, 0], dict(sample_weight=[1.0]), "sample_weight"),
    ],
)
def test_bad_input(y, options, message):
    with pytest.raises(ValueError, match=message):
        psk.solve_softmax(np.eye(5), np.array(y), **dict(alphas=[1.0]) | options)


# -- the classifier


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=0.3, random_state=0, stratify=y)


def calibration_error(probabilities, y, bins=15):
    """Average | share of right classes - confidence | over bins of confidence."""
    sure = probabilities.max(axis=1)
    hits = probabilities.argmax(axis=1) == y
    place = np.minimum((sure * bins).astype(int), bins - 1)
    sizes = np.bincount(place, minlength=bins)
    return np.abs(np.bincount(place, hits - sure, bins)).sum() / sizes.sum()


def test_the_classifier_is_one_multinomial_problem(digits):
    X, X_test, y, y_test = digits
    model = SketchedKernelClassifier(loss="logistic", random_state=0).fit(X, y)
    Z = model.feature_map_.transform(X)
    peer = LogisticRegression(C=1 / (model.alpha_ * len(y)), max_iter=5000, tol=1e-8)
    expected = peer.fit(Z, y).predict_proba(model.feature_map_.transform(X_test))
    np.testing.assert_allclose(model.predict_proba(X_test), expected, atol=2e-3)
    assert model.converged_ and model.score(X_test, y_test) > 0.97


@pytest.mark.parametrize("loss", ["logistic", only_long("hinge")])
def test_probabilities_are_calibrated(digits, loss, tmp_path):
    X, X_test, y, y_test = digits
    model = SketchedKernelClassifier(loss=loss, probability=True, random_state=0)
    probabilities = model.fit(X, y).predict_proba(X_test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert calibration_error(probabilities, y_test) < 0.02
    assert log_loss(y_test, probabilities) < 0.1
    model.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict_proba(X_test), probabilities)


@pytest.mark.long
def test_decisions_far_from_probabilities_are_calibrated(rng, monkeypatch, tmp_path):
    # middle classes are never the likelier half, and hinge's decisions on them are -1
    X = rng.normal(size=(12_000, 2))
    y = np.digitize(X[:, 0] + rng.normal(size=12_000), [-1, 0, 1])
    X, X_test, y, y_test = X[:6000], X[6000:], y[:6000], y[6000:]
    below = norm.cdf(np.array([-1, 0, 1]) - X_test[:, :1])
    truth = np.diff(below, prepend=0, append=1)
    model = SketchedKernelClassifier(probability=True, random_state=0)
    probabilities = model.fit(X, y).predict_proba(X_test)
    assert model.proba_knots_.shape == (5, 4)
    assert calibration_error(probabilities, y_test) < 0.03
    model.save(tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict_proba(X_test), probabilities)
    monkeypatch.setattr(classifier, "POINTS_OF_COEFFICIENT", np.inf)
    straight = model.fit(X, y).predict_proba(X_test)
    assert model.proba_knots_.shape == (0, 4)
    model.set_params(probability=False).fit(X[:400], y[:400])
    assert not hasattr(model, "proba_knots_")
    errors = [np.abs(found - truth).mean() for found in (probabilities, straight)]
    assert errors[0] < 0.9 * errors[1]


def test_two_classes_are_calibrated(rng):
    X = rng.normal(size=(3000, 2))
    truth = 1 / (1 + np.exp(-3 * X[:, 0] * X[:, 1]))
    y = rng.random(3000) < truth
    model = SketchedKernelClassifier(probability=True, random_state=0)
    model.fit(X[:2000], y[:2000], np.full(2000, 2.0))
    p = model.predict_proba(X[2000:])
    assert np.abs(p[:, 1] - truth[2000:]).mean() < 0.1
    assert calibration_error(p, y[2000:]) < 0.05
    fresh = SketchedKernelClassifier().fit(X[:500], y[:500])
    assert not hasattr(fresh, "predict_proba")


def test_another_solver_and_batches_are_one_against_the_rest(digits):
    X, X_test, y, y_test = digits
    model = SketchedKernelClassifier(
        loss="logistic", solver="newton", random_state=0
    ).fit(X, y)
    Y = np.where(y[:, None] == np.arange(10), 1.0, -1.0)
    Z = model.feature_map_.transform(X)
    result = psk.solve(Z, Y, loss="logistic", alpha=model.alpha_)
    np.testing.assert_allclose(model.coef_, result.coef, atol=1e-3)
    batches = SketchedKernelClassifier(loss="logistic", random_state=0)
    batches.partial_fit(X[:800], y[:800], classes=np.arange(10))
    assert batches.predict_proba(X_test).shape == (len(X_test), 10)


def test_searches_and_auto_have_multinomial_probabilities(digits):
    X, X_test, y, y_test = digits
    search = SketchedKernelClassifierCV(
        loss="logistic",
        alphas=[1e-3, 1e-5],
        gammas=[0.1],
        cv=2,
        scoring="neg_log_loss",
        probability=True,
        random_state=0,
    ).fit(X, y)
    assert calibration_error(search.predict_proba(X_test), y_test) < 0.03
    auto = AutoKernelClassifier(budget="1 s", random_state=0).fit(X, y)
    assert log_loss(y_test, auto.predict_proba(X_test)) < 0.2


def test_sources_have_no_calibrated_probabilities(tmp_path):
    X = np.random.default_rng(0).normal(size=(3000, 40))
    y = (X[:, 0] > 0).astype(int)
    np.save(tmp_path / "X.npy", X)
    model = SketchedKernelClassifier(probability=True, memory_limit=2**20)
    with pytest.raises(ValueError, match="in memory"):
        model.fit(tmp_path / "X.npy", y)


def test_a_class_of_one_point_has_no_calibration(rng):
    X, y = rng.normal(size=(50, 2)), np.repeat([0, 1, 2], [25, 24, 1])
    with pytest.raises(ValueError, match="two points of each class"):
        SketchedKernelClassifier(probability=True).fit(X, y)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("classes", [2, 3])
def test_two_points_of_each_class_are_enough(loss, classes, rng):
    y = np.repeat(np.arange(classes), 2)
    model = SketchedKernelClassifier(loss=loss, probability=True, random_state=0)
    p = model.fit(rng.normal(size=(len(y), 3)), y).predict_proba(np.zeros((1, 3)))
    assert p.sum() == pytest.approx(1)


def test_classes_without_weight_leave_two_or_are_refused(rng):
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
    with pytest.raises(ValueError, match="two classes .of positive weight., got one"):
        SketchedKernelClassifier(class_weight={0: 0, 1: 1}).fit(X, y)


def test_another_intercept_after_a_warm_start(digits):
    X, _, y, _ = digits
    model = SketchedKernelClassifier(
        loss="logistic", warm_start=True, n_components=50, random_state=0
    ).fit(X, y)
    model.set_params(fit_intercept=False).fit(X, y)
    fresh = SketchedKernelClassifier(
        loss="logistic", fit_intercept=False, n_components=50, random_state=0
    ).fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(X), fresh.predict_proba(X), atol=1e-3
    )
