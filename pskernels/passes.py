"""Fits by passes: points that are not in memory, and never are all at once.

A pass answers a `Request` with sums over points: the loss and its dual, the pull, a
Gram matrix.  `answer` is that of some points, a pure function of their features, their
targets and the request; answers of chunks are added up in their order, wherever they
were computed.  `minimise` makes requests of the answers before: Newton steps, a pass
each, to a certified gap.

Nothing is kept of a point from pass to pass.  The multipliers of `solvers.newton`,
which a point has, are computed anew: those of stage k + 1 are derivatives of the
envelope of stage k at the model that it ended with.  So a request has these models, and
a point's multipliers cost a scalar product for each.
"""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pskernels._products import EPS
from pskernels._types import Array, Mask
from pskernels.losses import EpsilonInsensitive, Loss, Squared, WeightedLoss
from pskernels.objective import (
    BALANCED,
    Certificate,
    gap_scale,
    norm,
    relative_gap,
    squared_norm,
)
from pskernels.outputs import Outputs
from pskernels.rounding import bound_rounding, make_model
from pskernels.solvers.base import SAFETY, Iteration
from pskernels.solvers.hessian import (
    add_penalty,
    factorise,
    solve_factorised,
    solve_inner,
)
from pskernels.solvers.newton import MU_DECREASE, STAGE_TOLERANCE

if TYPE_CHECKING:
    from pskernels.features import BlockFeatures

# A step that ends behind the minimum, at a slope of more than this share of the one
# that it began with, is cut.
STEEP = 0.5
# Or, if it was cut so often, taken as it is.
MAX_CUTS = 6


class Model(NamedTuple):
    """Coefficients, in whose envelope of width mu points are."""

    theta: Array  # (r,)
    intercept: float
    mu: float


class Request(NamedTuple):
    """What a pass is to sum, of one output."""

    stages: tuple[
        Model, ...
    ]  # models of the stages before, whose derivatives are multipliers
    at: Model
    error: float  # what predictions may be wrong by
    survey: bool = False  # look for the largest features, too


@dataclass
class Answer:
    """Sums over points.

    Those of two sides are of flows above 0, and of all others.  What moves ζ is for a
    sum of flows that has to be 0: by how much it changes sums if every ζ inside of the
    domain goes to its end, that of the least flow or that of the largest.
    """

    value: Array  # (sides,), Σ ω ℓ
    excess: Array  # (sides,), Σ ω (ℓ + ℓ* - e·ζ)
    flow: Array  # (sides,), Σ ω ζ, with respect to predictions
    pull: Array  # (sides, r), Σ ω ζ z
    moved_excess: Array  # (2,), or (0,) where that is not needed
    moved_flow: Array  # (2,)
    moved_pull: Array  # (2, r)
    gram: Array  # of `features.inner` by curvatures, bordered by the intercept
    hidden: Array  # (2,), what rounding hides, and Σ ω |e·ζ|
    n_active: int
    largest: Array | None = None  # (r,), of a survey: the largest |z|

    def scaled(self, factor: float) -> "Answer":
        """Return the answer of points that count `factor` times as much."""
        found = {
            field.name: factor * getattr(self, field.name)
            for field in fields(self)
            if field.name not in ("n_active", "largest")
        }
        return replace(self, **found)

    def __add__(self, other: "Answer") -> "Answer":
        """Add up the answers of two chunks."""
        sums = {
            field.name: getattr(self, field.name) + getattr(other, field.name)
            for field in fields(self)
            if field.name != "largest"
        }
        if self.largest is not None:
            assert other.largest is not None  # both are of one request
            sums["largest"] = np.maximum(self.largest, other.largest)
        return Answer(**sums)


def answer(
    features: "BlockFeatures",
    loss: Loss,
    y: Array,
    weight: Array,
    request: Request,
    fit_intercept: bool,
    gram: Array | None = None,
) -> Answer:
    """Answer a request for some points.

    Parameters
    ----------
    features : Features or FactoredFeatures
    loss : Loss
    y : array of shape (n,), checked
    weight : array of shape (n,)
        Those of all points, not of these alone, add up to 1.
    request : Request
    fit_intercept : bool
    gram : array, optional
        The Gram matrix, where it is known: that of squares is the same for all outputs.

    Returns
    -------
    Answer
    """
    points = WeightedLoss(loss, y[None], weight, features.n_threads)
    models = [*request.stages, request.at]
    predictions = features.dot(np.stack([model.theta for model in models]))
    zeta, curvature, shift = np.empty_like(points.y), points.make_curvature(), None
    for k, model in enumerate(models):
        if k > 0:
            shift = zeta.copy()
        e = points.residuals(predictions[k : k + 1], np.array([model.intercept]))
        n_active = points.smooth_derivatives(e, shift, model.mu, zeta, curvature)
    if isinstance(loss, Squared):  # where e is 0 as well: the expansion needs them all
        curvature[0] = weight
    flow, _ = points.flow(zeta)
    sides = [flow[0] > 0, flow[0] <= 0] if fit_intercept else [np.ones(len(y), bool)]
    flows = np.where(sides, flow, 0.0)
    value, excess = np.transpose(
        [_of_some(points, side).fenchel_young(e, zeta) for side in sides]
    )
    moved_excess: Array = np.empty(0)
    moved: Array = np.empty((0, len(y)))
    if fit_intercept and not loss.smooth:
        moved_excess, moved = _moves(points, e, zeta, curvature[0] > 0)
    pull = features.t_dot(np.concatenate([flows, moved]))
    if gram is None:
        gram = features.inner.gram(curvature[0], bordered=fit_intercept)
    return Answer(
        value=value,
        excess=excess,
        flow=flows.sum(axis=1),
        pull=pull[: len(flows)],
        moved_excess=moved_excess,
        moved_flow=moved.sum(axis=1),
        moved_pull=pull[len(flows) :],
        gram=gram,
        hidden=points.rounding(e, zeta, np.array([request.error])),
        n_active=int(n_active.sum()),
        largest=features.largest if request.survey else None,
    )


def _of_some(points: WeightedLoss, which: Mask) -> WeightedLoss:
    """Return the loss of some of the points."""
    weight = np.where(which, points.weight, 0.0)
    return WeightedLoss(points.loss, points.y, weight, points.n_threads)


def _moves(
    points: WeightedLoss, e: Array, zeta: Array, inside: Mask
) -> tuple[Array, Array]:
    """Find what moves ζ to the ends of the domain: (2,) of the excess, (2, n) of flows.

    Or to 0, where that is on the way and the loss has a corner on each side of it.  At
    a corner, where the envelope bends, any ζ costs next to nothing.
    """
    loss, some = points.loss, _of_some(points, inside)
    lower, upper = np.full_like(zeta, loss.lower), np.full_like(zeta, loss.upper)
    if isinstance(loss, EpsilonInsensitive):
        lower[zeta > 0], upper[zeta < 0] = 0.0, 0.0
    _, before = some.fenchel_young(e, zeta)
    excess, moved = [], []
    for ends in ((lower, upper), (upper, lower)):  # by the sign of de/du
        end = np.where(points.sign > 0, *ends)
        excess.append(some.fenchel_young(e, end)[1] - before)
        moved.append(some.flow(end - zeta)[0][0])
    return np.array(excess), np.stack(moved)


@dataclass(frozen=True)
class PassProblem:
    """What requests of one output are made of.

    Parameters
    ----------
    frame : features of any rows
        For their W and penalty.
    largest : array of shape (r,)
        A bound on |z| of each column, of all points.
    sum_error : float
        A bound on the error of sums over points, relative to that of the sizes.
    loss : Loss
    alpha : float
    fit_intercept : bool
    shift : float
        What was taken from the targets.
    null_objective : float
        That of a constant, about, for data that are interpolated.
    """

    frame: "BlockFeatures"
    largest: Array
    sum_error: float
    loss: Loss
    alpha: float
    fit_intercept: bool
    shift: float = 0.0
    null_objective: float = 0.0

    def request(self, stages: tuple[Model, ...], at: Model) -> Request:
        """Make the request of a model."""
        rounding = (self.frame.n_terms + 9) * EPS
        error = rounding * float(np.abs(at.theta) @ self.largest)
        error += self.frame.row_rounding * norm(at.theta)
        return Request(stages, at, error)

    def certify(self, theta: Array, answer: Answer) -> Certificate:
        """Certify a model; with an intercept, ζ is moved to where flows add up to 0.

        By a share s of the moves, and a share t of the way to 0 (whose conjugate is 0)
        on the heavier side.  Conjugates are convex, and s + t ≤ 1: what that adds to
        the excess is at most these shares of what whole moves add.
        """
        value, excess = answer.value.sum(), answer.excess.sum()
        pulled = answer.pull.sum(axis=0)
        if self.is_balanced(answer):
            return Certificate.of(theta, self.alpha, pulled, value, excess)
        heavy = int(answer.flow.sum() < 0)
        lost = answer.value[heavy] - answer.excess[heavy]
        found = []
        for s, t in self._shares(answer, heavy):
            more, pull = t * lost, pulled - t * answer.pull[heavy]
            if s > 0:
                more = more + s * answer.moved_excess[heavy]
                pull = pull + s * answer.moved_pull[heavy]
            found.append(Certificate.of(theta, self.alpha, pull, value, excess + more))
        return min(found, key=lambda certificate: certificate.gap)

    def _shares(self, answer: Answer, heavy: int) -> list[tuple[float, float]]:
        """List (s, t) by which flows add up to 0: total + s·moved - t·flow = 0."""
        total, flow = answer.flow.sum(), answer.flow[heavy]
        shares = [(0.0, min(1.0, total / flow))]
        moved = answer.moved_flow[heavy] if len(answer.moved_flow) else 0.0
        if moved != 0 and -total / moved <= 1:
            shares.append((-total / moved, 0.0))
        elif moved != 0:
            s = (flow - total) / (flow + moved)
            shares.append((s, 1 - s))
        return shares

    def is_balanced(self, answer: Answer) -> bool:
        """Tell whether flows add up to 0 where they have to, but for rounding."""
        size = np.abs(answer.flow).sum()
        return not self.fit_intercept or abs(answer.flow.sum()) <= BALANCED * size

    def hidden(self, at: Model, answer: Answer, certificate: Certificate) -> float:
        """Bound what rounding hides of the gap, by the formula of all solvers."""
        features: Any = SimpleNamespace(
            n_terms=self.frame.n_terms,
            largest=self.largest,
            row_rounding=self.frame.row_rounding,
            sum_error=lambda several: self.sum_error,
            moved=lambda coef: 0.0,
            origin=None,
        )
        problem: Any = SimpleNamespace(
            features=features,
            outputs=Outputs.independent(1),
            loss=self.loss,
            fit_intercept=self.fit_intercept,
            sum_error=self.sum_error,
            shift=np.array([self.shift]),
        )
        size = np.abs(answer.flow).sum()
        sample: Any = SimpleNamespace(
            problem=problem,
            drift=np.zeros(1),
            rounding=lambda error, exact: answer.hidden,
            flow_sums=lambda: np.array([[BALANCED * size], [size]]),
        )
        theta, b = at.theta[None], np.array([at.intercept])
        model = make_model(problem, theta, b)
        return bound_rounding(sample, self.alpha, model, certificate)

    def gradient(self, theta: Array, answer: Answer) -> Array:
        """Compute the gradient of losses and penalty in Θ, and in b if there is one."""
        gradient = answer.pull.sum(axis=0) + self.alpha * theta
        return (
            np.append(gradient, answer.flow.sum()) if self.fit_intercept else gradient
        )

    def step(self, gradient: Array, answer: Answer) -> Array:
        """Find Newton's step of Θ, and of b if there is one."""
        frame = self.frame
        H = add_penalty(answer.gram.copy(), frame.r, self.alpha, frame.penalty)
        factor = factorise(H, frame.n_threads)
        return -solve_inner(
            frame, lambda b: solve_factorised(factor, b), gradient, frame.r
        )

    def move(self, at: Model, step: Array, t: float = 1.0) -> Model:
        """Go t steps ahead."""
        theta = at.theta + t * step[: len(at.theta)]
        moved = t * step[-1] if self.fit_intercept else 0.0
        return at._replace(theta=theta, intercept=float(at.intercept + moved))


@dataclass
class Outcome:
    """The best model of some passes."""

    theta: Array
    intercept: float
    objective: float
    gap: float
    dual_gap: float  # relative to the objective
    history: list[Iteration]


class _Best:
    """The best model and the best bound so far, and the history."""

    def __init__(
        self, problem: PassProblem, tol: float, report: Callable[[Iteration], object]
    ) -> None:
        self.problem, self.tol, self._report = problem, tol, report
        self.objective, self._bound, self._gap = np.inf, -np.inf, np.inf
        self._most = np.inf  # what the objective may be, but for rounding
        self.at: Model | None = None
        self.history: list[Iteration] = []
        self._began = time.perf_counter()

    def add(self, at: Model, answer: Answer) -> Certificate:
        """Take in what a pass found; return its certificate."""
        certificate = self.problem.certify(at.theta, answer)
        hidden = self.problem.hidden(at, answer, certificate)
        gap = certificate.gap + hidden
        if certificate.objective < self.objective or self.at is None:
            self.objective, self.at = certificate.objective, at
            self._most = certificate.objective + hidden
            self._gap = gap
        self._bound = max(self._bound, certificate.objective - gap)
        self._gap = min(self._gap, max(self._most - self._bound, 0.0))
        line = Iteration(
            len(self.history),
            float(certificate.objective),
            self.relative_gap,
            time.perf_counter() - self._began,
            answer.n_active,
            float(at.mu),
        )
        self.history.append(line)
        self._report(line)
        return certificate

    @property
    def relative_gap(self) -> float:
        scale = gap_scale(self.objective, self.problem.null_objective)
        return float(relative_gap(self._gap, scale))

    @property
    def suffices(self) -> bool:
        return self.relative_gap <= SAFETY * self.tol

    def outcome(self) -> Outcome:
        assert self.at is not None  # there was a pass
        return Outcome(
            self.at.theta,
            self.at.intercept + self.problem.shift,
            float(self.objective),
            float(self._gap),
            self.relative_gap,
            self.history,
        )


def minimise(
    problem: PassProblem,
    start: Model,
    tol: float,
    max_passes: int,
    report: Callable[[Iteration], object] = lambda line: None,
) -> Generator[Request, Answer, Outcome]:
    """Find a model by passes: a generator of requests, which is sent their answers.

    Parameters
    ----------
    problem : PassProblem
    start : Model
        Its mu is the width of the first envelope; 0 takes the loss as it is.
    tol : float
        The certified gap to stop at, relative to the objective.
    max_passes : int
    report : callable
        Takes an `Iteration`, after every pass.

    Returns
    -------
    Outcome
        As the value of StopIteration.
    """
    best = _Best(problem, tol, report)
    stages: tuple[Model, ...] = ()
    at, search = start, None
    while True:
        found = yield problem.request(stages, at)
        certificate = best.add(at, found)
        if best.suffices or len(best.history) >= max_passes:
            return best.outcome()
        gradient = problem.gradient(at.theta, found)
        if search is not None:
            t = search.cut(gradient)
            if t is not None:
                at = problem.move(search.base, search.step, t)
                continue
        step = problem.step(gradient, found)
        # what moves ζ to where flows add up to 0 is no part of the envelope's excess
        excess = found.excess.sum()
        solved = certificate.gap - excess <= STAGE_TOLERANCE * excess
        search = _Search(at, step, gradient)
        if solved and at.mu > 0:
            # multipliers are those of where this stage ends, and the step is taken too:
            # a pass for both
            stages, search = (*stages, at), None
            radius = problem.loss.radius
            at = at._replace(mu=max((at.mu + radius) / MU_DECREASE - radius, 0.0))
        at = problem.move(at, step)


class _Search:
    """A step of which slopes are known where passes were: it is cut where it is steep.

    Along a step the objective is convex, and slopes rise.
    """

    def __init__(self, base: Model, step: Array, gradient: Array) -> None:
        self.base, self.step = base, step
        self._initial = slope = float(gradient @ step)
        self._low = 0.0, slope
        self._t, self._n_cuts = 1.0, 0

    def cut(self, gradient: Array) -> float | None:
        """Find the next t, given the gradient at the last; None if that will do."""
        slope = float(gradient @ self.step)
        if slope <= STEEP * -self._initial or self._n_cuts == MAX_CUTS:
            return None
        low, slope_low = self._low
        self._n_cuts += 1
        share = slope_low / (slope_low - slope)
        self._t = low + (self._t - low) * min(max(share, 0.1), 0.9)
        return self._t


def solve_squares(
    problem: PassProblem,
    tol: float,
    max_passes: int,
    report: Callable[[Iteration], object] = lambda line: None,
) -> Generator[Request, Answer, Outcome]:
    """Find the model of the squared loss by one pass: a generator, as `minimise` is.

    The loss is its expansion to the second order, so that the pass at 0 is enough for
    the solution and its certificate, unless rounding has taken too much of them.
    """
    best = _Best(problem, tol, report)
    origin = Model(np.zeros(problem.frame.r), 0.0, 0.0)
    found = yield Request((), origin, error=0.0, survey=True)
    assert found.largest is not None  # as it was asked for
    problem = best.problem = replace(problem, largest=found.largest)
    step = problem.step(problem.gradient(origin.theta, found), found)
    at = problem.move(origin, step)
    expanded = _expand(problem, found, at, step)
    if problem.is_balanced(expanded):
        best.add(at, expanded)
        if best.suffices or max_passes == 1:
            return best.outcome()
    elif max_passes == 1:
        value = expanded.value.sum() + problem.alpha / 2 * squared_norm(at.theta)
        return Outcome(
            at.theta, at.intercept + problem.shift, float(value), np.inf, np.inf, []
        )
    return (yield from minimise(problem, at, tol, max(max_passes - 1, 1), report))


def _expand(problem: PassProblem, found: Answer, at: Model, step: Array) -> Answer:
    """Find the answer of the squared loss a step from 0, from that at 0."""
    W, r = problem.frame.W, problem.frame.r
    inner = step if W is None else np.append(W @ step[:r], step[r:])
    gram = found.gram + np.triu(found.gram, 1).T
    bent = gram @ inner  # what the step adds to pull and flow, in these coordinates
    slope = np.append(found.pull.sum(axis=0), found.flow.sum())[: len(step)]
    pull = slope[:r] + (bent[:r] if W is None else bent[:r] @ W)
    before, added = found.value.sum(), inner @ bent / 2
    value = before + slope @ step + added
    sizes = before + np.abs(slope) @ np.abs(step)
    sizes += np.abs(inner) @ np.abs(gram) @ np.abs(inner) / 2
    error = (problem.sum_error + 4 * len(step) * EPS) * sizes
    # what sums of e·z are made of: targets and predictions, each at its largest
    size = np.sqrt(2 * before) + problem.largest @ np.abs(at.theta) + abs(at.intercept)
    total = found.flow.sum() + bent[-1] if problem.fit_intercept else 0.0
    return Answer(
        value=np.array([value, 0.0]),
        excess=np.zeros(2),
        flow=np.array([size + total, total - size]) / 2,
        pull=np.stack([pull, np.zeros(r)]),
        moved_excess=np.empty(0),
        moved_flow=np.empty(0),
        moved_pull=np.empty((0, r)),
        gram=found.gram,
        hidden=np.array([error, 2 * value]),
        n_active=found.n_active,
    )
