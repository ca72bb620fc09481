"""The squared loss: the Gram matrix of the features serves every alpha and output.

With G the covariance of the features (without intercept: the second moments) and λ_a
the eigenvalues of M, direction a of the outputs has the Hessian λ_a·G + alpha·I.  If
all λ_a are equal, one Cholesky factorisation serves all directions; else one
eigendecomposition of G does.  What rounding takes from small eigenvalues is given
back by refinement: the gradient comes from Z, not from G.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pskernels._products import eigh_of_gram, symmetric
from pskernels._threads import cached_property
from pskernels.losses import Squared
from pskernels.objective import unbalanced
from pskernels.solvers.hessian import (
    add_penalty,
    centred_gram,
    factorise,
    solve_factorised,
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

    def begin(self, sample):
        return _Squares(sample)


class _Squares:
    """A run over alphas, which share the Gram matrix."""

    def __init__(self, sample):
        self.sample = sample
        self.problem = sample.problem

    def __call__(self, alpha, start, max_iter, progress):
        newton_step = self._make_newton_step(alpha)
        theta = start.theta.copy()
        while True:
            intercept, certificate = self._evaluate(theta, alpha)
            done = progress.add(
                theta, intercept, certificate, n_active=self.n_active, anew=True
            )
            if done or progress.n_iter >= max_iter:
                return
            theta += newton_step(certificate.gradient)
            progress.n_iter += 1

    @property
    def n_active(self):
        return self.problem.features.n * self.problem.outputs.d

    def _evaluate(self, theta, alpha):
        """Find (b, certificate) of Θ with its best b; ζ = e leaves no excess."""
        sample, outputs = self.sample, self.problem.outputs
        intercept = np.zeros(outputs.d)
        if self.problem.fit_intercept:  # the mean of the targets is 0
            mean = self._means @ theta.T
            intercept -= outputs.mixed(mean[:, None])[:, 0]
        sample.place(theta, intercept)
        sample.take_residuals()
        total, size = sample.flow_sums()
        if self.problem.fit_intercept and len(unbalanced(total, size)):
            intercept -= total
            sample.move_intercept(-total)
            sample.take_residuals(copy=True)
            return intercept, sample.certify(theta, alpha)
        pulled = None if theta.any() else self._null_pull
        return intercept, sample.certify_squares(theta, alpha, pulled)

    @cached_property
    def _null_pull(self):
        """The pull of the model without features, where most alphas begin."""
        return self.sample.certify_squares(self.problem.null_theta, 1.0).gradient

    @cached_property
    def _moments(self):
        """(means, the upper triangle of G) of `features.inner`."""
        gram = self.sample.gram_of_weights()
        if not self.problem.fit_intercept:
            return None, gram
        return gram[:-1, -1].copy(), centred_gram(gram)

    @cached_property
    def _means(self):
        """Means of the features themselves."""
        means, W = self._moments[0], self.problem.features.W
        return means if W is None else means @ W

    @cached_property
    def _eigh(self):
        gram, W = self._moments[1], self.problem.features.W
        if W is not None:
            gram = np.triu(W.T @ symmetric(gram) @ W)
        return eigh_of_gram(gram)

    def _make_newton_step(self, alpha):
        """Make a function of the gradient (k, r) that gives the step of Θ."""
        values, features = self.problem.outputs.values, self.problem.features
        if np.ptp(values) == 0:
            H = values[0] * self._moments[1]
            add_penalty(H, len(H), alpha, features.penalty)
            factor = factorise(H, features.n_threads)
            return lambda gradient: (
                -features.from_inner(
                    solve_factorised(factor, features.to_inner(gradient).T).T
                )
            )
        eigenvalues, Q = self._eigh
        denominator = values[:, None] * np.maximum(eigenvalues, 0.0) + alpha
        return lambda gradient: -((gradient @ Q) / denominator) @ Q.T


class Ridge(NamedTuple):
    """A ridge regression without a certificate: coef (r, k), intercept (k,)."""

    alpha: float
    coef: np.ndarray
    intercept: np.ndarray

    def predict(self, Z):
        """Compute Z @ coef + intercept, (n, k)."""
        return Z @ self.coef + self.intercept


def ridge_path(features, y, alphas, weight):
    """Yield ridge regressions for several alphas, as accurate as Gram matrices are.

    For choices that held-out points judge: certificates would take most of the time.

    Parameters
    ----------
    features : Features
    y : array of shape (n, k)
    alphas : sequence of float
    weight : array of shape (n,)

    Yields
    ------
    Ridge
    """
    shares = weight / weight.sum()
    bordered = features.gram(shares, bordered=True)
    means, gram = bordered[:-1, -1].copy(), centred_gram(bordered)
    center = shares @ y
    pull = features.t_dot(np.ascontiguousarray((shares[:, None] * (y - center)).T)).T
    for alpha in alphas:
        H = gram.copy()
        add_penalty(H, len(H), alpha)
        coef = solve_factorised(factorise(H, features.n_threads), pull)
        yield Ridge(float(alpha), coef, center - means @ coef)
