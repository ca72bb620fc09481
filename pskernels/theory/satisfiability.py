"""K-satisfiability: whether a drawn sketch keeps what matters of K."""

import math
from typing import Any, NamedTuple

import numpy as np

from pskernels._types import KernelLike, Points
from pskernels._validation import check_points
from pskernels.gram import sketch_gram
from pskernels.kernels import is_precomputed
from pskernels.sketches import Sketch
from pskernels.theory.bounds import ISOMETRY
from pskernels.theory.spectrum import Spectrum, critical_radius, gram_spectrum


class KSatisfiability(NamedTuple):
    """What `k_satisfiability` returns.

    Attributes
    ----------
    isometry : float
        ‖(S·U₁)ᵀ·S·U₁ - I‖, to be at most 1/2.
    tail : float
        ‖S·U₂·D₂^(1/2)‖, to be at most c·δ_n.
    c : float
        tail / δ_n, the least constant that will do.
    delta2, d_n
        Of `critical_radius`.
    """

    isometry: float
    tail: float
    c: float
    delta2: float
    d_n: int

    def holds(self, c: float) -> bool:
        """Tell whether the sketch is K-satisfiable for the constant c.

        `satisfiability_constant(p)` is the one that p-sparsified sketches are promised
        to have.  A sketch that is not wants more rows.
        """
        return self.isometry <= ISOMETRY and self.c <= c


def k_satisfiability(
    sketch: Sketch,
    X: Points,
    *,
    kernel: KernelLike = "rbf",
    gamma: float | str | None = None,
    spectrum: Spectrum | None = None,
    n_threads: int | None = None,
) -> KSatisfiability:
    """Compute both norms of K-satisfiability, and the constant c, of a drawn sketch.

    With K/n = U·D·Uᵀ, U₁ the first d_n eigenvectors, U₂ the others and D₂ the
    eigenvalues of those, S is K-satisfiable for c if

        ‖(S·U₁)ᵀ·S·U₁ - I‖ ≤ 1/2   and   ‖S·U₂·D₂^(1/2)‖ ≤ c·δ_n:

    it is an isometry on the eigenvectors that matter, and small on the others.

    Parameters
    ----------
    sketch : Sketch
        Drawn for the points.
    X : array of shape (n, d)
        With ``kernel="precomputed"``, K itself.
    kernel, gamma, n_threads
        As for `sketch_gram`.
    spectrum : Spectrum, optional
        Of `gram_spectrum` for the same points, kernel and gamma, which is not checked;
        computed by default.  Give it to look at many sketches.

    Returns
    -------
    KSatisfiability

    Notes
    -----
    No more of U₁ is needed than its rows at the landmarks, and U₂ not at all:

        S·U₂·D₂·U₂ᵀ·Sᵀ = S·K·Sᵀ/n - (S·U₁)·D₁·(S·U₁)ᵀ.

    So K is not formed, unless by `gram_spectrum` for few points.  If the spectrum is
    from a sketch, U₁ and D₁ are approximate, and so are the norms.  Eigenvectors of
    eigenvalues that are 0, but for rounding errors, are left out of U₁: any others
    would do as well.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> from pskernels import theory
    >>> X = np.random.default_rng(0).uniform(size=(500, 2))
    >>> sketch = psk.PSparsified(60, 0.7).draw(500, random_state=0)
    >>> result = theory.k_satisfiability(sketch, X, gamma=1.0)
    >>> result.holds(theory.satisfiability_constant(0.7))
    True
    """
    if not isinstance(sketch, Sketch):
        raise TypeError(
            f"sketch must be drawn, got {type(sketch).__name__}: call its draw(n)"
        )
    n = sketch.shape[1]
    X = check_points(X, "X", accept_sparse=not is_precomputed(kernel))
    if X.shape[0] != n:
        raise ValueError(f"the sketch was drawn for {n} points, but X has {X.shape[0]}")
    options: dict[str, Any] = dict(kernel=kernel, gamma=gamma, n_threads=n_threads)
    if spectrum is None:
        spectrum = gram_spectrum(X, random_state=0, **options)
    elif not isinstance(spectrum, Spectrum):
        raise TypeError(
            f"spectrum must be that of gram_spectrum, got {type(spectrum).__name__}"
        )
    if spectrum.n != n:
        raise ValueError(
            f"the sketch was drawn for {n} points, but the spectrum is of {spectrum.n}"
        )
    radius = critical_radius(spectrum)
    if radius.delta2 == 0:
        raise ValueError("K is 0: there is nothing that a sketch could keep")
    values = spectrum.values
    rank = int(np.count_nonzero(values > n * np.finfo(values.dtype).eps * values[0]))
    d_n = min(radius.d_n, rank)
    SU1 = sketch.scaled_weights() @ spectrum.vectors(sketch.indices, d_n)
    SKSt = sketch_gram(X, sketch=sketch, parts="SKSt", **options).SKSt
    assert SKSt is not None  # as it was asked for
    rest = SKSt / n - (SU1 * values[:d_n]) @ SU1.T
    isometry = float(np.linalg.norm(SU1.T @ SU1 - np.eye(d_n), 2))
    tail = math.sqrt(max(0.0, np.linalg.eigvalsh(rest)[-1]))
    return KSatisfiability(
        isometry, tail, tail / math.sqrt(radius.delta2), radius.delta2, radius.d_n
    )
