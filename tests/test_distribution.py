"""Predictive distributions, against numerical integrals and scipy.stats."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

import pskernels as psk
from pskernels import QuantileDistribution

LEVELS = (0.1, 0.3, 0.5, 0.9)


@pytest.fixture
def law(rng):
    """Five distributions, one with an atom between two levels."""
    values = np.sort(rng.normal(size=(5, 4)), axis=1)
    values[4, 1] = values[4, 2]
    return QuantileDistribution(LEVELS, values)


def targets(law):
    """Targets in the left tail, the right one, between levels, on one, on an atom."""
    v = law.values
    return np.array(
        [v[0, 0] - 1, v[1, 3] + 2, (v[2, 1] + v[2, 2]) / 2, v[3, 1], v[4, 1]]
    )


def test_crps_is_the_integral_of_the_squared_error_of_the_cdf(law):
    y = targets(law)
    for i, target in enumerate(y):
        one = QuantileDistribution(LEVELS, law.values[i : i + 1])
        points = sorted([*law.values[i], target])
        edges = [points[0] - 60, *points, points[-1] + 60]

        def error(z, one=one, target=target):
            return (one.cdf([z])[0] - (z >= target)) ** 2

        pieces = zip(edges, edges[1:], strict=False)
        expected = sum(quad(error, a, b)[0] for a, b in pieces)
        assert law.crps(y)[i] == pytest.approx(expected, rel=1e-9)


def test_the_mean_is_the_integral_of_the_quantile_function(law):
    for i in range(len(law)):
        expected = quad(lambda q, i=i: law.quantile(q)[i], 0, 1, points=LEVELS)[0]
        assert law.mean()[i] == pytest.approx(expected, abs=1e-6)


def test_the_cdf_is_the_inverse_of_the_quantile_function(law):
    for q in (1e-9, 0.05, 0.1, 0.27, 0.7, 0.9, 0.95, 1 - 1e-9):
        without_atom = law.cdf(law.quantile(q))[:4]
        np.testing.assert_allclose(without_atom, q, rtol=1e-6)
    assert law.cdf(law.values[:, 1])[4] == 0.5  # on an atom: all of it


def test_levels_of_the_fit_are_exact(law):
    np.testing.assert_array_equal(law.quantile(LEVELS), law.values)
    np.testing.assert_array_equal(law.interval(0.8), law.values[:, [0, 3]])


def test_quantiles_never_cross(rng):
    law = QuantileDistribution(LEVELS, rng.normal(size=(50, 4)))  # which cross
    grid = law.quantile(np.linspace(0.001, 0.999, 500))
    assert (np.diff(grid, axis=1) >= 0).all()


def test_many_levels_of_a_normal_distribution():
    levels = np.linspace(0.005, 0.995, 199)
    law = QuantileDistribution(levels, stats.norm.ppf(levels)[None])
    y = 0.7
    # Gneiting and Raftery (2007), equation 21
    exact = y * (2 * stats.norm.cdf(y) - 1) + 2 * stats.norm.pdf(y) - np.pi**-0.5
    assert law.crps([y])[0] == pytest.approx(exact, abs=2e-4)
    assert law.mean()[0] == pytest.approx(0, abs=1e-12)
    assert law.cdf([y])[0] == pytest.approx(stats.norm.cdf(y), abs=1e-4)


def test_samples_have_the_distribution(law):
    draws = law.sample(20_000, random_state=0)
    for i in range(4):  # without an atom
        one = QuantileDistribution(LEVELS, np.tile(law.values[i], (draws.shape[1], 1)))
        assert stats.kstest(one.cdf(draws[i]), "uniform").pvalue > 1e-4
    np.testing.assert_array_equal(draws, law.sample(20_000, random_state=0))


def test_a_point_has_its_distance_as_crps():
    law = QuantileDistribution((0.2, 0.8), [[3.0, 3.0], [3.0, 3.0]])
    np.testing.assert_array_equal(law.crps([1.0, 3.5]), [2.0, 0.5])
    np.testing.assert_array_equal(law.cdf([1.0, 3.5]), [0.0, 1.0])


def test_crps_of_many_levels_is_twice_the_mean_pinball_loss(rng):
    levels = (np.arange(400) + 0.5) / 400
    values = np.sort(rng.normal(size=(3, 400)), axis=1)
    y = np.array([-0.5, 0.1, 1.2])
    pinball = [
        2 * psk.pinball_loss(y[i : i + 1], values[i : i + 1], levels) for i in range(3)
    ]
    crps = QuantileDistribution(levels, values).crps(y)
    np.testing.assert_allclose(crps, pinball, atol=2e-3)
    assert psk.crps(y, QuantileDistribution(levels, values)) == pytest.approx(
        crps.mean()
    )


@pytest.mark.parametrize(
    "levels, values, message",
    [
        ((0.5,), [[1.0]], "two levels"),
        ((0.1, 0.9), [[1.0, 2.0, 3.0]], "2 columns"),
        ((0.1, 0.9), [[1.0, np.nan]], "values"),
        ((0.9, 0.1), [[1.0, 2.0]], "increas"),
    ],
)
def test_bad_input(levels, values, message):
    with pytest.raises(ValueError, match=message):
        QuantileDistribution(levels, values)


def test_bad_arguments(law):
    with pytest.raises(ValueError, match="a target for each of 5"):
        law.cdf([1.0])
    with pytest.raises(ValueError, match="NaN|nan"):
        law.crps(np.full(5, np.nan))
    with pytest.raises(ValueError, match=r"\(0, 1\)"):
        law.quantile(1.0)


def test_a_tail_that_is_a_point():
    law = QuantileDistribution((0.1, 0.5, 0.9), [[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    np.testing.assert_array_equal(law.cdf([0.0, 1.0]), [1.0, 1.0])
    np.testing.assert_array_equal(law.cdf([-1e-9, 1 - 1e-9]).round(6), [0.0, 0.5])
