"""How close S·K comes to the limits of the machine, measured in one run.

    python bench/roofline.py

A kernel value of d features takes at least the time of its 2·d flops at the best
rate of an in-cache matrix product (BLAS), and that of one exponential (the best
of NumPy's and ours, on an array in the first-level cache), on the same threads.
The fraction is that time over the time of `sketch_gram` (n = 50,000, s = 100,
p = 20/n), with the output array given; the packing of points, the sums of S_SG and
the writing count against it.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

import pskernels as psk
from pskernels import _gram
from pskernels._engine import simd_level

FEATURES = (4, 10, 32, 90, 280)
N = 50_000
ROUNDS = 5


def seconds_on_threads(work, n_threads):
    """Time of `work()` run by every thread at once."""
    with ThreadPoolExecutor(n_threads) as pool:
        start = time.perf_counter()
        list(pool.map(lambda _: work(), range(n_threads)))
        return time.perf_counter() - start


def gemm_seconds_per_flop(dtype, n_threads, size):
    """Each thread multiplies matrices of its own that fit in its cache."""
    A = np.ones((size, size), dtype)
    repeats = max(1, int(2e9 / (2 * size**3)))

    def work():
        out = np.empty_like(A)
        for _ in range(repeats):
            np.dot(A, A, out=out)

    return seconds_on_threads(work, n_threads) / (n_threads * repeats * 2 * size**3)


def our_exp_seconds(dtype, n_threads):
    x = -np.linspace(0, 20, 6 * 32 * 8).astype(dtype)
    repeats = 10_000

    def work():
        _gram.exp2_buffer(x, np.empty_like(x), repeats)

    return seconds_on_threads(work, n_threads) / (n_threads * repeats * len(x))


def numpy_exp_seconds(dtype, n_threads):
    x = -np.linspace(0, 20, 6 * 32 * 8).astype(dtype)
    repeats = 2000

    def work():
        out = np.empty_like(x)
        for _ in range(repeats):
            np.exp(x, out=out)

    return seconds_on_threads(work, n_threads) / (n_threads * repeats * len(x))


class Case:
    """S·K with p = 20/n at one number of features."""

    def __init__(self, d, dtype, n_threads):
        self.d = d
        self.X = np.random.default_rng(0).normal(size=(N, d)).astype(dtype)
        self.sketch = psk.PSparsified(100).draw(N, random_state=0)
        self.out = np.zeros(self.sketch.shape, dtype)
        self.n_threads = n_threads

    def seconds(self):
        start = time.perf_counter()
        psk.sketch_gram(
            self.X,
            sketch=self.sketch,
            gamma=1 / self.d,
            parts="SK",
            out=self.out,
            n_threads=self.n_threads,
        )
        elapsed = time.perf_counter() - start
        return elapsed / (len(self.X) * len(self.sketch.indices))


def report(dtype, n_threads):
    cases = [Case(d, dtype, n_threads) for d in FEATURES]
    limits = {
        **{
            f"gemm {size}": lambda size=size: gemm_seconds_per_flop(
                dtype, n_threads, size
            )
            for size in (96, 192, 256, 384)
        },
        "exp": lambda: our_exp_seconds(dtype, n_threads),
        "numpy exp": lambda: numpy_exp_seconds(dtype, n_threads),
    }
    measured = {name: [] for name in limits}
    times = {case.d: [] for case in cases}
    for _ in range(ROUNDS):  # interleaved: a slow moment hits all alike
        with threadpool_limits(1, user_api="blas"):
            for name, measure in limits.items():
                measured[name].append(measure())
        for case in cases:
            times[case.d].append(case.seconds())
    best = {name: min(values) for name, values in measured.items()}
    flop = min(value for name, value in best.items() if name.startswith("gemm"))
    exponential = min(best["exp"], best["numpy exp"])
    print(
        f"\n{dtype}, {n_threads} thread(s): GEMM {1e-9 / flop:.1f} Gflop/s, "
        f"exp {1e9 * exponential:.3f} ns (NumPy's {1e9 * best['numpy exp']:.3f} ns)"
    )
    # wall time for one kernel value, all threads at work
    print(f"{'d':>5}{'limit, ns':>12}{'S·K, ns':>10}{'fraction':>10}")
    for d, values in times.items():
        limit = 2 * d * flop + exponential
        print(
            f"{d:>5}{1e9 * limit:>12.3f}{1e9 * min(values):>10.3f}"
            f"{limit / min(values):>10.0%}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="*", help="1 and all by default")
    options = parser.parse_args()
    from pskernels._threads import available_cpus

    threads = options.threads or sorted({1, available_cpus()})
    print(f"SIMD level: {simd_level()}")
    for n_threads in threads:
        for dtype in ("float64", "float32"):
            report(dtype, n_threads)


if __name__ == "__main__":
    main()
