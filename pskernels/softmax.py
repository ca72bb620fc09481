"""Multinomial logistic machines: all classes as one problem, with a certificate."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy.special

from pskernels._threads import resolve_n_threads
from pskernels._types import Array, Indices
from pskernels._validation import check_positive
from pskernels.features import as_features
from pskernels.solvers.newton_cg import decide_without_folds, run_family

if TYPE_CHECKING:
    from pskernels.features import FeaturesLike
    from pskernels.solvers.base import SolveResult, StartLike


def solve_softmax(
    Z: "FeaturesLike",
    y: npt.ArrayLike,
    *,
    alphas: Iterable[float],
    n_classes: int | None = None,
    sample_weight: npt.ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int | None = None,
    start: "StartLike | None" = None,
    warm: bool = True,
    n_threads: int | None = None,
) -> "list[SolveResult]":
    """Minimise mean -log softmax(Z @ coef + intercept)[y] + (alpha/2)·‖coef‖².

    Parameters
    ----------
    Z : array of shape (n, r), or features
    y : array of int, shape (n,)
        Numbers of classes, from 0 on.
    alphas : sequence of float
    n_classes : int, optional
        None means the largest number and one more.
    sample_weight : array of shape (n,), optional
    fit_intercept : bool
        The intercept is not penalised.
    tol : float
        The certified gap to stop at, relative to the objective.
    max_iter : int, optional
        Newton steps at most, 100.
    start : tuple (coef, intercept), optional
    warm : bool
        Whether each alpha begins with the solution of the one before, large ones first.
    n_threads : int, optional

    Returns
    -------
    list of SolveResult
        With coef of shape (r, n_classes), in the order of alphas.  The certificate is
        exact but for the rounding of the gradient itself.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(500, 2))
    >>> y = np.array([0, 1, 2])[(Z[:, 0] > 0).astype(int) + (Z[:, 1] > 0)]
    >>> (result,) = psk.solve_softmax(Z, y, alphas=[1e-2])
    >>> result.converged, result.coef.shape
    (True, (2, 3))
    """
    alphas = [check_positive(alpha, "alpha") for alpha in alphas]
    features = as_features(Z, resolve_n_threads(n_threads))
    family = _Softmax(*_check_codes(y, features.n, n_classes))
    return run_family(
        features,
        family,
        alphas,
        sample_weight,
        fit_intercept,
        tol,
        max_iter,
        start,
        warm,
    )


def softmax_without_folds(
    Z: "FeaturesLike",
    y: npt.ArrayLike,
    folds: Indices,
    *,
    alpha: float,
    start: "tuple[npt.ArrayLike, npt.ArrayLike]",
    sample_weight: npt.ArrayLike | None = None,
    fit_intercept: bool = True,
    tol: float = 1e-3,
    max_iter: int | None = None,
    n_threads: int | None = None,
) -> Array:
    """Compute decisions on every point by the machine that has not seen its fold.

    Parameters
    ----------
    Z, y, alpha, sample_weight, fit_intercept, tol, max_iter, n_threads
        As for `solve_softmax`.
    folds : array of int, shape (n,)
    start : tuple (coef, intercept)
        Of the machine of all points.

    Returns
    -------
    ndarray of shape (n, n_classes)
    """
    features = as_features(Z, resolve_n_threads(n_threads))
    family = _Softmax(*_check_codes(y, features.n, None))
    return decide_without_folds(
        features,
        family,
        folds,
        alpha,
        sample_weight,
        fit_intercept,
        check_positive(tol, "tol"),
        max_iter,
        start,
    ).T


def _check_codes(
    y: npt.ArrayLike, n: int, n_classes: int | None
) -> tuple[Indices, int]:
    codes = np.asarray(y)
    if codes.shape != (n,) or codes.dtype.kind not in "iu" or codes.min() < 0:
        raise ValueError(
            f"y must have the number of a class, from 0 on, for each of {n} rows of Z, "
            f"got shape {codes.shape} and type {codes.dtype}"
        )
    found = int(codes.max()) + 1
    n_classes = found if n_classes is None else n_classes
    if n_classes < max(2, found):
        raise ValueError(f"n_classes must be at least {max(2, found)}, got {n_classes}")
    return codes, n_classes


class _Softmax:
    """-log softmax(f)[y], as a family of `pskernels.solvers.newton_cg`."""

    def __init__(self, codes: Indices, n_classes: int) -> None:
        self.codes, self.n_classes = codes, n_classes
        self._rows = np.arange(len(codes))

    def start(self, weight: Array) -> Array:
        """Take the logarithms of the shares of classes."""
        shares = np.bincount(self.codes, weight, self.n_classes)
        return np.log(np.maximum(shares, np.finfo(float).tiny))

    def project(self, u: Array) -> Array:
        """Subtract the mean of all classes: probabilities know differences only."""
        found: Array = u - u.mean(axis=0)
        return found

    def values(self, f: Array) -> Array:
        """Compute losses, (n,)."""
        return scipy.special.logsumexp(f, axis=0) - f[self.codes, self._rows]

    def differentiate(self, f: Array) -> "_SoftmaxDerivatives":
        """Find derivatives at f."""
        p = scipy.special.softmax(f, axis=0)
        slope = p.copy()
        slope[self.codes, self._rows] -= 1.0
        return _SoftmaxDerivatives(p, slope)


class _SoftmaxDerivatives:
    """Hessians are diag(p) - p·pᵀ."""

    def __init__(self, p: Array, slope: Array) -> None:
        self._p, self.slope = p, slope

    @property
    def diagonal(self) -> Array:
        return self._p * (1 - self._p)

    def bend(self, u: Array) -> Array:
        """Multiply all Hessians by directions, (classes, n)."""
        found: Array = self._p * (u - (self._p * u).sum(axis=0))
        return found

    def matrix(self, weight: Array) -> Array:
        """Sum the Hessians."""
        weighted = self._p * weight
        return np.diag(weighted.sum(axis=1)) - weighted @ self._p.T
