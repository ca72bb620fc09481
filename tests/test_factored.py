"""Features that are products A·W, of which Z is never formed."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from reference import relative_error
from test_sample import LOSSES, assert_same, make_data

import pskernels as psk
from pskernels._exact import exact_product
from pskernels._products import Features, form_columns
from pskernels._threads import single_threaded_blas
from pskernels.features import MOST_ROUNDING, FactoredFeatures, FeatureBlocks
from pskernels.objective import Problem
from pskernels.outputs import Outputs
from pskernels.sample import Sample
from pskernels.solvers import Newton
from pskernels.solvers.hessian import hessian_product, squared_gradient

WIDE = np.longdouble


def factor(Z, rng, spread=1.0, n_threads=1):
    """Z as a product: A = Z·W⁻¹ for a triangle W whose sizes are spread by decades."""
    r = Z.shape[1]
    W = np.triu(rng.normal(size=(r, r)), 1) / r + np.eye(r)
    W *= 10.0 ** rng.uniform(0, spread, size=r)
    inverse = np.linalg.inv(W)
    return FactoredFeatures(Z @ inverse, W, inverse.T @ inverse, n_threads)


def dense(features):
    return (features.inner.Z.astype(WIDE) @ features.W.astype(WIDE)).astype(float)


@pytest.mark.parametrize("n, r", [(1, 1), (7, 3), (300, 17), (1000, 65)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products(n, r, dtype, rng):
    W = np.triu(rng.normal(size=(r, r)))
    A = rng.normal(size=(n, r)).astype(dtype)
    F = FactoredFeatures(A, W, np.eye(r), 2)
    Z = dense(F)
    x = rng.normal(size=n)
    V, X = rng.normal(size=(3, r)), rng.normal(size=(3, n))
    bordered = np.column_stack([Z, np.ones(n)])
    with single_threaded_blas():
        pairs = [
            (F.dot(V), V @ Z.T),
            (F.dot(V[:1]), V[:1] @ Z.T),
            (F.t_dot(X), X @ Z),
            (F.bordered_t_dot(x), bordered.T @ x),
            (F.formed().Z, Z.astype(dtype)),
        ]
    for one, expected in pairs:
        assert one.shape == expected.shape
        tolerance = 1e-12 if one.dtype == np.float64 else 1e-5
        assert relative_error(one, expected) < tolerance


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("outputs", [1, 2])
def test_systems_are_those_of_inner_coordinates(outputs, fit_intercept, rng):
    """H·v against the dense Hessian, and |gradient|², where θ = W⁻¹·β."""
    n, r, alpha = 90, 5, 0.3
    Z = rng.normal(size=(n, r))
    Y, weight = rng.normal(size=(outputs, n)), rng.uniform(size=n)
    F = factor(Z, rng)
    coupled = Outputs.independent(outputs)
    problem = Problem(F, psk.Logistic(), np.sign(Y), weight, coupled, fit_intercept, 1)
    sample = Sample(problem)
    theta, b = rng.normal(size=(outputs, r)), rng.normal(size=outputs) * fit_intercept
    sample.place(theta, b)
    sample.differentiate(0.0)
    u = theta @ Z.T + b[:, None]
    shares = 1 / (1 + np.exp(-u))
    curvature = weight / weight.sum() * shares * (1 - shares)
    bordered = np.column_stack([Z, np.ones(n)]) if fit_intercept else Z
    penalty = alpha * np.diag(np.arange(bordered.shape[1]) < r)
    to_theta = np.eye(bordered.shape[1])
    to_theta[:r, :r] = np.linalg.inv(F.W)  # θ = W⁻¹·β, and b is b
    v = rng.normal(size=(outputs, bordered.shape[1]))
    expected = np.stack(
        [
            to_theta.T @ (bordered.T @ (h[:, None] * bordered) + penalty) @ to_theta @ x
            for h, x in zip(curvature, v, strict=True)
        ]
    )

    def flat(rows):  # coefficients of all outputs, then intercepts
        return np.append(rows[:, :r], rows[:, r:])

    with single_threaded_blas():
        found = hessian_product(sample, coupled, alpha)(flat(v))
    assert relative_error(found, flat(expected)) < 1e-12
    gradient = np.linalg.solve(to_theta.T, v.T)  # in coordinates of θ
    square = squared_gradient(F, flat(v), outputs * r)
    assert square == pytest.approx((gradient**2).sum(), rel=1e-12)


def test_exact_product(rng):
    """Cancellation of all sixteen digits, against fractions."""
    W, v = rng.normal(size=(5, 37)), rng.normal(size=37)
    W[:, -1] = -(W[:, :-1] @ v[:-1]) / v[-1]
    high, low = exact_product(W, v)
    for row, a, b in zip(W.tolist(), high.tolist(), low.tolist(), strict=True):
        exact = sum(
            Fraction(w) * Fraction(x) for w, x in zip(row, v.tolist(), strict=True)
        )
        assert abs(exact - Fraction(a) - Fraction(b)) < 1e-28
        assert abs(exact) < 1e-14


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n, r", [(1, 1), (3, 300), (1000, 5), (700, 257)])
def test_exact_sums(n, r, dtype, rng):
    """Sums over rows that cancel, of a plain array and of a product."""
    A = rng.normal(size=(n, r)).astype(dtype)
    A = np.concatenate([A, 1e8 * A[:, ::-1], -A, -1e8 * A[:, ::-1]]).astype(dtype)
    A = np.ascontiguousarray(A[rng.permutation(len(A))])
    x, few = 1 + 1e-9 * rng.normal(size=len(A)), slice(0, min(r, 3))
    high, low = Features(A, 2).exact_t_dot(x)
    columns = A[:, few].T.astype(float)
    for j, column in enumerate(columns):
        pairs = zip(column.tolist(), x.tolist(), strict=True)
        exact = sum(Fraction(a) * Fraction(b) for a, b in pairs)
        sizes = float(np.abs(column) @ np.abs(x))
        assert abs(exact - Fraction(high[j]) - Fraction(low[j])) < 1e-27 * sizes
    one, _ = FactoredFeatures(A, np.eye(r), np.eye(r), 2).exact_t_dot(x)
    np.testing.assert_array_equal(one, high)


def test_exact_residuals(rng):
    Z = rng.normal(size=(50, 8))
    F = factor(Z, rng, spread=8)
    v, y = rng.normal(size=8), rng.normal(size=50)
    beta = [
        sum(Fraction(w) * Fraction(x) for w, x in zip(row, v.tolist(), strict=True))
        for row in F.W.tolist()
    ]
    e = F.exact_residuals(v, (1.0, 1e-17), y)
    for row, target, error in zip(
        F.inner.Z.tolist(), y.tolist(), e.tolist(), strict=True
    ):
        exact = sum(Fraction(a) * b for a, b in zip(row, beta, strict=True))
        exact += 1 + Fraction(1e-17) - Fraction(target)
        assert abs(exact - Fraction(error)) <= 2.3e-16 * abs(exact) + Fraction(1e-24)


@pytest.mark.parametrize("outputs", [(), (3,)])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss(loss, fit_intercept, outputs, rng):
    Z, y = make_data(rng, loss, outputs)
    F = factor(Z, rng)
    options = dict(loss=loss, alpha=1e-2, tol=1e-8, fit_intercept=fit_intercept)
    assert_same(psk.solve(dense(F), y, **options), psk.solve(F, y, **options))


SOLVERS = [("squared", "direct"), ("squared", "newton"), ("huber", "lbfgs")]
SOLVERS += [("huber", Newton("cg")), ("absolute", Newton("cg"))]


@pytest.mark.parametrize("loss, solver", SOLVERS, ids=str)
def test_every_solver(loss, solver, rng):
    Z, y = make_data(rng, psk.Huber())
    F = factor(Z, rng)
    blocks = FeatureBlocks(
        FactoredFeatures(part, F.W, F.penalty, 1)
        for part in np.split(F.inner.Z, [1, 300])
    )
    options = dict(loss=loss, alpha=1e-2, solver=solver, tol=1e-8)
    expected = psk.solve(dense(F), y, **options)
    for features in (F, blocks):
        assert_same(expected, psk.solve(features, y, **options))


def test_coupled_outputs(rng):
    Z, y = make_data(rng, psk.Huber(), (3,))
    M = psk.graph_matrix(np.ones((3, 3)) - np.eye(3))
    F = factor(Z, rng)
    for loss in ("squared", "huber", "absolute"):
        options = dict(loss=loss, alpha=1e-2, tol=1e-8, output_matrix=M)
        assert_same(psk.solve(dense(F), y, **options), psk.solve(F, y, **options))


def primal_and_dual(model, loss, F, y):
    """Of the model as it is returned, in long double."""
    Z = F.inner.Z.astype(WIDE) @ F.W.astype(WIDE)
    alpha, theta, zeta = WIDE(model.alpha), WIDE(model.coef), WIDE(model.dual)
    e = Z @ theta + WIDE(model.intercept) - y
    zeta = zeta - zeta.mean()
    G = zeta @ Z / len(y)
    if loss == psk.Squared():
        value, conjugate = e**2 / 2, zeta**2 / 2
    else:
        value, conjugate = np.abs(e), 0 * zeta
    primal = value.mean() + alpha / 2 * theta @ theta
    return primal, -(conjugate + zeta * y).mean() - G @ G / (2 * alpha)


@pytest.mark.parametrize("loss", [psk.Squared(), psk.Absolute()], ids=str)
@pytest.mark.parametrize("spread", [0, 2, 4, 6, 8])
@pytest.mark.parametrize("alpha", [1e-2, 1e-6, 1e-10])
def test_certificates(loss, spread, alpha, rng):
    """The bound holds, and the gap is reached, however large W is."""
    Z = rng.normal(size=(120, 9)) * 10.0 ** rng.uniform(-2, 0, size=9)
    y = Z.sum(axis=1) + rng.standard_t(2, size=120)
    F = factor(Z, rng, spread)
    model = psk.solve(F, y, loss=loss, alpha=alpha, tol=1e-7)
    primal, dual = primal_and_dual(model, loss, F, y)
    assert model.converged
    # a mean of ζ of 1e-17 is taken away, which costs the conjugate as much
    assert primal - dual <= WIDE(model.dual_gap) * primal * (1 + 1e-9) + 1e-15
    assert model.objective == pytest.approx(float(primal), rel=1e-7)


@pytest.mark.parametrize("form", ["float64", "float32", "sparse", "precomputed"])
@pytest.mark.parametrize(
    "sketch", [psk.PSparsified(30, 0.1), psk.SubSampling(30), psk.Gaussian(30)], ids=str
)
def test_features_of_a_map(sketch, form, rng):
    X = rng.normal(size=(200, 2))
    kernel = "precomputed" if form == "precomputed" else psk.RBF(0.1)
    if form == "precomputed":
        X = np.exp(-0.1 * ((X[:, None] - X) ** 2).sum(axis=2))
    elif form == "sparse":
        X = sp.csr_array(np.where(np.abs(X) > 0.5, X, 0.0))
    else:
        X = X.astype(form)
    one, other = (psk.FeatureMap(kernel, sketch=sketch, random_state=0) for _ in "ab")
    F, Z = one.fit_features(X), other.fit_transform(X)
    np.testing.assert_array_equal(one.whitening_, other.whitening_)
    assert isinstance(F, FactoredFeatures)
    assert F.r == one.rank_ and F.dtype == Z.dtype
    single = form == "float32"
    assert np.abs(dense(F) - Z).max() < (3e-3 if single else 1e-7)
    product = F.W.T @ F.penalty @ F.W
    assert np.abs(product - np.eye(F.r)).max() < 1e-2
    y = np.sin(np.arange(200.0))
    factored, formed = (psk.solve(given, y, alpha=1e-2) for given in (F, Z))
    assert factored.objective == pytest.approx(
        formed.objective, rel=1e-4 if single else 1e-6
    )


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
def test_a_cold_path_is_solve_to_the_last_bit(loss, rng):
    """Also where some alphas need Z, and others do not."""
    X = rng.normal(size=(300, 2))
    y = np.sin(2 * X.sum(axis=1))
    F = psk.FeatureMap(
        gamma=0.5, sketch=psk.SubSampling(40), random_state=0
    ).fit_features(X)
    alphas = [1e-2, 1e-4, 1e-9]
    needed = [F.rounding_of_gram(alpha) > MOST_ROUNDING for alpha in alphas]
    assert needed == [False, False, True]
    options = dict(loss=loss, tol=1e-4)
    path = psk.path(F, y, alphas=alphas, warm=False, **options)
    for model, alpha in zip(path, alphas, strict=True):
        alone = psk.solve(F, y, alpha=alpha, **options)
        np.testing.assert_array_equal(model.coef, alone.coef)
        assert (model.alpha, model.solver) == (alpha, alone.solver)
    warm = psk.path(F, y, alphas=alphas, **options)
    for model, other in zip(warm, path, strict=True):
        assert model.objective == pytest.approx(other.objective, rel=3e-4)


@pytest.mark.parametrize("loss", ["absolute", psk.Pinball(0.75), "hinge", "huber"])
@pytest.mark.parametrize("n, gamma", [(60, 2.0), (60, 1.0), (5, 0.01)])
def test_near_interpolation(loss, n, gamma, rng):
    """No more steps than with Z: corners bend too much for what a Gram matrix loses."""
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X.sum(axis=1))
    y = np.sign(y) if loss == "hinge" else y
    sketch = psk.SubSampling(indices=np.arange(n))
    F = psk.FeatureMap(gamma=gamma, sketch=sketch).fit_features(X)
    options = dict(loss=loss, alpha=1e-6, tol=1e-6)
    factored, formed = (psk.solve(given, y, **options) for given in (F, F.formed()))
    assert factored.converged and formed.converged
    assert factored.n_iter <= 2 * formed.n_iter + 2
    assert factored.objective == pytest.approx(formed.objective, rel=3e-6, abs=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("first", [0, 1, 5, 64, 69, 70])
def test_columns_are_formed_in_place(first, dtype, rng):
    """Around chunks of rows, and in an array that is wider than the features."""
    W = np.triu(rng.normal(size=(70, 70))).astype(dtype)
    for n in (1, 1023, 1024, 1025, 2100):
        wide = rng.normal(size=(n, 73)).astype(dtype)
        A = wide[:, :70]
        expected = A.astype(float) @ W.astype(float)
        expected[:, :first] = A[:, :first]
        rest = wide[:, 70:].copy()
        results = [form_columns(wide.copy()[:, :70], W, first, k) for k in (1, 2, 3)]
        tolerance = 1e-13 if dtype == "float64" else 1e-5
        assert relative_error(form_columns(A, W, first, 2), expected) < tolerance
        np.testing.assert_array_equal(wide[:, 70:], rest)
        for result in results:
            np.testing.assert_array_equal(result, A)
    with pytest.raises(ValueError, match="cannot be computed in place"):
        form_columns(A[:, :69], W, 0, 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_are_formed_until_gram_matrices_will_do(dtype, rng):
    X = rng.normal(size=(500, 2)).astype(dtype)
    y = np.sin(2 * X.sum(axis=1))
    seen = set()
    for alpha in 10.0 ** np.arange(-1, -14, -1):
        fm = psk.FeatureMap(gamma=0.5, sketch=psk.SubSampling(60), random_state=0)
        Z = fm.fit_transform(X)
        F = fm.fit_features(X, alpha)
        assert F.rounding_of_gram(alpha) <= MOST_ROUNDING
        whole = dense(F) if isinstance(F, FactoredFeatures) else F.Z
        assert np.abs(whole - Z).max() < (1e-2 if dtype == "float32" else 1e-6)
        if isinstance(F, FactoredFeatures):
            n_formed = np.count_nonzero((F.W == np.eye(F.r)).all(axis=0))
            seen.add(n_formed)
            identity = F.W.T @ F.penalty @ F.W
            assert np.abs(identity - np.eye(F.r)).max() < 1e-2
        model, other = (psk.solve(given, y, alpha=alpha, tol=1e-4) for given in (F, Z))
        assert model.objective == pytest.approx(other.objective, rel=0.01)
    assert 0 in seen and len(seen) > (1 if dtype == "float32" else 3)


def test_products_far_from_zero_are_formed(rng):
    X = 1e5 + rng.normal(size=(100, 2))
    features = psk.FeatureMap("linear", sketch=psk.SubSampling(2)).fit_features(X)
    assert isinstance(features, Features)


def test_blocks_of_other_factors_are_refused(rng):
    A = rng.normal(size=(20, 2))
    one, other = (
        FactoredFeatures(A, W, np.eye(2), 1) for W in np.eye(2) * [[[1]], [[2]]]
    )
    with pytest.raises(ValueError, match="the same factor W, or none"):
        FeatureBlocks([one, other])
    with pytest.raises(ValueError, match="the same factor W, or none"):
        FeatureBlocks([one, one.formed()])


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"must have shape \(2, 2\), got \(3, 3\)"):
        FactoredFeatures(np.ones((5, 2)), np.eye(3), np.eye(3), 1)
