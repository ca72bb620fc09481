"""Kernel ridge regression with all points as landmarks: no sketch, one n × n system.

    (K + n·alpha·D⁻¹) a = y - b,   Σ a = 0,   D the weights (of mean 1)

K is kept in float32, and so is its Cholesky factor, in place: n³/3 operations of half
the price.  The factor preconditions conjugate gradients whose products with K are
computed in float64, from the points: a few iterations are enough, unless alpha is so
small that float32 sees nothing of it.

The gap.  With e the residuals of f = Σ a_i k(·, x_i) and b, and ζ any numbers of
weighted mean 0, for the squared loss

    P - D(ζ) = mean D(e - ζ)²/2 + (alpha/2)·‖f - f_ζ‖²,

with f_ζ = Σ D_i ζ_i k(·, x_i)/(n·alpha): squares, of which ζ = e less its mean leaves
what conjugate gradients have left.
"""

import time
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from scipy.linalg import lapack

from pskernels import _points, _tiles
from pskernels._matrices import cholesky, diagonal_of_inverse
from pskernels._products import EPS
from pskernels._threads import single_threaded_blas
from pskernels._types import Array, CheckedPoints
from pskernels.gram import fill_kernel_matmul
from pskernels.objective import gap_scale, relative_gap
from pskernels.sketches import SubSampling
from pskernels.solvers.base import Iteration, SolveResult

if TYPE_CHECKING:
    from pskernels.feature_map import FeatureMap

# The factor is that of a matrix in float32, which may be indefinite: its diagonal is
# raised by so many units in the last place, times √n, and again, up to so many times.
RAISE, MAX_RAISED = 4.0, 4
MAX_ITER = 15


@overload
def solve_all_points(
    feature_map: "FeatureMap",
    X: CheckedPoints,
    y: Array,
    alpha: float,
    weight: Array | None,
    fit_intercept: bool,
    tol: float,
    max_iter: int | None,
    leave_one_out: Literal[False] = False,
) -> SolveResult: ...


@overload
def solve_all_points(
    feature_map: "FeatureMap",
    X: CheckedPoints,
    y: Array,
    alpha: float,
    weight: Array | None,
    fit_intercept: bool,
    tol: float,
    max_iter: int | None,
    leave_one_out: Literal[True],
) -> tuple[SolveResult, Array]: ...


def solve_all_points(
    feature_map: "FeatureMap",
    X: CheckedPoints,
    y: Array,
    alpha: float,
    weight: Array | None,
    fit_intercept: bool,
    tol: float,
    max_iter: int | None,
    leave_one_out: bool = False,
) -> SolveResult | tuple[SolveResult, Array]:
    """Solve kernel ridge regression on all points, to a certified gap.

    Parameters
    ----------
    feature_map : FeatureMap
        Fitted by `fit_all_points` to X; its kernel is shift-invariant.
    X : array of shape (n, d), checked
    y : array of shape (n,) or (n, outputs)
    alpha : float
    weight : array of shape (n,), optional
        All of them positive.
    fit_intercept : bool
    tol : float
    max_iter : int, optional
    leave_one_out : bool
        Find what machines without a point err by there, too: a_i / (M⁻¹)_ii, M⁻¹ that
        of the system with its intercept; as much time again.

    Returns
    -------
    SolveResult, or with leave_one_out (SolveResult, errors in the shape of y)
        Its coef are those of the landmarks.
    """
    began = time.perf_counter()
    n = len(y)
    weight = np.ones(n) if weight is None else weight * (n / weight.sum())
    system = _System(feature_map, X, n * alpha / weight)
    targets = y.reshape(n, -1).astype(np.float64)
    shift = weight @ targets / n if fit_intercept else np.zeros(targets.shape[1])
    targets = targets - shift
    unit = np.abs(targets).max() or 1.0
    targets /= unit  # float32 is to hold them
    sides = np.hstack([targets, np.ones((n, 1))]) if fit_intercept else targets
    state = system.start(sides)
    history: list[Iteration] = []
    while True:
        model = _make_model(system, state, targets, alpha, weight, fit_intercept)
        seconds = time.perf_counter() - began
        line = model["objective"], model["dual_gap"], seconds, n, 0.0
        history.append(Iteration(len(history), *line))
        done = model["dual_gap"] <= tol
        if done or len(history) > (MAX_ITER if max_iter is None else max_iter):
            break
        state = system.step(state)
    for name, power in (("objective", 2), ("null_objective", 2), ("dual", 1)):
        model[name] = model[name] * unit**power
    model["coef"] = model["coef"] * unit
    model["intercept"] = model["intercept"] * unit + shift
    one = y.ndim == 1
    result = SolveResult(
        coef=model["coef"][:, 0] if one else model["coef"],
        intercept=float(model["intercept"][0]) if one else model["intercept"],
        objective=model["objective"],
        null_objective=model["null_objective"],
        dual_gap=model["dual_gap"],
        dual=model["dual"][:, 0] if one else model["dual"],
        converged=done,
        n_iter=len(history) - 1,
        history=history,
        alpha=alpha,
        tol=tol,
        solver="exact",
        output_matrix=None,
        advice="raise alpha or tol",
    )
    if not leave_one_out:
        return result
    diagonal = system.inverse_diagonal()
    if fit_intercept:
        ones = state["A"][:, -1]
        diagonal -= ones**2 / ones.sum()
    return result, (model["coef"] / diagonal[:, None]).reshape(y.shape)


class _System:
    """M = K + diag(ridge), its products in float64 and a factor in float32."""

    def __init__(
        self, feature_map: "FeatureMap", X: CheckedPoints, ridge: Array
    ) -> None:
        self._map, self._X = feature_map, X
        self._ridge = ridge[:, None]
        self._n_threads, self._limit = feature_map.limits()
        self._factor = self._factorise()

    def dot_kernel(self, A: Array) -> Array:
        """Compute K @ A, block by block."""
        out = np.empty(A.shape)
        fill_kernel_matmul(
            out,
            _points.Rows(self._X),
            _points.Rows(self._X),
            A,
            kernel=self._map.kernel_,
            center=self._map.center,
            n_threads=self._n_threads,
            memory_limit=self._limit,
            verbose=0,
        )
        return out

    def _fill_kernel(self, K: Array) -> None:
        n = len(K)
        tiles = _tiles.make_tiles(
            kernel=self._map.kernel_,
            landmarks=_points.Rows(self._X),
            points=_points.Rows(self._X),
            center=self._map.center,
            dtype=K.dtype,
            weights=SubSampling(indices=np.arange(n)).draw(n).weights,
            n_threads=self._n_threads,
            memory_limit=self._limit,
        )
        _tiles.fill_product(K, tiles, 1.0, "K", self._map.verbose)

    def _factorise(self) -> Array:
        n = len(self._X)
        U = np.empty((n, n), np.float32)
        unit = RAISE * np.sqrt(n) * np.finfo(np.float32).eps
        for k in range(MAX_RAISED + 1):
            self._fill_kernel(U)
            U.reshape(-1)[:: n + 1] += (
                self._ridge[:, 0] + (unit * 10.0 ** (k - 1) if k else 0.0)
            ).astype(np.float32)
            U, info = cholesky(U, self._n_threads, overwrite=True)
            if info == 0:
                return U
        raise FloatingPointError(
            "the kernel matrix of all points is far from positive definite in float32; "
            "take a larger alpha or fewer n_components"
        )

    def _precondition(self, R: Array) -> Array:
        """Apply the inverse of the factor's matrix."""
        with single_threaded_blas():
            solved, _ = lapack.spotrs(self._factor.T, R.astype(np.float32), lower=1)
        found: Array = solved.astype(np.float64)
        return found

    def inverse_diagonal(self) -> Array:
        """Compute the diagonal of M⁻¹, to the digits of float32."""
        return diagonal_of_inverse(self._factor, self._n_threads)

    def start(self, sides: Array) -> dict[str, Array]:
        """Begin conjugate gradients for all right-hand sides, where the factor is."""
        A = self._precondition(sides)
        R = sides - self.dot_kernel(A) - self._ridge * A
        Z = self._precondition(R)
        return dict(A=A, R=R, P=Z, rz=(R * Z).sum(axis=0))

    def step(self, state: dict[str, Array]) -> dict[str, Array]:
        """Take a step of each."""
        P, R, rz = state["P"], state["R"], state["rz"]
        MP = self.dot_kernel(P) + self._ridge * P
        curvature = (P * MP).sum(axis=0)
        length = np.divide(rz, curvature, out=np.zeros_like(rz), where=curvature > 0)
        R = R - length * MP
        Z = self._precondition(R)
        new = (R * Z).sum(axis=0)
        ratio = np.divide(new, rz, out=np.zeros_like(rz), where=rz > 0)
        return dict(
            A=state["A"] + length * P,
            R=R,
            P=Z + ratio * P,
            rz=new,
        )


def _make_model(
    system: _System,
    state: dict[str, Array],
    y: Array,
    alpha: float,
    weight: Array,
    fit_intercept: bool,
) -> dict[str, Any]:
    """Make the model of an iterate, and certify it."""
    n, k = y.shape
    A, intercept = state["A"][:, :k], np.zeros(k)
    if fit_intercept:  # the last side is that of ones
        ones = state["A"][:, k:]
        intercept = A.sum(axis=0) / ones.sum()
        A = A - ones * intercept
    KA = system.dot_kernel(A)
    share = weight[:, None] / n
    null = y - (share * y).sum(axis=0) if fit_intercept else y
    null_objective = float((share * null**2).sum()) / 2
    e = y - KA - intercept
    zeta = e - (share * e).sum(axis=0) if fit_intercept else e
    delta = A - share * zeta / alpha
    # what rounding may hide of sums of n terms, k being at most 1
    rounding = (n + 16) * EPS * (np.abs(A).sum(axis=0) + np.abs(y).max(axis=0))
    sizes = np.abs(delta).sum(axis=0)
    squares = (delta * system.dot_kernel(delta)).sum(axis=0)
    squares = np.maximum(squares, 0.0) + (n + 16) * EPS * sizes**2
    gap = (share * (np.abs(e - zeta) + rounding) ** 2).sum() + alpha * squares.sum()
    norms = np.maximum((A * KA).sum(axis=0), 0.0)
    objective = float((share * e**2).sum() + alpha * norms.sum()) / 2
    return dict(
        coef=A,
        intercept=intercept,
        objective=objective,
        null_objective=null_objective,
        dual=zeta,
        dual_gap=relative_gap(float(gap) / 2, gap_scale(objective, null_objective)),
    )
