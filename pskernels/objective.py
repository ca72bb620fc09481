"""The problem that solvers see: a linear machine on features, and its dual.

    P(Θ, b) = Σ_i ω_i ℓ(u_i, y_i) + (alpha/2)‖Θ‖²,   u_i = B Θ z_i + b,   Σ_i ω_i = 1
    D(ζ)    = -Σ_i ω_i ℓ_i*(ζ_i) - ‖G‖² / (2·alpha),   G = Bᵀ Σ_i ω_i ζ_i z_iᵀ

with d outputs u_i and ζ_i ∈ R^d, and B·Bᵀ = M (`outputs`); for one output B = 1.
D(ζ) ≤ P(Θ, b) for every ζ with finite conjugates and, where there is an intercept,
with Σ_i ω_i ζ_i = 0.  So P - D at any such ζ bounds how far Θ is from the optimum.
The difference is

    P - D = Σ_i ω_i (ℓ(u_i) + ℓ_i*(ζ_i) - u_iᵀζ_i) + ‖alpha·Θ + G‖² / (2·alpha),

two sums of terms that are not negative: no large numbers are subtracted.

Arrays: Θ is (k, r), b is (d,), and what points have is (d, n).
"""

import math
from typing import NamedTuple

import numpy as np

from pskernels._products import Features
from pskernels._threads import cached_property
from pskernels.losses import WeightedLoss
from pskernels.outputs import Outputs

# Σ ω ζ below this share of Σ ω |ζ| is rounding.
BALANCED = 1e-13
# Relative gaps are taken to the objective, or to this share of that of the best
# constant model where it is larger: data that are interpolated leave an objective
# that is lost in the rounding of the residuals.
OBJECTIVE_FLOOR = 1e-9

# A loss is smooth enough by itself if an envelope would not make its radius this
# many times larger.
SMOOTH_ENOUGH = 4.0

# Norms of smaller vectors are lost in their squares.
SMALLEST_SIZE = 1e-140

MAX_EVALUATIONS = 80
MAX_BALANCING = 30


class Certificate(NamedTuple):
    """An objective, and bounds on its distance to the optimum."""

    objective: float
    gap: float  # P - D = excess + the part of the gradient
    excess: float  # the part of the losses: 0 where ζ is a derivative of ℓ at u
    gradient: np.ndarray  # alpha·Θ + G


class Objective:
    """P(Θ, b) on given features and targets, with what Newton's method needs.

    Parameters
    ----------
    features : Features
    points : WeightedLoss
    outputs : Outputs
    alpha : float
    fit_intercept : bool

    Attributes
    ----------
    shift : array of shape (d,)
        What targets were moved by; b is relative to it.
    targets : array of shape (d, n)
        Those that were given, or, for classes, where residuals are 0.
    """

    def __init__(
        self,
        features: Features,
        points: WeightedLoss,
        outputs: Outputs,
        alpha,
        fit_intercept,
    ):
        self.features = features
        self.points = points
        self.outputs = outputs
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.null_intercept = np.zeros(outputs.d)
        self.shift = np.zeros(outputs.d)
        # a residual is u minus this, times ±1: y·u - margin = y·(u - margin·y)
        classes = points.loss.classification
        self.targets = points.loss.margin * points.y if classes else points.y
        if fit_intercept:
            self._find_null_intercept()
        e = self.null_residuals()
        with np.errstate(over="ignore", invalid="ignore"):
            self.null_objective = points.fenchel_young(e, e)[0]  # for any ζ
        if not np.isfinite(self.null_objective):
            raise ValueError("the losses of a constant overflow float64: scale y")
        if self._underflows(e):
            raise ValueError("the losses of a constant underflow to 0: scale y")
        self.shared = {}

    def _underflows(self, e):
        """Whether squares of the residuals of a constant are lost."""
        if self.points.radial:
            return e.any() and self.points.mean_size(e) < SMALLEST_SIZE
        lost = self.null_objective == 0 and (e @ self.points.weight).any()
        return lost and self.points.loss.smooth

    def null_residuals(self):
        """Those of the model without features."""
        return self.residuals(self.null_theta(), self.null_intercept)

    @property
    def residual_scale(self):
        """The mean size of the residuals of the model without features."""
        if "residual_scale" not in self.shared:
            scale = self.points.mean_size(self.null_residuals()) or 1.0
            self.shared["residual_scale"] = scale
        return self.shared["residual_scale"]

    @cached_property
    def zeta_scale(self):
        """A size that ζ does not exceed by much."""
        loss = self.points.loss
        if loss.radius > 0:
            return min(loss.lipschitz, self.residual_scale / loss.radius)
        return loss.lipschitz

    @cached_property
    def first_mu(self):
        """The envelope whose derivative climbs over the width of the residuals."""
        loss = self.points.loss
        radius = self.residual_scale / (2 * self.zeta_scale)
        if loss.logistic or radius < SMOOTH_ENOUGH * loss.radius:
            return 0.0
        return radius - loss.radius

    def null_theta(self):
        return np.zeros((self.outputs.k, self.features.r))

    def _find_null_intercept(self):
        """The best constant model (of a loss of the norm: of each output by itself).

        In regression targets are moved by it: b and the residuals then keep the
        digits that a large mean of y would take.
        """
        points = self.points
        null = points.constant_minimisers()
        if np.isinf(null).any():
            column = f" in column {np.argmax(np.isinf(null))}" if len(null) > 1 else ""
            raise ValueError(
                f"y has one class only{column} (of positive weight), for which the "
                "logistic loss has no minimiser; use fit_intercept=False or another "
                "loss"
            )
        if points.loss.classification:
            self.null_intercept = null
        else:
            self.shift = null
            points.y = points.y - null[:, None]

    def with_alpha(self, alpha):
        """The same problem with another alpha; everything else is shared.

        `shared` is where a solver keeps what serves every alpha.
        """
        other = object.__new__(Objective)
        other.__dict__.update(self.__dict__, alpha=alpha)
        return other

    def restart(self):
        """Let the next alpha begin as if it were the first one, to the last bit."""
        for sums in (self.shared.get("flow"), *self.shared.get("grams", ())):
            if sums is not None:
                sums.restart()

    def in_directions(self, k):
        """The same problem in the first k directions of the outputs."""
        if k == self.outputs.k:
            return self
        other = object.__new__(Objective)
        other.__dict__.update(self.__dict__, outputs=self.outputs.first(k))
        return other

    def residuals(self, theta, intercept, out=None):
        """e of every point, in the frame of the loss."""
        u = self.outputs.predictions(self.features, theta, out)
        return self.points.residuals(u, intercept)

    def steps(self, theta_step, intercept_step, out=None):
        """de, the change of the residuals."""
        du = self.outputs.predictions(self.features, theta_step, out)
        du += intercept_step[:, None]
        return self.points.steps(du)

    def pull(self, flow):
        """Bᵀ Σ_i flow_i z_iᵀ."""
        return self.outputs.pull(self.features, flow)

    def balance(self, e, shift, mu):
        """The change of b that makes Σ ω ζ = 0, ζ = ℓ_mu'(e + mu·shift).

        It also minimises the envelope over b.
        """
        points = self.points
        if points.radial:
            return self._balance_jointly(e, shift, mu)
        if len(e) == 1:
            return np.array([self._balance_along(points, e, points.sign, shift, mu)])
        changes = [
            self._balance_along(
                points.output(j),
                e[j : j + 1],
                points.sign[j : j + 1],
                None if shift is None else shift[j : j + 1],
                mu,
            )
            for j in range(len(e))
        ]
        return np.array(changes)

    def _balance_along(self, points, e, step, shift, mu):
        tolerance = BALANCED * self.zeta_scale
        return find_root(
            lambda t: points.slope(e, step, shift, mu, t),
            start=0.0,
            width=max(mu * self.zeta_scale, 1e-3 * self.residual_scale),
            accept=lambda t, value, slope: abs(value) <= tolerance,
        )

    def _balance_jointly(self, e, shift, mu):
        """Newton's method in b, for a loss of the norm over outputs."""
        points = self.points
        change = np.zeros(len(e))
        e = e.copy()
        zeta, curvature = np.empty_like(e), points.make_curvature()
        for _ in range(MAX_BALANCING):
            points.smooth_derivatives(e, shift, mu, zeta, curvature)
            total = zeta @ points.weight
            if np.abs(total).max() <= BALANCED * self.zeta_scale:
                break
            across, along = curvature
            hessian = (zeta * along) @ zeta.T
            hessian[np.diag_indices_from(hessian)] += across.sum()
            direction = -np.linalg.lstsq(hessian, total, rcond=BALANCED)[0]
            if not total @ direction < 0:  # no point has a curvature, or rounding
                direction = -total
            step = np.repeat(direction[:, None], e.shape[1], axis=1)
            t = self._search(e, step, shift, mu, total @ direction)
            if t == 0:
                break
            e += t * step
            change += t * direction
        return change

    def _search(self, e, step, shift, mu, initial):
        """How far to go along a step, whose slope is `initial` at 0."""
        return find_root(
            lambda t: self.points.slope(e, step, shift, mu, t),
            start=1.0,
            width=1.0,
            accept=lambda t, value, slope: abs(value) <= 0.1 * -initial,
            low=0.0,
        )

    def certify(self, theta, e, zeta, sum_flow=None):
        """Certificate of Θ with residuals e, from the derivatives ζ.

        With an intercept, ζ is made feasible in place.  `sum_flow` computes what
        `pull` does, from what it knows of the flow before.
        """
        flow, total, size = self.points.flow(zeta)
        if self.fit_intercept:
            for j in unbalanced(total, size):
                _shrink_to_balance(zeta[j], flow[j])
        pulled = (sum_flow or self.pull)(flow)
        return self.make_certificate(theta, pulled, *self.points.fenchel_young(e, zeta))

    def make_certificate(self, theta, pulled, value, excess):
        """Certificate from G, the value of the losses and their part of the gap."""
        gradient = pulled + self.alpha * theta
        objective = value + self.alpha / 2 * squared_norm(theta)
        gap = excess + squared_norm(gradient) / (2 * self.alpha)
        return Certificate(objective, gap, excess, gradient)

    def relative(self, gap, objective):
        """gap / objective, 0 for 0 / 0, and infinite if either is not a number."""
        return relative_gap(gap, gap_scale(objective, self.null_objective))


def relative_gap(gap, scale):
    """gap / scale; what is not finite proves nothing, and is infinite."""
    if gap == 0:
        return 0.0
    return gap / scale if 0 < gap < math.inf and 0 < scale < math.inf else math.inf


def gap_scale(objective, null_objective):
    """What gaps are relative to."""
    return max(objective, OBJECTIVE_FLOOR * null_objective)


def norm(array):
    return math.sqrt(squared_norm(array))


def squared_norm(array):
    flat = array.reshape(-1)
    return flat @ flat


def unbalanced(total, size):
    """The outputs whose flow has a sum, beyond rounding."""
    return np.flatnonzero(np.abs(total) > BALANCED * size)


def _shrink_to_balance(zeta, flow):
    """Make Σ flow = 0 by shrinking the ζ of the heavier side, both in place.

    Every domain is an interval around 0, or a ball, so that shrinking never leaves it.
    """
    total = flow.sum()
    heavy = (flow > 0) if total > 0 else (flow < 0)
    factor = max(0.0, 1 - total / flow[heavy].sum())
    zeta[heavy] *= factor
    flow[heavy] *= factor


def find_root(derivatives, start, width, accept, low=-math.inf):
    """A t near the root of a function that does not decrease.

    Newton's method inside a bracket, which is bisected whenever a step did not
    halve the function.  Before there is a bracket, steps grow.

    Parameters
    ----------
    derivatives : callable
        t -> (function, its slope)
    start, width : float
        The first t, and how far to go from there if the slope does not say.
    accept : callable
        (t, function, slope) -> whether t is good enough
    low : float
        Where the function is known to be negative.
    """
    t, high = start, math.inf
    previous = math.inf
    for _ in range(MAX_EVALUATIONS):
        value, slope = derivatives(t)
        if accept(t, value, slope):
            break
        low, high = (t, high) if value < 0 else (low, t)
        newton = t - value / slope if slope > 0 else math.nan
        if math.isinf(low) or math.isinf(high):
            length = width if slope <= 0 else min(abs(newton - t), 8 * width)
            t -= math.copysign(length, value)
            width *= 8
        elif low < newton < high and abs(value) <= previous / 2:
            t = newton
        else:
            t = low + (high - low) / 2
        previous = abs(value)
        if not low < t < high:  # neighbouring numbers
            break
    return t
