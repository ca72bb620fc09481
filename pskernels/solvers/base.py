"""What all solvers share: results, the record of iterations, the best so far."""

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._types import Array
from pskernels._validation import levels_to_the_caller
from pskernels.features import as_features
from pskernels.objective import Certificate, gap_scale, relative_gap
from pskernels.rounding import (
    bound_rotation,
    bound_rounding,
    inner_intercept,
    make_model,
)

if TYPE_CHECKING:
    from pskernels.features import FeaturesLike
    from pskernels.losses import Loss
    from pskernels.outputs import Outputs
    from pskernels.sample import Sample

# Solvers stop a little below the tolerance, since the last certificate is computed
# anew, with what rounding may hide.
SAFETY = 0.9

# Of the first envelope that Newton's method would take.  After one whose gap is so many
# times the least, narrower ones are worse still.
ENVELOPE_WIDTHS = 0.25 ** np.arange(8)
TOO_NARROW = 2.0


# Advice where no solver can do better.
ROUNDED = (
    "rounding hides more: scale features and targets (far from 0, or of very different "
    "sizes?), raise alpha or tol"
)
STORED = "the rounding of features stored in float32 hides more; store all digits"


class ConvergenceWarning(UserWarning):
    """The certified gap is above the tolerance."""


class Iteration(NamedTuple):
    """One line of the history: after a step, or where the envelope was narrowed."""

    n_iter: int  # steps so far
    objective: float
    dual_gap: float  # certified so far, relative to the objective
    seconds: float
    n_active: int  # points with a curvature: those in the Hessian
    mu: float  # width of the envelope; 0 is the loss itself


@dataclass
class SolveResult:
    """What `solve` returns.

    Attributes
    ----------
    coef : ndarray of shape (r,), or (r, d) for d outputs
        Predictions are ``Z @ coef + intercept``.
    intercept : float, or ndarray of shape (d,)
    objective : float
        Σ weight·ℓ / Σ weight + (alpha/2)·‖coef‖²; with an output matrix M the
        penalty is that of the kernel k·M, tr(coef·M⁻¹·coefᵀ).
    null_objective : float
        That of a constant: the best for each output by itself, or 0 without intercept.
    dual_gap : float
        Certified: the objective is at most this much, relative to itself, above
        the optimum.  (Relative to 1e-9 of null_objective, where that is larger: data
        that are interpolated.)
    dual : ndarray of shape (n,), or (n, d)
        The ζ that certifies it, one for each point and output; None where points are
        not in memory, of which nothing of length n is kept.
    converged : bool
        Whether dual_gap ≤ tol.
    n_iter : int
        Newton steps, iterations of L-BFGS, or epochs; the sum over outputs where they
        are solved one after the other.
    history : list of Iteration
        (The model is the one of the lowest objective, which need not be the last.)
        n_iter, objective, dual_gap, seconds, n_active and mu, after each of them and
        wherever Newton's method narrows the envelope.
    alpha, tol : float
    solver : str
    output_matrix : ndarray of shape (d, d), or None
        M, as it was used; None means independent outputs.
    advice : str
        What might help, if it has not converged.
    """

    coef: Array = field(repr=False)
    intercept: Any  # float, or an array
    objective: float
    null_objective: float = field(repr=False)
    dual_gap: float
    dual: Any = field(repr=False)  # an array, or None
    converged: bool
    n_iter: int
    history: list[Iteration] = field(repr=False)
    alpha: float
    tol: float
    solver: str
    output_matrix: Array | None = field(repr=False)
    advice: str = field(repr=False)

    def predict(self, Z: "FeaturesLike") -> Array:
        """Compute Z @ coef + intercept, for an array Z of shape (n, r), or features."""
        features = as_features(Z, resolve_n_threads(None))
        r = len(self.coef)
        if features.r != r:
            raise ValueError(
                f"Z must have {r} columns, the features of the fit "
                f"(feature_map.transform(X)), got {features.r}"
            )
        with single_threaded_blas():
            u = features.dot(np.atleast_2d(self.coef.T))
            u += np.reshape(features.moved(self.coef), (-1, 1))
        u = u.T if self.coef.ndim > 1 else u[0]
        found: Array = np.add(u, self.intercept, order="C")
        return found


class HasGap(Protocol):
    """What has an objective and its gap, relative to it."""

    @property
    def objective(self) -> float: ...

    @property
    def dual_gap(self) -> float: ...


class Part(NamedTuple):
    """A part of an objective that is known by itself."""

    objective: float
    dual_gap: float


class Start(NamedTuple):
    """Where a solver begins."""

    theta: Array
    intercept: Array
    warm: bool = False


StartLike: TypeAlias = SolveResult | tuple[npt.ArrayLike, npt.ArrayLike]

# run(alpha, start, max_iter, progress) fills the progress.
Run: TypeAlias = "Callable[[float, Start, int, Progress], None]"


class Solver(Protocol):
    """What `Newton`, `Direct`, `LBFGS` and `Adam` are."""

    @property
    def name(self) -> str: ...

    @property
    def default_max_iter(self) -> int: ...

    @property
    def advice(self) -> str: ...

    def check(self, loss: "Loss") -> None:
        """Check that the loss is one that it can do."""

    def begin(self, sample: "Sample") -> Run:
        """Begin a run over alphas."""


class Progress:
    """The best model and the best bound so far, and the history.

    The lowest objective and the highest dual value need not come from the same
    iterate: both hold for good.
    """

    def __init__(
        self, sample: "Sample", alpha: float, tol: float, verbose: int = 0
    ) -> None:
        self.sample = sample
        self.problem = sample.problem
        self.alpha = alpha
        self.tol = tol
        self.verbose = verbose
        self.history: list[Iteration] = []
        self.n_iter = 0
        self.best = np.inf
        self.gap = np.inf
        self._bound = -np.inf
        self._final: Certificate | None = None
        self._began = time.perf_counter()
        self._paused = 0.0

    def add(
        self,
        theta: Array,
        intercept: Array,
        certificate: Certificate,
        n_active: int = 0,
        mu: float = 0.0,
        anew: bool = False,
    ) -> bool:
        """Take in the model that the sample is at; returns whether it suffices.

        `anew`: its residuals and the certificate were computed from scratch.
        """
        value, gap = certificate.objective, certificate.gap
        self._final = certificate if anew else None
        # a number takes the place of NaN
        if value < self.best or not self.best < np.inf:
            self.best = value
            self.theta, self.intercept = theta.copy(), intercept.copy()
        else:
            self._final = None
        if value - gap >= self._bound or not self._bound > -np.inf:
            self._bound = value - gap
            self.sample.keep_zeta()
        else:
            self._final = None
        # the difference of two large numbers loses digits, the gap itself none
        self.gap = min(self.gap, gap, max(self.best - self._bound, 0.0))
        seconds = time.perf_counter() - self._began - self._paused
        line = Iteration(
            self.n_iter,
            float(value),
            self.relative_gap,
            seconds,
            n_active,
            float(mu),
        )
        self.history.append(line)
        if self.verbose:
            print(
                f"{self.n_iter:5d}  objective {value:.9e}  gap {line.dual_gap:.2e}  "
                f"active {n_active}  mu {mu:.1e}  {seconds:.3f} s",
                file=sys.stderr,
            )
        return self.relative_gap <= SAFETY * self.tol

    def would_suffice(self, certificate: Certificate) -> bool:
        """Tell what `add` would return."""
        value, gap = certificate.objective, certificate.gap
        best, bound = min(self.best, value), max(self._bound, value - gap)
        gap = min(self.gap, gap, max(best - bound, 0.0))
        return self.problem.relative(gap, best) <= SAFETY * self.tol

    def pause(self) -> None:
        """Stop the clock: certificates that an algorithm does not need."""
        self._paused -= time.perf_counter()

    def resume(self) -> None:
        self._paused += time.perf_counter()

    @property
    def relative_gap(self) -> float:
        return float(self.problem.relative(self.gap, self.best))

    def result(self, solver: Solver) -> SolveResult:
        """Make the result.

        The best model and the best ζ are certified from scratch, unless they just
        were, and what rounding may hide is added to the gap.
        """
        sample, problem, alpha = self.sample, self.problem, self.alpha
        certificate = self._final
        if certificate is None:
            sample.place(self.theta, self.intercept)
            sample.recall_zeta()
            certificate = sample.certify(self.theta, alpha)
        model = make_model(problem, self.theta, self.intercept)
        rounding = bound_rounding(sample, alpha, model, certificate)
        rounded = self._would_matter(rounding, certificate)
        if rounded:
            sample.place_exactly(model.coef, inner_intercept(problem, model))
            certificate = sample.certify(self.theta, alpha)
            rounding = bound_rounding(sample, alpha, model, certificate, exact=True)
        self.best = certificate.objective
        self.gap = certificate.gap + rounding
        coef, dual = model.coef, sample.zeta_of_outputs()
        intercept: Array | float = model.intercept
        if problem.outputs.d == 1:
            coef, dual = coef[:, 0], dual[:, 0]
            intercept = float(model.intercept[0])
        return SolveResult(
            coef=coef,
            intercept=intercept,
            objective=float(self.best),
            null_objective=float(problem.null_objective),
            dual_gap=self.relative_gap,
            dual=dual,
            converged=self.relative_gap <= self.tol,
            n_iter=self.n_iter,
            history=self.history,
            alpha=alpha,
            tol=self.tol,
            solver=solver.name,
            output_matrix=problem.outputs.matrix,
            advice=self._advise(solver, rounded or rounding > certificate.gap),
        )

    def _advise(self, solver: Solver, rounded: bool) -> str:
        """Say what might help if the tolerance is not reached."""
        if not rounded:
            return solver.advice
        return STORED if self.problem.features.row_rounding > 0 else ROUNDED

    def _would_matter(self, rounding: float, certificate: Certificate) -> bool:
        """Tell whether the tolerance is reached but for the bound on rounding."""
        gaps = certificate.gap, certificate.gap + rounding
        below, above = (
            self.problem.relative(gap, certificate.objective) for gap in gaps
        )
        return below <= self.tol < above


def warn_if_not_converged(result: SolveResult) -> None:
    if not result.converged:
        warnings.warn(
            f"{result.solver} stopped after {result.n_iter} iterations with a "
            f"certified relative gap of {result.dual_gap:.2e}, above "
            f"tol={result.tol:.2g} (alpha={result.alpha:g}); {result.advice}",
            ConvergenceWarning,
            stacklevel=levels_to_the_caller(),
        )


def merge(results: Sequence[SolveResult]) -> SolveResult:
    """Make one result of several outputs from those of each output by itself."""
    worst = max(results, key=lambda result: result.dual_gap)
    nulls = [result.null_objective for result in results]
    objective, dual_gap = _sum_gaps(results, nulls)
    return SolveResult(
        coef=np.column_stack([result.coef for result in results]),
        intercept=np.array([result.intercept for result in results]),
        objective=objective,
        null_objective=sum(nulls),
        dual_gap=dual_gap,
        dual=np.column_stack([result.dual for result in results]),
        converged=dual_gap <= worst.tol,
        n_iter=sum(result.n_iter for result in results),
        history=_merge_histories([result.history for result in results], nulls),
        alpha=worst.alpha,
        tol=worst.tol,
        solver=worst.solver,
        output_matrix=None,
        advice=worst.advice,
    )


def _merge_histories(
    histories: list[list[Iteration]], nulls: list[float]
) -> list[Iteration]:
    """Join them in turn; until then an output is where it began, gap included."""
    current = [history[0] for history in histories]
    n_iter, seconds, merged = 0, 0.0, []
    for j, history in enumerate(histories):
        for line in history:
            current[j] = line
            objective, dual_gap = _sum_gaps(current, nulls)
            merged.append(
                line._replace(
                    n_iter=n_iter + line.n_iter,
                    objective=objective,
                    dual_gap=dual_gap,
                    seconds=seconds + line.seconds,
                )
            )
        n_iter, seconds = n_iter + history[-1].n_iter, seconds + history[-1].seconds
    return merged


def _sum_gaps(parts: Sequence[HasGap], nulls: list[float]) -> tuple[float, float]:
    """Add up objectives with their relative gaps: (objective, relative gap)."""
    pairs = zip(parts, nulls, strict=True)
    gap = sum(part.dual_gap * gap_scale(part.objective, null) for part, null in pairs)
    objective = sum(part.objective for part in parts)
    return objective, relative_gap(gap, gap_scale(objective, sum(nulls)))


def out_of_directions(
    result: SolveResult,
    outputs: "Outputs",
    means: tuple[Array, Array],
    rest: Array,
    losses: Sequence[float],
    largest: Array,
) -> SolveResult:
    """Make the result of all outputs from that of directions, of the squared loss.

    Parameters
    ----------
    means : tuple of arrays of shape (d,)
        That of the targets, if there is an intercept, and what rounding left of it in
        the rest.
    rest : array of shape (d, n)
        What is left in all other directions: its own ζ, but for the sign.
    losses : tuple of float
        Of the rest, the same in primal and dual, and of all targets around their mean.
    largest : array of shape (r,)
        The largest |z| of each feature.
    """
    k, (constant, whole) = outputs.k, losses
    assert outputs.vectors is not None  # there are directions
    V = outputs.vectors[:, :k]
    coef = result.coef.reshape(-1, k) @ V.T
    mean, offset = means
    rotated = V @ np.reshape(result.intercept, k) + offset
    nulls = [result.null_objective, constant]
    hidden = bound_rotation(outputs, coef, rotated, mean, largest, result, whole)

    def moved(part: HasGap) -> tuple[float, float]:
        return _sum_gaps([part, Part(constant, 0.0)], nulls)

    history = []
    for line in result.history:
        objective, dual_gap = moved(line)
        history.append(line._replace(objective=objective, dual_gap=dual_gap))
    objective, _ = moved(result)
    gap = result.dual_gap * gap_scale(result.objective, result.null_objective) + hidden
    dual_gap = relative_gap(gap, gap_scale(objective, sum(nulls)))
    return replace(
        result,
        coef=coef,
        intercept=rotated + mean,
        objective=objective,
        null_objective=sum(nulls),
        dual_gap=dual_gap,
        dual=(V @ result.dual.reshape(-1, k).T - rest).T,
        converged=dual_gap <= result.tol,
        history=history,
        output_matrix=outputs.matrix,
    )


def certify_model(
    sample: "Sample", alpha: float, theta: Array, intercept: Array, progress: Progress
) -> bool:
    """Take in a model of which no ζ is known; returns whether it suffices.

    The clock stands still.
    """
    progress.pause()
    mu = best_envelope(sample, alpha, theta, intercept)[0]
    sample.place(theta, intercept)
    change, n_active, certificate = _certify(sample, alpha, theta, mu)
    progress.resume()
    return progress.add(theta, intercept + change, certificate, n_active, mu)


def best_envelope(
    sample: "Sample", alpha: float, theta: Array, intercept: Array
) -> tuple[float, float]:
    """Find (mu, gap) of the envelope of the least gap.

    A loss that is smooth enough is taken as it is.
    """
    first_mu = sample.problem.first_mu
    widths = first_mu * ENVELOPE_WIDTHS if first_mu > 0 else (0.0,)
    sample.place(theta, intercept)
    best, least = widths[0], np.inf
    for mu in widths:
        gap = _certify(sample, alpha, theta, mu)[2].gap
        if gap < least:
            best, least = mu, gap
        elif gap > TOO_NARROW * least:
            break
    return best, least


def _certify(
    sample: "Sample", alpha: float, theta: Array, mu: float
) -> tuple[Array | float, int, Certificate]:
    """Find (change of b, n_active, certificate) of Θ where b balances an envelope.

    From where the sample is.
    """
    change = sample.balance(mu) if sample.problem.fit_intercept else 0.0
    n_active = sample.differentiate(mu).sum()
    return change, int(n_active), sample.certify(theta, alpha)
