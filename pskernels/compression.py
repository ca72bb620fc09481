"""Models of fewer landmarks, which predict faster, and how far they may be off.

    f, all m landmarks -> k of them -> g, refitted to f -> ‖f - g‖, which bounds |f - g|

Greedy, since f is known: a landmark takes off ‖f - g‖² what f - g is there, squared,
over what is new of it, k(x, x) beside that of those before (the "f/P-greedy" rule of
Müller and Schaback, 2009).  Of every block the rule is exact among some candidates.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from pskernels._products import EPS
from pskernels._threads import single_threaded_blas
from pskernels._types import Array, CheckedPoints, Indices
from pskernels._validation import check_int
from pskernels.feature_map import FeatureMap
from pskernels.gram import kernel_matmul
from pskernels.kernels import is_precomputed
from pskernels.sketches import SubSampling
from pskernels.solvers import solve

# Landmarks of a block, and the points among which they are chosen one by one.
BLOCK, CANDIDATES = 64, 512

# Arrays of m × k numbers that are there at once.
ARRAYS = 4

# What is new of a landmark, as a share of k(x, x), is rounding below this.
NOTHING_NEW = 1e-11


class Compression(NamedTuple):
    """What the compression of a model changes.

    Predictions at x change by at most bound·√k(x, x), beside what rounds both of them;
    k(x, x) is 1 for "rbf", "laplacian", "cosine" and Matérn's.  That holds for every x,
    and is far more than what happens at most of them.  `rms` and `largest` are what
    happened at the points that g was fitted to, in the unit of predictions.  Before
    means before this compression.
    """

    n_before: int
    n_landmarks: int
    bound: float
    rms: float
    largest: float


def compress(
    feature_map: FeatureMap,
    coef: Array,
    dual_coef: Array,
    alpha: float,
    k: int,
    X: CheckedPoints | None = None,
) -> tuple[FeatureMap, Array, Compression]:
    """Replace the landmarks of a model by k of them.

    Of all g on these, it is the one of the least mean (f - g)² + alpha·‖f - g‖².

    Parameters
    ----------
    feature_map : FeatureMap
    coef : array of shape (r,) or (r, c)
    dual_coef : array of shape (m,) or (m, c)
        What the map folds coef to.
    alpha : float
        That of the fit.
    k : int
    X : array of shape (n, d), optional
        The points of the mean; None means all landmarks.

    Returns
    -------
    (FeatureMap, its coef, Compression)
    """
    if is_precomputed(feature_map.kernel_):
        raise ValueError(
            "a precomputed kernel has no landmarks that could be left out: K(X_new, X) "
            "has a column for every point of the fit in any case"
        )
    m = len(feature_map.sketch_.indices)
    k = check_int(k, "k", minimum=1)
    if k > m:
        raise ValueError(f"k={k} is more than the {m} landmarks of the model")
    n_threads, memory_limit = feature_map.limits()
    assert feature_map.landmarks_ is not None
    landmarks = feature_map.landmarks_.astype(np.float64)
    X = landmarks if X is None else X.astype(np.float64)
    room = ARRAYS * 8 * k * max(m, X.shape[0])
    if room > memory_limit:
        raise ValueError(
            f"memory_limit={memory_limit} has no room for {ARRAYS} arrays of "
            f"{max(m, X.shape[0])} x {k} numbers, {room} bytes; raise it"
        )

    def kernel_of(rows: Indices, columns: Indices) -> Array:
        return kernel_matmul(
            landmarks[rows],
            landmarks[columns],
            np.eye(len(columns)),
            kernel=feature_map.kernel_,
            n_threads=n_threads,
            memory_limit=memory_limit,
        )

    with single_threaded_blas():
        f = feature_map.predict_folded(landmarks, dual_coef)
        f_X = feature_map.predict_folded(X, dual_coef)
        diagonal = feature_map.kernel_.diagonal(landmarks, np.arange(m))
        norms = np.linalg.norm(coef, axis=0)  # outputs may differ in unit
        weighed = (f / np.where(norms > 0, norms, 1.0)).reshape(m, -1)
        chosen = choose_landmarks(kernel_of, diagonal, weighed, k)
        small = FeatureMap(
            feature_map.kernel_,
            sketch=SubSampling(indices=chosen).draw(m),
            n_threads=feature_map.n_threads,
            memory_limit=feature_map.memory_limit,
        ).fit(feature_map.landmarks_)
        coef = _refit(small, f, X, f_X, alpha)
        dual_small = small.fold(coef)
        change = small.predict_folded(landmarks, dual_small) - f
        bound = _norm(change, dual_coef, dual_small, chosen, diagonal.max())
        change = small.predict_folded(X, dual_small) - f_X
    found = Compression(
        n_before=m,
        n_landmarks=len(chosen),
        bound=bound,
        rms=float(np.sqrt((change**2).mean())),
        largest=float(np.abs(change).max()),
    )
    return small, coef, found


def choose_landmarks(
    kernel_of: Callable[[Indices, Indices], Array], diagonal: Array, f: Array, k: int
) -> Indices:
    """Choose k of m points, such that a function on their kernels is close to f.

    Parameters
    ----------
    kernel_of : callable
        Numbers of points, twice -> their K.
    diagonal : array of shape (m,)
        k(x, x) of all points.
    f : array of shape (m, c)
    k : int

    Returns
    -------
    array of int
        k of them, or fewer if others add nothing, in ascending order.
    """
    m, n_chosen = len(f), 0
    V = np.empty((m, k), order="F")  # an orthonormal basis of functions, at all points
    chosen = np.empty(k, np.intp)
    everyone, new, rest = np.arange(m), diagonal.copy(), f.copy()
    least = NOTHING_NEW * diagonal
    while n_chosen < k:
        candidates = _best(_scores(rest, new, least), CANDIDATES)
        if len(candidates) == 0:
            break
        V_some = V[candidates, :n_chosen]
        T = kernel_of(candidates, candidates) - V_some @ V_some.T
        order, L = _choose_one_by_one(
            T, rest[candidates], least[candidates], min(BLOCK, k - n_chosen)
        )
        block = candidates[order]
        columns = slice(n_chosen, n_chosen + len(block))
        W = kernel_of(everyone, block) - V[:, :n_chosen] @ V[block, :n_chosen].T
        V[:, columns] = solve_triangular(L, W.T, lower=True).T
        rest -= V[:, columns] @ solve_triangular(L, rest[block], lower=True)
        new -= np.einsum("ij,ij->i", V[:, columns], V[:, columns])
        new[block] = 0.0
        chosen[columns] = block
        n_chosen += len(block)
    return np.sort(chosen[:n_chosen])


def _scores(rest: Array, new: Array, least: Array) -> Array:
    """Find what points would take off ‖f - g‖², -1 for those that have nothing new."""
    squares = np.einsum("ij,ij->i", rest, rest)
    return np.where(new > least, squares / np.maximum(new, least), -1.0)


def _best(scores: Array, count: int) -> Indices:
    """List the numbers of the largest scores that are not negative."""
    useful = np.flatnonzero(scores >= 0)
    order = np.argsort(-scores[useful], kind="stable")
    return useful[order[:count]]


def _choose_one_by_one(
    T: Array, rest: Array, least: Array, count: int
) -> tuple[list[int], Array]:
    """Choose some candidates, one by one; return their places and a Cholesky factor.

    T is what of their K is new.
    """
    T, rest = T.copy(), rest.copy()
    V = np.empty((len(T), count))
    places: list[int] = []
    for i in range(count):
        scores = _scores(rest, T.diagonal(), least)
        scores[places] = -1.0
        j = int(scores.argmax())
        if scores[j] < 0:
            break
        V[:, i] = T[:, j] / np.sqrt(T[j, j])
        rest -= np.outer(V[:, i], rest[j] / V[j, i])
        T -= np.outer(V[:, i], V[:, i])
        places.append(j)
    return places, np.tril(V[places, : len(places)])


def _refit(
    small: FeatureMap, f: Array, X: CheckedPoints, f_X: Array, alpha: float
) -> Array:
    """Find the coefficients of g: those of f's projection, and what moves them."""
    Z = small.transform(X)
    assert small.whitening_ is not None
    projected = small.whitening_.T @ (small.sketch_ @ f)
    moved = solve(
        Z,
        f_X - Z @ projected,
        loss="squared",
        alpha=alpha,
        fit_intercept=False,
        solver="direct",
        n_threads=small.n_threads,
    )
    found: Array = projected + moved.coef
    return found


def _norm(
    change: Array, dual_coef: Array, dual_small: Array, chosen: Indices, largest: float
) -> float:
    """Bound ‖f - g‖ of the worst output.

    ‖Σ δ k(·, x)‖² = Σ δ·(its value at x), the change of predictions, which has the
    rounding of sums over the landmarks of f and of g; k(x, x) ≤ `largest`.
    """
    delta = -dual_coef
    delta[chosen] += dual_small
    sizes = np.abs(dual_coef).sum(axis=0) + np.abs(dual_small).sum(axis=0)
    n_terms = len(dual_coef) + len(dual_small)
    error = (n_terms + 16) * EPS / 2 * largest * sizes
    squares = (delta * change).sum(axis=0) + np.abs(delta).sum(axis=0) * error
    return float(np.sqrt(np.max(squares)))
