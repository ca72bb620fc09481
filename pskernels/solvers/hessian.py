"""Systems with the Hessian of the losses, plus alpha·I.

Unknowns are Θ, row by row, and then b if there is an intercept; b is not penalised.
With H_i the d × d Hessian of point i and B the mixture of the outputs, the Hessian is
Σ_i (Bᵀ H_i B) ⊗ z_i z_iᵀ, bordered by Σ_i Bᵀ H_i ⊗ z_i and Σ_i H_i.

One output, or a loss that is a sum over outputs: H_i is diagonal, and d Gram matrices
Zᵀ·diag(h_j)·Z make up the whole.  A loss of the norm: k·(k + 1)/2 of them.  Directly,
by a Cholesky factorisation; or by conjugate gradients, preconditioned as if every H_i
were a multiple of the identity.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.linalg import lapack, lu_factor, lu_solve

from pskernels._matrices import add_scaled, cholesky, rows_by_inverse
from pskernels._products import symmetric
from pskernels._types import Array

if TYPE_CHECKING:
    from pskernels.features import AnyFeatures
    from pskernels.outputs import Outputs
    from pskernels.sample import Sample

# A matrix, by its product with a vector.
Operator: TypeAlias = Callable[[Array], Array]

# Iterations of conjugate gradients, at most.
MAX_CG = 200
# How often the diagonal is raised, a hundred times higher each time: from rounding to
# far above the sums of whole rows.
MAX_RAISED = 12


def centred_gram(bordered: Array) -> Array:
    """Find the covariance of features, upper triangle, by a bordered `Features.gram`.

    Weights add up to 1, and features are not far from 0 (`Features.near_zero`).
    """
    mean = bordered[:-1, -1]
    gram = np.triu(bordered[:-1, :-1] - np.outer(mean, mean))
    diagonal = gram.reshape(-1)[:: len(gram) + 1]
    np.maximum(diagonal, 0.0, out=diagonal)  # variances, but for rounding
    return gram


def add_penalty(
    H: Array, n_coef: int, alpha: float, penalty: Array | None = None
) -> Array:
    """Make the Hessian of n_coef coefficients and of intercepts from that of losses.

    `penalty` (r, r) is that of each r coefficients, None the identity.
    """
    diagonal = H.reshape(-1)[:: len(H) + 1]
    if penalty is None:
        diagonal[:n_coef] += alpha
    else:
        for start in range(0, n_coef, len(penalty)):
            rows = slice(start, start + len(penalty))
            add_scaled(H[rows, rows], alpha, penalty)
    # where no point has a curvature, b is free, and its gradient is 0
    intercept = diagonal[n_coef:]
    intercept[~(intercept > 0)] = 1.0
    return H


def sum_hessian(grams: list[Array], outputs: "Outputs", r: int) -> Array:
    """Compute the Hessian without alpha, of a loss that is a sum over outputs.

    Parameters
    ----------
    grams : list of d arrays
        `Features.gram` with the curvatures of each output, bordered or not.

    Returns
    -------
    ndarray
        The upper triangle.
    """
    mix = outputs.mix
    if mix is None:  # one output
        return grams[0]
    d, k = mix.shape
    bordered = len(grams[0]) > r
    H = np.zeros((k * r + d * bordered,) * 2)
    inner = np.stack([symmetric(gram[:r, :r]) for gram in grams]).reshape(d, r * r)
    for a in range(k):
        block = (mix[:, a] * mix[:, a:].T) @ inner
        H[a * r : (a + 1) * r, a * r : k * r] = (
            block.reshape(k - a, r, r).transpose(1, 0, 2).reshape(r, -1)
        )
        if bordered:
            for j, gram in enumerate(grams):
                H[a * r : (a + 1) * r, k * r + j] = mix[j, a] * gram[:r, r]
    if bordered:
        corner = H[k * r :, k * r :]
        corner[np.diag_indices(d)] = [gram[r, r] for gram in grams]
    return H


def factorise(H: Array, n_threads: int) -> Array:
    """Compute the Cholesky factor of a matrix given by its upper triangle.

    Where rounding has made it indefinite, the diagonal is raised: what is solved
    for is then still a direction of descent.
    """
    diagonal = H.reshape(-1)[:: len(H) + 1]
    original = diagonal.copy()
    if not np.isfinite(original).all():
        raise FloatingPointError(
            "the Hessian overflows: scale the features or the targets"
        )
    for k in range(MAX_RAISED + 1):
        if k > 0:
            diagonal[:] = original + 1e-17 * 100.0**k * len(H) * original.max()
        factor, info = cholesky(H, n_threads)
        if info == 0:
            return factor
    raise FloatingPointError(
        f"the Hessian, of diagonal {original.min():g} to {original.max():g}, is far "
        "from positive definite: scale the features or the targets"
    )


def solve_factorised(factor: Array, b: Array) -> Array:
    # to LAPACK, which counts by columns, a row-major upper triangle is a lower one
    found: Array = lapack.dpotrs(factor.T, b, lower=1)[0]
    return found


def changed_solve(
    factor: Array, rows: Array, weights: Array, n_threads: int
) -> Operator:
    """Make a function of a vector b, (H + Σ weight·row·rowᵀ)⁻¹·b, by the factor U of H.

    With T = rows·U⁻¹ and D the weights, none of them 0, what H is changed to is
    Uᵀ (I + Tᵀ·D·T) U, and (I + Tᵀ·D·T)⁻¹ = I - Tᵀ (D⁻¹ + T·Tᵀ)⁻¹ T.  Costs
    (rows)·r²/2 multiplications, where a new factor takes r³/6 and the rows as well.
    """
    T = rows_by_inverse(rows, factor, n_threads)
    inner = T @ T.T
    inner[np.diag_indices_from(inner)] += 1 / weights
    lu = lu_factor(inner, overwrite_a=True, check_finite=False)

    def solve(b: Array) -> Array:
        v = lapack.dtrtrs(factor.T, b, lower=1)[0]
        v -= lu_solve(lu, T @ v, check_finite=False) @ T
        found: Array = lapack.dtrtrs(factor.T, v, lower=1, trans=1)[0]
        return found

    return solve


def solve_inner(
    features: "AnyFeatures", solve: Operator, gradient: Array, n_coef: int
) -> Array:
    """Compute H⁻¹·gradient; `solve` does so in the coordinates of `features.inner`."""
    shape = -1, features.r
    gradient = gradient.copy()
    gradient[:n_coef] = features.to_inner(gradient[:n_coef].reshape(shape)).ravel()
    solution = solve(gradient)
    solution[:n_coef] = features.from_inner(solution[:n_coef].reshape(shape)).ravel()
    return solution


def squared_gradient(features: "AnyFeatures", v: Array, n_coef: int) -> float:
    """Compute the square of a gradient that is given in coordinates of `inner`."""
    theta, b = v[:n_coef].reshape(-1, features.r), v[n_coef:]
    if features.W is not None:
        theta = theta @ features.W
    return float(np.vdot(theta, theta) + b @ b)


def hessian_product(sample: "Sample", outputs: "Outputs", alpha: float) -> Operator:
    """Make a function of v that gives H·v, in the coordinates of `features.inner`."""
    problem = sample.problem
    r, penalty = problem.features.r, problem.features.penalty

    def penalised(theta: Array) -> Array:
        return alpha * (theta if penalty is None else theta @ penalty)

    if outputs.d == 1 and outputs.separate:
        return lambda v: _product_of_one_output(sample, penalised, v, r)
    shape = outputs.k, r
    n_coef = shape[0] * shape[1]
    # as in `add_penalty`: the intercept of an output without curvatures is free
    free = np.zeros(outputs.d)
    if not problem.radial:
        free[~sample.has_curvature()] = 1.0

    def product(v: Array) -> Array:
        theta, b = v[:n_coef].reshape(shape), v[n_coef:]
        pulled, sums = sample.hessian_product(outputs, theta, b)
        out: Array = (pulled + penalised(theta)).reshape(-1)
        if not problem.fit_intercept:
            return out
        return np.append(out, sums + free * b)

    return product


def _product_of_one_output(
    sample: "Sample", penalised: Operator, v: Array, r: int
) -> Array:
    """Compute H·v in a single pass over the rows with a curvature."""
    bordered = v if len(v) > r else np.append(v, 0.0)  # no intercept
    out: Array = sample.bordered_product(bordered)[: len(v)]
    out[:r] += penalised(v[:r])
    return out


def direction_preconditioner(
    gram: Array, rest: float, outputs: "Outputs", alpha: float, features: "AnyFeatures"
) -> Operator:
    """Make a function of v that gives P⁻¹·v, where P has curvatures h_i·I.

    In the coordinates of `features.inner`, as all systems are (`solve_inner`).
    Directions of the outputs, the eigenvectors of M, then have nothing to do with
    each other: P is a block for each, and those of equal eigenvalues are equal.

    Parameters
    ----------
    gram : array
        That of `features.inner` with curvatures h, bordered or not.
    rest : float
        Σ h, the curvature of the intercept in directions that M has not.
    """
    r, k = features.r, outputs.k
    bordered = len(gram) > r
    factors = {}
    for value in outputs.values:
        if value not in factors:
            block = gram.copy()
            block[:r] *= np.sqrt(value)
            block[:, :r] *= np.sqrt(value)
            add_penalty(block, r, alpha, features.penalty)
            factors[value] = factorise(block, features.n_threads)
    blocks = [factors[value] for value in outputs.values]

    def precondition(v: Array) -> Array:
        theta, b = v[: k * r].reshape(k, r), v[k * r :]
        if bordered and outputs.vectors is not None:
            b = outputs.vectors.T @ b
        out = np.empty_like(v)
        rotated = b / (rest or 1.0)
        for a, factor in enumerate(blocks):
            one = np.append(theta[a], b[a]) if bordered else theta[a]
            solution = solve_factorised(factor, one)
            out[a * r : (a + 1) * r] = solution[:r]
            rotated[a : a + 1] = solution[r:]
        if bordered:
            if outputs.vectors is not None:
                rotated = outputs.vectors @ rotated
            out[k * r :] = rotated
        return out

    return precondition


def conjugate_gradients(
    product: Operator,
    precondition: Operator,
    b: Array,
    tolerance: float,
    is_small: Callable[[Array, Any], bool] | None = None,
) -> tuple[Array, int]:
    """Solve A·x = b, up to a share of the right-hand side, in P⁻¹: (x, iterations).

    Or until is_small(residual, its square in P⁻¹).
    """
    x = np.zeros_like(b)
    residual = b.copy()
    z = precondition(residual)
    direction = z.copy()
    rho = residual @ z
    goal = tolerance**2 * rho
    n_iter = 0
    while n_iter < MAX_CG:
        n_iter += 1
        q = product(direction)
        curvature = direction @ q
        if not 0 < curvature < np.inf:
            break
        step = rho / curvature
        x += step * direction
        residual -= step * q
        z = precondition(residual)
        rho, previous = residual @ z, rho
        if not rho > goal or (is_small is not None and is_small(residual, rho)):
            break
        direction *= rho / previous
        direction += z
    return x, n_iter
