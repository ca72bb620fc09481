"""How fast the certified gap falls, for six losses.

Each mark is a Newton step.  The gap is a bound on what is left to gain, relative to
the objective; fits stop at 1e-6, the dashed line.  (A gap of 0, the last one of Huber's
loss, has no place on this axis.)
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import pskernels as psk

rng = np.random.default_rng(0)
X = rng.uniform(size=(10_000, 5))
y = np.sin(5 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_t(2, size=10_000)
Z = psk.FeatureMap(sketch=psk.PSparsified(100), random_state=0).fit_transform(X)
losses = [
    psk.Huber(0.1),
    psk.Absolute(),
    psk.EpsilonInsensitive(0.1),
    psk.Pinball(0.9),
    psk.Hinge(),
    psk.Logistic(),
]
results = {}
for loss in losses:
    target = np.where(y > 1, 1.0, -1.0) if loss.classification else y
    results[str(loss)] = psk.solve(Z, target, loss=loss, alpha=1e-6)

figure, axes = plt.subplots(figsize=(7.5, 4), layout="constrained")
psk.plot_convergence(results, x="iterations", ax=axes)
axes.set_ylim(1e-8, 1e3)
axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "certificates.png", dpi=150)
