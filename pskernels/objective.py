"""The problem that solvers see: a linear machine on features, and its dual.

    P(w, b) = Σ_i ω_i ℓ(z_iᵀw + b, y_i) + (alpha/2)‖w‖²,    Σ_i ω_i = 1
    D(ζ)    = -Σ_i ω_i ℓ_i*(ζ_i) - ‖Σ_i ω_i ζ_i z_i‖² / (2·alpha)

D(ζ) ≤ P(w, b) for every ζ with finite conjugates and, where there is an
intercept, with Σ_i ω_i ζ_i = 0.  So P - D at any such ζ bounds how far w is from
the optimum.  With g = Σ_i ω_i ζ_i z_i the difference is

    P - D = Σ_i ω_i (ℓ(u_i) + ℓ_i*(ζ_i) - u_i ζ_i) + ‖alpha·w + g‖² / (2·alpha),

two sums of terms that are not negative: no large numbers are subtracted.
"""

import math
from typing import NamedTuple

import numpy as np

from pskernels._products import Features
from pskernels.losses import WeightedLoss

# Σ ω ζ below this share of Σ ω |ζ| is rounding.
BALANCED = 1e-13
# Relative gaps are taken to the objective, or to this share of that of the best
# constant model where it is larger: data that are interpolated leave an objective
# that is lost in the rounding of the residuals.
OBJECTIVE_FLOOR = 1e-9

# A loss is smooth enough by itself if an envelope would not make its radius this
# many times larger.
SMOOTH_ENOUGH = 4.0

MAX_EVALUATIONS = 80
EPS = float(np.finfo(np.float64).eps)


class Certificate(NamedTuple):
    """An objective, and bounds on its distance to the optimum."""

    objective: float
    gap: float  # P - D = excess + the part of the gradient
    excess: float  # the part of the losses: 0 where ζ is a derivative of ℓ at u
    gradient: np.ndarray  # alpha·w + g


class Objective:
    """P(w, b) on given features and targets, with what Newton's method needs.

    Parameters
    ----------
    features : Features
    points : WeightedLoss
    alpha : float
    fit_intercept : bool

    Attributes
    ----------
    shift : float
        What targets were moved by; b is relative to it.
    """

    def __init__(self, features: Features, points: WeightedLoss, alpha, fit_intercept):
        self.features = features
        self.points = points
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.null_intercept = self.shift = 0.0
        if fit_intercept:
            self._find_null_intercept()
        e = self.residuals(np.zeros(features.r), self.null_intercept)
        with np.errstate(over="ignore", invalid="ignore"):
            self.null_objective = points.fenchel_young(e, np.zeros_like(e))[0]
        if not np.isfinite(self.null_objective):
            raise ValueError("the losses of a constant overflow float64: scale y")
        if self.null_objective == 0 and points.loss.smooth and points.weight @ e != 0:
            raise ValueError("the losses of a constant underflow to 0: scale y")
        self.residual_scale = points.weight @ np.abs(e) or 1.0
        self.zeta_scale = points.loss.lipschitz
        if points.loss.radius > 0:
            slope = self.residual_scale / points.loss.radius
            self.zeta_scale = min(self.zeta_scale, slope)
        self.first_mu = self._first_mu()
        self.shared = {}

    def _find_null_intercept(self):
        """The best constant model.

        In regression targets are moved by it: b and the residuals then keep the
        digits that a large mean of y would take.
        """
        points = self.points
        null = points.loss.constant_minimiser(points.y, points.weight)
        if np.isinf(null):
            raise ValueError(
                "y has one class only (of positive weight), for which the logistic "
                "loss has no minimiser; use fit_intercept=False or another loss"
            )
        if points.loss.classification:
            self.null_intercept = null
        else:
            self.shift = null
            points.y = points.y - null

    def _first_mu(self):
        """The envelope whose derivative climbs over the width of the residuals."""
        loss = self.points.loss
        radius = self.residual_scale / (2 * self.zeta_scale)
        if loss.logistic or radius < SMOOTH_ENOUGH * loss.radius:
            return 0.0
        return radius - loss.radius

    def with_alpha(self, alpha):
        """The same problem with another alpha; everything else is shared.

        `shared` is where a solver keeps what serves every alpha.
        """
        other = object.__new__(Objective)
        other.__dict__.update(self.__dict__, alpha=alpha)
        return other

    def residuals(self, coef, intercept, out=None):
        """e of every point, in the frame of the loss."""
        u = self.features.dot(coef, out)
        u += intercept
        return self.points.residuals(u)

    def steps(self, coef_step, intercept_step, out):
        """de, the change of the residuals."""
        du = self.features.dot(coef_step, out)
        du += intercept_step
        if self.points.loss.classification:
            du *= self.points.sign
        return du

    def balance(self, e, shift, mu):
        """The change of the intercept that makes Σ ω ζ = 0, ζ = ℓ_mu'(e + mu·shift).

        It also minimises the envelope over the intercept.
        """
        sign = self.points.sign
        tolerance = BALANCED * self.zeta_scale
        return find_root(
            lambda t: self.points.slope(e, sign, shift, mu, t),
            start=0.0,
            width=max(mu * self.zeta_scale, 1e-3 * self.residual_scale),
            accept=lambda t, value, slope: abs(value) <= tolerance,
        )

    def certify(self, coef, e, zeta, sum_flow=None):
        """Certificate of w with residuals e, from the derivatives ζ.

        With an intercept, ζ is made feasible in place.  `sum_flow` computes
        Σ_i ω_i ζ_i z_i from ω ζ, in place of a pass over Z.
        """
        flow = self.points.signed_weight * zeta
        if self.fit_intercept:
            _shrink_to_balance(zeta, flow)
        gradient = (sum_flow or self.features.t_dot)(flow)
        gradient += self.alpha * coef
        value, excess = self.points.fenchel_young(e, zeta)
        objective = value + self.alpha / 2 * (coef @ coef)
        gap = excess + (gradient @ gradient) / (2 * self.alpha)
        return Certificate(objective, gap, excess, gradient)

    def rounding(self, e):
        """How much of the losses the rounding of targets and predictions may hide."""
        points = self.points
        if np.ptp(points.y[points.weight > 0]) == 0:  # a constant is fitted exactly
            return 0.0
        size = 2 * np.abs(points.y + self.shift) + np.abs(e)
        return points.weight @ points.sensitivity(e, EPS * size)

    def relative(self, gap, objective):
        """gap / objective, and 0 for 0 / 0."""
        if gap == 0:
            return 0.0
        return gap / max(objective, OBJECTIVE_FLOOR * self.null_objective)


def _shrink_to_balance(zeta, flow):
    """Make Σ flow = 0 by shrinking the ζ of the heavier side, both in place.

    Every domain is an interval around 0, so that shrinking never leaves it.
    """
    total = flow.sum()
    if abs(total) <= BALANCED * np.abs(flow).sum():
        return
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
