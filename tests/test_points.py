"""Medians, variances and centers of points against NumPy, block by block."""

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import only_long

import pskernels as psk
from pskernels import _points
from pskernels._points import MEDIAN_SUBSAMPLE, median_distance, total_variance

METRICS = {"sqeuclidean": np.square, "cityblock": np.abs}


def median_of_pairs(X, metric):
    distances = sum(METRICS[metric](x[:, None] - x) for x in X.T)
    return np.median(distances[np.triu_indices(len(X), 1)])


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    "limit, n_points",
    [
        only_long(2**30, MEDIAN_SUBSAMPLE),
        (16 * 300**2, 300),  # room for so many points, and for 150 columns of them
        (100, 2),
    ],
)
def test_median_of_a_subsample(limit, n_points, form, metric, rng):
    X = rng.normal(size=(MEDIAN_SUBSAMPLE + 200, 200)) * (np.arange(200) % 3 == 0)
    some = np.random.default_rng(0).choice(len(X), n_points, replace=False)
    found = median_distance(form(X), metric, limit)
    assert found == pytest.approx(median_of_pairs(X[some], metric), rel=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_median_of_as_many_points_as_a_subsample_has(metric, rng, monkeypatch):
    monkeypatch.setattr(_points, "MEDIAN_SUBSAMPLE", 50)
    X = rng.normal(size=(50, 3))
    expected = median_of_pairs(X, metric)
    assert median_distance(X, metric, 2**20) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("block", [1, 7, 15, 30, 31])
def test_variance_in_blocks(block, form, rng):
    X = rng.normal(size=(30, 8)) + 3
    X[X > 3.5] = 0
    X[rng.permutation(30)[:3]] = 0  # rows of which nothing is stored
    weight = rng.uniform(size=30)
    mean = np.average(X, axis=0, weights=weight)
    expected = np.average((X - mean) ** 2, axis=0, weights=weight).sum()
    points = form(X)
    width = 4 * (1 + points.nnz // 30) if sp.issparse(points) else 8
    found = total_variance(points, weight, 4 * 16 * width * block)
    assert found == pytest.approx(expected, rel=1e-13)


def misaligned(array):
    """Copy an array to where its numbers are one byte off."""
    room = np.zeros(array.nbytes + 1, np.uint8)
    copy = room[1:].view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert not copy.flags.aligned
    return copy


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numbers_that_are_not_aligned(rng, dtype):
    X = rng.normal(size=(300, 3)).astype(dtype)
    y, weight = rng.normal(size=300), rng.uniform(size=300)
    found = []
    for form in (lambda array: array, misaligned):
        SKSt, SK, _ = psk.sketch_gram(form(X), 20, random_state=0)
        K = psk.kernel_matmul(form(X), form(X[:5]), form(y[:5]), gamma=0.3)
        feature_map = psk.FeatureMap(random_state=0, gamma=0.3)
        Z = feature_map.fit_transform(form(X))
        result = psk.solve(
            form(Z), form(y), loss="huber", alpha=1e-3, sample_weight=form(weight)
        )
        predicted = feature_map.predict(form(X), form(result.coef))
        rows = sp.csr_array(X * (X > 0))
        rows.data, rows.indices = form(rows.data), form(rows.indices)
        sparse = psk.sketch_gram(rows, 20, random_state=0).SK
        found.append((SKSt, SK, K, Z, result.coef, predicted, sparse))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="aligned"):
        feature_map.transform(X, out=misaligned(Z))
