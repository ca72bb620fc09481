"""Machines of the squared loss without some of the points, in closed form."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pskernels._matrices import inverse_of_triangle
from pskernels._products import (
    EPS,
    Features,
    eigh_of_gram,
    form_columns,
    matmul,
    times_triangle,
)
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._types import Array, Indices, Mask
from pskernels._validation import check_option
from pskernels.features import EXACT_ENOUGH, FactoredFeatures
from pskernels.outputs import Outputs
from pskernels.solvers.hessian import (
    add_penalty,
    centred_gram,
    factorise,
    solve_factorised,
)

if TYPE_CHECKING:
    from pskernels.features import BlockFeatures

STRINGS = ("identity", "residual")
# The second step gives back what rounding has taken from the first.
NEWTON_STEPS = 2


def leave_one_out(
    Z: Array,
    y: npt.ArrayLike,
    *,
    alphas: Iterable[float],
    output_matrix: npt.ArrayLike | str | None = None,
    sample_weight: Array | None = None,
    fit_intercept: bool = True,
    n_threads: int | None = None,
) -> list[Array]:
    """Predict every target by the machine that was fitted without its point.

    With z̃ = z - Σ ω z and G = Σ ω z̃ z̃ᵀ, the machine of all points errs by e_i, and
    the one without point i by e_i / (1 - h_i), where

        h_i = ω_i (1 + z̃_iᵀ (G + alpha·I)⁻¹ z̃_i).

    Directions of the outputs, those of M, have a penalty each: alpha / λ.

    Parameters
    ----------
    Z : array of shape (n, r)
    y : array of shape (n,) or (n, d)
    alphas : sequence of float
        n·alpha is the same for the machine of n - 1 points.
    output_matrix : array of shape (d, d), optional
    sample_weight : array of shape (n,), optional
    fit_intercept : bool
    n_threads : int, optional

    Returns
    -------
    list of ndarray
        Predictions, in the shape of y, for each alpha.

    Notes
    -----
    One Gram matrix and one eigendecomposition serve all alphas; each costs 4·n·r
    operations for every direction of the outputs.
    """
    n, d = len(Z), np.asarray(y)[0].size
    n_threads = resolve_n_threads(n_threads)
    weight = np.ones(n) if sample_weight is None else sample_weight
    weight = (weight / weight.sum())[:, None]
    centred = np.asarray(y, np.float64).reshape(n, d)
    centred = centred - fit_intercept * (weight * centred).sum(axis=0)
    V, values = _directions(output_matrix, d)
    targets = centred @ V
    # in directions that M does not reach, a constant predicts
    rest = (centred - targets @ V.T) / (1 - fit_intercept * weight)
    rotated, eigenvalues = _rotate(Z, weight[:, 0], fit_intercept, n_threads)
    with single_threaded_blas():
        moments = rotated.T @ (weight * targets)
        squares = rotated**2
        predictions = []
        for alpha in alphas:
            inverse = 1 / (eigenvalues[:, None] + alpha / values)  # (r, k)
            leverage = weight * (fit_intercept + squares @ inverse)
            # a point that alone decides its prediction leaves nothing to divide by
            left = np.maximum(1 - leverage, EPS)
            errors = (targets - rotated @ (inverse * moments)) / left
            predictions.append(y - (errors @ V.T + rest).reshape(np.shape(y)))
    return predictions


class PointMachines(NamedTuple):
    """What leaving out each of m points changes a machine f by.

        f₋ᵢ(x) = f(x) - changes_i (1 + t(x)·t_i),    t(x) = z(x)·turn + shift,

    without the 1 if there is no intercept.
    """

    predictions: Array  # (m,), of every such point by the machine without it
    turn: Array  # (r, r)
    shift: Array  # (r,)
    turned: Array  # t_i, (m, r)
    changes: Array  # (m,)


class RidgeOfPoints:
    """A ridge regression of one output, and the machines of `leave_one_out` themselves.

    With U the factor of G + alpha·I = UᵀU, t = U⁻ᵀ z̃, so that h_i = ω_i (1 + ‖t_i‖²).

    Parameters
    ----------
    features : features of n points
        Which may be formed in place: the attribute `features` takes their place.
    y : array of shape (n,)
    alpha : float
    sample_weight : array of shape (n,) or None
    fit_intercept : bool

    Attributes
    ----------
    features
    coef : ndarray of shape (r,)
    intercept : float
    """

    def __init__(
        self,
        features: "BlockFeatures",
        y: Array,
        *,
        alpha: float,
        sample_weight: Array | None,
        fit_intercept: bool,
    ) -> None:
        self._squares = _Squares(features, y, alpha, sample_weight, fit_intercept)
        self._fit = self._squares.fit(self._squares.gram(), self._squares.weight)
        self.features = self._squares.features
        self.coef, self.intercept = self._fit.theta, self._fit.intercept

    def leave_out(self, chosen: Indices) -> PointMachines:
        """Find the machines without each of some points."""
        squares, features = self._squares, self.features
        n_threads = features.n_threads
        turned = features.inner.rows(chosen)
        turn = self._invert(self._fit.factor)
        mean = self._fit.mean @ turn
        form_columns(turned, turn, 0, n_threads)
        turned -= mean
        leverage = np.einsum("ij,ij->i", turned, turned) + squares.fit_intercept
        weight, errors = squares.weight[chosen], self._fit.errors[chosen]
        # a point that alone decides its prediction leaves nothing to divide by
        errors /= np.maximum(1 - weight * leverage, EPS)
        if features.W is not None:
            turn = times_triangle(self._invert(features.W), turn, n_threads)
        shift = -mean - features.moved(turn)
        predictions = squares.y[chosen] - errors
        return PointMachines(predictions, turn, shift, turned, weight * errors)

    def _invert(self, triangle: Array) -> Array:
        return inverse_of_triangle(triangle, self.features.n_threads)


def fit_without_folds(
    features: "BlockFeatures",
    y: Array,
    folds: Indices,
    *,
    alpha: float,
    sample_weight: Array | None,
    fit_intercept: bool,
    coef: Array,
) -> tuple[Array, Array, Array]:
    """Fit ridge regressions without a fold each, by sums over all points.

    Parameters
    ----------
    features, y, alpha, sample_weight, fit_intercept
        As for `RidgeOfPoints`; the features are of no use any more.
    folds : array of int, shape (n,)
        From 0 to K - 1.
    coef : array of shape (r,)
        Of the machine of all points, where the others begin.

    Returns
    -------
    coef : ndarray of shape (r, K)
    intercept : ndarray of shape (K,)
    predictions : ndarray of shape (n,)
        Of every point by the machine without its fold.
    """
    squares = _Squares(features, y, alpha, sample_weight, fit_intercept)
    whole, K = squares.gram(), folds.max() + 1
    coefs, intercepts = np.empty((squares.features.r, K)), np.empty(K)
    predictions = np.empty(len(y))
    for k in range(K):
        held = folds == k
        rest = np.where(held, 0.0, squares.weight)
        mass = rest.sum()
        gram = (whole - squares.gram(held)) / mass
        fit = squares.fit(gram, rest / mass, coef)
        coefs[:, k], intercepts[k] = fit.theta, fit.intercept
        predictions[held] = (y - fit.errors)[held]
    return coefs, intercepts, predictions


class _Fit(NamedTuple):
    theta: Array
    intercept: float
    errors: Array  # of all points
    mean: Array  # of `features.inner`
    factor: Array  # U of the system of its coefficients


class _Squares:
    """Ridge regressions of one output on some of the points, by their Gram matrices."""

    def __init__(
        self,
        features: "BlockFeatures",
        y: Array,
        alpha: float,
        sample_weight: Array | None,
        fit_intercept: bool,
    ) -> None:
        if isinstance(features, FactoredFeatures):
            features = features.form_for(alpha, EXACT_ENOUGH)
        self.features = features.near_zero() if fit_intercept else features
        self.y, self.alpha, self.fit_intercept = y, alpha, fit_intercept
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        self.weight = weight / weight.sum()

    def gram(self, chosen: Mask | bool = True) -> Array:
        """Compute that of the points that are chosen, bordered by their means."""
        weight = np.where(chosen, self.weight, 0.0)
        return self.features.inner.gram(weight, bordered=self.fit_intercept)

    def fit(self, gram: Array, weight: Array, theta: Array | None = None) -> _Fit:
        """Fit to weights that add up to 1, given their Gram matrix."""
        features, alpha = self.features, self.alpha
        mean: Array = np.zeros(features.r)
        H = gram
        if self.fit_intercept:
            mean, H = gram[:-1, -1].copy(), centred_gram(gram)
        add_penalty(H, len(H), alpha, features.penalty)
        factor = factorise(H, features.n_threads)
        errors: Array = self.y.copy()
        if theta is None:
            theta = np.zeros(features.r)
        else:
            errors -= features.dot(theta[None])[0]
        for _ in range(NEWTON_STEPS):
            flow = weight * (errors - self.fit_intercept * (weight @ errors))
            gradient = alpha * theta - features.t_dot(flow[None])[0]
            inner = features.to_inner(gradient[None])
            step = features.from_inner(-solve_factorised(factor, inner.T).T)[0]
            theta = theta + step
            errors -= features.dot(step[None])[0]
        intercept = self.fit_intercept * float(weight @ errors)
        errors -= intercept
        moved: Any = features.moved(theta)
        return _Fit(theta, intercept - moved, errors, mean, factor)


def _directions(
    output_matrix: npt.ArrayLike | str | None, d: int
) -> tuple[Array, Array]:
    """Find (V, λ): M = V Λ Vᵀ."""
    if isinstance(output_matrix, str):
        if check_option(output_matrix, "output_matrix", STRINGS) == "residual":
            raise ValueError(
                "output_matrix='residual' has no leave-one-out in closed form: each "
                "machine would learn its own"
            )
        output_matrix = None
    if output_matrix is None or np.array_equal(output_matrix, np.eye(d)):
        return np.eye(d), np.ones(d)
    outputs = Outputs.of_matrix(np.asarray(output_matrix), d)
    assert outputs.vectors is not None  # M is not the identity
    return outputs.vectors[:, : outputs.k], outputs.values


def _rotate(
    Z: Array, weight: Array, fit_intercept: bool, n_threads: int
) -> tuple[Array, Array]:
    """Compute Z̃·Q, and the eigenvalues of G = Q Λ Qᵀ."""
    features = Features(np.ascontiguousarray(Z, np.float64), n_threads)
    if fit_intercept:
        features = features.near_zero()
    gram = features.gram(weight, bordered=fit_intercept)
    mean: Array = np.zeros(features.r)
    if fit_intercept:
        mean = gram[:-1, -1].copy()
        gram = centred_gram(gram)
    with single_threaded_blas():
        eigenvalues, Q = eigh_of_gram(gram)
    rotated = np.empty(Z.shape)
    matmul(features.Z, np.ascontiguousarray(Q), rotated, n_threads)
    rotated -= mean @ Q
    return rotated, np.maximum(eigenvalues, 0.0)
