"""Poisson, gamma and expectile losses: against scikit-learn and finite differences."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.linear_model import GammaRegressor, PoissonRegressor
from sklearn.metrics import mean_gamma_deviance, mean_poisson_deviance

import pskernels as psk
from pskernels.estimators import SketchedKernelRegressor, load

LOSSES = [psk.Poisson(), psk.Gamma(), psk.Expectile(0.2), psk.Expectile(0.5)]
RIVALS = {"poisson": PoissonRegressor, "gamma": GammaRegressor}


def draw(rng, kind, n=400):
    Z = rng.normal(size=(n, 5)) + 1
    f = (Z - 1) @ [0.5, -0.3, 0.2, 0.0, 0.4] + 0.5
    if kind == "poisson":
        return Z, rng.poisson(np.exp(f)).astype(float)
    if kind == "gamma":
        return Z, np.exp(f) * rng.gamma(2, 0.5, size=n)
    return Z, f + rng.standard_t(3, size=n)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_formulas(loss, rng):
    u, y = rng.normal(size=50), rng.gamma(2, size=50)
    h = 1e-6
    slope = (loss.value(u + h, y) - loss.value(u - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(u, y), slope, atol=1e-6)
    bend = (loss.derivative(u + h, y) - loss.derivative(u - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivatives(u, y)[1], bend, atol=1e-5)
    assert loss.value(u, y).min() >= 0
    # Fenchel: equality at ζ = ℓ'(u), and an upper bound elsewhere
    zeta = loss.derivative(u, y)
    np.testing.assert_allclose(
        loss.value(u, y) + loss.conjugate(zeta, y), u * zeta, atol=1e-10
    )
    other = zeta - 0.1 * rng.random(50) * np.minimum(zeta + y, 1)
    assert (loss.value(u, y) + loss.conjugate(other, y) >= u * other - 1e-12).all()
    best = loss.constant_minimiser(y)
    found = minimize_scalar(lambda b: loss.value(np.full(50, b), y).sum(), tol=1e-12)
    assert best == pytest.approx(found.x, abs=1e-6)


def test_deviances_are_those_of_scikit_learn(rng):
    u, y = rng.normal(size=50), rng.gamma(2, size=50)
    for loss, deviance in (
        (psk.Poisson(), mean_poisson_deviance),
        (psk.Gamma(), mean_gamma_deviance),
    ):
        assert 2 * loss.value(u, y).mean() == pytest.approx(deviance(y, np.exp(u)))
    assert psk.Poisson().value(0.0, 0.0) == 1.0  # a count of 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("alpha", [1e-4, 1e-1])
@pytest.mark.parametrize("loss", RIVALS)
def test_the_minimum_is_that_of_scikit_learn(rng, loss, alpha, fit_intercept, weighted):
    Z, y = draw(rng, loss)
    weight = rng.uniform(0.5, 2, size=len(y)) if weighted else None
    options = dict(alpha=alpha, fit_intercept=fit_intercept)
    result = psk.solve(Z, y, loss=loss, sample_weight=weight, tol=1e-11, **options)
    peer = RIVALS[loss](tol=1e-9, max_iter=10_000, **options).fit(Z, y, weight)
    assert result.converged
    np.testing.assert_allclose(result.coef, peer.coef_, atol=1e-5)
    assert result.intercept == pytest.approx(peer.intercept_, abs=1e-5)


def test_expectiles_are_weighted_means(rng):
    """At the minimum, the fit is ridge regression with weights of the two sides."""
    Z, y = draw(rng, "expectile")
    result = psk.solve(Z, y, loss=psk.Expectile(0.9), alpha=1e-3, tol=1e-12)
    weight = np.where(y > result.predict(Z), 0.9, 0.1)
    alpha = 1e-3 / (2 * weight.mean())
    ridge = psk.solve(Z, y, sample_weight=weight, alpha=alpha, tol=1e-12)
    np.testing.assert_allclose(result.coef, ridge.coef, atol=1e-5)
    half = psk.solve(Z, y, loss="expectile", alpha=1e-3, tol=1e-12)
    mean = psk.solve(Z, y, alpha=1e-3, tol=1e-12)
    np.testing.assert_allclose(half.coef, mean.coef, atol=1e-5)
    assert half.objective == pytest.approx(mean.objective)


@pytest.mark.parametrize("loss", ["poisson", "gamma", psk.Expectile(0.95)], ids=str)
@pytest.mark.parametrize("max_iter", [0, 1])
def test_the_certificate_holds_before_the_end(rng, loss, max_iter):
    Z, y = draw(rng, loss)
    best = psk.solve(Z, y, loss=loss, alpha=1e-3, tol=1e-12)
    with pytest.warns(psk.ConvergenceWarning):
        early = psk.solve(Z, y, loss=loss, alpha=1e-3, tol=1e-14, max_iter=max_iter)
    assert early.objective - best.objective <= early.dual_gap * early.objective


def test_large_features_do_not_overflow(rng):
    Z, y = draw(rng, "poisson")
    for loss in ("poisson", "gamma"):
        result = psk.solve(100 * Z, y + 1e-3, loss=loss, alpha=1e-9)
        assert result.converged and np.isfinite(result.coef).all()


def test_paths_and_threads(rng):
    Z, y = draw(rng, "gamma")
    alphas = [1e-3, 1.0]
    for result, alpha in zip(
        psk.path(Z, y, loss="gamma", alphas=alphas), alphas, strict=True
    ):
        one = psk.solve(Z, y, loss="gamma", alpha=alpha)
        assert result.objective == pytest.approx(one.objective, rel=1e-5)
    first, second = (
        psk.solve(Z, y, loss="gamma", alpha=1e-3, n_threads=n).coef for n in (1, 3)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("loss", ["poisson", "gamma", "expectile"])
def test_regressors(rng, loss, tmp_path):
    X = rng.uniform(-1, 1, size=(1500, 2))
    f = 1 + np.sin(3 * X[:, 0]) * X[:, 1]
    y = {
        "poisson": rng.poisson(np.exp(f)).astype(float),
        "gamma": np.exp(f) * rng.gamma(5, 0.2, size=1500),
        "expectile": f + 0.3 * rng.normal(size=1500),
    }[loss]
    model = SketchedKernelRegressor(loss=loss, random_state=0).fit(X, y)
    truth = f if loss == "expectile" else np.exp(f)
    predicted = model.predict(X)
    assert model.converged_
    assert 1 - np.mean((predicted - truth) ** 2) / np.var(truth) > 0.9
    h = 1e-5
    slope = (model.predict(X[:9] + [h, 0]) - model.predict(X[:9] - [h, 0])) / (2 * h)
    np.testing.assert_allclose(model.predict_gradient(X[:9])[:, 0], slope, rtol=1e-4)
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(load(tmp_path / "model.npz").predict(X), predicted)
    calibrated = SketchedKernelRegressor(
        loss=loss, calibration="split", random_state=0
    ).fit(X[:1000], y[:1000])
    low, high = calibrated.predict_interval(X[1000:], 0.9).T
    assert 0.82 < psk.coverage(y[1000:], low, high) < 0.97


def test_an_upper_expectile_lies_above(rng):
    X, y = rng.normal(size=(500, 2)), rng.normal(size=500)
    low, high = (
        SketchedKernelRegressor(loss="expectile", quantile=q, random_state=0)
        .fit(X, y)
        .predict(X)
        for q in (0.1, 0.9)
    )
    assert (low < high).mean() > 0.95


@pytest.mark.parametrize(
    "loss, y, message",
    [
        ("poisson", [-1.0, 1.0, 2.0], "negative"),
        ("poisson", [0.0, 0.0, 0.0], "0 everywhere"),
        ("gamma", [0.0, 1.0, 2.0], "positive"),
        ("expectile", np.ones((3, 2)), "one output"),
        ("gamma", [1.0, 2.0], "each of 3 rows"),
    ],
)
def test_bad_targets(loss, y, message):
    with pytest.raises(ValueError, match=message):
        psk.solve(np.eye(3), y, loss=loss, alpha=1.0)


def test_what_these_losses_refuse(rng, tmp_path):
    Z, y = draw(rng, "poisson")
    with pytest.raises(ValueError, match="solver"):
        psk.solve(Z, y, loss="poisson", alpha=1.0, solver="adam")
    with pytest.raises(ValueError, match="output_matrix"):
        psk.solve(Z, y, loss="poisson", alpha=1.0, output_matrix="residual")
    with pytest.raises(ValueError, match="tau"):
        psk.Expectile(1.0)
    with pytest.raises(TypeError, match="native"):
        psk.Gamma().prox(1.0, 1.0, 0.5)
    model = SketchedKernelRegressor(loss="poisson", random_state=0)
    with pytest.raises(ValueError, match="partial_fit"):
        model.partial_fit(Z, y)
    np.save(tmp_path / "Z.npy", rng.normal(size=(4000, 40)))
    with pytest.raises(ValueError, match="memory of one machine"):
        model.set_params(memory_limit=2**20).fit(tmp_path / "Z.npy", np.ones(4000))


def test_starts_far_away_end_at_the_same_minimum(rng):
    """An intercept that is far off is balanced, or nothing is certified."""
    y = rng.poisson(20, size=400).astype(float)
    Z = 1e-4 * rng.normal(size=(400, 3))
    best = psk.solve(Z, y, loss="poisson", alpha=1.0)
    for b in (-30.0, 0.0, 3.0, 30.0, 1000.0):
        result = psk.solve(Z, y, loss="poisson", alpha=1.0, start=(np.zeros(3), b))
        assert result.converged
        assert result.objective == pytest.approx(best.objective, rel=1e-6)


@pytest.mark.parametrize("loss", ["poisson", "gamma", psk.Expectile(0.9)], ids=str)
def test_certificates_from_random_starts(rng, loss):
    Z, y = draw(rng, str(loss) if isinstance(loss, str) else "expectile")
    best = psk.solve(Z, y, loss=loss, alpha=1e-2, tol=1e-12)
    for max_iter in (0, 1, 2):
        start = rng.normal(size=5), rng.normal()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", psk.ConvergenceWarning)
            found = psk.solve(
                Z, y, loss=loss, alpha=1e-2, start=start, max_iter=max_iter, tol=1e-13
            )
        true = (found.objective - best.objective) / found.objective
        assert true <= found.dual_gap * (1 + 1e-9) + 1e-12


def test_a_start_without_an_intercept(rng):
    Z, y = draw(rng, "poisson")
    options = dict(loss="poisson", alpha=1e-2, fit_intercept=False)
    plain = psk.solve(Z, y, **options)
    started = psk.solve(Z, y, start=(np.zeros(5), 2.0), **options)
    np.testing.assert_allclose(started.coef, plain.coef, atol=1e-3)
    with pytest.raises(ValueError, match="start must have"):
        psk.solve(Z, y, start=(np.zeros(4), 2.0), **options)


def test_warm_starts_of_another_loss(rng):
    X = rng.normal(size=(200, 2))
    y = rng.poisson(1000, size=200).astype(float)
    model = SketchedKernelRegressor(loss="squared", warm_start=True, random_state=0)
    model.fit(X, y).set_params(loss="poisson").fit(X, y)
    assert model.converged_ and np.abs(model.predict(X) / 1000 - 1).max() < 0.5


def test_few_counts_above_zero(rng):
    X, y = rng.normal(size=(200, 2)), np.zeros(200)
    y[:6] = 1
    model = SketchedKernelRegressor(loss="poisson", n_components="auto", random_state=0)
    assert model.fit(X, y).predict(X).mean() == pytest.approx(0.03, rel=0.2)
    with pytest.raises(ValueError, match="0 everywhere"):
        psk.solve(X, y, loss="poisson", alpha=1.0, sample_weight=1 - y)
