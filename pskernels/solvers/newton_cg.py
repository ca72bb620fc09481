"""Newton's method for smooth losses that bend along all outputs, or are exponential.

    P(W, b) = Σ_i ω_i ℓ_i(f_i) + (alpha/2)·‖W‖²,  f_i = Wᵀ z_i + b

ζ_i = ∇ℓ_i(f_i) is feasible in the dual if Σ_i ω_i ζ_i = 0, which b is moved for, and by
Fenchel's equality what P exceeds its minimum by is at most ‖∇_W P‖² / (2·alpha): no
conjugate has to be known.

    step          by conjugate gradients: two passes over Z for each iteration
    precondition  κ_c·G + alpha·I, with G the Gram matrix of the features and κ_c the
                  mean curvature of output c: one eigendecomposition serves all of them;
                  or, once iterations have cost as much, what the Hessian has of each
                  output by itself, factorised
    balance       b by Newton's method in as many dimensions as there are outputs

A family has ``values(f)``, the losses (n,) of n points at f (k, n);
``differentiate(f)``, which makes ``slope`` (k, n), ``diagonal`` (k, n), ``bend(u)``,
the product of all Hessians with directions u (k, n), and ``matrix(weight)``, the (k, k)
sum of Hessians; ``start(weight)``, the k intercepts of a model without features; and
``project(u)``, which takes from directions what no loss sees: only the penalty bends
there, and iterations that a preconditioner led astray took a hundred to return.
"""

import time
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from pskernels._products import PlainFeatures, eigh_of_gram
from pskernels._threads import cached_property, single_threaded_blas
from pskernels._types import Array, Indices
from pskernels._validation import check_int, check_positive
from pskernels.losses import SmoothLoss, check_weights
from pskernels.objective import gap_scale, relative_gap, squared_norm
from pskernels.solvers.base import (
    Iteration,
    SolveResult,
    StartLike,
    warn_if_not_converged,
)
from pskernels.solvers.hessian import (
    add_penalty,
    centred_gram,
    factorise,
    solve_factorised,
)

if TYPE_CHECKING:
    from pskernels.features import AnyFeatures, FeatureBlocks

# Newton steps, iterations of conjugate gradients for each, and the accuracy of a step:
# no better than that, or than the root of the gradient's share of the first one.
MAX_ITER, CG_ITER, CG_TOL = 100, 200, 0.1
# Halvings of a step, and the share of the promised descent that is enough.
HALVINGS, DESCENT = 40, 1e-4
# Newton steps of the intercept, the longest, the imbalance that is rounding, and the
# one that proves nothing.
BALANCE_ITER, BALANCE_STEP, BALANCED, UNBALANCED = 100, 5.0, 1e-14, 1e-8
# Least mean curvature of an output, as a share of the largest one.
LEAST_CURVATURE = 1e-6

# Factors of the Hessian of each output cost as much as this share of r iterations (39
# and 1.2 ms; r = 600, n = 10,000, three classes, two threads), of more than so many
# outputs, whose products are BLAS's, as the other (60 classes, n = 6,000); then steps
# take 2 to 4 iterations in place of up to 50.  `python bench/intervals.py classes` has
# such fits.  They may take so many bytes, or as many as the features.
FEW_OUTPUTS, FACTORS_COST, FACTORS_COST_OF_MANY = 6, 1 / 18, 1 / 8
FACTORS_BYTES = 2**25
# Share of what fits without a fold have to go, from the fit of all points, that may be
# left: decisions on held-out points must not remember them.
REMEMBERED = 1e-3

ADVICE = "raise max_iter, tol or alpha"


# (gradient, total) -> what is left of them behind the preconditioner.
Precondition: TypeAlias = Callable[[Array, Array], tuple[Array, Array]]


class Derivatives(Protocol):
    """Derivatives of a family at a model."""

    @property
    def slope(self) -> Array: ...

    @property
    def diagonal(self) -> Array: ...

    def bend(self, u: Array) -> Array: ...

    def matrix(self, weight: Array) -> Array: ...


class Family(Protocol):
    """Losses of points, as functions of all outputs."""

    def start(self, weight: Array) -> Array: ...

    def project(self, u: Array) -> Array: ...

    def values(self, f: Array) -> Array: ...

    def differentiate(self, f: Array) -> Derivatives: ...


class OneOutput:
    """The family of a `SmoothLoss` and its targets."""

    def __init__(self, loss: SmoothLoss, y: Array) -> None:
        self.loss, self.y = loss, y

    def start(self, weight: Array) -> Array:
        """Find the best constant."""
        return np.array([self.loss.constant_minimiser(self.y, weight)])

    def project(self, u: Array) -> Array:
        """Return u: losses bend along their only output."""
        return u

    def values(self, f: Array) -> Array:
        """Compute losses, (n,)."""
        return self.loss.values(f[0], self.y)

    def differentiate(self, f: Array) -> "_Derivatives":
        """Find derivatives at f."""
        with np.errstate(over="ignore"):
            slope, bend = self.loss.derivatives(f[0], self.y)
        return _Derivatives(slope[None], bend[None])


class _Derivatives(NamedTuple):
    slope: Array
    diagonal: Array

    def bend(self, u: Array) -> Array:
        """Multiply second derivatives by directions."""
        return self.diagonal * u

    def matrix(self, weight: Array) -> Array:
        """Sum second derivatives."""
        return (self.diagonal @ weight)[:, None]


class SmoothModel(NamedTuple):
    """Coefficients (k, r) of features around their means, and intercepts (k,)."""

    W: Array
    b: Array


class SmoothProblem:
    """Sums over points; features are around their means, which are not subtracted.

    Parameters
    ----------
    features : Features
    family : object
        See above.
    weight : array of shape (n,)
    fit_intercept : bool
    """

    def __init__(
        self,
        features: "PlainFeatures | FeatureBlocks",
        family: Family,
        weight: Array,
        fit_intercept: bool,
    ) -> None:
        self.features = features.near_zero() if fit_intercept else features
        self.family = family
        self.weight = weight / weight.sum()
        self.fit_intercept = bool(fit_intercept)
        self.means: Array = np.zeros(self.features.r)
        if self.fit_intercept:
            self.means = self.features.t_dot(self.weight[None])[0]

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of the Gram matrix of the features."""
        gram = self.features.gram(self.weight, bordered=self.fit_intercept)
        values, vectors = eigh_of_gram(
            centred_gram(gram) if self.fit_intercept else gram
        )
        return np.maximum(values, 0.0), vectors

    def reweighted(self, weight: Array) -> Self:
        """Make the same problem with other weights, of the same features."""
        other = copy(self)
        other.weight = weight / weight.sum()
        return other

    def model_of(
        self, start: tuple[npt.ArrayLike, npt.ArrayLike] | None
    ) -> SmoothModel:
        """Make a model of (coef, intercept), or one without features."""
        project = self.family.project
        b = project(self.family.start(self.weight))
        if not self.fit_intercept:
            b = np.zeros_like(b)
        if start is None:
            return SmoothModel(np.zeros((len(b), self.features.r)), b)
        coef, intercept = (np.asarray(part, np.float64) for part in start)
        if coef.size != len(b) * self.features.r or intercept.size != len(b):
            raise ValueError(
                f"start must have coefficients of shape ({self.features.r}, {len(b)}) "
                f"and as many intercepts, got {coef.shape} and {intercept.shape}"
            )
        coef = coef.reshape(self.features.r, -1)
        if self.fit_intercept:
            b = project(intercept.reshape(-1) + self.shift(coef))
        return SmoothModel(project(np.ascontiguousarray(coef.T)), b)

    def shift(self, coef: Array) -> Array | float:
        """Compute what means add to intercepts."""
        if not self.fit_intercept:
            return 0.0
        return self.features.moved(coef) + self.means @ coef

    def decide(self, W: Array, b: Array) -> Array:
        """Compute f, (k, n)."""
        f = self.features.dot(W)
        f += (b - W @ self.means)[:, None]
        return f

    def loss(self, f: Array) -> float:
        """Average the losses; infinite where they overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            value = float(self.weight @ self.family.values(f))
        return value if np.isfinite(value) else np.inf

    def total(self, flow: Array) -> Array:
        """Sum over points, what intercepts are pulled with; 0 without them."""
        return flow.sum(axis=1) if self.fit_intercept else np.zeros(len(flow))

    def pull(self, flow: Array, total: Array) -> Array:
        """Compute Σ flow·(z - mean), (k, r)."""
        return self.features.t_dot(flow) - total[:, None] * self.means

    def balance(self, f: Array, b: Array) -> tuple[Array, Array, Derivatives]:
        """Move intercepts, and f, to where all that they are pulled with adds up to 0.

        Returns f, b, and derivatives at f.
        """
        at = self.family.differentiate(f)
        if not self.fit_intercept:
            return f, b, at
        for _ in range(BALANCE_ITER):
            total = at.slope @ self.weight
            if (np.abs(total) <= BALANCED * (np.abs(at.slope) @ self.weight)).all():
                break
            H = at.matrix(self.weight)
            step = -np.linalg.lstsq(H, total, rcond=1e-12)[0]
            step *= min(1.0, BALANCE_STEP / max(np.abs(step).max(), 1e-300))
            for _ in range(HALVINGS):
                changed = self.family.differentiate(f + step[:, None])
                if np.abs(changed.slope @ self.weight).max() < np.abs(total).max():
                    break
                step = step / 2
            else:
                break  # rounding
            f, b, at = f + step[:, None], b + step, changed
        return f, b, at

    def is_balanced(self, total: Array, flow: Array) -> bool:
        """Tell whether flows add up to 0, but for what a bound can take in."""
        found: bool = np.abs(total).max() <= UNBALANCED * np.abs(flow).sum()
        return found

    def curve(self, at: Derivatives, V: Array, v: Array) -> tuple[Array, Array]:
        """Multiply the Hessian without penalty by a direction (V, v)."""
        flow = at.bend(self.decide(V, v)) * self.weight
        total = self.total(flow)
        return self.pull(flow, total), total


def run_family(
    features: "AnyFeatures",
    family: Family,
    alphas: list[float],
    sample_weight: npt.ArrayLike | None,
    fit_intercept: bool,
    tol: float,
    max_iter: int | None,
    start: StartLike | None,
    warm: bool,
) -> list[SolveResult]:
    """Solve for each alpha, large ones first; if warm, each from the one before.

    Parameters
    ----------
    features : Features
    family : object
        See the head of this module.
    alphas : sequence of float
    sample_weight : array of shape (n,) or None
    fit_intercept : bool
    tol : float
    max_iter : int or None
    start : tuple (coef, intercept), SolveResult or None
    warm : bool

    Returns
    -------
    list of SolveResult
        With outputs in two dimensions, in the order of alphas.
    """
    tol = check_positive(tol, "tol")
    max_iter = _check_steps(max_iter)
    if isinstance(start, SolveResult):
        start = start.coef, start.intercept
    with single_threaded_blas():
        problem = _make_problem(features, family, sample_weight, fit_intercept)
        results: list[Any] = [None] * len(alphas)
        model = problem.model_of(start)
        for k in np.argsort(alphas, kind="stable")[::-1]:
            results[k], found = minimise(problem, alphas[k], model, tol, max_iter)
            model = found if warm else model
    for result in results:
        warn_if_not_converged(result)
    return results


def _check_steps(max_iter: int | None) -> int:
    return check_int(MAX_ITER if max_iter is None else max_iter, "max_iter", minimum=0)


def _make_problem(
    features: "AnyFeatures",
    family: Family,
    sample_weight: npt.ArrayLike | None,
    fit_intercept: bool,
) -> SmoothProblem:
    """Form the features, check them and the weights, and make a problem."""
    formed = features.formed()
    formed.check_finite()
    weight = np.ones(formed.n) if sample_weight is None else sample_weight
    weight = check_weights(weight, formed.n)
    return SmoothProblem(formed, family, weight, fit_intercept)


def decide_without_folds(
    features: "AnyFeatures",
    family: Family,
    folds: Indices,
    alpha: float,
    sample_weight: npt.ArrayLike | None,
    fit_intercept: bool,
    tol: float,
    max_iter: int | None,
    start: tuple[npt.ArrayLike, npt.ArrayLike],
) -> Array:
    """Compute f of every point by the machine that has not seen its fold.

    Parameters
    ----------
    features, family, sample_weight, fit_intercept
        As for `run_family`.
    folds : array of int, shape (n,)
    alpha, tol : float
    max_iter : int or None
    start : tuple (coef, intercept)
        Of the machine of all points.

    Returns
    -------
    ndarray of shape (k, n)
    """
    steps = _check_steps(max_iter)
    with single_threaded_blas():
        problem = _make_problem(features, family, sample_weight, fit_intercept)
        model = problem.model_of(start)
        preconditioner = _Preconditioner(problem, alpha)
        decisions = problem.decide(*model)
        preconditioner.factorise(family.differentiate(decisions))
        for k in np.unique(folds):
            held = folds == k
            some = problem.reweighted(np.where(held, 0.0, problem.weight))
            result, found = minimise(
                some, alpha, model, tol, steps, preconditioner, REMEMBERED
            )
            warn_if_not_converged(result)
            decisions[:, held] = problem.decide(*found)[:, held]
    return decisions


def minimise(
    problem: SmoothProblem,
    alpha: float,
    model: SmoothModel,
    tol: float,
    max_iter: int,
    preconditioner: "_Preconditioner | None" = None,
    share: float = 1.0,
) -> tuple[SolveResult, SmoothModel]:
    """Find the minimum for one alpha.

    Parameters
    ----------
    problem : SmoothProblem
    alpha : float
    model : SmoothModel
        Where to begin.
    tol : float
    max_iter : int
    preconditioner : _Preconditioner, optional
        Of a problem that is nearly the same.
    share : float
        Of the gap of where it begins, that may be left, unless steps end before.

    Returns
    -------
    result : SolveResult
        With k outputs, in two dimensions.
    model : SmoothModel
    """
    began, history, first, goal = time.perf_counter(), [], None, tol
    preconditioner = preconditioner or _Preconditioner(problem, alpha)
    constant = problem.model_of(None)
    null = problem.loss(problem.decide(*constant))
    W, b = model
    if not problem.loss(problem.decide(W, b)) + alpha / 2 * squared_norm(W) < null:
        W, b = constant  # of another loss, for example
    f, b, at = problem.balance(problem.decide(W, b), b)
    for n_iter in range(max_iter + 1):
        objective = problem.loss(f) + float(alpha / 2 * squared_norm(W))
        flow = at.slope * problem.weight
        total = problem.total(flow)
        gradient = problem.pull(flow, total) + alpha * W
        # a share of the intercept's size, or of 1, is what it may be off by
        gap = squared_norm(gradient) / (2 * alpha) + np.abs(total) @ (1 + np.abs(b))
        gap = float(relative_gap(gap, gap_scale(objective, null)))
        if not problem.is_balanced(total, flow):
            gap = np.inf
        seconds = time.perf_counter() - began
        history.append(Iteration(n_iter, objective, gap, seconds, f.shape[1], 0.0))
        goal = min(tol, share * gap) if n_iter == 0 else goal
        if gap <= goal or n_iter == max_iter:
            break
        precondition = preconditioner(at)
        size = np.sqrt(np.vdot(gradient, precondition(gradient, total)[0]))
        first = size if first is None else first
        accuracy = min(CG_TOL, np.sqrt(size / first))
        V, v, n_cg = _newton_step(
            problem, at, alpha, gradient, total, precondition, accuracy
        )
        preconditioner.n_iter += n_cg
        del precondition  # and its factors, before new ones are made
        step = _search(
            problem, f, W, V, v, alpha, objective, float(np.vdot(gradient, V))
        )
        if step is None:
            break
        W = W + step * V
        f, b, at = problem.balance(problem.decide(W, b + step * v), b + step * v)
    coef = np.ascontiguousarray(W.T)
    result = SolveResult(
        coef=coef,
        intercept=b - problem.shift(coef) if problem.fit_intercept else 0 * b,
        objective=objective,
        null_objective=null,
        dual_gap=gap,
        dual=np.ascontiguousarray(at.slope.T),
        converged=bool(gap <= tol),
        n_iter=n_iter,
        history=history,
        alpha=alpha,
        tol=tol,
        solver="newton",
        output_matrix=None,
        advice=ADVICE,
    )
    return result, SmoothModel(W, b)


class _Preconditioner:
    """Makes functions that divide (gradient, total) by nearly the Hessian.

    Parameters
    ----------
    problem : SmoothProblem
    alpha : float

    Attributes
    ----------
    n_iter : int
        Iterations since factors were made.
    """

    def __init__(self, problem: SmoothProblem, alpha: float) -> None:
        self.problem, self.alpha = problem, alpha
        self.n_iter = 0
        self._kept: Precondition | None = None

    def __call__(self, at: Derivatives) -> Precondition:
        """Take what was made, or make one of derivatives at a model."""
        few = len(at.diagonal) <= FEW_OUTPUTS
        cost = FACTORS_COST if few else FACTORS_COST_OF_MANY
        if self.n_iter >= cost * self.problem.features.r:
            self.factorise(at)
        divide, project = self._kept or self._by_means(at), self.problem.family.project

        def precondition(gradient: Array, total: Array) -> tuple[Array, Array]:
            step, change = divide(gradient, total)
            return project(step), project(change)

        return precondition

    def factorise(self, at: Derivatives) -> None:
        """Factorise what the Hessian has of each output, if that can be."""
        problem, (k, n), r = self.problem, at.diagonal.shape, self.problem.features.r
        self.n_iter, self._kept = 0, None
        if 8 * k * r**2 > max(FACTORS_BYTES, 8 * n * r):
            return
        curvature = at.diagonal * problem.weight
        least = LEAST_CURVATURE * curvature.sum(axis=1).max()
        try:
            factors = [self._factor(one, least) for one in curvature]
        except FloatingPointError:  # they overflow; sums over outputs may not
            return

        def precondition(gradient: Array, total: Array) -> tuple[Array, Array]:
            # in coordinates whose intercept belongs to the features as they are
            pulled = gradient + total[:, None] * problem.means
            moved = np.column_stack([pulled, total])
            found = np.zeros_like(moved)
            for one, right, factor in zip(found, moved, factors, strict=True):
                one[: len(factor)] = solve_factorised(factor, right[: len(factor)])
            step = found[:, :-1]
            return step, found[:, -1] + step @ problem.means

        self._kept = precondition

    def _factor(self, curvature: Array, least: float) -> Array:
        """Factorise the Hessian of one output, bordered by that of its intercept."""
        features, fit_intercept = self.problem.features, self.problem.fit_intercept
        H = features.gram(curvature, bordered=fit_intercept)
        add_penalty(H, features.r, self.alpha)
        if fit_intercept:
            H[-1, -1] = max(H[-1, -1], least)
        return factorise(H, features.n_threads)

    def _by_means(self, at: Derivatives) -> Precondition:
        """Divide by κ_c·G + alpha, and by κ_c."""
        curvature = at.diagonal @ self.problem.weight
        least = LEAST_CURVATURE * max(curvature.max(), np.finfo(float).tiny)
        curvature = np.maximum(curvature, least)[:, None]
        values, Q = self.problem.spectrum
        inverse = 1 / (curvature * values + self.alpha)

        def precondition(gradient: Array, total: Array) -> tuple[Array, Array]:
            return ((gradient @ Q) * inverse) @ Q.T, total / curvature[:, 0]

        return precondition


def _newton_step(
    problem: SmoothProblem,
    at: Derivatives,
    alpha: float,
    gradient: Array,
    total: Array,
    precondition: Precondition,
    accuracy: float,
) -> tuple[Array, Array, int]:
    """Solve H·step = -gradient by conjugate gradients.

    Returns the step of W, that of b, and the number of iterations.
    """
    V, v = np.zeros_like(gradient), np.zeros_like(total)
    r, s = -gradient, -total
    d, e = precondition(r, s)
    rho = start = np.vdot(r, d) + s @ e
    n_iter = 0
    while n_iter < CG_ITER:
        n_iter += 1
        Hd, He = problem.curve(at, d, e)
        Hd += alpha * d
        bend = np.vdot(d, Hd) + e @ He
        if not bend > 0:
            break
        t = rho / bend
        V, v, r, s = V + t * d, v + t * e, r - t * Hd, s - t * He
        x, y = precondition(r, s)
        rho, before = np.vdot(r, x) + s @ y, rho
        if rho <= accuracy**2 * start:
            break
        d, e = x + rho / before * d, y + rho / before * e
    return V, v, n_iter


def _search(
    problem: SmoothProblem,
    f: Array,
    W: Array,
    V: Array,
    v: Array,
    alpha: float,
    objective: float,
    slope: float,
) -> float | None:
    """Halve the step until the objective has fallen; None if it cannot."""
    df = problem.decide(V, v)
    for k in range(HALVINGS):
        step = 0.5**k
        value = problem.loss(f + step * df)
        value += alpha / 2 * squared_norm(W + step * V)
        if value <= objective + DESCENT * step * min(slope, 0.0):
            return step
    return None
