"""Triangular factors against LAPACK's, at the edges of blocks and tiles."""

import signal

import numpy as np
import pytest
import scipy.linalg
from conftest import TOLERANCE
from scipy.linalg import lapack

from pskernels._matrices import (
    cholesky,
    inverse_of_triangle,
    pivoted_cholesky,
    rows_by_inverse,
)

# one side of blocks of 64 and 256 rows, of tiles of 192 behind them, of 96 columns of
# a system, and the other
SIZES = [1, 2, 63, 64, 65, 95, 96, 97, 193, 255, 257, 320, 512, 513, 703, 705, 768, 769]
SIZES += [1300]


@pytest.mark.parametrize("r", SIZES)
def test_cholesky(r, dtype, rng):
    A = rng.normal(size=(r, 2 * r)).astype(dtype)
    H = np.triu(A @ A.T)
    factors = [cholesky(H, n_threads) for n_threads in (1, 2, 3)]
    U, info = factors[0]
    assert info == 0 and U.dtype == dtype
    expected = np.linalg.cholesky((A @ A.T).astype(np.float64)).T
    atol = 10 * TOLERANCE[dtype] * np.abs(U).max()
    np.testing.assert_allclose(np.triu(U), expected, atol=atol)
    np.testing.assert_array_equal(np.tril(U, -1), np.tril(H, -1))
    for other, _ in factors[1:]:
        np.testing.assert_array_equal(other, U)
    H[r // 2, r // 2] = -1.0
    assert cholesky(H, 2)[1] == r // 2 + 1  # where it is not positive, counted from 1


def spread_matrix(r, rank, rng):
    """A matrix of a rank whose pivots fall over six orders of magnitude."""
    A = rng.normal(size=(r, rank)) * np.logspace(0, -3, rank)
    return A @ A.T


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("r", SIZES)
def test_pivoted_cholesky(r, share, rng):
    true_rank = max(1, int(share * r))
    H = spread_matrix(r, true_rank, rng)
    cut = 1e-12 * H.diagonal().max()
    U, order = pivoted_cholesky(np.triu(H), cut, 1)
    expected, pivots, rank, _ = lapack.dpstrf(H, tol=cut)
    assert len(U) == rank == true_rank
    # pivots may be equal up to rounding: neither order is wrong then
    np.testing.assert_allclose(
        U.diagonal() ** 2,
        expected.diagonal()[:rank] ** 2,
        atol=1e-15 * r * H.max(),
    )
    assert sorted(order) == list(range(r))
    U_whole = np.triu(U)
    np.testing.assert_allclose(
        U_whole.T @ U_whole, H[np.ix_(order, order)], atol=1e-13 * r * H.max()
    )
    if share == 1.0:
        np.testing.assert_array_equal(order, pivots - 1)
    for n_threads in (2, 3):
        other, same_order = pivoted_cholesky(np.triu(H), cut, n_threads)
        np.testing.assert_array_equal(np.triu(other), U_whole)
        np.testing.assert_array_equal(same_order, order)


def test_pivots_are_the_largest_that_are_left(rng):
    """Against the definition: a step for each pivot, of what all others have left."""
    H = spread_matrix(150, 150, rng)
    left, expected = H.copy(), []
    for _ in range(100):
        expected.append(int(left.diagonal().argmax()))
        row = left[expected[-1]]
        left = left - np.outer(row, row) / row[expected[-1]]
    cut = (1 + 1e-9) * left.diagonal().max()  # whose last digits depend on FMA
    U, order = pivoted_cholesky(H, cut, 2)
    assert len(U) == 100
    np.testing.assert_array_equal(order[:100], expected)


@pytest.mark.parametrize("H", [-np.eye(3), np.zeros((2, 2)), np.full((1, 1), np.nan)])
def test_no_pivot(H):
    U, order = pivoted_cholesky(H, 0.0, 1)
    assert U.shape == (0, len(H))
    assert sorted(order) == list(range(len(H)))


@pytest.mark.parametrize("r", SIZES)
def test_inverse_of_triangle(r, rng):
    U = np.triu(rng.normal(size=(r, r)), 1) / np.sqrt(r) + np.diag(rng.random(r) + 1)
    dirty = U + np.tril(np.full((r, r), np.nan), -1)  # what is below is not read
    W = inverse_of_triangle(dirty, 1)
    expected = scipy.linalg.solve_triangular(U, np.eye(r))
    np.testing.assert_allclose(W, expected, atol=1e-12 * np.abs(expected).max())
    assert not np.tril(W, -1).any()
    np.testing.assert_array_equal(inverse_of_triangle(dirty, 3), W)


@pytest.mark.parametrize("m", [0, 1, 127, 128, 129, 300])
@pytest.mark.parametrize("r", [1, 96, 97, 300])
def test_rows_by_inverse(r, m, rng):
    U = np.triu(rng.normal(size=(r, r)), 1) / np.sqrt(r) + np.diag(rng.random(r) + 1)
    dirty = U + np.tril(np.full((r, r), np.nan), -1)
    rows = rng.normal(size=(m, r))
    found = rows_by_inverse(rows, dirty, 1)
    np.testing.assert_allclose(found @ U, rows, atol=1e-12)
    np.testing.assert_array_equal(rows_by_inverse(rows, dirty, 3), found)


def test_of_equal_pivots_the_first_is_taken():
    H = np.diag([1.0, 2.0, 2.0, 1.0, 2.0])
    assert pivoted_cholesky(H, 0.0, 1)[1].tolist() == [1, 2, 4, 3, 0]
    assert pivoted_cholesky(np.eye(5), 0.0, 1)[1].tolist() == [0, 1, 2, 3, 4]


def test_shapes_that_do_not_fit():
    wide = np.ones((3, 4))
    for call in (
        lambda: cholesky(wide, 1),
        lambda: pivoted_cholesky(wide, 0.0, 1),
        lambda: inverse_of_triangle(wide, 1),
        lambda: rows_by_inverse(np.ones((2, 3)), wide, 1),
    ):
        with pytest.raises(ValueError, match="square matrix"):
            call()
    with pytest.raises(ValueError, match="do not fit a triangle of 5"):
        rows_by_inverse(wide, np.eye(5), 1)


def test_any_order_of_memory(rng):
    U = np.asfortranarray(np.triu(rng.normal(size=(6, 6))) + 4 * np.eye(6))
    np.testing.assert_allclose(inverse_of_triangle(U, 1) @ U, np.eye(6), atol=1e-14)


def test_ctrl_c_is_heard_between_blocks(rng):
    """A factor of thousands of rows is left where it is, far from its end."""
    A = rng.normal(size=(2500, 2500))
    G = A @ A.T
    expected = cholesky(G, 1)[0][-1, -1]

    def stop(number, frame):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(100):
            H = G.copy()
            with pytest.raises(InterruptedError):
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                cholesky(H, 1, overwrite=True)
            if H[0, 0] != G[0, 0]:  # else it has not begun, on a busy machine
                break
    finally:
        signal.signal(signal.SIGALRM, before)
    assert H[0, 0] != G[0, 0]
    assert H[-1, -1] > 2 * expected
