"""A metric of points: a kernel sees L·x in place of x, L diagonal or a matrix."""

from dataclasses import dataclass

import numpy as np

from pskernels._types import AnyArray, Array, MetricLike, PointsLike
from pskernels._validation import check_real_array


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """A linear map of points, L·x: distances are ‖L(x - x')‖.

    Parameters
    ----------
    L : array of shape (d,) or (r, d)
        A number for each feature, a diagonal L; or a matrix.  Where a number is 0, or a
        column is, the kernel does not see the feature.
    """

    L: Array

    def __post_init__(self) -> None:
        L = np.array(check_real_array(self.L, "metric"), np.float64, order="C")
        if L.ndim not in (1, 2) or 0 in L.shape:
            raise ValueError(
                "metric must have a number for each feature, shape (d,), or be a "
                f"matrix of shape (r, d), got shape {L.shape}"
            )
        if not np.isfinite(L).all() or not L.any():
            raise ValueError("metric must be finite, and not 0 for all features")
        L += 0.0  # no -0, whose hash is another
        L.flags.writeable = False
        object.__setattr__(self, "L", L)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Metric) and np.array_equal(self.L, other.L)

    def __hash__(self) -> int:
        return hash((self.L.shape, self.L.tobytes()))

    def __repr__(self) -> str:
        kind = "diagonal" if self.is_diagonal else f"rank {len(self.L)}"
        return f"Metric({kind}, {self.d} features)"

    @property
    def is_diagonal(self) -> bool:
        return self.L.ndim == 1

    @property
    def d(self) -> int:
        """Features of x."""
        found: int = self.L.shape[-1]
        return found

    @property
    def d_seen(self) -> int:
        """Features of L·x."""
        found: int = self.L.shape[0]
        return found

    def apply(self, X: AnyArray) -> Array:
        """Compute L·x of points, the rows of X."""
        return X * self.L if self.is_diagonal else X @ self.L.T

    def pull_back(self, gradients: Array) -> Array:
        """Turn gradients in L·x, along the last axis, into gradients in x."""
        return gradients * self.L if self.is_diagonal else gradients @ self.L

    def weights(self) -> Array:
        """Compute the diagonal of LᵀL: what a feature adds to squared distances."""
        return self.L**2 if self.is_diagonal else (self.L**2).sum(axis=0)


def check_metric(metric: Metric | None, X: PointsLike, name: str) -> None:
    """Check that a metric, if there is one, has as many features as points."""
    if metric is not None and metric.d != X.shape[1]:
        raise ValueError(
            f"the metric has {metric.d} features, but {name} has {X.shape[1]}"
        )


def get_metric(metric: MetricLike | None) -> Metric | None:
    """Make a Metric of an array; None stays."""
    if metric is None or isinstance(metric, Metric):
        return metric
    return Metric(metric)  # type: ignore[arg-type]  # which checks it
