"""Square matrices in place, a block of columns at a time.

At thousands of rows, a copy of a matrix costs more than what is done with it.
"""

import numpy as np

BLOCK = 256


def _blocks(n):
    return [slice(start, min(n, start + BLOCK)) for start in range(0, n, BLOCK)]


def make_symmetric(A):
    """A := (A + Aᵀ) / 2"""
    blocks = _blocks(len(A))
    for k, rows in enumerate(blocks):
        for columns in blocks[k:]:
            mean = (A[rows, columns] + A[columns, rows].T) / 2
            A[rows, columns] = mean
            A[columns, rows] = mean.T


def clear_below_diagonal(A):
    """Set all that is below the diagonal to 0."""
    for columns in _blocks(len(A)):
        A[columns.stop :, columns] = 0
        A[columns, columns] = np.triu(A[columns, columns])


def absolute_product(v, A):
    """Compute v @ |A|."""
    return np.concatenate([v @ np.abs(A[:, columns]) for columns in _blocks(len(A))])


def add_scaled(A, scale, B):
    """A += scale · B"""
    for rows in _blocks(len(A)):
        A[rows] += scale * B[rows]
