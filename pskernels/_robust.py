"""Medians and scales that a few outliers do not move."""

import warnings

import numpy as np

from pskernels._types import Array
from pskernels._validation import levels_to_the_caller

# Of a normal law, the standard deviation is so many times the median of |e|.
NORMAL_MAD = 1.4826

# Targets so many times farther from the median than most of them, this share, are wild:
# of normal ones none is, of those with the tails of Cauchy's law one in 130.
WILD, TAME = 20.0, 0.85
# What rounding leaves of a gap, and the share of what tame targets have to say that
# this may hide.
LEAST_TOL, HIDDEN = 1e-12, 1e-3


def weighted_median(values: Array, weight: Array | None = None) -> float:
    """Find the middle of the medians of `values`, which count `weight` times each."""
    if weight is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    values, cumulated = values[order], np.cumsum(weight[order])
    half = cumulated[-1] / 2
    rounding = 1e-12 * half
    low = np.searchsorted(cumulated, half - rounding)
    high = np.searchsorted(cumulated, half + rounding)
    return float(values[low] / 2 + values[min(high, len(values) - 1)] / 2)


def centred(y: Array, weight: Array | None = None) -> Array:
    """Subtract its median from y, for each output."""
    columns = y.reshape(len(y), -1).T
    medians = [weighted_median(column, weight) for column in columns]
    found: Array = y - np.reshape(medians, y.shape[1:])
    return found


def scale_of(y: Array, weight: Array | None = None) -> float:
    """Estimate a robust scale of targets, 1 if they are constant."""
    return robust_size(centred(y, weight), weight) or 1.0


def robust_size(errors: Array, weight: Array | None = None) -> float:
    """Estimate a robust standard deviation of errors around 0, or of their norms.

    Where more than half of them are 0, their mean size.
    """
    sizes = np.abs(errors) if errors.ndim == 1 else np.linalg.norm(errors, axis=1)
    size = NORMAL_MAD * weighted_median(sizes, weight)
    return size or float(np.average(sizes, weights=weight))


def tighten(tol: float, y: Array, weight: Array | None = None) -> float:
    """Make a tolerance relative to the objective one that wild targets do not loosen.

    They may be nearly all of the objective: then a gap that is small beside it may hide
    all that the other targets have to say.  The same, unless half of the errors of a
    constant are those of wild targets.
    """
    errors = centred(y, weight)
    largest = np.abs(errors).max()
    if not 0 < largest < np.inf:
        return tol
    errors /= largest  # or squares would overflow
    sizes = np.abs(errors) if errors.ndim == 1 else np.linalg.norm(errors, axis=1)
    mean = np.average(sizes, weights=weight)
    most = np.quantile(sizes, TAME, weights=weight, method="inverted_cdf") or mean
    tame = np.average(np.minimum(sizes, WILD * most), weights=weight)
    if 2 * tame >= mean:
        return tol
    if LEAST_TOL * mean > HIDDEN * tame:
        warnings.warn(
            f"some of y are so large, up to {largest:.3g} from the median, that no "
            "certificate sees the others: leave them out",
            stacklevel=levels_to_the_caller(),
        )
    return float(max(2 * tame / mean * tol, min(tol, LEAST_TOL)))
