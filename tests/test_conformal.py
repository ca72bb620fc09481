"""Conformal bounds against their definitions, and the share that they promise."""

import numpy as np
import pytest
from scipy import stats

from pskernels.conformal import bound_by_folds, bound_by_points


def reference(values, share, weight, new_weight):
    """The least of the values in a row that has enough weight at or below it."""
    bounds = []
    for row, own in zip(values, new_weight, strict=True):
        needed = share * (weight.sum() + own)
        enough = [t for t in row if weight[row <= t].sum() >= needed * (1 - 1e-9)]
        bounds.append(min(enough, default=np.inf))
    return np.array(bounds)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "n, K, share",
    [(50, 5, 0.9), (7, 3, 0.9), (9, 3, 0.9), (200, 5, 0.95), (30, 1, 0.8)],
)
def test_bounds_are_those_of_the_definition(rng, n, K, share, weighted):
    ends, folds = rng.normal(size=(20, K)), rng.permutation(np.arange(n) % K)
    scores, widths = rng.normal(size=n), rng.uniform(0.5, 2, size=(20, K))
    weight, new_weight = (
        rng.uniform(0.1, 2, size=size) if weighted else np.ones(size)
        for size in (n, 20)
    )
    values = ends[:, folds] + widths[:, folds] * scores
    expected = reference(values, share, weight, new_weight)
    weights = (weight, new_weight) if weighted else (None, None)
    by_folds = bound_by_folds(ends, scores, folds, share, *weights, widths)
    np.testing.assert_allclose(by_folds, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(bound_by_points(values, share, *weights), expected)


def test_too_few_points_have_no_bound(rng):
    folds = np.arange(8) % 2
    scores, ends = rng.normal(size=8), rng.normal(size=(3, 2))
    assert np.isinf(bound_by_folds(ends, scores, folds, 0.9)).all()
    assert np.isinf(bound_by_points(rng.normal(size=(3, 8)), 0.9)).all()
    assert np.isfinite(bound_by_folds(ends, scores, folds, 8 / 9)).all()


def test_a_split_keeps_its_promise():
    """The chance of a new score above the bound is 1 - k/(n + 1), k = ⌈(n + 1)·share⌉.

    4,000 draws: each of the two limits fails with a probability below 1e-6.
    """
    rng = np.random.default_rng(0)
    n, share, draws = 24, 0.9, 4000
    scores = rng.standard_cauchy(size=(draws, n + 1))
    folds, end = np.zeros(n, np.intp), np.zeros((1, 1))
    missed = sum(
        row[-1] > bound_by_folds(end, row[:-1], folds, share)[0] for row in scores
    )
    exact = 1 - np.ceil((n + 1) * share) / (n + 1)
    low, high = stats.binom.ppf([1e-6, 1 - 1e-6], draws, exact)
    assert low <= missed <= high and exact <= 1 - share


def test_weights_keep_the_promise_where_points_have_changed():
    """Calibration from N(0, 1), new points from N(1, 1): ratios exp(x - 1/2)."""
    rng = np.random.default_rng(0)
    draws, n, missed, unweighted = 2000, 200, 0, 0
    folds, end = np.zeros(n, np.intp), np.zeros((1, 1))
    for _ in range(draws):
        x, new = rng.normal(size=n), rng.normal(1, 1, size=1)
        # errors grow with x
        scores = np.abs(rng.normal(size=n) * np.exp(x))
        score = np.abs(rng.normal() * np.exp(new[0]))
        ratio, own = np.exp(x - 0.5), np.exp(new - 0.5)
        missed += score > bound_by_folds(end, scores, folds, 0.8, ratio, own)[0]
        unweighted += score > bound_by_folds(end, scores, folds, 0.8)[0]
    assert missed <= stats.binom.ppf(1 - 1e-6, draws, 0.2)
    assert unweighted > stats.binom.ppf(1 - 1e-6, draws, 0.2)
