"""The memory promise: K is never formed, and `memory_limit` holds.

tracemalloc sees all of it: NumPy reports its buffers, and the native code
allocates nothing of its own.
"""

import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse as sp

import pskernels as psk
from pskernels._points import total_variance
from pskernels.estimators import SketchedKernelRegressor
from pskernels.solvers.newton_cg import FACTORS_BYTES

MB = 2**20


@contextmanager
def peak_below(n_bytes):
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n_bytes, f"peak of {peak / MB:.1f} MB, allowed {n_bytes / MB:.1f}"


def test_the_checker_sees_a_gram_matrix():
    X = np.ones((2000, 1))
    with pytest.raises(AssertionError, match="peak of"), peak_below(16 * MB):
        X @ X.T


@pytest.mark.parametrize("parts", ["SK", "SKSt"])
def test_sketch_gram_of_ten_thousand_points(parts, rng):
    X = rng.normal(size=(10_000, 10))  # K would take 800 MB
    sketch = psk.PSparsified(100).draw(10_000, random_state=0)
    out = np.empty((100, 10_000)) if parts == "SK" else None
    with peak_below(64 * MB):
        psk.sketch_gram(X, sketch=sketch, parts=parts, out=out)


def test_dense_gaussian_sketch_takes_tiles_only(rng):
    X = rng.normal(size=(6000, 10))  # K would take 288 MB, S takes 4.8
    sketch = psk.Gaussian(100).draw(6000, random_state=0)
    out = np.empty((100, 6000))
    with peak_below(32 * MB):
        psk.sketch_gram(X, sketch=sketch, out=out)
    with peak_below(32 * MB):
        psk.sketch_gram(X, sketch=sketch, parts="SKSt")


@pytest.mark.parametrize("kind", psk.PSparsified.KINDS)
def test_dense_sketches_are_drawn_in_place(kind):
    """Without the columns of their entries, which would take as much memory again."""
    with peak_below(1.5 * 8 * 100 * 20_000):
        psk.PSparsified(100, p=1.0, kind=kind).draw(20_000, random_state=0)


@pytest.mark.parametrize("form", ["C", "F", "int"])
@pytest.mark.parametrize("limit", [1 * MB, 4 * MB, 32 * MB])
def test_memory_limit_holds(limit, form, rng):
    X = np.round(10 * rng.normal(size=(20_000, 40)))
    X = X.astype(int) if form == "int" else X.astype(float, order=form)
    B = rng.normal(size=(20_000, 2))
    out = np.empty((20_000, 2))
    small_change = 100_000  # Python objects, chunk means
    with peak_below(limit + small_change):
        psk.kernel_matmul(
            X, X[:3000], B[:3000], gamma=0.01, out=out, memory_limit=limit
        )


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("parts", ["SK", "SKSt", ("SKSt", "SK")])
def test_memory_limit_holds_for_sketches(parts, kernel, rng):
    X = rng.normal(size=(20_000, 10))
    sketch = psk.PSparsified(200).draw(20_000, random_state=0)
    out = np.empty((200, 20_000)) if "SK" in parts and parts != "SKSt" else None
    results = 200 * 200 * 8 * 4  # S·K·Sᵀ and its transpose
    with peak_below(8 * MB + results):
        psk.sketch_gram(
            X, sketch=sketch, kernel=kernel, parts=parts, out=out, memory_limit=8 * MB
        )


def test_drawing_costs_its_non_zeros():
    with peak_below(2 * MB):  # S has 2e9 entries, 4e3 of them not zero
        psk.PSparsified(200).draw(10_000_000, random_state=0)


def test_features_take_square_matrices_beside_the_limit(rng):
    n, s, n_threads = 5000, 1000, 2
    X = rng.normal(size=(n, 4))
    feature_map = psk.FeatureMap(
        sketch=psk.SubSampling(s), memory_limit=4 * MB, n_threads=n_threads
    ).fit(X)
    some = 8 * (3 * s**2 + n_threads * 96 * s)  # less than S·K as a whole
    with peak_below(8 * n * s + 4 * MB + some):
        feature_map.transform(X)


@pytest.mark.parametrize("loss", ["pinball", "logistic", "squared"])
def test_solving_takes_a_few_vectors_beside_the_features(loss, rng):
    Z = rng.normal(size=(50_000, 100))  # 40 MB
    y = np.sign(Z[:, 0] + rng.normal(size=50_000))
    with peak_below(Z.nbytes / 3):
        assert psk.solve(Z, y, loss=loss, alpha=1e-4, tol=1e-5).converged


@pytest.mark.parametrize("classes", [4, 40])
def test_factors_of_classes_keep_to_their_limit(classes, rng):
    n, r = 3000, 300
    Z = rng.normal(size=(n, r))
    y = rng.integers(classes, size=n)
    some = 20 * 8 * n * classes  # vectors of points
    factors = min(classes * r * r * 8, max(FACTORS_BYTES, Z.nbytes))
    with peak_below(some + factors + 6 * r * r * 8):
        (result,) = psk.solve_softmax(Z, y, alphas=[1e-4])
    assert result.converged


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["huber", "squared", "epsilon_insensitive"])
def test_a_fit_takes_the_features_and_a_few_square_matrices(loss, dtype, rng):
    n, s = 20_000, 400
    X = rng.normal(size=(n, 4)).astype(dtype)
    y = X[:, 0] * X[:, 1] + rng.normal(size=n)
    model = SketchedKernelRegressor(n_components=s, loss=loss, random_state=0)
    with peak_below(1.25 * n * s * X.itemsize + 10 * s * s * 8):
        model.fit(X, y)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_the_median_rule_keeps_to_the_limit(kernel, rng):
    X = rng.normal(size=(3000, 20))
    sketch = psk.PSparsified(20).draw(3000, random_state=0)
    out = np.empty((20, 3000))
    with peak_below(2 * MB + 200_000):
        psk.sketch_gram(
            X,
            sketch=sketch,
            kernel=kernel,
            gamma="median",
            out=out,
            memory_limit=2 * MB,
        )


def test_the_median_rule_of_sparse_points_keeps_to_the_limit(rng):
    X = sp.random_array((2000, 300_000), density=2e-4, random_state=rng, format="csr")
    limit = 100 * MB
    with peak_below(limit):
        result = psk.sketch_gram(
            X, 20, 0.01, gamma="median", random_state=0, memory_limit=limit
        )
    rows = np.random.default_rng(0).choice(2000, 1000, replace=False)
    some = X[rows]
    norms = some.multiply(some).sum(axis=1)
    squares = norms[:, None] + norms - 2 * (some @ some.T).toarray()
    median = np.median(squares[np.triu_indices(1000, 1)])
    assert result.kernel.gamma == pytest.approx(0.5 / median)


def test_weighted_variances_keep_to_the_limit(rng):
    X = rng.normal(size=(20_000, 40)).astype(np.float32)
    weight = rng.uniform(size=20_000)
    with peak_below(4 * MB):
        found = total_variance(X, weight, 4 * MB)
    mean = np.average(X, axis=0, weights=weight)
    expected = np.average((X - mean) ** 2, axis=0, weights=weight).sum()
    assert found == pytest.approx(expected)
