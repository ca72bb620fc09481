"""Joint quantile regression, and the scores of predictions."""

import pickle

import numpy as np
import pytest
from sklearn.metrics import mean_pinball_loss

import pskernels as psk

TAUS = (0.1, 0.3, 0.5, 0.7, 0.9)


def heteroscedastic(rng, n):
    """(features, y): the spread of y changes with x; few points for many features."""
    x = rng.uniform(-1, 1, size=(n, 1))
    y = np.sin(3 * x[:, 0]) + (0.2 + np.abs(x[:, 0])) * rng.normal(size=n)
    fm = psk.FeatureMap(gamma=10.0, sketch=psk.PSparsified(30), random_state=0)
    return fm.fit(x), x, y


def test_options_of_noncrossing(rng):
    fm, x, y = heteroscedastic(rng, 150)
    Z = fm.transform(x)
    grid = fm.transform(np.linspace(-1, 1, 500)[:, None])
    crossing, fits = {}, {}
    for noncrossing in ("none", "penalty", "sort"):
        result = psk.solve_quantiles(
            Z, y, quantiles=TAUS, alpha=1e-4, noncrossing=noncrossing
        )
        assert result.converged and result.quantiles == TAUS
        fits[noncrossing] = result
        crossing[noncrossing] = psk.crossing_loss(result.predict(grid))
    assert crossing["sort"] == 0
    assert 0 <= crossing["penalty"] < crossing["none"] / 5
    # "sort" changes predictions, not the fit
    np.testing.assert_array_equal(fits["none"].coef, fits["sort"].coef)
    sorted_none = np.sort(fits["none"].predict(grid), axis=1)
    np.testing.assert_array_equal(fits["sort"].predict(grid), sorted_none)
    coupled = psk.solve_quantiles(
        Z, y, quantiles=TAUS, alpha=1e-4, noncrossing="sort", gamma=1.0
    )
    np.testing.assert_array_equal(coupled.coef, fits["penalty"].coef)
    assert psk.crossing_loss(coupled.predict(grid)) == 0


def test_it_is_the_machine_of_the_quantile_matrix(rng):
    fm, x, y = heteroscedastic(rng, 100)
    Z = fm.transform(x)
    result = psk.solve_quantiles(Z, y, quantiles=TAUS, alpha=1e-3, gamma=2.0)
    same = psk.solve(
        Z,
        np.repeat(y[:, None], 5, axis=1),
        loss=psk.Pinball(TAUS),
        alpha=1e-3,
        output_matrix=psk.quantile_matrix(TAUS, 2.0),
    )
    np.testing.assert_array_equal(result.coef, same.coef)
    predicted = Z @ same.coef + same.intercept
    np.testing.assert_allclose(result.predict(Z), predicted)
    folded = fm.predict(x, result.coef, result.intercept)
    np.testing.assert_allclose(result.finish(folded), predicted, atol=1e-8)


def test_shares_below_the_quantiles(rng):
    fm, x, y = heteroscedastic(rng, 5000)
    result = psk.solve_quantiles(
        fm.transform(x), y, quantiles=TAUS, alpha=1e-5, noncrossing="none"
    )
    q = result.predict(fm.transform(x))
    # with an intercept, by optimality: up to the points on the quantile itself
    np.testing.assert_allclose((y[:, None] <= q).mean(axis=0), TAUS, atol=0.01)
    assert psk.coverage(y, q[:, 0], q[:, -1]) == pytest.approx(0.8, abs=0.02)


def test_results_are_results_of_solve(rng):
    fm, x, y = heteroscedastic(rng, 100)
    Z = fm.transform(x)
    result = psk.solve_quantiles(Z, y, quantiles=TAUS, alpha=1e-3)
    assert isinstance(result, psk.SolveResult) and result.coef.shape == (Z.shape[1], 5)
    again = psk.solve_quantiles(Z, y, quantiles=TAUS, alpha=1e-3, start=result)
    assert again.n_iter == 0
    same = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(same.predict(Z), result.predict(Z))
    low = psk.solve_quantiles(Z, y, quantiles=TAUS, alpha=1e-3, output_rank=2)
    assert np.linalg.matrix_rank(low.coef) == 2


def test_one_level(rng):
    fm, x, y = heteroscedastic(rng, 100)
    Z = fm.transform(x)
    result = psk.solve_quantiles(Z, y, quantiles=[0.3], alpha=1e-3)
    alone = psk.solve(Z, y, loss=psk.Pinball(0.3), alpha=1e-3)
    assert result.predict(Z).shape == (100, 1)
    np.testing.assert_allclose(
        result.predict(Z)[:, 0], Z @ alone.coef + alone.intercept, atol=1e-3
    )


def test_sorting_never_raises_the_pinball_loss(rng):
    for _ in range(20):
        q = rng.normal(size=(50, 5))
        y = rng.normal(size=50)
        before = psk.pinball_loss(y, q, TAUS)
        after = psk.pinball_loss(y, psk.rearrange(q), TAUS)
        assert after <= before + 1e-12


@pytest.mark.parametrize(
    "options, match",
    [
        (dict(quantiles=[0.5, 0.1]), r"quantiles must be increasing, got \(0.5, 0.1\)"),
        (dict(quantiles=[0.5, 0.5]), "quantiles must not repeat, got 0.5 twice"),
        (
            dict(quantiles=[0.5, 2.0]),
            "above 0 and below 1, got 2: divide",
        ),
        (dict(noncrossing="hard"), "noncrossing must be one of 'penalty', 'sort', "),
        (dict(gamma=-1.0), "gamma must be finite and not negative"),
        (dict(output_rank=1, noncrossing="sort"), "output_rank=1 needs a coupling"),
        (dict(quantiles=[10, 50]), "below 1, got 10: divide percentages by 100"),
        (dict(quantiles=0.5), r"sequence of at least one level, such as \[0.5\]"),
        (dict(y=np.ones((20, 2))), r"y must be 1-d, .* got shape \(20, 2\)"),
    ],
)
def test_bad_options(options, match, rng):
    given = dict(y=np.ones(20), quantiles=[0.1, 0.5], alpha=1e-3) | options
    with pytest.raises((ValueError, TypeError), match=match):
        psk.solve_quantiles(rng.normal(size=(20, 3)), **given)


def test_bad_prediction(rng):
    Z = rng.normal(size=(20, 3))
    result = psk.solve_quantiles(Z, Z[:, 0], quantiles=[0.1, 0.5], alpha=1e-3)
    with pytest.raises(ValueError, match="Z must have 3 columns, the features of .* 2"):
        result.predict(Z[:, :2])
    with pytest.raises(ValueError, match="predicted must have 2 columns, one for each"):
        result.finish(Z)
    with pytest.raises(ValueError, match="predicted must be 2-d"):
        psk.rearrange(np.ones(3))


# ---- metrics, by hand ----


def test_pinball_loss():
    y, q = [1.0, 0.0], [[0.0, 2.0], [1.0, 1.0]]
    by_hand = ((0.1 * 1 + 0.5 * 1) + (0.9 * 1 + 0.5 * 1)) / 4
    assert psk.pinball_loss(y, q, [0.1, 0.5]) == pytest.approx(by_hand)
    by_level = [
        mean_pinball_loss(y, column, alpha=level)
        for column, level in zip(np.transpose(q), [0.1, 0.5], strict=True)
    ]
    assert psk.pinball_loss(y, q, [0.1, 0.5]) == pytest.approx(np.mean(by_level))


def test_crossing_loss():
    """q_j above q_{j+1} counts, and a wide spread does not."""
    assert psk.crossing_loss([[0.0, 10.0, 20.0]]) == 0
    assert psk.crossing_loss([[2.0, 1.0, 3.0], [3.0, 2.0, 0.0]]) == (1 + 3) / 2
    assert psk.crossing_loss([[1.0], [2.0]]) == 0


def test_coverage():
    assert psk.coverage([0, 1, 2, 3], [0, 0, 0, 0], [2, 2, 2, 2]) == 0.75


def test_rrmse(rng):
    y, predicted, y_train = rng.normal(size=(3, 30, 2))
    for j in range(2):
        mean = y_train[:, j].mean()
        error = np.mean((y[:, j] - predicted[:, j]) ** 2)
        expected = np.sqrt(error / np.mean((y[:, j] - mean) ** 2))
        assert psk.rrmse(y, predicted, y_train)[j] == pytest.approx(expected)
        alone = psk.rrmse(y[:, j], predicted[:, j], y_train[:, j])
        assert alone == pytest.approx(expected)
    both = psk.rrmse(y, predicted, y_train)
    assert psk.arrmse(y, predicted, y_train) == pytest.approx(both.mean())
    # the training mean itself has an error of 1
    constant = np.repeat(y_train.mean(axis=0)[None], 30, axis=0)
    np.testing.assert_allclose(psk.rrmse(y, constant, y_train), 1)


def test_relative_mse():
    assert psk.relative_mse([0.0, 10.0], [1.0, 8.0]) == pytest.approx(2.5 / 10)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: psk.pinball_loss([1.0], [[1, 2]], [0.5]), r"must have shape \(1, 1\)"),
        (lambda: psk.pinball_loss([np.nan], [[1]], [0.5]), "y contains NaN at index 0"),
        (lambda: psk.crossing_loss([1.0, 2.0]), r"predicted must be 2-d.*\(2,\)"),
        (lambda: psk.coverage([1.0], [0.0, 1.0], [2.0]), "lower must have the shape"),
        (lambda: psk.coverage([1.0], [0.0], [[2.0, 3.0]]), "upper must be 1-d"),
        (lambda: psk.rrmse([1.0], [1.0, 2.0], [1.0]), "predicted must have the shape"),
        (lambda: psk.rrmse([[1.0]], [[1.0]], [[1, 2]]), "y_train must have 1 columns"),
        (lambda: psk.rrmse([1.0], [1.0], [1.0]), "output 0 are all equal to their"),
        (lambda: psk.rrmse([], [], [1.0]), "y must be 1-d or 2-d and not empty"),
        (lambda: psk.relative_mse([1.0, 1.0], [1.0, 2.0]), "y is constant"),
        (lambda: psk.relative_mse(["a"], [1.0]), "y must hold real numbers"),
    ],
)
def test_bad_scores(call, match):
    with pytest.raises((ValueError, TypeError), match=match):
        call()
