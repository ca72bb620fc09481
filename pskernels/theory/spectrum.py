"""The spectrum of K/n, and the two numbers of it that the theory needs.

gram_spectrum     eigenvalues μ_1 ≥ μ_2 ≥ …: exact for few points, else from a sketch
critical_radius   δ_n² and d_n, with bounds on both
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg

from pskernels._products import Features
from pskernels._random import philox_key
from pskernels._threads import single_threaded_blas
from pskernels._types import (
    AnyArray,
    Array,
    CheckedPoints,
    Indices,
    KernelLike,
    Points,
    RandomState,
)
from pskernels._validation import (
    check_int,
    check_points,
    check_positive,
    check_real_array,
    raise_not_finite,
)
from pskernels.choice import FIRST_ROWS, MAX_ROWS
from pskernels.feature_map import BLOCK_POINTS, FeatureMap
from pskernels.gram import kernel_matmul
from pskernels.kernels import Kernel, Precomputed, get_kernel, is_precomputed
from pskernels.sketches import PSparsified

# Points up to which K is formed and decomposed, which takes a second.
EXACT_POINTS = 2000

# Of eigenvalues and entries of K, relative to the largest.
ROUNDING = 1e-10


@dataclass(frozen=True)
class Spectrum:
    """What is known of the eigenvalues μ_1 ≥ … ≥ μ_n of K/n.

    Attributes
    ----------
    values : ndarray of shape (r,)
        Lower bounds of the r largest eigenvalues, decreasing; the eigenvalues
        themselves, if `residual` is 0.
    residual : float
        Σ_j μ_j - Σ_j values_j, what the values miss in all.
    n : int
    """

    values: Array
    residual: float
    n: int
    _vectors: Callable[[Indices, int], Array] | None = field(
        default=None, repr=False, compare=False
    )

    def vectors(self, indices: Indices, k: int) -> Array:
        """Compute the entries, at some points, of eigenvectors of the k largest values.

        Parameters
        ----------
        indices : array of int, shape (m,)
        k : int

        Returns
        -------
        ndarray of shape (m, k)
        """
        if self._vectors is None:
            raise ValueError("this spectrum was made of eigenvalues: it has no vectors")
        return self._vectors(indices, k)


class CriticalRadius(NamedTuple):
    """What `critical_radius` returns.

    Bounds coincide for a spectrum that is known in full.  For one that is not, `delta2`
    is the upper bound, and `d_n`, which counts the values above it, the lower one;
    where too small a d_n does harm, take that of the bounds.
    """

    delta2: float
    d_n: int
    delta2_bounds: tuple[float, float]
    d_n_bounds: tuple[int, int]


def critical_radius(
    spectrum: Spectrum | npt.ArrayLike, n: int | None = None
) -> CriticalRadius:
    """Find the critical radius δ_n² and the statistical dimension d_n.

    δ_n² is the least positive number with

        ψ(δ_n) = ((1/n) Σ_j min(δ_n², μ_j))^(1/2) ≤ δ_n²,

    and d_n = min{j: μ_j ≤ δ_n²}, or n if there is no such j.

    Parameters
    ----------
    spectrum : Spectrum, or array of shape (r,)
        Eigenvalues of K/n, in any order; those that an array leaves out are 0.
    n : int, optional
        The number of points; by default that of the spectrum, or r.  A `Spectrum` of
        fewer points serves as an estimate of that of n points, since eigenvalues of K/n
        converge; there are no bounds then: those of δ_n² are NaN.

    Returns
    -------
    CriticalRadius
        With a spectrum from a sketch, `delta2` is its upper bound, which is the closer
        one: the sum of all eigenvalues is known, only that of the large ones is not.

    Notes
    -----
    Both numbers belong to functions of norm 1: for functions of norm R, give the
    eigenvalues of R²·K/n.

    With j eigenvalues above t, Σ min(t, μ) = j·t + Σ_{i>j} μ_i.  For any other j this
    is too large; so that δ_n² is the least root of n·t² = j·t + Σ_{i>j} μ_i over all j,
    and no iteration is needed.

    Values v_j from a sketch are at most μ_j, and Σ (μ_j - v_j) = residual.  So

        Σ min(t, v_j)  ≤  Σ min(t, μ_j)  ≤  Σ min(t, v_j) + residual,

    which bounds δ_n².  The bounds hold but for rounding errors.

    Examples
    --------
    >>> import numpy as np
    >>> from pskernels import theory
    >>> radius = theory.critical_radius(np.arange(1.0, 1001.0) ** -2)
    >>> round(radius.delta2, 4), radius.d_n
    (0.0155, 9)
    """
    if n is not None:
        check_int(n, "n", minimum=1)
    spectrum = _as_spectrum(spectrum, n)
    estimated = n is not None and n != spectrum.n
    n = spectrum.n if n is None else n
    values, residual = spectrum.values, spectrum.residual
    low = _least_radius(values, 0.0, n)
    high = _least_radius(values, residual, n)
    d_low = min(1 + int(np.count_nonzero(values > high)), n)
    if estimated:
        return CriticalRadius(high, d_low, (np.nan, np.nan), (1, n))
    d_high = min(1 + _most_above(values, residual, low, n), n)
    return CriticalRadius(high, d_low, (low, high), (d_low, d_high))


def _as_spectrum(spectrum: Spectrum | npt.ArrayLike, n: int | None) -> Spectrum:
    if isinstance(spectrum, Spectrum):
        return spectrum
    values: Array = check_real_array(spectrum, "spectrum").astype(np.float64)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(
            f"spectrum must be 1-d and not empty, got an array of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise_not_finite(values, "spectrum")
    n = len(values) if n is None else n
    values = _in_order(values, "spectrum")
    if np.count_nonzero(values) > n:
        raise ValueError(
            f"spectrum has {np.count_nonzero(values)} eigenvalues that are not 0, more "
            f"than the n={n} points"
        )
    return Spectrum(values, 0.0, n)


def _in_order(values: Array, name: str) -> Array:
    """Sort eigenvalues, the largest first; those that rounding made negative are 0."""
    values = np.sort(values)[::-1]
    if values[-1] < -ROUNDING * np.abs(values).max():
        raise ValueError(
            f"{name} must be positive semidefinite, but has the eigenvalue "
            f"{values[-1]:g}; the largest one is {values[0]:g}"
        )
    return np.maximum(values, 0.0)


def _least_radius(values: Array, extra: float, n: int) -> float:
    """Find the least t > 0 with Σ min(t, values) + extra ≤ n·t²."""
    j = np.arange(len(values) + 1)
    rest = np.append(np.cumsum(values[::-1])[::-1], 0.0) + extra
    return float(np.min((j + np.sqrt(j**2 + 4.0 * n * rest)) / (2 * n)))


def _most_above(values: Array, residual: float, t: float, n: int) -> int:
    """Count eigenvalues that can exceed t, if `residual` may be added to the values."""
    above = int(np.count_nonzero(values > t))
    if residual == 0 or t == 0:
        return above
    lacking = np.cumsum(t - values[above:])
    raised = int(np.count_nonzero(lacking < residual))
    if raised < len(lacking):
        return above + raised
    left = residual - (lacking[-1] if len(lacking) else 0.0)
    return min(n, len(values) + int(left / t))


def gram_spectrum(
    X: Points,
    *,
    kernel: KernelLike = "rbf",
    gamma: float | str | None = None,
    exact: bool | None = None,
    rtol: float = 0.05,
    max_rows: int = MAX_ROWS,
    random_state: RandomState = None,
    n_threads: int | None = None,
    memory_limit: int | None = None,
) -> Spectrum:
    """Compute the largest eigenvalues of K/n, and what they leave out.

    Parameters
    ----------
    X : array of shape (n, d)
        With ``kernel="precomputed"``, K itself.
    kernel, gamma
        As for `sketch_gram`.
    exact : bool, optional
        Form K and decompose it; None means for n up to 2,000.  Else K is never formed:
        a p-sparsified sketch is doubled until `critical_radius` is known to rtol.
    rtol : float
        Of the bounds on δ_n².
    max_rows : int
        Of the sketch.
    random_state : None, int, numpy Generator or numpy RandomState
    n_threads, memory_limit
        As for `sketch_gram`.

    Returns
    -------
    Spectrum

    Warns
    -----
    RuntimeWarning
        If rtol is not reached with max_rows.  The bounds hold all the same.

    Notes
    -----
    With features Z of a sketch, Z·Zᵀ ≼ K: its eigenvalues are lower bounds, and the
    trace of the difference, which is known exactly, says how far they are off in all.
    The features are computed in blocks of points and not kept; memory is that of a
    few matrices of rows × rows.  Time is that of the features of all sketches,
    n·20·rows values of the kernel and n·rows² multiplications each; the last one takes
    most of it.
    """
    check_positive(rtol, "rtol")
    check_int(max_rows, "max_rows", minimum=1)
    X = check_points(X, "X", accept_sparse=not is_precomputed(kernel))
    X = X.astype(np.float64, copy=False)
    n = X.shape[0]
    if exact is None:
        exact = n <= EXACT_POINTS
    if exact:
        return _exact_spectrum(X, get_kernel(kernel, gamma), n_threads)
    options: dict[str, Any] = dict(
        kernel=kernel, gamma=gamma, n_threads=n_threads, memory_limit=memory_limit
    )
    seed = int(philox_key(random_state)[0])
    limit, s = min(max_rows, n), min(FIRST_ROWS, max_rows, n)
    trace = None
    while True:
        sketch = PSparsified(s).draw(n, seed, n_threads)
        feature_map = FeatureMap(sketch=sketch, **options).fit(X)
        if trace is None:
            diagonal = feature_map.kernel_.diagonal(X, np.arange(n))
            trace = float(diagonal.mean())
        spectrum = _sketched_spectrum(feature_map, X, trace)
        low, high = critical_radius(spectrum).delta2_bounds
        if high - low <= rtol * high:
            return spectrum
        if s == limit:
            warnings.warn(
                f"{s} rows bound the critical radius to [{low:.3g}, {high:.3g}], wider "
                f"than rtol={rtol:g}; raise max_rows",
                RuntimeWarning,
                stacklevel=2,
            )
            return spectrum
        s = min(2 * s, limit)


def _exact_spectrum(
    X: CheckedPoints, kernel: Kernel, n_threads: int | None
) -> Spectrum:
    n = X.shape[0]
    if isinstance(kernel, Precomputed):
        assert isinstance(X, np.ndarray)
        K = _check_gram(X)
    else:
        K = kernel_matmul(X, None, np.eye(n), kernel=kernel, n_threads=n_threads)
    with single_threaded_blas():
        values, U = scipy.linalg.eigh((K + K.T) / (2 * n))
    U = U[:, ::-1]
    values = _in_order(values, "K/n")
    return Spectrum(values, 0.0, n, lambda indices, k: U[indices, :k])


def _check_gram(K: AnyArray) -> AnyArray:
    """Check K of a precomputed kernel."""
    if K.shape[0] != K.shape[1]:
        raise ValueError(
            f"X must be a square Gram matrix for a precomputed kernel, got {K.shape}"
        )
    if not np.isfinite(K).all():
        raise_not_finite(K, "X")
    if np.abs(K - K.T).max() > ROUNDING * np.abs(K).max():
        raise ValueError("X must be symmetric for a precomputed kernel")
    return K


def _sketched_spectrum(
    feature_map: FeatureMap, X: CheckedPoints, trace: float
) -> Spectrum:
    """Compute it by Z·Zᵀ/n, of which ZᵀZ/n has the same positive eigenvalues."""
    n = X.shape[0]
    n_threads, _ = feature_map.limits()
    gram = np.zeros((feature_map.rank_, feature_map.rank_))
    for start in range(0, n, BLOCK_POINTS):
        Z = feature_map.transform(X[start : start + BLOCK_POINTS])
        gram += Features(Z, n_threads).gram(np.ones(len(Z)))
    with single_threaded_blas():
        # row-major and upper is column-major and lower
        values, V = scipy.linalg.eigh(gram.T / n, lower=True)
    values, V = _in_order(values, "Z·Zᵀ/n"), V[:, ::-1]

    def vectors(indices: Indices, k: int) -> Array:
        Z = feature_map.transform(X[indices])
        found: Array = Z @ (V[:, :k] / np.sqrt(n * values[:k]))
        return found

    return Spectrum(values, max(0.0, trace - values.sum()), n, vectors)
