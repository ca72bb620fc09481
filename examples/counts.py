"""Counts need a loss of their own.

Bicycles at a counter, by the hour: squares let the busy hours decide, wobble at night
and fall below 0; the mean of the Poisson loss is always positive.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pskernels.estimators import SketchedKernelRegressor

rng = np.random.default_rng(0)
hour = rng.uniform(0, 24, size=300)
mean = 600 * np.exp(-((hour - 8) ** 2) / 2) + 500 * np.exp(-((hour - 17.5) ** 2) / 3)
counts = rng.poisson(mean + 0.5)
grid = np.linspace(0, 24, 400)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for ax in axes:
    ax.plot(hour, counts, ".", color="0.75", markersize=3, label="counted")
    for loss in ("squared", "poisson"):
        model = SketchedKernelRegressor(loss=loss, gamma=1.0, random_state=0)
        model.fit(hour[:, None], counts)
        ax.plot(grid, model.predict(grid[:, None]), label=loss)
    ax.axhline(0, color="0.4", linewidth=0.8)
    ax.set(xlabel="hour", ylabel="bicycles", xticks=range(0, 25, 4))
axes[0].legend(frameon=False)
axes[1].set(xlim=(0, 6), ylim=(-5, 25), xticks=range(7), title="the same, at night")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "counts.png", dpi=150)
