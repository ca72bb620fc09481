"""Bound all that rounding may hide of a gap: what makes a certificate a proof.

The gap that is proven is that of the model as it is returned, in exact arithmetic:
P - D with exact predictions u, an exact G, and a sum of flows that is exactly 0.  Each
of them was computed with an error of at most the rounding of as many operations as
there are, all of them in the worst direction, and so were features that are stored in
fewer digits (`row_rounding`).  Where such a bound decides whether the
tolerance is reached, residuals are computed once more, as if in twice the digits.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pskernels._exact import two_product, two_sum
from pskernels._products import EPS
from pskernels._types import Array
from pskernels.losses import Squared
from pskernels.objective import BALANCED, Certificate, Problem, norm

if TYPE_CHECKING:
    from pskernels.outputs import Outputs
    from pskernels.sample import Sample
    from pskernels.solvers.base import SolveResult

# Relative errors of the weights, of norms and of the last division.
OF_THE_REST = 1e-12
TINY = np.finfo(np.float64).tiny


class Model(NamedTuple):
    """A model as solvers see it, and as it is returned."""

    theta: Array
    b: Array
    coef: Array  # (r, d), for features and targets as they were given
    intercept: Array  # (d,)


def make_model(problem: Problem, theta: Array, b: Array) -> Model:
    """Make the model of Θ and b, with the coefficients and intercept to return."""
    coef = problem.outputs.coef(theta)
    moved = problem.features.moved(coef)
    return Model(theta, b, coef, b + problem.shift - moved)


def bound_rounding(
    sample: "Sample",
    alpha: float,
    model: Model,
    certificate: Certificate,
    exact: bool = False,
) -> float:
    """Bound what rounding may hide of the gap of a model.

    Parameters
    ----------
    sample : Sample
        With its residuals, and the ζ that certifies it.
    alpha : float
    model : Model
    certificate : Certificate
    exact : bool
        Whether residuals are those of `place_exactly`.

    Returns
    -------
    float
    """
    with np.errstate(over="ignore", invalid="ignore"):  # no number proves nothing
        return _bound_rounding(sample, alpha, model, certificate, exact)


def _bound_rounding(
    sample: "Sample",
    alpha: float,
    model: Model,
    certificate: Certificate,
    exact: bool,
) -> float:
    """Add up the bounds of losses, of the balance and of the pull."""
    problem = sample.problem
    features, outputs = problem.features, problem.outputs
    error = _error_of_predictions(sample, model, exact)
    if isinstance(problem.loss, Squared) and len(error) > 1:
        # a pass over all outputs would cost as much as a step
        hidden, price, size, share = _hidden_by_squares(problem, certificate, error)
    else:
        hidden, product = sample.rounding(error, exact)
        price = product + certificate.objective
        total, size = sample.flow_sums()
        share = np.max(np.abs(total) / np.maximum(size, TINY))
    taken = 0.0  # the share of ζ to be taken away, so that flows add up to exactly 0
    if problem.fit_intercept:
        taken = 2 * (share + (EPS if exact else problem.sum_error))
        hidden += taken * price
    gradient = norm(certificate.gradient)
    of_sums = features.sum_error(outputs.d > 1)
    if exact:
        of_sums = of_sums**2 + 2 * EPS  # flows themselves are rounded
    of_pull = taken + of_sums + outputs.d * EPS
    wrong = of_pull * norm(features.largest) + features.row_rounding
    wrong *= norm(outputs.pulled_sizes(size))
    wrong += EPS * ((4 + outputs.coef_error) * alpha * norm(model.theta) + 4 * gradient)
    hidden += wrong * (gradient + wrong / 2) / alpha
    hidden += (problem.sum_error + OF_THE_REST) * certificate.gap
    more = _relative_to_less(problem, model, certificate) - 1
    return hidden + (hidden + certificate.gap) * more


def _relative_to_less(
    problem: Problem, model: Model, certificate: Certificate
) -> float:
    """Bound by what factor a gap is larger relative to the objective before rounding.

    That of features which are stored in fewer digits: it may be less than the one that
    is known.
    """
    errors, size = _error_of_storage(problem, model), problem.loss.lipschitz
    if not errors.any():
        return 1.0
    if not size < math.inf:  # slopes of squares are at most twice their roots
        size = 2 * math.sqrt(certificate.objective)
    least = certificate.objective - size * errors.sum()
    return certificate.objective / least if least > 0 else math.inf


def _error_of_storage(problem: Problem, model: Model) -> Array:
    """Bound what storage may change in predictions, for each output."""
    found: Array = problem.features.row_rounding * np.linalg.norm(model.coef, axis=0)
    return found


def _error_of_predictions(sample: "Sample", model: Model, exact: bool) -> Array:
    """Bound by how much predictions may be wrong, for each output."""
    problem = sample.problem
    features, outputs = problem.features, problem.outputs
    sizes = outputs.mixed_sizes(np.abs(model.theta) @ features.largest)
    rounding = (features.n_terms + outputs.k + 8) * EPS
    stored = _error_of_storage(problem, model)
    if exact:
        inner = inner_intercept(problem, model)[0]
        # b - y alone, without features, is exact in two numbers
        sum_of_sizes = sizes + np.abs(inner) + sample.farthest_targets()
        found: Array = (
            np.sign(sizes) * rounding**2 * sum_of_sizes + sample.drift + stored
        )
        return found
    moved = inner_intercept(problem, model, problem.shift, model.b)[0]
    found = rounding * sizes + np.abs(moved) + sample.drift + stored
    return found


def _hidden_by_squares(
    problem: Problem, certificate: Certificate, error: Array
) -> tuple[float, float, Array, float]:
    """Find (hidden, price, size, share) of the squared loss, with no pass over points.

    If e is wrong by δ, at most EPS·(|y| + |e|) + error, the gap is (e - ζ)·δ + δ²/2
    larger, and Σ ω (e - ζ)² / 2 is the excess.  What keeps flows from adding up to 0 is
    taken from all ζ alike: another δ, which costs nothing else.
    """
    value = certificate.objective
    size = math.sqrt(2 * value)
    squares = size**2 + 2 * problem.null_objective  # Σ ω (e² + y²), at most
    share = BALANCED + problem.sum_error
    delta = 4 * (EPS**2 * squares + error @ error + (share * size) ** 2)
    hidden = delta + 2 * math.sqrt(delta * certificate.excess) + 16 * EPS * value
    size += math.sqrt(2 * certificate.excess)  # of ζ, where it is not e
    return hidden, 0.0, np.full(len(error), size), BALANCED


def bound_rotation(
    outputs: "Outputs",
    coef: Array,
    rotated: Array,
    mean: Array,
    largest: Array,
    result: "SolveResult",
    whole: float,
) -> float:
    """Bound what rotating outputs to directions and back may hide, of squared losses.

    Targets, coefficients and the intercept are rounded on the way, and so is ζ: by δ at
    the most, the root of a mean square over points.  The gap is then δ²/2 larger, and G
    is wrong by δ times the features.

    Parameters
    ----------
    coef, rotated : arrays of shape (r, d), (d,)
        Coefficients of all outputs, and their intercept, before `mean` is added to it.
    largest : array of shape (r,)
        The largest |z| of each feature.
    result : SolveResult
        That of the directions, with a dual_gap of its own.
    whole : float
        The loss of all targets around their mean.
    """
    operations = 4 * (outputs.d + 2) * EPS
    predictions = norm(np.abs(coef).T @ largest) + norm(rotated)
    _, lost = two_sum(rotated, mean)
    delta = operations * (2 * math.sqrt(2 * whole) + predictions) + norm(lost)
    # the part of the gradient in the gap
    gradient = math.sqrt(
        2 * result.alpha * result.dual_gap * max(result.objective, whole)
    )
    error = delta * math.sqrt(outputs.values[0]) * norm(largest)
    return delta**2 + error * (gradient + error / 2) / result.alpha


def inner_intercept(problem: Problem, model: Model, *less: Array) -> Array:
    """Find the returned intercept at the features' origin, less some arrays, exactly.

    Returns an array (2, d): numbers, and what they have no room for.
    """
    origin = problem.features.origin
    pairs = []
    for j, intercept in enumerate(model.intercept.tolist()):
        terms = [intercept, *(-array[j] for array in less)]
        if origin is not None:
            terms.extend(np.concatenate(two_product(origin, model.coef[:, j])))
        high = math.fsum(terms)
        pairs.append((high, math.fsum([*terms, -high])))
    return np.transpose(pairs)
