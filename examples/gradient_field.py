"""Slopes of what was learnt, exactly.

Arrows are gradients of the prediction: they point uphill, across the contours.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pskernels.estimators import SketchedKernelRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-2, 2, size=(4000, 2))
y = X[:, 0] * np.exp(-(X**2).sum(axis=1)) + 0.02 * rng.standard_t(2, size=4000)
model = SketchedKernelRegressor(gamma=1.0, random_state=0).fit(X, y)

line, coarse = np.linspace(-2, 2, 120), np.linspace(-1.9, 1.9, 20)
grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
points = np.stack(np.meshgrid(coarse, coarse), axis=-1).reshape(-1, 2)
surface = model.predict(grid).reshape(120, 120)
slopes = model.predict_gradient(points)

figure, axes = plt.subplots(figsize=(6.4, 5.4), layout="constrained")
shown = axes.contourf(line, line, surface, levels=15, cmap="RdBu_r")
axes.quiver(*points.T, *slopes.T, scale=11, width=0.004)
axes.set(xlabel="first feature", ylabel="second feature", aspect="equal")
figure.colorbar(shown, label="prediction", shrink=0.9)

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "gradient_field.png", dpi=150)
