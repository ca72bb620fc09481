"""How many rows a sketch needs, by the theory.

Eigenvalues of K/n of three kernels, and where each falls below its critical radius:
so many directions, d_n, can be learnt from 5,000 points.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import pskernels as psk
from pskernels import theory

X = np.random.default_rng(0).normal(size=(5000, 3))
kernels = {
    "rbf, gamma = 0.1": psk.RBF(0.1),
    "rbf, gamma = 0.5": psk.RBF(0.5),
    "Matérn 3/2": psk.Matern(0.5, nu=1.5),
}
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for k, (name, kernel) in enumerate(kernels.items()):
    spectrum = theory.gram_spectrum(X, kernel=kernel, random_state=0)
    radius = theory.critical_radius(spectrum)
    values = spectrum.values
    label = f"{name}: d_n = {radius.d_n}"
    axes.loglog(np.arange(1, len(values) + 1), values, color=f"C{k}", label=label)
    axes.plot(radius.d_n, radius.delta2, "o", color=f"C{k}")
axes.set(xlabel="number of the eigenvalue", ylabel="eigenvalue of K/n", ylim=(1e-7, 1))
axes.legend(loc="lower left", frameon=False)

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "statistical_dimension.png", dpi=150)
