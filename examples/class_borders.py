"""Three spirals, and how sure a machine is of each.

Colours fade where the largest probability falls: along the borders between classes.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from pskernels.estimators import SketchedKernelClassifier

rng = np.random.default_rng(0)
labels = np.repeat([0, 1, 2], 500)
radius = rng.uniform(0.2, 1, size=1500)
angle = 5 * radius + labels * 2 * np.pi / 3 + 0.25 * rng.normal(size=1500)
X = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
model = SketchedKernelClassifier(loss="logistic", gamma=10.0, random_state=0)
model.fit(X, labels)

line = np.linspace(-1.15, 1.15, 200)
grid = np.stack(np.meshgrid(line, line), axis=-1)
p = model.predict_proba(grid.reshape(-1, 2)).reshape(200, 200, 3)
colours = np.array([[0.12, 0.47, 0.71], [1.0, 0.5, 0.05], [0.17, 0.63, 0.17]])
sure = ((p.max(axis=2) - 1 / 3) * 1.5)[:, :, None]
shades = 1 - 0.6 * sure * (1 - colours[p.argmax(axis=2)])

figure, axes = plt.subplots(figsize=(5.5, 5.5), layout="constrained")
axes.imshow(shades, origin="lower", extent=(-1.15, 1.15, -1.15, 1.15))
axes.scatter(*X.T, c=colours[labels], s=8, edgecolor="white", linewidth=0.3)
axes.set(xlabel="first feature", ylabel="second feature")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "class_borders.png", dpi=150)
