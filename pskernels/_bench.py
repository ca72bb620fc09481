"""The table of ``python -m pskernels bench``: time, memory and error of sketches.

The first row is what one would do without this library: form K with NumPy, and
multiply it by a dense Gaussian sketch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg

from pskernels._timing import fastest, peak_bytes
from pskernels._types import Array, Indices
from pskernels.gram import SketchedGram, sketch_gram
from pskernels.sketches import (
    Accumulation,
    CountSketch,
    Distribution,
    Gaussian,
    PSparsified,
    SubSampling,
)

# Points whose rows of K tell the error.
ERROR_ROWS = 1000


def make_points(n: int, d: int) -> tuple[Array, Indices]:
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


def relative_error(K: Array, Z: Array, rows: Indices, columns: Indices) -> float:
    """Compute ‖K - ZᵀZ‖ / ‖K‖ in the Frobenius norm, of some rows and columns of K."""
    error = np.linalg.norm(K - Z[:, rows].T @ Z[:, columns])
    return float(error / np.linalg.norm(K))


def run(n: int, d: int, s: int, n_threads: int | None = None) -> None:
    """Print the table, a row when it is measured."""
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
    print("first what one would do without sketches, which takes longest", flush=True)
    S = np.random.default_rng(1).normal(size=(s, n)) / np.sqrt(s)
    some, all_points = (
        np.random.default_rng(2).permutation(n)[:ERROR_ROWS],
        np.arange(n),
    )
    parts = [
        (rbf_kernel(X[rows], X[columns], gamma), rows, columns)
        for rows, columns in ((some, all_points), (rare, rare))
    ]

    def formed() -> tuple[Array, Array]:
        return sketch_with_k_formed(X, S, gamma)

    products, baseline = fastest(formed)
    print(
        f"{'sketch':<22}{'landmarks':>10}{'seconds':>10}{'times faster':>14}"
        f"{'peak MB':>9}{'error':>9}{'rare':>9}"
    )

    def show(
        name: str, landmarks: int, found: Sequence[Any], seconds: float, peak: int
    ) -> None:
        Z = whitened(*found)
        errors = "".join(f"{relative_error(K, Z, *of):>9.1e}" for K, *of in parts)
        print(
            f"{name:<22}{landmarks:>10,}{seconds:>10.4f}{baseline / seconds:>14.1f}"
            f"{peak / 1e6:>9.1f}{errors}",
            flush=True,
        )

    show("Gaussian, K formed", n, products, baseline, peak_bytes(formed))
    for name, distribution in distributions.items():

        def sketched(distribution: Distribution = distribution) -> SketchedGram:
            sketch = distribution.draw(n, random_state=0)
            return sketch_gram(X, sketch=sketch, gamma=gamma, n_threads=n_threads)

        result, seconds = fastest(sketched)
        landmarks = len(result.sketch.indices)
        show(name, landmarks, result[:2], seconds, peak_bytes(sketched))
    print(
        "peak MB counts the results; error is ‖K - K Sᵀ(S K Sᵀ)†S K‖ / ‖K‖ of some\n"
        f"rows of K, rare that of the {len(rare)} points of a cluster apart.  Nyström\n"
        "meets the fewest points and is the fastest; p-SR and p-SG meet more of them,\n"
        "and do not miss what is rare.  Machines choose between the two by the data\n"
        '(p="auto").'
    )
