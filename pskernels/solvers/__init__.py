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

# Squares of coefficients, which grow like 1/alpha, must not overflow.
SMALLEST_ALPHA = 1e-100


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
        ``Huber(1.0)``, ``Pinball(0.9)`` and so on.  Or a name, for the default
        parameters: "huber" (kappa=1), "epsilon_insensitive" (epsilon=0.1), "pinball"
        (tau=0.5), "absolute", "squared", "hinge", "squared_hinge", "logistic".
    alpha : float
        Penalty, positive: the paper's λ_n.  In scikit-learn's terms, alpha of
        `Ridge` divided by n, or 1/(C·n).  Where the loss grows like |u - y|, a
        good alpha is in proportion to the scale of y.
    sample_weight : array of shape (n,), optional
        The mean is weighted; weights of 0 and repetitions mean what they say.
    fit_intercept : bool
        The intercept is not penalised.
    solver : {"auto", "newton", "direct", "lbfgs", "adam"} or solver object
        "auto" is "direct" for the squared loss, else "newton".  Objects such as
        ``Adam(learning_rate=0.1, random_state=0)`` have options.
    tol : float
        The certified gap to stop at, relative to the objective.
    max_iter : int, optional
        Newton steps (1000), refinements (20), iterations of L-BFGS (2000) or
        epochs of Adam (25) at most.
    start : SolveResult or tuple (coef, intercept), optional
        Where to begin: a solution with a similar alpha, or of a similar loss.
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
    alphas = [_check_alpha(alpha) for alpha in alphas]
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
            if not _is_certified(objective, begin, progress):
                solver.run(objective, begin, max_iter, progress)
            results[k] = progress.result(solver)
            start = results[k]
    return results


def get_solver(solver, loss):
    """The solver object behind a name or an object, if it can do the loss."""
    if isinstance(solver, str) and solver == "auto":
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


def _check_alpha(alpha):
    alpha = check_positive(alpha, "alpha")
    if alpha < SMALLEST_ALPHA:
        raise ValueError(f"alpha must be at least {SMALLEST_ALPHA:g}, got {alpha:g}")
    return alpha


def _check_features(Z):
    """Z as a C-contiguous array of float32 or float64."""
    Z = check_points(Z, "Z")
    return np.ascontiguousarray(Z, dtype=common_dtype(Z))


def _where_to_start(objective, start):
    r = objective.features.r
    if start is None:
        return Start(np.zeros(r), objective.null_intercept)
    if isinstance(start, SolveResult):
        coef, intercept = start.coef, start.intercept
    elif isinstance(start, tuple) and len(start) == 2:
        coef, intercept = start
    else:
        raise TypeError(
            "start must be a SolveResult or a tuple (coef, intercept), got "
            f"{type(start).__name__}"
        )
    coef = np.ascontiguousarray(check_real_array(coef, "start"), dtype=np.float64)
    intercept = check_real_array(intercept, "start").astype(np.float64)
    if coef.shape != (r,) or intercept.shape != ():
        raise ValueError(
            f"start must have {r} coefficients and one intercept, got shapes "
            f"{coef.shape} and {intercept.shape}"
        )
    if not (np.isfinite(coef).all() and np.isfinite(intercept)):
        raise ValueError("start must be finite")
    intercept = float(intercept) - objective.shift if objective.fit_intercept else 0.0
    return Start(coef, intercept, _guess_of_zeta(objective, start), warm=True)


def _is_certified(objective, start, progress):
    """Whether a warm start is a solution already."""
    if start.zeta is None:
        return False
    e = objective.residuals(start.coef, start.intercept)
    certificate = objective.certify(start.coef, e, start.zeta)
    return progress.add(start.coef, start.intercept, start.zeta, certificate)


def _guess_of_zeta(objective, start):
    """That of the result, in the domain of this loss; None if there is none."""
    points = objective.points
    if not isinstance(start, SolveResult) or start.dual.shape != points.y.shape:
        return None
    return np.clip(points.sign * start.dual, points.loss.lower, points.loss.upper)
