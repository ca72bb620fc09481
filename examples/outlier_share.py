"""How much nonsense a fit can bear, by its loss.

Wild values are all on one side.  Least squares leave the curve at once, Huber's loss
follows more slowly, and the median holds longest.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pskernels.estimators import SketchedKernelRegressor

rng = np.random.default_rng(0)
X = rng.uniform(size=(3000, 1))
truth = np.sin(6 * X[:, 0]) + 0.5 * np.cos(17 * X[:, 0])
noise, wild = 0.1 * rng.normal(size=3000), rng.exponential(5, size=3000)
order = rng.uniform(size=3000)  # a point is wild if this is below the share
shares = np.linspace(0, 0.45, 10)

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for loss in ("squared", "huber", "absolute"):
    errors = []
    for share in shares:
        y = truth + noise + np.where(order < share, wild, 0)
        model = SketchedKernelRegressor(loss=loss, gamma=30.0, random_state=0)
        errors.append(np.abs(model.fit(X, y).predict(X) - truth).mean())
    axes.semilogy(100 * shares, errors, "o-", markersize=4, label=loss)
axes.set(xlabel="wild values, percent", ylabel="mean distance to the curve")
axes.legend(title="loss")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "outlier_share.png", dpi=150)
