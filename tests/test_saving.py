"""Models in files: the same predictions, to the last bit, and no code executed."""

import json
import pickle
import subprocess
import sys
import zipfile

import fuzz_models
import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.model_selection import KFold
from test_estimators import make_data
from test_memory import peak_below

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
    X = sp.random_array((200, 30), density=0.2, random_state=rng, format="csr")
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
    with pytest.raises(ValueError, match="'header' is missing"):
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
    with pytest.raises(ValueError, match="is no type of numbers"):
        load(path)


@pytest.fixture
def saved(rng, tmp_path):
    """A saved model: its path, header, arrays and the state of its map."""
    X, y = make_data(rng)
    path = tmp_path / "model.npz"
    SketchedKernelRegressor(**SMALL).fit(X, y).save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    header = json.loads(arrays.pop("header").tobytes())
    return path, header, arrays, header["model"]["state"]["feature_map_"]["state"]


def refused(saved, match):
    path, header, arrays, _ = saved
    write(path, header, **arrays)
    with pytest.raises(ValueError, match=f"{path} is not a model.*{match}"):
        load(path)


@pytest.mark.parametrize(
    "make_wrong, match",
    [
        (lambda indices: np.full_like(indices, 2**30), "indices of a sparse array"),
        (lambda indices: -indices, "indices of a sparse array"),
        (lambda indices: indices[:-1], "offsets"),
        (lambda indices: indices.astype(float), "integers for indices"),
    ],
)
def test_row_numbers_outside_the_sketch_are_refused(make_wrong, match, saved):
    _, _, arrays, state = saved
    name = state["sketch_"]["state"]["weights"]["indices"]
    arrays[name] = make_wrong(arrays[name])
    refused(saved, match)


def test_offsets_that_rise_and_fall_are_refused(saved):
    _, _, arrays, state = saved
    name = state["sketch_"]["state"]["weights"]["indptr"]
    offsets = np.full_like(arrays[name], 2**30)
    offsets[0], offsets[-1] = 0, -1
    arrays[name] = offsets
    refused(saved, "offsets")


def test_a_sketch_of_another_shape_is_refused(saved):
    """A map whose sketch has few rows would write S·K outside of its array."""
    _, _, _, state = saved
    sketch = state["sketch_"]
    sketch["state"]["shape"] = {"$": "tuple", "items": [1_000_000, 400]}
    refused(saved, r"weights must have shape \(1000000,")
    sketch["class"] = "PSparsified"
    sketch["state"] = {"s": 5, "p": None, "kind": "rademacher"}
    refused(saved, "sketch_ must not be PSparsified")


@pytest.mark.parametrize(
    "name", ["_center", "landmarks_", "whitening_", "kernel_", "_dtype"]
)
def test_parts_of_a_map_that_are_missing_are_refused(name, saved):
    saved[3][name] = None
    refused(saved, name)
    del saved[3][name]
    refused(saved, "type of features" if name == "_dtype" else name)


@pytest.mark.parametrize(
    "change",
    [
        lambda landmarks: landmarks[:5],
        lambda landmarks: landmarks.astype("U3"),
        lambda landmarks: np.where(landmarks > 0, np.nan, landmarks),
    ],
)
def test_landmarks_that_do_not_fit_are_refused(change, saved):
    _, _, arrays, state = saved
    name = state["landmarks_"]["name"]
    arrays[name] = change(arrays[name])
    refused(saved, "landmarks_")


@pytest.mark.parametrize(
    "name, value, match",
    [
        ("intercept_", "3", "intercept_ must not be '3'"),
        ("n_iter_", -1, "n_iter_ must not be -1"),
        ("coef_", None, "coef_ must not be None"),
        ("predict", 3, "predict must not be 3"),
        ("n_features_in_", 7, "7 features do not fit"),
        ("kernel", "precomputed", "kernel='precomputed', but the map has RBF"),
    ],
)
def test_what_was_learnt_is_checked(name, value, match, saved):
    saved[1]["model"]["state"][name] = value
    refused(saved, match)


def test_what_is_missing_is_named(saved):
    del saved[1]["model"]["state"]["loss_"]
    refused(saved, "loss_ is missing")
    saved[2].clear()
    refused(saved, "is missing, or named twice")


@pytest.mark.parametrize(
    "model", [None, 3, "text", {"$": "list", "items": []}, {"$": "float"}, [], {}]
)
def test_what_is_no_estimator_is_refused(model, tmp_path):
    path = tmp_path / "model.npz"
    header = {"format": "pskernels", "version": saving.VERSION, "model": model}
    write(path, header)
    with pytest.raises(ValueError, match=f"{path} is not a model of pskernels"):
        load(path)


@pytest.mark.parametrize("depth", [1000, 1_000_000])
def test_deep_headers_are_refused(depth, tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, header=np.frombuffer(b"[" * depth, np.uint8))
    with pytest.raises(ValueError, match=f"{path} is not a model of pskernels"):
        load(path)


def bomb(kind, path, header, arrays):
    """A small file that asks for much memory."""
    if kind == "declared":  # 8 PB, says its header
        member = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % 2**50
        text = json.dumps(header).encode()
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {"header": text, **arrays}.items():
                archive.writestr(f"{name}.npy", fuzz_models.npy(data))
            archive.writestr("a0.npy", saving.NPY_MAGIC + b"\x76\0" + member)
    elif kind == "compressed":
        arrays["a0"] = np.zeros(10**8, np.int8)
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        np.savez_compressed(path, header=text, **arrays)
    else:  # an array that is named by many nodes
        name = max(arrays, key=lambda name: arrays[name].nbytes)
        many = {"$": "list", "items": 1000 * [{"$": "array", "name": name}]}
        header["model"]["state"]["verbose"] = many
        write(path, header, **arrays)


@pytest.mark.parametrize("kind", ["declared", "compressed", "repeated"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_files_that_ask_for_much_memory_are_refused(kind, saved):
    path, header, arrays, _ = saved
    bomb(kind, path, header, arrays)
    with peak_below(2**20 + 30 * path.stat().st_size):
        with pytest.raises(ValueError, match=f"{path} is not a model of pskernels"):
            load(path)


def test_damaged_files_are_refused_or_usable():
    outcomes = fuzz_models.fuzz(500, seed=0)
    assert outcomes["refused"] > 250 and outcomes["fine"] > 10


FULL_DISK = """
import resource, sys
import numpy as np
from pskernels.estimators import KernelSketch

X = np.random.default_rng(0).normal(size=(500, 3))
path = sys.argv[1]
KernelSketch(n_components=5, random_state=0).fit(X).save(path)
before = open(path, "rb").read()
resource.setrlimit(resource.RLIMIT_FSIZE, (len(before), len(before)))
try:
    KernelSketch(n_components=50, random_state=0).fit(X).save(path)
except OSError as error:
    assert open(path, "rb").read() == before
    print("kept")
"""


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.npz"
    command = [sys.executable, "-P", "-c", FULL_DISK, str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert printed.stdout.strip() == "kept", printed.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["model.npz"]


def test_a_link_stays_a_link(rng, tmp_path):
    X, y = make_data(rng)
    model = SketchedKernelRegressor(**SMALL).fit(X, y)
    (tmp_path / "model.npz").symlink_to(tmp_path / "target.npz")
    model.save(tmp_path / "model.npz")
    assert (tmp_path / "model.npz").is_symlink()
    load(tmp_path / "target.npz")


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
