"""Random Fourier features, which look at no point: the rival of `FeatureMap`."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from pskernels._preparation import prepare
from pskernels._random import make_generator, philox_key
from pskernels._threads import single_threaded_blas
from pskernels._types import Array, CheckedPoints, KernelLike, RandomState
from pskernels._validation import check_int, common_dtype
from pskernels.kernel_map import KernelMap, points_of_a_block
from pskernels.kernels import RBF, GammaKernel, Laplacian, Matern, get_kernel

# Work of one thread, inside the last-level cache.
FOURIER_BYTES = 2**21


class RandomFourierFeatures(KernelMap):
    """Random Fourier features of a shift-invariant kernel.

    With D = n_components and frequencies ω_j drawn from the spectral law of k,

        z(x) = √(2/D) · (cos ω_1ᵀx, …, cos ω_{D/2}ᵀx, sin ω_1ᵀx, …, sin ω_{D/2}ᵀx),

    and E[z(x)ᵀ z(x')] = k(x, x') [1]_.  The landmark-free rival of `FeatureMap`, with
    the same interface.

    Parameters
    ----------
    n_components : int
        D, even.
    kernel : str or kernel object
        "rbf", "laplacian" or a Matérn kernel.
    gamma : float, "scale", "auto" or "median", optional
        Scale of the kernel.  None means "scale": 1 / the sum of the
        columns' variances.
    random_state : None, int, numpy Generator or numpy RandomState
        For drawing the frequencies.
    n_threads : int, optional
        None means all cores this process may use.
    memory_limit : int, optional
        Bytes that may be used beside X and the results; 1 GiB by default.

    Attributes
    ----------
    kernel_ : kernel object
        The kernel, its gamma a number.
    frequencies_ : ndarray of float64, shape (D/2, d)
    rank_ : int
        D, the number of features.
    n_features_in_ : int
        d.

    Notes
    -----
    The spectral laws: N(0, 2·gamma·I) for rbf, independent Cauchy laws of scale gamma
    for laplacian, and Student's t law in d dimensions with 2·nu degrees of freedom and
    scale √(2·gamma) for Matérn.

    Everything is computed in float64, and features of float32 points are then rounded:
    angles ωᵀx of float32 would lose the digits of data that lie far from 0.

    References
    ----------
    .. [1] A. Rahimi, B. Recht, "Random Features for Large-Scale Kernel Machines",
       NIPS, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> rff = psk.RandomFourierFeatures(4000, gamma=0.1, random_state=0)
    >>> Z = rff.fit_transform(X)
    >>> K = np.exp(-0.1 * ((X[:5, None] - X) ** 2).sum(axis=2))
    >>> bool(abs(Z[:5] @ Z.T - K).max() < 0.1)
    True
    """

    def __init__(
        self,
        n_components: int = 100,
        kernel: KernelLike = "rbf",
        *,
        gamma: float | str | None = None,
        random_state: RandomState = None,
        n_threads: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.random_state = random_state
        self.n_threads = n_threads
        self.memory_limit = memory_limit

    def _fit(self, X: CheckedPoints) -> CheckedPoints:
        n_components = check_int(self.n_components, "n_components", minimum=2)
        if n_components % 2:
            raise ValueError(
                "n_components must be even, a cosine and a sine for each frequency, "
                f"got {n_components}"
            )
        kernel = get_kernel(self.kernel, self.gamma)
        if not isinstance(kernel, (RBF, Laplacian, Matern)):
            raise ValueError(
                "kernel must be rbf, laplacian or matern for random Fourier features, "
                f"got {kernel}"
            )
        rng = make_generator(philox_key(self.random_state))
        found, _ = prepare(kernel, X, "X", *self.limits())
        metric = found.metric
        shape = n_components // 2, X.shape[1] if metric is None else metric.d_seen
        self.frequencies_ = _draw_frequencies(found, shape, rng)
        if metric is not None:  # ⟨ω, L·x⟩ = ⟨Lᵀω, x⟩
            self.frequencies_ = metric.pull_back(self.frequencies_)
        self.kernel_ = found
        self.rank_ = n_components
        self.n_features_in_ = X.shape[1]
        self._dtype = common_dtype(X)
        return X

    def _angles(self, X: Any) -> Array:
        found: Array = X.astype(np.float64, copy=False) @ self.frequencies_.T
        return found

    def _fill(self, out: Array, X: Any) -> Array:
        """out = z(X), of points that are checked."""
        half = self.rank_ // 2

        def fill(rows: slice) -> None:
            angles = self._angles(X[rows])
            np.cos(angles, out=out[rows, :half])
            np.sin(angles, out=out[rows, half:])
            out[rows] *= np.sqrt(2 / self.rank_)

        self._run(fill, X.shape[0], self.n_features_in_ + half)
        return out

    def fold(self, coef: npt.ArrayLike) -> Array:
        """Turn coefficients of features into those of cosines and sines themselves."""
        coef = self._check_coef(coef)
        found: Array = np.sqrt(2 / self.rank_) * coef
        return found

    def _fill_prediction(self, out: Array, X: Any, coef: Array) -> None:
        half = self.rank_ // 2

        def fill(rows: slice) -> None:
            angles = self._angles(X[rows])
            product = np.cos(angles) @ coef[:half]
            product += np.sin(angles, out=angles) @ coef[half:]
            out[rows] = product

        n_columns = coef[0].size
        self._run(fill, X.shape[0], self.n_features_in_ + 2 * half + 2 * n_columns)

    def _run(self, fill: Callable[[slice], None], n: int, width: int) -> None:
        """Call `fill` for all blocks of n points, whose work is (points, width)."""
        n_threads, memory_limit = self.limits()
        point_bytes = 8 * width
        work_bytes = min(memory_limit, max(FOURIER_BYTES, point_bytes))
        step = points_of_a_block(point_bytes, work_bytes, memory_limit)
        n_threads = min(n_threads, memory_limit // (step * point_bytes))
        blocks = [slice(start, start + step) for start in range(0, n, step)]
        with single_threaded_blas(), ThreadPoolExecutor(n_threads) as pool:
            # a block for each thread at a time: between them Ctrl-C is heard
            for first in range(0, len(blocks), n_threads):
                for _ in pool.map(fill, blocks[first : first + n_threads]):
                    pass  # an exception in a thread is raised here


def _draw_frequencies(
    kernel: GammaKernel, shape: tuple[int, int], rng: np.random.Generator
) -> Array:
    """Draw frequencies of the spectral law of a kernel, one in each row."""
    if isinstance(kernel, Laplacian):
        return kernel.known_gamma * rng.standard_cauchy(shape)
    frequencies: Array = np.sqrt(2 * kernel.known_gamma) * rng.standard_normal(shape)
    if isinstance(kernel, Matern):
        freedom = 2 * kernel.nu
        mixing = rng.chisquare(freedom, size=(shape[0], 1)) / freedom
        frequencies /= np.sqrt(mixing)
    return frequencies
