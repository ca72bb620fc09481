"""Intervals that keep their word: conformal calibration of machines.

    split        some points are held out, and the machine is fitted to the others
    cv+          a machine for each fold, fitted to the other folds; all points are used
    jackknife+   squares: machines without a point each, in closed form

Predictions of held-out points are kept, so that every coverage has its scores
(`pskernels.conformal`).
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import check_is_fitted

from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._types import AnyArray, Array, Indices, Path
from pskernels._validation import (
    check_memory_limit,
    check_option,
    check_share,
    levels_to_the_caller,
)
from pskernels.conformal import bound_by_folds, bound_by_points
from pskernels.estimators.saving import register
from pskernels.estimators.state import all_or_nothing, keep_weighted
from pskernels.feature_map import FeatureMap
from pskernels.features import as_features
from pskernels.losses import check_weights
from pskernels.solvers.loo import RidgeOfPoints, fit_without_folds
from pskernels.sources import is_source

if TYPE_CHECKING:
    from pskernels.features import BlockFeatures

METHODS = ("split", "cv+", "jackknife+")  # of which quantiles have the first two

# Points that "split" holds out: a share of all, and at most so many, by which coverage
# is off by 0.6 points (one standard deviation, at 90 %).  "jackknife+" leaves out each
# of so many, by themselves, of every group: all others belong to all machines, so that
# its guarantee holds for these, given the others.
HELD_OUT, MOST_HELD_OUT = 0.25, 2500
# fit(X, y, weight, groups)
FitPart: TypeAlias = Callable[[Any, Any, Any, Any], object]

# Folds of "cv+".
FOLDS = 5


@register
@dataclass(frozen=True, eq=False)
class ColumnModel:
    """A machine with some columns of predictions.

    Parameters
    ----------
    coef : ndarray of shape (m, columns), or (r, columns)
        Of landmarks if it is `folded`, else of features.
    intercept : ndarray of shape (columns,)
    folded : bool
    feature_map : FeatureMap, optional
        None means that of the machine that it belongs to.
    """

    coef: Array
    intercept: Array
    folded: bool = True
    feature_map: FeatureMap | None = None

    def __post_init__(self) -> None:
        for one in (self.coef, self.intercept):
            if not _is_float64(one):
                raise ValueError("a model of columns must have finite float64 arrays")
        if not (self.feature_map is None or isinstance(self.feature_map, FeatureMap)):
            raise ValueError(f"feature_map must be a map, got {self.feature_map!r}")
        if self.coef.ndim != 2 or self.intercept.shape != self.coef.shape[1:]:
            raise ValueError(
                f"coefficients of shape {self.coef.shape} do not fit an intercept of "
                f"shape {self.intercept.shape}"
            )

    @property
    def n_columns(self) -> int:
        """How many columns there are."""
        return len(self.intercept)

    def predict(self, X: Any, feature_map: FeatureMap) -> Array:
        """Predict all columns, (n, columns); the map is that of the machine."""
        feature_map = self.feature_map or feature_map
        predict = feature_map.predict_folded if self.folded else feature_map.predict
        return predict(X, self.coef, self.intercept)

    def check_rows(self, feature_map: FeatureMap) -> None:
        """Check that coefficients are those of the map of the machine."""
        feature_map = self.feature_map or feature_map
        rows = feature_map.rank_
        if self.folded:
            rows = len(feature_map.sketch_.indices)
        if len(self.coef) != rows:
            raise ValueError(f"{len(self.coef)} coefficients, but {rows} rows")


@register
@dataclass(frozen=True, eq=False)
class PointModels:
    """Machines without one of m points: `pskernels.solvers.loo.PointMachines`.

    Parameters
    ----------
    columns : ColumnModel
        f(x), and t(x) in r columns.
    turned : ndarray of shape (m, r)
    changes : ndarray of shape (m,)
    fit_intercept : bool
    """

    columns: ColumnModel
    turned: Array
    changes: Array
    fit_intercept: bool

    def __post_init__(self) -> None:
        arrays = all(map(_is_float64, (self.turned, self.changes)))
        if not (arrays and isinstance(self.columns, ColumnModel)):
            raise ValueError("models without a point must have finite float64 arrays")
        shape = len(self.changes), self.columns.n_columns - 1
        if self.turned.shape != shape or self.changes.ndim != 1:
            raise ValueError(
                f"{self.turned.shape} numbers do not fit {shape[0]} machines of "
                f"{shape[1]} columns"
            )

    @property
    def n_columns(self) -> int:
        """How many machines there are."""
        return len(self.changes)

    def check_rows(self, feature_map: FeatureMap) -> None:
        """Check that coefficients are those of the map of the machine."""
        self.columns.check_rows(feature_map)

    def predict(self, X: Any, feature_map: FeatureMap) -> Array:
        """Predict f(x) and t(x), (n, 1 + r)."""
        return self.columns.predict(X, feature_map)

    def ends(self, columns: Array, chosen: Indices) -> Array:
        """Make predictions by the machines without some points, of f(x) and t(x)."""
        found = columns[:, 1:] @ self.turned[chosen].T
        found += float(self.fit_intercept)
        found *= -self.changes[chosen]
        found += columns[:, :1]
        return found


@register
@dataclass(frozen=True, eq=False)
class Calibration:
    """What held-out points say: their targets, and predictions without them.

    Parameters
    ----------
    method : {"split", "cv+", "jackknife+"}
    y : ndarray of shape (n,)
    predicted : ndarray of shape (n, columns)
        By machines that have not seen the point: levels, or the middle of the interval
        and the unit of its width.
    folds : ndarray of int, shape (n,)
        Which of the machines that was.
    models : tuple of ColumnModel, or of one PointModels for "jackknife+"
        Whose columns are those of all machines, one after the other.
    weight, groups : ndarrays of shape (n,), optional
    """

    method: str
    y: AnyArray
    predicted: Array
    folds: Indices
    models: tuple[Any, ...]
    weight: Array | None = None
    groups: AnyArray | None = None

    def __post_init__(self) -> None:
        check_option(self.method, "method", METHODS)
        weight = [] if self.weight is None else [self.weight]
        arrays = all(map(_is_float64, [self.y, self.predicted, *weight]))
        kind = PointModels if self.method == "jackknife+" else ColumnModel
        models = all(isinstance(one, kind) for one in self.models)
        labels = self.groups is None or isinstance(self.groups, np.ndarray)
        if not (arrays and models and labels and np.ndim(self.y) == 1):
            raise ValueError("a calibration must have finite float64 arrays")
        n = len(self.y)
        shapes = [np.shape(self.folds), np.shape(self.predicted)[:1]]
        shapes += [np.shape(a) for a in (self.weight, self.groups) if a is not None]
        if np.ndim(self.predicted) != 2 or any(shape != (n,) for shape in shapes):
            raise ValueError("arrays of a calibration must have a row for each point")
        n_columns = sum(one.n_columns for one in self.models)
        if n_columns % self.predicted.shape[1] or n_columns == 0:
            raise ValueError(
                f"{n_columns} columns are no machines of {self.predicted.shape[1]} each"
            )
        folds = np.asarray(self.folds)
        whole = folds.dtype.kind == "i" and n > 0
        if not (whole and 0 <= folds.min() <= folds.max() < self.n_machines):
            raise ValueError("folds must be numbers of machines")

    @property
    def n_machines(self) -> int:
        """How many machines there are, K."""
        n_columns = sum(one.n_columns for one in self.models)
        found: int = n_columns // self.predicted.shape[1]
        return found

    def predict(self, X: Any, feature_map: FeatureMap) -> Array:
        """Predict the columns of all machines, (n, K, columns).

        For "jackknife+" what they are made of: see `PointModels`.
        """
        if self.method == "jackknife+":
            result: Array = self.models[0].predict(X, feature_map)
            return result
        parts = [one.predict(X, feature_map) for one in self.models]
        found = parts[0] if len(parts) == 1 else np.hstack(parts)
        return found.reshape(len(found), self.n_machines, -1)

    @property
    def n_used(self) -> int:
        """How many points have a weight."""
        weight = self.weight
        return len(self.y) if weight is None else int(np.count_nonzero(weight))

    def take(
        self, chosen: Indices
    ) -> tuple[Array, Indices, Array, Array | None, float | None]:
        """Take some of the points, those of positive weight.

        Returns their predictions, folds, y and weights, and the mean of these.
        """
        if self.weight is None:
            parts = self.predicted[chosen], self.folds[chosen], self.y[chosen]
            return *parts, None, None
        chosen = chosen[self.weight[chosen] > 0]
        weight = self.weight[chosen]
        parts = self.predicted[chosen], self.folds[chosen], self.y[chosen]
        return *parts, weight, weight.mean() if len(weight) else None


if TYPE_CHECKING:  # what a machine of scikit-learn has, which comes without types
    from sklearn.base import BaseEstimator as _Estimator
else:
    _Estimator = object


class SplitsForIntervals(_Estimator):
    """A mixin for searches: what they choose must not see the points that calibrate."""

    # unless they are parameters
    calibration: str | None = None
    interval_scores: str = "absolute"

    def _fit_in_parts(
        self, X: Any, y: Any, weight: Array | None, groups: Any, fit: FitPart
    ) -> None:
        """Fit by a function of them, to all points, or to those not held out."""
        if self.calibration is None:
            fit(X, y, weight, groups)
            return
        check_option(self.calibration, "calibration", ("split",))
        if self._is_precomputed():
            raise ValueError("a search cannot calibrate with a precomputed kernel")
        self._check_calibrated("split", y, weight)
        groups = check_groups(groups, len(y))
        self._fit_and_calibrate(*keep_weighted(X, y, weight, groups), fit)


class CalibratesIntervals(_Estimator):
    """A mixin in front of a machine of one output, for intervals.

    The machine adds `_fit_columns`, which fits what intervals need, and `_ends`, which
    makes ends of intervals, units of their width, and shares.
    """

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None = None,
        *,
        groups: Any = None,
        checkpoint: Path | None = None,
    ) -> Self:
        """Fit the machine, and what calibrates its intervals.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
            (n, n), the Gram matrix, if kernel is "precomputed".  A memory map, the path
            of a .npy or Parquet file, and objects with a shape, a dtype and slices of
            rows are read a chunk at a time, in a few passes, if memory_limit has no
            room for them and their features; not with a calibration.
        y : array of shape (n,), path or source
            Or the name of a column of the Parquet file X.
        sample_weight : array of shape (n,), optional
            A weight of 0 leaves a point out, one of 2 counts it twice.  Scores of the
            calibration count by it, too.
        groups : array of shape (n,), optional
            Labels: intervals are calibrated for each group by itself.
        checkpoint : path, optional
            A file for the passes over points that are not in memory.  A fit that was
            stopped goes on there, if it is called as before; one that ends removes it.

        Returns
        -------
        The estimator itself.
        """
        if self.calibration is None:
            if groups is not None:
                raise ValueError("groups are for intervals: choose a calibration")
            found: Self = super().fit(X, y, sample_weight, checkpoint=checkpoint)
            return found
        method = check_option(self.calibration, "calibration", self._calibrations)
        if is_source(X):
            raise ValueError(
                f"calibration={method!r} needs points in memory; calibrate on some of "
                "them, or by held-out points of your own"
            )
        with all_or_nothing(self), single_threaded_blas():
            X, y, weight = self._check_data(X, y, sample_weight)
            groups = check_groups(groups, len(y))
            if not self._is_precomputed():
                X, y, weight, groups = keep_weighted(X, y, weight, groups)
            self._check_calibrated(method, y, weight)
            self._warn_if_unscaled(X)
            if method == "split":
                self._fit_and_calibrate(X, y, weight, groups, self._fit_part)
                return self
            held, folds, predicted, models = (
                self._fit_by_folds(X, y, weight)
                if method == "cv+"
                else self._fit_by_points(X, y, weight, groups)
            )
            y = self._encode(y)[held].astype(np.float64)
            weight, groups = (
                None if one is None else one[held] for one in (weight, groups)
            )
            self.calibration_ = Calibration(
                method, y, predicted, folds, models, weight, groups
            )
        return self

    def _check_calibrated(self, method: str, y: Any, weight: Any) -> None:
        """Check that there are intervals of such a kind."""
        if y.ndim > 1 and y.shape[1] > 1:
            raise ValueError(
                f"calibration is for one output, got y of shape {y.shape}; fit a "
                "machine for each column"
            )
        if method == "jackknife+" and getattr(self, "loss", None) != "squared":
            raise ValueError(
                "calibration='jackknife+' has a closed form for loss='squared' only; "
                "choose 'cv+' or 'split'"
            )
        if method == "split" and self._is_precomputed():
            raise ValueError(
                "calibration='split' cannot take a precomputed kernel apart; choose "
                "'cv+'"
            )
        n = len(y) if weight is None else np.count_nonzero(weight)
        if n < 2 * FOLDS:
            raise ValueError(
                f"a calibration needs {2 * FOLDS} points or more, of some weight, got "
                f"{n}"
            )

    def _fit_part(self, X: Any, y: Any, weight: Array | None, groups: Any) -> None:
        self._fit_checked(X, y, weight)

    def _fit_and_calibrate(
        self, X: Any, y: Any, weight: Array | None, groups: Any, fit: FitPart
    ) -> None:
        """Fit to some points by a function, and calibrate by the others."""
        n = len(y)
        order = np.random.default_rng(self._seed()).permutation(n)
        held, rest = np.split(order, [min(MOST_HELD_OUT, int(np.ceil(HELD_OUT * n)))])
        held, rest = np.sort(held), np.sort(rest)
        weights, labels = (
            [None if one is None else one[part] for part in (held, rest)]
            for one in (weight, groups)
        )
        if groups is not None:
            lost = set(groups[rest].tolist()) - set(groups[held].tolist())
            if lost:
                warnings.warn(
                    f"no point of group {min(lost)!r} is held out: it has no "
                    "intervals; choose calibration='cv+', or give fit more of its "
                    "points",
                    stacklevel=levels_to_the_caller(),
                )
        fit(X[rest], y[rest], weights[1], labels[1])
        model = self._get_columns(X[rest], y[rest], weights[1])
        self.calibration_ = Calibration(
            "split",
            self._encode(y[held]).astype(np.float64),
            model.predict(X[held], self.feature_map_).astype(np.float64),
            np.zeros(len(held), np.intp),
            (model,),
            weights[0],
            labels[0],
        )

    def _fit_by_folds(
        self, X: Any, y: Any, weight: Array | None
    ) -> tuple[Indices, Indices, Array, tuple[ColumnModel, ...]]:
        """Fit to all points, and without each fold.

        Returns the points held out (all), their folds, predictions of them, and models.
        """
        features = self._fit_checked(X, y, weight)
        n = len(y)
        every = np.arange(n)
        folds = np.empty(n, np.intp)
        folds[np.random.default_rng(self._seed()).permutation(n)] = every % FOLDS
        if self._learns_kernel() or self.feature_map_.whitening_ is None:
            return every, folds, *self._fit_machines(X, y, weight, folds)
        if self._has_closed_form():
            coef, intercept, predicted = fit_without_folds(
                as_features(features, resolve_n_threads(self.n_threads)),
                self._encode(y).astype(np.float64),
                folds,
                coef=self.coef_,
                alpha=self.alpha_,
                sample_weight=weight,
                fit_intercept=bool(self.fit_intercept),
            )
            model = ColumnModel(self.feature_map_.fold(coef), intercept)
            return every, folds, predicted[:, None], (model,)
        Z, y = self.feature_map_.transform(X), self._encode(y)
        start = self.coef_, self.intercept_
        coefs, intercepts = [], []
        predicted = np.empty((n, 0))
        for k in range(FOLDS):
            rest, held = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
            some = None if weight is None else weight[rest]
            coef, intercept = self._fit_columns(Z[rest], y[rest], some, start)
            coefs.append(coef)
            intercepts.append(intercept)
            if k == 0:
                predicted = np.empty((n, len(intercept)))
            predicted[held] = Z[held] @ coef + intercept
        coef = self.feature_map_.fold(np.hstack(coefs))
        model = ColumnModel(coef, np.concatenate(intercepts))
        return every, folds, predicted, (model,)

    def _fit_machines(
        self, X: Any, y: Any, weight: Array | None, folds: Indices
    ) -> tuple[Array, tuple[ColumnModel, ...]]:
        """Fit machines of their own: kernels that are learnt must not see the fold."""
        models, predicted = [], np.empty((len(y), 0))
        for k in range(FOLDS):
            rest, held = np.flatnonzero(folds != k), np.flatnonzero(folds == k)
            machine = clone(self).set_params(
                calibration=None, verbose=0, random_state=self._seed()
            )
            machine.n_features_in_ = self.n_features_in_
            some = None if weight is None else weight[rest]
            X_rest, y_rest = _safe_split(self, X, y, rest)
            machine._fit_checked(X_rest, y_rest, some)
            model = machine._get_columns(X_rest, y_rest, some)
            if k == 0:
                predicted = np.empty((len(y), len(model.intercept)))
            X_held, _ = _safe_split(self, X, y, held, rest)
            predicted[held] = model.predict(X_held, machine.feature_map_)
            models.append(
                ColumnModel(model.coef, model.intercept, True, machine.feature_map_)
            )
        return predicted, tuple(models)

    def _has_closed_form(self) -> bool:
        """Tell whether machines of folds are ridge regressions, of one output."""
        return False

    def _fit_by_points(
        self, X: Any, y: Any, weight: Array | None, groups: AnyArray | None
    ) -> tuple[Indices, Indices, Array, tuple[PointModels]]:
        """Fit to all points, and without some, one by one: see `_fit_by_folds`."""
        ridge: RidgeOfPoints | None = None

        def begin(
            features: "BlockFeatures", y: Any, alpha: float, weight: Array | None
        ) -> "tuple[BlockFeatures, tuple[Array, float]]":
            nonlocal ridge
            ridge = RidgeOfPoints(
                features,
                y.astype(np.float64),
                alpha=alpha,
                sample_weight=weight,
                fit_intercept=bool(self.fit_intercept),
            )
            return ridge.features, (ridge.coef, ridge.intercept)

        self._fit_checked(X, y, weight, begin)
        assert ridge is not None
        held = self._choose_left_out(len(y), weight, groups)
        found = ridge.leave_out(held)
        columns = ColumnModel(
            np.column_stack([ridge.coef, found.turn]),
            np.append(ridge.intercept, found.shift),
            folded=False,
        )
        model = PointModels(
            columns, found.turned, found.changes, bool(self.fit_intercept)
        )
        return held, np.arange(len(held)), found.predictions[:, None], (model,)

    def _choose_left_out(
        self, n: int, weight: Array | None, groups: AnyArray | None
    ) -> Indices:
        """Choose at most MOST_HELD_OUT points of each group at random, in order.

        By random numbers of their own: choices of a fit begin with the seed alone, and
        its points must not be those that it was chosen by.
        """
        used = np.arange(n) if weight is None else np.flatnonzero(weight)
        order = np.random.default_rng([self._seed(), 1]).permutation(used)
        labels = np.zeros(n) if groups is None else groups
        _, codes, counts = np.unique(
            labels[order], return_inverse=True, return_counts=True
        )
        by_group = np.argsort(codes, kind="stable")
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.sort(order[by_group[rank < MOST_HELD_OUT]])

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        *,
        groups: Any = None,
        sample_weight: npt.ArrayLike | None = None,
        out: AnyArray | None = None,
    ) -> Array:
        """Predict intervals that contain a share of the targets.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
        coverage : float in (0, 1)
        groups : array of shape (n,), optional
            Labels, if the fit had them: the share is that of each group.
        sample_weight : array of shape (n,), optional
            Weights of new points in the unit of those of the fit, for points whose
            distribution has changed: ratios of densities.  None means the mean of the
            held-out points, or 1.
        out : ndarray of shape (n, 2), optional
            As for `predict`.

        Returns
        -------
        ndarray of shape (n, 2)
            Lower and upper ends.  They are infinite where held-out points are too few
            for such a coverage.

        Notes
        -----
        If the points of the fit and the new one are exchangeable, such as independent
        draws of one distribution, the probability of a target outside its interval is
        at most 1 - coverage with calibration="split" (whatever the machine is worth),
        2·(1 - coverage) with "jackknife+", and 2·(1 - coverage) + √(2/n) with "cv+"
        (twice the root for levels, whose ends are bounded one by one), where it is
        mostly close to 1 - coverage: over draws of all points, not for every X by
        itself.  With groups, all this holds for each of them, with its own n.  Weights
        have a guarantee with "split" only, if they are ratios of densities.

        For "cv+" and "jackknife+" the sketch and its landmarks, which do not depend on
        targets, are those of all points, and so is what was chosen by targets: alpha,
        p, gamma="cv", and n_components="auto".  (Kernels and metrics that are learnt
        are learnt anew for each fold.)

        Without a calibration nothing is promised: levels of the fit are interpolated.
        """
        check_is_fitted(self)
        calibration = self._get_calibration()
        coverage = check_share(coverage, "coverage")
        if calibration is None:
            if groups is not None or sample_weight is not None:
                raise ValueError("groups and weights are for calibrated intervals")
            result: Array = self._in_blocks(
                lambda X: self._guess_interval(X, coverage), X, out
            )
            return result
        groups = self._check_new_groups(groups, "predict_interval")
        if sample_weight is not None:
            sample_weight = np.asarray(sample_weight, np.float64)

        endless = False

        def interval(X: Any, groups: Any, weight: Array | None) -> Array:
            nonlocal endless
            columns = self._predict_columns(X)
            found = np.empty((len(columns), 2), columns.dtype)
            if weight is not None:
                check_weights(weight, len(columns))
            for chosen, rows in self._match_groups(groups, len(columns)):
                some = None if weight is None else weight[rows]
                found[rows] = self._bound(columns[rows], coverage, chosen, some)
            endless = endless or bool(np.isinf(found).any())
            return found

        result = self._in_blocks(interval, X, out, groups, sample_weight)
        if endless:
            in_group = "" if groups is None else " in some group"
            light = "" if sample_weight is None else ", or weigh too little beside X"
            warnings.warn(
                f"some intervals are infinite: for a coverage of {coverage:g}, the "
                f"{calibration.n_used} points that the calibration held out are too "
                f"few{in_group}{light}; lower it, or give fit more points",
                stacklevel=levels_to_the_caller(),
            )
        return result

    def _check_new_groups(self, groups: Any, method: str) -> AnyArray | None:
        """Make labels of new points an array; the fit must have had some, too."""
        if (groups is None) != (self.calibration_.groups is None):
            raise ValueError(
                f"groups must be given to both fit and {method}, or to neither"
            )
        return None if groups is None else np.asarray(groups)

    def _get_calibration(self) -> Calibration | None:
        """Find the calibration of the fit, or None."""
        return getattr(self, "calibration_", None)

    def _predict_columns(self, X: Any) -> Array:
        """Predict what ends are made of: columns of all machines, or features."""
        X = self._check_new(X)
        with single_threaded_blas():
            return self.calibration_.predict(X, self.feature_map_)

    def _match_groups(self, groups: Any, n: int) -> Iterator[tuple[Indices, Indices]]:
        """Yield (held-out points, new points) of each group; all, without groups."""
        known = self.calibration_.groups
        if groups is None:
            yield np.arange(len(self.calibration_.y)), np.arange(n)
            return
        groups = check_groups(groups, n)
        for label in np.unique(groups):
            chosen = np.flatnonzero(known == label)
            if len(chosen) == 0:
                raise ValueError(
                    f"groups has {label!r}, of which no point was held out in fit"
                )
            yield chosen, np.flatnonzero(groups == label)

    def _bound(
        self, columns: Array, coverage: float, chosen: Indices, new_weight: Array | None
    ) -> Array:
        """Find intervals of new points (m, 2), by some of the held-out points."""
        predicted, folds, y, weight, mean = self.calibration_.take(chosen)
        if new_weight is None and mean is not None:
            new_weight = np.full(len(columns), mean)
        if self.calibration_.method == "jackknife+":
            return self._bound_by_points(
                columns, coverage, predicted[:, 0], folds, y, weight, new_weight
            )
        held_ends, held_units, share = self._ends(predicted, coverage)
        K, C = columns.shape[1:]
        ends, units, _ = self._ends(columns.reshape(-1, C), coverage)
        found = []
        for side, sign in ((0, -1.0), (1, 1.0)):
            scores = sign * (y - held_ends[:, side]) / held_units
            if self._symmetric:
                scores = np.abs(scores)
            bound = bound_by_folds(
                sign * ends[:, side].reshape(-1, K),
                scores,
                folds,
                share,
                weight,
                new_weight,
                units.reshape(-1, K),
            )
            found.append(sign * bound)
        return self._finish_ends(_order(np.stack(found, axis=1)))

    def _finish_ends(self, ends: Array) -> Array:
        """Cut off what cannot be."""
        return ends

    def _bound_by_points(
        self,
        columns: Array,
        coverage: float,
        predicted: Array,
        folds: Indices,
        y: Any,
        weight: Array | None,
        new_weight: Array | None,
    ) -> Array:
        """Do `_bound` by machines without a point each, in blocks of new points."""
        (model,) = self.calibration_.models
        scores = np.abs(y - predicted)
        found = np.empty((len(columns), 2))
        limit = check_memory_limit(self.memory_limit)
        step = max(1, limit // (4 * 8 * max(1, len(y))))
        for start in range(0, len(columns), step):
            rows = slice(start, start + step)
            ends = model.ends(columns[rows], folds)
            some = None if new_weight is None else new_weight[rows]
            found[rows, 0] = -bound_by_points(scores - ends, coverage, weight, some)
            found[rows, 1] = bound_by_points(scores + ends, coverage, weight, some)
        return _order(found)

    def check_learnt(self) -> None:
        """Check the calibration, too."""
        super().check_learnt()
        calibration = self._get_calibration()
        if calibration is None:
            return
        for model in calibration.models:
            model.check_rows(self.feature_map_)


def _order(ends: Array) -> Array:
    """Make an interval a point in its middle where its ends have passed each other."""
    crossed = ends[:, 0] > ends[:, 1]
    middle = ends[crossed].mean(axis=1, keepdims=True)
    ends[crossed] = middle
    return ends


def _is_float64(array: Any) -> bool:
    numbers = isinstance(array, np.ndarray) and array.dtype == np.float64
    return numbers and bool(np.isfinite(array).all())


def check_groups(groups: Any, n: int) -> AnyArray | None:
    """Make labels of n points an array, or None."""
    if groups is None:
        return None
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"groups must have {n} labels, got shape {labels.shape}")
    if labels.dtype.kind in "OfcmM":  # others are neither missing nor mixed
        try:
            for row, label in enumerate(labels):
                if label is None or label != label:
                    raise ValueError(
                        f"groups must have a label for each point, row {row} has "
                        f"{label!r}"
                    )
            np.unique(labels)
        except TypeError as error:
            raise ValueError(f"groups must have labels that sort: {error}") from None
    return labels
