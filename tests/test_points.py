"""Medians, variances and centers of points against NumPy, block by block."""

import numpy as np
import pytest
import scipy.sparse as sp

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
        (2**30, MEDIAN_SUBSAMPLE),
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
