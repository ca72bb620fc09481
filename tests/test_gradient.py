"""Gradients of kernel expansions, and metrics, against NumPy and finite differences."""

import numpy as np
import pytest
import reference
from conftest import TOLERANCE

import pskernels as psk
from pskernels import _engine

GAMMA = 0.3


def make_points(rng, n, d, kernel, dtype=np.float64):
    X = rng.normal(size=(n, d)) + 0.2
    return (np.abs(X) if kernel == "sobolev" else X).astype(dtype)


def options_of(kernel, **options):
    gamma = None if kernel in reference.WITHOUT_GAMMA else GAMMA
    return dict(kernel=kernel, gamma=gamma, **options)


def finite_differences(X, Y, B, kernel, step=1e-6):
    """(n, c, d): central differences of the reference kernel, one feature at a time."""
    values = reference.KERNELS[kernel]
    gradients = np.empty((len(X), B.shape[1], X.shape[1]))
    for k in range(X.shape[1]):
        shift = step * np.eye(X.shape[1])[k]
        change = values(X + shift, Y, GAMMA) - values(X - shift, Y, GAMMA)
        gradients[:, :, k] = change @ B / (2 * step)
    return gradients


@pytest.mark.parametrize("kernel", reference.KERNELS)
def test_every_kernel_agrees_with_finite_differences(kernel, dtype, rng):
    X = make_points(rng, 37, 5, kernel, dtype)
    Y = make_points(rng, 300, 5, kernel, dtype)
    B = rng.normal(size=(300, 3)).astype(dtype)
    found = psk.kernel_gradient(X, Y, B, **options_of(kernel))
    assert found.dtype == dtype and found.shape == (37, 3, 5)
    expected = finite_differences(*(a.astype(np.float64) for a in (X, Y, B)), kernel)
    tolerance = max(10 * TOLERANCE[dtype], 1e-7)
    assert reference.relative_error(found, expected) <= tolerance


@pytest.mark.parametrize("n", (1, 3, 4, 5, 16, 17))
@pytest.mark.parametrize("m", (1, 5, 12, 119, 120, 121, 241))
@pytest.mark.parametrize("d", (1, 2, 3, 4, 5, 9))
def test_edges_of_tiles(n, m, d, dtype, rng):
    X, Y = (make_points(rng, size, d, "rbf", dtype) for size in (n, m))
    b = rng.normal(size=m).astype(dtype)
    found = psk.kernel_gradient(X, Y, b, gamma=GAMMA)
    difference = Y[None].astype(float) - X[:, None]
    K = np.exp(-GAMMA * (difference**2).sum(axis=2))
    expected = 2 * GAMMA * np.einsum("ij,ijk->ik", K * b, difference)
    assert found.shape == (n, d)
    scale = 2 * GAMMA * np.einsum("ij,ijk->ik", K * abs(b), abs(difference))
    assert (abs(found - expected) <= 20 * TOLERANCE[dtype] * (scale + 1)).all()


@pytest.mark.parametrize("kernel", ("rbf", "laplacian", "matern12"))
def test_blocks_of_landmarks_add_up(kernel, rng, monkeypatch):
    X, Y = make_points(rng, 50, 4, kernel), make_points(rng, 700, 4, kernel)
    B = rng.normal(size=(700, 2))
    whole = psk.kernel_gradient(X, Y, B, **options_of(kernel))
    monkeypatch.setattr(_engine, "GROUP_BYTES", 2**12)
    tiles = psk.kernel_gradient(X, Y, B, **options_of(kernel))
    assert reference.relative_error(tiles, whole) <= 1e-13


@pytest.mark.parametrize("kernel", ("rbf", "laplacian", "polynomial", "sobolev"))
def test_threads_do_not_change_a_bit(kernel, dtype, rng):
    X = make_points(rng, 3001, 6, kernel, dtype)
    Y = make_points(rng, 1000, 6, kernel, dtype)
    B = rng.normal(size=(1000, 2)).astype(dtype)
    one, three = (
        psk.kernel_gradient(X, Y, B, n_threads=n, **options_of(kernel)) for n in (1, 3)
    )
    assert np.array_equal(one, three)


@pytest.mark.parametrize("kernel", ("laplacian", "matern12", "matern32", "rbf"))
def test_a_point_on_a_landmark_has_no_part_of_its_own(kernel, rng):
    Y = make_points(rng, 20, 3, kernel)
    B = rng.normal(size=20)
    found = psk.kernel_gradient(Y[:1], Y, B, **options_of(kernel))
    others = psk.kernel_gradient(Y[:1], Y[1:], B[1:], **options_of(kernel))
    np.testing.assert_allclose(found, others, rtol=1e-12)


def test_equal_categories_have_no_slope(rng):
    """The sign of 0 is 0: half of the landmarks on each side would be noise."""
    Y = rng.integers(0, 2, size=(500, 1)).astype(float)
    found = psk.kernel_gradient([[0.0]], Y, np.ones(500), kernel="laplacian", gamma=0.5)
    assert found == pytest.approx(0.5 * np.exp(-0.5) * Y.sum())


def test_zero_has_no_angle():
    found = psk.kernel_gradient([[0.0, 0.0]], [[1.0, 2.0]], [1.0], kernel="cosine")
    assert np.array_equal(found, [[0.0, 0.0]])


def test_far_points_keep_their_digits(dtype, rng):
    X = make_points(rng, 10, 3, "rbf")
    Y, b = make_points(rng, 50, 3, "rbf"), rng.normal(size=50)
    expected = psk.kernel_gradient(X, Y, b, gamma=GAMMA)
    shift = 1024.0
    moved = [(A + shift).astype(dtype) for A in (X, Y)]
    exact = psk.kernel_gradient(
        *(A.astype(float) - shift for A in moved), b, gamma=GAMMA
    )
    found = psk.kernel_gradient(*moved, b.astype(dtype), gamma=GAMMA)
    reference_value = expected if dtype == np.float64 else exact
    tolerance = 1e-11 if dtype == np.float64 else 1e-5
    assert reference.relative_error(found, reference_value) <= tolerance


def test_sparse_points(rng):
    import scipy.sparse as sp

    X = sp.random_array((40, 30), density=0.2, random_state=rng, format="csr")
    b = rng.normal(size=40)
    found = psk.kernel_gradient(X, None, b, gamma=GAMMA)
    np.testing.assert_allclose(
        found, psk.kernel_gradient(X.toarray(), None, b, gamma=GAMMA), atol=1e-14
    )


def test_memory_limit(rng):
    X, Y, b = rng.normal(size=(500, 40)), rng.normal(size=(900, 40)), np.ones(900)
    small = psk.kernel_gradient(X[:, ::-1], Y, b, gamma=0.1, memory_limit=200_000)
    np.testing.assert_allclose(
        small, psk.kernel_gradient(X[:, ::-1].copy(), Y, b, gamma=0.1), atol=1e-13
    )
    with pytest.raises(ValueError, match="memory_limit=1000 bytes is too small"):
        psk.kernel_gradient(X, Y, b, gamma=0.1, memory_limit=1000)


@pytest.mark.parametrize(
    ("kernel", "match"),
    [
        (lambda X, Y: X @ Y.T, "a function or a precomputed kernel has none"),
        ("precomputed", "a function or a precomputed kernel has none"),
    ],
)
def test_kernels_without_gradients(kernel, match):
    with pytest.raises(ValueError, match=match):
        psk.kernel_gradient(np.eye(3), None, np.ones(3), kernel=kernel)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (dict(B=np.ones(4)), r"B must have shape \(3,\)"),
        (dict(B=[1.0, np.nan, 0.0]), "B"),
        (dict(X=[[np.inf, 0.0]]), "X"),
        (dict(Y=np.ones((3, 3))), "same number of features"),
        (dict(gamma="scale"), "ambiguous"),
    ],
)
def test_bad_input(change, match):
    arguments = dict(X=np.ones((2, 2)), Y=np.eye(3)[:, :2], B=np.ones(3), gamma=1.0)
    arguments |= change
    with pytest.raises(ValueError, match=match):
        psk.kernel_gradient(**arguments)


def test_maps_have_gradients(rng):
    X, y = rng.uniform(size=(400, 3)), rng.normal(size=(400, 2))
    feature_map = psk.FeatureMap(gamma=2.0, random_state=0)
    coef = np.linalg.lstsq(feature_map.fit_transform(X), y, rcond=1e-2)[0]
    found = feature_map.gradient(X[:9], coef)
    assert found.shape == (9, 2, 3)
    for k, shift in enumerate(1e-6 * np.eye(3)):
        change = feature_map.predict(X[:9] + shift, coef)
        change -= feature_map.predict(X[:9] - shift, coef)
        np.testing.assert_allclose(found[..., k], change / 2e-6, atol=1e-5)
    one = feature_map.gradient(X[:9], coef[:, 0])
    np.testing.assert_allclose(one, found[:, 0], rtol=1e-9)


def test_maps_of_functions_have_none(rng):
    feature_map = psk.FeatureMap(lambda X, Y: X @ Y.T).fit(rng.normal(size=(20, 3)))
    with pytest.raises(ValueError, match="a function or a precomputed kernel"):
        feature_map.gradient(np.ones((2, 3)), np.ones(feature_map.rank_))


# ---- metrics ----


METRICS = {
    "diagonal": np.array([0.5, 2.0, 0.0, 1.0]),
    "full": np.array([[1.0, 0.5, 0.0, 0.2], [0.0, 1.0, 0.3, 0.0]]),
}


def see(X, L):
    return X * L if L.ndim == 1 else X @ L.T


@pytest.mark.parametrize("L", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("kernel", reference.KERNELS)
@pytest.mark.parametrize("sketch", (psk.PSparsified(9, 0.1), psk.SubSampling(9)))
def test_products_in_a_metric(L, kernel, sketch, dtype, rng):
    X = make_points(rng, 200, 4, kernel, dtype)
    options = options_of(kernel, sketch=sketch.draw(200, 0), metric=L)
    SKSt, SK, drawn = psk.sketch_gram(X, **options)
    seen = see(X.astype(np.float64), L)
    S, K = drawn.to_dense(), reference.KERNELS[kernel](seen, seen, GAMMA)
    assert SK.dtype == dtype
    assert reference.relative_error(SK, S @ K) <= 2 * TOLERANCE[dtype]
    assert reference.relative_error(SKSt, S @ K @ S.T) <= 2 * TOLERANCE[dtype]


@pytest.mark.parametrize("L", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("kernel", reference.KERNELS)
def test_gradients_in_a_metric(L, kernel, rng):
    X, Y = make_points(rng, 20, 4, kernel), make_points(rng, 90, 4, kernel)
    B = rng.normal(size=(90, 2))
    found = psk.kernel_gradient(X, Y, B, **options_of(kernel, metric=L))
    inner = psk.kernel_gradient(see(X, L), see(Y, L), B, **options_of(kernel))
    expected = inner * L if L.ndim == 1 else inner @ L
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("rule", ("scale", "median"))
@pytest.mark.parametrize("L", METRICS.values(), ids=METRICS)
def test_rules_of_gamma_see_the_metric(rule, L, rng):
    X = rng.normal(size=(3000, 4)) * [1, 2, 30, 4]
    options = dict(sketch=psk.SubSampling(5).draw(3000, 0), gamma=rule)
    found = psk.sketch_gram(X, metric=L, **options).kernel.gamma
    assert found == pytest.approx(psk.sketch_gram(see(X, L), **options).kernel.gamma)


@pytest.mark.parametrize("kernel", ("polynomial", "cosine", "sobolev", "rbf"))
def test_diagonals_in_a_metric(kernel, rng):
    X = make_points(rng, 10, 4, kernel)
    for L in METRICS.values():
        K = psk.kernel_matmul(X, None, np.eye(10), kernel=kernel, metric=L)
        kernel_object = psk.sketch_gram(X, 3, kernel=kernel, metric=L).kernel
        found = kernel_object.diagonal(X, np.arange(10))
        np.testing.assert_allclose(found, K.diagonal())


def test_metrics_of_sparse_points(rng):
    import scipy.sparse as sp

    X = sp.random_array((100, 2000), density=0.01, random_state=rng, format="csr")
    L = rng.uniform(size=2000)
    B = rng.normal(size=100)
    found = psk.kernel_matmul(X, None, B, gamma=0.5, metric=L)
    expected = psk.kernel_matmul(X.toarray() * L, None, B, gamma=0.5)
    np.testing.assert_allclose(found, expected, atol=1e-13)


def test_metrics_are_values():
    one, other = psk.Metric([1, 2.0]), psk.Metric(np.array([1.0, 2.0]))
    assert one == other and hash(one) == hash(other) and one != psk.Metric([2.0, 1.0])
    assert one != psk.Metric([[1.0, 2.0]])
    assert psk.RBF(0.5, metric=[1, 2]) == psk.RBF(0.5, metric=one) != psk.RBF(0.5)
    assert repr(one) == "Metric(diagonal, 2 features)"
    with pytest.raises(ValueError, match="read-only"):
        one.L[0] = 3.0


@pytest.mark.parametrize(
    ("metric", "match"),
    [
        (np.ones((2, 2, 2)), "got shape"),
        ([], "got shape"),
        ([np.nan, 1.0], "finite"),
        ([0.0, 0.0], "not 0 for all"),
        (np.ones(3), "the metric has 3 features, but X has 2"),
        (np.ones((2, 3)), "the metric has 3 features, but X has 2"),
    ],
)
def test_bad_metrics(metric, match):
    with pytest.raises(ValueError, match=match):
        psk.sketch_gram(np.eye(5)[:, :2], 2, p=1.0, metric=metric)


def test_kernels_without_metrics():
    for kernel in ("precomputed", lambda X, Y: X @ Y.T):
        with pytest.raises(ValueError, match="a metric is for kernels by name"):
            psk.sketch_gram(np.eye(5), 2, p=1.0, kernel=kernel, metric=np.ones(5))
    with pytest.raises(ValueError, match="must not be negative"):
        psk.sketch_gram(np.eye(3), 2, p=1.0, kernel="sobolev", metric=[1.0, 1.0, -1.0])
    with pytest.raises(ValueError, match="which has its own"):
        psk.sketch_gram(
            np.eye(3),
            2,
            p=1.0,
            kernel=psk.RBF(1.0, metric=np.ones(3)),
            metric=np.ones(3),
        )
