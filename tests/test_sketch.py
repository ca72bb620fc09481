"""Sketches: the generator, the parts, the laws, the algebra.

Tests of laws use fixed seeds, so that they pass or fail for good; the comments
give the probability that a right implementation fails for a random seed.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

import pskernels as psk
from pskernels import _sketch
from pskernels.sketches import philox_key

N = 500

DISTRIBUTIONS = {
    "p-sr": psk.PSparsified(20, p=0.05),
    "p-sg": psk.PSparsified(20, p=0.05, kind="gaussian"),
    "p-sr dense": psk.PSparsified(20, p=0.7),
    "gaussian": psk.Gaussian(20),
    "subsampling": psk.SubSampling(20),
    "weighted": psk.SubSampling(
        20, probabilities=np.arange(1, N + 1) / (N * (N + 1) / 2)
    ),
    "accumulation": psk.Accumulation(20, m=7),
    "countsketch": psk.CountSketch(20),
    "ros": psk.ROS(20),
}


@pytest.fixture(params=DISTRIBUTIONS, ids=str)
def distribution(request):
    return DISTRIBUTIONS[request.param]


# ---- the generator ----


def test_philox_gives_the_known_answers():
    key = np.array([0x0123456789ABCDEF, 0xFEDCBA9876543210], np.uint64)
    counter = np.array([2**64 - 1, 5, 0, 7], np.uint64)
    words = np.empty(4, np.uint64)
    _sketch.philox(counter, key, words)
    # NumPy increments its counter before each block
    numpy_counter = np.array([2**64 - 2, 5, 0, 7], np.uint64)
    expected = np.random.Philox(key=key, counter=numpy_counter).random_raw(4)
    np.testing.assert_array_equal(words, expected)


def test_random_state_takes_what_numpy_users_have():
    for same in (
        lambda: 7,
        lambda: np.int64(7),
        lambda: np.random.default_rng(7),
        lambda: np.random.RandomState(7),
    ):
        np.testing.assert_array_equal(philox_key(same()), philox_key(same()))
    assert (philox_key(None) != philox_key(None)).any()
    generator = np.random.default_rng(7)
    assert (philox_key(generator) != philox_key(generator)).any()


def test_random_state_of_another_type_is_an_error():
    with pytest.raises(TypeError, match="random_state must be None, an integer"):
        psk.Gaussian(2).draw(3, random_state="a")


# The first entries of small sketches, before scaling.  They must never change: a
# seed that people wrote down would mean another sketch.
FROZEN = {
    "p-sr": (
        psk.PSparsified(4, p=0.01),
        [(0, 37, 1.0), (1, 40, 1.0), (2, 160, 1.0), (2, 166, -1.0)],
    ),
    "p-sg": (
        psk.PSparsified(4, p=0.01, kind="gaussian"),
        [
            (0, 37, -0.97725070356),
            (1, 40, 0.8436518751),
            (2, 160, 0.71300093563),
            (2, 166, 1.2958224755),
        ],
    ),
    "subsampling": (
        psk.SubSampling(4),
        [(0, 40, 1.0), (1, 4, 1.0), (2, 281, 1.0), (3, 77, 1.0)],
    ),
    "accumulation": (
        psk.Accumulation(4, m=2),
        [(0, 4, -1.0), (0, 40, 1.0), (1, 77, 1.0), (1, 281, 1.0)],
    ),
    "countsketch": (
        psk.CountSketch(4),
        [(0, 0, 1.0), (0, 2, 1.0), (0, 14, 1.0), (0, 18, 1.0)],
    ),
    "ros": (
        psk.ROS(4),
        [
            (0, 0, 0.079865417164),
            (0, 1, -0.066055960982),
            (0, 2, 0.040824829046),
            (0, 3, 0.0085347132868),
        ],
    ),
}


@pytest.mark.parametrize("name", FROZEN)
def test_seeds_keep_their_meaning(name):
    distribution, entries = FROZEN[name]
    sketch = distribution.draw(300, random_state=0)
    S = sketch.to_dense() / sketch.scale
    for row, column, value in entries:
        assert S[row, column] == pytest.approx(value, rel=1e-9)
    first = np.argwhere(S)[: len(entries)]
    np.testing.assert_array_equal(first, [entry[:2] for entry in entries])


# ---- one matrix, in parts ----


def assert_same_sketch(a, b):
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_array_equal(a.to_dense(), b.to_dense())


def test_the_same_seed_gives_the_same_sketch(distribution):
    a, b, c = (distribution.draw(N, random_state=seed) for seed in (3, 3, 4))
    assert_same_sketch(a, b)
    assert not np.array_equal(a.to_dense(), c.to_dense())


BLOCKWISE = {
    "p-sr": psk.PSparsified(9, p=1e-3),
    "p-sg": psk.PSparsified(9, p=1e-3, kind="gaussian"),
    "dense": psk.PSparsified(9, p=0.6),
    "gaussian": psk.Gaussian(9),
    "countsketch": psk.CountSketch(9),
}


@pytest.mark.parametrize("name", BLOCKWISE)
def test_any_block_can_be_drawn_alone(name):
    distribution = BLOCKWISE[name]
    n = 2 * _sketch.BLOCK + 100  # the streams of two whole blocks and a short one
    whole = distribution.draw(n, random_state=1).to_dense()
    edges = (0, 1, 1000, _sketch.BLOCK - 1, _sketch.BLOCK, _sketch.BLOCK + 1, n)
    for rows in ((0, 9), (2, 5), (8, 9)):
        for columns in zip(edges[:-1], edges[1:], strict=True):
            block = distribution.draw_block(n, 1, rows=rows, columns=columns)
            np.testing.assert_array_equal(
                block.to_dense(), whole[slice(*rows), slice(*columns)]
            )


@pytest.mark.parametrize("kind", psk.PSparsified.KINDS)
def test_drawing_does_not_depend_on_threads(kind):
    distribution = psk.PSparsified(33, p=1e-3, kind=kind)
    drawn = [
        distribution.draw_block(100_000, 5, n_threads=n_threads)
        for n_threads in (1, 2, 3, 4)
    ]
    for other in drawn[1:]:
        assert_same_sketch(drawn[0], other)


@pytest.mark.parametrize("p", [0.001, 0.5, 1.0])
def test_more_rows_or_columns_extend_a_sketch(p):
    n = _sketch.BLOCK + 50
    small = psk.PSparsified(4, p=p, kind="gaussian").draw(n, random_state=2)
    large = psk.PSparsified(6, p=p, kind="gaussian").draw(n + 777, random_state=2)
    np.testing.assert_allclose(
        small.to_dense() / small.scale,
        large.to_dense()[:4, :n] / large.scale,
        rtol=1e-15,
    )


@pytest.mark.parametrize("distribution", [psk.SubSampling, psk.Accumulation])
def test_more_rows_extend_a_subsampling(distribution):
    small = distribution(5).draw(100, random_state=0)
    large = distribution(50).draw(100, random_state=0)
    np.testing.assert_allclose(
        small.to_dense() / small.scale, large.to_dense()[:5] / large.scale
    )


def test_positions_past_two_to_the_31():
    n = 2**33 + 12345  # columns alone need 64 bits, and s·n is 2^35
    p = 1e-7
    sketch = psk.PSparsified(4, p=p).draw(n, random_state=0)
    expected = 4 * n * p
    # Poisson(3436): within 6 standard deviations but for a chance of 2e-9
    assert abs(sketch.weights.nnz - expected) < 6 * np.sqrt(expected)
    assert sketch.indices.dtype == np.int64
    assert (np.diff(sketch.indices) > 0).all()
    assert sketch.indices[-1] < n
    # uniform over the columns: Kolmogorov and Smirnov, a chance of 1e-6
    assert stats.kstest(sketch.indices / n, "uniform").pvalue > 1e-6


# ---- the laws ----


def test_sketch_is_an_isometry_on_average(distribution):
    """E[SᵀS] = I, by the mean of ‖S·a‖² over many sketches."""
    n_draws = 700
    a = np.random.default_rng(0).normal(size=N)
    a /= np.linalg.norm(a)
    squares = [
        np.sum((distribution.draw(N, random_state=seed) @ a) ** 2)
        for seed in range(n_draws)
    ]
    # the mean is normal by the central limit theorem: 5 standard errors, 6e-7
    error = np.std(squares) / np.sqrt(n_draws)
    assert abs(np.mean(squares) - 1) < 5 * error
    assert error < 0.05  # or the test could not fail


@pytest.mark.parametrize("kind", psk.PSparsified.KINDS)
def test_values_have_the_right_moments(kind):
    s, n, p = 50, 100_000, 0.02
    sketch = psk.PSparsified(s, p=p, kind=kind).draw(n, random_state=0)
    values = sketch.weights.data
    assert sketch.scale == 1 / np.sqrt(s * p)
    # nnz ~ Binomial(5e6, 0.02): 6 standard deviations, a chance of 2e-9
    assert abs(len(values) - s * n * p) < 6 * np.sqrt(s * n * p * (1 - p))
    if kind == "rademacher":
        assert set(np.unique(values)) == {-1.0, 1.0}
        # a sum of 1e5 signs: 6 standard deviations, 2e-9
        assert abs(values.sum()) < 6 * np.sqrt(len(values))
    else:
        # Kolmogorov and Smirnov at 1e-6
        assert stats.kstest(values, "norm").pvalue > 1e-6


def test_gaps_are_geometric():
    p = 0.01
    sketch = psk.PSparsified(1, p=p).draw(3_000_000, random_state=0)
    gaps = np.diff(sketch.indices) - 1
    bins = np.arange(0, 500, 10)
    observed = np.histogram(gaps, bins=np.append(bins, np.inf))[0]
    tail = (1 - p) ** np.append(bins, np.inf)
    expected = len(gaps) * (tail[:-1] - tail[1:])
    assert expected.min() > 5
    # chi-square at 1e-6
    assert (
        stats.chisquare(observed, expected * len(gaps) / expected.sum()).pvalue > 1e-6
    )


def test_a_column_is_null_with_the_right_probability():
    s, n, p = 30, 200_000, 0.02
    sketch = psk.PSparsified(s, p=p).draw(n, random_state=0)
    null = (1 - p) ** s
    # n - m ~ Binomial(n, null): 6 standard deviations, a chance of 2e-9
    n_null = n - len(sketch.indices)
    assert abs(n_null - n * null) < 6 * np.sqrt(n * null * (1 - null))


def test_entries_do_not_correlate_across_rows_and_blocks():
    n = 4 * _sketch.BLOCK
    S = psk.PSparsified(4, p=0.5).draw(n, random_state=0).to_dense()
    parts = S.reshape(4 * 4, _sketch.BLOCK)  # 16 streams
    correlation = np.corrcoef(parts) - np.eye(16)
    # each of 120 is N(0, 1/65536): 6 standard deviations, 120 · 2e-9
    assert np.abs(correlation).max() < 6 / np.sqrt(_sketch.BLOCK)


def test_subsampling_is_uniform():
    s, n, n_draws = 5, 20, 4000
    counts = np.zeros(n)
    for seed in range(n_draws):
        sketch = psk.SubSampling(s).draw(n, random_state=seed)
        assert len(sketch.indices) == s  # without replacement
        counts[sketch.indices] += 1
    # chi-square at 1e-6; drawing without replacement only shrinks the statistic
    assert stats.chisquare(counts).pvalue > 1e-6


def test_subsampling_of_all_points_takes_each_once():
    sketch = psk.SubSampling(50).draw(50, random_state=0)
    np.testing.assert_array_equal(sketch.indices, np.arange(50))


def test_weighted_subsampling_follows_its_probabilities():
    q = np.array([0.5, 0.3, 0.2, 0.0])
    n_draws = 20_000
    sketch = psk.SubSampling(n_draws, probabilities=q).draw(4, random_state=0)
    counts = np.bincount(sketch.weights.tocoo().col, minlength=3)
    assert sketch.indices.tolist() == [0, 1, 2]
    # chi-square at 1e-6
    assert stats.chisquare(counts, n_draws * q[:3]).pvalue > 1e-6


def test_countsketch_has_one_sign_in_each_column():
    sketch = psk.CountSketch(10).draw(5000, random_state=0)
    S = sketch.to_dense()
    assert sketch.scale == 1
    np.testing.assert_array_equal(np.abs(S).sum(axis=0), 1)
    np.testing.assert_array_equal((S != 0).sum(axis=0), 1)
    # rows are uniform and signs fair: chi-square at 1e-6
    assert stats.chisquare((S != 0).sum(axis=1)).pvalue > 1e-6
    assert stats.chisquare([(S == 1).sum(), (S == -1).sum()]).pvalue > 1e-6


def test_accumulation_adds_signed_points():
    s, m, n = 6, 4, 1000
    S = psk.Accumulation(s, m=m).draw(n, random_state=0).to_dense()
    unit = np.sqrt(n / (s * m))
    np.testing.assert_allclose(np.abs(S).sum(axis=1), m * unit)  # no point twice here
    np.testing.assert_allclose(np.unique(np.abs(S)), [0, unit])


@pytest.mark.parametrize("transform, n", [("cosine", 60), ("hadamard", 64)])
def test_rows_of_ros_are_orthogonal(transform, n):
    s = 11
    S = psk.ROS(s, transform).draw(n, random_state=0).to_dense()
    np.testing.assert_allclose(S @ S.T, n / s * np.eye(s), atol=1e-12)


def test_ros_is_the_cosine_transform():
    from scipy.fft import dct

    n = 37
    S = psk.ROS(n).draw(n, random_state=0).to_dense()
    H = dct(np.eye(n), axis=0, norm="ortho")
    # |S| and |H| have the same rows in another order; signs act on columns
    np.testing.assert_allclose(
        np.sort(np.abs(S), axis=0), np.sort(np.abs(H), axis=0), atol=1e-12
    )


# ---- the algebra ----


def test_products_are_those_of_the_dense_matrix(distribution, rng):
    sketch = distribution.draw(N, random_state=0)
    S = sketch.to_dense()
    A = rng.normal(size=(N, 4))
    np.testing.assert_allclose(sketch @ A, S @ A, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sketch @ A[:, 0], S @ A[:, 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(A.T @ sketch.T, A.T @ S.T, rtol=1e-12, atol=1e-12)
    B = rng.normal(size=(20, 3))
    np.testing.assert_allclose(sketch.T @ B, S.T @ B, rtol=1e-12, atol=1e-12)
    assert sketch.T.shape == (N, 20)
    assert sketch.T.T is sketch
    assert (sketch @ A.astype(np.float32)).dtype == np.float32


def test_decomposition_is_the_matrix(distribution):
    sketch = distribution.draw(N, random_state=0)
    weights = sketch.weights if sketch.is_dense else sketch.weights.toarray()
    S = np.zeros(sketch.shape)
    S[:, sketch.indices] = sketch.scale * weights
    np.testing.assert_array_equal(S, sketch.to_dense())
    np.testing.assert_array_equal(S, sketch.to_scipy().toarray())
    assert isinstance(sketch.to_scipy(), sp.csc_array)
    assert (np.diff(sketch.indices) > 0).all()
    assert (weights != 0).any(axis=0).all()  # no landmark without a weight


def test_products_of_the_wrong_size_are_errors(rng):
    sketch = psk.PSparsified(5, p=0.5).draw(30, random_state=0)
    with pytest.raises(ValueError, match="has 30 columns, but A has 31 rows"):
        sketch @ np.ones((31, 2))
    with pytest.raises(ValueError, match="has 5 rows, but A has 6 rows"):
        sketch.T @ np.ones((6, 2))


def test_default_p_expects_twenty_non_zeros_in_a_row():
    sketch = psk.PSparsified(100).draw(10_000, random_state=0)
    # Binomial(1e6, 0.002): 6 standard deviations
    assert abs(sketch.weights.nnz - 2000) < 6 * np.sqrt(2000)
    assert psk.PSparsified(3).draw(10, random_state=0).is_dense  # p = 1


def test_sketches_survive_pickling(distribution):
    import pickle

    sketch = distribution.draw(N, random_state=0)
    assert_same_sketch(sketch, pickle.loads(pickle.dumps(sketch)))


# ---- bad input ----


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: psk.PSparsified(0), "s must be at least 1, got 0"),
        (lambda: psk.PSparsified(2.5), "s must be an integer, got 2.5"),
        (lambda: psk.PSparsified(2, p=0.0), r"p must be in \(0, 1\], got 0.0"),
        (lambda: psk.PSparsified(2, p=1.5), r"p must be in \(0, 1\], got 1.5"),
        (lambda: psk.PSparsified(2, p=np.nan), r"p must be in \(0, 1\], got nan"),
        (lambda: psk.PSparsified(2, p="a"), "p must be a real number, got 'a'"),
        (
            lambda: psk.PSparsified(2, kind="cauchy"),
            "kind must be one of 'rademacher', 'gaussian', got 'cauchy'",
        ),
        (lambda: psk.Accumulation(2, m=0), "m must be at least 1, got 0"),
        (lambda: psk.ROS(2, "fourier"), "transform must be one of 'cosine'"),
        (lambda: psk.ROS(2, "hadamard").draw(12), "a power of 2, got n=12"),
        (lambda: psk.SubSampling(5).draw(4), "s=5 points cannot be chosen out of n=4"),
        (lambda: psk.SubSampling(indices=[1, 1]), "indices must all be different"),
        (
            lambda: psk.SubSampling(indices=[0, 9]).draw(9),
            r"indices must be in \[0, 9\)",
        ),
        (lambda: psk.SubSampling(3, indices=[0, 1]), "s=3, but there are 2 indices"),
        (lambda: psk.SubSampling(indices=[0.5]), "1-d array of integers"),
        (
            lambda: psk.SubSampling(2, probabilities=[0.5, 0.2]).draw(2),
            "must add up to 1, got minimum 0.2 and sum 0.7",
        ),
        (
            lambda: psk.SubSampling(2, probabilities=[1.0]).draw(2),
            r"probabilities must have shape \(2,\), got \(1,\)",
        ),
        (
            lambda: psk.SubSampling(indices=[0], probabilities=[1.0]),
            "either indices or probabilities",
        ),
        (lambda: psk.Gaussian(2).draw(0), "n must be at least 1, got 0"),
        (
            lambda: psk.PSparsified(2, p=1e-9).draw(10, random_state=0),
            "no landmark was drawn: s=2, n=10 and p=1e-09 give 2e-08 non-zeros",
        ),
        (
            lambda: psk.Gaussian(2).draw_block(10, 0, rows=(0, 3)),
            r"rows must be a part of \[0, 2\), got \(0, 3\)",
        ),
        (
            lambda: psk.Gaussian(2).draw_block(10, 0, rows=(0.5, 2)),
            "rows must be an integer, got 0.5",
        ),
        (
            lambda: psk.Gaussian(2).draw_block(10, np.random.default_rng(0)),
            "random_state must be an integer",
        ),
        (
            lambda: psk.Sketch((2, 9), [0, 1], np.ones((2, 3)), 1.0),
            r"weights must have shape \(2, 2\).*got \(2, 3\)",
        ),
        (
            lambda: psk.Sketch((2, 9), [3, 1], np.ones((2, 2)), 1.0),
            r"indices must increase and lie in \[0, 9\)",
        ),
        (
            lambda: psk.Sketch((2, 9), [3, 9], np.ones((2, 2)), 1.0),
            r"indices must increase and lie in \[0, 9\)",
        ),
        (
            lambda: psk.Gaussian(2).draw(3) @ np.ones(3, complex),
            "A must hold real numbers",
        ),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def bad_sketches():
    values, rows = np.ones(3), np.array([0, 1, 2])
    weights = sp.csc_array((values, rows, np.array([0, 1, 2, 3])), shape=(3, 3))
    outside = weights.copy()
    outside.indices = np.array([0, 1, 10**6], dtype=np.int32)
    falling = weights.copy()
    falling.indptr = np.array([0, 2**30, 2**30, -1], dtype=np.int32)
    good = [1, 5, 7]
    return [
        ((3, 400), good, outside, "indices of weights.*got values from 0 to 1000000"),
        ((3, 400), good, falling, "offsets"),
        ((3, 400), good, np.full((3, 3), np.nan), "finite"),
        ((3, 400), good, np.ones((3, 2)), r"weights must have shape \(3, 3\)"),
        ((3, 400), [5, 1, 7], weights, "increase"),
        ((3, 400), [1, 5, 400], weights, "increase and lie in"),
        ((3, 400), [-1, 5, 7], weights, "increase and lie in"),
        ((3, 400), np.array([1, 5, 2**64 - 1], np.uint64), weights, "lie in"),
        ((3, 400), [1.0, 5.0, 7.0], weights, "1-d array of integers"),
        ((3.0, 400), good, weights, "shape must be an integer"),
        (3, good, weights, "shape must be a tuple"),
    ]


@pytest.mark.parametrize("shape, indices, weights, match", bad_sketches())
def test_a_sketch_that_compiled_code_could_not_trust(shape, indices, weights, match):
    with pytest.raises((ValueError, TypeError), match=match):
        psk.Sketch(shape, indices, weights)


def test_a_sketch_that_was_changed_after_it_was_checked(rng):
    X = rng.normal(size=(400, 2))
    sketch = psk.PSparsified(3, 0.05).draw(400, random_state=0)
    sketch.weights.indices[0] = 10**6
    with pytest.raises(ValueError, match="indices of weights"):
        psk.sketch_gram(X, sketch=sketch)
    chosen = psk.SubSampling(3).draw(400, random_state=0)
    chosen.weights.indices[0] = 100
    with pytest.raises(ValueError, match="indices of weights"):
        psk.FeatureMap(gamma=0.5, sketch=chosen).fit(X)
    feature_map = psk.FeatureMap(gamma=0.5, random_state=0).fit(X)
    feature_map._center = feature_map._center[:1]
    with pytest.raises(ValueError, match="center"):
        feature_map.predict(X, np.ones(feature_map.rank_))
    feature_map.fit(X).whitening_ = np.ones((3, feature_map.rank_))
    with pytest.raises(ValueError, match="must be a triangle"):
        feature_map.transform(X)
    shape = feature_map.fit(X).whitening_.shape
    feature_map.whitening_ = rng.normal(size=shape)  # as in a forged file
    with pytest.raises(ValueError, match="must be a triangle"):
        feature_map.check_learnt()


@pytest.mark.parametrize("n", [2**38 + 1, 10**15, 2**63, 2**200])
@pytest.mark.parametrize("sketch", [psk.PSparsified(2), psk.SubSampling(2)], ids=str)
def test_more_points_than_can_be_drawn_are_refused(sketch, n):
    with pytest.raises(ValueError, match=f"n must be at most 274877906944, got {n}"):
        sketch.draw(n)


def test_a_tiny_p_draws_nothing_and_says_so():
    with pytest.raises(ValueError, match="no landmark was drawn"):
        psk.PSparsified(3, 5e-324).draw(100, random_state=0)


@pytest.mark.parametrize("p", [0.001, 0.2, 0.5, 1.0])
def test_long_rows_are_cut_without_a_trace(p, monkeypatch):
    n = 3 * _sketch.BLOCK + 17
    sketch = psk.PSparsified(3, p, "gaussian")
    whole = sketch.draw(n, random_state=0)
    block = sketch.draw_block(n, 0, rows=(1, 3), columns=(70_000, 190_000))
    monkeypatch.setattr("pskernels.sketches.ENTRIES_OF_A_ROW", 10)
    cut = sketch.draw(n, random_state=0)
    np.testing.assert_array_equal(cut.indices, whole.indices)
    np.testing.assert_array_equal(cut.to_scipy().data, whole.to_scipy().data)
    cut_block = sketch.draw_block(n, 0, rows=(1, 3), columns=(70_000, 190_000))
    assert (cut_block.to_scipy() != block.to_scipy()).nnz == 0


ONE_THREAD = """
import sys, threading
import numpy as np, pskernels as psk

def n_threads():
    return len(__import__("os").listdir("/proc/self/task"))

X = np.random.default_rng(0).normal(size=(20_000, 3))
psk.Gaussian(2).draw(10, random_state=0, n_threads=1)
before = n_threads()
psk.Gaussian(50).draw(20_000, random_state=0, n_threads=1)
psk.sketch_gram(X, 100, 0.1, n_threads=1)
psk.FeatureMap(sketch=psk.PSparsified(100, 0.1), n_threads=1).fit(X)
assert n_threads() == before, (before, n_threads())
print("one")
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
def test_one_thread_is_one_thread_for_drawing_too():
    command = [sys.executable, "-P", "-c", ONE_THREAD]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert printed.stdout.strip() == "one", printed.stderr
