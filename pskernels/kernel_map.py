"""What maps of points to features share: how they are called, what they check."""

import inspect

import numpy as np

from pskernels import _engine
from pskernels._preparation import prepare
from pskernels._threads import resolve_n_threads
from pskernels._validation import (
    check_memory_limit,
    check_out,
    check_points,
    check_real_array,
    common_dtype,
    raise_not_finite,
    warn_if_not_finite,
)
from pskernels.kernels import is_precomputed
from pskernels.sources import Source


def points_of_a_block(point_bytes, n_bytes, memory_limit):
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

    def __repr__(self):
        given = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in inspect.signature(type(self)).parameters.items()
            if repr(getattr(self, name)) != repr(parameter.default)
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def fit(self, X):
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

    def fit_transform(self, X):
        """Compute ``fit(X).transform(X)``, with one check of X."""
        X = self._fit(self._check_points(X))
        return self._fill(np.empty((X.shape[0], self.rank_), self._dtype), X)

    def transform(self, X, out=None):
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

    def predict(self, X, coef, intercept=0.0):
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

    def _predict(self, X, folded, intercept):
        """Do `predict` from what `fold` makes of coefficients."""
        X = self._check_shape(X)
        intercept = self._check_intercept(intercept, folded.shape[1:])
        self._check_values(X)
        out = np.empty((X.shape[0], *folded.shape[1:]), self._result_dtype(X))
        self._fill_prediction(out, X, folded)
        out += intercept
        warn_if_not_finite(out, "predictions")
        return out

    def limits(self):
        """Check n_threads and memory_limit; return both."""
        return (
            resolve_n_threads(self.n_threads),
            check_memory_limit(self.memory_limit),
        )

    def _check_fitted(self):
        if not hasattr(self, "rank_"):
            raise ValueError(
                f"this {type(self).__name__} is not fitted; call fit first"
            )

    def _check_points(self, X, name="X"):
        if isinstance(X, Source):  # which has checked itself
            return X
        return check_points(X, name, accept_sparse=not is_precomputed(self.kernel))

    def _check_shape(self, X, name="X"):
        self._check_fitted()
        X = self._check_points(X, name)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{name} has {X.shape[1]} features, but this {type(self).__name__} was "
                f"fitted with {self.n_features_in_}"
            )
        return X

    def check_new_points(self, X, name="X"):
        """Check points that the map is to see after its fit."""
        X = self._check_shape(X, name)
        self._check_values(X, name)
        return X

    def _check_values(self, X, name="X"):
        prepare(self.kernel_, X, name, *self.limits())

    def _result_dtype(self, X):
        return np.promote_types(common_dtype(X), self._dtype)

    def _check_coef(self, coef):
        self._check_fitted()
        return check_coef(coef, self.rank_, "coef")

    def _check_intercept(self, intercept, shape):
        """Check intercept: float64, a number or one for each column of coef."""
        intercept = check_real_array(intercept, "intercept").astype(np.float64)
        if intercept.shape not in ((), shape):
            need = f"a number or of shape {shape}" if shape else "a number"
            raise ValueError(f"intercept must be {need}, got shape {intercept.shape}")
        if not np.isfinite(intercept).all():
            raise ValueError(f"intercept must be finite, got {intercept}")
        return intercept


def check_coef(coef, n_rows, name):
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
