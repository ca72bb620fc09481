"""A metric that is learnt from targets: recursive feature machines on a sketch.

    fit       squared errors of some points on a sketch of few rows; gamma and alpha are
              the best of a few by points that are held out
    AGOP      E[∇f ∇fᵀ] over points, the average gradient outer product: L² is its
              diagonal, or L its square root
    again     with the kernel of L·x, for some rounds; the best one is kept
    screen    where a kernel sees next to nothing, begin with the features that targets
              have to do with by themselves or in pairs (`pskernels.screening`)
    compare   kernels on the metrics that were learnt, with more rows

Squares are fitted whatever the loss of the machine is: their Gram matrix serves all
alphas, so that a round takes a fraction of a second.  For losses that outliers do not
move, errors are clipped (`robust`); for quantiles, which may differ where means do not,
the size of the errors is a second target (`spread`).
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from pskernels._robust import centred, robust_size, scale_of
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._types import AnyArray, Array, Indices, PointsLike
from pskernels._validation import check_memory_limit
from pskernels.feature_map import (
    FeatureMap,
    fit_and_transform,
    fit_transform_gammas,
    share_distances,
)
from pskernels.features import as_features
from pskernels.kernels import GammaKernel, Kernel, Laplacian, get_kernel
from pskernels.point_metric import Metric, check_metric
from pskernels.screening import screen_features
from pskernels.sketches import SubSampling
from pskernels.solvers.direct import ridge_path

# Kernels that kernel="auto" compares, those whose rounds are tried for it, and the
# gammas that they are compared at, in units of `_base_gamma`.
KERNELS = ("rbf", "laplacian", "matern12", "matern32")
LEARNING_KERNELS = ("rbf", "laplacian", "matern12")
COMPARED_GAMMAS = {"laplacian": (1.0, 3.0), "matern12": (0.3,)}

# Points of a round, points that are held out, and rows of the sketch; rows on which
# kernels are compared at first, and at last: rough ones gain more by rows.
POINTS, HELD_OUT, ROWS = 5000, 2000, 300
COMPARED_ROWS, FINALISTS, MOST_POINTS = 600, 3, 8000
# Points whose gradients are averaged, and bytes of them that are there at a time.
GRADIENT_POINTS, GRADIENT_BYTES = 2000, 2**25

# Rounds at most; those that may pass without a gain of so much, and while next to
# nothing is learnt: a function that is hidden in many features shows in the metric
# before it shows in the loss.  What is left of targets, of few features, shows at once
# or not at all: R² of six sets is the same, for up to a third less time (california;
# kin8nm and bike_hour take as long); `python bench/accuracy.py regression` has them.
FEW_FEATURES, FEW_PATIENCE = 12, 1
MAX_ROUNDS, PATIENCE, BLIND_PATIENCE, GAIN = 8, 3, 4, 0.005
# Losses, as shares, that show that next to nothing was learnt, for which more rows are
# tried, nothing, that much is left, or little; parts of a function that are looked for
# behind the first.
BLIND, NOTHING, MUCH, LITTLE, MORE_ROWS, MAX_LOOKS = 0.8, 0.9, 0.3, 0.1, 1000, 4
# After so many rounds, a kernel whose loss is so many times the best one is given up.
EARLY_ROUNDS, HOPELESS = 2, 1.25

# Multiples of 1 / (the variance of L·x) in the first round, and of the gamma of the
# round before in later ones; n·alpha.
FIRST_GAMMAS = np.array([0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
NEXT_GAMMAS = np.array([1 / 3, 1.0, 3.0])
PENALTIES = 10.0 ** np.arange(-4, 2)

# Shares of features that are the same, but for rounding.
ALIKE = 1e-9

# Errors are clipped at so many robust standard deviations, targets of the first round
# at so many of theirs.
CLIP, FIRST_CLIP = 3.0, 10.0


@dataclass(frozen=True)
class Round:
    """A round of learning, or a kernel that was compared: a fit, and how good it was.

    Parameters
    ----------
    kernel : str
    number : int or None
        Of the round, 0 the first; None for a kernel that was compared.
    gamma : float
    alpha : float
        That of the points of the round.
    loss : float
        Of held-out points, as a share of that of a constant.
    importances : tuple of float
        What features add to squared distances, as shares.
    """

    kernel: str
    number: int | None
    gamma: float
    alpha: float
    loss: float
    importances: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = (self.gamma, self.alpha, self.loss, *self.importances)
        numbers += () if self.number is None else (self.number,)
        if not isinstance(self.kernel, str) or not np.isfinite(numbers).all():
            raise ValueError(f"a round must have a name and numbers, got {self}")


def is_learnt(rounds: Sequence[Round], importances: Array) -> bool:
    """Tell whether a metric was learnt, by the importances that `Learnt` finds of it.

    That of the first round weighs all features alike, and may be the one that is kept.
    """
    shares = importances[importances > 0]  # of features that are not constant
    later = any(one.number for one in rounds)
    return later and (len(shares) < 2 or bool(np.ptp(shares) > ALIKE * shares.max()))


class Learnt(NamedTuple):
    """What `MetricLearner.learn` finds."""

    kernel: Kernel  # its gamma a number, with its metric
    penalty: float  # n·alpha
    rounds: list[Round]
    finalists: list[Kernel]  # of the best few kernels, this one the first
    deviations: Array  # of features, among the points of rounds

    def importances(self, metric: Metric) -> Array:
        """Compute the shares of features in squared distances of L·x."""
        return _shares(metric, self.deviations)


class _Points(NamedTuple):
    """Points, targets (n, outputs), and weights."""

    X: AnyArray
    y: Array
    weight: Array


class _Fit(NamedTuple):
    """The best fit of a round, by held-out points."""

    name: str | Kernel  # of the kernel, or itself
    metric: Metric | None
    loss: float
    gamma: float | None
    penalty: float
    n: int
    feature_map: FeatureMap
    coef: Array  # of targets, and of their spread
    intercept: Array  # of targets
    number: int | None = None  # of the round

    def predict(self, X: AnyArray) -> Array:
        """Predict targets, (n, outputs)."""
        k = len(self.intercept)
        return self.feature_map.predict(X, self.coef[:, :k], self.intercept)


@dataclass(frozen=True)
class MetricLearner:
    """Learns the metric of a kernel, and the kernel if there are several.

    Parameters
    ----------
    kernels : tuple of str or kernel objects
        The best one is chosen.
    metric : {"learn", "learn-full"} or Metric, optional
        What to learn, a diagonal L or a matrix; or L itself, or none.
    gamma : float, optional
        None means the best of a few.
    groups : array of int, shape (d,), optional
        Features of one group share their weight.
    robust : bool
        Clip errors; losses of held-out points are |y - f| then, else squares.
    spread : bool
        Learn where |y - f| is large, too: gradients of its size count as much.
    rows : int
        Of the sketch on which alpha is chosen, and the last kernels are compared.
    thorough : bool
        Take some more seconds where much of the targets is not explained: parts that
        few rows do not see are looked for with more of them.
    seed : int
    n_threads : int, optional
    memory_limit : int, optional
    seconds : float, optional
        Begin no fit that would end later.
    verbose : int
        1 tells of each round.
    """

    kernels: tuple[str | Kernel, ...]
    metric: str | Metric | None = "learn"
    gamma: float | None = None
    groups: Indices | None = None
    robust: bool = False
    spread: bool = False
    rows: int = COMPARED_ROWS
    thorough: bool = False
    seed: int = 0
    n_threads: int | None = None
    memory_limit: int | None = None
    seconds: float | None = None
    verbose: int = 0

    def learn(self, X: PointsLike, y: Array, weight: Array | None = None) -> Learnt:
        """Learn from points, or some of them if there are many.

        Parameters
        ----------
        X : array or sparse array of shape (n, d), checked
        y : array of shape (n,) or (n, outputs)
        weight : array of shape (n,), optional

        Returns
        -------
        Learnt
        """
        held, most, train = self._take_points(X, y, weight)
        deviations = _deviations(train.X)
        unit = _unit(deviations)
        clock = _Clock(self.seconds)
        with single_threaded_blas():
            fits: list[_Fit] = []
            bests: list[_Fit] = []
            if isinstance(self.metric, str):
                for name in self._learning_kernels():
                    if bests and clock.is_late(len(train.y), ROWS, len(FIRST_GAMMAS)):
                        break
                    goal = HOPELESS * min(map(_loss_of, bests), default=np.inf)
                    rounds = list(self._rounds(name, train, held, unit, goal, clock))
                    fits += rounds
                    bests.append(_best_of(rounds))
                more = self._look_again(bests, train, held, unit, clock)
                if more:
                    fits += more
                    bests.append(_best_of(more))
                goal = HOPELESS * min(map(_loss_of, bests))
                bests = [fit for fit in bests if fit.loss <= goal]
            finalists = self._compare(bests, train, held, clock)
            last = self._compare_at_last(finalists or bests, most, held, clock)
        ranked = sorted(last or finalists or bests, key=_loss_of)[:FINALISTS]
        kernels = [fit.feature_map.kernel_ for fit in ranked]
        described = [_describe(fit, deviations) for fit in fits + finalists + last]
        return Learnt(kernels[0], ranked[0].penalty, described, kernels, deviations)

    def _learning_kernels(self) -> tuple[str | Kernel, ...]:
        return self.kernels if len(self.kernels) == 1 else LEARNING_KERNELS

    def _take_points(
        self, X: PointsLike, y: Array, weight: Array | None
    ) -> tuple[_Points, _Points, _Points]:
        """Draw points that are held out, points for the last fits, and for rounds."""
        n, d = X.shape
        if n < 2:
            raise ValueError(f"a kernel is learnt from two points or more, got {n}")
        order = np.random.default_rng(self.seed).permutation(n)
        room = max(2, check_memory_limit(self.memory_limit) // (4 * 8 * d))
        order = order[:room]
        n_held = max(1, min(HELD_OUT, len(order) // 5))
        y = y.reshape(n, -1).astype(np.float64)
        weight = np.ones(n) if weight is None else weight
        y = centred(y, weight) / np.array([scale_of(column, weight) for column in y.T])
        parts = order[:n_held], order[n_held : n_held + MOST_POINTS]
        held, most = (_Points(_take(X, some), y[some], weight[some]) for some in parts)
        return held, most, _Points(*(array[:POINTS] for array in most))

    def _look_again(
        self,
        bests: list[_Fit],
        train: _Points,
        held: _Points,
        unit: Array,
        clock: "_Clock",
    ) -> list[_Fit]:
        """List rounds of the best kernel for what its metric has missed, if any.

        Where the first kernel saw nothing with few rows, of features that are screened,
        and with more rows: another one may have found a part and lost the rest.  And as
        long as parts are found.
        """
        first, best, rows = bests[0], min(bests, key=_loss_of), ROWS
        fits: list[_Fit] = []
        options: dict[str, Any] = dict(unit=unit, goal=np.inf, clock=clock)
        n = len(train.y)
        blind = first.loss > BLIND and not clock.is_late(n, ROWS, len(FIRST_GAMMAS))
        for start in self._starts(train, unit, clock) if blind else ():
            given: dict[str, Any] = dict(options, metric=start)
            given |= dict(rows=MORE_ROWS if start is None else ROWS)
            if best.loss < MUCH or clock.is_late(n, given["rows"], len(FIRST_GAMMAS)):
                break
            fits += self._rounds(first.name, train, held, **given)
            best = min([best, *fits], key=_loss_of)
        for _ in range(MAX_LOOKS):
            if best.loss < LITTLE or clock.is_late(n, rows, len(FIRST_GAMMAS)):
                break
            more = self._find_part(best, train, held, rows, options)
            fits += more
            found = min([best, *more], key=_loss_of)
            if found.loss > NOTHING * best.loss:
                if rows == MORE_ROWS or best.loss < MUCH or not self.thorough:
                    break
                rows = MORE_ROWS
            best = found
        return fits

    def _find_part(
        self,
        best: _Fit,
        train: _Points,
        held: _Points,
        rows: int,
        options: dict[str, Any],
    ) -> list[_Fit]:
        """List rounds that begin with a part of the function that a fit has missed.

        A feature whose weight is 0 has no gradient, so that a metric that has found one
        part may have lost the features of another.  Rounds on what is left of targets
        find them.
        """
        left, left_held = (
            one._replace(y=one.y - best.predict(one.X)) for one in (train, held)
        )
        # what is left is hidden from few rows as from the first kernel
        name = best.name if rows == ROWS else self._learning_kernels()[0]
        given: dict[str, Any] = dict(options, rows=rows, is_rest=True)
        unit, clock = options["unit"], options["clock"]
        few = train.X.shape[1] <= FEW_FEATURES
        second = None
        for start in (None,) if few else self._starts(left, unit, clock):
            if second and clock.is_late(len(train.y), rows, len(FIRST_GAMMAS)):
                return []
            rounds = self._rounds(name, left, left_held, metric=start, **given)
            second = min(rounds, key=_loss_of)
            if second.loss <= NOTHING:
                break
        if second is None or second.loss > NOTHING:
            return []
        outer = self._mean_outer_product(best, train)
        outer = outer + self._mean_outer_product(second, train)
        metric = self._make_metric(outer, unit)
        return list(self._rounds(best.name, train, held, metric=metric, **options))

    def _starts(
        self, points: _Points, unit: Array, clock: "_Clock"
    ) -> Iterator[Metric | None]:
        """Yield metrics to begin with: of screened features, and of all alike."""
        targets = points.y
        if self.spread:
            targets = np.hstack([targets, np.abs(targets)])
        shares = screen_features(
            points.X,
            targets,
            points.weight,
            resolve_n_threads(self.n_threads),
            check_memory_limit(self.memory_limit),
        )
        clock.restart()
        if shares is not None:
            outer = shares / unit**2
            full = self.metric == "learn-full"
            yield self._make_metric(np.diag(outer) if full else outer, unit)
        yield None

    def _rounds(
        self,
        name: str | Kernel,
        train: _Points,
        held: _Points,
        unit: Array,
        goal: float,
        clock: "_Clock",
        rows: int = ROWS,
        metric: Metric | None = None,
        is_rest: bool = False,
    ) -> Iterator[_Fit]:
        """Yield the fits of the rounds of a kernel, few if they miss a goal by far.

        `is_rest`: targets are what a fit has left of them.
        """
        few = is_rest and train.X.shape[1] <= FEW_FEATURES
        metric = Metric(1 / unit) if metric is None else metric
        multiples, fit, best, since = FIRST_GAMMAS, None, np.inf, 0
        for number in range(MAX_ROUNDS + 1):
            base = self._base_gamma(name, metric, train.X)
            fit = self._fit(
                name, metric, base, multiples, train, held, fit, rows, clock
            )
            yield fit._replace(number=number)
            if self.verbose:
                kernel = fit.feature_map.kernel_.name
                print(
                    f"{kernel}, round {number}: held-out loss {fit.loss:.3f}",
                    file=sys.stderr,
                )
            since = 0 if fit.loss < (1 - GAIN) * best else since + 1
            best = min(best, fit.loss)
            hopeless = number >= EARLY_ROUNDS and best > goal
            late = clock.is_late(len(train.y), rows, len(NEXT_GAMMAS))
            patience = BLIND_PATIENCE if best > BLIND else PATIENCE
            if few and best > NOTHING:
                patience = FEW_PATIENCE
            if since >= patience or hopeless or late:
                return
            outer = self._mean_outer_product(fit, train)
            if not outer.any():
                return
            metric = self._make_metric(outer, unit)
            if base is not None and fit.gamma is not None:
                multiples = fit.gamma / base * NEXT_GAMMAS

    def _compare(
        self, bests: list[_Fit], train: _Points, held: _Points, clock: "_Clock"
    ) -> list[_Fit]:
        """Fit all kernels on all metrics that were learnt, or on the given one."""
        if len(self.kernels) == 1 and bests:
            return []
        rows, n = min(self.rows, COMPARED_ROWS), len(train.y)
        fits: list[_Fit] = []
        starts: list[_Fit | None] = [*bests]
        for start in starts or [None]:
            metric = self.metric if start is None else start.metric
            assert not isinstance(metric, str)  # there are fits if it was learnt
            for name in self.kernels:
                multiples = FIRST_GAMMAS
                if len(self.kernels) > 1:
                    multiples = np.array(COMPARED_GAMMAS.get(str(name), NEXT_GAMMAS))
                if (fits or bests) and clock.is_late(n, rows, len(multiples)):
                    return fits
                base = self._base_gamma(name, metric, train.X)
                fits.append(
                    self._fit(
                        name, metric, base, multiples, train, held, start, rows, clock
                    )
                )
        return fits

    def _compare_at_last(
        self, fits: list[_Fit], most: _Points, held: _Points, clock: "_Clock"
    ) -> list[_Fit]:
        """Fit the best few anew, with more rows, at the gammas they have."""
        last, one, rows = [], np.ones(1), self.rows
        if rows <= COMPARED_ROWS and len(self.kernels) > 1:
            return []  # that is how they were compared
        for fit in sorted(fits, key=_loss_of)[:FINALISTS]:
            if clock.is_late(len(most.y), rows, 1):
                break
            last.append(
                self._fit(
                    fit.name, fit.metric, fit.gamma, one, most, held, fit, rows, clock
                )
            )
        return last

    def _base_gamma(
        self, name: str | Kernel, metric: Metric | None, X: AnyArray
    ) -> float | None:
        """Find a gamma in the unit of L·x; None for kernels without one, or its own."""
        kernel = get_kernel(name)
        if not isinstance(kernel, GammaKernel) or kernel is name:
            return None
        if self.gamma is not None:
            return self.gamma
        seen = X if metric is None else metric.apply(X)
        sizes = seen.var(axis=0, dtype=np.float64)
        if isinstance(kernel, Laplacian):  # whose exponent adds up |x - x'|
            sizes = np.sqrt(sizes)
        return 1 / (sizes.sum() or 1.0)

    def _fit(
        self,
        name: str | Kernel,
        metric: Metric | None,
        base: float | None,
        multiples: Array,
        train: _Points,
        held: _Points,
        start: _Fit | None,
        rows: int,
        clock: "_Clock",
    ) -> _Fit:
        """Fit the targets, or what clipping leaves of them, for the best gamma."""
        gammas: list[float | None] = [base]
        if base is not None and self.gamma is None:
            gammas = [float(base * multiple) for multiple in multiples]
        targets, n = self._clip(train, start), len(train.y)
        maps = self._maps(name, metric, gammas, train, held, min(rows, n))
        best = None
        for gamma, (feature_map, Z, Z_held) in zip(gammas, maps, strict=True):
            features = as_features(Z, resolve_n_threads(self.n_threads))
            for ridge in ridge_path(features, targets, PENALTIES / n, train.weight):
                loss = self._loss(held, ridge.predict(Z_held))
                if best is None or loss < best[0]:
                    best = loss, gamma, feature_map, ridge, features
        assert best is not None
        loss, gamma, feature_map, ridge, features = best
        coef = ridge.coef
        if self.spread:
            sizes = np.abs(train.y - ridge.predict(features.Z))
            (sized,) = ridge_path(features, sizes, [ridge.alpha], train.weight)
            coef = np.hstack([coef, sized.coef])
        clock.stop(n, rows, len(gammas))
        return _Fit(
            name=name,
            metric=metric,
            loss=loss,
            gamma=gamma,
            penalty=ridge.alpha * n,
            n=n,
            feature_map=feature_map,
            coef=coef,
            intercept=ridge.intercept,
        )

    def _maps(
        self,
        name: str | Kernel,
        metric: Metric | None,
        gammas: list[float | None],
        train: _Points,
        held: _Points,
        rows: int,
    ) -> Iterator[tuple[FeatureMap, Any, Any]]:
        """Yield (map, features, features of held-out points) for each gamma."""
        sketch = SubSampling(rows).draw(len(train.y), self.seed)

        def make_map(gamma: float | None) -> FeatureMap:
            return FeatureMap(
                get_kernel(name, gamma, metric),
                sketch=sketch,
                n_threads=self.n_threads,
                memory_limit=self.memory_limit,
            )

        X, X_held = train.X, held.X
        if len(gammas) > 1 and share_distances(get_kernel(name), sketch, X):
            numbers = [gamma for gamma in gammas if gamma is not None]
            yield from fit_transform_gammas(make_map(numbers[0]), numbers, X, X_held)
            return
        for gamma in gammas:
            yield fit_and_transform(make_map(gamma), X, X_held)

    def _clip(self, points: _Points, fit: _Fit | None) -> Array:
        """Clip errors, those of a fit, or without one of the median."""
        y = points.y
        if not self.robust:
            return y
        if fit is None:
            return np.clip(y, -FIRST_CLIP, FIRST_CLIP)  # they are in units of a scale
        f = fit.predict(points.X)
        sizes = [CLIP * robust_size(errors) for errors in (y - f).T]
        return f + np.clip(y - f, np.negative(sizes), sizes)

    def _loss(self, held: _Points, predicted: Array) -> float:
        """Average |y - f| or its square over held-out points, as a share."""
        power = 1 if self.robust else 2
        errors, sizes = (
            (np.abs(each) ** power).mean(axis=1)
            for each in (held.y - predicted, held.y - held.y.mean(axis=0))
        )
        size = np.average(sizes, weights=held.weight)
        return float(np.average(errors, weights=held.weight) / (size or 1.0))

    def _mean_outer_product(self, fit: _Fit, train: _Points) -> Array:
        """Average ∇f ∇fᵀ over points, summed over outputs; or its diagonal."""
        n, d = train.X.shape
        n = min(n, GRADIENT_POINTS)
        step = max(1, GRADIENT_BYTES // (8 * d * fit.coef.shape[1]))
        full = self.metric == "learn-full"
        total = np.zeros((d, d) if full else d)
        for start in range(0, n, step):
            rows = slice(start, min(n, start + step))
            G = fit.feature_map.gradient(train.X[rows], fit.coef).astype(np.float64)
            G *= np.sqrt(train.weight[rows])[:, None, None]
            G = G.reshape(-1, d)
            total += G.T @ G if full else np.einsum("ij,ij->j", G, G)
        found: Array = total / train.weight[:n].sum()
        return found

    def _make_metric(self, outer: Array, unit: Array) -> Metric:
        """Make L of the average outer product, in a fixed unit."""
        if outer.ndim == 2:
            values, vectors = np.linalg.eigh(outer)
            L = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        else:
            if self.groups is not None:
                # in units of standardised features, all of a group weigh the same
                squares = np.bincount(self.groups, outer * unit**2)
                counts = np.bincount(self.groups)
                outer = (squares / np.maximum(counts, 1))[self.groups] / unit**2
            L = np.sqrt(outer)
        size = np.sqrt(((L * unit) ** 2).sum() / len(unit))
        return Metric(L / size)


class _Clock:
    """Tells whether another fit would end too late, by the time that the last one took.

    Fits take the time of their Gram matrices, or less if these are larger.
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.perf_counter() + seconds
        self._last, self._rate = time.perf_counter(), 0.0

    def restart(self) -> None:
        """Note that a fit begins."""
        self._last = time.perf_counter()

    def stop(self, n: int, rows: int, n_gammas: int) -> None:
        """Note the end of a fit."""
        now = time.perf_counter()
        self._rate = (now - self._last) / (n * rows**2 * n_gammas)
        self._last = now

    def is_late(self, n: int, rows: int, n_gammas: int) -> bool:
        """Tell it of a fit to come."""
        self._last = time.perf_counter()
        seconds = self._rate * n * rows**2 * n_gammas
        return self._end is not None and self._last + seconds > self._end


def _loss_of(fit: _Fit) -> float:
    return fit.loss


def _best_of(rounds: list[_Fit]) -> _Fit:
    """Take the last round of those as good as the best one: its metric says more."""
    limit = (1 + GAIN) * min(map(_loss_of, rounds))
    return [fit for fit in rounds if fit.loss <= limit][-1]


def _take(X: PointsLike, rows: Indices) -> AnyArray:
    """Copy some points, dense."""
    taken = X[rows]
    sparse = sp.issparse(taken)
    return taken.toarray() if sparse else np.ascontiguousarray(taken)


def _deviations(X: AnyArray) -> Array:
    """Find the standard deviation of each feature, exactly 0 of constant ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        deviations: Array = (X - X[0]).std(axis=0, dtype=np.float64)
    if not np.isfinite(deviations).all():
        raise ValueError("the variance of X overflows; scale X to learn its metric")
    return deviations


def _unit(deviations: Array) -> Array:
    """Take what features are divided by, 1 for those that are constant."""
    return np.where(deviations > 0, deviations, 1.0)


def find_importances(metric: Metric, X: PointsLike) -> Array:
    """Compute the shares of features in squared distances of L·x; they sum to 1.

    Parameters
    ----------
    metric : Metric
    X : array, sparse array or Source of shape (n, d)
        Of which some rows are read.

    Returns
    -------
    ndarray of shape (d,)
    """
    check_metric(metric, X, "X")
    step = -(-X.shape[0] // POINTS)
    return _shares(metric, _deviations(_take(X, np.arange(0, X.shape[0], step))))


def _shares(metric: Metric, deviations: Array) -> Array:
    weights = metric.weights() * deviations**2
    return weights / (weights.sum() or 1.0)


def _describe(fit: _Fit, deviations: Array) -> Round:
    metric = fit.metric or Metric(np.ones(len(deviations)))
    shares = _shares(metric, deviations)
    kernel = fit.feature_map.kernel_
    return Round(
        kernel=kernel.name,
        number=fit.number,
        gamma=float(getattr(kernel, "gamma", 1.0)),
        alpha=float(fit.penalty / fit.n),
        loss=fit.loss,
        importances=tuple(shares.tolist()),
    )
