"""Which features matter, against sums over all pairs and against what is known."""

import numpy as np
import pytest
from scipy.stats import rankdata

from pskernels.estimators import SketchedKernelRegressor
from pskernels.screening import COSINES, MOST_COLUMNS, SURE, screen_features


def screen_pair_by_pair(X, y, weight):
    """The same in words: every mean by itself."""
    n, d = X.shape
    share = weight / weight.sum()
    noise = (share**2).sum()
    y = y - (share * y).sum()
    y = y / np.sqrt((share * y**2).sum())
    waves = []
    for column in X.T:
        u = (rankdata(column) - 0.5) / n
        cosines = [np.cos(np.pi * k * u) for k in range(1, COSINES + 1)]
        cosines = [c - (share * c).sum() for c in cosines]
        waves.append([c / np.sqrt((share * c**2).sum()) for c in cosines])

    def above(squares, terms):
        excess = squares - terms * noise
        return excess if excess > SURE * np.sqrt(2 * terms) * noise else 0.0

    found = np.zeros(d)
    for j in range(d):
        means = [(share * y * c).sum() for c in waves[j]]
        found[j] += above(np.sum(np.square(means)), COSINES)
        for k in range(j):
            means = [(share * y * a * b).sum() for a in waves[j] for b in waves[k]]
            both = above(np.sum(np.square(means)), COSINES**2)
            found[[j, k]] += both
    return found


def test_against_every_mean_by_itself(rng):
    X = rng.normal(size=(700, 6)) ** 3
    y = 3 * np.sign(X[:, 0] * X[:, 1]) + np.cbrt(X[:, 2]) + rng.normal(size=700)
    weight = rng.uniform(0.5, 1.5, size=700)
    found = screen_features(X, y[:, None], weight, 1)
    expected = screen_pair_by_pair(X, y, weight)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert (found[:3] > 0).all()
    for n_threads in (2, 3):
        again = screen_features(X, y[:, None], weight, n_threads)
        np.testing.assert_array_equal(again, found)
    both = np.column_stack([y, np.ones(700), 5 * y - 3])  # a constant says nothing
    np.testing.assert_allclose(screen_features(X, both, weight, 1), 2 * found)


@pytest.mark.parametrize("n", [50, 500, 5000])
def test_noise_has_no_features(n):
    """Of 20 draws one may have some, by chance."""
    draws = (np.random.default_rng(seed) for seed in range(20))
    found = [
        screen_features(
            rng.normal(size=(n, 20)), rng.normal(size=(n, 1)), np.ones(n), 1
        )
        for rng in draws
    ]
    assert sum(one is not None for one in found) <= 1


def test_features_of_all_kinds(rng):
    """Constant, of two values, of many equal ones, and copies of each other."""
    n = 2000
    kinds = rng.integers(2, size=n), rng.poisson(0.2, size=n), rng.normal(size=n)
    X = np.column_stack([np.ones(n), *kinds, kinds[2]]).astype(np.float32)
    y = X[:, 1] * X[:, 3] + 0.1 * rng.normal(size=n)
    found = screen_features(X, y[:, None], np.ones(n), 2)
    assert np.isfinite(found).all() and found[0] == 0
    assert found[1] > 0.1 and found[3] > 0.1
    assert found[3] == pytest.approx(found[4])
    assert screen_features(X[:, :1], y[:, None], np.ones(n), 1) is None
    wide = np.ones((3, MOST_COLUMNS))
    assert screen_features(wide, wide[:, :1], np.ones(3), 1) is None


def two_pairs(a, b, c, d):
    return np.sin(3 * a) * b + np.cos(2 * c) * d


def three_at_once(a, b, c, d):
    return a * b * c + np.sin(d)


@pytest.mark.parametrize(
    "function, metric",
    [(two_pairs, "learn"), (two_pairs, "learn-full"), (three_at_once, "learn")],
)
def test_a_function_that_is_hidden_in_many_features_is_found(function, metric, rng):
    """Kernels that weigh 32 features alike see nothing of it."""
    X = rng.normal(size=(5000, 32))
    f = function(*X[:, :4].T)
    y = f / f.std() + 0.1 * rng.normal(size=5000)
    train, test = slice(4000), slice(4000, None)
    model = SketchedKernelRegressor(metric=metric, random_state=0)
    alike = SketchedKernelRegressor(random_state=0).fit(X[train], y[train])
    assert alike.score(X[test], y[test]) < 0.4
    model.fit(X[train], y[train])
    assert model.score(X[test], y[test]) > 0.95
    assert model.feature_importances_[:4].sum() > 0.95
