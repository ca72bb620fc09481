"""Sketches: random matrices S of few rows, with E[SᵀS] = I.

A distribution, such as ``PSparsified(s=100)``, knows no data; its ``draw(n)``
gives a `Sketch`, the matrix itself, always in the form S = S_SG · S_SS:

    S = scale · weights · (rows ``indices`` of the n × n identity)

Only the points in ``indices``, the *landmarks*, ever enter a kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from pskernels import _sketch
from pskernels._random import make_generator, philox_key
from pskernels._threads import cached_property, resolve_n_threads, threads_for
from pskernels._types import Array, Indices, RandomState, SketchLike, Weights
from pskernels._validation import (
    check_int,
    check_option,
    check_positive,
    check_probability,
    check_real_array,
    check_sparse,
)

# S_SG with a larger share of non-zeros than this is kept dense: measured in
# bench/benchmarks/gram.py, products with it are then faster.
DENSE_ABOVE = 0.25

# Entries drawn in one call of native code, some 0.1 s; by a thread that pays, some
# 0.5 ms; and of a row that is not cut, some 0.3 s.
ENTRIES_OF_A_CALL = 2**21
ENTRIES_OF_A_THREAD = 2**14
ENTRIES_OF_A_ROW = 2**23

# Rounds of drawing 2·s numbers until s of them differ.  Even if all n are wanted, the
# probability that one is missed by all rounds is n·exp(-2·MAX_ROUNDS).
MAX_ROUNDS = 50

# Columns at most: a row of more takes a second even if all of it is 0.
MAX_POINTS = 2**38

# Expected non-zeros in a row of a p-sparsified sketch, the paper's setting.
DEFAULT_ROW_ENTRIES = 20


def _signs(generator: np.random.Generator, size: int) -> Array:
    return 2.0 * generator.integers(0, 2, size=size, dtype=np.int8) - 1.0


@dataclass(frozen=True, eq=False)
class Sketch:
    """A drawn sketch, S = scale · weights · I[indices], of shape (s, n).

    Attributes
    ----------
    shape : tuple of int
        (s, n).
    indices : ndarray of int64, shape (m,)
        The landmarks: the columns of S that are not null, increasing.
    weights : scipy.sparse.csc_array or ndarray of float64, shape (s, m)
        S_SG, before scaling.
    scale : float
        The factor that makes E[SᵀS] = I; 1 by default, for weights that have it.
    """

    shape: tuple[int, int]
    indices: Indices
    weights: Weights
    scale: float = 1.0

    def __post_init__(self) -> None:
        s, n = shape = _check_shape(self.shape)
        indices = _check_landmarks(self.indices, n)
        weights = _check_weights(self.weights)
        if weights.shape != (s, len(indices)):
            raise ValueError(
                f"weights must have shape ({s}, {len(indices)}), a row for each row of "
                f"S and a column for each index, got {weights.shape}"
            )
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "scale", check_positive(self.scale, "scale"))

    # NumPy leaves `array @ sketch` to us instead of treating us as a scalar.
    __array_ufunc__ = None

    @cached_property
    def T(self) -> "_TransposedSketch":  # noqa: N802 - the name NumPy users expect
        return _TransposedSketch(self)

    @property
    def is_dense(self) -> bool:
        return isinstance(self.weights, np.ndarray)

    def __matmul__(self, A: Any) -> Any:
        """Compute S · A, from the rows of A at the landmarks."""
        A = A if sp.issparse(A) else check_real_array(A, "A")
        s, n = self.shape
        if A.shape[0] != n:
            raise ValueError(f"the sketch has {n} columns, but A has {A.shape[0]} rows")
        rows = A if len(self.indices) == n else A[self.indices]
        return (self.scaled_weights(A.dtype) @ rows).astype(
            _product_dtype(A), copy=False
        )

    def scaled_weights(self, dtype: npt.DTypeLike = np.float64) -> Any:
        """Compute scale · weights, in float32 if `dtype` is float32, else float64."""
        dtype = np.float32 if dtype == np.float32 else np.float64
        return (self.scale * self.checked_weights()).astype(dtype, copy=False)

    def checked_weights(self) -> Any:
        """Check S_SG, whose arrays may have been changed since the sketch was made."""
        if not self.is_dense:
            check_sparse(self.weights, "weights")
        return self.weights

    def take_rows(self, start: int, end: int) -> "Sketch":
        """Take rows [start, end) as a sketch of their own, without null columns."""
        rows = self.checked_weights()[start:end]
        kept = np.flatnonzero((rows != 0).sum(axis=0))
        return Sketch(
            (end - start, self.shape[1]), self.indices[kept], rows[:, kept], self.scale
        )

    def to_scipy(self) -> "sp.csc_array[Any]":
        """Convert S to a scipy.sparse.csc_array of shape (s, n)."""
        weights = sp.coo_array(self.scaled_weights())
        columns = self.indices[weights.col]
        return sp.csc_array((weights.data, (weights.row, columns)), shape=self.shape)

    def to_dense(self) -> Array:
        """Convert S to an ndarray of shape (s, n)."""
        dense = np.zeros(self.shape)
        weights = self.scaled_weights()
        dense[:, self.indices] = weights if self.is_dense else weights.toarray()
        return dense

    def __repr__(self) -> str:
        form = "dense" if self.is_dense else "sparse"
        s, n = self.shape
        return f"<Sketch {s} x {n}, {len(self.indices)} landmarks, {form} weights>"


@dataclass(frozen=True, eq=False)
class _TransposedSketch:
    """Sᵀ, so that ``A @ sketch.T`` reads only the columns of A that count."""

    T: Sketch

    __array_ufunc__ = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.T.shape[::-1]

    def __matmul__(self, A: npt.ArrayLike) -> Array:
        """Compute Sᵀ · A: rows outside the landmarks are 0."""
        A = check_real_array(A, "A")
        s, n = self.T.shape
        if A.shape[0] != s:
            raise ValueError(f"the sketch has {s} rows, but A has {A.shape[0]} rows")
        product = np.zeros((n, *A.shape[1:]), _product_dtype(A))
        product[self.T.indices] = self.T.scaled_weights(A.dtype).T @ A
        return product

    def __rmatmul__(self, A: npt.ArrayLike) -> Array:
        found: Array = (self.T @ check_real_array(A, "A").T).T
        return found


def _check_shape(shape: object) -> tuple[int, int]:
    """Check (s, n), both positive."""
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise TypeError(f"shape must be a tuple (s, n), got {shape!r}")
    s, n = (check_int(size, "shape", minimum=1) for size in shape)
    return s, n


def _check_landmarks(indices: object, n: int) -> Indices:
    """Check increasing numbers of points, int64."""
    indices = check_real_array(indices, "indices")
    if indices.ndim != 1 or (indices.dtype.kind not in "iu" and len(indices)):
        raise TypeError(
            f"indices must be a 1-d array of integers, got shape {indices.shape}, "
            f"dtype {indices.dtype}"
        )
    # compared before they are converted, which might wrap around
    if len(indices) and not (
        indices[0] >= 0 and indices[-1] < n and (indices[1:] > indices[:-1]).all()
    ):
        raise ValueError(f"indices must increase and lie in [0, {n})")
    return indices.astype(np.int64, copy=False)


def _check_weights(weights: Any) -> Weights:
    """Check S_SG, CSC or dense, of finite float64."""
    found: Weights
    if sp.issparse(weights):
        found = sp.csc_array(check_sparse(weights, "weights"), dtype=np.float64)
        values: Array = found.data
    else:
        found = check_real_array(weights, "weights").astype(np.float64, copy=False)
        values = found
    if found.ndim != 2 or not np.isfinite(values).all():
        raise ValueError(
            f"weights must be a matrix of finite numbers, got shape {found.shape}"
        )
    return found


def _product_dtype(A: Any) -> type[np.float32] | type[np.float64]:
    return np.float32 if A.dtype == np.float32 else np.float64


def _check_n(n: object) -> int:
    """Check the number of points of a sketch."""
    n = check_int(n, "n", minimum=1)
    if n > MAX_POINTS:
        raise ValueError(f"n must be at most {MAX_POINTS}, got {n}")
    return n


def _checked_range(
    bounds: tuple[int, int] | None, size: int, name: str
) -> tuple[int, int]:
    """Check (start, end) inside [0, size); None is all of it."""
    if bounds is None:
        return 0, size
    start, end = (check_int(bound, name, minimum=0) for bound in bounds)
    if not start < end <= size:
        raise ValueError(f"{name} must be a part of [0, {size}), got {bounds}")
    return start, end


def _csc_without_null_columns(
    values: Array, rows: Indices, columns: Indices, shape: tuple[int, int]
) -> "tuple[Indices, sp.csc_array[Any]]":
    """Make indices and S_SG of entries in any order; entries at one place add up."""
    order = np.argsort(columns, kind="stable")  # merges rows, which are sorted
    columns = columns[order]
    is_first = np.ones(len(columns), bool)
    is_first[1:] = columns[1:] != columns[:-1]
    starts = np.flatnonzero(is_first)
    indices, indptr = columns[starts], np.append(starts, len(columns))
    weights = sp.csc_array(
        (values[order], rows[order], indptr),
        shape=(shape[0], len(indices)),
    )
    weights.sum_duplicates()
    if (weights.data == 0).any():  # signs that cancelled
        weights.eliminate_zeros()
        kept = np.diff(weights.indptr) > 0
        indices, weights = indices[kept], weights[:, kept]
    return indices.astype(np.int64), weights


def _dense_without_null_columns(S: Array) -> tuple[Indices, Array]:
    indices = np.flatnonzero(S.any(axis=0))
    return indices, S if len(indices) == S.shape[1] else S[:, indices]


@dataclass(frozen=True)
class Distribution:
    """What the sketches share: the number of rows."""

    s: int

    # Whether, for the same seed, more rows only add to the sketch, but for the scale.
    if TYPE_CHECKING:

        @property
        def extends(self) -> bool: ...

        def _draw(
            self, n: int, key: npt.NDArray[np.uint64], n_threads: int
        ) -> Sketch: ...
    else:
        extends: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_int(self.s, "s", minimum=1)

    def draw(
        self, n: int, random_state: RandomState = None, n_threads: int | None = None
    ) -> Sketch:
        """Draw the sketch of n points.

        Parameters
        ----------
        n : int
            Number of points, the columns of S.
        random_state : None, int, numpy Generator or numpy RandomState
        n_threads : int, optional
            None means all cores this process may use; the sketch is the same.

        Returns
        -------
        Sketch
        """
        n = _check_n(n)
        return self._draw(n, philox_key(random_state), resolve_n_threads(n_threads))


class _Blockwise(Distribution):
    """Sketches of which every part can be drawn alone."""

    if TYPE_CHECKING:

        def _draw_block(
            self,
            n: int,
            key: npt.NDArray[np.uint64],
            rows: tuple[int, int],
            columns: tuple[int, int],
            n_threads: int,
        ) -> Sketch: ...

    def draw_block(
        self,
        n: int,
        random_state: int,
        *,
        rows: tuple[int, int] | None = None,
        columns: tuple[int, int] | None = None,
        n_threads: int | None = None,
    ) -> Sketch:
        """Draw a part of the sketch that `draw` gives for the same seed.

        Parameters
        ----------
        n : int
            Number of columns of the whole sketch.
        random_state : int
            The seed of the whole sketch.
        rows, columns : tuple (start, end), optional
            The part; all rows or columns by default.
        n_threads : int, optional
            None means all cores this process may use.

        Returns
        -------
        Sketch
            Of shape (rows, columns); it may have no landmark at all.
        """
        n = _check_n(n)
        rows = _checked_range(rows, self.s, "rows")
        columns = _checked_range(columns, n, "columns")
        # a generator would give every block a key of its own
        key = philox_key(check_int(random_state, "random_state", minimum=0))
        return self._draw_block(n, key, rows, columns, resolve_n_threads(n_threads))

    def _draw(self, n: int, key: npt.NDArray[np.uint64], n_threads: int) -> Sketch:
        return self._draw_block(n, key, (0, self.s), (0, n), n_threads)


@dataclass(frozen=True)
class PSparsified(_Blockwise):
    """The p-sparsified sketch: entries are 0 with probability 1 - p.

    The others are ±1/√(s·p) ("rademacher", p-SR) or N(0, 1)/√(s·p)
    ("gaussian", p-SG).  The number of landmarks is Binomial(n, 1 - (1 - p)^s).

    The same seed gives the same entries whatever the number of threads, and
    more rows or columns extend a sketch: entry (i, j) depends on neither s nor
    n, but for the scale.

    Parameters
    ----------
    s : int
        Number of rows.
    p : float in (0, 1], optional
        Probability of a non-zero.  None means min(1, 20/n): 20 non-zeros are
        expected in each row.
    kind : {"rademacher", "gaussian"}

    Examples
    --------
    >>> import pskernels as psk
    >>> sketch = psk.PSparsified(s=100, p=0.002).draw(10_000, random_state=0)
    >>> sketch
    <Sketch 100 x 10000, 1853 landmarks, sparse weights>
    """

    p: float | None = None
    kind: str = "rademacher"

    KINDS: ClassVar = ("rademacher", "gaussian")
    extends: ClassVar = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p is not None:
            check_probability(self.p, "p")
        check_option(self.kind, "kind", self.KINDS)

    def _draw(self, n: int, key: npt.NDArray[np.uint64], n_threads: int) -> Sketch:
        sketch = super()._draw(n, key, n_threads)
        if len(sketch.indices) == 0:
            p = self._p(n)
            raise ValueError(
                f"no landmark was drawn: s={self.s}, n={n} and p={p:g} give "
                f"{self.s * n * p:.3g} non-zeros on average; take a larger p or s"
            )
        return sketch

    def _p(self, n: int) -> float:
        return min(1.0, DEFAULT_ROW_ENTRIES / n) if self.p is None else float(self.p)

    def _draw_block(
        self,
        n: int,
        key: npt.NDArray[np.uint64],
        rows: tuple[int, int],
        columns: tuple[int, int],
        n_threads: int,
    ) -> Sketch:
        p = self._p(n)
        shape = rows[1] - rows[0], columns[1] - columns[0]
        # a row of more entries is cut, so that Ctrl-C is heard
        width = _sketch.BLOCK * max(
            1, int(min(ENTRIES_OF_A_ROW / p, n) / _sketch.BLOCK)
        )
        cuts = [*range(columns[0], columns[1], width), columns[1]]
        pieces = [
            self._draw_entries(key, rows, piece, p, n_threads)
            for piece in zip(cuts, cuts[1:], strict=False)
        ]
        scale = 1 / np.sqrt(self.s * p)
        if p > DENSE_ABOVE:
            dense = [_to_dense(piece, shape[0]) for piece in pieces]
            S = dense[0] if len(dense) == 1 else np.hstack(dense)
            return Sketch(shape, *_dense_without_null_columns(S), scale)
        entry_columns = [
            piece.columns + piece.start
            for piece in pieces
            if piece.columns is not None  # it is None only where p is 1
        ]
        entry_rows = [np.repeat(np.arange(shape[0]), piece.counts) for piece in pieces]
        indices, weights = _csc_without_null_columns(
            np.concatenate([piece.values for piece in pieces]),
            np.concatenate(entry_rows),
            np.concatenate(entry_columns) - columns[0],
            shape,
        )
        return Sketch(shape, indices, weights, scale)

    def _draw_entries(
        self,
        key: npt.NDArray[np.uint64],
        rows: tuple[int, int],
        columns: tuple[int, int],
        p: float,
        n_threads: int,
    ) -> "_Entries":
        """Draw the non-zeros of a part of the sketch, row by row."""
        n_rows, width = rows[1] - rows[0], columns[1] - columns[0]
        counts = np.full(n_rows, width, np.int64)
        # a block costs as much as an entry
        row_work = width * p + width / _sketch.BLOCK
        n_threads = threads_for(n_rows * row_work, ENTRIES_OF_A_THREAD, n_threads)
        # a few rows at a time: between calls Ctrl-C is heard
        step = max(n_threads, int(min(ENTRIES_OF_A_CALL / row_work, n_rows)))
        parts = [slice(i, min(i + step, n_rows)) for i in range(0, n_rows, step)]
        if p < 1:
            for part in parts:
                _sketch.count_entries(
                    key, rows[0] + part.start, *columns, p, counts[part], n_threads
                )
        indptr = np.concatenate([[0], np.cumsum(counts)])
        entry_columns = np.empty(indptr[-1], np.int64) if p < 1 else None
        values = np.empty(indptr[-1])
        for part in parts:
            _sketch.draw_csr(
                key,
                rows[0] + part.start,
                *columns,
                p,
                self.kind == "gaussian",
                indptr[part.start : part.stop + 1],
                entry_columns,
                values,
                n_threads,
            )
        return _Entries(columns[0], width, counts, entry_columns, values)


class _Entries(NamedTuple):
    """Non-zeros of some columns of a sketch, row by row."""

    start: int  # the first column
    width: int
    counts: Indices  # of each row
    columns: Indices | None  # from the first one on; None if all have an entry
    values: Array


def _to_dense(entries: _Entries, n_rows: int) -> Array:
    shape = n_rows, entries.width
    if entries.columns is None:
        return entries.values.reshape(shape)
    indptr = np.concatenate([[0], np.cumsum(entries.counts)])
    return sp.csr_array((entries.values, entries.columns, indptr), shape).toarray()


class Gaussian(PSparsified):
    """The dense Gaussian sketch, entries N(0, 1/s): p-SG at p = 1.

    Every point is a landmark.

    Parameters
    ----------
    s : int
        Number of rows.
    """

    def __init__(self, s: int) -> None:
        super().__init__(s=s, p=1.0, kind="gaussian")

    def __repr__(self) -> str:
        return f"Gaussian(s={self.s})"


@dataclass(frozen=True)
class CountSketch(_Blockwise):
    """One ±1 in each column, in a row chosen uniformly.

    Every point is a landmark.

    Parameters
    ----------
    s : int
        Number of rows.
    """

    def _draw_block(
        self,
        n: int,
        key: npt.NDArray[np.uint64],
        rows: tuple[int, int],
        columns: tuple[int, int],
        n_threads: int,
    ) -> Sketch:
        bits = np.random.Philox(key=key)
        bits.advance(columns[0])  # a counter, four words, for each column
        words = bits.random_raw(4 * (columns[1] - columns[0])).reshape(-1, 4)
        # high half · s / 2^32: uniform up to s / 2^32
        drawn = ((words[:, 0] >> np.uint64(32)) * np.uint64(self.s)) >> np.uint64(32)
        sign = 1.0 - 2.0 * (words[:, 1] >> np.uint64(63))
        row = drawn.astype(np.int64) - rows[0]
        (inside,) = np.nonzero((row >= 0) & (row < rows[1] - rows[0]))
        shape = rows[1] - rows[0], columns[1] - columns[0]
        indices, weights = _csc_without_null_columns(
            sign[inside], row[inside], inside, shape
        )
        return Sketch(shape, indices, weights, 1.0)


@dataclass(frozen=True, eq=False)
class SubSampling(Distribution):
    """Sub-sampling, the sketch of the Nyström method.

    Row i is √(n/s)·e_j: j uniform without replacement, or given.  With
    probabilities q, j is drawn with replacement and the row is e_j/√(s·q_j).

    Parameters
    ----------
    s : int, optional
        Number of rows; not needed with `indices`.
    indices : array of int, optional
        The landmarks, all different.
    probabilities : array of float, shape (n,), optional
        Probability of each point, such as its leverage score; the sum is 1.
    """

    s: int = None  # type: ignore[assignment]  # with `indices`, as many
    indices: Indices | None = None
    probabilities: Array | None = None

    @property
    def extends(self) -> bool:
        return self.indices is None and self.probabilities is None

    def __post_init__(self) -> None:
        if self.indices is None:
            super().__post_init__()
            return
        if self.probabilities is not None:
            raise ValueError("give either indices or probabilities, not both")
        indices = np.asarray(self.indices)
        if indices.ndim != 1 or indices.dtype.kind not in "iu" or len(indices) == 0:
            raise ValueError(
                "indices must be a non-empty 1-d array of integers, got "
                f"shape {indices.shape}, dtype {indices.dtype}"
            )
        if len(np.unique(indices)) != len(indices):
            raise ValueError("indices must all be different")
        if self.s is not None and self.s != len(indices):
            raise ValueError(f"s={self.s}, but there are {len(indices)} indices")
        object.__setattr__(self, "s", len(indices))
        object.__setattr__(self, "indices", indices.copy())

    def _draw(self, n: int, key: npt.NDArray[np.uint64], n_threads: int) -> Sketch:
        if self.probabilities is not None:
            chosen, values = self._by_probability(n, key)
        elif self.indices is not None:
            chosen, values = self._given(n), np.ones(self.s)
        else:
            chosen, values = self._uniform(n, key), np.ones(self.s)
        indices, weights = _csc_without_null_columns(
            values, np.arange(self.s), chosen, (self.s, n)
        )
        return Sketch((self.s, n), indices, weights, np.sqrt(n / self.s))

    def _given(self, n: int) -> Indices:
        indices = np.asarray(self.indices)
        if indices.min() < 0 or indices.max() >= n:
            raise ValueError(
                f"indices must be in [0, {n}), got values from {indices.min()} "
                f"to {indices.max()}"
            )
        return indices.astype(np.int64)

    def _uniform(self, n: int, key: npt.NDArray[np.uint64]) -> Indices:
        """Draw the first s different values of a sequence of uniform draws."""
        if self.s > n:
            raise ValueError(f"s={self.s} points cannot be chosen out of n={n}")
        generator = make_generator(key)
        drawn = np.empty(0, np.int64)
        for _ in range(MAX_ROUNDS):
            drawn = np.concatenate([drawn, generator.integers(n, size=2 * self.s)])
            first_seen = np.sort(np.unique(drawn, return_index=True)[1])
            if len(first_seen) >= self.s:
                return drawn[first_seen[: self.s]]
        raise RuntimeError(f"{self.s} different points out of {n} were not found")

    def _by_probability(
        self, n: int, key: npt.NDArray[np.uint64]
    ) -> tuple[Indices, Array]:
        q = check_real_array(self.probabilities, "probabilities").astype(float)
        if q.shape != (n,):
            raise ValueError(f"probabilities must have shape ({n},), got {q.shape}")
        if not (q >= 0).all() or not np.isclose(q.sum(), 1):
            raise ValueError(
                "probabilities must not be negative and must add up to 1, got "
                f"minimum {q.min():g} and sum {q.sum():g}"
            )
        cumulated = np.cumsum(q)
        u = make_generator(key).random(self.s) * cumulated[-1]
        chosen = np.searchsorted(cumulated, u, side="right")
        return chosen, 1 / np.sqrt(n * q[chosen])


@dataclass(frozen=True)
class Accumulation(Distribution):
    """The sum of m sub-samplings with random signs.

    Row i is Σ_{t<m} ±√(n/(s·m))·e_{j(i,t)}, with every j uniform.

    Parameters
    ----------
    s : int
        Number of rows.
    m : int
        Number of sub-samplings that are accumulated.
    """

    m: int = 20

    extends: ClassVar = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int(self.m, "m", minimum=1)

    def _draw(self, n: int, key: npt.NDArray[np.uint64], n_threads: int) -> Sketch:
        chosen = make_generator(key).integers(n, size=self.s * self.m)
        signs = _signs(make_generator(key, stream=1), self.s * self.m)
        rows = np.repeat(np.arange(self.s), self.m)
        indices, weights = _csc_without_null_columns(signs, rows, chosen, (self.s, n))
        return Sketch((self.s, n), indices, weights, np.sqrt(n / (self.s * self.m)))


@dataclass(frozen=True)
class ROS(Distribution):
    """The randomised orthogonal system: √(n/s) · s rows of H · random signs.

    Every point is a landmark, and S is dense.

    Parameters
    ----------
    s : int
        Number of rows, at most n.
    transform : {"cosine", "hadamard"}
        H, orthonormal.  "hadamard" needs n to be a power of 2.
    """

    transform: str = "cosine"

    TRANSFORMS: ClassVar = ("cosine", "hadamard")
    extends: ClassVar = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option(self.transform, "transform", self.TRANSFORMS)

    def _draw(self, n: int, key: npt.NDArray[np.uint64], n_threads: int) -> Sketch:
        if self.transform == "hadamard" and n & (n - 1):
            raise ValueError(
                f"transform='hadamard' needs n to be a power of 2, got n={n}; "
                "'cosine' takes any n"
            )
        row_of = _hadamard_row if self.transform == "hadamard" else _cosine_row
        signs = _signs(make_generator(key, stream=1), n)
        weights = np.empty((self.s, n))
        for i, frequency in enumerate(SubSampling(self.s)._uniform(n, key)):
            weights[i] = row_of(frequency, n) * signs
        return Sketch((self.s, n), np.arange(n), weights, np.sqrt(n / self.s))


def _hadamard_row(frequency: int, n: int) -> Array:
    """Compute row `frequency` of the orthonormal Hadamard transform."""
    parity = np.bitwise_count(frequency & np.arange(n)) & 1
    found: Array = (1.0 - 2.0 * parity) / np.sqrt(n)
    return found


def _cosine_row(frequency: int, n: int) -> Array:
    """Compute row `frequency` of the orthonormal cosine transform of type II."""
    if frequency == 0:
        return np.full(n, 1 / np.sqrt(n))
    # the angle is reduced in integers, where it is exact
    angle = (2 * np.arange(n) + 1) * frequency % (4 * n)
    found: Array = np.cos(np.pi / (2 * n) * angle) * np.sqrt(2 / n)
    return found


SKETCHES: dict[str, Callable[..., Distribution]] = {
    "p-sr": PSparsified,
    "p-sg": lambda s, p=None: PSparsified(s, p, "gaussian"),
    "nystroem": SubSampling,
    "gaussian": Gaussian,
    "accumulation": Accumulation,
    "count-sketch": CountSketch,
    "ros": ROS,
}
# Those with a p, and the law of their non-zeros.
WITH_P = {"p-sr": "rademacher", "p-sg": "gaussian"}


def get_sketch(sketch: str | SketchLike, s: int, p: float | None = None) -> SketchLike:
    """Find the distribution behind a name; an object carries its own rows and p."""
    if isinstance(sketch, str):
        make = SKETCHES[check_option(sketch, "sketch", SKETCHES)]
        if p is None:
            return make(s)
        if sketch in WITH_P:
            return make(s, p)
    elif not isinstance(sketch, (Sketch, Distribution)):
        raise TypeError(
            f"sketch must be one of {', '.join(map(repr, SKETCHES))}, a distribution "
            f"such as PSparsified(s=100), or a drawn Sketch, got {sketch!r}"
        )
    elif p is None:
        return sketch
    raise ValueError(f"sketch {sketch!r} takes no p, but p={p!r} was given")
