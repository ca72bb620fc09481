"""Feature maps: vectors whose scalar products approximate a kernel.

    fit        landmarks X[idx] -> S·K·Sᵀ = Ũ D̃ Ũᵀ -> K̃_r = Ũ_r D̃_r^(-1/2)
    transform  blocks of points -> S·k(·, block) -> times K̃_r -> rows of Z
    predict    K(X, landmarks) · (S_SGᵀ K̃_r coef), with neither S·K nor Z

`FeatureMap` is the map z_S of the paper; `RandomFourierFeatures`, which looks at
no point, is what it is compared with.  Neither sees y or a loss.
"""

import inspect
import warnings
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from pskernels import _engine, _points
from pskernels._products import matmul
from pskernels._progress import progress
from pskernels._random import make_generator, philox_key
from pskernels._threads import resolve_n_threads, single_threaded_blas
from pskernels._validation import (
    check_int,
    check_memory_limit,
    check_out,
    check_points,
    check_real_array,
    common_dtype,
    raise_not_finite,
)
from pskernels.gram import (
    DEFAULT_MEMORY_LIMIT,
    draw_sketch,
    fill_kernel_matmul,
    prepare,
    sketch_landmarks,
    warn_if_not_finite,
)
from pskernels.kernels import (
    RBF,
    GammaKernel,
    Laplacian,
    Matern,
    Precomputed,
    get_kernel,
    is_precomputed,
)
from pskernels.sketches import PSparsified

DEFAULT_ROWS = 100

# Points whose S·K is computed at a time: 64 tiles, so that as many threads have
# work.  From 4,096 to 32,768 points the time is the same within 10 %.
BLOCK_POINTS = 2**14

# Work of one thread on random Fourier features, inside the last-level cache.
FOURIER_BYTES = 2**21

FLOAT32_EPS = float(np.finfo(np.float32).eps)


def _points_of_a_block(point_bytes, n_bytes, memory_limit):
    """Points of a block whose work, point_bytes for each, fits in n_bytes."""
    n_points = n_bytes // point_bytes
    if n_points == 0:
        raise ValueError(
            f"memory_limit={memory_limit} bytes is too small: the work on a single "
            f"point takes {point_bytes}"
        )
    if n_points > _engine.COL_TILE:
        n_points -= n_points % _engine.COL_TILE
    return n_points


class _KernelMap:
    """What both maps share: how they are called, and what they check.

    A map adds `_fit` and `_fill`, for points that are checked.  `_fit` sets
    `kernel_`, `rank_`, `n_features_in_` and `_dtype`, the type of its features.
    """

    def __repr__(self):
        given = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in inspect.signature(type(self)).parameters.items()
            if repr(getattr(self, name)) != repr(parameter.default)
        ]
        return f"{type(self).__name__}({', '.join(given)})"

    def fit(self, X):
        """Learn the map from points.

        Parameters
        ----------
        X : array or sparse array of shape (n, d)
            A sparse one is made dense in blocks, or, if it is sparse enough, not at
            all.

        Returns
        -------
        The map itself.
        """
        self._fit(self._check_points(X))
        return self

    def fit_transform(self, X):
        """``fit(X).transform(X)``, with one check of X."""
        X = self._fit(self._check_points(X))
        return self._fill(np.empty((X.shape[0], self.rank_), self._dtype), X)

    def transform(self, X, out=None):
        """The features of points, computed in blocks.

        Parameters
        ----------
        X : array of shape (n, d)
        out : ndarray of shape (n, rank_), optional
            Of the dtype of the result, in any memory order.

        Returns
        -------
        ndarray of shape (n, rank_)
            float32 if X and the points of the fit are, else float64; C-contiguous,
            if it is not `out`.
        """
        X = self._check_shape(X)
        out = check_out(out, (X.shape[0], self.rank_), self._result_dtype(X), X=X)
        self._check_values(X)
        return self._fill(out, X)

    def predict(self, X, coef, intercept=0.0):
        """``transform(X) @ coef + intercept``, without the features of X.

        Parameters
        ----------
        X : array of shape (n, d)
        coef : array of shape (rank_,) or (rank_, c)
        intercept : float, or array of shape (c,)

        Returns
        -------
        ndarray of shape (n,) or (n, c)
            float32 if X and the points of the fit are, else float64.
        """
        X = self._check_shape(X)
        coef = self._check_coef(coef)
        intercept = self._check_intercept(intercept, coef.shape[1:])
        self._check_values(X)
        out = np.empty((X.shape[0], *coef.shape[1:]), self._result_dtype(X))
        self._fill_prediction(out, X, coef)
        out += intercept
        warn_if_not_finite(out, "predictions")
        return out

    def limits(self):
        """(n_threads, memory_limit), checked."""
        return (
            resolve_n_threads(self.n_threads),
            check_memory_limit(self.memory_limit, DEFAULT_MEMORY_LIMIT),
        )

    def _check_fitted(self):
        if not hasattr(self, "rank_"):
            raise ValueError(
                f"this {type(self).__name__} is not fitted; call fit first"
            )

    def _check_points(self, X):
        return check_points(X, "X", accept_sparse=not is_precomputed(self.kernel))

    def _check_shape(self, X):
        self._check_fitted()
        X = self._check_points(X)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but this {type(self).__name__} was "
                f"fitted with {self.n_features_in_}"
            )
        return X

    def _check_values(self, X):
        prepare(self.kernel_, X, "X", *self.limits())

    def _result_dtype(self, X):
        return np.promote_types(common_dtype(X), self._dtype)

    def _check_coef(self, coef):
        """coef in float64, of shape (rank_,) or (rank_, c)."""
        self._check_fitted()
        if hasattr(coef, "coef"):
            raise TypeError(
                f"coef must be an array, got a {type(coef).__name__}: pass its coef "
                "and its intercept"
            )
        coef = check_real_array(coef, "coef").astype(np.float64, copy=False)
        r = self.rank_
        if coef.ndim not in (1, 2) or coef.shape[0] != r or 0 in coef.shape:
            raise ValueError(
                f"coef must have shape ({r},) or ({r}, c), got {coef.shape}"
            )
        if not np.isfinite(coef).all():
            raise_not_finite(coef.reshape(r, -1), "coef")
        return coef

    def _check_intercept(self, intercept, shape):
        """intercept in float64, a number or one for each column of coef."""
        intercept = check_real_array(intercept, "intercept").astype(np.float64)
        if intercept.shape not in ((), shape):
            need = f"a number or of shape {shape}" if shape else "a number"
            raise ValueError(f"intercept must be {need}, got shape {intercept.shape}")
        if not np.isfinite(intercept).all():
            raise ValueError(f"intercept must be finite, got {intercept}")
        return intercept


# --------------------------------------------------------------------------
# The map of a sketch
# --------------------------------------------------------------------------


class FeatureMap(_KernelMap):
    """The feature map z_S of a sketched kernel machine.

    With S·K·Sᵀ = Ũ D̃ Ũᵀ of rank r, and K̃_r = Ũ_r D̃_r^(-1/2),

        z_S(x) = K̃_rᵀ · S · (k(x, x_1), …, k(x, x_n))ᵀ,

    and z_S(x)ᵀ z_S(x') approximates k(x, x').  By Proposition 5 of [1]_ the sketched
    kernel machine is the linear machine on z_S with the plain ridge penalty,
    whatever the loss.

    Parameters
    ----------
    kernel : str, kernel object or callable
        As for `sketch_gram`.
    gamma : float, "scale" or "median", optional
        Scale of the kernel.  None means "scale": 1 / the sum of the
        columns' variances.
    sketch : Sketch or distribution, optional
        None means ``PSparsified(100)``, or n rows if there are fewer points.
    random_state : None, int, numpy Generator or numpy RandomState
        For drawing the sketch.
    n_threads : int, optional
        None means all cores this process may use.
    memory_limit : int, optional
        Bytes that may be used beside X, the results and matrices of s × s; 1 GiB by
        default.
    verbose : int
        1 shows progress.

    Attributes
    ----------
    kernel_ : kernel object
        The kernel, its gamma a number.
    sketch_ : Sketch
        The drawn sketch.
    landmarks_ : ndarray or sparse array of shape (m, d)
        A copy of the points of the fit that the sketch needs; None for a precomputed
        kernel.
    whitening_ : ndarray of float64, shape (s, r)
        K̃_r, by decreasing eigenvalue, with the largest entry of a column positive.
    rank_ : int
        r, the number of features.
    n_features_in_ : int
        d.

    Notes
    -----
    With m landmarks, `transform` takes m evaluations of the kernel and 2·s·r further
    operations for each point.  The result does not depend on n_threads, to the last
    bit.

    r counts the eigenvalues above s·eps times the largest one, eps that of float32 if
    X is float32, else of float64; smaller ones are lost in the rounding errors of S·K.
    (Should an eigenvalue be negative, r counts those above its size only.)

    S·K·Sᵀ and K̃_r are computed in float64, the rest in float32 if the result is.  Then
    the error of z_S(x), in the norm, is below 3·√(eps/s)·√k(x, x), or 1e-4·√k(x, x)
    for s = 100: measured, 1.8·√(eps/s) at most in a thousand settings, and far less
    where no eigenvalue comes near the cut.  `predict` errs by at most ‖coef‖₂ times as
    much, like ``transform(X) @ coef``; the test error of ridge regressions on maps
    cut at their rank changed by less than 1e-4 of it.  float64 takes twice as long: it
    is used for points that are float64, also if those of the fit were float32.

    With ``kernel="precomputed"``, X is K in `fit`, and K(X_new, X), of shape
    (n_new, n), in `transform` and `predict`, which read only columns of landmarks.

    References
    ----------
    .. [1] T. El Ahmad, P. Laforgue, F. d'Alché-Buc, "Fast Kernel Methods for Generic
       Lipschitz Losses via p-Sparsified Sketches", TMLR, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> import pskernels as psk
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> Z = psk.FeatureMap("rbf", gamma=0.5, random_state=0).fit_transform(X)
    >>> Z.shape
    (1000, 100)
    >>> K = np.exp(-0.5 * ((X[:5, None] - X) ** 2).sum(axis=2))
    >>> bool(abs(Z[:5] @ Z.T - K).max() < 0.01)
    True
    """

    def __init__(
        self,
        kernel="rbf",
        *,
        gamma=None,
        sketch=None,
        random_state=None,
        n_threads=None,
        memory_limit=None,
        verbose=0,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.sketch = sketch
        self.random_state = random_state
        self.n_threads = n_threads
        self.memory_limit = memory_limit
        self.verbose = verbose

    def _fit(self, X):
        """Fit to checked points; return them in the form that `_fill` reads best."""
        kernel = get_kernel(self.kernel, self.gamma)
        n_threads, memory_limit = self.limits()
        precomputed = isinstance(kernel, Precomputed)
        if precomputed and X.shape[0] != X.shape[1]:
            raise ValueError(
                "X must be a square Gram matrix for a precomputed kernel, got "
                f"{X.shape}"
            )
        sketch = self.sketch
        if sketch is None:
            sketch = PSparsified(min(DEFAULT_ROWS, X.shape[0]))
        sketch = draw_sketch(sketch, X.shape[0], self.random_state, n_threads)
        s, n = sketch.shape
        if s > n:
            warnings.warn(
                f"the sketch has s={s} rows for n={n} points, which is slower than no "
                "sketch; a rank above n is not possible",
                RuntimeWarning,
                stacklevel=3,
            )
        kernel, center = prepare(kernel, X, "X", n_threads, memory_limit)
        landmarks = None if precomputed else _take_rows(X, sketch.indices)
        rows = _points.Rows(X, sketch.indices) if precomputed else landmarks
        SKSt = self._sketch_landmarks(rows, sketch, kernel, center)
        self._set(X, sketch, landmarks, kernel, center, SKSt)
        # K is symmetric: its rows of landmarks lie together, their columns do not
        return X.T if precomputed and X.flags.c_contiguous else X

    def _sketch_landmarks(self, landmarks, sketch, kernel, center, **options):
        """S·K·Sᵀ in float64."""
        n_threads, memory_limit = self.limits()
        if not isinstance(landmarks, _points.Rows):
            landmarks = _points.Rows(landmarks)
        return sketch_landmarks(
            sketch,
            landmarks,
            kernel=kernel,
            center=center,
            dtype=np.dtype(np.float64),
            n_threads=n_threads,
            memory_limit=memory_limit,
            verbose=self.verbose,
            **options,
        )

    def _set(self, X, sketch, landmarks, kernel, center, SKSt):
        """What was learnt; a fit that fails leaves the map as it was."""
        dtype = common_dtype(X)
        whitening = _whitening(SKSt, np.finfo(dtype).eps)
        self.kernel_ = kernel
        self.sketch_ = sketch
        self.landmarks_ = landmarks
        self.whitening_ = whitening
        self.rank_ = whitening.shape[1]
        self.n_features_in_ = X.shape[1]
        self._center = center
        self._dtype = dtype

    def check_learnt(self):
        """Check that what was learnt fits together, for a map out of a file."""
        self.limits()
        s, m = self.sketch_.weights.shape
        d = self.n_features_in_
        shapes = {"whitening_": (s, self.rank_), "landmarks_": (m, d), "_center": (d,)}
        if isinstance(self.kernel_, Precomputed):
            shapes.update(landmarks_=None, _center=None)
            d = self.sketch_.shape[1]
        for name, shape in shapes.items():
            found = getattr(getattr(self, name), "shape", None)
            if found != shape:
                raise ValueError(f"{name} must have the shape {shape}, got {found}")
        if m == 0 or self.rank_ == 0 or self.n_features_in_ != d:
            raise ValueError(
                f"a map needs landmarks, features and {d} inputs, got {m}, "
                f"{self.rank_} and {self.n_features_in_}"
            )
        if isinstance(getattr(self.kernel_, "gamma", None), str):
            raise ValueError(f"the gamma of {self.kernel_} must be a number")
        if not hasattr(self, "_dtype"):
            raise ValueError("the type of features is missing")

    def _landmark_rows(self, X):
        """The landmarks, or their rows of K(landmarks, X) if it is precomputed."""
        if self.landmarks_ is None:
            return _points.Rows(X.T, self.sketch_.indices)
        return _points.Rows(self.landmarks_)

    def _fill(self, out, X):
        """out = z_S(X), of points that are checked."""
        _fill_maps([self], [out], X)
        if not self.kernel_.centred:  # shift-invariant kernels are at most 1
            warn_if_not_finite(out, "z_S", stacklevel=4)
        return out

    def _sketch_block(self, SK, X, n_threads, memory_limit, **options):
        """SK = S · K(points of the fit, X), for one block of points."""
        try:
            tiles = _engine.make_tiles(
                kernel=self.kernel_,
                center=self._center,
                dtype=SK.dtype,
                landmarks=self._landmark_rows(X),
                points=_points.Rows(X),
                weights=self.sketch_.weights,
                n_threads=n_threads,
                memory_limit=memory_limit,
                **options,
            )
        except ValueError as error:
            if not str(error).startswith("memory_limit"):
                raise
            raise ValueError(
                f"half of memory_limit is for tiles of K: {error}, twice that in all"
            ) from None
        _engine.fill_product(SK, tiles, self.sketch_.scale, "S·K", verbose=0)

    def fold(self, coef):
        """One coefficient for each landmark, S_SGᵀ K̃_r coef.

        Parameters
        ----------
        coef : array of shape (rank_,) or (rank_, c)

        Returns
        -------
        ndarray of float64, shape (m,) or (m, c)
            K(X, landmarks_) @ fold(coef) is transform(X) @ coef.
        """
        coef = self._check_coef(coef)
        with single_threaded_blas():
            return self.sketch_.scaled_weights().T @ (self.whitening_ @ coef)

    def _fill_prediction(self, out, X, coef):
        n_threads, memory_limit = self.limits()
        fill_kernel_matmul(
            out,
            _points.Rows(X),
            self._landmark_rows(X),
            self.fold(coef),
            kernel=self.kernel_,
            center=self._center,
            n_threads=n_threads,
            memory_limit=memory_limit,
            verbose=self.verbose,
        )


def _fill_maps(maps, outs, X):
    """Features of maps that differ by gamma alone, of points that are checked."""
    first, dtype = maps[0], outs[0].dtype
    n_threads, memory_limit = first.limits()
    s, n = first.sketch_.shape[0], X.shape[0]
    half = memory_limit // 2  # for a block of S·K, and as much for tiles of K
    point_bytes = len(maps) * s * dtype.itemsize
    n_bytes = min(half, BLOCK_POINTS * s * dtype.itemsize)
    step = _points_of_a_block(point_bytes, n_bytes, memory_limit)
    work = np.empty((len(maps), min(step, n), s), dtype)
    whitenings = [one.whitening_.astype(dtype, copy=False) for one in maps]
    options = {}
    if len(maps) > 1:
        options["gammas"] = [one.kernel_.gamma for one in maps]
    with progress(n, "z_S", first.verbose) as report:
        for start in range(0, n, step):
            block = X[start : start + step]
            KSts = work[:, : block.shape[0]]
            SK = KSts.swapaxes(1, 2) if len(maps) > 1 else KSts[0].T
            first._sketch_block(SK, block, n_threads, half, **options)
            for KSt, whitening, out in zip(KSts, whitenings, outs, strict=True):
                matmul(KSt, whitening, out[start : start + step], n_threads)
            report(block.shape[0])


def share_distances(kernel, sketch, X):
    """Whether `fit_transform_gammas` is possible."""
    of_gamma = isinstance(kernel, GammaKernel)
    return of_gamma and not sketch.is_dense and not sp.issparse(X)


def fit_transform_gammas(feature_map, gammas, X, X_new):
    """Maps of several gammas, whose distances are computed once.

    Parameters
    ----------
    feature_map : FeatureMap
        Not fitted; its sketch is drawn, and its kernel has a gamma.
    gammas : list of float
    X, X_new : array of shape (n, d), (n_new, d)
        Points to fit to, and others.

    Returns
    -------
    list of (FeatureMap, features of X, features of X_new)
    """
    X, X_new = check_points(X, "X"), check_points(X_new, "X_new")
    kernel = replace(get_kernel(feature_map.kernel), gamma=max(gammas))
    n_threads, memory_limit = feature_map.limits()
    kernel, center = prepare(kernel, X, "X", n_threads, memory_limit)
    prepare(kernel, X_new, "X_new", n_threads, memory_limit)
    sketch = feature_map.sketch
    landmarks = _take_rows(X, sketch.indices)
    SKSts = feature_map._sketch_landmarks(
        landmarks, sketch, kernel, center, gammas=gammas
    )
    maps = []
    for gamma, SKSt in zip(gammas, SKSts, strict=True):
        one = copy(feature_map)
        one.kernel = replace(kernel, gamma=gamma)
        one._set(X, sketch, landmarks, one.kernel, center, SKSt)
        maps.append(one)
    features = []
    for points in (X, X_new):
        dtype = maps[0]._result_dtype(points)
        outs = [np.empty((points.shape[0], one.rank_), dtype) for one in maps]
        _fill_maps(maps, outs, points)
        features.append(outs)
    return list(zip(maps, *features, strict=True))


def _take_rows(X, indices):
    """A copy of some points, C-contiguous, or sparse if X is."""
    rows = X[indices]
    return rows if sp.issparse(rows) else np.ascontiguousarray(rows)


def _whitening(SKSt, eps):
    """K̃_r = Ũ_r D̃_r^(-1/2); eps is the precision of the S·K it will multiply."""
    if not np.isfinite(SKSt).all():
        raise ValueError("S·K·Sᵀ overflows float64; scale X")
    with single_threaded_blas():
        eigenvalues, vectors = scipy.linalg.eigh(SKSt)
    s, smallest, largest = len(SKSt), eigenvalues[0], eigenvalues[-1]
    if not largest > 0:
        raise ValueError(
            "S·K·Sᵀ must have a positive eigenvalue, but the largest one is "
            f"{largest:g}"
        )
    # values of k that were rounded to float32 may cause as much, even in float64
    if smallest < -s * FLOAT32_EPS * largest:
        raise ValueError(
            "the kernel must be positive semidefinite, but S·K·Sᵀ has the eigenvalue "
            f"{smallest:g} (the largest one is {largest:g})"
        )
    # a negative eigenvalue is a rounding error, and others are as wrong
    kept = eigenvalues > max(s * eps * largest, -smallest)
    eigenvalues, vectors = eigenvalues[kept][::-1], vectors[:, kept][:, ::-1]
    # LAPACK is free to choose the signs
    peaks = np.argmax(np.abs(vectors), axis=0)
    signs = np.sign(vectors[peaks, np.arange(len(peaks))])
    return np.ascontiguousarray(vectors * (signs / np.sqrt(eigenvalues)))


# --------------------------------------------------------------------------
# Random Fourier features
# --------------------------------------------------------------------------


class RandomFourierFeatures(_KernelMap):
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
    gamma : float, "scale" or "median", optional
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
        n_components=100,
        kernel="rbf",
        *,
        gamma=None,
        random_state=None,
        n_threads=None,
        memory_limit=None,
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.random_state = random_state
        self.n_threads = n_threads
        self.memory_limit = memory_limit

    def _fit(self, X):
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
        kernel, _ = prepare(kernel, X, "X", *self.limits())
        shape = n_components // 2, X.shape[1]
        self.frequencies_ = _draw_frequencies(kernel, shape, rng)
        self.kernel_ = kernel
        self.rank_ = n_components
        self.n_features_in_ = X.shape[1]
        self._dtype = common_dtype(X)
        return X

    def _angles(self, X):
        return X.astype(np.float64, copy=False) @ self.frequencies_.T

    def _fill(self, out, X):
        """out = z(X), of points that are checked."""
        half = self.rank_ // 2

        def fill(rows):
            angles = self._angles(X[rows])
            np.cos(angles, out=out[rows, :half])
            np.sin(angles, out=out[rows, half:])
            out[rows] *= np.sqrt(2 / self.rank_)

        self._run(fill, X.shape[0], self.n_features_in_ + half)
        return out

    def _fill_prediction(self, out, X, coef):
        half = self.rank_ // 2
        coef = np.sqrt(2 / self.rank_) * coef

        def fill(rows):
            angles = self._angles(X[rows])
            product = np.cos(angles) @ coef[:half]
            product += np.sin(angles, out=angles) @ coef[half:]
            out[rows] = product

        n_columns = coef[0].size
        self._run(fill, X.shape[0], self.n_features_in_ + 2 * half + 2 * n_columns)

    def _run(self, fill, n, width):
        """Call `fill` for all blocks of n points, whose work is (points, width)."""
        n_threads, memory_limit = self.limits()
        point_bytes = 8 * width
        work_bytes = min(memory_limit, max(FOURIER_BYTES, point_bytes))
        step = _points_of_a_block(point_bytes, work_bytes, memory_limit)
        n_threads = min(n_threads, memory_limit // (step * point_bytes))
        blocks = [slice(start, start + step) for start in range(0, n, step)]
        with single_threaded_blas(), ThreadPoolExecutor(n_threads) as pool:
            # a block for each thread at a time: between them Ctrl-C is heard
            for first in range(0, len(blocks), n_threads):
                for _ in pool.map(fill, blocks[first : first + n_threads]):
                    pass  # an exception in a thread is raised here


def _draw_frequencies(kernel, shape, rng):
    """Frequencies of the spectral law of a kernel, one in each row."""
    if isinstance(kernel, Laplacian):
        return kernel.gamma * rng.standard_cauchy(shape)
    frequencies = np.sqrt(2 * kernel.gamma) * rng.standard_normal(shape)
    if isinstance(kernel, Matern):
        freedom = 2 * kernel.nu
        mixing = rng.chisquare(freedom, size=(shape[0], 1)) / freedom
        frequencies /= np.sqrt(mixing)
    return frequencies
