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
            entropy[inner] = p * np.log(p) + (1 - p) * np.log(1 - p)
            return _within(entropy, -zeta * y, 0, 1)


def primal_objective(loss, Z, y, coef, intercept, alpha, weight):
    values = loss_value(loss, Z @ coef + intercept, y)
    return weight @ values / weight.sum() + alpha / 2 * coef @ coef


def dual_objective(loss, Z, y, zeta, alpha, weight):
    """Of the problem without intercept; with one, weight @ zeta must be 0 too."""
    share = weight / weight.sum()
    g = Z.T @ (share * zeta)
    return -share @ loss_conjugate(loss, zeta, y) - g @ g / (2 * alpha)
