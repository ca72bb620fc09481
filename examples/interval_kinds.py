"""Three calibrated intervals of the same coverage.

All are meant to contain 90 % of new points, and nearly do.  Those of one width are too
wide on the left and too narrow on the right; the others follow the scatter.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pskernels.estimators import SketchedKernelRegressor, SketchedQuantileRegressor

rng = np.random.default_rng(0)
X, X_new = rng.uniform(size=(4000, 1)), rng.uniform(size=(4000, 1))
y, y_new = (
    np.sin(6 * X[:, 0]) + (0.1 + X[:, 0] ** 2) * rng.normal(size=4000)
    for X in (X, X_new)
)
options = dict(calibration="split", gamma=10.0, random_state=0)
models = {
    "one width": SketchedKernelRegressor(**options),
    "studentised": SketchedKernelRegressor(interval_scores="studentised", **options),
    "quantiles": SketchedQuantileRegressor(quantiles=[0.05, 0.5, 0.95], **options),
}
grid = np.linspace(0, 1, 200)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    low, high = model.fit(X, y).predict_interval(X_new, coverage=0.9).T
    inside = np.mean((low <= y_new) & (y_new <= high))
    ax.plot(X_new[:1500, 0], y_new[:1500], ".", color="0.7", markersize=2)
    ends = model.predict_interval(grid[:, None], coverage=0.9).T
    ax.fill_between(grid, *ends, alpha=0.4)
    ax.set(title=f"{name}: {inside:.1%} inside", xlabel="x", ylim=(-4, 4))
axes[0].set_ylabel("y")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "interval_kinds.png", dpi=150)
