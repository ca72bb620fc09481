"""Conformal bounds: ends of intervals, moved by what held-out points say.

A score is how far a target lies above the end that machines without its point predict.
If n points and a new one are exchangeable, so are their scores, and the rank of the new
one among them is uniform: the end of a new point, plus the ⌈(n + 1)·share⌉-th smallest
score, is exceeded with a probability of at most 1 - share (Vovk, Gammerman and Shafer,
2005; for ends that are quantiles: Romano, Patterson and Candès, 2019).

    split         one machine, and points that it has not seen: exactly that
    folds         machines without a fold each; ends[x, fold of i] + score_i in order
                  (CV+: Barber, Candès, Ramdas and Tibshirani, 2021): exceeded with a
                  probability of at most 2·(1 - share) + √(2/n), and mostly 1 - share
    leave-one-out the same, with as many folds as points (jackknife+): 2·(1 - share)
    weights       scores count by their weight, the new point by its own (Tibshirani,
                  Barber, Candès and Ramdas, 2019): for points of other distributions,
                  whose weights are ratios of densities
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pskernels._types import Array, Indices

# Halvings of the interval that a bound is sought in: to the last digit.
HALVINGS = 64
# What a share of (n + 1) may be above a whole number by rounding.
ROUNDING = 1e-10


def bound_by_folds(
    ends: Array,
    scores: Array,
    folds: Indices,
    share: float,
    weight: Array | None = None,
    new_weight: Array | float | None = None,
    widths: Array | None = None,
) -> Array:
    """Find upper bounds of new points by scores of points that were held out in folds.

    Parameters
    ----------
    ends : array of shape (m, K)
        Ends of m new points, by the machine without each of K folds; (m, 1) for a
        split.
    scores : array of shape (n,)
        Targets of held-out points minus their ends.
    folds : array of int, shape (n,)
        From 0 to K - 1.
    share : float in (0, 1)
        Of targets that are to lie at or below their bound.
    weight, new_weight : arrays of shape (n,) and (m,), optional
        Of held-out and of new points, in one unit; None means 1.
    widths : array of shape (m, K), optional
        The unit of scores at each new point, positive; None means 1.

    Returns
    -------
    ndarray of shape (m,)
        Infinite where the points that were held out are too few.
    """
    needed = _needed_mass(len(scores), share, weight, new_weight)
    tables = [
        _tabulate(scores[folds == k], None if weight is None else weight[folds == k])
        for k in range(ends.shape[1])
    ]
    widths = np.ones_like(ends) if widths is None else widths
    if len(tables) == 1:
        values, masses = tables[0]
        place = np.searchsorted(masses, np.broadcast_to(needed, len(ends)))
        found: Array = ends[:, 0] + widths[:, 0] * np.append(values, np.inf)[place]
        return found

    def mass(t: Array) -> Array:
        """Sum the weights of ends + widths·scores at or below t."""
        total = np.zeros(len(t))
        for k, (values, masses) in enumerate(tables):
            at = (t - ends[:, k]) / widths[:, k]
            total += np.append(0.0, masses)[np.searchsorted(values, at, side="right")]
        return total

    low, high = (_farthest(ends, widths, tables, best) for best in (np.min, np.max))
    reached = mass(high) >= needed
    for _ in range(HALVINGS):
        middle = low + (high - low) / 2
        enough = mass(middle) >= needed
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(reached, high, np.inf)


def _farthest(
    ends: Array,
    widths: Array,
    tables: list[tuple[Array, Array]],
    best: Callable[..., Any],
) -> Array:
    """Find the least or largest end plus score, and a little more for rounding."""
    place, sign = (0, -1) if best is np.min else (-1, 1)
    values = [
        ends[:, k] + widths[:, k] * scores[place]
        for k, (scores, _) in enumerate(tables)
        if len(scores)
    ]
    found = best(values, axis=0)
    sizes = np.abs(ends).max(axis=1) + np.abs(found)
    result: Array = found + sign * (1e-12 * sizes + np.finfo(float).tiny)
    return result


def bound_by_points(
    values: Array,
    share: float,
    weight: Array | None = None,
    new_weight: Array | None = None,
) -> Array:
    """Find upper bounds of new points by machines without one point each.

    Parameters
    ----------
    values : array of shape (m, n)
        Ends of m new points by the machine without point i, plus the score of i.
    share : float in (0, 1)
    weight, new_weight : arrays of shape (n,) and (m,), optional
        As for `bound_by_folds`.

    Returns
    -------
    ndarray of shape (m,)
    """
    n = values.shape[1]
    needed = _needed_mass(n, share, weight, new_weight)
    if weight is None and new_weight is None:
        rank = int(needed)
        return np.partition(values, rank - 1)[:, rank - 1] if rank <= n else _no(values)
    order = np.argsort(values, axis=1)
    weight = np.ones(n) if weight is None else weight
    masses = np.cumsum(weight[order], axis=1)
    place = (masses < np.broadcast_to(needed, len(values))[:, None]).sum(axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    found: Array = np.hstack([ordered, _no(values)[:, None]])[
        np.arange(len(values)), place
    ]
    return found


def _needed_mass(
    n: int, share: float, weight: Array | None, new_weight: Array | float | None
) -> float | Array:
    """Compute the weight of scores that a bound must have at or below it."""
    if weight is None and new_weight is None:
        return float(np.ceil(share * (n + 1) * (1 - ROUNDING)))
    total = float(n) if weight is None else weight.sum()
    new = 1.0 if new_weight is None else np.asarray(new_weight, np.float64)
    return share * (total + new) * (1 - ROUNDING)


def _tabulate(scores: Array, weight: Array | None) -> tuple[Array, Array]:
    """Sort scores: (scores, sums of weights up to each)."""
    order = np.argsort(scores, kind="stable")
    weight = np.ones(len(scores)) if weight is None else weight[order]
    return scores[order], np.cumsum(weight)


def _no(values: Array) -> Array:
    return np.full(len(values), np.inf)
