"""The theory as tools, and the theory itself, against dense NumPy and simulation."""

import math
import tracemalloc
import warnings

import numpy as np
import pytest
import reference
from conftest import only_long
from scipy.optimize import brentq
from scipy.stats import norm

import pskernels as psk
from pskernels import theory
from pskernels.theory import advice

SPECTRA = {
    "quadratic": np.arange(1.0, 501.0) ** -2,
    "exponential": np.exp(-np.arange(300.0)),
    "flat": np.full(50, 0.02),
    "rank one": np.r_[1.0, np.zeros(99)],
    "one": np.array([0.3]),
}


def gram(X, gamma):
    return reference.rbf(X, X, gamma)


def radius_by_search(mu, n):
    """The crossing of ψ(δ)² and δ⁴, which is unique."""

    def gap(t):
        return np.minimum(t, mu).sum() / n - t**2

    return brentq(gap, 1e-12, 10 + mu.sum(), xtol=1e-15)


class TestCriticalRadius:
    @pytest.mark.parametrize("name", SPECTRA)
    @pytest.mark.parametrize("points", [1, 3, 100])
    def test_is_the_crossing(self, name, points):
        mu = SPECTRA[name]
        n = points * len(mu)
        radius = theory.critical_radius(mu, n)
        assert radius.delta2 == pytest.approx(radius_by_search(mu, n), rel=1e-9)
        below = np.flatnonzero(mu <= radius.delta2)
        assert radius.d_n == (below[0] + 1 if len(below) else min(n, len(mu) + 1))
        assert radius.delta2_bounds == (radius.delta2,) * 2
        assert radius.d_n_bounds == (radius.d_n,) * 2

    def test_order_and_missing_zeros_do_not_matter(self, rng):
        mu = SPECTRA["quadratic"]
        expected = theory.critical_radius(mu)
        assert theory.critical_radius(rng.permutation(mu)) == expected
        assert theory.critical_radius(np.r_[mu, np.zeros(9)], len(mu)) == expected

    def test_bounds_hold_whatever_is_missing(self, rng):
        """Values lowered at random, by a sum that is known."""
        mu = SPECTRA["quadratic"]
        exact = theory.critical_radius(mu)
        for size in (1e-3, 0.1, 0.9):
            values = np.sort(mu * (1 - size * rng.uniform(size=len(mu))))[::-1][:200]
            spectrum = theory.Spectrum(values, mu.sum() - values.sum(), len(mu))
            low, high = theory.critical_radius(spectrum).delta2_bounds
            assert low <= exact.delta2 <= high
            least, most = theory.critical_radius(spectrum).d_n_bounds
            assert least <= exact.d_n <= most

    def test_most_that_a_residual_can_raise(self):
        """d_n's upper bound is reached: values 0.05 short of t, and a tail of zeros."""
        spectrum = theory.Spectrum(np.array([1.0, 0.1]), 0.5, 100)
        low = theory.critical_radius(spectrum).delta2_bounds[0]
        most = theory.critical_radius(spectrum).d_n_bounds[1]
        # all of the residual goes to eigenvalues that are just above `low`
        assert most == 1 + 2 + int((0.5 - max(0.0, low - 0.1)) / low)

    @pytest.mark.parametrize(
        "spectrum, message",
        [
            ([], "not empty"),
            ([[1.0]], "1-d"),
            ([1.0, np.nan], "spectrum"),
            ([1.0, -0.5], "must be positive semidefinite"),
        ],
    )
    def test_bad_spectra(self, spectrum, message):
        with pytest.raises(ValueError, match=message):
            theory.critical_radius(spectrum)

    def test_more_eigenvalues_than_points(self):
        with pytest.raises(ValueError, match="10 eigenvalues that are not 0"):
            theory.critical_radius(np.ones(10), 3)

    def test_estimates_for_more_points_have_no_bounds(self, rng):
        spectrum = theory.gram_spectrum(rng.normal(size=(300, 2)), gamma=0.5)
        radius = theory.critical_radius(spectrum, 5000)
        assert radius.delta2 == pytest.approx(radius_by_search(spectrum.values, 5000))
        assert np.isnan(radius.delta2_bounds).all()
        assert radius.d_n_bounds == (1, 5000)


class TestGramSpectrum:
    def test_exact(self, rng):
        X = rng.normal(size=(150, 3))
        spectrum = theory.gram_spectrum(X, gamma=0.3)
        expected = np.linalg.eigvalsh(gram(X, 0.3) / 150)[::-1]
        np.testing.assert_allclose(spectrum.values, expected, atol=1e-14)
        assert spectrum.residual == 0

    @pytest.mark.parametrize(
        "options",
        [
            dict(kernel="rbf", gamma=0.3),
            dict(kernel="laplacian", gamma=0.3),
            dict(kernel="polynomial", gamma=0.3),
            dict(kernel="sobolev"),
        ],
        ids=lambda options: options["kernel"],
    )
    def test_sketch_bounds_the_exact_one(self, rng, options):
        X = rng.uniform(size=(1200, 3))
        exact = theory.gram_spectrum(X, **options)
        sketched = theory.gram_spectrum(X, exact=False, random_state=0, **options)
        r = len(sketched.values)
        assert r < 1200
        assert (sketched.values <= exact.values[:r] + 1e-12).all()
        missing = exact.values.sum() - sketched.values.sum()
        assert sketched.residual == pytest.approx(missing, abs=1e-10)
        truth, estimate = map(theory.critical_radius, (exact, sketched))
        low, high = estimate.delta2_bounds
        assert low * (1 - 1e-9) <= truth.delta2 <= high * (1 + 1e-9)
        assert high - low <= 0.05 * high
        assert estimate.d_n_bounds[0] <= truth.d_n <= estimate.d_n_bounds[1]

    def test_sparse_float32_and_precomputed(self, rng):
        import scipy.sparse as sp

        X = rng.normal(size=(300, 4)).astype(np.float32)
        expected = theory.gram_spectrum(X.astype(np.float64), gamma=0.2).values
        for given in (X, sp.csr_array(X)):
            values = theory.gram_spectrum(given, gamma=0.2).values
            np.testing.assert_allclose(values, expected, atol=1e-12)
        K = gram(X.astype(np.float64), 0.2)
        for exact in (True, False):
            spectrum = theory.gram_spectrum(
                K, kernel="precomputed", exact=exact, random_state=0
            )
            r = min(8, len(spectrum.values))
            np.testing.assert_allclose(spectrum.values[:r], expected[:r], rtol=0.05)

    @pytest.mark.parametrize("exact", [True, False])
    def test_does_not_depend_on_n_threads(self, rng, exact):
        X = rng.normal(size=(700, 3))
        one, two = (
            theory.gram_spectrum(
                X, gamma=0.2, exact=exact, random_state=0, n_threads=n_threads
            )
            for n_threads in (1, 2)
        )
        np.testing.assert_array_equal(one.values, two.values)
        assert one.residual == two.residual

    def test_k_is_not_formed(self, rng):
        X = rng.normal(size=(20_000, 3))
        tracemalloc.start()
        theory.gram_spectrum(X, gamma=0.1, random_state=0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64e6  # K has 3.2e9 bytes

    @pytest.mark.parametrize(
        "K, message",
        [
            (-np.eye(5), "positive semidefinite"),
            (np.ones((5, 3)), "square"),
            (np.triu(np.ones((5, 5))), "symmetric"),
            (np.full((5, 5), np.nan), "contains NaN"),
        ],
    )
    def test_bad_gram_matrices(self, K, message):
        with pytest.raises(ValueError, match=message):
            theory.gram_spectrum(K, kernel="precomputed")

    def test_kernel_that_is_none(self, rng):
        """tanh is not positive semidefinite."""
        X = rng.normal(size=(50, 2))
        with pytest.raises(ValueError, match="positive semidefinite"):
            theory.gram_spectrum(X, kernel=lambda X, Y: np.tanh(X @ Y.T - 1))

    @pytest.mark.parametrize("n", [1, 2])
    def test_few_points(self, n):
        radius = theory.critical_radius(theory.gram_spectrum(np.zeros((n, 3))))
        assert (radius.delta2, radius.d_n) == (pytest.approx(1 / n), min(2, n))

    def test_warns_if_the_rows_do_not_suffice(self, rng):
        X = rng.normal(size=(3000, 20))
        with pytest.warns(RuntimeWarning, match="raise max_rows"):
            theory.gram_spectrum(X, gamma=1.0, max_rows=64, random_state=0)

    def test_eigenvalues_alone_have_no_vectors(self):
        with pytest.raises(ValueError, match="no vectors"):
            theory.Spectrum(np.ones(3), 0.0, 3).vectors([0], 1)


def dense_norms(S, K):
    """Both norms of the definition, by all eigenvectors."""
    n = len(K)
    mu, U = np.linalg.eigh(K / n)
    mu, U = np.maximum(mu[::-1], 0), U[:, ::-1]
    delta2 = radius_by_search(mu, n)
    d_n = np.flatnonzero(mu <= delta2)[0] + 1
    U1, U2 = U[:, :d_n], U[:, d_n:] * np.sqrt(mu[d_n:])
    StS = S.T @ S  # far smaller than S in the theorem's sizes
    isometry = np.linalg.norm(U1.T @ StS @ U1 - np.eye(d_n), 2)
    tail = math.sqrt(np.linalg.norm(U2.T @ StS @ U2, 2))
    return isometry, tail, tail / np.sqrt(delta2), delta2, d_n


class TestKSatisfiability:
    @pytest.mark.parametrize(
        "sketch",
        [
            psk.PSparsified(40, 0.05),
            psk.PSparsified(40, 0.7, "gaussian"),
            psk.Gaussian(40),
            psk.SubSampling(40),
            psk.CountSketch(40),
        ],
        ids=str,
    )
    def test_norms(self, rng, sketch):
        X = rng.uniform(size=(200, 2))
        S = sketch.draw(200, random_state=1)
        result = theory.k_satisfiability(S, X, gamma=2.0)
        expected = dense_norms(S.to_dense(), gram(X, 2.0))
        np.testing.assert_allclose(result, expected, rtol=1e-7)
        assert result.holds(expected[2] + 1e-6) == (expected[0] <= 0.5)
        assert not result.holds(expected[2] - 1e-6)

    @pytest.mark.long
    def test_from_a_sketched_spectrum(self, rng):
        X = rng.uniform(size=(1500, 2))
        spectrum = theory.gram_spectrum(
            X, gamma=2.0, exact=False, rtol=1e-3, random_state=3
        )
        S = psk.PSparsified(60, 0.05).draw(1500, random_state=1)
        result = theory.k_satisfiability(S, X, gamma=2.0, spectrum=spectrum)
        expected = dense_norms(S.to_dense(), gram(X, 2.0))
        np.testing.assert_allclose(result, expected, rtol=0.02)

    def test_errors(self, rng):
        X = rng.uniform(size=(50, 2))
        with pytest.raises(TypeError, match="must be drawn"):
            theory.k_satisfiability(psk.PSparsified(10), X)
        S = psk.PSparsified(10).draw(50, random_state=0)
        spectrum = theory.gram_spectrum(X[:40], gamma=1.0)
        with pytest.raises(
            ValueError, match="for 50 points, but the spectrum is of 40"
        ):
            theory.k_satisfiability(S, X, gamma=1.0, spectrum=spectrum)
        with pytest.raises(ValueError, match="for 50 points, but X has 40"):
            theory.k_satisfiability(S, X[:40], gamma=1.0)
        with pytest.raises(TypeError, match="that of gram_spectrum, got ndarray"):
            theory.k_satisfiability(S, X, gamma=1.0, spectrum=np.ones(50))
        with pytest.raises(ValueError, match="K is 0"):
            theory.k_satisfiability(S, 0 * X, kernel="linear")

    def test_null_eigenvectors_do_not_count(self, rng):
        """Three features: the fourth eigenvector of a linear kernel is any other."""
        X = rng.normal(size=(80, 3))
        S = psk.PSparsified(20, 0.5).draw(80, random_state=0)
        result = theory.k_satisfiability(S, X, kernel="linear")
        SU = S.to_dense() @ np.linalg.svd(X, full_matrices=False)[0]
        expected = np.linalg.norm(SU.T @ SU - np.eye(3), 2)
        assert result.isometry == pytest.approx(expected, rel=1e-8)
        assert (result.d_n, result.tail) == (4, pytest.approx(0, abs=1e-7))

    @pytest.mark.parametrize("kind", ["rademacher", only_long("gaussian")])
    @pytest.mark.parametrize("p", [only_long(1.0), 0.7])
    def test_holds_as_often_as_the_theorem_says(self, rng, kind, p):
        """With the rows of the theorem, whose constants the proof gives.

        They exceed n by far: nothing in the proof needs s < n.
        """
        n, draws = 20, 40
        K = gram(rng.uniform(size=(n, 1)), 0.1)
        radius = theory.critical_radius(np.linalg.eigvalsh(K / n))
        s = theory.sketch_rows(n, radius.delta2, radius.d_n, p)
        c = theory.satisfiability_constant(p)
        sketch = psk.PSparsified(s, p, kind)
        norms = np.array(
            [
                dense_norms(sketch.draw(n, random_state=i).to_dense(), K)[:3]
                for i in range(draws)
            ]
        )
        promised = 1 - theory.isometry_failure(s, radius.d_n, p)
        assert promised > 0.9
        error = math.sqrt(promised * (1 - promised) / draws)
        assert np.mean(norms[:, 0] <= 0.5) >= promised - 3 * error
        # the constants of the second claim are not known: those of the first are asked
        assert np.mean(norms[:, 2] <= c) >= promised - 3 * error

    def test_more_rows_hold_more_often(self, rng):
        """At sizes of practice, far below the theorem's: a few times d_n rows."""
        n = 400
        X = rng.uniform(size=(n, 1))
        spectrum = theory.gram_spectrum(X, kernel="sobolev")
        d_n = theory.critical_radius(spectrum).d_n
        c = theory.satisfiability_constant(0.7)
        often = []
        for rows in (2, 8, 32):
            sketch = psk.PSparsified(rows * d_n, 0.7)
            results = [
                theory.k_satisfiability(
                    sketch.draw(n, random_state=i),
                    X,
                    kernel="sobolev",
                    spectrum=spectrum,
                )
                for i in range(40)
            ]
            often.append(np.mean([result.holds(c) for result in results]))
        assert often == sorted(often)
        assert often[0] < 0.3 and often[2] > 0.95


class TestBounds:
    def test_lipschitz(self):
        """Term by term, with numbers put in by hand."""
        bound = theory.excess_risk_bound(
            400, 0.02, 0.01, 2.0, L=3.0, kappa=4.0, delta=0.1
        )
        C = 1 + 6**0.5 * 2
        assert bound.approximation == pytest.approx(3 * C * 0.03**0.5 + 0.005)
        assert bound.generalisation == pytest.approx(8 * 3 * 0.1)
        assert bound.confidence == pytest.approx(2 * (8 * math.log(40) / 400) ** 0.5)
        assert bound.total == pytest.approx(sum(bound[:3]))

    def test_loss_objects(self):
        options = dict(n=100, delta2=0.1, alpha=0.1, c=1.0)
        assert theory.excess_risk_bound(
            loss=psk.Huber(3.0), **options
        ) == theory.excess_risk_bound(L=3.0, **options)
        assert theory.excess_risk_bound(
            loss=psk.Squared(), **options
        ) == theory.excess_risk_bound(loss="squared", **options)
        with pytest.raises(ValueError, match="L must"):
            theory.excess_risk_bound(loss=psk.SquaredHinge(), **options)

    def test_squared(self):
        bound = theory.excess_risk_bound(400, 0.02, 0.01, 2.0, loss="squared", kappa=4)
        C2 = (1 + 6**0.5 * 2) ** 2
        assert bound.approximation == pytest.approx((C2 + 0.5) * 0.01 + C2 * 0.02)
        assert bound.generalisation == pytest.approx(8 * 6 / 20)

    @pytest.mark.parametrize("loss", ["lipschitz", "squared"])
    def test_outputs(self, loss):
        options = dict(loss=loss, kappa=2.0)
        one = theory.excess_risk_bound(100, 0.02, 0.01, 1.0, **options)
        same = theory.excess_risk_bound(
            100, 0.02, 0.01, 1.0, output_matrix=[[1.0]], **options
        )
        assert same == pytest.approx(one)
        M = np.diag([2.0, 0.5])
        C = 1 + 6**0.5
        several = theory.excess_risk_bound(
            100, 0.02, 0.01, 1.0, output_matrix=M, **options
        )
        if loss == "lipschitz":
            approximation = C * 0.05**0.5 + 0.005
            generalisation = 8 * (2 * 2.5 / 100) ** 0.5
        else:
            approximation = (C**2 + 0.5) * 0.01 + C**2 * 2 * 0.02
            generalisation = 8 * 2.5**0.5 * (2 * 2**0.5 + 2**0.5) / 10
        assert several.approximation == pytest.approx(approximation)
        assert several.generalisation == pytest.approx(generalisation)

    @pytest.mark.parametrize(
        "changes, message",
        [
            (dict(n=0), "n must"),
            (dict(delta2=-1.0), "delta2"),
            (dict(c=np.nan), "c must"),
            (dict(delta=1.0), "delta"),
            (dict(loss="hinge"), "loss"),
            (dict(output_matrix=np.ones((2, 2))), "invertible"),
            (dict(output_matrix=[[1.0, 2.0]]), "square"),
        ],
    )
    def test_bad_arguments(self, changes, message):
        given = dict(n=100, delta2=0.1, alpha=0.1, c=1.0) | changes
        with pytest.raises(ValueError, match=message):
            theory.excess_risk_bound(**given)

    def test_rows(self):
        assert theory.sketch_rows(1000, 0.01, 3, 0.5) == 5120 * 3 * 4
        assert theory.sketch_rows(10**6, 0.01, 1, 1.0) == 10_000
        assert theory.sketch_rows(1000, 0.01, 3, 0.5, C0=2) == 24

    def test_isometry_failure(self):
        assert theory.isometry_failure(20_480, 2, 1.0) == pytest.approx(
            2 * math.exp(-8)
        )
        assert theory.isometry_failure(20_480, 5, 1.0) == 1.0

    def test_constant_of_the_proof(self):
        """C_0 and the rate are rounded from the proof's, to the safe side."""
        epsilon = 0.1
        slack = (1 - 2 * epsilon - epsilon**2) ** 2
        assert 1024 * math.log(1 + 2 / epsilon) / slack <= theory.bounds.C0
        assert slack / 1024 >= 1 / theory.bounds.ISOMETRY_RATE

    @pytest.mark.parametrize("kind", ["rademacher", "gaussian"])
    def test_landmarks(self, kind):
        n, s, p = 500, 20, 0.01
        expected = theory.expected_landmarks(n, s, p)
        assert expected == pytest.approx(n * (1 - 0.99**20))
        drawn = [
            len(psk.PSparsified(s, p, kind).draw(n, random_state=i).indices)
            for i in range(300)
        ]
        error = np.std(drawn) / math.sqrt(len(drawn))
        assert abs(np.mean(drawn) - expected) < 4 * error
        assert theory.expected_landmarks(n, s, 1.0) == n

    @pytest.mark.parametrize("constant", [0.3, 1.0, 4.0])
    def test_optimal_p(self, constant):
        """The fewest landmarks at s = C_0·d_n/p² rows, on a grid of p."""
        p = np.linspace(0.05, 0.99, 95)
        landmarks = 1 - (1 - p) ** (constant / p**2)
        assert p[np.argmin(landmarks)] == pytest.approx(theory.optimal_p(), abs=0.01)
        assert theory.optimal_p() == pytest.approx(0.7153, abs=1e-4)
        # the corollary's constant, with room
        assert theory.satisfiability_constant(0.7) < 9


SIZES = np.array([150, 300, 600, 1200])
REGIME_KERNELS = {
    "gaussian": dict(kernel="rbf", gamma=2.0),
    "polynomial": dict(kernel=psk.Polynomial(gamma=1.0, degree=3)),
    "sobolev": dict(kernel="sobolev"),
}


@pytest.fixture(scope="module", params=REGIME_KERNELS)
def measured(request):
    """The regime, and its numbers for points in one dimension."""
    rng = np.random.default_rng(0)
    spectra = [
        theory.gram_spectrum(rng.uniform(size=(n, 1)), **REGIME_KERNELS[request.param])
        for n in SIZES
    ]
    return request.param, [theory.critical_radius(spectrum) for spectrum in spectra]


class TestRegimes:
    """δ_n² and d_n grow as the table says."""

    def test_radius(self, measured):
        name, radii = measured
        ratio = [radius.delta2 for radius in radii] / theory.REGIMES[name].delta2(
            SIZES.astype(float)
        )
        slope = np.polyfit(np.log(SIZES), np.log(ratio), 1)[0]
        assert abs(slope) < 0.06

    def test_dimension(self, measured):
        name, radii = measured
        dimensions = [radius.d_n for radius in radii]
        if name == "polynomial":
            # at most D + 1 eigenvalues; d_n is the first that is not above δ_n²
            assert max(dimensions) <= 3 + 2
        ratio = dimensions / theory.REGIMES[name].d_n(SIZES.astype(float))
        # d_n is a small whole number here; `test_large_n` looks closer
        assert ratio.max() <= 1.5 * ratio.min()

    def test_large_n(self):
        """From the decay of eigenvalues that the regimes stand for.

        √log n grows by 1.41 from 10⁶ to 10¹²: a law without it would not pass.
        """
        sizes = np.array([1e6, 1e8, 1e10, 1e12])
        j = np.arange(1.0, 10**6)
        decays = {
            "gaussian": np.exp(-1e-3 * j[:300] ** 2),
            "polynomial": np.array([1.0, 0.3, 0.1, 0.02]),
            "sobolev": j**-2,
        }
        for name, mu in decays.items():
            regime = theory.REGIMES[name]
            radii = [theory.critical_radius(mu, int(n)) for n in sizes]
            for measured, stated in (
                ([radius.delta2 for radius in radii], regime.delta2(sizes)),
                ([radius.d_n for radius in radii], regime.d_n(sizes)),
            ):
                ratio = measured / stated
                assert ratio.max() <= 1.15 * ratio.min(), name

    @pytest.mark.parametrize(
        "name, rate, rows",
        [
            ("gaussian", math.log(1e6) ** 0.25 * 1e-3, math.log(1e6) ** 0.5),
            ("polynomial", 1e-3, 1.0),
            ("sobolev", 1e-2, 100.0),
        ],
    )
    def test_table(self, name, rate, rows):
        """The paper's table at n = 10⁶."""
        regime = theory.REGIMES[name]
        assert regime.rate(10**6) == pytest.approx(rate)
        assert regime.rows(10**6, 0.5) == pytest.approx(4 * rows)
        np.testing.assert_allclose(regime.rate([10**6, 10**6]), [rate, rate])


def true_function(x):
    """In the unit ball of the first-order Sobolev space on [0, 1]."""
    return 0.2 * np.sin(3 * x) + 0.2 * np.minimum(x, 0.5)


SIGMA = 0.3


def excess_risk(loss, error):
    """E[ℓ(f)] - E[ℓ(f*)] over normal noise, in closed form."""
    if loss == "squared":
        return np.mean(error**2) / 2
    folded = 2 * SIGMA * norm.pdf(error / SIGMA)
    folded += error * (1 - 2 * norm.cdf(-error / SIGMA))
    return np.mean(folded) - SIGMA * math.sqrt(2 / math.pi)


class TestRateOfTheExcessRisk:
    SIZES = (100, 200, 400, 600)
    REPLICATES = 12

    @pytest.mark.parametrize(
        "loss, stated", [only_long("absolute", -1 / 3), ("squared", -1 / 2)]
    )
    def test_is_at_least_the_stated_one(self, loss, stated):
        """Sobolev kernel, p = 0.7, λ_n = δ_n²: the slope of log risk over log n.

        The theorem's rate is n^(-1/3) for a Lipschitz loss, and n^(-1/2) for the
        squared one, an upper bound.  The slope must be below it by two standard errors.
        """
        grid = np.linspace(0, 1, 1001)[:, None]
        risks = np.empty((len(self.SIZES), self.REPLICATES))
        for i, n in enumerate(self.SIZES):
            for k in range(self.REPLICATES):
                rng = np.random.default_rng([n, k])
                X = rng.uniform(size=(n, 1))
                y = true_function(X[:, 0]) + SIGMA * rng.normal(size=n)
                spectrum = theory.gram_spectrum(X, kernel="sobolev")
                radius = theory.critical_radius(spectrum)
                s = min(8 * radius.d_n, n - 1)
                fm = psk.FeatureMap(
                    "sobolev", sketch=psk.PSparsified(s, 0.7), random_state=k
                )
                model = psk.solve(
                    fm.fit_transform(X),
                    y,
                    loss=loss,
                    alpha=radius.delta2,
                    fit_intercept=False,
                )
                error = fm.predict(grid, model.coef) - true_function(grid[:, 0])
                risks[i, k] = excess_risk(loss, error)
                quality = theory.k_satisfiability(
                    fm.sketch_, X, kernel="sobolev", spectrum=spectrum
                )
                bound = theory.excess_risk_bound(
                    n,
                    radius.delta2,
                    radius.delta2,
                    quality.c,
                    loss="squared" if loss == "squared" else "lipschitz",
                    kappa=2.0,
                )
                assert 0 <= risks[i, k] <= bound.total
        means = risks.mean(axis=1)
        errors = risks.std(axis=1, ddof=1) / math.sqrt(self.REPLICATES) / means
        x = np.log(self.SIZES)
        slope, covariance = np.polyfit(
            x, np.log(means), 1, w=1 / errors, cov="unscaled"
        )
        assert slope[0] + 2 * math.sqrt(covariance[0, 0]) < stated


def fixed_costs(X, *arguments):
    """A machine that takes 2 ns for a value of the kernel, and 0.1 ns for n·s²."""
    map_rates = np.array([1e-3, 2e-9, 1e-9, 1e-10, 0.0])
    return advice.CostModel(map_rates, np.array([1e-3, 0, 1e-9, 0]), X.shape[1], 8)


class TestRecommend:
    """With the costs of a made-up machine, but where they are to be measured."""

    @pytest.fixture
    def points(self):
        return np.random.default_rng(0).normal(size=(4000, 5))

    @pytest.fixture(autouse=True)
    def costs(self, request, monkeypatch):
        if "measured" not in request.keywords:
            monkeypatch.setattr(advice, "calibrate", fixed_costs)

    def test_keeps_the_budget(self, points):
        small, large = (
            theory.recommend(points, budget=budget, random_state=0)
            for budget in ("4 MB", "16 MB")
        )
        assert small.n_bytes <= 4e6 < large.n_bytes <= 16e6
        assert small.s < large.s
        assert small.limit == large.limit == "bytes"
        assert small.landmarks == theory.expected_landmarks(4000, small.s, small.p)
        timed = theory.recommend(points, budget=[0.2, "1 GB"], random_state=0)
        assert timed.limit == "seconds"
        # a fifth is left as a margin, and the next row would be too much
        model, m = fixed_costs(points), timed.p * 4000
        assert timed.seconds == model.predict(4000, timed.s, m).seconds <= 0.16
        assert model.predict(4000, timed.s + 1, m).seconds > 0.16

    @pytest.mark.measured
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_memory_is_what_a_fit_takes(self, points, dtype):
        X = points.astype(dtype)
        advice = theory.recommend(X, budget="8 MB", random_state=0)
        y = X[:, 0].astype(np.float64)
        tracemalloc.start()
        fm = psk.FeatureMap(sketch=psk.PSparsified(advice.s, advice.p), random_state=0)
        Z = fm.fit_transform(X)
        psk.solve(Z, y, loss="huber", alpha=1e-4)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0.6 * advice.n_bytes < peak < 1.15 * advice.n_bytes

    def test_is_limited_by_rows(self, points):
        advice = theory.recommend(points, budget="1 h", max_rows=40, random_state=0)
        assert (advice.s, advice.limit) == (40, "rows")

    def test_dimension_is_that_of_the_data(self, points):
        advice = theory.recommend(points, budget="1 h", gamma=0.1, random_state=0)
        spectrum = theory.gram_spectrum(points, gamma=0.1, random_state=0)
        exact = theory.critical_radius(spectrum)
        assert advice.delta2 == pytest.approx(exact.delta2, rel=0.05)
        assert abs(advice.d_n - exact.d_n) <= 2

    def test_warns_below_the_dimension(self, points):
        with pytest.warns(RuntimeWarning, match="statistical dimension"):
            theory.recommend(points, budget="1 h", max_rows=2, random_state=0)

    @pytest.mark.measured
    @pytest.mark.parametrize("loss", [only_long("hinge"), "pinball", psk.Squared()])
    def test_losses(self, points, loss):
        advice = theory.recommend(points, budget="20 MB", loss=loss, random_state=0)
        assert advice.seconds > 0

    def test_rare_part_gets_a_dense_sketch(self):
        """A far cluster with large targets, as in the paper's toy data."""
        rng = np.random.default_rng(0)
        X = rng.uniform(size=(5000, 10))
        X[:70] = rng.normal(1.5, 0.25, size=(70, 10))
        y = 0.1 * np.exp(4 * X[:, 0])
        options = dict(budget="8 MB", gamma=0.1, random_state=0)
        assert theory.recommend(X, y=y, **options).p == 50 / 5000
        assert theory.recommend(X, **options).p < 50 / 5000

    @pytest.mark.parametrize(
        "budget, message",
        [
            ("2 parsecs", "units"),
            ("fast", "units"),
            ("1.2.3 s", "units"),
            ([], "empty"),
            (-1, "positive"),
            ("0 s", "positive"),
            ("1 kB", "too small"),
        ],
    )
    def test_bad_budgets(self, points, budget, message):
        with pytest.raises(ValueError, match=message):
            theory.recommend(points, budget=budget)

    def test_bad_arguments(self, points):
        with pytest.raises(ValueError, match="precomputed"):
            theory.recommend(np.eye(5), "precomputed", budget=1)
        with pytest.raises(ValueError, match="y must have 4000 rows"):
            theory.recommend(points, budget=1, y=np.ones(3))

    @pytest.mark.parametrize(
        "X", [np.ones((1, 2)), np.eye(2), np.ones((500, 2))], ids=len
    )
    @pytest.mark.measured
    @pytest.mark.filterwarnings("ignore:no eigenvalue", "ignore:budget=")
    def test_degenerate_points(self, X):
        advice = theory.recommend(X, budget="1 GB", random_state=0)
        assert 1 <= advice.s <= len(X)

    def test_warns_where_nothing_can_be_learnt(self, points):
        with pytest.warns(RuntimeWarning, match="smaller gamma"):
            theory.recommend(points, budget="1 GB", gamma=1e4, random_state=0)

    def test_units(self):
        parse = advice._parse_budget
        assert parse("1.5 min") == (90.0, math.inf)
        assert parse(["2GiB", 3]) == (3.0, 2.0 * 2**30)
        assert parse("4 KiB") == (math.inf, 4096.0)
        assert parse(("500 ms", "1 s", "3 kB")) == (0.5, 3000.0)

    def test_rates_are_found(self):
        """Times that are sums of the terms give the rates back."""
        rates = np.array([1e-4, 1e-9, 2e-10, 0.0, 1e-9])
        sizes = [(n, s, m) for n in (500, 4000) for s in (8, 64, 200) for m in (5, 50)]
        measured = [
            (terms @ rates, terms) for terms in (advice.map_terms(*z) for z in sizes)
        ]
        found = advice._fit_rates(measured)
        np.testing.assert_allclose(found, rates, rtol=1e-6, atol=1e-15)


def test_theory_is_imported_on_demand():
    """`import pskernels` stays quick."""
    import subprocess
    import sys

    code = "import sys, pskernels; sys.exit('pskernels.theory' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code]).returncode == 0


def test_measured_rates(rng):
    """Each of them is not negative, and a larger fit takes longer."""
    X = rng.normal(size=(1500, 3))

    def make_map(sketch):
        return psk.FeatureMap(gamma=0.3, sketch=sketch)

    model = advice.calibrate(X, None, make_map, psk.Huber(), 1e-4, rng)
    assert (model.map_rates >= 0).all() and (model.solve_rates >= 0).all()
    assert model.predict(10**6, 500, 20).seconds > model.predict(10**5, 100, 20).seconds


def test_no_warnings_of_the_solver(rng):
    """Short fits need not converge, and users did not ask for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = rng.normal(size=(300, 3))
        theory.recommend(X, budget=10, loss="absolute", random_state=0)
