"""Which features matter, against sums over all pairs and against what is known."""

import tracemalloc

import numpy as np
import pytest
from scipy.stats import chi2, norm, rankdata

from pskernels.estimators import SketchedKernelRegressor
from pskernels.screening import CHANCE, COSINES, MOST_COLUMNS, screen_features

ROOM = 2**30


def screen_pair_by_pair(X, y, weight):
    """The same in words: every mean by itself."""
    n, d = X.shape
    share = weight / weight.sum()
    noise = (share**2).sum()
    y = norm.ppf((rankdata(y) - 0.5) / n)
    y = y - (share * y).sum()
    y = y / np.sqrt((share * y**2).sum())
    waves = []
    for column in X.T:
        u = (rankdata(column) - 0.5) / n
        cosines = [np.cos(np.pi * k * u) for k in range(1, COSINES + 1)]
        cosines = np.array([c - (share * c).sum() for c in cosines])
        # orthonormal, of the same span
        L = np.linalg.cholesky(cosines @ (share * cosines).T)
        waves.append(np.linalg.solve(L, cosines))

    def above(means, parts):
        squares, terms = np.sum(np.square(means)), len(means)
        sure = chi2.isf(CHANCE / parts, terms) * noise
        return squares - terms * noise if squares > sure else 0.0

    found = np.zeros(d)
    for j in range(d):
        found[j] += above([(share * y * c).sum() for c in waves[j]], d)
        for k in range(j):
            means = [(share * y * a * b).sum() for a in waves[j] for b in waves[k]]
            found[[j, k]] += above(means, d * (d - 1) / 2)
    return found


def test_against_every_mean_by_itself(rng):
    X = rng.normal(size=(700, 6)) ** 3
    y = 3 * np.sign(X[:, 0] * X[:, 1]) + np.cbrt(X[:, 2]) + rng.normal(size=700)
    weight = rng.uniform(0.5, 1.5, size=700)
    found = screen_features(X, y[:, None], weight, 1, ROOM)
    expected = screen_pair_by_pair(X, y, weight)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert (found[:3] > 0).all()
    for n_threads in (2, 3):
        again = screen_features(X, y[:, None], weight, n_threads, ROOM)
        np.testing.assert_array_equal(again, found)
    # ranks are all that counts, of features and of targets
    again = screen_features(np.cbrt(X), np.exp(y)[:, None], weight, 1, ROOM)
    np.testing.assert_array_equal(again, found)


def test_shares_of_variance(rng):
    """Of functions of known parts, continuous features and those of two values."""
    n = 20_000
    X = np.column_stack([rng.normal(size=(n, 2)), rng.integers(2, size=(n, 3))])
    for y, expected in (
        (X[:, 0], [1, 0, 0, 0, 0]),
        (X[:, 2] + 1e-9 * rng.normal(size=n), [0, 0, 2 / np.pi, 0, 0]),
        (norm.cdf(X[:, 0]) * (2 * X[:, 2] - 1), [1 - 2 / np.pi, 0, 1, 0, 0]),
    ):
        found = screen_features(X, y[:, None], np.ones(n), 2, ROOM)
        np.testing.assert_allclose(found, expected, atol=0.03)


NOISE = {
    "normal": lambda rng, n: (rng.normal(size=(n, 20)), rng.normal(size=(n, 1))),
    "wide": lambda rng, n: (rng.normal(size=(n, 100)), rng.normal(size=(n, 1))),
    "two values": lambda rng, n: (
        rng.integers(2, size=(n, 20)),
        rng.normal(size=(n, 1)),
    ),
    "one-hot": lambda rng, n: (
        np.eye(12)[rng.integers(12, size=n)],
        rng.normal(size=(n, 1)),
    ),
    "rare": lambda rng, n: (rng.uniform(size=(n, 20)) < 0.005, rng.normal(size=(n, 1))),
    "wild": lambda rng, n: (rng.normal(size=(n, 20)), rng.standard_cauchy(size=(n, 1))),
    "many": lambda rng, n: (rng.normal(size=(n, 20)), rng.normal(size=(n, 9))),
    "classes": lambda rng, n: (
        rng.normal(size=(n, 20)),
        np.eye(3)[rng.integers(3, size=n)],
    ),
}


@pytest.mark.parametrize("kind", NOISE)
@pytest.mark.parametrize("n", [100, 2000])
def test_noise_has_no_features(n, kind):
    """Of 20 draws two may have some, by chance or because means are not normal."""
    found = []
    for seed in range(20):
        X, y = NOISE[kind](np.random.default_rng(seed), n)
        found.append(screen_features(X.astype(float), y, np.ones(n), 1, ROOM))
    assert sum(one is not None for one in found) <= 2


def test_features_of_all_kinds(rng):
    """Constant, of two values, of many equal ones, and copies of each other."""
    n = 2000
    kinds = rng.integers(2, size=n), rng.poisson(0.2, size=n), rng.normal(size=n)
    X = np.column_stack([np.ones(n), *kinds, kinds[2]]).astype(np.float32)
    y = X[:, 1] * X[:, 3] + 0.1 * rng.normal(size=n)
    found = screen_features(X, y[:, None], np.ones(n), 2, ROOM)
    assert np.isfinite(found).all() and found[0] == 0
    assert found[1] > 0.1 and found[3] > 0.1
    assert found[3] == pytest.approx(found[4])
    assert screen_features(X[:, :1], y[:, None], np.ones(n), 1, ROOM) is None
    assert screen_features(X, np.ones((n, 1)), np.ones(n), 1, ROOM) is None
    wide = np.ones((3, MOST_COLUMNS))
    assert screen_features(wide, wide[:, :1], np.ones(3), 1, ROOM) is None


def test_memory_is_kept(rng):
    """There are fewer cosines, or none, where there is little room."""
    X = rng.normal(size=(4000, 40))
    y = X[:, :1] * X[:, 1:2]
    found = []
    for limit in (2**23, 2**26):
        tracemalloc.start()
        found.append(screen_features(X, y, np.ones(4000), 1, limit))
        assert tracemalloc.get_traced_memory()[1] < limit
        tracemalloc.stop()
    assert found[0] is None
    assert set(np.argsort(found[1])[-2:]) == {0, 1}


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
