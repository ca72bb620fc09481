"""Square matrices: triangular factors, and what is done in place.

At thousands of rows, a copy of a matrix costs more than what is done with it.
"""

import numpy as np

from pskernels import _factors
from pskernels._threads import CALL_WORK, single_threaded_blas, threads_for
from pskernels._types import Array, Indices

BLOCK = 256
FACTOR_GRAIN = 2**20  # multiplications that are worth a thread


def _blocks(n: int) -> list[slice]:
    return [slice(start, min(n, start + BLOCK)) for start in range(0, n, BLOCK)]


def make_symmetric(A: Array) -> None:
    """A := (A + Aᵀ) / 2"""
    blocks = _blocks(len(A))
    for k, rows in enumerate(blocks):
        for columns in blocks[k:]:
            mean = (A[rows, columns] + A[columns, rows].T) / 2
            A[rows, columns] = mean
            A[columns, rows] = mean.T


def absolute_product(v: Array, A: Array) -> Array:
    """Compute v @ |A|."""
    return np.concatenate([v @ np.abs(A[:, columns]) for columns in _blocks(len(A))])


def principal(A: Array, rows: Indices) -> Array:
    """Take A[np.ix_(rows, rows)], none negative, which is 4 times as fast in parts."""
    out = np.empty((len(rows), len(rows)), A.dtype)
    for part in _blocks(len(rows)):
        # "clip": "raise", the default, would copy twice
        np.take(A[rows[part]], rows, axis=1, out=out[part], mode="clip")
    return out


def add_scaled(A: Array, scale: float, B: Array) -> None:
    """A += scale · B"""
    for rows in _blocks(len(A)):
        A[rows] += scale * B[rows]


def _check_square(A: Array) -> None:
    """Check what BLAS does not."""
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"a square matrix is needed, got shape {A.shape}")


def _threads_of(A: Array, n_threads: int) -> int:
    return threads_for(len(A) ** 3, FACTOR_GRAIN, n_threads)


def _parts(n: int, size: int) -> int:
    """Count the tasks of so many rows, which more threads than these do not share."""
    return max(1, -(-n // size))


def _room_to_pack(H: Array) -> Array:
    """Make room for rows of a factor, in the form that products of blocks read."""
    return np.empty((_factors.PACKED_ROWS, len(H) + _factors.PACKED_MORE), H.dtype)


def cholesky(H: Array, n_threads: int, overwrite: bool = False) -> tuple[Array, int]:
    """Factorise H = UᵀU, upper triangles: (U, 0), or (U, where H is not positive).

    H is of float64 or float32, C-contiguous if U is to overwrite it.
    """
    _check_square(H)
    U = H if overwrite else H.copy()
    with single_threaded_blas():
        info = _factors.cholesky(U, _room_to_pack(U), _threads_of(H, n_threads))
    return U, info


def pivoted_cholesky(H: Array, cut: float, n_threads: int) -> tuple[Array, Indices]:
    """Factorise H = UᵀU in the order of its largest pivots, up to a cut.

    Numbers are finite; of equal pivots the first one, in the order so far, is taken.

    Returns
    -------
    U : array of shape (rank, r)
        What is left of the diagonal holds nothing of use.
    order : array of shape (r,)
        Rows of H in the order of U, those of no pivot last.
    """
    _check_square(H)
    U, order = H.copy(), np.empty(len(H), np.intp)
    with single_threaded_blas():
        rank = _factors.pivoted_cholesky(
            U,
            cut,
            order,
            np.empty(len(H)),
            _room_to_pack(U),
            _threads_of(H, n_threads),
        )
    return U[:rank], order


def _room_to_solve(U: Array, n_threads: int) -> Array:
    """Make room for rows of a system, for each thread."""
    rows = len(U) + _factors.SYSTEM_SIDE
    return np.empty((n_threads, rows, _factors.SYSTEM_ROWS), U.dtype)


def inverse_of_triangle(U: Array, n_threads: int) -> Array:
    """Compute U⁻¹ of an upper triangle; its lower triangle is 0, that of U not read."""
    _check_square(U)
    n_threads = min(_threads_of(U, n_threads), _parts(len(U), _factors.SYSTEM_ROWS))
    W, U = np.zeros(U.shape), np.ascontiguousarray(U)
    with single_threaded_blas():
        _factors.invert_triangle(U, W, _room_to_solve(U, n_threads), n_threads)
    return W


def diagonal_of_inverse(U: Array, n_threads: int) -> Array:
    """Compute the diagonal of (UᵀU)⁻¹, U an upper triangle of float32."""
    _check_square(U)
    r, size = len(U), _factors.SYSTEM_ROWS
    n_threads = min(_threads_of(U, n_threads), _parts(r, size))
    sums = np.empty(r)
    rows, work = np.empty((n_threads, size, r), U.dtype), _room_to_solve(U, n_threads)
    step = size * max(n_threads, CALL_WORK // (size * r**2 or 1))
    with single_threaded_blas():
        for first in range(0, r, step):
            last = min(r, first + step)
            _factors.inverse_squares(U, first, last, sums, rows, work, n_threads)
    return sums


def rows_by_inverse(rows: Array, U: Array, n_threads: int) -> Array:
    """Compute rows @ U⁻¹ of an upper triangle; what is below it is not read."""
    _check_square(U)
    if rows.shape[1] != len(U):
        raise ValueError(f"rows {rows.shape} do not fit a triangle of {len(U)}")
    out = rows.copy()
    n_threads = threads_for(rows.size * len(U), FACTOR_GRAIN, n_threads)
    n_threads = min(n_threads, _parts(len(rows), _factors.RIGHT_SIDES))
    with single_threaded_blas():
        _factors.solve_rows(U, out, _room_to_solve(U, n_threads), n_threads)
    return out
