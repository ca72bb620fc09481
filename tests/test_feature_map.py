"""Feature maps against dense NumPy: their scalar products, rank, error and memory."""

import pickle
from copy import copy, deepcopy

import numpy as np
import pytest
import reference
import scipy.stats
from conftest import TOLERANCE
from test_memory import MB, peak_below

import pskernels as psk
from pskernels import _preparation, fourier
from pskernels import feature_map as module
from pskernels.feature_map import FeatureMap
from pskernels.fourier import RandomFourierFeatures

GAMMA = 0.3
S = 13

SKETCHES = {
    "p-SR": psk.PSparsified(S, p=0.05),
    "p-SG": psk.PSparsified(S, p=0.05, kind="gaussian"),
    "dense": psk.PSparsified(S, p=0.7),
    "gaussian": psk.Gaussian(S),
    "subsampling": psk.SubSampling(S),
    "accumulation": psk.Accumulation(S, m=3),
    "countsketch": psk.CountSketch(S),
    "ros": psk.ROS(S),
}


def make_points(rng, n, d, dtype="float64", kernel="rbf"):
    X = rng.normal(size=(n, d))
    return (np.abs(X) if kernel == "sobolev" else X).astype(dtype)


def dense_kernel(X, Y, kernel="rbf", gamma=GAMMA):
    return reference.KERNELS[kernel](X.astype(float), Y.astype(float), gamma)


def dense_gram(X_new, X, sketch, dtype, kernel="rbf"):
    """What z_S(X_new) z_S(X)ᵀ should be."""
    K = dense_kernel(X, X, kernel)
    K_new = K if X_new is X else dense_kernel(X_new, X, kernel)
    cut = sketch.shape[0] * np.finfo(dtype).eps
    return reference.sketched_kernel(K_new, K, sketch.to_dense(), cut)


def gram_of(Z_new, Z):
    return Z_new.astype(float) @ Z.astype(float).T


def assert_close(result, expected, dtype):
    assert reference.relative_error(result, expected) <= TOLERANCE[dtype]


# ---- z_S is the feature map of the sketched kernel ----


@pytest.mark.parametrize("sketch", SKETCHES)
@pytest.mark.parametrize("kernel", reference.KERNELS)
def test_scalar_products_are_the_sketched_kernel(kernel, sketch, dtype, rng):
    X = make_points(rng, 200, 7, dtype, kernel)
    X_new = make_points(rng, 60, 7, dtype, kernel)
    gamma = None if kernel in reference.WITHOUT_GAMMA else GAMMA
    fm = FeatureMap(kernel, gamma=gamma, sketch=SKETCHES[sketch], random_state=0)
    assert fm.fit(X) is fm
    Z, Z_new = fm.transform(X), fm.transform(X_new)
    assert Z.dtype == Z_new.dtype == dtype
    assert Z.shape == (200, fm.rank_) and Z_new.shape == (60, fm.rank_)
    both = np.concatenate([X, X_new])  # points of the fit and others
    expected = dense_gram(both, X, fm.sketch_, dtype, kernel)
    assert_close(gram_of(Z, Z), expected[:200], dtype)
    assert_close(gram_of(Z_new, Z), expected[200:], dtype)


@pytest.mark.parametrize("sketch", SKETCHES)
def test_callable_and_precomputed_kernels(sketch, dtype, rng):
    X = make_points(rng, 520, 4, dtype)  # two Python tiles
    X_new = make_points(rng, 90, 4, dtype)
    sketch = SKETCHES[sketch].draw(520, random_state=0)
    expected = dense_gram(X, X, sketch, dtype)
    expected_new = dense_gram(X_new, X, sketch, dtype)
    K, K_new = dense_kernel(X, X).astype(dtype), dense_kernel(X_new, X).astype(dtype)
    for kernel, train, new in (
        (dense_kernel, X, X_new),
        ("precomputed", K, K_new),
        ("precomputed", np.asfortranarray(K), np.asfortranarray(K_new)),
    ):
        fm = FeatureMap(kernel, sketch=sketch)
        Z = fm.fit_transform(train)
        Z_new = fm.transform(new)
        assert Z.dtype == dtype
        assert_close(gram_of(Z, Z), expected, dtype)
        assert_close(gram_of(Z_new, Z), expected_new, dtype)
        coef = rng.normal(size=fm.rank_)
        np.testing.assert_allclose(
            fm.predict(new, coef), Z_new @ coef, atol=10 * TOLERANCE[dtype]
        )


def test_squared_loss_gives_the_sketched_ridge_solution(rng):
    """Proposition 5: the linear machine on z_S is the sketched kernel machine."""
    n, alpha = 400, 1e-3
    X, X_new = make_points(rng, n, 3), make_points(rng, 100, 3)
    y = np.sin(X).sum(axis=1) + 0.1 * rng.normal(size=n)
    fm = FeatureMap("laplacian", gamma=GAMMA, sketch=psk.PSparsified(30, 0.1))
    Z = fm.fit_transform(X)
    # min over w of ‖Zw - y‖²/(2n) + alpha/2·‖w‖²
    w = np.linalg.solve(Z.T @ Z / n + alpha * np.eye(fm.rank_), Z.T @ y / n)
    # min over a of ‖K Sᵀa - y‖²/(2n) + alpha/2·aᵀ S K Sᵀ a
    K = dense_kernel(X, X, "laplacian")
    K_new = dense_kernel(X_new, X, "laplacian")
    sketch = fm.sketch_.to_dense()
    SK, SKSt = sketch @ K, sketch @ K @ sketch.T
    a = np.linalg.solve(SK @ SK.T / n + alpha * SKSt, SK @ y / n)
    np.testing.assert_allclose(w @ w, a @ SKSt @ a, rtol=1e-9)  # the same norm
    np.testing.assert_allclose(fm.predict(X, w), SK.T @ a, atol=1e-9)
    np.testing.assert_allclose(fm.predict(X_new, w), K_new @ sketch.T @ a, atol=1e-9)


def test_what_a_fit_leaves_behind(dtype, rng):
    X = make_points(rng, 200, 4, dtype)
    fm = FeatureMap(sketch=SKETCHES["p-SR"], random_state=0).fit(X)
    assert fm.kernel_ == psk.RBF(fm.kernel_.gamma)
    assert fm.kernel_.gamma == pytest.approx(1 / X.astype(float).var(axis=0).sum())
    indices = fm.sketch_.indices
    np.testing.assert_array_equal(indices, SKETCHES["p-SR"].draw(200, 0).indices)
    np.testing.assert_array_equal(fm.landmarks_, X[indices])
    assert fm.landmarks_.dtype == dtype
    assert not np.shares_memory(fm.landmarks_, X)
    assert fm.whitening_.shape == (S, fm.rank_)
    assert fm.whitening_.dtype == np.float64
    assert fm.n_features_in_ == 4
    # Wᵀ (S K Sᵀ) W = I, in float64 for float32 points as well
    sketch = fm.sketch_.to_dense()
    SKSt = sketch @ dense_kernel(X, X, gamma=fm.kernel_.gamma) @ sketch.T
    product = fm.whitening_.T @ SKSt @ fm.whitening_
    np.testing.assert_allclose(product, np.eye(fm.rank_), atol=1e-12)


def test_default_is_a_hundred_rows(rng):
    fm = FeatureMap(random_state=0).fit(make_points(rng, 500, 3))
    expected = psk.PSparsified(100).draw(500, random_state=0)
    np.testing.assert_array_equal(fm.sketch_.to_dense(), expected.to_dense())


# ---- rank ----


@pytest.mark.parametrize("sketch", SKETCHES)
def test_duplicate_points_lower_the_rank(sketch, dtype, rng):
    X = np.repeat(make_points(rng, 5, 3, dtype), 60, axis=0)
    fm = FeatureMap(gamma=GAMMA, sketch=SKETCHES[sketch], random_state=0)
    Z = fm.fit_transform(X)
    assert fm.rank_ == 5
    assert_close(gram_of(Z, Z), dense_kernel(X, X), dtype)  # S loses nothing


@pytest.mark.parametrize("sketch", SKETCHES)
def test_linear_kernel_has_the_rank_of_the_points(sketch, dtype, rng):
    X = make_points(rng, 500, 3, dtype)
    fm = FeatureMap("linear", sketch=SKETCHES[sketch], random_state=0)
    Z = fm.fit_transform(X)
    assert fm.rank_ == 3
    assert_close(gram_of(Z, Z), dense_kernel(X, X, "linear"), dtype)


def test_null_rows_of_the_sketch_are_cut(rng):
    X = make_points(rng, 50, 3)
    weights = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, -1.0]])
    sketch = psk.Sketch((3, 50), np.array([2, 7, 40]), weights, 1.0)
    fm = FeatureMap(gamma=GAMMA, sketch=sketch).fit(X)
    assert fm.rank_ == 2
    np.testing.assert_allclose(fm.whitening_[1], 0, atol=1e-12)


def fit_eigenvalues(eigenvalues, dtype="float64"):
    """A map whose S·K·Sᵀ is diagonal: S is the identity."""
    K = np.diag(eigenvalues).astype(dtype)
    sketch = psk.SubSampling(indices=np.arange(len(K)))
    return FeatureMap("precomputed", sketch=sketch).fit(K)


def test_eigenvalues_are_cut_at_the_precision_of_the_points(dtype):
    cut = 4 * 4 * np.finfo(dtype).eps * 7.0
    fm = fit_eigenvalues([1.01 * cut, 7.0, 0.99 * cut, 0.0], dtype)
    assert fm.rank_ == 2
    expected = np.zeros((4, 2))
    expected[1, 0] = 1 / np.sqrt(7)
    expected[0, 1] = 1 / np.sqrt(float(np.array(1.01 * cut, dtype)))
    np.testing.assert_allclose(fm.whitening_, expected, rtol=1e-12)


def test_a_negative_eigenvalue_shows_the_rounding_error():
    assert fit_eigenvalues([1.0, 2e-9, 5e-10, 0.0]).rank_ == 3
    assert fit_eigenvalues([1.0, 2e-9, 5e-10, -1e-9]).rank_ == 2


@pytest.mark.parametrize("K", [[[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [2.0, 1.0]]])
def test_a_kernel_that_is_indefinite_is_refused(K):
    sketch = psk.SubSampling(indices=np.arange(2))
    with pytest.raises(ValueError, match="eigenvalue -1"):
        FeatureMap("precomputed", sketch=sketch).fit(np.array(K))


def test_whitening_is_a_triangle_in_the_rows_of_its_pivots(rng):
    X = make_points(rng, 100, 1)
    fm = FeatureMap(gamma=GAMMA, sketch=psk.SubSampling(40), random_state=0).fit(X)
    W, r = fm.whitening_, fm.rank_
    assert 5 < r < 40
    used = np.flatnonzero(W.any(axis=1))
    assert len(used) == r
    triangle = W[used[np.argsort((W[used] != 0).argmax(axis=1))]]
    assert not np.tril(triangle, -1).any() and (np.diag(triangle) > 0).all()
    # pivots fall: what is left of a point is never more than before
    assert (np.diff(1 / np.diag(triangle)) <= 1e-12).all()


# ---- float32 ----


@pytest.mark.parametrize("s", [10, 50])
@pytest.mark.parametrize("sketch", [psk.PSparsified, psk.SubSampling, psk.Gaussian])
@pytest.mark.parametrize(
    "kernel", [psk.RBF(1e-3), psk.RBF(0.01), psk.RBF(0.3), psk.Matern(1e-3)]
)
def test_error_of_float32(kernel, sketch, s, rng):
    """Whitening divides by small pivots, but not by too small ones.

    The documented bound, against float64 on the same map, for spectra that reach
    the cut (small gamma) and one that does not.  Maps cut as for float64 break it.
    """
    X, X_new = make_points(rng, 2000, 3, "float32"), make_points(rng, 500, 3, "float32")
    fm = FeatureMap(kernel, sketch=sketch(s), random_state=0).fit(X)
    bound = 0.01
    Z, exact = fm.transform(X_new), fm.transform(X_new.astype(float))
    assert Z.dtype == np.float32 and exact.dtype == np.float64
    assert np.linalg.norm(Z - exact, axis=1).max() < bound
    coef = rng.normal(size=(fm.rank_, 2))
    coef[:, 1] = np.eye(fm.rank_)[-1]  # the smallest eigenvalue alone
    coef /= np.linalg.norm(coef, axis=0)
    predicted = fm.predict(X_new, coef)
    assert predicted.dtype == np.float32
    assert np.abs(predicted - exact @ coef).max() < bound


@pytest.mark.parametrize("s", [100, 1000])
def test_float32_loses_no_feature_that_matters(s, rng):
    """On protein_casp, 1,000 rows left 48 features, and R² fell from 0.497 to 0.332."""
    X = rng.normal(size=(3000, 4)).astype("float32")
    y = np.sin(2 * X[:, 0]) * X[:, 1] + X[:, 2]
    errors = {}
    for dtype in ("float32", "float64"):
        fm = FeatureMap(gamma=0.25, sketch=psk.SubSampling(s), random_state=0)
        Z = fm.fit_transform(X[:2500].astype(dtype))
        model = psk.solve(Z, y[:2500], alpha=1e-6)
        predicted = fm.predict(X[2500:].astype(dtype), model.coef, model.intercept)
        errors[dtype] = np.mean((predicted - y[2500:]) ** 2)
    assert errors["float32"] < 1.1 * errors["float64"]


def test_float32_is_as_good_as_its_type_where_nothing_is_small(rng):
    X = make_points(rng, 500, 10, "float32")
    fm = FeatureMap(gamma=1.0, sketch=psk.SubSampling(20), random_state=0).fit(X)
    Z = fm.transform(X)
    assert reference.relative_error(Z, fm.transform(X.astype(float))) < 5e-7


@pytest.mark.parametrize("fitted", ["float32", "float64", "int64"])
@pytest.mark.parametrize("given", ["float32", ">f4", "float64", "int64"])
def test_types_of_fit_and_transform(fitted, given, rng):
    X = (10 * rng.normal(size=(200, 3))).astype(fitted)
    X_new = (10 * rng.normal(size=(50, 3))).astype(given)
    both = fitted == "float32" and given in ("float32", ">f4")
    for map_ in (
        FeatureMap(gamma=1e-3, sketch=SKETCHES["p-SR"], random_state=0),
        RandomFourierFeatures(10, gamma=1e-3, random_state=0),
    ):
        map_.fit(X)
        expected = map_.transform(X_new.astype(float))
        assert expected.dtype == np.float64
        for result in (
            map_.transform(X_new),
            map_.predict(X_new, np.eye(map_.rank_)),
        ):
            assert result.dtype == (np.float32 if both else np.float64)
            np.testing.assert_allclose(result, expected, atol=1e-4 if both else 1e-9)


# ---- prediction ----


@pytest.mark.parametrize("n_columns", [None, 1, 4])
@pytest.mark.parametrize("sketch", ["p-SR", "gaussian"])
def test_predict_is_the_product_with_features(sketch, n_columns, dtype, rng):
    X, X_new = make_points(rng, 300, 5, dtype), make_points(rng, 90, 5, dtype)
    maps = (
        FeatureMap(gamma=GAMMA, sketch=SKETCHES[sketch], random_state=0).fit(X),
        RandomFourierFeatures(20, gamma=GAMMA, random_state=0).fit(X),
    )
    for map_ in maps:
        shape = () if n_columns is None else (n_columns,)
        coef = rng.normal(size=(map_.rank_, *shape))
        for intercept in (0.0, 2.5, rng.normal(size=shape)):
            result = map_.predict(X_new, coef, intercept)
            assert result.dtype == dtype and result.shape == (90, *shape)
            expected = map_.transform(X_new).astype(float) @ coef + intercept
            assert_close(result, expected, dtype)
        np.testing.assert_array_equal(
            map_.predict(X_new, coef), map_.predict(X_new, coef, 0.0)
        )


@pytest.mark.parametrize("sketch", SKETCHES)
def test_fold_gives_one_coefficient_for_each_landmark(sketch, rng):
    X, X_new = make_points(rng, 300, 5), make_points(rng, 90, 5)
    fm = FeatureMap(gamma=GAMMA, sketch=SKETCHES[sketch], random_state=0).fit(X)
    coef = rng.normal(size=(fm.rank_, 2))
    folded = fm.fold(coef)
    assert folded.shape == (len(fm.sketch_.indices), 2)
    expected = (fm.sketch_.to_dense().T @ fm.whitening_ @ coef)[fm.sketch_.indices]
    np.testing.assert_allclose(folded, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(fm.fold(coef[:, 0]), expected[:, 0], atol=1e-12)
    by_landmarks = psk.kernel_matmul(X_new, fm.landmarks_, folded, kernel=fm.kernel_)
    np.testing.assert_allclose(fm.predict(X_new, coef), by_landmarks, atol=1e-12)
    np.testing.assert_array_equal(
        fm.predict_folded(X_new, folded, [1, 2]), fm.predict(X_new, coef, [1, 2])
    )
    with pytest.raises(ValueError, match=r"dual_coef must have shape"):
        fm.predict_folded(X_new, folded[1:])
    folded[0] = np.nan
    with pytest.raises(ValueError, match="dual_coef"):
        fm.predict_folded(X_new, folded)


# ---- blocks, threads, memory ----


@pytest.mark.parametrize("n", [1, 255, 256, 257, 511, 512, 513])
@pytest.mark.parametrize("block", [7, 256, 300])
def test_number_of_points_at_block_edges(block, n, rng, monkeypatch):
    X, X_new = make_points(rng, 100, 3), make_points(rng, n, 3)
    fm = FeatureMap(gamma=GAMMA, sketch=psk.SubSampling(4), random_state=0).fit(X)
    rff = RandomFourierFeatures(8, gamma=GAMMA, random_state=0).fit(X)
    expected, waves = fm.transform(X_new), rff.transform(X_new)
    values = rff.predict(X_new, np.arange(8.0))
    monkeypatch.setattr(module, "BLOCK_POINTS", block)
    monkeypatch.setattr(fourier, "FOURIER_BYTES", block * 8 * 13)
    np.testing.assert_allclose(fm.transform(X_new), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rff.transform(X_new), waves, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rff.predict(X_new, np.arange(8.0)), values, atol=1e-13)


def test_points_whose_work_is_larger_than_a_block(rng, monkeypatch):
    X = make_points(rng, 5, 3)
    rff = RandomFourierFeatures(8, gamma=GAMMA, random_state=0).fit(X)
    expected = rff.transform(X)
    monkeypatch.setattr(fourier, "FOURIER_BYTES", 1)
    np.testing.assert_allclose(rff.transform(X), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("sketch", ["p-SG", "gaussian"])
@pytest.mark.parametrize("memory_limit", [None, 400_000])
def test_results_do_not_depend_on_threads(sketch, memory_limit, dtype, rng):
    X = make_points(rng, 1000, 6, dtype)
    results = []
    for n_threads in (1, 2, 3, 4):
        options = dict(random_state=0, n_threads=n_threads, memory_limit=memory_limit)
        fm = FeatureMap(sketch=SKETCHES[sketch], **options)
        rff = RandomFourierFeatures(600, **options)
        Z, waves = fm.fit_transform(X), rff.fit_transform(X)
        results.append(
            (
                fm.whitening_,
                Z,
                fm.predict(X, np.ones(fm.rank_)),
                waves,
                rff.predict(X, np.ones((600, 2))),
            )
        )
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("sketch", ["p-SR", "gaussian"])
def test_fit_transform_is_fit_and_transform(sketch, dtype, rng):
    X = make_points(rng, 700, 4, dtype)
    for map_ in (
        FeatureMap(sketch=SKETCHES[sketch], random_state=0),
        RandomFourierFeatures(20, random_state=0),
    ):
        together = map_.fit_transform(X)
        np.testing.assert_array_equal(together, map_.fit(X).transform(X))
        assert together.flags.c_contiguous


@pytest.mark.parametrize("sketch", ["p-SR", "gaussian"])
def test_out_in_any_memory_order(sketch, dtype, rng):
    X = make_points(rng, 300, 3, dtype)
    fm = FeatureMap(gamma=GAMMA, sketch=SKETCHES[sketch], random_state=0).fit(X)
    Z, r = fm.transform(X), fm.rank_
    for out in (
        np.empty((300, r), dtype)[::-1],
        np.empty((300, r), dtype)[:, ::-1],
        np.empty((r, 300), dtype).T,
        np.empty((600, 2 * r), dtype)[::2, ::2],
        np.empty((300, r + 5), dtype)[:, 2 : r + 2],
    ):
        assert fm.transform(X, out=out) is out
        tolerance = 1e-12 if dtype == "float64" else 1e-2
        np.testing.assert_allclose(out, Z, atol=tolerance)


def test_x_is_checked_once_by_fit_transform(rng, monkeypatch):
    passes = []
    column_moments = _preparation.column_moments

    def counted(*arguments):
        passes.append(1)
        return column_moments(*arguments)

    monkeypatch.setattr(_preparation, "column_moments", counted)
    FeatureMap(gamma=GAMMA, random_state=0).fit_transform(make_points(rng, 100, 3))
    assert len(passes) == 1


@pytest.mark.parametrize("limit", [2 * MB, 8 * MB])
@pytest.mark.parametrize("form", ["C", "F", "int"])
def test_memory_of_transform_and_predict(form, limit, rng):
    X = np.round(10 * rng.normal(size=(20_000, 20)))
    X = X.astype(int) if form == "int" else X.astype(float, order=form)
    fm = FeatureMap(
        gamma=1e-3, sketch=psk.PSparsified(100), random_state=0, memory_limit=limit
    ).fit(X[:5000])
    assert len(fm.landmarks_) > 1500  # K(X, landmarks) would take 240 MB, S·K 16
    out = np.empty((20_000, fm.rank_))
    small_change = 100_000  # Python objects, chunk means
    with peak_below(limit + small_change):
        fm.transform(X, out=out)
    result = 8 * 20_000
    folded = 2 * 8 * len(fm.landmarks_) + 100 * 8 * 40  # and scaled weights
    with peak_below(limit + result + folded + small_change):
        fm.predict(X, np.ones(fm.rank_))


def test_memory_of_fit_with_float32_points(rng):
    """Only landmarks are cast to float64, never all of X."""
    X = make_points(rng, 100_000, 20, "float32")  # 16 MB in float64
    fm = FeatureMap(gamma=0.1, sketch=psk.SubSampling(50), random_state=0)
    with peak_below(2 * MB):
        fm.fit(X)


@pytest.mark.parametrize("limit", [MB // 2, 4 * MB])
def test_memory_of_fourier_features(limit, rng):
    X = make_points(rng, 20_000, 20)
    rff = RandomFourierFeatures(1000, random_state=0, memory_limit=limit).fit(X[:100])
    out = np.empty((5000, 1000))
    small_change = 100_000  # Python objects, chunk means
    with peak_below(limit + small_change):
        rff.transform(X[:5000], out=out)
    with peak_below(limit + 8 * 20_000 + small_change):  # Z would take 160 MB
        rff.predict(X, np.ones(1000))


def test_a_memory_limit_that_is_too_small_is_named(rng):
    X = make_points(rng, 100, 3)
    fm = FeatureMap(gamma=GAMMA, sketch=SKETCHES["p-SR"], random_state=0).fit(X)
    fm.memory_limit = 100
    with pytest.raises(ValueError, match="memory_limit=100 bytes is too small: the"):
        fm.transform(X)
    fm.memory_limit = 2000
    message = "half of memory_limit is for tiles of K: .*=1000.*, twice that in all"
    with pytest.raises(ValueError, match=message) as error:
        fm.transform(X)
    named = int(str(error.value).split("at least ")[1].split()[0])
    fm.memory_limit = 2 * named
    Z = fm.transform(X)
    assert_close(gram_of(Z, Z), dense_gram(X, X, fm.sketch_, "float64"), "float64")
    rff = RandomFourierFeatures(10, memory_limit=10)
    with pytest.raises(ValueError, match="memory_limit=10 bytes is too small"):
        rff.fit_transform(X)


# ---- inputs and outputs as people have them ----


@pytest.mark.parametrize("order", ["C", "F"])
def test_out_is_filled_and_returned(order, dtype, rng):
    X = make_points(rng, 300, 5, dtype)
    for map_ in (
        FeatureMap(gamma=GAMMA, sketch=SKETCHES["p-SR"], random_state=0),
        RandomFourierFeatures(12, gamma=GAMMA, random_state=0),
    ):
        expected = map_.fit_transform(X)
        out = np.full(expected.shape, np.nan, dtype, order)
        assert map_.transform(X, out=out) is out
        assert_close(out, expected, dtype)
        large = np.zeros((300, 2, map_.rank_), dtype)
        map_.transform(X, out=large[:, 1])
        assert_close(large[:, 1], expected, dtype)
        assert not large[:, 0].any()


@pytest.mark.parametrize("form", ["fortran", "read-only", "strided", "memmap", "list"])
def test_memory_layout_does_not_matter(form, rng, tmp_path):
    X = make_points(rng, 300, 5)
    before = X.copy()
    if form == "fortran":
        given = np.asfortranarray(X)
    elif form == "read-only":
        given = X.copy()
        given.flags.writeable = False
    elif form == "strided":
        given = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    elif form == "memmap":
        np.save(tmp_path / "X.npy", X)
        given = np.load(tmp_path / "X.npy", mmap_mode="r")
    else:
        given = X.tolist()
    for make in (
        lambda: FeatureMap(sketch=SKETCHES["p-SR"], random_state=0),
        lambda: RandomFourierFeatures(12, random_state=0),
    ):
        expected = make().fit(X)
        map_ = make().fit(given)
        Z = expected.transform(X)
        coef = np.ones(expected.rank_)
        np.testing.assert_array_equal(map_.transform(given), Z)
        np.testing.assert_array_equal(
            map_.predict(given, coef), expected.predict(X, coef)
        )
    np.testing.assert_array_equal(X, before)


def test_precomputed_reads_only_what_it_needs(rng):
    X = make_points(rng, 600, 3)
    idx = np.array([3, 50, 599])
    K = np.full((600, 600), np.nan)
    K_new = np.full((90, 600), np.nan)
    K[np.ix_(idx, idx)] = dense_kernel(X[idx], X[idx])
    K_new[:, idx] = dense_kernel(X[:90], X[idx])
    sketch = psk.SubSampling(indices=idx)
    fm = FeatureMap("precomputed", sketch=sketch).fit(K)
    expected = FeatureMap(gamma=GAMMA, sketch=sketch).fit(X)
    Z = fm.transform(K_new)
    np.testing.assert_allclose(Z, expected.transform(X[:90]), atol=1e-12)
    coef = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(fm.predict(K_new, coef), Z @ coef, atol=1e-12)
    assert fm.landmarks_ is None
    # all at once it reads rows, of which a memory map holds each in one piece
    K[idx] = dense_kernel(X[idx], X)
    Z = FeatureMap("precomputed", sketch=sketch).fit_transform(K)
    np.testing.assert_allclose(Z, expected.transform(X), atol=1e-12)
    K_new[5, 50] = np.nan
    with pytest.raises(ValueError, match="values that are not finite"):
        fm.transform(K_new)


def test_the_triangle_of_a_map_is_found_once(rng, monkeypatch):
    calls, find = [], module._triangle
    monkeypatch.setattr(
        module, "_triangle", lambda *args: calls.append(1) or find(*args)
    )
    X = rng.normal(size=(300, 2))
    map_ = FeatureMap(gamma=0.5, sketch=psk.SubSampling(40), random_state=0).fit(X)
    Z = map_.transform(X)
    for _ in range(3):
        np.testing.assert_allclose(map_.transform(X[:1]), Z[:1], atol=1e-9)
    assert len(calls) == 2  # many points do not keep it: it takes memory
    map_.transform(X)
    assert len(calls) == 2
    for other in (copy(map_), deepcopy(map_), pickle.loads(pickle.dumps(map_))):
        np.testing.assert_array_equal(other.transform(X), Z)
    # what is kept cannot be changed unseen, but replaced, or learnt anew
    with pytest.raises(ValueError, match="read-only"):
        map_.whitening_[0] = 1.0
    map_.whitening_ = -map_.whitening_
    np.testing.assert_allclose(map_.transform(X[:1]), -Z[:1], atol=1e-9)
    map_.whitening_ = rng.normal(size=map_.whitening_.shape)
    with pytest.raises(ValueError, match="must be a triangle"):
        map_.transform(X[:1])
    again = map_.fit(X[::-1]).transform(X[:1])
    np.testing.assert_array_equal(
        again, pickle.loads(pickle.dumps(map_)).transform(X[:1])
    )
    Z = map_.fit(X.astype(np.float32)).transform(X)
    for dtype in ("float32", "float64", "float32"):
        one = map_.transform(X[:1].astype(dtype))
        assert one.dtype == dtype
        assert reference.relative_error(one, Z[:1]) < 1e-3


def test_maps_can_be_pickled(dtype, rng):
    X = make_points(rng, 200, 4, dtype)
    for map_ in (
        FeatureMap("matern32", sketch=SKETCHES["p-SG"], random_state=0),
        FeatureMap(sketch=SKETCHES["gaussian"].draw(200, random_state=0)),
        RandomFourierFeatures(12, random_state=0),
    ):
        assert repr(pickle.loads(pickle.dumps(map_))) == repr(map_)
        map_.fit(X)
        again = pickle.loads(pickle.dumps(map_))
        np.testing.assert_array_equal(again.transform(X), map_.transform(X))
        coef = np.ones(map_.rank_)
        np.testing.assert_array_equal(again.predict(X, coef), map_.predict(X, coef))


def test_repr_shows_what_was_given():
    assert repr(FeatureMap()) == "FeatureMap()"
    fm = FeatureMap("laplacian", gamma=0.5, sketch=psk.Gaussian(7), verbose=1)
    expected = "FeatureMap(kernel='laplacian', gamma=0.5, sketch=Gaussian(s=7), "
    assert repr(fm) == expected + "verbose=1)"
    rff = RandomFourierFeatures(50, random_state=3)
    assert repr(rff) == "RandomFourierFeatures(n_components=50, random_state=3)"


def test_progress_is_shown(rng, capsys):
    X = make_points(rng, 300, 3)
    FeatureMap(gamma=GAMMA, random_state=0, verbose=1).fit_transform(X)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "S·K·Sᵀ" in printed.err and "z_S" in printed.err
    FeatureMap(gamma=GAMMA, random_state=0).fit_transform(X)
    assert capsys.readouterr().err == ""


# ---- bad input ----

X = np.random.default_rng(0).normal(size=(60, 3))


def with_value(value, row=17, column=2):
    changed = X.copy()
    changed[row, column] = value
    return changed


def sigmoid(A, B):
    return np.tanh(A @ B.T - 1)


@pytest.mark.parametrize(
    "arguments, points, message",
    [
        ({}, with_value(np.nan), "X contains NaN in row 17, column 2"),
        ({}, X[:, 0], r"X must be 2-d.*got shape \(60,\)"),
        (dict(kernel="gauss"), X, "kernel must be one of 'rbf'"),
        (dict(kernel="sobolev"), X, "needs values that are not negative"),
        (dict(kernel="precomputed"), X, r"square Gram matrix.*got \(60, 3\)"),
        (dict(gamma=-1.0), X, "gamma must be positive and finite, got -1.0"),
        (dict(sketch=100), X, "sketch must be a distribution.*got int"),
        (dict(sketch=psk.Gaussian(3).draw(61)), X, "drawn for 61 points, but X has 60"),
        (
            dict(sketch=psk.Gaussian(3).draw(60), random_state=0),
            X,
            "random_state=0 was given beside a sketch that is drawn",
        ),
        (dict(n_threads=0), X, "n_threads must be at least 1, got 0"),
        (dict(memory_limit=0), X, "memory_limit .* must be at least 1, got 0"),
        (dict(kernel="linear"), 0 * X, "a positive eigenvalue, but the largest .* 0"),
        (
            dict(kernel=sigmoid),
            X,
            r"kernel must be positive semidefinite, but S·K·Sᵀ has the eigenvalue -\d",
        ),
        (dict(kernel=psk.Polynomial(1.0)), 1e100 * X, "S·K·Sᵀ overflows float64"),
    ],
)
def test_fit_names_what_is_wrong(arguments, points, message):
    fm = FeatureMap(**arguments)  # stores, and does not complain
    for fit in (fm.fit, fm.fit_transform):
        with pytest.raises((ValueError, TypeError), match=message):
            fit(points)
    with pytest.raises(ValueError, match="this FeatureMap is not fitted; call fit"):
        fm.transform(X)


MAPS = {
    "FeatureMap": FeatureMap(gamma=1.0, sketch=psk.SubSampling(8)).fit(X),
    "RandomFourierFeatures": RandomFourierFeatures(8, gamma=1.0).fit(X),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(X=X[:, :2]), "X has 2 features, but this {} was fitted with 3"),
        (dict(X=with_value(np.inf)), "X contains inf in row 17, column 2"),
        (dict(X=with_value(np.nan), coef=np.ones(8)), "X contains NaN in row 17"),
        (dict(X=X[:0]), "at least one point"),
        (dict(out=np.empty((60, 7))), r"out must have shape \(60, 8\)"),
        (dict(out=np.empty((60, 8), "f")), "dtype float64, got .* dtype float32"),
        (dict(coef=np.ones(7)), r"coef must have shape \(8,\) or \(8, c\), got \(7,\)"),
        (dict(coef=1.0), r"coef must have shape .* got \(\)"),
        (dict(coef=np.ones((8, 0))), r"coef must have shape .* got \(8, 0\)"),
        (dict(coef=np.full(8, np.nan)), "coef contains NaN in row 0"),
        (dict(coef=np.ones(8, complex)), "coef must hold real numbers"),
        (dict(coef=np.ones(8), intercept=[1.0]), r"a number, got shape \(1,\)"),
        (
            dict(coef=np.ones((8, 2)), intercept=np.ones(3)),
            r"a number or of shape \(2,\), got shape \(3,\)",
        ),
        (dict(coef=np.ones(8), intercept=np.nan), "intercept must be finite, got nan"),
    ],
)
def test_transform_and_predict_name_what_is_wrong(name, arguments, message):
    arguments = {"X": X, **arguments}
    method = MAPS[name].predict if "coef" in arguments else MAPS[name].transform
    with pytest.raises((ValueError, TypeError), match=message.format(name)):
        method(**arguments)


def test_a_map_that_is_not_fitted_says_so():
    fm, rff = FeatureMap(), RandomFourierFeatures()
    calls = [fm.transform, rff.transform, lambda X: fm.fold(np.ones(8))]
    calls += [lambda X, map_=map_: map_.predict(X, np.ones(8)) for map_ in (fm, rff)]
    for call in calls:
        with pytest.raises(ValueError, match=r"this \w+ is not fitted; call fit first"):
            call(X)


def test_a_fit_that_fails_leaves_the_map_as_it_was():
    fm = FeatureMap(gamma=1.0, sketch=psk.SubSampling(8), random_state=0).fit(X)
    before = fm.transform(X)
    fm.kernel, fm.gamma = sigmoid, None
    with pytest.raises(ValueError, match="positive semidefinite"):
        fm.fit(X[:, :2])
    np.testing.assert_array_equal(fm.transform(X), before)


def test_overflow_warns_with_a_figure():
    small = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    fm = FeatureMap(psk.Polynomial(1.0), sketch=psk.SubSampling(3)).fit(small)
    with pytest.warns(RuntimeWarning, match="15 of 15 values of z_S overflowed"):
        fm.transform(np.full((5, 2), 1e15, np.float32))
    with pytest.warns(RuntimeWarning, match="5 of 5 values of predictions overflowed"):
        fm.predict(np.full((5, 2), 1e15, np.float32), np.ones(3))


# ---- random Fourier features ----

FOURIER_KERNELS = {
    "rbf": psk.RBF(0.4),
    "laplacian": psk.Laplacian(0.4),
    "matern12": psk.Matern(0.4, nu=0.5),
    "matern32": psk.Matern(0.4, nu=1.5),
    "matern52": psk.Matern(0.4, nu=2.5),
}


@pytest.mark.parametrize("kernel", FOURIER_KERNELS)
def test_fourier_features_are_cosines_and_sines(kernel, dtype, rng):
    # far from 0, where an angle of float32 would have no digit left
    X = (1000 + rng.normal(size=(500, 3))).astype(dtype)
    rff = RandomFourierFeatures(14, kernel, gamma=0.4, random_state=0)
    Z = rff.fit_transform(X)
    assert rff.frequencies_.shape == (7, 3) and rff.rank_ == 14
    assert Z.shape == (500, 14) and Z.dtype == dtype
    angles = X.astype(float) @ rff.frequencies_.T
    expected = np.sqrt(2 / 14) * np.hstack([np.cos(angles), np.sin(angles)])
    error = 1e-10 if dtype == "float64" else 1e-7  # an angle of 1e4 rounds to 1e-12
    np.testing.assert_allclose(Z, expected, atol=error)


@pytest.mark.parametrize("kernel", FOURIER_KERNELS)
def test_fourier_features_approximate_the_kernel(kernel, rng):
    """k is the characteristic function of the law of the frequencies.

    A scalar product is a mean of N = 100,000 independent terms in [-1, 1]: by
    Hoeffding it errs by more than t with probability 2·exp(-N·t²/2) at most, and
    t = 0.024 makes that 1e-9 for all of the 190 pairs together.
    """
    X = make_points(rng, 20, 4)
    X[:10] *= 0.1  # near points and far ones
    Z = RandomFourierFeatures(200_000, kernel, gamma=0.4, random_state=1)
    Z = Z.fit_transform(X)
    assert np.abs(Z @ Z.T - dense_kernel(X, X, kernel, 0.4)).max() < 0.024
    np.testing.assert_allclose((Z**2).sum(axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("kernel", FOURIER_KERNELS)
def test_law_of_the_frequencies(kernel, rng):
    """Kolmogorov-Smirnov, at a level of 1e-6: so often would a right law fail.

    A multivariate t law is not a product of t laws; what tells them apart is that
    |ω|²/d over its scale has the F law of d and 2·nu degrees of freedom.
    """
    d = 4
    rff = RandomFourierFeatures(40_000, FOURIER_KERNELS[kernel], random_state=2)
    omega = rff.fit(make_points(rng, 10, d)).frequencies_
    squared = (omega**2).sum(axis=1) / (2 * 0.4)
    if kernel == "rbf":
        marginal = scipy.stats.norm(scale=np.sqrt(2 * 0.4))
        assert scipy.stats.kstest(squared, scipy.stats.chi2(d).cdf).pvalue > 1e-6
    elif kernel == "laplacian":
        marginal = scipy.stats.cauchy(scale=0.4)
        # coordinates are independent: their signs and sizes as well
        large = np.abs(omega[:, :2]) > 0.4  # the median
        joint = np.count_nonzero(large.all(axis=1))
        assert scipy.stats.binomtest(joint, len(omega), 0.25).pvalue > 1e-6
    else:
        freedom = 2 * FOURIER_KERNELS[kernel].nu
        marginal = scipy.stats.t(freedom, scale=np.sqrt(2 * 0.4))
        law = scipy.stats.f(d, freedom)
        assert scipy.stats.kstest(squared / d, law.cdf).pvalue > 1e-6
    for column in omega.T:
        assert scipy.stats.kstest(column, marginal.cdf).pvalue > 1e-6


def test_same_seed_same_features():
    for make in (
        lambda seed: FeatureMap(sketch=psk.PSparsified(8), random_state=seed),
        lambda seed: RandomFourierFeatures(8, random_state=seed),
    ):
        Z = make(0).fit_transform(X)
        np.testing.assert_array_equal(make(0).fit_transform(X), Z)
        assert not np.array_equal(make(1).fit_transform(X), Z)
        assert not np.array_equal(
            make(None).fit_transform(X), make(None).fit_transform(X)
        )
        for kind in (np.random.default_rng, np.random.RandomState):
            seed = kind(5)
            first, second = make(seed).fit_transform(X), make(seed).fit_transform(X)
            assert not np.array_equal(first, second)  # the generator has moved on
            np.testing.assert_array_equal(make(kind(5)).fit_transform(X), first)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(n_components=7), "n_components must be even.*got 7"),
        (dict(n_components=0), "n_components must be at least 2, got 0"),
        (dict(n_components=2.0), "n_components must be an integer, got 2.0"),
        (dict(kernel="linear"), r"must be rbf, laplacian or matern.*Linear\(\)"),
        (dict(kernel=np.dot), "must be rbf, laplacian or matern"),
        (dict(random_state="a"), "random_state must be None, an integer"),
        (dict(gamma=0), "gamma must be positive"),
        (dict(n_threads=0), "n_threads must be at least 1"),
    ],
)
def test_fourier_features_name_what_is_wrong(arguments, message):
    rff = RandomFourierFeatures(**arguments)
    with pytest.raises((ValueError, TypeError), match=message):
        rff.fit(X)
    with pytest.raises(ValueError, match="X contains NaN in row 17, column 2"):
        RandomFourierFeatures().fit(with_value(np.nan))
