"""Roots of functions of one number."""

import math
from collections.abc import Callable, Iterable

MAX_EVALUATIONS = 80


def find_root(
    derivatives: Callable[[float], Iterable[float]],
    start: float,
    width: float,
    accept: Callable[[float, float, float], bool],
    low: float = -math.inf,
) -> float:
    """Find a t near the root of a function that does not decrease.

    Newton's method inside a bracket, which is bisected whenever a step did not
    halve the function.  Before there is a bracket, steps grow.

    Parameters
    ----------
    derivatives : callable
        t -> (function, its slope)
    start, width : float
        The first t, and how far to go from there if the slope does not say.
    accept : callable
        (t, function, slope) -> whether t is good enough
    low : float
        Where the function is known to be negative.
    """
    t, high = start, math.inf
    previous = math.inf
    for _ in range(MAX_EVALUATIONS):
        value, slope = derivatives(t)
        if accept(t, value, slope):
            break
        low, high = (t, high) if value < 0 else (low, t)
        newton = t - value / slope if slope > 0 else math.nan
        if math.isinf(low) or math.isinf(high):
            length = width if slope <= 0 else min(abs(newton - t), 8 * width)
            t -= math.copysign(length, value)
            width *= 8
        elif low < newton < high and abs(value) <= previous / 2:
            t = newton
        else:
            t = low + (high - low) / 2
        previous = abs(value)
        # neighbouring numbers; without a bracket, steps that are lost in t grow
        if not low < t < high and math.isfinite(low) and math.isfinite(high):
            break
    return t
