"""Models in files: the same predictions, to the last bit, and no code executed."""

import json
import pickle
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.model_selection import KFold
from test_estimators import make_data

import pskernels as psk
from pskernels.estimators import (
    KernelSketch,
    SketchedKernelClassifier,
    SketchedKernelClassifierCV,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
    load,
    saving,
)

SMALL = dict(n_components=20, random_state=0)

MODELS = {
    "transformer": KernelSketch(kernel="matern32", **SMALL),
    "regressor": SketchedKernelRegressor(**SMALL),
    "outputs": SketchedKernelRegressor(output_matrix=np.eye(2) + 0.1, **SMALL),
    "growing": SketchedKernelRegressor(n_components="auto", p="auto", random_state=0),
    "kernel": SketchedKernelRegressor(kernel=psk.Matern(0.5, nu=2.5), **SMALL),
    "sketch": SketchedKernelRegressor(sketch=psk.SubSampling(indices=np.arange(30))),
    "solver": SketchedKernelRegressor(solver=psk.LBFGS(), **SMALL),
    "gaussian": SketchedKernelRegressor(sketch="gaussian", **SMALL),
    "precomputed": SketchedKernelRegressor(kernel="precomputed", **SMALL),
    "quantiles": SketchedQuantileRegressor(quantiles=np.array([0.2, 0.7]), **SMALL),
    "classifier": SketchedKernelClassifier(loss="logistic", **SMALL),
    "search": SketchedKernelRegressorCV(
        alphas=[1e-3, 1e-2], gammas=[1.0], kappas=["auto", 0.5], cv=3, **SMALL
    ),
    "class search": SketchedKernelClassifierCV(
        alphas=[1e-3], gammas=[0.5, 1.0], cv=3, **SMALL
    ),
}


def fit(name, rng):
    X, y = make_data(rng, outputs=(2,) if name == "outputs" else ())
    if name.startswith("class"):
        y = np.where(y > 0.5, "high", "low").astype(object)
    if name == "precomputed":
        X = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    return MODELS[name].fit(X, y), X


def outcome(model, X):
    for method in ("transform", "predict_proba", "decision_function", "predict"):
        if hasattr(model, method):
            return getattr(model, method)(X)


def assert_same(one, other):
    """The same parameters and attributes, arrays bitwise."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, (list, tuple)):
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif sp.issparse(one):
        assert (one != other).nnz == 0
    elif hasattr(one, "__dict__"):
        assert_same(
            {k: v for k, v in vars(one).items() if k != "T"},
            {k: v for k, v in vars(other).items() if k != "T"},
        )
    else:
        assert one == other


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name, rng, tmp_path):
    model, X = fit(name, rng)
    path = tmp_path / "model.psk"
    model.save(path)
    for other in (load(path), type(model).load(str(path))):
        assert_same(model, other)
        np.testing.assert_array_equal(outcome(other, X), outcome(model, X))
    with zipfile.ZipFile(path) as archive:
        assert all(member.endswith(".npy") for member in archive.namelist())
    np.load(path, allow_pickle=False)


@pytest.mark.parametrize("how", ["pickle", "skops"])
@pytest.mark.parametrize("name", MODELS)
def test_pickle_and_skops(name, how, rng):
    model, X = fit(name, rng)
    if how == "pickle":
        other = pickle.loads(pickle.dumps(model))
    else:
        import skops.io

        data = skops.io.dumps(model)
        trusted = skops.io.get_untrusted_types(data=data)
        other = skops.io.loads(data, trusted=trusted)
    np.testing.assert_array_equal(outcome(other, X), outcome(model, X))


def test_sparse_landmarks_and_float32(rng, tmp_path):
    X = sp.random_array((200, 30), density=0.2, rng=rng, format="csr")
    y = X.sum(axis=1)
    for points in (X, X.astype(np.float32), X.toarray().astype(np.float32)):
        model = SketchedKernelRegressor(**SMALL).fit(points, y)
        model.save(tmp_path / "model.npz")
        predicted = load(tmp_path / "model.npz").predict(points)
        assert predicted.dtype == points.dtype
        np.testing.assert_array_equal(predicted, model.predict(points))


def test_an_estimator_that_is_not_fitted(tmp_path):
    SketchedKernelRegressor(alpha=float("inf")).save(tmp_path / "m.npz")
    other = load(tmp_path / "m.npz")
    assert other.alpha == float("inf") and not hasattr(other, "coef_")


def test_what_cannot_be_saved_is_named(rng, tmp_path):
    X, y = make_data(rng)
    path = tmp_path / "model.npz"
    model = SketchedKernelRegressor(kernel=lambda a, b: a @ b.T).fit(X, y)
    with pytest.raises(TypeError, match=r"SketchedKernelRegressor.kernel cannot be"):
        model.save(path)
    model = SketchedKernelRegressorCV(alphas=[1e-3], gammas=[1.0], cv=KFold(3))
    with pytest.warns(UserWarning, match=r"saved as None: .*\.cv cannot be saved"):
        model.fit(X, y).save(path)
    np.testing.assert_array_equal(load(path).predict(X), model.predict(X))


def write(path, header, **arrays):
    text = json.dumps(header).encode()
    np.savez(path, header=np.frombuffer(text, np.uint8), **arrays)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(b"not an archive")
    with pytest.raises(ValueError, match="is not a model of pskernels"):
        load(path)
    np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match="no header"):
        load(path)
    write(path, {"format": "other"})
    with pytest.raises(ValueError, match="is not a model of pskernels"):
        load(path)
    write(path, {"format": "pskernels", "version": 2, "library": "9.0"})
    with pytest.raises(
        ValueError, match=r"version 2 .* pskernels 9.0.* reads version 1"
    ):
        load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.npz")


def test_loading_makes_nothing_but_known_classes(tmp_path):
    path = tmp_path / "model.npz"
    evil = {"$": "object", "class": "os.system", "state": {"command": "true"}}
    header = {"format": "pskernels", "version": saving.VERSION, "model": evil}
    write(path, header)
    with pytest.raises(ValueError, match="os.system"):
        load(path)
    header["model"] = {"$": "array", "name": "a0"}
    write(path, header, a0=np.array([print], dtype=object))  # a pickle inside
    with pytest.raises(ValueError, match="allow_pickle"):
        load(path)


def test_files_that_would_hurt_compiled_code_are_refused(rng, tmp_path):
    X, y = make_data(rng)
    path = tmp_path / "model.npz"
    SketchedKernelRegressor(**SMALL).fit(X, y).save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    state = header["model"]["state"]["feature_map_"]["state"]
    indices = state["sketch_"]["state"]["weights"]["indices"]
    landmarks = state["landmarks_"]["name"]
    for name, wrong in [
        (indices, np.full_like(arrays[indices], 2**30)),
        (landmarks, arrays[landmarks][:5]),
        (landmarks, arrays[landmarks].astype("U3")),
    ]:
        write(path, header, **{**arrays, name: wrong})
        with pytest.raises(ValueError, match="indices|landmarks_"):
            load(path)
    write(path, header)
    with pytest.raises(ValueError, match="is damaged"):
        load(path)


def test_metadata_requests_are_left_out(rng, tmp_path):
    X, y = make_data(rng)
    model = SketchedKernelClassifier(**SMALL).fit(X, y > 0.5)
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True)
    with pytest.warns(UserWarning, match="_metadata_request cannot be saved"):
        model.save(tmp_path / "model.npz")
    other = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


def test_the_class_is_checked(rng, tmp_path):
    X, y = make_data(rng)
    path = tmp_path / "model.npz"
    SketchedKernelRegressor(**SMALL).fit(X, y).save(path)
    with pytest.raises(TypeError, match="has a SketchedKernelRegressor, not a Kernel"):
        KernelSketch.load(path)
