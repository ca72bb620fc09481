"""Systems with the Hessian Zᵀ·diag(h)·Z + alpha·I, bordered by the intercept.

Directly, by a Cholesky factorisation, or by conjugate gradients preconditioned
with the Hessian of a subsample of the rows.  The last unknown is b, if there is
an intercept; b is not penalised.
"""

import numpy as np
from scipy.linalg import lapack

# Conjugate gradients: the residual falls to this share of the right-hand side.
CG_TOLERANCE = 0.05
MAX_CG = 200


def weighted_gram(objective, h, rows=None):
    """Upper triangle of the Hessian without alpha, from all rows or from some."""
    features = objective.features
    if not objective.fit_intercept:
        return features.gram(h, rows)
    gram = features.gram(h, rows, size=features.r + 1)
    if rows is not None:
        chosen = np.zeros_like(h)
        chosen[rows] = h[rows]
        h = chosen
    gram[:, -1] = features.bordered_t_dot(h)
    return gram


def signed_gram(objective, weight):
    """`weighted_gram` of weights of any sign."""
    gram = weighted_gram(objective, np.maximum(weight, 0.0))
    if weight.min() < 0:
        gram -= weighted_gram(objective, np.maximum(-weight, 0.0))
    return gram


def add_penalty(objective, gram):
    """The Hessian, in place of its part without alpha."""
    diagonal = gram.reshape(-1)[:: len(gram) + 1]
    diagonal[: objective.features.r] += objective.alpha
    if objective.fit_intercept and not diagonal[-1] > 0:
        # where no point has a curvature, b is free, and its gradient is 0
        diagonal[-1] = 1.0
    return gram


def factorise(H):
    """Cholesky factor of a matrix given by its upper triangle.

    Where rounding has made it indefinite, the diagonal is raised: what is solved
    for is then still a direction of descent.
    """
    diagonal = H.reshape(-1)[:: len(H) + 1]
    original = diagonal.copy()
    if not np.isfinite(original).all():
        raise FloatingPointError(
            "the Hessian overflows: scale the features or the targets"
        )
    raised = 0.0
    while True:
        # to LAPACK, which counts by columns, a row-major upper triangle is a lower one
        factor, info = lapack.dpotrf(H.T, lower=1, clean=0)
        if info == 0:
            return factor
        raised = 1e-15 * len(H) if raised == 0 else 100 * raised
        diagonal[:] = original + raised * original.max()


def solve_factorised(factor, b):
    return lapack.dpotrs(factor, b, lower=1)[0]


def hessian_product(objective, h):
    """A function of v that gives H·v, in one pass over the rows of positive h."""
    features, alpha = objective.features, objective.alpha
    r = features.r

    def product(v):
        if len(v) == r:  # no intercept
            return features.bordered_gram_dot(h, np.append(v, 0.0))[:r] + alpha * v
        out = features.bordered_gram_dot(h, v)
        out[:r] += alpha * v[:r]
        return out

    return product


def conjugate_gradients(product, precondition, b):
    """(x, iterations): A·x = b, up to CG_TOLERANCE in the norm of M⁻¹."""
    x = np.zeros_like(b)
    residual = b.copy()
    z = precondition(residual)
    direction = z.copy()
    rho = residual @ z
    goal = CG_TOLERANCE**2 * rho
    n_iter = 0
    while n_iter < MAX_CG:
        n_iter += 1
        q = product(direction)
        curvature = direction @ q
        if not curvature > 0:
            break
        step = rho / curvature
        x += step * direction
        residual -= step * q
        z = precondition(residual)
        rho, previous = residual @ z, rho
        if not rho > goal:
            break
        direction *= rho / previous
        direction += z
    return x, n_iter
