"""`solve` and `path`: fit a linear machine on features, to a certified gap.

objective   P(w, b), its dual, the certificate      pskernels.objective
newton      every loss                              hessian: its linear systems
direct      the squared loss
lbfgs       smooth losses, by SciPy
adam        the paper's stochastic method
"""

import numpy as np

from pskernels._products import Features
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._validation import (
    check_int,
    check_option,
    check_points,
    check_positive,
    check_real_array,
    common_dtype,
    raise_not_finite,
)
from pskernels.losses import Squared, WeightedLoss, check_weights, get_loss
from pskernels.objective import Objective
from pskernels.solvers.adam import Adam
from pskernels.solvers.base import (
    ConvergenceWarning,
    Iteration,
    Progress,
    SolveResult,
    Start,
)
from pskernels.solvers.direct import Direct
from pskernels.solvers.lbfgs import LBFGS
from pskernels.solvers.newton import Newton

__all__ = [
    "LBFGS",
    "Adam",
    "ConvergenceWarning",
    "Direct",
    "Iteration",
    "Newton",
    "SolveResult",
    "path",
    "solve",
]

SOLVERS = {solver.name: solver for solver in (Direct, Newton, LBFGS, Adam)}

# A warm start begins with an envelope this many times wider than the last one: 16
# to 256 took about the same number of steps along 20 alphas from 1e-2 to 1e-8.
# Multipliers are not taken over: with those of another alpha there were more steps.
WIDEN = 32.0


def solve(
    Z,
    y,
    *,
    loss="squared",
    alpha,
    sample_weight=None,
    fit_intercept=True,
    solver="auto",
    tol=1e-6,
    max_iter=None,
    start=None,
    n_threads=None,
    verbose=0,
):
    """Minimise mean ℓ(Z @ coef + intercept, y) + (alpha/2)·‖coef‖².

    Parameters
    ----------
    Z : array of shape (n, r)
        Features.  float32 is kept and halves the traffic; sums are in float64.
        C-contiguous arrays are not copied.
    y : array of shape (n,)
        Targets; +1 and -1 for hinge, squared_hinge and logistic.
    loss : Loss or str
        ``Huber(1.0)``, ``Pinball(0.9)`` and so on, or a name.
    alpha : float
        Penalty, positive: the paper's λ_n.
    sample_weight : array of shape (n,), optional
        The mean is weighted; weights of 0 and repetitions mean what they say.
    fit_intercept : bool
        The intercept is not penalised.
    solver : {"auto", "newton", "direct", "lbfgs", "adam"} or solver object
        "auto" is "direct" for the squared loss, else "newton".  Objects such as
        ``Adam(learning_rate=0.1)`` have options.
    tol : float
        The certified gap to stop at, relative to the objective.
    max_iter : int, optional
        Newton steps (1000), refinements (20), iterations of L-BFGS (2000) or
        epochs of Adam (25) at most.
    start : SolveResult or tuple (coef, intercept), optional
        Where to begin.
    n_threads : int, optional
        None means all cores this process may use.
    verbose : int
        1 prints a line for every iteration.

    Returns
    -------
    SolveResult
        coef, intercept, objective, dual_gap, converged, n_iter, history, dual.

    Warns
    -----
    ConvergenceWarning
        If the certified gap is above tol.  The best model is returned all the same.

    Notes
    -----
    A Newton step costs two passes over Z and (active points)·r²/2 multiplications;
    memory beside Z is some fifteen vectors of length n and a few r × r matrices.
    The result does not depend on n_threads, to the last bit.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(1000, 3))
    >>> y = Z @ [1.0, 2.0, 3.0] + rng.normal(size=1000)
    >>> result = psk.solve(Z, y, loss=psk.Pinball(0.9), alpha=1e-3)
    >>> result.converged, result.dual_gap < 1e-6
    (True, True)
    """
    return _run(
        Z,
        y,
        alphas=[alpha],
        loss=loss,
        sample_weight=sample_weight,
        fit_intercept=fit_intercept,
        solver=solver,
        tol=tol,
        max_iter=max_iter,
        start=start,
        n_threads=n_threads,
        verbose=verbose,
    )[0]


def path(
    Z,
    y,
    *,
    alphas,
    loss="squared",
    sample_weight=None,
    fit_intercept=True,
    solver="auto",
    tol=1e-6,
    max_iter=None,
    start=None,
    n_threads=None,
    verbose=0,
):
    """`solve` for several alphas, each from the solution before it.

    Checks, the model without features and sums over points are shared; for the
    squared loss that is the whole Gram matrix.  Large alphas come first, whatever
    their order.

    Parameters
    ----------
    alphas : sequence of float
    Z, y, loss, sample_weight, fit_intercept, solver, tol, max_iter, start, \
n_threads, verbose
        As for `solve`.

    Returns
    -------
    list of SolveResult
        In the order of alphas.
    """
    return _run(
        Z,
        y,
        alphas=_as_list(alphas),
        loss=loss,
        sample_weight=sample_weight,
        fit_intercept=fit_intercept,
        solver=solver,
        tol=tol,
        max_iter=max_iter,
        start=start,
        n_threads=n_threads,
        verbose=verbose,
    )


def _run(
    Z,
    y,
    *,
    alphas,
    loss,
    sample_weight,
    fit_intercept,
    solver,
    tol,
    max_iter,
    start,
    n_threads,
    verbose,
):
    alphas = [check_positive(alpha, "alpha") for alpha in alphas]
    tol = check_positive(tol, "tol")
    loss = get_loss(loss)
    solver = get_solver(solver, loss)
    if max_iter is None:
        max_iter = solver.default_max_iter
    max_iter = check_int(max_iter, "max_iter", minimum=0)
    n_threads = resolve_n_threads(n_threads)
    Z = _check_features(Z)
    y = loss.check_targets(y)
    if len(y) != len(Z):
        raise ValueError(
            f"y must have one target for each of {len(Z)} rows of Z, got {len(y)}"
        )
    if sample_weight is None:
        sample_weight = np.ones(len(y))
    weight = check_weights(sample_weight, len(y))
    features = Features(Z, n_threads)
    if not np.isfinite(features.dot(np.ones(features.r))).all():
        raise_not_finite(Z, "Z")

    results = [None] * len(alphas)
    with single_threaded_blas():
        points = WeightedLoss(loss, y, weight, n_threads)
        problem = Objective(features, points, alphas[0], bool(fit_intercept))
        for k in np.argsort(alphas, kind="stable")[::-1]:
            objective = problem.with_alpha(alphas[k])
            begin = _where_to_start(objective, start)
            progress = Progress(objective, tol, verbose)
            solver.run(objective, begin, max_iter, progress)
            results[k] = progress.result(solver.name)
            start = results[k]
    return results


def get_solver(solver, loss):
    """The solver object behind a name or an object, if it can do the loss."""
    if solver == "auto":
        solver = Direct() if isinstance(loss, Squared) else Newton()
    elif isinstance(solver, str):
        solver = SOLVERS[check_option(solver, "solver", ("auto", *SOLVERS))]()
    elif not isinstance(solver, tuple(SOLVERS.values())):
        raise TypeError(
            "solver must be 'auto', a solver object or one of "
            f"{', '.join(map(repr, SOLVERS))}, got {solver!r}"
        )
    solver.check(loss)
    return solver


def _as_list(alphas):
    alphas = list(alphas) if np.iterable(alphas) else [alphas]
    if not alphas:
        raise ValueError("alphas must have at least one value, got none")
    return alphas


def _check_features(Z):
    """Z as a C-contiguous array of float32 or float64."""
    Z = check_points(Z, "Z")
    return np.ascontiguousarray(Z, dtype=common_dtype(Z))


def _where_to_start(objective, start):
    r = objective.features.r
    if start is None:
        return Start(np.zeros(r), objective.null_intercept, objective.first_mu)
    if isinstance(start, SolveResult):
        coef, intercept = start.coef, start.intercept
    else:
        coef, intercept = start
    coef = np.ascontiguousarray(check_real_array(coef, "start"), dtype=np.float64)
    if coef.shape != (r,):
        raise ValueError(f"start must have {r} coefficients, got shape {coef.shape}")
    if not (np.isfinite(coef).all() and np.isfinite(intercept)):
        raise ValueError("start must be finite")
    intercept = float(intercept) if objective.fit_intercept else 0.0
    mu = objective.first_mu
    if isinstance(start, SolveResult):
        mu = min(mu, WIDEN * start.mu)
    return Start(coef, intercept, mu)
