"""The squared loss: the Gram matrix of the features serves every alpha and output.

With G the covariance of the features (without intercept: the second moments) and λ_a
the eigenvalues of M, direction a of the outputs has the Hessian λ_a·G + alpha·I.  If
all λ_a are equal, one Cholesky factorisation serves all directions; else one
eigendecomposition of G does.  What rounding takes from small eigenvalues is given
back by refinement: the gradient comes from Z, not from G.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pskernels._products import PlainFeatures, eigh_of_gram, symmetric
from pskernels._threads import cached_property
from pskernels._types import Array
from pskernels.losses import Loss, Squared
from pskernels.objective import Certificate, unbalanced
from pskernels.solvers.hessian import (
    add_penalty,
    centred_gram,
    factorise,
    solve_factorised,
)

if TYPE_CHECKING:
    from pskernels.sample import Sample
    from pskernels.solvers.base import Progress, Run, Start


@dataclass(frozen=True)
class Direct:
    """Closed form, for the squared loss."""

    name = "direct"
    default_max_iter = 20
    advice = "raise max_iter, tol or alpha"

    def check(self, loss: Loss) -> None:
        if not isinstance(loss, Squared):
            raise ValueError(f"solver 'direct' needs the squared loss, got {loss}")

    def begin(self, sample: "Sample") -> "Run":
        return _Squares(sample)


class _Squares:
    """A run over alphas, which share the Gram matrix."""

    def __init__(self, sample: "Sample") -> None:
        self.sample = sample
        self.problem = sample.problem

    def __call__(
        self, alpha: float, start: "Start", max_iter: int, progress: "Progress"
    ) -> None:
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
    def n_active(self) -> int:
        return self.problem.features.n * self.problem.outputs.d

    def _evaluate(self, theta: Array, alpha: float) -> tuple[Array, Certificate]:
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
    def _null_pull(self) -> Array:
        """The pull of the model without features, where most alphas begin."""
        return self.sample.certify_squares(self.problem.null_theta, 1.0).gradient

    @cached_property
    def _moments(self) -> tuple[Array | None, Array]:
        """(means, the upper triangle of G) of `features.inner`."""
        gram = self.sample.gram_of_weights()
        if not self.problem.fit_intercept:
            return None, gram
        return gram[:-1, -1].copy(), centred_gram(gram)

    @cached_property
    def _means(self) -> Array:
        """Means of the features themselves."""
        means, W = self._moments[0], self.problem.features.W
        assert means is not None  # there is an intercept
        return means if W is None else means @ W

    @cached_property
    def _eigh(self) -> tuple[Array, Array]:
        gram, W = self._moments[1], self.problem.features.W
        if W is not None:
            gram = np.triu(W.T @ symmetric(gram) @ W)
        return eigh_of_gram(gram)

    def _make_newton_step(self, alpha: float) -> Callable[[Array], Array]:
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
    coef: Array
    intercept: Array

    def predict(self, Z: Array) -> Array:
        """Compute Z @ coef + intercept, (n, k)."""
        return Z @ self.coef + self.intercept


def ridge_path(
    features: PlainFeatures, y: Array, alphas: Iterable[float], weight: Array
) -> Iterator[Ridge]:
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
