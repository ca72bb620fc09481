"""Products with a matrix of features Z: all that solvers do with it.

`Features` wraps the passes of src/_linear.pyx.  What has a value for each point and
output is an array of shape (outputs, n), and coefficients are (outputs, r).  Callers
keep BLAS to one thread (`single_threaded_blas`): the threads here are ours.
"""

from collections.abc import Callable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Self

import numpy as np
import scipy.linalg
from scipy.linalg import get_blas_funcs

from pskernels import _linear
from pskernels._exact import two_sum
from pskernels._threads import (
    CALL_WORK,
    ThreadChoice,
    cached_property,
    single_threaded_blas,
    threads_for,
)
from pskernels._types import Array, Dtype, Indices
from pskernels._validation import raise_not_finite

EPS = float(np.finfo(np.float64).eps)

# Sums over rows are kept for each group of rows.  How many groups there are must
# not depend on the number of threads, or the last bits would.  GRAM_TASKS: groups
# times tiles of a Gram matrix.
MAX_GROUPS = 64
MIN_GROUP_ROWS = 256
GRAM_TASKS = 16
# Sums of Gram matrices take 1/8 of Z at most, unless there are few groups.
GRAM_SHARE = 8
MIN_GRAM_GROUPS = 4
# Numbers that all of the groups may keep, unless there are few groups.
PARTIAL_SIZE = 2**17
MIN_GROUPS = 8

# Multiplications that make a thread worthwhile: some 50 µs of them;
# `python bench/solvers.py certificates` prints times of one thread and of all.
PASS_GRAIN = 2**18
GRAM_GRAIN = 2**20

# Multiplications beyond which threads pay in any case: some milliseconds of them;
# `python bench/outputs.py hundred` shows it.
LONG_CALL = 2**25
LONG_GRAM = 2**29

# Rows of one native call at least.
CALL_ROWS = 2**12
CALL_GRAM_ROWS = 512


# Rows for which packing a triangle costs more than it saves: by times of 1 to 31 rows
# at r = 500, 1,000 and 2,000.
FEW_ROWS = 16

# Columns this many times farther from 0 than they are wide lose too many digits.
FAR = 1e3


class PlainFeatures:
    """What features have that are not made of others: they are `inner` themselves.

    A class adds n, r, dtype, n_threads, `_column_sums` (sums, minima and maxima of the
    columns), `sum_error`, `around`, `times_triangle`, and the products of `Features`.
    """

    origin: Array | None = None  # what was subtracted from the rows
    row_rounding: float = 0.0  # a bound on the norm of what storage took from a row
    # ‖Θ‖² in coordinates of `inner`: that of the identity
    W: Array | None = None
    penalty: Array | None = None

    if TYPE_CHECKING:  # what a class adds
        n: int
        r: int
        n_threads: int

        @property
        def dtype(self) -> Dtype: ...

        @property
        def _column_sums(self) -> tuple[Array, Array, Array]: ...

        def with_threads(self, n_threads: int) -> Self: ...

        def check_finite(self) -> None: ...

        def sum_error(self, several: bool = True) -> float: ...

        def around(self, origin: Array) -> Self: ...

        def times_triangle(
            self, W: Array, first: int = 0, overwrite: bool = False
        ) -> Self: ...

        def dot(self, V: Array, out: Array | None = None) -> Array: ...

        def exact_residuals(
            self, v: Array, intercept: Iterable[float], y: Array
        ) -> Array: ...

        def exact_t_dot(self, x: Array) -> tuple[Array, Array]: ...

        def bordered_t_dot(self, x: Array) -> Array: ...

        def bordered_gram_dot(self, weight: Array, v: Array) -> Array: ...

        def _t_dot_outputs(self, X: Array) -> Array: ...

        def rows(self, numbers: Indices, bordered: bool = False) -> Array: ...

        def gram(self, weight: Array, bordered: bool = False) -> Array: ...

        def sketched_gram(
            self, weight: Array, n_sums: int, bordered: bool = False
        ) -> Array: ...

    @property
    def blocks(self) -> list[Self]:
        """Features of some rows each, in their order: here all of them."""
        return [self]

    @property
    def inner(self) -> Self:
        """What Gram matrices are made of: these features themselves."""
        return self

    def to_inner(self, gradient: Array) -> Array:
        """Turn the gradient of Θ (k, r) into that of coefficients of `inner`."""
        return gradient

    def from_inner(self, step: Array) -> Array:
        """Turn the step of coefficients of `inner` into that of Θ (k, r)."""
        return step

    def formed(self) -> Self:
        """Return the features themselves, which are not products of others."""
        return self

    def rounding_of_gram(self, alpha: float) -> float:
        """Bound what `gram` loses that would show in a Hessian: nothing."""
        return 0.0

    @property
    def n_terms(self) -> int:
        """How many operations a prediction takes, one after the other."""
        return self.r

    @property
    def column_range(self) -> tuple[Array, Array]:
        """The least and the largest number of each column."""
        _, low, high = self._column_sums
        return low, high

    @cached_property
    def largest(self) -> Array:
        """The largest |z| of each column."""
        found: Array = np.abs(self.column_range).max(axis=0)
        return found

    def near_zero(self) -> Self:
        """Move columns that are far from 0 to an origin amid them.

        With an intercept that is the same machine, but for the rounding of products:
        the differences themselves are exact.  A copy is made only if it is needed.
        """
        origin = far_origin(*self.column_range, self.dtype)
        return self if origin is None else self.around(origin)

    def moved(self, coef: Array) -> Array | float:
        """Compute what the origin adds to predictions: origin @ coef."""
        return 0.0 if self.origin is None else self.origin @ coef

    def _moved_origin(self, origin: Array) -> Array:
        """Compute the origin of features that are moved by one more, in float64."""
        moved = origin.astype(np.float64)
        return moved if self.origin is None else moved + self.origin

    def t_dot(self, X: Array) -> Array:
        """Find X @ Z, for one row or more of X; rows of Z whose X is 0 are not read."""
        if len(X) == 1:
            return self.bordered_t_dot(X[0])[None, :-1]
        return self._t_dot_outputs(X)


class Features(PlainFeatures):
    """Z, of shape (n, r), with the products that solvers need.

    Parameters
    ----------
    Z : array of float32 or float64
    n_threads : int
    origin : array of shape (r,), optional
        What was subtracted from the rows of Z.
    row_rounding : float
        A bound on the norm of what rounding took from a row of Z, for certificates.
    """

    def __init__(
        self,
        Z: Array,
        n_threads: int,
        origin: Array | None = None,
        row_rounding: float = 0.0,
    ) -> None:
        if Z.ndim != 2 or 0 in Z.shape or Z.dtype not in (np.float32, np.float64):
            raise ValueError(
                "Z must be an array of float32 or float64 with rows and columns, got "
                f"shape {Z.shape}, dtype {Z.dtype}"
            )
        self.Z = np.ascontiguousarray(Z)
        self.n, self.r = Z.shape
        self.origin = origin
        self.row_rounding = row_rounding
        self._set_threads(n_threads)
        self._n_groups = min(MAX_GROUPS, -(-self.n // MIN_GROUP_ROWS))
        self._gram_tiles, self._gram_buffer = _linear.plan_gram(self.r)

    def _set_threads(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._pass_threads = threads_for(self.Z.size, PASS_GRAIN, n_threads)
        # each with its own times: what they do for a row differs
        self._dots = ThreadChoice(self._pass_threads)
        self._t_dots = ThreadChoice(self._pass_threads)
        self._outputs = ThreadChoice(n_threads)
        self._grams = ThreadChoice(n_threads)

    def with_threads(self, n_threads: int) -> Self:
        """Make the same for another number of threads, such as a forked child's."""
        if n_threads == self.n_threads:
            return self
        other = copy(self)
        other._set_threads(n_threads)
        return other

    @property
    def dtype(self) -> Dtype:
        return self.Z.dtype

    def around(self, origin: Array) -> Self:
        """Return the same around an origin (r,), of the type of Z."""
        moved = self._moved_origin(origin)
        return type(self)(self.Z - origin, self.n_threads, moved, self.row_rounding)

    def times_triangle(self, W: Array, first: int = 0, overwrite: bool = False) -> Self:
        """Make the same with Z @ W in columns from `first` on, W an upper triangle."""
        Z = self.Z if overwrite else self.Z.copy()
        form_columns(Z, W.astype(self.dtype, order="C"), first, self.n_threads)
        return type(self)(Z, self.n_threads)

    @cached_property
    def _column_sums(self) -> tuple[Array, Array, Array]:
        """Sums, minima and maxima of the columns."""
        partial = np.zeros((self._n_groups, 3, self.r))
        partial[:, 1], partial[:, 2] = np.inf, -np.inf
        _linear.column_range(self.Z, partial, self._pass_threads)
        with np.errstate(over="ignore", invalid="ignore"):
            total = partial[:, 0].sum(axis=0)
        return total, partial[:, 1].min(axis=0), partial[:, 2].max(axis=0)

    def check_finite(self) -> None:
        """Check that all numbers are finite, and can be summed."""
        if not np.isfinite(self._column_sums[0]).all():
            raise_not_finite(self.Z, "Z")

    def sum_error(self, several: bool = True) -> float:
        """Bound the error of a sum over all rows, relative to that of the sizes.

        The rows of a group are added up one after the other, and then the groups, which
        may be fewer for `several` sums at once.
        """
        n_groups = self._n_groups
        if several:
            n_groups = max(1, min(MIN_GROUPS, self.n // MIN_GROUP_ROWS))
        return EPS / 2 * (-(-self.n // n_groups) + self._n_groups + 16)

    def dot(self, V: Array, out: Array | None = None) -> Array:
        """Compute V @ Z.T, for one row or several of V."""
        out = np.empty((len(V), self.n)) if out is None else out
        if not V.any():
            out[:] = 0
        elif len(V) == 1:
            self._run(
                self._dots, lambda k: _linear.dot(self.Z, V[0], out[0], k), self.n
            )
        else:
            self._dot_outputs(V, out)
        return out

    def exact_residuals(self, v: Array, intercept: Iterable[float], y: Array) -> Array:
        """Compute Z @ v + intercept - y, as if in twice the digits and rounded once.

        The intercept is a pair of numbers, to be added up.
        """
        out = np.empty(self.n)
        b, b_low = intercept
        _linear.exact_residuals(self.Z, v, b, b_low, y, out, self._pass_threads)
        return out

    def exact_t_dot(self, x: Array) -> tuple[Array, Array]:
        """Compute x @ Z as if in twice the digits: numbers, and what is beyond them."""
        partial = np.zeros((self._n_groups, 2, self.r))
        step = max(CALL_ROWS, CALL_WORK // (8 * self.r))
        for start in range(0, self.n, step):
            rows = slice(start, start + step)
            _linear.exact_t_dot(self.Z[rows], x[rows], partial, self._pass_threads)
        high, low = partial[0]
        for more, beyond in partial[1:]:
            high, lost = two_sum(high, more)
            low = low + (lost + beyond)
        return two_sum(high, low)

    def bordered_t_dot(self, x: Array) -> Array:
        """Compute [Z 1].T @ x."""
        return self._t_dot(x, None)

    def bordered_gram_dot(self, weight: Array, v: Array) -> Array:
        """Compute [Z 1].T @ (weight * ([Z 1] @ v)), in one pass over weighted rows."""
        return self._t_dot(weight, v)

    def _t_dot(self, x: Array, v: Array | None) -> Array:
        partial = np.zeros((self._n_groups, self.r + 1))
        n_rows = int(np.count_nonzero(x))
        self._run(
            self._t_dots, lambda k: _linear.t_dot(self.Z, x, v, partial, k), n_rows
        )
        found: Array = partial.sum(axis=0)
        return found

    def _run(
        self, choice: ThreadChoice, call: Callable[[int], None], n_rows: int
    ) -> None:
        """Run call(n_threads) of a pass over so many rows."""
        work = n_rows * self.r
        if work < 2 * PASS_GRAIN:
            call(1)
        elif work > LONG_CALL:
            call(self._pass_threads)
        else:
            choice.run(call, n_rows)

    def _dot_outputs(self, V: Array, out: Array) -> None:
        V = np.ascontiguousarray(V)

        def call(n_threads: int, first: int, last: int) -> None:
            buffers = np.empty((n_threads, _linear.OUTPUT_BLOCK * self.r))
            _linear.dot_outputs(self.Z, V, out, first, last, buffers, n_threads)

        self._in_calls(call, self.n, V.size)

    def _t_dot_outputs(self, X: Array) -> Array:
        m = len(X)
        rows, n_rows = None, self.n
        if not X[0].all():
            rows = np.flatnonzero(X.any(axis=0))
            n_rows = len(rows)
        n_groups = min(MAX_GROUPS, max(MIN_GROUPS, PARTIAL_SIZE // (m * self.r)))
        n_groups = max(1, min(n_groups, n_rows // MIN_GROUP_ROWS))
        partial = np.zeros((n_groups, m, self.r))

        def call(n_threads: int, first: int, last: int) -> None:
            buffers = np.empty((n_threads, _linear.OUTPUT_BLOCK * (self.r + m)))
            _linear.t_dot_outputs(
                self.Z, X, rows, first, last, partial, buffers, n_threads
            )

        self._in_calls(call, n_rows, m * self.r)
        found: Array = partial.sum(axis=0)
        return found

    def _in_calls(
        self, call: Callable[[int, int, int], None], n_rows: int, row_work: int
    ) -> None:
        """Run call(n_threads, first, last) for all rows, so that Ctrl-C is heard."""
        step = max(CALL_ROWS, CALL_WORK // row_work)
        for first in range(0, n_rows, step):
            last = min(first + step, n_rows)
            work = (last - first) * row_work
            if work < 2 * PASS_GRAIN:
                call(1, first, last)
            elif work > LONG_CALL:
                call(self.n_threads, first, last)
            else:

                def part(k: int, first: int = first, last: int = last) -> None:
                    call(k, first, last)

                self._outputs.run(part, last - first)

    def rows(self, numbers: Indices | slice, bordered: bool = False) -> Array:
        """Take some rows of Z in float64, a slice as a view; `bordered`: of [Z 1]."""
        rows = np.asarray(self.Z[numbers], np.float64)
        return np.insert(rows, self.r, 1.0, axis=1) if bordered else rows

    def gram(self, weight: Array, bordered: bool = False) -> Array:
        """Compute Z.T @ (weight[:, None] * Z), the upper triangle; the rest is 0.

        Costs (rows of some weight)·r²/2 multiplications.  `bordered`: of [Z 1].
        """
        gram = self._gram(np.maximum(weight, 0.0), bordered)
        if weight.min() < 0:
            gram -= self._gram(np.maximum(-weight, 0.0), bordered)
        if bordered:
            gram[:, -1] = self._border(weight)
        return gram

    def sketched_gram(
        self, weight: Array, n_sums: int, bordered: bool = False
    ) -> Array:
        """Estimate `gram` by so many sums of rows, with random signs.

        A count sketch of all rows of some weight (none is negative), at the price of a
        pass: no row is left out, so that it preconditions better than the Gram matrix
        of as many single rows.
        """
        rng = np.random.default_rng(0)
        x = rng.choice((-1.0, 1.0), size=self.n)
        x *= np.sqrt(weight)
        rows = rng.permutation(np.flatnonzero(weight))  # or periods would meet in sums
        total = np.zeros((self.r + bordered,) * 2)
        n_sums = min(n_sums, len(rows))
        step = max(self.r, MIN_GROUP_ROWS)  # at a time, or sums would fill memory
        room = np.empty((min(step, n_sums), self.r + 1))
        for start in range(0, n_sums, step):
            sums = room[: n_sums - start]
            sums[:] = 0

            def add(k: int, start: int = start, sums: Array = sums) -> None:
                _linear.sum_rows(self.Z, x, rows, start, n_sums, sums, k)

            self._run(self._t_dots, add, len(rows) * len(sums) // n_sums)
            some = Features(sums if bordered else sums[:, :-1], self.n_threads)
            total += some.gram(np.ones(len(sums)))
        return total

    def _border(self, weight: Array) -> Array:
        """Compute [Z 1].T @ weight; equal weights need no pass: columns are summed."""
        if weight.min() < weight.max():
            return self.bordered_t_dot(weight)
        found: Array = weight[0] * np.append(self._column_sums[0], self.n)
        return found

    def _gram(self, weight: Array, bordered: bool) -> Array:
        """Compute `gram` of weights that are not negative, with room for a border."""
        rows = np.flatnonzero(weight)
        # a group has to be worth the matrix that it fills, in time and in memory
        n_groups = len(rows) // max(MIN_GROUP_ROWS, 2 * self.r)
        most = max(MIN_GRAM_GROUPS, self.Z.nbytes // (GRAM_SHARE * 8 * self.r**2))
        n_groups = max(1, min(GRAM_TASKS // self._gram_tiles, n_groups, most))
        size = self.r + bordered
        sums = np.zeros((n_groups, size, size))
        step = max(CALL_GRAM_ROWS, CALL_WORK // self.r**2)

        def add(n_threads: int, some: Indices) -> None:
            n_threads = min(n_threads, n_groups * self._gram_tiles)
            buffers = np.empty((n_threads, self._gram_buffer))
            _linear.add_weighted_gram(self.Z, weight, some, sums, buffers, n_threads)

        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            work = len(some) * self.r**2
            if work < 2 * GRAM_GRAIN:
                add(1, some)
            elif work > LONG_GRAM:
                add(self.n_threads, some)
            else:

                def add_some(k: int, some: Indices = some) -> None:
                    add(k, some)

                self._grams.run(add_some, len(some))
        found: Array = sums.sum(axis=0) if n_groups > 1 else sums[0]
        return found


def far_origin(low: Array, high: Array, dtype: Dtype) -> Array | None:
    """Find the middle of columns that are far from 0, 0 for others; None if none is."""
    far = np.maximum(np.abs(low), np.abs(high)) > FAR * (high - low)
    if not far.any():
        return None
    return np.where(far, (low / 2 + high / 2).astype(dtype), dtype.type(0))


def symmetric(upper: Array) -> Array:
    """Make the whole matrix from its upper triangle and zeros."""
    whole = upper + upper.T
    whole[np.diag_indices_from(whole)] /= 2
    return whole


def eigh_of_gram(gram: Array) -> tuple[Array, Array]:
    """Find increasing eigenvalues, and eigenvectors, given an upper triangle only."""
    # row-major and upper is column-major and lower
    return scipy.linalg.eigh(gram.T, lower=True)


class RunningSum:
    """A sum over points, linear in their weights, which change at few of them.

    What has changed is added, while that is less than half of the points; every so
    often all of them are summed anew, so that rounding does not add up.

    Parameters
    ----------
    compute : callable
        weights of points -> the sum, a new array; points of weight 0 cost nothing.
    """

    MAX_CHANGED = 0.5
    MAX_UPDATES = 16

    def __init__(self, compute: Callable[[Array], Array]) -> None:
        self._compute = compute
        self._first: tuple[Array, Array] | None = None
        self.restart()

    def restart(self) -> None:
        """Forget all but the first sum, which is that of where a solver starts."""
        self._weight: Array | None = None
        self._n_updates = 0

    def __call__(self, weight: Array) -> Array:
        """Compute the sum for these weights, which must not be changed afterwards."""
        change = self._small_change(weight)
        if change is None:
            self._sum = self._compute_anew(weight)
            self._n_updates = 0
        else:
            self._sum += self._compute(change)
            self._n_updates += 1
        self._weight = weight
        return self._sum.copy()

    def _compute_anew(self, weight: Array) -> Array:
        if self._weight is None:  # where a solver starts
            if self._first is None:
                self._first = weight, self._compute(weight)
            if np.array_equal(weight, self._first[0]):
                return self._first[1].copy()
        return self._compute(weight)

    def n_to_add(self, weight: Array) -> int:
        """Count the points that a call with these weights would sum."""
        change = self._small_change(weight)
        return int(np.count_nonzero(weight if change is None else change))

    def change(self, weight: Array) -> Array | None:
        """Find what these weights add to those of the last call, or None before it."""
        return None if self._weight is None else weight - self._weight

    def _small_change(self, weight: Array) -> Array | None:
        change = self.change(weight)
        if change is None or self._n_updates == self.MAX_UPDATES:
            return None
        limit = self.MAX_CHANGED * np.count_nonzero(weight)
        return change if np.count_nonzero(change) <= limit else None


def has_whole_rows(A: Array) -> bool:
    """Tell whether rows are contiguous, one behind the other, as BLAS wants them."""
    return A.strides[1] == A.itemsize and A.strides[0] >= A.shape[1] * A.itemsize


def matmul(A: Array, B: Array, out: Array, n_threads: int) -> Array:
    """out = A @ B, rows of A shared among threads; A and B are C-contiguous."""
    if A.shape[1] != B.shape[0] or out.shape != (A.shape[0], B.shape[1]):
        raise ValueError(f"{A.shape} times {B.shape} does not make {out.shape}")
    if not has_whole_rows(out):
        raise ValueError(f"rows of out must be whole, got strides {out.strides}")
    step = max(_linear.MATMUL_ROWS, CALL_WORK // B.size)
    with single_threaded_blas():
        for start in range(0, len(A), step):
            rows = slice(start, start + step)
            _linear.matmul(A[rows], B, out[rows], n_threads)
    return out


def times_triangle(A: Array, W: Array, n_threads: int) -> Array:
    """A := A @ W in place, of an upper triangle W; rows of A are contiguous."""
    return form_columns(A, W, 0, n_threads)


def form_columns(A: Array, W: Array, first: int, n_threads: int) -> Array:
    """A[:, first:] := A @ W[:, first:] in place, of an upper triangle W."""
    n, r = A.shape
    if W.shape != (r, r) or not has_whole_rows(A):
        raise ValueError(f"{A.shape} times {W.shape} cannot be computed in place")
    if first == r:
        return A
    if n < FEW_ROWS:
        _form_few(A, W, first)
        return A
    packed = np.empty((r, _linear.packed_width(W, first)), A.dtype)
    _linear.pack_triangle(W, first, packed, n_threads)
    n_threads = min(n_threads, -(-n // _linear.FORM_ROWS))
    buffers = np.empty((n_threads, r, _linear.FORM_ROWS), A.dtype)
    step = max(CALL_ROWS, CALL_WORK // r**2)
    for start in range(0, n, step):
        rows = A[start : start + step]
        _linear.form_columns(rows, packed, first, buffers, n_threads)
    return A


def _form_few(A: Array, W: Array, first: int) -> None:
    """Do the same for a few rows, reading the upper triangle only, by BLAS."""
    trmm = get_blas_funcs("trmm", (A, W))
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        left = A[:, :first] @ W[:first, first:]
        # by columns: (A·W)ᵀ = Wᵀ·Aᵀ, of a lower triangle
        A[:, first:] = trmm(1.0, W[first:, first:].T, A[:, first:].T, lower=True).T
        A[:, first:] += left
