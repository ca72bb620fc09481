"""Properties of the public API on inputs that nobody would think of.

Hypothesis draws shapes from nothing to past two tiles, types, strides, orders, scales
from denormal to 1e300, duplicates, offsets, sparse forms and numbers of threads; what
comes out is compared with dense references in long double, bitwise where that is
promised.  A plain run takes a few hundred examples, always the same ones;
PSKERNELS_LONG=1 takes more than 20,000 (`bash .ci/long properties` does, and prints the
seed to be repeated with --hypothesis-seed).
"""

import math
import os
import tempfile
import warnings

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pskernels as psk
from pskernels import theory
from pskernels.estimators import (
    KernelSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
    load,
)

LONG = os.environ.get("PSKERNELS_LONG") == "1"
WIDE = np.longdouble
TINY = np.finfo(float).tiny

examples = settings(
    max_examples=1000 if LONG else 15,
    derandomize=not LONG,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

# Normwise relative error that is promised (docs/numerics.md).
PROMISED = {"float64": 1e-12, "float32": 2e-6}

threads = st.integers(1, 8)
seeds = st.integers(0, 2**32 - 1)
# around the tiles of 4 to 32 points and 120 landmarks, and of 256 points
sizes = st.one_of(
    st.integers(1, 9),
    st.sampled_from([15, 16, 17, 31, 32, 33, 119, 120, 121, 241, 255, 256, 257, 513]),
)
widths = st.one_of(st.integers(1, 9), st.sampled_from([31, 33, 64, 100]))


@st.composite
def arrays(draw, n=sizes, d=widths, scales=True, kinds="fiub"):
    """A matrix of some type, order and stride, and whether its scale is ordinary."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(n), draw(d)
    X = rng.normal(size=(n, d))
    if draw(st.booleans()):
        X = X[rng.integers(n, size=n)]  # duplicates
    kind = draw(st.sampled_from(["f8", "f8", "f4", ">f8", "f2", "i4", "u1", "b1"]))
    dtype = np.dtype(kind)
    if dtype.kind not in kinds:
        dtype = np.dtype("f8")
    if dtype.kind in "iu":
        X = np.abs(np.round(3 * X)) if dtype.kind == "u" else np.round(3 * X)
    elif dtype.kind == "b":
        X = X > 0
    elif draw(st.booleans()):
        X = X + draw(st.sampled_from([1.0, -30.0, 1000.0])) * rng.normal(size=d)
    if scales and dtype.str in ("<f8", "<f4") and draw(st.booleans()):
        most = 300 if dtype.itemsize == 8 else 36
        X = X * 10.0 ** draw(st.integers(-most, most))
    with np.errstate(over="ignore"):
        X = X.astype(dtype)
    return restride(X, draw(st.sampled_from(["C", "F", "rows", "columns", "back"])))


def restride(X, layout):
    """The same matrix in another memory layout, not writeable."""
    n, d = X.shape
    if layout == "F":
        X = np.asfortranarray(X)
    elif layout == "rows":
        X = np.repeat(X, 2, axis=0)[::2]
    elif layout == "columns":
        X = np.repeat(X, 3, axis=1)[:, ::3]
    elif layout == "back":
        X = np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1]
    assert X.shape == (n, d)
    X.flags.writeable = False
    return X


def to_sparse(X, form, rng):
    """A sparse array of the same numbers, in a form that is allowed but odd."""
    dense = np.ascontiguousarray(X)
    if form in ("coo", "csc", "bsr", "lil"):
        return getattr(sp, f"{form}_array")(dense)
    S = sp.csr_array(dense)
    if form == "int64":
        return sp.csr_array(
            (S.data, S.indices.astype(np.int64), S.indptr.astype(np.int64)), S.shape
        )
    if form == "zeros":  # explicit ones, and a place that is there twice
        rows, columns = np.nonzero(np.ones_like(dense))
        order = rng.permutation(len(rows))
        rows, columns = rows[order], columns[order]
        twice = np.concatenate([rows, rows[:1]]), np.concatenate([columns, columns[:1]])
        data = np.append(dense[rows, columns], 0).astype(dense.dtype)
        return sp.csr_array(sp.coo_array((data, twice), shape=dense.shape))
    # unsorted
    indices, data = S.indices.copy(), S.data.copy()
    for start, end in zip(S.indptr[:-1], S.indptr[1:], strict=True):
        order = rng.permutation(end - start)
        indices[start:end], data[start:end] = (
            S.indices[start:end][order],
            S.data[start:end][order],
        )
    return sp.csr_array((data, indices, S.indptr), S.shape)


def result_dtype(*inputs):
    return "float32" if all(x.dtype == np.float32 for x in inputs) else "float64"


def make_gamma(X):
    """About 1 / (typical squared distance), inside of what a kernel takes."""
    with np.errstate(all="ignore"):
        variance = np.float64(WIDE(X).var(axis=0).sum())
    if not TINY < variance < 1e300:
        return 1.0
    return float(np.clip(1 / variance, 1e-290, 1e290))


def wide_kernel(name, X, Y, gamma):
    """K(X, Y) in long double."""
    X, Y, gamma = WIDE(X), WIDE(Y), WIDE(gamma)
    with np.errstate(all="ignore"):
        if name == "cosine":
            # scaled first, for squares overflow even here
            X, Y = (
                a / np.maximum(np.abs(a).max(axis=1), TINY)[:, None] for a in (X, Y)
            )
            return np.nan_to_num(reference.KERNELS[name](X, Y, gamma))
        return reference.KERNELS[name](X, Y, gamma)


def kernel_sizes(name, X, Y, gamma):
    """What the errors of K(X, Y) are relative to: scalar products may cancel."""
    if name in ("linear", "polynomial", "cosine"):
        X, Y = np.abs(WIDE(X)), np.abs(WIDE(Y))
    return np.abs(wide_kernel(name, X, Y, gamma))


def ordinary(K):
    """Whether values are far from the ends of a type, so that errors are relative."""
    sizes = np.abs(K[K != 0])
    return K.size and np.isfinite(K).all() and (sizes < 1e30).all() and sizes.size


def assert_close(result, expected, dtype):
    """Within the promise, relative to the norm."""
    expected = np.asarray(expected)
    error = np.sqrt(((WIDE(result) - expected) ** 2).sum())
    norm = np.sqrt((expected**2).sum())
    assert error <= PROMISED[dtype] * norm + 1e-30, float(error / norm)


KERNELS = sorted(reference.KERNELS)
kernels = st.sampled_from(KERNELS)


def prepare(name, *points):
    """Points that a kernel takes: sobolev needs them not negative."""
    if name != "sobolev":
        return points
    return tuple(restride(np.abs(X), "C") for X in points)


def small_enough(name, X):
    """Whether the kernel neither overflows nor loses all digits by its definition."""
    size = float(np.abs(WIDE(X)).max()) if X.size else 0.0
    limit = {"polynomial": 1e30, "linear": 1e100, "sobolev": 1e2}.get(name, 1e150)
    floor = {"linear": 1e-100, "polynomial": 0.0, "sobolev": 0.0}.get(name, 1e-140)
    if X.dtype == np.float32:
        limit = {"polynomial": 1e3, "linear": 1e15, "sobolev": 5.0}.get(name, 1e17)
        floor = {"linear": 1e-15, "polynomial": 0.0, "sobolev": 0.0}.get(name, 1e-15)
    if name == "sobolev" and X.shape[1] > 20:
        return False
    return size == 0 or floor <= size <= limit


# --------------------------------------------------------------------------
# Products
# --------------------------------------------------------------------------

SKETCHES = {
    "sparse": lambda n: psk.PSparsified(5, min(1.0, 8 / n)),
    "dense": lambda n: psk.PSparsified(3, 0.9, "gaussian"),
    "gaussian": lambda n: psk.Gaussian(4),
    "nystroem": lambda n: psk.SubSampling(min(n, 7)),
    "accumulation": lambda n: psk.Accumulation(3, m=2),
    "count": lambda n: psk.CountSketch(4),
    "ros": lambda n: psk.ROS(min(n, 3)),
}
sketch_names = st.sampled_from(sorted(SKETCHES))


def draw_sketch(name, n, seed, n_threads=None):
    """A sketch, or None if all of it is 0: nothing drawn, or signs that cancel."""
    try:
        sketch = SKETCHES[name](n).draw(n, seed, n_threads)
    except ValueError as error:
        assert "no landmark was drawn" in str(error)
        return None
    return sketch if len(sketch.indices) else None


@examples
@given(arrays(), kernels, sketch_names, seeds, threads)
def test_sketch_gram_is_the_dense_one(X, kernel, sketch_name, seed, n_threads):
    (X,) = prepare(kernel, X)
    gamma = make_gamma(X)
    options = {} if kernel in reference.WITHOUT_GAMMA else {"gamma": gamma}
    n, before = len(X), X.copy()
    sketch = draw_sketch(sketch_name, n, seed)
    if sketch is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            result = psk.sketch_gram(
                X, sketch=sketch, kernel=kernel, n_threads=n_threads, **options
            )
        except ValueError as error:
            assert "overflow" in str(error) or "too large" in str(error)
            assert not small_enough(kernel, X)
            return
        again = psk.sketch_gram(X, sketch=sketch, kernel=kernel, n_threads=1, **options)
        alone = psk.sketch_gram(
            X, sketch=sketch, kernel=kernel, parts="SKSt", n_threads=2, **options
        )
    np.testing.assert_array_equal(X, before)
    dtype = result_dtype(X)
    assert result.SK.dtype == result.SKSt.dtype == dtype
    np.testing.assert_array_equal(result.SK, again.SK)
    np.testing.assert_array_equal(result.SKSt, again.SKSt)
    np.testing.assert_array_equal(result.SKSt, result.SKSt.T)
    if not small_enough(kernel, X):
        return
    K = wide_kernel(kernel, X, X, gamma)
    S = WIDE(sketch.to_dense())
    if not ordinary(K):
        return
    # sums may cancel: errors are relative to the parts
    sizes = np.abs(S) @ kernel_sizes(kernel, X, X, gamma)
    assert (np.abs(result.SK - S @ K) <= 4 * PROMISED[dtype] * sizes + 1e-30).all()
    sizes = sizes @ np.abs(S).T
    for SKSt in (result.SKSt, alone.SKSt):
        assert (np.abs(SKSt - S @ K @ S.T) <= 4 * PROMISED[dtype] * sizes + 1e-30).all()


@examples
@given(
    arrays(),
    sizes,
    st.integers(1, 5),
    kernels,
    seeds,
    threads,
    st.sampled_from(
        ["array", "coo", "csc", "bsr", "lil", "int64", "zeros", "unsorted"]
    ),
)
def test_kernel_matmul_is_the_dense_one(X, m, c, kernel, seed, n_threads, form):
    rng = np.random.default_rng(seed)
    Y = X[rng.integers(len(X), size=m)] if X.dtype.kind == "f" else X[:m]
    X, Y = prepare(kernel, X, Y)
    gamma = make_gamma(X)
    options = {} if kernel in reference.WITHOUT_GAMMA else {"gamma": gamma}
    B = rng.normal(size=(len(Y), c)).astype(rng.choice([np.float32, np.float64]))
    dtype = result_dtype(X, Y, B)
    points = X
    if form != "array" and X.dtype.str in ("<f8", "<f4"):
        points = to_sparse(X, form, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            result = psk.kernel_matmul(
                points, Y, B, kernel=kernel, n_threads=n_threads, **options
            )
        except ValueError as error:
            assert "overflow" in str(error) or "too large" in str(error)
            assert not small_enough(kernel, X)
            return
        out = np.empty((len(X), c), dtype, order=rng.choice(["C", "F"]))
        given = psk.kernel_matmul(
            points, Y, B, kernel=kernel, n_threads=1, out=out, **options
        )
    assert given is out and result.dtype == dtype
    np.testing.assert_array_equal(result, out)
    if not small_enough(kernel, X):
        return
    K = wide_kernel(kernel, X, Y, gamma)
    if ordinary(K):
        sizes = kernel_sizes(kernel, X, Y, gamma) @ np.abs(WIDE(B))
        error = np.abs(result - K @ WIDE(B))
        assert (error <= 4 * PROMISED[dtype] * sizes + 1e-30).all()


@examples
@given(arrays(scales=False), st.integers(1, 40), seeds, threads)
def test_precomputed_and_python_kernels_are_the_same(X, s, seed, n_threads):
    X = np.float64(X)
    gamma = make_gamma(X)
    K = np.float64(wide_kernel("rbf", X, X, gamma))
    sketch = psk.SubSampling(min(s, len(X))).draw(len(X), random_state=seed)
    expected = psk.sketch_gram(X, sketch=sketch, gamma=gamma, n_threads=n_threads)
    for points, kernel in (
        (K, "precomputed"),
        (np.asfortranarray(K), "precomputed"),
        (X, lambda a, b: reference.rbf(a, b, gamma)),
    ):
        result = psk.sketch_gram(points, sketch=sketch, kernel=kernel)
        assert_close(result.SK, WIDE(expected.SK), "float64")
        assert_close(result.SKSt, WIDE(expected.SKSt), "float64")


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (3,), (2, 3, 4), ()])
def test_shapes_that_are_no_points_are_named(shape):
    X = np.ones(shape)
    for call in (
        lambda: psk.sketch_gram(X, 3),
        lambda: psk.kernel_matmul(X, None, np.ones(3)),
        lambda: psk.FeatureMap().fit(X),
        lambda: psk.solve(X, np.ones(3), alpha=1.0),
        lambda: psk.RandomFourierFeatures(4).fit(X),
    ):
        with pytest.raises((ValueError, TypeError), match="[XZB] (must|needs)"):
            call()


# --------------------------------------------------------------------------
# Sketches
# --------------------------------------------------------------------------


@examples
@given(
    st.integers(1, 400),
    st.integers(1, 20),
    st.floats(1e-4, 1.0),
    st.sampled_from(["rademacher", "gaussian"]),
    seeds,
    threads,
    st.data(),
)
def test_blocks_of_a_sketch_are_its_parts(n, s, p, kind, seed, n_threads, data):
    sketch = psk.PSparsified(s, p, kind)
    row = data.draw(st.integers(0, s - 1))
    row_end = data.draw(st.integers(row + 1, s))
    column = data.draw(st.integers(0, n - 1))
    column_end = data.draw(st.integers(column + 1, n))
    whole = sketch.draw_block(n, seed, n_threads=n_threads)
    part = sketch.draw_block(
        n, seed, rows=(row, row_end), columns=(column, column_end), n_threads=1
    )
    expected = whole.to_dense()[row:row_end, column:column_end]
    np.testing.assert_array_equal(part.to_dense(), expected)
    # more points and more rows extend it, but for the scale
    larger = psk.PSparsified(s + 3, p, kind).draw_block(n + 5, seed)
    same = larger.to_dense()[:s, :n] / larger.scale
    np.testing.assert_allclose(same, whole.to_dense() / whole.scale, rtol=1e-15)


@examples
@given(sketch_names, st.integers(1, 300), st.integers(1, 4), seeds, threads)
def test_products_with_a_sketch_are_those_of_its_matrix(name, n, c, seed, n_threads):
    sketch = draw_sketch(name, n, seed, n_threads)
    if sketch is None:
        return
    rng = np.random.default_rng(seed)
    S = sketch.to_dense()
    assert S.shape == sketch.shape and np.isfinite(S).all()
    assert (np.flatnonzero(S.any(axis=0)) == sketch.indices).all()
    np.testing.assert_array_equal(sketch.to_scipy().toarray(), S)
    A, B = rng.normal(size=(n, c)), rng.normal(size=(len(S), c))
    np.testing.assert_allclose(sketch @ A, S @ A, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sketch.T @ B, S.T @ B, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(A.T @ sketch.T, A.T @ S.T, rtol=1e-12, atol=1e-12)
    assert (sketch @ A.astype(np.float32)).dtype == np.float32
    again = SKETCHES[name](n).draw(n, seed, 1)
    np.testing.assert_array_equal(again.to_dense(), S)


# --------------------------------------------------------------------------
# Feature maps
# --------------------------------------------------------------------------


@examples
@given(
    arrays(scales=False, kinds="f"),
    st.sampled_from(["rbf", "laplacian", "matern32", "linear", "polynomial"]),
    seeds,
    threads,
)
def test_features_are_those_of_the_sketched_kernel(X, kernel, seed, n_threads):
    gamma = make_gamma(X)
    n = len(X)
    sketch = psk.SubSampling(min(n, 12)).draw(n, random_state=seed)
    options = {} if kernel in reference.WITHOUT_GAMMA else {"gamma": gamma}

    def make(k):
        return psk.FeatureMap(kernel, sketch=sketch, n_threads=k, **options)

    try:
        fitted = make(n_threads).fit(X)
    except ValueError as error:
        assert "positive eigenvalue" in str(error) and not np.any(X)
        return
    Z = fitted.transform(X)
    assert Z.dtype == result_dtype(X) and Z.shape == (n, fitted.rank_)
    np.testing.assert_array_equal(make(1).fit_transform(X), Z)
    coef = np.random.default_rng(seed).normal(size=(fitted.rank_, 2))
    eps = np.finfo(Z.dtype).eps
    K = np.float64(wide_kernel(kernel, X, X, gamma))
    norms = np.sqrt(np.diag(K))
    bound = 8 * np.sqrt(eps * sketch.shape[0]) * norms * np.linalg.norm(coef)
    error = np.abs(fitted.predict(X, coef) - Z @ coef).max(axis=1)
    assert (error <= bound + 1e-300).all()
    # the approximation never exceeds K: ‖z(x)‖² ≤ k(x, x), and it is exact at landmarks
    assert ((np.float64(Z) ** 2).sum(axis=1) <= (norms**2) * (1 + 1e-3)).all()
    K_hat = np.float64(Z) @ np.float64(Z[sketch.indices]).T
    worst = np.abs(K_hat - K[:, sketch.indices]).max()
    assert worst <= 20 * np.sqrt(eps * sketch.shape[0]) * norms.max() ** 2


@examples
@given(arrays(scales=False), st.integers(1, 20), seeds, threads)
def test_fourier_features_have_norm_one(X, half, seed, n_threads):
    gamma = make_gamma(X)
    fourier = psk.RandomFourierFeatures(
        2 * half, gamma=gamma, random_state=seed, n_threads=n_threads
    )
    Z = fourier.fit_transform(X)
    np.testing.assert_allclose((Z.astype(float) ** 2).sum(axis=1), 1.0, rtol=1e-5)
    coef = np.random.default_rng(seed).normal(size=2 * half)
    predicted = fourier.predict(X, coef, 1.5)
    tolerance = 1e-4 if Z.dtype == np.float32 else 1e-10
    np.testing.assert_allclose(predicted, Z @ coef + 1.5, rtol=0, atol=tolerance)


# --------------------------------------------------------------------------
# Losses
# --------------------------------------------------------------------------

positive = st.floats(1e-6, 1e6)
levels = st.floats(1e-3, 1 - 1e-3)
losses = st.one_of(
    st.builds(psk.Huber, positive),
    st.builds(psk.EpsilonInsensitive, st.one_of(st.just(0.0), positive)),
    st.builds(psk.Pinball, levels),
    st.sampled_from(
        [psk.Absolute(), psk.Squared(), psk.Hinge(), psk.SquaredHinge(), psk.Logistic()]
    ),
)


@examples
@given(losses, seeds, st.integers(-100, 100), st.sampled_from([1e-6, 1e-2, 1.0, 1e3]))
def test_losses_are_those_of_the_textbook(loss, seed, exponent, mu):
    rng = np.random.default_rng(seed)
    n = 40
    scale = 10.0**exponent
    y = rng.choice([-1.0, 1.0], size=n) if loss.classification else rng.normal(size=n)
    if not loss.classification:
        y = y * scale
    u = rng.normal(size=n) * (np.clip(scale, 0, 1e3) if loss.classification else scale)
    value = loss.value(u, y)
    expected = reference.loss_value(loss, WIDE(u), WIDE(y))
    sizes = np.abs(expected) + 1e-15 * np.abs(WIDE(u)) + TINY
    assert (
        np.abs(value - expected) <= 1e-13 * sizes * (1 + 1e3 * (expected < 1e-3))
    ).all()
    zeta = loss.derivative(u, y)
    assert (np.abs(zeta) <= loss.lipschitz * (1 + 1e-15)).all()
    # Fenchel's inequality, an equality at the derivative
    conjugate = loss.conjugate(zeta, y)
    assert np.isfinite(conjugate).all()
    sizes = np.abs(value) + np.abs(conjugate) + np.abs(u * zeta) + TINY
    assert (np.abs(value + conjugate - u * zeta) <= 1e-13 * sizes).all()
    other = loss.derivative(u[::-1], y)
    gap = value + loss.conjugate(other, y) - u * other
    assert (gap >= -1e-13 * (sizes + np.abs(u * other) + np.abs(gap))).all()
    # the proximal point attains the envelope, which is below the loss
    v = loss.prox(u, y, mu)
    envelope = loss.envelope(u, y, mu)
    attained = loss.value(v, y) + (u - v) ** 2 / (2 * mu)
    slope = loss.envelope_derivative(u, y, mu)
    wrong = 4e-16 * (np.abs(u) + np.abs(y))  # what u - v may be wrong by
    sizes = value + attained + np.abs(u) * np.abs(zeta) + TINY
    error = 1e-12 * sizes + wrong * np.abs(slope) + wrong**2 / mu
    assert (np.abs(envelope - attained) <= 4 * error).all()
    assert (envelope <= value + error).all()
    np.testing.assert_allclose(
        slope, (u - v) / mu, rtol=1e-6, atol=1e-9 * (1 + np.abs(u).max() / mu)
    )


@examples
@given(losses, seeds, st.integers(1, 30))
def test_the_constant_minimiser_minimises(loss, seed, n):
    rng = np.random.default_rng(seed)
    y = np.round(rng.normal(size=n), 1)
    if loss.classification:
        y = np.where(y > 0, 1.0, -1.0)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], size=n)
    weight[0] = 1.0
    best = loss.constant_minimiser(y, weight)
    if np.isinf(best):
        assert isinstance(loss, psk.Logistic) and len(set(y[weight > 0])) == 1
        return

    def total(b):
        return weight @ loss.value(np.full(n, b), y)

    lowest = total(best)
    for b in (*y, *(y + 0.01), best + 1e-3, best - 1e-3, best + 1, best - 1):
        assert total(b) >= lowest - 1e-10 * (1 + abs(lowest))


# --------------------------------------------------------------------------
# Solvers
# --------------------------------------------------------------------------


@examples
@given(losses, seeds, st.integers(1, 60), st.integers(1, 12), threads, st.booleans())
def test_solutions_do_not_depend_on_threads_order_or_strides(
    loss, seed, n, r, n_threads, fit_intercept
):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, r)).astype(rng.choice([np.float32, np.float64]))
    y = rng.normal(size=n)
    if loss.classification:
        y = np.where(y > 0, 1.0, -1.0)
        if isinstance(loss, psk.Logistic) and abs(y.sum()) == n:
            fit_intercept = False
    alpha = float(10.0 ** rng.uniform(-4, 1))
    options = dict(loss=loss, alpha=alpha, fit_intercept=fit_intercept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", psk.ConvergenceWarning)
        one = psk.solve(Z, y, n_threads=1, **options)
        several = psk.solve(restride(Z, "F"), y, n_threads=n_threads, **options)
        doubled = psk.solve(
            np.concatenate([Z, Z]), np.concatenate([y, y]), n_threads=2, **options
        )
        weighted = psk.solve(
            np.concatenate([Z, 7 * Z]),
            np.concatenate([y, -y]),
            sample_weight=np.repeat([2.0, 0.0], n),
            **options,
        )
    np.testing.assert_array_equal(one.coef, several.coef)
    assert one.dual_gap == several.dual_gap
    assert one.objective <= one.null_objective * (1 + one.dual_gap + 1e-12)
    lowest = min(line.objective for line in one.history)
    assert one.objective <= lowest * (1 + 1e-9) + TINY
    # the same problem in other words: objectives agree within both certificates
    for other in (doubled, weighted):
        slack = one.dual_gap + other.dual_gap + 1e-9
        scale = max(one.objective, 1e-9 * one.null_objective)
        assert abs(other.objective - one.objective) <= slack * scale + TINY


@examples
@given(seeds, st.integers(2, 40), st.integers(1, 6), st.lists(levels, max_size=4))
def test_quantiles_do_not_cross(seed, n, r, more):
    rng = np.random.default_rng(seed)
    quantiles = sorted({0.1, 0.9, *(round(level, 2) for level in more)} - {0.0, 1.0})
    Z, y = rng.normal(size=(n, r)), rng.standard_t(2, size=n)
    result = psk.solve_quantiles(
        Z, y, quantiles=quantiles, alpha=0.1, noncrossing="sort", tol=1e-3
    )
    predicted = result.predict(Z)
    assert (np.diff(predicted, axis=1) >= 0).all()
    assert psk.crossing_loss(predicted) == 0
    raw = Z @ result.coef + np.reshape(result.intercept, -1)
    np.testing.assert_allclose(predicted, psk.rearrange(raw), atol=1e-12)
    before, after = (psk.pinball_loss(y, q, quantiles) for q in (raw, predicted))
    assert after <= before + 1e-12


@examples
@given(seeds, st.integers(1, 8), st.floats(0, 100), st.floats(0, 0.99))
def test_output_matrices_are_semidefinite(seed, d, gamma, mu):
    rng = np.random.default_rng(seed)
    quantiles = np.sort(rng.uniform(0.01, 0.99, size=d))
    if len(np.unique(quantiles)) == d:
        M = psk.quantile_matrix(quantiles, gamma)
        np.testing.assert_array_equal(M, M.T)
        assert np.linalg.eigvalsh(M)[0] > -1e-12 * d
        assert np.diag(M) == pytest.approx(1.0)
    adjacency = np.triu(rng.uniform(size=(d, d)) * (rng.random((d, d)) < 0.5), 1)
    adjacency = adjacency + adjacency.T
    laplacian = np.diag(adjacency.sum(axis=0)) - adjacency
    M = psk.graph_matrix(adjacency, mu)
    product = M @ (mu * laplacian + (1 - mu) * np.eye(d))
    np.testing.assert_allclose(product, np.eye(d), atol=1e-9)


# --------------------------------------------------------------------------
# Metrics
# --------------------------------------------------------------------------


@examples
@given(seeds, st.integers(2, 30), st.integers(1, 5), st.integers(-100, 100))
def test_metrics_are_their_formulas(seed, n, d, exponent):
    rng = np.random.default_rng(seed)
    scale = 10.0**exponent
    Y, P, T = (scale * rng.normal(size=(n, d)) for _ in range(3))
    y = Y[:, 0]
    taus = np.linspace(0.1, 0.9, d) if d > 1 else np.array([0.3])
    e = WIDE(y)[:, None] - WIDE(P)
    expected = np.maximum(taus * e, (taus - 1) * e).mean()
    assert psk.pinball_loss(y, P, taus) == pytest.approx(float(expected), rel=1e-12)
    crossing = np.maximum(P[:, :-1] - P[:, 1:], 0).sum(axis=1).mean() if d > 1 else 0
    assert psk.crossing_loss(P) == pytest.approx(crossing, rel=1e-12)
    low, high = np.minimum(P[:, 0], T[:, 0]), np.maximum(P[:, 0], T[:, 0])
    assert psk.coverage(y, low, high) == np.mean(
        [a <= b <= c for a, b, c in zip(low, y, high, strict=True)]
    )
    errors = ((WIDE(Y) - WIDE(P)) ** 2).mean(axis=0)
    constant = ((WIDE(T).mean(axis=0) - WIDE(Y)) ** 2).mean(axis=0)
    expected = np.float64(np.sqrt(errors / constant))
    np.testing.assert_allclose(psk.rrmse(Y, P, T), expected, rtol=1e-10)
    assert psk.arrmse(Y, P, T) == pytest.approx(expected.mean(), rel=1e-10)
    expected = ((WIDE(y) - WIDE(P[:, 0])) ** 2).mean() / np.ptp(y)
    assert psk.relative_mse(y, P[:, 0]) == pytest.approx(float(expected), rel=1e-10)


# --------------------------------------------------------------------------
# Estimators
# --------------------------------------------------------------------------


def make_model(name, seed, **options):
    options = dict(random_state=seed, **options)
    return {
        "transformer": lambda: KernelSketch(n_components=6, **options),
        "huber": lambda: SketchedKernelRegressor(n_components=6, **options),
        "squared": lambda: SketchedKernelRegressor(
            n_components=6, loss="squared", sketch="nystroem", **options
        ),
        "quantiles": lambda: SketchedQuantileRegressor(n_components=6, **options),
        "classes": lambda: SketchedKernelClassifier(n_components=6, **options),
        "search": lambda: SketchedKernelRegressorCV(
            n_components=6, alphas=[1e-2], gammas=[0.5, 1.0], cv=2, **options
        ),
    }[name]()


MODELS = ["transformer", "huber", "squared", "quantiles", "classes", "search"]


@examples
@given(
    arrays(n=st.integers(8, 60), d=st.integers(1, 6), scales=False, kinds="fiu"),
    st.sampled_from(MODELS),
    st.sampled_from(["array", "coo", "csc", "int64", "zeros", "unsorted"]),
    seeds,
    threads,
)
def test_estimators_give_the_same_whatever_holds_the_numbers(
    X, name, form, seed, n_threads
):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=len(X))
    if name == "classes":
        y = np.where(np.arange(len(X)) % 2, "odd", "even")
    method = "transform" if name == "transformer" else "predict"
    kind = np.float32 if X.dtype == np.float32 else np.float64
    plain = np.ascontiguousarray(X, dtype=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = make_model(name, seed, n_threads=n_threads).fit(X, y)
        except ValueError as error:
            assert "no landmark" in str(error) or "gamma" in str(error), error
            return
        expected = getattr(model, method)(X)
        same = make_model(name, seed, n_threads=1).fit(plain, y)
        np.testing.assert_array_equal(getattr(same, method)(plain), expected)
        if form != "array" and X.dtype.str in ("<f8", "<f4"):
            points = to_sparse(X, form, rng)
            sparse = getattr(make_model(name, seed).fit(points, y), method)(points)
            if name not in ("classes", "search") and X.dtype == np.float64:
                scale = np.abs(expected).max() + 1
                error = np.abs(sparse - expected).max()
                assert error <= 1e-4 * scale or name in ("transformer", "quantiles")
    # saved and loaded, it is the same to the last bit
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.npz")
        loaded = load(f"{folder}/model.npz")
    np.testing.assert_array_equal(getattr(loaded, method)(X), expected)
    if name in ("huber", "squared"):
        K = wide_kernel("rbf", plain, model.landmarks_, model.kernel_.gamma)
        right = K @ WIDE(model.dual_coef_) + WIDE(model.intercept_)
        sizes = np.abs(K) @ np.abs(WIDE(model.dual_coef_)) + abs(model.intercept_)
        promise = 8 * PROMISED[str(expected.dtype)]
        assert (np.abs(expected - right) <= promise * sizes + 1e-30).all()


# --------------------------------------------------------------------------
# Theory
# --------------------------------------------------------------------------


@examples
@given(st.integers(1, 10**9), st.integers(1, 10**4), st.floats(1e-9, 1.0))
def test_expected_landmarks_are_their_formula(n, s, p):
    expected = n * (1 - (1 - WIDE(p)) ** s)
    found = theory.expected_landmarks(n, s, p)
    assert found == pytest.approx(float(expected), rel=1e-9)
    assert 0 < found <= n * (1 + 1e-12) and found <= s * n * p * (1 + 1e-9)
    assert 0 <= theory.isometry_failure(s, max(1, s // 10), p) <= 1


@examples
@given(seeds, st.integers(2, 60), st.integers(1, 4))
def test_the_spectrum_of_few_points_is_that_of_the_matrix(seed, n, d):
    X = np.random.default_rng(seed).normal(size=(n, d))
    gamma = 1 / d
    spectrum = theory.gram_spectrum(X, gamma=gamma)
    expected = np.linalg.eigvalsh(reference.rbf(X, X, gamma) / n)[::-1]
    np.testing.assert_allclose(spectrum.values, expected, atol=1e-10)
    # the least δ² with ψ(δ) ≤ δ²
    radius = theory.critical_radius(spectrum)

    def excess(delta2):
        return math.sqrt(np.minimum(np.maximum(expected, 0), delta2).mean()) - delta2

    assert excess(radius.delta2) <= 1e-9
    assert excess(0.999 * radius.delta2) > 0
    assert radius.d_n == min(n, 1 + np.count_nonzero(expected > radius.delta2))
