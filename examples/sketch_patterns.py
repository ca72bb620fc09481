"""What sketches look like: 30 rows, 300 points.

Colours are the signs of the entries.  Only points with a non-null column, the
landmarks, meet the kernel: all of them for dense sketches, few for sparse ones.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import pskernels as psk

sketches = {
    "Gaussian": psk.Gaussian(30),
    "CountSketch": psk.CountSketch(30),
    "p-sparsified, p = 0.02": psk.PSparsified(30, 0.02),
    "p-sparsified, p = 0.005": psk.PSparsified(30, 0.005),
    "sub-sampling (Nyström)": psk.SubSampling(30),
}
figure, axes = plt.subplots(5, 1, figsize=(8, 6), sharex=True, layout="constrained")
for ax, (name, sketch) in zip(axes, sketches.items(), strict=True):
    S = sketch.draw(300, random_state=0)
    dense = S.to_dense()
    largest = np.abs(dense).max()
    ax.imshow(
        dense, cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto",
        interpolation="nearest",
    )  # fmt: skip
    ax.set_title(f"{name}: {len(S.indices)} landmarks", fontsize=10, loc="left")
    ax.set_yticks([0, 29], ["1", "30"])
axes[-1].set_xlabel("point")
figure.supylabel("row of S")

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
figure.savefig(folder / "sketch_patterns.png", dpi=150)
