"""Models in files: an .npz archive of arrays, with a header in JSON.

    header    {"format": "pskernels", "version": 1, "library": "0.1.0", "model": node}
    a0, a1 …  the arrays that nodes name

A node is null, a bool, a number or a string, or an object with a "$" that says what it
is: "array" and "scalar" name an array of the archive; "list", "tuple" and "dict" have
nodes; "objects" is an array of objects, "masked" one with a mask; "sparse" has the
parts of a CSR or CSC array; "float" is inf, -inf or nan; "dtype" a type of numbers;
"object" is an instance of one of `CLASSES`, with its attributes.

Loading makes nothing but these: it never executes code that the file names.
"""

import dataclasses
import json
import math
import os
import warnings
import zipfile

import numpy as np
import scipy.sparse as sp

from pskernels import choice, feature_map, kernels, losses, sketches, solvers

FORMAT = "pskernels"
VERSION = 1

CLASSES = {
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
        solvers.Newton,
        solvers.Direct,
        solvers.LBFGS,
        solvers.Adam,
        solvers.Iteration,
        choice.Growth,
        feature_map.FeatureMap,
    )
}

# What no prediction needs: what cannot be written of it is left out.
NOT_NEEDED = ("random_state", "cv", "scoring", "_metadata_request")


def register(cls):
    """Let an estimator of this package be saved, and made by `load`."""
    if cls.__module__.startswith("pskernels."):
        CLASSES[cls.__name__] = cls


def save(model, path):
    """Write a model to a file, exactly at `path`."""
    arrays = {}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "library": _library_version(),
        "model": _encode(model, arrays, type(model).__name__),
    }
    text = json.dumps(header, allow_nan=False).encode()
    unfinished = f"{os.fspath(path)}.{os.getpid()}.part"
    try:
        with open(unfinished, "wb") as file:
            np.savez(file, header=np.frombuffer(text, np.uint8), **arrays)
        os.replace(unfinished, path)
    finally:
        if os.path.exists(unfinished):
            os.remove(unfinished)


def load(path):
    """Read a model that `save` wrote.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    The estimator.  Its predictions are those of the one that was saved, to the last
    bit.
    """
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, zipfile.BadZipFile, EOFError):
        raise ValueError(f"{path} is not a model of pskernels") from None
    if not hasattr(archive, "files") or "header" not in archive.files:
        raise ValueError(f"{path} is not a model of pskernels: it has no header")
    with archive:
        header = json.loads(archive["header"].tobytes())
        if header.get("format") != FORMAT:
            raise ValueError(f"{path} is not a model of pskernels, but {header}")
        if header.get("version") != VERSION:
            raise ValueError(
                f"{path} has version {header.get('version')} of the format (written by "
                f"pskernels {header.get('library')}), but pskernels "
                f"{_library_version()} reads version {VERSION}"
            )
        try:
            return _decode(header["model"], archive)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"{path} is damaged: {error!r}") from error


def _library_version():
    import pskernels

    return pskernels.__version__


def _encode(value, arrays, name):
    """The node of a value; `name` is what it is called in an error."""
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
    if sp.issparse(value) and value.format in ("csr", "csc"):
        parts = {part: getattr(value, part) for part in ("data", "indices", "indptr")}
        return {
            "$": "sparse",
            "format": value.format,
            "shape": [int(size) for size in value.shape],
            **{part: _add(array, arrays) for part, array in parts.items()},
        }
    if type(value).__name__ in CLASSES and type(value) is CLASSES[type(value).__name__]:
        return _encode_object(value, arrays, name)
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
    raise TypeError(
        f"{name} cannot be saved: {value!r} is a {type(value).__name__}, which a file "
        "could only name, and loading would have to execute; use pickle, if you trust "
        "the file"
    )


def _add(array, arrays):
    name = f"a{len(arrays)}"
    arrays[name] = array
    return name


def _encode_array(value, arrays, name):
    if value.dtype == object:
        items = [_encode(item, arrays, name) for item in value.ravel()]
        return {"$": "objects", "shape": list(value.shape), "items": items}
    return {"$": "array", "name": _add(value, arrays)}


def _encode_object(value, arrays, name):
    if hasattr(value, "_asdict"):
        state = value._asdict()
    elif dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        state = {name: getattr(value, name) for name in names}
    else:
        state = vars(value)
    nodes = {}
    for key, item in state.items():
        try:
            nodes[key] = _encode(item, arrays, f"{name}.{key}")
        except TypeError as error:
            if key not in NOT_NEEDED:
                raise
            nodes[key] = None
            warnings.warn(f"saved as None: {error}", UserWarning, stacklevel=2)
    return {"$": "object", "class": type(value).__name__, "state": nodes}


def _decode(node, archive):
    """The value of a node."""
    if not isinstance(node, dict):
        return node
    kind = node["$"]
    if kind == "float":
        return float(node["value"])
    if kind == "dtype":
        return np.dtype(str(node["value"]))
    if kind == "scalar":
        return archive[node["name"]][()]
    if kind == "array":
        return archive[node["name"]]
    if kind == "masked":
        data, mask = (_decode(node[part], archive) for part in ("data", "mask"))
        return np.ma.MaskedArray(data, mask)
    if kind == "sparse":
        make = {"csr": sp.csr_array, "csc": sp.csc_array}[node["format"]]
        parts = tuple(archive[node[part]] for part in ("data", "indices", "indptr"))
        array = make(parts, shape=tuple(node["shape"]))
        array.check_format(full_check=True)
        return array
    if kind == "object":
        return _decode_object(node, archive)
    if kind == "dict":
        items = node["items"]
        return {_decode(k, archive): _decode(v, archive) for k, v in items}
    items = [_decode(item, archive) for item in node["items"]]
    if kind == "objects":
        values = np.empty(len(items), dtype=object)
        values[:] = items
        return values.reshape(node["shape"])
    return {"list": list, "tuple": tuple}[kind](items)


def _decode_object(node, archive):
    if node["class"] not in CLASSES:
        raise ValueError(f"a file must not make a {node['class']}")
    cls = CLASSES[node["class"]]
    state = {key: _decode(item, archive) for key, item in node["state"].items()}
    if cls is sketches.Gaussian:
        return cls(state["s"])
    if issubclass(cls, tuple) or dataclasses.is_dataclass(cls):
        return cls(**state)  # which checks it
    value = object.__new__(cls)
    vars(value).update(state)
    if cls is feature_map.FeatureMap and hasattr(value, "rank_"):
        _check_map(value)
    return value


def _check_map(value):
    """Compiled code relies on the shapes and types of a map."""
    s, m = value.sketch_.weights.shape
    landmarks = value.landmarks_
    shapes = {
        "whitening_": (value.whitening_, (s, value.rank_)),
        "landmarks_": (landmarks, (m, value.n_features_in_)),
        "_center": (value._center, (value.n_features_in_,)),
    }
    for name, (array, shape) in shapes.items():
        if array is not None and (
            array.shape != shape or array.dtype.kind not in "biuf"
        ):
            raise ValueError(
                f"{name} must be numbers of shape {shape}, got {array.dtype} of shape "
                f"{array.shape}"
            )
    if value._dtype not in (np.float32, np.float64) or value.whitening_.dtype != float:
        raise ValueError(f"types must be floating, got {value._dtype}")
