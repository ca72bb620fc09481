"""Problems at the edge: certified, or refused with a clear message."""

import os
import warnings

import numpy as np
import pytest
from reference import dual_objective, primal_objective
from test_solvers import LOSS_OBJECTS, check_certificate, each_intercept, each_loss

import pskernels as psk

REGRESSION = [loss for loss in LOSS_OBJECTS if not loss.classification]
CLASSIFICATION = [loss for loss in LOSS_OBJECTS if loss.classification]
each_regression_loss = pytest.mark.parametrize("loss", REGRESSION, ids=str)
each_classification_loss = pytest.mark.parametrize("loss", CLASSIFICATION, ids=str)


def make(loss, rng, n=200, r=5, scale=1.0):
    Z = rng.normal(size=(n, r))
    y = scale * (Z.sum(axis=1) + rng.standard_t(2, size=n))
    return Z, np.where(y > 0, 1.0, -1.0) if loss.classification else y


def certified(Z, y, loss, alpha, fit_intercept=True, weight=None, **options):
    result = psk.solve(
        Z,
        y,
        loss=loss,
        alpha=alpha,
        fit_intercept=fit_intercept,
        sample_weight=weight,
        **options,
    )
    assert result.converged and result.dual_gap <= 1e-6
    assert np.isfinite(result.coef).all() and np.isfinite(result.intercept)
    check_certificate(result, Z, y, loss, weight, fit_intercept)
    return result


@each_loss
@each_intercept
def test_one_feature(loss, fit_intercept, rng):
    Z, y = make(loss, rng, r=1)
    for alpha in (1.0, 1e-8):
        certified(Z, y, loss, alpha, fit_intercept)


@each_loss
@each_intercept
def test_one_point(loss, fit_intercept, rng):
    Z, y = make(loss, rng, n=1)
    if isinstance(loss, psk.Logistic) and fit_intercept:
        with pytest.raises(ValueError, match="y has one class only"):
            psk.solve(Z, y, loss=loss, alpha=1e-3)
        return
    for alpha in (1.0, 1e-6):
        result = certified(Z, y, loss, alpha, fit_intercept)
        if fit_intercept:  # nothing is left for the features
            assert result.objective == 0 and not result.coef.any()


@each_loss
@each_intercept
def test_constant_targets(loss, fit_intercept, rng):
    Z, _ = make(loss, rng)
    y = np.ones(len(Z)) if loss.classification else np.full(len(Z), 3.7)
    if isinstance(loss, psk.Logistic) and fit_intercept:
        with pytest.raises(ValueError, match="y has one class only"):
            psk.solve(Z, y, loss=loss, alpha=1e-3)
        return
    for alpha in (1.0, 1e-6):
        result = certified(Z, y, loss, alpha, fit_intercept)
        if fit_intercept:
            assert result.objective <= 1e-25 and np.abs(result.coef).max() < 1e-12


@each_regression_loss
def test_zero_targets(loss, rng):
    Z, _ = make(loss, rng)
    result = certified(Z, np.zeros(len(Z)), loss, 1e-3)
    assert result.objective == 0 and result.dual_gap == 0


@each_loss
@each_intercept
def test_duplicate_rows(loss, fit_intercept, rng):
    Z, y = make(loss, rng, n=20)
    Z, y = np.tile(Z, (30, 1)), np.tile(y, 30)
    for alpha in (1e-2, 1e-6):
        certified(Z, y, loss, alpha, fit_intercept)


@each_loss
@each_intercept
@pytest.mark.parametrize("value", [0.0, 1.0, 1e4])
def test_all_features_equal(loss, fit_intercept, value, rng):
    _, y = make(loss, rng)
    Z = np.full((len(y), 4), value)
    for alpha in (1.0, 1e-6):
        result = certified(Z, y, loss, alpha, fit_intercept)
        np.testing.assert_allclose(result.coef, result.coef[0], rtol=1e-6, atol=1e-6)


@each_loss
@each_intercept
@pytest.mark.parametrize("alpha", [1e-12, 1e-10, 1e6, 1e12])
def test_alpha_tiny_or_huge(loss, fit_intercept, alpha, rng):
    Z, y = make(loss, rng)
    result = certified(Z, y, loss, alpha, fit_intercept)
    if alpha > 1:
        b = loss.constant_minimiser(y) if fit_intercept else 0.0
        constant = loss.value(np.full(len(y), b), y).mean()
        assert result.objective == pytest.approx(constant, rel=1e-4)
        assert np.abs(result.coef).max() < 1e-4


@each_loss
@pytest.mark.parametrize("alpha", [1e-3, 1e-8])
def test_more_features_than_points(loss, alpha, rng):
    Z, y = make(loss, rng, n=30, r=50)
    certified(Z, y, loss, alpha)


@each_regression_loss
@each_intercept
@pytest.mark.parametrize("scale", [1e8, 1e-8])
def test_targets_of_any_scale(loss, fit_intercept, scale, rng):
    Z, y = make(loss, rng, scale=scale)
    for alpha in (1e-2, 1e-6):
        certified(Z, y, loss, alpha, fit_intercept)


@each_loss
@pytest.mark.parametrize("scale", [1e6, 1e-6])
def test_features_of_any_scale(loss, scale, rng):
    Z, y = make(loss, rng)
    certified(scale * Z, y, loss, 1e-2)


def test_targets_far_from_zero(rng):
    Z, y = make(psk.Absolute(), rng)
    for loss in REGRESSION:
        near = certified(Z, y, loss, 1e-3, tol=1e-7)
        far = psk.solve(Z, y + 1e8, loss=loss, alpha=1e-3)
        assert far.converged
        assert far.objective == pytest.approx(near.objective, rel=1e-5)
        assert far.intercept - near.intercept == pytest.approx(1e8)


@each_loss
@each_intercept
def test_weights_of_zero(loss, fit_intercept, rng):
    Z, y = make(loss, rng)
    weight = rng.uniform(size=len(y)) * (rng.uniform(size=len(y)) < 0.5)
    result = certified(Z, y, loss, 1e-3, fit_intercept, weight)
    kept = weight > 0
    alone = psk.solve(
        Z[kept],
        y[kept],
        loss=loss,
        alpha=1e-3,
        fit_intercept=fit_intercept,
        sample_weight=weight[kept],
    )
    assert result.objective == pytest.approx(alone.objective, rel=2e-6)


@each_loss
def test_one_point_has_all_the_weight(loss, rng):
    Z, y = make(loss, rng)
    weight = np.zeros(len(y))
    weight[3] = 5.0
    if isinstance(loss, psk.Logistic):
        with pytest.raises(ValueError, match="y has one class only"):
            psk.solve(Z, y, loss=loss, alpha=1e-3, sample_weight=weight)
        return
    assert certified(Z, y, loss, 1e-3, weight=weight).objective == 0


@each_loss
def test_weights_of_very_different_size(loss, rng):
    Z, y = make(loss, rng)
    weight = 10.0 ** rng.uniform(-8, 8, size=len(y))
    certified(Z, y, loss, 1e-3, weight=weight)


@each_classification_loss
@each_intercept
@pytest.mark.parametrize("alpha", [1e-2, 1e-8])
def test_separable_classes(loss, fit_intercept, alpha, rng):
    y = rng.choice([-1.0, 1.0], size=300)
    Z = rng.normal(size=(300, 4))
    Z[:, 0] = y * rng.uniform(1, 2, size=300)
    result = certified(Z, y, loss, alpha, fit_intercept)
    assert (np.sign(Z @ result.coef + result.intercept) == y).all()


@each_classification_loss
def test_one_of_a_class(loss, rng):
    Z, y = make(loss, rng)
    y[:] = -1
    y[5] = 1
    for alpha in (1e-2, 1e-6):
        certified(Z, y, loss, alpha)


@pytest.mark.parametrize("tau", [1e-3, 1 - 1e-3, 1e-4])
@each_intercept
@pytest.mark.parametrize("alpha", [1e-2, 1e-6, 1e-8])
def test_extreme_quantiles(tau, fit_intercept, alpha, rng):
    Z, y = make(psk.Absolute(), rng, n=3000)
    result = certified(Z, y, psk.Pinball(tau), alpha, fit_intercept)
    if fit_intercept:  # the share of points below is tau, up to the r + 1 on it
        below = (y < Z @ result.coef + result.intercept).sum()
        assert abs(below - tau * len(y)) <= Z.shape[1] + 2


@pytest.mark.parametrize("kappa", [1e-4, 1e4])
@pytest.mark.parametrize("alpha", [1e-2, 1e-6])
def test_huber_next_to_absolute_and_to_squared(kappa, alpha, rng):
    Z, y = make(psk.Absolute(), rng, n=2000, r=20)
    certified(Z, y, psk.Huber(kappa), alpha)


@each_loss
def test_gross_outliers(loss, rng):
    Z, y = make(loss, rng, n=1000)
    if not loss.classification:
        y[:10] += 1e7
    Z[10:20] *= 1e4
    certified(Z, y, loss, 1e-4)


@pytest.mark.parametrize("alpha", [1e-3, 1e-5, 1e-9])
def test_no_point_is_active(alpha):
    """Inside a tube, or behind a margin, w and b must not take turns."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(200, 1))
        y = 0.14 * x[:, 0] + 0.02 * rng.normal(size=200)
        result = certified(x, y, psk.EpsilonInsensitive(0.1), alpha)
        assert result.n_iter < 50
        Z = rng.normal(size=(2, 1))
        assert certified(Z, np.array([-1.0, 1.0]), psk.Hinge(), alpha).n_iter < 50


def test_many_steps_without_an_envelope(rng):
    """Smooth losses have one stage, and all of max_iter for it."""
    Z = rng.normal(size=(300, 30)) * 10.0 ** rng.uniform(-4, 2, size=30)
    y = np.sign(Z.sum(axis=1))
    for loss in (psk.Logistic(), psk.SquaredHinge()):
        certified(Z, y, loss, 1e-9)


def test_far_targets_are_certified_only_as_far_as_their_digits_go(rng):
    Z = rng.normal(size=(20, 2))
    y = Z @ [1.0, 2.0] + 1e9  # interpolated, but for the rounding of y
    with pytest.warns(psk.ConvergenceWarning, match="rounding hides more"):
        result = psk.solve(Z, y, loss="absolute", alpha=1e-8)
    assert not result.converged
    noisy = y + rng.normal(size=20)
    assert psk.solve(Z, noisy, loss="absolute", alpha=1e-3, tol=1e-5).converged


@pytest.mark.parametrize("scale, what", [(1e200, "overflow"), (1e-200, "underflow")])
def test_targets_beyond_float64_are_refused(scale, what, rng):
    Z, y = make(psk.Squared(), rng)
    with pytest.raises(ValueError, match=f"{what}.*scale y"):
        psk.solve(Z, scale * y, alpha=1e-3)


def test_random_problems_in_higher_precision():
    """The stated gap against primal and dual objectives in long double."""
    wide, n_converged = np.longdouble, 0
    n_problems = 600 if "PSKERNELS_LONG" in os.environ else 60
    for seed in range(n_problems):
        rng = np.random.default_rng(seed)
        loss = LOSS_OBJECTS[rng.integers(len(LOSS_OBJECTS))]
        n, r = rng.choice([2, 7, 60, 300]), rng.choice([1, 5, 40])
        Z = rng.normal(size=(n, r)) * 10.0 ** rng.uniform(-3, 2, size=r)
        y = Z @ rng.normal(size=r) + rng.standard_t(1.5, size=n)
        y = 10.0 ** rng.choice([-6, 0, 6]) * (y + rng.choice([0, 10]))
        if loss.classification:
            y = np.where(y > np.median(y), 1.0, -1.0)
        weight = 10.0 ** rng.uniform(-3, 3, size=n)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = psk.solve(
                Z, y, loss=loss, alpha=10.0 ** rng.uniform(-8, 2), sample_weight=weight
            )
        messages = [str(w.message) for w in caught]
        # one of them is at the edge, where compilers' rounding gives the other advice
        allowed = ("rounding hides more", "raise max_iter")
        assert all(any(a in m for a in allowed) for m in messages), seed
        arrays = (wide(Z), wide(y))
        primal = primal_objective(
            loss,
            *arrays,
            wide(result.coef),
            result.intercept,
            result.alpha,
            wide(weight),
        )
        dual = dual_objective(
            loss, *arrays, wide(result.dual), result.alpha, wide(weight)
        )
        null = loss.constant_minimiser(y, weight)
        null = np.average(loss.value(np.full(n, null), y), weights=weight)
        stated = result.dual_gap * max(primal, 1e-9 * null)
        # residuals of targets that are interpolated are rounded in long double, too
        rounding = 1e-12 * primal + 10 * np.finfo(wide).eps * null
        assert primal - dual <= 1.001 * stated + rounding, seed
        n_converged += result.converged
    assert n_converged >= 0.93 * n_problems
