"""A certificate is a proof: thousands of hostile problems, in more digits than it has.

The stated gap must bound that of the returned model, in exact arithmetic: residuals
are summed exactly (`math.fsum`), all else is in long double.  Problems have columns far
from 0, scales over 24 decades, ties, duplicates, weights over many orders.
PSKERNELS_LONG=1 takes many more of them.
"""

import math
import os
import warnings
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
from reference import (
    loss_conjugate,
    loss_value,
    vector_loss_conjugate,
    vector_loss_value,
)

import pskernels as psk
from pskernels import _products
from pskernels._exact import two_product
from pskernels.objective import relative_gap

LONG = os.environ.get("PSKERNELS_LONG") == "1"
N_BLOCKS, BLOCK = (250, 20) if LONG else (10, 20)
WIDE = np.longdouble


def exact_residuals(Z, coef, intercept, y):
    """Z @ coef + intercept - y in long double, from exact products and sums."""
    Z, coef = np.float64(Z), np.float64(coef)
    high = Z * coef
    split = 2.0**27 + 1
    Z_high, c_high = Z * split - (Z * split - Z), coef * split - (coef * split - coef)
    Z_low, c_low = Z - Z_high, coef - c_high
    low = Z_low * c_low - (((high - Z_high * c_high) - Z_low * c_high) - Z_high * c_low)
    residuals = []
    for a, b, target in zip(high, low, y, strict=True):
        terms = [*a, *b, intercept, -target]
        first = math.fsum(terms)
        residuals.append(WIDE(first) + WIDE(math.fsum([*terms, -first])))
    return np.array(residuals)


def make_feasible(zeta, weight):
    """ζ whose weighted sum is 0: that of the heavier side is shrunk."""
    flow = weight * zeta
    total = flow.sum()
    heavy = flow > 0 if total > 0 else flow < 0
    if total == 0:
        return zeta
    return np.where(heavy, zeta * (1 - total / flow[heavy].sum()), zeta)


def true_gap(result, Z, y, loss, weight, fit_intercept):
    """P - D of a result, as two sums of terms that are not negative."""
    weight = WIDE(weight) / WIDE(weight).sum()
    d = 1 if y.ndim == 1 else y.shape[1]
    coef, intercept = result.coef.reshape(-1, d), np.reshape(result.intercept, d)
    zeta = WIDE(result.dual).reshape(-1, d)
    Y = y.reshape(-1, d)
    if d > 1 and loss.of_norm:  # a norm exceeds the domain by its rounding
        norm = np.sqrt((zeta**2).sum(axis=1, keepdims=True))
        upper = loss.upper * (1 - WIDE(1e-18))
        zeta = zeta * (upper / np.maximum(norm, upper))
    if fit_intercept:
        zeta = np.column_stack([make_feasible(column, weight) for column in zeta.T])
    targets = np.zeros_like(Y) if loss.classification else Y
    e = np.column_stack(
        [exact_residuals(Z, coef[:, j], intercept[j], targets[:, j]) for j in range(d)]
    )
    targets = Y if loss.classification else np.zeros_like(Y)
    if d == 1:
        e, zeta, targets = e[:, 0], zeta[:, 0], targets[:, 0]
        excess = loss_value(loss, e, targets) + loss_conjugate(loss, zeta, targets)
        excess = weight @ np.maximum(excess - e * zeta, 0)
    else:
        excess = vector_loss_value(loss, e, targets)
        excess = excess + vector_loss_conjugate(loss, zeta, targets)
        excess = weight @ np.maximum(excess - (e * zeta).sum(axis=1), 0)
    origin = WIDE(Z[0]) if fit_intercept else WIDE(0)  # feasible ζ do not see it
    G = (WIDE(Z) - origin).T @ (weight[:, None] * zeta.reshape(-1, d))
    M = np.eye(d) if result.output_matrix is None else result.output_matrix
    values, vectors = scipy.linalg.eigh(M)
    kept = values > 1e-9 * values[-1]  # a singular M has no other directions
    values, vectors = values[kept], vectors[:, kept]
    root = vectors * np.sqrt(values)
    gradient = result.alpha * WIDE(coef) @ (vectors / np.sqrt(values)) + G @ root
    return excess + (gradient**2).sum() / (2 * WIDE(result.alpha))


def draw_problem(rng):
    """Features, targets, weights and a loss, all of them hostile now and then."""
    n, r = int(rng.choice([2, 3, 7, 30, 80])), int(rng.choice([1, 2, 5, 17]))
    Z = rng.normal(size=(n, r))
    if rng.random() < 0.2:
        Z = np.round(Z)  # ties
    if rng.random() < 0.2:
        Z = Z[rng.integers(n, size=n)]  # duplicates
    u = Z @ rng.normal(size=r)
    Z = Z * 10.0 ** (rng.uniform(-12, 12) * rng.integers(2))
    Z = Z * 10.0 ** rng.uniform(-3, 3, size=r)
    if rng.random() < 0.4:
        Z = Z + np.abs(Z).max() * 10.0 ** rng.uniform(0, 12, size=r)
    if rng.random() < 0.2:
        Z = Z.astype(np.float32)
    noise = rng.choice([0.0, 1e-3, 1.0]) * rng.standard_t(1.5, size=n)
    y = (u + noise + rng.choice([0.0, 0.0, 10.0, 1e6])) * 10.0 ** rng.uniform(-12, 12)
    if rng.random() < 0.2:
        y = np.round(y)
    loss = [
        psk.Huber(float(10.0 ** rng.uniform(-2, 2) * (np.abs(y).mean() or 1.0))),
        psk.EpsilonInsensitive(float(rng.choice([0.0, 0.3]) * np.abs(y).mean())),
        psk.Pinball(float(rng.choice([0.5, 0.9, 0.01]))),
        psk.Absolute(),
        psk.Squared(),
        psk.Hinge(),
        psk.SquaredHinge(),
        psk.Logistic(),
    ][rng.integers(8)]
    if loss.classification:
        y = np.where(y > np.median(y), 1.0, -1.0)
        if (y < 0).all():
            y[0] = 1.0
    weight = np.ones(n)
    if rng.random() < 0.4:
        weight = 10.0 ** rng.uniform(-6, 6, size=n)
    return Z, y, weight, loss


def solve_quietly(*arguments, **options):
    """The result, or None if the problem is refused with a reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", psk.ConvergenceWarning)
        try:
            return psk.solve(*arguments, **options)
        except (ValueError, FloatingPointError) as error:
            assert "scale" in str(error) or "one class only" in str(error), error
            return None


def check(result, Z, y, loss, weight, fit_intercept):
    gap = true_gap(result, Z, y, loss, weight, fit_intercept)
    scale = max(result.objective, 1e-9 * result.null_objective)
    if np.isinf(result.dual_gap):  # nothing is claimed
        return
    allowed = WIDE(result.dual_gap) * WIDE(scale) * (1 + WIDE(1e-12))
    # the reference has 19 digits, and for classes takes 1 - y·u, which cancels
    u = np.abs(Z @ result.coef + result.intercept).max() if loss.classification else 0
    rounding = WIDE(1e-16) * WIDE(result.objective) + WIDE(4e-19) * WIDE(u)
    assert gap <= allowed + rounding, float(gap / scale)


@pytest.mark.parametrize("block", range(N_BLOCKS))
def test_the_stated_gap_bounds_the_true_one(block):
    n_converged = 0
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        rng = np.random.default_rng(seed)
        Z, y, weight, loss = draw_problem(rng)
        fit_intercept = bool(rng.random() < 0.8)
        scale = float((np.float64(Z) ** 2).sum(axis=1).mean()) or 1.0
        alpha = float(np.clip(scale * 10.0 ** rng.uniform(-10, 1), 1e-90, 1e90))
        tol = float(10.0 ** rng.choice([-6, rng.uniform(-15, -6)]))
        solver = "auto"
        if loss.smooth and rng.random() < 0.1:
            solver = "lbfgs"
        result = solve_quietly(
            Z,
            y,
            loss=loss,
            alpha=alpha,
            sample_weight=weight,
            fit_intercept=fit_intercept,
            solver=solver,
            tol=tol,
            max_iter=200,
        )
        if result is None:
            continue
        n_converged += result.converged
        try:
            check(result, Z, y, loss, weight, fit_intercept)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {loss}: true {error}") from error
    assert n_converged >= BLOCK // 4


@pytest.mark.parametrize("block", range(max(1, N_BLOCKS // 5)))
def test_the_same_for_several_outputs(block):
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        rng = np.random.default_rng([7, seed])
        Z, y, weight, loss = draw_problem(rng)
        d = int(rng.choice([2, 3]))
        Y = np.column_stack([np.roll(y, j) for j in range(d)])
        if not loss.classification:
            # far from 0, whatever their scale
            Y = Y + np.abs(Y).max() * 10.0 ** rng.uniform(-3, 13) * rng.integers(2)
        M, rank = None, None
        if rng.random() < 0.5:
            M = np.eye(d) + rng.uniform(0, 0.5)
        elif isinstance(loss, psk.Squared) or rng.random() < 0.2:
            rank = int(rng.integers(1, d))
        scale = float((np.float64(Z) ** 2).sum(axis=1).mean()) or 1.0
        alpha = float(np.clip(scale * 10.0 ** rng.uniform(-8, 1), 1e-90, 1e90))
        result = solve_quietly(
            Z,
            Y,
            loss=loss,
            alpha=alpha,
            output_matrix=M,
            output_rank=rank,
            sample_weight=weight,
            tol=float(10.0 ** rng.choice([-6, rng.uniform(-15, -6)])),
            max_iter=100,
        )
        if result is None:
            continue
        try:
            check(result, Z, Y, loss, weight, True)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {loss}: true {error}") from error


def test_a_false_certificate_that_was_given_once():
    """Columns at 1e9, 1e-3 wide: 8e-7 was claimed where 4e-5 is the truth."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 5))
    y = z.sum(axis=1) + 0.1 * rng.normal(size=500)
    Z, loss = 1e9 + 1e-3 * z, psk.Huber(0.1)
    with pytest.warns(psk.ConvergenceWarning, match="rounding hides more"):
        result = psk.solve(Z, y, loss=loss, alpha=1e-10)
    check(result, Z, y, loss, np.ones(500), True)
    assert result.dual_gap < 1e-3  # centred, it is as good as numbers allow


def test_features_that_do_not_vary_do_not_hang():
    result = psk.solve(np.full((3, 1), 1e6), [1.0, 2.0, 4.0], alpha=1e-8)
    assert result.converged and result.coef[0] == 0
    assert result.intercept == pytest.approx(7 / 3)


def test_dates_as_numbers():
    from pskernels.estimators import SketchedKernelRegressor

    rng = np.random.default_rng(0)
    X = 20240100.0 + rng.integers(1, 31, size=(200, 1))
    y = 0.1 * (X[:, 0] - 20240100) + 0.01 * rng.normal(size=200)
    model = SketchedKernelRegressor(kernel="linear", loss="squared", random_state=0)
    assert model.fit(X, y).score(X, y) > 0.99 and model.converged_


@pytest.mark.parametrize("loss", ["squared", "absolute", "logistic"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_far_origin_changes_nothing_but_the_intercept(loss, dtype):
    rng = np.random.default_rng(0)
    Z = rng.integers(-50, 50, size=(400, 3)).astype(dtype)
    y = Z @ [1.0, -2.0, 0.5] + rng.normal(size=400)
    y = np.sign(y) if loss == "logistic" else y
    far = Z + dtype(2**17)  # exact
    near = psk.solve(Z, y, loss=loss, alpha=1e-2)
    result = psk.solve(far, y, loss=loss, alpha=1e-2)
    assert result.converged
    np.testing.assert_allclose(result.coef, near.coef, rtol=1e-3, atol=1e-6)
    warm = psk.solve(far, y, loss=loss, alpha=1e-2, start=result)
    assert warm.n_iter == 0 and warm.converged
    predicted = result.predict(far.astype(np.float64))
    np.testing.assert_allclose(predicted, near.predict(Z), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("n, r", [(1, 1), (5, 7), (300, 8), (257, 256), (40, 513)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exact_residuals_are_rounded_once(n, r, dtype):
    rng = np.random.default_rng(0)
    Z = (rng.normal(size=(n, r)) * 10.0 ** rng.uniform(-8, 8, size=r)).astype(dtype)
    v = rng.normal(size=r) * 10.0 ** rng.uniform(-8, 8, size=r)
    y = np.float64(Z) @ v + rng.normal(size=n)  # what is left is far smaller
    b, b_low = 3.0, 1e-17
    features = _products.Features(Z, 2)
    found = features.exact_residuals(v, (b, b_low), y)
    right = exact_residuals(Z, v, b, y) + WIDE(b_low)
    sizes = np.abs(np.float64(Z)) @ np.abs(v)
    eps = np.finfo(float).eps
    error = np.abs(found - right)
    assert (error <= eps * np.abs(right) + (r * eps) ** 2 * sizes).all()
    np.testing.assert_array_equal(
        found, _products.Features(Z, 1).exact_residuals(v, (b, b_low), y)
    )


def test_column_ranges_find_what_is_not_finite():
    for bad in (np.nan, np.inf, -np.inf):
        Z = np.ones((1000, 5))
        Z[777, 3] = bad
        with pytest.raises(ValueError, match=r"Z contains .* in row 777, column 3"):
            psk.solve(Z, np.arange(1000.0), alpha=1.0)


@pytest.mark.parametrize("solver", ["newton", psk.Adam(random_state=0)], ids=str)
def test_numbers_that_overflow_prove_nothing(solver):
    """A column at 1e302 made a gap that is not a number, and that was taken for 0."""
    rng = np.random.default_rng(0)
    Z = np.column_stack([rng.normal(size=100), np.full(100, 1e302)])
    y = 3 * Z[:, 0] + 0.1 * rng.normal(size=100)
    with pytest.warns(psk.ConvergenceWarning):
        result = psk.solve(Z, y, loss="absolute", alpha=1e-3, solver=solver, max_iter=1)
    assert not result.converged and result.dual_gap > 1e-6


def test_gaps_that_are_no_numbers_are_infinite():
    assert relative_gap(math.nan, 1.0) == relative_gap(1.0, math.nan) == math.inf
    assert relative_gap(1.0, 0.0) == relative_gap(math.inf, 1.0) == math.inf
    assert relative_gap(0.0, 0.0) == 0.0 and relative_gap(1.0, 2.0) == 0.5


def test_intercepts_are_moved_exactly():
    rng = np.random.default_rng(0)
    origin = rng.normal(size=7) * 10.0 ** rng.uniform(-9, 9, size=7)
    coef = rng.normal(size=7) * 10.0 ** rng.uniform(-9, 9, size=7)
    exact = sum(Fraction(a) * Fraction(b) for a, b in zip(origin, coef, strict=True))
    products = np.concatenate(two_product(origin, coef))
    assert sum(map(Fraction, products.tolist())) == exact


@pytest.mark.parametrize("offset", [0.0, 1e9, 3e12, 1e13])
@pytest.mark.parametrize("rank", [1, 2])
def test_directions_of_far_targets(offset, rank):
    """Rotations of targets far from 0 cost digits that the gap has to know of."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(40, 5))
    Y = Z @ rng.normal(size=(5, 3)) + 0.1 * rng.normal(size=(40, 3)) + offset
    result = solve_quietly(Z, Y, loss=psk.Squared(), alpha=1e-3, output_rank=rank)
    check(result, Z, Y, psk.Squared(), np.ones(40), True)


@pytest.mark.parametrize("missing", [1e16, 9.97e36, 1e100])
@pytest.mark.parametrize("outputs", [1, 2])
def test_targets_without_weight_do_not_count(missing, outputs, rng):
    """Nor in the constant model, whose loss gaps are compared with."""
    Z = rng.normal(size=(50, 3))
    y = (Z @ [1.0, 2.0, 3.0] + 5)[:, None] + 0.1 * rng.normal(size=(50, outputs))
    options = dict(loss="huber", alpha=1e-3, tol=1e-8)
    expected = psk.solve(Z[:20], y[:20], **options)
    y[20:] = missing
    result = psk.solve(Z, y, sample_weight=np.arange(50) < 20, **options)
    np.testing.assert_allclose(result.coef, expected.coef, rtol=1e-4)
    assert result.null_objective == pytest.approx(expected.null_objective)


@pytest.mark.parametrize("start", [3e13, -1e12, 1e6])
@pytest.mark.parametrize("loss", [psk.Huber(0.1), psk.Absolute(), psk.Squared()])
def test_a_start_far_away_in_b_leaves_no_rounding_behind(loss, start, rng):
    Z = rng.normal(size=(20, 2))
    y = Z @ rng.normal(size=2) + 0.1 * rng.normal(size=20)
    options = dict(loss=loss, alpha=0.3, solver="newton")
    best = psk.solve(Z, y, tol=1e-11, **options)
    result = psk.solve(Z, y, tol=1e-6, start=(best.coef, start), **options)
    objective = exact_objective(result, loss, Z, y)
    assert result.converged
    assert result.objective == pytest.approx(objective, rel=1e-9)
    assert objective - best.objective <= result.dual_gap * objective + 1e-11


def exact_objective(model, loss, Z, y):
    penalty = model.alpha / 2 * model.coef @ model.coef
    return loss.value(Z @ model.coef + model.intercept, y).mean() + penalty


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_start_that_overflows_does_not_stay(rng):
    Z = rng.normal(size=(20, 3))
    y = Z @ [1.0, 2.0, 3.0] + rng.normal(size=20)
    result = psk.solve(Z, y, alpha=1e-2, start=(np.full(3, 1e155), 0.0))
    assert result.converged
