import os
import sys
from pathlib import Path

# Tests that run side by side have a core each: threads that wait for one another would
# spin.  Before NumPy is imported, which makes threads of its own.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("PSKERNELS_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")

import numpy as np
import pytest

# for bench/, and last: pskernels must be the one that is installed
sys.path.append(str(Path(__file__).parents[1]))


def only_long(*case):
    """A case of a test that `bash .ci/long` alone tries."""
    return pytest.param(*case, marks=pytest.mark.long)


def mostly_long(cases, kept):
    """Cases of several values; `bash .ci/long` alone tries those that are not kept."""
    return [case if case in kept else only_long(*case) for case in cases]


# Relative error, in the Frobenius norm, against a float64 dense reference.
TOLERANCE = {"float64": 1e-12, "float32": 2e-6}


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    return request.param


@pytest.fixture
def tolerance(dtype):
    return TOLERANCE[dtype]


@pytest.fixture
def rng():
    return np.random.default_rng(42)
