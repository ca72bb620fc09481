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
from copy import deepcopy
from functools import cached_property, partial
from operator import getitem
from typing import NamedTuple

import dask.array as da
import numpy as np
from dask import delayed
from distributed import default_client

from pskernels import estimators
from pskernels._engine import column_moments
from pskernels._threads import single_threaded_blas
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

    def __init__(self, array, name, client, real=True, names=None):
        super().__init__(array, name, real)
        self.client, self.names = client, names
        self.lengths = array.chunks[0]
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        self.array, self.real, self.parts = array, real, None

    @property
    def chunks_type(self):
        return DaskChunks

    def _submit(self, function, *arguments, part):
        return self.client.submit(function, self.parts[part], *arguments)

    def _read(self, start, end):
        return self._gather(np.arange(start, end))

    def _gather(self, numbers):
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

    def map_blocks(self, function, *others):
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
        return self.client.gather(futures)

    def column_moments(self, with_variance, n_threads, memory_limit, metric=None):
        """Merge the moments of partitions, by the formula of Chan and others."""
        function = partial(_moments, with_variance, memory_limit, metric)
        counts, means, variances = zip(*self.map_blocks(function), strict=True)
        counts, means = np.array(counts, float), np.array(means)
        mean = counts @ means / counts.sum()
        if not with_variance:
            return mean, None
        between = counts @ ((means - mean) ** 2).sum(axis=1)
        return mean, (counts @ np.array(variances) + between) / counts.sum()


def check_partitions(sources):
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


def _check_parts(forms, number, start, length, *blocks):
    return [
        _check_part(block, name, number, start, length, shape, real)
        for (name, shape, real), block in zip(forms, blocks, strict=True)
    ]


# What comes from another worker may lie anywhere in the bytes of a message, hence
# `aligned` in tasks.


def _check_part(block, name, number, start, length, shape, real):
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


def _take(rows, numbers):
    return rows[numbers]


def _moments(with_variance, memory_limit, metric, start, rows):
    rows = aligned(rows)
    return len(rows), *column_moments(rows, with_variance, 1, memory_limit, metric)


class _Fit(NamedTuple):
    """What tasks of a fit share."""

    features_of: object
    encode: object
    reweigh: object
    total: float
    step: int
    shift: object


class DaskChunks(Chunks):
    """Passes over partitions, wherever they are.

    Parameters are those of `Chunks`; X, y and weight are of the class `DaskSource`.
    """

    is_distributed = True

    @cached_property
    def _fit(self):
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

    def run_pass(self, losses, requests, fit_intercept, verbose=0):
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
        return answers[0].result()

    def list_prints(self):
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

    def recall_prints(self, record):
        """Check that partitions are those of an earlier run."""
        for name, prints in self.list_prints().items():
            _, start, end, which = name.split()
            old = record.get(name, prints)
            check_fingerprints(which, int(start), int(end), old, prints)

    def survey(self):
        """Find the largest |z| of each column."""
        found = self.X.map_blocks(partial(_survey_part, self.features_of, self.step))
        return np.max(found, axis=0)


def _identity(value):
    return value


def _features(features_of, step, X):
    """Yield (rows, features) of a partition, some rows at a time, in one thread.

    A worker has as many tasks at once as it has threads.
    """
    for start in range(0, len(X), step):
        rows = slice(start, min(len(X), start + step))
        yield rows, features_of(X[rows], 1)


def _answer_part(fit, start, X, y, weight, losses, requests, fit_intercept):
    """Answer requests {output: Request} for the points of a partition."""
    answers = {}
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


def _add_answers(parts):
    """Add up answers of several partitions, in their order."""
    total = {}
    for part in parts:
        add_answers(total, part)
    return total


def _print_part(start, rows):
    return fingerprint(rows)


def _survey_part(features_of, step, start, X):
    X = aligned(X)
    with single_threaded_blas():
        parts = [features.largest for _, features in _features(features_of, step, X)]
    return np.max(parts, axis=0)


def _as_array(data, name):
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


def _names_of(data):
    """List the names of the columns of a frame, if they are text."""
    names = list(getattr(data, "columns", []))
    return names if names and all(isinstance(name, str) for name in names) else None


class _OnDask:
    """What all classes on a cluster add to those of one process.

    A class has `local_class`, that of one process, and the same parameters and
    `client`: a distributed.Client, or None for the one that was made last.
    """

    def _get_client(self):
        return default_client() if self.client is None else self.client

    def _make_local(self):
        options = self.get_params(deep=False)
        del options["client"]
        return self.local_class(**options)

    def _take_from(self, local, client):
        for name, value in vars(local).items():
            if name not in local.get_params(deep=False):
                setattr(self, name, value)
        self.client_ = client
        return self

    def to_local(self):
        """Return the same, fitted, as an estimator of one process."""
        local = self._make_local()
        for name, value in vars(self).items():
            if name not in ("client", "client_"):
                setattr(local, name, deepcopy(value))
        return local

    def save(self, path):
        """Write the estimator of one process to a file."""
        self.to_local().save(path)

    def __getstate__(self):
        """Leave out the client, which belongs to this process."""
        state = super().__getstate__().copy()
        state["client"] = None
        state.pop("client_", None)
        return state

    def _map(self, method, X):
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


def _call(model, method, X, nothing):
    """Apply a method to a partition; that of an empty one is `nothing`."""
    if len(X) == 0:
        return nothing
    return getattr(model, method)(Source(np.asarray(X), "X"))


class _DaskMachine(_OnDask):
    takes_batches = False

    def fit(self, X, y, sample_weight=None, *, checkpoint=None):
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
        sources = []
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

    def predict(self, X):
        """Predict, lazily if X is a Dask array or frame."""
        return self._map("predict", X)


def _with_client(cls):
    """Give a class the parameters of its local class, and a client."""
    signature = inspect.signature(cls.local_class.__init__)
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)

    def init(self, *, client=None, **options):
        cls.local_class.__init__(self, **options)
        self.client = client

    # scikit-learn reads the names of parameters there
    init.__signature__ = signature.replace(
        parameters=[*signature.parameters.values(), client]
    )
    cls.__init__ = init
    return cls


@_with_client
class DaskSketchedKernelRegressor(_DaskMachine, estimators.SketchedKernelRegressor):
    """`SketchedKernelRegressor` on a Dask cluster, with a parameter more: client."""

    local_class = estimators.SketchedKernelRegressor


@_with_client
class DaskSketchedQuantileRegressor(_DaskMachine, estimators.SketchedQuantileRegressor):
    """`SketchedQuantileRegressor` on a Dask cluster, with a parameter more: client."""

    local_class = estimators.SketchedQuantileRegressor


@_with_client
class DaskSketchedKernelClassifier(_DaskMachine, estimators.SketchedKernelClassifier):
    """`SketchedKernelClassifier` on a Dask cluster, with a parameter more: client."""

    local_class = estimators.SketchedKernelClassifier

    def decision_function(self, X):
        """Compute decisions, lazily if X is a Dask array or frame."""
        return self._map("decision_function", X)

    def predict_proba(self, X):
        """Predict probabilities, lazily if X is a Dask array or frame."""
        return self._map("predict_proba", X)


@_with_client
class DaskKernelSketch(_OnDask, estimators.KernelSketch):
    """`KernelSketch` on a Dask cluster, with a parameter more: client."""

    local_class = estimators.KernelSketch

    def fit(self, X, y=None):
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

    def fit_transform(self, X, y=None):
        """Compute ``fit(X).transform(X)``, the latter lazily."""
        return self.fit(X).transform(X)

    def transform(self, X):
        """Compute features, lazily if X is a Dask array or frame."""
        return self._map("transform", X)
