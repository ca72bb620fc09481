"""Several outputs: certified, and equal to solves that are not ours."""

import tracemalloc
import warnings

import numpy as np
import pytest
from conftest import only_long
from reference import vector_dual, vector_loss_value, vector_primal
from scipy.optimize import minimize

import pskernels as psk
from pskernels.outputs import Outputs
from pskernels.solvers import LBFGS, Adam, Newton

D = 4
TAUS = (0.1, 0.3, 0.5, 0.9)

LOSSES = [
    psk.Squared(),
    psk.Huber(0.5),
    psk.EpsilonInsensitive(0.3),
    psk.EpsilonInsensitive(0.0),
    psk.Pinball(TAUS),
    psk.Pinball(0.3),
    psk.Absolute(),
    psk.Hinge(),
    psk.SquaredHinge(),
    psk.Logistic(),
]
each_loss = pytest.mark.parametrize("loss", LOSSES, ids=str)
each_regression_loss = pytest.mark.parametrize("loss", LOSSES[:7], ids=str)
THREE_LOSSES = [psk.Squared(), psk.Huber(0.5), psk.Pinball(TAUS)]
SEPARATE = [loss for loss in LOSSES if not loss.of_norm]


def low_rank():
    factor = np.random.default_rng(5).normal(size=(D, 2))
    return factor @ factor.T


MATRICES = {
    "identity": np.eye(D),
    "quantile": psk.quantile_matrix(TAUS, 3.0),
    "nearly singular": psk.quantile_matrix(TAUS, 0.1),
    "graph": psk.graph_matrix(np.ones((D, D)), 0.7),
    "low rank": low_rank(),
    "one output only": np.diag([0.0, 2.0, 0.0, 0.0]),
    "all the same": np.ones((D, D)),
}
each_matrix = pytest.mark.parametrize("M", MATRICES.values(), ids=MATRICES)


def problem(loss, rng, n=200, r=6, d=D):
    Z = rng.normal(size=(n, r))
    noise = rng.standard_t(3, size=(n, d))
    Y = Z @ rng.normal(size=(r, d)) + np.arange(d) + noise
    return Z, np.where(Y > 1, 1.0, -1.0) if loss.classification else Y


def check_certificate(result, Z, Y, loss, M, weight=None, fit_intercept=True):
    """The gap as the result states it, from NumPy formulas of primal and dual."""
    weight = np.ones(len(Y)) if weight is None else weight
    alpha = result.alpha
    primal = vector_primal(loss, Z, Y, result.coef, result.intercept, M, alpha, weight)
    dual = vector_dual(loss, Z, Y, (1 - 1e-14) * result.dual, M, alpha, weight)
    # the penalty divides by small eigenvalues of M
    rounding = 1e-7 * primal
    assert result.objective == pytest.approx(primal, rel=0, abs=rounding)
    assert dual <= primal + rounding
    assert primal - dual <= result.dual_gap * primal + rounding
    if fit_intercept:
        size = np.abs(weight[:, None] * result.dual).sum(axis=0)
        assert (np.abs(weight @ result.dual) <= 1e-11 * size + 1e-300).all()
    else:
        assert not result.intercept.any()


@each_loss
@each_matrix
@pytest.mark.parametrize(
    "alpha, fit_intercept", [(1.0, True), (1e-3, False), (1e-6, True)]
)
def test_certificate_holds(loss, M, alpha, fit_intercept, rng):
    Z, Y = problem(loss, rng)
    weight = rng.uniform(size=len(Y))
    result = psk.solve(
        Z,
        Y,
        loss=loss,
        alpha=alpha,
        output_matrix=M,
        sample_weight=weight,
        fit_intercept=fit_intercept,
    )
    assert result.converged and result.dual_gap <= 1e-6
    assert result.coef.shape == (6, D) and result.intercept.shape == (D,)
    assert result.dual.shape == (200, D)
    check_certificate(result, Z, Y, loss, M, weight, fit_intercept)


# ---- independent solves ----


@each_matrix
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_squared_equals_the_kronecker_system(M, fit_intercept, rng):
    Z, Y = problem(psk.Squared(), rng, n=60)
    n, r = Z.shape
    alpha = 1e-2
    values, vectors = np.linalg.eigh(M)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    features = np.kron(Z, root)  # (n·d) × (r·d), which the library never forms
    columns = (
        [features, np.kron(np.ones((n, 1)), np.eye(D))] if fit_intercept else [features]
    )
    A = np.hstack(columns)
    penalty = np.zeros(A.shape[1])
    penalty[: r * D] = n * alpha
    solution = np.linalg.lstsq(A.T @ A + np.diag(penalty), A.T @ Y.ravel())[0]
    expected = solution[: r * D].reshape(r, D) @ root
    result = psk.solve(
        Z, Y, alpha=alpha, output_matrix=M, fit_intercept=fit_intercept, tol=1e-12
    )
    np.testing.assert_allclose(result.coef, expected, atol=1e-8)
    if fit_intercept:
        np.testing.assert_allclose(result.intercept, solution[r * D :], atol=1e-8)


@pytest.mark.parametrize(
    "loss", [psk.Huber(0.5), psk.Logistic(), psk.SquaredHinge()], ids=str
)
@pytest.mark.parametrize("name", ["identity", "quantile", "low rank"])
def test_smooth_losses_equal_bfgs(loss, name, rng):
    Z, Y = problem(loss, rng, n=50, r=3)
    M = MATRICES[name]
    values, vectors = np.linalg.eigh(M)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T

    def value(x):
        theta, b = x[: 3 * D].reshape(3, D), x[3 * D :]
        losses = vector_loss_value(loss, Z @ theta @ root + b, Y)
        return losses.mean() + 1e-2 / 2 * (theta**2).sum()

    best = minimize(value, np.zeros(4 * D), method="BFGS", options={"gtol": 1e-8})
    result = psk.solve(Z, Y, loss=loss, alpha=1e-2, output_matrix=M, tol=1e-9)
    assert result.objective == pytest.approx(best.fun, rel=1e-6)


@pytest.mark.parametrize("loss", SEPARATE, ids=str)
@pytest.mark.parametrize("matrix", [None, only_long("identity"), np.eye(D)], ids=str)
def test_identity_equals_separate_fits(loss, matrix, rng):
    Z, Y = problem(loss, rng)
    together = psk.solve(Z, Y, loss=loss, alpha=1e-3, output_matrix=matrix, tol=1e-9)
    taus = np.broadcast_to(getattr(loss, "tau", 0.5), D)
    objective = 0.0
    for j in range(D):
        one = psk.Pinball(taus[j]) if isinstance(loss, psk.Pinball) else loss
        alone = psk.solve(Z, Y[:, j], loss=one, alpha=1e-3, tol=1e-9)
        objective += alone.objective
        # strong convexity: alpha/2·‖difference‖² is at most the gap
        size = np.sqrt(2 * 2e-9 * together.objective / 1e-3)
        assert np.linalg.norm(together.coef[:, j] - alone.coef) <= size
    assert together.objective == pytest.approx(objective, rel=1e-8)
    assert together.converged


@pytest.mark.parametrize("loss", SEPARATE, ids=str)
def test_nearly_the_identity_equals_separate_fits(loss, rng):
    """Solved as one problem, since outputs are not independent by their matrix."""
    Z, Y = problem(loss, rng)
    M = np.diag(1 + 1e-12 * np.arange(D))
    together = psk.solve(Z, Y, loss=loss, alpha=1e-3, output_matrix=M, tol=1e-9)
    separate = psk.solve(Z, Y, loss=loss, alpha=1e-3, tol=1e-9)
    assert together.objective == pytest.approx(separate.objective, rel=1e-8)
    size = np.sqrt(2 * 2e-9 * together.objective / 1e-3)
    assert np.linalg.norm(together.coef - separate.coef) <= size


def test_a_diagonal_matrix_scales_alpha(rng):
    Z, Y = problem(psk.Absolute(), rng)
    scales = np.array([0.1, 1.0, 5.0, 20.0])
    together = psk.solve(
        Z, Y, loss="absolute", alpha=1e-2, output_matrix=np.diag(scales), tol=1e-10
    )
    for j, scale in enumerate(scales):
        alone = psk.solve(Z, Y[:, j], loss="absolute", alpha=1e-2 / scale, tol=1e-10)
        np.testing.assert_allclose(together.coef[:, j], alone.coef, atol=1e-3)


def test_one_output_with_a_matrix(rng):
    Z, Y = problem(psk.Absolute(), rng)
    scaled = psk.solve(Z, Y[:, 0], loss="absolute", alpha=1e-2, output_matrix=[[4.0]])
    alone = psk.solve(Z, Y[:, :1], loss="absolute", alpha=1e-2 / 4)
    assert scaled.coef.shape == (6,) and isinstance(scaled.intercept, float)
    assert scaled.objective == pytest.approx(alone.objective, rel=2e-6)


def test_a_matrix_of_rank_one_gives_proportional_functions(rng):
    Z, Y = problem(psk.Huber(), rng)
    result = psk.solve(
        Z, Y, loss="huber", alpha=1e-3, output_matrix=MATRICES["all the same"]
    )
    np.testing.assert_allclose(result.coef, result.coef[:, :1] * np.ones(D), rtol=1e-9)
    only = psk.solve(
        Z, Y, loss="huber", alpha=1e-3, output_matrix=MATRICES["one output only"]
    )
    assert not only.coef[:, [0, 2, 3]].any() and only.coef[:, 1].any()


# ---- learnt M, and ranks ----


def robust_covariance(residuals):
    """Of mean diagonal 1; clipped at three times 1.4826 times the median deviation."""
    residuals = residuals - np.median(residuals, axis=0)
    limit = 3 * 1.4826 * np.median(np.abs(residuals), axis=0)
    covariance = np.cov(np.clip(residuals, -limit, limit), rowvar=False)
    return covariance / np.trace(covariance) * D


def test_outliers_do_not_decide_about_the_residual_matrix(rng):
    Z = rng.normal(size=(1000, 3))
    common = rng.normal(size=(1000, 1))
    Y = Z[:, :1] + common + 0.3 * rng.normal(size=(1000, D))
    clean = psk.solve(Z, Y, loss="huber", alpha=0.1, output_matrix="residual")
    wild = rng.uniform(size=Y.shape) < 0.03
    Y[wild] += 100 * rng.normal(size=np.count_nonzero(wild))
    spoilt = psk.solve(Z, Y, loss="huber", alpha=0.1, output_matrix="residual")
    for result in (clean, spoilt):
        scale = np.sqrt(np.diag(result.output_matrix))
        assert (result.output_matrix / np.outer(scale, scale) > 0.6).all()


def test_residual_matrix(rng):
    Z, Y = problem(psk.Squared(), rng)
    first = psk.solve(Z, Y, alpha=0.1)
    second = psk.solve(Z, Y, alpha=0.1, output_matrix="residual")
    M = robust_covariance(Y - Z @ first.coef - first.intercept)
    np.testing.assert_allclose(second.output_matrix, M, rtol=1e-6)
    np.testing.assert_allclose(
        second.coef, psk.solve(Z, Y, alpha=0.1, output_matrix=M).coef, rtol=1e-6
    )
    assert first.output_matrix is None
    # nothing is left, and nothing is learnt
    exact = psk.solve(Z, np.zeros((200, 2)), alpha=0.1, output_matrix="residual")
    assert not exact.coef.any() and exact.converged
    one = psk.solve(Z, Y[:, 0], alpha=0.1, output_matrix="residual")
    np.testing.assert_array_equal(one.coef, psk.solve(Z, Y[:, 0], alpha=0.1).coef)


@each_regression_loss
def test_output_rank_of_the_targets(loss, rng):
    Z, Y = problem(loss, rng, d=D)
    centred = Y - Y.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    for k in (1, 2):
        result = psk.solve(Z, Y, loss=loss, alpha=1e-3, output_rank=k)
        M = directions[:k].T @ directions[:k]
        np.testing.assert_allclose(result.output_matrix, M, atol=1e-10)
        assert np.linalg.matrix_rank(result.coef) == k
        check_certificate(result, Z, Y, loss, M)
    whole = psk.solve(Z, Y, loss=loss, alpha=1e-3, output_rank=D)
    assert whole.output_matrix is None
    named = psk.solve(
        Z, Y, loss=loss, alpha=1e-3, output_matrix=np.eye(D), output_rank=2
    )
    np.testing.assert_array_equal(named.coef, result.coef)


@each_regression_loss
def test_output_rank_of_a_matrix(loss, rng):
    Z, Y = problem(loss, rng)
    M = MATRICES["quantile"]
    values, vectors = np.linalg.eigh(M)
    truncated = (vectors[:, 2:] * values[2:]) @ vectors[:, 2:].T
    result = psk.solve(Z, Y, loss=loss, alpha=1e-3, output_matrix=M, output_rank=2)
    np.testing.assert_allclose(result.output_matrix, truncated, atol=1e-12)
    check_certificate(result, Z, Y, loss, truncated)


def test_output_rank_above_the_rank_of_the_targets(rng):
    """Rounding errors are no directions."""
    Z, Y = problem(psk.Squared(), rng)
    Y = Y[:, :1] * [1.0, 2.0, -1.0] + 5
    direction = np.array([[1.0, 2.0, -1.0]])
    for loss in ("squared", "absolute", "huber"):
        result = psk.solve(Z, Y, loss=loss, alpha=1e-3, output_rank=2)
        M = direction.T @ direction / 6
        np.testing.assert_allclose(result.output_matrix, M, atol=1e-12)
    constant = psk.solve(Z, np.ones((200, 3)), alpha=1e-3, output_rank=2)
    np.testing.assert_allclose(constant.coef, 0, atol=1e-12)


def test_low_rank_targets_lose_nothing(rng):
    Z = rng.normal(size=(500, 8))
    Y = Z @ rng.normal(size=(8, 2)) @ rng.normal(size=(2, 30)) + 5
    result = psk.solve(Z, Y, alpha=1e-8, output_rank=2)
    np.testing.assert_allclose(Z @ result.coef + result.intercept, Y, atol=1e-5)


def test_both_orders_of_mixing_agree(rng):
    """Products with Z come first where k is much smaller than d, else last."""
    from pskernels._products import Features

    Z = rng.normal(size=(300, 20))
    features = Features(Z, 1)
    vectors = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    for k in (1, 3, 29, 30):
        outputs = Outputs(vectors, rng.uniform(1, 2, size=k))
        theta, flow = rng.normal(size=(k, 20)), rng.normal(size=(30, 300))
        mixed = outputs.mix @ theta @ Z.T
        np.testing.assert_allclose(
            outputs.predictions(features, theta), mixed, atol=1e-12
        )
        pulled = outputs.mix.T @ flow @ Z
        np.testing.assert_allclose(outputs.pull(features, flow), pulled, atol=1e-11)
        np.testing.assert_allclose(outputs.theta(outputs.coef(theta)), theta)


# ---- solvers ----


@pytest.mark.parametrize("loss", [psk.Huber(0.5), psk.Pinball(TAUS)], ids=str)
@pytest.mark.parametrize("name", ["identity", "quantile", "low rank"])
@pytest.mark.parametrize("fit_intercept", [True, only_long(False)])
def test_hessian_by_conjugate_gradients(loss, name, fit_intercept, rng):
    Z, Y = problem(loss, rng, n=500, r=20)
    options = dict(
        loss=loss,
        alpha=1e-4,
        output_matrix=MATRICES[name],
        fit_intercept=fit_intercept,
        tol=1e-8,
    )
    direct = psk.solve(Z, Y, solver=Newton(hessian="direct"), **options)
    cg = psk.solve(Z, Y, solver=Newton(hessian="cg"), **options)
    assert direct.converged and cg.converged
    assert direct.objective == pytest.approx(cg.objective, rel=2e-8)
    assert cg.n_iter < 5 * direct.n_iter + 10


@pytest.mark.parametrize("loss", [psk.Hinge(), psk.Pinball(0.5)], ids=str)
def test_outputs_without_curvatures(loss, rng):
    """Nothing bends in an output that is fitted from the start: its b is free."""
    Z, Y = problem(loss, rng, n=60, r=5)
    Y[:, 0] = 1.0
    options = dict(loss=loss, alpha=1e-3, output_matrix=MATRICES["graph"], tol=1e-8)
    direct = psk.solve(Z, Y, solver=Newton(hessian="direct"), **options)
    cg = psk.solve(Z, Y, solver=Newton(hessian="cg"), **options)
    assert direct.converged and cg.converged
    assert direct.objective == pytest.approx(cg.objective, rel=2e-8)


@pytest.mark.parametrize("loss", [psk.Huber(0.5), psk.EpsilonInsensitive(0.1)], ids=str)
@pytest.mark.parametrize("d", [2, 5])
def test_residuals_along_an_eigenvector(loss, d, rng):
    """Nothing bends along them: a curvature of 0 up to rounding, of either sign."""
    Z, Y = problem(loss, rng, n=1000, r=30, d=1)
    Y = np.repeat(Y, d, axis=1)
    M = psk.graph_matrix(np.ones((d, d)))
    cg = Newton(hessian="cg")
    result = psk.solve(Z, Y, loss=loss, alpha=1e-3, output_matrix=M, solver=cg)
    assert result.converged
    check_certificate(result, Z, Y, loss, M)


def test_conjugate_gradients_of_one_output_with_a_matrix(rng):
    Z, Y = problem(psk.Pinball(), rng, n=1000, r=20, d=1)
    options = dict(loss=psk.Pinball(0.3), alpha=10.0, output_matrix=[[1e4]])
    steps = [
        psk.solve(Z, Y[:, 0], solver=Newton(hessian=hessian), **options).n_iter
        for hessian in ("direct", "cg")
    ]
    assert steps[1] < 2 * steps[0] + 5


def test_no_point_with_a_curvature(rng):
    """A strong penalty and far targets: all of the losses are linear."""
    Z, Y = problem(psk.Pinball(), rng, n=2, r=60, d=12)
    M = psk.quantile_matrix(np.linspace(0.1, 0.9, 12), 1.0)
    for hessian in ("auto", "direct", "cg"):
        result = psk.solve(
            Z,
            1e4 * (Y + 10),
            loss="pinball",
            alpha=10.0,
            output_matrix=M,
            fit_intercept=False,
            solver=Newton(hessian=hessian),
        )
        assert result.converged


@pytest.mark.parametrize("name", [only_long("identity"), "quantile"])
def test_other_solvers(name, rng):
    Z, Y = problem(psk.Huber(), rng)
    options = dict(loss="huber", alpha=1e-2, output_matrix=MATRICES[name])
    newton = psk.solve(Z, Y, **options)
    lbfgs = psk.solve(Z, Y, solver=LBFGS(), **options)
    assert lbfgs.converged
    assert lbfgs.objective == pytest.approx(newton.objective, rel=2e-6)
    adam = Adam(learning_rate=0.1, batch_size=10, schedule="cosine", random_state=0)
    for loss in (psk.Huber(), psk.Pinball(TAUS), psk.Squared()):
        options["loss"] = loss
        exact = psk.solve(Z, Y, **options)
        for features in (Z, Z.astype(np.float32)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", psk.ConvergenceWarning)
                rough = psk.solve(features, Y, solver=adam, max_iter=60, **options)
            assert exact.objective * (1 - 1e-6) <= rough.objective
            assert rough.objective <= 1.01 * exact.objective


@pytest.mark.parametrize("loss", THREE_LOSSES, ids=str)
@pytest.mark.parametrize("name", ["identity", "quantile"])
def test_path_and_warm_starts(loss, name, rng):
    Z, Y = problem(loss, rng)
    options = dict(loss=loss, output_matrix=MATRICES[name])
    alphas = [1e-4, 1e-1, 1e-2]
    results = psk.path(Z, Y, alphas=alphas, **options)
    for alpha, result in zip(alphas, results, strict=True):
        alone = psk.solve(Z, Y, alpha=alpha, **options)
        assert result.alpha == alpha and result.converged
        assert result.objective == pytest.approx(alone.objective, rel=2e-6)
    again = psk.solve(Z, Y, alpha=1e-4, start=results[0], **options)
    assert again.n_iter == 0
    start = results[0].coef, results[0].intercept
    near = psk.solve(Z, Y, alpha=1e-4, start=start, **options)
    assert near.converged and near.objective == pytest.approx(
        results[0].objective, rel=2e-6
    )


@pytest.mark.parametrize(
    "loss", [psk.Squared(), psk.Huber(0.5), psk.Pinball(0.3)], ids=str
)
@pytest.mark.parametrize("d", [3, only_long(20)])
def test_threads_and_memory_order_change_no_bit(loss, d, rng):
    Z, Y = problem(loss, rng, n=3000, r=12, d=d)
    M = psk.graph_matrix(np.ones((d, d)))
    results = [
        psk.solve(Z, y, loss=loss, alpha=1e-4, output_matrix=M, n_threads=n_threads)
        for n_threads, y in ((1, Y), (2, Y), (5, Y), (2, np.asfortranarray(Y)))
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result.coef, results[0].coef)
        np.testing.assert_array_equal(result.dual, results[0].dual)


def test_inputs_are_not_changed(rng):
    Z, Y = problem(psk.Squared(), rng)
    M = MATRICES["quantile"].copy()
    for array in (Z, Y, M):
        array.flags.writeable = False
    for loss in (psk.Squared(), psk.Huber(), psk.Pinball(TAUS)):
        psk.solve(Z, Y, loss=loss, alpha=1e-2, output_matrix=M)
        psk.solve(Z, np.asfortranarray(Y), loss=loss, alpha=1e-2, output_matrix=M)


@pytest.mark.parametrize("loss", THREE_LOSSES, ids=str)
def test_float32_features(loss, rng):
    Z, Y = problem(loss, rng)
    single = psk.solve(
        Z.astype(np.float32), Y, loss=loss, alpha=1e-3, output_matrix=MATRICES["graph"]
    )
    check_certificate(
        single, Z.astype(np.float32).astype(float), Y, loss, MATRICES["graph"]
    )


def test_memory_of_conjugate_gradients(rng):
    """No (n·d) × (r·d) matrix, and no (r·d)² one if CG is asked for."""
    n, r, d = 3000, 60, 40
    Z, Y = problem(psk.Huber(), rng, n=n, r=r, d=d)
    M = psk.graph_matrix(np.ones((d, d)))
    for loss in (psk.Huber(0.5), psk.Pinball(0.5)):
        tracemalloc.start()
        psk.solve(
            Z, Y, loss=loss, alpha=1e-2, output_matrix=M, solver=Newton(hessian="cg")
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # arrays of n·(r + d), and a block of r² for each direction
        assert peak < 8 * (20 * n * (r + d) + 4 * d * r * r)
        assert peak < 8 * (r * d) ** 2


def test_memory_of_a_whole_hessian(rng):
    n, r, d = 4000, 20, 5
    Z, Y = problem(psk.Huber(), rng, n=n, r=r, d=d)
    M = psk.graph_matrix(np.ones((d, d)))
    for loss in (psk.Huber(0.5), psk.Pinball(0.5)):
        tracemalloc.start()
        psk.solve(
            Z,
            Y,
            loss=loss,
            alpha=1e-2,
            output_matrix=M,
            solver=Newton(hessian="direct"),
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * (20 * n * (r + d) + 6 * (r * d) ** 2)
        assert peak < 8 * n * d * r * d / 2  # half of the Kronecker features


def test_large_problems_use_conjugate_gradients(rng):
    """(r·d)² numbers would be 2 GB."""
    n, r, d = 1000, 150, 110
    Z, Y = problem(psk.Huber(), rng, n=n, r=r, d=d)
    tracemalloc.start()
    result = psk.solve(
        Z, Y, loss="huber", alpha=1e-1, output_matrix=psk.graph_matrix(np.ones((d, d)))
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.converged and peak < 2e8


def test_history_of_separate_outputs(rng):
    Z, Y = problem(psk.Absolute(), rng)
    result = psk.solve(Z, Y, loss="absolute", alpha=1e-3)
    steps = [line.n_iter for line in result.history]
    assert steps == sorted(steps) and steps[-1] == result.n_iter
    assert result.history[-1].dual_gap <= 1e-6
    seconds = [line.seconds for line in result.history]
    assert seconds == sorted(seconds)


def test_gap_of_interpolated_outputs(rng):
    """Gaps are then relative to a share of the null objective."""
    Z, Y = rng.normal(size=(8, 30)), rng.normal(size=(8, 2))
    options = dict(loss="squared_hinge", alpha=1e-12, tol=1e-3)
    Y = np.sign(Y)
    parts = [psk.solve(Z, Y[:, j], **options) for j in range(2)]
    whole = psk.solve(Z, Y, **options)
    assert whole.null_objective == sum(part.null_objective for part in parts)
    floor = 1e-9 * whole.null_objective
    assert whole.objective < floor  # or this test is about something else
    dual = vector_dual(
        psk.SquaredHinge(), Z, Y, whole.dual, np.eye(2), 1e-12, np.ones(8)
    )
    assert whole.objective - dual <= 1.01 * whole.dual_gap * floor


# ---- degenerate ----


@each_regression_loss
def test_degenerate_targets(loss, rng):
    Z, Y = problem(loss, rng)
    M = MATRICES["graph"]
    Y[:, 1] = 3.0  # constant
    Y[:, 2] = Y[:, 0]  # twice the same
    for output_matrix in (None, M):
        result = psk.solve(Z, Y, loss=loss, alpha=1e-3, output_matrix=output_matrix)
        check_certificate(result, Z, Y, loss, np.eye(D) if output_matrix is None else M)
    zero = psk.solve(Z, np.zeros_like(Y), loss=loss, alpha=1e-3, output_matrix=M)
    assert zero.objective == 0 and not zero.coef.any()
    few = psk.solve(Z[:1], Y[:1], loss=loss, alpha=1e-3, output_matrix=M)
    np.testing.assert_allclose(few.intercept + Z[0] @ few.coef, Y[0], atol=0.31)
    weight = np.zeros(len(Y))
    weight[:7] = 1
    some = psk.solve(Z, Y, loss=loss, alpha=1e-2, output_matrix=M, sample_weight=weight)
    alone = psk.solve(Z[:7], Y[:7], loss=loss, alpha=1e-2, output_matrix=M)
    assert some.objective == pytest.approx(alone.objective, rel=1e-5)


@pytest.mark.parametrize("loss", [psk.Huber(0.5), psk.EpsilonInsensitive(0.1)], ids=str)
def test_one_wild_output(loss, rng):
    """All points of one output lie where the loss is linear."""
    Z, Y = problem(loss, rng, n=1000)
    Y[:, 0] += 1e4 * rng.standard_cauchy(size=1000)
    for output_matrix in (None, MATRICES["quantile"]):
        result = psk.solve(Z, Y, loss=loss, alpha=1e-4, output_matrix=output_matrix)
        assert result.converged


@pytest.mark.parametrize("scale, what", [(1e200, "overflow"), (1e-170, "underflow")])
def test_targets_beyond_float64_are_refused(scale, what, rng):
    Z, Y = problem(psk.Huber(), rng)
    for loss in (psk.Huber(scale), psk.EpsilonInsensitive(0.0)):
        with pytest.raises(ValueError, match=f"{what}.*scale y"):
            psk.solve(Z, scale * Y, loss=loss, alpha=1e-3)


# ---- bad input ----


@pytest.mark.parametrize(
    "options, match",
    [
        (
            dict(output_matrix=[[1, 2], [0, 1]]),
            r"output_matrix must be symmetric, but entry \(0, 1\) is 2 and entry "
            r"\(1, 0\) is 0",
        ),
        (
            dict(output_matrix=np.diag([1.0, -1.0])),
            "positive semidefinite, but it has the eigenvalue -1 .*graph_matrix",
        ),
        (
            dict(output_matrix=np.eye(3)),
            r"output_matrix must have shape \(2, 2\), a row for each output, got",
        ),
        (dict(output_matrix=np.ones((2, 3))), r"must be a square matrix, got shape"),
        (dict(output_matrix=np.zeros((2, 2))), "output_matrix must not be 0"),
        (
            dict(output_matrix=[[1, np.nan], [np.nan, 1]]),
            r"output_matrix must be finite, but entry \(0, 1\) is nan",
        ),
        (dict(output_matrix="ident"), "output_matrix must be one of 'identity', 'resi"),
        (dict(output_matrix=[["a"]]), "output_matrix must hold real numbers"),
        (dict(output_rank=0), "output_rank must be at least 1, got 0"),
        (dict(output_rank=3), "output_rank must be at most 2, the outputs of y, got 3"),
        (dict(output_rank=1.5), "output_rank must be an integer, got 1.5"),
        (
            dict(loss=psk.Pinball([0.1, 0.5, 0.9])),
            r"y must have one column, or 3 for the 3 levels of .*, got 2",
        ),
        (
            dict(start=(np.ones((8, 2)), np.ones(3))),
            r"start must have coefficients of shape \(8, 2\) and an intercept of shape "
            r"\(2,\), got \(8, 2\) and \(3,\)",
        ),
        (dict(start=(np.ones(8), 0.0)), "start must have coefficients of shape"),
    ],
)
def test_bad_options(options, match, rng):
    Z, Y = problem(psk.Squared(), rng, r=8, d=2)
    with pytest.raises((ValueError, TypeError), match=match):
        psk.solve(Z, Y, alpha=1e-2, **options)


@pytest.mark.parametrize(
    "y, match",
    [
        (np.ones((5, 2)), "a row of targets, for each of 200 rows of Z, got shape"),
        (np.ones((200, 2, 1)), "y must have one target for each point, or a row"),
        (np.ones((200, 0)), "y must have one target for each point, or a row"),
        (np.ones((2, 200)), r"got shape \(2, 200\); pass y.T\?"),
        ([[1.0, 2.0], [3.0]], "y must be a rectangular array"),
        (None, "y must hold real numbers, got None"),
        (np.full((200, 2), np.inf), "y contains inf in row 0, column 0"),
        (np.full((200, 2), "a"), "y must hold real numbers"),
    ],
)
def test_bad_targets(y, match, rng):
    Z, _ = problem(psk.Squared(), rng)
    with pytest.raises((ValueError, TypeError), match=match):
        psk.solve(Z, y, alpha=1e-2)


def test_a_matrix_needs_as_many_outputs(rng):
    Z, Y = problem(psk.Squared(), rng)
    with pytest.raises(ValueError, match=r"must have shape \(1, 1\), a row for each"):
        psk.solve(Z, Y[:, 0], alpha=1e-2, output_matrix=np.eye(3))


def test_warnings_point_at_the_caller(rng):
    Z, Y = problem(psk.Absolute(), rng)
    for call in (
        lambda: psk.solve(Z, Y, loss="absolute", alpha=1e-3, max_iter=1),
        lambda: psk.path(Z, Y, loss="absolute", alphas=[1e-3], max_iter=1),
        lambda: psk.solve_quantiles(
            Z, Y[:, 0], quantiles=[0.1, 0.5], alpha=1e-3, max_iter=1
        ),
    ):
        with pytest.warns(psk.ConvergenceWarning) as caught:
            call()
        assert caught[0].filename == __file__


def test_a_float32_matrix_may_be_semidefinite_in_float32_only(rng):
    Z, Y = problem(psk.Squared(), rng)
    v = rng.normal(size=D)
    M = np.outer(v, v).astype(np.float32)
    assert np.linalg.eigvalsh(M.astype(float))[0] < 0
    assert psk.solve(Z, Y, alpha=1e-2, output_matrix=M).converged


# ---- output matrices ----


def test_quantile_matrix():
    M = psk.quantile_matrix([0.2, 0.5, 0.9], 2.0)
    assert M[0, 2] == pytest.approx(np.exp(-2 * 0.7**2))
    np.testing.assert_array_equal(psk.quantile_matrix([0.2, 0.5], 0.0), np.ones((2, 2)))
    np.testing.assert_allclose(psk.quantile_matrix([0.2, 0.5], 1e9), np.eye(2))


def test_graph_matrix():
    A = np.array([[0, 1, 0], [1, 0, 2], [0, 2, 0.0]])
    L = np.diag([1.0, 3.0, 2.0]) - A
    for mu in (0.2, 0.9):
        M = psk.graph_matrix(A, mu)
        np.testing.assert_allclose(
            M @ (mu * L + (1 - mu) * np.eye(3)), np.eye(3), atol=1e-13
        )
        np.testing.assert_array_equal(M, M.T)
    np.testing.assert_array_equal(psk.graph_matrix(A, 0), np.eye(3))
    # loops mean nothing to a Laplacian
    np.testing.assert_allclose(
        psk.graph_matrix(A + np.eye(3), 0.2), psk.graph_matrix(A, 0.2)
    )


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: psk.quantile_matrix([0.5, 0.1]), "quantiles must be increasing, got"),
        (lambda: psk.quantile_matrix([0.1, 0.1]), "must not repeat, got 0.1 twice"),
        (lambda: psk.quantile_matrix([0.0, 0.5]), "must be above 0 and below 1, got"),
        (lambda: psk.quantile_matrix([0.5, 1.0]), "must be above 0 and below 1, got"),
        (lambda: psk.quantile_matrix([0.5, np.nan]), "must be above 0 and below 1"),
        (
            lambda: psk.quantile_matrix([]),
            "a sequence of at least one level",
        ),
        (
            lambda: psk.quantile_matrix(0.5),
            "a sequence of at least one level",
        ),
        (lambda: psk.quantile_matrix(["a"]), "quantiles must hold real numbers"),
        (
            lambda: psk.quantile_matrix([0.5], -1),
            "gamma must be finite and not negative",
        ),
        (lambda: psk.graph_matrix([[0, 1], [0, 0]]), "adjacency must be symmetric"),
        (
            lambda: psk.graph_matrix([[0, -1], [-1, 0]]),
            "adjacency must not be negative",
        ),
        (lambda: psk.graph_matrix([[0, 1]]), "adjacency must be a square matrix"),
        (lambda: psk.graph_matrix(np.eye(2), 1.0), r"mu must be in \[0, 1\), got 1"),
        (
            lambda: psk.graph_matrix(np.eye(2), -0.1),
            "mu must be finite and not negative",
        ),
    ],
)
def test_bad_matrices(make, match):
    with pytest.raises((ValueError, TypeError), match=match):
        make()
