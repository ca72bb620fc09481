"""Fit and predict at random for an hour, and watch the resident memory.

    python tests/soak.py [minutes] [graph.png]

Prints the growth from the second tenth of the time to the last one, and fails if it is
1 % or more.  Sizes, losses, sketches, kernels, types and threads are drawn at random;
some fits are refused or interrupted on purpose, since what they leave behind counts.
"""

import gc
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import pskernels as psk
from pskernels.estimators import (
    KernelSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
    load,
)

ALLOWED_GROWTH = 0.01
KERNELS = ("rbf", "laplacian", "matern12", "matern52", "polynomial", "cosine")
SKETCHES = ("p-sr", "p-sg", "nystroem", "accumulation", "count-sketch", "gaussian")


def resident_bytes():
    with open("/proc/self/statm") as file:
        return 4096 * int(file.read().split()[1])


def draw_points(rng):
    n, d = int(rng.integers(20, 3000)), int(rng.integers(1, 30))
    X = rng.normal(size=(n, d)).astype(rng.choice([np.float32, np.float64]))
    if rng.random() < 0.2:
        return sp.csr_array(np.where(rng.random(X.shape) < 0.1, X, 0))
    return np.asfortranarray(X) if rng.random() < 0.2 else X


def draw_model(rng):
    shared = dict(
        kernel=str(rng.choice(KERNELS)),
        sketch=str(rng.choice(SKETCHES)),
        n_components=int(rng.integers(5, 120)),
        n_threads=int(rng.integers(1, 4)),
        random_state=int(rng.integers(1000)),
    )
    losses = ("huber", "epsilon_insensitive", "pinball", "absolute", "squared")
    return [
        lambda: KernelSketch(**shared),
        lambda: SketchedKernelRegressor(loss=str(rng.choice(losses)), **shared),
        lambda: SketchedQuantileRegressor(quantiles=[0.2, 0.8], **shared),
        lambda: SketchedKernelClassifier(loss="logistic", **shared),
        lambda: SketchedKernelRegressorCV(alphas=[1e-2, 1e-4], cv=2, **shared),
        lambda: SketchedKernelRegressor(n_components="auto", random_state=0),
    ][rng.integers(6)]()


def one_round(rng, folder):
    """Fit, predict, save and load, or fail on purpose."""
    X, model = draw_points(rng), draw_model(rng)
    y = rng.normal(size=X.shape[0])
    if isinstance(model, SketchedKernelClassifier):
        y = rng.integers(3, size=len(y))
    if rng.random() < 0.1:
        y = y.astype(float)
        y[0] = np.nan  # refused
    try:
        model.fit(X, y)
    except ValueError:
        return
    method = "predict" if hasattr(model, "predict") else "transform"
    expected = getattr(model, method)(X)
    if rng.random() < 0.3:
        path = folder / "model.npz"
        model.save(path)
        np.testing.assert_array_equal(getattr(load(path), method)(X), expected)
    if rng.random() < 0.3 and not sp.issparse(X):
        psk.sketch_gram(X, 20, sketch=None, random_state=0)


def soak(minutes, seed=0):
    """(seconds, resident bytes) of about a thousand moments."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    began, record = time.monotonic(), []
    n_rounds, pause = 0, 60 * minutes / 1000
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < began + 60 * minutes:
            one_round(rng, Path(folder))
            n_rounds += 1
            now = time.monotonic() - began
            if not record or now >= record[-1][0] + pause:
                gc.collect()
                record.append((now, resident_bytes()))
    print(f"{n_rounds} rounds in {minutes} minutes, seed {seed}")
    return np.array(record)


def plot(record, path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(record[:, 0] / 60, record[:, 1] / 2**20, linewidth=0.8)
    axes.set(xlabel="minutes", ylabel="resident MB", ylim=(0, None))
    figure.savefig(path, dpi=120)


def main(minutes=60.0, path=None):
    record = soak(float(minutes))
    if path is not None:
        plot(record, path)
    tenth = max(1, len(record) // 10)
    # the first tenth warms caches and pools up
    early = np.median(record[tenth : 2 * tenth, 1])
    late = np.median(record[-tenth:, 1])
    growth = late / early - 1
    print(f"{early / 2**20:.1f} MB, then {late / 2**20:.1f} MB: {growth:+.2%}")
    return 0 if growth < ALLOWED_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
