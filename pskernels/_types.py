"""Names of types that modules share."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import scipy.sparse as sp

    from pskernels.kernels import Kernel
    from pskernels.point_metric import Metric
    from pskernels.sketches import Distribution, Sketch

# Arrays of float32 or float64, of integers, of booleans, and of whatever users give.
Array: TypeAlias = npt.NDArray[np.floating[Any]]
Indices: TypeAlias = npt.NDArray[np.integer[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]
AnyArray: TypeAlias = npt.NDArray[Any]

Dtype: TypeAlias = np.dtype[np.floating[Any]]
Shape: TypeAlias = tuple[int, ...]
RandomState: TypeAlias = int | np.random.Generator | np.random.RandomState | None

Path: TypeAlias = str | os.PathLike[str]

if TYPE_CHECKING:
    # Points as users give them, and as they are after they were checked.
    Points: TypeAlias = npt.ArrayLike | sp.sparray | sp.spmatrix
    SparsePoints: TypeAlias = sp.csr_array[Any]
    CheckedPoints: TypeAlias = AnyArray | SparsePoints

    # S_SG, or other matrices that kernels are multiplied by.
    Weights: TypeAlias = Array | sp.csc_array[Any]

    KernelLike: TypeAlias = str | Kernel | Callable[[Any, Any], npt.ArrayLike]
    MetricLike: TypeAlias = npt.ArrayLike | Metric
    SketchLike: TypeAlias = Sketch | Distribution
else:  # they would be imported in circles
    Points = SparsePoints = CheckedPoints = Weights = Any
    KernelLike = MetricLike = SketchLike = Any


class PointsLike(Protocol):
    """What rows are read of: an array, a sparse array, a source."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, numbers: Any, /) -> Any: ...


class HasDtype(Protocol):
    """What has a type of numbers."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
