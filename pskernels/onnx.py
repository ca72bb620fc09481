"""Fitted machines as ONNX graphs, by skl2onnx, alone or at the end of a pipeline.

    L·(x - center) -> k(x, landmarks) -> @ dual_coef_ + intercept_ -> as `predict`

Importing this module registers the machines with skl2onnx, for the kernels "rbf" and
"laplacian".  A graph has all landmarks: `compress` before.  It computes in float64,
whatever the type of its input, since dual coefficients are large and cancel; what it
returns has the type of the input.  Distances of "laplacian" take n·m·d numbers, so that
inputs should have a few thousand rows at most.  Needs `pip install 'pskernels[onnx]'`.

Examples
--------
>>> import pskernels.onnx  # doctest: +SKIP
>>> from skl2onnx import to_onnx  # doctest: +SKIP
>>> graph = to_onnx(model.compress(200), X[:1].astype("float32"))  # doctest: +SKIP
"""

from typing import Any

import numpy as np
from skl2onnx import update_registered_converter
from skl2onnx.algebra.onnx_ops import (
    OnnxAbs,
    OnnxAdd,
    OnnxArgMax,
    OnnxCast,
    OnnxConcat,
    OnnxExp,
    OnnxGather,
    OnnxIdentity,
    OnnxLog,
    OnnxMatMul,
    OnnxMax,
    OnnxMin,
    OnnxMul,
    OnnxNeg,
    OnnxReduceSum,
    OnnxReshape,
    OnnxSoftmax,
    OnnxSub,
    OnnxTopK,
)
from skl2onnx.common.data_types import (
    DoubleTensorType,
    FloatTensorType,
    Int64TensorType,
    StringTensorType,
)
from skl2onnx.proto import onnx_proto
from sklearn.utils.validation import check_is_fitted

from pskernels import estimators
from pskernels._types import AnyArray, Array
from pskernels.kernels import RBF, Laplacian

# Axes of distances (n, m, d), and of predictions (n, outputs).
LAST = np.array([-1])


class _Graph:
    """Operators of one opset, and the decisions of a model by them."""

    def __init__(self, operator: Any, container: Any) -> None:
        self.model = operator.raw_operator
        self.version = container.target_opset
        types = onnx_proto.TensorProto
        double = _type_of(operator) is DoubleTensorType
        self.dtype = types.DOUBLE if double else types.FLOAT

    def add(self, op: Any, *inputs: Any, **options: Any) -> Any:
        """Make an operator."""
        return op(*inputs, op_version=self.version, **options)

    def kernel(self, X: Any) -> Any:
        """Compute k(x, landmark) of all pairs."""
        model = self.model
        if not isinstance(model.kernel_, (RBF, Laplacian)):
            raise ValueError(
                "the kernels 'rbf' and 'laplacian' can be exported, not "
                f"{model.kernel_}"
            )
        landmarks: Array = np.asarray(_dense(model.landmarks_), np.float64)
        center = landmarks.mean(axis=0)  # or distances would lose digits
        X = self.add(OnnxCast, X, to=onnx_proto.TensorProto.DOUBLE)
        X, landmarks = self.add(OnnxSub, X, center[None]), landmarks - center
        kernel, metric = model.kernel_, model.kernel_.metric
        if metric is not None:
            landmarks = metric.apply(landmarks)
            if metric.is_diagonal:
                X = self.add(OnnxMul, X, metric.L[None])
            else:
                X = self.add(OnnxMatMul, X, metric.L.T.copy())
        if isinstance(kernel, RBF):
            squares = self.add(OnnxMul, X, X)
            squares = self.add(OnnxReduceSum, squares, LAST, keepdims=1)
            products = self.add(OnnxMatMul, X, -2 * landmarks.T)
            distances = self.add(OnnxAdd, squares, products)
            distances = self.add(OnnxAdd, distances, (landmarks**2).sum(axis=1)[None])
            distances = self.add(OnnxMax, distances, np.zeros(1))
        else:
            shape = np.array([-1, 1, landmarks.shape[1]])
            X = self.add(OnnxReshape, X, shape)
            sizes = self.add(OnnxAbs, self.add(OnnxSub, X, landmarks[None]))
            distances = self.add(OnnxReduceSum, sizes, LAST, keepdims=0)
        return self.add(
            OnnxExp, self.add(OnnxMul, distances, np.array([-kernel.known_gamma]))
        )

    def decisions(self, X: Any) -> Any:
        """Compute decisions, (n, outputs), in float64."""
        coef = self.model.dual_coef_
        products = self.add(OnnxMatMul, self.kernel(X), coef.reshape(len(coef), -1))
        intercept = np.reshape(self.model.intercept_, (1, -1)).astype(np.float64)
        return self.add(OnnxAdd, products, intercept)

    def finish(self, found: Any, output: Any, scope: Any, container: Any) -> None:
        """Cast to the type of the input, and name the result."""
        found = self.add(OnnxCast, found, to=self.dtype)
        self.add(OnnxIdentity, found, output_names=[output]).add_to(scope, container)


def _dense(points: Any) -> AnyArray:
    found: AnyArray = points.toarray() if hasattr(points, "toarray") else points
    return found


def _labels(classes: AnyArray) -> AnyArray:
    """Make classes whole numbers, or text."""
    if classes.dtype.kind in "biuf" and (classes == classes.astype(np.int64)).all():
        return classes.astype(np.int64)
    if classes.dtype.kind in "biuf":
        raise ValueError(f"labels must be int64 or text, got {classes}")
    return classes.astype(str).astype(object)


def _width(model: Any) -> int:
    """Count the columns of predictions."""
    return int(np.prod(model.intercept_.shape)) if np.ndim(model.intercept_) else 1


def _type_of(operator: Any) -> Any:
    double = isinstance(operator.inputs[0].type, DoubleTensorType)
    return DoubleTensorType if double else FloatTensorType


def _regressor_shapes(operator: Any) -> None:
    check_is_fitted(operator.raw_operator)
    n = operator.inputs[0].get_first_dimension()
    shape = [n, _width(operator.raw_operator)]
    operator.outputs[0].type = _type_of(operator)(shape)


def _convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    graph, model = _Graph(operator, container), operator.raw_operator
    found = graph.decisions(operator.inputs[0])
    if getattr(model, "_sorts", False) and _width(model) > 1:
        k = np.array([_width(model)])
        found = graph.add(OnnxTopK, found, k, axis=-1, largest=0, sorted=1)[0]
    if model.loss_.log_link:
        found = graph.add(OnnxExp, found)
    graph.finish(found, operator.outputs[0], scope, container)


def _classifier_shapes(operator: Any) -> None:
    n = operator.inputs[0].get_first_dimension()
    check_is_fitted(operator.raw_operator)
    classes = _labels(operator.raw_operator.classes_)
    label = StringTensorType if classes.dtype == object else Int64TensorType
    operator.outputs[0].type = label([n])
    operator.outputs[1].type = _type_of(operator)([n, len(classes)])


def _convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    graph, model = _Graph(operator, container), operator.raw_operator
    decisions = graph.decisions(operator.inputs[0])
    if len(model.classes_) == 2:
        opposite = graph.add(OnnxNeg, decisions)
        decisions = graph.add(OnnxConcat, opposite, decisions, axis=1)
    classes = _labels(model.classes_)
    best = graph.add(OnnxArgMax, decisions, axis=1, keepdims=0)
    label = graph.add(OnnxGather, classes, best, axis=0)
    graph.add(OnnxIdentity, label, output_names=[operator.outputs[0]]).add_to(
        scope, container
    )
    if hasattr(model, "proba_coef_"):
        raise ValueError(
            "probabilities of probability=True cannot be exported; fit without them"
        )
    if hasattr(model, "predict_proba") and model._multinomial:
        decisions = graph.add(OnnxSoftmax, decisions, axis=1)
    elif hasattr(model, "predict_proba"):
        # log σ(d) = min(d, 0) - log(1 + exp(-|d|)): σ itself may be 0 for all classes
        sizes = graph.add(OnnxExp, graph.add(OnnxNeg, graph.add(OnnxAbs, decisions)))
        logs = graph.add(OnnxLog, graph.add(OnnxAdd, sizes, np.ones(1)))
        logs = graph.add(OnnxSub, graph.add(OnnxMin, decisions, np.zeros(1)), logs)
        decisions = graph.add(OnnxSoftmax, logs, axis=1)
    graph.finish(decisions, operator.outputs[1], scope, container)


def _register() -> None:
    for name in ("KernelRegressor", "QuantileRegressor", "KernelClassifier"):
        for suffix in ("", "CV"):
            cls = getattr(estimators, f"Sketched{name}{suffix}")
            functions, options = (_regressor_shapes, _convert_regressor), None
            if name == "KernelClassifier":
                functions = _classifier_shapes, _convert_classifier
                options = {"zipmap": [True, False, "columns"], "nocl": [True, False]}
            update_registered_converter(
                cls, f"Pskernels{cls.__name__}", *functions, options=options
            )


_register()
