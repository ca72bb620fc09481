"""How many times faster than the peers: all ratios of the README, in one run.

    python bench/ratios.py

Competitors run in turn in one process, and the least time of a few rounds counts:
noise only adds.  Each runs with all cores; KeOps where it is installed.
"""

import argparse
import subprocess
import sys
import time

import numpy as np
from benchmarks import common

import pskernels as psk

S = 100


def least_times(functions, rounds):
    """{name: least seconds}, the functions taking turns.

    BLAS workers spin for a while after a call and would slow down whoever comes
    next, so that each turn begins with a pause.
    """
    times = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            time.sleep(0.1)
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


def show(title, times, ours="pskernels"):
    for name, seconds in times.items():
        ratio = "" if name == ours else f"{seconds / times[ours]:8.1f}x"
        print(f"{title:<34}{name:<28}{1e3 * seconds:>10.1f} ms{ratio:>10}", flush=True)


def sparse_products(rounds):
    """S·K against scipy.sparse @ rbf_kernel(X[idx], X)."""
    for n, d in common.SHAPES:
        for dtype in common.DTYPES:
            X = common.make_points(n, d, dtype)
            sketch = psk.PSparsified(S).draw(n, random_state=0)
            times = least_times(
                {
                    name: lambda method=method, X=X, sketch=sketch, d=d: method(
                        X, sketch, 1 / d, "SK"
                    )
                    for name, method in common.METHODS.items()
                },
                rounds,
            )
            show(f"S·K, n={n:,}, d={d}, {dtype}", times)


def against_k_formed(rounds):
    """p = 20/n, 0.7 and 1 against a dense Gaussian sketch with K formed."""
    n, d = 10_000, 10
    X = common.make_points(n, d, "float64")
    gaussian = psk.Gaussian(S).draw(n, random_state=0)
    for part in ("SK", "SKSt"):
        sketches = {
            "pskernels": psk.PSparsified(S).draw(n, random_state=0),
            "pskernels, p = 0.7": psk.PSparsified(S, 0.7).draw(n, random_state=0),
            "pskernels, p = 1": gaussian,
        }
        functions = {
            name: lambda sketch=sketch, part=part: common.ours(X, sketch, 0.1, part)
            for name, sketch in sketches.items()
        }
        functions["NumPy, K formed, p = 1"] = lambda part=part: common.gram_formed(
            X, gaussian, 0.1, part
        )
        show(f"{part}, n={n:,}, d={d}, float64", least_times(functions, rounds))


def sub_sampling(rounds):
    """S·K of sub-sampling against K·b and one write of the result, in both layouts."""
    n, d = 32_000, 8
    for dtype in common.DTYPES:
        X = common.make_points(n, d, dtype)
        for s in (100, 1000, 4000):
            sketch = psk.SubSampling(s).draw(n, random_state=0)
            landmarks, b = X[sketch.indices], np.ones(s, dtype)
            layouts = {
                "(s, n)": np.ones((s, n), dtype),
                "(n, s)": np.ones((n, s), dtype).T,
            }

            def product(out, X=X, sketch=sketch):
                psk.sketch_gram(X, sketch=sketch, gamma=0.1, parts="SK", out=out)

            def matmul(X=X, landmarks=landmarks, b=b):
                psk.kernel_matmul(X, landmarks, b, gamma=0.1)

            times = least_times(
                {
                    "K·b": matmul,
                    "one write": lambda out=layouts["(s, n)"]: out.fill(0.0),
                    **{
                        name: lambda out=out: product(out)
                        for name, out in layouts.items()
                    },
                },
                rounds,
            )
            whole = times["K·b"] + times["one write"]
            for name in layouts:
                print(
                    f"sub-sampling, s={s:,}, {dtype}, {name}: {1e3 * times[name]:.1f} "
                    f"ms, {times[name] / whole:.2f} of K·b and one write",
                    flush=True,
                )


def drawing(rounds):
    """Drawing against one pass S·K."""
    n, d, s = 1_000_000, 10, 200
    X = common.make_points(n, d, "float64")
    distribution = psk.PSparsified(s)
    sketch = distribution.draw(n, random_state=0)
    out = np.zeros((s, n))
    times = least_times(
        {
            "draw": lambda: distribution.draw(n, random_state=0),
            "one pass S·K": lambda: psk.sketch_gram(
                X, sketch=sketch, gamma=0.1, parts="SK", out=out
            ),
        },
        min(rounds, 3),
    )
    show(f"drawing, s={s}, n={n:,}, d={d}", times, ours="draw")


def keops(rounds):
    """K(X, X) @ b against KeOps."""
    try:
        from pykeops.numpy import LazyTensor
    except ImportError:
        print("KeOps is not installed (pip install pykeops): not compared")
        return
    n, d = 20_000, 10
    for dtype in common.DTYPES:
        X = common.make_points(n, d, dtype)
        b = np.ones((n, 1), dtype)
        x_i, x_j = LazyTensor(X[:, None, :]), LazyTensor(X[None, :, :])
        gamma = np.array([0.1], dtype)

        def with_keops(x_i=x_i, x_j=x_j, b=b, gamma=gamma):
            return (-((x_i - x_j) ** 2).sum(-1) * gamma).exp() @ b

        def ours(X=X, b=b):
            return psk.kernel_matmul(X, X, b, gamma=0.1)

        error = np.abs(with_keops() / ours() - 1).max()
        assert error < 1e-4, error
        times = least_times({"pskernels": ours, "KeOps": with_keops}, rounds)
        show(f"K·b, n={n:,}, d={d}, {dtype}", times)


def importing():
    code = (
        "import time, numpy, scipy.linalg; t = time.perf_counter();"
        "import pskernels; print(time.perf_counter() - t)"
    )
    seconds = min(
        float(subprocess.check_output([sys.executable, "-P", "-c", code]))
        for _ in range(7)
    )
    print(f"import, beyond NumPy and scipy.linalg: {1e3 * seconds:.0f} ms")


def main():
    print(f"{'what':<34}{'who':<28}{'time':>13}{'of ours':>10}")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    sparse_products(rounds)
    against_k_formed(min(rounds, 5))
    sub_sampling(min(rounds, 5))
    drawing(rounds)
    keops(rounds)
    importing()


if __name__ == "__main__":
    main()
