"""The paper's bounds, as functions, and the conditions under which they hold.

Names are the paper's: n points, λ_n = alpha, δ_n² = delta2, d_n, K-satisfiability with
the constant c, L the Lipschitz constant of the loss, κ a bound on the kernel.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pskernels._validation import (
    check_int,
    check_non_negative,
    check_open_probability,
    check_option,
    check_positive,
    check_probability,
)
from pskernels.losses import Loss, Squared
from pskernels.outputs import Outputs

# How far (S·U₁)ᵀ·S·U₁ of a K-satisfiable sketch may be from I.
ISOMETRY = 0.5

# C_0 of the proof of K-satisfiability, with its cover of radius 0.1, and the rate at
# which the first claim fails: 2·exp(-p²·s / 2560).
C0 = 5120
ISOMETRY_RATE = 2560


class ExcessRisk(NamedTuple):
    """A bound on the excess risk, E[ℓ(f̃_s)] - E[ℓ(f_H)].

    f̃_s is the sketched machine, f_H the best function of the kernel's space.

    Attributes
    ----------
    approximation : float
        What the sketch and the penalty cost.
    generalisation : float
        What learning from n points costs.
    confidence : float
        What the probability 1 - delta costs.
    total : float
        The sum.
    """

    approximation: float
    generalisation: float
    confidence: float
    total: float


def excess_risk_bound(
    n: int,
    delta2: float,
    alpha: float,
    c: float,
    *,
    loss: str | Loss = "lipschitz",
    L: float = 1.0,
    kappa: float = 1.0,
    output_matrix: npt.ArrayLike | None = None,
    delta: float = 0.05,
) -> ExcessRisk:
    """Evaluate the excess-risk theorems, for one output and for several.

    For a Lipschitz loss

        L·C·√(λ_n + ‖M‖·δ_n²) + λ_n/2 + 8·L·√(κ·tr(M)/n) + 2·√(8·log(4/δ)/n),

    and for the squared loss ‖z - y‖²/2

        (C² + 1/2)·λ_n + C²·‖M‖·δ_n² + 8·√tr(M)·(κ·√‖M‖ + √κ)/√n + 2·√(8·log(4/δ)/n),

    with C = 1 + √6·c, and M = 1 for one output.

    Parameters
    ----------
    n : int
    delta2 : float
        δ_n², of `critical_radius`.
    alpha : float
        λ_n, of the objective (1/n)·Σ ℓ + (λ_n/2)·‖f‖².
    c : float
        The sketch is K-satisfiable for it: `k_satisfiability` of a drawn one, or
        `satisfiability_constant` of one to be drawn.
    loss : {"lipschitz", "squared"} or Loss
    L : float
        Lipschitz constant of the loss; that of a `Loss` object is known.  Not used for
        the squared loss.
    kappa : float
        Bound on k(x, x').
    output_matrix : array of shape (d, d), optional
        M of the kernel k·M, invertible.
    delta : float in (0, 1)
        The bound holds with probability 1 - delta.

    Returns
    -------
    ExcessRisk

    Notes
    -----
    The theorems assume that

    - the true risk has a minimiser f_H in the space of the kernel,
    - f_H and all estimators have norms of at most 1; in the general case, of at most
      R, the bound is to be scaled,
    - the loss is convex in its first argument, L-Lipschitz, and, for the terms in
      1/√n, has values in [0, 1]; for the squared loss, targets lie in [0, 1], or in the
      unit ball of ℝ^d,
    - k(x, x') ≤ κ,
    - the sketch is K-satisfiable for c.

    The bound is a worst case, and far above what is measured: for a loss within [0, 1]
    it often exceeds 1, and then says nothing.  What it tells is how the risk falls with
    n, δ_n² and λ_n.

    Examples
    --------
    >>> from pskernels import theory
    >>> bound = theory.excess_risk_bound(10**6, 1e-5, 1e-5, c=1.0)
    >>> round(bound.total, 4)
    0.0353
    """
    check_int(n, "n", minimum=1)
    if isinstance(loss, Loss):
        loss, L = ("squared", L) if loss == Squared() else ("lipschitz", loss.lipschitz)
    check_option(loss, "loss", ("lipschitz", "squared"))
    for value, name in ((delta2, "delta2"), (alpha, "alpha"), (c, "c")):
        check_non_negative(value, name)
    check_positive(L, "L")
    check_positive(kappa, "kappa")
    check_open_probability(delta, "delta")
    norm, trace = _norm_and_trace(output_matrix)
    C = 1 + math.sqrt(6) * c
    if loss == "squared":
        approximation = (C**2 + 0.5) * alpha + C**2 * norm * delta2
        complexity = math.sqrt(trace) * (kappa * math.sqrt(norm) + math.sqrt(kappa))
    else:
        approximation = L * C * math.sqrt(alpha + norm * delta2) + alpha / 2
        complexity = L * math.sqrt(kappa * trace)
    terms = (
        approximation,
        8 * complexity / math.sqrt(n),
        2 * math.sqrt(8 * math.log(4 / delta) / n),
    )
    return ExcessRisk(*terms, sum(terms))


def _norm_and_trace(output_matrix: npt.ArrayLike | None) -> tuple[float, float]:
    if output_matrix is None:
        return 1.0, 1.0
    M = np.atleast_2d(np.asarray(output_matrix))
    eigenvalues = Outputs.of_matrix(M, len(M)).values
    if len(eigenvalues) < len(M):
        raise ValueError(
            f"output_matrix must be invertible, got rank {len(eigenvalues)} of {len(M)}"
        )
    return float(eigenvalues[0]), float(eigenvalues.sum())


def satisfiability_constant(p: float) -> float:
    """Compute c of p-sparsified sketches: 2/√p·(1 + √log 5) + 1.

    Parameters
    ----------
    p : float in (0, 1]

    Returns
    -------
    float

    Notes
    -----
    The proof takes the constant c' of its concentration inequality for 1.  That of
    Gaussian variables is 1/2, for which the same steps need log 25 in place of log 5;
    drawn sketches are far below either.  At p = 0.7 this is 6.4; the corollary on
    the optimal p says 9, which is more than is needed.
    """
    check_probability(p, "p")
    return 2 / math.sqrt(p) * (1 + math.sqrt(math.log(5))) + 1


def sketch_rows(n: int, delta2: float, d_n: int, p: float, *, C0: float = C0) -> int:
    """Count rows that are enough for a p-sparsified sketch: max(C_0·d_n/p², δ_n²·n).

    Parameters
    ----------
    n : int
    delta2, d_n
        Of `critical_radius`.
    p : float in (0, 1]
    C0 : float
        5120 is what the proof gives.  In practice 16 to 32 times d_n rows make most
        sketches K-satisfiable, whatever p (`python -m bench.paper theory` counts them),
        and far fewer can do for a small test error.

    Returns
    -------
    int

    Notes
    -----
    S is then K-satisfiable for `satisfiability_constant(p)`, with
    probability at least 1 - C_1·exp(-s·c(p)).  The condition is sufficient, and far
    from necessary: where p is small, p² makes it useless, and the paper recommends s as
    for Gaussian sketches and p below 1/s by experiment.
    """
    check_int(n, "n", minimum=1)
    check_non_negative(delta2, "delta2")
    check_int(d_n, "d_n", minimum=1)
    check_probability(p, "p")
    check_positive(C0, "C0")
    return math.ceil(max(C0 * d_n / p**2, delta2 * n))


def isometry_failure(s: int, d_n: int, p: float) -> float:
    """Bound the probability that ‖(S·U₁)ᵀ·S·U₁ - I‖ > 1/2: 2·exp(-p²·s/2560).

    Parameters
    ----------
    s : int
    d_n : int
    p : float in (0, 1]

    Returns
    -------
    float
        1 if s is below 5120·d_n/p², where nothing is known.

    Notes
    -----
    The first claim of K-satisfiability, whose constants the proof gives.  Those of the
    second claim, on ‖S·U₂·D₂^(1/2)‖, are not known.
    """
    check_int(s, "s", minimum=1)
    if s < sketch_rows(n=1, delta2=0.0, d_n=d_n, p=p):
        return 1.0
    return 2 * math.exp(-(p**2) * s / ISOMETRY_RATE)


def expected_landmarks(n: int, s: int, p: float) -> float:
    """Compute E[s'] = n·(1 - (1 - p)^s), the non-null columns of p-sparsified sketches.

    Parameters
    ----------
    n, s : int
    p : float in (0, 1]

    Returns
    -------
    float
    """
    check_int(n, "n", minimum=1)
    check_int(s, "s", minimum=1)
    check_probability(p, "p")
    return -n * math.expm1(s * math.log1p(-p)) if p < 1 else float(n)


def optimal_p() -> float:
    """Find the p with the fewest landmarks at guaranteed accuracy, about 0.7.

    With s = C_0·d_n/p² rows, E[s'] = n·(1 - (1 - p)^s) is least where -log(1 - p)/p²
    is, whatever C_0 and d_n.  That is a statement about the guarantee: next to all
    points are landmarks then.  In practice p = 20/n, the default of `PSparsified`, is
    far cheaper and hardly less accurate.

    Returns
    -------
    float

    Examples
    --------
    >>> from pskernels import theory
    >>> round(theory.optimal_p(), 4)
    0.7153
    """
    from scipy.optimize import minimize_scalar  # slow to import

    return float(
        minimize_scalar(
            lambda p: -math.log1p(-p) / p**2,
            bounds=(0.01, 0.99),
            method="bounded",
            options=dict(xatol=1e-9),
        ).x
    )


@dataclass(frozen=True)
class Regime:
    """How the numbers of the theory grow with n for a kernel, up to constants.

    Each is a function of n, a number or an array.  `REGIMES` has those of the paper,
    for points in one dimension: "gaussian" (eigenvalues fall like exp(-b·j²)),
    "polynomial" (of degree D: D + 1 eigenvalues) and "sobolev" (of first order: like
    j⁻²).

    Attributes
    ----------
    delta2 : callable
        δ_n².
    d_n : callable
        The statistical dimension, to which the rows of a sketch are in proportion.

    Examples
    --------
    >>> from pskernels import theory
    >>> sobolev = theory.REGIMES["sobolev"]
    >>> float(sobolev.d_n(1000)), round(float(sobolev.rate(1000)), 3)
    (10.0, 0.1)
    """

    delta2: Callable[[Any], Any]
    d_n: Callable[[Any], Any]

    def rows(self, n: Any, p: float) -> Any:
        """Compute the rows that a p-sparsified sketch needs."""
        return self.d_n(n) / p**2

    def rate(self, n: Any) -> Any:
        """Compute the rate of the excess risk, for a Lipschitz loss."""
        return np.sqrt(self.delta2(n))


REGIMES = {
    "gaussian": Regime(
        delta2=lambda n: np.sqrt(np.log(n)) / n, d_n=lambda n: np.sqrt(np.log(n))
    ),
    "polynomial": Regime(
        delta2=lambda n: np.power(n, -1.0), d_n=lambda n: np.power(n, 0.0)
    ),
    "sobolev": Regime(delta2=lambda n: np.power(n, -2 / 3), d_n=np.cbrt),
}
