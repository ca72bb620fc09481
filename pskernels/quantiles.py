"""Joint quantile regression: several levels of one target at once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pskernels._types import AnyArray, Array
from pskernels._validation import check_option, check_quantiles, check_real_array
from pskernels.losses import Pinball
from pskernels.outputs import quantile_matrix
from pskernels.solvers import SolveResult, solve

if TYPE_CHECKING:
    from pskernels.features import FeaturesLike
    from pskernels.solvers.base import StartLike

# The coupling of "penalty", unless it is given.
DEFAULT_GAMMA = 1.0


@dataclass
class QuantileResult(SolveResult):
    """What `solve_quantiles` returns: a `SolveResult` of all levels.

    Attributes
    ----------
    quantiles : tuple of float
    noncrossing : str
    coef : ndarray of shape (r, levels)
        (r,) for one level only.  All others are as in `SolveResult`.
    """

    quantiles: tuple[float, ...]
    noncrossing: str

    def predict(self, Z: "FeaturesLike") -> AnyArray:
        """Predict quantiles of new points.

        Parameters
        ----------
        Z : array of shape (n, r)
            Features of the points.

        Returns
        -------
        ndarray of shape (n, levels)
            Sorted along the levels, if noncrossing is "sort".
        """
        return self.finish(super().predict(Z))

    def finish(self, predicted: npt.ArrayLike) -> AnyArray:
        """Turn Z @ coef + intercept into what `predict` returns.

        For predictions that were computed elsewhere, such as those of
        ``feature_map.predict(X, result.coef, result.intercept)``.
        """
        predicted = check_real_array(predicted, "predicted")
        n_levels = len(self.quantiles)
        if n_levels == 1 and predicted.ndim == 1:
            predicted = predicted[:, None]
        if predicted.ndim != 2 or predicted.shape[1] != n_levels:
            raise ValueError(
                f"predicted must have {n_levels} columns, one for each level, got "
                f"shape {predicted.shape}"
            )
        return rearrange(predicted) if self.noncrossing == "sort" else predicted


def solve_quantiles(
    Z: "FeaturesLike",
    y: npt.ArrayLike,
    *,
    quantiles: npt.ArrayLike,
    alpha: float,
    noncrossing: str = "penalty",
    gamma: float | None = None,
    output_rank: int | None = None,
    sample_weight: npt.ArrayLike | None = None,
    fit_intercept: bool = True,
    solver: str = "auto",
    tol: float = 1e-6,
    max_iter: int | None = None,
    start: "StartLike | None" = None,
    n_threads: int | None = None,
    verbose: int = 0,
) -> QuantileResult:
    """Learn several quantiles of y at once.

    Parameters
    ----------
    Z : array of shape (n, r)
        Features.
    y : array of shape (n,)
    quantiles : sequence of float
        Levels in (0, 1), increasing.
    alpha : float
        Penalty, as in `solve`.
    noncrossing : {"penalty", "sort", "none"}
        "penalty" couples the levels by M = quantile_matrix(quantiles, gamma), the
        paper's way, which makes crossing rare: for few points, or levels of one
        shape.  "sort" sorts the predictions of every point: no crossing at all, and
        never a larger pinball loss [1]_; it is cheaper, too.  "none" does neither.
    gamma : float, optional
        Of the coupling.  None is 1 for "penalty", and no coupling for the others; a
        number couples the levels of these, too.
    output_rank : int, optional
        Learn in so many directions of the coupling only.
    sample_weight, fit_intercept, solver, tol, max_iter, start, n_threads, verbose
        As in `solve`.

    Returns
    -------
    QuantileResult
        A `SolveResult` of all levels, whose `predict` gives quantiles.

    Notes
    -----
    The certificate is of the sum over levels, in one problem if they are coupled, and
    in one for each level if they are not.  For several alphas, use
    ``path(Z, y, alphas=..., loss=Pinball(quantiles),
    output_matrix=quantile_matrix(quantiles, gamma))``, and `rearrange`.

    References
    ----------
    .. [1] V. Chernozhukov, I. Fernández-Val, A. Galichon, "Quantile and probability
       curves without crossing", Econometrica 78, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(1000, 3))
    >>> y = Z @ [1.0, 2.0, 3.0] + rng.normal(size=1000)
    >>> result = psk.solve_quantiles(Z, y, quantiles=[0.1, 0.5, 0.9], alpha=1e-3)
    >>> q = result.predict(Z)
    >>> q.shape, psk.crossing_loss(q), result.converged
    ((1000, 3), 0.0, True)
    """
    quantiles = check_quantiles(quantiles)
    coupling = get_coupling(quantiles, noncrossing, gamma)
    if np.ndim(y) > 1 and np.shape(y)[1] > 1:
        raise ValueError(
            f"y must be 1-d, one target for each point, got shape {np.shape(y)}"
        )
    if coupling is None and output_rank is not None:
        raise ValueError(
            f"output_rank={output_rank} needs a coupling, whose directions it takes: "
            f"give a gamma, or use noncrossing='penalty' instead of {noncrossing!r}"
        )
    result = solve(
        Z,
        y,
        loss=Pinball(quantiles),
        alpha=alpha,
        output_matrix=coupling,
        output_rank=output_rank,
        sample_weight=sample_weight,
        fit_intercept=fit_intercept,
        solver=solver,
        tol=tol,
        max_iter=max_iter,
        start=start,
        n_threads=n_threads,
        verbose=verbose,
    )
    return QuantileResult(**vars(result), quantiles=quantiles, noncrossing=noncrossing)


def get_coupling(
    quantiles: npt.ArrayLike, noncrossing: str, gamma: float | None = None
) -> Array | None:
    """Make the output matrix of levels, or None; see `solve_quantiles`."""
    check_option(noncrossing, "noncrossing", ("penalty", "sort", "none"))
    if gamma is None and noncrossing == "penalty":
        gamma = DEFAULT_GAMMA
    return None if gamma is None else quantile_matrix(quantiles, gamma)


def rearrange(predicted: npt.ArrayLike) -> AnyArray:
    """Sort the quantiles of each point, so that they do not cross.

    Parameters
    ----------
    predicted : array of shape (n, levels)
        Of increasing levels.

    Returns
    -------
    ndarray of shape (n, levels)
    """
    predicted = check_real_array(predicted, "predicted")
    if predicted.ndim != 2:
        raise ValueError(
            "predicted must be 2-d, a row for each point and a column for each level, "
            f"got shape {predicted.shape}"
        )
    return np.sort(predicted, axis=1)
