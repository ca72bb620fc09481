"""Damage model files in every way we can think of, and load what is left.

    python tests/fuzz_models.py [mutations] [seed]

`load` may return an estimator, which must then be usable, or raise the ValueError that
names the file; anything else is a finding.  Memory must stay within a small multiple
of the file.  Run it under AddressSanitizer to see what compiled code makes of it
(`bash .ci/sanitize address`).
"""

import io
import json
import os
import struct
import sys
import tempfile
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import pskernels as psk
from pskernels.estimators import (
    KernelSketch,
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
    load,
    save,
)

SMALL = dict(n_components=8, random_state=0)
SQUARES = dict(loss="squared", calibration="jackknife+")

# Python objects of a header, and of the estimator, beside the arrays.
MEMORY_FACTOR = 30
MEMORY_BASE = 2**20
# Memory is measured, which takes as long as loading, for one file of so many.
MEASURED = 5


def make_models():
    """Fitted estimators, one of each kind, with points to try them on."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    kinds = np.column_stack([X[:, :2], rng.integers(0, 4, size=40)])
    sparse = sp.csr_array(np.where(rng.random(X.shape) < 0.5, X, 0.0))
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    labels = np.array(["a", "b", "c"], dtype=object)[np.arange(40) % 3]
    grid = dict(alphas=[1e-3], gammas=[0.5, 1.0], cv=2, kappas=["auto", 1.0])
    return [
        (KernelSketch(**SMALL).fit(X), X),
        (KernelSketch(sketch="gaussian", **SMALL).fit(X.astype(np.float32)), X),
        (SketchedKernelRegressor(**SMALL).fit(sparse, y), X),
        (SketchedKernelRegressor(solver=psk.LBFGS(), **SMALL).fit(X, X), X),
        (SketchedKernelRegressor(kernel="precomputed", **SMALL).fit(K, y), K),
        (SketchedQuantileRegressor(**SMALL).fit(X, y), X),
        (SketchedKernelClassifier(loss="logistic", **SMALL).fit(X, labels), X),
        (SketchedKernelRegressorCV(**grid, **SMALL).fit(X, y), X),
        (SketchedKernelRegressor(**SQUARES, **SMALL).fit(X, y), X),
        (_make_pipeline().fit(kinds, y), kinds),
        (SketchedKernelRegressor(alpha=0.1), X),
    ]


def _make_pipeline():
    """Scale two columns, and take the integers of the third for categories."""
    categories = make_pipeline(
        FunctionTransformer(),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    encode = make_column_transformer((StandardScaler(), [0, 1]), (categories, [2]))
    return make_pipeline(encode, SketchedKernelRegressor(**SMALL))


def save_bytes(model):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        save(model, path)
        return path.read_bytes()


# --------------------------------------------------------------------------
# Mutations of bytes
# --------------------------------------------------------------------------


def mutate_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(data) + 1))
        length = int(min(rng.geometric(0.1), len(data) - at))
        kind = rng.integers(6)
        if kind == 0:
            del data[at : at + length]
        elif kind == 1:
            data[at:at] = rng.bytes(length)
        elif kind == 2:
            data[at : at + length] = rng.bytes(length)
        elif kind == 3:
            data[at:at] = data[at : at + 10 * length]
        elif kind == 4 and at < len(data):
            data[at] ^= 1 << int(rng.integers(8))
        elif rng.random() < 0.2:
            del data[at:]
        if not data:
            break
    return bytes(data)


def mutate_directory(data, rng):
    """Change numbers of the zip structure, whose checks come before any other."""
    data = bytearray(data)
    marks = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06")
    starts = []
    for mark in marks:
        at = data.find(mark)
        while at >= 0:
            starts.append(at)
            at = data.find(mark, at + 1)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.choice(starts)) + int(rng.integers(4, 42))
        value = rng.choice([0, 1, 8, 255, 65535, 2**31 - 1, 2**32 - 1, 12, 99])
        size = int(rng.choice([1, 2, 4]))
        patch = struct.pack("<Q", int(value))[:size]
        data[at : at + size] = patch
    return bytes(data)


# --------------------------------------------------------------------------
# Mutations of what the archive holds
# --------------------------------------------------------------------------


def unpack(data):
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    return json.loads(arrays.pop("header").tobytes()), arrays


def pack(header, arrays, rng):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    members = {"header": np.frombuffer(text, np.uint8), **arrays}
    compression = zipfile.ZIP_DEFLATED if rng.random() < 0.02 else zipfile.ZIP_STORED
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", compression) as archive:
        warnings.simplefilter("ignore")  # names that are there twice
        for name, array in members.items():
            array = array if isinstance(array, bytes) else npy(array)
            for _ in range(1 + (rng.random() < 0.01)):
                archive.writestr(f"{name}.npy", array)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=True)
    return file.getvalue()


def mutate_array(array, rng):
    """Another value, shape or type, or a header that does not fit the data."""
    kind = rng.integers(7)
    if kind == 0 and array.size and array.dtype.kind in "iuf":
        array = array.copy()
        flat = array.reshape(-1)
        odd = [-1, 0, 1, 2**31 - 1, -(2**31)]
        if array.dtype.kind == "f":
            odd += [np.nan, np.inf, -np.inf, 1e308, 5e-324]
        with np.errstate(all="ignore"):
            flat[rng.integers(flat.size)] = rng.choice(odd)
        return array
    if kind == 1:
        kinds = ["<f8", ">f8", "<f4", "<i8", "<i4", "|b1", "<c16", "|u1", "<U3", "|O"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return array.astype(rng.choice(kinds))
            except (ValueError, OverflowError):
                return array
    if kind == 2:
        return array[: rng.integers(len(array) + 1)] if array.ndim else array
    if kind == 3:
        return array.reshape(-1) if rng.random() < 0.5 else array[None]
    if kind == 4:
        return np.repeat(array, 2, axis=0) if array.ndim else array
    if kind == 5:
        return rng.permutation(array.reshape(-1)).reshape(array.shape)
    raw = npy(array)
    text = rng.choice(
        [
            b"'shape': (9007199254740992,)",
            b"'shape': (" + b"1, " * 80 + b")",
            b"'shape': (" + b"(" * 500,
            b"'shape': (-1,)",
            b"'shape': (1e9,)",
        ]
    )
    start = raw.find(b"'shape'")
    end = raw.find(b")", start) + 1
    return raw[:start] + bytes(text) + raw[end:]


def nodes(node, found=None):
    """Every list and dictionary of a header."""
    found = [] if found is None else found
    if isinstance(node, (dict, list)):
        found.append(node)
        for item in node.values() if isinstance(node, dict) else node:
            nodes(item, found)
    return found


ODD = [
    None,
    True,
    0,
    -1,
    1,
    3,
    2**31,
    2**63,
    10**30,
    0.5,
    -0.5,
    1e308,
    "",
    "array",
    "object",
    "precomputed",
    "os.system",
    [],
    {},
    {"$": "list", "items": []},
    {"$": "float", "value": "nan"},
    {"$": "float", "value": "1e5"},
    {"$": "dtype", "value": "O"},
    {"$": "dtype", "value": "V8"},
    {"$": "array", "name": "a0"},
    {"$": "scalar", "name": "header"},
    {"$": "object", "class": "RBF", "state": {"gamma": 1.0}},
    {"$": "object", "class": "Precomputed", "state": {}},
    {"$": "object", "class": "Gaussian", "state": {"s": 3}},
]
CLASS_NAMES = ["RBF", "Sketch", "PSparsified", "FeatureMap", "KernelSketch", "Huber"]
CLASS_NAMES += ["Pipeline", "StandardScaler", "OneHotEncoder", "ColumnModel"]


def mutate_header(header, rng):
    """Change places of the grammar: values, keys, classes, names, depth."""
    text = json.dumps(header)
    if rng.random() < 0.02:
        depth = int(rng.choice([50, 5000, 100_000]))
        return b"[" * depth
    if rng.random() < 0.02:
        return text.replace('"items": [', '"items": [' + "[]," * 1000).encode()
    header = json.loads(text)
    for _ in range(rng.integers(1, 4)):
        places = nodes(header)
        place = places[rng.integers(len(places))]
        keys = list(place) if isinstance(place, dict) else range(len(place))
        if not len(keys):
            continue
        key = keys[rng.integers(len(keys))]
        kind = rng.integers(6)
        if kind == 0:
            del place[key]
        elif kind == 1:
            place[key] = ODD[rng.integers(len(ODD))]
        elif kind == 2:  # another part of the same file
            place[key] = places[rng.integers(1, len(places))] if len(places) > 1 else 0
        elif kind == 3 and isinstance(place, dict):
            if "class" in place:
                place["class"] = str(rng.choice(CLASS_NAMES))
            place[str(rng.choice(["predict", "save", "rank_", "_center"]))] = 3
        elif isinstance(place[key], (int, float)) and not isinstance(place[key], bool):
            place[key] = place[key] * int(rng.choice([-1, 0, 2, 1000])) + 1
        elif isinstance(place[key], str):
            place[key] = f"a{rng.integers(30)}"
        try:
            json.dumps(header)
        except ValueError:  # a part inside of itself
            return json.dumps(json.loads(text)).encode()
    return header


def mutate_contents(contents, rng):
    header, arrays = contents[0], dict(contents[1])
    kind = rng.integers(4)
    if kind < 2 or not arrays:
        header = mutate_header(header, rng)
    elif kind == 2:
        for _ in range(rng.integers(1, 3)):
            name = str(rng.choice(list(arrays)))
            if isinstance(arrays[name], np.ndarray):
                arrays[name] = mutate_array(arrays[name], rng)
    else:
        name, other = (str(rng.choice(list(arrays))) for _ in range(2))
        arrays[name], arrays[other] = arrays[other], arrays[name]
        if rng.random() < 0.3:
            del arrays[name]
    return pack(header, arrays, rng)


def mutate(data, contents, rng):
    kind = rng.integers(10)
    if kind < 3:
        return mutate_bytes(data, rng)
    if kind < 4:
        return mutate_directory(data, rng)
    return mutate_contents(contents, rng)


# --------------------------------------------------------------------------
# Trials
# --------------------------------------------------------------------------


def use(model, X):
    """Predict with what was loaded; a ValueError, such as of other widths, is fine.

    Parts of scikit-learn do not check what they have learnt: any exception is fine.
    """
    own = type(model).__module__.startswith("pskernels.")
    methods = ["transform", "predict"]
    methods += ["predict_interval"] * hasattr(model, "calibration_")
    for method in methods:
        if hasattr(model, method):
            try:
                getattr(model, method)(X[:5])
            except Exception as error:
                if own and not isinstance(error, ValueError):
                    raise
                return f"ValueError: {error}"
    return "fine"


def try_file(data, X, path, measure=True):
    """The outcome of one file: "refused", or that of `use`; AssertionError if bad."""
    path.write_bytes(data)
    if measure:
        tracemalloc.start()
    try:
        model = load(path)
    except ValueError as error:
        assert str(path) in str(error), f"the file is not named: {error}"
        model = None
    if measure:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        allowed = MEMORY_BASE + MEMORY_FACTOR * len(data)
        assert peak <= allowed, f"{peak} bytes for a file of {len(data)}"
    if model is None:
        return "refused"
    assert hasattr(model, "get_params"), f"not an estimator: {model!r}"
    return use(model, X)


def fuzz(n_mutations, seed):
    """Outcomes of so many files, counted; raises at the first finding."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    files = [(save_bytes(model), X) for model, X in make_models()]
    contents = [unpack(data) for data, _ in files]
    outcomes = {}
    memory = (
        "/dev/shm" if Path("/dev/shm").is_dir() else None
    )  # no disk, where possible
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = Path(folder) / "model.npz"
        for data, X in files[:-1]:  # the last one is not fitted
            assert try_file(data, X, path) == "fine"
        for trial in range(n_mutations):
            data, X = files[trial % len(files)]
            mutated = mutate(data, contents[trial % len(files)], rng)
            try:
                outcome = try_file(mutated, X, path, measure=trial % MEASURED == 0)
            except BaseException:
                kept = Path(tempfile.gettempdir()) / f"finding-{seed}-{trial}.npz"
                kept.write_bytes(mutated)
                print(f"finding: {kept}", file=sys.stderr)
                raise
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


if __name__ == "__main__":
    os.environ["PSKERNELS_NUM_THREADS"] = "1"  # predictions are of five points
    n_mutations = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print(f"{n_mutations} mutations, seed {seed}", flush=True)
    for outcome, count in sorted(
        fuzz(n_mutations, seed).items(), key=lambda pair: -pair[1]
    ):
        print(f"{count:8d}  {outcome[:150]}")
