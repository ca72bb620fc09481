"""The theory's tools: predictions of `recommend` against fits, spectra of many points.

    python bench/theory.py                   # all parts, seven minutes
    python bench/theory.py recommend

What is aimed at stands in brackets.
"""

import time
import warnings

import numpy as np
from benchmarks import common
from benchmarks.common import least

import pskernels as psk
from pskernels import theory
from pskernels._timing import peak_bytes

GAMMA = 0.1


def fit(X, y, advice, gamma, loss):
    sketch = psk.PSparsified(advice.s, advice.p)
    fm = psk.FeatureMap(gamma=gamma, sketch=sketch, random_state=0)
    return psk.solve(fm.fit_transform(X), y, loss=loss, alpha=0.1 / len(X))


def recommend(rounds):
    """Seconds and bytes that were predicted, over those of the fit."""
    rng = np.random.default_rng(0)
    cases = []
    for n in (10_000, 100_000, 400_000):
        (X, y), _ = common.toy(n)
        cases.append((f"toy, n={n:,}, d=10", X, y, GAMMA))
        cases.append((f"toy, n={n:,}, float32", X.astype(np.float32), y, GAMMA))
    X = rng.normal(size=(50_000, 100))
    cases.append(
        ("normal, n=50,000, d=100", X, X[:, 0] + rng.normal(size=50_000), None)
    )
    for name, X, y, gamma in cases:
        for budget in ("200 ms", "2 s", "100 MB"):
            for loss in ("huber", "squared"):
                start = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # fewer than d_n
                    try:
                        advice = theory.recommend(
                            X,
                            budget=budget,
                            gamma=gamma,
                            y=y,
                            loss=loss,
                            random_state=0,
                        )
                    except ValueError as error:
                        print(f"{name:<28}{budget:>7} {loss:<8} {error}", flush=True)
                        continue
                took = time.perf_counter() - start
                seconds, _ = least(min(rounds, 3), fit, X, y, advice, gamma, loss)
                n_bytes = peak_bytes(fit, X, y, advice, gamma, loss)
                print(
                    f"{name:<28}{budget:>7} {loss:<8} s={advice.s:<5}"
                    f"p·n={advice.p * len(X):<3.0f} predicted/measured: "
                    f"{advice.seconds:.3f}/{seconds:.3f} s = "
                    f"{advice.seconds / seconds:.2f} [0.7 to 1.5]   "
                    f"{advice.n_bytes / 1e6:.0f}/{n_bytes / 1e6:.0f} MB = "
                    f"{advice.n_bytes / n_bytes:.2f}   (advice took {took:.1f} s)",
                    flush=True,
                )


def spectrum(rounds):
    """The critical radius of many points, K never formed."""
    for n, gammas in (
        (10_000, (GAMMA, 1.0)),
        (100_000, (GAMMA, 1.0)),
        (1_000_000, (GAMMA,)),
    ):
        (X, _), _ = common.toy(n)
        for gamma in gammas:
            start = time.perf_counter()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = theory.gram_spectrum(X, gamma=gamma, random_state=0)
            seconds = time.perf_counter() - start
            radius = theory.critical_radius(found)
            low, high = radius.delta2_bounds
            print(
                f"n={n:<10,}gamma={gamma:<5g}rows {len(found.values):<6}"
                f"δ_n² in [{low:.3g}, {high:.3g}]   d_n in {radius.d_n_bounds}   "
                f"{seconds:.1f} s{'   rtol not reached' if caught else ''}",
                flush=True,
            )


PARTS = {part.__name__: part for part in (recommend, spectrum)}


if __name__ == "__main__":
    common.run_parts(PARTS, __doc__)
