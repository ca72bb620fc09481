"""Sparse points: the same results as dense ones, without making X dense."""

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from conftest import TOLERANCE
from test_memory import MB, peak_below

import pskernels as psk
from pskernels import _points, _tiles
from pskernels.estimators import SketchedKernelRegressor

GAMMA = 0.3
FEW, MANY = 7, 1500  # features: blocks are made dense, or stay sparse
DENSITY = {FEW: 0.4, MANY: 0.01}


def make_points(n, d, dtype="float64", seed=0):
    X = sp.random_array(
        (n, d), density=DENSITY[d], rng=np.random.default_rng(seed), format="csr"
    )
    X = sp.vstack([sp.csr_array((1, d)), X[1:]], format="csr")  # a null row: cosine
    return X.astype(dtype)


def gamma_of(kernel):
    return None if kernel in reference.WITHOUT_GAMMA else GAMMA


def dense_kernel(X, Y, kernel):
    X, Y = X.toarray().astype(float), Y.toarray().astype(float)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(reference.KERNELS[kernel](X, Y, GAMMA))


@pytest.mark.parametrize("d", [FEW, MANY])
def test_both_ways_are_taken(d):
    rows = _points.Rows(make_points(50, d))
    assert _tiles._by_sparse_products(psk.RBF(GAMMA), rows, rows) == (d == MANY)


@pytest.mark.parametrize("d", [FEW, MANY])
@pytest.mark.parametrize("kernel", reference.KERNELS)
def test_products_equal_those_of_dense_points(kernel, d, dtype, tolerance):
    X, Y = make_points(140, d, dtype), make_points(65, d, dtype, seed=1)
    sketch = psk.PSparsified(9, p=0.2).draw(140, random_state=0)
    options = dict(kernel=kernel, gamma=gamma_of(kernel))
    SKSt, SK, _ = psk.sketch_gram(X, sketch=sketch, **options)
    S, K = sketch.to_dense(), dense_kernel(X, X, kernel)
    assert SK.dtype == dtype
    assert reference.relative_error(SK, S @ K) <= tolerance
    assert reference.relative_error(SKSt, S @ K @ S.T) <= 10 * tolerance
    B = np.random.default_rng(2).normal(size=(65, 2)).astype(dtype)
    product = psk.kernel_matmul(X, Y, B, **options)
    assert reference.relative_error(product, dense_kernel(X, Y, kernel) @ B) <= (
        tolerance
    )


@pytest.mark.parametrize("gamma", [None, "median"])
@pytest.mark.parametrize("d", [FEW, MANY])
def test_feature_map(d, gamma, dtype):
    X, X_new = make_points(400, d, dtype), make_points(50, d, dtype, seed=1)
    sketch = psk.PSparsified(20, p=0.1).draw(400, random_state=0)
    feature_map = psk.FeatureMap(gamma=gamma, sketch=sketch)
    Z = feature_map.fit_transform(X)
    assert sp.issparse(feature_map.landmarks_)
    dense = psk.FeatureMap(gamma=gamma, sketch=sketch).fit(X.toarray())
    assert feature_map.kernel_.gamma == pytest.approx(dense.kernel_.gamma)
    np.testing.assert_allclose(
        Z @ Z.T, dense.transform(X.toarray()) @ dense.transform(X).T, atol=1e-4
    )
    coef = np.linspace(-1, 1, feature_map.rank_)
    expected = feature_map.transform(X_new) @ coef
    for points in (X_new, X_new.toarray()):
        predicted = feature_map.predict(points, coef)
        assert predicted.dtype == dtype
        np.testing.assert_allclose(predicted, expected, atol=TOLERANCE[dtype] * 1e3)


def test_random_fourier_features():
    X = make_points(200, FEW)
    rff = psk.RandomFourierFeatures(20, gamma=GAMMA, random_state=0)
    Z = rff.fit_transform(X)
    np.testing.assert_allclose(Z, rff.fit(X.toarray()).transform(X), atol=1e-12)


@pytest.mark.parametrize("form", ["csc", "coo", "csr_matrix", "int"])
def test_other_forms(form):
    X = (10 * make_points(100, FEW)).rint()
    expected = psk.sketch_gram(X.toarray(), 5, 0.2, random_state=0).SK
    other = {
        "csc": X.tocsc,
        "coo": X.tocoo,
        "csr_matrix": lambda: sp.csr_matrix(X),
        "int": lambda: X.astype(int),
    }[form]()
    result = psk.sketch_gram(other, 5, 0.2, random_state=0).SK
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_x_is_never_made_dense_as_a_whole():
    X = sp.random_array(
        (4000, 20_000), density=5e-4, rng=np.random.default_rng(0), format="csr"
    )  # 640 MB if it were dense
    feature_map = psk.FeatureMap(sketch=psk.PSparsified(20), random_state=0)
    with peak_below(32 * MB):
        Z = feature_map.fit_transform(X)
        feature_map.predict(X, np.ones(Z.shape[1]))
    with peak_below(128 * MB):  # coordinates are needed: dense in blocks, of 160 MB
        psk.FeatureMap(
            "laplacian",
            sketch=psk.SubSampling(5),
            random_state=0,
            memory_limit=72 * MB,  # blocks of AVX-512 are twice as large
        ).fit_transform(X[:1000])


def test_entries_at_one_place_add_up():
    X = make_points(80, FEW)
    twice = sp.csr_matrix(
        (np.repeat(X.data, 2), np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape
    )
    before = twice.data.copy()
    other = psk.FeatureMap(random_state=0).fit(twice)
    expected = psk.FeatureMap(random_state=0).fit(2 * X)
    assert other.kernel_.gamma == pytest.approx(expected.kernel_.gamma)
    np.testing.assert_array_equal(twice.data, before)


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32"])
def test_far_points_keep_their_digits(kernel):
    X = make_points(100, MANY).tolil()
    rng = np.random.default_rng(0)
    X[:, [3]] = 1e6 + rng.normal(size=(100, 1))
    X = sp.csr_array(X)
    options = dict(kernel=kernel, gamma=0.5, random_state=0, parts="SK")
    SK = psk.sketch_gram(X, 5, 0.2, **options).SK
    expected = psk.sketch_gram(X.toarray(), 5, 0.2, **options).SK
    assert reference.relative_error(SK, expected) < 1e-9


def test_what_is_wrong_is_named():
    X = make_points(60, FEW)
    with pytest.raises(TypeError, match=r"X is a sparse csr_array.*X.toarray\(\)"):
        psk.sketch_gram(X @ X.T, 5, 0.5, kernel="precomputed")
    with pytest.raises(TypeError, match=r"Z is a sparse csr_array.*Z.toarray\(\)"):
        psk.solve(X, np.ones(60), alpha=1.0)
    X.data[3] = np.nan
    row = np.searchsorted(X.indptr, 3, side="right") - 1
    column = X.indices[3]
    with pytest.raises(ValueError, match=f"NaN in row {row}, column {column}"):
        psk.FeatureMap().fit(X)
    with pytest.raises(ValueError, match="minimum of -1"):
        psk.sketch_gram(sp.csr_array(-np.eye(60, FEW)), 5, 0.5, kernel="sobolev")


def test_room_behind_the_entries_does_not_count(rng):
    X = sp.random_array((300, 20), density=0.2, random_state=rng, format="csr")
    roomy = X.copy()
    roomy.data = np.append(X.data, [np.nan, 1.0])
    roomy.indices = np.append(X.indices, [0, 10**6]).astype(X.indices.dtype)
    expected = psk.sketch_gram(X, 10, 0.1, random_state=0)
    result = psk.sketch_gram(roomy, 10, 0.1, random_state=0)
    np.testing.assert_array_equal(result.SK, expected.SK)
    assert len(roomy.data) == len(X.data) + 2


def spoil(X, form):
    """X in a sparse form, with an index, offset or coordinate that is far outside."""
    bad = getattr(sp, f"{form.split()[0]}_array")(X)
    if form.endswith("offset"):
        bad.indptr[1:-1] = 2**30
    elif form.endswith("negative"):
        bad.indices[5] = -1
    elif form == "coo":
        bad.coords[1][3] = 10**6
    elif form == "lil":
        bad.rows[4] = [10**6] * len(bad.rows[4])
    else:
        bad.indices[5] = 10**6
    return bad


FORMS = ["csr", "csr offset", "csr negative", "csc", "csc offset", "bsr", "coo", "lil"]
CALLS = {
    "sketch_gram": lambda X: psk.sketch_gram(X, 10, 0.1, gamma=1.0),
    "kernel_matmul": lambda X: psk.kernel_matmul(X, None, np.ones(300), gamma=1.0),
    "FeatureMap": lambda X: psk.FeatureMap(gamma=1.0).fit(X),
    "estimator": lambda X: SketchedKernelRegressor().fit(X, np.arange(300.0)),
    "Sketch": lambda X: psk.Sketch((300, 400), np.arange(20), X),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("call", CALLS)
def test_sparse_arrays_with_wrong_parts_are_refused(call, form, rng):
    X = sp.random_array((300, 20), density=0.2, random_state=rng).toarray()
    with pytest.raises(ValueError, match="of (X|weights)|exceeds matrix dimension"):
        CALLS[call](spoil(X, form))


USES = {
    "product": lambda fm, X: fm.sketch_ @ X,
    "transposed": lambda fm, X: fm.sketch_.T @ np.ones((fm.sketch_.shape[0], 2)),
    "dense": lambda fm, X: fm.sketch_.to_dense(),
    "rows": lambda fm, X: fm.sketch_.take_rows(0, 2),
    "callable": lambda fm, X: psk.sketch_gram(
        X, sketch=fm.sketch_, kernel=lambda a, b: a @ b.T
    ),
    "precomputed": lambda fm, X: psk.sketch_gram(
        X @ X.T, sketch=fm.sketch_, kernel="precomputed"
    ),
    "predict": lambda fm, X: fm.predict(X, np.ones(fm.rank_)),
    "transform": lambda fm, X: fm.transform(X),
}


@pytest.mark.parametrize("use", USES)
def test_weights_that_were_changed_are_refused_wherever_they_are_used(use, rng):
    X = rng.normal(size=(300, 4))
    fitted = psk.FeatureMap(gamma=1.0, random_state=0).fit(X)
    fitted.sketch_.weights.indices[0] = 10**8
    with pytest.raises(ValueError, match="indices of weights"):
        USES[use](fitted, X)


@pytest.mark.parametrize("d", [20, 5000])  # dense blocks, and scalar products
def test_landmarks_that_were_changed_are_refused(d, rng):
    X = sp.random_array((300, d), density=0.01, random_state=rng, format="csr")
    fitted = psk.FeatureMap(gamma=1.0, random_state=0).fit(X)
    fitted.landmarks_.indices[0] = 10**8
    with pytest.raises(ValueError, match="indices of landmarks"):
        fitted.transform(X)
