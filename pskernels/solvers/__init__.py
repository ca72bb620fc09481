"""`solve` and `path`: fit a linear machine on features, to a certified gap.

objective   P(w, b), its dual, the certificate      pskernels.objective
newton      every loss                              hessian: its linear systems
direct      the squared loss
lbfgs       smooth losses, by SciPy
adam        the paper's stochastic method
"""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pskernels._products import Features
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._types import Array
from pskernels._validation import (
    check_int,
    check_option,
    check_positive,
    check_real_array,
)
from pskernels.features import EXACT_ENOUGH, MOST_ROUNDING, as_features
from pskernels.losses import Loss, SmoothLoss, Squared, check_weights, get_loss
from pskernels.objective import Problem
from pskernels.outputs import Outputs, check_output_rank, residual_matrix
from pskernels.sample import Sample
from pskernels.solvers.adam import Adam
from pskernels.solvers.base import (
    ConvergenceWarning,
    Iteration,
    Progress,
    Solver,
    SolveResult,
    Start,
    StartLike,
    merge,
    out_of_directions,
    warn_if_not_converged,
)
from pskernels.solvers.direct import Direct
from pskernels.solvers.lbfgs import LBFGS
from pskernels.solvers.newton import Newton
from pskernels.solvers.newton_cg import OneOutput, run_family

if TYPE_CHECKING:
    from pskernels.features import AnyFeatures, FeaturesLike

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
    Z: "FeaturesLike",
    y: npt.ArrayLike,
    *,
    loss: str | Loss = "squared",
    alpha: float,
    output_matrix: npt.ArrayLike | str | None = None,
    output_rank: int | None = None,
    sample_weight: npt.ArrayLike | None = None,
    fit_intercept: bool = True,
    solver: str | Solver = "auto",
    tol: float = 1e-6,
    max_iter: int | None = None,
    start: StartLike | None = None,
    n_threads: int | None = None,
    verbose: int = 0,
) -> SolveResult:
    """Minimise mean ℓ(Z @ coef + intercept, y) + (alpha/2)·‖coef‖².

    One output or several.  Those of several may be coupled by an output matrix M:
    the machine is then that of the kernel k·M, and the penalty tr(coef·M⁻¹·coefᵀ).

    Parameters
    ----------
    Z : array of shape (n, r), or features (`pskernels.features`)
        Features.  float32 is kept and halves the traffic; sums are in float64.
        C-contiguous arrays are not copied.
    y : array of shape (n,), or (n, d) for d outputs
        Targets; +1 and -1 for hinge, squared_hinge and logistic.
    loss : Loss or str
        ``Huber(1.0)``, ``Pinball(0.9)`` and so on.  Or a name, for the default
        parameters: "huber" (kappa=1), "epsilon_insensitive" (epsilon=0.1), "pinball"
        (tau=0.5), "absolute", "squared", "hinge", "squared_hinge", "logistic"; and of
        one output "poisson", "gamma" and "expectile" (tau=0.5).
        Of several outputs, huber and epsilon_insensitive take the Euclidean norm of
        the errors, all others sum over outputs.  ``Pinball([0.1, 0.5, 0.9])`` has a
        level for each output, and takes y of shape (n,) as the target of each.
    alpha : float
        Penalty, positive: the paper's λ_n.  In scikit-learn's terms, alpha of
        `Ridge` divided by n, or 1/(C·n).  Where the loss grows like |u - y|, a
        good alpha is in inverse proportion to the scale of y.
    output_matrix : array of shape (d, d), "identity" or "residual", optional
        M, symmetric and positive semidefinite: `quantile_matrix`, `graph_matrix` or
        your own.  None and "identity" are independent outputs.  "residual" learns M:
        the covariance of the residuals of a first fit with independent outputs
        (clipped at three robust standard deviations), divided by its mean variance.
        This is not in the paper.  Each alpha of a `path` learns its own; n_iter and
        history are those of the second fit.
    output_rank : int, optional
        Learn in so many directions only, those of the largest eigenvalues of M, or,
        if outputs are independent, of the covariance of y.  The other directions get
        an intercept.  Products with Z fall to output_rank / d; those with the targets
        do not.
    sample_weight : array of shape (n,), optional
        The mean is weighted; weights of 0 and repetitions mean what they say.
    fit_intercept : bool
        The intercept is not penalised.
    solver : {"auto", "newton", "direct", "lbfgs", "adam"} or solver object
        "auto" is "direct" for the squared loss (but for one output on features that
        are not formed), else "newton".  Objects such as
        ``Adam(learning_rate=0.1, random_state=0)`` have options.
    tol : float
        The certified gap to stop at, relative to the objective.
    max_iter : int, optional
        Newton steps (1000), refinements (20), iterations of L-BFGS (2000) or
        epochs of Adam (25) at most; for each output where they are solved one by one.
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
    memory beside Z is some fifteen vectors of length n and some ten r × r matrices.
    With d outputs it is some twenty arrays of n × d, and with a coupling, unless
    conjugate gradients are cheaper, a few matrices of (r·d) × (r·d).  Independent
    outputs of a loss that is a sum over them are solved one after the other.
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
        output_matrix=output_matrix,
        output_rank=output_rank,
        sample_weight=sample_weight,
        fit_intercept=fit_intercept,
        solver=solver,
        tol=tol,
        max_iter=max_iter,
        start=start,
        warm=False,
        n_threads=n_threads,
        verbose=verbose,
    )[0]


def path(
    Z: "FeaturesLike",
    y: npt.ArrayLike,
    *,
    alphas: Iterable[float],
    loss: str | Loss = "squared",
    output_matrix: npt.ArrayLike | str | None = None,
    output_rank: int | None = None,
    sample_weight: npt.ArrayLike | None = None,
    fit_intercept: bool = True,
    solver: str | Solver = "auto",
    tol: float = 1e-6,
    max_iter: int | None = None,
    start: StartLike | None = None,
    warm: bool = True,
    n_threads: int | None = None,
    verbose: int = 0,
) -> list[SolveResult]:
    """Run `solve` for several alphas, each from the solution before it.

    Checks, the model without features and sums over points are shared; for the
    squared loss that is the whole Gram matrix.  Large alphas come first, whatever
    their order.

    Parameters
    ----------
    alphas : sequence of float
    warm : bool
        False begins every solution from `start`: it does not depend then, not even
        within tol, on the other alphas.  (On the toy data of bench/, warm starts save a
        third of the steps of `Huber`, and next to none of the losses with corners.)
    Z, y, loss, output_matrix, output_rank, sample_weight, fit_intercept, solver, \
tol, max_iter, start, n_threads, verbose
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
        output_matrix=output_matrix,
        output_rank=output_rank,
        sample_weight=sample_weight,
        fit_intercept=fit_intercept,
        solver=solver,
        tol=tol,
        max_iter=max_iter,
        start=start,
        warm=warm,
        n_threads=n_threads,
        verbose=verbose,
    )


def _run(
    Z: "FeaturesLike",
    y: npt.ArrayLike,
    *,
    alphas: Iterable[float],
    loss: str | Loss,
    warm: bool,
    n_threads: int | None,
    **options: Any,
) -> list[SolveResult]:
    """Solve for each alpha, on features that are formed where that is needed."""
    alphas = [_check_alpha(alpha) for alpha in alphas]
    loss = get_loss(loss)
    n_threads = resolve_n_threads(n_threads)
    features = as_features(Z, n_threads)
    if isinstance(loss, SmoothLoss):
        return _run_smooth(features, y, alphas, loss, warm, **options)
    # the envelopes of losses with corners bend so much that few digits are left
    solver = get_solver(options["solver"], loss, _by_newton(features, y))
    most = EXACT_ENOUGH if isinstance(solver, Direct) else MOST_ROUNDING
    kept = [
        loss.smooth and features.rounding_of_gram(alpha) <= most for alpha in alphas
    ]
    if warm:
        kept = [all(kept)] * len(alphas)
    results: list[Any] = [None] * len(alphas)
    for keep in sorted(set(kept)):  # each alpha as if it were alone
        some = [k for k, one in enumerate(kept) if one == keep]
        found = _run_alike(
            features if keep else features.formed(),
            y,
            alphas=[alphas[k] for k in some],
            loss=loss,
            warm=warm,
            n_threads=n_threads,
            **options,
        )
        for k, result in zip(some, found, strict=True):
            results[k] = result
    return results


def _run_smooth(
    features: "AnyFeatures",
    y: npt.ArrayLike,
    alphas: list[float],
    loss: SmoothLoss,
    warm: bool,
    *,
    output_matrix: npt.ArrayLike | str | None,
    output_rank: int | None,
    sample_weight: npt.ArrayLike | None,
    fit_intercept: bool,
    solver: str | Solver,
    tol: float,
    max_iter: int | None,
    start: StartLike | None,
    verbose: int,
) -> list[SolveResult]:
    """Solve a `SmoothLoss`, by conjugate gradients."""
    check_option(solver, "solver", ("auto", "newton"))
    if output_matrix is not None or output_rank is not None:
        raise ValueError(f"{loss} is for one output, which has no output_matrix")
    y = loss.check_targets(y)
    if len(y) != features.n:
        raise ValueError(
            f"y must have one target for each of {features.n} rows of Z, got {len(y)}"
        )
    found = run_family(
        features,
        OneOutput(loss, y),
        alphas,
        sample_weight,
        fit_intercept,
        tol,
        max_iter,
        start,
        warm,
    )
    return [
        dataclasses.replace(
            one,
            coef=one.coef[:, 0],
            intercept=float(one.intercept[0]),
            dual=one.dual[:, 0],
        )
        for one in found
    ]


def _run_alike(
    features: "AnyFeatures",
    y: npt.ArrayLike,
    *,
    alphas: list[float],
    loss: Loss,
    output_matrix: npt.ArrayLike | str | None,
    output_rank: int | None,
    sample_weight: npt.ArrayLike | None,
    fit_intercept: bool,
    solver: str | Solver,
    tol: float,
    max_iter: int | None,
    start: StartLike | None,
    warm: bool,
    n_threads: int,
    verbose: int,
) -> list[SolveResult]:
    tol = check_positive(tol, "tol")
    solver = get_solver(solver, loss, _by_newton(features, y))
    if isinstance(solver, Adam):
        features = features.formed()
        kinds = [type(block) for block in features.blocks]
        if kinds != [Features]:
            names = " and ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"solver 'adam' needs an array of features, got {names}")
    if max_iter is None:
        max_iter = solver.default_max_iter
    max_iter = check_int(max_iter, "max_iter", minimum=0)
    n = features.n
    if features.origin is not None and not fit_intercept:
        raise ValueError("features around an origin need an intercept")
    y = loss.check_targets(y)
    if len(y) != n:
        hint = "; pass y.T?" if y.ndim == 2 and y.shape[1] == n else ""
        raise ValueError(
            f"y must have one target, or a row of targets, for each of {n} rows "
            f"of Z, got shape {y.shape}{hint}"
        )
    if sample_weight is None:
        sample_weight = np.ones(len(y))
    weight = check_weights(sample_weight, len(y))
    Y = np.ascontiguousarray(y.T).reshape(-1, n)
    with single_threaded_blas():
        features.check_finite()
        run = _Run(
            features=features.near_zero() if fit_intercept else features,
            loss=loss,
            Y=Y,
            weight=weight,
            outputs=_get_outputs(output_matrix, output_rank, Y, weight, n_threads),
            fit_intercept=bool(fit_intercept),
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            warm=warm,
            n_threads=n_threads,
            verbose=verbose,
        )
        results = run.along(alphas, start)
        learnt = isinstance(output_matrix, str) and output_matrix == "residual"
        if learnt and len(Y) > 1:
            results = [
                run.with_residual_matrix(first, output_rank).along([alpha], first)[0]
                for alpha, first in zip(alphas, results, strict=True)
            ]
    for result in results:
        warn_if_not_converged(result)
    return results


@dataclasses.dataclass(frozen=True)
class _Run:
    """All that is given, checked."""

    features: "AnyFeatures"
    loss: Loss
    Y: Array  # (d, n)
    weight: Array
    outputs: Outputs
    fit_intercept: bool
    solver: Solver
    tol: float
    max_iter: int
    warm: bool
    n_threads: int
    verbose: int

    def along(self, alphas: list[float], start: StartLike | None) -> list[SolveResult]:
        """Solve for alphas, large ones first; if warm, each from the one before."""
        if self._by_output():
            _check_start(start, self.features.r, len(self.Y))
            paths = [
                self._of_output(j).along(alphas, _start_of_output(start, j))
                for j in range(len(self.Y))
            ]
            return [merge(results) for results in zip(*paths, strict=True)]
        if isinstance(self.loss, Squared) and self.outputs.k < len(self.Y):
            return self._in_directions(alphas, start)
        problem = Problem(
            self.features,
            self.loss,
            self.Y,
            self.weight,
            self.outputs,
            self.fit_intercept,
            self.n_threads,
        )
        sample = Sample(problem)
        run = self.solver.begin(sample)
        results: list[Any] = [None] * len(alphas)
        for k in np.argsort(alphas, kind="stable")[::-1]:
            begin = _where_to_start(problem, start)
            progress = Progress(sample, alphas[k], self.tol, self.verbose)
            if not _is_certified(begin, start, progress):
                run(alphas[k], begin, self.max_iter, progress)
            results[k] = progress.result(self.solver)
            if self.warm:
                start = results[k]
            else:
                sample.restart()
        return results

    def _by_output(self) -> bool:
        """Tell whether it is one problem for each output."""
        together = self.loss.of_norm or isinstance(self.solver, Direct)
        return len(self.Y) > 1 and self.outputs.separate and not together

    def _of_output(self, j: int) -> "_Run":
        return dataclasses.replace(
            self,
            loss=self.loss.of_outputs(len(self.Y))[j],
            Y=self.Y[j : j + 1],
            outputs=Outputs.independent(1),
        )

    def _in_directions(
        self, alphas: list[float], start: StartLike | None
    ) -> list[SolveResult]:
        """Solve the squared loss in the k directions that M has; in others, a constant.

        ‖u - y‖² = ‖Vᵀ(u - y)‖² + ‖y - V·Vᵀy‖² if u is in the span of V, but for an
        intercept.
        """
        _check_start(start, self.features.r, len(self.Y))
        assert self.outputs.vectors is not None  # or k were as many as outputs
        V = self.outputs.vectors[:, : self.outputs.k]
        # around their means, so that rotations do not cost the digits of small targets
        mean = np.zeros(len(self.Y))
        if self.fit_intercept:
            mean = self.Y @ self.weight / self.weight.sum()
        Y = self.Y - mean[:, None]
        rotated = V.T @ Y
        rest = Y - V @ rotated
        offset = np.zeros_like(mean)  # which a mean far from 0 has no digits for
        if self.fit_intercept:
            offset = rest @ self.weight / self.weight.sum()
            rest -= offset[:, None]
        inner = dataclasses.replace(
            self,
            Y=np.ascontiguousarray(rotated),
            outputs=Outputs(np.eye(len(rotated)), self.outputs.values),
        )
        results = inner.along(alphas, _rotated_start(start, V, mean))
        losses = [
            float(
                np.einsum("jn,jn,n->", part, part, self.weight) / 2 / self.weight.sum()
            )
            for part in (rest, Y)
        ]
        return [
            out_of_directions(
                result,
                self.outputs,
                (mean, offset),
                rest,
                losses,
                self.features.largest,
            )
            for result in results
        ]

    def with_residual_matrix(
        self, first: SolveResult, output_rank: int | None
    ) -> "_Run":
        """Make the same with M from the residuals of a first result."""
        d = len(self.Y)
        intercept = np.reshape(
            first.intercept + self.features.moved(first.coef), (d, 1)
        )
        coef = np.ascontiguousarray(first.coef.T)
        residuals = self.features.dot(coef) + intercept - self.Y
        M = residual_matrix(residuals, self.weight)
        rank = check_output_rank(output_rank, d)
        return dataclasses.replace(self, outputs=Outputs.of_matrix(M, d, rank))


def _get_outputs(
    output_matrix: npt.ArrayLike | str | None,
    output_rank: int | None,
    Y: Array,
    weight: Array,
    n_threads: int,
) -> Outputs:
    d = len(Y)
    rank = check_output_rank(output_rank, d)
    if isinstance(output_matrix, str):
        check_option(output_matrix, "output_matrix", ("identity", "residual"))
        learnt = output_matrix == "residual"
        output_matrix = None
        if learnt:  # the rank is for the matrix that will be learnt
            rank = None
    if output_matrix is not None:
        M = check_real_array(output_matrix, "output_matrix")
        if not np.array_equal(M, np.eye(d)):
            return Outputs.of_matrix(M, d, rank)
    if rank is None or rank == d:
        return Outputs.independent(d)
    return Outputs.leading(Y, weight, rank, n_threads)


def _by_newton(features: "AnyFeatures", y: npt.ArrayLike) -> bool:
    """Tell whether Newton's method is that of squares: it needs no Gram matrix of Z."""
    return features.penalty is not None and np.size(y) == features.n


def get_solver(solver: str | Solver, loss: Loss, by_newton: bool = False) -> Solver:
    """Find the solver object behind a name or an object, if it can do the loss.

    `by_newton`: "auto" means Newton's method for the squared loss, too.
    """
    found: Solver
    if isinstance(solver, str) and solver == "auto":
        by_newton = by_newton or not isinstance(loss, Squared)
        found = Newton() if by_newton else Direct()
    elif isinstance(solver, str):
        found = SOLVERS[check_option(solver, "solver", ("auto", *SOLVERS))]()
    elif not isinstance(solver, tuple(SOLVERS.values())):
        raise TypeError(
            "solver must be 'auto', a solver object or one of "
            f"{', '.join(map(repr, SOLVERS))}, got {solver!r}"
        )
    else:
        found = solver
    found.check(loss)
    return found


def _as_list(alphas: Iterable[float] | float) -> list[float]:
    alphas = list(alphas) if np.iterable(alphas) else [alphas]
    if not alphas:
        raise ValueError("alphas must have at least one value, got none")
    return alphas


def _check_alpha(alpha: object) -> float:
    alpha = check_positive(alpha, "alpha")
    if alpha < SMALLEST_ALPHA:
        raise ValueError(f"alpha must be at least {SMALLEST_ALPHA:g}, got {alpha:g}")
    return alpha


def _check_start(start: StartLike | None, r: int, d: int) -> tuple[Array, Array] | None:
    """Check (coef, intercept) of shapes (r, d) and (d,), or None."""
    if start is None:
        return None
    given: tuple[npt.ArrayLike, npt.ArrayLike]
    if isinstance(start, SolveResult):
        given = start.coef, start.intercept
    elif isinstance(start, tuple) and len(start) == 2:
        given = start
    else:
        raise TypeError(
            "start must be a SolveResult or a tuple (coef, intercept), got "
            f"{type(start).__name__}"
        )
    coef, intercept = (
        check_real_array(part, "start").astype(np.float64) for part in given
    )
    shapes = ((r,), ()) if d == 1 else ((r, d), (d,))
    if (coef.shape, intercept.shape) != shapes:
        raise ValueError(
            f"start must have coefficients of shape {shapes[0]} and an intercept of "
            f"shape {shapes[1]}, got {coef.shape} and {intercept.shape}"
        )
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise ValueError("start must be finite")
    return coef.reshape(r, d), intercept.reshape(d)


def _start_of_output(start: StartLike | None, j: int) -> StartLike | None:
    """Take the start of one output of several."""
    if isinstance(start, SolveResult):
        return _replace(start, start.coef[:, j], start.intercept[j], start.dual[:, j])
    if start is None:
        return None
    coef, intercept = start
    return np.asarray(coef)[:, j], np.asarray(intercept)[j]


def _rotated_start(start: StartLike | None, V: Array, mean: Array) -> StartLike | None:
    """Turn a start of outputs into that of directions V, around the mean."""
    if isinstance(start, SolveResult):
        intercept = (start.intercept - mean) @ V
        return _replace(start, start.coef @ V, intercept, start.dual @ V)
    if start is None:
        return None
    coef, intercept = np.asarray(start[0]) @ V, (np.asarray(start[1]) - mean) @ V
    return (coef, intercept) if V.shape[1] > 1 else (coef[:, 0], intercept[0])


def _replace(start: SolveResult, coef: Any, intercept: Any, dual: Any) -> SolveResult:
    if coef.ndim == 2 and coef.shape[1] == 1:
        coef, intercept, dual = coef[:, 0], intercept[0], dual[:, 0]
    return dataclasses.replace(start, coef=coef, intercept=intercept, dual=dual)


def _where_to_start(problem: Problem, start: StartLike | None) -> Start:
    checked = _check_start(start, problem.features.r, problem.outputs.d)
    if checked is None:
        return Start(problem.null_theta, problem.null_intercept)
    coef, intercept = checked
    theta = np.ascontiguousarray(problem.outputs.theta(coef))
    if problem.fit_intercept:
        intercept = intercept - problem.shift + problem.features.moved(coef)
    else:
        intercept = np.zeros_like(intercept)
    return Start(theta, intercept, warm=True)


def _is_certified(begin: Start, start: StartLike | None, progress: Progress) -> bool:
    """Tell whether a result to start from is a solution already, by its own ζ."""
    sample = progress.sample
    d, n = sample.problem.outputs.d, sample.problem.features.n
    if not isinstance(start, SolveResult) or np.size(start.dual) != d * n:
        return False
    dual = check_real_array(start.dual, "the dual of start").astype(np.float64)
    if not np.isfinite(dual).all():
        return False
    sample.place(begin.theta, begin.intercept)
    sample.set_zeta(np.ascontiguousarray(dual.reshape(n, d).T))
    certificate = sample.certify(begin.theta, progress.alpha)
    return progress.add(begin.theta, begin.intercept, certificate)
