"""Points in several blocks: the machine of all of them, to rounding."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pskernels as psk
from pskernels._products import Features
from pskernels.features import FeatureBlocks, as_features
from pskernels.objective import Problem
from pskernels.outputs import Outputs
from pskernels.sample import Sample
from pskernels.solvers import Newton

CUTS = (1, 300, 301)  # blocks of 1, 299, 1 and 199 rows
N = 500
LOSSES = [
    psk.Squared(),
    psk.Huber(0.5),
    psk.Absolute(),
    psk.EpsilonInsensitive(0.2),
    psk.Pinball(0.8),
    psk.Hinge(),
    psk.SquaredHinge(),
    psk.Logistic(),
]


def in_blocks(Z, n_threads=1):
    return FeatureBlocks(
        Features(np.ascontiguousarray(part), n_threads) for part in np.split(Z, CUTS)
    )


def make_data(rng, loss, outputs=()):
    Z = rng.normal(size=(N, 6))
    y = Z @ rng.normal(size=(6, *outputs)) + 1 + rng.standard_t(2, size=(N, *outputs))
    return Z, np.where(y > 1, 1.0, -1.0) if loss.classification else y


def assert_same(one, several):
    assert several.converged and one.converged
    assert several.objective == pytest.approx(one.objective, rel=2e-6)
    np.testing.assert_allclose(several.coef, one.coef, atol=1e-4)
    np.testing.assert_allclose(several.intercept, one.intercept, atol=1e-3)
    assert several.dual.shape == one.dual.shape


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss(loss, fit_intercept, rng):
    Z, y = make_data(rng, loss)
    options = dict(
        loss=loss,
        alpha=1e-2,
        tol=1e-8,
        fit_intercept=fit_intercept,
        sample_weight=rng.uniform(size=N),
    )
    assert_same(psk.solve(Z, y, **options), psk.solve(in_blocks(Z), y, **options))


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_several_outputs(loss, coupled, rng):
    Z, y = make_data(rng, loss, (3,))
    M = psk.graph_matrix(np.ones((3, 3)) - np.eye(3)) if coupled else None
    options = dict(loss=loss, alpha=1e-2, tol=1e-8, output_matrix=M)
    assert_same(psk.solve(Z, y, **options), psk.solve(in_blocks(Z), y, **options))


@pytest.mark.parametrize("solver", ["lbfgs", Newton("cg"), Newton("direct")], ids=str)
def test_every_solver(solver, rng):
    Z, y = make_data(rng, psk.Huber())
    options = dict(loss="huber", alpha=1e-2, solver=solver, tol=1e-8)
    assert_same(psk.solve(Z, y, **options), psk.solve(in_blocks(Z), y, **options))


def test_paths_and_learnt_matrices(rng):
    Z, y = make_data(rng, psk.Squared(), (2,))
    options = dict(alphas=[1e-1, 1e-3], tol=1e-8, output_matrix="residual")
    for one, several in zip(
        psk.path(Z, y, **options), psk.path(in_blocks(Z), y, **options), strict=True
    ):
        assert_same(one, several)


def test_columns_far_from_zero(rng):
    Z, y = make_data(rng, psk.Huber())
    Z[:, 2] += 2**30
    options = dict(loss="huber", alpha=1e-2, tol=1e-8)
    several = psk.solve(in_blocks(Z), y, **options)
    assert_same(psk.solve(Z, y, **options), several)


def test_results_do_not_depend_on_threads(rng):
    """Of the call, not those that features were made for."""
    Z, y = rng.normal(size=(40_000, 30)), rng.standard_t(2, size=40_000)
    options = dict(loss="absolute", alpha=1e-3, tol=1e-4)
    features = FeatureBlocks(Features(part, 4) for part in np.split(Z, [25_000]))
    for k in (1, 4):  # a forked child would wait for threads that it does not have
        assert [b.n_threads for b in as_features(features, k).blocks] == [k, k]
    one, four = (psk.solve(features, y, n_threads=k, **options) for k in (1, 4))
    np.testing.assert_array_equal(one.coef, four.coef)
    np.testing.assert_array_equal(one.dual, four.dual)


def test_features_are_shared_by_python_threads(rng):
    Z, y = rng.normal(size=(20_000, 30)), rng.standard_t(2, size=20_000)
    features = Features(Z, 2)
    alphas = [1e-1, 1e-2, 1e-3, 1e-4]

    def fit(alpha):
        return psk.solve(features, y, loss="absolute", alpha=alpha, tol=1e-4).coef

    expected = [fit(alpha) for alpha in alphas]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            np.testing.assert_array_equal(list(pool.map(fit, alphas)), expected)


def test_origins_are_part_of_features(rng):
    Z, y = make_data(rng, psk.Squared())
    Z[:, 2] += 1e6
    features = Features(Z, 1).near_zero()
    assert features.origin is not None
    one, moved = (psk.solve(given, y, alpha=1e-2) for given in (Z, features))
    np.testing.assert_allclose(moved.coef, one.coef, rtol=1e-6)
    np.testing.assert_allclose(moved.predict(features), one.predict(Z), atol=1e-6)
    again = features.around(np.ones(6))
    np.testing.assert_allclose(moved.predict(again), one.predict(Z), atol=1e-6)
    with pytest.raises(ValueError, match="around an origin need an intercept"):
        psk.solve(features, y, alpha=1e-2, fit_intercept=False)
    with pytest.raises(ValueError, match="blocks must have the same origin"):
        FeatureBlocks([features, Features(Z, 1)])


def test_the_certificate_of_blocks(rng):
    """Primal and dual by NumPy, from the dual of all blocks."""
    Z, y = make_data(rng, psk.Absolute())
    result = psk.solve(in_blocks(Z), y, loss="absolute", alpha=1e-2)
    u = Z @ result.coef + result.intercept
    primal = np.abs(u - y).mean() + 5e-3 * result.coef @ result.coef
    zeta = result.dual
    assert np.abs(zeta).max() <= 1 and abs(zeta.mean()) < 1e-12
    G = Z.T @ zeta / N
    dual = -(zeta @ y) / N - G @ G / 2e-2
    assert result.objective == pytest.approx(primal)
    assert 0 <= primal - dual <= 1.0001 * result.dual_gap * primal + 1e-12


def test_blocks_that_do_not_fit(rng):
    with pytest.raises(ValueError, match=r"equal columns, got \[2, 3\]"):
        FeatureBlocks([Features(np.ones((4, 2)), 1), Features(np.ones((4, 3)), 1)])
    Z, y = make_data(rng, psk.Squared())
    for bad in (np.ones((0, 3)), np.ones((3, 0)), np.ones((3, 3), int), np.ones(3)):
        with pytest.raises(ValueError, match="Z must be an array of float32 or"):
            Features(bad, 1)
    with pytest.raises(ValueError, match="at least one block"):
        FeatureBlocks([])
    nested = FeatureBlocks([in_blocks(Z[:400]), Features(Z[400:], 1)])
    assert (len(nested.blocks), nested.n) == (5, N)
    Z[301, 2] = np.nan  # the first row of the last block
    with pytest.raises(ValueError, match="Z contains NaN in row 0, column 2"):
        psk.solve(in_blocks(Z), y, alpha=1.0)
    with pytest.raises(ValueError, match="for each of 500 rows"):
        psk.solve(in_blocks(np.ones((N, 2))), y[:-1], alpha=1.0)
    with pytest.raises(ValueError, match="'adam' needs an array of features"):
        psk.solve(in_blocks(np.ones((N, 2))), y, alpha=1.0, solver="adam")


def test_a_problem_does_not_change(rng):
    """Two samples of one problem know nothing of each other."""
    Z, y = make_data(rng, psk.Huber())
    weight = np.ones(N)
    problem = Problem(
        Features(Z, 1), psk.Huber(), y[None], weight, Outputs.independent(1), True, 1
    )
    first, second = Sample(problem), Sample(problem)
    theta, b = rng.normal(size=(1, 6)), np.zeros(1)
    first.place(theta, b)
    second.place(0 * theta, b)
    first.differentiate(0.0), second.differentiate(0.0)
    e = Z @ theta[0] + problem.null_intercept - (y - problem.shift)
    zeta = np.clip(e, -1, 1)
    expected = Z.T @ zeta / N + 0.1 * theta[0]
    gradient, total = first.gradient(theta, 0.1)
    np.testing.assert_allclose(gradient[0], expected, rtol=1e-9)
    np.testing.assert_allclose(total, zeta.mean(), atol=1e-12)


@pytest.mark.parametrize("d", [1, 2])
def test_chords_of_huber(d, rng):
    """Parabolas that touch the loss at e, and are nowhere below it."""
    kappa, Z = 0.5, rng.normal(size=(N, 3))
    Y = rng.normal(size=(d, N))
    problem = Problem(
        Features(Z, 1),
        psk.Huber(kappa),
        Y,
        np.ones(N),
        Outputs.independent(d),
        False,
        1,
    )
    sample = Sample(problem)
    sample.place(np.zeros((d, 3)), np.zeros(d))
    sample.differentiate(0.0)
    assert sample.take_chords() == N
    chords = np.minimum(1, kappa / np.linalg.norm(Y, axis=0)) / N
    assert (chords < 0.9 / N).sum() > N / 4
    expected = np.kron(np.eye(d), (Z.T * chords) @ Z)
    if d == 1:
        (found,) = sample.grams()
    else:
        found = sample.norm_hessian(problem.outputs)
    np.testing.assert_allclose(np.triu(found), np.triu(expected), atol=1e-14)


def test_exact_residuals_leave_zeta_alone(rng):
    """Of the squared loss, ζ and e are one array until residuals are exact."""
    Z, y = make_data(rng, psk.Squared())
    problem = Problem(
        in_blocks(Z),
        psk.Squared(),
        y[None],
        np.ones(N),
        Outputs.independent(1),
        True,
        1,
    )
    sample = Sample(problem)
    coef = rng.normal(size=(6, 1))
    sample.place(coef.T, np.zeros(1))
    sample.take_residuals()
    before = sample.zeta_of_outputs().copy()
    sample.place_exactly(coef, np.array([[1.0], [0.0]]))
    np.testing.assert_array_equal(sample.zeta_of_outputs(), before)
    e = np.concatenate([block.e for block in sample.blocks], axis=1)
    np.testing.assert_allclose(e[0], Z @ coef[:, 0] + 1 - y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", ["poisson", "gamma", "expectile"])
def test_smooth_losses_of_blocks(rng, loss):
    Z = rng.normal(size=(300, 4)) + [0.0, 0.0, 1e4, 0.0]  # which is moved
    y = np.exp(0.3 * Z[:, 0] + 0.1 * rng.normal(size=300))
    options = dict(loss=loss, alpha=1e-2, tol=1e-9)
    blocks = FeatureBlocks(Features(part, 1) for part in np.split(Z, [100, 130]))
    result, expected = (psk.solve(each, y, **options) for each in (blocks, Z))
    assert result.converged
    np.testing.assert_allclose(result.coef, expected.coef, atol=1e-6)
    np.testing.assert_allclose(result.predict(Z), expected.predict(Z), atol=1e-5)
    assert result.dual.shape == (300,)


def test_softmax_of_blocks(rng):
    Z = rng.normal(size=(300, 4))
    y = np.argmax(Z[:, :3] + rng.normal(size=(300, 3)), axis=1)
    blocks = FeatureBlocks(Features(part, 1) for part in np.split(Z, [100, 130]))
    (result,), (expected,) = (
        psk.solve_softmax(each, y, alphas=[1e-2], tol=1e-9) for each in (blocks, Z)
    )
    np.testing.assert_allclose(result.coef, expected.coef, atol=1e-5)
