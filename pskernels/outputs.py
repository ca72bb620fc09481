"""Several outputs: decomposable kernels k·M and their output matrices M.

M = Σ_a λ_a v_a v_aᵀ is symmetric and positive semidefinite, of rank k ≤ d.  A machine
of the kernel k·M on features z(x) ∈ R^r is

    f(x) = V Λ^(1/2) Θ z(x) + b,    penalty ‖Θ‖²_F,    Θ ∈ R^(k×r), b ∈ R^d:

k functions ("directions"), each of the scalar kernel, mixed to d outputs.  The
features z(x) ⊗ M^(1/2), an (n·d) × (r·d) matrix, are never formed.
"""

from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt
import scipy.linalg

from pskernels._products import EPS, Features, eigh_of_gram
from pskernels._robust import NORMAL_MAD
from pskernels._types import AnyArray, Array
from pskernels._validation import (
    check_int,
    check_non_negative,
    check_quantiles,
    check_real_array,
)

if TYPE_CHECKING:
    from pskernels.features import AnyFeatures, BlockFeatures

# How far a matrix may be from symmetric and from semidefinite, for rounding: this
# many times d·eps, relative to its largest entry or eigenvalue.
ROUNDING = 100

# Of residuals, in robust standard deviations.
CLIP = 3.0


def quantile_matrix(quantiles: npt.ArrayLike, gamma: float = 1.0) -> Array:
    """Compute M of joint quantile regression: exp(-gamma·(τ_i - τ_j)²).

    Functions of close levels are pulled towards each other, up to a constant, which
    limits crossing [1]_.  gamma = 0 gives all levels the same function; with a large
    one each is learnt by itself.

    Parameters
    ----------
    quantiles : sequence of float
        Levels τ in (0, 1), increasing.
    gamma : float
        Not negative.

    Returns
    -------
    ndarray of shape (len(quantiles), len(quantiles))

    References
    ----------
    .. [1] M. Sangnier, O. Fercoq, F. d'Alché-Buc, "Joint quantile regression in
       vector-valued RKHSs", NIPS, 2016.

    Examples
    --------
    >>> import pskernels as psk
    >>> psk.quantile_matrix([0.1, 0.5, 0.9], gamma=2.0).round(2)
    array([[1.  , 0.73, 0.28],
           [0.73, 1.  , 0.73],
           [0.28, 0.73, 1.  ]])
    """
    levels = np.array(check_quantiles(quantiles))
    gamma = check_non_negative(gamma, "gamma")
    found: Array = np.exp(-gamma * (levels[:, None] - levels) ** 2)
    return found


def graph_matrix(adjacency: npt.ArrayLike, mu: float = 0.5) -> Array:
    """Compute M from a graph of related outputs: (mu·L + (1 - mu)·I)⁻¹.

    L is the Laplacian of the graph, degrees minus adjacency.  Outputs that are joined
    by an edge are pulled towards each other [1]_ [2]_.

    Parameters
    ----------
    adjacency : array of shape (d, d)
        Symmetric, not negative: the weight of the edge between two outputs, or 0.
        The diagonal does not matter.
    mu : float
        In [0, 1).  0 gives the identity: independent outputs.

    Returns
    -------
    ndarray of shape (d, d)

    References
    ----------
    .. [1] T. Evgeniou, C. Micchelli, M. Pontil, "Learning multiple tasks with kernel
       methods", JMLR 6, 2005.
    .. [2] D. Sheldon, "Graphical multi-task learning", 2008.

    Examples
    --------
    >>> import pskernels as psk
    >>> psk.graph_matrix([[0, 1], [1, 0]], mu=0.5).round(3)
    array([[1.333, 0.667],
           [0.667, 1.333]])
    """
    mu = check_non_negative(mu, "mu")
    if mu >= 1:
        raise ValueError(
            f"mu must be in [0, 1), got {mu:g}: a Laplacian has no inverse"
        )
    adjacency = _check_symmetric(adjacency, "adjacency")
    if adjacency.min() < 0:
        i, j = np.unravel_index(np.argmin(adjacency), adjacency.shape)
        raise ValueError(
            f"adjacency must not be negative, but entry ({i}, {j}) is "
            f"{adjacency[i, j]:g}"
        )
    if mu == 0:
        return np.eye(len(adjacency))
    laplacian = np.diag(adjacency.sum(axis=0)) - adjacency
    values, vectors = scipy.linalg.eigh(laplacian)
    M = (vectors / (mu * np.maximum(values, 0.0) + 1 - mu)) @ vectors.T
    return (M + M.T) / 2


def residual_matrix(residuals: Array, weight: Array) -> Array:
    """Find M by residuals (d, n) of a first fit: their covariance, of mean diagonal 1.

    Outputs whose errors go together are then learnt together.  This is not in the
    paper.  Those beyond CLIP robust standard deviations (1.4826 times the median
    distance from the median) are clipped, so that a few outliers do not decide.  Where
    there is nothing to learn from, the identity.
    """
    used = weight > 0
    residuals, weight = residuals[:, used], weight[used] / weight.sum()
    median = np.median(residuals, axis=1, keepdims=True)
    deviation = np.median(np.abs(residuals - median), axis=1, keepdims=True)
    deviation *= NORMAL_MAD
    limit = np.where(deviation > 0, CLIP * deviation, np.inf)
    clipped = np.clip(residuals - median, -limit, limit)
    clipped /= np.abs(clipped).max() or 1.0  # squares must not overflow
    centred = clipped - (clipped @ weight)[:, None]
    covariance = (centred * weight) @ centred.T
    scale = np.trace(covariance) / len(covariance)
    if not scale > 0:
        return np.eye(len(covariance))
    covariance = covariance / scale
    found: Array = (covariance + covariance.T) / 2
    return found


def _check_symmetric(M: npt.ArrayLike, name: str) -> Array:
    """Check M, a square symmetric matrix of finite float64."""
    M = check_real_array(M, name)
    if M.ndim != 2 or M.shape[0] != M.shape[1] or M.size == 0:
        raise ValueError(f"{name} must be a square matrix, got shape {M.shape}")
    eps = np.finfo(M.dtype).eps if M.dtype.kind == "f" else 0.0
    M = M.astype(np.float64)
    if not np.isfinite(M).all():
        i, j = np.argwhere(~np.isfinite(M))[0]
        raise ValueError(f"{name} must be finite, but entry ({i}, {j}) is {M[i, j]}")
    difference = np.abs(M - M.T)
    if difference.max() > ROUNDING * len(M) * eps * np.abs(M).max():
        i, j = np.unravel_index(np.argmax(difference), M.shape)
        raise ValueError(
            f"{name} must be symmetric, but entry ({i}, {j}) is {M[i, j]:g} and entry "
            f"({j}, {i}) is {M[j, i]:g}"
        )
    found: Array = (M + M.T) / 2
    return found


class Outputs:
    """What turns k functions of the features into d outputs.

    Parameters
    ----------
    vectors : array of shape (d, d), or None
        Orthonormal columns, of which the first k are v_1, …, v_k; None: the identity.
    values : array of shape (k,)
        λ, positive.

    Attributes
    ----------
    mix : array of shape (d, k), or None
        V Λ^(1/2); None: the identity.
    """

    def __init__(self, vectors: Array | None, values: Array) -> None:
        self.vectors = vectors
        self.values = values
        self.k = len(values)
        self.d = self.k if vectors is None else len(vectors)
        self.mix = None
        if vectors is not None:
            self.mix = vectors[:, : self.k] * np.sqrt(values)

    @classmethod
    def independent(cls, d: int) -> Self:
        return cls(None, np.ones(d))

    @classmethod
    def leading(cls, Y: Array, weight: Array, k: int, n_threads: int) -> Self:
        """Make M = Σ v_a v_aᵀ over the k leading directions of the targets Y (d, n)."""
        centred = (Y - (Y @ weight / weight.sum())[:, None]).T
        # scaled, so that squares neither overflow nor underflow
        centred = centred / (np.abs(centred[weight > 0]).max() or 1.0)
        covariance = Features(np.ascontiguousarray(centred), n_threads).gram(weight)
        values, vectors = eigh_of_gram(covariance)
        rank = int(np.count_nonzero(values > len(Y) * EPS * values[-1]))
        # targets that do not vary have no directions: any one does
        k = min(k, max(rank, 1))
        return cls(np.ascontiguousarray(vectors[:, ::-1]), np.ones(k))

    @classmethod
    def of_matrix(cls, M: AnyArray, d: int, k: int | None = None) -> Self:
        """Make those of M, or of its k leading directions."""
        eps = max(np.finfo(M.dtype).eps, EPS) if M.dtype.kind == "f" else EPS
        M = _check_symmetric(M, "output_matrix")
        if len(M) != d:
            raise ValueError(
                f"output_matrix must have shape ({d}, {d}), a row for each output, got "
                f"{M.shape}"
            )
        values, vectors = scipy.linalg.eigh(M)
        rounding = ROUNDING * d * eps * np.abs(values).max()
        if values[0] < -rounding:
            raise ValueError(
                "output_matrix must be positive semidefinite, but it has the "
                f"eigenvalue {values[0]:g} (the largest one is {values[-1]:g}); for an "
                "adjacency matrix of outputs, graph_matrix(adjacency)"
            )
        if not values[-1] > 0:
            raise ValueError("output_matrix must not be 0")
        kept = values > max(d * eps * values[-1], -values[0])
        values, vectors = values[::-1], np.ascontiguousarray(vectors[:, ::-1])
        rank = np.count_nonzero(kept)
        return cls(vectors, values[: rank if k is None else min(k, rank)])

    def first(self, k: int) -> "Outputs":
        """Keep the first k directions."""
        return self if k == self.k else Outputs(self.vectors, self.values[:k])

    @property
    def separate(self) -> bool:
        """Whether the outputs have nothing in common."""
        return self.mix is None

    @property
    def matrix(self) -> Array | None:
        """M; None for the identity."""
        return None if self.mix is None else self.mix @ self.mix.T

    def mixed(self, values: Array) -> Array:
        """Compute V Λ^(1/2) · values, from (k, …) to (d, …)."""
        return values if self.mix is None else self.mix @ values

    @property
    def coef_error(self) -> float:
        """How far, in EPS and relative to Θ, rounding `coef` moves a model, in Θ."""
        if self.mix is None:
            return 0.0
        return self.k * float(np.sqrt(self.values[0] / self.values[-1]))

    def mixed_sizes(self, sizes: Array) -> Array:
        """Bound |mixed(values)|, for values whose sizes are given."""
        return sizes if self.mix is None else np.abs(self.mix) @ sizes

    def pulled_sizes(self, sizes: Array) -> Array:
        """Bound what the adjoint makes of (d,) sizes, (k,)."""
        return sizes if self.mix is None else np.abs(self.mix).T @ sizes

    def predictions(
        self, features: "BlockFeatures", theta: Array, out: Array | None = None
    ) -> Array:
        """Compute V Λ^(1/2) Θ Zᵀ, of shape (d, n)."""
        if self.mix is None:
            return features.dot(theta, out)
        if self._mix_first(features):
            return features.dot(self.mix @ theta, out)
        return np.matmul(self.mix, features.dot(theta), out=out)

    def pull(self, features: "BlockFeatures", flow: Array) -> Array:
        """Apply the adjoint of `predictions`: a flow of shape (d, n) -> (k, r)."""
        if self.mix is None:
            return features.t_dot(flow)
        if self._mix_first(features):
            return self.mix.T @ features.t_dot(flow)
        return features.t_dot(self.mix.T @ flow)

    def pull_exactly(self, features: "BlockFeatures", flow: Array) -> Array:
        """Do `pull` with sums over points as if in twice the digits."""
        pulled = np.array([features.exact_t_dot(one)[0] for one in flow])
        return pulled if self.mix is None else self.mix.T @ pulled

    def _mix_first(self, features: "AnyFeatures") -> bool:
        """Tell whether d products with Z cost less than k of them and n mixtures."""
        return features.r * self.d <= self.k * (features.r + self.d)

    def coef(self, theta: Array) -> Array:
        """Compute what multiplies Z: an array of shape (r, d)."""
        return np.ascontiguousarray(self.mixed(theta).T)

    def theta(self, coef: Array) -> Array:
        """Find Θ of coefficients (r, d); the nearest, if M has no such functions."""
        if self.vectors is None:
            return np.ascontiguousarray(coef.T)
        directions = self.vectors[:, : self.k]
        return (directions.T @ coef.T) / np.sqrt(self.values)[:, None]


def check_output_rank(output_rank: int | None, d: int) -> int | None:
    """Check a number of directions, at most d; None means all."""
    if output_rank is None:
        return None
    k = check_int(output_rank, "output_rank", minimum=1)
    if k > d:
        raise ValueError(f"output_rank must be at most {d}, the outputs of y, got {k}")
    return k
