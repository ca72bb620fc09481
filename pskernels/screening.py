"""Which features matter, by themselves or in pairs, before anything is fitted.

Each feature has a few cosines of its ranks, whitened, whatever its distribution is.
What targets have to do with one of them, or with a product of those of two features, is
a mean over points; the squares of all that belong to a feature or a pair add up to the
variance that it explains.  Pairs of all features are one Gram matrix of the cosines,
weighted by targets.

A kernel that weighs many features alike sees little of a function of a few of them, and
its gradients are noise.  This sees it, if it has parts of one or two features.
"""

import numpy as np
from scipy.stats import chi2, norm, rankdata

from pskernels._types import Array
from pskernels.features import as_features

# Cosines of a feature, columns of them in all, and targets: of more, some random sums.
COSINES, MOST_COLUMNS, MOST_TARGETS = 8, 1024, 4
# The probability of a part where there is none, in all that is looked at.
CHANCE = 0.01
# Variances, as shares of the largest one, that are those of a copy; and points that a
# value, or a pair of values, must have, or means are those of a few points.
COPY, POINTS_OF_A_MEAN = 1e-6, 20


def screen_features(
    X: Array, y: Array, weight: Array, n_threads: int, memory_limit: int
) -> Array | None:
    """Estimate how much of the variance of targets has to do with each feature.

    Parameters
    ----------
    X : array of shape (n, d)
    y : array of shape (n, outputs)
        Of which the ranks count: wild ones are as good as large ones.
    weight : array of shape (n,)
    n_threads : int
    memory_limit : int

    Returns
    -------
    ndarray of shape (d,), or None
        Sums over parts of one and two features, 0 for features of none; None if there
        is no such part, or too many features to look at.
    """
    n, d = X.shape
    columns = min(MOST_COLUMNS, memory_limit // (4 * 8 * n))
    cosines = min(COSINES, columns // d)
    if cosines < 2 or n < 2:
        return None
    share = weight / weight.sum()
    waves, terms, heavy = _waves(X, cosines, share)
    features = as_features(waves, n_threads)
    noise = float(share @ share)  # the square of the mean of products of unit variance
    single: Array = np.zeros(d)
    pairs: Array = np.zeros((d, d))
    scores, m = _normal_scores(y, share)
    for column in scores.T:
        flow = share * column
        means = features.t_dot(flow[None])[0].reshape(d, cosines)
        single += (means**2).sum(axis=1)
        products = features.gram(flow).reshape(d, cosines, d, cosines)
        pairs += np.triu(np.einsum("jakb,jakb->jk", products, products), 1)
    most = 1 / (POINTS_OF_A_MEAN * noise)
    single[heavy > most] = 0
    pairs[np.outer(heavy, heavy) > most] = 0
    single = _above(single, m * terms, noise, d)
    pairs = _above(pairs, m * np.outer(terms, terms), noise, d * (d - 1) // 2)
    found = single + pairs.sum(axis=0) + pairs.sum(axis=1)
    return found if found.any() else None


def _normal_scores(y: Array, share: Array) -> tuple[Array, int]:
    """Give targets a normal law by their ranks, make them few, and independent."""
    scores = norm.ppf((rankdata(y, axis=0) - 0.5) / len(y))
    if scores.shape[1] > MOST_TARGETS:
        shape = scores.shape[1], MOST_TARGETS
        scores = scores @ np.random.default_rng(0).choice((-1.0, 1.0), size=shape)
    scores -= share @ scores
    (found,), (rank,) = _normalise(scores[None], share)
    return found, int(rank)


def _waves(X: Array, cosines: int, share: Array) -> tuple[Array, Array, Array]:
    """Compute columns, side by side for each feature, and how many are not copies.

    And how heavy the tails of each feature are: mean squares of leverages, 1 if all
    points are alike, and the inverse share of a rare value.
    """
    n, d = X.shape
    ranks = (rankdata(X, axis=0) - 0.5) / n
    waves = np.cos(np.pi * ranks.T[:, :, None] * np.arange(1, cosines + 1))
    waves -= (share @ waves)[:, None]
    waves, terms = _normalise(waves, share)
    leverages = (waves**2).sum(axis=2)
    heavy = leverages**2 @ share / np.maximum(terms, 1) ** 2
    found: Array = waves.swapaxes(0, 1).reshape(n, d * cosines)
    return found, terms, heavy


def _normalise(columns: Array, share: Array) -> tuple[Array, Array]:
    """Whiten columns (…, n, k) of mean 0, those that are orthonormal stay: and ranks.

    Squares of products with them add up to those with an orthonormal basis.
    """
    products = columns.swapaxes(1, 2) @ (share[:, None] * columns)
    values, vectors = np.linalg.eigh(products)
    kept = values > np.maximum(COPY * values[:, -1:], COPY**2)
    scales = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    roots = (vectors * scales[:, None]) @ vectors.swapaxes(1, 2)
    return columns @ roots, kept.sum(axis=1)


def _above(squares: Array, terms: Array, noise: float, parts: int) -> Array:
    """Take what sums of squares are above those of noise, if that is not chance."""
    known, places = np.unique(terms, return_inverse=True)
    most = np.asarray(chi2.isf(CHANCE / max(parts, 1), np.maximum(known, 1)))
    sure = most[places].reshape(terms.shape) * noise
    found: Array = np.where(squares > sure, squares - terms * noise, 0.0)
    return found
