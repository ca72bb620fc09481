"""Which features matter, by themselves or in pairs, before anything is fitted.

Each feature has a few cosines of its ranks, which are nearly orthonormal whatever its
distribution is.  What targets have to do with one of them, or with a product of those
of two features, is a mean over points; the squares of all that belong to a feature or
a pair add up to the variance that it explains.  Pairs of all features are one Gram
matrix of the cosines, weighted by targets.

A kernel that weighs many features alike sees little of a function of a few of them, and
its gradients are noise.  This sees it, if it has parts of one or two features.
"""

import numpy as np
from scipy.stats import rankdata

from pskernels._types import Array
from pskernels.features import as_features

# Cosines of a feature, and columns of them in all.
COSINES, MOST_COLUMNS = 8, 2048
# Standard deviations of pure noise above its mean from which on a part is one: of 500
# pairs none is by chance in 99 of 100 draws.
SURE = 5.0


def screen_features(X: Array, y: Array, weight: Array, n_threads: int) -> Array | None:
    """Estimate how much of the variance of targets has to do with each feature.

    Parameters
    ----------
    X : array of shape (n, d)
    y : array of shape (n, outputs)
    weight : array of shape (n,)
    n_threads : int

    Returns
    -------
    ndarray of shape (d,), or None
        Sums over parts of one and two features, 0 for features of none; None if there
        is no such part, or too many features to look at.
    """
    d = X.shape[1]
    cosines = min(COSINES, MOST_COLUMNS // d)
    if cosines < 2:
        return None
    share = weight / weight.sum()
    features = as_features(_cosines_of_ranks(X, cosines, share), n_threads)
    noise = share @ share  # the square of the mean of products of unit variance
    single, pairs = np.zeros(d), np.zeros((d, d))
    for column in y.T:
        column = column - share @ column
        size = share @ column**2
        if size == 0:
            continue
        flow = share * column / np.sqrt(size)
        means = features.t_dot(flow[None])[0].reshape(d, cosines)
        single += _above((means**2).sum(axis=1), cosines, noise)
        products = features.gram(flow).reshape(d, cosines, d, cosines)
        squares = np.einsum("jakb,jakb->jk", products, products)
        pairs += _above(np.triu(squares, 1), cosines**2, noise)
    found = single + pairs.sum(axis=0) + pairs.sum(axis=1)
    return found if found.any() else None


def _cosines_of_ranks(X: Array, cosines: int, share: Array) -> Array:
    """Compute columns of mean 0 and variance 1, side by side for each feature."""
    ranks = (rankdata(X, axis=0) - 0.5) / len(X)
    waves = np.cos(np.pi * ranks[:, :, None] * np.arange(1, cosines + 1))
    columns = waves.reshape(len(X), -1)
    columns -= share @ columns
    sizes = np.sqrt(share @ columns**2)
    # two values alone have one cosine, of which the others are copies or nothing
    columns /= np.where(sizes > 1e-6, sizes, np.inf)
    return columns


def _above(squares: Array, terms: int, noise: float) -> Array:
    """Take what sums of so many squares are above those of noise, if it is sure."""
    excess = squares - terms * noise
    found: Array = np.where(excess > SURE * np.sqrt(2 * terms) * noise, excess, 0.0)
    return found
