"""Data and peers that the benchmarks share.

Shapes must not be changed, only added: results are compared over time.
"""

import argparse
import time

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import threadpool_limits

import pskernels as psk
from pskernels._threads import available_cpus

# (n, d)
SHAPES = [(10_000, 10), (50_000, 10), (8_145, 280)]
DTYPES = ["float64", "float32"]
S = 100


def make_points(n, d, dtype):
    return np.random.default_rng(0).normal(size=(n, d)).astype(dtype)


def ours(X, sketch, gamma, parts, n_threads=None):
    return psk.sketch_gram(
        X, sketch=sketch, gamma=gamma, parts=parts, n_threads=n_threads
    )


def ours_one_thread(X, sketch, gamma, parts):
    return ours(X, sketch, gamma, parts, n_threads=1)


def scipy_sparse(X, sketch, gamma, parts):
    """The decomposition trick with SciPy and scikit-learn: K(X[idx], X) is formed."""
    weights = sketch.scaled_weights(X.dtype)
    Z = X[sketch.indices]
    if parts == "SKSt":
        return weights @ rbf_kernel(Z, Z, gamma=gamma) @ weights.T
    return weights @ rbf_kernel(Z, X, gamma=gamma)


def gram_formed(X, sketch, gamma, parts):
    """A dense sketch S and all of K."""
    S = sketch.scaled_weights(X.dtype)
    SK = S @ rbf_kernel(X, X, gamma=gamma)
    return SK @ S.T if parts == "SKSt" else SK


METHODS = {
    "pskernels": ours,
    "pskernels, 1 thread": ours_one_thread,
    "scipy.sparse @ rbf_kernel": scipy_sparse,
}


def toy(n, random_state=42):
    """The paper's toy data: (X, y) for training, (X, y) for testing.

    d = 10 uniform features, √n rows replaced by a far cluster whose targets are
    several hundred; the test set is drawn first.
    """
    rng = np.random.RandomState(random_state)

    def draw():
        X = rng.uniform(size=(n, 10))
        outliers = rng.choice(n, int(np.sqrt(n)), replace=False)
        X[outliers] = rng.normal(1.5, 0.25, size=(len(outliers), 10))
        f = (
            0.1 * np.exp(4 * X[:, 0])
            + 4 / (1 + np.exp(-20 * (X[:, 1] - 0.5)))
            + X[:, 2:5] @ [3, 2, 1]
        )
        return X, f + rng.normal(size=n)

    test = draw()
    return draw(), test


TOY_GAMMA = 0.1


def toy_features(X, s=S, sketch=None):
    sketch = psk.PSparsified(s) if sketch is None else sketch
    return psk.FeatureMap(gamma=TOY_GAMMA, sketch=sketch, random_state=0).fit_transform(
        X
    )


def least(rounds, function, *arguments, **options):
    """(least seconds, last result) of several calls."""
    times = []
    for _ in range(rounds):
        time.sleep(0.2)  # BLAS workers of the call before may still spin
        start = time.perf_counter()
        result = function(*arguments, **options)
        times.append(time.perf_counter() - start)
    return min(times), result


def best_threads(rounds, function, *arguments, **options):
    """`least` with one or with all BLAS threads, whichever is faster."""
    runs = []
    for n_threads in (1, available_cpus()):
        with threadpool_limits(n_threads, user_api="blas"):
            runs.append(least(rounds, function, *arguments, **options))
    return min(runs, key=lambda run: run[0])


def run_parts(parts, description):
    """Run the parts of a benchmark that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(parts)}")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    for name in arguments.parts or parts:
        print(f"\n== {name}: {parts[name].__doc__.splitlines()[0]}")
        parts[name](arguments.rounds)
