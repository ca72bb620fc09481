"""What maps of points to features share: how they are called, what they check."""

import inspect
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from pskernels import _engine
from pskernels._preparation import prepare
from pskernels._threads import resolve_n_threads
from pskernels._types import (
    Array,
    CheckedPoints,
    Dtype,
    KernelLike,
    Points,
    PointsLike,
    Shape,
)
from pskernels._validation import (
    check_memory_limit,
    check_out,
    check_points,
    check_real_array,
    common_dtype,
    raise_not_finite,
    warn_if_not_finite,
)
from pskernels.kernels import Kernel, is_precomputed
from pskernels.sources import Source


def points_of_a_block(point_bytes: int, n_bytes: int, memory_limit: int) -> int:
    """Count points of a block whose work, point_bytes for each, fits in n_bytes."""
    n_points = n_bytes // point_bytes
    if n_points == 0:
        raise ValueError(
            f"memory_limit={memory_limit} bytes is too small: the work on a single "
            f"point takes {point_bytes}"
        )
    if n_points > _engine.COL_TILE:
        n_points -= n_points % _engine.COL_TILE
    return n_points


class KernelMap:
    """What both maps share: how they are called, and what they check.

    A map adds `_fit`, `_fill`, `fold` and `_fill_prediction`, for points that are
    checked.  `_fit` sets `kernel_`, `rank_`, `n_features_in_` and `_dtype`, the type
    of its features.
    """

    if TYPE_CHECKING:
        kernel: KernelLike
        n_threads: int | None
        memory_limit: int | None
        kernel_: Kernel
        rank_: int
        n_features_in_: int
        _dtype: Dtype

        def _fit(self, X: CheckedPoints) -> CheckedPoints: ...

        def _fill(self, out: Array, X: CheckedPoints) -> Array: ...

        def fold(self, coef: npt.ArrayLike) -> Array: ...

        def _fill_prediction(
            self, out: Array, X: CheckedPoints, folded: Array, /
        ) -> None: ...

    def __repr__(self) -> str:
        given = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in inspect.signature(type(self)).parameters.items()
            if repr(getattr(self, name)) != repr(parameter.default)
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def fit(self, X: Points) -> Self:
        """Learn the map from points.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            A sparse one is made dense in blocks, or, if it is sparse enough, not at
            all.

        Returns
        -------
        The map itself.
        """
        self._fit(self._check_points(X))
        return self

    def fit_transform(self, X: Points) -> Array:
        """Compute ``fit(X).transform(X)``, with one check of X."""
        X = self._fit(self._check_points(X))
        return self._fill(np.empty((X.shape[0], self.rank_), self._dtype), X)

    def transform(self, X: Points, out: Array | None = None) -> Array:
        """Compute the features of points, in blocks.

        Parameters
        ----------
        X : array of shape (n, d)
        out : ndarray of shape (n, rank_), optional
            Of the dtype of the result, in any memory order.

        Returns
        -------
        ndarray of shape (n, rank_)
            float32 if X and the points of the fit are, else float64; C-contiguous,
            if it is not `out`.
        """
        X = self._check_shape(X)
        out = check_out(out, (X.shape[0], self.rank_), self._result_dtype(X), X=X)
        self._check_values(X)
        return self._fill(out, X)

    def predict(
        self, X: Points, coef: npt.ArrayLike, intercept: npt.ArrayLike = 0.0
    ) -> Array:
        """Compute ``transform(X) @ coef + intercept``, without the features of X.

        Parameters
        ----------
        X : array of shape (n, d)
        coef : array of shape (rank_,) or (rank_, c)
        intercept : float, or array of shape (c,)

        Returns
        -------
        ndarray of shape (n,) or (n, c)
            float32 if X and the points of the fit are, else float64.
        """
        return self._predict(X, self.fold(coef), intercept)

    def _predict(self, X: Points, folded: Array, intercept: npt.ArrayLike) -> Array:
        """Do `predict` from what `fold` makes of coefficients."""
        X = self._check_shape(X)
        intercept = self._check_intercept(intercept, folded.shape[1:])
        self._check_values(X)
        out = np.empty((X.shape[0], *folded.shape[1:]), self._result_dtype(X))
        self._fill_prediction(out, X, folded)
        out += intercept
        warn_if_not_finite(out, "predictions")
        return out

    def limits(self) -> tuple[int, int]:
        """Check n_threads and memory_limit; return both."""
        return (
            resolve_n_threads(self.n_threads),
            check_memory_limit(self.memory_limit),
        )

    def _check_fitted(self) -> None:
        if not hasattr(self, "rank_"):
            raise ValueError(
                f"this {type(self).__name__} is not fitted; call fit first"
            )

    def _check_points(self, X: Any, name: str = "X") -> CheckedPoints:
        if isinstance(X, Source):  # which has checked itself
            return X  # type: ignore[return-value]
        return check_points(X, name, accept_sparse=not is_precomputed(self.kernel))

    def _check_shape(self, X: Any, name: str = "X") -> CheckedPoints:
        self._check_fitted()
        points = self._check_points(X, name)
        if points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{name} has {points.shape[1]} features, but this "
                f"{type(self).__name__} was fitted with {self.n_features_in_}"
            )
        return points

    def check_new_points(self, X: Any, name: str = "X") -> CheckedPoints:
        """Check points that the map is to see after its fit."""
        points = self._check_shape(X, name)
        self._check_values(points, name)
        return points

    def _check_values(self, X: PointsLike, name: str = "X") -> None:
        prepare(self.kernel_, X, name, *self.limits())

    def _result_dtype(self, X: PointsLike) -> Dtype:
        return np.promote_types(common_dtype(X), self._dtype)

    def _check_coef(self, coef: npt.ArrayLike) -> Array:
        self._check_fitted()
        return check_coef(coef, self.rank_, "coef")

    def _check_intercept(self, intercept: npt.ArrayLike, shape: Shape) -> Array:
        """Check intercept: float64, a number or one for each column of coef."""
        intercept = check_real_array(intercept, "intercept").astype(np.float64)
        if intercept.shape not in ((), shape):
            need = f"a number or of shape {shape}" if shape else "a number"
            raise ValueError(f"intercept must be {need}, got shape {intercept.shape}")
        if not np.isfinite(intercept).all():
            raise ValueError(f"intercept must be finite, got {intercept}")
        return intercept


def check_coef(coef: npt.ArrayLike, n_rows: int, name: str) -> Array:
    """Check coefficients: float64, of shape (n_rows,) or (n_rows, c)."""
    if hasattr(coef, "coef"):
        raise TypeError(
            f"{name} must be an array, got a {type(coef).__name__}: pass its coef, or "
            "what `fold` makes of it, and its intercept"
        )
    coef = check_real_array(coef, name).astype(np.float64, copy=False)
    if coef.ndim not in (1, 2) or coef.shape[0] != n_rows or 0 in coef.shape:
        raise ValueError(
            f"{name} must have shape ({n_rows},) or ({n_rows}, c), got {coef.shape}"
        )
    if not np.isfinite(coef).all():
        raise_not_finite(coef.reshape(n_rows, -1), name)
    return coef
