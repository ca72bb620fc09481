"""Points and their features: all that has a value for each point.

A `Block` is some of the points, with their features, targets and weights, and what
they have of the model that a solver is at: residuals e, derivatives ζ, curvatures, a
step.  It answers in sums.  A `Sample` is all points, one block or several, which are
added up in a fixed order.  Solvers see coefficients, gradients, Hessians and scalars;
where a block has its numbers, they need not know.

Arrays: Θ is (k, r), b is (d,), and what points have is (d, n).
"""

import math
import operator
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from pskernels._products import EPS, RunningSum, symmetric
from pskernels._roots import find_root
from pskernels._threads import cached_property
from pskernels._types import Array, Indices, Mask
from pskernels.objective import BALANCED, Certificate, Part, Problem, unbalanced

if TYPE_CHECKING:
    from pskernels.outputs import Outputs

MAX_BALANCING = 30
# Above this share of the points, sums of them cost as much as all, and say less.
SKETCHED = 0.5


def _every(action: str) -> Callable[..., None]:
    """Make a method by which every block does something."""

    def method(self: "Sample", *arguments: Any, **options: Any) -> None:
        for block in self.blocks:
            getattr(block, action)(*arguments, **options)

    return method


def _add_parts(totals: Iterable[Any], parts: Iterable[Any]) -> list[Any]:
    return [total + part for total, part in zip(totals, parts, strict=True)]


def _total(
    answer: str, add: Callable[[Any, Any], Any] = operator.add
) -> Callable[..., Any]:
    """Make a method that adds up what the blocks answer, in their order."""

    def method(self: "Sample", *arguments: Any) -> Any:
        blocks = self.blocks
        total = getattr(blocks[0], answer)(*arguments)
        for block in blocks[1:]:
            total = add(total, getattr(block, answer)(*arguments))
        return total

    return method


class Sample:
    """All points of a problem, at a model: what blocks answer, of all of them.

    Parameters
    ----------
    problem : Problem

    Attributes
    ----------
    drift : array of shape (d,)
        What the residuals of each output may have kept of the rounding of others, since
        they were placed, by moves of the intercept.
    exact : bool
        Whether residuals and sums are computed as if in twice the digits.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.drift = np.zeros(problem.outputs.d)
        self.exact = False
        self.blocks = [
            Block(part, problem.outputs, problem.fit_intercept)
            for part in problem.parts
        ]

    _place = _every("place")
    _place_exactly = _every("place_exactly")
    _move_intercept = _every("move_intercept")
    advance = _every("advance")
    take_residuals = _every("take_residuals")
    hold_multipliers = _every("hold_multipliers")
    drop_multipliers = _every("drop_multipliers")
    keep_zeta = _every("keep_zeta")
    recall_zeta = _every("recall_zeta")
    restart = _every("restart")

    slope = _total("slope")
    differentiate = _total("differentiate")
    take_chords = _total("take_chords")
    n_on_parabola = _total("n_on_parabola")
    _flow_sums = _total("compute_flow")
    _pull_exactly = _total("pull_exactly")
    rounding = _total("rounding")
    n_to_add = _total("n_to_add")
    grams = _total("grams", _add_parts)
    gram_of_weights = _total("gram_of_weights")
    norm_hessian = _total("norm_hessian")
    hessian_product = _total("hessian_product", _add_parts)
    bordered_product = _total("bordered_product")

    _shrink = _every("shrink")
    _pull = _total("pull")
    _fenchel_young = _total("fenchel_young")
    _half_squares = _total("half_squares")
    _slope_of_intercept = _total("slope_of_intercept")
    _zeta_total = _total("zeta_total")
    _hessian_of_intercepts = _total("hessian_of_intercepts")
    _n_curved = _total("n_curved")
    _mean_gram = _total("mean_gram", _add_parts)

    def place(self, theta: Array, b: Array) -> None:
        """Compute residuals from Θ and b themselves."""
        self._place(theta, b)
        self.drift = np.zeros(len(b))
        self.exact = False

    def place_exactly(self, coef: Array, intercept: Array) -> None:
        """Compute residuals of a model as it is returned, without rounding on the way.

        From then on sums over points are computed as if in twice the digits, too.
        """
        self._place_exactly(coef, intercept)
        self.drift = np.zeros(coef.shape[1])
        self.exact = True

    def move_intercept(self, change: Array) -> None:
        """Change b, and residuals with it, which keep the rounding of before."""
        self._move_intercept(change)
        self.drift += EPS * np.abs(change)

    def set_step(self, theta_step: Array, b_step: Array) -> float:
        """Set the step to search along; return the largest change of a residual."""
        return max(block.set_step(theta_step, b_step) for block in self.blocks)

    def set_zeta(self, zeta: Array) -> None:
        """Take ζ (d, n) from elsewhere, made to fit the domain of the loss."""
        ends = np.cumsum([block.n for block in self.blocks])[:-1]
        for block, part in zip(self.blocks, np.split(zeta, ends, axis=1), strict=True):
            block.set_zeta(part)

    def zeta_of_outputs(self) -> Array:
        """Collect ζ of shape (n, d), with respect to predictions."""
        parts = [block.zeta_of_outputs() for block in self.blocks]
        return (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)).T

    def farthest_targets(self) -> Array:
        """Find the largest |y| of each output."""
        found: Array = np.max(
            [np.abs(block.targets).max(axis=1) for block in self.blocks], 0
        )
        return found

    def has_curvature(self) -> Mask:
        """Tell whether any point has a curvature, for each of the losses."""
        found: Mask = np.any(
            [block.curvature.any(axis=1) for block in self.blocks], axis=0
        )
        return found

    def value(self) -> float:
        """Compute the mean loss."""
        found: float = self._fenchel_young()[0]
        return found

    def certify(self, theta: Array, alpha: float, anew: bool = True) -> Certificate:
        """Certify Θ, from its residuals and ζ.

        With an intercept, ζ is made feasible in place.  Unless `anew`, the pull is that
        of the last call, and of what has changed.
        """
        total, size = self.flow_sums()
        if self.problem.fit_intercept:
            least = EPS if self.exact else BALANCED
            for j in unbalanced(total, size, least):
                # the heavier side is shrunk; domains are intervals about 0, or balls
                heavy = (abs(total[j]) + size[j]) / 2
                factor = max(0.0, 1 - abs(total[j]) / heavy)
                self._shrink(j, math.copysign(1.0, total[j]), factor)
        value, excess = self._fenchel_young()
        pulled = self._pull_exactly() if self.exact else self._pull(anew)
        return Certificate.of(theta, alpha, pulled, value, excess)

    def certify_squares(
        self, theta: Array, alpha: float, pulled: Array | None = None
    ) -> Certificate:
        """Do `certify` for the squared loss at ζ = e, which leaves no excess.

        The pull may be known already.
        """
        pulled = self._pull(True) if pulled is None else pulled
        return Certificate.of(theta, alpha, pulled, self._half_squares(), 0.0)

    def flow_sums(self) -> Array:
        """Add up ω ζ and |ω ζ|, with respect to predictions, of each output: (2, d)."""
        sums: Array = self._flow_sums()
        if self.exact:
            for j in range(len(sums[0])):
                flows = (block.known_flow[j].tolist() for block in self.blocks)
                sums[0, j] = math.fsum(chain.from_iterable(flows))
        return sums

    def gradient(self, theta: Array, alpha: float) -> tuple[Array, Array]:
        """Compute the gradient of losses and penalty in Θ, and in b, which has none."""
        total, _ = self.flow_sums()
        return self._pull(True) + alpha * theta, total

    def changed_rows(self, most: int) -> tuple[Array, Array] | None:
        """Find (rows, weights): what has changed of a sum over points since `grams`.

        For one output.  Rows (c, r) of `features.inner`, bordered if there is an
        intercept; None if there are more than `most`, or `grams` was not called.
        """
        rows, weights = [], []
        for block in self.blocks:
            changed = block.changed_rows(most)
            if changed is None:
                return None
            rows.append(changed[0])
            weights.append(changed[1])
            most -= len(weights[-1])
        return np.concatenate(rows), np.concatenate(weights)

    def mean_gram(self, n_sums: int | None = None) -> tuple[Array, float]:
        """Compute (bordered Gram matrix, Σ h), h a point's mean curvature over outputs.

        From about so many random sums of points, or from all points.
        """
        share = 1.0 if n_sums is None else min(1.0, n_sums / self._n_curved())
        found: tuple[Array, float] = self._mean_gram(share)
        return found

    def balance(self, mu: float) -> Array:
        """Move b to where Σ ω ζ = 0, and the envelope is least; return the change."""
        if self.problem.radial:
            return self._balance_jointly(mu)
        d = self.problem.outputs.d
        change = np.array([self._find_balance(j, mu) for j in range(d)])
        self.move_intercept(change)
        return change

    def _find_balance(self, j: int, mu: float) -> float:
        problem = self.problem
        tolerance = BALANCED * problem.zeta_scale
        return find_root(
            lambda t: self._slope_of_intercept(j, mu, t),
            start=0.0,
            width=max(mu * problem.zeta_scale, 1e-3 * problem.residual_scale),
            accept=lambda t, value, slope: abs(value) <= tolerance,
        )

    def _balance_jointly(self, mu: float) -> Array:
        """Balance by Newton's method in b, for a loss of the norm over outputs."""
        problem = self.problem
        change, no_step = np.zeros(problem.outputs.d), problem.null_theta
        for _ in range(MAX_BALANCING):
            self.differentiate(mu)
            total = self._zeta_total()
            if np.abs(total).max() <= BALANCED * problem.zeta_scale:
                break
            hessian = self._hessian_of_intercepts()
            direction = -np.linalg.lstsq(hessian, total, rcond=BALANCED)[0]
            if not total @ direction < 0:  # no point has a curvature, or rounding
                direction = -total
            self.set_step(no_step, direction)
            goal = 0.1 * -(total @ direction)

            def accept(
                t: float, value: float, slope: float, goal: float = goal
            ) -> bool:
                return abs(value) <= goal

            t = find_root(
                lambda t: self.slope(mu, t),
                start=1.0,
                width=1.0,
                accept=accept,
                low=0.0,
            )
            if t == 0:
                break
            self.advance(t)
            change += t * direction
            self.drift += EPS * np.abs(t * direction)
        return change


class Block:
    """Some points, at a model.

    Parameters
    ----------
    part : Part
    outputs : Outputs
    fit_intercept : bool
    """

    def __init__(self, part: Part, outputs: "Outputs", fit_intercept: bool) -> None:
        self.features, self.points, self.targets = features, points, _ = part
        self.outputs = outputs
        self.fit_intercept = fit_intercept
        self.n = features.n
        self.e = np.empty_like(points.y)
        self.zeta = np.empty_like(points.y)
        self.shift: Array | None = None  # the multipliers
        self.best_zeta: Array | None = None
        self.flow: Array | None = None
        self._weights: Array | None = None  # of Gram matrices
        self._pulled = RunningSum(lambda flow: outputs.pull(features, flow))
        self._grams = [RunningSum(self._gram) for _ in points.losses]

    @cached_property
    def step(self) -> Array:
        return np.empty_like(self.e)

    @cached_property
    def curvature(self) -> Array:
        return self.points.make_curvature()

    # ---- where the model is ----

    def place(self, theta: Array, b: Array) -> None:
        """Compute residuals from Θ and b themselves."""
        u = self.outputs.predictions(self.features, theta, self.e)
        self.points.residuals(u, b)

    def place_exactly(self, coef: Array, intercept: Array) -> None:
        """Compute residuals of a model as it is returned, without rounding on the way.

        The intercept (2, d) is in numbers, and what they have no room for.
        """
        self.e = np.empty_like(self.e)  # ζ may be the array of before
        for j, pair in enumerate(intercept.T):
            v = np.ascontiguousarray(coef[:, j])
            self.e[j] = self.features.exact_residuals(v, pair, self.targets[j])
        self.points.steps(self.e)

    def move_intercept(self, change: Array) -> None:
        """Change b, and residuals with it."""
        if change.any():
            self.e += self.points.sign * change[:, None]

    def set_step(self, theta_step: Array, b_step: Array) -> float:
        """Set the step to search along; return the largest change of a residual."""
        if theta_step.any():
            self.outputs.predictions(self.features, theta_step, self.step)
            self.step += b_step[:, None]
        else:
            self.step[:] = b_step[:, None]
        self.points.steps(self.step)
        found: float = max(self.step.max(), -self.step.min())
        return found

    def slope(self, mu: float, t: float) -> Array:
        """Compute d/dt and d²/dt² of the envelopes of the losses, t steps ahead."""
        return self.points.slope(self.e, self.step, self.shift, mu, t)

    def advance(self, t: float) -> None:
        """Go t steps ahead."""
        self.e += t * self.step

    def slope_of_intercept(self, j: int, mu: float, t: float) -> Array:
        """Compute `slope` where b of output j alone moves, by t."""
        points, e, shift = self.points, self.e, self.shift
        if len(e) > 1:
            points, e = points.of_output(j), e[j : j + 1]
            shift = None if shift is None else shift[j : j + 1]
        return points.slope(e, points.sign, shift, mu, t)

    # ---- derivatives ----

    def differentiate(self, mu: float) -> Indices:
        """Compute ζ and curvatures of the envelope; return how many are not 0."""
        self._weights = None
        return self.points.smooth_derivatives(
            self.e, self.shift, mu, self.zeta, self.curvature
        )

    def n_on_parabola(self) -> int:
        """Count the points where `Huber` is a parabola, of a norm if outputs are."""
        if self.points.radial:
            return int(np.count_nonzero(self.curvature[1] == 0))
        return int(np.count_nonzero(self.curvature))

    def take_chords(self) -> Indices:
        """Give ζ/e to curvatures, for `Huber`; return how many are not 0.

        That of the parabola above the loss that touches it at e: a tangent, beyond
        kappa, says nothing of where the loss bends again.
        """
        curvature = self.curvature
        if self.points.radial:
            curvature[1] = 0.0
        else:
            straight = (curvature == 0) & (self.e != 0)
            chords = self.points.weight * self.zeta
            np.divide(chords, self.e, out=curvature, where=straight)
            self._weights = curvature.copy()
        n_losses = len(self.points.losses)
        found: Indices = np.count_nonzero(curvature[:n_losses], axis=1)
        return found

    def take_residuals(self, copy: bool = False) -> None:
        """Let ζ be e, for the squared loss."""
        self.zeta = self.e.copy() if copy else self.e

    def hold_multipliers(self) -> None:
        """Let ζ be the multipliers from now on."""
        if self.shift is None:
            self.shift = np.empty_like(self.zeta)
        np.copyto(self.shift, self.zeta)

    def drop_multipliers(self) -> None:
        self.shift = None

    def set_zeta(self, zeta: Array) -> None:
        self.zeta = self.points.into_domain(self.points.sign * zeta)

    def keep_zeta(self) -> None:
        """Remember ζ as the best one."""
        if self.best_zeta is None:
            self.best_zeta = np.empty_like(self.zeta)
        np.copyto(self.best_zeta, self.zeta)

    def recall_zeta(self) -> None:
        assert self.best_zeta is not None
        self.zeta, self.best_zeta = self.best_zeta, None

    def zeta_of_outputs(self) -> Array:
        return self.points.steps(self.zeta.copy())  # ±1 is its own inverse

    # ---- sums ----

    def compute_flow(self) -> Array:
        """Add up ω ζ and |ω ζ|, with respect to predictions, of each output: (2, d)."""
        self.flow, sums = self.points.flow(self.zeta, self.flow)
        return sums

    @property
    def known_flow(self) -> Array:
        """The flow, after `compute_flow`."""
        assert self.flow is not None
        return self.flow

    def shrink(self, j: int, sign: float, factor: float) -> None:
        """Shrink the ζ of output j on one side, and the flow with it."""
        flow = self.known_flow
        # of all points: a selection of some takes ten times as long
        factors = np.where(sign * flow[j] > 0, factor, 1.0)
        self.zeta[j] *= factors
        flow[j] *= factors

    def pull(self, anew: bool) -> Array:
        """Compute Bᵀ Σ_i flow_i z_iᵀ."""
        if anew:
            return self.outputs.pull(self.features, self.known_flow)
        pulled = self._pulled(self.known_flow)
        self.flow = None  # it is kept there
        return pulled

    def pull_exactly(self) -> Array:
        return self.outputs.pull_exactly(self.features, self.known_flow)

    def fenchel_young(self) -> Array:
        return self.points.fenchel_young(self.e, self.zeta)

    def half_squares(self) -> float:
        square: Any = self.known_flow.reshape(-1) @ self.e.reshape(-1)
        half: float = square / 2
        return half

    def rounding(self, error: Array, exact: bool) -> Array:
        """Bound what rounding hides of losses, sum ω|e·ζ|: `WeightedLoss.rounding`."""
        return self.points.rounding(self.e, self.zeta, error, exact)

    # ---- Hessians ----

    def zeta_total(self) -> Array:
        return self.zeta @ self.points.weight

    def hessian_of_intercepts(self) -> Array:
        across, along = self.curvature
        hessian: Array = (self.zeta * along) @ self.zeta.T
        hessian[np.diag_indices_from(hessian)] += across.sum()
        return hessian

    def restart(self) -> None:
        """Let sums begin as if for the first time, to the last bit."""
        for sums in (self._pulled, *self._grams):
            sums.restart()

    def _with_weights(self) -> Iterable[tuple[RunningSum, Array]]:
        """Pair sums of Gram matrices with the weights they are to have.

        The curvature of a piecewise loss is its weight divided by the radius of its
        envelope, or 0.  The radius is left out, since stages change it for every point
        and the steps of a stage for none.
        """
        if self._weights is None:
            self._weights = (
                self.curvature.copy()
                if self.points.loss.logistic
                else np.where(self.curvature > 0, self.points.weight, 0.0)
            )
        return zip(self._grams, self._weights, strict=True)

    def n_to_add(self) -> int:
        """Count the points, of all outputs, that the next `grams` would sum."""
        return sum(gram.n_to_add(h) for gram, h in self._with_weights())

    def grams(self) -> list[Array]:
        """List bordered Gram matrices of `features.inner`: of h for each output.

        Upper triangles, in whose coordinates solvers have their systems.
        """
        return [gram(h) for gram, h in self._with_weights()]

    def changed_rows(self, most: int) -> tuple[Array, Array] | None:
        """Find `Sample.changed_rows` of these points."""
        ((gram, h),) = self._with_weights()
        change = gram.change(h)
        if change is None or np.count_nonzero(change) > most:
            return None
        changed = np.flatnonzero(change)
        rows = self.features.inner.rows(changed, bordered=self.fit_intercept)
        return rows, change[changed]

    def gram_of_weights(self) -> Array:
        """Form the Gram matrix of `features.inner` by weights, of the squared loss."""
        return self._gram(self.points.weight)

    def _gram(self, h: Array) -> Array:
        return self.features.inner.gram(h, bordered=self.fit_intercept)

    def norm_hessian(self, outputs: "Outputs") -> Array:
        """Form the Hessian without alpha, of a loss of the norm: the upper triangle."""
        inner, zeta = self.features.inner, self.zeta
        r, k, d = inner.r, outputs.k, outputs.d
        across, along = self.curvature
        mix = np.eye(d) if outputs.mix is None else outputs.mix
        pulled = mix.T @ zeta
        H = np.zeros((k * r + d * self.fit_intercept,) * 2)
        for a in range(k):
            rows = slice(a * r, (a + 1) * r)
            for c in range(a, k):
                weight = along * pulled[a] * pulled[c]
                if a == c:
                    weight += outputs.values[a] * across
                gram = inner.gram(weight)
                H[rows, c * r : (c + 1) * r] = gram if a == c else symmetric(gram)
            if self.fit_intercept:
                cross = along * pulled[a] * zeta + across * mix[:, a : a + 1]
                H[rows, k * r :] = inner.t_dot(cross).T
        if self.fit_intercept:
            H[k * r :, k * r :] = self.hessian_of_intercepts()
        return H

    def hessian_product(
        self, outputs: "Outputs", theta: Array, b: Array
    ) -> tuple[Array, Array]:
        """Compute (pull, sums): the Hessian of the losses times a step.

        Steps and pulls are in the coordinates of `features.inner`.
        """
        inner = self.features.inner
        du = outputs.predictions(inner, theta)
        if self.fit_intercept:
            du += b[:, None]
        if self.points.radial:
            across, along = self.curvature
            sizes = along * np.einsum("jn,jn->n", self.zeta, du)
            du = across * du + self.zeta * sizes
        else:
            du *= self.curvature
        return outputs.pull(inner, du), du.sum(axis=1)

    def bordered_product(self, v: Array) -> Array:
        """Compute the same for one output, in one pass: [Z 1]ᵀ·diag(h)·[Z 1]·v."""
        return self.features.inner.bordered_gram_dot(self.curvature[0], v)

    @property
    def _mean_curvature(self) -> Array:
        """The trace of the Hessian of every point, divided by d."""
        if not self.points.radial:
            found: Array = self.curvature.mean(axis=0)
            return found
        across, along = self.curvature
        squares = np.einsum("jn,jn->n", self.zeta, self.zeta)
        mean = across + along * (squares / len(self.zeta))
        found = np.maximum(mean, 0.0)  # it is not negative, but for rounding
        return found

    def n_curved(self) -> int:
        return int(np.count_nonzero(self._mean_curvature))

    def mean_gram(self, share: float) -> tuple[Array, float]:
        """Find (Gram matrix, Σ h) of the mean curvatures.

        By sums of points, if they are to be a small share of those with a curvature.
        """
        h = self._mean_curvature
        if share < SKETCHED:
            n_sums = math.ceil(share * np.count_nonzero(h))
            inner = self.features.inner
            return inner.sketched_gram(h, n_sums, self.fit_intercept), h.sum()
        return self._gram(h), h.sum()
