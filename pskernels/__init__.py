"""Kernel machines for any Lipschitz loss, by p-sparsified sketches.

seed -> S = S_SG · S_SS -> landmarks X[idx] -> tiles of K(X[idx], X) -> S·K, S·K·Sᵀ
        sketches                              gram, kernels
     -> z_S(x) -> loss + solver -> model with a certificate
        feature_map  losses, objective, solvers
"""

try:
    from pskernels import _gram  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the compiled part of pskernels is missing: this is a source folder that was "
        "not built in place. Run `pip install -e .` there, or leave it "
        "(`python -P` does not look into the current folder)"
    ) from error

from pskernels.feature_map import FeatureMap, RandomFourierFeatures
from pskernels.gram import SketchedGram, kernel_matmul, sketch_gram
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
    Hinge,
    Huber,
    Logistic,
    Loss,
    Pinball,
    Squared,
    SquaredHinge,
)
from pskernels.plots import plot_convergence
from pskernels.sketches import (
    ROS,
    Accumulation,
    CountSketch,
    Gaussian,
    PSparsified,
    Sketch,
    SubSampling,
)
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
    "ConvergenceWarning",
    "Cosine",
    "CountSketch",
    "Direct",
    "EpsilonInsensitive",
    "FeatureMap",
    "Gaussian",
    "Hinge",
    "Huber",
    "LBFGS",
    "Laplacian",
    "Linear",
    "Logistic",
    "Loss",
    "Matern",
    "Newton",
    "PSparsified",
    "Pinball",
    "Polynomial",
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
    "kernel_matmul",
    "path",
    "plot_convergence",
    "sketch_gram",
    "solve",
]
