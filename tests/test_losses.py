"""Losses against their definitions, their envelopes against brute force."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import pskernels as psk
from pskernels.losses import LOSSES, WeightedLoss, get_loss

REGRESSION = {
    "huber": (psk.Huber(0.7), lambda e: np.where(
        np.abs(e) <= 0.7, e**2 / 2, 0.7 * (np.abs(e) - 0.35))),
    "epsilon_insensitive": (
        psk.EpsilonInsensitive(0.3), lambda e: np.maximum(np.abs(e) - 0.3, 0)),
    "pinball": (psk.Pinball(0.8), lambda e: np.maximum(-0.8 * e, 0.2 * e)),
    "absolute": (psk.Absolute(), np.abs),
    "squared": (psk.Squared(), lambda e: e**2 / 2),
}  # fmt: skip
CLASSIFICATION = {
    "hinge": (psk.Hinge(), lambda m: np.maximum(1 - m, 0)),
    "squared_hinge": (psk.SquaredHinge(), lambda m: np.maximum(1 - m, 0) ** 2),
    "logistic": (psk.Logistic(), lambda m: np.logaddexp(0, -m)),
}
NAMES = [*REGRESSION, *CLASSIFICATION]
KINKS = {"epsilon_insensitive": (-0.3, 0.3), "pinball": (0,), "absolute": (0,)}


def definition(name):
    """(loss object, plain NumPy function of u and y)."""
    if name in REGRESSION:
        loss, function = REGRESSION[name]
        return loss, lambda u, y: function(u - y)
    loss, function = CLASSIFICATION[name]
    return loss, lambda u, y: function(u * y)


def points(name, rng, n=2001):
    u = np.concatenate([rng.normal(scale=2, size=n - 3), [0.0, 40.0, -40.0]])
    y = rng.choice([-1.0, 1.0], size=n)
    return u, y if name in CLASSIFICATION else y * rng.uniform(0, 2, size=n)


def test_every_loss_is_tested():
    assert set(NAMES) == set(LOSSES)
    assert all(get_loss(name) == LOSSES[name]() for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_value(name, rng):
    loss, value = definition(name)
    u, y = points(name, rng)
    np.testing.assert_allclose(loss.value(u, y), value(u, y), rtol=1e-14, atol=1e-14)
    weight = rng.uniform(size=len(u))
    np.testing.assert_allclose(
        loss.value(u, y, sample_weight=weight), weight * value(u, y), atol=1e-13
    )


@pytest.mark.parametrize("name", NAMES)
def test_derivative_by_finite_differences(name, rng):
    loss, value = definition(name)
    u, y = points(name, rng)
    h = 1e-6
    right = (value(u + h, y) - value(u, y)) / h
    left = (value(u, y) - value(u - h, y)) / h
    derivative = loss.derivative(u, y)
    # convex: the derivative lies between the two, also at a kink
    assert (derivative >= left - 1e-7).all() and (derivative <= right + 1e-7).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mu", [0.01, 0.5, 3.0])
def test_prox_is_the_minimiser_and_envelope_the_minimum(name, mu, rng):
    loss, value = definition(name)
    u, y = points(name, rng)
    v = loss.prox(u, y, mu)
    minimum = value(v, y) + (u - v) ** 2 / (2 * mu)
    np.testing.assert_allclose(loss.envelope(u, y, mu), minimum, rtol=1e-12, atol=1e-12)
    for away in (1e-6, 1e-3, 0.1, 1.0, 10.0):
        for other in (v - away, v + away):
            elsewhere = value(other, y) + (u - other) ** 2 / (2 * mu)
            # strongly convex: it rises by away²/(2·mu) at least
            assert (elsewhere >= minimum + away**2 / (2 * mu) * 0.99 - 1e-12).all()


@pytest.mark.parametrize("name", NAMES)
def test_envelope_derivatives(name, rng):
    loss, _ = definition(name)
    u, y = points(name, rng)
    mu, h = 0.4, 1e-6
    first = loss.envelope_derivative(u, y, mu)
    np.testing.assert_allclose(first, (u - loss.prox(u, y, mu)) / mu, atol=1e-10)
    difference = (loss.envelope(u + h, y, mu) - loss.envelope(u - h, y, mu)) / (2 * h)
    np.testing.assert_allclose(first, difference, atol=1e-6, rtol=1e-6)
    change = (
        loss.envelope_derivative(u + h, y, mu) - loss.envelope_derivative(u - h, y, mu)
    ) / (2 * h)
    second = loss.envelope_second_derivative(u, y, mu)
    # 3 of 2001 random points may lie within h of a corner
    corner = np.abs(second - change) > 1e-5
    assert corner.sum() <= 3 and (second >= 0).all() and (second <= 1 / mu).all()


@pytest.mark.parametrize("name", NAMES)
def test_conjugate_by_brute_force(name, rng):
    loss, value = definition(name)
    _, y = points(name, rng, n=200)
    grid = np.linspace(-60, 60, 240_001)
    # derivatives at interior points are where the supremum is attained
    zeta = loss.envelope_derivative(rng.normal(size=200), y, 0.5)
    for k in range(0, 200, 10):
        at = np.append(grid, y[k] + np.array(KINKS.get(name, 0)))
        supremum = (zeta[k] * at - value(at, y[k])).max()
        np.testing.assert_allclose(
            loss.conjugate(zeta[k], y[k]), supremum, rtol=1e-4, atol=1e-5
        )
    if np.isfinite(loss.lipschitz):
        assert np.isinf(loss.conjugate(np.full(200, 1.5), y)).all()


@pytest.mark.parametrize("name", NAMES)
def test_fenchel_young(name, rng):
    loss, _ = definition(name)
    u, y = points(name, rng)
    zeta = loss.envelope_derivative(rng.permutation(u), y, 0.3)
    excess = loss.value(u, y) + loss.conjugate(zeta, y) - u * zeta
    assert (excess > -1e-12).all()
    equal = loss.derivative(u, y)
    np.testing.assert_allclose(
        loss.value(u, y) + loss.conjugate(equal, y), u * equal, atol=1e-11
    )


@pytest.mark.parametrize("name", NAMES)
def test_lipschitz_constant(name, rng):
    loss, value = definition(name)
    u, y = points(name, rng)
    v = u + rng.normal(size=len(u))
    ratio = np.abs(value(u, y) - value(v, y)) / np.abs(u - v)
    assert ratio.max() <= loss.lipschitz * (1 + 1e-12)
    if np.isfinite(loss.lipschitz):
        assert ratio.max() > 0.99 * loss.lipschitz
    assert loss.smooth == (name not in ("hinge", *KINKS))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weighted", [False, True])
def test_constant_minimiser(name, weighted, rng):
    loss, value = definition(name)
    _, y = points(name, rng, n=301)
    weight = rng.integers(0, 4, size=301) if weighted else None
    used = np.ones(301) if weight is None else weight
    b = loss.constant_minimiser(y, weight)
    best = minimize_scalar(
        lambda b: used @ value(b, y), bounds=(-9, 9), method="bounded"
    ).fun
    assert used @ value(b, y) <= best * (1 + 1e-10)


@pytest.mark.parametrize("kappa", [1e-20, 1e-9, 1e-3, 0.5])
def test_constant_minimiser_of_weighted_points(kappa):
    """By hand: all but the points at 1 pull with kappa, to the right by 7 more."""
    weight = np.array([10.0] * 3 + [1.0] * 7)
    best = psk.Huber(kappa).constant_minimiser(np.arange(10.0), weight)
    assert best == pytest.approx(1 + 0.7 * kappa, rel=1e-14)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weight", [[1, 3], [100, 1], [1, 100]])
def test_constant_minimiser_of_two_points(name, weight):
    loss, value = definition(name)
    y = np.array([-1.0, 1.0])
    b = loss.constant_minimiser(y, weight)
    grid = np.linspace(-6, 6, 12_001)
    best = min(weight @ value(at, y) for at in grid)
    assert weight @ value(b, y) <= best + 1e-9


@pytest.mark.parametrize("tau", [1e-3, 0.1, 0.9, 0.999])
def test_constant_minimiser_is_a_quantile(tau, rng):
    y = rng.normal(size=7)
    loss, at = psk.Pinball(tau), np.append(y, [y.min() - 1, y.max() + 1])
    b = loss.constant_minimiser(y)
    assert loss.value(b, y).sum() <= min(loss.value(a, y).sum() for a in at) + 1e-12


def test_constant_minimiser_of_one_class():
    assert psk.Logistic().constant_minimiser(np.ones(3)) == np.inf
    assert psk.Logistic().constant_minimiser(-np.ones(3)) == -np.inf
    assert psk.Hinge().constant_minimiser(np.ones(3)) == 1
    assert psk.Hinge().constant_minimiser(-np.ones(3)) == -1


@pytest.mark.parametrize(
    "d, n", [(1, 1), (1, 4095), (1, 4096), (1, 4097), (1, 20_000), (3, 5), (4, 9000)]
)
@pytest.mark.parametrize("name", NAMES)
def test_sums_do_not_depend_on_threads(name, d, n, rng):
    loss, _ = definition(name)
    u = rng.normal(size=(d, n))
    y = rng.choice([-1.0, 1.0], size=(d, n))
    weight = rng.uniform(size=n)
    zeta_k = rng.uniform(-0.1, 0, size=(d, n)) if name != "logistic" else None
    mu = 0.2 if name != "logistic" else 0.0
    shift = 0.5 * np.arange(d)
    results = []
    for n_threads in (1, 2, 5):
        points = WeightedLoss(loss, y, weight / weight.sum(), n_threads)
        e = points.residuals(u - shift[:, None], shift)
        zeta, curvature = np.empty((d, n)), points.make_curvature()
        n_active = points.smooth_derivatives(e, zeta_k, mu, zeta, curvature)
        slopes = [points.slope(e, u, zeta_k, mu, t) for t in (0.3, 0.3 + 1e-6)]
        sums = points.fenchel_young(e, zeta)
        results.append((n_active, zeta, curvature, slopes, sums))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)

    n_active, zeta, curvature, slopes, sums = results[0]
    assert points.radial == (d > 1 and name in ("huber", "epsilon_insensitive"))
    share = weight / weight.sum()
    shifted = u if zeta_k is None else u + mu * zeta_k * points.sign
    expected = loss.envelope_derivative(shifted, y, mu, axis=0)
    np.testing.assert_allclose(points.sign * zeta, expected, atol=1e-14)
    curved = curvature[:1] if points.radial else curvature
    np.testing.assert_array_equal(n_active, np.count_nonzero(curved, axis=1))
    value = loss.value(u, y, axis=0)
    np.testing.assert_allclose(sums[0], share @ value, rtol=1e-12)
    conjugate = loss.conjugate((1 - 1e-15) * points.sign * zeta, y, axis=0)
    excess = value + conjugate - (u * points.sign * zeta).sum(axis=0)
    np.testing.assert_allclose(sums[1], share @ excess, atol=1e-13)
    moved = shifted + 0.3 * points.sign * u
    by_point = points.sign * loss.envelope_derivative(moved, y, mu, axis=0)
    slope = share @ (u * by_point).sum(axis=0)
    np.testing.assert_allclose(slopes[0][0], slope, atol=1e-12)
    difference = (slopes[1][0] - slopes[0][0]) / 1e-6
    # a few points may pass a corner
    np.testing.assert_allclose(slopes[0][1], difference, rtol=1e-2, atol=2e-2 * d)


@pytest.mark.parametrize("mu", [0.0, 0.3])
@pytest.mark.parametrize("name", ["huber", "epsilon_insensitive"])
def test_hessian_of_a_loss_of_the_norm(name, mu, rng):
    loss, _ = definition(name)
    d, n, h = 3, 200, 1e-6
    y = rng.normal(size=(d, n))
    points = WeightedLoss(loss, y, np.full(n, 1 / n), 1)
    e = rng.normal(size=(d, n))
    zeta, curvature = np.empty((d, n)), points.make_curvature()
    points.smooth_derivatives(e, None, mu, zeta, curvature)
    across, along = n * curvature
    moved = np.empty_like(zeta)
    wrong = 0
    for j in range(d):
        near = e.copy()
        near[j] += h
        points.smooth_derivatives(near, None, mu, moved, curvature)
        column = along * zeta[j] * zeta
        column[j] += across
        difference = np.abs((moved - zeta) / h - column).max(axis=0)
        wrong += np.count_nonzero(difference > 1e-3)
    assert wrong <= 1  # a corner may lie in between


VECTOR_LOSSES = [
    psk.Huber(0.7),
    psk.EpsilonInsensitive(0.3),
    psk.EpsilonInsensitive(0.0),
    psk.Pinball((0.1, 0.5, 0.8)),
    psk.Pinball(0.3),
    psk.Absolute(),
    psk.Squared(),
]


@pytest.mark.parametrize("loss", VECTOR_LOSSES, ids=str)
def test_vectors(loss, rng):
    """Value by definition; conjugate, prox and envelope by what they are."""
    u, y = rng.normal(size=(2, 50, 3))
    value = loss.value(u, y, axis=1)
    np.testing.assert_allclose(value, loss_of_vectors(loss, u, y), rtol=1e-13)
    np.testing.assert_array_equal(loss.value(u.T, y.T, axis=0), value)

    # Fenchel and Young: ≥ 0 for any pair, 0 at a derivative
    zeta = loss.derivative(u, y, axis=1)
    conjugate = loss.conjugate((1 - 1e-15) * zeta, y, axis=1)
    np.testing.assert_allclose(value + conjugate, (u * zeta).sum(axis=1), atol=1e-12)
    for _ in range(20):
        moved = u + rng.normal(size=u.shape)
        other = loss.value(moved, y, axis=1)
        assert (other + conjugate >= (moved * zeta).sum(axis=1) - 1e-12).all()
    outside = 1e3 * np.ones_like(zeta)
    if not isinstance(loss, psk.Squared):
        assert np.isinf(loss.conjugate(outside, y, axis=1)).all()

    mu = 0.4
    prox = loss.prox(u, y, mu, axis=1)
    envelope = loss.envelope(u, y, mu, axis=1)
    at_prox = loss.value(prox, y, axis=1) + ((u - prox) ** 2).sum(axis=1) / (2 * mu)
    np.testing.assert_allclose(envelope, at_prox, atol=1e-13)
    for size in (1.0, 1e-2):
        near = prox + size * rng.normal(size=u.shape)
        there = loss.value(near, y, axis=1) + ((u - near) ** 2).sum(axis=1) / (2 * mu)
        assert (there >= envelope - 1e-13).all()
    slope = loss.envelope_derivative(u, y, mu, axis=1)
    np.testing.assert_allclose(slope, (u - prox) / mu, atol=1e-12)
    weight = rng.uniform(size=50)
    weighted = loss.derivative(u, y, sample_weight=weight, axis=1)
    np.testing.assert_allclose(weighted, weight[:, None] * zeta)


def loss_of_vectors(loss, u, y):
    """From the definitions: one value for each row."""
    e = u - y
    norm = np.sqrt((e**2).sum(axis=1))
    match loss:
        case psk.Huber(k):
            return np.where(norm <= k, norm**2 / 2, k * (norm - k / 2))
        case psk.EpsilonInsensitive(epsilon):
            return np.maximum(norm - epsilon, 0)
        case psk.Pinball(tau):
            tau = np.array(tau)
            return np.maximum(-tau * e, (1 - tau) * e).sum(axis=1)
        case psk.Absolute():
            return np.abs(e).sum(axis=1)
        case psk.Squared():
            return (e**2).sum(axis=1) / 2


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: psk.Huber(0), "kappa must be positive and finite, got 0"),
        (lambda: psk.Huber("1"), "kappa must be a real number, got '1'"),
        (lambda: psk.EpsilonInsensitive(-1), "epsilon must be finite and not negative"),
        (lambda: psk.Pinball(1.0), "tau must be above 0 and below 1, got 1.0"),
        (lambda: psk.Hinge().check_targets([0, 1]), "y must be \\+1 or -1 for Hinge"),
        (lambda: psk.Squared().check_targets([np.nan]), "y contains NaN at index 0"),
        (lambda: psk.Squared().check_targets([[[1, 2]]]), "y must have one target"),
        (lambda: psk.Squared().constant_minimiser([[1, 2]]), "y must be 1-d"),
        (lambda: psk.Pinball([]), r"tau must be a level or a sequence of levels, got"),
        (lambda: psk.Pinball([[0.1, 0.9]]), "tau must be a level or a sequence of"),
        (lambda: get_loss(psk.Huber), r"an object is needed, Huber\(\)"),
        (lambda: psk.Hinge().check_targets([0, 1, 2]), r"np.where\(y\[:, None\] =="),
        (lambda: psk.Pinball([0.5, 1.5]), "tau must be above 0 and below 1, got 1.5"),
        (
            lambda: psk.Pinball([0.1, 0.5]).check_targets([[1, 2, 3]]),
            "y must have one column, or 2 for the 2 levels of Pinball.*, got 3",
        ),
        (
            lambda: psk.Pinball([0.1, 0.5]).value([1.0, 2.0], [0.0, 0.0]),
            "has 2 outputs: say along which axis they lie",
        ),
        (lambda: psk.Squared().prox(0.0, 1.0, 0.0), "mu must be positive"),
        (lambda: get_loss("l2"), "loss must be a loss object such as"),
        (
            lambda: psk.Squared().constant_minimiser([1, 2], [1, -1]),
            "sample_weight must not be negative, got -1",
        ),
        (
            lambda: psk.Squared().constant_minimiser([1, 2], [0, 0]),
            "sample_weight must not be all 0",
        ),
    ],
)
def test_bad_input(make, match):
    with pytest.raises((TypeError, ValueError), match=match):
        make()
