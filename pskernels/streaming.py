"""Fits to points of a `Source`: a chunk of rows at a time, some passes over all.

    Chunks      rows -> features, targets and weights, checked, one chunk after another
    run_passes  requests of all outputs -> one pass -> answers, until none is left

A chunk is computed anew in every pass, or read from a temporary file (`scratch`), so
that memory does not depend on n.
"""

import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pskernels._products import EPS
from pskernels._progress import progress
from pskernels._threads import single_threaded_blas
from pskernels._types import AnyArray, Array, Indices
from pskernels.checkpoint import Checkpoint, pack_answers, unpack_answers
from pskernels.losses import Loss, Squared
from pskernels.passes import Answer, Outcome, Request, answer

if TYPE_CHECKING:
    from pskernels.feature_map import ChunkFeatures
    from pskernels.features import BlockFeatures
    from pskernels.scratch import Scratch
    from pskernels.sources import Source

# What a chunk of features takes: 2**25 bytes are 83,000 rows of 100 features in
# float32.  `python bench/scaling.py chunks` compares sizes.
CHUNK_BYTES = 2**25
# Numbers of float64 that a pass has for each row, beside its features.
ROW_NUMBERS = 24
# Rows of a checksum, which are compared from pass to pass: changes have a place.
PRINTED_ROWS = 1024


# (y of some rows, their weights or None) -> weights, or None for equal ones.
Reweigh: TypeAlias = Callable[[AnyArray, Array | None], Array | None]


class ChangedRowsError(ValueError):
    """Rows of a source are not those of an earlier pass."""


class Chunks:
    """Chunks of points: features, targets and weights of some rows each.

    Parameters
    ----------
    X, y : Source
        Of shape (n, d), and (n,) or (n, outputs).
    weight : Source or None
        Not negative.
    features_of : ChunkFeatures
    encode : callable
        y of some rows -> float64 of shape (outputs, rows).
    reweigh : callable
        y of some rows, and their weights or None -> weights, or None for equal ones.
    total : float
        What weights add up to: `total_weight`.
    memory_limit : int
    n_outputs : int

    Attributes
    ----------
    shift : array of shape (outputs,), or 0
        What is taken from the targets.
    scratch : Scratch or None
        Keeps the numbers of features from the first pass on.
    """

    shift: Array | float = 0.0
    scratch: "Scratch | None" = None
    is_distributed = False

    def __init__(
        self,
        X: "Source",
        y: "Source",
        weight: "Source | None",
        features_of: "ChunkFeatures",
        encode: Callable[[AnyArray], Array],
        reweigh: Reweigh,
        total: float,
        memory_limit: int,
        n_outputs: int = 1,
    ) -> None:
        self.X, self.y, self.weight = X, y, weight
        self.features_of, self._encode, self._reweigh = features_of, encode, reweigh
        row = features_of.r * features_of.dtype.itemsize
        row += X.shape[1] * X.dtype.itemsize + 8 * (ROW_NUMBERS + 3 * n_outputs)
        self.step = int(max(1, min(CHUNK_BYTES, memory_limit // 4) // row))
        self._total = total
        self._prints: dict[tuple[int, int, str], Indices] = {}

    def slices(self) -> list[slice]:
        """List the rows of each chunk."""
        n = len(self.X)
        return [slice(k, min(n, k + self.step)) for k in range(0, n, self.step)]

    def __iter__(self) -> "Iterator[tuple[BlockFeatures, Array, Array]]":
        """Yield (features, targets of shape (outputs, rows), weights) of each chunk."""
        for rows in self.slices():
            yield self.chunk(rows)

    def chunk(self, rows: slice) -> "tuple[BlockFeatures, Array, Array]":
        """Compute the chunk of some rows."""
        y = self.y[rows]
        self._compare(rows, "y", y)
        weight = None
        if self.weight is not None:
            weight = self.weight[rows]
            self._compare(rows, "sample_weight", weight)
        weight = weights_of(rows.start, y, weight, self._reweigh) / self._total
        features = self.features_of.of_numbers(self._numbers(rows))
        return features, shifted(self._encode(y), self.shift), weight

    def _numbers(self, rows: slice) -> Array:
        """Compute the numbers of features, or read what an earlier pass has kept."""
        if self.scratch is not None and rows in self.scratch:
            return self.scratch.read(rows)
        X = np.ascontiguousarray(self.X[rows], self.X.dtype)
        self._compare(rows, "X", X)
        numbers = self.features_of.numbers(X)
        if self.scratch is not None and not self.scratch.write(rows, numbers):
            self.drop_scratch()
        return numbers

    def drop_scratch(self) -> None:
        """Compute features in every pass from now on."""
        if self.scratch is not None:
            self.scratch.close()
            self.scratch = None

    def _compare(self, rows: slice, name: str, array: AnyArray) -> None:
        """Check that rows are those of the first pass."""
        new = fingerprint(array)
        old = self._prints.setdefault((rows.start, rows.stop, name), new)
        check_fingerprints(name, rows.start, rows.stop, old, new)

    def run_pass(
        self,
        losses: Sequence[Loss],
        requests: dict[int, Request],
        fit_intercept: bool,
        verbose: int = 0,
    ) -> dict[int, Answer]:
        """Answer the requests of outputs, {number: Request}, chunk by chunk."""
        answers: dict[int, Answer] = {}
        total = len(self.X)
        with single_threaded_blas(), progress(total, "rows", verbose) as report:
            for features, targets, weight in self:
                add_answers(
                    answers,
                    answer_all(
                        features, losses, targets, weight, requests, fit_intercept
                    ),
                )
                report(len(weight))
        return answers

    def list_prints(self) -> dict[str, Indices]:
        """List the checksums of all rows, as arrays by name."""
        return {
            f"print {start} {end} {name}": prints
            for (start, end, name), prints in self._prints.items()
        }

    def recall_prints(self, record: dict[str, AnyArray]) -> None:
        """Take checksums of an earlier run for those of the first pass."""
        for name in record:
            if name.startswith("print "):
                _, start, end, which = name.split()
                self._prints[int(start), int(end), which] = record[name]

    @property
    def sum_error(self) -> float:
        """Bound the error of a sum over rows, relative to that of the sizes.

        Each chunk has groups of rows, four of them at least (`Features`).
        """
        return EPS / 2 * (self.step // 4 + 2 * len(self.slices()) + 64)

    def survey(self) -> Array:
        """Find the largest |z| of each column, by a pass over all chunks."""
        found: Array = np.max([features.largest for features, _, _ in self], axis=0)
        return found


def answer_all(
    features: "BlockFeatures",
    losses: Sequence[Loss],
    targets: Array,
    weight: Array,
    requests: dict[int, Request],
    fit_intercept: bool,
) -> dict[int, Answer]:
    """Answer the requests of outputs, {number: Request}, for some points."""
    found: dict[int, Answer] = {}
    gram = None
    for j, request in requests.items():
        found[j] = answer(
            features, losses[j], targets[j], weight, request, fit_intercept, gram
        )
        if isinstance(losses[j], Squared):  # of all outputs
            gram = found[j].gram
    return found


def add_answers(answers: dict[int, Answer], others: dict[int, Answer]) -> None:
    """Add the answers of some points to those of others, in place."""
    for j, found in others.items():
        answers[j] = answers[j] + found if j in answers else found


def shifted(targets: Array, shift: Array | float) -> Array:
    """Take a number from the targets (outputs, rows) of each output."""
    found: Array = targets - np.reshape(shift, (-1, 1))
    return found


def total_weight(y: "Source", weight: "Source | None", reweigh: Reweigh) -> float:
    """Add up all weights, and check them and the targets on the way."""
    total: float = sum(y.map_blocks(partial(_sum_weights, reweigh), weight))
    if not 0 < total < np.inf:
        raise ValueError(f"weights must add up to more than 0, got {total:g}")
    return total


def _sum_weights(
    reweigh: Reweigh, start: int, y: AnyArray, weight: AnyArray | None
) -> float:
    """Add up the weights of some rows, after a look at their targets."""
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        finite = np.isfinite(y).reshape(len(y), -1).all(axis=1)
        row = start + int(finite.argmin())
        raise ValueError(f"y has NaN or infinity in row {row}")
    return float(weights_of(start, y, weight, reweigh).sum())


def weights_of(
    start: int, y: AnyArray, weight: AnyArray | None, reweigh: Reweigh
) -> Array:
    """Find the weights of some rows, those of classes included."""
    if weight is not None:
        weight = np.asarray(weight, np.float64)
        if not np.isfinite(weight).all() or weight.min() < 0:
            raise ValueError(
                f"rows {start} to {start + len(weight)}: sample_weight must be finite "
                "and not negative"
            )
    weight = reweigh(y, weight)
    return np.ones(len(y)) if weight is None else weight


def fingerprint(array: AnyArray) -> Indices:
    """Compute a checksum of each few rows."""
    array = np.ascontiguousarray(array)
    if array.dtype == object:  # whose bytes are addresses
        array = array.astype(str)
    parts = range(0, len(array), PRINTED_ROWS)
    rows: Any = array
    return np.array([zlib.crc32(rows[k : k + PRINTED_ROWS]) for k in parts])


def check_fingerprints(
    name: str, start: int, end: int, old: Indices, new: Indices
) -> None:
    """Check that the checksums of rows from start to end are the same as before."""
    changed = np.flatnonzero(old != new)
    if len(changed):
        first = start + PRINTED_ROWS * int(changed[0])
        last = min(end, first + PRINTED_ROWS)
        raise ChangedRowsError(
            f"{name} has changed since the first pass, in rows {first} to {last}; a "
            "fit needs rows that stay as they are"
        )


def run_passes(
    chunks: Chunks,
    losses: Sequence[Loss],
    makers: list[Generator[Request, Answer, Outcome]],
    fit_intercept: bool,
    log: "PassLog | None" = None,
    verbose: int = 0,
) -> list[Outcome]:
    """Run a generator of requests for each output, all of them by the same passes.

    Parameters
    ----------
    chunks : Chunks
    losses : list of Loss, one for each output
    makers : list of generators
        `passes.minimise` or `passes.solve_squares`.
    fit_intercept : bool
    log : PassLog, optional
        Has the answers of earlier passes, and keeps those of these.
    verbose : int
        1 shows progress.

    Returns
    -------
    list of passes.Outcome
    """
    outcomes: list[Any] = [None] * len(makers)
    requests = dict(enumerate(map(next, makers)))
    while requests:
        answers = None if log is None else log.next_answers()
        if answers is None:
            answers = chunks.run_pass(losses, requests, fit_intercept, verbose)
            if log is not None:
                log.add_answers(answers)
        for j in list(requests):
            try:
                requests[j] = makers[j].send(answers[j])
            except StopIteration as end:
                outcomes[j] = end.value
                del requests[j]
    return outcomes


class PassLog:
    """Answers of passes in a `Checkpoint`, and the checksums of rows that they saw.

    Parameters
    ----------
    checkpoint : Checkpoint
        Its first record is of the fit itself; others are of passes.
    chunks : Chunks
    """

    def __init__(self, checkpoint: Checkpoint, chunks: Chunks) -> None:
        self._checkpoint, self._chunks = checkpoint, chunks
        self._place = 1
        for record in checkpoint.records[1:2]:
            chunks.recall_prints(record)

    def next_answers(self) -> dict[int, Answer] | None:
        """Return the answers of the next pass, or None if there are none yet."""
        if self._place >= len(self._checkpoint.records):
            return None
        self._place += 1
        return unpack_answers(self._checkpoint.records[self._place - 1])

    def add_answers(self, answers: dict[int, Answer]) -> None:
        """Keep the answers of a pass."""
        record = pack_answers(answers)
        if self._place == 1:
            record |= self._chunks.list_prints()
        self._checkpoint.add(record)
        self._place += 1


def strata(n: int, k: int, seed: int) -> Indices:
    """Draw k of n rows, one from each of k equal parts, in their order."""
    k = min(k, n)
    places = np.arange(k) + np.random.default_rng(seed).random(k)
    return np.minimum((places * (n / k)).astype(np.intp), n - 1)
