"""The theory in numbers: regimes of kernels, K-satisfiability, the best p."""

from functools import partial

import numpy as np

import pskernels as psk
from bench.paper.runs import Row, Unit
from pskernels import theory

# Points in one dimension, uniform.
REGIMES = {
    "gaussian": dict(kernel="rbf", gamma=2.0),
    "polynomial": dict(kernel=psk.Polynomial(gamma=1.0, degree=3)),
    "sobolev": dict(kernel="sobolev"),
}
SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000)

SATISFIABLE_N = 1000
ROWS_PER_DIMENSION = (1, 2, 4, 8, 16, 32)
PROBABILITIES = (0.02, 0.1, 0.7, 1.0)

# C_0·d_n of the trade-off; the best p does not depend on it.
CONSTANTS = (0.5, 2.0)
GRID = np.linspace(0.05, 0.99, 189)


def units(replicates, quick):
    draws = 30 if quick else 10 * replicates
    return [
        *(
            Unit(f"theory/regime/{name}/{n}", partial(measure_regime, name, n))
            for name in REGIMES
            for n in SIZES
        ),
        *(
            Unit(
                f"theory/satisfiability/{p}/{draws}",
                partial(count_satisfiable, p, draws),
            )
            for p in PROBABILITIES
        ),
        Unit("theory/tradeoff", trade_off),
    ]


def _row(case, sketch, s, metric, value):
    return Row("theory", case, "", sketch, s, 0, metric, float(value))


def points(n):
    return np.random.default_rng(0).uniform(size=(n, 1))


def measure_regime(name, n):
    """δ_n² and d_n of a kernel; s holds n."""
    options = REGIMES[name]
    spectrum = theory.gram_spectrum(points(n), random_state=0, **options)
    radius = theory.critical_radius(spectrum)
    low, high = radius.delta2_bounds
    numbers = dict(delta2=radius.delta2, d_n=radius.d_n, low=low, high=high)
    return [_row(name, "", n, metric, value) for metric, value in numbers.items()]


def count_satisfiable(p, draws):
    """How often sketches of a few times d_n rows are K-satisfiable."""
    X = points(SATISFIABLE_N)
    spectrum = theory.gram_spectrum(X, kernel="sobolev")
    d_n = theory.critical_radius(spectrum).d_n
    c = theory.satisfiability_constant(p)
    rows = []
    for multiple in ROWS_PER_DIMENSION:
        s = multiple * d_n
        results = [
            theory.k_satisfiability(
                psk.PSparsified(s, p).draw(SATISFIABLE_N, random_state=k),
                X,
                kernel="sobolev",
                spectrum=spectrum,
            )
            for k in range(draws)
        ]
        numbers = dict(
            holds=np.mean([result.holds(c) for result in results]),
            isometry=np.mean([result.isometry for result in results]),
            c=np.max([result.c for result in results]),
            landmarks=theory.expected_landmarks(SATISFIABLE_N, s, p),
        )
        rows += [
            _row("satisfiability", f"p = {p:g}", s, metric, value)
            for metric, value in numbers.items()
        ]
    return rows


def landmark_share(constant):
    """E[s']/n on the grid of p, with s = constant/p² rows."""
    return 1 - (1 - GRID) ** (constant / GRID**2)


def trade_off():
    """The p with the fewest landmarks, in closed form and on the grid."""
    rows = [_row("tradeoff", "", 0, "best p", theory.optimal_p())]
    for constant in CONSTANTS:
        best = GRID[np.argmin(landmark_share(constant))]
        rows.append(_row("tradeoff", f"C0·d_n = {constant:g}", 0, "best p", best))
    return rows
