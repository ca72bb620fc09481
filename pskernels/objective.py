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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pskernels._products import EPS
from pskernels._threads import cached_property
from pskernels._types import Array, Indices
from pskernels.losses import Loss, WeightedLoss

if TYPE_CHECKING:
    from pskernels.features import AnyFeatures, BlockFeatures
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


class Certificate(NamedTuple):
    """An objective, and bounds on its distance to the optimum."""

    objective: float
    gap: float  # P - D = excess + the part of the gradient
    excess: float  # the part of the losses: 0 where ζ is a derivative of ℓ at u
    gradient: Array  # alpha·Θ + G

    @classmethod
    def of(
        cls, theta: Array, alpha: float, pulled: Array, value: float, excess: float
    ) -> "Certificate":
        """Make one from G, the value of the losses and their part of the gap."""
        gradient = pulled + alpha * theta
        objective = value + alpha / 2 * squared_norm(theta)
        gap = excess + squared_norm(gradient) / (2 * alpha)
        return cls(objective, gap, excess, gradient)


class Part(NamedTuple):
    """Some points of a problem."""

    features: "BlockFeatures"
    points: WeightedLoss
    targets: Array  # (d, n), as given, or, for classes, where residuals are 0


class Problem:
    """P(Θ, b) on given features and targets, for any alpha; it does not change.

    Parameters
    ----------
    features : Features
    loss : Loss
    Y : array of shape (d, n), already checked
    weight : array of shape (n,), already checked
    outputs : Outputs
    fit_intercept : bool
    n_threads : int

    Attributes
    ----------
    parts : list of Part
        The points; weights of all of them add up to 1.
    shift : array of shape (d,)
        What targets were moved by; b is relative to it.
    null_intercept : array of shape (d,)
        b of the best model without features.
    null_objective : float
        Its objective.
    """

    def __init__(
        self,
        features: "AnyFeatures",
        loss: Loss,
        Y: Array,
        weight: Array,
        outputs: "Outputs",
        fit_intercept: bool,
        n_threads: int,
    ) -> None:
        self.features = features
        self.loss = loss
        self.outputs = outputs
        self.fit_intercept = fit_intercept
        self.radial = loss.of_norm and len(Y) > 1
        weight = weight / weight.sum()
        # a residual is u minus this, times ±1: y·u - margin = y·(u - margin·y)
        targets = Y if loss.margin is None else loss.margin * Y
        self.shift: Array = np.zeros(len(Y))
        self.null_intercept: Array = self.shift
        if fit_intercept:
            null = self._find_null_intercept(Y, weight)
            if loss.classification:
                self.null_intercept = null
            else:
                # b and the residuals keep the digits that a large mean of y would take
                self.shift = null
                Y = Y - null[:, None]
        self.parts, start = [], 0
        for block in features.blocks:
            rows = slice(start, start + block.n)
            y = np.ascontiguousarray(Y[:, rows])
            points = WeightedLoss(loss, y, weight[rows], n_threads)
            targets_of_block = np.ascontiguousarray(targets[:, rows])
            self.parts.append(Part(block, points, targets_of_block))
            start += block.n
        self._find_null_objective()

    def _find_null_intercept(self, Y: Array, weight: Array) -> Array:
        """Find the best constant model (loss of the norm: of each output by itself)."""
        null = self.loss.constant_minimisers(Y, weight)
        if np.isinf(null).any():
            column = f" in column {np.argmax(np.isinf(null))}" if len(null) > 1 else ""
            raise ValueError(
                f"y has one class only{column} (of positive weight), for which the "
                "logistic loss has no minimiser; use fit_intercept=False or another "
                "loss"
            )
        return null

    def _find_null_objective(self) -> None:
        parts = self._null_residuals()
        with np.errstate(over="ignore", invalid="ignore"):
            # the value is the same for any ζ
            self.null_objective = sum(
                points.fenchel_young(e, e)[0] for points, e in parts
            )
        if not np.isfinite(self.null_objective):
            raise ValueError("the losses of a constant overflow float64: scale y")
        if self.radial:
            size = sum(points.mean_size(e) for points, e in parts)
            lost = size < SMALLEST_SIZE and any(e.any() for _, e in parts)
        else:
            lost = self.null_objective == 0 and self.loss.smooth
            lost = lost and any((e @ points.weight).any() for points, e in parts)
        if lost:
            raise ValueError("the losses of a constant underflow to 0: scale y")

    def _null_residuals(self) -> list[tuple[WeightedLoss, Array]]:
        """List (points, residuals of the model without features), for each part."""
        return [
            (points, points.residuals(np.zeros_like(points.y), self.null_intercept))
            for _, points, _ in self.parts
        ]

    @property
    def sum_error(self) -> float:
        """A bound on the error of a sum over points, relative to that of the sizes."""
        worst = max(part.points.sum_error for part in self.parts)
        found: float = worst + EPS * (len(self.parts) - 1)
        return found

    @cached_property
    def residual_scale(self) -> float:
        """The mean size of the residuals of the model without features."""
        sizes = (points.mean_size(e) for points, e in self._null_residuals())
        return sum(sizes) or 1.0

    @cached_property
    def zeta_scale(self) -> float:
        """A size that ζ does not exceed by much."""
        if self.loss.radius > 0:
            return min(self.loss.lipschitz, self.residual_scale / self.loss.radius)
        return self.loss.lipschitz

    @cached_property
    def first_mu(self) -> float:
        """The envelope whose derivative climbs over the width of the residuals."""
        radius = self.residual_scale / (2 * self.zeta_scale)
        if self.loss.logistic or radius < SMOOTH_ENOUGH * self.loss.radius:
            return 0.0
        return radius - self.loss.radius

    @cached_property
    def null_theta(self) -> Array:
        return np.zeros((self.outputs.k, self.features.r))

    def relative(self, gap: float, objective: float) -> float:
        """Compute gap / objective, 0 for 0 / 0, infinite if either is not a number."""
        return relative_gap(gap, gap_scale(objective, self.null_objective))


def relative_gap(gap: float, scale: float) -> float:
    """Compute gap / scale; what is not finite proves nothing, and is infinite."""
    if gap == 0:
        return 0.0
    return gap / scale if 0 < gap < math.inf and 0 < scale < math.inf else math.inf


def gap_scale(objective: float, null_objective: float) -> float:
    """Compute what gaps are relative to."""
    return max(objective, OBJECTIVE_FLOOR * null_objective)


def norm(array: Array) -> float:
    return math.sqrt(squared_norm(array))


def squared_norm(array: Array) -> float:
    flat = array.reshape(-1)
    return flat @ flat  # type: ignore[return-value]  # a number


def unbalanced(total: Array, size: Array, share: float = BALANCED) -> Indices:
    """Find the outputs whose flow has a sum, beyond a share of its size."""
    return np.flatnonzero(np.abs(total) > share * size)
