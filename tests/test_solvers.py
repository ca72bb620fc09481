"""Solvers: certified, and equal to solves that are not ours."""

import warnings

import numpy as np
import pytest
from reference import dual_objective, primal_objective
from scipy.optimize import minimize

import pskernels as psk
from pskernels.features import FeatureBlocks, as_features
from pskernels.losses import LOSSES, get_loss
from pskernels.solvers import LBFGS, Adam, Direct, Newton, newton
from pskernels.solvers.hessian import (
    changed_solve,
    conjugate_gradients,
    direction_preconditioner,
    factorise,
    solve_factorised,
)

LOSS_OBJECTS = [
    psk.Huber(0.5),
    psk.EpsilonInsensitive(0.1),
    psk.Pinball(0.5),
    psk.Pinball(0.9),
    psk.Absolute(),
    psk.Squared(),
    psk.Hinge(),
    psk.SquaredHinge(),
    psk.Logistic(),
]
each_loss = pytest.mark.parametrize("loss", LOSS_OBJECTS, ids=str)
each_intercept = pytest.mark.parametrize("fit_intercept", [True, False])


def problem(loss, rng, n=300, r=8):
    Z = rng.normal(size=(n, r))
    y = Z @ rng.normal(size=r) + 3 + rng.standard_t(2, size=n)
    return Z, np.where(y > 2, 1.0, -1.0) if loss.classification else y


def check_certificate(result, Z, y, loss, weight=None, fit_intercept=True):
    """The gap as the result states it, from NumPy formulas of primal and dual."""
    weight = np.ones(len(y)) if weight is None else weight
    primal = primal_objective(
        loss, Z, y, result.coef, result.intercept, result.alpha, weight
    )
    dual = dual_objective(loss, Z, y, result.dual, result.alpha, weight)
    # predictions are rounded, and where they interpolate nothing else is left
    null = primal_objective(loss, Z, y, 0 * result.coef, 0.0, result.alpha, weight)
    rounding = 1e-12 * primal + 1e-14 * null
    assert result.objective == pytest.approx(primal, rel=0, abs=rounding)
    assert dual <= primal + rounding
    assert primal - dual <= result.dual_gap * primal + rounding
    if fit_intercept:
        size = np.abs(weight * result.dual).sum()
        assert abs(weight @ result.dual) <= 1e-11 * max(size, 1e-300)
    else:
        assert result.intercept == 0


@each_loss
@each_intercept
@pytest.mark.parametrize("alpha", [1.0, 1e-3, 1e-7])
def test_certificate_holds(loss, fit_intercept, alpha, rng):
    Z, y = problem(loss, rng)
    weight = rng.uniform(size=len(y))
    result = psk.solve(
        Z, y, loss=loss, alpha=alpha, sample_weight=weight, fit_intercept=fit_intercept
    )
    assert result.converged and result.dual_gap <= 1e-6
    check_certificate(result, Z, y, loss, weight, fit_intercept)


# ---- independent solves ----


def solve_smooth(loss, Z, y, alpha):
    """BFGS on the primal, for smooth losses."""

    def value(x):
        return primal_objective(loss, Z, y, x[:-1], x[-1], alpha, np.ones(len(y)))

    best = minimize(value, np.zeros(Z.shape[1] + 1), method="BFGS",
                    options={"gtol": 1e-9, "maxiter": 5000})  # fmt: skip
    return best.fun


def solve_quadratic_programme(loss, Z, y, alpha):
    """Piecewise-linear losses as a quadratic programme in w, b and slacks."""
    n, r = Z.shape
    if loss.classification:
        Z, b, offset = y[:, None] * Z, y, 1.0
    else:
        b, offset = np.ones(n), y
    up, down = loss.upper, -loss.lower

    def split(x):
        return x[:r], x[r], x[r + 1 : r + 1 + n], x[r + 1 + n :]

    def value(x):
        w, _, above, below = split(x)
        return (up * above.sum() + down * below.sum()) / n + alpha / 2 * w @ w

    def gradient(x):
        out = np.concatenate(
            [np.zeros(r + 1), np.full(n, up / n), np.full(n, down / n)]
        )
        out[:r] = alpha * x[:r]
        return out

    eye, zero = np.eye(n), np.zeros((n, n))
    residual = np.column_stack([Z, b])
    # above ≥ e - epsilon, below ≥ -e - epsilon, both ≥ 0
    A = np.block([[-residual, eye, zero], [residual, zero, eye]])
    limit = np.concatenate([-offset * np.ones(n), offset * np.ones(n)]) - loss.epsilon
    best = minimize(
        value,
        np.concatenate([np.zeros(r + 1), np.abs(y) + 2, np.abs(y) + 2]),
        jac=gradient,
        method="SLSQP",
        bounds=[(None, None)] * (r + 1) + [(0, None)] * (2 * n),
        constraints={
            "type": "ineq",
            "fun": lambda x: A @ x - limit,
            "jac": lambda x: A,
        },
        # at 1e-13 rounding decides whether the search ends well
        options={"ftol": 1e-10, "maxiter": 1000},
    )
    assert best.success
    return best.fun


@each_loss
@pytest.mark.parametrize("alpha", [0.1, 1e-3])
def test_objective_equals_an_independent_solve(loss, alpha, rng):
    Z, y = problem(loss, rng, n=40, r=3)
    independent = solve_smooth if loss.smooth else solve_quadratic_programme
    expected = independent(loss, Z, y, alpha)
    result = psk.solve(Z, y, loss=loss, alpha=alpha, tol=1e-9)
    assert result.objective == pytest.approx(expected, rel=1e-6)
    check_certificate(result, Z, y, loss)


@each_intercept
def test_squared_equals_the_closed_form(fit_intercept, rng):
    Z, y = problem(psk.Squared(), rng)
    weight = rng.uniform(size=len(y))
    share = weight / weight.sum()
    mean_z = share @ Z if fit_intercept else 0
    mean_y = share @ y if fit_intercept else 0
    centred = Z - mean_z
    H = centred.T @ (share[:, None] * centred) + 1e-3 * np.eye(Z.shape[1])
    coef = np.linalg.solve(H, centred.T @ (share * (y - mean_y)))
    for solver in ("direct", "newton", "lbfgs"):
        result = psk.solve(
            Z,
            y,
            alpha=1e-3,
            sample_weight=weight,
            fit_intercept=fit_intercept,
            solver=solver,
            tol=1e-12,
        )
        np.testing.assert_allclose(result.coef, coef, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            result.intercept, mean_y - np.dot(mean_z, coef), atol=1e-5
        )


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_support_vector_machines_equal_libsvm(C, rng):
    svm = pytest.importorskip("sklearn.svm")
    Z, targets = problem(psk.Absolute(), rng, n=120, r=4)
    labels = np.where(targets > 3, 1.0, -1.0)
    alpha = 1 / (C * len(targets))
    for loss, y, peer in [
        (psk.Absolute(), targets, svm.SVR(epsilon=0.0)),
        (psk.EpsilonInsensitive(0.5), targets, svm.SVR(epsilon=0.5)),
        (psk.Hinge(), labels, svm.SVC()),
    ]:
        peer.set_params(kernel="linear", C=C, tol=1e-9).fit(Z, y)
        expected = primal_objective(
            loss, Z, y, peer.coef_[0], peer.intercept_[0], alpha, np.ones(len(y))
        )
        ours = psk.solve(Z, y, loss=loss, alpha=alpha, tol=1e-9)
        # libsvm stops a little earlier
        assert ours.objective <= expected * (1 + 1e-9)
        assert expected <= ours.objective * (1 + 1e-5)
        np.testing.assert_allclose(ours.coef, peer.coef_[0], atol=1e-3)


def test_logistic_equals_scikit_learn(rng):
    linear_model = pytest.importorskip("sklearn.linear_model")
    Z, y = problem(psk.Logistic(), rng)
    peer = linear_model.LogisticRegression(
        C=10.0, solver="newton-cholesky", tol=1e-12
    ).fit(Z, y)
    ours = psk.solve(Z, y, loss="logistic", alpha=1 / (10 * len(y)), tol=1e-12)
    np.testing.assert_allclose(ours.coef, peer.coef_[0], rtol=1e-6)
    np.testing.assert_allclose(ours.intercept, peer.intercept_[0], rtol=1e-6)


# ---- solvers against each other ----


@pytest.mark.parametrize("solver", [Newton(hessian="direct"), Newton(hessian="cg")])
@each_loss
@each_intercept
def test_newton_by_both_kinds_of_steps(solver, loss, fit_intercept, rng):
    Z, y = problem(loss, rng, n=2000, r=20)
    result = psk.solve(
        Z,
        y,
        loss=loss,
        alpha=1e-4,
        fit_intercept=fit_intercept,
        solver=solver,
        tol=1e-8,
    )
    assert result.converged
    check_certificate(result, Z, y, loss, fit_intercept=fit_intercept)


@each_loss
def test_lbfgs_agrees_or_refuses(loss, rng):
    Z, y = problem(loss, rng)
    if not loss.smooth:
        with pytest.raises(ValueError, match="'lbfgs' needs a smooth loss"):
            psk.solve(Z, y, loss=loss, alpha=1e-3, solver="lbfgs")
        return
    result = psk.solve(Z, y, loss=loss, alpha=1e-3, solver=LBFGS(memory=10))
    best = psk.solve(Z, y, loss=loss, alpha=1e-3, solver="newton", tol=1e-10)
    assert result.converged
    assert result.objective == pytest.approx(best.objective, rel=1e-6)
    check_certificate(result, Z, y, loss)


@each_loss
@pytest.mark.parametrize("batch_size, dtype", [(1, "float64"), (7, "float32")])
def test_adam_comes_near_and_is_certified(loss, batch_size, dtype, rng):
    Z, y = problem(loss, rng)
    Z = Z.astype(dtype)
    solver = Adam(0.3, batch_size=batch_size, schedule="cosine", random_state=0)
    best = psk.solve(Z, y, loss=loss, alpha=1e-2, tol=1e-9)
    result = psk.solve(
        Z, y, loss=loss, alpha=1e-2, solver=solver, max_iter=100, tol=0.2
    )
    assert result.converged
    assert best.objective <= result.objective * (1 + 1e-9)
    assert result.objective <= best.objective * 1.2
    check_certificate(result, Z.astype(float), y, loss)


@pytest.mark.parametrize("shuffle", [True, False])
def test_adam_is_the_textbook_algorithm(rng, shuffle):
    """Against a few lines of NumPy, in the order that the seed gives, or the rows'."""
    Z, y = problem(psk.Huber(), rng, n=50, r=3)
    orders = []

    class Recorder(np.random.Generator):
        def permutation(self, n):
            orders.append(super().permutation(n))
            return orders[-1]

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", psk.ConvergenceWarning)
        patch.setattr(
            "pskernels.solvers.adam.make_generator",
            lambda key: Recorder(np.random.Philox(key=key)),
        )
        result = psk.solve(
            Z,
            y,
            loss=psk.Huber(),
            alpha=0.1,
            solver=Adam(
                0.01,
                batch_size=4,
                schedule="constant",
                shuffle=shuffle,
                random_state=3,
            ),
            max_iter=2,
            start=(np.zeros(3), 0.0),
            fit_intercept=False,
        )
    if not shuffle:
        assert not orders
        orders = [np.arange(50)] * 2
    assert len(orders) == 2
    w, m, v, t = np.zeros(3), np.zeros(3), np.zeros(3), 0
    for epoch in orders:
        for start in range(0, 50, 4):
            rows = epoch[start : start + 4]
            pull = np.clip(Z[rows] @ w - y[rows], -1, 1)
            g = Z[rows].T @ pull / len(rows) + 0.1 * w
            t += 1
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g**2
            w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(result.coef, w, rtol=1e-10)


def test_adam_depends_on_its_seed_only(rng):
    Z, y = problem(psk.Huber(), rng)

    def run(seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", psk.ConvergenceWarning)
            solver = Adam(random_state=seed)
            return psk.solve(Z, y, loss="huber", alpha=0.1, solver=solver, max_iter=2)

    np.testing.assert_array_equal(run(1).coef, run(1).coef)
    assert not np.array_equal(run(1).coef, run(2).coef)


# ---- paths, warm starts, weights ----


@each_loss
def test_path_equals_separate_solves(loss, rng):
    Z, y = problem(loss, rng)
    alphas = [1e-5, 1.0, 1e-2]
    results = psk.path(Z, y, alphas=alphas, loss=loss)
    for alpha, result in zip(alphas, results, strict=True):
        alone = psk.solve(Z, y, loss=loss, alpha=alpha)
        assert result.alpha == alpha and result.converged
        assert result.objective == pytest.approx(alone.objective, rel=2e-6)
        check_certificate(result, Z, y, loss)


@each_loss
def test_warm_start_at_the_solution_is_short(loss, rng):
    Z, y = problem(loss, rng)
    cold = psk.solve(Z, y, loss=loss, alpha=1e-3)
    warm = psk.solve(Z, y, loss=loss, alpha=1e-3, start=cold)
    assert warm.converged and warm.n_iter == 0
    from_tuple = psk.solve(
        Z, y, loss=loss, alpha=1e-3, start=(cold.coef, cold.intercept)
    )
    assert from_tuple.objective == pytest.approx(cold.objective, rel=2e-6)


@each_loss
@each_intercept
def test_weights_are_repetitions(loss, fit_intercept, rng):
    Z, y = problem(loss, rng, n=100)
    weight = rng.integers(0, 4, size=100)
    options = dict(loss=loss, alpha=1e-2, fit_intercept=fit_intercept, tol=1e-10)
    weighted = psk.solve(Z, y, sample_weight=weight, **options)
    repeated = psk.solve(np.repeat(Z, weight, axis=0), np.repeat(y, weight), **options)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-9)
    np.testing.assert_allclose(weighted.coef, repeated.coef, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "loss, target",
    [
        (loss, target)
        for loss in LOSS_OBJECTS
        for target in LOSS_OBJECTS
        if loss.classification == target.classification
    ],
    ids=str,
)
def test_warm_start_from_another_loss(loss, target, rng):
    Z, y = problem(loss, rng, n=100)
    for alpha in (1e-3, 1e3):
        start = psk.solve(Z, y, loss=loss, alpha=alpha)
        warm = psk.solve(Z, y, loss=target, alpha=1e-3, start=start)
        cold = psk.solve(Z, y, loss=target, alpha=1e-3)
        assert warm.objective == pytest.approx(cold.objective, rel=2e-6)
        assert warm.n_iter <= 2 * cold.n_iter + 10


# ---- what a result says ----


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "adam", "direct"])
def test_history(solver, rng):
    Z, y = problem(psk.Squared(), rng)
    result = psk.solve(Z, y, alpha=0.1, solver=solver, tol=0.1)
    history = result.history
    assert result.solver == solver and result.converged
    gaps = [line.dual_gap for line in history]
    seconds = [line.seconds for line in history]
    assert gaps == sorted(gaps, reverse=True)
    # what rounding may hide is added at the end
    assert gaps[-1] == pytest.approx(result.dual_gap, abs=1e-11)
    assert seconds == sorted(seconds) and seconds[0] >= 0
    assert history[0].n_iter == 0 and history[-1].n_iter == result.n_iter
    lowest = min(line.objective for line in history)
    assert lowest == pytest.approx(result.objective, rel=1e-12)
    assert all(0 <= line.n_active <= len(y) for line in history)


def test_not_converged_warns_with_the_gap_and_keeps_the_model(rng):
    Z, y = problem(psk.Absolute(), rng)
    with pytest.warns(psk.ConvergenceWarning, match="gap of .* above tol=1e-06") as w:
        result = psk.solve(Z, y, loss="absolute", alpha=1e-3, max_iter=2)
    assert w[0].filename == __file__
    assert not result.converged and result.n_iter == 2
    assert f"{result.dual_gap:.2e}" in str(w[0].message)
    check_certificate(result, Z, y, psk.Absolute())


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "adam", "direct"])
def test_no_iterations_leave_the_constant_model(solver, rng):
    Z, y = problem(psk.Squared(), rng)
    with pytest.warns(psk.ConvergenceWarning, match=f"{solver} stopped after 0 iter"):
        result = psk.solve(Z, y, alpha=1e-3, solver=solver, max_iter=0)
    assert not result.coef.any()
    assert result.intercept == pytest.approx(y.mean())


def test_results_do_not_depend_on_threads(rng):
    Z = rng.normal(size=(20_000, 30))
    y = Z @ rng.normal(size=30) + rng.normal(size=20_000)
    for solver in (Newton("direct"), Newton("cg"), Direct()):
        loss = "squared" if isinstance(solver, Direct) else "absolute"
        one, two, five = (
            psk.solve(Z, y, loss=loss, alpha=1e-4, solver=solver, n_threads=k)
            for k in (1, 2, 5)
        )
        for other in (two, five):
            np.testing.assert_array_equal(one.coef, other.coef)
            np.testing.assert_array_equal(one.dual, other.dual)
            assert one.intercept == other.intercept


def test_inputs_are_not_changed(rng):
    for loss in LOSSES:
        Z, y = problem(get_loss(loss), rng)
        weight = rng.uniform(size=len(y))
        copies = Z.copy(), y.copy(), weight.copy()
        for array in (Z, y, weight):
            array.flags.writeable = False
        psk.solve(Z, y, loss=loss, alpha=1e-2, sample_weight=weight)
        for array, copy in zip((Z, y, weight), copies, strict=True):
            np.testing.assert_array_equal(array, copy)


@each_loss
def test_float32_features(loss, rng):
    Z, y = problem(loss, rng, n=1000)
    Z = Z.astype(np.float32)
    result = psk.solve(Z, y, loss=loss, alpha=1e-3)
    exact = psk.solve(Z.astype(float), y, loss=loss, alpha=1e-3)
    # sums are in double: the certificate is that of the float32 numbers
    check_certificate(result, Z.astype(float), y, loss)
    assert result.objective == pytest.approx(exact.objective, rel=2e-6)


def test_factorise_raises_the_diagonal_where_rounding_needs_it(rng):
    v = rng.normal(size=6)
    H = np.triu(np.outer(v, v))
    H[0, 0] -= 1e-12
    b = solve_factorised(factorise(H.copy(), 1), v)
    assert np.isfinite(b).all() and v @ b > 0
    with pytest.raises(FloatingPointError, match="the Hessian overflows"):
        factorise(np.full((2, 2), np.inf), 1)


# ---- bad input ----


@pytest.mark.parametrize(
    "options, match",
    [
        (dict(alpha=0), "alpha must be positive"),
        (dict(alpha=-1.0), "alpha must be positive"),
        (dict(alpha="1"), "alpha must be a real number"),
        (dict(alpha=1, tol=0), "tol must be positive"),
        (dict(alpha=1, max_iter=-1), "max_iter must be at least 0"),
        (dict(alpha=1, solver="sgd"), "solver must be one of 'auto', 'direct'"),
        (dict(alpha=1, solver=3), "solver must be 'auto', a solver object or one of"),
        (dict(alpha=1, loss="huber", solver="direct"), "needs the squared loss"),
        (dict(alpha=1, loss="hinge"), "y must be \\+1 or -1 for Hinge"),
        (dict(alpha=1, start=(np.ones(3), 0)), "coefficients of shape \\(8,\\)"),
        (dict(alpha=1, start=(np.full(8, np.nan), 0)), "start must be finite"),
        (dict(alpha=1, start=np.ones(8)), "start must be a SolveResult or a tuple"),
        (dict(alpha=1, start=(np.ones(8), "0")), "start must hold real numbers"),
        (dict(alpha=1e-200), "alpha must be at least 1e-100, got 1e-200"),
        (dict(alpha=1, solver=np.ones(3)), "solver must be 'auto', a solver object"),
        (
            dict(alpha=1, sample_weight=[1.0]),
            "sample_weight must have shape \\(300,\\)",
        ),
    ],
)
def test_bad_options(options, match, rng):
    Z, y = problem(psk.Squared(), rng)
    with pytest.raises((ValueError, TypeError), match=match):
        psk.solve(Z, y, **options)


def test_bad_data(rng):
    Z, y = problem(psk.Squared(), rng)
    with pytest.raises(ValueError, match="for each of 299 rows of Z, got shape"):
        psk.solve(Z[1:], y, alpha=1)
    for bad, name in ((np.nan, "NaN"), (np.inf, "inf")):
        Z[7, 3] = bad
        with pytest.raises(ValueError, match=f"Z contains {name} in row 7, column 3"):
            psk.solve(Z, y, alpha=1)
    Z[7, 3], y[9] = 0, np.nan
    with pytest.raises(ValueError, match="y contains NaN at index 9"):
        psk.solve(Z, y, alpha=1)
    with pytest.raises(ValueError, match="alphas must have at least one value"):
        psk.path(Z, np.ones(300), alphas=[])


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: Adam(learning_rate=0), "learning_rate must be positive"),
        (lambda: Adam(batch_size=0), "batch_size must be at least 1"),
        (lambda: Adam(schedule="linear"), "schedule must be one of 'constant'"),
        (lambda: Adam(beta1=1.0), "beta1 must be in \\[0, 1\\), got 1.0"),
        (lambda: Newton(hessian="lu"), "hessian must be one of 'auto'"),
        (lambda: LBFGS(memory=0), "memory must be at least 1, got 0"),
    ],
)
def test_bad_solver_options(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize("hessian", ["direct", "cg"])
@each_loss
def test_a_cold_path_is_solve_to_the_last_bit(loss, hessian, rng):
    Z, y = problem(loss, rng)
    alphas = [1e-1, 1e-3, 1e-5]
    solver = "auto" if isinstance(loss, psk.Squared) else psk.Newton(hessian)
    options = dict(loss=loss, solver=solver, tol=1e-5)
    for alpha, one in zip(
        alphas, psk.path(Z, y, alphas=alphas, warm=False, **options), strict=True
    ):
        alone = psk.solve(Z, y, alpha=alpha, **options)
        np.testing.assert_array_equal(one.coef, alone.coef)
        np.testing.assert_array_equal(one.dual, alone.dual)
        assert one.intercept == alone.intercept and one.dual_gap == alone.dual_gap


@pytest.mark.parametrize(
    "loss", [psk.Huber(0.5), psk.Pinball([0.2, 0.7]), psk.Squared()]
)
def test_a_cold_path_of_several_outputs(loss, rng):
    Z, y = problem(psk.Squared(), rng)
    Y = np.column_stack([y, y[::-1]])
    options = dict(loss=loss, output_matrix=np.eye(2) + 0.3)
    paths = psk.path(Z, Y, alphas=[1e-2, 1e-4], warm=False, **options)
    alone = psk.solve(Z, Y, alpha=1e-4, **options)
    np.testing.assert_array_equal(paths[1].coef, alone.coef)
    np.testing.assert_array_equal(paths[1].intercept, alone.intercept)


@pytest.mark.parametrize("c", [1, 7, 40])
def test_solve_after_changes(c, rng):
    """Rows that come and go, against NumPy's solution of the changed system."""
    r = 30
    A = rng.normal(size=(100, r))
    H = A.T @ A + 0.1 * np.eye(r)
    rows, weights = rng.normal(size=(c, r)), rng.uniform(0.5, 2, size=c)
    leaving = min(c // 2, 20)
    rows[:leaving], weights[:leaving] = A[:leaving], -1.0
    changed = H + rows.T @ (weights[:, None] * rows)
    b = rng.normal(size=r)
    solve = changed_solve(np.linalg.cholesky(H).T.copy(), rows, weights, 2)
    np.testing.assert_allclose(solve(b), np.linalg.solve(changed, b), rtol=1e-9)


@pytest.mark.parametrize("n_blocks", [1, 3])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_factors_serve_several_steps(fit_intercept, n_blocks, monkeypatch, rng):
    Z = rng.normal(size=(1500, 300)) / np.sqrt(300)
    y = Z @ rng.normal(size=300) + 0.3 * rng.normal(size=1500)
    options = dict(loss="absolute", alpha=1e-4, fit_intercept=fit_intercept)
    factors = []
    monkeypatch.setattr(
        newton, "factorise", lambda H, k: factors.append(factorise(H, k)) or factors[-1]
    )
    blocks = FeatureBlocks(as_features(part, 2) for part in np.split(Z, n_blocks))
    result = psk.solve(blocks, y, solver=Newton(hessian="direct"), **options)
    assert result.converged and len(factors) < 0.6 * result.n_iter
    monkeypatch.setattr(newton, "CHANGED", 0.0)
    expected = psk.solve(blocks, y, solver=Newton(hessian="direct"), **options)
    assert abs(result.objective / expected.objective - 1) < 1e-6
    assert result.n_iter <= expected.n_iter + 3


@pytest.mark.parametrize("hessian", ["direct", "cg"])
def test_first_steps_of_huber_see_points_beyond_kappa(hessian, monkeypatch, rng):
    X = rng.normal(size=(2000, 4))
    sketch = psk.SubSampling(200).draw(2000, random_state=0)
    Z = psk.FeatureMap("rbf", gamma=0.25, sketch=sketch).fit_transform(X)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=2000)
    options = dict(loss=psk.Huber(1.2), alpha=1e-6, solver=Newton(hessian=hessian))
    result = psk.solve(Z, y, **options)
    monkeypatch.setattr(newton._State, "look_far", lambda state: None)
    plain = psk.solve(Z, y, **options)
    assert result.converged and plain.converged
    assert result.n_iter < plain.n_iter
    # where most points stay beyond kappa, nothing changes
    monkeypatch.undo()
    options["loss"] = psk.Huber(1e-3)
    result = psk.solve(Z, y, **options)
    monkeypatch.setattr(newton._State, "look_far", lambda state: None)
    np.testing.assert_array_equal(psk.solve(Z, y, **options).coef, result.coef)


def test_preconditioners_serve_several_steps(monkeypatch, rng):
    Z = rng.normal(size=(3000, 200)) * np.logspace(0, -3, 200)
    y = Z @ rng.normal(size=200) + 0.1 * rng.standard_t(2, size=3000)
    made, used = [], []
    monkeypatch.setattr(
        newton,
        "direction_preconditioner",
        lambda *given: made.append(1) or direction_preconditioner(*given),
    )
    monkeypatch.setattr(
        newton,
        "conjugate_gradients",
        lambda *given: used.append(1) or conjugate_gradients(*given),
    )
    options = dict(loss=psk.Huber(0.01), alpha=1e-6, solver=Newton(hessian="cg"))
    assert psk.solve(Z, y, **options).converged
    assert len(made) < len(used)
    # one that has become useless is made anew
    made.clear()
    monkeypatch.setattr(newton, "WORN", 0.0)
    assert psk.solve(Z, y, **options).converged
    assert len(made) > 2


def test_logistic_loss_of_fewer_points_than_features(rng):
    """Whose curvatures change at every point, which are few."""
    Z, y = rng.normal(size=(60, 400)), np.sign(rng.normal(size=60))
    result = psk.solve(Z, y, loss="logistic", alpha=1e-3)
    assert result.converged and result.n_iter < 10
