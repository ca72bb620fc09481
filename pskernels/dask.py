"""Machines on a Dask cluster: points that no machine has whole.

    partitions   checked where they are, in a task each
    a start      landmarks and a subsample come to the client, once
    a pass       one task for each partition, which answers a request with sums; they
                 are added up in a fixed order, and s × s systems are solved here

Tasks are pure functions of partitions and requests, and no task is bound to a worker:
if one is lost, Dask computes anew what it had.  The sketch is drawn by row numbers, so
that it is the same for any partition.  Needs `pip install 'pskernels[dask]'`.

Examples
--------
>>> from dask.distributed import Client  # doctest: +SKIP
>>> from pskernels.dask import DaskSketchedKernelRegressor  # doctest: +SKIP
>>> with Client() as client:  # doctest: +SKIP
...     model = DaskSketchedKernelRegressor(client=client).fit(X, y)
...     predicted = model.predict(X)  # lazy
...     local = model.to_local()
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cached_property, partial
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import dask.array as da
import numpy as np
from dask import delayed
from distributed import default_client

from pskernels import estimators
from pskernels._engine import column_moments
from pskernels._threads import single_threaded_blas
from pskernels._types import AnyArray, Array, Indices, Path, Shape
from pskernels._validation import aligned, common_dtype
from pskernels.sources import Source
from pskernels.streaming import (
    Chunks,
    add_answers,
    answer_all,
    check_fingerprints,
    fingerprint,
    shifted,
    weights_of,
)

if TYPE_CHECKING:
    from pskernels.feature_map import ChunkFeatures
    from pskernels.features import BlockFeatures
    from pskernels.losses import Loss
    from pskernels.passes import Answer, Request
    from pskernels.point_metric import Metric
    from pskernels.streaming import Reweigh

_Class = TypeVar("_Class")

# Answers that are added up in one task.
SUMMED = 8


class DaskSource(Source):
    """Rows of a Dask array, whose partitions `check_partitions` checks and keeps.

    Parameters
    ----------
    array : dask array of shape (n, d) or (n,)
        Of known lengths, in partitions of whole rows.
    name : str
    client : distributed.Client
    real : bool
        Whether they must be real numbers; labels may be text.
    names : list of str, optional
        Those of the columns.
    """

    names = None

    def __init__(
        self,
        array: Any,
        name: str,
        client: Any,
        real: bool = True,
        names: list[str] | None = None,
    ) -> None:
        super().__init__(array, name, real)
        self.client, self.names = client, names
        self.lengths = array.chunks[0]
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        self.array, self.real = array, real
        self.parts: Any = None

    @property
    def chunks_type(self) -> "type[DaskChunks]":
        return DaskChunks

    def _submit(self, function: Callable[..., Any], *arguments: Any, part: int) -> Any:
        return self.client.submit(function, self.parts[part], *arguments)

    def _read(self, start: int, end: int) -> AnyArray:
        return self._gather(np.arange(start, end))

    def _gather(self, numbers: Indices) -> AnyArray:
        """Bring some rows here, from where they are."""
        owner = np.searchsorted(self.starts, numbers, side="right") - 1
        used = np.unique(owner)
        places = [np.flatnonzero(owner == part) for part in used]
        futures = [
            self._submit(_take, numbers[place] - self.starts[part], part=part)
            for part, place in zip(used, places, strict=True)
        ]
        found = self.client.gather(futures)
        dtype = np.result_type(*found) if found else self.dtype
        out = np.empty((len(numbers), *self.shape[1:]), dtype)
        for place, rows in zip(places, found, strict=True):
            out[place] = rows
        return out

    def map_blocks(self, function: Callable[..., Any], *others: Any) -> list[Any]:
        """List function(start, rows, *rows of others) of all partitions."""
        futures = [
            self.client.submit(
                function,
                int(start),
                part,
                *(None if one is None else one.parts[k] for one in others),
            )
            for k, (start, part) in enumerate(
                zip(self.starts, self.parts, strict=False)
            )
        ]
        found: list[Any] = self.client.gather(futures)
        return found

    def column_moments(
        self,
        with_variance: bool,
        n_threads: int,
        memory_limit: int,
        metric: "Metric | None" = None,
    ) -> tuple[Array, float | None]:
        """Merge the moments of partitions, by the formula of Chan and others."""
        function = partial(_moments, with_variance, memory_limit, metric)
        parts = zip(*self.map_blocks(function), strict=True)
        sizes, means_of_parts, variances = parts
        counts, means = np.array(sizes, float), np.array(means_of_parts)
        mean = counts @ means / counts.sum()
        if not with_variance:
            return mean, None
        between = counts @ ((means - mean) ** 2).sum(axis=1)
        return mean, (counts @ np.array(variances) + between) / counts.sum()


def check_partitions(sources: list[DaskSource]) -> None:
    """Check all partitions: those of several sources in one task, to be together."""
    first = sources[0]
    blocks = [source.array.to_delayed().ravel() for source in sources]
    forms = [(source.name, source.shape[1:], source.real) for source in sources]
    checked = first.client.compute(
        [
            delayed(_check_parts)(forms, k, int(start), length, *some)
            for k, (start, length, *some) in enumerate(
                zip(first.starts, first.lengths, *blocks, strict=False)
            )
        ]
    )
    for j, source in enumerate(sources):
        source.parts = [first.client.submit(getitem, parts, j) for parts in checked]


def _check_parts(
    forms: list[tuple[str, Shape, bool]],
    number: int,
    start: int,
    length: int,
    *blocks: Any,
) -> list[AnyArray]:
    return [
        _check_part(block, name, number, start, length, shape, real)
        for (name, shape, real), block in zip(forms, blocks, strict=True)
    ]


# What comes from another worker may lie anywhere in the bytes of a message, hence
# `aligned` in tasks.


def _check_part(
    block: Any,
    name: str,
    number: int,
    start: int,
    length: int,
    shape: tuple[int, ...],
    real: bool,
) -> AnyArray:
    """Check a partition: what its array promised, and that numbers are finite."""
    place = f"partition {number} of {name} (rows {start} to {start + length})"
    rows = np.ascontiguousarray(block)
    if length == 0:
        raise ValueError(f"{place} is empty; drop it, or use rechunk or repartition")
    if rows.shape != (length, *shape):
        raise ValueError(
            f"{place} must have shape {(length, *shape)}, got {rows.shape}"
        )
    if not real:
        return rows
    if rows.dtype.kind not in "biuf":
        raise TypeError(f"{place} must hold real numbers, got dtype {rows.dtype}")
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        first = start + int(bad[0][0])
        raise ValueError(f"{place} has NaN or infinity in row {first}")
    return rows.astype(common_dtype(rows), copy=False)


def _take(rows: AnyArray, numbers: Indices) -> AnyArray:
    return rows[numbers]


def _moments(
    with_variance: bool,
    memory_limit: int,
    metric: "Metric | None",
    start: int,
    rows: AnyArray,
) -> tuple[int, Array, float | None]:
    rows = aligned(rows)
    return len(rows), *column_moments(rows, with_variance, 1, memory_limit, metric)


class _Fit(NamedTuple):
    """What tasks of a fit share."""

    features_of: "ChunkFeatures"
    encode: Callable[[AnyArray], Array]
    reweigh: "Reweigh"
    total: float
    step: int
    shift: Array | float


class DaskChunks(Chunks):
    """Passes over partitions, wherever they are.

    Parameters are those of `Chunks`; X, y and weight are of the class `DaskSource`.
    """

    is_distributed = True

    if TYPE_CHECKING:
        X: DaskSource
        y: DaskSource
        weight: DaskSource | None

    @cached_property
    def _fit(self) -> Any:
        """What tasks share: a task too, and no scattered copy, to be computed anew."""
        fit = _Fit(
            self.features_of,
            self._encode,
            self._reweigh,
            self._total,
            self.step,
            self.shift,
        )
        return self.X.client.submit(_identity, fit, pure=False)

    def run_pass(
        self,
        losses: "Sequence[Loss]",
        requests: "dict[int, Request]",
        fit_intercept: bool,
        verbose: int = 0,
    ) -> "dict[int, Answer]":
        """Answer requests by a task for each partition."""
        client, weight = self.X.client, self.weight
        answers = [
            client.submit(
                _answer_part,
                self._fit,
                int(start),
                x,
                self.y.parts[k],
                None if weight is None else weight.parts[k],
                losses,
                requests,
                fit_intercept,
            )
            for k, (start, x) in enumerate(
                zip(self.X.starts, self.X.parts, strict=False)
            )
        ]
        while len(answers) > 1:
            answers = [
                client.submit(_add_answers, answers[k : k + SUMMED])
                for k in range(0, len(answers), SUMMED)
            ]
        found: dict[int, Answer] = answers[0].result()
        return found

    def list_prints(self) -> dict[str, Indices]:
        """List the checksums of all partitions, as arrays by name."""
        sources = {"X": self.X, "y": self.y, "sample_weight": self.weight}
        starts = self.X.starts
        return {
            f"print {start} {end} {name}": prints
            for name, source in sources.items()
            if source is not None
            for start, end, prints in zip(
                starts[:-1], starts[1:], source.map_blocks(_print_part), strict=True
            )
        }

    def recall_prints(self, record: dict[str, AnyArray]) -> None:
        """Check that partitions are those of an earlier run."""
        for name, prints in self.list_prints().items():
            _, start, end, which = name.split()
            old = record.get(name, prints)
            check_fingerprints(which, int(start), int(end), old, prints)

    def survey(self) -> Array:
        """Find the largest |z| of each column."""
        found = self.X.map_blocks(partial(_survey_part, self.features_of, self.step))
        result: Array = np.max(found, axis=0)
        return result


def _identity(value: Any) -> Any:
    return value


def _features(
    features_of: "ChunkFeatures", step: int, X: AnyArray
) -> "Iterator[tuple[slice, BlockFeatures]]":
    """Yield (rows, features) of a partition, some rows at a time, in one thread.

    A worker has as many tasks at once as it has threads.
    """
    for start in range(0, len(X), step):
        rows = slice(start, min(len(X), start + step))
        yield rows, features_of(X[rows], 1)


def _answer_part(
    fit: _Fit,
    start: int,
    X: AnyArray,
    y: AnyArray,
    weight: AnyArray | None,
    losses: "Sequence[Loss]",
    requests: "dict[int, Request]",
    fit_intercept: bool,
) -> "dict[int, Answer]":
    """Answer requests {output: Request} for the points of a partition."""
    answers: dict[int, Answer] = {}
    X, y = aligned(X), aligned(y)
    weight = weights_of(start, y, weight, fit.reweigh) / fit.total
    targets = shifted(fit.encode(y), fit.shift)
    with single_threaded_blas():
        for rows, features in _features(fit.features_of, fit.step, X):
            some = np.ascontiguousarray(targets[:, rows])
            add_answers(
                answers,
                answer_all(
                    features, losses, some, weight[rows], requests, fit_intercept
                ),
            )
    return answers


def _add_answers(parts: "Iterable[dict[int, Answer]]") -> "dict[int, Answer]":
    """Add up answers of several partitions, in their order."""
    total: dict[int, Answer] = {}
    for part in parts:
        add_answers(total, part)
    return total


def _print_part(start: int, rows: AnyArray) -> Indices:
    return fingerprint(rows)


def _survey_part(
    features_of: "ChunkFeatures", step: int, start: int, X: AnyArray
) -> Array:
    X = aligned(X)
    with single_threaded_blas():
        parts = [features.largest for _, features in _features(features_of, step, X)]
    found: Array = np.max(parts, axis=0)
    return found


def _as_array(data: Any, name: str) -> Any:
    """Make a Dask array of known lengths, whole rows in each partition."""
    if hasattr(data, "to_dask_array"):
        data = data.to_dask_array(lengths=True)
    if not isinstance(data, da.Array):
        raise TypeError(
            f"{name} must be a Dask array, frame or series, got {type(data).__name__}"
        )
    if np.isnan(data.shape[0]):
        data = data.compute_chunk_sizes()
    return data.rechunk({1: -1}) if data.ndim > 1 else data


def _names_of(data: Any) -> list[str] | None:
    """List the names of the columns of a frame, if they are text."""
    names = list(getattr(data, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


if TYPE_CHECKING:  # what a machine of scikit-learn has, which comes without types
    from sklearn.base import BaseEstimator as _Estimator
else:
    _Estimator = object


class _OnDask(_Estimator):
    """What all classes on a cluster add to those of one process.

    A class has `local_class`, that of one process, and the same parameters and
    `client`: a distributed.Client, or None for the one that was made last.
    """

    if TYPE_CHECKING:
        client: Any
        local_class: Any

        def __init__(self, *, client: Any = None, **options: Any) -> None: ...

    def _get_client(self) -> Any:
        return default_client() if self.client is None else self.client

    def _make_local(self) -> Any:
        options = self.get_params(deep=False)
        del options["client"]
        return self.local_class(**options)

    def _take_from(self, local: Any, client: Any) -> Self:
        for name, value in vars(local).items():
            if name not in local.get_params(deep=False):
                setattr(self, name, value)
        self.client_ = client
        return self

    def to_local(self) -> Any:
        """Return the same, fitted, as an estimator of one process."""
        local = self._make_local()
        for name, value in vars(self).items():
            if name not in ("client", "client_"):
                setattr(local, name, deepcopy(value))
        return local

    def save(self, path: Path) -> None:
        """Write the estimator of one process to a file."""
        self.to_local().save(path)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the client, which belongs to this process."""
        state: dict[str, Any] = super().__getstate__().copy()
        state["client"] = None
        state.pop("client_", None)
        return state

    def _map(self, method: str, X: Any) -> Any:
        """Apply a method of the local estimator: to Dask's partitions, later."""
        local = self.to_local()
        names = _names_of(X)
        known = list(getattr(local, "feature_names_in_", names or []))
        if hasattr(X, "to_dask_array"):
            if names is not None and names != known:
                raise ValueError(
                    f"X must have the columns {', '.join(known)} of the fit, in their "
                    f"order, got {', '.join(names)}"
                )
            X = X.to_dask_array()
        if not isinstance(X, da.Array):
            return getattr(local, method)(X)
        X = X.rechunk({1: -1})
        probe = _call(local, method, np.zeros((1, X.shape[1]), X.dtype), None)
        model = delayed(local)
        parts = [
            da.from_delayed(
                delayed(_call)(model, method, block, probe[:0]),
                shape=(length, *probe.shape[1:]),
                dtype=probe.dtype,
            )
            for block, length in zip(X.to_delayed().ravel(), X.chunks[0], strict=True)
        ]
        return da.concatenate(parts, allow_unknown_chunksizes=True)


def _call(model: Any, method: str, X: Any, nothing: Any) -> Any:
    """Apply a method to a partition; that of an empty one is `nothing`."""
    if len(X) == 0:
        return nothing
    return getattr(model, method)(Source(np.asarray(X), "X"))


class _DaskMachine(_OnDask):
    takes_batches = False

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        checkpoint: Path | None = None,
    ) -> Self:
        """Fit the machine, by passes over partitions.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
        y, sample_weight : Dask arrays or series of n rows
            They get the partitions of X.
        checkpoint : path, optional
            A file of this process for the passes.  A fit that was stopped goes on
            there, if it is called as before, with the same partitions.

        Returns
        -------
        The estimator itself.
        """
        if getattr(self, "calibration", None) is not None:
            raise ValueError(
                "calibration needs points in memory: calibrate on some of them, with "
                f"{self.local_class.__name__}"
            )
        client, local = self._get_client(), self._make_local()
        names, X = _names_of(X), _as_array(X, "X")
        sources: list[DaskSource | None] = []
        for name, data in (("y", y), ("sample_weight", sample_weight)):
            if data is None and name != "y":
                sources.append(None)
                continue
            data = _as_array(data, name)
            if data.shape[0] != X.shape[0]:
                raise ValueError(
                    f"X has {X.shape[0]} rows, but {name} has {data.shape[0]}: they "
                    "must be aligned"
                )
            real = name != "y" or local.takes_numbers
            data = data.rechunk({0: X.chunks[0]})
            sources.append(DaskSource(data, name, client, real))
        sources.insert(0, DaskSource(X, "X", client, names=names))
        check_partitions([source for source in sources if source is not None])
        local.fit_distributed(*sources, checkpoint=checkpoint)
        return self._take_from(local, client)

    def predict(self, X: Any) -> Any:
        """Predict, lazily if X is a Dask array or frame."""
        return self._map("predict", X)


def _with_client(cls: type[_Class]) -> type[_Class]:
    """Give a class the parameters of its local class, and a client."""
    made: Any = cls
    signature = inspect.signature(made.local_class.__init__)
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)

    def init(self: Any, *, client: Any = None, **options: Any) -> None:
        made.local_class.__init__(self, **options)
        self.client = client

    # scikit-learn reads the names of parameters there
    vars(init)["__signature__"] = signature.replace(
        parameters=[*signature.parameters.values(), client]
    )
    made.__init__ = init
    return cls


@_with_client
class DaskSketchedKernelRegressor(  # type: ignore[misc]  # predict: no out
    _DaskMachine, estimators.SketchedKernelRegressor
):
    """`SketchedKernelRegressor` on a Dask cluster, with a parameter more: client."""

    local_class = estimators.SketchedKernelRegressor


@_with_client
class DaskSketchedQuantileRegressor(  # type: ignore[misc]  # predict: no out
    _DaskMachine, estimators.SketchedQuantileRegressor
):
    """`SketchedQuantileRegressor` on a Dask cluster, with a parameter more: client."""

    local_class = estimators.SketchedQuantileRegressor


@_with_client
class DaskSketchedKernelClassifier(  # type: ignore[misc]  # predict: no out
    _DaskMachine, estimators.SketchedKernelClassifier
):
    """`SketchedKernelClassifier` on a Dask cluster, with a parameter more: client."""

    local_class = estimators.SketchedKernelClassifier

    def decision_function(  # type: ignore[override]  # lazy: no out
        self, X: Any
    ) -> Any:
        """Compute decisions, lazily if X is a Dask array or frame."""
        return self._map("decision_function", X)

    def predict_proba(self, X: Any) -> Any:
        """Predict probabilities, lazily if X is a Dask array or frame."""
        return self._map("predict_proba", X)


@_with_client
class DaskKernelSketch(_OnDask, estimators.KernelSketch):
    """`KernelSketch` on a Dask cluster, with a parameter more: client."""

    local_class = estimators.KernelSketch

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the sketch, and learn the map, from landmarks and column moments.

        Parameters
        ----------
        X : Dask array or data frame of shape (n, d)
        y : ignored

        Returns
        -------
        The transformer itself.
        """
        client, local = self._get_client(), self._make_local()
        source = DaskSource(_as_array(X, "X"), "X", client, names=_names_of(X))
        check_partitions([source])
        local.fit(source)
        return self._take_from(local, client)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Compute ``fit(X).transform(X)``, the latter lazily."""
        return self.fit(X).transform(X)

    # lazy, and without out
    def transform(self, X: Any) -> Any:  # type: ignore[override]
        """Compute features, lazily if X is a Dask array or frame."""
        return self._map("transform", X)
