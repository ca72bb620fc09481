"""Multinomial logistic machines: all classes as one problem, with a certificate.

    P(W, b) = Σ_i ω_i (log Σ_c exp f_ic - f_{i,y_i}) + (alpha/2)·‖W‖²,  f = Z·W + b

With p = softmax(f), and b such that Σ_i ω_i (p_i - e_{y_i}) = 0, p is feasible in the
dual, and what P exceeds its minimum by is at most ‖∇_W P‖² / (2·alpha).

    Newton    steps by conjugate gradients: two passes over Z for each iteration
    precondition  κ_c·G + alpha·I, with G the Gram matrix of the features and κ_c the
              mean of p_c·(1 - p_c): one eigendecomposition for all classes and steps
    balance   b by Newton's method in as many dimensions as there are classes
"""

import time
from typing import NamedTuple

import numpy as np
import scipy.special

from pskernels._products import eigh_of_gram
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._validation import check_int, check_positive
from pskernels.features import as_features
from pskernels.losses import check_weights
from pskernels.objective import gap_scale, relative_gap, squared_norm
from pskernels.solvers.base import Iteration, SolveResult, warn_if_not_converged
from pskernels.solvers.hessian import centred_gram

# Newton steps, iterations of conjugate gradients for each, and the accuracy of a step:
# no better than that, or than the root of the gradient's share of the first one.
MAX_ITER, CG_ITER, CG_TOL = 100, 200, 0.1
# Halvings of a step, and the share of the promised descent that is enough.
HALVINGS, DESCENT = 40, 1e-4
# Newton steps of the intercept, and the imbalance of a class that is rounding.
BALANCE_ITER, BALANCED = 50, 1e-14
# Least mean curvature of a class, as a share of the largest that there can be.
LEAST_CURVATURE = 1e-6

ADVICE = "raise max_iter, tol or alpha"


def solve_softmax(
    Z,
    y,
    *,
    alphas,
    n_classes=None,
    sample_weight=None,
    fit_intercept=True,
    tol=1e-6,
    max_iter=None,
    start=None,
    warm=True,
    n_threads=None,
):
    """Minimise mean -log softmax(Z @ coef + intercept)[y] + (alpha/2)·‖coef‖².

    Parameters
    ----------
    Z : array of shape (n, r), or features
    y : array of int, shape (n,)
        Numbers of classes, from 0 on.
    alphas : sequence of float
    n_classes : int, optional
        None means the largest number and one more.
    sample_weight : array of shape (n,), optional
    fit_intercept : bool
        The intercept is not penalised; of equal ones, that of mean 0.
    tol : float
        The certified gap to stop at, relative to the objective.
    max_iter : int, optional
        Newton steps at most, 100.
    start : tuple (coef, intercept), optional
    warm : bool
        Whether each alpha begins with the solution of the one before, large ones first.
    n_threads : int, optional

    Returns
    -------
    list of SolveResult
        With coef of shape (r, n_classes), in the order of alphas.  The certificate is
        exact but for the rounding of the gradient itself.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(500, 2))
    >>> y = np.array([0, 1, 2])[(Z[:, 0] > 0).astype(int) + (Z[:, 1] > 0)]
    >>> (result,) = psk.solve_softmax(Z, y, alphas=[1e-2])
    >>> result.converged, result.coef.shape
    (True, (2, 3))
    """
    n_threads = resolve_n_threads(n_threads)
    tol = check_positive(tol, "tol")
    alphas = [check_positive(alpha, "alpha") for alpha in alphas]
    max_iter = MAX_ITER if max_iter is None else max_iter
    max_iter = check_int(max_iter, "max_iter", minimum=0)
    with single_threaded_blas():
        features = as_features(Z, n_threads).formed()
        features.check_finite()
        codes, n_classes = _check_codes(y, features.n, n_classes)
        weight = np.ones(features.n) if sample_weight is None else sample_weight
        weight = check_weights(weight, features.n)
        problem = _Problem(features, codes, n_classes, weight, fit_intercept)
        results, model = [None] * len(alphas), problem.model_of(start)
        for k in np.argsort(alphas, kind="stable")[::-1]:
            results[k], found = _minimise(problem, alphas[k], model, tol, max_iter)
            model = found if warm else model
    for result in results:
        warn_if_not_converged(result)
    return results


def _check_codes(y, n, n_classes):
    codes = np.asarray(y)
    if codes.shape != (n,) or codes.dtype.kind not in "iu" or codes.min() < 0:
        raise ValueError(
            f"y must have the number of a class, from 0 on, for each of {n} rows of Z, "
            f"got shape {codes.shape} and type {codes.dtype}"
        )
    found = int(codes.max()) + 1
    n_classes = found if n_classes is None else n_classes
    if n_classes < max(2, found):
        raise ValueError(f"n_classes must be at least {max(2, found)}, got {n_classes}")
    return codes, n_classes


class _Model(NamedTuple):
    """Coefficients (classes, r) of centred features, and intercepts (classes,)."""

    W: np.ndarray
    b: np.ndarray


class _Problem:
    """Sums over points; features are around their means, which are not subtracted."""

    def __init__(self, features, codes, n_classes, weight, fit_intercept):
        self.features = features.near_zero() if fit_intercept else features
        self.codes, self.n_classes = codes, n_classes
        self.weight = weight / weight.sum()
        self.fit_intercept = bool(fit_intercept)
        self.rows = np.arange(len(codes))
        gram = self.features.gram(self.weight, bordered=self.fit_intercept)
        self.means = np.zeros(self.features.r)
        if self.fit_intercept:
            self.means = gram[:-1, -1].copy()
            gram = centred_gram(gram)
        values, self.vectors = eigh_of_gram(gram)
        self.values = np.maximum(values, 0.0)

    def model_of(self, start):
        """Make a model of (coef, intercept); without a start, that of the shares."""
        if start is not None:
            coef, b = np.asarray(start[0], np.float64), np.asarray(start[1], np.float64)
            shift = self.features.moved(coef) + self.means @ coef
            return _Model(np.ascontiguousarray(coef.T), b + shift)
        b = np.zeros(self.n_classes)
        if self.fit_intercept:
            shares = np.bincount(self.codes, self.weight, self.n_classes)
            b = np.log(np.maximum(shares, np.finfo(float).tiny))
        return _Model(np.zeros((self.n_classes, self.features.r)), b)

    def decide(self, W, b):
        """Compute f, (classes, n)."""
        f = self.features.dot(W)
        f += (b - W @ self.means)[:, None]
        return f

    def loss(self, f):
        """Average -log softmax(f)[y]."""
        lse = scipy.special.logsumexp(f, axis=0)
        return float(self.weight @ (lse - f[self.codes, self.rows]))

    def flow(self, p):
        """Compute ω·(p - e_y), and its sum, what it pulls at intercepts with."""
        flow = p.copy()
        flow[self.codes, self.rows] -= 1.0
        flow *= self.weight
        return flow, self._total(flow)

    def _total(self, flow):
        """Sum over points; 0 if there is no intercept."""
        return flow.sum(axis=1) if self.fit_intercept else np.zeros(len(flow))

    def pull(self, flow, total):
        """Compute Σ flow·(z - mean), (classes, r)."""
        return self.features.t_dot(flow) - total[:, None] * self.means

    def balance(self, f, b):
        """Move intercepts, and f, to where the flow of each class adds up to 0."""
        p = scipy.special.softmax(f, axis=0)
        if not self.fit_intercept:
            return f, b, p
        for _ in range(BALANCE_ITER):
            _, total = self.flow(p)
            shares = p @ self.weight
            if (np.abs(total) <= BALANCED * np.maximum(shares, BALANCED)).all():
                break
            H = np.diag(shares) - (p * self.weight) @ p.T
            step = -np.linalg.lstsq(H, total, rcond=1e-12)[0]
            step *= min(1.0, 5.0 / max(np.abs(step).max(), 1e-300))
            moved = f + step[:, None]
            changed = scipy.special.softmax(moved, axis=0)
            if np.abs(self.flow(changed)[1]).max() >= np.abs(total).max():
                break  # rounding, or a class without points
            f, b, p = moved, b + step, changed
        return f, b - b.mean(), p

    def curve(self, p, V, v):
        """Multiply the Hessian without penalty by a direction (V, v)."""
        u = self.decide(V, v)
        u -= (p * u).sum(axis=0)
        u *= p
        u *= self.weight
        total = self._total(u)
        return self.pull(u, total), total


def _minimise(problem, alpha, model, tol, max_iter):
    """Find (result, model) for one alpha."""
    began, history = time.perf_counter(), []
    W, b = model
    f, b, p = problem.balance(problem.decide(W, b), b)
    null = problem.loss(problem.decide(*problem.model_of(None)))
    first = None
    for n_iter in range(max_iter + 1):
        objective = problem.loss(f) + alpha / 2 * squared_norm(W)
        flow, total = problem.flow(p)
        gradient = problem.pull(flow, total) + alpha * W
        gap = squared_norm(gradient) / (2 * alpha) + abs(b @ total)
        gap = relative_gap(gap, gap_scale(objective, null))
        seconds = time.perf_counter() - began
        history.append(Iteration(n_iter, objective, gap, seconds, len(p.T), 0.0))
        if gap <= tol or n_iter == max_iter:
            break
        precondition = _make_preconditioner(problem, p, alpha)
        size = np.sqrt(np.vdot(gradient, precondition(gradient, total)[0]))
        first = size if first is None else first
        accuracy = min(CG_TOL, np.sqrt(size / first))
        V, v = _newton_step(problem, p, alpha, gradient, total, precondition, accuracy)
        step = _search(problem, f, W, V, v, alpha, objective, np.vdot(gradient, V))
        if step is None:
            break
        W = W + step * V
        f, b, p = problem.balance(problem.decide(W, b + step * v), b + step * v)
    coef = np.ascontiguousarray(W.T)
    shift = problem.features.moved(coef) + problem.means @ coef
    result = SolveResult(
        coef=coef,
        intercept=b - shift if problem.fit_intercept else np.zeros_like(b),
        objective=objective,
        null_objective=null,
        dual_gap=gap,
        dual=np.ascontiguousarray((flow / problem.weight.mean()).T),
        converged=bool(gap <= tol),
        n_iter=n_iter,
        history=history,
        alpha=alpha,
        tol=tol,
        solver="softmax",
        output_matrix=None,
        advice=ADVICE,
    )
    return result, _Model(W, b)


def _make_preconditioner(problem, p, alpha):
    """Make a function that divides by κ_c·G + alpha, and by κ_c."""
    curvature = (p * (1 - p)) @ problem.weight
    curvature = np.maximum(curvature, LEAST_CURVATURE / 4)[:, None]
    inverse = 1 / (curvature * problem.values + alpha)
    Q = problem.vectors

    def precondition(gradient, total):
        return ((gradient @ Q) * inverse) @ Q.T, total / curvature[:, 0]

    return precondition


def _newton_step(problem, p, alpha, gradient, total, precondition, accuracy):
    """Solve H·step = -gradient by conjugate gradients, to an accuracy."""
    V, v = np.zeros_like(gradient), np.zeros_like(total)
    r, s = -gradient, -total
    d, e = precondition(r, s)
    rho = start = np.vdot(r, d) + s @ e
    for _ in range(CG_ITER):
        Hd, He = problem.curve(p, d, e)
        Hd += alpha * d
        bend = np.vdot(d, Hd) + e @ He
        if not bend > 0:
            break
        t = rho / bend
        V, v, r, s = V + t * d, v + t * e, r - t * Hd, s - t * He
        x, y = precondition(r, s)
        rho, before = np.vdot(r, x) + s @ y, rho
        if rho <= accuracy**2 * start:
            break
        d, e = x + rho / before * d, y + rho / before * e
    return V, v


def _search(problem, f, W, V, v, alpha, objective, slope):
    """Halve the step until the objective has fallen; None if it cannot."""
    df = problem.decide(V, v)
    for k in range(HALVINGS):
        step = 0.5**k
        value = problem.loss(f + step * df)
        value += alpha / 2 * squared_norm(W + step * V)
        if value <= objective + DESCENT * step * min(slope, 0.0):
            return step
    return None
