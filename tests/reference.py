"""Dense references in a line or two of NumPy; they never call pskernels."""

import numpy as np


def squared_distances(X, Y):
    return ((X[:, None, :] - Y[None, :, :]) ** 2).sum(axis=2)


def rbf(X, Y, gamma):
    return np.exp(-gamma * squared_distances(X, Y))


def laplacian(X, Y, gamma):
    return np.exp(-gamma * np.abs(X[:, None, :] - Y[None, :, :]).sum(axis=2))


def matern12(X, Y, gamma):
    return np.exp(-np.sqrt(2 * gamma * squared_distances(X, Y)))


def matern32(X, Y, gamma):
    q = np.sqrt(3 * 2 * gamma * squared_distances(X, Y))
    return (1 + q) * np.exp(-q)


def matern52(X, Y, gamma):
    q = np.sqrt(5 * 2 * gamma * squared_distances(X, Y))
    return (1 + q + q**2 / 3) * np.exp(-q)


def polynomial(X, Y, gamma, degree=3, coef0=1.0):
    return (gamma * X @ Y.T + coef0) ** degree


def linear(X, Y, gamma):
    return X @ Y.T


def cosine(X, Y, gamma):
    return (X / np.linalg.norm(X, axis=1)[:, None]) @ (
        Y / np.linalg.norm(Y, axis=1)[:, None]
    ).T


def sobolev(X, Y, gamma):
    return (1 + np.minimum(X[:, None, :], Y[None, :, :])).prod(axis=2)


def sketched_kernel(K_new, K, S, cut):
    """K(X_new, X) Sᵀ (S K Sᵀ)† S K, without eigenvalues below cut · largest."""
    inverse = np.linalg.pinv(S @ K @ S.T, rcond=cut, hermitian=True)
    return K_new @ S.T @ inverse @ S @ K


KERNELS = {
    function.__name__: function
    for function in (
        rbf,
        laplacian,
        matern12,
        matern32,
        matern52,
        polynomial,
        linear,
        cosine,
        sobolev,
    )
}

WITHOUT_GAMMA = ("linear", "cosine", "sobolev")


def relative_error(result, expected):
    return np.linalg.norm(result - expected) / np.linalg.norm(expected)


# ---- losses of a prediction u, their conjugates, and both objectives ----


def loss_value(loss, u, y):
    e, m = u - y, u * y
    match type(loss).__name__:
        case "Huber":
            k = loss.kappa
            return np.where(np.abs(e) <= k, e**2 / 2, k * (np.abs(e) - k / 2))
        case "EpsilonInsensitive":
            return np.maximum(np.abs(e) - loss.epsilon, 0)
        case "Pinball":
            return np.maximum(-loss.tau * e, (1 - loss.tau) * e)
        case "Absolute":
            return np.abs(e)
        case "Squared":
            return e**2 / 2
        case "Hinge":
            return np.maximum(1 - m, 0)
        case "SquaredHinge":
            return np.maximum(1 - m, 0) ** 2
        case "Logistic":
            return np.logaddexp(0, -m)


def _within(value, zeta, low, high, slack=1e-13):
    inside = (zeta >= low - slack) & (zeta <= high + slack)
    return np.where(inside, value, np.inf)


def loss_conjugate(loss, zeta, y):
    """sup over u of zeta·u - ℓ(u, y), from the textbook."""
    q = np.clip(-zeta * y, 0, 1)
    match type(loss).__name__:
        case "Huber":
            return _within(zeta * y + zeta**2 / 2, zeta, -loss.kappa, loss.kappa)
        case "EpsilonInsensitive":
            return _within(zeta * y + loss.epsilon * np.abs(zeta), zeta, -1, 1)
        case "Pinball":
            return _within(zeta * y, zeta, -loss.tau, 1 - loss.tau)
        case "Absolute":
            return _within(zeta * y, zeta, -1, 1)
        case "Squared":
            return zeta * y + zeta**2 / 2
        case "Hinge":
            return _within(zeta * y, -zeta * y, 0, 1)
        case "SquaredHinge":
            return _within(zeta * y + zeta**2 / 4, -zeta * y, 0, np.inf)
        case "Logistic":
            entropy = np.zeros_like(q)
            inner = (q > 0) & (q < 1)
            p = q[inner]
            entropy[inner] = p * np.log(p) + (1 - p) * np.log1p(-p)
            return _within(entropy, -zeta * y, 0, 1)


def primal_objective(loss, Z, y, coef, intercept, alpha, weight):
    values = loss_value(loss, Z @ coef + intercept, y)
    return weight @ values / weight.sum() + alpha / 2 * coef @ coef


def dual_objective(loss, Z, y, zeta, alpha, weight):
    """Of the problem without intercept; with one, weight @ zeta must be 0 too."""
    share = weight / weight.sum()
    g = Z.T @ (share * zeta)
    return -share @ loss_conjugate(loss, zeta, y) - g @ g / (2 * alpha)


# ---- several outputs: predictions U and targets Y have a row for each point ----

OF_NORM = ("Huber", "EpsilonInsensitive")


def vector_loss_value(loss, U, Y):
    if type(loss).__name__ in OF_NORM:
        norm = np.sqrt(((U - Y) ** 2).sum(axis=1))
        return loss_value(loss, norm, np.zeros(len(Y)))
    return sum(loss_value(one, U[:, j], Y[:, j]) for j, one in _columns(loss, Y))


def vector_loss_conjugate(loss, zeta, Y):
    """sup over u ∈ R^d of zeta·u - ℓ(u, y), for each row."""
    if type(loss).__name__ in OF_NORM:
        norm = np.sqrt((zeta**2).sum(axis=1))
        return loss_conjugate(loss, norm, np.zeros(len(Y))) + (zeta * Y).sum(axis=1)
    return sum(loss_conjugate(one, zeta[:, j], Y[:, j]) for j, one in _columns(loss, Y))


def _columns(loss, Y):
    """(j, the loss of column j)"""
    taus = np.broadcast_to(getattr(loss, "tau", 0.5), Y.shape[1])
    for j in range(Y.shape[1]):
        yield j, (type(loss)(taus[j]) if hasattr(loss, "tau") else loss)


def vector_primal(loss, Z, Y, coef, intercept, M, alpha, weight):
    """Of a machine of the kernel k·M: coef must be in the range of M."""
    share = weight / weight.sum()
    penalty = np.trace(coef @ np.linalg.pinv(M, rcond=1e-9, hermitian=True) @ coef.T)
    values = vector_loss_value(loss, Z @ coef + intercept, Y)
    return share @ values + alpha / 2 * penalty


def vector_dual(loss, Z, Y, zeta, M, alpha, weight):
    share = weight / weight.sum()
    g = Z.T @ (share[:, None] * zeta)
    conjugate = share @ vector_loss_conjugate(loss, zeta, Y)
    return -conjugate - np.trace(g @ M @ g.T) / (2 * alpha)
