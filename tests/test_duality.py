"""The paper's appendix on duality: both dual problems, solved without our code.

With λ = alpha, K the Gram matrix and S the sketch, the paper has (times 1/n)

    dual of the sketched problem   min over ζ of (1/n) Σ ℓ_i*(-ζ_i)
                                     + ζᵀ K Sᵀ (S K Sᵀ)† S K ζ / (2·alpha·n²)
    sketched dual                  min over θ of the same at ζ = Sᵀθ, where the
                                     last term is θᵀ S K Sᵀ θ / (2·alpha·n²)
"""

import numpy as np
import pytest
from reference import loss_conjugate, rbf
from scipy.optimize import minimize

import pskernels as psk

LOSSES = [
    psk.Huber(0.5),
    psk.Pinball(0.7),
    psk.Absolute(),
    psk.Squared(),
    psk.Hinge(),
    psk.Logistic(),
]


@pytest.fixture(params=LOSSES, ids=str)
def loss(request):
    return request.param


@pytest.fixture
def machine(loss, rng):
    """X, y, K, S, alpha for 50 points and 8 rows."""
    X = rng.uniform(size=(50, 2))
    y = np.sin(5 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=50)
    if loss.classification:
        y = np.where(y > np.median(y), 1.0, -1.0)
    sketch = psk.PSparsified(8, p=0.2).draw(50, random_state=0)
    return X, y, rbf(X, X, 2.0), sketch, 1e-2


def bounds_of_zeta(loss, y):
    """The box of -ζ_i where the conjugate is finite, turned round to ζ_i."""
    if not loss.classification:
        return [(-loss.upper, -loss.lower)] * len(y)
    inside = 1e-9 if isinstance(loss, psk.Logistic) else 0.0  # infinite slopes
    return [(inside, 1 - inside) if t > 0 else (inside - 1, -inside) for t in y]


def dual_value(loss, y, Q, alpha, zeta):
    n = len(y)
    values = loss_conjugate(loss, -zeta, y)
    return values.mean() + zeta @ Q @ zeta / (2 * alpha * n**2)


def test_strong_duality_of_the_sketched_problem(loss, machine):
    X, y, K, sketch, alpha = machine
    S = sketch.to_dense()
    SK = S @ K
    Q = SK.T @ np.linalg.pinv(SK @ S.T, rcond=1e-13, hermitian=True) @ SK
    bounds = bounds_of_zeta(loss, y)
    middle = [0.5 * (low + high) if np.isfinite(low) else 0.0 for low, high in bounds]
    dual = minimize(
        lambda zeta: dual_value(loss, y, Q, alpha, zeta),
        middle,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 20_000, "maxfun": 10**6, "ftol": 1e-15, "gtol": 1e-9},
    )
    feature_map = psk.FeatureMap("rbf", gamma=2.0, sketch=sketch)
    Z = feature_map.fit_transform(X)
    primal = psk.solve(Z, y, loss=loss, alpha=alpha, fit_intercept=False, tol=1e-9)
    assert primal.objective == pytest.approx(-dual.fun, rel=1e-5)
    # and our ζ is a solution of it, with the other sign
    ours = dual_value(loss, y, Q, alpha, -primal.dual)
    assert ours == pytest.approx(-primal.objective, rel=1e-8)


def test_the_sketched_dual_is_never_better(loss, machine):
    X, y, K, sketch, alpha = machine
    S = sketch.to_dense()
    SKSt = S @ K @ S.T
    n = len(y)

    def value(theta):
        values = loss_conjugate(loss, -(S.T @ theta), y)
        return values.mean() + theta @ SKSt @ theta / (2 * alpha * n**2)

    bounds = np.array(bounds_of_zeta(loss, y))
    finite = np.isfinite(bounds).all(axis=1)
    box = []
    if finite.any():
        A = S.T[finite]
        low, high = bounds[finite].T
        box = [
            {"type": "ineq", "fun": lambda t: A @ t - low, "jac": lambda t: A},
            {"type": "ineq", "fun": lambda t: high - A @ t, "jac": lambda t: -A},
        ]
    best = minimize(value, np.zeros(len(S)), method="SLSQP", constraints=box,
                    options={"ftol": 1e-12, "maxiter": 1000})  # fmt: skip
    Z = psk.FeatureMap("rbf", gamma=2.0, sketch=sketch).fit_transform(X)
    primal = psk.solve(Z, y, loss=loss, alpha=alpha, fit_intercept=False, tol=1e-9)
    # a minimum over a smaller set: -best.fun ≤ the optimum
    assert -best.fun <= primal.objective * (1 + 1e-9)


def test_the_sketched_dual_is_strictly_worse_here(rng):
    """Squared loss, where its minimum has a closed form."""
    X = rng.uniform(size=(50, 2))
    y = np.sin(5 * X[:, 0])
    sketch = psk.PSparsified(8, p=0.2).draw(50, random_state=0)
    S, n, alpha = sketch.to_dense(), 50, 1e-2
    # min over θ of mean(-y·Sᵀθ + (Sᵀθ)²/2) + θᵀ S K Sᵀ θ / (2·alpha·n²)
    H = S @ S.T / n + S @ rbf(X, X, 2.0) @ S.T / (alpha * n**2)
    b = S @ y / n
    sketched_dual = b @ np.linalg.solve(H, b) / 2
    Z = psk.FeatureMap("rbf", gamma=2.0, sketch=sketch).fit_transform(X)
    primal = psk.solve(Z, y, alpha=alpha, fit_intercept=False)
    assert sketched_dual < 0.9 * primal.objective
