"""What the paper printed, and how its experiments were run.

T. El Ahmad, P. Laforgue, F. d'Alché-Buc, "Fast Kernel Methods for Generic Lipschitz
Losses via p-Sparsified Sketches", TMLR, 2023, and the settings of its authors' public
scripts.
"""

import csv
from typing import NamedTuple

import numpy as np

from bench.benchmarks.datasets import find

REPLICATES = 30
FOLDS = 5
# Inferred from the chosen values, which lie on them exactly.
ALPHAS = np.logspace(-8, 3, 20)
GAMMAS = np.logspace(-7, 2, 20)
TUBES = np.logspace(-2, 2, 7)  # kappa, or epsilon


class Curve(NamedTuple):
    """A line of the paper's figures."""

    s: np.ndarray
    mean: np.ndarray
    sd: np.ndarray


def curves():
    """{(quantity, loss, plot, sketch): Curve}, of paper_fig_curves.csv.

    quantity is "mse" or "time", loss "k-huber" or "e-svr", plot "SR" or "SG".  Empty
    if there is no such file.
    """
    points = {}
    try:
        path = find("paper_fig_curves.csv")
    except FileNotFoundError:
        return {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            key = (row["quantity"], row["loss"], row["plot"], row["sketch"])
            values = (int(row["s"]), float(row["mean"]), float(row["sd"]))
            points.setdefault(key, []).append(values)
    return {key: Curve(*np.array(sorted(rows)).T) for key, rows in points.items()}


class Printed(NamedTuple):
    """A cell of a table; ± is half the standard deviation in all of them."""

    value: float
    half_sd: float | None = None

    def __str__(self):
        if self.half_sd is None:
            return f"{self.value:g}"
        return f"{self.value:g} ± {self.half_sd:g}"


TABLE_SKETCHES = ("none", "p-SR", "p-SG", "Accumulation", "CountSketch")


def _row(*cells):
    return {
        sketch: Printed(*cell)
        for sketch, cell in zip(TABLE_SKETCHES, cells, strict=True)
    }


# {(data set, metric): {sketch: Printed}}
TABLE1 = {
    ("boston", "pinball"): _row(
        (51.28, 0.67), (54.75, 0.74), (54.78, 0.72), (54.73, 0.75), (54.60, 0.72)
    ),
    ("boston", "crossing"): _row(
        (0.34, 0.13), (0.26, 0.08), (0.11, 0.07), (0.15, 0.07), (0.10, 0.05)
    ),
    ("boston", "seconds"): _row(
        (6.97, 0.25), (1.43, 0.07), (1.38, 0.08), (1.48, 0.05), (1.23, 0.07)
    ),
    ("otoliths", "pinball"): _row(
        (2.78,), (2.66, 0.02), (2.64, 0.02), (2.67, 0.03), (2.65, 0.02)
    ),
    ("otoliths", "crossing"): _row(
        (5.18,), (5.46, 0.06), (5.43, 0.05), (5.46, 0.06), (5.44, 0.05)
    ),
    ("otoliths", "seconds"): _row(
        (606.8,), (20.4, 0.5), (20.0, 0.3), (22.1, 0.4), (20.9, 0.3)
    ),
}
# The best pinball loss on Boston that was published (Sangnier et al., 2016).
BEST_BOSTON = 47.4

TABLE2 = {
    ("rf1", "arrmse"): _row(
        (0.575,), (0.584, 0.003), (0.583, 0.003), (0.592, 0.001), (0.575, 0.0005)
    ),
    ("rf1", "seconds"): _row(
        (1.73,), (0.22, 0.025), (0.25, 0.005), (0.60, 0.0004), (0.66, 0.013)
    ),
    ("rf2", "arrmse"): _row(
        (0.578,), (0.671, 0.009), (0.656, 0.006), (0.796, 0.006), (0.715, 0.011)
    ),
    ("rf2", "seconds"): _row(
        (1.77,), (0.28, 0.003), (0.27, 0.003), (0.82, 0.003), (0.62, 0.001)
    ),
    ("scm1d", "arrmse"): _row(
        (0.418,), (0.422, 0.002), (0.423, 0.001), (0.423, 0.001), (0.420, 0.001)
    ),
    ("scm1d", "seconds"): _row(
        (9.36,), (0.45, 0.022), (0.45, 0.019), (0.86, 0.006), (2.49, 0.035)
    ),
    ("scm20d", "arrmse"): _row(
        (0.755,), (0.754, 0.003), (0.754, 0.003), (0.753, 0.001), (0.754, 0.002)
    ),
    ("scm20d", "seconds"): _row(
        (6.16,), (0.38, 0.016), (0.38, 0.017), (0.70, 0.032), (1.91, 0.047)
    ),
}

# --------------------------------------------------------------------------
# Settings of Table 2: the same for all four data sets
# --------------------------------------------------------------------------

TABLE2_ROWS = 100
ROW_ENTRIES = 20  # p = 20/n, and m of the accumulation
_SPARSIFIED = (2.976351441631319e-07, 1.6237767391887243e-03)
_ACCUMULATED = (2.6366508987303555e-06, 5.455594781168515e-07)
# (gamma, λ as printed); those of the CountSketch were not published, and the ones of
# the accumulation give its column
TABLE2_SETTINGS = {
    "none": (7.847599703514607e-06, 2.06913808111479e-06),
    "p-SR": _SPARSIFIED,
    "p-SG": _SPARSIFIED,
    "Accumulation": _ACCUMULATED,
    "CountSketch": _ACCUMULATED,
}


def effective_alpha(printed, p):
    """λ as the scripts used it.

    They scale S·K·Sᵀ of p-sparsified sketches by p/s in place of 1/(s·p), so that it is
    too small by p², and λ, in effect, too.
    """
    return printed * p**2


# --------------------------------------------------------------------------
# Settings of Table 1
# --------------------------------------------------------------------------

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
TABLE1_ROWS = 50
BOSTON_SPLITS = 10
BOSTON_TRAIN = 354


class QuantileSetting(NamedTuple):
    gamma: float
    alpha: float
    coupling: float  # gamma of quantile_matrix


# Those of Boston were not published; these give the paper's accuracy or better.
TABLE1_SETTINGS = {
    "boston": dict.fromkeys(TABLE_SKETCHES, QuantileSetting(0.01, 1e-4, 0.1)),
    "otoliths": {
        "none": QuantileSetting(0.1, 1e-4, 3.162),
        "p-SR": QuantileSetting(0.1, 1e-4, 10.0),
        "p-SG": QuantileSetting(0.1, 1e-4, 10.0),
        "Accumulation": QuantileSetting(0.1, 1e-6, 10.0),
        "CountSketch": QuantileSetting(0.1, 1e-6, 10.0),
    },
}
