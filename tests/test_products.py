"""Products with the feature matrix against NumPy, at the edges of groups and tiles."""

import errno
import sys
import tempfile

import numpy as np
import pytest
import scipy.linalg
from conftest import TOLERANCE
from reference import relative_error

from pskernels import _linear
from pskernels._products import Features, form_columns, matmul
from pskernels._threads import single_threaded_blas


@pytest.mark.parametrize(
    "n, r, m",
    [
        (n, r, m)
        for n, r in [(1, 1), (3, 5), (255, 17), (1000, 100), (2049, 257)]
        for m in (2, 5, 6, 7, 20)
    ]
    # larger than a cache, in short rows and in long ones
    + [(21_003, 101, 2), (21_003, 101, 20), (2103, 1001, 6)],
)
def test_products(n, r, m, dtype, rng):
    Z = rng.normal(size=(n, r)).astype(dtype)
    v, x = rng.normal(size=r + 1), rng.normal(size=n)
    V, X = rng.normal(size=(m, r)), rng.normal(size=(m, n))
    weight = rng.uniform(size=n) * (rng.uniform(size=n) < 0.3)
    weight[0] = 0.5
    equal = np.full(n, 0.3)
    exact = Z.astype(np.float64)
    bordered = np.column_stack([exact, np.ones(n)])
    expected = (
        (exact @ v[:r])[None],
        (exact.T @ x)[None],
        V @ exact.T,
        X @ exact,
        X * (weight > 0) @ exact,
        bordered.T @ x,
        bordered.T @ (weight * (bordered @ v)),
        np.triu(exact.T @ (weight[:, None] * exact)),
        *(np.triu(bordered.T @ (w[:, None] * bordered))[:r] for w in (weight, equal)),
    )
    results = []
    with single_threaded_blas():
        for n_threads in (1, 2, 5):
            F = Features(Z, n_threads)
            upper = np.triu(F.gram(weight))
            results.append(
                (
                    F.dot(v[None, :r]),
                    F.t_dot(x[None]),
                    F.dot(V),
                    F.t_dot(X),
                    F.t_dot(X * (weight > 0)),
                    F.bordered_t_dot(x),
                    F.bordered_gram_dot(weight, v),
                    upper,
                    *(F.gram(w, bordered=True)[:r] for w in (weight, equal)),
                )
            )
    for result in results:
        for one, first, correct in zip(result, results[0], expected, strict=True):
            np.testing.assert_array_equal(one, first)
            # sums are in double, also of float32 features
            assert relative_error(one, correct) < 1e-12


# one side of panels (6 to 48 columns, by SIMD level and type), of blocks of 480
# columns and of 128 rows, and the other
EDGES = [5, 6, 7, 12, 13, 23, 24, 25, 47, 48, 49, 97, 127, 128, 129, 479, 480, 481, 970]


@pytest.mark.parametrize("r", EDGES)
@pytest.mark.parametrize("n", [1, 127, 128, 129, 700])
def test_gram_at_edges(n, r, dtype, rng):
    """All of the upper triangle, and nothing below it or behind it."""
    Z, weight = rng.normal(size=(n, r)).astype(dtype), rng.uniform(size=n)
    exact = Z.astype(np.float64)
    expected = np.triu(exact.T @ (weight[:, None] * exact))
    tiles, size = _linear.plan_gram(r)
    rows = np.arange(n)
    grams = []
    for n_threads in (1, 2, 3):
        found = np.zeros((1, r + 1, r + 2))
        buffers = np.full((n_threads, size), np.nan)
        _linear.add_weighted_gram(Z, weight, rows, found, buffers, n_threads)
        grams.append(found[0])
    np.testing.assert_allclose(grams[0][:r, :r], expected, atol=1e-13 * n, rtol=1e-13)
    assert not np.tril(grams[0], -1).any()
    assert not grams[0][r:].any() and not grams[0][:, r:].any()
    assert tiles == len({(k, j) for k in range(-(-r // 480)) for j in range(k + 1)})
    for other in grams[1:]:
        np.testing.assert_array_equal(other, grams[0])
    in_groups = [Features(Z, n_threads).gram(weight) for n_threads in (1, 2, 3)]
    np.testing.assert_allclose(in_groups[0], expected, atol=1e-13 * n, rtol=1e-13)
    for other in in_groups[1:]:
        np.testing.assert_array_equal(other, in_groups[0])


@pytest.mark.parametrize("r", EDGES)
@pytest.mark.parametrize("n", [1, 15, 16, 95, 96, 97, 500])
def test_form_columns_at_edges(n, r, dtype, rng):
    """In rows of a larger array, of which the rest is left as it was."""
    W = np.triu(rng.normal(size=(r, r))).astype(dtype)
    whole = rng.normal(size=(n, r + 3)).astype(dtype)
    for first in {0, r // 3, r - 1, r}:
        expected = whole.astype(np.float64)
        expected[:, first:r] = expected[:, :r] @ W[:, first:].astype(np.float64)
        found = [whole.copy() for _ in range(3)]
        for n_threads, one in enumerate(found, start=1):
            form_columns(one[:, :r], W, first, n_threads)
            np.testing.assert_array_equal(one, found[0])
        assert relative_error(found[0], expected) < TOLERANCE[dtype]
        for rest in (slice(first), slice(r, None)):
            np.testing.assert_array_equal(found[0][:, rest], whole[:, rest])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_sums", [1, 4, 37, 1500, 6000])
@pytest.mark.parametrize("r", [1, 63, 65, 300])
def test_sketched_gram(r, n_sums, dtype, rng):
    """Sums of every n_sums-th row, in a random order with signs."""
    n = 5001  # so that there are threads for r = 300
    Z, weight = rng.normal(size=(n, r)).astype(dtype), rng.uniform(size=n)
    weight[::3] = 0
    drawn = np.random.default_rng(0)
    signs = drawn.choice((-1.0, 1.0), size=n)
    rows = (signs * np.sqrt(weight))[:, None] * np.column_stack([Z, np.ones(n)])
    rows = rows[drawn.permutation(np.flatnonzero(weight))]
    sums = np.array([rows[b::n_sums].sum(axis=0) for b in range(n_sums)])
    Z[weight == 0] = np.nan  # not read
    results = []
    with single_threaded_blas():
        for n_threads in (1, 2, 5):
            F = Features(Z, n_threads)
            results.append([F.sketched_gram(weight, n_sums, k) for k in (True, False)])
    for bordered, plain in results:
        np.testing.assert_array_equal(bordered, results[0][0])
        np.testing.assert_array_equal(plain, results[0][1])
        assert relative_error(bordered, np.triu(sums.T @ sums)) < 1e-12
        assert relative_error(plain, np.triu(sums.T @ sums)[:-1, :-1]) < 1e-12


def test_sketched_gram_stands_for_all_rows(rng):
    """Eigenvalues of G⁻¹·(sketch) are near those of m normal rows, (1 ± √(r/m))².

    All rows but one in 20 are in a plane: of m single rows some 20 would be out of it,
    and 28 of 48 eigenvalues 0.  Normal rows leave (1 ± 2·√(r/m))² with a probability
    below 2·exp(-r/2).  The periods of weights and of rows divide m.
    """
    n, r, m = 80_000, 50, 400
    Z, weight = rng.normal(size=(n, r)), np.zeros(n)
    Z[np.arange(n) % 80 != 0, 2:] = 0
    weight[::4] = 1
    F = Features(Z, 2)
    with single_threaded_blas():
        gram, sketch = F.gram(weight), F.sketched_gram(weight, m)
    gram, sketch = (np.triu(G) + np.triu(G, 1).T for G in (gram, sketch))
    values = scipy.linalg.eigh(sketch, gram, eigvals_only=True)
    width = 2 * np.sqrt(r / m)
    assert (1 - width) ** 2 < values[0] and values[-1] < (1 + width) ** 2


def test_rows_without_weight_are_not_read(rng):
    Z = rng.normal(size=(500, 20))
    weight = (np.arange(500) % 3 == 0).astype(float)
    Z[weight == 0] = np.nan
    F = Features(Z, 2)
    kept = Z[weight > 0]
    sums = np.outer([1.0, 2.0], kept.sum(axis=0))
    np.testing.assert_allclose(F.t_dot(weight[None]), sums[:1], rtol=1e-12)
    with single_threaded_blas():
        both = F.t_dot(np.outer([1.0, 2.0], weight))
        np.testing.assert_allclose(both, sums, rtol=1e-10)
        gram = F.gram(weight)
    np.testing.assert_allclose(np.triu(gram), np.triu(kept.T @ kept), rtol=1e-9)


def sparse_file(shape):
    """An array of zeros, which takes no memory or disk where it is not written."""
    if sys.platform != "linux":
        pytest.skip("where files have no holes, this would fill the disk")
    with tempfile.TemporaryFile() as file:
        try:
            return np.memmap(file, np.float64, "w+", shape=shape)
        except OSError as error:
            # a limit of this machine (ulimit -v, -f; a file system), not of the code
            if error.errno not in (errno.ENOMEM, errno.EFBIG, errno.ENOSPC):
                raise
            pytest.skip(f"this machine has no room for {shape}: {error}")


def test_more_rows_than_blas_can_count(rng):
    """The last ones of 2³¹ rows and more, where BLAS takes strides of an int."""
    n, r, m, n_last = 2**31 + 1000, 2, 7, 300
    Z, X, out = sparse_file((n, r)), sparse_file((m, n)), sparse_file((m, n))
    Z[n - n_last :] = rng.normal(size=(n_last, r))
    X[:, n - n_last :] = rng.normal(size=(m, n_last))
    V = rng.normal(size=(m, r))
    buffers = np.empty((1, _linear.OUTPUT_BLOCK * (r + m)))
    last = Z[n - n_last :]
    _linear.dot_outputs(Z, V, out, n - n_last, n, buffers, 1)
    assert relative_error(out[:, n - n_last :], V @ last.T) < 1e-14
    for rows, first, end in (
        (None, n - n_last, n),
        (np.arange(n - n_last, n), 0, n_last),
    ):
        partial = np.zeros((1, m, r))
        _linear.t_dot_outputs(Z, X, rows, first, end, partial, buffers, 1)
        assert relative_error(partial[0], X[:, n - n_last :] @ last) < 1e-13


def test_more_columns_than_blas_can_count():
    wide = sparse_file((1, 2**31))
    with pytest.raises(OverflowError, match="at most 2147483647, got 2147483648"):
        _linear.dot_outputs(wide, wide, np.empty((1, 1)), 0, 1, np.empty((1, 1)), 1)


def test_several_calls(monkeypatch, rng):
    Z, weight = rng.normal(size=(3000, 30)), rng.uniform(size=3000)
    monkeypatch.setattr("pskernels._products.CALL_WORK", 1)
    monkeypatch.setattr("pskernels._products.CALL_ROWS", 100)
    V, X = rng.normal(size=(4, 30)), rng.normal(size=(4, 3000))
    with single_threaded_blas():
        assert relative_error(Features(Z, 2).dot(V), V @ Z.T) < 1e-14
        assert relative_error(Features(Z, 2).t_dot(X), X @ Z) < 1e-13
        gram = np.triu(Features(Z, 2).gram(weight))
    assert relative_error(gram, np.triu(Z.T @ (weight[:, None] * Z))) < 1e-13


@pytest.mark.parametrize("n, s, r", [(1, 1, 1), (256, 10, 7), (257, 100, 64)])
def test_matmul(n, s, r, dtype, rng, monkeypatch):
    A = rng.normal(size=(n, s)).astype(dtype)
    B = rng.normal(size=(s, r)).astype(dtype)
    for n_threads, work in ((1, 2**32), (3, 2**32), (2, 1)):
        monkeypatch.setattr("pskernels._products.CALL_WORK", work)
        out = np.full((n, r), np.nan, dtype)
        assert matmul(A, B, out, n_threads) is out
        assert relative_error(out, A @ B) < TOLERANCE[dtype]
    with pytest.raises(ValueError, match="rows of out must be whole"):
        matmul(A, B, np.empty((n, 2 * r), dtype)[::-1, :r], 1)
