"""Parameters that are not given: what "auto" means."""

import math

import numpy as np

from pskernels._types import Array

# n·alpha by default: `Ridge(0.1)`.  On the data sets of bench/estimators.py squared
# errors hardly change from 1e-4 to 1e-6, since 100 features regularise by themselves;
# pinball losses and classes are best from 0.03 / n to 0.3 / n.
# `python bench/estimators.py defaults` scores it.
DEFAULT_PENALTY = 0.1


# Rows of a sketch: so many times √n, from the least to the most.  On five data sets of
# 3,000 to 16,000 points these have 90 to 99 % of what 2,000 rows gain over 100, for a
# tenth of the time: `python bench/estimators.py rows` prints both.
ROWS_PER_ROOT, LEAST_ROWS, MOST_ROWS = 6, 100, 1000


def default_rows(n: int) -> int:
    """Find how many rows the sketch of n points has, where nothing is given."""
    return min(n, MOST_ROWS, max(LEAST_ROWS, math.ceil(ROWS_PER_ROOT * math.sqrt(n))))


def default_alpha(
    n: float, weight: Array | None = None, penalty: float = DEFAULT_PENALTY
) -> float:
    """Find alpha of n points; whole weights repeat them, others do not change n."""
    if weight is not None and (weight == np.floor(weight)).all():
        n = weight.sum()
    return penalty / n


def is_auto(value: object, name: str) -> bool:
    """Tell whether a parameter, else a number, is "auto"."""
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"{name} must be a number or 'auto', got {value!r}")
    return isinstance(value, str)
