"""Models of fewer landmarks: the choice, the refit and the bound, by dense NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from pskernels import Compression
from pskernels.compression import choose_landmarks
from pskernels.estimators import (
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedQuantileRegressor,
    load,
)

KERNELS = {
    "rbf": lambda D2, D1, gamma: np.exp(-gamma * D2),
    "laplacian": lambda D2, D1, gamma: np.exp(-gamma * D1),
}


def kernel_matrix(name, A, B, gamma):
    difference = A[:, None].astype(float) - B[None].astype(float)
    D2, D1 = (difference**2).sum(axis=2), np.abs(difference).sum(axis=2)
    return KERNELS[name](D2, D1, gamma)


def make_data(n=800, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=n)
    return X, y


def fit(X, y, kernel="rbf", **options):
    options = dict(gamma=0.7, n_components=30, p=15 / len(X), random_state=0) | options
    return SketchedKernelRegressor(kernel=kernel, **options).fit(X, y)


def greedy_reference(K, f, k):
    """Choose by the rule itself: what is left of ‖f‖² is computed anew for each."""
    chosen = []
    for _ in range(k):
        left = []
        for j in range(len(K)):
            some = [*chosen, j]
            A = K[np.ix_(some, some)]
            safe = j not in chosen and np.linalg.cond(A) < 1e10
            left.append(f[some] @ np.linalg.solve(A, f[some]) if safe else -np.inf)
        chosen.append(int(np.argmax(left)))
    return sorted(chosen)


class TestChoice:
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_is_that_of_the_rule(self, kernel):
        rng = np.random.default_rng(1)
        X = rng.normal(size=(60, 2))
        K = kernel_matrix(kernel, X, X, 0.8)
        f = K @ rng.normal(size=60)
        chosen = choose_landmarks(
            lambda a, b: K[np.ix_(a, b)], K.diagonal(), f[:, None], 12
        )
        assert chosen.tolist() == greedy_reference(K, f, 12)

    def test_blocks_are_nearly_as_good(self, monkeypatch):
        rng = np.random.default_rng(2)
        X = rng.normal(size=(400, 2))
        K = kernel_matrix("laplacian", X, X, 0.8)
        f = K @ rng.normal(size=400)
        left = []
        for block, candidates in ((1, 400), (16, 64), (64, 400)):
            monkeypatch.setattr("pskernels.compression.BLOCK", block)
            monkeypatch.setattr("pskernels.compression.CANDIDATES", candidates)
            some = choose_landmarks(
                lambda a, b: K[np.ix_(a, b)], K.diagonal(), f[:, None], 100
            )
            assert len(np.unique(some)) == 100
            seen = f[some] @ np.linalg.solve(K[np.ix_(some, some)], f[some])
            left.append(f @ np.linalg.solve(K, f) - seen)
        # random ones leave twice as much
        assert max(left) <= 1.1 * left[0]

    def test_stops_where_others_add_nothing(self):
        X = np.repeat(np.arange(5.0)[:, None], 4, axis=0)  # each point four times
        K = kernel_matrix("rbf", X, X, 1.0)
        f = K @ np.arange(20.0)
        chosen = choose_landmarks(
            lambda a, b: K[np.ix_(a, b)], K.diagonal(), f[:, None], 9
        )
        assert sorted(X[chosen, 0]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_compressed_model(kernel, dtype):
    X, y = make_data()
    model = fit(X.astype(dtype), y, kernel)
    m = len(model.landmarks_)
    small = model.compress(m // 4)
    assert small.compression_.n_before == m
    assert small.compression_.n_landmarks == len(small.landmarks_) == m // 4
    assert small.intercept_ == model.intercept_
    assert small.feature_map_.feature_dtype == dtype
    # the old one is as it was
    assert len(model.landmarks_) == m and not hasattr(model, "compression_")
    rows = {row.tobytes() for row in model.landmarks_}
    assert all(row.tobytes() in rows for row in small.landmarks_)

    # the norm of the change, of both in float64
    both = np.concatenate([small.landmarks_, model.landmarks_]).astype(float)
    delta = np.concatenate([small.dual_coef_, -model.dual_coef_])
    K = kernel_matrix(kernel, both, both, 0.7)
    norm = np.sqrt(delta @ K @ delta)
    assert norm <= small.compression_.bound <= norm * 1.001 + 1e-4
    X_new, _ = make_data(seed=5)
    change = np.abs(small.predict(X_new) - model.predict(X_new))
    assert 0 < change.max() <= small.compression_.bound
    change = small.predict(model.landmarks_) - model.predict(model.landmarks_)
    assert np.abs(change).max() == pytest.approx(small.compression_.largest, rel=0.01)
    assert np.sqrt((change**2).mean()) == pytest.approx(
        small.compression_.rms, rel=0.01
    )


@pytest.mark.parametrize("other_points", [False, True])
def test_coefficients_are_the_best(other_points):
    X, y = make_data()
    model = fit(X, y, "laplacian", alpha=1e-3)
    at = X[:333] if other_points else model.landmarks_
    small = model.compress(40, X[:333] if other_points else None)
    K = kernel_matrix("laplacian", small.landmarks_, small.landmarks_, 0.7)
    A = kernel_matrix("laplacian", at, small.landmarks_, 0.7)
    f = model.predict(at) - model.intercept_
    f_some = model.predict(small.landmarks_) - model.intercept_
    # the gradient of mean (f - g)² / 2 + alpha·‖f - g‖² / 2
    expected = np.linalg.solve(
        A.T @ A / len(at) + 1e-3 * K, A.T @ f / len(at) + 1e-3 * f_some
    )
    np.testing.assert_allclose(K @ small.dual_coef_, K @ expected, atol=1e-7)


def test_all_landmarks_change_nothing():
    X, y = make_data(300)
    model = fit(X, y, "laplacian", n_components=10, p=0.1)
    same = model.compress(len(model.landmarks_))
    np.testing.assert_allclose(same.predict(X), model.predict(X), atol=1e-9)
    assert same.compression_.bound < 1e-4


def test_results_do_not_depend_on_threads():
    X, y = make_data()
    found = [
        fit(X, y, n_threads=n_threads).compress(50).dual_coef_ for n_threads in (1, 3)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "model",
    [
        SketchedQuantileRegressor(quantiles=[0.1, 0.5, 0.9], n_components=20, p=0.02),
        SketchedKernelRegressor(loss="squared", n_components=20, p=0.02),
    ],
)
def test_several_outputs(model):
    X, y = make_data()
    if isinstance(model, SketchedKernelRegressor):
        y = np.stack([y, 1e6 * np.cos(X[:, 0])], axis=1)
    model.set_params(random_state=0).fit(X, y)
    small = model.compress(len(model.landmarks_) // 3)
    error = np.abs(small.predict(X) - model.predict(X)).mean(axis=0)
    assert (error < 0.1 * model.predict(X).std(axis=0)).all()
    assert np.abs(small.predict(X) - model.predict(X)).max() < small.compression_.bound


def test_classes_files_and_sparse_points(tmp_path):
    X, y = make_data()
    X = sp.csr_array(X * (np.abs(X) > 0.3))
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
    model = SketchedKernelClassifier(
        loss="logistic", n_components=20, p=0.02, random_state=0
    ).fit(X, labels)
    small = model.compress(60)
    assert np.mean(small.predict(X) == model.predict(X)) > 0.97
    small.save(tmp_path / "small.npz")
    again = load(tmp_path / "small.npz")
    assert isinstance(again.compression_, Compression)
    assert again.compression_ == small.compression_
    np.testing.assert_array_equal(again.predict_proba(X), small.predict_proba(X))
    # another fit has not been compressed
    assert not hasattr(small.fit(X, labels), "compression_")


def test_a_warm_start_does_not_keep_few_landmarks():
    X, y = make_data()
    model = fit(X, y, warm_start=True)
    n_landmarks = len(model.landmarks_)
    assert len(model.compress(30).fit(X, y).landmarks_) == n_landmarks


@pytest.mark.parametrize("k", [0, -1, 2.5, 10**6, "all"])
def test_numbers_of_landmarks_are_checked(k):
    X, y = make_data(100)
    model = fit(X, y, n_components=10, p=0.1)
    with pytest.raises((TypeError, ValueError), match="k"):
        model.compress(k)


def test_what_cannot_be_compressed():
    X, y = make_data(200)
    with pytest.raises(ValueError, match="not fitted"):
        SketchedKernelRegressor().compress(3)
    K = kernel_matrix("rbf", X, X, 1.0)
    with pytest.raises(ValueError, match="precomputed"):
        SketchedKernelRegressor(kernel="precomputed").fit(K, y).compress(3)
    model = fit(X, y, memory_limit=2**20)
    model.set_params(memory_limit=1000)
    with pytest.raises(ValueError, match="memory_limit"):
        model.compress(50)
    with pytest.raises(ValueError, match="features"):
        model.compress(50, X[:, :2])
