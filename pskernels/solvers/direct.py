"""The squared loss: the Gram matrix of the features serves every alpha and output.

With G the covariance of the features (without intercept: the second moments) and λ_a
the eigenvalues of M, direction a of the outputs has the Hessian λ_a·G + alpha·I.  If
all λ_a are equal, one Cholesky factorisation serves all directions; else one
eigendecomposition of G does.  What rounding takes from small eigenvalues is given
back by refinement: the gradient comes from Z, not from G.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from pskernels.losses import Squared
from pskernels.objective import unbalanced
from pskernels.solvers.hessian import (
    centred_gram,
    factorise,
    solve_factorised,
    weighted_gram,
)


@dataclass(frozen=True)
class Direct:
    """Closed form, for the squared loss."""

    name = "direct"
    default_max_iter = 20
    advice = "raise max_iter, tol or alpha"

    def check(self, loss):
        if not isinstance(loss, Squared):
            raise ValueError(f"solver 'direct' needs the squared loss, got {loss}")

    def run(self, objective, start, max_iter, progress):
        newton_step = _make_newton_step(objective)
        theta = start.theta.copy()
        e, flow = (np.empty_like(objective.points.y) for _ in range(2))
        while True:
            intercept, zeta, certificate = _evaluate(objective, theta, e, flow)
            done = progress.add(
                theta, intercept, zeta, certificate, n_active=e.size, exact_e=e
            )
            if done or progress.n_iter >= max_iter:
                return
            theta += newton_step(certificate.gradient)
            progress.n_iter += 1


def _evaluate(objective, theta, e, flow):
    """(b, ζ, certificate) of Θ with its best b; fills the residuals and their flow.

    ζ = e, the derivative of the squared loss, which leaves no excess.
    """
    intercept = np.zeros(objective.outputs.d)
    if objective.fit_intercept:  # the mean of the targets is 0
        mean = (objective.shared["mean"] @ theta.T)[:, None]
        intercept -= objective.outputs.mixed(mean)[:, 0]
    objective.residuals(theta, intercept, out=e)
    _, total, size = objective.points.flow(e, out=flow)
    if objective.fit_intercept and len(unbalanced(total, size)):
        intercept -= total
        e -= total[:, None]
        zeta = e.copy()
        return intercept, zeta, objective.certify(theta, e, zeta)
    value = flow.reshape(-1) @ e.reshape(-1) / 2
    pulled = objective.pull(flow)
    return intercept, e, objective.make_certificate(theta, pulled, value, 0.0)


def _make_newton_step(objective):
    """A function of the gradient (k, r) that gives the step of Θ."""
    alpha, values = objective.alpha, objective.outputs.values
    shared = objective.shared
    if "gram" not in shared:
        shared["gram"] = _covariance(objective)
    G = shared["gram"]
    if np.ptp(values) == 0:
        H = values[0] * G
        H[np.diag_indices_from(H)] += alpha
        factor = factorise(H)
        return lambda gradient: -solve_factorised(factor, gradient.T).T
    if "eigh" not in shared:
        # row-major and upper is column-major and lower
        shared["eigh"] = scipy.linalg.eigh(G.T, lower=True)
    eigenvalues, Q = shared["eigh"]
    denominator = values[:, None] * np.maximum(eigenvalues, 0.0) + alpha
    return lambda gradient: -((gradient @ Q) / denominator) @ Q.T


def _covariance(objective):
    """G, the upper triangle."""
    gram = weighted_gram(
        objective.features, objective.points.weight, objective.fit_intercept
    )
    if not objective.fit_intercept:
        return gram
    objective.shared["mean"] = gram[:-1, -1].copy()
    return centred_gram(gram)
