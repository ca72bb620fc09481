"""Estimators for scikit-learn: ``pip install pskernels[sklearn]``.

    X -> KernelSketch: features z_S(x)                        transformer
    X, y -> features -> loss, solver -> model                 regressor, quantile,
                                                              classifier
    ... for alphas × gammas × (kappas, epsilons), by folds    search

Each stands on the functions of the package, which know nothing of scikit-learn.
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "pskernels.estimators needs scikit-learn: pip install pskernels[sklearn]"
    ) from error

from pskernels.estimators.classifier import SketchedKernelClassifier
from pskernels.estimators.displays import (
    ConvergenceDisplay,
    CVResultsDisplay,
    QuantileDisplay,
)
from pskernels.estimators.quantile import SketchedQuantileRegressor
from pskernels.estimators.regressor import SketchedKernelRegressor
from pskernels.estimators.saving import load
from pskernels.estimators.search import (
    SketchedKernelClassifierCV,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressorCV,
)
from pskernels.estimators.transformer import KernelSketch

__all__ = [
    "CVResultsDisplay",
    "ConvergenceDisplay",
    "KernelSketch",
    "QuantileDisplay",
    "SketchedKernelClassifier",
    "SketchedKernelClassifierCV",
    "SketchedKernelRegressor",
    "SketchedKernelRegressorCV",
    "SketchedQuantileRegressor",
    "SketchedQuantileRegressorCV",
    "load",
]
