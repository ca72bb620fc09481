"""Kernels: frozen dataclasses, with strings as shorthand (`get_kernel`).

A compiled kernel is evaluated on points that were first centred (if `centred`),
normalised (if `normalised`) and multiplied by `factor`: whatever is constant
goes into that factor, and the inner loop of src/engine_body.h has none of it.

`of_products` is for sparse points of many features, which must stay sparse: the
kernel from scalar products ⟨x, y⟩ and squared norms, by NumPy.
"""

import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from pskernels._points import Rows, in_metric, median_distance, squared_norms
from pskernels._types import Array, Indices, KernelLike, MetricLike, PointsLike
from pskernels._validation import (
    check_int,
    check_option,
    check_positive,
    levels_to_the_caller,
)
from pskernels.point_metric import Metric, get_metric

LOG2_E = 1 / math.log(2)

GAMMA_RULES = ("scale", "auto", "median")
# Smaller ones have lost digits, or all of them.
SMALLEST_VARIANCE = 1e-300
MAX_DEGREE = 1000

# Points whose kernel matrix is formed, for its diagonal.
DIAGONAL_BLOCK = 32


@dataclass(frozen=True)
class Kernel:
    """Base class; `name` is the key in the table of compiled kernels (`_gram`)."""

    if TYPE_CHECKING:  # some have these of their own, by their parameters

        @property
        def name(self) -> str: ...

        @property
        def factor(self) -> float: ...

        @property
        def degree(self) -> int: ...

        @property
        def coef0(self) -> float: ...

        @property
        def by_products(self) -> bool: ...

        def of_products(
            self, products: Array, x_squared: Array, y_squared: Array
        ) -> Array: ...
    else:
        name: ClassVar[str]
        factor: ClassVar[float] = 1.0
        degree: ClassVar[int] = 0
        coef0: ClassVar[float] = 0.0
        by_products: ClassVar[bool] = False  # whether there is `of_products`
    centred: ClassVar[bool] = False
    normalised: ClassVar[bool] = False
    non_negative: ClassVar[bool] = False
    takes_metric: ClassVar[bool] = True

    metric: Metric | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metric", get_metric(self.metric))
        if self.metric is None:
            return
        if not self.takes_metric:
            raise ValueError(
                "a metric is for kernels by name, not for a function or a precomputed "
                "kernel, which see points as they are, or not at all"
            )
        if self.non_negative and (self.metric.L < 0).any():
            raise ValueError(f"the metric of {self.name} must not be negative")

    def diagonal(self, X: PointsLike, indices: Indices) -> Array:
        """Compute k(x, x) of the points at some indices."""
        if self.centred:  # shift-invariant
            return np.ones(len(indices))
        squares = squared_norms(in_metric(X, self.metric)[indices])
        return self.of_products(squares, squares, squares)


@dataclass(frozen=True)
class GammaKernel(Kernel):
    """A kernel with a scale parameter: a number, or a rule that sets it from X.

    "scale" (the default) is 1 / the sum of the columns' variances, which no shift of a
    column changes; on standardised features that is scikit-learn's
    1 / (n_features · X.var()).  "auto" is 1 / n_features, as in scikit-learn, and
    "median" comes from the median distance of two points.
    """

    gamma: float | str | None = None

    median_metric: ClassVar[Literal["sqeuclidean", "cityblock"]] = "sqeuclidean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma is None:
            object.__setattr__(self, "gamma", "scale")
        if isinstance(self.gamma, str):
            check_option(self.gamma, "gamma", GAMMA_RULES)
        else:
            object.__setattr__(self, "gamma", check_positive(self.gamma, "gamma"))

    @property
    def known_gamma(self) -> float:
        """gamma, where it is a number."""
        if not isinstance(self.gamma, float):
            raise TypeError(f"the gamma of {self} must be a number by now")
        return self.gamma

    def with_gamma(
        self, X: PointsLike, variance: float | None, memory_limit: int
    ) -> Self:
        """Make the same kernel with `gamma` a number.

        Parameters
        ----------
        X : ndarray or sparse array, shape (n, d)
        variance : float
            The sum of the columns' variances, which "scale" needs; those of L·x, if
            there is a metric.
        memory_limit : int
            Bytes that "median" may take.
        """
        if self.gamma == "scale":
            assert variance is not None
            gamma = _scale_gamma(X, variance)
        elif self.gamma == "auto":
            gamma = 1 / X.shape[1]
        elif self.gamma == "median":
            gamma = self._median_gamma(X, memory_limit)
        else:
            return self
        return replace(self, gamma=gamma)

    def _median_gamma(self, X: PointsLike, memory_limit: int) -> float:
        """Find 1/(2·median |x - x'|²) of a subsample; laplacian: 1/median |x - x'|₁."""
        X = in_metric(X, self.metric)
        median = median_distance(X, self.median_metric, memory_limit)
        factor = 1.0 if self.median_metric == "cityblock" else 0.5
        if not SMALLEST_VARIANCE <= median < np.inf:
            raise ValueError(
                "gamma='median' needs points that differ, but the median distance "
                f"of X is {median:g}; give gamma as a number"
            )
        return factor / median


def _scale_gamma(X: Any, variance: float) -> float:
    """Turn the sum of variances into a gamma; 1 if there is none, or it underflows."""
    if not np.isfinite(variance):
        raise ValueError(
            "gamma='scale' needs the variance of X, which overflows float64"
        )
    if variance >= SMALLEST_VARIANCE:
        return 1 / variance
    if variance > 0 or X.max() > X.min():
        warnings.warn(
            f"the variance of X, {variance:g}, underflows, so that gamma='scale' is 1; "
            "scale X, or give gamma as a number",
            RuntimeWarning,
            stacklevel=levels_to_the_caller(),
        )
    return 1.0


@dataclass(frozen=True)
class RBF(GammaKernel):
    """exp(-gamma · ‖x - x'‖²).

    Parameters
    ----------
    gamma : float, "scale", "auto" or "median", optional
        None means "scale": 1 / the sum of the columns' variances.  "median" is
        1 / (2 · the median of ‖x - x'‖²), on a subsample.
    """

    name: ClassVar = "rbf"
    centred: ClassVar = True
    by_products: ClassVar = True

    @property
    def factor(self) -> float:
        return math.sqrt(self.known_gamma * LOG2_E)

    def of_products(self, products: Array, x_squared: Array, y_squared: Array) -> Array:
        found: Array = np.exp(
            -self.known_gamma * _squared_distances(products, x_squared, y_squared)
        )
        return found


@dataclass(frozen=True)
class Laplacian(GammaKernel):
    """exp(-gamma · ‖x - x'‖₁).

    Parameters
    ----------
    gamma : float, "scale", "auto" or "median", optional
        None means "scale", as for `RBF`; "median" is 1 / the median of ‖x - x'‖₁.
    """

    name: ClassVar = "laplacian"
    centred: ClassVar = True
    median_metric: ClassVar = "cityblock"

    @property
    def factor(self) -> float:
        return self.known_gamma * LOG2_E


@dataclass(frozen=True)
class Matern(GammaKernel):
    """The Matérn kernel of smoothness nu, with q = √(2·nu)·‖x - x'‖/ℓ:

    exp(-q) for nu = 1/2, (1 + q)·exp(-q) for 3/2, (1 + q + q²/3)·exp(-q) for 5/2.
    gamma = 1/(2ℓ²), so that nu → ∞ is the rbf kernel of the same gamma.

    Parameters
    ----------
    gamma : float, "scale", "auto" or "median", optional
        As for `RBF`.
    nu : {0.5, 1.5, 2.5}
    """

    nu: float = field(default=1.5, kw_only=True)

    centred: ClassVar = True
    NAMES: ClassVar = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.nu, numbers.Real) or self.nu not in self.NAMES:
            raise ValueError(f"nu must be 0.5, 1.5 or 2.5, got {self.nu!r}")

    @property
    def name(self) -> str:
        return self.NAMES[self.nu]

    @property
    def factor(self) -> float:
        return math.sqrt(2 * self.nu * 2 * self.known_gamma)

    @property
    def by_products(self) -> bool:
        return self.nu > 0.5  # else it is not differentiable at 0: it needs every digit

    def of_products(self, products: Array, x_squared: Array, y_squared: Array) -> Array:
        squared = _squared_distances(products, x_squared, y_squared)
        q = self.factor * np.sqrt(squared)
        return (1 + q + (q**2 / 3 if self.nu == 2.5 else 0.0)) * np.exp(-q)


@dataclass(frozen=True)
class Polynomial(GammaKernel):
    """(gamma · ⟨x, x'⟩ + coef0)^degree.

    Parameters
    ----------
    gamma : float, "scale", "auto" or "median", optional
        As for `RBF`.
    degree : int
    coef0 : float
    """

    degree: int = field(default=3, kw_only=True)
    coef0: float = field(default=1.0, kw_only=True)

    name: ClassVar = "polynomial"
    by_products: ClassVar = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int(self.degree, "degree", minimum=1)
        if self.degree > MAX_DEGREE:
            raise ValueError(f"degree must be at most {MAX_DEGREE}, got {self.degree}")
        if not isinstance(self.coef0, numbers.Real) or not np.isfinite(self.coef0):
            raise ValueError(f"coef0 must be finite, got {self.coef0!r}")

    @property
    def factor(self) -> float:
        return math.sqrt(self.known_gamma)

    def of_products(self, products: Array, x_squared: Array, y_squared: Array) -> Array:
        return (self.known_gamma * products + self.coef0) ** self.degree


@dataclass(frozen=True)
class Linear(Kernel):
    """⟨x, x'⟩."""

    name: ClassVar = "linear"
    by_products: ClassVar = True

    def of_products(self, products: Array, x_squared: Array, y_squared: Array) -> Array:
        return products


@dataclass(frozen=True)
class Cosine(Kernel):
    """⟨x, x'⟩ / (‖x‖·‖x'‖), and 0 where x or x' is 0."""

    name: ClassVar = "linear"
    normalised: ClassVar = True
    by_products: ClassVar = True

    def of_products(self, products: Array, x_squared: Array, y_squared: Array) -> Array:
        norms = np.sqrt(x_squared * y_squared)
        return np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)


@dataclass(frozen=True)
class Sobolev(Kernel):
    """Π_k (1 + min(x_k, x'_k)), of first order, for x ≥ 0."""

    name: ClassVar = "sobolev"
    non_negative: ClassVar = True

    def diagonal(self, X: PointsLike, indices: Indices) -> Array:
        X = in_metric(X, self.metric)
        return _in_blocks(lambda block: np.prod(1.0 + block, axis=1), X, indices)


def _in_blocks(
    of_block: Callable[[Array], Array], X: PointsLike, indices: Indices
) -> Array:
    """Compute numbers of points, by a function of a few of them, dense, in float64."""
    blocks = np.array_split(indices, len(indices) // DIAGONAL_BLOCK + 1)
    rows = Rows(X)
    return np.concatenate([of_block(rows.take(block, np.float64)) for block in blocks])


def _squared_distances(products: Array, x_squared: Array, y_squared: Array) -> Array:
    return np.maximum(x_squared + y_squared - 2 * products, 0.0)


@dataclass(frozen=True)
class CallableKernel(Kernel):
    """A Python function of two arrays of points, (a, d) and (b, d) → (a, b)."""

    takes_metric: ClassVar = False

    function: Callable[[Any, Any], npt.ArrayLike]

    def diagonal(self, X: PointsLike, indices: Indices) -> Array:
        def of_block(block: Array) -> Array:
            return np.diag(np.asarray(self.function(block, block), np.float64))

        return _in_blocks(of_block, X, indices)


@dataclass(frozen=True)
class Precomputed(Kernel):
    """X is the Gram matrix itself, an array or a memory map."""

    takes_metric: ClassVar = False

    def diagonal(self, X: PointsLike, indices: Indices) -> Array:
        found: Array = X[indices, indices]
        return found


KERNELS: dict[str, Callable[..., Kernel]] = {
    "rbf": RBF,
    "laplacian": Laplacian,
    "matern12": partial(Matern, nu=0.5),
    "matern32": partial(Matern, nu=1.5),
    "matern52": partial(Matern, nu=2.5),
    "polynomial": Polynomial,
    "linear": Linear,
    "cosine": Cosine,
    "sobolev": Sobolev,
    "precomputed": Precomputed,
}


def is_precomputed(kernel: KernelLike) -> bool:
    """Tell whether points are rows of the Gram matrix."""
    return kernel == "precomputed" or kernel == Precomputed()


def get_kernel(
    kernel: KernelLike,
    gamma: float | str | None = None,
    metric: MetricLike | None = None,
) -> Kernel:
    """Find the kernel object behind a name, an object or a function.

    `gamma` is for names; an object carries its own, and may carry a metric.
    """
    found = _get_kernel(kernel, gamma)
    if metric is None:
        return found
    if found.metric is not None:
        raise ValueError(f"a metric was given beside {kernel}, which has its own")
    return replace(found, metric=get_metric(metric))


def _get_kernel(kernel: KernelLike, gamma: float | str | None) -> Kernel:
    if isinstance(kernel, str):
        make = KERNELS[check_option(kernel, "kernel", KERNELS)]
        if gamma is None:
            return make()
        if isinstance(make(), GammaKernel):
            return make(gamma)
    elif isinstance(kernel, Kernel):
        if gamma is None:
            return kernel
        if any(f.name == "gamma" for f in fields(kernel)):
            raise ValueError(
                f"gamma={gamma!r} was given beside {kernel}, which has its own gamma"
            )
    elif isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise TypeError(f"kernel must be an object, {kernel.__name__}(), not the class")
    elif callable(kernel):
        if gamma is None:
            return CallableKernel(kernel)  # type: ignore[arg-type]
    else:
        raise TypeError(
            f"kernel must be a name, a kernel object or a function, got {kernel!r}"
        )
    raise ValueError(f"kernel {kernel!r} has no gamma, but gamma={gamma!r} was given")
