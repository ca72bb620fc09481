"""A metric that finds the columns that matter, round by round.

Of twelve features three matter.  All begin with the same importance.  After the first
round nine have none, and later rounds find the product of two of the others.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pskernels.estimators import MetricDisplay, SketchedKernelRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 12))
y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.5 * X[:, 2] ** 2 + 0.1 * rng.normal(size=3000)
model = SketchedKernelRegressor(metric="learn", random_state=0).fit(X, y)

figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
display = MetricDisplay.from_estimator(model, max_features=8, ax=axes)
for line in display.lines_[3:]:
    line.set_color("0.7")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "learnt_metric.png", dpi=150)
