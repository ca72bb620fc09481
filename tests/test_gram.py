"""Gram products against dense NumPy, at the edges of every tile."""

import re
from pathlib import Path

import numpy as np
import pytest
import reference
from conftest import TOLERANCE, only_long

import pskernels as psk
from bench.exp2_coefficients import N_COEFFICIENTS, fit, largest_error
from pskernels import _engine, _gram, _tiles

GAMMA = 0.3


def make_points(rng, n, d, dtype, kernel="rbf"):
    X = rng.normal(size=(n, d))
    if kernel == "sobolev":
        X = np.abs(X)
    return X.astype(dtype)


def gamma_of(kernel):
    return None if kernel in reference.WITHOUT_GAMMA else GAMMA


def dense_products(X, sketch, kernel="rbf", gamma=GAMMA):
    X = X.astype(np.float64)
    S = sketch.to_dense()
    K = reference.KERNELS[kernel](X, X, gamma)
    return S @ K @ S.T, S @ K


def assert_close(result, expected, dtype):
    assert result.dtype == dtype
    assert result.shape == expected.shape
    assert reference.relative_error(result, expected) <= TOLERANCE[dtype]


SKETCHES = {
    "sparse": psk.PSparsified(13, p=0.05, kind="gaussian"),
    "dense": psk.PSparsified(13, p=0.7),
    "full": psk.Gaussian(13),
    "subsampling": psk.SubSampling(13),
    "countsketch": psk.CountSketch(13),
    "ros": psk.ROS(13),
}


@pytest.mark.parametrize("sketch", SKETCHES)
@pytest.mark.parametrize("kernel", reference.KERNELS)
def test_every_kernel_and_form_of_weights(kernel, sketch, dtype, rng):
    X = make_points(rng, 300, 7, dtype, kernel)
    sketch = SKETCHES[sketch].draw(300, random_state=0)
    gamma = gamma_of(kernel)
    SKSt, SK, _ = psk.sketch_gram(X, sketch=sketch, kernel=kernel, gamma=gamma)
    expected_SKSt, expected_SK = dense_products(X, sketch, kernel)
    assert_close(SK, expected_SK, dtype)
    assert_close(SKSt, expected_SKSt, dtype)
    alone = psk.sketch_gram(
        X, sketch=sketch, kernel=kernel, gamma=gamma, parts=["SKSt"]
    )
    assert alone.SK is None
    assert_close(alone.SKSt, expected_SKSt, dtype)
    np.testing.assert_array_equal(SKSt, SKSt.T)
    np.testing.assert_array_equal(alone.SKSt, alone.SKSt.T)


@pytest.mark.parametrize("kernel", reference.KERNELS)
@pytest.mark.parametrize("n_columns", [None, 1, 2, 5, 101])
def test_kernel_matmul(kernel, n_columns, dtype, rng):
    X = make_points(rng, 130, 5, dtype, kernel)
    Y = make_points(rng, 270, 5, dtype, kernel)
    B = rng.normal(size=270 if n_columns is None else (270, n_columns)).astype(dtype)
    result = psk.kernel_matmul(X, Y, B, kernel=kernel, gamma=gamma_of(kernel))
    K = reference.KERNELS[kernel](X.astype(float), Y.astype(float), GAMMA)
    assert_close(result, K @ B.astype(float), dtype)


# around register blocks, panels, landmark tiles and point tiles
EDGES = (1, 2, 5, 6, 7, 8, 9, 119, 120, 121, 255, 256, 257, 511, 512, 513)


@pytest.mark.parametrize("m", EDGES)
def test_number_of_landmarks_at_tile_edges(m, dtype, rng):
    X = make_points(rng, 600, 3, dtype)
    sketch = psk.SubSampling(indices=rng.permutation(600)[:m]).draw(600)
    SKSt, SK, _ = psk.sketch_gram(X, sketch=sketch, gamma=GAMMA)
    alone = psk.sketch_gram(X, sketch=sketch, gamma=GAMMA, parts="SKSt").SKSt
    expected_SKSt, expected_SK = dense_products(X, sketch)
    for result, expected in (
        (SK, expected_SK),
        (SKSt, expected_SKSt),
        (alone, expected_SKSt),
    ):
        assert_close(result, expected, dtype)


@pytest.mark.parametrize("n", EDGES)
def test_number_of_points_at_tile_edges(n, dtype, rng):
    X = make_points(rng, n, 3, dtype)
    Y = make_points(rng, 40, 3, dtype)
    B = rng.normal(size=(40, 7)).astype(dtype)
    result = psk.kernel_matmul(X, Y, B, gamma=GAMMA)
    K = reference.rbf(X.astype(float), Y.astype(float), GAMMA)
    assert_close(result, K @ B.astype(float), dtype)


@pytest.mark.parametrize("s", [1, 2, 5, 6, 7, 95, 96, 97, 200])
def test_number_of_rows_of_dense_weights_at_block_edges(s, dtype, rng):
    X = make_points(rng, 270, 3, dtype)
    sketch = psk.Gaussian(s).draw(270, random_state=0)
    SK = psk.sketch_gram(X, sketch=sketch, gamma=GAMMA, parts="SK").SK
    assert_close(SK, dense_products(X, sketch)[1], dtype)


@pytest.mark.parametrize("d", [1, 2, 63, 300, 5000])
def test_number_of_features(d, dtype, rng):
    X = make_points(rng, 50, d, dtype)
    sketch = psk.PSparsified(10, p=0.5).draw(50, random_state=0)
    SK = psk.sketch_gram(X, sketch=sketch, gamma=1 / d, parts="SK").SK
    assert_close(SK, dense_products(X, sketch, gamma=1 / d)[1], dtype)


@pytest.mark.parametrize("sketch", ["sparse", "dense"])
def test_many_blocks_of_landmarks_and_points(sketch, dtype, rng, monkeypatch):
    """Small blocks: sums are taken up again from `out`, calls cut anywhere."""
    monkeypatch.setattr(_engine, "BLOCK_COST", 1)
    monkeypatch.setattr(_engine, "ROW_TILE", 12)
    monkeypatch.setattr(_engine, "COL_TILE", 64)
    monkeypatch.setattr(_engine, "FIRST_CALL_COST", 1)
    monkeypatch.setattr(_tiles, "CALL_SECONDS", 0.0)
    monkeypatch.setattr(_tiles, "SKST_COLUMNS", 70)
    X = make_points(rng, 500, 4, dtype)
    sketch = SKETCHES[sketch].draw(500, random_state=0)
    SKSt, SK, _ = psk.sketch_gram(X, sketch=sketch, gamma=GAMMA)
    alone = psk.sketch_gram(X, sketch=sketch, gamma=GAMMA, parts="SKSt").SKSt
    expected_SKSt, expected_SK = dense_products(X, sketch)
    assert_close(SK, expected_SK, dtype)
    assert_close(SKSt, expected_SKSt, dtype)
    assert_close(alone, expected_SKSt, dtype)


@pytest.mark.parametrize("sketch", SKETCHES)
def test_result_does_not_depend_on_threads(sketch, dtype, rng):
    X = make_points(rng, 1500, 6, dtype)
    sketch = SKETCHES[sketch].draw(1500, random_state=0)
    B = rng.normal(size=(1500, 3)).astype(dtype)
    results = [
        (
            *psk.sketch_gram(X, sketch=sketch, n_threads=n_threads)[:2],
            psk.sketch_gram(X, sketch=sketch, n_threads=n_threads, parts="SKSt").SKSt,
            psk.kernel_matmul(X, X, B, n_threads=n_threads),
        )
        for n_threads in (1, 2, 3, 4)
    ]
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("form", ["C", "F"])
@pytest.mark.parametrize("limit", [200_000, only_long(500_000), 2_000_000])
@pytest.mark.parametrize("sketch", ["sparse", "full"])
def test_result_does_not_depend_on_threads_when_memory_is_short(
    sketch, limit, form, dtype, rng
):
    X = make_points(rng, 3000, 7, dtype).astype(dtype, order=form)
    sketch = SKETCHES[sketch].draw(3000, random_state=0)
    results = [
        psk.sketch_gram(X, sketch=sketch, n_threads=n_threads, memory_limit=limit)
        for n_threads in (1, 2, 7, 64)
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].SK, other.SK)
        np.testing.assert_array_equal(results[0].SKSt, other.SKSt)


@pytest.mark.parametrize("sketch", ["sparse", "dense"])
def test_result_does_not_depend_on_where_calls_are_cut(sketch, dtype, rng, monkeypatch):
    X = make_points(rng, 2000, 6, dtype)
    sketch = SKETCHES[sketch].draw(2000, random_state=0)
    whole = psk.sketch_gram(X, sketch=sketch)
    monkeypatch.setattr(_engine, "FIRST_CALL_COST", 1)
    monkeypatch.setattr(_tiles, "CALL_SECONDS", 0.0)
    cut = psk.sketch_gram(X, sketch=sketch, n_threads=1)
    np.testing.assert_array_equal(whole.SK, cut.SK)
    np.testing.assert_array_equal(whole.SKSt, cut.SKSt)


# ---- precision ----


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "matern12", "matern52"])
def test_common_offset_costs_no_accuracy(kernel, dtype, rng):
    X = (1e4 + rng.normal(size=(400, 10))).astype(dtype)
    sketch = psk.PSparsified(20, p=0.1).draw(400, random_state=0)
    result = psk.sketch_gram(X, sketch=sketch, kernel=kernel, gamma=0.1)
    expected_SKSt, expected_SK = dense_products(X, sketch, kernel, 0.1)
    assert_close(result.SK, expected_SK, dtype)
    assert_close(result.SKSt, expected_SKSt, dtype)


@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
@pytest.mark.parametrize("distance", [1e3, 1e5])
def test_far_clusters_cost_no_accuracy(kernel, distance, dtype, rng):
    """Centring cannot help here: tiles with large norms sum differences.

    In float32 the centred points are rounded, to half a unit in the last place
    of their distance from the center; no more than that may be lost.
    """
    X = rng.normal(size=(400, 4))
    X[::2] += distance
    X = X.astype(dtype)
    sketch = psk.PSparsified(20, p=0.1).draw(400, random_state=0)
    result = psk.sketch_gram(X, sketch=sketch, kernel=kernel, gamma=0.2)
    expected = dense_products(X, sketch, kernel, 0.2)[1]
    unit = np.finfo(dtype).eps * distance
    assert reference.relative_error(result.SK, expected) < max(unit, TOLERANCE[dtype])


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern52"])
@pytest.mark.parametrize("share", [0.4, 0.9, 1.1, 3, 20])
def test_near_pairs_with_norms_about_the_threshold(kernel, share, dtype, rng):
    """k(x, y) is large and so are the norms: where |a|² + |b|² - 2ab loses most."""
    objects = dict(
        rbf=psk.RBF(1), matern32=psk.Matern(1), matern52=psk.Matern(1, nu=2.5)
    )
    factor = objects[kernel].factor
    norm = np.sqrt(share * _engine.DIRECT_ABOVE[dtype] / 2) / factor
    X = rng.normal(size=(300, 6))
    X = (norm * X / np.linalg.norm(X, axis=1)[:, None]).astype(dtype)
    Y = (X + 0.3 * rng.normal(size=X.shape)).astype(dtype)
    K = psk.kernel_matmul(X, Y, np.eye(300, dtype=dtype), kernel=kernel, gamma=1.0)
    expected = reference.KERNELS[kernel](X.astype(float), Y.astype(float), 1.0)
    assert_close(K, expected, dtype)


@pytest.mark.parametrize(
    "kernel", ["rbf", "laplacian", "matern12", "matern32", "matern52"]
)
def test_an_absurd_value_spoils_only_its_own_entries(kernel, dtype):
    X = np.array([[0.0], [1.0], [1e20]], dtype)
    identity = np.eye(3, dtype=dtype)
    K = psk.kernel_matmul(X, X, identity, kernel=kernel, gamma=1.0)
    expected = reference.KERNELS[kernel](X[:2].astype(float), X[:2].astype(float), 1.0)
    np.testing.assert_allclose(K[:2, :2], expected, rtol=1e-6)
    np.testing.assert_array_equal(K[2], [0, 0, 1])
    np.testing.assert_array_equal(K[:, 2], [0, 0, 1])


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_cosine_of_tiny_and_huge_vectors(size, rng):
    X = rng.normal(size=(20, 3))
    K = psk.kernel_matmul(size * X, size * X, np.eye(20), kernel="cosine")
    np.testing.assert_allclose(K, reference.cosine(X, X, None), atol=1e-14)


def test_long_sums_in_float32_are_carried_in_double(rng):
    X = rng.normal(size=(5, 3)).astype(np.float32)
    Y = rng.normal(size=(60_000, 3)).astype(np.float32)
    B = np.ones(60_000, np.float32)
    result = psk.kernel_matmul(X, Y, B, gamma=0.1)
    K = reference.rbf(X.astype(float), Y.astype(float), 0.1)
    assert reference.relative_error(result, K.sum(axis=1)) < 2e-7
    sketch = psk.PSparsified(1, p=0.2, kind="gaussian").draw(60_000, random_state=0)
    SK = psk.sketch_gram(Y, sketch=sketch, gamma=0.1, parts="SK").SK[:, :50]
    expected = sketch @ reference.rbf(Y.astype(float), Y[:50].astype(float), 0.1)
    assert reference.relative_error(SK, expected) < 2e-6


def test_diagonal_is_exactly_one(dtype, rng):
    X = rng.normal(size=(50, 3)).astype(dtype)
    far = 1e3 * X  # norms that make the engine sum differences
    for kernel in ("rbf", "laplacian", "matern12"):
        K = psk.kernel_matmul(
            far, far, np.eye(50, dtype=dtype), kernel=kernel, gamma=1.0
        )
        np.testing.assert_array_equal(np.diagonal(K), 1)


def test_values_never_exceed_one(dtype, rng):
    X = rng.normal(size=(200, 8)).astype(dtype)
    K = psk.kernel_matmul(X, X, np.eye(200, dtype=dtype), gamma=1e-6)
    assert K.max() <= 1


@pytest.mark.parametrize("span", [1e-8, 1.0, 100.0, 1000.0])
def test_exponential_is_exact_to_two_units_in_the_last_place(span, dtype):
    x = -np.linspace(0, span, 6 * 32 * 500).astype(dtype)
    out = np.empty_like(x)
    _gram.exp2_buffer(x, out, 1)
    expected = np.exp2(x.astype(np.longdouble))
    normal = expected > 4 * np.finfo(dtype).tiny
    relative = np.abs(out / expected - 1)[normal]
    assert relative.max() < 2 * np.finfo(dtype).eps
    assert (out[expected < np.finfo(dtype).tiny / 4] == 0).all()
    assert out[0] == 1


@pytest.mark.parametrize("name", ["double", "float"])
def test_coefficients_of_the_exponential_are_those_that_were_fitted(name):
    header = (Path(__file__).parents[1] / "src" / "engine_types.h").read_text()
    part = header[header.index(f"#define REAL {name}\n") :]
    literals = part[: part.index("#define EXP2_SHIFT")]
    suffix = "f" if name == "float" else ""
    found = re.findall(rf"(0x1\.\w+p-\d+){suffix}\b", literals)
    coefficients = fit(N_COEFFICIENTS[name])
    assert found == [c.hex() for c in coefficients]
    [printed] = re.findall(rf"(\S+) \({name}\)", header)
    assert f"{largest_error(coefficients):.1e}" == printed.replace("e-9", "e-09")


def test_distant_points_have_kernel_zero(dtype):
    X = np.array([[0.0], [1e3], [1e12]], dtype)
    K = psk.kernel_matmul(X, X, np.eye(3, dtype=dtype), gamma=1.0)
    np.testing.assert_array_equal(K, np.eye(3))


# ---- inputs as people have them ----


@pytest.mark.parametrize(
    "form", ["fortran", "read-only", "strided", "memmap", "reversed", "list"]
)
def test_memory_layout_does_not_matter(form, dtype, rng, tmp_path):
    X = make_points(rng, 300, 5, dtype)
    sketch = SKETCHES["sparse"].draw(300, random_state=0)
    expected = psk.sketch_gram(X, sketch=sketch, gamma=GAMMA)
    before = X.copy()
    if form == "fortran":
        given = np.asfortranarray(X)
    elif form == "read-only":
        given = X.copy()
        given.flags.writeable = False
    elif form == "strided":
        given = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    elif form == "reversed":
        given = np.ascontiguousarray(X[::-1])[::-1]
    elif form == "memmap":
        np.save(tmp_path / "X.npy", X)
        given = np.load(tmp_path / "X.npy", mmap_mode="r")
    else:
        given = X.tolist()
    result = psk.sketch_gram(given, sketch=sketch, gamma=GAMMA)
    if form == "list" and dtype == "float32":
        assert result.SK.dtype == np.float64
        return
    np.testing.assert_array_equal(result.SK, expected.SK)
    np.testing.assert_array_equal(result.SKSt, expected.SKSt)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("other", ["int64", "bool", "uint8", "float16", "longdouble"])
def test_other_types_are_computed_in_float64(other, rng):
    X = (3 * rng.normal(size=(100, 4))).astype(other)
    sketch = SKETCHES["sparse"].draw(100, random_state=0)
    result = psk.sketch_gram(X, sketch=sketch, gamma=GAMMA)
    expected = psk.sketch_gram(X.astype(np.float64), sketch=sketch, gamma=GAMMA)
    np.testing.assert_array_equal(result.SK, expected.SK)


def test_both_byte_orders_of_float32_are_float32(rng):
    X = make_points(rng, 100, 4, ">f4")
    result = psk.sketch_gram(X, 5, 0.5, random_state=0)
    native = psk.sketch_gram(X.astype("=f4"), 5, 0.5, random_state=0)
    assert result.SK.dtype == np.float32
    np.testing.assert_array_equal(result.SK, native.SK)


def test_the_kernel_that_was_used_is_returned(rng):
    X = make_points(rng, 100, 4, "float64")
    result = psk.sketch_gram(X, 5, 0.5, random_state=0)
    assert isinstance(result.kernel, psk.RBF)
    assert result.kernel.gamma == pytest.approx(1 / X.var(axis=0).sum())
    SKSt, SK, sketch = result
    coef = sketch.scaled_weights().T @ np.ones(5)
    predicted = psk.kernel_matmul(X, X[sketch.indices], coef, kernel=result.kernel)
    np.testing.assert_allclose(predicted, SK.T @ np.ones(5), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("order", ["C", "F"])
def test_out_is_filled_and_returned(order, dtype, rng):
    X = make_points(rng, 300, 5, dtype)
    sketch = SKETCHES["sparse"].draw(300, random_state=0)
    out = np.full((13, 300), np.nan, dtype, order)
    result = psk.sketch_gram(X, sketch=sketch, gamma=GAMMA, out=out)
    assert result.SK is out
    expected = psk.sketch_gram(X, sketch=sketch, gamma=GAMMA).SK
    np.testing.assert_array_equal(out, expected)
    B = rng.normal(size=(300, 2)).astype(dtype)
    out = np.full((300, 2), np.nan, dtype, order)
    assert psk.kernel_matmul(X, X, B, gamma=GAMMA, out=out) is out
    np.testing.assert_array_equal(out, psk.kernel_matmul(X, X, B, gamma=GAMMA))


def test_out_can_be_a_slice_of_a_larger_array(rng):
    X = make_points(rng, 300, 5, "float64")
    large = np.zeros((20, 2, 300))
    psk.sketch_gram(X, 20, 0.1, gamma=GAMMA, random_state=0, out=large[:, 1])
    expected = psk.sketch_gram(X, 20, 0.1, gamma=GAMMA, random_state=0).SK
    np.testing.assert_array_equal(large[:, 1], expected)
    assert not large[:, 0].any()


def test_mixed_types_give_float64(rng):
    X = make_points(rng, 20, 2, "float32")
    assert psk.kernel_matmul(X, X, np.ones(20)).dtype == np.float64
    Y = X.astype(float)
    assert psk.kernel_matmul(X, Y, np.ones(20, "f"), gamma=1.0).dtype == np.float64


def test_y_none_means_x(rng):
    X = make_points(rng, 20, 2, "float64")
    B = rng.normal(size=20)
    np.testing.assert_array_equal(
        psk.kernel_matmul(X, None, B), psk.kernel_matmul(X, X, B)
    )


# ---- functions and precomputed matrices ----


@pytest.mark.parametrize("sketch", SKETCHES)
def test_callable_kernel(sketch, dtype, rng):
    X = make_points(rng, 1200, 4, dtype)  # three Python tiles
    sketch = SKETCHES[sketch].draw(1200, random_state=0)

    def kernel(A, B):
        assert A.dtype == dtype
        assert not A.flags.writeable and not B.flags.writeable
        return reference.rbf(A.astype(float), B.astype(float), GAMMA)

    result = psk.sketch_gram(X, sketch=sketch, kernel=kernel)
    alone = psk.sketch_gram(X, sketch=sketch, kernel=kernel, parts="SKSt").SKSt
    expected_SKSt, expected_SK = dense_products(X, sketch)
    assert_close(result.SK, expected_SK, dtype)
    assert_close(result.SKSt, expected_SKSt, dtype)
    assert_close(alone, expected_SKSt, dtype)


def test_callable_of_the_wrong_shape_is_an_error(rng):
    X = make_points(rng, 30, 2, "float64")
    with pytest.raises(ValueError, match="must return an array of shape"):
        psk.kernel_matmul(X, X, np.ones(30), kernel=lambda A, B: np.ones(3))


@pytest.mark.parametrize("order", ["C", "F"])
def test_precomputed_kernel(order, dtype, rng):
    X = rng.normal(size=(1200, 4))
    K = reference.rbf(X, X, GAMMA).astype(dtype, order=order)
    sketch = SKETCHES["sparse"].draw(1200, random_state=0)
    S = sketch.to_dense()
    SKSt, SK, _ = psk.sketch_gram(K, sketch=sketch, kernel="precomputed")
    alone = psk.sketch_gram(K, sketch=sketch, kernel="precomputed", parts="SKSt").SKSt
    assert_close(SK, S @ K.astype(float), dtype)
    assert_close(SKSt, S @ K.astype(float) @ S.T, dtype)
    assert_close(alone, S @ K.astype(float) @ S.T, dtype)
    B = rng.normal(size=(700, 3)).astype(dtype)
    result = psk.kernel_matmul(K[:, :700], None, B, kernel="precomputed")
    assert_close(result, K[:, :700].astype(float) @ B.astype(float), dtype)


def test_precomputed_reads_only_rows_of_landmarks(rng):
    K = np.full((600, 600), np.nan)
    idx = np.array([3, 50, 599])
    K[idx] = 1.0
    sketch = psk.SubSampling(indices=idx).draw(600)
    SK = psk.sketch_gram(K, sketch=sketch, kernel="precomputed", parts="SK").SK
    np.testing.assert_array_equal(SK, sketch.scale)
    with pytest.raises(ValueError, match="not finite"):
        psk.sketch_gram(K, 5, 0.5, kernel="precomputed", random_state=0)


# ---- gamma ----


def test_gamma_scale_is_that_of_scikit_learn_on_standardised_features(rng):
    X = rng.normal(size=(300, 4)) * [1, 2, 3, 4] + [0, 5, 2024, -1e6]
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    gamma = psk.sketch_gram(standard, 5, 0.1).kernel.gamma
    assert gamma == pytest.approx(1 / (4 * standard.var()))


def test_gamma_scale_does_not_depend_on_shifts(dtype, rng):
    X = (rng.normal(size=(3000, 4)) * [1, 2, 3, 4] + [0, 5, 2024, 0]).astype(dtype)
    sketch = SKETCHES["sparse"].draw(3000, random_state=0)
    default = psk.sketch_gram(X, sketch=sketch).SK
    gamma = 1 / X.astype(float).var(axis=0).sum()
    given = psk.sketch_gram(X, sketch=sketch, gamma=gamma).SK
    np.testing.assert_allclose(
        default, given, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-12
    )
    named = psk.sketch_gram(X, sketch=sketch, gamma="scale").SK
    np.testing.assert_array_equal(default, named)


def test_gamma_median(rng):
    X = rng.normal(size=(200, 3))
    sketch = SKETCHES["sparse"].draw(200, random_state=0)
    upper = np.triu_indices(200, 1)
    gamma = 0.5 / np.median(reference.squared_distances(X, X)[upper])
    np.testing.assert_allclose(
        psk.sketch_gram(X, sketch=sketch, gamma="median").SK,
        psk.sketch_gram(X, sketch=sketch, gamma=gamma).SK,
    )
    l1 = np.abs(X[:, None] - X[None]).sum(axis=2)
    np.testing.assert_allclose(
        psk.sketch_gram(X, sketch=sketch, kernel="laplacian", gamma="median").SK,
        psk.sketch_gram(
            X, sketch=sketch, kernel="laplacian", gamma=1 / np.median(l1[upper])
        ).SK,
    )


def test_constant_points_have_kernel_one():
    X = np.full((30, 2), 7.0)
    SK = psk.sketch_gram(X, sketch=psk.SubSampling(30).draw(30), parts="SK").SK
    np.testing.assert_array_equal(SK, 1)


def test_kernel_objects_and_names_agree(rng):
    X = np.abs(make_points(rng, 100, 3, "float64"))
    B = rng.normal(size=100)
    for name, kernel in [
        ("rbf", psk.RBF(0.2)),
        ("laplacian", psk.Laplacian(0.2)),
        ("matern12", psk.Matern(0.2, nu=0.5)),
        ("matern32", psk.Matern(0.2)),
        ("matern52", psk.Matern(0.2, nu=2.5)),
        ("polynomial", psk.Polynomial(0.2)),
        ("linear", psk.Linear()),
        ("cosine", psk.Cosine()),
        ("sobolev", psk.Sobolev()),
    ]:
        gamma = None if name in reference.WITHOUT_GAMMA else 0.2
        np.testing.assert_array_equal(
            psk.kernel_matmul(X, X, B, kernel=name, gamma=gamma),
            psk.kernel_matmul(X, X, B, kernel=kernel),
        )


@pytest.mark.parametrize("degree", [1, 2, 5, 8])
@pytest.mark.parametrize("coef0", [0.0, -0.5])
def test_polynomial_parameters(degree, coef0, rng):
    X = make_points(rng, 60, 3, "float64")
    B = rng.normal(size=60)
    kernel = psk.Polynomial(0.5, degree=degree, coef0=coef0)
    K = reference.polynomial(X, X, 0.5, degree, coef0)
    assert_close(psk.kernel_matmul(X, X, B, kernel=kernel), K @ B, "float64")


def test_kernels_are_those_of_scikit_learn(rng):
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    processes = pytest.importorskip("sklearn.gaussian_process.kernels")
    X = make_points(rng, 60, 3, "float64")
    X[7] = 0  # cosine of a null vector
    identity = np.eye(60)
    for name in ("rbf", "laplacian", "polynomial"):
        K = pairwise.pairwise_kernels(X, metric=name, gamma=GAMMA)
        ours = psk.kernel_matmul(X, X, identity, kernel=name, gamma=GAMMA)
        np.testing.assert_allclose(ours, K, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(
        psk.kernel_matmul(X, X, identity, kernel="cosine"),
        pairwise.cosine_similarity(X),
        atol=1e-15,
    )
    for nu in (0.5, 1.5, 2.5):
        K = processes.Matern(length_scale=1 / np.sqrt(2 * GAMMA), nu=nu)(X)
        ours = psk.kernel_matmul(X, X, identity, kernel=psk.Matern(GAMMA, nu=nu))
        np.testing.assert_allclose(ours, K, rtol=1e-12)
