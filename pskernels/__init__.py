"""Kernel machines for any Lipschitz loss, by p-sparsified sketches.

seed -> S = S_SG · S_SS -> landmarks X[idx] -> tiles of K(X[idx], X) -> S·K, S·K·Sᵀ
        sketches                              gram, kernels
     -> z_S(x) -> loss + solver -> model with a certificate
        feature_map  losses, outputs, objective, solvers, quantiles; metrics
"""

try:
    from pskernels import _gram  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the compiled part of pskernels is missing: this is a source folder that was "
        "not built in place. Run `pip install -e .` there, or leave it "
        "(`python -P` does not look into the current folder)"
    ) from error

import importlib
from types import ModuleType

from pskernels.compression import Compression
from pskernels.distribution import QuantileDistribution
from pskernels.feature_map import FeatureMap
from pskernels.fourier import RandomFourierFeatures
from pskernels.gram import SketchedGram, kernel_gradient, kernel_matmul, sketch_gram
from pskernels.kernels import (
    RBF,
    Cosine,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    Sobolev,
)
from pskernels.losses import (
    Absolute,
    EpsilonInsensitive,
    Expectile,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Pinball,
    Poisson,
    Squared,
    SquaredHinge,
)
from pskernels.metrics import (
    arrmse,
    coverage,
    crossing_loss,
    crps,
    pinball_loss,
    relative_mse,
    rrmse,
)
from pskernels.outputs import graph_matrix, quantile_matrix
from pskernels.plots import plot_convergence
from pskernels.point_metric import Metric
from pskernels.quantiles import QuantileResult, rearrange, solve_quantiles
from pskernels.sketches import (
    ROS,
    Accumulation,
    CountSketch,
    Gaussian,
    PSparsified,
    Sketch,
    SubSampling,
)
from pskernels.softmax import solve_softmax
from pskernels.solvers import (
    LBFGS,
    Adam,
    ConvergenceWarning,
    Direct,
    Newton,
    SolveResult,
    path,
    solve,
)

__version__ = "0.1.0"

__all__ = [
    "Absolute",
    "Accumulation",
    "Adam",
    "Compression",
    "ConvergenceWarning",
    "Cosine",
    "CountSketch",
    "Direct",
    "EpsilonInsensitive",
    "Expectile",
    "FeatureMap",
    "Gamma",
    "Gaussian",
    "Hinge",
    "Huber",
    "LBFGS",
    "Laplacian",
    "Linear",
    "Logistic",
    "Loss",
    "Matern",
    "Metric",
    "Newton",
    "PSparsified",
    "Pinball",
    "Poisson",
    "Polynomial",
    "QuantileDistribution",
    "QuantileResult",
    "RBF",
    "ROS",
    "RandomFourierFeatures",
    "Sketch",
    "SketchedGram",
    "Sobolev",
    "SolveResult",
    "Squared",
    "SquaredHinge",
    "SubSampling",
    "arrmse",
    "coverage",
    "crossing_loss",
    "crps",
    "graph_matrix",
    "kernel_gradient",
    "kernel_matmul",
    "path",
    "pinball_loss",
    "plot_convergence",
    "quantile_matrix",
    "rearrange",
    "relative_mse",
    "rrmse",
    "sketch_gram",
    "solve",
    "solve_quantiles",
    "solve_softmax",
]

# Parts that are imported when they are asked for: some need other packages.
_PARTS = ("dask", "estimators", "onnx", "skpro", "table", "theory")


def __getattr__(name: str) -> ModuleType:
    if name in _PARTS:
        return importlib.import_module(f"pskernels.{name}")
    raise AttributeError(f"module 'pskernels' has no attribute {name!r}")
