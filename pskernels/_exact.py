"""Products and sums without rounding: numbers, and what they have no room for."""

import numpy as np

from pskernels._types import Array

SPLITTER = 2.0**27 + 1  # cuts a float64 into two halves of 26 bits


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Split a·b into (p, e) with p + e = a·b, exactly (Dekker, 1971)."""
    p = a * b
    a_high, b_high = (x * SPLITTER - (x * SPLITTER - x) for x in (a, b))
    a_low, b_low = a - a_high, b - b_high
    e = a_low * b_low - (((p - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return p, e


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Split a + b into (s, e) with s + e = a + b, exactly (Knuth)."""
    s = a + b
    change = s - a
    return s, (a - (s - change)) + (b - change)


def exact_product(W: Array, v: Array) -> tuple[Array, Array]:
    """Find W @ v as if in twice the digits: (numbers, what they have no room for)."""
    terms, lost = two_product(W, v)
    low = lost.sum(axis=1)
    while terms.shape[1] > 1:  # halves, until a single column is left
        half = terms.shape[1] // 2
        sums, lost = two_sum(terms[:, :half], terms[:, half : 2 * half])
        low += lost.sum(axis=1)
        terms = np.hstack([sums, terms[:, 2 * half :]])
    return two_sum(terms[:, 0], low)
