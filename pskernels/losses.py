"""Losses ℓ(u, y) of a prediction u and a target y, convex in u.

A class states the parameters of its loss; the formulas are in src/losses.h, once
for all of them.  `WeightedLoss` is what solvers see: a loss with the targets and
the weights of all points, as a function of their residuals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.special

from pskernels import _losses
from pskernels._products import EPS
from pskernels._robust import weighted_median
from pskernels._roots import find_root
from pskernels._threads import cached_property, resolve_n_threads, threads_for
from pskernels._types import Array, Indices, Mask
from pskernels._validation import (
    check_non_negative,
    check_open_probability,
    check_positive,
    check_real_array,
    raise_not_finite,
)

INF = np.inf

# Functions with one value for all outputs of a point.
REDUCED = ("value", "conjugate")

# Points that make a thread worthwhile: some 50 µs of them.
GRAIN = 2**15


@dataclass(frozen=True)
class Loss:
    """Base class: methods on arrays of predictions u and targets y.

    Every number is a point of its own, unless `axis` says where the outputs of a
    point lie.  Then `Huber` and `EpsilonInsensitive` are taken of the Euclidean
    norm over the outputs, and all others are summed over them: values and
    conjugates have one axis less.

    Weights multiply: ``loss.value(u, y, sample_weight=w)`` is w·ℓ(u, y).
    """

    # The conjugate is epsilon·|z| + radius·z²/2 on [lower, upper] (src/losses.h).
    if TYPE_CHECKING:  # some have these by their parameters

        @property
        def epsilon(self) -> float: ...

        @property
        def lower(self) -> float: ...

        @property
        def upper(self) -> float: ...

        def _constant_minimiser(self, y: Array, weight: Array) -> float: ...
    else:
        epsilon: ClassVar[float] = 0.0
        lower: ClassVar[float] = -1.0
        upper: ClassVar[float] = 1.0
    radius: ClassVar[float] = 0.0
    logistic: ClassVar[bool] = False
    # Classification: targets are +1 and -1, and the residual is y·u - margin.
    margin: ClassVar[float | None] = None
    # Several outputs: the loss of the norm over them, not the sum.
    of_norm: ClassVar[bool] = False
    # Whether predictions are exp(u).
    log_link: ClassVar[bool] = False

    @property
    def lipschitz(self) -> float:
        """The largest |∂ℓ/∂u|, of one output; infinite for squared losses."""
        return max(-self.lower, self.upper)

    @property
    def smooth(self) -> bool:
        """Whether ∂ℓ/∂u is continuous in u."""
        return self.logistic or self.radius > 0

    @property
    def classification(self) -> bool:
        return self.margin is not None

    @property
    def native(self) -> Array:
        """The loss as src/_losses.pyx takes it."""
        numbers = self.logistic, self.epsilon, self.lower, self.upper, self.radius
        return np.array(numbers, dtype=np.float64)

    def of_outputs(self, d: int) -> "Sequence[Loss]":
        """Return the loss of each of d outputs by itself."""
        return [self] * d

    def value(
        self,
        u: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        axis: int | None = None,
    ) -> Any:
        """Compute ℓ(u, y)."""
        return _weighted(self._evaluate("value", u, y, 0.0, axis), sample_weight)

    def derivative(
        self,
        u: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        axis: int | None = None,
    ) -> Any:
        """Compute ∂ℓ/∂u; where it jumps, a number in between."""
        return self.envelope_derivative(u, y, 0.0, sample_weight, axis)

    def envelope(
        self,
        u: npt.ArrayLike,
        y: npt.ArrayLike,
        mu: float,
        sample_weight: npt.ArrayLike | None = None,
        axis: int | None = None,
    ) -> Any:
        """Compute the Moreau envelope: min over v of ℓ(v, y) + (u - v)²/(2·mu)."""
        mu = check_positive(mu, "mu")
        return _weighted(self._evaluate("value", u, y, mu, axis), sample_weight)

    def envelope_derivative(
        self,
        u: npt.ArrayLike,
        y: npt.ArrayLike,
        mu: float,
        sample_weight: npt.ArrayLike | None = None,
        axis: int | None = None,
    ) -> Any:
        """Compute the derivative in u of the envelope; mu = 0 is the loss itself."""
        mu = check_non_negative(mu, "mu")
        sign, _ = self._frame(y)
        zeta = sign * self._evaluate("derivative", u, y, mu, axis)
        return _weighted(zeta, sample_weight, axis)

    def envelope_second_derivative(
        self,
        u: npt.ArrayLike,
        y: npt.ArrayLike,
        mu: float,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Any:
        """Compute the envelope's second derivative in u; 0 at a corner of the first."""
        mu = check_non_negative(mu, "mu")
        return _weighted(self._evaluate("second", u, y, mu, None), sample_weight)

    def prox(
        self, u: npt.ArrayLike, y: npt.ArrayLike, mu: float, axis: int | None = None
    ) -> Any:
        """Find the proximal point: the v that attains the envelope."""
        mu = check_positive(mu, "mu")
        sign, offset = self._frame(y)
        return sign * (self._evaluate("prox", u, y, mu, axis) + offset)

    def conjugate(
        self,
        zeta: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        axis: int | None = None,
    ) -> Any:
        """Find ℓ*(ζ, y) = sup over u of ζ·u - ℓ(u, y); infinite outside its domain."""
        sign, offset = self._frame(y)
        signed = sign * check_real_array(zeta, "zeta").astype(np.float64)
        linear = signed * offset
        if axis is not None:
            linear = linear.sum(axis=axis)
        value = self._on_residuals("conjugate", signed, 0.0, axis)
        return _weighted(value + linear, sample_weight)

    def constant_minimisers(self, Y: Array, weight: Array) -> Array:
        """Find, for each row of targets, the constant that minimises its loss.

        Weights add up to 1.
        """
        losses = self.of_outputs(len(Y))
        pairs = zip(losses, Y, strict=True)
        return np.array([loss._constant_minimiser(y, weight) for loss, y in pairs])

    def constant_minimiser(
        self, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None
    ) -> float:
        """Find a b that minimises Σ weight·ℓ(b, y): the model without features.

        Infinite for `Logistic` where y has one class only.
        """
        shape = np.shape(y)
        y = self.check_targets(y)
        if y.ndim > 1:
            raise ValueError(
                "y must be 1-d, and the loss one of a single output: got shape "
                f"{shape} and {self}"
            )
        weight = np.ones(len(y)) if sample_weight is None else sample_weight
        weight = check_weights(weight, len(y))
        return float(self._constant_minimiser(y, weight))

    def check_targets(self, y: npt.ArrayLike) -> Array:
        """Check y: finite float64, of shape (n,), or (n, d) for d > 1 outputs.

        +1 and -1 only for classification.
        """
        y = check_real_array(y, "y")
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim not in (1, 2) or y.size == 0:
            raise ValueError(
                "y must have one target for each point, or a row of them for each "
                f"point, got shape {y.shape}"
            )
        y = np.ascontiguousarray(y, dtype=np.float64)
        if not np.isfinite(y).all():
            raise_not_finite(y, "y")
        if self.classification and not (np.abs(y) == 1).all():
            other = y[np.abs(y) != 1][0]
            raise ValueError(
                f"y must be +1 or -1 for {type(self).__name__}, but it contains "
                f"{other:g}; for two classes a and b, np.where(y == a, 1, -1), for "
                "more an output each, np.where(y[:, None] == classes, 1, -1)"
            )
        return y

    def _frame(self, y: npt.ArrayLike) -> tuple[Any, Any]:
        """Find (sign, offset): the residual is sign·u - offset, and sign is ±1."""
        y = np.asarray(y, dtype=np.float64)
        return (y, self.margin) if self.classification else (1.0, y)

    def _evaluate(
        self,
        function: str,
        u: npt.ArrayLike,
        y: npt.ArrayLike,
        mu: float,
        axis: int | None,
    ) -> Any:
        sign, offset = self._frame(y)
        residual = sign * check_real_array(u, "u").astype(np.float64) - offset
        if not np.isfinite(residual).all():
            raise ValueError("u and y must be finite, and so must be u - y")
        return self._on_residuals(function, residual, mu, axis)

    def _on_residuals(
        self, function: str, e: Array, mu: float, axis: int | None
    ) -> Any:
        if axis is None:
            return _on_array(function, self, e, mu)
        e = np.moveaxis(e, axis, 0)
        if self.of_norm:
            norm = np.linalg.norm(e, axis=0)
            out = _on_array(function, self, norm, mu)
            if function in REDUCED:
                return out
            # the function of the norm, in the direction of e
            out = e * (out / np.where(norm > 0, norm, 1.0))
        else:
            parts = zip(self.of_outputs(len(e)), e, strict=True)
            out = np.stack(
                [_on_array(function, loss, part, mu) for loss, part in parts]
            )
            if function in REDUCED:
                return out.sum(axis=0)
        return np.moveaxis(out, 0, axis)


@dataclass(frozen=True)
class Huber(Loss):
    """e²/2 if |e| ≤ kappa, else kappa·(|e| - kappa/2), for e = u - y.

    With several outputs |e| is the Euclidean norm over them.
    """

    kappa: float = 1.0

    radius: ClassVar = 1.0
    of_norm: ClassVar = True

    def __post_init__(self) -> None:
        check_positive(self.kappa, "kappa")

    @property
    def lower(self) -> float:
        return -self.kappa

    @property
    def upper(self) -> float:
        return self.kappa

    def _constant_minimiser(self, y: Array, weight: Array) -> float:
        """Find the root of a derivative that is linear between breakpoints."""
        if not weight.all():
            y, weight = y[weight > 0], weight[weight > 0]
        if self.kappa >= np.ptp(y):  # all of them lie in the quadratic part
            return float(np.average(y, weights=weight))
        rounding = 1e-14 * self.kappa * weight.sum()
        equal = weight.min() == weight.max()

        def derivatives(b: float) -> tuple[float, float]:
            e = b - y
            slope = weight @ np.clip(e, self.lower, self.upper)
            return float(slope), float(weight @ (np.abs(e) < self.kappa))

        def accept(b: float, slope: float, curvature: float) -> bool:
            size = abs(slope)
            return bool(size <= rounding or size <= EPS / 2 * abs(b) * curvature)

        # from where no more than half of the points pull to either side
        start = weighted_median(y, None if equal else weight)
        return find_root(derivatives, start=start, width=self.kappa, accept=accept)


@dataclass(frozen=True)
class _PiecewiseLinear(Loss):
    """The slope of Σ weight·ℓ(b, y) rises at breakpoints only."""

    def _constant_minimiser(self, y: Array, weight: Array) -> float:
        used = weight > 0
        points, rises = self._breakpoints(y[used], weight[used])
        order = np.argsort(points, kind="stable")
        slope = np.cumsum(rises[order]) + self._slope_at_minus_infinity(y, weight)
        tiny = 1e-14 * weight.sum()  # the sums are rounded
        # where the slope stops being negative, and where it becomes positive
        first = np.argmax(slope >= -tiny)
        rising = slope > tiny
        last = np.argmax(rising) if rising.any() else len(order) - 1
        found: float = points[order[first]] / 2 + points[order[last]] / 2
        return found

    def _breakpoints(self, y: Array, weight: Array) -> tuple[Array, Array]:
        return y, weight * (self.upper - self.lower)

    def _slope_at_minus_infinity(self, y: Array, weight: Array) -> float:
        found: float = self.lower * weight.sum()
        return found


@dataclass(frozen=True)
class EpsilonInsensitive(_PiecewiseLinear):
    """max(|u - y| - epsilon, 0).

    With several outputs |u - y| is the Euclidean norm over them.
    """

    epsilon: float = 0.1

    of_norm: ClassVar = True

    def __post_init__(self) -> None:
        check_non_negative(self.epsilon, "epsilon")

    def _breakpoints(self, y: Array, weight: Array) -> tuple[Array, Array]:
        points = np.concatenate([y - self.epsilon, y + self.epsilon])
        return points, np.concatenate([weight, weight])


@dataclass(frozen=True)
class Pinball(_PiecewiseLinear):
    """max(tau·(y - u), (tau - 1)·(y - u)): u is the tau-quantile of y.

    tau is one level, or a sequence of them: one for each output.  If y has one
    output only, that is the target of every level.
    """

    tau: float | Sequence[float] = 0.5

    def __post_init__(self) -> None:
        if np.ndim(self.tau) == 0:
            check_open_probability(self.tau, "tau")
            return
        if np.ndim(self.tau) > 1 or np.size(self.tau) == 0:
            raise ValueError(
                f"tau must be a level or a sequence of levels, got {self.tau!r}"
            )
        levels = tuple(np.asarray(self.tau).tolist())
        for tau in levels:
            check_open_probability(tau, "tau")
        object.__setattr__(self, "tau", levels if len(levels) > 1 else levels[0])

    @property
    def lower(self) -> float:
        return -self._level

    @property
    def upper(self) -> float:
        return 1 - self._level

    @property
    def lipschitz(self) -> float:
        return float(max(np.max(self.tau), 1 - np.min(self.tau)))

    @property
    def _level(self) -> float:
        if isinstance(self.tau, Sequence):
            raise ValueError(
                f"{self} has {len(self.tau)} outputs: say along which axis they lie, "
                "or take Pinball of one level"
            )
        return self.tau

    def of_outputs(self, d: int) -> Sequence[Loss]:
        if not isinstance(self.tau, Sequence):
            return [self] * d
        self._check_width(d, len(self.tau))
        return [Pinball(tau) for tau in self.tau]

    def check_targets(self, y: npt.ArrayLike) -> Array:
        y = super().check_targets(y)
        if isinstance(self.tau, Sequence):
            if y.ndim == 1:
                return np.repeat(y[:, None], len(self.tau), axis=1)
            self._check_width(y.shape[1], len(self.tau))
        return y

    def _check_width(self, d: int, n_levels: int) -> None:
        if d != n_levels:
            raise ValueError(
                f"y must have one column, or {n_levels} for the "
                f"{n_levels} levels of {self}, got {d}"
            )


@dataclass(frozen=True)
class Absolute(_PiecewiseLinear):
    """|u - y|; several outputs: its sum over them (for the norm,
    ``EpsilonInsensitive(0)``)."""


@dataclass(frozen=True)
class Squared(Loss):
    """(u - y)²/2."""

    lower: ClassVar = -INF
    upper: ClassVar = INF
    radius: ClassVar = 1.0

    def _constant_minimiser(self, y: Array, weight: Array) -> float:
        return float(np.average(y, weights=weight))

    def constant_minimisers(self, Y: Array, weight: Array) -> Array:
        return Y @ weight


@dataclass(frozen=True)
class Hinge(_PiecewiseLinear):
    """max(1 - y·u, 0), y = ±1."""

    upper: ClassVar = 0.0
    margin: ClassVar = 1.0

    def _slope_at_minus_infinity(self, y: Array, weight: Array) -> float:
        found: float = -weight[y > 0].sum()
        return found


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(1 - y·u, 0)², y = ±1."""

    lower: ClassVar = -INF
    upper: ClassVar = 0.0
    radius: ClassVar = 0.5
    margin: ClassVar = 1.0

    def _constant_minimiser(self, y: Array, weight: Array) -> float:
        return float(np.average(y, weights=weight))


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y·u)), y = ±1."""

    upper: ClassVar = 0.0
    margin: ClassVar = 0.0
    logistic: ClassVar = True

    def _constant_minimiser(self, y: Array, weight: Array) -> float:
        with np.errstate(divide="ignore"):
            positive, negative = weight[y > 0].sum(), weight[y < 0].sum()
            found: float = np.log(positive) - np.log(negative)
            return found


@dataclass(frozen=True)
class SmoothLoss(Loss):
    """A loss of one output that is no function of u - y, or grows faster than squares.

    It is solved by Newton's method with conjugate gradients
    (`pskernels.solvers.newton_cg`), and has no envelopes.  A loss of this kind states
    `values`, `derivatives` and `conjugates` of arrays.
    """

    smooth: ClassVar = True
    lipschitz: ClassVar = INF

    if TYPE_CHECKING:

        def values(self, u: Array, y: Array) -> Array: ...

        def derivatives(self, u: Array, y: Array) -> tuple[Array, Array]: ...

        def conjugates(self, zeta: Array, y: Array) -> Array: ...

    @property
    def native(self) -> Array:
        raise TypeError(f"{self} has no native code: 'newton' and `solve` take it")

    def value(
        self,
        u: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        axis: int | None = None,
    ) -> Any:
        """Compute ℓ(u, y)."""
        u, y = (np.asarray(array, dtype=np.float64) for array in (u, y))
        return _weighted(self.values(u, y), sample_weight)

    def derivative(
        self,
        u: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        axis: int | None = None,
    ) -> Any:
        """Compute ∂ℓ/∂u."""
        u, y = (np.asarray(array, dtype=np.float64) for array in (u, y))
        return _weighted(self.derivatives(u, y)[0], sample_weight)

    def conjugate(
        self,
        zeta: npt.ArrayLike,
        y: npt.ArrayLike,
        sample_weight: npt.ArrayLike | None = None,
        axis: int | None = None,
    ) -> Any:
        """Find ℓ*(ζ, y) = sup over u of ζ·u - ℓ(u, y); infinite outside its domain."""
        zeta, y = (np.asarray(array, dtype=np.float64) for array in (zeta, y))
        return _weighted(self.conjugates(zeta, y), sample_weight)

    def check_targets(self, y: npt.ArrayLike) -> Array:
        y = super().check_targets(y)
        if y.ndim > 1:
            raise ValueError(f"{self} is for one output, got y of shape {y.shape}")
        return y

    def _constant_minimiser(self, y: Array, weight: Array) -> float:
        mean = np.average(y, weights=weight)
        if not mean > 0:
            raise ValueError(
                "y must not be 0 everywhere: it is for the points of positive weight, "
                f"or of a fold, and {self} has no minimum there"
            )
        found: float = np.log(mean)
        return found


@dataclass(frozen=True)
class Poisson(SmoothLoss):
    """exp(u) - y·u, less its least value: half the deviance of counts of mean exp(u).

    y ≥ 0; a fit needs some of them above 0.
    """

    log_link: ClassVar = True

    def values(self, u: Array, y: Array) -> Array:
        return np.exp(u) - y * u + scipy.special.xlogy(y, y) - y

    def derivatives(self, u: Array, y: Array) -> tuple[Array, Array]:
        mean = np.exp(u)
        return mean - y, mean

    def conjugates(self, zeta: Array, y: Array) -> Array:
        rest = zeta + y
        with np.errstate(invalid="ignore"):
            value = scipy.special.xlogy(rest, rest) - rest
        return np.where(rest < 0, INF, value) - scipy.special.xlogy(y, y) + y

    def check_targets(self, y: npt.ArrayLike) -> Array:
        y = super().check_targets(y)
        if y.min() < 0:
            raise ValueError(
                f"y must not be negative for the Poisson loss, got {y.min():g}"
            )
        return y


@dataclass(frozen=True)
class Gamma(SmoothLoss):
    """y·exp(-u) + u, less its least value: half the deviance of a mean exp(u).

    y > 0, errors in proportion to the mean.
    """

    log_link: ClassVar = True

    def values(self, u: Array, y: Array) -> Array:
        e = u - np.log(y)
        return np.exp(-e) + e - 1

    def derivatives(self, u: Array, y: Array) -> tuple[Array, Array]:
        ratio = y * np.exp(-u)
        return 1 - ratio, ratio

    def conjugates(self, zeta: Array, y: Array) -> Array:
        rest = 1 - zeta
        with np.errstate(invalid="ignore"):
            value = zeta * np.log(y) + scipy.special.xlogy(rest, rest) + zeta
        return np.where(rest < 0, INF, value)

    def check_targets(self, y: npt.ArrayLike) -> Array:
        y = super().check_targets(y)
        if not y.min() > 0:
            raise ValueError(
                f"y must be positive for the gamma loss, got {y.min():g} among them"
            )
        return y


@dataclass(frozen=True)
class Expectile(SmoothLoss):
    """tau·e² if y is above u, else (1 - tau)·e², for e = u - y: u is an expectile.

    ½ is the mean; others are means in which points above count tau / (1 - tau) times.
    """

    tau: float = 0.5

    def __post_init__(self) -> None:
        check_open_probability(self.tau, "tau")

    def _sides(self, below: Mask) -> Array:
        return np.where(below, self.tau, 1 - self.tau)

    def values(self, u: Array, y: Array) -> Array:
        e = u - y
        return self._sides(e < 0) * e**2

    def derivatives(self, u: Array, y: Array) -> tuple[Array, Array]:
        e = u - y
        twice = 2 * self._sides(e < 0)
        return twice * e, twice

    def conjugates(self, zeta: Array, y: Array) -> Array:
        return zeta * y + zeta**2 / (4 * self._sides(zeta < 0))

    def _constant_minimiser(self, y: Array, weight: Array) -> float:
        center = np.average(y, weights=weight)
        for _ in range(100):  # weights of points settle in a few steps
            weights = weight * self._sides(center < y)
            center, before = np.average(y, weights=weights), center
            if center == before:
                break
        return float(center)


class WeightedLoss:
    """Σ weight·ℓ as a function of the residuals e of all points and outputs.

    Residuals and the derivatives ζ with respect to them are in the frame of
    src/losses.h: e = sign·u - offset.  They are arrays of shape (d, n).

    Parameters
    ----------
    loss : Loss
    y : array of shape (d, n), already checked
    weight : array of shape (n,), already checked
    n_threads : int

    Attributes
    ----------
    radial : bool
        Whether it is the loss of the norm over outputs.
    losses : list
        That of each output, or the one of the norm.
    numbers : array
        What the native code takes for them.
    """

    def __init__(self, loss: Loss, y: Array, weight: Array, n_threads: int) -> None:
        self.loss = loss
        self.n_threads = threads_for(y.size, GRAIN, n_threads)
        self.y = y
        self.weight = weight
        self.radial = loss.of_norm and len(y) > 1
        self.losses = [loss] if self.radial else loss.of_outputs(len(y))
        self.numbers = np.array([one.native for one in self.losses])
        n_chunks = -(-y.shape[1] // _losses.CHUNK_POINTS)
        # bounds the error of a sum, relative to that of the sizes
        chunk = min(y.shape[1], _losses.CHUNK_POINTS)
        self.sum_error = EPS / 2 * (chunk + n_chunks + 8)
        self._sums = np.empty((len(self.losses), n_chunks, 2))
        self._pairs = self._sums.reshape(-1, 2)
        self._counts = np.empty((len(self.losses), n_chunks), np.intp)

    @cached_property
    def sign(self) -> Array:
        """±1 for each point and output: de/du."""
        return self.y if self.loss.classification else np.ones_like(self.y)

    @cached_property
    def offset(self) -> Array:
        """The residual is sign·u - offset."""
        if not self.loss.classification:
            return self.y
        return np.full_like(self.y, self.loss.margin)

    def flow(self, zeta: Array, out: Array | None = None) -> tuple[Array, Array]:
        """Compute weight·∂ℓ/∂u, what points pull at predictions with, and its sums.

        Returns
        -------
        flow : ndarray of shape (d, n)
        sums : ndarray of shape (2, d)
            Σ flow and Σ |flow| of each output.
        """
        flow = np.empty_like(zeta) if out is None else out
        sums = np.empty((len(zeta), self._counts.shape[1], 2))
        _losses.flow(
            zeta,
            self.weight,
            self.y,
            flow,
            sums,
            self.loss.classification,
            self.n_threads,
        )
        return flow, sums.sum(axis=1).T

    def residuals(self, u: Array, intercept: Array) -> Array:
        """Turn the predictions u without their intercept (d,) into e, in place."""
        classes = self.loss.classification
        margin = 0.0 if self.loss.margin is None else self.loss.margin
        _losses.residuals(u, self.y, intercept, classes, margin, self.n_threads)
        return u

    def steps(self, du: Array) -> Array:
        """Turn the change of the predictions into that of the residuals, in place."""
        if self.loss.classification:
            du *= self.sign
        return du

    def mean_size(self, e: Array) -> float:
        """Find Σ weight·|e|, the mean over outputs, or that of the norm over them."""
        _losses.fenchel_young(
            e,
            e,
            self.weight,
            self._sums,
            np.tile(Absolute().native, (len(self.losses), 1)),
            self.radial,
            self.n_threads,
        )
        found: float = self._sums[:, :, 0].sum() / len(self.losses)
        return found

    def make_curvature(self) -> Array:
        """Make room for the curvatures of `smooth_derivatives`."""
        d, n = self.y.shape
        return np.empty((2 if self.radial else d, n))

    def smooth_derivatives(
        self, e: Array, shift: Array | None, mu: float, zeta: Array, curvature: Array
    ) -> Indices:
        """Fill ζ and weight·ℓ'' of the envelope at e + mu·shift.

        If the loss is that of the norm, two numbers for each point are filled, and
        its Hessian is curvature[0]·I + curvature[1]·ζ·ζᵀ.

        Returns
        -------
        ndarray
            How many points have a curvature, for each of `losses`.
        """
        _losses.smooth_derivatives(
            e,
            shift,
            self.weight,
            zeta,
            curvature,
            self._counts,
            self.numbers,
            self.radial,
            mu,
            self.n_threads,
        )
        found: Indices = self._counts.sum(axis=1)
        return found

    def slope(
        self, e: Array, step: Array, shift: Array | None, mu: float, t: float
    ) -> Array:
        """Compute d/dt and d²/dt² of Σ weight·ℓ_mu(e + t·step + mu·shift)."""
        _losses.slope(
            e,
            step,
            shift,
            self.weight,
            self._sums,
            self.numbers,
            self.radial,
            mu,
            t,
            self.n_threads,
        )
        found: Array = self._pairs.sum(axis=0)
        return found

    def fenchel_young(self, e: Array, zeta: Array) -> Array:
        """Compute Σ weight·ℓ(e), and by how much it exceeds Σ weight·(e·ζ - ℓ*(ζ))."""
        _losses.fenchel_young(
            e,
            zeta,
            self.weight,
            self._sums,
            self.numbers,
            self.radial,
            self.n_threads,
        )
        found: Array = self._pairs.sum(axis=0)
        return found

    def of_output(self, j: int) -> "WeightedLoss":
        """Return the same for output j alone, of a loss that is a sum over outputs."""
        return self if len(self.y) == 1 else self._outputs[j]

    @cached_property
    def _outputs(self) -> "list[WeightedLoss]":
        return [
            WeightedLoss(loss, self.y[j : j + 1], self.weight, self.n_threads)
            for j, loss in enumerate(self.losses)
        ]

    def rounding(
        self, e: Array, zeta: Array, error: Array, exact: bool = False
    ) -> Array:
        """Bound what rounding hides of the excess of `fenchel_young`; sum weight·|e·ζ|.

        `error` (d,) is what the residuals of every output may be wrong by, beside
        their own rounding, and that of the targets unless they are `exact`.
        """
        _losses.rounding(
            e,
            zeta,
            self.y,
            error,
            self.weight,
            self._sums,
            self.numbers,
            self.radial,
            EPS,
            float(not exact),
            self.n_threads,
        )
        found: Array = self._pairs.sum(axis=0)
        return found

    def into_domain(self, zeta: Array) -> Array:
        """Move ζ to where the conjugate is finite."""
        if self.radial:
            norm = np.linalg.norm(zeta, axis=0)
            found: Array = zeta * (self.loss.upper / np.maximum(norm, self.loss.upper))
            return found
        lower = np.array([[loss.lower] for loss in self.losses])
        upper = np.array([[loss.upper] for loss in self.losses])
        return np.clip(zeta, lower, upper)


LOSSES = {
    "huber": Huber,
    "epsilon_insensitive": EpsilonInsensitive,
    "pinball": Pinball,
    "absolute": Absolute,
    "squared": Squared,
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
    "logistic": Logistic,
}


# Losses that have a solver of their own.
SMOOTH_LOSSES = {"poisson": Poisson, "gamma": Gamma, "expectile": Expectile}


def get_loss(loss: str | Loss) -> Loss:
    """Find the loss object behind a name or an object."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES | SMOOTH_LOSSES:
        return (LOSSES | SMOOTH_LOSSES)[loss]()
    hint = ""
    if isinstance(loss, type) and issubclass(loss, Loss):
        hint = f": an object is needed, {loss.__name__}()"
    raise ValueError(
        "loss must be a loss object such as Huber(1.0), or one of "
        f"{', '.join(LOSSES | SMOOTH_LOSSES)}; got {loss!r}{hint}"
    )


def check_weights(weight: npt.ArrayLike, n: int) -> Array:
    """Check weights of n points: finite, not negative, not all 0; float64."""
    weight = check_real_array(weight, "sample_weight")
    if weight.shape != (n,):
        raise ValueError(f"sample_weight must have shape ({n},), got {weight.shape}")
    weight = np.ascontiguousarray(weight, dtype=np.float64)
    if not np.isfinite(weight).all():
        raise_not_finite(weight, "sample_weight")
    if weight.min() < 0:
        raise ValueError(f"sample_weight must not be negative, got {weight.min():g}")
    if not weight.max() > 0:
        raise ValueError("sample_weight must not be all 0")
    found: Array = weight / weight.max()  # so that their sum does not overflow
    return found


def _on_array(function: str, loss: Loss, values: Array, mu: float) -> Any:
    """Evaluate a function of the loss, at an array of residuals of any shape."""
    flat = np.ascontiguousarray(values, dtype=np.float64).reshape(-1)
    out = np.empty_like(flat)
    code = _losses.FUNCTIONS[function]
    n_threads = threads_for(flat.size, GRAIN, resolve_n_threads(None))
    _losses.evaluate(flat, out, loss.native, code, mu, n_threads)
    return out.reshape(np.shape(values))[()]


def _weighted(
    values: Any, sample_weight: npt.ArrayLike | None, axis: int | None = None
) -> Any:
    if sample_weight is None:
        return values
    weight = np.asarray(sample_weight)
    return values * (weight if axis is None else np.expand_dims(weight, axis))
