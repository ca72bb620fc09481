"""Machines that choose their parameters: the scores of GridSearchCV, leave-one-out."""

import warnings

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from conftest import only_long
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from test_estimators import checks, make_data
from test_memory import peak_below

import pskernels as psk
from pskernels.estimators import (
    SketchedKernelClassifier,
    SketchedKernelClassifierCV,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
    SketchedQuantileRegressorCV,
)
from pskernels.solvers.loo import leave_one_out

ALPHAS = [1e-4, 1e-2]
GAMMAS = [0.3, 3.0]
SMALL = dict(alphas=[1e-4], gammas=[0.01, 0.1], cv=2, n_components=20)


@checks(SketchedKernelRegressorCV(**SMALL))
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.long
@checks(
    SketchedQuantileRegressorCV(**SMALL, quantiles=0.5),
    # the hinge, on a dozen points of weights from 1e-4 to 1e3, takes its time
    SketchedKernelClassifierCV(**SMALL, loss="logistic"),
)
def test_scikit_learn_checks_of_other_searches(estimator, check):
    check(estimator)


# ---- the scores of GridSearchCV ----


def assert_same_search(ours, machine, grid, X, y, atol=1e-9, **options):
    options = {"cv": 3, **options}
    ours.set_params(**options).fit(X, y)
    theirs = GridSearchCV(machine, grid, **options).fit(X, y)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    names = [f"split{k}_test_score" for k in range(ours.n_splits_)]
    for name in [*names, "mean_test_score", "std_test_score"]:
        np.testing.assert_allclose(
            ours.cv_results_[name], theirs.cv_results_[name], atol=atol
        )
    np.testing.assert_array_equal(
        ours.cv_results_["rank_test_score"], theirs.cv_results_["rank_test_score"]
    )
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_score_ == pytest.approx(theirs.best_score_)
    best = theirs.best_estimator_
    np.testing.assert_array_equal(ours.coef_, best.coef_)
    np.testing.assert_array_equal(ours.predict(X), best.predict(X))


@pytest.mark.parametrize(
    "loss, tube, outputs",
    [
        ("huber", dict(kappa=["auto", 0.1]), ()),
        ("huber", dict(kappa=["auto", 0.1]), (2,)),
        ("epsilon_insensitive", dict(epsilon=[0.05, "auto"]), ()),
        ("squared", {}, ()),
        ("squared", {}, (2,)),
        ("absolute", {}, ()),
    ],
)
def test_regressor_has_the_scores_of_grid_search(loss, tube, outputs, rng):
    X, y = make_data(rng, outputs=outputs)
    ours = SketchedKernelRegressorCV(
        loss=loss, alphas=ALPHAS, gammas=GAMMAS, n_components=25, random_state=0
    ).set_params(**{f"{name}s": values for name, values in tube.items()})
    machine = SketchedKernelRegressor(loss=loss, n_components=25, random_state=0)
    grid = dict(alpha=ALPHAS, gamma=GAMMAS, **tube)
    assert_same_search(ours, machine, grid, X, y)


def test_small_alphas_have_the_scores_of_grid_search(rng):
    """Gram matrices of K·Sᵀ lose more than alpha there: columns are formed."""
    X = rng.uniform(size=(600, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=600)
    alphas, gammas = [1e-10, 1e-4], [0.1, 3.0]
    options = dict(loss="squared", sketch="nystroem", n_components=80, random_state=0)
    ours = SketchedKernelRegressorCV(alphas=alphas, gammas=gammas, cv=3, **options)
    theirs = GridSearchCV(
        SketchedKernelRegressor(**options), dict(alpha=alphas, gamma=gammas), cv=3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = ours.fit(X, y).cv_results_["mean_test_score"]
        expected = theirs.fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_gammas_that_choose_other_sketches(rng, monkeypatch):
    """Each has its own, as if it were fitted alone."""
    X = rng.normal(size=(300, 2))
    y = np.sin(X[:, 0])

    def choose(make_map, X, y, s, kind, *rest):
        narrow = make_map(None).kernel.gamma > 0.5
        return psk.SubSampling(s) if narrow else psk.PSparsified(s, 0.05, kind)

    monkeypatch.setattr("pskernels.estimators.base.choose_sketch", choose)
    options = dict(loss="squared", n_components=20, random_state=0, alpha=1e-3)
    ours = SketchedKernelRegressorCV(
        alphas=[1e-3], gammas=[0.1, 1.0], cv=3,
        loss="squared", n_components=20, random_state=0,
    )  # fmt: skip
    theirs = GridSearchCV(
        SketchedKernelRegressor(**options), dict(gamma=[0.1, 1.0]), cv=3
    )
    np.testing.assert_allclose(
        ours.fit(X, y).cv_results_["mean_test_score"],
        theirs.fit(X, y).cv_results_["mean_test_score"],
        atol=1e-6,
    )


def test_quantiles_have_the_scores_of_grid_search(rng):
    X, y = make_data(rng)
    options = dict(quantiles=[0.2, 0.8], n_components=25, random_state=0)
    assert_same_search(
        SketchedQuantileRegressorCV(alphas=ALPHAS, gammas=GAMMAS, **options),
        SketchedQuantileRegressor(**options),
        dict(alpha=ALPHAS, gamma=GAMMAS),
        X,
        y,
    )


@pytest.mark.parametrize("scoring", [None, "neg_log_loss", "roc_auc"])
def test_classifier_has_the_scores_of_grid_search(scoring, rng):
    X, y = make_data(rng)
    labels = np.where(y > 0.8, "high", "low")
    options = dict(
        loss="logistic", class_weight="balanced", n_components=25, random_state=0
    )
    assert_same_search(
        SketchedKernelClassifierCV(alphas=ALPHAS, gammas=GAMMAS, **options),
        SketchedKernelClassifier(**options),
        dict(alpha=ALPHAS, gamma=GAMMAS),
        X,
        labels,
        scoring=scoring,
    )


@pytest.mark.parametrize(
    "scoring, n_classes",
    [
        only_long(None, 2),
        ("neg_log_loss", 2),
        only_long("neg_log_loss", 3),
        only_long(None, 3),
    ],
)
def test_calibrated_probabilities_of_folds(scoring, n_classes, rng):
    X, y = make_data(rng)
    options = dict(loss="hinge", probability=True, n_components=25, random_state=0)
    assert_same_search(
        SketchedKernelClassifierCV(alphas=ALPHAS[:2], gammas=GAMMAS[:1], **options),
        SketchedKernelClassifier(**options),
        dict(alpha=ALPHAS[:2], gamma=GAMMAS[:1]),
        X,
        np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes)),
        scoring=scoring,
    )


@pytest.mark.parametrize(
    "scoring, some", [("accuracy", False), ("neg_brier_score", True)]
)
def test_probabilities_of_folds_are_learnt_for_scores_of_them(
    scoring, some, monkeypatch, rng
):
    X, y = make_data(rng)
    calls = []
    calibrate = SketchedKernelClassifier._calibrate
    monkeypatch.setattr(
        SketchedKernelClassifier,
        "_calibrate",
        lambda *given: calls.append(1) or calibrate(*given),
    )
    options = dict(probability=True, n_components=25, random_state=0, scoring=scoring)
    search = SketchedKernelClassifierCV(
        alphas=ALPHAS[:2], gammas=GAMMAS[:1], cv=3, **options
    )
    search.fit(X, y > np.median(y))
    assert len(calls) == 1 + some * 2 * 3  # that of the last fit, and those of folds


@pytest.mark.long
def test_classes_of_digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:100], y[:100]
    options = dict(n_components=20, random_state=0)
    assert_same_search(
        SketchedKernelClassifierCV(
            alphas=ALPHAS, gammas=["scale", "median"], **options
        ),
        SketchedKernelClassifier(**options),
        dict(alpha=ALPHAS, gamma=["scale", "median"]),
        X,
        y,
    )


@pytest.mark.parametrize("form", ["sparse", "precomputed", "float32"])
def test_forms_of_points(form, rng):
    X, y = make_data(rng)
    grid = dict(alpha=ALPHAS, gamma=GAMMAS)
    options = dict(loss="squared", sketch="nystroem", n_components=25, random_state=0)
    if form == "sparse":
        X = sp.csr_array(np.where(abs(X) > 0.5, X, 0.0))
    elif form == "float32":
        X = X.astype(np.float32)
    else:
        X = reference.rbf(X, X, 0.5)
        options["kernel"] = "precomputed"
        del grid["gamma"]
    ours = SketchedKernelRegressorCV(alphas=ALPHAS, **options)
    if "gamma" in grid:
        ours.set_params(gammas=GAMMAS)
    # predictions by landmarks and by features differ by float32's rounding
    atol = 1e-5 if form == "float32" else 1e-9
    machine = SketchedKernelRegressor(**options)
    assert_same_search(ours, machine, grid, X, y, atol=atol)


def test_splitters_scorers_and_groups(rng):
    X, y = make_data(rng)
    options = dict(loss="squared", n_components=25, random_state=0)
    grid = dict(alpha=ALPHAS, gamma=GAMMAS)
    ours = SketchedKernelRegressorCV(alphas=ALPHAS, gammas=GAMMAS, **options)
    machine = SketchedKernelRegressor(**options)
    assert_same_search(
        clone(ours), machine, grid, X, y,
        cv=KFold(4, shuffle=True, random_state=1), scoring="neg_mean_absolute_error",
    )  # fmt: skip
    groups = np.arange(len(y)) // 50
    ours.set_params(cv=GroupKFold(4)).fit(X, y, groups=groups)
    theirs = GridSearchCV(machine, grid, cv=GroupKFold(4)).fit(X, y, groups=groups)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"]
    )


def test_scorers_may_do_as_they_like(rng):
    X, y = make_data(rng)

    def odd(model, X, y):
        flipped = model.predict(X[::-1])[::-1]
        assert np.allclose(flipped, model.predict(X))
        return -np.abs(flipped - y).mean() - 1e-3 * len(model.landmarks_)

    options = dict(loss="squared", n_components=25, random_state=0)
    ours = SketchedKernelRegressorCV(alphas=ALPHAS, gammas=GAMMAS, **options)
    machine = SketchedKernelRegressor(**options)
    grid = dict(alpha=ALPHAS, gamma=GAMMAS)
    assert_same_search(ours, machine, grid, X, y, scoring=odd)
    ours.fit(X, y, sample_weight=rng.uniform(size=len(y)))  # odd takes no weights


def test_folds_are_not_kept(rng):
    X = rng.normal(size=(20_000, 60))  # 9.6 MB
    y = X[:, 0]
    model = SketchedKernelRegressorCV(
        loss="squared", alphas=[1e-3], gammas=[0.01], cv=8, n_components=5
    )
    model.fit(X[:100], y[:100])  # what is imported on the way
    with peak_below(4 * X.nbytes):
        model.fit(X, y)


def test_warm_starts_find_the_same_models(rng):
    X, y = make_data(rng)
    cold = SketchedKernelRegressorCV(random_state=0, cv=3, tol=1e-9).fit(X, y)
    warm = clone(cold).set_params(warm_start=True).fit(X, y)
    for name in ("mean_test_score", "std_test_score"):
        np.testing.assert_allclose(
            cold.cv_results_[name], warm.cv_results_[name], atol=1e-5
        )


def test_the_default_grid_does_not_depend_on_units(rng):
    X, y = make_data(rng, n=80)
    for loss in ("huber", "absolute"):
        model = SketchedKernelRegressorCV(
            loss=loss, n_components=10, cv=2, random_state=0
        )
        model.fit(X, y)
        other = clone(model).fit(100 * X, 1000 * y)
        # alphas of a loss that grows like |u - y| are in the inverse unit of y
        unit = 1000 if loss == "absolute" else 1
        assert other.best_params_["alpha"] * unit == pytest.approx(
            model.best_params_["alpha"]
        )
        assert 1e4 * other.best_params_["gamma"] == pytest.approx(
            model.best_params_["gamma"]
        )
        assert other.score(100 * X, 1000 * y) == pytest.approx(
            model.score(X, y), abs=1e-3
        )


def test_kernels_without_gamma(rng):
    X, y = make_data(rng)
    for kernel in ("linear", psk.Matern(0.5, nu=2.5)):
        model = SketchedKernelRegressorCV(kernel=kernel, loss="squared", cv=3)
        assert list(model.fit(X, y).best_params_) == ["alpha"]


def test_mistakes_get_an_answer(rng):
    X, y = make_data(rng)
    for parameters, message in [
        (dict(alphas=[]), "alphas must have at least one value"),
        (dict(alphas=[1e-3, -1.0]), "alpha must be positive"),
        (dict(gammas=[]), "gammas must have at least one value"),
        (dict(cv="loo"), "cv='loo' has a closed form for loss='squared' only"),
        (dict(cv="lo"), "cv must be one of 'loo'"),
        (dict(scoring="r3"), "r3"),
        (dict(kappas=["big"]), "kappa must be a number or 'auto'"),
        (dict(scoring=["r2", "max_error"]), "scoring must be one score"),
    ]:
        with pytest.raises(ValueError, match=message):
            SketchedKernelRegressorCV(**parameters).fit(X, y)


# ---- leave-one-out ----


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("matrix", [None, "coupled", "low rank"])
def test_leave_one_out_is_what_its_name_says(fit_intercept, weighted, matrix, rng):
    n, alpha = 25, 0.03
    Z = rng.normal(size=(n, 4)) + 1
    Y = Z @ rng.normal(size=(4, 3)) + rng.normal(size=(n, 3)) + 5
    weight = rng.uniform(0.5, 2, size=n) if weighted else np.ones(n)
    M = {
        None: None,
        "coupled": psk.graph_matrix(np.ones((3, 3)) - np.eye(3), mu=0.7),
        "low rank": np.outer([1.0, 2.0, 0.5], [1.0, 2.0, 0.5]),
    }[matrix]
    y = Y if M is not None else Y[:, 0]
    (predicted,) = leave_one_out(
        Z, y, alphas=[alpha], output_matrix=M, sample_weight=weight,
        fit_intercept=fit_intercept,
    )  # fmt: skip
    for i in (0, 7, 24):
        others = np.arange(n) != i
        model = psk.solve(
            Z[others],
            y[others],
            # (Σ of all weights)·alpha stays the same
            alpha=alpha * weight.sum() / weight[others].sum(),
            output_matrix=M,
            sample_weight=weight[others],
            fit_intercept=fit_intercept,
            tol=1e-12,
        )
        np.testing.assert_allclose(
            predicted[i], np.squeeze(model.predict(Z[[i]])), rtol=1e-7
        )


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_search_by_leave_one_out(outputs, rng):
    X, y = make_data(rng, n=150, outputs=outputs)
    model = SketchedKernelRegressorCV(
        loss="squared", cv="loo", gammas=GAMMAS, n_components=20, random_state=0
    ).fit(X, y)
    assert model.n_splits_ == 1
    chosen = model.best_params_
    feature_map = psk.FeatureMap(
        gamma=chosen["gamma"], sketch=psk.PSparsified(20), random_state=0
    )
    Z = feature_map.fit_transform(X)
    predicted = leave_one_out(Z, y, alphas=[chosen["alpha"]])[0]
    errors = ((y - predicted) ** 2).sum(axis=0) / ((y - y.mean(axis=0)) ** 2).sum(
        axis=0
    )
    assert model.best_score_ == pytest.approx(np.mean(1 - errors))
    assert model.score(X, y) > 0.9
    model.set_params(output_matrix="identity").fit(X, y)
    with pytest.raises(ValueError, match="'residual' has no leave-one-out"):
        model.set_params(output_matrix="residual").fit(X, y)
    model.set_params(output_matrix=None, alphas=[1e-14], gammas=[1e4]).fit(X, y)
