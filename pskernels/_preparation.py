"""What products need to know of points: that they are finite, a gamma, a center.

Every array of points passes here once before compiled code sees it, whoever gave it.
"""

from functools import partial
from typing import Any, TypeVar

import numpy as np

from pskernels._engine import column_moments
from pskernels._points import find_center
from pskernels._types import Array
from pskernels._validation import raise_not_finite
from pskernels.kernels import GammaKernel, Kernel, Precomputed
from pskernels.point_metric import check_metric

_Kernel = TypeVar("_Kernel", bound=Kernel)


def prepare(
    kernel: _Kernel, X: Any, name: str, n_threads: int, memory_limit: int
) -> tuple[_Kernel, Array | None]:
    """Check the values of X; return the kernel with its gamma, and the center."""
    if isinstance(kernel, Precomputed):  # only what is needed of it is read
        return kernel, None
    check_metric(kernel.metric, X, name)
    needs_variance = getattr(kernel, "gamma", None) == "scale"
    moments = partial(column_moments, X)
    if hasattr(X, "column_moments"):  # a source, which may be on other machines
        moments = X.column_moments
    metric = kernel.metric if needs_variance else None
    mean, variance = moments(needs_variance, n_threads, memory_limit, metric)
    if not np.isfinite(mean).all():
        raise_not_finite(X, name)
    if kernel.non_negative and X.min() < 0:
        raise ValueError(
            f"the kernel {kernel} needs values that are not negative, but {name} has "
            f"a minimum of {X.min():g}"
        )
    if isinstance(kernel, GammaKernel):
        kernel = kernel.with_gamma(X, variance, memory_limit)
    if not kernel.centred:
        return kernel, np.zeros(X.shape[1])
    return kernel, find_center(X, memory_limit)
