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

import numpy as np

from pskernels._products import RunningSum
from pskernels._validation import check_option
from pskernels.losses import EPS
from pskernels.objective import find_root, squared_norm
from pskernels.solvers.base import SAFETY, best_envelope
from pskernels.solvers.hessian import (
    add_penalty,
    conjugate_gradients,
    direction_preconditioner,
    factorise,
    hessian_product,
    mean_curvature,
    norm_hessian,
    signed_gram,
    solve_factorised,
    sum_hessian,
)

MU_DECREASE = 2.0
# A stage ends when the gradient's part of the gap is this many times that of the
# envelope: solving it further would not show.
STAGE_TOLERANCE = 2.0
MAX_STAGE_STEPS = 300
# The width of the first envelope of a warm start, by its gap.
WARM = 5.0
# Below this share of its first value, mu is lost in rounding.
MU_FLOOR = 1e-13

# The slope at the end of a search, and how far behind the minimum that may be; both
# are shares, of the slope at its start and of its length.
LINE_SEARCH = 0.01
OVERSHOOT = 0.1

# What directions of the outputs that are not in use may have of the gap to be reached.
DIRECTIONS = 0.25
# Directions whose eigenvalue is this share of the largest are in use from the start.
LEADING = 0.01

# Rounding errors of residuals may reach this share of the gap to be certified.
DRIFT = 1e-3

# Conjugate gradients: the residual falls to this share of the gradient.  Steps of
# several outputs take so many iterations that fewer of them pay.
CG_TOLERANCE = 0.05
CG_TOLERANCE_OF_OUTPUTS = 0.3

# Rows of the subsample for each feature, and a first guess of the iterations: low,
# so that CG is tried, and what it took is known from then on.
SUBSAMPLE = 2
CG_GUESS = 9
# A multiplication in a pass over Z waits for memory, one in a Gram matrix does not:
# 5 to 6 times as long, measured for r from 800 to 1,000 and n from 10,000 to 100,000.
# A Cholesky factorisation, by one thread, is worth so many of them, times r³.  And
# steps that are not exact are more.
PASS_COST = 6.0
PASS_COST_OF_OUTPUTS = 1.5  # they share what is read
CHOLESKY_COST = 0.6
EXTRA_STEPS = 2.0


@dataclass(frozen=True)
class Newton:
    """Smoothing Newton with multipliers, for every loss.

    Parameters
    ----------
    hessian : {"auto", "direct", "cg"}
        How a step is computed: from the Hessian of all active points, or by
        preconditioned conjugate gradients.  "auto" takes what a cost model finds
        cheaper.
    """

    hessian: str = "auto"

    name = "newton"
    default_max_iter = 1000
    advice = "raise max_iter, tol or alpha"

    def __post_init__(self):
        check_option(self.hessian, "hessian", ("auto", "direct", "cg"))

    def check(self, loss):
        pass

    def run(self, objective, start, max_iter, progress):
        state = _State(objective, start)
        direction = _Direction(objective, self.hessian)
        stage_steps = 0
        while True:
            certificate = state.evaluate()
            if progress.would_suffice(certificate) and not state.exact:
                state.compute_anew()
                certificate = state.evaluate()
            enough = progress.add(
                state.theta,
                state.intercept,
                state.zeta,
                certificate,
                int(state.n_active.sum()),
                state.mu,
                exact_e=state.e if state.exact else None,
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
                moved = state.move(gradient, direction(state, gradient))
                progress.n_iter += 1
                stage_steps += 1
                state.stop_drift(DRIFT * progress.tol * certificate.objective)
            if not moved:
                stage_steps = 0
                if not state.next_stage():
                    break


class _State:
    """An iterate: Θ, b, residuals e, derivatives ζ, and the stage it is in."""

    def __init__(self, objective, start):
        self.objective = objective
        self.points = objective.points
        self.theta = start.theta.copy()
        self.intercept = start.intercept.copy()
        self.e = objective.residuals(self.theta, self.intercept)
        self.zeta = np.empty_like(self.e)
        self.curvature = self.points.make_curvature()
        self.step = np.empty_like(self.e)
        self.shift = None  # the multipliers ζ_k
        self.smallest = MU_FLOOR * objective.first_mu
        self.mu = objective.first_mu
        if start.warm and self.mu > 0:
            # an envelope may cost as much as the start is away from the optimum
            certificate = best_envelope(objective, self.theta, self.intercept)[1]
            width = WARM * certificate.gap / objective.zeta_scale**2
            self.mu = min(self.mu, max(width, self.smallest))
        values = objective.outputs.values
        # directions of the outputs that steps have
        self.k_used = np.count_nonzero(values >= LEADING * values[0])
        self.drift = 0.0  # bound on the rounding error of e
        self.exact = True  # nothing is summed up
        self.balanced_by = np.zeros_like(self.intercept)
        self.sum_flow = objective.shared.setdefault("flow", RunningSum(objective.pull))

    def next_stage(self):
        """Halve the radius of the envelope; False if nothing is left to halve."""
        if self.mu == 0 or self.mu < self.smallest:
            return False
        if self.shift is None:
            self.shift = np.empty_like(self.zeta)
        np.copyto(self.shift, self.zeta)
        radius = self.points.loss.radius
        self.mu = max((self.mu + radius) / MU_DECREASE - radius, 0.0)
        return True

    def evaluate(self):
        """ζ and curvatures at Θ, with the best b for it; the certificate."""
        if self.objective.fit_intercept:
            self.balanced_by = self.objective.balance(self.e, self.shift, self.mu)
            self._move_intercept(self.balanced_by)
        self._differentiate()
        sum_flow = None if self.exact else self.sum_flow
        return self.objective.certify(self.theta, self.e, self.zeta, sum_flow)

    def gradient(self, certificate):
        """That of the envelope in Θ, and in b if there is an intercept.

        The best b for a given Θ may leave no point active.  Then nothing tells a
        step in Θ how b will follow, and the two would take turns in ever smaller
        steps; so b goes back to where it was.
        """
        gradient = certificate.gradient
        if not self.objective.fit_intercept:
            return gradient.reshape(-1)
        total = np.zeros_like(self.intercept)
        lost = (self.n_active == 0) & (self.balanced_by != 0)
        if lost.any():
            self._move_intercept(np.where(lost, -self.balanced_by, 0.0))
            self._differentiate()
            flow, total, _ = self.points.flow(self.zeta)
            gradient = self.objective.pull(flow) + self.objective.alpha * self.theta
        return np.append(gradient.reshape(-1), total)

    def use_directions(self, certificate, tol):
        """Take in more directions of the outputs, if the rest is too much of the gap.

        Those of small eigenvalues of M add so little that most are never needed, and a
        Hessian costs the cube of their number.
        """
        parts = np.einsum("ar,ar->a", certificate.gradient, certificate.gradient)
        rest = parts.sum() - np.cumsum(parts)
        goal = max(
            STAGE_TOLERANCE * certificate.excess, SAFETY * tol * certificate.objective
        )
        enough = rest <= DIRECTIONS * goal * 2 * self.objective.alpha
        self.k_used = max(self.k_used, 1 + int(np.argmax(enough)))

    def _move_intercept(self, change):
        if change.any():
            self.intercept += change
            self.e += self.points.sign * change[:, None]

    def _differentiate(self):
        self.n_active = self.points.smooth_derivatives(
            self.e, self.shift, self.mu, self.zeta, self.curvature
        )

    def move(self, gradient, whole_step):
        """Search along a step of Θ and b; False if it goes nowhere."""
        alpha = self.objective.alpha
        initial = gradient @ whole_step
        if not initial < 0:
            return False
        n_coef = self.theta.size
        theta_step = whole_step[:n_coef].reshape(self.theta.shape)
        intercept_step = np.zeros_like(self.intercept)
        if self.objective.fit_intercept:
            intercept_step = whole_step[n_coef:]
        step = self.objective.steps(theta_step, intercept_step, self.step)
        linear = alpha * (self.theta.reshape(-1) @ whole_step[:n_coef])
        quadratic = alpha * squared_norm(theta_step)

        def derivatives(t):
            slope, curvature = self.points.slope(self.e, step, self.shift, self.mu, t)
            return slope + linear + t * quadratic, curvature + quadratic

        def accept(t, slope, curvature):
            # A small positive slope may lie far behind the minimum, where nothing
            # but the penalty bends.
            near = slope <= 0 or slope <= OVERSHOOT * t * curvature
            return near and abs(slope) <= LINE_SEARCH * -initial

        t = find_root(derivatives, start=1.0, width=1.0, accept=accept, low=0.0)
        self.theta += t * theta_step
        self.intercept += t * intercept_step
        self.e += t * step
        self.drift += EPS * abs(t) * max(step.max(), -step.min())
        self.exact = False
        return t != 0

    def stop_drift(self, tolerance):
        """Compute residuals anew if rounding of long steps may have added up."""
        if self.objective.zeta_scale * self.drift > tolerance:
            self.objective.residuals(self.theta, self.intercept, out=self.e)
            self.drift = 0.0

    def compute_anew(self):
        """Residuals and sums from Θ and b themselves."""
        self.objective.residuals(self.theta, self.intercept, out=self.e)
        self.drift = 0.0
        self.exact = True


class _Direction:
    """Newton's direction -H⁻¹·gradient, b included, directly or by CG."""

    def __init__(self, objective, hessian):
        self.objective = objective
        self.hessian = hessian
        self.n_cg = CG_GUESS
        self._rank = None
        self._grams = objective.shared.setdefault(
            "grams",
            [
                RunningSum(
                    lambda weight: signed_gram(
                        objective.features, weight, objective.fit_intercept
                    )
                )
                for _ in objective.points.losses
            ],
        )

    def __call__(self, state, gradient):
        """The step in the directions of the outputs that are in use, 0 in others."""
        objective = self.objective.in_directions(state.k_used)
        n_coef = state.k_used * objective.features.r
        used = np.r_[:n_coef, state.theta.size : len(gradient)]
        step = np.zeros_like(gradient)
        step[used] = -self._solve(objective, state, gradient[used], n_coef)
        return step

    def _solve(self, objective, state, gradient, n_coef):
        """H⁻¹·gradient, in the directions of the outputs that an objective has."""
        if not state.n_active.any():  # nothing but the penalty; b is free
            solution = gradient.copy()
            solution[:n_coef] /= objective.alpha
            return solution
        weight, scale = self._weights(state)
        if self._by_cg(objective, weight, state):
            return self._conjugate_gradients(objective, state, gradient)
        if objective.points.radial:
            H = norm_hessian(objective, state.zeta, state.curvature)
        else:
            pairs = zip(self._grams, weight, strict=True)
            H = sum_hessian(objective, [gram(h) for gram, h in pairs])
            H *= scale
        return solve_factorised(
            factorise(add_penalty(H, n_coef, objective.alpha)), gradient
        )

    def _weights(self, state):
        """(weight of every point, scale): their product is the curvature.

        That of a piecewise loss is 1/radius, or 0.  The radius is taken out, since
        stages change it for every point and the steps of a stage for none.
        """
        points = self.objective.points
        if points.loss.logistic or points.radial:
            return state.curvature.copy(), 1.0
        radius = points.loss.radius + state.mu
        return np.where(state.curvature > 0, points.weight, 0.0), 1 / radius

    def _by_cg(self, objective, weight, state):
        """Whether CG is cheaper: multiplications, each divided by r."""
        n_active = int(state.n_active.sum())
        if self.hessian != "auto":
            return self.hessian == "cg"
        points = objective.points
        r, k = objective.features.r, objective.outputs.k
        if points.radial:
            direct = n_active * (k * k + k) * r / 2
        else:
            pairs = zip(self._grams, weight, strict=True)
            direct = sum(gram.n_to_add(h) for gram, h in pairs) * r / 2
        # beyond one factorisation of r³, which both need
        direct += CHOLESKY_COST * (k**3 - 1) * r * r
        if objective.outputs.d == 1:
            cg = (SUBSAMPLE / 2 + CHOLESKY_COST) * r * r
            cg += self.n_cg * 2 * n_active * PASS_COST
        else:
            n = objective.features.n
            cg = n * r / 2 + CHOLESKY_COST * k * r * r
            cg += self.n_cg * 2 * n * k * PASS_COST_OF_OUTPUTS
        return EXTRA_STEPS * cg < direct

    def _conjugate_gradients(self, objective, state, gradient):
        """H⁻¹·gradient; for one output, the preconditioner is from a subsample."""
        h = mean_curvature(objective, state.zeta, state.curvature)
        tolerance = CG_TOLERANCE_OF_OUTPUTS
        if objective.outputs.d == 1:
            h = self._subsample(h)
            tolerance = CG_TOLERANCE
        solution, self.n_cg = conjugate_gradients(
            hessian_product(objective, state.zeta, state.curvature),
            direction_preconditioner(objective, h),
            gradient,
            tolerance,
        )
        return solution

    def _subsample(self, h):
        """h of some points, for all of them: 0 elsewhere."""
        if self._rank is None:
            self._rank = np.random.default_rng(0).random(len(h))
        active = np.flatnonzero(h)
        share = min(1.0, SUBSAMPLE * self.objective.features.r / len(active))
        rows = active[self._rank[active] <= share]
        some = np.zeros_like(h)
        some[rows] = h[rows] * (len(active) / max(len(rows), 1))
        return some
