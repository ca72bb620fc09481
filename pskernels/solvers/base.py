"""What all solvers share: results, the record of iterations, the best so far."""

import sys
import time
import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

# Solvers stop a little below the tolerance, since the last certificate is computed
# anew, with what rounding may hide.
SAFETY = 0.9

# Of the first envelope that Newton's method would take.
ENVELOPE_WIDTHS = 0.25 ** np.arange(8)


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
    coef : ndarray of shape (r,)
    intercept : float
    objective : float
        Σ weight·ℓ / Σ weight + (alpha/2)·‖coef‖².
    dual_gap : float
        Certified: the objective is at most this much, relative to itself, above
        the optimum.  (Relative to 1e-9 of the objective of a constant model, where
        that is larger: data that are interpolated.)
    dual : ndarray of shape (n,)
        The ζ that certifies it, one for each point.
    converged : bool
        Whether dual_gap ≤ tol.
    n_iter : int
        Newton steps, iterations of L-BFGS, or epochs.
    history : list of Iteration
        (The model is the one of the lowest objective, which need not be the last.)
        n_iter, objective, dual_gap, seconds, n_active and mu, after each of them and
        wherever Newton's method narrows the envelope.
    alpha, tol : float
    solver : str
    """

    coef: np.ndarray = field(repr=False)
    intercept: float
    objective: float
    dual_gap: float
    dual: np.ndarray = field(repr=False)
    converged: bool
    n_iter: int
    history: list = field(repr=False)
    alpha: float
    tol: float
    solver: str


class Start(NamedTuple):
    """Where a solver begins."""

    coef: np.ndarray
    intercept: float
    zeta: np.ndarray | None = None  # a guess, in the frame of the residuals
    warm: bool = False


class Progress:
    """The best model and the best bound so far, and the history.

    The lowest objective and the highest dual value need not come from the same
    iterate: both hold for good.
    """

    def __init__(self, objective, tol, verbose=0):
        self.objective = objective
        self.tol = tol
        self.verbose = verbose
        self.history = []
        self.n_iter = 0
        self.best = np.inf
        self.gap = np.inf
        self._bound = -np.inf
        self._began = time.perf_counter()
        self._paused = 0.0

    def add(self, coef, intercept, zeta, certificate, n_active=0, mu=0.0):
        """Take in an iterate with its certificate; returns whether it suffices."""
        value, gap = certificate.objective, certificate.gap
        if value < self.best or not self.history:
            self.best = value
            self.coef, self.intercept = coef.copy(), float(intercept)
        if value - gap >= self._bound:
            self._bound = value - gap
            self.dual = zeta.copy()
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

    def would_suffice(self, certificate):
        """What `add` would return."""
        value, gap = certificate.objective, certificate.gap
        best, bound = min(self.best, value), max(self._bound, value - gap)
        gap = min(self.gap, gap, max(best - bound, 0.0))
        return self.objective.relative(gap, best) <= SAFETY * self.tol

    def pause(self):
        """Stop the clock: certificates that an algorithm does not need."""
        self._paused -= time.perf_counter()

    def resume(self):
        self._paused += time.perf_counter()

    @property
    def relative_gap(self):
        return float(self.objective.relative(self.gap, self.best))

    def result(self, solver):
        """The result; warns if it is not certified.

        The best model and the best ζ are certified once more, from scratch, and what
        rounding may hide is added to the gap.
        """
        objective = self.objective
        e = objective.residuals(self.coef, self.intercept)
        certificate = objective.certify(self.coef, e, self.dual)
        rounding = objective.rounding(e)
        self.best = certificate.objective
        self.gap = certificate.gap + rounding
        converged = self.relative_gap <= self.tol
        if not converged:
            advice = solver.advice
            if rounding > certificate.gap:
                advice = "rounding hides more: y is far from 0, or interpolated"
            warnings.warn(
                f"{solver.name} stopped after {self.n_iter} iterations with a "
                f"certified relative gap of {self.relative_gap:.1e}, above "
                f"tol={self.tol:.1e} (alpha={objective.alpha:g}); {advice}",
                ConvergenceWarning,
                stacklevel=4,
            )
        return SolveResult(
            coef=self.coef,
            intercept=self.intercept + objective.shift,
            objective=float(self.best),
            dual_gap=self.relative_gap,
            dual=objective.points.sign * self.dual,
            converged=converged,
            n_iter=self.n_iter,
            history=self.history,
            alpha=objective.alpha,
            tol=self.tol,
            solver=solver.name,
        )


def certify_model(objective, coef, intercept, progress):
    """Take in a model of which no ζ is known; returns whether it suffices.

    The clock stands still.
    """
    progress.pause()
    (intercept, zeta, n_active), certificate, mu = best_envelope(
        objective, coef, intercept
    )
    progress.resume()
    return progress.add(coef, intercept, zeta, certificate, n_active, mu)


def best_envelope(objective, coef, intercept):
    """((b, ζ, n_active), certificate, mu), from the envelope of the least gap.

    A loss that is smooth enough is taken as it is.
    """
    widths = (0.0,)
    if objective.first_mu > 0:
        widths = objective.first_mu * ENVELOPE_WIDTHS
    candidates = [_certify_envelope(objective, coef, intercept, mu) for mu in widths]
    return min(candidates, key=lambda candidate: candidate[1].gap)


def _certify_envelope(objective, coef, intercept, mu):
    points = objective.points
    e = objective.residuals(coef, intercept)
    if objective.fit_intercept:
        change = objective.balance(e, None, mu)
        intercept += change
        e += change * points.sign
    zeta, curvature = np.empty_like(e), np.empty_like(e)
    n_active = points.smooth_derivatives(e, None, mu, zeta, curvature)
    certificate = objective.certify(coef, e, zeta)
    return (intercept, zeta, n_active), certificate, mu
