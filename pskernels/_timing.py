"""The time and the memory of a call."""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any, TypeVar

REPEATS = 5

_Result = TypeVar("_Result")


def fastest(
    function: Callable[..., _Result],
    *arguments: Any,
    repeats: int = REPEATS,
    **options: Any,
) -> tuple[_Result, float]:
    """Time a call a few times: its result, and the least time, as noise only adds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function(*arguments, **options)
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def peak_bytes(function: Callable[..., object], *arguments: Any) -> int:
    """Measure the peak of memory that a call allocates, in a run that is not timed."""
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
