"""The table of ``python -m pskernels bench``: time, memory and error of sketches.

The last row is what one would do without this library: form K with NumPy, and
multiply it by a dense Gaussian sketch.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from pskernels._timing import fastest, peak_bytes
from pskernels._types import Array
from pskernels.gram import SketchedGram, sketch_gram
from pskernels.sketches import (
    Accumulation,
    CountSketch,
    Distribution,
    Gaussian,
    PSparsified,
    SubSampling,
)

ERROR_ROWS = 1000


def make_points(n: int, d: int) -> tuple[Array, npt.NDArray[np.intp]]:
    """Draw uniform points, and √n of them in a cluster apart, as in the paper's study.

    Sub-sampling takes about s/√n points of that cluster, and may miss it.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, d))
    rare = rng.choice(n, size=int(np.sqrt(n)), replace=False)
    X[rare] = rng.normal(1.5, 0.25, size=(len(rare), d))
    return X, rare


def rbf_kernel(X: Array, Y: Array, gamma: float) -> Array:
    """Compute the Gram matrix by NumPy, as fast as NumPy does it."""
    K = -2 * X @ Y.T
    K += (X**2).sum(axis=1)[:, None]
    K += (Y**2).sum(axis=1)
    np.maximum(K, 0, out=K)
    K *= -gamma
    np.exp(K, out=K)
    return K


def sketch_with_k_formed(X: Array, S: Array, gamma: float) -> tuple[Array, Array]:
    SK = S @ rbf_kernel(X, X, gamma)
    return SK @ S.T, SK


def whitened(SKSt: Array, SK: Array) -> Array:
    """Compute Z with ZᵀZ = K Sᵀ (S K Sᵀ)† S K."""
    values, vectors = scipy.linalg.eigh(SKSt)
    kept = values > len(values) * np.finfo(float).eps * values[-1]
    Z: Array = (vectors[:, kept] / np.sqrt(values[kept])).T @ SK
    return Z


def relative_errors(
    X: Array,
    gamma: float,
    Zs: list[Array],
    points: npt.NDArray[np.intp] | None = None,
) -> Array:
    """Compute ‖K - ZᵀZ‖ / ‖K‖ in the Frobenius norm for each Z, by blocks of K.

    Of all points, or of pairs of some.
    """
    if points is not None:
        X, Zs = X[points], [Z[:, points] for Z in Zs]
    square, squares = 0.0, np.zeros(len(Zs))
    for start in range(0, len(X), ERROR_ROWS):
        rows = slice(start, start + ERROR_ROWS)
        K = rbf_kernel(X[rows], X, gamma)
        square += float(np.sum(K**2))
        for i, Z in enumerate(Zs):
            squares[i] += np.sum((K - Z[:, rows].T @ Z) ** 2)
    return np.sqrt(squares / square)


def run(n: int, d: int, s: int, n_threads: int | None = None) -> None:
    """Print the table."""
    X, rare = make_points(n, d)
    gamma = 1 / d
    p = min(1.0, 20 / n)
    distributions = {
        "p-SR, p = 20/n": PSparsified(s, p),
        "p-SG, p = 20/n": PSparsified(s, p, "gaussian"),
        "Nyström": SubSampling(s),
        "Accumulation, m = 20": Accumulation(s, m=20),
        "CountSketch": CountSketch(s),
        "Gaussian": Gaussian(s),
    }
    print(f"S·K and S·K·Sᵀ of {n:,} points with {d} features, s = {s}, rbf, float64")
    rows: list[tuple[str, int, Any, float, int]] = []
    for name, distribution in distributions.items():

        def sketched(distribution: Distribution = distribution) -> SketchedGram:
            sketch = distribution.draw(n, random_state=0)
            return sketch_gram(X, sketch=sketch, gamma=gamma, n_threads=n_threads)

        result, seconds = fastest(sketched)
        landmarks = len(result.sketch.indices)
        rows.append((name, landmarks, result[:2], seconds, peak_bytes(sketched)))

    S = np.random.default_rng(1).normal(size=(s, n)) / np.sqrt(s)

    def formed() -> tuple[Array, Array]:
        return sketch_with_k_formed(X, S, gamma)

    products, baseline = fastest(formed)
    rows.append(("Gaussian, K formed", n, products, baseline, peak_bytes(formed)))

    Zs = [whitened(*row[2]) for row in rows]
    errors = relative_errors(X, gamma, Zs)
    rare_errors = relative_errors(X, gamma, Zs, rare)
    print(
        f"{'sketch':<22}{'landmarks':>10}{'seconds':>10}{'times faster':>14}"
        f"{'peak MB':>9}{'error':>9}{'rare':>9}"
    )
    for row, error, rare_error in zip(rows, errors, rare_errors, strict=True):
        name, landmarks, _, seconds, peak = row
        print(
            f"{name:<22}{landmarks:>10,}{seconds:>10.4f}{baseline / seconds:>14.1f}"
            f"{peak / 1e6:>9.1f}{error:>9.1e}{rare_error:>9.1e}"
        )
    print(
        "peak MB counts the results; error is ‖K - K Sᵀ(S K Sᵀ)†S K‖ / ‖K‖, rare that\n"
        f"of the {len(rare)} points of a cluster apart.  Nyström meets the fewest\n"
        "points and is the fastest; p-SR and p-SG meet more of them, and do not miss\n"
        'what is rare.  Machines choose between the two by the data (p="auto").'
    )
