"""Models in files: an .npz archive of arrays, with a header in JSON.

    header    {"format": "pskernels", "version": 1, "library": "0.1.0", "model": node}
    a0, a1 …  the arrays that nodes name

A node is null, a bool, a number or a string, or an object with a "$" that says what it
is: "array" and "scalar" name an array of the archive; "list", "tuple" and "dict" have
nodes; "objects" is an array of objects, "masked" one with a mask; "sparse" has the
parts of a CSR or CSC array; "float" is inf, -inf or nan; "dtype" a type of numbers;
"type" one of a few types of Python and NumPy, "slice" a slice; "object" is an instance
of one of `CLASSES`, or of scikit-learn's in `foreign`, with its attributes.

Loading makes nothing but these: it never executes code that the file names.  A file
may be damaged or made to do harm, so nothing is believed before it is checked: members
are stored as they are, and together no larger than the file; each array is used once
and has the size that its header says; what was learnt has known names, the right types,
and shapes that fit together (`check_learnt` of the classes).
"""

import dataclasses
import inspect
import io
import json
import math
import os
import re
import reprlib
import secrets
import warnings
import zipfile
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias, TypeVar, cast

import numpy as np
import scipy.sparse as sp

from pskernels import (
    choice,
    compression,
    feature_map,
    kernels,
    losses,
    metric_learning,
    point_metric,
    sketches,
    solvers,
)
from pskernels._types import AnyArray
from pskernels._validation import check_compressed
from pskernels.estimators import foreign

_Class = TypeVar("_Class")
# Whether a value is what it has to be.
Test: TypeAlias = Callable[[Any], bool]

FORMAT = "pskernels"
VERSION = 1

CLASSES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        kernels.RBF,
        kernels.Laplacian,
        kernels.Matern,
        kernels.Polynomial,
        kernels.Linear,
        kernels.Cosine,
        kernels.Sobolev,
        kernels.Precomputed,
        sketches.Sketch,
        sketches.PSparsified,
        sketches.Gaussian,
        sketches.SubSampling,
        sketches.Accumulation,
        sketches.CountSketch,
        sketches.ROS,
        losses.Huber,
        losses.EpsilonInsensitive,
        losses.Pinball,
        losses.Absolute,
        losses.Squared,
        losses.Hinge,
        losses.SquaredHinge,
        losses.Logistic,
        losses.Poisson,
        losses.Gamma,
        losses.Expectile,
        solvers.Newton,
        solvers.Direct,
        solvers.LBFGS,
        solvers.Adam,
        solvers.Iteration,
        choice.Growth,
        compression.Compression,
        feature_map.FeatureMap,
        metric_learning.Round,
        point_metric.Metric,
    )
}

# What is left out: sums over the rows of `partial_fit`.
NOT_WRITTEN = ("_batches",)
# What no prediction needs: what cannot be written of it is left out.
NOT_NEEDED = ("random_state", "cv", "scoring", "_metadata_request")

# Types of numbers, text and times, as `np.dtype.str` writes them.
DTYPE = re.compile(r"[<>|][biufcSUmM][1-9]\d{0,8}(\[\w{1,12}\])?")
# The header of an array, as `np.lib.format` writes it.
NPY_HEADER = re.compile(
    r"{'descr': '([^']*)', 'fortran_order': (True|False), "
    r"'shape': \(((?:\d{1,18}(?:, |,(?=\))|(?=\))))*)\), } *\n"
)
MAX_REASON = 500  # characters: what a file says may be long
MAX_KEY = 2**53
NPY_MAGIC = b"\x93NUMPY\x01\x00"


def register(cls: type[_Class]) -> type[_Class]:
    """Let an estimator of this package, or a part of it, be saved; return it."""
    if cls.__module__.startswith("pskernels."):
        CLASSES[cls.__name__] = cls
    return cls


def save(model: object, path: str | os.PathLike[str]) -> None:
    """Write a model, or a pipeline that ends with one, to a file.

    Parameters
    ----------
    model : estimator, or a Pipeline of scikit-learn
        Fitted or not.  Beside the estimators of this package it may have scalers
        (Standard, MinMax, MaxAbs, Robust), SimpleImputer, OneHotEncoder,
        OrdinalEncoder, ColumnTransformer and TransformedTargetRegressor; of functions
        none, since loading never executes code.
    path : str or path
        The file, an .npz archive whatever its name: all of it is written, or nothing.
    """
    arrays: dict[str, AnyArray] = {}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "library": _library_version(),
        "model": _encode(model, arrays, type(model).__name__),
    }
    text = json.dumps(header, allow_nan=False).encode()
    path = os.path.realpath(path)  # a link stays one
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"path must be that of a file, got {path}")
    unfinished = f"{path}.{secrets.token_hex(4)}.part"
    try:
        with open(unfinished, "xb") as file:
            if os.path.exists(path):  # which keeps its permissions
                os.chmod(unfinished, os.stat(path).st_mode)
            first = np.frombuffer(text, np.uint8)
            np.savez(file, header=first, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)
    _sync_folder(os.path.dirname(path))


def _sync_folder(folder: str) -> None:
    """Write the new name to the disk, where folders can be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that `save` wrote.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    The estimator.  Its predictions are those of the one that was saved, to the last
    bit.

    Raises
    ------
    ValueError
        If the file is not a model, or is damaged; the message has the reason.  A file
        never executes code, and takes a small multiple of its size in memory.
    """
    data = Path(path).read_bytes()
    try:
        return _read_model(data)
    # the file may be right: sizes in it are checked beforehand, tables need pandas
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # whatever a damaged file provokes
        reason = (str(error) or type(error).__name__)[:MAX_REASON]
        raise ValueError(
            f"{path} is not a model of pskernels, or damaged: {reason}"
        ) from error


def _read_model(data: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        arrays = _Arrays(archive, len(data))
        header = json.loads(arrays.take("header").tobytes())
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError("its header is of another format")
        if header.get("version") != VERSION:
            raise ValueError(
                f"it has version {header.get('version')} of the format (written by "
                f"pskernels {header.get('library')}), but pskernels "
                f"{_library_version()} reads version {VERSION}"
            )
        model = _decode(header["model"], arrays)
    if not hasattr(model, "save") and type(model).__name__ not in foreign.CLASSES:
        raise ValueError(f"it holds a {type(model).__name__}, which is no estimator")
    return model


class _Arrays:
    """The arrays of an archive, each of which can be taken once."""

    def __init__(self, archive: zipfile.ZipFile, size: int) -> None:
        self._archive = archive
        self._members = {info.filename: info for info in archive.infolist()}
        stored = all(
            info.compress_type == zipfile.ZIP_STORED for info in archive.infolist()
        )
        if not stored or sum(info.file_size for info in archive.infolist()) > size:
            raise ValueError("its members are compressed, or larger than the file")

    def take(self, name: str) -> AnyArray:
        """Read an array into memory of its own."""
        member = self._members.pop(f"{name}.npy", None)
        if member is None:
            raise ValueError(f"the array {name!r} is missing, or named twice")
        data = self._archive.read(member)
        start = 10 + int.from_bytes(data[8:10], "little")
        text = data[10:start].decode("latin-1")
        header = NPY_HEADER.fullmatch(text)
        if not data.startswith(NPY_MAGIC) or header is None:
            raise ValueError(f"{name} is no array of numbers, text or times: {text!r}")
        descr, fortran_order, sizes = header.groups()
        dtype = _decode_dtype(descr)
        shape = tuple(int(size) for size in sizes.split(",") if size.strip())
        if dtype.itemsize * math.prod(shape) != len(data) - start:
            raise ValueError(f"{name} has not the size of {dtype} of shape {shape}")
        if dtype.kind == "b" and max(data[start:], default=0) > 1:
            raise ValueError(f"{name} has truth values beside 0 and 1")
        order: Literal["F", "C"] = "F" if fortran_order == "True" else "C"
        return np.ndarray(shape, dtype, data, start, order=order).copy(order="K")


def _library_version() -> str:
    import pskernels

    return pskernels.__version__


def _encode(value: Any, arrays: dict[str, AnyArray], name: str) -> Any:
    """Encode a value as a node; `name` is what it is called in an error."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$": "float", "value": repr(value)}
    if isinstance(value, np.dtype):
        return {"$": "dtype", "value": value.str}
    if isinstance(value, np.generic):
        return {"$": "scalar", "name": _add(np.asarray(value), arrays)}
    if isinstance(value, np.ma.MaskedArray):
        return {
            "$": "masked",
            "data": _encode(value.data, arrays, name),
            "mask": _encode(np.ma.getmaskarray(value), arrays, name),
        }
    if isinstance(value, np.ndarray):
        return _encode_array(value, arrays, name)
    sparse = sp.issparse(value)
    if sparse and value.format in ("csr", "csc"):
        parts = {part: getattr(value, part) for part in ("data", "indices", "indptr")}
        return {
            "$": "sparse",
            "format": value.format,
            "shape": [int(size) for size in value.shape],
            **{part: _add(array, arrays) for part, array in parts.items()},
        }
    if _get_class(type(value).__name__) is type(value):
        return _encode_object(value, arrays, name)
    if isinstance(value, type) and foreign.TYPES.get(value.__name__) is value:
        return {"$": "type", "value": value.__name__}
    if isinstance(value, slice):
        ends = (value.start, value.stop, value.step)
        return {"$": "slice", "items": [_encode(end, arrays, name) for end in ends]}
    if isinstance(value, dict):
        items = [
            [_encode(key, arrays, name), _encode(item, arrays, f"{name}[{key!r}]")]
            for key, item in value.items()
        ]
        return {"$": "dict", "items": items}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        items = [_encode(item, arrays, f"{name}[{i}]") for i, item in enumerate(value)]
        return {"$": kind, "items": items}
    if hasattr(value, "best_estimator_"):
        raise TypeError(f"{name} cannot be saved: save its best_estimator_")
    raise TypeError(
        f"{name} cannot be saved: {reprlib.repr(value)} is a {type(value).__name__}, "
        "which a file could only name, and loading would have to execute; use pickle, "
        "if you trust the file"
    )


def _get_class(name: str) -> Any:
    if name == "TableModel" and name not in CLASSES:
        import pskernels.table  # noqa: F401, which registers it, and needs pandas
    return CLASSES.get(name) or foreign.CLASSES.get(name)


def _add(array: AnyArray, arrays: dict[str, AnyArray]) -> str:
    name = f"a{len(arrays)}"
    arrays[name] = array
    return name


def _encode_array(
    value: AnyArray, arrays: dict[str, AnyArray], name: str
) -> dict[str, Any]:
    if value.dtype == object:
        items = [_encode(item, arrays, name) for item in value.ravel()]
        return {"$": "objects", "shape": list(value.shape), "items": items}
    return {"$": "array", "name": _add(value, arrays)}


def _encode_object(
    value: Any, arrays: dict[str, AnyArray], name: str
) -> dict[str, Any]:
    if hasattr(value, "_asdict"):
        state = value._asdict()
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        state = {name: getattr(value, name) for name in names}
    elif type(value).__name__ in foreign.CLASSES:
        state = foreign.get_state(value)
    else:
        state = vars(value)
    nodes = {}
    for key, item in state.items():
        if key in NOT_WRITTEN:
            continue
        try:
            nodes[key] = _encode(item, arrays, f"{name}.{key}")
        except TypeError as error:
            if key not in NOT_NEEDED:
                raise
            nodes[key] = None
            warnings.warn(f"saved as None: {error}", UserWarning, stacklevel=2)
    return {"$": "object", "class": type(value).__name__, "state": nodes}


def _decode(node: Any, arrays: _Arrays) -> Any:
    """Decode the value of a node."""
    if not isinstance(node, (dict, list)):
        return node
    node = cast(dict[str, Any], node)  # a list has no kind, and fails
    kind = node["$"]
    if kind == "float":
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[node["value"]]
    if kind == "dtype":
        return _decode_dtype(node["value"])
    if kind == "type":
        return foreign.TYPES[node["value"]]
    if kind == "scalar":
        return arrays.take(node["name"])[()]
    if kind == "array":
        return arrays.take(node["name"])
    if kind == "masked":
        data, mask = (_decode(node[part], arrays) for part in ("data", "mask"))
        return np.ma.MaskedArray(data, mask)
    if kind == "sparse":
        return _decode_sparse(node, arrays)
    if kind == "object":
        return _decode_object(node, arrays)
    if kind == "dict":
        return {_decode_key(k, arrays): _decode(v, arrays) for k, v in node["items"]}
    items = [_decode(item, arrays) for item in node["items"]]
    if kind == "objects":
        values = np.empty(len(items), dtype=object)
        values[:] = items
        return values.reshape(node["shape"])
    if kind == "slice":
        return slice(*items)
    return {"list": list, "tuple": tuple}[kind](items)


def _decode_key(node: Any, arrays: _Arrays) -> Any:
    """Decode a label or name; large integers could be chosen to have the same hash."""
    key = _decode(node, arrays)
    if isinstance(key, int) and abs(key) >= MAX_KEY:
        raise ValueError("a dictionary has a key that is too large")
    return key


def _decode_dtype(text: str) -> np.dtype[Any]:
    if not DTYPE.fullmatch(text):
        raise ValueError(f"{text!r} is no type of numbers, text or times")
    return np.dtype(text)


def _decode_sparse(node: Any, arrays: _Arrays) -> Any:
    make = {"csr": sp.csr_array, "csc": sp.csc_array}[node["format"]]
    names = ("data", "indices", "indptr")
    parts = {name: arrays.take(node[name]) for name in names}
    shape = tuple(node["shape"])
    if len(shape) != 2 or not all(map(_is_integer, shape)):
        raise ValueError(f"a sparse array must not have the shape {shape}")
    # before SciPy sees them: it reads parts that it has not checked
    array = SimpleNamespace(format=node["format"], shape=shape, **parts)
    check_compressed(array, "a sparse array")
    if not _is_numbers(parts["data"]):
        raise ValueError("a sparse array must hold finite numbers")
    return make(tuple(parts.values()), shape=shape)


def _decode_object(node: Any, arrays: _Arrays) -> Any:
    cls = _get_class(node["class"])
    if cls is None:
        raise ValueError(f"a file must not make a {node['class']}")
    state = {key: _decode(item, arrays) for key, item in node["state"].items()}
    if node["class"] in foreign.CLASSES:
        return foreign.make(cls, state)
    if cls is sketches.Gaussian:
        return cls(state["s"])
    if dataclasses.is_dataclass(cls):
        return cls(**state)  # type: ignore[operator]  # which checks it
    if issubclass(cls, tuple):
        if not all(isinstance(number, Real) for number in state.values()):
            raise ValueError(f"{cls.__name__} must hold numbers, got {state}")
        return cls(**state)
    names = state.keys() & inspect.signature(cls).parameters  # older files have fewer
    value = cls(**{name: state.pop(name) for name in names})
    state.pop("_metadata_request", None)
    if state:
        for name, item in state.items():
            if name not in LEARNT or not LEARNT[name](item):
                raise ValueError(f"{cls.__name__}.{name} must not be {item!r:.200}")
        vars(value).update(state)
        value.check_learnt()
    return value


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and bool(value >= 0)  # type: ignore[operator]


def _is_finite(value: Any) -> bool:
    return isinstance(value, Real) and math.isfinite(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and len(value) > 0


def _is_numbers(values: AnyArray) -> bool:
    numbers = values.dtype.kind in "biuf" and values.dtype.itemsize <= 8
    return numbers and bool(np.isfinite(values).all())


def _is_matrix(value: Any) -> bool:
    """Accept finite float64, dense, of one or two dimensions."""
    dense = isinstance(value, np.ndarray) and value.ndim in (1, 2)
    return dense and value.dtype == np.float64 and _is_numbers(value)


def _is_float_type(value: Any) -> bool:
    """Accept types of features: not None, which NumPy takes for float64."""
    return isinstance(value, np.dtype) and value in (np.float32, np.float64)


def _is_points(value: Any) -> bool:
    """Accept finite numbers in rows, dense or sparse; None where K is precomputed."""
    if value is None or sp.issparse(value):  # whose numbers are finite
        return True
    return isinstance(value, np.ndarray) and value.ndim == 2 and _is_numbers(value)


def _is_a(*classes: type) -> Test:
    return lambda value: isinstance(value, classes)


def _list_of(test: Test, kind: type = list) -> Test:
    def is_one(value: Any) -> bool:
        items: Any = value
        return isinstance(value, kind) and all(map(test, items))

    return is_one


# What a fit learns, and what it may be.
LEARNT = {
    # maps
    "kernel_": _is_a(kernels.Kernel),
    "sketch_": _is_a(sketches.Sketch),
    "landmarks_": _is_points,
    "whitening_": lambda value: value is None or _is_matrix(value),
    "rank_": _is_integer,
    "_center": lambda value: value is None or _is_matrix(value),
    "_dtype": _is_float_type,
    # estimators
    "n_features_in_": _is_integer,
    "feature_names_in_": _is_array,
    "feature_map_": _is_a(feature_map.FeatureMap),
    "growth_": _list_of(_is_a(choice.Growth)),
    "rounds_": _list_of(_is_a(metric_learning.Round)),
    "report_": _is_a(str),
    "feature_importances_": _is_matrix,
    "_penalty": _is_finite,
    # machines
    "_made_with": _is_a(dict),
    "loss_": _is_a(losses.Loss),
    "coef_": _is_matrix,
    "dual_coef_": _is_matrix,
    "intercept_": lambda value: _is_finite(value) or _is_matrix(value),
    "alpha_": _is_finite,
    "n_iter_": _is_integer,
    "dual_gap_": _is_number,
    "objective_": _is_number,
    "converged_": _is_a(bool),
    "history_": _list_of(_is_a(solvers.Iteration)),
    "compression_": _is_a(compression.Compression),
    "calibration_": lambda value: type(value) is CLASSES["Calibration"],
    "_y_shape": _list_of(_is_integer, tuple),
    "quantiles_": _list_of(_is_finite, tuple),
    "_one_level": _is_a(bool),
    "_sorts": _is_a(bool),
    "classes_": _is_array,
    "_multinomial": _is_a(bool),
    "proba_coef_": _is_matrix,
    "proba_intercept_": _is_matrix,
    "proba_knots_": _is_matrix,
    # searches
    "cv_results_": _is_a(dict),
    "n_splits_": _is_integer,
    "best_index_": _is_integer,
    "best_params_": _is_a(dict),
    "best_score_": _is_number,
}
