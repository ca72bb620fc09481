"""Bad input: an error that names the parameter, the value and the need."""

import numpy as np
import pytest

import pskernels as psk

X = np.random.default_rng(0).normal(size=(60, 3))
B = np.ones(60)


def with_value(value, row=17, column=2):
    changed = X.copy()
    changed[row, column] = value
    return changed


SKETCH_GRAM_ERRORS = [
    (dict(X=with_value(np.nan)), "X contains NaN in row 17, column 2"),
    (dict(X=with_value(np.inf)), "X contains inf in row 17, column 2"),
    (dict(X=with_value(-np.inf)), "X contains -inf in row 17, column 2"),
    (dict(X=np.full((5, 2), 1.7e308)), "X has values too large to be summed"),
    (dict(X=X[:0]), r"at least one point and one feature, got shape \(0, 3\)"),
    (dict(X=X[:, :0]), r"at least one point and one feature, got shape \(60, 0\)"),
    (dict(X=X[:, 0]), r"X must be 2-d.*got shape \(60,\); X.reshape\(-1, 1\)"),
    (dict(X=X[None]), r"X must be 2-d.*got shape \(1, 60, 3\)"),
    (dict(X=X.astype(object)), "X must hold real numbers, got an array of dtype obj"),
    (dict(X=X.astype(complex)), "X must hold real numbers.*complex128"),
    (dict(X=[["a", "b"]]), "X must hold real numbers"),
    (dict(s=0), "s must be at least 1, got 0"),
    (dict(s=-3), "s must be at least 1, got -3"),
    (dict(s=1.5), "s must be an integer, got 1.5"),
    (dict(s=True), "s must be an integer, got True"),
    (dict(s=None), "sketch_gram needs s"),
    (dict(p=0), r"p must be in \(0, 1\], got 0"),
    (dict(p=-0.1), r"p must be in \(0, 1\], got -0.1"),
    (dict(p=1.01), r"p must be in \(0, 1\], got 1.01"),
    (dict(p=np.nan), r"p must be in \(0, 1\], got nan"),
    (dict(gamma=0), "gamma must be positive and finite, got 0"),
    (dict(gamma=-1.0), "gamma must be positive and finite, got -1.0"),
    (dict(gamma=np.inf), "gamma must be positive and finite, got inf"),
    (dict(gamma="mean"), "gamma must be one of 'scale', 'auto', 'median', got"),
    (dict(gamma=[1.0]), r"gamma must be a real number, got \[1.0\]"),
    (dict(X=np.ones((60, 2)), gamma="median"), "median distance of X is 0"),
    (dict(kernel="sobolev"), r"Sobolev\(\) needs values that are not negative.*-2"),
    (dict(kernel="gauss"), "kernel must be one of 'rbf', .* got 'gauss'"),
    (dict(kernel=3), "kernel must be a name, a kernel object or a function, got 3"),
    (dict(kernel="linear", gamma=1.0), "kernel 'linear' has no gamma, but gamma=1.0"),
    (dict(kernel=psk.RBF(1.0), gamma=2.0), "which has its own gamma"),
    (dict(kernel="precomputed"), r"square Gram matrix.*got \(60, 3\)"),
    (dict(kind="cauchy"), "kind must be one of 'rademacher', 'gaussian', got 'cauchy'"),
    (dict(sketch=psk.Gaussian(3)), "s=5, p=0.5 and kind='rademacher' were given"),
    (dict(s=None, p=None, sketch="p-sr"), "sketch must be a distribution.*got str"),
    (
        dict(s=None, p=None, sketch=psk.Gaussian(3).draw(61)),
        "drawn for 61 points, but X has 60",
    ),
    (dict(parts=("SK", "KS")), r"parts must be some of .* got \('SK', 'KS'\)"),
    (dict(parts=()), "parts must be some of"),
    (
        dict(out=np.empty((60, 5))),
        r"out must have shape \(5, 60\).*got shape \(60, 5\)",
    ),
    (dict(out=np.empty((5, 60), "f")), "dtype float64, got .* dtype float32"),
    (dict(out=[1]), "out must be a NumPy array, got list"),
    (dict(out=np.empty((5, 60)), parts="SKSt"), "out receives S·K"),
    (dict(n_threads=0), "n_threads must be at least 1, got 0"),
    (dict(n_threads="all"), "n_threads must be an integer, got 'all'"),
    (dict(memory_limit=0), "memory_limit .* must be at least 1, got 0"),
    (dict(memory_limit=100), "memory_limit=100 bytes is too small.*at least"),
    (dict(kernel=np.dot, memory_limit=100), "memory_limit=100 bytes is too small"),
    (dict(random_state="a"), "random_state must be None, an integer.*got 'a'"),
    (dict(random_state=-1), "random_state must be at least 0, got -1"),
    (dict(s=psk.Gaussian(3)), "pass a sketch as sketch="),
    (dict(p=20), r"p must be in \(0, 1\], got 20; for 20 non-zeros in a row, 20/n"),
    (dict(n_threads=100_000), "n_threads must be at most 1024, got 100000"),
    (dict(kernel=psk.RBF), r"kernel must be an object, RBF\(\), not the class"),
    (dict(X=np.ma.masked_equal(np.ones((5, 2)), 1)), "X is a masked array"),
    (dict(parts=None), "parts must be some of"),
    (
        dict(s=None, p=None, sketch=psk.Gaussian(3).draw(60), random_state=0),
        "random_state=0 was given beside a sketch that is drawn",
    ),
    (
        dict(s=None, p=None, sketch=psk.PSparsified(9, 1e-4).draw_block(60, 0)),
        "the sketch has no landmark",
    ),
    (
        dict(X=X.astype("f"), gamma=1e80),
        "points overflow float32 when they are scaled for RBF",
    ),
    (dict(X=1e300 * X, gamma="scale"), "variance of X, which overflows float64"),
    (dict(kernel=lambda A, B: 1j * A @ B.T), "kernel function returns must hold real"),
]


@pytest.mark.parametrize("arguments, message", SKETCH_GRAM_ERRORS)
def test_sketch_gram_names_what_is_wrong(arguments, message):
    arguments = {"X": X, "s": 5, "p": 0.5, **arguments}
    with pytest.raises((ValueError, TypeError), match=message):
        psk.sketch_gram(**arguments)


def test_read_only_out_is_named():
    out = np.empty((5, 60))
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out must be writeable"):
        psk.sketch_gram(X, 5, 0.5, out=out)


def test_out_that_overlaps_itself_is_refused():
    """It was filled with wrong numbers, without a word."""
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(600), (5, 60), (8, 8))
    with pytest.raises(ValueError, match="a place for each number, got strides"):
        psk.sketch_gram(X, 5, 0.5, out=overlapping)
    for out in (np.empty((60, 10)).T[::2], np.empty((5, 120))[::-1, ::2]):
        SK = psk.sketch_gram(X, 5, 0.5, out=out, random_state=0).SK
        assert SK is out
        np.testing.assert_array_equal(SK, psk.sketch_gram(X, 5, 0.5, random_state=0).SK)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(Y=X[:, :2]), "same number of features, got 3 and 2"),
        (dict(Y=with_value(np.nan)), "Y contains NaN in row 17, column 2"),
        (dict(X=with_value(np.inf)), "X contains inf in row 17, column 2"),
        (dict(B=B[:10]), r"B must have shape \(60,\) or \(60, c\), got \(10,\)"),
        (dict(B=np.ones((60, 2, 2))), r"B must have shape .* got \(60, 2, 2\)"),
        (dict(B=np.ones((60, 0))), r"B must have shape .* got \(60, 0\)"),
        (dict(B=np.r_[np.nan, B[1:]]), "B contains NaN in row 0, column 0"),
        (dict(B=B.astype(complex)), "B must hold real numbers"),
        (dict(out=np.empty((60, 1))), r"out must have shape \(60,\)"),
        (dict(kernel="precomputed"), "Y must be None for a precomputed kernel"),
        (dict(X=-np.abs(X), Y=np.abs(X), kernel="sobolev"), "but X has a minimum"),
        (dict(Y=X.copy(), gamma="scale"), "gamma='scale' is ambiguous for two sets"),
        (dict(out=B), "out must not share memory with B"),
        (dict(X=X[:, :1], Y=X[:, :1], out=X[:, 0]), "out must not share memory with X"),
    ],
)
def test_kernel_matmul_names_what_is_wrong(arguments, message):
    arguments = {"X": X, "Y": X, "B": B, **arguments}
    if arguments.get("kernel", "rbf") == "rbf":
        arguments.setdefault("gamma", 1.0)
    with pytest.raises((ValueError, TypeError), match=message):
        psk.kernel_matmul(**arguments)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: psk.Matern(1.0, nu=1.0), "nu must be 0.5, 1.5 or 2.5, got 1.0"),
        (lambda: psk.Polynomial(degree=0), "degree must be at least 1, got 0"),
        (lambda: psk.Polynomial(degree=2.5), "degree must be an integer, got 2.5"),
        (lambda: psk.Polynomial(degree=2**40), "degree must be at most 1000"),
        (lambda: psk.Polynomial(coef0="a"), "coef0 must be finite, got 'a'"),
        (lambda: psk.Matern(nu=[1]), r"nu must be 0.5, 1.5 or 2.5, got \[1\]"),
        (lambda: psk.Polynomial(coef0=np.nan), "coef0 must be finite, got nan"),
        (
            lambda: psk.RBF("mean"),
            "gamma must be one of 'scale', 'auto', 'median', got",
        ),
    ],
)
def test_kernels_name_what_is_wrong(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("sketch", [psk.PSparsified(5, 0.2), psk.Gaussian(40)])
def test_the_memory_limit_that_is_named_suffices(sketch, order, n_threads):
    X = np.random.default_rng(0).normal(size=(2000, 30)).astype(float, order=order)
    arguments = dict(X=X, sketch=sketch, random_state=0, n_threads=n_threads)
    with pytest.raises(ValueError) as error:
        psk.sketch_gram(**arguments, memory_limit=100)
    named = int(str(error.value).split("at least ")[1].split()[0])
    with pytest.raises(ValueError, match="too small"):
        psk.sketch_gram(**arguments, memory_limit=named - 1)
    free = psk.sketch_gram(**arguments)
    for limit in (named, 3 * named // 2, 3 * named):
        limited = psk.sketch_gram(**arguments, memory_limit=limit)
        np.testing.assert_allclose(limited.SK, free.SK, rtol=1e-10, atol=1e-12)


def test_overflow_warns_with_a_figure():
    large = np.full((20, 2), 1e15, np.float32)
    with pytest.warns(
        RuntimeWarning, match="60 of 60 values of S·K overflowed float32"
    ):
        psk.sketch_gram(
            large, sketch=psk.SubSampling(3), kernel=psk.Polynomial(1.0), parts="SK"
        )


@pytest.mark.parametrize("parts", ["SK", "SKSt"])
def test_overflow_of_every_part_warns(parts):
    large = np.full((20, 2), 1e15, np.float32)
    with pytest.warns(RuntimeWarning, match="overflowed float32; use float64"):
        psk.sketch_gram(
            large, sketch=psk.SubSampling(3), kernel=psk.Polynomial(1.0), parts=parts
        )


def test_overflow_of_a_product_warns():
    ones = np.ones((20, 2), np.float32)
    with pytest.warns(RuntimeWarning, match="20 of 20 values of K·B overflowed"):
        psk.kernel_matmul(ones, ones, np.full(20, 3e38, np.float32))


def test_arguments_are_checked_before_any_work():
    def kernel(A, B):
        raise AssertionError("the kernel was evaluated")

    with pytest.raises(ValueError, match="out must have shape"):
        psk.sketch_gram(X, 5, 0.5, kernel=kernel, out=np.empty((2, 2)))
