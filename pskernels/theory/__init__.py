"""The paper's theory as tools: how large a sketch must be, and what it costs.

spectrum        gram_spectrum, critical_radius: δ_n² and d_n, from data or eigenvalues
satisfiability  k_satisfiability of a drawn sketch
bounds          excess_risk_bound, sketch_rows, …: the theorems; REGIMES
advice          recommend: s and p for a budget of time or memory
"""

from pskernels.theory.advice import Recommendation, recommend
from pskernels.theory.bounds import (
    REGIMES,
    ExcessRisk,
    Regime,
    excess_risk_bound,
    expected_landmarks,
    isometry_failure,
    optimal_p,
    satisfiability_constant,
    sketch_rows,
)
from pskernels.theory.satisfiability import KSatisfiability, k_satisfiability
from pskernels.theory.spectrum import (
    CriticalRadius,
    Spectrum,
    critical_radius,
    gram_spectrum,
)

__all__ = [
    "REGIMES",
    "CriticalRadius",
    "ExcessRisk",
    "KSatisfiability",
    "Recommendation",
    "Regime",
    "Spectrum",
    "critical_radius",
    "excess_risk_bound",
    "expected_landmarks",
    "gram_spectrum",
    "isometry_failure",
    "k_satisfiability",
    "optimal_p",
    "recommend",
    "satisfiability_constant",
    "sketch_rows",
]
