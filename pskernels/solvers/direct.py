"""The squared loss: the Gram matrix of the features serves every alpha.

A Cholesky factorisation for each alpha costs r³/6 multiplications, next to
n·r²/2 for the Gram matrix itself.  What rounding takes from small eigenvalues is
given back by refinement: the gradient comes from Z, not from the Gram matrix.
"""

from dataclasses import dataclass

import numpy as np

from pskernels.losses import Squared
from pskernels.solvers.hessian import (
    add_penalty,
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
        weight = objective.points.weight
        if "gram" not in objective.shared:
            objective.shared["gram"] = weighted_gram(objective, weight)
        H = add_penalty(objective, objective.shared["gram"].copy())
        factor = factorise(H)
        coef, intercept = np.array(start.coef), start.intercept
        while True:
            e = objective.residuals(coef, intercept)
            if objective.fit_intercept:
                change = -(weight @ e)
                intercept += change
                e += change
            zeta = e.copy()
            certificate = objective.certify(coef, e, zeta)
            done = progress.add(coef, intercept, zeta, certificate, len(e))
            if done or progress.n_iter >= max_iter:
                return
            gradient = certificate.gradient
            if objective.fit_intercept:
                step = solve_factorised(factor, np.append(gradient, 0.0))
                coef -= step[:-1]
                intercept -= step[-1]
            else:
                coef -= solve_factorised(factor, gradient)
            progress.n_iter += 1
