"""``python -m pskernels demo``: machines for several losses, on toy data."""

import time
from typing import TYPE_CHECKING

import numpy as np

from pskernels._types import Array
from pskernels.feature_map import FeatureMap
from pskernels.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Pinball,
    Squared,
)
from pskernels.metrics import coverage, crossing_loss
from pskernels.quantiles import solve_quantiles
from pskernels.sketches import PSparsified
from pskernels.solvers import solve

if TYPE_CHECKING:
    from pskernels.solvers.base import SolveResult

ALPHA = 1e-6
GAMMA = 0.1
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9)


def toy_data(n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw ten features, and √n points in a far cluster whose targets are huge."""
    X = rng.uniform(size=(n, 10))
    rare = rng.choice(n, size=int(np.sqrt(n)), replace=False)
    X[rare] = rng.normal(1.5, 0.25, size=(len(rare), 10))
    y = 0.1 * np.exp(4 * X[:, 0]) + 4 / (1 + np.exp(-20 * (X[:, 1] - 0.5)))
    return X, y + X[:, 2:5] @ [3, 2, 1] + rng.normal(size=n)


def run(n: int, s: int, n_threads: int | None) -> None:
    """Train with every loss, and print times, certificates and test scores."""
    rng = np.random.default_rng(0)
    X, y = toy_data(n, rng)
    X_test, y_test = toy_data(n, rng)
    start = time.perf_counter()
    feature_map = FeatureMap(
        gamma=GAMMA, sketch=PSparsified(s), random_state=0, n_threads=n_threads
    )
    Z = feature_map.fit_transform(X)
    seconds = time.perf_counter() - start
    print(
        f"n={n:,} points, s={s} rows of the sketch, "
        f"{len(feature_map.sketch_.indices):,} landmarks: "
        f"{Z.shape[1]} features in {1e3 * seconds:.0f} ms\n"
    )
    print(f"{'loss':<34}{'ms':>7}{'steps':>7}{'certified gap':>15}   on new points")
    for loss in (
        Squared(),
        Huber(1.0),
        Absolute(),
        EpsilonInsensitive(0.5),
        Pinball(0.1),
        Pinball(0.9),
        Hinge(),
        Logistic(),
    ):
        threshold = float(np.median(y))
        target = np.where(y > threshold, 1.0, -1.0) if loss.classification else y
        start = time.perf_counter()
        model = solve(Z, target, loss=loss, alpha=ALPHA, n_threads=n_threads)
        seconds = time.perf_counter() - start
        predicted = feature_map.predict(X_test, model.coef, model.intercept)
        score = _score(loss, predicted, y_test, threshold)
        _print_line(str(loss), seconds, model, score)
    start = time.perf_counter()
    joint = solve_quantiles(Z, y, quantiles=LEVELS, alpha=ALPHA, n_threads=n_threads)
    seconds = time.perf_counter() - start
    predicted = feature_map.predict(X_test, joint.coef, joint.intercept)
    inside = coverage(y_test, predicted[:, 0], predicted[:, -1])
    score = f"{inside:.1%} from 10 % to 90 %, crossing {crossing_loss(predicted):.1e}"
    _print_line(f"{len(LEVELS)} quantiles at once", seconds, joint, score)


def _print_line(name: str, seconds: float, model: "SolveResult", score: str) -> None:
    print(
        f"{name:<34}{1e3 * seconds:>7.1f}{model.n_iter:>7}{model.dual_gap:>15.1e}"
        f"   {score}",
        flush=True,
    )


def _score(loss: Loss, predicted: Array, y: Array, threshold: float) -> str:
    if loss.classification:
        right = np.mean((predicted > 0) == (y > threshold))
        return f"{right:.1%} of the classes right"
    if isinstance(loss, Pinball):
        return f"{np.mean(y <= predicted):.1%} of the targets below"
    return f"median error {np.median(np.abs(predicted - y)):.3f}"
