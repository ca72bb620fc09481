"""Gram products that never form the Gram matrix: S·K, S·K·Sᵀ, K(X, Y)·B, gradients.

Every product here is W · K(landmarks, points), with W = S_SG for a sketch and Bᵀ
for `kernel_matmul`.  This module checks arguments; `_engine` computes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from pskernels import _points, _tiles
from pskernels._preparation import prepare
from pskernels._threads import resolve_n_threads
from pskernels._types import (
    AnyArray,
    Array,
    CheckedPoints,
    Dtype,
    KernelLike,
    MetricLike,
    Points,
    RandomState,
    SketchLike,
)
from pskernels._validation import (
    check_memory_limit,
    check_out,
    check_points,
    check_real_array,
    common_dtype,
    count_not_finite,
    raise_not_finite,
    warn_if_not_finite,
)
from pskernels.kernels import CallableKernel, Kernel, Precomputed, get_kernel
from pskernels.sketches import Distribution, PSparsified, Sketch

if TYPE_CHECKING:
    from pskernels._points import Rows

PARTS = ("SKSt", "SK")

# Points whose gradients are finished at a time.
GRADIENT_POINTS = 4096


class _Parts(NamedTuple):
    SKSt: Array | None
    SK: Array | None
    sketch: Sketch


class SketchedGram(_Parts):
    """What `sketch_gram` returns: a named tuple (SKSt, SK, sketch).

    A part that was not asked for is None.  The attribute `kernel` is the kernel
    that was used, its gamma a number: what `kernel_matmul` needs to predict.
    """

    kernel: Kernel | None

    def __new__(
        cls,
        SKSt: Array | None,
        SK: Array | None,
        sketch: Sketch,
        kernel: Kernel | None = None,
    ) -> Self:
        self = super().__new__(cls, SKSt, SK, sketch)
        self.kernel = kernel
        return self


def sketch_gram(
    X: Points,
    s: int | None = None,
    p: float | None = None,
    *,
    kernel: KernelLike = "rbf",
    gamma: float | str | None = None,
    metric: MetricLike | None = None,
    kind: str = "rademacher",
    sketch: SketchLike | None = None,
    parts: str | Sequence[str] = PARTS,
    random_state: RandomState = None,
    out: Array | None = None,
    n_threads: int | None = None,
    memory_limit: int | None = None,
    verbose: int = 0,
) -> SketchedGram:
    """Sketch the Gram matrix K of X: S·K·Sᵀ and S·K, without forming K.

    Parameters
    ----------
    X : array of shape (n, d)
        The points.  float32 is computed and returned as float32, everything
        else as float64.  A sparse array is never made dense as a whole.  With
        ``kernel="precomputed"``, K itself, (n, n).
    s : int
        Rows of the sketch.
    p : float in (0, 1], optional
        Probability of a non-zero entry of S; None means min(1, 20/n).
    kernel : str, kernel object or callable
        "rbf", "laplacian", "matern12", "matern32", "matern52", "polynomial",
        "linear", "cosine", "sobolev", "precomputed" (X is K, symmetric, of which
        only rows of landmarks are read); an object such as
        ``Matern(0.5, nu=2.5)``; or a function of two arrays of points,
        (a, d) and (b, d), that returns their kernel values, (a, b).
    gamma : float, "scale", "auto" or "median", optional
        Scale of the kernel.  None means "scale": 1 / the sum of the
        columns' variances.
    metric : array of shape (d,) or (r, d), or Metric, optional
        L: the kernel sees L·x in place of x, and "scale" the variances of that.  One
        number for each feature, or a matrix.
    kind : {"rademacher", "gaussian"}
        Law of the non-zero entries.
    sketch : Sketch or distribution, optional
        In place of s, p and kind: ``SubSampling(s=100)``, or a drawn sketch.
    parts : sequence of {"SKSt", "SK"}
        What to compute.  "SKSt" alone evaluates half of K[idx, idx] and no more.
    random_state : None, int, numpy Generator or numpy RandomState
    out : ndarray of shape (s, n), optional
        Receives S·K; of the dtype of the result, in any memory order.
    n_threads : int, optional
        None means all cores this process may use.
    memory_limit : int, optional
        Bytes that may be used beside X and the results; 1 GiB by default.
    verbose : int
        1 shows progress.

    Returns
    -------
    SketchedGram
        A named tuple (SKSt, SK, sketch), with the attribute `kernel`: the one that
        was used, its gamma a number.

    Notes
    -----
    With m landmarks the cost is m·n evaluations of the kernel; p = 20/n has
    m ≈ 20·s.  The result does not depend on n_threads, to the last bit.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> X = np.random.default_rng(0).normal(size=(10_000, 5))
    >>> SKSt, SK, sketch = psk.sketch_gram(X, 50, 20 / 10_000, random_state=0)
    >>> SKSt.shape, SK.shape
    ((50, 50), (50, 10000))
    """
    kernel = get_kernel(kernel, gamma, metric)
    precomputed = isinstance(kernel, Precomputed)
    X = check_points(X, "X", accept_sparse=not precomputed)
    parts = _check_parts(parts, out)
    memory_limit = check_memory_limit(memory_limit)
    n_threads = resolve_n_threads(n_threads)
    if precomputed and X.shape[0] != X.shape[1]:
        raise ValueError(
            f"X must be a square Gram matrix for a precomputed kernel, got {X.shape}"
        )
    if precomputed and isinstance(X, np.ndarray) and X.flags.f_contiguous:
        X = X.T  # the same matrix, whose rows lie together
    sketch = _get_sketch(X.shape[0], s, p, kind, sketch, random_state, n_threads)
    dtype = common_dtype(X)
    if "SK" in parts:
        out = check_out(out, sketch.shape, dtype, X=X)

    kernel, center = prepare(kernel, X, "X", n_threads, memory_limit)
    options: dict[str, Any] = dict(
        kernel=kernel,
        center=center,
        dtype=dtype,
        n_threads=n_threads,
        memory_limit=memory_limit,
    )
    landmarks = _points.Rows(X, sketch.indices)
    SK = SKSt = None
    if out is not None:
        tiles = _tiles.make_tiles(
            landmarks=landmarks,
            points=_points.Rows(X),
            weights=sketch.weights,
            **options,
        )
        SK = _tiles.fill_product(out, tiles, sketch.scale, "S·K", verbose)
        if not kernel.centred:  # shift-invariant kernels are at most 1
            warn_if_not_finite(SK, "S·K")
    if "SKSt" in parts:
        if SK is not None:

            def landmark_columns(start: int, end: int) -> Array:
                return SK[:, sketch.indices[start:end]]

            product = _tiles.times_weights_t(
                landmark_columns, sketch.weights, memory_limit, len(SK)
            )
            product = sketch.scale / 2 * (product + product.T)
        else:
            product = sketch_landmarks(sketch, landmarks, verbose=verbose, **options)
        with np.errstate(over="ignore"):
            SKSt = product.astype(dtype, copy=False)
        warn_if_not_finite(SKSt, "S·K·Sᵀ")
    return SketchedGram(SKSt, SK, sketch, kernel)


def kernel_matmul(
    X: Points,
    Y: Points | None,
    B: npt.ArrayLike,
    *,
    kernel: KernelLike = "rbf",
    gamma: float | str | None = None,
    metric: MetricLike | None = None,
    out: Array | None = None,
    n_threads: int | None = None,
    memory_limit: int | None = None,
    verbose: int = 0,
) -> Array:
    """Compute K(X, Y) @ B, without forming K(X, Y).

    Parameters
    ----------
    X : array of shape (n, d)
    Y : array of shape (m, d), or None
        None means X.  With ``kernel="precomputed"``, X is K(X, Y) and Y is None.
    B : array of shape (m,) or (m, c)
    kernel, gamma, metric, n_threads, memory_limit, verbose
        As for `sketch_gram`.  If Y is not X, gamma must be a number: that of the
        fit, ``kernel=sketched_gram.kernel``.
    out : ndarray of shape (n,) or (n, c), optional

    Returns
    -------
    ndarray of shape (n,) or (n, c)
        float32 if X, Y and B are, else float64.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> psk.kernel_matmul(X, X, np.ones(3), kernel="linear")
    array([ 9., 39., 69.])
    """
    kernel = get_kernel(kernel, gamma, metric)
    precomputed = isinstance(kernel, Precomputed)
    X, Y, B = _check_pair(kernel, X, Y, B)
    limits = resolve_n_threads(n_threads), check_memory_limit(memory_limit)
    dtype = common_dtype(X, Y, B)
    out = check_out(out, (X.shape[0], *B.shape[1:]), dtype, X=X, Y=Y, B=B)
    kernel, center = _prepare_pair(kernel, X, Y, B, *limits)
    fill_kernel_matmul(
        out,
        _points.Rows(X),
        _points.Rows(X.T if precomputed else Y),
        B,
        kernel=kernel,
        center=center,
        n_threads=limits[0],
        memory_limit=limits[1],
        verbose=verbose,
    )
    warn_if_not_finite(out, "K·B")
    return out


def kernel_gradient(
    X: Points,
    Y: Points | None,
    B: npt.ArrayLike,
    *,
    kernel: KernelLike = "rbf",
    gamma: float | str | None = None,
    metric: MetricLike | None = None,
    n_threads: int | None = None,
    memory_limit: int | None = None,
    verbose: int = 0,
) -> Array:
    """Compute gradients of f(x) = Σ_j B_j k(x, y_j) at the points of X.

    What `kernel_matmul` has the values of.  Nothing larger than the result and a tile
    of K is formed.

    Parameters
    ----------
    X : array of shape (n, d)
    Y : array of shape (m, d), or None
        None means X.
    B : array of shape (m,) or (m, c)
    kernel, gamma, metric, n_threads, memory_limit, verbose
        As for `kernel_matmul`; kernels that are functions or precomputed have no
        gradient.

    Returns
    -------
    ndarray of shape (n, d), or (n, c, d) for c functions
        float32 if X, Y and B are, else float64.  Where f has no gradient, as that of
        the laplacian and of the Matérn kernel of nu = 1/2 at points of Y, or of the
        cosine at 0, terms without one count as 0; the Sobolev kernel takes the
        gradient from above.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> X = np.array([[0.0], [1.0]])
    >>> psk.kernel_gradient(X, X, [1.0, 0.0], gamma=1.0).round(4)
    array([[ 0.    ],
           [-0.7358]])
    """
    kernel = get_kernel(kernel, gamma, metric)
    if isinstance(kernel, (CallableKernel, Precomputed)):
        raise ValueError(
            "gradients are those of kernels by name: a function or a precomputed "
            f"kernel has none, got {kernel}"
        )
    X, Y, B = _check_pair(kernel, X, Y, B)
    limits = resolve_n_threads(n_threads), check_memory_limit(memory_limit)
    kernel, center = _prepare_pair(kernel, X, Y, B, *limits)
    gradients = find_gradients(
        _points.Rows(X),
        _points.Rows(Y),
        B.reshape(len(B), -1),
        kernel=kernel,
        center=center,
        dtype=common_dtype(X, Y, B),
        n_threads=limits[0],
        memory_limit=limits[1],
        verbose=verbose,
    )
    return gradients if B.ndim > 1 else gradients[:, 0]


def _check_pair(
    kernel: Kernel, X: Points, Y: Points | None, B: npt.ArrayLike
) -> tuple[CheckedPoints, CheckedPoints, AnyArray]:
    """Check two sets of points and coefficients of the second one."""
    B = check_real_array(B, "B")
    precomputed = isinstance(kernel, Precomputed)
    X = check_points(X, "X", accept_sparse=not precomputed)
    if precomputed and Y is not None:
        raise ValueError("Y must be None for a precomputed kernel: X is K(X, Y)")
    Y = X if Y is None else check_points(Y, "Y", accept_sparse=True)
    n_landmarks = X.shape[1] if precomputed else Y.shape[0]
    if Y.shape[1] != X.shape[1]:
        raise ValueError(
            f"X and Y must have the same number of features, got {X.shape[1]} "
            f"and {Y.shape[1]}"
        )
    if B.ndim not in (1, 2) or B.shape[0] != n_landmarks or 0 in B.shape:
        raise ValueError(
            f"B must have shape ({n_landmarks},) or ({n_landmarks}, c), got {B.shape}"
        )
    gamma = getattr(kernel, "gamma", None)
    if X is not Y and isinstance(gamma, str):
        raise ValueError(
            f"gamma={gamma!r} is ambiguous for two sets of points; give a "
            "number, or the kernel of the fit (sketch_gram(...).kernel)"
        )
    return X, Y, B


def _prepare_pair(
    kernel: Kernel,
    X: CheckedPoints,
    Y: CheckedPoints,
    B: AnyArray,
    n_threads: int,
    memory_limit: int,
) -> tuple[Kernel, Array | None]:
    """Check the values of what `_check_pair` returns; find the kernel and a center."""
    name = "X" if X is Y else "Y"
    kernel, center = prepare(kernel, Y, name, n_threads, memory_limit)
    if X is not Y:
        prepare(kernel, X, "X", n_threads, memory_limit)
    if count_not_finite(B):
        raise_not_finite(B.reshape(len(B), -1), "B")
    return kernel, center


# --------------------------------------------------------------------------
# Products of arguments that are checked, for the feature map as well
# --------------------------------------------------------------------------


def sketch_landmarks(
    sketch: Sketch,
    landmarks: "Rows",
    *,
    memory_limit: int,
    verbose: int,
    **options: Any,
) -> Array:
    """Compute S·K·Sᵀ in float64, from K(landmarks, landmarks), or half of it."""
    weights = sketch.weights
    options.update(landmarks=landmarks, weights=weights, memory_limit=memory_limit)
    # callers look at what overflowed
    with np.errstate(over="ignore", invalid="ignore"):
        scale = sketch.scale**2
        selected = _tiles.selected_product(scale=scale, verbose=verbose, **options)
        if selected is not None:
            return selected
        tiles = _tiles.make_tiles(points=landmarks, triangle=True, **options)
        return scale * _tiles.symmetric_product(tiles, weights, memory_limit, verbose)


def fill_kernel_matmul(
    out: Array,
    points: "Rows",
    landmarks: "Rows",
    B: AnyArray,
    *,
    verbose: int,
    **options: Any,
) -> None:
    """out = K(points, landmarks) @ B, computed in the type of `out`."""
    tiles = _tiles.make_tiles(
        landmarks=landmarks,
        points=points,
        weights=B.reshape(landmarks.n, -1).T,
        dtype=out.dtype,
        **options,
    )
    _tiles.fill_product(out.reshape(points.n, -1).T, tiles, 1.0, "K·B", verbose)


def find_gradients(
    points: "Rows",
    landmarks: "Rows",
    B: AnyArray,
    *,
    kernel: Kernel,
    dtype: Dtype,
    verbose: int,
    **options: Any,
) -> Array:
    """Compute gradients of K(·, landmarks) @ B at points, an array (n, c, d)."""
    tiles = _tiles.make_gradient_tiles(
        kernel=kernel,
        landmarks=landmarks,
        points=points,
        weights=B.T,
        dtype=dtype,
        **options,
    )
    metric = kernel.metric
    out = np.empty((points.n, *tiles.shape), dtype)
    _tiles.fill_product(out.transpose(1, 2, 0), tiles, 1.0, "gradients", verbose)
    if kernel.normalised or kernel.non_negative:
        _finish_gradients(out, points.in_metric(metric, 0.0), kernel)
    if metric is not None:
        out = metric.pull_back(out).astype(dtype, copy=False)
    warn_if_not_finite(out.reshape(points.n, -1), "gradients")
    return out


def _finish_gradients(out: Array, points: "Rows", kernel: Kernel) -> None:
    """Do what a point has to itself: its norm (cosine), or its own factor (sobolev)."""
    for start in range(0, points.n, GRADIENT_POINTS):
        end = min(points.n, start + GRADIENT_POINTS)
        x, part = points.get(start, end, np.float64)[:, None], out[start:end]
        if kernel.non_negative:
            part /= 1 + x
            continue
        norms = np.linalg.norm(x, axis=2, keepdims=True)
        unit = np.divide(x, norms, out=np.zeros_like(x), where=norms > 0)
        part -= unit * (unit * part).sum(axis=2, keepdims=True)
        part *= np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)


# --------------------------------------------------------------------------
# Arguments
# --------------------------------------------------------------------------


def _check_parts(
    given: str | Sequence[str] | None, out: Array | None
) -> tuple[str, ...]:
    parts = (
        (given,) if isinstance(given, str) else tuple(() if given is None else given)
    )
    if not parts or any(part not in PARTS for part in parts):
        raise ValueError(f"parts must be some of {PARTS}, got {parts}")
    if out is not None and "SK" not in parts:
        raise ValueError(f"out receives S·K, but parts={parts} does not ask for it")
    return parts


def _get_sketch(
    n: int,
    s: int | None,
    p: float | None,
    kind: str,
    sketch: SketchLike | None,
    random_state: RandomState,
    n_threads: int,
) -> Sketch:
    """Find the drawn sketch that the arguments of `sketch_gram` describe."""
    if isinstance(s, (Sketch, Distribution)):
        raise TypeError("s must be an integer; pass a sketch as sketch=...")
    if sketch is None:
        if s is None:
            raise TypeError("sketch_gram needs s, the rows of the sketch, or a sketch")
        return PSparsified(s, p, kind).draw(n, random_state, n_threads)
    if s is not None or p is not None or kind != "rademacher":
        raise ValueError(
            f"s={s}, p={p} and kind={kind!r} were given beside a sketch; it has its own"
        )
    return draw_sketch(sketch, n, random_state, n_threads)


def draw_sketch(
    sketch: SketchLike, n: int, random_state: RandomState, n_threads: int
) -> Sketch:
    """Draw the sketch of n points by a distribution, or take a drawn one if it fits."""
    if not isinstance(sketch, (Sketch, Distribution)):
        raise TypeError(
            "sketch must be a distribution such as PSparsified(s=100) or a drawn "
            f"Sketch, got {type(sketch).__name__}"
        )
    if isinstance(sketch, Distribution):
        return sketch.draw(n, random_state, n_threads)
    if random_state is not None:
        raise ValueError(
            f"random_state={random_state!r} was given beside a sketch that is drawn"
        )
    if sketch.shape[1] != n:
        raise ValueError(
            f"the sketch was drawn for {sketch.shape[1]} points, but X has {n}"
        )
    if len(sketch.indices) == 0:
        raise ValueError("the sketch has no landmark: all of its columns are null")
    return sketch
