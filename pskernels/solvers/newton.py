"""Smoothing Newton with multipliers: every loss, to a certificate.

Stage k minimises Σ ω ℓ_mu(e + mu·ζ_k) + (alpha/2)‖Θ‖² by Newton steps, where ℓ_mu
is the Moreau envelope of width mu.  Its derivatives ζ at the solution are the
multipliers ζ_{k+1} of the next stage, and mu is halved: the method of multipliers
for the constraint e = residuals(Θ, b).  Without multipliers (ζ_k = 0, plain
smoothing) the gap falls like mu, and Newton has to follow with ever fewer and
stiffer active points; with them it falls like mu·|ζ_{k+1} - ζ_k|.

A Newton step sees active points only, those where ℓ_mu has a curvature.  The line
search is exact, up to a hundredth of the initial slope, on residuals alone.
"""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pskernels._products import EPS
from pskernels._roots import find_root
from pskernels._types import Array
from pskernels._validation import check_option
from pskernels.features import EXACT_ENOUGH
from pskernels.losses import Huber, Loss, Squared
from pskernels.objective import Certificate, squared_norm
from pskernels.solvers.base import SAFETY, best_envelope
from pskernels.solvers.hessian import (
    Operator,
    add_penalty,
    changed_solve,
    conjugate_gradients,
    direction_preconditioner,
    factorise,
    hessian_product,
    solve_factorised,
    solve_inner,
    squared_gradient,
    sum_hessian,
)

if TYPE_CHECKING:
    from pskernels.features import AnyFeatures
    from pskernels.outputs import Outputs
    from pskernels.sample import Sample
    from pskernels.solvers.base import Progress, Run, Start

# What a stage divides the radius of the envelope by; compared with 1.5, 3 and 4
# (src/NOTES.md): `python bench/solvers.py certificates` prints the steps.
MU_DECREASE = 2.0
# A stage ends when the gradient's part of the gap is this many times that of the
# envelope: solving it further would not show.  Or after so many steps.
STAGE_TOLERANCE = 2.0
MAX_STAGE_STEPS = 300
# The width of the first envelope of a warm start, by its gap: along paths 1 takes as
# many steps as 5, within 6 %, and 0.2 up to a quarter more; narrow ones have fewer
# active points at first (`python bench/estimators.py large_losses`).
WARM = 1.0
# Below this share of its first value, mu is lost in rounding.
MU_FLOOR = 1e-13

# The slope at the end of a search, and how far behind the minimum that may be; both
# are shares, of the slope at its start and of its length;
# `python bench/solvers.py search` prints the time of searches.
LINE_SEARCH = 0.01
OVERSHOOT = 0.1

# What directions of the outputs that are not in use may have of the gap to be reached.
DIRECTIONS = 0.25
# Directions whose eigenvalue is this share of the largest are in use from the start;
# `python bench/outputs.py levels` shows both.
LEADING = 0.01

# A move of b by this many times the size of residuals leaves them too few digits.
FAR = 1e3
# Rounding errors of residuals may reach this share of the gap to be certified.
DRIFT = 1e-3

# Conjugate gradients: the residual falls to this share of the gradient.  Steps of
# several outputs take so many iterations that fewer of them pay:
# `python bench/solvers.py large` and `python bench/outputs.py norm`.
CG_TOLERANCE = 0.05
CG_TOLERANCE_OF_OUTPUTS = 0.3
# A step of the squared loss ends at a gap of this share of tol, times the objective
# before it, which may be several times that behind it.
SMALL = 0.03
# Where a Hessian has lost digits (`EXACT_ENOUGH`), its factor is taken for a
# preconditioner, and the residual falls to so much;
# `python bench/estimators.py large_losses` has such fits.
REFINED = 1e-3

# Sums of points for each feature in a preconditioner (`Features.sketched_gram`), at
# most, and a first guess of the iterations: low, so that CG is tried, and what it took
# is known from then on; `python bench/solvers.py large` shows it.
MOST_SUMS_OF_STEPS = 4.0
CG_GUESS = 9
# The squared loss, whose only step goes to the end, takes some 30 / sums**0.56
# iterations (17, 14, 10 with 3, 4, 8 sums; r = 1,000, n = 32,000, normal points; 22 to
# 8 with 1.5 to 8 for r = 2,000; 11 to 6 for protein_casp): as many sums as balance
# these with the Gram matrix; `python bench/estimators.py large` has such fits.
ITERATIONS_OF_SQUARES = 30.0
POWER_OF_SUMS = 0.56
LEAST_SUMS, MOST_SUMS = 1.5, 10.0
# A multiplication in a pass over Z waits for memory, one in a Gram matrix does not:
# 4 to 6 times as long, measured for r from 400 to 2,000 at n = 32,000, and before rows
# were asked for ahead for r from 800 to 1,000 and n from 10,000 to 100,000.
# A Cholesky factorisation, by one thread, is worth so many of them, times r³.  And
# steps that are not exact are more.  `python bench/solvers.py large` compares the
# choice with Hessians alone.
PASS_COST = 5.0
PASS_COST_OF_OUTPUTS = 1.5  # they share what is read
CHOLESKY_COST = 0.6
SOLVE_COST = 40.0  # of a system with a factor, times r²: it waits for memory, too
EXTRA_STEPS = 2.0
# A preconditioner is made anew when it takes this many times the iterations that it
# took at first.
WORN = 1.5
# Points that may have changed, for each feature, since the Hessian was factorised: up
# to there the factor and what has changed serve as a Hessian (epsilon_insensitive,
# s = 1,000, n = 32,000: 71 factorisations became 23);
# `python bench/estimators.py large_losses` has such fits.
CHANGED = 0.25


@dataclass(frozen=True)
class Newton:
    """Smoothing Newton with multipliers, for every loss.

    Parameters
    ----------
    hessian : {"auto", "direct", "cg"}
        How a step is computed: from the Hessian of all active points, or an earlier one
        and the points that have changed; or by preconditioned conjugate gradients.
        "auto" takes what a cost model finds cheaper.
    """

    hessian: str = "auto"

    name = "newton"
    default_max_iter = 1000
    advice = "raise max_iter, tol or alpha"

    def __post_init__(self) -> None:
        check_option(self.hessian, "hessian", ("auto", "direct", "cg"))

    def check(self, loss: Loss) -> None:
        pass

    def begin(self, sample: "Sample") -> "Run":
        return partial(self._run, sample)

    def _run(
        self,
        sample: "Sample",
        alpha: float,
        start: "Start",
        max_iter: int,
        progress: "Progress",
    ) -> None:
        state = _State(sample, alpha, start)
        direction = _Direction(sample, alpha, self.hessian)
        stage_steps = 0
        while True:
            certificate = state.evaluate()
            if progress.would_suffice(certificate) and not state.exact:
                state.compute_anew()
                certificate = state.evaluate()
            enough = progress.add(
                state.theta,
                state.intercept,
                certificate,
                int(state.n_active.sum()),
                state.mu,
                anew=state.exact,
            )
            if enough or progress.n_iter >= max_iter:
                break
            optimality = certificate.gap - certificate.excess
            solved = optimality <= STAGE_TOLERANCE * certificate.excess
            state.use_directions(certificate, progress.tol)
            stuck = state.mu > 0 and stage_steps >= MAX_STAGE_STEPS
            moved = False
            if not solved and not stuck:
                gradient = state.gradient(certificate)
                state.look_far()
                direction.small = SMALL * progress.tol * certificate.objective
                moved = state.move(gradient, direction(state, gradient))
                progress.n_iter += 1
                stage_steps += 1
                state.stop_drift(DRIFT * progress.tol * certificate.objective)
            if not moved:
                stage_steps = 0
                if not state.next_stage():
                    break


class _State:
    """An iterate, Θ and b, and the stage it is in; what points have is the sample's."""

    drift: float  # bound on the rounding error of residuals
    exact: bool  # whether nothing is summed up

    def __init__(self, sample: "Sample", alpha: float, start: "Start") -> None:
        self.sample = sample
        self.problem = problem = sample.problem
        self.alpha = alpha
        self.theta = start.theta.copy()
        self.intercept = start.intercept.copy()
        sample.drop_multipliers()
        self.smallest = MU_FLOOR * problem.first_mu
        self.mu = problem.first_mu
        if start.warm and self.mu > 0:
            # an envelope may cost as much as the start is away from the optimum
            _, gap = best_envelope(sample, alpha, self.theta, self.intercept)
            width = WARM * gap / problem.zeta_scale**2
            self.mu = min(self.mu, max(width, self.smallest))
        values = problem.outputs.values
        # whether the first step, from a model without features, is still to come
        self.far = not start.warm and isinstance(problem.loss, Huber)
        # directions of the outputs that steps have
        self.k_used = int(np.count_nonzero(values >= LEADING * values[0]))
        self.balanced_by = np.zeros_like(self.intercept)
        self.compute_anew()

    def next_stage(self) -> bool:
        """Halve the radius of the envelope; False if nothing is left to halve."""
        if self.mu == 0 or self.mu < self.smallest:
            return False
        self.sample.hold_multipliers()
        radius = self.problem.loss.radius
        self.mu = max((self.mu + radius) / MU_DECREASE - radius, 0.0)
        return True

    def evaluate(self) -> Certificate:
        """Compute ζ and curvatures at Θ, with its best b; return the certificate."""
        if self.problem.fit_intercept:
            self.balanced_by = self.sample.balance(self.mu)
            self.intercept += self.balanced_by
            if np.abs(self.balanced_by).max() > FAR * self.problem.residual_scale:
                self.sample.place(self.theta, self.intercept)  # with all their digits
                self.intercept += self.sample.balance(self.mu)
        self.n_active = self.sample.differentiate(self.mu)
        return self.sample.certify(self.theta, self.alpha, anew=self.exact)

    def gradient(self, certificate: Certificate) -> Array:
        """Compute the gradient of the envelope in Θ, and in b if there is an intercept.

        The best b for a given Θ may leave no point active.  Then nothing tells a
        step in Θ how b will follow, and the two would take turns in ever smaller
        steps; so b goes back to where it was.
        """
        gradient = certificate.gradient
        if not self.problem.fit_intercept:
            return gradient.reshape(-1)
        total = np.zeros_like(self.intercept)
        lost = (self.n_active == 0) & (self.balanced_by != 0)
        if lost.any():
            back = np.where(lost, -self.balanced_by, 0.0)
            self.intercept += back
            self.sample.move_intercept(back)
            self.n_active = self.sample.differentiate(self.mu)
            gradient, total = self.sample.gradient(self.theta, self.alpha)
        return np.append(gradient.reshape(-1), total)

    def look_far(self) -> None:
        """Let the first step see that points beyond kappa may come back.

        Where most points are on the parabola, all are likely to be in the end, and a
        step that knows of these alone goes too far (pilots of n = 32,000: 3 steps in
        place of 5, 2 of 6).
        """
        n = self.problem.features.n
        if self.far and self.mu == 0 and 2 * self.sample.n_on_parabola() > n:
            self.n_active = self.sample.take_chords()
        self.far = False

    def use_directions(self, certificate: Certificate, tol: float) -> None:
        """Take in more directions of the outputs, if the rest is too much of the gap.

        Those of small eigenvalues of M add so little that most are never needed, and a
        Hessian costs the cube of their number.
        """
        parts = np.einsum("ar,ar->a", certificate.gradient, certificate.gradient)
        rest = parts.sum() - np.cumsum(parts)
        goal = max(
            STAGE_TOLERANCE * certificate.excess, SAFETY * tol * certificate.objective
        )
        enough = rest <= DIRECTIONS * goal * 2 * self.alpha
        self.k_used = max(self.k_used, 1 + int(np.argmax(enough)))

    def move(self, gradient: Array, whole_step: Array) -> bool:
        """Search along a step of Θ and b; False if it goes nowhere."""
        initial: Any = gradient @ whole_step
        if not initial < 0:
            return False
        n_coef = self.theta.size
        theta_step = whole_step[:n_coef].reshape(self.theta.shape)
        intercept_step = np.zeros_like(self.intercept)
        if self.problem.fit_intercept:
            intercept_step = whole_step[n_coef:]
        largest = self.sample.set_step(theta_step, intercept_step)
        linear = self.alpha * (self.theta.reshape(-1) @ whole_step[:n_coef])
        quadratic = self.alpha * squared_norm(theta_step)

        def derivatives(t: float) -> tuple[float, float]:
            slope, curvature = self.sample.slope(self.mu, t)
            return slope + linear + t * quadratic, curvature + quadratic

        def accept(t: float, slope: float, curvature: float) -> bool:
            # A small positive slope may lie far behind the minimum, where nothing
            # but the penalty bends.
            near = slope <= 0 or slope <= OVERSHOOT * t * curvature
            return bool(near and abs(slope) <= LINE_SEARCH * -initial)

        t = find_root(derivatives, start=1.0, width=1.0, accept=accept, low=0.0)
        self.theta += t * theta_step
        self.intercept += t * intercept_step
        self.sample.advance(t)
        self.drift += EPS * abs(t) * largest
        self.exact = False
        return t != 0

    def stop_drift(self, tolerance: float) -> None:
        """Compute residuals anew if rounding of long steps may have added up."""
        if self.problem.zeta_scale * self.drift > tolerance:
            self.sample.place(self.theta, self.intercept)
            self.drift = 0.0

    def compute_anew(self) -> None:
        """Compute residuals and sums from Θ and b themselves."""
        self.sample.place(self.theta, self.intercept)
        self.drift = 0.0  # bound on the rounding error of residuals
        self.exact = True  # nothing is summed up


def _balanced_sums(features: "AnyFeatures") -> float:
    """Find the sums for each feature where their Gram matrix and CG cost least.

    CG to the end, as for the squared loss.
    """
    n, r = features.n, features.r
    iteration = 2 * n * PASS_COST + SOLVE_COST * r  # r times as many multiplications
    balance = 2 * POWER_OF_SUMS * ITERATIONS_OF_SQUARES * iteration / r**2
    found: float = balance ** (1 / (1 + POWER_OF_SUMS))
    return min(max(LEAST_SUMS, found), MOST_SUMS)


class _Direction:
    """Newton's direction -H⁻¹·gradient, b included, directly or by CG."""

    def __init__(self, sample: "Sample", alpha: float, hessian: str) -> None:
        self.sample = sample
        self.problem = sample.problem
        self.alpha = alpha
        self.hessian = hessian
        # a single step, to the end, with one preconditioner for all that may follow
        self.quadratic = isinstance(self.problem.loss, Squared)
        self.n_sums = _balanced_sums(self.problem.features)
        self.n_cg: float = ITERATIONS_OF_SQUARES / self.n_sums**POWER_OF_SUMS
        if not self.quadratic:
            self.n_sums, self.n_cg = min(self.n_sums, MOST_SUMS_OF_STEPS), CG_GUESS
        self.small = 0.0  # a gap that steps need not fall below
        # (directions, P⁻¹, the iterations that it took at first), or None
        self._kept: tuple[int, Operator, float | None] | None = None
        # of the last Hessian, with the mu of its envelope
        self._factor: tuple[Array, float] | None = None

    def __call__(self, state: _State, gradient: Array) -> Array:
        """Find the step in the directions of outputs that are in use, 0 in others."""
        outputs = self.problem.outputs.first(state.k_used)
        n_coef = state.k_used * self.problem.features.r
        used = np.r_[:n_coef, state.theta.size : len(gradient)]
        step = np.zeros_like(gradient)
        step[used] = -self._solve(outputs, state, gradient[used], n_coef)
        return step

    def _solve(
        self, outputs: "Outputs", state: _State, gradient: Array, n_coef: int
    ) -> Array:
        """Compute H⁻¹·gradient, in the directions of the outputs that are given."""
        problem = self.problem
        if not state.n_active.any():  # nothing but the penalty; b is free
            solution = gradient.copy()
            solution[:n_coef] /= self.alpha
            return solution
        n_active = int(state.n_active.sum())
        solve, exact = self._after_changes(outputs, state.mu, n_active), False
        if solve is None:
            if self._by_cg(outputs, n_active):
                by_cg = partial(self._conjugate_gradients, outputs, n_coef)
                return solve_inner(problem.features, by_cg, gradient, n_coef)
            exact = problem.features.rounding_of_gram(self.alpha) <= EXACT_ENOUGH
            factor = self._factorise(outputs, state.mu, n_coef)
            solve = partial(solve_factorised, factor)
        if not exact:
            solve = partial(self._refine, outputs, solve)
        return solve_inner(problem.features, solve, gradient, n_coef)

    def _refine(self, outputs: "Outputs", solve: Operator, gradient: Array) -> Array:
        """Compute H⁻¹·gradient where `solve` has lost digits."""
        product = hessian_product(self.sample, outputs, self.alpha)
        return conjugate_gradients(product, solve, gradient, REFINED)[0]

    def _factorise(self, outputs: "Outputs", mu: float, n_coef: int) -> Array:
        """Compute the factor of the Hessian, in the coordinates of `features.inner`."""
        problem, sample = self.problem, self.sample
        if problem.radial:
            H = sample.norm_hessian(outputs)
        else:
            H = sum_hessian(sample.grams(), outputs, problem.features.r)
            H *= self._curvature(mu)
        features = problem.features
        add_penalty(H, n_coef, self.alpha, features.penalty)
        factor = factorise(H, features.n_threads)
        self._factor = factor, mu
        return factor

    def _after_changes(
        self, outputs: "Outputs", mu: float, n_active: int
    ) -> Operator | None:
        """Make a function that solves by the last factor and what has changed, or None.

        Within a stage few points come or go, and with several outputs too many.
        """
        if self._factor is None or outputs.d > 1 or self.hessian == "cg":
            return None
        factor, mu_of_factor = self._factor
        r, n_threads = self.problem.features.r, self.problem.features.n_threads
        # a product with the Hessian, and two systems with a triangle
        cost = PASS_COST * (2 * n_active + 4 * r)
        if mu != mu_of_factor or cost > CHOLESKY_COST * r * r:
            return None
        changed = self.sample.changed_rows(int(CHANGED * r))
        if changed is None:
            return None
        rows, weights = changed
        if len(rows) == 0:
            return partial(solve_factorised, factor)
        return changed_solve(factor, rows, self._curvature(mu) * weights, n_threads)

    def _curvature(self, mu: float) -> float:
        """Return the curvature of a point for each unit of its weight in `grams`."""
        loss = self.problem.loss
        return 1.0 if loss.logistic else 1 / (loss.radius + mu)

    def _by_cg(self, outputs: "Outputs", n_active: int) -> bool:
        """Tell whether CG is cheaper: multiplications, each divided by r."""
        if self.hessian != "auto":
            return self.hessian == "cg"
        r, k = self.problem.features.r, outputs.k
        if self.problem.radial:
            direct = n_active * (k * k + k) * r / 2
        else:
            direct = self.sample.n_to_add() * r / 2
        # beyond one factorisation of r³, which both need
        direct += CHOLESKY_COST * (k**3 - 1) * r * r
        if outputs.d == 1:
            made = (self.n_sums / 2 + CHOLESKY_COST) * r * r
            cg = self.n_cg * 2 * n_active * PASS_COST
            made += n_active * PASS_COST  # sums of points
        else:
            n = self.problem.features.n
            made = n * r / 2 + CHOLESKY_COST * k * r * r
            cg = self.n_cg * 2 * n * k * PASS_COST_OF_OUTPUTS
        if not self.quadratic:
            cg *= EXTRA_STEPS
        if not self._keeps_one_of(outputs):  # which will serve several steps
            cg += made
        return cg < direct

    def _conjugate_gradients(
        self, outputs: "Outputs", n_coef: int, gradient: Array
    ) -> Array:
        """Compute H⁻¹·gradient; one output's preconditioner is from sums of points."""
        tolerance = CG_TOLERANCE if outputs.d == 1 else CG_TOLERANCE_OF_OUTPUTS
        if self.quadratic:
            tolerance = EPS
        if self._kept is None or not self._keeps_one_of(outputs):
            self._kept = outputs.k, self._make_preconditioner(outputs), None
        k, precondition, first = self._kept
        solution, self.n_cg = conjugate_gradients(
            hessian_product(self.sample, outputs, self.alpha),
            precondition,
            gradient,
            tolerance,
            partial(self._is_small, n_coef),
        )
        first = self.n_cg if first is None else first
        worn = not self.quadratic and self.n_cg > WORN * first
        self._kept = None if worn else (k, precondition, first)
        return solution

    def _is_small(self, n_coef: int, residual: Array, rho: float) -> bool:
        """Tell whether the gap that a residual leaves is as small as it need be."""
        most = 2 * self.alpha * self.small
        # alpha·P⁻¹ ≤ I, but for intercepts: what is large here is large below, where
        # it costs a product
        if self.alpha * rho > most:
            return False
        return squared_gradient(self.problem.features, residual, n_coef) <= most

    def _keeps_one_of(self, outputs: "Outputs") -> bool:
        """Tell whether there is a preconditioner for as many directions."""
        return self._kept is not None and self._kept[0] == outputs.k

    def _make_preconditioner(self, outputs: "Outputs") -> Operator:
        """Make P⁻¹, which serves until it is worn."""
        features = self.problem.features
        gram, rest = self.sample.mean_gram(
            int(self.n_sums * features.r) if outputs.d == 1 else None
        )
        return direction_preconditioner(gram, rest, outputs, self.alpha, features)
