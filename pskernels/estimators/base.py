"""What the estimators share: checks of data, the feature map, the fitted model."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from numpy.exceptions import DTypePromotionError
from sklearn.base import BaseEstimator
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from pskernels._points import in_metric, total_variance
from pskernels._random import philox_key
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._types import AnyArray, Array, CheckedPoints, Indices, Path, SketchLike
from pskernels._validation import (
    canonical_csr,
    check_int,
    check_memory_limit,
    check_option,
    check_out,
    check_positive,
    check_sparse,
    levels_to_the_caller,
    raise_not_finite,
)
from pskernels.choice import (
    FIRST_ROWS,
    MAX_ROWS,
    GrowingFeatures,
    Growth,
    choose_sketch,
    grow,
)
from pskernels.compression import compress
from pskernels.estimators import saving
from pskernels.estimators.batches import LearnsFromBatches
from pskernels.estimators.defaults import (
    DEFAULT_PENALTY,
    default_alpha,
    default_rows,
    is_auto,
)
from pskernels.estimators.state import all_or_nothing, keep_weighted
from pskernels.estimators.streamed import FitsSources
from pskernels.exact import solve_all_points
from pskernels.feature_map import (
    STORAGES,
    FeatureMap,
    fit_and_transform,
    fit_transform_gammas,
    share_distances,
)
from pskernels.features import as_features
from pskernels.kernels import (
    GAMMA_RULES,
    CallableKernel,
    Cosine,
    GammaKernel,
    Kernel,
    Linear,
    Polynomial,
    Precomputed,
    get_kernel,
    is_precomputed,
)
from pskernels.kernels import KERNELS as KERNEL_NAMES
from pskernels.losses import LOSSES, Loss, Squared
from pskernels.metric_learning import KERNELS, Learnt, MetricLearner, find_importances
from pskernels.point_metric import get_metric
from pskernels.sketches import WITH_P, PSparsified, Sketch, SubSampling, get_sketch
from pskernels.solvers import path
from pskernels.sources import READ_BYTES, Source, is_source, open_points

if TYPE_CHECKING:
    from pskernels.solvers.base import Iteration, SolveResult, StartLike
    from pskernels.streaming import Reweigh

# A map of a sketch, not yet fitted.
MakeMap: TypeAlias = Callable[[SketchLike | None], FeatureMap]
# begin(features, targets, alpha, weights) -> (features to go on with, a start)
Begin: TypeAlias = Callable[[Any, Any, float, Any], tuple[Any, Any]]

# Points whose squared distance from 0 is this many times their variance look alike to
# kernels of scalar products: in float32, nothing else is left.
FAR_FROM_ZERO = 1e4
# A feature whose share of the squared distances is larger than this drowns all others.
DROWNING = 0.99
# Points on which both are looked for.
SCALE_SUBSAMPLE = 1000

# Metrics that come from the targets.
LEARNT_METRICS = ("learn", "learn-full")
# Rows on which alpha is chosen with them, and the last kernels are compared, at most.
LEARNT_ROWS = 1000

# From so many points on, squares on all of them are one system of n × n, in float32.
EXACT_POINTS = 2000

# Arrays of n × n_components that are there while rows are doubled.
GROWTH_ARRAYS = 5

# Points that judge how many rows a sketch needs: a fifth of all, or so many.
MAX_HELD_OUT = 5000


# Attributes of every fitted machine that reports and plots read.
LEARNT_BY_ALL = (
    "_made_with",
    "loss_",
    "alpha_",
    "n_iter_",
    "dual_gap_",
    "objective_",
    "converged_",
    "history_",
)


class SketchedEstimator(BaseEstimator):
    """Parameters kernel, gamma, sketch, n_components and p, and the map they make."""

    if TYPE_CHECKING:
        feature_map_: FeatureMap
        n_features_in_: int

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        saving.register(cls)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        tags.input_tags.sparse = not tags.input_tags.pairwise
        return tags

    def _is_precomputed(self) -> bool:
        return is_precomputed(self.kernel)

    def _check_points(self, X: Any, reset: bool, **options: Any) -> Any:
        """Convert X (and y) to arrays; float32 stays, other numbers become float64."""
        options = dict(dtype=[np.float64, np.float32], **options)
        if not self._is_precomputed():
            # of new points, the feature map finds what is not finite
            options |= dict(accept_sparse="csr", ensure_all_finite=reset)
            if sp.issparse(X):
                X = check_sparse(X, "X")
        try:
            checked = validate_data(self, X, reset=reset, **options)
        except (ValueError, TypeError) as error:
            text = "could not convert string to float" in str(error)
            if not text and not isinstance(error, DTypePromotionError):
                raise
            raise ValueError(
                f"X has columns that are not numbers{_name_other_columns(X)}; encode "
                "them first, for example by OneHotEncoder in a ColumnTransformer, or "
                f"dates as days ({error})"
            ) from None
        points, *y = checked if isinstance(checked, tuple) else (checked,)
        if sp.issparse(points):
            points = canonical_csr(points, "X")
        return (points, *y) if y else points

    def _learn_form(self, X: Source) -> None:
        """Learn the number of features of a source, and their names."""
        self._check_points(X[:1], reset=True)
        if X.names is not None:
            self.feature_names_in_ = np.array(X.names, dtype=object)

    def _warn_if_unscaled(self, X: Any) -> None:
        """Warn if one feature, or the distance from 0, is all that the kernel sees."""
        if self._learns_kernel():  # from standardised features on
            return
        kernel = get_kernel(self.kernel)
        if sp.issparse(X) or isinstance(kernel, (CallableKernel, Precomputed)):
            return
        step = -(-X.shape[0] // SCALE_SUBSAMPLE)
        some = X[::step]
        if self._has_metric():
            metric = get_metric(self.metric)
            if metric is None or metric.d_seen != X.shape[1]:
                return  # features of L·x have no names
            some = in_metric(some, metric)[:]
        with np.errstate(over="ignore", invalid="ignore"):
            variances = some.var(axis=0, dtype=np.float64)
            shares = variances / variances.sum()
            squares = some.mean(axis=0, dtype=np.float64) ** 2
            far = squares.sum() > FAR_FROM_ZERO * variances.sum() > 0
        by_products = isinstance(kernel, (Linear, Polynomial, Cosine))
        if by_products and far and X.shape[1] > 1:
            self._advise_scaling(
                f"feature {self._name_feature(squares.argmax())} keeps the points "
                f"{np.sqrt(squares.sum() / variances.sum()):.0f} times as far from 0 "
                "as they are spread, which is all that this kernel sees"
            )
        elif np.count_nonzero(variances) > 1 and shares.max() > DROWNING:
            self._advise_scaling(
                f"feature {self._name_feature(shares.argmax())} carries "
                f"{shares.max():.1%} of the squared distance between points, so that "
                "the kernel hardly sees the others"
            )

    def _name_feature(self, number: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"number {number}" if names is None else repr(str(names[number]))

    def _advise_scaling(self, what: str) -> None:
        warnings.warn(
            f"{what}; scale the features first, for example by "
            f"make_pipeline(StandardScaler(), {type(self).__name__}())",
            UserWarning,
            stacklevel=levels_to_the_caller(),
        )

    def _seed(self) -> int:
        """Make random_state an integer, so that everything is drawn alike."""
        if isinstance(self.random_state, Integral):
            return check_int(self.random_state, "random_state", minimum=0)
        return int(philox_key(self.random_state)[0])

    def _learns_kernel(self) -> bool:
        """Tell whether the kernel, or its metric, comes from the targets."""
        if isinstance(self.metric, str):
            check_option(self.metric, "metric", LEARNT_METRICS)
        if isinstance(self.kernel, str):
            check_option(self.kernel, "kernel", (*KERNEL_NAMES, "auto"))
        by_name = isinstance(self.kernel, str) and self.kernel == "auto"
        return by_name or isinstance(self.metric, str)

    def _learn_kernel(
        self, X: Any, y: Any, weight: Array | None, seed: int, **options: Any
    ) -> Learnt:
        """Learn the kernel of targets y, and keep what was learnt beside it."""
        kernels = KERNELS if self.kernel == "auto" else (self.kernel,)
        if isinstance(get_kernel(kernels[0]), (CallableKernel, Precomputed)):
            raise ValueError(
                f"metric={self.metric!r} needs a kernel by name, which has a gradient, "
                f"got {self.kernel!r}"
            )
        full = isinstance(self.metric, str) and self.metric == "learn-full"
        if full and get_kernel(kernels[0]).non_negative:
            raise ValueError("metric='learn-full' is not for the kernel 'sobolev'")
        if full and self.feature_groups is not None:
            raise ValueError("feature_groups are for metric='learn', a diagonal one")
        if self.gamma is not None and not isinstance(self.gamma, str):
            get_kernel(kernels[0], self.gamma)  # an object has its own
        if isinstance(self.gamma, str):
            raise ValueError(
                f"gamma={self.gamma!r} is a rule for a kernel that is given; with "
                "kernel='auto' or a metric that is learnt it must be a number, or None"
            )
        learnt = MetricLearner(
            kernels=kernels,
            metric=get_metric(self.metric) if self._has_metric() else self.metric,
            gamma=None if self.gamma is None else check_positive(self.gamma, "gamma"),
            groups=self._check_groups(X.shape[1]),
            seed=seed,
            n_threads=self.n_threads,
            memory_limit=self.memory_limit,
            **options,
        ).learn(X, y, weight)
        self.rounds_ = learnt.rounds
        return learnt

    def _has_metric(self) -> bool:
        return self.metric is not None and not isinstance(self.metric, str)

    def _check_groups(self, d: int) -> Indices | None:
        """Number the groups of features: 0, 1, …"""
        if self.feature_groups is None:
            return None
        groups = np.asarray(self.feature_groups)
        if groups.shape != (d,):
            raise ValueError(
                f"feature_groups must have a label for each of {d} features, got shape "
                f"{groups.shape}"
            )
        return np.unique(groups, return_inverse=True)[1]

    def _named_kernel(self, gamma: float | str | None) -> Kernel:
        """Make the kernel of the parameters, for one gamma."""
        if isinstance(gamma, str) and gamma not in GAMMA_RULES:
            raise ValueError(
                "gamma must be a positive number, 'scale', 'auto', 'median' or, if "
                f"there is a y, 'cv', got {gamma!r}"
            )
        return get_kernel(self.kernel, gamma, self.metric)

    def _map_maker(self, X: Any, weight: Array | None, kernel: Kernel) -> MakeMap:
        """Make a function of a sketch that makes a map, not yet fitted."""
        self.__dict__.pop("feature_importances_", None)
        if kernel.metric is not None:
            self.feature_importances_ = find_importances(kernel.metric, X)
        if (
            weight is not None
            and isinstance(kernel, GammaKernel)
            and kernel.gamma == "scale"
        ):
            limit = check_memory_limit(self.memory_limit)
            variance = total_variance(in_metric(X, kernel.metric), weight, limit)
            kernel = kernel.with_gamma(X, variance, limit)

        def make_map(sketch: SketchLike | None) -> FeatureMap:
            return FeatureMap(
                kernel,
                sketch=sketch,
                n_threads=self.n_threads,
                memory_limit=self.memory_limit,
                verbose=self.verbose,
            )

        return make_map

    def _fit_map(
        self,
        make_map: MakeMap,
        X: Any,
        y: Any,
        weight: Array | None,
        seed: int,
        form: str | None = "transform",
        **options: Any,
    ) -> tuple[FeatureMap, Any]:
        """Fit the map; return it, and features of X: an array, factored, or None."""
        self.__dict__.pop("growth_", None)
        if is_auto(self.n_components, "n_components"):
            if options.get("storage", "auto") != "auto":
                raise ValueError(
                    f"feature_storage={options['storage']!r} needs a number of "
                    "n_components: to find one, features are kept as arrays"
                )
            return self._grow_map(make_map, X, y, weight, seed)
        feature_map = make_map(self._draw_sketch(make_map, X, y, weight, seed))
        if form is None:
            return feature_map.fit(X), None
        return feature_map, getattr(feature_map, f"fit_{form}")(X, **options)

    def _fit_maps(
        self,
        X: Any,
        y: Any,
        weight: Array | None,
        seed: int,
        gammas: list[Any],
        X_new: Any,
        formed: bool,
        room: dict[tuple[int, int], Array] | None,
    ) -> Iterator[tuple[FeatureMap, Any, Any]]:
        """Yield (map, Z, Z_new) for each gamma; distances are taken once if possible.

        Unless `formed`, features may be factored.  They may be in `room`, the memory of
        those of before, which must not be in use any more.
        """
        kernels = [self._choose_kernel(X, None, y, weight, seed, g) for g in gammas]
        makers = [self._map_maker(X, weight, kernel) for kernel in kernels]
        sketches = [
            self._draw_sketch(make_map, X, y, weight, seed) for make_map in makers
        ]
        first = sketches[0]
        shared = (
            len(gammas) > 1
            and all(isinstance(gamma, Real) for gamma in gammas)
            and all(_are_equal(first, one) for one in sketches)
            and share_distances(kernels[0], first, X)
        )
        if shared:
            one = makers[0](first)
            yield from fit_transform_gammas(one, gammas, X, X_new, formed, room)
            return
        for make_map, sketch in zip(makers, sketches, strict=True):
            yield fit_and_transform(make_map(sketch), X, X_new, formed, room)

    def _n_rows(self, n: int) -> int:
        """Count the rows of a sketch of n points."""
        if self.n_components is None:
            return default_rows(n)
        return check_int(self.n_components, "n_components", minimum=1)

    def _draw_sketch(
        self, make_map: MakeMap, X: Any, y: Any, weight: Array | None, seed: int
    ) -> Sketch:
        """Draw the sketch of the points."""
        n = X.shape[0]
        s = self._n_rows(n)
        if isinstance(self.sketch, str) and s >= n:
            if not is_auto(self.p, "p"):
                get_sketch(self.sketch, s, self.p)  # both are checked
            _warn_if_too_many(s, n)
            return SubSampling(indices=np.arange(n)).draw(n)
        sketch = self._get_distribution(make_map, X, y, weight, s, seed)
        if isinstance(sketch, Sketch):
            return sketch
        return sketch.draw(n, seed, self.n_threads)

    def _get_distribution(
        self,
        make_map: MakeMap,
        X: Any,
        y: Any,
        weight: Array | None,
        s: int,
        seed: int,
        n: int | None = None,
    ) -> SketchLike:
        """Find the distribution of s rows, or the one that was given; choose p.

        X may be some of n points.
        """
        if not is_auto(self.p, "p"):
            return get_sketch(self.sketch, s, self.p)
        if not (isinstance(self.sketch, str) and self.sketch in WITH_P):
            return get_sketch(self.sketch, s)  # which has no p to be chosen
        kind, precomputed = WITH_P[self.sketch], self._is_precomputed()
        return choose_sketch(make_map, X, y, s, kind, seed, precomputed, weight, n)

    def _grow_map(
        self, make_map: MakeMap, X: Any, y: Any, weight: Array | None, seed: int
    ) -> tuple[FeatureMap, Array]:
        """Do `_fit_map` with as many rows as pay."""
        if not isinstance(self.sketch, str):
            raise ValueError(
                "n_components='auto' needs a sketch by name, which has no rows yet, "
                f"got {self.sketch!r}"
            )
        rtol = check_positive(self.rtol, "rtol")
        n = X.shape[0]
        s = min(FIRST_ROWS, n)
        first = self._get_distribution(make_map, X, y, weight, s, seed)
        make_sketch: Any
        if isinstance(first, SubSampling):
            make_sketch = SubSampling
        else:
            p = None
            if isinstance(first, PSparsified) and self.sketch in WITH_P:
                p = first.p
            make_sketch = partial(get_sketch, self.sketch, p=p)
        features = GrowingFeatures(make_map, make_sketch, X, seed)
        feature_map, Z, self.growth_ = self._grow(features, X, y, weight, seed, rtol)
        s = self.growth_[-1].n_components
        if feature_map.sketch_.shape[0] == s < n:  # the last step was not taken back
            warnings.warn(
                f"n_components='auto' stopped at {s} rows, the most that it takes "
                "here, although more may pay; raise memory_limit, or give a number",
                UserWarning,
                stacklevel=levels_to_the_caller(),
            )
        return feature_map, Z

    def _most_rows(self, n: int) -> int:
        """Tell how far n_components="auto" may grow, by the memory for features."""
        limit = check_memory_limit(self.memory_limit)
        return min(n, MAX_ROWS, max(FIRST_ROWS, limit // (GROWTH_ARRAYS * 8 * n)))

    def _in_blocks(
        self,
        method: Callable[..., AnyArray],
        X: Any,
        out: AnyArray | None = None,
        *aligned: AnyArray | None,
    ) -> AnyArray:
        """Apply a method to points: those of a source, or for `out`, block by block.

        The method also takes rows of further arrays, or None where these are None.
        Should a later block have an error, `out` is filled up to there.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if self._is_precomputed() and is_source(X):
            X = open_points(X)[:]  # of which columns are read
        whole = out is None or not isinstance(X, np.ndarray) or self._is_precomputed()
        if whole and not is_source(X):
            found = method(X, *aligned)
            if out is None:
                return found
            check_out(out, found.shape, found.dtype)[...] = found
            return out
        inputs = {"X": X} if isinstance(X, np.ndarray) else {}
        X = open_points(X, columns=names)
        for array in aligned:
            if array is not None and len(array) != len(X):
                raise ValueError(f"X has {len(X)} rows, but there are {len(array)}")
        probe = method(Source(X[:1], "X"), *_take_part(aligned, slice(0, 1)))
        out = check_out(out, (len(X), *probe.shape[1:]), probe.dtype, **inputs)
        # what is read, and what is found
        row_bytes = X.shape[1] * X.dtype.itemsize + probe.nbytes
        limit = min(READ_BYTES, check_memory_limit(self.memory_limit) // 4)
        step = max(1, limit // row_bytes)
        for start in range(0, len(X), step):
            end = min(len(X), start + step)
            try:
                some = _take_part(aligned, slice(start, end))
                out[start:end] = method(Source(X[start:end], "X"), *some)
            except ValueError as error:
                if " row " not in str(error):
                    raise
                raise ValueError(
                    f"in rows {start} to {end}, counted from {start}: {error}"
                ) from error
        return out

    def save(self, path: Path) -> None:
        """Write the estimator, fitted or not, to a file.

        Parameters
        ----------
        path : str or path
            The file, an .npz archive whatever its name; `pskernels.estimators.saving`
            has the format.  Loading never executes code.
        """
        saving.save(self, path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an estimator of this class that `save` wrote.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        The estimator, whose predictions are the same to the last bit.
        """
        model = saving.load(path)
        if not isinstance(model, cls):
            raise TypeError(
                f"{path} has a {type(model).__name__}, not a {cls.__name__}; "
                "pskernels.estimators.load takes any"
            )
        return model

    def check_learnt(self) -> None:
        """Check that what was learnt fits together, for an estimator out of a file."""
        if self.n_features_in_ != self.feature_map_.n_features_in_:
            raise ValueError(
                f"{self.n_features_in_} features do not fit a map of "
                f"{self.feature_map_.n_features_in_}"
            )
        names = getattr(self, "feature_names_in_", None)
        if names is not None and len(names) != self.n_features_in_:
            raise ValueError(f"{self.n_features_in_} features, but {len(names)} names")
        if self._is_precomputed() != is_precomputed(self.kernel_):
            raise ValueError(f"kernel={self.kernel!r}, but the map has {self.kernel_}")

    @property
    def _of_map(self) -> FeatureMap:
        check_is_fitted(self)
        return self.feature_map_

    @property
    def landmarks_(self) -> CheckedPoints | None:
        """The points of the fit that predictions need, (m, d)."""
        return self._of_map.landmarks_

    @property
    def sketch_(self) -> Sketch:
        """The drawn sketch."""
        return self._of_map.sketch_

    @property
    def kernel_(self) -> Kernel:
        """The kernel, its gamma a number."""
        return self._of_map.kernel_

    @property
    def metric_(self) -> Array | None:
        """L, of which the kernel sees L·x; None if there is none."""
        metric = self._of_map.kernel_.metric
        return None if metric is None else metric.L


def _warn_if_too_many(s: int, n: int) -> None:
    """Warn if a sketch was to have more rows than there are points."""
    if s > n:
        warnings.warn(
            f"n_components={s} is more than the {n} points: all of them are "
            "used, which is an exact kernel machine and no sketch",
            UserWarning,
            stacklevel=levels_to_the_caller(),
        )


def _take_part(arrays: Sequence[AnyArray | None], rows: slice) -> list[AnyArray | None]:
    return [None if array is None else array[rows] for array in arrays]


def _mean_loss(
    loss: Loss, decisions: AnyArray, targets: AnyArray, weight: Array | None
) -> float:
    """Average the loss of decisions over points."""
    targets = loss.check_targets(targets)
    values = loss.value(decisions, targets, axis=1 if targets.ndim > 1 else None)
    return float(np.average(values, weights=weight))


def _are_equal(sketch: Sketch, other: Sketch) -> bool:
    """Tell whether two sketches, drawn from one seed, are of the same distribution."""
    same = np.array_equal(sketch.indices, other.indices)
    return same and sketch.scale == other.scale


def _name_other_columns(X: Any) -> str:
    """Name the columns of a frame that hold no numbers, for a message."""
    dtypes = getattr(X, "dtypes", None)
    columns = getattr(X, "columns", None)
    if columns is None or dtypes is None:
        return ""
    text = [
        str(column)
        for column, dtype in zip(columns, dtypes, strict=True)
        if not str(dtype).lower().startswith(("float", "int", "uint", "bool"))
    ]
    return f": {', '.join(text)}"


class SketchedMachine(FitsSources, LearnsFromBatches, SketchedEstimator):
    """A linear machine on the features of a sketch.

    A family of machines adds `_encode`, which turns y into the targets of `solve`, and
    `_problem`, which makes a loss and an output matrix out of the parameters, and knows
    where to start, or None; and `_decision_shape`, that of what a point gets.
    """

    if TYPE_CHECKING:
        loss_: Loss
        coef_: Array
        intercept_: Any  # float, or an array
        dual_coef_: Array
        alpha_: float
        n_iter_: int
        dual_gap_: float
        objective_: float
        converged_: bool
        history_: list[Iteration]

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None = None,
        *,
        checkpoint: Path | None = None,
    ) -> Self:
        """Fit the machine.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
            (n, n), the Gram matrix, if kernel is "precomputed".  A memory map, the path
            of a .npy or Parquet file, and objects with a shape, a dtype and slices of
            rows are read a chunk at a time, in a few passes, if memory_limit has no
            room for them and their features.
        y : array of shape (n,), path or source
            Or the name of a column of the Parquet file X.
        sample_weight : array of shape (n,), optional
            A weight of 0 leaves a point out, one of 2 counts it twice.
        checkpoint : path, optional
            A file for the passes over points that are not in memory.  A fit that was
            stopped goes on there, if it is called as before; one that ends removes it.

        Returns
        -------
        The estimator itself.
        """
        # all that is called limits BLAS: once for all of it costs less
        with all_or_nothing(self), single_threaded_blas():
            if is_source(X):
                return self._fit_source(X, y, sample_weight, checkpoint)
            X, y, weight = self._check_data(X, y, sample_weight)
            self._warn_if_unscaled(X)
            self._fit_checked(X, y, weight)
            return self

    def _fit_checked(
        self, X: Any, y: Any, weight: Array | None, begin: Begin | None = None
    ) -> Any:
        """Fit to what `_check_data` returns; return the features, or None.

        `begin`, if given, is a function of features, targets, alpha and weights that
        finds where to start, and features to go on with.
        """
        if not self._is_precomputed():
            X, y, weight, _ = keep_weighted(X, y, weight)
        storage = check_option(self.feature_storage, "feature_storage", STORAGES)
        seed, start = self._seed(), self._warm_model()
        balanced = self._balance(y, weight)
        y, labels = self._encode(y), y
        if start is None:
            kernel = self._choose_kernel(X, labels, y, weight, seed, self.gamma)
            make_map = self._map_maker(X, weight, kernel)
            if storage == "auto" and self._is_exact(kernel, X):
                if self._fit_exactly(make_map(None), X, y, balanced):
                    _warn_if_too_many(self._n_rows(X.shape[0]), X.shape[0])
                    return None
            options: dict[str, Any] = {}
            if self._takes_factored_features() or storage != "auto":
                least = self._get_alpha(self.alpha, y, balanced)
                options = dict(form="features", alpha=least, storage=storage)
            feature_map, Z = self._fit_map(make_map, X, y, balanced, seed, **options)
        else:
            feature_map = self.feature_map_
            Z = feature_map.transform(X)
            if np.shape(start[0])[1:] != self._decision_shape():
                start = None  # of other outputs, levels or classes
        alpha = self._settle_alpha(Z, X, y, balanced)
        if begin is not None:
            Z = as_features(Z, resolve_n_threads(self.n_threads))
            Z, start = begin(Z, y, self._get_alpha(alpha, y, balanced), balanced)
        (result,) = self._solve(Z, y, balanced, [alpha], start=start)
        self._keep(feature_map, result)
        return Z

    def _settle_alpha(
        self, Z: Any, X: Any, y: Any, weight: Array | None
    ) -> float | str:
        """Find alpha of the last fit, if it takes more than n to tell it."""
        found: float | str = self.alpha
        return found

    def _is_exact(self, kernel: Kernel, X: Any) -> bool:
        """Tell whether the machine is ridge regression on all points."""
        if is_auto(self.n_components, "n_components") or sp.issparse(X):
            return False
        if self._n_rows(X.shape[0]) < X.shape[0]:
            return False
        plain = isinstance(self.sketch, str) and self.solver == "auto"
        squares = getattr(self, "loss", None) == "squared" and self.p == "auto"
        single = getattr(self, "output_matrix", None) is None
        if getattr(self, "calibration", None) == "jackknife+":  # which needs features
            return False
        many = X.shape[0] >= EXACT_POINTS
        return kernel.centred and plain and squares and single and many

    def _fit_exactly(
        self, feature_map: FeatureMap, X: Any, y: Any, weight: Array | None
    ) -> bool:
        """Fit all points as landmarks; tell whether that has converged."""
        self.__dict__.pop("growth_", None)
        if self.max_iter is not None:
            check_int(self.max_iter, "max_iter", minimum=1)
        X = feature_map.fit_all_points(X)
        self.loss_ = Squared()
        result = solve_all_points(
            feature_map,
            X,
            y,
            alpha=self._get_alpha(self.alpha, y, weight),
            weight=weight,
            fit_intercept=bool(self.fit_intercept),
            tol=check_positive(self.tol, "tol"),
            max_iter=self.max_iter,
        )
        if not result.converged:  # with whitened features it may
            return False
        self._keep(feature_map, result)
        self._made_with = {}  # a warm start needs features
        return True

    def _choose_kernel(
        self,
        X: Any,
        labels: Any,
        y: Any,
        weight: Array | None,
        seed: int,
        gamma: float | str | None,
    ) -> Kernel:
        """Find the kernel: that of the parameters, by folds, or learnt from targets y.

        Its gamma may still be a rule.
        """
        for name in ("rounds_", "_penalty"):
            self.__dict__.pop(name, None)
        if self._learns_kernel():
            rows = LEARNT_ROWS
            if not is_auto(self.n_components, "n_components"):
                rows = min(rows, self._n_rows(X.shape[0]))
            options = self._learning_options()
            options |= dict(rows=rows, thorough=rows == LEARNT_ROWS)
            learnt = self._learn_kernel(X, y, weight, seed, **options)
            self._penalty = learnt.penalty
            return learnt.kernel
        if isinstance(gamma, str) and gamma == "cv":
            from pskernels.estimators.search import choose_gamma

            gamma = choose_gamma(self, X, labels, weight, seed)
        return self._named_kernel(gamma)

    def _learning_options(self) -> dict[str, Any]:
        """Tell how targets are learnt from: see `MetricLearner`."""
        return {}

    def _learn_targets(self, y: Source) -> "Reweigh":
        """Learn what all targets have in common, of a `Source` of them.

        Returns a function of some targets and their weights, or None, that does what
        `_balance` does for all.
        """
        self._encode_chunk(np.asarray(y[:1]))
        return lambda y, weight: weight

    def _encode_chunk(self, y: Any) -> Array:
        """Encode some of the targets, after `_learn_targets`."""
        found: Array = self._encode(y)
        return found

    def _takes_factored_features(self) -> bool:
        """Tell whether there is one output, of a smooth loss.

        Products of several outputs with an array cost less, and corners need it.
        """
        loss = LOSSES.get(str(getattr(self, "loss", "pinball")))
        return loss is not None and loss().smooth and not self._decision_shape()

    def _check_data(
        self, X: Any, y: Any, sample_weight: npt.ArrayLike | None, reset: bool = True
    ) -> tuple[Any, Any, Array | None]:
        """Check the data; return X, y, and weights or None, as arrays."""
        X, y = self._check_points(X, reset, y=y, **self._y_options())
        if self._y_options().get("y_numeric") and y.dtype.kind not in "biuf":
            raise ValueError(
                f"y must hold numbers, got {y.dtype}; for classes there is "
                "SketchedKernelClassifier"
            )
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise_not_finite(y, "y")  # what was None becomes NaN behind sklearn's check
        if self._is_precomputed() and X.shape[0] != X.shape[1]:
            raise ValueError(
                "X must be a square matrix, K of all pairs of points, for a "
                f"precomputed kernel, got shape {X.shape}"
            )
        weight: Array | None = None
        if sample_weight is not None:
            checked: Array = _check_sample_weight(
                sample_weight, X, dtype=np.float64, ensure_non_negative=True
            )
            with np.errstate(over="ignore"):
                total = checked.sum()
            if not np.isfinite(total):
                raise ValueError(
                    "sample_weight must have a finite sum, but it overflows float64; "
                    "divide all weights by the largest one"
                )
            if not checked.any():  # older scikit-learn does not check it
                raise ValueError("sample_weight must have at least one non-zero weight")
            weight = checked
        return X, y, weight

    def _balance(self, y: Any, weight: Array | None) -> Array | None:
        """Return weights, those of classes included."""
        return weight

    def _warm_model(self) -> tuple[Array, Any] | None:
        """Find the model of the last fit, if this one is to begin there."""
        if not self.warm_start or not hasattr(self, "feature_map_"):
            return None
        if self.feature_map_.n_features_in_ != self.n_features_in_:
            return None
        if self._made_with != self._map_parameters():
            return None
        return self.coef_, self.intercept_

    def _map_parameters(self) -> dict[str, Any]:
        """Collect what another map is made of."""
        names = (
            "kernel", "gamma", "metric", "feature_groups", "sketch", "n_components",
            "p", "rtol",
        )  # fmt: skip
        found = {name: getattr(self, name) for name in names}
        if self._has_metric():
            found["metric"] = get_metric(self.metric)
        if self.feature_groups is not None:
            found["feature_groups"] = tuple(np.asarray(self.feature_groups).tolist())
        return found

    def _solve(
        self,
        Z: Any,
        y: Any,
        weight: Array | None,
        alphas: Sequence[float | str],
        *,
        start: "StartLike | None" = None,
        warm: bool = False,
    ) -> "list[SolveResult]":
        """Solve on features; return a result for each alpha."""
        options = self._solve_options(weight)
        Z = as_features(Z, resolve_n_threads(self.n_threads))  # for a pilot as well
        self.loss_, output_matrix, pilot = self._problem(Z, y, options)
        solver = self.solver
        if len(alphas) > 1 and self.loss_ == Squared() and isinstance(solver, str):
            # one Gram matrix for all of them
            solver = "direct" if solver == "auto" else solver
        return path(
            Z,
            y,
            loss=self.loss_,
            alphas=[self._get_alpha(alpha, y, weight) for alpha in alphas],
            output_matrix=output_matrix,
            solver=solver,
            tol=self._tolerance(y, weight),
            max_iter=self.max_iter,
            start=pilot if start is None else start,
            warm=warm,
            verbose=self.verbose,
            **options,
        )

    def _tolerance(self, y: Any, weight: Array | None) -> float:
        """Find the gap to stop at, relative to the objective."""
        found: float = self.tol
        return found

    def _solve_options(self, weight: Array | None) -> dict[str, Any]:
        """Collect what a pilot fit shares with the fit itself."""
        return dict(
            sample_weight=weight,
            fit_intercept=self.fit_intercept,
            n_threads=self.n_threads,
        )

    def _get_alpha(self, alpha: float | str, y: Any, weight: Array | None) -> float:
        """Make alpha a number."""
        if is_auto(alpha, "alpha"):
            alpha = default_alpha(len(y), weight, self._default_penalty())
            return alpha / self._alpha_unit(y, weight)
        return check_positive(alpha, "alpha")

    def _default_penalty(self) -> float:
        """Return n·alpha, as it was learnt with the kernel or by default."""
        return getattr(self, "_penalty", DEFAULT_PENALTY)

    def _alpha_unit(self, y: Any, weight: Array | None) -> float:
        """Compute what default alphas are divided by, so that no unit of y matters."""
        return 1.0

    def _grow(
        self,
        features: GrowingFeatures,
        X: Any,
        y: Any,
        weight: Array | None,
        seed: int,
        rtol: float,
    ) -> tuple[FeatureMap, Array, list[Growth]]:
        """Grow until the loss of points that are held out stops falling."""
        n = X.shape[0]
        order = np.random.default_rng(seed).permutation(n)
        held, rest = np.split(order, [min(MAX_HELD_OUT, n // 5)])
        weights = [None if weight is None else weight[part] for part in (held, rest)]
        loss = None

        def held_out_loss(feature_map: FeatureMap, Z: Array) -> float:
            nonlocal loss
            if len(held) == 0:  # too few points: all of them are landmarks
                return 0.0
            (result,) = self._solve(Z[rest], y[rest], weights[1], [self.alpha])
            if loss is None:  # kappa and epsilon are those of the first sketch
                loss = self.loss_
            decisions = result.predict(Z[held])
            return self.loss_of_decisions(decisions, y[held], weights[0], loss)

        return grow(features, held_out_loss, rtol, self._most_rows(n))

    def loss_of_decisions(
        self,
        decisions: AnyArray,
        targets: AnyArray,
        weight: Array | None,
        loss: Loss | None = None,
    ) -> float:
        """Average a loss, by default that of the last fit, over points.

        Parameters
        ----------
        decisions : array of shape (n,) or (n, outputs)
        targets : array
            As `solve` takes them.
        weight : array of shape (n,), optional
        loss : Loss, optional

        Returns
        -------
        float
        """
        return _mean_loss(loss or self.loss_, decisions, targets, weight)

    def _keep(self, feature_map: FeatureMap, result: "SolveResult") -> None:
        """Set what was learnt."""
        for name in ("compression_", "calibration_", "_batches"):
            self.__dict__.pop(name, None)
        if getattr(self, "feature_map_", None) is not feature_map:
            self._made_with = self._map_parameters()
        self.feature_map_ = feature_map
        self.coef_ = result.coef
        self.intercept_ = result.intercept
        self.dual_coef_ = feature_map.fold(result.coef)
        self.alpha_ = result.alpha
        self.n_iter_ = result.n_iter
        self.dual_gap_ = result.dual_gap
        self.objective_ = result.objective
        self.converged_ = result.converged
        self.history_ = result.history

    def compress(self, k: int, X: Any = None) -> Self:
        """Make a model of k of the landmarks, which predicts m/k times as fast.

        Landmarks are chosen one by one, so that the prediction without the intercept
        can be kept; the coefficients are fitted anew, to that prediction.  For models
        of p-sparsified sketches, which have up to 20 landmarks for each row: fewer than
        rows are not enough.

        Parameters
        ----------
        k : int
            At most the number of landmarks, m.
        X : array of shape (n, d), optional
            Points at which predictions are to stay as they are, such as some of the
            fit, beside the norm of what changes; None means the landmarks.

        Returns
        -------
        The other estimator.  Its `compression_` has a bound on what predictions change
        by, and what they changed by at these points (`pskernels.Compression`);
        objective_, dual_gap_, converged_ and history_ are those of the fit before.
        A calibration of intervals is that of the model before, and is left out.
        """
        check_is_fitted(self)
        if X is not None:
            X = self._check_points(X, reset=False)
        model, feature_map = copy(self), copy(self.feature_map_)
        for name in ("_batches", "calibration_"):
            model.__dict__.pop(name, None)
        feature_map.memory_limit = self.memory_limit
        model.feature_map_, model.coef_, model.compression_ = compress(
            feature_map, self.coef_, self.dual_coef_, self.alpha_, k, X
        )
        model._made_with = {}  # by no parameters: a warm start would keep k landmarks
        model.dual_coef_ = model.feature_map_.fold(model.coef_)
        return model

    def check_learnt(self) -> None:
        """Check shapes of the model, and that nothing that was learnt is missing."""
        super().check_learnt()
        shape = self._decision_shape()
        m, r = len(self.sketch_.indices), self.feature_map_.rank_
        for name, expected in {
            "coef_": (r, *shape),
            "dual_coef_": (m, *shape),
            "intercept_": shape,
        }.items():
            found = np.shape(getattr(self, name))
            if found != expected:
                raise ValueError(f"{name} must have the shape {expected}, got {found}")
        missing = [name for name in LEARNT_BY_ALL if not hasattr(self, name)]
        if missing:
            raise ValueError(f"{missing[0]} is missing")

    def predict_gradient(self, X: Any) -> AnyArray:
        """Compute the gradient of the function that was learnt, at points.

        That of predictions, of all levels, or of the decision function.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
            A source is read block by block.

        Returns
        -------
        ndarray of shape (n, d), or (n, outputs, d) for several outputs
            Kernels that are functions or precomputed have none; where a kernel has a
            corner, see `pskernels.kernel_gradient`.
        """
        return self._in_blocks(self._find_gradient, X)

    def _find_gradient(self, X: Any) -> Array:
        found: Array = self.feature_map_.gradient_folded(
            self._check_new(X), self.dual_coef_
        )
        return found

    def _check_new(self, X: Any) -> Any:
        """Check new points; those of a source are, in its blocks."""
        return X if isinstance(X, Source) else self._check_points(X, reset=False)

    def _decide(self, X: Any) -> Array:
        """Compute Z @ coef_ + intercept_ of new points."""
        check_is_fitted(self)
        X = self._check_new(X)
        with single_threaded_blas():
            found: Array = self.feature_map_.predict_folded(
                X, self.dual_coef_, self.intercept_
            )
            return found
