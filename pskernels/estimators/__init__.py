"""Estimators for scikit-learn: ``pip install pskernels[sklearn]``.

    X -> KernelSketch: features z_S(x)                        transformer
    X, y -> features -> loss, solver -> model                 regressor, quantile,
                                                              classifier
    ... for alphas × gammas × (kappas, epsilons), by folds    search
    ... kernel, metric, alpha and rows within a time budget   auto

Each stands on the functions of the package, which know nothing of scikit-learn.
"""

try:
    import sklearn
except ImportError as error:
    raise ImportError(
        "pskernels.estimators needs scikit-learn: pip install scikit-learn",
        name="sklearn",
    ) from error

if tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 6):
    raise ImportError(
        "pskernels.estimators needs scikit-learn 1.6 or later, found "
        f"{sklearn.__version__}: pip install --upgrade scikit-learn",
        name="sklearn",
    )

from pskernels.estimators.auto import (
    AutoKernelClassifier,
    AutoKernelRegressor,
    AutoQuantileRegressor,
)
from pskernels.estimators.classifier import SketchedKernelClassifier
from pskernels.estimators.displays import (
    ConvergenceDisplay,
    CVResultsDisplay,
    MetricDisplay,
    PITDisplay,
    QuantileDisplay,
    ReliabilityDisplay,
)
from pskernels.estimators.docs import complete_docstrings
from pskernels.estimators.quantile import SketchedQuantileRegressor
from pskernels.estimators.regressor import SketchedKernelRegressor
from pskernels.estimators.saving import load, save
from pskernels.estimators.search import (
    SketchedKernelClassifierCV,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressorCV,
)
from pskernels.estimators.transformer import KernelSketch

__all__ = [
    "AutoKernelClassifier",
    "AutoKernelRegressor",
    "AutoQuantileRegressor",
    "CVResultsDisplay",
    "ConvergenceDisplay",
    "KernelSketch",
    "MetricDisplay",
    "PITDisplay",
    "QuantileDisplay",
    "ReliabilityDisplay",
    "SketchedKernelClassifier",
    "SketchedKernelClassifierCV",
    "SketchedKernelRegressor",
    "SketchedKernelRegressorCV",
    "SketchedQuantileRegressor",
    "SketchedQuantileRegressorCV",
    "load",
    "save",
]

complete_docstrings(
    [
        KernelSketch,
        SketchedKernelRegressor,
        SketchedQuantileRegressor,
        SketchedKernelClassifier,
        SketchedKernelRegressorCV,
        SketchedQuantileRegressorCV,
        SketchedKernelClassifierCV,
        AutoKernelRegressor,
        AutoQuantileRegressor,
        AutoKernelClassifier,
    ]
)
