"""What sub-sampling misses, and a p-sparsified sketch does not.

Data that are made for it: one point in two hundred lies in a far cluster.  Of Nyström's
60 landmarks one or none is there; each row of the other sketch mixes twenty points.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pskernels.estimators import SketchedKernelRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(10_000, 2))
rare = rng.uniform(size=10_000) < 0.005
X[rare] = 0.5 * X[rare] + [5, 4]
y = np.sin(2 * X[:, 0]) + np.where(rare, 4 * np.cos(2 * X[:, 1]), 0)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
sketches = {"Nyström": dict(sketch="nystroem"), "p-sparsified": dict(p=20 / 10_000)}
for ax, (name, options) in zip(axes, sketches.items(), strict=True):
    model = SketchedKernelRegressor(
        n_components=60, gamma=0.7, alpha=1e-6, random_state=0, **options
    ).fit(X, y)
    errors = np.abs(model.predict(X) - y)
    shown = ax.scatter(*X.T, c=errors, s=4, cmap="viridis_r", vmin=0, vmax=3)
    ax.plot(*model.landmarks_.T, "k.", markersize=2, label="landmarks")
    title = f"{name}, 60 rows\nmean error in the cluster: {errors[rare].mean():.2f}"
    ax.set(title=title, xlabel="first feature")
axes[0].set_ylabel("second feature")
axes[0].legend(loc="lower right", markerscale=3)
figure.colorbar(shown, ax=axes, label="error")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "rare_cluster.png", dpi=150)
