"""Whole pipelines in files: the same predictions, and nothing executed."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import (
    ColumnTransformer,
    TransformedTargetRegressor,
    make_column_transformer,
)
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from pskernels.estimators import (
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedQuantileRegressor,
    load,
    save,
)


@pytest.fixture
def frame(rng):
    n = 200
    return pd.DataFrame(
        {
            "age": np.where(rng.uniform(size=n) < 0.1, np.nan, rng.normal(size=n)),
            "size": rng.normal(size=n),
            "town": pd.Series(rng.choice(["Aix", "Brest", "Cahors"], size=n)),
            "floor": rng.integers(0, 4, size=n),
        }
    )


def make_table_pipeline(machine, encoder=None, remainder="drop"):
    numbers = make_pipeline(
        SimpleImputer(strategy="median", add_indicator=True), StandardScaler()
    )
    encoder = encoder or OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_pipeline(
        ColumnTransformer(
            [("numbers", numbers, ["age", "size"]), ("towns", encoder, ["town"])],
            remainder=remainder,
        ),
        machine,
    )


@pytest.mark.parametrize("remainder", ["drop", "passthrough"])
@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        OneHotEncoder(handle_unknown="ignore", dtype=np.float32),
        OneHotEncoder(categories=[["Aix", "Brest", "Cahors", "Dax"]]),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ],
    ids=["dense", "float32", "given", "ordinal"],
)
def test_tables(encoder, remainder, frame, tmp_path, rng):
    y = rng.normal(size=len(frame))
    pipeline = make_table_pipeline(
        SketchedKernelRegressor(n_components=20, random_state=0), encoder, remainder
    ).fit(frame, y)
    save(pipeline, tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    new = frame.assign(town=frame["town"].iloc[::-1].to_numpy())
    np.testing.assert_array_equal(loaded.predict(new), pipeline.predict(new))
    assert list(loaded.feature_names_in_) == list(frame.columns)
    # and it is an estimator as any other
    loaded.fit(frame, y)
    np.testing.assert_array_equal(loaded.predict(new), pipeline.predict(new))


def test_unknown_categories_stay_unknown(frame, tmp_path, rng):
    pipeline = make_table_pipeline(SketchedKernelClassifier(random_state=0))
    pipeline.fit(frame, rng.integers(0, 3, size=len(frame)))
    save(pipeline, tmp_path / "model.npz")
    new = frame.assign(town="Elne")
    np.testing.assert_array_equal(
        load(tmp_path / "model.npz").predict(new), pipeline.predict(new)
    )


@pytest.mark.parametrize(
    "scaler", [StandardScaler(), MinMaxScaler(), MaxAbsScaler(), RobustScaler()]
)
def test_scalers(scaler, tmp_path, rng):
    X, y = rng.normal(3, 5, size=(100, 3)), rng.normal(size=100)
    pipeline = make_pipeline(scaler, SketchedQuantileRegressor(random_state=0))
    for one in (pipeline, pipeline.fit(X, y)):
        save(one, tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X), pipeline.predict(X))
    assert loaded[-1].dual_gap_ == pipeline[-1].dual_gap_


def test_transformed_targets(tmp_path, rng):
    X, y = rng.normal(size=(100, 3)), rng.normal(5, 3, size=100)
    model = TransformedTargetRegressor(
        SketchedKernelRegressor(random_state=0), transformer=StandardScaler()
    ).fit(X, y)
    save(model, tmp_path / "model.npz")
    np.testing.assert_array_equal(
        load(tmp_path / "model.npz").predict(X), model.predict(X)
    )


@pytest.mark.parametrize(
    "step, reason",
    [
        (FunctionTransformer(np.log1p), "cannot be saved"),
        (PCA(2), "PCA"),
        (
            make_column_transformer((OneHotEncoder(drop="first"), [0])),
            "drop, min_frequency or max_categories",
        ),
    ],
)
def test_what_cannot_be_saved_says_so(step, reason, tmp_path, rng):
    X = np.abs(rng.integers(0, 3, size=(50, 3))).astype(float)
    machine = SketchedKernelRegressor(random_state=0)
    pipeline = make_pipeline(step, machine).fit(X, X.sum(axis=1))
    with pytest.raises(TypeError, match=reason):
        save(pipeline, tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()


def change_header(path, change):
    """Write a model again, its header changed."""
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())
    change(header)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)
    assert zipfile.is_zipfile(path)


def find_objects(node, name):
    """Yield the states of all objects of a class."""
    if isinstance(node, dict):
        if node.get("class") == name:
            yield node["state"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from find_objects(item, name)


@pytest.mark.parametrize(
    "cls, name, value",
    [
        ("StandardScaler", "transform", 1),
        ("StandardScaler", "__class__", "Pipeline"),
        ("OneHotEncoder", "_n_features_outs", {"$": "list", "items": [10**6]}),
        ("OneHotEncoder", "fit", None),
        ("OneHotEncoder", "categories_", {"$": "list", "items": []}),
        ("ColumnTransformer", "fit_transform", 1),
    ],
)
def test_forged_files_are_refused(cls, name, value, frame, tmp_path, rng):
    pipeline = make_table_pipeline(SketchedKernelRegressor(random_state=0))
    pipeline.fit(frame, rng.normal(size=len(frame)))
    path = tmp_path / "model.npz"
    save(pipeline, path)

    def change(header):
        *_, state = find_objects(header, cls)  # the fitted one
        state[name] = value

    change_header(path, change)
    with pytest.raises(ValueError, match="not a model of pskernels, or damaged"):
        load(path)


def test_another_release_of_scikit_learn_is_named(tmp_path, rng):
    X = rng.normal(size=(50, 2))
    pipeline = make_pipeline(StandardScaler(), SketchedKernelRegressor(random_state=0))
    save(pipeline.fit(X, X[:, 0]), tmp_path / "model.npz")

    def change(header):
        for cls in ("StandardScaler", "Pipeline"):
            for state in find_objects(header, cls):
                state["sklearn"] = "0.1"

    change_header(tmp_path / "model.npz", change)
    with pytest.warns(UserWarning, match="made by scikit-learn 0.1"):
        load(tmp_path / "model.npz")


@pytest.mark.parametrize(
    "known",
    [
        np.array([3.0, 1.0, 2.0]),
        np.array([1.0, 1.0, 2.0]),
        np.array([np.nan, 1.0, 2.0]),
        np.array([2, 1, "a"], dtype=object),
        np.array([3.0, 1.0, 2.0], dtype=object),
        np.array(["c", "a", "b"]),
    ],
)
def test_categories_out_of_order_are_refused(known, tmp_path, rng):
    """scikit-learn would look for them by halving, and write beside its arrays."""
    X = rng.integers(1, 4, size=(60, 1)).astype(float)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    machine = SketchedKernelRegressor(random_state=0)
    pipeline = make_pipeline(encoder, machine).fit(X, X[:, 0])
    pipeline[0].categories_ = [known]
    save(pipeline, tmp_path / "model.npz")
    with pytest.raises(ValueError, match="in order|damaged"):
        load(tmp_path / "model.npz")


@pytest.mark.parametrize(
    "column",
    [
        np.array([3, 1, 2, 2]),
        np.array([0.5, np.nan, -1.0, 0.5]),
        np.array([True, False, True, True]),
        np.array(["b", "a", "b", None], dtype=object),
        np.array(["b", "a", "b", "c"]),
    ],
    ids=["int", "gap", "bool", "none", "text"],
)
def test_categories_of_all_kinds(column, tmp_path):
    X = np.repeat(column, 5)[:, None]
    y = np.arange(len(X), dtype=float)
    machine = SketchedKernelRegressor(random_state=0)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    pipeline = make_pipeline(encoder, machine).fit(X, y)
    save(pipeline, tmp_path / "model.npz")
    np.testing.assert_array_equal(
        load(tmp_path / "model.npz").predict(X), pipeline.predict(X)
    )


def test_files_set_neither_folders_nor_processes(frame, tmp_path, rng):
    pipeline = make_table_pipeline(SketchedKernelRegressor(random_state=0))
    pipeline.fit(frame, rng.normal(size=len(frame)))
    pipeline.memory, pipeline[0].n_jobs = "somewhere", 20_000
    save(pipeline, tmp_path / "model.npz")
    loaded = load(tmp_path / "model.npz")
    assert loaded.memory is None and loaded[0].n_jobs is None


def test_the_kind_of_output_is_kept(frame, tmp_path):
    encoder = OneHotEncoder(sparse_output=False).set_output(transform="pandas")
    save(make_pipeline(encoder).fit(frame[["town"]]), tmp_path / "encoder.npz")
    found = load(tmp_path / "encoder.npz").transform(frame[["town"]])
    assert found.columns.tolist() == ["town_Aix", "town_Brest", "town_Cahors"]
