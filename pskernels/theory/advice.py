"""`recommend`: rows and sparsity of a sketch for a budget of time or memory.

The cost of a fit is a sum of a few terms, such as n·s² for the products of features.
What each of them takes on the machine at hand is found by short fits to some of the
points; then a prediction costs nothing, and the largest sketch within a budget is found
by bisection.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from pskernels._preparation import prepare
from pskernels._random import philox_key
from pskernels._threads import resolve_n_threads
from pskernels._timing import fastest
from pskernels._types import (
    AnyArray,
    Array,
    CheckedPoints,
    KernelLike,
    Points,
    RandomState,
)
from pskernels._validation import (
    DEFAULT_MEMORY_LIMIT,
    check_int,
    check_points,
    check_positive,
    common_dtype,
)
from pskernels.choice import MAX_ROWS, choose_sketch
from pskernels.feature_map import BLOCK_POINTS, FeatureMap
from pskernels.kernels import Kernel, get_kernel, is_precomputed
from pskernels.losses import Loss, get_loss
from pskernels.sketches import PSparsified, Sketch
from pskernels.solvers import ConvergenceWarning, solve
from pskernels.theory.bounds import expected_landmarks
from pskernels.theory.spectrum import CriticalRadius, critical_radius, gram_spectrum

# Fits to measure: points, rows, and non-zeros in a row, each so many times;
# `python bench/theory.py recommend` compares predictions with fits.
POINTS = (2048, 8192)
ROWS = (32, 96, 256)
ENTRIES = (5, 50)
REPEATS = 2

# Points whose eigenvalues stand for those of all.
SPECTRUM_POINTS = 1000

# Of a time budget, for what predictions are off: `python bench/theory.py recommend`.
MARGIN = 0.2

# Vectors of length n that a solver keeps, and matrices of s × s;
# `python bench/theory.py recommend` prints predicted and measured bytes.
SOLVER_VECTORS = 15
SQUARE_MATRICES = 6

# Seconds, or a number with a unit.
Budget: TypeAlias = float | str

SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
BYTES = {"B": 1} | {
    f"{prefix}{unit}": base**power
    for unit, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate(("k" if base == 1000 else "K", *"MGT"), start=1)
}


class Recommendation(NamedTuple):
    """What `recommend` returns; all but s, p and limit are predictions.

    Attributes
    ----------
    s : int
        Rows of the sketch.
    p : float
        Probability of a non-zero.
    landmarks : float
        E[s'], the points whose column is not null.
    seconds, n_bytes : float
        Of a fit, features and solver included.
    delta2 : float
    d_n : int
        Of `critical_radius`, estimated: the part of the spectrum that matters for
        functions of norm 1, learnt from n points.  A sketch of fewer rows than d_n
        loses some of it.
    limit : str
        What kept s from being larger: "seconds", "bytes" or "rows".
    """

    s: int
    p: float
    landmarks: float
    seconds: float
    n_bytes: float
    delta2: float
    d_n: int
    limit: str


def recommend(
    X: Points,
    kernel: KernelLike = "rbf",
    *,
    budget: Budget | Sequence[Budget],
    gamma: float | str | None = None,
    y: npt.ArrayLike | None = None,
    loss: str | Loss = "huber",
    alpha: float | None = None,
    max_rows: int = MAX_ROWS,
    random_state: RandomState = None,
    n_threads: int | None = None,
) -> Recommendation:
    """Find the largest p-sparsified sketch whose fit is likely to keep within a budget.

    The largest, not the smallest that will do: what accuracy needs is seen on points
    that are held out.

    Parameters
    ----------
    X : array of shape (n, d)
    kernel, gamma
        As for `sketch_gram`.
    budget : float, str, or list of them
        Seconds, or a number with a unit: "500 ms", "10 s", "2 min", "1 h", "800 MB",
        "2 GiB".  Of several, all are kept.  Time is that of the sketch, the features
        and the solver for one alpha; memory is what they take beside X.
    y : array of shape (n,) or (n, outputs), optional
        Targets tell whether a few points matter more than others, and so how sparse the
        sketch may be, and how many steps a solver takes.  By default a function of the
        kernel's, with noise.
    loss : Loss or str
    alpha : float, optional
        Of the solver, as for `solve`.  None means 0.1/n, the default of estimators.
    max_rows : int
        Of the sketch.
    random_state : None, int, numpy Generator or numpy RandomState
        Of what is random; times are measured anew each time, and s with them.
    n_threads : int, optional
        None means all cores this process may use.

    Returns
    -------
    Recommendation

    Warns
    -----
    RuntimeWarning
        If s is below the statistical dimension d_n, or if no eigenvalue of K/n is above
        δ_n²: with such a kernel nothing can be learnt from n points.

    Notes
    -----
    It takes two seconds on a quiet machine, and more on a busy one, for fits to 2,048
    and 8,192 of the points.  Predicted times are 0.7 to 1.5 times those that are
    measured (`python bench/theory.py recommend`), which is why a fifth of a time budget
    is left as a margin; they are up to twice as long where the rank of the map is far
    below s, as it can be in float32.  The number of steps of a solver depends on alpha
    and on the data, and is taken to be that of the short fits.  An estimator with
    kappa="auto" or epsilon="auto" fits a second machine first.

    Examples
    --------
    >>> import numpy as np
    >>> from pskernels import theory
    >>> X = np.random.default_rng(0).normal(size=(20_000, 5))
    >>> advice = theory.recommend(X, budget=["5 s", "20 MB"], random_state=0)
    >>> advice.n_bytes < 20e6
    True
    """
    seconds, n_bytes = _parse_budget(budget)
    check_int(max_rows, "max_rows", minimum=1)
    if is_precomputed(kernel):
        raise ValueError("recommend needs points and a kernel, not a precomputed one")
    X = check_points(X, "X", accept_sparse=True)
    n = X.shape[0]
    if y is not None:
        y = np.asarray(y)
        if y.ndim not in (1, 2) or len(y) != n:
            raise ValueError(f"y must have {n} rows, as X has, got shape {y.shape}")
    rng = np.random.default_rng(philox_key(random_state))
    kernel, _ = prepare(
        get_kernel(kernel, gamma),
        X,
        "X",
        resolve_n_threads(n_threads),
        DEFAULT_MEMORY_LIMIT,
    )

    def make_map(sketch: Sketch | None) -> FeatureMap:
        return FeatureMap(kernel, sketch=sketch, n_threads=n_threads)

    alpha = 0.1 / n if alpha is None else check_positive(alpha, "alpha")
    model = calibrate(X, y, make_map, get_loss(loss), alpha, rng, n_threads)

    def exceeded(s: int, m: float) -> str | None:
        """Name what a sketch takes more of than the budget has."""
        cost = model.predict(n, s, m)
        if cost.seconds > (1 - MARGIN) * seconds:
            return "seconds"
        return "bytes" if cost.n_bytes > n_bytes else None

    most = min(max_rows, n)
    s, _ = _largest(exceeded, most, ENTRIES[0])
    chosen = choose_sketch(make_map, X, y, s, "rademacher", int(rng.integers(2**31)))
    p = getattr(chosen, "p", None)
    m = ENTRIES[0] if p is None else p * n
    s, limit = _largest(exceeded, most, m)
    radius = _estimate_radius(X, kernel, rng, n_threads)
    if s < radius.d_n:
        warnings.warn(
            f"budget={budget!r} allows s={s} rows, fewer than the statistical "
            f"dimension d_n={radius.d_n} of the kernel: expect a loss of accuracy",
            RuntimeWarning,
            stacklevel=2,
        )
    p = min(1.0, m / n)
    cost = model.predict(n, s, m)
    return Recommendation(
        s,
        p,
        expected_landmarks(n, s, p),
        cost.seconds,
        cost.n_bytes,
        radius.delta2,
        radius.d_n,
        limit,
    )


def _largest(
    exceeded: Callable[[int, float], str | None], most: int, m: float
) -> tuple[int, str]:
    """Find (rows within the budget, at most `most`; what the next ones exceed)."""
    limit = exceeded(most, m)
    if limit is None:
        return most, "rows"
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        why = exceeded(middle, m)
        if why is None:
            low = middle
        else:
            high, limit = middle, why
    if low == 0:
        raise ValueError(
            f"budget is too small: a sketch of one row already takes more {limit}"
        )
    return low, limit


def _estimate_radius(
    X: CheckedPoints, kernel: Kernel, rng: np.random.Generator, n_threads: int | None
) -> CriticalRadius:
    """Estimate the critical radius of all points, from the eigenvalues of some."""
    n = X.shape[0]
    some = np.sort(rng.choice(n, min(n, SPECTRUM_POINTS), replace=False))
    spectrum = gram_spectrum(X[some], kernel=kernel, exact=True, n_threads=n_threads)
    radius = critical_radius(spectrum, n)
    if spectrum.values[0] <= radius.delta2:
        warnings.warn(
            f"no eigenvalue of K/n is above δ_n²={radius.delta2:.2g}: all points are "
            "far from each other for this kernel; take a smaller gamma",
            RuntimeWarning,
            stacklevel=3,
        )
    return radius


def _parse_budget(budget: Budget | Sequence[Budget]) -> tuple[float, float]:
    """Parse a budget: (seconds, bytes), infinite where there is no limit."""
    limits = {"seconds": np.inf, "bytes": np.inf}
    if isinstance(budget, (list, tuple)) and not budget:
        raise ValueError("budget must not be empty")
    several: Sequence[Any] = budget if isinstance(budget, (list, tuple)) else [budget]
    for given in several:
        if isinstance(given, str):
            match = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([A-Za-z]+)\s*", given)
            unit = match[2] if match else None
            if match is None or (unit not in SECONDS and unit not in BYTES):
                raise ValueError(
                    f"budget must be a number with one of the units "
                    f"{', '.join([*SECONDS, *BYTES])}, got {given!r}"
                )
            name, units = ("seconds", SECONDS) if unit in SECONDS else ("bytes", BYTES)
            number = float(match[1]) * units[match[2]]
        else:
            name, number = "seconds", given
        check_positive(number, "budget")
        limits[name] = min(limits[name], number)
    return limits["seconds"], limits["bytes"]


# --------------------------------------------------------------------------
# The model of costs
# --------------------------------------------------------------------------


class Cost(NamedTuple):
    seconds: float
    n_bytes: float


class CostModel(NamedTuple):
    """Seconds of each term of a fit, and the sizes that memory depends on."""

    map_rates: Array
    solve_rates: Array
    row_values: float
    itemsize: int

    def predict(self, n: int, s: int, m: float) -> Cost:
        """Predict the cost of a fit with s rows of m expected non-zeros."""
        landmarks = expected_landmarks(n, s, min(1.0, m / n))
        seconds = map_terms(n, s, m) @ self.map_rates
        seconds += solve_terms(n, s) @ self.solve_rates
        values = n * s + landmarks * self.row_values + min(n, BLOCK_POINTS) * s
        doubles = SOLVER_VECTORS * n + SQUARE_MATRICES * s**2
        return Cost(float(seconds), float(self.itemsize * values + 8 * doubles))


def map_terms(n: int, s: int, m: float) -> Array:
    """List what the time of a feature map is a sum of."""
    landmarks = expected_landmarks(n, s, min(1.0, m / n))
    return np.array(
        [
            1.0,
            (n + landmarks / 2) * landmarks,  # values of the kernel: S·K, S·K·Sᵀ
            n * s * m,  # what they are multiplied with
            n * s**2,  # S·K times W
            s**3,  # a factor of S·K·Sᵀ
        ]
    )


def solve_terms(n: int, s: int) -> Array:
    """List what the time of a solver is a sum of."""
    return np.array([1.0, n * s, n * s**2, s**3])


def calibrate(
    X: CheckedPoints,
    y: AnyArray | None,
    make_map: Callable[[Sketch | None], FeatureMap],
    loss: Loss,
    alpha: float,
    rng: np.random.Generator,
    n_threads: int | None = None,
) -> CostModel:
    """Measure short fits, and find what each term takes.

    Parameters
    ----------
    X : array of shape (n, d), checked
    y : array of shape (n,), or None
    make_map : callable
        sketch -> FeatureMap, not yet fitted
    loss : Loss
    alpha : float
    rng : numpy Generator
    n_threads : int, optional

    Returns
    -------
    CostModel
    """
    n = X.shape[0]
    most = min(n, POINTS[-1])
    some = np.sort(rng.choice(n, most, replace=False))
    X, y = X[some], (None if y is None else y[some])
    maps, solves = [], []
    for n_points in sorted({min(POINTS[0], -(-most // 4)), most}):
        rows = X[:n_points]
        for s in sorted({min(s, n_points) for s in ROWS}):
            for m in ENTRIES:
                sketch = PSparsified(s, min(1.0, m / n_points)).draw(n_points, rng)
                Z, seconds = fastest(
                    make_map(sketch).fit_transform, rows, repeats=REPEATS
                )
                maps.append((seconds, map_terms(n_points, s, m)))
            target = _make_target(Z, loss, rng) if y is None else y[:n_points]
            options = dict(loss=loss, alpha=alpha, n_threads=n_threads)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                _, seconds = fastest(solve, Z, target, repeats=REPEATS, **options)
            solves.append((seconds, solve_terms(n_points, s)))
    return CostModel(
        _fit_rates(maps), _fit_rates(solves), _row_values(X), common_dtype(X).itemsize
    )


def _row_values(X: CheckedPoints) -> float:
    """Count numbers that a point takes; a sparse one has an index for each."""
    return 1.5 * X.nnz / X.shape[0] if sp.issparse(X) else X.shape[1]


def _make_target(Z: Array, loss: Loss, rng: np.random.Generator) -> Array:
    """Draw a function of the features with as much noise; ±1 for classification."""
    signal = Z @ rng.normal(size=Z.shape[1])
    y = signal / (np.std(signal) or 1.0) + rng.normal(size=len(Z))
    return np.where(y > 0, 1.0, -1.0) if loss.margin is not None else y


def _fit_rates(measured: list[tuple[float, Array]]) -> Array:
    """Find rates that are not negative, by least squares of relative errors."""
    from scipy.optimize import nnls  # slow to import

    seconds = np.array([row[0] for row in measured])
    terms = np.array([row[1] for row in measured]) / seconds[:, None]
    size = terms.max(axis=0)
    found: Array = nnls(terms / size, np.ones(len(seconds)))[0] / size
    return found
