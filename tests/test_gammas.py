"""Several gammas from distances that are computed once."""

import numpy as np
import pytest
import reference
from conftest import TOLERANCE
from test_memory import MB, peak_below

import pskernels as psk
from pskernels import _points, _tiles
from pskernels.feature_map import (
    fit_and_transform,
    fit_transform_gammas,
    share_distances,
)

GAMMAS = [0.3, 1.7, 0.05]
KERNELS = [name for name in reference.KERNELS if name not in reference.WITHOUT_GAMMA]


def make_map(n, kernel="rbf", s=11, n_threads=None, memory_limit=None):
    sketch = psk.PSparsified(s, p=0.2).draw(n, random_state=0)
    return psk.FeatureMap(
        psk.kernels.get_kernel(kernel),
        sketch=sketch,
        n_threads=n_threads,
        memory_limit=memory_limit,
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("n", [119, 255, 256, 257, 600])
def test_features_are_those_of_each_gamma(kernel, n, dtype, rng):
    X, X_new = (rng.normal(size=(k, 4)).astype(dtype) for k in (n, 70))
    feature_map = make_map(n, kernel)
    S = feature_map.sketch.to_dense()
    fitted = fit_transform_gammas(feature_map, GAMMAS, X, X_new)
    for gamma, (one, Z, Z_new) in zip(GAMMAS, fitted, strict=True):
        assert one.kernel_.gamma == gamma and Z.dtype == Z_new.dtype == dtype
        K, K_new = (
            reference.KERNELS[kernel](A.astype(float), X.astype(float), gamma)
            for A in (X, X_new)
        )
        expected = reference.sketched_kernel(K_new, K, S, len(S) * np.finfo(dtype).eps)
        product = Z_new.astype(float) @ Z.astype(float).T
        error = reference.relative_error(product, expected)
        assert error < (1e-3 if dtype == "float32" else 1e-8)
        alone = psk.FeatureMap(kernel, gamma=gamma, sketch=feature_map.sketch).fit(X)
        coef = np.linspace(-1, 1, one.rank_)
        np.testing.assert_allclose(
            one.predict(X_new, coef), Z_new @ coef, atol=1e3 * TOLERANCE[dtype]
        )
        assert alone.rank_ == one.rank_


def test_products_of_all_gammas(rng, dtype, tolerance):
    X = rng.normal(size=(700, 3)).astype(dtype)
    sketch = psk.PSparsified(9, p=0.2).draw(700, random_state=1)
    out = np.empty((len(GAMMAS), 9, 700), dtype)
    tiles = _tiles.make_tiles(
        kernel=psk.RBF(1.0),
        center=np.zeros(3),
        dtype=np.dtype(dtype),
        landmarks=_points.Rows(X, sketch.indices),
        points=_points.Rows(X),
        weights=sketch.weights,
        n_threads=2,
        memory_limit=2**24,
        gammas=GAMMAS,
    )
    _tiles.fill_product(out, tiles, sketch.scale, "", 0)
    for gamma, SK in zip(GAMMAS, out, strict=True):
        K = reference.rbf(X.astype(float), X.astype(float), gamma)
        assert reference.relative_error(SK, sketch.to_dense() @ K) <= tolerance


@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
def test_features_do_not_depend_on_threads(kernel, dtype, rng):
    X = rng.normal(size=(2000, 5)).astype(dtype)
    results = [
        fit_transform_gammas(make_map(2000, kernel, n_threads=k), GAMMAS, X, X[:9])
        for k in (1, 2, 5)
    ]
    for other in results[1:]:
        for (_, Z, Z_new), (_, W, W_new) in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(Z, W)
            np.testing.assert_array_equal(Z_new, W_new)


def test_memory_limit_holds(rng):
    X = rng.normal(size=(10_000, 10))
    feature_map = make_map(10_000, s=50, memory_limit=16 * MB)
    features = 3 * 50 * 10_000 * 8
    with peak_below(features + 24 * MB):
        fit_transform_gammas(feature_map, GAMMAS, X, X[:100])


def test_what_cannot_be_shared(rng):
    import scipy.sparse as sp

    X = rng.normal(size=(100, 3))
    sparse, dense = psk.PSparsified(5, 0.1).draw(100, 0), psk.Gaussian(5).draw(100, 0)
    assert not share_distances(psk.RBF(), dense, X)
    assert not share_distances(psk.Linear(), sparse, X)
    assert not share_distances(psk.RBF(), sparse, sp.csr_array(X))
    # a copy costs more than the distances of three features to one landmark
    wide, one = rng.normal(size=(100, 99)), psk.SubSampling(5).draw(100, 0)
    assert share_distances(psk.RBF(), sparse, wide)
    assert share_distances(psk.RBF(), one, wide)
    assert not share_distances(psk.RBF(), one, X)
    with pytest.raises(ValueError, match="X_new contains NaN in row 2, column 1"):
        bad = X[:5].copy()
        bad[2, 1] = np.nan
        fit_transform_gammas(make_map(100), GAMMAS, X, bad)


@pytest.mark.parametrize(
    "bad, message",
    [
        (np.ones(3), "X_new must be 2-d"),
        (np.ones((0, 2)), "X_new needs at least one point"),
        (np.array([["a", "b"]]), "X_new must hold real numbers"),
        (np.ones((3, 3)), "X_new has 3 features"),
        (np.array([[0.0, np.nan]]), "X_new contains NaN in row 0, column 1"),
    ],
)
def test_new_points_are_named(bad, message, rng):
    feature_map = psk.FeatureMap(sketch=psk.SubSampling(5))
    with pytest.raises((TypeError, ValueError), match=message):
        fit_and_transform(feature_map, rng.normal(size=(20, 2)), bad)
