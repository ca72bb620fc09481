"""Features as solvers see them: what can be multiplied, whatever it is made of.

    Features            an array Z                               (pskernels._products)
    RecomputedFeatures  Z by blocks of rows, computed anew in every pass
    FactoredFeatures    Z = A·W, which is never formed: A = K·Sᵀ, either of the above,
                        and W a triangle
    FeatureBlocks       features of some rows each, one after the other

All of them have n rows of r features and answer: `dot` (predictions), `check_finite`,
`largest`, `sum_error`, `n_terms`, `row_rounding` (what certificates ask for),
`near_zero`, `moved`, `with_threads`, `formed` and `blocks`; and, since Hessians are
those of what features are made of (`inner`, which has `gram` and `rows`): `W`,
`penalty`, `to_inner`, `from_inner`, `rounding_of_gram`.  Their blocks, which a `Sample`
asks one by one, have `t_dot`, `bordered_t_dot`, `exact_residuals` and `exact_t_dot` as
well, and what blocks are made of `bordered_gram_dot` and `sketched_gram`: vectors of
all points never need to be in one place.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Any, Self, TypeAlias, overload

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag, lapack

from pskernels._exact import exact_product, two_sum
from pskernels._matrices import absolute_product
from pskernels._products import (
    EPS,
    Features,
    PlainFeatures,
    far_origin,
    form_columns,
)
from pskernels._threads import cached_property
from pskernels._types import Array, Dtype, Indices, PointsLike
from pskernels._validation import check_points, common_dtype

# What the Gram matrix of what features are made of may lose, in units of alpha: beyond
# the first number it is no Hessian, but a preconditioner; beyond the second, conjugate
# gradients would take too long to make up for it.  Figures are in src/NOTES.md;
# `python bench/estimators.py large_losses` has such fits.
EXACT_ENOUGH = 1.0
MOST_ROUNDING = 64.0


BlockFeatures: TypeAlias = "PlainFeatures | FactoredFeatures"
AnyFeatures: TypeAlias = "PlainFeatures | FactoredFeatures | FeatureBlocks"
FeaturesLike: TypeAlias = "npt.ArrayLike | AnyFeatures"
# compute(X, out, n_threads)
Compute: TypeAlias = Callable[[Any, Array, int], object]


@overload
def as_features(Z: npt.ArrayLike | PlainFeatures, n_threads: int) -> PlainFeatures: ...


@overload
def as_features(Z: "FeaturesLike", n_threads: int) -> "AnyFeatures": ...


def as_features(Z: "FeaturesLike", n_threads: int) -> "AnyFeatures":
    """Make features of an array of shape (n, r), or take those that are given."""
    if isinstance(Z, (PlainFeatures, FactoredFeatures, FeatureBlocks)):
        return Z.with_threads(n_threads)
    points: Any = check_points(Z, "Z")
    return Features(points.astype(common_dtype(points), copy=False), n_threads)


class FactoredFeatures:
    """Z = A·W, which is not formed, or in its last columns only (`form_for`).

    Products with vectors take W first, or last.  Gram matrices are those of A, with
    coefficients β = W·θ: what they lose in digits, a Hessian of the solvers may lose.

    Parameters
    ----------
    A : array of shape (n, r), or features
        K·Sᵀ, of float32 or float64.
    W : array of float64, shape (r, r)
        Upper triangular.
    penalty : array of float64, shape (r, r)
        S·K·Sᵀ = (W·Wᵀ)⁻¹, up to rounding: ‖θ‖² = βᵀ (S·K·Sᵀ) β.
    n_threads : int
    """

    origin: Array | None = None
    row_rounding: float = 0.0

    def __init__(
        self,
        A: npt.ArrayLike | PlainFeatures,
        W: Array,
        penalty: Array,
        n_threads: int,
    ) -> None:
        self.inner: PlainFeatures = as_features(A, n_threads)
        self.n, self.r = self.inner.n, self.inner.r
        if self.inner.row_rounding or self.inner.origin is not None:
            raise ValueError("A must be neither rounded nor around an origin")
        if W.shape != (self.r, self.r) or penalty.shape != W.shape:
            raise ValueError(
                f"W and penalty must have shape {(self.r, self.r)}, got {W.shape} and "
                f"{penalty.shape}"
            )
        self.W = np.ascontiguousarray(W)
        self.penalty = penalty

    @property
    def blocks(self) -> list[Self]:
        """Features of some rows each: here all of them."""
        return [self]

    @property
    def dtype(self) -> Dtype:
        return self.inner.dtype

    @property
    def n_threads(self) -> int:
        return self.inner.n_threads

    def with_threads(self, n_threads: int) -> Self:
        """Return the same for another number of threads."""
        other = copy(self)
        other.inner = self.inner.with_threads(n_threads)
        return other

    def check_finite(self) -> None:
        """Check that all numbers are finite, and can be summed."""
        self.inner.check_finite()

    @cached_property
    def largest(self) -> Array:
        """A bound on |z| of each column, and on the sum that z is."""
        return absolute_product(self.inner.largest, self.W)

    @property
    def column_range(self) -> tuple[Array, Array]:
        """A range of each column: it says nothing of how far from 0 they are."""
        return -self.largest, self.largest

    @property
    def n_terms(self) -> int:
        """How many operations a prediction takes, one after the other."""
        return 2 * self.r

    def sum_error(self, several: bool = True) -> float:
        """Bound the error of a sum over rows, relative to that of the sizes."""
        return self.inner.sum_error(several) + EPS / 2 * (self.r + 1)

    def near_zero(self) -> Self:
        """Return these features: they are not moved."""
        return self

    def moved(self, coef: Array) -> Array | float:
        """Return what the origin adds to predictions: there is none."""
        return 0.0

    def dot(self, V: Array, out: Array | None = None) -> Array:
        """Compute V @ Z.T, for one row or several of V."""
        return self.inner.dot(V @ self.W.T, out)

    def t_dot(self, X: Array) -> Array:
        """Compute X @ Z, for one row or several of X."""
        return self.inner.t_dot(X) @ self.W

    def bordered_t_dot(self, x: Array) -> Array:
        """Compute [Z 1].T @ x."""
        bordered = self.inner.bordered_t_dot(x)
        return np.append(bordered[:-1] @ self.W, bordered[-1])

    def exact_residuals(self, v: Array, intercept: Iterable[float], y: Array) -> Array:
        """Compute Z @ v + intercept - y, as if in twice the digits and rounded twice.

        The intercept is a pair of numbers, to be added up.
        """
        high, low = exact_product(self.W, v)
        out = self.inner.exact_residuals(high, intercept, y)
        out += self.inner.dot(low[None])[0]
        return out

    def exact_t_dot(self, x: Array) -> tuple[Array, Array]:
        """Compute x @ Z as if in twice the digits: numbers, and what is beyond them."""
        numbers, beyond = self.inner.exact_t_dot(x)
        high, low = exact_product(self.W.T, numbers)
        return two_sum(high, low + beyond @ self.W)

    def to_inner(self, gradient: Array) -> Array:
        """Turn the gradient of Θ (k, r) into that of coefficients of A."""
        found: Array = lapack.dtrtrs(self.W.T, gradient.T, lower=1)[0].T
        return found

    def from_inner(self, step: Array) -> Array:
        """Turn the step of coefficients of A into that of Θ (k, r)."""
        found: Array = lapack.dtrtrs(self.W.T, step.T, lower=1, trans=1)[0].T
        return found

    def rounding_of_gram(self, alpha: float) -> float:
        """Bound the rounding of `inner.gram` in a Hessian, relative to alpha."""
        squares: Any = self.largest @ self.largest
        return float(EPS * squares / alpha)

    def formed(self) -> PlainFeatures:
        """Form Z after all, in memory of its own."""
        return self.inner.times_triangle(self.W)

    def form_for(
        self, alpha: float, most: float = MOST_ROUNDING
    ) -> "FactoredFeatures | PlainFeatures":
        """Form as many columns of Z, in place of those of A, as Gram matrices need.

        The last ones, whose W is large.  A is changed: these features must not be used
        any more.

        Parameters
        ----------
        alpha, most : float
            How much of alpha may be lost.

        Returns
        -------
        FactoredFeatures, or Features if all columns are formed
        """
        losses = EPS * np.cumsum(self.largest**2) / alpha
        first = int(np.searchsorted(losses, most))
        if first == self.r:
            return self
        inner = self.inner.times_triangle(self.W, first, overwrite=True)
        if first == 0:
            return inner
        rest = np.eye(self.r - first)
        return FactoredFeatures(
            inner,
            block_diag(self.W[:first, :first], rest),
            block_diag(self.penalty[:first, :first], rest),
            self.n_threads,
        )


class RecomputedFeatures(PlainFeatures):
    """Z, of which no more than a block of rows is in memory, computed in every pass.

    Passes cost what the rows cost.  Rows of weight 0 are not computed, unless they are
    multiplied by a triangle, a block at a time.

    Parameters
    ----------
    compute : callable
        compute(X, out, n_threads) fills out with the rows of some points.
    X : array or sparse array of shape (n, d)
        The points: all that is kept, and not copied.
    r : int
    dtype : float32 or float64
    n_threads : int
    step : int
        Rows of a block.
    """

    dtype: Dtype

    def __init__(
        self,
        compute: Compute,
        X: PointsLike,
        r: int,
        dtype: Dtype,
        n_threads: int,
        step: int,
    ) -> None:
        self._compute = compute
        self._X = X
        self.n, self.r = X.shape[0], r
        self.dtype = np.dtype(dtype)
        self.n_threads = n_threads
        self._step = step
        # a few rows are multiplied by a triangle in another way than many, and rounded
        # in another way: then blocks are whole, so that all passes see the same numbers
        self._whole = False

    def with_threads(self, n_threads: int) -> Self:
        """Return the same for another number of threads."""
        other = copy(self)
        other.n_threads = n_threads
        return other

    def around(self, origin: Array) -> Self:
        """Return the same around an origin (r,)."""

        def finish(rows: Array, n_threads: int) -> None:
            rows -= origin

        other = self._followed_by(finish)
        other.origin = self._moved_origin(origin)
        return other

    def times_triangle(self, W: Array, first: int = 0, overwrite: bool = False) -> Self:
        """Make the same with Z @ W in columns from `first` on, W an upper triangle."""
        W = W.astype(self.dtype, order="C")
        other = self._followed_by(
            lambda rows, n_threads: form_columns(rows, W, first, n_threads)
        )
        other._whole = True
        return other

    def _followed_by(self, finish: Callable[[Array, int], object]) -> Self:
        """Return the same, whose rows are changed in place after they are computed."""

        def compute(X: PointsLike, out: Array, n_threads: int) -> None:
            self._compute(X, out, n_threads)
            finish(out, n_threads)

        other = type(self)(
            compute, self._X, self.r, self.dtype, self.n_threads, self._step
        )
        other._whole = self._whole
        return other

    def _blocks(self, weight: Array | None = None) -> Iterator[tuple[Any, Features]]:
        """Yield pairs of row numbers and the features of these rows.

        Where weights (n,) or (…, n) are given, of those rows alone that have any.
        """
        room = np.empty((min(self._step, self.n), self.r), self.dtype)
        for start in range(0, self.n, self._step):
            numbers: Any = slice(start, min(self.n, start + self._step))
            if weight is not None:
                used = weight[..., numbers] != 0
                used = used.reshape(-1, used.shape[-1]).any(axis=0)
                if not used.any():
                    continue
                if not used.all() and not self._whole:
                    numbers = start + np.flatnonzero(used)
            yield numbers, Features(self._fill(numbers, room), self.n_threads)

    def _fill(self, numbers: Indices | slice, room: Array) -> Array:
        """Compute the rows of these numbers, in memory that is given."""
        points = self._X[numbers]
        rows = room[: points.shape[0]]
        self._compute(points, rows, self.n_threads)
        return rows

    @cached_property
    def _column_sums(self) -> tuple[Array, Array, Array]:
        """Sums, minima and maxima of the columns."""
        parts = [block._column_sums for _, block in self._blocks()]
        sums, low, high = zip(*parts, strict=True)
        return np.sum(sums, axis=0), np.min(low, axis=0), np.max(high, axis=0)

    def check_finite(self) -> None:
        """Check that all numbers are finite, and can be summed."""
        if not np.isfinite(self._column_sums[0]).all():
            raise ValueError("features overflow; scale X")

    def sum_error(self, several: bool = True) -> float:
        """Bound the error of a sum over rows, relative to that of the sizes."""
        return EPS / 2 * (self._step + 2 * (self.n // self._step + 1) + 16)

    def rows(self, numbers: Indices, bordered: bool = False) -> Array:
        """Take some rows of Z in float64; `bordered`: of [Z 1]."""
        if len(numbers) == 0:
            return np.empty((0, self.r + bordered))
        room = np.empty((len(numbers), self.r), self.dtype)
        return Features(self._fill(numbers, room), 1).rows(slice(None), bordered)

    def dot(self, V: Array, out: Array | None = None) -> Array:
        """Compute V @ Z.T, for one row or several of V."""
        out = np.empty((len(V), self.n)) if out is None else out
        if not V.any():
            out[:] = 0
            return out
        for numbers, block in self._blocks():
            out[:, numbers] = block.dot(V)
        return out

    def exact_residuals(self, v: Array, intercept: Iterable[float], y: Array) -> Array:
        """Compute Z @ v + intercept - y, as if in twice the digits and rounded once."""
        out = np.empty(self.n)
        for numbers, block in self._blocks():
            out[numbers] = block.exact_residuals(v, intercept, y[numbers])
        return out

    def exact_t_dot(self, x: Array) -> tuple[Array, Array]:
        """Compute x @ Z as if in twice the digits: numbers, and what is beyond them."""
        high: Array = np.zeros(self.r)
        low: Array = np.zeros(self.r)
        for numbers, block in self._blocks():
            more, beyond = block.exact_t_dot(x[numbers])
            high, lost = two_sum(high, more)
            low = low + (lost + beyond)
        return two_sum(high, low)

    def _t_dot_outputs(self, X: Array) -> Array:
        total = np.zeros((len(X), self.r))
        for numbers, block in self._blocks(X):
            total += block.t_dot(np.ascontiguousarray(X[:, numbers]))
        return total

    def bordered_t_dot(self, x: Array) -> Array:
        """Compute [Z 1].T @ x."""
        total = np.zeros(self.r + 1)
        for numbers, block in self._blocks(x):
            total += block.bordered_t_dot(x[numbers])
        return total

    def bordered_gram_dot(self, weight: Array, v: Array) -> Array:
        """Compute [Z 1].T @ (weight * ([Z 1] @ v)), in one pass over weighted rows."""
        total = np.zeros(self.r + 1)
        for numbers, block in self._blocks(weight):
            total += block.bordered_gram_dot(weight[numbers], v)
        return total

    def gram(self, weight: Array, bordered: bool = False) -> Array:
        """Compute Z.T @ (weight[:, None] * Z), the upper triangle; the rest is 0."""
        total = np.zeros((self.r + bordered,) * 2)
        for numbers, block in self._blocks(weight):
            total += block.gram(weight[numbers], bordered)
        return total

    def sketched_gram(
        self, weight: Array, n_sums: int, bordered: bool = False
    ) -> Array:
        """Estimate `gram` by about so many sums of rows, with random signs."""
        total = np.zeros((self.r + bordered,) * 2)
        n_weighted = int(np.count_nonzero(weight))
        for numbers, block in self._blocks(weight):
            some = weight[numbers]
            share = -(-n_sums * int(np.count_nonzero(some)) // n_weighted)
            total += block.sketched_gram(some, share, bordered)
        return total


def _are_equal(a: Any, b: Any) -> bool:
    """Tell whether two arrays are equal, or both None."""
    return bool(np.array_equal(a, b))


class FeatureBlocks:
    """Features of some rows each, one after the other.

    Parameters
    ----------
    blocks : sequence of features, of as many columns each
    """

    def __init__(self, blocks: "Iterable[AnyFeatures]") -> None:
        self.blocks: list[BlockFeatures] = [
            block for part in blocks for block in part.blocks
        ]
        if not self.blocks:
            raise ValueError("there must be at least one block")
        self.n = sum(block.n for block in self.blocks)
        widths = {block.r for block in self.blocks}
        if len(widths) != 1:
            raise ValueError(f"blocks must have equal columns, got {sorted(widths)}")
        (self.r,) = widths
        self.origin = self.blocks[0].origin
        if any(not _are_equal(self.origin, block.origin) for block in self.blocks):
            raise ValueError("blocks must have the same origin")

        first = self.blocks[0]
        self.W, self.penalty, self.n_terms = first.W, first.penalty, first.n_terms
        self.n_threads = first.n_threads
        self.row_rounding = max(block.row_rounding for block in self.blocks)
        self.to_inner, self.from_inner = first.to_inner, first.from_inner
        if any(not _are_equal(first.W, block.W) for block in self.blocks):
            raise ValueError("blocks must have the same factor W, or none")

    def with_threads(self, n_threads: int) -> "FeatureBlocks":
        """Return the same for another number of threads."""
        return FeatureBlocks(block.with_threads(n_threads) for block in self.blocks)

    def check_finite(self) -> None:
        """Check that all numbers are finite, and can be summed."""
        for block in self.blocks:
            block.check_finite()

    @cached_property
    def column_range(self) -> tuple[Array, Array]:
        """The least and the largest number of each column."""
        low, high = zip(*(block.column_range for block in self.blocks), strict=True)
        return np.min(low, axis=0), np.max(high, axis=0)

    @cached_property
    def largest(self) -> Array:
        """The largest |z| of each column."""
        found: Array = np.max([block.largest for block in self.blocks], axis=0)
        return found

    def sum_error(self, several: bool = True) -> float:
        """Bound the error of a sum over rows, relative to that of the sizes."""
        worst = max(block.sum_error(several) for block in self.blocks)
        return worst + EPS * (len(self.blocks) - 1)

    def formed(self) -> "FeatureBlocks":
        """Return the same of arrays."""
        return FeatureBlocks(block.formed() for block in self.blocks)

    def rounding_of_gram(self, alpha: float) -> float:
        """Bound the rounding of Gram matrices, relative to alpha."""
        return max(block.rounding_of_gram(alpha) for block in self.blocks)

    def near_zero(self) -> "FeatureBlocks":
        """Move columns that are far from 0 to a common origin amid them."""
        origin = far_origin(*self.column_range, self.dtype)
        if origin is None:
            return self
        # columns of products are not far from 0
        return FeatureBlocks(
            block.around(origin)  # type: ignore[union-attr]
            for block in self.blocks
        )

    def moved(self, coef: Array) -> Array | float:
        """Compute what the origin adds to predictions: origin @ coef."""
        return self.blocks[0].moved(coef)

    @property
    def dtype(self) -> Dtype:
        return np.result_type(*(block.dtype for block in self.blocks))

    def dot(self, V: Array) -> Array:
        """Compute V @ Z.T, for one row or several of V."""
        return np.concatenate([block.dot(V) for block in self.blocks], axis=1)

    def t_dot(self, X: Array) -> Array:
        """Compute X @ Z, for one row or several of X."""
        total: Array = np.zeros((len(X), self.r))
        for rows, block in self._rows_of_blocks():
            total += block.t_dot(np.ascontiguousarray(X[:, rows]))
        return total

    def gram(self, weight: Array, bordered: bool = False) -> Array:
        """Compute Z.T @ (weight[:, None] * Z), the upper triangle; the rest is 0."""
        total: Array = np.zeros((self.r + bordered,) * 2)
        for rows, block in self._rows_of_blocks():
            total += block.formed().gram(weight[rows], bordered)
        return total

    def _rows_of_blocks(self) -> "Iterator[tuple[slice, BlockFeatures]]":
        """Yield blocks, and where their rows are."""
        start = 0
        for block in self.blocks:
            yield slice(start, start + block.n), block
            start += block.n
