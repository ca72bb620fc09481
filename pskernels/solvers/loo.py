"""Leave-one-out predictions of the squared loss, in closed form."""

import numpy as np

from pskernels._products import EPS, Features, eigh_of_gram, matmul
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._validation import check_option
from pskernels.outputs import Outputs
from pskernels.solvers.hessian import centred_gram

STRINGS = ("identity", "residual")


def leave_one_out(
    Z,
    y,
    *,
    alphas,
    output_matrix=None,
    sample_weight=None,
    fit_intercept=True,
    n_threads=None,
):
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


def _directions(output_matrix, d):
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
    return outputs.vectors[:, : outputs.k], outputs.values


def _rotate(Z, weight, fit_intercept, n_threads):
    """Compute Z̃·Q and the eigenvalues of G = Q Λ Qᵀ."""
    features = Features(np.ascontiguousarray(Z, np.float64), n_threads)
    if fit_intercept:
        features = features.near_zero()
    gram = features.gram(weight, bordered=fit_intercept)
    mean = np.zeros(features.r)
    if fit_intercept:
        mean = gram[:-1, -1].copy()
        gram = centred_gram(gram)
    with single_threaded_blas():
        eigenvalues, Q = eigh_of_gram(gram)
    rotated = np.empty(Z.shape)
    matmul(features.Z, np.ascontiguousarray(Q), rotated, n_threads)
    rotated -= mean @ Q
    return rotated, np.maximum(eigenvalues, 0.0)
