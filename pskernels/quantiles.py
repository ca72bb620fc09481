"""Joint quantile regression: several levels of one target at once."""

from dataclasses import dataclass

import numpy as np

from pskernels._validation import check_option, check_points, check_real_array
from pskernels.losses import Pinball
from pskernels.outputs import check_quantiles, quantile_matrix
from pskernels.solvers import SolveResult, solve

# The coupling of "penalty", unless it is given.
DEFAULT_GAMMA = 1.0


@dataclass(frozen=True)
class QuantileResult:
    """What `solve_quantiles` returns.

    Attributes
    ----------
    quantiles : tuple of float
    noncrossing : str
    fit : SolveResult
        The machine of all levels: its coef is (r, levels).
    """

    quantiles: tuple
    noncrossing: str
    fit: SolveResult

    def predict(self, Z):
        """Quantiles of new points.

        Parameters
        ----------
        Z : array of shape (n, r)
            Features of the points.

        Returns
        -------
        ndarray of shape (n, levels)
            Sorted along the levels, if noncrossing is "sort".
        """
        Z = check_points(Z, "Z")
        r = len(self.fit.coef)
        if Z.shape[1] != r:
            raise ValueError(f"Z must have {r} columns, got {Z.shape[1]}")
        return self.finish(Z @ self._columns + self.fit.intercept)

    def finish(self, predicted):
        """What `predict` makes of Z @ coef + intercept.

        For predictions that were computed elsewhere, such as those of
        ``feature_map.predict(X, result.fit.coef, result.fit.intercept)``.
        """
        predicted = np.asarray(predicted).reshape(-1, len(self.quantiles))
        return rearrange(predicted) if self.noncrossing == "sort" else predicted

    @property
    def _columns(self):
        return self.fit.coef.reshape(len(self.fit.coef), -1)


def solve_quantiles(
    Z, y, *, quantiles, alpha, noncrossing="penalty", gamma=None, **options
):
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
        paper's way, which makes crossing rare.  "sort" sorts the predictions of every
        point: no crossing at all, and never a larger pinball loss [1]_.  "none" does
        neither.
    gamma : float, optional
        Of the coupling.  None is 1 for "penalty", and no coupling for the others; a
        number couples the levels of these, too.
    **options
        sample_weight, fit_intercept, solver, tol, max_iter, start, n_threads, verbose,
        output_rank: as in `solve`.

    Returns
    -------
    QuantileResult
        With `predict`, and the certificate in its `fit`.

    Notes
    -----
    The certificate is of the sum over levels, in one problem if they are coupled, and
    in one for each level if they are not.

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
    >>> q.shape, psk.crossing_loss(q), result.fit.converged
    ((1000, 3), 0.0, True)
    """
    quantiles = check_quantiles(quantiles)
    check_option(noncrossing, "noncrossing", ("penalty", "sort", "none"))
    if "output_matrix" in options or "loss" in options:
        raise TypeError(
            "solve_quantiles has no loss and no output_matrix; for others than those "
            "of quantiles and gamma use solve(loss=Pinball(quantiles), ...)"
        )
    if np.ndim(y) > 1 and np.shape(y)[1] > 1:
        raise ValueError(
            f"y must be 1-d, one target for each point, got shape {np.shape(y)}"
        )
    if gamma is None and noncrossing == "penalty":
        gamma = DEFAULT_GAMMA
    coupling = None
    if gamma is not None:
        coupling = quantile_matrix(quantiles, gamma)
    fit = solve(
        Z,
        y,
        loss=Pinball(quantiles),
        alpha=alpha,
        output_matrix=coupling,
        **options,
    )
    return QuantileResult(quantiles, noncrossing, fit)


def rearrange(predicted):
    """Quantiles that do not cross: those of each point, sorted.

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
