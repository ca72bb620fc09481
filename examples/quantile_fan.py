"""Nine quantiles of one target, none of which cross.

The fan opens where the scatter grows, and is lopsided where the noise is.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pskernels.estimators import SketchedQuantileRegressor

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(0, 10, size=3000))
y = np.sin(x) * x / 4 + (0.1 + 0.15 * x) * (rng.gamma(2, size=3000) - 2)
levels = np.linspace(0.1, 0.9, 9)
model = SketchedQuantileRegressor(quantiles=levels, gamma=0.3, random_state=0)
model.fit(x[:, None], y)
grid = np.linspace(0, 10, 300)
q = model.predict(grid[:, None])

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.plot(x, y, ".", color="0.5", markersize=1, zorder=3)
for k in range(4):
    label = f"{levels[k]:.0%} to {levels[-1 - k]:.0%}"
    shade = plt.cm.Blues(0.2 + 0.15 * k)
    axes.fill_between(grid, q[:, k], q[:, -1 - k], color=shade, label=label)
axes.plot(grid, q[:, 4], color="C3", label="median", zorder=4)
axes.set(xlabel="x", ylabel="y", ylim=(-5, 9))
axes.legend(loc="upper left", frameon=False)

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "quantile_fan.png", dpi=150)
